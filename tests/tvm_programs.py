"""Relax programs for apache-tvm's compiler; relaxvm must accept its output.

Import this only after ``pytest.importorskip("tvm")``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

__all__ = ["PROGRAMS", "stream"]

PROGRAMS: Final[dict[str, Any]] = {}
"""IRModules by name."""


def stream(mod: Any, exec_mode: str = "bytecode", params: dict[str, Any] | None = None) -> bytes:
    """Compile a module and return the bytes of its executable."""
    mod = relax.transform.LambdaLift()(mod)
    return saved(relax.build(mod, target="llvm", exec_mode=exec_mode, params=params))


def saved(executable: Any) -> bytes:
    """Return the bytes of TVM's executable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "it.vmexec"
        executable.mod.write_to_file(str(path), "")
        return path.read_bytes()


def _add(name: str) -> Callable[[Any], Any]:
    def register(mod: Any) -> Any:
        PROGRAMS[name] = mod
        return mod

    return register


@_add("add_static")
@I.ir_module
class AddStatic:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        return R.add(x, y)


@_add("add_dynamic")
@I.ir_module
class AddDynamic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor((4,), "float32")):
        z = R.add(x, y)
        return (R.nn.relu(z), z)


@_add("identity")
@I.ir_module
class Identity:
    @R.function
    def main(x: R.Any):
        return x


@_add("constants")
@I.ir_module
class Constants:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.add(x, R.const([1.0, 2.0], "float32"))
        return R.multiply(y, R.const(3.0, "float32"))


@_add("branch")
@I.ir_module
class Branch:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            y = R.add(x, x)
        else:
            y = R.multiply(x, x)
        return y


@_add("nested_branches")
@I.ir_module
class NestedBranches:
    @R.function
    def main(
        c: R.Tensor((), "bool"), d: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")
    ) -> R.Tensor(("n",), "float32"):
        if c:
            if d:
                y = R.add(x, x)
            else:
                y = R.multiply(x, x)
            z = y
        else:
            z = R.subtract(x, x)
        return z


@_add("packed_calls")
@I.ir_module
class PackedCalls:
    @R.function(pure=False)
    def main(x: R.Tensor((2,), "float32")):
        a = R.call_packed("test.f", x, R.prim_value(2), R.str("text"), ty_args=R.Any)
        b = R.call_packed("test.g", a, R.shape([1, 2]), R.dtype("int8"), ty_args=R.Any)
        _ = R.print(b, format="{}")
        return (a, b)


@_add("tuples")
@I.ir_module
class Tuples:
    @R.function
    def main(t: R.Tuple(R.Tensor((2,), "float32"), R.Tuple(R.Tensor((3,), "int32"), R.Any))):
        a = t[0]
        b = t[1]
        return (b[1], (a, b[0]), ())


@_add("recursion")
@I.ir_module
class Recursion:
    @R.function
    def main(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        cls = Recursion
        stop = R.equal(n, R.const(0, "int32"))
        if stop:
            r = n
        else:
            m = R.subtract(n, R.const(1, "int32"))
            r = cls.main(m)
        return r


@_add("calls_of_functions")
@I.ir_module
class CallsOfFunctions:
    @R.function(private=True)
    def half(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.multiply(x, R.const(0.5, "float32"))

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        cls = CallsOfFunctions
        y = cls.half(x)
        return cls.half(y)


@_add("closure")
@I.ir_module
class Closure:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")):
        @R.function
        def inner(a: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.add(a, y)

        return inner(x)


@_add("function_values")
@I.ir_module
class FunctionValues:
    @R.function
    def twice(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(x, x)

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = FunctionValues
        f = cls.twice
        return f(x)


@_add("match_cast")
@I.ir_module
class MatchCast:
    @R.function
    def main(x: R.Any):
        n = T.int64()
        m = T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.match_cast(R.shape_of(y), R.Shape([n, m]))
        return (y, R.shape([n * m, m + 1]), z)


@_add("reshape_dynamic")
@I.ir_module
class ReshapeDynamic:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n = T.int64()
        m = T.int64()
        y = R.reshape(x, R.shape([m, n]))
        return R.matmul(x, y)


@_add("mlp")
@I.ir_module
class Mlp:
    @R.function
    def main(
        x: R.Tensor(("b", 8), "float32"),
        w: R.Tensor((8, 4), "float32"),
        v: R.Tensor((4, 2), "float32"),
    ):
        with R.dataflow():
            h = R.nn.relu(R.matmul(x, w))
            o = R.nn.softmax(R.matmul(h, v), axis=-1)
            R.output(o)
        return o


@_add("reductions")
@I.ir_module
class Reductions:
    @R.function
    def main(x: R.Tensor((4, 5), "float64")):
        s = R.sum(x, axis=[1])
        return (s, R.max(x), R.argmax(x, axis=0), R.astype(x, "float16"))


@_add("prim_values")
@I.ir_module
class PrimValues:
    @R.function
    def main(n: R.Prim("int64"), x: R.Tensor(("k",), "float32")):
        k = T.int64()
        return (n, R.prim_value(k * 2), R.prim_value(1))


@_add("shape_parameter")
@I.ir_module
class ShapeParameter:
    @R.function
    def main(s: R.Shape(["n", "m"]), f: R.Callable):
        n = T.int64()
        m = T.int64()
        return (R.zeros((n, m), "float32"), R.shape([m, n]))


@_add("bfloat16_parameters")
@I.ir_module
class BfloatParameters:
    @R.function
    def main(x: R.Tensor((2, 2), "bfloat16")):
        return R.permute_dims(x)


@_add("if_without_else_work")
@I.ir_module
class IfWithoutElseWork:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
        if c:
            y = x
        else:
            y = R.add(x, x)
        return y
