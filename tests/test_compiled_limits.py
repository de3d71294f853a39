"""Limits in the compiled mode: the same programs end with the same errors as in bytecode."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine, build, script
from relaxvm.errors import CancelledError, LimitError
from relaxvm.executable import VMExecutable

from . import children
from .threads import cancelling

MIB = 1 << 20
MODES = ["bytecode", "compiled"]

HEADER = """
from relaxvm.script import ir as I, relax as R

@I.ir_module
class Program:
"""

PROGRAMS = {
    "loop": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        r = Program.main(x)
        return r
""",
    "two functions": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        y = Program.other(x)
        r = Program.main(y)
        return r

    @R.function
    def other(x: R.Any) -> R.Any:
        return x
""",
    "deep": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        y = Program.main(x)
        return (x, y)
""",
    "tuples": f"""
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        wide = ({"x, " * 1000})
        r = Program.main((wide, x))
        return r
""",
    "tuples that are gone": f"""
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        wide = ({"x, " * 1000})
        y = Program.other(wide)
        z = Program.other((y, {"x, " * 1000}))
        r = Program.main(x)
        return r

    @R.function
    def other(x: R.Any) -> R.Any:
        return x
""",
    "tuples of callers": f"""
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        wide = ({"x, " * 500})
        y = Program.main(wide)
        return (wide, y)
""",
    "tuples after calls": f"""
    @R.function(pure=False)
    def main(x: R.Tensor((), "int64")) -> R.Any:
        done = R.less_equal(x, R.const(0, "int64"))
        if done:
            r = (x,)
        else:
            below = Program.main(R.subtract(x, R.const(1, "int64")))
            wide = ({"x, " * 1000})
            r = (wide, below)
        return r
""",
    "closures": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        @R.function
        def inner(y: R.Any) -> R.Any:
            return (x, y)
        r = Program.main(inner)
        return r
""",
    "arrays": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        y = R.zeros((1000, 1000), "float32")
        r = Program.main((x, y))
        return r
""",
    "packed": """
    @R.function(pure=False)
    def main(x: R.Any) -> R.Any:
        y = R.call_packed("t.call", x, ty_args=R.Any)
        return y
""",
    "kernels": """
    @R.function(pure=False)
    def main(x: R.Tensor((2000000,), "float32")) -> R.Any:
"""
    + "".join(
        f"        x{i} = R.call_packed('t.sort', {f'x{i - 1}' if i else 'x'}, ty_args=R.Any)\n"
        for i in range(300)
    )
    + "        return x\n",
}

BUILT: dict[tuple[str, str], VMExecutable] = {}


def executable(name: str, mode: str) -> VMExecutable:
    if (name, mode) not in BUILT:
        BUILT[name, mode] = build(script.from_source(HEADER + PROGRAMS[name]), exec_mode=mode)
    return BUILT[name, mode]


def machine(name: str, mode: str, functions: Any = None, **limits: Any) -> VirtualMachine:
    return VirtualMachine(executable(name, mode), limits=Limits(**limits), functions=functions)


def limit_of(vm: VirtualMachine, *args: Any) -> LimitError:
    with pytest.raises(LimitError) as caught:
        vm["main"](*args)
    return caught.value


SAME: list[tuple[str, dict[str, Any]]] = [
    ("loop", {"fuel": 1000}),
    ("two functions", {"fuel": 1000}),
    ("deep", {"fuel": 1000}),
    ("loop", {"wall_time": 0.02}),
    ("two functions", {"wall_time": 0.02}),
    ("deep", {"call_depth": 1}),
    ("deep", {"call_depth": 700}),
    ("deep", {"call_depth": 700, "fuel": 1_000_000, "live_bytes": MIB}),
    ("arrays", {"alloc_bytes": MIB}),
    ("arrays", {"live_bytes": MIB}),
    ("arrays", {"live_bytes": 32 * MIB}),
]


@pytest.mark.parametrize(("name", "limits"), SAME)
def test_the_same_error_in_both_modes(name: str, limits: dict[str, Any]) -> None:
    errors = []
    for mode in MODES:
        vm = machine(name, mode, **limits)
        errors.append(limit_of(vm, 7))
        assert limit_of(vm, 7).limit == errors[-1].limit, "the VM can be used again"
    assert str(errors[0]) == str(errors[1])
    assert errors[0].limit == errors[1].limit
    for error in errors:
        assert re.match("in (main|other), ", error.__notes__[0]), "it says where"


GROWING = ["tuples", "tuples of callers", "closures"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", GROWING)
def test_objects_are_counted(name: str, mode: str) -> None:
    vm = machine(name, mode, live_bytes=8 * MIB, fuel=3_000_000)
    for _ in range(2):
        error = limit_of(vm, 7)
        assert error.limit == "live_bytes"
        assert f"the limit is {8 * MIB}" in str(error)


@pytest.mark.parametrize("mode", MODES)
def test_objects_after_calls_are_counted(mode: str) -> None:
    vm = machine("tuples after calls", mode, live_bytes=8 * MIB, fuel=3_000_000)
    assert len(vm["main"](np.array(100))) == 2
    error = limit_of(vm, np.array(2000))
    assert error.limit == "live_bytes"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["loop", "tuples that are gone"])
def test_objects_that_are_gone_do_not_count(name: str, mode: str) -> None:
    assert limit_of(machine(name, mode, live_bytes=2 * MIB, fuel=20_000), 7).limit == "fuel"


@pytest.mark.parametrize("mode", MODES)
def test_runs_inside_a_run_share_fuel_and_depth(mode: str) -> None:
    machines: list[VirtualMachine] = []

    def call(x: Any) -> Any:
        return machines[0]["main"](x)

    machines.append(machine("packed", mode, {"t.call": call}))
    for limits in ({"call_depth": 30, "fuel": 100_000}, {"call_depth": 30}):
        machines[0] = machine("packed", mode, {"t.call": call}, **limits)
        error = limit_of(machines[0], 7)
        assert error.limit == "call_depth"
        assert str(error) == "main: calls are nested deeper than 30 frames (limit call_depth)"
    machines[0] = machine("packed", mode, {"t.call": call}, fuel=100)
    assert limit_of(machines[0], 7).limit == "fuel"


@pytest.mark.parametrize("mode", MODES)
def test_the_depth_is_counted_back(mode: str) -> None:
    """Calls one after the other are not nested."""
    vm = machine("two functions", mode, call_depth=2, fuel=5000)
    assert limit_of(vm, 7).limit == "fuel"


@pytest.mark.parametrize("mode", MODES)
def test_a_packed_function_sees_the_limit(mode: str) -> None:
    """A kernel that a packed function calls ends with the run that has called it."""
    fill = relaxvm.get_func("relaxvm.kernel.fill")
    out = np.empty(3_000_000)  # it looks at the clock after a million

    def call(x: Any) -> Any:
        for i in range(1000):
            fill(i, out)
        return x

    vm = machine("packed", mode, {"t.call": call}, wall_time=0.1)
    assert limit_of(vm, 7).limit == "wall_time"


def sort(x: np.ndarray) -> np.ndarray:
    """Takes tens of milliseconds, and looks at no clock."""
    return np.sort(x[::-1])


@pytest.mark.parametrize("mode", MODES)
def test_time_is_checked_between_packed_functions(mode: str) -> None:
    x = np.random.default_rng(0).random(2_000_000).astype("f4")
    vm = machine("kernels", mode, {"t.sort": sort}, wall_time=0.1)
    start = time.process_time()
    assert limit_of(vm, x).limit == "wall_time"
    assert time.process_time() - start < 5


@pytest.mark.parametrize("name", ["loop", "two functions", "kernels"])
@pytest.mark.parametrize("mode", MODES)
def test_cancel(mode: str, name: str) -> None:
    """Also between the calls of packed functions, and without limits."""
    x = np.random.default_rng(0).random(2_000_000).astype("f4")
    vm = machine(name, mode, {"t.sort": sort})
    start = time.process_time()
    with cancelling(vm), pytest.raises(CancelledError, match="the run was cancelled"):
        vm["main"](x)
    assert time.process_time() - start < 5


INTERRUPT = """
import json, signal, sys, time
import relaxvm
from relaxvm.errors import LimitError
executable = relaxvm.build(relaxvm.script.from_source(sys.argv[1]), exec_mode=sys.argv[2])
vm = relaxvm.VirtualMachine(executable, limits=relaxvm.Limits(wall_time=60.0))
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.1)
start = time.process_time()
try:
    vm["main"](7)
    end = "result"
except BaseException as error:
    end = type(error).__name__
print(json.dumps([end, time.process_time() - start]))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="alarms of POSIX")
@pytest.mark.parametrize("mode", MODES)
def test_ctrl_c(mode: str) -> None:
    source = HEADER + PROGRAMS["loop"]
    done = children.run(
        [sys.executable, "-P", "-c", INTERRUPT, source, mode], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    end, seconds = json.loads(done.stdout)
    assert end == "KeyboardInterrupt"
    assert seconds < 5


MEMORY = """
import resource, sys
import relaxvm
from relaxvm.errors import LimitError
executable = relaxvm.build(relaxvm.script.from_source(sys.argv[1]), exec_mode="compiled")
limits = relaxvm.Limits(live_bytes=16 << 20)
vm = relaxvm.VirtualMachine(executable, limits=limits)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    vm["main"](7)
except LimitError as error:
    print(error.limit, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="maxrss in KiB")
@pytest.mark.parametrize("name", [*GROWING, "arrays", "deep"])
def test_the_memory_of_the_process(name: str) -> None:
    done = children.run(
        [sys.executable, "-P", "-c", MEMORY, HEADER + PROGRAMS[name]],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    limit, mebibytes = done.stdout.split()
    assert limit == ("call_depth" if name == "deep" else "live_bytes")
    assert int(mebibytes) < 40
