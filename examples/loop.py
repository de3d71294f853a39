"""A loop of 10,000 iterations, and a limit on instructions that stops an endless one."""

from __future__ import annotations

import relaxvm
from relaxvm.errors import LimitError


@relaxvm.register_func("example.add")
def add(a: int, b: int) -> int:
    return a + b


@relaxvm.register_func("example.at_most")
def at_most(a: int, b: int) -> bool:
    return a <= b


ib = relaxvm.ExecBuilder()

# total = 0; i = 1; while i <= n: total += i; i += 1
with ib.function("sum_to", num_inputs=1, param_names=["n"]):
    n, i, total, more = (ib.r(k) for k in range(4))
    loop, done = ib.label("loop"), ib.label("done")
    ib.emit_call("vm.builtin.copy", [ib.imm(1)], dst=i)
    ib.emit_call("vm.builtin.copy", [ib.imm(0)], dst=total)
    ib.bind(loop)
    ib.emit_call("example.at_most", [i, n], dst=more)
    ib.emit_if(more, done)
    ib.emit_call("example.add", [total, i], dst=total)
    ib.emit_call("example.add", [i, ib.imm(1)], dst=i)
    ib.emit_goto(loop)
    ib.bind(done)
    ib.emit_ret(total)

executable = ib.get()
print(executable.as_text().partition("\n\n")[0])  # the labels are now offsets

vm = relaxvm.VirtualMachine(executable)
print("sum_to(10000) =", vm.sum_to(10_000))

# For programs you do not trust: limit the number of instructions per call.
vm = relaxvm.VirtualMachine(executable, limits=relaxvm.Limits(fuel=10_000))
print("sum_to(1000) =", vm.sum_to(1_000))
try:
    vm.sum_to(10_000)
except LimitError as error:
    print("sum_to(10000):", error)
