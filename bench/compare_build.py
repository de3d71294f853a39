"""Compile time of relaxvm and TVM: building a module, passes and code, printing, parsing, kernels.

    python bench/compare_build.py [--sizes N ...] [--prim-funcs N ...] [--repeats N] [--json FILE]

One module is a chain of R.call_dps_packed bindings, with static or symbolic shapes.  Another has
PrimFuncs, which both sides compile: with an empty cache, again, and again after a change to one of
them.  Every measurement runs in its own process; both sides alternate and the minimum time of each
counts.  Needs the extra ``tvm``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import clean

SIDES = ("relaxvm", "TVM")
STEPS = ("build module", "passes and code", "print", "parse")
FROM_SCRIPT = ("script to VM", "processor time", "again", "one changed")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000, 10000])
    parser.add_argument("--prim-funcs", type=int, nargs="*", default=[1, 10, 100], metavar="N")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument(
        "--child", nargs=3, metavar=("SIDE", "KIND", "SIZE"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.child:
        side, kind, size = options.child
        print(json.dumps(measured(side, kind, int(size))))
        return 0

    rows: list[dict[str, Any]] = []
    cases = [(kind, size) for kind in ("static", "dynamic") for size in options.sizes]
    print(f"{'module':24}{'step':18}{'relaxvm':>12}{'TVM':>12}{'TVM / relaxvm':>15}   per binding")
    for kind, size in [*cases, *(("PrimFuncs", size) for size in options.prim_funcs)]:
        best: dict[str, dict[str, float]] = {side: {} for side in SIDES}
        for _ in range(options.repeats):
            for side in SIDES:
                for step, seconds in once(side, kind, size).items():
                    known = best[side].get(step, float("inf"))
                    best[side][step] = min(known, seconds)
        for step in best["relaxvm"]:
            ours, theirs = (best[side][step] for side in SIDES)
            rows.append({"kind": kind, "size": size, "step": step, "relaxvm": ours, "TVM": theirs})
            print(
                f"{kind + ', ' + str(size):24}{step:18}{ours * 1e3:9.1f} ms{theirs * 1e3:9.1f} ms"
                f"{theirs / ours:15.2f}   {ours / size * 1e6:.0f} us, {theirs / size * 1e6:.0f} us"
            )
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


def once(side: str, kind: str, size: int) -> dict[str, float]:
    """Return the seconds of each step, in a new process with an empty cache of kernels."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, __file__, "--child", side, kind, str(size)],
            capture_output=True, text=True, env={**os.environ, "RELAXVM_CACHE_DIR": cache},
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{side}, {kind}, {size} failed:\n{done.stderr[-3000:]}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def measured(side: str, kind: str, size: int) -> dict[str, float]:
    if kind == "PrimFuncs":
        return with_prim_funcs(side, size)
    return (of_relaxvm if side == "relaxvm" else of_tvm)(kind == "dynamic", size)


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def of_relaxvm(dynamic: bool, size: int) -> dict[str, float]:
    import relaxvm as rx
    from relaxvm import script

    def make(size: int) -> Any:
        n = rx.Var("n", "int64") if dynamic else 8
        x = rx.Var("x", rx.TensorType((n, 4), "float32"))
        builder = rx.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = x
                for _ in range(size):
                    out = rx.TensorType((n, 4), "float32")
                    y = builder.emit(rx.call_dps_packed("test.f", (y, x), out_ty=out))
                y = builder.emit_output(y)
            builder.emit_func_output(y)
        return builder.get()

    rx.build(make(2))  # imports are measured elsewhere
    script.from_source(make(2).script())
    construction, module = timed(lambda: make(size))
    compilation, executable = timed(lambda: rx.build(module))
    assert len(executable) > 3 * size
    printing, text = timed(module.script)
    parsing, again = timed(lambda: script.from_source(text))
    assert len(again.functions) == len(module.functions)
    return dict(zip(STEPS, (construction, compilation, printing, parsing), strict=True))


def of_tvm(dynamic: bool, size: int) -> dict[str, float]:
    import tvm
    from tvm import relax, tirx
    from tvm.script import from_source

    def make(size: int) -> Any:
        n = tirx.Var("n", "int64") if dynamic else 8
        x = relax.Var("x", relax.TensorType((n, 4), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                y = x
                for _ in range(size):
                    out = relax.TensorType((n, 4), "float32")
                    y = builder.emit(relax.call_dps_packed("test.f", (y, x), out_ty=out))
                y = builder.emit_output(y)
            builder.emit_func_output(y)
        return builder.get()

    target = tvm.target.Target("llvm")

    def compile_passes(module: Any) -> Any:
        """Run TVM's passes and code generation of bytecode, without LLVM."""
        with target:
            module = relax.get_pipeline("default")(module)
        builder = relax.ExecBuilder()
        relax.vm_build._vmcodegen(builder, module, "bytecode")
        return builder.get()

    compile_passes(make(2))
    construction, module = timed(lambda: make(size))
    compilation, _ = timed(lambda: compile_passes(module))
    printing, text = timed(module.script)
    parsing, _ = timed(lambda: from_source(text))
    return dict(zip(STEPS, (construction, compilation, printing, parsing), strict=True))


PRIM_FUNC = """
    @T.prim_func(private=True, s_tir=True)
    def kernel{i}(x: T.Buffer((128, 128), "float32"), y: T.Buffer((128, 128), "float32")):
        for i, j in T.grid(128, 128):
            with T.sblock("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = x[vi, vj] * T.float32({factor}) + T.exp(x[vj, vi])
"""
TINY = """
@I.ir_module(s_tir=True)
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((1,), "float32"), y: T.Buffer((1,), "float32")):
        y[0] = x[0]

    @R.function
    def main(x: R.Tensor((1,), "float32")):
        cls = Module
        y = R.call_tir(cls.kernel, (x,), out_ty=R.Tensor((1,), "float32"))
        return y
"""
CALL = (
    '        x{i} = R.call_tir(cls.kernel{i}, (x{last},), out_ty=R.Tensor((128, 128), "float32"))\n'
)


def module_of(size: int, factor: float = 1.5) -> str:
    """Return the script of a module with `size` PrimFuncs; the first one multiplies by `factor`."""
    text = "@I.ir_module(s_tir=True)\nclass Module:"
    factors = [factor, *(i + 0.5 for i in range(2, size + 1))]
    text += "".join(PRIM_FUNC.format(i=i, factor=x) for i, x in enumerate(factors, 1))
    text += '\n    @R.function\n    def main(x0: R.Tensor((128, 128), "float32")):\n'
    text += "        cls = Module\n"
    text += "".join(CALL.format(i=i + 1, last=i) for i in range(size))
    return f"{text}        return x{size}\n"


def with_prim_funcs(side: str, size: int) -> dict[str, float]:
    """Return the seconds from script to a loaded executable."""
    load = (loaded_by_relaxvm if side == "relaxvm" else loaded_by_tvm)()
    load(TINY)  # imports are measured elsewhere
    before = processor_time()
    new, _ = timed(lambda: load(module_of(size)))
    spent = processor_time() - before
    again, _ = timed(lambda: load(module_of(size)))
    changed, _ = timed(lambda: load(module_of(size, 0.25)))
    return dict(zip(FROM_SCRIPT, (new, spent, again, changed), strict=True))


def processor_time() -> float:
    """Return the processor time of this process and its children, in seconds."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def loaded_by_relaxvm() -> Callable[[str], Any]:
    import relaxvm as rx
    from relaxvm.script import from_source

    return lambda text: rx.VirtualMachine(rx.build(from_source(text)))


def loaded_by_tvm() -> Callable[[str], Any]:
    import tvm
    from tvm import relax
    from tvm.script import from_source

    return lambda text: relax.VirtualMachine(tvm.compile(from_source(text), "llvm"), tvm.cpu())


if __name__ == "__main__":
    if "--child" not in sys.argv:
        clean.restart()
    sys.exit(main())
