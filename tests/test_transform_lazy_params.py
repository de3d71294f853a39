"""LazyGetInput, LazySetOutput and LazyTransformParams: programs, run before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.analysis import well_formed
from relaxvm.ir import AnyType, IRModule, Var
from relaxvm.script import from_source
from relaxvm.transform import LazyGetInput, LazySetOutput, LazyTransformParams

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"
SEPARATE = (
    HEADER
    + """
@I.ir_module
class Module:
    @R.function
    def transform_params(
        x: R.Tensor((2,), "float32"), a: R.Tensor(("n",), "float32"), b: R.Tensor(("n",), "float32")
    ):
        R.func_attr({"num_input": 1})
        c = R.multiply(a, R.const(2, "float32"))
        d = R.add(c, b)
        return (d, c, d, R.const(7, "int32"), x)
"""
)
TOGETHER = (
    HEADER
    + """
@I.ir_module
class Module:
    @R.function
    def main_transform_params(
        w: R.Tuple(R.Tensor((2,), "float32"), R.Shape(["k"]), R.Tensor((3,), "float32"))
    ):
        k = T.int64()
        a = w[2]
        b = w[0]
        c = R.add(b, R.zeros((2,), "float32"))
        d = R.full((k,), R.const(1, "float32"), "float32")
        out = (c, a, d)
        return out
"""
)
A, B, X = (np.arange(3, dtype=np.float32) + i for i in range(3))


def machine(mod: IRModule, **functions: Any) -> relaxvm.VirtualMachine:
    well_formed(mod)
    return relaxvm.VirtualMachine(relaxvm.build(mod), functions=functions or None)


def test_inputs_are_loaded_where_they_are_used() -> None:
    before = from_source(SEPARATE)
    after = LazyGetInput()(before)
    x = np.ones(2, np.float32)
    asked: list[tuple[int, str]] = []

    def get(index: int, name: str) -> Any:
        asked.append((index, name))
        return (A, B)[index]

    expected = machine(before).transform_params(x, A, B)
    got = machine(after).transform_params(x, get)
    assert asked == [(0, "a"), (1, "b")]
    for one, other in zip(expected, got, strict=True):
        np.testing.assert_array_equal(one, other)
    func = after["transform_params"]
    assert [param.name for param in func.params] == ["x", "fget_param"]
    assert func.attrs["num_input"] == 2
    names = [binding.var.name for binding in func.body.blocks[0].bindings]
    assert names.index("c") < names.index("b") < names.index("d")


def test_outputs_are_passed_on_when_they_are_computed() -> None:
    before = from_source(SEPARATE)
    after = LazySetOutput()(before)
    x = np.ones(2, np.float32)
    stored: list[tuple[int, list[float]]] = []
    vm = machine(after)
    assert vm.transform_params(
        x, lambda index, value: stored.append((index, value.tolist())), A, B
    ) == ()
    assert [index for index, _ in stored] == [4, 1, 0, 2, 3]
    assert dict(stored)[3] == 7
    for index, value in enumerate(machine(before).transform_params(x, A, B)):
        assert dict(stored)[index] == value.tolist()
    assert [p.name for p in after["transform_params"].params] == ["x", "fset_output", "a", "b"]


def test_weights_are_loaded_stored_and_released() -> None:
    before = from_source(TOGETHER)
    after = LazyTransformParams()(before)
    weights = {0: B[:2], 2: A}
    log: list[Any] = []
    stored: dict[int, Any] = {}

    def get(index: int) -> Any:
        log.append(("get", index))
        return weights[index]

    def put(index: int, value: Any) -> None:
        log.append(("set", index))
        stored[index] = value.copy()

    vm = machine(after, get_item=get, set_item=put)
    assert vm.main_transform_params(relaxvm.Shape((4,))) == ()
    assert log == [("get", 2), ("set", 1), ("get", 0), ("set", 0), ("set", 2)]
    expected = machine(before).main_transform_params((B[:2], relaxvm.Shape((4,)), A))
    for index, value in enumerate(expected):
        np.testing.assert_array_equal(stored[index], value)
    text = after["main_transform_params"].script()
    assert text.count("R.vm.kill_object(") == 2


def test_functions_may_be_named_and_take_more() -> None:
    loader = Var("loader", AnyType())
    after = LazyTransformParams("load", None, extra_get_item_params=[loader])(from_source(TOGETHER))
    seen = []

    def load(where: str, index: int) -> Any:
        seen.append((where, index))
        return {0: B[:2], 2: A}[index]

    c, a, d = machine(after, load=load).main_transform_params(relaxvm.Shape((1,)), "disk")
    assert seen == [("disk", 2), ("disk", 0)]
    assert (c.tolist(), a.tolist(), d.tolist()) == (B[:2].tolist(), A.tolist(), [1])


def test_a_tuple_that_is_used_as_a_whole_is_refused() -> None:
    text = TOGETHER.replace("out = (c, a, d)", "out = (c, w)")
    with pytest.raises(ValueError, match="the tuple of weights w is used as a whole, by"):
        LazyTransformParams()(from_source(text))


def test_other_functions_are_left() -> None:
    mod = from_source(SEPARATE.replace("transform_params", "main"))
    for make in (LazyGetInput, LazySetOutput, LazyTransformParams):
        assert make()(mod)["main"] is mod["main"]
