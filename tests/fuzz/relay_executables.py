"""Mutants of executables and listings of Relay's virtual machine."""

from __future__ import annotations

import random
from functools import cache
from typing import Any, Final

import numpy as np

from relaxvm.errors import InternalError, RelaxVMError
from relaxvm.frontend.relay import load_executable
from relaxvm.isa import FuncKind
from relaxvm.relay_isa import (
    DIALECTS,
    Function,
    Instruction,
    Kind,
    Program,
    as_listing,
    assemble,
    translate,
    verify,
)
from relaxvm.vm import VirtualMachine

from ..relay_executables import VERSIONS, stored
from .changes import Mutant, Words, as_text, change_bytes, change_text, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["bases", "mutant", "run"]

_FINAL: Final = """
.dialect final
.packed add
.packed less
.constant int64 () 64
.constant int64 () 0
.constant int64 (1) 4
.constant int32 () 1
.function main(x)
  LoadConst $1, 0
  AllocStorage $2, $1, 64, float32, 0
  LoadConst $3, 1
  AllocTensor $4, $2, $3, float32, 2, 2, 2
  InvokePacked add, 3, 1, $0, $0, $4
  LoadConst $5, 2
  ReshapeTensor $6, $4, $5
  ShapeOf $7, $6
  DeviceCopy $8, $6, 0, 0
  KillRegister $6
  AllocTensorReg $9, $2, $3, $7, float32
  AllocADT $10, 3, 2, $8, $7
  Invoke $11, @length, 1, $10
  AllocClosure $12, @pair, 1, $11
  InvokeClosure $13, $12, 1, $10
  Ret $13
.function length(xs)
  GetTag $1, $0
  LoadConsti $2, 3
  If $1, $2, 1, 4
  GetField $3, $0, 1
  Move $4, $3
  Goto 2
  Fatal
  Ret $4
.function pair(a, b)
  AllocADT $2, 0, 2, $0, $1
  Ret $2
.function loop(n)
  LoadConsti $1, 0
  LoadConst $2, 3
  LoadConst $3, 0
  AllocStorage $4, $3, 64, int32, 0
  If $0, $1, 1, 2
  Ret $0
  AllocTensor $5, $4, $1, int32, 0
  InvokePacked 0, 3, 1, $0, $2, $5
  Move $0, $5
  Goto -5
"""

_PROPOSAL: Final = """
.dialect proposal
.packed add
.packed less
.constant int32 () 1
.function main(x, y)
  LoadConst $2, 0
  AllocTensor $3, 0, bool
  InvokePacked less, 2, 1, $0, $1, $3
  If $3, 1, 4
  AllocTensor $4, 0, int32
  InvokePacked add, 2, 1, $0, $2, $4
  Goto 2
  Mov $5, $1
  Phi $6, $4, $5
  AllocClosure $7, @main, 1, $6
  AllocDatatype $8, 1, 2, $6, $7
  GetField $9, $8, 0
  Ret $9
"""

_DOCUMENTED: Final = """
.dialect documented
.packed add
.constant int64 (2) 2 3
.function main(x)
  LoadConst $1, 0
  AllocTensor $2, $1, 2, float32
  AllocDatatype $3, 2, 1, $2
  GetTagi $4, $3
  LoadConsti $5, 2
  If $4, $5, 1, 3
  GetField $6, $3, 0
  Ret $6
  Fatal
"""

_TEXTS: Final = {"final": _FINAL, "proposal": _PROPOSAL, "documented": _DOCUMENTED}


@cache
def bases() -> dict[str, Program]:
    """Return the programs to mutate."""
    found = {name: assemble(text) for name, text in _TEXTS.items()}
    final = found["final"]
    functions = [
        Function(f.name, f.params, f.registers,
                 tuple(_unkilled(i) for i in f.code)) for f in final.functions
    ]  # fmt: skip
    found["oldest"] = Program("final", functions, final.constants, final.packed)
    return found


def _unkilled(instruction: Instruction) -> Instruction:
    """An instruction of TVM 0.8, which has no KillRegister."""
    if instruction.spec.name != "KillRegister":
        return instruction
    spec = next(i for f in assemble(_FINAL).functions for i in f.code if i.spec.name == "Move").spec
    return Instruction(spec, (instruction.values[0], instruction.values[0]))


@cache
def _words() -> Words:
    return Words.of([as_listing(program) for program in bases().values()], DIALECTS)


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index: half of them executables, half listings."""
    rng = seeded("relay_vm", index, seed)
    if index % 2:
        base = rng.choice(sorted(_TEXTS))
        program = bases()[base]
        steps = ["nothing"]
        if rng.random() < 0.5:
            program, steps = _changed(program, rng)
        text = as_listing(program)
        if steps == ["nothing"]:
            text, steps = change_text(text, _words(), rng)
        return Mutant(base, tuple(steps), b"L" + text.encode("utf-8", "surrogatepass"))
    version = rng.choice(VERSIONS)
    base = "oldest" if version == "0.8.0" else "final"
    program, steps = bases()[base], []
    if rng.random() < 0.6:
        program, steps = _changed(program, rng)
    late = [0] if version != "0.8.0" and rng.random() < 0.1 else []
    try:
        data = stored(program, version, late=late)
    except Exception:  # a number that no stream can have
        data, steps = stored(bases()[base], version), []
    if not steps or rng.random() < 0.1:
        data, more = change_bytes(data, rng)
        steps += more
    return Mutant(f"{base} {version}", tuple(steps), b"E" + data)


def _changed(program: Program, rng: random.Random) -> tuple[Program, list[str]]:
    """Change instructions of a program."""
    functions = list(program.functions)
    steps = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(functions))
        func = functions[at]
        code, registers, step = list(func.code), func.registers, rng.choice(_STEPS)
        steps.append(step)
        pc = rng.randrange(len(code)) if code else 0
        if step == "registers":
            registers = max(0, registers + rng.choice((-1, 1, 5)))
        elif step == "drop":
            del code[pc : pc + 1]
        elif code and step == "copy":
            code.insert(rng.randrange(len(code) + 1), code[pc])
        elif code and step == "swap":
            other = rng.randrange(len(code))
            code[pc], code[other] = code[other], code[pc]
        elif code:
            code[pc] = _changed_operand(code[pc], program.dialect, rng)
        functions[at] = Function(func.name, func.params, registers, tuple(code))
    return Program(program.dialect, functions, program.constants, program.packed), steps


_STEPS: Final = ("operand",) * 6 + ("drop", "copy", "swap", "registers")


def _changed_operand(instruction: Instruction, dialect: str, rng: random.Random) -> Instruction:
    values = list(instruction.values)
    if not values:
        return instruction
    i = rng.randrange(len(values))
    kind = instruction.spec.operands[dialect][i].kind
    if isinstance(values[i], tuple):
        items = list(values[i])
        if items:
            items[rng.randrange(len(items))] = rng.randrange(12)
        values[i] = tuple(items)
    elif kind is Kind.DTYPE:
        values[i] = rng.choice(("float32", "int32", "bool", "int64", "float16"))
    elif kind not in (Kind.COUNT,):
        values[i] = rng.randrange(12) if rng.random() < 0.8 else number(rng)
    return Instruction(instruction.spec, tuple(values), instruction.line)


# Running


def _add(x: Any, y: Any, out: Any) -> None:
    np.add(x, y, out)


def _less(x: Any, y: Any, out: Any) -> None:
    np.less(x, y, out)


_PACKED: Final = {"add": _add, "less": _less}


def run(mutant: Mutant, index: int) -> Ending:
    """Read a mutant, verify it, and call its functions."""
    data = mutant.data[1:]
    try:
        if mutant.data[:1] == b"E":
            executable = load_executable(data, limits=LIMITS)
        else:
            program = assemble(as_text(data), limits=LIMITS)
            listing = as_listing(program)
            if as_listing(assemble(listing)) != listing:
                return Outcome.STRAY_ERROR, "differs: after printing and reading"
            if verify(program):
                return Outcome.REFUSED, "VerifyError"
            executable = translate(program)
        functions = dict.fromkeys(_unknown(executable), _add) | _PACKED
        machine = VirtualMachine(executable, limits=LIMITS, functions=functions)
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except ValueError as error:
        if "stored apart from the code" in str(error):
            return Outcome.REFUSED, "constants"
        return Outcome.STRAY_ERROR, described(error)
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    rng = random.Random(index)
    endings = [(Outcome.RESULT, "")]
    for info in executable.functions:
        if info.kind == FuncKind.BYTECODE:
            args = [_argument(rng, machine) for _ in range(min(info.num_args, 64))]
            endings.append(_call(machine, info.name, args))
    return max(endings)


def _unknown(executable: Any) -> list[str]:
    """The packed functions that nobody has."""
    known = ("vm.builtin.", "relaxvm.builtin.", "relax.run.")
    return [
        info.name for info in executable.functions
        if info.kind == FuncKind.PACKED and not info.name.startswith(known)
    ]  # fmt: skip


def _argument(rng: random.Random, machine: VirtualMachine) -> Any:
    kind = rng.randrange(6)
    if kind < 3:
        return np.array(rng.choice((0, 1, 3, -2)), rng.choice(("int32", "int32", "int64", "bool")))
    if kind < 5:
        return np.ones(rng.choice(((2, 2), (4,), (0,))), rng.choice(("float32", "int32")))
    return (np.int32(1), np.int32(2))


def _call(machine: VirtualMachine, name: str, args: list[Any]) -> Ending:
    try:
        machine[name](*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"call: {described(error)}"
    return Outcome.RESULT, ""
