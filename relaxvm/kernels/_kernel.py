"""Registration of kernels, and the checks that they share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._direct import DirectKernel
from ..registry import GLOBAL, KERNEL_PREFIX, PackedFunc, Signature, StaticCheck
from ..values import describe

__all__ = [
    "PREFIX",
    "Dims",
    "alike",
    "apart",
    "as_operand",
    "assign",
    "axis_of",
    "broadcast",
    "check_out",
    "check_tensors",
    "is_kernel",
    "kernel",
    "native",
    "private",
    "result_dtype",
    "tensor_text",
    "ufunc_of",
]

PREFIX: Final = KERNEL_PREFIX

F = TypeVar("F", bound=Callable[..., None])
Dims = tuple[int, ...]

_kernels: Final[dict[str, Callable[..., None]]] = {}
_ufuncs: Final[dict[str, np.ufunc]] = {}


def kernel(
    name: str,
    signature: str,
    *aliases: str,
    ufunc: np.ufunc | None = None,
    check: StaticCheck | None = None,
    direct: bool = False,
) -> Callable[[F], F]:
    """Decorator: register a function as ``relaxvm.kernel.<name>``.

    Args:
        name: the name that its messages begin with.
        signature: of the call, `out` included.
        aliases: further names, without the prefix.
        ufunc: what `ufunc_of` answers.
        check: further load-time check, as in `relaxvm.registry.Signature`.
        direct: whether `relaxvm._direct` computes small tensors, or the `ufunc` of two inputs.
    """

    def register(func: F) -> F:
        takes = Signature.parse(signature, result="none", check=check)
        doc = inspect.cleandoc(func.__doc__ or "")
        run = DirectKernel(name, func, ufunc) if direct else func
        for each in (name, *aliases):
            GLOBAL.register(PREFIX + each, run, signature=takes, effect=False, doc=doc)
            _kernels[PREFIX + each] = run
            if ufunc is not None:
                _ufuncs[PREFIX + each] = ufunc
        return func

    return register


def ufunc_of(name: str) -> np.ufunc | None:
    """The ufunc that a kernel is, by the kernel's full name; None where it is not just one.

    The kernel computes what ``ufunc(*inputs, out=out)`` does wherever the ufunc has a loop for
    exactly the data types of the inputs and of `out`; for others (`divide` and `round` of integers)
    it is more than the ufunc.
    """
    return _ufuncs.get(name)


def is_kernel(record: PackedFunc) -> bool:
    """Whether a name still has the kernel that this package gave it."""
    return _kernels.get(record.name) is record.func


FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)


def alike(out: Any, *tensors: Any) -> bool:
    """Whether all are plain arrays of one and the same usual float type.

    Then numpy's own checks are the kernel's, as far as the shapes are concerned, and the kernel can
    call it at once; what numpy refuses goes the long way round for the message.
    """
    if type(out) is not np.ndarray:
        return False
    dtype = out.dtype
    if dtype is not FLOAT32 and dtype is not FLOAT64:
        return False
    for tensor in tensors:  # all() of a generator takes three times as long
        if type(tensor) is not np.ndarray or tensor.dtype is not dtype:
            return False
    return True


def check_tensors(name: str, **arguments: Any) -> None:
    """Raise unless all arguments are tensors.

    Raises:
        TypeError: one is not.
    """
    for parameter, value in arguments.items():
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{name}: {parameter}: expected a tensor, got {describe(value)}")


def check_out(name: str, out: Any, dtype: np.dtype[Any], *shapes: Dims) -> None:
    """Raise unless `out` can take a result.

    Args:
        name: of the kernel.
        out: the argument.
        dtype: data type of the result.
        shapes: the shapes that `out` may have; more than one where it may keep reduced axes.

    Raises:
        TypeError: `out` is not a tensor.
        ValueError: another shape or data type, or it is read-only.
    """
    if (
        type(out) is np.ndarray
        and out.dtype is dtype
        and out.shape == shapes[0]
        and out.flags.writeable
    ):
        return  # nearly always
    check_tensors(name, out=out)
    if out.shape not in shapes or native(out.dtype) != native(dtype):
        expected = " or ".join(tensor_text(dtype, shape) for shape in dict.fromkeys(shapes))
        raise ValueError(f"{name}: out: expected {expected}, got {describe(out)}")
    if not out.flags.writeable:
        raise ValueError(
            f"{name}: out: expected a tensor that can be written to, got a "
            f"read-only one; constants are read-only"
        )


def tensor_text(dtype: np.dtype[Any], shape: Dims) -> str:
    """A tensor in a message: ``float32[2, 3]``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def result_dtype(name: str, ufunc: Any, **tensors: NDArray[Any]) -> np.dtype[Any]:
    """Data type of ``ufunc(*tensors)``.

    Raises:
        TypeError: the ufunc has no loop for exactly these data types.
    """
    found = _result_dtype(ufunc, *(tensor.dtype for tensor in tensors.values()))
    if found is None:
        got = ", ".join(f"{name} {describe(tensor)}" for name, tensor in tensors.items())
        alike = "data types" if len(tensors) == 1 else "equal data types"
        raise TypeError(
            f"{name}: expected {alike} that numpy.{ufunc.__name__} takes without "
            f"conversion, got {got}; {PREFIX}cast converts"
        )
    return found


@lru_cache(maxsize=1024)
def _result_dtype(ufunc: Any, *dtypes: np.dtype[Any]) -> np.dtype[Any] | None:
    natives = tuple(map(native, dtypes))
    if any(dtype.hasobject for dtype in dtypes):
        return None  # its loops call whatever methods the objects have
    try:
        resolved = ufunc.resolve_dtypes((*natives, None))
    except TypeError:
        return None
    if resolved[:-1] != natives:
        return None
    # A dtype out of a file is equal to the one that numpy gives its own arrays, but another object.
    result: np.dtype[Any] = resolved[-1]
    return np.dtype(result.char) if result.kind in "biufc" else result


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A data type in the byte order of this machine."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")


def as_operand(name: str, parameter: str, value: Any, dtype: np.dtype[Any]) -> Any:
    """A tensor as it is; a number as a scalar of `dtype`.

    Raises:
        TypeError: neither a tensor nor a number of a kind that `dtype` holds.
        ValueError: a number that `dtype` cannot hold.
    """
    if isinstance(value, np.ndarray):
        return value
    if not _holds_kind(dtype, value):
        raise TypeError(
            f"{name}: {parameter}: expected a tensor or a number that goes with "
            f"{dtype}, got {describe(value)}"
        )
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise ValueError(
            f"{name}: {parameter}: expected a number within {dtype}, got {describe(value)}"
        )
    try:
        return dtype.type(value)
    except OverflowError:
        raise ValueError(
            f"{name}: {parameter}: expected a number within {dtype}, got {describe(value)}"
        ) from None


def _holds_kind(dtype: np.dtype[Any], value: Any) -> bool:
    if dtype.kind not in "biufcV":  # V: bfloat16 and the other types of ml_dtypes
        return False
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return dtype.kind != "b"
    return isinstance(value, float) and dtype.kind not in "biu"


def broadcast(name: str, **operands: Any) -> Dims:
    """The shape that operands broadcast to.

    Raises:
        ValueError: they do not.
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
        raise ValueError(f"{name}: expected shapes that broadcast, got {got}") from None


def _broadcast_dims(shapes: list[Dims]) -> Dims:
    ndim = max(map(len, shapes))
    dims = []
    for each in zip(*((1,) * (ndim - len(shape)) + shape for shape in shapes), strict=True):
        longer = set(each) - {1}
        if len(longer) > 1:
            raise ValueError("shapes do not broadcast")
        dims.append(longer.pop() if longer else 1)
    return tuple(dims)


def axis_of(name: str, x: NDArray[Any], axis: Any) -> int:
    """An axis of `x`, counted from the front.

    Raises:
        TypeError: not an int.
        ValueError: `x` does not have it.
    """
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"{name}: axis: expected an int, got {describe(axis)}")
    if not -x.ndim <= axis < x.ndim:
        raise ValueError(f"{name}: axis: expected an axis of {describe(x)}, got {axis}")
    return axis % x.ndim


def at_end(x: NDArray[Any], axes: Dims) -> NDArray[Any]:
    """A view of `x` with these axes last, in this order; `x` itself if they are.  `np.moveaxis`
    takes microseconds to find out."""
    rest = x.ndim - len(axes)
    if axes == tuple(range(rest, x.ndim)):
        return x
    return x.transpose(*[axis for axis in range(x.ndim) if axis not in axes], *axes)


def private(operand: Any, out: NDArray[Any]) -> Any:
    """An operand that writing to `out` does not change: itself, or a copy where they may overlap.
    For numpy functions that do not see to this themselves."""
    return operand.copy() if np.may_share_memory(operand, out) else operand


def apart(x: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """An input that is read while `out` is written, element by element: itself, unless the two
    overlap without being the same memory; then a copy."""
    if x is out or not np.may_share_memory(x, out):
        return x
    if x.shape == out.shape and x.strides == out.strides and x.dtype == out.dtype:
        start, begin = (each.__array_interface__["data"][0] for each in (x, out))
        if start == begin:
            return x
    return x.copy()


def assign(out: NDArray[Any], x: NDArray[Any]) -> None:
    """out = x, converted to `out`'s data type, where the two may overlap."""
    # numpy does not see to an overlap of vectors with different strides.
    np.copyto(out, apart(x, out), casting="unsafe")
