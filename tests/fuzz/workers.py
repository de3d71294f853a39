"""Run mutants in processes that may die, and say which mutant was the end of each.

A worker is forked per batch and sends one line per mutant.  When it dies or falls silent, the
mutant it was at is run once more in a process of its own, so that what an earlier mutant broke is
not laid at its door; then the rest of the batch goes on in a new worker.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

__all__ = ["Budget", "Result", "run_batch"]

Job = Callable[[int], str]
"""Run the mutant of an index; the line to report, which has no newline."""


@dataclass(frozen=True)
class Budget:
    """What a mutant may use.

    Attributes:
        cpu: seconds of processor time of a mutant that runs alone.
        silence: seconds without a report after which a worker is given up.
        memory: bytes of address space of a worker, None for any number.
    """

    cpu: int = 10
    silence: float = 20.0
    memory: int | None = 6 << 30


@dataclass(frozen=True)
class Result:
    """What became of one mutant.

    Attributes:
        index: of the mutant.
        line: what the job reported, or how its process ended: ``signal 11``, ``exit 1``, ``hang``.
        died: whether the process ended.
        alone: whether that happened again when the mutant ran alone.
    """

    index: int
    line: str
    died: bool = False
    alone: bool = False


def run_batch(
    job: Job, indices: range, budget: Budget, *, isolate: bool = False
) -> Iterator[Result]:
    """The results of all mutants of a batch, in order.

    Args:
        job: runs in the worker, its output goes nowhere.
        indices: the mutants.
        budget: what a mutant may use.
        isolate: give each mutant a process of its own from the start.
    """
    todo = indices
    while todo:
        if isolate:
            yield _alone(job, todo[0], budget)
            todo = todo[1:]
            continue
        done = 0
        for result in _worker(job, todo, budget, None):
            yield _alone(job, result.index, budget, otherwise=result) if result.died else result
            done += 1
        todo = todo[done:]


def _alone(job: Job, index: int, budget: Budget, otherwise: Result | None = None) -> Result:
    """Run a mutant in a process of its own; `otherwise` is the result if nothing happens there."""
    (result,) = _worker(job, range(index, index + 1), budget, budget.cpu)
    if result.died:
        return replace(result, alone=True)
    return otherwise or result


def _worker(job: Job, indices: range, budget: Budget, cpu: int | None) -> Iterator[Result]:
    """Results from a forked process; if it ends too early, how it ended, as the last one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(job, indices, writer, budget.memory, cpu)
    os.close(writer)
    done, hung = 0, False
    try:
        for line in _lines(reader, budget.silence):
            yield Result(indices[done], line)
            done += 1
    except TimeoutError:
        hung = True
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if done < len(indices):
        hung = hung or status == -signal.SIGXCPU
        end = "hang" if hung else f"signal {-status}" if status < 0 else f"exit {status}"
        yield Result(indices[done], end, died=True)


def _child(job: Job, indices: range, writer: int, memory: int | None, cpu: int | None) -> NoReturn:
    """The life of a worker."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        faulthandler.disable()  # it may write to a copy of stderr
        if memory is not None and sys.platform == "linux":  # macOS does not keep this limit
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if cpu is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
        for index in indices:
            os.write(writer, f"{job(index)}\n".encode(errors="replace"))
        os._exit(0)
    finally:
        os._exit(99)


def _lines(reader: int, silence: float) -> Iterator[str]:
    """Lines from a pipe until it is closed.

    Raises:
        TimeoutError: none came for `silence` seconds.
    """
    rest = b""
    while True:
        ready, _, _ = select.select([reader], [], [], silence)
        if not ready:
            raise TimeoutError
        piece = os.read(reader, 1 << 16)
        if not piece:
            return
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode() for line in lines)
