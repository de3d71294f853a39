"""The shipped kernels: results against numpy, refusals, overlap of out and inputs."""

from __future__ import annotations

import importlib.util
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX, is_kernel
from relaxvm.registry import GLOBAL
from relaxvm.values import kind_of

from .kernel_examples import (  # noqa: F401
    ALIASES,
    ARG_REDUCTIONS,
    ARITHMETIC,
    BITWISE,
    COMPARISON,
    EXAMPLES,
    FLOAT_UNARY,
    LOGICAL,
    REDUCTIONS,
    RNG,
    Example,
    bools,
    counts,
    seeded,
)

INTEGERS = ["int8", "int64", "uint16"]
FLOATS = ["float32", "float64"]
SHAPES = [(), (0,), (5,), (2, 3), (2, 0, 3), (2, 3, 4)]


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(RNG.standard_normal(shape), dtype=dtype)


def unwritten(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An output with old content in it."""
    return np.full(shape, 77).astype(dtype)


# Elementwise


@pytest.mark.parametrize("name", FLOAT_UNARY)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_unary(name: str, shape: tuple[int, ...], dtype: str) -> None:
    x = np.asarray(RNG.uniform(0.1, 0.9, shape), dtype)
    if name == "acosh":
        x = np.asarray(x + 1, dtype)
    elif name not in ("log", "sqrt", "rsqrt"):
        x = np.asarray(x * RNG.choice([-1, 1], shape), dtype)
    out = unwritten(shape, dtype)
    run(name, x, out)
    want = FLOAT_UNARY[name](x.astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=3 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)


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


@pytest.mark.parametrize("name", [*ARITHMETIC, *COMPARISON])
@pytest.mark.parametrize(
    ("left", "right"),
    [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((4, 1, 0), (3, 1)), ((), (2, 2))],
)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_binary(name: str, left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    a, b = counts(*left, dtype=dtype), counts(*right, dtype=dtype)
    if name == "power":
        b = np.asarray(np.minimum(b, 2), dtype)
    want = np.asarray((ARITHMETIC | COMPARISON)[name](a, b)).astype(
        np.bool_ if name in COMPARISON else dtype
    )
    out = unwritten(want.shape, want.dtype)
    run(name, a, b, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("name", BITWISE)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_bitwise(name: str, dtype: str) -> None:
    a, b = counts(2, 3, dtype=dtype), counts(3, dtype=dtype) % 3
    out = unwritten((2, 3), dtype)
    run(name, a, b.astype(dtype), out)
    np.testing.assert_array_equal(out, BITWISE[name](a, b).astype(dtype))


def test_divide() -> None:
    a, b = normal(2, 3), normal(3) + 5
    out = unwritten((2, 3), np.float32)
    run("divide", a, b, out)
    np.testing.assert_array_equal(out, a / b)


@pytest.mark.parametrize("name", LOGICAL)
def test_logical(name: str) -> None:
    a, b = bools(4, 5), bools(5)
    out = bools(4, 5)
    run(name, a, b, out)
    np.testing.assert_array_equal(out, LOGICAL[name](a, b))


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


@pytest.mark.parametrize(
    ("a", "b"), [((2, 3), (2, 3)), ((3,), (2, 1)), (2, (2, 3)), ((2, 3), -1), (1, 0)]
)
def test_where(a: Any, b: Any) -> None:
    cond = bools(2, 3)
    a, b = (normal(*x) if isinstance(x, tuple) else x for x in (a, b))
    out = unwritten((2, 3), np.float32)
    run("where", cond, a, b, out)
    np.testing.assert_array_equal(out, np.where(cond, a, b))


# Reductions


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [(), (0,), (-1,), (1, 0), (0, 2, 1)])
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_reductions(name: str, axes: tuple[int, ...], keep: bool, dtype: str) -> None:
    x = normal(2, 3, 4, dtype=dtype)
    want = REDUCTIONS[name](x.astype(np.float64), axis=axes or None, keepdims=keep)
    out = unwritten(want.shape, dtype)
    run(name, x, *axes, out)
    np.testing.assert_allclose(out, want, rtol=4 * np.finfo(dtype).eps, atol=1e-6)


def test_reductions_of_integers() -> None:
    x = counts(3, 4, dtype=np.int16)
    for name in ("sum", "max", "min"):
        out = unwritten((4,), np.int16)
        run(name, x, 0, out)
        np.testing.assert_array_equal(out, REDUCTIONS[name](x, axis=0))


def test_a_sum_of_narrow_floats_does_not_stop_growing() -> None:
    x = np.ones(70_000, np.float16)
    out = unwritten((), np.float16)
    run("mean", x, out)
    assert out == 1
    run("sum", x[:4096] / 2, out)
    assert out == 2048


def test_reductions_of_nothing() -> None:
    x, out = np.empty((2, 0), np.float32), unwritten((2,), np.float32)
    run("sum", x, 1, out)
    assert out.tolist() == [0, 0]
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning, match="empty slice"):
        run("mean", x, 1, out)
    assert np.isnan(out).all()
    with pytest.raises(ValueError, match="no identity"):
        run("max", x, 1, out)
    with pytest.raises(ValueError, match="empty sequence"):
        run("argmax", x, 1, np.empty(2, np.int64))


def test_reducing_a_scalar_copies_it() -> None:
    for name in REDUCTIONS:
        out = unwritten((), np.float64)
        run(name, np.array(2.5), out)
        assert out == 2.5


@pytest.mark.parametrize("name", ARG_REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_arg_reductions(name: str, axis: int, keep: bool) -> None:
    x = counts(4, 5, 6, dtype=np.float32)  # has ties
    want = getattr(np, name)(x, axis=axis, keepdims=keep)
    out = unwritten(want.shape, np.int64)
    run(name, x, axis, out)
    np.testing.assert_array_equal(out, want)


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


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [2, [0], [2, 0, 2], [[1], [0]], []])
def test_take(axis: int, indices: Any) -> None:
    x, at = normal(4, 3, 5), np.array(indices, np.int64)
    want = np.take(x, at, axis)
    out = unwritten(want.shape, np.float32)
    run("take", x, at, axis, out)
    np.testing.assert_array_equal(out, want)


# Every kernel

# Kernels whose out may have any shape, or data type.
ANY_SHAPE = {name for name, example in EXAMPLES.items() if "shape" in example.takes_any}
ANY_DTYPE = {name for name, example in EXAMPLES.items() if "dtype" in example.takes_any}


def outputs(example: Example, *args: Any) -> list[np.ndarray]:
    """Unwritten outputs for the results of an example."""
    return [unwritten(want.shape, want.dtype) for want in example.results(*args)]


def check(example: Example, outs: list[np.ndarray], *args: Any) -> None:
    """Compare with what the example wants."""
    for out, want in zip(outs, example.results(*args), strict=True):
        np.testing.assert_allclose(out, want, rtol=1e-13, atol=1e-15)


def test_every_kernel_has_an_example() -> None:
    registered = {n.removeprefix(PREFIX) for n in relaxvm.list_funcs() if n.startswith(PREFIX)}
    assert registered == {*EXAMPLES, *ALIASES}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    example = EXAMPLES[name]
    outs = outputs(example)
    before = [np.copy(arg) for arg in example.args if isinstance(arg, np.ndarray)]
    run(name, *example.args, *outs)
    check(example, outs)
    after = [arg for arg in example.args if isinstance(arg, np.ndarray)]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("name", [*EXAMPLES, *ALIASES])
def test_records(name: str) -> None:
    record = GLOBAL.lookup(PREFIX + name)
    assert record is not None
    assert record.signature is not None
    example = EXAMPLES[ALIASES.get(name, name)]
    assert record.signature.bind(len(example.args) + len(example.results())) is not None
    assert str(record.signature).endswith(": tensor) -> none")
    assert not record.effect
    assert is_kernel(record)
    assert record.doc.endswith(".")
    if name in ALIASES:
        assert record.func is GLOBAL.get(PREFIX + ALIASES[name])


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ANY_SHAPE])
def test_out_of_the_wrong_shape(name: str) -> None:
    example = EXAMPLES[name]
    for i, out in enumerate(outputs(example)):
        for wrong in ((2,), (*out.shape, 1, 1), (*out.shape, 2)):
            outs = outputs(example)
            outs[i] = np.empty(wrong, out.dtype)
            with pytest.raises(ValueError, match=rf"^{name}: (\w+: )?expected .*, got "):
                run(name, *example.args, *outs)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ANY_DTYPE])
def test_out_of_the_wrong_data_type(name: str) -> None:
    example = EXAMPLES[name]
    for i, out in enumerate(outputs(example)):
        outs = outputs(example)
        outs[i] = np.empty(out.shape, np.int16)
        with pytest.raises(ValueError, match=rf"^{name}: out: expected \w+\[.*\], got .*int16"):
            run(name, *example.args, *outs)


@pytest.mark.parametrize("name", EXAMPLES)
def test_out_read_only(name: str) -> None:
    example = EXAMPLES[name]
    for i in range(len(outputs(example))):
        outs = outputs(example)
        outs[i].flags.writeable = False
        with pytest.raises(ValueError, match=rf"^{name}: out: .*written to, got a read-only one"):
            run(name, *example.args, *outs)
        assert (outs[i] == unwritten((), outs[i].dtype)).all()


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("wrong", [None, "text", (1, 2), 1j])
def test_arguments_of_the_wrong_kind(name: str, wrong: Any) -> None:
    example, record = EXAMPLES[name], GLOBAL.lookup(PREFIX + name)
    assert record is not None
    assert record.signature is not None
    args = [*example.args, *outputs(example)]
    params = record.signature.bind(len(args))
    assert params is not None
    for i, param in enumerate(params):
        takes_ints = isinstance(wrong, tuple) and "shape" in param.kinds
        if param.accepts(kind_of(wrong)) or takes_ints:
            continue
        with pytest.raises(TypeError, match=rf"^{name}: [\w\[\]]+: expected an? \w+.*, got "):
            run(name, *args[:i], wrong, *args[i + 1 :])


@pytest.mark.parametrize("name", [name for name in EXAMPLES if EXAMPLES[name].grows is not None])
def test_no_memory_is_allocated(name: str) -> None:
    """Beyond a few blocks: nothing of the size of the operands."""
    example = EXAMPLES[name]
    args = list(example.args)
    for i in example.grows or ():
        args[i] = np.tile(args[i], ((1 << 17),) + (1,) * (args[i].ndim - 1))
    outs = [unwritten(want.shape, want.dtype) for want in _large_results(name, args)]
    run(name, *args, *outs)
    tracemalloc.start()
    try:
        run(name, *args, *outs)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def _large_results(name: str, args: list[Any]) -> list[np.ndarray]:
    """Arrays like the results of an example with more rows, which the oracle is too slow for."""
    example = EXAMPLES[name]
    rows = example.args[0].shape[0]
    found = []
    for axis_length, want in zip(
        example.results(*[_with_rows(arg, rows + 1) if i in (example.grows or ()) else arg
                          for i, arg in enumerate(example.args)]),
        example.results(), strict=True,
    ):  # fmt: skip
        grown = [
            dim if more == dim else dim * (len(args[0]) // rows)
            for more, dim in zip(axis_length.shape, want.shape, strict=True)
        ]
        found.append(np.empty(grown, want.dtype))
    return found


def _with_rows(arg: np.ndarray, rows: int) -> np.ndarray:
    return np.resize(arg, (rows, *arg.shape[1:]))


# Refusals


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


def views(buffer: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Views of a buffer that overlap in all sorts of ways."""
    size = max(1, int(np.prod(shape)))
    for start in (0, 1, size // 2, size):
        yield buffer[start : start + size].reshape(shape)
    yield buffer[: 2 * size : 2].reshape(shape)
    yield buffer[size - 1 :: -1][:size].reshape(shape)
    if len(shape) == 2:
        yield buffer[:size].reshape(shape[::-1]).T


@pytest.mark.parametrize("name", EXAMPLES)
def test_out_may_overlap_inputs(name: str) -> None:
    example = EXAMPLES[name]
    for position, arg in enumerate(example.args):
        for j, like in enumerate(outputs(example)):
            if not isinstance(arg, np.ndarray) or arg.dtype != like.dtype:
                continue
            for i in range(8):
                args, outs, wanted = list(example.args), outputs(example), outputs(example)
                buffer = np.resize(arg.reshape(-1), 4 * max(arg.size, like.size) + 2)
                args[position] = buffer[: arg.size].reshape(arg.shape)
                run(name, *[np.copy(a) if isinstance(a, np.ndarray) else a for a in args], *wanted)
                overlapping = list(views(buffer, like.shape))
                if i < len(overlapping):
                    outs[j] = overlapping[i]
                    run(name, *args, *outs)
                    # Loops for different strides may round differently.
                    for out, want in zip(outs, wanted, strict=True):
                        np.testing.assert_allclose(
                            out.astype(float), want.astype(float), rtol=1e-12, atol=1e-14,
                            err_msg=f"argument {position}, view {i}",
                        )  # fmt: skip


def test_indices_that_overlap_the_result() -> None:
    buffer = np.array([2, 0, 1, 5, 6, 7])
    run("take", np.array([10, 20, 30]), buffer[:3], 0, buffer[1:4])
    assert buffer.tolist() == [2, 30, 10, 20, 6, 7]
    flat = np.array([[3, 9, 1], [8, 2, 2], [1, 1, 7]])
    run("argmax", flat, 1, flat.reshape(-1)[2:5])
    assert flat.reshape(-1)[2:5].tolist() == [1, 0, 2]


# Arrays as they come


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


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("layout", ["strided", "fortran", "reversed", "swapped", "unaligned"])
def test_layouts(name: str, layout: str) -> None:
    example = EXAMPLES[name]
    args = [laid_out(a, layout) if isinstance(a, np.ndarray) else a for a in example.args]
    outs = [laid_out(out, layout) for out in outputs(example)]
    run(name, *args, *outs)
    check(example, outs)


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """The same elements in another layout."""
    if layout == "fortran":
        return x.copy("F")
    if layout == "swapped":
        return x.astype(x.dtype.newbyteorder())
    if layout == "unaligned":
        return (
            np.frombuffer(bytearray(b"\0" + x.tobytes()), np.uint8)[1:]
            .view(x.dtype)
            .reshape(x.shape)
        )
    if layout == "reversed":
        return x[::-1].copy()[::-1] if x.ndim else x
    return np.repeat(x[..., None], 2, -1)[..., 0]


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


def test_the_page_is_fresh() -> None:
    root = Path(__file__).parent.parent
    spec = importlib.util.spec_from_file_location("gen_pages", root / "scripts/gen_builtins.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    page = generator.kernels_page()
    rows = re.findall(r"^\| `(\S+)` \| `.*: tensor` \| .*\. \|$", page, re.MULTILINE)
    assert sorted(rows) == sorted(PREFIX + name for name in [*EXAMPLES, *ALIASES])
    hint = "docs/kernels.md is stale: run python scripts/gen_builtins.py"
    assert (root / "docs" / "kernels.md").read_text(encoding="utf-8") == page, hint


# In programs


def test_a_program_of_kernels_needs_nothing_else(tmp_path: Path) -> None:
    """A saved program runs where no function is allowed but those that ship with relaxvm."""
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
