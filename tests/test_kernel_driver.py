"""The kernels of the best set in a program of C, with AddressSanitizer; see `tests.kernel_driver`.

``make asan-kernels``, ``make ubsan-kernels`` and ``make tsan-kernels`` drive all sets, optimized,
with all checks and with all of the large calls.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from relaxvm.kernels.cpu import SETS

from . import children, kernel_driver


def has_sanitizers(folder: Path) -> bool:
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    try:
        done = children.run(
            ["gcc", *kernel_driver.SANITIZERS["address"], str(source), "-o", str(folder / "empty")],
            capture_output=True, check=False,
        )  # fmt: skip
    except OSError:
        return False
    if done.returncode:
        return False
    return not children.run([str(folder / "empty")], check=False).returncode


@pytest.mark.skipif(not SETS or sys.platform != "linux", reason="no sets, or not Linux")
def test_the_best_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "gcc")
    if not has_sanitizers(tmp_path):
        pytest.skip("no gcc with sanitizers")
    best = SETS[:1]
    program = kernel_driver.build("quick", tmp_path, 2, best)
    wrong = kernel_driver.started("quick", program, "wrong").stderr
    assert any(text in wrong for text in kernel_driver.NOTICED["quick"])
    calls = [*kernel_driver.calls_of(12, best), *list(kernel_driver.large_calls(best))[::4]]
    found = kernel_driver.run("quick", program, tmp_path, calls)
    assert not found, "\n".join(found)


def test_results_that_differ_are_found(tmp_path: Path) -> None:
    """A program that answers wrongly: the number of each call is what it returns."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nhead -c 100000 /dev/zero > $2\necho 1 sections\n")
    program.chmod(0o755)
    calls = [call for call in kernel_driver.calls_of(2, SETS[:1]) if call.wanted is not None][:5]
    found = kernel_driver.run("none", program, tmp_path, calls)
    assert sum("other results than from Python" in line for line in found) >= 4
