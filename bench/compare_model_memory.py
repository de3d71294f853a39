"""ONNX models: peak resident memory of a process that loads and runs one, beside onnxruntime.

    python bench/compare_model_memory.py MODEL [MODEL ...]

relaxvm loads the executable that it has compiled before, as from its cache, with ``memory`` as it
is and "low".  Each side runs the model three times on one thread, in a process of its own, with
inputs of ones; open dimensions are 1.  The script fails where "low" takes more than onnxruntime.
Needs onnxruntime, and Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import clean

RUNS = 3
MODES = ("default", "low")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run(*options.side, json.loads(options.models[0]))
        return 0
    clean.restart()
    print(f"{clean.machine()}; MiB")
    print(f"{'model':24} {'onnxruntime':>12} {'relaxvm':>10} {'low':>10} {'low, ratio':>11}")
    failures = 0
    for model in options.models:
        theirs, *own = peaks(model)
        failures += own[-1] > theirs
        print(f"{Path(model).stem:24} {theirs:12.0f} {own[0]:10.0f} {own[1]:10.0f} "
              f"{own[1] / theirs:11.2f}", flush=True)  # fmt: skip
    return 1 if failures else 0


def inputs_of(path: str) -> dict[str, Any]:
    """Shape and data type of each input."""
    import onnxruntime

    names = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
    session = onnxruntime.InferenceSession(path)
    return {
        each.name: [[dim if isinstance(dim, int) else 1 for dim in each.shape], names[each.type]]
        for each in session.get_inputs()
    }


def peaks(path: str) -> list[float]:
    """MiB of onnxruntime, of relaxvm, and of relaxvm with `memory="low"`."""
    import relaxvm

    inputs = inputs_of(path)
    found = [peak("onnxruntime", path, inputs)]
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES:
            file = os.path.join(folder, f"{mode}.rvm")
            relaxvm.compile(path, memory=mode, cache=False).save(file)
            found.append(peak("relaxvm", file, inputs))
    return found


def peak(side: str, path: str, inputs: dict[str, Any]) -> float:
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RELAXVM_NUM_THREADS": "1"}
    command = [sys.executable, __file__, json.dumps(inputs), "--side", side, path]
    text = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    return int(text.split()[-1]) / 1024


def run(side: str, path: str, inputs: dict[str, Any]) -> None:
    import numpy as np

    values = {name: np.ones(shape, dtype) for name, (shape, dtype) in inputs.items()}
    if side == "onnxruntime":
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, settings)
        for _ in range(RUNS):
            session.run(None, values)
    else:
        import relaxvm

        vm = relaxvm.VirtualMachine(relaxvm.load(path))
        for _ in range(RUNS):
            vm["main"](*values.values())
    # Not `getrusage`, which begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


if __name__ == "__main__":
    sys.exit(main())
