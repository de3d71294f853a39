#!/usr/bin/env python3
"""Write the tables of docs/trust.md: the rules of the verifier and the limits."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import get_args

from generated import ROOT, Files, main, with_tables

from relaxvm.limits import Limits
from relaxvm.verify import RULES
from relaxvm.verify.rule import Subject

PAGE = "docs/trust.md"


def rules() -> Iterator[str]:
    """Yield the lines of the table of rules, by subject."""
    yield "| rule | what must hold |"
    yield "|---|---|"
    for subject in get_args(Subject):
        yield f"| **{subject}** | |"
        # By name: the order of registration depends on what was imported first.
        for rule in sorted(RULES.values(), key=lambda rule: rule.name):
            if rule.subject == subject:
                kind = " (a warning)" if rule.severity == "warning" else ""
                yield f"| `{rule.name}` | {rule.doc}{kind} |"


def limits() -> Iterator[str]:
    """Yield the lines of the table of limits: fields, meanings, and the two presets."""
    default, untrusted = Limits(), Limits.untrusted()
    meanings = _attributes(inspect.getdoc(Limits) or "")
    yield "| limit | meaning | `Limits()` | `Limits.untrusted()` |"
    yield "|---|---|---:|---:|"
    for field in fields(Limits):
        bounds = (_bound(getattr(preset, field.name)) for preset in (default, untrusted))
        yield f"| `{field.name}` | {meanings[field.name]} | {' | '.join(bounds)} |"


def _attributes(doc: str) -> dict[str, str]:
    """Return name -> text of the section "Attributes" of a docstring."""
    section = doc.partition("Attributes:\n")[2].split("\n\n")[0]
    items = re.split(r"^    (?=\w+: )", section, flags=re.MULTILINE)[1:]
    named = (item.partition(": ") for item in items)
    return {name: " ".join(text.split()) for name, _, text in named}


def _bound(value: float | None) -> str:
    if value is None:
        return "none"
    mib = 1 << 20
    if value >= mib and value % mib == 0:
        return f"{value // mib:,} MiB"
    return f"{value:,}"


TABLES: dict[str, Callable[[], Iterator[str]]] = {"rules": rules, "limits": limits}


def filled(page: str) -> str:
    """Return the page with up-to-date tables."""
    return with_tables(page, TABLES)


FILES: Files = {PAGE: lambda: filled((ROOT / PAGE).read_text(encoding="utf-8"))}


if __name__ == "__main__":
    sys.exit(main(FILES))
