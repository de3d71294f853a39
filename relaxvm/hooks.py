"""What the runtime asks of the compiler.

The runtime does not import the compiler.  But a file may contain programs that only the compiler
turns into code: PrimFuncs, or a model.  Where one is needed, the runtime gets the function for it
here, by name; only then is the compiler imported.  `HOOKS` is the only place for such names.
"""

from __future__ import annotations

import importlib
from typing import Any, Final

__all__ = ["HOOKS", "hook"]

HOOKS: Final = {
    "prim_funcs": "compiler.saved_prim_funcs.make_kernels",
    "check_prim_funcs": "compiler.saved_prim_funcs.check_all",
    "compile": "compiler.build.compile",
    "compile_file": "compiler.build.compile_file",
    "compiles_as_shipped": "compiler.build.compiles_as_shipped",
    "prim_func_library": "compiler.saved_prim_funcs.library_of",
}
"""Name -> the function of the compiler, below relaxvm."""

_PACKAGE: Final = __name__.rpartition(".")[0]


def hook(name: str) -> Any:
    """Return a function of the compiler, and import it if nothing has done so."""
    module, _, function = HOOKS[name].rpartition(".")
    return getattr(importlib.import_module(f"{_PACKAGE}.{module}"), function)
