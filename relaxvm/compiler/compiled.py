"""Generation of Python text from functions in VM-TIR, for the compiled mode.

The text has one Python function per function of the program, with the same names of variables; see
`relaxvm.vm.compiled_functions` for how it is run.
"""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ..executable import VMExecutable
from ..executable.debug_info import DebugInfo, Span
from ..executable.exec_builder import ExecBuilder
from ..ir import (
    Call,
    Expr,
    FloatImm,
    Function,
    GlobalVar,
    IntImm,
    IRModule,
    TensorType,
    TupleType,
)
from ..isa import decode_arg
from ..messages import describe
from ..script.names import Names
from ..tir import Evaluate, IfThenElse, PrimFunc, SeqStmt, Stmt
from ..tir.intrinsics import (
    ANYLIST_GETITEM,
    ANYLIST_SETITEM_CALL_CPACKED,
    ANYLIST_SETITEM_CALL_PACKED,
)
from ..values import Shape
from ..vm.compiled_functions import CompiledFunctions, GeneratedCode, Tensors
from .codegen import symbol_of
from .vm_tir import VMTIRFunction, emit_vm_tir

__all__ = ["build_compiled", "python_text"]

_COMPUTE_SHAPE: Final = "relaxvm.builtin.compute_shape"
_INVOKE: Final = "vm.builtin.invoke_closure"
_COPY: Final = "vm.builtin.copy"
_NULL_VALUE: Final = "vm.builtin.null_value"
_READ_COND: Final = "vm.builtin.read_if_cond"
_MAKE_TUPLE: Final = "vm.builtin.make_tuple"
_INLINE: Final = frozenset({_COPY, _INVOKE, _MAKE_TUPLE, _NULL_VALUE})
"""Builtins that are written as Python code instead of calls."""
_WITHOUT_EFFECT: Final = frozenset({_COPY, _MAKE_TUPLE, _NULL_VALUE})
_SETTING: Final = (ANYLIST_SETITEM_CALL_PACKED, ANYLIST_SETITEM_CALL_CPACKED)
_INDENT: Final = "    "
_SHOWN: Final = 60
"""Strings of at most this many characters are written literally."""

_Rest = tuple[()] | tuple[Sequence[Stmt], "_Rest"]
"""The continuation of a statement: the rest of its block, and the continuation of that."""


def build_compiled(
    builder: ExecBuilder, mod: IRModule, programs: Mapping[GlobalVar, tuple[Shape, ...]]
) -> VMExecutable:
    """Return the executable of a lowered module in compiled mode, with its PrimFuncs.

    Args:
        builder: receives the constants and the function table.
        programs: shape functions -> their shape programs; a call of such a function becomes a call
            of ``relaxvm.builtin.compute_shape`` for each of its programs.

    Raises:
        TypeError: the module has an expression that is not lowered; a note names the function.
    """
    functions = emit_vm_tir(builder, mod)
    steps = {symbol_of(mod[var], var): program for var, program in programs.items()}
    code = python_text(builder, functions, steps, mod.sources)
    code.tensors.update(
        (symbol_of(func, var), [_tensors(param.ty) for param in func.params])
        for var, func in mod.functions.items()
        if isinstance(func, Function)
    )
    kernels: Mapping[str, Callable[..., Any]] = {}
    funcs = {
        symbol_of(func, var): func
        for var, func in mod.functions.items()
        if isinstance(func, PrimFunc) and var not in programs
    }
    if funcs:
        from ..tir.build import build_prim_funcs

        kernels = build_prim_funcs(funcs)
    return builder.get().with_kernels(CompiledFunctions(code, kernels))


def _tensors(ty: object) -> Tensors:
    return [_tensors(item) for item in ty.fields] if type(ty) is TupleType else (
        type(ty) is TensorType
    )  # fmt: skip


def python_text(
    builder: ExecBuilder,
    functions: Sequence[VMTIRFunction],
    programs: Mapping[str, tuple[Shape, ...]],
    sources: Mapping[str, str],
) -> GeneratedCode:
    """Return functions in VM-TIR as Python code.

    Args:
        builder: the constants and the function table that the code refers to.
        programs: shape programs by the name of the shape function.
        sources: texts of the files that spans refer to.
    """
    module = _Module(builder, functions, programs)
    for function in functions:
        _FunctionWriter(module, function).write()
    return module.finish(sources)


class _Module:
    """The text of a module under construction."""

    def __init__(
        self,
        builder: ExecBuilder,
        functions: Sequence[VMTIRFunction],
        programs: Mapping[str, tuple[Shape, ...]],
    ) -> None:
        self._builder = builder
        self._executable = builder.get()
        self._programs = programs
        self._lines = [
            "# Functions of a program for relaxvm; `vm` is the virtual machine, `c` the constants:",
            *(f"#   c[{i}]: {describe(x)}" for i, x in enumerate(self._executable.constants)),
        ]
        self._locations: list[tuple[int, Span | None, str | None]] = []
        self.names = Names(("vm", "c", "function", "Again"))
        self.functions = {f.name: self.names.define(f.name, f.name) for f in functions}
        self.packed: dict[str, str] = {}
        for function in functions:
            for call in _calls(function.func.body):
                name = self._called(_name_and_args(call)[0])
                if name not in self.packed and name not in _INLINE:
                    short = name.rpartition(".")[2]
                    self.packed[name] = self.names.define(("packed", name), short)

    def _called(self, name: str) -> str:
        return _COMPUTE_SHAPE if name in self._programs else name

    def line(self, text: str, span: Span | None = None, variable: str | None = None) -> None:
        """Add a line, with its location in the source and the variable that it sets, if any."""
        self._lines.append(text)
        self._locations.append((len(self._lines), span, variable))

    @property
    def size(self) -> int:
        """The number of lines."""
        return len(self._lines)

    def name_at(self, index: int) -> str | None:
        """The Python name of a function of the table, None if it is not in the text."""
        name = self._executable.functions[index].name
        return name if name in self.functions else None

    def call(self, name: str, args: Sequence[str]) -> str:
        """A call of a packed function."""
        function = self.packed[self._called(name)]
        if name not in self._programs:
            return f"{function}({', '.join(args)})"
        words = [decode_arg(self._builder.convert_constant(p)) for p in self._programs[name]]
        return "; ".join(f"{function}({', '.join(args)}, c[{index}])" for _, index in words)

    def constant(self, index: int) -> str:
        """A constant of the pool; short strings are written literally."""
        value = self._executable.constants[index]
        if type(value) in (bool, int, type(None)) or (type(value) is str and len(value) <= _SHOWN):
            return repr(value)
        return f"c[{index}]"

    def finish(self, sources: Mapping[str, str]) -> GeneratedCode:
        files = {span.file for _, span, _ in self._locations if span is not None}
        texts = {file: sources.get(file) or "".join(linecache.getlines(file)) for file in files}
        debug = DebugInfo.of(self._locations, texts).with_short_files() or None
        text = "".join([f"{line}\n" for line in self._lines])
        return GeneratedCode(text, self.functions, self.packed, debug)


class _FunctionWriter:
    """Writes one function."""

    def __init__(self, module: _Module, function: VMTIRFunction) -> None:
        self._module = module
        self._function = function
        self._result = function.num_params
        self._context, self._registers, self._constants, self._functions = function.func.params
        self._locals: list[str] = []
        self._read = {
            self._register_of(arg)
            for call in _calls(function.func.body)
            for arg in _name_and_args(call)[1]
        } - {None}

    def write(self) -> None:
        module, function, names = self._module, self._function, self._module.names
        names.push()
        self._locals = [
            names.define(("register", i), name or f"r{i}")
            for i, name in enumerate(function.variables)
        ]
        module.line("")
        module.line("")
        params = ", ".join(["vm", *self._locals[: function.num_params]])
        module.line(f"def {module.functions[function.name]}({params}):")
        if not self._block(function.func.body, _INDENT, ()):
            module.line(f"{_INDENT}return None")
        names.pop()

    def _block(self, body: Stmt, indent: str, rest: _Rest) -> bool:
        """Write statements, with `rest` as continuation; returns whether they end with a return."""
        statements = _listed(body)
        for i, stmt in enumerate(statements):
            following = (statements[i + 1 :], rest)
            if type(stmt) is IfThenElse:
                self._if(stmt, indent, following)
            elif type(stmt) is Evaluate and self._evaluate(stmt, indent, following):
                return True
        return False

    def _if(self, stmt: IfThenElse, indent: str, rest: _Rest) -> None:
        line = self._module.line
        line(f"{indent}if {self._call(stmt.condition)}:", stmt.span)
        self._branch(stmt.then_case, indent + _INDENT, rest)
        if stmt.else_case is not None:
            line(f"{indent}else:", stmt.span)
            self._branch(stmt.else_case, indent + _INDENT, rest)

    def _branch(self, case: Stmt, indent: str, rest: _Rest) -> None:
        start = self._module.size
        self._block(case, indent, rest)
        if self._module.size == start:
            self._module.line(f"{indent}pass")

    def _evaluate(self, stmt: Evaluate, indent: str, rest: _Rest) -> bool:
        """Write a statement; returns whether it is a return."""
        call = stmt.value
        if not isinstance(call, Call):
            return False
        register, span = _destination(call), stmt.span
        name, args = _name_and_args(call)
        if register not in self._read and register != self._result and name in _WITHOUT_EFFECT:
            return False
        text = self._call(call)
        variable = None
        if register is None:
            pass
        elif register == self._result:
            text = f"return {text}"
        elif self._is_tail_call(call, register, rest):
            text = f"return Again({_tuple(map(self._value, args[2:]))})"
        elif register in self._read:
            text = f"{self._locals[register]} = {text}"
            if name != _NULL_VALUE:
                variable = self._function.variables[register]
        self._module.line(indent + text, span, variable)
        return text.startswith("return ")

    def _is_tail_call(self, call: Call, register: int, rest: _Rest) -> bool:
        """Whether a call is one of the function itself, followed only by a return of the result."""
        name, args = _name_and_args(call)
        if name != _INVOKE or self._called_function(args[1]) != self._function.name:
            return False
        while rest:
            statements, rest = rest
            for stmt in statements:
                later = stmt.value if type(stmt) is Evaluate else None
                if not isinstance(later, Call):
                    return False
                target = _destination(later)
                name, args = _name_and_args(later)
                if name == _COPY and self._register_of(args[0]) == register and target is not None:
                    register = target
                elif name != _NULL_VALUE or target == register:
                    return False
        return register == self._result

    def _called_function(self, callee: Expr) -> str | None:
        """The name of the function of the program that a callee is, or None."""
        if isinstance(callee, Call) and callee.args[0] is self._functions:
            return self._module.name_at(_index(callee))
        return None

    def _register_of(self, value: Expr) -> int | None:
        if isinstance(value, Call) and value.op is ANYLIST_GETITEM:
            return _index(value) if value.args[0] is self._registers else None
        return None

    # Expressions

    def _call(self, call: Any) -> str:
        name, args = _name_and_args(call)
        values = [self._value(arg) for arg in args]
        if name == _NULL_VALUE:
            return "None"
        if name == _READ_COND and type(args[0]) is IntImm:
            return repr(bool(args[0].value))
        if name == _COPY:
            return values[0]
        if name == _MAKE_TUPLE:
            return _tuple(values)
        if name == _INVOKE:
            function = self._called_function(args[1])
            callee = values[1] if function is None else self._module.functions[function]
            return f"yield {callee}, {', '.join(values[2:])}".removesuffix(" ")
        return self._module.call(name, values)

    def _value(self, value: Expr) -> str:
        if value is self._context:
            return "vm"
        if type(value) is IntImm:
            return repr(value.value)
        if type(value) is FloatImm:
            return repr(value.value) if math.isfinite(value.value) else f"float('{value.value}')"
        if not isinstance(value, Call) or value.op is not ANYLIST_GETITEM:
            return "None"
        index = _index(value)
        if value.args[0] is self._registers:
            return self._locals[index]
        if value.args[0] is self._constants:
            return self._module.constant(index)
        return f"function(vm, {index})"


def _tuple(values: Iterable[str]) -> str:
    items = list(values)
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _listed(stmt: Stmt) -> Sequence[Stmt]:
    return stmt.seq if type(stmt) is SeqStmt else (stmt,)


def _calls(stmt: Stmt) -> Iterator[Call]:
    """The calls of a function, in order."""
    for each in _listed(stmt):
        if type(each) is IfThenElse:
            yield each.condition  # type: ignore[misc]
            yield from _calls(each.then_case)
            if each.else_case is not None:
                yield from _calls(each.else_case)
        elif type(each) is Evaluate and isinstance(each.value, Call):
            yield each.value


def _destination(call: Call) -> int | None:
    """The destination register of a call."""
    return _index(call) if call.op in _SETTING else None


def _index(call: Call) -> int:
    number: Any = call.args[1]
    return int(number.value)


def _name_and_args(call: Call) -> tuple[str, Sequence[Expr]]:
    """The name of the callee, and the arguments."""
    name, *args = call.args[2:] if call.op in _SETTING else call.args
    return name.value, args  # type: ignore[attr-defined]
