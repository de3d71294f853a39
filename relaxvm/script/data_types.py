"""Data types in script::

    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

In the text of a module, the parser reads such a class as a `TypeData`.  Python runs the class too,
before the parser does: then its values are only placeholders.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..errors import did_you_mean
from ..ir.adt import Constructor as _Constructor
from ..ir.adt import GlobalTypeVar, TypeCall, TypeData
from ..ir.expr import Type, TypeVar
from .type_forms import PendingType, annotation, compound, type_of

if TYPE_CHECKING:
    from .evaluate import Evaluator
    from .scope import Scope

__all__ = ["Constructor", "Data", "DataType", "define_data_types", "is_data_class",
           "read_data_types"]  # fmt: skip


class Data:
    """``class List(R.Data["A"])``: the base of a data type with a type parameter; ``R.Data`` alone
    if there is none."""

    script_kind = "data"

    def __class_getitem__(cls, params: Any) -> type[Data]:
        return cls


class Constructor:
    """``Cons = R.Constructor("A", "List[A]")``: a constructor, with the types of its fields.  A
    type that mentions data types or type parameters may be in quotes."""

    __slots__ = ("inputs",)

    def __init__(self, *inputs: Any) -> None:
        self.inputs = inputs

    def __call__(self, *args: Any) -> Any:
        raise TypeError("a constructor of a data type can be called only in a script")


class DataType:
    """The value of the name of a data type in a script: ``List[A]`` is a type, ``List.Cons`` a
    constructor; without type parameters the name itself is a type."""

    __slots__ = ("count", "header")

    def __init__(self, header: GlobalTypeVar, count: int) -> None:
        self.header = header
        self.count = count

    def __getitem__(self, args: Any) -> Type | PendingType:
        given = args if isinstance(args, tuple) else (args,)
        if len(given) != self.count:
            raise TypeError(
                f"{self.header.name_hint}: expected {self.count} type arguments, got {len(given)}"
            )
        return compound([annotation(arg) for arg in given], self._call)

    def _call(self, args: list[Type]) -> Type:
        return TypeCall(self.header, args)

    def as_type(self) -> Type:
        """The type, of a data type without type parameters."""
        if self.count:
            raise TypeError(
                f"{self.header.name_hint}: expected {self.count} type arguments, as in "
                f"{self.header.name_hint}[{', '.join(['R.Any'] * self.count)}]"
            )
        return TypeCall(self.header, ())

    def __getattr__(self, name: str) -> _Constructor:
        constructors = self.header.definition.constructors
        for constructor in constructors:
            if constructor.name_hint == name:
                return constructor
        hint = did_you_mean(name, [constructor.name_hint for constructor in constructors])
        raise AttributeError(
            f"data type {self.header.name_hint!r} has no constructor {name!r}{hint}"
        )


def is_data_class(evaluator: Evaluator, node: ast.ClassDef) -> bool:
    """Check whether a class in the text defines a data type."""
    return any(
        getattr(evaluator.eval(_base(base)), "script_kind", None) == "data" for base in node.bases
    )


def _base(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def read_data_types(evaluator: Evaluator, nodes: list[ast.ClassDef]) -> list[TypeData]:
    """Parse the data types of a module, which may mention each other; defines their names in the
    scope of the evaluator, and the names of constructors that no two of them share."""
    scope, source = evaluator.scope, evaluator.source
    params: list[list[str]] = []
    headers: list[GlobalTypeVar] = []
    for node in nodes:
        names = _parameters(evaluator, node)
        if node.name in scope.vars:
            source.error(node, f"{node.name!r} is defined twice")
        headers.append(GlobalTypeVar(node.name, source.span(node)))
        params.append(names)
        scope.define(node.name, DataType(headers[-1], len(names)))
    found = []
    for node, header, names in zip(nodes, headers, params, strict=True):
        scope.push()
        type_vars = [TypeVar(name) for name in names]
        for var in type_vars:
            scope.define(var.name_hint, var)
        constructors = [
            constructor
            for statement in node.body
            if (constructor := _constructor(evaluator, header, statement)) is not None
        ]
        scope.pop()
        try:
            found.append(TypeData(header, type_vars, constructors, source.span(node)))
        except (TypeError, ValueError) as error:
            evaluator.failed(node, error)
    _define_constructors(scope, found)
    return found


def define_data_types(scope: Scope, types: list[TypeData]) -> None:
    """Define the names of data types, and those of constructors that no two of them share."""
    for data in types:
        scope.define(data.name, DataType(data.header, len(data.type_vars)))
    _define_constructors(scope, types)


def _define_constructors(scope: Scope, types: list[TypeData]) -> None:
    known: dict[str, list[_Constructor]] = {}
    for data in types:
        for constructor in data.constructors:
            known.setdefault(constructor.name_hint, []).append(constructor)
    for name, constructors in known.items():
        if len(constructors) == 1 and name not in scope.vars:
            scope.define(name, constructors[0])


def _parameters(evaluator: Evaluator, node: ast.ClassDef) -> list[str]:
    if len(node.bases) != 1 or node.keywords:
        evaluator.source.error(node, f'data type {node.name!r}: expected the base R.Data["A"]')
    (base,) = node.bases
    if not isinstance(base, ast.Subscript):
        return []
    given = evaluator.eval(base.slice)
    names = list(given) if isinstance(given, tuple) else [given]
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or names.count(name) > 1:
            evaluator.source.error(
                base, f"data type {node.name!r}: expected different names in quotes as parameters"
            )
    return names


def _constructor(
    evaluator: Evaluator, header: GlobalTypeVar, node: ast.stmt
) -> _Constructor | None:
    if isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        value = evaluator.eval(node.value)
        if isinstance(target, ast.Name) and isinstance(value, Constructor):
            inputs = []
            for field in value.inputs:
                try:
                    inputs.append(type_of(field))
                except (TypeError, ValueError) as error:
                    evaluator.failed(node.value, error)
            return _Constructor(target.id, inputs, header, evaluator.source.span(node))
    evaluator.source.error(
        node, f'data type {header.name_hint!r}: expected constructors, as Cons = R.Constructor("A")'
    )
