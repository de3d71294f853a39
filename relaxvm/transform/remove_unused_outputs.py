"""RemoveUnusedOutputs: private functions return only what their callers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir import (
    Call,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    GlobalVar,
    IRModule,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..ir.expr import Binding
from .canonicalize_bindings import canonicalize_bindings
from .dead_code_elimination import eliminate_dead_code
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["RemoveUnusedOutputs"]


class _Uses(ExprVisitor):
    """Which elements of the tuples that private functions return are used.

    Attributes:
        used: function -> the positions of the elements, None if the tuple is used as a whole.
    """

    def __init__(self, private: Mapping[GlobalVar, Function]) -> None:
        self.used: dict[GlobalVar, set[int] | None] = {var: set() for var in private}
        self._results: dict[Var, GlobalVar] = {}

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if isinstance(binding, VarBinding) and isinstance(value, Call) and value.op in self.used:
            assert isinstance(value.op, GlobalVar)
            self._results[binding.var] = value.op
            for arg in value.args:
                self.visit(arg)
            return
        super().visit_binding(binding)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> None:
        func = self._results.get(expr.tuple_value)  # type: ignore[call-overload]
        if func is None:
            super().visit_tuple_getitem(expr)
            return
        positions = self.used[func]
        if positions is not None:
            positions.add(expr.index)

    def visit_var(self, var: Var) -> None:
        func = self._results.get(var)
        if func is not None:
            self.used[func] = None

    def visit_global_var(self, var: GlobalVar) -> None:
        if var in self.used:  # a use that is not the callee of a binding
            self.used[var] = None


class _Callers(ExprMutator):
    """Adapts calls to functions that return less."""

    def __init__(self, new: Mapping[GlobalVar, tuple[GlobalVar, list[int]]]) -> None:
        super().__init__()
        self._new = new
        self._results: dict[Var, list[int]] = {}

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if isinstance(value, Call) and isinstance(value.op, GlobalVar) and value.op in self._new:
            var, positions = self._new[value.op]
            call = Call(var, self.visit_all(value.args), value.attrs, span=value.span)
            new = self.rebind(binding, self.infer(call))
            self._results[new.var] = positions
            return new
        return super().visit_binding(binding)

    def visit_tuple_getitem(self, expr: TupleGetItem) -> Expr:
        value = self.visit(expr.tuple_value)
        positions = self._results.get(value)
        if positions is None:
            return super().visit_tuple_getitem(expr)
        if len(positions) == 1:
            return value  # type: ignore[no-any-return]
        return TupleGetItem(value, positions.index(expr.index), expr.span)


def RemoveUnusedOutputs() -> Pass:
    """Have private functions that return a tuple return only the elements that some caller uses: a
    single element by itself.  What was computed for the others is removed.

    A function whose result is used as a whole stays as it is.
    """

    @module_pass(name="RemoveUnusedOutputs")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        private = {
            var: func
            for var, func in mod.items()
            if isinstance(func, Function)
            and "global_symbol" not in func.attrs
            and isinstance(func.body.body, Tuple)
        }
        uses = _Uses(private)
        for func in mod.functions.values():
            if isinstance(func, Function):
                uses.visit(func)
        changed: dict[GlobalVar, tuple[GlobalVar, list[int]]] = {}
        made: dict[GlobalVar, Function] = {}
        for var, func in private.items():
            positions = uses.used[var]
            result = func.body.body
            assert isinstance(result, Tuple)
            if not positions or len(positions) == len(result.fields):
                continue
            kept = sorted(positions)
            fields = [result.fields[position] for position in kept]
            value = fields[0] if len(fields) == 1 else Tuple(fields)
            body = SeqExpr(func.body.blocks, value, span=func.body.span)
            new = func.replace(body=body, ret_ty=value.ty)
            new_var = GlobalVar(var.name_hint, new.ty)
            changed[var] = new_var, kept
            made[var] = eliminate_dead_code(new)
        if not changed:
            return mod
        result_mod = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        result_mod.sources = mod.sources
        for var, func in mod.items():
            func = made.get(var, func)
            if isinstance(func, Function):
                adapted = _Callers(changed).visit(func)
                if adapted is not func:
                    func = canonicalize_bindings(adapted)
            result_mod[changed[var][0] if var in changed else var] = func
        return result_mod

    return run
