"""Programs and folders of models for the tests of servers."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

import relaxvm
from relaxvm import ExecBuilder, VMExecutable
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@I.ir_module
class _Sum:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 4), "float32")
    ) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            z = R.multiply(R.add(x, y), R.const(2.0, "float32"))
            R.output(z)
        return z


@I.ir_module
class _Total:
    """Adds up all rows: not to be joined, but nothing in its types says so."""

    @R.function
    def main(x: R.Tensor(("n", 2), "float32")) -> R.Tensor((1, 2), "float32"):
        with R.dataflow():
            z = R.sum(x, axis=[0], keepdims=True)
            R.output(z)
        return z


@I.ir_module
class _Add:
    """Adds 1 to an array so many times, one after the other."""

    @R.function
    def main(
        x: R.Tensor(("n",), "int64"), times: R.Tensor((), "int64")
    ) -> R.Tensor(("n",), "int64"):
        cls = _Add
        more = R.greater(times, R.const(0, "int64"))
        if more:
            one = R.const(1, "int64")
            r = cls.main(R.add(x, one), R.subtract(times, one))
        else:
            r = x
        return r


@functools.cache
def add() -> VMExecutable:
    """``x + times``, in so many steps."""
    return relaxvm.compile(_Add)


@functools.cache
def double() -> VMExecutable:
    """``2 * (x + y)``, for any number of rows of 4."""
    return relaxvm.compile(_Sum)


@functools.cache
def total() -> VMExecutable:
    """The sum of rows of 2."""
    return relaxvm.compile(_Total)


@functools.cache
def endless() -> VMExecutable:
    """Never ends, and makes an object in each of its steps."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.shape_of", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_goto(-1)
    return eb.get()


@functools.cache
def shapes() -> VMExecutable:
    """The shape of its argument, and the argument."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        eb.emit_call("vm.builtin.shape_of", args=[eb.r(0)], dst=eb.r(1))
        eb.emit_call("vm.builtin.make_tuple", args=[eb.r(1), eb.r(0)], dst=eb.r(2))
        eb.emit_ret(eb.r(2))
    return eb.get()


@functools.cache
def counter() -> VMExecutable:
    """Adds its argument to what ``vm.state`` has, and returns that."""
    eb = ExecBuilder()
    with eb.function("main", num_inputs=1):
        name = eb.convert_constant("count")
        zero = eb.convert_constant(np.zeros(1, np.float32))
        eb.emit_call("relaxvm.builtin.state_read", args=[eb.vm_state(), name, zero], dst=eb.r(1))
        dtype = eb.convert_constant("float32")
        args = [eb.r(0), eb.r(1), eb.void_arg(), dtype]
        eb.emit_call("relaxvm.result.add", args=args, dst=eb.r(2))
        eb.emit_call("relaxvm.builtin.state_write", args=[eb.vm_state(), name, eb.r(2)])
        eb.emit_ret(eb.r(2))
    return eb.get()


def folder_of_models(path: Path) -> Path:
    """A folder with these programs, one file that is none, and one in two versions."""
    double().save(path / "double.vmexec")
    endless().save(path / "endless.vmexec")
    shapes().save(path / "shapes.vmexec")
    counter().save(path / "counter.vmexec")
    (path / "broken.vmexec").write_bytes(b"no program")
    for version in ("1", "2", "10"):
        (path / "versions" / version).mkdir(parents=True)
    double().save(path / "versions" / "1" / "model.vmexec")
    total().save(path / "versions" / "2" / "model.vmexec")
    total().save(path / "versions" / "10" / "model.vmexec")
    return path
