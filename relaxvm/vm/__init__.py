"""The virtual machine: linking, calls from Python, allocators, timing, and notes on errors."""

from .machine import FunctionTable, VirtualMachine, VMInstrumentReturnKind

__all__ = ["FunctionTable", "VMInstrumentReturnKind", "VirtualMachine"]
