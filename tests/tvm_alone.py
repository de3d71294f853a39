"""Run libraries that relaxvm exported on TVM, in a process without relaxvm.

    python tvm_alone.py FOLDER

runs every ``NAME.so`` of the folder on the calls of ``NAME.calls``, and writes ``NAME.results``:
for each call, its result or the class and message of its error.  Arrays are numpy arrays, shapes
are lists.
"""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax


def to_tvm(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return tvm.runtime.tensor(value)
    if isinstance(value, list):
        return tvm_ffi.Shape(value)
    return tvm_ffi.Array(list(map(to_tvm, value))) if isinstance(value, tuple) else value


def from_tvm(value: Any) -> Any:
    if isinstance(value, tvm.runtime.Tensor):
        return value.numpy()
    if isinstance(value, tvm_ffi.Shape):
        return list(value)
    return tuple(map(from_tvm, value)) if isinstance(value, (tvm_ffi.Array, tuple)) else value


def answer(machine: relax.VirtualMachine, function: str, args: tuple[Any, ...]) -> Any:
    try:
        return from_tvm(machine[function](*map(to_tvm, args)))
    except Exception as error:
        return type(error), str(error)


@tvm.register_global_func("tests.twice")
def twice(x: Any) -> Any:
    return tvm.runtime.tensor(x.numpy() * 2)


def from_threads(library: Any, calls: list[Any]) -> list[Any]:
    """Answers to calls from several threads at once.  Each has a VM of its own, since TVM's may not
    be shared; the code of the kernels is the same for all."""
    local = threading.local()

    def run(call: Any) -> Any:
        if not hasattr(local, "machine"):
            local.machine = relax.VirtualMachine(library, tvm.cpu())
        return answer(local.machine, *call)

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(run, calls))


def main(folder: Path) -> None:
    for path in sorted(folder.glob("*.so")):
        library = tvm.runtime.load_module(str(path))
        machine = relax.VirtualMachine(library, tvm.cpu())
        calls = pickle.loads(path.with_suffix(".calls").read_bytes())
        results = [answer(machine, *call) for call in calls]
        if path.stem == "threads":
            results = from_threads(library, calls * 20)
        path.with_suffix(".results").write_bytes(pickle.dumps(results))
    assert "relaxvm" not in sys.modules


if __name__ == "__main__":
    main(Path(sys.argv[1]))
