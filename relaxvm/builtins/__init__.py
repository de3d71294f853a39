"""The functions ``vm.builtin.*``, in plain Python, those of our own, ``relaxvm.builtin.*``, and
``relax.run.*``: importing this package registers them.

They are the reference for the core, which runs the common ones by itself where the arguments are
what it expects: results, identity and errors of these functions define both.  One module per
family; `docs/builtins.md` lists them all.
"""

from __future__ import annotations

from . import call, checks, data, memory, run, shape  # noqa: F401  (they register)
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
