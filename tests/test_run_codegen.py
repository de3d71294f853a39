"""RunCodegen: functions of a program that code generators of others compile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import dpl
from relaxvm.executable.linked_kernels import LinkedKernels, function_of
from relaxvm.ir import Constant, Function
from relaxvm.script import from_source
from relaxvm.transform import FuseOpsByPattern, RunCodegen

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"

PROGRAM = """
@I.ir_module
class Module:
    @R.function
    def first(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Codegen": "npu"})
        return R.add(x, R.const(2.0))

    @R.function
    def second(x: R.Tensor((4,), "float32")):
        R.func_attr({"Codegen": "npu"})
        return (R.exp(x), x)

    @T.prim_func
    def shift(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i] - T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        y = cls.first(x)
        z = R.call_tir(cls.shift, y, R.Tensor((4,), "float32"))
        w = cls.second(z)
        return w[0]
"""


def program(text: str = PROGRAM) -> relaxvm.IRModule:
    mod: relaxvm.IRModule = from_source(HEADER + text)
    return mod


def first(x: Any, out: Any) -> None:
    out[...] = x + 2


def second(x: Any, exp: Any, same: Any) -> None:
    exp[...], same[...] = np.exp(x), x


class Library:
    """A module with TVM's interface."""

    def get_function(self, name: str) -> Any:
        if name != "second":
            raise AttributeError(name)
        return second


def test_functions_are_replaced_by_calls_of_what_a_generator_makes() -> None:
    seen: list[Any] = []

    def generate(functions: Any, options: Any, names: Any) -> Any:
        seen.append((functions, options, names))
        return [{"first": first}, Library()]

    options = {"npu": {"level": 3}}
    mod = RunCodegen(options, codegens={"npu": generate})(program())
    ((functions, found, names),) = seen
    assert [func.attrs["global_symbol"] for func in functions] == ["first", "second"]
    assert all(type(func) is Function for func in functions)
    assert found == {"level": 3}
    assert [(type(c), name) for c, name in names.items()] == [(Constant, "first_const_0")]
    assert [var.name_hint for var in mod] == ["shift", "main"]
    assert 'R.call_dps_packed("first", (x,)' in str(mod)
    executable = relaxvm.build(mod)
    assert isinstance(executable.kernels, LinkedKernels)
    assert set(executable.kernels) == {"shift", "first", "second"}
    assert len(executable.kernels) == 3
    assert set(executable.prim_funcs) == {"shift"}
    x = np.arange(4, dtype=np.float32)
    result = relaxvm.VirtualMachine(executable)["main"](x)
    np.testing.assert_allclose(result, np.exp(x + 1), rtol=1e-6)
    with pytest.raises(TypeError, match="expected kernels that relaxvm has compiled"):
        executable.export_library("never_written.rvm")
    assert set(executable.kernels["first"].__code__.co_varnames) == {"x", "out"}


def test_functions_may_be_registered_instead() -> None:
    mod = RunCodegen(codegens={"npu": lambda functions, options, names: None})(program())
    assert mod.get_attr("external_mods") is None
    vm = relaxvm.VirtualMachine(relaxvm.build(mod), functions={"first": first, "second": second})
    assert vm["main"](np.zeros(4, np.float32))[0] == pytest.approx(np.exp(1.0), rel=1e-6)
    with pytest.raises(relaxvm.errors.InternalError, match="first"):
        relaxvm.VirtualMachine(relaxvm.build(mod))


def test_a_registered_generator_compiles_what_patterns_find() -> None:
    mod = from_source(HEADER + """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        with R.dataflow():
            z = R.nn.relu(R.add(x, y))
            R.output(z)
        return z
""")
    pattern = dpl.is_op("relax.nn.relu")(dpl.is_op("relax.add")(dpl.wildcard(), dpl.wildcard()))
    mod = FuseOpsByPattern([("test_npu.relu", pattern)], annotate_codegen=True)(mod)

    def relu(x: Any, y: Any, out: Any) -> None:
        out[...] = np.maximum(x + y, 0)

    def generate(functions: Any, options: Any, names: Any) -> Any:
        return {func.attrs["global_symbol"]: relu for func in functions}

    relaxvm.register_func("relax.ext.test_npu", generate)
    try:
        mod = RunCodegen()(mod)
    finally:
        relaxvm.registry.GLOBAL.remove("relax.ext.test_npu")
    vm = relaxvm.VirtualMachine(relaxvm.build(mod))
    x = np.array([-1, 0, 1, 2], np.float32)
    np.testing.assert_array_equal(vm["main"](x, x), np.maximum(2 * x, 0))


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="there is no code generator 'npu': register one as"):
        RunCodegen()(program())
    for made in (3, [first], "module"):
        with pytest.raises(ValueError, match="code generator 'npu': expected a list of modules"):
            RunCodegen(codegens={"npu": lambda *_, made=made: made})(program())
    unknown = PROGRAM.replace("(R.exp(x), x)", "(R.shape([4]), x)")
    unknown = unknown.replace("w[0]", "w[1]")
    with pytest.raises(ValueError, match="expected tensors of known shape and data type"):
        RunCodegen(codegens={"npu": lambda *_: []})(program(unknown))
    assert function_of({}, "f") is None
    assert function_of(Library(), "f") is None
    untouched = program(PROGRAM.replace('R.func_attr({"Codegen": "npu"})', "pass"))
    assert RunCodegen()(untouched) is untouched
