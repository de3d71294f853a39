"""Reductions in lanes: the order that the documentation states, bit for bit, in C and in Python."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import cli, te, tir, topi
from relaxvm.ir.expr import Var
from relaxvm.native import toolchain
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir.build import Backend, build_prim_funcs, compile_prim_func
from relaxvm.tir.reassociate import ATTRIBUTE, LANES, LEAST

from .tir_evaluator import run_prim_func

BACKENDS: tuple[Backend, ...] = ("python",) if toolchain.compiler() is None else ("c", "python")
SIZES = (0, 1, LANES, LEAST - 1, LEAST, LEAST + 1, 100, 257, 1000)
RNG = np.random.default_rng(0)

Operation = Callable[[Any, Any], Any]


def in_lanes(values: np.ndarray, start: Any, op: Operation, identity: float) -> Any:
    """The result of ``acc = op(acc, value)`` in the order of docs/tir.md, one scalar at a time."""
    kind = values.dtype.type
    acc = kind(start)
    if len(values) < 64:
        for value in values:
            acc = kind(op(acc, value))
        return acc
    lanes = [kind(identity)] * 16
    for i, value in enumerate(values):
        lanes[i % 16] = kind(op(lanes[i % 16], value))
    for half in (8, 4, 2, 1):
        lanes = [kind(op(lanes[i], lanes[i + half])) for i in range(half)]
    return kind(op(acc, lanes[0]))


def greater(a: Any, b: Any) -> Any:
    return a if a > b else b


def less(a: Any, b: Any) -> Any:
    return a if a < b else b


OPERATIONS: dict[str, tuple[Operation, Operation, float, float]] = {
    "sum": (lambda a, b: a + b, lambda a, b: a + b, 0.5, -0.0),
    "product": (lambda a, b: a * b, lambda a, b: a * b, 0.5, 1.0),
    "max": (tir.max, greater, -2.0, -np.inf),
    "min": (tir.min, less, 2.0, np.inf),
}


def reduction(
    update: Callable[[Any, Any], Any], start: float, dtype: str, *, extent: int | None = None
) -> tir.PrimFunc:
    """``out[0] = start; for k: out[0] = update(out[0], x[k])``."""
    n = Var("n", "int64") if extent is None else extent
    x, out = tir.decl_buffer([n], dtype, "x"), tir.decl_buffer([1], dtype, "out")
    k = Var("k", "int64")
    body = tir.For(k, 0, n, 0, tir.BufferStore(out, update(out[0], x[k]), [0]))
    begin = tir.BufferStore(out, tir.FloatImm(dtype, start), [0])
    return tir.PrimFunc([x, out], tir.SeqStmt([begin, body]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("swapped", [False, True])
def test_order(name: str, dtype: str, swapped: bool) -> None:
    make, op, start, identity = OPERATIONS[name]
    funcs = {
        str(extent): reduction(
            (lambda acc, x: make(x, acc)) if swapped else make, start, dtype, extent=extent
        )
        for extent in (None, *SIZES)
    }
    for backend in BACKENDS:
        library = build_prim_funcs(funcs, prefer=backend, reassociate=True)
        for size in SIZES:
            values = (RNG.standard_normal(size) * 0.1 + 1).astype(dtype)
            expected = in_lanes(values, start, op, identity)
            for extent in ("None", str(size)):
                out = np.zeros(1, dtype)
                library[extent](values, out)
                assert out[0] == expected, (backend, size, extent)


def test_differences_are_sums_of_negative_numbers() -> None:
    func = reduction(lambda acc, x: acc - x, 0.5, "float32")
    values = RNG.standard_normal(500).astype("f")
    expected = in_lanes(-values, 0.5, lambda a, b: a + b, -0.0)
    for backend in BACKENDS:
        out = np.zeros(1, "f")
        compile_prim_func(func, prefer=backend, reassociate=True)(values, out)
        assert out[0] == expected


def test_a_sum_of_negative_zeros() -> None:
    func = reduction(lambda acc, x: acc + x, -0.0, "float32")
    for backend in BACKENDS:
        out = np.ones(1, "f")
        compile_prim_func(func, prefer=backend, reassociate=True)(np.full(100, -0.0, "f"), out)
        assert out[0] == 0
        assert np.signbit(out[0])


def agree(func: tir.PrimFunc, arguments: list[np.ndarray], written: int = 1) -> np.ndarray:
    """Run a function on all backends; return the last result, which is equal bit for bit."""
    found = []
    for backend in BACKENDS:
        copies = [each.copy() for each in arguments]
        compile_prim_func(func, prefer=backend, reassociate=True)(*copies)
        found.append(copies[-written:])
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            assert a.tobytes() == b.tobytes()
    return found[0][-1]


def test_several_accumulators() -> None:
    """Layer normalization, which sums values and squares in one loop."""
    x = te.placeholder((5, 200), name="x")
    scale, bias = (te.placeholder((200,), name=name) for name in ("scale", "bias"))
    func = te.create_prim_func([x, scale, bias, topi.nn.layer_norm(x, scale, bias, [1], 1e-5)])
    values = RNG.standard_normal((5, 200)).astype("f")
    ones, zeros = np.ones(200, "f"), np.zeros(200, "f")
    got = agree(func, [values, ones, zeros, np.empty((5, 200), "f")])
    wide = values.astype("d")
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    assert abs(got - expected).max() < 5e-6
    text = build_prim_funcs({"f": func}, reassociate=True).c_sources
    assert not BACKENDS[1:] or text[0].count("VECTORIZED\n") == 2  # whole turns, and the rest


def test_softmax() -> None:
    x = te.placeholder((3, 300), name="x")
    func = te.create_prim_func([x, topi.nn.softmax(x)])
    values = RNG.standard_normal((3, 300)).astype("f")
    got = agree(func, [values, np.empty_like(values)])
    e = np.exp(values.astype("d") - values.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("size", [64, 1000, 20_000])
def test_the_bound(size: int) -> None:
    """The error is within what the documentation states."""
    a, b = (te.placeholder((size,), name=name) for name in "ab")
    k = te.reduce_axis((0, size), "k")
    func = te.create_prim_func([a, b, te.compute((1,), lambda _: te.sum(a[k] * b[k], axis=k))])
    run = compile_prim_func(func, reassociate=True)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x, y = (rng.standard_normal(size).astype("f") for _ in range(2))
        out = np.empty(1, "f")
        run(x, y, out)
        products = x.astype("d") * y
        assert abs(out[0] - products.sum()) <= (size / 16 + 6) * 2**-24 * abs(products).sum()


def lanes_of(func: tir.PrimFunc) -> bool:
    """Whether the Python source of a function, which C is written like, has lanes."""
    library = build_prim_funcs({"f": func}, prefer="python", reassociate=True)
    return "lanes" in library.python_source("f")


def test_what_keeps_its_order() -> None:
    n = 100
    x, y = tir.decl_buffer([n], "float32", "x"), tir.decl_buffer([n], "float32", "y")
    k = Var("k", "int64")

    def loop(store: tir.Stmt, step: int | None = None) -> tir.PrimFunc:
        return tir.PrimFunc([x, y], tir.For(k, 0, n, 0, store, step=step))

    one = tir.FloatImm("float32", 1.0)
    assert lanes_of(loop(tir.BufferStore(y, y[0] + x[k], [0])))
    kept = {
        "an element for each iteration": loop(tir.BufferStore(y, y[k] + x[k], [k])),
        "a prefix sum": loop(tir.BufferStore(y, y[0] + y[k], [0])),
        "another element": loop(tir.BufferStore(y, y[1] + x[k], [0])),
        "value minus accumulator": loop(tir.BufferStore(y, x[k] - y[0], [0])),
        "a quotient": loop(tir.BufferStore(y, y[0] / x[k], [0])),
        "the accumulator twice": loop(tir.BufferStore(y, y[0] + x[k] * y[0], [0])),
        "a place that the loop moves": loop(
            tir.BufferStore(y, y[x[k].astype("int64")] + one, [x[k].astype("int64")])
        ),
        "steps": loop(tir.BufferStore(y, y[0] + x[k], [0]), step=2),
        "a condition": loop(
            tir.IfThenElse(k < 50, tir.BufferStore(y, y[0] + x[k], [0]))
        ),
        "two stores to a buffer": loop(tir.SeqStmt([
            tir.BufferStore(y, y[0] + x[k], [0]), tir.BufferStore(y, y[1] + x[k], [1])])),
    }  # fmt: skip
    for name, func in kept.items():
        assert not lanes_of(func), name
    integers = reduction(lambda acc, v: acc + v, 0, "float32").script().replace("float32", "int32")
    assert not lanes_of(relaxvm.script.from_source(integers.replace("(0.0)", "(0)")))


def test_sums_along_memory_are_interchanged() -> None:
    """A product of matrices runs along rows of its result, and keeps its order."""
    a, b = te.placeholder((4, 100), name="a"), te.placeholder((100, 80), name="b")
    func = te.create_prim_func([a, b, topi.nn.matmul(a, b)])
    assert not lanes_of(func)
    x, y = RNG.standard_normal((4, 100)).astype("f"), RNG.standard_normal((100, 80)).astype("f")
    in_order = np.empty((4, 80), "f")
    compile_prim_func(func)(x, y, in_order)
    assert agree(func, [x, y, np.empty((4, 80), "f")]).tobytes() == in_order.tobytes()


def term_of(rng: random.Random, x: tir.Buffer, k: Var, n: Any) -> Any:
    """A value of an iteration, which is a small integer; some have checks at run time."""
    choices: list[Callable[[], Any]] = [
        lambda: x[k],
        lambda: x[n - 1 - k],
        lambda: x[k] * x[tir.floormod(k, 3)],
        lambda: tir.if_then_else(k < 70, x[k], tir.FloatImm(x.dtype, 2.0)),
        lambda: tir.if_then_else(x[k] > 1, x[k], x[0]),
        lambda: x[x[k].astype("int64")],
        lambda: tir.abs(x[k] - 2),
    ]
    return rng.choice(choices)()


@pytest.mark.parametrize("batch", range(4))
def test_random_loops_of_small_integers(batch: int) -> None:
    """Sums of small integers are exact, so their order does not show: the evaluator agrees."""
    rng = random.Random(batch)
    funcs, n = {}, Var("n", "int64")
    for case in range(12):
        dtype = rng.choice(["float32", "float64"])
        x = tir.decl_buffer([n], dtype, "x")
        outs = [tir.decl_buffer([3], dtype, f"out{i}") for i in range(rng.randint(1, 3))]
        k, outer = Var("k", "int64"), Var("i", "int64")
        stores: list[tir.Stmt] = []
        for out in outs:
            make = rng.choice([lambda a, b: a + b, lambda a, b: b + a, lambda a, b: a - b,
                               tir.max, tir.min])  # fmt: skip
            value = make(out[outer], term_of(rng, x, k, n))
            stores.append(tir.BufferStore(out, value, [outer]))
        rng.shuffle(stores)
        loop = tir.For(k, rng.choice([0, 1]), n - 1, 0, tir.seq(stores))
        funcs[f"f{case}"] = tir.PrimFunc([x, *outs], tir.For(outer, 0, 3, 0, loop))
    libraries = [build_prim_funcs(funcs, prefer=each, reassociate=True) for each in BACKENDS]
    for (name, func), size in itertools.product(funcs.items(), (4, 70, 150)):
        dtype = func.params[0].dtype
        values = np.random.default_rng(batch).integers(0, 4, size).astype(dtype)
        arguments = [values, *(np.full(3, 1, dtype) for _ in func.params[1:])]
        expected = [each.copy() for each in arguments]
        run_prim_func(func, expected)
        for library in libraries:
            copies = [each.copy() for each in arguments]
            library[name](*copies)
            for a, b in zip(copies, expected, strict=True):
                np.testing.assert_array_equal(a, b, f"{name}, {size}\n{func}")


def test_an_index_out_of_bounds_in_a_lane() -> None:
    func = reduction(lambda acc, x: acc + x, 0.0, "float32")
    x, out = func.params
    k = Var("k", "int64")
    store = tir.BufferStore(out, out[0] + x[k + 1], [0])
    beyond = tir.PrimFunc([x, out], tir.For(k, 0, x.shape[0], 0, store))
    for backend in BACKENDS:
        run = compile_prim_func(beyond, prefer=backend, reassociate=True)
        with pytest.raises(IndexError, match=r"buffer x, dimension 0: index 100 is out of bounds"):
            run(np.ones(100, "f"), np.zeros(1, "f"))


def test_the_attribute_counts_before_the_argument() -> None:
    func = reduction(lambda acc, x: acc + x, 0.0, "float32")
    assert lanes_of(func)
    assert not lanes_of(func.with_attr(ATTRIBUTE, False))
    own = build_prim_funcs({"f": func.with_attr(ATTRIBUTE, True)}, prefer="python")
    assert "lanes" in own.python_source("f")
    assert "lanes" not in build_prim_funcs({"f": func}, prefer="python").python_source("f")


def test_wrong_settings() -> None:
    func = reduction(lambda acc, x: acc + x, 0.0, "float32")
    with pytest.raises(ValueError, match=r"main: attribute relaxvm.reassociate: expected True or "
                                         r"False, got 'yes'"):  # fmt: skip
        compile_prim_func(func.with_attr(ATTRIBUTE, "yes"))
    with pytest.raises(TypeError, match="reassociate: expected a bool, got str"):
        compile_prim_func(func, reassociate="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="reassociate: expected a bool, got int"):
        relaxvm.build(Program, reassociate=1)  # type: ignore[arg-type]


@I.ir_module
class Program:
    @T.prim_func(private=True, s_tir=True)
    def total(x: T.handle, out: T.Buffer((1,), "float32")):
        n = T.int64()
        X = T.match_buffer(x, (n,), "float32")
        for k in range(n):
            with T.sblock("total"):
                vk = T.axis.reduce(n, k)
                with T.init():
                    out[0] = T.float32(0)
                out[0] = out[0] + X[vk]

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.call_tir(Program.total, (x,), out_ty=R.Tensor((1,), "float32"))


VALUES = np.random.default_rng(7).random(10_007).astype("f")
IN_LANES = in_lanes(VALUES, 0.0, lambda a, b: a + b, -0.0)


def result_of(executable: Any) -> Any:
    return relaxvm.VirtualMachine(executable)["main"](VALUES)[0]


def test_of_a_program(tmp_path: Path) -> None:
    """Build, compile, and files that are read again, in which functions keep the attribute."""
    in_order = result_of(relaxvm.build(Program))
    assert in_order != IN_LANES
    built = relaxvm.build(Program, reassociate=True)
    assert result_of(built) == IN_LANES
    assert result_of(relaxvm.compile(Program, reassociate=True)) == IN_LANES
    assert result_of(relaxvm.build(Program, reassociate=True, exec_mode="compiled")) == IN_LANES
    path = tmp_path / "program.vmexec"
    built.export_library(path)
    assert result_of(path) == IN_LANES


def test_a_program_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is part of the key."""
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    path = tmp_path / "program.json"
    path.write_text(relaxvm.ir.save_json(Program))
    for _ in range(2):
        assert result_of(relaxvm.compile(path)) != IN_LANES
        assert result_of(relaxvm.compile(path, reassociate=True)) == IN_LANES


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "program.json", tmp_path / "program.vmexec"
    path.write_text(relaxvm.ir.save_json(Program))
    assert cli.main(["compile", str(path), "-o", str(out), "--reassociate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] == ["total"]
    assert result_of(out) == IN_LANES
