"""Functions of a VM as functions of TVM's FFI."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..._core import Closure, VMFunction
from ...core import _ffi_functions, ffi

__all__ = ["ffi_function", "object_of", "values_of"]

_FUNCTION: Final = 68
"""The number of the type of functions in TVM's FFI."""

_OLDEST: Final = (0, 1, 12)
_NEWEST: Final = (0, 1, 15)
"""Versions of TVM's FFI whose arrays, shapes and tensors may be made without calling it.  Later
versions are going to place a header before objects."""


def ffi_function(function: Callable[..., Any]) -> Any:
    """Create a ``tvm_ffi.Function`` that calls a function of a VM.

    It takes and returns objects of TVM.  A tensor that the function returns as it got it is the
    same tensor; other arrays that it returns become tensors over the same memory, constants of the
    program copies.
    """
    _attach()
    handle = _ffi_functions.new_function(function)
    try:
        made = ffi.object_at(handle, _FUNCTION)
    finally:
        _ffi_functions.release_handle(handle)
    made.release_gil = False  # what runs long releases it
    return made


def values_of(objects: Sequence[Any]) -> list[Any]:
    """Return the values of a VM that objects of TVM become as arguments."""
    values: list[Any] = []
    ffi_function(lambda *given: values.extend(given))(*objects)
    return values


def object_of(value: Any) -> Any:
    """Return the object of TVM that a value of a VM becomes as a result."""
    return ffi_function(lambda: value)()


@functools.cache
def _attach() -> bool:
    """Let `_ffi_functions` call TVM's FFI; return whether it makes their objects itself."""
    ffi.listen()
    library = ffi.library()

    def address(name: str) -> int:
        found = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
        assert found is not None
        return found

    array, shape = map(ffi.global_function, ("ffi.Array", "ffi.Shape"))
    known = _OLDEST <= ffi.version() <= _NEWEST
    return _ffi_functions.attach(address, (Closure, VMFunction), array, shape, known)
