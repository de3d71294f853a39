"""Sums and other reductions along axes, and running ones."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np

from ....dtypes import as_dtype
from ....ir import Constant
from ...common.emitter import Emitter, Problem
from ..checked import index_within
from ..forms import (
    Tensor,
    axes_of,
    axis_of,
    cast,
    dims_of,
    dtype_of,
    each_of,
    floating,
    is_bool,
    is_float,
    is_tensor,
    items,
    known,
    length,
    number,
    numel,
    promoted,
    rank_of,
    reshaped,
    same_dim,
    sliced,
    tensor_type,
)
from ..registry import aten
from .shapes import counted

__all__ = ["limit_of", "reduced"]


def reduced(c: Emitter, name: str, x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    """A reduction of relaxvm; a tensor without axes stays as it is, or is taken as a vector."""
    if rank_of(x) == 0:
        return reshaped(c, c.op(name, reshaped(c, x, [1]), [0], False), [])
    found: Tensor = c.op(name, x, axes, keepdim)
    return found


def _wide(x: Tensor, dtype: str | None) -> str:
    """The data type of sums: int64 for integers and bools."""
    return dtype or (dtype_of(x) if is_float(dtype_of(x)) else "int64")


@aten("sum", "sum.dim_IntList")
def sum_(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Tensor:
    """R.sum."""
    return reduced(c, "sum", cast(c, self, _wide(self, dtype)), axes_of(self, dim), keepdim)


@aten("nansum")
def nansum(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Tensor:
    """R.sum, without NaN."""
    return sum_(c, _zero_for_nan(c, self), dim, keepdim, dtype)


def _zero_for_nan(c: Emitter, x: Tensor) -> Tensor:
    if not is_float(dtype_of(x)):
        return x
    return c.op("where", c.op("isnan", x), number(c, 0, dtype_of(x)), x)


@aten("mean", "mean.dim")
def mean(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Tensor:
    """R.mean."""
    return reduced(c, "mean", cast(c, self, dtype), axes_of(self, dim), keepdim)


@aten("nanmean")
def nanmean(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Tensor:
    """The mean of what is not NaN."""
    x = cast(c, self, dtype)
    axes = axes_of(x, dim)
    total = reduced(c, "sum", _zero_for_nan(c, x), axes, keepdim)
    is_number = cast(c, c.op("logical_not", c.op("isnan", x)), dtype_of(x))
    return c.op("divide", total, reduced(c, "sum", is_number, axes, keepdim))


@aten("prod", "prod.dim_int")
def prod(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, dtype: str | None = None
) -> Tensor:
    """R.prod."""
    if dtype == "bool":
        return cast(c, prod(c, cast(c, self, "bool"), dim, keepdim, "int64"), "bool")
    return reduced(c, "prod", cast(c, self, _wide(self, dtype)), axes_of(self, dim), keepdim)


def limit_of(dtype: str, least: bool) -> Any:
    """The least or the greatest number of a data type."""
    if dtype == "bool":
        return not least
    if is_float(dtype):
        return -math.inf if least else math.inf
    info = np.iinfo(as_dtype(dtype))
    return int(info.min if least else info.max)


def _extreme(c: Emitter, name: str, x: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if not is_bool(dtype_of(x)):
        return reduced(c, name, x, axes_of(x, dim), keepdim)
    found = reduced(c, name, cast(c, x, "uint8"), axes_of(x, dim), keepdim)
    return cast(c, found, "bool")


@each_of("amax", "amin")
def extreme_of(
    name: str, c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """R.max or R.min."""
    return _extreme(c, name[1:], self, dim, keepdim)


@aten("aminmax")
def aminmax(c: Emitter, self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """R.min and R.max."""
    return tuple([_extreme(c, name, self, dim, keepdim) for name in ("min", "max")])


@each_of("max", "min")
def extreme(name: str, c: Emitter, self: Tensor) -> Tensor:
    """R.max or R.min of all elements."""
    return _extreme(c, name, self, None, False)


def _numbers(c: Emitter, x: Tensor) -> Tensor:
    return cast(c, x, "uint8") if is_bool(dtype_of(x)) else x


@each_of("max.dim", "min.dim")
def extreme_with_index(name: str, c: Emitter, self: Tensor, dim: int, keepdim: bool = False) -> Any:
    """R.max and R.argmax, or R.min and R.argmin."""
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis = axis_of(self, dim)
    found = _extreme(c, name, self, axis, keepdim)
    return found, c.op(f"arg{name}", _numbers(c, self), axis, keepdim)


@each_of("argmax", "argmin")
def arg_extreme(
    name: str, c: Emitter, self: Tensor, dim: int | None = None, keepdim: bool = False
) -> Tensor:
    """R.argmax or R.argmin."""
    if rank_of(self) == 0:
        return number(c, 0, "int64")
    x = _numbers(c, self)
    if dim is None:
        found = c.op(name, reshaped(c, x, [-1]), 0, False)
        return reshaped(c, found, [1] * rank_of(x)) if keepdim else found
    return c.op(name, x, axis_of(x, dim), keepdim)


@each_of("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def any_or_all(
    name: str, c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False
) -> Tensor:
    """Whether any element, or each, is not 0."""
    reduction = "max" if name == "any" else "min"
    is_set = cast(c, cast(c, self, "bool"), "uint8")
    axes = axes_of(self, dim)
    if dim is not None and dim == []:
        axes = []
    dims = dims_of(self)
    if any(isinstance(dims[axis], int) and dims[axis] == 0 for axis in axes):
        kept = [1 if i in axes else d for i, d in enumerate(dims) if keepdim or i not in axes]
        found: Tensor = c.op("full", kept, number(c, name == "all", "bool"), "bool")
    elif rank_of(self) and not axes:
        found = is_set
    else:
        found = reduced(c, reduction, is_set, axes, keepdim)
    return cast(c, found, "uint8" if dtype_of(self) == "uint8" else "bool")


@aten("_is_all_true")
def is_all_true(c: Emitter, self: Tensor) -> Tensor:
    """Whether each element is true."""
    return any_or_all("all", c, self)


@aten("_is_any_true")
def is_any_true(c: Emitter, self: Tensor) -> Tensor:
    """Whether any element is true."""
    return any_or_all("any", c, self)


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(c: Emitter, self: Tensor, dim: Any = None) -> Tensor:
    """How many elements are not 0."""
    return sum_(c, cast(c, self, "bool"), dim)


# Variances


def _count(x: Tensor, axes: list[int]) -> Any:
    dims = dims_of(x)
    return numel([dims[axis] for axis in axes])


def _variance(c: Emitter, x: Tensor, axes: list[int], correction: float, keepdim: bool) -> Any:
    dtype = dtype_of(x)
    middle = reduced(c, "mean", x, axes, True) if rank_of(x) else x
    apart = c.op("subtract", x, middle)
    total = reduced(c, "sum", c.op("multiply", apart, apart), axes, keepdim)
    count = _count(x, axes)
    if isinstance(count, int):
        below = max(count - correction, 0)
        with np.errstate(all="ignore"):
            return c.op("divide", total, Constant(np.array(below, as_dtype(dtype))))
    rest = c.op("subtract", number(c, count, dtype), number(c, correction, dtype))
    return c.op("divide", total, c.op("maximum", rest, number(c, 0, dtype)))


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


@aten("var", "var.dim", "var.correction")
def var(
    c: Emitter, self: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    correction: Any = None,
) -> Tensor:  # fmt: skip
    """The sum of squares of distances from the mean, divided by their number - correction."""
    by = _correction(unbiased, correction)
    found = _variance(c, _in_float32(c, self), axes_of(self, dim), by, keepdim)
    return cast(c, found, dtype_of(self))


def _in_float32(c: Emitter, x: Tensor) -> Tensor:
    """Numbers of 16 bits in float32, as torch computes what has several steps: float16 has no
    count above 65504, bfloat16 few above 256."""
    return cast(c, x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x


@aten("std", "std.dim", "std.correction")
def std(
    c: Emitter, self: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    correction: Any = None,
) -> Tensor:  # fmt: skip
    """The square root of the variance."""
    found = c.op("sqrt", var(c, _in_float32(c, self), dim, unbiased, keepdim, correction))
    return cast(c, found, dtype_of(self))


@aten("var_mean", "var_mean.dim", "var_mean.correction")
def var_mean(
    c: Emitter, self: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    correction: Any = None,
) -> Any:  # fmt: skip
    """Variance and mean."""
    return var(c, self, dim, unbiased, keepdim, correction), mean(c, self, dim, keepdim)


@aten("std_mean", "std_mean.dim", "std_mean.correction")
def std_mean(
    c: Emitter, self: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False,
    correction: Any = None,
) -> Any:  # fmt: skip
    """Standard deviation and mean."""
    return std(c, self, dim, unbiased, keepdim, correction), mean(c, self, dim, keepdim)


# Norms


def _norm(c: Emitter, x: Tensor, p: float, axes: list[int], keepdim: bool) -> Tensor:
    return cast(c, _norm_of(c, _in_float32(c, x), p, axes, keepdim), dtype_of(x))


def _norm_of(c: Emitter, x: Tensor, p: float, axes: list[int], keepdim: bool) -> Tensor:
    dtype = dtype_of(x)
    size = c.op("abs", x)
    if p == math.inf or p == -math.inf:
        return reduced(c, "max" if p > 0 else "min", size, axes, keepdim)
    if p == 0:
        is_set = cast(c, c.op("not_equal", x, number(c, 0, dtype)), dtype)
        return reduced(c, "sum", is_set, axes, keepdim)
    if p == 1:
        return reduced(c, "sum", size, axes, keepdim)
    if p == 2:
        return c.op("sqrt", reduced(c, "sum", c.op("multiply", x, x), axes, keepdim))
    powers = c.op("power", size, number(c, p, dtype))
    total = reduced(c, "sum", powers, axes, keepdim)
    return c.op("power", total, number(c, 1 / p, dtype))


@aten("linalg_vector_norm")
def vector_norm(
    c: Emitter, self: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False,  # noqa: A002
    dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """(The sum of |x| ** ord) ** (1 / ord)."""
    return _norm(c, cast(c, self, dtype), float(ord), axes_of(self, dim), keepdim)


@aten("norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype",
      "frobenius_norm.dim")  # fmt: skip
def norm(
    c: Emitter, self: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False,
    dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """(The sum of |x| ** p) ** (1 / p)."""
    return vector_norm(c, self, 2 if p is None else p, dim, keepdim, dtype)


@aten("renorm")
def renorm(c: Emitter, self: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Slices along an axis, scaled down to norms of at most maxnorm."""
    dtype = dtype_of(self)
    axes = [i for i in range(rank_of(self)) if i != axis_of(self, dim)]
    size = _norm(c, self, float(p), axes, True)
    bound = number(c, maxnorm, dtype)
    factor = c.op("divide", bound, c.op("add", size, number(c, 1e-7, dtype)))
    is_large = c.op("greater", size, bound)
    return c.op("multiply", self, c.op("where", is_large, factor, number(c, 1, dtype)))


@aten("dist")
def dist(c: Emitter, self: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """The norm of a difference."""
    a, b = promoted(c, self, other)
    apart = c.op("subtract", a, b)
    return _norm(c, apart, float(p), list(range(rank_of(apart))), False)


@aten("logsumexp", "special_logsumexp")
def logsumexp(c: Emitter, self: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The logarithm of the sum of exp(x)."""
    x = cast(c, self, floating(dtype_of(self)))
    dtype, axes = dtype_of(x), axes_of(x, dim)
    if rank_of(x) == 0:
        return x
    top = c.op("max", x, axes, True)
    finite = c.op("where", c.op("isfinite", top), top, number(c, 0, dtype))
    total = c.op("sum", c.op("exp", c.op("subtract", x, finite)), axes, True)
    found = c.op("add", c.op("log", total), finite)
    return found if keepdim else c.op("sum", found, axes, False)  # of one element each


# Medians and others that order elements


@each_of("median", "nanmedian")
def median(name: str, c: Emitter, self: Tensor) -> Tensor:
    """R.median of all elements."""
    if rank_of(self) == 0:
        return self
    flat = reshaped(c, self, [-1])
    return _median(name, c, flat, 0, False)[0]


@each_of("median.dim", "nanmedian.dim")
def median_along(name: str, c: Emitter, self: Tensor, dim: int, keepdim: bool = False) -> Any:
    """R.median along an axis, with indices."""
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    return _median(name, c, self, axis_of(self, dim), keepdim)


def _median(name: str, c: Emitter, x: Tensor, axis: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    if name != "nanmedian" or not is_float(dtype_of(x)):
        values, indices = items(c, c.op("median", x, axis, keepdim))
        return values, indices
    # NaN is sorted to the end, and the median is in the middle of what is before it.
    order = c.op("argsort", x, axis, False, "int64")
    sorted_ = c.op("gather_elements", x, order, axis)
    is_number = cast(c, c.op("logical_not", c.op("isnan", x)), "int64")
    count = c.op("sum", is_number, [axis], True)
    one = number(c, 1, "int64")
    middle = c.op("floor_divide", c.op("maximum", c.op("subtract", count, one),
                                       number(c, 0, "int64")), number(c, 2, "int64"))  # fmt: skip
    values = c.op("gather_elements", sorted_, middle, axis)
    indices = c.op("gather_elements", order, middle, axis)
    if keepdim:
        return values, indices
    return c.op("squeeze", values, [axis]), c.op("squeeze", indices, [axis])


@aten("kthvalue")
def kthvalue(c: Emitter, self: Tensor, k: Any, dim: int = -1, keepdim: bool = False) -> Any:
    """The k-th least element along an axis, and its index."""
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis = axis_of(self, dim)
    order = c.op("argsort", self, axis, False, "int64")  # of equal elements any may be the one
    index = c.op("take", order, number(c, k - 1, "int64"), axis)
    wide = c.op("expand_dims", index, axis)
    value = c.op("gather_elements", self, wide, axis)
    return (value, wide) if keepdim else (c.op("squeeze", value, [axis]), index)


@aten("mode")
def mode(c: Emitter, self: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The least of the most frequent elements along an axis, and its last index."""
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis = axis_of(self, dim)
    last = rank_of(self) - 1
    x = _moved(c, self, axis, last)
    size = dims_of(x)[last]
    values = c.op("sort", x, last)
    equal = c.op("equal", c.op("expand_dims", values, last + 1), c.op("expand_dims", values, last))
    counts = c.op("sum", cast(c, equal, "int64"), [last + 1], False)
    best = c.op("expand_dims", c.op("argmax", counts, last, False), last)
    value = c.op("gather_elements", values, best, last)
    is_value = cast(c, c.op("equal", x, value), "int64")
    places = c.op("arange", 1, size + 1, 1, "int64")
    index = c.op("argmax", c.op("multiply", is_value, places), last, True)
    found = [_moved(c, value, last, axis), _moved(c, index, last, axis)]
    return tuple(found if keepdim else [c.op("squeeze", each, [axis]) for each in found])


def _moved(c: Emitter, x: Tensor, source: int, target: int) -> Tensor:
    if source == target:
        return x
    order = [i for i in range(rank_of(x)) if i != source]
    order.insert(target, source)
    found: Tensor = c.op("permute_dims", x, order)
    return found


_INTERPOLATIONS: Final = ("linear", "lower", "higher", "midpoint", "nearest")


@each_of("quantile", "quantile.scalar", "nanquantile", "nanquantile.scalar")
def quantile(
    name: str, c: Emitter, self: Tensor, q: Any, dim: int | None = None, keepdim: bool = False,
    interpolation: str = "linear",
) -> Tensor:  # fmt: skip
    """Elements at parts of the sorted ones along an axis."""
    if interpolation not in _INTERPOLATIONS:
        raise Problem(f"interpolation: {interpolation!r} is not supported")
    rank, dtype = rank_of(self), dtype_of(self)
    if dim is None or rank == 0:
        x, axis = reshaped(c, self, [-1]), 0
    else:
        x, axis = self, axis_of(self, dim)
    size = dims_of(x)[axis]
    ordered = _moved(c, c.op("sort", x, axis), axis, 0)
    parts: Any = q if is_tensor(q) else number(c, q, dtype)
    if name == "nanquantile":
        found = _quantile_of_numbers(c, ordered, parts, interpolation)
        return _with_axis_of_length_one(c, found, rank_of(parts), dim, axis, rank, keepdim)
    place = c.op("multiply", parts, number(c, size - 1, dtype))
    if interpolation == "nearest":
        place = c.op("round", place)
    low, high = c.op("floor", place), c.op("ceil", place)
    one = rank_of(place)
    rest = rank_of(ordered) - 1
    def at(index: Tensor) -> Tensor:
        return c.op("take", ordered, cast(c, index, "int64"), 0)
    if interpolation == "lower":
        found = at(low)
    elif interpolation == "higher":
        found = at(high)
    else:
        a, b = at(low), at(high)
        weight: Tensor = number(c, 0.5, dtype)
        if interpolation != "midpoint":
            weight = reshaped(c, c.op("subtract", place, low), [*dims_of(place), *[1] * rest])
        found = c.op("add", a, c.op("multiply", weight, c.op("subtract", b, a)))
    is_nan = reduced(c, "max", cast(c, c.op("isnan", ordered), "uint8"), [0], False)
    found = c.op("where", cast(c, is_nan, "bool"), number(c, math.nan, dtype), found)
    return _with_axis_of_length_one(c, found, one, dim, axis, rank, keepdim)


def _with_axis_of_length_one(
    c: Emitter, found: Tensor, first: int, dim: int | None, axis: int, rank: int, keepdim: bool
) -> Tensor:
    """Quantiles, with the axis along which they are, if it is to be kept, behind `first` others."""
    if not keepdim:
        return found
    dims = dims_of(found)
    if dim is None or rank == 0:
        return reshaped(c, found, [*dims[:first], *[1] * rank])
    dims.insert(first + axis, 1)
    return reshaped(c, found, dims)


def _quantile_of_numbers(c: Emitter, ordered: Tensor, parts: Tensor, interpolation: str) -> Tensor:
    """Quantiles along the first axis of what is not NaN, which sorting puts first; each column has
    a number of these of its own."""
    dtype, rest = dtype_of(ordered), dims_of(ordered)[1:]
    is_number = cast(c, c.op("logical_not", c.op("isnan", ordered)), "int64")
    count = c.op("sum", is_number, [0], True)
    one = number(c, 1, "int64")
    last = c.op("maximum", c.op("subtract", count, one), number(c, 0, "int64"))
    rows = reshaped(c, parts, [numel(dims_of(parts)), *[1] * len(rest)])
    place = c.op("multiply", rows, cast(c, last, dtype))
    if interpolation == "nearest":
        place = c.op("round", place)
    low, high = (c.op("gather_elements", ordered, cast(c, c.op(name, place), "int64"), 0)
                 for name in ("floor", "ceil"))  # fmt: skip
    weight: Tensor = number(c, 0.5, dtype)
    if interpolation in ("linear", "nearest"):
        weight = c.op("subtract", place, c.op("floor", place))
    elif interpolation != "midpoint":
        weight = number(c, float(interpolation == "higher"), dtype)
    apart = c.op("multiply", weight, c.op("subtract", high, low))
    return reshaped(c, c.op("add", low, apart), [*dims_of(parts), *rest])


# Running sums and others


def _running(c: Emitter, name: str, x: Tensor, dim: int, dtype: str | None) -> Tensor:
    x = cast(c, x, _wide(x, dtype))
    if rank_of(x) == 0:
        return x
    return cast(c, c.op(name, _in_float32(c, x), axis_of(x, dim)), dtype_of(x))


@each_of("cumsum", "cumprod")
def cumulative(name: str, c: Emitter, self: Tensor, dim: int, dtype: str | None = None) -> Tensor:
    """R.cumsum or R.cumprod."""
    return _running(c, name, self, dim, dtype)


@aten("logcumsumexp")
def logcumsumexp(c: Emitter, self: Tensor, dim: int) -> Tensor:
    """The logarithm of the running sum of exp(x), in float64, from the greatest element."""
    dtype = dtype_of(self)
    if rank_of(self) == 0:
        return self
    axis = axis_of(self, dim)
    x = cast(c, self, "float64")
    top = c.op("max", x, [axis], True)
    top = c.op("where", c.op("isfinite", top), top, number(c, 0, "float64"))
    total = c.op("cumsum", c.op("exp", c.op("subtract", x, top)), axis)
    return cast(c, c.op("add", c.op("log", total), top), dtype)


@each_of("cummax", "cummin")
def running_extreme(name: str, c: Emitter, self: Tensor, dim: int) -> Any:
    """The greatest or least element so far, and its last index."""
    which = name[3:]
    if rank_of(self) == 0:
        return self, number(c, 0, "int64")
    axis, last = axis_of(self, dim), rank_of(self) - 1
    x = _moved(c, _numbers(c, self), axis, last)
    size = dims_of(x)[last]
    # A matrix for each row: element j counts for place i if it is not after it.
    dtype = dtype_of(x)
    neutral = number(c, limit_of(dtype, which == "max"), dtype)
    places = c.op("arange", 0, size, 1, "int64")
    before = c.op("less_equal", c.op("expand_dims", places, 0), c.op("expand_dims", places, 1))
    pairs = c.op("where", before, c.op("expand_dims", x, last), neutral)
    values: Tensor = c.op(which, pairs, [last + 1], False)
    same = c.op("equal", c.op("expand_dims", x, last), c.op("expand_dims", values, last + 1))
    if is_float(dtype):
        nan = c.op("logical_and", c.op("isnan", c.op("expand_dims", x, last)),
                   c.op("isnan", c.op("expand_dims", values, last + 1)))  # fmt: skip
        same = c.op("logical_or", same, nan)
    chosen = cast(c, c.op("logical_and", same, before), "int64")
    ranks = c.op("add", places, number(c, 1, "int64"))
    indices = c.op("argmax", c.op("multiply", chosen, ranks), last + 1, False)
    values = cast(c, _moved(c, values, last, axis), dtype_of(self))
    return values, _moved(c, indices, last, axis)


@aten("diff")
def diff(
    c: Emitter, self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Differences of neighbours along an axis, n times."""
    if n == 0:  # torch joins nothing then
        return self
    axis = axis_of(self, dim)
    parts = [c.expr(each) for each in (prepend, self, append) if each is not None]
    x = c.op("concat", parts, axis) if len(parts) > 1 else self
    for _ in range(n):
        size = dims_of(x)[axis]
        if isinstance(size, int) and size <= 1:
            return c.op("strided_slice", x, [axis], [0], [0])
        after = c.op("strided_slice", x, [axis], [1], [size])
        before = c.op("strided_slice", x, [axis], [0], [size - 1])
        is_flag = is_bool(dtype_of(x))
        x = c.op("logical_xor" if is_flag else "subtract", after, before)
    return x


@aten("trapezoid.x", "trapezoid.dx", "trapz.x", "trapz.dx")
def trapezoid(c: Emitter, y: Tensor, x: Tensor | None = None, dx: Any = 1, dim: int = -1) -> Tensor:
    """The sum of areas below lines between neighbours."""
    axis = axis_of(y, dim)
    return reduced(c, "sum", _trapezoids(c, y, x, dx, axis), [axis], False)


def _trapezoids(c: Emitter, y: Tensor, x: Tensor | None, dx: Any, axis: int) -> Tensor:
    """The areas below lines between neighbours."""
    size = dims_of(y)[axis]
    dtype = floating(dtype_of(y))
    y = cast(c, y, dtype)
    after = c.op("strided_slice", y, [axis], [1], [size])
    before = c.op("strided_slice", y, [axis], [0], [size - 1])
    middle = c.op("multiply", c.op("add", after, before), number(c, 0.5, dtype))
    if x is None:
        return c.op("multiply", middle, number(c, dx, dtype))
    at = axis if rank_of(x) == rank_of(y) else 0
    width = diff(c, cast(c, x, dtype), 1, at)
    if rank_of(x) != rank_of(y):
        shape = [1] * rank_of(y)
        shape[axis] = dims_of(width)[0]
        width = reshaped(c, width, shape)
    return c.op("multiply", middle, width)


@aten("cumulative_trapezoid.x", "cumulative_trapezoid.dx")
def cumulative_trapezoid(
    c: Emitter, y: Tensor, x: Tensor | None = None, dx: Any = 1, dim: int = -1
) -> Tensor:
    """Running sums of areas below lines between neighbours."""
    axis = axis_of(y, dim)
    return c.op("cumsum", _trapezoids(c, y, x, dx, axis), axis)


@aten("gradient.scalarint", "gradient.scalararray", "gradient.array", "gradient.scalarrayint",
      "gradient.scalarrayarray", "gradient.tensorarrayint", "gradient.tensorarray")  # fmt: skip
def gradient(
    c: Emitter, self: Tensor, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> list[Tensor]:
    """Slopes along axes: in the middle of neighbours, and at the edges of one side."""
    axes = axes_of(self, None if dim is None else dim if isinstance(dim, list) else [dim])
    spaces = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    return [
        _slopes(c, self, 1 if space is None else space, axis, edge_order)
        for axis, space in zip(axes, spaces, strict=True)
    ]


def _slopes(c: Emitter, x: Tensor, space: Any, axis: int, edge_order: int) -> Tensor:
    dtype = floating(dtype_of(x))
    x = cast(c, x, dtype)
    size = dims_of(x)[axis]
    places = cast(c, space, dtype) if is_tensor(space) else c.op(
        "multiply", cast(c, c.op("arange", 0, size, 1, "int64"), dtype), number(c, space, dtype)
    )  # fmt: skip
    shape = [1] * rank_of(x)
    shape[axis] = size
    width = diff(c, reshaped(c, places, shape), 1, axis)
    slope = c.op("divide", diff(c, x, 1, axis), width)
    last = length(size - 1)
    before, after = sliced(c, slope, axis, 0, length(last - 1)), sliced(c, slope, axis, 1, last)
    near, far = sliced(c, width, axis, 0, length(last - 1)), sliced(c, width, axis, 1, last)
    total = c.op("add", near, far)
    middle = c.op("divide", c.op("add", c.op("multiply", before, far),
                                 c.op("multiply", after, near)), total)  # fmt: skip
    edges = [sliced(c, slope, axis, 0, 1), sliced(c, slope, axis, length(last - 1), last)]
    if edge_order == 2:  # of the parabola through three points
        bent = c.op("divide", c.op("subtract", after, before), total)
        ends = (0, 1), (length(last - 2), length(last - 1))
        for i, (width_of, sign) in enumerate(((near, -1.0), (far, 1.0))):
            a, b = (sliced(c, each, axis, *ends[i]) for each in (width_of, bent))
            step = c.op("multiply", c.op("multiply", a, b), number(c, sign, dtype))
            edges[i] = c.op("add", edges[i], step)
    found: Tensor = c.op("concat", [edges[0], middle, edges[1]], axis)
    return found


@aten("bincount")
def bincount(
    c: Emitter, self: Tensor, weights: Tensor | None = None, minlength: Any = 0
) -> Tensor:
    """How often each number from 0 on is there, or the sum of its weights."""
    places = cast(c, self, "int64")
    dtype = "int64" if weights is None else dtype_of(weights)
    if weights is not None and dtype != "float32":
        dtype = "float64"
    known_size = dims_of(self)[0]
    if isinstance(known_size, int) and known_size == 0:
        return c.op("zeros", [minlength], "int64" if weights is None else dtype)
    places = index_within(c, places, None, "bincount")
    most = c.op("add", c.op("max", places, [0], False), number(c, 1, "int64"))
    size = counted(c, c.op("maximum", most, number(c, minlength, "int64")))
    each = c.op("ones", dims_of(self), dtype) if weights is None else cast(c, weights, dtype)
    return c.op("scatter_elements", c.op("zeros", [size], dtype), places, each, 0, "add")


@aten("combinations")
def combinations(c: Emitter, self: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """R.take of all choices of r elements, in order."""
    size = known(dims_of(self)[0], "combinations")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array([*choose(range(size), r)], np.int64).reshape(-1, r)
    return c.op("take", self, c.expr(rows), 0)


@aten("histogram.bin_ct")
def histogram(
    c: Emitter, self: Tensor, bins: int = 100, *, range: Any = None,  # noqa: A002
    weight: Tensor | None = None, density: bool = False,
) -> Any:  # fmt: skip
    """How many elements are in each of several parts of equal width, and their bounds."""
    dtype = dtype_of(self)
    x = cast(c, reshaped(c, self, [-1]), "float64")
    first, end = range or (0, 0)
    low, high = _bounds(c, x, first, end, 0.5)
    place, inside = _parts_of(c, x, low, high, bins)
    amounts = cast(c, inside, "float64")
    if weight is not None:
        amounts = c.op("multiply", amounts, cast(c, reshaped(c, weight, [-1]), "float64"))
    zeros = c.op("zeros", [bins], "float64")
    found = c.op("scatter_elements", zeros, place, amounts, 0, "add")
    width = c.op("divide", c.op("subtract", high, low), number(c, bins, "float64"))
    if density:
        total = c.op("multiply", c.op("sum", found, [0], False), width)
        found = c.op("divide", found, total)
    steps = c.expr(np.arange(bins + 1) / bins)
    edges = c.op("add", low, c.op("multiply", steps, c.op("subtract", high, low)))
    return cast(c, found, dtype), cast(c, edges, dtype)


@aten("histogramdd", "histogramdd.int_bins", "histogramdd.TensorList_bins")
def histogramdd(
    c: Emitter, self: Tensor, bins: Any, range: Any = None, weight: Tensor | None = None,  # noqa: A002
    density: bool = False,
) -> Any:  # fmt: skip
    """How many points are in each of the boxes between bounds along each axis, and the bounds."""
    dtype = dtype_of(self)
    axes = known(dims_of(self)[-1], "histogramdd")
    points = reshaped(c, self, [-1, axes])
    bins = [bins] * axes if isinstance(bins, int) else bins
    all_edges, counts = [], []
    place: Any = None
    inside: Any = None
    for axis, each in enumerate(bins):
        x = reshaped(c, sliced(c, points, 1, axis, axis + 1), [-1])
        edges = each if is_tensor(each) else cast(
            c, _edges(c, x, range and range[2 * axis : 2 * axis + 2], each), dtype
        )  # fmt: skip
        count = known(dims_of(edges)[0], "histogramdd") - 1
        which = c.op("subtract", c.op("bucketize", x, edges, False, True), number(c, 1, "int64"))
        last = c.op("take", edges, c.expr(np.array(count)), 0)
        is_in = c.op("logical_and", c.op("greater_equal", which, number(c, 0, "int64")),
                     c.op("less_equal", x, last))  # fmt: skip
        which = c.op("clip", which, 0, count - 1)
        place = which if place is None else c.op(
            "add", c.op("multiply", place, number(c, count, "int64")), which)  # fmt: skip
        inside = is_in if inside is None else c.op("logical_and", inside, is_in)
        all_edges.append(edges)
        counts.append(count)
    amounts = cast(c, inside, dtype)
    if weight is not None:
        amounts = c.op("multiply", amounts, cast(c, reshaped(c, weight, [-1]), dtype))
    zeros = c.op("zeros", [math.prod(counts)], dtype)
    found = reshaped(c, c.op("scatter_elements", zeros, place, amounts, 0, "add"), counts)
    if density:
        found = c.op("divide", found, c.op("sum", found, None, False))
        for axis, edges in enumerate(all_edges):
            width = c.op("subtract", sliced(c, edges, 0, 1, counts[axis] + 1),
                         sliced(c, edges, 0, 0, counts[axis]))  # fmt: skip
            found = c.op("divide", found, reshaped(
                c, width, [-1 if i == axis else 1 for i, _ in enumerate(counts)]))  # fmt: skip
    return found, *all_edges


def _edges(c: Emitter, x: Tensor, bounds: Any, bins: int) -> Tensor:
    """The bounds of parts of equal width."""
    if not bounds and same_dim(dims_of(x)[0], 0):
        bounds = (0, 1)
    low, high = bounds or (0, 0)
    first, end = (
        _bounds(c, cast(c, x, "float64"), 0, 0, 0.5) if low == high == 0 else
        (number(c, low, "float64"), number(c, high, "float64"))
    )  # fmt: skip
    steps = c.expr(np.arange(bins + 1) / bins)
    return c.op("add", first, c.op("multiply", steps, c.op("subtract", end, first)))


@aten("histc")
def histc(c: Emitter, self: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:  # noqa: A002
    """How many elements are in each of several parts of equal width between min and max."""
    dtype = dtype_of(self)
    x = cast(c, reshaped(c, self, [-1]), "float64")
    place, inside = _parts_of(c, x, *_bounds(c, x, min, max, 1), bins)
    zeros = c.op("zeros", [bins], dtype)
    return c.op("scatter_elements", zeros, place, cast(c, inside, dtype), 0, "add")


def _bounds(c: Emitter, x: Tensor, low: Any, high: Any, apart: float) -> tuple[Tensor, Tensor]:
    """Bounds, or the least and the greatest element if they are equal; those moved apart if all
    elements are equal."""
    if low == high == 0 and same_dim(dims_of(x)[0], 0):
        high = 1  # of nothing
    if low != high:
        return number(c, low, "float64"), number(c, high, "float64")
    least, most = reduced(c, "min", x, [0], False), reduced(c, "max", x, [0], False)
    is_one = c.op("equal", least, most)
    one = number(c, apart, "float64")
    return (c.op("where", is_one, c.op("subtract", least, one), least),
            c.op("where", is_one, c.op("add", most, one), most))  # fmt: skip


def _parts_of(
    c: Emitter, x: Tensor, low: Tensor, high: Tensor, bins: int
) -> tuple[Tensor, Tensor]:
    """The part that each element is in, and whether it is within the bounds."""
    part = c.op("divide", c.op("multiply", c.op("subtract", x, low), number(c, bins, "float64")),
                c.op("subtract", high, low))  # fmt: skip
    place = cast(c, c.op("clip", c.op("floor", part), 0, bins - 1), "int64")
    return place, c.op("logical_and", c.op("greater_equal", x, low), c.op("less_equal", x, high))


# By kernels


@aten("segment_reduce")
def segment_reduce(
    c: Emitter, data: Tensor, reduce: str, lengths: Tensor | None = None,
    indices: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0,
    unsafe: bool = False, initial: Any = None,
) -> Tensor:  # fmt: skip
    """The sum, mean, product, greatest or least element of each of several segments."""
    if indices is not None:
        raise Problem("indices: expected lengths or offsets of segments")
    if offsets is not None:
        last = rank_of(offsets) - 1
        count = dims_of(offsets)[last]
        lengths = c.op("subtract", sliced(c, offsets, last, 1, count),
                       sliced(c, offsets, last, 0, count - 1))  # fmt: skip
    if lengths is None:
        raise Problem("expected lengths or offsets of segments")
    dims = [*dims_of(lengths), *dims_of(data)[axis + 1 :]]
    dtype = dtype_of(data)
    given = [c.expr(data), c.expr(lengths), reduce, initial]
    return c.run("segment_reduce", given, tensor_type(dims, dtype), dtype)


@aten("hash_tensor")
def hash_tensor(
    c: Emitter, self: Tensor, dim: Any = None, keepdim: bool = False, mode: int = 0
) -> Tensor:
    """The exclusive or of the bits of elements, as uint64."""
    if mode != 0:
        raise Problem(f"mode: expected 0, got {mode}")
    x = reshaped(c, self, [1]) if rank_of(self) == 0 else self
    axes = list(range(rank_of(x))) if not dim else [axis_of(x, each) for each in dim]
    dims = [1 if i in axes else each for i, each in enumerate(dims_of(x))]
    kept = [each for i, each in enumerate(dims) if keepdim or i not in axes]
    found = c.run("xor_sum", [c.expr(x), axes, keepdim], tensor_type(kept, "uint64"), "uint64")
    return reshaped(c, found, []) if rank_of(self) == 0 else found
