"""The page on adding an operator quotes the code as it is; its programs run in test_sourcecode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
QUOTE = re.compile(r"# (\S+\.py)\n(.*)", re.S)
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
QUOTES = {match[1]: match[2] for match in (QUOTE.fullmatch(block) for block in BLOCKS) if match}


def test_what_the_page_has() -> None:
    assert list(QUOTES) == [
        "relaxvm/op/nn/normalization.py", "relaxvm/kernels/nn.py", "tests/operators/nn.py",
    ]  # fmt: skip
    assert len(BLOCKS) == len(QUOTES) + 3


@pytest.mark.parametrize("path", QUOTES)
def test_quotes_are_the_code(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    for part in QUOTES[path].strip().split("\n\n\n"):
        assert f"\n{part}\n" in text, f"{path} has changed: quote it again"
