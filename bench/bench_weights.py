"""Time and memory of a module with a large weight, on every way from the file to the kernel.

    python bench/bench_weights.py [--megabytes 100] [--only TEXT]...

Each row is a process of its own, which has run a small program of the same kind before, so that
imports do not count.  The columns:

- make: building, compiling or loading the program, and creating its VM.  A model that was compiled
  before is found by the content of its files the second time, by their states after that;
- held: memory of the process (not of files) that is there more than before, in units of the weight.
  1.0 is one copy.  The weight that the caller holds was there before;
- peak: the most resident memory meanwhile, pages of mapped files included, in the same unit;
- left: what stays when the caller has dropped the program, with the collector of cycles off.

ONNX models need the package ``onnx``.  Memory is read from /proc, so this runs on Linux only.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean
import numpy as np

COLUMNS = 5120


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--only", action="append", default=[], help="rows with this text")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = max(options.megabytes * 2**20 // (4 * COLUMNS), 128)
    if options.row is not None:
        print(json.dumps(measured(options.row, options.folder, rows)))
        return 0
    clean.restart()
    print(f"{clean.machine()}; a weight of {rows * COLUMNS * 4 / 2**20:.0f} MiB")
    print(f"{'':56}{'make ms':>9}{'run ms':>9}{'held':>8}{'peak':>8}{'left':>8}")
    with tempfile.TemporaryDirectory(prefix="relaxvm-bench-") as name:
        folder = Path(name)
        write_models(folder, rows)
        for row in ROWS:
            if options.only and not any(text in row for text in options.only):
                continue
            env = dict(os.environ, RELAXVM_CACHE_DIR=str(folder / "cache"))
            command = [sys.executable, __file__, "--row", row, "--folder", name,
                       "--megabytes", str(options.megabytes)]  # fmt: skip
            done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            print(f"{row:56}{found['make']:9.0f}{found['run']:9.1f}{found['held']:8.2f}"
                  f"{found['peak']:8.2f}{found['left']:8.2f}", flush=True)  # fmt: skip
            if row.endswith("first"):
                time.sleep(2.5)  # files that were changed just now are found by their content
    return 0


# ---- programs ------------------------------------------------------------------------------


def module(weight: Any, *, is_parameter: bool = False) -> Any:
    """The product of a vector and a weight, which is an array or the shape of a parameter."""
    from relaxvm import ir, op
    from relaxvm.ir import BlockBuilder, TensorType, Var

    shape = weight if is_parameter else weight.shape
    x = Var("x", TensorType([1, shape[0]], "float32"))
    params = [x, Var("w", TensorType(list(shape), "float32"))] if is_parameter else [x]
    bb = BlockBuilder()
    with bb.function("main", params, attrs={"num_input": 1}):
        with bb.dataflow():
            second = params[1] if is_parameter else ir.const(weight)
            out = bb.emit_output(bb.emit(op.matmul(x, second)))
        bb.emit_func_output(out)
    return bb.finalize()


def write_models(folder: Path, rows: int) -> None:
    """ONNX models with the weight in the model and in a file of its own, and small ones."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    for name, op_type, size in [
        ("product", "MatMul", rows), ("lookup", "Gather", rows),
        ("small-product", "MatMul", 64), ("small-lookup", "Gather", 64),
    ]:  # fmt: skip
        weight = weight_of(size)
        is_product = op_type == "MatMul"
        x = helper.make_tensor_value_info(
            "x", *((TensorProto.FLOAT, ["n", size]) if is_product else (TensorProto.INT64, ["n"]))
        )
        node = helper.make_node(op_type, ["x", "w"] if is_product else ["w", "x"], ["y"])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", COLUMNS])
        graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weight, "w")])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        onnx.save(model, folder / f"{name}-inline.onnx")
        onnx.save(model, folder / f"{name}-external.onnx", save_as_external_data=True,
                  location=f"{name}.bin", size_threshold=16)  # fmt: skip


def weight_of(rows: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)


def built(folder: Path, rows: int, weight: Any) -> Any:
    import relaxvm

    return relaxvm.build(module(weight))


def built_with_params(folder: Path, rows: int, weight: Any) -> Any:
    import relaxvm

    made = module((rows, COLUMNS), is_parameter=True)
    return relaxvm.build(made, params={"w": weight})


def compiled(name: str, *, is_cached: bool) -> Callable[[Path, int, Any], Any]:
    def make(folder: Path, rows: int, weight: Any) -> Any:
        import relaxvm

        small = "small-" if rows == 64 else ""
        return relaxvm.compile(folder / f"{small}{name}.onnx", cache=is_cached)

    return make


def loaded(mmap: bool) -> Callable[[Path, int, Any], Any]:
    def make(folder: Path, rows: int, weight: Any) -> Any:
        import relaxvm

        path = folder / f"{rows}.rvm"
        if not path.exists():
            relaxvm.build(module(weight_of(rows))).export_library(path, aligned=True)
        return relaxvm.load(path, mmap=mmap)

    return make


ROWS: dict[str, Callable[[Path, int, Any], Any]] = {
    "build, a constant": built,
    "build, a read-only constant": built,
    "build, params=": built_with_params,
    "build, params= read-only": built_with_params,
    **{
        f"compile, {use} of a weight {place}, {state}": compiled(
            f"{file}-{kind}", is_cached=state != "no cache"
        )
        for file, use in [("product", "product"), ("lookup", "lookup")]
        for kind, place in [("inline", "in the model"), ("external", "in a file")]
        for state in ["no cache", "first", "again", "once more"]
    },
    "load": loaded(False),
    "load, mmap=True": loaded(True),
}


# ---- a row ---------------------------------------------------------------------------------


def measured(row: str, folder: Path, rows: int) -> dict[str, float]:
    import relaxvm

    make = ROWS[row]
    is_held = row.startswith("build")
    for _ in range(2):  # the second time, nothing of it is new
        small = weight_of(64) if is_held else None
        vm = relaxvm.VirtualMachine(make(folder, 64, small))
        vm.main(argument(row, 64))
    if row.startswith("load"):
        make(folder, rows, None)
    weight = weight_of(rows) if is_held else None
    if weight is not None and "read-only" in row:
        weight.flags.writeable = False
    x = argument(row, rows)
    del vm
    gc.collect()
    gc.disable()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    unit = rows * COLUMNS * 4
    before, resident = memory(), peak()
    begin = time.perf_counter()
    vm = relaxvm.VirtualMachine(make(folder, rows, weight))
    made = time.perf_counter() - begin
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        vm.main(x)
        times.append(time.perf_counter() - begin)
    held, most = memory() - before, peak() - resident
    del vm
    return {"make": made * 1e3, "run": min(times) * 1e3, "held": held / unit, "peak": most / unit,
            "left": (memory() - before) / unit}  # fmt: skip


def argument(row: str, rows: int) -> Any:
    return np.arange(3) if "lookup" in row else np.ones((1, rows), np.float32)


def memory() -> int:
    """The bytes of the process that are not pages of files."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/smaps_rollup has no line 'Anonymous:'")


def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no line 'VmHWM:'")


if __name__ == "__main__":
    sys.exit(main())
