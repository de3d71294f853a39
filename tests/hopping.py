"""Runs that are saved and loaded at safe points, and compared with runs that are not."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VirtualMachine, VMExecutable
from relaxvm._core import Adt
from relaxvm.errors import UnsavableError
from relaxvm.values import Shape
from relaxvm.vm import Run


def saved(run: Run) -> bytes:
    """The bytes of a run that is paused."""
    file = io.BytesIO()
    run.save(file)
    return file.getvalue()


def hopped(run: Run, vm: VirtualMachine) -> Run:
    """The run after it was saved, loaded into a machine, and saved again to the same bytes."""
    data = saved(run)
    new = relaxvm.load_run(data, vm)
    assert saved(new) == data
    assert (new.position, new.depth, new.function) == (run.position, run.depth, run.function)
    assert repr(new.frame) == repr(run.frame)
    return new


def strides() -> Iterator[int]:
    """How far to go between hops: every safe point at first, then farther and farther."""
    yield from [1] * 24
    rng = random.Random(0)
    step = 2.0
    while True:
        yield rng.randrange(1, int(step) + 1)
        step *= 1.3


def hopping(
    vm: VirtualMachine, name: str, other: VirtualMachine, *, refused: list[str] | None = None
) -> Callable[..., Any]:
    """A function that runs another one, with hops between two machines.

    Args:
        refused: receives the messages where values could not be saved; None if that is an error.
    """

    def call(*args: Any) -> Any:
        machines = [other, vm]
        run = vm[name].start(*args)
        steps = strides()
        if refused is None or not run.done:
            run = hop(run, machines)
        while run.resume(fuel=next(steps)) is not None:
            run = hop(run, machines)
        return run.result()

    def hop(run: Run, machines: list[VirtualMachine]) -> Run:
        try:
            new = hopped(run, machines[0])
        except UnsavableError as error:
            if refused is None:
                raise
            refused.append(str(error))
            return run
        machines.reverse()
        return new

    return call


def bits(value: Any) -> Any:
    """What is equal only for results that are equal bit for bit."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "tensor", value.shape, value.ravel().tolist()
        return "tensor", value.dtype.str, value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, Shape):
        return "shape", tuple(value)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [bits(item) for item in value]
    if isinstance(value, dict):
        return "map", [(key, bits(item)) for key, item in value.items()]
    if isinstance(value, Adt):
        return "adt", value.constructor, value.tag, [bits(field) for field in value.fields]
    if isinstance(value, float):
        return "float", value.hex()
    if isinstance(value, relaxvm.Closure):
        return "closure", value.func.__name__, [bits(item) for item in value.captured]
    if callable(value):
        return "function", getattr(value, "__name__", repr(value))
    return type(value).__name__, value


def outcome(function: Callable[..., Any], args: Any) -> Any:
    """The bits of a result, or the class and the message of an error."""
    try:
        return bits(function(*args))
    except BaseException as error:  # a kernel of the corpus raises SystemExit
        return "error", type(error).__name__, str(error)


def counter(following: str, goes_on: str) -> VMExecutable:
    """A program whose main(x) calls a packed function on what it has, as long as another one says
    so, and returns it."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.copy", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_call(following, args=[eb.r(1)], dst=eb.r(1))
        eb.emit_call(goes_on, args=[eb.r(1)], dst=eb.r(2))
        eb.emit_if(eb.r(2), 2)
        eb.emit_goto(-3)
        eb.emit_ret(eb.r(1))
    return eb.get()
