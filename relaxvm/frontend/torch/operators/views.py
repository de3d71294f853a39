"""Views: tensors that share the memory of another one."""

from __future__ import annotations

from typing import Any

from ....ir import Expr
from ...common.values import Value
from ..graph import Graph
from ..registry import aten

__all__: list[str] = []


def _axis(dim: int, rank: int) -> int:
    return dim + rank if dim < 0 else dim


def _select_back(g: Graph, self: Value, new: Value, dim: int, index: Any) -> Expr:
    axis = _axis(dim, self.ndim)
    ends = None if index == -1 else index + 1
    part = g.op("expand_dims", new, axis)
    end = g.dims(self)[axis] if ends is None else ends
    return g.op("slice_scatter", self, part, index, end, 1, axis=axis)


@aten("select.int", back=_select_back)
def select(g: Graph, self: Value, dim: int, index: Any) -> Expr:
    """self with the elements at one index of an axis."""
    axis = _axis(dim, self.ndim)
    end = g.dims(self)[axis] if index == -1 else index + 1
    part = g.op("strided_slice", self, [axis], [index], [end])
    return g.op("squeeze", part, [axis])


@aten("detach", "alias", back=lambda g, self, new: new)
def detach(g: Graph, self: Value) -> Value:
    """self."""
    return self


@aten("clone")
def clone(g: Graph, self: Value, memory_format: str | None = None) -> Value:
    """A copy of self."""
    return self


@aten("copy")
def copy(g: Graph, self: Value, src: Value, non_blocking: bool = False) -> Expr:
    """src with the data type and shape of self."""
    if src.dtype != self.dtype:
        src = Value(g.op("astype", src, self.dtype))
    return g.op("broadcast_to", src, self.shape())
