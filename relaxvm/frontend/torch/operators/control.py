"""Graphs within graphs: conditionals, loops, and regions of the user's program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir import Expr, If, IntImm, TupleGetItem, prim
from ...common.control import Chains, end_tuple, repeated, scalar
from ...common.emitter import Problem
from ...common.values import Value
from .. import messages
from ..aliases import Tensor
from ..graph import Graph
from ..registry import aten

__all__: list[str] = []


def _tensors(values: Sequence[Any]) -> list[Value]:
    for value in values:
        if not isinstance(value, Value):
            raise Problem("numbers as values of conditionals and loops are not supported")
    return list(values)


@aten("higher_order::cond")
def cond(
    g: Graph,
    pred: Any,
    true_graph: messages.Graph,
    false_graph: messages.Graph,
    operands: Sequence[Value] = (),
) -> Any:
    """The results of one of two graphs."""
    if isinstance(pred, (bool, int)):
        return g.subgraph(true_graph if pred else false_graph, operands)
    if isinstance(pred, Expr):
        pred = g.scalar(prim.select(pred, 1, 0), "bool")
    hint, test = g.hint, scalar(g, pred)
    branches = []
    for graph in (true_graph, false_graph):
        with g.inner_scope():
            branches.append(end_tuple(g, _tensors(g.subgraph(graph, operands))))
    g.hint = hint
    result = g.emit(If(test, branches[0], branches[1]))
    return [g.emit(TupleGetItem(result, i)) for i in range(len(true_graph.outputs))]


@aten("higher_order::while_loop")
def while_loop(
    g: Graph,
    cond_graph: messages.Graph,
    body_graph: messages.Graph,
    carried: Sequence[Value],
    operands: Sequence[Value] = (),
) -> Any:
    """What a graph makes of values, again and again while another graph says so."""

    def test(state: list[Value]) -> Expr:
        (found,) = g.subgraph(cond_graph, [*state, *operands])
        if isinstance(found, Value):
            return scalar(g, found)
        raise Problem("conditions that are no tensors are not supported")

    def step(state: list[Value]) -> list[Value]:
        return _tensors(g.subgraph(body_graph, [*state, *operands]))

    names = [f"carried_{i}" for i in range(len(carried))]
    return _looped(g, _tensors(carried), test, step, names)


def _looped(g: Graph, state: list[Value], test: Any, step: Any, names: list[str]) -> list[Value]:
    known = set(g.context.known)
    found = repeated(g, state, test, step, names)
    g.context.known = known
    return found


@aten("higher_order::scan")
def scan(
    g: Graph,
    combine: messages.Graph,
    initial: Sequence[Value],
    xs: Sequence[Value],
    operands: Sequence[Value] = (),
) -> Any:
    """A loop over the rows of tensors: what it carries, and the results of all steps."""
    count = len(initial)
    chains = Chains(g, len(combine.outputs) - count)
    if not xs:
        raise Problem("expected a tensor whose rows are scanned")
    rows = g.dims(xs[0])[0]
    limit = g.scalar(rows.value if isinstance(rows, IntImm) else rows, "int64")

    def test(state: list[Value]) -> Expr:
        return g.op("less", state[0], limit)

    def step(state: list[Value]) -> list[Value]:
        parts = [Value(g.op("take", x, state[0], axis=0)) for x in xs]
        results = _tensors(g.subgraph(combine, [*state[1 : 1 + count], *parts, *operands]))
        after = Value(g.op("add", state[0], np.array(1, np.int64)))
        return [after, *results[:count], *chains.added(state[1 + count :], results[count:])]

    state = [Value(known=np.array(0, np.int64)), *_tensors(initial), *chains.initial]
    names = ["i", *[f"carried_{i}" for i in range(count)],
             *[f"collected_{i}" for i in range(len(chains.initial))]]  # fmt: skip
    found = _looped(g, state, test, step, names)
    collected = [chains.tensor(i, chain) for i, chain in enumerate(found[1 + count :])]
    return [*found[1 : 1 + count], *collected]


@aten("higher_order::map_impl")
def map_(
    g: Graph, function: messages.Graph, xs: Sequence[Value], operands: Sequence[Value] = ()
) -> Any:
    """The results of a graph for each row of tensors."""
    return scan(g, function, (), xs, operands)


# Regions of the program, which run where they are


@aten("higher_order::wrap_with_set_grad_enabled", raw=True, variadic=True)
def with_grad(
    g: Graph, enabled: bool, graph: messages.Graph, operands: Sequence[Tensor] = ()
) -> Any:
    """The results of a graph."""
    return g.inlined(graph, operands)


@aten("higher_order::wrap_with_autocast", raw=True, variadic=True)
def with_autocast(
    g: Graph,
    device_type: str,
    dtype: str | None,
    enabled: bool,
    cache_enabled: bool | None,
    graph: messages.Graph,
    operands: Sequence[Tensor] = (),
) -> Any:
    """The results of a graph whose operators choose between a data type and float32."""
    return g.inlined(graph, operands, dtype or "bfloat16" if enabled else None)


@aten("higher_order::invoke_subgraph", raw=True, variadic=True)
def invoke_subgraph(
    g: Graph, graph: messages.Graph, identifier: str, operands: Sequence[Tensor] = ()
) -> Any:
    """The results of a graph."""
    return g.inlined(graph, operands)
