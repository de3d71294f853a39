"""Operators of Relax as tensor expressions, for `relaxvm.transform.LegalizeToLoops`.

`FORMULAS` has them by name.  A formula takes the operands as te tensors, shapes as lists of
scalars, and the attributes by name.  They give what the operators' kernels give, NaN for NaN
included, up to rounding; sums of 16-bit floats are of 32 bits until the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..ir import prim
from ..ir.arith import simplify
from ..ir.expr import Expr
from ..ir.prim import as_scalar
from ..tir import intrinsics
from . import tensor as te
from . import topi
from .tensor import Tensor, compute

__all__ = ["BOOLS", "FLOATS", "FORMULAS", "INTEGERS", "NUMBERS"]

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
    """The formula, of 16-bit floats computed in 32 bits."""

    @functools.wraps(formula)
    def wide(x: Tensor, *args: Any, **attrs: Any) -> Any:
        if x.dtype not in _SHORT:
            return formula(x, *args, **attrs)
        wider = [topi.cast(a, "float32") if isinstance(a, Tensor) else a for a in (x, *args)]
        return topi.cast(formula(*wider, **attrs), x.dtype)

    return wide


def _number(value: float, like: Expr) -> Expr:
    return as_scalar(float(value) if like.dtype in FLOATS else int(value), like.dtype)


def _binary(name: str, formula: Callable[[Expr, Expr], Expr]) -> Formula:
    return topi._binary(name, formula, "")


# Element by element


def _greater(a: Expr, b: Expr) -> Expr:
    """The greater of both, NaN if one is; as is `_lesser`."""
    return prim.select(prim.logical_or(a > b, prim.not_equal(a, a)), a, b)


def _lesser(a: Expr, b: Expr) -> Expr:
    return prim.select(prim.logical_or(a < b, prim.not_equal(a, a)), a, b)


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


def _split(x: Tensor, lengths: Sequence[Expr], axis: int = 0) -> list[Tensor]:
    """Parts of these lengths along an axis."""
    at = axis % x.ndim
    starts: list[Expr] = [as_scalar(0, "int64")]
    for length in lengths[:-1]:
        starts.append(simplify(starts[-1] + length))

    def part(start: Expr, length: Expr) -> Tensor:
        return compute(
            [*x.shape[:at], length, *x.shape[at + 1 :]],
            lambda *i: x[(*i[:at], i[at] + start, *i[at + 1 :])],
            "T_split",
        )

    return [part(start, length) for start, length in zip(starts, lengths, strict=True)]


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


def _constant(number: int) -> Formula:
    def make(like: Any, dtype: str | None = None) -> Tensor:
        shape = like.shape if isinstance(like, Tensor) else like
        kind = like.dtype if dtype is None else dtype
        return topi.full(shape, kind, bool(number) if kind == "bool" else number)

    return make


# Reductions and products


def _extreme(name: str, choose: Callable[[Expr, Expr], Expr], least: Callable[..., Expr],
             sign: int) -> Formula:  # fmt: skip
    def identity(dtype: str) -> Expr:
        return as_scalar(sign * math.inf, dtype) if dtype in FLOATS else least(dtype)

    return topi._reduction(name, te._reduction(choose, identity, ""), "")


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
    batch = topi._broadcast(a.shape[:-2], b.shape[:-2], "matmul")
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
    """The indices of a matrix, for those of the result's."""
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
    """A tensor whose dimensions are some axes of another one, in its shape."""
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
    result = _scaled(_centred(data, axes), axes, epsilon)
    if scale:
        result = topi.multiply(result, _along(gamma, axes, data))
    return topi.add(result, _along(beta, axes, data)) if center else result


def _rms_norm(
    data: Tensor, weight: Tensor, axes: Sequence[int] = (-1,), epsilon: float = 1e-5
) -> Any:
    return topi.multiply(_scaled(data, axes, epsilon), _along(weight, axes, data))


# The table

FORMULAS: Final[dict[str, tuple[frozenset[str], Formula]]] = {}
"""Data types of the first operand, and formula, by the operator's name."""


def _offer(dtypes: frozenset[str], **formulas: Formula) -> None:
    FORMULAS.update({name: (dtypes, formula) for name, formula in formulas.items()})


_offer(
    FLOATS,
    **{
        name: _in_float32(getattr(topi, name))
        for name in (
            "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "tan",
            "floor", "ceil", "trunc", "round", "divide", "power",
        )
    },
)  # fmt: skip
_offer(
    FLOATS,
    mean=_in_float32(_mean),
    **{
        f"nn.{name}": _in_float32(formula)
        for name, formula in {
            "gelu": _elementwise(_gelu),
            "gelu_tanh": _elementwise(_gelu_tanh),
            "silu": _elementwise(lambda x: x * intrinsics.sigmoid(x)),
            "softmax": topi.nn.softmax,
            "log_softmax": _log_softmax,
            "layer_norm": _layer_norm,
            "rms_norm": _rms_norm,
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
    **{"nn.relu": _elementwise(lambda x: _greater(x, _number(0, x)))},
)
_offer(
    NUMBERS | BOOLS,
    where=topi.where,
    astype=topi.cast,
    permute_dims=_transpose,
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
    reshape=topi.reshape,
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
    bitwise_not=topi.bitwise_not,
)
