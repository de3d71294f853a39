"""Mistakes of the compiler that were found from outside, each with the program that showed it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine
from relaxvm.compiler.build import EXEC_MODES
from relaxvm.script import from_source
from relaxvm.values import Shape

MODES = pytest.mark.parametrize("exec_mode", EXEC_MODES)


def run(text: str, *args: Any, exec_mode: str = "bytecode") -> Any:
    """The result of `main` of a script."""
    executable = relaxvm.build(from_source(text), exec_mode=exec_mode)
    return VirtualMachine(executable)["main"](*args)


@MODES
def test_many_shapes_in_a_function(exec_mode: str) -> None:
    """What they take is more than a shape constant may hold."""
    count = 600
    shapes = ", ".join(f"R.shape([n * {i + 2}])" for i in range(count))
    text = f"""
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    return ({shapes})
"""
    found = run(text, np.zeros(3, np.float32), exec_mode=exec_mode)
    assert found == tuple(Shape((3 * (i + 2),)) for i in range(count))
