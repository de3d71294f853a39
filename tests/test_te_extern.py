"""Tensors that statements compute, and what tensors say about their operations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, te, tir
from relaxvm.script import tir as T
from relaxvm.te import topi
from relaxvm.tir.build import compile_prim_func

A = te.placeholder((3, 4), "float32", "A")
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(args: Any, *arrays: Any) -> Any:
    func = te.create_prim_func(args)
    result = np.zeros([int(d) for d in args[-1].shape], args[-1].dtype)
    compile_prim_func(func, prefer="python")(*arrays, result)
    return result


def running_total(ins: Any, outs: Any) -> Any:
    """The first column as it is, each other one added to the one before."""
    (a,), (b,) = ins, outs
    i, j, k = (tir.Var(name, "int32") for name in "ijk")
    step = tir.BufferStore(b, b[i, j] + a[i, j + 1], [i, j + 1])
    return tir.SeqStmt(
        [
            tir.For(k, 0, 3, 0, tir.BufferStore(b, a[k, 0], [k, 0])),
            tir.For(i, 0, 3, 0, tir.For(j, 0, 3, 0, step)),
        ]
    )


def test_statements_compute_a_tensor() -> None:
    total = te.extern((3, 4), [A], running_total, "total")
    assert total.dtype == "float32"
    np.testing.assert_array_equal(run([A, total], X), X.cumsum(1))


def test_between_formulas() -> None:
    doubled = te.compute((3, 4), lambda i, j: A[i, j] * 2.0, "doubled")
    total = te.extern(doubled.shape, [doubled], running_total)
    again = te.compute((3, 4), lambda i, j: total[i, j] + total[i, j], "again")
    np.testing.assert_array_equal(run([A, again], X), 4 * X.cumsum(1))


def test_the_same_statements_twice() -> None:
    once = te.extern((3, 4), [A], running_total)
    twice = te.extern((3, 4), [once], running_total)
    np.testing.assert_array_equal(run([A, twice], X), X.cumsum(1).cumsum(1))


def test_several_results_and_a_symbolic_size() -> None:
    n = te.var("n", "int64")
    data = te.placeholder((n,), "float32", "data")

    def body(ins: Any, outs: Any) -> Any:
        i = tir.Var("i", "int64")
        stores = [
            tir.BufferStore(outs[0], -ins[0][i], [i]),
            tir.BufferStore(outs[1], tir.Cast("int32", ins[0][i]), [i]),
        ]
        return tir.For(i, 0, n, 0, tir.SeqStmt(stores))

    low, whole = te.extern([(n,), (n,)], [data], body, "pair", ["float32", "int32"])
    assert (low.dtype, whole.dtype, whole.value_index) == ("float32", "int32", 1)
    func = te.create_prim_func([data, low, whole])
    x = np.array([1.5, -2.5, 3.0], np.float32)
    results = np.zeros(3, np.float32), np.zeros(3, np.int32)
    compile_prim_func(func, prefer="python")(x, *results)
    np.testing.assert_array_equal(results[0], -x)
    np.testing.assert_array_equal(results[1], [1, -2, 3])


def test_in_a_program() -> None:
    builder = relaxvm.BlockBuilder()
    x = ir.Var("x", ir.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        places = builder.emit_te(lambda t: topi.argsort(t, axis=1, is_ascend=0, dtype="int32"), x)
        builder.emit_func_output(places)
    mod = builder.get()
    np.testing.assert_array_equal(
        relaxvm.VirtualMachine(relaxvm.build(mod))["main"](np.sin(X)),
        np.argsort(-np.sin(X), 1, kind="stable"),
    )


def test_extern_primfunc() -> None:
    @T.prim_func(private=True, s_tir=True)
    def scaled(a: T.Buffer((3, 4), "float32"), b: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.sblock("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                b[vi, vj] = a[vi, vj] * T.float32(3)

    plus = te.compute((3, 4), lambda i, j: A[i, j] + 1.0)
    tripled = te.extern_primfunc([plus], scaled)
    np.testing.assert_array_equal(run([A, tripled], X), (X + 1) * 3)
    with pytest.raises(ValueError, match="reads 1 parameters and writes 1, got 2 tensors"):
        te.extern_primfunc([A, A], scaled)
    with pytest.raises(ValueError, match=r"parameter a is float32"):
        te.extern_primfunc([te.placeholder((4, 3))], scaled)


MISTAKES: dict[str, tuple[Any, type[Exception], str]] = {
    "no tensor": (lambda: te.extern((3,), [X], running_total), TypeError, "expected te tensors"),
    "no statement": (
        lambda: te.extern((3,), [A], lambda ins, outs: None),
        TypeError,
        "expected a statement or an expression from the function, got NoneType",
    ),
    "data types": (
        lambda: te.extern((3,), [A, te.placeholder((3,), "int8")], running_total),
        ValueError,
        "dtype: it cannot be told from inputs of float32, int8",
    ),
    "buffers": (
        lambda: te.extern((3,), [A], running_total, in_buffers=[]),
        ValueError,
        "in_buffers: expected 1 buffers, got 0",
    ),
    "no buffer": (
        lambda: te.extern((3, 4), [A], running_total, out_buffers=[A]),
        TypeError,
        "out_buffers: expected a Buffer, got Tensor",
    ),
    "no tensor for a function": (
        lambda: te.extern_primfunc([3], te.create_prim_func([A])),
        TypeError,
        "te.extern_primfunc: expected te tensors, got int",
    ),
    "no function": (
        lambda: te.extern_primfunc([A], running_total),
        TypeError,
        "primfunc: expected a PrimFunc, got function",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    make, kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message):
        make()


# Operations


def test_operations() -> None:
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((3, 4), lambda i, j: A[i, j] + 1.0, "B", tag="shifted")
    c = te.compute((3,), lambda i: te.sum(b[i, k.var], k), "C")
    e = te.extern((3, 4), [b, A], lambda ins, outs: running_total(ins[:1], outs), "E")
    assert isinstance(A.op, te.PlaceholderOp)
    assert A.op.input_tensors == []
    assert (A.op.name, A.op.dtype, len(A.op.shape)) == ("A", "float32", 2)
    assert isinstance(c.op, te.ComputeOp)
    assert c.op.reduce_axis == (k,)
    assert [iv.var.name for iv in b.op.axis] == ["i", "j"]
    assert (b.op.tag, c.op.tag, b.op.name, c.op.num_outputs) == ("shifted", "", "B", 1)
    assert isinstance(e.op, te.ExternOp)
    assert e.op.input_tensors == [b, A]
    assert c.op.output(0) is c
    assert c.op == c.op.output(0).op
    assert c.op != b.op


def test_tags() -> None:
    with te.tag_scope(tag="outer"):
        b = te.compute((3, 4), lambda i, j: A[i, j])
        with pytest.raises(ValueError, match="tags do not nest"), te.tag_scope(tag="inner"):
            pass
        with pytest.raises(ValueError, match="tag 'own' within tag_scope"):
            te.compute((3, 4), lambda i, j: A[i, j], tag="own")
    assert (b.op.tag, te.compute((3,), lambda i: A[i, i]).op.tag) == ("outer", "")

    @te.tag_scope(tag="decorated")
    def made() -> Any:
        return te.compute((3, 4), lambda i, j: A[i, j])

    assert made().op.tag == "decorated"


def test_indices_one_by_one() -> None:
    row = A[1]
    assert isinstance(row, te.TensorSlice)
    assert row.dtype == "float32"
    k = te.reduce_axis((0, 4), "k")
    b = te.compute((3,), lambda i: te.sum(A[i][k.var] * A[i][0], k))
    assert b.op.body[0].axis == (k,)
    np.testing.assert_array_equal(run([A, b], X), (X * X[:, :1]).sum(1))
    with pytest.raises(ValueError, match="tensor A has 2 dimensions, got 3 indices"):
        A[0][1, 2]
    several = te.compute((3, 4), lambda *place: A[place])
    assert [iv.var.name for iv in several.op.axis] == ["i0", "i1"]


def test_shapes_that_are_known_when_it_runs() -> None:
    n, m, k = (ir.Var(name, "int64") for name in "nmk")

    def program(formula: Any, *types: Any) -> Any:
        builder = relaxvm.BlockBuilder()
        params = [ir.Var(f"x{i}", ty) for i, ty in enumerate(types)]
        with builder.function("main", params):
            builder.emit_func_output(builder.emit_te(formula, *params))
        return relaxvm.VirtualMachine(relaxvm.build(builder.get()))["main"]

    table = ir.TensorType((n, m), "float32")
    x = np.sin(X)
    total = program(lambda t: topi.cumsum(t, 1), table)
    np.testing.assert_allclose(total(x), x.cumsum(1), rtol=1e-6)
    ordered = program(topi.sort, table)
    np.testing.assert_array_equal(ordered(x), np.sort(x))
    assert ordered(np.zeros((0, 5), np.float32)).shape == (0, 5)
    assert ordered(np.zeros((2, 0), np.float32)).shape == (2, 0)

    scattered = program(
        topi.scatter_elements, table,
        ir.TensorType((k, m), "int64"), ir.TensorType((k, m), "float32"),
    )  # fmt: skip
    ones = np.ones((1, 4), np.float32)
    np.testing.assert_array_equal(scattered(x, np.full((1, 4), -1), ones)[2], ones[0])
    for place in (3, -4, 2**62):
        with pytest.raises(IndexError, match=r"scatter_elements, dimension 0: index .* is out of"):
            scattered(x, np.full((1, 4), place), ones)


# Programs of unknown origin


def endless(ins: Any, outs: Any) -> Any:
    """A loop of 2^60 steps."""
    add = tir.BufferStore(outs[0], ins[0][0, 0] + outs[0][0, 0], [0, 0])
    return tir.For(tir.Var("i", "int64"), 0, 1 << 60, 0, add)


def outside(ins: Any, outs: Any) -> Any:
    return tir.BufferStore(outs[0], ins[0][0, 0], [5, 0])


def places(ins: Any, outs: Any) -> Any:
    """Rows at places that the operand holds."""
    i = tir.Var("i", "int32")
    row = ir.prim.cast(ins[0][i, 0], "int32")
    return tir.For(i, 0, 3, 0, tir.BufferStore(outs[0], ins[0][i, 0], [row, 0]))


@pytest.mark.parametrize(
    ("body", "shape", "error", "message"),
    [
        (endless, (3, 4), relaxvm.errors.LimitError, "wall_time"),
        (outside, (3, 4), IndexError, "dimension 0: index 5 is out of bounds for length 3"),
        (places, (3, 4), IndexError, "dimension 0: index 11 is out of bounds for length 3"),
        (endless, (1 << 20, 1 << 20), relaxvm.errors.LimitError, "alloc_bytes"),
    ],
)
@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.filterwarnings("ignore:no C compiler")
def test_under_limits(
    body: Any,
    shape: tuple[int, int],
    error: type[Exception],
    message: str,
    from_file: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "no-compiler")  # the limit is for the run, not for a compiler
    limits = relaxvm.Limits.untrusted().but(wall_time=2.0)
    builder = ir.BlockBuilder()
    x = ir.Var("x", ir.TensorType((3, 4), "float32"))
    with builder.function("main", [x]):
        made = builder.emit_te(lambda a: te.extern(shape, [a], body, "made"), x)
        builder.emit_func_output(made)
    text = ir.save_json(builder.get())
    executable = relaxvm.build(ir.load_json(text, limits=limits), limits=limits)
    if from_file:
        executable = relaxvm.load(executable.to_bytes(), limits=limits)
    vm = relaxvm.VirtualMachine(executable, limits=limits)
    with pytest.raises(error, match=message):
        vm.main(np.full((3, 4), 11, np.float32))
