"""Calls per second by threads of one process, and by several processes.

One process has the weights once, and passes arrays by reference; its threads run Python code and
small kernels one at a time, and large kernels, which release the interpreter lock, side by side.
Processes have a machine each, and arguments and results are copied through pipes.

    python bench/compare_parallel.py --workers 2
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import clean
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

KINDS = {
    # name: width of a layer, layers, rows of a call
    "4 layers of 16, 1 row": (16, 4, 1),
    "4 layers of 256, 16 rows": (256, 4, 16),
    "8 layers of 1024, 64 rows": (1024, 8, 64),
    "1 layer of 64, 20,000 rows (5 MB)": (64, 1, 20_000),
}


def model(width: int, layers: int) -> Any:
    """An executable of so many layers."""
    import relaxvm
    from relaxvm import ir, op, tir

    rng = np.random.default_rng(0)
    builder = ir.BlockBuilder()
    n = tir.Var("n", "int64")
    x = ir.Var("x", ir.TensorType((n, width), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for _ in range(layers):
                weight = ir.const(rng.standard_normal((width, width), np.float32) / width**0.5)
                value = builder.emit(op.nn.relu(op.matmul(value, weight)))
            result = builder.emit_output(value)
        builder.emit_func_output(result)
    return relaxvm.compile(builder.get())


_machine: Any = None


def _start(executable: Any) -> None:
    """In a process: make the machine."""
    global _machine
    import relaxvm

    relaxvm.set_num_threads(1)
    _machine = relaxvm.VirtualMachine(executable)


def _call(x: Array) -> Array:
    result: Array = _machine["main"](x)
    return result


def by_threads(executable: Any, workers: int) -> tuple[Callable[[Array, int], None], Any]:
    """Calls by the scheduler of a server."""
    import relaxvm
    from relaxvm.serve import Scheduler

    relaxvm.set_num_threads(1)
    vm = relaxvm.VirtualMachine(executable)
    scheduler = Scheduler(threads=workers)
    share = scheduler.share("model", slots=4 * workers, queue=1_000_000)

    def calls(x: Array, count: int) -> None:
        jobs = [scheduler.submit(share, lambda: vm["main"].start(x)) for _ in range(count)]
        for job in jobs:
            job.result()

    return calls, scheduler.close


def by_processes(executable: Any, workers: int) -> tuple[Callable[[Array, int], None], Any]:
    """Calls by a pool of processes."""
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(executable,)
    )

    def calls(x: Array, count: int) -> None:
        jobs = [pool.submit(_call, x) for _ in range(count)]
        for job in jobs:
            job.result()

    return calls, pool.shutdown


def in_a_row(executable: Any, workers: int) -> tuple[Callable[[Array, int], None], Any]:
    """Calls of the machine, one after the other."""
    import relaxvm

    relaxvm.set_num_threads(1)
    vm = relaxvm.VirtualMachine(executable)

    def calls(x: Array, count: int) -> None:
        for _ in range(count):
            vm["main"](x)

    return calls, lambda: None


WAYS = {"in a row": in_a_row, "threads": by_threads, "processes": by_processes}


def memory() -> float:
    """Proportional set size of this process and its children, in MB: shared pages count once."""
    pids = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    clean.restart()
    print(f"{clean.machine()}; {options.workers} workers, calls per second (MB of all processes)")
    print("| a call | " + " | ".join(WAYS) + " |\n|---|" + "---:|" * len(WAYS))
    for name, (width, layers, rows) in KINDS.items():
        executable = model(width, layers)
        x = np.ones((rows, width), np.float32)
        cells = []
        for make in WAYS.values():
            calls, close = make(executable, options.workers)
            try:
                calls(x, 2 * options.workers)
                count, taken = 4, 0.0
                while taken < options.seconds / 4:
                    count *= 2
                    begun = time.perf_counter()
                    calls(x, count)
                    taken = time.perf_counter() - begun
                count = max(1, round(count * options.seconds / taken))
                best = float("inf")
                for _ in range(options.rounds):
                    begun = time.perf_counter()
                    calls(x, count)
                    best = min(best, (time.perf_counter() - begun) / count)
                used = memory() if Path("/proc/self/smaps_rollup").exists() else 0.0
            finally:
                close()
            cells.append(f"{1 / best:,.0f} ({used:.0f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
