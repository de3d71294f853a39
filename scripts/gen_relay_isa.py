#!/usr/bin/env python3
"""Generate the table of instructions in docs/relay-isa.md from ``relaxvm/relay_isa/table.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from generated import ROOT, Files, main, table, with_tables

from relaxvm.relay_isa.table import DIALECTS, INSTRUCTIONS, InstructionSpec, Kind

PAGE = "docs/relay-isa.md"


def syntax(spec: InstructionSpec, dialect: str) -> str:
    """An instruction as the documents write it."""
    operands = [
        f"*{o.name}" if o.kind in (Kind.READS, Kind.NUMBERS) else o.name
        for o in spec.operands[dialect]
    ]
    return f"`{spec.name_in(dialect)} {', '.join(operands)}`".replace(" `", "`")


def rows() -> Iterator[tuple[str, ...]]:
    for spec in INSTRUCTIONS:
        forms: dict[str, list[str]] = {}
        for dialect in DIALECTS:
            if dialect in spec.operands:
                forms.setdefault(syntax(spec, dialect), []).append(dialect)
        for i, (form, dialects) in enumerate(forms.items()):
            where = "all" if len(dialects) == len(DIALECTS) else ", ".join(dialects)
            yield form, where, spec.doc if i == 0 else ""


def page() -> str:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    head = ("instruction", "dialects", "meaning")
    return with_tables(text, {"instructions": lambda: table(head, rows())})


FILES: Files = {PAGE: page}

if __name__ == "__main__":
    sys.exit(main(FILES))
