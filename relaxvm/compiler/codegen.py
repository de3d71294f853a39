"""Code generation: emits bytecode for the functions of a lowered module.

Each binding gets a register.  Functions use features of the VM only through builtins; see
`relaxvm.transform` for the lowering that is required.

Source: CodeGenVM of apache-tvm 0.27.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

from ..dtypes import as_dtype
from ..errors import LimitError
from ..executable import MAKE_ADT
from ..executable.debug_info import FusedSpan, Part, Span
from ..executable.exec_builder import ExecBuilder, Label
from ..field_types import FunctionField, parse
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
    Op,
    SeqExpr,
    ShapeExpr,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ..ir.field_types import SIGNATURE_ATTR, data_types_of
from ..ir.names import name_behind
from ..ir.node import class_table
from ..ir.visitor import ExprVisitor, note_binding
from ..isa import FuncKind
from ..limits import Limits
from ..op import base, vm  # noqa: F401  (registers the operators named here)
from ..values import Shape, adt_type

__all__ = ["generate_bytecode"]

_NULL_VALUE: Final = Op.get("relax.null_value")
_WITH_CONTEXT: Final = Op.get("relax.call_builtin_with_ctx")
_ALLOC_STORAGE: Final = Op.get("relax.vm.alloc_storage")
_ALLOC_TENSOR: Final = Op.get("relax.vm.alloc_tensor")
_INVOKE_CLOSURE: Final = "vm.builtin.invoke_closure"
_TAG_IS: Final = "relaxvm.builtin.tag_is"
_COMPUTE_SHAPE: Final = "relaxvm.builtin.compute_shape"
_KILL: Final = Op.get("relax.vm.kill_object")
_RESERVED: Final = ("vm.builtin.", "relaxvm.builtin.", "relaxvm.kernel.")
"""Prefixes of the names of builtins and kernels of relaxvm."""
_MOST_CONSTANT_PARTS: Final = 1000
_MOST_OPERANDS: Final = Limits().call_args or sys.maxsize
"""The greatest number of operands of a call that the default limits allow."""


def generate_bytecode(
    builder: ExecBuilder,
    mod: IRModule,
    programs: Mapping[GlobalVar, tuple[Shape, ...]] | None = None,
) -> IRModule:
    """Emit bytecode for every Relax function of a lowered module; returns the module of the
    remaining functions, the PrimFuncs.

    Args:
        programs: shape functions -> their shape programs; a call of such a function becomes a call
            of ``relaxvm.builtin.compute_shape`` for each of its programs.

    Raises:
        TypeError: the module has an expression that is not lowered; a note names the function.
    """
    rest = mod.copy()
    for data in data_types_of(mod.type_definitions):
        builder.add_data_type(data)
    for var, func in mod.functions.items():
        if not isinstance(func, Function):
            continue
        symbol = symbol_of(func, var)
        emitter = _FunctionEmitter(builder, mod, symbol, func, programs or {})
        try:
            emitter.emit()
        except Exception as error:
            if emitter.current is not None:
                note_binding(error, emitter.current)
            error.add_note(f"in the code generator, function {symbol!r}")
            raise
        _add_signature(builder, symbol, func)
        del rest[var]
    return rest


def symbol_of(func: BaseFunc | ExternFunc, var: GlobalVar) -> str:
    """Return the name of a function at run time.

    Raises:
        ValueError: a Relax function has no attribute "global_symbol", or the name has a prefix
            that is reserved for builtins and kernels of relaxvm.
    """
    if isinstance(func, ExternFunc):
        return func.global_symbol
    symbol = func.attrs.get("global_symbol")
    if symbol is None and isinstance(func, Function):
        raise ValueError(
            f"function {var.name_hint!r} has no global_symbol; run AttachGlobalSymbol first"
        )
    name = var.name_hint if symbol is None else str(symbol)
    if name.startswith(_RESERVED):
        raise ValueError(
            f"function {name!r}: names that begin with {', '.join(_RESERVED)} belong to relaxvm; "
            "rename the function"
        )
    return name


def _add_signature(builder: ExecBuilder, symbol: str, func: Function) -> None:
    """Keep the type that a function had before types were erased, if its parameters are those that
    it had then."""
    text = func.attrs.get(SIGNATURE_ATTR)
    if isinstance(text, str):
        ty = parse(text)
        if isinstance(ty, FunctionField) and len(ty.params or ()) == len(func.params):
            builder.add_signature(symbol, ty)


def param_names(func: Function) -> list[str]:
    """Return the names of the parameters, made unique, since LambdaLift may add a parameter of the
    same name.  An unnamed parameter is "v", as in printed text."""
    names: dict[str, None] = {}
    for param in func.params:
        hint = param.name or "v"
        name, number = hint, 0
        while name in names:
            number += 1
            name = f"{hint}_{number}"
        names[name] = None
    return list(names)


_WITHOUT_USES: Final = class_table(dict.fromkeys(
    (Constant, DataTypeImm, ExternFunc, FloatImm, IntImm, Op, ShapeExpr, StringImm)
))  # fmt: skip


class _Used(ExprVisitor):
    """Collects the variables that a function reads, and the functions that it mentions."""

    def __init__(self) -> None:
        self.found: set[Var] = set()
        self.functions: set[GlobalVar] = set()

    def visit_call(self, call: Call) -> None:
        for part in (call.op, *call.args):
            if isinstance(part, Var):
                self.found.add(part)
            elif type(part) not in _WITHOUT_USES:
                self.visit(part)

    def visit_var(self, var: Var) -> None:
        self.found.add(var)

    def visit_global_var(self, var: GlobalVar) -> None:
        self.functions.add(var)


def not_lowered(op: Op, call: Call) -> TypeError:
    """Return the error for a call of an operator that is not lowered."""
    reason = "no pass has lowered it"
    ty = call.ty
    if type(ty) is TensorType and (ty.shape is None or ty.dtype is None):
        reason += f", since its result is only known to be {ty}; narrow operands by R.match_cast"
    return TypeError(f"operator {op.name} cannot be called by the VM: {call}; {reason}")


class _FunctionEmitter:
    """Emits one function.  The methods for expressions return an operand word."""

    def __init__(
        self,
        builder: ExecBuilder,
        mod: IRModule,
        symbol: str,
        func: Function,
        programs: Mapping[GlobalVar, tuple[Shape, ...]],
    ) -> None:
        self._builder = builder
        self._mod = mod
        self._symbol = symbol
        self._func = func
        self._programs = programs
        self._words: dict[Var, int] = {}
        self._data: dict[Var, tuple[Any, int]] = {}
        """Variables that are values of data types made of constants, and how many parts these have:
        they are constants, too, which are added to the pool where they are used."""
        self._constants: dict[Hashable, int] = {}
        self._next = len(func.params)
        self._bools: set[Expr] = set()
        """Variables that are bools of Python."""
        self._files: set[str] = set()
        self._place: tuple[Span | None, str | None, tuple[Part, ...]] = None, None, ()
        self.current: Binding | None = None
        self._is_checked = has_shape_heap(func)
        used = _Used()
        used.visit(func)
        self._used = used.found
        self._itself = next((v for v in used.functions if mod.functions.get(v) is func), None)

    def emit(self) -> None:
        func, builder = self._func, self._builder
        names = param_names(func)
        with builder.function(self._symbol, len(names), names, warn_unused=False):
            for number, param in enumerate(func.params):
                self._words[param] = builder.r(number)
            if self._itself is None and not self._ends_in_call(func.body):
                self._return(func.body, self._seq(func.body))
            else:
                self._start = builder.label("start")
                builder.bind(self._start)
                self._seq_in_tail(func.body)
        for file in sorted(self._files):
            self._add_source(file)

    def _return(self, seq: SeqExpr, result: int) -> None:
        self._builder.at(seq.span)
        self._builder.emit_ret(self._in_register(result))

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
        """Return a register with the operand; copies it if needed, since results are registers."""
        return word if self._is_register(word) else self._in_new_register(word)

    def _in_new_register(self, word: int) -> int:
        dst = self._new_register()
        self._builder.emit_call("vm.builtin.copy", [word], dst)
        return dst

    def _is_register(self, word: int) -> bool:
        return word >> 56 == 0 and word != self._builder.void_arg()

    def _seq(self, seq: SeqExpr) -> int:
        for block in seq.blocks:
            for binding in block.bindings:
                self._binding(binding)
        self._builder.at(seq.span)
        return self._operand(seq.body)

    # Tail calls: a function that calls itself last is restarted in the same frame.  A call of
    # another function or of a closure stands right before the return, so that the core can give its
    # frame to the callee.

    def _seq_in_tail(self, seq: SeqExpr) -> None:
        """Emit a sequence whose value is the function's result, including the return or restart."""
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        end = len(bindings)
        while end and _is_kill(bindings[end - 1]):
            end -= 1
        last = bindings[end - 1] if end else None
        value = last.value if last is not None and last.var is seq.body else None
        if isinstance(value, Call) and self._itself is not None and value.op is self._itself:
            for binding in bindings[: end - 1]:
                self._binding(binding)
            self._restart(value, bindings[end:])
        elif isinstance(value, Call) and self._is_call_of_program(value):
            for binding in bindings[:end]:
                self._binding(binding)
            self._return(seq, self._operand(seq.body))  # which kills all
        elif isinstance(value, If):
            for binding in bindings[: end - 1]:
                self._binding(binding)
            self._builder.at(value.span)
            orelse = self._begin_if(value)
            self._seq_in_tail(value.true_branch)
            self._builder.bind(orelse)
            self._seq_in_tail(value.false_branch)
        else:
            self._return(seq, self._seq(seq))

    def _ends_in_call(self, seq: SeqExpr) -> bool:
        """Whether the value of a sequence may be that of a call of a function or closure."""
        work = [seq]
        while work:
            seq = work.pop()
            bindings = [b for block in seq.blocks for b in block.bindings if not _is_kill(b)]
            if not bindings or bindings[-1].var is not seq.body:
                continue
            value = bindings[-1].value
            if isinstance(value, If):
                work += [value.true_branch, value.false_branch]
            elif isinstance(value, Call) and self._is_call_of_program(value):
                return True
        return False

    def _is_call_of_program(self, call: Call) -> bool:
        op = call.op
        if isinstance(op, GlobalVar):
            return op not in self._programs and isinstance(self._mod.functions[op], Function)
        if op is _WITH_CONTEXT:
            callee = call.args[0]
            return isinstance(callee, ExternFunc) and callee.global_symbol == _INVOKE_CLOSURE
        return isinstance(op, Var)

    def _restart(self, call: Call, kills: list[Binding]) -> None:
        builder = self._builder
        builder.at(call.span)
        params = [builder.r(number) for number in range(len(self._func.params))]
        words = self._operands(call.args)
        # A parameter that is passed in another position would be overwritten before it is read.
        moved: dict[int, int] = {}
        for param, word in zip(params, words, strict=True):
            if word in params and word != param and word not in moved:
                moved[word] = self._in_new_register(word)
        for param, word in zip(params, words, strict=True):
            if word != param:
                builder.emit_call("vm.builtin.copy", [moved.get(word, word)], param)
        for kill in kills:
            self._value(kill.value, is_used=False)
        for register in moved.values():
            builder.emit_call("vm.builtin.null_value", [], register)
        if words == params:
            # An endless loop, which may be empty: a jump cannot jump to itself.
            builder.emit_call("vm.builtin.null_value", [])
        builder.emit_goto(self._start)

    def _binding(self, binding: Binding) -> None:
        self.current = binding
        var = binding.var
        if not (isinstance(binding, VarBinding) or self._is_checked):
            raise TypeError(f"{var} is bound by a match_cast; run VMShapeLower first")
        span, value = binding.span, binding.value
        parts: tuple[Part, ...] = ()
        if isinstance(span, FusedSpan):
            if not _is_memory(value):  # only what computes it is made of all its parts
                parts = span.parts
            span = span.place
        self._files.update(place.file for place, _ in ((span, None), *parts) if place is not None)
        is_used = var in self._used
        self._place = span, var.name if is_used else name_behind(var.name), parts
        self._builder.at(*self._place)
        if isinstance(value, Call) and isinstance(value.op, ExternFunc) and (
            value.op.global_symbol == _TAG_IS
        ):  # fmt: skip
            self._bools.add(var)
        data = self._constant_data(value)
        if data is not None:
            self._data[var] = data
        else:
            self._words[var] = self._value(value, is_used)

    def _value(self, value: Expr, is_used: bool) -> int:
        if isinstance(value, Call):
            return self._call(value, is_used)
        if isinstance(value, If):
            return self._if(value)
        if isinstance(value, Var):
            # A copy, so that killing one of the variables does not affect the other.
            return self._in_new_register(self._operand(value))
        if isinstance(value, Function):
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

    def _constant_data(self, value: Expr) -> tuple[Any, int] | None:
        """The value of a data type that an expression makes of constants, and how many parts it
        has; None if it makes none, or a large one, since each use takes time for all parts."""
        if not isinstance(value, Call) or not isinstance(value.op, ExternFunc) or (
            value.op.global_symbol != MAKE_ADT or len(value.args) < 2
        ):  # fmt: skip
            return None
        name, tag, *fields = value.args
        if not isinstance(name, StringImm) or not isinstance(tag, IntImm):
            return None
        parts = []
        count = 1 + len(fields)
        for field in fields:
            if isinstance(field, Var) and field in self._data:
                part, inner = self._data[field]
                parts.append(part)
                count += inner
            elif isinstance(field, Constant):
                parts.append(field.data)
            elif isinstance(field, (IntImm, FloatImm, StringImm)):
                is_bool = isinstance(field, IntImm) and field.ty.dtype == "bool"
                parts.append(bool(field.value) if is_bool else field.value)
            else:
                return None
        if count > _MOST_CONSTANT_PARTS:
            return None
        return adt_type()(name.value, int(tag.value), parts), count

    def _var(self, var: Any) -> int:
        if var in self._data and var not in self._words:
            self._words[var] = self._builder.convert_constant(self._data[var][0])
        try:
            return self._words[var]
        except KeyError:
            raise TypeError(f"variable {var} is used before it is bound") from None

    def _constant(self, expr: Any) -> int:
        return self._builder.convert_constant(expr.data)

    def _int(self, expr: Any) -> int:
        if expr.ty.dtype == "bool":
            return self._bool(int(expr.value))
        return self._word(int, expr.value)

    def _bool(self, value: int) -> int:
        """A bool is computed at run time, since TVM's binary format has no bool constants."""
        dst = self._new_register()
        self._builder.emit_call("vm.builtin.read_if_cond", [self._builder.imm(value)], dst)
        return dst

    def _float(self, expr: Any) -> int:
        return self._builder.convert_constant(float(expr.value))

    def _string(self, expr: Any) -> int:
        return self._word(str, expr.value)

    def _dtype(self, expr: Any) -> int:
        return self._word(as_dtype, expr.value)

    def _shape(self, expr: Any) -> int:
        dims = []
        for value in expr.values:
            if type(value) is not IntImm:
                raise TypeError(f"shape {expr} is symbolic; run VMShapeLower first")
            dims.append(value.value)
        return self._word(Shape, tuple(dims))

    def _word(self, convert: Callable[[Any], Any], content: Hashable) -> int:
        """Return the operand word of the constant `convert(content)`; cached, since functions use
        the same few constants again and again."""
        key = convert, content
        word = self._constants.get(key)
        if word is None:
            constant = convert(content)
            word = self._constants[key] = self._builder.convert_constant(constant)
        return word

    def _tuple(self, expr: Any) -> int:
        fields = self._operands(expr.fields)
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
        kind = FuncKind.BYTECODE if isinstance(func, Function) else FuncKind.PACKED
        symbol = symbol_of(func, var)
        self._builder.declare_function(symbol, kind)
        return self._builder.f(symbol)

    def _extern_func(self, func: Any) -> int:
        self._builder.declare_function(func.global_symbol, FuncKind.PACKED)
        return self._builder.f(func.global_symbol)

    # Calls

    def _nested_call(self, call: Any) -> int:
        return self._call(call, is_used=True)

    def _call(self, call: Call, is_used: bool) -> int:
        op = call.op
        if isinstance(op, Op):
            return self._call_op(op, call, is_used)
        if isinstance(op, ExternFunc):
            return self._emit_call(op.global_symbol, self._operands(call.args), call, is_used)
        if isinstance(op, GlobalVar):
            programs = self._programs.get(op)
            if programs is not None:
                heap = self._operands(call.args)
                for program in programs:
                    word = self._builder.convert_constant(program)
                    self._builder.emit_call(_COMPUTE_SHAPE, [*heap, word])
                return self._builder.void_arg()
            callee = self._mod[op]
            symbol = symbol_of(callee, op)
            if isinstance(callee, Function):
                self._builder.declare_function(symbol, FuncKind.BYTECODE)
            return self._emit_call(symbol, self._operands(call.args), call, is_used)
        args = [self._builder.vm_state(), self._operand(op), *self._operands(call.args)]
        return self._emit_call(_INVOKE_CLOSURE, args, call, is_used)

    def _operands(self, args: tuple[Expr, ...]) -> list[int]:
        if len(args) > _MOST_OPERANDS:
            raise LimitError(
                f"{len(args)} operands in a call or tuple are above the limit "
                f"call_args={_MOST_OPERANDS}; nest tuples", "call_args",
            )  # fmt: skip
        return [self._operand(arg) for arg in args]

    def _emit_call(self, name: str, args: list[int], call: Call, is_used: bool) -> int:
        is_void = type(call.ty) is TupleType and not call.ty.fields
        if is_void or not is_used:
            self._builder.emit_call(name, args)
            if not is_used:
                return self._builder.void_arg()
            name, args = "vm.builtin.make_tuple", []  # stands for no value
        dst = self._new_register()
        self._builder.emit_call(name, args, dst)
        return dst

    def _call_op(self, op: Op, call: Call, is_used: bool) -> int:
        builder = self._builder
        if op is _NULL_VALUE:
            return builder.void_arg()
        if op is _KILL:
            if call.args[0] in self._data:
                return builder.void_arg()
            word = self._operand(call.args[0])
            if self._is_register(word):
                builder.emit_call("vm.builtin.null_value", [], word)
            return builder.void_arg()
        if op is _WITH_CONTEXT:
            callee, packed = call.args
            fields = packed.fields if isinstance(packed, Tuple) else tuple(packed)
            args = [builder.vm_state(), *self._operands(fields)]
            return self._emit_call(callee.global_symbol, args, call, is_used)  # type: ignore[attr-defined]
        if op is _ALLOC_STORAGE:
            args = [builder.vm_state(), *self._operands(call.args)]
            return self._emit_call("vm.builtin.alloc_storage", args, call, is_used)
        if op is _ALLOC_TENSOR:
            storage, offset, shape, dtype, *_device = call.args
            args = self._operands((storage, offset, shape, dtype))
            return self._emit_call("vm.builtin.alloc_tensor", args, call, is_used)
        raise not_lowered(op, call)

    # Control flow

    def _begin_if(self, expr: If) -> Label:
        """Emit the test of the condition; returns the label of the false branch."""
        builder = self._builder
        cond = self._operand(expr.cond)
        if expr.cond not in self._bools:
            test = cond
            cond = self._new_register()
            builder.emit_call("vm.builtin.read_if_cond", [test], cond)
        orelse = builder.label("else")
        builder.emit_if(cond, orelse)
        return orelse

    def _if(self, expr: If) -> int:
        builder, place = self._builder, self._place
        orelse = self._begin_if(expr)
        done = builder.label("done")
        true_word = self._seq(expr.true_branch)
        builder.at(*place)
        merged = self._in_new_register(true_word)
        self._release(expr.true_branch, true_word)
        builder.emit_goto(done)
        builder.bind(orelse)
        false_word = self._seq(expr.false_branch)
        builder.at(*place)
        builder.emit_call("vm.builtin.copy", [false_word], merged)
        self._release(expr.false_branch, false_word)
        builder.bind(done)
        return merged

    def _release(self, branch: SeqExpr, word: int) -> None:
        """Clear the register of a branch's result, which otherwise keeps it alive until the
        function ends."""
        if self._is_register(word) and any(
            binding.var is branch.body for block in branch.blocks for binding in block.bindings
        ):
            self._builder.emit_call("vm.builtin.null_value", [], word)


def has_shape_heap(func: Function) -> bool:
    """Check whether VMShapeLower has run; it has put checks before each match_cast."""
    if not func.body.blocks:
        return False
    value = func.body.blocks[0].bindings[0].value
    return isinstance(value, Call) and (
        value.op is _NULL_VALUE
        or (
            value.op is _WITH_CONTEXT
            and isinstance(value.args[0], ExternFunc)
            and value.args[0].global_symbol == "vm.builtin.alloc_shape_heap"
        )
    )


def _is_memory(value: Expr) -> bool:
    """Whether an expression makes or frees memory."""
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op in (
        _ALLOC_STORAGE, _ALLOC_TENSOR, _KILL
    )  # fmt: skip


def _is_kill(binding: Binding) -> bool:
    value = binding.value
    return isinstance(value, Call) and value.op is _KILL


_OPERANDS: Final[dict[type, Callable[[_FunctionEmitter, Any], int]]] = class_table({
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
})  # fmt: skip
