"""Run libraries that TVM exported on relaxvm, in a process without TVM.

    python -m tests.tvm_free FOLDER

runs every ``NAME.so`` of the folder on the calls of ``NAME.calls`` and writes ``NAME.results``: the
result of `run`, or its error.  Values can be read without relaxvm and without TVM: they are arrays,
numbers, tuples of these, and lists for shapes.
"""

from __future__ import annotations

import faulthandler
import json
import pickle
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import relaxvm

THREADS = 8
ROUNDS = 20


def half(x: np.ndarray, out: np.ndarray) -> None:
    np.multiply(x, np.float32(0.5), out=out)


PACKED: dict[str, Callable[..., Any]] = {"tests.models.half": half}
"""The functions of the host that models call."""

Calls = list[tuple[str, tuple[Any, ...]]]


def to_relaxvm(value: Any) -> Any:
    if isinstance(value, list):
        return relaxvm.Shape(value)
    return tuple(map(to_relaxvm, value)) if type(value) is tuple else value


def from_relaxvm(value: Any) -> Any:
    if isinstance(value, relaxvm.Shape):
        return list(value)
    return tuple(map(from_relaxvm, value)) if type(value) is tuple else value


def misaligned(value: Any) -> Any:
    """Copies of arrays whose addresses are one item off the alignment of vector registers."""
    if type(value) is tuple:
        return tuple(map(misaligned, value))
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    room = np.empty(value.nbytes + 64 + value.itemsize, np.uint8)
    start = -room.ctypes.data % 64 + value.itemsize
    moved = room[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    moved[...] = value
    return moved


def strided(value: Any) -> Any:
    """Copies of arrays with gaps between their items."""
    if type(value) is tuple:
        return tuple(map(strided, value))
    if not isinstance(value, np.ndarray) or not value.ndim:
        return value
    wide = np.zeros((*value.shape[:-1], value.shape[-1] * 2), value.dtype)
    wide[..., ::2] = value
    return wide[..., ::2]


def run(vm: relaxvm.VirtualMachine, calls: Calls, wrong: Calls) -> dict[str, Any]:
    """Run a model.

    Returns:
        ``results`` of the calls; those with ``misaligned`` and ``strided`` arrays; ``threads``:
        whether eight threads got equal results; ``errors``: class and message of each wrong call.
    """
    found: dict[str, Any] = {
        how.__name__: [from_relaxvm(vm[name](*to_relaxvm(how(args)))) for name, args in calls]
        for how in (results, misaligned, strided)
    }
    found["threads"] = in_threads(vm, calls, found["results"])
    found["errors"] = [error_of(vm, *call) for call in wrong]
    return found


def results(value: Any) -> Any:
    """Return the arrays unchanged."""
    return value


def in_threads(vm: relaxvm.VirtualMachine, calls: Calls, expected: list[Any]) -> bool:
    """Return whether threads that share a VM all get the results of a single thread."""
    barrier = threading.Barrier(THREADS)

    def work(_: int) -> bool:
        barrier.wait()
        return all(
            same(from_relaxvm(vm[name](*to_relaxvm(args))), want)
            for _ in range(ROUNDS)
            for (name, args), want in zip(calls, expected, strict=True)
        )

    with ThreadPoolExecutor(THREADS) as pool:
        return all(pool.map(work, range(THREADS)))


def same(got: Any, want: Any) -> bool:
    """Return whether two values are equal bit for bit."""
    if type(got) is not type(want):
        return False
    if isinstance(want, np.ndarray):
        alike = got.dtype == want.dtype and got.shape == want.shape
        return bool(alike) and got.tobytes() == want.tobytes()
    if isinstance(want, (tuple, list)):
        return len(got) == len(want) and all(map(same, got, want))
    return bool(got == want)


def error_of(vm: relaxvm.VirtualMachine, name: str, args: tuple[Any, ...]) -> tuple[str, str]:
    try:
        vm[name](*to_relaxvm(args))
    except Exception as error:
        return type(error).__name__, str(error)
    return "", "no error"


def traces_of_tvm() -> list[str]:
    """Modules and mapped files of this process that belong to TVM."""
    modules = [name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi")]
    maps = Path("/proc/self/maps")
    lines = maps.read_text(encoding="utf-8").splitlines() if maps.exists() else []
    return modules + sorted({line.split()[-1] for line in lines if "libtvm" in line})


def main(folder: Path) -> None:
    faulthandler.enable()
    for path in sorted(folder.glob("*.so")):
        print(path.name, file=sys.stderr, flush=True)  # to see where a crash happened
        calls, wrong = pickle.loads(path.with_suffix(".calls").read_bytes())
        try:
            vm = relaxvm.VirtualMachine(relaxvm.load_library(path), functions=PACKED)
            found = run(vm, calls, wrong)
        except Exception:  # continue with the others
            found = {"failed": traceback.format_exc()}
        path.with_suffix(".results").write_bytes(pickle.dumps(found))
    print(json.dumps(traces_of_tvm()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
