"""docs/trust.md has all rules and limits."""

from __future__ import annotations

import pytest

from relaxvm.limits import Limits
from relaxvm.verify import RULES

from .generators import ROOT, load

generator = load("gen_trust")


def test_a_stale_table_is_noticed():
    page = (ROOT / generator.PAGE).read_text(encoding="utf-8")
    for old in ("| `opcode` |", "| `fuel` |"):
        assert old in page
        assert generator.filled(page.replace(old, "| `other` |")) == page


def test_every_rule_and_every_limit_has_its_row():
    assert len(list(generator.rules())) == 2 + len(RULES) + len({r.subject for r in RULES.values()})
    assert len(list(generator.limits())) == 2 + len(Limits.__dataclass_fields__)
    assert all("|  |" not in row for row in generator.limits())


def test_missing_markers_are_an_error():
    with pytest.raises(SystemExit, match="the markers of rules are missing"):
        generator.filled("# A page")
