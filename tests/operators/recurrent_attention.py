"""Cases of attention as a recurrence; the reference computes one head and one step at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import cases


def linear_attention(
    query: Any, key: Any, value: Any, state: Any, decay: Any, rate: Any = None
) -> Any:
    """Head by head."""
    batch, heads, steps, _ = query.shape
    groups = key.shape[1]
    out = np.empty((*query.shape[:3], value.shape[3]), query.dtype)
    last = state.copy()
    for b in range(batch):
        for group in range(groups):
            now = state[b, group].copy()
            for i in range(steps):
                k, v = key[b, group, i], value[b, group, i]
                now = now * decay[b, group, i][:, None]
                if rate is not None:
                    v = (v - k @ now) * rate[b, group % rate.shape[1], i]
                now = now + np.outer(k, v)
                for head in range(heads // groups):
                    at = group * (heads // groups) + head
                    out[b, at, i] = query[b, at, i] @ now
            last[b, group] = now
    return out, last


cases(
    "nn.linear_attention",
    """
nn.linear_attention(f(n, 4, m, 3), f(n, 2, m, 3), f(n, 2, m, 5), f(n, 2, 3, 5), f(n, 2, m, 1)) |
    R.Tuple(R.Tensor((n, 4, m, 5), "float32"), R.Tensor((n, 2, 3, 5), "float32"))
nn.linear_attention(rank(4), f(n, 2, m, 3), f(n, 2, m, 5), f(n, 2, 3, 5), f(n, 2, m, 3)) |
    R.Tuple(R.Tensor(dtype="float32", ndim=4), R.Tensor((n, 2, 3, 5), "float32"))
""",
    """
nn.linear_attention(f(4, 6, 3), f(1, 2, 6, 3), f(1, 2, 6, 5), f(1, 2, 3, 5), f(1, 2, 6, 1)) |
    ValueError: relax.nn.linear_attention: query: expected
nn.linear_attention(f(1, 3, 6, 3), f(1, 2, 6, 3), f(1, 2, 6, 5), f(1, 2, 3, 5), f(1, 2, 6, 1)) |
    ValueError: relax.nn.linear_attention: query: expected a multiple of 2 heads, got 3
nn.linear_attention(f(1, 2, 6, 3), f(1, 2, 7, 3), f(1, 2, 6, 5), f(1, 2, 3, 5), f(1, 2, 6, 1)) |
    ValueError: relax.nn.linear_attention:
nn.linear_attention(f(1, 2, 6, 3), f(1, 2, 6, 3), d(1, 2, 6, 5), f(1, 2, 3, 5), f(1, 2, 6, 1)) |
    TypeError: relax.nn.linear_attention:
""",
    """
nn.linear_attention(x(2, 4, 3, 2), x(2, 2, 3, 2), x(2, 2, 3, 3), x(2, 2, 2, 3), x(2, 2, 3, 1))
nn.linear_attention(x(1, 3, 2, 2), x(1, 3, 2, 2), x(1, 3, 2, 2), x(1, 3, 2, 2), x(1, 3, 2, 2),
    x(1, 1, 2, 1))
nn.linear_attention(x(2, 2, 3, 2), x(2, 2, 3, 2), x(2, 2, 3, 1), x(2, 2, 2, 1), x(2, 2, 3, 1),
    x(2, 2, 3, 1))
nn.linear_attention(x(1, 2, 0, 2), x(1, 1, 0, 2), x(1, 1, 0, 3), x(1, 1, 2, 3), x(1, 1, 0, 1))
""",
    reference=linear_attention,
    dtypes="fhd",
    ulps={"float16": 8, "float32": 64, "float64": 64},
    of_largest=True,
    within=(-1, 1),
    in_tvm=False,
)
