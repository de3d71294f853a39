"""Kernels in C, called from a program: `make`, then `python run.py`.

The argument is the library to load, by default the ``kernels.so`` next to this file.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import relaxvm

library = sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "kernels.so"
# By default a kernel writes into its last argument; norm writes into none.
kernels = relaxvm.load_kernels(library)
kernels |= relaxvm.load_kernels(library, ["norm"], writes=())
print(", ".join(kernels))

# A kernel is a Python function like any other ...
steps = np.empty(10, np.int64)
kernels["collatz"](np.arange(1, 11), steps)
print("steps to 1 from 1 ... 10:", steps.tolist())
print("norm:", kernels["norm"](np.array([[3.0, 0.0], [0.0, 4.0]])))

# ... and programs can call it.
ib = relaxvm.ExecBuilder()
with ib.function("main", num_inputs=3, param_names=["x", "y", "out"]):
    x, y, out = (ib.r(k) for k in range(3))
    ib.emit_call("saxpy", [ib.imm(3), x, y, out])
    ib.emit_ret(out)
vm = relaxvm.VirtualMachine(ib.get(), functions=kernels)

ones = np.ones(4, np.float32)
print("3 * 1 + 2 =", vm.main(ones, 2 * ones, np.empty(4, np.float32)))
try:
    vm.main(ones, 2 * ones, np.empty(5, np.float32))
except ValueError as error:
    print(f"{type(error).__name__}: {error}", *error.__notes__, sep="\n  ")
