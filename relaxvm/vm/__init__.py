"""The virtual machine: linking, calls from Python, allocators, timing, and notes on errors."""

from typing import Any

from .machine import FunctionTable, VirtualMachine, VMInstrumentReturnKind

__all__ = ["FunctionTable", "VMInstrumentReturnKind", "VirtualMachine"]


def __getattr__(name: str) -> Any:
    hint = "; today it is relaxvm.build" if name == "build" else ""  # of the first design documents
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}", name=name)
