"""The builtins in plain Python: ``vm.builtin.*`` as in TVM, ``relaxvm.builtin.*`` beyond TVM, and
``relax.run.*``.  A module registers its builtins when it is imported; that happens when one of
them is looked up, so that a program imports those modules alone whose builtins it calls.

They are the reference for the core, which implements the common ones in C for the common kinds of
arguments: both must have the same results, object identities and errors.  There is one module per
family; `docs/builtins.md` lists all builtins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._families import deferred, import_all, import_home
from .registration import (
    OWN_PREFIX,
    PREFIX,
    RUN_PREFIX,
    RUNTIME_PREFIX,
    builtin,
    is_reference,
)

if TYPE_CHECKING:
    from .lm import AttentionKVCache
    from .tensor_cache import ParamModule, read_tensor_cache

__all__ = [
    "OWN_PREFIX",
    "PREFIX",
    "RUNTIME_PREFIX",
    "RUN_PREFIX",
    "AttentionKVCache",
    "ParamModule",
    "builtin",
    "deferred",
    "import_all",
    "import_home",
    "is_reference",
    "read_tensor_cache",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, since few programs need them.
    if name == "AttentionKVCache":
        from . import lm

        return lm.AttentionKVCache
    if name in ("ParamModule", "read_tensor_cache"):
        from . import tensor_cache

        return getattr(tensor_cache, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
