"""docs/trust.md shows the current rules and limits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from relaxvm.limits import Limits
from relaxvm.verify import RULES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "scripts" / "gen_trust.py"
    spec = importlib.util.spec_from_file_location("gen_trust", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_fresh(generator):
    page = generator.PAGE.read_text(encoding="utf-8")
    assert generator.filled(page) == page, "stale: run python scripts/gen_trust.py"


def test_a_stale_table_is_noticed(generator):
    page = generator.PAGE.read_text(encoding="utf-8")
    for old in ("| `opcode` |", "| `fuel` |"):
        assert old in page
        assert generator.filled(page.replace(old, "| `other` |")) == page


def test_every_rule_and_every_limit_has_its_row(generator):
    assert len(list(generator.rules())) == 2 + len(RULES) + len({r.subject for r in RULES.values()})
    assert len(list(generator.limits())) == 2 + len(Limits.__dataclass_fields__)
    assert all("|  |" not in row for row in generator.limits())


def test_missing_markers_are_an_error(generator):
    with pytest.raises(SystemExit, match="the markers of rules are missing"):
        generator.filled("# A page")
