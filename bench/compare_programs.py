"""Whole functions on relaxvm and on TVM: each compiles the same script, with the same C kernels.

    python bench/compare_programs.py [--repeats N] [--json FILE]

Each side runs in its own process; both alternate and the minimum time of each counts.  Results are
compared before times.  Needs the extra ``tvm`` and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import clean
import numpy as np

REQUIRED_RATIO = 5.0
"""The ratio that a function has to reach where dispatch dominates."""

V = 'R.Tensor((4,), "float32")'
TWICE = 'R.Tensor((n * 2, m), "float32")'
MORE = 'R.Tensor((n * 4 + 1, m), "float32")'
COUNTER = 'R.Tensor((), "int64")'


def dps(name: str, args: str, out: str = V) -> str:
    return f'R.call_dps_packed("bench.{name}", ({args},), out_ty={out})'


def function(name: str, params: str, ret: str, *body: str, private: bool = False) -> str:
    lines = "".join(f"        {line}\n" for line in body)
    head = "R.function(private=True)" if private else "R.function"
    return f"    @{head}\n    def {name}({params}) -> {ret}:\n{lines}\n"


def module(*functions: str) -> str:
    return "@I.ir_module(s_tir=True)\nclass Module:\n" + "".join(functions)


def chain(shape: str, length: int, *head: str) -> list[str]:
    """A dataflow block of alternating additions and multiplications."""
    lines, last = [*head, "with R.dataflow():"], "x"
    ty = f'R.Tensor({shape}, "float32")'
    for i in range(length):
        lines.append(f"    v{i} = " + dps("add" if i % 2 else "mul", f"{last}, x", ty))
        last = f"v{i}"
    lines.append("    out = " + dps("add", f"{last}, x", ty))
    return [*lines, "    R.output(out)", "return out"]


def branches(depth: int) -> list[str]:
    lines = []
    for i in range(depth):
        before = "x" if i == 0 else f"r{i - 1}"
        lines += ["if b:", f"    r{i} = {dps('add', f'{before}, x')}",
                  "else:", f"    r{i} = {dps('mul', f'{before}, x')}"]  # fmt: skip
    return [*lines, f"return r{depth - 1}"]


def layers(depth: int) -> list[str]:
    out = 'R.Tensor((64, 64), "float32")'
    names = ["x", *[f"h{i}" for i in range(depth)]]
    return [f"h{i} = {dps('matmul', f'{names[i]}, w', out)}" for i in range(depth)]


FLAG = 'R.Tensor((), "bool")'
NEXT = [f"flag = {dps('less', 'i, n', FLAG)}", "if flag:", f"    j = {dps('next', 'i', COUNTER)}"]

PROGRAMS: dict[str, tuple[str, str, bool]] = {
    "one operator": (module(function("main", f"x: {V}", V, *chain("(4,)", 0))), "x", True),
    "chain of 16": (module(function("main", f"x: {V}", V, *chain("(4,)", 15))), "x", True),
    "chain of 16, dynamic": (
        module(
            function(
                "main",
                'x: R.Tensor(("n", "m"), "float32")',
                'R.Tensor(("n", "m"), "float32")',
                *chain("(n, m)", 15, "n = T.int64()", "m = T.int64()"),
            )
        ),
        "m",
        True,
    ),
    "computed dimensions": (
        module(
            function(
                "main",
                'x: R.Tensor(("n", "m"), "float32")',
                'R.Tensor(("n * 2 * m",), "float32")',
                "n = T.int64()",
                "m = T.int64()",
                f"a = {dps('rows', 'x', TWICE)}",
                f"b = {dps('rows', 'a', MORE)}",
                f"c = {dps('rows', 'b', TWICE)}",
                f"d = {dps('add', 'a, c', TWICE)}",
                "e = R.reshape(d, R.shape([n * 2 * m]))",
                "return e",
            )
        ),
        "m",
        True,
    ),
    "8 branches": (
        module(function("main", f'x: {V}, b: R.Tensor((), "bool")', V, *branches(8))), "x b", True,
    ),
    "recursion, 100 deep": (
        module(
            function(
                "main", f"x: {V}, i: {COUNTER}, n: {COUNTER}", V, "cls = Module", *NEXT,
                "    s = cls.main(x, j, n)", f"    r = {dps('add', 's, x')}",
                "else:", "    r = x", "return r",
            )
        ),
        "x i n", True,
    ),
    "loop of 100": (
        module(
            function(
                "main", f"x: {V}, i: {COUNTER}, n: {COUNTER}", V, "cls = Module", *NEXT,
                f"    y = {dps('add', 'x, x')}", "    r = cls.main(y, j, n)",
                "else:", "    r = x", "return r",
            )
        ),
        "x i n", True,
    ),
    "closures": (
        module(
            function(
                "main", f"x: {V}, y: {V}", V,
                "@R.function",
                f"def inner(z: {V}) -> {V}:",
                f"    w = {dps('add', 'z, y')}",
                "    return w",
                *[f"c{i} = inner({'x' if i == 0 else f'c{i - 1}'})" for i in range(16)],
                "return c15",
            )
        ),
        "x x", True,
    ),
    "calls and tuples": (
        module(
            function("pair", f"a: {V}, b: {V}", f"R.Tuple({V}, {V})", f"s = {dps('add', 'a, b')}",
                     "t = (s, a)", "return t", private=True),
            function(
                "main", f"x: {V}", V, "cls = Module", "p0 = cls.pair(x, x)",
                *[line for i in range(1, 16) for line in
                  (f"q{i} = p{i - 1}[0]", f"s{i} = p{i - 1}[1]", f"p{i} = cls.pair(q{i}, s{i})")],
                "out = p15[0]", "return out",
            ),
        ),
        "x", True,
    ),
    "layers of 64 by 64": (
        module(
            function(
                "main", 'x: R.Tensor((64, 64), "float32"), w: R.Tensor((64, 64), "float32")',
                'R.Tensor((64, 64), "float32")',
                *layers(4),
                "return h3",
            )
        ),
        "w w", False,
    ),
}  # fmt: skip
"""Name -> script, kinds of the arguments, whether dispatch dominates."""

KERNELS = ("add", "mul", "less", "next", "rows", "matmul")


def arguments(kinds: str) -> list[np.ndarray]:
    made = {
        "x": lambda: np.array([1, 2, 0.5, -1], np.float32),
        "m": lambda: np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
        "b": lambda: np.array(True),
        "i": lambda: np.array(0, np.int64),
        "n": lambda: np.array(100, np.int64),
        "w": lambda: np.linspace(-0.1, 0.1, 4096, dtype=np.float32).reshape(64, 64),
    }
    return [made[kind]() for kind in kinds.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="processes of each side")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--child", nargs=2, metavar=("SIDE", "LIBRARY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, library = options.child
        print(json.dumps(run_relaxvm(library) if side == "relaxvm" else run_tvm(library)))
        return 0

    from relaxvm.native import toolchain

    source = (Path(__file__).parent / "programs.c").read_text(encoding="utf-8")
    library = str(toolchain.compile_c(source, name="programs"))
    best: dict[str, dict[str, float]] = {"relaxvm": {}, "TVM": {}}
    results: dict[str, dict[str, Any]] = {}
    for _ in range(options.repeats):
        for side in best:
            for name, (seconds, result) in once(side, library).items():
                best[side][name] = min(best[side].get(name, math.inf), seconds)
                results.setdefault(name, {})[side] = result
    rows = []
    missed = 0
    print(f"{'function':24}{'relaxvm':>12}{'TVM':>12}{'TVM / relaxvm':>16}")
    for name, (_, _, dispatch_bound) in PROGRAMS.items():
        assert results[name]["relaxvm"] == results[name]["TVM"], f"{name}: results differ"
        ours, theirs = best["relaxvm"][name], best["TVM"][name]
        required = REQUIRED_RATIO if dispatch_bound else 1.0
        missed += theirs / ours < required
        mark = "" if theirs / ours >= required else f"   below {required:g}"
        rows.append({"name": name, "relaxvm": ours, "TVM": theirs, "required_ratio": required})
        print(f"{name:24}{ours * 1e6:9.2f} us{theirs * 1e6:9.2f} us{theirs / ours:16.1f}{mark}")
    mean = math.exp(sum(math.log(row["TVM"] / row["relaxvm"]) for row in rows) / len(rows))
    print(f"geometric mean: {mean:.1f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return int(missed > 0)


def once(side: str, library: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--child", side, library], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def best_time(call: Any) -> float:
    """Return the seconds per call, the minimum of several runs."""
    number, best = 1, math.inf
    while True:
        start = time.perf_counter()
        for _ in range(number):
            call()
        seconds = time.perf_counter() - start
        if seconds > 0.01:
            break
        number *= 4
    for _ in range(15):
        start = time.perf_counter()
        for _ in range(number):
            call()
        best = min(best, (time.perf_counter() - start) / number)
    return best


def run_relaxvm(library: str) -> dict[str, Any]:
    import relaxvm
    from relaxvm.script import from_source

    kernels = {f"bench.{name}": f for name, f in relaxvm.load_kernels(library).items()}
    found = {}
    for name, (text, kinds, _) in PROGRAMS.items():
        vm = relaxvm.VirtualMachine(relaxvm.build(from_source(text)), functions=kernels)
        run, args = vm["main"], arguments(kinds)
        result = run(*args)
        found[name] = best_time(lambda run=run, args=args: run(*args)), result.tolist()
    return found


def run_tvm(library: str) -> dict[str, Any]:
    import tvm
    import tvm_ffi
    from tvm import relax
    from tvm.script import from_source

    kernels = tvm_ffi.load_module(library)
    for name in KERNELS:
        tvm.register_global_func(f"bench.{name}", kernels[name])
    found = {}
    for name, (text, kinds, _) in PROGRAMS.items():
        module = relax.transform.LambdaLift()(from_source(text))
        vm = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
        run = vm["main"]
        args = [tvm.runtime.tensor(array) for array in arguments(kinds)]
        result = run(*args)
        found[name] = best_time(lambda run=run, args=args: run(*args)), result.numpy().tolist()
    return found


if __name__ == "__main__":
    if "--child" not in sys.argv:
        clean.restart()
    sys.exit(main())
