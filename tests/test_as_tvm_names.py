"""`relaxvm.contrib.as_tvm`: the import of TVM's modules, and what programs get.

Everything runs in processes of its own: TVM itself may be imported in this one.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from . import children

PROGRAM = '''
import numpy as np
import tvm
import tvm.testing
import tvm_ffi
from tvm import relax, te, tirx, topi
from tvm.ir import Op, assert_structural_equal
from tvm.script import ir as I, relax as R, tirx as T

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        z = R.call_pure_packed("program.scaled", x, ty_args=R.Tensor(ndim=1, dtype="float32"))
        return (R.add(z, y), x)

@tvm.register_global_func("program.scaled")
def scaled(x):
    assert isinstance(x, tvm.runtime.Tensor), type(x)
    return tvm.runtime.tensor(x.numpy() * 2)

executable = relax.build(Module, target=tvm.target.Target("llvm", host="llvm"))
vm = relax.VirtualMachine(executable, tvm.cpu())
x = tvm.runtime.tensor(np.arange(3, dtype="float32"))
total, same = vm["main"](x, x)
assert same == x and total != x
assert (total.dtype, total.shape, total.device) == ("float32", (3,), tvm.cpu())
tvm.testing.assert_allclose(total.numpy(), [0, 3, 6])
assert tvm.get_global_func("program.scaled")(x).numpy().tolist() == [0, 2, 4]
assert tvm.get_global_func("no such function", allow_missing=True) is None
vm.set_input("main", x, x)
vm.invoke_stateful("main")
assert vm.get_outputs("main")[1] == x
print("ran", tvm.__version__)
'''


def run(*args: str, code: str | None = None) -> children.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])[1:]}
    command = [sys.executable, *(["-c", code] if code is not None else args)]
    return children.run(command, capture_output=True, text=True, env=env)


def as_tvm(code: str) -> str:
    """Run a program; return what it prints."""
    with TemporaryDirectory() as folder:  # a file, since scripts need their source text
        path = Path(folder) / "program.py"
        path.write_text(f"import relaxvm.contrib.as_tvm\n{code}")
        done = run(str(path))
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_a_program_for_tvm_runs(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = run("-m", "relaxvm.contrib.as_tvm", str(path))
    assert done.stdout == "ran 0.27.0\n", done.stderr


def test_arguments_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "arguments.py"
    path.write_text("import sys, tvm\nprint(__name__, sys.argv[1:], tvm.__name__)\n")
    done = run("-m", "relaxvm.contrib.as_tvm", str(path), "a", "--b")
    assert done.stdout == "__main__ ['a', '--b'] tvm\n", done.stderr
    done = run("-m", "relaxvm.contrib.as_tvm", "-c", "import tvm; print(tvm.cpu())")
    assert done.stdout == "cpu(0)\n", done.stderr
    done = run("-m", "relaxvm.contrib.as_tvm", "-m", "this")
    assert done.stdout.startswith("The Zen"), done.stderr
    done = run("-m", "relaxvm.contrib.as_tvm")
    assert done.returncode == 2
    assert "usage: " in done.stderr
    done = run("-m", "relaxvm.contrib.as_tvm", "--fast")
    assert done.returncode == 2
    assert "unknown option --fast" in done.stderr


@pytest.mark.skipif(find_spec("tvm_ffi") is None, reason="TVM is not installed")
def test_refused_where_tvm_is_imported() -> None:
    done = run(code="import tvm_ffi\nimport relaxvm.contrib.as_tvm")
    assert "ImportError: relaxvm.contrib.as_tvm: TVM's own package 'tvm_ffi' is imported" in (
        done.stderr
    )


MISSING = [
    ("tvm.relax.transform.Gradient", "declined, since relaxvm does not differentiate"),
    ("tvm.relax.transform.MetaScheduleTuneTIR", "declined, since relaxvm's kernels are tuned"),
    ("tvm.relax.distributed", "declined, since relaxvm runs on one machine"),
    ("tvm.rpc.Server", "declined, since relaxvm runs on one machine"),
    ("tvm.runtime.load_static_library", "here: use load_module of a shared library"),
    ("tvm.relax.NoSuchName", "relaxvm lacks it, or TVM 0.27.0 does not have it either"),
]


def test_missing_names_say_why() -> None:
    names = [name for name, _ in MISSING]
    code = f"""
import tvm, tvm.testing
for name in {names!r}:
    owner, _, last = name.rpartition(".")
    try:
        getattr(eval(owner), last)
    except AttributeError as error:
        print(error)
    else:
        print("found")
try:
    import tvm.relax.backend.rocm
except ModuleNotFoundError as error:
    print(error)
"""
    lines = as_tvm(code).splitlines()
    assert len(lines) == len(MISSING) + 1
    for line, (name, reason) in zip(lines, MISSING, strict=False):
        owner, _, last = name.rpartition(".")
        assert line.startswith(f"module {owner!r} has no attribute {last!r}")
        assert line.endswith(reason) or reason in line
    assert "relaxvm runs on the CPU" in lines[-1] or "no attribute 'backend'" in lines[-1]


def test_every_entry_of_the_table_is_there() -> None:
    code = """
import importlib
from relaxvm.contrib.as_tvm.names import MODULES
for name in MODULES:
    module = importlib.import_module(name)
    assert module.__name__ == name
    for public in dir(module):
        getattr(module, public)
print(len(MODULES))
"""
    assert int(as_tvm(code)) > 60


def test_tensors() -> None:
    code = """
import copy, pickle
import numpy as np
import tvm, tvm_ffi
t = tvm.runtime.tensor([[1, 2], [3, 4]])
assert t.shape == (2, 2) and t.strides == (2, 1) and t.ndim == 2 and t.numel() == t.size == 4
assert t.dtype == "int64" and (t.dtype.bits, t.dtype.itemsize, t.dtype.lanes) == (64, 8, 1)
a = t.numpy()
a[0, 0] = 9
assert t.numpy()[0, 0] == 1 and np.asarray(t)[0, 0] == 1
t.copyfrom(a)
assert t.numpy()[0, 0] == 9
other = tvm.runtime.empty((2, 2), "int64", tvm.cpu())
assert t.copyto(other) == other and (np.asarray(other) == a).all()
assert t.copyto(tvm.cpu()) != t
assert (np.from_dlpack(t) == a).all() and (tvm.runtime.from_dlpack(a).numpy() == a).all()
assert (pickle.loads(pickle.dumps(t)).numpy() == a).all()
try:
    t.copyfrom(np.zeros(3))
except ValueError as error:
    print(error)
for make in (lambda: tvm.runtime.tensor([1], tvm.cuda()), lambda: t.copyto(tvm.cuda())):
    try:
        make()
    except RuntimeError as error:
        print(error)
assert not tvm.cuda().exist
"""
    lines = as_tvm(code).splitlines()
    assert lines[0] == "copyfrom: expected an array of shape (2, 2), got (3,)"
    assert lines[1].startswith("cuda(0): relaxvm runs on the CPU: use tvm.cpu() and")
    assert lines[2] == lines[1]


def test_other_devices_are_refused_everywhere() -> None:
    code = """
import tvm
from tvm import relax
from tvm.script import relax as R
@R.function
def main(x: R.Tensor((2,), "float32")):
    return x
mod = tvm.IRModule.from_expr(main.with_attr("global_symbol", "main"))
ex = tvm.compile(mod, "llvm")
for make in (lambda: tvm.compile(mod, "cuda"), lambda: relax.VirtualMachine(ex, tvm.cuda()),
             lambda: relax.build(mod, tvm.target.Target("cuda"))):
    try:
        make()
    except ValueError as error:
        print(error)
"""
    lines = as_tvm(code).splitlines()
    assert len(lines) == 3
    assert all("relaxvm" in line and "CPU" in line for line in lines)


def test_targets() -> None:
    code = """
from tvm.target import Target
target = Target({"kind": "llvm", "mcpu": "native"}, host="llvm")
assert target.kind.name == "llvm" and target.attrs == {"mcpu": "native"}
assert target.host == Target("llvm") and target.keys == ("cpu",)
assert Target("llvm -mcpu=native").attrs == target.attrs
assert Target.current() is None
with target:
    assert Target.current() is target
try:
    Target(3)
except TypeError as error:
    print(error)
"""
    assert as_tvm(code) == "Target: expected a name or a mapping with 'kind', got 3\n"


def test_instruments_and_closures_take_tensors() -> None:
    code = """
import numpy as np, tvm
from tvm import relax
from tvm.script import ir as I, relax as R
@I.ir_module
class Module:
    @R.function
    def make(x: R.Tensor((2,), "float32")):
        @R.function
        def inner(y: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            return R.add(x, y)
        return inner
vm = relax.VirtualMachine(relax.build(Module, "llvm"), tvm.cpu())
x = tvm.runtime.tensor(np.ones(2, "float32"))
seen = []
vm.set_instrument(lambda func, name, before, ret, *args: seen.extend(args))
closure = vm["make"](x)
assert vm.invoke_closure(closure, x).numpy().tolist() == [2, 2]
assert any(isinstance(arg, tvm.runtime.Tensor) for arg in seen)
assert not any(isinstance(arg, np.ndarray) for arg in seen)
"""
    as_tvm(code)


def test_partitions_for_a_gpu_are_declined_when_they_are_called() -> None:
    code = """
from tvm.relax.backend.cuda.cublas import partition_for_cublas
from tvm.relax.backend.cuda.cudnn import partition_for_cudnn
from tvm.relax.backend.cuda.cutlass import partition_for_cutlass
for partition in (partition_for_cublas, partition_for_cudnn, partition_for_cutlass):
    try:
        partition(None)
    except NotImplementedError as error:
        print(error)
"""
    lines = as_tvm(code).splitlines()
    assert [line.split()[0] for line in lines] == [
        "partition_for_cublas",
        "partition_for_cudnn",
        "partition_for_cutlass",
    ]
    assert all("is declined: relaxvm runs on the CPU" in line for line in lines)


def test_functions_of_external_modules_are_linked() -> None:
    code = """
import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.script import relax as R

def twice(x, out):
    np.asarray(out)[...] = np.from_dlpack(x) * 2

class Twice(nn.ExternModule):
    def load(self):
        return {"twice": twice}

@R.function
def main(x: R.Tensor((4,), "float32")):
    return R.call_dps_packed("twice", (x,), R.Tensor((4,), "float32"))

mod = tvm.IRModule({"main": main})
names_only = nn.ExternModule({"twice": lambda x: x})
assert relax.transform.AttachExternModules([names_only])(mod).get_attr("external_mods") is None
mod = relax.transform.AttachExternModules([Twice({"twice": lambda x: x})])(mod)
vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
print(vm["main"](tvm.runtime.tensor(np.arange(4, dtype="float32"))).numpy())
try:
    relax.transform.AttachExternModules([3])(mod)
except TypeError as error:
    print(error)
"""
    values, message = as_tvm(code).splitlines()
    assert values == "[0. 2. 4. 6.]"
    assert message.endswith("mappings of functions or modules with get_function, got int 3")


def test_importers_are_those_of_tvm() -> None:
    pytest.importorskip("onnx")
    code = """
import numpy as np
from onnx import TensorProto, helper
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

weight = np.arange(6, dtype="float32").reshape(2, 3)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["1", "w"], ["y"])], "g",
    [helper.make_tensor_value_info("1", TensorProto.FLOAT, ["?", 2])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["?", 3])],
    initializer=[helper.make_tensor("w", TensorProto.FLOAT, [2, 3], weight.ravel())],
)
mod = from_onnx(helper.make_model(graph), keep_params_in_input=True)
mod = relax.transform.LegalizeOps()(relax.transform.DecomposeOpsForInference()(mod))
mod, params = relax.frontend.detach_params(mod)
print([p.name for p in mod["main"].params])
vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
vm.set_input("main", np.ones((1, 2), "float32"), *params["main"])
vm.invoke_stateful("main")
print(vm.get_outputs("main").numpy().tolist())
try:
    from tvm.relax.frontend.torch import from_fx
except ImportError as error:
    print(error)
"""
    lines = as_tvm(code).splitlines()
    assert lines[:2] == ["['input_1', 'w']", "[[3.0, 5.0, 7.0]]"]
    assert "use from_exported_program" in lines[2]


def test_programs_of_torch_export_have_flat_inputs() -> None:
    pytest.importorskip("torch")
    code = """
import numpy as np, torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)
    def forward(self, pair):
        return {"y": self.linear(pair[0]) + pair[1]}

program = torch.export.export(Model(), ((torch.ones(1, 2), torch.ones(3)),))
mod = from_exported_program(program, keep_params_as_input=True)
mod, params = relax.frontend.detach_params(mod)
print(len(mod["main"].params))
vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
(y,) = vm["main"](np.ones((1, 2), "f4"), np.ones(3, "f4"), *params["main"])
print(np.allclose(y.numpy(), program.module()((torch.ones(1, 2), torch.ones(3)))["y"].detach()))
try:
    from_exported_program(program, custom_convert_map={"my::op": print})
except NotImplementedError as error:
    print(error)
"""
    lines = as_tvm(code).splitlines()
    assert lines[:2] == ["4", "True"]
    assert "operators=" in lines[2]


DISPATCH = """
import tvm
from tvm import relax, topi, tirx
from tvm.relax.backend import DispatchSortScan, DispatchSampling
from tvm.script import ir as I, relax as R, tirx as T
@I.ir_module
class Before:
    @R.function
    def foo(x: R.Tensor(("m", 3), "float32")):
        with R.dataflow():
            a = R.sort(x, axis=1, descending=False)
            b = R.argsort(a, axis=1, descending=True, dtype="int32")
            c = R.topk(a, k=2, axis=1, largest=True)
            d = R.cumsum(a, axis=1, dtype="float64", exclusive=False)
            e = R.exp(d)
            f = R.cumprod(e, axis=1)
            gv = (b, c, f)
            R.output(gv)
        return gv
m = tirx.Var("m", "int64")
x = relax.Var("x", R.Tensor((m, 3), "float32"))
bb = relax.BlockBuilder()
with bb.function("foo", (x,), {"global_symbol": "foo"}):
    with bb.dataflow():
        a = bb.emit_te(topi.sort, x, axis=1, is_ascend=True)
        b = bb.emit_te(topi.argsort, a, axis=1, is_ascend=False, dtype="int32")
        c = bb.emit_te(topi.topk, a, k=2, axis=1, is_ascend=False, dtype="int32")
        d = bb.emit_te(topi.cumsum, a, axis=1, dtype="float64", exclusive=False)
        e = bb.emit(relax.op.exp(d))
        f = bb.emit_te(topi.cumprod, e, axis=1)
        gv = bb.emit_output(relax.Tuple([b, c, f]))
    bb.emit_func_output(gv)
after = DispatchSortScan()(Before)
tvm.ir.assert_structural_equal(after, bb.get())
assert DispatchSampling()(Before) is Before
import numpy as np
x = np.random.default_rng(1).random((4, 3), "float32")
found = []
for mod in (Before, after):
    vm = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    found.append([part.numpy() for part in vm["foo"](tvm.runtime.tensor(x))[::2]])
print(all(np.allclose(a, b) for a, b in zip(*found)))
print(relax.op.roi_align.__name__, relax.op.roi_pool.__name__)
"""


def test_sorting_and_scans_become_loops() -> None:
    assert as_tvm(DISPATCH).split() == ["True", "roi_align", "roi_pool"]


MORE_NAMES = """
import tvm
import tvm.relax.op.image
from tvm import te, tirx
from tvm.relax.op.vision import non_max_suppression
from tvm import relax
a, i = tirx.Var("a", "float32"), tirx.Var("i", "int32")
print(tirx.logaddexp(a, a), te.logaddexp is tirx.logaddexp)
print(tirx.ldexp(a, i), tirx.call_pure_extern("float32", "sinf", a).ty)
print(len(tirx.stmt_list(tirx.stmt_seq(i, tirx.stmt_seq(i, i)))))
span = tvm.ir.Range(1, 4)
print(span.min, span.extent, tvm.ir.Range(4), tvm.ir.Range.from_min_extent(i, 2).min)
print(isinstance(span, tvm.ir.Range), tirx.comm_reducer is te.comm_reducer, tirx.convert((1, 2)))
print(relax.op.non_max_suppression is non_max_suppression, "resize2d" in dir(tvm.relax.op.image))
print(tvm.ir.EnvFunc.get("f").name)
try:
    relax.transform.VMMemoryLower()
except AttributeError as error:
    print(error)
for name in ("Ramp", "TileLayout", "lookup_param"):
    try:
        getattr(tirx, name)
    except AttributeError as error:
        print(error)
try:
    from tvm.relax.op.vision import no_such_operator
except ImportError as error:
    print(error)
"""


def test_more_names() -> None:
    lines = as_tvm(MORE_NAMES).splitlines()
    assert lines[:7] == [
        "T.log(T.exp(a) + T.exp(a)) True",
        'a * T.exp2(T.Cast("float32", i)) R.Prim("float32")',
        "3",
        "T.int32(1) T.int32(3) T.Range(0, 4) i",
        "True True (1, 2)",
        "True True",
        "f",
    ]
    assert "'VMMemoryLower'; today it is CallTIRRewrite, then LowerAllocTensor" in lines[7]
    assert "'Ramp': it is declined, since loops have scalars: the C compiler" in lines[8]
    assert "TileLayout': it is declined, since relaxvm runs on the CPU" in lines[9]
    assert "lookup_param': it is declined, since it belongs to TVM's own lowering" in lines[10]
    assert "no_such_operator" in lines[11]


def test_a_tensor_type_is_of_floats_unless_it_says_otherwise() -> None:
    code = """
from tvm import relax
from tvm.script import relax as R
assert relax.TensorType([2]) == R.Tensor((2,), "float32")
assert relax.TensorType(ndim=2).dtype == "float32"
assert relax.TensorType([2], dtype="").dtype is None is relax.TensorType([2], None).dtype
assert isinstance(R.Tensor((2,)), relax.TensorType)
assert issubclass(type(R.Tensor((2,))), relax.TensorType)
assert not isinstance(relax.ShapeType([2]), relax.TensorType)
"""
    as_tvm(code)


def test_types_of_operands_are_checked_when_a_call_is_emitted() -> None:
    code = """
from tvm import relax
from tvm.relax.op import nn
from tvm.script import relax as R
x, places = relax.Var("x", R.Tensor((2, 3), "float32")), relax.Var("i", R.Tensor((2,), "float32"))
bb = relax.BlockBuilder()
for call in (relax.op.take(x, places, axis=0), nn.softmax(relax.Var("i", R.Tensor((2,), "int32"))),
             relax.op.einsum(x, "ij")):
    try:
        bb.normalize(call)
    except TypeError as error:
        print(call.op.name, error)
try:
    nn.softmax(x, axis=2)
except ValueError as error:
    print(error)
assert relax.op.image.resize2d.__name__ == "resize2d" and "relu" in dir(nn)
assert relax.op.add(x, x).ty == x.ty
"""
    lines = as_tvm(code).splitlines()
    assert lines[0].startswith("relax.take relax.take: indices: expected integers, got")
    assert lines[1].startswith("relax.nn.softmax relax.nn.softmax: data: expected floats, got")
    assert lines[2].startswith("relax.einsum relax.einsum: operands: expected a tuple of tensors")
    assert lines[3] == "relax.nn.softmax: axis: expected an axis in -2 to 1, got 2"
