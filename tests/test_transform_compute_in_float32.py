"""ComputeInFloat32: values of 16 bits are stored so, and computed in float32."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.dtypes import as_dtype
from relaxvm.transform import ComputeInFloat32

from .passes import apply, check, module, run, unchanged
from .test_onnx import model_of, node

HALVES = ("float16", "bfloat16")
HALF_FLOAT = 10  # ONNX's number


@pytest.mark.parametrize("half", HALVES)
def test_values_are_rounded_where_they_are_stored(half: str) -> None:
    check(
        ComputeInFloat32(),
        f"""
@R.function
def main(x: R.Tensor((2, 3), "{half}"), w: R.Tensor((3, 3), "{half}")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.matmul(b, w)
        R.output(c)
    return c
""",
        f"""
@R.function
def main(x: R.Tensor((2, 3), "{half}"), w: R.Tensor((3, 3), "{half}")):
    with R.dataflow():
        lv = R.astype(x, "float32")
        lv1 = R.astype(w, "float32")
        a = R.matmul(lv, lv1)
        b = R.nn.relu(a)
        c1 = R.matmul(b, lv1)
        c = R.astype(c1, "{half}")
        R.output(c)
    return c
""",
    )


def test_values_that_nothing_has_computed_stay_small() -> None:
    """A cache grows, and rows are looked up, as they are stored."""
    unchanged(
        ComputeInFloat32(),
        """
@R.function
def main(past: R.Tensor((2, 3), "float16"), new: R.Tensor((1, 3), "float16"),
         at: R.Tensor((4,), "int64")):
    with R.dataflow():
        cache = R.concat([past, new], axis=0)
        rows = R.take(cache, at, axis=0)
        turned = R.permute_dims(rows)
        R.output(cache, turned)
    return (cache, turned)
""",
    )


def test_what_is_computed_moves_in_float32() -> None:
    check(
        ComputeInFloat32(),
        """
@R.function
def main(x: R.Tensor((2, 3), "float16")):
    with R.dataflow():
        a = R.exp(x)
        b = R.permute_dims(a)
        c = R.greater(b, b)
        R.output(b, c)
    return (b, c)
""",
        """
@R.function
def main(x: R.Tensor((2, 3), "float16")):
    with R.dataflow():
        lv = R.astype(x, "float32")
        a = R.exp(lv)
        lv1 = R.permute_dims(a)
        b = R.astype(lv1, "float16")
        c = R.greater(lv1, lv1)
        R.output(b, c)
    return (b, c)
""",
    )


def test_casts_in_the_program_round() -> None:
    """1 + 2**-12 is 1 in float16, and so is the integer part of what is rounded to it."""
    text = """
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor((2,), "float16")):
    with R.dataflow():
        rounded = R.astype(R.astype(x, "float16"), "float32")
        sum = R.add(y, y)
        whole = R.astype(R.divide(sum, y), "int32")
        R.output(rounded, whole)
    return (rounded, whole)
"""
    before = module(text)
    after = ComputeInFloat32()(before)
    x = np.array([1 + 2**-12, 3], "float32")
    y = np.array([0.1, 7], "float16")
    rounded, whole = run(after, x, y)
    np.testing.assert_array_equal(rounded, [1, 3])
    np.testing.assert_array_equal(whole, [2, 2])


PROGRAMS = {
    "parts": """
        parts = R.split(R.exp(x), 2, axis=1)
        got = R.add(parts[0], parts[1])
""",
    "norm": """
        got = R.nn.layer_norm(x, R.ones((4,), "HALF"), R.zeros((4,), "HALF"), axes=[-1])
""",
    "joined": """
        got = R.concat([R.exp(x), x], axis=0)
""",
    "mean": """
        got = R.sqrt(R.mean(R.multiply(x, x), axis=[1]))
""",
    "product": """
        got = R.matmul(x, R.permute_dims(R.tanh(x)), out_dtype="HALF")
""",
    "tuple": """
        pair = (R.exp(x), R.negative(x))
        got = R.multiply(pair[0], pair[1])
""",
    "chosen": """
        got = R.where(R.greater(R.sin(x), R.cos(x)), R.sin(x), x)
""",
    "sorted": """
        got = R.sort(R.exp(x), axis=1)
""",
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_nearer_to_exact_ones(name: str, half: str) -> None:
    text = f"""
@R.function
def main(x: R.Tensor((4, 4), "HALF")):
    with R.dataflow():
{PROGRAMS[name].strip(chr(10))}
        R.output(got)
    return got
"""
    x = np.random.default_rng(1).uniform(0.1, 2, (4, 4)).astype(as_dtype(half))
    exact = run(module(text.replace("HALF", "float64")), x.astype("float64"))
    before = module(text.replace("HALF", half))
    after = ComputeInFloat32()(before)
    old, new = run(before, x), run(after, x)
    assert new.dtype == old.dtype == x.dtype
    error = np.abs(new.astype("float64") - exact).max()
    assert error <= np.abs(old.astype("float64") - exact).max()
    eps = 2.0**-11 if half == "float16" else 2.0**-8
    assert error <= 1.01 * eps * np.abs(exact).max()


def test_branches_calls_and_loops_of_functions() -> None:
    text = """
@R.function
def helper(a: R.Tensor((3,), "float16")) -> R.Tensor((3,), "float16"):
    return R.multiply(R.exp(a), a)

@R.function
def main(c: R.Prim("bool"), x: R.Tensor((3,), "float16")) -> R.Tensor((3,), "float16"):
    y = R.add(x, x)
    if c:
        z = Module.helper(y)
        r: R.Tensor((3,), "float16") = R.add(z, y)
    else:
        r: R.Tensor((3,), "float16") = R.subtract(R.sin(y), x)
    q = R.sqrt(R.abs(r))
    return R.add(q, y)
"""
    before = module(text)
    after = apply(ComputeInFloat32(), before)
    x = np.array([0.25, 0.5, 1], "float16")
    for c in (True, False):
        old, new = run(before, c, x), run(after, c, x)
        assert new.dtype == np.float16
        np.testing.assert_allclose(new, old, rtol=3e-3)


def test_between_operators_nothing_overflows() -> None:
    text = """
@R.function
def main(x: R.Tensor((1,), "float16")):
    with R.dataflow():
        got = R.divide(R.multiply(x, x), x)
        R.output(got)
    return got
"""
    x = np.array([300], "float16")
    assert run(apply(ComputeInFloat32(), text), x) == 300


def test_symbolic_dimensions_and_casts_of_types() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float16"), y: R.Tensor(ndim=2, dtype="float16")):
    m = T.int64()
    a = R.exp(y)
    b = R.match_cast(a, R.Tensor((m, 4), "float16"))
    c = R.concat([R.tanh(x), b], axis=0)
    return c
"""
    after = apply(ComputeInFloat32(), text)
    x = np.ones((2, 4), "float16")
    got = run(after, x, 2 * x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, np.concatenate([np.tanh(x), np.exp(2 * x)]), rtol=1e-3)


def test_a_module_without_such_values_is_left_as_it_is() -> None:
    mod = module("""
@R.function
def main(x: R.Tensor((2,), "float32")):
    return R.exp(x)
""")
    assert ComputeInFloat32()(mod) is mod


def test_one_data_type_alone() -> None:
    text = """
@R.function
def main(x: R.Tensor((2,), "bfloat16")):
    with R.dataflow():
        got = R.exp(x)
        R.output(got)
    return got
"""
    unchanged(ComputeInFloat32("float16"), text)
    unchanged(ComputeInFloat32([]), text)
    with pytest.raises(ValueError, match="dtypes: expected 'float16' and 'bfloat16', got 'float8'"):
        ComputeInFloat32(["float8", "float16"])


def test_models_of_onnx() -> None:
    rng = np.random.default_rng(0)
    weight = (rng.standard_normal((8, 3, 3, 3)) / 5).astype("float16")
    model = model_of(
        [node("Conv", "x w b", "c", pads=[1] * 4), node("Relu", "c", "r"),
         node("AveragePool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
         node("GlobalAveragePool", "p", "g"), node("Softmax", "g", "y", axis=1)],
        {"x": (HALF_FLOAT, ["n", 3, 16, 16])}, ["y", "p"],
        {"w": weight, "b": np.zeros(8, "float16")},
    )  # fmt: skip
    x = rng.standard_normal((2, 3, 16, 16)).astype("float16")
    y, p = relaxvm.VirtualMachine(relaxvm.compile(model)).main(x)
    assert y.dtype == p.dtype == np.float16
    wide = model_of(
        list(model.graph.node), {"x": (11, ["n", 3, 16, 16])}, ["y", "p"],
        {"w": weight.astype("float64"), "b": np.zeros(8)},
    )  # fmt: skip
    for got, expected in zip(
        (y, p), relaxvm.VirtualMachine(relaxvm.compile(wide)).main(x.astype("float64")),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=2.0**-11, atol=2.0**-13)
