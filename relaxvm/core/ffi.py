"""Values and functions of TVM's FFI, the package ``tvm_ffi``, in a process that has loaded it.

Nothing here imports the package: an object of it can only come from a program that did.

=====================  =========================================================================
a value of the VM      in TVM's FFI
=====================  =========================================================================
array                  ``Tensor`` over the same memory
`Shape`, tuple, dict   ``Shape``, ``Array``, ``Map``
dtype, `Device`        ``dtype``, ``Device``
function               ``Function``
None, numbers, text    themselves
=====================  =========================================================================
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import dtype_from_dl, dtype_name
from ..errors import FormatError
from ..messages import readable
from ..nested import convert_nested
from ..values import Device, Shape, take_from
from ._deadlines import check_time
from ._native import (
    LARGE_COPY,
    array_of,
    copy_aligned,
    is_contiguous,
    set_error_source,
    to_dlpack,
    warn_of_copy,
)

__all__ = [
    "ALIGNMENT",
    "Function",
    "address_of",
    "as_function",
    "as_packed",
    "from_ffi",
    "global_function",
    "is_function",
    "is_sequence",
    "library",
    "listen",
    "object_at",
    "to_ffi",
    "version",
]

ALIGNMENT: Final = 64
"""Bytes to which TVM aligns tensors, and code that it compiles may rely on."""

_HEAD: Final = 24
"""Bytes that every object begins with; in a function the address of its code follows."""


def is_function(value: object) -> bool:
    """Whether it is a ``tvm_ffi.Function``."""
    package = sys.modules.get("tvm_ffi")
    # Names of TVM on relaxvm (`relaxvm.contrib.as_tvm`) have no core.
    return package is not None and hasattr(package, "core") and isinstance(value, package.Function)


def address_of(function: Any) -> tuple[int, int]:
    """Addresses of the code of a ``tvm_ffi.Function`` and of what it takes as ``self``.

    Raises:
        TypeError: it was defined in Python, and cannot take tensors that are merely lent.
    """
    listen()
    code = _code_of(function)
    if code == _code_of(_package().convert(_nothing)):
        raise TypeError("native_function: a tvm_ffi.Function that was defined in Python is no "
                        "native code; give it to a VM as it is")
    return code, function.__chandle__()


def _code_of(function: Any) -> int:
    address = ctypes.c_void_p.from_address(function.__chandle__() + _HEAD).value
    if address is None:
        raise TypeError("native_function: a tvm_ffi.Function without code")
    return address


def _nothing() -> None:
    pass


def _package() -> Any:
    return sys.modules["tvm_ffi"]


def global_function(name: str) -> Any:
    """Return the ``tvm_ffi.Function`` that is registered under a name."""
    return _package().get_global_func(name)


@cache
def library() -> ctypes.CDLL:
    """The FFI for C."""
    library: ctypes.CDLL = _package().libinfo.load_lib_ctypes(
        "apache-tvm-ffi", "tvm_ffi", "RTLD_GLOBAL"
    )
    return library


def version() -> tuple[int, ...]:
    """The version of the package; what the FFI for C returns is sometimes a later version."""
    return tuple(map(int, re.findall(r"\d+", _package().__version__)[:3]))


def listen() -> None:
    """Have native functions ask TVM's FFI why they have failed."""
    move = ctypes.cast(library().TVMFFIErrorMoveFromRaised, ctypes.c_void_p).value

    def exception_of(kind: str, message: str, backtrace: str) -> BaseException:
        error: BaseException = _package().core.Error(kind, message, backtrace).py_error()
        return error

    assert move is not None
    set_error_source(move, exception_of)


def as_packed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """What a program calls for a function with a name: a ``tvm_ffi.Function`` as `Function`, any
    other as it is."""
    return Function(function, name) if is_function(function) else function


def as_function(value: Any) -> Any:
    """A callable of Python as a ``tvm_ffi.Function``, any other object as it is."""
    package = _package()
    if callable(value) and not isinstance(value, (type, package.Object, package.Function)):
        return package.convert(value)
    return value


class Function:
    """A ``tvm_ffi.Function``, of whatever origin, that takes and gives values of the VM.

    An array is passed as a tensor over the same memory; over a copy if it is not contiguous, or not
    aligned as TVM's tensors are.  What the function writes to a copy is written back, if the array
    is writable.  Large arguments that are copied are reported by name, each of them once.
    """

    __slots__ = ("_reported", "function", "name")

    def __init__(self, function: Any, name: str) -> None:
        self.function = function
        self.name = name
        self._reported: set[int | None] = set()

    def __call__(self, *args: Any) -> Any:
        copies: list[_Copy] = []
        done: dict[int, tuple[Any, Any]] = {}
        lend = partial(self._lend, args, copies)
        result = self.function(*[_converted(arg, lend, done) for arg in args])
        for array, copy, before in copies:
            if copy.tobytes() != before:
                np.copyto(array, copy)
        return None if result is None else from_ffi(result)

    def _lend(self, args: tuple[Any, ...], copies: list[_Copy], value: Any) -> Any:
        if type(value) is np.ndarray:
            if not is_contiguous(value, ALIGNMENT):
                if value.nbytes >= LARGE_COPY:
                    self._report(args, value)
                copy = copy_aligned(value, ALIGNMENT)
                if value.flags.writeable:
                    copies.append((value, copy, copy.tobytes()))
                value = copy
            return _exported(value)
        return _to_ffi(value)

    def _report(self, args: tuple[Any, ...], array: NDArray[Any]) -> None:
        position = next((i for i, arg in enumerate(args) if arg is array), None)
        if position not in self._reported:
            self._reported.add(position)
            name = readable(self.name)
            item = "an array in a tuple" if position is None else f"argument {position}"
            warn_of_copy(f"{name}: {item}", name, array, ALIGNMENT)

    def __repr__(self) -> str:
        return f"<Function of TVM: {self.function!r}>"


_OBJECT: Final = np.dtype(object).num
"""Data types of lower numbers are numbers, which numpy exports by itself."""

_Copy = tuple[NDArray[Any], NDArray[Any], bytes]
"""An array, the copy that is passed in its place, and the bytes that the copy had at first."""


def _exported(array: NDArray[Any]) -> Any:
    """An array that TVM's FFI can take."""
    plain = array.flags.writeable and array.dtype.num < _OBJECT
    return array if plain else _Exporter(array)


class _Exporter:
    """An array as DLPack's protocol wants to be asked for it.  numpy's own refuses arrays that are
    read-only and the data types of ml_dtypes."""

    __slots__ = ("array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return to_dlpack(self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


_PLAIN: Final = frozenset({type(None), bool, int, float, str, bytes})


def to_ffi(value: Any) -> Any:
    """A value of the VM as an object of TVM's FFI.

    Raises:
        TypeError: an array whose data type DLPack does not have.
        ValueError: a list contains itself.
    """
    return _converted(value, _to_ffi, {})


def _converted(
    value: Any, convert: Callable[[Any], Any], done: dict[int, tuple[Any, Any]]
) -> Any:
    """A value, converted; tuples become objects of TVM's FFI, each of them once."""
    return convert_nested(
        value, _is_nested, convert, _to_container, items_of=_items_of, done=done, pause=_pause
    )  # fmt: skip


def _pause(_: int) -> None:
    check_time()


def _is_nested(value: Any) -> bool:
    return isinstance(value, (tuple, list, dict)) and not isinstance(value, Shape)


def _items_of(value: Any) -> Iterable[Any]:
    """The items of a sequence; of a map, keys and values in turn."""
    is_map = hasattr(value, "items")
    return chain.from_iterable(value.items()) if is_map else value


def _to_container(outer: Any, items: list[Any]) -> Any:
    package = _package()
    if isinstance(outer, dict):
        return package.Map(dict(zip(items[::2], items[1::2], strict=True)))
    return package.Array(items)


def _to_ffi(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    package = _package()
    if isinstance(value, np.ndarray):
        return package.from_dlpack(_exported(value))
    if isinstance(value, Shape):
        return package.Shape(tuple(value))
    if isinstance(value, np.dtype):
        return package.dtype(dtype_name(value))
    if isinstance(value, Device):
        return package.device(value.type, value.index)
    if isinstance(value, Function):
        return value.function
    if callable(value) and not isinstance(value, (type, package.Object)):
        return package.convert(lambda *args: to_ffi(value(*map(from_ffi, args))))
    return value


class _Any(ctypes.Structure):
    """``TVMFFIAny`` with an object in it."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("object", ctypes.c_void_p),
    )


def object_at(handle: int, type_index: int) -> Any:
    """The object of TVM's FFI at an address, of a type by its number, as Python has it."""
    given: list[Any] = []
    function = _package().convert(given.append)  # what it is called with is made for Python
    call = library().TVMFFIFunctionCall
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    arg, result = _Any(type_index, 0, handle), _Any()
    call(function.__chandle__(), ctypes.byref(arg), 1, ctypes.byref(result))
    return given[0]


def _is_ffi(value: Any) -> bool:
    # By name: the package may be in the middle of being imported by another thread.
    return any(kind.__module__.startswith("tvm_ffi.") for kind in type(value).__mro__)


def is_sequence(value: Any) -> bool:
    """Whether it becomes a tuple."""
    package = _package()
    return isinstance(value, (package.Array, package.List, tuple, list)) and not isinstance(
        value, (Shape, package.Shape)
    )


def from_ffi(value: Any) -> Any:
    """An object of TVM's FFI as a value of the VM; any other object as it is, and so are tensors
    and data types that numpy does not have.

    Raises:
        TypeError: a tensor that is not in host memory.
        ValueError: a list contains itself.
    """
    if type(value) in _PLAIN:
        return value
    return convert_nested(
        value, _has_items, _from_ffi, _from_container, items_of=_items_of, key=_handle_of,
        pause=_pause,
    )  # fmt: skip


def _has_items(value: Any) -> bool:
    package = _package()
    return is_sequence(value) or isinstance(value, (package.Map, package.Dict))


def is_same(a: Any, b: Any) -> bool:
    """Whether two values that were made of one object of TVM's FFI, one after the
    other, are the same: False if a function of Python has changed one."""
    if isinstance(a, dict):
        return isinstance(b, dict) and is_same(tuple(a.items()), tuple(b.items()))
    if isinstance(a, tuple):
        return (
            isinstance(b, tuple)
            and len(a) == len(b)
            and all(is_same(x, y) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray)
            and (a.ctypes.data, a.shape, a.strides, a.dtype)
            == (b.ctypes.data, b.shape, b.strides, b.dtype)
        )
    if isinstance(a, Function):
        return isinstance(b, Function) and bool(
            a.function.__chandle__() == b.function.__chandle__()
        )
    if _is_ffi(a):
        return _is_ffi(b) and _handle_of(a) == _handle_of(b)
    return type(a) is type(b) and bool(a is b or a == b)


def _handle_of(value: Any) -> int:
    """A number for an object of TVM's FFI, which may have several objects of Python, or another."""
    return value.__chandle__() if isinstance(value, _package().Object) else id(value)


def _from_container(outer: Any, items: list[Any]) -> Any:
    if is_sequence(outer):
        return tuple(items)
    return dict(zip(items[::2], items[1::2], strict=True))


def _from_ffi(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    package = _package()
    if isinstance(value, package.Tensor):
        array = array_of(value.__chandle__())
        return value if array is None else array
    if isinstance(value, package.Shape):
        return Shape(value)
    if isinstance(value, package.dtype):
        try:
            return dtype_from_dl(value.type_code, value.bits, value.lanes)
        except FormatError:
            return value  # numpy does not have it; a vector, for example
    if isinstance(value, package.Device):
        return Device(value.dlpack_device_type(), value.index)
    if isinstance(value, package.Function):
        return Function(value, "a function of TVM")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return bytes(value)
    return value


take_from(_is_ffi, from_ffi)
