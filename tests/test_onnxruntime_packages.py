"""Packages that use onnxruntime print the same with relaxvm in its place, unchanged.

These tests need the packages, and onnxruntime itself: ``nox -s onnxruntime``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from . import children

FOLDER = Path(__file__).parent / "onnxruntime_programs"
PACKAGES = sorted(path.stem.removeprefix("with_") for path in FOLDER.glob("with_*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_prints_the_same(package: str) -> None:
    for each in (package, "onnxruntime"):
        if importlib.util.find_spec(each) is None:
            pytest.skip(f"{each} is not installed")
    program = str(FOLDER / f"with_{package}.py")
    theirs, ours = (
        children.run(
            [sys.executable, *way, program],
            check=True, capture_output=True, text=True, encoding="utf-8",
        )
        for way in ([], ["-m", "relaxvm.contrib.onnxruntime"])
    )  # fmt: skip
    assert theirs.stdout
    assert ours.stdout == theirs.stdout
