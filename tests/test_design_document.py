"""The programs of the design document "Relax VM Design", almost as they are written there.

TVM's arrays are replaced by numpy's, and TVM's registration by `relaxvm.register_func`; `rx` and
`relax` are relaxvm.  The last test has the programs with TVM's names, as they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
import relaxvm as relax
import relaxvm as rx
from relaxvm.registry import GLOBAL

from .test_as_tvm_names import as_tvm


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Unregister the functions that the examples register."""
    relaxvm.list_funcs()  # the builtins must be registered before, to distinguish them
    before = dict(GLOBAL._own)
    yield
    GLOBAL._own.clear()
    GLOBAL._own.update(before)


def test_exec_builder() -> None:
    @relaxvm.register_func("test.vm.move")
    def move(src: Any) -> Any:
        return src

    @relaxvm.register_func("vm.add")
    def add(a: Any, b: Any) -> Any:
        ret = a + b
        return np.array(ret)

    @relaxvm.register_func("vm.mul")
    def mul(a: Any, b: Any) -> Any:
        ret = a * b
        return np.array(ret)

    ib = rx.ExecBuilder()
    ib.convert_constant(np.array([2.0, 3.0]))  # the document does not show the origin of constant 0
    with ib.function("main", num_inputs=1):
        ib.emit_call("vm.move", [ib.c(0)], dst=ib.r(1))
        ib.emit_call("vm.add", [ib.r(0), ib.imm(10)], dst=ib.r(2))
        ib.emit_call("vm.mul", [ib.r(2), ib.r(1)], dst=ib.r(3))
        ib.emit_ret(ib.r(3))
    executable = ib.get()

    vm = relax.VirtualMachine(executable)
    np.testing.assert_array_equal(vm["main"](np.array([1.0, 2.0])), [22.0, 36.0])


def test_check_and_formalize() -> None:
    ib = rx.ExecBuilder()
    with (
        pytest.raises(relaxvm.errors.InternalError, match=r"register %3 is read before"),
        ib.function("unexpected", num_inputs=2),
    ):
        ib.emit_ret(ib.r(3))
    with (
        pytest.warns(relaxvm.errors.RelaxVMWarning, match=r"never uses input %1"),
        ib.function("unused", num_inputs=3),
    ):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(2)], dst=ib.r(10000))
        ib.emit_ret(ib.r(10000))
    assert ib.get().function("unused").register_file_size == 4


def test_text_format(capsys: pytest.CaptureFixture[str]) -> None:
    relaxvm.register_func("vm.op.add", lambda a, b: a + b)
    ib = rx.ExecBuilder()

    with ib.function("func0", num_inputs=2):
        ib.emit_call("vm.op.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("vm.builtin.move", args=[ib.r(2)], dst=ib.r(3))
        ib.emit_call("vm.builtin.print", args=[ib.r(3)])
        ib.emit_ret(ib.r(3))

    exec0 = ib.get()
    print(exec0.stats())
    print(exec0.astext())

    # The statistics, the void register and `ret` are as TVM prints them today.
    assert capsys.readouterr().out == (
        "Relax VM executable statistics:\n"
        "  Constant pool (# 0): []\n"
        "  Globals (#4): [func0, vm.op.add, vm.builtin.move, vm.builtin.print]\n"
        "\n"
        "@func0:\n"
        "  call  vm.op.add        in: %0, %1       dst: %2\n"
        "  call  vm.builtin.move  in: %2           dst: %3\n"
        "  call  vm.builtin.print in: %3           dst: %void\n"
        "  ret   %3\n"
        "\n"
        "@vm.op.add packed_func;\n\n@vm.builtin.move packed_func;\n\n"
        "@vm.builtin.print packed_func;\n\n\n"
    )
    assert relax.VirtualMachine(exec0)["func0"](3, 4) == 7
    assert capsys.readouterr().out == "7\n"


def test_dump_as_python_code(capsys: pytest.CaptureFixture[str]) -> None:
    relaxvm.register_func("vm.op.add", lambda a, b: a + b)
    ib = rx.ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("vm.op.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_call("time", dst=ib.r(100))
        ib.emit_call("vm.builtin.move", args=[ib.r(2)], dst=ib.r(3))
        ib.emit_call("time", dst=ib.r(101))
        ib.emit_call("vm.builtin.print", args=[ib.r(3)])
        ib.emit_ret(ib.r(3))

    executable = ib.get()
    assert relax.VirtualMachine(executable)["func0"](3, 4) == 7
    assert capsys.readouterr().out == "7\n"
    scope: dict[str, Any] = {}
    exec(executable.aspython(), scope)
    assert scope["ex"] == executable


def test_virtual_machine() -> None:
    functions: dict[str, Callable[..., Any]] = {"add": np.add, "mul": np.multiply}
    for name, function in functions.items():
        relaxvm.register_func(f"test.vm.{name}", function)

    # building
    ib = relax.ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))

    with ib.function("func1", num_inputs=2):
        ib.emit_call("test.vm.mul", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    ex = ib.get()

    # execution
    vm = relax.VirtualMachine(ex)
    a = np.random.default_rng(0).random(4)
    b = np.random.default_rng(1).random(4)
    mul_res = vm["func1"](a, b)
    add_res = vm["func0"](a, b)
    np.testing.assert_allclose(add_res, a + b)
    np.testing.assert_allclose(mul_res, a * b)


def test_shape_calculation() -> None:
    ib = relax.ExecBuilder()
    shape = (32, 16)
    x = np.random.default_rng(0).random(shape)
    with ib.function("main", num_inputs=0):
        # alloc a shape heap of size 2, and store it in r(0)
        ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.imm(2)], dst=ib.r(0))
        # get the shape of tensor x, and store the ShapeTuple to r(1)
        ib.emit_call("vm.builtin.shape_of", args=[x], dst=ib.r(1))
        # store the shape of x to index 0 and index 1 of the shape heap
        # shape_heap[0] = 32, shape_heap[1] = 16
        ib.emit_call("vm.builtin.store_shape", args=[ib.r(1), ib.r(0), ib.imm(0), ib.imm(1)])
        # construct a ShapeTuple from the values in index 0 and index 1 of the shape heap
        ib.emit_call("vm.builtin.load_shape", args=[ib.r(0), ib.imm(0), ib.imm(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))

    result = relax.VirtualMachine(ib.get())["main"]()
    assert type(result) is relaxvm.Shape
    assert result == shape


def test_fields_of_the_structures() -> None:
    """The document's structures in C++, which are arrays and tables of Python here."""
    ib = rx.ExecBuilder()
    with ib.function("func0", num_inputs=2):
        ib.emit_call("add", [ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    executable = ib.get()
    func = executable.function("func0")
    assert (func.name, func.start_instr, func.num_args, func.register_file_size) == (
        "func0", 0, 2, 3
    )  # fmt: skip
    # The names of packed functions, a list of their own there, are in the one table of functions.
    assert [each.name for each in executable.functions] == ["func0", "add"]
    assert executable.constants == ()
    # An instruction begins in `instr_data` where `instr_offset` says: call is 1, ret is 2.
    assert executable.instr_offset.tolist() == [0, 6]
    assert executable.instr_data.tolist() == [1, 2, 1, 2, 0, 1, 2, 2]


PROGRAMS = """
import numpy as np  # not in the document
import tvm

@tvm.register_func("test.vm.move")
def move(src):
    return src

@tvm.register_func("vm.add")
def add(a, b):
    ret = a.asnumpy() + (b if isinstance(b, int) else b.asnumpy())  # b.asnumpy() there: it is 10
    return tvm.nd.array(ret)

@tvm.register_func("vm.mul")
def mul(a, b):
    ret = a.asnumpy() * b.asnumpy()
    return tvm.nd.array(ret)

from tvm import relax as rx
ib = rx.ExecBuilder()
ib.convert_constant(tvm.nd.array(np.array([2.0, 3.0])))  # of unknown origin in the document
with ib.function("main", num_inputs=1):
    ib.emit_call("test.vm.move", [ib.c(0)], dst=ib.r(1))  # vm.move there, which is not registered
    ib.emit_call("vm.add", [ib.r(0), ib.imm(10)], dst=ib.r(2))
    ib.emit_call("vm.mul", [ib.r(2), ib.r(1)], dst=ib.r(3))
    ib.emit_ret(ib.r(3))
executable = ib.get()
vm = rx.VirtualMachine(executable, tvm.cpu())
print(vm["main"](tvm.nd.array(np.array([1.0, 2.0]))).asnumpy())

from tvm import relax
tvm.register_func("test.vm.add", add)
tvm.register_func("test.vm.mul", mul)

# building
ib = relax.ExecBuilder()
with ib.function("func0", num_inputs=2):
    ib.emit_call("test.vm.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))

with ib.function("func1", num_inputs=2):
    ib.emit_call("test.vm.mul", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))
ex = ib.get()

# execution
vm = relax.VirtualMachine(ex)
a = tvm.nd.array(np.random.rand(4,))
b = tvm.nd.array(np.random.rand(4,))
mul_res = vm["func1"](a, b)
add_res = vm["func0"](a, b)
np.testing.assert_allclose(add_res.asnumpy(), a.asnumpy() + b.asnumpy())
np.testing.assert_allclose(mul_res.asnumpy(), a.asnumpy() * b.asnumpy())

ib = relax.ExecBuilder()
shape = (32, 16)
x = tvm.nd.array(np.random.rand(*shape))
with ib.function("main", num_inputs=0):
    ib.emit_call("vm.builtin.alloc_shape_heap", args=[ib.imm(2)], dst=ib.r(0))
    ib.emit_call("vm.builtin.shape_of", args=[x], dst=ib.r(1))
    ib.emit_call("vm.builtin.store_shape", args=[ib.r(1), ib.r(0), ib.imm(0), ib.imm(1)])
    ib.emit_call("vm.builtin.load_shape", args=[ib.r(0), ib.imm(0), ib.imm(1)], dst=ib.r(2))
    ib.emit_ret(ib.r(2))
print(relax.VirtualMachine(ib.get())["main"]())

# ib.emit_call("vm.builtin.alloc_storage", args=[ib.vm_state(), ...])
ib = relax.ExecBuilder()
with ib.function("main", num_inputs=0):
    ib.emit_call("vm.builtin.alloc_storage", dst=ib.r(0), args=[
        ib.vm_state(), (64,), ib.imm(0), tvm.DataType("float32"), ib.convert_constant("global")])
    ib.emit_call("vm.builtin.alloc_tensor", dst=ib.r(1), args=[
        ib.r(0), ib.imm(0), (4, 4), tvm.DataType("float32")])
    ib.emit_ret(ib.r(1))
print(relax.VirtualMachine(ib.get())["main"]().shape)
"""


def test_the_programs_with_names_of_tvm() -> None:
    assert as_tvm(PROGRAMS) == "[22. 36.]\nShape(32, 16)\n(4, 4)\n"
