"""A report of the nodes that cannot be imported, before anything is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ...errors import RelaxVMError
from ...messages import readable
from . import messages
from .graph import Context, base_name, operator_name, operator_of
from .pairs import BY_PARTS, COMPLEX, has_complex
from .places import place_of

__all__ = ["UnsupportedNode", "has_effects", "refuse_unknown", "unsupported_nodes"]


class UnsupportedNode(NamedTuple):
    """A node whose operator is not supported.

    Attributes:
        operator: name of the operator with its overload.
        domain: its namespace.
        name: of the node.
        place: the user's line, as ``model.py:42 in forward``; "" if it is not known.
        text: of that line.
    """

    operator: str
    domain: str
    name: str
    place: str
    text: str

    def __str__(self) -> str:
        place = f", {self.place}" if self.place else ""
        text = f": {readable(self.text)}" if self.text else ""
        return f"{readable(self.domain)}::{readable(self.operator)}{place}{text}"


def unsupported_nodes(context: Context, graph: messages.Graph) -> Iterator[UnsupportedNode]:
    """All nodes of a graph, and of graphs within it, whose operators are not supported."""
    for node in graph.nodes:
        name = operator_name(node.target)
        is_number = all(output.kind.startswith("as_sym") for output in node.outputs)
        if not (is_number and node.outputs) and not _is_known(context, graph, node):
            place = place_of(node)
            domain, _, operator = name.rpartition("::")
            yield UnsupportedNode(
                operator, domain or "python", node.name or "", "" if place is None else str(place),
                "" if place is None else place.text,
            )  # fmt: skip
        for each in node.inputs:
            if each.arg.kind == "as_graph":
                yield from unsupported_nodes(context, each.arg.value.graph)


def _is_known(context: Context, graph: messages.Graph, node: messages.Node) -> bool:
    if has_complex(graph, node):
        name = base_name(node.target)
        return name in COMPLEX or name in BY_PARTS
    return operator_of(context, operator_name(node.target)) is not None


def refuse_unknown(context: Context, graph: messages.Graph) -> None:
    """Raise an error that lists all nodes whose operators are unknown."""
    problems = list(unsupported_nodes(context, graph))
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        which = "nodes have operators that are"
        if len(problems) == 1:
            which = "node has an operator that is"
        hint = 'pass functions for them: from_exported_program(..., operators={"name": function})'
        if any(each.operator.startswith(_VMAP) for each in problems):
            hint = ("torch.vmap is part of the program; one without it is "
                    "torch.export.save(program.run_decompositions({}), path)")  # fmt: skip
        raise RelaxVMError(f"{context.name}: {len(problems)} {which} not supported:\n"
                           f"{lines}\n{hint}")  # fmt: skip


_VMAP: Final = "torch._functorch.predispatch."
"""What torch.vmap leaves in a program that was not decomposed."""


def has_effects(context: Context, graph: messages.Graph) -> bool:
    """Whether a node of a graph, or of graphs within it, may raise an error on purpose."""
    for node in graph.nodes:
        found = operator_of(context, operator_name(node.target))
        if found is not None and found[0].effect:
            return True
        for each in node.inputs:
            if each.arg.kind == "as_graph" and has_effects(context, each.arg.value.graph):
                return True
    return False
