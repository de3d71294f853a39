"""Sums and other reductions along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....ir import Expr, ShapeType, TensorType
from ...common.values import Value
from ..graph import Graph
from ..registry import onnx
from .elementwise import scalar
from .ranks import length_of_axis

__all__: list[str] = []


def _sum(g: Graph, x: Value, axes: Any, keepdims: bool) -> Expr:
    return g.op("sum", x, axes, keepdims)


def _square_sum(g: Graph, x: Value, axes: Any, keepdims: bool) -> Expr:
    return g.op("sum", g.op("multiply", x, x), axes, keepdims)


def _log_sum_exp(g: Graph, x: Value, axes: Any, keepdims: bool) -> Expr:
    greatest = _extreme("max")(g, x, axes, True)
    # Where the greatest element is infinite, it is the result.
    finite = g.op("where", g.op("isfinite", greatest), greatest, scalar(g, 0, x))
    total = g.op("sum", g.op("exp", g.op("subtract", x, finite)), axes, True)
    found = g.op("add", g.op("log", total), finite)
    if keepdims:
        return found
    if isinstance(g, _AtRunTime):
        return g.squeezed(found)
    return g.op("sum", found, axes, False)  # of one element each


def _extreme(name: str) -> Callable[..., Expr]:
    def reduce(g: Graph, x: Value, axes: Any, keepdims: bool) -> Expr:
        if x.dtype != "bool":
            return g.op(name, x, axes, keepdims)
        found = g.op(name, g.op("astype", x, "uint8"), axes, keepdims)
        return g.op("astype", found, "bool")

    return reduce


def _named(name: str) -> Callable[..., Expr]:
    return lambda g, x, axes, keepdims: g.op(name, x, axes, keepdims)


_KINDS: Final[dict[str, Callable[[Graph, Value, Any, bool], Expr]]] = {
    "ReduceSum": _sum,
    "ReduceMean": _named("mean"),
    "ReduceProd": _named("prod"),
    "ReduceMax": _extreme("max"),
    "ReduceMin": _extreme("min"),
    "ReduceSumSquare": _square_sum,
    "ReduceL1": lambda g, x, axes, keep: g.op("sum", g.op("abs", x), axes, keep),
    "ReduceL2": lambda g, x, axes, keep: g.op("sqrt", _square_sum(g, x, axes, keep)),
    "ReduceLogSum": lambda g, x, axes, keep: g.op("log", g.op("sum", x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
}
_FOLDS: Final[dict[str, Any]] = {
    "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip


_OF_FLOATS: Final = frozenset({"ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
"""Those whose operators take floats alone.  Of integers the results are integers, rounded towards
zero."""


def _widened(name: str, g: Graph, x: Value, reduce: Callable[[Value], Any]) -> Any:
    """A reduction, in float64 where the operator needs floats and the elements are integers."""
    if name not in _OF_FLOATS or x.dtype is None or np.dtype(x.dtype).kind not in "iu":
        return reduce(x)
    found = reduce(Value(g.op("astype", x, "float64")))
    return g.op("astype", found, x.dtype)


def _reduced(
    name: str, g: Graph, x: Value, axes: list[int] | None, keepdims: int, noop: int
) -> Any:
    if not axes and noop:
        if name in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
            return x
        axes = []
    return _KINDS[name](g, x, axes if axes or noop else None, bool(keepdims))


class _AtRunTime:
    """Stands for a graph: reduces along axes that are known only at run time."""

    def __init__(self, g: Graph, x: Value, axes: Value, noop: bool) -> None:
        self.g = g
        self.axes: Any = g.shape_in(axes)
        if axes.length is None and not noop:  # no axes at all stand for all of them
            self.axes = g.run("axes_or_all", [x, self.axes], ShapeType(ndim=-1))
        self.count = axes.length

    def op(self, name: str, x: Any, *rest: Any) -> Expr:
        if not rest or name not in ("sum", "mean", "prod", "max", "min"):
            return self.g.op(name, x, *rest)
        keepdims = rest[1]
        value = x if isinstance(x, Value) else Value(x)
        unknown = value.ndim < 0 or self.count is None
        ndim = value.ndim if keepdims else -1 if unknown else value.ndim - (self.count or 0)
        dtype = value.dtype or "?"
        text = f"{dtype} keepdims" if keepdims else dtype
        return self.g.run(name, [x, self.axes], TensorType(None, value.dtype, ndim=ndim), text)

    def squeezed(self, x: Expr) -> Expr:
        """x without the axes."""
        value = Value(x)
        unknown = value.ndim < 0 or self.count is None
        ndim = -1 if unknown else value.ndim - (self.count or 0)
        return self.g.run("squeeze", [x, self.axes], TensorType(None, value.dtype, ndim=ndim))

    def expr(self, value: Any) -> Expr:
        return self.g.expr(value)


def _at_run_time(
    name: str, g: Graph, x: Value, axes: Value, keepdims: bool, noop: bool
) -> Expr:
    reduce: Any = _KINDS[name]
    found: Expr = reduce(_AtRunTime(g, x, axes, noop), x, None, keepdims)
    return found


def _register(name: str, by_input: int) -> None:
    def fold(x: NDArray[Any], axes: Any = None, *, keepdims: int = 1, **noop: int) -> Any:
        function = _FOLDS.get(name)
        if function is None or any(noop.values()):
            return None
        if name not in ("ReduceSum", "ReduceProd") and (x.dtype == object or not x.size):
            return None
        places = None if axes is None or not len(axes) else tuple(np.asarray(axes).tolist())
        found = np.asarray(function(x, axis=places, keepdims=bool(keepdims)))
        return found.astype(x.dtype, copy=False)  # numpy sums small integers in wide ones

    def convert(
        g: Graph,
        x: Value,
        axes: Value | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Any:
        if axes is not None and axes.length == 0:
            axes = None
        if axes is not None and axes.known is None:
            later, keeps, noop = axes, bool(keepdims), bool(noop_with_empty_axes)
            return _widened(name, g, x, lambda x: _at_run_time(name, g, x, later, keeps, noop))
        found = None if axes is None else [int(axis) for axis in g.sized(axes, "axes")]
        return _widened(
            name, g, x, lambda x: _reduced(name, g, x, found, keepdims, noop_with_empty_axes)
        )

    def old(g: Graph, x: Value, *, axes: list[int] | None = None, keepdims: int = 1) -> Any:
        return _widened(name, g, x, lambda x: _reduced(name, g, x, axes, keepdims, 0))

    convert.__doc__ = old.__doc__ = f"{name.removeprefix('Reduce')} along axes."
    onnx(name, since=by_input, fold=fold)(convert)
    onnx(name, since=1, fold=fold)(old)


for _name in _KINDS:
    _register(_name, 13 if _name == "ReduceSum" else 18)


def _arg(name: str, target: str) -> None:
    def convert(
        g: Graph, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Expr:
        if not select_last_index:
            return g.op(target, x, axis, bool(keepdims))
        last = g.op(target, g.op("flip", x, axis), axis, bool(keepdims))
        if x.dims is None:
            at_end = g.op("subtract", length_of_axis(g, x, axis), np.array(1))
            return g.op("subtract", at_end, last)
        length = Value(known=np.array([x.dims[axis]], object))
        return g.op("subtract", _before_last(g, length), last)

    convert.__doc__ = f"R.{target}."
    onnx(name, since=1)(convert)


def _before_last(g: Graph, length: Value) -> Value:
    assert length.known is not None
    found = np.empty((), object)
    found[()] = length.known[0] - 1
    return Value(known=found)


_arg("ArgMax", "argmax")
_arg("ArgMin", "argmin")
