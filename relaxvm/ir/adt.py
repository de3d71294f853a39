"""Algebraic data types: their definitions, constructors, types and patterns, and references.

A data type is defined by a `TypeData`: its name, its type parameters and its constructors::

    List = GlobalTypeVar("List")
    A = TypeVar("A")
    nil = Constructor("Nil", [], List)
    cons = Constructor("Cons", [A, TypeCall(List, [A])], List)
    data = TypeData(List, [A], [nil, cons])

A constructor is a function of its fields.  A `Match` takes a value apart again.  A `RefType` is the
type of a mutable cell; `relaxvm.op.ref`, `ref_read` and `ref_write` make, read and write one.

Source: the names are those of Relay in apache-tvm 0.19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..messages import describe
from .expr import Expr, FuncType, SeqExpr, TupleType, Type, TypeVar, Var, _count_parts
from .node import Node

__all__ = [
    "NEVER",
    "Clause",
    "Constructor",
    "GlobalTypeVar",
    "Match",
    "NeverType",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefType",
    "TypeCall",
    "TypeData",
    "pattern_vars",
    "type_params_of",
]

# Types


class NeverType(Type):
    """The type of no value: every type is a supertype of it.

    It stands for a type argument about which nothing is known yet.  The empty list has the type
    ``List[Never]``, which is a subtype of every list type.
    """

    __slots__ = ()

    def __init__(self, span: Any = None) -> None:
        self.span = span


NEVER = NeverType()


class GlobalTypeVar(Node):
    """The name of a data type; its definition is the `TypeData` that has been made for it.

    Two of the same name are the same type: the names in a module are unique.
    """

    __slots__ = ("_definition", "_invariant", "name_hint")
    FIELDS = ("name_hint",)

    name_hint: str
    _definition: TypeData | None
    _invariant: frozenset[int] | None
    """Positions of type parameters, once they were asked for; see `invariant_params`."""

    def __init__(self, name_hint: str, span: Any = None) -> None:
        self.name_hint = name_hint
        self._definition = None
        self._invariant = None
        self.span = span

    @property
    def name(self) -> str:
        """The name."""
        return self.name_hint

    @property
    def definition(self) -> TypeData:
        """The definition.

        Raises:
            TypeError: there is none yet.
        """
        found: TypeData | None = getattr(self, "_definition", None)
        if found is None:
            raise TypeError(f"data type {self.name_hint!r} has no definition: expected a TypeData")
        return found

    def __call__(self, *args: Type) -> TypeCall:
        return TypeCall(self, args)


class TypeCall(Type):
    """A data type applied to type arguments, such as a list of tensors.

    Attributes:
        func: the data type.
        args: the type arguments, as many as it has type parameters.

    Raises:
        TypeSizeError: the type has more than `MOST_TYPE_PARTS` parts.
    """

    __slots__ = ("_parts", "_vars", "args", "func")
    FIELDS = ("func", "args")

    func: GlobalTypeVar
    args: tuple[Type, ...]
    _vars: Mapping[Var, None] | None

    def __init__(self, func: GlobalTypeVar, args: Iterable[Type] = (), span: Any = None) -> None:
        self.func = func
        self.args = tuple(args)
        self._parts = _count_parts(self.args)
        self._vars = None
        self.span = span


class RefType(Type):
    """A mutable cell that holds a value of type `value`."""

    __slots__ = ("_parts", "_vars", "value")
    FIELDS = ("value",)

    value: Type
    _vars: Mapping[Var, None] | None

    def __init__(self, value: Type, span: Any = None) -> None:
        self.value = value
        self._parts = _count_parts((value,))
        self._vars = None
        self.span = span


# Definitions


class Constructor(Expr):
    """A constructor of a data type: as an expression, the function from its fields to a value.

    Attributes:
        name_hint: the name.
        inputs: the types of the fields.
        belong_to: the data type.
        tag: its number in the definition of the data type, -1 before there is one.
    """

    __slots__ = ("belong_to", "inputs", "name_hint", "tag")
    FIELDS = ("name_hint", "inputs", "belong_to")

    name_hint: str
    inputs: tuple[Type, ...]
    belong_to: GlobalTypeVar
    tag: int

    def __init__(
        self,
        name_hint: str,
        inputs: Iterable[Type],
        belong_to: GlobalTypeVar,
        span: Any = None,
    ) -> None:
        self.name_hint = name_hint
        self.inputs = tuple(inputs)
        self.belong_to = belong_to
        self.tag = -1
        self.ty = None
        self.span = span

    @property
    def qualified_name(self) -> str:
        """The name after that of the data type, ``List.Cons``."""
        return f"{self.belong_to.name_hint}.{self.name_hint}"

    def __call__(self, *args: Any, attrs: Mapping[str, Any] | None = None) -> Any:
        if self.ty is None:
            raise TypeError(f"constructor {self.qualified_name} is not part of a TypeData")
        return super().__call__(*args, attrs=attrs)


class TypeData(Node):
    """The definition of a data type.

    Attributes:
        header: the name.
        type_vars: the type parameters.
        constructors: the constructors; the tag of each is its position.

    Raises:
        ValueError: the type has a definition already, or two constructors of one name.
        TypeError: a constructor belongs to another type.
    """

    __slots__ = ("constructors", "header", "type_vars")
    FIELDS = ("header", "type_vars", "constructors")
    DEFS = frozenset({"type_vars"})

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Iterable[TypeVar],
        constructors: Iterable[Constructor],
        span: Any = None,
    ) -> None:
        self.header = header
        self.type_vars = tuple(type_vars)
        self.constructors = tuple(constructors)
        self.span = span
        name = header.name_hint
        if getattr(header, "_definition", None) is not None:
            raise ValueError(f"data type {name!r} is defined twice")
        seen: set[str] = set()
        for constructor in self.constructors:
            if constructor.belong_to is not header:
                raise TypeError(
                    f"data type {name!r}: constructor {constructor.name_hint!r} belongs to "
                    f"{describe(constructor.belong_to)}"
                )
            if constructor.name_hint in seen:
                raise ValueError(
                    f"data type {name!r}: two constructors are named {constructor.name_hint!r}"
                )
            seen.add(constructor.name_hint)
        result = TypeCall(header, self.type_vars)
        for tag, constructor in enumerate(self.constructors):
            constructor.tag = tag
            constructor.ty = FuncType(constructor.inputs, result, True, type_params=self.type_vars)
        header._definition = self

    @property
    def name(self) -> str:
        """The name."""
        return self.header.name_hint

    def __getitem__(self, name: str) -> Constructor:
        for constructor in self.constructors:
            if constructor.name_hint == name:
                return constructor
        known = ", ".join(c.name_hint for c in self.constructors) or "none"
        raise KeyError(f"data type {self.name!r} has no constructor {name!r}; it has: {known}")


def invariant_params(header: GlobalTypeVar) -> frozenset[int]:
    """Return the positions of the type parameters in which a data type is not covariant.

    A list of tensors of a known shape is a list of tensors.  That does not hold for a parameter
    that stands for what a function in a field takes, or for what a reference holds.
    """
    definition = getattr(header, "_definition", None)
    if definition is None:
        return frozenset()
    found = header._invariant
    if found is None:
        found = header._invariant = frozenset(
            position
            for position in range(len(definition.type_vars))
            if _is_invariant(header, position, set())
        )
    return found


def _is_invariant(header: GlobalTypeVar, position: int, seen: set[tuple[str, int]]) -> bool:
    if (header.name_hint, position) in seen:
        return False
    seen.add((header.name_hint, position))
    definition = header._definition
    if definition is None or position >= len(definition.type_vars):
        return False
    var = definition.type_vars[position]
    fields = [field for constructor in definition.constructors for field in constructor.inputs]
    return any(_occurs_invariant(var, field, False, seen) for field in fields)


def _occurs_invariant(var: TypeVar, ty: Any, inside: bool, seen: set[tuple[str, int]]) -> bool:
    if ty is var:
        return inside
    if isinstance(ty, TypeCall):
        return any(
            _occurs_invariant(var, arg, inside, seen)
            or (_occurs_invariant(var, arg, True, seen) and _is_invariant(ty.func, place, seen))
            for place, arg in enumerate(ty.args)
        )
    if isinstance(ty, RefType):
        return _occurs_invariant(var, ty.value, True, seen)
    if isinstance(ty, TupleType):
        return any(_occurs_invariant(var, field, inside, seen) for field in ty.fields)
    if isinstance(ty, FuncType):
        return any(_occurs_invariant(var, param, True, seen) for param in ty.params or ()) or (
            _occurs_invariant(var, ty.ret, inside, seen)
        )
    return False


# Patterns


class Pattern(Node):
    """What a value is compared with in a clause of a `Match`."""

    __slots__ = ()


class PatternWildcard(Pattern):
    """Matches every value."""

    __slots__ = ()

    def __init__(self, span: Any = None) -> None:
        self.span = span


class PatternVar(Pattern):
    """Matches every value and binds it to a variable."""

    __slots__ = ("var",)
    FIELDS = ("var",)
    DEFS = frozenset({"var"})

    var: Var

    def __init__(self, var: Var, span: Any = None) -> None:
        self.var = var
        self.span = span


class PatternConstructor(Pattern):
    """Matches a value made by a constructor whose fields match the inner patterns.

    Raises:
        TypeError: there are not as many patterns as fields.
    """

    __slots__ = ("_parts", "constructor", "patterns")
    FIELDS = ("constructor", "patterns")

    constructor: Constructor
    patterns: tuple[Pattern, ...]

    def __init__(
        self, constructor: Constructor, patterns: Iterable[Pattern] = (), span: Any = None
    ) -> None:
        self.constructor = constructor
        self.patterns = tuple(patterns)
        if len(self.patterns) != len(constructor.inputs):
            raise TypeError(
                f"pattern of {constructor.qualified_name}: expected {len(constructor.inputs)} "
                f"patterns, one for each field, got {len(self.patterns)}"
            )
        self._parts = _count_parts(self.patterns)  # type: ignore[arg-type]
        self.span = span


class PatternTuple(Pattern):
    """Matches a tuple of as many elements as there are inner patterns, if they match them."""

    __slots__ = ("_parts", "patterns")
    FIELDS = ("patterns",)

    patterns: tuple[Pattern, ...]

    def __init__(self, patterns: Iterable[Pattern], span: Any = None) -> None:
        self.patterns = tuple(patterns)
        self._parts = _count_parts(self.patterns)  # type: ignore[arg-type]
        self.span = span


class Clause(Node):
    """A clause of a `Match`: if the value matches the pattern and the guard holds, the result.

    Attributes:
        lhs: the pattern.
        rhs: the result, a `SeqExpr`.
        guard: a condition over the variables of the pattern, or None.  Its operands may be nested
            calls: it is not in normal form.
    """

    __slots__ = ("guard", "lhs", "rhs")
    FIELDS = ("lhs", "guard", "rhs")

    lhs: Pattern
    guard: Expr | None
    rhs: SeqExpr

    def __init__(
        self, lhs: Pattern, rhs: Expr, guard: Expr | None = None, span: Any = None
    ) -> None:
        self.lhs = lhs
        self.rhs = rhs if isinstance(rhs, SeqExpr) else SeqExpr((), rhs, span=rhs.span)
        self.guard = guard
        self.span = span


class Match(Expr):
    """The result of the first clause whose pattern matches a value.

    Attributes:
        data: the value.
        clauses: the clauses, in order.
        complete: whether the clauses must match every value, which is checked when types are
            inferred; else a value without a clause is a `relaxvm.errors.MatchError` when it occurs.
    """

    __slots__ = ("clauses", "complete", "data")
    FIELDS = ("data", "clauses", "complete")

    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool

    def __init__(
        self,
        data: Expr,
        clauses: Iterable[Clause],
        complete: bool = True,
        ty: Type | None = None,
        span: Any = None,
    ) -> None:
        self.data = data
        self.clauses = tuple(clauses)
        self.complete = complete
        self.ty = ty
        self.span = span


# Helpers


def inner_patterns(pattern: Pattern) -> tuple[Pattern, ...]:
    """The patterns in a pattern."""
    if isinstance(pattern, (PatternConstructor, PatternTuple)):
        return pattern.patterns
    return ()


def walk_pattern(pattern: Pattern) -> Iterator[Pattern]:
    """Yield a pattern and all patterns in it, from left to right."""
    work = [pattern]
    while work:
        found = work.pop()
        yield found
        work += reversed(inner_patterns(found))


def pattern_vars(pattern: Pattern) -> list[Var]:
    """Return the variables that a pattern binds, from left to right."""
    return [inner.var for inner in walk_pattern(pattern) if isinstance(inner, PatternVar)]


def map_pattern(pattern: Pattern, convert: Callable[[Var], Var]) -> Pattern:
    """Return a pattern with its variables converted; the same object if none changes."""
    if isinstance(pattern, PatternVar):
        var = convert(pattern.var)
        return pattern if var is pattern.var else PatternVar(var, pattern.span)
    inner = inner_patterns(pattern)
    new = tuple([map_pattern(p, convert) for p in inner])
    if all(a is b for a, b in zip(inner, new, strict=True)):
        return pattern
    if isinstance(pattern, PatternConstructor):
        return PatternConstructor(pattern.constructor, new, pattern.span)
    return PatternTuple(new, pattern.span)


def type_params_of(ty: Any) -> tuple[TypeVar, ...]:
    """Return the type parameters of a function type; none for any other."""
    return ty.type_params if isinstance(ty, FuncType) else ()
