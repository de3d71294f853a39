"""Habits of programs written for TVM: forms that its scripts and tests use here and there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import analysis, dpl, ir, op, transform
from relaxvm.errors import DiagnosticError
from relaxvm.ir import DataflowBlock, Var
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


def run(mod: Any, *args: Any) -> Any:
    return relaxvm.VirtualMachine(relaxvm.build(mod))["main"](*args)


# One name for the variables of several loops


@I.ir_module
class Product:
    @R.function
    def main(a: R.Tensor((3, 4), "int32"), b: R.Tensor((3, 4), "int32")):
        return R.call_tir(Product.product, [a, b], out_ty=R.Tensor((3, 4), "int32"))

    @T.prim_func(private=True, s_tir=True)
    def product(
        a: T.Buffer((3, 4), "int32"), b: T.Buffer((3, 4), "int32"), c: T.Buffer((3, 4), "int32")
    ):
        for places in T.grid(*a.shape):
            with T.sblock("compute"):
                i, j = T.axis.remap("SS", places)
                c[i, j] = a[i, j] * b[i, j]


def test_one_name_for_the_variables_of_a_grid() -> None:
    a, b = np.arange(12, dtype=np.int32).reshape(3, 4), np.full((3, 4), 3, np.int32)
    np.testing.assert_array_equal(run(Product, a, b), a * b)
    assert "for places_0, places_1 in T.grid(3, 4):" in Product.script()


GRID = """@T.prim_func(private=True, s_tir=True)
def main(a: T.Buffer((2, 3, 4), "float32")):
    for {} in T.grid(2, 3, 4):
        a[{}] = T.float32(1)
"""


def test_a_starred_name_takes_the_other_variables() -> None:
    func = from_source(GRID.format("i, *rest", "i, rest[0], rest[1]"))
    assert "for i, rest_0, rest_1 in T.grid(2, 3, 4):" in func.script()


@pytest.mark.parametrize("names", ["i, j", "i, j, k, *l, m", "*i, *j"])
def test_numbers_of_loop_variables(names: str) -> None:
    with pytest.raises(DiagnosticError, match="expected 3 loop variables, got"):
        from_source(GRID.format(names, "0, 0, 0"))


# Calls of variables without a type


def test_calls_of_variables_without_a_type_have_none() -> None:
    for call in (
        op.add(Var("x"), Var("y")),
        op.nn.relu(op.negative(Var("x"))),
        op.call_dps_packed("f", [Var("x")], R.Tensor((2,), "float32")),
    ):
        assert call.ty is None
        with pytest.raises(TypeError, match="Var x has no type"):
            ir.infer_type(call)


def test_patterns_match_calls_without_a_type() -> None:
    from relaxvm.dpl import is_op, wildcard

    assert is_op("relax.add")(wildcard(), wildcard()).match(op.add(Var("x"), Var("y")))


# Results without a data type


def test_a_result_without_a_data_type_is_refused_when_it_is_allocated() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            return R.call_dps_packed("f", x, out_ty=R.Tensor((2,)))

    with pytest.raises(TypeError, match="expected a tensor type with a shape and a data type"):
        relaxvm.build(Module)


def test_binding_simplifies_dimensions() -> None:
    @R.function(private=True)
    def before(a: R.Tensor(("m", "n"))):
        m, n = T.int64(), T.int64()
        return R.call_dps_packed("f", [a], out_ty=R.Tensor((2 * m * n,)))

    @R.function(private=True)
    def expected(a: R.Tensor(("m", 16))):
        m = T.int64()
        return R.call_dps_packed("f", [a], out_ty=R.Tensor((m * 32,)))

    ir.assert_structural_equal(before.bind_symbolic_vars({"n": 16}), expected)


# Inlining in dataflow blocks


@I.ir_module
class Calls:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.negative(x)
            z = Calls.chosen(y)
            u = R.add(R.exp(z), y)
            R.output(u)
        return u

    @R.function(private=True)
    def chosen(x: R.Tensor((4,), "float32")):
        if R.less(R.sum(x), R.const(0.0, "float32")):
            y = R.abs(x)
        else:
            y = R.exp(x)
        return y


@pytest.mark.parametrize("sign", [1, -1])
def test_a_function_with_a_branch_is_inlined_into_a_dataflow_block(sign: int) -> None:
    inlined = [
        transform.InlinePrivateFunctions()(Calls),
        ir.IRModule({"main": Calls["main"].inline_functions({"chosen": Calls["chosen"]})}),
    ]
    x = sign * np.arange(1, 5, dtype=np.float32)
    for mod in inlined:
        analysis.check_well_formed(mod)
        assert [var.name_hint for var in mod.get_global_vars()] == ["main"]
        kinds = [isinstance(block, DataflowBlock) for block in mod["main"].body.blocks]
        assert kinds == [True, False, True]
        np.testing.assert_array_equal(run(mod, x), run(Calls, x))


def test_inline_functions_keeps_bindings_outside_of_dataflow_blocks() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def main(a: R.Tensor((4, 4), "int32")):
            with R.dataflow():
                b = R.multiply(a, a)
                c = Before.twice(b)
                d = R.add(c, c)
                R.output(d)
            return d

        @R.function(private=True)
        def twice(b: R.Tensor((4, 4), "int32")):
            c = R.concat([b, b], axis=1)
            return c

    @R.function(private=True)
    def expected(a: R.Tensor((4, 4), "int32")):
        with R.dataflow():
            b = R.multiply(a, a)
            R.output(b)
        c = R.concat([b, b], axis=1)
        with R.dataflow():
            d = R.add(c, c)
            R.output(d)
        return d

    after = Before["main"].inline_functions({"twice": Before["twice"]})
    ir.assert_structural_equal(after, expected)


# Descriptions of differences


def test_the_place_of_a_difference_begins_at_the_root() -> None:
    @R.function(private=True)
    def one():
        return R.prim_value(1)

    @R.function(private=True)
    def two():
        return R.prim_value(2)

    with pytest.raises(ValueError, match=r"<root>\.body\.body\.value\n  left:  1\n  right: 2"):
        ir.assert_structural_equal(one, two)


# Data types of views


VIEW = """@I.ir_module
class Module:
    @R.function
    def main(a: R.Tensor((4,), "float32")):
        dtype = R.dtype("int32")
        same = dtype
        b = R.memory.view(a, dtype=same)
        c = R.memory.view(b, R.shape([2, 2]))
        return b, c
"""


def test_a_view_knows_the_data_type_that_a_variable_has() -> None:
    module = from_source(VIEW)
    assert module["main"].ret_ty == ir.TupleType(
        [ir.TensorType((4,), "int32"), ir.TensorType((2, 2), "int32")]
    )
    text = module.script()
    assert "R.memory.view(b, R.shape([2, 2]), gv, R.tuple())" in text
    again = from_source(text)
    assert ir.structural_equal(again, module)
    assert analysis.well_formed(ir.load_json(ir.save_json(module)))
    b, c = run(module, np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(b, np.arange(4, dtype=np.float32).view(np.int32))
    np.testing.assert_array_equal(c, b.reshape(2, 2))


def test_a_view_is_of_the_type_that_its_variable_says() -> None:
    module = from_source(VIEW)
    (call,) = [
        binding.value for binding in module["main"].body.blocks[0].bindings
        if binding.var.name == "b"
    ]  # fmt: skip
    call.ty = ir.TensorType((4,), "int8")
    found = [each for each in analysis.violations(module) if "view" in each.binding]
    assert 'R.Tensor((4,), dtype="int8"), but the inferred type is' in found[0].problem


# Indices in attributes


def test_indices_of_split_are_typed() -> None:
    x = Var("x", ir.TensorType((10,), "float32"))
    places, parts = op.split(x, [3, 6]).attrs.indices_or_sections, op.split(x, 2).attrs
    assert places == (3, 6)
    assert [place.ty for place in places] == [ir.PrimType("int64")] * 2
    assert parts.indices_or_sections.value == 2
    for wanted in (2, ir.IntImm("int64", 2)):
        pattern = dpl.is_op("relax.split")(dpl.wildcard()).has_attr({"indices_or_sections": wanted})
        assert pattern.match(op.split(x, 2))
        assert not pattern.match(op.split(x, 5))
    assert parts.indices_or_sections.dtype == "int64"
    func = from_source('@R.function\ndef f(x: R.Tensor((9,), "int8")):\n    return R.split(x, [4])')
    loaded = ir.load_json(ir.save_json(func))
    assert ir.structural_equal(loaded, func)
    assert ir.structural_hash(loaded) == ir.structural_hash(func)


def test_parts_of_an_axis_that_only_the_run_knows() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n",), "float32")):
            y = R.split(x, 3)
            return R.add(y[0], y[1]), y[2]

    x = np.arange(7, dtype=np.float32)
    first, last = run(Module, x)
    np.testing.assert_array_equal(first, x[:3] + x[3:6])
    np.testing.assert_array_equal(last, x[6:])
    with pytest.raises(relaxvm.errors.InternalError, match="expected dimensions >= 0"):
        run(Module, x[:1])
