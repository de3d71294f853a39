"""Tuples that share their elements: with width ** depth of them, no walk may go through all."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from . import children
from .shared_attacks import MAKERS, calls

BEGIN = """
import numpy as np
import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine

def shared(width, depth, leaf=1.0):
    value = leaf
    for _ in range(depth):
        value = (value,) * width
    return value

def program(emit, num_inputs=1):
    builder = ExecBuilder()
    with builder.function("main", num_inputs=num_inputs):
        emit(builder)
    return builder.get()

def getitem(builder):
    # The index is in a register, so the builtin is called, not run by the loop.
    for _ in range(12):
        builder.emit_call("vm.builtin.make_tuple", [builder.r(0)] * 16, dst=builder.r(0))
    builder.emit_call("vm.builtin.copy", [builder.imm(3)], dst=builder.r(1))
    builder.emit_call("vm.builtin.tuple_getitem", [builder.r(0), builder.r(1)], dst=builder.r(2))
    builder.emit_ret(builder.r(2))

def change(builder):
    builder.emit_call("vm.builtin.tuple_reset_item", [builder.r(0), builder.imm(0)])
    builder.emit_ret(builder.r(0))

identity = program(lambda builder: builder.emit_ret(builder.r(0)))
"""

CASES = {
    "arguments": """
        for limits in (None, Limits.untrusted()):
            vm = VirtualMachine(identity, limits=limits)
            value = shared(1000, 6)
            assert vm.main(value) is value
            vm.set_input("main", value)
            vm.invoke_stateful("main")
            vm.save_function("main", "saved", value)
            vm["saved"]()
    """,
    "results of builtins": """
        for options in ({}, {"optimize": False}, {"limits": Limits.untrusted()}):
            vm = VirtualMachine(program(getitem), **options)
            result = vm.main(np.ones(2))
            assert len(result) == 16
    """,
    "results of packed functions": """
        def call(builder):
            builder.emit_call("make", [], dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        vm = VirtualMachine(program(call, 0), functions={"make": lambda: shared(100, 9)})
        assert len(vm.main()) == 100
    """,
    "tuples that the program changes": """
        value = shared(50, 10)
        assert VirtualMachine(program(change)).main(value)[0] is None
        assert value[0] is not None
    """,
    "errors, profiles and printing": """
        def fail(builder):
            builder.emit_call("vm.builtin.check_tensor_info",
                              [builder.r(0), builder.imm(1), builder.convert_constant("x")])
            builder.emit_ret(builder.r(0))
        value = shared(1000, 6)
        try:
            VirtualMachine(program(fail)).main(value)
        except Exception as error:
            assert len(str(error)) + sum(map(len, error.__notes__)) < 10_000
        else:
            raise AssertionError("expected an error")
        vm = VirtualMachine(program(getitem))
        with relaxvm.profile(vm) as report:
            vm.main(np.ones(2))
        assert len(str(report)) < 100_000
        vm.set_instrument(lambda func, name, before, ret, *args: 0)
        vm.main(value)
        def show(builder):
            builder.emit_call("vm.builtin.print", [builder.r(0)])
            builder.emit_ret(builder.r(0))
        VirtualMachine(program(show)).main(value)
    """,
    "lists that contain themselves": """
        value = [1]
        value.append((value, 2))
        vm = VirtualMachine(identity)
        def make(builder):
            builder.emit_call("make", [], dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        maker = VirtualMachine(program(make, 0), functions={"make": lambda: value})
        for call in (lambda: vm.main(value), lambda: vm.main((value,)), maker.main,
                     lambda: vm.set_input("main", value),
                     lambda: vm.save_function("main", "saved", value),
                     lambda: VirtualMachine(program(change)).main(value)):
            try:
                call()
            except ValueError as error:
                assert "a list contains itself" in str(error), error
            else:
                raise AssertionError("expected a ValueError")
    """,
    "deep tuples": """
        value = ()
        for _ in range(50_000):
            value = (value,)
        for vm in (VirtualMachine(identity), VirtualMachine(program(change))):
            assert len(vm.main(value)) == 1
        vm.set_input("main", value)
        vm.invoke_stateful("main")
    """,
    "the same long string in tuples": """
        def check(builder):
            builder.emit_call("relax.run.assert_op",
                              [builder.imm(0), builder.convert_constant("{0} {1}"),
                               builder.r(0), builder.r(1)])
            builder.emit_ret(builder.r(0))
        import resource
        text = "x" * (8 << 20)
        args = (text,) * 1000, relaxvm.Shape([1] * 1_000_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            VirtualMachine(program(check, 2)).main(*args)
        except AssertionError as error:
            assert len(str(error)) < 1 << 21
        else:
            raise RuntimeError("expected an AssertionError")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
    """,
    "objects of TVM's FFI": """
        import sys
        try:
            import tvm_ffi
        except ImportError:
            sys.exit()
        from relaxvm.core import ffi
        value = shared(1000, 6)
        made = ffi.to_ffi(value)
        assert isinstance(made, tvm_ffi.Array) and len(made) == 1000
        again = ffi.from_ffi(made)
        assert len(again) == 1000 and again[0] is again[999]
        assert VirtualMachine(identity).main(made)[0][0] is not None
        def call(builder):
            builder.emit_call("f", [builder.r(0)], dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        frozen = np.ones(3)
        frozen.flags.writeable = False
        maps = {"a": 1}
        for _ in range(100):
            maps = {"a": maps, "b": (maps, maps)}
        for function in (tvm_ffi.convert(lambda x: x), tvm_ffi.convert(lambda x: [x, x])):
            vm = VirtualMachine(program(call), functions={"f": function})
            for x in (value, shared(1000, 6, frozen), maps):
                assert len(vm.main(x)) in (2, 1000)
    """,
    "a drop-in for TVM": """
        import sys
        try:
            import tvm_ffi
        except ImportError:
            sys.exit()
        from relaxvm.contrib.tvm.functions import object_of, values_of
        from relaxvm.core import ffi
        made = ffi.to_ffi(shared(1000, 6))
        (value,) = values_of([made])
        assert len(value) == 1000
        assert len(object_of(value)) == 1000
    """,
    "a large tuple that shares nothing": """
        vm = VirtualMachine(identity)
        value = tuple(np.ones(1) for _ in range(100_000))
        assert vm.main(value) is value
        nested = tuple((x, (x,)) for x in value)
        assert vm.main(nested) is nested
    """,
}


@pytest.mark.parametrize("case", CASES)
def test_shared_tuples(case: str) -> None:
    """In a process of its own, which is ended where a walk does not end."""
    done = children.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(CASES[case])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(done.stdout) < 20_000


RUN = """
import runpy, sys
sys.path.append(sys.argv[1])
runpy.run_module("tests.shared_attacks", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="an alarm ends calls that do not end")
def test_every_builtin_and_kernel_with_shared_values() -> None:
    """They may refuse such arguments, but neither they nor their messages walk through them."""
    # Not by -m, which would import the relaxvm of the checkout instead of the installed one.
    done = children.run(
        [sys.executable, "-P", "-W", "ignore", "-c", RUN, str(Path(__file__).parents[1])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    made = done.stdout.splitlines()
    assert done.returncode == 0, (made[-1:], done.stderr[-3000:])
    assert len(made) == sum(len(MAKERS) * len(args) for _, args in calls())
