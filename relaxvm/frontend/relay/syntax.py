"""The syntax tree of Relay text.

Each node has its `place` in the text.  `relaxvm.frontend.relay.parser` makes a tree from a text and
`printer` a text from a tree; `scopes` fills in what names refer to (the fields `target`), and
`infer` the types of expressions (`ty`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from .metadata import StoredObject
from .source import Place

__all__ = [
    "Bind",
    "Binder",
    "Block",
    "Call",
    "Clause",
    "Constant",
    "ConstructorDef",
    "ConstructorPattern",
    "Do",
    "Expr",
    "Function",
    "FunctionDef",
    "GlobalName",
    "GraphName",
    "If",
    "Import",
    "Let",
    "LocalName",
    "Match",
    "MetaRef",
    "Module",
    "Name",
    "Pattern",
    "Project",
    "RefOp",
    "Statement",
    "Tuple",
    "TuplePattern",
    "Type",
    "TypeDef",
    "TypeFunction",
    "TypeHole",
    "TypeName",
    "TypeRef",
    "TypeTensor",
    "TypeTuple",
    "VarPattern",
    "Wildcard",
    "parts_of",
]


# Types


@dataclass(slots=True, eq=False)
class Type:
    """Base of types as written."""

    place: Place


@dataclass(slots=True, eq=False)
class TypeHole(Type):
    """``_``: to be inferred."""


@dataclass(slots=True, eq=False)
class TypeTensor(Type):
    """``Tensor[(2, ?), float32]``; a dimension None is ``?``.  ``int32`` has no dimensions."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(slots=True, eq=False)
class TypeTuple(Type):
    """``(A, B)``"""

    fields: Sequence[Type]


@dataclass(slots=True, eq=False)
class TypeFunction(Type):
    """``fn (A, B) -> C``"""

    params: Sequence[Type]
    ret: Type


@dataclass(slots=True, eq=False)
class TypeRef(Type):
    """``ref(A)``"""

    value: Type


@dataclass(slots=True, eq=False)
class TypeName(Type):
    """``List[A]``: a data type with its arguments, or a type parameter."""

    name: str
    args: Sequence[Type]


# Variables


@dataclass(slots=True, eq=False)
class Binder:
    """A definition of a local variable ``%name``: in a let, a function, a pattern or a free_var.

    Attributes:
        annotation: the type as written, or None.
        ty: the inferred type.
    """

    place: Place
    name: str
    annotation: Type | None = None
    ty: Any = None


# Patterns


@dataclass(slots=True, eq=False)
class Pattern:
    """Base of patterns."""

    place: Place


@dataclass(slots=True, eq=False)
class Wildcard(Pattern):
    """``_``"""


@dataclass(slots=True, eq=False)
class VarPattern(Pattern):
    """``%x`` or ``%x: A``"""

    var: Binder


@dataclass(slots=True, eq=False)
class TuplePattern(Pattern):
    """``(p, q)``"""

    fields: Sequence[Pattern]
    ty: Any = None


@dataclass(slots=True, eq=False)
class ConstructorPattern(Pattern):
    """``Cons(p, q)`` or ``Nil``"""

    name: str
    fields: Sequence[Pattern]
    target: ConstructorDef | None = None
    ty: Any = None


# Expressions


@dataclass(slots=True, eq=False)
class Expr:
    """Base of expressions.

    Attributes:
        ty: the inferred type; None until inferred.
    """

    place: Place
    ty: Any = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class Constant(Expr):
    """A number or bool as written (`data` is of rank 0), or a tensor of the metadata section."""

    data: NDArray[Any]


@dataclass(slots=True, eq=False)
class MetaRef(Expr):
    """``meta[relay.Constant][0]``; `data` is the tensor, once it is known."""

    kind: str
    index: int
    data: NDArray[Any] | None = None


@dataclass(slots=True, eq=False)
class LocalName(Expr):
    """``%x``

    Attributes:
        instance: the type arguments of a function with type parameters, for this use.
    """

    name: str
    target: Binder | None = None
    instance: Sequence[Any] = ()


@dataclass(slots=True, eq=False)
class GraphName(Expr):
    """``%0``"""

    number: int
    target: Bind | None = None


@dataclass(slots=True, eq=False)
class GlobalName(Expr):
    """``@f``; `instance` as of `LocalName`."""

    name: str
    target: FunctionDef | None = None
    instance: Sequence[Any] = ()


@dataclass(slots=True, eq=False)
class Name(Expr):
    """A constructor or an operator: ``Cons``, ``nn.dense``.

    Attributes:
        target: the constructor; None for an operator.
        instance: the type arguments of the constructor's type, for this use.
    """

    name: str
    target: ConstructorDef | None = None
    instance: Sequence[Any] = ()


@dataclass(slots=True, eq=False)
class Tuple(Expr):
    """``(a, b)``"""

    fields: Sequence[Expr]


@dataclass(slots=True, eq=False)
class Project(Expr):
    """``e.0``"""

    value: Expr
    index: int


@dataclass(slots=True, eq=False)
class Call(Expr):
    """``f(x, y, axis=1)``; an infix operator is a call, too.

    Attributes:
        attrs: the attributes as written.
        meta: the object of the metadata section that has all of them, or None.
    """

    callee: Expr
    args: Sequence[Expr]
    attrs: Mapping[str, Any]
    meta: MetaRef | None = None


@dataclass(slots=True, eq=False)
class Function(Expr):
    """``fn [A](%x: A, Primitive=1) -> A { body }``"""

    type_params: Sequence[str]
    params: Sequence[Binder]
    ret: Type | None
    body: Block
    attrs: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class If(Expr):
    """``if (cond) { a } else { b }``"""

    cond: Expr
    then: Block
    orelse: Block


@dataclass(slots=True, eq=False)
class Clause:
    """``pattern => body``"""

    place: Place
    pattern: Pattern
    body: Block


@dataclass(slots=True, eq=False)
class Match(Expr):
    """``match (value) { clauses }``; without `complete` it is ``match?``."""

    value: Expr
    clauses: Sequence[Clause]
    complete: bool


@dataclass(slots=True, eq=False)
class RefOp(Expr):
    """``ref(x)``, ``ref_read(r)`` or ``ref_write(r, x)``."""

    name: str
    args: Sequence[Expr]


# Blocks


@dataclass(slots=True, eq=False)
class Statement:
    """Base of what comes before the result of a block."""

    place: Place
    value: Expr


@dataclass(slots=True, eq=False)
class Let(Statement):
    """``let %x: A = value;``"""

    var: Binder


@dataclass(slots=True, eq=False)
class Do(Statement):
    """``value;``"""


@dataclass(slots=True, eq=False)
class Bind(Statement):
    """``%0 = value;``: another name for a part of the program's graph.

    It is evaluated where it is used, and once: in the innermost block that contains all uses.
    `scopes` finds the place and moves the binding there; a binding without uses is dropped.
    """

    number: int


@dataclass(slots=True, eq=False)
class Block(Expr):
    """``{ a; let %x = b; %0 = c; result }``, or the same without braces.

    Attributes:
        free_vars: variables declared by ``free_var`` in it.
    """

    statements: list[Statement]
    result: Expr
    free_vars: Sequence[Binder] = ()


# Modules


@dataclass(slots=True, eq=False)
class ConstructorDef:
    """A constructor of a data type.  `owner` is set by the type definition."""

    place: Place
    name: str
    fields: Sequence[Type]
    tag: int
    owner: TypeDef | None = None


@dataclass(slots=True, eq=False)
class TypeDef:
    """``type List[A] { Cons(A, List[A]), Nil }``"""

    place: Place
    name: str
    params: Sequence[str]
    constructors: Sequence[ConstructorDef]
    is_extern: bool = False


@dataclass(slots=True, eq=False)
class FunctionDef:
    """``def @f(...) { ... }``"""

    place: Place
    name: str
    function: Function
    ty: Any = None


@dataclass(slots=True, eq=False)
class Import:
    """``import "prelude.rly"``"""

    place: Place
    name: str


@dataclass(slots=True, eq=False)
class Module:
    """A text: definitions in order, or a single expression."""

    place: Place
    version: str | None
    imports: list[Import]
    types: list[TypeDef]
    functions: list[FunctionDef]
    expression: Block | None
    constants: Mapping[str, Sequence[StoredObject]]
    """The metadata section: its objects by kind; None for those that are not tensors."""


def parts_of(node: Any) -> list[Any]:
    """Return the expressions in an expression, the last one first."""
    if isinstance(node, Function):
        return [node.body]
    if isinstance(node, Block):
        return [node.result, *(s.value for s in reversed(node.statements))]
    if isinstance(node, If):
        return [node.orelse, node.then, node.cond]
    if isinstance(node, Match):
        return [*(c.body for c in reversed(node.clauses)), node.value]
    if isinstance(node, Call):
        return [*reversed(node.args), node.callee]
    if isinstance(node, Tuple):
        return list(reversed(node.fields))
    if isinstance(node, Project):
        return [node.value]
    return list(reversed(node.args)) if isinstance(node, RefOp) else []
