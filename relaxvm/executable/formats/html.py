"""The HTML form of an executable, for notebooks.

Names and strings from the file are escaped; there are no scripts, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

from ...isa import FuncKind
from ...messages import describe, readable
from ..executable import FunctionInfo, VMExecutable
from .places import place_lines
from .text import format_instruction

__all__ = ["as_html"]

# The output is bounded, so that a notebook stays usable with any file.
_ROWS: Final = 200
"""Rows of a table."""
_INSTRUCTIONS: Final = 2000
"""Instructions, over all functions."""
_TEXT: Final = 80
"""Characters of a name, string or instruction."""


def as_html(ex: VMExecutable) -> str:
    """Return functions and constants as tables, with the code of each function folded away."""
    packed = [info for info in ex.functions if info.kind == FuncKind.PACKED]
    own = [info for info in ex.functions if info.kind != FuncKind.PACKED]
    constants = [
        (f"c[{i}]", _text(describe(value)), _text(ex.memory_scopes.get(i, "")))
        for i, value in enumerate(ex.constants[: _ROWS + 1])
    ]
    summary = (
        f"<b>VMExecutable</b>: {len(ex)} instructions, {len(ex.constants)} constants, "
        f"{len(packed)} packed functions"
    )
    if ex.debug is not None:
        summary += f"; debug information: {ex.debug.summary()}"
    heads = ("function", "kind", "parameters", "registers", "code")
    parts = [summary, _table(heads, _function_rows(ex, own))]
    if packed:
        names = ", ".join(f"<code>{_text(info.name)}</code>" for info in packed[:_ROWS])
        parts.append(_folded("packed functions", names + (", …" if len(packed) > _ROWS else "")))
    definitions = [line for data in ex.data_types.values() for line in data.definition()]
    if definitions:
        lines = [_text(line, cut=2 * _TEXT) for line in definitions[:_ROWS]]
        lines += ["…"] if len(definitions) > _ROWS else []
        parts.append(_folded("data types", f"<pre>{'<br>'.join(lines)}</pre>"))
    if constants:
        parts.append(_folded("constants", _table(("constant", "value", "memory scope"), constants)))
    return f'<div class="relaxvm-executable">{"".join(parts)}</div>'


def _function_rows(ex: VMExecutable, infos: Sequence[FunctionInfo]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    left = _INSTRUCTIONS
    for info in infos[: _ROWS + 1]:
        body = range(max(info.start_instr, 0), min(info.end_instr, len(ex)))
        if info.kind != FuncKind.BYTECODE:
            body = range(0)
        shown = body[:left]
        lines = [_text(line, cut=2 * _TEXT) for line in _code_lines(ex, shown)]
        if len(shown) < len(body):
            lines.append("…")
        left -= len(shown)
        listing = _folded(f"{len(body)} instructions", f"<pre>{'<br>'.join(lines)}</pre>")
        params = ", ".join(info.param_names) or str(max(info.num_args, 0))
        rows.append((
            f"<code>{_text(info.name)}</code>",
            FuncKind(info.kind).name.lower(),
            _text(params),
            str(info.register_file_size),
            listing if body else "",
        ))  # fmt: skip
    return rows


def _code_lines(ex: VMExecutable, pcs: range) -> Iterator[str]:
    places = {} if ex.debug is None else {p.pc: p for p in ex.debug.within(pcs.start, pcs.stop)}
    for pc in pcs:
        if ex.debug is not None and pc in places:
            yield from (f"      {line}" for line in place_lines(ex.debug, places[pc]))
        yield f"{pc:4d}  {format_instruction(ex, pc)}"


def _text(text: str, cut: int = _TEXT) -> str:
    """Return a text, truncated and escaped."""
    return escape(readable(text if len(text) <= cut else text[: cut - 1] + "…", cut))


def _table(heads: Iterable[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table; the cells are already HTML."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows[:_ROWS]]
    if len(rows) > _ROWS:
        lines.append("<tr><td>…</td></tr>")
    return f"<table>{''.join(lines)}</table>"


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
