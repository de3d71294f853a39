"""Calls that an event loop waits for."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm.errors import ArityError, LimitError

from .test_runs import machine, spin

X = np.array([1.0, 2.0], np.float32)


def test_results_of_several_calls() -> None:
    vm = machine()

    async def main() -> list[Any]:
        return await asyncio.gather(*(vm["main"].async_call(X * i) for i in range(5)),
                                    vm["main"].async_call(x=X))  # fmt: skip

    results = asyncio.run(main())
    for i, result in enumerate(results[:5]):
        np.testing.assert_array_equal(result, vm["main"](X * i))
    np.testing.assert_array_equal(results[5], vm["main"](X))


def test_errors_and_limits() -> None:
    vm = VirtualMachine(spin(), limits=Limits(fuel=1000))
    with pytest.raises(LimitError, match="more than 1000 instructions"):
        asyncio.run(vm["main"].async_call())
    with pytest.raises(ArityError, match="expects 0 arguments"):
        vm["main"].async_call(3)


def test_the_loop_goes_on_and_a_task_can_be_cancelled() -> None:
    vm = VirtualMachine(spin())
    threads = threading.active_count()

    async def main() -> int:
        task = asyncio.create_task(vm["main"].async_call())
        ticks = 0
        while ticks < 5:
            await asyncio.sleep(0.001)
            ticks += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ticks

    assert asyncio.run(main()) == 5
    assert threading.active_count() <= threads + 8
    begun = time.monotonic()
    # The thread is free again: the pool is not full of runs that nobody waits for.
    for _ in range(20):
        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(vm["main"].async_call(), 0.01))
    assert time.monotonic() - begun < 60


def test_other_runs_of_the_machine_are_not_cancelled() -> None:
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("t.wait", [b.r(0)], dst=b.r(1))
        b.emit_call("t.wait", [b.r(1)], dst=b.r(2))
        b.emit_ret(b.r(2))
    gate = threading.Event()

    def wait(x: Any) -> Any:
        gate.wait(10)
        return x

    vm = relaxvm.VirtualMachine(b.get(), functions={"t.wait": wait})

    async def main() -> Any:
        first, second = (asyncio.create_task(vm["main"].async_call(i)) for i in (1, 2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0)
        gate.set()
        return await second

    assert asyncio.run(main()) == 2
