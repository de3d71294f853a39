"""`PyExprVisitor` and `PyExprMutator`: the classes that users' passes of TVM are derived from.

They have TVM's names of methods and its way of working: a mutator emits what it visits into a
`BlockBuilder`, ``self.builder_``, so that a method may emit further bindings, or calls of
PrimFuncs, in front of the expression that it returns.  `ExprVisitor` and `ExprMutator` of `visitor`
are what relaxvm's own passes use; they are faster, and need no builder.

Source: ``tvm.relax.expr_functor`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from ..core.checkpoints import checkpoint
from .adt import Clause, Match, pattern_vars
from .block_builder import BlockBuilder
from .equality import structural_equal
from .expr import (
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
from .infer import BaseCheckResult, base_check, declared_ret_type, function_ret_type
from .module import IRModule
from .node import KINDS
from .op import Op

__all__ = ["ExprFunctor", "PyExprMutator", "PyExprVisitor", "mutator", "visitor"]

_NAMES: Final[dict[type, str]] = {
    Call: "visit_call_",
    Constant: "visit_constant_",
    DataTypeImm: "visit_data_type_imm_",
    DataflowVar: "visit_dataflow_var_",
    ExternFunc: "visit_extern_func_",
    FloatImm: "visit_float_imm_",
    Function: "visit_function_",
    GlobalVar: "visit_global_var_",
    If: "visit_if_",
    IntImm: "visit_int_imm_",
    Match: "visit_match_",
    Op: "visit_op_",
    SeqExpr: "visit_seq_expr_",
    ShapeExpr: "visit_shape_expr_",
    StringImm: "visit_string_imm_",
    Tuple: "visit_tuple_",
    TupleGetItem: "visit_tuple_getitem_",
    Var: "visit_var_",
}
"""Class -> method.  Any other expression, such as a scalar, goes to ``visit_expr_fallback_``."""


def _name_for(expr: Any) -> str:
    return _NAMES.get(KINDS[type(expr)], "visit_expr_fallback_")


class ExprFunctor:
    """Calls a method for an expression by its class: ``visit_call_``, ``visit_var_`` and so on, as
    a subclass defines them.

    Raises:
        NotImplementedError: from `visit_expr`, if the subclass has no method for the class.
    """

    def visit_expr(self, expr: Expr) -> Any:
        """Return what the method for the expression returns."""
        name = _name_for(expr)
        method = getattr(self, name, None)
        if method is None and isinstance(expr, DataflowVar):
            method = getattr(self, "visit_var_", None)
        if method is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no method {name!r}, for {type(expr).__name__} {expr}"
            )
        return method(expr)


_Class = TypeVar("_Class", bound=type)


def visitor(cls: _Class) -> _Class:
    """The decorator of classes derived from `PyExprVisitor`; it returns the class.

    Raises:
        TypeError: the class is not derived from `PyExprVisitor`.
    """
    if not issubclass(cls, PyExprVisitor):
        raise TypeError(f"visitor: class {cls.__name__} is not derived from PyExprVisitor")
    return cls


def mutator(cls: _Class) -> _Class:
    """The decorator of classes derived from `PyExprMutator`; it returns the class.

    Raises:
        TypeError: the class is not derived from `PyExprMutator`.
    """
    if not issubclass(cls, PyExprMutator):
        raise TypeError(f"mutator: class {cls.__name__} is not derived from PyExprMutator")
    return cls


class PyExprVisitor:
    """Walks an expression.  Override a method to see the expressions of a kind, and call that of
    the base class to walk on."""

    def visit_expr(self, expr: Expr) -> None:
        """Visit any expression."""
        getattr(self, _name_for(expr))(expr)

    def visit_binding(self, binding: Binding) -> None:
        """Visit a binding."""
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        else:
            self.visit_var_binding_(binding)

    def visit_binding_block(self, block: BindingBlock) -> None:
        """Visit a block."""
        if isinstance(block, DataflowBlock):
            self.visit_dataflow_block_(block)
        else:
            self.visit_binding_block_(block)

    def visit_var_def(self, var: Var) -> None:
        """Visit the definition of a variable."""
        if isinstance(var, DataflowVar):
            self.visit_dataflow_var_def_(var)
        else:
            self.visit_var_def_(var)

    def visit_constant_(self, op: Constant) -> None:
        self.visit_generic_const_(op)

    def visit_generic_const_(self, op: Constant) -> None:
        """A leaf."""

    def visit_var_(self, op: Var) -> None:
        """A use of a variable."""

    def visit_dataflow_var_(self, op: DataflowVar) -> None:
        self.visit_var_(op)

    def visit_global_var_(self, op: GlobalVar) -> None:
        """A leaf."""

    def visit_extern_func_(self, op: ExternFunc) -> None:
        """A leaf."""

    def visit_op_(self, op: Op) -> None:
        """A leaf."""

    def visit_string_imm_(self, op: StringImm) -> None:
        """A leaf."""

    def visit_data_type_imm_(self, op: DataTypeImm) -> None:
        """A leaf."""

    def visit_int_imm_(self, op: IntImm) -> None:
        self.visit_expr_fallback_(op)

    def visit_float_imm_(self, op: FloatImm) -> None:
        self.visit_expr_fallback_(op)

    def visit_expr_fallback_(self, op: Expr) -> None:
        """A scalar, or a function that is not a Relax function."""

    def visit_tuple_(self, op: Tuple) -> None:
        for field in op.fields:
            self.visit_expr(field)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> None:
        self.visit_expr(op.tuple_value)

    def visit_shape_expr_(self, op: ShapeExpr) -> None:
        for value in op.values:
            self.visit_expr(value)

    def visit_call_(self, op: Call) -> None:
        self.visit_expr(op.op)
        for arg in op.args:
            self.visit_expr(arg)

    def visit_if_(self, op: If) -> None:
        self.visit_expr(op.cond)
        self.visit_expr(op.true_branch)
        self.visit_expr(op.false_branch)

    def visit_match_(self, op: Match) -> None:
        self.visit_expr(op.data)
        for clause in op.clauses:
            for var in pattern_vars(clause.lhs):
                self.visit_var_def(var)
            if clause.guard is not None:
                self.visit_expr(clause.guard)
            self.visit_expr(clause.rhs)

    def visit_function_(self, op: Function) -> None:
        for param in op.params:
            self.visit_var_def(param)
        self.visit_expr(op.body)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        self.visit_expr(op.body)

    def visit_var_binding_(self, binding: Binding) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.visit_expr(binding.value)
        self.visit_var_def(binding.var)

    def visit_binding_block_(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            checkpoint()
            self.visit_binding(binding)

    def visit_dataflow_block_(self, block: DataflowBlock) -> None:
        for binding in block.bindings:
            checkpoint()
            self.visit_binding(binding)

    def visit_var_def_(self, var: Var) -> None:
        """The definition of a variable that is not a `DataflowVar`."""

    def visit_dataflow_var_def_(self, var: DataflowVar) -> None:
        """The definition of a `DataflowVar`."""

    def visit_span(self, span: Any) -> None:
        """The place in the source; it is not visited by itself."""


class PyExprMutator:
    """Rewrites an expression.  Override a method to rewrite the expressions of a kind;
    `visit_expr_post_order` rewrites what is inside of one first.

    Args:
        mod: the module that functions are added to; ``self.builder_.get()`` returns it with them.

    Attributes:
        builder_: the builder into which bindings are emitted.
    """

    def __init__(self, mod: IRModule | None = None) -> None:
        self.builder_ = BlockBuilder(mod)
        self._remap: dict[Var, Expr] = {}

    # Dispatch

    def visit_expr(self, expr: Expr) -> Any:
        """Rewrite any expression; the result has a type."""
        return self._normalized(getattr(self, _name_for(expr))(expr))

    def visit_expr_post_order(self, expr: Expr) -> Any:
        """Rewrite the parts of an expression, and return it made of the new ones."""
        method: Callable[..., Any] = getattr(PyExprMutator, _name_for(expr))
        return self._normalized(method(self, expr))

    def _normalized(self, expr: Any) -> Any:
        if isinstance(expr, (Call, Tuple, TupleGetItem)) and self.builder_.in_scope:
            return self.builder_.normalize(expr)
        return self.builder_.infer(expr) if isinstance(expr, (Call, If, Match)) else expr

    def visit_binding(self, binding: Binding) -> None:
        """Rewrite a binding: emit what replaces it."""
        if isinstance(binding, MatchCast):
            self.visit_match_cast_(binding)
        else:
            self.visit_var_binding_(binding)

    def visit_binding_block(self, block: BindingBlock) -> BindingBlock:
        """Rewrite a block."""
        if isinstance(block, DataflowBlock):
            return self.visit_dataflow_block_(block)
        return self.visit_binding_block_(block)

    def visit_var_def(self, var: Var) -> Var:
        """Return the variable that is defined in the place of another."""
        if isinstance(var, DataflowVar):
            return self.visit_dataflow_var_def_(var)
        return self.visit_var_def_(var)

    def visit_with_new_scope(self, expr: Expr, params: tuple[Var, ...] = ()) -> SeqExpr:
        """Rewrite the body of a function or branch; bindings are emitted into it."""
        self.builder_.begin_scope(params)
        try:
            new = self.visit_expr(expr)
        except BaseException:
            self.builder_.leave_scope()
            raise
        before = self.builder_.leave_scope()
        seq: SeqExpr = new if isinstance(new, SeqExpr) else SeqExpr((), new)
        if not before:
            return seq
        return SeqExpr(joined_blocks([*before, *seq.blocks]), seq.body, span=seq.span)

    # Leaves

    def visit_constant_(self, op: Constant) -> Any:
        return self.visit_generic_const_(op)

    def visit_generic_const_(self, op: Constant) -> Any:
        return op

    def visit_var_(self, op: Var) -> Any:
        return self._remap.get(op, op)

    def visit_dataflow_var_(self, op: DataflowVar) -> Any:
        return self.visit_var_(op)

    def visit_global_var_(self, op: GlobalVar) -> Any:
        return op

    def visit_extern_func_(self, op: ExternFunc) -> Any:
        return op

    def visit_op_(self, op: Op) -> Any:
        return op

    def visit_string_imm_(self, op: StringImm) -> Any:
        return op

    def visit_data_type_imm_(self, op: DataTypeImm) -> Any:
        return op

    def visit_int_imm_(self, op: IntImm) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_float_imm_(self, op: FloatImm) -> Any:
        return self.visit_expr_fallback_(op)

    def visit_expr_fallback_(self, op: Expr) -> Any:
        """A scalar, or a function that is not a Relax function."""
        return op

    # Expressions

    def _all(self, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = tuple([self.visit_expr(expr) for expr in exprs])
        return exprs if all(map(_is_same, new, exprs)) else new

    def visit_tuple_(self, op: Tuple) -> Any:
        fields = self._all(op.fields)
        return op if fields is op.fields else Tuple(fields, op.span)

    def visit_tuple_getitem_(self, op: TupleGetItem) -> Any:
        value = self.visit_expr(op.tuple_value)
        if value is op.tuple_value:
            return op
        return value.fields[op.index] if isinstance(value, Tuple) else TupleGetItem(value, op.index)

    def visit_shape_expr_(self, op: ShapeExpr) -> Any:
        values = self._all(op.values)
        return op if values is op.values else ShapeExpr(values, op.span)

    def visit_call_(self, op: Call) -> Any:
        callee = self.visit_expr(op.op)
        args = self._all(op.args)
        if callee is op.op and args is op.args:
            return op
        return Call(callee, args, op.attrs, op.ty_args, span=op.span)

    def visit_if_(self, op: If) -> Any:
        cond = self.visit_expr(op.cond)
        then = self.visit_with_new_scope(op.true_branch)
        orelse = self.visit_with_new_scope(op.false_branch)
        if cond is op.cond and then is op.true_branch and orelse is op.false_branch:
            return op
        return If(cond, then, orelse, span=op.span)

    def visit_match_(self, op: Match) -> Any:
        data = self.visit_expr(op.data)
        clauses = []
        for clause in op.clauses:
            guard = None if clause.guard is None else self.visit_expr(clause.guard)
            rhs = self.visit_with_new_scope(clause.rhs, tuple(pattern_vars(clause.lhs)))
            same = guard is clause.guard and rhs is clause.rhs
            clauses.append(clause if same else Clause(clause.lhs, rhs, guard, clause.span))
        if data is op.data and all(map(_is_same, clauses, op.clauses)):
            return op
        return Match(data, clauses, op.complete, span=op.span)

    def visit_function_(self, op: Function) -> Any:
        params = tuple(self._defined(param) for param in op.params)
        body = self.visit_with_new_scope(op.body, params)
        if body is op.body and all(map(_is_same, params, op.params)):
            return op
        if base_check(op.ret_ty, body.ty) is BaseCheckResult.FAIL_L0:
            ret_ty = function_ret_type(params, body)
        else:
            ret_ty = declared_ret_type(op.ret_ty, params, body)
        return op.replace(params=params, body=body, ret_ty=ret_ty)

    def _defined(self, var: Var) -> Var:
        new = self.visit_var_def(var)
        if new is not var:
            self._remap[var] = new
        return new

    def visit_seq_expr_(self, op: SeqExpr) -> Any:
        blocks = [self.visit_binding_block(block) for block in op.blocks]
        self.builder_.begin_scope()
        try:
            body = self.visit_expr(op.body)
        except BaseException:
            self.builder_.leave_scope()
            raise
        after = self.builder_.leave_scope()
        if not after and body is op.body and all(map(_is_same, blocks, op.blocks)):
            return op
        if isinstance(body, SeqExpr):
            after, body = [*after, *body.blocks], body.body
        return SeqExpr(joined_blocks([*blocks, *after]), body, span=op.span)

    # Blocks and bindings

    def visit_binding_block_(self, block: BindingBlock) -> BindingBlock:
        return self._block(block)

    def visit_dataflow_block_(self, block: DataflowBlock) -> BindingBlock:
        return self._block(block)

    def _block(self, block: BindingBlock) -> BindingBlock:
        is_dataflow = isinstance(block, DataflowBlock)
        self.builder_.begin_scope()
        try:
            if is_dataflow:
                with self.builder_.dataflow():
                    self._bindings(block)
            else:
                self._bindings(block)
        except BaseException:
            self.builder_.leave_scope()
            raise
        bindings = [b for new in self.builder_.leave_scope() for b in new.bindings]
        if len(bindings) == len(block.bindings) and all(map(_is_same, bindings, block.bindings)):
            return block
        kind = DataflowBlock if is_dataflow else BindingBlock
        return kind(bindings, block.span)

    def _bindings(self, block: BindingBlock) -> None:
        for binding in block.bindings:
            checkpoint()
            self.visit_binding(binding)

    def visit_var_binding_(self, binding: Binding) -> None:
        value = self.visit_expr(binding.value)
        var = self.visit_var_def(binding.var)
        if value is binding.value and var is binding.var:
            self.builder_.emit_normalized(binding)
            return
        value = self.builder_.normalize(value)
        if not structural_equal(var.ty, value.ty):
            var = self.with_type(var, value.ty)
        if var is not binding.var:
            self._remap[binding.var] = var
        self.builder_.emit_normalized(VarBinding(var, value, binding.span))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.visit_expr(binding.value)
        var = self._defined(binding.var)
        if value is not binding.value or var is not binding.var:
            binding = MatchCast(var, value, binding.ty, binding.span)
        self.builder_.emit_normalized(binding)

    def visit_var_def_(self, var: Var) -> Var:
        return var

    def visit_dataflow_var_def_(self, var: DataflowVar) -> Var:
        return var

    def visit_span(self, span: Any) -> Any:
        """The place in the source; it is not visited by itself."""
        return span

    # For methods of subclasses

    def set_var_remap(self, old_var: Var, new_var: Var) -> None:
        """Have later uses of a variable replaced."""
        self._remap[old_var] = new_var

    def get_var_remap(self, var: Var) -> Any:
        """Return what uses of a variable are replaced by, itself if they are not."""
        return self._remap.get(var, var)

    def lookup_binding(self, var: Var) -> Expr | None:
        """Return the value that has been emitted for a variable, or None."""
        return self.builder_.lookup_binding(var)

    def with_type(self, var: Var, ty: Type) -> Var:
        """Return a variable of a type: this one if it has it, else a new one of its name."""
        if var.ty is ty:
            return var
        new: Var = KINDS[type(var)](var.name, ty, var.span)
        return new


def _is_same(a: object, b: object) -> bool:
    return a is b


