"""The result of the verifier: `Problem` and `Report`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from ..errors import VerifyError

__all__ = ["Problem", "Report", "Severity"]

Severity = Literal["error", "warning"]

_SHOWN_IN_ERROR: Final = 8
"""The most problems in the message of a VerifyError; the report has all of them."""


class Problem(NamedTuple):
    """One violation of a rule.

    Attributes:
        rule: name of the rule, a key of `relaxvm.verify.RULES`.
        message: what was expected and what was found.
        function: name of the function concerned, if it has a readable one.
        pc: the instruction, counted from the start of the executable.
        instruction: its text.
        severity: an executable with errors is not run; warnings do not prevent it.
    """

    rule: str
    message: str
    function: str | None = None
    pc: int | None = None
    instruction: str | None = None
    severity: Severity = "error"

    def __str__(self) -> str:
        place = []
        if self.function is not None:
            place.append(self.function)
        if self.pc is not None:
            place.append(f"pc {self.pc}")
        where = ", ".join(place) + ": " if place else ""
        what = f" in `{self.instruction}`" if self.instruction else ""
        return f"{self.severity}[{self.rule}] {where}{self.message}{what}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain data for JSON."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "message": self.message,
            "function": self.function,
            "pc": self.pc,
            "instruction": self.instruction,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a verification.

    Attributes:
        problems: errors first, then warnings, each in order of position; if a rule is broken very
            often, only the first cases.
        omitted: rule -> number of further cases that are not listed.
        num_functions, num_instructions: the size of the executable.
    """

    problems: tuple[Problem, ...] = ()
    omitted: Mapping[str, int] = field(default_factory=dict)
    num_functions: int = 0
    num_instructions: int = 0

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that make the executable invalid."""
        return tuple(p for p in self.problems if p.severity == "error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that do not prevent it from running."""
        return tuple(p for p in self.problems if p.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether the executable is valid: there are no errors."""
        return not self.errors

    def count(self, severity: Severity) -> int:
        """Return the number of errors or warnings, including the omitted ones."""
        listed = [p.rule for p in self.problems if p.severity == severity]
        return len(listed) + sum(self.omitted.get(rule, 0) for rule in set(listed))

    def check(self) -> None:
        """Raise an exception unless `ok`.

        Raises:
            VerifyError: the message has the first errors, the attribute `report` the whole report.
        """
        errors = self.errors
        if not errors:
            return
        total = self.count("error")
        lines = [f"executable refused, {_counted(total, 'error')}:"]
        lines.extend(f"  {problem}" for problem in errors[:_SHOWN_IN_ERROR])
        if total > _SHOWN_IN_ERROR:
            lines.append(f"  ... and {total - _SHOWN_IN_ERROR} more")
        raise VerifyError("\n".join(lines), self)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        lines.extend(f"... and {n} more of [{rule}]" for rule, n in self.omitted.items())
        errors = _counted(self.count("error"), "error")
        warnings = _counted(self.count("warning"), "warning")
        functions = _counted(self.num_functions, "function")
        instructions = _counted(self.num_instructions, "instruction")
        lines.append(f"{functions}, {instructions}: {errors}, {warnings}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {
            "ok": self.ok,
            "errors": self.count("error"),
            "warnings": self.count("warning"),
            "functions": self.num_functions,
            "instructions": self.num_instructions,
            "problems": [problem.to_dict() for problem in self.problems],
            "omitted": dict(self.omitted),
        }


def _counted(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"
