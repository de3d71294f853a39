"""The functions ``vm.builtin.*``, in plain Python: importing this package registers them.

They are the reference for the core, which runs the common ones by itself where the arguments are
what it expects: results, identity and errors of these functions define both.  One module per
family; `docs/builtins.md` lists them all.
"""

from __future__ import annotations

from . import call, checks, data, lm, memory, shape, tensor_cache
from .registration import PREFIX, builtin, is_reference

__all__ = [
    "PREFIX",
    "builtin",
    "call",
    "checks",
    "data",
    "is_reference",
    "lm",
    "memory",
    "shape",
    "tensor_cache",
]
