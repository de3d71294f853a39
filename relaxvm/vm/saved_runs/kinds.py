"""The values of a saved run: one record per kind.

A value that stands in several places is written once, so that it is one object again.  A value of a
kind that is *filled* may contain itself: it is made empty where it stands among the values, and
gets its parts when all values are there.  The parts of other values stand before them.

To add a kind, add a record to `KINDS`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..._core import Adt, Closure, Ref, Storage, VMFunction, adt_of, closure_of
from ...dtypes import as_dtype
from ...errors import FormatError, MissingExtraError
from ...executable.formats._fields import I64, Reader, Writer, utf8
from ...executable.formats._tensors import MAX_RANK
from ...messages import readable
from ...values import Device, Shape
from .memory import LoadedBlock
from .states import STATES, state_name_of

__all__ = [
    "BY_CODE", "KINDS", "Loading", "ObjectMemory", "Saving", "ValueKind", "kind_of_value",
    "owner_of",
]  # fmt: skip


class ObjectMemory:
    """The memory of arrays of Python objects, which are strings.

    Attributes:
        owner: the array that owns it.
    """

    def __init__(self, owner: NDArray[Any]) -> None:
        self.owner = owner


class Saving(Protocol):
    """What a kind needs to write a value."""

    to: Writer

    def ref(self, value: Any) -> int:
        """The number of a value."""

    def parts_of(self, value: Any) -> Iterable[Any]:
        """The parts of a value, the same objects every time."""

    def place_of(self, array: NDArray[Any]) -> tuple[int, int]:
        """The block of an array, and where in it the first element is."""

    def block_of(self, storage: Storage) -> int:
        """The block of a storage."""

    def memory_of(self, array: NDArray[Any]) -> ObjectMemory:
        """The memory of an array of objects, one object for all arrays in it."""

    def function_number(self, function: Any) -> int | None:
        """The index of a function in the table of the executable; None if it is not there."""

    def constant_number(self, value: Any) -> int | None:
        """The number of the constant that a value is; None if it is none."""


class Loading(Protocol):
    """What a kind needs to read a value."""

    read: Reader
    blocks: Sequence[LoadedBlock]

    @property
    def constants(self) -> Sequence[Any]:
        """Those of the executable."""

    def part(self) -> Any:
        """Read the reference to a value before the one that is read."""

    def refs(self, count: int) -> tuple[int, ...]:
        """Read references to values anywhere."""

    def function_at(self, number: int) -> Any:
        """The function of an index of the table; None if there is none."""


Write = Callable[[Saving, Any], None]
Read = Callable[[Loading], Any]


class ValueKind(NamedTuple):
    """A kind of value.

    Attributes:
        code: its number in files.
        name: for messages.
        types: the classes of its values.
        parts: the values that a value is made of.
        write: writes the fields of a value.
        read: reads the fields, checks them and returns the value; of a kind that is filled, the
            empty value and the references of its parts.
        fill: gives an empty value its parts, and checks them; None for kinds that are not filled.
    """

    code: int
    name: str
    types: tuple[type, ...]
    parts: Callable[[Saving, Any], Iterable[Any]]
    write: Write
    read: Read
    fill: Callable[[Any, list[Any]], None] | None = None


def _no_parts(to: Saving, value: Any) -> tuple[Any, ...]:
    return ()


def _items(to: Saving, value: Any) -> Iterable[Any]:
    items: Iterable[Any] = value
    return items


# Numbers and text

_F64: Final = struct.Struct("<d")
_U64: Final = struct.Struct("<Q")
_I64_PAIR: Final = struct.Struct("<qq")


def _write_bool(to: Saving, value: Any) -> None:
    to.to.put(bytes([value]))


def _read_bool(at: Loading) -> bool:
    byte = at.read.stream.take(1)[0]
    if byte > 1:
        raise FormatError(f"expected a bool of 0 or 1, got {byte}")
    return bool(byte)


def _write_int(to: Saving, value: Any) -> None:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    to.to.put(_U64.pack(len(data)) + data)


def _read_int(at: Loading) -> int:
    data = at.read.stream.take(at.read.count(1))
    value = int.from_bytes(data, "little", signed=True)
    if value.bit_length() // 8 + 1 != len(data):
        raise FormatError(f"an int is written in {len(data)} bytes, more than it needs")
    return value


def _write_float(to: Saving, value: Any) -> None:
    to.to.put(_F64.pack(value))


def _read_float(at: Loading) -> float:
    return float(at.read.unpack(_F64)[0])


def _write_str(to: Saving, value: Any) -> None:
    data = value.encode("utf-8", "surrogatepass")
    to.to.put(_U64.pack(len(data)) + data)


def _read_str(at: Loading) -> str:
    data = at.read.stream.take(at.read.count(1))
    try:
        return str(data, "utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise FormatError(f"not UTF-8 ({error.reason})") from None


def _write_bytes(to: Saving, value: Any) -> None:
    to.to.put(_U64.pack(len(value)) + value)


def _read_bytes(at: Loading) -> bytes:
    return bytes(at.read.stream.take(at.read.count(1)))


def _write_shape(to: Saving, value: Any) -> None:
    to.to.put(struct.pack(f"<Q{len(value)}q", len(value), *value))


def _read_shape(at: Loading) -> Shape:
    return Shape(at.read.integers(at.read.count(I64.size)))


def _write_device(to: Saving, value: Any) -> None:
    to.to.put(_I64_PAIR.pack(value.dlpack_device_type(), value.index))


def _read_device(at: Loading) -> Device:
    kind, index = at.read.unpack(_I64_PAIR)
    if not 0 <= kind < 1 << 31 or not 0 <= index < 1 << 31:
        raise FormatError(f"expected the type and the index of a device, got {kind} and {index}")
    return Device(kind, index)


# Data types and tensors

_NUMPY_DTYPE: Final = re.compile(r"[<>|=]?(?:b1|[iu][1248]|f[248]|c8|c16|[SU][0-9]{1,9}|O)")
_MOST_SIZE: Final = 1 << 62
_WRITEABLE: Final = 1


def _dtype_text(dtype: np.dtype[Any]) -> str:
    """A data type as text; empty if files cannot have it."""
    if _NUMPY_DTYPE.fullmatch(dtype.str) and dtype.metadata is None and dtype.subdtype is None:
        return dtype.str
    if dtype.kind in "VfiuO" and dtype.fields is None and dtype.type.__module__ == "ml_dtypes":
        return dtype.name
    return ""


def _dtype_parts(to: Saving, value: Any) -> tuple[Any, ...]:
    if not _dtype_text(value):
        raise TypeError(f"the data type {value}")
    return ()


def _tensor_parts(to: Saving, value: Any) -> tuple[Any, ...]:
    if not _dtype_text(value.dtype):
        raise TypeError(f"a tensor of the data type {value.dtype}")
    return ()


def _write_dtype(to: Saving, value: Any) -> None:
    to.to.string(_dtype_text(value), "data type")


def _read_dtype(at: Loading) -> np.dtype[Any]:
    text = at.read.name_of(at.read.count(1))
    found = None
    if _NUMPY_DTYPE.fullmatch(text):
        found = np.dtype(text)
    elif text.isidentifier():
        try:
            found = as_dtype(text)
        except MissingExtraError:
            raise
        except TypeError:
            found = None
    if found is None or _dtype_text(found) != text:
        raise FormatError(f"unknown data type {readable(text)!r}")
    return found


def _write_layout(to: Saving, array: NDArray[Any], offset: int) -> None:
    strides = array.strides if array.size else (0,) * array.ndim  # those of empty arrays vary
    to.to.put(struct.pack(f"<Q{2 * array.ndim}q", array.ndim, *array.shape, *strides))
    to.to.put(I64.pack(offset) + bytes([_WRITEABLE if array.flags.writeable else 0]))


def _read_layout(
    at: Loading, itemsize: int, nbytes: int | None
) -> tuple[tuple[int, ...], tuple[int, ...], int, bool]:
    """Read shape, strides, offset and whether the array is writeable.

    Args:
        nbytes: of the memory that the array is in; None if it is in none: it has no bytes.
    """
    rank = at.read.count(2 * I64.size, "rank")
    if rank > MAX_RANK:
        raise FormatError(f"expected at most {MAX_RANK} dimensions, got {rank}")
    shape, strides = at.read.integers(rank), at.read.integers(rank)
    (offset,) = at.read.unpack(I64)
    flags = at.read.stream.take(1)[0]
    if flags > _WRITEABLE:
        raise FormatError(f"unknown flags {flags}")
    size = 1
    for dim in shape:
        if dim < 0:
            raise FormatError(f"expected dimensions >= 0, got {dim}")
        size *= dim
    # numpy has no array whose dimensions other than 0 multiply to more, even if it is empty.
    if math.prod(filter(None, shape)) * max(itemsize, 1) >= _MOST_SIZE:
        raise FormatError("the dimensions multiply to more than 2**62 bytes")
    if nbytes is None:
        if (size and itemsize) or any(strides) or offset:
            raise FormatError("an array with elements is in no memory")
        return shape, strides, offset, bool(flags)
    if not size:
        raise FormatError("an array without elements is in memory")
    first = offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True) if s < 0)
    last = offset + sum((d - 1) * s for d, s in zip(shape, strides, strict=True) if s > 0)
    if first < 0 or last + itemsize > nbytes or max(map(abs, strides), default=0) >= _MOST_SIZE:
        raise FormatError(
            f"the array takes the bytes {first} to {last + itemsize} of a memory of {nbytes}"
        )
    return shape, strides, offset, bool(flags)


def _write_tensor(to: Saving, value: Any) -> None:
    _write_dtype(to, value.dtype)
    block, offset = to.place_of(value)
    to.to.put(I64.pack(block))
    _write_layout(to, value, offset)


def _read_tensor(at: Loading) -> NDArray[Any]:
    dtype = _read_dtype(at)
    if dtype.hasobject:
        raise FormatError("expected a data type without objects")
    (number,) = at.read.unpack(I64)
    if not -1 <= number < len(at.blocks):
        raise FormatError(f"there is no memory {number}")
    if number < 0:
        shape, _, _, writeable = _read_layout(at, dtype.itemsize, None)
        found = np.empty(shape, dtype)
    else:
        memory = at.blocks[number].memory
        shape, strides, offset, writeable = _read_layout(at, dtype.itemsize, memory.nbytes)
        if writeable and not memory.flags.writeable:
            raise FormatError("an array in a constant is writeable")
        found = np.ndarray(shape, dtype, memory, offset, strides)
    found.flags.writeable = writeable
    return found


# Arrays of strings

_TEXT: Final = (str, bytes, type(None), int, float, bool)


def owner_of(array: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory of an array of objects, or the array itself."""
    owner = array
    base: Any = array.base
    while base is not None:
        if isinstance(base, np.ndarray):
            if base.dtype != array.dtype:
                break
            owner = base
        base = getattr(base, "base", None)  # as_strided puts an object between two arrays
    is_whole = owner.flags.c_contiguous or owner.flags.f_contiguous
    return owner if is_whole else array


def _object_parts(to: Saving, array: Any) -> tuple[Any]:
    return (to.memory_of(array),)


def _owner_parts(to: Saving, memory: Any) -> list[Any]:
    items: list[Any] = memory.owner.ravel(order="K").tolist()
    for item in items:
        if type(item) not in _TEXT:
            raise TypeError(f"an array with an object of the class {type(item).__name__}")
    return items


def _write_object_memory(to: Saving, memory: Any) -> None:
    _write_refs(to, _owner_parts(to, memory))


def _read_object_memory(at: Loading) -> tuple[Any, tuple[int, ...]]:
    count = at.read.count(I64.size)
    return ObjectMemory(np.empty(count, object)), at.refs(count)


def _fill_object_memory(memory: Any, parts: list[Any]) -> None:
    if any(type(part) not in _TEXT for part in parts):
        raise FormatError("expected strings in an array of objects")
    for i, part in enumerate(parts):
        memory.owner[i] = part


# Tuples, lists and maps


def _write_refs(to: Saving, parts: Iterable[Any]) -> None:
    refs = [to.ref(part) for part in parts]
    to.to.put(struct.pack(f"<Q{len(refs)}q", len(refs), *refs))


def _read_tuple(at: Loading) -> tuple[Any, ...]:
    return tuple([at.part() for _ in range(at.read.count(I64.size))])


def _read_list(at: Loading) -> tuple[list[Any], tuple[int, ...]]:
    return [], at.refs(at.read.count(I64.size))


def _items_of_map(to: Saving, value: Any) -> list[Any]:
    found: list[Any] = []
    for key, item in value.items():
        if type(key) not in _TEXT:
            raise TypeError(f"a map with a key of the class {type(key).__name__}")
        found += (key, item)
    return found


def _read_map(at: Loading) -> tuple[dict[Any, Any], tuple[int, ...]]:
    count = at.read.count(I64.size)
    if count % 2:
        raise FormatError(f"expected pairs of keys and values, got {count} references")
    return {}, at.refs(count)


def _fill_map(value: Any, parts: list[Any]) -> None:
    for key, item in zip(parts[::2], parts[1::2], strict=True):
        if type(key) not in _TEXT:
            raise FormatError(f"expected a number or text as a key, got a {type(key).__name__}")
        value[key] = item
    if len(value) * 2 != len(parts):
        raise FormatError("a map has a key twice")


def _record_parts(to: Saving, value: Any) -> list[Any]:
    return [value.type_name, *_items_of_map(to, value)]


def _read_record(at: Loading) -> tuple[Any, tuple[int, ...]]:
    from ...builtins.trees import Record  # here, since few programs have any

    count = at.read.count(I64.size)
    if count % 2 != 1:
        raise FormatError(f"expected a name and pairs, got {count} references")
    return Record(), at.refs(count)


def _fill_record(value: Any, parts: list[Any]) -> None:
    if type(parts[0]) is not str:
        raise FormatError("expected the name of a class")
    _fill_map(value, parts[1:])
    object.__setattr__(value, "type_name", parts[0])


def _named_parts(to: Saving, value: Any) -> list[Any]:
    return [type(value).__name__, *value._fields, *value]


def _read_named(at: Loading) -> Any:
    from ...builtins.trees import named_tuple  # here, since few programs have any

    count = at.read.count(I64.size)
    parts = [at.part() for _ in range(count)]
    fields = (count - 1) // 2
    names = parts[: fields + 1]
    if count % 2 != 1 or not all(type(name) is str for name in names):
        raise FormatError("expected the name of a class, names of fields, and values")
    try:
        return named_tuple(names[0], tuple(names[1:]))(*parts[fields + 1 :])
    except ValueError as error:
        raise FormatError(f"a tuple with names: {error}") from None


# What only programs have


def _write_adt(to: Saving, value: Any) -> None:
    data = utf8(value.constructor, "constructor")
    to.to.put(_U64.pack(len(data)) + data + I64.pack(value.tag))
    _write_refs(to, to.parts_of(value))


def _read_adt(at: Loading) -> Adt:
    name = at.read.name_of(at.read.count(1))
    (tag,) = at.read.unpack(I64)
    if not 0 <= tag < 1 << 31:
        raise FormatError(f"constructor {readable(name)}: expected a tag, got {tag}")
    return adt_of(name, tag, _read_tuple(at))


def _closure_parts(to: Saving, value: Any) -> tuple[Any, ...]:
    return (value.func, *value.captured)


def _read_closure(at: Loading) -> Closure:
    parts = _read_tuple(at)
    if not parts or not callable(parts[0]):
        raise FormatError("a closure has no function")
    return closure_of(parts[0], parts[1:])


def _write_function(to: Saving, value: Any) -> None:
    number = to.function_number(value)
    assert number is not None  # see kind_of_value
    to.to.put(I64.pack(number))


def _read_function(at: Loading) -> Any:
    (number,) = at.read.unpack(I64)
    found = at.function_at(number)
    if found is None:
        raise FormatError(f"there is no function {number} that is a value")
    return found


def _read_ref(at: Loading) -> tuple[Ref, tuple[int, ...]]:
    return Ref(), at.refs(1)


def _write_ref(to: Saving, value: Any) -> None:
    to.to.put(I64.pack(to.ref(value.value)))


def _fill_ref(value: Any, parts: list[Any]) -> None:
    value.value = parts[0]


def _write_storage(to: Saving, value: Any) -> None:
    to.to.put(I64.pack(to.block_of(value)))


def _read_storage(at: Loading) -> Storage:
    (number,) = at.read.unpack(I64)
    if not 0 <= number < len(at.blocks) or at.blocks[number].storage is None:
        raise FormatError(f"there is no storage {number}")
    found: Storage = at.blocks[number].storage
    return found


def _write_constant(to: Saving, value: Any) -> None:
    number = to.constant_number(value)
    assert number is not None  # see kind_of_value
    to.to.put(I64.pack(number))


def _read_constant(at: Loading) -> Any:
    (number,) = at.read.unpack(I64)
    if not 0 <= number < len(at.constants):
        raise FormatError(f"there is no constant {number}")
    return at.constants[number]


def _state_parts(to: Saving, value: Any) -> list[Any]:
    return [*value.saved_fields()]


def _read_state(at: Loading) -> tuple[Any, tuple[int, ...]]:
    name = at.read.name_of(at.read.count(1))
    if name not in STATES:
        raise FormatError(f"there is no state of the kind {readable(name)!r}")
    cls = STATES[name].load()
    return cls.__new__(cls), at.refs(at.read.count(I64.size))


def _write_state(to: Saving, value: Any) -> None:
    name = state_name_of(value)
    assert name is not None  # see kind_of_value
    to.to.string(name, "state")
    _write_refs(to, to.parts_of(value))


def _fill_state(value: Any, parts: list[Any]) -> None:
    try:
        value.restore_fields(tuple(parts))
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{type(value).__name__}: {error}") from None


def _write_parts(to: Saving, value: Any) -> None:
    _write_refs(to, to.parts_of(value))


def _read_object_tensor(at: Loading) -> Any:
    memory = at.part()
    if type(memory) is not ObjectMemory:
        raise FormatError("expected the memory of an array of objects")
    itemsize = np.dtype(object).itemsize
    nbytes = memory.owner.nbytes or None
    shape, strides, offset, writeable = _read_layout(at, itemsize, nbytes)
    if nbytes is None:
        found = np.empty(shape, object)
    else:
        if offset % itemsize or any(stride % itemsize for stride in strides):
            raise FormatError("the elements of an array of objects are not at whole places")
        found = np.lib.stride_tricks.as_strided(
            memory.owner[offset // itemsize :], shape, strides
        )
    if not writeable:
        found.flags.writeable = False
    return found


def _write_object_tensor(to: Saving, value: Any) -> None:
    memory = to.memory_of(value)
    owner = memory.owner
    to.to.put(I64.pack(to.ref(memory)))
    start = value.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    _write_layout(to, value, start if value.size else 0)


KINDS: Final = {
    kind.name: kind
    for kind in (
        ValueKind(1, "bool", (bool,), _no_parts, _write_bool, _read_bool),
        ValueKind(2, "int", (int,), _no_parts, _write_int, _read_int),
        ValueKind(3, "float", (float,), _no_parts, _write_float, _read_float),
        ValueKind(4, "str", (str,), _no_parts, _write_str, _read_str),
        ValueKind(5, "bytes", (bytes,), _no_parts, _write_bytes, _read_bytes),
        ValueKind(6, "shape", (Shape,), _no_parts, _write_shape, _read_shape),
        ValueKind(7, "dtype", (), _dtype_parts, _write_dtype, _read_dtype),
        ValueKind(8, "device", (Device,), _no_parts, _write_device, _read_device),
        ValueKind(9, "tensor", (np.ndarray,), _tensor_parts, _write_tensor, _read_tensor),
        ValueKind(10, "tuple", (tuple,), _items, _write_refs, _read_tuple),
        ValueKind(11, "list", (list,), _items, _write_refs, _read_list, list.extend),
        ValueKind(12, "map", (dict,), _items_of_map, _write_parts, _read_map,
                  _fill_map),
        ValueKind(13, "record", (), _record_parts, _write_parts, _read_record,
                  _fill_record),
        ValueKind(14, "named tuple", (), _named_parts, _write_parts, _read_named),
        ValueKind(15, "adt", (Adt,), lambda to, value: value.fields, _write_adt, _read_adt),
        ValueKind(16, "closure", (Closure,), _closure_parts, _write_parts,
                  _read_closure),
        ValueKind(17, "function", (VMFunction,), _no_parts, _write_function, _read_function),
        ValueKind(18, "cell", (Ref,), lambda to, value: (value.value,), _write_ref, _read_ref,
                  _fill_ref),
        ValueKind(19, "storage", (Storage,), _no_parts, _write_storage, _read_storage),
        ValueKind(20, "constant", (), _no_parts, _write_constant, _read_constant),
        ValueKind(21, "state", (), _state_parts, _write_state, _read_state, _fill_state),
        ValueKind(22, "object memory", (ObjectMemory,), _owner_parts, _write_object_memory,
                  _read_object_memory, _fill_object_memory),
        ValueKind(23, "object tensor", (), _object_parts, _write_object_tensor,
                  _read_object_tensor),
    )
}  # fmt: skip
"""The kinds by name."""

BY_CODE: Final = {kind.code: kind for kind in KINDS.values()}

_BY_TYPE: Final = {cls: kind for kind in KINDS.values() for cls in kind.types}


def kind_of_value(value: Any, context: Saving) -> ValueKind | None:
    """Return the kind of a value; None if files have none for it."""
    kind = _BY_TYPE.get(type(value))
    if kind is None or kind.code > 6:  # numbers and text are not looked up
        if context.constant_number(value) is not None:
            return KINDS["constant"]
        if kind is KINDS["tensor"]:
            return KINDS["object tensor"] if value.dtype.hasobject else kind
        if kind is not None and kind is not KINDS["function"]:
            return kind
        if context.function_number(value) is not None:
            return KINDS["function"]
        if isinstance(value, np.dtype):
            return KINDS["dtype"]
        if state_name_of(value) is not None:
            return KINDS["state"]
        return _of_results(value)
    return kind


def _of_results(value: Any) -> ValueKind | None:
    """Results that a user's program has as objects with fields."""
    if isinstance(value, dict) and type(value).__module__ == "relaxvm.builtins.trees":
        return KINDS["record"]
    is_named = isinstance(value, tuple) and type(getattr(value, "_fields", None)) is tuple
    if is_named and type(value).__module__ == "relaxvm.builtins.trees":
        return KINDS["named tuple"]
    return None
