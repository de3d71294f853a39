"""The base class of all nodes of a program.

Nodes are immutable by convention: passes build new nodes and do not modify old ones.  Nodes are
compared by identity; `structural_equal` compares them by content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from ..errors import ExprSizeError
from ..executable.debug_info import Span

__all__ = ["KINDS", "MOST_ELEMENTS", "Attrs", "Node", "check_nested", "class_table",
           "node_classes", "on_print"]  # fmt: skip

_CLASSES: dict[str, type[Node]] = {}


def node_classes() -> dict[str, type[Node]]:
    """Return all kinds of nodes by the name of their class; JSON uses the same names."""
    return dict(_CLASSES)


KINDS: Final[dict[type, type]] = {}
"""Every class of nodes -> its `Node.KIND`."""

T = TypeVar("T")

_CLASS_TABLES: Final[list[dict[type, Any]]] = []


def class_table(entries: Mapping[type, T]) -> dict[type, T]:
    """Make a table of what to do with nodes, by their class: ``table.get(type(x))``.

    A class of nodes that is derived from one of the table elsewhere gets the entry of its kind when
    it is defined.  So a look-up finds what a chain of ``isinstance`` would, in less time.
    """
    table = {cls: entries[kind] for cls, kind in KINDS.items() if kind in entries}
    _CLASS_TABLES.append(table)
    return table


class Node:
    """Base of expressions, types, bindings, statements, functions and modules.

    `FIELDS` names the fields of a node, in the order in which equality, hashing, JSON and generic
    walks visit them; `DEFS` names those fields that define variables.  Attributes that are not
    fields (`span`, an inferred type) are not compared.

    A subclass defined outside of relaxvm that does not declare `FIELDS` has the kind of its base
    class: it is printed, compared, saved and rewritten as a node of that class.
    """

    __slots__ = ("span",)

    FIELDS: ClassVar[tuple[str, ...]] = ()
    DEFS: ClassVar[frozenset[str]] = frozenset()
    DEFAULTS: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Fields that JSON leaves out if they have these values, which are not None."""

    KIND: ClassVar[type[Node]]
    """The class as which nodes of this class are handled; usually the class itself."""

    span: Span | None

    _parts: int = 1
    """The number of nodes that a walk of it visits: shared nodes count once per use.  Nodes that
    contain others have it as an attribute; see `relaxvm.ir.parts`."""

    MOST_PARTS: ClassVar[int] = 65_535
    """The largest number of parts; see `relaxvm.ir.parts`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("relaxvm.") or "FIELDS" in cls.__dict__:
            cls.KIND = cls
            if not cls.__name__.startswith("_"):
                _CLASSES[cls.__name__] = cls
        KINDS[cls] = cls.KIND
        for table in _CLASS_TABLES:
            if cls.KIND in table:
                table[cls] = table[cls.KIND]

    def sum_of_parts(self) -> int:
        """Return the number of parts as it follows from the fields."""
        parts = 1
        work = [getattr(self, field) for field in self.FIELDS]
        while work:
            value = work.pop()
            if isinstance(value, Node):
                parts += value._parts
            elif isinstance(value, (tuple, list)):
                work += value
            elif isinstance(value, Mapping):
                work += value.values()
        return parts

    def same_as(self, other: object) -> bool:
        """Check whether both are the same object."""
        return self is other

    def script(
        self, *, show_meta: bool = True, show_all_ty: bool = True, extra_config: Any = None
    ) -> str:
        """Return the node as script; see `relaxvm.script`.

        Args:
            show_meta: whether to include the bytes of large constants; ``str(node)`` does not.
            show_all_ty: if false, types of tensors are left out where the parser infers them.
            extra_config: accepted for programs of TVM, without effect.

        The text of bindings alone begins with declarations of their free variables.
        """
        return _PRINTER[0](self, show_meta, declare_free=True, all_types=show_all_ty)

    def show(
        self,
        style: str | None = None,
        black_format: bool | None = None,
        *,
        show_meta: bool = False,
        **options: Any,
    ) -> None:
        """Print the node as script; the options are those of `script`.  `style` and `black_format`,
        how TVM colours and formats the text, are without effect."""
        print(self.script(show_meta=show_meta, **options))

    def __str__(self) -> str:
        return _PRINTER[0](self, False)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_PRINTER[0](self, False)}>"


Node.KIND = Node


def _print_by_import(node: Node, complete: bool, **options: bool) -> str:
    from ..script import printer

    on_print(printer.as_script)
    return printer.as_script(node, complete, **options)


_PRINTER: list[Callable[..., str]] = [_print_by_import]


def on_print(printer: Callable[..., str]) -> None:
    """Set the function that prints nodes; its parameters are those of `script.as_script`."""
    _PRINTER[0] = printer


MOST_ELEMENTS: Final = 1 << 24
"""The most elements of nested lists that become a tensor."""


def check_nested(container: Any, most: int, subject: str) -> None:
    """Check how many values tuples, lists and dicts contain, at all levels.  A value that is shared
    counts once per use, as walks visit it; a container in itself contains any number.

    Raises:
        ExprSizeError: there are more than `most`.
    """
    counts: dict[int, int | None] = {}
    """By identity; None for a container around the one that is counted."""
    work = [container]
    while work:
        found = work[-1]
        if counts.get(id(found)) is not None:
            work.pop()
            continue
        values = found.values() if isinstance(found, dict) else found
        inner = [value for value in values if isinstance(value, (tuple, list, dict))]
        new = [value for value in inner if id(value) not in counts]
        if new and id(found) not in counts:
            counts[id(found)] = None
            work += new
            continue
        total = len(found)
        for value in inner:
            count = counts[id(value)]
            total += most + 1 if count is None else count
        if total > most:
            raise ExprSizeError(
                f"{subject}: expected at most {most} values in tuples, lists and dicts, where "
                "shared values count once per use"
            )
        counts[id(found)] = total
        work.pop()


class Attrs(dict[str, Any]):
    """Attributes of a call or a function, by name; ``attrs.axis`` is ``attrs["axis"]``.  They must
    not be modified once they belong to a node.

    Raises:
        ExprSizeError: tuples, lists and dicts among them contain more than `MOST_VALUES` values.
    """

    MOST_VALUES: ClassVar = 1 << 20

    __slots__ = ()

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        for name, value in self.items():
            if isinstance(value, (tuple, list, dict)):
                check_nested(value, self.MOST_VALUES, f"attribute {name!r}")

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"no attribute {name!r}; there are: {', '.join(self) or 'none'}"
            ) from None
