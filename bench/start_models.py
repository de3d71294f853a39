"""From a cold process to the first result of a model: relaxvm with its cache, and onnxruntime.

`compare` is what ``python bench/compare_start.py --models`` runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODULES = {"relaxvm": "relaxvm.contrib.onnxruntime", "onnxruntime": "onnxruntime"}

START = """
import sys
import numpy as np
import {module} as runtime
options = runtime.SessionOptions()
options.intra_op_num_threads = 1
session = runtime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
kinds = {{"float": "f4", "double": "f8", "float16": "f2", "int64": "i8", "int32": "i4",
         "int8": "i1", "uint8": "u1", "bool": "?"}}
given, values = {shapes!r}, {values!r}
feed = {{}}
for each in session.get_inputs():
    shape = given.get(each.name, [dim if isinstance(dim, int) else 1 for dim in each.shape])
    feed[each.name] = np.full(shape, values.get(each.name, 0), kinds[each.type[7:-1]])
session.run(None, feed)
import resource
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, used.ru_maxrss // 1024)
"""


def compare(
    models: list[str], shapes: list[str], values: list[str], repeats: int
) -> dict[str, Any]:
    """Print a row for each model, and return the rows.

    Each start is a process of its own: it starts Python, imports numpy and the runtime, loads the
    model, and runs it once on zeros, with one thread.  The starts of both sides alternate.  A row
    has the minima of the time on the clock, which is that of the whole process as its parent sees
    it, of the processor time, and of the peak of its memory.  A first start of each side does not
    count: it writes .pyc files and fills the cache of compiled programs, in a folder that is
    removed.

    Args:
        models: paths of ONNX models.
        shapes: texts such as ``x=1,3,48,320`` for inputs whose symbolic dimensions are not 1.
        values: texts such as ``sr=16000`` for inputs that are not 0.
        repeats: the number of starts.
    """
    given = {"shapes": dict(map(_shape, shapes)), "values": dict(map(_value, values))}
    rows: dict[str, Any] = {}
    print(f"{'':34}{'clock':>22}{'processor':>22}{'peak memory':>19}")
    print(f"{'':34}" + f"{'relaxvm':>8}{'ort':>8}{'ratio':>6}" * 2 + f"{'relaxvm':>9}{'ort':>7}")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            sides = {name: _start(module, model, given, folder, is_first=True)
                     for name, module in MODULES.items()}  # fmt: skip
            for _ in range(repeats):
                for name, module in MODULES.items():
                    sides[name] = [*map(min, sides[name], _start(module, model, given, folder))]
            rows[model] = sides
            print(_row(Path(model).name, sides["relaxvm"], sides["onnxruntime"]), flush=True)
    return rows


def _shape(text: str) -> tuple[str, list[int]]:
    name, _, dims = text.rpartition("=")
    return name, [int(dim) for dim in dims.split(",") if dim]


def _value(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    return name, float(value)


def _start(
    module: str, model: str, given: dict[str, Any], folder: str, *, is_first: bool = False
) -> list[float]:
    """Seconds on the clock, seconds of the processor and MiB of one start."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPYCACHEPREFIX": f"{folder}/pyc", "RELAXVM_CACHE_DIR": f"{folder}/cache"}
    code = START.format(module=module, **given)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, model], capture_output=True, text=True, env=env, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise SystemExit(f"{model}: {module} failed:\n{done.stderr}")
    used, memory = done.stdout.split()[-2:]
    return [seconds, float(used), float(memory)] if not is_first else [float("inf")] * 3


def _row(name: str, ours: list[float], theirs: list[float]) -> str:
    times = "".join(
        f"{mine * 1e3:5.0f} ms{other * 1e3:5.0f} ms{mine / other:6.2f}"
        for mine, other in zip(ours[:2], theirs[:2], strict=True)
    )
    return f"{name[:33]:34}{times}{ours[2]:5.0f} MiB{theirs[2]:4.0f} MiB"

