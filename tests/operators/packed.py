"""Cases of kernels for caches and packed matrices, which no operator is lowered to."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import kernel


def extended(past: Any, new: Any, lengths: Any, total: Any) -> Any:
    """Step by step."""
    steps = max(past.shape[2], int(total))
    out = np.zeros((*past.shape[:2], steps, past.shape[3]), past.dtype)
    for i, start in enumerate(lengths.tolist()):
        for step in range(steps):
            if start <= step < start + new.shape[2]:
                out[i, :, step] = new[i, :, step - start]
            elif step < start:
                out[i, :, step] = past[i, :, step]
    return out


def product(x: Any, packed: Any, scales: Any, zeros: Any, bits: int, block: int) -> Any:
    """Element by element."""
    rows, blocks, _ = packed.shape
    out = np.zeros((len(x), rows), x.dtype)
    for n in range(rows):
        for k in range(x.shape[1]):
            at, place = divmod(k, block)
            byte, shift = divmod(place * bits, 8)
            number = (int(packed[n, at, byte]) >> shift) % (1 << bits) - zeros[n * blocks + at]
            out[:, n] += x[:, k] * number * scales[n * blocks + at]
    return out


kernel(
    "extend_cache",
    lambda draw: (draw(2, 2, 3, 2), draw(2, 2, 2, 2), np.array([1, 3]), np.array(5)),
    extended,
)
kernel(
    "matmul_packed",
    lambda draw: (draw(3, 7), (draw(4, 2, 2) * 7).astype(np.uint8), draw(8), draw(8), 4, 4),
    product,
    ulps=64,
    of_largest=True,
)
