"""Find the executable of a virtual machine of TVM, which has no accessor for it.

The machine has a pointer to its executable among its members, and all objects of a C++ class point
to the same table of virtual functions.  So the executable is the first object that a word of the
machine points to and that has the table of executables.  The memory is read through the operating
system, for which an invalid address is an error, not a crash; no method is called before the object
is identified.

Source: ``tvm/ffi/c_api.h`` of tvm_ffi (`TVMFFIObject`), and the Itanium C++ ABI, 2.4: the pointer
to the table precedes the members of a base class without one.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Final

from ...core import ffi
from ...executable import VMExecutable
from ...executable.formats import binary

__all__ = ["executable_of"]

_READ_BYTES: Final = "ffi.Module.load_from_bytes.relax.VMExecutable"

_OBJECT: Final = struct.Struct("=QQi")
"""The start of an object: the table of virtual functions, the reference counts, the type."""

_TABLE_SIZE: Final = 8
"""Bytes of an object before the address in its handle."""

_MEMBERS: Final = struct.Struct("=64Q")
"""The number of words of a machine that are searched; the pointer is among the first 20."""


def executable_of(machine: Any) -> Any | None:
    """Return the module with the executable that a module of kind ``relax.VirtualMachine`` runs.

    None if it is not found: the system has no file with the memory of a process, or the layout of
    TVM's classes has changed.
    """
    import tvm

    some = tvm.get_global_func(_READ_BYTES)(binary.dumps(VMExecutable((), (), (), ())))
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return None
    try:
        table, _, kind = _read(memory, some.__chandle__() - _TABLE_SIZE, _OBJECT)
        for word in _read(memory, machine.__chandle__(), _MEMBERS):
            found = _read(memory, word - _TABLE_SIZE, _OBJECT)
            if found and (found[0], found[2]) == (table, kind):
                return ffi.object_at(word, kind)
    finally:
        os.close(memory)
    return None


def _read(memory: int, address: int, form: struct.Struct) -> tuple[int, ...]:
    """Read the memory at an address; return an empty tuple if it is not valid."""
    try:
        return form.unpack(os.pread(memory, form.size, address))
    except (OSError, OverflowError, struct.error):
        return ()
