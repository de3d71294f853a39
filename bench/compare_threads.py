"""Eight threads on one VM: wrong results, errors and calls per second, on relaxvm and on TVM.

    python bench/compare_threads.py [--threads 8] [--calls 3000] [--runs 3]

The program calls Python functions between moves of its registers, so that threads switch in the
middle of it.  Every call has its own input, and its result is checked.  Each run has its own
process, because the test may crash TVM's.  Needs the extra ``tvm``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import clean

STEPS = 4


def program() -> Any:
    """``main(x)``: add 1 to x with Python functions, STEPS times."""
    from relaxvm import ExecBuilder

    builder = ExecBuilder()
    with builder.function("step", num_inputs=1):
        builder.emit_call("bench.add_one", [builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    with builder.function("main", num_inputs=1):
        for i in range(STEPS):
            builder.emit_call("step", [builder.r(i)], dst=builder.r(i + 1))
        builder.emit_ret(builder.r(STEPS))
    return builder.get()


def add_one(x: int) -> int:
    time.sleep(0)  # lets another thread run
    return x + 1


def hammer(main: Callable[[int], int], threads: int, calls: int) -> tuple[int, int, float]:
    """Call `main` from many threads; return (wrong results, errors, seconds)."""
    wrong = [0] * threads
    errors = [0] * threads

    def work(number: int) -> None:
        for i in range(calls):
            x = number * calls + i
            try:
                wrong[number] += main(x) != x + STEPS
            except Exception:
                errors[number] += 1

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(wrong), sum(errors), time.perf_counter() - start


def on_relaxvm(threads: int, calls: int) -> str:
    import relaxvm

    vm = relaxvm.VirtualMachine(program(), functions={"bench.add_one": add_one})
    return summary(*hammer(vm["main"], threads, calls), threads * calls)


def on_tvm(threads: int, calls: int) -> str:
    import tvm
    from tvm import relax

    tvm.register_global_func("bench.add_one", add_one, override=True)
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    main = relax.VirtualMachine(read(program().to_bytes()), tvm.cpu())["main"]
    return summary(*hammer(main, threads, calls), threads * calls)


def summary(wrong: int, errors: int, seconds: float, calls: int) -> str:
    return f"{calls} calls: {wrong} wrong, {errors} errors, {calls / seconds:,.0f} calls/s"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=3000, help="per thread")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--side", choices=("relaxvm", "tvm"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run = on_relaxvm if options.side == "relaxvm" else on_tvm
        print(run(options.threads, options.calls))
        return 0
    for side in ("relaxvm", "tvm"):
        for _ in range(options.runs):
            print(f"{side:8}", in_process(side, options.threads, options.calls), flush=True)
    return 0


def in_process(side: str, threads: int, calls: int) -> str:
    command = [sys.executable, __file__, "--side", side, "--threads", str(threads),
               "--calls", str(calls)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "did not end within 300 s"
    if done.returncode < 0:
        return f"the process was ended by signal {-done.returncode}"
    return done.stdout.strip() or f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
