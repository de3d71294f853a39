"""verify: an executable is checked against all rules before any of its code runs."""

from __future__ import annotations

from collections.abc import Iterable

from ..executable import VMExecutable
from ..limits import Limits
from ..registry import GLOBAL, Registry
from . import calls, flow, instructions, tables  # noqa: F401  (they register the rules)
from .bounds import check_call_args, check_limits
from .code import Flow, chunks
from .parts import Parts
from .report import Problem, Report
from .rule import RULES, Finding, Hits, Rule
from .text import instruction_text

__all__ = ["verify"]

_LISTED = 16
"""The most problems of one rule that are listed; further ones are only counted."""

_PARTS = (
    "functions", "constants", "instr_offset", "instr_data", "memory_scopes", "debug",
    "sections", "__getattribute__",
)  # fmt: skip


def verify(
    executable: VMExecutable, *, limits: Limits | None = None, registry: Registry | None = None
) -> Report:
    """Check an executable against all rules.

    Args:
        executable: the executable to check.  Its contents are not trusted.
        limits: bounds on counts, ``Limits()`` if None.
        registry: has the signatures of packed functions; the global one if None.  A missing name
            is not reported here, but when a VM is created.

    Raises:
        TypeError: `executable` is not a VMExecutable, or its class overrides an attribute.
        LimitError: a count exceeds its limit.
    """
    _check_type(executable)
    if registry is None:
        registry = GLOBAL
    limits = limits if limits is not None else Limits()
    parts = Parts(executable, registry)
    check_limits(parts, limits)
    found = _Collector(parts)
    rules = tuple(RULES.values())
    for rule in rules:
        if rule.table is not None:
            found.add_findings(rule, rule.table(parts))
    flow_so_far = Flow(parts)
    for chunk in chunks(parts):
        check_call_args(chunk, limits)
        flow_so_far.add(chunk)
        for rule in rules:
            if rule.code is not None:
                found.add_hits(rule, rule.code(chunk))
    for rule in rules:
        if rule.flow is not None:
            found.add_hits(rule, rule.flow(flow_so_far))
    return found.report()


def _check_type(executable: object) -> None:
    if not isinstance(executable, VMExecutable):
        raise TypeError(f"verify: expected a VMExecutable, got {type(executable).__name__}")
    for name in _PARTS:
        if getattr(type(executable), name) is not getattr(VMExecutable, name):
            raise TypeError(
                f"verify: {type(executable).__name__} redefines VMExecutable.{name}; "
                "what is verified has to be what is run"
            )


class _Collector:
    """Collects the problems that rules find, a limited number per rule."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._problems: dict[str, list[Problem]] = {}
        self._count: dict[str, int] = {}

    def add_findings(self, rule: Rule, findings: Iterable[Finding]) -> None:
        for finding in findings:
            function = finding.function
            name = None if function is None else self._parts.function_name(function)
            if self._listable(rule, 1):
                self._list(rule, Problem(rule.name, finding.message, name, severity=rule.severity))

    def add_hits(self, rule: Rule, found: Iterable[Hits]) -> None:
        for hits in found:
            for i in range(self._listable(rule, len(hits.pcs))):
                pc = int(hits.pcs[i])
                text = instruction_text(self._parts, pc)
                name = self._parts.function_at(pc)
                problem = Problem(rule.name, hits.message(i), name, pc, text, rule.severity)
                self._list(rule, problem)

    def _listable(self, rule: Rule, more: int) -> int:
        """Count `more` problems of a rule; return how many of them may be listed."""
        before = self._count.get(rule.name, 0)
        self._count[rule.name] = before + more
        return min(more, max(0, _LISTED - before))

    def _list(self, rule: Rule, problem: Problem) -> None:
        self._problems.setdefault(rule.name, []).append(problem)

    def report(self) -> Report:
        listed = [problem for problems in self._problems.values() for problem in problems]
        listed.sort(key=lambda p: (p.severity, -1 if p.pc is None else p.pc))
        omitted = {name: n - _LISTED for name, n in self._count.items() if n > _LISTED}
        parts = self._parts
        return Report(tuple(listed), omitted, len(parts.functions), len(parts.offsets))
