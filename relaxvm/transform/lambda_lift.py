"""LambdaLift: local functions become functions of the module."""

from __future__ import annotations

from typing import Any

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
            self.defined.update(type_free_vars(param.ty))
        super().visit_function(func)


def free_vars_of(func: Function) -> list[Var]:
    """What a local function captures: values in order of first use, then symbolic variables that
    its own parameters cannot define again."""
    found = _FreeVars()
    found.visit_function(func)
    values = [v for v in found.used if v not in found.defined]
    symbolic = [v for v in found.symbolic if v not in found.defined and v not in found.used]
    return values + symbolic


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
        self._unnamed = 0

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        if type(binding.value) is not Function:
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
        name = self._module.unique_name(f"{self._outer}_{var.name}")
        params = [_param(capture, self.var_map.get(capture, capture)) for capture in captures]
        renamed = dict(zip(captures, params, strict=True))
        gv = GlobalVar(name)
        closure = self._closures[var] = _Closure(gv, captures, func.ty)
        inner = _Lifter(self._module, name, {**self._closures, var: closure})
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
        if callee is op and type(op.ty) is FuncType:
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


class _Retype(ExprMutator):
    """Puts functions whose result type has changed in place of the old, and infers again."""

    def __init__(self, renewed: dict[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._renewed = renewed

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._renewed.get(var, var)

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        new = super().visit_call(call)
        if isinstance(op, Var) and type(new) is Call and type(new.op.ty) is not FuncType:
            if type(op.ty) is not FuncType:
                return new
            invoke = base.invoke_pure_closure if op.ty.purity else base.invoke_closure
            return invoke(new.op, Tuple(new.args), ty_args=call.ty)  # type: ignore[no-any-return]
        return new

    def infer(self, expr: Any, before: Any = None) -> Expr:
        if isinstance(expr, Call) and type(expr.op) is not GlobalVar and not isinstance(
            expr.op.ty, FuncType
        ) and isinstance(expr.op, Var):  # fmt: skip
            expr.ty = ANY
            return expr
        return super().infer(expr, before)


def _run(mod: IRModule) -> IRModule:
    new = mod.copy()
    changed: dict[GlobalVar, Function] = {}
    renewed: dict[GlobalVar, GlobalVar] = {}
    for var, func in mod.functions.items():
        if type(func) is not Function or not _has_local(func):
            continue
        lifter = _Lifter(new, var.name_hint, {})
        body = lifter.visit(func.body)
        ret_ty = _without_closures(func.ret_ty, body.ty)
        changed[var] = func.replace(body=body, ret_ty=ret_ty)
        if ret_ty is not func.ret_ty:
            renewed[var] = GlobalVar(var.name_hint, changed[var].ty, var.span)
    if not changed:
        return mod
    if not renewed:
        for var, func in changed.items():
            new[var] = func
        return new
    return _retyped(new, changed, renewed)


def _retyped(
    mod: IRModule, changed: dict[GlobalVar, Function], renewed: dict[GlobalVar, GlobalVar]
) -> IRModule:
    result = IRModule(attrs=mod.attrs, global_infos=mod.global_infos)
    result.sources = mod.sources
    result.span = mod.span
    for var, func in mod.functions.items():
        func = changed.get(var, func)  # type: ignore[arg-type]
        if type(func) is Function:
            func = _Retype(renewed).visit(func)
        result[renewed.get(var, var)] = func
    return result


def _has_local(func: Function) -> bool:
    found = _LocalFinder()
    found.visit(func.body)
    return found.found


class _LocalFinder(ExprVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_function(self, func: Function) -> None:
        self.found = True

    def visit_binding(self, binding: Binding) -> None:
        if type(binding.value) is not Call:
            super().visit_binding(binding)


def LambdaLift() -> Pass:
    """Local functions become private functions of the module, named after the function that they
    were in and their variable.  What they capture becomes trailing parameters; where the function
    is a value, it is R.make_closure with the captured values, and calls of it are
    invoke_pure_closure (or invoke_closure).  One that captures nothing is used as it is.

    A symbolic variable is captured, as a scalar, only if the function's own parameters cannot
    define it again.  A result that is a closure now has type R.Any.  Why: the VM has functions on
    the top level only.
    """

    @module_pass(name="LambdaLift")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        return _run(mod)

    return run  # type: ignore[no-any-return]
