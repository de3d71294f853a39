#!/usr/bin/env python3
"""Write the table of sections in docs/format.md, from relaxvm/executable/formats/sections.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from generated import ROOT, Files, main, with_tables

from relaxvm.executable.formats.sections import SECTIONS

PAGE = "docs/format.md"


def sections() -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| section | magic | version | flags | content | rule of the verifier | limits |"
    yield "|---|---|---:|---:|---|---|---|"
    for section in SECTIONS.values():
        rule = "" if section.rule is None else f"`{section.rule}`"
        limits = ", ".join(f"`{name}`" for name in (*section.limits, "file_bytes"))
        yield (f"| `{section.name}` | `{section.magic.decode()}` | {section.version} | "
               f"{section.flags} | {section.about} | {rule} | {limits} |")


def filled(page: str) -> str:
    """Return the page with up-to-date tables."""
    return with_tables(page, {"sections": sections})


FILES: Files = {PAGE: lambda: filled((ROOT / PAGE).read_text(encoding="utf-8"))}


if __name__ == "__main__":
    sys.exit(main(FILES))
