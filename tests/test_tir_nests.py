"""Loops over several dimensions as operations on whole arrays, where there is no C compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm import te, tir, topi
from relaxvm.ir.expr import Var
from relaxvm.tir.build import build_prim_funcs
from relaxvm.tir.lower_python import BLOCK

from .tir_evaluator import run_prim_func

RNG = np.random.default_rng(0)


def tensor(name: str, *shape: Any, dtype: str = "float32") -> Any:
    return te.placeholder(shape, name=name, dtype=dtype)


def run(func: tir.PrimFunc, *arguments: np.ndarray) -> tuple[np.ndarray, str]:
    """The result in Python, which is that of the evaluator, and the source."""
    library = build_prim_funcs({"f": func}, prefer="python")
    expected = [np.ascontiguousarray(each) for each in arguments]
    run_prim_func(func, expected)
    library["f"](*arguments)
    np.testing.assert_array_equal(arguments[-1], expected[-1])
    return arguments[-1], library.python_source("f")


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal(shape) * 9).astype(dtype)


@pytest.mark.parametrize("shape", [(5, 3), (4, 1, 3), (2, 3, 2, 2), (0, 3), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int8", "uint64", "bool"])
def test_elementwise(shape: tuple[int, ...], dtype: str) -> None:
    a, b = tensor("a", *shape, dtype=dtype), tensor("b", *shape, dtype=dtype)
    func = te.create_prim_func([a, b, topi.maximum(a, b) if dtype != "bool" else
                                topi.logical_and(a, b)])  # fmt: skip
    values = [np.abs(drawn(*shape)).astype(dtype) for _ in range(3)]
    _, source = run(func, *values)
    loops = 1 if dtype != "bool" and 0 not in shape else len(shape)
    assert source.count("for ") <= loops


def test_broadcasting() -> None:
    """Rows, columns, one element, and other variables."""
    a, b = tensor("a", 4, 6, 5), tensor("b", 6, 1)
    rows, one = tensor("rows", 4), tensor("one", 1)
    out = te.compute((4, 6, 5), lambda i, j, k: a[i, j, k] * b[j, 0] + rows[i] - one[0] + b[2, 0])
    func = te.create_prim_func([a, b, rows, one, out])
    _, source = run(func, drawn(4, 6, 5), drawn(6, 1), drawn(4), drawn(1), drawn(4, 6, 5))
    assert source.count("for ") == 1
    assert ", None, None]" in source  # rows


def test_strided_arguments() -> None:
    a = tensor("a", 6, 4)
    func = te.create_prim_func([a, topi.multiply(a, a)])
    whole, out = drawn(12, 8), drawn(6, 8)
    run(func, whole[::-2, ::2], out[:, 1::2])


def test_more_than_a_block() -> None:
    """Operations have a bounded number of elements, so that Ctrl-C comes through."""
    rows = BLOCK // 100 * 2 + 7
    a = tensor("a", rows, 100)
    func = te.create_prim_func([a, topi.add(a, a)])
    library = build_prim_funcs({"f": func}, prefer="python")
    assert f", {BLOCK // 100}):" in library.python_source("f")
    values, out = drawn(rows, 100), drawn(rows, 100)
    library["f"](values, out)
    np.testing.assert_array_equal(out, values + values)


def test_what_stays_in_loops() -> None:
    n = 6
    x, y = tir.decl_buffer([n, n], "float32", "x"), tir.decl_buffer([n, n], "float32", "y")
    i, j = Var("i", "int64"), Var("j", "int64")

    def nest(value: Any, *indices: Any) -> tir.PrimFunc:
        store = tir.BufferStore(y, value, indices)
        return tir.PrimFunc([x, y], tir.For(i, 0, n, 0, tir.For(j, 0, n, 0, store)))

    kept = {
        "a transposed result": nest(x[i, j], j, i),
        "a transposed operand": nest(x[j, i], i, j),
        "a diagonal": nest(x[i, i], i, j),
        "the elements before": nest(y[j, i] + x[i, j], i, j),
        "a condition": nest(tir.if_then_else(i < j, x[i, j], x[0, 0]), i, j),
        "variables as numbers": nest(x[i, j] + (i + j).astype("float32"), i, j),
        "a sum": nest(y[0, i] + x[i, j], 0, i),
        "gathered": nest(x[x[i, j].astype("int64") % n, j], i, j),
    }
    for name, func in kept.items():
        _, source = run(func, np.abs(drawn(n, n)), drawn(n, n))
        assert source.count("for ") >= 2, name


@pytest.mark.parametrize("name", ["matmul", "dense", "batch_matmul"])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_products(name: str, is_dynamic: bool) -> None:
    """One operation for each term: loops over elements of the result are inside."""
    n = te.var("n", "int64") if is_dynamic else 5
    shapes: Any = {
        "matmul": ((n, 7), (7, 4)),
        "dense": ((n, 7), (4, 7)),
        "batch_matmul": ((n, 3, 7), (n, 4, 7)),
    }[name]  # fmt: skip
    a, b = (tensor(k, *shape) for k, shape in zip("ab", shapes, strict=True))
    func = te.create_prim_func([a, b, getattr(topi.nn, name)(a, b)])
    concrete = [tuple(5 if d is n else d for d in shape) for shape in shapes]
    out = (5, 3, 4) if name == "batch_matmul" else (5, 4)
    _, source = run(func, *(drawn(*shape) for shape in concrete), drawn(*out))
    assert source.count("for ") == 3  # blocks of the initialization, terms, blocks of the update


def test_a_reduction_that_reads_its_result_stays() -> None:
    x, y = tir.decl_buffer([4, 5], "float32", "x"), tir.decl_buffer([4, 5], "float32", "y")
    i, j, j2, k = (Var(name, "int64") for name in ("i", "j", "l", "k"))
    init = tir.For(j, 0, 5, 0, tir.BufferStore(y, tir.FloatImm("float32", 0), [i, j]))
    for other in (y[i - i + 0, j2], y[3 - i, j2]):
        update = tir.BufferStore(y, y[i, j2] + x[k, j2] + other, [i, j2])
        nest = tir.For(k, 0, 4, 0, tir.For(j2, 0, 5, 0, update))
        func = tir.PrimFunc([x, y], tir.For(i, 0, 4, 0, tir.SeqStmt([init, nest])))
        run(func, drawn(4, 5), drawn(4, 5))
