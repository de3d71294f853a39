"""Formulas of Relax operators as tensor expressions, for `relaxvm.transform.LegalizeToLoops`.

An operator's registration names its formula (`relaxvm.op.registry.operator`), and `formula_named`
finds it: a formula of this module, or a scalar function of `relaxvm.tir`, element by element.

A formula takes the operands as te tensors, shapes as lists of scalars, and the attributes by name.
It returns what the operator's kernel returns, NaN for NaN included, up to rounding.  16-bit floats
are computed in float32, sums of them to the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..aliases import attribute
from ..ir import prim
from ..ir.arith import simplify
from ..ir.expr import Expr
from ..ir.prim import as_scalar
from ..op.create import arange_length
from ..op.index import slice_of
from ..op.registry import Loops
from ..tir import intrinsics
from ..tir.intrinsics import INTRINSICS
from . import gather, images, layout
from . import tensor as te
from .tensor import Tensor, compute
from .topi import arrays, nn
from .topi import basic as topi

__all__ = ["BOOLS", "FLOATS", "INTEGERS", "NUMBERS", "formula_named"]

FLOATS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
BOOLS: Final = frozenset({"bool"})
NUMBERS: Final = FLOATS | INTEGERS

_SIGNED: Final = frozenset({"int8", "int16", "int32", "int64"})

_SHORT: Final = ("float16", "bfloat16")

Formula = Callable[..., Any]


def _elementwise(formula: Callable[[Expr], Expr]) -> Formula:
    def make(x: Tensor) -> Tensor:
        return compute(x.shape, lambda *i: formula(x[i]), "compute")

    return make


def _in_float32(formula: Formula) -> Formula:
    """The formula, with 16-bit floats computed in 32 bits."""

    @functools.wraps(formula)
    def wide(x: Tensor, *args: Any, **attrs: Any) -> Any:
        if x.dtype not in _SHORT:
            return formula(x, *args, **attrs)
        wider = [topi.cast(a, "float32") if isinstance(a, Tensor) else a for a in (x, *args)]
        result = formula(*wider, **attrs)
        if isinstance(result, list):
            return [topi.cast(each, x.dtype) for each in result]
        return topi.cast(result, x.dtype)

    return wide


def _number(value: float, like: Expr) -> Expr:
    return as_scalar(float(value) if like.dtype in FLOATS else int(value), like.dtype)


def _binary(name: str, formula: Callable[[Expr, Expr], Expr]) -> Formula:
    return topi._binary(name, formula, "")


# Element by element


def _greater(a: Expr, b: Expr) -> Expr:
    """The greater of both; NaN if either is NaN."""
    return prim.select(prim.logical_or(a > b, prim.not_equal(a, a)), a, b)


def _lesser(a: Expr, b: Expr) -> Expr:
    return prim.select(prim.logical_or(a < b, prim.not_equal(a, a)), a, b)


def _floor_divide(a: Expr, b: Expr) -> Any:
    if a.dtype not in FLOATS:
        return _unless_zero(b, lambda: prim.floordiv(a, b))
    remainder: Expr = _float_remainder(a, b)
    quotient = prim.cast((a - remainder) / b, a.dtype)  # nearly an integer
    rounded = intrinsics.floor(quotient)
    rounded = prim.select(quotient - rounded > _number(0.5, a), rounded + _number(1, a), rounded)
    zero = intrinsics.copysign(_number(0, a), a / b)
    result = prim.select(prim.equal(quotient, _number(0, a)), zero, rounded)
    return prim.select(prim.equal(b, _number(0, b)), a / b, result)


def _floor_mod(a: Expr, b: Expr) -> Any:
    if a.dtype in FLOATS:
        return _float_remainder(a, b)
    return _unless_zero(b, lambda: prim.floormod(a, b))


def _float_remainder(a: Expr, b: Expr) -> Any:
    """The remainder with the sign of b, of floats."""
    zero = _number(0, a)
    rest = intrinsics.fmod(a, b)
    differs = prim.not_equal(b < zero, rest < zero)
    moved = prim.select(differs, rest + b, rest)
    return prim.select(prim.equal(rest, zero), intrinsics.copysign(zero, b), moved)


def _mod(a: Expr, b: Expr) -> Any:
    if a.dtype in FLOATS:
        return intrinsics.fmod(a, b)
    return _unless_zero(b, lambda: prim.truncmod(a, b))


def _unless_zero(b: Expr, formula: Callable[[], Expr]) -> Any:
    """A quotient or remainder of integers; 0 for a division by zero, as in numpy."""
    return intrinsics.if_then_else(prim.equal(b, _number(0, b)), _number(0, b), formula())


def _log_add_exp(a: Expr, b: Expr) -> Any:
    difference = a - b
    positive = a + intrinsics.log1p(intrinsics.exp(b - a))
    other = b + intrinsics.log1p(intrinsics.exp(difference))
    result = prim.select(difference > _number(0, a), positive, other)
    # The difference of two infinities of one sign is not a number.
    return prim.select(prim.equal(a, b), a + _number(math.log(2), a), result)


def _sign(x: Expr) -> Expr:
    positive = prim.select(x > _number(0, x), _number(1, x), x * _number(0, x))  # NaN of NaN
    if x.dtype.startswith("uint"):
        return positive
    return prim.select(x < _number(0, x), _number(-1, x), positive)


def _gelu(x: Expr) -> Any:
    root = _number(math.sqrt(0.5), x)
    return x * _number(0.5, x) * (_number(1, x) + intrinsics.erf(x * root))


def _gelu_tanh(x: Expr) -> Any:
    inner = _number(math.sqrt(2 / math.pi), x) * (x + _number(0.044715, x) * x * x * x)
    return x * _number(0.5, x) * (_number(1, x) + intrinsics.tanh(inner))


def _clip(x: Tensor, low: Any, high: Any) -> Any:
    least, most = (prim.cast(as_scalar(bound), x.dtype) for bound in (low, high))
    return _elementwise(lambda e: _greater(_lesser(e, most), least))(x)


# Shapes


def _transpose(x: Tensor, axes: Sequence[int] | None = None) -> Any:
    return topi.transpose(x, axes)


def _concat(tensors: Sequence[Tensor], axis: int | None = 0) -> Any:
    return topi.concatenate(tensors, axis or 0)


def _split(
    x: Tensor, starts: Sequence[Expr], lengths: Sequence[Expr], axis: int = 0
) -> list[Tensor]:
    """Parts along an axis from these places on, of these lengths."""
    at = axis % x.ndim

    def part(start: Expr, length: Expr) -> Tensor:
        return compute(
            [*x.shape[:at], length, *x.shape[at + 1 :]],
            lambda *i: x[(*i[:at], i[at] + start, *i[at + 1 :])],
            "T_split",
        )

    return [part(start, length) for start, length in zip(starts, lengths, strict=True)]


def _dropout(data: Tensor, rate: float = 0.5) -> list[Tensor]:
    return [topi.identity(data), topi.full(data.shape, data.dtype, 1)]


def _cross_entropy(predictions: Tensor, labels: Tensor) -> Any:
    total = topi.negative(topi.sum(topi.multiply(predictions, labels)))
    if predictions.ndim == 1:
        return total
    return topi.divide(total, prim.cast(predictions.shape[0], total.dtype))


def _take(x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "fast") -> Any:
    return topi.take(x, indices, axis)


def _full(shape: Sequence[Any], value: Any, dtype: str | None = None) -> Tensor:
    kind = value.dtype if dtype is None else dtype

    def element(*_: Expr) -> Expr:
        scalar: Expr = prim.cast(value[()] if isinstance(value, Tensor) else value, kind)
        return scalar

    return compute(shape, element, "T_full")


def _full_like(x: Tensor, value: Any, dtype: str | None = None) -> Tensor:
    return _full(x.shape, value, x.dtype if dtype is None else dtype)


def _arange(start: Expr, end: Expr, step: Expr, dtype: str) -> Tensor:
    within = "float64" if FLOATS & {start.dtype, end.dtype, step.dtype} else "int64"
    low, by = (prim.cast(value, within) for value in (start, step))

    def element(i: Expr) -> Any:
        return prim.cast(low + prim.cast(i, within) * by, dtype)

    return compute([arange_length(start, end, step)], element, "T_arange")


def _eye(n: Expr, m: Expr, k: Expr, dtype: str) -> Tensor:
    diagonal = prim.cast(k, "int64")

    def element(i: Expr, j: Expr) -> Any:
        is_on = prim.equal(j - i, diagonal)
        return prim.select(is_on, as_scalar(1, dtype), as_scalar(0, dtype))

    return compute([n, m], element, "T_eye")


def _eye_like(x: Tensor, k: Expr, dtype: str | None = None) -> Tensor:
    rows, columns = x.shape
    return _eye(rows, columns, k, x.dtype if dtype is None else dtype)


def _hamming_window(
    window_size: Expr, periodic: Expr, alpha: Expr, beta: Expr, dtype: str
) -> Tensor:
    count = prim.cast(window_size, "float64")
    if not _int(periodic):
        count = count - as_scalar(1.0, "float64")
    high, low = [prim.cast(each, "float64") for each in (alpha, beta)]

    def element(i: Expr) -> Any:
        angle = prim.cast(i, "float64") * as_scalar(2 * math.pi, "float64") / count
        found = prim.cast(high - low * intrinsics.cos(angle), dtype)
        return prim.select(prim.equal(window_size, 1), as_scalar(1.0, dtype), found)

    return compute([window_size], element, "T_hamming_window")


def _int(number: Any) -> int:
    return int(number)


def _strided_slice(
    x: Tensor,
    axes: Sequence[Expr],
    begin: Sequence[Expr],
    end: Sequence[Expr],
    strides: Sequence[Expr] | None = None,
    assume_inbound: bool = False,
) -> Tensor:
    steps = [1] * len(axes) if strides is None else [_int(step) for step in strides]
    shape, starts = list(x.shape), {}
    for axis, low, high, step in zip(axes, begin, end, steps, strict=True):
        at = _int(axis) % x.ndim
        start, shape[at] = slice_of(x.shape[at], low, high, step, assume_inbound)
        starts[at] = start, step

    def element(*i: Expr) -> Any:
        places = list(i)
        for at, (start, step) in starts.items():
            places[at] = start + i[at] * step
        return x[tuple(places)]

    return compute(shape, element, "T_strided_slice")


def _constant(number: int) -> Formula:
    def make(like: Any, dtype: str | None = None) -> Tensor:
        shape = like.shape if isinstance(like, Tensor) else like
        kind = like.dtype if dtype is None else dtype
        return topi.full(shape, kind, bool(number) if kind == "bool" else number)

    return make


# Reductions and products


def _extreme(name: str, choose: Callable[[Expr, Expr], Expr], least: Callable[..., Expr],
             sign: int) -> Formula:  # fmt: skip
    return topi._reduction(name, _extreme_of(choose, least, sign), "")


def _extreme_of(choose: Callable[[Expr, Expr], Expr], least: Callable[..., Expr], sign: int) -> Any:
    def identity(dtype: str) -> Expr:
        return as_scalar(sign * math.inf, dtype) if dtype in FLOATS else least(dtype)

    return te._reduction(choose, identity, "")


_maximum: Final = _extreme_of(_greater, intrinsics.min_value, -1)


def _mean(x: Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    gone = range(x.ndim) if axis is None else {a % x.ndim for a in axis}
    count: Expr = as_scalar(1, "int64")
    for a in gone:
        count = count * prim.cast(x.shape[a], "int64")
    return topi.divide(topi.sum(x, axis, keepdims), prim.cast(simplify(count), x.dtype))


def _log_softmax(x: Tensor, axis: int = -1) -> Any:
    distance = topi.subtract(x, topi.max(x, [axis], True))
    total = topi.sum(topi.exp(distance), [axis], True)
    return topi.subtract(distance, topi.log(total))


def _matmul(a: Tensor, b: Tensor, out_dtype: str | None = None) -> Tensor:
    dtype = a.dtype if out_dtype is None else out_dtype
    within = "float32" if dtype in _SHORT else dtype
    batch = topi.broadcast_shape(a.shape[:-2], b.shape[:-2], "matmul")
    rows, columns = a.shape[-2:-1], b.shape[-1:] if b.ndim > 1 else ()
    k = te.reduce_axis((0, a.shape[-1]), "k")

    def formula(*i: Expr) -> Expr:
        head, rest = i[: len(batch)], i[len(batch) :]
        row, column = rest[: len(rows)], rest[len(rows) :]
        x = a[(*_of_batch(a, head), *row, k.var)]
        y = b[(*_of_batch(b, head), k.var, *column)]
        return te.sum(prim.cast(x, within) * prim.cast(y, within), k)

    product = compute([*batch, *rows, *columns], formula, "T_matmul")
    return product if within == dtype else topi.cast(product, dtype)


def _of_batch(x: Tensor, indices: Sequence[Expr]) -> list[Any]:
    """The batch indices of an operand of matmul for those of the result."""
    dims = x.shape[:-2]
    own = indices[len(indices) - len(dims) :] if dims else ()
    return [0 if topi._is_one(dim) else i for i, dim in zip(own, dims, strict=True)]


# Normalization


def _centred(x: Tensor, axes: Sequence[int]) -> Any:
    return topi.subtract(x, _mean(x, axes, True))


def _scaled(x: Tensor, axes: Sequence[int], epsilon: float) -> Any:
    """x / sqrt(mean(x**2) + epsilon)"""
    mean = _mean(topi.multiply(x, x), axes, True)
    return topi.multiply(x, topi.rsqrt(topi.add(mean, float(epsilon))))


def _along(x: Tensor, axes: Sequence[int], of: Tensor) -> Tensor:
    """A tensor whose dimensions are some axes of another, broadcast to the shape of that one."""
    places = [a % of.ndim for a in axes]
    return compute(of.shape, lambda *i: x[tuple(i[a] for a in places)], "T_along")


def _layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axes: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    result = _standardized(data, axes, epsilon)
    return _weighted(result, gamma if scale else None, beta if center else None, axes)


def _rms_norm(
    data: Tensor, weight: Tensor, axes: Sequence[int] = (-1,), epsilon: float = 1e-5
) -> Any:
    return topi.multiply(_scaled(data, axes, epsilon), _along(weight, axes, data))


def __getattr__(name: str) -> Any:
    return attribute(__name__, name)


def _standardized(x: Tensor, axes: Sequence[int], epsilon: float) -> Any:
    """(x - mean) / sqrt(variance + epsilon)"""
    return _scaled(_centred(x, axes), axes, epsilon)


def _group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    before, after = data.shape[:channel_axis], data.shape[channel_axis + 1 :]
    size = simplify(prim.floordiv(data.shape[channel_axis], num_groups))
    groups = topi.reshape(data, [*before, num_groups, size, *after])
    over = [channel_axis + 1, *[axis + (axis > channel_axis) for axis in axes]]
    result = topi.reshape(_standardized(groups, over, epsilon), data.shape)
    return _weighted(result, gamma if scale else None, beta if center else None, [channel_axis])


def _instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    result = _standardized(data, axes, epsilon)
    return _weighted(result, gamma if scale else None, beta if center else None, [channel_axis])


def _weighted(x: Tensor, gamma: Tensor | None, beta: Tensor | None, axes: Sequence[int]) -> Any:
    """x * gamma + beta, where these are given, along axes."""
    if gamma is not None:
        x = topi.multiply(x, _along(gamma, axes, x))
    return x if beta is None else topi.add(x, _along(beta, axes, x))


def _batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> list[Any]:
    mean, variance = moving_mean, moving_var
    if training:
        others = [a for a in range(data.ndim) if a != axis % data.ndim]
        mean = _mean(data, others)
        distance = topi.subtract(data, _along(mean, [axis], data))
        variance = _mean(topi.multiply(distance, distance), others)
    result = topi.subtract(data, _along(mean, [axis], data))
    deviation = topi.sqrt(topi.add(variance, float(epsilon)))
    result = topi.divide(result, _along(deviation, [axis], data))
    result = _weighted(result, gamma if scale else None, beta if center else None, [axis])
    if not training:
        return [result, topi.identity(mean), topi.identity(variance)]
    moved = [
        topi.add(topi.multiply(old, 1 - momentum), topi.multiply(new, momentum))
        for old, new in ((moving_mean, mean), (moving_var, variance))
    ]
    return [result, *moved]


# Formulas by name

_FORMULAS: Final[dict[str, Loops]] = {}


def formula_named(name: str) -> Loops:
    """The formula of a name: one of this module, or a scalar function of `relaxvm.tir` that is
    applied to each element, of floats.

    Raises:
        ValueError: there is no such formula.
    """
    found = _FORMULAS.get(name)
    if found is None:
        found = _FORMULAS[name] = Loops(_in_float32(_scalar_function(name)), FLOATS)
    return found


def _scalar_function(name: str) -> Formula:
    intrinsic = INTRINSICS.get(f"tirx.{name}")
    if intrinsic is None:
        raise ValueError(
            f"there is no formula {name!r} in relaxvm.te.operators or relaxvm.tir; an operator "
            "without one is registered with loops=Unsupported(reason), or no_loops in its row of "
            "relaxvm.elementwise"
        )
    function = getattr(intrinsics, name)
    return _elementwise(function) if intrinsic.arity == 1 else _binary(name, function)


def _offer(dtypes: frozenset[str], **formulas: Formula) -> None:
    _FORMULAS.update({name: Loops(formula, dtypes) for name, formula in formulas.items()})


_offer(
    FLOATS,
    **{
        name: _in_float32(getattr(topi, name))
        for name in (
            "floor", "ceil", "trunc", "round", "divide", "power",
        )
    },
)  # fmt: skip
_offer(
    NUMBERS,
    floor_divide=_in_float32(_binary("floor_divide", _floor_divide)),
    floor_mod=_in_float32(_binary("floor_mod", _floor_mod)),
    mod=_in_float32(_binary("mod", _mod)),
)
_offer(
    NUMBERS | BOOLS,
    isfinite=_elementwise(intrinsics.isfinite),
    isinf=_elementwise(intrinsics.isinf),
    isnan=_elementwise(intrinsics.isnan),
)
_offer(
    FLOATS,
    log_add_exp=_in_float32(_binary("log_add_exp", _log_add_exp)),
    mean=_in_float32(_mean),
    **{
        f"nn.{name}": _in_float32(formula)  # type: ignore[arg-type]  # of functions of all kinds
        for name, formula in {
            "gelu": _elementwise(_gelu),
            "gelu_tanh": _elementwise(_gelu_tanh),
            "silu": _elementwise(lambda x: x * intrinsics.sigmoid(x)),
            "softmax": nn.softmax,
            "log_softmax": _log_softmax,
            "layer_norm": _layer_norm,
            "group_norm": _group_norm,
            "instance_norm": _instance_norm,
            "batch_norm": _batch_norm,
            **{f"avg_pool{axes}d": images.average_pool for axes in (1, 2, 3)},
            "rms_norm": _rms_norm,
            "cross_entropy_with_logits": _cross_entropy,
        }.items()
    },
)
_offer(
    FLOATS | _SIGNED,
    negative=topi.negative,
)
_offer(
    NUMBERS,
    abs=topi.abs,
    square=_elementwise(lambda x: x * x),
    sign=_elementwise(_sign),
    subtract=topi.subtract,
    clip=_clip,
    matmul=_matmul,
    sum=_in_float32(topi.sum),
    prod=_in_float32(topi.prod),
    add=topi.add,
    multiply=topi.multiply,
    maximum=_binary("maximum", _greater),
    minimum=_binary("minimum", _lesser),
    max=_extreme("max", _greater, intrinsics.min_value, -1),
    min=_extreme("min", _lesser, intrinsics.max_value, 1),
    **{"nn.dropout": _dropout},
    **{f"nn.conv{axes}d": images.convolution for axes in (1, 2, 3)},
    **{f"nn.max_pool{axes}d": functools.partial(images.pool, _maximum) for axes in (1, 2, 3)},
    **{"nn.relu": _elementwise(lambda x: _greater(x, _number(0, x)))},
)
_offer(
    NUMBERS | BOOLS,
    where=topi.where,
    astype=topi.cast,
    permute_dims=_transpose,
    layout_transform=layout.layout_transform,
    concat=_concat,
    broadcast_to=topi.broadcast_to,
    split=_split,
    full=_full,
    full_like=_full_like,
    zeros=_constant(0),
    zeros_like=_constant(0),
    ones=_constant(1),
    ones_like=_constant(1),
    take=_take,
    arange=_arange,
    eye=_eye,
    eye_like=_eye_like,
    hamming_window=_hamming_window,
    strided_slice=_strided_slice,
    flip=arrays.flip,
    repeat=arrays.repeat,
    stack=arrays.stack,
    tile=lambda data, repeats: arrays.tile(data, repeats),
    reshape=topi.reshape,
    gather_elements=gather.gather_elements,
    gather_nd=gather.gather_nd,
    index_tensor=gather.index_tensor,
    one_hot=gather.one_hot,
    reverse_sequence=gather.reverse_sequence,
    slice_scatter=gather.slice_scatter,
    tril=gather.triangle(lambda column, line: column <= line),
    triu=gather.triangle(lambda column, line: column >= line),
    **{"nn.pad": images.pad},
    **{
        name: getattr(topi, name)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
)
_offer(
    BOOLS,
    logical_and=topi.logical_and,
    logical_or=topi.logical_or,
    logical_xor=_binary("logical_xor", prim.not_equal),
    logical_not=topi.logical_not,
)
_offer(
    INTEGERS,
    **{name: getattr(topi, name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    left_shift=topi.left_shift,
    right_shift=topi.right_shift,
    bitwise_not=topi.bitwise_not,
)
