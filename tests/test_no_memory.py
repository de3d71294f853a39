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
    "load", "translate", "translate, call", "translate, call plainly", "call", "call by keyword",
    "call plainly", "call with limits", "call with a hook", "call with an error",
    "call with a shared tuple", "pickle", "profile",
)  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_allocation_that_fails(scenario: str) -> None:
    done = children.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), scenario],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert int(done.stdout) > 0
