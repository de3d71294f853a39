"""Matrix products; BLAS does them where numpy has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._kernel import alike, check_out, check_tensors, kernel, result_dtype

__all__: list[str] = []

_PRODUCT = "a: tensor, b: tensor, out: tensor"


@kernel("matmul", _PRODUCT)
def matmul(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = a @ b.  a[..., n, k], b[..., k, m], out[..., n, m]; leading dimensions broadcast."""
    _product("matmul", a, b, out)


@kernel("matmul_nt", _PRODUCT)
def matmul_nt(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = a @ the transpose of b.  a[..., n, k], b[..., m, k], out[..., n, m]."""
    _product("matmul_nt", a, b, out, transpose_b=True)


@kernel("matmul_tn", _PRODUCT)
def matmul_tn(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the transpose of a @ b.  a[..., k, n], b[..., k, m], out[..., n, m]."""
    _product("matmul_tn", a, b, out, transpose_a=True)


def _product(
    name: str,
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> None:
    if alike(out, a, b) and a.ndim == b.ndim == out.ndim == 2:
        try:
            np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=out)
            return
        except ValueError:
            pass  # said better below
    check_tensors(name, a=a, b=b)
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(
            f"{name}: expected matrices, got a {describe(a)}, b {describe(b)}; "
            f"vm.builtin.reshape makes one of a vector"
        )
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    if left.shape[-1] != right.shape[-2]:
        axes = (-2 if transpose_a else -1, -1 if transpose_b else -2)
        raise ValueError(
            f"{name}: expected dimension {axes[0]} of a to equal dimension "
            f"{axes[1]} of b, got a {describe(a)}, b {describe(b)}"
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{name}: expected leading dimensions that broadcast, "
            f"got a {describe(a)}, b {describe(b)}"
        ) from None
    dtype = result_dtype(name, np.matmul, a=a, b=b)
    check_out(name, out, dtype, (*batch, left.shape[-2], right.shape[-1]))
    np.matmul(left, right, out=out)
