"""The programs of the dispatch benchmarks: each repeats one instruction many times.

A row's executable runs on relaxvm and, through the binary format, on TVM.  Its arguments are only
values that both have (an array, a bool, an int); the program makes all others itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..executable import VMExecutable
from ..executable.exec_builder import ExecBuilder
from ..values import Shape

X = np.arange(6, dtype="float32").reshape(2, 3)
FLOAT32 = np.dtype("float32")

Emit = Callable[[ExecBuilder], None]


def identity(x: Any) -> Any:
    return x


__all__ = ["DATA_TYPE_ROWS", "ENTRIES", "PYTHON_FUNCTION", "ROWS", "Row", "X", "entry", "identity"]

PYTHON_FUNCTION = "bench.identity"
"""The name of `identity` among packed functions."""
STORE, EQUAL, IMM, SLOT = 1, 3, 0, 1


@dataclass(frozen=True)
class Row:
    """An instruction to time.

    Attributes:
        name: its name in the tables.
        emit: emits it once; register 0 holds the argument, it may write the others.
        required_ratio: of TVM's time to relaxvm's.
        prepare: emits the instructions that it needs once, before the repetitions.
        define: emits other functions.
        args: arguments of the program.
        count: number of repetitions.
        words: instructions per repetition.
        optimize: whether the core may quicken and fuse instructions and thread jumps.
        note: a remark.
    """

    name: str
    emit: Emit
    required_ratio: float
    prepare: Emit = lambda b: None
    define: Emit = lambda b: None
    args: tuple[Any, ...] = (X,)
    count: int = 4000
    words: int = 1
    optimize: bool = True
    note: str = field(default="", compare=False)

    def executable(self) -> VMExecutable:
        builder = ExecBuilder()
        self.define(builder)
        with builder.function("main", num_inputs=len(self.args)):
            self.prepare(builder)
            for _ in range(self.count):
                self.emit(builder)
            builder.emit_ret(builder.r(0))
            builder.emit_ret(builder.r(0))  # the target of an `if` at the end
        return builder.get()

    def empty(self) -> VMExecutable:
        """Return a program that does nothing, with the same parameters."""
        builder = ExecBuilder()
        with builder.function("main", num_inputs=len(self.args)):
            builder.emit_ret(builder.r(0))
        return builder.get()


def call(name: str, *args: Any, dst: int | None = None) -> Emit:
    """Emit a call of a builtin; strings, None and floats become constants."""

    def emit(b: ExecBuilder) -> None:
        words = [b.convert_constant(a) if isinstance(a, (str, np.dtype, Shape)) else a(b)
                 for a in args]  # fmt: skip
        b.emit_call(name, words, dst=None if dst is None else b.r(dst))

    return emit


def r(i: int) -> Callable[[ExecBuilder], int]:
    return lambda b: b.r(i)


def imm(i: int) -> Callable[[ExecBuilder], int]:
    return lambda b: b.imm(i)


def vm(b: ExecBuilder) -> int:
    return b.vm_state()


def f(name: str) -> Callable[[ExecBuilder], int]:
    return lambda b: b.f(name)


def both(first: Emit, second: Emit) -> Emit:
    def emit(b: ExecBuilder) -> None:
        first(b)
        second(b)

    return emit


def function(name: str, num_inputs: int) -> Emit:
    """Emit a function that returns its first argument."""

    def emit(b: ExecBuilder) -> None:
        with b.function(name, num_inputs=num_inputs):
            for i in range(1, num_inputs):
                b.emit_call("vm.builtin.copy", [b.r(i)], dst=b.r(i))
            b.emit_ret(b.r(0))

    return emit


B = "vm.builtin."
STORAGE = call(B + "alloc_storage", vm, Shape((96,)), imm(0), np.dtype("uint8"), "global",
               dst=1)  # fmt: skip
TENSOR = call(B + "alloc_tensor", r(1), imm(0), Shape((4, 6)), FLOAT32, dst=2)
HEAP = call(B + "alloc_shape_heap", vm, imm(4), dst=1)
MATCH = call(B + "match_shape", r(0), r(1), imm(2), imm(STORE), imm(0), imm(STORE), imm(1), "")

ROWS = (
    Row("goto", lambda b: b.emit_goto(1), 2, count=10_000, optimize=False,
        note="without jump threading, which would leave nothing to time"),
    Row("if on bool", lambda b: b.emit_if(b.r(0), 2), 2, args=(True,), count=10_000),
    Row("if on int", lambda b: b.emit_if(b.r(0), 2), 1, args=(7,), count=10_000),
    Row("copy", call(B + "copy", r(0), dst=1), 30, count=10_000),
    Row("null_value", call(B + "null_value", dst=1), 20, count=10_000),
    Row("make_tuple of two", call(B + "make_tuple", r(0), r(0), dst=1), 7),
    Row("tuple_getitem", call(B + "tuple_getitem", r(1), imm(1), dst=2), 30,
        prepare=call(B + "make_tuple", r(0), r(0), dst=1), count=10_000),
    Row("shape_of", call(B + "shape_of", r(0), dst=1), 4),
    Row("make_shape of two", call(B + "make_shape", r(1), imm(2), imm(SLOT), imm(0), imm(SLOT),
        imm(1), dst=2), 4, prepare=both(HEAP, MATCH)),
    Row("match_shape of two", MATCH, 20, prepare=HEAP),
    Row("check_tensor_info", call(B + "check_tensor_info", r(0), imm(2), FLOAT32, ""), 25,
        count=10_000),
    Row("read_if_cond", call(B + "read_if_cond", r(0), dst=1), 20, args=(np.array(True),),
        count=10_000),
    Row("alloc_shape_heap", HEAP, 8),
    Row("alloc_storage", STORAGE, 10),
    Row("alloc_tensor", TENSOR, 4, prepare=STORAGE),
    Row("storage + tensor + kill", both(STORAGE, both(TENSOR, call(B + "null_value", dst=1))), 1,
        words=3, note="fused"),
    Row("VM function", call("callee", r(0), dst=1), 25, define=function("callee", 1)),
    Row("make_closure", call(B + "make_closure", f("callee"), r(0), dst=1), 12,
        define=function("callee", 2)),
    Row("invoke_closure", call(B + "invoke_closure", vm, r(1), r(0), dst=2), 25,
        define=function("callee", 1),
        prepare=call(B + "make_closure", f("callee"), dst=1)),
    Row("Python function", call(PYTHON_FUNCTION, r(0), dst=1), 9),
)  # fmt: skip

OWN = "relaxvm.builtin."
CELL = call(OWN + "make_adt", "List.Cons", imm(1), r(0), r(0), dst=1)

DATA_TYPE_ROWS = (
    Row("make_adt of two", CELL, 0),
    Row("make_adt, chained", call(OWN + "make_adt", "List.Cons", imm(1), r(0), r(1), dst=1), 0,
        prepare=call(B + "copy", r(0), dst=1)),
    Row("make_tuple, chained", call(B + "make_tuple", r(0), r(1), dst=1), 0,
        prepare=call(B + "copy", r(0), dst=1)),
    Row("make_adt without fields", call(OWN + "make_adt", "List.Nil", imm(0), dst=1), 0),
    Row("adt_tag", call(OWN + "adt_tag", r(1), dst=2), 0, prepare=CELL, count=10_000),
    Row("adt_field", call(OWN + "adt_field", r(1), imm(1), dst=2), 0, prepare=CELL, count=10_000),
    Row("tag_is + if", both(call(OWN + "tag_is", r(2), imm(1), dst=3),
        both(lambda b: b.emit_if(b.r(3), 2), lambda b: b.emit_goto(1))), 0,
        prepare=both(CELL, call(OWN + "adt_tag", r(1), dst=2)), count=10_000, words=2,
        note="fused"),
)  # fmt: skip
"""Instructions that TVM does not have."""

ENTRIES = {1: 8.0, 4: 9.0, 16: 9.0}
"""Number of arguments -> required ratio of a call from Python."""


def entry(num_inputs: int) -> VMExecutable:
    """An executable whose `main` takes `num_inputs` arguments and returns the first."""
    builder = ExecBuilder()
    function("main", num_inputs)(builder)
    return builder.get()
