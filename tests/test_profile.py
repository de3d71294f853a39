"""`relaxvm.profile`: times under a fake clock, traces, threads, failures."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import CancelledError, LimitError, RelaxVMError
from relaxvm.observe import Profile
from relaxvm.observe.recorder import MAX_DEPTH, MAX_SHAPES, RUN, Recorder

from .asm import VM, Asm, Func, r0, r1, r2, r3


class Clock:
    """A clock that advances only when a kernel calls it."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now

    def spend(self, ns: int, result: Any = None) -> Callable[..., Any]:
        """Return a kernel that takes a given time."""

        def kernel(*args: Any) -> Any:
            self.now += ns
            return result

        return kernel


def straight_line() -> Asm:
    """main(x): two calls of fast, one of slow, one of the VM function helper, which calls slow."""
    asm = Asm()
    asm.forward("helper")
    with asm.func("main", params=["x"]):
        asm.op(r1, "fast", r0)
        asm.op(r1, "fast", r0)
        asm.op(r2, "slow", r0, 7)
        asm.op(r3, "helper", r0)
        asm.ret(r3)
    with asm.func("helper", params=["x"]):
        asm.op(r1, "slow", r0)
        asm.ret(r1)
    return asm


def countdown() -> Asm:
    """down(n): work, and if n is not 0, down(n - 1)."""
    asm = Asm()
    with asm.func("down", params=["n"]):
        asm.op(r1, "work", r0)
        asm.iff(r0, 3)
        asm.op(r2, "minus_one", r0)
        asm.op(r1, "down", r2)
        asm.ret(r1)
    return asm


def busy(n: int) -> int:
    """Take much longer than the profiler's own work, which is subtracted."""
    sum(range(20_000))
    return n


def minus_one(n: int) -> int:
    return n - 1


def by_name(profile: Profile) -> dict[str, Any]:
    return {row.name: row for row in profile.functions}


def exact(row: Any) -> tuple[int, int, int, int, int]:
    return row.count, row.total_ns, row.self_ns, row.min_ns, row.max_ns


class TestFigures:
    def test_straight_line(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        x = np.ones((2, 3), np.float32)
        with Profile(vm, _clock=clock) as profile:
            vm.main(x)
            vm.main(x)
        rows = by_name(profile)
        assert exact(rows["fast"]) == (4, 40, 40, 10, 10)
        assert exact(rows["slow"]) == (4, 1200, 1200, 300, 300)
        assert exact(rows["helper"]) == (2, 600, 0, 300, 300)
        assert exact(rows["main"]) == (2, 1240, 0, 620, 620)
        assert rows["main"].mean_ns == 620
        assert [rows[name].category for name in ("fast", "main", "helper")] == [
            "kernel", "dispatch", "dispatch",
        ]  # fmt: skip
        results = profile.results
        assert (results.runs, results.wall_ns) == (2, 1240)
        assert results.categories == {"kernel": 1240, "builtin": 0, "dispatch": 0}
        assert rows["slow"].share == 1200 / 1240
        assert results.dispatch_share == 0

    def test_sites(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        with Profile(vm, _clock=clock) as profile:
            vm.main(np.ones((2, 3), np.float32))
            vm.main(np.ones(5, np.int8))
            vm.main(np.ones(5, np.int8))
        sites = {(site.caller, site.pc, site.callee): site for site in profile.sites}
        assert list(sites) == [
            ("", -1, "main"),
            ("main", 0, "fast"),
            ("main", 1, "fast"),
            ("main", 2, "slow"),
            ("main", 3, "helper"),
            ("helper", 5, "slow"),
        ]
        slow = sites["main", 2, "slow"]
        assert exact(slow) == (3, 900, 900, 300, 300)
        assert slow.instruction.split() == ["call", "slow", "in:", "%0,", "i7", "dst:", "%2"]
        assert slow.shapes == (("int8[5], int", 2), ("float32[2, 3], int", 1))
        assert slow.nbytes == 24 + 5 + 5
        assert sites["", -1, "main"].instruction == ""

    def test_bytes_count_results_too(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, "double", r0)
            asm.ret(r1)
        vm = relaxvm.VirtualMachine(asm.get(), functions={"double": lambda x: np.tile(x, 2)})
        with relaxvm.profile(vm) as profile:
            vm.main(np.zeros(4, np.float64))
        assert by_name(profile)["double"].nbytes == 32 + 64

    def test_recursion_counts_time_once(self) -> None:
        clock = Clock()
        functions = {"work": clock.spend(100), "minus_one": minus_one}
        vm = relaxvm.VirtualMachine(countdown().get(), functions=functions)
        with Profile(vm, _clock=clock) as profile:
            vm.down(3)
        rows = by_name(profile)
        assert exact(rows["down"]) == (4, 400, 0, 100, 400)
        assert exact(rows["work"]) == (4, 400, 400, 100, 100)
        (inner,) = (site for site in profile.sites if site.caller and site.callee == "down")
        assert exact(inner) == (3, 300, 0, 100, 300)

    def test_self_time_of_a_kernel_that_calls_the_vm(self) -> None:
        clock = Clock()
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, "outer", r0)
            asm.ret(r1)
        with asm.func("inner", params=["x"]):
            asm.op(r1, "work", r0)
            asm.ret(r1)

        def outer(x: Any) -> Any:
            clock.now += 1
            result = vm.inner(x)
            clock.now += 2
            return result

        functions = {"outer": outer, "work": clock.spend(50)}
        vm = relaxvm.VirtualMachine(asm.get(), functions=functions)
        with Profile(vm, _clock=clock) as profile:
            vm.main(1)
        rows = by_name(profile)
        assert exact(rows["outer"]) == (1, 53, 3, 53, 53)
        assert exact(rows["inner"]) == (1, 50, 0, 50, 50)
        assert profile.results.wall_ns == 53, "the inner run is part of the outer one"
        assert profile.results.runs == 1
        assert ("main", "outer", "inner", "work") in dict(profile.results.stacks)

    def test_closures(self) -> None:
        clock = Clock()
        asm = Asm()
        asm.forward("scaled")
        with asm.func("main", params=["x"]):
            asm.op(r1, ".make_closure", Func("scaled"), 3)
            asm.op(r2, ".invoke_closure", VM, r1, r0)
            asm.ret(r2)
        with asm.func("scaled", params=["x", "by"]):
            asm.op(r2, "multiply", r0, r1)
            asm.ret(r2)

        def multiply(x: int, by: int) -> int:
            clock.now += 20
            return x * by

        vm = relaxvm.VirtualMachine(asm.get(), functions={"multiply": multiply})
        with Profile(vm, _clock=clock) as profile:
            assert vm.main(5) == 15
        rows = by_name(profile)
        assert exact(rows["vm.builtin.invoke_closure"])[:3] == (1, 20, 0)
        assert rows["vm.builtin.invoke_closure"].category == "builtin"
        assert exact(rows["multiply"])[:3] == (1, 20, 20)

    def test_own_times_add_up_to_the_wall_time(self) -> None:
        vm = relaxvm.VirtualMachine(
            countdown().get(), functions={"work": busy, "minus_one": minus_one}
        )
        with relaxvm.profile(vm) as profile:
            for n in range(5):
                vm.down(n)
        results = profile.results
        assert results.wall_ns == sum(row.self_ns for row in results.functions)
        assert results.wall_ns == sum(results.categories.values())
        assert results.wall_ns == sum(own for _, own in results.stacks)
        assert all(row.self_ns >= 0 for row in results.functions)
        assert all(row.min_ns <= row.mean_ns <= row.max_ns for row in results.functions
                   if row.name != "down")  # fmt: skip
        assert sum(row.share for row in results.functions) == pytest.approx(1)
        assert 0 < results.dispatch_share < 1
        # Per run: two events, and two for each call.
        calls = sum(row.count for row in results.functions)
        assert results.hook_events == 2 * calls
        assert results.hook_ns > 0
        assert results.hook_call_ns >= 0

    def test_many_shapes_are_counted_together(self) -> None:
        vm = relaxvm.VirtualMachine(
            straight_line().get(), functions={"fast": len, "slow": lambda *args: None}
        )
        with relaxvm.profile(vm) as profile:
            for n in range(MAX_SHAPES + 10):
                vm.main(np.zeros(n, np.int8))
        site = profile.sites[1]
        assert len(site.shapes) == MAX_SHAPES + 1
        assert site.shapes[0] == ("other", 10)

    def test_without_shapes(self) -> None:
        vm = relaxvm.VirtualMachine(
            straight_line().get(), functions={"fast": len, "slow": lambda *args: None}
        )
        with relaxvm.profile(vm, shapes=False, memory=False) as profile:
            vm.main([1])
        assert all(site.shapes == () and site.nbytes == 0 for site in profile.sites)
        assert profile.memory == ()


class TestFailure:
    def failing(self) -> tuple[Asm, dict[str, Callable[..., Any]], Clock]:
        """main(x): outer; outer(x): work, then fail if x is not 0."""
        clock = Clock()
        asm = Asm()
        asm.forward("outer")
        with asm.func("main", params=["x"]):
            asm.op(r1, "outer", r0)
            asm.ret(r1)
        with asm.func("outer", params=["x"]):
            asm.op(r1, "work", r0)
            asm.op(r1, "may_fail", r0)
            asm.ret(r1)

        def may_fail(x: int) -> int:
            clock.now += 7
            if x:
                raise KeyError("no such thing")
            return x

        return asm, {"work": clock.spend(100), "may_fail": may_fail}, clock

    def test_an_exception_leaves_the_stacks_balanced(self) -> None:
        asm, functions, clock = self.failing()
        vm = relaxvm.VirtualMachine(asm.get(), functions=functions)
        with Profile(vm, _clock=clock) as profile:
            for x in (0, 1, 1, 0):
                if x:
                    with pytest.raises(KeyError, match="no such thing"):
                        vm.main(x)
                else:
                    vm.main(x)
        rows = by_name(profile)
        assert exact(rows["main"]) == (4, 428, 0, 107, 107)
        assert exact(rows["outer"]) == (4, 428, 0, 107, 107)
        assert exact(rows["may_fail"]) == (4, 28, 28, 7, 7)
        assert {name: row.errors for name, row in rows.items()} == {
            "main": 2, "outer": 2, "may_fail": 2, "work": 0,
        }  # fmt: skip
        assert profile.results.wall_ns == 428

    def test_an_inner_run_that_fails_and_is_caught(self) -> None:
        asm, functions, clock = self.failing()
        with asm.func("careful", params=["x"]):
            asm.op(r1, "try_main", r0)
            asm.op(r1, "work", r0)
            asm.ret(r1)

        def try_main(x: int) -> str:
            try:
                vm.main(x)
            except KeyError:
                clock.now += 1000
            return "caught"

        vm = relaxvm.VirtualMachine(asm.get(), functions={**functions, "try_main": try_main})
        with Profile(vm, _clock=clock) as profile:
            vm.careful(1)
        rows = by_name(profile)
        assert exact(rows["try_main"]) == (1, 1107, 1000, 1107, 1107)
        assert exact(rows["careful"]) == (1, 1207, 0, 1207, 1207)
        assert rows["try_main"].errors == 0
        assert rows["main"].errors == 1

    def test_an_error_between_calls(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, "work", r0)
            asm.iff(r1, 2)
            asm.ret(r1)
            asm.ret(r0)
        clock = Clock()
        vm = relaxvm.VirtualMachine(asm.get(), functions={"work": clock.spend(5, "a text")})
        with Profile(vm, _clock=clock) as profile, pytest.raises(TypeError):
            vm.main(1)
        rows = by_name(profile)
        assert (rows["work"].errors, rows["main"].errors) == (0, 1)

    def test_limits(self) -> None:
        functions = {"work": lambda n: n, "minus_one": lambda n: n}
        vm = relaxvm.VirtualMachine(
            countdown().get(), functions=functions, limits=relaxvm.Limits(call_depth=50)
        )
        with relaxvm.profile(vm) as profile:
            for _ in range(2):
                with pytest.raises(LimitError, match="call_depth"):
                    vm.down(1)
        row = by_name(profile)["down"]
        assert row.count == row.errors
        assert profile.results.runs == 2
        assert profile.results.wall_ns == sum(r.self_ns for r in profile.functions)

    def test_cancelled(self) -> None:
        asm = Asm()
        with asm.func("main"):
            asm.op(r0, "tick")
            asm.go(-1)
        count = 0

        def tick() -> None:
            nonlocal count
            count += 1
            if count == 1000:
                vm.cancel()

        vm = relaxvm.VirtualMachine(asm.get(), functions={"tick": tick})
        with relaxvm.profile(vm) as profile, pytest.raises(CancelledError):
            vm.main()
        rows = by_name(profile)
        assert rows["tick"].count >= 1000
        assert rows["main"].errors == 1

    def test_skipped_calls_are_not_counted(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)

        def skip_slow(func: Any, name: str, before: bool, ret: Any, *args: Any) -> int:
            return relaxvm.VMInstrumentReturnKind.SKIP_RUN if name == "slow" else 0

        vm.set_instrument(skip_slow)
        with Profile(vm, _clock=clock) as profile:
            vm.main(1)
        rows = by_name(profile)
        assert "slow" not in rows
        assert exact(rows["main"]) == (1, 20, 0, 20, 20)

    def test_a_later_hook_that_skips(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)

        def skip(pc: int, before: bool, func: Any, name: str, ret: Any, args: Any) -> bool:
            return name in ("slow", "helper")

        with Profile(vm, _clock=clock) as profile:
            vm._add_hook(skip)
            vm.main(1)
            vm._remove_hook(skip)
            vm.main(1)
        rows = by_name(profile)
        assert exact(rows["main"]) == (2, 640, 0, 20, 620)
        assert exact(rows["slow"]) == (2, 600, 600, 300, 300)
        assert exact(rows["helper"]) == (1, 300, 0, 300, 300)


class TestLife:
    def test_results_do_not_change(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.alloc(r1, r2, (4,))
            asm.op(None, "copy_into", r0, r1)
            asm.ret(r1)
        functions = {"copy_into": lambda x, y: np.copyto(y, x)}
        vm = relaxvm.VirtualMachine(asm.get(), functions=functions)
        x = np.arange(4, dtype=np.float32)
        plain = vm.main(x)
        with relaxvm.profile(vm):
            profiled = vm.main(x)
        np.testing.assert_array_equal(plain, profiled)
        np.testing.assert_array_equal(vm.main(x), plain)

    def test_off_means_off(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        with Profile(vm, _clock=clock) as profile:
            vm.main(1)
        before = profile.to_dict()
        vm.main(1)
        assert profile.to_dict() == before

    def test_entering_again_adds(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        profile = Profile(vm, _clock=clock)
        for _ in range(2):
            with profile:
                vm.main(1)
            vm.main(1)
        assert exact(by_name(profile)["main"]) == (2, 1240, 0, 620, 620)
        assert repr(profile) == "<Profile of 2 runs>"

    def test_entering_twice(self) -> None:
        vm = relaxvm.VirtualMachine(countdown().get(), functions={"work": len, "minus_one": len})
        with relaxvm.profile(vm) as profile, pytest.raises(RelaxVMError, match="already active"):
            profile.__enter__()

    def test_two_profiles_at_once(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        with Profile(vm, _clock=clock) as one, Profile(vm, _clock=clock) as two:
            vm.main(1)
        assert one.to_dict() == two.to_dict()
        assert exact(by_name(one)["main"]) == (1, 620, 0, 620, 620)

    def test_ending_while_a_run_is_in_flight(self) -> None:
        clock = Clock()
        profile: Profile

        def fast(x: Any) -> None:
            if x == "stop":
                profile.__exit__(None, None, None)

        functions = {"fast": fast, "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        profile = Profile(vm, _clock=clock)
        profile.__enter__()
        vm.main("stop")
        assert profile.results.runs == 0
        with profile:
            vm.main("go")
        assert exact(by_name(profile)["main"]) == (1, 600, 0, 600, 600)
        assert exact(by_name(profile)["fast"]) == (2, 0, 0, 0, 0)

    def test_a_machine_that_is_closed(self) -> None:
        clock = Clock()
        functions = {"fast": clock.spend(10), "slow": clock.spend(300)}
        vm = relaxvm.VirtualMachine(straight_line().get(), functions=functions)
        with Profile(vm, _clock=clock) as profile, vm:
            vm.main(1)
        assert exact(by_name(profile)["main"]) == (1, 620, 0, 620, 620)
        with pytest.raises(RuntimeError, match="closed"), relaxvm.profile(vm):
            pass

    def test_nothing_run(self) -> None:
        vm = relaxvm.VirtualMachine(countdown().get(), functions={"work": len, "minus_one": len})
        with relaxvm.profile(vm) as profile:
            pass
        assert profile.functions == profile.sites == ()
        assert profile.results.dispatch_share == 0
        assert "0 runs on 0 threads" in str(profile)
        assert profile.folded() == ""
        check_trace(profile.chrome_trace())


class TestHook:
    """The events that the core sends to a hook, and failures of the hook."""

    def program(self) -> relaxvm.VirtualMachine:
        asm = Asm()
        asm.forward("inner")
        with asm.func("main", params=["x"]):
            asm.op(r1, "double", r0)
            asm.op(r1, "inner", r1)
            asm.ret(r1)
        with asm.func("inner", params=["x"]):
            asm.op(r1, "double", r0)
            asm.ret(r1)
        return relaxvm.VirtualMachine(asm.get(), functions={"double": lambda x: x + x})

    def test_events(self) -> None:
        vm = self.program()
        seen = []

        def hook(pc: int, before: bool, func: Any, name: str, ret: Any, args: Any) -> None:
            seen.append((pc, before, name, ret, args))

        vm._add_hook(hook)
        assert vm.main(3) == 12
        assert seen == [
            (-1, True, "main", None, (3,)),
            (0, True, "double", None, (3,)),
            (0, False, "double", 6, (3,)),
            (1, True, "inner", None, (6,)),
            (3, True, "double", None, (6,)),
            (3, False, "double", 12, (6,)),
            (1, False, "inner", 12, (6,)),
            (-1, False, "main", 12, ()),
        ]
        seen.clear()
        with pytest.raises(TypeError):
            vm.main(None)
        assert [event[:3] for event in seen] == [
            (-1, True, "main"), (0, True, "double"), (-2, False, "main"),
        ]  # fmt: skip

    @pytest.mark.parametrize("at", range(8))
    def test_a_hook_that_fails(self, at: int) -> None:
        vm = self.program()
        count = 0

        def hook(*event: Any) -> None:
            nonlocal count
            count += 1
            if count == at + 1:
                raise KeyError(f"event {at}")

        vm._add_hook(hook)
        # More often than Python's recursion limit, so that a leaked level would show.
        for _ in range(1200):
            count = 0
            with pytest.raises(KeyError, match=f"event {at}"):
                vm.main(object() if at < 2 else 1)
        vm._remove_hook(hook)
        assert vm.main(1) == 4

    def test_an_error_of_the_run_outlives_one_of_the_hook(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        vm = self.program()
        lost = []
        monkeypatch.setattr("sys.unraisablehook", lambda info: lost.append(info.exc_value))

        def hook(pc: int, *event: Any) -> None:
            if pc == -2:
                raise KeyError("in the hook")

        vm._add_hook(hook)
        with pytest.raises(TypeError, match="unsupported operand"):
            vm.main(None)
        assert [type(error) for error in lost] == [KeyError]


    @pytest.mark.parametrize(("half_way", "times"), [(0, (285, 190)), (10, (225, 150))])
    def test_the_way_to_the_hook_is_left_out(self, half_way: int, times: tuple[int, int]) -> None:
        recorder = self.recorded(half_way)
        functions = recorder.threads[0].functions
        main, callee = functions["main"], functions["f"]
        assert (main.total, main.own) == times
        assert callee.own == main.total - main.own

    def test_no_time_is_less_than_nothing(self) -> None:
        functions = self.recorded(1000).threads[0].functions
        assert [functions[name].own for name in ("main", "f")] == [0, 0]

    @staticmethod
    def recorded(half_way: int) -> Recorder:
        """A run of 305 ns with one call, where the hook takes 5 ns each time."""
        reads = iter([0, 5, 100, 105, 200, 205, 300, 305])
        recorder = Recorder(None, shapes=False, max_events=0, clock=lambda: next(reads))
        recorder.half_way_ns = half_way
        recorder.start()
        recorder(RUN, True, None, "main", None, ())
        recorder(3, True, None, "f", None, ())
        recorder(3, False, None, "f", None, ())
        recorder(RUN, False, None, "main", None, ())
        return recorder


class TestThreads:
    def test_threads_are_kept_apart(self) -> None:
        functions = {"work": lambda n: sum(range(200)), "minus_one": minus_one}
        vm = relaxvm.VirtualMachine(countdown().get(), functions=functions)
        errors: list[BaseException] = []
        gate = threading.Barrier(4)

        def work() -> None:
            try:
                gate.wait()
                for _ in range(20):
                    vm.down(10)
            except BaseException as error:
                errors.append(error)

        with relaxvm.profile(vm) as profile:
            threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not errors
        rows = by_name(profile)
        assert rows["down"].count == 4 * 20 * 11
        assert rows["work"].count == 4 * 20 * 11
        assert sorted(t.name for t in profile.threads) == [f"worker {i}" for i in range(4)]
        assert all(t.runs == 20 for t in profile.threads)
        results = profile.results
        assert results.wall_ns == sum(row.self_ns for row in results.functions)
        trace = profile.chrome_trace()
        spans = check_trace(trace)
        assert len(spans) == 4 * 20 * (11 + 11 + 10)

    def test_reading_while_running(self) -> None:
        functions = {"work": lambda n: None, "minus_one": minus_one}
        vm = relaxvm.VirtualMachine(countdown().get(), functions=functions)
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                vm.down(5)

        with relaxvm.profile(vm, max_events=100) as profile:
            thread = threading.Thread(target=work)
            thread.start()
            try:
                for _ in range(50):
                    str(profile)
                    check_trace(profile.chrome_trace())
            finally:
                stop.set()
                thread.join()


class TestMemory:
    def program(self) -> relaxvm.VMExecutable:
        asm = Asm()
        with asm.func("main"):
            asm.alloc(r0, r2, (256,), kill=False)
            asm.alloc(r1, r3, (1024,), kill=False)
            asm.op(r0, ".null_value")
            asm.op(r2, ".null_value")
            asm.op(None, "look", r1)
            asm.ret(r1)
        return asm.get()

    def test_timeline(self) -> None:
        vm = relaxvm.VirtualMachine(
            self.program(), memory_cfg="naive", functions={"look": lambda x: None}
        )
        with relaxvm.profile(vm) as profile:
            result = vm.main()
            del result
        live = [sample.live_bytes for sample in profile.memory]
        assert live[0] == 0
        assert live[1] >= 1024
        assert live[2] >= live[1] + 4096
        assert live[3] == live[2] - live[1], "the first storage is freed after its last use"
        assert live[-1] == 0
        assert profile.results.peak_live_bytes == max(live) == live[2]
        times = [sample.time_ns for sample in profile.memory]
        assert times == sorted(times)
        assert times[0] >= 0

    def test_counter_events(self) -> None:
        vm = relaxvm.VirtualMachine(
            self.program(), memory_cfg="pooled", functions={"look": lambda x: None}
        )
        with relaxvm.profile(vm) as profile:
            vm.main()
        counters = [e for e in profile.chrome_trace()["traceEvents"] if e["ph"] == "C"]
        assert [e["args"] for e in counters] == [
            {"live": s.live_bytes, "cached": s.cached_bytes} for s in profile.memory
        ]
        assert counters[-1]["args"]["cached"] > 0, "a pool must keep freed memory"


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Check that a trace has Perfetto's format; return its complete events."""
    trace = json.loads(json.dumps(trace, allow_nan=False))
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    spans = []
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            assert isinstance(event["tid"], int)
        elif event["ph"] == "C":
            assert type(event["ts"]) in (int, float)
            assert event["ts"] >= 0
            assert all(type(v) is int and v >= 0 for v in event["args"].values())
        else:
            assert event["ph"] == "X"
            assert type(event["ts"]) in (int, float)
            assert event["ts"] >= 0
            assert type(event["dur"]) in (int, float)
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
            assert isinstance(event["cat"], str)
            spans.append(event)
    named = {e["tid"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert {e["tid"] for e in spans} <= named
    by_thread = defaultdict(list)
    for event in spans:
        by_thread[event["tid"]].append(event)
    for events in by_thread.values():
        check_nesting(events)
    return spans


def check_nesting(events: list[dict[str, Any]]) -> None:
    """Check that two events of a thread are disjoint or nested."""
    open_until: list[float] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
        begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1]
        open_until.append(end)


class TestTrace:
    def profile(self, **options: Any) -> Profile:
        functions = {"work": lambda n: None, "minus_one": minus_one}
        vm = relaxvm.VirtualMachine(countdown().get(), functions=functions)
        with relaxvm.profile(vm, **options) as profile:
            vm.down(10)
        return profile

    def test_structure(self) -> None:
        profile = self.profile()
        spans = check_trace(profile.chrome_trace())
        assert len(spans) == 11 + 11 + 10
        assert spans[0]["name"] == "down"
        assert spans[0]["cat"] == "run"
        assert {e["name"]: e["cat"] for e in spans[1:]} == {
            "work": "kernel", "minus_one": "kernel", "down": "dispatch",
        }  # fmt: skip
        assert {e["args"]["pc"] for e in spans if e["name"] == "work"} == {0}
        assert all(e["args"]["without_hook_us"] <= e["dur"] + 1e-9 for e in spans)

    def test_times_are_microseconds(self) -> None:
        clock = Clock()
        vm = relaxvm.VirtualMachine(
            straight_line().get(),
            functions={"fast": clock.spend(10), "slow": clock.spend(300)},
        )
        with Profile(vm, _clock=clock) as profile:
            vm.main(1)
        spans = check_trace(profile.chrome_trace())
        assert [(e["name"], e["ts"], e["dur"]) for e in spans] == [
            ("main", 0, 0.62),
            ("fast", 0, 0.01),
            ("fast", 0.01, 0.01),
            ("slow", 0.02, 0.3),
            ("helper", 0.32, 0.3),
            ("slow", 0.32, 0.3),
        ]

    def test_file(self, tmp_path: Any) -> None:
        profile = self.profile()
        path = tmp_path / "trace.json"
        profile.save_chrome_trace(path)
        assert json.loads(path.read_text()) == json.loads(json.dumps(profile.chrome_trace()))
        buffer = io.BytesIO()
        profile.save_chrome_trace(buffer)
        assert buffer.getvalue() == path.read_bytes()

    def test_the_first_calls_are_kept(self) -> None:
        profile = self.profile(max_events=5)
        spans = check_trace(profile.chrome_trace())
        assert [e["name"] for e in spans] == ["down", "work", "minus_one", "down", "work"]
        assert profile.results.dropped_events == 32 - 5
        assert by_name(profile)["work"].count == 11
        assert "27 calls and 0 samples of memory beyond the limit" in str(profile)


class TestText:
    def profile(self) -> Profile:
        clock = Clock()
        vm = relaxvm.VirtualMachine(
            straight_line().get(),
            functions={"fast": clock.spend(1250), "slow": clock.spend(300_400)},
        )
        with Profile(vm, memory=False, _clock=clock) as profile:
            vm.main(np.ones((2, 3), np.float32))
            vm.main(np.ones((8, 3), np.float32))
        return profile

    def test_tables(self, golden: Callable[[str, str], None]) -> None:
        profile = self.profile()
        golden("profile_functions.txt", str(profile))
        golden("profile_sites.txt", profile.table(by="site", sort="total", limit=4))

    def test_csv(self) -> None:
        profile = self.profile()
        rows = list(csv.DictReader(io.StringIO(profile.to_csv())))
        assert [row["name"] for row in rows] == ["main", "fast", "slow", "helper"]
        assert rows[2]["count"] == "4"
        assert rows[2]["total_ns"] == "1201600"
        sites = list(csv.DictReader(io.StringIO(profile.to_csv(by="site"))))
        assert [int(row["pc"]) for row in sites] == [-1, 0, 1, 2, 3, 5]
        assert sites[3]["callee"] == "slow"

    def test_json(self) -> None:
        profile = self.profile()
        data = json.loads(profile.to_json())
        assert data == json.loads(json.dumps(profile.to_dict()))
        assert data["runs"] == 2
        assert [row["name"] for row in data["functions"]] == ["slow", "fast", "helper", "main"]
        assert data["sites"][3]["shapes"] == [
            {"args": "float32[2, 3], int", "count": 1},
            {"args": "float32[8, 3], int", "count": 1},
        ]
        assert data["self_ns"] == {"kernel": 1206600, "builtin": 0, "dispatch": 0}

    def test_folded(self) -> None:
        assert self.profile().folded() == (
            "main;fast 5000\nmain;helper;slow 600800\nmain;slow 600800\n"
        )

    def test_folded_stacks_of_a_deep_recursion_are_cut(self) -> None:
        clock = Clock()
        functions = {"work": clock.spend(1), "minus_one": minus_one}
        vm = relaxvm.VirtualMachine(countdown().get(), functions=functions)
        depth = 3 * MAX_DEPTH
        with Profile(vm, memory=False, _clock=clock) as profile:
            vm.down(depth)
        stacks = [line.rsplit(" ", 1) for line in profile.folded().splitlines()]
        assert sum(int(ns) for _, ns in stacks) == depth + 1
        assert max(stack.count(";") for stack, _ in stacks) == MAX_DEPTH
        assert any(stack.endswith(";[deeper]") for stack, _ in stacks)

    def test_unknown_words(self) -> None:
        profile = self.profile()
        expected = "expected by to be one of function, site, line, got 'lime'"
        with pytest.raises(ValueError, match=expected):
            profile.table(by="lime")
        with pytest.raises(ValueError, match="expected by to be one of"):
            profile.to_csv(by="lime")
        with pytest.raises(ValueError, match=r"expected sort to be one of self, .*, got 'name'"):
            profile.table(sort="name")


# Who allocates


def test_allocated_bytes_of_storages_and_of_new_tensors() -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.builtin.alloc_storage",
                     [ib.vm_state(), ib.convert_constant((1024,)), ib.imm(0),
                      ib.convert_constant(np.dtype("uint8")), ib.convert_constant("global")],
                     dst=ib.r(1))  # fmt: skip
        ib.emit_call("new", [ib.r(0)], dst=ib.r(2))
        ib.emit_call("same", [ib.r(2)], dst=ib.r(3))
        ib.emit_call("view", [ib.r(2)], dst=ib.r(4))
        ib.emit_ret(ib.r(4))
    functions = {"new": lambda x: x + x, "same": lambda x: x, "view": lambda x: x[:1]}
    vm = relaxvm.VirtualMachine(ib.get(), functions=functions)
    with relaxvm.profile(vm) as p:
        for _ in range(3):
            vm.main(np.ones(4))
    assert {row.name: row.allocated for row in p.functions} == {
        "main": 0, "vm.builtin.alloc_storage": 3 * 1024, "new": 3 * 32, "same": 0, "view": 0,
    }  # fmt: skip
    first, second = p.table(by="site", sort="allocated").splitlines()[5:7]
    assert "alloc_storage" in first
    assert " new " in second
    head = next(line for line in p.table().splitlines() if line.endswith("function"))
    assert head.split()[-2] == "allocated"
    with relaxvm.profile(vm, memory=False) as p:
        vm.main(np.ones(4))
    assert all(row.allocated == 0 for row in p.functions)
    assert "allocated" not in p.table()


def test_what_the_vm_keeps_is_allocated_once() -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=0):
        first = ib.convert_constant(np.zeros(8))
        ib.emit_call("relaxvm.builtin.state_open",
                     [ib.vm_state(), ib.convert_constant("rows"), first], dst=ib.r(0))  # fmt: skip
        ib.emit_call("double", [ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = relaxvm.VirtualMachine(ib.get(), functions={"double": lambda x: x + x})
    found = []
    for _ in range(3):
        with relaxvm.profile(vm) as p:
            vm.main()
        found.append({row.name: row.allocated for row in p.functions if row.name != "main"})
    kept = "relaxvm.builtin.state_open"
    assert [each[kept] for each in found] == [64, 0, 0]
    assert [each["double"] for each in found] == [64, 64, 64]


def test_samples_are_the_calls_one_by_one() -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call("double", [ib.r(0)], dst=ib.r(1))
        ib.emit_ret(ib.r(1))
    vm = relaxvm.VirtualMachine(ib.get(), functions={"double": lambda x: x + x})
    with relaxvm.profile(vm) as p:
        vm.main(1)
        vm.main(2)
    assert "samples" not in p.to_dict()
    data = json.loads(p.to_json(samples=True))
    samples = data.pop("samples")
    assert data == json.loads(p.to_json())
    rows = [dict(zip(samples["columns"], row, strict=True)) for row in samples["rows"]]
    assert [(row["name"], row["pc"]) for row in rows] == [("main", -1), ("double", 0)] * 2
    for row in rows:
        assert 0 <= row["elapsed_ns"] <= row["end_ns"] - row["start_ns"]
    assert rows[0]["start_ns"] <= rows[1]["start_ns"] <= rows[1]["end_ns"] <= rows[0]["end_ns"]
