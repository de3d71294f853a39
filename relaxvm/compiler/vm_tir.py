"""Code generation for the compiled mode: emits VM-TIR for the functions of a lowered module.

A Relax function ``f`` becomes the PrimFunc ``__vmtir__f(ctx_ptr, r, c, f)``.  Its parameters are
the VM and lists of its registers, constants and functions.  The first registers hold the parameters
of the Relax function, the next one the result.

Source: CodeGenVMTIR of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from ..dtypes import as_dtype
from ..executable.debug_info import Span
from ..executable.exec_builder import ExecBuilder
from ..ir import (
    Binding,
    Call,
    Constant,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    GlobalVar,
    If,
    IntImm,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from ..ir.expr import prim_type
from ..ir.node import class_table
from ..isa import FuncKind, decode_arg
from ..op import base, vm  # noqa: F401  (registers the operators named here)
from ..registry import COMPILED_PREFIX
from ..tir import Evaluate, IfThenElse, PrimFunc, Stmt, seq
from ..tir.intrinsics import (
    CALL_PACKED,
    anylist_getitem,
    anylist_setitem_call_cpacked,
    anylist_setitem_call_packed,
    call_cpacked,
    call_packed,
    reinterpret,
)
from ..values import Shape
from .codegen import has_shape_heap, not_lowered, param_names, symbol_of

__all__ = ["VMTIRFunction", "emit_vm_tir", "generate_vm_tir"]

_NULL_VALUE: Final = Op.get("relax.null_value")
_WITH_CONTEXT: Final = Op.get("relax.call_builtin_with_ctx")
_ALLOC_STORAGE: Final = Op.get("relax.vm.alloc_storage")
_ALLOC_TENSOR: Final = Op.get("relax.vm.alloc_tensor")
_KILL: Final = Op.get("relax.vm.kill_object")


class VMTIRFunction:
    """A function as VM-TIR.

    Attributes:
        name: the name of the Relax function at run time.
        func: the code; its statements have the spans of the bindings.
        variables: for each register the name of its variable, or None.
        num_params: number of parameters.
    """

    __slots__ = ("func", "name", "num_params", "variables")

    def __init__(
        self, name: str, func: PrimFunc, num_params: int, variables: list[str | None]
    ) -> None:
        self.name = name
        self.func = func
        self.num_params = num_params
        self.variables = variables


def generate_vm_tir(builder: ExecBuilder, mod: IRModule) -> IRModule:
    """Declare every Relax function of a lowered module as compiled; returns the module in which
    they are replaced by VM-TIR.

    Raises:
        TypeError: the module has an expression that is not lowered; a note names the function.
    """
    rest = mod.copy()
    for var, func in mod.functions.items():
        if isinstance(func, Function):
            del rest[var]
    for function in emit_vm_tir(builder, mod):
        rest[GlobalVar(COMPILED_PREFIX + function.name)] = function.func
    return rest


def emit_vm_tir(builder: ExecBuilder, mod: IRModule) -> list[VMTIRFunction]:
    """As `generate_vm_tir`, but return only the functions, with the names of their registers."""
    found = []
    for var, func in mod.functions.items():
        if not isinstance(func, Function):
            continue
        symbol = symbol_of(func, var)
        try:
            found.append(_FunctionEmitter(builder, mod, symbol, func).emit())
        except Exception as error:
            error.add_note(f"in the code generator, function {symbol!r}")
            raise
    return found


class _FunctionEmitter:
    """Emits one function.  The methods for expressions return a TIR scalar that refers to the
    value, or None for a call without a value."""

    def __init__(self, builder: ExecBuilder, mod: IRModule, symbol: str, func: Function) -> None:
        self._builder = builder
        self._mod = mod
        self._symbol = symbol
        self._func = func
        handle = prim_type("handle")
        self._context = Var("ctx_ptr", handle)
        self._registers = Var("r", handle)
        self._constants = Var("c", handle)
        self._functions = Var("f", handle)
        self._values: dict[Var, Expr | None] = {}
        self._variables: list[str | None] = []
        self._is_checked = has_shape_heap(func)
        self._body: list[Stmt] = []
        self._span: Span | None = None

    def emit(self) -> VMTIRFunction:
        func, builder = self._func, self._builder
        names = param_names(func)
        builder.declare_function(self._symbol, FuncKind.COMPILED)
        for param, name in zip(func.params, names, strict=True):
            self._values[param] = self._register(self._new_register(name))
        result = self._new_register()
        value = self._seq(func.body)
        if value is not None:
            self._set(result, "vm.builtin.copy", [value])
        builder.add_compiled(self._symbol, len(names), len(self._variables), names)
        params = (self._context, self._registers, self._constants, self._functions)
        attrs = {"global_symbol": COMPILED_PREFIX + self._symbol}
        code = PrimFunc(params, seq(self._body), None, attrs)
        return VMTIRFunction(self._symbol, code, len(names), self._variables)

    # Registers and statements

    def _new_register(self, name: str | None = None) -> int:
        self._variables.append(name)
        return len(self._variables) - 1

    def _register(self, number: int) -> Expr:
        return anylist_getitem(self._registers, number)

    def _number_of(self, value: Expr | None) -> int | None:
        """The register that holds a value, or None."""
        if isinstance(value, Call) and value.args and value.args[0] is self._registers:
            index: Any = value.args[1]
            return int(index.value)
        return None

    def _emit(self, value: Expr) -> None:
        self._body.append(Evaluate(value, span=self._span))

    def _set(self, register: int, name: str, args: list[Expr]) -> None:
        self._emit(anylist_setitem_call_packed(self._registers, register, name, *args))

    def _set_new(self, name: str, args: list[Expr]) -> Expr:
        register = self._new_register()
        self._set(register, name, args)
        return self._register(register)

    @contextmanager
    def _scope(self) -> Iterator[list[Stmt]]:
        """Context manager: collect the emitted statements in a new list."""
        outer, self._body = self._body, []
        try:
            yield self._body
        finally:
            self._body = outer

    # Bindings

    def _seq(self, expr: SeqExpr) -> Expr | None:
        for block in expr.blocks:
            for binding in block.bindings:
                self._binding(binding)
        self._span = expr.span
        return self._value(expr.body)

    def _binding(self, binding: Binding) -> None:
        var = binding.var
        if isinstance(binding, MatchCast) and not self._is_checked:
            raise TypeError(f"{var} is bound by a match_cast; run VMShapeLower first")
        self._span = binding.span
        value = self._value(binding.value)
        if isinstance(binding.value, Var) and value is not None:
            # A copy, so that killing one of the variables does not affect the other.
            value = self._set_new("vm.builtin.copy", [value])
        register = self._number_of(value)
        if register is not None and self._variables[register] is None:
            self._variables[register] = var.name
        self._values[var] = value

    # Values

    def _value(self, expr: Expr) -> Expr | None:
        rule = _VALUES.get(type(expr))
        if rule is None:
            raise TypeError(
                f"{expr} ({type(expr).__name__} of type {expr.ty}) cannot be an operand; scalars "
                "other than constants are lowered by ComputePrimValue and VMShapeLower"
            )
        return rule(self, expr)

    def _operand(self, expr: Expr) -> Expr:
        value = self._value(expr)
        return _null() if value is None else value

    def _operands(self, exprs: Any) -> list[Expr]:
        return [self._operand(expr) for expr in exprs]

    def _var(self, var: Any) -> Expr | None:
        try:
            value = self._values[var]
        except KeyError:
            raise TypeError(f"variable {var} is used before it is bound") from None
        # The empty tuple stands for no value.
        return self._set_new("vm.builtin.make_tuple", []) if value is None else value

    def _scalar(self, expr: Any) -> Expr:
        value = IntImm("int64", int(expr.value))
        if expr.ty.dtype == "bool":  # computed, since TVM's format has no bool constants
            return self._set_new("vm.builtin.read_if_cond", [value])
        return value

    def _float(self, expr: Any) -> Expr:
        return FloatImm("float64", float(expr.value))

    def _constant(self, expr: Any) -> Expr:
        return self._in_pool(expr.data)

    def _string(self, expr: Any) -> Expr:
        return self._in_pool(expr.value)

    def _dtype(self, expr: Any) -> Expr:
        return self._in_pool(as_dtype(expr.value))

    def _shape(self, expr: Any) -> Expr:
        dims = []
        for value in expr.values:
            if type(value) is not IntImm:
                raise TypeError(f"shape {expr} is symbolic; run VMShapeLower first")
            dims.append(value.value)
        return self._in_pool(Shape(dims))

    def _in_pool(self, value: Any) -> Expr:
        _, index = decode_arg(self._builder.convert_constant(value))
        return anylist_getitem(self._constants, index)

    def _tuple(self, expr: Any) -> Expr:
        return self._set_new("vm.builtin.make_tuple", self._operands(expr.fields))

    def _tuple_getitem(self, expr: Any) -> Expr:
        args = [self._operand(expr.tuple_value), IntImm("int64", expr.index)]
        return self._set_new("vm.builtin.tuple_getitem", args)

    def _global_var(self, var: Any) -> Expr:
        func = self._mod[var]
        kind = FuncKind.COMPILED if isinstance(func, Function) else FuncKind.PACKED
        return self._function(symbol_of(func, var), kind)

    def _extern_func(self, func: Any) -> Expr:
        return self._function(func.global_symbol, FuncKind.PACKED)

    def _function(self, symbol: str, kind: FuncKind) -> Expr:
        self._builder.declare_function(symbol, kind)
        _, index = decode_arg(self._builder.f(symbol))
        return anylist_getitem(self._functions, index)

    def _local_function(self, func: Any) -> Expr:
        raise TypeError("a local function is left; run LambdaLift first")

    # Calls

    def _call(self, call: Any) -> Expr | None:
        op = call.op
        if op is _NULL_VALUE:
            return _null()
        if op is _KILL:
            return self._kill(call.args[0])
        is_void = type(call.ty) is TupleType and not call.ty.fields
        register = None if is_void else self._new_register()
        if isinstance(op, Op):
            self._call_op(op, call, register)
        else:
            self._call_function(op, call, register)
        return None if register is None else self._register(register)

    def _kill(self, expr: Expr) -> Expr | None:
        value = self._operand(expr)
        register = self._number_of(value)
        if register is not None:
            self._set(register, "vm.builtin.null_value", [])
        return value

    def _call_op(self, op: Op, call: Call, register: int | None) -> None:
        if op is _WITH_CONTEXT:
            callee, packed = call.args
            fields = packed.fields if isinstance(packed, Tuple) else tuple(packed)
            name: str = callee.global_symbol  # type: ignore[attr-defined]
            self._call_packed(name, [self._context, *self._operands(fields)], register)
        elif op is _ALLOC_STORAGE:
            args = [self._context, *self._operands(call.args)]
            self._call_packed("vm.builtin.alloc_storage", args, register)
        elif op is _ALLOC_TENSOR:
            storage, offset, shape, dtype, *_device = call.args
            args = self._operands((storage, offset, shape, dtype))
            self._call_packed("vm.builtin.alloc_tensor", args, register)
        else:
            raise not_lowered(op, call)

    def _call_function(self, op: Expr, call: Call, register: int | None) -> None:
        args = self._operands(call.args)
        if isinstance(op, ExternFunc):
            self._call_packed(op.global_symbol, args, register)
        elif isinstance(op, GlobalVar) and isinstance(self._mod[op], PrimFunc):
            self._call_own(symbol_of(self._mod[op], op), args, register)
        else:
            args = [self._context, self._operand(op), *args]
            self._call_packed("vm.builtin.invoke_closure", args, register)

    def _call_packed(self, name: str, args: list[Expr], register: int | None) -> None:
        if register is None:
            self._emit(call_packed(name, *args))
        else:
            self._set(register, name, args)

    def _call_own(self, name: str, args: list[Expr], register: int | None) -> None:
        """Call a function of the module."""
        if register is None:
            self._emit(call_cpacked(name, *args))
        else:
            self._emit(anylist_setitem_call_cpacked(self._registers, register, name, *args))

    # Control flow

    def _if(self, expr: Any) -> Expr:
        merged, span = self._new_register(), self._span
        cond = [StringImm("vm.builtin.read_if_cond"), self._operand(expr.cond)]
        with self._scope() as then_case:
            self._set(merged, "vm.builtin.copy", [self._branch(expr.true_branch)])
        with self._scope() as else_case:
            self._set(merged, "vm.builtin.copy", [self._branch(expr.false_branch)])
        self._span = span
        condition = Call(CALL_PACKED, cond, ret_ty=prim_type("bool"))
        self._body.append(IfThenElse(condition, seq(then_case), seq(else_case), span=span))
        return self._register(merged)

    def _branch(self, branch: SeqExpr) -> Expr:
        value = self._seq(branch)
        return _null() if value is None else value


def _null() -> Expr:
    return reinterpret("handle", IntImm("int64", 0))


_VALUES: Final[dict[type, Callable[[_FunctionEmitter, Any], Expr | None]]] = class_table({
    Var: _FunctionEmitter._var,
    DataflowVar: _FunctionEmitter._var,
    Constant: _FunctionEmitter._constant,
    IntImm: _FunctionEmitter._scalar,
    FloatImm: _FunctionEmitter._float,
    StringImm: _FunctionEmitter._string,
    DataTypeImm: _FunctionEmitter._dtype,
    ShapeExpr: _FunctionEmitter._shape,
    Tuple: _FunctionEmitter._tuple,
    TupleGetItem: _FunctionEmitter._tuple_getitem,
    GlobalVar: _FunctionEmitter._global_var,
    ExternFunc: _FunctionEmitter._extern_func,
    Function: _FunctionEmitter._local_function,
    SeqExpr: _FunctionEmitter._seq,
    Call: _FunctionEmitter._call,
    If: _FunctionEmitter._if,
})  # fmt: skip
