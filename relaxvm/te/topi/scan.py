"""Operators that go along an axis and carry a value from one element to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir import prim
from ...ir.arith import simplify
from ...ir.expr import Expr
from ...tir.buffer import Buffer
from ...tir.stmt import Stmt
from ..extern import extern
from ..tensor import Tensor
from . import basic
from ._loops import Cell, axis_of, index, loop, nest, run, store

__all__ = ["cumprod", "cumsum", "scanop"]


def scanop(
    data: Tensor,
    binop: Callable[[Any, Any], Any],
    identity_value: Any,
    op_name: str,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
) -> Tensor:
    """What `binop` gives for the elements up to each one.

    Args:
        binop: takes what there is so far and an element.
        identity_value: what there is before the first element.
        op_name: a hint.
        axis: by default, that of the flat tensor.
        dtype: of the result, by default that of the data.
        exclusive: leave out the element itself.
    """
    if axis is None:
        count = index(1)
        for dim in data.shape:
            count = count * dim
        data, axis = basic.reshape(data, [simplify(count)]), 0
    at = axis_of(axis, data.ndim, op_name)
    kind = dtype if dtype else data.dtype
    others = [*data.shape[:at], *data.shape[at + 1 :]]

    def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        total = Cell("total", kind)

        def of_row(i: tuple[Expr, ...]) -> Stmt:
            def step(k: Any) -> Stmt:
                place = (*i[:at], k, *i[at:])
                write = store(outs[0], place, total.value)
                add = total.set(binop(total.value, prim.cast(ins[0][place], kind)))
                return run(write, add) if exclusive else run(add, write)

            return run(total.set(identity_value), loop(data.shape[at], step, "k"))

        return run(total.declared, nest(others, of_row))

    out: Tensor = extern(data.shape, [data], body, op_name, kind)
    return out


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Tensor:
    """The sum of the elements up to each one; the arguments are those of `scanop`."""
    return scanop(data, lambda a, b: a + b, 0, "cumsum_generic", axis, dtype, exclusive)


def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Tensor:
    """The product of the elements up to each one; the arguments are those of `scanop`."""
    return scanop(data, lambda a, b: a * b, 1, "cumprod_generic", axis, dtype, exclusive)
