"""The core: translation, frames and caches must not change results."""

from __future__ import annotations

import copy
import dataclasses
import gc
import pickle
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Closure, ExecBuilder, Limits, Shape, VirtualMachine
from relaxvm._core import Machine, NaiveAllocator, PooledAllocator, VMFunction
from relaxvm.errors import ArityError, InternalError, LimitError

from . import children

FLOAT32 = np.dtype("float32")
Body = Callable[[ExecBuilder], None]


def machine(*functions: tuple[str, int, Body], **options: Any) -> VirtualMachine:
    """A VM with functions, given as (name, number of inputs, body)."""
    b = ExecBuilder()
    for name, num_inputs, body in functions:
        b.declare_function(name, 1)
        with b.function(name, num_inputs=num_inputs):
            body(b)
    return VirtualMachine(b.get(), **options)


@pytest.fixture(params=[True, False], ids=["optimized", "plain"])
def optimize(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# Registers and jumps


def test_a_register_that_nothing_wrote_reads_as_none(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_if(b.r(0), 2)
        b.emit_call("vm.builtin.copy", [b.imm(1)], dst=b.r(1))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.void_arg()], dst=b.r(2))
        b.emit_ret(b.r(2))

    vm = machine(("main", 1, body), optimize=optimize)
    assert vm.main(0) == (None, None)
    assert vm.main(1) == (1, None)


def test_the_vm_register_is_the_vm(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.copy", [b.vm_state()], dst=b.r(0))
        b.emit_ret(b.r(0))

    vm = machine(("main", 0, body), optimize=optimize)
    assert vm.main() is vm


@pytest.mark.parametrize(
    ("condition", "taken"),
    [(True, True), (False, False), (7, True), (0, False), (-1, True), (1 << 80, True),
     (np.bool_(True), True), (np.bool_(False), False), (np.int16(3), True)],
)  # fmt: skip
def test_if_on_integers(condition: Any, taken: bool, optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("test.give", [], dst=b.r(0))
        b.emit_if(b.r(0), 3)
        b.emit_call("vm.builtin.copy", [b.imm(1)], dst=b.r(1))
        b.emit_ret(b.r(1))
        b.emit_call("vm.builtin.copy", [b.imm(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    vm = machine(("main", 0, body), optimize=optimize, functions={"test.give": lambda: condition})
    assert vm.main() == taken


@pytest.mark.parametrize("condition", [None, 1.0, "yes", (1,), np.array(True), np.float32(1)])
def test_if_on_other_values_is_a_type_error(condition: Any, optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("test.give", [], dst=b.r(0))
        b.emit_if(b.r(0), 2)
        b.emit_ret(b.r(0))
        b.emit_ret(b.r(0))

    vm = machine(("main", 0, body), optimize=optimize, functions={"test.give": lambda: condition})
    with pytest.raises(TypeError, match=r"if: .*read_if_cond"):
        vm.main()


@pytest.mark.parametrize("start", range(4))
def test_jumps_into_a_fused_run(start: int, optimize: bool) -> None:
    """A jump to each instruction of a group that the translator fuses."""

    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.alloc_storage",
                    [b.vm_state(), (6,), b.imm(0), FLOAT32, b.convert_constant("global")],
                    dst=b.r(1))  # fmt: skip
        if start:
            b.emit_goto(start)
        b.emit_call("vm.builtin.alloc_storage",
                    [b.vm_state(), (12,), b.imm(0), FLOAT32, b.convert_constant("global")],
                    dst=b.r(1))  # fmt: skip
        b.emit_call("vm.builtin.alloc_tensor", [b.r(1), b.imm(0), (2, 3), FLOAT32], dst=b.r(2))
        b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))

    vm = machine(("main", 0, body), optimize=optimize)
    for _ in range(3):
        storage, tensor = vm.main()
        assert (storage is None) == (start < 4)
        assert (tensor is None) == (start > 2)
        if tensor is not None:
            assert tensor.shape == (2, 3)


def test_a_loop_of_gotos_alone_can_be_cancelled(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_goto(2)
        b.emit_ret(b.r(0))
        b.emit_goto(1)
        b.emit_goto(-3)

    vm = machine(("main", 1, body), optimize=optimize, limits=Limits(wall_time=0.05))
    with pytest.raises(LimitError, match="wall_time"):
        vm.main(1)


# Frames


def recursion(b: ExecBuilder) -> None:
    """down(n): n frames, through all of which the result is returned."""
    done = b.label()
    b.emit_if(b.r(0), done)
    b.emit_call("test.minus_one", [b.r(0)], dst=b.r(1))
    b.emit_call("down", [b.r(1)], dst=b.r(2))
    b.emit_call("test.plus_one", [b.r(2)], dst=b.r(3))
    b.emit_ret(b.r(3))
    b.bind(done)
    b.emit_ret(b.r(0))


STEPS = {"test.minus_one": lambda n: n - 1, "test.plus_one": lambda n: n + 1}


def test_deep_recursion_is_frames_on_the_heap() -> None:
    vm = machine(("down", 1, recursion), functions=STEPS)
    assert vm.down(9_998) == 9_998
    with pytest.raises(LimitError, match=r"down: calls are nested deeper than 10000 frames"):
        vm.down(10_000)
    assert vm.down(3) == 3


def test_a_frame_larger_than_a_chunk(optimize: bool) -> None:
    def wide(b: ExecBuilder) -> None:
        for i in range(5000):
            b.emit_call("vm.builtin.copy", [b.r(i)], dst=b.r(i + 1))
        b.emit_ret(b.r(5000))

    def main(b: ExecBuilder) -> None:
        for _ in range(3):
            b.emit_call("wide", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))

    vm = machine(("wide", 1, wide), ("main", 1, main), optimize=optimize)
    x = np.zeros(2)
    assert vm.main(x) is x


def test_frames_are_bounded_in_bytes() -> None:
    def wide(b: ExecBuilder) -> None:
        b.emit_call("wide", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    b = ExecBuilder()
    with b.function("wide", num_inputs=1):
        wide(b)
    ex = b.get()
    info = ex.functions[0]
    swollen = relaxvm.VMExecutable(
        [relaxvm.executable.FunctionInfo(info.kind, "wide", 0, 2, 1, 1_000_000, ("x",))],
        ex.constants, ex.instr_offset, ex.instr_data,
    )  # fmt: skip
    vm = VirtualMachine(swollen, optimize=False)  # all registers that it says it has
    with pytest.raises(LimitError, match="need more than 512 MiB"):
        vm.wide(1)


def test_registers_are_cleared_when_a_run_ends(optimize: bool) -> None:
    class Box:
        pass

    def body(b: ExecBuilder) -> None:
        b.emit_call("test.box", [], dst=b.r(1))
        b.emit_call("test.box", [])
        b.emit_call("test.maybe_fail", [b.r(0)])
        b.emit_ret(b.r(0))

    boxes: list[weakref.ref[Box]] = []

    def box() -> Box:
        made = Box()
        boxes.append(weakref.ref(made))
        return made

    def maybe_fail(fail: bool) -> None:
        assert boxes[-2]() is not None
        assert boxes[-1]() is None, "a discarded result is still referenced"
        if fail:
            raise KeyError("on request")

    vm = machine(("main", 1, body), optimize=optimize,
                 functions={"test.box": box, "test.maybe_fail": maybe_fail})  # fmt: skip
    vm.main(False)
    with pytest.raises(KeyError, match="on request"):
        vm.main(True)
    gc.collect()
    assert [ref() for ref in boxes] == [None] * 4


def test_a_destructor_may_run_the_vm(optimize: bool) -> None:
    class Caller:
        def __del__(self) -> None:
            results.append(vm.identity(5))

    def body(b: ExecBuilder) -> None:
        b.emit_call("test.caller", [], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(0)], dst=b.r(1))
        b.emit_call("test.caller", [], dst=b.r(2))
        b.emit_ret(b.r(1))

    results: list[int] = []
    vm = machine(
        ("identity", 1, lambda b: b.emit_ret(b.r(0))), ("main", 1, body),
        optimize=optimize, functions={"test.caller": Caller},
    )  # fmt: skip
    assert vm.main(1) == 1
    assert results == [5, 5]


# Closures


def test_a_closure_of_another_vm(optimize: bool) -> None:
    def make(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.make_closure", [b.f("pair"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    def pair(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def call(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    first = machine(("pair", 2, pair), ("make", 1, make), optimize=optimize)
    second = machine(("call", 2, call), ("other", 1, lambda b: b.emit_ret(b.r(0))),
                     optimize=optimize)  # fmt: skip
    closure = first.make("captured")
    assert isinstance(closure, Closure)
    assert closure.captured == ("captured",)
    assert second.call(closure, 1) == (1, "captured")
    assert closure(2) == (2, "captured")
    with pytest.raises(ArityError, match="pair"):
        closure()


# Arrays that allocation sites reuse


def allocating(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.alloc_storage",
                [b.vm_state(), (6,), b.imm(0), FLOAT32, b.convert_constant("global")],
                dst=b.r(0))  # fmt: skip
    b.emit_call("vm.builtin.alloc_tensor", [b.r(0), b.imm(0), (2, 3), FLOAT32], dst=b.r(1))
    b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
    b.emit_ret(b.r(1))


def heap(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.alloc_shape_heap", [b.vm_state(), b.imm(4)], dst=b.r(0))
    b.emit_ret(b.r(0))


@pytest.fixture(params=[allocating, heap], ids=["tensor", "heap"])
def allocate(request: pytest.FixtureRequest) -> Callable[[], np.ndarray[Any, Any]]:
    vm = machine(("main", 0, request.param))
    return vm["main"]


@pytest.mark.parametrize(
    "keep",
    [
        lambda a: a,
        lambda a: a[1:],
        lambda a: a.reshape(-1)[::2],
        lambda a: a.T,
        memoryview,
        np.from_dlpack,
        lambda a: a.view("uint8"),
        lambda a: np.frombuffer(a, "uint8"),
        lambda a: a.flat,
        lambda a: [a.__array_interface__, a],
    ],
    ids=["array", "slice", "strided", "transposed", "memoryview", "dlpack", "other dtype",
         "buffer", "iterator", "interface"],
)  # fmt: skip
def test_memory_in_use_is_not_reused(
    allocate: Callable[[], Any], keep: Callable[[Any], Any]
) -> None:
    kept = [keep(allocate()) for _ in range(20)]
    arrays = [allocate() for _ in range(20)]
    starts = {a.ctypes.data for a in arrays}
    assert len(starts) == 20
    for a in arrays:
        a[...] = 7
    again = allocate()
    assert again.ctypes.data not in starts
    del kept


def test_memory_with_weak_references_is_not_reused(allocate: Callable[[], Any]) -> None:
    gone: list[bool] = []
    array = allocate()
    ref = weakref.ref(array, lambda _: gone.append(True))
    start = array.ctypes.data
    del array
    held = ref()
    if held is not None:  # the site still holds it
        del held
        assert allocate().ctypes.data != start or ref() is None


def test_a_modified_array_is_not_reused(allocate: Callable[[], Any]) -> None:
    first = allocate()
    shape, dtype = first.shape, first.dtype
    for change in (
        lambda a: setattr(a, "shape", (a.size, 1)),
        lambda a: setattr(a, "dtype", np.dtype("uint8")),
        lambda a: a.setflags(write=False),
    ):
        changed = allocate()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            change(changed)
        del changed
        fresh = allocate()
        assert fresh.shape == shape
        assert fresh.dtype == dtype
        assert fresh.flags.writeable
        del fresh


def test_an_unreferenced_array_is_reused(allocate: Callable[[], Any]) -> None:
    starts = set()
    for _ in range(50):
        starts.add(allocate().ctypes.data)
    assert len(starts) == 1


def test_a_shape_heap_starts_at_zero(optimize: bool) -> None:
    vm = machine(("main", 0, heap), optimize=optimize)
    vm.main()[...] = 9
    assert vm.main().tolist() == [0, 0, 0, 0]


def test_trim_frees_idle_arrays() -> None:
    vm = machine(("main", 0, allocating))
    held = vm.main()
    held[...] = 3
    vm.trim()
    assert vm.memory_stats().live_bytes == 24
    del held
    vm.main()
    vm.trim()
    assert vm.memory_stats().live_bytes == 0
    assert vm.memory_stats().cached_bytes == 0


def test_shapes_of_a_site_follow_the_tensor() -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.shape_of", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    vm = machine(("main", 1, body))
    for shape in [(2, 3), (2, 3), (3, 2), (), (6,), (0, 4), (1,) * 8, (1,) * 9, (2, 3)]:
        found = vm.main(np.zeros(shape))
        assert type(found) is Shape
        assert found == shape


# Limits and hooks


def test_fuel_counts_every_instruction(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        again, done = b.label(), b.label()
        b.bind(again)
        b.emit_if(b.r(0), done)
        b.emit_call("test.minus_one", [b.r(0)], dst=b.r(0))
        b.emit_goto(again)
        b.bind(done)
        b.emit_ret(b.r(0))

    def run(n: int, fuel: int) -> Any:
        vm = machine(("main", 1, body), optimize=optimize, functions=STEPS,
                     limits=Limits(fuel=fuel))  # fmt: skip
        return vm.main(n)

    assert run(10, 10 * 3 + 2) == 0
    with pytest.raises(LimitError, match=r"more than 31 instructions \(limit fuel\)"):
        run(10, 31)


def test_fuel_is_shared_with_runs_inside_a_run() -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("test.again", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    def again(n: int) -> int:
        return n if n == 0 else vm.main(n - 1)

    vm = machine(("main", 1, body), functions={"test.again": again}, limits=Limits(fuel=20))
    assert vm.main(9) == 0
    with pytest.raises(LimitError, match="fuel"):
        vm.main(10)
    assert vm.main(9) == 0


def test_a_hook_sees_what_is_otherwise_fused() -> None:
    calls: list[tuple[str, bool]] = []

    def watch(func: Any, name: str, before: bool, ret: Any, *args: Any) -> None:
        calls.append((name.removeprefix("vm.builtin."), before))

    vm = machine(("main", 0, allocating))
    vm.set_instrument(watch)
    assert vm.main().shape == (2, 3)
    names = ["alloc_storage", "alloc_tensor", "null_value"]
    assert calls == [(name, before) for name in names for before in (True, False)]
    vm.set_instrument(None)
    calls.clear()
    vm.main()
    assert calls == []


def test_closures_do_not_recurse_in_c_under_a_hook() -> None:
    def body(b: ExecBuilder) -> None:
        done = b.label()
        b.emit_if(b.r(0), done)
        b.emit_call("test.minus_one", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.make_closure", [b.f("main")], dst=b.r(2))
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(2), b.r(1)], dst=b.r(3))
        b.emit_ret(b.r(3))
        b.bind(done)
        b.emit_ret(b.r(0))

    vm = machine(("main", 1, body), functions=STEPS)
    assert vm.main(5000) == 0
    count = 0

    def watch(*args: Any) -> None:
        nonlocal count
        count += 1

    vm.set_instrument(watch)
    assert vm.main(5000) == 0
    assert count == 5000 * 3 * 2


# Values from Python


def resetting(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.tuple_reset_item", [b.r(0), b.imm(0)])
    b.emit_ret(b.r(0))


def test_a_program_resets_items_of_its_own_tuples_only(optimize: bool) -> None:
    def kernel_result(b: ExecBuilder) -> None:
        b.emit_call("test.give", [], dst=b.r(0))
        b.emit_call("vm.builtin.tuple_reset_item", [b.r(0), b.imm(0)])
        b.emit_ret(b.r(0))

    def nested(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.tuple_getitem", [b.r(0), b.imm(1)], dst=b.r(1))
        b.emit_call("vm.builtin.tuple_reset_item", [b.r(1), b.imm(0)])
        b.emit_ret(b.r(0))

    kept = (1, (2, 3))
    vm = machine(
        ("main", 1, resetting), ("kernel_result", 0, kernel_result), ("nested", 1, nested),
        optimize=optimize, functions={"test.give": lambda: kept},
    )  # fmt: skip
    assert vm.main(kept) == (None, (2, 3))
    assert vm.nested(kept) == (1, (None, 3))
    assert vm.kernel_result() == (None, (2, 3))
    assert Closure(vm.functions["main"], [kept])() == (None, (2, 3))
    assert kept == (1, (2, 3))


def test_a_tuple_that_contains_itself_many_times(optimize: bool) -> None:
    def give(b: ExecBuilder) -> None:
        b.emit_call("test.give", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))

    value: Any = [1]
    for _ in range(100):
        value = (value, value)
    for body in (give, resetting):
        vm = machine(("main", 1, body), optimize=optimize, functions={"test.give": lambda x: x})
        found = vm.main(value)
        for _ in range(99):
            found = found[1]
        assert found == ((1,), (1,))


# Objects that cannot be created or copied


def identity(b: ExecBuilder) -> None:
    b.emit_ret(b.r(0))


def test_functions_and_storages_cannot_be_made_empty() -> None:
    for cls in (VMFunction, relaxvm.Storage):
        for make in (lambda cls: cls(), lambda cls: cls.__new__(cls), object.__new__):
            with pytest.raises(TypeError, match=r"taken from a|made by an allocator|is not safe"):
                make(cls)


def test_core_objects_are_neither_copied_nor_pickled() -> None:
    storage = NaiveAllocator().alloc(8)
    for x in (storage, NaiveAllocator(), PooledAllocator(), Machine()):
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda x: pickle.dumps(x, 0)):
            with pytest.raises(TypeError, match="cannot pickle"):
                attempt(x)


def pair(b: ExecBuilder) -> None:
    b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(1)], dst=b.r(2))
    b.emit_ret(b.r(2))


def test_functions_and_closures_are_pickled_with_their_machine() -> None:
    vm = machine(("main", 1, identity), ("pair", 2, pair))
    main, closure, same = pickle.loads(
        pickle.dumps((vm["main"], Closure(vm["pair"], [(1, vm["main"])]), vm))
    )
    assert same is not vm
    assert main == same["main"]
    assert main(3) == 3
    assert closure.func == same["pair"]
    assert closure(5) == (5, (1, main))
    with pytest.raises(IndexError, match="there is no function 99"):
        relaxvm._core.function_of(vm, 99)


def test_copies_of_functions_and_closures_have_the_same_machine() -> None:
    vm = machine(("pair", 2, pair))
    array = np.ones(2)
    closure = Closure(vm["pair"], [array])
    assert copy.copy(closure) is closure
    deep = copy.deepcopy(closure)
    assert deep.func == vm["pair"]
    assert deep.captured[0] is not array
    np.testing.assert_array_equal(deep.captured[0], array)
    assert copy.copy(vm["pair"]) == copy.deepcopy(vm["pair"]) == vm["pair"]


def test_a_function_of_a_machine_with_own_functions_is_not_pickled() -> None:
    vm = machine(("main", 1, identity), functions={"t.own": len})
    for value in (vm["main"], Closure(vm["main"]), Closure(len, [vm["main"]])):
        with pytest.raises(TypeError, match="a VirtualMachine with its own functions"):
            pickle.dumps(value)


def test_a_closure_that_was_never_made_is_not_a_function(optimize: bool) -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(0), b.imm(1)], dst=b.r(1))
        b.emit_ret(b.r(1))

    empty = Closure.__new__(Closure)
    assert empty.captured == ()
    assert repr(empty)
    for call in (empty, Closure(empty), lambda: machine(("main", 1, body)).main(empty)):
        with pytest.raises(TypeError):
            call()


def test_a_closure_does_not_change_while_it_is_called() -> None:
    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.make_tuple", [b.r(i) for i in range(4)], dst=b.r(4))
        b.emit_ret(b.r(4))

    closure = Closure(machine(("main", 4, body))["main"], (1, 2, 3))

    class Meddler:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            with pytest.raises(TypeError, match="does not change"):
                closure.__init__(print, ())  # type: ignore[misc]
            return np.zeros(1)

    assert closure(Meddler())[1:] == (1, 2, 3)
    assert closure.captured == (1, 2, 3)


def test_a_shape_whose_elements_change() -> None:
    class Fickle(tuple[int, ...]):
        def __getitem__(self, i: Any) -> Any:
            return 1 << 20

    assert NaiveAllocator().alloc(4).view(0, Fickle([1]), FLOAT32).shape == (1,)


def test_a_machine_without_code() -> None:
    blank = Machine()
    blank.cancel()
    blank._drop_idle_arrays()
    blank._set_hook(None)
    with pytest.raises(AttributeError):
        blank._function(0)
    with pytest.raises(InternalError, match="closed"):
        blank._set_hook(print)
    vm = machine(("main", 1, identity))
    table = [None] * len(vm.executable.functions)
    with pytest.raises(ValueError, match="callables and names, got 0 and 0"):
        blank._setup(vm.executable, [], [], vm.allocators, Limits())
    with pytest.raises(ValueError, match="an allocator per device"):
        blank._setup(vm.executable, table, table, (), Limits())


# Errors at unusual moments


def test_an_error_of_the_condition_is_raised(optimize: bool) -> None:
    class Odd(int):
        def __bool__(self) -> bool:
            raise KeyError("neither")

    def body(b: ExecBuilder) -> None:
        b.emit_if(b.r(0), 2)
        b.emit_ret(b.r(0))
        b.emit_ret(b.r(0))

    with pytest.raises(KeyError, match="neither") as caught:
        machine(("main", 1, body), optimize=optimize).main(Odd(3))
    assert "in main, pc 0" in "".join(caught.value.__notes__)


def test_an_interrupt_while_an_error_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(LimitError):
        def __init__(self, *args: Any) -> None:
            raise KeyboardInterrupt("just now")

    monkeypatch.setattr("relaxvm._core.LimitError", Slow)
    with pytest.raises(KeyboardInterrupt, match="just now"):
        machine(("down", 1, recursion), functions=STEPS, limits=Limits(call_depth=10)).down(100)


def test_the_first_frame_is_bounded_too() -> None:
    executable = machine(("main", 1, identity)).executable
    huge = [dataclasses.replace(info, register_file_size=1 << 30) for info in executable.functions]
    wide = relaxvm.VMExecutable(
        huge, executable.constants, executable.instr_offset, executable.instr_data)  # fmt: skip
    vm = VirtualMachine(wide, limits=Limits(registers=None), optimize=False)
    with pytest.raises(LimitError, match="need more than 512 MiB"):
        vm.main(1)


def test_a_nested_closure_is_freed_while_an_exception_propagates() -> None:
    """Must be the first such deallocation of the process: Python then looks up a method."""
    code = (
        "from relaxvm import Closure\n"
        "def bad(): raise ValueError('on its way')\n"
        "make = lambda: Closure(Closure(bad))\n"
        "try: make()()\n"
        "except ValueError as error: print(error)\n"
    )
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "on its way\n"


def test_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each allocation of a run fails once: a correct result or a MemoryError, and no leaks."""
    _testcapi = pytest.importorskip("_testcapi")

    def kept(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def body(b: ExecBuilder) -> None:
        b.emit_call("vm.builtin.alloc_storage",
                    [b.vm_state(), (6,), b.imm(0), FLOAT32, b.convert_constant("global")],
                    dst=b.r(1))  # fmt: skip
        b.emit_call("vm.builtin.alloc_tensor", [b.r(1), b.imm(0), (6,), FLOAT32], dst=b.r(2))
        b.emit_call("vm.builtin.shape_of", [b.r(0)], dst=b.r(3))
        b.emit_call("vm.builtin.make_closure", [b.f("kept"), b.r(0)], dst=b.r(4))
        b.emit_call("vm.builtin.make_closure", [b.f("kept"), b.r(0), b.r(2)], dst=b.r(5))
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(4), b.r(2)], dst=b.r(6))
        b.emit_call("vm.builtin.make_tuple", [b.r(3), b.r(5), b.r(6)], dst=b.r(7))
        b.emit_ret(b.r(7))

    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: None)
    vm = machine(("kept", 2, kept), ("main", 1, body))
    x = np.arange(6.0)
    gone = weakref.ref(x)
    failed = 0
    for n in range(40):
        _testcapi.set_nomemory(n, n + 1)
        try:
            vm.main(x)
        except MemoryError:
            failed += 1
        finally:
            _testcapi.remove_mem_hooks()
    assert failed
    assert vm.main(x)[0] == (6,)
    del x
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["match_shape", "check_tensor_info", "check_match"])
def test_an_error_context_known_only_at_run_time(name: str, optimize: bool) -> None:
    """It is checked even if the check that it belongs to passes."""

    def body(b: ExecBuilder) -> None:
        context = [b.r(1)]
        if name != "match_shape":
            b.emit_call("vm.builtin.check_tensor_info", [b.r(0), b.imm(1), *context])
        if name != "check_tensor_info":
            b.emit_call("vm.builtin.match_shape", [b.r(0), b.void_arg(), b.imm(1), b.imm(0),
                                                   b.imm(3), *context])  # fmt: skip
        b.emit_ret(b.r(0))

    vm = machine(("main", 2, body), optimize=optimize)
    x = np.zeros(3)
    assert vm.main(x, "context ") is x
    with pytest.raises(TypeError, match="expected a string"):
        vm.main(x, 7)


def test_data_types_that_are_equal_are_the_same() -> None:
    """An unpickled array has a separate data type object, which the loop accepts."""
    x = pickle.loads(pickle.dumps(np.zeros(2, "float32")))
    assert x.dtype is not np.dtype("float32")
    builder = ExecBuilder()
    dtype = builder.convert_constant(np.dtype("float32"))
    with builder.function("main", num_inputs=1):
        args = [builder.r(0), builder.imm(1), dtype, builder.convert_constant("")]
        builder.emit_call("vm.builtin.check_tensor_info", args)
        builder.emit_ret(builder.r(0))
    vm = VirtualMachine(builder.get())
    assert vm.main(x) is x
    with pytest.raises(ValueError, match="expected a tensor of dtype float32"):
        vm.main(x.astype("int32"))
