"""Checks of the arguments of kernels, for the kinds of parameters and for kernels themselves.

They raise `WrongType` and `WrongValue` without the name of the kernel; `relaxvm.kernels.kernel`
puts it before the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..registry import KERNEL_PREFIX

__all__ = [
    "Dims",
    "Found",
    "Wanted",
    "WrongType",
    "WrongValue",
    "as_operand",
    "broadcast",
    "check_out",
    "float_dtype",
    "named",
    "native",
    "need_numbers",
    "result_dtype",
    "working_dtype",
]

Dims = tuple[int, ...]

FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)


class WrongType(TypeError):
    """An argument has the wrong type or data type.  The caller of the kernel gets a TypeError."""


class WrongValue(ValueError):
    """An argument has the wrong value, or arguments do not fit each other.  The caller of the
    kernel gets a ValueError."""


@contextmanager
def named(kernel: str) -> Iterator[None]:
    """Put the name of a kernel before the messages of `WrongType` and `WrongValue`, and raise
    TypeError and ValueError in their place."""
    try:
        yield
    except WrongType as error:
        raise TypeError(f"{kernel}: {error}") from None
    except WrongValue as error:
        raise ValueError(f"{kernel}: {error}") from None


_UNKNOWN: Final = np.dtype("V1")
"""The data type of a `Wanted` that the kernel is to determine."""


class Wanted(np.ndarray[Any, Any]):
    """In place of an output that is yet to be allocated: an array without axes or memory of its
    own, of the data type of the result.  `check_out` raises `Found` for it."""

    keepdims: bool

    @classmethod
    def of(cls, dtype: np.dtype[Any] | None, keepdims: bool = False) -> Wanted:
        """A placeholder of a data type; None if the kernel decides."""
        wanted = np.empty((), _UNKNOWN if dtype is None else dtype).view(cls)
        wanted.keepdims = keepdims
        return wanted


class Found(Exception):
    """The data type and shape of an output that is yet to be allocated.

    Attributes:
        out: the placeholder.
        dtype: the data type; None if neither caller nor kernel determine it.
        shape: the shape.
    """

    def __init__(self, out: Wanted, dtype: np.dtype[Any], shapes: Sequence[Dims]) -> None:
        super().__init__(out, dtype, shapes)
        self.out = out
        self.dtype = None if dtype == _UNKNOWN else native(dtype)
        self.shape = shapes[-1] if out.keepdims else shapes[0]


def check_out(out: NDArray[Any], dtype: np.dtype[Any], *shapes: Dims, name: str = "out") -> None:
    """Check that a result can be written to `out`.

    Args:
        out: the argument, a tensor.
        dtype: data type of the result.
        shapes: the shapes that `out` may have; more than one where it may keep reduced axes.
        name: of the parameter.

    Raises:
        WrongValue: `out` has another shape or data type, or is read-only.
        Found: `out` is a `Wanted`.
    """
    if (
        type(out) is np.ndarray
        and out.dtype is dtype
        and out.shape == shapes[0]
        and out.flags.writeable
    ):
        return  # nearly always
    if type(out) is Wanted:
        raise Found(out, dtype, shapes)
    if out.shape not in shapes or native(out.dtype) != native(dtype):
        expected = " or ".join(_tensor_text(dtype, shape) for shape in dict.fromkeys(shapes))
        raise WrongValue(f"{name}: expected {expected}, got {describe(out)}")
    if not out.flags.writeable:
        raise WrongValue(
            f"{name}: expected a tensor that can be written to, got a read-only one; "
            f"constants are read-only"
        )


def _tensor_text(dtype: np.dtype[Any], shape: Dims) -> str:
    """A tensor in a message: ``float32[2, 3]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


# Data types


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A data type in the byte order of this machine."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The data type that floats are computed in: float32 for narrower ones, which those of
    ml_dtypes are; None if they are not floats of at most 64 bits."""
    if dtype in (FLOAT32, FLOAT64):
        return dtype
    is_narrow = dtype.itemsize < 4 and dtype.kind not in "biu" and not dtype.hasobject
    return FLOAT32 if is_narrow and np.can_cast(dtype, FLOAT32, "safe") else None


def float_dtype(**tensors: NDArray[Any]) -> np.dtype[Any]:
    """The data type of all tensors, which are of floats.

    Raises:
        WrongType: a tensor is of something else, or two data types differ.
    """
    dtypes = {native(tensor.dtype) for tensor in tensors.values()}
    if len(dtypes) == 1:
        (dtype,) = dtypes
        if working_dtype(dtype) is not None:
            return dtype
    got = ", ".join(f"{name} {describe(tensor)}" for name, tensor in tensors.items())
    kind = "floats" if len(tensors) == 1 else "floats of one data type"
    raise WrongType(f"expected {kind}, got {got}; {KERNEL_PREFIX}cast converts")


def need_numbers(name: str, tensor: NDArray[Any]) -> None:
    """Check that a tensor is of integers or floats.

    Raises:
        WrongType: it is not.
    """
    if tensor.dtype.kind not in "iuf" and working_dtype(tensor.dtype) is None:
        raise WrongType(f"{name}: expected a tensor of numbers, got {describe(tensor)}")


def result_dtype(ufunc: Any, **tensors: NDArray[Any]) -> np.dtype[Any]:
    """Data type of ``ufunc(*tensors)``.

    Raises:
        WrongType: the ufunc has no loop for exactly these data types.
    """
    found = _result_dtype(ufunc, *(tensor.dtype for tensor in tensors.values()))
    if found is None:
        got = ", ".join(f"{name} {describe(tensor)}" for name, tensor in tensors.items())
        kind = "data types" if len(tensors) == 1 else "equal data types"
        raise WrongType(
            f"expected {kind} that numpy.{ufunc.__name__} takes without conversion, got {got}; "
            f"{KERNEL_PREFIX}cast converts"
        )
    return found


@lru_cache(maxsize=1024)
def _result_dtype(ufunc: Any, *dtypes: np.dtype[Any]) -> np.dtype[Any] | None:
    natives = tuple(map(native, dtypes))
    if any(dtype.hasobject for dtype in dtypes):
        return None  # such loops call arbitrary methods of the objects
    try:
        resolved = ufunc.resolve_dtypes((*natives, None))
    except TypeError:
        return None
    if resolved[:-1] != natives:
        return None
    # The dtype of a tensor from a file equals numpy's own, but is another object; `check_out`
    # compares objects first.
    result: np.dtype[Any] = resolved[-1]
    is_own = result.isbuiltin != 2  # float8_e5m2 is of kind "f", too
    return np.dtype(result.char) if is_own and result.kind in "biufc" else result


# Numbers next to tensors, and shapes


def as_operand(name: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A tensor unchanged; a number as a scalar of `dtype`.

    Raises:
        WrongType: neither a tensor nor a number of a kind that `dtype` holds.
        WrongValue: a number that `dtype` cannot hold.
    """
    if isinstance(value, np.ndarray):
        return value
    if not _holds_kind(dtype, value):
        raise WrongType(
            f"{name}: expected a tensor or a number that goes with {dtype}, got {describe(value)}"
        )
    try:
        if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise OverflowError
        return dtype.type(value)
    except (OverflowError, TypeError):  # TypeError: an int beyond 64 bits, of ml_dtypes
        raise WrongValue(
            f"{name}: expected a number within {dtype}, got {describe(value)}"
        ) from None


def _holds_kind(dtype: np.dtype[Any], value: Any) -> bool:
    if dtype.kind not in "biufcV":  # V: bfloat16 and the other types of ml_dtypes
        return False
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return dtype.kind != "b"
    return isinstance(value, float) and dtype.kind not in "biu"


def broadcast(**operands: Any) -> Dims:
    """The shape that operands broadcast to.

    Raises:
        WrongValue: they do not broadcast.
    """
    shapes: list[Dims] = [np.shape(operand) for operand in operands.values()]
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        # numpy.broadcast takes up to 32 dimensions, ufuncs take 64.
        if max(map(len, shapes)) > 32:
            return _broadcast_dims(shapes)
        return np.broadcast(*operands.values()).shape
    except ValueError:
        got = ", ".join(f"{name} {describe(operand)}" for name, operand in operands.items())
        raise WrongValue(f"expected shapes that broadcast, got {got}") from None


def _broadcast_dims(shapes: list[Dims]) -> Dims:
    ndim = max(map(len, shapes))
    dims = []
    for each in zip(*((1,) * (ndim - len(shape)) + shape for shape in shapes), strict=True):
        longer = set(each) - {1}
        if len(longer) > 1:
            raise ValueError("shapes do not broadcast")
        dims.append(longer.pop() if longer else 1)
    return tuple(dims)
