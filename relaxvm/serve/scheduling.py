"""Many runs on a few threads: fair shares, priorities, deadlines, quotas and back-pressure.

A call is a run that pauses between instructions (`relaxvm.vm.runs.Run`).  A thread resumes it for
one turn, some milliseconds, and puts it back, so an endless program delays the others by a turn.

Whose turn is next is decided by start-time fair queueing.  Each share, which is a model here, has a
virtual time, which advances by the time that its turns take over its weight.  A turn gets a start
tag, the greater of the share's virtual time and the scheduler's; the least tag is served first, and
the scheduler's time is that tag.  So shares that ask for much wait for each other, and one that
asks for little waits for nobody.  Within a share calls take turns.  Priorities come before all of
this.

Source: P. Goyal, H. Vin, H. Cheng, "Start-time Fair Queueing: A Scheduling Algorithm for Integrated
Services Packet Switching Networks", SIGCOMM 1996.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from ..core._threads import get_num_threads
from ..errors import (
    CancelledError,
    DeadlineError,
    QueueFullError,
    RelaxVMError,
)
from ..logs import INFO, log
from ..messages import readable
from ..vm.machine import VirtualMachine
from ..vm.runs import Run
from ..vm.saved_runs.loading import load_run

__all__ = ["Job", "Scheduler", "Share"]

_FIRST_STEPS: Final = 256
"""Instructions of the first turn of a call; later turns are as many as take a quantum."""
_MOST_STEPS: Final = 1 << 24
_REST: Final = 50e-6
"""Seconds between two turns of calls that pause."""
_SWAP_TURNS: Final = 3
"""Turns after which a paused run may go to disk: short ones are over sooner than they are saved."""
_LONGEST_WAIT: Final = 3600.0
"""Seconds after which the thread of the deadlines looks again: locks do not take any number."""
_ENDED: Final = 1_000
"""Lists keep calls that have ended until there are this many more of them than of others."""


class Share:
    """What a model, or another user of a scheduler, gets of it.

    Made by `Scheduler.share`.

    Attributes:
        name: for messages and statistics.
        weight: of its turns against those of others; 2 gets twice the time of 1.
        slots: the most calls that are begun at a time; further ones wait.
        queue: the most calls that wait; further ones are refused.
        waiting: calls that have not begun.
        running: calls that have begun and not ended.
        seconds: that its turns have taken.
    """

    __slots__ = (
        "_line", "_predicted", "_virtual", "name", "queue", "running", "seconds", "slots",
        "waiting", "weight",
    )  # fmt: skip

    def __init__(self, name: str, weight: float, slots: int, queue: int) -> None:
        self.name = name
        self.weight = weight
        self.slots = slots
        self.queue = queue
        self.waiting = 0
        self.running = 0
        self.seconds = 0.0
        self._virtual = 0.0
        self._predicted = 0.0  # seconds of a turn, a moving average
        self._line: list[tuple[int, int, Job]] = []  # of calls that wait for a slot

    def __repr__(self) -> str:
        return f"<Share {readable(self.name)}: {self.running} running, {self.waiting} waiting>"


class _Stage(Enum):
    WAITING = auto()
    """For a slot of its share."""
    READY = auto()
    """For a turn."""
    ACTIVE = auto()
    """A thread has it."""
    ENDED = auto()


class Job(Future[Any]):
    """A call in a scheduler: a future of its result, which can be cancelled while it runs.

    Attributes:
        share: whose it is.
        priority: greater ones go first.
        queued: seconds until it began; None before.
        used: seconds that its turns have taken.
        turns: how many it has had.
    """

    def __init__(
        self, scheduler: Scheduler, share: Share, begin: Callable[[], Run], priority: int
    ) -> None:
        super().__init__()
        self.share = share
        self.priority = priority
        self.queued: float | None = None
        self.used = 0.0
        self.turns = 0
        self._scheduler = scheduler
        self._begin: Callable[[], Run] | None = begin
        self._submitted = time.monotonic()
        self._stage = _Stage.WAITING
        self._run: Run | None = None
        self._swapped: tuple[VirtualMachine, Path] | None = None
        self._is_savable = True
        self._steps = _FIRST_STEPS
        self._charged = 0.0  # seconds that its share was charged for the turn to come
        self._reason: BaseException | None = None  # why it has to end
        self._outcome: tuple[Any, BaseException | None] = None, None

    def cancel(self) -> bool:
        """End it with a `CancelledError`: one that waits at once, one that runs at its next poll.

        Returns:
            False if it has ended.
        """
        text = f"the call of {readable(self.share.name)} was cancelled"
        return self._scheduler._stop(self, CancelledError(text))

    def _complete(self) -> None:
        """Tell those who wait; without a lock, since they may call the scheduler."""
        value, error = self._outcome
        self._outcome = None, None
        try:
            if error is None:
                self.set_result(value)
            else:
                self.set_exception(error)
        except InvalidStateError:
            pass
        except BaseException as raised:  # of a callback; errors are logged, but not SystemExit
            log("serve", INFO, "%s: a callback has raised %r", self.share.name, raised)


class Scheduler:
    """Runs calls on its threads, until it is closed.

    ::

        with Scheduler() as scheduler:
            share = scheduler.share("digits", weight=2)
            job = scheduler.submit(share, lambda: vm["main"].start(x), timeout=1.0)
            print(job.result())

    ``await asyncio.wrap_future(job)`` waits in an event loop; cancelling that cancels the job.
    Kernels have threads of their own, which all calls share: see `relaxvm.set_num_threads`.

    Args:
        threads: how many calls go on at a time; by default the threads of kernels, at least two.
        quantum: seconds of a turn.  A kernel that takes longer is not interrupted.
        memory: bytes of runs above which those that pause go to disk until their next turn, while
            others wait for one; None for no bound.
        swap: the folder for these runs; needed with `memory`.

    Raises:
        ValueError: a number is out of range, or there is `memory` without `swap`.
    """

    def __init__(
        self,
        *,
        threads: int | None = None,
        quantum: float = 0.002,
        memory: int | None = None,
        swap: str | os.PathLike[str] | None = None,
    ) -> None:
        count = max(2, get_num_threads()) if threads is None else threads
        if count < 1:
            raise ValueError(f"Scheduler: threads: expected at least 1, got {threads}")
        if not quantum > 0:
            raise ValueError(f"Scheduler: quantum: expected seconds above 0, got {quantum}")
        if memory is not None and swap is None:
            raise ValueError("Scheduler: memory: expected swap, a folder for runs, beside it")
        self._process = os.getpid()
        self._quantum = quantum
        self._memory = memory
        self._swap = None if swap is None else Path(swap)
        lock = threading.Lock()
        self._turns = threading.Condition(lock)
        """Of the threads that wait for a job."""
        self._clock = threading.Condition(lock)
        """Of the thread that waits for deadlines."""
        self._over = threading.Condition(lock)
        """Of `close`, which waits for all jobs."""
        self._ready: list[tuple[int, float, int, Job]] = []
        self._deadlines: list[tuple[float, int, weakref.ref[Job]]] = []
        """Of calls that may have ended: their results are not kept for this."""
        self._unfinished: set[Job] = set()
        self._machines: Counter[VirtualMachine] = Counter()
        self._numbers = itertools.count()
        self._virtual = 0.0
        self._is_closed = False
        self.swapped = 0
        """How many times a run has gone to disk."""
        self._workers = [
            threading.Thread(target=self._work, name=f"relaxvm-serve-{i}", daemon=True)
            for i in range(count)
        ]
        watch = threading.Thread(target=self._watch, name="relaxvm-serve-clock", daemon=True)
        self._threads = [*self._workers, watch]
        for thread in self._threads:
            thread.start()

    # For users

    def share(
        self, name: str, *, weight: float = 1.0, slots: int = 64, queue: int = 1_000
    ) -> Share:
        """A new share; see `Share` for its attributes.

        Raises:
            ValueError: a number is out of range.
        """
        if not 0 < weight < float("inf"):
            raise ValueError(f"share {readable(name)}: weight: expected above 0, got {weight}")
        if slots < 1:
            raise ValueError(f"share {readable(name)}: slots: expected at least 1, got {slots}")
        if queue < 0:
            raise ValueError(f"share {readable(name)}: queue: expected at least 0, got {queue}")
        return Share(name, weight, slots, queue)

    def submit(
        self,
        share: Share,
        begin: Callable[[], Run],
        *,
        priority: int = 0,
        timeout: float | None = None,
    ) -> Job:
        """Queue a call.

        Args:
            share: whose call it is.
            begin: makes its run, in a thread of the scheduler: ``lambda: vm["main"].start(x)``.
            priority: calls of greater ones go first, whatever their shares are.
            timeout: seconds after which it ends with a `DeadlineError`.

        Raises:
            QueueFullError: as many calls of the share wait as may.
            RelaxVMError: the scheduler is closed, or this is a fork of its process, in which it has
                no threads.
            ValueError: `timeout` is no number.
        """
        if timeout is not None and math.isnan(timeout):
            raise ValueError("submit: timeout: expected seconds, got nan")
        if os.getpid() != self._process:
            raise RelaxVMError("the scheduler has no threads in a forked process; make one there")
        job = Job(self, share, begin, priority)
        with self._turns:
            if self._is_closed:
                raise RelaxVMError("the scheduler is closed")
            if share.running >= share.slots and share.waiting >= share.queue:
                raise QueueFullError(
                    f"{readable(share.name)}: {share.waiting} calls wait already, the most that "
                    f"may; try again later"
                )
            self._unfinished.add(job)
            share.waiting += 1
            number = next(self._numbers)
            heapq.heappush(share._line, (-priority, number, job))
            if timeout is not None:
                entry = job._submitted + timeout, number, weakref.ref(job)
                heapq.heappush(self._deadlines, entry)
                if self._deadlines[0] is entry:
                    self._clock.notify()
            self._forget_ended(share)
            self._admit(share)
        return job

    @property
    def unfinished(self) -> int:
        """How many calls wait or run."""
        return len(self._unfinished)

    def close(self, timeout: float | None = None) -> bool:
        """Take no more calls, wait for those that there are, and end the threads.

        Args:
            timeout: seconds after which calls that go on are cancelled.

        Returns:
            Whether none had to be cancelled.
        """
        with self._turns:
            self._is_closed = True
            ended = self._over.wait_for(lambda: not self._unfinished, timeout)
            left = list(self._unfinished)
        for job in left:
            text = f"{readable(job.share.name)}: the scheduler was closed during the call"
            self._stop(job, CancelledError(text))
        with self._turns:
            self._turns.notify_all()
            self._clock.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        return ended

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Close it; where the block ends with an exception, calls that go on are cancelled."""
        self.close(None if kind is None else 0.0)

    # With the lock

    def _admit(self, share: Share) -> None:
        """Let calls that wait for slots have those that are free."""
        while share._line and share.running < share.slots:
            job = heapq.heappop(share._line)[2]
            if job._stage is _Stage.WAITING:
                share.waiting -= 1
                share.running += 1
                self._queue(job)

    def _queue(self, job: Job) -> None:
        """Let it wait for a turn, whose start tag is known now and whose length is guessed."""
        share = job.share
        start = max(self._virtual, share._virtual)
        job._charged = share._predicted
        share._virtual = start + job._charged / share.weight
        job._stage = _Stage.READY
        heapq.heappush(self._ready, (-job.priority, start, next(self._numbers), job))
        self._turns.notify()

    def _account(self, job: Job, seconds: float) -> None:
        """A turn has ended: correct what was guessed."""
        share = job.share
        job.turns += 1
        job.used += seconds
        share.seconds += seconds
        share._virtual += (seconds - job._charged) / share.weight
        share._predicted += (seconds - share._predicted) / 8

    def _end(self, job: Job) -> None:
        share = job.share
        if job._stage is _Stage.WAITING:
            share.waiting -= 1
        else:
            share.running -= 1
        job._stage = _Stage.ENDED
        job._run = job._begin = None
        self._unfinished.discard(job)
        self._admit(share)
        if not self._unfinished:
            for condition in (self._over, self._turns, self._clock):
                condition.notify_all()  # the threads of a closed scheduler end now

    def _forget_ended(self, share: Share) -> None:
        """Forget calls that have ended, where most are such ones: stopped before their turn, or
        long before their deadline."""
        count = len(self._unfinished)
        if len(self._deadlines) > 2 * count + _ENDED:
            self._deadlines = [
                entry for entry in self._deadlines
                if (job := entry[2]()) is not None and job._stage is not _Stage.ENDED
            ]  # fmt: skip
            heapq.heapify(self._deadlines)
        if len(self._ready) > 2 * count + _ENDED:
            self._ready = [entry for entry in self._ready if entry[3]._stage is _Stage.READY]
            heapq.heapify(self._ready)
        if len(share._line) > 2 * share.waiting + _ENDED:
            share._line = [entry for entry in share._line if entry[2]._stage is _Stage.WAITING]
            heapq.heapify(share._line)

    # The threads

    def _work(self) -> None:
        while True:
            with self._turns:
                while not self._ready:
                    if self._is_closed and not self._unfinished:
                        return
                    self._turns.wait()
                _, start, _, job = heapq.heappop(self._ready)
                if job._stage is not _Stage.READY:  # it was stopped
                    continue
                job._stage = _Stage.ACTIVE
                self._virtual = max(self._virtual, start)
            begun = time.perf_counter()
            is_paused = self._turn(job)
            seconds = time.perf_counter() - begun
            if is_paused:
                wanted = job._steps * self._quantum / max(seconds, 1e-6)
                job._steps = max(1, min(_MOST_STEPS, 8 * job._steps, int(wanted)))
                self._swap_out(job)
                # A turn holds the interpreter's lock, and other threads ask for it only after the
                # switch interval, which is longer than a turn: an event loop would starve.
                time.sleep(_REST)
            with self._turns:
                self._account(job, seconds)
                if is_paused and job._reason is None:
                    self._queue(job)
                    continue
                if job._reason is not None and (is_paused or job._outcome[1] is not None):
                    job._outcome = None, job._reason
                self._drop(job)
                self._end(job)
            job._complete()
            del job  # this thread may wait for long

    def _turn(self, job: Job) -> bool:
        """Let it go on; return whether it has paused."""
        try:
            run = job._run
            if run is None:
                run = job._run = self._started(job)
            if job._reason is not None:
                run.cancel()
                return True
            if run.resume_at(steps=job._steps):
                return True
            job._outcome = run.result(), None
        except BaseException as error:  # also what a program raises to end the process
            job._outcome = None, error
        return False

    def _started(self, job: Job) -> Run:
        """The run of a job: a new one, or that from the disk."""
        if job._swapped is not None:
            vm, path = job._swapped
            run = load_run(path, vm)
            job._swapped = None
            _remove(path)
            return run
        job.queued = time.monotonic() - job._submitted
        assert job._begin is not None
        run = job._begin()
        if self._memory is not None:
            with self._turns:
                self._machines[run.vm] += 1
        return run

    def _swap_out(self, job: Job) -> None:
        """Write a run that has paused to the disk, if the memory of all is above the bound."""
        run = job._run
        if (
            self._memory is None or self._swap is None or run is None or not job._is_savable
            or job._reason is not None or job.turns < _SWAP_TURNS
            or len(self._ready) < len(self._workers)
        ):  # fmt: skip
            return
        with self._turns:
            machines = list(self._machines)
        if sum(vm.memory_stats().live_bytes for vm in machines) <= self._memory:
            return
        path = self._swap / f"relaxvm-{os.getpid()}-{id(self):x}-{next(self._numbers)}.run"
        try:
            run.save(path)
        except Exception as error:  # whatever hinders it, this thread goes on
            job._is_savable = False  # it stays in memory
            log("serve", INFO, "%s: a run stays in memory: %s", job.share.name, error)
            return
        job._swapped = run.vm, path
        job._run = None
        self.swapped += 1

    def _drop(self, job: Job) -> None:
        """Forget what an ended job has in memory and on disk."""
        vm = None if job._run is None else job._run.vm
        if job._swapped is not None:
            vm, path = job._swapped
            job._swapped = None
            _remove(path)
        if vm is not None and self._memory is not None:
            self._machines[vm] -= 1
            if self._machines[vm] <= 0:
                del self._machines[vm]

    def _stop(self, job: Job, reason: BaseException) -> bool:
        """End a job for a reason; return False if it has ended."""
        with self._turns:
            if job._stage is _Stage.ENDED:
                return False
            if job._reason is None:
                job._reason = reason
            run = job._run
            is_active = job._stage is _Stage.ACTIVE
            if not is_active:
                job._outcome = None, job._reason
                self._drop(job)
                self._end(job)
        if not is_active:
            job._complete()
        if run is not None:
            run.cancel()
        return True

    def _watch(self) -> None:
        """End jobs at their deadlines."""
        while True:
            late = []
            with self._clock:
                now = time.monotonic()
                while self._deadlines and self._deadlines[0][0] <= now:
                    late.append(heapq.heappop(self._deadlines)[2]())
                if not late:
                    if self._is_closed and not self._unfinished:
                        return
                    left = self._deadlines[0][0] - now if self._deadlines else _LONGEST_WAIT
                    self._clock.wait(min(left, _LONGEST_WAIT))
            for job in filter(None, late):
                text = f"the call of {readable(job.share.name)} has not ended in its time"
                self._stop(job, DeadlineError(text))


def _remove(path: Path) -> None:
    """Remove the file of a run, if it can be: its call does not depend on that."""
    with suppress(OSError):
        path.unlink()
