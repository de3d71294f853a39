"""Special functions, numbers by their bits, segments, and pools whose windows are drawn: kernels
of programs from PyTorch for which there is no operator.

Functions of floats are computed in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time, flat, pieces
from ._arrays import copy_if_overlapping
from ._kernel import kernel
from .checks import Dims, WrongType, WrongValue, broadcast, check_out, native, working_dtype
from .kinds import Axes, Flag, Floats, Integers, Number, Out, SameType, Tensor, a_choice, ints
from .matrices import expected_outs

__all__: list[str] = []

Reals: TypeAlias = NDArray[np.float64]

_PART: Final = 1 << 14
"""Elements that are computed together: their memory is some hundred KB."""
_MOST_TERMS: Final = 20_000
_LARGE: Final = 1e6
"""Parameters of the gamma function from which a normal distribution takes its place."""


# The incomplete gamma functions


def _lgamma(a: Reals) -> Reals:
    found: Reals = np.array([math.lgamma(each) for each in a.tolist()])
    return found


def _gamma_parts(a: Reals, x: Reals) -> tuple[Reals, Reals]:
    """The lower and the upper incomplete gamma function, divided by the gamma function, of finite
    numbers above 0: by a series below a + 1, by Lentz's continued fraction above (Numerical Recipes
    6.2), by the normal distribution of the cube root where a is large (Wilson and Hilferty)."""
    lower, upper = np.empty_like(x), np.empty_like(x)
    is_large = a > _LARGE
    is_low = ~is_large & (x < a + 1)
    is_high = ~is_large & ~is_low
    lower[is_low] = _by_series(a[is_low], x[is_low])
    upper[is_low] = 1 - lower[is_low]
    upper[is_high] = _by_fraction(a[is_high], x[is_high])
    lower[is_high] = 1 - upper[is_high]
    if is_large.any():
        part = 1 / (9 * a[is_large])
        z = (np.cbrt(x[is_large] / a[is_large]) - 1 + part) / np.sqrt(part)
        scaled = (z / math.sqrt(2)).tolist()
        lower[is_large] = [0.5 * math.erfc(-each) for each in scaled]
        upper[is_large] = [0.5 * math.erfc(each) for each in scaled]
    return lower, upper


def _by_series(a: Reals, x: Reals) -> Reals:
    term = 1 / a
    total = term.copy()
    for k in range(1, _MOST_TERMS):
        check_time()
        term *= x / (a + k)
        total += term
        if (term <= total * 1e-17).all():
            break
    return total * np.exp(a * np.log(x) - x - _lgamma(a))


def _by_fraction(a: Reals, x: Reals) -> Reals:
    tiny = 1e-300
    b = x + 1 - a
    c = np.full_like(x, 1 / tiny)
    d = 1 / b
    found = d.copy()
    for k in range(1, _MOST_TERMS):
        check_time()
        factor = -k * (k - a)
        b = b + 2
        d = factor * d + b
        d = 1 / np.where(abs(d) < tiny, tiny, d)
        c = b + factor / c
        c = np.where(abs(c) < tiny, tiny, c)
        step = c * d
        found *= step
        if (abs(step - 1) < 1e-16).all():
            break
    return found * np.exp(a * np.log(x) - x - _lgamma(a))


def _igamma(is_upper: bool) -> Callable[[Reals, Reals], Reals]:
    at_zero, beyond = (1.0, 0.0) if is_upper else (0.0, 1.0)

    def function(a: Reals, x: Reals) -> Reals:
        out = np.full(x.shape, np.nan)
        is_inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        out[is_inside] = _gamma_parts(a[is_inside], x[is_inside])[is_upper]
        out[(a > 0) & np.isfinite(a) & np.isposinf(x)] = beyond
        out[np.isposinf(a) & (x >= 0) & np.isfinite(x)] = at_zero
        out[(a == 0) & (x > 0)] = beyond
        out[(a > 0) & (x == 0)] = at_zero
        return out

    return function


# Airy's function


_AI_0: Final = 0.355028053887817239
_AI_1: Final = 0.258819403792806798
_AIRY_NEAR: Final = 5.5


def _airy_ai(x: Reals) -> Reals:
    """Its Maclaurin series near 0, else the series for large arguments (DLMF 9.4 and 9.7)."""
    out = np.full(x.shape, np.nan)
    near = abs(x) <= _AIRY_NEAR
    out[near] = _airy_near(x[near])
    right = (x > _AIRY_NEAR) & np.isfinite(x)
    zeta = 2 / 3 * x[right] ** 1.5
    even, odd = _airy_sums(-zeta)
    out[right] = np.exp(-zeta) / (2 * math.sqrt(math.pi) * x[right] ** 0.25) * (even + odd)
    left = (x < -_AIRY_NEAR) & np.isfinite(x)
    size = -x[left]
    zeta = 2 / 3 * size**1.5
    even, odd = _airy_sums(zeta, turns=True)
    angle = zeta - math.pi / 4
    out[left] = (np.cos(angle) * even + np.sin(angle) * odd) / (
        math.sqrt(math.pi) * size**0.25)  # fmt: skip
    return out


def _airy_near(x: Reals) -> Reals:
    cube = x**3
    first, second = np.ones_like(x), x.copy()
    total = _AI_0 * first - _AI_1 * second
    for k in range(1, 60):
        first = first * cube / ((3 * k - 1) * (3 * k))
        second = second * cube / ((3 * k) * (3 * k + 1))
        total += _AI_0 * first - _AI_1 * second
    return total


def _airy_sums(zeta: Reals, turns: bool = False) -> tuple[Reals, Reals]:
    """The sums of even and of odd terms u / zeta^k; with alternating signs in each, if asked."""
    sums = [np.zeros_like(zeta), np.zeros_like(zeta)]
    u = 1.0
    for k in range(10):
        sums[k % 2] += u / zeta**k * ((-1) ** (k // 2) if turns else 1)
        u *= (6 * k + 5) * (6 * k + 3) * (6 * k + 1) / (216 * (k + 1) * (2 * k + 1))
    return sums[0], sums[1]


# Polynomials whose degree is in a tensor


class _Family(NamedTuple):
    """Polynomials: those of degree 0 are 1.

    Attributes:
        first: that of degree 1.
        after: of x, the degree k, and the polynomials of degrees k and k - 1: that of k + 1.
        most: the degree above which PyTorch has NaN; for float32, and for float64.
    """

    first: Callable[[Reals], Reals]
    after: Callable[[Reals, int, Reals, Reals], Reals]
    most: tuple[float, float] = (math.inf, math.inf)


_HERMITE_MOST: Final = (128.0, 512.0)
_MOST_DEGREE: Final = 1 << 20

_FAMILIES: Final = {
    "hermite_h": _Family(
        lambda x: 2 * x, lambda x, k, p, q: 2 * x * p - 2 * k * q, _HERMITE_MOST
    ),
    "hermite_he": _Family(lambda x: x, lambda x, k, p, q: x * p - k * q, _HERMITE_MOST),
    "laguerre_l": _Family(
        lambda x: 1 - x, lambda x, k, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    "legendre_p": _Family(
        lambda x: x, lambda x, k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
}


def _polynomial(family: _Family, is_wide: bool) -> Callable[[Reals, Reals], Reals]:
    def function(x: Reals, n: Reals) -> Reals:
        n = np.trunc(n)
        out = np.where(n == 0, 1.0, 0.0)  # 0 for degrees below 0
        out[~(n <= family.most[is_wide])] = np.nan
        most = n[np.isfinite(out)].max(initial=0)
        if most > _MOST_DEGREE:
            raise WrongValue(f"expected degrees of at most {_MOST_DEGREE}, got {most:g}")
        before, last = np.ones_like(x), family.first(x)
        for k in range(1, int(most) + 1):
            check_time()
            out = np.where(n == k, last, out)
            before, last = last, family.after(x, k, last, before)
        return out

    return function


# The kernel of elementwise functions


class _Function(NamedTuple):
    """A function of elements.

    Attributes:
        arity: number of operands.
        kinds: of the data types that it takes.
        compute: takes vectors of one length, and whether results are float64; floats are float64 if
            it is `is_wide`.
        is_wide: whether floats are computed in float64.
    """

    arity: int
    kinds: str
    compute: Callable[[Sequence[NDArray[Any]], bool], NDArray[Any]]
    is_wide: bool = True


def _of_floats(arity: int, function: Callable[..., Reals]) -> _Function:
    return _Function(arity, "f", lambda operands, _: function(*operands))


def _of_degree(family: _Family) -> _Function:
    return _Function(2, "f", lambda xs, is_wide: _polynomial(family, is_wide)(*xs))


_FUNCTIONS: Final = {
    "airy_ai": _of_floats(1, _airy_ai),
    "gcd": _Function(2, "iu", lambda xs, _: np.gcd(*xs), is_wide=False),
    "igamma": _of_floats(2, _igamma(is_upper=False)),
    "igammac": _of_floats(2, _igamma(is_upper=True)),
    "lcm": _Function(2, "iu", lambda xs, _: np.lcm(*xs), is_wide=False),
    "nextafter": _Function(2, "f", lambda xs, _: np.nextafter(*xs), is_wide=False),
    **{name: _of_degree(family) for name, family in _FAMILIES.items()},
}


@kernel("special")
def special(
    *operands: SameType, function: Annotated[str, a_choice(*_FUNCTIONS)], out: Out
) -> None:
    """out = a function of the elements of one or two tensors, which broadcast: "airy_ai", Airy's
    function Ai; "igamma" and "igammac", the lower and the upper incomplete gamma function of a and
    x, divided by the gamma function of a; "hermite_h", "hermite_he", "laguerre_l" and "legendre_p",
    polynomials of x and their degree; "nextafter", the next number towards another one; of
    integers "gcd" and "lcm", the greatest common divisor and the least common multiple.

    The result of all but the first is NaN where it is not defined.  Within 1e-6 of float64's
    result; incomplete gamma functions of a above a million within 1e-6 absolutely."""
    found = _FUNCTIONS[function]
    dtype = native(operands[0].dtype)
    if dtype.kind not in found.kinds:
        kind = "floats" if found.kinds == "f" else "integers"
        raise WrongType(f"{function}: expected {kind}, got {describe(operands[0])}")
    if len(operands) != found.arity:
        raise WrongValue(f"{function}: expected {found.arity} tensors, got {len(operands)}")
    dims = broadcast(**{f"operand {i}": x for i, x in enumerate(operands)})
    check_out(out, dtype, dims)
    given = [np.broadcast_to(copy_if_overlapping(x, out), dims) for x in operands]
    working = np.dtype(np.float64) if found.is_wide else dtype
    for written, *read in pieces(out, *given, most=_PART):
        vectors = [np.array(x, working).reshape(-1) for x in read]
        with np.errstate(all="ignore"):
            written[...] = found.compute(vectors, dtype == np.float64).reshape(written.shape)


@kernel("frexp")
def frexp(x: Floats, *outs: Out) -> None:
    """outs = mantissa and exponent (int32) of each element: x = mantissa * 2 ** exponent, with
    mantissas from 1/2 to 1."""
    mantissa, exponent = expected_outs(outs, 2)
    check_out(mantissa, native(x.dtype), x.shape)
    check_out(exponent, np.dtype(np.int32), x.shape)
    x = copy_if_overlapping(copy_if_overlapping(x, mantissa), exponent)
    working = working_dtype(native(x.dtype))
    for part, low, high in pieces(x, mantissa, exponent):
        low[...], high[...] = np.frexp(part.astype(working, copy=False))


@kernel("xor_sum")
def xor_sum(x: Tensor, axes: Axes, keepdims: Flag, out: Out) -> None:
    """out (uint64) = the exclusive or of elements along axes: of the bits of floats as float64, and
    of integers and bools as int64."""
    if x.dtype.hasobject or x.dtype.kind == "c":
        raise WrongType(f"x: expected numbers, got {describe(x)}")
    kept = tuple([1 if axis in axes else dim for axis, dim in enumerate(x.shape)])
    dims = tuple([dim for axis, dim in enumerate(x.shape) if axis not in axes])
    check_out(out, np.dtype(np.uint64), kept if keepdims else dims)
    wide = np.int64 if x.dtype.kind in "biu" else np.float64
    rows = np.moveaxis(copy_if_overlapping(x, out), axes, range(-len(axes), 0))
    written = out.reshape(dims)
    for index in np.ndindex(dims):
        check_time()
        total = np.uint64(0)
        for (part,) in pieces(flat(rows[index])):
            total ^= np.bitwise_xor.reduce(part.astype(wide).view(np.uint64))
        written[index] = total


_SEGMENT: Final = {
    "sum": (np.add, 0.0), "mean": (np.add, 0.0), "prod": (np.multiply, 1.0),
    "max": (np.maximum, -np.inf), "min": (np.minimum, np.inf),
}  # fmt: skip


@kernel("segment_reduce")
def segment_reduce(
    x: Floats,
    lengths: Integers,
    reduce: Annotated[str, a_choice(*_SEGMENT)],
    initial: Number | None,
    out: Out,
) -> None:
    """out = the "sum", "mean", "prod", "max" or "min" of each of several segments of x along the
    last axis of lengths, which has the number of elements of each.  x[..., n, *rest],
    lengths[..., segments], out[..., segments, *rest].  `initial`, which is among the elements of
    each segment, or the sum of none, is 0, 1 or an infinite number if it is not given; then the
    mean of no elements is NaN.  Computed in float64."""
    axis = lengths.ndim - 1
    if axis < 0 or x.ndim <= axis or x.shape[:axis] != lengths.shape[:axis]:
        raise WrongValue(
            f"lengths: expected the shape of x up to the axis of segments, got {describe(lengths)} "
            f"and x {describe(x)}"
        )
    check_out(out, native(x.dtype), (*lengths.shape, *x.shape[axis + 1 :]))
    x, counts = copy_if_overlapping(x, out), lengths.astype(np.int64)
    function, neutral = _SEGMENT[reduce]
    start = neutral if initial is None else float(initial)
    for outer in np.ndindex(counts.shape[:-1]):
        ends = np.cumsum(counts[outer])
        if (counts[outer] < 0).any() or (len(ends) and ends[-1] > x.shape[axis]):
            raise WrongValue(
                f"lengths: expected sums of at most {x.shape[axis]} numbers of at least 0, got "
                f"{counts[outer].tolist()[:8]}"
            )
        for i, (end, count) in enumerate(zip(ends.tolist(), counts[outer].tolist(), strict=True)):
            check_time()
            part = x[(*outer, slice(end - count, end))].astype(np.float64)
            found = function(function.reduce(part, axis=0, initial=neutral), start)
            if reduce == "mean":
                found = found / count if count else (found if initial is not None else np.nan)
            out[(*outer, i)] = found


@kernel("nn.fractional_max_pool")
def fractional_max_pool(
    x: Floats,
    samples: Floats,
    size: Annotated[Dims, ints(least=1)],
    output_size: Annotated[Dims, ints(least=0)],
    *outs: Out,
) -> None:
    """outs = the greatest element of each window, and its place in the image (int64), counted row
    by row.  x[batch, channels, ...], samples[batch, channels, axes], outs[batch, channels,
    *output_size].  The windows of size `size` begin at about equal distances, which samples,
    numbers from 0 to 1, move; of 2-D images the first sample is that of the last axis."""
    out, places = expected_outs(outs, 2)
    axes = len(size)
    if x.ndim != axes + 2 or samples.shape != (*x.shape[:2], axes) or len(output_size) != axes:
        raise WrongValue(
            f"expected x[batch, channels, {axes} axes], samples[batch, channels, {axes}] and "
            f"{axes} lengths, got {describe(x)}, {describe(samples)} and {list(output_size)}"
        )
    if any(count + window - 1 > length for count, window, length in
           zip(output_size, size, x.shape[2:], strict=True)):  # fmt: skip
        raise WrongValue(
            f"output_size: expected windows {list(size)} in {describe(x)} that differ, got "
            f"{list(output_size)}"
        )
    dims = (*x.shape[:2], *output_size)
    check_out(out, native(x.dtype), dims)
    check_out(places, np.dtype(np.int64), dims)
    if not ((samples >= 0) & (samples <= 1)).all():
        raise WrongValue("samples: expected numbers from 0 to 1")
    working = working_dtype(native(x.dtype))
    x = copy_if_overlapping(copy_if_overlapping(x, out), places)
    samples = copy_if_overlapping(copy_if_overlapping(samples, out), places)
    of_axis = range(axes) if axes == 3 else range(axes)[::-1]
    for plane in np.ndindex(x.shape[:2]):
        image = np.array(x[plane], working)
        begins = [
            _begins(samples[(*plane, which)], length, count, window)
            for which, length, count, window in zip(
                of_axis, image.shape, output_size, size, strict=True)
        ]  # fmt: skip
        best: NDArray[Any] | None = None
        for tap in itertools.product(*map(range, size)):
            check_time()
            at = np.ix_(*[begin + i for begin, i in zip(begins, tap, strict=True)])
            value = image[at]
            place = np.zeros(value.shape, np.int64)
            for index, length in zip(at, image.shape, strict=True):
                place = place * length + index
            if best is None:
                best, where = value, place
                continue
            is_better = (value > best) | np.isnan(value)
            best, where = np.where(is_better, value, best), np.where(is_better, place, where)
        assert best is not None
        out[plane], places[plane] = best, where


def _begins(sample: Any, length: int, count: int, window: int) -> NDArray[np.int64]:
    """Where windows begin along an axis, in the arithmetic of PyTorch."""
    found = np.full(count, length - window, np.int64)
    if count > 1:
        kind = type(sample) if sample.dtype.itemsize >= 4 else np.float32
        step = kind(length - window) / kind(count - 1)
        moved = (np.arange(count - 1).astype(kind) + kind(sample)) * step
        found[:-1] = moved.astype(np.int64) - int(kind(sample) * step)
    return found
