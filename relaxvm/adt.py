"""Data types of a program, for Python: their constructors, and conversion of sequences to lists.

::

    types = relaxvm.adt.data_types(Module)
    xs = types["List"].from_list([x, y])
    ys = types["List"].to_list(vm["reverse"](xs))
    zs = types["List"].Cons(z, xs)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._core import Adt
from .errors import did_you_mean
from .messages import describe

if TYPE_CHECKING:
    from .ir.adt import Constructor as ConstructorNode
    from .ir.adt import TypeData
    from .ir.module import IRModule

__all__ = ["Constructor", "DataType", "data_types"]


class Constructor:
    """A constructor; calling it makes a value.

    Attributes:
        name: its name after that of the data type, such as ``List.Cons``.
        tag: its number in the data type.
        num_fields: how many fields its values have.
    """

    __slots__ = ("name", "num_fields", "tag")

    def __init__(self, node: ConstructorNode) -> None:
        self.name = node.qualified_name
        self.tag = node.tag
        self.num_fields = len(node.inputs)

    def __call__(self, *fields: Any) -> Adt:
        if len(fields) != self.num_fields:
            raise TypeError(f"{self.name}: expected {self.num_fields} fields, got {len(fields)}")
        return Adt(self.name, self.tag, fields)

    def matches(self, value: object) -> bool:
        """Whether a value is made by this constructor."""
        return type(value) is Adt and (value.constructor, value.tag) == (self.name, self.tag)

    def __repr__(self) -> str:
        return f"<Constructor {self.name} of {self.num_fields} fields>"


class DataType:
    """A data type of a program; its constructors are attributes.

    Attributes:
        name: its name.
        constructors: the constructors by name, in the order of their tags.
    """

    def __init__(self, data: TypeData) -> None:
        self.name = data.name
        self.constructors = {node.name_hint: Constructor(node) for node in data.constructors}

    def __getattr__(self, name: str) -> Constructor:
        found = self.__dict__.get("constructors", {}).get(name)
        if found is None:
            hint = did_you_mean(name, self.__dict__.get("constructors", ()))
            raise AttributeError(f"the data type has no constructor {name!r}{hint}")
        return found  # type: ignore[no-any-return]

    def _list_constructors(self) -> tuple[Constructor, Constructor]:
        """The constructors of the empty list and of a cell."""
        by_size = sorted(self.constructors.values(), key=lambda found: found.num_fields)
        if [found.num_fields for found in by_size] != [0, 2]:
            raise TypeError(
                f"{self.name} is no list: expected a constructor without fields and one of two"
            )
        return by_size[0], by_size[1]

    def from_list(self, items: Iterable[Any]) -> Adt:
        """Return a sequence as a value of this data type, which is a list: one constructor has no
        fields, the other an element and the rest.

        Raises:
            TypeError: the data type is no list.
        """
        end, cell = self._list_constructors()
        value = end()
        for item in reversed(list(items)):
            value = cell(item, value)
        return value

    def to_list(self, value: Adt) -> list[Any]:
        """Return the elements of a value of this data type, which is a list.

        Raises:
            TypeError: the data type is no list, or the value is not of it.
        """
        end, cell = self._list_constructors()
        found = []
        rest: Any = value
        while cell.matches(rest):
            item, rest = rest.fields
            found.append(item)
        if not end.matches(rest):
            raise TypeError(
                f"{self.name}: expected {end.name} or {cell.name}, got {describe(rest)}"
            )
        return found

    def __repr__(self) -> str:
        return f"<DataType {self.name}: {', '.join(self.constructors)}>"


def data_types(mod: IRModule) -> dict[str, DataType]:
    """Return the data types of a module by name."""
    return {header.name_hint: DataType(data) for header, data in mod.type_definitions.items()}
