"""Programs built in the order of a script, as with TVM's `tvm.script.ir_builder`."""

# ruff: noqa: SIM117  (nested blocks show the nesting of what they build)
from __future__ import annotations

import numpy as np
import pytest

import relaxvm
from relaxvm.ir import TensorType, Var, VarBinding, assert_structural_equal
from relaxvm.script import from_source
from relaxvm.script import ir_builder as ib
from relaxvm.script import relax as R
from relaxvm.script.ir_builder import IRBuilder
from relaxvm.te import topi

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"


def test_a_function_with_a_dataflow_block() -> None:
    with IRBuilder() as builder, ib.function():
        R.func_name("main")
        R.func_attr({"num_input": 1})
        x = R.arg("x", R.Tensor((2, 3), "float32"))
        w = R.arg("w", R.Tensor((2, 3), "float32"))
        with R.dataflow() as frame:
            both = [R.emit(R.add(x, w)), R.emit(R.multiply(x, w))]
            R.output(both[1], R.emit(R.concat(both, axis=1)))
        product, joined = frame.output_vars
        R.func_ret_value((product, joined))
    func = builder.get()
    expected = from_source(HEADER + """
@R.function
def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((2, 3), "float32")):
    R.func_attr({"num_input": 1})
    with R.dataflow():
        a = R.add(x, w)
        b = R.multiply(x, w)
        c = R.concat([a, b], axis=1)
        R.output(b, c)
    return b, c
""")
    assert_structural_equal(func, expected)
    assert_structural_equal(from_source(HEADER + func.script()), func)


def test_a_module_with_branches_and_tensor_expressions() -> None:
    with IRBuilder() as builder, ib.ir_module():
        ib.module_attrs({"kind": "example"})
        ib.module_global_infos({"vdevice": [relaxvm.ir.VDevice("llvm")]})
        with ib.function(is_private=True):
            R.func_name("double")
            x = R.arg("x", TensorType((2,), "float32"))
            R.func_ret_type(TensorType(None, "float32", ndim=1))
            R.func_ret_value(R.emit_te(topi.add, x, x))
        with ib.function(is_pure=False):
            R.func_name("main")
            c = R.arg("c", TensorType((), "bool"))
            x = R.arg("x", TensorType(None, "float32", ndim=1))
            y = IRBuilder.name("y", R.emit(R.exp(x), TensorType((2,), "float32")))
            with R.If(c) as branch:
                with R.Then():
                    R.emit(R.add(y, y))
                with R.Else():
                    R.emit_match_cast(y, TensorType((2,), "float32"))
            wide = R.emit(branch.var, TensorType(None, "float32", ndim=1))
            last = R.emit_var_binding(VarBinding(Var("last", wide.ty), wide))
            R.func_ret_value(last)
    mod = builder.get()
    assert [var.name_hint for var in mod] == ["add", "double", "main"]
    assert dict(mod.attrs) == {"kind": "example"}
    assert "global_symbol" not in mod["double"].attrs
    assert str(mod["double"].ret_ty) == 'R.Tensor((2,), dtype="float32")'  # the body says more
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    x = np.array([0.0, 1.0], np.float32)
    np.testing.assert_allclose(vm["main"](np.array(True), x), 2 * np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(vm["main"](np.array(False), x), np.exp(x), rtol=1e-6)
    with pytest.raises(RuntimeError, match="match_cast"):
        vm["main"](np.array(True), np.ones(3, np.float32))


def test_functions_can_be_declared_first() -> None:
    func = from_source(HEADER + "@R.function\ndef f(x: R.Tensor((2,), 'float32')):\n    return x\n")
    with IRBuilder() as builder, ib.ir_module():
        var = ib.decl_function("f", func)
        ib.def_function("f", func.with_attr("k", 1))
        with ib.function():
            R.func_name("main")
            x = R.arg("x", R.Tensor((2,), "float32"))
            R.func_ret_value(R.emit(var(x)))
    assert builder.get()["f"].attrs["k"] == 1


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="no IRBuilder is active"):
        R.arg("x", R.Tensor((2,), "float32"))
    assert not IRBuilder.is_in_scope()
    with IRBuilder() as builder:
        assert IRBuilder.current() is builder
        with pytest.raises(ValueError, match=r"emit: expected to be in a with function\(\)"):
            R.emit(R.const(1))
        with pytest.raises(ValueError, match="nothing is built"):
            builder.get()
        with pytest.raises(ValueError, match="function '' has no result: call func_ret_value"):
            with ib.function():
                pass
        with pytest.raises(ValueError, match="is inside of another"), ib.function(), ib.function():
            pass
        with pytest.raises(ValueError, match="a function of a module needs a name"):
            with ib.ir_module(), ib.function():
                R.func_ret_value(R.const(1))
        with pytest.raises(ValueError, match="parameter 'x' comes after the first binding"):
            with ib.function():
                R.emit(R.const(1))
                R.arg("x", R.Tensor((2,), "float32"))
        with pytest.raises(ValueError, match=r"Then: expected to be in a with If"):
            with ib.function(), R.Then():
                pass
        with pytest.raises(ValueError, match=r"expected a Then\(\) and an Else\(\)"):
            with ib.function(), R.If(R.const(True)), R.Then():
                R.emit(R.const(1))
        with pytest.raises(ValueError, match="Then: it emits no value"):
            with ib.function(), R.If(R.const(True)), R.Then():
                pass
        with pytest.raises(TypeError, match="output: expected variables of the dataflow block"):
            with ib.function(), R.dataflow():
                R.output(R.const(1))
    assert builder.frames == []
