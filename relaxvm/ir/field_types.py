"""The types of a program as an executable keeps them, see `relaxvm.field_types`.

What only the compiler knows is left out: a tensor with a symbolic dimension is one of its rank, on
any device.  What is nested `relaxvm.field_types.MOST_DEPTH` deep is `R.Any`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .. import field_types
from ..adt import DataType
from ..field_types import (
    MOST_DEPTH,
    DataField,
    FieldType,
    FunctionField,
    PrimField,
    RefField,
    ShapeField,
    TensorField,
    TupleField,
)
from .adt import GlobalTypeVar, NeverType, RefType, TypeCall, TypeData
from .expr import (
    Expr,
    FuncType,
    IntImm,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
)

__all__ = ["SIGNATURE_ATTR", "data_types_of", "signature_of"]

SIGNATURE_ATTR: Final = "relaxvm.signature"
"""The attribute of a function that has its type before types were erased, as text."""


def data_types_of(types: Mapping[GlobalTypeVar, TypeData]) -> Iterator[DataType]:
    """Yield the definitions of data types for an executable."""
    known = frozenset(header.name_hint for header in types)
    for data in types.values():
        names = _Names(known, data.type_vars)
        yield DataType(
            data.name,
            map(names.of, data.type_vars),
            {
                constructor.name_hint: [names.type(ty) for ty in constructor.inputs]
                for constructor in data.constructors
            },
        )


def signature_of(ty: Any, types: Iterable[GlobalTypeVar]) -> FunctionField | None:
    """Return the type of a function for an executable; None if it mentions no data types, type
    parameters or references, or its parameters are not known."""
    if not isinstance(ty, FuncType) or ty.params is None or not _mentions_data(ty):
        return None
    found = _Names(frozenset(header.name_hint for header in types), ()).type(ty)
    assert isinstance(found, FunctionField)
    return found


def _mentions_data(root: Type) -> bool:
    work: list[Type] = [root]
    while work:
        ty = work.pop()
        if isinstance(ty, (TypeCall, TypeVar, RefType, NeverType)):
            return True
        if isinstance(ty, TupleType):
            work += ty.fields
        elif isinstance(ty, FuncType):
            work += (*(ty.params or ()), ty.ret)
    return False


class _Names:
    """Converts types, with a name for each type parameter that no other one and no data type has.

    Args:
        taken: the names of the data types.
        type_vars: the type parameters in scope.
    """

    def __init__(self, taken: frozenset[str], type_vars: Iterable[TypeVar]) -> None:
        self._taken = set(taken)
        self._names: dict[TypeVar, str] = {}
        for var in type_vars:
            self._define(var)

    def of(self, var: TypeVar) -> str:
        """The name of a type parameter."""
        return self._names[var]

    def _define(self, var: TypeVar) -> None:
        hint = var.name_hint or "A"
        name, number = hint, 0
        while name in self._taken:
            number += 1
            name = f"{hint}_{number}"
        self._taken.add(name)
        self._names[var] = name

    def type(self, ty: Any, depth: int = 1) -> FieldType:
        """Convert a type that is inside of `depth` - 1 others."""
        if depth >= MOST_DEPTH:
            return field_types.ANY
        kind = type(ty)
        if kind is TensorType:
            return TensorField(_numbers(ty.dims), ty.dtype, ty.ndim)
        if kind is ShapeType:
            return ShapeField(_numbers(ty.values), ty.ndim)
        if kind is PrimType:
            return PrimField(ty.dtype)
        if kind is TupleType:
            return TupleField(tuple([self.type(part, depth + 1) for part in ty.fields]))
        if kind is RefType:
            return RefField(self.type(ty.value, depth + 1))
        if kind is NeverType:
            return field_types.NEVER
        if kind is TypeCall:
            args = tuple([self.type(arg, depth + 1) for arg in ty.args])
            return DataField(ty.func.name_hint, args)
        if kind is TypeVar:
            name = self._names.get(ty)
            return field_types.ANY if name is None else DataField(name)
        if kind is FuncType:
            return self._function(ty, depth)
        return field_types.ANY

    def _function(self, ty: FuncType, depth: int) -> FieldType:
        for var in ty.type_params:
            self._define(var)
        params = None
        if ty.params is not None:
            params = tuple([self.type(param, depth + 1) for param in ty.params])
        own = tuple(self._names[var] for var in ty.type_params)
        return FunctionField(params, self.type(ty.ret, depth + 1), bool(ty.purity), own)


def _numbers(dims: Iterable[Expr] | None) -> tuple[int, ...] | None:
    """Dimensions; None if one of them is not a number."""
    if dims is None:
        return None
    values = [int(dim.value) if isinstance(dim, IntImm) else -1 for dim in dims]
    return tuple(values) if all(value >= 0 for value in values) else None
