"""Runs in greenlets, which take turns on one thread: each has its own limits."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxvm.errors import CancelledError, LimitError
from relaxvm.executable.exec_builder import ExecBuilder
from relaxvm.limits import Limits
from relaxvm.vm import VirtualMachine

greenlet = pytest.importorskip("greenlet")
MIB = 1 << 20


def machine(call: Callable[..., Any], limits: Limits | None = None) -> VirtualMachine:
    """``main(x)`` calls a function on x twice and returns both results; ``spin()`` never ends;
    ``down(n)`` calls itself n times, and then the function."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("t.call", [b.r(0)], dst=b.r(1))
        b.emit_call("t.call", [b.r(0)], dst=b.r(2))
        b.emit_call("vm.builtin.make_tuple", [b.r(1), b.r(2)], dst=b.r(3))
        b.emit_ret(b.r(3))
    with b.function("spin", num_inputs=0):
        again = b.label()
        b.bind(again)
        b.emit_call("vm.builtin.null_value", [], dst=b.r(0))
        b.emit_goto(again)
    with b.function("down", num_inputs=1):
        more = b.label()
        b.emit_call("t.more", [b.r(0)], dst=b.r(1))
        b.emit_if(b.r(1), more)
        b.emit_call("t.less", [b.r(0)], dst=b.r(0))
        b.emit_call("down", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))
        b.bind(more)
        b.emit_call("t.call", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))
    functions = {"t.call": call, "t.more": lambda n: n > 0, "t.less": lambda n: n - 1}
    return VirtualMachine(b.get(), limits=limits or Limits(), functions=functions)


def switch_to(target: Any) -> Callable[[Any], Any]:
    return lambda x: target.switch(x)


def test_runs_that_take_turns() -> None:
    """Two runs with limits, neither of which has called the other, end in the order of their
    start."""
    main = greenlet.getcurrent()
    machines = [machine(switch_to(main), Limits(fuel=fuel, wall_time=100)) for fuel in (100, 1000)]
    workers = [greenlet.greenlet(vm["main"]) for vm in machines]
    for step in range(2):
        for number, worker in enumerate(workers):
            assert worker.switch(number if step == 0 else 10 * number) == number
    for number, worker in enumerate(workers):
        assert worker.switch("last") == (10 * number, "last")
        assert worker.dead


@pytest.mark.parametrize(
    "limits", [{"fuel": 50}, {"wall_time": 0.05}, {"live_bytes": 2 * MIB}], ids=str
)
def test_another_greenlet_is_not_limited(limits: dict[str, Any]) -> None:
    """While a run with limits waits, another run has none of them."""
    main = greenlet.getcurrent()
    limited = greenlet.greenlet(machine(switch_to(main), Limits(**limits))["main"])
    assert limited.switch(1) == 1
    kept: list[Any] = []

    def work(n: int) -> int:
        kept.append(np.zeros(MIB, np.uint8))
        return n

    free = machine(work, Limits(fuel=10**8))
    for _ in range(100):
        assert free["main"](3) == (3, 3)
    if "wall_time" in limits:
        with pytest.raises(LimitError, match="fuel"):
            free["spin"]()  # it takes longer than the limit of the other run
    assert len(kept) == 200
    assert sum(map(len, kept)) == 200 * MIB


def test_fuel_of_a_call_that_switches() -> None:
    """A run that is called in the greenlet that a run with limits is in shares its fuel, whatever
    other greenlets have done meanwhile."""
    main = greenlet.getcurrent()
    inner = machine(lambda x: x)

    def call(x: Any) -> Any:
        main.switch(x)
        return inner_limited["spin"]()

    inner_limited = machine(lambda x: x, Limits(fuel=10**12))
    outer = greenlet.greenlet(machine(call, Limits(fuel=10_000))["main"])
    other = greenlet.greenlet(machine(switch_to(main), Limits(fuel=10**12))["main"])
    outer.switch(1)
    other.switch(2)
    assert inner["main"](3) == (3, 3)
    with pytest.raises(LimitError) as caught:
        outer.switch(None)
    assert caught.value.limit == "fuel"
    assert other.switch(4) == 2
    assert other.switch(5) == (4, 5)


def test_a_deep_run_waits_while_another_reuses_its_stack() -> None:
    """The C stack of a greenlet that waits is overwritten; what a run refers to is not on it."""
    main = greenlet.getcurrent()
    limits = Limits(fuel=10**6, live_bytes=64 * MIB, wall_time=100)
    vm = machine(switch_to(main), limits)
    waiting = [greenlet.greenlet(vm["down"]) for _ in range(4)]
    for depth, worker in enumerate(waiting):
        assert worker.switch(200 * depth) == 0

    def deep(n: int) -> Any:
        return vm["main"](n) if n == 0 else deep(n - 1)

    def nested(n: int) -> Any:
        return n if n == 0 else machine(lambda x: nested(x - 1), limits)["main"](n)[0]

    assert nested(5) == 0
    for worker in reversed(waiting):
        assert worker.switch("done") == "done"
    assert nested(5) == 0


def test_cancel_ends_the_runs_of_one_machine() -> None:
    main = greenlet.getcurrent()
    first, second = (machine(switch_to(main)) for _ in range(2))
    runs = [greenlet.greenlet(vm["main"]) for vm in (first, second)]
    for run in runs:
        run.switch(1)
    first.cancel()
    assert runs[1].switch(2) == 1
    with pytest.raises(CancelledError):
        runs[0].switch(2)
    assert runs[1].switch(3) == (2, 3)


def test_a_greenlet_that_is_dropped_in_a_run() -> None:
    """Its run ends with GreenletExit, and the runs of others go on."""
    main = greenlet.getcurrent()
    vm = machine(switch_to(main), Limits(fuel=1000, live_bytes=MIB))
    run = greenlet.greenlet(vm["main"])
    run.switch(1)
    other = greenlet.greenlet(vm["main"])
    other.switch(2)
    del run
    gc.collect()
    assert other.switch(3) == 2
    assert other.switch(4) == (3, 4)
    seen = weakref.ref(vm)
    del vm, other
    gc.collect()
    assert seen() is None
