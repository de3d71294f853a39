"""ComputePrimValue: replace computations of scalars by calls of PrimFuncs."""

from __future__ import annotations

from typing import Any

from ..ir import (
    Attrs,
    Binding,
    BindingBlock,
    Call,
    Expr,
    ExprMutator,
    FloatImm,
    Function,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    SeqExpr,
    ShapeExpr,
    Var,
    VarBinding,
    free_vars,
    joined_blocks,
    substitute,
)
from ..tir import Evaluate, PrimFunc, ret
from ..tir.shape_func import is_shape_arithmetic
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["ComputePrimValue"]


class _Computer(ExprMutator):
    def __init__(self, module: IRModule, use_heap: bool) -> None:
        super().__init__()
        self._module = module
        self._use_heap = use_heap
        self._out: list[Binding] = []

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer, self._out = self._out, []
        new = super().visit_seq(seq)
        of_result, self._out = self._out, outer
        if of_result:  # the result itself was a computation
            blocks = joined_blocks([*new.blocks, BindingBlock(of_result)])
            return SeqExpr(blocks, new.body, span=seq.span)
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not self._out:
            return new
        before, self._out = self._out, []
        if isinstance(new, VarBinding) and new.value is before[-1].var:
            new = VarBinding(new.var, before.pop().value, new.span)
        return [*before, *([new] if isinstance(new, Binding) else new)]

    def visit_shape(self, expr: ShapeExpr) -> Expr:
        return expr  # left for the shape heap

    def visit_if(self, expr: If) -> Expr:
        cond = expr.cond if self._is_for_heap(expr.cond) else self.visit(expr.cond)
        then = self.visit(expr.true_branch)
        orelse = self.visit(expr.false_branch)
        if cond is expr.cond and then is expr.true_branch and orelse is expr.false_branch:
            return expr
        return If(cond, then, orelse, ty=expr.ty, span=expr.span)

    def _is_for_heap(self, expr: Expr) -> bool:
        return self._use_heap and is_shape_arithmetic(expr)

    def visit_scalar(self, scalar: Expr) -> Expr:
        if type(scalar) in (IntImm, FloatImm):
            return scalar
        # Slots of the heap are ints, which is sufficient for conditions, but not for bool values.
        if scalar.ty.dtype == "int64" and self._is_for_heap(scalar):
            return scalar
        variables = free_vars(scalar)
        params = [Var(v.name, v.ty) for v in variables]
        value = substitute(scalar, dict(zip(variables, params, strict=True)))
        func = PrimFunc(params, Evaluate(ret(value)), scalar.ty, Attrs({"tirx.is_host_func": True}))
        name = self._module.unique_name("compute_symbolic_expr")
        self._module[name] = func
        callee: GlobalVar = self._module.get_global_var(name)
        var = Var("gv", scalar.ty)
        self._out.append(VarBinding(var, Call(callee, variables, ret_ty=scalar.ty)))
        return var


def ComputePrimValue(*, use_heap: bool = False) -> Pass:
    """Replace scalar expressions that are used as values (arguments, conditions) by calls of a
    private PrimFunc "compute_symbolic_expr" of the variables in them.  Constants, variables and the
    dimensions of shapes are left unchanged.

    Requires: RemovePurityChecking, since calls of PrimFuncs count as side effects.

    Args:
        use_heap: leave int64 arithmetic, and conditions on it, to VMShapeLower, which computes them
            on the shape heap.

    Why: the VM has no arithmetic instructions, only calls.
    """

    @module_pass(name="ComputePrimValue")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        new = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                rewritten = _Computer(new, use_heap).visit(func)
                if rewritten is not func:
                    new[var] = rewritten
        return new

    return run
