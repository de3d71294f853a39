"""What a call of the drop-in takes above an empty function of TVM's FFI, with a tensor in and out.

    python bench/compare_drop_in.py [--repeats N] [--calls N] [--json FILE]

The empty functions are C code behind TVM's FFI, in a library that the script compiles: one returns
nothing, the other its argument.  Beside them run a program that returns its argument, and one that
adds a number to a tensor of four and returns the new tensor, on the drop-in and on TVM's VM.  They
alternate in one process, with tensors of TVM in and out, and the minimum of each counts.  The time
of an empty Python loop is subtracted.  The exit status is 1 if the drop-in's call takes more than
150 ns above the function that returns its argument.  Needs the extra ``tvm`` and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import clean
import numpy as np

from relaxvm.testing import dispatch_rows as rows

REQUIRED = 150.0
"""Nanoseconds that a call of the drop-in may take above the function that returns its argument."""

SOURCE = """
#include <tvm/ffi/c_api.h>
TVM_FFI_DLL_EXPORT int __tvm_ffi_empty(void *self, const TVMFFIAny *args, int32_t count,
                                       TVMFFIAny *result) {
    (void)self, (void)args, (void)count;
    result->type_index = kTVMFFINone;
    return 0;
}
TVM_FFI_DLL_EXPORT int __tvm_ffi_echo(void *self, const TVMFFIAny *args, int32_t count,
                                      TVMFFIAny *result) {
    (void)self, (void)count;
    *result = args[0];
    return TVMFFIObjectIncRef(args[0].v_obj);
}
"""

EMPTY, ECHO, OURS = "empty function", "function that returns its argument", "drop-in"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200, help="turns of each side")
    parser.add_argument("--calls", type=int, default=2000, help="calls of a turn")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()

    import tvm
    import tvm_ffi

    print(f"TVM {tvm.__version__}, its FFI {tvm_ffi.__version__}, CPython "
          f"{platform.python_version()}, {clean.machine()}")
    with tempfile.TemporaryDirectory() as folder:
        table = minima(functions(Path(folder)), options.repeats, options.calls)
    above = {name: best - table[ECHO] for name, best in table.items()}
    print(f"{'ns per call':46}{'time':>8}{'above the second':>18}")
    for name, best in table.items():
        print(f"{name:46}{best:8.0f}{above[name]:18.0f}")
    needed = above[f"{OURS}, the same"]
    print(f"the drop-in takes {needed:.0f} ns above the function that returns its argument; "
          f"{REQUIRED:.0f} are allowed")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"ns": table, "above": above}, file, indent=1)
    return 0 if needed <= REQUIRED else 1


def functions(folder: Path) -> dict[str, Callable[[Any], Any]]:
    """What is timed.  Each takes one tensor."""
    import tvm
    import tvm_ffi
    from tvm import relax

    from relaxvm.contrib.tvm import VirtualMachine

    source, library = folder / "empty.c", folder / "empty.so"
    source.write_text(SOURCE, encoding="utf-8")
    compiler = os.environ.get("CC", "cc").split()
    includes = [f"-I{path}" for path in (tvm_ffi.libinfo.find_include_path(),
                                         tvm_ffi.libinfo.find_dlpack_include_path())]  # fmt: skip
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", *includes, source, "-o", library],
                   check=True)  # fmt: skip
    module = tvm_ffi.load_module(str(library))
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    echo = read(rows.entry(1).to_bytes())
    add = tvm.compile(adding(), tvm.target.Target("llvm"))
    found = {EMPTY: module.empty, ECHO: module.echo}
    for side, machine in ((OURS, VirtualMachine), ("TVM", relax.VirtualMachine)):
        found[f"{side}, the same"] = machine(echo, tvm.cpu())["main"]
        found[f"{side}, adding to four numbers"] = machine(add, tvm.cpu())["main"]
    x = tvm.runtime.tensor(np.arange(4, dtype="float32"))
    for name, function in found.items():
        if name != EMPTY:
            want = np.arange(4) + (2 if "adding" in name else 0)
            assert np.array_equal(function(x).numpy(), want), f"{name}: another result"
    return found


def adding() -> Any:
    """A module of TVM whose `main` adds two to a tensor of four."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(
                builder.emit(relax.op.add(x, relax.const(2.0, "float32"))))  # fmt: skip
        builder.emit_func_output(result)
    return builder.get()


def minima(
    functions: dict[str, Callable[[Any], Any]], repeats: int, calls: int
) -> dict[str, float]:
    """The least nanoseconds of a call of each function; they alternate."""
    import tvm

    x = tvm.runtime.tensor(np.arange(4, dtype="float32"))
    best = dict.fromkeys(functions, math.inf)
    loop = math.inf
    for _ in range(repeats):
        loop = min(loop, turn(None, x, calls))
        for name, function in functions.items():
            best[name] = min(best[name], turn(function, x, calls))
    return {name: seconds - loop for name, seconds in best.items()}


def turn(function: Callable[[Any], Any] | None, x: Any, calls: int) -> float:
    start = time.perf_counter_ns()
    if function is None:
        for _ in range(calls):
            pass
    else:
        for _ in range(calls):
            function(x)
    return (time.perf_counter_ns() - start) / calls


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
