"""Replacing what a pattern matches.

`rewrite_call` and `PatternMatchingRewriter` replace single expressions, again and again until
nothing changes.  `rewrite_bindings` replaces the values of several bindings of a dataflow block at
once.

Source: ``tvm.relax.dpl.rewrite`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from ..analysis.structure import remove_all_unused, without_unused
from ..analysis.variables import uses_of_binding
from ..core.checkpoints import checkpoint
from ..errors import did_you_mean
from ..executable.debug_info import FusedSpan, Part
from ..ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    IRModule,
    MatchCast,
    Op,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    convert_to_expr,
    structural_equal,
)
from ..ir.expr import Call, Constant, ShapeExpr
from ..ir.node import KINDS
from ..messages import describe
from ..transform.canonicalize_bindings import canonicalize_bindings
from ..transform.eliminate_common_subexpr import eliminate_common_subexpr
from .context import PatternContext
from .matcher import Matcher
from .pattern import (
    CallPattern,
    ConstantPattern,
    DFPattern,
    ExprPattern,
    NotPattern,
    OrPattern,
    TupleGetItemPattern,
    TuplePattern,
    WildcardPattern,
    post_order,
)
from .replacing import bindings_for, with_new_values

__all__ = [
    "ExprPatternRewriter",
    "OrRewriter",
    "PatternMatchingRewriter",
    "rewrite_bindings",
    "rewrite_call",
    "rewrite_calls",
]

Matches = dict[DFPattern, Expr]
Replace = Callable[[Expr, Matches], Any]

_MOST_REWRITES: Final = 10_000
"""A rewriter that has changed a function this often, and 16 times per binding, has no end."""


class _Rule:
    """A pattern without alternatives, and what replaces its matches.

    Attributes:
        also: patterns of which this is an alternative; they match when it does.
        operators: what matches mentions all of these.
        callee: the operator whose calls the pattern matches; None if it matches others, too.
        is_item: whether the pattern matches elements of tuples alone.
    """

    __slots__ = ("also", "callee", "is_item", "operators", "pattern", "replace")

    def __init__(self, pattern: DFPattern, replace: Replace, also: tuple[DFPattern, ...]) -> None:
        self.pattern = pattern
        self.replace = replace
        self.also = also
        self.operators = operators_of(pattern)
        callee = pattern.op if isinstance(pattern, CallPattern) else None
        op = callee.expr if isinstance(callee, ExprPattern) else None
        self.callee = op if isinstance(op, Op) else None
        self.is_item = isinstance(pattern, TupleGetItemPattern)

    def excludes(self, value: Expr) -> bool:
        """Whether the pattern cannot match, for a reason that is seen at once."""
        if not isinstance(value, Call):
            return False  # a variable stands for its value
        return self.is_item or (self.callee is not None and value.op is not self.callee)


def operators_of(root: DFPattern) -> frozenset[Op]:
    """The operators that every expression mentions that a pattern matches."""
    found: dict[DFPattern, frozenset[Op]] = {}
    for pattern in post_order(root):
        parts = [found[part] for part in pattern.parts()]
        if isinstance(pattern, NotPattern):
            parts = []
        elif isinstance(pattern, OrPattern):
            parts = [parts[0] & parts[1]]
        elif isinstance(pattern, ExprPattern) and isinstance(pattern.expr, Op):
            parts = [frozenset({pattern.expr})]
        found[pattern] = frozenset().union(*parts)
    return found[root]


class _Operators(ExprVisitor):
    def __init__(self) -> None:
        self.found: set[Op] = set()

    def visit_op(self, op: Op) -> None:
        self.found.add(op)


def operators_in(func: Function) -> set[Op]:
    """The operators that a function mentions."""
    visitor = _Operators()
    visitor.visit(func)
    return visitor.found


def _rules(pattern: DFPattern, replace: Replace, also: tuple[DFPattern, ...] = ()) -> list[_Rule]:
    """One rule per alternative: where the rewriter declines one, the next is tried."""
    if isinstance(pattern, OrPattern):
        also = (*also, pattern)
        return _rules(pattern.left, replace, also) + _rules(pattern.right, replace, also)
    return [_Rule(pattern, replace, also)]


class PatternMatchingRewriter:
    """Rewrites expressions by patterns: made by `from_pattern` or `from_module`, joined by ``|``.

    Call it with a function or a module.
    """

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = list(rules)

    @staticmethod
    def from_pattern(pattern: DFPattern, func: Replace) -> PatternMatchingRewriter:
        """Return the rewriter that `rewrite_call` applies."""
        return PatternMatchingRewriter(_rules(pattern, func))

    @staticmethod
    def from_module(mod: IRModule) -> PatternMatchingRewriter:
        """Return a rewriter that replaces what the function ``pattern`` of a module computes by
        what its function ``replacement`` computes.  Both have the same parameters, which stand for
        any value of their type.

        Raises:
            ValueError: a function is missing, or their parameters differ.
            TypeError: a function has control flow or returns a tuple.
        """
        for name in ("pattern", "replacement"):
            if name not in mod:
                names = [var.name for var in mod]
                raise ValueError(
                    f"a rewriter's module has the functions 'pattern' and 'replacement': {name!r} "
                    f"is missing{did_you_mean(name, names)}"
                )
        pattern, replacement = mod["pattern"], mod["replacement"]
        if not structural_equal(
            Function(pattern.params, Tuple(()), is_pure=True),
            Function(replacement.params, Tuple(()), is_pure=True),
        ):
            raise ValueError(
                "a rewriter's functions 'pattern' and 'replacement' have the same parameters, got "
                f"({', '.join(str(p.ty) for p in pattern.params)}) and "
                f"({', '.join(str(p.ty) for p in replacement.params)})"
            )
        root, params = _pattern_of(pattern)
        value_of = _values_of(replacement)

        def replace(expr: Expr, matches: Matches) -> Expr:
            given = {
                new: matches[params[old]]
                for old, new in zip(pattern.params, replacement.params, strict=True)
                if params[old] in matches
            }
            return _Inlined(value_of, given).visit(replacement.body.body)  # type: ignore[no-any-return]

        return PatternMatchingRewriter.from_pattern(root, replace)

    def __call__(self, obj: Any) -> Any:
        """Return a function or a module rewritten; functions of a module that are not Relax stay.

        Raises:
            RuntimeError: the rewriter finds no end.
        """
        if isinstance(obj, IRModule):
            new = obj.copy()
            for var, func in obj.items():
                if isinstance(func, Function):
                    rewritten = self(func)
                    if rewritten is not func:
                        new[var] = rewritten
            return new
        if not isinstance(obj, Function):
            raise TypeError(f"a rewriter takes a Function or an IRModule, got {describe(obj)}")
        budget = _Budget()
        func = obj
        while self.may_match(operators_in(func)):
            sweep = _Sweep(self._rules, budget)
            new = sweep.visit(func)
            if not sweep.changed:
                return func
            func = remove_all_unused(eliminate_common_subexpr(canonicalize_bindings(new)))
            func = remove_all_unused(canonicalize_bindings(func))
        return func

    def may_match(self, operators: Collection[Op]) -> bool:
        """Whether a rule can match in a function that mentions no other operators than these."""
        return any(rule.operators.issubset(operators) for rule in self._rules)

    def __or__(self, other: PatternMatchingRewriter) -> PatternMatchingRewriter:
        """A rewriter that applies both; this one is tried first."""
        return PatternMatchingRewriter(self._rules + other._rules)


class ExprPatternRewriter(PatternMatchingRewriter):
    """Replaces what a pattern matches, as `PatternMatchingRewriter.from_pattern`."""

    def __init__(self, pattern: DFPattern, func: Replace) -> None:
        super().__init__(_rules(pattern, func))


class OrRewriter(PatternMatchingRewriter):
    """Applies two rewriters, the first one first, as ``lhs | rhs``."""

    def __init__(self, lhs: PatternMatchingRewriter, rhs: PatternMatchingRewriter) -> None:
        super().__init__([*lhs._rules, *rhs._rules])


class _Budget:
    """Counts rewrites, so that a rewriter that always changes something ends with an error."""

    def __init__(self) -> None:
        self.used = 0
        self.bindings = 0

    def spend(self) -> None:
        self.used += 1
        if self.used > _MOST_REWRITES + 16 * self.bindings:
            raise RuntimeError(
                f"the rewriter has changed the function {self.used} times and finds no end; it "
                "has to return the expression itself where nothing is to be done"
            )


class _Sweep(ExprMutator):
    """Applies rules to every binding, in order.  What a rule returns is looked at again."""

    def __init__(self, rules: Sequence[_Rule], budget: _Budget) -> None:
        super().__init__()
        self.changed = False
        self._rules = rules
        self._budget = budget
        self._values: dict[Var, Expr] = {}
        self._places: dict[Expr, Part] = {}
        self._matcher = Matcher(self._values)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        is_dataflow = isinstance(block, DataflowBlock)
        queue = deque(block.bindings)
        self._budget.bindings = max(self._budget.bindings, len(queue))
        done: list[Binding] = []
        while queue:
            checkpoint()
            binding = queue.popleft()
            new = self.visit_binding(binding)
            assert isinstance(new, Binding)
            if isinstance(new, VarBinding):
                value, parts = self._rewritten(new.value)
                if value is not None:
                    self._budget.spend()
                    self.changed = True
                    made_of = VarBinding(new.var, new.value, FusedSpan.of(new.span, parts))
                    again = bindings_for(value, made_of, is_dataflow)
                    var = again[-1].var
                    if var is not binding.var:
                        self.var_map[binding.var] = var
                    queue.extendleft(reversed(again))
                    continue
                self._values[new.var] = new.value
                self._places[new.value] = new.span, new.var.name
            done.append(new)
        if is_dataflow:
            self._hide(done)
        if len(done) == len(block.bindings) and all(map(_is_same, done, block.bindings)):
            return block
        new_block: BindingBlock = KINDS[type(block)](done, block.span)
        return new_block

    def _hide(self, bindings: list[Binding]) -> None:
        """Forget the values that are not valid outside of the dataflow block."""
        for binding in bindings:
            if isinstance(binding.var, DataflowVar) or any(
                isinstance(var, DataflowVar) for var in uses_of_binding(binding)
            ):
                self._values.pop(binding.var, None)

    def _rewritten(self, value: Expr) -> tuple[Expr | None, list[Part]]:
        """The new value, and the other bindings whose calls were matched."""
        for rule in self._rules:
            if rule.excludes(value):
                continue
            matches = self._matcher.extract(rule.pattern, value)
            if matches is None:
                continue
            found = matches[rule.pattern]
            matches.update(dict.fromkeys(rule.also, found))
            new = rule.replace(value, matches)
            if new is None:
                raise TypeError(
                    "a rewriter returns the new expression, or the expression that it got; got None"
                )
            expr = convert_to_expr(new)
            if expr is not value and not structural_equal(expr, value):
                calls = [each for each in matches.values() if isinstance(each, Call)]
                places = dict.fromkeys(call for call in reversed(calls) if call is not value)
                return expr, [self._places[call] for call in places if call in self._places]
        return None, []


def _is_same(a: object, b: object) -> bool:
    return a is b


# Rewriters that are written as a module


def _values_of(func: Function) -> dict[Var, Expr]:
    values: dict[Var, Expr] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, MatchCast):
                raise TypeError("a function of a rewriter's module has no match_cast")
            values[binding.var] = binding.value
    return values


def _pattern_of(func: Function) -> tuple[DFPattern, dict[Var, DFPattern]]:
    """The pattern of the result of a function, and those of its parameters."""
    params: dict[Var, DFPattern] = {p: WildcardPattern().has_ty(p.ty) for p in func.params}
    found: dict[Expr, DFPattern] = {param: part for param, part in params.items()}  # noqa: C416

    def of(expr: Any) -> DFPattern:
        if isinstance(expr, Var) and expr in found:
            return found[expr]
        if isinstance(expr, Call):
            args = [of(arg) for arg in expr.args]
            call: DFPattern = CallPattern(ExprPattern(expr.op), args, add_constraint=False)
            return call.has_attr(expr.attrs) if expr.attrs else call
        if isinstance(expr, Tuple):
            return TuplePattern([of(field) for field in expr.fields])
        if isinstance(expr, TupleGetItem):
            return TupleGetItemPattern(of(expr.tuple_value), expr.index)
        if isinstance(expr, Constant):
            return ConstantPattern() & ExprPattern(expr)
        if isinstance(expr, ShapeExpr) or type(expr.ty).__name__ == "PrimType":
            return ExprPattern(expr)
        raise TypeError(
            f"function 'pattern' of a rewriter's module: expected calls, tuples and constants, got "
            f"{type(expr).__name__}"
        )

    for var, value in _values_of(func).items():
        found[var] = of(value)
    result = of(func.body.body)
    if isinstance(result, TuplePattern):
        raise TypeError(
            "function 'pattern' of a rewriter's module returns a tuple: expected one expression; "
            "rewrite_bindings replaces several"
        )
    return result, params


class _Inlined(ExprMutator):
    """An expression with the values of its variables in their places."""

    def __init__(self, values: Mapping[Var, Expr], given: Mapping[Var, Expr]) -> None:
        super().__init__()
        self._values = values
        self._done: dict[Var, Expr] = dict(given)

    def visit_var(self, var: Var) -> Expr:
        known = self._done.get(var)
        if known is None:
            known = var if var not in self._values else self.visit(self._values[var])
            self._done[var] = known
        return known

    def visit_all(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = [self.visit(expr) for expr in exprs]
        return exprs if all(map(_is_same, new, exprs)) else tuple(new)


def rewrite_call(pattern: DFPattern, rewriter: Replace, func: Function) -> Function:
    """Replace the expressions of a function that match, until none does or the rewriter declines.

    Args:
        pattern: the pattern.  The alternatives of ``a | b`` are tried one by one.
        rewriter: called with the expression and a dict from patterns to what they matched; returns
            the new expression, or the one it got to decline.
        func: the function.

    Returns:
        The function after the change, without the bindings that became unused and without common
        subexpressions; `func` itself if nothing was replaced.

    Raises:
        RuntimeError: the rewriter finds no end.
    """
    new: Function = PatternMatchingRewriter.from_pattern(pattern, rewriter)(func)
    return new


def rewrite_calls(rules: Iterable[tuple[DFPattern, Replace]], func: Function) -> Function:
    """Apply `rewrite_call` with one pattern and its rewriter after the other.  Patterns of
    operators that the function does not have take next to no time."""
    operators = operators_in(func)
    for pattern, replace in rules:
        rewriter = PatternMatchingRewriter.from_pattern(pattern, replace)
        if rewriter.may_match(operators):
            before, func = func, rewriter(func)
            if func is not before:
                operators = operators_in(func)
    return func


# Several bindings at once


def rewrite_bindings(
    ctx: PatternContext,
    rewriter: Callable[[dict[DFPattern, Var], dict[Var, Expr]], Mapping[Var, Any]],
    func: Function,
) -> Function:
    """Replace values of bindings in the dataflow blocks that match a context.

    Args:
        ctx: the patterns and the edges between them.
        rewriter: called with a dict from patterns to variables, and the values of the variables of
            the block; returns the variables whose values change, with the new values.  These may
            mention any variable of the block, also one that is defined later, unless it depends on
            the variable itself.  An empty dict declines the match.
        func: the function.

    Raises:
        RuntimeError: the rewriter finds no end.
        ValueError: a new value depends on its own variable.
    """
    rewriting = _Bindings(ctx, rewriter)
    new: Function = rewriting.visit(func)
    return remove_all_unused(new) if rewriting.budget.used else func


class _Bindings(ExprMutator):
    def __init__(self, ctx: PatternContext, rewriter: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._ctx = ctx
        self._rewriter = rewriter
        self.budget = _Budget()

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        visited = super().visit_block(block)
        if not isinstance(visited, DataflowBlock):
            return visited
        new: DataflowBlock = visited
        self.budget.bindings += len(new.bindings)
        while True:
            changes = self._changes(new)
            if changes is None:
                return new
            self.budget.spend()
            changed = with_new_values(new, changes)
            outputs = {b.var for b in changed.bindings if not isinstance(b.var, DataflowVar)}
            # What has been replaced would match again.
            used = without_unused(changed, outputs)
            assert isinstance(used, DataflowBlock)
            new = used

    def _changes(self, block: DataflowBlock) -> dict[Var, Expr] | None:
        values = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
        for matches in self._ctx.matches_in(block):
            returned = self._rewriter(matches, dict(values))
            if not isinstance(returned, Mapping):
                raise TypeError(
                    "rewrite_bindings: the rewriter returns a dict from variables to their new "
                    f"values, got {describe(returned)}"
                )
            changes = {var: convert_to_expr(new) for var, new in returned.items()}
            for var in changes:
                if var not in values:
                    raise ValueError(f"rewrite_bindings: {var} is not bound in the dataflow block")
            if changes:
                return changes
        return None
