"""The HTML form: everything is escaped and bounded."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from relaxvm.executable import FunctionInfo, VMExecutable
from relaxvm.executable.formats.html import as_html
from relaxvm.isa import FuncKind
from relaxvm.values import Shape

from .corpus import CORPUS
from .format_strategies import by_hand, odd_executables, text_constants


class Page(HTMLParser):
    """Checks that tags are known, balanced and only have a class attribute; collects text."""

    KNOWN = ("div", "b", "table", "tr", "th", "td", "code", "details", "summary", "pre", "br")

    def __init__(self, source: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.text = ""
        self.cells: list[str] = []
        self.feed(source)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in self.KNOWN
        assert attrs in ([], [("class", "relaxvm-executable")])
        if tag != "br":
            self.stack.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.stack:
            self.cells[-1] += data


def test_a_page() -> None:
    page = Page(by_hand()._repr_html_())
    assert page.text.startswith(
        "VMExecutable: 8 instructions, 10 constants, 2 packed functions"
    )
    assert page.cells[:4] == ["main", "bytecode", "x, weight", "4"]
    assert "   0  call  test.add         in: %0, %1, c[0], i-7 dst: %2" in page.cells[4]
    assert page.cells[5:9] == ["identity", "bytecode", "1", "1"]
    assert page.cells[10:15] == ["shape_func", "compiled", "1", "2", ""]
    assert "naïve kernel" in page.text
    at = page.cells.index("c[0]")
    assert page.cells[at : at + 3] == ["c[0]", "float32[2, 3]", "global"]
    assert "Shape(2, 3)" in page.cells


def test_everything_is_escaped() -> None:
    evil = "</pre></td><script>alert(1)</script><img src=x onerror='alert(1)'>&amp;"
    functions = [FunctionInfo(FuncKind.BYTECODE, evil, 0, 1, 1, 1, (evil,)),
                 FunctionInfo(FuncKind.PACKED, evil)]  # fmt: skip
    ex = VMExecutable(functions, [evil], [0], [1, 0, 1, 1, 2 << 56], {0: evil})
    source = as_html(ex)
    assert "<script" not in source
    assert "<img" not in source
    assert Page(source).text.count("<script>alert(1)</script>") >= 4


@settings(max_examples=100)
@given(odd_executables(text_constants(), codec=None))
def test_any_executable_has_a_page(ex: VMExecutable) -> None:
    Page(as_html(ex))


@pytest.mark.parametrize("case", CORPUS.values(), ids=str)
def test_corpus_has_pages(case: Any) -> None:
    Page(as_html(case.executable))


def test_a_page_is_bounded() -> None:
    n = 20_000
    functions = [FunctionInfo(FuncKind.BYTECODE, f"f{i}" * 50, i, i + 1) for i in range(n)]
    functions += [FunctionInfo(FuncKind.PACKED, f"p{i}" * 50) for i in range(n)]
    ex = VMExecutable(functions, ["x" * 1000] * n, np.arange(n) * 2, [2, 0] * n)
    assert len(as_html(ex)) < 300_000
    for count in (1, 3, n):  # the same instructions, listed by one function or many
        functions = [FunctionInfo(FuncKind.BYTECODE, f"f{i}", 0, n) for i in range(count)]
        source = as_html(VMExecutable(functions, [], np.arange(n) * 2, [2, 0] * n))
        assert len(source) < 300_000
        assert "…" in Page(source).text


def test_nothing_to_show() -> None:
    page = Page(as_html(VMExecutable([], [], [], [])))
    assert page.text.startswith("VMExecutable: 0 instructions, 0 constants, 0 packed functions")


def test_broken_code_is_described() -> None:
    ex = VMExecutable([FunctionInfo(FuncKind.BYTECODE, "f", -5, 99)], [Shape()], [0, 7], [9, 1])
    assert "<word 0: unknown opcode 9>" in Page(as_html(ex)).text
