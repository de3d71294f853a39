"""A pytest plugin: ``assert a == b`` of executables and modules says where they differ.

It is loaded where relaxvm is installed, and imports nothing of it before an assertion fails.  The
fixture ``assert_same`` is `relaxvm.testing.assert_same`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

__all__ = ["assert_same", "pytest_assertrepr_compare"]

_MOST_LINES = 40


@pytest.fixture
def assert_same() -> Callable[..., Any]:
    """`relaxvm.testing.assert_same`."""
    from . import assert_same as function

    return function


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """What a failed ``==`` of two executables or modules shows."""
    if op != "==" or "relaxvm" not in sys.modules:
        return None
    executable = sys.modules.get("relaxvm.executable")
    if executable is not None:
        cls = executable.VMExecutable
        if isinstance(left, cls) and isinstance(right, cls):
            return _executables(left, right)
    ir = sys.modules.get("relaxvm.ir")
    if ir is not None and isinstance(left, ir.IRModule) and isinstance(right, ir.IRModule):
        return _differing_lines("modules", left.script(), right.script())
    return None


def _executables(left: Any, right: Any) -> list[str]:
    if left.as_text() == right.as_text():
        return ["executables differ in constants or debug information, not in their code"]
    return _differing_lines("executables", left.as_text(), right.as_text())


def _differing_lines(what: str, left: str, right: str) -> list[str]:
    import difflib

    lines = difflib.unified_diff(left.splitlines(), right.splitlines(), "left", "right", "", "", 2)
    shown = [line.rstrip("\n") for line in lines]
    more = [f"... {len(shown) - _MOST_LINES} more lines"] * (len(shown) > _MOST_LINES)
    return [f"{what} differ:", *shown[:_MOST_LINES], *more]
