"""Kernels that are compiled for sets of instructions: every set that this processor has."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import LimitError
from relaxvm.kernels import PREFIX, _table, blocks, linear, record_of
from relaxvm.kernels._functions import FUNCTIONS
from relaxvm.kernels.blocks import BLOCK
from relaxvm.kernels.cpu import CPU, SETS
from relaxvm.limits import Limits
from relaxvm.versions import versions

from . import children
from .operators.trees import forest

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")

Kernel = Callable[..., None]


def rows_of(which: str) -> list[Any]:
    """The table's rows of a set, and behind them those that run without Python's lock on any
    set."""
    of_any = [row for row in _table.rows(None) if row[0].startswith("movement.")]
    return [*_table.rows(which), *of_any]


def of_set(name: str, which: str) -> Kernel:
    """A kernel by its implementations of a set alone: what they refuse raises an exception."""

    def refuse(*args: Any) -> None:
        raise RuntimeError("refused")

    names = tuple(row[0] for row in rows_of(which) if row[1] == name)
    assert names
    return _table.DispatchedKernel(refuse, names, None, which)


def reference(name: str) -> Kernel:
    record = record_of(PREFIX + name)
    assert record is not None
    func: Any = record.run
    return getattr(func, "reference", func)  # type: ignore[no-any-return]


def in_blocks(x: np.ndarray) -> np.ndarray:
    """Images in blocks of channels, by numpy alone."""
    batch, channels, height, width = x.shape
    padded = np.pad(x, [(0, 0), (0, -channels % BLOCK), (0, 0), (0, 0)])
    split = padded.reshape(batch, -1, BLOCK, height, width)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def planes(x: np.ndarray, channels: int) -> np.ndarray:
    moved = x.transpose(0, 1, 4, 2, 3)
    return moved.reshape(len(x), -1, *x.shape[2:4])[:, :channels]


def convolution(
    x: np.ndarray, w: np.ndarray, strides: Any, padding: Any, dilation: Any, groups: int
) -> np.ndarray:
    """The definition, in float64, tap by tap."""
    top, left, bottom, right = padding
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, bottom), (left, right)])
    outputs, inputs, tall, wide = w.shape
    rows = (x.shape[2] - dilation[0] * (tall - 1) - 1) // strides[0] + 1
    columns = (x.shape[3] - dilation[1] * (wide - 1) - 1) // strides[1] + 1
    out = np.zeros((len(x), outputs, rows, columns))
    for o in range(outputs):
        first = o // (outputs // groups) * inputs
        for ky in range(tall):
            for kx in range(wide):
                y, at = ky * dilation[0], kx * dilation[1]
                part = x[:, first : first + inputs, y : y + strides[0] * rows : strides[0],
                         at : at + strides[1] * columns : strides[1]]  # fmt: skip
                taps = w[o, :, ky, kx].astype(np.float64)
                out[:, o] += np.einsum("nchw,c->nhw", part, taps)
    return out


class Case:
    """A random convolution."""

    def __init__(self, method: str, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        batch, height, width = 1 + seed % 2, *map(int, rng.integers(1, 20, 2))
        channels, outputs = map(int, rng.integers(1, 50, 2))
        tall, wide = map(int, rng.integers(1, 6, 2))
        self.strides = tuple(map(int, rng.integers(1, 4, 2)))
        self.dilation = tuple(map(int, rng.integers(1, 3, 2)))
        self.groups = 1
        if method == "winograd":
            tall = wide = 3
            self.strides = self.dilation = (1, 1)
        if method == "groups":
            self.groups = int(rng.integers(2, 4))
            channels = BLOCK * self.groups * int(rng.integers(1, 3))
            outputs = BLOCK * self.groups * int(rng.integers(1, 3))
        if method == "gathered":
            self.groups = int(rng.integers(1, 5))
            channels, outputs = (self.groups * int(n) for n in rng.integers(1, 20, 2))
        if method == "depthwise":
            outputs = self.groups = channels
            tall = wide = int(rng.choice([1, 3, 5, 7]))
        is_column = seed % 5 == 4 and method != "winograd"
        if is_column:
            width = wide = 1
        reach = [d * (n - 1) + 1 for d, n in zip(self.dilation, (tall, wide), strict=True)]
        short = [reach[0] - height, reach[1] - width]
        more = rng.integers(0, 3, 4)
        padding = [int(n + max(0, short[i % 2])) for i, n in enumerate(more)]
        if is_column:
            padding[1] = padding[3] = 0
        self.padding = tuple(padding)
        self.x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
        scale = 1 / np.sqrt(channels // self.groups * tall * wide)
        weight = rng.standard_normal((outputs, channels // self.groups, tall, wide)) * scale
        self.weight = weight.astype(np.float32)
        self.sums = self.sums_of(self.x, self.weight)
        self.bias = rng.standard_normal(outputs).astype(np.float32) if seed % 3 else None
        self.residual = (
            rng.standard_normal(self.sums.shape).astype(np.float32) if seed % 4 == 0 else None
        )
        self.low, self.high = [(None, None), (0.0, None), (0.0, 6.0), (-0.5, 0.25)][seed % 4]
        self.slope = rng.standard_normal(outputs).astype(np.float32) if seed % 5 == 1 else None
        self.function = FINISHES[seed % len(FINISHES)]
        scaled = [(None, None), (0.5, None), (None, -1.0), (-1.5, 2.0)]
        self.scale, self.shift = scaled[seed // 4 % 4]
        self.channels: np.ndarray | None = None
        self.kernel, self.data, self.packed = self.form(method)

    def sums_of(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return convolution(x, weight, self.strides, self.padding, self.dilation, self.groups)

    def form(self, method: str) -> tuple[str, np.ndarray, np.ndarray]:
        if method == "planes":
            return "nn.conv2d_blocks", self.x, blocks.pack_planes(self.weight)
        data = in_blocks(self.x)
        if method == "gathered":
            groups, self.groups = self.groups, 1
            channels = self.x.shape[1]
            places = self.rng.permutation(data.shape[1] * BLOCK)[:channels]
            data = np.zeros(data.shape, np.float32)
            for channel, place in enumerate(places):
                data[:, place // BLOCK, :, :, place % BLOCK] = self.x[:, channel]
            packed, self.channels = blocks.pack_gathered(self.weight, groups, places)
            return "nn.conv2d_gathered_blocks", data, packed
        if method == "depthwise":
            self.groups = 1
            return "nn.conv2d_depthwise_blocks", data, blocks.pack_depthwise(self.weight)
        if method == "winograd":
            return "nn.conv2d_winograd_blocks", data, blocks.pack_winograd(self.weight)
        return "nn.conv2d_blocks", data, blocks.pack_direct(self.weight)

    def want(self) -> np.ndarray:
        want = self.sums
        if self.bias is not None:
            want = want + self.bias[:, None, None]
        if self.residual is not None:
            want = want + self.residual
        low = -np.inf if self.low is None else self.low
        want = np.clip(want, low, np.inf if self.high is None else self.high)
        if self.slope is not None:
            want = np.where(want < 0, want * self.slope[:, None, None], want)
        want = np.asarray(EXACT[self.function](want) if self.function else want)
        want = want * (1 if self.scale is None else self.scale)
        return want + (0 if self.shift is None else self.shift)

    def got(self, run: Kernel) -> np.ndarray:
        out = in_blocks(np.zeros(self.sums.shape, np.float32))
        out[...] = np.nan
        bias = None if self.bias is None else blocks.pack_bias(self.bias)
        residual = None if self.residual is None else in_blocks(self.residual)
        listed = [] if self.channels is None else [self.channels]
        slope = None if self.slope is None else blocks.pack_bias(self.slope)
        run(
            self.data, self.packed, bias, residual, *listed, self.strides, self.padding,
            self.dilation, self.groups, self.low, self.high, slope, self.function, self.scale,
            self.shift, out,
        )  # fmt: skip
        assert np.isfinite(out).all()
        return planes(out, self.sums.shape[1])


METHODS = ("direct", "groups", "planes", "gathered", "depthwise", "winograd")


@pytest.mark.parametrize("which", [*SETS, "reference"])
@pytest.mark.parametrize("method", METHODS)
def test_convolutions(method: str, which: str) -> None:
    """Sums of products of numbers whose root mean square is 1, beside those in float64."""
    most = 5e-5 if method == "winograd" else 1e-5
    for seed in range(40):
        case = Case(method, seed)
        run = reference(case.kernel) if which == "reference" else of_set(case.kernel, which)
        error = np.abs(case.got(run) - case.want())
        assert error.max(initial=0) < most, f"seed {seed}"


@pytest.mark.parametrize("which", SETS)
def test_results_do_not_depend_on_other_images_or_addresses(which: str) -> None:
    case = Case("direct", 1)
    run = of_set(case.kernel, which)
    both = case.got(run)
    memory = np.zeros(case.data.size + 5, np.float32)[5:]
    shifted = memory[: case.data[1:].size].reshape(case.data[1:].shape)
    shifted[...] = case.data[1:]
    case.data = shifted
    case.sums = case.sums[1:]
    case.residual = None if case.residual is None else case.residual[1:]
    np.testing.assert_array_equal(case.got(run), both[1:])


@pytest.mark.parametrize("which", SETS)
def test_nan_stays_in_its_place(which: str) -> None:
    """A NaN reaches the windows that contain it, also below a bound."""
    x = np.ones((1, 16, 9, 9), np.float32)
    x[0, 3, 4, 4] = np.nan
    weight = blocks.pack_direct(np.ones((16, 16, 3, 3), np.float32))
    out = np.empty((1, 1, 9, 9, 16), np.float32)
    run = of_set("nn.conv2d_blocks", which)
    run(in_blocks(x), weight, None, None, (1, 1), (1,) * 4, (1, 1), 1, 0.0, 6.0, *[None] * 4, out)
    found = np.isnan(out[0, 0, :, :, 0])
    assert found[3:6, 3:6].all()
    assert found.sum() == 9


@pytest.mark.parametrize("which", SETS)
def test_channels_without_weights_are_left_out(which: str) -> None:
    """What fills the last block may be anything, also infinite."""
    rng = np.random.default_rng(0)
    for channels in (3, 4, 9, 16, 21, 30):
        x = rng.standard_normal((1, channels, 9, 9)).astype(np.float32)
        weight = rng.standard_normal((24, channels, 3, 3)).astype(np.float32)
        images = in_blocks(x)
        whole = -(-channels // 4) * 4 - (images.shape[1] - 1) * BLOCK
        images[:, -1, ..., whole:] = np.inf
        want = convolution(x, weight, (1, 1), (1,) * 4, (1, 1), 1)
        for name, pack in (("direct", blocks.pack_direct), ("winograd", blocks.pack_winograd)):
            packed = pack(weight)
            out = np.full((1, 2, 9, 9, 16), np.nan, np.float32)
            run = of_set("nn.conv2d" + "_winograd" * (name == "winograd") + "_blocks", which)
            run(images, packed, None, None, (1, 1), (1,) * 4, (1, 1), 1, *[None] * 6, out)
            np.testing.assert_allclose(planes(out, 24), want, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("which", SETS)
def test_means_and_gates(which: str) -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shape = (*map(int, rng.integers(1, [3, 4, 20, 40])), BLOCK)
        x, residual = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        mean = np.full((*shape[:2], 1, 1, BLOCK), np.nan, np.float32)
        of_set("nn.mean_blocks", which)(x, mean)
        want = x.astype(np.float64).mean((2, 3), keepdims=True)
        np.testing.assert_allclose(mean, want, atol=1e-6)
        run = of_set("nn.gate_blocks", which)
        out = np.full_like(x, np.nan)
        run(x, mean, None, out)
        np.testing.assert_array_equal(out, x * mean)
        run(x, mean, residual, out)
        np.testing.assert_array_equal(out, x * mean + residual)
        for at in (0, 2):  # in place of an operand
            args = [x.copy(), mean, residual.copy()]
            run(*args, args[at])
            np.testing.assert_array_equal(args[at], out)


@pytest.mark.parametrize("which", SETS)
def test_channels_after_each_other(which: str) -> None:
    rng = np.random.default_rng(4)
    run = of_set("concat", which)
    for batch in (1, 3):
        shapes = [(batch, count, 5, 7, BLOCK) for count in (1, 3, 2)]
        parts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        parts[1][0, 1, 2] = np.nan
        out = np.empty((batch, 6, 5, 7, BLOCK), np.float32)
        run(*parts, 1, out)
        np.testing.assert_array_equal(out, np.concatenate(parts, 1))
    refused: dict[str, tuple[Any, ...]] = {
        "axis": (*parts, 2, out),
        "too few": (*parts[:2], 1, out),
        "too many": (*parts, parts[0], 1, out),
        "rows": (parts[0], parts[1][:, :, :4], parts[2], 1, out),
        "result": (out.reshape(-1)[: parts[0].size].reshape(shapes[0]), *parts[1:], 1, out),
        "double": (*parts[:2], parts[2].astype(np.float64), 1, out),
    }
    for args in refused.values():
        with pytest.raises(RuntimeError, match="refused"):
            run(*args)



@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
def test_resizing(method: str, which: str) -> None:
    """The same bits as the reference's."""
    run, plain = of_set("image.resize", which), reference("image.resize")
    modes = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
             "tf_half_pixel_for_nn", "half_pixel_symmetric")  # fmt: skip
    roundings = ("round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    for seed in range(400):
        rng = np.random.default_rng(seed)
        axes = [(2, 3), (1, 2), (3,), (-2, -1)][seed % 4]
        shape = [int(n) for n in rng.integers(1, [3, 6, 12, 12])]
        x = rng.standard_normal([*shape, 16] if seed % 3 else shape).astype(np.float32)
        lengths = [x.shape[axis] for axis in axes]
        size = [int(n) for n in rng.integers(1, 25, len(axes))]  # shorter ones, too
        if seed % 7 == 0:
            size[0] = lengths[0]
        scales = None
        if seed % 2:
            scales = np.array([n / length for n, length in zip(size, lengths, strict=True)])
            if seed % 6 == 1:
                scales = rng.uniform(0.4, 3, len(axes))
                size = [int(np.float32(n) * np.float32(s))
                        for n, s in zip(lengths, scales, strict=True)]  # fmt: skip
        if 0 in size:
            continue
        out_shape = list(x.shape)
        for axis, length in zip(axes, size, strict=True):
            out_shape[axis] = length
        want, found = np.full(out_shape, 7, np.float32), np.full(out_shape, 8, np.float32)
        settings = [axes, None if seed % 6 == 1 else tuple(size), method, modes[seed % 6],
                    roundings[seed % 5], -0.75, 0, 0, 0.0, "stretch"]  # fmt: skip
        plain(x, scales, None, *settings, want)
        run(x, scales, None, *settings, found)
        np.testing.assert_array_equal(found, want, f"seed {seed}: {settings}")


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_trees(aggregate: str, which: str) -> None:
    """The same bits as the reference's, with NaN, infinities and values that equal thresholds."""
    run, plain = of_set("tree_ensemble", which), reference("tree_ensemble")
    for seed in range(24):
        rng = np.random.default_rng(seed)
        rows, trees, count = [int(n) for n in rng.integers(1, [200, 12, 6])]
        dtype = [np.float32, np.float64][seed % 2]
        tables = forest(rng, trees, seed % 7, 5, count, dtype)
        x = rng.standard_normal((rows, 5)).round(1).astype(dtype)
        x[rng.random(x.shape) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
        want, found = np.full((2, rows, count), 7, dtype)
        plain(x, *tables, aggregate, count, want)
        run(x, *tables, aggregate, count, found)
        np.testing.assert_array_equal(found, want, f"seed {seed}")


@pytest.mark.parametrize("which", SETS)
def test_trees_that_are_wrong_are_refused(which: str) -> None:
    """Numbers of another node, column or target, and ways in a circle, where a row gets to them."""
    run, plain = of_set("tree_ensemble", which), reference("tree_ensemble")
    names = ["thresholds", "features", "modes", "branches", "roots", "starts", "targets"]
    x = np.zeros((9, 5), np.float32)
    ends = {"features": 5, "modes": 8, "branches": 93, "roots": 93, "starts": 97, "targets": 2}
    for at, name in enumerate(names[1:], 1):
        for number in (-1, -(2**31), 2**31 - 1, ends[name]):
            tables = forest(np.random.default_rng(at), 3, 4, 5, 2)
            tables[at][...] = min(max(number, -128), 127) if name == "modes" else number
            for kernel, error in ((run, "refused"), (plain, "expected")):
                with pytest.raises((RuntimeError, ValueError), match=error):
                    kernel(x, *tables, "SUM", 2, np.empty((9, 2), np.float32))
    tables = forest(np.random.default_rng(0), 3, 4, 5, 2)
    tables[3][...] = 0
    with pytest.raises(RuntimeError, match="refused"):
        run(x, *tables, "SUM", 2, np.empty((9, 2), np.float32))


@pytest.mark.parametrize("which", SETS)
def test_channels_that_are_not_there_are_refused(which: str) -> None:
    case = Case("gathered", 3)
    assert case.channels is not None
    case.channels = case.channels.copy()
    for channel in (case.data.shape[1] * BLOCK, 2**62):
        case.channels[-1, 0] = channel
        with pytest.raises(RuntimeError, match="refused"):
            case.got(of_set(case.kernel, which))
        with pytest.raises(ValueError, match="channels: expected at most"):
            case.got(reference(case.kernel))


@pytest.mark.parametrize("which", SETS)
def test_layouts(which: str) -> None:
    """Reordering is exact, pools equal their references."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        batch, channels, height, width = map(int, rng.integers(1, [3, 40, 20, 20]))
        x = rng.standard_normal((batch, channels, height, width)).astype(np.float32)
        if seed % 5 == 0:
            x.flat[int(rng.integers(x.size))] = np.nan
        want = in_blocks(x)
        out = np.full_like(want, 7)
        of_set("nn.to_blocks", which)(x, out)
        np.testing.assert_array_equal(out, want)
        again = np.full_like(x, 7)
        of_set("nn.from_blocks", which)(out, again)
        np.testing.assert_array_equal(again, x)
        size, strides, dilation = ([int(n) for n in rng.integers(1, 4, 2)] for _ in range(3))
        padding = [int(n) for n in rng.integers(0, 3, 4)]
        ceil_mode, count_include_pad = int(rng.integers(2)), int(rng.integers(2))
        for name, flags in (("nn.max_pool2d", (ceil_mode,)),
                            ("nn.avg_pool2d", (ceil_mode, count_include_pad))):  # fmt: skip
            attributes = [tuple(size), tuple(strides), tuple(padding), tuple(dilation), *flags]
            try:
                pooled = windows_of(name, x, attributes)
            except ValueError:
                continue  # no window fits
            found = np.full_like(in_blocks(pooled), 7)
            of_set(name + "_blocks", which)(out, *attributes, found)
            np.testing.assert_allclose(planes(found, channels), pooled, rtol=2e-6, atol=1e-6)


def windows_of(name: str, x: np.ndarray, attributes: list[Any]) -> np.ndarray:
    """The result of a pool of planes, by its kernel for planes."""
    run = relaxvm.get_func("relaxvm.result." + name)
    assert run is not None
    return np.asarray(run(x, *attributes, None, ""))


# Linear layers


class Layer:
    """A random linear layer."""

    def __init__(self, seed: int, *, rows: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        drawn, inputs, outputs = map(int, rng.integers(1, 70, 3))
        self.rows = drawn if rows is None else rows
        self.x = rng.standard_normal((90, inputs)).astype(np.float32)[: self.rows]
        weight = rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)
        self.weight = weight.astype(np.float32)
        self.bias = rng.standard_normal(outputs).astype(np.float32) if seed % 3 else None
        shape = 90, outputs
        self.residual = rng.standard_normal(shape).astype(np.float32)[: self.rows]
        if seed % 2:
            self.residual = None
        self.function = [None, "relu", "gelu", "tanh"][seed % 4]

    def want(self) -> np.ndarray:
        want = self.x.astype(np.float64) @ self.weight
        if self.bias is not None:
            want += self.bias
        if self.residual is not None:
            want += self.residual
        return want if self.function is None else EXACT[self.function](want)

    def got(
        self, run: Kernel, pack: Callable[..., np.ndarray] = linear.pack_linear, *more: Any
    ) -> np.ndarray:
        bias = None if self.bias is None else blocks.pack_bias(self.bias)
        out = np.full((self.rows, self.weight.shape[1]), np.nan, np.float32)
        run(self.x, pack(self.weight), bias, self.residual, self.function, *more, out)
        return out


erf = np.vectorize(math.erf)
EXACT: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x / (1 + np.exp(-2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "erf": erf,
    "exp": np.exp,
    "hard_swish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}

FINISHES = (None, "silu", None, "hard_swish", "gelu", None, "sigmoid", "relu", None, "tanh", "erf")
"""Functions after convolutions, among them no fast growing one."""


@pytest.mark.parametrize("which", [*SETS, "reference"])
def test_linear_layers(which: str) -> None:
    name = "nn.linear_blocks"
    run = reference(name) if which == "reference" else of_set(name, which)
    for seed in range(120):
        layer = Layer(seed)
        np.testing.assert_allclose(layer.got(run), layer.want(), atol=5e-6, err_msg=str(seed))


@pytest.mark.parametrize("which", SETS)
def test_a_row_does_not_depend_on_the_others(which: str) -> None:
    """The same bits for each number of rows: of those that are read in place, and of tiles."""
    run = of_set("nn.linear_blocks", which)
    for seed in range(8):
        all_rows = Layer(seed, rows=90).got(run)
        for rows in (1, 2, 3, 4, 5, 13, 14, 15, 29, 57):
            np.testing.assert_array_equal(Layer(seed, rows=rows).got(run), all_rows[:rows])


@pytest.mark.parametrize("which", SETS)
def test_a_residual_may_be_the_result(which: str) -> None:
    for rows in (2, 30):
        layer = Layer(4, rows=rows)
        want = layer.got(of_set("nn.linear_blocks", which))
        assert layer.residual is not None
        out = layer.residual.copy()
        packed = linear.pack_linear(layer.weight)
        bias = None if layer.bias is None else blocks.pack_bias(layer.bias)
        of_set("nn.linear_blocks", which)(layer.x, packed, bias, out, layer.function, out)
        np.testing.assert_array_equal(out, want)


MEMORY, WEIGHTS = np.ones(310, "f4"), np.ones(640, "f4")

LAYER_FAULTS: dict[str, dict[int, Any]] = {
    "other terms": {0: np.ones((5, 21), "f4")},
    "more columns": {-1: np.ones((5, 33), "f4")},
    "fewer columns": {-1: np.ones((5, 16), "f4")},
    "other rows": {-1: np.ones((6, 30), "f4")},
    "another rank": {-1: np.ones((1, 5, 30), "f4")},
    "float64": {0: np.ones((5, 20))},
    "a short bias": {2: np.ones(30, "f4")},
    "another residual": {3: np.ones((5, 32), "f4")},
    "no such function": {4: "cosine"},
    "x overlaps": {0: MEMORY[:100].reshape(5, 20), -1: MEMORY[99:249].reshape(5, 30)},
    "weights overlap": {1: WEIGHTS.reshape(2, 20, 16), -1: WEIGHTS[490:].reshape(5, 30)},
    "a residual overlaps": {3: MEMORY[:150].reshape(5, 30), -1: MEMORY[10:160].reshape(5, 30)},
    "no rows": {0: np.ones((0, 20), "f4"), 3: None, -1: np.ones((0, 30), "f4")},
}


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("fault", LAYER_FAULTS)
def test_layers_that_do_not_fit_are_refused(fault: str, which: str) -> None:
    args = [np.ones((5, 20), "f4"), np.ones((2, 20, 16), "f4"), np.ones(32, "f4"),
            np.ones((5, 30), "f4"), None, np.ones((5, 30), "f4")]  # fmt: skip
    run = of_set("nn.linear_blocks", which)
    run(*args)
    for place, value in LAYER_FAULTS[fault].items():
        args[place] = value
    args[-1][...] = 7
    with pytest.raises(RuntimeError, match="refused"):
        run(*args)
    assert {*args[-1].flat} <= {7}


# Transposes


@pytest.mark.parametrize("which", SETS)
def test_transposes(which: str) -> None:
    """Axes in any order, of lengths beside those of blocks and lines, and elements of all sizes."""
    run = of_set("permute_dims", which)
    for seed in range(120):
        rng = np.random.default_rng(seed)
        ndim = int(rng.integers(0, 6))
        shape = [int(n) for n in rng.choice([1, 2, 3, 4, 5, 15, 16, 17, 33, 65, 512], ndim)]
        while np.prod(shape) > 1 << 17:
            shape[int(np.argmax(shape))] = 2
        axes = [int(axis) for axis in rng.permutation(ndim)]
        dtype = ["float32", "int8", "uint16", "float64", "complex128", "clongdouble"][seed % 6]
        x = rng.integers(0, 1 << 31, shape).astype(dtype)
        out = np.zeros([shape[axis] for axis in axes], dtype)
        run(x, relaxvm.Shape(axes), out)
        np.testing.assert_array_equal(out, x.transpose(axes), err_msg=str(seed))
    x = np.arange(12, dtype="f4").reshape(3, 4)
    for args in ((x, relaxvm.Shape([0, 0]), np.zeros((3, 3), "f4")),
                 (x, relaxvm.Shape([1, 0]), np.zeros((3, 4), "f4")),
                 (x, relaxvm.Shape([1, 0]), x.reshape(4, 3)),
                 (x.astype("f8"), relaxvm.Shape([1, 0]), np.zeros((4, 3), "f4"))):  # fmt: skip
        with pytest.raises(RuntimeError, match="refused"):
            run(*args)


# Long short-term memory


class Memory:
    """A random layer of long short-term memory."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        steps, batch, inputs, size = map(int, rng.integers(1, [9, 6, 40, 40]))
        if seed % 5 == 0:
            steps, batch = 70, 1 + seed % 3  # more steps than inputs are multiplied at once
        self.direction = ["forward", "reverse", "bidirectional"][seed % 3]
        self.directions = 1 + (self.direction == "bidirectional")
        draw = rng.standard_normal
        self.x = draw((steps, batch, inputs)).astype(np.float32)
        scale = 1 / np.sqrt(size + inputs)
        shape = self.directions, 4 * size
        self.weight = (draw((*shape, inputs)) * scale).astype(np.float32)
        self.recurrence = (draw((*shape, size)) * scale).astype(np.float32)
        self.bias = draw(shape).astype(np.float32)
        self.h, self.c = draw((2, self.directions, batch, size)).astype(np.float32)
        lengths = rng.integers(0, steps + 1, batch).astype(rng.choice(["int32", "int64"]))
        self.lengths = None if seed // 3 % 2 else lengths
        if self.lengths is not None:  # what is behind the end of a sequence does not count
            self.x[np.arange(steps)[:, None] >= lengths] = np.nan

    def runs(self, t: int) -> np.ndarray:
        """Whether each sequence has a step t."""
        batch = self.x.shape[1]
        lengths = np.full(batch, len(self.x)) if self.lengths is None else self.lengths
        found: np.ndarray = (t < lengths)[:, None]
        return found

    def want(self) -> list[np.ndarray]:
        """The definition, in float64."""
        steps, batch, size = len(self.x), self.x.shape[1], self.h.shape[2]
        every = np.empty((steps, self.directions, batch, size))
        h, c = self.h.astype(np.float64), self.c.astype(np.float64)
        for d in range(self.directions):
            backwards = self.direction == "reverse" or d == 1
            for t in reversed(range(steps)) if backwards else range(steps):
                total = self.x[t] @ self.weight[d].T.astype(np.float64) + self.bias[d]
                total += h[d] @ self.recurrence[d].T
                i, o, f, g = np.split(total, 4, axis=1)
                cell = c[d] / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
                state = np.tanh(cell) / (1 + np.exp(-o))
                runs = self.runs(t)
                every[t, d] = np.where(runs, state, 0)
                h[d], c[d] = np.where(runs, state, h[d]), np.where(runs, cell, c[d])
        return [every, h, c]

    def arguments(self) -> list[Any]:
        pack = linear.pack_gates
        bias = pack(self.bias[:, :, None], 4).reshape(self.directions, -1)
        outs = [np.full(each.shape, np.nan, np.float32) for each in self.want()]
        return [self.x, pack(self.weight, 4), pack(self.recurrence, 4), bias, self.h, self.c,
                self.lengths, self.direction, *outs]  # fmt: skip

    def got(self, run: Kernel) -> list[np.ndarray]:
        arguments = self.arguments()
        run(*arguments)
        return arguments[-3:]


@pytest.mark.parametrize("which", [*SETS, "reference"])
def test_long_short_term_memory(which: str) -> None:
    name = "nn.lstm_blocks"
    run = reference(name) if which == "reference" else of_set(name, which)
    for seed in range(30):
        memory = Memory(seed)
        for got, want in zip(memory.got(run), memory.want(), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5, err_msg=str(seed))


class Gated(Memory):
    """A random layer of gated recurrent units."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rows = 3 * self.h.shape[2]
        self.weight, self.recurrence = self.weight[:, :rows], self.recurrence[:, :rows]
        self.bias = self.bias[:, :rows]
        self.hidden_bias = self.c[:, 0]
        self.is_linear = seed % 4 < 2

    def want(self) -> list[np.ndarray]:
        steps, batch, size = len(self.x), self.x.shape[1], self.h.shape[2]
        every = np.empty((steps, self.directions, batch, size))
        h = self.h.astype(np.float64)
        for d in range(self.directions):
            backwards = self.direction == "reverse" or d == 1
            matrix = self.recurrence[d].T.astype(np.float64)
            for t in reversed(range(steps)) if backwards else range(steps):
                given = self.x[t] @ self.weight[d].T.astype(np.float64) + self.bias[d]
                gates = given[:, : 2 * size] + h[d] @ matrix[:, : 2 * size]
                z, r = np.split(1 / (1 + np.exp(-gates)), 2, axis=1)
                if self.is_linear:
                    inner = r * (h[d] @ matrix[:, 2 * size :] + self.hidden_bias[d])
                else:
                    inner = (r * h[d]) @ matrix[:, 2 * size :] + self.hidden_bias[d]
                state = (1 - z) * np.tanh(given[:, 2 * size :] + inner) + z * h[d]
                every[t, d] = np.where(self.runs(t), state, 0)
                h[d] = np.where(self.runs(t), state, h[d])
        return [every, h]

    def arguments(self) -> list[Any]:
        pack = linear.pack_gates
        bias = pack(self.bias[:, :, None], 3).reshape(self.directions, -1)
        hidden = pack(self.hidden_bias[:, :, None], 1).reshape(self.directions, -1)
        outs = [np.full(each.shape, np.nan, np.float32) for each in self.want()]
        return [self.x, pack(self.weight, 3), pack(self.recurrence, 3), bias, hidden, self.h,
                self.lengths, self.direction, self.is_linear, *outs]  # fmt: skip

    def got(self, run: Kernel) -> list[np.ndarray]:
        arguments = self.arguments()
        run(*arguments)
        return arguments[-2:]


@pytest.mark.parametrize("which", [*SETS, "reference"])
def test_gated_recurrent_units(which: str) -> None:
    name = "nn.gru_blocks"
    run = reference(name) if which == "reference" else of_set(name, which)
    for seed in range(48):
        layer = Gated(seed)
        for got, want in zip(layer.got(run), layer.want(), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-5, err_msg=str(seed))


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("kind", [Memory, Gated])
def test_memory_that_does_not_fit_is_refused(kind: type[Memory], which: str) -> None:
    run = of_set("nn.gru_blocks" if kind is Gated else "nn.lstm_blocks", which)
    memory = kind(2)
    for place, argument in enumerate(memory.arguments()):
        if not isinstance(argument, np.ndarray):
            continue
        arguments = memory.arguments()
        shape = list(arguments[place].shape)
        for axis in range(len(shape)):
            longer = shape[:]
            longer[axis] += 1
            arguments[place] = np.full(longer, 7, np.float32)
            with pytest.raises(RuntimeError, match="refused"):
                run(*arguments)
    arguments = memory.arguments()
    arguments[-1] = arguments[-2]
    with pytest.raises(RuntimeError, match="refused"):
        run(*arguments)
    arguments = memory.arguments()
    arguments[-1] = arguments[4]
    with pytest.raises(RuntimeError, match="refused"):
        run(*arguments)


# Rows


def exact_softmax(x: np.ndarray, scale: float) -> np.ndarray:
    x = x.astype(np.float64) * scale
    powers: np.ndarray = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def exact_norm(x: np.ndarray, gamma: np.ndarray, beta: Any, epsilon: float) -> np.ndarray:
    x = x.astype(np.float64)
    distance: np.ndarray = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((distance**2).mean(-1, keepdims=True) + epsilon)
    return distance / deviation * gamma + (0 if beta is None else beta)


@pytest.mark.parametrize("which", [*SETS, "reference"])
def test_rows(which: str) -> None:
    names = "nn.softmax_rows", "nn.layer_norm_rows"
    softmax, norm = (reference(n) if which == "reference" else of_set(n, which) for n in names)
    for seed in range(80):
        rng = np.random.default_rng(seed)
        shape = *(int(n) for n in rng.integers(1, 5, seed % 3)), int(rng.integers(1, 150))
        x = (3 * rng.standard_normal(shape)).astype(np.float32)
        out = np.full(shape, np.nan, np.float32)
        softmax(x, -0.75, out)
        np.testing.assert_allclose(out, exact_softmax(x, -0.75), rtol=3e-6, err_msg=str(seed))
        gamma, beta = rng.standard_normal((2, shape[-1])).astype(np.float32)
        shift = beta if seed % 2 else None
        norm(x, gamma, shift, 1e-3, out)
        want = exact_norm(x, gamma, shift, 1e-3)
        np.testing.assert_allclose(out, want, atol=5e-6, err_msg=str(seed))
        norm(x, gamma, shift, 1e-3, x)  # in place
        np.testing.assert_array_equal(x, out)


def exact_lrn(x: np.ndarray, size: int, factor: float, power: float, bias: float) -> np.ndarray:
    """Channel by channel, from cumulative sums of squares."""
    wide = x.astype(np.longdouble)
    sums = np.concatenate([np.zeros_like(wide[:, :1]), np.cumsum(wide * wide, 1)], 1)
    out, channels = np.empty_like(wide), x.shape[1]
    for c in range(channels):
        first, end = max(0, c - (size - 1) // 2), min(channels, c + size // 2 + 1)
        out[:, c] = wide[:, c] / np.exp(
            power * np.log(bias + factor * (sums[:, end] - sums[:, first]))
        )
    return out


@pytest.mark.parametrize("which", [*SETS, "reference"])
@pytest.mark.parametrize("power", [0.5, 0.75])
def test_lrn(which: str, power: float) -> None:
    run = reference("nn.lrn") if which == "reference" else of_set("nn.lrn", which)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = *(int(n) for n in rng.integers(1, 12, 3)), int(rng.integers(1, 40))
        x = (3 * rng.standard_normal(shape)).astype(np.float32)
        size, out = seed % 7 + 1, np.full(shape, np.nan, np.float32)
        run(x, size, 0.3, power, 1.5, out)
        want = exact_lrn(x, size, 0.3, power, 1.5)
        np.testing.assert_allclose(out, want.astype("f4"), rtol=2e-6, atol=1e-7, err_msg=str(seed))


@pytest.mark.parametrize("which", SETS)
def test_lrn_of_strange_numbers(which: str) -> None:
    """As numpy: sums below 0 have no root, infinities stay among their neighbours."""
    x = np.ones((1, 6, 21), np.float32)
    x[0, 1, 3], x[0, 2, 5], x[0, 3, 20], x[0, 0, 0] = np.nan, np.inf, -0.0, 1e-40
    for factor, bias in ((0.5, 1.0), (-1.0, 1.0), (0.0, 0.0)):
        out, want = np.empty_like(x), np.empty_like(x)
        of_set("nn.lrn", which)(x, 3, factor, 0.75, bias, out)
        reference("nn.lrn")(x, 3, factor, 0.75, bias, want)
        np.testing.assert_allclose(out, want, rtol=2e-6)


@pytest.mark.parametrize("which", SETS)
def test_rows_of_strange_numbers(which: str) -> None:
    """As numpy: no overflow, NaN stays in its row, a row of -inf is NaN."""
    rows = np.ones((6, 21), np.float32)
    rows[0] = 3e38
    rows[1, 5] = np.nan
    rows[2] = -np.inf
    rows[3, 7] = -np.inf
    rows[4, 20] = np.inf
    run, of = of_set("nn.softmax_rows", which), reference("nn.softmax_rows")
    out, want = np.empty_like(rows), np.empty_like(rows)
    with np.errstate(all="ignore"):
        run(rows, 1.0, out)
        of(rows, 1.0, want)
    np.testing.assert_allclose(out, want, rtol=1e-6)
    norm = of_set("nn.layer_norm_rows", which)
    norm(rows, np.ones(21, "f4"), None, 1e-5, out)
    assert np.isnan(out[1:5]).any(1).all()
    assert np.isfinite(out[5]).all()


@pytest.mark.parametrize("which", SETS)
def test_scores_far_below_the_greatest(which: str) -> None:
    """Weights are right down to 2^-126, and 0 below, where powers of e become subnormal."""
    scores = np.linspace(-110, 0, 4096, dtype=np.float32)[None]
    scores[0, :3] = -np.inf, np.finfo(np.float32).min, -1e30
    out = np.empty_like(scores)
    of_set("nn.softmax_rows", which)(scores, 1.0, out)
    powers = np.exp(scores.astype(np.float64))
    total = powers.sum()
    large = scores >= -87
    np.testing.assert_allclose(out[large], powers[large] / total, rtol=2e-6)
    np.testing.assert_array_equal(out[scores < -87.4], 0)
    query, key = np.ones((1, 29, 1, 1), np.float32), scores[:, :, None, None]
    values = np.ones((1, 4096, 1, 1), np.float32)
    found = np.empty((1, 29, 1, 1), np.float32)
    key[0, :3] = -1e30
    bias = np.zeros((1, 1, 1, 4096), np.float32)
    bias[..., :2000] = np.finfo(np.float32).min
    of_set("nn.attention_tiles", which)(query, key, values, bias, 1.0, None, 0, found)
    np.testing.assert_allclose(found, 1, rtol=1e-6)


class Attention:
    """Random queries, keys and values."""

    def __init__(self, seed: int, queries: int | None = None) -> None:
        rng = np.random.default_rng(seed)
        batch, heads = map(int, rng.integers(1, 4, 2))
        drawn = int(rng.choice([1, 2, 3, 4, 13, 14, 15, 29]))
        self.queries = drawn if queries is None else queries
        keys = int(rng.choice([1, 2, 15, 16, 17, 100, 511, 512, 513, 700]))
        size, depth = map(int, rng.choice([1, 8, 15, 16, 17, 64, 130], 2))
        self.by_head = seed % 2
        self.times = 1 + seed % 3
        self.has_room = seed % 4 > 1
        shapes = (heads * self.times, self.queries, size), (heads, keys, size), (heads, keys, depth)
        heads *= self.times
        self.operands = [
            rng.standard_normal((batch, *shape)).astype(np.float32) for shape in shapes
        ]
        self.bias: np.ndarray | None = None
        if seed % 3 == 0:
            full = batch, heads, self.queries, keys
            shape = [1 if rng.integers(2) else n for n in full]
            self.bias = rng.standard_normal(shape).astype(np.float32)
            self.bias[rng.random(shape) < 0.3] = -np.inf
        self.scale = [None, 0.3][seed % 2]
        self.mask = [None, "TopLeft", "BottomRight"][seed // 2 % 3]
        self.shape = batch, self.queries, heads, depth

    def want(self) -> np.ndarray:
        """Row by row in float64."""
        query, key, value = (operand.astype(np.float64) for operand in self.operands)
        key, value = (np.repeat(each, self.times, 1) for each in (key, value))
        scale = 1 / math.sqrt(query.shape[-1]) if self.scale is None else self.scale
        scores = query @ key.swapaxes(2, 3) * scale
        if self.bias is not None:
            scores = scores + self.bias
        if self.mask is not None:
            queries, keys = scores.shape[2:]
            hidden = 0 if self.mask == "TopLeft" else keys - queries
            scores[..., ~np.tri(queries, keys, hidden, dtype=bool)] = -np.inf
        most = scores.max(-1, keepdims=True)
        powers = np.exp(scores - np.where(np.isinf(most), 0, most))
        total = powers.sum(-1, keepdims=True)
        shares = np.divide(powers, total, out=np.zeros_like(powers), where=total != 0)
        return (shares @ value).swapaxes(1, 2)

    def got(self, run: Kernel) -> np.ndarray:
        given = self.operands
        if not self.by_head:
            given = [np.ascontiguousarray(operand.swapaxes(1, 2)) for operand in given]
        if self.has_room:
            given = [np.concatenate([each] * 2, 2)[:, :, : each.shape[2]] for each in given]
        out = np.full(self.shape, np.nan, np.float32)
        run(*given, self.bias, self.scale, self.mask, self.by_head, out)
        return out


@pytest.mark.parametrize("which", [*SETS, "reference"])
def test_attention(which: str) -> None:
    name = "nn.attention_tiles"
    run = reference(name) if which == "reference" else of_set(name, which)
    for seed in range(90):
        case = Attention(seed)
        np.testing.assert_allclose(case.got(run), case.want(), atol=1e-5, err_msg=str(seed))


@pytest.mark.parametrize("which", SETS)
def test_nan_in_attention_stays_with_its_query(which: str) -> None:
    case = Attention(1, queries=29)
    case.operands[0][0, 0, 17, 0] = np.nan
    found = np.isnan(case.got(of_set("nn.attention_tiles", which)))
    assert found[0, 17, 0].all()
    assert found.sum() == case.shape[3]


@pytest.mark.parametrize("which", SETS)
def test_a_row_is_the_same_everywhere(which: str) -> None:
    x = np.random.default_rng(0).standard_normal((9, 53)).astype(np.float32)
    softmax, norm = of_set("nn.softmax_rows", which), of_set("nn.layer_norm_rows", which)
    gamma = x[0].copy()
    whole = np.empty_like(x)
    for run in (lambda a, b: softmax(a, 1.0, b), lambda a, b: norm(a, gamma, gamma, 1e-5, b)):
        run(x, whole)
        for row in range(9):
            memory = np.zeros(60, np.float32)
            part = memory[row % 7 : row % 7 + 53]
            part[...] = x[row]
            run(part, part)
            np.testing.assert_array_equal(part, whole[row])


ROW_FAULTS: dict[str, tuple[str, dict[int, Any]]] = {
    "another shape": ("nn.softmax_rows", {-1: np.ones((5, 31), "f4")}),
    "float64": ("nn.softmax_rows", {0: np.ones((5, 30))}),
    "overlapping": ("nn.softmax_rows", {0: MEMORY[:150].reshape(5, 30),
                                        -1: MEMORY[30:180].reshape(5, 30)}),
    "empty": ("nn.softmax_rows", {0: np.ones((5, 0), "f4"), -1: np.ones((5, 0), "f4")}),
    "a huge scale": ("nn.softmax_rows", {1: 1e300}),
    "short gamma": ("nn.layer_norm_rows", {1: np.ones(29, "f4")}),
    "long beta": ("nn.layer_norm_rows", {2: np.ones(31, "f4")}),
    "gamma overlaps": ("nn.layer_norm_rows", {1: MEMORY[:30], -1: MEMORY[:150].reshape(5, 30)}),
    "gamma of rank 2": ("nn.layer_norm_rows", {1: np.ones((1, 30), "f4")}),
}  # fmt: skip


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_rows_that_do_not_fit_are_refused(fault: str, which: str) -> None:
    name, changes = ROW_FAULTS[fault]
    rest = [1.0] if name == "nn.softmax_rows" else [np.ones(30, "f4"), np.ones(30, "f4"), 1e-5]
    args: list[Any] = [np.ones((5, 30), "f4"), *rest, np.ones((5, 30), "f4")]
    run = of_set(name, which)
    run(*args)
    for place, value in changes.items():
        args[place] = value
    args[-1][...] = 7
    with pytest.raises(RuntimeError, match="refused"):
        run(*args)
    assert {*args[-1].flat} <= {7}


# Functions of elements


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions(function: str, which: str) -> None:
    """Within the stated distance, of numbers of every exponent."""
    rng = np.random.default_rng(0)
    exponents = np.repeat(np.arange(0, 255, dtype=np.uint32), 300) << 23
    bits = exponents | rng.integers(0, 1 << 23, exponents.size, np.uint32)
    signs = rng.integers(0, 2, bits.size, np.uint32) << 31
    spread = np.linspace(-20, 20, 100_001, dtype=np.float32)
    x = np.concatenate([(bits | signs).view(np.float32), spread])
    out = np.empty_like(x)
    of_set("nn.apply", which)(x, function, out)
    with np.errstate(all="ignore"):
        want = EXACT[function](x.astype(np.float64))
        if function in ("gelu", "gelu_tanh", "silu", "hard_swish"):
            large = np.abs(x) > 1e4  # where the formula of float64 overflows, too
            want[large] = np.maximum(x[large], 0)
            want[np.isinf(out)] = np.inf
            close = np.abs(out - want) <= 1e-6 * np.abs(x) + 1e-44
        else:
            nearest = want.astype(np.float32)
            unit = np.spacing(np.abs(nearest))
            close = (np.abs(out - want) <= 7 * unit) | (out == nearest)
            if function == "sigmoid":  # 0 in place of a subnormal number
                close |= (out == 0) & (want < np.finfo(np.float32).tiny)
    assert close.all(), x[~close]


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_at_each_place(function: str, which: str) -> None:
    """The same bits for each element, wherever it is; in place, too; NaN stays NaN."""
    run = of_set("nn.apply", which)
    x = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    x[7], x[8], x[9] = np.nan, np.inf, -0.0
    whole = np.empty_like(x)
    run(x, function, whole)
    assert np.isnan(whole[7])
    for start in (0, 1, 5, 4090):
        for length in (1, 2, 7, 16, 33, 67):
            part = x[start : start + length].copy()
            run(part, function, part)
            np.testing.assert_array_equal(part, whole[start : start + length])


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("size", [9, 70])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_depthwise_weights_that_are_not_finite_do_not_meet_padding(
    bad: float, size: int, which: str
) -> None:
    image = np.random.default_rng(0).random((1, 32, size, size), np.float32) + 1
    weight = np.ones((32, 1, 3, 3), np.float32)
    weight[1, 0, 0, 0] = bad
    out = in_blocks(np.zeros_like(image))
    of_set("nn.conv2d_depthwise_blocks", which)(
        in_blocks(image), blocks.pack_depthwise(weight), None, None, (1, 1), (1,) * 4, (1, 1), 1,
        *[None] * 6, out,
    )  # fmt: skip
    got = planes(out, 32)
    weight[1, 0, 0, 0] = 0
    want = convolution(image, weight, (1, 1), (1,) * 4, (1, 1), 32)
    want[0, 1, 1:, 1:] = bad  # of the others that tap is on padding
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_images_that_are_not_contiguous_give_the_same_bits(method: str, which: str) -> None:
    for seed in range(6):
        case = Case(method, seed)
        run = of_set(case.kernel, which)
        want = case.got(run)
        apart = np.zeros((*case.data.shape[:-1], case.data.shape[-1] + 3), np.float32)
        turned = case.data[:, ::-1].copy()[:, ::-1]
        for data in (apart[..., :-3], np.asfortranarray(case.data), turned):
            data[...] = case.data
            case.data = data
            assert np.array_equal(case.got(run), want)


REFUSED: dict[str, Callable[[list[Any]], Any]] = {
    "wrong rows of out": lambda a: a.__setitem__(-1, np.empty((1, 2, 8, 9, 16), "f4")),
    "another data type": lambda a: a.__setitem__(0, a[0].astype("f8")),
    "another number of blocks": lambda a: a.__setitem__(0, np.zeros((1, 3, 9, 9, 16), "f4")),
    "short bias": lambda a: a.__setitem__(2, np.zeros(16, "f4")),
    "another residual": lambda a: a.__setitem__(3, np.zeros((1, 2, 9, 8, 16), "f4")),
    "padding below 0": lambda a: a.__setitem__(5, (-1, 1, 3, 1)),
    "stride 0": lambda a: a.__setitem__(4, (0, 1)),
    "groups": lambda a: a.__setitem__(7, 3),
    "out is x": lambda a: a.__setitem__(-1, a[0]),
    "lines of 8": lambda a: a.__setitem__(0, np.zeros((1, 2, 9, 18, 8), "f4")),
    "a huge bound": lambda a: a.__setitem__(9, 1e300),
}


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("method", ["direct", "depthwise", "winograd"])
@pytest.mark.parametrize("fault", REFUSED)
def test_what_does_not_fit_is_refused(fault: str, method: str, which: str) -> None:
    """The reference then raises the error; nothing is written before."""
    weight = {"direct": (2, 2, 3, 3, 16, 16), "depthwise": (2, 3, 3, 16),
              "winograd": (36, 2, 2, 16, 16)}[method]  # fmt: skip
    name = {"direct": "nn.conv2d_blocks"}.get(method, f"nn.conv2d_{method}_blocks")
    image = np.ones((1, 2, 9, 9, 16), "f4")
    args = [image, np.ones(weight, "f4"), np.zeros(32, "f4"), np.zeros_like(image), (1, 1),
            (1,) * 4, (1, 1), 1, *[None] * 6, np.full_like(image, 7)]  # fmt: skip
    of_set(name, which)(*args)
    args[-1][...] = 7
    REFUSED[fault](args)
    with pytest.raises(RuntimeError, match="refused"):
        of_set(name, which)(*args)
    assert fault == "out is x" or not (args[-1] != 7).any() or args[-1].shape[2] == 8


GUARDED = """
import ctypes, mmap, sys
import numpy as np
sys.path.append(sys.argv[2])  # for the tests; relaxvm is the one that is installed
from relaxvm.kernels import _table, bfloat16
from tests.test_kernel_sets import METHODS, Case, Gated, Layer, Memory, of_set
libc = ctypes.CDLL(None)

def guarded(x, at_end):
    # In memory of its own, before or behind which no page may be read.
    page = mmap.PAGESIZE
    pages = -(-x.nbytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in (base, base + (pages + 1) * page):
        assert libc.mprotect(ctypes.c_void_p(at), page, 0) == 0
    start = page + (pages * page - x.nbytes if at_end else 0)
    kept.append(memory)
    to = np.frombuffer(memory, x.dtype, x.size, start).reshape(x.shape)
    to[...] = x
    return to

kept = []
for method in METHODS:
    for seed in range(12):
        case = Case(method, seed)
        run = of_set(case.kernel, sys.argv[1])
        for at_end in (False, True):
            def call(*args):
                fit = [guarded(a, at_end) if isinstance(a, np.ndarray) else a for a in args[:-1]]
                out = guarded(args[-1], at_end)
                run(*fit, out)
                args[-1][...] = out
            case.got(call)
for seed in range(40):
    layer = Layer(seed, rows=1 + seed % 30)
    run = of_set("nn.linear_blocks", sys.argv[1])
    for at_end in (False, True):
        layer.got(call)
for seed in range(40):  # with weights in bfloat16
    layer, case = Layer(seed, rows=1 + seed % 40), Case("direct", seed)
    calls = [("nn.linear_bfloat16", lambda: layer.got(call, bfloat16.pack_matrix, 1))]
    calls.append(("nn.linear_float16", lambda: layer.got(call, bfloat16.pack_halves)))
    case.packed = bfloat16.pack_convolution(case.weight)
    calls.append(("nn.conv2d_bfloat16", lambda: case.got(call)))
    for name, got in calls:
        for method in (row[0] for row in _table.rows(sys.argv[1]) if row[1] == name):
            run = _table.DispatchedKernel(lambda *args: None, (method,), None, sys.argv[1])
            for at_end in (False, True):
                got()
for seed in range(20):
    for kind, name in ((Memory, "nn.lstm_blocks"), (Gated, "nn.gru_blocks")):
        arguments = kind(seed).arguments()
        run = of_set(name, sys.argv[1])
        for at_end in (False, True):
            fit = [guarded(a, at_end) if isinstance(a, np.ndarray) else a for a in arguments]
            run(*fit)
for length in (1, 3, 16, 31, 70):
    for at_end in (False, True):
        x, out = (guarded(np.ones((3, length), "f4"), at_end) for _ in range(2))
        of_set("nn.softmax_rows", sys.argv[1])(x, 1.0, out)
        of_set("nn.apply", sys.argv[1])(x, "gelu", out)
        gamma, beta = (guarded(np.ones(length, "f4"), at_end) for _ in range(2))
        of_set("nn.layer_norm_rows", sys.argv[1])(x, gamma, beta, 1e-5, out)
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages without access")
@pytest.mark.parametrize("which", SETS)
def test_nothing_outside_of_buffers_is_read(which: str) -> None:
    root = str(Path(__file__).parents[1])
    command = [sys.executable, "-P", "-X", "faulthandler", "-c", GUARDED, which, root]
    done = children.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_the_lock_is_free_and_limits_hold() -> None:
    """A long convolution ends with its time."""
    name = "nn.conv2d_blocks"
    ib = relaxvm.ExecBuilder()
    with ib.function("main", num_inputs=3, param_names=["x", "w", "out"]):
        none = ib.r(3)
        ib.emit_call("vm.builtin.null_value", [], none)
        settings = [ib.convert_constant(relaxvm.Shape(s)) for s in ([1, 1], [0] * 4, [1, 1])]
        args = [ib.r(0), ib.r(1), none, none, *settings, ib.imm(1), *[none] * 6, ib.r(2)]
        ib.emit_call(PREFIX + name, args)
        ib.emit_ret(ib.r(2))
    x = np.zeros((1, 16, 200, 200, 16), "f4")
    w = np.zeros((16, 16, 31, 31, 16, 16), "f4")
    out = np.zeros((1, 16, 170, 170, 16), "f4")
    vm = relaxvm.VirtualMachine(ib.get(), limits=Limits(wall_time=0.05))
    with pytest.raises(LimitError, match="wall_time"):
        vm.main(x, w, out)


@pytest.mark.parametrize(
    ("wanted", "printed"),
    [(SETS[-1] if SETS else "", None), ("numpy", "numpy"), ("mmx", "there is no such set")],
)
def test_the_variable(wanted: str, printed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_CPU", wanted)
    code = (
        "from relaxvm.kernels import cpu, implementations\n"
        "print(cpu.CPU, len(implementations.IMPLEMENTATIONS))"
    )
    done = children.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (printed or wanted) in done.stdout + done.stderr
    assert ("ImportError" in done.stderr) == (wanted == "mmx")
    if wanted == "numpy":
        assert done.stdout.split() == ["numpy", "0"]


def test_versions_say_the_set() -> None:
    assert versions()["kernels"].startswith(CPU)


def test_a_choice_is_the_whole_text() -> None:
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    apply = relaxvm.get_func("relaxvm.kernel.nn.apply")
    for text in ("relu\0", "relu\0gelu", "rel", "relu ", "r\u00e9lu"):
        with pytest.raises(ValueError, match="function: expected 'relu' or 'gelu'"):
            apply(x, text, out)
    assert not out.any()


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pools_of_three_columns(kind: str, which: str) -> None:
    """Windows that share columns: edges, padding wider than the window, rows apart, NaN."""
    name = f"nn.{kind}_pool2d_blocks"
    run, wanted = of_set(name, which), reference(name)
    rng = np.random.default_rng(0)
    for _ in range(150):
        shape = (int(rng.integers(1, 3)), 2, *rng.integers(1, 9, 2).tolist(), BLOCK)
        size, stride = (int(rng.integers(1, 4)), 3), (int(rng.integers(1, 3)), 1)
        dilation = (int(rng.integers(1, 3)), 1)
        padding = tuple(rng.integers(0, 5, 4).tolist())
        flags = [bool(each) for each in rng.integers(0, 2, 2 if kind == "avg" else 1)]
        rooms = [shape[2 + i] + padding[i] + padding[2 + i] - dilation[i] * (size[i] - 1) - 1
                 for i in (0, 1)]  # fmt: skip
        if min(rooms) < 0 or rooms[0] % stride[0]:
            continue
        out = (*shape[:2], rooms[0] // stride[0] + 1, rooms[1] + 1, BLOCK)
        x = rng.standard_normal(shape).astype("f4")
        x[rng.random(shape) < 0.02] = rng.choice(np.array([np.nan, np.inf, -np.inf], "f4"))
        got, want = np.full(out, 7, "f4"), np.full(out, 9, "f4")
        given = (x, size, stride, padding, dilation, *flags)
        with np.errstate(all="ignore"):
            run(*given, got)
            wanted(*given, want)
        tolerance = 1e-5 if kind == "avg" else 0
        np.testing.assert_allclose(got, want, tolerance, tolerance, err_msg=str(given[1:]))
