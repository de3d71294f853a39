"""PrimFuncs for random programs: small, for any shape, exact on integers.

Each function here takes a data type and a rank and returns a PrimFunc, whose parameters are inputs,
then outputs, then integers.  Dimensions are symbolic, so that one PrimFunc works for all shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxvm import ir, tir
from relaxvm.ir import prim

Body = Callable[..., tir.Stmt]


def _dims(count: int) -> list[ir.Var]:
    return [ir.Var(f"d{i}", "int64") for i in range(count)]


def _loops(dims: Sequence[Any], body: Body) -> tir.Stmt:
    """One loop per dimension around ``body(i, j, ...)``."""
    indices = [ir.Var(f"i{k}", "int64") for k in range(len(dims))]
    stmt = body(*indices)
    for index, dim in reversed(list(zip(indices, dims, strict=True))):
        stmt = tir.For(index, 0, dim, tir.ForKind.SERIAL, stmt)
    return stmt


def _block(dims: Sequence[Any], body: Body, reduced: int = 0, init: Body | None = None) -> tir.Stmt:
    """As `_loops`, with a block inside; its last `reduced` axes are reduction axes."""

    def inside(*indices: ir.Var) -> tir.Stmt:
        kinds = [tir.IterVar.DATA_PAR] * (len(dims) - reduced) + [tir.IterVar.COMM_REDUCE] * reduced
        axes = [
            tir.IterVar(tir.Range(ir.int_imm(0), dim), ir.Var(f"v{k}", "int64"), kind)
            for k, (dim, kind) in enumerate(zip(dims, kinds, strict=True))
        ]
        variables = [axis.var for axis in axes]
        block = tir.SBlock(
            axes, [], [], "block", body(*variables), None if init is None else init(*variables)
        )
        return tir.SBlockRealize(indices, ir.IntImm("bool", 1), block)

    return _loops(dims, inside)


def _func(
    params: Sequence[ir.Var], body: tir.Stmt, *, noalias: bool = True, block: bool = False
) -> tir.PrimFunc:
    if block:  # functions with blocks need a root block
        root = tir.SBlock([], [], [], "root", body)
        body = tir.SBlockRealize([], ir.IntImm("bool", 1), root)
    return tir.PrimFunc(params, body, attrs={"tirx.noalias": True} if noalias else {})


def _one(dtype: str, value: int) -> ir.Expr:
    return prim.immediate(dtype, float(value) if prim.is_float(dtype) else value)


def elementwise(dtype: str, ndim: int, kind: str, *, block: bool = False) -> tir.PrimFunc:
    """out = f(x): f is "double", "next", "relu" or "abs"."""
    dims = _dims(ndim)
    x, out = tir.decl_buffer(dims, dtype, "x"), tir.decl_buffer(dims, dtype, "out")
    functions: dict[str, Callable[[Any], Any]] = {
        "double": lambda e: e * _one(dtype, 2),
        "next": lambda e: e + _one(dtype, 1),
        "relu": lambda e: prim.maximum(e, _one(dtype, 0)),
        "abs": lambda e: prim.select(e > _one(dtype, 0), e, _one(dtype, 0) - e),
    }

    def body(*indices: ir.Var) -> tir.Stmt:
        return tir.BufferStore(out, functions[kind](tir.BufferLoad(x, indices)), indices)

    return _func([x, out], (_block if block else _loops)(dims, body), block=block)


def add(dtype: str, ndim: int) -> tir.PrimFunc:
    """out = x + y"""
    dims = _dims(ndim)
    x, y, out = (tir.decl_buffer(dims, dtype, name) for name in ("x", "y", "out"))

    def body(*indices: ir.Var) -> tir.Stmt:
        value = tir.BufferLoad(x, indices) + tir.BufferLoad(y, indices)
        return tir.BufferStore(out, value, indices)

    return _func([x, y, out], _loops(dims, body))


def transpose(dtype: str) -> tir.PrimFunc:
    """out = x with its two axes swapped"""
    rows, columns = _dims(2)
    x = tir.decl_buffer([rows, columns], dtype, "x")
    out = tir.decl_buffer([columns, rows], dtype, "out")

    def body(i: ir.Var, j: ir.Var) -> tir.Stmt:
        return tir.BufferStore(out, tir.BufferLoad(x, [i, j]), [j, i])

    return _func([x, out], _block([rows, columns], body), block=True)


def row_sums(dtype: str) -> tir.PrimFunc:
    """out[i] = the sum of x[i, :], by a reduction that starts at 0; rows must not be empty"""
    rows, columns = _dims(2)
    x = tir.decl_buffer([rows, columns], dtype, "x")
    out = tir.decl_buffer([rows], dtype, "out")

    def body(i: ir.Var, j: ir.Var) -> tir.Stmt:
        return tir.BufferStore(out, tir.BufferLoad(out, [i]) + tir.BufferLoad(x, [i, j]), [i])

    def init(i: ir.Var, j: ir.Var) -> tir.Stmt:
        return tir.BufferStore(out, _one(dtype, 0), [i])

    return _func([x, out], _block([rows, columns], body, reduced=1, init=init), block=True)


def shifted(dtype: str, ndim: int) -> tir.PrimFunc:
    """out = x + k, where k is an integer parameter after the tensors"""
    dims = _dims(ndim)
    k = ir.Var("k", "int64")
    x, out = tir.decl_buffer(dims, dtype, "x"), tir.decl_buffer(dims, dtype, "out")

    def body(*indices: ir.Var) -> tir.Stmt:
        value = tir.BufferLoad(x, indices) + prim.cast(k, dtype)
        return tir.BufferStore(out, value, indices)

    return _func([x, out, k], _loops(dims, body))


def two_results(dtype: str, ndim: int) -> tir.PrimFunc:
    """more = x + 1 and less = more - 2, with a local buffer"""
    dims = _dims(ndim)
    x, more, less = (tir.decl_buffer(dims, dtype, name) for name in ("x", "more", "less"))
    own = tir.decl_buffer([1], dtype, "own")
    zero = ir.int_imm(0)

    def body(*indices: ir.Var) -> tir.Stmt:
        return tir.SeqStmt(
            [
                tir.BufferStore(own, tir.BufferLoad(x, indices) + _one(dtype, 1), [zero]),
                tir.BufferStore(more, tir.BufferLoad(own, [zero]), indices),
                tir.BufferStore(
                    less, tir.BufferLoad(own, [zero]) - _one(dtype, 2), indices
                ),
            ]
        )  # fmt: skip

    return _func([x, more, less], tir.SeqStmt([tir.AllocBuffer(own), _loops(dims, body)]))


def in_place(dtype: str, ndim: int, *, second: bool = False) -> tir.PrimFunc:
    """x = x * 2; if `second`, also out = the new x + 1"""
    dims = _dims(ndim)
    x, out = tir.decl_buffer(dims, dtype, "x"), tir.decl_buffer(dims, dtype, "out")

    def body(*indices: ir.Var) -> tir.Stmt:
        store = tir.BufferStore(x, tir.BufferLoad(x, indices) * _one(dtype, 2), indices)
        if not second:
            return store
        value = tir.BufferLoad(x, indices) + _one(dtype, 1)
        return tir.SeqStmt([store, tir.BufferStore(out, value, indices)])

    return _func([x, out] if second else [x], _loops(dims, body), noalias=False)


def joined(dtype: str) -> tir.PrimFunc:
    """out = x followed by y"""
    n, m = _dims(2)
    x, y = tir.decl_buffer([n], dtype, "x"), tir.decl_buffer([m], dtype, "y")
    out = tir.decl_buffer([n + m], dtype, "out")

    def body(i: ir.Var) -> tir.Stmt:
        value = tir.if_then_else(i < n, tir.BufferLoad(x, [i]), tir.BufferLoad(y, [i - n]))
        return tir.BufferStore(out, value, [i])

    return _func([x, y, out], _loops([n + m], body))


def clamped(dtype: str) -> tir.PrimFunc:
    """out = x where x < 3, else 3, with an if statement"""
    (n,) = _dims(1)
    x, out = tir.decl_buffer([n], dtype, "x"), tir.decl_buffer([n], dtype, "out")
    three = _one(dtype, 3)

    def body(i: ir.Var) -> tir.Stmt:
        value = tir.BufferLoad(x, [i])
        return tir.IfThenElse(
            value < three, tir.BufferStore(out, value, [i]), tir.BufferStore(out, three, [i])
        )

    return _func([x, out], _loops([n], body))
