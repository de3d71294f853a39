"""The virtual machine: linking, calls from Python, allocators, timing, and notes on errors."""

from typing import TYPE_CHECKING, Any

from .machine import FunctionTable, VirtualMachine, VMInstrumentReturnKind

if TYPE_CHECKING:
    from .runs import Frame, Run

__all__ = ["Frame", "FunctionTable", "Run", "VMInstrumentReturnKind", "VirtualMachine"]


def __getattr__(name: str) -> Any:
    if name in ("Frame", "Run"):  # here, since most programs are called
        from . import runs

        return getattr(runs, name)
    hint = "; today it is relaxvm.build" if name == "build" else ""  # of the first design documents
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)
