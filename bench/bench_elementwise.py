"""Chains of elementwise operators on four floats, on relaxvm and on TVM's C++ VM.

    python bench/bench_elementwise.py [--repeats N] [--operators N] [--json FILE]

An operator is the code that the compiler emits for it: ``alloc_storage``, ``alloc_tensor``, the
call of the kernel, and the kills of the storage and of the operator's input.  The same executable
runs on both sides; relaxvm uses its ``relaxvm.kernel.*``, TVM functions that it compiles for
exactly this shape.  Results are compared before anything is timed, and the two sides alternate.
Without the extra ``tvm`` only relaxvm runs.  The exit status is 1 if an operator takes more than a
third of TVM's time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import clean
import numpy as np

import relaxvm
from relaxvm import ExecBuilder, Shape, VMExecutable

SHAPE = (4,)
FLOAT32 = np.dtype("float32")
X = np.linspace(0.5, 1.0, 4, dtype=FLOAT32)

UNARY = frozenset({"negative", "tanh"})
CHAINS = {
    "add": ("add",),
    "multiply": ("multiply",),
    "negative": ("negative",),
    "add, multiply, maximum, negative": ("add", "multiply", "maximum", "negative"),
    "tanh, multiply, add": ("tanh", "multiply", "add"),
}
REQUIRED_RATIO = 3.0
"""Required ratio of TVM's time to relaxvm's, for each chain."""


def chain(names: tuple[str, ...], count: int) -> VMExecutable:
    """``count`` operators, each on the previous result and, if it takes two operands, on `X`."""
    b = ExecBuilder()
    size, shape, uint8, float32, scope = map(
        b.convert_constant, (Shape((16,)), Shape(SHAPE), np.dtype("uint8"), FLOAT32, "global")
    )
    with b.function("main", num_inputs=1):
        last = 0
        for i in range(count):
            name, out = names[i % len(names)], 2 + i % 2
            b.emit_call("vm.builtin.alloc_storage",
                        [b.vm_state(), size, b.imm(0), uint8, scope], dst=b.r(1))  # fmt: skip
            b.emit_call("vm.builtin.alloc_tensor", [b.r(1), b.imm(0), shape, float32],
                        dst=b.r(out))  # fmt: skip
            b.emit_call("vm.builtin.null_value", [], dst=b.r(1))
            inputs = [b.r(last)] if name in UNARY else [b.r(last), b.r(0)]
            b.emit_call(f"relaxvm.kernel.{name}", [*inputs, b.r(out)])
            if last:
                b.emit_call("vm.builtin.null_value", [], dst=b.r(last))
            last = out
        b.emit_ret(b.r(last))
    return b.get()


def on_tvm(executable: VMExecutable) -> Any:
    """Return a function that runs the executable on TVM's VM."""
    import tvm
    from tvm import relax

    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    machine = relax.VirtualMachine(read(executable.to_bytes()), tvm.cpu())
    x = tvm.runtime.tensor(X)
    return lambda: machine["main"](x)


def register_tvm_kernels() -> None:
    """Compile TVM's kernels for float32[4] and register them under relaxvm's names."""
    import tvm
    from tvm import te

    a, b = (te.placeholder(SHAPE, "float32", name=name) for name in "ab")
    computed = {
        "add": ([a, b], lambda i: a[i] + b[i]),
        "multiply": ([a, b], lambda i: a[i] * b[i]),
        "maximum": ([a, b], lambda i: te.if_then_else(a[i] > b[i], a[i], b[i])),
        "negative": ([a], lambda i: -a[i]),
        "tanh": ([a], lambda i: te.tanh(a[i])),
    }
    functions = {}
    for name, (inputs, body) in computed.items():
        func = te.create_prim_func([*inputs, te.compute(SHAPE, body, name="out")])
        functions[name] = func.with_attr("global_symbol", name)
    built = tvm.compile(tvm.IRModule(functions), target="llvm")
    for name in functions:
        tvm.register_global_func(f"relaxvm.kernel.{name}", built[name], override=True)


def timed(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / count


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200, help="times each side runs a chain")
    parser.add_argument("--operators", type=int, default=200, help="operators of a chain")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()

    with_tvm = importlib.util.find_spec("tvm") is not None
    if with_tvm:
        register_tvm_kernels()
    print(f"relaxvm {relaxvm.__version__}, CPython {platform.python_version()}, "
          f"numpy {np.__version__}, {clean.machine()}")
    print(f"ns per operator on float32[4], {options.operators} operators in a row")
    print(f"{'':36}{'TVM':>10}{'relaxvm':>10}{'ratio':>8}")
    table = []
    for title, names in CHAINS.items():
        executable = chain(names, options.operators)
        machine = relaxvm.VirtualMachine(executable)
        sides: list[Callable[[], Any]] = [lambda machine=machine: machine["main"](X)]
        if with_tvm:
            sides.append(on_tvm(executable))
            np.testing.assert_allclose(sides[0](), sides[1]().numpy(), rtol=1e-5)
        best = [min(timed(side, options.operators) for _ in range(3)) for side in sides]
        for _ in range(options.repeats):
            best = [min(b, timed(s, options.operators)) for b, s in zip(best, sides, strict=True)]
        ours, theirs = best[0], best[1] if with_tvm else None
        ratio = theirs / ours if theirs is not None else None
        shown = f"{theirs:10.1f}" if theirs is not None else " " * 10
        print(f"{title:36}{shown}{ours:10.1f}" + (f"{ratio:8.1f}" if ratio is not None else ""))
        table.append({"name": title, "tvm_ns": theirs, "relaxvm_ns": ours, "ratio": ratio})
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": table, "required_ratio": REQUIRED_RATIO}, file, indent=1)
    return int(any(row["ratio"] is not None and row["ratio"] < REQUIRED_RATIO for row in table))


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
