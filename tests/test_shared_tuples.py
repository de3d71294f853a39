"""Tuples that share their elements: with width ** depth of them, no walk may go through all."""

from __future__ import annotations

import sys
import textwrap

import pytest

from . import children

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
        def change(builder):
            builder.emit_call("vm.builtin.tuple_reset_item", [builder.r(0), builder.imm(0)])
            builder.emit_ret(builder.r(0))
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
