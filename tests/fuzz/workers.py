"""Run mutants in processes that may die, and report which mutant killed each process.

A worker is forked per batch and sends one line per mutant.  When it dies or stops reporting, its
current mutant runs again in a separate process, because an earlier mutant may have caused the
failure; then the rest of the batch continues in a new worker.
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
    """Resources that a mutant may use.

    Attributes:
        cpu: seconds of processor time of a mutant.
        silence: seconds without a report after which a worker is killed as blocked.  Must be long,
            because a busy machine is slow; endless loops are for `cpu`.
        memory: limit on the address space of a worker, in bytes, or None.
    """

    cpu: float = 60.0
    silence: float = 900.0
    memory: int | None = 6 << 30


@dataclass(frozen=True)
class Result:
    """The result of one mutant.

    Attributes:
        index: of the mutant.
        line: what the job reported, or how its process ended: ``signal 11``, ``exit 1``, ``hang``.
        died: whether the process ended.
        alone: whether the process also died when the mutant ran alone.
    """

    index: int
    line: str
    died: bool = False
    alone: bool = False


def run_batch(
    job: Job, indices: range, budget: Budget, *, isolate: bool = False
) -> Iterator[Result]:
    """Return the results of all mutants of a batch, in order.

    Args:
        job: runs in the worker; its output is discarded.
        indices: the mutants.
        budget: what a mutant may use.
        isolate: run each mutant in its own process from the start.
    """
    todo = indices
    while todo:
        if isolate:
            yield _alone(job, todo[0], budget)
            todo = todo[1:]
            continue
        done = 0
        for result in _worker(job, todo, budget):
            yield _alone(job, result.index, budget, otherwise=result) if result.died else result
            done += 1
        todo = todo[done:]


def _alone(job: Job, index: int, budget: Budget, otherwise: Result | None = None) -> Result:
    """Run a mutant in its own process; return `otherwise` if that process does not die."""
    (result,) = _worker(job, range(index, index + 1), budget)
    if result.died:
        return replace(result, alone=True)
    return otherwise or result


def _worker(job: Job, indices: range, budget: Budget) -> Iterator[Result]:
    """Yield results from a forked process; if it ends too early, the last one says how."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(job, indices, writer, budget)
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
        hung = hung or status == -signal.SIGPROF
        end = "hang" if hung else f"signal {-status}" if status < 0 else f"exit {status}"
        yield Result(indices[done], end, died=True)


def _child(job: Job, indices: range, writer: int, budget: Budget) -> NoReturn:
    """Run a worker: the child process."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        faulthandler.disable()  # it may write to a copy of stderr
        if budget.memory is not None and sys.platform == "linux":  # macOS does not keep this limit
            resource.setrlimit(resource.RLIMIT_AS, (budget.memory, budget.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process
        for index in indices:
            signal.setitimer(signal.ITIMER_PROF, budget.cpu)
            os.write(writer, f"{job(index)}\n".encode(errors="replace"))
        os._exit(0)
    finally:
        os._exit(99)


def _lines(reader: int, silence: float) -> Iterator[str]:
    """Yield lines from a pipe until it is closed.

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
