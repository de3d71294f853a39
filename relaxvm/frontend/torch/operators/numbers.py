"""Numbers that only the run knows, and assertions about them."""

from __future__ import annotations

from typing import Any, Final

from ....ir import ANY, Expr, StringImm, int_imm
from ....op.registry import CONSTRUCTORS
from ...common.control import scalar
from ...common.emitter import BUILTIN_PREFIX
from ...common.values import Value
from ..graph import Graph
from ..registry import aten

__all__: list[str] = []

_MOST: Final = (1 << 63) - 1


@aten("item", "_local_scalar_dense")
def item(g: Graph, self: Value) -> Value:
    """The element of a tensor that has one, as a number."""
    return self


@aten("_assert_scalar", effect=True)
def assert_scalar(g: Graph, self: Any, assert_msg: str) -> None:
    """Raise an AssertionError unless a condition of numbers holds."""
    _asserted(g, self, assert_msg)


@aten("_assert_async", "_assert_async.msg", effect=True)
def assert_async(g: Graph, self: Value, assert_msg: str = "") -> None:
    """Raise an AssertionError unless the element of a tensor is true."""
    _asserted(g, scalar(g, self), assert_msg)


def _asserted(g: Graph, condition: Any, message: str) -> None:
    if condition is True:
        return
    text = message.replace("{", "{{").replace("}", "}}") or "the assertion does not hold"
    g.context.effects += 1
    g.emit(CONSTRUCTORS["assert_op"](condition, [], text))


@aten("sym_constrain_range", "sym_constrain_range_for_size", effect=True)
def constrain_range(
    g: Graph, size: Any, min: int | None = None, max: int | None = None  # noqa: A002
) -> None:
    """Raise a ValueError unless a number is within bounds."""
    low, high = -_MOST if min is None else min, _MOST if max is None else max
    if isinstance(size, Expr):
        g.context.effects += 1
        args = [size, int_imm(low), int_imm(high), StringImm(str(size))]
        g.emit(CONSTRUCTORS["call_packed"](f"{BUILTIN_PREFIX}within", *args, ty_args=ANY))
    elif not low <= size <= high:
        raise ValueError(f"expected a number from {low} to {high}, got {size}")
