"""The register instruction set of Relay: listings, the verifier, and translation.

Programs are compared with the interpreter of `relay_isa_interpreter`.
"""

from __future__ import annotations

import itertools
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import cli
from relaxvm.cli.exits import Exit
from relaxvm.errors import FormatError, LimitError, MatchError, ParseError, VerifyError
from relaxvm.frontend import relay
from relaxvm.limits import Limits
from relaxvm.relay_isa import (
    DIALECTS,
    INSTRUCTIONS,
    Program,
    as_listing,
    assemble,
    translate,
    verify,
)
from relaxvm.relay_isa.stored import read_executable

from .relay_executables import VERSIONS, stored
from .relay_isa_interpreter import Datatype, FatalError, interpret


def _add(x: Any, y: Any, out: Any) -> None:
    np.add(x, y, out)


def _subtract(x: Any, y: Any, out: Any) -> None:
    np.subtract(x, y, out)


def _less(x: Any, y: Any, out: Any) -> None:
    np.less(x, y, out)


PACKED: dict[str, Callable[..., Any]] = {"add": _add, "subtract": _subtract, "less": _less}


def int32(value: int) -> Any:
    return np.array(value, np.int32)


def run(program: Program, *args: Any, limits: Limits | None = None) -> Any:
    machine = relaxvm.VirtualMachine(translate(program), functions=PACKED, limits=limits)
    return machine[program.functions[0].name](*args)


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, Datatype):
        return bool(found.tag == expected.tag) and all(
            same(a, b) for a, b in zip(found.fields, expected.fields, strict=True)
        )
    return bool(np.array_equal(found, expected))


def check(text: str, *args: Any) -> Any:
    program = assemble(text)
    assert verify(program) == []
    assert assemble(as_listing(program)).functions[0].params == program.functions[0].params
    assert as_listing(assemble(as_listing(program))) == as_listing(program)
    found = run(program, *args)
    assert same(found, interpret(program, PACKED, args))
    return found


HEAD = """.dialect proposal
.packed add
.packed subtract
.packed less
.constant int32 () 0
.constant int32 () 1
.constant float32 (2, 2) 1.0 2.5 -3.0 0.1
"""

SUM = HEAD + """
.function main(n)
  LoadConst $1, 0
  AllocTensor $2, 0, bool        ; %2 = AllocTensor(0, bool)
  InvokePacked 2, 2, 1, $1, $0, $2
  If $2, 1, 7
  LoadConst $3, 1
  AllocTensor $4, 0, int32
  InvokePacked 1, 2, 1, $0, $3, $4
  Invoke $5, @main, 1, $4
  AllocTensor $6, 0, int32
  Goto 3
  Move $7, $0
  Goto 3
  InvokePacked add, 2, 1, $0, $5, $6
  Goto 1
  Phi $8, $6, $7
  Ret $8
"""


def test_a_loop_with_phi() -> None:
    with pytest.raises(ParseError, match=r"unknown instruction 'Move' .* did you mean 'Mov'"):
        assemble(SUM)
    assert check(SUM.replace("Move", "Mov"), int32(10)) == 55


def test_code_that_no_path_leads_to_at_the_end() -> None:
    code = SUM.replace("Move", "Mov") + "  Goto -1\n  Mov $9, $8\n"
    assert check(code, int32(10)) == 55


CLOSURE = HEAD + """
.function main(x, y)
  AllocClosure $2, 1, 1, $0
  InvokeClosure $3, $2, 1, $1
  Ret $3
.function minus(free, own)
  AllocTensor $2, 0, int32
  InvokePacked subtract, 2, 1, $0, $1, $2
  Ret $2
"""


def test_free_variables_come_first() -> None:
    assert check(CLOSURE, int32(10), int32(3)) == 7


def test_closures_without_free_variables_and_called_directly() -> None:
    text = CLOSURE.replace("AllocClosure $2, 1, 1, $0", "AllocClosure $2, @minus, 0").replace(
        "InvokeClosure $3, $2, 1, $1", "InvokeClosure $3, $2, 2, $1, $0")
    assert check(text, int32(10), int32(3)) == -7
    direct = CLOSURE.replace("InvokeClosure $3, $2, 1, $1", "Invoke $3, 1, 2, $1, $0")
    assert check(direct, int32(10), int32(3)) == -7


def test_constants_and_tensors() -> None:
    text = HEAD + """
    .function main(x)
      LoadConst $1, 2
      AllocTensor $2, 2, 2, 2, float32
      InvokePacked 0, 2, 1, $0, $1, $2
      Ret $2"""
    x = np.ones((2, 2), np.float32)
    np.testing.assert_array_equal(check(text, x), x + np.array([[1, 2.5], [-3, 0.1]], np.float32))


LIST = """.dialect documented
.packed add
.constant int64 () 0
.constant int64 () 1
.function main(x)
  LoadConsti $1, 5
  AllocDatatype $2, 1, 0
  AllocDatatype $3, 0, 2, $1, $2
  AllocDatatype $4, 0, 2, $0, $3
  Invoke $5, @sum, 1, $4
  Ret $5
.function sum(xs)
  GetTagi $1, $0
  LoadConsti $2, 1
  If $1, $2, 1, 4
  LoadConst $3, 0
  Ret $3
  Fatal
  GetField $4, $0, 0
  GetField $5, $0, 1
  Invoke $6, 1, 1, $5
  LoadConst $9, 1
  AllocTensor $7, $8, 0, int64
  Ret $7
"""


def test_documented_lists() -> None:
    text = LIST.replace("  LoadConst $9, 1\n", "").replace(
        "  AllocTensor $7, $8, 0, int64\n",
        "  LoadConst $8, 2\n  AllocTensor $7, $8, 0, int64\n  InvokePacked 0, 3, 1, $4, $6, $7\n",
    ).replace(".function main", ".constant int64 (0)\n.function main")
    assert check(text, np.array(37, np.int64)) == 42
    program = assemble(text.replace("  Ret $5\n", "  Ret $4\n"))
    found = run(program, np.array(1, np.int64))
    assert (found.tag, found.fields[1].tag, found.fields[1].fields[1].tag) == (0, 0, 1)


FINAL = """.dialect final
    .packed add
    .constant int64 () 16
    .constant int64 () 0
    .constant int64 (1) 4
    .function main(x)
      LoadConst $1, 0
      AllocStorage $2, $1, 64, float32, 0
      LoadConst $3, 1
      AllocTensor $4, $2, $3, float32, 2, 2, 2
      InvokePacked 0, 3, 1, $0, $0, $4
      LoadConst $5, 2
      ReshapeTensor $6, $4, $5
      ShapeOf $7, $6
      DeviceCopy $8, $6, 0, 0
      KillRegister $6
      AllocTensorReg $9, $2, $3, $7, float32
      AllocADT $10, 3, 2, $8, $7
      Ret $10"""


def test_the_final_version() -> None:
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    found = check(FINAL, x)
    assert found.fields[0].tolist() == [0, 2, 4, 6]
    assert found.fields[1].tolist() == [4]


def test_fatal() -> None:
    program = assemble(".dialect final\n.function main()\nFatal")
    with pytest.raises(MatchError, match="Fatal at pc 0"):
        run(program)
    with pytest.raises(FatalError):
        interpret(program, PACKED, [])


def test_many_iterations_in_bounded_memory() -> None:
    """A loop by Goto: registers are written many times."""
    text = """.dialect final
    .packed subtract
    .constant int32 () 0
    .constant int32 () 1
    .constant int64 (0)
    .constant int64 () 4
    .function main(n)
      LoadConst $1, 0
      LoadConst $2, 1
      LoadConst $3, 3
      LoadConst $4, 0
      Goto 5
      Ret $0
      InvokePacked 0, 3, 1, $0, $2, $6
      Move $0, $6
      Goto 1
      If $0, $1, -4, 1
      AllocStorage $5, $3, 64, int32, 0
      AllocTensor $6, $5, $4, int32, 0
      Goto -6"""
    program = assemble(text)
    assert verify(program) == []
    assert run(program, int32(20_000)) == 0


# Random programs


def random_program(rng: random.Random) -> str:
    """A program of the proposal: straight lines, branches with Phi, calls."""
    lines: list[str] = []
    count = [2]

    def fresh() -> str:
        count[0] += 1
        return f"${count[0] - 1}"

    def binary(values: list[str]) -> str:
        out = fresh()
        lines.append(f"AllocTensor {out}, 0, int32")
        name = rng.choice(["add", "subtract"])
        x, y = rng.choice(values), rng.choice(values)
        lines.append(f"InvokePacked {name}, 2, 1, {x}, {y}, {out}")
        return out

    def block(values: list[str], depth: int) -> str:
        values = list(values)
        for _ in range(rng.randint(1, 4)):
            kind = rng.randrange(6)
            if kind == 0:
                values.append(constant := fresh())
                lines.append(f"LoadConst {constant}, {rng.randrange(2)}")
            elif kind == 1:
                values.append(copy := fresh())
                lines.append(f"Mov {copy}, {rng.choice(values[:-1])}")
            elif kind == 2 and depth:
                values.append(branch(values, depth - 1))
            elif kind == 3:
                closure, result = fresh(), fresh()
                free = rng.randrange(3)
                picked = [rng.choice(values) for _ in range(2)]
                first, own = ", ".join(picked[:free]), ", ".join(picked[free:])
                lines.append(f"AllocClosure {closure}, 1, {free}, {first}".rstrip(", "))
                lines.append(f"InvokeClosure {result}, {closure}, {2 - free}, {own}".rstrip(", "))
                values.append(result)
            elif kind == 4:
                result = fresh()
                lines.append(f"Invoke {result}, 1, 2, {rng.choice(values)}, {rng.choice(values)}")
                values.append(result)
            else:
                values.append(binary(values))
        return values[-1] if values[-1] not in ("$0", "$1") else binary(values)

    def branch(values: list[str], depth: int) -> str:
        test, result = fresh(), fresh()
        lines.append(f"AllocTensor {test}, 0, bool")
        lines.append(f"InvokePacked less, 2, 1, {rng.choice(values)}, {rng.choice(values)}, {test}")
        at = len(lines)
        lines.append("")
        left = block(values, depth)
        moved = fresh()
        lines.append(f"Mov {moved}, {left}")
        end = len(lines)
        lines.append("")
        lines[at] = f"If {test}, 1, {len(lines) - at}"
        right = block(values, depth)
        other = fresh()
        lines.append(f"Mov {other}, {right}")
        lines[end] = f"Goto {len(lines) - end}"
        lines.append(f"Phi {result}, {moved}, {other}")
        return result

    result = block(["$0", "$1"], 3)
    body = "\n".join(f"  {line}" for line in [*lines, f"Ret {result}"])
    return f"{HEAD}.function main(x, y)\n{body}\n{CLOSURE[CLOSURE.index('.function minus'):]}"


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    rng = random.Random(seed)
    text = random_program(rng)
    for _ in range(3):
        check(text, int32(rng.randint(-9, 9)), int32(rng.randint(-9, 9)))


class _Final:
    """A random function of the final version: storages, values of data types, closures, loops, and
    registers that are written several times."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines = ["LoadConst $2, 0", "LoadConst $3, 1", "LoadConsti $4, 0"]
        self.count = 5
        self.fields: dict[str, list[str]] = {}

    def fresh(self) -> str:
        self.count += 1
        return f"${self.count - 1}"

    def add(self, x: str, y: str) -> str:
        storage, out = self.fresh(), self.fresh()
        name = self.rng.choice(["add", "subtract"])
        self.lines += [f"AllocStorage {storage}, $2, 64, int64, 0",
                       f"AllocTensor {out}, {storage}, $3, int64, 0",
                       f"InvokePacked {name}, 3, 1, {x}, {y}, {out}"]  # fmt: skip
        return out

    def branch(self, values: list[str], depth: int) -> str:
        """The result of both branches is in one register."""
        result = self.fresh()
        test, target = self.rng.choice(values), self.rng.choice([*values, "$4"])
        at = len(self.lines)
        self.lines.append("")
        self.lines.append(f"Move {result}, {self.block(values, depth)}")
        end = len(self.lines)
        self.lines.append("")
        self.lines[at] = f"If {test}, {target}, 1, {len(self.lines) - at}"
        self.lines.append(f"Move {result}, {self.block(values, depth)}")
        self.lines[end] = f"Goto {len(self.lines) - end}"
        return result

    def loop(self, values: list[str]) -> str:
        """A register that changes a few times, until a counter is zero."""
        total, left, one = self.fresh(), self.fresh(), self.fresh()
        self.lines += [f"Move {total}, {self.rng.choice(values)}",
                       f"LoadConsti {left}, {self.rng.randrange(4)}",
                       f"LoadConsti {one}, -1"]  # fmt: skip
        at = len(self.lines)
        self.lines.append("")
        changed = self.add(total, self.rng.choice(values))
        self.lines.append(f"Move {total}, {changed}")
        storage, less = self.fresh(), self.fresh()
        self.lines += [f"AllocStorage {storage}, $2, 64, int64, 0",
                       f"AllocTensor {less}, {storage}, $3, int64, 0",
                       f"InvokePacked add, 3, 1, {left}, {one}, {less}", f"Move {left}, {less}",
                       f"KillRegister {less}"]  # fmt: skip
        self.lines.append(f"Goto {at - len(self.lines)}")
        self.lines[at] = f"If {left}, $4, {len(self.lines) - at}, 1"
        return total

    def block(self, values: list[str], depth: int) -> str:
        values, rng = list(values), self.rng
        for _ in range(rng.randint(1, 4)):
            kind = rng.randrange(7)
            if kind == 0:
                values.append(number := self.fresh())
                self.lines.append(f"LoadConsti {number}, {rng.randrange(-2, 3)}")
            elif kind == 1 and depth:
                values.append(self.branch(values, depth - 1))
            elif kind == 2:
                values.append(self.loop(values))
            elif kind == 3:
                data, field = self.fresh(), self.fresh()
                picked = [rng.choice(values) for _ in range(rng.randint(1, 3))]
                tag, index = rng.randrange(3), rng.randrange(len(picked))
                self.lines += [f"AllocADT {data}, {tag}, {len(picked)}, {', '.join(picked)}",
                               f"GetField {field}, {data}, {index}"]  # fmt: skip
                values.append(field)
                if rng.random() < 0.5:
                    tag_of, wanted, chosen = self.fresh(), self.fresh(), self.fresh()
                    x, y = rng.choice(values), rng.choice(values)
                    self.lines += [f"GetTag {tag_of}, {data}", f"LoadConsti {wanted}, 1",
                                   f"If {tag_of}, {wanted}, 1, 3", f"Move {chosen}, {x}", "Goto 2",
                                   f"Move {chosen}, {y}"]  # fmt: skip
                    values.append(chosen)
            elif kind == 4:
                closure, result, free = self.fresh(), self.fresh(), rng.randrange(3)
                picked = [rng.choice(values) for _ in range(2)]
                first, own = ", ".join(picked[:free]), ", ".join(picked[free:])
                self.lines.append(f"AllocClosure {closure}, 1, {free}, {first}".rstrip(", "))
                self.lines.append(
                    f"InvokeClosure {result}, {closure}, {2 - free}, {own}".rstrip(", ")
                )
                values.append(result)
            else:
                values.append(self.add(rng.choice(values), rng.choice(values)))
        return values[-1]


def random_final_program(rng: random.Random) -> str:
    parts = []
    for name in ("main", "other"):
        function = _Final(rng)
        if name == "other":
            function.lines.append(f"Ret {function.add('$0', '$1')}")
        else:
            function.lines.append(f"Ret {function.block(['$0', '$1'], 3)}")
        body = "\n".join(f"  {line}" for line in function.lines)
        parts.append(f".function {name}(x, y)\n{body}")
    head = HEAD.replace("proposal", "final").replace(".constant int32 () 0", ".constant int64 () 8")
    return head.replace(".constant int32 () 1", ".constant int64 () 0") + "\n".join(parts)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_of_the_final_version(seed: int) -> None:
    rng = random.Random(seed)
    text = random_final_program(rng)
    for _ in range(3):
        check(text, *(np.array(rng.randint(-2, 2), np.int64) for _ in range(2)))
    program = assemble(text)
    version = rng.choice(VERSIONS[1:])
    assert as_listing(read_executable(stored(program, version), limits=Limits())) == (
        as_listing(program)
    )


@pytest.mark.parametrize("seed", range(200))
def test_mutants_are_refused_or_run(seed: int) -> None:
    """A change of one operand gives a program that is refused, fails, or ends."""
    rng = random.Random(seed)
    lines = random_program(rng).splitlines()
    at = rng.randrange(len(HEAD.splitlines()), len(lines))
    words = lines[at].split()
    if len(words) > 1:
        i = rng.randrange(1, len(words))
        words[i] = rng.choice(["$0,", "$1,", "$7,", "-3,", "0,", "1,", "2,", "99,", "int8,"])
    lines[at] = "  " + " ".join(words).rstrip(",")
    try:
        program = assemble("\n".join(lines))
        run(program, int32(3), int32(4), limits=Limits(fuel=10_000, call_depth=100))
    except (ParseError, VerifyError, LimitError, TypeError, ValueError, RuntimeError):
        pass


# The verifier


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("Ret $1", "pc 0: $1 may be read before it is written"),
        ("LoadConst $1, 0\n", "pc 0: the function ends without Ret"),
        ("LoadConst $1, 9\nRet $1", "constant 9: there are 3"),
        ("Invoke $1, 9, 1, $0\nRet $1", "function 9: there are 1"),
        ("Invoke $1, 0, 2, $0, $0\nRet $1", "function 'main' has 1 parameters, got 2"),
        ("AllocClosure $1, 0, 2, $0, $0\nRet $1", "function 'main' has 1 parameters, got 2 free"),
        ("InvokePacked 9, 1, 0, $0\nRet $0", "packed function 9: there are 3"),
        ("Goto 5", "pc_offset: 5 leads out of the function"),
        ("Goto -1", "pc_offset: -1 leads out of the function"),
        ("Goto 0", "Goto: expected an offset other than 0, which would jump to itself forever"),
        ("If $0, 1, 9\nRet $0", "false_offset: 9 leads out of the function"),
        ("Mov $0, $0\nRet $0", "$0 is written twice"),
        ("Mov $1, $0\nMov $1, $0\nRet $1", "$1 is written twice"),
        ("Mov $1, $0\nPhi $2, $0, $1\nRet $2", "Phi: expected exactly one of $0 and $1"),
        ("Phi $3, $1, $2\nRet $3", "Phi: expected exactly one of $1 and $2"),
        ("If $0, 1, 2\nMov $1, $0\nPhi $3, $1, $2\nRet $3", "Phi: expected exactly one of"),
        ("AllocTensor $1, 0, int32\nIf $0, 1, 3\nMov $2, $1\nGoto 2\nLoadConst $3, 2\n"
         "Phi $4, $2, $3\nRet $4", "Phi: expected two objects of one type, got a tensor of int32 "
         "with 0 dimensions in $2 and a tensor of float32 with 2 dimensions in $3"),
        ("If $0, 1, 3\nAllocDatatype $1, 0, 0\nGoto 2\nAllocClosure $2, 0, 0\n"
         "Phi $3, $1, $2\nRet $3", "got a data type in $1 and a closure in $2"),
        ("LoadConst $1, 0\nGetField $2, $1, 0\nRet $2", "object: expected a data type in $1, got a "
         "tensor of int32 with 0 dimensions"),
        ("AllocDatatype $1, 0, 0\nMov $2, $1\nInvokeClosure $3, $2, 0\nRet $3",
         "closure: expected a closure in $2, got a data type"),
        ("AllocClosure $1, 0, 0\nIf $1, 1, 1\nRet $1", "test: expected a tensor in $1, got a"),
        ("If $0, 1, 2\nMov $1, $0\nRet $1", "$1 may be read before it is written"),
        ("GetField $1, $0, -1\nRet $1", "field_index: expected 0 to 2147483647, got -1"),
        ("AllocTensor $1, 1, -1, int32\nRet $1", "shape: expected dimensions >= 0"),
    ],
)
def test_rules(code: str, message: str) -> None:
    program = assemble(f"{HEAD}.function main(x)\n{code}")
    assert any(message in str(problem) for problem in verify(program))
    with pytest.raises(VerifyError, match="the program cannot be translated"):
        translate(program)


def test_rules_of_the_later_dialects() -> None:
    for code, message in [
        ("KillRegister $0\nRet $0", "$0 may be read before it is written"),
        ("InvokePacked 0, 1, 2, $0\nRet $0", "output_size: expected 0 to 1, got 2"),
        ("DeviceCopy $1, $0, 0, 1\nRet $1", "device index: expected 0, the CPU"),
        ("LoadConsti $1, 1\nAllocTensorReg $2, $1, $1, $1, int32\nRet $2",
         "storage: expected a storage in $1, got a tensor of int64 with 0 dimensions"),
        ("LoadConsti $1, 1\nAllocStorage $2, $1, 64, int8, 0\nShapeOf $3, $2\nRet $3",
         "tensor: expected a tensor in $2, got a storage"),
        ("LoadConsti $1, 9223372036854775808\nRet $1", "does not fit int64"),
    ]:
        program = assemble(f".dialect final\n.packed add\n.function main(x)\n{code}")
        assert any(message in str(problem) for problem in verify(program)), code


# Listings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected at least one function"),
        ("Ret $0", "1:1: an instruction outside of a function"),
        (".function f(x)\nRte $0", "unknown instruction 'Rte' in the dialect 'proposal'; did you "
                                   "mean 'Ret'"),
        (".function f(x)\nRet", "expected result, a register that is read, got the end"),
        (".function f(x)\nRet 0", "2:5: expected result, a register that is read, such as $1"),
        (".function f(x)\nRet $0, $1", "expected 1 operands, got 2"),
        (".function f(x)\nInvoke $1, 0, 3, $0", "arity: there are 1 operands after it, got 3"),
        (".function f(x)\nAllocTensor $1, 0, int7", "expected dtype, a data type, such as float32"),
        (".function f(x)\nInvoke $1, @g, 0", "unknown function @g"),
        (".function f(x)\nFatal", "unknown instruction 'Fatal' in the dialect 'proposal'"),
        (".function f(x)\n, ,", "2:1: expected an instruction"),
        (".packed", "expected the name of a packed function"),
        ('.packed "\\x"', "expected a name: Invalid"),
        ('.packed "\ud800"', "expected a name that is valid Unicode"),
        (".function f(x y)\nRet $0", "expected .function name(parameters)"),
        (".function f(x, x)\nRet $0", "two parameters have the same name"),
        (".function f()\nRet $0\n.function f()\nRet $0", "function f is defined twice"),
        (".function f(x) registers=0", "expected at least 1 registers"),
        (".function", "expected .function name(parameters)"),
        (".dialect old", "expected a dialect: proposal, documented, final, got 'old'"),
        (".pakced f", "unknown directive .pakced; did you mean '.packed'"),
        (".constant int32 (2) 1", "expected 2 elements for the shape [2], got 1"),
        (".constant int32 (99999999999999999999, 2) 1 2", "expected dimensions below 10^18"),
        (".constant int8 () 300", "expected elements of int8"),
        (".constant int33 () 1", "int33"),
    ],
)
def test_wrong_listings(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        assemble(text)
    assert message in str(caught.value)


def test_names_with_any_characters() -> None:
    """A name that is not a word is a string."""
    text = """.packed "a; b"
    .packed fused_nn.dense_1
    .function "odd \\"name\\""("x, y", z.1) registers=2 ; "a comment"
      Ret $0 ; "another
    """
    program = assemble(text)
    assert program.packed == ("a; b", "fused_nn.dense_1")
    assert program.functions[0].name == 'odd "name"'
    assert program.functions[0].params == ("x, y", "z.1")
    assert as_listing(assemble(as_listing(program))) == as_listing(program)
    assert translate(program).functions[0].name == 'odd "name"'


def test_limits_of_listings() -> None:
    text = ".function f(x)\n" + "Mov $1, $0\n" * 100 + "Ret $0"
    with pytest.raises(LimitError, match="instructions"):
        assemble(text, limits=Limits(instructions=50))
    with pytest.raises(LimitError, match="registers"):
        assemble(".function f(x)\nMov $999999999, $0", limits=Limits(registers=100))


def test_every_instruction_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for spec in INSTRUCTIONS:
        assert any(f" {spec.name_in(dialect)} " in text or f"{spec.name_in(dialect)}\n" in text
                   for dialect in DIALECTS if dialect in spec.operands), spec.name  # fmt: skip


def test_the_command_line(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "a.txt").write_text(CLOSURE)
    output = tmp_path / "a.rvm"
    command = ["asm", "--isa", "relay", str(tmp_path / "a.txt"), "-o", str(output)]
    assert cli.main(command) == 0
    machine = relaxvm.VirtualMachine(relaxvm.load(output), functions=PACKED)
    assert machine["main"](int32(10), int32(3)) == 7
    (tmp_path / "a.txt").write_text(CLOSURE.replace("Ret $3", "Ret $9"))
    assert cli.main(command) == Exit.MALFORMED
    assert "$9 may be read before it is written" in capsys.readouterr().err
    (tmp_path / "a.txt").write_text(CLOSURE.replace("Ret $3", "Rte $3"))
    assert cli.main(command) == Exit.MALFORMED
    assert "unknown instruction 'Rte'" in capsys.readouterr().err


# Executables of the Relay VM.  No TVM of that age is at hand: they are written here as the format
# is documented.

NO_KILL = FINAL.replace("      KillRegister $6\n", "")  # newer than TVM 0.8


def of_version(version: str) -> Program:
    return assemble(NO_KILL if version == "0.8.0" else FINAL)


@pytest.mark.parametrize("version", VERSIONS)
def test_executables_of_the_relay_vm(version: str, tmp_path: Path) -> None:
    program = of_version(version)
    data = stored(program, version)
    assert as_listing(read_executable(data, limits=Limits())) == as_listing(program)
    path = tmp_path / "code.ro"
    path.write_bytes(data)
    saved = struct.pack("<Q", len(data)) + data  # as a file that TVM wrote
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    for source in (data, path, saved):
        machine = relaxvm.VirtualMachine(relay.load_executable(source), functions=PACKED)
        assert machine["main"](x).fields[0].tolist() == [0, 2, 4, 6]


def test_layouts_of_versions_under_development() -> None:
    """Such a version is named after the next one, and has the layout of either."""
    for version, named in itertools.product(VERSIONS, ("0.8.dev7+gabc", "0.9.dev182", "0.19.0")):
        data = stored(of_version(version), version)
        head = struct.pack("<QQ", 0xD225DE2F4214151D, len(named)) + named.encode()
        data = head + data[16 + len(version) :]
        found = read_executable(data, limits=Limits())
        assert as_listing(found) == as_listing(of_version(version))


def test_constants_that_are_stored_apart() -> None:
    program = of_version("0.12.0")
    data = stored(program, "0.12.0", late=[0, 2])
    constants = {f"const_{i}": program.constants[i] for i in (0, 2)}
    assert as_listing(read_executable(data, constants, limits=Limits())) == as_listing(program)
    blob = relay.save_params(constants)
    machine = relaxvm.VirtualMachine(
        relay.load_executable(data, relay.read_params(blob)), functions=PACKED
    )
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert machine["main"](x).fields[0].tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match=r"2 constants are stored apart .*: const_0, const_2"):
        relay.load_executable(data)
    with pytest.raises(ValueError, match="has no constant const_1 that is stored apart"):
        relay.load_executable(data, {**constants, "const_1": np.zeros(2)})


@pytest.mark.parametrize("version", VERSIONS)
def test_executables_for_other_devices(version: str) -> None:
    with pytest.raises(FormatError, match="expected the CPU, device type 1, got 2"):
        relay.load_executable(stored(of_version(version), version, device=2))


def test_load_says_that_a_file_is_of_the_relay_vm() -> None:
    for version in ("0.8.0", "0.9.dev182+ge718f5a8a"):
        with pytest.raises(FormatError, match=f"of the Relay VM of TVM {re.escape(version)}"):
            relaxvm.loads(_named(version))
    for version in ("0.6.1", "0.20.0", "0.201", "1.0"):
        with pytest.raises(FormatError, match=re.escape(f"from 0.7 to 0.19, got '{version}'")):
            relay.load_executable(_named(version))


def _named(version: str) -> bytes:
    data = stored(assemble(NO_KILL))
    head = struct.pack("<QQ", 0xD225DE2F4214151D, len(version)) + version.encode()
    return head + data[16 + len("0.8.0") :]


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_executables_of_the_relay_vm(version: str) -> None:
    data = stored(of_version(version), version)
    for size in range(len(data)):
        with pytest.raises(FormatError):
            relay.load_executable(data[:size])
    with pytest.raises(FormatError, match="1 bytes after the end"):
        relay.load_executable(data + b"\0")


@pytest.mark.parametrize("version", VERSIONS)
def test_mutants_of_executables_of_the_relay_vm(version: str) -> None:
    """They are refused, fail, or end; most of them are refused."""
    data = stored(of_version(version), version)
    rng = random.Random(5)
    limits = Limits(fuel=1000, live_bytes=1 << 20, alloc_bytes=1 << 20)
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    for _ in range(800):
        mutant = bytearray(data)
        at = rng.randrange(len(data) // 8) * 8
        mutant[at : at + 8] = struct.pack("<q", rng.choice([0, 1, 2, 7, 40, -1, 2**62, -(2**63)]))
        try:
            executable = relay.load_executable(bytes(mutant), limits=limits)
            relaxvm.VirtualMachine(executable, functions=PACKED, limits=limits)["main"](x)
        except (FormatError, VerifyError, LimitError, TypeError, ValueError, RuntimeError,
                MemoryError):  # fmt: skip
            continue
