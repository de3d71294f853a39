"""Programs shared by the tests of the VM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm import ExecBuilder
from relaxvm.executable import VMExecutable

X = np.array([1.0, 2.0], np.float32)
Y = np.array([10.0, 20.0], np.float32)


def add(a: Any, b: Any) -> Any:
    return a + b


def last(*args: Any) -> Any:
    return args[-1]


def keep(*args: Any) -> tuple[Any, ...]:
    return args


FUNCTIONS: dict[str, Callable[..., Any]] = {"t.add": add, "t.last": last, "t.keep": keep}


def program() -> VMExecutable:
    b = ExecBuilder()
    with b.function("main", num_inputs=2, param_names=["x", "weight"]):
        b.emit_call("t.add", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("ident", num_inputs=1, param_names=["x"]):
        b.emit_ret(b.r(0))
    with b.function("unnamed", num_inputs=2):
        b.emit_call("t.keep", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("five"):
        b.emit_call("t.last", [b.imm(5)], dst=b.r(0))
        b.emit_ret(b.r(0))
    with b.function("nested", num_inputs=1, param_names=["x"]):
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(0)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("outer", num_inputs=2, param_names=["x", "y"]):
        b.emit_call("main", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("make", num_inputs=1, param_names=["captured"]):
        b.emit_call("vm.builtin.make_closure", [b.f("unnamed"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("every_kind", num_inputs=1, param_names=["x"]):
        args = [b.r(0), b.imm(3), b.convert_constant("s"), b.convert_constant(2.5),
                b.convert_constant(np.dtype("float32")), b.convert_constant((2, 3)),
                b.vm_state(), b.void_arg(), b.f("main")]  # fmt: skip
        b.emit_call("t.last", args, dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()


def forever() -> VMExecutable:
    b = ExecBuilder()
    with b.function("spin"):
        again = b.label()
        b.bind(again)
        b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
        b.emit_goto(again)
        b.emit_ret(b.r(0))
    return b.get()


def calls(name: str, *more: str) -> VMExecutable:
    """A program whose `main` calls one packed function after another on its argument."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["x"]):
        for each in (name, *more):
            b.emit_call(each, [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()
