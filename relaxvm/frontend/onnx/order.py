"""The order of nodes: each after those whose results it uses."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from . import messages

__all__ = ["in_order", "outer_names"]


def outer_names(node: messages.Node) -> Iterator[str]:
    """The names that the graphs of a node use, those of their own values among them."""
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.g is not None else []) + [*attribute.graphs]:
            for inner in graph.node:
                yield from inner.input
                yield from outer_names(inner)
            yield from (each.name for each in graph.output)


def in_order(nodes: Sequence[messages.Node]) -> Sequence[messages.Node]:
    """The nodes of a graph, each after those whose results it uses.

    The standard wants them so; onnxruntime also takes others, and there are models with them.  Of
    the nodes that may be next, the first one is taken, so that nodes in order stay as they are.
    Nodes that use each other stay where they are, and importing them says which value is missing.
    """
    makers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            makers.setdefault(name, i)
    makers.pop("", None)
    if all(
        makers.get(name, -1) < i for i, node in enumerate(nodes) for name in _used(node)
    ):
        return nodes
    waits = [0] * len(nodes)
    users: list[list[int]] = [[] for _ in nodes]
    for i, node in enumerate(nodes):
        for maker in {makers[name] for name in _used(node) if name in makers} - {i}:
            waits[i] += 1
            users[maker].append(i)
    ready = [i for i, count in enumerate(waits) if not count]
    found = []
    while ready:
        i = heapq.heappop(ready)
        found.append(nodes[i])
        for user in users[i]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    return found if len(found) == len(nodes) else nodes


def _used(node: messages.Node) -> Iterator[str]:
    yield from node.input
    if node.attribute:
        yield from outer_names(node)
