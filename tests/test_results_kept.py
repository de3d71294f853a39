"""Result forms find the shape of a result once for inputs that are alike."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.registry import get_func

ADD = get_func("relaxvm.result.add")
CONCAT = get_func("relaxvm.result.concat")


def test_inputs_that_are_alike_and_others() -> None:
    for _ in range(3):
        for shape, dtype in (((2, 3), "f4"), ((2, 3), "f8"), ((1, 3), "f4"), ((0, 3), "f4")):
            x, y = np.ones(shape, dtype), np.full(3, 2, dtype)
            got = ADD(x, y, None, "?")
            assert (got.shape, got.dtype) == (shape, np.dtype(dtype))
            np.testing.assert_array_equal(got, np.full(shape, 3, dtype))
            assert not np.shares_memory(got, ADD(x, y, None, "?"))


def test_numbers_are_part_of_what_inputs_have_in_common() -> None:
    x, y = np.zeros((2, 3), "f4"), np.ones((2, 3), "f4")
    for _ in range(2):
        assert CONCAT(x, y, 0, None, "?").shape == (4, 3)
        assert CONCAT(x, y, 1, None, "?").shape == (2, 6)
        np.testing.assert_array_equal(CONCAT(x, y, 1, None, "?")[0], [0, 0, 0, 1, 1, 1])


def test_mistakes_are_found_every_time() -> None:
    good, bad = np.ones((2, 3), "f4"), np.ones((2, 4), "f4")
    ADD(good, good, None, "?")
    for _ in range(2):
        with pytest.raises(ValueError, match="add: expected shapes that broadcast"):
            ADD(good, bad, None, "?")
        with pytest.raises(ValueError, match="results: expected float32 at place 0, got int32"):
            ADD(good, good, None, "int32")
        with pytest.raises(TypeError, match=r"add: .*got a float32"):
            ADD(good, bad.astype("f8"), None, "?")


def test_many_different_inputs() -> None:
    for length in range(600):
        x = np.ones(length, "f4")
        assert ADD(x, x, None, "?").shape == (length,)
