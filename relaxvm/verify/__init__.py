"""The verifier: what must hold before anything of an executable runs.

`verify` looks at the whole executable and reports every problem at once.  The rules are a table
(`RULES`), each a small function in one of the modules here; none depends on another having passed.
Running a verified executable cannot touch memory outside of its registers, constants and tensors:
the core decodes the code without further checks.  Whether its answers are right is another matter.

Work is linear in the size of the executable and done by numpy over chunks of instructions.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..executable import VMExecutable
from ..limits import Limits
from ..registry import GLOBAL, Registry, load_shipped
from . import calls, flow, instructions, tables  # noqa: F401  (they fill the table of rules)
from .bounds import check_call_args, check_limits
from .code import Flow, chunks
from .image import Image
from .report import Problem, Report
from .rule import RULES, Finding, Hits, Rule
from .text import instruction_text

__all__ = ["RULES", "Problem", "Report", "Rule", "verify"]

_LISTED = 16
"""Problems of one rule that are listed in full; the others are counted."""

_PARTS = (
    "functions", "constants", "instr_offset", "instr_data", "memory_scopes", "debug",
    "__getattribute__",
)  # fmt: skip


def verify(
    executable: VMExecutable, *, limits: Limits | None = None, registry: Registry | None = None
) -> Report:
    """Check an executable against all rules.

    Args:
        executable: what is to be loaded or run.  Its contents are not trusted.
        limits: bounds on counts, ``Limits()`` if None.
        registry: where signatures of packed functions are found, the global one if None.  A name
            that is not there is no problem here: it is one when a VM is created.

    Raises:
        TypeError: `executable` is no VMExecutable, or of a subclass that redefines its parts.
        LimitError: a count is above its limit.
    """
    _check_type(executable)
    if registry is None:
        load_shipped()  # they have signatures
        registry = GLOBAL
    limits = limits if limits is not None else Limits()
    image = Image(executable, registry)
    check_limits(image, limits)
    found = _Found(image)
    rules = tuple(RULES.values())
    for rule in rules:
        if rule.table is not None:
            found.add_findings(rule, rule.table(image))
    flow_so_far = Flow(image)
    for chunk in chunks(image):
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


class _Found:
    """Collects what rules find, a limited number of each."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._problems: dict[str, list[Problem]] = {}
        self._count: dict[str, int] = {}

    def add_findings(self, rule: Rule, findings: Iterable[Finding]) -> None:
        for finding in findings:
            function = finding.function
            name = None if function is None else self._image.function_name(function)
            if self._room(rule, 1):
                self._list(rule, Problem(rule.name, finding.message, name, severity=rule.severity))

    def add_hits(self, rule: Rule, found: Iterable[Hits]) -> None:
        for hits in found:
            for i in range(self._room(rule, len(hits.pcs))):
                pc = int(hits.pcs[i])
                text = instruction_text(self._image, pc)
                name = self._image.function_at(pc)
                problem = Problem(rule.name, hits.message(i), name, pc, text, rule.severity)
                self._list(rule, problem)

    def _room(self, rule: Rule, more: int) -> int:
        """Count further problems of a rule, and say how many of them may be listed."""
        before = self._count.get(rule.name, 0)
        self._count[rule.name] = before + more
        return min(more, max(0, _LISTED - before))

    def _list(self, rule: Rule, problem: Problem) -> None:
        self._problems.setdefault(rule.name, []).append(problem)

    def report(self) -> Report:
        listed = [problem for problems in self._problems.values() for problem in problems]
        listed.sort(key=lambda p: (p.severity, -1 if p.pc is None else p.pc))
        omitted = {name: n - _LISTED for name, n in self._count.items() if n > _LISTED}
        image = self._image
        return Report(tuple(listed), omitted, len(image.functions), len(image.offsets))
