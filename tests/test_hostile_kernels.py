"""Kernels that are compiled for sets of instructions, called with arguments that do not fit."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from relaxvm.errors import RelaxVMError
from relaxvm.kernels import _table
from relaxvm.kernels.blocks import BLOCK
from relaxvm.kernels.cpu import SETS

from .test_kernel_sets import Kernel, of_set, reference

pytestmark = pytest.mark.skipif(not SETS, reason="no kernels for this processor")


class Hostile:
    """Arguments that fit, of which some are then changed: shapes, strides, data types, parameters,
    memory that two of them share."""

    def __init__(self, kernel: str, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        height, width = self.some(5, 4), self.some(5, 4)
        count, more = self.some(1, 2), self.some(1, 2)
        x: Any = self.tensor(self.some(1, 2), count, height, width, BLOCK)
        tall, wide = self.some(3, 1, 2, 7), self.some(3, 1, 2)
        strides, dilation = (self.some(1, 2), self.some(1, 2)), (1, self.some(1, 2))
        padding = tuple(self.some(0, 1, 3) for _ in range(4))
        if "winograd" in kernel:
            tall, wide, strides, dilation = 3, 3, (1, 1), (1, 1)
        rows, columns = (
            (n + padding[i] + padding[i + 2] - dilation[i] * (taps - 1) - 1) // strides[i] + 1
            for i, (n, taps) in enumerate([(height, tall), (width, wide)])
        )
        out = [len(x), count, max(rows, 0), max(columns, 0), BLOCK]
        if kernel == "nn.apply":
            self.args: list[Any] = [x, self.some("gelu", "exp", "relu", "tanh"), x.copy()]
        elif kernel == "nn.linear_blocks":
            rows, inputs, columns = self.some(5, 1, 40), self.some(20, 16, 3), self.some(30, 32, 70)
            blocks = -(-columns // BLOCK)
            bias = self.tensor(blocks * BLOCK) if self.rng.random() < 0.5 else None
            residual = self.tensor(rows, columns) if self.rng.random() < 0.5 else None
            self.args = [self.tensor(rows, inputs), self.tensor(blocks, inputs, BLOCK), bias,
                         residual, self.some(None, "gelu"), self.tensor(rows, columns)]  # fmt: skip
        elif kernel == "nn.lstm_blocks":
            steps, batch, inputs = self.some(3, 1), self.some(2, 5), self.some(4, 20)
            size, both = self.some(5, 16, 20), self.some(1, 2)
            gates, state = 4 * -(-size // BLOCK), (both, batch, size)
            self.args = [self.tensor(steps, batch, inputs), self.tensor(both, gates, inputs, BLOCK),
                         self.tensor(both, gates, size, BLOCK), self.tensor(both, gates * BLOCK),
                         self.tensor(*state), self.tensor(*state),
                         "bidirectional" if both == 2 else self.some("forward", "reverse"),
                         self.tensor(steps, *state), self.tensor(*state),
                         self.tensor(*state)]  # fmt: skip
        elif kernel.endswith("_blocks") and "conv" not in kernel and "pool" not in kernel:
            flat = self.tensor(len(x), count * BLOCK - self.some(0, 5), height, width)
            self.args = [flat, x] if kernel == "nn.to_blocks" else [x, flat]
        elif "pool" in kernel:
            flags = [self.some(0, 1)] * (1 + kernel.startswith("nn.avg"))
            self.args = [x, (tall, wide), strides, padding, dilation, *flags, self.tensor(*out)]
        else:
            weight = [more, count, tall, wide, BLOCK, BLOCK]
            out[1] = more
            if "depthwise" in kernel:
                weight, out[1] = [count, tall, wide, BLOCK], count
            elif "gathered" in kernel:
                weight = [more, self.some(5, 1), tall, wide, BLOCK]
            elif "winograd" in kernel:
                weight = [36, more, count, BLOCK, BLOCK]
            elif self.rng.random() < 0.3:
                x = self.tensor(len(x), self.some(3, 1), height, width)
                weight = [more, x.shape[1], tall, wide, BLOCK]
            bias = self.tensor(out[1] * BLOCK) if self.rng.random() < 0.5 else None
            residual = self.tensor(*out) if self.rng.random() < 0.5 else None
            low, high = self.some(None, 0.0), self.some(None, 1.0)
            self.args = [x, self.tensor(*weight), bias, residual, strides, padding, dilation, 1,
                         low, high, self.tensor(*out)]  # fmt: skip
            if "gathered" in kernel:
                most = self.some(count * BLOCK, count * BLOCK + 1)
                self.args.insert(4, self.rng.integers(-1, most, weight[:2]))
        for _ in range(self.some(1, 0, 2, 3)):
            self.change(int(self.rng.integers(len(self.args))))

    def some(self, *values: Any) -> Any:
        """One of several values, most often the first."""
        at = int(self.rng.integers(-1, len(values)))
        return values[max(at, 0)]

    def tensor(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def change(self, i: int) -> None:
        value = self.args[i]
        if isinstance(value, np.ndarray):
            self.args[i] = self.changed(value)
        elif isinstance(value, tuple):
            numbers = list(value)
            at = int(self.rng.integers(len(numbers)))
            numbers[at] = self.some(0, -1, 2, 4, 9, 1 << 20, 1 << 40, (1 << 63) - 1, -(1 << 63))
            self.args[i] = tuple(numbers[: self.some(len(numbers), 1, 3)])
        else:
            self.args[i] = self.some(2, 0, -1, 3, None, 1 << 40, 0.5, 1e300)

    def changed(self, value: np.ndarray) -> Any:
        if value.dtype == np.int64 and self.rng.random() < 0.5:
            value.flat[self.rng.integers(value.size)] = self.some(
                1 << 62, -(1 << 63), count := int(value.max()) + 1, 16 * count
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
            other = self.args[0 if axis else -1].reshape(-1)
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


def outcome(run: Kernel, args: list[Any]) -> np.ndarray | None:
    """The result, or None for an error."""
    try:
        with np.errstate(all="ignore"):
            run(*args)
    except (RelaxVMError, ValueError, TypeError, OverflowError, RuntimeError):
        return None
    return np.asarray(args[-1])


HOSTILE_SEEDS = int(os.environ.get("RELAXVM_HOSTILE_SEEDS", "300"))
BLOCK_KERNELS = sorted(
    {row[1] for which in SETS for row in _table.rows(which)}
    & {"nn.apply", "nn.linear_blocks", "nn.lstm_blocks", "nn.to_blocks", "nn.from_blocks",
       "nn.max_pool2d_blocks", "nn.avg_pool2d_blocks", "nn.conv2d_blocks",
       "nn.conv2d_gathered_blocks", "nn.conv2d_depthwise_blocks", "nn.conv2d_winograd_blocks"}
)  # fmt: skip


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("kernel", BLOCK_KERNELS)
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
