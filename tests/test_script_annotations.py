"""Types that are written and cannot be proved, as programs for TVM have them: checked at run time.

TVM believes such types.  `relaxvm.contrib.as_tvm` parses with `Annotations.CHECKED`.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.errors import AnnotationWarning, DiagnosticError
from relaxvm.ir import assert_structural_equal
from relaxvm.script.entry import program_of
from relaxvm.script.markers import Annotations

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"


def parse(text: str) -> Any:
    return program_of(HEADER + text, sys._getframe(), annotations=Annotations.CHECKED)


def machine(func: Any) -> relaxvm.VirtualMachine:
    return relaxvm.VirtualMachine(relaxvm.build(relaxvm.IRModule.from_expr(func)))


NARROWER = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    with R.dataflow():
        y: R.Tensor((8,), "float32") = R.exp(x)
        z = R.add(y, y)
        R.output(z)
    return z
"""


def test_a_narrower_type_is_checked_when_the_program_runs() -> None:
    func = parse(NARROWER)
    assert str(func.ret_ty) == 'R.Tensor((8,), dtype="float32")'
    assert "R.match_cast(y, R.Tensor((8,)" in str(func)
    assert_structural_equal(func, parse("\n".join(str(func).splitlines()[-9:])))
    vm = machine(func)
    x = np.ones(8, np.float32)
    np.testing.assert_allclose(vm["main"](x), 2 * np.exp(x), rtol=1e-6)
    with pytest.raises(RuntimeError, match="match_cast"):
        vm["main"](np.ones(7, np.float32))
    with pytest.raises(DiagnosticError, match="which is never"):
        parse(NARROWER.replace('(8,), "float32"', '(8,), "int32"'))
    with pytest.raises(DiagnosticError, match=r"write R\.match_cast"):
        relaxvm.script.from_source(HEADER + NARROWER)


def test_types_of_ifs_are_checked_too() -> None:
    func = parse("""
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")):
    y: R.Tensor((2,), "float32")
    if c:
        z: R.Tensor((2,), "float32")
        if c:
            z = x
        else:
            z = R.exp(x)
        y = z
    else:
        y: R.Tensor((2,), "float32") = R.abs(x)
    return y
""")
    assert str(func.ret_ty) == 'R.Tensor((2,), dtype="float32")'
    vm = machine(func)
    x = np.array([-1.0, 1.0], np.float32)
    for condition, expected in ((True, x), (False, abs(x))):
        np.testing.assert_array_equal(vm["main"](np.array(condition), x), expected)
        with pytest.raises(RuntimeError, match="match_cast"):
            vm["main"](np.array(condition), np.ones(3, np.float32))


def test_a_type_of_results_that_contradicts_the_body_is_replaced() -> None:
    text = """
@R.function
def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((10,), "float32"):
    return x
"""
    with pytest.warns(AnnotationWarning, match=r"is declared to return R\.Tensor\(\(10,\)"):
        func = parse(text)
    assert str(func.ret_ty) == 'R.Tensor((2, 4), dtype="float32")'
    with pytest.raises(DiagnosticError, match=r"is declared to return R\.Tensor\(\(10,\)"):
        relaxvm.script.from_source(HEADER + text)


def test_a_second_name_keeps_its_type() -> None:
    func = parse("""
@R.function
def main(x: R.Tensor((2,), "float32")):
    y: R.Any = x
    z: R.Any = R.add(y, y)
    return z
""")
    y, z = (binding.var for binding in func.body.blocks[0].bindings)
    assert str(y.ty) == 'R.Tensor((2,), dtype="float32")'
    assert str(z.ty) == str(func.ret_ty) == "R.Any"


def test_a_condition_that_is_no_bool_scalar_is_read_when_the_program_runs() -> None:
    text = """
@R.function
def main(c: R.Tensor((1,), "int32"), x: R.Tensor((2,), "float32")):
    if c:
        y = x
    else:
        y = R.exp(x)
    return y
"""
    vm = machine(parse(text))
    x = np.zeros(2, np.float32)
    assert (vm["main"](np.array([3], np.int32), x) == 0).all()
    assert (vm["main"](np.array([0], np.int32), x) == 1).all()
    vm = machine(parse(text.replace("int32", "float32")))
    with pytest.raises(relaxvm.errors.InternalError, match="an integer or bool element"):
        vm["main"](np.ones(1, np.float32), x)
    with pytest.raises(DiagnosticError, match="expected a bool scalar or a bool tensor of rank 0"):
        relaxvm.script.from_source(HEADER + text)


def test_proved_types_have_no_checks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        func = parse(NARROWER.replace('("n",)', "(8,)"))
    assert "match_cast" not in str(func)


EXTERNAL = """
@I.ir_module
class Module:
    double = R.ExternFunc("test.script.double")

    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        cls = Module
        y = cls.double(x)
        z = R.match_cast(y, R.Tensor((2,), "float32"))
        return z
"""


def test_external_functions_are_members_of_modules() -> None:
    mod = relaxvm.script.from_source(HEADER + EXTERNAL)
    assert [type(func).__name__ for func in mod.functions.values()] == ["ExternFunc", "Function"]
    assert_structural_equal(mod, relaxvm.script.from_source(str(mod)))
    assert_structural_equal(mod, relaxvm.ir.load_json(relaxvm.ir.save_json(mod)))
    built = relaxvm.IRModule({"double": relaxvm.ExternFunc("test.script.double"),
                              "main": mod["main"]})  # fmt: skip
    assert dict(built["double"].attrs) == {}
    assert relaxvm.analysis.well_formed(mod)
    optimized = transform.DeadCodeElimination()(transform.CanonicalizeBindings()(mod))
    vm = relaxvm.VirtualMachine(
        relaxvm.build(optimized), functions={"test.script.double": lambda x: 2 * x}
    )
    assert (vm["main"](np.ones(2, np.float32)) == 2).all()
    with pytest.raises(TypeError, match="IRModule: double: expected a function, got"):
        mod["double"] = "test.script.double"
