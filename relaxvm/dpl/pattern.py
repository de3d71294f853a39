"""Patterns: descriptions of expressions, as Python objects.

A pattern is made by a function such as `is_op` or `wildcard` and combined by calls and operators::

    x, w = wildcard(), wildcard()
    relu = is_op("relax.nn.relu")(is_op("relax.matmul")(x, w))

A pattern object that is used twice has to match the same expression both times.  Patterns are
compared by identity: a match is a dict from patterns to what they matched.

Source: ``tvm.relax.dpl.pattern`` of apache-tvm 0.27, with its names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from ..ir.expr import Expr, Type, Var, convert_to_expr
from ..ir.op import Op
from ..messages import describe

if TYPE_CHECKING:
    from .context import PatternContext

__all__ = [
    "AndPattern",
    "AttrPattern",
    "CallPattern",
    "ConstantPattern",
    "DFConstraint",
    "DFPattern",
    "DataTypePattern",
    "DataflowVarPattern",
    "ExprPattern",
    "ExternFuncPattern",
    "FunctionPattern",
    "GlobalVarPattern",
    "NotPattern",
    "OrPattern",
    "PatternSeq",
    "PrimArrPattern",
    "SameShapeConstraint",
    "ShapePattern",
    "TupleGetItemPattern",
    "TuplePattern",
    "TypePattern",
    "UnorderedTuplePattern",
    "VarPattern",
    "WildcardPattern",
    "has_attr",
    "has_dtype",
    "is_call_dps_packed",
    "is_call_packed",
    "is_call_tir",
    "is_const",
    "is_dfv",
    "is_expr",
    "is_gv",
    "is_op",
    "is_shape",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "make_fused_bias_activation_pattern",
    "reject",
    "wildcard",
]

ANY_INDEX: Final = -1
"""The index of an operand, or of an element of a tuple, that may be any."""

CONTEXTS: Final[ContextVar[tuple[PatternContext, ...]]] = ContextVar("contexts", default=())
"""The contexts that were entered, the innermost last."""


def current_context() -> PatternContext | None:
    """Return the innermost `PatternContext`, or None outside of all."""
    entered = CONTEXTS.get()
    return entered[-1] if entered else None


class DFPattern:
    """Base of all patterns."""

    __slots__ = ("__weakref__",)

    def parts(self) -> tuple[DFPattern, ...]:
        """The patterns that this one is made of."""
        return ()

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        """Return a new pattern of this kind, made of other patterns."""
        raise NotImplementedError

    def dup(self) -> DFPattern:
        """Return a copy, of its parts too.  A part that occurs twice is copied once."""
        copies: dict[DFPattern, DFPattern] = {}
        for pattern in post_order(self):
            copies[pattern] = pattern.with_parts([copies[part] for part in pattern.parts()])
        return copies[self]

    # Matching

    def match(self, expr: Expr, var2val: Mapping[Var, Expr] | None = None) -> bool:
        """Check whether an expression matches.

        Args:
            var2val: the values of variables, as `relaxvm.analysis.get_var2val` returns them: a
                pattern of a call also matches a variable that is bound to such a call.
        """
        return self.extract_matched_expr(expr, var2val) is not None

    def extract_matched_expr(
        self, expr: Expr, var2val: Mapping[Var, Expr] | None = None
    ) -> dict[DFPattern, Expr] | None:
        """Return what each part of the pattern matched; None if the expression does not match."""
        from .matcher import extract_matched_expr

        return extract_matched_expr(self, expr, var2val)

    # Combination

    def __call__(
        self, *args: DFPattern, varg_default_wildcard: bool = False, add_constraint: bool = True
    ) -> CallPattern:
        """The pattern of a call of this; see `CallPattern`."""
        return CallPattern(self, args, varg_default_wildcard, add_constraint)

    def __or__(self, other: DFPattern) -> OrPattern:
        return OrPattern(self, other)

    def __and__(self, other: DFPattern) -> AndPattern:
        return AndPattern(self, other)

    def __invert__(self) -> NotPattern:
        return NotPattern(self)

    # Constraints

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """Require attributes, of a call or of a function; others may be there too."""
        return AttrPattern(self, attrs)

    def has_ty(self, ty: Type) -> TypePattern:
        """Require a type: that of the expression, or a wider one."""
        return TypePattern(self, ty)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        """Require the data type of a tensor or scalar."""
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[Any]) -> ShapePattern:
        """Require the shape of a tensor.

        Raises:
            ValueError: `shape` is neither a list nor a tuple.
        """
        if not isinstance(shape, (list, tuple)):
            raise ValueError(f"has_shape: expected a list or tuple, got {describe(shape)}")
        return ShapePattern(self, shape)

    def same_shape_as(self, *others: DFPattern) -> SameShapeConstraint:
        """In the current context: require the tensors that match to have equal shapes."""
        return SameShapeConstraint(self, *others)

    # Edges between patterns

    def used_by(self, other: DFPattern | PatternSeq, index: int = ANY_INDEX) -> PatternSeq:
        """In the current context: `other` uses what this matches, as operand `index` if given."""
        return _joined(self, other, index, only_use=False)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = ANY_INDEX) -> PatternSeq:
        """Like `used_by`, and nothing else uses it."""
        return _joined(self, other, index, only_use=True)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def fork_to(self, *others: DFPattern | PatternSeq) -> None:
        """In the current context: each of the others uses what this matches."""
        for other in others:
            self.used_by(other)

    def __repr__(self) -> str:
        return str(self)


def post_order(root: DFPattern) -> Iterator[DFPattern]:
    """A pattern and all its parts, each once, parts first."""
    done: set[DFPattern] = set()
    work = [(root, iter(root.parts()))]
    seen = {root}
    while work:
        pattern, parts = work[-1]
        for part in parts:
            if part not in seen:
                seen.add(part)
                work.append((part, iter(part.parts())))
                break
        else:
            work.pop()
            if pattern not in done:
                done.add(pattern)
                yield pattern


class _Leaf(DFPattern):
    __slots__ = ()

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        new = object.__new__(type(self))
        for cls in type(self).__mro__:
            for name in cls.__dict__.get("__slots__", ()):
                if name != "__weakref__":
                    setattr(new, name, getattr(self, name))
        return new


class WildcardPattern(_Leaf):
    """Matches any expression."""

    __slots__ = ()

    def redirect_to(self, pattern: DFPattern) -> None:
        raise NotImplementedError(
            "a wildcard cannot be redirected: patterns do not change; make the pattern with the "
            "other pattern in the place of the wildcard"
        )

    def __str__(self) -> str:
        return "*"


class ExprPattern(_Leaf):
    """Matches one operator, or an expression that is structurally equal to `expr`."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __str__(self) -> str:
        return self.expr.name if isinstance(self.expr, Op) else str(self.expr)


class VarPattern(_Leaf):
    """Matches a variable; with `name_hint`, one of this name."""

    __slots__ = ("name",)

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    @property
    def name_hint(self) -> str:
        """The name."""
        return self.name

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class DataflowVarPattern(VarPattern):
    """Matches a `DataflowVar`; with `name_hint`, one of this name."""

    __slots__ = ()


class GlobalVarPattern(VarPattern):
    """Matches the name of a function of the module."""

    __slots__ = ()


class ExternFuncPattern(_Leaf):
    """Matches a packed function; with `global_symbol`, the one of this name."""

    __slots__ = ("global_symbol",)

    def __init__(self, global_symbol: str = "") -> None:
        self.global_symbol = global_symbol

    def __str__(self) -> str:
        return f"ExternFuncPattern({self.global_symbol})"


class ConstantPattern(_Leaf):
    """Matches a constant tensor."""

    __slots__ = ()

    def __str__(self) -> str:
        return "ConstantPattern()"


class PrimArrPattern(_Leaf):
    """Matches a shape of these dimensions."""

    __slots__ = ("fields",)

    def __init__(self, shape: Iterable[Any]) -> None:
        self.fields = tuple(convert_to_expr(dim) for dim in shape)

    def __getitem__(self, index: int) -> Expr:
        return self.fields[index]

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return f"PrimArrPattern([{', '.join(map(str, self.fields))}])"


class CallPattern(DFPattern):
    """Matches a call.

    ``add`` and ``multiply`` also match with their operands exchanged.

    Args:
        op: the pattern of what is called.
        args: the patterns of the operands.
        varg_default_wildcard: whether the call may have more operands than there are patterns.
        add_constraint: whether the operands are used by the call as far as the current
            `PatternContext` is concerned.
    """

    __slots__ = ("args", "op", "varg_default_wildcard")

    def __init__(
        self,
        op: DFPattern,
        args: Iterable[DFPattern] = (),
        varg_default_wildcard: bool = False,
        add_constraint: bool = True,
    ) -> None:
        self.op = op
        self.args = _patterns(args, "a call")
        self.varg_default_wildcard = varg_default_wildcard
        if add_constraint:
            for index, arg in enumerate(self.args):
                arg.used_by(self, index)

    def parts(self) -> tuple[DFPattern, ...]:
        return (self.op, *self.args)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return CallPattern(parts[0], parts[1:], self.varg_default_wildcard, add_constraint=False)

    def __str__(self) -> str:
        args = [*map(str, self.args), *(["..."] if self.varg_default_wildcard else [])]
        return f"{self.op}({', '.join(args)})"


class FunctionPattern(DFPattern):
    """Matches a function by its parameters, or any if None, and its result."""

    __slots__ = ("body", "params")

    def __init__(self, params: Iterable[DFPattern] | None, body: DFPattern) -> None:
        self.params = None if params is None else _patterns(params, "a function")
        self.body = body

    def parts(self) -> tuple[DFPattern, ...]:
        return (*(self.params or ()), self.body)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return FunctionPattern(None if self.params is None else parts[:-1], parts[-1])

    def __str__(self) -> str:
        params = "..." if self.params is None else ", ".join(map(str, self.params))
        return f"FunctionPattern([{params}], {self.body})"


class TuplePattern(DFPattern):
    """Matches a tuple of as many elements, in this order.  ``t[i]`` is the pattern of an element,
    ``t[None]`` that of any element."""

    __slots__ = ("fields",)

    def __init__(self, fields: Iterable[DFPattern]) -> None:
        self.fields = _patterns(fields, "a tuple")

    def parts(self) -> tuple[DFPattern, ...]:
        return self.fields

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return type(self)(parts)

    def __getitem__(self, index: int | None) -> TupleGetItemPattern:
        if index is None:
            return TupleGetItemPattern(self)
        position = index + len(self.fields) if index < 0 else index
        if not 0 <= position < len(self.fields):
            raise IndexError(f"the pattern has {len(self.fields)} elements, index is {index}")
        return TupleGetItemPattern(self, position)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return f"{type(self).__name__}(({', '.join(map(str, self.fields))},))"


class UnorderedTuplePattern(TuplePattern):
    """Matches a tuple whose elements match in some order."""

    __slots__ = ()


class TupleGetItemPattern(DFPattern):
    """Matches an element of a tuple: the one at `index`, or any if None."""

    __slots__ = ("index", "tuple")

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple = tuple_value
        self.index = ANY_INDEX if index is None else index

    def parts(self) -> tuple[DFPattern, ...]:
        return (self.tuple,)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return TupleGetItemPattern(parts[0], self.index)

    def __str__(self) -> str:
        return f"{self.tuple}[{'any' if self.index == ANY_INDEX else self.index}]"


class _Two(DFPattern):
    __slots__ = ("left", "right")
    SIGN = ""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = _patterns((left, right), self.SIGN)

    def parts(self) -> tuple[DFPattern, ...]:
        return (self.left, self.right)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return type(self)(*parts)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.left} {self.SIGN} {self.right})"


class OrPattern(_Two):
    """Matches what the left or the right pattern matches; the left one is tried first."""

    __slots__ = ()
    SIGN = "|"


class AndPattern(_Two):
    """Matches what both patterns match."""

    __slots__ = ()
    SIGN = "&"


class NotPattern(DFPattern):
    """Matches what the pattern does not match."""

    __slots__ = ("reject",)

    def __init__(self, to_reject: DFPattern) -> None:
        self.reject = to_reject

    def parts(self) -> tuple[DFPattern, ...]:
        return (self.reject,)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return NotPattern(parts[0])

    def __str__(self) -> str:
        return f"!({self.reject})"


class _Constrained(DFPattern):
    """A pattern with a further condition."""

    __slots__ = ("pattern",)

    pattern: DFPattern

    def _condition(self) -> Any:
        raise NotImplementedError

    def parts(self) -> tuple[DFPattern, ...]:
        return (self.pattern,)

    def with_parts(self, parts: Sequence[DFPattern]) -> DFPattern:
        return type(self)(parts[0], self._condition())  # type: ignore[call-arg]

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.pattern} has {self._condition()})"


class TypePattern(_Constrained):
    """A pattern whose match has a type, or a narrower one.  Symbolic variables of the type stand
    for dimensions: the same for all uses in a match."""

    __slots__ = ("ty",)

    def __init__(self, pattern: DFPattern, ty: Any) -> None:
        self.pattern = pattern
        self.ty = ty if isinstance(ty, Type) else _as_type(ty)

    def _condition(self) -> Type:
        return self.ty


class DataTypePattern(_Constrained):
    """A pattern whose match has a data type."""

    __slots__ = ("dtype",)

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        self.pattern = pattern
        self.dtype = str(dtype)

    def _condition(self) -> str:
        return self.dtype


class ShapePattern(_Constrained):
    """A pattern whose match is a tensor of a shape."""

    __slots__ = ("shape",)

    def __init__(self, pattern: DFPattern, shape: Iterable[Any]) -> None:
        self.pattern = pattern
        self.shape = tuple(convert_to_expr(dim) for dim in shape)

    def _condition(self) -> tuple[Expr, ...]:
        return self.shape


class AttrPattern(_Constrained):
    """A pattern whose match is a call, a function or an operator with attributes."""

    __slots__ = ("attrs",)

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        self.pattern = pattern
        self.attrs = dict(attrs)

    def _condition(self) -> dict[str, Any]:
        return self.attrs


def _patterns(given: Iterable[DFPattern], what: str) -> tuple[DFPattern, ...]:
    found = tuple(given)
    for pattern in found:
        if not isinstance(pattern, DFPattern):
            raise TypeError(
                f"pattern of {what}: expected patterns, got {describe(pattern)}; is_expr(x) is the "
                "pattern of an expression, wildcard() that of any"
            )
    return found


def _as_type(ty: Any) -> Type:
    as_type = getattr(ty, "as_type", None)
    found = as_type() if callable(as_type) else None
    if not isinstance(found, Type):
        raise TypeError(f"has_ty: expected a type, got {describe(ty)}")
    return found


# Constraints between patterns


class DFConstraint:
    """Base of conditions on several patterns of a `PatternContext`."""

    __slots__ = ()


class SameShapeConstraint(DFConstraint):
    """The tensors that these patterns match have equal shapes."""

    __slots__ = ("args",)

    def __init__(self, *args: DFPattern) -> None:
        self.args = _patterns(args, "same_shape_as")
        context = current_context()
        if context is not None:
            context.add_constraint(self)


class Edge:
    """``producer`` is an operand of ``consumer``.

    Attributes:
        index: the position of the operand, `ANY_INDEX` if it may be any.
        only_use: whether nothing else may use it.
    """

    __slots__ = ("consumer", "index", "only_use", "producer")

    def __init__(
        self, producer: DFPattern, consumer: DFPattern, index: int, only_use: bool
    ) -> None:
        self.producer = producer
        self.consumer = consumer
        self.index = index
        self.only_use = only_use


class PatternSeq:
    """Patterns of which each is used by the next: ``a ^ b``, or ``a >> b`` if it has no other use.

    Attributes:
        patterns: the patterns, in order.
    """

    __slots__ = ("_links", "patterns")

    def __init__(self, patterns: Iterable[DFPattern], only_use: bool = False) -> None:
        self.patterns = list(_patterns(patterns, "a sequence"))
        if not self.patterns:
            raise ValueError("PatternSeq: expected at least one pattern")
        self._links = [(ANY_INDEX, only_use)] * (len(self.patterns) - 1)
        self._add_edges()

    def _add_edges(self) -> None:
        for position, link in enumerate(self._links):
            _add_edge(self.patterns[position], self.patterns[position + 1], *link)

    @classmethod
    def _of(cls, patterns: list[DFPattern], links: list[tuple[int, bool]]) -> PatternSeq:
        new = object.__new__(cls)
        new.patterns = patterns
        new._links = links
        return new

    def used_by(self, other: DFPattern | PatternSeq, index: int = ANY_INDEX) -> PatternSeq:
        """In the current context: the first pattern of `other` uses the last of this."""
        return _joined(self, other, index, only_use=False)

    def only_used_by(self, other: DFPattern | PatternSeq, index: int = ANY_INDEX) -> PatternSeq:
        """Like `used_by`, and nothing else uses it."""
        return _joined(self, other, index, only_use=True)

    def __xor__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.used_by(other)

    def __rshift__(self, other: DFPattern | PatternSeq) -> PatternSeq:
        return self.only_used_by(other)

    def __getitem__(self, index: int) -> DFPattern:
        return self.patterns[index]

    def __len__(self) -> int:
        return len(self.patterns)

    def dup(self) -> PatternSeq:
        """Return a copy, with the same constraints between its patterns."""
        new = self._of([pattern.dup() for pattern in self.patterns], list(self._links))
        new._add_edges()
        return new

    def __repr__(self) -> str:
        text = str(self.patterns[0])
        for pattern, (_, only_use) in zip(self.patterns[1:], self._links, strict=True):
            text += f" {'>>' if only_use else '^'} {pattern}"
        return text


def _add_edge(producer: DFPattern, consumer: DFPattern, index: int, only_use: bool) -> None:
    context = current_context()
    if context is not None:
        context.add_edge(Edge(producer, consumer, index, only_use))


def _joined(
    first: DFPattern | PatternSeq, second: DFPattern | PatternSeq, index: int, only_use: bool
) -> PatternSeq:
    a = first if isinstance(first, PatternSeq) else PatternSeq([first])
    b = second if isinstance(second, PatternSeq) else PatternSeq([second])
    _add_edge(a.patterns[-1], b.patterns[0], index, only_use)
    return PatternSeq._of(a.patterns + b.patterns, [*a._links, (index, only_use), *b._links])


# Constructors


def wildcard() -> WildcardPattern:
    """The pattern of any expression."""
    return WildcardPattern()


def is_op(op_name: str) -> ExprPattern:
    """The pattern of an operator, to be called: ``is_op("relax.add")(wildcard(), wildcard())``.

    Raises:
        ValueError: there is no such operator.
    """
    return ExprPattern(Op.get(op_name))


def is_expr(expr: Expr) -> ExprPattern:
    """The pattern of an expression, and of those structurally equal to it."""
    return ExprPattern(expr)


def is_var(name: str = "") -> VarPattern:
    """The pattern of a variable."""
    return VarPattern(name)


def is_dfv(name: str = "") -> DataflowVarPattern:
    """The pattern of a variable of a dataflow block."""
    return DataflowVarPattern(name)


def is_gv(name: str = "") -> GlobalVarPattern:
    """The pattern of a function of the module."""
    return GlobalVarPattern(name)


def is_const() -> ConstantPattern:
    """The pattern of a constant tensor."""
    return ConstantPattern()


def is_tuple(
    fields: Sequence[DFPattern], unordered: bool = False
) -> TuplePattern | UnorderedTuplePattern:
    """The pattern of a tuple.

    Raises:
        ValueError: `fields` is neither a list nor a tuple.
    """
    if not isinstance(fields, (list, tuple)):
        raise ValueError(f"is_tuple: expected a list or tuple, got {describe(fields)}")
    return UnorderedTuplePattern(fields) if unordered else TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """The pattern of an element of a tuple; None: of any element."""
    return TupleGetItemPattern(tuple_value, index)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """The pattern of a tensor or scalar of a data type."""
    return DataTypePattern(wildcard() if pattern is None else pattern, dtype)


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """The pattern of a call or function with attributes."""
    return AttrPattern(wildcard() if pattern is None else pattern, attrs)


def is_shape(shape: Sequence[Any]) -> PrimArrPattern:
    """The pattern of a shape, as an operand; see `DFPattern.has_shape` for that of a tensor.

    Raises:
        ValueError: `shape` is neither a list nor a tuple.
    """
    if not isinstance(shape, (list, tuple)):
        raise ValueError(f"is_shape: expected a list or tuple, got {describe(shape)}")
    return PrimArrPattern(shape)


def reject(pattern: DFPattern) -> NotPattern:
    """The pattern of what does not match."""
    return NotPattern(pattern)


def _destination_call(op: str, func: DFPattern, args: Any) -> CallPattern:
    if args is None:
        args = wildcard()
    elif isinstance(args, (list, tuple)):
        args = TuplePattern(args)
    return is_op(op)(func, args, varg_default_wildcard=True, add_constraint=False)


def is_call_tir(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None
) -> CallPattern:
    """The pattern of ``R.call_tir`` of a function of the module; None: of any arguments."""
    return _destination_call("relax.call_tir", GlobalVarPattern(func_name), args)


def is_call_dps_packed(
    func_name: str, args: Sequence[DFPattern] | TuplePattern | None = None
) -> CallPattern:
    """The pattern of ``R.call_dps_packed`` of a packed function; None: of any arguments."""
    return _destination_call("relax.call_dps_packed", ExternFuncPattern(func_name), args)


def is_call_packed(func_name: str, args: Sequence[DFPattern] | None = None) -> CallPattern:
    """The pattern of a call of a packed function; None: with any arguments."""
    func = ExternFuncPattern(func_name)
    if args is None:
        return func(varg_default_wildcard=True, add_constraint=False)
    return func(*args)


def make_fused_bias_activation_pattern(
    op_name: str,
    with_bias: bool = False,
    activation: str | None = None,
    allow_reshape: bool = False,
) -> DFPattern:
    """The pattern of an operator of two operands, an added bias and an activation.

    Args:
        op_name: the operator, such as "relax.nn.conv2d".
        with_bias: whether a bias is added to the result.
        activation: the operator that is applied last, such as "relax.nn.relu"; None: none.
        allow_reshape: whether the bias is the result of a reshape.
    """
    out: DFPattern = is_op(op_name)(wildcard(), wildcard())
    if with_bias:
        bias: DFPattern = wildcard()
        if allow_reshape:
            bias = is_op("relax.reshape")(bias, wildcard(), varg_default_wildcard=True)
        out = is_op("relax.add")(out, bias)
    return out if activation is None else is_op(activation)(out)
