"""Arguments for kernels, and their results by the references of the table of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from . import operators  # noqa: F401  (fills the table)
from .operators.oracle import narrow, wide
from .operators.table import OPERATORS

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seed the random numbers of each test of a module that imports this fixture."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape), dtype=dtype)


def positive(*shape: int) -> np.ndarray:
    return np.asarray(RNG.uniform(0.1, 0.9, shape))


def bools(*shape: int) -> np.ndarray:
    return np.asarray(RNG.integers(0, 2, shape), dtype=np.bool_)


def counts(*shape: int, dtype: Any = np.int64) -> np.ndarray:
    """Small positive integers."""
    return np.asarray(RNG.integers(1, 9, shape), dtype=dtype)


def reference(name: str, x: np.ndarray, *args: Any, dtype: Any = None, **attributes: Any) -> Any:
    """Return the result of an operator by its reference in the table of cases.

    Args:
        name: without "relax.".
        x: the first operand.
        dtype: of the result, or of each of several; that of x if it is not given.
    """
    function = OPERATORS[name].reference
    assert function is not None
    with np.errstate(all="ignore"):
        found = function(wide(x), *map(wide, args), **attributes)
    if not isinstance(found, tuple):
        return narrow(found, dtype or x.dtype)
    dtypes = dtype if isinstance(dtype, tuple) else (dtype or x.dtype,) * len(found)
    return tuple(map(narrow, found, dtypes))
