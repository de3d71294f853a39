"""`vm.module`, TVM's string-based interface, and `time_evaluator`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import Limits, VirtualMachine, cpu
from relaxvm.errors import ArityError, InternalError

from .vm_programs import FUNCTIONS, X, Y, add, program


@pytest.fixture
def vm() -> VirtualMachine:
    return VirtualMachine(program(), functions=FUNCTIONS)


# time_evaluator


def test_time_evaluator_counts_and_figures(vm: VirtualMachine) -> None:
    count = 0

    def counting(a: Any, b: Any) -> Any:
        nonlocal count
        count += 1
        return a + b

    machine = VirtualMachine(program(), functions={**FUNCTIONS, "t.add": counting})
    result = machine.time_evaluator("main", cpu(), number=3, repeat=4)(1, 2)
    assert count == 1 + 3 * 4
    assert len(result.results) == 4
    assert all(seconds > 0 for seconds in result.results)
    assert result.min <= result.median <= result.max
    assert result.min <= result.mean <= result.max
    assert result.std >= 0
    assert "mean (ms)" in str(result)
    assert repr(result).startswith("BenchmarkResult(min=")


def test_time_evaluator_names(vm: VirtualMachine) -> None:
    vm.save_function("main", "saved", X, Y)
    vm.set_input("main", X, Y)
    assert len(vm.time_evaluator("saved", cpu(), repeat=2)().results) == 2
    assert len(vm.time_evaluator("invoke_stateful", cpu(), repeat=2)("main").results) == 2
    np.testing.assert_array_equal(vm.get_outputs("main"), X + Y)
    with pytest.raises(InternalError, match="unknown function 'mian'; did you mean 'main'"):
        vm.time_evaluator("mian", cpu())
    for wrong in ({"number": 0}, {"repeat": 0}, {"repeats_to_cooldown": 0}):
        with pytest.raises(ValueError, match=f"expected {next(iter(wrong))} >= 1, got 0"):
            vm.time_evaluator("main", cpu(), **wrong)
    with pytest.raises(ValueError, match="expected min_repeat_ms >= 0"):
        vm.time_evaluator("main", cpu(), min_repeat_ms=-1)
    with pytest.raises(ArityError):
        vm.time_evaluator("main", cpu())(1)


def test_time_evaluator_min_repeat_and_preproc(vm: VirtualMachine) -> None:
    calls_seen: list[str] = []
    functions = {
        **FUNCTIONS,
        "t.add": lambda a, b: calls_seen.append("run"),
        "t.prepare": lambda a, b: calls_seen.append("prepare"),
    }
    machine = VirtualMachine(program(), functions=functions)
    evaluate = machine.time_evaluator(
        "main", cpu(), number=1, repeat=2, min_repeat_ms=2, f_preproc="t.prepare"
    )
    evaluate(1, 2)
    assert calls_seen.count("prepare") == 2
    assert calls_seen[:2] == ["run", "prepare"]
    assert len(calls_seen) > 1 + 2 + 2, "the number of calls grows until a repeat is long enough"


# vm.module


def test_module_interface(vm: VirtualMachine) -> None:
    module = vm.module
    assert module.kind == "relax.VirtualMachine"
    assert module["get_function_arity"]("main") == 2
    assert module["get_function_arity"]("unnamed") == 2
    assert module["get_function_param_name"]("main", 1) == "weight"
    with pytest.raises(ValueError, match="main: expected the index of a parameter below 2, got 2"):
        module["get_function_param_name"]("main", 2)
    with pytest.raises(ValueError, match="unknown function"):
        module["get_function_arity"]("nope")
    np.testing.assert_array_equal(module["main"](X, Y), X + Y)
    module["set_input"]("nested", X)
    module["invoke_stateful"]("nested")
    assert module["get_output_arity"]("nested") == 2
    assert module["get_output_arity"]("nested", 0) == 2
    assert module["get_output_arity"]("nested", 1) == -1
    assert module["get_output"]("nested", 0, 1) is X
    with pytest.raises(ValueError, match="get_output: nested returned a tuple of 2"):
        module["get_output"]("nested")
    with pytest.raises(IndexError, match="expected an index below 2, got 7"):
        module["get_output"]("nested", 7)
    with pytest.raises(IndexError, match=r"index 0 into float32\[2\]"):
        module["get_output"]("nested", 1, 0)
    module["save_function"]("main", "saved", 0, X, Y)
    assert module["saved"]() is None
    assert module["invoke_closure"](vm.make(2), 1) == (1, 2)
    with pytest.raises(AttributeError, match=r"'relax\.VirtualMachine' has no function 'nope'"):
        module["nope"]
    assert module.implements_function("main")
    assert not module.implements_function("t.add")
    assert module.implements_function("t.add", query_imports=True)
    assert len(module.time_evaluator("five", cpu())().results) == 1
    assert "functions" in repr(module)


def test_initialization_by_a_program(vm: VirtualMachine) -> None:
    module = VirtualMachine(program(), functions=FUNCTIONS, limits=Limits(call_depth=9)).module
    module["save_function"]("main", "saved", 1, X, Y)
    assert module["vm_initialization"](1, 0, 1, 1, 1, 2) is None
    np.testing.assert_array_equal(module["main"](X, Y), X + Y)
    assert not module.implements_function("saved")
    assert [type(each).__name__ for each in module._vm.allocators] == [
        "NaiveAllocator", "PooledAllocator",
    ]  # fmt: skip
    assert module._vm.limits.call_depth == 9
    with pytest.raises(ValueError, match=r"three numbers for each device .* got 2"):
        module["vm_initialization"](1, 0)
    with pytest.raises(ValueError, match="expected three numbers"):
        module["vm_initialization"]()
    with pytest.raises(ValueError, match="expected 'naive' or 'pooled'"):
        module["vm_initialization"](1, 0, 3)


def test_module_imports_give_the_kernels(vm: VirtualMachine) -> None:
    kernels = vm.module.imports[0]
    assert kernels.get_function("t.add", query_imports=True) is add
    assert vm.module.get_function("t.add", query_imports=True) is add
    for name in ("vm.builtin.make_tuple", "main", "nope"):
        with pytest.raises(AttributeError, match="has no function"):
            kernels.get_function(name)
    with pytest.raises(AttributeError, match=r"did you mean 't\.add'"):
        kernels["t.ad"]
