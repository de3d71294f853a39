"""Programs as bytecode and as native code: the same functions, in one process, alternating.

    python bench/compare_exec_modes.py [--only TEXT] [--models] [--repeats N] [--json FILE]
    python bench/compare_exec_modes.py --break-even [--only TEXT]

*Scalars*, *objects* and *chains* are functions without large kernels.  *Programs* are those of
``compare_programs.py``, with kernels in C.  With ``--models`` the models of
``compare_tvm_models.py`` follow, which need the extra ``tvm``.  Results are compared before times;
the minimum time of each side counts.  Needs a C compiler.

With ``--break-even`` the table has the processor time that the generator and the C compiler take
for each program, in an empty cache, and after how many calls native code has saved that time.

The exit status is 1 if a ratio is below the required one: 2 for functions without large kernels,
else `LEVEL`.  Where no function gains by native code, both sides run the same bytecode; such rows
are marked, and their ratio shows how much two runs differ.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clean
import compare_programs
import numpy as np

import relaxvm
from relaxvm.executable import VMExecutable
from relaxvm.script import from_source

REQUIRED_RATIO = 2.0
"""The required ratio for functions without large kernels."""
LEVEL = 0.95
"""The required ratio of all others: at least level, but for what differs between two runs."""

HEADER = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module(s_tir=True)
class Module:
"""

INT = 'R.Prim("int64")'
EIGHT = 'R.Tensor((8,), "float32")'


def chain(length: int) -> str:
    lines = [f"        v{i} = R.add({f'v{i - 1}' if i else 'x'}, x)\n" for i in range(length)]
    return f"""
    @R.function
    def main(x: {EIGHT}) -> {EIGHT}:
{"".join(lines)}        return v{length - 1}
"""


SMALL: dict[str, tuple[str, Callable[[], tuple[Any, ...]]]] = {
    "loop of 1000 on scalars": (
        f"""
    @R.function
    def main(i: {INT}, a: {INT}) -> {INT}:
        if i > 0:
            r: {INT} = Module.main(i - 1, a + i * i)
        else:
            r: {INT} = a
        return r
""",
        lambda: (1000, 0),
    ),
    "recursion on scalars": (
        f"""
    @R.function
    def main(n: {INT}) -> {INT}:
        if n < 2:
            r: {INT} = n
        else:
            a: {INT} = Module.main(n - 1)
            b: {INT} = Module.main(n - 2)
            r: {INT} = a + b
        return r
""",
        lambda: (15,),
    ),
    "loop of 1000 on tuples": (
        f"""
    @R.function
    def main(i: {INT}, x: R.Any, y: R.Any) -> R.Any:
        if i > 0:
            t = (y, x)
            u = (t, i)
            v = u[0]
            r = Module.main(i - 1, v[0], v[1])
        else:
            r = (x, y)
        return r
""",
        lambda: (1000, "a", "b"),
    ),
    "loop of 1000 on closures": (
        f"""
    @R.function
    def main(i: {INT}, x: R.Any) -> R.Any:
        if i > 0:
            @R.function
            def inner(y: R.Any) -> R.Any:
                return x
            y = inner(x)
            r = Module.main(i - 1, y)
        else:
            r = x
        return r
""",
        lambda: (1000, "a"),
    ),
    "chain of 20 adds of 8": (chain(20), lambda: (np.linspace(-1, 1, 8, dtype=np.float32),)),
}  # fmt: skip
"""Name -> functions, and arguments of main."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="functions whose name contains this text")
    parser.add_argument("--models", action="store_true", help="also models compiled by TVM")
    parser.add_argument("--repeats", type=int, default=60, help="timings of each side")
    parser.add_argument(
        "--break-even", action="store_true", help="after how many calls compiling has paid off"
    )
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    rows = []
    print(clean.machine())
    last = f"{'compiling':>14}{'calls':>12}" if options.break_even else f"{'ratio':>9}"
    print(f"{'function':34}{'bytecode':>12}{'native':>12}{last}")
    for name, executable, functions, entry, args, required in cases(options.models):
        if options.only not in name:
            continue
        compiled = executable.with_section("exec_mode", "compiled")
        one = relaxvm.VirtualMachine(executable, functions=functions)
        other, seconds = made_natively(compiled, functions, afresh=options.break_even)
        code = other.native_code
        assert code is not None
        assert code.problem is None, code.problem
        runs = [one[entry], other[entry]]
        np.testing.assert_equal(runs[1](*args), runs[0](*args))
        ours, theirs = alternate(runs, args, options.repeats)
        if options.break_even:
            if ours > theirs and code.functions:
                print(f"{name:34}{ours * 1e6:9.2f} us{theirs * 1e6:9.2f} us{seconds * 1e3:11.0f} ms"
                      f"{seconds / (ours - theirs):12,.0f}", flush=True)  # fmt: skip
            continue
        ratio = ours / theirs
        if not code.functions and required == LEVEL:
            required = 0.0
        mark = "" if ratio >= required else f"   below {required:g}"
        mark += "" if code.functions else "   bytecode on both sides"
        rows.append({"name": name, "bytecode": ours, "native": theirs, "required": required})
        print(f"{name:34}{ours * 1e6:9.2f} us{theirs * 1e6:9.2f} us{ratio:9.2f}{mark}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any(row["bytecode"] / row["native"] < row["required"] for row in rows))


def made_natively(
    executable: VMExecutable, functions: Any, *, afresh: bool
) -> tuple[relaxvm.VirtualMachine, float]:
    """A machine with native code, and the processor time that it took to make it.

    Args:
        afresh: whether to compile what is in the cache.
    """
    with tempfile.TemporaryDirectory() as cache, cache_of(afresh, cache):
        before = os.times()
        vm = relaxvm.VirtualMachine(executable, functions=functions)
        return vm, sum(os.times()[:4]) - sum(before[:4])


@contextlib.contextmanager
def cache_of(afresh: bool, cache: str) -> Iterator[None]:
    """Use an empty cache of compiled libraries, if `afresh`."""
    given = os.environ.get("RELAXVM_CACHE_DIR")
    if afresh:
        os.environ["RELAXVM_CACHE_DIR"] = cache
    try:
        yield
    finally:
        if given is None:
            os.environ.pop("RELAXVM_CACHE_DIR", None)
        else:
            os.environ["RELAXVM_CACHE_DIR"] = given


Case = tuple[str, VMExecutable, Any, str, tuple[Any, ...], float]
"""Name, program, its packed functions, entry, arguments, required ratio."""


def cases(with_models: bool) -> Iterator[Case]:
    from relaxvm.native import toolchain

    for name, (text, make) in SMALL.items():
        executable = relaxvm.build(from_source(HEADER + text))
        yield name, executable, None, "main", make(), REQUIRED_RATIO
    source = (Path(__file__).parent / "programs.c").read_text(encoding="utf-8")
    library = toolchain.compile_c(source, name="programs")
    kernels = {f"bench.{name}": f for name, f in relaxvm.load_kernels(library).items()}
    for name, (text, kinds, _) in compare_programs.PROGRAMS.items():
        args = tuple(compare_programs.arguments(kinds))
        yield name, relaxvm.build(from_source(text)), kernels, "main", args, LEVEL
    if with_models:
        yield from models()


def models() -> Iterator[Case]:
    import pickle

    import compare_tvm_models

    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name in compare_tvm_models.child("export", folder, ""):
            executable = relaxvm.load_library(folder / f"{name}.so")
            calls = pickle.loads((folder / f"{name}.calls").read_bytes())
            function, args = calls[0][0]
            args = tuple(relaxvm.Shape(a) if isinstance(a, list) else a for a in args)
            yield name, executable, None, function, args, LEVEL


def alternate(
    runs: list[Callable[..., Any]], args: tuple[Any, ...], repeats: int
) -> tuple[float, float]:
    """Return the seconds per call of two functions, the minimum of alternating timings."""
    numbers = [calls_in(run, args, 0.002) for run in runs]
    best = [math.inf, math.inf]
    for _ in range(repeats):
        for side, run in enumerate(runs):
            start = time.perf_counter()
            for _ in range(numbers[side]):
                run(*args)
            best[side] = min(best[side], (time.perf_counter() - start) / numbers[side])
    return best[0], best[1]


def calls_in(run: Callable[..., Any], args: tuple[Any, ...], seconds: float) -> int:
    """Return a number of calls that take at least so long."""
    number = 1
    while True:
        start = time.perf_counter()
        for _ in range(number):
            run(*args)
        if time.perf_counter() - start > seconds:
            return number
        number *= 2


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
