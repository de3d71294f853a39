"""ONNX operators on windows, matrices and bands, beyond the standard's cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_node

import relaxvm
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.common.values import Value
from relaxvm.frontend.onnx.graph import Graph
from relaxvm.frontend.onnx.registry import OPERATORS, onnx
from relaxvm.kernels.cpu import SETS

from .test_onnx import model_of, node, run

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 3, 4, 6), (1, 2, 4, 4, 6)])
def test_unpooling_undoes_a_pool(shape: tuple[int, ...]) -> None:
    """Windows that do not overlap: the greatest elements are back at their places."""
    axes = len(shape) - 2
    windows = {"kernel_shape": [2] * axes, "strides": [2] * axes}
    model = model_of(
        [node("MaxPool", "x", "top at", **windows), node("MaxUnpool", "top at", "y", **windows)],
        {"x": (FLOAT, ["n", *shape[1:]])},
        ["top", "y"],
        opset=22,
    )
    x = np.random.default_rng(0).permutation(np.prod(shape)).reshape(shape).astype(np.float32)
    top, found = run(model, x + 1)
    kept = found != 0
    np.testing.assert_array_equal(found[kept], (x + 1)[kept])
    np.testing.assert_array_equal(np.sort(found[kept]), np.sort(top.reshape(-1)))


def test_indices_of_nan_and_of_columns() -> None:
    model = model_of(
        [node("MaxPool", "x", "top at", kernel_shape=[2, 2], storage_order=1)],
        {"x": (FLOAT, [1, 1, 2, 3])},
        ["top", "at"],
        opset=22,
    )
    top, at = run(model, np.array([[[[1, 5, 2], [3, 4, np.nan]]]], np.float32))
    np.testing.assert_array_equal(top, [[[[5, np.nan]]]])
    assert at.tolist() == [[[[2, 5]]]]


def test_folding_undoes_windows_of_symbolic_batches() -> None:
    x = np.arange(2 * 3 * 4 * 6, dtype=np.float32).reshape(2, 3, 4, 6)
    model = model_of(
        [node("Col2Im", "x size block", "y", strides=[2, 3])],
        {"x": (FLOAT, ["n", 18, 4]), "size": (INT64, [2]), "block": (INT64, [2])},
        ["y"],
    )
    parts = x.reshape(2, 3, 2, 2, 2, 3).transpose(0, 1, 3, 5, 2, 4).reshape(2, 18, 4)
    got = run(model, parts, np.array([4, 6]), np.array([2, 3]))
    np.testing.assert_array_equal(got, x)


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 4, 7, 6)).astype(np.float32)
    w = rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    b = rng.standard_normal(6).astype(np.float32)
    windows = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 2]}
    model = model_of(
        [
            node("DeformConv", "x w moves b mask", "y", offset_group=2, **windows),
            node("Conv", "x w b", "z", **windows),
        ],
        {"x": (FLOAT, ["n", 4, "h", "w"]), "moves": (FLOAT, ["n", 24, "p", "q"]),
         "mask": (FLOAT, ["n", 12, "p", "q"])},
        ["y", "z"],
        {"w": w, "b": b},
        opset=22,
    )  # fmt: skip
    moves, mask = np.zeros((2, 24, 4, 5), np.float32), np.ones((2, 12, 4, 5), np.float32)
    moved, plain = run(model, x, moves, mask)
    np.testing.assert_allclose(moved, plain, rtol=1e-4, atol=1e-4)
    half, _ = run(model, x, moves, mask / 2)
    along = b.reshape(-1, 1, 1)
    np.testing.assert_allclose(half - along, (plain - along) / 2, rtol=1e-4, atol=1e-4)
    moves.reshape(2, 2, 6, 2, 4, 5)[:, :, :, 0] = 1  # all places one row further down
    lower, _ = run(model, x, moves, mask)
    _, below = run(model, np.pad(x[:, :, 1:], ((0, 0), (0, 0), (0, 1), (0, 0))), moves * 0, mask)
    # The first row of windows reads a row above the image only where it is not moved.
    np.testing.assert_allclose(lower[:, :, 1:], below[:, :, 1:], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_longer_than_the_image(operator: str) -> None:
    """Padding, or padding that `auto_pad` asks for, makes room.  Where less than a stride is
    missing, there is one window, as in onnxruntime."""

    def pool(**attributes: Any) -> Any:
        settings = {"kernel_shape": [6], "strides": [3], **attributes}
        return model_of([node(operator, "x", "y", **settings)], {"x": (FLOAT, [1, 1, 4])}, ["y"])

    x = np.array([[[1, 2, 3, 4]]], np.float32)
    whole = {"MaxPool": 4, "AveragePool": 2.5, "LpPool": 30**0.5}[operator]
    np.testing.assert_allclose(run(pool(pads=[1, 1]), x), [[[whole]]], rtol=1e-6)
    assert run(pool(auto_pad="SAME_UPPER"), x).shape == (1, 1, 2)
    np.testing.assert_allclose(run(pool(ceil_mode=1), x).ravel()[0], whole, rtol=1e-6)
    for attributes in ({}, {"auto_pad": "VALID"}, {"pads": [0, 1]}):
        np.testing.assert_allclose(run(pool(**attributes), x), [[[whole]]], rtol=1e-6)
    with pytest.raises(RelaxVMError, match="no window fits along W: it is 8 long, the padded"):
        run(pool(kernel_shape=[8]), x)


def test_determinants_of_symbolic_batches() -> None:
    model = model_of([node("Det", "x", "y")], {"x": (FLOAT, ["n", 3, 3])}, ["y"])
    x = np.stack([np.diag([1, 2, 3]), np.eye(3)[[1, 0, 2]], np.ones((3, 3))]).astype(np.float32)
    np.testing.assert_allclose(run(model, x), [6, -1, 0], atol=1e-6)
    wrong = model_of([node("Det", "x", "y")], {"x": (FLOAT, [2, 3])}, ["y"])
    with pytest.raises(ValueError, match=r"det: x: expected square matrices"):
        run(wrong, np.ones((2, 3), np.float32))


def test_bands_beyond_the_spectrum() -> None:
    names = {"bins": INT64, "length": INT64, "rate": INT64, "low": FLOAT, "high": FLOAT}
    model = model_of(
        [node("MelWeightMatrix", " ".join(names), "y")],
        {name: (dtype, []) for name, dtype in names.items()},
        ["y"],
    )
    numbers = [np.array(4), np.array(16), np.array(8000)]
    edges = np.float32(0), np.float32(5000)
    with pytest.raises(ValueError, match=r"expected 0 <= lowest < highest <= 4000.0"):
        run(model, *numbers, *map(np.asarray, edges))


def test_slopes_of_channels_in_old_models() -> None:
    model = model_of(
        [node("PRelu", "x s", "y")], {"x": (FLOAT, ["n", 2, 2])}, ["y"],
        {"s": np.array([2, 3], np.float32)}, opset=6,
    )  # fmt: skip
    got = run(model, -np.ones((1, 2, 2), np.float32))
    assert got.tolist() == [[[-2, -2], [-3, -3]]]


def test_an_operator_is_registered_once() -> None:
    def twice(g: Graph, x: Value) -> Value:
        return x

    with pytest.raises(ValueError, match=r"ai.onnx.Det, version 11: there are two functions"):
        onnx("Det", since=11)(twice)
    assert [each.since for each in OPERATORS["", "Det"]] == [11]


def test_an_unpooled_shape_that_only_the_run_knows() -> None:
    model = model_of(
        [node("MaxUnpool", "x at shape", "y", kernel_shape=[2], strides=[2])],
        {"x": (FLOAT, [1, 1, 2]), "at": (INT64, [1, 1, 2]), "shape": (INT64, [3])},
        ["y"],
        opset=22,
    )
    x, at = np.array([[[5, 6]]], np.float32), np.array([[[1, 2]]])
    assert run(model, x, at, np.array([1, 1, 6])).tolist() == [[[0, 5, 6, 0, 0, 0]]]
    assert run(model, x, at, np.array([1, 1, 3])).tolist() == [[[0, 5, 6]]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_determinant_of_a_large_matrix(dtype: str) -> None:
    rng = np.random.default_rng(4)
    factors = rng.uniform(0.5, 1.5, 700)
    upper = np.triu(rng.normal(size=(700, 700)) / 700, 1) + np.diag(factors)
    order = rng.permutation(700)
    lower = np.tril(rng.normal(size=(700, 700)) / 700, -1) + np.eye(700)
    matrix = (lower @ upper)[order]
    inversions = sum(int(np.sum(order[:i] > each)) for i, each in enumerate(order.tolist()))
    expected = np.prod(factors) * (-1) ** inversions
    det = relaxvm.get_func("relaxvm.kernel.det")
    found = np.zeros((2,), dtype)
    det(np.stack([matrix, np.ones_like(matrix)]).astype(dtype), found)
    np.testing.assert_allclose(found[0], expected, rtol=1e-3 if dtype == "float32" else 1e-10)
    assert abs(found[1]) <= abs(expected) * 1e-6


@pytest.mark.parametrize("is_known", [False, True])
def test_a_convolution_of_channels_that_only_the_run_knows(is_known: bool) -> None:
    """Its weights say how many they are."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((16, 3, 3, 3)).astype(np.float32)
    model = model_of(
        [node("Reshape", "x shape", "r"), node("Conv", "r w", "y", group=2)],
        {"x": (FLOAT, ["n"]), "shape": (INT64, [4] if is_known else ["rank"])}, ["y"], {"w": w},
    )  # fmt: skip
    executable = relaxvm.compile(model)
    assert ("blocks" in executable.as_text()) == bool(SETS)
    vm = relaxvm.VirtualMachine(executable)
    x = rng.standard_normal((2, 6, 5, 5)).astype(np.float32)
    got = vm["main"](x.reshape(-1), np.array(x.shape))
    parts = [
        np.einsum("ncyxij,ocij->noyx",
                  np.lib.stride_tricks.sliding_window_view(x[:, 3 * i : 3 * i + 3], (3, 3), (2, 3)),
                  w[8 * i : 8 * i + 8])
        for i in range(2)
    ]  # fmt: skip
    np.testing.assert_allclose(got, np.concatenate(parts, 1), rtol=1e-4, atol=1e-4)
    with pytest.raises(RuntimeError, match=r"dimension 1 .* expected 6, got 3"):
        vm["main"](x.reshape(-1), np.array((4, 3, 5, 5)))
    if not is_known:
        with pytest.raises(ValueError, match="expected a tensor of ndim 4, got ndim 3"):
            vm["main"](x.reshape(-1), np.array((2, 6, 25)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_of_shapes_that_only_the_run_knows(kind: str) -> None:
    """The same results as with known shapes, and a clear error for states of other shapes."""
    rng = np.random.default_rng(4)
    gates = 4 if kind == "LSTM" else 3
    weights = {
        "w": rng.standard_normal((1, gates * 5, 3)).astype(np.float32),
        "r": rng.standard_normal((1, gates * 5, 5)).astype(np.float32),
    }
    inputs = "a w r   h c" if kind == "LSTM" else "a w r   h"
    nodes = [
        node("Reshape", "x shape", "a"),
        make_node(kind, inputs.split(" "), ["y"], hidden_size=5),
    ]
    states = dict.fromkeys("hc"[: gates - 2], (FLOAT, None))
    model = model_of(
        nodes, {"x": (FLOAT, ["n"]), "shape": (INT64, ["rank"]), **states}, ["y"], weights
    )
    known = model_of(
        [make_node(kind, ["x", *inputs.split(" ")[1:]], ["y"], hidden_size=5)],
        {"x": (FLOAT, [4, 2, 3]), **{name: (FLOAT, [1, 2, 5]) for name in states}}, ["y"], weights,
    )  # fmt: skip
    x = rng.standard_normal((4, 2, 3)).astype(np.float32)
    first = [rng.standard_normal((1, 2, 5)).astype(np.float32) for _ in states]
    got = run(model, x.reshape(-1), np.array(x.shape), *first)
    np.testing.assert_allclose(got, run(known, x, *first), rtol=1e-5, atol=1e-6)
    wrong = [np.zeros((1, 2, 6), np.float32), *first[1:]]
    with pytest.raises(RuntimeError, match="expected"):
        run(model, x.reshape(-1), np.array(x.shape), *wrong)


# Results of onnxruntime 1.32 for x = 1, 2, ... of a length, where the window does not fit.
LONG_WINDOWS = [
    ("MaxPool", 1, 3, 2, (1, 0), {}, 1.0),
    ("MaxPool", 3, 7, 4, (1, 1), {}, 3.0),
    ("MaxPool", 3, 7, 4, (1, 1), {"ceil_mode": 1}, 3.0),
    ("AveragePool", 2, 5, 4, (0, 0), {}, 1.5),
    ("AveragePool", 2, 5, 2, (1, 1), {}, 1.5),
    ("AveragePool", 2, 5, 2, (1, 1), {"count_include_pad": 1}, 0.75),
    ("LpPool", 1, 2, 4, (0, 0), {}, 1.0),
    ("MaxPool", 2, 2, 2, (0, 0), {"dilations": [2]}, 1.0),
    ("MaxPool", 2, 3, 3, (1, 1), {"dilations": [2]}, 2.0),
    ("AveragePool", 3, 3, 3, (0, 0), {"dilations": [2]}, 2.0),
    ("AveragePool", 2, 3, 4, (0, 1), {"dilations": [2], "count_include_pad": 1}, 0.5),
]


@pytest.mark.parametrize(("name", "length", "size", "stride", "pads", "more", "expected"),
                         LONG_WINDOWS)  # fmt: skip
def test_windows_that_are_longer_than_the_image(
    name: str, length: int, size: int, stride: int, pads: tuple[int, int], more: dict[str, Any],
    expected: float,
) -> None:  # fmt: skip
    x = np.arange(1, length + 1, dtype="f4").reshape(1, 1, length)
    made = node(name, "x", "y", kernel_shape=[size], strides=[stride], pads=list(pads), **more)
    model = model_of([made], {"x": (TensorProto.FLOAT, [1, 1, length])}, ["y"])
    np.testing.assert_allclose(run(model, x), [[[expected]]], rtol=1e-6)


def test_windows_that_are_longer_by_a_stride_are_refused() -> None:
    made = node("MaxPool", "x", "y", kernel_shape=[7], strides=[3])
    model = model_of([made], {"x": (TensorProto.FLOAT, [1, 1, 4])}, ["y"])
    with pytest.raises(RelaxVMError, match="no window fits along W: it is 7 long"):
        run(model, np.ones((1, 1, 4), "f4"))
