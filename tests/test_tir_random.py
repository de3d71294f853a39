"""Random loop nests: C, Python and the plain evaluator agree, including errors.

Indices are often out of bounds and divisors are often 0, which must always be an error.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from relaxvm import ir, tir
from relaxvm.ir import prim
from relaxvm.ir.equality import assert_structural_equal
from relaxvm.native.toolchain import compiler
from relaxvm.script import from_source
from relaxvm.tir.build import build_prim_funcs

from .tir_evaluator import EvaluationError, run_prim_func

DTYPES = ("int8", "int32", "int64", "uint8", "float32", "float64")
INDICES = ("int32", "int64")
MISTAKES = (IndexError, ZeroDivisionError)


class Maker:
    """Generates one function: buffers of symbolic shapes, nested loops, conditions, stores."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.index_dtype = self.rng.choice(INDICES)
        self.dims = [ir.Var(name, self.index_dtype) for name in ("n", "m")]
        self.loops: list[ir.Var] = []
        self.numbers = tir.decl_buffer([self.dims[0]], "int32", "numbers")
        self.buffers = [
            tir.decl_buffer(
                [self.rng.choice([*self.dims, 4]) for _ in range(self.rng.randint(1, 2))],
                self.rng.choice(DTYPES),
                f"x{i}",
            )
            for i in range(3)
        ]

    def function(self) -> tir.PrimFunc:
        body = tir.seq([self.statement(3) for _ in range(self.rng.randint(1, 2))])
        return tir.PrimFunc([self.numbers, *self.buffers], body)

    def statement(self, depth: int) -> tir.Stmt:
        choice = self.rng.random()
        if depth and (choice < 0.6 or not self.loops):
            return self.loop(depth)
        if depth and choice < 0.7:
            orelse = self.statement(depth - 1) if self.rng.random() < 0.5 else None
            return tir.IfThenElse(self.condition(), self.statement(depth - 1), orelse)
        if depth and choice < 0.8:
            return tir.SeqStmt([self.statement(depth - 1) for _ in range(2)])
        buffer = self.rng.choice(self.buffers)
        return tir.BufferStore(buffer, self.value(buffer.dtype, 2), self.place(buffer))

    def loop(self, depth: int) -> tir.Stmt:
        var = ir.Var(f"i{len(self.loops)}", self.index_dtype)
        extent = self.rng.choice([*self.dims, *self.dims, 3, self.dims[0] + 1])
        least = self.rng.choice([0, 0, 0, 0, 1, self.dims[1]])
        step = self.rng.choice([None, None, None, 2])
        self.loops.append(var)
        body = self.statement(depth - 1)
        self.loops.pop()
        if self.rng.random() < 0.3:
            return tir.For(var, least, extent, 0, self.block(var, body), step=step)
        return tir.For(var, least, extent, 0, body, step=step)

    def block(self, loop: ir.Var, body: tir.Stmt) -> tir.Stmt:
        axis = tir.IterVar(tir.Range.to(self.dims[0]), ir.Var("v", self.index_dtype), 0)
        inner = tir.substitute(body, {loop: axis.var})
        block = tir.SBlock([axis], [], [], "block", inner)
        return tir.SBlockRealize([loop], True, block)

    def place(self, buffer: tir.Buffer) -> list[ir.Expr]:
        return [self.index() for _ in buffer.shape]

    def index(self) -> ir.Expr:
        choice = self.rng.random()
        if self.loops and choice < 0.6:
            return self.rng.choice(self.loops)
        return self.integer(2) % self.dims[0] if choice < 0.8 else self.integer(1)

    def integer(self, depth: int) -> Any:
        rng = self.rng
        if not depth or rng.random() < 0.3:
            leaves = [*self.loops, *self.dims, prim.immediate(self.index_dtype, rng.randint(-2, 5))]
            return rng.choice(leaves)
        if rng.random() < 0.1:
            return self.numbers[self.index()].astype(self.index_dtype)
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        operations = [
            lambda: a + b, lambda: a - b, lambda: a * b, lambda: prim.floordiv(a, b),
            lambda: prim.floormod(a, b), lambda: prim.truncdiv(a, b), lambda: prim.truncmod(a, b),
            lambda: tir.max(a, b), lambda: tir.min(a, b), lambda: tir.if_then_else(a < b, a, b),
        ]  # fmt: skip
        return rng.choice(operations)()

    def condition(self) -> ir.Expr:
        a, b = self.integer(1), self.integer(1)
        test = self.rng.choice([prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE])(a, b)
        return prim.logical_not(test) if self.rng.random() < 0.2 else test

    def value(self, dtype: str, depth: int) -> ir.Expr:
        rng, choice = self.rng, self.rng.random()
        if not depth or choice < 0.15:
            number = rng.randint(0, 9)
            return prim.immediate(dtype, float(number) if prim.is_float(dtype) else number)
        if choice < 0.35:
            # Floats are made from integers, not integers from floats, which may be out of range.
            usable = [b for b in self.buffers if prim.is_float(dtype) or not prim.is_float(b.dtype)]
            buffer = rng.choice([*usable, self.numbers])
            return prim.cast(buffer[tuple(self.place(buffer))], dtype)
        if choice < 0.45:
            return prim.cast(self.integer(2), dtype)
        a, b = self.value(dtype, depth - 1), self.value(dtype, depth - 1)
        operations = [
            lambda: a + b, lambda: a - b, lambda: a * b, lambda: tir.max(a, b),
            lambda: tir.if_then_else(self.condition(), a, b),
            lambda: prim.select(self.condition(), a, b),
        ]  # fmt: skip
        if prim.is_float(dtype):
            operations += [lambda: a / b, lambda: tir.sqrt(tir.abs(a))]
        else:
            operations += [lambda: prim.floordiv(a, b), lambda: prim.truncmod(a, b),
                           lambda: a ^ b]  # fmt: skip
        return rng.choice(operations)()


def _arguments(func: tir.PrimFunc, seed: int, n: int, m: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    sizes = {"n": n, "m": m}
    arrays = []
    for param in func.params:
        shape = [sizes[d.name] if isinstance(d, ir.Var) else int(d) for d in param.shape]
        arrays.append(rng.integers(0, 6, shape).astype(param.dtype))
    return arrays


def _is_bound(func: tir.PrimFunc) -> bool:
    """Whether every dimension that the body uses is a dimension of a parameter."""
    found: list[ir.Var] = []
    tir.post_order_visit(func.body, lambda e: found.append(e) if type(e) is ir.Var else None)
    bound = {dim for param in func.params for dim in param.shape}
    return all(var in bound for var in found if var.name in ("n", "m"))


def _outcome(call: Any, args: list[Any]) -> Any:
    copies = [a.copy() for a in args]
    try:
        with np.errstate(all="ignore"):
            call(copies)
    except (EvaluationError, *MISTAKES) as error:
        return type(error)
    return copies


@pytest.mark.parametrize("batch", range(6))
def test_all_agree(batch: int) -> None:
    made = {f"f{seed}": Maker(seed).function() for seed in range(batch * 40, batch * 40 + 40)}
    funcs = {name: func for name, func in made.items() if _is_bound(func)}
    assert len(funcs) > 20
    libraries = [build_prim_funcs(funcs, prefer="python")]
    if compiler() is not None:
        libraries.append(build_prim_funcs(funcs))
    fine = 0
    for name, func in funcs.items():
        for n, m in ((4, 5), (1, 7), (3, 0)):
            args = _arguments(func, batch, n, m)
            expected = _outcome(lambda copies, f=func: run_prim_func(f, copies), args)
            for library in libraries:
                got = _outcome(lambda copies, lib=library, k=name: lib[k](*copies), args)
                where = f"{name}, n = {n}, m = {m}, {library!r}\n{func}"
                if isinstance(expected, type):
                    assert got in MISTAKES, where
                    continue
                assert not isinstance(got, type), f"{got}: {where}"
                fine += 1
                for a, b in zip(got, expected, strict=True):
                    np.testing.assert_array_equal(a, b, where)
    assert fine > 30


@pytest.mark.parametrize("seed", range(40))
def test_text(seed: int) -> None:
    func = Maker(seed).function()
    assert_structural_equal(from_source(func.script()), func, map_free_vars=True)


def _recurrence(seed: int) -> tir.PrimFunc:
    """A row of values that are made of the row before, several times."""
    rng = random.Random(seed)
    rows, columns, times = rng.choice([3, 4, 5, 7]), rng.choice([5, 7, 9, 11, 13, 15]), 5
    values = tir.decl_buffer([rows + 1, columns + 1], "float32", "values")
    factors = tir.decl_buffer([times, columns + 1], "float32", "factors")
    i, j, k = (ir.Var(name, "int64") for name in "ijk")
    place = [i + 1, j + rng.randint(0, 1)]
    term = values[i + rng.randint(0, 1), j + rng.randint(0, 1)] * factors[k, j + rng.randint(0, 1)]
    value = values[tuple(place)] + term if rng.random() < 0.6 else term
    body: tir.Stmt = tir.BufferStore(values, value, place)
    for var, extent in ((j, columns), (i, rows), (k, times)):
        body = tir.For(var, 0, extent, 0, body)
    return tir.PrimFunc([factors, values], body)


def test_recurrences() -> None:
    """GCC 12 computes some of these rows at once, though each needs the one before."""
    funcs = {f"f{seed}": _recurrence(seed) for seed in range(64)}
    libraries = [build_prim_funcs(funcs, prefer="python")]
    if compiler() is not None:
        libraries.append(build_prim_funcs(funcs))
    for name, func in funcs.items():
        args = [np.random.default_rng(0).standard_normal([int(d) for d in p.shape]).astype("f")
                for p in func.params]  # fmt: skip
        expected = _outcome(lambda copies, f=func: run_prim_func(f, copies), args)
        for library in libraries:
            got = _outcome(lambda copies, lib=library, k=name: lib[k](*copies), args)
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b, f"{name} {library!r}\n{func}")
