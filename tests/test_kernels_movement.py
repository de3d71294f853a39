"""Kernels that make, move and select elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX
from relaxvm.kernels._blocks import BLOCK
from relaxvm.values import Shape

from .kernel_examples import bools, normal, reference, seeded  # noqa: F401


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def check(name: str, *args: Any, want: Any) -> None:
    """Run a kernel with outputs like the expected results, and compare."""
    wanted = want if isinstance(want, tuple) else (np.asarray(want),)
    outs = [np.full(each.shape, 77).astype(each.dtype) for each in wanted]
    run(name, *args, *outs)
    for out, each in zip(outs, wanted, strict=True):
        np.testing.assert_array_equal(out, each)


def refuses(name: str, *args: Any, error: type[Exception], message: str) -> None:
    """`args` include the outputs."""
    with pytest.raises(error, match=f"^{name}: {message}"):
        run(name, *args)


X = np.arange(24.0).reshape(2, 3, 4)

# Creation


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (3, np.int8, 3), (0.5, np.float16, 0.5), (3.7, np.int32, 3), (2, np.bool_, True),
        (0.0, np.bool_, False), (True, np.float32, 1), (np.array(3.7), np.int64, 3),
        (np.array(5), np.float64, 5), (np.array(True), np.bool_, True),
        (2**63 - 1, np.int64, 2**63 - 1), (2**64 - 1, np.uint64, 2**64 - 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_full(value: Any, dtype: Any, want: Any, shape: tuple[int, ...]) -> None:
    check("full", value, want=np.full(shape, want, dtype))


def test_full_refuses() -> None:
    out = np.empty(2, np.int8)
    refuses("full", np.ones(1), out, error=ValueError, message="value: expected a tensor without")
    refuses("full", 300, out, error=ValueError, message="value: expected a number within int8")


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0)])
def test_zeros_and_ones(dtype: Any, shape: tuple[int, ...]) -> None:
    check("zeros", want=np.zeros(shape, dtype))
    check("ones", want=np.ones(shape, dtype))


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, 1), (1, 8, 3), (8, 1, -3), (5, 5, 1), (7, 1, 2), (0.0, 1.0, 0.3), (0.5, 4, 1),
     (-1, 2 * BLOCK + 3, 2)],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float32, np.float64])
def test_arange(start: Any, end: Any, step: Any, dtype: Any) -> None:
    check("arange", start, end, step, want=np.arange(start, end, step).astype(dtype))


def test_arange_refuses() -> None:
    refuses("arange", 0, 3, 0, np.empty(3), error=ValueError, message="step: expected .* other")
    refuses("arange", 0, 3, 1, np.empty(2), error=ValueError, message=r"out: expected float64\[3")
    refuses("arange", 0, 3, 1, bools(3), error=TypeError, message="out: expected .* of numbers")
    refuses("arange", 0, float("inf"), 1, np.empty(3), error=ValueError, message="end: .* finite")
    refuses("arange", 0, 5, 1e-320, np.empty(3), error=ValueError, message="expected .* finite")
    refuses("arange", 0, 1, 1 << 63, np.empty(1), error=ValueError, message="expected .* 64 bits")


# Shapes


@pytest.mark.parametrize("name", ["reshape", "expand_dims", "squeeze", "flatten"])
@pytest.mark.parametrize(
    ("before", "after"),
    [((2, 3, 4), (24,)), ((2, 3, 4), (4, 1, 6)), ((), (1, 1)), ((1, 1), ()), ((0, 3), (2, 0))],
)
def test_reshape(name: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = normal(*before)
    check(name, x, want=x.reshape(after))
    if x.ndim > 1:
        check(name, x.T, want=x.T.reshape(after))
        strided = np.empty((*after, 2), x.dtype)[..., 0]
        run(name, x.T, strided)
        np.testing.assert_array_equal(strided, x.T.reshape(after))


def test_reshape_refuses() -> None:
    refuses("reshape", X, np.empty(23), error=ValueError, message="out: expected 24 elements, got")
    refuses("reshape", X, np.empty(24, int), error=ValueError, message=r"out: expected float64\[24")


@pytest.mark.parametrize("axes", [None, Shape([2, 0, 1]), Shape([-1, 1, 0])])
def test_permute_dims(axes: Any) -> None:
    check("permute_dims", X, axes, want=X.transpose(axes))


def test_permute_dims_of_a_scalar() -> None:
    for axes in ((), (None,), (Shape(),)):
        check("permute_dims", np.array(2.0), *axes, want=np.array(2.0))


@pytest.mark.parametrize(
    ("before", "after"), [((), (2, 2)), ((3, 1), (2, 3, 4)), ((1,), (0,)), ((2, 3), (2, 3))]
)
def test_broadcast_to(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    x = normal(*before)
    check("broadcast_to", x, want=np.broadcast_to(x, after))


def test_broadcast_to_refuses() -> None:
    name = "broadcast_to"
    refuses(name, X, np.empty((3, 4)), error=ValueError, message=r"out: expected float64\[2, 3, 4")
    refuses(name, X, np.empty((2, 3, 5)), error=ValueError, message="expected shapes that broad")


# Several tensors


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat_and_stack(axis: int) -> None:
    tensors = [X, X + 1, X + 2]
    check("concat", *tensors, axis, want=np.concatenate(tensors, axis))
    check("stack", *tensors, axis, want=np.stack(tensors, axis))
    check("concat", X, axis, want=X)
    empty = np.empty((2, 3, 0))
    check("concat", X, empty, -1, want=X)


def test_stack_of_scalars() -> None:
    check("stack", np.array(1), np.array(2), 0, want=np.array([1, 2]))


def test_concat_and_stack_refuse() -> None:
    narrow = X.astype(np.float32)
    for name in ("concat", "stack"):
        refuses(name, X, 0, error=TypeError, message="expected tensors, axis and out, got 2")
        refuses(
            name,
            X,
            narrow,
            0,
            X,
            error=ValueError,
            message="expected tensors of one data type, got float64.* float32.*cast converts",
        )
    refuses(
        "concat",
        X,
        X[:, :2],
        0,
        X,
        error=ValueError,
        message="expected tensors whose shapes differ in axis 0 only, got",
    )
    refuses("concat", X, X[0], 0, X, error=ValueError, message="expected tensors whose shapes")
    refuses("stack", X, X[:1], 0, X, error=ValueError, message="expected tensors of one shape")
    refuses("concat", X, X, 3, X, error=ValueError, message="axis: expected an axis of")
    refuses("concat", np.array(1.0), 0, X, error=ValueError, message="axis: expected an axis of")
    refuses("stack", X, X, 4, X, error=ValueError, message="axis: expected an axis of")


@pytest.mark.parametrize(
    ("sections", "axis"),
    [(2, 2), (1, 0), (3, 1), (3, 2), (5, -1), (Shape([1, 3]), 2), (Shape([1, 1]), 1), (Shape(), 0),
     (Shape([0, 9]), 1)],
)  # fmt: skip
def test_split(sections: Any, axis: int) -> None:
    check("split", X, sections, axis, want=reference("split", X, sections, axis))


def test_split_at_indices_in_any_order() -> None:
    want = (X[..., :0], X[..., :3], X[..., :0], X[..., 1:], X[..., :0])
    check("split", X, Shape([-3, 3, 1, 9]), 2, want=want)


def test_split_into_parts_of_itself() -> None:
    buffer = np.arange(6.0)
    run("split", buffer, 2, 0, buffer[3:], buffer[:3])
    assert buffer.tolist() == [3, 4, 5, 0, 1, 2]


def test_split_refuses() -> None:
    parts = reference("split", X, 2, 2)
    refuses("split", X, 2, 2, error=TypeError, message="expected x, indices_or_sections, axis")
    refuses("split", X, 2, 2, parts[0], error=ValueError, message="expected 2 outs, got 1")
    refuses("split", X, 1 << 62, 2, parts[0], error=ValueError, message=f"expected {1 << 62} outs")
    refuses("split", X, 0, 2, *parts, error=ValueError, message="indices_or_.*at least 1, got 0")
    refuses("split", X, 2, 1, *parts, error=ValueError, message=r"out: expected float64\[2, 2, 4")


# Repetition


@pytest.mark.parametrize("repeats", [0, 1, 3])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_repeat(repeats: int, axis: int | None) -> None:
    check("repeat", X, repeats, axis, want=np.repeat(X, repeats, axis))


def test_repeat_a_scalar() -> None:
    check("repeat", np.array(2.0), 3, None, want=np.full(3, 2.0))
    refuses("repeat", X, -1, 0, X, error=ValueError, message="repeats: expected at least 0, got -1")


@pytest.mark.parametrize(
    "repeats", [2, Shape([2]), Shape([2, 1, 3]), Shape([2, 1, 1, 3]), Shape([0, 1]), Shape()]
)
def test_tile(repeats: Any) -> None:
    check("tile", X, repeats, want=np.tile(X, repeats))


def test_tile_refuses() -> None:
    refuses("tile", X, Shape([-1]), X, error=ValueError, message="repeats: .* at least 0")
    refuses("tile", X, Shape([2]), X, error=ValueError, message=r"out: expected float64\[2, 3, 8")


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_flip(axis: int) -> None:
    check("flip", X, axis, want=np.flip(X, axis))


# Padding


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    "width", [(0, 0, 0, 0, 0, 0), (1, 0, 0, 2, 3, 1), (0, 1, 2, 2, 0, 3), (1, 1, 1, 0, 0, 0)]
)
def test_pad(mode: str, width: tuple[int, ...]) -> None:
    check("nn.pad", X, Shape(width), mode, 2.5, want=reference("nn.pad", X, width, mode, 2.5))


@pytest.mark.parametrize("mode", ["replicate", "circular"])
def test_pad_with_more_than_there_is(mode: str) -> None:
    x = np.arange(3.0)
    check("nn.pad", x, Shape([7, 8]), mode, 0, want=reference("nn.pad", x, (7, 8), mode, 0))


def test_pad_takes_away() -> None:
    x = np.arange(5.0)
    for width, want in (
        ((-1, 1), [1, 2, 3, 4, 9]), ((2, -3), [9, 9, 0, 1]), ((-2, -3), []), ((-6, 3), [9, 9]),
    ):  # fmt: skip
        check("nn.pad", x, Shape(width), "constant", 9.0, want=np.array(want, float))


def test_pad_of_integers_scalars_and_nothing() -> None:
    check("nn.pad", np.array([1, 2]), Shape([1, 1]), "constant", 5.7, want=np.array([5, 1, 2, 5]))
    check("nn.pad", np.array(2.0), Shape(), "constant", 0, want=np.array(2.0))
    check("nn.pad", np.empty((0, 2)), Shape([1, 0, 0, 1]), "constant", 1, want=np.ones((1, 3)))


def test_pad_refuses() -> None:
    x, out = np.arange(3.0), np.empty(9)
    name = r"nn.pad"
    for mode, width in (("reflect", (3, 0)), ("replicate", (-1, 0)), ("constant", (-2, -2))):
        refuses(
            name,
            x,
            Shape(width),
            mode,
            0,
            out,
            error=ValueError,
            message=f"pad_width: expected widths that go with mode '{mode}', got {width[0]} ",
        )
    refuses(name, x[:0], Shape([1, 0]), "circular", 0, out, error=ValueError, message="pad_width")
    refuses(name, x, Shape([1]), "constant", 0, out, error=ValueError, message="pad_width: .* 2")
    refuses(
        name,
        x,
        Shape([1, 1]),
        "edge",
        0,
        out,
        error=ValueError,
        message="pad_mode: expected 'constant' or .*, got 'edge'",
    )


# Selection


@pytest.mark.parametrize(
    ("axes", "begin", "end", "strides", "want"),
    [
        ((0,), (1,), (2,), None, X[1:2]),
        ((2, 0), (-1, 0), (-100, 1), (-2, 1), X[:1, :, ::-2]),
        ((1,), (2**31,), (-(2**31),), (-1,), X[:, ::-1]),
        ((-1,), (-3,), (-1,), (1,), X[..., -3:-1]),
        ((1,), (2,), (1,), (1,), X[:, 2:1]),
        ((1,), (0,), (100,), (2,), X[:, ::2]),
        ((), (), (), (), X),
    ],
)
def test_strided_slice(axes: Any, begin: Any, end: Any, strides: Any, want: np.ndarray) -> None:
    args = [None if each is None else Shape(each) for each in (axes, begin, end, strides)]
    check("strided_slice", X, *args, want=want)


def test_strided_slice_refuses() -> None:
    def refused(*args: Any, message: str) -> None:
        shapes = [Shape(arg) for arg in args]
        refuses("strided_slice", X, *shapes, X, error=ValueError, message=message)

    refused((3,), (0,), (1,), (1,), message="axis: expected an axis of")
    refused((1, -2), (0, 0), (1, 1), (1, 1), message="axes: expected each axis once")
    refused((1,), (0, 1), (1,), (1,), message="begin: expected 1 int, got")
    refused((1,), (0,), (), (1,), message="end: expected 1 int, got")
    refused((1,), (0,), (1,), (0,), message="strides: expected ints other than 0")
    refused((1,), (0,), (1,), (1,), message=r"out: expected float64\[2, 1, 4\]")


INDICES = np.array([[0, 3], [-1, 5]])


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_take_outside(dtype: Any) -> None:
    indices = INDICES.astype(dtype)
    check("take", X, indices, 1, "clip", want=X[:, [[0, 2], [0, 2]]])
    check("take", X, indices, 1, "wrap", want=X[:, [[0, 0], [2, 2]]])
    want = X[:, [[0, 0], [0, 0]]].copy()
    want[:, [0, 1, 1], [1, 0, 1]] = np.nan
    check("take", X, indices, 1, "nan", want=want)
    with pytest.raises(IndexError, match="take: indices: expected 0 <= index < 3, got -1"):
        run("take", X, indices, 1, "fast", np.empty((2, 2, 2, 4)))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.int8])
def test_take_from_the_end(dtype: Any) -> None:
    indices = np.array([[0, 2], [-1, -3]], dtype)
    check("take", X, indices, 1, "python", want=X[:, [[0, 2], [2, 0]]])
    check("take", X[0], indices, 0, "python", want=X[0, [[0, 2], [2, 0]]])
    for bad in (3, -4):
        with pytest.raises(IndexError, match=f"take: indices: expected -3 <= index < 3, got {bad}"):
            run("take", X, np.array([0, bad], dtype), 1, "python", np.empty((2, 2, 4)))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_take_far_outside(dtype: Any) -> None:
    """numpy would subtract the length from the index until it is inside."""
    far = np.iinfo(dtype).max
    indices = np.array([far, far - 1, 0], dtype)
    for size in (1, 100_000):
        many = np.tile(indices, size)
        rows = np.array([int(index) % 3 for index in indices])
        check("take", X[0, :, 0], many, None, "wrap", want=X[0, np.tile(rows, size), 0])
        check("take", X[0, :, 0], many, None, "clip", want=X[0, np.tile([2, 2, 0], size), 0])


def test_take_inside() -> None:
    for mode in ("fast", "clip", "wrap", "nan", "python"):
        check("take", X, np.array([2, 0], np.uint8), -2, mode, want=X[:, [2, 0]])
        check("take", X[0, 0], np.array([[1], [3]]), None, mode, want=X[0, 0, [[1], [3]]])
        check("take", X, np.array(1), 0, mode, want=X[1])
        check("take", X[:0], np.empty((0, 2), int), 0, mode, want=np.empty((0, 2, 3, 4)))


def test_take_nan_writes_to_views() -> None:
    out = np.zeros((2, 3, 2, 2))[..., 0]
    run("take", X, np.array([4, 3]), 2, "nan", out)
    np.testing.assert_array_equal(out, np.stack([np.full((2, 3), np.nan), X[..., 3]], -1))


def test_take_without_indices() -> None:
    nothing = np.empty((0, 2))
    for mode in ("fast", "clip", "wrap"):
        with pytest.raises(IndexError, match="take: indices: expected 0 <= index < 0, got 1"):
            run("take", nothing, np.array([1]), 0, mode, np.empty((1, 2)))
    check("take", nothing, np.array([1]), 0, "nan", want=np.full((1, 2), np.nan))


def test_take_refuses() -> None:
    at = np.array([0])
    refuses("take", X, at, None, X, error=ValueError, message="axis: expected an axis of .* None")
    refuses("take", X, at, 0, "raise", X, error=ValueError, message="mode: expected 'fast' or")
    refuses("take", X, at, X, error=TypeError, message="expected x, indices, axis, mode and out")
    ints = X.astype(int)
    refuses("take", ints, at, 0, "nan", ints[:1], error=TypeError, message="expected floats, got x")


# Overlapping vectors with different strides, which numpy's copy does not handle


@pytest.mark.parametrize(
    ("name", "args"),
    [("cast", ()), ("reshape", ()), ("broadcast_to", ()), ("permute_dims", (None,)),
     ("strided_slice", (Shape([0]), Shape([0]), Shape([9]), None)), ("flip", (0,)),
     ("sort", (0, False)), ("round", ())],
)  # fmt: skip
def test_overlapping_vectors(name: str, args: tuple[Any, ...]) -> None:
    for source, target in (
        (slice(0, 9), slice(0, 18, 2)), (slice(0, 18, 2), slice(9, 18)),
        (slice(4, 13), slice(0, 18, 2)), (slice(0, 18, 2), slice(4, 13)),
        (slice(8, None, -1), slice(0, 18, 2)),
    ):  # fmt: skip
        buffer = np.arange(18) * 7 % 18
        x, out = buffer[source], buffer[target]
        want = np.empty(9, int)
        run(name, x.copy(), *args, want)
        run(name, x, *args, out)
        np.testing.assert_array_equal(out, want)
