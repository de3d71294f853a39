"""topi: sorting, scans, scattering, contraction, selection and layers, compared with numpy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import te
from relaxvm.te import topi
from relaxvm.tir.build import compile_prim_func

from .test_topi import evaluate

RANDOM = np.random.default_rng(17)


def numbers(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


X, Y = numbers(3, 4), numbers(4, 5)
TIES = RANDOM.integers(0, 5, (3, 7)).astype("float32")
IMAGE = numbers(2, 4, 6, 5)
LAST = np.ascontiguousarray(IMAGE.transpose(0, 2, 3, 1))
DEPTH = numbers(2, 8, 3, 3)
PLACES, UPDATES = np.array([[0, 2, 1, -1]], "int64"), numbers(1, 4)


def scattered(reduction: Callable[[Any, Any], Any]) -> Any:
    result = X.copy()
    for column, row in enumerate(PLACES[0]):
        result[row, column] = reduction(result[row, column], UPDATES[0, column])
    return result


def with_values(data: Any, index: Any, values: Any) -> Any:
    result = data.copy()
    result[index] = values
    return result


def transposed(x: Any, w: Any, stride: int, pads: tuple[int, int], extra: int, groups: int) -> Any:
    """A transposed convolution along one axis, element by element."""
    (n, c, size), (_, o, taps) = x.shape, w.shape
    whole = np.zeros((n, o * groups, (size - 1) * stride + taps + extra))
    per_group = c // groups
    for b, i, at, out, tap in itertools.product(*map(range, (n, c, size, o, taps))):
        whole[b, i // per_group * o + out, at * stride + tap] += x[b, i, at] * w[i, out, tap]
    return whole[:, :, pads[0] : whole.shape[2] - pads[1]]


def normalized(x: Any, size: int, alpha: float, beta: float, bias: float) -> Any:
    margin = size // 2
    squares = np.pad(x * x, [(0, 0), (margin, margin), (0, 0), (0, 0)])
    total = sum(squares[:, k : k + x.shape[1]] for k in range(size))
    return x / (bias + alpha / size * total) ** beta


def blocks(x: Any, size: int) -> Any:
    """Depth to space, the places of a block before its channels."""
    n, c, h, w = x.shape
    split = x.reshape(n, size, size, c // size**2, h, w)
    return split.transpose(0, 3, 4, 1, 5, 2).reshape(n, c // size**2, h * size, w * size)


ROWS = np.sort(TIES, 1)
SIGNAL, TAPS = numbers(2, 4, 5), numbers(4, 3, 3)
PREDICTIONS, TARGETS, WEIGHTS = numbers(5, 3), np.array([0, 1, 2, 0, 1]), np.abs(numbers(3))
LOSSES = -PREDICTIONS[np.arange(5), TARGETS] * WEIGHTS[TARGETS]

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "sort": (topi.sort, (TIES,), np.sort(TIES, -1)),
    "sort downwards": (lambda x: topi.sort(x, 0, 0), (TIES,), -np.sort(-TIES, 0)),
    "sort of what is not a number": (
        topi.sort,
        (np.array([[np.nan, 1, np.nan, -np.inf, 0]], "float32"),),
        np.array([[-np.inf, 0, 1, np.nan, np.nan]]),
    ),
    "argsort downwards of what is not a number": (
        lambda x: topi.argsort(x, is_ascend=0, dtype="int32"),
        (np.array([1, np.nan, 2, np.nan], "float32"),),
        np.array([1, 3, 2, 0]),
    ),
    "sort of integers": (topi.sort, (np.array([3, -7, 5, 0]),), np.array([-7, 0, 3, 5])),
    "sort of one": (topi.sort, (X[:, :1].copy(),), X[:, :1]),
    "argsort is stable": (
        lambda x: topi.argsort(x, axis=1, dtype="int32"),
        (TIES,),
        TIES.argsort(1, "stable"),
    ),
    "argsort downwards is stable": (
        lambda x: topi.argsort(x, axis=0, is_ascend=0, dtype="int64"),
        (TIES,),
        (-TIES).argsort(0, "stable"),
    ),
    "argsort of the first ones": (
        lambda x, n: topi.argsort(x, n, axis=1, dtype="int32"),
        (TIES, np.array([3, 7, 1], "int32")),
        np.stack(
            [
                np.concatenate([row[:n].argsort(kind="stable"), np.arange(n, 7)])
                for row, n in zip(TIES, (3, 7, 1), strict=True)
            ]
        ),
    ),
    "topk": (
        lambda x: topi.topk(x, 3),
        (TIES,),
        [-np.sort(-TIES, 1)[:, :3], (-TIES).argsort(1, "stable")[:, :3]],
    ),
    "topk of all": (lambda x: topi.topk(x, 0, 0, "values", True), (TIES,), np.sort(TIES, 0)),
    "topk of places": (
        lambda x: topi.topk(x, 2, 1, "indices", False, "int32"),
        (TIES,),
        (-TIES).argsort(1, "stable")[:, :2],
    ),
    "searchsorted": (
        topi.searchsorted,
        (ROWS, TIES),
        np.stack([np.searchsorted(a, b) for a, b in zip(ROWS, TIES, strict=True)]),
    ),
    "searchsorted in one row, to the right": (
        lambda x, y: topi.searchsorted(x, y, True, "int32"),
        (ROWS[0], TIES),
        np.searchsorted(ROWS[0], TIES, "right"),
    ),
    "cumsum": (lambda x: topi.cumsum(x, 1), (X,), X.cumsum(1)),
    "cumsum of all": (topi.cumsum, (X,), X.cumsum()),
    "cumsum of integers": (
        lambda x: topi.cumsum(x, 0, "int64"),
        (np.full((300, 2), 100, "int8"),),
        np.full((300, 2), 100).cumsum(0),
    ),
    "cumsum without the element": (
        lambda x: topi.cumsum(x, 0, exclusive=True),
        (X,),
        X.cumsum(0) - X,
    ),
    "cumprod": (lambda x: topi.cumprod(x, -1), (X,), X.cumprod(1)),
    "a scan of the greatest": (
        lambda x: topi.scanop(x, lambda a, b: te.max(a, b), -1e9, "cummax", 1),
        (X,),
        np.maximum.accumulate(X, 1),
    ),
    "scatter_elements": (topi.scatter_elements, (X, PLACES, UPDATES), scattered(lambda a, b: b)),
    "scatter_elements, mean": (
        lambda x, i, u: topi.scatter_elements(x, i, u, 0, "mean"),
        (X, PLACES, UPDATES),
        scattered(lambda a, b: (a + b) / 2),
    ),
    **{
        f"scatter_elements, {name}": (
            lambda x, i, u, name=name: topi.scatter_elements(x, i, u, 0, name),
            (X, PLACES, UPDATES),
            scattered(function),
        )
        for name, function in {
            "add": np.add,
            "mul": np.multiply,
            "min": np.minimum,
            "max": np.maximum,
        }.items()
    },
    "scatter_nd adds to a place twice": (
        lambda x, i, u: topi.scatter_nd(x, i, u, "add"),
        (X, np.array([[0, 0], [1, 1]]), np.array([1.0, 2.0], "float32")),
        X + np.array([[0, 3, 0, 0], [0] * 4, [0] * 4], "float32"),
    ),
    "scatter_nd of rows": (
        topi.scatter_nd,
        (X, np.array([[2, 0]]), Y[:2, :4].copy()),
        with_values(X, [2, 0], Y[:2, :4]),
    ),
    "index_put": (
        lambda x, i, j, u: topi.index_put(x, [i, j], u),
        (X, np.array([[0], [2]]), np.array([1, 3]), np.array([[7.0]], "float32")),
        with_values(X, np.ix_([0, 2], [1, 3]), 7),
    ),
    "index_put adds": (
        lambda x, i, u: topi.index_put(x, [i], u, accumulate=True),
        (X, np.array([1, 1]), np.ones((2, 4), "float32")),
        np.add(X, [[0], [2], [0]]),
    ),
    "slice_scatter": (
        lambda x, s: topi.slice_scatter(x, s, 0, 4, 2, 1),
        (X, X[:, 2:].copy()),
        with_values(X, np.s_[:, 0:4:2], X[:, 2:]),
    ),
    "strided_set": (
        topi.strided_set,
        (X, Y[:2, :2].copy(), np.array([0, 1]), np.array([3, 4]), np.array([2, 2])),
        with_values(X, np.s_[0:3:2, 1:4:2], Y[:2, :2]),
    ),
    "sparse_to_dense": (
        lambda i, v: topi.sparse_to_dense(i, (3, 4), v, 7.0),
        (np.array([[0, 1], [2, 3]]), np.array([1.0, 2.0], "float32")),
        with_values(np.full((3, 4), 7.0), ([0, 2], [1, 3]), [1.0, 2.0]),
    ),
    "einsum": (lambda x, y: topi.einsum("ij,jk->ki", x, y), (X, Y), (X @ Y).T),
    "einsum without an arrow": (lambda x, y: topi.einsum("ij, jk", x, y), (X, Y), X @ Y),
    "einsum of a diagonal": (lambda x: topi.einsum("ii->i", x), (X[:, :3].copy(),), np.diag(X)),
    "einsum of all": (lambda x: topi.einsum("ij->", x), (X,), X.sum()),
    "einsum of three": (
        lambda x, y, z: topi.einsum("ij,jk,kl->il", [x, y, z]),
        (X, Y, Y.T.copy()),
        X @ Y @ Y.T,
    ),
    "einsum that broadcasts": (
        lambda x, y: topi.einsum("...ij,...jk->...ik", x, y),
        (IMAGE, IMAGE[:1, :, :5].copy()),
        IMAGE @ IMAGE[:1, :, :5],
    ),
    "tensordot": (lambda x, y: topi.tensordot(x, y, 1), (X, Y), X @ Y),
    "tensordot of two axes": (
        lambda x, y: topi.tensordot(x, y, ([1, 3], [0, 2])),
        (IMAGE, IMAGE[0]),
        np.tensordot(IMAGE, IMAGE[0], ([1, 3], [0, 2])),
    ),
    "tensordot of none": (
        lambda x, y: topi.tensordot(x, y, 0),
        (X[0], Y[:, 0].copy()),
        np.outer(X[0], Y[:, 0]),
    ),
    "layout_transform": (
        lambda x: topi.layout_transform(x, "NCHW", "NHWC"),
        (IMAGE,),
        LAST,
    ),
    "layout_transform to blocks": (
        lambda x: topi.layout_transform(x, "NCHW", "NCHW2c"),
        (IMAGE,),
        IMAGE.reshape(2, 2, 2, 6, 5).transpose(0, 1, 3, 4, 2),
    ),
    "layout_transform of blocks to others": (
        lambda x: topi.layout_transform(
            topi.layout_transform(x, "NCHW", "NCHW4c"), "NCHW4c", "NHWC2c"
        ),
        (DEPTH,),
        DEPTH.reshape(2, 4, 2, 3, 3).transpose(0, 3, 4, 1, 2),
    ),
    "layout_transform to blocks that are not full": (
        lambda x: topi.layout_transform(x, "CW", "CW2c"),
        (X,),
        np.pad(X, [(0, 1), (0, 0)]).reshape(2, 2, 4).transpose(0, 2, 1),
    ),
    "sequence_mask": (
        lambda x, n: topi.sequence_mask(x, n, -1.0, 1),
        (X, np.array([1, 2, 0])),
        np.where(np.arange(4) < np.array([[1], [2], [0]]), X, -1),
    ),
    "unravel_index": (
        topi.unravel_index,
        (np.array([5, 11]), np.array([3, 4])),
        np.unravel_index([5, 11], (3, 4)),
    ),
    "matrix_set_diag": (
        topi.matrix_set_diag,
        (X, X[0, :3].copy()),
        with_values(X, ([0, 1, 2], [0, 1, 2]), X[0, :3]),
    ),
    "matrix_set_diag of two": (
        lambda x, d: topi.matrix_set_diag(x, d, (0, 1)),
        (X, Y[:2, :3].copy()),
        with_values(
            with_values(X, ([0, 1, 2], [1, 2, 3]), Y[0, :3]), ([0, 1, 2], [0, 1, 2]), Y[1, :3]
        ),
    ),
    "adv_index": (
        lambda x, i, j: topi.adv_index(x, [i, j]),
        (X, np.array([0, 2]), np.array([1, 3])),
        X[[0, 2], [1, 3]],
    ),
    "sliding_window": (
        lambda x: topi.sliding_window(x, 0, [2, 3], [1, 1]),
        (X,),
        np.lib.stride_tricks.sliding_window_view(X, (2, 3)),
    ),
    "expand_like": (
        lambda x, y: topi.expand_like(x, y, 1),
        (X[:, 0].copy(), X),
        X[:, :1].repeat(4, 1),
    ),
    "dynamic_strided_slice": (
        lambda x, b, e, s: topi.dynamic_strided_slice(x, b, e, s, [2, 2]),
        (X, np.array([-1, 1]), np.array([-4, 4]), np.array([-2, 2])),
        X[::-2, 1::2],
    ),
    "strided_slice backwards": (
        lambda x: topi.strided_slice(x, [-1, 0], [-4, 2], [-1, 1]),
        (X,),
        X[::-1, :2],
    ),
    "strided_slice of an axis": (
        lambda x: topi.strided_slice(x, [1], [-1], axes=[-1]),
        (X,),
        X[:, 1:-1],
    ),
    "strided_slice by sizes": (
        lambda x: topi.strided_slice(x, [1, 1], [1, -1], slice_mode="size"),
        (X,),
        X[1:2, 1:],
    ),
    "collapse_sum": (lambda x: topi.collapse_sum(x, (1, 4)), (X,), X.sum(0, keepdims=True)),
    "tensor_size": (topi.tensor_size, (X,), np.array(12)),
    "const_vector": (lambda: topi.const_vector(np.array([3, 1, 2])), (), np.array([3, 1, 2])),
    "fixed_point_multiply": (
        lambda x: topi.fixed_point_multiply(x, 1395864371, -3),
        (np.array([100, -100, 12345, -7], "int32"),),
        np.floor(np.array([100, -100, 12345, -7]) * 1395864371 / 2**34 + 0.5),
    ),
    "ceil_log2": (
        topi.ceil_log2,
        (np.array([1, 2, 3, 5, 8, 1000], "int32"),),
        np.array([0, 1, 2, 3, 3, 10]),
    ),
    "reinterpret": (lambda x: topi.reinterpret(x, "int32"), (X,), X.view("int32")),
    "log_add_exp": (
        topi.log_add_exp,
        (X * 200, X[::-1] * 200),
        np.logaddexp(X * 200, X[::-1] * 200),
    ),
    "hamming_window": (
        lambda: topi.hamming_window(7, False, 0.54, 0.46),
        (),
        np.hamming(7),
    ),
    "conv1d_transpose_ncw": (
        lambda x, w: topi.nn.conv1d_transpose_ncw(x, w, 2, (1, 0), "float32", 1),
        (SIGNAL, TAPS),
        transposed(SIGNAL, TAPS, 2, (1, 0), 1, 1),
    ),
    "group_conv1d_transpose_ncw": (
        lambda x, w: topi.nn.group_conv1d_transpose_ncw(x, w, 3, 2, "float32", 0, 2),
        (SIGNAL, TAPS),
        transposed(SIGNAL, TAPS, 3, (2, 2), 0, 2),
    ),
    "conv2d_transpose_nchw": (
        lambda x, w: topi.nn.conv2d_transpose_nchw(x, w, (1, 2), (0, 1), "float32", (0, 1)),
        (SIGNAL[:, :, None].copy(), TAPS[:, :, None].copy()),
        transposed(SIGNAL, TAPS, 2, (1, 1), 1, 1)[:, :, None],
    ),
    "conv3d_transpose_ncdhw": (
        lambda x, w: topi.nn.conv3d_transpose_ncdhw(x, w, (2, 1, 1), (1, 0, 0), "float32", 0),
        (SIGNAL[..., None, None].copy(), TAPS[..., None, None].copy()),
        transposed(SIGNAL, TAPS, 2, (1, 1), 0, 1)[..., None, None],
    ),
    "conv1d by layout": (
        lambda x, w: topi.nn.conv1d_nwc(x, w, 1, 1, 1),
        (X[None].copy(), numbers(3, 4, 2) * 0 + 1),
        np.repeat(np.convolve(X.sum(1), np.ones(3), "same")[None, :, None], 2, 2),
    ),
    "depthwise_conv2d_nhwc": (
        lambda x, w: topi.nn.depthwise_conv2d_nhwc(x, w, 1, 0, 1),
        (LAST, np.ones((1, 1, 4, 2), "f")),
        LAST.repeat(2, 3),
    ),
    "dilate": (
        lambda x: topi.nn.dilate(x, (2, 3), 1.5),
        (X,),
        with_values(np.full((5, 10), 1.5), np.s_[::2, ::3], X),
    ),
    "depth_to_space": (lambda x: topi.nn.depth_to_space(x, 2), (DEPTH,), blocks(DEPTH, 2)),
    "depth_to_space, channels first": (
        lambda x: topi.nn.depth_to_space(x, 2, mode="CDR"),
        (DEPTH,),
        DEPTH.reshape(2, 2, 2, 2, 3, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 6),
    ),
    "space_to_depth": (lambda x: topi.nn.space_to_depth(x, 2), (blocks(DEPTH, 2),), DEPTH),
    "lrn": (
        lambda x: topi.nn.lrn(x, 3, 1, 0.1, 0.5, 1.0),
        (IMAGE,),
        normalized(IMAGE, 3, 0.1, 0.5, 1.0),
    ),
    "nll_loss": (
        lambda p, t, w: topi.nn.nll_loss(p, t, w, "none", -100),
        (PREDICTIONS, TARGETS, WEIGHTS),
        LOSSES,
    ),
    "mean of nll_loss": (
        lambda p, t, w: topi.nn.nll_loss(p, t, w, "mean", 1),
        (PREDICTIONS, TARGETS, WEIGHTS),
        LOSSES[TARGETS != 1].sum() / WEIGHTS[TARGETS[TARGETS != 1]].sum(),
    ),
    "scale_shift_nchw": (
        topi.nn.scale_shift_nchw,
        (IMAGE, X[0], X[1]),
        IMAGE * X[0][:, None, None] + X[1][:, None, None],
    ),
    "fifo_buffer": (
        lambda x, b: topi.nn.fifo_buffer(x, b, 1),
        (X[:, :2].copy(), X),
        np.concatenate([X[:, 2:], X[:, :2]], 1),
    ),
    "upsampling3d": (
        lambda x: topi.nn.upsampling3d(x, 2, 1, 3),
        (IMAGE[None].copy(),),
        IMAGE[None].repeat(2, 2).repeat(3, 4),
    ),
    **{
        f"{name}_pad": (
            lambda x, name=name: getattr(topi.nn, f"{name}_pad")(x, [1, 2], [2, 1]),
            (X,),
            np.pad(X, [(1, 2), (2, 1)], mode),
        )
        for name, mode in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"))
    },
    "mirror_pad": (
        lambda x: topi.nn.mirror_pad(x, [1, 2], [2, 1]),
        (X,),
        np.pad(X, [(1, 2), (2, 1)], "symmetric"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    formula, arrays, expected = CASES[name]
    found = evaluate(formula, *[np.ascontiguousarray(array) for array in arrays])
    pairs = (
        [(found, expected)] if not isinstance(found, list) else zip(found, expected, strict=True)
    )
    for mine, theirs in pairs:
        assert mine.shape == np.shape(theirs)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_space_to_batch_and_back() -> None:
    made = evaluate(lambda x: topi.nn.space_to_batch_nd(x, [2, 3], [1, 0], [1, 1]), LAST)
    assert made.shape == (12, 4, 2, 4)
    padded = np.pad(LAST, [(0, 0), (1, 1), (0, 1), (0, 0)])
    for k, (i, j) in enumerate(itertools.product(range(2), range(3))):
        np.testing.assert_array_equal(made[2 * k : 2 * k + 2], padded[:, i::2, j::3])
    back = evaluate(lambda x: topi.nn.batch_to_space_nd(x, [2, 3], [1, 0], [1, 1]), made)
    np.testing.assert_array_equal(back, LAST)


def test_sorting_takes_n_log_n_steps() -> None:
    x = RANDOM.standard_normal((1, 100_000)).astype("float32")
    data = te.placeholder(x.shape, "float32", "x")
    places, result = topi.argsort(data, dtype="int32"), np.empty(x.shape, "int32")
    kernel = compile_prim_func(te.create_prim_func([data, places]))
    if "Native" not in repr(kernel):
        pytest.skip("there is no C compiler")
    kernel(x, result)
    np.testing.assert_array_equal(result, x.argsort(1, "stable"))


A = te.placeholder((3, 4), "float32", "a")
MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "axis": (lambda: topi.sort(A, 2), "sort: axis 2 of a tensor of 2 dimensions"),
    "ret_type": (lambda: topi.topk(A, ret_type="all"), "ret_type: expected 'both'"),
    "rows": (lambda: topi.searchsorted(A, te.placeholder((3,))), "expected values of 2 dimensions"),
    "reduction": (
        lambda: topi.scatter_elements(A, A, A, 0, "sub"),
        "reduction: expected one of update, add",
    ),
    "ranks": (
        lambda: topi.scatter_elements(A, te.placeholder((3,)), A),
        "expected tensors of equal rank",
    ),
    "coordinates": (
        lambda: topi.scatter_nd(A, te.placeholder((3, 1), "int64"), A),
        "at most 2 coordinates",
    ),
    "indices": (lambda: topi.index_put(A, [], A), "indices: expected at least one te.Tensor"),
    "operands": (lambda: topi.einsum("ij,jk->ik", A), "has 2 operands, got 1"),
    "letters": (lambda: topi.einsum("i?->i", A), "expected letters"),
    "dimensions": (
        lambda: topi.einsum("ij,ij->j", A, te.placeholder((2, 4))),
        "axis 'i' is 3 and 2",
    ),
    "a result": (lambda: topi.einsum("ij->k", A), "axis 'k' of the result"),
    "a layout": (lambda: topi.layout_transform(A, "CW", "C4cW4"), "layout 'C4cW4'"),
    "layouts": (lambda: topi.layout_transform(A, "CW", "CH"), "'CW' as 'CH'"),
    "windows": (lambda: topi.sliding_window(A, 0, [2], [1]), "expected 2 sizes and strides"),
    "a step": (lambda: topi.strided_slice(A, [0], [1], [0]), "expected steps other than 0"),
    "bounds": (lambda: topi.strided_slice(A, [0, 0], [1]), "expected as many bounds as axes"),
    "alignment": (lambda: topi.matrix_set_diag(A, A, align="UP"), "align: got 'UP'"),
    "a shift": (lambda: topi.fixed_point_multiply(A, 1, 31), "shift: expected -31 to 30"),
    "output_padding": (
        lambda: topi.nn.conv1d_transpose_ncw(
            te.placeholder((1, 1, 3)), te.placeholder((1, 1, 2)), 1, 0, "float32", 1
        ),
        "output_padding: expected less than the strides",
    ),
    "a mode": (lambda: topi.nn.mirror_pad(A, [1, 1], mode="WRAP"), "expected 'SYMMETRIC'"),
    "an even size": (lambda: topi.nn.lrn(A, 2), "size: expected an odd number"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
