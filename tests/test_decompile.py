"""Bytecode as script: it is readable, has the meaning of the code, and never fails."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import relaxvm
from relaxvm import ExecBuilder, FuncKind, build, decompile, isa
from relaxvm.compiler.structure import (
    MAX_DEPTH,
    Branch,
    Jump,
    Line,
    Loop,
    Node,
    labels_of,
    structure_of,
)
from relaxvm.errors import MissingExtraError, RelaxVMError, VerifyError
from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

from .corpus import CORPUS
from .fuzz.mutate import mutant
from .strategies import executables

# Readable forms


@I.ir_module
class Program:
    @R.function
    def last(n: R.Tensor((), "int64"), total: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        is_done = R.less_equal(n, R.const(0, "int64"))
        if is_done:
            result = total
        else:
            less = R.subtract(n, R.const(1, "int64"))
            more = R.add(total, n)
            result = Program.last(less, more)
        return result

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), flag: R.Tensor((), "bool")):
        n = T.int64()
        if flag:
            y = R.add(x, x)
        else:
            y = R.multiply(x, x)
        flat = R.reshape(y, (n * 3,))
        return (flat, R.shape([n]))


def test_a_program() -> None:
    text = decompile(build(Program))
    assert 'def main(x: R.Tensor((n, 3), dtype="float32"), flag: R.Tensor((), dtype="bool")' in text
    assert "\n        if flag:\n            " in text
    assert "\n        else:\n            " in text
    assert re.search(r"flat = R\.reshape\(y(_1)?, ", text)
    assert "R.match_shape(x, [shape_heap[0] := _, 3])" in text
    assert "R.shape([shape_heap[0]])" in text
    assert "shape_heap[2] = " in text
    assert "goto" not in text


def test_a_tail_call_is_a_loop() -> None:
    lines = decompile(build(Program), "last").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def last("))
    assert lines[start + 1] == "    while True:"
    assert sum(line == "            return total" for line in lines) == 1
    assert not any("goto" in line for line in lines)


def test_every_form() -> None:
    ib = ExecBuilder()
    ib.declare_function("helper", FuncKind.BYTECODE)
    ib.declare_function("t.f")
    with ib.function("main", 2, ["x", "for"]):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], ib.r(2))
        ib.emit_call("vm.builtin.tuple_getitem", [ib.r(2), ib.imm(0)], ib.r(3))
        ib.emit_call("vm.builtin.copy", [ib.convert_constant(1.5)], ib.r(4))
        ib.emit_call("vm.builtin.make_closure", [ib.f("helper"), ib.r(1)], ib.r(5))
        ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(5), ib.r(0)], ib.r(6))
        ib.emit_call("helper", [ib.r(0), ib.void_arg()], ib.r(7))
        ib.emit_call("t.f", [ib.convert_constant("a\nb"), ib.f("t.f"), ib.imm(-7)])
        ib.emit_call("t.ctx", [ib.vm_state(), ib.convert_constant(np.dtype("int8"))])
        ib.emit_call("t.c", [ib.convert_constant(np.arange(4)), ib.convert_constant((2, 3))])
        ib.emit_call("t.c", [ib.convert_constant(np.zeros(99)), ib.convert_constant("y" * 99)])
        ib.emit_call("vm.builtin.null_value", [], ib.r(7))
        ib.emit_call("vm.builtin.null_value", [], ib.r(8))
        ib.emit_ret(ib.r(8))
    with ib.function("helper", 2):
        ib.emit_call("vm.builtin.shape_of", [ib.r(0)], ib.r(2))
        ib.emit_call("vm.builtin.make_shape", [ib.r(1), ib.imm(1), ib.imm(1), ib.imm(5)], ib.r(2))
        ib.emit_ret(ib.void_arg())
    assert decompile(ib.get()) == '''\
@I.ir_module
class Module:
    # c5 = R.const(..., float64[99])
    # c6 = R.str("{y}")

    @R.function(pure=False)
    def helper(arg0: R.Any, arg1: R.Any):
        r2 = R.shape_of(arg0)
        r2 = R.shape([arg1[5]])
        return R.null_value()

    @R.function(pure=False)
    def main(x: R.Any, for_: R.Any):
        r2 = (x,)
        r3 = r2[0]
        r4 = 1.5
        r5 = R.make_closure(Module.helper, (for_,))
        r6 = R.invoke_closure(r5, (x,))
        r7 = Module.helper(x, R.null_value())
        R.call_packed("t.f", R.str('a\\nb'), R.ExternFunc("t.f"), -7)
        R.call_builtin_with_ctx("t.ctx", (R.dtype("int8"),))
        R.call_packed("t.c", R.const([0, 1, 2, 3], "int64"), R.shape([2, 3]))
        R.call_packed("t.c", c5, c6)
        R.vm.kill_object(r7)
        r8 = R.null_value()
        return r8
'''.replace("{y}", "y" * 99)


def test_one_function() -> None:
    executable = build(Program)
    text = decompile(executable, "last")
    assert text.startswith("# c")
    assert "def main" not in text
    with pytest.raises(KeyError, match="no function 'other'"):
        decompile(executable, "other")
    with pytest.raises(ValueError, match=r"vm\.builtin\.match_shape is a packed function"):
        decompile(executable, "vm.builtin.match_shape")


def test_compiled_functions_are_named() -> None:
    builder = ExecBuilder()
    builder.add_compiled("main", 2, 3, ["x", "flag"])
    text = decompile(builder.get())
    assert "# main(x, flag) is compiled: its code is not bytecode" in text


def test_an_invalid_executable_is_refused() -> None:
    broken = VMExecutable([FunctionInfo(FuncKind.BYTECODE, "f", 0, 1, 0, 1)], [], [0], [9, 9])
    with pytest.raises(VerifyError):
        decompile(broken)


def test_odd_names_and_constants() -> None:
    ib = ExecBuilder()
    with ib.function("a b\n\u202e", 1, ["self.x y"]):
        constants = [None, True, float("nan"), 1 << 60, np.array(2, ml_dtypes.bfloat16), ""]
        ib.emit_call('t."q"', [*map(ib.convert_constant, constants), ib.r(0)], ib.r(1))
        ib.emit_ret(ib.r(1))
    text = decompile(ib.get())
    assert "# a b\\n\\u202e" in text
    assert "def a_b__(self_x_y: R.Any):" in text
    assert 'R.call_packed(\'t."q"\', None, True, float("nan"), 1152921504606846976, ' in text
    assert text.isascii()


# Never fails


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus(name: str) -> None:
    executable = CORPUS[name].executable
    text = decompile(executable)
    for info in executable:
        if info.kind == FuncKind.BYTECODE:
            alone = decompile(executable, info.name).splitlines()
            start = alone.index("@R.function(pure=False)")
            assert "\n".join(f"    {line}" for line in alone[start:]) in text
    if CORPUS[name].savable:
        assert decompile(relaxvm.loads(executable.to_bytes())) == text


@settings(max_examples=150, derandomize=True, deadline=None)
@given(executables(savable=False))
def test_any_executable(executable: VMExecutable) -> None:
    text = decompile(executable)
    assert text.startswith("@I.ir_module\nclass Module:\n")
    assert text.count("def ") >= sum(info.kind == FuncKind.BYTECODE for info in executable)


def test_mutated_files() -> None:
    decompiled = 0
    for index in range(3000):
        try:
            executable = relaxvm.loads(mutant(index).data)
        except (RelaxVMError, MissingExtraError):
            continue
        decompiled += decompile(executable).startswith("@I.ir_module\n")
    assert decompiled > 100


# Control flow: the statements do the same as the code

Code = list[tuple[int, ...]]
"""(opcode) of a line, (RET,), (GOTO, target), (IF, target)."""


def executable_of(code: Code) -> VMExecutable:
    words: list[int] = []
    offsets: list[int] = []
    for pc, (op, *target) in enumerate(code):
        offsets.append(len(words))
        if op == isa.Opcode.CALL:
            words += [op, 0, 1, 0]
        elif op == isa.Opcode.RET:
            words += [op, 0]
        elif op == isa.Opcode.GOTO:
            words += [op, target[0] - pc]
        else:
            words += [op, 0, target[0] - pc]
    table = [
        FunctionInfo(FuncKind.BYTECODE, "f", 0, len(code), 1, 1, ("x",)),
        FunctionInfo(FuncKind.PACKED, "t.f"),
    ]
    return VMExecutable(table, [], offsets, words)


def random_code(rng: random.Random) -> Code:
    """Random structured code, with some random jumps."""
    code: Code = []

    def block(depth: int) -> None:
        for _ in range(rng.randint(1, 3)):
            kind = rng.choice(["line", "line", "if", "ifelse", "loop"] if depth else ["line"])
            if kind == "line":
                code.append((isa.Opcode.CALL,))
            elif kind == "loop":
                head = len(code)
                code.append((isa.Opcode.CALL,))
                at = len(code)
                code.append((isa.Opcode.IF, -1))
                block(depth - 1)
                code.append((isa.Opcode.GOTO, head))
                code[at] = (isa.Opcode.IF, len(code))
            else:
                at = len(code)
                code.append((isa.Opcode.IF, -1))
                block(depth - 1)
                if kind == "ifelse":
                    jump = len(code)
                    code.append((isa.Opcode.GOTO, -1))
                    code[at] = (isa.Opcode.IF, len(code))
                    block(depth - 1)
                    code[jump] = (isa.Opcode.GOTO, len(code))
                else:
                    if rng.random() < 0.2:
                        code.append((isa.Opcode.RET,))
                    code[at] = (isa.Opcode.IF, len(code))

    block(rng.randint(0, 4))
    code.append((isa.Opcode.CALL,))
    code.append((isa.Opcode.RET,))
    for _ in range(rng.choice([0, 0, 1, 2, 5])):
        pc = rng.randrange(len(code) - 1)
        target = rng.randrange(len(code))
        if target >= pc + 2 and rng.random() < 0.5:
            code[pc] = (isa.Opcode.IF, target)
        elif target != pc:
            code[pc] = (isa.Opcode.GOTO, target)
    # An `if` skips forward, by at least two.
    for pc, (op, *target) in enumerate(code):
        if op == isa.Opcode.IF and target[0] < pc + 2:
            code[pc] = (isa.Opcode.CALL,)
    return code


def trace_of_code(code: Code, seed: int) -> list[int]:
    rng, pc, trace = random.Random(seed), 0, []
    for _ in range(300):
        op, *target = code[pc]
        if op == isa.Opcode.RET:
            return [*trace, pc]
        if op == isa.Opcode.CALL:
            trace.append(pc)
        if op == isa.Opcode.GOTO or (op == isa.Opcode.IF and rng.random() < 0.4):
            pc = target[0]
        else:
            pc += 1
    return trace


def flattened(nodes: Sequence[Node]) -> tuple[list[tuple[Any, ...]], dict[int, int]]:
    """The statements as a list of steps, and the positions of labels."""
    steps: list[tuple[Any, ...]] = []
    labels: dict[int, int] = {}

    def put(nodes: Sequence[Node], loop: tuple[int, list[int]] | None) -> None:
        for node in nodes:
            labels.setdefault(node.pc, len(steps))
            if isinstance(node, Line):
                steps.append(("line", node.pc))
            elif isinstance(node, Jump):
                if node.kind == "goto":
                    steps.append(("goto", node.target))
                elif node.kind == "continue":
                    assert loop is not None
                    steps.append(("jump", loop[0]))
                else:
                    assert loop is not None
                    loop[1].append(len(steps))
                    steps.append(("jump", -1))
            elif isinstance(node, Loop):
                inner: tuple[int, list[int]] = (len(steps), [])
                put(node.body, inner)
                steps.append(("jump", inner[0]))
                for at in inner[1]:
                    steps[at] = ("jump", len(steps))
            elif isinstance(node, Branch):
                at = len(steps)
                steps.append(())
                put(node.then, loop)
                over = len(steps)
                steps.append(())
                steps[at] = ("if", node.negated, len(steps))
                put(node.orelse, loop)
                steps[over] = ("jump", len(steps))

    put(nodes, None)
    return steps, labels


def trace_of_nodes(nodes: Sequence[Node], code: Code, seed: int) -> list[int]:
    steps, labels = flattened(nodes)
    rng, at, trace = random.Random(seed), 0, []
    for _ in range(5000):
        kind, *what = steps[at]
        at += 1
        if kind == "line":
            trace.append(what[0])
            if code[what[0]][0] == isa.Opcode.RET:
                return trace
        elif kind == "goto":
            at = labels[what[0]]
        elif kind == "jump":
            at = what[0]
        elif (rng.random() < 0.4) != what[0]:
            at = what[1]
    return trace


@pytest.mark.parametrize("first", range(0, 2000, 250))
def test_statements_are_equivalent_to_the_code(first: int) -> None:
    structured = 0
    for seed in range(first, first + 250):
        code = random_code(random.Random(seed))
        executable = executable_of(code)
        nodes = structure_of(executable, executable.functions[0])
        structured += not labels_of(nodes)
        for run in range(4):
            expected = trace_of_code(code, run)
            got = trace_of_nodes(nodes, code, run)
            common = min(len(expected), len(got))
            assert got[:common] == expected[:common], (seed, code)
            assert len(got) >= len(expected), (seed, code)
        decompile(executable)
    assert structured > 100, "structured code should not need goto"


def test_much_code_takes_little_time_and_stack() -> None:
    deep: Code = []
    count = 3000
    for _ in range(count):
        deep.append((isa.Opcode.IF, -1))
    deep += [(isa.Opcode.CALL,), (isa.Opcode.CALL,), (isa.Opcode.RET,)]
    for pc in range(count):
        deep[pc] = (isa.Opcode.IF, count + 1)
    text = decompile(executable_of(deep))
    assert text.count("if ") == count
    crossing: Code = [(isa.Opcode.IF, pc + count) for pc in range(count)]
    crossing += [(isa.Opcode.CALL,)] * (count + 1) + [(isa.Opcode.RET,)]
    assert decompile(executable_of(crossing)).count("goto(") > count - MAX_DEPTH
    loops: Code = [(isa.Opcode.CALL,)] * count + [(isa.Opcode.GOTO, pc) for pc in range(count)]
    loops += [(isa.Opcode.RET,)]
    assert decompile(executable_of(loops)).count("while True:") <= count
