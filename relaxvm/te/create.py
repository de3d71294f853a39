"""Loops of tensor expressions: one block for each computed tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..ir.arith import free_vars
from ..ir.expr import Expr, IntImm, Var
from ..tir.access import access_regions
from ..tir.buffer import Buffer, BufferLoad, BufferType, IterVar, Range
from ..tir.function import PrimFunc
from ..tir.intrinsics import if_then_else
from ..tir.stmt import BufferStore, For, ForKind, SBlock, SBlockRealize, Stmt, seq
from ..tir.visitor import Mutator, Visitor
from .tensor import Reduce, Tensor, TensorLoad

__all__ = ["create_prim_func", "tensors_of"]


def create_prim_func(args: Sequence[Tensor | Var]) -> PrimFunc:
    """Make a PrimFunc that computes tensors.

    Args:
        args: its parameters: inputs, scalars, and the tensors to compute.

    Raises:
        ValueError: an input is not among the parameters, or two computations of the same name
            cannot be told apart.
    """
    buffers = {a: _buffer(a) for a in args if isinstance(a, Tensor)}
    inner: list[Buffer] = []
    statements: list[Stmt] = []
    for tensor in tensors_of(args):
        if tensor.compute is None:
            if tensor not in buffers:
                raise ValueError(f"create_prim_func: input {tensor.name} is not a parameter")
            continue
        if tensor not in buffers:
            buffers[tensor] = _buffer(tensor)
            inner.append(buffers[tensor])
        statements.append(_block(tensor, buffers))
    params = [buffers[a] if isinstance(a, Tensor) else a for a in args]
    body: Stmt = seq(statements)
    if inner:
        root = SBlock((), (), (), "root", body, None, inner)
        body = SBlockRealize((), True, root)
    return PrimFunc(params, body, None, {"global_symbol": "main", "tirx.noalias": True})


def _buffer(tensor: Tensor) -> Buffer:
    return Buffer(tensor.name, BufferType(tensor.shape, tensor.dtype))


class _Inputs(Visitor):
    def __init__(self) -> None:
        self.found: dict[Tensor, None] = {}

    def visit_TensorLoad(self, load: TensorLoad) -> None:
        self.found.setdefault(load.tensor)
        self.visit_parts(load)

    def visit_Reduce(self, reduce: Reduce) -> None:
        self.visit(reduce.source)
        if reduce.condition is not None:
            self.visit(reduce.condition)


def tensors_of(args: Iterable[Any]) -> list[Tensor]:
    """The tensors and those that they depend on, in an order of computation."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(a, False) for a in args if isinstance(a, Tensor)][::-1]
    while stack:
        tensor, is_ready = stack.pop()
        if tensor in order:
            continue
        if is_ready or tensor.compute is None:
            order[tensor] = None
            continue
        stack.append((tensor, True))
        inputs = _Inputs()
        inputs.visit(tensor.compute.body)
        stack += [(t, False) for t in reversed(inputs.found) if t not in order]
    return list(order)


class _ToBuffers(Mutator):
    """Replaces elements of tensors by elements of buffers, and variables by others."""

    def __init__(self, buffers: dict[Tensor, Buffer], variables: dict[Var, Var]) -> None:
        self._buffers = buffers
        self._variables = variables

    def visit_TensorLoad(self, load: TensorLoad) -> Expr:
        indices = [self.visit(i) for i in load.indices]
        return BufferLoad(self._buffers[load.tensor], indices)

    def visit_Var(self, var: Var) -> Expr:
        return self._variables.get(var, var)

    def visit_Reduce(self, reduce: Reduce) -> Expr:
        raise ValueError("te.compute: a reduction has to be the whole formula")


def _block(tensor: Tensor, buffers: dict[Tensor, Buffer]) -> Stmt:
    """The loops over a tensor's axes, and the block within."""
    compute = tensor.compute
    assert compute is not None
    axes = [*compute.axis, *compute.reduce_axis]
    loops = [Var(iv.var.name, iv.var.ty) for iv in axes]
    inside = {iv.var: Var(f"v_{iv.var.name}", iv.var.ty) for iv in axes}
    change = _ToBuffers(buffers, inside)
    iter_vars = []
    for iv in axes:
        assert iv.dom is not None
        dom = Range(change.visit(iv.dom.min), change.visit(iv.dom.extent))
        iter_vars.append(IterVar(dom, inside[iv.var], iv.iter_type))
    target = buffers[tensor]
    place = [inside[iv.var] for iv in compute.axis]
    init: Stmt | None = None
    body = compute.body
    if isinstance(body, Reduce):
        init = BufferStore(target, body.identity, place)
        value = change.visit(body.source)
        if body.condition is not None:
            value = if_then_else(change.visit(body.condition), value, body.identity)
        stmt: Stmt = BufferStore(target, body.combine(BufferLoad(target, place), value), place)
    else:
        stmt = BufferStore(target, change.visit(body), place)
    reads, writes = access_regions(stmt, init)
    block = SBlock(iter_vars, reads, writes, tensor.name, stmt, init, (), (), compute.attrs)
    result: Stmt = SBlockRealize(loops, IntImm("bool", 1), block)
    for loop, iv in reversed(list(zip(loops, iter_vars, strict=True))):
        assert iv.dom is not None
        result = For(loop, iv.dom.min, iv.dom.extent, ForKind.SERIAL, result)
    return result


def unbound_vars(args: Sequence[Tensor | Var], extra: Sequence[Expr]) -> list[Var]:
    """Scalar variables that tensors depend on, in order of appearance, other than parameters and
    dimensions of parameters."""
    known: set[Var] = {a for a in args if isinstance(a, Var)}
    used: dict[Var, None] = {}
    own: set[Var] = set()

    class Uses(Visitor):
        def visit_Var(self, var: Var) -> None:
            used.setdefault(var)

        def visit_Reduce(self, reduce: Reduce) -> None:
            self.visit(reduce.source)
            if reduce.condition is not None:
                self.visit(reduce.condition)

    uses = Uses()
    for tensor in (a for a in args if isinstance(a, Tensor)):
        known.update(dim for dim in tensor.shape if isinstance(dim, Var))
        for dim in tensor.shape:
            for var in free_vars(dim):
                used.setdefault(var)
    for e in extra:
        uses.visit(e)
    for tensor in tensors_of(args):
        if tensor.compute is not None:
            for iv in (*tensor.compute.axis, *tensor.compute.reduce_axis):
                own.add(iv.var)
                assert iv.dom is not None
                uses.visit(iv.dom)
            uses.visit(tensor.compute.body)
    return [var for var in used if var not in known and var not in own]
