"""Decompiler: bytecode as readable script.

As far as possible the text is Relax: builtins of the VM appear as the operators that they came
from, registers under the names of their variables, symbolic dimensions as slots of the shape heap
(``heap[0] := _`` sets a slot).  Control flow that Relax cannot express is written as ``while
True``, and as ``goto`` to a label.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from ..core.checkpoints import checkpoint
from ..deep import show
from ..dtypes import dtype_name
from ..executable import FunctionInfo, VMExecutable, shape_program
from ..executable.shape_codes import MakeShapeCode, MatchShapeCode
from ..field_types import quoted_name, script_text
from ..isa import VM_REGISTER, VOID_REGISTER, Arg, ArgKind, FuncKind, Instruction, Opcode
from ..limits import Limits
from ..messages import describe, readable
from ..script.names import Names, identifier, quoted
from ..values import Shape, is_adt
from ..verify.verified import ensure_verified
from ..vm.limited import run_limited
from .structure import Branch, Jump, Line, Loop, Node, labels_of, structure_of

__all__ = ["decompile"]

_INDENT: Final = "    "
_SHORT_TEXT: Final = 40
"""Characters of a string that is written in place; longer ones are listed at the top, by number."""
_SHORT_SHAPE: Final = 16
"""Dimensions of a shape that is written in place."""
_SMALL_ARRAY: Final = 8
"""Elements of an array that is written in place."""
_LONGEST: Final = 2000
"""Characters of a constant that is listed at the top."""
_NAME: Final = 60
_BUILTIN: Final = "vm.builtin."
_CONTEXT: Final = re.compile(
    r"ErrorContext\(fn=.*?, loc=(?:param\[(\d+)\], param=[^,]*|(return)), annotation=(.*)\) ", re.S
)
"""The error contexts that VMShapeLower puts into checks of a function's parameters and result."""


def decompile(
    executable: VMExecutable, name: str | None = None, *, limits: Limits | None = None
) -> str:
    """Return an executable, or one of its functions, as readable script.

    The text is equivalent to the code, but not all of it can be parsed.

    Args:
        executable: an executable that passes the verifier.
        name: the name of a function; None for all functions.
        limits: bounds on the executable, and of the time and memory of decompiling it.

    Raises:
        KeyError: there is no function of that name.
        ValueError: it is a packed function, which has no code.
        VerifyError: the executable does not pass the verifier.
        LimitError: a limit is reached.
    """
    ensure_verified(executable, limits=limits)
    return run_limited(lambda: _decompile(executable, name), limits, "decompile")


def _decompile(executable: VMExecutable, name: str | None) -> str:
    module = _Module(executable)
    if name is None:
        return "\n".join(module.lines()) + "\n"
    info = executable.function(name)
    if info.kind == FuncKind.PACKED:
        raise ValueError(
            f"decompile: {readable(name)} is a packed function, which has no code here"
        )
    lines = module.function(executable.functions.index(info))
    return "\n".join([*module.constants(), *lines]) + "\n"


class _Module:
    """State that is shared by the functions of an executable."""

    def __init__(self, executable: VMExecutable) -> None:
        self.executable = executable
        types = executable.data_types.values()
        self.types = [identifier(data.name) for data in types]
        self.constructors = {
            constructor.name: (constructor, f"{quoted_name(data.name)}.{quoted_name(key)}")
            for data in types
            for key, constructor in data.constructors.items()
        }
        """The constructors by their whole names, each with its name in the text."""
        self._names = Names(self.types)
        self.names = [
            "" if info.kind == FuncKind.PACKED else self._names.define(i, info.name)
            for i, info in enumerate(executable.functions)
        ]
        self._used: dict[int, str] = {}

    def lines(self) -> list[str]:
        body: list[str] = []
        for data in self.executable.data_types.values():
            body += ["", *data.definition()]
        for index, info in enumerate(self.executable.functions):
            if info.kind != FuncKind.PACKED:
                body += ["", *self.function(index)]
        body = [*self.constants(), *(body or ["pass"])]
        indented = [f"{_INDENT}{line}" if line else "" for line in body]
        return ["@I.ir_module", "class Module:", *indented]

    def constants(self) -> list[str]:
        """The constants that the functions written so far refer to by number."""
        return [f"# c{i} = {text}" for i, text in sorted(self._used.items())]

    def function(self, index: int) -> list[str]:
        info, name = self.executable.functions[index], self.names[index]
        renamed = [] if name == info.name else [f"# {_one_line(info.name, _LONGEST)}"]
        if info.kind == FuncKind.COMPILED:
            return [*renamed, *self._compiled(info, name)]
        return [*renamed, *_FunctionWriter(self, info, name).lines()]

    def _compiled(self, info: FunctionInfo, name: str) -> Iterator[str]:
        params = ", ".join(map(identifier, info.param_names)) or f"{info.num_args} parameters"
        yield f"# {name}({params}) is compiled: its code is not bytecode"

    def constant(self, index: int) -> str:
        """A constant: in place if it is short, else by number."""
        value = self.executable.constants[index]
        if _is_short(value):
            return _constant_text(value)
        if index not in self._used:
            text = _constant_text(value)
            self._used[index] = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return f"c{index}"


def _is_short(value: Any) -> bool:
    if is_adt(value):
        return len(show(value, _SHORT_TEXT)) <= _SHORT_TEXT
    if isinstance(value, str):
        return len(value) <= _SHORT_TEXT
    if isinstance(value, Shape):
        return len(value) <= _SHORT_SHAPE
    return not isinstance(value, np.ndarray) or _is_small(value)


def _is_small(array: np.ndarray[Any, Any]) -> bool:
    return array.size <= _SMALL_ARRAY and array.dtype.kind in "biuf" and array.ndim <= 2


def _constant_text(value: Any) -> str:
    if isinstance(value, str):
        return f"R.str({quoted(value) if value.isprintable() else ascii(value)})"
    if isinstance(value, Shape):
        return f"R.shape([{', '.join(map(str, value))}])"
    if isinstance(value, np.dtype):
        return f'R.dtype("{dtype_name(value)}")'
    if isinstance(value, np.ndarray):
        name = dtype_name(value.dtype)
        if _is_small(value):
            return f'R.const({_items_text(value.tolist())}, "{name}")'
        return f"R.const(..., {describe(value)})"
    if is_adt(value):
        return show(value, _LONGEST)
    return _items_text(value)


def _items_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_items_text, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _one_line(text: str, width: int = _NAME) -> str:
    return readable(text, width)


class _Reads:
    """The uses and definitions of the registers of a function."""

    def __init__(self, executable: VMExecutable, info: FunctionInfo) -> None:
        self.instructions: dict[int, Instruction] = {}
        self.reads: Counter[int] = Counter()
        self.variables: dict[int, str] = dict(enumerate(info.param_names))
        self.written: Counter[int] = Counter()
        debug = executable.debug
        for pc, instruction in executable.instructions(info):
            self.instructions[pc] = instruction
            code = instruction.op.code
            if code == Opcode.CALL:
                self.reads.update(arg.value for arg in instruction.args if arg.is_register())
                dst = instruction["dst"]
                if not self._is_null(executable, instruction):
                    self.written[dst] += 1
                    if debug is not None and dst not in self.variables:
                        variable = debug.variable(pc)
                        if variable is not None:
                            self.variables[dst] = variable
            elif code != Opcode.GOTO:
                self.reads[instruction.fields[0]] += 1

    @staticmethod
    def _is_null(executable: VMExecutable, instruction: Instruction) -> bool:
        callee = executable.functions[instruction["func_idx"]].name
        return callee == f"{_BUILTIN}null_value" and not instruction.args


class _FunctionWriter:
    """Writes a bytecode function."""

    def __init__(self, module: _Module, info: FunctionInfo, name: str) -> None:
        self.module = module
        self._info = info
        self._name = name
        self._executable = module.executable
        self._code = _Reads(module.executable, info)
        self._names = Names(("ctx", "goto", *module.types))
        for register in range(info.num_args):
            hint = self._code.variables.get(register, f"arg{register}")
            self._names.define(register, hint or f"arg{register}")
        self._nodes = structure_of(module.executable, info)
        self._labels = {pc: f"L{i}" for i, pc in enumerate(sorted(labels_of(self._nodes)))}
        self._placed: set[int] = set()
        self._annotations: dict[int, str] = {}
        self._result = ""

    def register(self, number: int) -> str:
        """The name of a register."""
        found = self._names.get(number)
        if found is None:
            hint = self._code.variables.get(number) or f"r{number}"
            found = self._names.define(number, hint)
        return found

    def lines(self) -> list[str]:
        body = list(self._statements(self._nodes, _INDENT))
        self._find_annotations()
        params = [
            f"{self.register(i)}: {self._annotations.get(i, 'R.Any')}"
            for i in range(self._info.num_args)
        ]
        head = f"def {self._name}({', '.join(params)}){self._result}:"
        return ["@R.function(pure=False)", head, *body]

    def _find_annotations(self) -> None:
        """Find the types of parameters and result in the messages of their checks."""
        for instruction in self._code.instructions.values():
            args = instruction.args
            if not args or args[-1].kind != ArgKind.CONSTANT:
                continue
            text = self._executable.constants[args[-1].value]
            match = _CONTEXT.fullmatch(text) if isinstance(text, str) else None
            if match is None or not match[3].isprintable():
                continue
            if match[2]:
                self._result = f" -> {match[3]}"
            elif args[0].is_register() and args[0].value == int(match[1]):
                self._annotations.setdefault(int(match[1]), match[3])
        signature = self._executable.signatures.get(self._info.name)
        if signature is not None:
            for number, ty in enumerate(signature.params or ()):
                self._annotations.setdefault(number, script_text(ty))
            self._result = self._result or f" -> {script_text(signature.result)}"

    # Statements

    def _statements(self, nodes: Sequence[Node], indent: str) -> Iterator[str]:
        if not nodes:
            yield f"{indent}pass"
        for i, node in enumerate(nodes):
            checkpoint()
            if node.pc in self._labels and node.pc not in self._placed:
                self._placed.add(node.pc)
                yield f"{indent}# {self._labels[node.pc]}:"
            if type(node) is Line:
                following = nodes[i + 1] if i + 1 < len(nodes) else None
                if not self._is_condition(node.pc, following):
                    yield from (indent + line for line in self._line(node.pc))
            elif type(node) is Jump:
                yield indent + self._jump(node)
            elif type(node) is Loop:
                yield f"{indent}while True:"
                yield from self._statements(node.body, indent + _INDENT)
            elif type(node) is Branch:
                yield from self._branch(node, nodes[i - 1] if i else None, indent)

    def _jump(self, node: Jump) -> str:
        return node.kind if node.kind != "goto" else f"goto({self._labels[node.target]})"

    def _branch(self, node: Branch, before: Node | None, indent: str) -> Iterator[str]:
        if before is not None and type(before) is Line and self._is_condition(before.pc, node):
            condition = self._operand(self._code.instructions[before.pc].args[0])
        else:
            condition = self.register(self._code.instructions[node.pc]["cond"])
        yield f"{indent}if {'not ' if node.negated else ''}{condition}:"
        yield from self._statements(node.then, indent + _INDENT)
        if node.orelse:
            yield f"{indent}else:"
            yield from self._statements(node.orelse, indent + _INDENT)

    def _is_condition(self, pc: int, following: Node | None) -> bool:
        """Whether an instruction only reads the condition of the `if` that follows."""
        if type(following) is not Branch or following.pc in self._labels:
            return False
        instruction = self._code.instructions[pc]
        if instruction.op.code != Opcode.CALL or len(instruction.args) != 1:
            return False
        callee = self._executable.functions[instruction["func_idx"]].name
        dst = instruction["dst"]
        return (
            callee == f"{_BUILTIN}read_if_cond"
            and dst == self._code.instructions[following.pc]["cond"]
            and self._code.reads[dst] == 1
        )

    def _line(self, pc: int) -> Iterator[str]:
        instruction = self._code.instructions[pc]
        if instruction.op.code == Opcode.RET:
            yield f"return {self._operand(Arg(ArgKind.REGISTER, instruction['result']))}"
            return
        info = self._executable.functions[instruction["func_idx"]]
        dst, args = instruction["dst"], instruction.args
        has_value = dst < self._info.num_args or self._code.written[dst]
        if info.name == f"{_BUILTIN}null_value" and not args and has_value:
            yield f"R.vm.kill_object({self.register(dst)})"
            return
        text = self._call(instruction["func_idx"], info, args)
        yield text if dst == VOID_REGISTER else f"{self.register(dst)} = {text}"

    # Expressions

    def _operand(self, arg: Arg) -> str:
        kind, value = arg.kind, arg.value
        if kind == ArgKind.IMMEDIATE:
            return str(value)
        if kind == ArgKind.CONSTANT:
            return self.module.constant(value)
        if kind == ArgKind.FUNCTION:
            return self._function(value)
        if value == VOID_REGISTER:
            return "R.null_value()"
        return "ctx" if value == VM_REGISTER else self.register(value)

    def _function(self, index: int) -> str:
        info = self._executable.functions[index]
        if info.kind == FuncKind.PACKED:
            return f"R.ExternFunc({_quoted(info.name)})"
        return f"Module.{self.module.names[index]}"

    def _call(self, index: int, info: FunctionInfo, args: Sequence[Arg]) -> str:
        if info.kind != FuncKind.PACKED:
            return f"{self._function(index)}({self._listed(args)})"
        rule = _BUILTINS.get(info.name)
        text = None if rule is None else rule(self, args)
        if text is not None:
            return text
        name = _quoted(info.name)
        if args and args[0].kind == ArgKind.REGISTER and args[0].value == VM_REGISTER:
            rest = args[1:]
            inner = self._listed(rest) + ("," if len(rest) == 1 else "")
            return f"R.call_builtin_with_ctx({name}, ({inner}))"
        return f"R.call_packed({name}{''.join(f', {self._operand(arg)}' for arg in args)})"

    def _listed(self, args: Sequence[Arg]) -> str:
        return ", ".join(map(self._operand, args))

    # Builtins.  A rule returns None if it does not handle the arguments.

    def _make_tuple(self, args: Sequence[Arg]) -> str:
        return f"({self._listed(args)}{',' if len(args) == 1 else ''})"

    def _tuple_getitem(self, args: Sequence[Arg]) -> str | None:
        if len(args) != 2 or not args[0].is_register():
            return None
        return f"{self._operand(args[0])}[{self._operand(args[1])}]"

    def _copy(self, args: Sequence[Arg]) -> str | None:
        return self._operand(args[0]) if len(args) == 1 else None

    def _null_value(self, args: Sequence[Arg]) -> str | None:
        return None if args else "R.null_value()"

    def _invoke_closure(self, args: Sequence[Arg]) -> str | None:
        if len(args) < 2 or args[0].value != VM_REGISTER:
            return None
        return f"R.invoke_closure({self._operand(args[1])}, {self._make_tuple(args[2:])})"

    def _make_closure(self, args: Sequence[Arg]) -> str | None:
        if not args:
            return None
        return f"R.make_closure({self._operand(args[0])}, {self._make_tuple(args[1:])})"

    def _make_shape(self, args: Sequence[Arg]) -> str | None:
        dims = self._dims(args[1:], _MAKE_DIMS, args[0]) if args else None
        return None if dims is None else f"R.shape([{dims}])"

    def _match_shape(self, args: Sequence[Arg]) -> str | None:
        """A check of a shape; dimensions that are stored are written ``heap[i] := _``."""
        dims = self._dims(args[2:-1], _MATCH_DIMS, args[1]) if len(args) > 2 else None
        return None if dims is None else f"R.match_shape({self._operand(args[0])}, [{dims}])"

    def _match_prim_value(self, args: Sequence[Arg]) -> str | None:
        if len(args) != 5:
            return None
        dims = self._dims([_ONE, *args[2:-1]], _MATCH_DIMS, args[1])
        return None if dims is None else f"R.match_prim_value({self._operand(args[0])}, {dims})"

    def _make_prim_value(self, args: Sequence[Arg]) -> str | None:
        return self._dims([_ONE, *args[1:]], _MAKE_DIMS, args[0]) if len(args) == 3 else None

    def _dims(self, args: Sequence[Arg], forms: dict[int, str], heap: Arg) -> str | None:
        """Dimensions, from their count and pairs of code and value."""
        if any(arg.kind != ArgKind.IMMEDIATE for arg in args) or not args:
            return None
        count, *pairs = [arg.value for arg in args]
        codes, values = pairs[::2], pairs[1::2]
        if count != len(codes) or len(codes) != len(values) or not set(codes) <= set(forms):
            return None
        name = self._operand(heap)
        return ", ".join(
            forms[code].format(value, name) for code, value in zip(codes, values, strict=True)
        )

    def _make_adt(self, args: Sequence[Arg]) -> str | None:
        """A call of a constructor, if the program defines it."""
        if len(args) < 2 or args[0].kind != ArgKind.CONSTANT:
            return None
        name = self._executable.constants[args[0].value]
        found = self.module.constructors.get(name) if isinstance(name, str) else None
        if found is None:
            return None
        constructor, text = found
        if args[1] != Arg(ArgKind.IMMEDIATE, constructor.tag) or (
            len(args) - 2 != constructor.num_fields
        ):
            return None
        return f"{text}({self._listed(args[2:])})"

    def _compute_shape(self, args: Sequence[Arg]) -> str | None:
        if len(args) != 2 or args[1].kind != ArgKind.CONSTANT:
            return None
        program = self._executable.constants[args[1].value]
        if not isinstance(program, Shape) or shape_program.problem(program) is not None:
            return None
        return shape_program.text(program).replace("h[", f"{self._operand(args[0])}[")


def _quoted(name: str) -> str:
    shown = name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..."
    return quoted(shown) if shown.isprintable() else ascii(shown)


_Rule = Callable[[_FunctionWriter, Sequence[Arg]], str | None]


def _plain(form: str, count: int, *, after_context: bool = False) -> _Rule:
    """Return a rule for an operator with the same arguments as the builtin."""

    def rule(writer: _FunctionWriter, args: Sequence[Arg]) -> str | None:
        if after_context:
            if not args or args[0].kind != ArgKind.REGISTER or args[0].value != VM_REGISTER:
                return None
            args = args[1:]
        return f"{form}({writer._listed(args)})" if len(args) == count else None

    return rule


_ONE: Final = Arg(ArgKind.IMMEDIATE, 1)
_MAKE_DIMS: Final = {
    int(MakeShapeCode.USE_IMM): "{0}",
    int(MakeShapeCode.LOAD_SHAPE): "{1}[{0}]",
}
_MATCH_DIMS: Final = {
    int(MatchShapeCode.ASSERT_EQUAL_TO_IMM): "{0}",
    int(MatchShapeCode.STORE_TO_HEAP): "{1}[{0}] := _",
    int(MatchShapeCode.NO_OP): "_",
    int(MatchShapeCode.ASSERT_EQUAL_TO_LOAD): "{1}[{0}]",
}
_BUILTINS: Final[dict[str, _Rule]] = {
    "vm.builtin.make_tuple": _FunctionWriter._make_tuple,
    "vm.builtin.tuple_getitem": _FunctionWriter._tuple_getitem,
    "vm.builtin.copy": _FunctionWriter._copy,
    "vm.builtin.null_value": _FunctionWriter._null_value,
    "vm.builtin.make_closure": _FunctionWriter._make_closure,
    "vm.builtin.invoke_closure": _FunctionWriter._invoke_closure,
    "vm.builtin.make_shape": _FunctionWriter._make_shape,
    "vm.builtin.match_shape": _FunctionWriter._match_shape,
    "vm.builtin.make_prim_value": _FunctionWriter._make_prim_value,
    "vm.builtin.match_prim_value": _FunctionWriter._match_prim_value,
    "relaxvm.builtin.compute_shape": _FunctionWriter._compute_shape,
    "relaxvm.builtin.make_adt": _FunctionWriter._make_adt,
    "vm.builtin.alloc_storage": _plain("R.vm.alloc_storage", 4, after_context=True),
    "vm.builtin.alloc_tensor": _plain("R.vm.alloc_tensor", 4),
    "vm.builtin.shape_of": _plain("R.shape_of", 1),
    "vm.builtin.reshape": _plain("R.reshape", 2),
    "vm.builtin.tensor_to_shape": _plain("R.tensor_to_shape", 1),
}
