"""Programs in the shape of TVM's tutorials for a CPU: they run through `relaxvm.contrib.as_tvm`.

Each uses the interfaces of one tutorial: models as classes, the ways to write a Relax program,
passes, loops over buffers, and code generators of one's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import children

FIRST_MODEL = """
import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn

class Classifier(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        self.up = nn.Linear(inputs, hidden)
        self.act = nn.ReLU()
        self.down = nn.Linear(hidden, classes, bias=False)

    def forward(self, features):
        return self.down(self.act(self.up(features)))

spec = {"forward": {"features": nn.spec.Tensor((2, 6), "float32")}}
mod, weights = Classifier(6, 5, 3).export_tvm(spec=spec)
mod.show()
mod = relax.get_pipeline("zero")(mod)
executable = tvm.compile(mod, tvm.target.Target("llvm"))
machine = relax.VirtualMachine(executable, tvm.cpu())
rng = np.random.default_rng(0)
arrays = [rng.random(weight.shape, dtype="float32") for _, weight in weights]
assert [name for name, _ in weights] == ["up.weight", "up.bias", "down.weight"]
x = rng.random((2, 6), dtype="float32")
given = [tvm.runtime.tensor(array, device=tvm.cpu()) for array in (x, *arrays)]
y = machine["forward"](*given).numpy()
up, bias, down = arrays
np.testing.assert_allclose(y, np.maximum(x @ up.T + bias, 0) @ down.T, rtol=1e-5)
"""

WAYS_TO_WRITE = """
import numpy as np
import tvm
from tvm import relax, topi
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

@I.ir_module
class Written:
    @R.function
    def layer(x: R.Tensor(("rows", 6), "float32"), w: R.Tensor((4, 6), "float32"),
              b: R.Tensor((4,), "float32")) -> R.Tensor(("rows", 4), "float32"):
        with R.dataflow():
            product = R.matmul(x, R.permute_dims(w))
            out = R.nn.relu(product + b)
            R.output(out)
        return out

@I.ir_module
class WithLoops:
    @T.prim_func
    def clip(source: T.handle, target: T.handle):
        rows, columns = T.int64(), T.int64()
        S = T.match_buffer(source, (rows, columns), "float32")
        D = T.match_buffer(target, (rows, columns), "float32")
        for i, j in T.grid(rows, columns):
            with T.block("clip"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = T.max(S[vi, vj], T.float32(0))

    @R.function
    def layer(x: R.Tensor(("rows", 6), "float32"), w: R.Tensor((4, 6), "float32"),
              b: R.Tensor((4,), "float32")) -> R.Tensor(("rows", 4), "float32"):
        rows = T.int64()
        cls = WithLoops
        with R.dataflow():
            total = R.matmul(x, R.permute_dims(w)) + b
            out = R.call_tir(cls.clip, total, R.Tensor((rows, 4), dtype="float32"))
            R.output(out)
        return out

class Layer(nn.Module):
    def __init__(self, loops):
        super().__init__()
        self.linear = nn.Linear(6, 4)
        self.loops = loops

    def layer(self, x):
        x = self.linear(x)
        if not self.loops:
            return nn.op.relu(x)
        place = nn.Tensor.placeholder(x.shape, "float32")
        return nn.tensor_ir_op(WithLoops["clip"], "clip", [x], out=place)

spec = {"layer": {"x": nn.spec.Tensor(("rows", 6), "float32")}}
of_classes = [Layer(loops).export_tvm(spec)[0] for loops in (False, True)]

def built():
    builder = relax.BlockBuilder()
    rows = T.int64()
    x = relax.Var("x", R.Tensor((rows, 6), "float32"))
    w = relax.Var("w", R.Tensor((4, 6), "float32"))
    b = relax.Var("b", R.Tensor((4,), "float32"))
    with builder.function("layer", [x, w, b]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.op.permute_dims(w)))
            total = builder.emit_te(topi.add, product, b)
            clip = builder.add_func(WithLoops["clip"], "clip")
            ty = relax.TensorType((rows, 4), "float32")
            out = builder.emit_output(builder.emit(relax.call_tir(clip, total, ty)))
        builder.emit_func_output(out)
    return builder.get()

rng = np.random.default_rng(0)
arrays = [rng.random(shape, dtype="float32") - 0.5 for shape in ((3, 6), (4, 6), (4,))]
x, w, b = arrays
for mod in (Written, WithLoops, *of_classes, built()):
    mod.show()
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    out = machine["layer"](*map(tvm.runtime.tensor, arrays))
    np.testing.assert_allclose(out.numpy(), np.maximum(x @ w.T + b, 0), rtol=1e-5, atol=1e-6)
"""

PASSES = """
import numpy as np
import tvm
from tvm import relax
from tvm.ir.module import IRModule
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Original:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            y = R.nn.silu(R.exp(x))
            R.output(y)
        return y

@mutator
class SiluBySigmoid(PyExprMutator):
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        if call.op.name != "relax.nn.silu":
            return super().visit_call_(call)
        x = self.visit_expr(call.args[0])
        return relax.op.multiply(x, relax.op.sigmoid(x))

@tvm.transform.module_pass(opt_level=0, name="Decompose")
class Decompose:
    def transform_module(self, mod: IRModule, ctx: tvm.transform.PassContext) -> IRModule:
        rewriter = SiluBySigmoid(mod)
        for var, func in mod.functions_items():
            if isinstance(func, relax.Function):
                rewriter.builder_.update_func(var, rewriter.visit_expr(func))
        return rewriter.builder_.get()

decomposed = Decompose()(Original)
assert "silu" in str(Original) and "silu" not in str(decomposed)
legal = relax.transform.LegalizeOps()(decomposed)
with tvm.target.Target("llvm"):
    steps = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern(),
             relax.transform.FuseOps(), relax.transform.FuseTIR()]
    both = tvm.transform.Sequential(steps)(Original)
x = np.linspace(-1, 1, 16, dtype="float32").reshape(4, 4)
for mod in (Original, decomposed, legal, both):
    mod.show()
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    y = machine["main"](tvm.runtime.tensor(x)).numpy()
    e = np.exp(x)
    np.testing.assert_allclose(y, e / (1 + np.exp(-e)), rtol=1e-5)
"""

LOOPS = """
import numpy as np
import tvm
from tvm import te
from tvm.script import ir as I
from tvm.script import tirx as T

@I.ir_module
class Spelled:
    @T.prim_func
    def distances(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32"),
                  C: T.Buffer((8,), "float32")):
        S = T.alloc_buffer((8,), dtype="float32")
        for i in range(8):
            for k in range(4):
                with T.block("sum"):
                    vi = T.axis.spatial(8, i)
                    vk = T.axis.reduce(4, k)
                    T.reads(A[vi, vk], B[vi, vk])
                    T.writes(S[vi])
                    with T.init():
                        S[vi] = T.float32(0)
                    S[vi] = S[vi] + (A[vi, vk] - B[vi, vk]) * (A[vi, vk] - B[vi, vk])
        for i in range(8):
            with T.block("root"):
                vi = T.axis.spatial(8, i)
                T.reads(S[vi])
                T.writes(C[vi])
                C[vi] = T.sqrt(S[vi])

rows, width, dtype = 8, 4, "float32"

@I.ir_module
class Short:
    @T.prim_func
    def distances(A: T.Buffer((rows, width), dtype), B: T.Buffer((rows, width), dtype),
                  C: T.Buffer((rows,), dtype)):
        S = T.alloc_buffer((rows,), dtype)
        for i, k in T.grid(rows, width):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.cast(T.float32(0), dtype)
                S[vi] = S[vi] + (A[vi, vk] - B[vi, vk]) * (A[vi, vk] - B[vi, vk])
        for i in T.grid(rows):
            with T.block("root"):
                vi = T.axis.remap("S", [i])
                C[vi] = T.sqrt(S[vi])

assert tvm.ir.structural_equal(Spelled, Short)

@I.ir_module
class AnySize:
    @T.prim_func
    def distances(a: T.handle, b: T.handle, c: T.handle):
        n, m = T.int32(), T.int32()
        A = T.match_buffer(a, [n, m], dtype)
        B = T.match_buffer(b, [n, m], dtype)
        C = T.match_buffer(c, [n], dtype)
        S = T.alloc_buffer((n,), dtype)
        for i, k in T.grid(n, m):
            with T.block("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    S[vi] = T.float32(0)
                S[vi] = S[vi] + (A[vi, vk] - B[vi, vk]) * (A[vi, vk] - B[vi, vk])
        for i in T.grid(n):
            with T.block("root"):
                vi = T.axis.remap("S", [i])
                C[vi] = T.sqrt(S[vi])

def of_expressions(n, m):
    A = te.placeholder((n, m), "float32", name="A")
    B = te.placeholder((n, m), "float32", name="B")
    k = te.reduce_axis((0, m), "k")
    S = te.compute((n,), lambda i: te.sum((A[i, k] - B[i, k]) * (A[i, k] - B[i, k]), axis=k))
    C = te.compute((n,), lambda i: te.max(te.sqrt(S[i]), 0), name="C")
    func = te.create_prim_func([A, B, C]).with_attr({"global_symbol": "distances"})
    return tvm.IRModule({"distances": func})

rng = np.random.default_rng(0)
for mod, sizes in (
    (Spelled, [(8, 4)]), (Short, [(8, 4)]), (AnySize, [(8, 4), (3, 5)]),
    (of_expressions(8, 4), [(8, 4)]), (of_expressions(te.var("n"), te.var("m")), [(2, 7)]),
):
    mod.show()
    library = tvm.compile(mod, target="llvm")
    for n, m in sizes:
        a, b = rng.random((2, n, m), dtype="float32")
        c = tvm.runtime.tensor(np.zeros(n, "float32"))
        library["distances"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), c)
        np.testing.assert_allclose(c.numpy(), np.sqrt(((a - b) ** 2).sum(1)), rtol=1e-5)
"""

OWN_CODEGEN = """
import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions, RunCodegen
from tvm.script import ir as I
from tvm.script import relax as R

@I.ir_module
class Program:
    @R.function
    def main(x: R.Tensor((2, 8), "float32"), w: R.Tensor((8, 4), "float32")):
        with R.dataflow():
            product = R.matmul(x, w)
            positive = R.nn.relu(product)
            out = R.exp(positive)
            R.output(out)
        return out

def pattern():
    product = is_op("relax.matmul")(wildcard(), wildcard())
    result = is_op("relax.nn.relu")(product)
    return result, {"product": product}

register_patterns([("toy.positive_product", *pattern())])
mod = FuseOpsByPattern(get_patterns_with_prefix("toy"), bind_constants=False)(Program)
mod = MergeCompositeFunctions()(mod)
calls = []

@tvm.register_global_func("relax.ext.toy")
def toy(functions, options, constant_names):
    for func in functions:
        assert func.attrs["Codegen"] == "toy"
        name = func.attrs["global_symbol"]

        def kernel(x, w, out):
            calls.append(name)
            out.copyfrom(np.maximum(x.numpy() @ w.numpy(), 0))

        tvm.register_global_func(name, kernel)
    return []

mod = RunCodegen()(mod)
mod.show()
machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
rng = np.random.default_rng(0)
x, w = rng.random((2, 8), dtype="float32") - 0.5, rng.random((8, 4), dtype="float32")
y = machine["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(w)).numpy()
np.testing.assert_allclose(y, np.exp(np.maximum(x @ w, 0)), rtol=1e-5)
assert len(calls) == 1
"""


PARAMETERS = """
import os
import numpy as np
import tvm
from tvm import relax

path = os.path.join(os.path.dirname(__file__), "model.params")
given = {"w": tvm.runtime.tensor(np.arange(6, dtype="float32").reshape(2, 3)),
         "b": tvm.runtime.tensor(np.array([1, -2], "int8"))}
tvm.runtime.save_param_dict_to_file(given, path)
data = tvm.runtime.save_param_dict(given)
assert open(path, "rb").read() == data
for found in (tvm.runtime.load_param_dict(data),
              tvm.runtime.load_param_dict_from_file(path)):
    assert list(found) == ["w", "b"]
    for name, value in given.items():
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())
try:
    tvm.runtime.load_param_dict(data[:-1])
except RuntimeError as error:
    assert "truncated" in str(error)
else:
    raise AssertionError("a truncated file was read")

assert isinstance(tvm.runtime.convert(np.ones(2)), tvm.runtime.Tensor)
assert tvm.runtime.convert("text") == "text"
assert tvm.runtime.DataTypeCode.FLOAT == 2
assert callable(relax.get_default_pipeline(tvm.target.Target("llvm")))
try:
    relax.get_default_pipeline(tvm.target.Target("cuda"))
except ValueError as error:
    assert "CPU" in str(error)
"""

COMPILED_LOOPS = """
import numpy as np
import tvm
from tvm import relax, te
from tvm.script import ir as I
from tvm.script import tirx as T

@I.ir_module(s_tir=True)
class Distances:
    @T.prim_func(s_tir=True)
    def squares(left: T.handle, right: T.handle, out: T.handle):
        rows, size = T.int32(), T.int32()
        L = T.match_buffer(left, [rows, size], "float32")
        R = T.match_buffer(right, [rows, size], "float32")
        O = T.match_buffer(out, [rows], "float32")
        for i, k in T.grid(rows, size):
            with T.sblock("sum"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    O[vi] = T.float32(0)
                O[vi] = O[vi] + (L[vi, vk] - R[vi, vk]) * (L[vi, vk] - R[vi, vk])

lib = tvm.compile(Distances, target="llvm")
assert isinstance(lib, tvm.runtime.Executable)
rng = np.random.default_rng(0)
for rows, size in ((3, 4), (1, 17)):
    arrays = [rng.random((rows, size), dtype="float32") for _ in range(2)]
    out = tvm.runtime.tensor(np.zeros(rows, "float32"))
    lib(*[tvm.runtime.tensor(a) for a in arrays], out)
    np.testing.assert_allclose(out.numpy(), np.square(arrays[0] - arrays[1]).sum(1), rtol=1e-5)
    timer = lib.mod.time_evaluator("squares", tvm.cpu(), number=2, repeat=3)
    assert len(timer(*[tvm.runtime.tensor(a) for a in arrays], out).results) == 3

n = te.var("n")
x = te.placeholder((n,), "float32", name="x")
with te.tag_scope(tag="shifted"):
    y = te.compute((n,), lambda i: x[i] + 1, name="y")
assert isinstance(y.op, te.ComputeOp) and y.op.tag == "shifted" and y.op.input_tensors == [x]
two = tvm.IRModule({"first": te.create_prim_func([x, y]).with_attr("global_symbol", "first"),
                    "second": te.create_prim_func([x, tvm.topi.sort(y)])
                    .with_attr("global_symbol", "second")})
lib = tvm.compile(two, target="llvm")
given, out = tvm.runtime.tensor(np.array([3, 1, 2], "float32")), tvm.runtime.empty((3,), "float32")
lib["second"](given, out)
assert out.numpy().tolist() == [2, 3, 4]
try:
    lib(given, out)
except AttributeError as error:
    assert "no function 'main'" in str(error)
else:
    raise AssertionError("two functions, and one was called")

builder = relax.BlockBuilder()
v = relax.Var("v", relax.TensorType((2,), "float32"))
w = relax.Var("w", relax.TensorType((2,), "float32"))
with builder.function("main", [v, w]):
    builder.emit_func_output(builder.emit(v + w))
mod = builder.get()
mod["main"] = mod["main"].with_attr("params", [tvm.runtime.tensor(np.ones(2, "float32"))])
mod, params = relax.frontend.detach_params(mod)
assert "params" not in mod["main"].attrs
assert [p.numpy().tolist() for p in params["main"]] == [[1.0, 1.0]]
"""


@pytest.mark.parametrize(
    "program",
    [FIRST_MODEL, WAYS_TO_WRITE, PASSES, LOOPS, OWN_CODEGEN, PARAMETERS, COMPILED_LOOPS],
    ids=[
        "first_model",
        "ways_to_write",
        "passes",
        "loops",
        "own_codegen",
        "parameters",
        "compiled_loops",
    ],
)
def test_programs_in_the_shape_of_tutorials_run_as_they_are(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program + '\nprint("the end")\n')
    done = children.run(
        [sys.executable, "-m", "relaxvm.contrib.as_tvm", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("the end\n")
