"""Constants, ranges and shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....ir import Expr, TensorType, prim
from ...common.values import MOST_FOLDED, Value, elements_of, is_never_negative
from ..graph import Graph, Problem
from ..registry import onnx
from ..tensors import dtype_of

__all__: list[str] = []


@onnx("Constant", since=1)
def constant(
    g: Graph,
    *,
    value: NDArray[Any] | None = None,
    sparse_value: NDArray[Any] | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Value:
    """The constant."""
    floats = value_float if value_floats is None else value_floats
    ints = value_int if value_ints is None else value_ints
    texts = value_string if value_strings is None else value_strings
    for dense in (value, sparse_value):
        if dense is not None:
            return Value(known=dense, dtype="str" if dense.dtype == object else None)
    if floats is not None:
        return Value(known=np.array(floats, np.float32))
    if ints is not None:
        return Value(known=np.array(ints, np.int64))
    if texts is not None:
        return Value(known=np.array(texts, object), dtype="str")
    raise Problem("expected a value, got none")


@onnx("ConstantOfShape", since=9)
def constant_of_shape(g: Graph, shape: Value, *, value: NDArray[Any] | None = None) -> Any:
    """R.full."""
    number = np.zeros(1, np.float32) if value is None else value
    dims = g.shape_in(shape)
    if isinstance(dims, list) and all(isinstance(dim, int) for dim in dims):
        count = int(np.prod(dims, dtype=object)) if dims else 1
        if min(dims, default=0) < 0:
            raise Problem(f"shape: expected lengths of 0 or more, got {dims}")
        if count <= MOST_FOLDED:
            return np.full(dims, number.reshape(-1)[0], number.dtype)
    return g.op("full", dims, number.reshape(()), number.dtype.name)


def _fold_range(start: NDArray[Any], limit: NDArray[Any], delta: NDArray[Any]) -> Any:
    if any(each.dtype == object for each in (start, limit, delta)):
        return None
    first, end, step = start.item(), limit.item(), delta.item()  # which do not overflow
    if not step:
        return None
    count = -((first - end) // step) if start.dtype.kind in "iu" else (end - first) / step
    if not count <= MOST_FOLDED:
        return None
    numbers = np.arange(max(0, math.ceil(count)), dtype=start.dtype)
    return numbers * delta + start


@onnx("Range", since=11, fold=_fold_range)
def range_(g: Graph, start: Value, limit: Value, delta: Value) -> Expr:
    """R.arange."""
    bounds = [value.ints() for value in (start, limit, delta)]
    if any(each is None for each in bounds) or start.dtype not in ("int64", "int32"):
        if start.dtype is None:
            raise Problem("the data type of start is not known")
        numbers = [g.number(value) for value in (start, limit, delta)]
        return g.run("arange", numbers, TensorType(None, start.dtype, ndim=1), start.dtype)
    first, last, step = [each[0] for each in bounds if each is not None]
    if isinstance(step, int) and not is_never_negative((last - first) * step):
        last = (prim.maximum if step > 0 else prim.minimum)(prim.as_scalar(first), last)
    return g.op("arange", first, last, step, start.dtype)


def _sliced(count: int, start: int, end: int | None) -> slice:
    first, last, _ = slice(start, end).indices(count)
    return slice(first, max(first, last))


@onnx("Shape", since=1)
def shape(g: Graph, x: Value, *, start: int = 0, end: int | None = None) -> Any:
    """The dimensions, as elements that are known."""
    dims = x.dims
    if dims is not None:
        found = np.empty(len(dims), object)
        found[:] = elements_of(np.array([*dims, None], object)[:-1])
        return found[_sliced(len(dims), start, end)]
    whole = g.op("shape_to_tensor", g.op("shape_of", x))
    if start == 0 and end is None:
        return whole
    bound = 2**62 if end is None else end
    ty = TensorType(None, "int64", ndim=1)
    return g.run("strided_slice", [whole, (0,), (start,), (bound,), None], ty, "int64")


@onnx("Size", since=1)
def size(g: Graph, x: Value) -> Any:
    """The number of elements."""
    dims = x.dims
    if dims is not None:
        total: Any = 1
        for dim in elements_of(np.array([*dims, None], object)[:-1]):
            total = total * dim
        found = np.empty((), object)
        found[()] = total
        return found
    return g.op("size", x)


@onnx("EyeLike", since=9)
def eye_like(g: Graph, x: Value, *, dtype: int | None = None, k: int = 0) -> Expr:
    """R.eye_like."""
    return g.op("eye_like", x, k, None if dtype is None else dtype_of(dtype, "dtype"))
