"""Results of packed functions become values: each large tuple once in a run, and in time."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import CancelledError, LimitError

from .children import DEADLINE

CALLS = 1000
MODES = ("bytecode", "compiled", "bytecode that changes tuples")


class Looked:
    """An object that is no value; it counts how often a conversion has looked at it."""

    def __init__(self) -> None:
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__array"):
            self.count += 1
        raise AttributeError(name)


def machine(function: Callable[..., Any], calls: int = CALLS, mode: str = "bytecode",
            limits: Limits | None = None) -> VirtualMachine:  # fmt: skip
    """Return a VM whose ``main`` calls a function so often, each time with its last result."""
    if mode == "compiled":
        lines = "\n".join(
            f'    x{i + 1} = R.call_packed("f", x{i}, ty_args=R.Any)' for i in range(calls)
        )
        text = f"@R.function(pure=False)\ndef main(x0: R.Any):\n{lines}\n    return x{calls}\n"
        executable = relaxvm.build(relaxvm.script.from_source(text), exec_mode="compiled")
    else:
        b = ExecBuilder()
        with b.function("main", num_inputs=1):
            for _ in range(calls):
                b.emit_call("f", [b.r(0)], dst=b.r(0))
            if mode != "bytecode":
                b.emit_call("vm.builtin.tuple_reset_item", [b.r(0), b.imm(0)])
            b.emit_ret(b.r(0))
        executable = b.get()
    return VirtualMachine(executable, limits=limits, functions={"f": function})


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("step", ["chain", "items of items", "longer", "lists"])
def test_large_results_are_converted_once(mode: str, step: str) -> None:
    looked = Looked()
    steps: dict[str, Callable[[Any], Any]] = {
        "chain": lambda t: (looked, t),
        "items of items": lambda t: (looked, (looked, t[1])) if t else (looked, t),
        "longer": lambda t: (*t, (looked, t)),
        "lists": lambda t: [looked, [t]],
    }
    vm = machine(steps[step], mode=mode)
    for _ in range(2):
        looked.count = 0
        result = vm.main(())
        assert type(result) is tuple
        assert looked in result or looked in result[-1]
        assert 0 < looked.count < 100 * CALLS  # without memory, a million and more


@pytest.mark.parametrize("mode", MODES)
def test_lists_are_converted_anew(mode: str) -> None:
    """They may have changed since the last call."""
    items: list[Any] = [[i] for i in range(500)]

    def change(_: Any) -> Any:
        items[7][0] += 1
        return items, (items, np.float32(2.5))

    result = machine(change, 10, mode).main(())
    same, (again, number) = result if mode in MODES[:2] else (result[1][0], result[1])
    assert same is again
    assert same[7] == (17,)
    assert same[8] == (8,)
    assert type(number) is float


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_kept_after_the_run(mode: str) -> None:
    kept: list[weakref.ref[np.ndarray]] = []

    def make(_: Any) -> Any:
        array = np.ones(3)
        kept.append(weakref.ref(array))
        return tuple((array, object(), (i,)) for i in range(500))

    vm = machine(make, 20, mode)
    vm.main(())
    assert len(kept) == 20
    assert [ref() for ref in kept] == [None] * 20


@pytest.mark.parametrize("mode", MODES)
def test_a_run_keeps_few_results(mode: str) -> None:
    most = 0
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Mark:
        pass

    def make(_: Any) -> Any:
        nonlocal most
        mark = Mark()
        alive.add(mark)
        most = max(most, len(alive))
        return tuple((mark, (i,)) for i in range(500))

    machine(make, 50, mode).main(())
    assert most < 8


NESTED = 100_000_000


def endless(_: Any) -> Any:
    """A list whose conversion takes minutes: each item is a new tuple."""

    class Endless(list[Any]):
        def __iter__(self) -> Any:
            return (((i,),) for i in range(NESTED))

    return Endless()


@pytest.mark.parametrize("mode", MODES)
def test_a_conversion_ends_with_the_time(mode: str) -> None:
    vm = machine(endless, 1, mode, Limits(wall_time=0.2))
    before = time.process_time()
    with pytest.raises(LimitError, match="wall_time"):
        vm.main(())
    assert time.process_time() - before < 60


@pytest.mark.parametrize("mode", MODES)
def test_a_conversion_ends_with_a_cancellation(mode: str) -> None:
    started = threading.Event()

    def announce(x: Any) -> Any:
        started.set()
        return endless(x)

    vm = machine(announce, 1, mode)
    ended: list[BaseException] = []

    def run() -> None:
        try:
            vm.main(())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(DEADLINE)
    vm.cancel()
    thread.join(DEADLINE)
    assert [type(error) for error in ended] == [CancelledError]


@pytest.mark.parametrize("mode", MODES)
def test_a_conversion_ends_with_the_memory(mode: str) -> None:
    """What it keeps for each tuple counts."""
    vm = machine(endless, 1, mode, Limits(live_bytes=64 << 20))
    with pytest.raises(LimitError, match="live_bytes"):
        vm.main(())


def test_tuples_for_functions_of_tvm_are_converted_in_time() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    called = []

    @tvm_ffi.convert
    def function(x: Any) -> Any:
        called.append(x)
        return 1

    b = ExecBuilder()
    with b.function("main"):
        b.emit_call("make", [], dst=b.r(0))
        b.emit_call("f", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))
    item = (1.5,)
    wide = tuple((item, item) for _ in range(30_000))  # few enough to be taken as it is
    functions = {"make": lambda: wide, "f": function}
    assert VirtualMachine(b.get(), functions=functions).main() == 1
    assert len(called) == 1
    vm = VirtualMachine(b.get(), functions=functions, limits=Limits(wall_time=0.005))
    with pytest.raises(LimitError, match="wall_time"):
        vm.main()
    assert len(called) == 1
