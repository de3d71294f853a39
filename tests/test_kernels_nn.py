"""Kernels of networks: normalization, attention, loss."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.kernels import PREFIX
from relaxvm.kernels._blocks import BLOCK
from relaxvm.kernels.nn import _SCORES
from relaxvm.values import Shape

from .kernel_examples import normal, positive, reference, seeded  # noqa: F401

TOLERANCE = {np.float16: 4e-3, np.float32: 1e-5, np.float64: 1e-12}


def run(name: str, *args: Any) -> None:
    assert relaxvm.get_func(PREFIX + name)(*args) is None


def check(name: str, *args: Any, want: Any, dtype: Any = np.float64) -> None:
    """Compare with a float64 result, for arguments of a data type."""
    narrow = [a.astype(dtype) if isinstance(a, np.ndarray) else a for a in args]
    out = np.full(np.shape(want), 77, dtype)
    run(name, *narrow, out)
    rtol = TOLERANCE[dtype]
    np.testing.assert_allclose(out.astype(np.float64), want, rtol=rtol, atol=rtol)


def exactly(dtype: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """Round arrays to a data type, and return them as float64."""
    return [array.astype(dtype).astype(np.float64) for array in arrays]


def refuses(name: str, *args: Any, error: type[Exception], message: str) -> None:
    """`args` include the output."""
    with pytest.raises(error, match=f"^{name}: {message}"):
        run(name, *args)


DTYPES = pytest.mark.parametrize("dtype", TOLERANCE)


# Softmax


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (3, 0, 2), (2, 130, 70), (70, 3, 130)])
def test_softmax(dtype: Any, axis: int, shape: tuple[int, ...]) -> None:
    (x,) = exactly(dtype, normal(*shape) * 3)
    if not x.size:
        check("nn.softmax", x, axis, want=x)
        return
    want = reference("nn.softmax", x, axis)
    check("nn.softmax", x, axis, want=want, dtype=dtype)
    check("nn.log_softmax", x, axis, want=np.log(want), dtype=dtype)


def test_softmax_of_one_axis_and_a_long_row() -> None:
    x = normal(3 * BLOCK)
    check("nn.softmax", x, 0, want=reference("nn.softmax", x, 0))
    check("nn.log_softmax", x, -1, want=np.log(reference("nn.softmax", x, 0)))


def test_softmax_does_not_overflow() -> None:
    x = np.array([[1e4, 1e4, -1e4], [-1e30, 0, -np.inf]], np.float32)
    out = np.empty_like(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run("nn.softmax", x, 1, out)
        assert out.tolist() == [[0.5, 0.5, 0], [0, 1, 0]]
        run("nn.log_softmax", x[:1], 1, out[:1])
    np.testing.assert_allclose(out[0], [-np.log(2), -np.log(2), -2e4 - np.log(2)], rtol=1e-6)


def test_softmax_refuses() -> None:
    x = normal(2, 3)
    for name in ("nn.softmax", "nn.log_softmax"):
        refuses(name, x, 2, x, error=ValueError, message="axis: expected an axis of")
        refuses(name, x.astype(int), 0, x, error=TypeError, message="expected floats, got x int64")


# Norms


@DTYPES
@pytest.mark.parametrize("axes", [(-1,), (0,), (1, 2), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (40, 30, 20)])
def test_norms(dtype: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    over = [shape[axis] for axis in axes]
    x, gamma, beta = exactly(dtype, normal(*shape) + 2, normal(*over), normal(*over))
    for center in (False, True):
        for scale in (0, 1):
            args = (x, gamma, beta, Shape(axes), 1e-5, center, scale)
            check("nn.layer_norm", *args, want=reference("nn.layer_norm", *args), dtype=dtype)
    args = (x, gamma, Shape(axes), 1e-5)
    check("nn.rms_norm", *args, want=reference("nn.rms_norm", *args), dtype=dtype)


def test_norms_of_a_large_mean_keep_their_digits() -> None:
    x = normal(4, 200) + 1e6
    args = (x, np.ones(200), np.zeros(200), Shape([1]), 0, True, True)
    out = np.empty_like(x)
    run("nn.layer_norm", *args, out)
    # The mean is rounded to a multiple of np.spacing(1e6).
    np.testing.assert_allclose(out, reference("nn.layer_norm", *args), atol=4 * np.spacing(1e6))


def test_norms_of_empty_tensors() -> None:
    x, none = np.empty((0, 3)), np.ones(3)
    check("nn.layer_norm", x, none, none, Shape([1]), 1e-5, True, True, want=x)
    check("nn.rms_norm", x, none, Shape([1]), 1e-5, want=x)


@DTYPES
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5), (30, 40, 50)])
def test_batch_norm(dtype: Any, axis: int, shape: tuple[int, ...]) -> None:
    length = shape[axis]
    vectors = [normal(length), normal(length), normal(length), positive(length)]
    arrays = exactly(dtype, normal(*shape), *vectors)
    for center, scale in ((True, True), (False, True), (True, False)):
        args = (*arrays, axis, 1e-3, center, scale)
        want = reference("nn.batch_norm", *args, training=False)[0]
        check("nn.batch_norm", *args, want=want, dtype=dtype)


def test_norms_refuse() -> None:
    x, v, one = normal(2, 3), normal(3), Shape([1])
    flags = (1e-5, True, True)
    name = "nn.layer_norm"
    refuses(name, x, v[:2], v, one, *flags, x, error=ValueError, message=r"gamma: .* shape \[3\]")
    refuses(name, x, v, x, one, *flags, x, error=ValueError, message=r"beta: expected shape \[3\]")
    refuses(name, x, v, v, Shape([2]), *flags, x, error=ValueError, message="axis: expected an axi")
    refuses(name, x, v, v, one, 1e-5, 2, 1, x, error=ValueError, message="center: expected a bool")
    refuses(name, x, v, v, one, float("nan"), 1, 1, x, error=ValueError, message="epsilon: .* fini")
    refuses(
        name,
        x,
        v.astype(np.float32),
        v,
        one,
        *flags,
        x,
        error=TypeError,
        message="expected floats of one data type, got x float64.* gamma float32",
    )
    refuses("nn.rms_norm", x, v[:1], one, 1e-5, x, error=ValueError, message=r"weight: .* \[3\]")
    name = "nn.batch_norm"
    refuses(name, x, v, v, v, v[:1], 1, *flags, x, error=ValueError, message=r"variance: .* \[3\]")
    refuses(name, x, v, v, v, v, 2, *flags, x, error=ValueError, message="axis: expected an axis")


def test_dropout_drops_nothing() -> None:
    x = normal(2, 3)
    out, mask = np.empty_like(x), np.empty_like(x)
    run("nn.dropout", x, out, mask)
    np.testing.assert_array_equal(out, x)
    assert (mask == 1).all()


# Loss


@DTYPES
@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 3, 4), (1000, 30)])
def test_cross_entropy(dtype: Any, shape: tuple[int, ...]) -> None:
    logs = np.log(reference("nn.softmax", normal(*shape), -1))
    predictions, labels = exactly(dtype, logs, positive(*shape))
    want = reference("nn.cross_entropy_with_logits", predictions, labels)
    check("nn.cross_entropy_with_logits", predictions, labels, want=want, dtype=dtype)


def test_cross_entropy_refuses() -> None:
    x, out = normal(2, 3), np.empty(())
    name = "nn.cross_entropy_with_logits"
    refuses(name, x, x[0], out, error=ValueError, message="expected tensors of one shape with axes")
    refuses(
        name, out, out, out, error=ValueError, message="expected tensors of one shape with axes"
    )
    refuses(name, x, x, x, error=ValueError, message=r"out: expected float64\[\], got")


# Attention


@DTYPES
@pytest.mark.parametrize("mask", [None, "TopLeft", "BottomRight"])
@pytest.mark.parametrize("scale", [None, 0.25, 1])
@pytest.mark.parametrize("bias", [None, (2, 3, 5, 7), (1, 1, 1, 7), (2, 1, 5, 1)])
def test_attention(dtype: Any, mask: Any, scale: Any, bias: Any) -> None:
    q, k, v = exactly(dtype, normal(2, 5, 3, 4), normal(2, 7, 3, 4), normal(2, 7, 3, 6))
    offset = None if bias is None else exactly(dtype, normal(*bias))[0]
    args = (q, k, v, offset, scale, mask)
    check("nn.attention", *args, want=reference("nn.attention", *args), dtype=dtype)


@pytest.mark.parametrize("mask", ["TopLeft", "BottomRight"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 4), (4, 1), (5, 3), (3, 3)])
def test_attention_of_other_lengths(mask: str, queries: int, keys: int) -> None:
    args = (
        normal(1, queries, 2, 3),
        normal(1, keys, 2, 3),
        normal(1, keys, 2, 3),
        None,
        None,
        mask,
    )
    want = reference("nn.attention", *args)
    check("nn.attention", *args, want=want)
    if mask == "BottomRight" and queries > keys:
        assert not want[:, : queries - keys].any()  # they see no key


def test_attention_in_blocks_of_queries() -> None:
    heads, keys = 4, 600
    queries = 2 * _SCORES // (heads * keys) + 3
    q, k, v = (normal(1, n, heads, 2) for n in (queries, keys, keys))
    bias = normal(1, heads, queries, keys)
    out = np.empty_like(q)
    run("nn.attention", q, k, v, bias, None, "BottomRight", out)
    rows = [0, 1, queries // 2, queries - 1]
    scores = np.einsum("bsnh,btnh->bnst", q[:, rows], k) / np.sqrt(2) + bias[:, :, rows]
    hidden = np.arange(keys) > np.array(rows)[:, None] + keys - queries
    weights = reference("nn.softmax", np.where(hidden, -np.inf, scores), -1)
    np.testing.assert_allclose(out[:, rows], np.einsum("bnst,btnh->bsnh", weights, v), atol=1e-12)


def test_attention_without_keys() -> None:
    q, none = normal(1, 2, 1, 3), np.empty((1, 0, 1, 3))
    check("nn.attention", q, none, none, None, None, None, want=np.zeros((1, 2, 1, 3)))
    check("nn.attention", none, q, q, None, None, "TopLeft", want=none)


def test_attention_refuses() -> None:
    q, k = normal(1, 2, 2, 3), normal(1, 4, 2, 3)
    name = "nn.attention"

    def refused(*args: Any, message: str, error: type[Exception] = ValueError) -> None:
        refuses(name, *args, np.empty_like(q), error=error, message=message)

    refused(q, k, k[:, :3], None, None, None, message=r"expected query\[b, s, n, h\], key\[b, t, m")
    three = normal(1, 4, 3, 3)
    refused(q, three, three, None, None, None, message=r"expected query\[b, s, n, h\]")
    refused(q[0], k, k, None, None, None, message=r"expected query\[b, s, n, h\]")
    refused(q, k, k, normal(2, 4), None, None, message=r"bias: .* broadcasts to \[1, 2, 2, 4\]")
    refused(q, k, k, normal(1, 2, 2, 3), None, None, message="bias: expected a tensor that broad")
    refused(q, k, k, None, None, "Left", message="causal_mask: expected 'TopLeft' or 'BottomRight'")
    refused(q, k, k, None, float("inf"), None, message="scale: expected a finite number")
    refused(
        q, k, k.astype(np.float32), None, None, None, error=TypeError, message="expected floats"
    )


# Narrow floats of ml_dtypes


def test_types_of_ml_dtypes() -> None:
    """The result is computed in float32 and rounded once."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x, v = normal(2, 4, 3, 3), [normal(4), normal(4), normal(4), positive(4)]
    ones, pad = Shape([1, 1]), Shape([1, 1, 1, 1])
    for name, args in (
        ("nn.softmax", (x, 1)), ("nn.log_softmax", (x, 1)),
        ("nn.layer_norm", (x, v[0], v[1], Shape([1]), 1e-5, True, True)),
        ("nn.rms_norm", (x, v[0], Shape([1]), 1e-5)),
        ("nn.batch_norm", (x, *v, 1, 1e-5, True, True)),
        ("nn.attention", (x, x, x, None, None, None)),
        ("nn.conv2d", (x, normal(4, 4, 3, 3), ones, pad, ones, 1)),
        ("nn.conv2d", (x, normal(4, 1, 3, 3), ones, pad, ones, 4)),
        ("nn.avg_pool2d", (x, Shape([3, 3]), ones, pad, ones, False, True)),
        ("nn.max_pool2d", (x, Shape([3, 3]), ones, pad, ones, False)),
    ):  # fmt: skip
        narrow = [a.astype(ml_dtypes.bfloat16) if isinstance(a, np.ndarray) else a for a in args]
        wide = [a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in narrow]
        out, want = np.empty(x.shape, ml_dtypes.bfloat16), np.empty(x.shape, np.float32)
        run(name, *narrow, out)
        run(name, *wide, want)
        np.testing.assert_array_equal(out, want.astype(ml_dtypes.bfloat16), err_msg=name)


@pytest.mark.parametrize("length", [7, 100, 129])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 50, 200])
def test_adaptive_means_of_long_rows(
    count: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some parts at a time, and parts in pieces, as rows of a million elements are."""
    monkeypatch.setattr("relaxvm.kernels.pooling.PIECE", 16)
    x = normal(2, 3, length)
    out = np.empty((2, 3, count))
    relaxvm.get_func("relaxvm.kernel.nn.adaptive_avg_pool1d")(x, (count,), out)
    bounds = [(length * i // count, -(-length * (i + 1) // count)) for i in range(count)]
    expected = np.stack([x[..., start:end].mean(-1) for start, end in bounds], -1)
    np.testing.assert_allclose(out, expected, rtol=1e-12)
