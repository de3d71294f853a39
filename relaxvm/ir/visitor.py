"""Base classes for walking expressions (`ExprVisitor`) and for rewriting them (`ExprMutator`).

Both dispatch by class: ``visit_call`` handles `Call`, and so on.  A subclass overrides the methods
that it needs and calls those of the base class to visit children.  Scalars that are arguments or
dimensions are visited as leaves by `visit_scalar`; types by `visit_type`, which does nothing by
default.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from ..core import checkpoints
from .adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternVar,
    map_pattern,
    walk_pattern,
)
from .equality import structural_equal
from .expr import (
    BaseFunc,
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    GlobalVar,
    If,
    IntImm,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    VarBinding,
    joined_blocks,
)
from .infer import declared_ret_type, infer_type, type_free_vars
from .node import KINDS
from .op import Op

__all__ = ["ExprMutator", "ExprVisitor", "note_binding", "post_order_visit"]

_METHODS: Final[dict[type, str]] = {
    Call: "visit_call",
    Var: "visit_var",
    DataflowVar: "visit_var",
    Tuple: "visit_tuple",
    TupleGetItem: "visit_tuple_getitem",
    ShapeExpr: "visit_shape",
    Constant: "visit_constant",
    If: "visit_if",
    Match: "visit_match",
    Constructor: "visit_constructor",
    SeqExpr: "visit_seq",
    Function: "visit_function",
    GlobalVar: "visit_global_var",
    ExternFunc: "visit_extern_func",
    Op: "visit_op",
    StringImm: "visit_imm",
    DataTypeImm: "visit_imm",
    IntImm: "visit_scalar",
    FloatImm: "visit_scalar",
}
"""Class -> method.  Any other expression of `PrimType` is a scalar; another function (PrimFunc) is
left alone."""


_LEAVES: Final = frozenset(
    {"visit_global_var", "visit_extern_func", "visit_op", "visit_constant", "visit_imm",
     "visit_scalar", "visit_other_function", "visit_constructor"}
)  # fmt: skip
"""Methods that do nothing unless a subclass overrides them."""


Method = Callable[[Any, Any], Any]


class _Walker:
    """Base of visitors and mutators: the methods of a class of them, by class of expressions.

    A method that would do nothing is None.  The table is made with the class, so that neither an
    instance nor a visit has to look for methods.
    """

    _BASE: ClassVar[type[_Walker]]
    _METHODS: ClassVar[dict[type, Method | None]]
    _NUMBERS_STAY: ClassVar[bool] = False
    """Whether numbers are not visited: `visit_scalar` would not change them."""

    _methods: dict[type, Method | None]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if _Walker in cls.__bases__:
            cls._BASE = cls
        cls._METHODS = {kind: cls._method_named(name) for kind, name in _METHODS.items()}
        if cls._NUMBERS_STAY:
            cls._METHODS.update({IntImm: None, FloatImm: None})

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._methods = cls._METHODS  # faster to get from the instance
        return self

    @classmethod
    def _method_named(cls, name: str) -> Method | None:
        method: Method = getattr(cls, name)
        return None if name in _LEAVES and method is getattr(cls._BASE, name) else method

    def _visit_other(self, expr: Any) -> Any:
        """Visit an expression of a class that is not in the table: one made elsewhere."""
        cls = type(expr)
        name = _METHODS.get(KINDS.get(cls, cls))
        if name is None:
            name = "visit_other_function" if issubclass(cls, BaseFunc) else "visit_scalar"
        method = self._methods[cls] = self._method_named(name)
        return expr if method is None else method(self, expr)


_OTHER: Final[Method] = _Walker._visit_other


class ExprVisitor(_Walker):
    """Walks an expression in order of evaluation; shared expressions are visited once per use."""

    def visit(self, expr: Expr) -> None:
        """Walk any expression."""
        method = self._methods.get(type(expr), _OTHER)
        if method is not None:
            method(self, expr)

    def visit_var(self, var: Var) -> None:
        """A use of a variable."""

    def visit_var_def(self, var: Var) -> None:
        """The definition of a variable, as a parameter or by a binding."""

    def visit_global_var(self, var: GlobalVar) -> None:
        """A leaf."""

    def visit_extern_func(self, func: ExternFunc) -> None:
        """A leaf."""

    def visit_op(self, op: Op) -> None:
        """A leaf."""

    def visit_constant(self, constant: Constant) -> None:
        """A leaf."""

    def visit_imm(self, imm: Expr) -> None:
        """A leaf: a string or a data type."""

    def visit_scalar(self, scalar: Expr) -> None:
        """A scalar expression other than a variable."""

    def visit_type(self, ty: Type) -> None:
        """The type of a parameter, a match_cast or an argument."""

    def visit_tuple(self, expr: Tuple) -> None:
        for field in expr.fields:
            self.visit(field)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> None:
        self.visit(expr.tuple_value)

    def visit_shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            self.visit(value)

    def visit_call(self, call: Call) -> None:
        self.visit(call.op)
        for arg in call.args:
            self.visit(arg)
        for ty in call.ty_args:
            self.visit_type(ty)

    def visit_if(self, expr: If) -> None:
        checkpoints.checkpoint()
        self.visit(expr.cond)
        self.visit(expr.true_branch)
        self.visit(expr.false_branch)

    def visit_constructor(self, constructor: Constructor) -> None:
        """A leaf: a constructor of a data type as a function."""

    def visit_match(self, expr: Match) -> None:
        checkpoints.checkpoint()
        self.visit(expr.data)
        for clause in expr.clauses:
            self.visit_clause(clause)

    def visit_clause(self, clause: Clause) -> None:
        """The pattern, the guard and the result of a clause."""
        self.visit_pattern(clause.lhs)
        if clause.guard is not None:
            self.visit(clause.guard)
        self.visit(clause.rhs)

    def visit_pattern(self, pattern: Pattern) -> None:
        """The pattern of a clause, with all patterns in it."""
        for inner in walk_pattern(pattern):
            if isinstance(inner, PatternVar):
                self.visit_var_def(inner.var)

    def visit_seq(self, seq: SeqExpr) -> None:
        for block in seq.blocks:
            self.visit_block(block)
        self.visit(seq.body)

    def visit_block(self, block: BindingBlock) -> None:
        limited = checkpoints.running
        for binding in block.bindings:
            if limited:
                checkpoints.checkpoint()
            self.visit_binding(binding)

    def visit_binding(self, binding: Binding) -> None:
        self.visit(binding.value)
        if not isinstance(binding, VarBinding):
            assert isinstance(binding, MatchCast)
            self.visit_type(binding.ty)
        self.visit_var_def(binding.var)

    def visit_function(self, func: Function) -> None:
        for param in func.params:
            self.visit_type(param.ty)
            self.visit_var_def(param)
        self.visit(func.body)
        self.visit_type(func.ret_ty)

    def visit_other_function(self, func: BaseFunc) -> None:
        """A function that is not a Relax function, such as a PrimFunc: a leaf."""


def note_binding(error: Exception, binding: Binding) -> None:
    """Add a note to an error that names the binding and its source line.  Only the innermost
    binding is noted."""
    start = "in the binding of "
    if any(note.startswith(start) for note in getattr(error, "__notes__", ())):
        return
    note = f"{start}{binding.var.name!r}"
    span = binding.span
    if span is not None:
        line = linecache.getline(span.file, span.line).strip()
        note += f", {span}" + (f"\n    {line}" if line else "")
    error.add_note(note)


class _PostOrder(ExprVisitor):
    def __init__(self, visit: Callable[[Expr], Any]) -> None:
        self._visit = visit

    def visit(self, expr: Expr) -> None:
        super().visit(expr)
        self._visit(expr)


def post_order_visit(expr: Expr, fvisit: Callable[[Expr], Any]) -> None:
    """Call `fvisit` for an expression and all its subexpressions, children first."""
    _PostOrder(fvisit).visit(expr)


class ExprMutator(_Walker):
    """Rewrites an expression.  Unchanged subexpressions stay the same objects.

    `var_map` maps variables to their replacements; a binding whose value changes its type gets a
    new variable.  Types of rewritten nodes are inferred again.  Override a ``visit_*`` method to
    rewrite a node, or `visit_binding` to replace a binding by a list of several or no bindings.

    Attributes:
        in_dataflow: whether the block that is visited is a DataflowBlock.
    """

    in_dataflow = False

    def __init__(self) -> None:
        self.var_map: dict[Var, Expr] = {}
        self._has_types = type(self).visit_type is not ExprMutator.visit_type

    def visit(self, expr: Expr) -> Any:
        """Rewrite any expression."""
        method = self._methods.get(type(expr), _OTHER)
        return expr if method is None else method(self, expr)

    def visit_var(self, var: Var) -> Expr:
        return self.var_map.get(var, var)

    def visit_var_def(self, var: Var) -> Var:
        return var

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return var

    def visit_extern_func(self, func: ExternFunc) -> Expr:
        return func

    def visit_op(self, op: Op) -> Expr:
        return op

    def visit_constant(self, constant: Constant) -> Expr:
        return constant

    def visit_imm(self, imm: Expr) -> Expr:
        return imm

    def visit_scalar(self, scalar: Expr) -> Expr:
        return scalar

    def visit_type(self, ty: Any) -> Any:
        return ty

    def visit_other_function(self, func: BaseFunc) -> Expr:
        return func

    def visit_all(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Rewrite each; the same tuple if nothing changed."""
        methods, var_map = self._methods, self.var_map
        new: list[Expr] | None = None
        for position, expr in enumerate(exprs):
            method = methods.get(type(expr), _OTHER)
            if method is not None:
                # Most are variables, and a call takes longer than the look-up.
                is_var = method is _VISIT_VAR
                now = var_map.get(expr, expr) if is_var else method(self, expr)  # type: ignore[call-overload]
                if now is not expr:
                    if new is None:
                        new = list(exprs)
                    new[position] = now
        return exprs if new is None else tuple(new)

    def visit_types(self, types: tuple[Type, ...]) -> tuple[Type, ...]:
        """Rewrite each; the same tuple if nothing changed."""
        if not types:
            return types
        new = [self.visit_type(ty) for ty in types]
        return types if all(map(_is_same, types, new)) else tuple(new)

    def visit_tuple(self, expr: Tuple) -> Expr:
        fields = self.visit_all(expr.fields)
        return expr if fields is expr.fields else Tuple(fields, span=expr.span)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> Expr:
        value = self.visit(expr.tuple_value)
        if value is expr.tuple_value:
            return expr
        if isinstance(value, Tuple):
            return value.fields[expr.index]
        return TupleGetItem(value, expr.index, expr.span)

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        values = self.visit_all(expr.values)
        return expr if values is expr.values else ShapeExpr(values, expr.span)

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        method = self._methods.get(type(op), _OTHER)
        if method is not None:
            op = method(self, op)
        args = self.visit_all(call.args)
        ty_args = self.visit_types(call.ty_args) if self._has_types else call.ty_args
        if op is call.op and args is call.args and ty_args is call.ty_args:
            return call
        return self.infer(Call(op, args, call.attrs, ty_args, span=call.span))

    def visit_if(self, expr: If) -> Expr:
        checkpoints.checkpoint()
        cond = self.visit(expr.cond)
        then = self.visit(expr.true_branch)
        orelse = self.visit(expr.false_branch)
        if cond is expr.cond and then is expr.true_branch and orelse is expr.false_branch:
            return expr
        return self.infer(If(cond, then, orelse, span=expr.span), self.visit_type(expr.ty))

    def visit_constructor(self, constructor: Constructor) -> Expr:
        return constructor

    def visit_match(self, expr: Match) -> Expr:
        checkpoints.checkpoint()
        data = self.visit(expr.data)
        clauses = [self.visit_clause(clause) for clause in expr.clauses]
        if data is expr.data and all(map(_is_same, clauses, expr.clauses)):
            return expr
        new = Match(data, clauses, expr.complete, span=expr.span)
        return self.infer(new, self.visit_type(expr.ty))

    def visit_clause(self, clause: Clause) -> Clause:
        """Rewrite the pattern, the guard and the result of a clause."""
        lhs = self.visit_pattern(clause.lhs)
        guard = None if clause.guard is None else self.visit(clause.guard)
        rhs = self.visit(clause.rhs)
        if lhs is clause.lhs and guard is clause.guard and rhs is clause.rhs:
            return clause
        return Clause(lhs, rhs, guard, clause.span)

    def visit_pattern(self, pattern: Pattern) -> Pattern:
        """Rewrite the variables of a pattern."""
        return map_pattern(pattern, self._pattern_var)

    def _pattern_var(self, var: Var) -> Var:
        new = self.visit_var_def(var)
        ty = self.visit_type(new.ty)
        if ty is not new.ty:
            new = KINDS[type(new)](new.name, ty, new.span)
        if new is not var:
            self.var_map[var] = new
        return new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        blocks: list[BindingBlock] = []
        changed = False
        for block in seq.blocks:
            new = self.visit_block(block)
            changed = changed or new is not block or not new.bindings
            blocks.append(new)
        body = self.visit(seq.body)
        if not changed and body is seq.body:
            return seq
        if isinstance(body, SeqExpr):
            blocks += body.blocks
            body = body.body
        return SeqExpr(joined_blocks(blocks), body, span=seq.span)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        bindings: list[Binding] = []
        changed = False
        limited = checkpoints.running
        outer, self.in_dataflow = self.in_dataflow, isinstance(block, DataflowBlock)
        for binding in block.bindings:
            if limited:
                checkpoints.checkpoint()
            try:
                new = self.visit_binding(binding)
            except Exception as error:
                note_binding(error, binding)
                raise
            if new is binding:
                bindings.append(binding)
                continue
            changed = True
            if isinstance(new, list):
                bindings += new
            else:
                bindings.append(new)
        self.in_dataflow = outer
        return KINDS[type(block)](bindings, block.span) if changed else block

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        """Rewrite a binding; returns a binding or a list of bindings."""
        value = binding.value
        if not isinstance(value, Call) and isinstance(value, Function):  # the first is the fast one
            return self._visit_local_function(binding)
        method = self._methods.get(type(value), _OTHER)
        if method is not None:
            value = method(self, value)
        if not isinstance(binding, VarBinding):
            assert isinstance(binding, MatchCast)
            ty = self.visit_type(binding.ty)
            var = self._var_of_cast(binding, ty)
            if value is binding.value and ty is binding.ty and var is binding.var:
                return binding
            return MatchCast(var, value, ty, binding.span)
        if value is binding.value:
            var = self.visit_var_def(binding.var)
            if var is binding.var:
                return binding
            self.var_map[binding.var] = var
            return VarBinding(var, value, binding.span)
        return self.rebind(binding, value)

    def _visit_local_function(self, binding: Binding) -> Binding:
        # Its variable is in scope in its own body.
        var = self.visit_var_def(binding.var)
        if var is not binding.var:
            self.var_map[binding.var] = var
        value = self.visit(binding.value)
        if value is binding.value and var is binding.var:
            return binding
        if value.ty is not var.ty:
            from .substitution import substitute_vars

            new = self.var_map[binding.var] = KINDS[type(var)](var.name, value.ty, var.span)
            value, var = substitute_vars(value, {var: new}), new
        return VarBinding(var, value, binding.span)

    def rebind(self, binding: Binding, value: Expr) -> VarBinding:
        """Return ``var = value`` as replacement of a binding: with the same variable if the types
        are equal, else with a new one of the same name."""
        var = self.visit_var_def(binding.var)
        if value.ty is not var.ty and not _same_type(value.ty, var.ty):
            var = KINDS[type(var)](var.name, value.ty, var.span)
        if var is not binding.var:
            self.var_map[binding.var] = var
        return VarBinding(var, value, binding.span)

    def _var_of_cast(self, binding: MatchCast, ty: Type) -> Var:
        var = self.visit_var_def(binding.var)
        if ty is not binding.ty:
            var = KINDS[type(var)](var.name, ty, var.span)
        if var is not binding.var:
            self.var_map[binding.var] = var
        return var

    def visit_function(self, func: Function) -> Expr:
        params = []
        for param in func.params:
            ty = self.visit_type(param.ty)
            new = self.visit_var_def(param)
            if ty is not param.ty:
                new = KINDS[type(new)](new.name, ty, new.span)
            if new is not param:
                self.var_map[param] = new
            params.append(new)
        body = self.visit(func.body)
        ret_ty = self.visit_type(func.ret_ty)
        if body is func.body and ret_ty is func.ret_ty and all(map(_is_same, params, func.params)):
            return func
        if body is not func.body:
            ret_ty = declared_ret_type(ret_ty, params, body)
        return Function(params, body, ret_ty, func.is_pure, func.attrs, func.span,
                        type_params=func.type_params)  # fmt: skip

    def infer(self, expr: Expr, before: Any = None) -> Expr:
        """Infer the type of an expression.  For an If, `before` is its old type: the variables in
        it are defined outside of the branches."""
        return infer_type(expr, () if before is None else type_free_vars(before))  # type: ignore[no-any-return]


_VISIT_VAR: Final[Method] = ExprMutator.visit_var


def _same_type(a: Any, b: Any) -> bool:
    return a is not None and b is not None and structural_equal(a, b)


def _is_same(a: object, b: object) -> bool:
    return a is b
