"""Executables of Relay's virtual machine, as TVM 0.7 and 0.8 stored them.

The stream has a header (magic number, version of TVM), the names of the functions, the constants
and their devices, the names of the packed functions, and the code.  A list is a u64 count and its
items; a string a u64 length and bytes; an instruction a list of i64: a hash, the opcode, the
fields.  The hashes are not checked: the program is verified.
"""

from __future__ import annotations

import os
import re
import struct
from typing import Any, Final

from ..dtypes import dtype_name
from ..errors import FormatError, VerifyError
from ..executable import VMExecutable
from ..executable.formats._tensors import dtype_from_stream
from ..executable.formats.binary import MAGIC_WITHOUT_SCOPES
from ..executable.formats.stored_tensors import read_tensor
from ..limits import Limits
from .check import verify
from .program import Function, Instruction, Program, find_spec
from .translate import translate

__all__ = ["load_executable", "read_executable"]

_DIALECT: Final = "final"
_VERSIONS: Final = re.compile(rb"0\.[78](\.\S*)?")
_CPU: Final = 1

_FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("Move", "src dst"),
    ("Ret", "result"),
    ("Invoke", "func_index arity dst *args"),
    ("InvokeClosure", "closure arity dst *args"),
    ("InvokePacked", "packed_index arity output_size *packed_args"),
    ("AllocTensor", "storage offset dtype ndim dst *shape"),
    ("AllocTensorReg", "storage offset shape_register dtype dst"),
    ("AllocADT", "tag num_fields dst *fields"),
    ("AllocClosure", "func_index num_freevars dst *free_vars"),
    ("GetField", "object field_index dst"),
    ("If", "test target true_offset false_offset"),
    ("LoadConst", "const_index dst"),
    ("Goto", "pc_offset"),
    ("GetTag", "object dst"),
    ("LoadConsti", "val dst"),
    ("Fatal", ""),
    ("AllocStorage", "allocation_size alignment dtype device_index dst"),
    ("ShapeOf", "tensor dst"),
    ("ReshapeTensor", "tensor newshape dst"),
    ("DeviceCopy", "src src_device_index dst_device_index dst"),
)
"""Instructions by opcode, and their fields in stored order; a data type is three fields."""


def load_executable(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    *,
    limits: Limits | None = None,
) -> VMExecutable:
    """Read an executable of Relay's virtual machine: the bytecode that its ``save`` returns.

    Its kernels are in a library of their own, which is not read: the packed functions are supplied
    by name when a VM is made.

    Args:
        source: a path, or the bytes.
        limits: bounds on the content; None: those of ``Limits()``.

    Raises:
        OSError: the file cannot be read.
        FormatError: the stream is malformed, or of another version of TVM.
        VerifyError: the program breaks a rule.
        LimitError: a limit is exceeded.
        MissingExtraError: a tensor has a data type of ml_dtypes, and that is not installed.
    """
    limits = limits or Limits()
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        with open(source, "rb") as file:
            limits.check("file_bytes", os.fstat(file.fileno()).st_size, name)
            data: Any = file.read()
    else:
        name, data = "<executable>", source
    program = read_executable(data, limits=limits, name=name)
    problems = verify(program)
    if problems:
        raise VerifyError("\n".join([f"{name}: {problem}" for problem in problems[:20]]))
    return translate(program)


def read_executable(data: Any, *, limits: Limits, name: str = "<executable>") -> Program:
    """Return the program of an executable of Relay's virtual machine, not verified.

    Raises:
        FormatError, LimitError, MissingExtraError: as `load_executable`.
    """
    view = memoryview(data).cast("B")
    limits.check("file_bytes", len(view), name)
    return _Reader(view, limits, name).program()


class _Reader:
    def __init__(self, data: memoryview, limits: Limits, name: str) -> None:
        self._data = data
        self._at = 0
        self._limits = limits
        self._name = name

    def _fail(self, message: str) -> FormatError:
        return FormatError(f"{self._name}: {message}, before byte {self._at}")

    def _take(self, size: int, what: str) -> memoryview:
        left = len(self._data) - self._at
        if size > left:
            raise FormatError(f"{self._name}: {what}: truncated at byte {self._at}: expected "
                              f"{size} more bytes, got {left}")  # fmt: skip
        self._at += size
        return self._data[self._at - size : self._at]

    def _count(self, what: str, size: int) -> int:
        """A number of items of at least `size` bytes each, for which there is room."""
        (count,) = struct.unpack("<Q", self._take(8, what))
        if count * size > len(self._data) - self._at:
            raise self._fail(f"{what}: {count} items do not fit into the file")
        return int(count)

    def _string(self, what: str) -> str:
        size = self._count(what, 1)
        self._limits.check("name_bytes", size, f"{self._name}: {what}")
        try:
            return bytes(self._take(size, what)).decode()
        except UnicodeDecodeError:
            raise self._fail(f"{what}: expected UTF-8") from None

    def _strings(self, what: str) -> list[str]:
        count = self._count(what, 8)
        self._limits.check("functions", count, f"{self._name}: {what}")
        return [self._string(what) for _ in range(count)]

    def _numbers(self, what: str) -> tuple[int, ...]:
        count = self._count(what, 8)
        return struct.unpack(f"<{count}q", self._take(8 * count, what))

    def program(self) -> Program:
        """The program."""
        (magic,) = struct.unpack("<Q", self._take(8, "the magic number"))
        if magic != MAGIC_WITHOUT_SCOPES:
            raise self._fail(f"expected the magic {MAGIC_WITHOUT_SCOPES:#x} of an executable of "
                             f"the Relay VM, got {magic:#x}")  # fmt: skip
        version = bytes(self._take(self._count("version", 1), "version"))
        if not _VERSIONS.fullmatch(version):
            raise self._fail(f"expected version 0.7 or 0.8 of TVM, got {version[:32]!r}")
        names = self._strings("names of functions")
        if len(set(names)) < len(names):
            raise self._fail("two functions have the same name")
        count = self._count("constants", 40)
        self._limits.check("constants", count, f"{self._name}: constants")
        constants = []
        for i in range(count):
            array, self._at = read_tensor(self._data, self._at, f"{self._name}: constant {i}")
            self._limits.check("rank", array.ndim, f"{self._name}: constant {i}")
            constants.append(array)
        devices = self._numbers("devices of constants")
        if len(devices) != count:
            raise self._fail(f"expected {count} devices of constants, got {len(devices)}")
        packed = self._strings("names of packed functions")
        functions = self._functions(names)
        if self._at != len(self._data):
            raise self._fail(f"{len(self._data) - self._at} bytes after the end")
        return Program(_DIALECT, functions, constants, packed)

    def _functions(self, names: list[str]) -> list[Function]:
        count = self._count("functions", 8)
        if count != len(names):
            raise self._fail(f"expected {len(names)} functions, got {count}")
        found: dict[str, Function] = {}
        total = 0
        for _ in range(count):
            info = self._strings("header of a function")
            if len(info) != 3 or not all(re.fullmatch(r"\d{1,12}", n) for n in info[1:]):
                raise self._fail("a function: expected its name and two numbers")
            name, registers, length = info[0], int(info[1]), int(info[2])
            if name not in names or name in found:
                raise self._fail(f"function {name!r} is not among the names, or there twice")
            self._limits.check("registers", registers, f"{self._name}: function {name!r}")
            params = tuple(self._strings("parameters"))
            if len(set(params)) < len(params):
                params = tuple(f"arg{i}" for i in range(len(params)))
            self._numbers("devices of parameters")
            total += length
            self._limits.check("instructions", total, self._name)
            code = tuple([self._instruction() for _ in range(length)])
            found[name] = Function(name, params, registers, code)
        return [found[name] for name in names]

    def _instruction(self) -> Instruction:
        words = self._numbers("an instruction")
        if len(words) < 2 or not 0 <= words[1] < len(_FIELDS):
            raise self._fail("an instruction: expected a hash and a known opcode")
        name, layout = _FIELDS[words[1]]
        spec = find_spec(name, _DIALECT)
        assert spec is not None
        rest = list(words[2:])
        values: dict[str, Any] = {}
        for field in layout.split():
            if field.startswith("*"):
                values[field[1:]] = tuple(rest)
                rest = []
            elif field == "dtype":
                values[field] = self._dtype(rest[:3])
                del rest[:3]
            elif rest:
                values[field] = rest.pop(0)
        if rest or len(values) != len(spec.operands[_DIALECT]):
            raise self._fail(f"{name}: got {len(words) - 2} fields")
        for key in ("device_index", "src_device_index", "dst_device_index"):
            if key in values:
                if values[key] != _CPU:
                    raise self._fail(f"{name}: expected the CPU, device type {_CPU}, "
                                     f"got {values[key]}")  # fmt: skip
                values[key] = 0
        for operand in spec.operands[_DIALECT]:
            if operand.counts and len(values[operand.name]) != values[operand.counts[0]]:
                raise self._fail(f"{name}: expected {values[operand.counts[0]]} {operand.name}, "
                                 f"got {len(values[operand.name])}")  # fmt: skip
        return Instruction(spec, tuple(values[o.name] for o in spec.operands[_DIALECT]))

    def _dtype(self, words: list[int]) -> str:
        if len(words) != 3 or not all(0 <= word < 65536 for word in words):
            raise self._fail("expected a data type: code, bits and lanes")
        try:
            return dtype_name(dtype_from_stream(*words))
        except FormatError as error:
            raise self._fail(str(error)) from None
