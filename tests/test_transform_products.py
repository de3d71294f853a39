"""Passes that rewrite products: ExpandMatmulOfSum, AdjustMatmulOrder, ReorderTakeAfterMatmul,
FoldBatchnormToConv2D.  docs/passes.md has a program before and after each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm.analysis import computable_at_compile_time
from relaxvm.transform import (
    AdjustMatmulOrder,
    ExpandMatmulOfSum,
    FoldBatchnormToConv2D,
    FoldConstant,
    ReorderTakeAfterMatmul,
)

from .passes import apply, check, module, run, unchanged

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.uniform(-1, 1, shape).astype("float32")


def rewritten(pass_: Any, text: str, *args: Any) -> str:
    """Apply a pass that changes the program but not its result; return the new program."""
    before = module(text)
    after = apply(pass_, text)
    assert after.script() != before.script()
    np.testing.assert_allclose(run(after, *args), run(before, *args), rtol=1e-4, atol=1e-5)
    return after.script()


# ExpandMatmulOfSum


def test_a_product_with_a_transposed_sum() -> None:
    text = """
@R.function
def main(x: R.Tensor((16,), "float32"), a: R.Tensor((32, 16), "float32"),
         b: R.Tensor((32, 16), "float32")):
    s = R.add(a, b)
    t = R.permute_dims(s)
    y = R.matmul(x, t)
    return y
"""
    new = rewritten(ExpandMatmulOfSum(), text, floats(16), floats(32, 16), floats(32, 16))
    assert new.count("R.matmul") == new.count("R.permute_dims") == 2


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ("(16, 32)", "(16, 32)", '{"num_input": 1}'),
        ("(16, 32)", "(32,)", "{}"),
        ("(16, 32)", "()", "{}"),
    ],
    ids=["two weights", "a vector is broadcast", "a scalar is broadcast"],
)
def test_sums_that_are_kept(a: str, b: str, attrs: str) -> None:
    unchanged(
        ExpandMatmulOfSum(),
        f"""
@R.function
def main(x: R.Tensor((16,), "float32"), a: R.Tensor({a}, "float32"),
         b: R.Tensor({b}, "float32")):
    R.func_attr({attrs})
    s = R.add(a, b)
    y = R.matmul(x, s)
    return y
""",
    )


# AdjustMatmulOrder


def product(x: str, a: str, b: str, *, left: bool, attrs: str = "{}") -> str:
    """``(x a) b``, or ``x (a b)``."""
    steps = ("p = R.matmul(x, a)", "y = R.matmul(p, b)")
    if not left:
        steps = ("p = R.matmul(a, b)", "y = R.matmul(x, p)")
    return f"""
@R.function
def main(x: R.Tensor({x}, "float32"), a: R.Tensor({a}, "float32"), b: R.Tensor({b}, "float32")):
    R.func_attr({attrs})
    {steps[0]}
    {steps[1]}
    return y
"""


@pytest.mark.parametrize(
    ("x", "a", "b", "attrs"),
    [
        ("(16,)", "(16, 4)", "(4, 32)", "{}"),
        ("(2, 16)", "(16, 4)", "(4, 32)", "{}"),
        ("(3, 2, 16)", "(16, 4)", "(4, 32)", "{}"),
        ("(3, 2, 16)", "(3, 16, 4)", "(3, 4, 32)", "{}"),
        ('("n", 16)', '(16, "r")', '("r", 32)', '{"tir_var_upper_bound": {"n": 10, "r": 20}}'),
        ('("n", 1, 64)', '(64, "r")', '("r", 64)',
         '{"tir_var_upper_bound": {"n": 9}, "tir_var_lower_bound": {"r": 2}}'),
    ],
)  # fmt: skip
def test_the_order_that_takes_fewer_operations(x: str, a: str, b: str, attrs: str) -> None:
    right, left = (product(x, a, b, left=order, attrs=attrs) for order in (False, True))
    check(AdjustMatmulOrder(), right, left)
    unchanged(AdjustMatmulOrder(), left)


@pytest.mark.parametrize(
    ("x", "a", "b", "attrs"),
    [
        ('("n", 16)', '(16, "r")', '("r", 32)', "{}"),
        ('("n", 16)', '(16, "r")', '("r", 32)', '{"tir_var_upper_bound": {"n": 100, "r": 20}}'),
        ('("n", "n")', '("n", "n")', '("n", "n")', "{}"),
    ],
)
def test_it_depends_on_the_sizes(x: str, a: str, b: str, attrs: str) -> None:
    unchanged(AdjustMatmulOrder(), product(x, a, b, left=True, attrs=attrs))
    unchanged(AdjustMatmulOrder(), product(x, a, b, left=False, attrs=attrs))


def test_weights_are_multiplied_first() -> None:
    attrs = '{"num_input": 1}'
    left = product("(1024, 16)", "(16, 16)", "(16, 16)", left=True, attrs=attrs)
    right = product("(1024, 16)", "(16, 16)", "(16, 16)", left=False, attrs=attrs)
    check(AdjustMatmulOrder(), left, right, again=True)
    names = [var.name for var in computable_at_compile_time(module(right)["main"])]
    assert names == ["a", "b", "p"]


def test_a_transposed_product() -> None:
    text = """
@R.function
def main(x: R.Tensor((2, 3, 16), "float32"), a: R.Tensor((2, 32, 4), "float32"),
         b: R.Tensor((2, 4, 16), "float32")):
    w = R.matmul(a, b)
    t = R.permute_dims(w, axes=[0, 2, 1])
    y = R.matmul(x, t)
    return y
"""
    new = rewritten(AdjustMatmulOrder(), text, floats(2, 3, 16), floats(2, 32, 4), floats(2, 4, 16))
    assert new.count("R.permute_dims") == 2


# ReorderTakeAfterMatmul


def test_each_row_of_a_batch_selects_a_matrix() -> None:
    text = """
@R.function
def main(x: R.Tensor(("b", 2, 16), "float32"), w: R.Tensor(("t", 16, 32), "float32"),
         i: R.Tensor(("b",), "int64")):
    s = R.take(w, i, axis=0)
    y = R.matmul(x, s)
    return y
"""
    args = floats(3, 2, 16), floats(4, 16, 32), np.array([3, 0, 3])
    new = rewritten(ReorderTakeAfterMatmul(), text, *args)
    assert new.index("R.matmul") < new.index("R.take")


def test_rows_of_a_table_stay() -> None:
    unchanged(
        ReorderTakeAfterMatmul(),
        """
@R.function
def main(x: R.Tensor((2, 8), "float32"), w: R.Tensor((10, 16), "float32"),
         i: R.Tensor((8,), "int64")):
    s = R.take(w, i, axis=0)
    y = R.matmul(x, s)
    return y
""",
    )


# FoldBatchnormToConv2D


def folded(layout: str, **norm: Any) -> str:
    options = "".join(f", {key}={value}" for key, value in norm.items())
    return f"""
@R.function
def main(x: R.Tensor((1, 2, 4, 4), "float32")):
    a = R.nn.conv2d(x, R.const([[[[1.0]], [[-2.0]]], [[[3.0]], [[4.0]]]], "float32"),
        kernel_layout="{layout}")
    b = R.nn.batch_norm(a, R.const([1.0, 2.0], "float32"), R.const([3.0, -1.0], "float32"),
        R.const([0.5, 0.25], "float32"), R.const([4.0, 1.0], "float32"), training=False{options})
    return b[0]
"""


@pytest.mark.parametrize(
    "norm", [{}, {"scale": False}, {"center": False}, {"epsilon": 0.5}], ids=str
)
def test_a_scaled_weight(norm: dict[str, Any]) -> None:
    text = folded("OIHW", **{"axis": 1, **norm})
    new = rewritten(FoldBatchnormToConv2D(), text, floats(1, 2, 4, 4))
    assert "batch_norm" not in new
    after = FoldConstant()(FoldBatchnormToConv2D()(module(text))).script()
    assert "R.sqrt" not in after


def test_other_convolutions_stay() -> None:
    unchanged(FoldBatchnormToConv2D(), folded("OIHW", axis=2).replace("4, 4)", "2, 4)"))
    weight = '4, 4), "float32"), w: R.Tensor((2, 2, 1, 1)'
    variable = folded("OIHW", axis=1).replace("4, 4)", weight)
    start = variable.index("R.const([[[[")
    end = variable.index(', "float32")', start) + len(', "float32")')
    unchanged(FoldBatchnormToConv2D(), variable[:start] + "w" + variable[end:])
