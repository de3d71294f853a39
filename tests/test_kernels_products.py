"""Products: matmul of vectors and stacks, linear, einsum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX

from .kernel_examples import bools, counts, normal, seeded  # noqa: F401


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def check(name: str, *args: Any, want: Any, rtol: float = 1e-12) -> None:
    """Run a kernel with an output like the expected result, and compare."""
    want = np.asarray(want)
    out = np.full(want.shape, 77).astype(want.dtype)
    run(name, *args, out)
    np.testing.assert_allclose(out, want, rtol=rtol, atol=rtol)


def refuses(name: str, *args: Any, error: type[Exception], message: str) -> None:
    """`args` include the output."""
    with pytest.raises(error, match=f"^{name}: {message}"):
        run(name, *args)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((3,), (3, 2)), ((4, 3), (3,)), ((2, 4, 3), (3,)), ((3,), (2, 3, 4)),
     ((2, 4, 3), (3, 5)), ((2, 0, 3), (3, 5)), ((2, 5, 4, 3), (3, 2)), ((0,), (0, 2))],
)  # fmt: skip
def test_vectors_and_stacks(left: Any, right: Any) -> None:
    a, b = normal(*left), normal(*right)
    check("matmul", a, b, want=a @ b)
    check("matmul", a.T.copy().T, b[::-1].copy()[::-1], want=a @ b)


@pytest.mark.parametrize(
    ("dtype", "wider"),
    [("int8", "int32"), ("uint8", "int16"), ("int32", "float64"), ("float32", "float64"),
     ("float16", "float32")],
)  # fmt: skip
@pytest.mark.parametrize("name", ["matmul", "matmul_nt", "linear"])
def test_a_wider_result(name: str, dtype: str, wider: str) -> None:
    a, b = counts(2, 3, 3, dtype=dtype) * 9, counts(3, 3, dtype=dtype) * 9
    args = (a, b, None) if name == "linear" else (a, b)
    right = b if name == "matmul" else b.T
    check(name, *args, want=a.astype(wider) @ right.astype(wider))


def test_products_of_float16_are_added_up_in_float32() -> None:
    a = np.full((2, 3000), 0.5, np.float16)
    check("matmul_nt", a, a, want=np.full((2, 2), 750, np.float16), rtol=0)
    check("linear", a, a, np.ones(2, np.float16), want=np.full((2, 2), 751, np.float16), rtol=0)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 3), (2, 4, 3)])
@pytest.mark.parametrize("bias", [None, (5,), (1,), ()])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_linear(shape: Any, bias: Any, dtype: str) -> None:
    x, weight = counts(*shape, dtype=dtype), counts(5, 3, dtype=dtype)
    offset = None if bias is None else counts(*bias, dtype=dtype)
    want = x @ weight.T + (0 if offset is None else offset)
    check("linear", x, weight, offset, want=want.astype(dtype))


def test_linear_over_its_bias() -> None:
    buffer = np.arange(6.0)
    run("linear", np.ones((2, 3)), np.ones((2, 3)), buffer[2:4], buffer[:4].reshape(2, 2))
    assert buffer[:4].tolist() == [5, 6, 5, 6]


def test_linear_refuses() -> None:
    x, weight, out = normal(2, 3), normal(4, 3), normal(2, 4)
    name = "linear"
    refuses(name, x, weight[0], None, out, error=ValueError, message=r"expected x\[..., k\], wei")
    refuses(name, x[:, :2], weight, None, out, error=ValueError, message="expected dimension -1")
    refuses(name, x, weight, normal(3), out, error=ValueError, message="expected shapes that broad")
    refuses(
        name, x, weight, normal(2, 2, 4), out, error=ValueError, message="out: expected .*2, 2,"
    )
    refuses(name, x, weight, counts(4), out, error=ValueError, message="bias: expected float64, g")
    refuses(
        name,
        x,
        weight,
        None,
        normal(2, 4, dtype=np.float32),
        error=ValueError,
        message=r"out: expected float64\[2, 4\]",
    )


def test_products_refuse_other_types() -> None:
    refuses(
        "matmul", bools(2, 2), bools(2, 2), counts(2, 2), error=ValueError, message="out: .*bool"
    )
    refuses(
        "matmul",
        normal(2, 2),
        counts(2, 2),
        normal(2, 2),
        error=TypeError,
        message="expected equal data types that numpy.matmul takes",
    )


EQUATIONS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,jk", [(2, 3), (3, 4)]), ("ba", [(2, 3)]),
    ("ii->i", [(3, 3)]), ("ii", [(3, 3)]), ("ij->", [(2, 3)]), ("i,j->ji", [(2,), (3,)]),
    ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]), ("...j,...j", [(2, 3), (1, 3)]),
    ("b i d, b j d -> b i j", [(2, 3, 4), (2, 5, 4)]), ("i...,i->...", [(2, 3, 4), (2,)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]), (",i->i", [(), (3,)]), ("ij,j->i", [(2, 3), (1,)]),
    ("ij,jk->ik", [(2, 0), (0, 3)]), ("ij,jk->ik", [(2, 0), (1, 3)]),
    ("a...->a...", [(2, 3)]), ("Ab,bC->CA", [(2, 3), (3, 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("subscripts", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_einsum(subscripts: str, shapes: Any, dtype: str) -> None:
    operands = [counts(*shape, dtype=dtype) for shape in shapes]
    want = np.einsum(subscripts, *[each.astype(object) for each in operands]) if shapes[0] != (
        2, 0) else np.zeros((2, 3))  # fmt: skip
    check("einsum", *operands, subscripts, want=np.asarray(want).astype(dtype))


@pytest.mark.parametrize(("subscripts", "shapes"), EQUATIONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fnuz", "int4", "uint4"])
def test_einsum_of_ml_dtypes(subscripts: str, shapes: Any, dtype: str) -> None:
    narrow = np.dtype(getattr(pytest.importorskip("ml_dtypes"), dtype))
    working = np.int32 if "int" in dtype else np.float32
    operands = [np.asarray(counts(*shape, dtype="int32") % 3, narrow) for shape in shapes]
    want = np.einsum(subscripts, *[each.astype(working) for each in operands])
    check("einsum", *operands, subscripts, want=np.asarray(want).astype(narrow))


def test_einsum_of_ml_dtypes_over_an_operand() -> None:
    a = normal(3, 3).astype(pytest.importorskip("ml_dtypes").bfloat16)
    want = np.einsum("ij,jk->ik", *[a.astype(np.float32)] * 2).astype(a.dtype)
    run("einsum", a, a, "ij,jk->ik", a)
    np.testing.assert_array_equal(a, want)


def test_einsum_over_an_operand() -> None:
    a, b = normal(3, 3), normal(3, 3)
    want = a @ b
    run("einsum", a, b, "ij,jk->ik", a)
    np.testing.assert_allclose(a, want)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij", [(2, 3), (3, 4)], "expected as many terms as operands"),
        ("ijk,jk->i", [(2, 3), (3, 4)], "expected a letter for each axis of an operand"),
        ("i,jk->i", [(2, 3), (3, 4)], "expected a letter for each axis of an operand"),
        ("i1,jk->i", [(2, 3), (3, 4)], "expected a letter for each axis of an operand"),
        ("i....,jk->i", [(2, 3), (3, 4)], "expected a letter for each axis of an operand"),
        ("ij,jk->ik", [(2, 3), (4, 4)], "expected one length for j, got 'ij,jk->ik' for float64"),
        ("ij,ij->i", [(2, 0), (2, 3)], "expected one length for j"),
        ("ij,jk->iz", [(2, 3), (3, 4)], "expected a result of letters of the operands"),
        ("ij,jk->ii", [(2, 3), (3, 4)], "expected a result of letters of the operands"),
        ("i...,jk->i", [(2, 3), (3, 4)], "expected a result of letters of the operands"),
        ("...,...->...", [(2, 3), (3, 4)], r"expected axes of \.\.\. that broadcast"),
    ],
)
def test_einsum_refuses(subscripts: str, shapes: Any, message: str) -> None:
    operands = [normal(*shape) for shape in shapes]
    refuses(
        "einsum",
        *operands,
        subscripts,
        normal(2, 4),
        error=ValueError,
        message=f"subscripts: {message}",
    )


def test_einsum_refuses_types() -> None:
    a, b = normal(2, 3), normal(3, 4)
    refuses(
        "einsum",
        a,
        b.astype(np.float32),
        "ij,jk->ik",
        normal(2, 4),
        error=TypeError,
        message="expected equal data types that numpy.multiply takes",
    )
    refuses(
        "einsum", a, a, a, error=TypeError, message="subscripts: expected a string, got float64"
    )
    refuses("einsum", a, "ij", error=TypeError, message="expected operands, subscripts and out")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_floats_of_ml_dtypes_by_way_of_float32(dtype: str) -> None:
    narrow = np.dtype(getattr(pytest.importorskip("ml_dtypes"), dtype))
    a = np.linspace(-1, 1, 6).reshape(2, 3).astype(narrow)
    b = np.linspace(0, 2, 12).reshape(3, 4).astype(narrow)
    exact = a.astype(np.float32) @ b.astype(np.float32)
    for out in (np.zeros((2, 4), narrow), np.zeros((2, 4), np.float32)):
        relaxvm.get_func("relaxvm.kernel.matmul")(a, b, out)
        np.testing.assert_array_equal(out, exact.astype(out.dtype))
    out, bias = np.zeros((2, 4), narrow), np.ones(4, narrow)
    relaxvm.get_func("relaxvm.kernel.linear")(a, b.T.copy(), bias, out)
    np.testing.assert_array_equal(out, exact.astype(narrow) + bias)


def test_products_of_empty_matrices() -> None:
    for dtype in (np.float32, np.complex64):
        out = np.ones((2, 3, 4), dtype)
        relaxvm.get_func("relaxvm.kernel.matmul")(
            np.ones((2, 3, 0), dtype), np.ones((0, 4), dtype), out
        )
        assert not out.any()
