"""Code generation: functions of a lowered module become bytecode.

One register per binding.  What a function needs of the VM is said by builtins only; see
`relaxvm.transform` for what has to be lowered before.

Source: CodeGenVM of apache-tvm 0.27.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..exec_builder import ExecBuilder
from ..ir import (
    BaseFunc,
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
from ..ir.visitor import ExprVisitor
from ..isa import FuncKind
from ..op import base, vm  # noqa: F401  (registers the operators named here)
from ..values import Shape, as_dtype

__all__ = ["generate_bytecode"]

_NULL_VALUE: Final = Op.get("relax.null_value")
_WITH_CONTEXT: Final = Op.get("relax.call_builtin_with_ctx")
_ALLOC_STORAGE: Final = Op.get("relax.vm.alloc_storage")
_ALLOC_TENSOR: Final = Op.get("relax.vm.alloc_tensor")
_COMPUTE_SHAPE: Final = "relaxvm.builtin.compute_shape"
_KILL: Final = Op.get("relax.vm.kill_object")


def generate_bytecode(
    builder: ExecBuilder, mod: IRModule, programs: Mapping[GlobalVar, Shape] | None = None
) -> IRModule:
    """Emit every Relax function of a lowered module; returns the module of what is left, the
    PrimFuncs.

    Args:
        programs: functions that are called with the shape heap only, and what they compute; a call
            of one is ``relaxvm.builtin.compute_shape``.

    Raises:
        TypeError: an expression that lowering should have removed; the note says where.
    """
    rest = mod.copy()
    for var, func in mod.functions.items():
        if type(func) is not Function:
            continue
        symbol = symbol_of(func, var)
        try:
            _FunctionEmitter(builder, mod, symbol, func, programs or {}).emit()
        except Exception as error:
            error.add_note(f"in the code generator, function {symbol!r}")
            raise
        del rest[var]
    return rest


def symbol_of(func: BaseFunc, var: GlobalVar) -> str:
    """What a function is called at run time.

    Raises:
        ValueError: a Relax function without the attribute "global_symbol".
    """
    symbol = func.attrs.get("global_symbol")
    if symbol is None and type(func) is Function:
        raise ValueError(
            f"function {var.name_hint!r} has no global_symbol; run AttachGlobalSymbol first"
        )
    return var.name_hint if symbol is None else str(symbol)


class _Used(ExprVisitor):
    """Variables that are read somewhere in a function."""

    def __init__(self) -> None:
        self.found: set[Var] = set()

    def visit_var(self, var: Var) -> None:
        self.found.add(var)


class _FunctionEmitter:
    """Emits one function.  An expression evaluates to an operand word; `dst` is the register that
    a result goes to, or None for a new one."""

    def __init__(
        self,
        builder: ExecBuilder,
        mod: IRModule,
        symbol: str,
        func: Function,
        programs: Mapping[GlobalVar, Shape],
    ) -> None:
        self._builder = builder
        self._mod = mod
        self._symbol = symbol
        self._func = func
        self._programs = programs
        self._words: dict[Var, int] = {}
        self._next = len(func.params)
        self._files: set[str] = set()
        used = _Used()
        used.visit(func)
        self._used = used.found

    def emit(self) -> None:
        func, builder = self._func, self._builder
        names = [param.name for param in func.params]
        with builder.function(self._symbol, len(names), names):
            for number, param in enumerate(func.params):
                self._words[param] = builder.r(number)
            result = self._seq(func.body)
            builder.at(func.body.span)
            builder.emit_ret(self._in_register(result))
        for file in sorted(self._files):
            self._add_source(file)

    def _add_source(self, file: str) -> None:
        text = self._mod.sources.get(file)
        if text is None:
            text = "".join(linecache.getlines(file))
        if text:
            self._builder.add_source(file, text)

    def _new_register(self) -> int:
        register = self._next
        self._next += 1
        return self._builder.r(register)

    def _in_register(self, word: int) -> int:
        """The operand in a register of its own, as results have to be."""
        if self._is_register(word):
            return word
        dst = self._new_register()
        self._builder.emit_call("vm.builtin.copy", [word], dst)
        return dst

    def _is_register(self, word: int) -> bool:
        return word >> 56 == 0 and word != self._builder.void_arg()

    def _seq(self, seq: SeqExpr) -> int:
        for block in seq.blocks:
            for binding in block.bindings:
                self._binding(binding)
        return self._operand(seq.body)

    def _binding(self, binding: Binding) -> None:
        var = binding.var
        if type(binding) is MatchCast:
            raise TypeError(f"{var} is bound by a match_cast; run VMShapeLower first")
        span = binding.span
        if span is not None:
            self._files.add(span.file)
        is_used = var in self._used
        self._builder.at(span, var.name if is_used else None)
        self._words[var] = self._value(binding.value, is_used)

    def _value(self, value: Expr, is_used: bool) -> int:
        if type(value) is Call:
            return self._call(value, is_used)
        if type(value) is If:
            return self._if(value)
        if isinstance(value, Var):
            # A copy, so that killing one of the names leaves the other.
            dst = self._new_register()
            self._builder.emit_call("vm.builtin.copy", [self._operand(value)], dst)
            return dst
        if type(value) is Function:
            raise TypeError("a local function is left; run LambdaLift first")
        return self._operand(value)

    # Operands

    def _operand(self, expr: Expr) -> int:
        rule = _OPERANDS.get(type(expr))
        if rule is None:
            raise TypeError(
                f"{expr} ({type(expr).__name__} of type {expr.ty}) cannot be an operand; scalars "
                "other than constants are lowered by ComputePrimValue and VMShapeLower"
            )
        return rule(self, expr)

    def _var(self, var: Any) -> int:
        try:
            return self._words[var]
        except KeyError:
            raise TypeError(f"variable {var} is used before it is bound") from None

    def _constant(self, expr: Any) -> int:
        return self._builder.convert_constant(expr.data)

    def _int(self, expr: Any) -> int:
        return self._builder.convert_constant(int(expr.value))

    def _float(self, expr: Any) -> int:
        return self._builder.convert_constant(float(expr.value))

    def _string(self, expr: Any) -> int:
        return self._builder.convert_constant(expr.value)

    def _dtype(self, expr: Any) -> int:
        return self._builder.convert_constant(as_dtype(expr.value))

    def _shape(self, expr: Any) -> int:
        dims = []
        for value in expr.values:
            if type(value) is not IntImm:
                raise TypeError(f"shape {expr} is symbolic; run VMShapeLower first")
            dims.append(value.value)
        return self._builder.convert_constant(Shape(dims))

    def _tuple(self, expr: Any) -> int:
        fields = [self._operand(field) for field in expr.fields]
        dst = self._new_register()
        self._builder.emit_call("vm.builtin.make_tuple", fields, dst)
        return dst

    def _tuple_getitem(self, expr: Any) -> int:
        args = [self._operand(expr.tuple_value), self._builder.imm(expr.index)]
        dst = self._new_register()
        self._builder.emit_call("vm.builtin.tuple_getitem", args, dst)
        return dst

    def _global_var(self, var: Any) -> int:
        func = self._mod[var]
        kind = FuncKind.VM_FUNC if type(func) is Function else FuncKind.PACKED_FUNC
        symbol = symbol_of(func, var)
        self._builder.declare_function(symbol, kind)
        return self._builder.f(symbol)

    def _extern_func(self, func: Any) -> int:
        self._builder.declare_function(func.global_symbol, FuncKind.PACKED_FUNC)
        return self._builder.f(func.global_symbol)

    # Calls

    def _nested_call(self, call: Any) -> int:
        return self._call(call, is_used=True)

    def _call(self, call: Call, is_used: bool) -> int:
        op = call.op
        if type(op) is Op:
            return self._call_op(op, call, is_used)
        if type(op) is ExternFunc:
            return self._emit_call(op.global_symbol, self._operands(call.args), call, is_used)
        if type(op) is GlobalVar:
            program = self._programs.get(op)
            if program is not None:
                args = [*self._operands(call.args), self._builder.convert_constant(program)]
                return self._emit_call(_COMPUTE_SHAPE, args, call, is_used)
            symbol = symbol_of(self._mod[op], op)
            return self._emit_call(symbol, self._operands(call.args), call, is_used)
        args = [self._builder.vm_state(), self._operand(op), *self._operands(call.args)]
        return self._emit_call("vm.builtin.invoke_closure", args, call, is_used)

    def _operands(self, args: tuple[Expr, ...]) -> list[int]:
        return [self._operand(arg) for arg in args]

    def _emit_call(self, name: str, args: list[int], call: Call, is_used: bool) -> int:
        is_void = type(call.ty) is TupleType and not call.ty.fields
        if is_void or not is_used:
            self._builder.emit_call(name, args)
            return self._builder.void_arg()
        dst = self._new_register()
        self._builder.emit_call(name, args, dst)
        return dst

    def _call_op(self, op: Op, call: Call, is_used: bool) -> int:
        builder = self._builder
        if op is _NULL_VALUE:
            return builder.void_arg()
        if op is _KILL:
            word = self._operand(call.args[0])
            if self._is_register(word):
                builder.emit_call("vm.builtin.null_value", [], word)
            return builder.void_arg()
        if op is _WITH_CONTEXT:
            callee, packed = call.args
            fields = packed.fields if type(packed) is Tuple else tuple(packed)
            args = [builder.vm_state(), *self._operands(fields)]
            return self._emit_call(callee.global_symbol, args, call, is_used)  # type: ignore[attr-defined]
        if op is _ALLOC_STORAGE:
            args = [builder.vm_state(), *self._operands(call.args)]
            return self._emit_call("vm.builtin.alloc_storage", args, call, is_used)
        if op is _ALLOC_TENSOR:
            storage, offset, shape, dtype, *_device = call.args
            args = self._operands((storage, offset, shape, dtype))
            return self._emit_call("vm.builtin.alloc_tensor", args, call, is_used)
        raise TypeError(
            f"operator {op.name} cannot be called by the VM: {call}; no pass has lowered it"
        )

    # Control flow

    def _if(self, expr: If) -> int:
        builder = self._builder
        cond = self._new_register()
        builder.emit_call("vm.builtin.read_if_cond", [self._operand(expr.cond)], cond)
        orelse, done = builder.label("else"), builder.label("done")
        builder.emit_if(cond, orelse)
        # The register of the result is numbered after those of the first branch, as TVM does it.
        true_word = self._seq(expr.true_branch)
        merged = self._new_register()
        builder.emit_call("vm.builtin.copy", [true_word], merged)
        builder.emit_goto(done)
        builder.bind(orelse)
        false_word = self._seq(expr.false_branch)
        builder.emit_call("vm.builtin.copy", [false_word], merged)
        builder.bind(done)
        return merged


_OPERANDS: Final[dict[type, Callable[[_FunctionEmitter, Any], int]]] = {
    Var: _FunctionEmitter._var,
    DataflowVar: _FunctionEmitter._var,
    Constant: _FunctionEmitter._constant,
    IntImm: _FunctionEmitter._int,
    FloatImm: _FunctionEmitter._float,
    StringImm: _FunctionEmitter._string,
    DataTypeImm: _FunctionEmitter._dtype,
    ShapeExpr: _FunctionEmitter._shape,
    Tuple: _FunctionEmitter._tuple,
    TupleGetItem: _FunctionEmitter._tuple_getitem,
    GlobalVar: _FunctionEmitter._global_var,
    ExternFunc: _FunctionEmitter._extern_func,
    Call: _FunctionEmitter._nested_call,
    If: _FunctionEmitter._if,
}
