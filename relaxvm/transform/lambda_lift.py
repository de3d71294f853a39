"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

from typing import Any

from ..analysis import definable_tir_vars_in_type
from ..ir import (
    ANY,
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    FuncType,
    GlobalVar,
    IRModule,
    MatchCast,
    PrimType,
    ShapeExpr,
    Tuple,
    TupleType,
    Type,
    Var,
    VarBinding,
    free_vars,
    function_ret_type,
    is_base_of,
    substitute_vars,
    type_free_vars,
)
from ..op import base
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LambdaLift"]


class _FreeVars(ExprVisitor):
    """Variables that a function uses and does not define, in order of first use: values, and
    symbolic variables apart from them."""

    def __init__(self) -> None:
        self.used: dict[Var, None] = {}
        self.symbolic: dict[Var, None] = {}
        self.defined: set[Var] = set()

    def visit_var(self, var: Var) -> None:
        self.used[var] = None

    def visit_var_def(self, var: Var) -> None:
        self.defined.add(var)

    def visit_scalar(self, scalar: Expr) -> None:
        self.symbolic.update(dict.fromkeys(free_vars(scalar)))

    def visit_shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            self.symbolic.update(dict.fromkeys(free_vars(value)))

    def visit_type(self, ty: Type) -> None:
        self.symbolic.update(dict.fromkeys(type_free_vars(ty)))

    def visit_binding(self, binding: Binding) -> None:
        super().visit_binding(binding)
        if type(binding) is MatchCast:
            self.defined.update(type_free_vars(binding.ty))

    def visit_function(self, func: Function) -> None:
        for param in func.params:
            self.defined.update(definable_tir_vars_in_type(param.ty))
        super().visit_function(func)


def free_vars_of(func: Function) -> list[Var]:
    """What a local function captures: values in order of first use, then symbolic variables that
    its own parameters cannot define again."""
    found = _FreeVars()
    found.visit_function(func)
    values = [v for v in found.used if v not in found.defined]
    symbolic = [v for v in found.symbolic if v not in found.defined and v not in found.used]
    return values + symbolic


def _returns_function(binding: Binding) -> bool:
    """Whether a variable is a function that a call gave."""
    return type(binding.value) is Call and type(binding.var.ty) is FuncType


class _Closure:
    """A lifted function, and what it captures."""

    __slots__ = ("captures", "gv", "type")

    def __init__(self, gv: GlobalVar, captures: list[Var], ty: FuncType) -> None:
        self.gv = gv
        self.captures = captures
        self.type = ty


class _Lifter(ExprMutator):
    """Lifts what is local in one function; `outer` is its name."""

    def __init__(self, module: IRModule, outer: str, closures: dict[Var, _Closure]) -> None:
        super().__init__()
        self._module = module
        self._outer = outer
        self._closures = closures
        self._from_calls: set[Var] = set()
        self._unnamed = 0

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        if type(binding.value) is not Function:
            if _returns_function(binding):
                self._from_calls.add(binding.var)
            return super().visit_binding(binding)
        closure = self._lift(binding.var, binding.value)
        if not closure.captures:
            return []
        value = base.make_closure(closure.gv, Tuple([self.visit(c) for c in closure.captures]))
        var = type(binding.var)(binding.var.name, ANY, binding.var.span)
        self.var_map[binding.var] = var
        return VarBinding(var, value, binding.span)

    def visit_function(self, func: Function) -> Expr:
        """A function that is not bound to a name, as a result or an argument."""
        self._unnamed += 1
        closure = self._lift(Var(f"lambda_{self._unnamed - 1}" if self._unnamed > 1 else "lambda",
                                 func.ty), func)  # fmt: skip
        if not closure.captures:
            return closure.gv
        return base.make_closure(closure.gv, Tuple([self.visit(c) for c in closure.captures]))

    def _lift(self, var: Var, func: Function) -> _Closure:
        captures = [v for v in free_vars_of(func) if v is not var and self._is_captured(v)]
        name = self._new_name(var)
        params = [_param(capture, self.var_map.get(capture, capture)) for capture in captures]
        renamed = dict(zip(captures, params, strict=True))
        gv = GlobalVar(name)
        closure = self._closures[var] = _Closure(gv, captures, func.ty)
        inner = _Lifter(self._module, self._outer, {**self._closures, var: closure})
        inner.var_map.update(renamed)
        symbolic = {c: p for c, p in renamed.items() if type(c.ty) is PrimType}
        lifted = substitute_vars(func, symbolic)
        body = inner.visit(lifted.body)
        all_params = [*lifted.params, *params]
        ret_ty = _without_closures(lifted.ret_ty, body.ty)
        known = function_ret_type(all_params, body)
        if not is_base_of(ret_ty, known):
            ret_ty = known if type(known) is type(ret_ty) else ret_ty
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol"}
        new = Function(all_params, body, ret_ty, func.is_pure, attrs, func.span)
        gv.ty = new.ty
        self._module[gv] = new
        return closure

    def _new_name(self, var: Var) -> str:
        name = base_name = f"{self._outer}_{var.name}"
        number = 0
        while name in self._module:
            name = f"{base_name}_{number}"
            number += 1
        return name

    def _is_captured(self, var: Var) -> bool:
        closure = self._closures.get(var)
        return closure is None or bool(closure.captures)

    def visit_var(self, var: Var) -> Expr:
        closure = self._closures.get(var)
        if closure is None or var in self.var_map:
            return super().visit_var(var)
        if not closure.captures:
            return closure.gv
        # Within its own body the closure does not exist yet: it is made again.
        return base.make_closure(closure.gv, Tuple([self.visit(c) for c in closure.captures]))

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        if not isinstance(op, Var):
            return super().visit_call(call)
        args = self.visit_all(call.args)
        closure = self._closures.get(op)
        if closure is not None and op not in self.var_map:
            captured = [self.visit(c) for c in closure.captures]
            return Call(closure.gv, [*args, *captured], None, (), call.ty, call.span)
        callee = self.visit(op)
        if callee is op and type(op.ty) is FuncType and op not in self._from_calls:
            if args is call.args:
                return call
            return self.infer(Call(op, args, call.attrs, call.ty_args, span=call.span))
        if type(callee) is GlobalVar:
            return Call(callee, args, None, (), call.ty, call.span)
        invoke = base.invoke_pure_closure if op.ty.purity else base.invoke_closure
        new = invoke(callee, Tuple(args), ty_args=call.ty)
        new.span = call.span
        return new  # type: ignore[no-any-return]


def _param(capture: Var, value: Any) -> Var:
    return Var(capture.name, value.ty if value.ty is not None else capture.ty, capture.span)


def _without_closures(ty: Any, actual: Any) -> Any:
    """A function's declared result type, where it has closures now: these are of any type."""
    if type(ty) is FuncType and type(actual) is not FuncType:
        return ANY
    if type(ty) is TupleType and type(actual) is TupleType:
        return TupleType(map(_without_closures, ty.fields, actual.fields))
    return ty


def _run(mod: IRModule) -> IRModule:
    new = mod.copy()
    for var, func in mod.functions.items():
        if type(func) is Function and _has_work(func):
            body = _Lifter(new, var.name_hint, {}).visit(func.body)
            new[var] = func.replace(body=body)
    return new


def _has_work(func: Function) -> bool:
    finder = _Finder()
    finder.visit(func.body)
    return finder.found


class _Finder(ExprVisitor):
    """Whether there is a local function, or a call of a function that a call gave."""

    def __init__(self) -> None:
        self.found = False

    def visit_function(self, func: Function) -> None:
        self.found = True

    def visit_binding(self, binding: Binding) -> None:
        if _returns_function(binding):
            self.found = True
        super().visit_binding(binding)


def LambdaLift() -> Pass:
    """Local functions become private functions of the module, named after the function that they
    were in and their variable.  What they capture becomes trailing parameters; where the function
    is a value, it is R.make_closure with the captured values, and calls of it are
    invoke_pure_closure (or invoke_closure).  One that captures nothing is used as it is.

    A symbolic variable is captured, as a scalar, only if the function's own parameters cannot
    define it again.  A lifted function that gives a closure gives R.Any; functions of the module
    keep their types.  Why: the VM has functions on the top level only.
    """

    @module_pass(name="LambdaLift")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        return _run(mod)

    return run  # type: ignore[no-any-return]
