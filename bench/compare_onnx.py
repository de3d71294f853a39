"""ONNX models: time to compile beside TVM, first result and time per run beside onnxruntime.

    python bench/compare_onnx.py [MODEL.onnx ...] [--python OTHER] [--repeats N] [--json FILE]

Without models, those are the nine light networks of the package onnx (alexnet to zfnet512), whose
weights are made by the model itself.  Every measurement is a process of its own; the sides
alternate, and the least of each figure counts:

- compile: from the path to something that runs, without imports and without a cache: relaxvm, which
  imports modules where it needs them, and onnxruntime do it a second time in the process.  TVM:
  `onnx.load`, `from_onnx`, `tvm.compile`.
- first: from the start of the process to the first result, with imports.
- run: the median of calls with one thread, after a warm-up.
- peak: of the resident memory of the process.

TVM and onnxruntime are left out where they are not installed; `--python` names another interpreter
for onnxruntime.  Results of relaxvm and onnxruntime are compared: `difference` is the largest one,
relative to the largest element.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import clean

STARTED = time.perf_counter()
SIDES = ("relaxvm", "onnxruntime", "TVM")
RUN_SECONDS = 2.0
TVM_SECONDS = 300
SIZE_OF_UNNAMED = 1


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, help="default: onnx's light networks")
    parser.add_argument("--python", default=sys.executable, help="interpreter with onnxruntime")
    parser.add_argument("--sides", nargs="*", choices=SIDES, default=SIDES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, path, result = options.child
        print(json.dumps(measured(side, path, result)))
        return 0

    models = options.models or light_networks()
    print(clean.machine())
    columns = [("compile", "ms", 1e3), ("first", "ms", 1e3), ("run", "ms", 1e3), ("peak", "MB", 1)]
    head = "".join(f"{f'{name}, {unit}':>14}" for name, unit, _ in columns)
    print(f"{'model':28}{'side':14}{head}{'difference':>14}")
    rows: list[dict[str, Any]] = []
    for path in models:
        best: dict[str, dict[str, float]] = {}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(options.repeats):
                for side in options.sides:
                    found = once(side, path, Path(folder) / f"{side}.npy", options.python)
                    for name, value in found.items():
                        known = best.setdefault(side, {})
                        known[name] = min(known.get(name, float("inf")), value)
            difference = compared(Path(folder))
        for side, figures in best.items():
            cells = "".join(
                f"{figures[name] * scale:14.1f}" if name in figures else f"{'-':>14}"
                for name, _, scale in columns
            )
            last = f"{difference:14.1e}" if side == "onnxruntime" and difference is not None else ""
            print(f"{path.stem[:27]:28}{side:14}{cells}{last}", flush=True)
            rows.append({"model": path.stem, "side": side, **figures})
        if {"relaxvm", "TVM"} <= best.keys() and "compile" in best["TVM"]:
            ratio = best["TVM"]["compile"] / best["relaxvm"]["compile"]
            print(f"{'':28}TVM's time to compile is {ratio:.0f} times relaxvm's", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def light_networks() -> list[Path]:
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        raise SystemExit("without models, the package onnx is needed: pip install onnx")
    folder = Path(spec.origin).parent / "backend" / "test" / "data" / "light"
    return sorted(folder.glob("*.onnx"))


def once(side: str, path: Path, result: Path, other: str) -> dict[str, float]:
    """Run one side in a process of its own; no figures where its package is missing."""
    python = other if side == "onnxruntime" else sys.executable
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
                   "TVM_NUM_THREADS": "1", "RELAXVM_NUM_THREADS": "1", "RELAXVM_CACHE": "off",
                   "PYTHONDONTWRITEBYTECODE": ""}  # fmt: skip
    command = [python, __file__, "--child", side, str(path), str(result)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=2 * TVM_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"{path.stem}: {side}: not done after {2 * TVM_SECONDS} s", file=sys.stderr)
        return {}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"{path.stem}: {side}: {last[:150]}", file=sys.stderr)
        return {}
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measured(side: str, path: str, result: str) -> dict[str, float]:
    import numpy as np

    if side == "onnxruntime":
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = settings.inter_op_num_threads = 1

        def ready() -> Any:
            return onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])

        session = ready()
        inputs = {each.name: value_of(each.shape, each.type) for each in session.get_inputs()}

        def run() -> Any:
            return session.run(None, inputs)[0]
    else:
        specs = inputs_of(path)
        values = [value_of(shape, dtype) for shape, dtype in specs]
        if side == "relaxvm":
            import relaxvm

            def ready() -> Any:
                return relaxvm.VirtualMachine(path)
        else:
            import onnx
            import tvm
            from tvm import relax
            from tvm.relax.frontend.onnx import from_onnx

            def ready() -> Any:
                module = from_onnx(onnx.load(path))
                return relax.VirtualMachine(tvm.compile(module, "llvm"), tvm.cpu())

            values = [tvm.runtime.tensor(value) for value in values]
        begun = time.perf_counter()
        vm = ready()
        compiled = time.perf_counter() - begun

        def run() -> Any:
            found = vm["main"](*values)
            return found if hasattr(found, "shape") else found[0]

    found = run()
    first = time.perf_counter() - STARTED
    array = np.asarray(found if side != "TVM" else found.numpy())
    np.save(result, array)
    times = []
    end = time.perf_counter() + RUN_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if side != "TVM":  # whose modules are imported above
        begun = time.perf_counter()
        ready()
        compiled = time.perf_counter() - begun
    return {"compile": compiled, "first": first, "run": float(np.median(times)), "peak": peak}


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
            dims = [] if shape is None else [
                dim.value if dim.value > 0 else SIZE_OF_UNNAMED for dim in shape.dims
            ]  # fmt: skip
            found.append((dims, kinds[each.type.tensor.elem_type]))
    return found


def value_of(shape: list[Any], dtype: str) -> Any:
    """A value for an input: the same on all sides."""
    import numpy as np

    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32",
             "tensor(bool)": "bool", "tensor(double)": "float64"}  # fmt: skip
    dims = [dim if isinstance(dim, int) and dim > 0 else SIZE_OF_UNNAMED for dim in shape]
    rng = np.random.default_rng(0)
    return rng.standard_normal(dims).astype(kinds.get(dtype, dtype))


def compared(folder: Path) -> float | None:
    """The largest difference of relaxvm's result to onnxruntime's, relative to the largest
    element."""
    import numpy as np

    ours, theirs = folder / "relaxvm.npy", folder / "onnxruntime.npy"
    if not ours.exists() or not theirs.exists():
        return None
    a, b = np.load(ours), np.load(theirs)
    return float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30))


if __name__ == "__main__":
    sys.exit(main())
