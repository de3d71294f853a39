"""ToMixedPrecision.  docs/passes.md has a program before and after it."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.transform import ToMixedPrecision

from .passes import apply, check, module, run, unchanged


def test_a_chain_of_products_stays_in_half() -> None:
    """Operands of products alone are kept in float16; the result of the block is not."""
    check(
        ToMixedPrecision("float16"),
        """
@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.matmul(b, w)
        R.output(c)
    return c
""",
        """
@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        lv = R.astype(x, "float16")
        lv1 = R.astype(w, "float16")
        a = R.matmul(lv, lv1, out_dtype="float16")
        b = R.nn.relu(a)
        lv2 = R.matmul(b, lv1, out_dtype="float16")
        c = R.astype(lv2, "float32")
        R.output(c)
    return c
""",
    )


def test_operators_that_need_more() -> None:
    """x is needed in float32 too, so that it is cast where it is an operand of the product; softmax
    gets what it had; add is computed in float32, since one operand is in it."""
    check(
        ToMixedPrecision(),
        """
@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.softmax(a)
        c = R.add(b, x)
        R.output(c)
    return c
""",
        """
@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 3), "float32")):
    with R.dataflow():
        lv = R.astype(w, "float16")
        lv1 = R.astype(x, "float16")
        lv2 = R.matmul(lv1, lv, out_dtype="float32")
        a = R.astype(lv2, "float16")
        lv3 = R.astype(a, "float32")
        b = R.nn.softmax(lv3)
        c = R.add(b, x)
        R.output(c)
    return c
""",
    )


def test_tuples_of_tensors() -> None:
    check(
        ToMixedPrecision("float16"),
        """
@R.function
def main(x: R.Tensor((4, 4), "float32"), i: R.Tensor((4, 4), "int32")):
    with R.dataflow():
        a = R.matmul(x, x)
        t = ((a, i), x)
        u = t[0]
        v = u[0]
        s = R.split(v, 2, axis=0)
        R.output(u, s)
    return (u, s)
""",
        """
@R.function
def main(x: R.Tensor((4, 4), "float32"), i: R.Tensor((4, 4), "int32")):
    with R.dataflow():
        lv = R.astype(x, "float16")
        a = R.matmul(lv, lv, out_dtype="float16")
        t = ((a, i), lv)
        lv1 = t[0]
        lv2 = lv1[0]
        lv3 = R.astype(lv2, "float32")
        lv4 = lv1[1]
        u = (lv3, lv4)
        v = u[0]
        s = R.split(v, 2, axis=0)
        R.output(u, s)
    return (u, s)
""",
    )


def test_constants_in_the_range_of_half() -> None:
    for value, dtype in ((2.0, "float16"), (70000.0, "float32")):
        after = apply(
            ToMixedPrecision("float16"),
            f"""
@R.function
def main(x: R.Tensor((2, 2), "float32")):
    with R.dataflow():
        a = R.matmul(x, x)
        b = R.add(a, R.const({value}, "float32"))
        c = R.nn.relu(b)
        R.output(c)
    return c
""",
        )
        types = {b.var.name: b.var.ty.dtype for b in after["main"].body.blocks[0].bindings}
        assert types["b"] == dtype


def test_names_of_parameters() -> None:
    """Outside of dataflow blocks such a parameter is cast back."""
    text = """
@R.function
def main(x: R.Tensor((2, 2), "float32"), w: R.Tensor((2, 2), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        R.output(a)
    b = R.add(a, w)
    return (b, w)
"""
    after = apply(ToMixedPrecision("float16", fp16_input_names=["w"]), text)
    assert [param.ty.dtype for param in after["main"].params] == ["float32", "float16"]
    assert [str(ty.dtype) for ty in after["main"].ret_ty.fields] == ["float32", "float32"]
    x = np.array([[1, 2], [3, 4]], np.float32)
    for new, old in zip(run(after, x, x.astype("float16")), run(module(text), x, x), strict=True):
        np.testing.assert_array_equal(new, old)


def test_what_is_left_alone() -> None:
    """Other data types, unknown ones, and what is outside of dataflow blocks."""
    unchanged(
        ToMixedPrecision(),
        """
@R.function
def main(x: R.Tensor((2, 2), "float64"), y: R.Tensor((2, 2)), z: R.Tensor((2, 2), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.nn.relu(y)
        R.output(a, b)
    c = R.matmul(z, z)
    return (a, b, c)
""",
    )


def test_results_are_close() -> None:
    text = """
@R.function
def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32"),
         v: R.Tensor((6, 5), "float32")):
    with R.dataflow():
        a = R.nn.conv2d(x, w, padding=(0, 0))
        b = R.nn.relu(a)
        c = R.matmul(b, v)
        d = R.nn.softmax(c)
        R.output(d)
    return d
"""
    rng = np.random.default_rng(5)
    args = [
        rng.uniform(-1, 1, shape).astype("float32")
        for shape in ((1, 3, 8, 8), (4, 3, 3, 3), (6, 5))
    ]
    expected = run(module(text), *args)
    for dtype in ("float32", "float16"):
        got = run(apply(ToMixedPrecision(dtype), text), *args)
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, expected, atol=2e-2)


def test_other_data_types_are_refused() -> None:
    with pytest.raises(ValueError, match="out_dtype: expected float32 or float16, got 'bfloat16'"):
        ToMixedPrecision("bfloat16")
