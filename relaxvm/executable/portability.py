"""Which functions of a program another process does not have."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any, Final

from ..errors import RelaxVMWarning
from ..isa import FuncKind
from ..messages import readable, warn
from ..registry import GLOBAL, KERNEL_PREFIX, PackedFunc

if TYPE_CHECKING:
    from .executable import VMExecutable

__all__ = ["functions_of_this_process", "warn_of_missing"]

_SHOWN: Final = 5


def functions_of_this_process(executable: VMExecutable, saved: Container[str]) -> dict[str, str]:
    """Return the functions that a program calls and that exist in this process only: kernels that a
    file does not contain, registered functions that are not part of relaxvm, and the code of
    compiled functions.

    Args:
        executable: the program.
        saved: has the names of the functions that the file contains.

    Returns:
        Name -> what it is.
    """
    kernels = executable.kernels
    found: dict[str, str] = {}
    for info in executable.functions:
        if info.kind == FuncKind.COMPILED:
            found[info.name] = "a compiled function"
        elif info.kind != FuncKind.PACKED or info.name in saved:
            continue
        elif info.name in kernels:
            is_plain = isinstance(kernels, dict)
            found[info.name] = _kind(kernels[info.name]) if is_plain else "a compiled kernel"
        elif (record := GLOBAL.lookup(info.name)) is not None and not _is_shipped(record):
            found[info.name] = _kind(record.func)
    return found


def _is_shipped(record: PackedFunc) -> bool:
    """Return whether a function is part of relaxvm; kernels may be functions of numpy."""
    module = getattr(record.func, "__module__", None) or type(record.func).__module__
    package = module.partition(".")[0]
    return package == "relaxvm" or (package == "numpy" and record.name.startswith(KERNEL_PREFIX))


def _kind(function: Any) -> str:
    return "a Python function" if hasattr(function, "__code__") else f"a {type(function).__name__}"


def warn_of_missing(executable: VMExecutable, target: object, saved: Container[str]) -> None:
    """Warn of the functions that a process which loads a file has to register.

    Args:
        executable: what was saved.
        target: the file.
        saved: has the names of the functions that the file contains.
    """
    missing = functions_of_this_process(executable, saved)
    if not missing:
        return
    shown = [f"{readable(name)!r} ({kind})" for name, kind in [*missing.items()][:_SHOWN]]
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    file = os.fsdecode(target) if isinstance(target, (str, bytes, os.PathLike)) else "the file"
    them = "it" if len(missing) == 1 else "them"
    hint = "; export_library writes compiled code" if _has_code(missing.values()) else ""
    warn(
        f"{file}: does not contain {', '.join(shown)}{more}; a process that loads the file has to "
        f"register {them}, or pass {them} to VirtualMachine(..., functions={{name: func}}){hint}",
        RelaxVMWarning,
    )


def _has_code(kinds: Iterable[str]) -> bool:
    return any(kind.startswith("a compiled") for kind in kinds)
