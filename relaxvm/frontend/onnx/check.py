"""A report of the nodes that cannot be imported, before anything is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...messages import readable
from ...support import Unsupported
from . import messages
from .graph import Context
from .registry import find

__all__ = ["UnsupportedNode", "unsupported_nodes"]


class UnsupportedNode(NamedTuple):
    """A node whose operator is not supported.

    Attributes:
        name: of the node, or of its first output if it has none.
        operator: name of the operator.
        domain: of the operator; "ai.onnx" for the default one.
        version: of the domain.
        reason: why.
    """

    name: str
    operator: str
    domain: str
    version: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{readable(self.name)!r}: {self.domain}.{self.operator}, version {self.version}: "
            f"{self.reason}"
        )


def unsupported_nodes(
    context: Context, model: messages.Model, graph: messages.Graph
) -> list[UnsupportedNode]:
    """All nodes of a model, of graphs within it and of its functions, whose operators are not
    supported."""
    found = list(_unsupported(context, graph.node, context.versions))
    for function in model.functions:
        versions = {("" if v.domain == "ai.onnx" else v.domain): v.version
                    for v in function.opset_import}  # fmt: skip
        found += _unsupported(context, function.node, versions or context.versions)
    return found


def _unsupported(
    context: Context, nodes: Sequence[messages.Node], versions: Mapping[str, int]
) -> Iterator[UnsupportedNode]:
    for node in nodes:
        domain = "" if node.domain == "ai.onnx" else node.domain
        key = (domain, node.op_type)
        if key not in context.own and (*key, node.overload) not in context.functions:
            version = versions.get(domain, 1)
            operator = find(*key, version)
            if isinstance(operator, Unsupported):
                name = node.name or next(filter(None, node.output), "")
                yield UnsupportedNode(
                    name, node.op_type, domain or "ai.onnx", version, operator.reason
                )
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.g else [])):
                yield from _unsupported(context, inner.node, versions)
