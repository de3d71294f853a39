"""ONNX models: time per run beside onnxruntime, with the same number of threads.

    python bench/compare_models.py [MODEL ...] [--python OTHER] [--set avx2] [--dim NAME=N]
                                   [--value NAME=V] [--limit SECONDS] [--rounds N] [--cpu-time]
                                   [--threads N] [--peer NAME[=PYTHON]] [--profile] [--sorted]
                                   [--json FILE]

MODEL is a path, a folder (every model in it), or the name of a network of `onnx_models.py`;
without any, all of these.  `--python` names an interpreter that has onnx and onnxruntime.  `--set`
forces the instructions of our kernels (`RELAXVM_CPU`); onnxruntime always uses what the processor
has.

Inputs are drawn; a dimension that the model leaves open and `--dim` does not give is the first of
a few usual sizes with which onnxruntime runs.  `--value` gives an input that is one number.  A
model that one of the sides does not run, or does not run in `--limit` seconds, is a line without a
ratio.  `--sorted` ends with the models in the order of the time that is lost.

`--peer` measures one more engine of `peers.py`, with the interpreter that has it: a column with the
ratio of relaxvm's time to its own, and a dash where it does not run the model.

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
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import clean
import peers

SIDES = ("relaxvm", "onnxruntime")
THREAD_SETTINGS = (
    "RELAXVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS",
)  # fmt: skip
TURN_SECONDS = 0.3
FEWEST_RUNS = 2
IMAGE_SIZES = (320, 224, 160, 416, 640, 256, 64, 48, 32)
OTHER_SIZES = (128, 64, 512, 256, 100, 160, 320, 32, 16, 80, 8, 5, 1, 2, 3, 1536, 16000)


class Failure(Exception):
    """A side did not run a model: the message says why."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--python", default=sys.executable, help="interpreter with onnxruntime")
    parser.add_argument("--folder", type=Path, help="where networks with drawn weights are kept")
    parser.add_argument("--set", help="instructions of our kernels, such as avx2")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N",
                        help="the size of a dimension that the model leaves open")  # fmt: skip
    parser.add_argument("--value", action="append", default=[], metavar="NAME=V",
                        help="the value of an input that is one number")  # fmt: skip
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS",
                        help="the time that a side may take to answer")  # fmt: skip
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME[=PYTHON]",
                        help=f"one more engine: {', '.join(peers.PEERS)}")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(*options.side, options)
        return 0
    options.peers = {}
    for each in options.peer:
        name, _, python = each.partition("=")
        if name not in peers.PEERS:
            parser.error(f"--peer {name}: expected one of {', '.join(peers.PEERS)}")
        options.peers[name] = python or sys.executable
    clean.restart()
    with tempfile.TemporaryDirectory() as temporary:
        paths = models(options, options.folder or Path(temporary))
        clock = "processor" if options.cpu_time else "elapsed"
        print(f"{clean.machine()}; kernels: {options.set or 'the best set'}; "
              f"threads: {options.threads}; {clock} time")  # fmt: skip
        titles = f"{'relaxvm, ms':>12}{'onnxruntime, ms':>18}{'ratio':>9}{'difference':>14}"
        titles += "".join(f"{f'to {peer}':>14}" for peer in options.peers)
        print(f"{'model':36}{titles}  shapes")
        rows = [compared(path, options) for path in paths]
    if options.sorted:
        print("\nby the time that is lost:")
        lost = [(row["relaxvm"] - row["onnxruntime"], row) for row in rows if "ratio" in row]
        for _, row in sorted(lost, key=lambda each: -each[0]):
            print(line_of(row))
    for side in ("onnxruntime", *options.peers):
        ratios = [row["relaxvm"] / row[side] for row in rows if "ratio" in row and side in row]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"geometric mean of {len(ratios)} ratios to {side}: {mean:.3f}")
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def models(options: argparse.Namespace, folder: Path) -> list[Path]:
    """The paths of the models; networks are made where they are not there."""
    named = [name for name in options.models if not Path(name).is_dir()]
    names = [name for name in named if not name.endswith(".onnx")]
    if names or not options.models:
        maker = Path(__file__).with_name("onnx_models.py")
        subprocess.run([options.python, str(maker), str(folder), *names], check=True)
    if not options.models:
        return sorted(folder.glob("*.onnx"))
    found: list[Path] = []
    for name in options.models:
        path = folder / f"{name}.onnx" if name in names else Path(name)
        found += sorted(path.rglob("*.onnx")) if path.is_dir() else [path]
    return found


def compared(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    row: dict[str, Any] = {"model": path.stem, "path": str(path), "peers": list(options.peers)}
    processes: dict[str, subprocess.Popen[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        results = {side: Path(folder) / f"{side}.npz" for side in (*SIDES, *options.peers)}
        try:
            # onnxruntime finds the shapes with which it runs; both have the same inputs.
            inputs = Path(folder) / "inputs.npz"
            for side in reversed(SIDES):
                processes[side] = started(side, path, inputs, results[side], options)
                shapes = answer(side, processes[side], options.limit)
                row["shapes"] = json.loads(shapes)
            row["difference"] = difference_of(results["relaxvm"], results["onnxruntime"])
            sides = list(SIDES)
            for peer in options.peers:
                processes[peer] = started(peer, path, inputs, results[peer], options)
                try:
                    answer(peer, processes[peer], options.limit)
                    row[f"difference, {peer}"] = difference_of(
                        results[peer], results["onnxruntime"]
                    )
                    sides.append(peer)
                except Failure as failure:
                    row[f"failure, {peer}"] = str(failure)
            for _ in range(options.rounds):
                for side in sides:
                    least = float(ask(side, processes[side], "run", options.limit))
                    row[side] = min(least, row.get(side, math.inf))
            row["ratio"] = row["relaxvm"] / row["onnxruntime"]
            print(line_of(row), flush=True)
            for peer in options.peers:
                if why := row.get(f"failure, {peer}"):
                    print(f"    {why}", flush=True)
            if options.profile:
                for side in SIDES:
                    shares = ask(side, processes[side], "profile", options.limit)
                    for name, share in json.loads(shares):
                        print(f"    {side:12} {share * 1e3:10.3f} ms  {name}", flush=True)
        except Failure as failure:
            row["failure"] = str(failure)
            print(f"{path.stem[:35]:36} {failure}", flush=True)
        for process in processes.values():
            process.kill()
            process.wait()
    return row


def line_of(row: dict[str, Any]) -> str:
    ours, theirs = (row[side] * 1e3 for side in SIDES)
    shapes = " ".join("x".join(map(str, shape)) for shape in row["shapes"])
    beside = "".join(
        f"{row['relaxvm'] / row[peer]:14.2f}" if peer in row else f"{'-':>14}"
        for peer in row["peers"]
    )
    return (f"{row['model'][:35]:36}{ours:12.3f}{theirs:18.3f}{row['ratio']:9.2f}"
            f"{row['difference']:14.1e}{beside}  {shapes}")  # fmt: skip


def started(
    side: str, path: Path, inputs: Path, result: Path, options: argparse.Namespace
) -> subprocess.Popen[str]:
    pythons = {"relaxvm": sys.executable, "onnxruntime": options.python, **options.peers}
    environment = {**os.environ, "RELAXVM_CACHE": "off"}
    for name in THREAD_SETTINGS:
        environment[name] = str(options.threads)
    if options.set:
        environment["RELAXVM_CPU"] = options.set
    command = [pythons[side], __file__, "--side", side, str(path), str(inputs), str(result)]
    command += [f"--threads={options.threads}"]
    command += ["--cpu-time"] * options.cpu_time + [f"--dim={each}" for each in options.dim]
    command += [f"--value={each}" for each in options.value]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def ask(side: str, process: subprocess.Popen[str], question: str, limit: float) -> str:
    assert process.stdin is not None
    process.stdin.write(question + "\n")
    process.stdin.flush()
    return answer(side, process, limit)


def answer(side: str, process: subprocess.Popen[str], limit: float) -> str:
    """The next line of a process: it writes one line for one question."""
    output: IO[str] | None = process.stdout
    assert output is not None
    if not select.select([output], [], [], limit)[0]:
        raise Failure(f"{side}: no answer in {limit:g} seconds")
    line = output.readline()
    if not line:
        raise Failure(f"{side}: ended early")
    if line.startswith("failed: "):
        raise Failure(f"{side}: {line[len('failed: ') :].strip()}")
    return line.strip()


def difference_of(path: Path, other: Path) -> float:
    import numpy as np

    ours, theirs = np.load(path), np.load(other)
    largest = 0.0
    for name in theirs.files:
        a, b = ours[name], theirs[name]
        if a.shape != b.shape:
            raise Failure(f"results have the shapes {a.shape} and {b.shape}")
        if b.size and b.dtype.kind in "fiu":
            a, b = a.astype("float64"), b.astype("float64")
            differences = np.abs(a - b, out=np.zeros_like(a), where=a != b)
            finite = np.abs(b[np.isfinite(b)]).max(initial=1e-30)
            largest = max(largest, float(differences.max() / finite))
    return largest


# In the process of a side


def serve(side: str, path: str, inputs: str, result: str, options: argparse.Namespace) -> None:
    """Answer questions on standard input, one a line."""
    import numpy as np

    try:
        if side == "onnxruntime":
            run, profile, values, kept = theirs(path, inputs, options)
        else:
            found = np.load(inputs)
            named = {name: found[name] for name in found.files}
            values = list(named.values())
            if side == "relaxvm":
                run, profile = ours(path, values)
            else:
                run, profile = peers.runner(side, path, named, options.threads), list
            kept = run()
        kept = [each for each in kept if isinstance(each, np.ndarray) and each.dtype != object]
        np.savez(result, *kept)
        print(json.dumps([value.shape for value in values]), flush=True)
    except Exception as error:
        print("failed:", type(error).__name__, str(error).replace("\n", " ")[:150], flush=True)
        return
    clock = time.thread_time if options.cpu_time else time.perf_counter
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
            if times[0] > TURN_SECONDS * 10:
                break
        print(min(times), flush=True)


Run = peers.Run
Profile = Callable[[], list[tuple[str, float]]]
PROFILED_RUNS = 3


def ours(path: str, values: list[Any]) -> tuple[Run, Profile]:
    import relaxvm

    vm = relaxvm.VirtualMachine(path)

    def run() -> list[Any]:
        found = vm["main"](*values)
        return [found] if hasattr(found, "shape") else list(found)

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


def theirs(
    path: str, file: str, options: argparse.Namespace
) -> tuple[Run, Profile, list[Any], list[Any]]:
    import numpy as np
    import onnxruntime

    def session(*, is_profiled: bool) -> Any:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = options.threads
        settings.inter_op_num_threads = 1
        settings.enable_profiling = is_profiled
        settings.profile_file_prefix = str(Path(tempfile.gettempdir()) / "onnxruntime")
        settings.log_severity_level = 4
        return onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])

    plain = session(is_profiled=False)
    inputs, kept = inputs_of(plain, options)
    np.savez(file, **inputs)

    def profile() -> list[tuple[str, float]]:
        profiled = session(is_profiled=True)
        for _ in range(PROFILED_RUNS):
            profiled.run(None, inputs)
        events_file = Path(profiled.end_profiling())
        events = json.loads(events_file.read_text())
        events_file.unlink()
        least: dict[tuple[str, str], int] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                node = event["args"]["op_name"], event["name"]
                least[node] = min(event["dur"], least.get(node, event["dur"]))
        sums: Counter[str] = Counter()
        for (name, _), duration in least.items():
            sums[name] += duration
        return [(name, total / 1e6) for name, total in sums.most_common(15)]

    return (lambda: list(plain.run(None, inputs))), profile, list(inputs.values()), kept


def inputs_of(session: Any, options: argparse.Namespace) -> tuple[dict[str, Any], list[Any]]:
    """Values for the inputs of a model, and the results: with the first sizes that it takes."""
    given = {name: int(n) for name, n in (each.split("=") for each in options.dim)}
    numbers = dict(each.split("=") for each in options.value)
    arguments = session.get_inputs()
    is_open = any(
        not isinstance(dim, int) and dim not in given for each in arguments for dim in each.shape
    )
    is_image = any(len(each.shape) == 4 for each in arguments)
    refused: Exception | None = None
    for size in IMAGE_SIZES + OTHER_SIZES if is_image else OTHER_SIZES:
        sizes = dict(given)
        for each in arguments:  # the first dimension of an input is most often a batch
            for axis, dim in enumerate(each.shape):
                is_batch = axis == 0 and len(each.shape) > 1
                if isinstance(dim, str):
                    sizes.setdefault(dim, 1 if is_batch else size)
        values = {
            each.name: value_of(each.shape, each.type, sizes, size, numbers.get(each.name))
            for each in arguments
        }
        try:
            return values, list(session.run(None, values))
        except Exception as error:
            refused = refused or error
            if not is_open:
                break
    assert refused is not None
    raise refused


def value_of(
    shape: list[Any], dtype: str, sizes: dict[str, int], size: int, number: str | None
) -> Any:
    """A value for an input: the same on both sides."""
    import numpy as np

    names = {"float": "float32", "double": "float64"}
    kind = dtype.removeprefix("tensor(").removesuffix(")")
    kind = names.get(kind, kind)
    if kind == "string":
        raise Failure("texts are not drawn")
    if number is not None:
        return np.array(float(number)).astype(kind).reshape([1 for _ in shape])
    dims = [
        dim if isinstance(dim, int) else sizes.get(str(dim), 1 if axis == 0 else size)
        for axis, dim in enumerate(shape)
    ]
    rng = np.random.default_rng(0)
    if np.dtype(kind).kind in "iub":
        return rng.integers(0, 2, dims).astype(kind)
    return rng.standard_normal(dims).astype(kind)


if __name__ == "__main__":
    sys.exit(main())
