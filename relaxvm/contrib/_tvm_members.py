"""The executable of a virtual machine of TVM, which has no function that gives it.

The machine keeps a pointer to its executable among its members, and objects of one C++ class have a
pointer to the same table of virtual functions.  So the executable is what the first word of the
machine points to that is an object with such a table.  The memory is read through the kernel, for
which a word that is no address is an error and not a fault, and nothing is called before it is
recognised.

Source: ``tvm/ffi/c_api.h`` of tvm_ffi (`TVMFFIObject`), and the Itanium C++ ABI, 2.4: the pointer
to the table lies before the parts of a base that has none.
"""

from __future__ import annotations

import os
import struct
from typing import Any, Final

from .. import ffi
from ..executable import VMExecutable
from ..formats import binary

__all__ = ["executable_of"]

_READ_BYTES: Final = "ffi.Module.load_from_bytes.relax.VMExecutable"

_OBJECT: Final = struct.Struct("=QQi")
"""How an object begins: the table of virtual functions, the counts of references, the type."""

_TABLE_SIZE: Final = 8
"""Bytes of an object before what its handle points to."""

_MEMBERS: Final = struct.Struct("=64Q")
"""As many words of a machine as are looked at; the one in question is among the first 20."""


def executable_of(machine: Any) -> Any | None:
    """The module with the executable that a module of kind ``relax.VirtualMachine`` runs.

    None if it is not found: the system does not show a process its own memory as a file, or TVM
    lays out its classes in another way.
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
    """What lies at an address, nothing if it is none."""
    try:
        return form.unpack(os.pread(memory, form.size, address))
    except (OSError, OverflowError, struct.error):
        return ()
