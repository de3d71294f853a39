"""The table of rules, and the types in which rules report violations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .code import Chunk, Flow
from .parts import Parts, Words
from .report import Severity

__all__ = ["RULES", "Finding", "Hits", "Rule", "code_rule", "flow_rule", "marked", "table_rule"]


class Finding(NamedTuple):
    """A violation in the tables: the message, and the index of the function if it concerns one."""

    message: str
    function: int | None = None


class Hits(NamedTuple):
    """Violations in the code: the instructions, and a function that makes the i-th message.

    A message is only made if it is shown, so a rule that fails a million times costs only its
    arrays.
    """

    pcs: Words
    message: Callable[[int], str]


def marked(pcs: Words, bad: NDArray[np.bool_], text: str, *columns: Words) -> Iterator[Hits]:
    """Yield the instructions that `bad` marks, if there are any.

    Args:
        pcs: int64[n], instructions.
        bad: bool[n], which of them break the rule.
        text: the message, a format string.
        columns: int64[n] each, the values for the format string.
    """
    if bad.any():
        where = np.flatnonzero(bad)
        yield Hits(pcs[where], lambda i: text.format(*(column[where[i]] for column in columns)))


Subject = Literal["parts", "functions", "constants", "code", "control flow", "calls"]
TableCheck = Callable[[Parts], Iterable[Finding]]
CodeCheck = Callable[[Chunk], Iterable[Hits]]
FlowCheck = Callable[[Flow], Iterable[Hits]]


class Rule(NamedTuple):
    """A row of the table.

    Attributes:
        name: its name in problems.
        subject: its heading in the documentation.
        severity: the severity of its problems.
        doc: what must hold, in one sentence.
        table, code, flow: the check; exactly one of the three is set.
    """

    name: str
    subject: Subject
    severity: Severity
    doc: str
    table: TableCheck | None = None
    code: CodeCheck | None = None
    flow: FlowCheck | None = None


RULES: Final[dict[str, Rule]] = {}
"""Every rule by name, in the order of the report."""


def table_rule(
    subject: Subject, severity: Severity = "error"
) -> Callable[[TableCheck], TableCheck]:
    """Register a check of the function table, the constants or other parts."""

    def register(check: TableCheck) -> TableCheck:
        _register(Rule(_name(check), subject, severity, _doc(check), table=check))
        return check

    return register


def code_rule(subject: Subject, severity: Severity = "error") -> Callable[[CodeCheck], CodeCheck]:
    """Register a check of instructions, one chunk at a time."""

    def register(check: CodeCheck) -> CodeCheck:
        _register(Rule(_name(check), subject, severity, _doc(check), code=check))
        return check

    return register


def flow_rule(subject: Subject, severity: Severity = "error") -> Callable[[FlowCheck], FlowCheck]:
    """Register a check of the control flow of the whole code."""

    def register(check: FlowCheck) -> FlowCheck:
        _register(Rule(_name(check), subject, severity, _doc(check), flow=check))
        return check

    return register


def _register(rule: Rule) -> None:
    if rule.name in RULES:
        raise ValueError(f"rule {rule.name!r} is registered twice")
    RULES[rule.name] = rule


def _name(check: Callable[..., object]) -> str:
    return check.__name__.strip("_").replace("_", "-")


def _doc(check: Callable[..., object]) -> str:
    """Return the first paragraph of the docstring, on one line."""
    return " ".join((inspect.getdoc(check) or "").split("\n\n")[0].split())
