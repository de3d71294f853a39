"""The methods of kernels that are compiled for sets of instructions, and whether tests run them.

``python -m tests.kernel_methods`` calls each method of each set that this processor has, by itself,
with the arguments of `tests.test_hostile_kernels`, and prints those that took none of them: the
list must be empty.  With ``--all`` it prints how many calls each took.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from relaxvm.kernels import _table
from relaxvm.kernels.cpu import SETS, has_amx

from .test_hostile_kernels import MAKERS, Hostile, outcome
from .test_kernel_sets import reference

__all__: list[str] = []

_SEEDS: Final = 150


def methods() -> Iterator[tuple[str, str, str]]:
    """Set, method and kernel of each implementation that the processor has."""
    for which in SETS:
        for row in _table.rows(which):
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


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="print what was run, too")
    options = parser.parse_args()
    missing = 0
    for which, method, kernel in methods():
        if kernel not in MAKERS:
            taken = 0
        else:
            taken = calls_taken(which, method, kernel)
        missing += not taken
        if options.all or not taken:
            print(f"{which:8} {method:24} {kernel:28} {taken}", flush=True)
    print(f"{missing} methods that no test runs")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
