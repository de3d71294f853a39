"""Models compiled by TVM, on TVM's VM and on relaxvm: the same exported libraries and kernels.

    python bench/compare_tvm_models.py [--only TEXT] [--repeats N] [--starts N] [--json FILE]
                                       [--cpu-time]

*Time per call*: each side runs in its own process, with tensors of its own type that are made
beforehand; the sides alternate and the minimum time of each counts.  *Drop-in* is relaxvm's VM for
TVM's objects, with tensors of TVM in and out.  Results are compared before times.
*Kernels* is the time of the kernels of a call, without the cost of calling them; dispatch dominates
where they take less than a tenth of TVM's time.  *Start* is the time from the start of the process
to the first result, and *memory* the resident memory then, with a new process for every model and
repetition.  The last line compares an empty kernel of three tensors with a plain instruction.  With
``--cpu-time``, for a machine that is busy with other work, the time of a call is the processor time
of the calling thread, and starts are left out; kernels with parallel loops are then not measured
rightly.

The goals of the drop-in hold where TVM's own overhead is over half of its time.  The overhead is
the time of the same bytecode *with empty kernels*; in a program kernels take longer than in a row,
since others have used the caches.  Where the kernels alone take more time than the goal allows, it
is a goal for the time with empty kernels.  Programs that branch on the results of kernels cannot
run with empty ones; for these the time of kernels in a row counts, as TVM's library has loaded
them.

The exit status is 1 if a goal is missed.  Needs the extra ``tvm`` and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean
import numpy as np

DISPATCH = 0.1
"""Dispatch dominates where kernels take less than this fraction of TVM's time."""
REQUIRED_RATIO, REQUIRED_START, REQUIRED_NOOP = 5.0, 5.0, 4.0
"""Required ratios of TVM's time to relaxvm's: per call where dispatch dominates, from the start of
the process to the first result, and of a no-op kernel."""
MAX_NOOP = 10.0
"""Nanoseconds that a no-op kernel may take more than a plain instruction."""
UNROLLED = 200
REQUIRED_DROP_IN, REQUIRED_DROP_IN_CALLS, FEW_CALLS = 2.0, 3.0, 10
"""Required ratios of TVM's time per call to the drop-in's, where TVM's overhead is over half of its
time: with fewer kernel calls than `FEW_CALLS`, and with more."""
QUICK = 5e-6
"""Seconds below which a kernel is called `UNROLLED` times in a row."""

CPU_TIME = "RELAXVM_BENCH_CPU_TIME"
"""Environment variable for child processes: measure processor time."""

Row = dict[str, Any]

START = """
import pickle, sys, time
path, function = sys.argv[1:]
with open(path.removesuffix(".so") + ".calls", "rb") as file:
    args = pickle.load(file)[0][0][1]
{program}
seconds = time.monotonic()
with open("/proc/self/status") as file:
    memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
print(seconds, memory / 1024)
"""
STARTS = {
    "relaxvm": """
import relaxvm
def convert(value):
    return relaxvm.Shape(value) if isinstance(value, list) else value
vm = relaxvm.VirtualMachine(relaxvm.load_library(path))
result = vm[function](*map(convert, args))
""",
    "TVM": """
import numpy, tvm, tvm.relax, tvm_ffi
def convert(value):
    if isinstance(value, numpy.ndarray):
        return tvm.runtime.tensor(value)
    if isinstance(value, list):
        return tvm_ffi.Shape(value)
    return tvm_ffi.Array(map(convert, value)) if isinstance(value, tuple) else value
vm = tvm.relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
result = vm[function](*map(convert, args))
""",
}
"""Programs that load a model and compute its first result."""

SIDES = (*STARTS, "drop-in")

NOOP = """
#include <relaxvm/kernel.h>
RVM_KERNEL(noop) { return RVM_OK; }
RVM_KERNEL_NAMES("noop")
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name contains this text")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each side")
    parser.add_argument("--starts", type=int, default=3, help="starts of each side and model")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--cpu-time", action="store_true",
                        help="measure processor time, and no starts")  # fmt: skip
    parser.add_argument("--child", nargs=3, metavar=("PART", "FOLDER", "ONLY"),
                        help=argparse.SUPPRESS)  # fmt: skip
    options = parser.parse_args()
    if options.cpu_time:
        os.environ[CPU_TIME] = "1"  # for the processes that are started
        options.starts = 0
    if options.child:
        part, folder, only = options.child
        print(json.dumps(PARTS[part](Path(folder), only)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return compare(options, Path(folder))


def compare(options: argparse.Namespace, folder: Path) -> int:
    functions = child("export", folder, options.only)
    if not functions:
        raise SystemExit(f"no model is named like {options.only!r}")
    calls = minimum(
        options.repeats, {side: lambda side=side: child(side, folder) for side in SIDES}
    )
    kernels = child("kernels", folder)
    kernels_of_drop_in = child("kernels of drop-in", folder)
    empty = minimum(
        options.repeats,
        {side: lambda side=side: child(f"empty kernels on {side}", folder)
         for side in ("TVM", "drop-in")},
    )  # fmt: skip
    for name in functions:
        results = [(folder / f"{name}.{side}").read_bytes() for side in SIDES]
        assert results == results[:1] * len(SIDES), f"{name}: results differ"
    starts: dict[str, dict[str, tuple[float, float]]] = {side: {} for side in STARTS}
    for name, function in functions.items():
        for _ in range(options.starts):
            for side, found in starts.items():
                this = first_result(side, folder / f"{name}.so", function)
                found[name] = min(found.get(name, this), this)

    print(clean.machine())
    print(
        f"{'':20}{'------------------ time per call, us -------------------':>62}"
        f"{'--- overhead ---':>18}{'-- with empty kernels, us --':>31}"
        + (f"{'---- start, ms ----':>25}{'- memory, MiB -':>17}" if options.starts else "")
    )
    print(f"{'model':20}{'relaxvm':>11}{'TVM':>11}{'ratio':>8}{'drop-in':>11}{'ratio':>8}"
          f"{'kernels':>11}{'relaxvm':>11}{'TVM':>7}"
          f"{'TVM':>10}{'of it':>7}{'drop-in':>8}{'ratio':>6}"
          + (f"{'relaxvm':>11}{'TVM':>7}{'ratio':>7}{'relaxvm':>10}{'TVM':>7}"
             if options.starts else ""))  # fmt: skip
    table = []
    for name in functions:
        ours, theirs, inside = calls["relaxvm"][name], calls["TVM"][name], kernels[name]["seconds"]
        drop_in = calls["drop-in"][name]
        goal = REQUIRED_RATIO if inside < DISPATCH * theirs else 1.0
        few = kernels[name]["calls"] < FEW_CALLS
        goal_drop_in = REQUIRED_DROP_IN if few else REQUIRED_DROP_IN_CALLS
        inside_drop_in = kernels_of_drop_in[name]["seconds"]
        overheads = [empty[side].get(name) for side in ("TVM", "drop-in")]
        overhead = theirs - inside_drop_in if overheads[0] is None else overheads[0]
        if overhead < theirs / 2:
            goal_drop_in = 0.95
        both = (theirs, drop_in)
        if None not in overheads and goal_drop_in > 1 and theirs - overhead > theirs / goal_drop_in:
            both = overheads
        reached = both[0] / both[1] >= goal_drop_in
        row = {
            "name": name, "relaxvm": ours, "TVM": theirs, "ratio": theirs / ours,
            "required ratio": goal, "drop-in": drop_in, "drop-in ratio": theirs / drop_in,
            "required drop-in ratio": goal_drop_in, "drop-in goal is reached": reached,
            "kernels": inside,
            "drop-in kernels": inside_drop_in, "kernel calls": kernels[name]["calls"],
            "TVM overhead": overhead / theirs, "empty kernels": overheads,
        }  # fmt: skip
        begun = ""
        if options.starts:
            start, memory = starts["relaxvm"][name]
            their_start, their_memory = starts["TVM"][name]
            row |= {
                "start": start, "TVM start": their_start, "start ratio": their_start / start,
                "memory": memory, "TVM memory": their_memory,
            }  # fmt: skip
            begun = (f"{start * 1e3:11.0f}{their_start * 1e3:7.0f}{row['start ratio']:7.1f}"
                     f"{memory:10.0f}{their_memory:7.0f}")  # fmt: skip
        table.append(row)
        marks = f"   below {goal:g}" if row["ratio"] < goal else ""
        if not reached:
            marks += f"   drop-in below {goal_drop_in:g}"
        if row.get("start ratio", REQUIRED_START) < REQUIRED_START:
            marks += f"   start below {REQUIRED_START:g}"
        a, b = overheads
        alone = f"{'-':>10}{overhead / theirs:7.0%}{'-':>8}{'-':>6}"
        if a is not None and b is not None:
            alone = f"{a * 1e6:10.2f}{a / theirs:7.0%}{b * 1e6:8.2f}{a / b:6.1f}"
        print(f"{name:20}{ours * 1e6:11.2f}{theirs * 1e6:11.2f}{row['ratio']:8.2f}"
              f"{drop_in * 1e6:11.2f}{row['drop-in ratio']:8.2f}"
              f"{inside * 1e6:11.2f}{share(ours, inside):11.0%}{share(theirs, inside):7.0%}{alone}"
              f"{begun}{marks}")  # fmt: skip
    bound = [row for row in table if row["required ratio"] == REQUIRED_RATIO]
    for what, of in (("all", table), ("where dispatch dominates", bound)):
        if of:
            print(f"geometric mean of the ratios of time per call, {what}: "
                  f"{mean(of, 'ratio'):.1f}, drop-in {mean(of, 'drop-in ratio'):.1f}")  # fmt: skip
    if options.starts:
        print(f"geometric mean of the ratios of starts: {mean(table, 'start ratio'):.1f}")
    noop = child("noop", folder)
    print(f"an empty kernel of three tensors: {noop['relaxvm']:.1f} ns, on TVM "
          f"{noop['TVM']:.1f} ns, {noop['TVM'] / noop['relaxvm']:.1f} times as much; a plain "
          f"instruction of relaxvm: {noop['instruction']:.1f} ns")  # fmt: skip
    missed = [row["name"] for row in table
              if row["ratio"] < row["required ratio"]
              or row.get("start ratio", REQUIRED_START) < REQUIRED_START
              or not row["drop-in goal is reached"]]  # fmt: skip
    if noop["TVM"] / noop["relaxvm"] < REQUIRED_NOOP:
        missed.append("no-op kernel, compared with TVM")
    if noop["relaxvm"] - noop["instruction"] > MAX_NOOP:
        missed.append("no-op kernel, compared with an instruction")
    print("every goal is reached" if not missed else f"missed: {', '.join(missed)}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"models": table, "noop": noop}, file, indent=1)
    return int(bool(missed))


def share(total: float, kernels: float) -> float:
    """Return the fraction of the time that is not spent in kernels."""
    return max(0.0, 1 - kernels / total)


def mean(table: list[Row], key: str) -> float:
    return math.exp(sum(math.log(row[key]) for row in table) / len(table))


def minimum(repeats: int, sides: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    """Return the minimum time of each model on each side; the sides alternate."""
    best: dict[str, dict[str, float]] = {side: {} for side in sides}
    for _ in range(repeats):
        for side, once in sides.items():
            for name, seconds in once().items():
                best[side][name] = min(best[side].get(name, math.inf), seconds)
    return best


# Processes


def child(part: str, folder: Path, only: str = "") -> Any:
    """Run a part in another process and return its result."""
    return json.loads(output([__file__, "--child", part, str(folder), only]))


def first_result(side: str, path: Path, function: str) -> tuple[float, float]:
    """Return the seconds from the start of a process to the first result, and its resident MiB."""
    code = START.format(program=STARTS[side])
    begin = time.monotonic()
    end, memory = map(float, output(["-c", code, str(path), function]).split())
    return end - begin, memory


def output(arguments: list[str]) -> str:
    """Return the last line that a new Python process prints."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{arguments[1:]} failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return done.stdout.splitlines()[-1]


# Parts: each is called with the folder of the libraries


def export(folder: Path, only: str) -> dict[str, str]:
    """Compile the models and write their libraries; return the name of each model's function.

    Models that call Python functions are left out, because the time would be that of Python.
    """
    from tests import tvm_models

    chosen = [model for model in tvm_models.MODELS.values()
              if only in model.name and not model.packed]  # fmt: skip
    for model in chosen:
        tvm_models.export(model, folder)
    return {model.name: model.calls[0][0] for model in chosen}


def first_calls(folder: Path) -> list[tuple[Path, str, tuple[Any, ...]]]:
    """Return the library, function and arguments of each model."""
    return [
        (path, *pickle.loads(path.with_suffix(".calls").read_bytes())[0][0])
        for path in sorted(folder.glob("*.so"))
    ]


def run_relaxvm(folder: Path, only: str) -> dict[str, float]:
    import relaxvm
    from tests.tvm_free import from_relaxvm, to_relaxvm

    found = {}
    for path, name, args in first_calls(folder):
        function = relaxvm.VirtualMachine(relaxvm.load_library(path))[name]
        args = to_relaxvm(args)
        keep(path.with_suffix(".relaxvm"), from_relaxvm(function(*args)))
        found[path.stem] = best_time(lambda call=function, args=args: call(*args))
    return found


def run_tvm(folder: Path, only: str) -> dict[str, float]:
    from tvm.relax import VirtualMachine

    return run_with_tensors(folder, "TVM", VirtualMachine)


def run_drop_in(folder: Path, only: str) -> dict[str, float]:
    from relaxvm.contrib.tvm import VirtualMachine

    return run_with_tensors(folder, "drop-in", VirtualMachine)


def run_with_tensors(folder: Path, side: str, vm_class: Any) -> dict[str, float]:
    """Return the seconds per call of a VM that takes and returns tensors of TVM."""
    import tvm

    from tests.tvm_free import from_relaxvm, to_relaxvm
    from tests.tvm_side import from_tvm, to_tvm

    found = {}
    for path, name, args in first_calls(folder):
        function = vm_class(tvm.runtime.load_module(str(path)), tvm.cpu())[name]
        args = tuple(map(to_tvm, to_relaxvm(args)))
        keep(path.with_suffix(f".{side}"), from_relaxvm(from_tvm(function(*args))))
        found[path.stem] = best_time(lambda call=function, args=args: call(*args))
    return found


def keep(path: Path, result: Any) -> None:
    """Write a result to a file; equal results make equal files."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.dtype.str, value.shape, value.tobytes()
        return tuple(map(plain, value)) if isinstance(value, (tuple, list)) else value

    path.write_bytes(pickle.dumps(plain(result)))


def best_time(call: Callable[[], Any], duration: float = 0.01, runs: int = 15) -> float:
    """Return the seconds per call, the minimum of several runs of at least `duration` seconds."""
    clock = time.thread_time if CPU_TIME in os.environ else time.perf_counter
    number, best = 1, math.inf
    while True:
        start = clock()
        for _ in range(number):
            call()
        seconds = clock() - start
        if seconds > duration:
            break
        number *= 4
    for _ in range(runs):
        start = clock()
        for _ in range(number):
            call()
        best = min(best, (clock() - start) / number)
    return best


def time_kernels(folder: Path, only: str) -> dict[str, dict[str, float]]:
    import relaxvm

    return times_of_kernels(folder, relaxvm.load_library)


def time_drop_in_kernels(folder: Path, only: str) -> dict[str, dict[str, float]]:
    """Return the times of the kernels of libraries that TVM has loaded."""
    import tvm

    from relaxvm.contrib.tvm.drop_in import program_of

    return times_of_kernels(folder, lambda path: program_of(tvm.runtime.load_module(str(path))))


def empty_on_tvm(folder: Path, only: str) -> dict[str, float]:
    from tvm.relax import VirtualMachine

    return time_empty_kernels(folder, VirtualMachine)


def empty_on_drop_in(folder: Path, only: str) -> dict[str, float]:
    from relaxvm.contrib.tvm import VirtualMachine

    return time_empty_kernels(folder, VirtualMachine)


def time_empty_kernels(folder: Path, vm_class: Any) -> dict[str, float]:
    """Return the seconds per call of a VM that takes and returns tensors of TVM, where all kernels
    are replaced by one that does nothing; without programs that branch on results of kernels."""
    import tvm
    import tvm_ffi

    import relaxvm
    from relaxvm.isa import Opcode
    from relaxvm.native import toolchain
    from tests.tvm_free import to_relaxvm
    from tests.tvm_side import to_tvm

    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    found = {}
    for path, name, args in first_calls(folder):
        executable = relaxvm.load_library(path)
        names = sorted(k for k in executable.kernels if not k.startswith("shape_func"))
        if any(i.instruction.op.code == Opcode.IF for i in executable.instructions()):
            continue
        code = "".join(f"RVM_KERNEL({kernel}) {{ return RVM_OK; }}\n" for kernel in names)
        listed = ", ".join(f'"{kernel}"' for kernel in names)
        library = toolchain.compile_c(
            f"#include <relaxvm/kernel.h>\n{code}RVM_KERNEL_NAMES({listed})\n", name="empty"
        )
        module = read(executable.with_kernels({}).to_bytes())
        module.import_module(tvm_ffi.load_module(str(library)))
        module.import_module(tvm.runtime.load_module(str(path)))  # what computes shapes is there
        function = vm_class(module, tvm.cpu())[name]
        args = tuple(map(to_tvm, to_relaxvm(args)))
        function(*args)
        found[path.stem] = best_time(lambda call=function, args=args: call(*args))
    return found


def times_of_kernels(folder: Path, load: Callable[[Path], Any]) -> dict[str, dict[str, float]]:
    """Return the number of kernel calls of a call, and the seconds that they take, without the cost
    of calling them.

    Each kernel is called again with the same arguments, and so is an empty kernel; the difference
    is the time of the kernel.
    """
    import relaxvm
    from tests.tvm_free import to_relaxvm

    noop = relaxvm.load_kernels(noop_library())["noop"]
    found = {}
    for path, name, args in first_calls(folder):
        executable = load(path)
        vm = relaxvm.VirtualMachine(executable)
        counts: Counter[Any] = Counter()
        examples: dict[Any, tuple[Any, ...]] = {}

        def seen(func: Any, kernel: str, before: bool, ret: Any, *args: Any) -> int:
            if before and kernel in executable.kernels:  # noqa: B023  (called in this round)
                key = (kernel, *[(x.shape, x.dtype.str) if isinstance(x, np.ndarray) else x
                                 for x in args])  # fmt: skip
                counts[key] += 1  # noqa: B023
                examples.setdefault(key, tuple(map(aligned, args)))  # noqa: B023
            return 0

        vm.set_instrument(seen)
        vm[name](*to_relaxvm(args))
        seconds = sum(
            count * max(0.0, in_a_row(executable.kernels[key[0]], examples[key])
                        - in_a_row(noop, examples[key]))
            for key, count in counts.items()
        )  # fmt: skip
        found[path.stem] = {"seconds": seconds, "calls": counts.total()}
    return found


def aligned(value: Any) -> Any:
    """Return a copy of an array at an address aligned for any kernel; other values unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    buffer = np.empty(value.nbytes + 64, np.uint8)
    copy = np.ndarray(value.shape, value.dtype, buffer, -buffer.ctypes.data % 64)
    copy[...] = value
    return copy


def in_a_row(kernel: Any, args: tuple[Any, ...]) -> float:
    """Return the seconds per call of a kernel, called many times in a row unless it is slow."""
    import relaxvm

    for count in (1, UNROLLED):
        builder = relaxvm.ExecBuilder()
        with builder.function("main", num_inputs=len(args)):
            for _ in range(count):
                builder.emit_call("kernel", [builder.r(i) for i in range(len(args))])
            builder.emit_ret(builder.r(0))
        main = relaxvm.VirtualMachine(builder.get(), functions={"kernel": kernel})["main"]
        seconds = best_time(lambda main=main: main(*args), 0.002, 7) / count
        if seconds > QUICK:
            break
    return seconds


def noop_library() -> Path:
    from relaxvm.native import toolchain

    return toolchain.compile_c(NOOP, name="noop")


def time_noop(folder: Path, only: str) -> dict[str, float]:
    """Return the nanoseconds of a no-op kernel on both sides and of a `copy` instruction."""
    import tvm
    import tvm_ffi
    from compare_tvm import measure, on_tvm, timed, to_tvm

    import relaxvm
    from relaxvm.testing import dispatch_rows as rows

    library = noop_library()
    kernel = relaxvm.load_kernels(library)["noop"]
    tvm.register_global_func("bench.noop", tvm_ffi.load_module(str(library))["noop"])
    row = rows.Row("no-op", rows.call("bench.noop", rows.r(0), rows.r(0), rows.r(0)), REQUIRED_NOOP)
    plain = rows.Row("copy", rows.call("vm.builtin.copy", rows.r(0), dst=1), 1)
    here = relaxvm.VirtualMachine(row.executable(), functions={"bench.noop": kernel})["main"]
    copies = relaxvm.VirtualMachine(plain.executable())["main"]
    theirs = timed(on_tvm(row.executable())["main"], tuple(map(to_tvm, row.args)), row.count)
    best, ours = measure(theirs, timed(here, row.args, row.count), 60)
    _, instruction = measure(theirs, timed(copies, plain.args, plain.count), 60)
    return {"relaxvm": ours, "TVM": best, "instruction": instruction}


PARTS: dict[str, Callable[[Path, str], Any]] = {
    "export": export,
    "relaxvm": run_relaxvm,
    "TVM": run_tvm,
    "drop-in": run_drop_in,
    "kernels": time_kernels,
    "kernels of drop-in": time_drop_in_kernels,
    "empty kernels on TVM": empty_on_tvm,
    "empty kernels on drop-in": empty_on_drop_in,
    "noop": time_noop,
}


if __name__ == "__main__":
    if "--child" not in sys.argv:
        clean.restart()
    sys.exit(main())
