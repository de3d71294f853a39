"""Every allocation may fail: that raises, loses nothing, and leaves the process as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import children

pytest.importorskip("_testcapi", reason="an interpreter that can let allocations fail")
if sys.platform == "win32":
    pytest.skip("starts processes by fork", allow_module_level=True)

PROGRAM = Path(__file__).parent / "no_memory.py"
SCENARIOS = (
    "load", "translate, call", "translate, call plainly", "call", "call by keyword",
    "call plainly", "call with limits", "call with a hook", "call with an error",
    "call with a shared tuple", "call that is refused", "call that is refused for its frame",
    "census", "view", "pickle", "profile",
)  # fmt: skip
"""Not "translate" by itself, which is the first part of "translate, call"."""


PURE_PYTHON = """
import _testcapi

def total(numbers):
    return sum(number for number in numbers)

for at in range(40):
    _testcapi.set_nomemory(at, at + 1)
    try:
        total((1, 2))
    except MemoryError:
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""

PURE_NUMPY = """
import _testcapi
import numpy

numbers = numpy.arange(9)
for at in range(200):
    _testcapi.set_nomemory(at, at + 1)
    try:
        (numbers < 3).all(), numbers.max(), numbers.max(initial=0)
        numpy.array_equal(numbers, numbers)
    except (MemoryError, SystemError):
        pass
    finally:
        _testcapi.remove_mem_hooks()
"""

REDUCTIONS = {"load", "pickle"}
"""Scenarios in which numpy reduces arrays."""


@pytest.fixture(scope="module")
def interpreter() -> None:
    """An interpreter that does not crash by itself, as 3.12.1 and 3.13.0 do where there is no
    memory for a generator: a crash of relaxvm cannot be told from that."""
    done = children.run([sys.executable, "-c", PURE_PYTHON], capture_output=True)
    if done.returncode:
        pytest.skip("this Python crashes in plain Python code if an allocation fails")


@pytest.fixture(scope="module")
def numpy_crashes() -> bool:
    """Whether numpy crashes by itself, as 1.26 does where there is no memory for a reduction."""
    return children.run([sys.executable, "-c", PURE_NUMPY], capture_output=True).returncode < 0


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_allocation_that_fails(scenario: str, numpy_crashes: bool) -> None:
    if numpy_crashes and scenario in REDUCTIONS:
        pytest.skip("this numpy crashes by itself if an allocation fails")
    done = children.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), scenario],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert int(done.stdout) > 0
