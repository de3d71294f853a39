"""Runs that are saved and loaded give what a call gives, bit for bit."""

from __future__ import annotations

import copy
import gc
import io
import signal
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import (
    CancelledError,
    CheckpointWarning,
    FormatError,
    LimitError,
    RelaxVMError,
    SuspendedError,
    UnsavableError,
)
from relaxvm.vm import Run
from relaxvm.vm.saved_runs.layout import HEAD, Head, padding

from . import killed_training
from .corpus import CORPUS, Case, registry
from .hopping import bits, counter, hopped, hopping, outcome, saved
from .relax_generator import generate, packed_functions
from .test_runs import SUMS, X, machine

CASES = [pytest.param(case, id=name) for name, case in CORPUS.items()]


# Wherever a run is suspended, its result is that of a call


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_programs_of_the_corpus(case: Case, optimize: bool) -> None:
    def machine() -> VirtualMachine:
        return VirtualMachine(case.executable, functions=registry(), optimize=optimize)

    for run in case.runs:
        refused: list[str] = []
        expected = outcome(machine()[run.function], run.args())
        got = outcome(hopping(machine(), run.function, machine(), refused=refused), run.args())
        assert got == expected
        # A builtin function of Python is an argument of one of them.
        assert not refused or "builtin_function_or_method" in refused[0]


def test_with_optimizations_and_without_are_the_same_places() -> None:
    for name in ("everything_at_once", "recursion_through_closure", "loop_with_buffers"):
        case = CORPUS[name]
        plain, fast = (
            VirtualMachine(case.executable, functions=registry(), optimize=optimize)
            for optimize in (False, True)
        )
        for run in case.runs:
            expected = outcome(fast[run.function], run.args())
            assert outcome(hopping(plain, run.function, fast), run.args()) == expected


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 10):
        program = generate(seed)
        executable = relaxvm.build(program.module)
        for args in program.inputs[:2]:
            for optimize in (True, False):
                logs: list[list[Any]] = [[], []]
                one, plain = (
                    VirtualMachine(executable, functions=packed_functions(log), optimize=optimize)
                    for log in logs
                )
                other = VirtualMachine(
                    executable, functions=packed_functions(logs[0]), optimize=optimize
                )
                expected = outcome(plain["main"], copy.deepcopy(args))
                got = outcome(hopping(one, "main", other), copy.deepcopy(args))
                assert got == expected, seed
                assert bits(logs[0]) == bits(logs[1]), seed


# What a saved run holds

def pausing(*functions: Any, count: int = 1) -> VirtualMachine:
    """A machine whose main(x0, ...) calls "wait" on its arguments and returns them as a tuple."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=count):
        args = [eb.r(i) for i in range(count)]
        eb.emit_call("wait", args=args)
        eb.emit_call("vm.builtin.make_tuple", args=args, dst=eb.r(count))
        eb.emit_ret(eb.r(count))
    return VirtualMachine(eb.get(), functions={"wait": lambda *_: None})


def through(*values: Any) -> Any:
    """The values after they were saved and loaded in one run."""
    vm = pausing(count=len(values))
    run = vm["main"].start(*values)
    run.step()
    return hopped(run, vm).result()


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 127, 128, -128, -129, 1 << 62, -(1 << 70), 0.0, -0.0,
        float("nan"), float("-inf"), "", "text \u00e9\0", "\ud800", b"", b"\0bytes",
        relaxvm.Shape(()), relaxvm.Shape((3, -1, 1 << 62)), relaxvm.cpu(3),
        np.dtype("float32"), np.dtype(">i2"), np.dtype(object), (), (1, (2.0, "three", ()), None),
        {"a": 1, 2: (3.5,)}, {},
        np.array(2.0, np.float32), np.zeros((0, 3)), np.arange(6).reshape(2, 3).T,
        np.arange(24.0).reshape(2, 3, 4)[::-1, ::2, 1:], np.array(["a", "bc"]), np.array([b"a"]),
        np.arange(4, dtype=">f8"), np.array(["x", "", "\u1234"], object),
        np.array(["x", "y", "z", "u"], object).reshape(2, 2).T, np.array([1 + 2j], np.complex64),
        np.broadcast_to(np.float32(3), (1000, 1000)), np.array([True, False]),
        np.float16([1, 2]), relaxvm.Adt("Nil", 0), relaxvm.Adt("Cons", 1, (1, (2, "x"))),
    ],
    ids=repr,
)  # fmt: skip
def test_values(value: Any) -> None:
    (got,) = through(value)
    assert bits(got) == bits(value)
    assert type(got) is type(value)
    if isinstance(value, np.ndarray) and value.size:
        assert got.strides == value.strides
        assert got.flags.writeable == value.flags.writeable


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4"])
def test_narrow_data_types(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value = np.arange(6).astype(getattr(ml_dtypes, name)).reshape(2, 3)
    got, dtype = through(value, value.dtype)
    assert bits(got) == bits(value)
    assert dtype == value.dtype


def test_one_object_twice_is_one_object() -> None:
    array, pair = np.arange(3.0), (1, "x")
    first, second, (third,), one, two = through(array, array, (array,), pair, pair)
    assert first is second is third
    assert one is two


def test_arrays_that_share_memory() -> None:
    whole = np.arange(10.0)
    a, b, c, d = through(whole[2:8], whole[::-1], whole[4:6].view(np.uint8), whole.copy())
    a[2] = -1.0
    assert b[5] == -1.0
    assert c[:8].view(np.float64)[0] == -1.0
    assert d[4] == 4.0
    assert not np.may_share_memory(a, d)


def test_only_what_is_reached_is_saved() -> None:
    huge = np.zeros(1 << 20)
    vm = pausing()
    assert len(saved(vm["main"].start(huge[10:12]))) < 1000


def test_arrays_keep_their_alignment() -> None:
    memory = np.zeros(65, np.uint8)
    (got,) = through(memory[1:].view(np.uint8))
    start = got.__array_interface__["data"][0]
    assert start % 16 == (memory.__array_interface__["data"][0] + 1) % 16


def test_a_read_only_array_stays_so() -> None:
    array = np.arange(3.0)
    array.flags.writeable = False
    (got,) = through(array)
    with pytest.raises(ValueError, match="read-only"):
        got[0] = 1


def test_strings_that_share_memory() -> None:
    whole = np.array(["a", "b", "c", "d"], object)
    a, b = through(whole.reshape(2, 2), whole[1:3])
    b[0] = "new"
    assert a[0, 1] == "new"


def test_cells_and_lists_that_contain_themselves() -> None:
    cell = relaxvm.Ref()
    cell.value = (1, cell)
    (got,) = through(cell)
    assert got.value[1] is got
    assert got.value[0] == 1


def test_deeply_nested_values() -> None:
    value: Any = None
    chain: Any = relaxvm.Adt("Nil", 0)
    for i in range(20_000):
        value = (value, i)
        chain = relaxvm.Adt("Cons", 1, (i, chain))
    got, _ = through(value, chain)
    depth = 0
    while got is not None:
        got, _ = got
        depth += 1
    assert depth == 20_000


def test_tuples_that_share_parts_are_small() -> None:
    value: Any = ("leaf",)
    for _ in range(64):
        value = (value, value)
    vm = pausing()
    run = vm["main"].start(value)
    run.step()
    assert len(saved(run)) < 4000
    (got,) = hopped(run, vm).result()
    while len(got) == 2:
        assert got[0] is got[1]
        got = got[0]


def test_storages_and_functions_and_closures() -> None:
    eb = ExecBuilder()
    with eb.function("add", num_inputs=2):
        eb.emit_call("plus", args=[eb.r(0), eb.r(1)], dst=eb.r(2))
        eb.emit_ret(eb.r(2))
    with eb.function("main", num_inputs=2):
        eb.emit_call("vm.builtin.alloc_storage", dst=eb.r(2), args=[
            eb.vm_state(), (64,), eb.imm(0), np.dtype("uint8"), eb.convert_constant("global")])
        eb.emit_call("vm.builtin.alloc_tensor", dst=eb.r(3), args=[
            eb.r(2), eb.imm(16), (4,), np.dtype("float32")])
        eb.emit_call("vm.builtin.make_closure", args=[eb.f("add"), eb.r(3)], dst=eb.r(4))
        eb.emit_call("vm.builtin.make_tuple", dst=eb.r(5), args=[
            eb.r(2), eb.r(3), eb.r(4), eb.f("plus"), eb.f("add")])
        eb.emit_ret(eb.r(5))
    plus = np.add
    vm = VirtualMachine(eb.get(), functions={"plus": lambda x, y: plus(x, y)})
    run = vm["main"].start(1, 2)
    while run.frames[0].instruction.split()[0] != "ret":
        run.step()
    storage, tensor, closure, packed, own = hopped(run, vm).result()
    assert storage.nbytes == 64
    whole = storage.view(0, (16,), np.dtype("float32"))
    tensor[:] = 7.0
    assert whole[4:8].tolist() == [7.0] * 4
    assert closure.captured[0] is tensor
    assert closure(np.float32(1)).tolist() == [8.0] * 4
    assert packed is vm._packed["plus"]
    assert own == vm["add"]


def test_constants_are_not_in_the_file() -> None:
    weights = np.arange(100_000, dtype=np.float32)
    eb = ExecBuilder()
    with eb.function("main", num_inputs=0):
        eb.emit_call("vm.builtin.copy", args=[eb.convert_constant(weights)], dst=eb.r(0))
        eb.emit_call("slice", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_call("vm.builtin.make_tuple", args=[eb.r(0), eb.r(1)], dst=eb.r(2))
        eb.emit_ret(eb.r(2))
    executable = eb.get()
    vm = VirtualMachine(executable, functions={"slice": lambda x: x[5:9]})
    run = vm["main"].start()
    run.step(3)
    assert len(saved(run)) < 1000
    whole, part = hopped(run, vm).result()
    constant = next(c for c in executable.constants if isinstance(c, np.ndarray))
    assert whole is constant
    assert np.shares_memory(part, constant)
    assert part.tolist() == [5, 6, 7, 8]
    assert not part.flags.writeable


def test_state_of_the_machine() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        for dst in (1, 2):
            eb.emit_call("relaxvm.builtin.cache_extend", dst=eb.r(dst), args=[
                eb.vm_state(), eb.convert_constant("kept"), eb.r(0), eb.imm(0)])
        eb.emit_ret(eb.r(2))
    executable = eb.get()
    vm = VirtualMachine(executable)
    run = vm["main"].start(X)
    run.step()
    fresh = VirtualMachine(executable)
    new = hopped(run, fresh)
    assert fresh.state["kept"].tolist() == [1.0, 2.0]
    assert new.result().tolist() == [1.0, 2.0, 1.0, 2.0]
    assert vm.state["kept"].tolist() == [1.0, 2.0]


def test_random_generators() -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("relaxvm.builtin.random_generator", args=[eb.r(0)], dst=eb.r(1))
        for dst in (2, 3):
            eb.emit_call("relaxvm.builtin.random_normal", dst=eb.r(dst), args=[
                eb.r(1), (3,), eb.convert_constant(0.0), eb.convert_constant(1.0),
                eb.convert_constant("float64")])
        eb.emit_call("vm.builtin.make_tuple", args=[eb.r(2), eb.r(3)], dst=eb.r(4))
        eb.emit_ret(eb.r(4))
    one, other = VirtualMachine(eb.get()), VirtualMachine(eb.get())
    assert outcome(hopping(one, "main", other), [7]) == bits(one["main"](7))


# Going on


def test_a_run_that_has_not_begun_and_one_in_a_call() -> None:
    vm = machine()
    run = vm["main"].start(X)
    assert hopped(run, vm).position == 0
    run.resume(until="twice")
    run.step()
    new = hopped(run, machine())
    assert [frame.function for frame in new.frames] == ["twice", "main"]
    assert bits(new.result()) == bits(vm["main"](X))
    assert bits(run.result()) == bits(new.result())


def test_deep_calls() -> None:
    eb = ExecBuilder()
    with eb.function("down", num_inputs=1):
        eb.emit_call("positive", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_if(eb.r(1), 5)
        eb.emit_call("minus_one", args=[eb.r(0)], dst=eb.r(2))
        eb.emit_call("down", args=[eb.r(2)], dst=eb.r(3))
        eb.emit_call("plus_one", args=[eb.r(3)], dst=eb.r(4))
        eb.emit_ret(eb.r(4))
        eb.emit_ret(eb.r(0))
    functions = {
        "positive": lambda n: n > 0, "minus_one": lambda n: n - 1, "plus_one": lambda n: n + 1
    }
    vm = VirtualMachine(eb.get(), functions=functions)
    run = vm["down"].start(3000)
    run.resume(fuel=9000)
    assert run.depth > 2000
    assert hopped(run, vm).result() == 3000
    with pytest.raises(LimitError, match="call_depth"):
        relaxvm.load_run(
            saved(run), vm.executable, functions=functions, limits=Limits(call_depth=100)
        )


def test_what_is_used_of_limits_counts() -> None:
    vm = machine(limits=Limits(fuel=1000, wall_time=100.0))
    run = vm["main"].start(X)
    run.resume(fuel=10)
    left = run.fuel_left
    assert left is not None
    assert left < 1000
    new = hopped(run, vm)
    assert new.fuel_left == left
    tight = relaxvm.load_run(saved(run), vm.executable, limits=Limits(fuel=12))
    with pytest.raises(LimitError, match="fuel"):
        tight.result()
    free = relaxvm.load_run(saved(run), vm.executable)
    assert free.fuel_left is None


def test_memory_of_a_loaded_run_counts() -> None:
    vm = pausing()
    data = saved(vm["main"].start(np.zeros(100_000)))
    with pytest.raises(LimitError, match="alloc_bytes"):
        relaxvm.load_run(data, vm.executable, functions={"wait": print},
                         limits=Limits(alloc_bytes=1000))
    with pytest.raises(LimitError, match="file_bytes"):
        relaxvm.load_run(data, vm.executable, functions={"wait": print},
                         limits=Limits(file_bytes=1000))
    run = relaxvm.load_run(data, vm.executable, functions={"wait": print})
    assert run.vm.memory_stats().live_bytes >= 800_000
    del run
    gc.collect()


def test_an_instrument_sees_the_rest() -> None:
    vm = machine()
    run = vm["main"].start(X)
    run.resume(fuel=8)
    seen: list[str] = []
    vm.set_instrument(lambda func, name, before, ret, *args: seen.append(name))
    new = hopped(run, vm)
    assert bits(new.result()) == bits(run.result())
    assert seen


def test_a_path_and_a_file(tmp_path: Path) -> None:
    vm = machine()
    run = vm["main"].start(X)
    run.step(5)
    path = tmp_path / "run.ckpt"
    run.save(path)
    assert path.read_bytes() == saved(run)
    expected = bits(vm["main"](X))
    vm.executable.save(tmp_path / "program.vmexec")
    for program in (vm, vm.executable, tmp_path / "program.vmexec"):
        for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes())):
            assert bits(relaxvm.load_run(source, program).result()) == expected
    with path.open("rb") as file:
        assert bits(relaxvm.load_run(file, vm).result()) == expected
    assert list(tmp_path.glob(".relaxvm-*")) == []


# Refusals


class Opaque:
    pass


def test_what_cannot_be_saved_is_named() -> None:
    vm = pausing(count=2)
    run = vm["main"].start(1, (2, (Opaque(),)))
    run.step()
    with pytest.raises(UnsavableError, match=(
        r"main, pc 1, register %1: the first part of tuple, part 1 of tuple: an object that "
        r"only this process has: .*Opaque.* cannot be saved; pause the run where"
    )) as caught:  # fmt: skip
        run.save(io.BytesIO())
    assert (caught.value.function, caught.value.pc, caught.value.register) == ("main", 1, 1)
    run = vm["main"].start(1, max)
    with pytest.raises(UnsavableError, match=r"functions=\{name: function\}"):
        run.save(io.BytesIO())
    for value, text in (
        (np.array([Opaque()], object), "an array with an object of the class Opaque"),
        (np.zeros(2, "f4,i4"), "a tensor of the data type"),
        ({(1, 2): 3}, "a map with a key of the class tuple"),
    ):
        with pytest.raises(UnsavableError, match=text):
            vm["main"].start(1, value).save(io.BytesIO())
    vm.state["odd"] = Opaque()  # type: ignore[assignment]
    with pytest.raises(UnsavableError, match=r"vm\.state\['odd'\]"):
        vm["main"].start(1, 2).save(io.BytesIO())


def test_a_function_of_another_machine_is_refused() -> None:
    vm = pausing()
    with pytest.raises(UnsavableError, match="register %0"):
        vm["main"].start(machine()["twice"]).save(io.BytesIO())


def test_runs_that_are_not_paused() -> None:
    vm = machine()
    run = vm["main"].start(X)
    run.result()
    with pytest.raises(RelaxVMError, match="has ended"):
        run.save(io.BytesIO())
    with pytest.raises(TypeError, match="expected a path or a file"):
        vm["main"].start(X).save(3)  # type: ignore[arg-type]

    caught: list[str] = []

    def inside(_: Any) -> None:
        for call in (lambda: inner.save(io.BytesIO()), inner.suspend):
            with pytest.raises(RelaxVMError) as error:
                call()
            caught.append(str(error.value))

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("inside", args=[eb.r(0)])
        eb.emit_ret(eb.r(0))
    inner = VirtualMachine(eb.get(), functions={"inside": inside})["main"].start(1)
    assert inner.result() == 1
    assert "a Python function on the stack cannot be saved" in caught[0]
    assert "suspend(wait=False)" in caught[1]


def test_another_executable() -> None:
    run = machine()["main"].start(X)
    other = machine(SUMS.replace("R.sqrt", "R.sin"))
    with pytest.raises(FormatError, match=r"a run of another executable: expected .* got"):
        relaxvm.load_run(saved(run), other)


def test_arguments_of_load_run() -> None:
    vm = machine()
    data = saved(vm["main"].start(X))
    with pytest.raises(TypeError, match="has functions and limits already"):
        relaxvm.load_run(data, vm, limits=Limits())
    with pytest.raises(TypeError, match="expected a path, a file or bytes, got"):
        relaxvm.load_run(3, vm)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="every: expected a checkpoint"):
        relaxvm.load_run(data, vm, every=3)
    with pytest.raises(OSError, match="no-such-file"):
        relaxvm.load_run("no-such-file", vm)


# From outside


def counting(end: int) -> tuple[VirtualMachine, int]:
    """A machine whose main(0) counts to a number, and the number."""
    functions = {"next": lambda n: n + 1, "goes_on": lambda n: n < end}
    return VirtualMachine(counter("next", "goes_on"), functions=functions), end


def started(run: Run, call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that makes a run go on, which it does when this returns; and its results."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not run._is_running and thread.is_alive():
        time.sleep(0.001)
    return thread, results


def test_suspend_from_another_thread() -> None:
    vm, _ = counting(1 << 62)
    run = vm["main"].start(0)
    last = -1
    for call in (run.result, run.resume, lambda: run.resume(until=lambda _: False), run.result):
        thread, results = started(run, call)
        assert run.suspend(60)
        assert not run._is_running
        thread.join()
        assert run.position > last
        last = run.position
        new = hopped(run, vm)
        assert new.position == last
        if call == run.result:
            assert isinstance(results[0], SuspendedError)
            assert "suspended in main at pc" in str(results[0])
    assert run.suspend()  # a run that is paused


def test_suspend_waits_for_a_function() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        inside.set()
        go_on.wait(60)
        return x

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("slow", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    vm = VirtualMachine(eb.get(), functions={"slow": slow})
    run = vm["main"].start(3)
    thread, _ = started(run, run.resume)
    inside.wait(60)
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        run.suspend(0.01)
    assert run.suspend(wait=False)
    go_on.set()
    thread.join()
    assert run.frame is not None
    assert run.frame.pc == 1
    assert hopped(run, vm).result() == 3


def test_suspend_of_a_run_that_ends() -> None:
    vm, end = counting(20_000)
    run = vm["main"].start(0)
    thread, _ = started(run, run.resume)
    while run.suspend(60):
        thread.join()
        thread, _ = started(run, run.resume)
    thread.join()
    assert run.result() == end


# Checkpoints


def test_checkpoints_change_no_result(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    vm, end = counting(200_000)
    run = vm["main"].start(0, checkpoint=path, every=0.002)
    assert run.result() == end
    old = relaxvm.load_run(path, vm)
    assert 0 < old.position < run.position
    assert old.result() == end
    again = relaxvm.load_run(path, vm, checkpoint=path, every=0.01)
    assert again.result() == end


def test_places_to_pause_hold_with_checkpoints(tmp_path: Path) -> None:
    plain, _ = counting(20_000)
    vm, _ = counting(20_000)
    one = plain["main"].start(0)
    other = vm["main"].start(0, checkpoint=str(tmp_path / "run.ckpt"), every=0.003)
    while not one.done:
        for run in (one, other):
            run.resume(fuel=9973)
            if not run.done:
                run.resume(until=3)
        assert one.position == other.position
        assert repr(one.frame) == repr(other.frame)
    assert one.result() == other.result()


def test_a_checkpoint_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "run.ckpt"
    path.parent.mkdir()
    vm, end = counting(200_000)
    with pytest.warns(CheckpointWarning, match="no checkpoint was written"):
        run = vm["main"].start(0, checkpoint=path / "no folder", every=0.002)
        assert run.result() == end
    vm, end = counting(200_000)
    run = vm["main"].start(0)
    run.resume(fuel=10)
    run.save(path)
    before = path.read_bytes()
    run._checkpoints = relaxvm.vm.saved_runs.checkpoints.Checkpoints(path, 0.002)
    vm.state["odd"] = Opaque()  # type: ignore[assignment]
    with pytest.warns(CheckpointWarning, match="Opaque"):
        assert run.result() == end
    assert path.read_bytes() == before


def test_a_run_is_cancelled_during_checkpoints(tmp_path: Path) -> None:
    vm, _ = counting(1 << 62)
    run = vm["main"].start(0, checkpoint=tmp_path / "run.ckpt", every=0.01)
    thread, results = started(run, run.result)
    while not (tmp_path / "run.ckpt").exists():
        time.sleep(0.001)
    run.cancel()
    thread.join()
    assert isinstance(results[0], CancelledError)


@pytest.mark.parametrize("every", [0, -1, float("nan"), "3", True])
def test_every_is_a_time(every: Any) -> None:
    with pytest.raises(ValueError, match="every: expected a number of seconds above 0, got"):
        counting(3)[0]["main"].start(0, checkpoint="run.ckpt", every=every)


def test_checkpoint_arguments() -> None:
    vm, _ = counting(3)
    with pytest.raises(TypeError, match="every: expected a checkpoint"):
        vm["main"].start(0, every=3)
    with pytest.raises(TypeError, match="expected the path of a file"):
        vm["main"].start(0, checkpoint=3)
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1, param_names=["checkpoint"]):
        eb.emit_ret(eb.r(0))
    assert VirtualMachine(eb.get())["main"].start(checkpoint=5).result() == 5



@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL")
def test_a_training_loop_that_is_killed() -> None:
    """``python -m tests.killed_training`` kills 200 times."""
    done, resumed = killed_training.killed(6, 200_000)
    assert done >= 2
    assert resumed >= 1


def test_an_empty_array_that_numpy_does_not_have() -> None:
    vm = pausing()
    data = saved(vm["main"].start(np.zeros((0, 3, 4))))
    shape = np.array([0, 3, 4], "<i8").tobytes()
    assert data.count(shape) == 1
    parts = data[HEAD.size :].replace(shape, np.array([0, 1 << 40, 1 << 30], "<i8").tobytes())
    head = Head(*HEAD.unpack_from(data))
    parts = parts[: head.parts_bytes]
    gap = bytes(padding(HEAD.size + len(parts)))
    data = HEAD.pack(*head._replace(parts_crc=zlib.crc32(parts))) + parts + gap
    with pytest.raises(FormatError, match=r"value 0: the dimensions multiply to more than"):
        relaxvm.load_run(data, vm)


def test_a_run_between_two_parts_of_going_on_is_in_progress() -> None:
    """Another thread cannot save it there: it goes on while the file is written."""
    vm, end = counting(10)
    run = vm["main"].start(0)
    errors: list[Any] = []

    def save() -> None:
        try:
            run.save(io.BytesIO())
        except RelaxVMError as error:
            errors.append(str(error))

    def asks(run: Run) -> bool:
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()
        return run.position >= 3

    run.resume(until=asks)
    assert set(errors) == {"the run is in progress in another thread; suspend() pauses it"}
    assert saved(run)
    assert run.result() == end
