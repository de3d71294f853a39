"""Amounts of memory that depend on symbolic dimensions."""

from __future__ import annotations

import pytest

from relaxvm.analysis import amounts
from relaxvm.analysis.amounts import Amounts
from relaxvm.ir import Var
from relaxvm.ir.arith import Analyzer
from relaxvm.ir.prim import maximum


def analyzer_of(names: list[Var]) -> Analyzer:
    analyzer = Analyzer()
    for name in names:
        analyzer.bind(name, 0)
    return analyzer


def test_what_follows_from_maxima_is_proved() -> None:
    n, m, k = (Var(name, "int64") for name in "nmk")
    analyzer = analyzer_of([n, m, k])
    small, great = analyzer.normal_form(n), analyzer.normal_form(maximum(n, m) + k)
    compared = Amounts(analyzer)
    assert compared.at_most(small, great)
    assert not compared.at_most(great, small)
    assert compared.greatest([small, great, small]) == [great]


def test_the_time_of_comparisons_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of amounts that are sums of maxima each comparison takes long: after some, the
    bounds of variables alone decide."""
    monkeypatch.setattr(amounts, "_MOST_ASKED", 2000)
    names = [Var(f"n{i}", "int64") for i in range(60)]
    analyzer = analyzer_of(names)
    forms = [
        analyzer.normal_form(
            sum(maximum(names[i - j], names[i - j - 1] * 2) for j in range(1, 6)) - names[i - 9]
        )
        for i in range(10, 60)
    ]
    compared = Amounts(analyzer)
    assert compared.greatest(forms)
    assert analyzer.asked < 2000 + 400
    more = analyzer.normal_form(names[0] + 1)
    assert compared.at_most(analyzer.normal_form(names[0]), more)
    assert analyzer.asked < 2000 + 400
