"""Executables of Relay's virtual machine, as TVM 0.7 to 0.19 stored them.

The stream has a header (magic number, version of TVM), the devices (in later versions), the names
of the functions, the constants and their devices, the names of the packed functions and (later)
attributes of these, and the code.  A list is a u64 count and its items; a string a u64 length and
bytes; an instruction a list of i64: a hash, the opcode, the fields.

What a stream has does not follow from its version alone, since versions under development are named
after the next one.  So the layouts are tried, oldest first: one fits if it ends where the stream
ends.  The hashes are not checked: the program is verified.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checkpoints import checkpoint
from ..dtypes import dtype_name
from ..errors import FormatError, LimitError, MissingExtraError, VerifyError
from ..executable import VMExecutable
from ..executable.formats._files import read_all
from ..executable.formats._tensors import dtype_from_stream
from ..executable.formats.binary import MAGIC_WITHOUT_SCOPES
from ..executable.formats.stored_tensors import read_tensor
from ..limits import Limits
from ..vm.limited import run_limited
from .check import verify
from .program import Function, Instruction, Program, find_spec
from .translate import translate

__all__ = ["load_executable", "read_executable"]

_DIALECT: Final = "final"
_VERSION: Final = re.compile(rb"0\.(\d{1,3})(?:\..*)?", re.DOTALL)
_FIRST, _LAST = 7, 19  # 0.20 has no Relay
_CPU: Final = 1


class _Layout(NamedTuple):
    """What a stream has.

    Attributes:
        devices: "types": there is no list of devices, a device is a number for its type; "table":
            a list, and a device is an index into it; "scopes": a list with memory scopes.
        is_tagged: whether a tag before each constant tells if it is stored elsewhere, by a name.
        has_attrs: whether there are attributes of packed functions.
    """

    devices: str
    is_tagged: bool
    has_attrs: bool


_LAYOUTS: Final = (
    _Layout("types", False, False),  # 0.7 and 0.8
    _Layout("types", False, True),
    _Layout("table", False, False),
    _Layout("table", False, True),
    _Layout("table", True, False),
    _Layout("table", True, True),  # 0.9 to 0.11
    _Layout("scopes", True, True),  # 0.12 to 0.19
)

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
    ("KillRegister", "dst"),
)
"""Instructions by opcode, and their fields in stored order; a data type is three fields."""

_LONGER: Final[Mapping[str, tuple[int, str]]] = {
    "LoadConst": (3, "const_index device_index dst"),
    "AllocStorage": (8, "allocation_size alignment dtype device_index ndim dst *shape"),
}
"""Instructions that have more fields in later versions: from how many words on, and the fields.
The shape of a storage says again what its size is."""


def load_executable(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview,
    constants: Mapping[str, Any] | None = None,
    *,
    limits: Limits | None = None,
) -> VMExecutable:
    """Read an executable of Relay's virtual machine: the bytecode that its ``save`` returns, or a
    file that `Executable.save` of TVM wrote.

    Its kernels are in a library of their own, which is not read: the packed functions are supplied
    by name when a VM is made.

    Args:
        source: a path, or the bytes.
        constants: those that are stored apart from the code ("late-bound"), by name:
            ``read_params`` reads the file that TVM wrote for them.
        limits: bounds on the content, and of the time and memory that reading it takes
            (`wall_time`, `live_bytes`, `alloc_bytes`); None: those of ``Limits()``.

    Raises:
        OSError: the file cannot be read.
        FormatError: the stream is malformed, of a version of TVM without Relay, or for a device
            that is not the CPU.
        ValueError: `constants` lacks a name, or has one that the executable has not.
        VerifyError: the program breaks a rule.
        LimitError: a limit is exceeded.
        MissingExtraError: a tensor has a data type of ml_dtypes, and that is not installed.
    """
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else "<executable>"
    return run_limited(
        lambda: _load(source, constants, limits or Limits(), name), limits, name
    )


def _load(
    source: Any, constants: Mapping[str, Any] | None, limits: Limits, name: str
) -> VMExecutable:
    data = source
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            limits.check("file_bytes", os.fstat(file.fileno()).st_size, name)
            data = read_all(file, name, limits)
    program = read_executable(data, constants, limits=limits, name=name)
    problems = verify(program)
    if problems:
        raise VerifyError("\n".join([f"{name}: {problem}" for problem in problems[:20]]))
    return translate(program)


def read_executable(
    data: Any,
    constants: Mapping[str, Any] | None = None,
    *,
    limits: Limits,
    name: str = "<executable>",
) -> Program:
    """Return the program of an executable of Relay's virtual machine, not verified.

    Raises:
        FormatError, ValueError, LimitError, MissingExtraError: as `load_executable`.
    """
    view = memoryview(data).cast("B")
    limits.check("file_bytes", len(view), name)
    if len(view) > 16 and int.from_bytes(view[:8], "little") == len(view) - 8:
        view = view[8:]  # a file: the length of the code, and the code
    failures: list[tuple[int, Exception]] = []
    start = _Reader(view, limits, name, _LAYOUTS[0]).header()
    for layout in _LAYOUTS:
        reader = _Reader(view, limits, name, layout, start)
        try:
            program, named = reader.program()
        except (FormatError, LimitError, MissingExtraError) as error:
            failures.append((reader.position, error))
        else:
            return _with_constants(program, named, constants or {}, name)
    # The layout of the stream is most likely the one that was read furthest.
    raise max(failures, key=lambda failure: failure[0])[1]


def _with_constants(
    program: Program, named: Mapping[int, str], given: Mapping[str, Any], name: str
) -> Program:
    """The program with the constants that are stored elsewhere."""
    missing = sorted(set(named.values()) - set(given))
    if missing:
        raise ValueError(f"{name}: {len(missing)} constants are stored apart from the code, supply "
                         f"them by name as constants=: {', '.join(missing[:20])}")  # fmt: skip
    unknown = sorted(set(given) - set(named.values()))
    if unknown:
        raise ValueError(f"{name}: the executable has no constant {', '.join(unknown[:20])} that "
                         "is stored apart from it")  # fmt: skip
    tensors = list(program.constants)
    for i, key in named.items():
        tensors[i] = np.asarray(given[key])
    return Program(program.dialect, program.functions, tuple(tensors), program.packed)


class _Reader:
    """Reads a stream in one layout.

    Attributes:
        position: how far it was read.
    """

    def __init__(
        self, data: memoryview, limits: Limits, name: str, layout: _Layout, start: int = 0
    ) -> None:
        self._data = data
        self.position = start
        self._limits = limits
        self._name = name
        self._layout = layout
        self._devices: list[tuple[int, str]] = []

    def _fail(self, message: str) -> FormatError:
        return FormatError(f"{self._name}: {message}, before byte {self.position}")

    def _take(self, size: int, what: str) -> memoryview:
        left = len(self._data) - self.position
        if size > left:
            raise FormatError(f"{self._name}: {what}: truncated at byte {self.position}: expected "
                              f"{size} more bytes, got {left}")  # fmt: skip
        self.position += size
        return self._data[self.position - size : self.position]

    def _count(self, what: str, size: int) -> int:
        """A number of items of at least `size` bytes each, for which there is room."""
        (count,) = struct.unpack("<Q", self._take(8, what))
        if count * size > len(self._data) - self.position:
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

    def header(self) -> int:
        """Check the magic number and the version; return where they end."""
        (magic,) = struct.unpack("<Q", self._take(8, "the magic number"))
        if magic != MAGIC_WITHOUT_SCOPES:
            raise self._fail(f"expected the magic {MAGIC_WITHOUT_SCOPES:#x} of an executable of "
                             f"the Relay VM, got {magic:#x}")  # fmt: skip
        version = bytes(self._take(self._count("version", 1), "version"))
        found = _VERSION.fullmatch(version)
        if found is None or not _FIRST <= int(found[1]) <= _LAST:
            shown = version[:32].decode(errors="replace")
            raise self._fail(f"expected a version of TVM from 0.{_FIRST} to 0.{_LAST}, "
                             f"got {shown!r}")  # fmt: skip
        return self.position

    def program(self) -> tuple[Program, Mapping[int, str]]:
        """The program, and the names of the constants that are not in the stream, by index."""
        if self._layout.devices != "types":
            self._read_devices()
        names = self._strings("names of functions")
        if len(set(names)) < len(names):
            raise self._fail("two functions have the same name")
        constants, named = self._constants()
        packed = self._strings("names of packed functions")
        if self._layout.has_attrs:
            self._attrs()
        functions = self._functions(names)
        if self.position != len(self._data):
            raise self._fail(f"{len(self._data) - self.position} bytes after the end")
        return Program(_DIALECT, functions, tuple(constants), packed), named

    def _read_devices(self) -> None:
        """The list of devices: type, number and memory scope; and which one is the host."""
        count = self._count("devices", 8)
        self._limits.check("functions", count, f"{self._name}: devices")
        for _ in range(count):
            kind, _ = struct.unpack("<ii", self._take(8, "a device"))
            scope = self._string("a memory scope") if self._layout.devices == "scopes" else ""
            self._devices.append((kind, scope))
        (host,) = struct.unpack("<i", self._take(4, "the host"))
        if not 0 <= host < count:
            raise self._fail(f"the host is device {host}, expected 0 to {count - 1}")

    def _check_device(self, number: int, what: str) -> None:
        """Check that a device is the CPU."""
        kind, scope = number, ""
        if self._layout.devices != "types":
            if not 0 <= number < len(self._devices):
                raise self._fail(f"{what}: device {number}, expected 0 to {len(self._devices) - 1}")
            kind, scope = self._devices[number]
        if kind != _CPU:
            raise self._fail(f"{what}: expected the CPU, device type {_CPU}, got {kind}")
        if scope not in ("", "global"):
            raise self._fail(f"{what}: expected the memory scope 'global', got {scope[:40]!r}")

    def _constants(self) -> tuple[list[NDArray[Any]], Mapping[int, str]]:
        count = self._count("constants", 12)
        self._limits.check("constants", count, f"{self._name}: constants")
        constants: list[NDArray[Any]] = []
        named: dict[int, str] = {}
        for i in range(count):
            what = f"{self._name}: constant {i}"
            if self._layout.is_tagged:
                (tag,) = struct.unpack("<I", self._take(4, f"constant {i}"))
                if tag > 1:
                    raise self._fail(f"constant {i}: expected the tag 0 or 1, got {tag}")
                if tag:
                    named[i] = self._string(f"the name of constant {i}")
                    constants.append(np.empty(0))
                    continue
            array, self.position = read_tensor(self._data, self.position, what)
            self._limits.check("rank", array.ndim, what)
            constants.append(array)
        devices = self._numbers("devices of constants")
        if len(devices) != count:
            raise self._fail(f"expected {count} devices of constants, got {len(devices)}")
        for i, device in enumerate(devices):
            self._check_device(device, f"constant {i}")
        return constants, named

    def _attrs(self) -> None:
        """Attributes of packed functions, which are for profiles."""
        for _ in range(self._count("attributes of packed functions", 16)):
            self._take(8, "the index of a packed function")
            for _ in range(self._count("attributes", 16)):
                self._take(self._count("an attribute", 1), "an attribute")
                self._take(self._count("an attribute", 1), "an attribute")

    def _functions(self, names: list[str]) -> list[Function]:
        count = self._count("functions", 8)
        if count != len(names):
            raise self._fail(f"expected {len(names)} functions, got {count}")
        known = frozenset(names)
        found: dict[str, Function] = {}
        total = 0
        for _ in range(count):
            info = self._strings("header of a function")
            if len(info) != 3 or not all(re.fullmatch(r"[0-9]{1,12}", n) for n in info[1:]):
                raise self._fail("a function: expected its name and two numbers")
            name, registers, length = info[0], int(info[1]), int(info[2])
            if name not in known or name in found:
                raise self._fail(f"function {name!r} is not among the names, or there twice")
            self._limits.check("registers", registers, f"{self._name}: function {name!r}")
            params = tuple(self._strings("parameters"))
            if len(set(params)) < len(params):
                params = tuple(f"arg{i}" for i in range(len(params)))
            for device in self._numbers("devices of parameters"):
                self._check_device(device, f"function {name!r}: a parameter")
            total += length
            self._limits.check("instructions", total, self._name)
            code = tuple([self._instruction() for _ in range(length)])
            found[name] = Function(name, params, registers, code)
        return [found[name] for name in names]

    def _instruction(self) -> Instruction:
        checkpoint()
        words = self._numbers("an instruction")
        if len(words) < 2 or not 0 <= words[1] < len(_FIELDS):
            raise self._fail("an instruction: expected a hash and a known opcode")
        name, layout = _FIELDS[words[1]]
        spec = find_spec(name, _DIALECT)
        assert spec is not None
        rest = list(words[2:])
        least, longer = _LONGER.get(name, (0, ""))
        if longer and len(rest) >= least:
            layout = longer
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
        if rest or len(values) != len(layout.split()):
            raise self._fail(f"{name}: got {len(words) - 2} fields")
        for key in ("device_index", "src_device_index", "dst_device_index"):
            if key in values:
                self._check_device(values[key], name)
                values[key] = 0
        if name == "AllocStorage" and len(values.pop("shape", ())) != values.pop("ndim", 0):
            raise self._fail("AllocStorage: expected as many dimensions as ndim says")
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
