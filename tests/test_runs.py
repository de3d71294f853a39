"""Runs as objects: stepped, paused and resumed they give what a call gives."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import ArityError, CancelledError, LimitError, RelaxVMError
from relaxvm.vm import Run

from .corpus import Case, all_runs, registry
from .corpus import Run as Call
from .oracle import Outcome, assert_same_outcome
from .passes import module

CALLS = [pytest.param(case, run, id=f"{case.name}-{i}") for i, (case, run) in enumerate(all_runs())]


def stepped(vm: VirtualMachine, name: str) -> Callable[..., Any]:
    """A function that runs another one, one instruction after the other."""

    def call(*args: Any) -> Any:
        run = vm[name].start(*args)
        while run.step() is not None:
            pass
        return run.result()

    return call


def resumed(vm: VirtualMachine, name: str) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        run = vm[name].start(*args)
        while run.resume(fuel=7) is not None:
            assert run.frames
        return run.result()

    return call


@pytest.mark.parametrize("ways", [stepped, resumed])
@pytest.mark.parametrize(("case", "run"), CALLS)
def test_results_and_errors_of_a_call(case: Case, run: Call, ways: Any) -> None:
    vm = VirtualMachine(case.executable, functions=registry())
    expected = Outcome.of(vm[run.function], run.args())
    got = Outcome.of(ways(vm, run.function), run.args())
    assert_same_outcome(got, expected)


SUMS = """
@R.function
def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    y = R.add(x, x)
    return y

@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    cls = Module
    a = cls.twice(x)
    b = R.exp(a)
    c = R.sqrt(b)
    return c
"""
X = np.array([1.0, 2.0], np.float32)


def machine(*functions: str, **options: Any) -> VirtualMachine:
    return VirtualMachine(relaxvm.build(module(*(functions or (SUMS,)))), **options)


# Where it pauses


def test_a_run_has_not_begun() -> None:
    run = machine()["main"].start(X)
    assert not run.done
    assert (run.position, run.depth, run.function) == (0, 1, "main")
    assert run.frame is not None
    assert run.frame.pc == run.vm.executable.function("main").start_instr
    assert run.frame.variables["x"] is X
    assert repr(run).startswith("<Run of main, not begun in main at pc ")


def test_step_runs_one_instruction() -> None:
    run = machine()["main"].start(X)
    pcs = []
    while (frame := run.step()) is not None:
        pcs.append((frame.function, frame.pc))
    executable = run.vm.executable
    assert len(pcs) + 1 == len(executable)  # every instruction runs once
    assert [function for function, _ in pcs].count("twice") == sum(
        1 for _ in executable.instructions("twice"))
    assert run.done
    assert run.frame is None
    assert run.frames == ()
    np.testing.assert_array_equal(run.result(), np.sqrt(np.exp(X + X)))


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_step_several(n: int) -> None:
    run = machine()["main"].start(X)
    run.step(n)
    assert run.done or run.position == n


def test_next_goes_over_calls_and_finish_out_of_them() -> None:
    run = machine()["main"].start(X)
    run.resume(until="twice")
    assert [frame.function for frame in run.frames] == ["twice", "main"]
    frame = run.finish()
    assert frame is not None
    assert frame.function == "main"
    functions = set()
    again = machine()["main"].start(X)
    while (frame := again.next()) is not None:
        functions.add(frame.function)
    assert functions == {"main"}
    assert run.finish() is None
    np.testing.assert_array_equal(run.result(), again.result())


def test_until() -> None:
    vm = machine()
    run = vm["main"].start(X)
    frame = run.resume(until="main")
    assert frame is not None
    assert (frame.function, run.position) == ("main", 0)
    frame = run.resume(until="relaxvm.kernel.exp")
    assert frame is not None
    assert "relaxvm.kernel.exp" in frame.instruction
    pc = frame.pc
    frame = run.resume(until=lambda run: "b" in run.frame.variables)
    assert frame is not None
    assert frame.pc > pc
    np.testing.assert_array_equal(frame.variables["b"], np.exp(X + X))
    assert run.resume(until="twice") is None
    second = vm["main"].start(X)
    assert second.resume(until=[pc, "twice"]).function == "twice"
    assert second.resume(until=[pc, "twice"]).pc == pc


def test_until_a_line_and_a_variable() -> None:
    vm = machine()
    run = vm["main"].start(X)
    frame = run.resume(until="c")
    assert frame is not None
    assert frame.location.variable == "c"
    assert frame.line is not None
    assert "b" in frame.variables
    assert "c" not in frame.variables
    other = vm["main"].start(X).resume(until=f":{frame.line}")
    assert other is not None
    assert (other.pc, other.file) == (frame.pc, frame.file)


def test_variables_of_branches() -> None:
    vm = machine("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
    if c:
        left = R.add(x, x)
        out = R.exp(left)
    else:
        right = R.sqrt(x)
        out = R.exp(right)
    end = R.add(out, x)
    return end
""")
    for taken, other, truth in (("left", "right", True), ("right", "left", False)):
        run = vm["main"].start(np.array(truth), X)
        seen: set[str] = set()
        while (frame := run.step()) is not None:
            seen |= set(frame.variables)
        assert taken in seen
        assert other not in seen
        np.testing.assert_array_equal(run.result(), vm["main"](np.array(truth), X))


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("mian", "no function or variable of the program has this name; did you mean 'main'"),
        (10_000, "pc 10000: the program has"),
        (":9999", "no instruction comes from there; the nearest line"),
        ("nothing.py:3", "no instruction comes from there; its files are"),
    ],
)
def test_places_that_are_not_there(until: Any, message: str) -> None:
    run = machine()["main"].start(X)
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        run.resume(until=until)
    assert not run.done


def test_wrong_arguments() -> None:
    vm = machine()
    with pytest.raises(ArityError, match=r"main: expects 1 argument \(x\), got 2"):
        vm["main"].start(X, X)
    with pytest.raises(TypeError, match="unexpected keyword 'y'"):
        vm["main"].start(y=X)
    run = vm["main"].start(x=X)
    with pytest.raises(ValueError, match="at least one instruction"):
        run.step(0)
    with pytest.raises(ValueError, match="resume: expected at least one"):
        run.resume(fuel=0)
    with pytest.raises(TypeError, match="step: expected a number of instructions, got str 'a'"):
        run.step("a")  # type: ignore[arg-type]


# Values


def test_assign() -> None:
    run = machine()["main"].start(X)
    run.resume(until="c")
    run.assign("b", np.array([4.0, 9.0], np.float32))
    np.testing.assert_array_equal(run.result(), np.array([2.0, 3.0], np.float32))
    with pytest.raises(RelaxVMError, match="has ended"):
        run.assign("b", X)
    run = machine()["main"].start(X)
    with pytest.raises(ValueError, match="main has no variable 'b' here"):
        run.assign("b", X)
    with pytest.raises(IndexError, match="no register 99"):
        run.assign(99, X)
    with pytest.raises(IndexError, match="no frame 3"):
        run.assign("x", X, frame=3)


def test_frames_are_snapshots() -> None:
    run = machine()["main"].start(X)
    frame = run.resume(until="c")
    assert frame is not None
    before = dict(frame.variables)
    run.result()
    assert frame.variables.keys() == before.keys()
    assert all(frame.variables[name] is value for name, value in before.items())


# Errors and limits


def failing() -> VirtualMachine:
    b = ExecBuilder()
    with b.function("inner", 1, param_names=["x"]):
        b.emit_call("t.fail", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("main", 1, param_names=["x"]):
        b.emit_call("inner", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))

    def fail(x: Any) -> Any:
        raise KeyError(x)

    return VirtualMachine(b.get(), functions={"t.fail": fail})


def notes_of(call: Callable[[], Any]) -> list[str]:
    with pytest.raises(KeyError) as caught:
        call()
    return caught.value.__notes__


def test_errors_have_the_notes_of_a_call() -> None:
    vm = failing()
    run = vm["main"].start(3)
    assert notes_of(run.result) == notes_of(lambda: vm["main"](3))
    assert run.done
    with pytest.raises(KeyError):
        run.result()  # again
    with pytest.raises(RelaxVMError, match="the run has ended"):
        run.step()


@pytest.mark.parametrize("fuel", range(1, 40, 3))
def test_fuel(fuel: int) -> None:
    vm = machine(limits=Limits(fuel=fuel))

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call().tolist()
        except LimitError as error:
            return str(error), error.__notes__

    assert outcome(lambda: stepped(vm, "main")(X)) == outcome(lambda: vm["main"](X))


def test_fuel_left() -> None:
    run = machine(limits=Limits(fuel=100))["main"].start(X)
    assert run.fuel_left == 100
    run.step(3)
    assert run.fuel_left is not None
    assert run.fuel_left < 100
    assert machine()["main"].start(X).fuel_left is None


def spin() -> Any:
    b = ExecBuilder()
    with b.function("main"):
        again = b.label()
        b.bind(again)
        b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
        b.emit_goto(again)
        b.emit_ret(b.r(0))
    return b.get()


def test_time_that_it_runs_counts_and_no_other() -> None:
    run = VirtualMachine(spin(), limits=Limits(wall_time=0.05))["main"].start()
    run.step(5)
    threading.Event().wait(0.1)
    assert run.step(5) is not None  # it was paused
    with pytest.raises(LimitError, match=r"longer than 0.05 s"):
        run.result()
    run = VirtualMachine(spin(), limits=Limits(wall_time=0.02))["main"].start()
    with pytest.raises(LimitError, match=r"longer than 0.02 s"):
        while run.resume(fuel=1000):
            pass


def recursion(limits: Limits) -> VirtualMachine:
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("main", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    return VirtualMachine(b.get(), limits=limits)


def test_depth() -> None:
    vm = recursion(Limits(call_depth=50))
    run = vm["main"].start(1)
    deepest = 0
    with pytest.raises(LimitError, match="deeper than 50 frames"):
        while run.step() is not None:
            deepest = run.depth
    assert deepest == 50


def test_many_frames() -> None:
    run = recursion(Limits(call_depth=100_000))["main"].start(1)
    run.step(20_000)
    assert run.depth == 20_001
    assert len(run.frames) == 20_001
    assert run.some_frames(19_999, 10)[-1].function == "main"
    run.cancel()
    assert run.depth == 0


def test_tail_calls_run_in_constant_space() -> None:
    vm = machine("""
@R.function
def main(i: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    cls = Module
    more = R.greater(i, R.const(0, "int64"))
    if more:
        r = cls.main(R.subtract(i, R.const(1, "int64")))
    else:
        r = i
    return r
""", limits=Limits(call_depth=3))  # fmt: skip
    assert stepped(vm, "main")(np.array(500)) == 0


def test_live_bytes() -> None:
    vm = machine("""
@R.function
def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
    a = R.exp(x)
    b = R.add(a, x)
    return b
""", limits=Limits(live_bytes=5 << 20))  # fmt: skip
    small, large = np.zeros(1000, np.float32), np.zeros(2 << 20, np.float32)
    np.testing.assert_array_equal(stepped(vm, "main")(small), np.ones(1000, np.float32))
    with pytest.raises(LimitError, match="live_bytes"):
        stepped(vm, "main")(large)


# Ending it


def test_cancel() -> None:
    run = machine()["main"].start(X)
    run.step(3)
    run.cancel()
    assert run.done
    with pytest.raises(CancelledError, match="the run was cancelled"):
        run.result()
    run.cancel()
    assert "ended with CancelledError" in repr(run)


def test_cancel_in_progress() -> None:
    run = VirtualMachine(spin())["main"].start()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            run.result()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while run._position == 0:
        pass
    with pytest.raises(RelaxVMError, match="in progress"):
        run.step()
    run.cancel()
    thread.join()
    assert [type(error) for error in errors] == [CancelledError]
    assert run.done


def test_vm_cancel_ends_runs_in_progress_alone() -> None:
    vm = machine()
    run = vm["main"].start(X)
    run.step()
    vm.cancel()
    np.testing.assert_array_equal(run.result(), vm["main"](X))


def test_a_closed_machine() -> None:
    vm = machine()
    run = vm["main"].start(X)
    run.step()
    vm.close()
    np.testing.assert_array_equal(run.result(), np.sqrt(np.exp(X + X)))
    with pytest.raises(relaxvm.errors.InternalError, match="closed"):
        vm.functions["main"].start(X)


@pytest.mark.parametrize("steps", range(1, 12))
def test_dropped_without_a_leak(steps: int) -> None:
    vm = machine()
    gc.collect()
    x = np.array([1.0, 2.0], np.float32)
    before = sys.getrefcount(x), sys.getrefcount(vm), vm.memory_stats().live_bytes
    for ending in ("drop", "cancel", "result"):
        run = vm["main"].start(x)
        run.step(steps)
        if ending == "cancel":
            run.cancel()
        elif ending == "result":
            run.result()
        del run
    gc.collect()
    assert (sys.getrefcount(x), sys.getrefcount(vm), vm.memory_stats().live_bytes) == before


def test_frames_are_dropped_at_once() -> None:
    vm = machine()
    x = np.array([1.0, 2.0], np.float32)
    gone = weakref.ref(x)
    run = vm["main"].start(x)
    run.step(4)
    gc.disable()
    try:
        del x
        assert gone() is not None
        del run
        assert gone() is None
    finally:
        gc.enable()


def test_a_cycle_through_a_frame_is_collected() -> None:
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("t.keep", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.copy", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    vm = VirtualMachine(b.get(), functions={"t.keep": lambda x: x})
    holder = relaxvm.Ref()

    def in_a_cycle(holder: relaxvm.Ref) -> weakref.ref[Run]:
        run = vm["main"].start(holder)
        run.step()
        holder.value = relaxvm.Closure(lambda: run)
        return weakref.ref(run)

    gone = in_a_cycle(holder)
    gc.collect()
    assert gone() is not None
    del holder
    gc.collect()
    assert gone() is None


# With others


def test_runs_side_by_side() -> None:
    vm = machine()
    inputs = [np.full(3, i, np.float32) for i in range(8)]
    runs = [vm["main"].start(x) for x in inputs]
    waiting = list(runs)
    while waiting:
        waiting = [run for run in waiting if run.resume(fuel=3) is not None]
    for x, run in zip(inputs, runs, strict=True):
        np.testing.assert_array_equal(run.result(), vm["main"](x))


def test_another_thread_goes_on() -> None:
    run = machine()["main"].start(X)
    results: list[Any] = []
    for _ in range(5):
        thread = threading.Thread(target=run.step)
        thread.start()
        thread.join()
    assert run.position == 5
    thread = threading.Thread(target=lambda: results.append(run.result()))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(results[0], np.sqrt(np.exp(X + X)))


def test_a_run_within_a_run() -> None:
    b = ExecBuilder()
    with b.function("inner", 1):
        b.emit_call("t.add", [b.r(0)], dst=b.r(1))
        b.emit_call("t.add", [b.r(1)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("main", 1):
        b.emit_call("t.inner", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    seen: list[str] = []

    def inner(x: Any) -> Any:
        with pytest.raises(RelaxVMError, match="in progress"):
            outer.step()
        seen.append(repr(outer))
        run = vm["inner"].start(x)
        run.step()
        return run.result()

    vm = VirtualMachine(b.get(), functions={"t.add": lambda x: x + 1, "t.inner": inner})
    outer = vm["main"].start(1)
    assert outer.result() == 3
    assert seen == ["<Run of main, in progress>"]


def test_instrument_and_profile_see_it() -> None:
    vm = machine()
    names: list[str] = []
    vm.set_instrument(lambda func, name, before, ret, *args: names.append(name))
    vm["main"](X)
    expected, names[:] = list(names), []
    stepped(vm, "main")(X)
    assert names == expected
    vm.set_instrument(None)
    with relaxvm.profile(vm) as profile:
        stepped(vm, "main")(X)
    assert {row.name for row in profile.functions} >= {"main", "twice", "relaxvm.kernel.exp"}


def test_functions_named_like_methods() -> None:
    b = ExecBuilder()
    for name in ("cancel", "state", "functions"):
        with b.function(name):
            b.emit_call("vm.builtin.copy", [b.imm(7)], dst=b.r(0))
            b.emit_ret(b.r(0))
    message = r"cancel, state, functions; call them as vm\['cancel'\]"
    with pytest.warns(relaxvm.errors.NameClashWarning, match=message):
        vm = VirtualMachine(b.get())
    assert vm["cancel"]() == 7
    assert vm["state"].start().result() == 7
    assert vm.cancel() is None


@pytest.mark.parametrize("steps", [7, 5_000])
def test_objects_that_are_gone_do_not_count_when_a_run_goes_on(steps: int) -> None:
    """Each part makes less than what is between two counts of objects, and all together make many
    times the limit."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.shape_of", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_goto(-1)
    vm = VirtualMachine(eb.get(), limits=Limits(live_bytes=4 << 20), functions={})
    run = vm["main"].start(np.zeros((2, 3, 4)))
    while run.position < 400_000:
        assert run.resume_at(steps=steps)
    run.cancel()


@pytest.mark.parametrize("steps", [7, 5_000])
def test_objects_that_live_count_however_short_the_parts_of_a_run_are(steps: int) -> None:
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.make_tuple", args=[eb.r(0)], dst=eb.r(0))
        eb.emit_goto(-1)
    vm = VirtualMachine(eb.get(), limits=Limits(live_bytes=4 << 20), functions={})
    run = vm["main"].start(1)
    with pytest.raises(LimitError, match="live_bytes"):
        while run.resume_at(steps=steps):
            assert run.position < 400_000
    assert run.position > 40_000
