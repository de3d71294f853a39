"""Reductions over axes, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..ir.expr import Call, Expr, TensorType, Type, int_imm
from .base import shape_of
from .elementwise import astype
from .kinds import Axes, Axis, DType, IllValued, ShapeLike
from .lowering import results_text
from .registry import CONSTRUCTORS, Constructor, Unsupported, attributes_of, operator
from .rules import (
    DtypeCheck,
    any_dtype,
    differ,
    like,
    need_floats,
    need_numbers,
    product,
    same_dim,
    shape_text,
)

__all__ = [
    "argmax",
    "argmin",
    "collapse_sum_like",
    "collapse_sum_to",
    "cumprod",
    "cumsum",
    "reduced",
    "reduction",
    "std",
    "variance",
]


def reduced(x: TensorType, axes: tuple[int, ...] | None, keepdims: bool) -> TensorType:
    """The type of a tensor without some axes, or with length 1 there."""
    if axes is None and not keepdims:
        return like(x, ())
    if x.ndim == -1:
        return like(x, None)
    gone = range(x.ndim) if axes is None else axes
    if x.dims is None and len(gone) < x.ndim:
        return like(x, None, ndim=x.ndim if keepdims else x.ndim - len(gone))
    one = int_imm(1)
    if x.dims is None:
        return like(x, (one,) * x.ndim if keepdims else ())
    if keepdims:
        return like(x, [one if i in gone else dim for i, dim in enumerate(x.dims)])
    return like(x, [dim for i, dim in enumerate(x.dims) if i not in gone])


def _reduced_axes(call: Call) -> list[Any]:
    x, axes = call.args[0], attributes_of(call)["axis"]
    return [x] if axes is None else [x, axes]


def reduction(name: str, check: DtypeCheck, doc: str) -> Constructor:
    """Register a reduction of one tensor over axes.

    Args:
        name: name of the operator, and of its formula for loops.
        check: checks the data type.
        doc: the beginning of the documentation.
    """

    def rule(x: TensorType, axis: Axes | None = None, keepdims: bool = False) -> Type:
        check(x=x)
        return reduced(x, axis, keepdims)

    rule.__doc__ = (
        f"{doc} over axes, all of them if none is given.\n\n"
        "The axes are not part of the result, or with `keepdims` have length 1 there."
    )
    return operator(name, takes=_reduced_axes, loops=name)(rule)


_REDUCTIONS: Final[dict[str, tuple[DtypeCheck, str]]] = {
    "max": (any_dtype, "The greatest element of x"),
    "mean": (need_floats, "The mean of x"),
    "min": (any_dtype, "The least element of x"),
    "prod": (need_numbers, "The product of x"),
    "sum": (need_numbers, "The sum of x"),
}

for _name, (_check, _doc) in _REDUCTIONS.items():
    reduction(_name, _check, _doc)


_NO_PAIRS: Final = Unsupported(
    "A reduction in a formula combines single values; this one needs pairs of value and index."
)


def _found_axis(call: Call) -> list[Any]:
    return [call.args[0], attributes_of(call)["axis"]]


@operator("argmax", loops=_NO_PAIRS, takes=_found_axis)
def argmax(x: TensorType, axis: Axis | None = None, keepdims: bool = False) -> Type:
    """The index, int64, of the first of the greatest elements along an axis; if none is given, the
    index among all elements in order."""
    return like(reduced(x, None if axis is None else (axis,), keepdims), dtype="int64")


@operator("argmin", loops=_NO_PAIRS, takes=_found_axis)
def argmin(x: TensorType, axis: Axis | None = None, keepdims: bool = False) -> Type:
    """The index, int64, of the first of the least elements; axes as of `argmax`."""
    return like(reduced(x, None if axis is None else (axis,), keepdims), dtype="int64")


_NO_COLLAPSE: Final = Unsupported("Its sums depend on which axes have length 1.")
_NO_SCANS: Final = Unsupported(
    "A formula computes each element by itself, which takes quadratic time for running sums."
)


def _scanned(call: Call) -> list[Any]:
    x, attrs = call.args[0], attributes_of(call)
    if attrs["dtype"] not in (None, x.ty.dtype):
        x = astype(x, attrs["dtype"])
    return [x, attrs["axis"], attrs["exclusive"]]


def _scan(data: TensorType, axis: int | None, dtype: str | None) -> Type:
    dtype = data.dtype if dtype is None else dtype
    if axis is not None:
        return like(data, dtype=dtype)
    if data.dims is None:
        return like(data, None, dtype=dtype, ndim=1)
    return like(data, [product(data.dims)], dtype=dtype)


@operator("cumsum", loops=_NO_SCANS, takes=_scanned)
def cumsum(
    data: TensorType, axis: Axis | None = None, dtype: DType | None = None, exclusive: bool = False
) -> Type:
    """The running sum along an axis; if none is given, of all elements in order, as a vector.

    With `exclusive`, an element is not part of its own sum.  The elements are converted to `dtype`
    first.
    """
    if dtype is None:
        need_numbers(data=data)
    return _scan(data, axis, dtype)


@operator("cumprod", loops=_NO_SCANS, takes=_scanned)
def cumprod(
    data: TensorType, axis: Axis | None = None, dtype: DType | None = None, exclusive: bool = False
) -> Type:
    """The running product, with the parameters of `cumsum`."""
    if dtype is None:
        need_numbers(data=data)
    return _scan(data, axis, dtype)


# Moments


def _squared_distance(call: Call) -> tuple[Expr, str | None]:
    """The mean square of the distance from the mean, and the data type if it is to be converted
    to: 16-bit floats are computed in float32."""
    x, axes, keepdims = call.args[0], call.attrs["axis"], call.attrs["keepdims"]
    narrow = x.ty.dtype if x.ty.dtype in ("float16", "bfloat16") else None
    if narrow is not None:
        x = astype(x, "float32")
    distance = CONSTRUCTORS["subtract"](x, CONSTRUCTORS["mean"](x, axes, True))
    return CONSTRUCTORS["mean"](CONSTRUCTORS["square"](distance), axes, keepdims), narrow


def _lower_variance(builder: Any, call: Call) -> Expr:
    found, narrow = _squared_distance(call)
    return found if narrow is None else astype(found, narrow)


def _lower_std(builder: Any, call: Call) -> Expr:
    found, narrow = _squared_distance(call)
    root: Expr = CONSTRUCTORS["sqrt"](found)
    return root if narrow is None else astype(root, narrow)


@operator("variance", lower=_lower_variance)
def variance(x: TensorType, axis: Axes | None = None, keepdims: bool = False) -> Type:
    """The mean square of the distance of x from its mean over axes, all of them if none is given.

    The axes are not part of the result, or with `keepdims` have length 1 there.
    """
    need_floats(x=x)
    return reduced(x, axis, keepdims)


@operator("std", lower=_lower_std)
def std(x: TensorType, axis: Axes | None = None, keepdims: bool = False) -> Type:
    """The standard deviation of x: the square root of `variance`."""
    need_floats(x=x)
    return reduced(x, axis, keepdims)


# Sums of what broadcasting has repeated


def _check_collapsed(
    data: TensorType, dims: Sequence[Expr] | None, ndim: int, is_strict: bool
) -> None:
    """Raise if a shape does not broadcast to that of data; if `is_strict`, also if it is not known
    whether it does."""
    if -1 not in (data.ndim, ndim) and ndim > data.ndim:
        raise IllValued(f"shape: expected at most {data.ndim} dimensions, got {ndim}")
    if data.dims is None or dims is None:
        return
    one = int_imm(1)
    for old, new in zip(reversed(data.dims), reversed(dims), strict=False):
        fits = same_dim if is_strict else lambda a, b: not differ(a, b)
        if not fits(new, one) and not fits(old, new):
            raise IllValued(
                f"shape: {shape_text(dims)} does not broadcast to {shape_text(data.dims)}: "
                f"{old} and {new}"
            )


@operator("collapse_sum_to", loops=_NO_COLLAPSE, takes=lambda call: call.args[:1])
def collapse_sum_to(data: TensorType, shape: ShapeLike) -> Type:
    """The sum of data over the axes that broadcasting a tensor of a shape to the shape of data
    would add or lengthen."""
    need_numbers(data=data)
    _check_collapsed(data, shape.ty.values, shape.ty.ndim, is_strict=True)
    return TensorType(shape, data.dtype, data.vdevice)


def _to_target(call: Call) -> tuple[str, list[Any]]:
    data, target = call.args
    return "collapse_sum_to", [data, shape_of(target), results_text(call)]


@operator(
    "collapse_sum_like",
    loops=_NO_COLLAPSE,
    kernel="collapse_sum_to",
    takes=lambda call: call.args[:1],
    returns=_to_target,
)
def collapse_sum_like(data: TensorType, collapse_target: TensorType) -> Type:
    """`collapse_sum_to` the shape of a tensor."""
    need_numbers(data=data)
    _check_collapsed(data, collapse_target.dims, collapse_target.ndim, is_strict=False)
    target = collapse_target
    return TensorType.of(target.shape, data.dtype, data.vdevice, target.ndim)
