"""Numbers that only the run knows, and assertions about them."""

from __future__ import annotations

from typing import Any, Final

from ....ir import ANY, Expr, StringImm, int_imm, prim
from ....op.registry import CONSTRUCTORS
from ...common.control import scalar
from ...common.emitter import BUILTIN_PREFIX, Problem
from ...common.values import Value, as_expr
from ..aliases import Tensor
from ..forms import dims_of, length, numel
from ..graph import Graph
from ..registry import aten

__all__: list[str] = []

_MOST: Final = (1 << 63) - 1


@aten("item", "_local_scalar_dense")
def item(g: Graph, self: Value) -> Value:
    """The element of a tensor that has one, as a number."""
    return self


@aten("sym_storage_offset", raw=True)
def storage_offset(g: Graph, self: Tensor) -> Value:
    """The place of a slice's first element in the memory that the slice is a part of."""
    keys = self.keys()
    if keys is None:
        raise Problem("the offset of a view that is no slice is not supported")
    sizes: list[Any] = list(dims_of(self.storage.read()))
    strides = [numel(sizes[i + 1 :]) for i in range(len(sizes))]
    offset: Any = 0
    for axis, start, *rest in keys:
        at = axis % len(sizes)
        first = _within(start, sizes[at])
        offset = offset + first * strides[at]
        if rest:
            end, step = rest
            span = prim.maximum(_within(end, sizes[at]) - first, 0)
            sizes[at], strides[at] = length((span + (step - 1)) // step), strides[at] * step
        else:
            del sizes[at], strides[at]
    return g.scalar(length(offset), "int64")


def _within(bound: Any, size: Any) -> Any:
    """A bound of a slice as a place from 0 to the length of the axis."""
    bound, size = as_expr(bound), as_expr(size)
    counted = prim.select(bound < 0, bound + size, bound)
    return length(prim.minimum(prim.maximum(counted, 0), size))


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


@aten("result_type.Tensor", "result_type.Scalar", "result_type.Scalar_Tensor",
      "result_type.Scalar_Scalar", "promote_types")  # fmt: skip
def result_type(
    g: Graph, tensor: Any = None, other: Any = None, scalar: Any = None, scalar1: Any = None,
    scalar2: Any = None, type1: Any = None, type2: Any = None,
) -> None:  # fmt: skip
    """Nothing: export has put the data type where it is used."""
