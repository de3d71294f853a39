"""Matching one expression with one pattern.

A pattern in which no pattern object occurs twice (a tree) matches an expression or does not,
whatever else has been matched before.  So the failures of such patterns are remembered by a
`Matcher`, and the time to match a tree pattern at every binding of a program is linear in the
program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..ir import (
    Call,
    Constant,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    GlobalVar,
    Op,
    PrimType,
    SeqExpr,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    prove_equal,
    structural_equal,
)
from ..ir.expr import BaseFunc
from ..ir.infer import BaseCheckResult, bind_type
from .pattern import (
    ANY_INDEX,
    AndPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataflowVarPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    ExternFuncPattern,
    FunctionPattern,
    GlobalVarPattern,
    NotPattern,
    OrPattern,
    PrimArrPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    UnorderedTuplePattern,
    VarPattern,
    WildcardPattern,
    post_order,
)

__all__ = ["Matcher", "extract_matched_expr", "match_expr"]

_COMMUTATIVE: Final = frozenset({"relax.add", "relax.multiply"})

_MOST_UNORDERED: Final = 16
"""The most elements of an unordered tuple pattern."""


class Matcher:
    """Matches patterns with the expressions of one function.

    Args:
        values: the values of variables; it may grow, but a value must not change.
    """

    def __init__(self, values: Mapping[Var, Expr] | None = None) -> None:
        self._values: Mapping[Var, Expr] = {} if values is None else values
        self._found: dict[DFPattern, Expr] = {}
        self._order: list[DFPattern] = []
        self._dims: dict[Var, Expr] = {}
        self._trees: dict[DFPattern, bool] = {}
        self._failed: dict[tuple[DFPattern, int], Expr] = {}
        """(tree pattern, id of an expression) -> the expression, which is kept alive."""

    def extract(self, pattern: DFPattern, expr: Expr) -> dict[DFPattern, Expr] | None:
        """Return what each part of the pattern matched, or None."""
        self._found = {}
        self._order = []
        self._dims = {}
        if pattern not in self._trees:
            self._note_trees(pattern)
        if not self._match(pattern, expr):
            return None
        return self._found

    def _note_trees(self, root: DFPattern) -> None:
        """Find out which parts of a pattern are trees that share nothing with the rest of it."""
        uses: dict[DFPattern, int] = {root: 1}
        patterns = list(post_order(root))
        for pattern in patterns:
            for part in pattern.parts():
                uses[part] = uses.get(part, 0) + 1
        for pattern in patterns:
            # A symbolic variable of a type is shared by all types that mention it.
            own = uses[pattern] == 1 and not isinstance(pattern, TypePattern)
            self._trees[pattern] = own and all(self._trees[p] for p in pattern.parts())

    def value_of(self, expr: Expr) -> Expr:
        """Return the value of a variable if it is known, else the expression itself."""
        seen = 0
        while isinstance(expr, Var):
            value = self._values.get(expr)
            if value is None or seen > len(self._values):
                break
            expr = value
            seen += 1
        return expr

    def _match(self, pattern: DFPattern, expr: Expr) -> bool:
        known = self._found.get(pattern)
        if known is not None:
            return known is expr or self.value_of(expr) is known
        tree = self._trees[pattern]
        if tree and (pattern, id(expr)) in self._failed:
            return False
        mark = len(self._order)
        dims = self._dims
        matched = _RULES[type(pattern)](self, pattern, expr)
        if matched is None:
            for added in self._order[mark:]:
                del self._found[added]
            del self._order[mark:]
            self._dims = dims
            if tree:
                self._failed[pattern, id(expr)] = expr
            return False
        self._found[pattern] = matched
        self._order.append(pattern)
        return True

    def _all(self, patterns: Sequence[DFPattern], exprs: Iterable[Expr]) -> bool:
        return all(self._match(p, e) for p, e in zip(patterns, exprs, strict=False))

    # The rules: each returns the expression that its pattern stands for, or None

    def _wildcard(self, pattern: Any, expr: Expr) -> Expr | None:
        return expr

    def _expr(self, pattern: Any, expr: Expr) -> Expr | None:
        if isinstance(pattern.expr, Op):
            return expr if pattern.expr is expr else None
        return expr if structural_equal(pattern.expr, expr) else None

    def _var(self, pattern: Any, expr: Expr) -> Expr | None:
        return expr if isinstance(expr, Var) and pattern.name in ("", expr.name) else None

    def _dataflow_var(self, pattern: Any, expr: Expr) -> Expr | None:
        return self._var(pattern, expr) if isinstance(expr, DataflowVar) else None

    def _global_var(self, pattern: Any, expr: Expr) -> Expr | None:
        named = isinstance(expr, GlobalVar) and pattern.name in ("", expr.name)
        return expr if named else None

    def _extern_func(self, pattern: Any, expr: Expr) -> Expr | None:
        if not isinstance(expr, ExternFunc):
            return None
        return expr if pattern.global_symbol in ("", expr.global_symbol) else None

    def _constant(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        return value if isinstance(value, Constant) else None

    def _shape_value(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        if isinstance(value, ShapeExpr) and _same_dims(pattern.fields, value.values):
            return value
        return None

    def _call(self, pattern: Any, expr: Expr) -> Expr | None:
        call = self.value_of(expr)
        if not isinstance(call, Call):
            return None
        patterns, args = pattern.args, call.args
        if len(patterns) != len(args) and not (
            len(patterns) < len(args) and (pattern.varg_default_wildcard or _is_packed(pattern))
        ):
            return None
        if not self._match(pattern.op, call.op):
            return None
        mark, dims = len(self._order), self._dims
        if self._all(patterns, args):
            return call
        if len(patterns) == len(args) == 2 and _is_commutative(call.op):
            for added in self._order[mark:]:
                del self._found[added]
            del self._order[mark:]
            self._dims = dims
            if self._all(patterns, (args[1], args[0])):
                return call
        return None

    def _function(self, pattern: Any, expr: Expr) -> Expr | None:
        func = self.value_of(expr)
        if not isinstance(func, Function):
            return None
        if pattern.params is not None and (
            len(pattern.params) != len(func.params) or not self._all(pattern.params, func.params)
        ):
            return None
        outer = self._values
        self._values = {**outer, **_values_in(func.body)}
        try:
            return func if self._match(pattern.body, func.body.body) else None
        finally:
            self._values = outer

    def _tuple(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        if not isinstance(value, Tuple) or len(value.fields) != len(pattern.fields):
            return None
        return value if self._all(pattern.fields, value.fields) else None

    def _unordered_tuple(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        if not isinstance(value, Tuple) or len(value.fields) != len(pattern.fields):
            return None
        if len(value.fields) > _MOST_UNORDERED:
            raise ValueError(
                f"an unordered tuple pattern has {len(value.fields)} elements: expected at most "
                f"{_MOST_UNORDERED}"
            )
        return value if self._assign(pattern.fields, list(value.fields)) else None

    def _assign(self, patterns: Sequence[DFPattern], exprs: list[Expr]) -> bool:
        """Match the first pattern with some expression, and the rest with the others."""
        if not patterns:
            return True
        for position, expr in enumerate(exprs):
            mark, dims = len(self._order), self._dims
            if not self._match(patterns[0], expr):
                continue
            if self._assign(patterns[1:], exprs[:position] + exprs[position + 1 :]):
                return True
            for added in self._order[mark:]:
                del self._found[added]
            del self._order[mark:]
            self._dims = dims
        return False

    def _tuple_get_item(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        if not isinstance(value, TupleGetItem) or pattern.index not in (ANY_INDEX, value.index):
            return None
        return value if self._match(pattern.tuple, value.tuple_value) else None

    def _or(self, pattern: Any, expr: Expr) -> Expr | None:
        for part in (pattern.left, pattern.right):
            if self._match(part, expr):
                return self._found[part]
        return None

    def _and(self, pattern: Any, expr: Expr) -> Expr | None:
        if self._match(pattern.left, expr) and self._match(pattern.right, expr):
            return self._found[pattern.left]
        return None

    def _not(self, pattern: Any, expr: Expr) -> Expr | None:
        mark, dims = len(self._order), self._dims
        if not self._match(pattern.reject, expr):
            return expr
        for added in self._order[mark:]:
            del self._found[added]
        del self._order[mark:]
        self._dims = dims
        return None

    def _type(self, pattern: Any, expr: Expr) -> Expr | None:
        if expr.ty is None or not self._match(pattern.pattern, expr):
            return None
        dims = dict(self._dims)
        if bind_type(pattern.ty, expr.ty, dims) is not BaseCheckResult.PASS:
            return None
        self._dims = dims
        return self._found[pattern.pattern]

    def _data_type(self, pattern: Any, expr: Expr) -> Expr | None:
        ty = expr.ty
        if not isinstance(ty, (TensorType, PrimType)) or ty.dtype != pattern.dtype:
            return None
        return self._found[pattern.pattern] if self._match(pattern.pattern, expr) else None

    def _shape(self, pattern: Any, expr: Expr) -> Expr | None:
        dims = expr.ty.dims if isinstance(expr.ty, TensorType) else None
        if dims is None or not _same_dims(pattern.shape, dims):
            return None
        return self._found[pattern.pattern] if self._match(pattern.pattern, expr) else None

    def _attr(self, pattern: Any, expr: Expr) -> Expr | None:
        value = self.value_of(expr)
        if isinstance(value, (Call, BaseFunc)):
            attrs: Mapping[str, Any] = value.attrs
        elif isinstance(value, Op):
            attrs = {"name": value.name, "is_pure": value.is_pure}
        else:
            return None
        missing = object()
        for name, wanted in pattern.attrs.items():
            if not _same_attr(wanted, attrs.get(name, missing)):
                return None
        return self._found[pattern.pattern] if self._match(pattern.pattern, expr) else None


_Rule = Callable[[Matcher, Any, Expr], Expr | None]

_RULES: Final[dict[type, _Rule]] = {
    AndPattern: Matcher._and,
    AttrPattern: Matcher._attr,
    CallPattern: Matcher._call,
    ConstantPattern: Matcher._constant,
    DataTypePattern: Matcher._data_type,
    DataflowVarPattern: Matcher._dataflow_var,
    ExprPattern: Matcher._expr,
    ExternFuncPattern: Matcher._extern_func,
    FunctionPattern: Matcher._function,
    GlobalVarPattern: Matcher._global_var,
    NotPattern: Matcher._not,
    OrPattern: Matcher._or,
    PrimArrPattern: Matcher._shape_value,
    ShapePattern: Matcher._shape,
    TupleGetItemPattern: Matcher._tuple_get_item,
    TuplePattern: Matcher._tuple,
    TypePattern: Matcher._type,
    UnorderedTuplePattern: Matcher._unordered_tuple,
    VarPattern: Matcher._var,
    WildcardPattern: Matcher._wildcard,
}


def _is_commutative(op: Expr) -> bool:
    return isinstance(op, Op) and op.name in _COMMUTATIVE


def _is_packed(pattern: CallPattern) -> bool:
    """Whether the callee takes further operands that say nothing about what is computed."""
    op = pattern.op
    return (
        isinstance(op, ExprPattern) and isinstance(op.expr, Op) and op.expr.name == "relax.call_tir"
    )


def _values_in(seq: SeqExpr) -> dict[Var, Expr]:
    return {b.var: b.value for block in seq.blocks for b in block.bindings}


def _same_dims(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return len(a) == len(b) and all(prove_equal(x, y) for x, y in zip(a, b, strict=True))


def _same_attr(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(wanted) != len(found):
            return False
        return all(_same_attr(w, f) for w, f in zip(wanted, found, strict=True))
    if isinstance(wanted, Expr) or isinstance(found, Expr):
        wanted, found = _plain(wanted), _plain(found)
        if isinstance(wanted, Expr) and isinstance(found, Expr):
            return structural_equal(wanted, found)
    return _kind_of(wanted) is _kind_of(found) and bool(wanted == found)


def _kind_of(value: Any) -> type:
    """The class of an attribute; that of an index, as of `split`, is int."""
    return int if isinstance(value, int) and type(value) is not bool else type(value)


def _plain(value: Any) -> Any:
    """The value of a scalar or string constant."""
    return getattr(value, "value", value) if isinstance(value, Expr) else value


def extract_matched_expr(
    pattern: DFPattern, expr: Expr, var2val: Mapping[Var, Expr] | None = None
) -> dict[DFPattern, Expr] | None:
    """Return what each part of a pattern matched, or None; see `DFPattern.match`."""
    return Matcher(var2val).extract(pattern, expr)


def match_expr(pattern: DFPattern, expr: Expr, var2val: Mapping[Var, Expr] | None = None) -> bool:
    """Check whether an expression matches a pattern; see `DFPattern.match`."""
    return extract_matched_expr(pattern, expr, var2val) is not None
