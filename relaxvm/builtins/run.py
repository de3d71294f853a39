"""What operators of Relax are lowered to that have no kernel: ``relax.run.*``, and views."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values import Shape, describe
from .arguments import as_array, as_data_type, as_int, as_shape, as_str, size_of
from .call import value_text
from .registration import RUN_PREFIX, RUNTIME_PREFIX, builtin

__all__: list[str] = []

@builtin("print", "format: str, *values: any", result="none", prefix=RUN_PREFIX)
def print_formatted(*args: Any) -> None:
    """Print values to the standard output: as `format`, of `str.format`, says, or if it
    is empty with blanks between them.

    Raises:
        TypeError: there is no format.
        IndexError, KeyError, ValueError: the format asks for what is not there.
    """
    text, values = _format_of("print", args)
    print(text.format(*values) if text else " ".join(values))


@builtin("assert_op", "condition: any, format: str, *values: any", result="none", prefix=RUN_PREFIX)
def assert_op(*args: Any) -> None:
    """Raise unless a condition, a bool or a bool tensor of rank 0, is true.

    Raises:
        AssertionError: it is false; the message is made of format and values, as of `print`.
        TypeError: the condition is no bool, or there is no format.
    """
    if not args:
        raise TypeError("assert_op: expected a condition and a format, got no arguments")
    condition, *rest = args
    text, values = _format_of("assert_op", rest)
    if isinstance(condition, np.ndarray) and condition.ndim == 0 and condition.dtype == np.bool_:
        condition = bool(condition)
    if not isinstance(condition, int):
        raise TypeError(
            f"assert_op: condition: expected a bool or a bool tensor of rank 0, got "
            f"{describe(condition)}"
        )
    if not condition:
        message = text.format(*values) if text else ", ".join(values)
        raise AssertionError(message or "Assertion Failed")


def _format_of(name: str, args: Any) -> tuple[str, list[str]]:
    if not args:
        raise TypeError(f"{name}: expected a format and values, got no arguments")
    template, *values = args
    return as_str(template, f"{name}: format"), [value_text(value) for value in values]


@builtin("shape_to_tensor", "shape: shape", result="tensor", prefix=RUN_PREFIX)
def shape_to_tensor(shape: Any) -> NDArray[np.int64]:
    """A shape as an int64 tensor of rank 1.

    Raises:
        TypeError: not a shape.
    """
    if not isinstance(shape, Shape):
        raise TypeError(f"shape_to_tensor: expected a shape, got {describe(shape)}")
    return np.array(shape, np.int64)


@builtin("nonzero", "x: tensor", result="tensor", prefix=RUN_PREFIX)
def nonzero(x: Any) -> NDArray[np.int64]:
    """The positions of the elements that are not zero, in row-major order: int64, with a row for
    each dimension of x, one if it has none.

    Raises:
        TypeError: not a tensor.
    """
    return np.stack(np.atleast_1d(as_array(x, "nonzero")).nonzero())


@builtin(
    "unique",
    "x: tensor, sorted: int, return_index: int, return_inverse: int, return_counts: int, "
    "axis: int|none = ...",
    prefix=RUN_PREFIX,
)
def unique(
    x: Any,
    is_sorted: Any,
    return_index: Any,
    return_inverse: Any,
    return_counts: Any,
    axis: Any = None,
) -> Any:
    """The different elements of a tensor, or with `axis` the different slices along it: sorted, or
    as they first come.

    They are the result if the other flags are 0; else it is a tuple, with int64 tensors of rank 1
    for each flag that is not: where every one first is, which one every element of x is, and how
    often there is each.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: x has no such axis.
    """
    tensor = as_array(x, "unique")
    flags = [as_int(f, "unique") for f in (return_index, return_inverse, return_counts)]
    axis = None if axis is None else as_int(axis, "unique: axis")
    values, index, inverse, counts = np.unique(tensor, True, True, True, axis)
    if not as_int(is_sorted, "unique: sorted"):
        order = np.argsort(index)
        values, index, counts = np.take(values, order, axis), index[order], counts[order]
        inverse = np.argsort(order)[inverse]
    parts = zip((index, inverse.reshape(-1), counts), flags, strict=True)
    wanted = [part for part, flag in parts if flag]
    return (values, *wanted) if wanted else values


@builtin(
    "TVMTensorCreateView",
    "x: tensor, shape: shape|tuple, dtype: dtype|none, byte_offset: int",
    result="tensor",
    prefix=RUNTIME_PREFIX,
)
def create_view(x: Any, shape: Any, dtype: Any, byte_offset: Any) -> NDArray[Any]:
    """The memory of a contiguous tensor, from an offset in bytes on, as a tensor of another shape
    and data type.  An empty tuple stands for x's shape, None for its data type.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: x is not contiguous, or the view reaches beyond it.
    """
    tensor = as_array(x, "create_view")
    dims = tensor.shape if type(shape) is tuple and not shape else as_shape(shape, "create_view")
    new_dtype = tensor.dtype if dtype is None else as_data_type(dtype, "create_view: dtype")
    offset = as_int(byte_offset, "create_view: byte_offset")
    if not tensor.flags.c_contiguous or tensor.dtype.hasobject or new_dtype.hasobject:
        raise ValueError(f"create_view: expected a contiguous tensor, got {describe(x)}")
    end = offset + size_of(dims) * new_dtype.itemsize
    if offset < 0 or min(dims, default=0) < 0 or end > tensor.nbytes:
        raise ValueError(
            f"create_view: expected a view within the {tensor.nbytes} bytes of {describe(x)}, got "
            f"{describe(Shape(dims))} of {new_dtype} at byte {offset}"
        )
    return np.ndarray(dims, new_dtype, tensor, offset)
