"""Instruments: watch the calls of a program, or skip them, without changing the program.

An instrument is called before and after every call instruction, with the function, its name,
whether this is before the call, the result (None before the call) and the arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import relaxvm


@relaxvm.register_func("example.publish")
def publish(x: np.ndarray) -> None:
    print(f"published: {x:.3f}")


# entropy(p) = -sum(p * log(p)); it also publishes the result.
ib = relaxvm.ExecBuilder()
with ib.function("entropy", num_inputs=1, param_names=["p"]):
    p, storage, logs, result = (ib.r(i) for i in range(4))
    float32, scope = ib.convert_constant(np.dtype("float32")), ib.convert_constant("global")
    for shape, tensor in (((4,), logs), ((), result)):
        size = [ib.convert_constant(shape), ib.imm(0), float32, scope]
        ib.emit_call("vm.builtin.alloc_storage", [ib.vm_state(), *size], dst=storage)
        ib.emit_call("vm.builtin.alloc_tensor", [storage, ib.imm(0), shape, float32], dst=tensor)
    ib.emit_call("relaxvm.kernel.log", [p, logs])
    ib.emit_call("relaxvm.kernel.multiply", [p, logs, logs])
    ib.emit_call("relaxvm.kernel.sum", [logs, result])
    ib.emit_call("relaxvm.kernel.negative", [result, result])
    ib.emit_call("example.publish", [result])
    ib.emit_ret(result)

vm = relaxvm.VirtualMachine(ib.get())
p = np.array([0.5, 0.25, 0.25, 0], np.float32)
np.set_printoptions(precision=3)

# The result is NaN.  Why?
np.seterr(divide="ignore", invalid="ignore")  # numpy would warn without saying where
vm.entropy(p)


def show_kernels(func: Any, name: str, before: bool, result: Any, *args: Any) -> None:
    if name.startswith("relaxvm.kernel.") and not before:
        print(f"  {name} wrote {args[-1]}")  # the last argument of a kernel is its output


vm.set_instrument(show_kernels)
vm.entropy(p)


# An instrument can skip a function with side effects, for a trial run.


def skip_publish(func: Any, name: str, before: bool, result: Any, *args: Any) -> Any:
    if name == "example.publish":
        return relaxvm.VMInstrumentReturnKind.SKIP_RUN
    return relaxvm.VMInstrumentReturnKind.NO_OP


vm.set_instrument(skip_publish)
print(f"not published: {vm.entropy(np.full(4, 0.25, np.float32)):.3f}")

# Without an instrument, the program runs at full speed.
vm.set_instrument(None)
vm.entropy(np.full(4, 0.25, np.float32))
