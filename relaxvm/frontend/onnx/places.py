"""The nodes of a model as lines of a text, so that errors, listings and profiles can show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...executable.debug_info import Span
from ...messages import readable
from . import messages

__all__ = ["Places", "text_of_node"]

_MOST_NAMES: Final = 8
"""The most inputs and outputs of a node that its line has."""


class Places:
    """The lines of a model: one per node, in the order in which they are imported.

    Args:
        name: of the file.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: list[str] = []

    def of(self, node: messages.Node) -> Span:
        """The place of a node, whose line comes next."""
        line = text_of_node(node)
        self._lines.append(line)
        number = len(self._lines)
        return Span(self._name, number, 1, number, len(line) + 1)

    def text(self) -> str:
        """All lines."""
        return "".join(f"{line}\n" for line in self._lines)


def text_of_node(node: messages.Node) -> str:
    """A node in a line: ``Conv 'conv1': x, w -> y``.  The operator comes first, since names may be
    long."""
    domain = f"{readable(node.domain)}." if node.domain not in ("", "ai.onnx") else ""
    name = f" {readable(node.name)!r}" if node.name else ""
    return (
        f"{domain}{readable(node.op_type)}{name}: {_listed(node.input)} -> {_listed(node.output)}"
    )


def _listed(names: Sequence[str]) -> str:
    shown = [readable(name) or "_" for name in names[:_MOST_NAMES]]
    return ", ".join([*shown, *(["..."] if len(names) > _MOST_NAMES else [])])
