"""Cases of operators that create tensors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from .table import cases, kernel


def filled(shape: Any, value: Any, dtype: str | None = None) -> Any:
    return np.broadcast_to(np.asarray(value), tuple(shape))


def filled_like(x: Any, value: Any, dtype: str | None = None) -> Any:
    return np.broadcast_to(np.asarray(value), x.shape)


def constant(number: int) -> Any:
    def make(like: Any, dtype: str | None = None) -> Any:
        return np.full(like.shape if isinstance(like, np.ndarray) else tuple(like), number, object)

    return make


def counted(start: Any, end: Any, step: Any, dtype: str) -> Any:
    """start, start + step and so on, computed with fractions."""
    count = max(0, math.ceil((Fraction(end) - Fraction(start)) / Fraction(step)))
    return np.array([np.longdouble(start) + i * np.longdouble(step) for i in range(count)],
                    np.longdouble)  # fmt: skip


cases(
    "full",
    """
full((2, n), 1.0) | R.Tensor((2, n), "float32")
full((2, n), const(1, "int8")) | R.Tensor((2, n), "int8")
full((2, n), const(1.0), "float16") | R.Tensor((2, n), "float16")
full(shape_var(2), n, "int32") | R.Tensor(a, "int32")
""",
    """
full((2,), f(3)) | ValueError: relax.full: fill_value: expected a scalar or a tensor of rank 0
full(f(3), 1.0) | TypeError: relax.full: shape: expected a shape, got a of type
""",
    """
full((2, 3), 1.5)
full((2, 3), x(), "float64")
full((2, 3), const(1, 'int8'))
full((2, 3), const(3.7, 'float64'), 'int64')
full((), x())
full((3,), x())
full((2, 0), x())
full((2,), const(1, 'bool'))
full((4,), const(2, 'int8'), 'bool')
""",
    reference=filled,
    free=("shape", "dtype"),
)
cases(
    "full_like",
    """
full_like(f(n), 0) | R.Tensor((n,), "float32")
full_like(f(n), 0, "int8") | R.Tensor((n,), "int8")
""",
    """
full_like(f(3), f(3)) | ValueError: relax.full_like: fill_value: expected
""",
    """
full_like(i(3), 7)
full_like(x(2, 3), 2)
full_like(x(), 1)
""",
    reference=filled_like,
    free=("shape", "dtype"),
)
cases(
    "ones",
    """
ones((n,), "float32") | R.Tensor((n,), "float32")
""",
    """
ones((2,), "x") | TypeError: relax.ones: dtype: expected a data type
""",
    """
ones((2, 3), "float32")
ones((3,), 'int8')
ones((), 'bool')
""",
    reference=constant(1),
    free=("shape", "dtype"),
)
cases(
    "ones_like",
    """
ones_like(f(n)) | R.Tensor((n,), "float32")
""",
    """
ones_like(shape(3)) | TypeError: relax.ones_like: x: expected a tensor
""",
    """
ones_like(x(3), "int8")
ones_like(x(2, 3))
""",
    reference=constant(1),
    free=("shape", "dtype"),
)
cases(
    "zeros",
    """
zeros(shape(n, 2), "int8") | R.Tensor((n, 2), "int8")
""",
    """
zeros(("x",), "int8") | TypeError: relax.zeros: shape[0]: expected an integer, got str 'x'
zeros(1.5, "int8") | TypeError: relax.zeros: shape: expected a shape, got float 1.5
zeros((-1,), "int8") | ValueError: relax.zeros: shape: expected dimensions of 0 or more, got
""",
    """
zeros((2, 0), "bool")
zeros((3,), 'float16')
zeros((), 'float64')
""",
    reference=constant(0),
    free=("shape", "dtype"),
)
cases(
    "zeros_like",
    """
zeros_like(rank(2), "bool") | R.Tensor(dtype="bool", ndim=2)
""",
    """
zeros_like(shape(3)) | TypeError: relax.zeros_like: x: expected a tensor
""",
    """
zeros_like(i(3))
zeros_like(x(2, 3))
""",
    reference=constant(0),
    free=("shape", "dtype"),
)
cases(
    "arange",
    """
arange(10) | R.Tensor((10,), "int64")
arange(1, 10, 2) | R.Tensor((5,), "int64")
arange(10, 0, -3) | R.Tensor((4,), "int64")
arange(3, 0) | R.Tensor((0,), "int64")
arange(0.0, 1.0, 0.25) | R.Tensor((4,), "float32")
arange(n) | R.Tensor((n,), "int64")
arange(1, n, 3) | R.Tensor(((n + 1) // 3,), "int64")
arange(n, 0, -1, "int32") | R.Tensor((n,), "int32")
""",
    """
arange(0, 4, 0) | ValueError: relax.arange: step: expected a number other than 0, got 0
""",
    """
arange(1, 10, 4)
arange(10, 0, -3, "float32")
arange(5)
arange(8, 1, -3)
arange(7, 1, 2)
arange(0.0, 1.0, 0.3)
arange(0.5, 4, 1, 'float64')
arange(-1, 4099, 2)
arange(0, 9, 2, 'float16')
""",
    reference=counted,
    free=("dtype",),
    ulps=1,
    large="arange(0, 100000, 1)",
)
kernel("fill", lambda draw: (1.5,), lambda value: np.full((3, 3), value), free=("shape", "dtype"))


def eye(n: int, m: int, k: int, dtype: str) -> Any:
    return np.array([[int(j - i == k) for j in range(m)] for i in range(n)], object).reshape(n, m)


def eye_like(x: Any, k: int, dtype: str | None = None) -> Any:
    return eye(*x.shape, k, "")


def window(size: int, periodic: int, alpha: Any, beta: Any, dtype: str) -> Any:
    if size == 1:
        return np.ones(1, np.longdouble)
    angles = [2 * np.pi * i / (size if periodic else size - 1) for i in range(size)]
    return np.array([alpha - beta * math.cos(angle) for angle in angles], np.longdouble)


cases(
    "eye",
    """
eye(3) | R.Tensor((3, 3), "float32")
eye(n, m, k, "int8") | R.Tensor((n, m), "int8")
""",
    """
eye(3, 0.5) | TypeError: relax.eye: m: expected an integer, got
eye(3, dtype="x") | TypeError: relax.eye: dtype: expected a data type
""",
    """
eye(3)
eye(2, 4, 1)
eye(4, 2, -3, "int64")
eye(3, 3, 9, "float16")
eye(0, 3)
eye(2, 2, 0, "bool")
""",
    reference=eye,
    free=("shape", "dtype"),
)
cases(
    "eye_like",
    """
eye_like(f(n, m)) | R.Tensor((n, m), "float32")
eye_like(f(n, m), k, "int8") | R.Tensor((n, m), "int8")
""",
    """
eye_like(f(3)) | ValueError: relax.eye_like: x: expected a matrix
eye_like(f(3, 3), 0.5) | TypeError: relax.eye_like: k: expected an integer
""",
    """
eye_like(f(2, 4), 1)
eye_like(i(4, 2), -3)
eye_like(f(3, 3), 0, "uint8")
""",
    reference=eye_like,
    free=("shape", "dtype"),
)
cases(
    "hamming_window",
    """
hamming_window(10, True, 0.54, 0.46, "float32") | R.Tensor((10,), "float32")
hamming_window(n, False, 0.54, 0.46, "float32") | R.Tensor((n,), "float32")
""",
    """
hamming_window(0, True, 0.54, 0.46, "float32") | ValueError: relax.hamming_window: window_size:
    expected 1 or more, got 0
hamming_window(3, True, 0.54, 0.46, "int32") | TypeError: relax.hamming_window: dtype: expected
    floats
hamming_window(0.5, True, 0.54, 0.46, "float32") | TypeError: relax.hamming_window: window_size:
    expected an integer
""",
    """
hamming_window(6, True, 0.54, 0.46, "float32")
hamming_window(7, False, 0.54, 0.46, "float64")
hamming_window(1, False, 0.54, 0.46, "float32")
hamming_window(5, True, 0.5, 0.5, "float16")
""",
    reference=window,
    free=("dtype",),
    ulps=4,
    of_largest=True,
)


def transformed(x: Any, length: Any, axis: int, inverse: int, onesided: int) -> Any:
    """By the definition."""
    signal = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    signal = np.moveaxis(signal, axis, -1)
    if inverse and onesided:  # the other half is the conjugate
        length = 2 * (signal.shape[-1] - 1) if length is None else length
        rest = [signal[..., length - k].conj() for k in range(signal.shape[-1], length)]
        signal = np.stack([*np.moveaxis(signal, -1, 0), *rest], -1)
    length = signal.shape[-1] if length is None else length
    given = np.zeros((*signal.shape[:-1], length), np.clongdouble)
    count = min(length, signal.shape[-1])
    given[..., :count] = signal[..., :count]
    bins = length // 2 + 1 if onesided and not inverse else length
    sign = 1 if inverse else -1
    turns = np.outer(np.arange(length), np.arange(bins)) * (2 * np.pi / np.longdouble(length))
    found = given @ np.exp(sign * 1j * turns) / (length if inverse else 1)
    found = np.moveaxis(found, -1, axis)
    return np.stack([found.real] if inverse and onesided else [found.real, found.imag], -1)


def of_frames(x: Any, step: int, window: Any, length: int, onesided: int) -> Any:
    starts = range(0, x.shape[1] - length + 1, step)
    frames = np.stack([x[:, start : start + length] for start in starts], 1)
    weighted = frames if window is None else frames * window[:, None]
    return transformed(weighted, None, 2, 0, onesided)


kernel(
    "dft",
    lambda draw: (draw(3, 7, 2), 6, 1, 0, 1),
    transformed,
    ulps=64,
    of_largest=True,
)
kernel(
    "stft",
    lambda draw: (draw(2, 11, 1), 2, draw(4), 4, 1),
    of_frames,
    ulps=64,
    of_largest=True,
)
