"""`relaxvm.contrib.onnxruntime` gives onnxruntime's answers, its mistakes included."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

import relaxvm.contrib.onnxruntime as ours

from .onnxruntime_cases import CASES, CLASS_ONLY, GOLDEN, Calls, answer, models_of

RECORDED: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    return Calls(ours, models_of(RECORDED), tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", CASES)
def test_answers(name: str, calls: Calls) -> None:
    expected = RECORDED["answers"][name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        got = json.loads(json.dumps(answer(CASES[name], calls)))
    if name in CLASS_ONLY:
        expected, got = expected.get("raises", expected), got.get("raises", got)
    assert got == expected


def test_every_case_is_recorded() -> None:
    assert RECORDED["answers"].keys() == CASES.keys()
    assert RECORDED["onnxruntime"] == ours.__version__
