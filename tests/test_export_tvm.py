"""Programs that relaxvm compiled and exported run on TVM, in a process without relaxvm."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine, build
from relaxvm.contrib.tvm import shared_library
from relaxvm.ir import BlockBuilder, TensorType, Var
from relaxvm.native import toolchain
from relaxvm.op import call_tir
from relaxvm.script import from_source
from relaxvm.values import Shape

from . import children

tvm = pytest.importorskip("tvm")

pytestmark = pytest.mark.skipif(
    toolchain.compiler() is None or not shared_library.SUFFIXES,
    reason="shared libraries are linked by a C compiler, on Linux",
)

ALONE = Path(__file__).with_name("tvm_alone.py")
HEAD = "from relaxvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass Program:\n"


class Case(NamedTuple):
    """A program and calls of it; `fails` are calls that must raise an error of a class, with words
    of its message."""

    text: str
    calls: list[tuple[str, tuple[Any, ...]]]
    fails: Sequence[tuple[str, tuple[Any, ...], type[Exception], str]] = ()
    registered: tuple[str, ...] = ()


def f32(*shape: int) -> np.ndarray:
    values = np.random.default_rng(len(shape)).normal(size=shape)
    return values.astype(np.float32)


F = f32(3, 4)
VECTOR = np.arange(5, dtype=np.float32)
WEIGHTS = "np.sin(np.arange(65536, dtype='float32')).reshape(256, 256) / 16"

CASES: dict[str, Case] = {
    "running_example": Case(
        """
    @T.prim_func(s_tir=True)
    def tirexp(a: T.handle, b: T.handle):
        n, m = T.int64(), T.int64()
        X = T.match_buffer(a, (n, m), "float32")
        Y = T.match_buffer(b, (n, m), "float32")
        for i, j in T.grid(n, m):
            with T.sblock("exp"):
                vi, vj = T.axis.remap("SS", [i, j])
                Y[vi, vj] = T.exp(X[vi, vj])

    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            gv0 = R.call_tir(Program.tirexp, x, R.Tensor((n, m), "float32"))
            gv1 = R.reshape(gv0, (m * n,))
            gv2 = R.flatten(gv0)
            R.output(gv1, gv2)
        return gv1, gv2
""",
        [("main", (F,)), ("main", (np.zeros((0, 4), np.float32),))],
        [("main", (VECTOR,), Exception, "ndim")],
    ),
    "shapes": Case(
        """
    @T.prim_func(private=True)
    def copy(x: T.handle, y: T.handle):
        n, m = T.int64(), T.int64()
        X = T.match_buffer(x, (n,), "float32")
        Y = T.match_buffer(y, (m,), "float32")
        for i in range(m):
            Y[i] = X[T.min(i, n - 1)]

    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["k"])):
        n, k = T.int64(), T.int64()
        y = R.call_tir(Program.copy, (x,), R.Tensor(((n * 2 + 1) // 3 + k,), "float32"))
        z = R.match_cast(y, R.Tensor(((n * 2 + 1) // 3 + k,), "float32"))
        return z, R.shape_of(x), R.shape([n * k, T.max(n, k) % 4])
""",
        [("main", (VECTOR, [7])), ("main", (np.ones(1, np.float32), [0]))],
    ),
    "recursion": Case(
        """
    @T.prim_func(private=True)
    def less(x: T.Buffer((), "float32"), y: T.Buffer((), "bool")):
        y[()] = x[()] < T.float32(100)

    @R.function
    def double(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        small = R.call_tir(Program.less, (x,), R.Tensor((), "bool"))
        if small:
            y: R.Tensor((), "float32") = Program.double(R.add(x, x))
        else:
            y = x
        return y

    @R.function
    def twice(x: R.Tensor((), "float32")) -> R.Tensor((), "float32"):
        y = Program.double(x)
        return R.multiply(y, y)
""",
        [("double", (np.array(3, np.float32),)), ("twice", (np.array(60, np.float32),))],
    ),
    "closures": Case(
        """
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        @R.function
        def shifted(z: R.Tensor((3, 4), "float32")) -> R.Tensor((3, 4), "float32"):
            w = R.subtract(z, x)
            return w
        a = shifted(y)
        b = shifted(a)
        return a, b
""",
        [("main", (F, F * 3))],
    ),
    "tuples": Case(
        """
    @R.function
    def main(t: R.Tuple(R.Tensor((3, 4), "float32"), R.Tuple(R.Tensor((4,), "float32")))):
        a = t[0]
        b = t[1][0]
        c = R.add(a, b)
        return (c, (a, (b,)), ())
""",
        [("main", ((F, (F[0],)),))],
    ),
    "scalars": Case(
        """
    @T.prim_func(private=True)
    def fill(Y: T.Buffer((6,), "int64"), n: T.int64):
        for i in range(6):
            Y[i] = T.int64(i) * n

    @R.function
    def main(n: R.Prim("int64"), x: R.Tensor(("m",), "float32")):
        m = T.int64()
        y = R.call_tir(Program.fill, (), R.Tensor((6,), "int64"), tir_vars=R.shape([m * 3]))
        return y, n
""",
        [("main", (4, VECTOR))],
    ),
    "network": Case(
        f"""
    @R.function
    def main(x: R.Tensor(("n", 256), "float32")):
        n = T.int64()
        with R.dataflow():
            w = R.const({WEIGHTS}, "float32")
            b = R.const(np.ones(256), "float32")
            h = R.nn.gelu(R.add(R.matmul(x, w), b))
            k = R.nn.layer_norm(h, b, b, axes=[-1])
            y = R.nn.softmax(R.matmul(k, R.permute_dims(w)), axis=-1)
            z = R.concat([y, R.nn.relu(h)], axis=1)
            s = R.mean(z, axis=1, keepdims=True)
            R.output(z, s)
        return z, s
""",
        [("main", (f32(5, 256),)), ("main", (f32(64, 256),))],
    ),
    "attention": Case(
        """
    @R.function
    def main(q: R.Tensor((2, "n", 8), "float32"), k: R.Tensor((2, "m", 8), "float32")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            scores = R.matmul(q, R.permute_dims(k, [0, 2, 1]))
            weights = R.nn.softmax(R.divide(scores, R.const(2.5, "float32")))
            out = R.reshape(R.matmul(weights, k), (2 * n, 8))
            R.output(out)
        return R.split(out, 2, axis=1)
""",
        [("main", (f32(2, 3, 8), f32(2, 5, 8)))],
    ),
    "data_types": Case(
        """
    @T.prim_func(private=True)
    def mixed(A: T.Buffer((4,), "float64"), B: T.Buffer((4,), "int8"), C: T.Buffer((4,), "bool"),
              D: T.Buffer((4,), "float16"), Y: T.Buffer((4,), "float64"),
              Z: T.Buffer((4,), "int8"), W: T.Buffer((4,), "bool"), H: T.Buffer((4,), "float16")):
        for i in range(4):
            Y[i] = A[i] * T.Cast("float64", B[i])
            Z[i] = B[i] * B[i] + T.int8(100)
            W[i] = T.Select(C[i], B[i] > T.int8(1), A[i] < T.float64(0))
            H[i] = D[i] / T.float16(3)

    @R.function
    def main(a: R.Tensor((4,), "float64"), b: R.Tensor((4,), "int8"), c: R.Tensor((4,), "bool"),
             d: R.Tensor((4,), "float16")):
        gv = R.call_tir(Program.mixed, (a, b, c, d), [
            R.Tensor((4,), "float64"), R.Tensor((4,), "int8"), R.Tensor((4,), "bool"),
            R.Tensor((4,), "float16")])
        return gv
""",
        [("main", (np.array([0.5, -1, np.inf, 1e300]), np.array([1, 2, -100, 127], np.int8),
                   np.array([True, False, True, False]), np.arange(4).astype(np.float16)))],
    ),
    "in_place": Case(
        """
    @T.prim_func(private=True)
    def bump(X: T.Buffer((5,), "float32")):
        for i in range(5):
            X[i] = X[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((5,), "float32")):
        y = R.add(x, x)
        z = R.call_tir_inplace(Program.bump, (y,), [0], [R.Tensor((5,), "float32")])
        return z
""",
        [("main", (VECTOR,))],
    ),
    "errors": Case(
        """
    @T.prim_func(private=True)
    def pick(
        X: T.Buffer((5,), "float32"), I: T.Buffer((1,), "int64"), Y: T.Buffer((1,), "float32")
    ):
        Y[0] = X[I[0]]

    @T.prim_func(private=True)
    def divide(X: T.Buffer((1,), "int64"), Y: T.Buffer((1,), "int64")):
        Y[0] = T.int64(7) // X[0]

    @R.function
    def element(x: R.Tensor((5,), "float32"), i: R.Tensor((1,), "int64")):
        return R.call_tir(Program.pick, (x, i), R.Tensor((1,), "float32"))

    @R.function
    def quotient(x: R.Tensor((1,), "int64")):
        return R.call_tir(Program.divide, (x,), R.Tensor((1,), "int64"))
""",
        [("element", (VECTOR, np.array([3]))), ("quotient", (np.array([2]),))],
        [
            ("element", (VECTOR, np.array([5])), IndexError, "index 5 is out of bounds for"),
            ("quotient", (np.array([0]),), RuntimeError, "divide: integer division by zero"),
            ("element", (VECTOR[:2], np.array([5])), Exception, "hape"),
        ],
    ),
    "packed": Case(
        """
    @R.function(pure=False)
    def main(x: R.Tensor((5,), "float32")):
        y = R.call_packed("tests.twice", x, ty_args=R.Tensor((5,), "float32"))
        return R.add(y, x)
""",
        [("main", (VECTOR,))],
        registered=("tests.twice",),
    ),
    "threads": Case(
        """
    @R.function
    def main(x: R.Tensor(("n", 32), "float32"), y: R.Tensor((32, "m"), "float32")):
        return R.matmul(x, y)
""",
        [("main", (f32(n, 32), f32(32, 17))) for n in (1, 9, 40)],
    ),
}  # fmt: skip


def module(text: str) -> Any:
    return from_source(HEAD + text, {"np": np})


def ours(value: Any) -> Any:
    if isinstance(value, list):
        return Shape(value)
    return tuple(map(ours, value)) if isinstance(value, tuple) else value


@relaxvm.register_func("tests.twice")
def twice(x: np.ndarray) -> np.ndarray:
    return x * 2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """TVM's results of all calls, by case."""
    folder = tmp_path_factory.mktemp("exported")
    for name, case in CASES.items():
        executable = build(module(case.text), relax_pipeline="tvm")
        executable.export_library(folder / f"{name}.so", for_tvm=case.registered or True)
        calls = [*case.calls, *((f, args) for f, args, *_ in case.fails)]
        (folder / f"{name}.calls").write_bytes(pickle.dumps(calls))
    odd_names(folder)
    done = children.run(
        [sys.executable, str(ALONE), str(folder)], capture_output=True, text=True, cwd=folder,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return {
        path.stem: pickle.loads(path.read_bytes()) for path in sorted(folder.glob("*.results"))
    }


ODD = ("a.b", "two words", "minus-1", "päckchen", "a_x2e_c", "x:y/z")


def odd_names(folder: Path) -> None:
    """A program with kernels whose names are not identifiers in C."""
    mod = module("""
    @T.prim_func(private=True)
    def k(X: T.Buffer((5,), "float32"), Y: T.Buffer((5,), "float32")):
        for i in range(5):
            Y[i] = X[i] + T.float32(1)
""")
    builder = BlockBuilder()
    ty = TensorType((5,), "float32")
    x = Var("x", ty)
    with builder.function("main", [x]):
        y = x
        for name in ODD:
            y = builder.emit(call_tir(builder.add_func(mod["k"], name), (y,), ty))
        builder.emit_func_output(y)
    executable = build(builder.get(), relax_pipeline="tvm")
    executable.export_library(folder / "odd.so", for_tvm=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_library, "_LARGE", 0)
        executable.export_library(folder / "far.so", for_tvm=True)
    for name in ("odd", "far"):
        (folder / f"{name}.calls").write_bytes(pickle.dumps([("main", (VECTOR,))]))


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Shape):
        yield list(value)
    elif isinstance(value, tuple):
        yield len(value)
        for item in value:
            yield from leaves(item)
    else:
        yield value


def check_equal(got: Any, expected: Any) -> None:
    for a, b in zip(leaves(got), leaves(expected), strict=True):
        if isinstance(b, np.ndarray):
            assert isinstance(a, np.ndarray), a
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
        else:
            assert a == b


@pytest.mark.parametrize("name", CASES)
def test_tvm_has_the_results_of_relaxvm(name: str, results: dict[str, list[Any]]) -> None:
    case = CASES[name]
    machine = VirtualMachine(build(module(case.text)))
    answers = results[name]
    expected = [machine[function](*map(ours, args)) for function, args in case.calls]
    if name == "threads":
        assert len(answers) == 20 * len(expected)
        expected *= 20
    for got, want in zip(answers[: len(expected)], expected, strict=True):
        check_equal(got, want)
    for (kind, message), (*_, wanted, part) in zip(
        answers[len(expected) :], case.fails, strict=True
    ):
        assert issubclass(kind, wanted), (kind, message)
        assert part in message


@pytest.mark.parametrize("name", ["odd", "far"])
def test_kernels_of_any_name_and_data_far_away(name: str, results: dict[str, list[Any]]) -> None:
    np.testing.assert_array_equal(results[name][0], VECTOR + len(ODD))


def test_the_builtins_are_those_of_tvm() -> None:
    import tvm_ffi

    names = tvm_ffi.registry.list_global_func_names()
    theirs = {name.removeprefix("vm.builtin.") for name in names if name.startswith("vm.builtin.")}
    if tuple(map(int, tvm.__version__.split(".")[:2])) >= (0, 27):
        assert theirs == shared_library.BUILTINS
    else:
        assert theirs < shared_library.BUILTINS
    assert set(names) >= shared_library.OTHERS
