"""The scheduler: fair shares, priorities, deadlines, quotas, runs that go to disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import (
    ArityError,
    CancelledError,
    DeadlineError,
    LimitError,
    QueueFullError,
    RelaxVMError,
)
from relaxvm.serve import Job, Scheduler, Share
from relaxvm.vm import Run

from .. import children
from . import programs

X = np.arange(6.0).reshape(2, 3)


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is sure to come."""
    while not condition():
        time.sleep(0.001)


def endless(scheduler: Scheduler, share: Share, **options: Any) -> Job:
    vm = VirtualMachine(programs.endless(), functions={})
    return scheduler.submit(share, lambda: vm["main"].start(X), **options)


def shapes(scheduler: Scheduler, share: Share, **options: Any) -> Job:
    vm = VirtualMachine(programs.shapes(), functions={})
    return scheduler.submit(share, lambda: vm["main"].start(X), **options)


def test_results_and_errors_are_those_of_the_call() -> None:
    vm = VirtualMachine(programs.double())
    a, b = np.ones((3, 4), np.float32), np.full((3, 4), 2, np.float32)
    with Scheduler(threads=2) as scheduler:
        share = scheduler.share("double")
        jobs = [scheduler.submit(share, lambda: vm["main"].start(a, b)) for _ in range(50)]
        for job in jobs:
            np.testing.assert_array_equal(job.result(), np.full((3, 4), 6))
        wrong = scheduler.submit(share, lambda: vm["main"].start(a))
        with pytest.raises(ArityError):
            wrong.result()
        with pytest.raises(RuntimeError, match="expected 4"):
            scheduler.submit(share, lambda: vm["main"].start(a[:, :2], b)).result()
        assert share.running == share.waiting == scheduler.unfinished == 0
        assert all(job.turns == 1 and job.queued is not None for job in jobs)


def test_endless_calls_do_not_keep_others_from_running() -> None:
    with Scheduler(threads=2) as scheduler:
        busy, other = scheduler.share("busy"), scheduler.share("other")
        jobs = [endless(scheduler, busy) for _ in range(8)]
        for share in (other, busy):
            results = [shapes(scheduler, share) for _ in range(20)]
            assert all(tuple(job.result()[0]) == (2, 3) for job in results)
        assert all(job.cancel() for job in jobs)
        for job in jobs:
            with pytest.raises(CancelledError, match="busy was cancelled"):
                job.result()
            assert not job.cancel()
    assert busy.running == 0


def test_shares_get_time_by_their_weights() -> None:
    """One thread, and two shares that always want it."""
    with Scheduler(threads=1, quantum=0.0005) as scheduler:
        light, heavy = scheduler.share("light"), scheduler.share("heavy", weight=3)
        jobs = [endless(scheduler, share) for share in (light, heavy) for _ in range(3)]
        until(lambda: light.seconds > 0.3)
        ratio = heavy.seconds / light.seconds
        for job in jobs:
            job.cancel()
    assert 2 < ratio < 4.5


def test_priorities_come_first() -> None:
    order: list[str] = []
    hold = threading.Event()

    def begin(name: str) -> Callable[[], Run]:
        vm = VirtualMachine(programs.shapes(), functions={})

        def make() -> Run:
            order.append(name)
            if name == "first":
                hold.wait()
            return vm["main"].start(X)

        return make

    with Scheduler(threads=1) as scheduler:
        a, b = scheduler.share("a", slots=2), scheduler.share("b")
        jobs = [scheduler.submit(a, begin("first"))]
        until(lambda: order == ["first"])
        jobs += [scheduler.submit(a, begin("low"), priority=-1)]
        jobs += [scheduler.submit(share, begin("high"), priority=5) for share in (b, a)]
        hold.set()
        wait(jobs)
    # The second one of a waits for a slot, which the low one has.
    assert order == ["first", "high", "high", "low"] or order == ["first", "high", "low", "high"]


def test_deadlines() -> None:
    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("late", slots=1)
        running = endless(scheduler, share, timeout=0.05)
        waiting = shapes(scheduler, share, timeout=0.0)
        for job in (running, waiting):
            with pytest.raises(DeadlineError, match="late has not ended in its time"):
                job.result()
        assert isinstance(running.exception(), TimeoutError)
        assert tuple(shapes(scheduler, share, timeout=60).result()[0]) == (2, 3)


def test_slots_and_queues_are_bounded() -> None:
    with Scheduler(threads=2) as scheduler:
        share = scheduler.share("full", slots=2, queue=3)
        jobs = [endless(scheduler, share) for _ in range(5)]
        assert (share.running, share.waiting) == (2, 3)
        with pytest.raises(QueueFullError, match="full: 3 calls wait already"):
            shapes(scheduler, share)
        assert tuple(shapes(scheduler, scheduler.share("other")).result()[0]) == (2, 3)
        jobs[4].cancel()  # one that waits
        assert share.waiting == 2
        after = shapes(scheduler, share)
        for job in jobs[:4]:
            job.cancel()
        assert tuple(after.result()[0]) == (2, 3)


def test_limits_hold() -> None:
    vm = VirtualMachine(programs.endless(), limits=Limits(fuel=1_000), functions={})
    with Scheduler(threads=1) as scheduler:
        job = scheduler.submit(scheduler.share("fuel"), lambda: vm["main"].start(X))
        with pytest.raises(LimitError, match="fuel"):
            job.result()


def test_what_a_program_raises_to_end_the_process_ends_the_call() -> None:
    def leave(x: object) -> object:
        raise SystemExit(3)

    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("leave", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_ret(eb.r(1))
    vm = VirtualMachine(eb.get(), functions={"leave": leave})
    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("leaves")
        assert isinstance(
            scheduler.submit(share, lambda: vm["main"].start(X)).exception(), SystemExit
        )
        assert tuple(shapes(scheduler, share).result()[0]) == (2, 3)


def test_close_waits_or_cancels() -> None:
    scheduler = Scheduler(threads=2)
    share = scheduler.share("closing")
    jobs = [shapes(scheduler, share) for _ in range(200)]
    assert scheduler.close()
    assert all(tuple(job.result()[0]) == (2, 3) for job in jobs)
    with pytest.raises(RelaxVMError, match="closed"):
        shapes(scheduler, share)
    assert scheduler.close()

    scheduler = Scheduler(threads=2)
    share = scheduler.share("closing", slots=2)
    jobs = [endless(scheduler, share) for _ in range(5)]
    assert not scheduler.close(timeout=0.05)
    for job in jobs:
        with pytest.raises(CancelledError, match="closed during the call"):
            job.result()
    assert not [t for t in threading.enumerate() if t in scheduler._threads]


def test_an_exception_in_its_block_ends_the_calls() -> None:
    with pytest.raises(ZeroDivisionError), Scheduler(threads=1) as scheduler:
        job = endless(scheduler, scheduler.share("left"))
        raise ZeroDivisionError
    assert isinstance(job.exception(), CancelledError)


def test_in_an_event_loop() -> None:
    async def main() -> None:
        with Scheduler(threads=1) as scheduler:
            share = scheduler.share("loop")
            results = await asyncio.gather(
                *(asyncio.wrap_future(shapes(scheduler, share)) for _ in range(20))
            )
            assert all(tuple(result[0]) == (2, 3) for result in results)
            job = endless(scheduler, share)
            waiter = asyncio.ensure_future(asyncio.wrap_future(job))
            await asyncio.sleep(0.01)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            with pytest.raises(CancelledError):
                await asyncio.to_thread(job.result)

    asyncio.run(main())


def test_calls_from_many_threads() -> None:
    with Scheduler(threads=3, quantum=0.0002) as scheduler:
        shares = [scheduler.share(str(i), slots=2, queue=10_000) for i in range(4)]

        def work(number: int) -> int:
            good = 0
            for i in range(40):
                share = shares[(number + i) % 4]
                late = endless(scheduler, share, timeout=0.0 if i % 2 else 60)
                good += tuple(shapes(scheduler, share).result()[0]) == (2, 3)
                late.cancel()
                assert isinstance(late.exception(), (CancelledError, DeadlineError))
            return good

        with ThreadPoolExecutor(6) as pool:
            assert sum(pool.map(work, range(6))) == 240
        assert all(share.running == share.waiting == 0 for share in shares)


def test_runs_that_wait_go_to_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected swap"):
        Scheduler(memory=1)
    big = np.zeros(20_000, np.int64)
    rounds = np.array(300)
    with Scheduler(threads=1, quantum=0.0005, memory=1 << 18, swap=tmp_path) as scheduler:
        share = scheduler.share("big")
        machines = [VirtualMachine(programs.add()) for _ in range(6)]
        jobs = [
            scheduler.submit(share, partial(vm["main"].start, big, rounds))
            for vm in machines
        ]
        doomed = endless(scheduler, share)
        for job in jobs:
            assert (job.result() == 300).all()
        assert scheduler.swapped > 0
        doomed.cancel()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threads": 0}, "threads: expected at least 1"), ({"quantum": 0}, "quantum: expected")],
)
def test_wrong_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scheduler(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"weight": 0}, "weight"), ({"slots": 0}, "slots"), ({"queue": -1}, "queue")],
)
def test_wrong_shares(options: dict[str, Any], message: str) -> None:
    with (
        Scheduler(threads=1) as scheduler,
        pytest.raises(ValueError, match=f"share bad: {message}: expected"),
    ):
        scheduler.share("bad", **options)


def test_timeouts_of_any_length() -> None:
    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("any")
        for timeout in (float("inf"), 1e300, 1e12):
            shapes(scheduler, share, timeout=timeout).result()
        with pytest.raises(ValueError, match="timeout: expected seconds, got nan"):
            shapes(scheduler, share, timeout=float("nan"))
        with pytest.raises(DeadlineError):  # the thread of the deadlines still runs
            endless(scheduler, share, timeout=0.02).result(10)
        shapes(scheduler, share, timeout=-1.0).exception(10)


def test_deadlines_of_ended_calls_are_forgotten() -> None:
    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("many")
        jobs = []
        for _ in range(3_000):
            jobs.append(shapes(scheduler, share, timeout=1e6))
            jobs[-1].result()
        assert len(scheduler._deadlines) < 1_100


def test_calls_that_were_stopped_before_their_turn_are_forgotten() -> None:
    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("first", slots=1)
        running = endless(scheduler, share, priority=1)
        other = scheduler.share("other")
        for _ in range(3_000):
            shapes(scheduler, share).cancel()  # waits for a slot
            shapes(scheduler, other).cancel()  # waits for a turn
        assert max(len(share._line), len(scheduler._ready)) < 1_100
        waiting = shapes(scheduler, share)
        running.cancel()
        assert waiting.result(10)


def test_what_callbacks_raise_ends_no_thread() -> None:
    def callback(_: object) -> None:
        raise SystemExit

    with Scheduler(threads=1) as scheduler:
        share = scheduler.share("calls")
        for _ in range(3):
            job = shapes(scheduler, share)
            job.add_done_callback(callback)
            job.result(10)
        endless(scheduler, share, timeout=0.01).add_done_callback(callback)
        with pytest.raises(DeadlineError):
            endless(scheduler, share, timeout=0.02).result(10)


@pytest.mark.parametrize("is_late", [False, True])
def test_a_folder_for_runs_that_has_gone(tmp_path: Path, is_late: bool) -> None:
    """Runs stay in memory; those that are lost fail, and the threads go on."""
    swap = tmp_path / "swap"
    swap.mkdir()
    big, rounds = np.zeros(20_000, np.int64), np.array(900)
    with Scheduler(threads=1, quantum=0.0005, memory=1 << 18, swap=swap) as scheduler:
        share = scheduler.share("big")
        jobs = [
            scheduler.submit(share, partial(vm["main"].start, big, rounds))
            for vm in [VirtualMachine(programs.add()) for _ in range(6)]
        ]
        if is_late:
            until(lambda: scheduler.swapped > 0 or not scheduler.unfinished)
        shutil.rmtree(swap, ignore_errors=True)
        while swap.exists():  # a run was written meanwhile
            shutil.rmtree(swap, ignore_errors=True)
        swap.write_bytes(b"a file")
        shapes(scheduler, share, priority=1).result(10)
        for job in jobs:
            job.cancel()
            assert isinstance(job.exception(30), (type(None), CancelledError, OSError))
        shapes(scheduler, share).result(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_in_a_forked_process() -> None:
    script = """
        import os, sys, warnings
        import numpy as np, relaxvm
        from relaxvm.serve import Scheduler
        warnings.simplefilter("ignore")
        with Scheduler(threads=1) as scheduler:
            share = scheduler.share("s")
            pid = os.fork()
            if not pid:
                try:
                    scheduler.submit(share, lambda: None)
                except relaxvm.errors.RelaxVMError as error:
                    print(error, flush=True)
                os._exit(0)
            os.waitpid(pid, 0)
    """
    assert "no threads in a forked process" in children.run_script(textwrap.dedent(script))
