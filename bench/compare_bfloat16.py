"""ONNX models in bfloat16: time and error beside float32, onnxruntime and OpenVINO.

    python bench/compare_bfloat16.py [MODEL ...] [--python OTHER] [--dim NAME=N] [--value NAME=V]
                                     [--rounds N] [--threads N] [--cpu-time] [--folder FOLDER]
                                     [--without SIDE ...]

MODEL, `--dim`, `--value` and `--folder` are those of `compare_models.py`.  The sides are relaxvm in
float32 and with ``precision="bfloat16"``, onnxruntime in float32, and OpenVINO in float32 and as it
computes by itself, which is bfloat16 on processors that have instructions for it.  `--python` names
an interpreter that has onnx, onnxruntime and openvino.

Each side has a process of its own; they take turns, and the least time of all runs of a side
counts.  `--cpu-time` measures the time of the processor, of all threads.  Times are over that of
onnxruntime.  Errors are the largest difference from onnxruntime's results, relative to the largest
element.  Processes of relaxvm say how large their executable is.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean
import compare_models as models
import peers

SIDES = ("onnxruntime", "relaxvm", "bfloat16", "openvino f32", "openvino")
TURN_SECONDS = 0.3


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--value", action="append", default=[])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--without", nargs="*", default=[], choices=SIDES[1:])
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        serve(*options.side, options)
        return 0
    clean.restart()
    sides = [side for side in SIDES if side not in options.without]
    print(f"{clean.machine()}; threads: {options.threads}")
    print(f"{'model':32}{'onnxruntime, ms':>16}" + "".join(f"{side:>22}" for side in sides[1:]))
    with tempfile.TemporaryDirectory() as temporary:
        ratios: dict[str, list[float]] = {}
        for path in models.models(options, options.folder or Path(temporary)):
            for side, ratio in compared(path, sides, options).items():
                ratios.setdefault(side, []).append(ratio)
    for side, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(f"{side}: geometric mean of {len(found)} ratios {mean:.3f}")
    return 0


def compared(path: Path, sides: list[str], options: argparse.Namespace) -> dict[str, float]:
    """The ratio of each side, after a line with the times and errors."""
    processes: dict[str, subprocess.Popen[str]] = {}
    least: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs.npz"
        results = {side: Path(folder) / f"{side}.npz" for side in sides}
        try:
            for side in sides:
                processes[side] = started(side, path, inputs, results[side], options)
                models.answer(side, processes[side], 600)
            for _ in range(options.rounds):
                for side in sides:
                    took = float(models.ask(side, processes[side], "run", 600))
                    least[side] = min(took, least.get(side, math.inf))
            line = f"{path.stem[:31]:32}{least[sides[0]] * 1e3:16.3f}"
            for side in sides[1:]:
                ratios[side] = least[side] / least[sides[0]]
                difference = models.difference_of(results[side], results[sides[0]])
                line += f"{ratios[side]:12.2f}{difference:10.1e}"
            print(line, flush=True)
        except models.Failure as failure:
            print(f"{path.stem[:31]:32} {failure}", flush=True)
        for process in processes.values():
            process.kill()
            process.wait()
    return ratios


def started(
    side: str, path: Path, inputs: Path, result: Path, options: argparse.Namespace
) -> subprocess.Popen[str]:
    python = sys.executable if side in ("relaxvm", "bfloat16") else options.python
    environment = {**os.environ, "RELAXVM_CACHE": "off"}
    for name in ("RELAXVM_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment[name] = str(options.threads)
    command = [python, __file__, "--side", side, str(path), str(inputs), str(result)]
    command += [f"--threads={options.threads}", *["--cpu-time"] * options.cpu_time]
    command += [f"--dim={each}" for each in options.dim]
    command += [f"--value={each}" for each in options.value]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


# In the process of a side


def serve(side: str, path: str, inputs: str, result: str, options: argparse.Namespace) -> None:
    import numpy as np

    try:
        if side == "onnxruntime":
            run, _, _, kept = models.theirs(path, inputs, options)
        else:
            found = np.load(inputs)
            values = {name: found[name] for name in found.files}
            run = runner(side, path, values, options)
            kept = run()
        kept = [each for each in kept if isinstance(each, np.ndarray) and each.dtype != object]
        np.savez(result, *kept)
        print("ready", flush=True)
    except Exception as error:
        print("failed:", type(error).__name__, str(error).replace("\n", " ")[:150], flush=True)
        return
    clock = time.process_time if options.cpu_time else time.perf_counter
    for _ in sys.stdin:
        times: list[float] = []
        end = time.perf_counter() + TURN_SECONDS
        while len(times) < 2 or time.perf_counter() < end:
            begun = clock()
            run()
            times.append(clock() - begun)
        print(min(times), flush=True)


def runner(
    side: str, path: str, values: dict[str, Any], options: argparse.Namespace
) -> Callable[[], list[Any]]:
    if side.startswith("openvino"):
        precision = None if side == "openvino" else "f32"
        return peers.openvino_runner(path, values, options.threads, precision)
    import relaxvm

    precision = "bfloat16" if side == "bfloat16" else "default"
    executable = relaxvm.compile(path, precision=precision)
    print(f"{Path(path).stem}, {side}: {len(executable.to_bytes()) >> 10} KiB", file=sys.stderr)
    vm = relaxvm.VirtualMachine(executable)
    arguments = list(values.values())

    def run() -> list[Any]:
        found = vm["main"](*arguments)
        return [found] if hasattr(found, "shape") else list(found)

    return run


if __name__ == "__main__":
    sys.exit(main())
