"""scripts/sanitize.py: its lists of tests, and its arguments."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SCRIPT = TESTS.parent / "scripts" / "sanitize.py"


@pytest.fixture(scope="module")
def sanitize() -> Any:
    spec = importlib.util.spec_from_file_location("sanitize_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def test_all_listed_tests_exist(sanitize: Any) -> None:
    for sanitizer in sanitize.SANITIZERS.values():
        assert len(set(sanitizer.tests)) == len(sanitizer.tests) > 5
        for name in sanitizer.tests:
            assert (TESTS / f"{name}.py").is_file(), name


@pytest.mark.parametrize("arguments", [[], ["memory"], ["-k", "x"]])
def test_another_sanitizer_is_refused(sanitize: Any, arguments: Any, capsys: Any) -> None:
    assert sanitize.main(arguments) == 2
    assert "python scripts/sanitize.py address" in capsys.readouterr().err


def test_failed_allocations_are_no_reports(sanitize: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.1"
    path.write_text("==1==WARNING: AddressSanitizer failed to allocate 0x4000000000000048 bytes\n")
    assert not sanitize.is_report(path)
    path.write_text(path.read_text() + "==1==ERROR: AddressSanitizer: heap-use-after-free\n")
    assert sanitize.is_report(path)
