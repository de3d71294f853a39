"""Programs that partition for a backend of TVM's, as its tutorial on code generators does."""

from __future__ import annotations

from .test_as_tvm_names import as_tvm

CONV_RELU = '''
import numpy as np, tvm
import tvm.relax.backend.contrib.example_npu
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(data: R.Tensor((1, 3, 8, 8), "float32"), weight: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            conv = R.nn.conv2d(data, weight)
            out = R.nn.relu(conv)
            R.output(out)
        return out

def composites(module):
    text = module.script()
    return [line.split('"')[3] for line in text.splitlines() if '"Composite"' in line]
'''


def test_what_is_partitioned_for_the_example_runs_without_it() -> None:
    code = '''
patterns = get_patterns_with_prefix("example_npu")
partitioned = MergeCompositeFunctions()(
    FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(Module))
assert composites(partitioned) == ["example_npu.conv2d_relu_fused"]
'''
    plain = '''
data, weight = (tvm.runtime.tensor(np.random.default_rng(0).random(s, "float32") - 0.5)
                for s in ((1, 3, 8, 8), (4, 3, 3, 3)))
expected = relax.VirtualMachine(relax.build(Module, "llvm"), tvm.cpu())["main"](data, weight)
vm = relax.VirtualMachine(relax.build(partitioned, "llvm"), tvm.cpu())
tvm.testing.assert_allclose(vm["main"](data, weight).numpy(), expected.numpy(), rtol=1e-5)
print("equal")
'''
    assert as_tvm(f"import tvm.testing\n{CONV_RELU}{code}{plain}") == "equal\n"


def test_depthwise_convolutions_have_a_name_of_their_own() -> None:
    code = '''
@I.ir_module
class Grouped:
    @R.function
    def main(data: R.Tensor((1, 4, 8, 8), "float32"), weight: R.Tensor((4, 1, 3, 3), "float32")):
        with R.dataflow():
            out = R.nn.conv2d(data, weight, groups=4)
            R.output(out)
        return out

patterns = get_patterns_with_prefix("example_npu")
print(*composites(FuseOpsByPattern(patterns)(Grouped)), *composites(FuseOpsByPattern(patterns)(
    tvm.IRModule({"main": relax.transform.DeadCodeElimination()(Module)["main"]}))))
'''
    assert as_tvm(CONV_RELU + code) == (
        "example_npu.depthwise_conv2d example_npu.conv2d_relu_fused\n"
    )


def test_tensorrt_takes_weights_as_constants() -> None:
    code = '''
weight = np.ones((4, 3, 3, 3), "float32")
bound = relax.transform.BindParams("main", {"weight": weight})(Module)
moved = partition_for_tensorrt(bound)
print(len(moved["main"].params), *composites(moved), "const" in moved.script())
'''
    assert as_tvm(CONV_RELU + code) == "1 tensorrt.nn.conv2d tensorrt.nn.relu True\n"


def test_an_unspecified_data_type_may_be_called_void() -> None:
    code = '''
x = relax.Var("x", R.Tensor((2, 2), "float32"))
print(relax.op.matmul(x, x, out_dtype="void").attrs.out_dtype,
      relax.op.matmul(x, x, out_dtype="").attrs.out_dtype)
'''
    assert as_tvm(CONV_RELU + code) == "None None\n"


def test_earlier_names_of_tensors() -> None:
    code = '''
a = tvm.nd.array(np.ones((2, 2), "float32"), device=tvm.cpu())
print(a.numpy().sum(), isinstance(a, tvm.nd.NDArray), tvm.nd.empty((2,)).shape)
'''
    assert as_tvm(CONV_RELU + code) == "4.0 True (2,)\n"


def test_tuples_of_results_are_arrays() -> None:
    code = '''
@I.ir_module
class Pair:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        return (x, x)

vm = relax.VirtualMachine(relax.build(Pair, "llvm"), tvm.cpu())
found = vm["main"](tvm.runtime.tensor(np.ones(2, "float32")))
print(isinstance(found, tvm.ir.Array), isinstance([], tvm.ir.Array), isinstance({}, tvm.ir.Array),
      tvm.ir.Array((1, 2)), len(tvm.ir.Array()))
'''
    assert as_tvm(CONV_RELU + code) == "True True False [1, 2] 0\n"


def test_extern_is_a_function_and_a_module() -> None:
    code = '''
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn.extern import ExternModule
import tvm.relax.frontend.nn.extern
print(isinstance(ExternModule, type), callable(nn.extern), nn.extern is nn.op.extern)
'''
    assert as_tvm(CONV_RELU + code) == "True True True\n"
