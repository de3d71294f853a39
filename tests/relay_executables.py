"""Executables of Relay's virtual machine, written as the format is documented: there is no TVM of
that age to make them."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Final

import numpy as np

from relaxvm.dtypes import dtype_to_dl
from relaxvm.executable.formats.stored_tensors import tensor_bytes
from relaxvm.relay_isa import Program

__all__ = ["OPCODES", "VERSIONS", "stored"]

MAGIC: Final = 0xD225DE2F4214151D
VERSIONS: Final = ("0.8.0", "0.9.0", "0.12.0")
"""Versions of TVM that brought a new layout."""

OPCODES: Final = (
    *("Move", "Ret", "Invoke", "InvokeClosure", "InvokePacked", "AllocTensor", "AllocTensorReg"),
    *("AllocADT", "AllocClosure", "GetField", "If", "LoadConst", "Goto", "GetTag", "LoadConsti"),
    *("Fatal", "AllocStorage", "ShapeOf", "ReshapeTensor", "DeviceCopy", "KillRegister"),
)

_ORDER: Final = {
    "Move": "src dst",
    "Ret": "result",
    "Invoke": "func_index arity dst args",
    "InvokeClosure": "closure arity dst args",
    "InvokePacked": "packed_index arity output_size packed_args",
    "AllocTensor": "storage offset dtype ndim dst shape",
    "AllocTensorReg": "storage offset shape_register dtype dst",
    "AllocADT": "tag num_fields dst fields",
    "AllocClosure": "func_index num_freevars dst free_vars",
    "GetField": "object field_index dst",
    "If": "test target true_offset false_offset",
    "LoadConst": "const_index dst",
    "Goto": "pc_offset",
    "GetTag": "object dst",
    "LoadConsti": "val dst",
    "Fatal": "",
    "AllocStorage": "allocation_size alignment dtype device_index dst",
    "ShapeOf": "tensor dst",
    "ReshapeTensor": "tensor newshape dst",
    "DeviceCopy": "src src_device_index dst_device_index dst",
    "KillRegister": "dst",
}
_LATER: Final = {
    **_ORDER,
    "LoadConst": "const_index device_index dst",
    "AllocStorage": "allocation_size alignment dtype device_index ndim dst shape",
}


def _list(*words: int) -> bytes:
    return struct.pack(f"<Q{len(words)}q", len(words), *words)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _strings(*texts: str) -> bytes:
    return struct.pack("<Q", len(texts)) + b"".join(map(_string, texts))


def stored(
    program: Program, version: str = "0.8.0", device: int = 1, late: Collection[int] = ()
) -> bytes:
    """Return a program as an executable of a version of TVM.

    Args:
        device: the type of the device of everything; 1 is the CPU.
        late: constants that are not in the stream, but only their names.
    """
    minor = int(version.split(".")[1])
    place = device if minor < 9 else 1  # its type, or its index in the list of devices
    parts = [struct.pack("<Q", MAGIC), _string(version)]
    if minor >= 9:
        parts.append(struct.pack("<Q", 2))
        for kind in (1, device):
            scope = _string("global") if minor >= 12 else b""
            parts += [struct.pack("<ii", kind, 0), scope]
        parts.append(struct.pack("<i", 0))
    parts.append(_strings(*[func.name for func in program.functions]))
    parts.append(struct.pack("<Q", len(program.constants)))
    for i, array in enumerate(program.constants):
        tag = struct.pack("<I", i in late) if minor >= 9 else b""
        parts += [tag, _string(f"const_{i}") if i in late else tensor_bytes(array)]
    parts.append(_list(*[place] * len(program.constants)))
    parts.append(_strings(*program.packed))
    if minor >= 9:
        parts.append(struct.pack("<QQQ", 1, 0, 1) + _string("hash") + _string("0a1b"))
    parts.append(struct.pack("<Q", len(program.functions)))
    order = _ORDER if minor < 12 else _LATER
    for func in program.functions:
        parts.append(_strings(func.name, str(func.registers), str(len(func.code))))
        parts.append(_strings(*func.params) + _list(*[place] * len(func.params)))
        for instruction in func.code:
            values = {o.name: v for o, v in instruction.operands("final")}
            name = instruction.spec.name_in("final")
            words: list[int] = []
            for field in order[name].split():
                if field == "dtype":
                    words += dtype_to_dl(np.dtype(values[field]))
                elif field.endswith("device_index"):
                    words.append(place)
                elif name == "AllocStorage" and field in ("ndim", "shape"):
                    words += [2] if field == "ndim" else [2, 2]
                else:
                    value = values[field]
                    words += value if isinstance(value, tuple) else [value]
            parts.append(_list(0, OPCODES.index(name), *words))
    return b"".join(parts)
