"""Speed of the verifier and of loading, in instructions per second.

    python bench/bench_verify.py [--instructions N ...] [--json FILE]

Each row is a kind of code in one size; the minimum processor time of some runs counts.  Several
kinds are worst cases, for which the verifier must be linear as well.  For the first kind, loading
from bytes to a verified executable is timed too.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import clean
import numpy as np

from relaxvm import ExecBuilder, FunctionInfo, Limits, VMExecutable, isa
from relaxvm.executable.formats import binary
from relaxvm.isa import FuncKind
from relaxvm.verify import verify

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
LIMITS = Limits().but(functions=None, instructions=None, constants=None)


def compiled_code(n: int) -> VMExecutable:
    """The code that TVM's compiler emits for elementwise operators, and a branch."""
    one = _operators(16)
    times = max(1, n // len(one))
    words, instrs = len(one.instr_data), len(one)
    packed = [f for f in one.functions if f.kind == FuncKind.PACKED]
    main = next(f for f in one.functions if f.kind == FuncKind.BYTECODE)
    position = one.functions.index(main)
    copies = [
        replace(main, name=f"main{i}", start_instr=i * instrs, end_instr=(i + 1) * instrs)
        for i in range(times)
    ]
    functions = [*packed[:position], copies[0], *packed[position:], *copies[1:]]
    offsets = (one.instr_offset + words * np.arange(times)[:, None]).reshape(-1)
    return VMExecutable(functions, one.constants, offsets, np.tile(one.instr_data, times))


def _operators(count: int) -> VMExecutable:
    b = ExecBuilder()
    r, imm = b.r, b.imm
    names = "float32", "uint8"
    f32, u8 = (b.convert_constant(np.dtype(name)) for name in names)
    context, scope = b.convert_constant("ErrorContext(fn=main) "), b.convert_constant("global")
    builtin: Callable[..., None] = lambda name, args, dst=None: b.emit_call(  # noqa: E731
        f"vm.builtin.{name}", args, dst=dst
    )
    with b.function("main", num_inputs=2, param_names=["x", "y"]):
        builtin("alloc_shape_heap", [b.vm_state(), imm(2)], r(2))
        for x, ndim in ((0, 2), (1, 1)):
            builtin("check_tensor_info", [r(x), imm(ndim), f32, context])
        builtin("match_shape", [r(0), r(2), imm(2), imm(1), imm(0), imm(0), imm(4), context])
        for _ in range(count):
            b.emit_call("shape_func", [r(2)])
            builtin("make_shape", [r(2), imm(1), imm(1), imm(1)], r(3))
            b.emit_if(r(3), 4)
            builtin("alloc_storage", [b.vm_state(), r(3), imm(0), u8, scope], r(4))
            builtin("alloc_tensor", [r(4), imm(0), r(3), f32], r(5))
            builtin("null_value", [], r(4))
            b.emit_call("add", [r(0), r(1), r(5)])
        builtin("make_tuple", [r(5), r(0)], r(6))
        b.emit_ret(r(6))
    return b.get()


def _single(code: np.ndarray, width: int, *callees: FunctionInfo) -> VMExecutable:
    """An executable of one function, whose instructions all have `width` words."""
    n = len(code) // width
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, n, 1, 4)
    return VMExecutable([main, *callees], [], np.arange(n) * width, code)


def jumps_forward(n: int) -> VMExecutable:
    """A branch per instruction."""
    code = np.tile(np.array([4, 0, 2]), n - 2)
    rest = np.array([2, 0, 2, 0])
    offsets = np.concatenate((np.arange(n - 2) * 3, [(n - 2) * 3, (n - 2) * 3 + 2]))
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, n, 1, 4)
    return VMExecutable([main], [], offsets, np.concatenate((code, rest)))


def jumps_backward(n: int) -> VMExecutable:
    """A chain of jumps, each to the previous instruction: a search finds one at a time."""
    code = np.tile(np.array([3, -1]), n)
    code[:4] = 3, n - 1, 2, 0
    return _single(code, 2)


def small_functions(n: int) -> VMExecutable:
    """A function per instruction."""
    functions = [FunctionInfo(FuncKind.BYTECODE, f"f{i}", i, i + 1, 1, 1) for i in range(n)]
    return VMExecutable(functions, [], np.arange(n) * 2, np.tile(np.array([2, 0]), n))


def long_calls(n: int) -> VMExecutable:
    """64 arguments per call."""
    code = np.tile(np.array([1, 0, 1, 64, *[0, 1, 2, 3] * 16]), n)
    code[-68:] = np.array([1, 0, 1, 64, *[0] * 64])
    ret = np.array([2, 0])
    offsets = np.append(np.arange(n - 1) * 68, (n - 1) * 68)
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, n, 1, 4)
    words = np.concatenate((code[: (n - 1) * 68], ret))
    return VMExecutable([main, FunctionInfo(FuncKind.PACKED, "f")], [], offsets, words)


def distinct_builtins(n: int) -> VMExecutable:
    """Calls of a builtin with a check of its immediates, which are different in every call."""
    immediate = isa.encode_arg(isa.ArgKind.IMMEDIATE, 0)
    code = np.tile(np.array([1, 0, 1, 4, 0, immediate + 1, immediate, immediate]), n)
    code.reshape(-1, 8)[:, 7] += np.arange(n)
    offsets = np.append(np.arange(n - 1) * 8, (n - 1) * 8)
    words = np.concatenate((code[: (n - 1) * 8], [2, 0]))
    main = FunctionInfo(FuncKind.BYTECODE, "main", 0, n, 1, 4)
    callee = FunctionInfo(FuncKind.PACKED, "vm.builtin.make_shape")
    return VMExecutable([main, callee], [], offsets, words)


def wrong_everywhere(n: int) -> VMExecutable:
    """Every instruction breaks three rules."""
    return _single(np.tile(np.array([1, 9, 7, 1, -5]), n), 5)


ROWS: dict[Callable[[int], VMExecutable], tuple[bool, int]] = {
    compiled_code: (True, SIZES[-1]),
    jumps_forward: (True, SIZES[-1]),
    jumps_backward: (True, SIZES[-1]),
    small_functions: (True, 1_000_000),
    long_calls: (True, 1_000_000),
    distinct_builtins: (True, 1_000_000),
    wrong_everywhere: (False, SIZES[-1]),
}
"""Kind of code -> whether it is valid, and the largest size to time."""


def seconds(work: Callable[[], Any], runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def measure(sizes: list[int]) -> Iterator[dict[str, Any]]:
    for build, (valid, greatest) in ROWS.items():
        for size in sizes:
            if size > greatest:
                continue
            executable = build(size)
            report = verify(executable, limits=LIMITS)
            assert report.ok == valid, str(report)
            runs = 3 if size < 10_000_000 else 1
            taken = {"verify": seconds(lambda ex=executable: verify(ex, limits=LIMITS), runs)}
            nbytes = None
            if build is compiled_code:
                data = binary.dumps(executable)
                nbytes = len(data)
                taken["read and verify"] = seconds(
                    lambda data=data: verify(binary.loads(data, limits=LIMITS), limits=LIMITS), runs
                )
            for what, spent in taken.items():
                yield {
                    "code": build.__name__,
                    "what": what,
                    "instructions": len(executable),
                    "seconds": spent,
                    "per_second": len(executable) / spent,
                    "bytes_per_second": nbytes / spent if nbytes else None,
                }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instructions", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON")
    options = parser.parse_args()
    print(f"CPython {platform.python_version()}, numpy {np.__version__}, {clean.machine()}")
    print(f"{'code':20}{'what':18}{'instructions':>13}{'seconds':>10}{'M instr/s':>11}{'MB/s':>8}")
    table = []
    for row in measure(options.instructions):
        table.append(row)
        speed = f"{row['bytes_per_second'] / 1e6:8.0f}" if row["bytes_per_second"] else ""
        print(f"{row['code']:20}{row['what']:18}{row['instructions']:>13,}{row['seconds']:>10.3f}"
              f"{row['per_second'] / 1e6:>11.2f}{speed}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)
    return 0


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
