"""Calls with large operands, of every builtin and every kernel: what they allocate is counted.

``python -m tests.memory_attacks`` makes them one after the other, each in a run with the limits
`LIMITS`, and prints for each the name, by how many bytes the memory of the process grew at most
during the call, and "result", "LimitError" or the error.  Linux only.

**A new kernel** needs a line here, unless the cases of its operator have a `large` call.
**A new builtin** needs a line, or a place in `WITHOUT` that says why it cannot allocate much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

import relaxvm
from relaxvm.builtins.lm import AttentionKVCache
from relaxvm.builtins.random_numbers import RandomGenerator
from relaxvm.executable import shape_program
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.kernels import PREFIX
from relaxvm.limits import Limits
from relaxvm.vm import VirtualMachine

from .operators.programs import kernel_calls
from .operators.table import OPERATORS, Cases, lines

__all__ = [
    "BUILTINS",
    "GROWTH",
    "LIMITS",
    "VM",
    "WITHOUT",
    "arguments_of",
    "extended",
    "gathered",
    "gru",
    "importing",
    "in_blocks",
    "integer_conv",
    "integer_linear",
    "integer_lstm",
    "kernel_calls_of",
    "large_calls_of",
    "linear",
    "lstm",
    "packed",
    "page_group",
    "paged",
    "program_of",
    "recurrent",
    "sums",
    "tokens",
    "trees",
    "with_weight",
]  # fmt: skip

MIB = 1 << 20
LIMITS = Limits(live_bytes=4 * MIB)
GROWTH = 8 * MIB
"""By so much the memory of the process may grow: the limit, and what is not counted."""

SCALE = 4
"""Of the lengths in the large calls of operators, which have operands of about 5 MiB."""

VM = object()
"""Stands for the state of the VM in arguments."""

# Kernels

OPERATOR_CALLS = """
arange(0, 5000000, 1)
argsort(f(5000000))
sort(f(5000000))
sort(f(1000, 5000), 0)
topk(f(1000, 5000), 20)
one_hot(j(3), 1.0, 0.0, 5000000)
median(f(1000, 5000), 1)
bucketize(f(5000000), f(3))
variance(f(1000, 5000), 0)
eye(2000, 2500)
hamming_window(5000000, True, 0.5, 0.5, "float32")
collapse_sum_to(f(2000, 2500), (2500,))
tril(f(1, 5000000))
triu(f(5000000, 1))
einsum((f(2000, 2000), f(2000, 2000)), "ij,jk->ki")
einsum((f(5000000), f(5000000)), "i,i->i")
full((2000, 2500), const(3.0, "float32"))
ones((2000, 2500), "float32")
zeros((2000, 2500), "float32")
matmul(f(2000, 2000), permute_dims(f(2000, 2000)))
matmul(h(1500, 1500), h(1500, 1500))
matmul(s(900, 5000), s(5000, 100), "int32")
add(h(2500, 2000), h(2000))
sum(h(2500, 2000), 0)
mean(h(2500, 2000), 1)
nn.lstm(f(4, 1000, 1000), f(1, 400, 1000), f(1, 400, 100), f(1, 800), f(1, 1000, 100),
    f(1, 1000, 100))
nn.gru(f(4, 1000, 1000), f(1, 300, 1000), f(1, 300, 100), f(1, 600), f(1, 1000, 100))
nn.rnn(f(4, 1000, 1000), f(1, 100, 1000), f(1, 100, 100), f(1, 200), f(1, 1000, 100))
nn.linear_attention(f(1, 1, 4, 2000), f(1, 1, 4, 2000), f(1, 1, 4, 2000), f(1, 1, 2000, 2000),
    f(1, 1, 4, 1))
nn.attention(f(1, 1000, 8, 64), f(1, 2000, 8, 64), f(1, 2000, 8, 64))
nn.attention(f(1, 1000, 4, 64), f(1, 2000, 4, 64), f(1, 2000, 4, 64), f(1, 4, 1000, 2000))
nn.attention(h(1, 1000, 8, 64), h(1, 2000, 8, 64), h(1, 2000, 8, 64))
nn.avg_pool2d(f(4, 32, 200, 200), 2, 2)
nn.max_pool2d(f(4, 32, 200, 200), (3, 3), 2, (1, 1), ceil_mode=True)
nn.avg_pool1d(f(4, 32, 40000), 2, 2)
nn.prelu(f(1000, 5000), f(5000))
image.grid_sample(f(1, 4, 100, 100), f(1, 2, 1000, 1000))
image.affine_grid(f(1, 2, 3), (1600, 1600))
nn.instance_norm(f(20, 64, 64, 64), f(64), f(64), 1, [2, 3])
nn.nll_loss(f(2000000, 3), sum(zeros((2000000, 1), "int64"), 1), reduction="none")
image.resize2d(f(1, 4, 500, 500), (1000, 1000), method="cubic")
image.resize2d(h(1, 4, 1000, 1000), (1000, 500))
nn.avg_pool3d(f(4, 32, 20, 40, 50), 2, 2)
nn.max_pool1d(f(4, 32, 40000), 3, 2)
nn.max_pool3d(f(4, 32, 20, 40, 50), 3, 2)
nn.adaptive_avg_pool1d(h(4, 32, 40000), 7)
nn.adaptive_avg_pool2d(f(4, 1, 1200, 1000), (1200, 1))
nn.adaptive_avg_pool3d(f(4, 1, 100, 120, 100), (100, 120, 1))
nn.conv3d(f(4, 16, 10, 80, 100), f(16, 16, 3, 3, 3), 1, 1)
nn.conv1d_transpose(f(4, 64, 20000), f(64, 16, 3))
nn.conv2d_transpose(f(4, 16, 280, 280), f(16, 16, 3, 3), 1, 1)
nn.conv3d_transpose(f(4, 16, 10, 80, 100), f(16, 16, 3, 3, 3), 1, 1)
nn.batch_norm(f(1000, 5000), f(5000), f(5000), f(5000), square(f(5000)), -1, training=False)
nn.conv1d(f(4, 64, 20000), f(16, 64, 3))
nn.conv2d(f(4, 16, 280, 280), f(16, 16, 3, 3), 1, 1)
nn.conv2d(f(4, 16, 280, 280), f(16, 1, 5, 5), 1, 2, groups=16)
nn.conv2d(d(2, 16, 280, 280), d(16, 16, 1, 1))
nn.cross_entropy_with_logits(f(1000, 5000), f(1000, 5000))
nn.group_norm(f(20, 64, 64, 64), f(64), f(64), 8, 1, [2, 3])
nn.layer_norm(f(1000, 5000), f(5000), f(5000), [-1])
nn.layer_norm(h(1000, 5000), h(5000), h(5000), [-1])
nn.rms_norm(f(1000, 5000), f(5000))
nn.pad(f(2000, 2000), (100, 100, 100, 100), "reflect")
nn.pad(f(2000, 2000), (100, 100, 100, 100), pad_value=7.0)
nn.softmax(h(1000, 5000))
"""
"""Calls in the notation of operators, beside those that the operators' cases have."""


def square_of(size: int, dtype: str = "float32") -> np.ndarray:
    return np.ones((size, size), dtype)


def vector(dtype: str = "f4", *columns: int) -> np.ndarray:
    return np.ones((2_000_000, *columns), dtype)


def extended(size: int) -> list[Any]:
    """A step behind three."""
    return [np.ones((1, 1, 3, size // 4), "f4"), np.ones((1, 1, 1, size // 4), "f4"),
            np.array([3]), np.array(4), np.ones((1, 1, 4, size // 4), "f4")]  # fmt: skip


def packed(size: int) -> list[Any]:
    """A square matrix of 4 bits."""
    return [np.ones((size, 16), "f4"), np.ones((size, 1, 8), "u1"), np.ones(size, "f4"), None, 4,
            16, np.ones((size, size), "f4")]  # fmt: skip


def trees(rows: int) -> list[Any]:
    """One comparison for many rows."""
    ints = [np.array(each, np.int32) for each in ([0, 0, 0], [1, 0, 0], [[1, 2], [1, 1], [2, 2]],
                                                  [0], [0, 0, 1, 2], [0, 0])]  # fmt: skip
    return [np.ones((rows, 1), "f4"), np.ones(3, "f4"), *ints, np.ones(2, "f4"), "SUM", 1,
            np.ones((rows, 1), "f4")]  # fmt: skip


def in_blocks(size: int) -> list[Any]:
    """Images in blocks of channels, a window of 3 x 3, and what a convolution takes otherwise."""
    image = np.ones((1, 2, size, size, 16), "f4")
    return [image, np.ones((2, 2, 3, 3, 16, 16), "f4"), None, None, (1, 1), (1,) * 4, (1, 1), 1,
            *[None] * 6, np.ones((1, 2, size, size, 16), "f4")]  # fmt: skip


def linear(size: int) -> list[Any]:
    """Rows of 640 elements, weights in blocks for 320 columns, and what follows the product."""
    return [np.ones((size, 640), "f4"), np.ones((20, 640, 16), "f4"), np.ones(320, "f4"),
            np.ones((size, 320), "f4"), "gelu", np.ones((size, 320), "f4")]  # fmt: skip


def linear_bfloat16(size: int) -> list[Any]:
    x, _, *rest, out = linear(size)
    return [x, np.ones((20, 20, 16, 16, 2), "u2"), *rest, 1, out]


def linear_float16(size: int) -> list[Any]:
    x, _, *rest = linear(size)
    return [x, np.ones((20, 20, 16, 2, 16), "f2"), *rest]


def conv_bfloat16(size: int) -> list[Any]:
    x, _, *rest = in_blocks(size)
    return [x, np.ones((2, 1, 3, 3, 16, 16, 2), "u2"), *rest]


def integer_linear(size: int) -> list[Any]:
    """Rows of 640 bytes, weights for 320 columns, and what follows the product."""
    return [np.ones((size, 640), "u1"), None, np.ones((20, 40, 4, 16, 4), "i1"), np.ones(320, "i4"),
            0, None, np.ones(320, "f4"), None, "gelu", None, None,
            np.ones((size, 320), "f4")]  # fmt: skip


def integer_conv(size: int) -> list[Any]:
    """Images of bytes in two blocks, signed, so that they are copied."""
    return [np.ones((1, 2, size, size, 16), "i1"), None, np.ones((2, 2, 3, 3, 4, 16, 4), "i1"),
            np.ones(32, "i4"), 5, (1, 1), (1,) * 4, (1, 1), *[None] * 6,
            np.ones((1, 2, size, size, 16), "i4")]  # fmt: skip


def integer_lstm(steps: int) -> list[Any]:
    """A state of 100 elements."""
    return [np.ones((steps, 8, 448), "f4"), np.ones((28, 7, 4, 16, 4), "i1"), np.ones(448, "i4"), 0,
            np.ones(448, "f4"), np.ones((1, 8, 100), "f4"), np.ones((1, 8, 100), "f4"), "forward",
            np.ones((steps, 1, 8, 100), "f4"), np.ones((1, 8, 100), "f4"),
            np.ones((1, 8, 100), "f4")]  # fmt: skip


def lstm(steps: int) -> list[Any]:
    """A layer of long short-term memory: 40 inputs, a state of 100 elements."""
    return [np.ones((steps, 8, 40), "f4"), np.ones((1, 28, 40, 16), "f4"),
            np.ones((1, 28, 100, 16), "f4"), np.ones((1, 448), "f4"), np.ones((1, 8, 100), "f4"),
            np.ones((1, 8, 100), "f4"), np.full(8, steps), "forward",
            np.ones((steps, 1, 8, 100), "f4"), np.ones((1, 8, 100), "f4"),
            np.ones((1, 8, 100), "f4")]  # fmt: skip


def gru(steps: int) -> list[Any]:
    """A layer of gated recurrent units: 40 inputs, a state of 100 elements."""
    return [np.ones((steps, 8, 40), "f4"), np.ones((1, 21, 40, 16), "f4"),
            np.ones((1, 21, 100, 16), "f4"), np.ones((1, 336), "f4"), np.ones((1, 112), "f4"),
            np.ones((1, 8, 100), "f4"), None, "forward", False,
            np.ones((steps, 1, 8, 100), "f4"), np.ones((1, 8, 100), "f4")]  # fmt: skip


def with_weight(args: list[Any], *shape: int) -> list[Any]:
    return [args[0], np.ones(shape, "f4"), *args[2:]]


def gathered(args: list[Any]) -> list[Any]:
    """With a list of the channels for each block of outputs."""
    args = with_weight(args, 2, 20, 3, 3, 16)
    return [*args[:4], np.arange(40).reshape(2, 20) % 32, *args[4:]]


KERNEL_CALLS: dict[str, Any] = {
    "nn.lstm_blocks": lambda: lstm(300),
    "nn.gru_blocks": lambda: gru(300),
    "nn.attention_tiles": lambda: [
        *[np.ones((1, 8, 300, 64), "f4")] * 3, None, None, "TopLeft", 1,
        np.ones((1, 300, 8, 64), "f4")],
    "nn.softmax_rows": lambda: [np.ones((1000, 1000), "f4"), 1.0, np.ones((1000, 1000), "f4")],
    "nn.lrn": lambda: [np.ones((1, 64, 1 << 14), "f4"), 5, 1e-4, 0.75, 1.0,
                       np.ones((1, 64, 1 << 14), "f4")],
    "nn.layer_norm_rows": lambda: [np.ones((1000, 1000), "f4"), np.ones(1000, "f4"),
                                   np.ones(1000, "f4"), 1e-5, np.ones((1000, 1000), "f4")],
    "nn.apply": lambda: [np.ones(1 << 20, "f4"), "gelu", np.ones(1 << 20, "f4")],
    "nn.linear_blocks": lambda: linear(1000),
    "nn.linear_bfloat16": lambda: linear_bfloat16(1000),
    "nn.linear_float16": lambda: linear_float16(1000),
    "nn.integer_linear_blocks": lambda: integer_linear(4000),
    "nn.integer_conv2d_blocks": lambda: integer_conv(280),
    "nn.integer_lstm_blocks": lambda: integer_lstm(1000),
    "quantize_bytes": lambda: [np.ones(1 << 22, "f4"), np.array(1, "f4"), None,
                               np.ones(1 << 22, "u1")],
    "quantization_range": lambda: [np.ones(1 << 22, "f4"), None, np.array(1, "f4"),
                                   np.array(1, "u1")],
    "nn.to_blocks": lambda: [np.ones((1, 16, 280, 280), "f4"), np.ones((1, 1, 280, 280, 16), "f4")],
    "nn.from_blocks": lambda: [
        np.ones((1, 1, 280, 280, 16), "f4"), np.ones((1, 16, 280, 280), "f4")],
    "nn.conv2d_blocks": lambda: in_blocks(280),
    "nn.conv2d_bfloat16": lambda: conv_bfloat16(280),
    "nn.conv2d_gathered_blocks": lambda: gathered(in_blocks(280)),
    "nn.conv2d_depthwise_blocks": lambda: with_weight(in_blocks(280), 2, 3, 3, 16),
    "nn.conv2d_winograd_blocks": lambda: with_weight(in_blocks(280), 36, 2, 2, 16, 16),
    "nn.max_pool2d_blocks": lambda: [np.ones((1, 4, 300, 300, 16), "f4"), (3, 3), (1, 1), (1,) * 4,
                                     (1, 1), 0, np.ones((1, 4, 300, 300, 16), "f4")],
    "nn.mean_blocks": lambda: [np.ones((1, 4, 300, 300, 16), "f4"),
                               np.ones((1, 4, 1, 1, 16), "f4")],
    "nn.gate_blocks": lambda: [
        np.ones((1, 4, 300, 300, 16), "f4"), np.ones((1, 4, 1, 1, 16), "f4"),
        np.ones((1, 4, 300, 300, 16), "f4"), np.ones((1, 4, 300, 300, 16), "f4")],
    "nn.avg_pool2d_blocks": lambda: [np.ones((1, 4, 300, 300, 16), "f4"), (3, 3), (1, 1), (1,) * 4,
                                     (1, 1), 0, 1, np.ones((1, 4, 300, 300, 16), "f4")],
    "vision.roi_align": lambda: [np.ones((1, 8, 400, 400), "f4"), np.zeros((2000, 5), "f4"), (8, 8),
                                 1.0, 2, 0, 0.0, "avg", 0, np.zeros((2000, 8, 8, 8), "f4")],
    "vision.roi_pool": lambda: [np.ones((1, 8, 400, 400), "f4"), np.zeros((2000, 5), "f4"), (8, 8),
                                1.0, np.zeros((2000, 8, 8, 8), "f4")],
    "image.center_crop_pad": lambda: [square_of(2000), (0,), (1000,), np.ones((1000, 2000), "f4")],
    "nn.max_pool_indices": lambda: [np.ones((1, 1, 2000, 2000), "f4"), (3, 3), (1, 1), (1,) * 4,
                                    (1, 1), 0, 0, np.ones((1, 1, 2000, 2000), "i8")],
    "nn.fold": lambda: [np.ones((1, 9, 1000000), "f4"), (1002, 1002), (3, 3), (1, 1), (0,) * 4,
                        (1, 1), np.ones((1, 1, 1002, 1002), "f4")],
    "special": lambda: [row(), row(), "igamma", row()],
    "frexp": lambda: [row(), row(), np.ones(row().shape, "i4")],
    "xor_sum": lambda: [square_of(2000), (0,), 0, np.ones(2000, "u8")],
    "segment_reduce": lambda: [square_of(2000), np.full(1000, 2), "mean", None,
                               np.ones((1000, 2000), "f4")],
    "nn.fractional_max_pool": lambda: [
        np.ones((1, 1, 2000, 2000), "f4"), np.full((1, 1, 2), 0.5, "f4"), (3, 3), (1990, 1990),
        np.ones((1, 1, 1990, 1990), "f4"), np.ones((1, 1, 1990, 1990), "i8")],
    "vision.ps_roi_pool": lambda: [np.ones((1, 64, 400, 400), "f4"), np.zeros((2000, 5), "f4"),
                                   (8, 8), 1.0, np.zeros((2000, 1, 8, 8), "f4")],
    "det": lambda: [np.ones((1000000, 2, 2), "f4"), np.ones(1000000, "f4")],
    "linalg.lu": lambda: [square_of(2000), square_of(2000), np.ones(2000, "i4")],
    "linalg.solve": lambda: [np.eye(2000, dtype="f4"), square_of(2000), square_of(2000)],
    "linalg.solve_triangular": lambda: [np.eye(2000, dtype="f4"), square_of(2000), 1, 0,
                                        square_of(2000)],
    "linalg.cholesky": lambda: [np.eye(2000, dtype="f4"), square_of(2000)],
    "linalg.qr": lambda: [square_of(2000), 0, square_of(2000), square_of(2000)],
    "linalg.svd": lambda: [square_of(2000), 0, square_of(2000), np.ones(2000, "f4"),
                           square_of(2000)],
    "linalg.eigh": lambda: [np.eye(2000, dtype="f4"), np.ones(2000, "f4"), square_of(2000)],
    "linalg.eig": lambda: [np.ones((500000, 2, 2), "f4"), np.ones((500000, 2, 2), "f4"),
                           np.ones((500000, 2, 2, 2), "f4")],
    "mel_weights": lambda: [2000, 2000, 8000, 0.0, 4000.0, np.ones((1001, 2000), "f4")],
    "vision.select_boxes": lambda: [np.ones((1, 600000, 4), "f4"),
                                    np.ones((1, 1, 600000), "f4"), np.array([1]), None, None, 0,
                                    np.zeros((1, 3), "i8")],
    "vision.best_boxes": lambda: [np.ones((1, 600000, 4), "f4"), np.ones((1, 1, 600000), "f4"),
                                  np.array([1]), np.array([0.5]), np.array([0.5]),
                                  np.ones((1, 600000, 2), "i8"), np.ones((1, 600000), "f4"),
                                  np.ones(1, "i8")],
    "vision.non_max_suppression": lambda: [
        np.ones((1, 600000, 6), "f4"), np.array([600000]), np.ones((1, 600000), "i4"), 1, 0.5, 0,
        -1, 2, 1, 0, 1, 0, 0.0, 0.0, np.ones((1, 600000), "i4"), np.ones((1, 1), "i4")],
    "vision.get_valid_counts": lambda: [
        np.ones((1, 600000, 6), "f4"), 0.0, 0, 1, np.ones(1, "i4"),
        np.ones((1, 600000, 6), "f4"), np.ones((1, 600000), "i4")],
    "cast": lambda: [square_of(2000), np.ones((2000, 2000))],
    "expand_dims": lambda: [square_of(2000).T, np.ones((1, 2000, 2000), "f4")],
    "flatten": lambda: [square_of(2000).T, np.ones(2000 * 2000, "f4")],
    "squeeze": lambda: [square_of(2000).T, np.ones((2000, 1, 2000), "f4")],
    "reshape": lambda: [square_of(2000).T, np.ones((1000, 4000), "f4")],
    "fill": lambda: [1.5, square_of(2000)],
    "dft": lambda: [vector("f8", 1).reshape(1, -1, 1), None, 1, 0, 0, np.ones((1, 2_000_000, 2))],
    "stft": lambda: [np.ones((1, 2_000_000, 1)), 100, None, 1000, 1, np.ones((1, 19991, 501, 2))],
    "dynamic_strided_slice": lambda: [square_of(2000), np.zeros(2, "i8"), np.full(2, 2000),
                                      np.ones(2, "i8"), square_of(2000)],
    "gather_elements": lambda: [vector(), vector("i8"), 0, vector()],
    "gather_nd": lambda: [vector(), vector("i8", 1), 0, vector()],
    "index_tensor": lambda: [vector(), vector("i4"), vector()],
    "index_put": lambda: [vector(), vector("i4"), vector(), 1, vector()],
    "scatter_elements": lambda: [vector("f2"), vector("i4"), vector("f2"), 0, "add", vector("f2")],
    "scatter_nd": lambda: [vector(), vector("i4", 1), vector(), "mean", vector()],
    "reverse_sequence": lambda: [vector("f4", 1), vector("i4"), 1, 0, vector("f4", 1)],
    "fused": lambda: [square_of(2000), square_of(2000), "multiply($0, $1); add(%0, 2.0) -> %1",
                      square_of(2000)],
    "linear": lambda: [square_of(1500), square_of(1500), np.ones(1500, "f4"), square_of(1500)],
    "matmul_tn": lambda: [square_of(1500), square_of(1500), square_of(1500)],
    "matmul_nt": lambda: [square_of(1500), square_of(1500), square_of(1500)],
    "relu": lambda: [square_of(2000), square_of(2000)],
    "tree_ensemble": lambda: trees(5_000_000),
    "extend_cache": lambda: extended(5_000_000),
    "matmul_packed": lambda: packed(2000),
    "remainder": lambda: [square_of(2000), np.ones(2000, "f4"), square_of(2000)],
    "nn.attention_bias": lambda: [*[np.ones((1, 1000, 8, 64), "f4") for _ in range(3)],
                                  np.ones((1, 8, 1000, 1000), "f4"), None, None,
                                  np.ones((1, 1000, 8, 64), "f4")],
}  # fmt: skip
"""Arguments, with outputs, of kernels that no call above is lowered to."""


def large_calls_of(scale: int) -> Iterator[tuple[str, Cases]]:
    """Return (call, cases) for the operators with a `large` call, whose operands have some 1.5 MiB
    times `scale`."""
    for cases in OPERATORS.values():
        if cases.large:
            sizes = r"\b(393216|131072)\b"
            yield re.sub(sizes, lambda m: str(scale * int(m[0])), cases.large), cases


def kernel_calls_of() -> Iterator[tuple[str, str, list[Any]]]:
    """Return (kernel, call, arguments with outputs)."""
    texts = [*large_calls_of(SCALE)]
    texts += [(line, Cases("", "", "")) for line in lines(OPERATOR_CALLS)]
    for text, cases in texts:
        for kernel, args in arguments_of(text, cases):
            yield kernel, text, args
    for kernel, make in KERNEL_CALLS.items():
        yield kernel, kernel, make()


def arguments_of(text: str, cases: Cases) -> Iterator[tuple[str, list[Any]]]:
    """Return (kernel, arguments with outputs) for what a call is lowered to."""
    for kernel, args, outputs in kernel_calls(text, cases)[0]:
        yield kernel, [*args, *(np.ones(shape, dtype) for shape, dtype in outputs)]


# Builtins


def words(count: int, length: int = 1) -> np.ndarray:
    return np.full(count, "x" * length, object)


def row(size: int = 4 * MIB) -> np.ndarray:
    return np.full((1, size), 1 / size, "f4")


def generator() -> RandomGenerator:
    return RandomGenerator(1)


def cache(rows: int) -> AttentionKVCache:
    made = AttentionKVCache(relaxvm.Shape([rows, 1024]), np.dtype("f4"))
    made.append(np.ones((rows, 1024), "f4"))
    return made


def rows(count: int = 4096) -> np.ndarray:
    return np.ones((count, 1024), "f4")


PROGRAM = shape_program.encode([("load", 0), ("store", 1)])

def builtin(name: str, *args: Any) -> Any:
    return relaxvm.get_func(f"vm.builtin.{name}")(*args)


def paged(*counts: int, kind: int = 0, dim: int = 128) -> Any:
    """A paged cache with a sequence, in a pass over the last of some numbers of tokens."""
    size = sum(counts)
    cache = builtin(
        "paged_attention_kv_cache_create", relaxvm.Shape([1, size, max(size, 1), 16, 0]),
        relaxvm.Shape([0, 1]), 2, 1, dim, dim, relaxvm.Shape([kind]), 0, 0, 1.0, 1e4, None,
        np.zeros((), "f4"), *[None] * 15,
    )  # fmt: skip
    builtin("kv_state_add_sequence", cache, 0)
    for count in filter(None, counts):
        builtin("kv_state_begin_forward", cache, relaxvm.Shape([0]), relaxvm.Shape([count]))
    return cache


def tokens(count: int, heads: int, dim: int = 128) -> np.ndarray:
    return np.ones((count, heads, dim), "f4")


def sums(count: int) -> np.ndarray:
    return np.ones((count, 2), "f4")


def page_group(count: int, dim: int = 128) -> np.ndarray:
    return np.ones((1, count // 16, 2, 1, 16, dim), "f4")


def importing(count: int) -> Any:
    cache = paged(count)
    text = builtin("attention_kv_cache_get_checkpoint_metadata", cache, 0)
    builtin("attention_kv_cache_prepare_import", cache, 0, text)
    return cache


def recurrent(size: int) -> Any:
    """A recurrent state of some numbers, in a pass over one sequence."""
    state = builtin("rnn_state_create", 1, 1, 2, (None,), (None,), (np.ones(size, "f4"),))
    builtin("kv_state_add_sequence", state, 0)
    builtin("kv_state_begin_forward", state, relaxvm.Shape([0]), relaxvm.Shape([1]))
    return state


BUILTINS: dict[str, list[Any]] = {
    "vm.builtin.alloc_heap": [lambda: (MIB,)],
    "vm.builtin.alloc_shape_heap": [lambda: (MIB,), lambda: (VM, MIB)],
    "vm.builtin.alloc_storage": [
        lambda: (VM, relaxvm.Shape([5 * MIB]), -1, np.dtype("u1"), "global")],
    "vm.builtin.to_device": [lambda: (row(), 1, 0)],
    "vm.builtin.reshape": [lambda: (square_of(2000).T, relaxvm.Shape([4_000_000]))],
    "vm.builtin.tensor_to_shape": [lambda: (np.ones(MIB, "i8"),)],
    "relaxvm.builtin.shape_from": [lambda: (np.ones(MIB, "i8"),)],
    "relaxvm.builtin.compute_shape": [lambda: (np.ones(MIB, ">i8"),
                                               PROGRAM)],
    "relax.run.nonzero": [lambda: (np.ones((2000, 2000), "bool"),)],
    "relax.run.unique": [
        lambda: (np.arange(4 * MIB).astype("f4"), 1, 0, 0, 0, None),
        lambda: (np.arange(4 * MIB).astype("i4"), 0, 1, 1, 1, None),
        lambda: (square_of(2000), 1, 0, 0, 0, 0)],
    "relax.run.shape_to_tensor": [lambda: (relaxvm.Shape([1] * MIB),)],
    "relaxvm.builtin.strings_from": [lambda: ("x" * MIB, relaxvm.Shape([1] * MIB))],
    "relaxvm.builtin.strings_indexed": [lambda: (words(MIB),), lambda: (np.full(MIB, "x"),)],
    "relaxvm.builtin.strings_take": [lambda: (words(1), np.zeros(MIB, "i8"))],
    "relaxvm.builtin.strings_merged": [lambda: (words(1), np.zeros(MIB, "i8"))],
    "relaxvm.builtin.string_concat": [
        lambda: (words(1000)[:, None], words(1000)), lambda: (words(1, 5 * MIB), words(1)),
        lambda: (np.array(["\u4e00" * (5 * MIB)], object), words(1))],
    "relaxvm.builtin.string_equal": [lambda: (words(3000)[:, None], words(3000))],
    "relaxvm.builtin.string_normalize": [lambda: (words(MIB), "UPPER", 1, words(0))],
    "relaxvm.builtin.string_split": [
        lambda: (words(1, 5 * MIB), "x", -1),
        *(lambda by=by: (np.array(["ab " * MIB], object), by, -1) for by in (" ", None))],
    "relaxvm.builtin.regex_full_match": [lambda: (words(1, 1000), "(x|xx)*")],
    "relaxvm.builtin.number_to_string": [lambda: (row(),)],
    "relaxvm.builtin.string_to_number": [lambda: (words(MIB), "float64")],
    "relaxvm.builtin.tf_idf": [
        lambda: (np.ones(MIB, "i8"), np.ones(MIB, "i8"), relaxvm.Shape([0]),
                 relaxvm.Shape([0] * MIB), 1, 1, 0, "TF", None)],
    "relaxvm.builtin.tokenize": [
        lambda: (words(1, 5 * MIB), words(1), 1, 1, "", 0),
        lambda: (words(1, 5 * MIB), words(1), 0, 1, "", 0)],
    "relaxvm.builtin.maps_from": [lambda: (np.ones((MIB, 1)), np.ones(1, "i8"))],
    "relaxvm.builtin.map_to_tensor": [
        lambda: ({1: 1}, "float64", 1 << 39), lambda: ({1: 1}, "float64", 8 * MIB)],
    "relaxvm.builtin.map_vectorize": [lambda: ({1: 1}, np.ones(4 * MIB, "i8"), "float64")],
    "relaxvm.builtin.pairwise_probabilities": [lambda: (np.ones((4 * MIB, 1, 1)),)],
    "relaxvm.builtin.sequence_concat": [lambda: ((square_of(1000),) * 2, 0, 0)],
    "relaxvm.builtin.sequence_split": [
        lambda: (square_of(2000), None, 0, 0), lambda: (row(), None, 1, 0),
        lambda: (row(), np.array(1), 1, 0), lambda: (row(), np.ones(4 * MIB, "i8"), 1, 0)],
    "relaxvm.builtin.random_uniform": [
        lambda: (generator(), relaxvm.Shape([1 << 40]), 0, 1, "float32"),
        lambda: (generator(), relaxvm.Shape([4 * MIB]), 0, 1, "float32")],
    "relaxvm.builtin.random_normal": [
        lambda: (generator(), relaxvm.Shape([1 << 40]), 0, 1, "float32"),
        lambda: (generator(), relaxvm.Shape([4 * MIB]), 0, 1, "float32")],
    "relaxvm.builtin.random_multinomial": [
        lambda: (generator(), row(), 1, "int64"), lambda: (generator(), row(), 1 << 40, "int64")],
    "relaxvm.builtin.chain_to_tensor": [
        lambda: (((None, square_of(1000)), square_of(1000)), 0, 0, "float32", (1000, 1000))],
    "vm.builtin.attention_kv_cache_create": [
        lambda: (rows(1), relaxvm.Shape([4096, 1024]), 4096),
        lambda: (rows(), relaxvm.Shape([1, 1024]), 1)],
    "vm.builtin.attention_kv_cache_append": [lambda: (cache(1), rows())],
    "vm.builtin.attention_kv_cache_window_override": [lambda: (cache(1), rows(), 4096)],
    "vm.builtin.attention_kv_cache_window_override_with_sinks": [
        lambda: (cache(1), rows(), 5000, 1)],
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": [
        lambda: (paged(2048), 0, 0.5, tokens(2048, 4), tokens(2048, 2))],
    "vm.builtin.attention_kv_cache_self_attention": [
        lambda: (paged(2048), 0, 0.5, *(tokens(2048, n) for n in (2, 1, 1, 2)), sums(2048))],
    "vm.builtin.attention_kv_cache_cross_attention": [
        lambda: (paged(2048, 1), 0, 0.5, tokens(1, 2), tokens(1, 2), sums(1))],
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": [
        lambda: (paged(2048), 0, 0.5, *(tokens(2048, n) for n in (2, 1, 1, 2)))],
    "vm.builtin.attention_kv_cache_append_mla_kv": [
        lambda: (paged(2048, kind=1), 0, tokens(2048, 1)[:, 0])],
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": [
        lambda: (paged(0), tokens(4096, 2), sums(4096), tokens(4096, 2), sums(4096))],
    "vm.builtin.attention_kv_cache_debug_get_kv": [
        lambda: (paged(2048), 0, 0, 2048, tokens(2048, 1)[None], tokens(2048, 1)[None])],
    "vm.builtin.attention_kv_cache_debug_get_kv_mla": [
        lambda: (paged(2048, kind=1), 0, 0, 2048, tokens(2048, 1)[None, :, 0])],
    "vm.builtin.attention_kv_cache_export_page_group": [
        lambda: (paged(2048), 0, 0, page_group(2048))],
    "vm.builtin.attention_kv_cache_import_page_group": [
        lambda: (importing(2048), 0, 0, page_group(2048))],
    "vm.builtin.rnn_state_create": [
        lambda: (1, 1, 1, (None,), (None,), (row(),)),
        lambda: (1, 1 << 20, 1, (None,), (None,), (np.ones(9, "f4"),))],
    "vm.builtin.rnn_state_get": [lambda: (recurrent(MIB), 0, 0, row(MIB))],
    "vm.builtin.rnn_state_set": [lambda: (recurrent(MIB), 0, 0, row(MIB))],
    "vm.builtin.rnn_state_debug_get": [lambda: (recurrent(4 * MIB), 0, 0, 0)],
    "vm.builtin.multinomial_from_uniform": [lambda: (row(), np.array([[0.3]], "f4"))],
    "vm.builtin.sample_top_p_from_logits": [lambda: (row(), 1.0, 0.9, 0.5)],
    "vm.builtin.sample_top_p_from_prob": [lambda: (row(), 0.4, 0.9)],
    "vm.builtin.apply_repetition_penalty": [
        lambda: (row(), np.arange(4 * MIB, dtype="i4"), 2.0)],
    "vm.builtin.apply_presence_and_frequency_penalty": [
        lambda: (row(), np.arange(4 * MIB, dtype="i4"), np.ones(4 * MIB, "i4"), 0.5, 0.25)],
    "vm.builtin.apply_softmax_with_temperature": [lambda: (row(), 2.0)],
    "vm.builtin.attention_kv_cache_update": [lambda: (cache(4096), rows())],
    "vm.builtin.check_tensor_info": [lambda: (row(), 2, np.dtype("f4"), "")],
    "relaxvm.builtin.state_write": [lambda: (VM, "x", row())],
    "relaxvm.builtin.state_open": [lambda: (VM, "x", row())],
    "relaxvm.builtin.cache_open": [lambda: (VM, "x", row(), 0)],
    "relaxvm.builtin.cache_extend": [lambda: (VM, "x", row(), 0)],
    "relaxvm.builtin.unshared": [lambda: (both := row(), (both,))],
    "relaxvm.builtin.complex_from": [lambda: (np.ones((MIB, 2), "f4"),)],
    "vm.builtin.read_if_cond": [lambda: (np.ones(8 * MIB, "bool"),)],
    "vm.builtin.debug_print": [lambda: ("line", row())],
    "vm.builtin.print": [lambda: (row(), "x" * (8 * MIB))],
    "relax.run.print": [lambda: ("{0}" * 1000, "x" * 100_000)],
    "relax.run.assert_op": [lambda: (False, "{0}" * 1000, "x" * 100_000)],
}  # fmt: skip
"""Builtin -> arguments for which it would make more than the limits allow, or which are large."""

WITHOUT: dict[str, str] = {
    "a view, or the value itself": """
alloc_tensor ensure_zero_offset attention_kv_cache_view copy move null_value tuple_getitem
=relaxvm.builtin.sequence_at =relaxvm.builtin.optional_get_element =relaxvm.builtin.state_read
=relaxvm.builtin.put
=vm.move =runtime.TVMTensorCreateView =relaxvm.builtin.adt_field =relaxvm.builtin.ref_read""",
    "a value of bounded size, or none": """
store_shape match_shape match_prim_value make_prim_value =relaxvm.builtin.check_upper_bound
check_shape_info check_prim_value_info check_tuple_info check_func_info check_string_info
tuple_reset_item
free_storage free_tensor memory_manager.clear attention_kv_cache_array_popn
attention_kv_cache_array_clear kv_state_clear kv_state_add_sequence kv_state_remove_sequence
kv_state_fork_sequence kv_state_popn kv_state_begin_forward kv_state_end_forward
attention_kv_cache_enable_sliding_window_for_seq attention_kv_cache_empty
attention_kv_cache_commit_accepted_token_tree_nodes attention_kv_cache_get_num_available_pages
attention_kv_cache_get_total_sequence_length attention_kv_cache_get_sequence_length
attention_kv_cache_get_query_positions attention_kv_cache_get_layout_hash
attention_kv_cache_finish_import kv_cache_disagg_mark_send kv_cache_disagg_prepare_recv
=time time =relaxvm.builtin.adt_tag =relaxvm.builtin.tag_is
=relaxvm.builtin.match_tag
=relaxvm.builtin.ref =relaxvm.builtin.ref_write =relaxvm.builtin.match_failure
=relaxvm.builtin.sequence_length =relaxvm.builtin.optional_has_element
=relaxvm.builtin.number_from =relaxvm.builtin.int_within =relaxvm.builtin.random_generator
=relaxvm.builtin.fatal =relaxvm.builtin.int_from =relaxvm.builtin.scalar_equal
=relaxvm.builtin.indices_within =relaxvm.builtin.nonzero_divisor
=relaxvm.builtin.within =relaxvm.builtin.assign =relaxvm.builtin.tensor_property""",
    "as large as its arguments, which the census of objects counts": """
make_tuple make_closure make_shape shape_of load_shape =relaxvm.builtin.make_adt
=relaxvm.builtin.sequence_insert =relaxvm.builtin.sequence_erase
=relaxvm.builtin.chain_to_tuple =relaxvm.builtin.tree_leaves =relaxvm.builtin.tree_from""",
    "as large as the cache, which is reserved at once": """
paged_attention_kv_cache_create attention_kv_cache_get_checkpoint_metadata
attention_kv_cache_prepare_import""",
    "what the function does that it calls": """
invoke_closure call_tir_dyn""",
    "allowed by name only, for files that are trusted": """
register_py_func get_py_func call_py_func clear_py_func_registry invoke_debug_func
tensor_cache.update tensor_cache.get tensor_cache.remove tensor_cache.clear tensor_cache.load
param_array_from_cache param_array_from_cache_by_name param_array_from_cache_by_name_unpacked
param_module_from_cache param_module_from_cache_by_name""",
}
"""Reason -> builtins without a line; full names after "=", others without "vm.builtin."."""


def without(reason: str) -> list[str]:
    """Return the full names of the builtins that a reason has."""
    return [
        name[1:] if name.startswith("=") else f"vm.builtin.{name}"
        for name in WITHOUT[reason].split()
    ]


# Measuring


def memory(field: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def program_of(name: str, args: list[Any]) -> relaxvm.VMExecutable:
    """Return a program that calls a function with these arguments, those other than `VM` given to
    ``main``."""
    b = ExecBuilder()
    count = sum(arg is not VM for arg in args)
    with b.function("main", num_inputs=count):
        numbers = iter(range(count))
        words = [b.vm_state() if arg is VM else b.r(next(numbers)) for arg in args]
        b.emit_call(name, words, dst=b.r(count))
        b.emit_ret(b.r(count))
    return b.get()


def measure(name: str, args: list[Any]) -> tuple[int, str]:
    """Call a function in a run with `LIMITS`: growth of memory in bytes, and outcome."""
    given = [arg for arg in args if arg is not VM]
    vm = VirtualMachine(program_of(name, args), limits=LIMITS)
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # VmHWM is VmRSS
    before = memory("VmRSS")
    outcome = "result"
    result = None
    try:
        result = vm.main(*given)
    except Exception as error:
        outcome = type(error).__name__
    growth = memory("VmHWM") - before
    del result
    return growth, outcome


def main() -> None:
    import contextlib
    import io
    import warnings

    warnings.simplefilter("ignore")
    np.ones((200, 200)) @ np.ones((200, 200))  # BLAS has its buffers from now on
    for name, makers in BUILTINS.items():
        for make in makers:
            args = list(make())
            with contextlib.redirect_stdout(io.StringIO()):
                growth, outcome = measure(name, args)
            print(name, growth, outcome, name, sep="\t", flush=True)
    for kernel, text, args in kernel_calls_of():
        growth, outcome = measure(PREFIX + kernel, args)
        print(PREFIX + kernel, growth, outcome, text, sep="\t", flush=True)


if __name__ == "__main__":
    main()
