"""Models for apache-tvm's compiler; relaxvm runs the compiled code with TVM's kernels.

Import this only after ``pytest.importorskip("tvm")``.

A process without TVM can read the arguments: they are arrays, numbers, tuples of these, and lists
for shapes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, s_tir, te
from tvm.relax.frontend import nn
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target

from . import tvm_names  # also for names that TVM 0.25 does not have

__all__ = ["MODELS", "Model", "export"]

MODELS: Final[dict[str, Model]] = {}
"""Models by name."""

Args = tuple[Any, ...]
Inputs = Callable[[np.random.Generator], Args]


@dataclass(frozen=True)
class Model:
    """A module for TVM's compiler, and calls of its functions.

    Attributes:
        name: name of the model.
        module: the program.
        calls: for every call, the name of a function and a function that makes its arguments.
            Benchmarks time the first one.
        dispatch: whether dispatch takes longer than the kernels.
        cpu: the processor to compile for; empty for any x86-64.
        params: values that are bound to parameters of ``main`` before compiling.
        packed: functions of the host that it calls.
        mistakes: arguments that the first function must reject, in addition to those of `wrong`,
            and words of the error message.
    """

    name: str
    module: Any
    calls: tuple[tuple[str, Inputs], ...]
    dispatch: bool
    cpu: str = ""
    params: Mapping[str, np.ndarray] = field(default_factory=dict)
    packed: tuple[str, ...] = ()
    mistakes: tuple[tuple[Args, tuple[str, ...]], ...] = ()

    def __str__(self) -> str:
        return self.name

    def arguments(self) -> list[tuple[str, Args]]:
        """Return the function and arguments of every call; they are the same each time."""
        rng = np.random.default_rng(20)
        return [(function, inputs(rng)) for function, inputs in self.calls]

    def wrong(self) -> list[tuple[str, Args, tuple[str, ...]]]:
        """Return arguments that the first function must reject, with words of the error message:
        too few and too many arguments, and tensors with a wrong data type, rank or dimension."""
        function, args = self.arguments()[0]
        types = [tvm_names.type_of(var) for var in self.module[function].params][: len(args)]
        wrong = [(args[:-1], (f"expects {len(args)} argument", f"got {len(args) - 1}")),
                 ((*args, args[-1]), (f"expects {len(args)} argument", f"got {len(args) + 1}")),
                 *self.mistakes]  # fmt: skip
        dimensions: dict[Any, int] = {}
        for i, type_ in enumerate(types):
            if isinstance(type_, relax.TensorType):
                for value, words in _wrong_tensors(args[i], type_, dimensions):
                    wrong.append(((*args[:i], value, *args[i + 1 :]), words))
        return [(function, *each) for each in wrong]

    def compile(self, **options: Any) -> relax.VMExecutable:
        target = {"kind": "llvm", **({"mcpu": self.cpu} if self.cpu else {})}
        module = self.module
        if self.params:
            params = {name: tvm.runtime.tensor(value) for name, value in self.params.items()}
            module = relax.transform.BindParams("main", params)(module)
        module = relax.transform.LambdaLift()(module)
        if options:
            return relax.build(module, Target(target), **options)
        return tvm.compile(module, Target(target))


def _wrong_tensors(
    value: np.ndarray, type_: Any, dimensions: dict[Any, int]
) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield tensors that the type of an argument excludes.

    Args:
        dimensions: values of symbolic dimensions; those of this tensor are added.
    """
    dtype = str(type_.dtype)
    other = "float32" if dtype == "float64" else "float64"
    yield None, ("expected a tensor", "got None")
    yield value.astype(other), (f"dtype {dtype}", f"dtype {other}")
    yield value[None], (f"ndim {value.ndim}", f"ndim {value.ndim + 1}")
    for axis, dim in enumerate(type_.shape):
        size = value.shape[axis]
        if isinstance(dim, tvm.tirx.IntImm) or dim in dimensions:
            longer = np.repeat(value, 2, axis=axis)
            yield longer, (f"dimension {axis} ", f"expected {size}", f"got {2 * size}")
        else:
            dimensions[dim] = size


def export(model: Model, folder: Path, executable: Any = None) -> Path:
    """Export ``NAME.so`` with TVM, and write the calls and wrong calls to ``NAME.calls``."""
    path = folder / f"{model.name}.so"
    (executable or model.compile()).export_library(str(path))
    wrong = [(function, args) for function, args, _ in model.wrong()]
    path.with_suffix(".calls").write_bytes(pickle.dumps((model.arguments(), wrong)))
    return path


def model(
    name: str, *inputs: Inputs | tuple[str, Inputs], dispatch: bool = True, **rest: Any
) -> Callable[[Any], Any]:
    """Register a module; inputs without a function name are for ``main``."""

    def register(module: Any) -> Any:
        calls = tuple(each if isinstance(each, tuple) else ("main", each) for each in inputs)
        MODELS[name] = Model(name, module, calls, dispatch, **rest)
        return module

    return register


def floats(*shapes: tuple[int, ...], dtype: str = "float32") -> Inputs:
    """Numbers around zero, one array of each shape."""
    return lambda rng: tuple((rng.random(shape) - 0.5).astype(dtype) for shape in shapes)


def integers(
    *shapes: tuple[int, ...], dtype: str = "int64", low: int = -50, high: int = 50
) -> Inputs:
    return lambda rng: tuple(rng.integers(low, high, shape).astype(dtype) for shape in shapes)


def weights(*shape: int, seed: int = 3) -> np.ndarray:
    return ((np.random.default_rng(seed).random(shape) - 0.5) / np.sqrt(shape[0])).astype("float32")


# The VM alone


@model("add_static", floats((4,), (4,)))
@I.ir_module
class AddStatic:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        return R.add(x, y)


@model("add_dynamic", floats((4,), (4,)), floats((1000,), (1000,)), floats((0,), (0,)))
@I.ir_module
class AddDynamic:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")):
        return R.add(x, y)


def chain(shape: tuple[Any, ...]) -> Any:
    """Fifty operators on a tiny tensor."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor(shape, "float32"))
    operators = (R.add, R.multiply, R.subtract, R.maximum, R.minimum)
    with builder.function("main", [x]):
        with builder.dataflow():
            last = x
            for i in range(50):
                last = builder.emit(operators[i % 5](last, x))
            last = builder.emit_output(last)
        builder.emit_func_output(last)
    return builder.get()


model("chain_static", floats((4,)))(chain((4,)))
model("chain_dynamic", floats((2, 3)), floats((1, 1)))(
    chain((tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")))
)


@model("branch", lambda rng: (np.array(True), np.array([1, -2], "float32")),
       lambda rng: (np.array(False), np.array([1, -2], "float32")))  # fmt: skip
@I.ir_module
class Branch:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        y = R.abs(x)
        if c:
            z = R.add(x, y)
        else:
            z = R.multiply(y, y)
        return z


@model("recursion", lambda rng: (np.array(20, "int64"), np.array([1, 2, 3], "float32")))
@I.ir_module
class Recursion:
    @R.function
    def main(n: R.Tensor((), "int64"), x: R.Tensor(("k",), "float32")) -> R.Tensor(
        ("k",), "float32"
    ):
        cls = Recursion
        more = R.greater(n, R.const(0, "int64"))
        if more:
            m = R.subtract(n, R.const(1, "int64"))
            y = cls.main(m, x)
            r = R.add(y, x)
        else:
            r = x
        return r


@model("closures", floats((2, 3), (2, 3)))
@I.ir_module
class Closures:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        @R.function
        def scaled(a: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.multiply(a, y)

        @R.function
        def moved(a: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.add(a, x)

        c = moved(x)
        d = scaled(c)
        return moved(d)


PAIR = (np.arange(3, dtype="int32"), np.full((2, 2), 0.5, "float64"))


@model(
    "tuples",
    lambda rng: ((np.ones(2, "float32"), PAIR),),
    mistakes=(
        ((PAIR,), ("dtype float32", "dtype int32")),
        (((np.ones(2, "float32"),),), ("expected a tuple of 2 elements", "got 1")),
        (((np.ones(2, "float32"), 1),), ("expected a tuple", "got int 1")),
        (((np.ones(2, "float32"), (PAIR[0], np.ones((2, 3)))),), ("expected 2", "got 3")),
    ),
)
@I.ir_module
class Tuples:
    @R.function
    def main(
        t: R.Tuple(
            R.Tensor((2,), "float32"),
            R.Tuple(R.Tensor((3,), "int32"), R.Tensor(("n", "n"), "float64")),
        ),
    ):
        a = t[0]
        b = t[1]
        c = R.add(a, a)
        d = R.multiply(b[0], b[0])
        return ((c, (d, b[1])), a, ())


@model("functions", ("double", floats((3, 2))), ("square", floats((2, 5))),
       ("both", floats((4, 1))))  # fmt: skip
@I.ir_module
class Functions:
    @R.function
    def double(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        return R.add(x, x)

    @R.function
    def square(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        return R.multiply(x, x)

    @R.function
    def both(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        cls = Functions
        y: R.Tensor((n, m), "float32") = cls.double(x)
        z: R.Tensor((n, m), "float32") = cls.square(y)
        return (y, z)


@model("shapes", lambda rng: ([2, 3],), lambda rng: ([0, 5],),
       mistakes=((([1, 2, 3],), ("expected a Shape of ndim 2", "got ndim 3")),
                 ((np.zeros(2),), ("expected a Shape", "got float64[2]"))))  # fmt: skip
@I.ir_module
class Shapes:
    @R.function
    def main(s: R.Shape(["n", "m"])):
        n = T.int64()
        m = T.int64()
        x = R.full((n, m), R.const(1.5, "float32"), "float32")
        return (x, R.shape([m * 2 + 1, n]), R.shape_to_tensor(s))


@model("scalars", lambda rng: (3, np.arange(4, dtype="float32")),
       mistakes=(((1.5, np.zeros(4, "float32")), ("expected a scalar of dtype int64", "float 1.5")),
                 (("3", np.zeros(4, "float32")), ("expected a scalar", "str '3'"))))  # fmt: skip
@I.ir_module
class Scalars:
    @T.prim_func(s_tir=True)
    def scale(x: T.Buffer((4,), "float32"), n: T.int64, y: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.sblock("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = x[vi] * T.Cast("float32", n)

    @R.function
    def main(n: R.Prim("int64"), x: R.Tensor((4,), "float32")):
        cls = Scalars
        y = R.call_tir(cls.scale, (x, n), R.Tensor((4,), "float32"))
        return (y, n, R.prim_value(7))


@model("computed_dims", floats((3, 4)), floats((1, 7)))
@I.ir_module
class ComputedDims:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        y = R.concat([x, x], axis=0)
        z = R.reshape(y, R.shape([m, n * 2]))
        w = R.matmul(y, z)
        v = R.strided_slice(w, axes=[0], begin=[0], end=[1])
        u = R.reshape(w, R.shape([n * n * 4]))
        return (v, u, R.shape([n * m, m + 1]))


@model("unknown_types", floats((3, 4)),
       mistakes=(((np.zeros((3, 4)),), ("dtype float32", "dtype float64")),
                 ((np.zeros(3, "float32"),), ("ndim 2", "ndim 1"))))  # fmt: skip
@I.ir_module
class UnknownTypes:
    @R.function
    def main(x: R.Any):
        n = T.int64()
        m = T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.match_cast(R.shape_of(y), R.Shape([n, m]))
        w = R.permute_dims(y)
        return (w, z, x)


@model("host_function", floats((2, 3)), packed=("tests.models.half",))
@I.ir_module
class HostFunction:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")):
        y = R.add(x, x)
        z = R.call_dps_packed("tests.models.half", (y,), R.Tensor((2, 3), "float32"))
        return R.add(z, x)


@model("in_place", floats((2, 3), (2, 3)))
@I.ir_module
class InPlace:
    @T.prim_func(s_tir=True)
    def accumulate(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2, 3), "float32")):
        for i, j in T.grid(2, 3):
            with T.sblock("x"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] + y[vi, vj]

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        cls = InPlace
        z = R.add(x, y)
        return R.call_tir_inplace(
            cls.accumulate, (z, y), [0], R.Tensor((2, 3), "float32")
        )


@I.ir_module
class InPlaceArgument:
    """Changes its first argument."""

    @T.prim_func(s_tir=True)
    def accumulate(x: T.Buffer((2, 3), "float32"), y: T.Buffer((2, 3), "float32")):
        for i, j in T.grid(2, 3):
            with T.sblock("x"):
                vi, vj = T.axis.remap("SS", [i, j])
                x[vi, vj] = x[vi, vj] + y[vi, vj]

    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        cls = InPlaceArgument
        return R.call_tir_inplace(
            cls.accumulate, (x, y), [0], R.Tensor((2, 3), "float32")
        )


# Data types


@model("int8", integers((4, 16), (16, 8), dtype="int8", low=-128, high=127))
@I.ir_module
class Int8:
    @R.function
    def main(x: R.Tensor((4, 16), "int8"), w: R.Tensor((16, 8), "int8")):
        y = R.matmul(x, w, out_dtype="int32")
        z = R.clip(R.right_shift(y, R.const(6, "int32")), -128, 127)
        return (R.astype(z, "int8"), R.astype(R.astype(x, "uint8"), "int16"))


@model("float16", floats((4, 8), (8, 4), dtype="float16"))
@I.ir_module
class Float16:
    @R.function
    def main(x: R.Tensor((4, 8), "float16"), w: R.Tensor((8, 4), "float16")):
        y = R.nn.softmax(R.matmul(x, w), axis=-1)
        return (y, R.astype(y, "float32"))


@model("float64", floats((3, 3), (3, 3), dtype="float64"))
@I.ir_module
class Float64:
    @R.function
    def main(x: R.Tensor((3, 3), "float64"), y: R.Tensor((3, 3), "float64")):
        return R.sqrt(R.exp(R.add(R.matmul(x, y), R.sin(x))))


@model("int64", integers((3, 5), (3, 5)))
@I.ir_module
class Int64:
    @R.function
    def main(x: R.Tensor((3, 5), "int64"), y: R.Tensor((3, 5), "int64")):
        z = R.bitwise_xor(R.multiply(x, y), R.const(0x55, "int64"))
        return (z, R.maximum(x, y), R.sum(z, axis=[1]))


@model("bools", lambda rng: (rng.random((3, 4)) < 0.5, rng.random((3, 4)).astype("float32")))
@I.ir_module
class Bools:
    @R.function
    def main(c: R.Tensor((3, 4), "bool"), x: R.Tensor((3, 4), "float32")):
        less = R.less(x, R.const(0.5, "float32"))
        both = R.logical_and(less, c)
        return (R.where(both, x, R.negative(x)), R.logical_not(both))


# Operators


@model("reductions", floats((4, 5)))
@I.ir_module
class Reductions:
    @R.function
    def main(x: R.Tensor((4, 5), "float32")):
        return (R.sum(x, axis=[1]), R.max(x), R.mean(x, axis=[0]), R.argmax(x, axis=1),
                R.std(x), R.prod(x, axis=[0], keepdims=True))  # fmt: skip


@model("topk", floats((3, 50)))
@I.ir_module
class TopK:
    @R.function
    def main(x: R.Tensor((3, 50), "float32")):
        return R.topk(x, k=4, axis=-1, ret_type="both", largest=True)


@model("sort", floats((5, 7)), floats((1, 300)))
@I.ir_module
class Sort:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        return (R.sort(x, axis=1), R.argsort(x, axis=0, descending=True, dtype="int64"))


@model("cumsum", floats((3, 6)))
@I.ir_module
class CumSum:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        return (R.cumsum(x, axis=1), R.cumsum(x), R.cumprod(x, axis=0))


@model("gather", lambda rng: (rng.random((6, 4)).astype("float32"),
                              rng.integers(0, 6, (5,)), rng.integers(0, 4, (6, 2))))  # fmt: skip
@I.ir_module
class Gather:
    @R.function
    def main(
        x: R.Tensor((6, 4), "float32"),
        rows: R.Tensor(("n",), "int64"),
        places: R.Tensor((6, 2), "int64"),
    ):
        return (R.take(x, rows, axis=0), R.gather_elements(x, places, axis=1))


@model("split_and_concat", floats((4, 6)))
@I.ir_module
class SplitAndConcat:
    @R.function
    def main(x: R.Tensor((4, 6), "float32")):
        parts = R.split(x, 3, axis=1)
        back = R.concat([parts[2], parts[0], parts[1]], axis=1)
        return (back, parts, R.expand_dims(parts[1], axis=0), R.tile(parts[0], (1, 2)))


# Networks


@model("mlp_static", floats((1, 64)), dispatch=False)
@I.ir_module
class MlpStatic:
    @R.function
    def main(x: R.Tensor((1, 64), "float32")):
        with R.dataflow():
            h = R.nn.relu(R.add(R.matmul(x, R.const(weights(64, 128))), R.const(weights(128))))
            g = R.nn.relu(R.add(R.matmul(h, R.const(weights(128, 64))), R.const(weights(64))))
            o = R.nn.softmax(R.matmul(g, R.const(weights(64, 10))), axis=-1)
            R.output(o)
        return o


MLP = {"w1": weights(64, 128), "b1": weights(128), "w2": weights(128, 10), "b2": weights(10)}


@I.ir_module
class MlpDynamic:
    @R.function
    def main(
        x: R.Tensor(("n", 64), "float32"),
        w1: R.Tensor((64, 128), "float32"),
        b1: R.Tensor((128,), "float32"),
        w2: R.Tensor((128, 10), "float32"),
        b2: R.Tensor((10,), "float32"),
    ):
        with R.dataflow():
            h = R.nn.gelu(R.add(R.matmul(x, w1), b1))
            o = R.nn.log_softmax(R.add(R.matmul(h, w2), b2), axis=-1)
            R.output(o)
        return o


model("mlp_dynamic", floats((1, 64)), floats((5, 64)), params=MLP, dispatch=False)(MlpDynamic)
model("mlp_avx2", floats((4, 64)), params=MLP, dispatch=False, cpu="x86-64-v3")(MlpDynamic)


@model("conv_net", floats((1, 3, 32, 32)), dispatch=False)
@I.ir_module
class ConvNet:
    @R.function
    def main(x: R.Tensor((1, 3, 32, 32), "float32")):
        with R.dataflow():
            a = R.nn.conv2d(x, R.const(weights(8, 3, 3, 3)), padding=1)
            n = R.nn.batch_norm(a, R.const(weights(8)), R.const(weights(8, seed=4)),
                                R.const(weights(8, seed=5)), R.const(abs(weights(8, seed=6))),
                                axis=1, training=False)  # fmt: skip
            b = R.nn.max_pool2d(R.nn.relu(n[0]), pool_size=(2, 2), strides=(2, 2))
            c = R.nn.relu(R.nn.conv2d(b, R.const(weights(16, 8, 3, 3)), padding=1))
            d = R.nn.max_pool2d(c, pool_size=(2, 2), strides=(2, 2))
            e = R.reshape(d, (1, 1024))
            f = R.add(R.matmul(e, R.const(weights(1024, 10))), R.const(weights(10)))
            R.output(f)
        return f


@model("lstm_step", floats((1, 16), (1, 32), (1, 32)))
@I.ir_module
class LstmStep:
    @R.function
    def main(
        x: R.Tensor((1, 16), "float32"),
        h: R.Tensor((1, 32), "float32"),
        c: R.Tensor((1, 32), "float32"),
    ):
        with R.dataflow():
            joined = R.concat([x, h], axis=1)
            gates = R.split(R.matmul(joined, R.const(weights(48, 128))), 4, axis=1)
            kept = R.multiply(R.sigmoid(gates[1]), c)
            new = R.multiply(R.sigmoid(gates[0]), R.tanh(gates[2]))
            state = R.add(kept, new)
            output = R.multiply(R.sigmoid(gates[3]), R.tanh(state))
            result = (output, (output, state))
            R.output(result)
        return result


@model("attention_static", floats((8, 16), (8, 16), (8, 16)))
@I.ir_module
class AttentionStatic:
    @R.function
    def main(
        q: R.Tensor((8, 16), "float32"),
        k: R.Tensor((8, 16), "float32"),
        v: R.Tensor((8, 16), "float32"),
    ):
        with R.dataflow():
            scores = R.multiply(R.matmul(q, R.permute_dims(k)), R.const(0.25, "float32"))
            out = R.matmul(R.nn.softmax(scores, axis=-1), v)
            R.output(out)
        return out


@model("attention_dynamic", floats((8, 16), (8, 16), (8, 16)), floats((3, 8), (5, 8), (5, 8)))
@I.ir_module
class AttentionDynamic:
    @R.function
    def main(
        q: R.Tensor(("n", "d"), "float32"),
        k: R.Tensor(("m", "d"), "float32"),
        v: R.Tensor(("m", "d"), "float32"),
    ):
        with R.dataflow():
            scores = R.multiply(R.matmul(q, R.permute_dims(k)), R.const(0.25, "float32"))
            out = R.matmul(R.nn.softmax(scores, axis=-1), v)
            R.output(out)
        return out


class Block(nn.Module):
    """A transformer block: attention of four heads and an MLP, each after a normalization."""

    def __init__(self, width: int) -> None:
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.width = width

    def forward(self, x: nn.Tensor) -> nn.Tensor:
        batch, length, width = x.shape
        qkv = nn.op.split(self.qkv(self.norms[0](x)), 3, axis=2)
        q, k, v = (
            nn.op.permute_dims(nn.op.reshape(part, (batch, length, 4, width // 4)), [0, 2, 1, 3])
            for part in qkv
        )
        scores = nn.op.matmul(q, nn.op.permute_dims(k, [0, 1, 3, 2])) * (1 / 4)
        mixed = nn.op.permute_dims(nn.op.matmul(nn.op.softmax(scores), v), [0, 2, 1, 3])
        x = x + self.out(nn.op.reshape(mixed, (batch, length, width)))
        return x + self.narrow(nn.op.gelu(self.wide(self.norms[1](x))))


def transformer(batch: int | str) -> tuple[Any, dict[str, np.ndarray]]:
    block = Block(64)
    module, params = block.export_tvm(
        {"forward": {"x": nn.spec.Tensor([batch, 12, 64], "float32")}}
    )
    module["main"] = module["forward"].with_attr("global_symbol", "main")
    del module["forward"]
    values = {}
    for i, (name, param) in enumerate(params):
        values[name] = weights(*map(int, param.shape), seed=i)
    return module, values


for _name, _batch, _inputs in (
    ("transformer_static", 1, (floats((1, 12, 64)),)),
    ("transformer_dynamic", "batch", (floats((1, 12, 64)), floats((3, 12, 64)))),
):
    _module, _params = transformer(_batch)
    model(_name, *_inputs, params=_params, dispatch=False)(_module)


# Constants


@model("large_constant", lambda rng: (rng.integers(0, 262144, (4,)),),
       params={"table": weights(262144, 64)})  # fmt: skip
@I.ir_module
class LargeConstant:
    """64 MiB."""

    @R.function
    def main(rows: R.Tensor(("n",), "int64"), table: R.Tensor((262144, 64), "float32")):
        return R.take(table, rows, axis=0)


@model("medium_constants", lambda rng: (rng.integers(0, 4096, (4,)),))
@I.ir_module
class MediumConstants:
    """Four of 1 MiB."""

    @R.function
    def main(rows: R.Tensor((4,), "int64")):
        a = R.take(R.const(weights(4096, 64, seed=1)), rows, axis=0)
        b = R.take(R.const(weights(4096, 64, seed=2)), rows, axis=0)
        c = R.take(R.const(weights(4096, 64, seed=3)), rows, axis=0)
        d = R.take(R.const(weights(4096, 64, seed=4)), rows, axis=0)
        return R.concat([a, b, c, d], axis=1)


# Runtime functions that kernels call


@model("parallel", floats((64, 256)), floats((3, 256)), dispatch=False)
@I.ir_module
class Parallel:
    """`__TVMBackendParallelLaunch`."""

    @T.prim_func(s_tir=True)
    def kernel(a: T.handle, b: T.handle):
        n = T.int64()
        x = T.match_buffer(a, (n, 256), "float32")
        y = T.match_buffer(b, (n, 256), "float32")
        for i in T.parallel(n):
            for j in range(256):
                with T.sblock("y"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    y[vi, vj] = T.exp(x[vi, vj]) + T.Cast("float32", vi)

    @R.function
    def main(x: R.Tensor(("n", 256), "float32")):
        n = T.int64()
        cls = Parallel
        return R.call_tir(cls.kernel, (x,), R.Tensor((n, 256), "float32"))


def scheduled_parallel() -> Any:
    """A matmul whose rows are parallel by TVM's schedule."""
    x, w = te.placeholder((32, 48), name="x"), te.placeholder((48, 16), name="w")
    k = te.reduce_axis((0, 48), name="k")
    product = te.compute((32, 16), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="product")
    schedule = s_tir.Schedule(te.create_prim_func([x, w, product]))
    schedule.parallel(schedule.get_loops("product")[0])
    builder = relax.BlockBuilder()
    kernel = builder.add_func(schedule.mod["main"].without_attr("global_symbol"), "product")
    args = [
        relax.Var("x", R.Tensor((32, 48), "float32")),
        relax.Var("w", R.Tensor((48, 16), "float32")),
    ]
    with builder.function("main", args):
        out = builder.emit(relax.call_tir(kernel, args, R.Tensor((32, 16), "float32")))
        builder.emit_func_output(out)
    return builder.get()


model("parallel_matmul", floats((32, 48), (48, 16)), dispatch=False)(scheduled_parallel())


@model("workspace", floats((64, 256)), dispatch=False)
@I.ir_module
class Workspace:
    """`__TVMBackendAllocWorkspace` and `__TVMBackendFreeWorkspace`."""

    @T.prim_func(s_tir=True)
    def kernel(x: T.Buffer((64, 256), "float32"), y: T.Buffer((64, 256), "float32")):
        held = T.sblock_alloc_buffer((64, 256), "float32")
        for i, j in T.grid(64, 256):
            with T.sblock("held"):
                vi, vj = T.axis.remap("SS", [i, j])
                held[vi, vj] = x[vi, vj] * x[vi, vj]
        for i, j in T.grid(64, 256):
            with T.sblock("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = held[63 - vi, 255 - vj] + held[vi, vj]

    @R.function
    def main(x: R.Tensor((64, 256), "float32")):
        cls = Workspace
        return R.call_tir(cls.kernel, (x,), R.Tensor((64, 256), "float32"))
