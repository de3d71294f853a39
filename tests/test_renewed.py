"""Values that the loop rewrites in place, since only the register holds them: tuples, closures and
others."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import Adt, Closure, Limits, Shape, VirtualMachine

from .asm import VM, Asm, Func, Reg, r0, r1, r2, r3

UINT8 = np.dtype("uint8")


def machine(emit: Callable[[Asm], None], **functions: Any) -> VirtualMachine:
    asm = Asm()
    emit(asm)
    named = {f"test.{name}": function for name, function in functions.items()}
    return VirtualMachine(asm.get(), functions=named)


def repeated(make: Callable[[Asm, int], None], times: int = 3) -> Callable[[Asm], None]:
    """``main(x)`` makes a value in %1 several times, and calls ``test.see`` with it."""

    def emit(a: Asm) -> None:
        with a.func("callee", 2):
            a.op(r0, ".make_tuple", r0, r1)
            a.ret(r0)
        with a.func("other", 2):
            a.op(r0, ".make_tuple", r1, r0)
            a.ret(r0)
        with a.func("main", 1):
            for i in range(times):
                make(a, i)
                a.op(None, "test.see", r1)
            a.ret(r1)

    return emit


def pair(a: Asm, i: int) -> None:
    a.op(r1, ".make_tuple", i, r0)


def cell(a: Asm, i: int) -> None:
    a.op(r1, "relaxvm.builtin.make_adt", f"List.Cons{i % 2}", i, r0, i)


def closure(a: Asm, i: int) -> None:
    a.op(r2, ".copy", i)
    a.op(r1, ".make_closure", Func("callee" if i % 2 == 0 else "other"), r2)


def closure_over_two(a: Asm, i: int) -> None:
    a.op(r1, ".make_closure", Func("callee"), i, r0)


def storage(a: Asm, i: int) -> None:
    a.op(r1, ".alloc_storage", VM, Shape((96,)), 0, UINT8, "global")


@pytest.mark.parametrize("make", [pair, cell, closure, closure_over_two, storage])
def test_nobody_else_holds_it(make: Callable[[Asm, int], None]) -> None:
    seen = []
    machine(repeated(make), see=lambda x: seen.append(id(x)))["main"]("x")
    assert len(set(seen)) == 1


@pytest.mark.parametrize("make", [pair, cell, closure, closure_over_two, storage])
def test_somebody_else_holds_it(make: Callable[[Asm, int], None]) -> None:
    seen: list[Any] = []
    machine(repeated(make), see=seen.append)["main"]("x")
    assert len({id(x) for x in seen}) == 3


def test_tuples_that_are_held_do_not_change() -> None:
    seen: list[Any] = []
    found = machine(repeated(pair), see=seen.append)["main"]("x")
    assert seen == [(0, "x"), (1, "x"), (2, "x")]
    assert found == (2, "x")


def test_values_of_data_types_that_are_held_do_not_change() -> None:
    seen: list[Any] = []
    found = machine(repeated(cell), see=seen.append)["main"]("x")
    assert seen == [Adt(f"List.Cons{i % 2}", i, ("x", i)) for i in range(3)]
    assert found == seen[2]


def test_a_value_of_a_data_type_does_not_contain_itself() -> None:
    make = "relaxvm.builtin.make_adt"

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r1, make, "C", 0, 1, r0)
            a.op(r1, make, "C", 1, r1, 2)
            a.op(r1, make, "D", 2, 3, r1)
            a.ret(r1)

    given = Adt("C", 5, ("x", 7))
    inner = Adt("C", 1, (Adt("C", 0, (1, given)), 2))
    assert machine(emit)["main"](given) == Adt("D", 2, (3, inner))
    assert given.fields == ("x", 7)


def test_a_value_of_a_data_type_of_the_caller_does_not_change() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r0, "relaxvm.builtin.make_adt", "C", 1, 2)
            a.ret(r0)

    given = Adt("C", 0, (1,))
    vm = machine(emit)
    assert vm["main"](given) == Adt("C", 1, (2,))
    assert given == Adt("C", 0, (1,))
    held = [vm["main"](Adt("C", 0, (i,))) for i in range(3)]
    assert len({id(x) for x in held}) == 3


def test_a_tuple_of_the_caller_does_not_change() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r0, ".make_tuple", 1, 2)
            a.ret(r0)

    given = (3, 4)
    vm = machine(emit)
    assert vm["main"](given) == (1, 2)
    assert given == (3, 4)
    assert vm["main"]((5, [6])) == (1, 2)


def test_values_in_a_tuple_do_not_change() -> None:
    """The tuple that is in another one is not only in the register."""

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r1, ".make_tuple", 1, r0)
            a.op(r2, ".make_tuple", r1, r1)
            a.op(r1, ".make_tuple", 2, r0)
            a.op(r3, ".make_tuple", r2, r1)
            a.ret(r3)

    assert machine(emit)["main"]("x") == (((1, "x"), (1, "x")), (2, "x"))


def test_a_tuple_does_not_contain_itself() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 1):
            a.op(r1, ".make_tuple", 1, r0)
            a.op(r1, ".make_tuple", r1, 2)
            a.op(r1, ".make_tuple", 3, r1)
            a.ret(r1)

    assert machine(emit)["main"]("x") == (3, ((1, "x"), 2))


def test_items_that_move_within_a_tuple() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 2):
            a.op(r2, ".make_tuple", r0, r1)
            for _ in range(3):
                a.op(r3, ".tuple_getitem", r2, 0)
                a.op(Reg(4), ".tuple_getitem", r2, 1)
                a.op(r2, ".make_tuple", Reg(4), r3)
            a.ret(r2)

    assert machine(emit)["main"]([1], [2]) == ((2,), (1,))


def test_a_tuple_of_another_size() -> None:
    def emit(a: Asm) -> None:
        with a.func("main", 1):
            for count in (2, 3, 0, 0, 1):
                a.op(r1, ".make_tuple", *[r0] * count)
                a.op(None, "test.see", r1)
            a.ret(r1)

    seen: list[Any] = []
    machine(emit, see=lambda x: seen.append(len(x)))["main"]("x")
    assert seen == [2, 3, 0, 0, 1]


def test_the_collector_tracks_what_can_be_in_a_cycle() -> None:
    """It has stopped tracking a tuple of ints, which then gets a closure."""

    def emit(a: Asm) -> None:
        with a.func("callee", 1):
            a.ret(r0)
        with a.func("main"):
            a.op(r2, ".make_closure", Func("callee"), 1)
            a.op(r1, ".make_tuple", 1, 2)
            a.op(None, "test.see", r1)
            a.op(r1, ".make_tuple", 1, r2)
            a.op(None, "test.see", r1)
            a.ret(r1)

    seen = []

    def see(x: Any) -> None:
        gc.collect()
        seen.append((id(x), gc.is_tracked(x)))

    machine(emit, see=see)["main"]()
    assert [tracked for _, tracked in seen] == [False, True]
    assert seen[0][0] == seen[1][0]


def test_hashes_are_not_remembered() -> None:
    seen = []

    def see(x: Any) -> None:
        seen.append(hash(x) == hash((x[0], x[1])))

    machine(repeated(pair), see=see)["main"]("x")
    assert seen == [True] * 3


def test_a_destructor_runs_the_machine() -> None:
    """The item that a tuple loses runs the same function, and the collector."""
    found = []

    class Item:
        def __del__(self) -> None:
            gc.collect()
            found.append(vm["main"](None))

    def emit(a: Asm) -> None:
        with a.func("main", 1):
            for _ in range(2):
                a.op(r2, "test.item", r0)
                a.op(r1, ".make_tuple", r2, "mark")
                a.op(r2, ".null_value")
            a.op(r1, ".make_tuple", r0, "mark")
            a.ret(r1)

    vm = machine(emit, item=lambda x: None if x is None else Item())
    for _ in range(3):
        assert vm["main"](5) == (5, "mark")
    assert found == [(None, "mark")] * 6


def test_closures_that_are_held_do_not_change() -> None:
    seen: list[Any] = []
    machine(repeated(closure), see=seen.append)["main"]("x")
    assert [c.captured for c in seen] == [(0,), (1,), (2,)]
    assert [c.func.name for c in seen] == ["callee", "other", "callee"]
    assert [c("y") for c in seen] == [("y", 0), (1, "y"), ("y", 2)]


@pytest.mark.parametrize("make", [closure, closure_over_two])
def test_a_closure_is_all_new(make: Callable[[Asm, int], None]) -> None:
    """Also the function and the values that somebody has asked it for."""
    seen = []
    machine(repeated(make), see=lambda x: seen.append((x.func.name, x.captured)))["main"]("x")
    if make is closure:
        assert seen == [("callee", (0,)), ("other", (1,)), ("callee", (2,))]
    else:
        assert seen == [("callee", (i, "x")) for i in range(3)]


def test_a_closure_does_not_contain_itself() -> None:
    def emit(a: Asm) -> None:
        with a.func("callee", 1):
            a.ret(r0)
        with a.func("main", 1):
            a.op(r1, ".make_closure", Func("callee"), r0)
            a.op(r1, ".make_closure", Func("callee"), r1)
            a.op(r1, ".make_closure", Func("callee"), r1)
            a.ret(r1)

    found = machine(emit)["main"]("x")
    assert found.captured[0].captured[0].captured == ("x",)


def test_a_closure_of_another_machine() -> None:
    def emit(a: Asm) -> None:
        with a.func("callee", 1):
            a.ret(r0)
        with a.func("main", 1):
            a.op(r0, "test.make")
            a.op(r0, ".make_closure", Func("callee"), 7)
            a.ret(r0)

    other = machine(repeated(closure), see=lambda x: None)
    vm = machine(emit, make=lambda: Closure(other["callee"], [1]))
    assert vm["main"](None)() == 7


def test_a_function_as_a_value() -> None:
    """`make_closure` of a function that is not known when the code is translated."""

    def emit(a: Asm) -> None:
        with a.func("callee", 2):
            a.op(r0, ".make_tuple", r0, r1)
            a.ret(r0)
        with a.func("main", 1):
            for i in range(3):
                a.op(r1, ".make_closure", r0, i)
                a.op(None, "test.see", r1)
            a.ret(r1)

    seen = []
    vm = machine(emit, see=lambda x: seen.append((id(x), x("y"))))
    vm["main"](vm["callee"])
    assert [value for _, value in seen] == [("y", 0), ("y", 1), ("y", 2)]
    assert len({number for number, _ in seen}) == 1


def test_storages_count() -> None:
    vm = machine(repeated(storage), see=lambda x: None)
    vm["main"](1)
    stats = vm.memory_stats()
    assert (stats.allocations, stats.peak_bytes) == (3, 96)


def test_storages_of_the_system_are_zeroed() -> None:
    seen: list[int] = []
    asm = Asm()
    repeated(storage)(asm)

    def see(storage: Any) -> None:
        array = storage.view(0, (96,), UINT8)
        seen.append(int(array.max()))
        array.fill(7)

    VirtualMachine(asm.get(), functions={"test.see": see}, memory_cfg="naive")["main"](1)
    assert seen == [0, 0, 0]


def arrays(a: Asm, i: int) -> None:
    if i == 0:
        a.op(r2, ".alloc_storage", VM, Shape((192,)), 0, UINT8, "global")
    shape = Shape((2, 3)) if i < 2 else Shape((3, 4))
    a.op(r1, ".alloc_tensor", r2, 64 * i, shape, np.dtype("float32"))


def test_arrays_that_nobody_else_holds() -> None:
    seen = []
    machine(
        repeated(arrays),
        see=lambda x: seen.append((id(x), x.shape, x.strides, x.flags.f_contiguous)),
    )["main"]("x")
    assert [rest for _, *rest in seen] == [
        [(2, 3), (12, 4), False], [(2, 3), (12, 4), False], [(3, 4), (16, 4), False]]  # fmt: skip
    assert len({number for number, *_ in seen}) == 1


@pytest.mark.parametrize("hold", [lambda x: x, lambda x: x[1:], weakref.ref, memoryview])
def test_arrays_that_somebody_else_holds(hold: Callable[[Any], Any]) -> None:
    held: list[Any] = []
    seen: list[Any] = []

    def see(x: np.ndarray) -> None:
        x.fill(len(seen) + 1)
        held.append(hold(x))
        seen.append(x.ctypes.data)

    found = machine(repeated(arrays), see=see)["main"]("x")
    assert [address - seen[0] for address in seen] == [0, 64, 128]
    assert found.ctypes.data == seen[2]
    assert found.tolist() == [[3.0] * 4] * 3
    if hold is not weakref.ref:
        assert [np.asarray(x).max() for x in held] == [1, 2, 3]
        assert np.asarray(held[0]).ctypes.data - seen[0] in (0, 12)
    else:
        assert [reference() is found for reference in held] == [False, False, True]


def test_limits_of_memory() -> None:
    asm = Asm()
    repeated(storage, 100)(asm)
    functions = {"test.see": lambda x: None}
    vm = VirtualMachine(asm.get(), functions=functions, limits=Limits(live_bytes=200))
    assert vm["main"](1).nbytes == 96


def test_instruments_keep_what_they_see() -> None:
    seen: list[Any] = []
    vm = machine(repeated(pair), see=lambda x: None)
    vm.set_instrument(
        lambda func, name, before, ret, *args: seen.append(args) if name == "test.see" else None)
    vm["main"]("x")
    assert [args[0] for args in seen[::2]] == [(0, "x"), (1, "x"), (2, "x")]


# Shapes


def shapes(a: Asm) -> None:
    """``main(x, y, z)`` puts shapes of its arguments into one register, and those of a heap."""
    with a.func("main", 3):
        a.op(r3, ".copy", r2)
        for x in (r0, r0, r1, r0, r1):
            a.op(r3, ".shape_of", x)
            a.op(None, "test.see", r3)
        a.op(r2, ".alloc_shape_heap", VM, 2)
        for x in (r0, r1):
            a.op(None, ".match_shape", x, r2, 2, 1, 0, 1, 1, "")
            for _ in range(2):
                a.op(r3, ".make_shape", r2, 2, 1, 0, 1, 1)
                a.op(None, "test.see", r3)
        a.ret(r3)


class Number(int):
    pass


@pytest.mark.parametrize(
    "before",
    [None, Shape((2, 3)), Shape((4, 5)), (2, 3), Shape((2, 3, 4)), Shape((Number(2), Number(3)))],
    ids=repr,
)
def test_shapes_are_those_of_the_arrays(before: Any) -> None:
    """Whatever is in the register, and in runs with other arrays."""
    seen: list[Any] = []
    vm = machine(shapes, see=lambda x: seen.append(x))
    for _ in range(3):
        for x, y in (((2, 3), (4, 5)), ((4, 5), (2, 3)), ((0, 2**40), (1, 1))):
            seen.clear()
            arrays = (np.broadcast_to(np.int8(1), dims) for dims in (x, y))
            result = vm["main"](*arrays, before)
            assert seen == [x, x, y, x, y, x, x, y, y]
            assert result == y
            assert {type(shape) for shape in seen} == {Shape}
            assert {type(dim) for shape in seen for dim in shape} == {int}
