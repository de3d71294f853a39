"""Rearranging and selecting elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....dtypes import as_dtype
from ....ir import (
    Expr,
    IntImm,
    TensorType,
    TupleGetItem,
    TupleType,
    Var,
    int_imm,
    prim,
)
from ....ir.arith import prove_equal, simplify
from ...common.emitter import identifier
from ...common.values import Value, as_expr, elements_of, is_never_negative
from ..graph import Graph, Problem
from ..registry import onnx
from .ranks import axis_in_the_middle, in_shape, shape_vector, where_axis

__all__: list[str] = []


def _rank(*values: Any) -> int:
    """The sum of ranks; -1 if one is not known."""
    return -1 if -1 in values else sum(values)


def _unknown(x: Value, ndim: int) -> TensorType:
    return TensorType(None, x.dtype, ndim=ndim)


# The same elements


def _fold_reshape(x: NDArray[Any], shape: NDArray[Any], *, allowzero: int = 0) -> Any:
    dims = elements_of(shape)
    if not all(isinstance(dim, int) for dim in dims):
        return None
    dims = [x.shape[i] if d == 0 and not allowzero and i < x.ndim else d
            for i, d in enumerate(dims)]  # fmt: skip
    return x.reshape(dims)


_MOST: Final = (1 << 55) - 1
"""More elements than any axis has."""
_MOST_AXES: Final = 64
"""Of arrays."""


@onnx("Reshape", since=5, fold=_fold_reshape)
def reshape(g: Graph, x: Value, shape: Value, *, allowzero: int = 0) -> Expr:
    """R.reshape; 0 stands for the dimension of x at the same place."""
    dims = g.shape_in(shape)
    if isinstance(dims, list) and x.dims is not None:
        old = x.dims
        if not allowzero:
            for i, dim in enumerate(dims):
                if isinstance(dim, int) and dim == 0:
                    if i >= len(old):
                        raise Problem(f"shape: 0 at place {i}, but x has {len(old)} dimensions")
                    dims[i] = old[i]
        numbers = [dim for dim in dims if isinstance(dim, int)]
        if -1 not in numbers:
            return g.reshaped(x, dims)
        if allowzero and 0 in numbers:
            raise Problem(f"shape: expected no -1 beside 0 with allowzero, got {dims}")
        return g.op("reshape", x, dims)
    ndim = len(dims) if isinstance(dims, list) else (-1 if shape.length is None else shape.length)
    return g.run("reshape", [x, dims, allowzero], _unknown(x, ndim))


@onnx("Reshape", since=1)
def reshape_by_attribute(g: Graph, x: Value, *, shape: list[int]) -> Expr:
    """R.reshape."""
    return reshape(g, x, Value(known=np.array(shape, np.int64)))


@onnx("Flatten", since=1)
def flatten(g: Graph, x: Value, *, axis: int = 1) -> Expr:
    """A matrix: the axes before `axis`, and the others."""
    dims = x.dims
    if dims is None:
        return g.run("flatten", [x, axis], _unknown(x, 2))
    if not -len(dims) <= axis <= len(dims):
        raise Problem(f"axis: expected one of {len(dims)} axes, got {axis}")
    at = axis + len(dims) if axis < 0 else axis
    rows: Any = 1
    columns: Any = 1
    for i, dim in enumerate(elements_of(np.array([*dims, None], object)[:-1])):
        if i < at:
            rows = rows * dim
        else:
            columns = columns * dim
    return g.reshaped(x, [rows, columns])


def _axes_of(g: Graph, axes: Value | None) -> list[int] | None:
    if axes is None:
        return None
    found = g.sized(axes, "axes")
    return [int(axis) for axis in found]


def _fold_squeeze(x: NDArray[Any], axes: NDArray[Any] | None = None) -> Any:
    return np.squeeze(x, None if axes is None else tuple(axes.reshape(-1).tolist()))


@onnx("Squeeze", since=13, fold=_fold_squeeze)
def squeeze(g: Graph, x: Value, axes: Value | None = None) -> Expr:
    """R.squeeze."""
    if axes is not None and axes.known is None:
        return g.run("squeeze", [x, g.shape_in(axes)], _unknown(x, -1))
    found = _axes_of(g, axes)
    return g.op("squeeze", x, found)


@onnx("Squeeze", since=1, fold=lambda x, axes: np.squeeze(x, None if axes is None else tuple(axes)))
def squeeze_by_attribute(g: Graph, x: Value, *, axes: list[int] | None = None) -> Expr:
    """R.squeeze."""
    return g.op("squeeze", x, axes)


def _fold_unsqueeze(x: NDArray[Any], axes: NDArray[Any]) -> Any:
    return np.expand_dims(x, tuple(axes.reshape(-1).tolist()))


@onnx("Unsqueeze", since=13, fold=_fold_unsqueeze)
def unsqueeze(g: Graph, x: Value, axes: Value) -> Expr:
    """R.expand_dims."""
    if axes.known is None:
        count = axes.length
        ndim = _rank(x.ndim, -1 if count is None else count)
        return g.run("expand_dims", [x, g.shape_in(axes)], _unknown(x, ndim))
    return g.op("expand_dims", x, _axes_of(g, axes))


@onnx("Unsqueeze", since=1, fold=lambda x, axes: np.expand_dims(x, tuple(axes)))
def unsqueeze_by_attribute(g: Graph, x: Value, *, axes: list[int]) -> Expr:
    """R.expand_dims."""
    return g.op("expand_dims", x, axes)


@onnx("Transpose", since=1, fold=lambda x, perm: np.transpose(x, perm))
def transpose(g: Graph, x: Value, *, perm: list[int] | None = None) -> Expr:
    """R.permute_dims."""
    return g.op("permute_dims", x, perm)


# Several tensors


def _fold_concat(*xs: NDArray[Any], axis: int) -> Any:
    return np.concatenate(xs, axis)


@onnx("Concat", since=4, fold=_fold_concat)
def concat(g: Graph, *xs: Value, axis: int) -> Any:
    """R.concat."""
    if len(xs) == 1:
        return xs[0]
    found = g.op("concat", list(xs), axis)
    ty: Any = found.ty
    shapes = [x.dims for x in xs]
    if ty.dims is not None or ty.dtype is None or None in shapes or ty.ndim < 3:
        return found
    # Lengths that are not known to be equal: where they are not, the program raises an error.
    dims = list(shapes[0] or ())
    lengths = [length for shape in shapes if isinstance(length := (shape or ())[axis], IntImm)]
    if len(lengths) < len(xs):
        return found
    dims[axis] = int_imm(sum(length.value for length in lengths))
    return g.context.builder.match_cast(found, TensorType(dims, ty.dtype))


def _of_length(g: Graph, x: Value, axis: int, length: Any, sizes: list[int]) -> Value:
    """x, whose axis has the length of all parts together; checked at run time if it is not known
    before."""
    total = sum(sizes)
    if min(sizes, default=0) < 0 or (isinstance(length, int) and length != total):
        text = "of any length" if length is None else f"of length {length}"
        raise Problem(f"split: expected lengths of parts of axis {axis}, {text}, got {sizes}")
    if isinstance(length, int) or x.ndim < 0:
        return x
    dims = list(x.dims or [Var(f"d{i}", "int64") for i in range(x.ndim)])
    dims[axis] = int_imm(total)
    return Value(g.context.builder.match_cast(g.expr(x), TensorType(dims, x.dtype)))


def _parts(g: Graph, x: Value, sizes: list[Any] | None, count: int, axis: int) -> Any:
    dims = x.dims
    length: Any = None
    if sizes is None and g.node is not None and count > len(g.node.output):
        raise Problem(f"expected {count} outputs, the node has {len(g.node.output)}")
    if dims is not None:
        length = elements_of(np.array([dims[axis], None], object)[:-1])[0]
    if sizes is None:
        if count < 1:
            raise Problem("the number of the parts is not known")
        if count == 1:
            return (x,)
        if dims is None:
            ty = TupleType([_unknown(x, x.ndim)] * count)
            found = g.run("split", [x, count, axis], ty, ",".join([x.dtype or "?"] * count))
            return tuple([Value(g.emit(TupleGetItem(found, i))) for i in range(count)])
        if not isinstance(length, int):
            call = g.op("split", x, count, axis)
            return tuple([Value(g.emit(TupleGetItem(call, i))) for i in range(count)])
        step = -(-length // count)
        sizes = [step] * (count - 1) + [length - step * (count - 1)]
    elif all(isinstance(each, int) for each in sizes):
        if x.ndim < 0 and len(sizes) > 1:
            return _parts_in_any_rank(
                g, x, axis, lambda rows: _parts(g, rows, sizes, count, 1)
            )
        x = _of_length(g, x, axis, length, sizes)
    if len(sizes) == 1:
        return (x,)
    bounds: list[Any] = []
    total: Any = 0
    for each in sizes[:-1]:
        total = total + each
        bounds.append(total)
    if not all(isinstance(bound, int) for bound in bounds):
        return _parts_of_lengths(g, x, sizes, axis)
    call = g.op("split", x, bounds, axis)
    return tuple([Value(g.emit(TupleGetItem(call, i))) for i in range(len(sizes))])


def _parts_at_run_time(g: Graph, x: Value, sizes: Value, count: int, axis: int) -> Any:
    """Parts whose lengths are in a tensor."""
    if x.ndim < 0:
        return _parts_in_any_rank(
            g, x, axis, lambda rows: _parts_at_run_time(g, rows, sizes, count, 1)
        )
    return _parts_of_lengths(g, x, g.elements(sizes, count, "split"), axis)


def _parts_of_lengths(g: Graph, x: Value, lengths: list[Any], axis: int) -> Any:
    """Parts of lengths some of which only the run knows; it checks that they fill the axis."""
    count = len(lengths)
    dims = list(g.named_dims(x, x.ndim) or ())
    if not -x.ndim <= axis < x.ndim:
        raise Problem(f"axis: expected one of {x.ndim} axes, got {axis}")
    axis %= x.ndim
    whole = TensorType([*dims[:axis], sum(lengths), *dims[axis + 1 :]], x.dtype)
    x = Value(g.context.builder.match_cast(g.expr(x), whole))
    if count == 1:
        return (x,)
    starts = [sum(lengths[:i]) for i in range(1, count)]
    ty = TupleType(
        [TensorType([*dims[:axis], each, *dims[axis + 1 :]], x.dtype) for each in lengths]
    )
    call = g.run("split", [x, starts, axis], ty, ",".join([x.dtype or "?"] * count))
    return tuple([Value(g.emit(TupleGetItem(call, i))) for i in range(count)])


def _parts_in_any_rank(
    g: Graph, x: Value, axis: int, divide: Callable[[Value], tuple[Value, ...]]
) -> Any:
    """The parts that `divide` makes of the middle axis of three, in the shape of x, whose rank only
    the run knows."""
    shape = shape_vector(g, x)
    found = []
    for each in divide(axis_in_the_middle(g, x, axis)):
        length = g.op("take", shape_vector(g, each), np.array(1), 0)
        found.append(in_shape(g, each, where_axis(g, shape, axis, length, shape)))
    return tuple(found)


@onnx("Split", since=13)
def split(
    g: Graph, x: Value, sizes: Value | None = None, *, axis: int = 0, num_outputs: int = 0
) -> Any:
    """R.split."""
    assert g.node is not None
    if sizes is not None and sizes.known is None:
        return _parts_at_run_time(g, x, sizes, len(g.node.output), axis)
    given = None if sizes is None else g.sized(sizes, "split")
    return _parts(g, x, given, num_outputs or len(g.node.output), axis)


@onnx("Split", since=1)
def split_by_attribute(
    g: Graph, x: Value, *, axis: int = 0, split: list[int] | None = None
) -> Any:
    """R.split."""
    assert g.node is not None
    return _parts(g, x, split, len(g.node.output), axis)


# Selections


def _fold_slice(
    x: NDArray[Any],
    starts: NDArray[Any],
    ends: NDArray[Any],
    axes: NDArray[Any] | None = None,
    steps: NDArray[Any] | None = None,
) -> Any:
    given = [starts, ends, axes, steps]
    if any(each is not None and each.dtype == object for each in given):
        return None
    places = range(len(starts)) if axes is None else axes.tolist()
    strides = [1] * len(starts) if steps is None else steps.tolist()
    index = [slice(None)] * x.ndim
    for axis, *bounds in zip(places, starts.tolist(), ends.tolist(), strides, strict=True):
        index[axis] = slice(*bounds)
    return x[tuple(index)]


@onnx("Slice", since=10, fold=_fold_slice)
def slice_(
    g: Graph,
    x: Value,
    starts: Value,
    ends: Value,
    axes: Value | None = None,
    steps: Value | None = None,
) -> Expr | Value:
    """R.strided_slice; x itself where it takes all elements."""
    places: Any = starts.places if axes is None else g.shape_in(axes)
    if places is None:  # the first axes, as many as there are starts
        (count,) = g.named_dims(starts, 1) or ()
        places = g.shape_in(Value(g.op("arange", 0, count, 1, "int64")))
    begin, end = g.shape_in(starts), g.shape_in(ends)
    strides = [1] * len(starts.places or ()) if steps is None else g.shape_in(steps)
    parts = [places, begin, end, strides]
    are_known = all(isinstance(part, list) for part in parts)
    if are_known and all(isinstance(each, int) for each in [*places, *strides]):
        bounds = [_within(each) for each in (begin, end)]
        cut = [
            each
            for each in zip(places, *bounds, strides, strict=True)
            if not _takes_all(x, *each)
        ]
        if not cut:
            return x
        places, begin, end, strides = map(list, zip(*cut, strict=True))
        found = g.op("strided_slice", x, places, begin, end, strides)
        return _with_lengths(g, found, x, places, begin, end, strides)
    ty = _unknown(x, x.ndim)
    given = [places, begin, end, None if steps is None else strides]
    return g.run("strided_slice", [x, *given], ty, x.dtype or "?")


_ADDRESSES: Final = 1 << 48
"""More bytes than a tensor can have."""


def _takes_all(x: Value, axis: int, first: Any, last: Any, step: int) -> bool:
    """Whether a slice takes all elements along an axis: ends such as 2147483647 are beyond each
    length that a tensor with these other dimensions can have."""
    dims = x.dims
    if dims is None or not -len(dims) <= axis < len(dims) or step != 1:
        return False
    dim = dims[axis]
    if isinstance(first, Expr):  # from the end: as many elements as there are
        if not prove_equal(first + dim, 0):
            return False
    elif first != 0:
        return False
    if not isinstance(last, int):
        return prove_equal(last, dim)
    if isinstance(dim, IntImm):
        return last >= dim.value
    others = [each for i, each in enumerate(dims) if i != axis % len(dims)]
    lengths = [each.value if isinstance(each, IntImm) else 0 for each in others]
    item = as_dtype(x.dtype).itemsize if x.dtype not in (None, "str") else 1
    most = math.prod(lengths) * item
    return most > 0 and last >= _ADDRESSES // most


def _with_lengths(
    g: Graph, found: Expr, x: Value, places: list[int], begin: list[Any], end: list[Any],
    strides: list[int],
) -> Expr:  # fmt: skip
    """A slice with the dimensions that follow from ends which are never negative: where the first
    elements of an axis are taken, as many as there are of something else, the result is as long as
    that if the axis is long enough."""
    if x.dims is None or not isinstance(found.ty, TensorType) or found.ty.dims is None:
        return found
    dims = list(found.ty.dims)
    is_new = False
    for axis, first, last, step in zip(places, begin, end, strides, strict=True):
        if isinstance(last, Expr) and (first, step) == (0, 1) and is_never_negative(last):
            dims[axis] = simplify(prim.minimum(last, x.dims[axis]))
            is_new = True
    if not is_new:
        return found
    return g.context.builder.match_cast(found, TensorType(dims, x.dtype), identifier(g.hint))


def _within(bounds: list[Any]) -> list[Any]:
    """Bounds within the range of 48 bits, which stands for the end of an axis."""
    limit = 1 << 48
    return [max(-limit, min(limit, b)) if isinstance(b, int) else b for b in bounds]


@onnx("Slice", since=1)
def slice_by_attributes(
    g: Graph, x: Value, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Any:
    """R.strided_slice; x itself where it takes all elements."""
    begin, end = np.array(starts, np.int64), np.array(ends, np.int64)
    places = None if axes is None else np.array(axes, np.int64)
    if x.known is not None:
        return _fold_slice(x.known, begin, end, places)
    along = None if places is None else Value(known=places)
    return slice_(g, x, Value(known=begin), Value(known=end), along)


def _fold_gather(x: NDArray[Any], indices: NDArray[Any], *, axis: int = 0) -> Any:
    return None if indices.dtype == object else np.take(x, indices, axis)


@onnx("Gather", since=1, fold=_fold_gather)
def gather(g: Graph, x: Value, indices: Value, *, axis: int = 0) -> Expr:
    """R.take; negative indices count from the end."""
    known = indices.constant()
    is_from_front = known is not None and (known.size == 0 or known.min() >= 0)
    return g.op("take", x, indices, axis, "fast" if is_from_front else "python")


@onnx("Expand", since=8)
def expand(g: Graph, x: Value, shape: Value) -> Expr:
    """x, broadcast in both directions with a shape."""
    dims = g.shape_in(shape)
    dtype = x.dtype
    if dtype is None or dtype == "str":
        raise Problem("the data type is not supported")
    wide = _broadcast(x.dims, dims) if isinstance(dims, list) and x.dims is not None else None
    if wide is not None:
        return g.op("broadcast_to", x, wide)
    # Where the shapes do not say which of them is broadcast, a choice between x and x decides it
    # when the model runs; numbers stay as they are, -0.0 included.
    if isinstance(dims, list):
        zeros = g.op("zeros", dims, "bool")
    else:
        ndim = -1 if shape.length is None else shape.length
        ty = TensorType(None, "bool", ndim=ndim)
        args = [dims]
        zeros = g.emit(_zeros_of(g, args[0], ty))
    return g.op("where", zeros, x, x)


def _broadcast(old: Sequence[Expr], dims: Sequence[Any]) -> list[Any] | None:
    """The dimensions of what is broadcast in both directions; None where they are not known."""
    count = max(len(old), len(dims))
    found = []
    for a, b in zip(
        [1] * (count - len(old)) + [*old], [1] * (count - len(dims)) + [*dims], strict=True
    ):
        if prove_equal(as_expr(b), as_expr(1)):
            found.append(a)
        elif prove_equal(as_expr(a), as_expr(1)) or prove_equal(as_expr(a), as_expr(b)):
            found.append(b)
        else:
            return None
    return found


def _zeros_of(g: Graph, shape: Any, ty: TensorType) -> Expr:
    from ....op.registry import CONSTRUCTORS

    made: Expr = CONSTRUCTORS["zeros"](shape, "bool")
    return made


@onnx("Tile", since=6)
def tile(g: Graph, x: Value, repeats: Value) -> Expr:
    """R.tile."""
    counts = g.shape_in(repeats)
    if x.ndim >= 0:
        g.elements(repeats, x.ndim, "repeats")  # which checks their number
    if isinstance(counts, list) and all(isinstance(each, int) for each in counts):
        return g.op("tile", x, counts)
    return g.run("tile", [x, counts], _unknown(x, x.ndim), x.dtype or "?")


@onnx("TopK", since=1)
def top_k_since_1(g: Graph, x: Value, *, axis: int = -1, k: int) -> Any:
    """R.topk, of a number that is an attribute."""
    return top_k(g, x, Value(known=np.array([k])), axis=axis)


@onnx("TopK", since=10)
def top_k(
    g: Graph, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1  # noqa: A002
) -> Any:
    """R.topk."""
    (count,) = k.ints() or (None,)
    if not isinstance(count, int):
        return _top_at_run_time(g, x, k, axis, bool(largest))
    length = None if x.dims is None else x.dims[axis]
    if count < 0 or (isinstance(length, IntImm) and count > length.value):
        raise Problem(f"k: expected a number of elements of axis {axis} of {x.type}, got {count}")
    if count == 0:  # which R.topk takes for all elements
        none = Value(g.op("strided_slice", x, [axis], [0], [0]))
        return none, Value(g.op("zeros_like", none, "int64"))
    call = g.op("topk", x, count, axis, "both", bool(largest), "int64")
    return Value(g.emit(TupleGetItem(call, 0))), Value(g.emit(TupleGetItem(call, 1)))


def _top_at_run_time(g: Graph, x: Value, k: Value, axis: int, largest: bool) -> Any:
    """The first k elements, where only the run knows k."""
    if x.ndim >= 0 and not -x.ndim <= axis < x.ndim:
        raise Problem(f"axis: expected one of {x.ndim} axes, got {axis}")
    (count,) = g.elements(k, 1, "k")
    dims = None if x.ndim < 0 else list(g.named_dims(x, x.ndim) or ())
    # The kernel takes no elements for all of them: at least one is found, and then k are kept.
    # Where the rank is not known, the kernel finds out that k is more than the length.
    both = TupleType([TensorType(None, dtype, ndim=x.ndim) for dtype in (x.dtype, "int64")])
    length = _MOST if dims is None else dims[axis]
    most = g.builtin("int_within", [k, 0, length, "k"])
    found = g.run("topk", [x, most, axis, "both", largest], both, f"{x.dtype or '?'},int64")
    if dims is not None:
        dims[axis] = as_expr(count)
    results = []
    for i, dtype in enumerate((x.dtype, "int64")):
        part = [g.emit(TupleGetItem(found, i)), (axis,), (0,), (count,), None]
        ty = TensorType.of(dims, dtype, ndim=x.ndim)
        results.append(Value(g.run("strided_slice", part, ty, dtype or "?")))
    return tuple(results)


def _cumulated(
    g: Graph, name: str, x: Value, axis: Value, exclusive: bool, reverse: bool
) -> Expr:
    """R.cumsum or R.cumprod along an axis, from the end if reversed."""
    if axis.known is None:
        return _cumulated_at_run_time(g, name, x, axis, exclusive, reverse)
    (along,) = g.sized(axis, "axis")
    found: Any = g.op("flip", x, along) if reverse else x
    found = g.op(name, found, along, exclusive=exclusive)
    return g.op("flip", found, along) if reverse else found


@onnx("CumSum", since=11)
def cum_sum(g: Graph, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Expr:
    """R.cumsum, from the end if reversed."""
    return _cumulated(g, "cumsum", x, axis, bool(exclusive), bool(reverse))


@onnx("CumProd", since=26)
def cum_prod(g: Graph, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Expr:
    """R.cumprod, from the end if reversed."""
    return _cumulated(g, "cumprod", x, axis, bool(exclusive), bool(reverse))


def _cumulated_at_run_time(
    g: Graph, name: str, x: Value, axis: Value, exclusive: bool, reverse: bool
) -> Expr:
    """Sums or products along an axis that only the run knows."""
    rank = _MOST_AXES if x.ndim < 0 else x.ndim  # the kernel checks it too
    along = g.builtin("int_within", [axis, -rank, rank - 1, "axis"])
    ty: Any = x.type
    found: Any = x
    if reverse:
        found = g.run("flip", [found, along], ty, x.dtype or "?")
    found = g.run(name, [found, along, exclusive], ty, x.dtype or "?")
    return g.run("flip", [found, along], ty, x.dtype or "?") if reverse else g.expr(found)
