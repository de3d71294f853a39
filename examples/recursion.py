"""A recursive function, and what happens if a recursion never ends."""

from __future__ import annotations

import relaxvm
from relaxvm.errors import LimitError


@relaxvm.register_func("example.is_positive")
def is_positive(n: int) -> bool:
    return n > 0


@relaxvm.register_func("example.decrement")
def decrement(n: int) -> int:
    return n - 1


@relaxvm.register_func("example.product")
def product(a: int, b: int) -> int:
    return a * b


ib = relaxvm.ExecBuilder()

with ib.function("factorial", num_inputs=1, param_names=["n"]):
    n, more, rest, result = (ib.r(i) for i in range(4))
    stop = ib.label("stop")
    ib.emit_call("example.is_positive", [n], dst=more)
    ib.emit_if(more, stop)
    ib.emit_call("example.decrement", [n], dst=rest)
    ib.emit_call("factorial", [rest], dst=rest)
    ib.emit_call("example.product", [n, rest], dst=result)
    ib.emit_ret(result)
    ib.bind(stop)
    ib.emit_call("vm.builtin.copy", [ib.imm(1)], dst=result)
    ib.emit_ret(result)

with ib.function("forever", num_inputs=1, param_names=["x"]):
    ib.emit_call("forever", [ib.r(0)], dst=ib.r(1))
    ib.emit_ret(ib.r(1))

vm = relaxvm.VirtualMachine(ib.get())
print("factorial(5) =", vm.factorial(5))
print("factorial(20) =", vm.factorial(20))

# The frames of a program are on the heap, not on the stack of the process. A recursion may be deep;
# an endless one reaches a limit instead of crashing the process.
print("factorial(5000) has", vm.factorial(5000).bit_length(), "bits")
try:
    vm.forever(0)
except LimitError as error:
    print(error)

# The error leaves the virtual machine usable.
print("factorial(5) =", vm.factorial(5))
