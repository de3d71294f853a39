"""What all nodes of a program have in common.

Nodes are immutable by convention: passes build new ones and leave the old alone.  Two nodes are the
same when they are the same object; `structural_equal` compares by content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from ..source import Span

__all__ = ["Attrs", "Node", "NodeKind", "node_classes", "on_print"]

_CLASSES: dict[str, type[Node]] = {}


def node_classes() -> dict[str, type[Node]]:
    """Every class of nodes by its name, which is its name in JSON as well."""
    return dict(_CLASSES)


class NodeKind:
    """How a field takes part in structural equality."""

    USE = 0
    """Contents are compared."""
    DEF = 1
    """Variables here are defined: they match each other, whatever their names."""


class Node:
    """Base of expressions, types, bindings, statements, functions and modules.

    `FIELDS` names what a node is made of, in the order in which equality, hashing, JSON and generic
    walks go through it; `DEFS` names those fields that define variables.  What is not a field
    (`span`, an inferred type) is carried along and never compared.
    """

    __slots__ = ("span",)

    FIELDS: ClassVar[tuple[str, ...]] = ()
    DEFS: ClassVar[frozenset[str]] = frozenset()

    span: Span | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.FIELDS is not None and not cls.__name__.startswith("_"):
            _CLASSES[cls.__name__] = cls

    def same_as(self, other: object) -> bool:
        """Whether both are the same object."""
        return self is other

    def script(self, *, show_meta: bool = True) -> str:
        """The node as script; see `relaxvm.script`.

        Args:
            show_meta: whether the bytes of large constants are part of it; ``str(node)`` has them
                not.
        """
        return _PRINTER[0](self, show_meta)

    def show(self, *, show_meta: bool = False) -> None:
        """Print the node as script."""
        print(self.script(show_meta=show_meta))

    def __str__(self) -> str:
        return _PRINTER[0](self, False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_PRINTER[0](self, False)}>"


def _print_by_import(node: Node, complete: bool) -> str:
    from ..script import printer

    on_print(printer.as_script)
    return printer.as_script(node, complete)


_PRINTER: list[Callable[[Node, bool], str]] = [_print_by_import]


def on_print(printer: Callable[[Node, bool], str]) -> None:
    """Set what prints nodes: it is told whether the bytes of large constants are wanted."""
    _PRINTER[0] = printer


class Attrs(dict[str, Any]):
    """Attributes of a call or a function, by name; ``attrs.axis`` is ``attrs["axis"]``.  Not to be
    changed once they are part of a node."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no attribute {name!r}; there are: {', '.join(self) or 'none'}"
            ) from None
