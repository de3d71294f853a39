"""Random numbers.

A *generator* is a Mersenne Twister with a state of its own: a program makes it, and the functions
that take numbers from it move it on.  Generators of the same seed give the same numbers, those of
``numpy.random.RandomState``, in all versions of numpy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import PIECE, check_time
from .arguments import as_array, as_float, as_int, as_shape, as_str
from .registration import OWN_PREFIX, builtin
from .saved_fields import as_count, as_fields, as_tensor

if TYPE_CHECKING:
    from numpy.random import RandomState

__all__ = [
    "RandomGenerator",
    "random_generator",
    "random_multinomial",
    "random_normal",
    "random_uniform",
]

_STATE_BYTES: Final = 3000
"""About what a generator takes."""
_MOST_SEED: Final = 1 << 32
_KEY_WORDS: Final = 624
"""Of the state of a Mersenne Twister."""


class RandomGenerator:
    """A source of random numbers.

    Attributes:
        state: numpy's generator.
    """

    __slots__ = ("state",)

    def __init__(self, seed: int | None) -> None:
        from numpy.random import RandomState  # numpy imports it late, too

        self.state: RandomState = RandomState(seed)

    def saved_fields(self) -> tuple[Any, ...]:
        """See `relaxvm.vm.saved_runs.states`: the state that numpy documents."""
        found = self.state.get_state(legacy=False)
        assert isinstance(found, dict)
        inner = found["state"]
        return inner["key"], int(inner["pos"]), int(found["has_gauss"]), float(found["gauss"])

    def restore_fields(self, fields: tuple[Any, ...]) -> None:
        """See `relaxvm.vm.saved_runs.states`."""
        key, position, has_gauss, gauss = as_fields(fields, 4, "random generator")
        words = as_tensor(key, "random generator: key", (_KEY_WORDS,), np.uint32)
        at = as_count(position, "random generator: position", _KEY_WORDS)
        has = as_count(has_gauss, "random generator: has_gauss", 1)
        if type(gauss) is not float:
            raise ValueError("random generator: gauss: expected a float")
        RandomGenerator.__init__(self, 0)
        self.state.set_state(("MT19937", words.copy(), at, has, gauss))

    def __repr__(self) -> str:
        return "<RandomGenerator>"


def _as_generator(value: Any, subject: str) -> RandomState:
    if isinstance(value, RandomGenerator):
        return value.state
    raise TypeError(f"{subject}: expected a generator, got {describe(value)}")


def _new(shape: Any, dtype: Any, subject: str) -> NDArray[Any]:
    """A tensor of floats to fill."""
    dims = as_shape(shape, f"{subject}: shape")
    kind = as_dtype(as_str(dtype, f"{subject}: dtype"))
    if min(dims, default=0) < 0:
        raise ValueError(f"{subject}: shape: expected dimensions >= 0, got {dims}")
    if kind.kind != "f" and kind.name != "bfloat16":
        raise ValueError(f"{subject}: dtype: expected floats, got {kind.name}")
    return np.empty(dims, kind)


@builtin("random_generator", "seed: int|float = ...", result="object", prefix=OWN_PREFIX)
def random_generator(seed: Any = None) -> RandomGenerator:
    """Return a new generator.

    Args:
        seed: a number, of which the integer part modulo 2**32 counts; without it, or if it is NaN,
            the operating system gives one.

    Raises:
        TypeError: the seed is not a number.
        ValueError: it is infinite.
    """
    charge_objects(_STATE_BYTES)
    if seed is None:
        return RandomGenerator(None)
    number = as_float(seed, "random_generator: seed")
    if math.isnan(number):
        return RandomGenerator(None)
    if math.isinf(number):
        raise ValueError(f"random_generator: seed: expected a finite number, got {number}")
    exact = as_int(seed, "random_generator: seed") if isinstance(seed, int) else int(number)
    return RandomGenerator(exact % _MOST_SEED)


@builtin(
    "random_uniform",
    "generator: object, shape: shape|tuple, low: int|float, high: int|float, dtype: str",
    result="tensor",
    prefix=OWN_PREFIX,
)
def random_uniform(generator: Any, shape: Any, low: Any, high: Any, dtype: Any) -> NDArray[Any]:
    """Return numbers of the uniform distribution on [low, high), computed in float64.

    Raises:
        TypeError: not a generator, a shape, or numbers.
        ValueError: a dimension is negative, or the data type is not one of floats.
    """
    state = _as_generator(generator, "random_uniform")
    out = _new(shape, dtype, "random_uniform")
    first = as_float(low, "random_uniform: low")
    span = as_float(high, "random_uniform: high") - first
    flat = out.reshape(-1)
    for start in range(0, flat.size, PIECE):
        numbers = state.random_sample(min(PIECE, flat.size - start))
        numbers *= span
        numbers += first
        flat[start : start + PIECE] = numbers
        check_time()
    return out


@builtin(
    "random_normal",
    "generator: object, shape: shape|tuple, mean: int|float, scale: int|float, dtype: str",
    result="tensor",
    prefix=OWN_PREFIX,
)
def random_normal(generator: Any, shape: Any, mean: Any, scale: Any, dtype: Any) -> NDArray[Any]:
    """Return numbers of the normal distribution with a mean and a standard deviation, computed in
    float64.

    Raises:
        TypeError: not a generator, a shape, or numbers.
        ValueError: a dimension is negative, or the data type is not one of floats.
    """
    state = _as_generator(generator, "random_normal")
    out = _new(shape, dtype, "random_normal")
    center = as_float(mean, "random_normal: mean")
    deviation = as_float(scale, "random_normal: scale")
    flat = out.reshape(-1)
    for start in range(0, flat.size, PIECE):
        numbers = state.standard_normal(min(PIECE, flat.size - start))
        numbers *= deviation
        numbers += center
        flat[start : start + PIECE] = numbers
        check_time()
    return out


@builtin(
    "random_multinomial",
    "generator: object, logits: tensor, count: int, dtype: str",
    result="tensor",
    prefix=OWN_PREFIX,
)
def random_multinomial(generator: Any, logits: Any, count: Any, dtype: Any) -> NDArray[Any]:
    """Return indices of classes, each drawn with its probability.

    Args:
        logits: floats[batch, classes], the logarithms of the probabilities, plus any number for
            each row.
        count: how many to draw for each row.
        dtype: "int32" or "int64".

    Returns:
        dtype[batch, count].

    Raises:
        TypeError: not a generator, or not floats[batch, classes].
        ValueError: `count` is negative, there are no classes, the data type is another one, or a
            row has NaN, infinity, or nothing but negative infinity.
    """
    state = _as_generator(generator, "random_multinomial")
    rows = as_array(logits, "random_multinomial: logits")
    number = as_int(count, "random_multinomial: count")
    name = as_str(dtype, "random_multinomial: dtype")
    if rows.ndim != 2 or (rows.dtype.kind != "f" and rows.dtype.name != "bfloat16"):
        raise TypeError(
            f"random_multinomial: logits: expected floats[batch, classes], got {describe(rows)}"
        )
    if number < 0:
        raise ValueError(f"random_multinomial: count: expected 0 or more, got {number}")
    if name not in ("int32", "int64"):
        raise ValueError(f"random_multinomial: dtype: expected int32 or int64, got {name!r}")
    if not rows.shape[1]:
        raise ValueError(f"random_multinomial: logits: expected classes, got {describe(rows)}")
    out = np.empty((len(rows), number), as_dtype(name))
    limits = np.empty(rows.shape[1], np.float64)
    for row, result in zip(rows, out, strict=True):
        _accumulate(row, limits)
        check_time()
        for start in range(0, number, PIECE):
            at = state.random_sample(min(PIECE, number - start))
            at *= limits[-1]
            result[start : start + PIECE] = np.searchsorted(limits, at, side="right")
            check_time()
    return out


def _accumulate(row: NDArray[Any], out: NDArray[np.float64]) -> None:
    """out = sums of the exponentials of elements up to each one; the last is a class that can be
    drawn."""
    parts = range(0, row.size, PIECE)
    greatest = max(float(np.max(row[start : start + PIECE])) for start in parts)
    if not math.isfinite(greatest):
        raise ValueError(
            "random_multinomial: logits: expected a finite number as the greatest of each row, got "
            f"{greatest}"
        )
    total = 0.0
    for start in parts:
        part = out[start : start + PIECE]
        np.exp(row[start : start + PIECE].astype(np.float64) - greatest, out=part)
        np.cumsum(part, out=part)
        part += total
        total = float(part[-1])
        check_time()
