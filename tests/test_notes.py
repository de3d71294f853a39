"""Notes on errors: function, pc, instruction, arguments; bounded, and harmless to the arguments."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, Limits, Shape, VirtualMachine
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import LimitError
from relaxvm.executable import VMExecutable
from relaxvm.messages import describe
from relaxvm.values import cpu
from relaxvm.vm.error_notes import MAX_NOTES, ErrorNotes

X = np.zeros((2, 3), np.float32)
KEEPING_FRAMES = {rewriting.name for rewriting in REWRITINGS} - {"tail_calls"}


def fail(*args: Any) -> Any:
    raise ZeroDivisionError("kernel")


def program(depth: int = 0) -> VMExecutable:
    """``main(x, y)`` calls the failing kernel, through `depth` functions."""
    b = ExecBuilder()
    for level in range(depth, -1, -1):
        callee = "t.fail" if level == depth else f"f{level + 1}" if level + 1 <= depth else "t.fail"
        with b.function("main" if level == 0 else f"f{level}", num_inputs=2):
            b.emit_call("vm.builtin.copy", [b.r(0)], dst=b.r(2))
            b.emit_call(callee, [b.r(2), b.r(1)], dst=b.r(3))
            b.emit_ret(b.r(3))
    return b.get()


def notes_of(vm: VirtualMachine, *args: Any, error: type[BaseException] = ZeroDivisionError) -> Any:
    with pytest.raises(error) as caught:
        vm.main(*args)
    return caught.value.__notes__


def test_one_note_per_frame_innermost_first() -> None:
    vm = VirtualMachine(program(depth=2), functions={"t.fail": fail}, optimize=KEEPING_FRAMES)
    got = notes_of(vm, X, Shape((4, 5)))
    assert got == [
        "in f2, pc 1: call t.fail in: %2, %1 dst: %3\n  with float32[2, 3], Shape(4, 5)",
        "in f1, pc 4: call f2 in: %2, %1 dst: %3\n  with float32[2, 3], Shape(4, 5)",
        "in main, pc 7: call f1 in: %2, %1 dst: %3\n  with float32[2, 3], Shape(4, 5)",
    ]


def test_the_pc_is_the_one_of_the_listing() -> None:
    executable = program(depth=1)
    vm = VirtualMachine(executable, functions={"t.fail": fail}, optimize=KEEPING_FRAMES)
    note = notes_of(vm, 1, 2)[1]
    pc = int(note.split("pc ")[1].split(":")[0])
    info = executable.function("main")
    assert info.start_instr <= pc < info.end_instr
    assert executable.instruction(pc).op.name == "call"


def test_class_message_and_traceback_stay() -> None:
    vm = VirtualMachine(program(), functions={"t.fail": fail})
    with pytest.raises(ZeroDivisionError) as caught:
        vm.main(1, 2)
    assert str(caught.value) == "kernel"
    assert caught.traceback[-1].name == "fail"
    text = "".join(traceback.format_exception(caught.value))
    assert text.rstrip().endswith("with int 1, int 2")


def test_builtin_errors_have_notes_too() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        args = [b.r(0), b.imm(2), b.convert_constant(np.dtype("float32")), b.convert_constant("x ")]
        b.emit_call("vm.builtin.check_tensor_info", args)
        b.emit_ret(b.r(0))
    for optimize in (True, False):
        vm = VirtualMachine(b.get(), functions=[], optimize=optimize)
        (note,) = notes_of(vm, np.zeros(3), error=ValueError)
        assert note == (
            "in main, pc 0: call vm.builtin.check_tensor_info in: %0, i2, c[0], c[1] dst: %void\n"
            "  with float64[3], int 2, dtype float32, str 'x '"
        )


def test_special_operands_are_named() -> None:
    b = ExecBuilder()
    b.declare_function("t.fail")
    with b.function("main", num_inputs=1):
        args = [b.vm_state(), b.void_arg(), b.f("main"), b.f("t.fail"), b.r(0), b.imm(-3)]
        b.emit_call("t.fail", args)
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get(), functions={"t.fail": fail})
    note = notes_of(vm, vm["main"])[0]
    assert note.endswith(
        "\n  with vm, None, function main, function t.fail, function main, int -3"
    )


def test_if_on_a_tensor_is_explained() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_if(b.r(0), 2)
        b.emit_ret(b.r(0))
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get(), functions=[])
    with pytest.raises(TypeError, match=r"vm\.builtin\.read_if_cond") as caught:
        vm.main(X)
    assert caught.value.__notes__[0].startswith("in main, pc 0: If %0, 2")


def recursive() -> VMExecutable:
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["n"]):
        b.emit_call("t.step", [b.r(0)], dst=b.r(1))
        b.emit_call("main", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    return b.get()


def test_long_stacks_are_cut_in_the_middle() -> None:
    def step(n: int) -> int:
        if n == 5000:
            raise KeyError("deep")
        return n + 1

    vm = VirtualMachine(recursive(), functions={"t.step": step})
    notes = notes_of(vm, 0, error=KeyError)
    assert len(notes) < 30
    assert notes[0] == "in main, pc 0: call t.step in: %0 dst: %1\n  with int 5000"
    assert notes[1] == "in main, pc 1: call main in: %1 dst: %2\n  with int 5000"
    assert notes[-1] == "in main, pc 1: call main in: %1 dst: %2\n  with int 1"
    (cut,) = [note for note in notes if note.startswith("...")]
    hidden = int(cut.removeprefix("... ").removesuffix(" more frames ...").replace(",", ""))
    assert hidden + len(notes) - 1 == 5001
    assert "," in cut


def test_call_depth_error_has_notes() -> None:
    vm = VirtualMachine(
        recursive(), functions={"t.step": lambda n: n + 1}, limits=Limits(call_depth=100)
    )
    notes = notes_of(vm, 0, error=LimitError)
    assert notes[0].startswith("in main, pc 1: call main in: %1 dst: %2")
    assert any(note.startswith("... ") for note in notes)


def test_nested_runs_stop_collecting() -> None:
    """An exception that passes through many nested runs has a bounded number of notes."""

    def again(n: int) -> Any:
        if n == 0:
            raise KeyError("innermost")
        return vm.main(n - 1, None)

    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call("t.again", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(3))
        b.emit_ret(b.r(2))
    vm = VirtualMachine(b.get(), functions={"t.again": again})
    notes = notes_of(vm, 150, None, error=KeyError)
    assert len(notes) == MAX_NOTES
    assert notes[0].endswith("with int 0")
    assert notes[5].endswith("with int 5")


def test_an_exception_raised_again_and_again_stays_bounded() -> None:
    one = KeyError("the same object each time")

    def raises(*args: Any) -> None:
        raise one

    vm = VirtualMachine(program(), functions={"t.fail": raises})
    for _ in range(200):
        with pytest.raises(KeyError):
            vm.main(1, 2)
    assert len(one.__notes__) == MAX_NOTES


def test_unbounded_reentrancy_is_a_clear_error() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("t.again", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get(), functions={"t.again": lambda n: vm.main(n)})
    with pytest.raises(RecursionError) as caught:
        vm.main(1)
    assert 1 <= len(caught.value.__notes__) <= MAX_NOTES
    with pytest.raises(RecursionError):
        vm.main(1)


# The contents of notes


class Hostile:
    """An object whose methods must not be called."""

    def __repr__(self) -> str:
        raise AssertionError("repr of a user's object was called")

    __str__ = __repr__

    def __len__(self) -> int:
        raise AssertionError("len of a user's object was called")


class HostileText(str):
    __slots__ = ()

    def __repr__(self) -> str:
        raise AssertionError("repr of a user's string was called")

    __str__ = __len__ = __getitem__ = __repr__  # type: ignore[assignment]


class HostileInt(int):
    def __repr__(self) -> str:
        raise AssertionError("repr of a user's int was called")

    __str__ = bit_length = __repr__  # type: ignore[assignment]


class HostileTuple(tuple):  # type: ignore[type-arg]
    __slots__ = ()

    def __len__(self) -> int:
        raise AssertionError("len of a user's tuple was called")

    __repr__ = __iter__ = __len__  # type: ignore[assignment]


class HostileArray(np.ndarray):  # type: ignore[type-arg]
    @property
    def shape(self) -> Any:
        raise AssertionError("shape of a user's array was read")

    dtype = shape  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (7, "int 7"),
        (10**5000, "int of 16610 bits"),
        (True, "bool True"),
        (2.5, "float 2.5"),
        ("abc", "str 'abc'"),
        ("x" * 10**6, "str 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."),
        (np.zeros((2, 0), np.int8), "int8[2, 0]"),
        (np.zeros((), ">f4"), ">f4[]"),
        (Shape((2, 3)), "Shape(2, 3)"),
        (Shape(range(9)), "Shape of 9 dimensions"),
        ((1, 2, 3), "tuple of 3"),
        ([1, 2], "tuple of 2"),
        (np.dtype("int8"), "dtype int8"),
        (np.dtype([(f"field{i}", "i4") for i in range(99)]),
         "dtype [('field0', '<i4'), ('field1', '<i4')..."),
        (cpu(2), "device cpu(2)"),
        ({"a": 1}, "dict"),
        (b"bytes", "bytes"),
        (Hostile(), "Hostile"),
        (HostileText("abc"), "str 'abc'"),
        (HostileInt(5), "int 5"),
        (HostileTuple((1, 2)), "tuple of 2"),
        (np.zeros(3).view(HostileArray), "float64[3]"),
        (type("N" * 200, (), {})(), "N" * 37 + "..."),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_describe(value: object, text: str) -> None:
    assert describe(value) == text


def test_notes_call_nothing_of_the_arguments() -> None:
    vm = VirtualMachine(program(), functions={"t.fail": fail})
    assert notes_of(vm, Hostile(), (Hostile(),))[0].endswith("with Hostile, tuple of 1")


def test_notes_do_not_keep_arguments_alive() -> None:
    vm = VirtualMachine(program(), functions={"t.fail": fail})
    big = np.zeros(1000)
    held = weakref.ref(big)
    try:
        vm.main(big, 0)
    except ZeroDivisionError as error:
        kept = error.with_traceback(None)  # the traceback holds the frame of the kernel
    del big
    gc.collect()
    assert held() is None
    assert "float64[1000]" in kept.__notes__[0]


def test_many_arguments_and_long_names_are_cut() -> None:
    name = "kernel_" + "n" * 5000
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call(name, [b.r(0)] * 500)
        b.emit_call(name, [b.r(0)] * 10, dst=b.r(1))
        b.emit_ret(b.r(1))
    ex = b.get()
    vm = VirtualMachine(ex, functions={name: fail})
    (note,) = notes_of(vm, 1)
    first, second = note.split("\n")
    assert first.startswith("in main, pc 0: call kernel_nnn")
    assert first.endswith(" in: 500 arguments")
    assert second.endswith("int 1, ... 484 more")
    assert len(note) < 600
    assert len(ErrorNotes(ex).describe_frame(1, [1] * 10)) < 600


def test_a_note_that_fails_does_not_hide_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, *args: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(ErrorNotes, "add_to", broken)
    vm = VirtualMachine(program(), functions={"t.fail": fail})
    assert notes_of(vm, 1, 2) == ["in a relaxvm program (MemoryError while finding the position)"]


def test_base_exceptions_get_notes_and_leave_the_vm_usable() -> None:
    def stop(*args: Any) -> None:
        sys.exit(3)

    vm = VirtualMachine(program(), functions={"t.fail": stop})
    for _ in range(2):
        with pytest.raises(SystemExit) as caught:
            vm.main(1, 2)
        assert caught.value.__notes__[0].startswith("in main, pc 1: call t.fail")


def test_a_data_type_too_deep_for_its_text() -> None:
    deep = np.dtype("int8")
    for _ in range(2_000):
        deep = np.dtype((deep, (1,)))
    assert describe(deep) == "dtype void8"
