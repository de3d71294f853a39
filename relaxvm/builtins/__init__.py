"""The builtins in plain Python: ``vm.builtin.*`` as in TVM, ``relaxvm.builtin.*`` beyond TVM, and
``relax.run.*``.  Importing this package registers them.

They are the reference for the core, which implements the common ones in C for the common kinds of
arguments: both must have the same results, object identities and errors.  There is one module per
family; `docs/builtins.md` lists all builtins.
"""

from __future__ import annotations

from . import (  # noqa: F401  (they register builtins)
    adt,
    allocation,
    call,
    checks,
    classes,
    data,
    kv_checkpoint,
    maps,
    numbers,
    random_numbers,
    relay,
    rnn_state,
    run,
    sequences,
    shape,
    state,
    strings,
    trees,
)
from .lm import AttentionKVCache
from .registration import (
    OWN_PREFIX,
    PREFIX,
    RUN_PREFIX,
    RUNTIME_PREFIX,
    builtin,
    is_reference,
)
from .tensor_cache import ParamModule, read_tensor_cache

__all__ = [
    "OWN_PREFIX",
    "PREFIX",
    "RUNTIME_PREFIX",
    "RUN_PREFIX",
    "AttentionKVCache",
    "ParamModule",
    "builtin",
    "is_reference",
    "read_tensor_cache",
]
