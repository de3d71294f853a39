"""The shipped kernels beyond the cases of `tests.operators`: arguments, errors, programs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX

from .generators import load
from .kernel_examples import RNG, bools, counts, reference, seeded  # noqa: F401


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape), dtype=dtype)


def unwritten(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An output with old content in it."""
    return np.full(shape, 77).astype(dtype)


# Elementwise


def test_unary_of_integers_and_bools() -> None:
    x = np.array([-3, 0, 4], np.int8)
    for name, want in (("abs", [3, 0, 4]), ("negative", [3, 0, -4]), ("relu", [0, 0, 4])):
        out = unwritten((3,), np.int8)
        run(name, x, out)
        assert out.tolist() == want, name
    flags = np.array([True, False])
    run("logical_not", flags, flags)
    assert flags.tolist() == [False, True]


def test_relu_keeps_nan() -> None:
    x = np.array([np.nan, -np.inf, np.inf, -0.0], np.float32)
    run("relu", x, x)
    np.testing.assert_array_equal(x, [np.nan, 0, np.inf, 0])


@pytest.mark.parametrize(
    ("name", "a", "b", "want"),
    [
        ("multiply", np.array([1, 2], np.float32), 0.1, np.array([0.1, 0.2], np.float32)),
        ("subtract", 1, np.array([0.25, 3], np.float64), np.array([0.75, -2])),
        ("add", np.array([1, 2], np.int8), 100, np.array([101, 102], np.int8)),
        ("add", np.array(3), True, np.array(4)),
        ("less", np.array([1, 5], np.uint8), 3, np.array([True, False])),
        ("equal", np.array([True, False]), True, np.array([True, False])),
        ("maximum", float("nan"), np.array([1], np.float32), np.array([np.nan], np.float32)),
    ],
)
def test_a_number_takes_the_data_type_of_the_tensor(
    name: str, a: Any, b: Any, want: np.ndarray
) -> None:
    out = unwritten(want.shape, want.dtype)
    run(name, a, b, out)
    np.testing.assert_array_equal(out, want)


# Reductions

REDUCTIONS = ("sum", "prod", "mean", "max", "min")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [(), (0,), (-1,), (1, 0), (0, 2, 1)])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_reductions(name: str, axes: tuple[int, ...], keep: bool, dtype: str) -> None:
    x = normal(2, 3, 4, dtype=dtype)
    want = reference(name, x, axes or None, keep)
    out = unwritten(want.shape, dtype)
    run(name, x, *axes, out)
    np.testing.assert_allclose(out, want, rtol=4 * np.finfo(dtype).eps, atol=1e-6)


def test_reductions_of_integers() -> None:
    x = counts(3, 4, dtype=np.int16)
    for name in ("sum", "max", "min"):
        out = unwritten((4,), np.int16)
        run(name, x, 0, out)
        np.testing.assert_array_equal(out, reference(name, x, 0))


def test_a_sum_of_narrow_floats_does_not_stop_growing() -> None:
    x = np.ones(70_000, np.float16)
    out = unwritten((), np.float16)
    run("mean", x, out)
    assert out == 1
    run("sum", x[:4096] / 2, out)
    assert out == 2048


def test_reductions_of_empty_tensors() -> None:
    x, out = np.empty((2, 0), np.float32), unwritten((2,), np.float32)
    run("sum", x, 1, out)
    assert out.tolist() == [0, 0]
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="empty slice"):
        run("mean", x, 1, out)
    assert np.isnan(out).all()
    run("max", x, 1, out)
    assert out.tolist() == [-np.inf] * 2
    run("min", x, 1, out)
    assert out.tolist() == [np.inf] * 2
    with pytest.raises(ValueError, match="x: expected elements along axis 1"):
        run("argmax", x, 1, np.empty(2, np.int64))


def test_reducing_a_scalar_copies_it() -> None:
    for name in REDUCTIONS:
        out = unwritten((), np.float64)
        run(name, np.array(2.5), out)
        assert out == 2.5


# Products

PRODUCTS: dict[str, tuple[bool, bool]] = {
    "matmul": (False, False), "matmul_nt": (False, True), "matmul_tn": (True, False),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((1, 0), (0, 2)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 3), (3, 3))],
)
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_products(name: str, left: Any, right: Any, dtype: str) -> None:
    a, b = counts(*left, dtype=dtype), counts(*right, dtype=dtype)
    want = a @ b
    transpose_a, transpose_b = PRODUCTS[name]
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if transpose_a else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if transpose_b else b
    out = unwritten(want.shape, dtype)
    run(name, a, b, out)
    np.testing.assert_array_equal(out, want)


# Movement


@pytest.mark.parametrize(
    ("x", "out", "want"),
    [
        (np.array([1.7, -2.7]), np.empty(2, np.int32), [1, -2]),
        (np.array([True, False]), np.empty(2, np.float32), [1, 0]),
        (np.array([0.0, 2.0]), np.empty(2, np.bool_), [False, True]),
        (np.array(3), np.empty((2, 2), np.int8), [[3, 3], [3, 3]]),
        (np.array([1, 2], ">i4"), np.empty(2, "<i4"), [1, 2]),
        (np.array([1 + 2**40]), np.empty(1, np.int32), [1]),
    ],
)
def test_cast(x: np.ndarray, out: np.ndarray, want: Any) -> None:
    run("cast", x, out)
    assert out.tolist() == want


@pytest.mark.parametrize(
    ("value", "dtype"), [(2, np.float32), (-1, np.int8), (0.5, np.float64), (True, np.bool_)]
)
def test_fill(value: Any, dtype: Any) -> None:
    out = unwritten((2, 3), dtype)
    run("fill", value, out)
    assert (out == value).all()


@pytest.mark.parametrize("axes", [(), (0, 1, 2), (2, 0, 1), (-1, 1, 0)])
def test_permute_dims(axes: tuple[int, ...]) -> None:
    x = normal(2, 3, 4)
    want = x.transpose(axes or None)
    out = unwritten(want.shape, np.float32)
    run("permute_dims", x, *axes, out)
    np.testing.assert_array_equal(out, want)


# Errors


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("add", (np.ones(2), np.ones(2, np.float32), np.ones(2)), "add: expected equal data types "
         r"that numpy.add takes without conversion, got a float64\[2\], b float32\[2\]; "
         "relaxvm.kernel.cast converts"),
        ("divide", (bools(2), bools(2), bools(2)), "divide: expected equal data "),
        ("exp", (np.ones(2, int), np.ones(2)), r"exp: expected data types .* got x int64\[2\]"),
        ("subtract", (bools(2), bools(2), bools(2)), "subtract: expected equal data types"),
        ("add", (1, 2, np.ones(2)), "add: expected at least one tensor, got a int 1, b int 2"),
        ("add", (np.ones(2, int), 0.5, np.ones(2, int)), "add: b: expected a tensor or a number "
         "that goes with int64, got float 0.5"),
        ("fill", (2, bools(2)), "fill: value: expected .* goes with bool, got int 2"),
        ("fill", (np.array(2.0), np.ones(2)), "fill: value: expected a number, got .* broadcasts"),
        ("add", (np.array([object()]), 1, np.ones(1)), "add: b: expected .* goes with object"),
        ("cast", (np.array([object()]), np.ones(1)), "cast: expected tensors of numbers"),
        ("mean", (counts(2), counts()), "mean: expected equal data types that numpy.divide"),
        ("matmul", (bools(2, 2), counts(2, 2), counts(2, 2)), "matmul: expected equal data types"),
        ("sum", (normal(2), True, normal()), "sum: axis: expected an int, got bool True"),
        ("sum", (normal(2),), "sum: expected x, axes and out, got 1 arguments"),
        ("permute_dims", (normal(2),), "permute_dims: expected x, axes and out, got 1 arguments"),
    ],
)  # fmt: skip
def test_type_errors(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        run(name, *args)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("add", (normal(2), normal(3), normal(3)), r"add: expected shapes that broadcast, got a "
         r"float32\[2\], b float32\[3\]"),
        ("add", (normal(2), normal(2), normal(1, 2)), r"add: out: expected float32\[2\], got "
         r"float32\[1, 2\]"),
        ("add", (np.ones(2, np.int8), 300, np.ones(2, np.int8)), "add: b: expected a number within "
         "int8, got int 300"),
        ("add", (np.ones(2), 10**400, np.ones(2)), "add: b: expected a number within float64"),
        ("sum", (normal(2, 3), 2, normal(2)), r"sum: axis: expected an axis of float32\[2, 3\], "
         "got 2"),
        ("sum", (normal(2, 3), 1, -1, normal(2)), r"sum: axes: expected each axis once, got \["),
        ("max", (normal(2, 3), 1, normal(3)), r"max: out: expected float32\[2\] or float32\[2, "
         r"1\], got float32\[3\]"),
        ("argmax", (normal(2, 3), 5, counts(2)), "argmax: axis: expected an axis of"),
        ("matmul", (normal(2, 3), normal(4, 5), normal(2, 5)), "matmul: expected dimension -1 of "
         r"a to equal dimension -2 of b, got a float32\[2, 3\], b float32\[4, 5\]"),
        ("matmul_tn", (normal(2, 3), normal(3, 5), normal(3, 5)), "matmul_tn: expected dimension "
         "-2 of a to equal dimension -2 of b"),
        ("matmul_nt", (normal(2, 3), normal(3, 5), normal(3, 5)), "matmul_nt: expected dimension "
         "-1 of a to equal dimension -1 of b"),
        ("matmul", (normal(), normal(3, 2), normal(2)), "matmul: expected vectors or matrices, got "
         "a .* vm.builtin.reshape"),
        ("matmul_nt", (normal(3), normal(2, 3), normal(2)), "matmul_nt: expected matrices, got a"),
        ("matmul", (normal(2, 3, 3), normal(3, 3, 3), normal(3, 3, 3)), "matmul: expected leading "
         "dimensions that broadcast"),
        ("where", (counts(2), 1, 0, counts(2)), "where: cond: expected a bool tensor, got int64"),
        ("where", (bools(2), np.ones(2), 0, normal(2)), "where: out: expected float64"),
        ("cast", (normal(2, 2), normal(2)), r"cast: out: expected float32\[2, 2\], got"),
        ("cast", (normal(1, 2), normal(2)), r"cast: out: expected float32\[1, 2\], got"),
        ("permute_dims", (normal(2, 3), 0, 0, normal(2, 2)), "permute_dims: axes: expected each"),
        ("take", (normal(2), normal(1), 0, normal(1)), "take: indices: expected a tensor of "
         "integers, got float32"),
    ],
)  # fmt: skip
def test_value_errors(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        run(name, *args)


@pytest.mark.parametrize("bad", [-1, 4, 2**62])
def test_take_checks_its_indices(bad: int) -> None:
    out = unwritten((2,), np.float32)
    with pytest.raises(IndexError, match=f"take: indices: expected 0 <= index < 4, got {bad}$"):
        run("take", normal(4), np.array([1, bad]), 0, out)
    assert (out == 77).all()


def test_floating_point_errors_are_numpys() -> None:
    x = np.zeros(1, np.float32)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="log"):
        run("log", x, np.empty_like(x))
    with np.errstate(divide="ignore"):
        run("log", x, x)
    assert x[0] == -np.inf


# Overlap: as if all inputs had been read before out is written


def test_indices_that_overlap_the_result() -> None:
    buffer = np.array([2, 0, 1, 5, 6, 7])
    run("take", np.array([10, 20, 30]), buffer[:3], 0, buffer[1:4])
    assert buffer.tolist() == [2, 30, 10, 20, 6, 7]
    flat = np.array([[3, 9, 1], [8, 2, 2], [1, 1, 7]])
    run("argmax", flat, 1, flat.reshape(-1)[2:5])
    assert flat.reshape(-1)[2:5].tolist() == [1, 0, 2]


# Layouts and data types


def test_arrays_of_all_layouts() -> None:
    base = normal(8, 6)
    unaligned = np.frombuffer(b"\0" + normal(2, 3).tobytes(), np.uint8)[1:].view("<f4")
    for x in (base[::2, ::-2], base.T[:4, :3], base.astype(">f4")[:4, :3], unaligned.reshape(2, 3)):
        for dtype in ("<f4", ">f4"):
            out = np.empty((2 * x.shape[0], x.shape[1]), dtype)[::2]
            run("add", x, x, out)
            np.testing.assert_array_equal(out, x + x)
            product = np.empty((x.shape[0],) * 2, dtype)
            run("matmul_nt", x, x, product)
            np.testing.assert_allclose(product, x @ x.T, rtol=1e-6)
            total = np.empty(x.shape[1], dtype)
            run("sum", x, 0, total)
            np.testing.assert_allclose(total, x.sum(0), rtol=1e-6, atol=1e-6)


def test_types_of_ml_dtypes() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = normal(2, 3, dtype=ml_dtypes.bfloat16)
    out = np.empty_like(x)
    run("multiply", x, 0.5, out)
    np.testing.assert_array_equal(out, x * ml_dtypes.bfloat16(0.5))
    run("exp", x, out)
    np.testing.assert_array_equal(out, np.exp(x))
    total = np.empty(3, x.dtype)
    run("mean", x, 0, total)
    np.testing.assert_array_equal(total, x.astype(np.float32).mean(0).astype(x.dtype))
    product = np.empty((2, 2), x.dtype)
    run("matmul_nt", x, x, product)
    wide = x.astype(np.float32)
    np.testing.assert_array_equal(product, (wide @ wide.T).astype(x.dtype))
    with pytest.raises(TypeError, match="matmul_nt: expected equal data types"):
        run("matmul_nt", x, x.astype(np.float64), product)


# The reference page


def test_every_kernel_has_a_row() -> None:
    page = load("gen_builtins").kernels_page()
    rows = re.findall(r"^\| `(\S+)` \| `.*: tensor` \| .*\. \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted(name for name in relaxvm.list_funcs() if name.startswith(PREFIX))


# In programs


def test_a_program_of_kernels_needs_nothing_else(tmp_path: Path) -> None:
    """A saved program runs where only functions that ship with relaxvm are allowed."""
    ib = relaxvm.ExecBuilder()
    weights = ib.convert_constant(np.array([[1, 2], [3, 4]], np.float32))
    with ib.function("main", num_inputs=2, param_names=["x", "out"]):
        ib.emit_call(PREFIX + "matmul", [ib.r(0), weights, ib.r(1)])
        ib.emit_call(PREFIX + "add", [ib.r(1), ib.imm(1), ib.r(1)])
        ib.emit_ret(ib.r(1))
    ib.get().save(tmp_path / "a.vmexec")
    vm = relaxvm.VirtualMachine(relaxvm.load(tmp_path / "a.vmexec"), functions=())
    out = np.empty((1, 2), np.float32)
    assert vm.main(np.ones((1, 2), np.float32), out) is out
    assert out.tolist() == [[5, 7]]


def test_the_verifier_knows_kernels() -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=1):
        ib.emit_call(PREFIX + "add", [ib.r(0), ib.r(0)])
        ib.emit_call(PREFIX + "sum", [ib.r(0), ib.imm(0), ib.imm(1), ib.imm(2)])
        ib.emit_ret(ib.r(0))
    problems = [problem.message for problem in relaxvm.verify(ib.get()).errors]
    assert problems == [
        "relaxvm.kernel.add takes 3 arguments, got 2",
        "argument 3 (out) of relaxvm.kernel.sum: expected tensor, got int",
    ]


def test_an_error_says_where() -> None:
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call(PREFIX + "exp", [ib.r(0), ib.r(1)])
        ib.emit_ret(ib.r(1))
    with pytest.raises(ValueError, match=r"exp: out: expected float64\[2\], got float64\[3\]") as e:
        relaxvm.VirtualMachine(ib.get()).main(np.ones(2), np.ones(3))
    assert "main" in e.value.__notes__[0]
    assert "relaxvm.kernel.exp" in e.value.__notes__[0]
