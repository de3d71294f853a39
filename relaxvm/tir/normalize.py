"""The normal form of a function, from which both lowerings write code.

Blocks are gone: their variables are exchanged for the values bound to them, what initializes a
reduction stands before the loops of the reduction where it can, buffers that stand for regions of
others are exchanged for these, and allocations belong to the function.  What remains is loops,
stores, conditions, bindings and checks.

A reduction over no elements gives its initial value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.arith import free_vars
from ..ir.expr import Call, Expr, IntImm, PrimType, Var
from ..ir.node import Node
from ..ir.prim import Add, BinaryOpExpr, Sub, _range, cast, equal, logical_and, same
from .buffer import Buffer, BufferLoad, IterVar
from .function import PrimFunc
from .intrinsics import RET
from .stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from .visitor import Visitor, _Substitute

__all__ = ["Dim", "Kernel", "Param", "exchange", "is_affine_step", "loads_of", "normalize",
           "same_indices", "uses"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dim:
    """What a dimension of an argument has to be.

    Attributes:
        value: the expression.
        binds: whether this is where the variable `value` gets its value.
    """

    value: Expr
    binds: bool


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a tensor (`dims` tells its shape) or a scalar (`dims` is None)."""

    name: str
    var: Var
    dtype: str
    dims: tuple[Dim, ...] | None
    written: bool


@dataclass(frozen=True, slots=True)
class Kernel:
    """A function in normal form.

    Attributes:
        name: for messages and symbols.
        params: its parameters.
        dims: the variables that get their values from shapes, in order.
        allocs: buffers of its own; their shapes depend on parameters and `dims` only.
        body: what it does.
        returns: data type of the returned scalar, or None.
    """

    name: str
    params: tuple[Param, ...]
    dims: tuple[Var, ...]
    allocs: tuple[Buffer, ...]
    body: Stmt
    returns: str | None


def normalize(func: PrimFunc, name: str) -> Kernel:
    """The normal form of a function.

    Raises:
        ValueError: a variable has no value, the shape of a local buffer depends on a loop, or a
            parameter has strides or an offset.
        NotImplementedError: a statement or expression that the lowerings do not know.
    """
    flatten = _Flatten(name, _offsets(func))
    body = flatten.visit(func.body)
    written = _written(body)
    params, dims = _params(func, name, written)
    defined: set[Var] = {*func.params, *dims}
    for buffer in flatten.allocs:
        for dim in buffer.ty.shape:
            for var in free_vars(dim):
                if var not in defined:
                    raise ValueError(
                        f"{name}: the shape of buffer {buffer.name} has {var.name}, which is no "
                        "parameter and no dimension of one"
                    )
    if len(set(func.params)) < len(func.params) or not defined.isdisjoint(flatten.allocs):
        raise ValueError(f"{name}: two of the parameters and local buffers are the same")
    check = _CheckDefined(name, defined | set(flatten.allocs))
    for buffer in (*(p.var for p in params if isinstance(p.var, Buffer)), *flatten.allocs):
        for dim in buffer.ty.shape:
            check.visit(dim)
    check.visit(body)
    returns = _returned(func, body)
    return Kernel(name, params, dims, tuple(flatten.allocs), body, returns)


def _offsets(func: PrimFunc) -> dict[Var, Expr]:
    """The offsets of parameters that are variables: 0."""
    found: dict[Var, Expr] = {}
    for param in func.params:
        offset = param.ty.elem_offset if isinstance(param, Buffer) else None
        if isinstance(offset, Var):
            found[offset] = IntImm(offset.ty.dtype, 0)
    return found


def _returned(func: PrimFunc, body: Stmt) -> str | None:
    found: list[str] = []

    class Returns(Visitor):
        def visit_Evaluate(self, stmt: Evaluate) -> None:
            value = stmt.value
            if isinstance(value, Call) and value.op is RET:
                found.append(value.args[0].dtype)

    Returns().visit(body)
    if not found:
        return None
    declared = func.ret_type.dtype if type(func.ret_type) is PrimType else found[0]
    if any(dtype != declared for dtype in found):
        raise ValueError(f"the function returns {declared} and {', '.join(found)}")
    return declared


def _params(
    func: PrimFunc, name: str, written: set[Buffer]
) -> tuple[tuple[Param, ...], tuple[Var, ...]]:
    """Parameters, and the variables bound by their shapes."""
    scalars = {p for p in func.params if not isinstance(p, Buffer)}
    dims: dict[Var, None] = {}
    params: list[Param] = []
    for param in func.params:
        if not isinstance(param, Buffer):
            params.append(Param(param.name, param, param.ty.dtype, None, False))
            continue
        if param.ty.strides or not _starts_at_0(param):
            raise ValueError(
                f"{name}: parameter {param.name} has strides or an offset; the lowerings take "
                "compact buffers"
            )
        shape: list[Dim] = []
        for dim in param.ty.shape:
            binds = isinstance(dim, Var) and dim not in scalars and dim not in dims
            if binds:
                assert isinstance(dim, Var)
                dims[dim] = None
            shape.append(Dim(dim, binds))
        params.append(Param(param.name, param, param.ty.dtype, tuple(shape), param in written))
    for p in params:
        for d in p.dims or ():
            for var in free_vars(d.value):
                if var not in dims and var not in scalars:
                    raise ValueError(
                        f"{name}: nothing gives {var.name} a value: it stands only within "
                        f"expressions in the shape of parameter {p.name}; make it a parameter or a "
                        "dimension of its own"
                    )
    return tuple(params), tuple(dims)


def _starts_at_0(buffer: Buffer) -> bool:
    """Whether the first element is where the memory begins: a variable offset is 0."""
    return buffer.ty.elem_offset is None or isinstance(buffer.ty.elem_offset, Var)


class _Written(Visitor):
    def __init__(self) -> None:
        self.buffers: set[Buffer] = set()

    def visit_BufferStore(self, stmt: BufferStore) -> None:
        self.buffers.add(stmt.buffer)


def _written(body: Stmt) -> set[Buffer]:
    visitor = _Written()
    visitor.visit(body)
    return visitor.buffers


class _CheckDefined(Visitor):
    """Every variable has one value where it is used, and numbers are of their data types: what is
    known of the value of a variable counts wherever that variable stands."""

    def __init__(self, name: str, defined: set[Var]) -> None:
        self._name = name
        self._defined = defined
        self._bound: list[Var] = []  # by what is visited, to be taken back behind it

    def visit_Var(self, var: Var) -> None:
        if var not in self._defined:
            raise ValueError(f"{self._name}: variable {var.name} has no value where it is used")

    def visit_Buffer(self, buffer: Buffer) -> None:
        if buffer not in self._defined:
            raise ValueError(
                f"{self._name}: buffer {buffer.name} is no parameter and is not allocated"
            )

    def visit_For(self, loop: For) -> None:
        self.visit(loop.min)
        self.visit(loop.extent)
        if loop.step is not None:
            self.visit(loop.step)
        self._scope(loop.body, loop.loop_var)

    def visit_While(self, stmt: While) -> None:
        self.visit(stmt.condition)
        self._scope(stmt.body)

    def visit_IfThenElse(self, stmt: IfThenElse) -> None:
        self.visit(stmt.condition)
        self._scope(stmt.then_case)
        if stmt.else_case is not None:
            self._scope(stmt.else_case)

    def visit_Bind(self, stmt: Bind) -> None:
        self.visit(stmt.value)
        self._define(stmt.var)

    def visit_Let(self, let: Any) -> None:
        self.visit(let.value)
        self._scope(let.body, let.var)

    def visit_parts(self, node: Node) -> None:
        if isinstance(node, BinaryOpExpr) and node.a.dtype != node.b.dtype:
            raise ValueError(
                f"{self._name}: {type(node).__name__} of {node.a.dtype} and {node.b.dtype}"
            )
        super().visit_parts(node)

    def visit_IntImm(self, number: IntImm) -> None:
        low, high = _range(number.dtype)
        if not low <= number.value <= high:
            raise ValueError(f"{self._name}: {number.value} does not fit {number.dtype}")

    def _scope(self, body: Node, var: Var | None = None) -> None:
        """Visit what has a variable, and those that it binds itself, for its own."""
        outer, self._bound = self._bound, []
        if var is not None:
            self._define(var)
        self.visit(body)
        self._defined.difference_update(self._bound)
        self._bound = outer

    def _define(self, var: Var) -> None:
        if var in self._defined:
            raise ValueError(
                f"{self._name}: variable {var.name} is given a value where it has one already"
            )
        self._defined.add(var)
        self._bound.append(var)


@dataclass(slots=True)
class _Guard:
    """``if every axis is at its first step: init``: the axes are pairs of value and first value."""

    axes: list[tuple[Expr, Expr]]
    init: Stmt


@dataclass(slots=True)
class _Piece:
    """A statement, with the initialization of a reduction that is to run before it."""

    guard: _Guard
    rest: Stmt


@dataclass(slots=True)
class _View:
    """What a matched buffer stands for."""

    source: Buffer
    offsets: list[Expr]
    dropped: int


class _Flatten(_Substitute):
    """Blocks become plain statements.  `visit` of a statement gives a statement; on the way up from
    a block with an initialization, `_flatten` gives a `_Piece`."""

    def __init__(self, name: str, values: dict[Var, Expr]) -> None:
        super().__init__(values)
        self._name = name
        self.allocs: list[Buffer] = []
        self._views: dict[Buffer, _View] = {}
        self._loop_vars: set[Var] = set()

    # Statements

    def visit(self, node: Any) -> Any:
        if isinstance(node, Stmt):
            return _settle(self._flatten(node))
        return super().visit(node)

    def _flatten(self, stmt: Stmt) -> Stmt | _Piece:
        method = getattr(self, f"_flatten_{type(stmt).__name__}", None)
        if method is None:
            raise NotImplementedError(
                f"{self._name}: statements of class {type(stmt).__name__} cannot be lowered"
            )
        result: Stmt | _Piece = method(stmt)
        return result

    def _flatten_SeqStmt(self, stmt: SeqStmt) -> Stmt:
        parts = [self.visit(s) for s in stmt.seq]
        return seq([p for p in SeqStmt(parts).seq if not _is_nothing(p)])

    def _flatten_For(self, loop: For) -> Stmt | _Piece:
        least, extent = self.visit(loop.min), self.visit(loop.extent)
        step = None if loop.step is None else self.visit(loop.step)
        var = loop.loop_var
        if var in self._loop_vars:  # one variable for two loops: give this one its own
            var = Var(var.name, var.ty)
        self._loop_vars.add(var)
        outer = self._values.pop(loop.loop_var, None)
        if var is not loop.loop_var:
            self._values[loop.loop_var] = var
        body = self._flatten(loop.body)
        self._values.pop(loop.loop_var, None)
        if outer is not None:
            self._values[loop.loop_var] = outer

        def around(inner: Stmt) -> Stmt:
            return For(var, least, extent, ForKind.SERIAL, inner, None, None, step, loop.span)

        if isinstance(body, _Piece):
            axes = [a for a in body.guard.axes if not uses(a[0], var)]
            own = [a for a in body.guard.axes if uses(a[0], var)]
            if (
                len(own) == 1
                and own[0][0] is var
                and _same_value(own[0][1], least)
                and not uses(body.guard.init, var)
            ):
                return _Piece(_Guard(axes, body.guard.init), around(body.rest))
            body = _settle(body)
        return Evaluate(0) if _is_nothing(body) else around(body)

    def _flatten_While(self, stmt: While) -> Stmt:
        return While(self.visit(stmt.condition), self.visit(stmt.body), stmt.span)

    def _flatten_IfThenElse(self, stmt: IfThenElse) -> Stmt:
        condition = self.visit(stmt.condition)
        if type(condition) is IntImm:
            if condition.value:
                return self.visit(stmt.then_case)  # type: ignore[no-any-return]
            return Evaluate(0) if stmt.else_case is None else self.visit(stmt.else_case)
        orelse = None if stmt.else_case is None else self.visit(stmt.else_case)
        return IfThenElse(condition, self.visit(stmt.then_case), orelse, stmt.span)

    def _flatten_BufferStore(self, stmt: BufferStore) -> Stmt:
        value = self.visit(stmt.value)
        buffer, indices = self._access(stmt.buffer, [self.visit(i) for i in stmt.indices])
        return BufferStore(buffer, value, indices, stmt.span)

    def _flatten_Bind(self, stmt: Bind) -> Stmt:
        return Bind(stmt.var, self.visit(stmt.value), stmt.span)

    def _flatten_AssertStmt(self, stmt: AssertStmt) -> Stmt:
        return AssertStmt(stmt.kind, self.visit(stmt.condition), stmt.message_parts, stmt.span)

    def _flatten_AttrStmt(self, stmt: AttrStmt) -> Stmt | _Piece:
        return self._flatten(stmt.body)

    def _flatten_AllocBuffer(self, stmt: AllocBuffer) -> Stmt:
        self._allocate(stmt.buffer)
        return Evaluate(0)

    def _flatten_Evaluate(self, stmt: Evaluate) -> Stmt:
        value = stmt.value
        if isinstance(value, Call) and value.op is RET:
            return Evaluate(self.visit(value), stmt.span)
        impure = _impure_call(value)
        if impure is not None:
            raise NotImplementedError(f"{self._name}: {impure} cannot be lowered")
        return Evaluate(0)

    def _flatten_SBlockRealize(self, stmt: SBlockRealize) -> Stmt | _Piece:
        block = stmt.block
        values = [self.visit(value) for value in stmt.iter_values]
        for iv, value in zip(block.iter_vars, values, strict=True):
            self._values[iv.var] = cast(value, iv.var.ty.dtype)
        predicate = self.visit(stmt.predicate)
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        for match in block.match_buffers:
            self._match(match.buffer, match.source)
        body = self.visit(block.body)
        piece: Stmt | _Piece = body
        if block.init is not None:
            axes = []
            for iv, value in zip(block.iter_vars, values, strict=True):
                if iv.iter_type == IterVar.COMM_REDUCE and iv.dom is not None:
                    axes.append((cast(value, iv.var.ty.dtype), self.visit(iv.dom.min)))
            piece = _Piece(_Guard(axes, self.visit(block.init)), body)
        if type(predicate) is IntImm:
            return piece if predicate.value else Evaluate(0)
        return IfThenElse(predicate, _settle(piece))

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.ty.strides or not _starts_at_0(buffer):
            raise ValueError(
                f"{self._name}: local buffer {buffer.name} has strides or an offset; the lowerings "
                "take compact buffers"
            )
        local = self.visit_Buffer(buffer)
        if local not in self.allocs:
            self.allocs.append(local)

    def _match(self, buffer: Buffer, source: Any) -> None:
        """Let a buffer stand for a region: its accesses become accesses of the source, and the
        variables in its type become what the region gives them."""
        offsets = [self.visit(r.min) for r in source.region]
        extents = [self.visit(r.extent) for r in source.region]
        target, offsets = self._access(source.buffer, offsets)
        dropped = len(target.ty.shape) - len(buffer.ty.shape)
        if dropped < 0:
            raise ValueError(
                f"{self._name}: match_buffer {buffer.name} has {len(buffer.ty.shape)} dimensions, "
                f"its source {target.name} has {len(target.ty.shape)}"
            )
        if len(source.region) == len(target.ty.shape):
            for dim, extent in zip(buffer.ty.shape, extents[dropped:], strict=True):
                if isinstance(dim, Var):
                    self._values[dim] = cast(extent, dim.ty.dtype)
        stride: Expr = IntImm("int64", 1)
        for dim, own in reversed(
            list(zip(target.ty.shape[dropped:], buffer.ty.strides, strict=False))
        ):
            if isinstance(own, Var):
                self._values[own] = cast(stride, own.ty.dtype)
            stride = stride * cast(dim, "int64")
        self._views[buffer] = _View(target, offsets, dropped)

    def _access(self, buffer: Buffer, indices: list[Expr]) -> tuple[Buffer, list[Expr]]:
        view = self._views.get(buffer)
        if view is None:
            return self.visit_Buffer(buffer), indices
        spread = list(view.offsets)
        for at, index in enumerate(indices, view.dropped):
            offset = spread[at]
            spread[at] = offset + cast(index, offset.dtype) if index.dtype != offset.dtype else (
                offset + index)  # fmt: skip
        return view.source, spread

    # Expressions

    def visit_BufferLoad(self, load: BufferLoad) -> Expr:
        buffer, indices = self._access(load.buffer, [self.visit(i) for i in load.indices])
        return BufferLoad(buffer, indices, load.span)


def _impure_call(e: Expr) -> str | None:
    """The name of what an expression calls and has an effect, None if there is none."""
    found: list[str] = []

    class Calls(Visitor):
        def visit_Call(self, call: Call) -> None:
            if not getattr(call.op, "is_pure", False):
                found.append(getattr(call.op, "name", str(call.op)))
            self.visit_parts(call)

    Calls().visit(e)
    return found[0] if found else None


def _settle(piece: Stmt | _Piece) -> Stmt:
    """A piece as a statement: with its initialization before it, under a condition if axes are
    left."""
    if not isinstance(piece, _Piece):
        return piece
    init: Stmt = piece.guard.init
    condition: Expr | None = None
    for value, least in piece.guard.axes:
        first = equal(value, least)
        condition = first if condition is None else logical_and(condition, first)
    if condition is not None:
        init = IfThenElse(condition, init)
    return seq([s for s in SeqStmt([init, piece.rest]).seq if not _is_nothing(s)])


def _is_nothing(stmt: object) -> bool:
    return isinstance(stmt, Evaluate) and type(stmt.value) is IntImm


def _same_value(a: Expr, b: Expr) -> bool:
    return a is b or (type(a) is IntImm and type(b) is IntImm and a.value == b.value)


def uses(node: Node, var: Var) -> bool:
    """Whether a variable is used in a statement or an expression."""
    found = False

    class Uses(Visitor):
        def visit_Var(self, other: Var) -> None:
            nonlocal found
            found = found or other is var

    Uses().visit(node)
    return found


# Interchange


class _Exchanger:
    """Loops in another order, where that makes them run along memory.

    ``for j: init C[j]; for k: C[j] = f(C[j], ...)`` becomes ``for j: init C[j]``, then
    ``for k: for j: C[j] = f(C[j], ...)``.  Every element sees the same operations in the same
    order, as long as buffers do not overlap.
    """

    def __init__(self, *, always: bool) -> None:
        self._always = always

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            exchanged = self._exchange(stmt)
            if exchanged is not None:
                return exchanged
            body = self.visit(stmt.body)
            return stmt if body is stmt.body else _with_body(stmt, body)
        if isinstance(stmt, SeqStmt):
            parts = [self.visit(s) for s in stmt.seq]
            return SeqStmt(parts, stmt.span)
        if isinstance(stmt, IfThenElse):
            return IfThenElse(
                stmt.condition,
                self.visit(stmt.then_case),
                None if stmt.else_case is None else self.visit(stmt.else_case),
                stmt.span,
            )
        if isinstance(stmt, While):
            return While(stmt.condition, self.visit(stmt.body), stmt.span)
        return stmt

    def _exchange(self, loop: For) -> Stmt | None:
        """The loops of one reduction exchanged, or None where they are to stay."""
        var, body = loop.loop_var, loop.body
        if not isinstance(body, SeqStmt) or len(body.seq) != 2 or loop.step is not None:
            return None
        init, inner = body.seq
        nest: list[For] = []
        while isinstance(inner, For):
            nest.append(inner)
            inner = inner.body
        if not (nest and isinstance(init, BufferStore) and isinstance(inner, BufferStore)):
            return None
        if any(uses(x, var) for n in nest for x in (n.min, n.extent)) or any(
            n.step is not None for n in nest
        ):
            return None
        target = inner.buffer
        if init.buffer is not target or not same_indices(init.indices, inner.indices):
            return None
        if not _indexed_by(inner.indices, var) or any(
            uses(i, n.loop_var) for i in inner.indices for n in nest
        ):
            return None
        loads = loads_of(inner.value)
        if any(x.buffer is target and not same_indices(x.indices, inner.indices) for x in loads):
            return None
        if any(x.buffer is target for x in loads_of(init.value)) or any(
            load.buffer is target for n in nest for x in (n.min, n.extent) for load in loads_of(x)
        ):
            return None
        if not self._always and not all(
            _runs_along(indices, var) for indices in [inner.indices, *[x.indices for x in loads]]
        ):
            return None
        rest: Stmt = _with_body(loop, inner)
        for n in reversed(nest):
            rest = _with_body(n, rest)
        other = Var(var.name, var.ty)
        first = _with_body(loop, init)
        second = _Substitute({var: other}).visit(rest)
        return SeqStmt([first, second])


def exchange(body: Stmt, *, always: bool) -> Stmt:
    """A body with reductions moved outside of the loop over the last dimension of their result.

    To be used where no two buffers overlap.

    Args:
        always: also where the loop does not run along the memory of all operands.
    """
    return _Exchanger(always=always).visit(body)


def _with_body(loop: For, body: Stmt) -> For:
    return For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, None, loop.step,
               loop.span)  # fmt: skip


def loads_of(e: Node) -> list[BufferLoad]:
    """The loads within an expression or a statement."""
    found: list[BufferLoad] = []

    class Loads(Visitor):
        def visit_BufferLoad(self, load: BufferLoad) -> None:
            found.append(load)
            self.visit_parts(load)

    Loads().visit(e)
    return found


def same_indices(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether indices are the same as they are written."""
    return all(same(i, j) for i, j in zip(a, b, strict=True))


def _indexed_by(indices: Sequence[Expr], var: Var) -> bool:
    """Whether different values of `var` give different indices: it is one of them."""
    return any(i is var for i in indices)


def _runs_along(indices: Sequence[Expr], var: Var) -> bool:
    """Whether `var` goes to the next element in memory, or nowhere."""
    if not any(uses(i, var) for i in indices):
        return True
    return not any(uses(i, var) for i in indices[:-1]) and is_affine_step(indices[-1], var)


def is_affine_step(index: Expr, var: Var) -> bool:
    """Whether an index is `var` plus or minus what does not depend on it."""
    if index is var:
        return True
    if isinstance(index, Add):
        return (is_affine_step(index.a, var) and not uses(index.b, var)) or (
            is_affine_step(index.b, var) and not uses(index.a, var)
        )
    return isinstance(index, Sub) and is_affine_step(index.a, var) and not uses(index.b, var)
