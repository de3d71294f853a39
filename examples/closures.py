"""Closures: functions as values, with captured values."""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxvm


@relaxvm.register_func("example.multiply")
def multiply(x: Any, y: Any) -> Any:
    return x * y


ib = relaxvm.ExecBuilder()

with ib.function("scale", num_inputs=2, param_names=["x", "factor"]):
    ib.emit_call("example.multiply", [ib.r(0), ib.r(1)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))

# The captured values come after the arguments of the call: if f is make_scaler(3), then f(x) is
# scale(x, 3).
with ib.function("make_scaler", num_inputs=1, param_names=["factor"]):
    ib.emit_call("vm.builtin.make_closure", [ib.f("scale"), ib.r(0)], dst=ib.r(1))
    ib.emit_ret(ib.r(1))

# A program calls a closure, or any other function value, through a builtin.
with ib.function("twice", num_inputs=2, param_names=["x", "f"]):
    ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(1), ib.r(0)], dst=ib.r(2))
    ib.emit_call("vm.builtin.invoke_closure", [ib.vm_state(), ib.r(1), ib.r(2)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))

# Closures are values too: this one captures another closure.
with ib.function("make_twice", num_inputs=1, param_names=["f"]):
    ib.emit_call("vm.builtin.make_closure", [ib.f("twice"), ib.r(0)], dst=ib.r(1))
    ib.emit_ret(ib.r(1))

vm = relaxvm.VirtualMachine(ib.get())

triple = vm.make_scaler(3)
print("triple(14):", triple(14))  # Python calls a closure like a function
print("triple of a tensor:", triple(np.arange(4)))

print("twice(14, triple):", vm.twice(14, triple))
ninefold = vm.make_twice(triple)
print("ninefold(1):", ninefold(1))
print("ninefold twice:", vm.make_twice(ninefold)(1))

captured = ninefold.captured[0]
print("what ninefold carries along is triple:", captured is triple)
