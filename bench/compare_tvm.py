"""Dispatch cost of relaxvm and of TVM's C++ VM, on the same executables, in one process.

    python bench/compare_tvm.py [--repeats N] [--only TEXT] [--json FILE]

Both VMs run every program alternately, and the minimum time of each counts.  Times vary from
machine to machine and from run to run; compare the ratios.  Results are compared before anything is
timed.  The exit status is 1 if a row misses its required ratio.  Needs the extra ``tvm``.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import clean
import numpy as np

from relaxvm.testing import dispatch_rows as rows
from relaxvm.testing.dispatch_rows import ENTRIES, PYTHON_FUNCTION, ROWS, Row

Timed = Callable[[], float]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60, help="times each side runs a row")
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()

    import tvm

    import relaxvm

    relaxvm.register_func(PYTHON_FUNCTION, rows.identity, override=True)
    tvm.register_global_func(PYTHON_FUNCTION, rows.identity, override=True)
    print(f"relaxvm {relaxvm.__version__}, TVM {tvm.__version__}, CPython "
          f"{platform.python_version()}, numpy {np.__version__}, {clean.machine()}")
    print("ns per instruction or call")
    print(f"{'':26}{'TVM':>10}{'relaxvm':>10}{'ratio':>8}{'required':>10}")

    table = []
    for row in ROWS:
        if options.only in row.name:
            sides = instruction_sides(row)
            table.append(report(row.name, row.required_ratio, *measure(*sides, options.repeats)))
    for count, required in ENTRIES.items():
        name = f"entry, {count} argument{'s' if count > 1 else ''}"
        if options.only in name:
            table.append(report(name, required, *measure(*entry_sides(count), options.repeats)))
    if not table:
        parser.error(f"no row is named like {options.only!r}")

    mean = math.exp(sum(math.log(line["ratio"]) for line in table) / len(table))
    missed = [line["name"] for line in table if line["ratio"] < line["required_ratio"]]
    print(f"geometric mean of {len(table)} ratios: {mean:.1f}")
    print("every row reaches its required ratio" if not missed else f"missed: {', '.join(missed)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": table, "geometric_mean": mean}, file, indent=1)
    return 1 if missed else 0


def report(name: str, required: float, theirs: float, ours: float) -> dict[str, Any]:
    """Print a row of the table and return it."""
    ratio = theirs / ours
    mark = "" if ratio >= required else "  <"
    print(f"{name:26}{theirs:10.2f}{ours:10.2f}{ratio:8.1f}{required:10.0f}{mark}", flush=True)
    return {
        "name": name, "tvm_ns": theirs, "relaxvm_ns": ours, "ratio": ratio,
        "required_ratio": required,
    }  # fmt: skip


def measure(theirs: Timed, ours: Timed, repeats: int) -> tuple[float, float]:
    """Return the minimum nanoseconds of both sides, which alternate."""
    best = [math.inf, math.inf]
    for _ in range(repeats):
        best = [min(best[0], theirs()), min(best[1], ours())]
    return best[0], best[1]


def instruction_sides(row: Row) -> tuple[Timed, Timed]:
    """Return timers of a row on TVM and on relaxvm, in nanoseconds per repetition."""
    import relaxvm

    executable = row.executable()
    here = relaxvm.VirtualMachine(executable, optimize=row.optimize)["main"]
    there = on_tvm(executable)["main"]
    args = tuple(map(to_tvm, row.args))
    result = there(*args)
    assert same(here(*row.args), result), f"{row.name}: results differ"
    return timed(there, args, row.count), timed(here, row.args, row.count)


def timed(call: Callable[..., Any], args: tuple[Any, ...], count: int) -> Timed:
    def once() -> float:
        start = time.perf_counter_ns()
        call(*args)
        return (time.perf_counter_ns() - start) / count

    return once


def entry_sides(count: int, calls: int = 2000) -> tuple[Timed, Timed]:
    """Return timers of an empty function of `count` arguments on TVM and on relaxvm, in nanoseconds
    per call, including a Python loop around the calls."""
    import relaxvm

    executable = rows.entry(count)
    names = ", ".join("x" * count)
    scope: dict[str, Any] = {}
    exec(f"def loop(f, x):\n    for _ in range({calls}):\n        f({names})\n", scope)
    loop = scope["loop"]
    here = relaxvm.VirtualMachine(executable)["main"]
    there = on_tvm(executable)["main"]
    x = to_tvm(rows.X)
    assert same(here(*[rows.X] * count), there(*[x] * count)), "entry: results differ"
    return timed(loop, (there, x), calls), timed(loop, (here, rows.X), calls)


def on_tvm(executable: Any) -> Any:
    import tvm
    from tvm import relax

    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    return relax.VirtualMachine(read(executable.to_bytes()), tvm.cpu())


def to_tvm(value: Any) -> Any:
    import tvm

    return tvm.runtime.tensor(value) if isinstance(value, np.ndarray) else value


def same(ours: Any, theirs: Any) -> bool:
    return np.array_equal(ours, theirs.numpy() if hasattr(theirs, "numpy") else theirs)


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
