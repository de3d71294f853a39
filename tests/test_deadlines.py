"""Every kernel and builtin ends soon after a limit or an interruption: see `time_attacks`."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from . import children
from .builtin_cases import own_builtins
from .memory_attacks import WITHOUT, without
from .time_attacks import BUILTINS, KERNELS, SOON, calls_of, kernels, machine

ROOT = Path(__file__).parents[1]
RUN = """
import runpy, sys
sys.path.append(sys.argv.pop(1))
runpy.run_module("tests.time_attacks", run_name="__main__")
"""

SLACK = 1.0
"""Seconds of processor time from the deadline to the end.  The documentation says 0.1; a loaded
machine takes longer, and waiting threads of BLAS use some, too."""

LONG = (
    "matmul", "linear", "einsum", "nn.conv1d", "nn.conv2d", "nn.max_pool2d", "nn.attention",
    "fused", "argsort", "relax.run.unique",
)  # fmt: skip
"""Some that cannot be done before the deadline."""


class Outcome(NamedTuple):
    """Of a call: the function, "result" or an error, and seconds of processor time."""

    name: str
    end: str
    seconds: float


def outcomes(how: str, *names: str) -> list[Outcome]:
    """Return the outcomes of the calls of functions, in a process of its own."""
    # Not by -m, which would import the relaxvm of the checkout instead of the installed one.
    command = [sys.executable, "-P", "-c", RUN, str(ROOT), how, *names]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = children.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [Outcome(name, end, float(seconds)) for name, end, seconds in rows]


def check(how: str, error: str, *names: str) -> None:
    found = outcomes(how, *names)
    assert list(dict.fromkeys(name for name, *_ in found)) == list(names)
    assert [each for each in found if each.seconds > SOON[how] + SLACK] == []
    assert {end for _, end, _ in found} <= {"result", error}
    ended = {name for name, end, _ in found if end == error}
    assert ended >= set(LONG) & set(names), found


def test_every_kernel_is_called() -> None:
    assert [name for name in sorted(kernels()) if not calls_of(name)] == []
    assert set(KERNELS) <= kernels()


def test_every_builtin_is_called_or_makes_nothing_large() -> None:
    reasons = {name for reason in WITHOUT for name in without(reason)}
    assert own_builtins() == set(BUILTINS) | reasons
    assert reasons.isdisjoint(BUILTINS)


def test_a_limit_ends_kernels() -> None:
    check("limit", "LimitError", *sorted(kernels()))


def test_a_limit_ends_builtins() -> None:
    check("limit", "LimitError", *BUILTINS)


@pytest.mark.skipif(sys.platform == "win32", reason="timers of POSIX")
def test_ctrl_c_ends_kernels() -> None:
    check("interrupt", "KeyboardInterrupt", *sorted(KERNELS))


@pytest.mark.skipif(sys.platform == "win32", reason="timers of POSIX")
def test_ctrl_c_ends_builtins() -> None:
    check("interrupt", "KeyboardInterrupt", *BUILTINS)


def test_cancel_ends_kernels() -> None:
    check("cancel", "CancelledError", *LONG)


def test_einsum_of_many_operands_does_not_search_an_order() -> None:
    args = KERNELS["einsum"][-1]()
    start = time.process_time()
    machine("relaxvm.kernel.einsum", args, wall_time=600.0)["main"](*args)
    assert time.process_time() - start < 10
