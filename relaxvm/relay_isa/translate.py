"""Programs in the register instruction set as executables of relaxvm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..core.checkpoints import checkpoint
from ..dtypes import as_dtype
from ..errors import VerifyError
from ..executable import VMExecutable
from ..executable.exec_builder import ExecBuilder, Label
from ..isa import FuncKind
from ..limits import Limits
from ..values import Shape
from ..vm.limited import run_limited
from .check import verify
from .program import Function, Instruction, Program
from .table import Kind

__all__ = ["translate"]

_MOST_SHOWN: Final = 20


def translate(program: Program, *, limits: Limits | None = None) -> VMExecutable:
    """Return a program as an executable; packed functions are found by their names when a VM is
    made.

    Args:
        limits: bounds of the time and memory that it takes (`wall_time`, `live_bytes`,
            `alloc_bytes`).

    Each instruction becomes calls of builtins, at the same place.  The registers of a Phi become
    one register.  A closure's function gets its free variables first, and relaxvm appends what a
    closure has captured, so each function with free variables has a second form whose parameters
    are in that order.

    Raises:
        VerifyError: the program breaks rules; the message lists them.
        LimitError: a limit is reached.
    """
    return run_limited(lambda: _translate(program), limits, "translate")


def _translate(program: Program) -> VMExecutable:
    problems = verify(program)
    if problems:
        shown = [str(problem) for problem in problems[:_MOST_SHOWN]]
        if len(problems) > _MOST_SHOWN:
            shown.append(f"and {len(problems) - _MOST_SHOWN} more")
        raise VerifyError("\n".join(["the program cannot be translated:", *shown]))
    builder = ExecBuilder()
    names = _names(program)
    wrappers = _wrappers(program, names)
    for name in (*names, *wrappers.values()):
        builder.declare_function(name, FuncKind.BYTECODE)
    for number, func in enumerate(program.functions):
        _Translator(builder, program, names, wrappers).function(func, names[number])
    for (number, free), name in wrappers.items():
        _wrapper(builder, program.functions[number], names[number], name, free)
    return builder.get()


def _names(program: Program) -> list[str]:
    """The names of the functions, which are unique."""
    taken = set(program.packed)
    names = []
    for func in program.functions:
        name, number = func.name, 1
        while name in taken:
            name, number = f"{func.name}_{number}", number + 1
        taken.add(name)
        names.append(name)
    return names


def _wrappers(program: Program, names: list[str]) -> dict[tuple[int, int], str]:
    """Number of a function and of its free variables -> name of the form for closures."""
    taken = {*names, *program.packed}
    found: dict[tuple[int, int], str] = {}
    for func in program.functions:
        for instruction in func.code:
            if instruction.spec.name != "AllocClosure":
                continue
            _, number, free, _ = instruction.values
            if free and (number, free) not in found:
                name = f"{names[number]}.closure{free}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found[number, free] = name
    return found


def _wrapper(builder: ExecBuilder, func: Function, callee: str, name: str, free: int) -> None:
    """A function with the free variables last that calls one with these first."""
    count = len(func.params)
    params = [*func.params[free:], *func.params[:free]]
    with builder.function(name, num_inputs=count, param_names=params, warn_unused=False):
        inputs = [builder.r(i) for i in range(count)]
        own = count - free
        builder.emit_call(callee, [*inputs[own:], *inputs[:own]], dst=builder.r(count))
        builder.emit_ret(builder.r(count))


class _Translator:
    """Translates one function."""

    def __init__(
        self,
        builder: ExecBuilder,
        program: Program,
        names: list[str],
        wrappers: dict[tuple[int, int], str],
    ) -> None:
        self._builder = builder
        self._program = program
        self._dialect = program.dialect
        self._names = names
        self._wrappers = wrappers
        self._same: dict[int, int] = {}
        self._next = 0
        self._labels: dict[int, Label] = {}

    def function(self, func: Function, name: str) -> None:
        """Emit a function."""
        builder = self._builder
        for instruction in func.code:
            if instruction.spec.name == "Phi":
                dst, left, right = map(self._register, instruction.values)
                low = min(dst, left, right)
                for each in (dst, left, right):
                    if each != low:
                        self._same[each] = low
        self._next = func.registers
        with builder.function(
            name, num_inputs=len(func.params), param_names=func.params, warn_unused=False
        ):
            targets = {
                pc + value
                for pc, instruction in enumerate(func.code)
                for operand, value in instruction.operands(self._dialect)
                if operand.kind is Kind.OFFSET
            }
            self._labels = {pc: builder.label(f"L{pc}") for pc in sorted(targets)}
            self._clear(func)
            for pc, instruction in enumerate(func.code):
                checkpoint()
                if pc in self._labels:
                    builder.bind(self._labels[pc])
                _EMIT[instruction.spec.name](self, instruction, pc)
            if func.code[-1].spec.name not in ("Ret", "Goto", "Fatal"):
                builder.emit_ret(builder.void_arg())  # behind code that no path leads to

    def _clear(self, func: Function) -> None:
        """Write registers that are read before they are written in the order of the text, which
        jumps make possible."""
        seen = set(map(self._register, range(len(func.params))))
        late: dict[int, None] = {}
        for instruction in func.code:
            for register in instruction.registers(self._dialect, Kind.READ, Kind.READS):
                if self._register(register) not in seen:
                    late[self._register(register)] = None
            written = instruction.registers(self._dialect, Kind.WRITTEN, Kind.EITHER)
            seen.update(map(self._register, written))
        for register in late:
            self._call("vm.builtin.null_value", [], self._builder.r(register))

    # Operands

    def _register(self, register: int) -> int:
        while register in self._same:
            register = self._same[register]
        return register

    def _r(self, register: int) -> int:
        return self._builder.r(self._register(register))

    def _fresh(self) -> int:
        self._next += 1
        return self._builder.r(self._next - 1)

    def _of(self, instruction: Instruction, *names: str) -> list[Any]:
        """The operands of these names: registers as arguments, other values as they are."""
        found: list[Any] = []
        for name in names:
            for operand, value in instruction.operands(self._dialect):
                if operand.name == name:
                    is_register = operand.kind in (Kind.READ, Kind.WRITTEN, Kind.KILLED)
                    if operand.kind is Kind.READS:
                        found.append([self._r(each) for each in value])
                    else:
                        found.append(self._r(value) if is_register else value)
        return found

    def _call(self, name: str, args: list[Any], dst: int | None = None) -> None:
        if dst is None:
            self._builder.emit_call(name, args)
        else:
            self._builder.emit_call(name, args, dst=dst)

    def _constant(self, value: Any) -> int:
        return self._builder.convert_constant(value)

    # Instructions

    def move(self, instruction: Instruction, pc: int) -> None:
        dst, src = self._of(instruction, "dst", "src")
        self._call("vm.builtin.copy", [src], dst)

    def ret(self, instruction: Instruction, pc: int) -> None:
        self._builder.emit_ret(self._of(instruction, "result")[0])

    def fatal(self, instruction: Instruction, pc: int) -> None:
        dst = self._fresh()
        self._call("relaxvm.builtin.fatal", [self._constant(f"Fatal at pc {pc}")], dst)
        self._builder.emit_ret(dst)

    def phi(self, instruction: Instruction, pc: int) -> None:
        """Nothing: its registers are one."""

    def invoke_packed(self, instruction: Instruction, pc: int) -> None:
        index = instruction.value(self._dialect, "packed_index")
        args = self._of(instruction, "regs", "packed_args")[0]
        self._call(self._program.packed[index], args)

    def alloc_tensor(self, instruction: Instruction, pc: int) -> None:
        dst = self._r(instruction.value(self._dialect, "dst"))
        dtype = self._constant(as_dtype(instruction.value(self._dialect, "dtype")))
        found = {o.name: v for o, v in instruction.operands(self._dialect)}
        if "shape" in found:
            shape = self._constant(Shape(found["shape"]))
        else:
            shape = self._fresh()
            register = self._r(found["shape_register"])
            self._call("relaxvm.builtin.shape_from", [register], shape)
        if "storage" in found:
            storage, offset = self._of(instruction, "storage", "offset")
            number = self._fresh()
            self._call("relaxvm.builtin.int_from", [offset], number)
            self._call("vm.builtin.alloc_tensor", [storage, number, shape, dtype], dst)
            return
        storage = self._fresh()
        scope = self._constant("global")
        vm, zero = self._builder.vm_state(), self._builder.imm(0)
        self._call("vm.builtin.alloc_storage", [vm, shape, zero, dtype, scope], storage)
        self._call("vm.builtin.alloc_tensor", [storage, zero, shape, dtype], dst)

    def alloc_datatype(self, instruction: Instruction, pc: int) -> None:
        dst, tag, fields = self._of(instruction, "dst", "tag", "fields")
        name, number = self._constant(f"tag {tag}"), self._builder.imm(tag)
        self._call("relaxvm.builtin.make_adt", [name, number, *fields], dst)

    def alloc_closure(self, instruction: Instruction, pc: int) -> None:
        dst, number, free_vars = self._of(instruction, "dst", "func_index", "free_vars")
        name = self._names[number]
        if free_vars:
            name = self._wrappers[number, len(free_vars)]
        self._call("vm.builtin.make_closure", [self._builder.f(name), *free_vars], dst)

    def get_field(self, instruction: Instruction, pc: int) -> None:
        dst, value, index = self._of(instruction, "dst", "object", "field_index")
        self._call("relaxvm.builtin.adt_field", [value, self._builder.imm(index)], dst)

    def get_tag(self, instruction: Instruction, pc: int) -> None:
        dst, value = self._of(instruction, "dst", "object")
        self._call("relaxvm.builtin.adt_tag", [value], dst)

    def branch(self, instruction: Instruction, pc: int) -> None:
        cond = self._fresh()
        if self._dialect == "proposal":
            self._call("vm.builtin.read_if_cond", self._of(instruction, "test"), cond)
        else:
            args = self._of(instruction, "test", "target")
            self._call("relaxvm.builtin.scalar_equal", args, cond)
        yes, no = self._of(instruction, "true_offset", "false_offset")
        self._builder.emit_if(cond, self._labels[pc + no])
        self._builder.emit_goto(self._labels[pc + yes])

    def goto(self, instruction: Instruction, pc: int) -> None:
        self._builder.emit_goto(self._labels[pc + self._of(instruction, "pc_offset")[0]])

    def invoke(self, instruction: Instruction, pc: int) -> None:
        dst, number, args = self._of(instruction, "dst", "func_index", "args")
        self._call(self._names[number], args, dst)

    def invoke_closure(self, instruction: Instruction, pc: int) -> None:
        dst, closure, args = self._of(instruction, "dst", "closure", "args")
        vm = self._builder.vm_state()
        self._call("vm.builtin.invoke_closure", [vm, closure, *args], dst)

    def load_const(self, instruction: Instruction, pc: int) -> None:
        dst, index = self._of(instruction, "dst", "const_index")
        constant = self._constant(self._program.constants[index])
        self._call("vm.builtin.copy", [constant], dst)

    def load_consti(self, instruction: Instruction, pc: int) -> None:
        dst, value = self._of(instruction, "dst", "val")
        self._call("vm.builtin.copy", [self._constant(np.array(value, np.int64))], dst)

    def alloc_storage(self, instruction: Instruction, pc: int) -> None:
        dst, size = self._of(instruction, "dst", "allocation_size")
        shape = self._fresh()
        self._call("relaxvm.builtin.shape_from", [size], shape)
        dtype, scope = self._constant(np.dtype(np.uint8)), self._constant("global")
        vm, zero = self._builder.vm_state(), self._builder.imm(0)
        self._call("vm.builtin.alloc_storage", [vm, shape, zero, dtype, scope], dst)

    def shape_of(self, instruction: Instruction, pc: int) -> None:
        dst, tensor = self._of(instruction, "dst", "tensor")
        shape = self._fresh()
        self._call("vm.builtin.shape_of", [tensor], shape)
        self._call("relax.run.shape_to_tensor", [shape], dst)

    def reshape(self, instruction: Instruction, pc: int) -> None:
        dst, tensor, newshape = self._of(instruction, "dst", "tensor", "newshape")
        shape = self._fresh()
        self._call("relaxvm.builtin.shape_from", [newshape], shape)
        self._call("vm.builtin.reshape", [tensor, shape], dst)

    def kill(self, instruction: Instruction, pc: int) -> None:
        self._call("vm.builtin.null_value", [], self._of(instruction, "dst")[0])


_EMIT: Final[Mapping[str, Callable[[_Translator, Instruction, int], None]]] = {
    "Move": _Translator.move,
    "Ret": _Translator.ret,
    "Fatal": _Translator.fatal,
    "InvokePacked": _Translator.invoke_packed,
    "AllocTensor": _Translator.alloc_tensor,
    "AllocTensorReg": _Translator.alloc_tensor,
    "AllocDatatype": _Translator.alloc_datatype,
    "AllocClosure": _Translator.alloc_closure,
    "GetField": _Translator.get_field,
    "GetTag": _Translator.get_tag,
    "If": _Translator.branch,
    "Phi": _Translator.phi,
    "Goto": _Translator.goto,
    "Invoke": _Translator.invoke,
    "InvokeClosure": _Translator.invoke_closure,
    "LoadConst": _Translator.load_const,
    "LoadConsti": _Translator.load_consti,
    "AllocStorage": _Translator.alloc_storage,
    "ShapeOf": _Translator.shape_of,
    "ReshapeTensor": _Translator.reshape,
    "DeviceCopy": _Translator.move,
    "KillRegister": _Translator.kill,
}
