"""The verifier: checks an executable before any of its code runs.

`verify` checks the whole executable and reports all problems at once.  The rules are a table
(`RULES`); each is a small function in one of the modules here, and does not rely on other rules.
Running a verified executable cannot access memory outside of its registers, constants and tensors,
so the core decodes the code without further checks.  That its results are correct is not checked.

The time is linear in the size of the executable; the work is done by numpy on chunks of
instructions.

The names below are imported on first use: a program that was verified when it was put into the
cache runs without the verifier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report import Problem, Report
    from .rule import RULES, Rule
    from .verifier import verify

__all__ = ["RULES", "Problem", "Report", "Rule", "verify"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import verifier  # which imports the modules that register rules

    return getattr(verifier, name)
