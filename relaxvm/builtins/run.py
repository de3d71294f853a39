"""Functions that operators of Relax without a kernel are lowered to: ``relax.run.*``, and views."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import dtype_to_dl
from ..messages import describe, readable
from ..pieces.cut import PIECE, converted, pieces, positions
from ..values import Shape
from .arguments import as_array, as_data_type, as_int, as_shape, as_str, size_of
from .registration import OWN_PREFIX, RUN_PREFIX, RUNTIME_PREFIX, builtin

__all__: list[str] = []

_MOST_TEXT: Final = 1 << 20
"""The most characters of a format, and of a message or printed line; longer ones are truncated."""
_FIELD: Final = re.compile(r"\{\{|\}\}|\{(\d{0,9})\}|[{}]")


@builtin("print", "format: str, *values: any", result="none", prefix=RUN_PREFIX, effect=True)
def print_formatted(*args: Any) -> None:
    """Print values to the standard output, at most 1 MiB of text.

    In `format`, ``{}`` stands for the next value, ``{0}`` for the first one, ``{{`` and ``}}`` for
    braces; there are no other fields, conversions or format specifications.  If `format` is empty,
    the values are printed, separated by blanks.

    Raises:
        TypeError: there is no format.
        IndexError: the format has a field for which there is no value.
        ValueError: the format has another field, or a brace by itself.
    """
    print(_formatted("print", *_format_of("print", args), " "))


@builtin("assert_op", "condition: any, format: str, *values: any", result="none", prefix=RUN_PREFIX)
def assert_op(*args: Any) -> None:
    """Check that a condition, a bool or a bool tensor of rank 0, is true.

    Raises:
        AssertionError: it is false; the message is made of format and values, as by `print`.
        TypeError: the condition is not a bool, or there is no format.
        IndexError, ValueError: the format is wrong, as for `print`.
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
        message = _formatted("assert_op", text, values, ", ")
        raise AssertionError(message or "Assertion Failed")


def _format_of(name: str, args: Any) -> tuple[str, list[str]]:
    if not args:
        raise TypeError(f"{name}: expected a format and values, got no arguments")
    template, *values = args
    from .call import value_text  # here, as `unique` does: most programs call neither

    return as_str(template, f"{name}: format"), [value_text(value) for value in values]


def _formatted(name: str, template: str, values: Sequence[str], separator: str) -> str:
    """Fill a format with texts.  `str.format` is not used: its fields can read attributes of values
    and pad to any width."""
    if not template:
        return _joined(values, separator)
    if len(template) > _MOST_TEXT:
        raise ValueError(f"{name}: format: expected at most {_MOST_TEXT} characters, "
                         f"got {len(template)}")
    parts: list[str] = []
    end = count = 0
    for match in _FIELD.finditer(template):
        parts.append(template[end : match.start()])
        end = match.end()
        field = match[0]
        if field in ("{{", "}}"):
            parts.append(field[0])
            continue
        if len(field) == 1:
            shown = readable(template[match.start() :], 20)
            raise ValueError(
                f"{name}: format: expected {{}}, {{NUMBER}}, {{{{ or }}}}, got {shown!r}"
            )
        index = int(match[1]) if match[1] else count
        count += not match[1]
        if index >= len(values):
            raise IndexError(f"{name}: format: field {field} has no value, there are {len(values)}")
        parts.append(values[index])
    return _joined([*parts, template[end:]], "")


def _joined(parts: Sequence[str], separator: str) -> str:
    """Join the parts, truncated to `_MOST_TEXT` characters."""
    kept: list[str] = []
    left = _MOST_TEXT
    for part in parts:
        kept.append(part[:left])
        left -= len(part) + len(separator)
        if left < 0:
            kept.append("...")
            break
    return separator.join(kept)


@builtin("nonzero", "x: tensor", result="tensor", prefix=RUN_PREFIX)
def nonzero(x: Any) -> NDArray[np.int64]:
    """Return the positions of the nonzero elements, in row-major order: int64, with a row for each
    dimension of x, and one row if x has rank 0.

    Raises:
        TypeError: not a tensor.
    """
    tensor = np.atleast_1d(as_array(x, "nonzero"))
    # The elements are counted before their positions are collected.  Both use elements of their own
    # that are 0 or 1, whatever bytes another thread writes meanwhile.
    flags = np.empty(tensor.shape, np.bool_)
    for written, read in pieces(flags, tensor):
        np.not_equal(read.astype(np.bool_).view(np.uint8), 0, out=written)
    if flags.size <= PIECE:
        return np.stack(flags.nonzero())
    places = positions(flags.reshape(-1))
    out = np.empty((tensor.ndim, len(places)), np.int64)
    for at, written in pieces(places, out.T):
        written.T[...] = np.unravel_index(at, tensor.shape)
    return out


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
    """Return the distinct elements of a tensor, or with `axis` the distinct slices along it: sorted
    or in order of first occurrence.

    If other flags are set, the result is a tuple of these elements and an int64 tensor of rank 1
    for each set flag: the index of the first occurrence of each, for every element of x the index
    of its value in the result, and the number of occurrences of each.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: x has no such axis.
    """
    from ..pieces.order import distinct, distinct_slices, in_order_of_occurrence

    tensor = as_array(x, "unique")
    flags = [as_int(f, "unique") for f in (return_index, return_inverse, return_counts)]
    axis = None if axis is None else as_int(axis, "unique: axis")
    if axis is not None and not -tensor.ndim <= axis < tensor.ndim:
        raise ValueError(f"unique: axis {axis} is out of bounds for {describe(tensor)}")
    # The data types of ml_dtypes have no place for NaN in their order.
    keys = converted(tensor, np.float32) if tensor.dtype.kind == "V" else tensor
    found = distinct(keys) if axis is None else distinct_slices(np.moveaxis(keys, axis, 0))
    if not as_int(is_sorted, "unique: sorted"):
        found = in_order_of_occurrence(found)
    values = converted(found.values, tensor.dtype)
    if axis is not None:
        values = np.moveaxis(values, 0, axis)
    wanted = [part for part, flag in zip(found[1:], flags, strict=True) if flag]
    return (values, *wanted) if wanted else values


@builtin(
    "TVMTensorCreateView",
    "x: tensor, shape: shape|tuple, dtype: dtype|none, byte_offset: int",
    result="tensor",
    prefix=RUNTIME_PREFIX,
)
def create_view(x: Any, shape: Any, dtype: Any, byte_offset: Any) -> NDArray[Any]:
    """Return a view of a contiguous tensor's memory, from an offset in bytes, as a tensor of
    another shape and data type.  An empty tuple means x's shape, None its data type.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: x is not contiguous, or the view extends beyond it.
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


@builtin("tensor_property", "x: tensor, name: str, axis: int", result="int", prefix=OWN_PREFIX)
def tensor_property(x: Any, name: Any, axis: Any) -> int:
    """Return what a tensor is, as a number: "ndim"; "shape_i" or "stride_i", the length or the
    stride, in elements, of an axis; "dtype_code", "dtype_bits" or "dtype_lanes", as DLPack has
    them; "byte_offset" or "elem_offset", which are 0.

    Raises:
        TypeError: an argument is of another kind.
        ValueError: there is no such property or axis, or a stride is not a number of elements.
        FormatError: DLPack has no such data type.
    """
    tensor = as_array(x, "tensor_property")
    wanted = as_str(name, "tensor_property: name")
    place = as_int(axis, "tensor_property: axis")
    if wanted in ("shape_i", "stride_i"):
        if not 0 <= place < tensor.ndim:
            raise ValueError(
                f"tensor_property: axis: expected one of the {tensor.ndim} axes of {describe(x)}, "
                f"got {place}"
            )
        if wanted == "shape_i":
            return int(tensor.shape[place])
        stride, rest = divmod(tensor.strides[place], tensor.itemsize or 1)
        if rest:
            raise ValueError(
                f"tensor_property: the stride of axis {place} of {describe(x)} is "
                f"{tensor.strides[place]} bytes, which are no number of elements"
            )
        return int(stride)
    if wanted.startswith("dtype_"):
        code, bits, lanes = dtype_to_dl(tensor.dtype)
        numbers = {"dtype_code": code, "dtype_bits": bits, "dtype_lanes": lanes}
    else:
        numbers = {"ndim": tensor.ndim, "byte_offset": 0, "elem_offset": 0}
    if wanted not in numbers:
        raise ValueError(f"tensor_property: there is no property {readable(wanted, 40)}")
    return numbers[wanted]
