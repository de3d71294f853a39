"""Native code that is entered at loops, after the dispatch loop has run operations in between."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from relaxvm import VirtualMachine
from relaxvm.executable.shape_program import encode
from relaxvm.native.vm_code import program

from .asm import VM, Asm, r0, r1, r2, r3, r4, r5

MODES = ["bytecode", "compiled"]


def not_native(a: Asm, dst: Any) -> None:
    """An operation that native code leaves to the loop."""
    a.op(dst, "relaxvm.builtin.tag_is", r0, 1)


def run(emit: Callable[[Asm], None], mode: str, rounds: int, *args: Any, **functions: Any) -> Any:
    """Run ``main``; ``test.again()`` is true `rounds` times."""
    asm = Asm()
    emit(asm)
    answers: Iterator[bool] = iter([True] * rounds + [False])
    named = {f"test.{name}": function for name, function in functions.items()}
    vm = VirtualMachine(
        asm.get().with_section("exec_mode", mode),
        functions={"test.again": lambda: next(answers), **named},
    )
    code = vm.native_code
    assert (code is not None and code.functions == ("main",)) == (mode == "compiled")
    return vm["main"](*args)


def none_before_the_loop(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".null_value")
        head, done = a.label(), a.label()
        a.bind(head)
        a.op(r2, ".make_tuple", r1, r0)
        a.op(r3, "test.again")
        a.iff(r3, done)
        not_native(a, r1)
        a.go(head)
        a.bind(done)
        a.ret(r2)


@pytest.mark.parametrize("mode", MODES)
def test_a_register_that_only_the_loop_writes(mode: str) -> None:
    assert run(none_before_the_loop, mode, 0, 1) == (None, 1)
    assert run(none_before_the_loop, mode, 2, 1) == (True, 1)


def shared_heap(a: Asm) -> None:
    """Another value refers to the shape heap after the first round."""
    with a.func("main", 1):
        a.op(r1, ".alloc_shape_heap", VM, 2)
        a.op(r4, ".null_value")
        head, done = a.label(), a.label()
        a.bind(head)
        a.op(None, "relaxvm.builtin.compute_shape", r1,
             encode([("load", 1), ("const", 1), "add", ("store", 1)]))  # fmt: skip
        a.op(r3, "test.again")
        a.iff(r3, done)
        not_native(a, r5)
        a.op(r4, ".make_tuple", r1)
        a.go(head)
        a.bind(done)
        a.op(r2, ".make_prim_value", r1, 1, 1)
        a.op(r2, ".make_tuple", r4, r2)
        a.ret(r2)


@pytest.mark.parametrize("mode", MODES)
def test_a_shape_heap_that_others_refer_to(mode: str) -> None:
    (heap,), last = run(shared_heap, mode, 3, 1)
    assert heap.tolist() == [0, 4]
    assert last == 4


def heap_of_its_own_shape(a: Asm) -> None:
    with a.func("main", 1):
        a.op(r1, ".alloc_shape_heap", VM, 3)
        a.op(None, ".match_prim_value", r0, r1, 1, 1, "")
        a.op(None, ".match_shape", r1, r1, 1, 1, 0, "")
        a.op(r2, ".make_prim_value", r1, 1, 0)
        a.op(r3, ".make_prim_value", r1, 1, 1)
        a.op(r2, ".make_tuple", r2, r3)
        a.ret(r2)


@pytest.mark.parametrize("mode", MODES)
def test_the_shape_of_a_heap_is_stored_in_it(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "ENTRY_COST", 0)  # so few operations would stay bytecode
    assert run(heap_of_its_own_shape, mode, 0, 7) == (3, 7)


def loop_from_the_start(a: Asm) -> None:
    with a.func("main", 1):
        head, done = a.label(), a.label()
        a.bind(head)
        a.op(r1, "test.again")
        a.iff(r1, done)
        not_native(a, r2)
        a.op(r1, "test.value")
        a.go(head)
        a.bind(done)
        a.ret(r0)


@pytest.mark.parametrize("mode", MODES)
def test_values_are_released_where_a_loop_begins_at_the_start(mode: str) -> None:
    value = object()
    before = sys.getrefcount(value)
    assert run(loop_from_the_start, mode, 5, 7, value=lambda: (value, value)) == 7
    assert sys.getrefcount(value) == before
