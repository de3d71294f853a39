"""topi and te: operators as loops, compared with numpy and with the operators of Relax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import op, te
from relaxvm.ir import BlockBuilder, TensorType, Var
from relaxvm.te import create_prim_func, placeholder, topi
from relaxvm.te.tensor import INDEX_DTYPE, Tensor
from relaxvm.tir import const, min_value, select
from relaxvm.tir.build import compile_prim_func

from .passes import run

FLOATS = np.random.default_rng(3)


def numbers(*shape: int) -> Any:
    return FLOATS.standard_normal(shape).astype("float32")


def evaluate(formula: Callable[..., Any], *arrays: Any) -> Any:
    """Compute te tensors of arrays, without a compiler."""
    token = INDEX_DTYPE.set("int64")
    try:
        inputs = [placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(arrays)]
        made = formula(*inputs)
    finally:
        INDEX_DTYPE.reset(token)
    outputs = [made] if isinstance(made, Tensor) else list(made)
    func = create_prim_func([*inputs, *outputs])
    results = [np.zeros([int(d) for d in out.shape], out.dtype) for out in outputs]
    compile_prim_func(func, prefer="python")(*arrays, *results)
    return results[0] if isinstance(made, Tensor) else results


def relax(call: Callable[..., Any], *arrays: Any) -> Any:
    """The same by an operator of Relax."""
    builder = BlockBuilder()
    params = [Var(f"x{k}", TensorType(a.shape, str(a.dtype))) for k, a in enumerate(arrays)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(call(*params)))
    return run(builder.get(), *arrays)


X, Y = numbers(3, 4), numbers(3, 4)
IMAGE, KERNEL = numbers(2, 4, 7, 6), numbers(6, 4, 3, 2)
LAST = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))
PLACES = np.array([[2, 0, 1, 1]], "int64")
TIES = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, 0, 5, 5]], "float32")

AGAINST_NUMPY: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "split in parts": (lambda x: topi.split(x, 2, 1), (X,), np.split(X, 2, 1)),
    "split at places": (lambda x: topi.split(x, [1, 3], axis=-1), (X,), np.split(X, [1, 3], 1)),
    "stack": (lambda x, y: topi.stack([x, y], 1), (X, Y), np.stack([X, Y], 1)),
    "flip": (lambda x: topi.flip(x, 1), (X,), X[:, ::-1]),
    "repeat": (lambda x: topi.repeat(x, 2, 1), (X,), X.repeat(2, 1)),
    "repeat of all": (lambda x: topi.repeat(x, 2), (X,), X.repeat(2)),
    "tile": (lambda x: topi.tile(x, (2, 1, 3)), (X,), np.tile(X, (2, 1, 3))),
    "upper triangle": (lambda x: topi.trilu(x, const(1, "int32"), True), (X,), np.triu(X, 1)),
    "lower triangle": (lambda x: topi.trilu(x, -1, upper=False), (X,), np.tril(X, -1)),
    "gather": (lambda x, i: topi.gather(x, 0, i), (X, PLACES), np.take_along_axis(X, PLACES, 0)),
    "gather_nd": (lambda x, i: topi.gather_nd(x, i), (X, PLACES[:, :2].T.copy()), X[[2], [0]]),
    "argmax": (lambda x: topi.argmax(x, 1), (TIES,), TIES.argmax(1)),
    "argmin": (lambda x: topi.argmin(x, 1, keepdims=True), (TIES,), TIES.argmin(1)[:, None]),
    "argmax of all": (topi.argmax, (TIES,), TIES.argmax()),
    "the last of equal ones": (
        lambda x: topi.argmax(x, 1, select_last_index=True), (TIES,), np.array([2, 3, 3]),
    ),
    "all": (lambda x: topi.all(topi.greater(x, 0.5), 1), (TIES,), (TIES > 0.5).all(1)),
    "any": (lambda x: topi.any(topi.greater(x, 2.5)), (TIES,), np.array(True)),
    "arange": (lambda: topi.arange(1, 8, 3, "int32"), (), np.arange(1, 8, 3)),
    "arange of one": (lambda: topi.arange(3), (), np.arange(3)),
    "arange downwards": (lambda: topi.arange(5, 0, -2, "int64"), (), np.arange(5, 0, -2)),
    "eye": (lambda: topi.eye(3, 4, 1), (), np.eye(3, 4, 1)),
    "one_hot": (
        lambda i: topi.one_hot(i, 2.0, -1.0, 3, -1, "float32"), (PLACES,),
        np.where(np.eye(3, dtype=bool)[PLACES], 2.0, -1.0),
    ),
    "shape": (lambda x: topi.shape(x, "int64"), (X,), np.array([3, 4])),
    "elemwise_sum": (lambda x, y: topi.elemwise_sum([x, y, x]), (X, Y), X + Y + X),
    "meshgrid": (
        lambda x, y: topi.meshgrid([x, y], "xy"), (X[0], Y[:, 0].copy()),
        np.meshgrid(X[0], Y[:, 0]),
    ),
    "logical_xor": (
        lambda x, y: topi.logical_xor(topi.greater(x, 0.0), topi.greater(y, 0.0)), (X, Y),
        (X > 0) ^ (Y > 0),
    ),
    "atan2": (topi.atan2, (X, Y), np.arctan2(X, Y)),
    "relu": (topi.nn.relu, (X,), np.maximum(X, 0)),
    "leaky_relu": (lambda x: topi.nn.leaky_relu(x, 0.1), (X,), np.where(X > 0, X, X * 0.1)),
    "prelu": (topi.nn.prelu, (X, Y[0]), np.where(X > 0, X, X * Y[0])),
    "softplus": (topi.nn.softplus, (X,), np.log1p(np.exp(X))),
    "softplus of large numbers": (topi.nn.softplus, (X + 40,), X + 40),
    "flatten": (topi.nn.flatten, (IMAGE,), IMAGE.reshape(2, -1)),
    "dense": (topi.nn.dense, (X, Y), X @ Y.T),
    "dense with a bias": (topi.nn.dense, (X, Y, X[:, 0].copy()), X @ Y.T + X[:, 0]),
    "dense of integers": (
        lambda x, y: topi.nn.dense(x, y, out_dtype="int32"),
        (np.full((1, 300), 9, "int8"), np.full((2, 300), 9, "int8")), np.full((1, 2), 24300),
    ),
    "matmul": (lambda x, y: topi.nn.matmul(x, y, transpose_a=True), (X, Y), X.T @ Y),
    "batch_matmul": (
        topi.nn.batch_matmul, (IMAGE[0], IMAGE[1]), IMAGE[0] @ IMAGE[1].transpose(0, 2, 1),
    ),
    "pad": (
        lambda x: topi.nn.pad(x, (1, 0), (0, 2), 5.0), (X,),
        np.pad(X, ((1, 0), (0, 2)), constant_values=5),
    ),
    "upsampling": (
        lambda x: topi.nn.upsampling(x, 2, 3), (IMAGE,), IMAGE.repeat(2, 2).repeat(3, 3),
    ),
    "upsampling, channels last": (
        lambda x: topi.nn.upsampling(x, 2, 3, "NHWC"), (LAST,), LAST.repeat(2, 1).repeat(3, 2),
    ),
    "global_pool": (lambda x: topi.nn.global_pool(x, "avg"), (IMAGE,),
                    IMAGE.mean((2, 3), keepdims=True)),
}  # fmt: skip


@pytest.mark.parametrize("case", AGAINST_NUMPY)
def test_against_numpy(case: str) -> None:
    formula, arrays, expected = AGAINST_NUMPY[case]
    result = evaluate(formula, *arrays)
    for a, b in zip(*((v if isinstance(v, (list, tuple)) else [v]) for v in (result, expected)),
                    strict=True):  # fmt: skip
        assert a.shape == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


GROUPED = numbers(8, 2, 3, 2)
DEPTHWISE = numbers(4, 2, 3, 2)
SIGNAL, TAPS = numbers(2, 3, 9), numbers(4, 3, 3)
VOLUME = numbers(1, 2, 4, 5, 3)
WEIGHT, BIAS = numbers(4), numbers(4)

AGAINST_RELAX: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "conv2d": (
        lambda x, w: topi.nn.conv2d(x, w, 1, 0, 1), lambda x, w: op.nn.conv2d(x, w),
        (IMAGE, KERNEL),
    ),
    "conv2d with all numbers": (
        lambda x, w: topi.nn.conv2d(x, w, (2, 1), (1, 2, 0, 1), (1, 2)),
        lambda x, w: op.nn.conv2d(x, w, (2, 1), (1, 2, 0, 1), (1, 2)), (IMAGE, KERNEL),
    ),
    "conv2d in groups": (
        lambda x, w: topi.nn.conv2d(x, w, 1, [1, 1], 1),
        lambda x, w: op.nn.conv2d(x, w, padding=(1, 1), groups=2), (IMAGE, GROUPED),
    ),
    "conv2d of each channel": (
        lambda x, w: topi.nn.depthwise_conv2d_nchw(x, w, 1, 0, 1),
        lambda x, w: op.nn.conv2d(x, op.reshape(w, (8, 1, 3, 2)), groups=4), (IMAGE, DEPTHWISE),
    ),
    "conv2d, channels last": (
        lambda x, w: topi.nn.conv2d(x, w, 2, "VALID", 1, "NHWC"),
        lambda x, w: op.nn.conv2d(x, w, 2, data_layout="NHWC", kernel_layout="HWIO"),
        (LAST, np.ascontiguousarray(KERNEL.transpose(2, 3, 1, 0))),
    ),
    "conv1d": (
        lambda x, w: topi.nn.conv1d(x, w, 2, 1), lambda x, w: op.nn.conv1d(x, w, 2, 1),
        (SIGNAL, TAPS),
    ),
    "softmax": (
        lambda x: topi.nn.softmax(x, 1), lambda x: op.nn.softmax(x, axis=1), (IMAGE[0],),
    ),
    "log_softmax": (topi.nn.log_softmax, lambda x: op.nn.log_softmax(x, axis=-1), (X,)),
    "max_pool2d": (
        lambda x: topi.nn.pool2d(x, (3, 2), (2, 1), (1, 2), (1, 0, 0, 1), "max"),
        lambda x: op.nn.max_pool2d(x, (3, 2), (2, 1), (1, 0, 0, 1), (1, 2)), (IMAGE,),
    ),
    "avg_pool2d": (
        lambda x: topi.nn.pool2d(x, (3, 2), (2, 1), (1, 1), (1, 1, 1, 1), "avg"),
        lambda x: op.nn.avg_pool2d(x, (3, 2), (2, 1), (1, 1), count_include_pad=True), (IMAGE,),
    ),
    "avg_pool2d without padding in the mean": (
        lambda x: topi.nn.pool2d(x, (3, 2), (2, 1), (1, 1), (1, 1, 1, 1), "avg",
                                 count_include_pad=False),
        lambda x: op.nn.avg_pool2d(x, (3, 2), (2, 1), (1, 1)), (IMAGE,),
    ),
    "avg_pool2d with windows that are begun": (
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 4), (1, 1), (0, 0, 0, 0), "avg", ceil_mode=True),
        lambda x: op.nn.avg_pool2d(x, (2, 2), (2, 4), ceil_mode=True), (IMAGE,),
    ),
    "adaptive_pool": (
        lambda x: topi.nn.adaptive_pool(x, (3, 4), "avg"),
        lambda x: op.nn.adaptive_avg_pool2d(x, (3, 4)), (IMAGE,),
    ),
    "layer_norm": (
        lambda x, g, b: topi.nn.layer_norm(x, g, b, -1),
        lambda x, g, b: op.nn.layer_norm(x, g, b, axes=-1), (X, WEIGHT, BIAS),
    ),
    "rms_norm": (
        lambda x, g: topi.nn.rms_norm(x, g, -1), lambda x, g: op.nn.rms_norm(x, g, axes=-1),
        (X, WEIGHT),
    ),
    "group_norm": (
        lambda x, g, b: topi.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        lambda x, g, b: op.nn.group_norm(x, g, b, 2, 1, [2, 3]), (IMAGE, WEIGHT, BIAS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AGAINST_RELAX)
def test_against_relax(case: str) -> None:
    formula, call, arrays = AGAINST_RELAX[case]
    expected = relax(call, *arrays)
    result = evaluate(formula, *arrays)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-5)


def test_max_pool3d_and_batch_norm() -> None:
    result = evaluate(
        lambda x: topi.nn.pool3d(x, 2, 1, 1, 0, "max"), VOLUME
    )
    windows = np.lib.stride_tricks.sliding_window_view(VOLUME, (2, 2, 2), (2, 3, 4))
    np.testing.assert_array_equal(result, windows.max((-3, -2, -1)))
    args = IMAGE, WEIGHT, BIAS, BIAS, np.abs(WEIGHT)
    out, mean, variance = evaluate(topi.nn.batch_norm, *args)
    shape = (1, 4, 1, 1)
    expected = (IMAGE - BIAS.reshape(shape)) / np.sqrt(np.abs(WEIGHT).reshape(shape) + 1e-5)
    np.testing.assert_allclose(
        out, expected * WEIGHT.reshape(shape) + BIAS.reshape(shape), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(mean, BIAS)
    np.testing.assert_array_equal(variance, np.abs(WEIGHT))


# Several values, and reductions of one's own


def test_a_formula_of_several_values() -> None:
    both = evaluate(
        lambda x: te.compute(x.shape, lambda i, j: (x[i, j] + 1.0, x[i, j] * 2.0), "both"), X
    )
    np.testing.assert_array_equal(both[0], X + 1)
    np.testing.assert_array_equal(both[1], X * 2)


GREATEST = te.comm_reducer(
    lambda a, b: (select(a[1] >= b[1], a[0], b[0]), select(a[1] >= b[1], a[1], b[1])),
    lambda place, value: (const(-1, place), min_value(value)),
    name="greatest",
)


def test_a_reduction_to_several_values() -> None:
    def formula(x: Tensor) -> Any:
        k = te.reduce_axis((0, x.shape[1]), "k")
        return te.compute((x.shape[0],), lambda i: GREATEST((k.var, x[i, k]), axis=k), "greatest")

    place, value = evaluate(formula, TIES)
    np.testing.assert_array_equal(place, TIES.argmax(1))
    np.testing.assert_array_equal(value, TIES.max(1))


def test_a_reduction_of_one_value_with_condition_and_start() -> None:
    longest = te.comm_reducer(lambda a, b: select(a < b, b, a), lambda dtype: min_value(dtype))

    def formula(x: Tensor) -> Any:
        k = te.reduce_axis((0, x.shape[1]), "k")
        return te.compute((3,), lambda i: longest(x[i, k], k, where=k.var < 2, init=1.5))

    np.testing.assert_array_equal(evaluate(formula, TIES), [3.0, 2.0, 1.5])


def test_a_sum_that_begins_with_a_number() -> None:
    def formula(x: Tensor) -> Any:
        k = te.reduce_axis((0, x.shape[1]), "k")
        return te.compute((3,), lambda i: te.sum(x[i, k], k, init=10.0))

    np.testing.assert_array_equal(evaluate(formula, TIES), TIES.sum(1) + 10)


def test_only_one_of_several_values_is_used() -> None:
    def formula(x: Tensor) -> Any:
        k = te.reduce_axis((0, x.shape[1]), "k")
        both: Any = te.compute((3,), lambda i: GREATEST((k.var, x[i, k]), axis=k))
        return te.compute((3,), lambda i: both[0][i] * 2)

    np.testing.assert_array_equal(evaluate(formula, TIES), TIES.argmax(1) * 2)


def test_through_the_builder() -> None:
    builder = BlockBuilder()
    x = Var("x", TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        parts = builder.emit_te(topi.split, x, indices_or_sections=2, axis=1)
        builder.emit_func_output(parts)
    first, second = run(builder.get(), X)
    np.testing.assert_array_equal(first, X[:, :2])
    np.testing.assert_array_equal(second, X[:, 2:])


A, IMAGES = placeholder((3, 4), name="a"), placeholder((2, 4, 7, 6), name="images")
WINDOWS = placeholder((6, 4, 3, 2), name="windows")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: topi.split(A, 3, 1), ValueError, "dimension 1 is 4, expected a multiple of 3"),
        (lambda: topi.split(A, 2, 5), ValueError, "split: axis 5 of a tensor of 2 dimensions"),
        (lambda: topi.trilu(placeholder((3,)), 0, True), ValueError, "at least 2 dimensions"),
        (lambda: topi.arange(0, 3, 0), ValueError, "step: expected a number other than 0"),
        (lambda: topi.meshgrid([A], "no"), ValueError, "indexing: expected 'ij' or 'xy'"),
        (lambda: topi.nn.matmul(A, A), ValueError, "the inner dimensions are 4 and 3"),
        (lambda: topi.nn.matmul(placeholder((3,)), A), ValueError, "at least 2 dimensions"),
        (lambda: topi.nn.batch_matmul(A, A), ValueError, "batch_matmul: expected 3 dimensions"),
        (lambda: topi.nn.pad(A, (1,)), ValueError, "a width for each of 2 dimensions"),
        (lambda: topi.nn.conv2d(IMAGES, WINDOWS, 1, 0, 1, "CHWN"), ValueError,
         "data_layout: expected one of .*, got 'CHWN'"),
        (lambda: topi.nn.conv2d(A, WINDOWS, 1, 0, 1), ValueError, "layout 'NCHW' of a tensor of 2"),
        (lambda: topi.nn.conv2d(IMAGES, WINDOWS, (1, 1, 1), 0, 1), ValueError,
         "strides: expected 2 numbers, got 3"),
        (lambda: topi.nn.conv2d(IMAGES, WINDOWS, 1, (1, 2, 3), 1), ValueError,
         "padding: expected 1, 2 or 4 numbers, got 3"),
        (lambda: topi.nn.conv2d(IMAGES, WINDOWS, 1, "FULL", 1), ValueError,
         "expected 'VALID' or 'SAME', got 'FULL'"),
        (lambda: topi.nn.pool2d(IMAGES, 2, 1, 1, 0, "sum"), ValueError,
         "pool_type: expected 'max' or 'avg', got 'sum'"),
        (lambda: topi.nn.adaptive_pool(IMAGES, 2, "sum"), ValueError, "pool_type: expected"),
        (lambda: topi.nn.upsampling(IMAGES, 1.5, 2), ValueError, "whole factors, got 1.5"),
        (lambda: topi.nn.upsampling(IMAGES, 2, 2, "HWCN"), ValueError, "expected 'NCHW' or 'NHWC'"),
        (lambda: topi.nn.upsampling(IMAGES, 2, 2, method="bilinear"), NotImplementedError,
         "R.image.resize2d has them"),
        (lambda: topi.nn.batch_norm(IMAGES, A, A, A, A, training=True), NotImplementedError,
         "training is not available"),
        (lambda: te.compute((3,), lambda i: (te.sum(A[i, 0], []), A[i, 0])), ValueError,
         "expected the values of one reduction"),
        (lambda: te.comm_reducer(lambda a, b: a, lambda *t: (0,))((A[0, 0], A[0, 1]), []),
         ValueError, "reduce: expected 2 values to begin with, .* got 1"),
    ],
)  # fmt: skip
def test_errors(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
