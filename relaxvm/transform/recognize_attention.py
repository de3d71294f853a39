"""RecognizeAttention: attention that a program has in parts, as exporters write it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .. import op
from ..dpl.pattern import DFPattern, is_const, is_op, wildcard
from ..ir import Constant, Expr, IntImm, TensorType, structural_equal
from ._formulas import Formula, either_order, number_of, replacing
from .pass_infra import Pass

__all__ = ["RecognizeAttention"]

_EXCHANGED: Final = [0, 2, 1, 3]
"""Axes: from by position to by head, and back."""


def _dims(expr: Expr) -> tuple[Any, ...] | None:
    """The lengths of a tensor's axes, if they are written out."""
    return expr.ty.dims if isinstance(expr.ty, TensorType) else None


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all(map(structural_equal, a, b))


def _is_of_heads(ty: Any, ndim: int = 4) -> bool:
    return isinstance(ty, TensorType) and ty.ndim == ndim and ty.dtype == "float32"


def _by_position(expr: Expr) -> Expr:
    """A tensor by heads, or of one head without an axis of its own, as the operator takes it."""
    made: Expr = (
        op.permute_dims(expr, _EXCHANGED) if _rank(expr) == 4 else op.expand_dims(expr, [2])
    )
    return made


def _rank(expr: Expr) -> int:
    return expr.ty.ndim if isinstance(expr.ty, TensorType) else -1


def _axes(call: Any, ndim: int) -> list[int]:
    given = call.attrs["axes"]
    return list(range(ndim))[::-1] if given is None else [int(axis) % ndim for axis in given]


def _exchanged_heads() -> Formula:
    """The last two axes, exchanged while the axes before are one."""
    x = wildcard()
    joined = is_op("relax.reshape")(x, wildcard())
    turned = is_op("relax.permute_dims")(joined)
    pattern = is_op("relax.reshape")(turned, wildcard())

    def make(found: dict[DFPattern, Expr]) -> Any:
        before, between, after = _dims(found[x]), _dims(found[joined]), _dims(found[pattern])
        if before is None or between is None or after is None or len(between) != 3:
            return None
        if len(before) < 3 or _axes(found[turned], 3) != [0, 2, 1]:
            return None
        last = before[-2:]
        if not _same(between[-2:], last) or not _same(after, (*before[:-2], *last[::-1])):
            return None
        ndim = len(before)
        return op.permute_dims(found[x], [*range(ndim - 2), ndim - 1, ndim - 2])

    return Formula(pattern, make)


def _factor_of_keys() -> Formula:
    """A product with a scaled right side, which may be a cache, as one with a scaled left side."""
    left, right, factor, other = wildcard(), wildcard(), is_const(), is_const()
    scaled = either_order("relax.multiply", left, other)
    pattern = is_op("relax.matmul")(
        scaled | left, either_order("relax.multiply", right, factor)
    )

    def make(found: dict[DFPattern, Expr]) -> Any:
        sides = found[left], found[right]
        if not all(_is_of_heads(side.ty) for side in sides) or isinstance(sides[1], Constant):
            return None
        numbers = [number_of(found[each]) for each in (factor, other) if each in found]
        if not all(1e-6 < number < 1e6 for number in numbers):  # products stay in float32's range
            return None
        call: Any = found[pattern]
        query = op.multiply(sides[0], Constant(np.array(math.prod(numbers), np.float32)))
        return op.matmul(query, sides[1], call.attrs["out_dtype"])

    return Formula(pattern, make)


def _attention(*, has_bias: bool, is_moved: bool = True) -> Formula:
    """``softmax(query @ key transposed * scale + bias) @ value``, by heads, whose axis may be one
    with that of the examples, or missing.

    The key's last axes are exchanged alone, or together with the change to heads; factors may be
    part of the query or of the product.  Without `is_moved`, the key is what the product takes, as
    in networks with channels in front: it is exchanged here, unless it may be a cache.  Weights may
    be replaced by 0 where they are NaN, which those of a query that attends to no key are: the
    operator has 0 for it.
    """
    query, key, value, bias = wildcard(), wildcard(), wildcard(), wildcard()
    factor, divisor, zero, of_query = is_const(), is_const(), is_const(), is_const()
    moved = is_op("relax.permute_dims")(key)
    scaled = either_order("relax.multiply", query, of_query)
    product = is_op("relax.matmul")(scaled | query, moved if is_moved else key)
    multiplied = either_order("relax.multiply", product, factor)
    divided = is_op("relax.divide")(product, divisor)
    scores = multiplied | divided | product
    if has_bias:
        scores = either_order("relax.add", scores, bias)
    weights = is_op("relax.nn.softmax")(scores)
    numbers = is_op("relax.where")(is_op("relax.isnan")(weights), zero, weights)
    pattern = is_op("relax.matmul")(weights | numbers, value)

    def make(found: dict[DFPattern, Expr]) -> Any:
        ndim = _rank(found[query])
        if ndim not in (3, 4) or not all(
            _is_of_heads(found[each].ty, ndim) for each in (query, key, value)
        ):
            return None
        softmax: Any = found[weights]
        if int(softmax.attrs["axis"]) % ndim != ndim - 1:
            return None
        if numbers in found and number_of(found[zero]):
            return None
        scale = 1.0
        for number, is_inverse in ((of_query, False), (factor, False), (divisor, True)):
            if number in found:
                value_of = number_of(found[number])
                if not value_of > 0 or not math.isfinite(value_of):
                    return None
                scale *= 1 / value_of if is_inverse else value_of
        exchanged = [*range(ndim - 2), ndim - 1, ndim - 2]
        axes = _axes(found[moved], ndim) if is_moved else exchanged
        if not is_moved:
            lengths, queries = _dims(found[key]), _dims(found[query])
            if lengths is None or queries is None or not _same(queries[-2:], lengths[:-3:-1]):
                return None
            by_position = _by_position(op.permute_dims(found[key], exchanged))
        elif axes == exchanged:
            by_position = _by_position(found[key])
        elif axes == [0, 2, 3, 1]:
            by_position = found[key]
        else:
            return None
        operands = _by_position(found[query]), by_position, _by_position(found[value])
        try:
            biases = [_of_four_axes(found[bias], ndim)] if has_bias else []
            made = op.nn.attention(*operands, *biases, scale=scale)
        except (TypeError, ValueError):
            return None  # products that broadcast
        return op.permute_dims(made, _EXCHANGED) if ndim == 4 else op.squeeze(made, [2])

    return Formula(pattern, make)


def _exchanged_weights() -> Formula:
    """``value @ weights transposed``, as networks with channels in front have it."""
    scores, value = wildcard(), wildcard()
    weights = is_op("relax.nn.softmax")(scores)
    moved = is_op("relax.permute_dims")(weights)
    pattern = is_op("relax.matmul")(value, moved)

    def make(found: dict[DFPattern, Expr]) -> Any:
        ndim = _rank(found[weights])
        exchanged = [*range(ndim - 2), ndim - 1, ndim - 2]
        if ndim not in (3, 4) or not _is_of_heads(found[value].ty, ndim):
            return None
        if _axes(found[moved], ndim) != exchanged:
            return None
        turned = op.matmul(found[weights], op.permute_dims(found[value], exchanged))
        return op.permute_dims(turned, exchanged)

    return Formula(pattern, make)


def _of_four_axes(bias: Expr, ndim: int) -> Expr:
    """A bias of scores of a rank with axes of length 1 in front, and for heads.

    Raises:
        TypeError: it is not of float32, or has more axes, or their lengths are not known.
    """
    dims = _dims(bias)
    if dims is None or bias.ty.dtype != "float32" or not 1 <= len(dims) <= ndim:
        raise TypeError("not a bias")
    if len(dims) == 3 and ndim == 3:
        of_heads: Expr = op.expand_dims(bias, [1])
        return of_heads
    return bias if len(dims) == 4 else op.reshape(bias, [*(1,) * (4 - len(dims)), *dims])


def _shared_heads(*, has_bias: bool) -> Formula:
    """Attention to keys and values whose heads are repeated for those of the queries."""
    query, bias = wildcard(), wildcard()
    sources = wildcard(), wildcard()
    parts = [_repeated(source) for source in sources]
    operands = [is_op("relax.permute_dims")(whole) for whole, *_ in parts]
    name = "relax.nn.attention_bias" if has_bias else "relax.nn.attention"
    pattern = is_op(name)(query, *operands, *([bias] if has_bias else []))

    def make(found: dict[DFPattern, Expr]) -> Any:
        shared = []
        for source, operand, (whole, wide, apart) in zip(sources, operands, parts, strict=True):
            if _axes(found[operand], 4) != _EXCHANGED:
                return None
            lengths = [_dims(found[each]) for each in (source, apart, wide, whole)]
            if any(dims is None for dims in lengths) or not _are_repeated(*lengths):
                return None
            shared.append(op.permute_dims(found[source], _EXCHANGED))
        call: Any = found[pattern]
        biased = found[bias] if has_bias else None
        settings = [call.attrs[each] for each in ("scale", "causal_mask", "window_size")]
        return op.nn.attention(found[query], *shared, biased, *settings)

    return Formula(pattern, make)


def _repeated(source: DFPattern) -> tuple[DFPattern, DFPattern, DFPattern]:
    """Each head some times in a row: the result, what is repeated, and the axis made for it."""
    apart = is_op("relax.reshape")(source, wildcard()) | is_op("relax.expand_dims")(source)
    wide = is_op("relax.broadcast_to")(apart, wildcard())
    return is_op("relax.reshape")(wide, wildcard()), wide, apart


def _are_repeated(source: Any, apart: Any, wide: Any, whole: Any) -> bool:
    """Whether these lengths are those of heads that are repeated."""
    if len(source) != 4 or len(apart) != 5 or len(whole) != 4:
        return False
    batch, heads, length, size = source
    times = wide[2]
    if not all(isinstance(each, IntImm) for each in (heads, times, whole[1])):
        return False
    return (
        _same(apart, (batch, heads, apart[2], length, size))
        and isinstance(apart[2], IntImm) and apart[2].value == 1
        and _same(wide, (batch, heads, times, length, size))
        and heads.value * times.value == whole[1].value
        and _same((whole[0], *whole[2:]), (batch, length, size))
    )  # fmt: skip


ATTENTION: Final[tuple[Callable[[], Formula], ...]] = (
    _exchanged_heads,
    _factor_of_keys,
    _exchanged_weights,
    lambda: _attention(has_bias=True),
    lambda: _attention(has_bias=False),
    lambda: _attention(has_bias=True, is_moved=False),
    lambda: _attention(has_bias=False, is_moved=False),
    lambda: _shared_heads(has_bias=True),
    lambda: _shared_heads(has_bias=False),
)
"""The formulas, in the order in which they are tried."""


def RecognizeAttention() -> Pass:
    """Replace the parts of attention of float32, by heads, by the operator.

    Heads of keys and values that queries share are multiplied where they are: exporters repeat them
    by ``expand_dims`` or ``reshape``, ``broadcast_to``, and ``reshape``.  Factors of keys become
    factors of queries.  So a decoder copies nothing of its cache for a token.

    Results differ by rounding.  Where scores are NaN, the program may replace weights by 0, in
    order to have 0 for queries that attend to no key: such scores make the result NaN here.
    """
    return replacing("RecognizeAttention", ATTENTION)
