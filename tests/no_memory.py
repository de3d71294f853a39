"""Runs one scenario again and again, each time with another allocation that fails.

    python no_memory.py SCENARIO

Prints how many allocations failed.  A crash is a failure of the test that starts this program; an
exception is what is expected, whichever it is: numpy and Python turn some failures into others.
"""

from __future__ import annotations

import _testcapi
import faulthandler
import gc
import linecache
import os
import pickle
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine
from relaxvm._core import NaiveAllocator
from relaxvm.errors import LimitError
from relaxvm.script import ir as I
from relaxvm.script import relax as R

SILENT = 30
"""So many runs in a row without a failed allocation: there are no more to fail."""
DENSE = 500
STRIDE = 23
"""After the first `DENSE` allocations only one of `STRIDE` fails."""


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Object):
        with R.dataflow():
            y = R.add(x, x)
            z = R.nn.softmax(y)
            total = R.sum(R.concat((z, y)), axis=0)
            R.output(total)
        return (total, (x, (total, x)))


X = np.ones((3, 4), np.float32)
EXECUTABLE = relaxvm.build(Module)


def file_content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        EXECUTABLE.save(Path(folder) / "m.vmexec")
        return (Path(folder) / "m.vmexec").read_bytes()


DATA = file_content()
MACHINE = VirtualMachine(EXECUTABLE)
PLAIN = VirtualMachine(EXECUTABLE, optimize=False)
LIMITED = VirtualMachine(EXECUTABLE, limits=Limits.untrusted())
HOOKED = VirtualMachine(EXECUTABLE)
HOOKED.set_instrument(lambda func, name, before, ret, *args: 0)


def many_tuples(count: int = 600) -> relaxvm.VMExecutable:
    """``main(x)`` makes so many tuples, and then enough other objects for two censuses: one while
    each tuple is in one register, and one while it is in two."""
    b = ExecBuilder()
    with b.function("same", num_inputs=1):
        b.emit_ret(b.r(0))
    with b.function("main", num_inputs=1):
        for i in range(1, count):
            b.emit_call("vm.builtin.make_tuple", [b.r(0), b.r(0)], dst=b.r(i))
        for _ in range(2):
            b.emit_call("same", [b.r(0)], dst=b.r(0))  # a block of instructions ends here
            for i in range(1, count):
                b.emit_call("vm.builtin.shape_of", [b.r(0)], dst=b.r(2 * count))
                b.emit_call("vm.builtin.copy", [b.r(i)], dst=b.r(count + i))
        b.emit_ret(b.r(0))
    return b.get()


COUNTED = VirtualMachine(many_tuples(), limits=Limits(live_bytes=4 << 20))


def nested() -> relaxvm.VMExecutable:
    """``main(x)`` calls a packed function, which calls it again."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("again", [b.r(0)], dst=b.r(0))
        b.emit_ret(b.r(0))
    return b.get()


LIMITS = Limits(call_depth=1, fuel=100)
NESTED = VirtualMachine(
    nested(), limits=LIMITS, functions={"again": lambda x: NESTED["main"](x)}
)


def wide() -> relaxvm.VMExecutable:
    """``main`` has so many parameters that its frame is above the limit of `WIDE`."""
    b = ExecBuilder()
    with b.function("main", num_inputs=len(MANY)):
        b.emit_ret(b.r(0))
    return b.get()


MANY = (X,) * 150_000
WIDE = VirtualMachine(wide(), limits=Limits(live_bytes=1))


def refused(vm: VirtualMachine, *args: object) -> None:
    """A call that ends before its first instruction."""
    try:
        vm["main"](*args)
    except LimitError:
        return
    except SystemError as error:
        raise SystemExit(f"a call failed without an exception: {error}") from None
    raise AssertionError("expected an error")


def translate_and_call(**options: object) -> None:
    VirtualMachine(EXECUTABLE, **options)["main"](X)


def fail() -> None:
    try:
        MACHINE["main"](X[:, :2])
    except (RuntimeError, ValueError):
        return
    raise AssertionError("expected an error")


def shared() -> None:
    value: object = (X, 1)
    for _ in range(3):
        value = (value,) * 60
    try:
        MACHINE["main"](value)
    except (RuntimeError, TypeError):
        return
    raise AssertionError("expected an error")


def profile() -> None:
    with relaxvm.profile(MACHINE) as report:
        MACHINE["main"](X)
    report.table()


DIMS = (int("1024"), int("1025"))
STORAGE = NaiveAllocator().alloc(DIMS[0] * DIMS[1])
REFERENCES = sys.getrefcount(DIMS[0])


def view() -> None:
    STORAGE.view(0, DIMS, "int8")


SCENARIOS: dict[str, Callable[[], object]] = {
    "load": lambda: relaxvm.loads(DATA),
    "translate": lambda: VirtualMachine(EXECUTABLE),
    "translate, call": translate_and_call,
    "translate, call plainly": lambda: translate_and_call(optimize=False),
    "call": lambda: MACHINE["main"](X),
    "call by keyword": lambda: MACHINE.main(x=X),
    "call plainly": lambda: PLAIN["main"](X),
    "call with limits": lambda: LIMITED["main"](X),
    "call with a hook": lambda: HOOKED["main"](X),
    "call with an error": fail,
    "call with a shared tuple": shared,
    "call that is refused": lambda: refused(NESTED, X),
    "call that is refused for its frame": lambda: refused(WIDE, *MANY),
    "census": lambda: COUNTED["main"](X),
    "view": view,
    "pickle": lambda: pickle.loads(pickle.dumps(EXECUTABLE)),
    "profile": profile,
}


def live_bytes() -> int:
    machines = (MACHINE, PLAIN, LIMITED, HOOKED, COUNTED)
    return sum(vm.memory_stats().live_bytes for vm in machines)


def fails(scenario: Callable[[], object], number: int) -> bool:
    """Run a scenario in which one allocation fails; whether it got so far."""
    _testcapi.set_nomemory(number, number + 1)
    try:
        scenario()
    except Exception:
        return True
    finally:
        _testcapi.remove_mem_hooks()
    return False


def fails_in_child(scenario: Callable[[], object], number: int) -> bool:
    """The same in a forked process, which may crash where Python itself does: up to 3.12, iterating
    over ``dict.items()`` without memory does."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        faulthandler.enable(writing, all_threads=False)
        os._exit(fails(scenario, number))
    os.close(writing)
    with open(reading) as pipe:
        trace = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status) == 1
    place = re.search(r'File "(.+)", line (\d+)', trace)
    line = linecache.getline(place[1], int(place[2])) if place else ""
    if ".items()" not in line:
        raise SystemExit(f"allocation {number} crashes:\n{trace}\n{line}")
    return True


def main(scenario: Callable[[], object], run: Callable[..., bool]) -> None:
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None
    for _ in range(3):
        scenario()
    gc.collect()
    before = live_bytes()
    failed = silent = number = 0
    while silent < SILENT:
        got_there = run(scenario, number)
        failed += got_there
        silent = 0 if got_there else silent + 1
        number += 1 if number < DENSE else STRIDE
    gc.collect()
    expected, *_ = MACHINE["main"](X)
    for vm in (PLAIN, LIMITED, HOOKED):
        np.testing.assert_array_equal(vm["main"](X)[0], expected)
    gc.collect()
    after = live_bytes()
    assert after <= before + 4096, f"{after - before} bytes of storages are left"
    assert sys.getrefcount(DIMS[0]) >= REFERENCES, "an item was released too often"
    apart = np.ones(1 << 16)  # outside of a run: it counts for no VM
    assert live_bytes() <= after, f"{live_bytes() - after} of {apart.nbytes} bytes count"
    print(failed)


if __name__ == "__main__":
    main(SCENARIOS[sys.argv[1]], fails_in_child if "translate" in sys.argv[1] else fails)
