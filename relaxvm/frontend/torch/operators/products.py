"""Products of matrices."""

from __future__ import annotations

from ....ir import Expr
from ...common.values import Value
from ..graph import Graph
from ..registry import aten

__all__: list[str] = []


@aten("linear")
def linear(g: Graph, input: Value, weight: Value, bias: Value | None = None) -> Expr:  # noqa: A002
    """input @ weight.T + bias."""
    found = g.op("matmul", input, Value(g.op("permute_dims", weight)))
    return found if bias is None else g.op("add", found, bias)
