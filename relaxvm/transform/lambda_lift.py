"""LambdaLift: move local functions to the module."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import Any

from ..analysis import definable_tir_vars_in_type
from ..ir import (
    ANY,
    BaseCheckResult,
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    FuncType,
    GlobalVar,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    VarBinding,
    base_check,
    declared_ret_type,
    erase_type,
    free_vars,
    infer_type,
    is_base_of,
    substitute_type,
    substitute_vars,
    type_free_vars,
    type_of_call,
)
from ..ir.node import KINDS
from ..op import base
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LambdaLift"]


class _FreeVars(ExprVisitor):
    """Collects the variables that are used, in order of first use, and those that are defined, both
    values and symbolic variables.  `outside`: symbolic variables in scope outside the function."""

    def __init__(self, outside: Set[Var]) -> None:
        self.used: dict[Var, None] = {}
        self.defined: set[Var] = set()
        self._outside = outside

    def visit_var(self, var: Var) -> None:
        self.used[var] = None

    def visit_var_def(self, var: Var) -> None:
        self.defined.add(var)

    def visit_scalar(self, scalar: Expr) -> None:
        self.used.update(dict.fromkeys(free_vars(scalar)))

    def visit_shape(self, expr: ShapeExpr) -> None:
        for value in expr.values:
            self.visit_scalar(value)

    def visit_type(self, ty: Type) -> None:
        self.used.update(dict.fromkeys(type_free_vars(ty)))

    def visit_call(self, call: Call) -> None:
        super().visit_call(call)
        if isinstance(call.op, Var):  # a call of a closure states its result type
            self.visit_type(call.ty)

    def visit_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            new = definable_tir_vars_in_type(binding.ty)
            self.defined.update(v for v in new if v not in self._outside)
        super().visit_binding(binding)

    def visit_function(self, func: Function) -> None:
        self.used.update(dict.fromkeys(free_vars_of(func, self._outside)))


def free_vars_of(func: Function, outside: Set[Var]) -> list[Var]:
    """Return the captures of a local function: values in order of first use, then the symbolic
    variables that its own parameters cannot define."""
    found = _FreeVars(outside)
    for param in func.params:
        found.defined.update(definable_tir_vars_in_type(param.ty))
    ExprVisitor.visit_function(found, func)
    free = [v for v in found.used if v not in found.defined]
    return sorted(free, key=_is_symbolic)


def _is_symbolic(var: Var) -> bool:
    return type(var.ty) is PrimType


class _Symbolic(ExprVisitor):
    """Collects the symbolic variables that a function defines itself."""

    def __init__(self, func: Function) -> None:
        self.found: set[Var] = set()
        super().visit_function(func)

    def visit_type(self, ty: Type) -> None:
        self.found.update(definable_tir_vars_in_type(ty))

    def visit_var_def(self, var: Var) -> None:
        if _is_symbolic(var):
            self.found.add(var)

    def visit_call(self, call: Call) -> None:
        """Not visited: calls define no variables."""

    def visit_function(self, func: Function) -> None:
        """Not visited: definitions in a local function are not visible outside of it."""


def _returns_function(binding: Binding) -> bool:
    """Whether a binding is of a function that is the result of a call."""
    return isinstance(binding.value, Call) and type(binding.var.ty) is FuncType


class _Closure:
    """A lifted function and its captures."""

    __slots__ = ("captures", "gv", "type")

    def __init__(self, gv: GlobalVar, captures: list[Var], ty: FuncType) -> None:
        self.gv = gv
        self.captures = captures
        self.type = ty


class _Lifter(ExprMutator):
    """Lifts the local functions of one function.  `outer` is its name, `symbolic` the symbolic
    variables in scope.  `self._before` collects bindings to insert before the current one."""

    def __init__(
        self, module: IRModule, outer: str, closures: dict[Var, _Closure], symbolic: Set[Var]
    ) -> None:
        super().__init__()
        self._module = module
        self._outer = outer
        self._closures = closures
        self._symbolic = symbolic
        self._from_calls: set[Var] = set()
        self._unnamed = 0
        self._before: list[Binding] = []
        self._is_dataflow = False

    # Bindings

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer, self._is_dataflow = self._is_dataflow, isinstance(block, DataflowBlock)
        new = super().visit_block(block)
        self._is_dataflow = outer
        return new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer, self._before = self._before, []
        new = super().visit_seq(seq)
        before, self._before = self._before, outer
        if before:  # of the result
            new = SeqExpr([*new.blocks, BindingBlock(before)], new.body, span=seq.span)
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        if isinstance(binding.value, Function):
            return self._visit_local(binding, binding.value)
        if _returns_function(binding):
            self._from_calls.add(binding.var)
        outer, self._before = self._before, []
        new = self._keep_type(super().visit_binding(binding))
        before, self._before = self._before, outer
        if not before:
            return new
        return [*before, *([new] if isinstance(new, Binding) else new)]

    def _visit_local(self, binding: Binding, func: Function) -> Binding | list[Binding]:
        closure = self._lift(binding.var, func)
        if not closure.captures:
            return []
        var = KINDS[type(binding.var)](binding.var.name, ANY, binding.var.span)
        value = self._make_closure(closure)
        self.var_map[binding.var] = var
        return VarBinding(var, value, binding.span)

    def _keep_type(self, new: Binding | list[Binding]) -> Binding | list[Binding]:
        """Add a cast to the result of a call of a lifted function if its type depends on captured
        dimensions, since the type of the lifted function cannot express that."""
        if not isinstance(new, VarBinding) or not isinstance(new.value, Call):
            return new
        call = new.value
        if not isinstance(call.op, GlobalVar) or is_base_of(new.var.ty, type_of_call(call)):
            return new
        call = infer_type(Call(call.op, call.args, call.attrs, call.ty_args, span=call.span))
        result = self._new_var(new.var.name, call.ty)
        cast = MatchCast(new.var, result, new.var.ty, new.span)
        return [VarBinding(result, call, new.span), cast]

    def _new_var(self, name: str, ty: Any) -> Var:
        return (DataflowVar if self._is_dataflow else Var)(name, ty)

    # Functions

    def visit_function(self, func: Function) -> Expr:
        """Lift a function that is not bound to a variable, such as a result or an argument."""
        self._unnamed += 1
        name = "lambda" if self._unnamed == 1 else f"lambda_{self._unnamed - 1}"
        return self._value_of(self._lift(Var(name, func.ty), func))

    def _value_of(self, closure: _Closure) -> Expr:
        """The closure as a leaf, where it is not bound to a variable."""
        if not closure.captures:
            return closure.gv
        var = self._new_var("closure", ANY)
        self._before.append(VarBinding(var, self._make_closure(closure)))
        return var

    def _make_closure(self, closure: _Closure) -> Expr:
        captured = Tuple([self.visit(c) for c in closure.captures])
        return base.make_closure(closure.gv, captured)  # type: ignore[no-any-return]

    def _lift(self, var: Var, func: Function) -> _Closure:
        captures = self._captures(var, func)
        # Symbolic variables are not shared between functions, so those defined by the parameters
        # are replaced too.
        symbolic = {
            v: Var(v.name, v.ty, v.span)
            for v in (*self._symbolic, *filter(_is_symbolic, captures))
        }
        params = [symbolic[c] if c in symbolic else self._param(c, symbolic) for c in captures]
        # Captured values need their dimensions too, or types would not match.  Closures, whose
        # types determine how they are called, become parameters below.
        renamed = {
            c: _with_dims(c, symbolic) if _has_function(c.ty) else p
            for c, p in zip(captures, params, strict=True)
        }
        lifted = substitute_vars(func, {**symbolic, **renamed})
        all_params = [*lifted.params, *params]
        known = {v for p in all_params for v in type_free_vars(p.ty)}
        ret_ty = erase_type(lifted.ret_ty, known.__contains__)
        gv = GlobalVar(self._new_name(var))
        gv.ty = FuncType([p.ty for p in all_params], ret_ty, func.is_pure)
        closure = self._closures[var] = _Closure(gv, captures, func.ty)
        known_symbolic = {*_Symbolic(lifted).found, *symbolic.values()}
        closures = {**self._closures, var: closure}
        closures.update((renamed[c], closures[c]) for c in captures if c in closures)
        inner = _Lifter(self._module, self._outer, closures, known_symbolic)
        for names in (captures, renamed.values()):  # a recursive call passes on the captures
            inner.var_map.update(zip(names, params, strict=True))
        body = inner.visit(lifted.body)
        ret_ty = declared_ret_type(_without_closures(ret_ty, body.ty), all_params, body)
        attrs = {k: v for k, v in func.attrs.items() if k != "global_symbol"}
        new = Function(all_params, body, ret_ty, func.is_pure, attrs, func.span)
        gv.ty = new.ty
        self._module[gv] = new
        return closure

    def _captures(self, var: Var, func: Function) -> list[Var]:
        free = free_vars_of(func, self._symbolic)
        captures = [v for v in free if v is not var and self._is_captured(v)]
        # Dimensions in the types of captured values that no parameter defines.
        captured = [self._current_type(c) for c in captures]
        types = [*(p.ty for p in func.params), *captured]
        defined = {v for ty in types for v in definable_tir_vars_in_type(ty)}
        mentioned = dict.fromkeys(v for ty in captured for v in type_free_vars(ty))
        known = defined.union(captures)
        return captures + [v for v in mentioned if v not in known and _is_symbolic(v)]

    def _param(self, capture: Var, symbolic: dict[Var, Var]) -> Var:
        ty = substitute_type(self._current_type(capture), symbolic)
        return Var(capture.name, ty, capture.span)

    def _current_type(self, capture: Var) -> Any:
        """The type of the replacement of a variable, in terms of dimensions."""
        ty = self.var_map.get(capture, capture).ty
        return _by_dims(capture.ty if ty is None else ty)

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
        # In its own body the closure does not exist as a value: it is created again.
        return self._value_of(closure)

    # Calls

    def visit_call(self, call: Call) -> Expr:
        op = call.op
        if not isinstance(op, Var):
            return self._call(call)
        closure = self._closures.get(op)
        if closure is not None and op not in self.var_map:
            captured = [self.visit(c) for c in closure.captures]
            args = self._fitting(closure.gv, (*self.visit_all(call.args), *captured))
            return Call(closure.gv, args, None, (), ret_ty=call.ty, span=call.span)
        callee = self.visit(op)
        if callee is op and type(op.ty) is FuncType and op not in self._from_calls:
            return self._call(call)
        args = self.visit_all(call.args)
        if isinstance(callee, GlobalVar):
            fitting = self._fitting(callee, args)
            return Call(callee, fitting, None, (), ret_ty=call.ty, span=call.span)
        invoke = base.invoke_pure_closure if op.ty.purity else base.invoke_closure
        new = invoke(callee, Tuple(args), ty_args=call.ty)
        new.span = call.span
        return new  # type: ignore[no-any-return]

    def _call(self, call: Call) -> Expr:
        """A call whose callee is not lifted."""
        args = self._fitting(call.op, self.visit_all(call.args))
        if args is call.args:
            return call
        return self.infer(Call(call.op, args, call.attrs, call.ty_args, span=call.span))

    def _fitting(self, callee: Expr, args: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The arguments, with a cast where a function is expected and the argument is a closure."""
        params = callee.ty.params if type(callee.ty) is FuncType else None
        if params is None or len(params) != len(args):
            return args
        new = list(args)
        for i, (param, arg) in enumerate(zip(params, args, strict=True)):
            if _has_function(param) and base_check(param, arg.ty) == BaseCheckResult.FAIL_L1:
                new[i] = var = self._new_var("closure", param)
                self._before.append(MatchCast(var, arg, param))
        return args if all(map(operator.is_, new, args)) else tuple(new)


def _by_dims(ty: Any) -> Any:
    """A type without variables that are whole shapes."""
    if type(ty) is TupleType:
        return TupleType(map(_by_dims, ty.fields))
    if type(ty) is TensorType and isinstance(ty.shape, Var):
        return TensorType.of(ty.dims, ty.dtype, ty.vdevice, ty.ndim)
    return ty


def _with_dims(var: Var, dims: Mapping[Var, Var]) -> Var:
    """A variable whose type has other symbolic variables; itself if its type has none of them."""
    ty = substitute_type(var.ty, dims)
    return var if ty is var.ty else Var(var.name, ty, var.span)


def _has_function(ty: Any) -> bool:
    if type(ty) is TupleType:
        return any(map(_has_function, ty.fields))
    return type(ty) is FuncType


def _without_closures(ty: Any, actual: Any) -> Any:
    """The declared result type of a function, with `Any` where the result is a closure now."""
    if type(ty) is FuncType and type(actual) is not FuncType:
        return ANY
    if type(ty) is TupleType and type(actual) is TupleType:
        return TupleType(map(_without_closures, ty.fields, actual.fields))
    return ty


def _run(mod: IRModule) -> IRModule:
    new = mod.copy()
    for var, func in mod.functions.items():
        if isinstance(func, Function) and _has_work(func):
            body = _Lifter(new, var.name_hint, {}, _Symbolic(func).found).visit(func.body)
            new[var] = func.replace(body=body)
    return new


def _has_work(func: Function) -> bool:
    finder = _Finder()
    finder.visit(func.body)
    return finder.found


class _Finder(ExprVisitor):
    """Looks for local functions, and for calls of functions that are results of calls."""

    def __init__(self) -> None:
        self.found = False

    def visit_function(self, func: Function) -> None:
        self.found = True

    def visit_binding(self, binding: Binding) -> None:
        if _returns_function(binding):
            self.found = True
        super().visit_binding(binding)


def LambdaLift() -> Pass:
    """Move local functions to the module, as private functions named after the enclosing function
    and their variable.  Captured variables become trailing parameters.  Where such a function is
    used as a value, it is R.make_closure with the captured values, and calls of that are
    invoke_pure_closure (or invoke_closure).  A function without captures is used directly.

    A symbolic variable is captured, as a scalar, only if the function's own parameters cannot
    define it.  A lifted function that returns a closure has the result type R.Any; functions of the
    module keep their types.  Why: the VM has only top-level functions.
    """

    @module_pass(name="LambdaLift")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        return _run(mod)

    return run
