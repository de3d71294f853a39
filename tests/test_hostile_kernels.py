"""Kernels that are compiled for sets of instructions, called with arguments that do not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm import Shape
from relaxvm.errors import RelaxVMError
from relaxvm.kernels import bfloat16, integers
from relaxvm.kernels._tiles import offer
from relaxvm.kernels.blocks import BLOCK
from relaxvm.kernels.cpu import SETS

from .operators.trees import forest
from .test_kernel_sets import Kernel, of_set, reference, rows_of

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")


class Hostile:
    """Arguments that fit, of which some are then changed: shapes, strides, data types, parameters,
    memory that two of them share."""

    def __init__(self, kernel: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.is_bfloat16 = "bfloat16" in kernel
        """Whether numbers are those of bfloat16, so that rounding to it changes nothing."""
        self.args: list[Any] = MAKERS[kernel](self)
        for _ in range(self.some(1, 0, 2, 3)):
            self.change(int(self.rng.integers(len(self.args))))

    def some(self, *values: Any) -> Any:
        """One of several values, most often the first."""
        at = int(self.rng.integers(-1, len(values)))
        return values[max(at, 0)]

    def tensor(self, *shape: int) -> np.ndarray:
        drawn = self.rng.standard_normal(shape).astype(np.float32)
        return bfloat16.widened(bfloat16.bits_of(drawn)) if self.is_bfloat16 else drawn

    def lengths(self, steps: int, batch: int) -> np.ndarray | None:
        """Of sequences, or nothing."""
        return self.rng.integers(0, steps + 1, batch) if self.rng.random() < 0.5 else None

    def change(self, i: int) -> None:
        value = self.args[i]
        if isinstance(value, np.ndarray):
            self.args[i] = self.changed(value)
        elif isinstance(value, tuple) and value:
            numbers = list(value)
            at = int(self.rng.integers(len(numbers)))
            numbers[at] = self.some(0, -1, 2, 4, 9, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63))
            self.args[i] = tuple(numbers[: self.some(len(numbers), 1, 3)])
        else:
            self.args[i] = self.some(2, 0, -1, 3, None, 1 << 40, 0.5, 1e300)

    def changed(self, value: np.ndarray) -> Any:
        if value.dtype == np.int64 and value.size and self.rng.random() < 0.5:
            value.flat[self.rng.integers(value.size)] = self.some(
                1 << 62, -(1 << 63), count := int(value.max()) + 1, min(16 * count, (1 << 63) - 1)
            )
            return value
        kind = int(self.rng.integers(8))
        if not value.ndim:
            return self.tensor(1)
        axis = int(self.rng.integers(value.ndim))
        if kind < 3:  # another length
            shape = list(value.shape)
            shape[axis] = self.some(shape[axis] + 1, max(shape[axis] - 1, 0), 0, 1, 2 * shape[axis])
            return self.tensor(*shape)
        if kind == 3:
            return value[..., :: self.some(-1, 2)]
        if kind == 4:
            return np.broadcast_to(np.float32(1), value.shape) if axis else value.astype("f8")
        if kind == 5:  # elements of the memory of another one
            other = self.args[0 if axis else -1]
            if not isinstance(other, np.ndarray):
                return value
            other = other.reshape(-1)
            return other[: value.size].reshape(value.shape) if other.size >= value.size else other
        if kind == 6:
            return value.reshape(self.some((value.size,), (1, *value.shape)))
        return np.swapaxes(value, axis, -1)

    def copied(self) -> list[Any]:
        """The arguments with memory of their own, which they share as before."""
        memory: dict[int, np.ndarray] = {}
        found: list[Any] = []
        for arg in self.args:
            if isinstance(arg, np.ndarray):
                owner = arg
                while isinstance(owner.base, np.ndarray):
                    owner = owner.base
                copy = memory.setdefault(id(owner), owner.copy())
                start = arg.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
                arg = np.ndarray(arg.shape, arg.dtype, copy, start, arg.strides)
            found.append(arg)
        return found


def elementwise(of: Hostile) -> list[Any]:
    x = of.tensor(of.some(1, 2), of.some(1, 2), of.some(5, 4), of.some(5, 4), BLOCK)
    return [x, of.some("gelu", "exp", "relu", "tanh"), x.copy()]


def linear_blocks(of: Hostile) -> list[Any]:
    rows, inputs, columns = of.some(5, 1, 40), of.some(20, 16, 3), of.some(30, 32, 70)
    blocks = -(-columns // BLOCK)
    bias = of.tensor(blocks * BLOCK) if of.rng.random() < 0.5 else None
    residual = of.tensor(rows, columns) if of.rng.random() < 0.5 else None
    return [of.tensor(rows, inputs), of.tensor(blocks, inputs, BLOCK), bias, residual,
            of.some(None, "gelu"), of.tensor(rows, columns)]  # fmt: skip


def linear_bfloat16(of: Hostile) -> list[Any]:
    x, _, *rest, out = linear_blocks(of)
    blocks, lines = -(-out.shape[-1] // BLOCK), -(-x.shape[-1] // bfloat16.LINE)
    weight = bfloat16.bits_of(of.tensor(blocks, lines, 16, BLOCK, 2))
    return [x, weight, *rest, of.some(1, 0), out]


def linear_float16(of: Hostile) -> list[Any]:
    x, _, *rest, out = linear_blocks(of)
    blocks, lines = -(-out.shape[-1] // BLOCK), -(-x.shape[-1] // bfloat16.LINE)
    return [x, of.tensor(blocks, lines, 16, 2, BLOCK).astype(np.float16), *rest, out]


def lstm_blocks(of: Hostile) -> list[Any]:
    steps, batch, inputs = of.some(3, 1), of.some(2, 5), of.some(4, 20)
    size, both = of.some(5, 16, 20), of.some(1, 2)
    gates, state = 4 * -(-size // BLOCK), (both, batch, size)
    return [of.tensor(steps, batch, inputs), of.tensor(both, gates, inputs, BLOCK),
            of.tensor(both, gates, size, BLOCK), of.tensor(both, gates * BLOCK),
            of.tensor(*state), of.tensor(*state), of.lengths(steps, batch),
            "bidirectional" if both == 2 else of.some("forward", "reverse"),
            of.tensor(steps, *state), of.tensor(*state), of.tensor(*state)]  # fmt: skip


def gru_blocks(of: Hostile) -> list[Any]:
    steps, batch, inputs = of.some(3, 1), of.some(2, 5), of.some(4, 20)
    size, both = of.some(5, 16, 20), of.some(1, 2)
    blocks, state = -(-size // BLOCK), (both, batch, size)
    return [of.tensor(steps, batch, inputs), of.tensor(both, 3 * blocks, inputs, BLOCK),
            of.tensor(both, 3 * blocks, size, BLOCK), of.tensor(both, 3 * blocks * BLOCK),
            of.tensor(both, blocks * BLOCK), of.tensor(*state), of.lengths(steps, batch),
            "bidirectional" if both == 2 else of.some("forward", "reverse"),
            of.some(False, True), of.tensor(steps, *state), of.tensor(*state)]  # fmt: skip


def permute_dims(of: Hostile) -> list[Any]:
    x = moved(of).astype(of.some("f4", "u1", "i2", "f8", "c16"))
    axes = of.rng.permutation(x.ndim).tolist()
    return [x, Shape(axes), x.transpose(axes).copy()]


def softmax_rows(of: Hostile) -> list[Any]:
    shape = of.some(5, 1), of.some(30, 1, 64)
    return [of.tensor(*shape), of.some(1.0, 0.5, -2.0), of.tensor(*shape)]


def lrn(of: Hostile) -> list[Any]:
    shape = of.some(1, 2), of.some(7, 1, 20), of.some(5, 16, 300)
    return [of.tensor(*shape), of.some(5, 1, 2, 30), of.some(0.5, -1.0), of.some(0.75, 0.5, 1.0),
            of.some(1.0, 2.0), of.tensor(*shape)]  # fmt: skip


def attention_tiles(of: Hostile) -> list[Any]:
    batch, heads, queries = of.some(2, 1), of.some(2, 1), of.some(5, 1, 20)
    keys, size, depth = of.some(7, 16, 1), of.some(8, 20), of.some(8, 3)
    by_head = of.some(0, 1)

    def shape(length: int, last: int) -> tuple[int, ...]:
        middle = (heads, length) if by_head else (length, heads)
        return batch, *middle, last

    bias = of.tensor(batch, of.some(1, heads), of.some(1, queries), keys)
    return [of.tensor(*shape(queries, size)), of.tensor(*shape(keys, size)),
            of.tensor(*shape(keys, depth)), of.some(None, bias), of.some(None, 0.5),
            of.some(None, "TopLeft", "BottomRight"), by_head,
            of.tensor(batch, queries, heads, depth)]  # fmt: skip


def layer_norm_rows(of: Hostile) -> list[Any]:
    rows, columns = of.some(5, 1), of.some(30, 1, 64)
    beta = of.tensor(columns) if of.rng.random() < 0.5 else None
    return [of.tensor(rows, columns), of.tensor(columns), beta, of.some(1e-5, 0.0),
            of.tensor(rows, columns)]  # fmt: skip


def to_blocks(of: Hostile) -> list[Any]:
    x = of.tensor(of.some(1, 2), of.some(1, 2), of.some(5, 4), of.some(5, 4), BLOCK)
    batch, count, height, width, _ = x.shape
    planes = of.tensor(batch, count * BLOCK - of.some(0, 5), height, width)
    dtype = of.some(np.float32, np.uint8, np.int8)
    return [(np.clip(each, 0, 9) * 9).astype(dtype) for each in (planes, x)]


class Window:
    """An image in blocks and a window that moves over it."""

    def __init__(self, of: Hostile, fixed: bool = False) -> None:
        some = of.some
        self.batch, self.count = some(1, 2), some(1, 2)
        self.size = some(5, 4), some(5, 4)
        self.window = (3, 3) if fixed else (some(3, 1, 2, 7), some(3, 1, 2))
        self.strides = (1, 1) if fixed else (some(1, 2), some(1, 2))
        self.dilation = (1, 1) if fixed else (1, some(1, 2))
        self.padding = tuple(some(0, 1, 3) for _ in range(4))
        self.x = of.tensor(self.batch, self.count, *self.size, BLOCK)

    def out(self, of: Hostile, count: int) -> np.ndarray:
        sizes = []
        for i, (n, taps) in enumerate(zip(self.size, self.window, strict=True)):
            room = n + self.padding[i] + self.padding[i + 2] - self.dilation[i] * (taps - 1)
            sizes.append((room - 1) // self.strides[i] + 1)
        return of.tensor(self.batch, count, *(max(n, 0) for n in sizes), BLOCK)


def pool(flags: int) -> Callable[[Hostile], list[Any]]:
    def make(of: Hostile) -> list[Any]:
        w = Window(of)
        return [w.x, w.window, w.strides, w.padding, w.dilation, *[of.some(0, 1)] * flags,
                w.out(of, w.count)]  # fmt: skip

    return make


def convolved(of: Hostile, w: Window, weight: np.ndarray, count: int) -> list[Any]:
    out = w.out(of, count)
    bias = of.tensor(count * BLOCK) if of.rng.random() < 0.5 else None
    residual = of.tensor(*out.shape) if of.rng.random() < 0.5 else None
    slope = of.tensor(count * BLOCK) if of.rng.random() < 0.3 else None
    return [w.x, weight, bias, residual, w.strides, w.padding, w.dilation, 1, of.some(None, 0.0),
            of.some(None, 1.0), slope, of.some(None, "silu", "hard_swish"), of.some(None, 0.5),
            of.some(None, 2.0), out]  # fmt: skip


def convolution(of: Hostile) -> list[Any]:
    w, more = Window(of), of.some(1, 2)
    weight = of.tensor(more, w.count, *w.window, BLOCK, BLOCK)
    if of.rng.random() < 0.3:  # a stem, whose image has few channels
        w.x = of.tensor(w.batch, of.some(3, 1), *w.size)
        weight = of.tensor(more, w.x.shape[1], *w.window, BLOCK)
    return convolved(of, w, weight, more)


def depthwise(of: Hostile) -> list[Any]:
    w = Window(of)
    return convolved(of, w, of.tensor(w.count, *w.window, BLOCK), w.count)


def gathered(of: Hostile) -> list[Any]:
    w, more = Window(of), of.some(1, 2)
    weight = of.tensor(more, of.some(5, 1), *w.window, BLOCK)
    args = convolved(of, w, weight, more)
    most = of.some(w.count * BLOCK, w.count * BLOCK + 1)
    args.insert(4, of.rng.integers(-1, most, weight.shape[:2]))
    return args


def mean(of: Hostile) -> list[Any]:
    x = Window(of).x
    return [x, of.tensor(*x.shape[:2], 1, 1, BLOCK)]


def concat(of: Hostile) -> list[Any]:
    x = Window(of).x
    parts = [of.tensor(x.shape[0], of.some(1, 2, 5), *x.shape[2:]) for _ in range(of.some(2, 1, 4))]
    blocks = sum(part.shape[1] for part in parts)
    return [*parts, 1, of.tensor(x.shape[0], blocks, *x.shape[2:])]


def gate(of: Hostile) -> list[Any]:
    x = Window(of).x
    residual = of.tensor(*x.shape) if of.rng.random() < 0.5 else None
    return [x, of.tensor(*x.shape[:2], 1, 1, BLOCK), residual, of.tensor(*x.shape)]


def resize(of: Hostile) -> list[Any]:
    shape = [of.some(2, 1), of.some(5, 1, 7), of.some(4, 1, 9), of.some(16, 1, 3)]
    size = of.some(10, 5, 1), of.some(8, 4, 3)
    scales = np.array([size[0] / shape[1], size[1] / shape[2]])
    return [of.tensor(*shape), of.some(None, scales), None, (1, 2), of.some(size, None),
            of.some("nearest_neighbor", "linear", "cubic"),
            of.some("half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn"),
            of.some("floor", "round", "ceil"), -0.75, of.some(0, 1), of.some(0, 1), 0.0,
            of.some("stretch", "not_larger"), of.tensor(shape[0], *size, shape[3])]  # fmt: skip


def trees(of: Hostile) -> list[Any]:
    columns, count, rows = of.some(3, 1, 5), of.some(1, 2, 3), of.some(5, 1, 70)
    tables = forest(of.rng, of.some(3, 1, 8), of.some(2, 0, 5), columns, count)
    if of.rng.random() < 0.5:  # a number that does not fit, which a row gets to or not
        table = tables[of.rng.integers(1, 7)]
        at = of.rng.integers(max(table.size, 1))
        table.flat[at : at + 1] = of.some(-1, 1, 2, 3, 100, 127)
    return [of.tensor(rows, columns), *tables, of.some("SUM", "AVERAGE", "MIN", "MAX"), count,
            of.tensor(rows, count)]  # fmt: skip


def products_of_bytes(of: Hostile, x: Any, w: Any, windows: list[Any], out: Any) -> list[Any]:
    """The arguments of a product of bytes."""
    outputs, target = len(w.sums), of.some(np.int32, np.float32, np.uint8, np.int8)
    factor = None if target is np.int32 else np.abs(of.tensor(outputs)) / 100
    is_byte = target in (np.uint8, np.int8)
    scale = np.array(0.5, np.float32) if is_byte and of.some(0, 1) else None
    point = np.array(of.some(3, 0), target) if is_byte and of.some(0, 1) else None
    bias = of.rng.integers(-99, 99, outputs).astype(np.int32) if of.some(0, 1) else None
    more = of.tensor(outputs) if factor is not None and of.some(0, 1) else None
    zero = np.array(of.some(5, 0), x.dtype) if of.some(1, 0) else None
    return [x, zero, w.weight, w.sums, w.shift, *windows, bias, factor, more,
            None if factor is None else of.some(None, "relu"), scale, point,
            out.astype(target)]  # fmt: skip


def drawn_bytes(of: Hostile, *shape: int) -> Any:
    dtype = of.some(np.uint8, np.int8)
    bounds = np.iinfo(dtype)
    return of.rng.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def integer_linear(of: Hostile) -> list[Any]:
    rows, inputs, columns = of.some(5, 1, 40), of.some(20, 16, 3), of.some(30, 32, 70)
    w = integers.pack_integers(of.rng.integers(*of.some((-128, 128), (-3, 250)), (inputs, columns)))
    return products_of_bytes(of, drawn_bytes(of, rows, inputs), w, [], of.tensor(rows, columns))


def integer_convolution(of: Hostile) -> list[Any]:
    w = Window(of)
    outputs, inputs = of.some(16, 32), 16 * w.x.shape[1]
    weight = of.rng.integers(*of.some((-128, 128), (-3, 250)), (outputs, inputs, *w.window))
    packed = integers.pack_integer_windows(weight)
    if of.some(0, 1):  # each channel by itself
        outputs = inputs
        packed = integers.pack_integer_depthwise(
            of.rng.integers(-128, 128, (outputs, 1, *w.window))
        )
    windows = [w.strides, w.padding, w.dilation]
    x = drawn_bytes(of, *w.x.shape)
    return products_of_bytes(of, x, packed, windows, w.out(of, outputs // BLOCK))


def integer_lstm(of: Hostile) -> list[Any]:
    steps, batch, size, both = of.some(3, 1), of.some(2, 5), of.some(5, 16, 20), of.some(1, 2)
    state, low = (both, batch, size), of.some((-128, 128), (-3, 250))
    w = integers.pack_integer_gates(of.rng.integers(*low, (both, 4 * size, size)))
    assert w is not None
    return [of.tensor(steps, batch, len(w.sums)), w.weight, w.sums, w.shift,
            np.abs(of.tensor(len(w.sums))) / 1000, of.tensor(*state), of.tensor(*state),
            "bidirectional" if both == 2 else of.some("forward", "reverse"),
            of.tensor(steps, *state), of.tensor(*state), of.tensor(*state)]  # fmt: skip


CASTS = (("f4", "f2"), ("f2", "f4"), ("f4", "f8"), ("u1", "f4"), ("i8", "i4"), ("f4", "?"))


def cast(of: Hostile) -> list[Any]:
    shape = of.some(5, 1, 40), of.some(20, 16, 3)
    from_, to = CASTS[int(of.rng.integers(len(CASTS)))]
    return [of.tensor(*shape).astype(from_), np.zeros(shape, to)]


def moved(of: Hostile) -> np.ndarray:
    """A tensor of any rank, some of whose axes are longer than a line of the cache."""
    rank = int(of.rng.integers(1, 5))
    dims = [of.some(3, 1, 2, 4, 17, 64, 67) for _ in range(rank)]
    return of.tensor(*dims) if np.prod(dims) < 1 << 16 else of.tensor(5, 1, 30)


def reshape(of: Hostile) -> list[Any]:
    x = moved(of)
    return [x, of.tensor(*of.some((x.size,), (1, *x.shape), x.shape[::-1]))]


def broadcast_to(of: Hostile) -> list[Any]:
    x = moved(of)
    shape = [n if n > 1 else of.some(4, 1, 70) for n in (*of.some((), (1,), (3,)), *x.shape)]
    return [x, of.tensor(*shape) if np.prod(shape) < 1 << 18 else x.copy()]


def flip(of: Hostile) -> list[Any]:
    x = moved(of)
    return [x, int(of.rng.integers(-x.ndim, x.ndim)), x.copy()]


def strided_slice(of: Hostile) -> list[Any]:
    x = moved(of)
    axes = of.rng.permutation(x.ndim)[: int(of.rng.integers(1, x.ndim + 1))].tolist()
    begin, end = ([int(of.rng.integers(-9, 70)) for _ in axes] for _ in range(2))
    steps = [int(of.some(1, 2, 3, -1, -2)) for _ in axes]
    index: list[slice] = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, begin, end, steps, strict=True):
        index[axis] = slice(*bounds)
    return [x, Shape(axes), Shape(begin), Shape(end), Shape(steps), x[tuple(index)].copy()]


def stack(of: Hostile) -> list[Any]:
    x = moved(of)
    axis = int(of.rng.integers(x.ndim + 1))
    parts = [x, *(x.copy() for _ in range(of.some(1, 0, 3)))]
    return [*parts, axis, np.stack(parts, axis)]


def split(of: Hostile) -> list[Any]:
    x = moved(of)
    axis = int(of.rng.integers(x.ndim))
    parts = [part.copy() for part in np.array_split(x, of.some(1, 2, 3), axis)]
    bounds = np.cumsum([part.shape[axis] for part in parts[:-1]]).tolist()
    return [x, Shape(bounds), axis, *parts]


def take(of: Hostile) -> list[Any]:
    x = moved(of)
    axis = int(of.rng.integers(x.ndim))
    mode = of.some((), ("fast",), ("python",))
    least = -x.shape[axis] if mode == ("python",) else 0
    shape = of.some((5,), (), (2, 40), (0,))
    indices = of.rng.integers(least, x.shape[axis], shape).astype(of.some("i8", "i4"))
    return [x, indices, axis, *mode, np.take(x, indices, axis)]


PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(of: Hostile) -> list[Any]:
    x, mode = moved(of), of.some(*PAD_MODES)
    widths = [(of.some(1, 0, 2), of.some(1, 0, 3)) if of.some(1, 0) and n > 3 else (0, 0)
              for n in x.shape]  # fmt: skip
    out = np.pad(x, widths, PAD_MODES[mode])
    return [x, Shape([n for pair in widths for n in pair]), mode, of.some(0.5, 2), out]


def filled(number: bool) -> Callable[[Hostile], list[Any]]:
    return lambda of: [*[of.some(1.5, 7)] * number, moved(of)]


def arange(of: Hostile) -> list[Any]:
    start, step, length = of.some(0, -5, 9), of.some(1, -2, 7), of.some(9, 0, 1, 300)
    return [start, start + step * length, step, np.zeros(length, of.some("i8", "i4"))]


def packed_product(of: Hostile) -> list[Any]:
    rows, terms, columns = of.some(1, 3, 6, 15, 129), of.some(64, 50, 32), of.some(5, 20, 150)
    block = of.some(32, 64, 16)
    blocks = -(-terms // block)
    zeros = of.some(None, of.rng.integers(0, 256, columns * -(-blocks // 2)).astype(np.uint8),
                    of.tensor(columns * blocks))  # fmt: skip
    packed = of.rng.integers(0, 256, (columns, blocks, block // 2)).astype(np.uint8)
    return [of.tensor(rows, terms), packed, of.tensor(columns * blocks), zeros, 4, block,
            of.tensor(rows, columns)]  # fmt: skip


def quantize(of: Hostile) -> list[Any]:
    shape, dtype = (of.some(5, 1, 40), of.some(20, 16, 3)), of.some(np.uint8, np.int8)
    zero = np.array(of.some(5, 0), dtype) if of.some(1, 0) else None
    return [of.tensor(*shape), np.array(0.02, np.float32), zero, of.tensor(*shape).astype(dtype)]


def quantization_range(of: Hostile) -> list[Any]:
    blocks = of.some(2, 1)
    return [of.tensor(of.some(1, 2), blocks, 3, of.some(5, 1), BLOCK),
            of.some(None, 16 * blocks, 16 * blocks - 5), np.zeros((), np.float32),
            np.zeros((), np.uint8)]  # fmt: skip


def convolution_bfloat16(of: Hostile) -> list[Any]:
    w, more = Window(of), of.some(1, 2)
    x, weight, *rest = convolved(of, w, of.tensor(more, w.count, *w.window, BLOCK, BLOCK), more)
    return [x, bfloat16.narrowed_blocks(weight), *rest]


def winograd(of: Hostile) -> list[Any]:
    w, more = Window(of, fixed=True), of.some(1, 2)
    return convolved(of, w, of.tensor(36, more, w.count, BLOCK, BLOCK), more)


CHAINS = (
    "add($0, $1); nn.relu(%0); multiply(%1, 0.5) -> %2",
    "nn.apply($0, tanh); subtract(2.0, %0); nn.apply(%1, gelu); divide(%2, $1) -> %3",
    "greater($0, 0.0); where(%0, $0, $1); minimum(%1, 3.5); maximum(%2, $1) -> %3",
    "less($0, $1); logical_not(%0); cast(%1, float32); exp(%2); floor(%3) -> %4",
    "where($0, $1, 2.0); sqrt(%0); abs(%1); negative(%2); square(%3) -> %4",
)


def chain(of: Hostile) -> list[Any]:
    shape = [of.some(3, 1, 2), of.some(700, 1, 5, 16), of.some(3, 1, 40)][: of.some(3, 1, 2)]
    text = of.some(*CHAINS)
    offer(text)
    first = of.tensor(*shape)
    second = of.some(shape, shape[-1:], [1] * len(shape), [*shape[:-1], 1], [])
    return [first > 0 if text.startswith("where") else first, of.tensor(*second), text,
            np.empty(shape, np.float32)]  # fmt: skip


MAKERS: dict[str, Callable[[Hostile], list[Any]]] = {
    "fused": chain,
    "nn.apply": elementwise,
    "nn.avg_pool2d_blocks": pool(2),
    "nn.conv2d_bfloat16": convolution_bfloat16,
    "nn.conv2d_blocks": convolution,
    "nn.conv2d_depthwise_blocks": depthwise,
    "nn.conv2d_gathered_blocks": gathered,
    "nn.conv2d_winograd_blocks": winograd,
    "cast": cast,
    "concat": concat,
    "image.resize": resize,
    "matmul_packed": packed_product,
    "tree_ensemble": trees,
    "nn.gate_blocks": gate,
    "nn.integer_conv2d_blocks": integer_convolution,
    "nn.integer_linear_blocks": integer_linear,
    "nn.integer_lstm_blocks": integer_lstm,
    "quantization_range": quantization_range,
    "quantize_bytes": quantize,
    "nn.mean_blocks": mean,
    "nn.from_blocks": lambda of: to_blocks(of)[::-1],
    "nn.gru_blocks": gru_blocks,
    "nn.attention_tiles": attention_tiles,
    "nn.layer_norm_rows": layer_norm_rows,
    "nn.linear_bfloat16": linear_bfloat16,
    "nn.linear_blocks": linear_blocks,
    "nn.linear_float16": linear_float16,
    "nn.lrn": lrn,
    "nn.lstm_blocks": lstm_blocks,
    "nn.max_pool2d_blocks": pool(1),
    "nn.softmax_rows": softmax_rows,
    "nn.to_blocks": to_blocks,
    "arange": arange,
    "broadcast_to": broadcast_to,
    "fill": filled(number=True),
    "flip": flip,
    "full": filled(number=True),
    "nn.pad": pad,
    "ones": filled(number=False),
    "permute_dims": permute_dims,
    "reshape": reshape,
    "split": split,
    "stack": stack,
    "strided_slice": strided_slice,
    "take": take,
    "zeros": filled(number=False),
}
"""Makes arguments that fit, for each kernel."""


def outcome(run: Kernel, args: list[Any]) -> np.ndarray | None:
    """The result, or None for an error."""
    try:
        with np.errstate(all="ignore"):
            run(*args)
    except (RelaxVMError, ValueError, TypeError, OverflowError, RuntimeError):
        return None
    return np.asarray(args[-1])


HOSTILE_SEEDS = int(os.environ.get("RELAXVM_HOSTILE_SEEDS", "300"))


def test_every_kernel_of_a_set_is_attacked() -> None:
    assert {row[1] for which in SETS for row in rows_of(which)} == set(MAKERS)


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("kernel", MAKERS)
def test_arguments_that_do_not_fit(kernel: str, which: str) -> None:
    """What C takes is what the reference takes, with the same result."""
    taken = 0
    for seed in range(HOSTILE_SEEDS):
        args = Hostile(kernel, seed)
        got = outcome(of_set(kernel, which), args.copied())
        if got is None:
            continue
        taken += 1
        want = outcome(reference(kernel), args.copied())
        assert want is not None, f"seed {seed}: the reference refuses it"
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
    assert HOSTILE_SEEDS // 20 < taken < HOSTILE_SEEDS
