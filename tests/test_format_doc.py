"""docs/format.md: its reader reads our files, its listings are up to date, its grammar is
complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm import Adt
from relaxvm.executable import VMExecutable
from relaxvm.executable.formats.sections import SECTIONS
from relaxvm.executable.formats.text import as_text, parse_text
from relaxvm.values import Shape

from .corpus import CORPUS
from .generators import load

PAGE = (Path(__file__).parent.parent / "docs" / "format.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [body for language, body in BLOCKS if language == "python"]
TEXTS = [body for language, body in BLOCKS if language == "text"]


def same(got: Any, want: Any) -> bool:
    if isinstance(want, np.ndarray):
        return got.dtype == want.dtype and got.shape == want.shape and bool(
            got.tobytes() == want.tobytes()
        )
    return got == want or (got != got and want != want)


def check_reader(read: Any, ex: VMExecutable) -> None:
    got = read(ex.to_bytes())
    assert got["functions"] == [
        (f.kind, f.name, f.start_instr, f.end_instr, f.num_args, f.register_file_size,
         list(f.param_names))
        for f in ex.functions
    ]  # fmt: skip
    assert dict(got["scopes"]) == ex.memory_scopes
    assert got["offsets"] == ex.instr_offset.tolist()
    assert got["words"] == ex.instr_data.tolist()
    constants = [tuple(c) if isinstance(c, Shape) else c for c in ex.constants]
    constants = [c.constructor if isinstance(c, Adt) else c for c in constants]
    assert len(got["constants"]) == len(constants)
    assert all(map(same, got["constants"], constants))


def needs_ml_dtypes(value: Any) -> bool:
    dtype = getattr(value, "dtype", value)
    return isinstance(dtype, np.dtype) and dtype.type.__module__ == "ml_dtypes"


def test_the_reader_of_the_page_reads_our_files() -> None:
    names: dict[str, Any] = {}
    exec(next(body for body in PROGRAMS if "def read_executable" in body), names)
    count = 0
    for case in CORPUS.values():
        if case.savable and not any(map(needs_ml_dtypes, case.executable.constants)):
            check_reader(names["read_executable"], case.executable)
            count += 1
    assert count > 50


@pytest.mark.parametrize("body", [t for t in TEXTS if t.startswith(("@", "relaxvm"))])
def test_listings_are_up_to_date(body: str) -> None:
    if body.startswith("relaxvm"):
        assert as_text(parse_text(body), complete=True) == body
    else:
        assert as_text(parse_text("c[0] = none\n" + body)) == body


def test_the_grammar_is_complete() -> None:
    grammar = next(text for text in TEXTS if text.startswith("text "))
    words = set(re.findall(r'"([^"]+)"', grammar))
    for word in ("packed_func", "vm_tir_func", "num_inputs", "registers", "start", "end", "call",
                 "ret", "goto", "If", "tensor", "string", "dtype", "int", "float", "bool", "none",
                 "base64", "void", "vm", "true", "false"):  # fmt: skip
        assert word in words, word


def test_the_table_of_sections_is_generated() -> None:
    generator = load("gen_sections")
    assert len(list(generator.sections())) == 2 + len(SECTIONS)
    assert "| `debug` |" in PAGE
    assert generator.filled(PAGE.replace("| `debug` |", "| `other` |")) == PAGE
