"""Loops of tensor expressions: one block for each computed tensor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ir.arith import free_vars, simplify
from ..ir.expr import Expr, IntImm, Var
from ..ir.node import Attrs
from ..ir.prim import GE, GT, LE, LT, Add, FloorDiv, Sub, as_scalar, is_float
from ..tir.access import access_regions
from ..tir.buffer import Buffer, BufferLoad, BufferType, IterVar, Range
from ..tir.function import PrimFunc
from ..tir.inline import bind_shape, defined_in, inlined_body, with_root
from ..tir.intrinsics import if_then_else
from ..tir.stmt import Bind, BufferStore, For, ForKind, SBlock, SBlockRealize, Stmt, seq
from ..tir.visitor import Mutator, Visitor
from .extern import Extern
from .tensor import INDEX_DTYPE, Reduce, Tensor, TensorLoad

__all__ = ["create_prim_func", "tensors_of"]


def create_prim_func(ops: Sequence[Tensor | Var]) -> PrimFunc:
    """Make a PrimFunc that computes tensors.

    Args:
        ops: its parameters: inputs, scalars, and the tensors to compute.

    Raises:
        ValueError: an input is not among the parameters, or two computations of the same name
            cannot be told apart.
    """
    buffers = {a: _buffer(a) for a in ops if isinstance(a, Tensor)}
    inner: list[Buffer] = []
    statements: list[Stmt] = []
    for tensor in tensors_of(ops):
        if tensor.compute is None:
            if tensor not in buffers:
                raise ValueError(f"create_prim_func: input {tensor.name} is not a parameter")
            continue
        if tensor not in buffers:
            buffers[tensor] = _buffer(tensor)
            inner.append(buffers[tensor])
        if not tensor.dependent:
            statements.append(_block([tensor], buffers))
        elif tensor is tensor.dependent[-1]:
            statements.append(_block(tensor.dependent, buffers))
    params = [buffers[a] if isinstance(a, Tensor) else a for a in ops]
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
        self.visit(reduce.init)
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
            order.update(dict.fromkeys(tensor.dependent or [tensor]))
            continue
        stack.append((tensor, True))
        found = inputs_of(tensor.dependent or [tensor])
        stack += [(t, False) for t in reversed(found) if t not in order]
    return list(order)


def inputs_of(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The tensors that the formulas of computed tensors read, in order of first use."""
    inputs = _Inputs()
    for tensor in tensors:
        if isinstance(tensor.compute, Extern):
            inputs.found.update(dict.fromkeys(tensor.compute.inputs))
        else:
            inputs.visit(tensor.compute.body)
    return list(inputs.found)


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

    def visit_GT(self, e: GT) -> Expr:
        ordered: Expr = self.visit(LT(e.b, e.a))
        return ordered

    def visit_GE(self, e: GE) -> Expr:
        ordered: Expr = self.visit(LE(e.b, e.a))
        return ordered

    def visit_LT(self, e: LT) -> Expr:
        return _ordered(LT, self.visit(e.a), self.visit(e.b))

    def visit_LE(self, e: LE) -> Expr:
        return _ordered(LE, self.visit(e.a), self.visit(e.b))


def _ordered(cls: type[LT] | type[LE], a: Expr, b: Expr) -> Expr:
    """``a < b`` or ``a <= b`` as TVM writes it: of integers, with the constants of both sides on
    one, ``a < b`` for ``a + 1 <= b``, and ``a <= b`` for ``a < b + 1``."""
    if is_float(a.dtype):
        return cls(a, b)
    if type(a) is IntImm:
        b, extra = _split_constant(b)
        a = a - extra
    else:
        a, extra = _split_constant(a)
        bound, above = _split_constant(b)
        if type(b) is IntImm:
            b = b - extra
        elif cls is LT and not extra and above == 1:
            cls, b = LE, bound
        elif cls is LE and extra == 1:
            cls = LT
        elif extra:
            a = a + extra
    return cls(a, b)


def _split_constant(e: Expr) -> tuple[Expr, int]:
    """An integer without the constant that is added last, and that constant."""
    if type(e) is Add and type(e.b) is IntImm:
        return e.a, e.b.value
    if type(e) is Sub and type(e.b) is IntImm:
        return e.a, -e.b.value
    return e, 0


def _block(tensors: Sequence[Tensor], buffers: dict[Tensor, Buffer]) -> Stmt:
    """The loops over the axes of tensors that are computed together, and the blocks within: one for
    all values of a reduction, else one for each."""
    compute = tensors[0].compute
    if isinstance(compute, Extern):
        return _statements(tensors, compute, buffers)
    axes = [*compute.axis, *compute.reduce_axis]
    loops = [Var(iv.var.name, iv.var.ty) for iv in axes]
    if isinstance(compute.body, Reduce):
        blocks = [_realized(tensors, loops, buffers)]
    else:
        blocks = [_realized([tensor], loops, buffers) for tensor in tensors]
    result = seq(blocks)
    for loop, iv in reversed(list(zip(loops, axes, strict=True))):
        assert iv.dom is not None
        dom = _ToBuffers(buffers, {}).visit(iv.dom)
        result = For(loop, dom.min, _extent(dom.extent), ForKind.SERIAL, result)
    return result


def _statements(tensors: Sequence[Tensor], made: Extern, buffers: dict[Tensor, Buffer]) -> Stmt:
    """A block of statements that compute tensors."""
    inner = [*made.in_buffers, *made.out_buffers]
    outer = [buffers[tensor] for tensor in (*made.inputs, *tensors)]
    values: dict[Var, Any] = dict(zip(inner, outer, strict=True))
    for mine, theirs in zip(inner, outer, strict=True):
        bind_shape(mine, theirs.shape, values)
    func = PrimFunc(inner, with_root(made.body, made.allocs))
    body, allocs = inlined_body(func, values)
    reads, writes = access_regions(body, None, allocs)
    name = tensors[0].name.removesuffix("_v0") if len(tensors) > 1 else tensors[0].name
    block = SBlock((), reads, writes, name, body, None, allocs, (), made.attrs)
    return SBlockRealize((), IntImm("bool", 1), block)


def _extent(length: Expr) -> Expr:
    """The extent of a loop, simplified but for ``x // c + 1``, which TVM keeps."""
    if type(length) is Add and type(length.a) is FloorDiv:
        return length
    return simplify(length)


def _realized(
    tensors: Sequence[Tensor], loops: Sequence[Expr], buffers: dict[Tensor, Buffer]
) -> Stmt:
    """A block that computes tensors, with its variables bound to loops."""
    compute = tensors[0].compute
    axes = [*compute.axis, *compute.reduce_axis]
    if not axes:  # TVM gives a block at least one variable
        unit = IntImm(INDEX_DTYPE.get(), 0)
        axes = [IterVar(Range(unit, IntImm(unit.dtype, 1)), Var("i", unit.ty), IterVar.DATA_PAR)]
        loops = [unit]
    inside = {iv.var: Var(f"v_{iv.var.name}", iv.var.ty) for iv in axes}
    change = _ToBuffers(buffers, inside)
    iter_vars = []
    for iv in axes:
        assert iv.dom is not None
        dom = Range(change.visit(iv.dom.min), _extent(change.visit(iv.dom.extent)))
        iter_vars.append(IterVar(dom, inside[iv.var], iv.iter_type))
    targets = [buffers[tensor] for tensor in tensors]
    place = [inside[iv.var] for iv in compute.axis]
    init: Stmt | None = None
    if isinstance(compute.body, Reduce):
        bodies = [tensor.compute.body for tensor in tensors]
        init, stmt = _reduction(bodies, targets, place, change)
    else:
        stmt = BufferStore(targets[0], change.visit(compute.body), place)
    reads, writes = access_regions(stmt, init)
    name = tensors[0].name.removesuffix("_v0") if len(tensors) > 1 else tensors[0].name
    attrs = {key: _in_buffers(value, buffers) for key, value in compute.attrs.items()}
    block = SBlock(iter_vars, reads, writes, name, stmt, init, (), (), Attrs(attrs))
    return SBlockRealize(loops, IntImm("bool", 1), block)


def _in_buffers(value: Any, buffers: Mapping[Tensor, Buffer]) -> Any:
    """An annotation, with buffers for tensors."""
    if isinstance(value, (list, tuple)):
        return type(value)([_in_buffers(each, buffers) for each in value])
    return buffers[value] if isinstance(value, Tensor) else value


def _reduction(
    bodies: Sequence[Any], targets: Sequence[Buffer], place: Sequence[Expr], change: _ToBuffers
) -> tuple[Stmt, Stmt]:
    """The statements that begin a reduction, and those that add an element to it."""
    starts: list[Stmt] = []
    values: list[Expr] = []
    totals: list[Expr] = []
    for body, target in zip(bodies, targets, strict=True):
        starts.append(BufferStore(target, change.visit(body.init), place))
        value = change.visit(body.source)
        if body.condition is not None:
            value = if_then_else(change.visit(body.condition), value, body.identity)
        values.append(value)
        totals.append(BufferLoad(target, place))
    first = bodies[0]
    if first.position is None:
        return starts[0], BufferStore(targets[0], first.combine(totals[0], values[0]), place)
    new = [as_scalar(value) for value in first.combine(tuple(totals), tuple(values))]
    # All values are computed before one is stored.
    names = [Var(f"v_{target.name}", value.ty) for target, value in zip(targets, new, strict=True)]
    binds = [Bind(name, value) for name, value in zip(names, new, strict=True)]
    stores = [BufferStore(t, name, place) for t, name in zip(targets, names, strict=True)]
    return seq(starts), seq([*binds, *stores])


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
            self.visit(reduce.init)
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
        if isinstance(tensor.compute, Extern):
            own |= defined_in(tensor.compute.body)
            uses.visit(tensor.compute.body)
        elif tensor.compute is not None:
            for iv in (*tensor.compute.axis, *tensor.compute.reduce_axis):
                own.add(iv.var)
                assert iv.dom is not None
                uses.visit(iv.dom)
            uses.visit(tensor.compute.body)
    return [var for var in used if var not in known and var not in own]
