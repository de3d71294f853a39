"""A virtual machine without references is freed at once, without the garbage collector, also where
its program has functions as values; one whose functions are in use stays."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Closure, ExecBuilder, Limits, VirtualMachine
from relaxvm.executable import VMExecutable

X = np.array([1.0, 2.0], np.float32)
KEPT: list[Any] = []


def keep(*values: Any) -> Any:
    KEPT.append(values)
    return values[0]


def apply(function: Any, value: Any) -> Any:
    return function(value)


def fail(*values: Any) -> Any:
    raise KeyError("test")


FUNCTIONS: dict[str, Callable[..., Any]] = {"t.keep": keep, "t.apply": apply, "t.fail": fail}


def program() -> VMExecutable:
    b = ExecBuilder()
    with b.function("pair", 2):
        b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("ident", 1):
        b.emit_ret(b.r(0))
    with b.function("value", 0):
        b.emit_call("vm.builtin.copy", [b.f("ident")], dst=b.r(0))
        b.emit_ret(b.r(0))
    with b.function("close", 1):
        b.emit_call("vm.builtin.make_closure", [b.f("pair"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("apply", 2):
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.r(1), b.r(0)], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("nested", 1):
        b.emit_call("close", [b.r(0)], dst=b.r(1))
        b.emit_call("vm.builtin.make_closure", [b.f("apply"), b.r(1)], dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(2), b.r(1), b.f("ident")], dst=b.r(2))
        b.emit_ret(b.r(2))
    with b.function("invoke", 1):
        b.emit_call("vm.builtin.invoke_closure", [b.vm_state(), b.f("ident"), b.r(0)], dst=b.r(1))
        b.emit_call("apply", [b.r(1), b.f("close")], dst=b.r(1))
        b.emit_call("apply", [b.r(0), b.r(1)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("packed", 1):
        b.emit_call("t.apply", [b.f("close"), b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("escape", 1):
        b.emit_call("vm.builtin.make_closure", [b.f("pair"), b.f("ident")], dst=b.r(1))
        b.emit_call("t.keep", [b.r(0), b.f("close"), b.r(1)], dst=b.r(1))
        b.emit_ret(b.r(1))
    with b.function("raise", 1):
        b.emit_call("vm.builtin.make_closure", [b.f("pair"), b.f("ident")], dst=b.r(1))
        b.emit_call("t.fail", [b.r(0), b.f("close"), b.r(1)], dst=b.r(1))
        b.emit_ret(b.r(1))
    return b.get()


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        KEPT.clear()
        gc.enable()


def machine(**options: Any) -> VirtualMachine:
    return VirtualMachine(program(), functions=FUNCTIONS, **options)


def run_all(vm: VirtualMachine) -> None:
    assert vm["value"]() == vm["ident"]
    assert vm["close"](1)(2) == (2, 1)
    applied, closed, ident = vm["nested"](1)
    assert (applied(5), closed(6), ident(7)) == ((5, 1), (6, 1), 7)
    assert vm["invoke"](3) == (3, 3)
    assert vm["packed"](4)(5) == (5, 4)
    assert vm["escape"](8) == 8
    with pytest.raises(KeyError):
        vm["raise"](8)


@pytest.mark.parametrize(
    "options",
    [{}, {"optimize": False}, {"limits": Limits(fuel=10_000)},
     {"limits": Limits(live_bytes=1 << 20)}],
    ids=["", "plain", "fuel", "memory"],
)
def test_freed_after_runs(options: dict[str, Any]) -> None:
    vm = machine(**options)
    gone = weakref.ref(vm)
    run_all(vm)
    KEPT.clear()
    del vm
    assert gone() is None


def test_freed_without_a_run() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    del vm
    assert gone() is None


def test_constants_are_freed() -> None:
    b = ExecBuilder()
    with b.function("main"):
        b.emit_call("t.keep", [b.convert_constant(np.zeros(1000)), b.f("main")], dst=b.r(0))
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get(), functions=FUNCTIONS)
    constant = weakref.ref(vm.executable.constants[0])
    vm.main()
    KEPT.clear()
    del vm, b
    assert constant() is None


def test_a_function_keeps_its_machine() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    ident = vm["value"]()
    del vm
    assert ident.machine is gone()
    assert ident(5) == 5
    del ident
    assert gone() is None


def test_a_closure_keeps_its_machine() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    closed = vm["close"](1)
    applied = vm["nested"](2)[0]
    del vm
    assert closed(5) == (5, 1)
    assert closed.func.machine is gone()
    assert closed.func(3, 4) == (3, 4)
    del closed
    assert applied(5) == (5, 2)
    del applied
    assert gone() is None


def test_what_a_packed_function_keeps_keeps_the_machine() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    vm["escape"](1)
    del vm
    assert gone() is not None
    _, close, over_ident = KEPT.pop()
    assert close(1)(2) == (2, 1)
    value, ident = over_ident(3)
    assert (value, ident(4)) == (3, 4)
    del close, over_ident
    assert ident(5) == 5
    del ident
    assert gone() is None


def test_freed_with_saved_functions_and_inputs_and_outputs() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    applied, closed, ident = vm["nested"](1)
    vm.save_function("apply", "saved", closed)
    vm.save_function("ident", "saved_ident", (closed, ident, Closure(applied, (ident,))))
    vm.save_function("saved", "again", ident)
    vm.set_input("ident", (applied, (closed, ident), X))
    vm.invoke_stateful("ident")
    for _ in range(2):
        assert vm["saved"](9) == (9, 1)
        kept = vm["saved_ident"]()
        assert kept[1] == ident
        assert kept[0](2) == (2, 1)
        assert kept[2].func.func == vm["apply"]
        assert kept[2].captured == (ident,)
        output = vm.get_outputs("ident")
        assert output[0](5) == (5, 1)
        assert output[1][0](5) == (5, 1)
        assert output[1][1] == ident
        assert output[2] is X
    del applied, closed, ident, kept, output
    del vm
    assert gone() is None


def test_saved_functions_with_functions_of_the_machine_are_pickled() -> None:
    b = ExecBuilder()
    with b.function("ident", 1):
        b.emit_ret(b.r(0))
    vm = VirtualMachine(b.get())
    vm.save_function("ident", "saved", (vm["ident"], Closure(vm["ident"])))
    copy = pickle.loads(pickle.dumps(vm))
    ident, closure = copy["saved"]()
    assert ident == copy["ident"] != vm["ident"]
    assert closure.func == ident


def test_values_without_functions_of_the_machine_are_held_as_they_are() -> None:
    vm, other = machine(), machine()
    closure = other["close"](1)
    value = (closure, (X, other["ident"]), Closure(len, (X,)))
    vm.set_input("ident", value)
    vm.invoke_stateful("ident")
    assert vm.get_outputs("ident") is vm.get_outputs("ident")
    assert vm.get_outputs("ident")[0] is closure


def test_deep_and_shared_closures_are_held() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    closure: Any = vm["ident"]
    for _ in range(100_000):
        closure = Closure(len, (closure,))
    wide: Any = closure
    for _ in range(60):
        wide = (wide, wide)
    vm.set_input("ident", wide)
    vm.invoke_stateful("ident")
    output = vm.get_outputs("ident")
    while isinstance(output, tuple):
        assert output[0] is output[1]
        output = output[0]
    depth = 0
    while isinstance(output, Closure):
        output, depth = output.captured[0], depth + 1
    assert (output, depth) == (vm["ident"], 100_000)
    del closure, wide, output, vm
    assert gone() is None


def test_freed_with_an_instrument_and_after_a_profile() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    seen = []

    def instrument(func: Any, name: str, *rest: Any) -> None:
        seen.append((name, getattr(func, "name", None)))

    vm.set_instrument(instrument)
    run_all(vm)
    assert ("close", "close") in seen
    KEPT.clear()
    with relaxvm.profile(vm):
        run_all(vm)
    KEPT.clear()
    del vm
    assert gone() is None


def test_freed_after_an_error_whose_exception_was_dropped() -> None:
    vm = machine()
    gone = weakref.ref(vm)
    with pytest.raises(KeyError) as caught:
        vm["raise"](1)
    assert "raise" in "\n".join(caught.value.__notes__)
    del caught, vm
    assert gone() is None


def test_closures_of_other_functions() -> None:
    closure = Closure(lambda x, y, z: (x, y, z), (2, 3))
    assert closure(1) == (1, 2, 3)
    assert closure.captured == (2, 3)
    assert Closure(len).captured == ()
    function = machine()["pair"]
    closure = Closure(function, (2,))
    assert closure.func is function
    assert closure.captured == (2,)
    assert closure(1) == (1, 2)
