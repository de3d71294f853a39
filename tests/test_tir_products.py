"""Products in tiles and nests as one loop, in C: the same bits as loops, and what stays."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relaxvm import te, tir, topi
from relaxvm.ir import prim
from relaxvm.ir.expr import Var
from relaxvm.native import toolchain
from relaxvm.script import tir as T
from relaxvm.tir.build import build_prim_funcs, compile_prim_func
from relaxvm.tir.products import TILES

from . import tir_products
from .tir_evaluator import run_prim_func

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="needs a C compiler")

RNG = np.random.default_rng(0)
MARK = "/* a product, in tiles"

Sizes = Sequence[tuple[int, ...]]


def drawn(shape: Sequence[int], dtype: str) -> np.ndarray:
    if dtype == "bool" or "int" in dtype:
        return RNG.integers(-128 if dtype[0] == "i" else 0, 127, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def same_bits(func: tir.PrimFunc, arguments: list[np.ndarray], *, in_tiles: bool = True) -> Any:
    """The last argument after a call: in tiles, in loops, and in Python."""
    name = "f"
    tiled = build_prim_funcs({name: func})
    assert (MARK in tiled.c_sources[0]) == in_tiles
    libraries = [tiled, build_prim_funcs({name: func}, prefer="python")]
    if in_tiles:
        libraries.append(build_prim_funcs({name: func.with_attr(TILES, False)}))
        assert MARK not in libraries[-1].c_sources[0]
    found = []
    for library in libraries:
        copies = [each.copy() for each in arguments]
        with np.errstate(all="ignore"):
            library[name](*copies)
        found.append(copies[-1])
    for other in found[1:]:
        assert found[0].tobytes() == other.tobytes()
    return found[0]


def in_order(a: np.ndarray, b: np.ndarray, start: np.ndarray) -> np.ndarray:
    """``start + a @ b``, one term after the other."""
    for k in range(a.shape[-1]):
        start = start + a[..., :, k, None] * b[..., None, k, :]
    return start


SIZES: Sizes = [
    (1, 1, 1), (2, 3, 4), (3, 4, 8), (4, 8, 32), (5, 9, 33), (8, 17, 16), (67, 129, 31),
    (6, 300, 70), (4, 0, 32), (0, 8, 32), (4, 8, 0), (3, 1, 100), (1, 50, 40),
]  # fmt: skip


def operands(kind: str, sizes: Sequence[Any], dtype: str) -> tuple[list[Any], Any]:
    """Placeholders and the product of them: ``nn``, or with ``t`` for a transposed operand."""
    n, k, m = sizes
    a = te.placeholder((k, n) if kind[0] == "t" else (n, k), name="a", dtype=dtype)
    b = te.placeholder((m, k) if kind[1] == "t" else (k, m), name="b", dtype=dtype)
    return [a, b], topi.matmul(a, b, transp_a=kind[0] == "t", transp_b=kind[1] == "t")


@pytest.mark.parametrize("kind", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint64", "uint16"])
def test_products_of_any_size(kind: str, dtype: str) -> None:
    n, k, m = (Var(name, "int64") for name in "nkm")
    inputs, out = operands(kind, (n, k, m), dtype)
    func = te.create_prim_func([*inputs, out])
    library = build_prim_funcs({"f": func, "loops": func.with_attr(TILES, False)})
    python = build_prim_funcs({"f": func}, prefer="python")
    assert MARK in library.c_sources[0]
    for sizes in SIZES:
        a, b = drawn((sizes[0], sizes[1]), dtype), drawn((sizes[1], sizes[2]), dtype)
        expected = in_order(a, b, np.zeros((sizes[0], sizes[2]), dtype))
        given = [a.T if kind[0] == "t" else a, b.T if kind[1] == "t" else b]
        given = [np.ascontiguousarray(each) for each in given]
        for run in (library["f"], library["loops"], python["f"]):
            got = np.ones((sizes[0], sizes[2]), dtype)
            run(*given, got)
            assert got.tobytes() == expected.tobytes(), sizes


@pytest.mark.parametrize("sizes", [(5, 9, 33), (67, 129, 31), (64, 64, 64), (4, 300, 8), (3, 20, 9),
                                   (9, 24, 12)])  # fmt: skip
@pytest.mark.parametrize("kind", ["nn", "nt", "tn"])
def test_products_of_known_size(kind: str, sizes: tuple[int, int, int]) -> None:
    inputs, out = operands(kind, sizes, "float32")
    n, k, m = sizes
    given = [drawn([int(d) for d in each.shape], "float32") for each in inputs]
    got = same_bits(te.create_prim_func([*inputs, out]), [*given, np.ones((n, m), "f")],
                    in_tiles=kind[1] == "n" or k > 16)  # fmt: skip
    a, b = given[0].T if kind[0] == "t" else given[0], given[1].T if kind[1] == "t" else given[1]
    np.testing.assert_array_equal(got, in_order(a, b, np.zeros((n, m), "f")))


def test_batches_bias_and_relu() -> None:
    n, k, m = 6, 40, 37
    a, b = te.placeholder((3, n, k), name="a"), te.placeholder((3, m, k), name="b")
    bias = te.placeholder((m,), name="bias")
    out = topi.nn.relu(topi.add(topi.nn.batch_matmul(a, b), bias))
    values = [drawn((3, n, k), "float32"), drawn((3, m, k), "float32"), drawn((m,), "float32")]
    got = same_bits(te.create_prim_func([a, b, bias, out]), [*values, np.ones((3, n, m), "f")])
    sums = in_order(values[0], values[1].swapaxes(1, 2), np.zeros((3, n, m), "f"))
    np.testing.assert_array_equal(got, np.maximum(sums + values[2], 0))


@pytest.mark.parametrize("source", ["float16", "bfloat16", "int8"])
def test_operands_of_other_types(source: str) -> None:
    """They are converted where columns are copied."""
    dtype = "int32" if source == "int8" else "float32"
    a, b = (te.placeholder(s, name=x, dtype=source) for x, s in (("a", (9, 50)), ("b", (50, 40))))
    k = te.reduce_axis((0, 50), "k")
    out = te.compute(
        (9, 40), lambda i, j: te.sum(a[i, k].astype(dtype) * b[k, j].astype(dtype), axis=k)
    )
    kind = ml_dtypes.bfloat16 if source == "bfloat16" else source
    values = [drawn((9, 50), "int8" if source == "int8" else "float32").astype(kind)]
    values.append(drawn((50, 40), "int8" if source == "int8" else "float32").astype(kind))
    got = same_bits(te.create_prim_func([a, b, out]), [*values, np.ones((9, 40), dtype)])
    x, y = (each.astype(dtype) for each in values)
    np.testing.assert_array_equal(got, in_order(x, y, np.zeros((9, 40), dtype)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bits_stay_in_loops(dtype: str) -> None:
    """They are rounded after each term."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    inputs, out = operands("nn", (5, 20, 40), dtype)
    values = [drawn(s, "float32").astype(kind) for s in ((5, 20), (20, 40), (5, 40))]
    same_bits(te.create_prim_func([*inputs, out]), values, in_tiles=False)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions(layout: str, stride: int, dilation: int) -> None:
    """Rows are channels and columns pixels; in NHWC rows are pixels and columns channels."""
    x, w = drawn((2, 5, 19, 21), "float32"), drawn((6, 5, 3, 3), "float32")
    if layout == "NHWC":
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        w = np.ascontiguousarray(drawn((16, 5, 3, 3), "float32").transpose(2, 3, 1, 0))
    data = te.placeholder(x.shape, name="data")
    weight = te.placeholder(w.shape, name="weight")
    conv = topi.nn.conv2d_nchw if layout == "NCHW" else topi.nn.conv2d_nhwc
    out = conv(data, weight, stride, 1, dilation)
    shape = [int(d) for d in out.shape]
    got = same_bits(te.create_prim_func([data, weight, out]), [x, w, np.ones(shape, "f")])
    if layout == "NHWC":
        got, x, w = got.transpose(0, 3, 1, 2), x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = got.shape[2:]
    expected = np.zeros(got.shape, "f")
    order = itertools.product(range(5), range(3), range(3))
    if layout == "NHWC":
        order = ((c, y, z) for y, z, c in itertools.product(range(3), range(3), range(5)))
    for c, y, z in order:
        window = padded[:, c, y * dilation : y * dilation + (height - 1) * stride + 1 : stride]
        window = window[..., z * dilation : z * dilation + (width - 1) * stride + 1 : stride]
        expected = expected + window[:, None] * w[None, :, c, y, z, None, None]
    np.testing.assert_array_equal(got, expected)


# Loops as they are written


def nest(loops: Sequence[tuple[Var, Any]], body: tir.Stmt) -> tir.Stmt:
    for var, extent in reversed(loops):
        body = tir.For(var, 0, extent, 0, body)
    return body


N, K, M = 4, 9, 12


class Written:
    """Buffers and variables for a product that is written as loops."""

    def __init__(self, dtype: str = "float32") -> None:
        self.a = tir.decl_buffer([N, K], dtype, "a")
        self.b = tir.decl_buffer([K, M], dtype, "b")
        self.c = tir.decl_buffer([N, M], dtype, "c")
        self.i, self.j, self.k, self.l = (Var(name, "int64") for name in "ijkl")
        self.zero = prim.immediate(dtype, 0.0)

    def update(self, j: Var | None = None) -> tir.Stmt:
        j = self.j if j is None else j
        term = self.a[self.i, self.k] * self.b[self.k, j]
        return tir.BufferStore(self.c, self.c[self.i, j] + term, [self.i, j])

    def func(self, body: tir.Stmt) -> tir.PrimFunc:
        return tir.PrimFunc([self.a, self.b, self.c], body)


def check(func: tir.PrimFunc, start: str, *, in_tiles: bool = True) -> None:
    """Run a function of `Written`: the evaluator agrees, and numpy if it is a product."""
    values = [drawn((N, K), "float32"), drawn((K, M), "float32"), drawn((N, M), "float32")]
    got = same_bits(func, values, in_tiles=in_tiles)
    expected = [each.copy() for each in values]
    run_prim_func(func, expected)
    assert got.tobytes() == expected[2].tobytes()
    if start:
        first = np.zeros((N, M), "f") if start == "zero" else values[2]
        np.testing.assert_array_equal(got, in_order(values[0], values[1], first))


@pytest.mark.parametrize("order", ["".join(p) for p in itertools.permutations("ijk")])
def test_orders_of_loops(order: str) -> None:
    w = Written()
    extents = {"i": (w.i, N), "j": (w.j, M), "k": (w.k, K)}
    loops = [extents[name] for name in order]
    check(w.func(nest(loops, w.update())), "given")
    first = tir.IfThenElse(prim.EQ(w.k, prim.immediate("int64", 0)),
                           tir.BufferStore(w.c, w.zero, [w.i, w.j]))  # fmt: skip
    check(w.func(nest(loops, tir.SeqStmt([first, w.update()]))), "zero")


def test_initialization_by_rows() -> None:
    w = Written()
    begin = nest([(w.j, M)], tir.BufferStore(w.c, w.zero, [w.i, w.j]))
    for inner in ([(w.k, K), (w.l, M)], [(w.l, M), (w.k, K)]):
        body = tir.SeqStmt([begin, nest(inner, w.update(w.l))])
        check(w.func(nest([(w.i, N)], body)), "zero")
    element = tir.SeqStmt([tir.BufferStore(w.c, w.zero, [w.i, w.j]), nest([(w.k, K)], w.update())])
    check(w.func(nest([(w.i, N), (w.j, M)], element)), "zero")


def test_the_first_term_decides_only_if_there_is_one() -> None:
    """``if k == 0`` initializes nothing where no k is."""

    @T.prim_func
    def func(a: T.handle, b: T.handle, c: T.handle):
        n, k, m = T.int64(), T.int64(), T.int64()
        A, B = T.match_buffer(a, (n, k), "float32"), T.match_buffer(b, (k, m), "float32")
        C = T.match_buffer(c, (n, m), "float32")
        for i, j, x in T.grid(n, m, k):
            if x == T.int64(0):
                C[i, j] = T.float32(1)
            C[i, j] = C[i, j] + A[i, x] * B[x, j]

    for n, k, m in SIZES:
        values = [drawn((n, k), "float32"), drawn((k, m), "float32"), drawn((n, m), "float32")]
        start = np.ones((n, m), "f") if k else values[2]
        got = same_bits(func, values)
        assert got.tobytes() == in_order(*values[:2], start).tobytes()


def test_subtracted_and_swapped() -> None:
    for make in (lambda c, t: c - t, lambda c, t: t + c):
        w = Written()
        value = make(w.c[w.i, w.j], w.a[w.i, w.k] * w.b[w.k, w.j])
        body = tir.BufferStore(w.c, value, [w.i, w.j])
        check(w.func(nest([(w.i, N), (w.k, K), (w.j, M)], body)), "")


def test_sums_of_several_products() -> None:
    w = Written()
    a, b, i, j, k = w.a, w.b, w.i, w.j, w.k
    terms = {
        "difference": a[i, k] - b[k, j],
        "squares of distances": (a[i, k] - b[k, j]) * (a[i, k] - b[k, j]),
        "two": a[i, k] * b[k, j] + a[i, 0] * b[0, j],
        "three factors": a[i, k] * (b[k, j] * b[0, j]) * a[0, k],
        "functions of operands": tir.exp(a[i, k]) * tir.max(b[k, j], w.zero),
        "conditions of operands": a[i, k] * tir.if_then_else(j < k, b[k, j], w.zero),
        "numbers": a[i, k] * b[k, j] * prim.immediate("float32", 0.5),
    }
    for name, term in terms.items():
        body = tir.BufferStore(w.c, w.c[i, j] + term, [i, j])
        func = w.func(nest([(i, N), (j, M), (k, K)], body))
        if "exp" in str(term):  # the evaluator has numpy's
            values = [drawn((N, K), "float32"), drawn((K, M), "float32"), drawn((N, M), "float32")]
            same_bits(func, values)
        else:
            check(func, "", in_tiles=name != "never")


def test_what_looks_like_a_product() -> None:
    """Loops whose results depend on the order of all iterations, or that are not rectangles."""
    w = Written()
    a, b, c, i, j, k = w.a, w.b, w.c, w.i, w.j, w.k
    one, loops = prim.immediate("float32", 1.0), [(i, N), (j, M), (k, K)]
    term = a[i, k] * b[k, j]

    def store(value: Any, *indices: Any) -> tir.Stmt:
        return tir.BufferStore(c, value, indices)

    first = prim.EQ(k, prim.immediate("int64", 0))
    last = prim.EQ(k, prim.immediate("int64", K - 1))
    begin = store(w.zero, i, j)
    triangle = tir.For(k, 0, i + 1, 0, store(c[i, j] + term, i, j))
    kept = {
        "a neighbour": nest(loops, store(c[i, j] + c[i, (j + 1) % M] * b[k, j], i, j)),
        "the row before": nest(loops, store(c[i, j] + c[tir.max(i - 1, 0), j] * a[i, k], i, j)),
        "the element twice": nest(loops, store(c[i, j] + c[i, j] * term, i, j)),
        "another element": nest(loops, store(c[i, 0] + term, i, j)),
        "elements shared by rows": nest(loops, store(c[0, j] + term, 0, j)),
        "a diagonal": nest(loops, store(c[i, (i + j) % M] + term, i, (i + j) % M)),
        "a place that terms move": nest(loops, store(c[(i + k) % N, j] + term, (i + k) % N, j)),
        "a condition": nest(loops, tir.IfThenElse(k < j, store(c[i, j] + term, i, j))),
        "a triangle": nest(loops[:2], triangle),
        "steps": nest(loops[:2], tir.For(k, 0, K, 0, store(c[i, j] + term, i, j), step=2)),
        "a product of all": nest(loops, store(c[i, j] * term, i, j)),
        "a maximum": nest(loops, store(tir.max(c[i, j], term), i, j)),
        "a quotient": nest(loops, store(c[i, j] + a[i, k] / b[k, j], i, j)),
        "the term minus the sum": nest(loops, store(term - c[i, j], i, j)),
        "rounded": nest(loops, store(c[i, j] + tir.floor(term), i, j)),
        "the last term begins": nest(loops, tir.SeqStmt([
            tir.IfThenElse(last, begin), store(c[i, j] + term, i, j)])),
        "only the first row begins": nest(loops, tir.SeqStmt([
            tir.IfThenElse(prim.logical_and(first, prim.EQ(i, prim.immediate("int64", 0))), begin),
            store(c[i, j] + term, i, j)])),
        "a beginning that is a term": nest(loops, tir.SeqStmt([
            tir.IfThenElse(first, store(a[i, k], i, j)), store(c[i, j] + term, i, j)])),
        "a beginning that is not the first": nest(loops, tir.SeqStmt([
            tir.IfThenElse(first, store(c[i, j] * one, i, j)), store(c[i, j] + term, i, j)])),
        "begins or adds": nest(loops, tir.IfThenElse(first, store(term, i, j),
                                                     store(c[i, j] + term, i, j))),
        "begins again for each term": nest([(i, N), (k, K)], tir.SeqStmt([
            nest([(w.l, M)], store(w.zero, i, w.l)), nest([(j, M)], store(c[i, j] + term, i, j))])),
        "another row begins": nest([(i, N)], tir.SeqStmt([
            nest([(w.l, M)], store(w.zero, N - 1 - i, w.l)),
            nest([(k, K), (j, M)], store(c[i, j] + term, i, j))])),
        "half of a row begins": nest([(i, N)], tir.SeqStmt([
            nest([(w.l, M // 2)], store(w.zero, i, w.l)),
            nest([(k, K), (j, M)], store(c[i, j] + term, i, j))])),
        "two stores": nest(loops, tir.SeqStmt([
            store(c[i, j] + term, i, j), store(c[i, j] + one, i, j)])),
        "columns that are not adjacent": nest([(i, N), (j, N), (k, K)],
                                              store(c[j, i] + a[i, k] * a[j, k], j, i)),
    }  # fmt: skip
    for body in kept.values():
        func = w.func(body)
        check(func, "", in_tiles=False)


@pytest.mark.parametrize("func", [*tir_products.IN_TILES, *tir_products.IN_LOOPS])
def test_products_among_other_loops(func: tir.PrimFunc) -> None:
    """With reductions that may be in another order, too: there are too few terms for one."""
    check(func, "", in_tiles=func in tir_products.IN_TILES)
    values = [drawn((N, K), "float32"), drawn((K, M), "float32"), drawn((N, M), "float32")]
    expected = [each.copy() for each in values]
    run_prim_func(func, expected)
    for backend in ("c", "python"):
        got = [each.copy() for each in values]
        compile_prim_func(func, prefer=backend, reassociate=True)(*got)
        assert got[2].tobytes() == expected[2].tobytes()


def test_negative_and_shifted_indices() -> None:
    """Loops that do not begin at 0, and results at an offset."""
    w = Written()
    a, b, c, i, j, k = w.a, w.b, w.c, w.i, w.j, w.k
    body = tir.BufferStore(
        c, c[i + 2, j - 1] + a[i + 2, k] * b[K - 1 - k, M - 1 - j], [i + 2, j - 1]
    )
    loops = tir.For(i, -2, N - 1, 0, tir.For(j, 1, M - 3, 0, tir.For(k, 1, K - 1, 0, body)))
    check(w.func(loops), "")
    beyond = tir.For(i, -2, N + 1, 0, tir.For(j, 1, M - 3, 0, tir.For(k, 1, K - 1, 0, body)))
    func = w.func(beyond)
    assert MARK not in build_prim_funcs({"f": func}).c_sources[0]
    values = [drawn((N, K), "float32"), drawn((K, M), "float32"), drawn((N, M), "float32")]
    for backend in ("c", "python"):
        with pytest.raises(IndexError, match=r"buffer [ac], dimension 0: index 4 is out of bounds"):
            compile_prim_func(func, prefer=backend)(*values)


def test_infinities_and_nan_stay_in_their_elements() -> None:
    inputs, out = operands("nn", (5, 130, 33), "float32")
    a, b = drawn((5, 130), "float32"), drawn((130, 33), "float32")
    a[4, 7], b[9, 32], b[100, 0], a[0] = np.inf, np.nan, -np.inf, -0.0
    got = same_bits(te.create_prim_func([*inputs, out]), [a, b, np.ones((5, 33), "f")])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, in_order(a, b, np.zeros((5, 33), "f")))
    assert np.isfinite(got[1:4, 1:32]).all()


def test_overlapping_arguments() -> None:
    """An operand that is the result is read as it was before the call."""
    inputs, out = operands("nn", (40, 40, 40), "float32")
    func = te.create_prim_func([*inputs, out])
    a, b = drawn((40, 40), "float32"), drawn((40, 40), "float32")
    expected = in_order(a, b, np.zeros((40, 40), "f"))
    for backend in ("c", "python"):
        run = compile_prim_func(func, prefer=backend)
        x, y = a.copy(), b.copy()
        run(x, y, x)
        assert x.tobytes() == expected.tobytes()
        run(a, y, y)
        assert y.tobytes() == expected.tobytes()
    memory = np.zeros(100 * 40, "f")
    x, whole = memory[: 40 * 40].reshape(40, 40), memory[400 : 400 + 1600].reshape(40, 40)
    x[:] = a
    compile_prim_func(func)(x, b, whole)
    assert whole.tobytes() == expected.tobytes()


def test_memory_around_the_result_is_untouched() -> None:
    inputs, out = operands("nn", (7, 20, 33), "float32")
    run = compile_prim_func(te.create_prim_func([*inputs, out]))
    memory = np.full(7 * 33 + 128, 7, "f")
    run(drawn((7, 20), "float32"), drawn((20, 33), "float32"), memory[64:-64].reshape(7, 33))
    assert (memory[:64] == 7).all()
    assert (memory[-64:] == 7).all()


def test_reductions_that_ask_for_another_order_keep_it_in_products() -> None:
    inputs, out = operands("nt", (6, 200, 20), "float32")
    func = te.create_prim_func([*inputs, out])
    a, b = drawn((6, 200), "float32"), drawn((20, 200), "float32")
    expected = in_order(a, b.T, np.zeros((6, 20), "f"))
    for backend in ("c", "python"):
        got = np.empty((6, 20), "f")
        compile_prim_func(func, prefer=backend, reassociate=True)(a, b, got)
        assert got.tobytes() == expected.tobytes()
        compile_prim_func(func.with_attr(TILES, False), prefer=backend, reassociate=True)(a, b, got)
        assert got.tobytes() != expected.tobytes()


def test_the_attribute() -> None:
    inputs, out = operands("nn", (6, 20, 20), "float32")
    func = te.create_prim_func([*inputs, out]).with_attr(TILES, "no")
    with pytest.raises(ValueError, match=r"main: attribute relaxvm.tiles: expected True or False, "
                                         r"got StringImm\('no'\)|got 'no'"):  # fmt: skip
        compile_prim_func(func)


# Random products


class Maker:
    """A random product: loops in any order, operands with any of their variables."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.dtype = rng.choice(["float32", "float32", "float64", "int32", "int8"])
        self.dims = {name: Var(name, "int64") for name in ("p", "q", "r")}
        self.loops: list[tuple[Var, Any, int]] = []
        for name in [*"ij", *(["h"] if rng.random() < 0.5 else []), "k", *"l"[: rng.randint(0, 1)]]:
            extent = rng.choice([*self.dims.values(), 3, 9])
            self.loops.append((Var(name, "int64"), extent, rng.choice([0, 0, 0, 1])))
        self.params: list[tir.Buffer] = []

    def access(self, loops: list[Any], name: str) -> tuple[tir.Buffer, list[Any]]:
        shape = [extent + least for _, extent, least in loops]
        # A variable is a dimension of some parameter by itself.
        buffer = tir.decl_buffer(shape or [1], self.dtype, name)
        self.params.append(buffer)
        return buffer, [var for var, _, _ in loops] or [0]

    def function(self) -> tir.PrimFunc:
        rng = self.rng
        spatial = [each for each in self.loops if each[0].name in "ijh"]
        rng.shuffle(spatial)
        operands = []
        for name in "abc"[: rng.randint(2, 3)]:
            # The first operand usually has no columns, the second no rows.
            left_out = {"a": spatial[-1], "b": spatial[0]}.get(name)
            chosen = [each for each in self.loops if rng.random() < (
                0.15 if each is left_out else 0.85 if name < "c" else 0.3)]  # fmt: skip
            rng.shuffle(chosen)
            buffer, indices = self.access(chosen, name)
            operands.append(buffer[tuple(indices)])
        out, place = self.access(spatial, "out")
        term = operands[0] * operands[1]
        if len(operands) > 2:
            term = rng.choice([lambda x: term + x, lambda x: term * x, lambda x: x - term])(
                operands[2]
            )
        old = out[tuple(place)]
        value = rng.choice([lambda: old + term, lambda: term + old, lambda: old - term])()
        update: tir.Stmt = tir.BufferStore(out, value, place)
        order = list(self.loops)
        rng.shuffle(order)
        if rng.random() < 0.4:
            tests = [prim.EQ(var, prim.immediate("int64", least)) for var, _, least in self.loops
                     if var.name in "kl" and rng.random() < 0.9]  # fmt: skip
            if tests:
                test = tests[0] if len(tests) == 1 else prim.logical_and(*tests)
                three = prim.cast(prim.immediate("int8", 3), self.dtype)
                begin = tir.BufferStore(out, three, place)
                update = tir.SeqStmt([tir.IfThenElse(test, begin), update])
        body = update
        for var, extent, least in reversed(order):
            body = tir.For(var, least, extent, 0, body)
        sizes = tir.decl_buffer(list(self.dims.values()), "int8", "sizes")
        return tir.PrimFunc([sizes, *self.params], body)


def arguments_of(func: tir.PrimFunc, sizes: Sequence[int]) -> list[np.ndarray]:
    values = dict(zip("pqr", sizes, strict=True))
    made = []
    for param in func.params:
        shape = []
        for dim in param.shape:
            found: list[Any] = []
            tir.post_order_visit(dim, found.append)
            if isinstance(dim, Var):
                shape.append(values[dim.name])
            elif any(isinstance(e, Var) for e in found):
                name = next(e.name for e in found if isinstance(e, Var))
                shape.append(values[name] + 1)
            else:
                shape.append(int(dim))
        made.append(drawn(shape, param.dtype))
    return made


@pytest.mark.parametrize("batch", range(3))
def test_random_products(batch: int) -> None:
    funcs = {f"f{seed}": Maker(seed).function() for seed in range(batch * 20, batch * 20 + 20)}
    tiled = build_prim_funcs(funcs)
    loops = build_prim_funcs({name: f.with_attr(TILES, False) for name, f in funcs.items()})
    python = build_prim_funcs(funcs, prefer="python")
    assert sum(source.count(MARK) for source in tiled.c_sources) >= 3
    for (name, func), sizes in itertools.product(
        funcs.items(), ((9, 8, 10), (1, 35, 5), (0, 3, 9), (5, 0, 33))
    ):
        arguments = arguments_of(func, sizes)
        found = []
        for library in (tiled, loops, python):
            copies = [each.copy() for each in arguments]
            with np.errstate(all="ignore"):
                library[name](*copies)
            found.append(copies[-1].tobytes())
        assert found[0] == found[1] == found[2], f"{name} {sizes}\n{func}"
    for name, func in list(funcs.items())[:3]:  # the evaluator is slow
        arguments = arguments_of(func, (3, 8, 4))
        expected = [each.copy() for each in arguments]
        with np.errstate(all="ignore"):
            run_prim_func(func, expected)
        tiled[name](*arguments)
        assert arguments[-1].tobytes() == expected[-1].tobytes(), name


# Nests as one loop


def test_flat_nests() -> None:
    x = te.placeholder((Var("n", "int64"), Var("m", "int64"), Var("l", "int64")), name="x")
    func = te.create_prim_func([x, topi.exp(x)])
    library, python = (build_prim_funcs({"f": func}, prefer=each) for each in ("c", "python"))
    source = library.c_sources[0]
    assert source[source.index("_body(") :].count("for (") == 1
    for shape in ((3, 4, 5), (1, 1, 1), (7, 1, 1), (1, 9, 1), (0, 3, 4), (3, 0, 4), (3, 4, 0)):
        values = drawn(shape, "float32")
        got, expected = np.full(shape, 7, "f"), np.full(shape, 8, "f")
        library["f"](values, got)
        python["f"](values, expected)
        assert got.tobytes() == expected.tobytes()
    huge = np.empty((0, 2**40, 2**15), "f")
    library["f"](huge, huge.copy())


def loops_of(func: tir.PrimFunc) -> int:
    source = build_prim_funcs({"f": func}).c_sources[0]
    return source[source.index("_body(") : source.index("_run(")].count("for (")


def test_what_is_flat() -> None:
    n, m = 6, 5
    x, y = (tir.decl_buffer([n, m], "float32", name) for name in "xy")
    z, row = tir.decl_buffer([n, m + 1], "float32", "z"), tir.decl_buffer([m], "float32", "row")
    cube = tir.decl_buffer([3, n, m], "float32", "cube")
    i, j, k = (Var(name, "int64") for name in "ijk")

    def func(buffer: tir.Buffer, value: Any, *indices: Any, rows: Any = n, columns: Any = m,
             least: int = 0) -> tir.PrimFunc:  # fmt: skip
        body = tir.BufferStore(buffer, value, indices)
        body = tir.For(i, least, rows - least, 0, tir.For(j, 0, columns, 0, body))
        return tir.PrimFunc([x, y, z, row, cube], body)

    one = {
        "a copy": func(y, x[i, j], i, j),
        "in place": func(y, y[i, j] * x[i, j], i, j),
        "a number": func(y, row[2] + x[i, j], i, j),
        "one of several": func(cube, x[i, j] + cube[0, i, j], 2, i, j),
        "some rows": func(y, x[i, j], i, j, rows=n - 2),
    }
    two = {
        "rows longer than the loop": func(z, x[i, j], i, j),
        "rows of a longer source": func(y, z[i, j], i, j),
        "some columns": func(y, x[i, j], i, j, columns=m - 1),
        "a row for all": func(y, x[i, j] + row[j], i, j),
        "a column for all": func(y, x[i, j] + x[i, 0], i, j),
        "a transposed source": func(cube, x[i, j] + cube[0, j, i], 1, i, j, rows=m),
        "a transposed result": func(cube, x[i, j], 0, j, i, rows=m),
        "a neighbour": func(y, x[i, tir.max(j - 1, 0)], i, j),
        "the row before": func(y, y[tir.max(i - 1, 0), j], i, j),
        "a condition": func(y, tir.if_then_else(i < j, x[i, j], y[i, j]), i, j),
        "numbers of rows": func(y, x[i, j] + i.astype("float32"), i, j),
        "rows from one on": func(y, x[i, j], i, j, least=1),
    }
    values = [drawn([int(d) for d in b.shape], "float32") for b in (x, y, z, row, cube)]
    for number, funcs in ((1, one), (2, two)):
        for name, each in funcs.items():
            assert loops_of(each) == number, name
            expected = [a.copy() for a in values]
            run_prim_func(each, expected)
            for backend in ("c", "python"):
                got = [a.copy() for a in values]
                compile_prim_func(each, prefer=backend)(*got)
                for a, b in zip(got, expected, strict=True):
                    assert a.tobytes() == b.tobytes(), name
    inner = tir.For(j, 0, m, 0, tir.For(k, 0, 1, 0, tir.BufferStore(y, x[i, j], [i, j])))
    assert loops_of(tir.PrimFunc([x, y], tir.For(i, 0, n, 0, inner))) > 1
    beyond = func(y, x[i, j], i, j, rows=n + 1)
    assert loops_of(beyond) == 2
    with pytest.raises(IndexError, match="dimension 0: index 6 is out of bounds for length 6"):
        compile_prim_func(beyond)(*values)


def test_flat_nests_of_strided_and_overlapping_arguments() -> None:
    x = te.placeholder((6, 4), name="x")
    func = te.create_prim_func([x, topi.multiply(x, x)])
    for backend in ("c", "python"):
        run = compile_prim_func(func, prefer=backend)
        whole, out = drawn((12, 8), "float32"), np.zeros((6, 8), "f")
        given = whole[::-2, ::2]
        run(given, out[:, 1::2])
        np.testing.assert_array_equal(out[:, 1::2], given * given)
        assert not out[:, ::2].any()
        memory = drawn((30,), "float32")
        source, target = memory[:24].reshape(6, 4), memory[5:29].reshape(6, 4)
        expected = source * source
        run(source, target)
        assert target.tobytes() == expected.tobytes()
