"""Small programs for parts of TVM that programs meet: what TVM does, relaxvm does, too.

Each is run under `import tvm`, in a process of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from relaxvm import dpl, ir, op
from relaxvm.ir import BlockBuilder, TensorType, Var
from relaxvm.script import from_source

from .test_as_tvm_names import as_tvm

HEADER = """
import numpy as np, tvm
from tvm import relax, te, tirx, topi
from tvm.script import ir as I, relax as R, tirx as T

def run(module, *arrays, name="main"):
    vm = relax.VirtualMachine(relax.build(module, "llvm"), tvm.cpu())
    return vm[name](*map(tvm.runtime.tensor, arrays))
"""


def test_functions_of_scalars_take_the_data_type_of_their_result() -> None:
    code = """
x = tirx.Var("x", "float32")
print(T.exp(x, dtype="float32"), T.sqrt(x=x, dtype="float32").dtype)
try:
    T.exp(x, dtype="float64")
except TypeError as error:
    print(error)
"""
    assert as_tvm(HEADER + code) == (
        "T.exp(x) float32\ndtype: T.exp(x) is of float32, got float64; cast it\n"
    )


def test_slices_whose_bounds_are_tensors() -> None:
    code = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8, 4), "float32"), a: R.Tensor((2,), "int64"),
             b: R.Tensor((2,), "int64"), s: R.Tensor((2,), "int64")):
        return R.dynamic_strided_slice(x, a, b, s)

x = np.arange(32, dtype="float32").reshape(8, 4)
found = run(Module, x, *(np.array(v, "int64") for v in ([1, 0], [7, 4], [2, 3])))
np.testing.assert_array_equal(found.numpy(), x[1:7:2, 0:4:3])
print(found.shape)
"""
    assert as_tvm(HEADER + code) == "(3, 2)\n"


def test_an_executable_imports_its_kernels() -> None:
    code = """
@I.ir_module
class Module:
    @T.prim_func
    def double(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        return R.call_tir(Module.double, (x,), R.Tensor((4,), "float32"))

(kernels,) = relax.build(Module, "llvm").mod.imports
x, y = (tvm.runtime.tensor(np.ones(4, "float32")) for _ in range(2))
kernels["double"](x, y)
print(y.numpy().tolist())
"""
    assert as_tvm(HEADER + code) == "[2.0, 2.0, 2.0, 2.0]\n"


def test_calls_of_prim_funcs_with_constants_are_folded() -> None:
    code = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def double(x: T.Buffer((2,), "float32"), y: T.Buffer((2,), "float32")):
        for i in range(2):
            y[i] = x[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.call_tir(Module.double, (R.const([1.0, 3.0], "float32"),),
                           R.Tensor((2,), "float32"))
            z = R.add(x, y)
            R.output(z)
        return z

folded = relax.transform.FoldConstant()(Module)["main"]
(binding,) = folded.body.blocks[0].bindings
print(binding.value.op.name, binding.value.args[1].data.tolist())
"""
    assert as_tvm(HEADER + code) == "relax.add [2.0, 6.0]\n"


def test_adjacent_dataflow_blocks_are_one() -> None:
    code = """
x = relax.Var("x", R.Tensor((2,), "float32"))
y, z = (relax.Var(name, R.Tensor((2,), "float32")) for name in "yz")
blocks = [relax.DataflowBlock([relax.VarBinding(y, relax.op.exp(x))]),
          relax.DataflowBlock([relax.VarBinding(z, relax.op.exp(y))])]
func = relax.Function([x], relax.SeqExpr(blocks, z), R.Tensor((2,), "float32"))
normal = relax.transform.Normalize()(tvm.IRModule({"main": func}))["main"]
print(len(normal.body.blocks), len(normal.body.blocks[0].bindings))
"""
    assert as_tvm(HEADER + code) == "1 2\n"


def test_outputs_that_nothing_uses_become_variables_of_the_block() -> None:
    code = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            z = R.sqrt(y)
            R.output(y, z)
        return z

for module in (Module, relax.transform.CanonicalizeBindings()(Module)):
    y, z = (b.var for b in module["main"].body.blocks[0].bindings)
    print(isinstance(y, relax.DataflowVar), isinstance(z, relax.DataflowVar))
"""
    assert as_tvm(HEADER + code) == "False False\nTrue False\n"


def test_a_parameter_may_have_the_dimension_that_a_later_one_is() -> None:
    """TVM refuses the program; here the call checks that they agree."""
    code = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), n: R.Prim("int64")):
        return x

x = tvm.runtime.tensor(np.ones(3, "float32"))
vm = relax.VirtualMachine(relax.build(Module, "llvm"), tvm.cpu())
print(vm["main"](x, 3) == x)
try:
    vm["main"](x, 4)
except Exception as error:
    print(isinstance(error, (RuntimeError, ValueError)))
"""
    assert as_tvm(HEADER + code) == "True\nTrue\n"


def test_a_program_of_several_values_of_a_computation() -> None:
    code = """
a = te.placeholder((4,), "float32", name="a")
low, high = te.compute((4,), lambda i: (a[i] - 1.0, a[i] + 1.0), name="both")
kernel = tvm.compile(te.create_prim_func([a, low, high]), "llvm")
arrays = [tvm.runtime.tensor(np.full(4, 2, "float32")) for _ in range(3)]
kernel(*arrays)
print(arrays[1].numpy().tolist(), arrays[2].numpy().tolist())
"""
    assert as_tvm(HEADER + code) == "[1.0, 1.0, 1.0, 1.0] [3.0, 3.0, 3.0, 3.0]\n"


def _chain(length: int) -> ir.Function:
    builder = BlockBuilder()
    x = Var("x", TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y: Any = x
            for _ in range(length):
                y = builder.emit(op.exp(y))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    found = builder.get()["main"]
    assert isinstance(found, ir.Function)
    return found


def _calls_of(length: int) -> int:
    """The calls of Python's functions that rewriting a chain takes."""
    func = _chain(length)
    inner = dpl.wildcard()
    pattern = dpl.is_op("relax.exp")(dpl.is_op("relax.exp")(inner))
    count = 0

    def on_event(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        new = dpl.rewrite_call(pattern, lambda call, matched: matched[inner], func)
    finally:
        sys.setprofile(before)
    assert sum(len(block.bindings) for block in new.body.blocks) <= 1
    return count


def test_patterns_of_trees_take_time_in_proportion_to_the_program() -> None:
    short, long = _calls_of(100), _calls_of(400)
    assert long < 5 * short, (short, long)


@pytest.mark.parametrize("spelling", ['R.Tensor((2,), "")', "R.Tensor((2,))"])
def test_spellings_of_an_unknown_data_type(spelling: str) -> None:
    func = from_source(
        "from relaxvm.script import ir as I, relax as R\n"
        f"@R.function\ndef main(x: {spelling}):\n    return x\n"
    )
    assert func.params[0].ty == TensorType((2,))
    assert func.params[0].ty.dtype is None


def test_layers_and_a_comparison_of_libraries_for_tests() -> None:
    code = """
from tvm.relax.testing import nn
from tvm.relax.testing.lib_comparator import LibCompareVMInstrument

bb = relax.BlockBuilder()
with bb.function("main"):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.LogSoftmax())
    data = nn.Placeholder((5, 4), name="data")
    bb.emit_func_output(model(data), params=[data, *model.parameters()])
params = nn.init_params(bb.get())
print([p.shape for p in params])
executable = relax.build(relax.transform.LegalizeOps()(bb.get()), "llvm")
vm = relax.VirtualMachine(executable, tvm.cpu())
library = executable.mod.imports[0]
compared = LibCompareVMInstrument(library, tvm.cpu(), verbose=False)
vm.set_instrument(compared)
vm["main"](tvm.runtime.tensor(np.ones((5, 4), "float32")), *params)
print(compared.counter)

class Other:
    def get_function(self, name, query_imports=False):
        if name != "relu":
            raise AttributeError(name)
        return lambda x, out: tvm.runtime.tensor(np.full(out.shape, 7, "float32")).copyto(out)

vm.set_instrument(LibCompareVMInstrument(Other(), tvm.cpu()))
try:
    vm["main"](tvm.runtime.tensor(np.ones((5, 4), "float32")), *params)
except AssertionError as error:
    print("Not equal" in str(error))
try:
    nn.Linear(2, 2)
except RuntimeError as error:
    print(error)
"""
    assert as_tvm(HEADER + code).splitlines() == [
        "[(4, 3), (3,), (3, 2)]", "5", "Cannot find matmul, skip...", "Cannot find add, skip...",
        "[0] Validating relu ...", "True", "nn: layers are called within `BlockBuilder.function`",
    ]  # fmt: skip
