"""ONNX models: time per run beside onnxruntime, one thread each.

    python bench/compare_models.py [MODEL ...] [--python OTHER] [--set avx2] [--dim NAME=N]
                                   [--rounds N] [--cpu-time] [--profile] [--json FILE]

MODEL is a path, or the name of a network of `onnx_models.py`; without any, all of these.
`--python` names an interpreter that has onnx and onnxruntime.  `--set` forces the instructions of
our kernels (`RELAXVM_CPU`); onnxruntime always uses what the processor has.

Each side has a process of its own, started without settings of BLAS libraries but the number of
threads.  They take turns, and the least time of all runs of a side counts.  `--cpu-time` measures
the time of the processor that the thread had: it varies less on a machine that does other work.
`difference` is the largest one between the results, relative to the largest element.  `--profile`
shows where the time goes, for both sides: the least time of each call, by operator.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import clean

SIDES = ("relaxvm", "onnxruntime")
TURN_SECONDS = 0.3
FEWEST_RUNS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--python", default=sys.executable, help="interpreter with onnxruntime")
    parser.add_argument("--folder", type=Path, help="where networks with drawn weights are kept")
    parser.add_argument("--set", help="instructions of our kernels, such as avx2")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N",
                        help="the size of a dimension that the model leaves open")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(*options.side, options)
        return 0
    clean.restart()
    with tempfile.TemporaryDirectory() as temporary:
        paths = models(options, options.folder or Path(temporary))
        print(f"{clean.machine()}; kernels: {options.set or 'the best set'}; one thread, "
              f"{'processor' if options.cpu_time else 'elapsed'} time")  # fmt: skip
        titles = f"{'relaxvm, ms':>14}{'onnxruntime, ms':>18}{'ratio':>9}{'difference':>14}"
        print(f"{'model':28}{titles}")
        rows = [compared(path, options) for path in paths]
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} ratios: {mean:.3f}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def models(options: argparse.Namespace, folder: Path) -> list[Path]:
    """The paths of the models; networks are made where they are not there."""
    names = [name for name in options.models if not name.endswith(".onnx")]
    if names or not options.models:
        maker = Path(__file__).with_name("onnx_models.py")
        subprocess.run([options.python, str(maker), str(folder), *names], check=True)
    if not options.models:
        return sorted(folder.glob("*.onnx"))
    return [folder / f"{name}.onnx" if name in names else Path(name) for name in options.models]


def compared(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    best: dict[str, float] = {}
    results: dict[str, Path] = {}
    with tempfile.TemporaryDirectory() as folder:
        processes = {}
        for side in SIDES:
            results[side] = Path(folder) / f"{side}.npy"
            processes[side] = started(side, path, results[side], options)
            answer(processes[side])
        for _ in range(options.rounds):
            for side in SIDES:
                least = float(ask(processes[side], "run"))
                best[side] = min(least, best.get(side, math.inf))
        difference = difference_of(results)
        row = {"model": path.stem, **best, "difference": difference}
        row["ratio"] = best["relaxvm"] / best["onnxruntime"]
        ours, theirs = (best[side] * 1e3 for side in SIDES)
        print(f"{path.stem[:27]:28}{ours:14.3f}{theirs:18.3f}{row['ratio']:9.2f}{difference:14.1e}",
              flush=True)  # fmt: skip
        if options.profile:
            for side in SIDES:
                for name, share in json.loads(ask(processes[side], "profile")):
                    print(f"    {side:12} {share * 1e3:10.3f} ms  {name}")
        for process in processes.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return row


def started(
    side: str, path: Path, result: Path, options: argparse.Namespace
) -> subprocess.Popen[str]:
    python = options.python if side == "onnxruntime" else sys.executable
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "RELAXVM_CACHE": "off"}  # fmt: skip
    if options.set:
        environment["RELAXVM_CPU"] = options.set
    command = [python, __file__, "--side", side, str(path), str(result)]
    command += ["--cpu-time"] * options.cpu_time + [f"--dim={each}" for each in options.dim]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(process: subprocess.Popen[str], question: str) -> str:
    assert process.stdin is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return answer(process)


def answer(process: subprocess.Popen[str]) -> str:
    output: IO[str] | None = process.stdout
    assert output is not None
    line = output.readline()
    if not line:
        raise SystemExit(f"{' '.join(map(str, process.args))}: ended early")  # type: ignore[arg-type]
    return line.strip()


def difference_of(results: dict[str, Path]) -> float:
    import numpy as np

    a, b = (np.load(results[side]) for side in SIDES)
    if a.shape != b.shape:
        raise SystemExit(f"results have the shapes {a.shape} and {b.shape}")
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))


# In the process of a side


def serve(side: str, path: str, result: str, options: argparse.Namespace) -> None:
    """Answer questions on standard input, one a line."""
    import numpy as np

    sizes = {name: int(n) for name, n in (each.split("=") for each in options.dim)}
    run, profile = (ours if side == "relaxvm" else theirs)(path, sizes)
    np.save(result, run())
    clock = time.thread_time if options.cpu_time else time.perf_counter
    print("ready", flush=True)
    for question in sys.stdin:
        if question.strip() == "profile":
            print(json.dumps(profile()), flush=True)
            continue
        times: list[float] = []
        end = time.perf_counter() + TURN_SECONDS
        while len(times) < FEWEST_RUNS or time.perf_counter() < end:
            begun = clock()
            run()
            times.append(clock() - begun)
        print(min(times), flush=True)


Side = tuple[Callable[[], Any], Callable[[], list[tuple[str, float]]]]
PROFILED_RUNS = 7


def ours(path: str, sizes: dict[str, int]) -> Side:
    import relaxvm

    vm = relaxvm.VirtualMachine(path)
    # The names and types of inputs: what is printed of the function, as onnxruntime states them.
    values = [value_of(shape, dtype, sizes) for shape, dtype in inputs_of(path)]

    def run() -> Any:
        found = vm["main"](*values)
        return found if hasattr(found, "shape") else found[0]

    def profile() -> list[tuple[str, float]]:
        with relaxvm.profile(vm, shapes=False, memory=False) as p:
            for _ in range(PROFILED_RUNS):
                run()
        sums: Counter[str] = Counter()
        functions = {row.name for row in p.functions if row.category == "dispatch"}
        for site in p.sites:
            if site.callee in functions:
                continue  # with its calls
            sums[site.callee] += site.min_ns * site.count // PROFILED_RUNS
        return [(name, total / 1e9) for name, total in sums.most_common(15)]

    return run, profile


def theirs(path: str, sizes: dict[str, int]) -> Side:
    import onnxruntime

    def session(*, is_profiled: bool) -> Any:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1
        settings.enable_profiling = is_profiled
        settings.profile_file_prefix = str(Path(tempfile.gettempdir()) / "onnxruntime")
        settings.log_severity_level = 3
        return onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])

    plain = session(is_profiled=False)
    inputs = {
        each.name: value_of(each.shape, each.type, sizes) for each in plain.get_inputs()
    }

    def profile() -> list[tuple[str, float]]:
        profiled = session(is_profiled=True)
        for _ in range(PROFILED_RUNS):
            profiled.run(None, inputs)
        file = Path(profiled.end_profiling())
        events = json.loads(file.read_text())
        file.unlink()
        least: dict[tuple[str, str], int] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                node = event["args"]["op_name"], event["name"]
                least[node] = min(event["dur"], least.get(node, event["dur"]))
        sums: Counter[str] = Counter()
        for (name, _), duration in least.items():
            sums[name] += duration
        return [(name, total / 1e6) for name, total in sums.most_common(15)]

    return (lambda: plain.run(None, inputs)[0]), profile


def inputs_of(path: str) -> list[tuple[list[Any], str]]:
    """Shapes and data types of the inputs of a model, without its constants."""
    from relaxvm.frontend.onnx.program import read_model

    graph = read_model(path)[0].graph
    assert graph is not None
    constants = {each.name for each in graph.initializer}
    kinds = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 11: "float64"}
    found = []
    for each in graph.input:
        if each.name not in constants:
            assert each.type is not None
            assert each.type.tensor is not None
            shape = each.type.tensor.shape
            dims = [] if shape is None else [dim.name or dim.value for dim in shape.dims]
            found.append((dims, kinds[each.type.tensor.elem_type]))
    return found


def value_of(shape: list[Any], dtype: str, sizes: dict[str, int]) -> Any:
    """A value for an input: the same on both sides."""
    import numpy as np

    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32",
             "tensor(bool)": "bool", "tensor(double)": "float64"}  # fmt: skip
    dims = [
        dim if isinstance(dim, int) and dim > 0 else sizes.get(str(dim), 1) for dim in shape
    ]
    rng = np.random.default_rng(0)
    return rng.standard_normal(dims).astype(kinds.get(dtype, dtype))


if __name__ == "__main__":
    sys.exit(main())
