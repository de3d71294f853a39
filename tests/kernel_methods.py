"""The methods of kernels that are compiled for sets of instructions, and those that move elements
without Python's lock on any set, and whether tests run them.

``python -m tests.kernel_methods`` calls each method of each set that this processor has, by itself,
with the arguments of `tests.test_hostile_kernels`, and prints those that took none of them: the
list must be empty.  With ``--all`` it prints how many calls each took.

``python -m tests.kernel_methods --guarded`` calls each with arguments that fit, each of them in
memory before or behind which no page may be read or written, on Linux.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxvm.kernels import _table
from relaxvm.kernels.cpu import SETS, has_amx

from .test_hostile_kernels import MAKERS, Hostile, outcome
from .test_kernel_sets import reference, rows_of

__all__: list[str] = []

_SEEDS: Final = 150


def methods() -> Iterator[tuple[str, str, str]]:
    """Set, method and kernel of each implementation that the processor has.  Those that need no set
    are among the best one's."""
    for which in SETS:
        for row in rows_of(which) if which == SETS[0] else _table.rows(which):
            if has_instructions_of(row[0]):
                yield which, row[0], row[1]


def has_instructions_of(method: str) -> bool:
    """Whether the processor has what some methods of a set need beyond it."""
    if ".amx_" in method:
        return has_amx()
    needed = {"vnni_": "avx512_vnni", "dot_": "avx512_bf16"}
    flags = [flag for part, flag in needed.items() if "." + part in method]
    return not flags or (
        sys.platform == "linux" and flags[0] in Path("/proc/cpuinfo").read_text("utf-8").split()
    )


def by_method(which: str, method: str) -> Any:
    """A kernel by one of its implementations alone."""

    def refuse(*args: Any) -> None:
        raise RuntimeError("refused")

    return _table.DispatchedKernel(refuse, (method,), None, which)


def calls_taken(which: str, method: str, kernel: str, seeds: int = _SEEDS) -> int:
    """How many calls a method takes, of arguments that fit and that do not.

    Raises:
        AssertionError: a result is another one than that of the reference.
    """
    run, wanted, taken = by_method(which, method), reference(kernel), 0
    for seed in range(seeds):
        args = Hostile(kernel, seed)
        got = outcome(run, args.copied())
        if got is None:
            continue
        taken += 1
        want = outcome(wanted, args.copied())
        assert want is not None, f"{method}, seed {seed}: the reference refuses it"
        np.testing.assert_allclose(
            got, want, rtol=1e-3, atol=1e-3, err_msg=f"{method}, {which}, seed {seed}"
        )
    return taken


class Fitting(Hostile):
    """Arguments that fit."""

    def change(self, i: int) -> None:
        """Leave them as they are."""


STRANGE: Final = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "denormal": 1e-41, "-0": -0.0}


def strange_numbers(which: str, method: str, kernel: str, value: float, seeds: int = 30) -> int:
    """How many calls a method takes whose first operand of floats has some of a strange number.

    Raises:
        AssertionError: a result is another one than that of the reference, or of another kind.
    """
    run, wanted, taken = by_method(which, method), reference(kernel), 0
    for seed in range(seeds):
        args, rng = Fitting(kernel, seed), np.random.default_rng(seed)
        floats = [x for x in args.args[:-1] if getattr(x, "dtype", None) == np.float32]
        for x in floats[:1]:
            x.flat[rng.integers(x.size, size=1 + x.size // 40)] = value
        got = outcome(run, args.copied())
        want = outcome(wanted, args.copied())
        if got is None or want is None:
            assert got is None, f"{method}, seed {seed}: the reference refuses it"
            continue
        taken += 1
        if method.endswith(".winograd"):
            # A transform of zeros and a NaN is one by multiplication, and none by leaving out.
            got = np.where(np.isfinite(want), got, want)
        np.testing.assert_allclose(
            got, want, rtol=1e-3, atol=1e-3, err_msg=f"{method}, {which}, {value}, seed {seed}"
        )
    return taken


def guarded(x: np.ndarray, at_end: bool, kept: list[mmap.mmap]) -> np.ndarray:
    """A copy between two pages that may not be read or written, beside one of them."""
    pages = -(-x.nbytes // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 2) * mmap.PAGESIZE)
    kept.append(memory)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in (base, base + (pages + 1) * mmap.PAGESIZE):
        assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(at), mmap.PAGESIZE, 0)
    start = mmap.PAGESIZE + (pages * mmap.PAGESIZE - x.nbytes if at_end else 0)
    copy = np.frombuffer(memory, x.dtype, x.size, start).reshape(x.shape)
    copy[...] = x
    return copy


def guarded_calls(which: str, method: str, kernel: str, seeds: int = 25) -> int:
    """How many calls a method takes of arguments beside pages that may not be touched.

    Raises:
        AssertionError: the result depends on where the arguments are.
    """
    run, taken = by_method(which, method), 0
    for seed in range(seeds):
        args = Fitting(kernel, seed)
        want = outcome(run, args.copied())
        for at_end in (False, True) if want is not None else ():
            kept: list[mmap.mmap] = []
            beside = [
                guarded(x, at_end, kept) if isinstance(x, np.ndarray) else x for x in args.copied()
            ]
            np.testing.assert_array_equal(outcome(run, beside), want)
            taken += 1
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print what was run, too")
    parser.add_argument("--guarded", action="store_true", help="beside pages without access")
    parser.add_argument("--set", choices=SETS, help="only this set")
    options = parser.parse_args()
    missing = 0
    count = guarded_calls if options.guarded else calls_taken
    for which, method, kernel in methods():
        if options.set not in (None, which):
            continue
        taken = count(which, method, kernel) if kernel in MAKERS else 0
        missing += not taken
        if options.all or not taken:
            print(f"{which:8} {method:24} {kernel:28} {taken}", flush=True)
    print(f"{missing} methods that no test runs")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
