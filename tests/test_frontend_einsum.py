"""Sums of products that importers take for products of matrices."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, run

SIZES = {"a": 2, "b": 3, "h": 4, "i": 5, "j": 6, "k": 7}


def model(equation: str, shapes: list[list[int | str]], dtype: int = TensorProto.FLOAT) -> object:
    names = [f"x{i}" for i in range(len(shapes))]
    einsum = helper.make_node("Einsum", names, ["y"], equation=equation)
    inputs = {name: (dtype, shape) for name, shape in zip(names, shapes, strict=True)}
    return model_of([einsum], inputs, ["y"])


def drawn(equation: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    return [rng.standard_normal([SIZES[c] for c in term]).astype("float32") for term in terms]


@pytest.mark.parametrize("equation", [
    "ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bji,bjk->bki",
    "bij,bkj->bki", "b h i k, b h j k -> b h i j", "bihk,bjhk->bhij", "bhij,bjhk->bihk",
    "hbij,bhkj->bhki", "abij,jk->abik", "abij,jk->baik", "jk,abij->abik", "jk,abij->abki",
])  # fmt: skip
def test_products_of_matrices(equation: str) -> None:
    given = drawn(equation)
    made = model(equation, [list(x.shape) for x in given])
    script = from_onnx(made).script()
    assert "R.matmul" in script
    assert "R.einsum" not in script
    want = np.einsum(equation.replace(" ", ""), *given)
    np.testing.assert_allclose(run(made, *given), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", [
    "ij,j->i", "ij,ij->i", "ij,ij->", "ii,ij->j", "ij,jk->i", "bijk,bjk->bi", "ij,jk,ka->ia",
    "bij,bjk->ik", "abij,abjk->abik", "bahi,bjk->bahijk", "ij,jk", "aib,jbk->aijk",
])  # fmt: skip
def test_other_sums(equation: str) -> None:
    given = drawn(equation)
    if equation == "ii,ij->j":
        given[0] = np.ones((5, 5), "float32")
    made = model(equation, [list(x.shape) for x in given])
    want = np.einsum(equation, *given)
    np.testing.assert_allclose(run(made, *given), want, rtol=1e-4, atol=1e-4)


def test_dimensions_that_may_be_one() -> None:
    """A length of 1 goes with any other one, which it does not in a product of matrices."""
    made = model("ij,jk->ik", [["n", "m"], ["p", 4]])
    assert "R.einsum" in from_onnx(made).script()
    x, y = np.ones((2, 1), "float32"), np.ones((3, 4), "float32")
    np.testing.assert_array_equal(run(made, x, y), np.full((2, 4), 3, "float32"))
    made = model("bij,bjk->bik", [["b", "n", "m"], ["b", "m", 4]])
    assert "R.matmul" in from_onnx(made).script()


def test_integers_stay() -> None:
    made = model("ij,jk->ik", [[2, 3], [3, 2]], TensorProto.INT32)
    assert "R.einsum" in from_onnx(made).script()
    x = np.arange(6, dtype="int32").reshape(2, 3)
    np.testing.assert_array_equal(run(made, x, x.T.copy()), x @ x.T)
