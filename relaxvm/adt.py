"""Data types of a program, for Python: their constructors, and conversion of sequences to lists.

::

    types = relaxvm.load("model.vmexec").data_types
    xs = types["List"].from_list([x, y])
    ys = types["List"].to_list(vm["reverse"](xs))
    zs = types["List"].Cons(z, xs)

A definition is plain data: its types are those of `relaxvm.field_types`.  A file contains it, so
the compiler is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .errors import FormatError, did_you_mean
from .field_types import (
    MOST_DEPTH,
    DataField,
    FieldType,
    FunctionField,
    RefField,
    TupleField,
    parse,
    parts_of,
    quoted_name,
    script_text,
)
from .messages import describe, readable
from .values import adt_type

__all__ = [
    "NO_DATA_TYPES", "Constructor", "DataType", "DataTypes", "FunctionField", "data_types",
]  # fmt: skip


class Constructor:
    """A constructor; calling it makes a value.

    Attributes:
        name: its name after that of the data type, such as ``List.Cons``.
        tag: its number in the data type.
        fields: the types of its fields.
    """

    __slots__ = ("fields", "name", "tag")

    name: str
    tag: int
    fields: tuple[FieldType, ...]

    def __init__(self, name: str, tag: int, fields: Iterable[FieldType]) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "tag", tag)
        put(self, "fields", tuple(fields))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Constructor.{name}: a constructor is immutable")

    @property
    def num_fields(self) -> int:
        """How many fields its values have."""
        return len(self.fields)

    def __call__(self, *fields: Any) -> Any:
        if len(fields) != len(self.fields):
            raise TypeError(
                f"{self.name}: expected {len(self.fields)} fields, got {len(fields)}"
            )
        return adt_type()(self.name, self.tag, fields)

    def matches(self, value: object) -> bool:
        """Whether a value is made by this constructor."""
        return type(value) is adt_type() and (value.constructor, value.tag) == (  # type: ignore[attr-defined]
            self.name, self.tag,
        )  # fmt: skip

    def _content(self) -> tuple[Any, ...]:
        return self.name, self.tag, self.fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constructor):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[Any, ...]:
        return Constructor, self._content()

    def __repr__(self) -> str:
        return f"<Constructor {readable(self.name)} of {len(self.fields)} fields>"


class DataType:
    """A data type of a program; its constructors are attributes.  Immutable; compares and hashes by
    content.

    Args:
        name: its name.
        params: the names of its type parameters.
        constructors: the constructors by name, in the order of their tags: the types of the fields
            of each, as `FieldType` or text, ``{"Nil": [], "Cons": ["A", "List[A]"]}``.

    Attributes:
        name, params: the arguments.
        constructors: name -> `Constructor`.

    Raises:
        TypeError: an argument is of a wrong type.
        FormatError: a type is malformed, or a name is empty or given twice.
    """

    name: str
    params: tuple[str, ...]
    constructors: Mapping[str, Constructor]

    def __init__(
        self,
        name: str,
        params: Iterable[str] = (),
        constructors: Mapping[str, Iterable[FieldType | str]] | None = None,
    ) -> None:
        own = self.__dict__
        own["name"] = _name("data type", name)
        subject = f"data type {readable(name)!r}"
        own["params"] = tuple([_name(f"{subject}: type parameter", param) for param in params])
        if len(set(self.params)) != len(self.params):
            raise FormatError(f"{subject}: two type parameters have the same name")
        own["constructors"] = {
            _name(f"{subject}: constructor", key): Constructor(
                f"{name}.{key}", tag, [_type(f"{subject}, constructor {key!r}", f) for f in fields]
            )
            for tag, (key, fields) in enumerate((constructors or {}).items())
        }

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"DataType.{name}: a data type is immutable")

    def __getattr__(self, name: str) -> Constructor:
        found = self.__dict__.get("constructors", {}).get(name)
        if found is None:
            hint = did_you_mean(name, self.__dict__.get("constructors", ()))
            raise AttributeError(f"the data type has no constructor {name!r}{hint}")
        return found  # type: ignore[no-any-return]

    def constructor_of(self, value: object) -> Constructor | None:
        """Return the constructor that made a value; None if it is not of this data type."""
        if type(value) is not adt_type():
            return None
        name = value.constructor  # type: ignore[attr-defined]
        found = self.constructors.get(name.removeprefix(f"{self.name}."))
        return found if found is not None and found.matches(value) else None

    def _list_constructors(self) -> tuple[Constructor, Constructor]:
        """The constructors of the empty list and of a cell."""
        by_size = sorted(self.constructors.values(), key=lambda found: found.num_fields)
        if [found.num_fields for found in by_size] != [0, 2]:
            raise TypeError(
                f"{self.name} is no list: expected a constructor without fields and one of two"
            )
        return by_size[0], by_size[1]

    def from_list(self, items: Iterable[Any]) -> Any:
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

    def to_list(self, value: Any) -> list[Any]:
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

    def definition(self) -> list[str]:
        """Return the definition as lines of script."""
        params = ", ".join(f'"{quoted_name(param)}"' for param in self.params)
        lines = [f"class {quoted_name(self.name)}(R.Data{f'[{params}]' if params else ''}):"]
        for key, constructor in self.constructors.items():
            fields = ", ".join(map(script_text, constructor.fields))
            lines.append(f"    {quoted_name(key)} = R.Constructor({fields})")
        return lines if self.constructors else [*lines, "    pass"]

    def _content(self) -> tuple[Any, ...]:
        return self.name, self.params, tuple(self.constructors.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataType):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {key: found.fields for key, found in self.constructors.items()}
        return DataType, (self.name, self.params, fields)

    def __repr__(self) -> str:
        return f"<DataType {readable(self.name)}: {', '.join(map(readable, self.constructors))}>"


def _name(what: str, name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what}: expected a name, got {describe(name)}")
    if not name or "\0" in name:
        raise FormatError(f"{what} {readable(name)!r}: expected a name without NUL characters")
    return name


def _type(subject: str, ty: object) -> FieldType:
    """A type that is given as such or as text."""
    if isinstance(ty, str):
        try:
            return parse(ty)
        except FormatError as error:
            raise FormatError(f"{subject}: {error}") from None
    if not isinstance(ty, FieldType):
        raise TypeError(f"{subject}: expected a type or its text, got {describe(ty)}")
    work: list[tuple[FieldType, int]] = [(ty, 1)]
    while work:
        found, depth = work.pop()
        if depth > MOST_DEPTH:
            raise FormatError(f"{subject}: a type is nested more than {MOST_DEPTH} deep")
        work += [(part, depth + 1) for part in _direct_parts(found)]
    return ty


def _direct_parts(ty: FieldType) -> Iterable[FieldType]:
    if isinstance(ty, TupleField):
        return ty.fields
    if isinstance(ty, DataField):
        return ty.args
    if isinstance(ty, FunctionField):
        return (*(ty.params or ()), ty.result)
    return (ty.value,) if isinstance(ty, RefField) else ()


class DataTypes:
    """The data types of a program, and where its functions take or return values of them.
    Immutable; compares and hashes by content.

    Args:
        types: the data types.
        signatures: function -> its type as in the program, for functions whose types mention data
            types.

    Attributes:
        types: name -> data type.
        signatures: function -> `FunctionField`.

    Raises:
        TypeError: a signature is not the type of a function.
        FormatError: two data types have the same name.
    """

    __slots__ = ("_hash", "signatures", "types")

    types: Mapping[str, DataType]
    signatures: Mapping[str, FunctionField]
    _hash: int

    def __init__(
        self,
        types: Iterable[DataType] = (),
        signatures: Mapping[str, FunctionField | str] | None = None,
    ) -> None:
        put = object.__setattr__
        found: dict[str, DataType] = {}
        for data in types:
            if data.name in found:
                raise FormatError(f"there are two data types {readable(data.name)!r}")
            found[data.name] = data
        put(self, "types", found)
        made: dict[str, FunctionField] = {}
        for name, given in (signatures or {}).items():
            subject = f"signature of {readable(name)!r}"
            ty = _type(subject, given)
            if not isinstance(ty, FunctionField) or ty.params is None:
                raise FormatError(f"{subject}: expected the type of a function, got {ty}")
            made[_name("signature", name)] = ty
        put(self, "signatures", made)
        put(self, "_hash", hash(self._content()))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"DataTypes.{name}: the data types of a program are immutable")

    def __bool__(self) -> bool:
        return bool(self.types or self.signatures)

    def names(self) -> Iterable[str]:
        """Yield the names of data types, type parameters, constructors and functions."""
        for data in self.types.values():
            yield from (data.name, *data.params, *data.constructors)
        yield from self.signatures

    @property
    def num_parts(self) -> int:
        """The number of names and types, those inside of types included."""
        types = [
            ty
            for data in self.types.values()
            for constructor in data.constructors.values()
            for ty in constructor.fields
        ]
        types += self.signatures.values()
        return sum(1 for ty in types for _ in parts_of(ty)) + sum(1 for _ in self.names())

    def fault_of(self, name: str, tag: int, num_fields: int) -> str | None:
        """Return what is wrong with a value of some constructor; None if nothing is, or the data
        type is not known."""
        data = self.types.get(name.rpartition(".")[0])
        if data is None:
            return None
        found = data.constructors.get(name.removeprefix(f"{data.name}."))
        if found is None:
            return f"{readable(data.name)} has no constructor {readable(name)}"
        if (found.tag, found.num_fields) != (tag, num_fields):
            return (
                f"{readable(name)}: expected tag {found.tag} and {found.num_fields} fields, got "
                f"tag {tag} and {num_fields} fields"
            )
        return None

    def problems(self) -> Iterable[str]:
        """Yield what is wrong with the types: a name that is neither a data type nor a type
        parameter, or a wrong number of type arguments."""
        for data in self.types.values():
            for constructor in data.constructors.values():
                for ty in constructor.fields:
                    yield from self._problems(ty, frozenset(data.params), constructor.name)
        for name, ty in self.signatures.items():
            yield from self._problems(ty, frozenset(), f"signature of {readable(name)!r}")

    def _problems(
        self, root: FieldType, params: frozenset[str], subject: str
    ) -> Iterable[str]:
        work = [(root, params)]
        while work:
            ty, known = work.pop()
            if isinstance(ty, FunctionField):
                known |= frozenset(ty.type_params)
            work += [(part, known) for part in _direct_parts(ty)]
            if not isinstance(ty, DataField):
                continue
            data = self.types.get(ty.name)
            if ty.name in known and not ty.args:
                continue
            if data is None:
                yield (
                    f"{readable(subject)}: {readable(ty.name)!r} is neither a data type nor a type "
                    "parameter"
                )
            elif len(data.params) != len(ty.args):
                yield (
                    f"{readable(subject)}: {readable(ty.name)}: expected {len(data.params)} type "
                    f"arguments, got {len(ty.args)}"
                )

    def _content(self) -> tuple[Any, ...]:
        return tuple(self.types.values()), tuple(self.signatures.items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataTypes):
            return NotImplemented
        return self._content() == other._content()

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return DataTypes, (tuple(self.types.values()), dict(self.signatures))

    def __repr__(self) -> str:
        return f"<DataTypes {', '.join(map(readable, self.types))}>"


NO_DATA_TYPES: Final = DataTypes()
"""Those of a program without data types."""


def data_types(program: Any) -> dict[str, DataType]:
    """Return the data types of a program by name.

    Args:
        program: a module, an executable or a virtual machine.

    Raises:
        TypeError: it is none of these.
    """
    found = getattr(program, "data_types", None)
    if not isinstance(found, dict):
        raise TypeError(
            f"data_types: expected an IRModule, VMExecutable or VirtualMachine, got "
            f"{describe(program)}"
        )
    return found
