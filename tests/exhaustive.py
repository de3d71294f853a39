"""Functions of elements over all numbers of float32: the largest error of each, on each set.

``python -m tests.exhaustive`` goes through all 2 ** 32 patterns of bits, compares the results of
`nn.apply` with those of float64, and prints the largest error and where it is: in units in the last
place of the exact result, or relative to the operand, or to 2 ** -126 where that is more, for
functions that are products with it.  It takes some minutes for a function, and fails where an error
is beyond its bound.

``python -m tests.exhaustive --step 4099 tanh erf`` takes one pattern in 4,099, of some functions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxvm.kernels import _table
from relaxvm.kernels._kernel import record_of
from relaxvm.kernels.cpu import SETS

__all__: list[str] = []

_PATTERNS: Final = 1 << 32
_CHUNK: Final = 1 << 20
_SMALLEST: Final = 2.0**-149

Exact = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def _gelu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / 2 * (1 + _erf(x / np.sqrt(2)))


def _gelu_tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x * _sigmoid(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


def _erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Beyond 6 it is 1, and 2 / sqrt(pi) * x of small numbers, in float64 to a thousandth of a unit
    in the last place of float32: most patterns are one or the other."""
    record = record_of("relaxvm.kernel.erf")
    assert record is not None
    found = np.where(np.abs(x) > 6, np.sign(x), 2 / np.sqrt(np.pi) * x)
    between = (np.abs(x) >= 2.0**-20) & (np.abs(x) <= 6)
    part = x[between]
    exact = np.empty_like(part)
    record.run(part, exact)
    found[between] = exact
    return found


@dataclass(frozen=True)
class Bound:
    """How far results may be from the exact ones: so many units in the last place, or, for
    functions that are products with x, so many times x."""

    exact: Exact
    ulps: float | None = None
    of_x: float | None = None
    least: float = 0.0
    """Exact results below it may be 0."""


BOUNDS: Final[dict[str, Bound]] = {
    "relu": Bound(lambda x: np.maximum(x, 0), ulps=0),
    "exp": Bound(np.exp, ulps=2),
    "sigmoid": Bound(_sigmoid, ulps=3, least=2.0**-126),
    "tanh": Bound(np.tanh, ulps=7),
    "erf": Bound(_erf, ulps=7),
    "gelu": Bound(_gelu, of_x=3e-7),
    "gelu_tanh": Bound(_gelu_tanh, of_x=1e-6),
    "silu": Bound(lambda x: x * _sigmoid(x), of_x=1e-6),
    "hard_swish": Bound(lambda x: x * np.clip(x / 6 + 0.5, 0, 1), of_x=1e-6),
}
"""By function, with fused multiply-add; of sums and products that are rounded twice, twice as
much."""


def patterns(step: int) -> Iterator[NDArray[np.float32]]:
    """All numbers, or one in `step` of their patterns, in chunks."""
    for first in range(0, _PATTERNS, _CHUNK * step):
        last = min(first + _CHUNK * step, _PATTERNS)
        yield np.arange(first, last, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def apply_of(which: str) -> Any:
    """`nn.apply` of a set alone."""

    def refuse(*args: Any) -> None:
        raise RuntimeError("refused")

    names = tuple(row[0] for row in _table.rows(which) if row[1] == "nn.apply")
    return _table.DispatchedKernel(refuse, names, None, which)


def off_by(
    bound: Bound,
    x: NDArray[np.float32],
    got: NDArray[np.float32],
    want: NDArray[np.float64],
    rounded: NDArray[np.float32],
) -> tuple[float, float]:
    """The largest error, and the number that has it.  It is taken as 0 where the result is the
    exact one as it is rounded to float32, so that most results need no arithmetic."""
    others = np.flatnonzero(got.view(np.uint32) != rounded.view(np.uint32))
    if not len(others):
        return 0.0, 0.0
    found = errors(bound, x[others], got[others], want[others])
    at = int(found.argmax())
    return float(found[at]), float(x[others[at]])


def errors(
    bound: Bound, x: NDArray[np.float32], got: NDArray[np.float32], want: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The error of each result; infinite where it is of another kind than the exact one."""
    wide = got.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        if bound.ulps is None:
            unit = np.maximum(np.abs(x.astype(np.float64)), 2.0**-126)
        else:
            exponents = np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126)))
            unit = np.maximum(2.0 ** (exponents - 23), _SMALLEST)
        found = np.abs(wide - want) / unit
    same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
    small = (np.abs(want) < bound.least) & (got == 0)
    # An infinite result beside a finite one that rounds to the greatest number is off by one.
    near = np.isinf(got) ^ np.isinf(rounded)
    found = np.where(np.isfinite(found) & ~near, found, np.inf)
    edge = near & (np.abs(want) >= np.finfo(np.float32).max) & (np.abs(got) >= 3e38)
    found = np.where((same & ~np.isfinite(found)) | small, 0.0, found)
    return np.where(edge & ~same, 1.0, found)


def worst(name: str, which: tuple[str, ...], step: int) -> dict[str, tuple[float, float]]:
    """The largest error of a function on each set, and the number that has it."""
    bound = BOUNDS[name]
    runs = {each: apply_of(each) for each in which}
    found = dict.fromkeys(which, (0.0, 0.0))
    for x in patterns(step):
        with np.errstate(all="ignore"):
            want = bound.exact(x.astype(np.float64))
            rounded = want.astype(np.float32)
        for each, run in runs.items():
            got = np.empty_like(x)
            run(x, name, got)
            error, place = off_by(bound, x, got, want, rounded)
            if error > found[each][0]:
                found[each] = error, place
    return found


def limit(name: str, which: str) -> float:
    """The bound of a function on a set."""
    bound = BOUNDS[name]
    value = bound.of_x if bound.ulps is None else bound.ulps
    assert value is not None
    return value * (2 if which == "sse2" else 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("functions", nargs="*", metavar="FUNCTION")
    parser.add_argument("--step", type=int, default=1, help="take one pattern in so many")
    parser.add_argument("--set", action="append", metavar="SET", help="only this set")
    options = parser.parse_args()
    sets = tuple(options.set or SETS)
    failures = 0
    print(f"{'function':12} {'set':8} {'largest error':>14} {'bound':>8}  of", flush=True)
    for name in options.functions or BOUNDS:
        start = time.perf_counter()
        for which, (error, x) in worst(name, sets, options.step).items():
            bound, unit = limit(name, which), "ulp" if BOUNDS[name].ulps is not None else "of x"
            failures += error > bound
            print(f"{name:12} {which:8} {error:14.6g} {bound:8.3g}  {x!r} ({unit})"
                  f"{'' if error <= bound else '  TOO LARGE'}", flush=True)  # fmt: skip
        print(f"{'':12} {time.perf_counter() - start:.0f} s", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
