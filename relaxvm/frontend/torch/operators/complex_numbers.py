"""Complex numbers: transforms of signals, and arithmetic; see `relaxvm.frontend.torch.pairs`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir import TensorType
from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    axes_of,
    axis_of,
    broadcast_dims,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_tensor,
    length,
    number,
    rank_of,
    reshaped,
    sliced,
)
from ..pairs import Pair, complex_op
from ..registry import aten
from .reductions import vector_norm
from .shapes import expand, roll, stack

__all__: list[str] = []

# Parts


def view_as_real_back(c: Emitter, self: Pair, new: Tensor) -> Pair:
    return view_as_complex(c, new)


@complex_op("view_as_real", back=view_as_real_back)
def view_as_real(c: Emitter, self: Pair) -> Tensor:
    """Real and imaginary parts along a last axis."""
    return stack(c, list(self), rank_of(self.real))


def view_as_complex_back(c: Emitter, self: Tensor, new: Pair) -> Tensor:
    return view_as_real(c, new)


@complex_op("view_as_complex", back=view_as_complex_back)
def view_as_complex(c: Emitter, self: Tensor) -> Pair:
    """Numbers whose parts are along the last axis."""
    last = rank_of(self) - 1
    dims = dims_of(self)[:-1]
    real, imaginary = [
        reshaped(c, sliced(c, self, last, i, i + 1), dims) for i in range(2)
    ]
    return Pair(real, imaginary)


@complex_op("complex")
def complex_(c: Emitter, real: Tensor, imag: Tensor) -> Pair:
    """Numbers of their parts."""
    return Pair(*_broadcast(c, real, imag))


def _broadcast(c: Emitter, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    both = broadcast_dims(dims_of(a), dims_of(b))
    return expand(c, a, both), expand(c, b, both)


@complex_op("polar")
def polar(c: Emitter, abs: Tensor, angle: Tensor) -> Pair:  # noqa: A002
    """Numbers of their magnitudes and angles."""
    parts = [c.op("multiply", abs, c.op(name, angle)) for name in ("cos", "sin")]
    return Pair(parts[0], parts[1])


@complex_op("real", back=lambda c, self, new: Pair(new, self.imaginary))
def real(c: Emitter, self: Pair) -> Tensor:
    """The real parts."""
    found: Tensor = self.real
    return found


@complex_op("imag", back=lambda c, self, new: Pair(self.real, new))
def imag(c: Emitter, self: Pair) -> Tensor:
    """The imaginary parts."""
    found: Tensor = self.imaginary
    return found


@complex_op("abs", "absolute")
def magnitude(c: Emitter, self: Pair) -> Tensor:
    """The magnitudes."""
    return c.op("sqrt", _square(c, self))


def _square(c: Emitter, x: Pair) -> Tensor:
    parts = [c.op("multiply", part, part) for part in x]
    return c.op("add", parts[0], parts[1])


@complex_op("angle")
def angle(c: Emitter, self: Pair) -> Tensor:
    """The angles."""
    return c.op("atan2", self.imaginary, self.real)


def conjugate_back(c: Emitter, self: Pair, new: Pair) -> Pair:
    return conjugate(c, new)


@complex_op("_conj_physical", "conj_physical")
@complex_op("conj", "_conj", back=conjugate_back)
def conjugate(c: Emitter, self: Pair) -> Pair:
    """The conjugates."""
    return Pair(self.real, c.op("negative", self.imaginary))


@complex_op("_to_copy", "to")
def to(c: Emitter, self: Any, dtype: str | None = None, **others: Any) -> Any:
    """Real numbers as complex ones; complex ones as they are, or their real parts."""
    if isinstance(self, Pair):
        if dtype is None or dtype.startswith("complex"):
            part = {None: None, "complex64": "float32", "complex128": "float64"}[dtype]
            return Pair(*[cast(c, each, part) for each in self])
        return cast(c, self.real, dtype)
    return _pair(c, cast(c, self, "float64" if dtype == "complex128" else "float32"))


# Arithmetic


def _pair(c: Emitter, x: Any, like: Tensor | None = None) -> Pair:
    """A complex number of a tensor or number; real ones have the imaginary part 0."""
    if isinstance(x, Pair):
        return x
    if not is_tensor(x):
        dtype = "float32" if like is None else dtype_of(like)
        x = complex(x)
        return Pair(number(c, x.real, dtype), number(c, x.imag, dtype))
    if like is not None:
        x = cast(c, x, dtype_of(like))
    return Pair(x, c.op("zeros", dims_of(x), dtype_of(x)))


def _both(c: Emitter, a: Any, b: Any) -> tuple[Pair, Pair]:
    pairs = [each.real for each in (a, b) if isinstance(each, Pair)]
    like = pairs[0] if pairs else next((each for each in (a, b) if is_tensor(each)), None)
    return _pair(c, a, like), _pair(c, b, like)


def _times(c: Emitter, name: str, a: Pair, b: Pair) -> Pair:
    """The product of numbers by a product of real ones."""

    def by(x: Tensor, y: Tensor) -> Tensor:
        return c.op(name, x, y)

    return Pair(
        c.op("subtract", by(a.real, b.real), by(a.imaginary, b.imaginary)),
        c.op("add", by(a.real, b.imaginary), by(a.imaginary, b.real)),
    )


def _scaled(c: Emitter, x: Pair, by: Tensor) -> Pair:
    return Pair(c.op("multiply", x.real, by), c.op("multiply", x.imaginary, by))


@complex_op("add")
def add(c: Emitter, self: Any, other: Any, alpha: Any = 1) -> Pair:
    """The sum of numbers."""
    a, b = _both(c, self, other)
    if alpha != 1:
        b = _scaled(c, b, number(c, alpha, dtype_of(b.real)))
    return Pair(c.op("add", a.real, b.real), c.op("add", a.imaginary, b.imaginary))


@complex_op("sub", "subtract")
def subtract(c: Emitter, self: Any, other: Any, alpha: Any = 1) -> Pair:
    """The difference of numbers."""
    return add(c, self, other, -alpha)


@complex_op("mul", "multiply")
def multiply(c: Emitter, self: Any, other: Any) -> Pair:
    """The product of numbers."""
    for x, y in ((self, other), (other, self)):
        if isinstance(x, Pair) and is_tensor(y):
            return _scaled(c, x, cast(c, y, dtype_of(x.real)))
        if isinstance(x, Pair) and isinstance(y, (int, float)):
            return _scaled(c, x, number(c, y, dtype_of(x.real)))
    return _times(c, "multiply", *_both(c, self, other))


@complex_op("div", "divide", "true_divide")
def divide(c: Emitter, self: Any, other: Any, rounding_mode: str | None = None) -> Pair:
    """The quotient of numbers."""
    a, b = _both(c, self, other)
    product = _times(c, "multiply", a, conjugate(c, b))
    below = _square(c, b)
    return Pair(c.op("divide", product.real, below), c.op("divide", product.imaginary, below))


@complex_op("reciprocal")
def reciprocal(c: Emitter, self: Pair) -> Pair:
    """One divided by numbers."""
    return divide(c, 1.0, self)


@complex_op("matmul", "mm", "bmm")
def matmul(c: Emitter, self: Any, other: Any = None, mat2: Any = None) -> Pair:
    """The product of matrices."""
    return _times(c, "matmul", *_both(c, self, mat2 if other is None else other))


@complex_op("exp")
def exp(c: Emitter, self: Pair) -> Pair:
    """The exponential function."""
    return polar(c, c.op("exp", self.real), self.imaginary)


@complex_op("pow", "square")
def power(c: Emitter, self: Any, exponent: Any = 2) -> Pair:
    """Powers whose exponents are small integers."""
    if not isinstance(self, Pair) or exponent not in (1, 2, 3, 4, 1.0, 2.0, 3.0, 4.0):
        raise Problem("powers of complex numbers: expected an exponent of 1 to 4")
    found = self
    for _ in range(int(exponent) - 1):
        found = _times(c, "multiply", found, self)
    return found


@complex_op("rsub")
def reversed_subtract(c: Emitter, self: Any, other: Any, alpha: Any = 1) -> Pair:
    """The difference of numbers, the second one first."""
    return subtract(c, other, self, alpha)


@complex_op("sgn")
def unit(c: Emitter, self: Pair) -> Pair:
    """Numbers divided by their magnitudes; 0 for 0."""
    size = magnitude(c, self)
    is_zero = c.op("equal", size, number(c, 0, dtype_of(size)))
    below = c.op("where", is_zero, number(c, 1, dtype_of(size)), size)
    return Pair(*[c.op("divide", part, below) for part in self])


@complex_op("log")
def log(c: Emitter, self: Pair) -> Pair:
    """The natural logarithm."""
    return Pair(c.op("log", magnitude(c, self)), angle(c, self))


@complex_op("sqrt")
def sqrt(c: Emitter, self: Pair) -> Pair:
    """The square root whose real part is not negative."""
    half = number(c, 0.5, dtype_of(self.real))
    return polar(c, c.op("sqrt", magnitude(c, self)), c.op("multiply", angle(c, self), half))


def _waves(c: Emitter, x: Pair, names: Sequence[str]) -> list[Tensor]:
    return [c.op(name, part) for part, name in zip((*x, *x), names, strict=True)]


@complex_op("sin")
def sin(c: Emitter, self: Pair) -> Pair:
    """The sine."""
    a, b, p, q = _waves(c, self, ("sin", "cosh", "cos", "sinh"))
    return Pair(c.op("multiply", a, b), c.op("multiply", p, q))


@complex_op("cos")
def cos(c: Emitter, self: Pair) -> Pair:
    """The cosine."""
    a, b, p, q = _waves(c, self, ("cos", "cosh", "sin", "sinh"))
    return Pair(c.op("multiply", a, b), c.op("negative", c.op("multiply", p, q)))


@complex_op("sinh")
def sinh(c: Emitter, self: Pair) -> Pair:
    """The hyperbolic sine."""
    a, b, p, q = _waves(c, self, ("sinh", "cos", "cosh", "sin"))
    return Pair(c.op("multiply", a, b), c.op("multiply", p, q))


@complex_op("cosh")
def cosh(c: Emitter, self: Pair) -> Pair:
    """The hyperbolic cosine."""
    a, b, p, q = _waves(c, self, ("cosh", "cos", "sinh", "sin"))
    return Pair(c.op("multiply", a, b), c.op("multiply", p, q))


@complex_op("tanh")
def tanh(c: Emitter, self: Pair) -> Pair:
    """The hyperbolic tangent."""
    t, u = c.op("tanh", self.real), c.op("tan", self.imaginary)
    return divide(c, Pair(t, u), Pair(c.op("ones_like", t), c.op("multiply", t, u)))


@complex_op("where")
def where(c: Emitter, condition: Tensor, self: Any, other: Any) -> Pair:
    """R.where of the parts."""
    a, b = _both(c, self, other)
    parts = [c.op("where", condition, x, y) for x, y in zip(a, b, strict=True)]
    return Pair(*parts)


@complex_op("eq")
def equal(c: Emitter, self: Any, other: Any) -> Tensor:
    """Whether both parts are equal."""
    a, b = _both(c, self, other)
    parts = [c.op("equal", x, y) for x, y in zip(a, b, strict=True)]
    return c.op("logical_and", *parts)


@complex_op("ne")
def unequal(c: Emitter, self: Any, other: Any) -> Tensor:
    """Whether a part is not equal."""
    return c.op("logical_not", equal(c, self, other))


@complex_op("einsum")
def einsum(c: Emitter, equation: str, tensors: Any, path: Any = None) -> Pair:
    """The sum of R.einsum of all choices of parts, as products of sums are."""
    if len(tensors) > _MOST_OPERANDS:
        raise Problem(f"einsum of complex numbers: expected at most {_MOST_OPERANDS} operands")
    like = next((each.real for each in tensors if isinstance(each, Pair)), None)
    if like is None:
        raise Problem("einsum of complex numbers: expected a complex operand, got none")
    parts: list[Tensor | None] = [None, None]
    for chosen in itertools.product(range(2), repeat=len(tensors)):
        if any(i and not isinstance(each, Pair) for i, each in zip(chosen, tensors, strict=True)):
            continue
        operands = [
            c.expr(each[i] if isinstance(each, Pair) else cast(c, each, dtype_of(like)))
            for i, each in zip(chosen, tensors, strict=True)
        ]
        term = c.op("einsum", operands, equation.replace(" ", ""))
        half, turns = sum(chosen) % 2, sum(chosen) // 2
        found = parts[half]
        if found is None:
            parts[half] = c.op("negative", term) if turns % 2 else term
        else:
            parts[half] = c.op("subtract" if turns % 2 else "add", found, term)
    return Pair(*parts)


_MOST_OPERANDS = 4


@complex_op("linear")
def linear(c: Emitter, input: Any, weight: Any, bias: Any = None) -> Pair:  # noqa: A002
    """The product with a transposed matrix, and a sum."""
    a, b = _both(c, input, weight)
    found = _times(c, "matmul", a, Pair(*[c.op("permute_dims", part, [1, 0]) for part in b]))
    return found if bias is None else add(c, found, bias)


@complex_op("addmm")
def addmm(c: Emitter, self: Any, mat1: Any, mat2: Any, beta: Any = 1, alpha: Any = 1) -> Pair:
    """A sum with a product of matrices."""
    return add(c, multiply(c, self, beta), multiply(c, matmul(c, mat1, mat2), alpha))


@complex_op("linalg_vector_norm", "linalg_norm")
def norm_of(
    c: Emitter, self: Any, ord: Any = None, dim: Any = None, keepdim: bool = False,  # noqa: A002
    dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """The norm of the magnitudes."""
    axes = dim if dim is None or isinstance(dim, (list, tuple)) else [dim]
    if ord not in (None, 2) and (axes is None or len(axes) > 1) and rank_of(self.real) > 1:
        raise Problem("norms of complex matrices other than the one of all elements")
    size = magnitude(c, self)
    return vector_norm(c, size, 2 if ord is None else ord, axes, keepdim, None)


# Transforms


def _transform(
    c: Emitter, x: Any, n: Any, dim: int, inverse: bool, norm: str | None, half: bool = False
) -> Any:
    """The transform along an axis: of real numbers the first half, if `half`; for the inverse, of
    the first half the real numbers."""
    is_pair = isinstance(x, Pair)
    first = x.real if is_pair else x
    axis, dims, rank = axis_of(first, dim), dims_of(first), rank_of(first)
    dtype = "float64" if dtype_of(first) == "float64" else "float32"
    parts = [cast(c, each, dtype) for each in (x if is_pair else [x])]
    is_real = half and inverse
    size = n if n is not None else (2 * (dims[axis] - 1) if is_real else dims[axis])
    size = length(size)
    count = length(size // 2 + 1) if half and not inverse else size
    wide = c.expr(stack(c, parts, rank))
    shape = [*dims[:axis], count, *dims[axis + 1 :], 1 if is_real else 2]
    found: Tensor = c.run(
        "dft", [wide, size, axis, int(inverse), int(half)], TensorType(shape, dtype), dtype
    )
    scale = _scale(norm, size, inverse)
    if scale != 1:
        found = c.op("multiply", found, number(c, scale, dtype))
    if is_real:
        return reshaped(c, found, shape[:-1])
    return view_as_complex(c, found)


def _scale(norm: Any, size: Any, inverse: bool) -> float:
    """What a transform is multiplied by; the inverse one is divided by the length already."""
    if norm in (None, "backward"):
        return 1.0
    if not isinstance(size, int):
        raise Problem(f"norm: {norm!r} needs a length that is known before the program runs")
    if norm == "ortho":
        return math.sqrt(size) if inverse else 1 / math.sqrt(size)
    return float(size) if inverse else 1 / size


@complex_op("fft_fft")
def fft(c: Emitter, self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """The transform along an axis."""
    found: Pair = _transform(c, self, n, dim, False, norm)
    return found


@complex_op("fft_ifft")
def ifft(c: Emitter, self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """The inverse transform along an axis."""
    found: Pair = _transform(c, self, n, dim, True, norm)
    return found


@complex_op("fft_rfft")
def rfft(c: Emitter, self: Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """The first half of the transform of real numbers along an axis."""
    found: Pair = _transform(c, self, n, dim, False, norm, half=True)
    return found


@complex_op("fft_irfft")
def irfft(c: Emitter, self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real numbers of the first half of their transform."""
    found: Tensor = _transform(c, _pair(c, self), n, dim, True, norm, half=True)
    return found


def _swapped(norm: str | None) -> str:
    """The norm of the transform the other way round."""
    return {"forward": "backward", "ortho": "ortho"}.get(norm or "backward", "forward")


@complex_op("fft_hfft")
def hfft(c: Emitter, self: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real transform of numbers of which the first half is given: the others mirror it."""
    if not isinstance(self, Pair):
        return irfft(c, self, n, dim, _swapped(norm))
    mirrored = Pair(self.real, c.op("negative", self.imaginary))
    return irfft(c, mirrored, n, dim, _swapped(norm))


@complex_op("fft_ihfft")
def ihfft(c: Emitter, self: Tensor, n: Any = None, dim: int = -1, norm: str | None = None) -> Pair:
    """The inverse of `hfft`: the first half of the inverse transform of real numbers."""
    found = rfft(c, self, n, dim, _swapped(norm))
    return Pair(found.real, c.op("negative", found.imaginary))


def _axes(x: Any, s: Any, dim: Any) -> list[tuple[int, Any]]:
    rank = rank_of(x.real if isinstance(x, Pair) else x)
    if dim is None:
        dim = list(range(rank))
        if s is not None:
            dim = dim[-len(s) :]
    sizes = [None if each == -1 else each for each in s] if s else [None] * len(dim)
    return list(zip(dim, sizes, strict=True))


@complex_op("fft_fftn")
def fftn(c: Emitter, self: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Pair:
    """The transform along axes."""
    for axis, size in _axes(self, s, dim):
        self = fft(c, self, size, axis, norm)
    return _pair(c, self)


@complex_op("fft_ifftn")
def ifftn(c: Emitter, self: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Pair:
    """The inverse transform along axes."""
    for axis, size in _axes(self, s, dim):
        self = ifft(c, self, size, axis, norm)
    return _pair(c, self)


@complex_op("fft_rfftn")
def rfftn(
    c: Emitter, self: Tensor, s: Any = None, dim: Any = None, norm: str | None = None
) -> Pair:
    """The first half of the transform of real numbers along axes."""
    *first, (axis, size) = _axes(self, s, dim)
    found = rfft(c, self, size, axis, norm)
    for axis, size in first:
        found = fft(c, found, size, axis, norm)
    return found


@complex_op("fft_irfftn")
def irfftn(
    c: Emitter, self: Any, s: Any = None, dim: Any = None, norm: str | None = None
) -> Tensor:
    """The real numbers of the first half of their transform along axes."""
    *first, (axis, size) = _axes(self, s, dim)
    for other, count in first:
        self = ifft(c, self, count, other, norm)
    return irfft(c, self, size, axis, norm)


@complex_op("fft_hfftn")
def hfftn(c: Emitter, self: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """`hfft` along the last of some axes, and transforms along the others."""
    *first, (axis, size) = _axes(self, s, dim)
    for other, count in first:
        self = fft(c, self, count, other, norm)
    return hfft(c, self, size, axis, norm)


@complex_op("fft_ihfftn")
def ihfftn(
    c: Emitter, self: Tensor, s: Any = None, dim: Any = None, norm: str | None = None
) -> Pair:
    """`ihfft` along the last of some axes, and inverse transforms along the others."""
    *first, (axis, size) = _axes(self, s, dim)
    found = ihfft(c, self, size, axis, norm)
    for other, count in first:
        found = ifft(c, found, count, other, norm)
    return found


def _of_two(function: Any) -> Any:
    """A transform along the last two axes, if no others are given."""

    def convert(c: Emitter, self: Any, s: Any = None, dim: Any = (-2, -1), norm: Any = None) -> Any:
        return function(c, self, s, list(dim), norm)

    convert.__doc__ = function.__doc__
    return convert


for _name, _function in (
    ("fft", fftn), ("ifft", ifftn), ("rfft", rfftn), ("irfft", irfftn), ("hfft", hfftn),
    ("ihfft", ihfftn),
):  # fmt: skip
    complex_op(f"fft_{_name}2")(_of_two(_function))


@complex_op("_fft_r2c")
def fft_r2c(
    c: Emitter, self: Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> Any:
    """The transform of real numbers, as core operators have it."""
    norm = _norm(normalization, False)
    if onesided:
        return rfftn(c, self, None, list(dim), norm)
    return fftn(c, self, None, list(dim), norm)


@complex_op("_fft_c2c")
def fft_c2c(c: Emitter, self: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    """The transform of complex numbers, as core operators have it."""
    function = fftn if forward else ifftn
    return function(c, self, None, list(dim), _norm(normalization, not forward))


@complex_op("_fft_c2r")
def fft_c2r(
    c: Emitter, self: Pair, dim: Sequence[int], normalization: int, last_dim_size: Any
) -> Any:
    """The real numbers of a transform, as core operators have it."""
    norm = _norm(normalization, True)
    *first, last = dim
    for axis in first:
        self = ifft(c, self, None, axis, norm)
    return irfft(c, self, last_dim_size, last, norm)


def _norm(normalization: int, inverse: bool) -> str:
    """0: not divided, 1: by the root of the length, 2: by the length."""
    if normalization == 1:
        return "ortho"
    is_divided = normalization == 2
    return "backward" if is_divided == inverse else "forward"


def _window(c: Emitter, window: Tensor | None, count: int, size: int, dtype: str) -> Tensor:
    """A window of `count` numbers in the middle of `size`."""
    found: Tensor = c.op("ones", [count], dtype) if window is None else window
    before = (size - count) // 2
    if count < size:
        found = c.op("nn.pad", found, [before, size - count - before])
    return found


@aten("stft", "stft.center")
@complex_op("stft")
def stft(
    c: Emitter, self: Tensor, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Tensor | None = None, center: bool = False,
    pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Any:  # fmt: skip
    """The transforms of windows of a signal, ``[..., frequency, frame]``."""
    x, dtype = self, dtype_of(self)
    if center:
        raise Problem("center: expected a signal that is padded already")
    *batch, size = dims_of(x)
    hop = n_fft // 4 if hop_length is None else hop_length
    frames = length((size - n_fft) // hop + 1)
    starts = c.op("multiply", c.op("arange", 0, frames, 1, "int64"), number(c, hop, "int64"))
    places = c.op("add", reshaped(c, starts, [frames, 1]), c.expr(np.arange(n_fft)))
    taken = c.op("take", x, places, len(batch))
    count = n_fft if win_length is None else win_length
    taken = c.op("multiply", taken, _window(c, window, count, n_fft, dtype))
    half = True if onesided is None else onesided
    found: Pair = _transform(c, taken, None, -1, False, None, half)
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    parts = [c.op("permute_dims", each, order) for each in found]
    if normalized:
        scale = number(c, 1 / math.sqrt(n_fft), dtype)
        parts = [c.op("multiply", each, scale) for each in parts]
    pair = Pair(*parts)
    return pair if return_complex else view_as_real(c, pair)


@complex_op("istft")
def istft(
    c: Emitter, self: Pair, n_fft: int, hop_length: int | None = None,
    win_length: int | None = None, window: Tensor | None = None, center: bool = True,
    normalized: bool = False, onesided: bool | None = None, length: Any = None,
    return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal of the transforms of its windows."""
    *batch, _, frames = dims_of(self.real)
    if not isinstance(frames, int):
        raise Problem("istft: expected frames whose number is known before the program runs")
    if return_complex or onesided is False:
        raise Problem("istft: signals of complex numbers are not supported")
    rank, dtype = len(batch), dtype_of(self.real)
    hop = n_fft // 4 if hop_length is None else hop_length
    order = [*range(rank), rank + 1, rank]
    turned = Pair(*[c.op("permute_dims", each, order) for each in self])
    parts = irfft(c, turned, n_fft, -1)
    if normalized:
        parts = c.op("multiply", parts, number(c, math.sqrt(n_fft), dtype))
    count = n_fft if win_length is None else win_length
    by = _window(c, window, count, n_fft, dtype)
    parts = c.op("multiply", parts, by)
    total = n_fft + hop * (frames - 1)
    places = (np.arange(frames)[:, None] * hop + np.arange(n_fft)).ravel()
    flat = reshaped(c, parts, [*batch, frames * n_fft])
    squares = c.op("multiply", by, by)
    weights = reshaped(c, expand(c, squares, [frames, n_fft]), [frames * n_fft])
    signal = _overlapped(c, flat, places, batch, total)
    envelope = _overlapped(c, weights, places, [], total)
    start = n_fft // 2 if center else 0
    end = total - start if length is None else start + length
    signal, envelope = sliced(c, signal, rank, start, end), sliced(c, envelope, 0, start, end)
    return c.op("divide", signal, envelope)


def _overlapped(c: Emitter, x: Tensor, places: Any, batch: Sequence[Any], total: int) -> Tensor:
    """Elements added up at places along the last axis."""
    dtype = dtype_of(x)
    index = expand(c, c.expr(places), [*batch, len(places)])
    zeros = c.op("zeros", [*batch, total], dtype)
    return c.op("scatter_elements", zeros, index, x, len(batch), "add")


# The same for real numbers


@aten("conj_physical")
def real_of_real(c: Emitter, self: Tensor) -> Tensor:
    """Real numbers as they are."""
    return self


@aten("angle")
def angle_of_real(c: Emitter, self: Tensor) -> Tensor:
    """0 for numbers that are not negative, and pi for those that are."""
    dtype = dtype_of(self) if "float" in dtype_of(self) else "float32"
    x = cast(c, self, dtype)
    found = c.op("where", c.op("less", x, number(c, 0, dtype)), number(c, math.pi, dtype),
                 number(c, 0, dtype))  # fmt: skip
    return c.op("where", c.op("isnan", x), x, found)


@each_of("fft_fftfreq", "fft_rfftfreq")
def frequencies(
    name: str, c: Emitter, n: int, d: float = 1.0, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """The frequencies of a transform."""
    found = (np.fft.fftfreq if name == "fft_fftfreq" else np.fft.rfftfreq)(n, d)
    return c.expr(found.astype(dtype or "float32"))


@each_of("fft_fftshift", "fft_ifftshift")
def fftshift(name: str, c: Emitter, self: Tensor, dim: Any = None) -> Tensor:
    """Axes rolled by half of their lengths."""
    found = self
    for axis in axes_of(self, dim):
        size = dims_of(self)[axis]
        by = size // 2 if name == "fft_fftshift" else -(size // 2)
        found = roll(c, found, [by], [axis])
    return found
