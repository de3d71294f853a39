"""Runtime values: shapes, devices, and what may enter a register.

A register holds a Python object: a tensor is a `numpy.ndarray`, a shape a `Shape`, a data type a
`numpy.dtype`, a tuple a `tuple`; int, float, bool, str and None are themselves.
"""

from __future__ import annotations

import array
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from .aliases import attribute
from .nested import convert_nested

__all__ = [
    "Device",
    "Shape",
    "add_kind",
    "adt_type",
    "cpu",
    "device",
    "given_up",
    "is_adt",
    "is_own_tuple",
    "is_sealed",
    "is_tuple_of_values",
    "kind_of",
    "take_from",
    "to_own_value",
    "to_value",
    "tuple_of_values",
]


class Shape(tuple[int, ...]):
    """The shape of a tensor as a run-time value.

    A subclass of tuple: it compares and hashes as a tuple of ints, and is told apart from a tuple
    value by its class.
    """

    __slots__ = ()

    def __new__(cls, content: Iterable[SupportsIndex] = ()) -> Shape:
        return super().__new__(cls, map(_dim, content))

    def __repr__(self) -> str:
        return f"Shape({', '.join(map(str, self))})" if self else "Shape()"

    def __getnewargs__(self) -> tuple[tuple[int, ...]]:
        return (tuple(self),)

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> Shape: ...
    def __getitem__(self, key: Any) -> Any:
        got = super().__getitem__(key)
        return Shape(got) if isinstance(key, slice) else got


def _dim(value: SupportsIndex) -> int:
    dim = operator.index(value)
    if not -(1 << 63) <= dim < 1 << 63:
        raise ValueError(f"Shape: dimension {dim} does not fit 64 bits")
    return dim


_DEVICE_TYPES: Final = {
    "cpu": 1, "cuda": 2, "opencl": 4, "vulkan": 7, "metal": 8, "vpi": 9, "rocm": 10,
    "ext_dev": 12, "hexagon": 16, "webgpu": 15,
}  # fmt: skip
_DEVICE_NAMES: Final = {code: name for name, code in _DEVICE_TYPES.items()}


class Device:
    """A device by DLPack type and index.  Tensors live in host memory; ``cpu(0)`` and ``cpu(3)``
    are different devices that share it."""

    __slots__ = ("_index", "_type")

    def __init__(self, device_type: int | str, index: int = 0) -> None:
        if isinstance(device_type, str):
            if device_type not in _DEVICE_TYPES:
                raise ValueError(f"device: unknown type {device_type!r}, expected one of "
                                 f"{', '.join(sorted(_DEVICE_TYPES))}")
            device_type = _DEVICE_TYPES[device_type]
        self._type = int(device_type)
        self._index = int(index)

    @property
    def type(self) -> str:
        return _DEVICE_NAMES.get(self._type, f"device{self._type}")

    @property
    def index(self) -> int:
        return self._index

    @property
    def exist(self) -> bool:
        """Whether this process can hold tensors there: true of any CPU index."""
        return self._type == 1

    def dlpack_device_type(self) -> int:
        return self._type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Device):
            return NotImplemented
        return (self._type, self._index) == (other._type, other._index)

    def __hash__(self) -> int:
        return hash((self._type, self._index))

    def __repr__(self) -> str:
        return f"{self.type}({self._index})"

    def __reduce__(self) -> tuple[Any, tuple[int, int]]:
        return Device, (self._type, self._index)


def cpu(index: int = 0) -> Device:
    """The host as a device."""
    return Device(1, index)


def device(device_type: str | int | Device, index: int | None = None) -> Device:
    """A device from ``"cpu"``, ``"cpu:1"``, a number of DLPack (1 is the CPU) or a Device."""
    if isinstance(device_type, Device):
        return device_type
    if isinstance(device_type, int):
        return Device(device_type, index or 0)
    name, _, tail = device_type.partition(":")
    if tail and not tail.isdigit():
        raise ValueError(f"device: expected NAME or NAME:INDEX, got {device_type!r}")
    return Device(name, int(tail) if tail else index or 0)


def is_sealed(array: np.ndarray[Any, Any]) -> bool:
    """Whether neither the array nor what its memory belongs to can be written to.

    Memory of an object that is not an array must be a read-only buffer, such as ``bytes`` or a file
    that is mapped for reading.  Other packages (DLPack) do not say whether they write to theirs.
    """
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    if base is None:
        return True
    try:
        with memoryview(base) as view:
            return view.readonly
    except (TypeError, ValueError):  # no buffer, or one that is closed
        return False


def given_up(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array, which its maker writes no more: read-only if it has memory of its own, so that an
    executable keeps it without a copy."""
    if array.base is None:
        array.flags.writeable = False
    return array


def kind_of(value: object) -> str:
    """The word that signatures and error messages use for the kind of a run-time value."""
    if value is None:
        return "none"
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    for cls, name in _KINDS:
        if isinstance(value, cls):
            return name
    own = _OWN_KINDS.get(type(value))
    if own is not None:
        return own
    if callable(value):
        return "func"
    return "object"


_OWN_KINDS: Final[dict[type, str]] = {}


def is_adt(x: object) -> bool:
    """Check whether a value is one of a data type.  Where the core is not loaded, none is."""
    return _OWN_KINDS.get(type(x)) == "adt"


def adt_type() -> Any:
    """The class of values of data types, which is part of the core."""
    from ._core import Adt  # here: reading files and building programs mostly do without the core

    return Adt


def add_kind(cls: type, name: str) -> None:
    """Give the values of a class of the core a kind of their own."""
    _OWN_KINDS[cls] = name


_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (np.ndarray, "tensor"),
    (Shape, "shape"),
    (tuple, "tuple"),
    (list, "tuple"),
    (int, "int"),
    (float, "float"),
    (str, "str"),
    (np.dtype, "dtype"),
    (Device, "device"),
    (dict, "map"),
)


def to_value(x: Any) -> Any:
    """Turn an argument from Python into a run-time value, without a copy where its protocol allows.

    ===============================  ==========================================================
    argument                         value
    ===============================  ==========================================================
    ``numpy.ndarray``, scalars,      the same object
    values of the VM
    subclass of ``ndarray``          a plain ``ndarray`` over the same memory
    (``memmap``, ``matrix``)
    list, tuple                      tuple of values, recursively
    numpy scalar                     the Python scalar; a 0-d array where Python has none
    ``__dlpack__``                   array over the same memory, read-only if the producer says so
    ``__array_interface__``,         ``numpy.asarray`` of it
    ``__array_struct__``,
    ``__array__``
    ``memoryview``, ``bytearray``,   array over the same memory
    ``array.array``, ``mmap``,
    ``ctypes`` arrays
    objects of TVM's FFI             what `relaxvm.core.ffi.from_ffi` makes of them
    anything else                    the same object, opaque
    ===============================  ==========================================================

    An object that has both keeps ``__dlpack__`` first and falls back to the array protocols where
    the exchange is refused (a byte order or data type that DLPack does not know).

    Raises:
        TypeError: a masked array with masked elements: its mask would be lost.
        ValueError: a list contains itself.
        BufferError, RuntimeError, ValueError: the object offers ``__dlpack__`` alone and refuses,
            for example because it lives on another device; a note names the type.
    """
    if isinstance(x, np.ndarray):
        return x if type(x) is np.ndarray else _plain(x)
    if isinstance(x, np.generic):  # before float and str, which float64 and str_ inherit from
        scalar = x.item()
        plain = isinstance(scalar, (int, float, str, bytes)) and x.dtype.kind not in "mM"
        return scalar if plain else np.asarray(x)
    if x is None or type(x) is str or isinstance(x, (Shape, int, float, np.dtype)):
        return x
    for knows, convert in _PACKAGES:
        if knows(x):
            return convert(x)
    if isinstance(x, str):
        return x
    if isinstance(x, (tuple, list)):
        if hasattr(x, "_fields"):
            return x
        return convert_nested(x, is_tuple_of_values, to_value, tuple_of_values)
    if isinstance(x, type):  # a class carries the protocols of its instances
        return x
    speaks_array = any(hasattr(x, protocol) for protocol in _ARRAY_PROTOCOLS)
    if hasattr(x, "__dlpack__"):
        try:
            return np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as refusal:
            if not speaks_array:
                refusal.add_note(f"while taking an argument of type {type(x).__name__} by DLPack")
                raise
    if speaks_array or _is_buffer(x):
        return np.asarray(x)
    return x


def to_own_value(x: Any) -> Any:
    """As `to_value`, but every tuple is a new one, which nobody outside holds."""
    return convert_nested(x, is_own_tuple, to_value)


_PACKAGES: Final[list[tuple[Callable[[Any], bool], Callable[[Any], Any]]]] = []


def take_from(knows: Callable[[Any], bool], convert: Callable[[Any], Any]) -> None:
    """Have `to_value` take objects of another package.

    Args:
        knows: whether an object is one of them.
        convert: makes a value of one.
    """
    _PACKAGES.append((knows, convert))


def is_own_tuple(x: Any) -> bool:
    """Whether `to_own_value` makes a tuple of an object."""
    if type(x) is tuple or type(x) is list:
        return True
    plain = isinstance(x, (tuple, list)) and not isinstance(x, Shape)
    return plain and not any(knows(x) for knows, _ in _PACKAGES)


def tuple_of_values(x: tuple[Any, ...] | list[Any], items: list[Any]) -> tuple[Any, ...]:
    """The tuple of the values of a tuple's items: the same if all of them are."""
    same = isinstance(x, tuple) and all(map(operator.is_, items, x))
    return x if same else tuple(items)  # type: ignore[return-value]


def is_tuple_of_values(x: Any) -> bool:
    """Whether `to_value` converts the items of an object."""
    return is_own_tuple(x) and not hasattr(x, "_fields")


_ARRAY_PROTOCOLS: Final = ("__array_interface__", "__array_struct__", "__array__")


def _plain(x: NDArray[Any]) -> NDArray[Any]:
    masked = sys.modules.get("numpy.ma")  # imported if a masked array exists
    if masked is not None and isinstance(x, masked.MaskedArray) and masked.is_masked(x):
        raise TypeError(
            f"masked array {x.dtype}[{', '.join(map(str, x.shape))}]: expected a plain array, "
            f"the mask would be lost; pass x.filled(value) or x.data"
        )
    return x.view(np.ndarray)


def _is_buffer(x: object) -> bool:
    # Named one by one: bytes is a value of its own, and other exporters (a Storage) are not arrays.
    if isinstance(x, (memoryview, bytearray, array.array)):
        return True
    ctypes, mmap = sys.modules.get("ctypes"), sys.modules.get("mmap")
    return (ctypes is not None and isinstance(x, ctypes.Array)) or (
        mmap is not None and isinstance(x, mmap.mmap)
    )


def __getattr__(name: str) -> Any:
    return attribute(__name__, name)
