"""Calls of every kernel and builtin with large operands, and how long they go on after a deadline.

``python -m tests.time_attacks HOW NAME...`` prints lines "name, outcome, seconds": how a call ends
that a limit, a cancellation or Ctrl-C is to end, and how much processor time it takes in all.

**A new kernel** that is one ufunc needs nothing; others need a line in `KERNELS`.
**A new builtin** needs a line in `BUILTINS`, or a place in `memory_attacks.WITHOUT`: what makes
nothing large, reads nothing large either.
"""

from __future__ import annotations

import itertools
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

import relaxvm
from relaxvm.builtins.lm import AttentionKVCache
from relaxvm.builtins.random_numbers import RandomGenerator
from relaxvm.errors import CancelledError, LimitError
from relaxvm.executable import shape_program
from relaxvm.kernels import PREFIX, record_of
from relaxvm.registry import GLOBAL

from .memory_attacks import importing, page_group, paged, recurrent, sums, tokens

__all__ = ["BUILTINS", "KERNELS", "SOON", "calls_of", "kernels"]

SIZE = 1 << 25
"""Elements of the operands of kernels that pass over them once; in all they take 256 MiB."""

SOON = {"limit": 0.02, "cancel": 0.05, "interrupt": 0.2}
"""Seconds until a call is to end; those of Ctrl-C are processor time."""

Make = Callable[[], list[Any]]

# Operands, in memory that all of them share


@cache
def _memory(which: int) -> np.ndarray:
    memory = np.empty(SIZE, np.float32)
    np.random.default_rng(which).random(SIZE, np.float32, memory)
    return memory


def x(*shape: int, dtype: str = "f4") -> np.ndarray:
    return _memory(0).view(dtype)[: math.prod(shape)].reshape(shape)


def out(*shape: int, dtype: str = "f4") -> np.ndarray:
    return _memory(1).view(dtype)[: math.prod(shape)].reshape(shape)


def bools(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape), dtype="u1").reshape(shape) % 3 == 0


# Kernels


def kernels() -> set[str]:
    """Return the names of all kernels, without aliases."""
    records = [record_of(name) for name in GLOBAL.names() if name.startswith(PREFIX)]
    return {record.name for record in records if record is not None}


def _ufunc(ufunc: np.ufunc) -> list[Any]:
    """Operands of a kernel that is one ufunc."""
    for dtype in ("f4", "i4", "?"):
        try:
            result = ufunc(*[np.ones(1, dtype)] * ufunc.nin).dtype
        except TypeError:
            continue
        return [*[x(SIZE, dtype=dtype)] * ufunc.nin, out(SIZE, dtype=result.str)]
    raise AssertionError(ufunc)


def _zeros(*shape: int, dtype: str = "f4") -> np.ndarray:
    return np.zeros(shape, dtype)


def _integers() -> list[Any]:
    return [_zeros(1500, 1500, dtype="i8") for _ in range(3)]


def _dot(dtype: str) -> list[Any]:
    size = SIZE // np.dtype(dtype).itemsize * 4
    return [x(size, dtype=dtype), x(size, dtype=dtype), out(1, dtype=dtype).reshape(())]


def _reduction() -> list[Make]:
    return [
        lambda: [x(SIZE), None, out(1).reshape(())],
        lambda: [x(2, SIZE // 2), (0,), out(SIZE // 2)],
        lambda: [x(SIZE // 2, 2), (0,), out(2)],
        lambda: [x(SIZE // 2, 2).T, (1,), out(2)],
        lambda: [x(SIZE * 2, dtype="f2"), None, out(1, dtype="f2").reshape(())],
    ]


def _search() -> list[Make]:
    return [
        lambda: [x(SIZE), None, out(1, dtype="i8").reshape(())],
        lambda: [x(2, SIZE // 2), 0, out(SIZE // 2, dtype="i8")],
        lambda: [x(SIZE // 2, 2), 0, out(2, dtype="i8")],
    ]


def _along() -> list[Make]:
    return [
        lambda: [x(SIZE), 0, out(SIZE)],
        lambda: [x(SIZE // 2, 2), 0, out(SIZE // 2, 2)],
        lambda: [x(SIZE * 2, dtype="f2"), 0, out(SIZE * 2, dtype="f2")],
    ]


def _totals() -> list[Make]:
    return [
        lambda: [x(SIZE), 0, 1, out(SIZE)],
        lambda: [x(2, SIZE // 2), 1, 0, out(2, SIZE // 2)],
        lambda: [x(2, SIZE // 2), 0, 0, out(2, SIZE // 2)],
    ]


def _rows(rows: int = 8, length: int = 1 << 20) -> np.ndarray:
    return x(rows, length, dtype="f8")


def _convolution(axes: int) -> list[Any]:
    """Many outputs of large windows."""
    if axes == 1:
        return [_zeros(1, 64, 20000), _zeros(512, 64, 256), (1,), (128, 127), (1,), 1,
                _zeros(1, 512, 20000)]  # fmt: skip
    return [_zeros(1, 16, 300, 300), _zeros(64, 16, 63, 63), (1, 1), (31, 31, 31, 31), (1, 1), 1,
            _zeros(1, 64, 300, 300)]  # fmt: skip


def _in_blocks(*weight: int, window: int = 3) -> list[Any]:
    """Images in blocks of 16 channels, of 256 channels."""
    side, small = 300, window // 2
    return [_zeros(1, 16, side, side, 16), _zeros(*weight), None, None, (1, 1), (small,) * 4,
            (1, 1), 1, *[None] * 6, _zeros(1, 16, side, side, 16)]  # fmt: skip


def _pool_in_blocks(*flags: int) -> list[Any]:
    return [_zeros(1, 4, 300, 300, 16), (99, 99), (1, 1), (49,) * 4, (1, 1), *flags,
            _zeros(1, 4, 300, 300, 16)]  # fmt: skip


def _spread(axes: int) -> list[Any]:
    """Many outputs for each element."""
    if axes == 1:
        return [_zeros(1, 64, 20000), _zeros(64, 512, 256), (1,), (128, 127), (0,), (1,), 1,
                _zeros(1, 512, 20000)]  # fmt: skip
    side, window = (300, 63) if axes == 2 else (64, 15)
    small = window // 2
    return [_zeros(1, 16, *[side] * axes), _zeros(16, 64, *[window] * axes), (1,) * axes,
            (small,) * axes * 2, (0,) * axes, (1,) * axes, 1,
            _zeros(1, 64, *[side] * axes)]  # fmt: skip


def _adaptive(axes: int) -> list[Make]:
    side = {1: SIZE, 2: 5792, 3: 322}[axes]
    return [
        lambda: [x(1, 1, *[side] * axes), (3,) * axes, _zeros(1, 1, *[3] * axes)],
        lambda: [x(side, 1, *[side] * (axes - 1), 1), (1,) * axes, _zeros(side, 1, *[1] * axes)],
        # One long row without memory, in parts that have elements in common.
        lambda: [np.broadcast_to(x(1, 1, *[1] * axes), (*[1] * (1 + axes), 1 << 40)), (7,) * axes,
                 _zeros(1, 1, *[7] * axes)],
    ]


def _pool_along(axes: int, *flags: int) -> list[Make]:
    side, size = {1: (4_000_000, 9999), 3: (150, 31)}[axes]
    small = (size // 2,) * axes * 2
    return [
        lambda: [_zeros(1, 1, *[side] * axes), (size,) * axes, (1,) * axes, small, (1,) * axes,
                 *flags, _zeros(1, 1, *[side] * axes)],
    ]  # fmt: skip


def _pool(*flags: int) -> list[Make]:
    small, side = (49, 49, 49, 49), math.isqrt(SIZE)
    return [
        lambda: [_zeros(1, 1, 2000, 2000), (99, 99), (1, 1), small, (1, 1), *flags,
                 _zeros(1, 1, 2000, 2000)],
        lambda: [x(1, 1, side, side), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), *flags,
                 out(1, 1, side, side)],
    ]  # fmt: skip


def _attention(*shape: int) -> list[Any]:
    return [*[x(*shape) for _ in range(3)], None, None, None, out(*shape)]


def _recurrent(
    gates: int, functions: str, states: int, *without: None, flags: int = 0
) -> list[Any]:
    """Many steps of a layer of two inputs and four states."""
    steps, last = 1 << 20, [0] * flags
    return [x(steps, 1, 2), _zeros(1, gates * 4, 2), _zeros(1, gates * 4, 4),
            _zeros(1, 2 * gates * 4), *[_zeros(1, 1, 4) for _ in range(states)], *without,
            "forward", functions, None, *last, _zeros(steps, 1, 1, 4),
            *[_zeros(1, 1, 4) for _ in range(states)]]  # fmt: skip


def _trees() -> list[Any]:
    """One tree of two levels for many rows."""
    ints = [np.array(each, np.int32) for each in ([0, 0, 0], [1, 0, 0], [[1, 2], [1, 1], [2, 2]],
                                                  [0], [0, 0, 1, 2], [0, 0])]  # fmt: skip
    return [x(SIZE, 1), _zeros(3), *ints, _zeros(2), "SUM", 1, out(SIZE, 1)]


def _chain() -> list[Any]:
    steps = [f"sin({'$0' if i == 0 else f'%{i - 1}'})" for i in range(32)]
    return [x(HALF), f"{'; '.join(steps)} -> %31", out(HALF)]


HALF = SIZE // 2
SIDE = 1 << 12
LABELS = ",".join(itertools.islice(itertools.cycle(("ab", "bc")), 1000))

KERNELS: dict[str, list[Make]] = {
    "matmul": [_integers, lambda: _dot("i4"), lambda: _dot("f4"), lambda: _dot("f2"),
               lambda: _dot("?"),
               lambda: [*x(HALF, 2).T, out(1).reshape(())]],
    "matmul_nt": [_integers],
    "matmul_tn": [_integers],
    "linear": [lambda: [*_integers()[:2], None, _zeros(1500, 1500, dtype="i8")]],
    "einsum": [lambda: [*_integers()[:2], "ij,jk->ik", _integers()[0]],
               lambda: [x(SIZE, dtype="i4"), "i->", out(1, dtype="i4").reshape(())],
               lambda: [x(SIDE * 2, SIDE), "ij->ji", out(SIDE, SIDE * 2)],
               lambda: [*[_zeros(20, 20)] * 1000, f"{LABELS}->ac", _zeros(20, 20)]],
    "nn.conv1d": [lambda: _convolution(1)],
    "nn.conv2d": [lambda: _convolution(2)],
    "nn.conv3d": [
        lambda: [_zeros(1, 16, 64, 64, 64), _zeros(64, 16, 15, 15, 15), (1,) * 3, (7,) * 6,
                 (1,) * 3, 1, _zeros(1, 64, 64, 64, 64)]],
    **{f"nn.conv{axes}d_transpose": [lambda axes=axes: _spread(axes)] for axes in (1, 2, 3)},
    "vision.roi_align": [
        lambda: [x(1, 64, 512, 512), np.tile(np.array([[0, 0, 0, 500, 500]], "f4"), (500, 1)),
                 (7, 7), 1.0, 2, 0, 0.0, "avg", 0, _zeros(500, 64, 7, 7)]],
    "vision.roi_pool": [
        lambda: [x(1, 64, 512, 512), np.tile(np.array([[0, 0, 0, 500, 500]], "f4"), (500, 1)),
                 (7, 7), 1.0, _zeros(500, 64, 7, 7)]],
    "image.grid_sample": [
        lambda: [x(1, 1, 100, 100), x(1, 2, 2048, 2048), "bicubic", "zeros", 0, 1, 0,
                 out(1, 1, 2048, 2048)]],
    "image.affine_grid": [lambda: [x(1, 2, 3), (4096, 2048), 1, 1, out(1, 2, 4096, 2048)]],
    "image.center_crop_pad": [lambda: [x(HALF), (0,), (SIZE,), out(SIZE)]],
    "vision.select_boxes": [
        lambda: [x(1, 30000, 4), x(1, 1, 30000), np.array([30000]), np.array([1.0]), None, 0,
                 _zeros(30000, 3, dtype="i8")],
        lambda: [x(1, 1, 4), np.broadcast_to(x(1, 1, 1), (1, 1 << 40, 1)), np.array([1]), None,
                 np.array([2.0]), 0, _zeros(0, 3, dtype="i8")]],
    "vision.best_boxes": [
        lambda: [x(1, 30000, 4), x(1, 1, 30000), np.array([30000]), np.array([1.0]),
                 np.array([-1.0]), _zeros(1, 30000, 2, dtype="i8"), out(1, 30000),
                 _zeros(1, dtype="i8")]],
    "vision.non_max_suppression": [
        lambda sigma=sigma: [
            x(1, 30000, 6), np.array([30000]), _zeros(1, 30000, dtype="i4"), -1, 2.0, 1, -1, 2, 1,
            -1, 1, 0, sigma, -1.0, *[out(1, 30000, 6)] * (sigma > 0),
            _zeros(1, 30000, dtype="i4"), _zeros(1, 1, dtype="i4")]
        for sigma in (0.0, 0.5)],
    "vision.get_valid_counts": [
        lambda: [x(1, SIZE // 8, 6), -1.0, -1, 1, _zeros(1, dtype="i4"), out(1, SIZE // 8, 6),
                 _zeros(1, SIZE // 8, dtype="i4")]],
    "nn.prelu": [lambda: [x(2, HALF), x(2), 0, out(2, HALF)]],
    "nn.nll_loss": [lambda: [x(HALF, 2), _zeros(HALF, dtype="i1"), None, "mean", -100,
                             out(1).reshape(())]],
    "nn.pixel_shuffle": [lambda: [x(4, HALF // 4, 2), 2, out(1, HALF // 2, 4)]],
    "nn.pixel_unshuffle": [lambda: [x(1, HALF // 2, 4), 2, out(4, HALF // 4, 2)]],
    "nn.instance_norm": [lambda: [x(4, SIZE // 4), *[x(4)] * 2, 0, (1,), 1e-5, 1, 1,
                                  out(4, SIZE // 4)]],
    "image.resize": [
        lambda method=method, antialias=antialias: [
                 x(1, 1, 2000, 2000), None, None, (2, 3), (4000, 4000), method, "half_pixel",
                 "floor", -0.75, 0, antialias, 0, "stretch", out(1, 1, 4000, 4000)]
        for method, antialias in (("nearest_neighbor", 0), ("cubic", 0))
    ] + [
        lambda: [x(4, 4000, 1000), None, None, (1,), (10,), "cubic", "half_pixel", "floor", -0.75,
                 0, 1, 0, "stretch", out(4, 10, 1000)]],
    **{f"nn.adaptive_avg_pool{axes}d": _adaptive(axes) for axes in (1, 2, 3)},
    **{f"nn.max_pool{axes}d": _pool_along(axes, 0) for axes in (1, 3)},
    **{f"nn.avg_pool{axes}d": _pool_along(axes, 0, 1) for axes in (1, 3)},
    "nn.max_pool2d": _pool(0),
    "nn.max_pool_indices": [
        lambda: [_zeros(1, 1, 2000, 2000), (99, 99), (1, 1), (49,) * 4, (1, 1), 0, 0,
                 _zeros(1, 1, 2000, 2000, dtype="i8")]],
    "nn.fold": [
        lambda: [_zeros(1, 9, 1000 * 1000), (1002, 1002), (3, 3), (1, 1), (0,) * 4, (1, 1),
                 _zeros(1, 1, 1002, 1002)]],
    "special": [lambda: [x(HALF // 8), x(HALF // 8), "igamma", out(HALF // 8)],
                lambda: [x(1000), np.full(1000, 1 << 20, "f4"), "legendre_p", out(1000)]],
    "frexp": [lambda: [x(SIZE), out(SIZE), _zeros(SIZE, dtype="i4")]],
    "xor_sum": [lambda: [x(SIZE), (0,), 0, _zeros(dtype="u8")],
                lambda: [x(1 << 20, 1), (1,), 0, _zeros(1 << 20, dtype="u8")]],
    "segment_reduce": [lambda: [x(1 << 20), np.ones(1 << 20, "i8"), "sum", None, out(1 << 20)]],
    "nn.fractional_max_pool": [
        lambda: [_zeros(1, 100, 300, 300), np.full((1, 100, 2), 0.5, "f4"), (20, 20), (280, 280),
                 _zeros(1, 100, 280, 280), _zeros(1, 100, 280, 280, dtype="i8")]],
    "vision.ps_roi_pool": [
        lambda: [x(1, 49, 512, 512), np.tile(np.array([[0, 0, 0, 500, 500]], "f4"), (5000, 1)),
                 (7, 7), 1.0, _zeros(5000, 1, 7, 7)]],
    "det": [lambda: [_zeros(HALF // 16, 4, 4), _zeros(HALF // 16)],
            lambda: [np.eye(4000, dtype="f4"), _zeros()]],
    "linalg.lu": [lambda: [np.eye(4000, dtype="f4"), _zeros(4000, 4000), _zeros(4000, dtype="i4")]],
    "linalg.solve": [lambda: [np.eye(4000, dtype="f4"), *[_zeros(4000, 4000)] * 2]],
    "linalg.solve_triangular": [
        lambda: [np.eye(4000, dtype="f4"), _zeros(4000, 4000), 1, 0, _zeros(4000, 4000)]],
    "linalg.cholesky": [lambda: [np.eye(6000, dtype="f4"), _zeros(6000, 6000)]],
    "linalg.qr": [lambda: [x(4000, 4000), 0, _zeros(4000, 4000), _zeros(4000, 4000)],
                  lambda: [x(2_000_000, 8), 0, _zeros(2_000_000, 8), _zeros(8, 8)]],
    "linalg.svd": [
        lambda: [x(1500, 1500), 0, _zeros(1500, 1500), _zeros(1500), _zeros(1500, 1500)]],
    "linalg.eigh": [lambda: [x(1500, 1500), _zeros(1500), _zeros(1500, 1500)]],
    "linalg.eig": [lambda: [x(4000, 30, 30), _zeros(4000, 30, 2), _zeros(4000, 30, 30, 2)]],
    "mel_weights": [lambda: [2000, 20000, 8000, 0.0, 4000.0, _zeros(10001, 2000)]],
    "nn.avg_pool2d": _pool(0, 1),
    "nn.attention": [lambda: _attention(1, 6000, 4, 64),
                     lambda: [x(1, 1, 1, 4), *[x(1, SIZE // 4, 1, 4)] * 2, None, None, "TopLeft",
                              out(1, 1, 1, 4)]],
    "nn.lstm": [lambda: _recurrent(4, "Sigmoid;Tanh;Tanh", 2, None, None, flags=2)],
    "nn.gru": [lambda: _recurrent(3, "Sigmoid;Tanh", 1, None, flags=1)],
    "nn.rnn": [lambda: _recurrent(1, "Tanh", 1, None)],
    "nn.linear_attention": [
        lambda: [*[_zeros(1, 1, 1 << 20, 2)] * 3, _zeros(1, 1, 2, 2), _zeros(1, 1, 1 << 20, 1),
                 None, _zeros(1, 1, 1 << 20, 2), _zeros(1, 1, 2, 2)],
    ],
    "tree_ensemble": [_trees],
    "nn.lstm_blocks": [
        lambda: [_zeros(60000, 8, 4), _zeros(1, 28, 4, 16), _zeros(1, 28, 100, 16),
                 _zeros(1, 448), _zeros(1, 8, 100), _zeros(1, 8, 100), None, "forward",
                 _zeros(60000, 1, 8, 100), _zeros(1, 8, 100), _zeros(1, 8, 100)]],
    "nn.gru_blocks": [
        lambda is_linear=is_linear: [
            _zeros(60000, 8, 4), _zeros(1, 21, 4, 16), _zeros(1, 21, 100, 16), _zeros(1, 336),
            _zeros(1, 112), _zeros(1, 8, 100), None, "forward", is_linear,
            _zeros(60000, 1, 8, 100), _zeros(1, 8, 100)]
        for is_linear in (False, True)],
    "nn.attention_tiles": [
        lambda: [x(1, 1, 1 << 14, 64), *[x(1, 1, 1 << 14, 64)] * 2, None, None, None, 1,
                 out(1, 1 << 14, 1, 64)],
        lambda: [x(1, 1, 1, 4), *[x(1, SIZE // 4, 1, 4)] * 2, None, None, "TopLeft", 0,
                 out(1, 1, 1, 4)]],
    "nn.softmax_rows": [lambda: [_zeros(1 << 12, 1 << 12), 1.0, _zeros(1 << 12, 1 << 12)]],
    "nn.lrn": [
        lambda: [x(1, 64, 1 << 18), 5, 1e-4, 0.75, 1.0, out(1, 64, 1 << 18)],
        lambda: [x(1, 64, 1 << 18), 5, 1e-4, 0.6, 1.0, out(1, 64, 1 << 18)],
        lambda: [x(1, 1 << 14, 1), 1 << 14, 1e-4, 0.75, 1.0, out(1, 1 << 14, 1)]],
    "nn.layer_norm_rows": [
        lambda: [_zeros(1 << 12, 1 << 12), _zeros(1 << 12), None, 1e-5, _zeros(1 << 12, 1 << 12)]],
    "nn.apply": [lambda: [_zeros(1 << 24), "gelu", _zeros(1 << 24)]],
    "nn.linear_blocks": [
        lambda: [_zeros(500, 4096), _zeros(256, 4096, 16), None, None, "gelu", _zeros(500, 4096)]],
    "nn.linear_bfloat16": [
        lambda: [_zeros(2000, 8192), np.zeros((512, 256, 16, 16, 2), "u2"), None, None, "gelu", 1,
                 _zeros(2000, 8192)]],
    "nn.linear_float16": [
        lambda: [_zeros(2000, 8192), np.zeros((512, 256, 16, 2, 16), "f2"), None, None, "gelu",
                 _zeros(2000, 8192)]],
    "nn.integer_linear_blocks": [
        lambda: [np.zeros((4000, 8192), "u1"), None, np.zeros((512, 512, 4, 16, 4), "i1"),
                 np.zeros(8192, "i4"), 0, None, _zeros(1), None, "gelu", None, None,
                 _zeros(4000, 8192)]],
    "nn.integer_conv2d_blocks": [
        lambda: [np.zeros((1, 16, 300, 300, 16), "u1"), None,
                 np.zeros((16, 16, 31, 31, 4, 16, 4), "i1"), np.zeros(256, "i4"), 3, (1, 1),
                 (15,) * 4, (1, 1), *[None] * 6, np.zeros((1, 16, 300, 300, 16), "i4")]],
    "nn.integer_lstm_blocks": [
        lambda: [_zeros(100_000, 1, 2048), np.zeros((128, 32, 4, 16, 4), "i1"),
                 np.zeros(2048, "i4"), 0, _zeros(2048), _zeros(1, 1, 512), _zeros(1, 1, 512),
                 "forward", _zeros(100_000, 1, 1, 512), _zeros(1, 1, 512), _zeros(1, 1, 512)]],
    "quantize_bytes": [lambda: [x(SIZE), np.array(1, "f4"), None, np.zeros(SIZE, "u1")]],
    "quantization_range": [
        lambda: [x(SIZE), None, np.array(1, "f4"), np.array(1, "u1")]],
    "nn.to_blocks": [lambda: [x(1, 16, 1000, 2000), out(1, 1, 1000, 2000, 16)]],
    "nn.from_blocks": [lambda: [x(1, 1, 1000, 2000, 16), out(1, 16, 1000, 2000)]],
    "nn.conv2d_blocks": [
        lambda: _in_blocks(16, 16, 31, 31, 16, 16, window=31),
        lambda: [_zeros(1, 8, 300, 300), _zeros(64, 8, 63, 63, 16), *_in_blocks(1)[2:5], (31,) * 4,
                 *_in_blocks(1)[6:-1], _zeros(1, 64, 300, 300, 16)],
        # Padding that takes far longer than the one result of each image.
        lambda: [_zeros(500_000, 1, 1, 1, 16), _zeros(1, 1, 1, 1, 16, 16), None, None,
                 (1 << 16,) * 2, (32,) * 4, (1, 1), 1, *[None] * 6, _zeros(500_000, 1, 1, 1, 16)]],
    "nn.conv2d_bfloat16": [
        lambda: [_zeros(1, 16, 300, 300, 16), np.zeros((16, 8, 31, 31, 16, 16, 2), "u2"),
                 *_in_blocks(1)[2:5], (15,) * 4, *_in_blocks(1)[6:-1],
                 _zeros(1, 16, 300, 300, 16)]],
    "nn.conv2d_gathered_blocks": [
        lambda: [*_in_blocks(16, 200, 15, 15, 16, window=15)[:4],
                 np.arange(3200).reshape(16, 200) % 256,
                 *_in_blocks(16, 200, 15, 15, 16, window=15)[4:]]],
    "nn.conv2d_depthwise_blocks": [lambda: _in_blocks(16, 63, 63, 16, window=63)],
    "nn.conv2d_winograd_blocks": [
        lambda: [_zeros(1, 16, 300, 300, 16), _zeros(36, 64, 16, 16, 16), *_in_blocks(1)[2:-1],
                 _zeros(1, 64, 300, 300, 16)],
        # A row of many tiles of images that other kernels than C's take.
        lambda: [_zeros(1, 1, 3, 400_002, 16)[..., ::-1], _zeros(36, 1, 1, 16, 16),
                 *_in_blocks(1)[2:5], (0,) * 4, *_in_blocks(1)[6:-1],
                 _zeros(1, 1, 1, 400_000, 16)]],
    "nn.mean_blocks": [lambda: [_zeros(1, 16, 1000, 1000, 16), _zeros(1, 16, 1, 1, 16)]],
    "nn.gate_blocks": [
        lambda: [_zeros(1, 16, 500, 500, 16), _zeros(1, 16, 1, 1, 16), _zeros(1, 16, 500, 500, 16),
                 _zeros(1, 16, 500, 500, 16)]],
    "nn.max_pool2d_blocks": [lambda: _pool_in_blocks(0)],
    "nn.avg_pool2d_blocks": [lambda: _pool_in_blocks(0, 1)],
    "extend_cache": [lambda: [x(1, 1, 1, SIZE // 2), x(1, 1, 1, SIZE // 2), np.array([1]),
                              np.array(2), out(1, 1, 2, SIZE // 2)]],
    "matmul_packed": [lambda: [x(4, 64), np.ones((SIZE // 64, 1, 32), "u1"), x(SIZE // 64), None,
                               4, 64, out(4, SIZE // 64)]],
    "nn.pad": [lambda: [_zeros(1), (6_000_000, 6_000_000), "circular", 0, _zeros(12_000_001)],
               lambda: [x(SIZE - 4), (2, 2), "reflect", 0, out(SIZE)]],
    "fused": [_chain],
    "sort": [lambda: [x(SIZE), 0, 0, out(SIZE)],
             lambda: [_rows(), 1, 1, np.empty_like(_rows())]],
    "argsort": [lambda: [x(SIZE // 4), 0, 0, out(SIZE // 4, dtype="i8")],
                lambda: [_rows(), 1, 1, out(*_rows().shape, dtype="i8")]],
    "topk": [lambda: [x(HALF), HALF, 0, "values", 1, out(HALF)],
             lambda: [x(HALF), 1000, 0, "indices", 1, out(1000, dtype="i4")],
             lambda: [_rows(), 500_000, 1, "values", 1, out(8, 500_000, dtype="f8")]],
    "sum": _reduction(),
    "prod": _reduction(),
    "mean": _reduction(),
    "max": _reduction(),
    "min": _reduction(),
    "argmax": _search(),
    "argmin": _search(),
    "cumsum": _totals(),
    "cumprod": _totals(),
    "nn.softmax": _along(),
    "nn.log_softmax": _along(),
    "nn.layer_norm": [lambda: [x(SIZE), x(SIZE), x(SIZE), (0,), 1e-5, 1, 1, out(SIZE)]],
    "nn.rms_norm": [lambda: [x(SIZE), x(SIZE), (0,), 1e-5, out(SIZE)]],
    "nn.batch_norm": [lambda: [x(2, HALF), *[x(2)] * 4, 0, 1e-5, 1, 1, out(2, HALF)]],
    "nn.group_norm": [lambda: [x(4, SIZE // 4), *[x(4)] * 2, 2, 0, (1,), 1e-5, 1, 1,
                               out(4, SIZE // 4)]],
    "nn.dropout": [lambda: [x(HALF), out(HALF), out(SIZE)[HALF:]]],
    "nn.cross_entropy_with_logits": [lambda: [x(2, HALF), x(2, HALF), out(1).reshape(())]],
    "relu": [lambda: [x(SIZE), out(SIZE)]],
    "clip": [lambda: [x(SIZE), 0.25, 0.75, out(SIZE)]],
    "where": [lambda: [bools(SIZE), x(SIZE), 0.5, out(SIZE)],
              lambda: [bools(SIDE, SIDE).T, x(SIDE, SIDE), 0.5, out(SIDE, SIDE)]],
    "cast": [lambda: [x(HALF), out(HALF, dtype="f8")],
             lambda: [x(SIZE * 2, dtype="f2"), out(SIZE * 2, dtype="i1")]],
    "fill": [lambda: [1.5, out(SIZE)]],
    "full": [lambda: [x(1).reshape(()), out(SIZE)]],
    "zeros": [lambda: [out(SIZE)]],
    "ones": [lambda: [out(SIZE)]],
    "arange": [lambda: [0, SIZE, 1, out(SIZE)]],
    "reshape": [lambda: [x(SIDE, SIDE * 2).T, out(SIDE * SIDE * 2)]],
    "permute_dims": [lambda: [x(SIDE, SIDE * 2), None, out(SIDE * 2, SIDE)],
                     lambda: [x(*[2] * 25), None, out(*[2] * 25)]],
    "take": [lambda: [x(100), np.zeros(SIZE, "u1"), 0, out(SIZE)],
             lambda: [x(100), np.full(SIZE // 4, 200, "i8"), 0, "nan", out(SIZE // 4)],
             lambda: [x(2, HALF), np.zeros(2, "i8"), 0, out(2, HALF)]],
    "gather_elements": [lambda: [x(100), _zeros(SIZE // 4, dtype="i8"), 0, out(SIZE // 4)],
                        lambda: [x(2, HALF // 4), _zeros(2, HALF // 4, dtype="i8"), 1,
                                 out(2, HALF // 4)]],
    "gather_nd": [lambda: [x(100), _zeros(SIZE // 4, 1, dtype="i4"), 0, out(SIZE // 4)],
                  lambda: [x(2, HALF), _zeros(2, 1, dtype="i4"), 0, out(2, HALF)]],
    "index_tensor": [lambda: [x(100), _zeros(SIZE // 4, dtype="i4"), out(SIZE // 4)]],
    "scatter_elements": [
        lambda how=how: [x(SIZE // 4), _zeros(SIZE // 4, dtype="i4"), x(SIZE // 4), 0, how,
                         out(SIZE // 4)]
        for how in ("update", "add", "mean")],
    "scatter_nd": [
        lambda how=how: [x(2, HALF), _zeros(2, 1, dtype="i4"), x(2, HALF), how, out(2, HALF)]
        for how in ("update", "max")],
    "index_put": [lambda: [x(SIZE // 4), _zeros(SIZE // 4, dtype="i4"), x(1), 1, out(SIZE // 4)]],
    "slice_scatter": [lambda: [x(SIZE), x(HALF), 0, SIZE, 2, 0, out(SIZE)]],
    "reverse_sequence": [
        lambda: [x(2, HALF), np.full(2, HALF, "i4"), 1, 0, out(2, HALF)],
        lambda: [x(SIZE // 4, 1), np.ones(SIZE // 4, "i4"), 1, 0, out(SIZE // 4, 1)]],
    "one_hot": [lambda: [_zeros(SIZE // 4, dtype="i4"), 1, 0, 4, -1, out(SIZE // 4, 4)]],
    "median": [lambda: [x(HALF // 2), None, out(1).reshape(())],
               lambda: [_rows(), 1, out(8, dtype="f8"), out(16, dtype="i8")[8:]]],
    "bucketize": [lambda: [x(SIZE // 2), x(100), 0, out(SIZE // 2, dtype="i4")]],
    "dft": [lambda: [x(64, HALF // 64, 1), None, 1, 0, 0, out(64, HALF // 64, 2)]],
    "stft": [lambda: [x(1, HALF, 1), 1024, x(1024), 1024, 0, out(1, HALF // 1024, 1024, 2)]],
    "eye": [lambda: [0, out(SIDE, SIDE * 2)], lambda: [0, _zeros(SIDE * 2, SIDE).T]],
    "hamming_window": [lambda: [SIZE, 1, 0.5, 0.5, out(SIZE)]],
    "collapse_sum_to": [lambda: [x(2, HALF), out(HALF)], lambda: [x(HALF, 2), out(2)]],
    "dynamic_strided_slice": [
        lambda: [x(SIZE), np.array([SIZE]), np.array([-SIZE - 1]), np.array([-2]), out(HALF)]],
    "tril": [lambda: [x(SIDE, SIDE * 2), 0, out(SIDE, SIDE * 2)]],
    "triu": [lambda: [x(SIZE // 4, 1), 0, out(SIZE // 4, 1)]],
    "broadcast_to": [lambda: [x(2, 1), out(2, HALF)]],
    "concat": [lambda: [x(HALF), x(HALF), 0, out(SIZE)],
               lambda: [x(HALF, 1), x(HALF, 1), 1, out(HALF, 2)]],
    "stack": [lambda: [x(HALF), x(HALF), 1, out(HALF, 2)]],
    "split": [lambda: [x(SIZE), 2, 0, out(HALF), out(SIZE)[HALF:]]],
    "repeat": [lambda: [x(HALF), 2, None, out(SIZE)]],
    "tile": [lambda: [x(HALF), 2, out(SIZE)]],
    "flip": [lambda: [x(SIZE), 0, out(SIZE)]],
    "strided_slice": [lambda: [x(SIZE), (0,), (SIZE,), (-SIZE - 1,), (-2,), out(HALF)]],
    **{name: [lambda: [x(SIZE), out(SIZE)]]
       for name in ("rsqrt", "sigmoid", "erf", "nn.silu", "nn.gelu", "nn.gelu_tanh")},
}  # fmt: skip
"""Arguments, with outputs, of kernels that are not one ufunc; of some that are, in addition."""

# Builtins

VM = object()
"""Stands for the state of the VM in arguments."""

ROW = 1 << 23


def _words(count: int, length: int = 1) -> np.ndarray:
    return np.full(count, "7" if length == 1 else "x" * length, object)


def _row() -> np.ndarray:
    return x(1, ROW) / np.float32(ROW)


def _tokens() -> np.ndarray:
    return np.arange(ROW, dtype="i4")


def _generator() -> RandomGenerator:
    return RandomGenerator(1)


def _cache(rows: int) -> AttentionKVCache:
    made = AttentionKVCache(relaxvm.Shape([rows, 1024]), np.dtype("f4"))
    made.append(np.ones((rows, 1024), "f4"))
    return made


COUNT = 1 << 14
PROGRAM = shape_program.encode([("load", 0), ("store", 1)])

BUILTINS: dict[str, list[Make]] = {
    "vm.builtin.alloc_heap": [lambda: [1 << 24]],
    "vm.builtin.alloc_shape_heap": [lambda: [VM, 1 << 24]],
    "vm.builtin.alloc_storage": [
        lambda: [VM, relaxvm.Shape([4 * SIZE]), -1, np.dtype("u1"), "global"]],
    "relaxvm.builtin.state_write": [lambda: [VM, "x", x(SIDE * 2, SIDE).T]],
    "relaxvm.builtin.state_open": [lambda: [VM, "x", x(SIDE * 2, SIDE).T]],
    "relaxvm.builtin.cache_open": [lambda: [VM, "x", x(SIDE * 2, SIDE).T, 0]],
    "relaxvm.builtin.cache_extend": [lambda: [VM, "x", x(SIDE * 2, SIDE).T, 0]],
    "relaxvm.builtin.unshared": [lambda: [both := x(SIDE * 2, SIDE).T, (both,)]],
    "relaxvm.builtin.complex_from": [lambda: [x(2, SIZE // 2).T]],
    "vm.builtin.to_device": [lambda: [x(SIDE * 2, SIDE).T, 1, 0]],
    "vm.builtin.reshape": [lambda: [x(SIDE * 2, SIDE).T, relaxvm.Shape([SIZE])]],
    "vm.builtin.tensor_to_shape": [lambda: [np.ones(ROW, "i8")]],
    "relaxvm.builtin.shape_from": [lambda: [np.ones(ROW, "i8")]],
    "relaxvm.builtin.compute_shape": [lambda: [np.ones(ROW, ">i8"), PROGRAM]],
    "relax.run.nonzero": [lambda: [bools(2, ROW)], lambda: [bools(ROW, 2).T]],
    "relax.run.unique": [
        lambda: [x(ROW), 1, 0, 0, 0, None],
        lambda: [x(ROW, dtype="i4") % 1000, 0, 1, 1, 1, None],
        lambda: [x(2, ROW // 2), 1, 0, 0, 0, 0],
        lambda: [x(ROW // 2, 2), 0, 1, 1, 1, 0]],
    "relaxvm.builtin.strings_from": [
        lambda: ["x" * ROW, tuple.__new__(relaxvm.Shape, [1] * ROW)]],
    "relaxvm.builtin.strings_indexed": [lambda: [_words(ROW)]],
    "relaxvm.builtin.strings_take": [lambda: [_words(ROW), np.zeros(ROW, "i8")]],
    "relaxvm.builtin.strings_merged": [lambda: [_words(ROW), np.zeros(ROW, "i8")]],
    "relaxvm.builtin.string_concat": [lambda: [_words(SIDE)[:, None], _words(SIDE)]],
    "relaxvm.builtin.string_equal": [lambda: [_words(SIDE)[:, None], _words(SIDE)]],
    "relaxvm.builtin.string_normalize": [lambda: [_words(ROW), "UPPER", 1, _words(0)]],
    "relaxvm.builtin.string_split": [lambda: [_words(ROW), ",", -1]],
    "relaxvm.builtin.regex_full_match": [lambda: [_words(1, 1 << 20), "(x|xx)*"]],
    "relaxvm.builtin.number_to_string": [lambda: [_row()]],
    "relaxvm.builtin.string_to_number": [lambda: [_words(ROW), "float64"]],
    "relaxvm.builtin.tf_idf": [
        lambda: [np.ones(ROW, "i8"), np.ones(1, "i8"), (0,), (0,), 1, 1, 0, "TF", None]],
    "relaxvm.builtin.tokenize": [lambda: [_words(1, 1 << 20), _words(1), 1, 1, "", 0]],
    "relaxvm.builtin.maps_from": [lambda: [x(ROW, 1), np.ones(1, "i8")]],
    "relaxvm.builtin.map_to_tensor": [
        lambda: [dict.fromkeys(range(ROW // 8), 1), "float64", -1]],
    "relaxvm.builtin.map_vectorize": [lambda: [{}, np.ones(ROW, "i8"), "float64"]],
    "relaxvm.builtin.pairwise_probabilities": [lambda: [x(ROW // 4, 2, 2)]],
    "relaxvm.builtin.sequence_concat": [lambda: [(x(SIDE, SIDE).T, x(SIDE, SIDE)), 0, 0]],
    "relaxvm.builtin.sequence_split": [
        lambda: [x(ROW), None, 0, 0], lambda: [x(SIDE * 2, SIDE).T, np.array(SIDE), 1, 0]],
    "relaxvm.builtin.random_uniform": [lambda: [_generator(), (ROW,), 0, 1, "float32"]],
    "relaxvm.builtin.random_normal": [lambda: [_generator(), (ROW,), 0, 1, "float32"]],
    "relaxvm.builtin.random_multinomial": [
        lambda: [_generator(), x(1, ROW), 1, "int64"],
        lambda: [_generator(), x(1, 8), ROW, "int64"]],
    "relaxvm.builtin.chain_to_tensor": [
        lambda: [((None, x(SIDE, SIDE)), x(SIDE, SIDE).T), 0, 0, "float32", (SIDE, SIDE)]],
    "relax.run.shape_to_tensor": [
        lambda: [tuple.__new__(relaxvm.Shape, [1] * ROW)]],
    "vm.builtin.attention_kv_cache_create": [
        lambda: [x(COUNT, 1024), relaxvm.Shape([COUNT, 1024]), COUNT]],
    "vm.builtin.attention_kv_cache_append": [lambda: [_cache(COUNT), x(COUNT, 1024)]],
    "vm.builtin.attention_kv_cache_update": [lambda: [_cache(COUNT), x(COUNT, 1024)]],
    "vm.builtin.attention_kv_cache_window_override": [
        lambda: [_cache(1), x(COUNT, 1024), COUNT]],
    "vm.builtin.attention_kv_cache_window_override_with_sinks": [
        lambda: [_cache(1), x(COUNT, 1024), COUNT + 1, 1]],
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": [
        lambda: [paged(COUNT), 0, 0.5, tokens(COUNT, 4), tokens(COUNT, 2)]],
    "vm.builtin.attention_kv_cache_self_attention": [
        lambda: [paged(COUNT), 0, 0.5, *(tokens(COUNT, n) for n in (2, 1, 1, 2)), sums(COUNT)]],
    "vm.builtin.attention_kv_cache_cross_attention": [
        lambda: [paged(COUNT, COUNT), 0, 0.5, tokens(COUNT, 2), tokens(COUNT, 2), sums(COUNT)]],
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": [
        lambda: [paged(COUNT), 0, 0.5, *(tokens(COUNT, n) for n in (2, 1, 1, 2))]],
    "vm.builtin.attention_kv_cache_append_mla_kv": [
        lambda: [paged(COUNT, kind=1, dim=2048), 0, tokens(COUNT, 1, 2048)[:, 0]]],
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": [
        lambda: [paged(0), tokens(4 * COUNT, 2), sums(4 * COUNT), tokens(4 * COUNT, 2),
                 sums(4 * COUNT)]],
    "vm.builtin.attention_kv_cache_debug_get_kv": [
        lambda: [paged(COUNT, dim=1024), 0, 0, COUNT,
                 *(tokens(COUNT, 1, 1024)[None] for _ in range(2))]],
    "vm.builtin.attention_kv_cache_debug_get_kv_mla": [
        lambda: [paged(COUNT, kind=1, dim=2048), 0, 0, COUNT, tokens(COUNT, 1, 2048)[None, :, 0]]],
    "vm.builtin.attention_kv_cache_export_page_group": [
        lambda: [paged(COUNT, dim=1024), 0, 0, page_group(COUNT, 1024)]],
    "vm.builtin.attention_kv_cache_import_page_group": [
        lambda: [importing(COUNT), 0, 0, page_group(COUNT)]],
    "vm.builtin.rnn_state_create": [lambda: [1, 1, 1, (None,), (None,), (x(SIZE),)]],
    "vm.builtin.rnn_state_get": [lambda: [recurrent(SIZE), 0, 0, out(1, SIZE)]],
    "vm.builtin.rnn_state_set": [lambda: [recurrent(SIZE), 0, 0, x(1, SIZE)]],
    "vm.builtin.rnn_state_debug_get": [lambda: [recurrent(SIZE), 0, 0, 0]],
    "vm.builtin.multinomial_from_uniform": [
        lambda: [_row(), np.array([[2]], "f4")],
        lambda: [x(ROW, 1), x(ROW, 1)]],
    "vm.builtin.sample_top_p_from_logits": [lambda: [_row(), 1.0, 0.9, 0.5]],
    "vm.builtin.sample_top_p_from_prob": [lambda: [_row(), 0.4, 0.9]],
    "vm.builtin.apply_repetition_penalty": [lambda: [_row(), _tokens(), 2.0]],
    "vm.builtin.apply_presence_and_frequency_penalty": [
        lambda: [_row(), _tokens(), np.ones(ROW, "i4"), 0.5, 0.25]],
    "vm.builtin.apply_softmax_with_temperature": [
        lambda: [out(1, SIZE), 2.0], lambda: [out(SIZE // 2, 2), 2.0]],
    "vm.builtin.check_tensor_info": [lambda: [x(SIZE), 1, np.dtype("f4"), ""]],
    "vm.builtin.read_if_cond": [lambda: [np.zeros(4 * SIZE, "?")]],
    "vm.builtin.debug_print": [lambda: ["line", x(SIZE)]],
    "vm.builtin.print": [lambda: [x(SIZE), "x" * (8 << 20)]],
    "relax.run.print": [lambda: ["{0}" * 1000, "x" * 100_000]],
    "relax.run.assert_op": [lambda: [False, "{0}" * 1000, "x" * 100_000]],
}  # fmt: skip


def calls_of(name: str) -> list[Make]:
    """Return what makes the arguments of each call of a kernel, by its name without prefix, or of a
    builtin."""
    if name in BUILTINS:
        return BUILTINS[name]
    calls = list(KERNELS.get(name, ()))
    record = record_of(PREFIX + name)
    if record is not None and record.ufunc is not None and name != "matmul":
        ufunc = record.ufunc
        calls.append(lambda: _ufunc(ufunc))
    return calls


# Measuring


def machine(name: str, args: list[Any], **limits: Any) -> relaxvm.VirtualMachine:
    """Return a VM of a program that calls a function with its parameters."""
    builder = relaxvm.ExecBuilder()
    given = iter(range(len(args)))
    with builder.function("main", num_inputs=sum(arg is not VM for arg in args)):
        words = [builder.vm_state() if arg is VM else builder.r(next(given)) for arg in args]
        builder.emit_call(name, words, dst=builder.r(len(args)))
        builder.emit_ret(builder.r(len(args)))
    return relaxvm.VirtualMachine(builder.get(), limits=relaxvm.Limits(**limits))


def _cancel_soon(vm: relaxvm.VirtualMachine) -> None:
    timer = threading.Timer(SOON["cancel"], vm.cancel)
    timer.daemon = True
    timer.start()


def _interrupt_soon() -> None:
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, SOON["interrupt"])


def outcomes(how: str, name: str) -> Iterator[tuple[str, float]]:
    """Return how each call of a function ends, and after how much processor time."""
    full = name if name in BUILTINS else PREFIX + name
    for make in calls_of(name):
        args = make()
        vm = machine(full, args, wall_time=SOON["limit"] if how == "limit" else None)
        given = [arg for arg in args if arg is not VM]
        start = time.process_time()
        try:
            try:
                if how == "cancel":
                    _cancel_soon(vm)
                elif how == "interrupt":
                    _interrupt_soon()
                vm["main"](*given)
                end = "result"
            finally:
                if how == "interrupt":  # a signal that comes late raises here at last
                    signal.signal(signal.SIGPROF, signal.SIG_IGN)
                    signal.setitimer(signal.ITIMER_PROF, 0)
        except (LimitError, CancelledError, KeyboardInterrupt) as error:
            end = type(error).__name__
        except AssertionError:
            end = "result"  # of assert_op
        yield end, time.process_time() - start


def main(how: str, *names: str) -> None:
    import contextlib
    import io
    import warnings

    warnings.simplefilter("ignore")
    for name in names:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            found = list(outcomes(how, name))
        for end, seconds in found:
            print(name, end, seconds, sep="\t", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
