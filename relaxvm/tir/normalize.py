"""The normal form of a function, from which both lowerings generate code.

Blocks are removed: block variables are replaced by the values bound to them, matched buffers by the
regions that they denote, the initialization of a reduction is moved before its loops if possible,
and allocations are moved to the function.  Loops, stores, conditions, bindings and checks remain.

A reduction over no elements yields its initial value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..ir.arith import free_vars
from ..ir.expr import Call, Expr, IntImm, PrimType, Var
from ..ir.node import Node
from ..ir.prim import (
    Add,
    And,
    BinaryOpExpr,
    BitwiseNot,
    CmpExpr,
    Let,
    Not,
    Or,
    Select,
    Sub,
    _range,
    bits_problem,
    cast,
    equal,
    logical_and,
    same,
)
from .buffer import Buffer, BufferLoad, IterVar
from .function import PrimFunc
from .intrinsics import (
    CLZ,
    IF_THEN_ELSE,
    INTRINSICS,
    LIKELY,
    POPCOUNT,
    REINTERPRET,
    RET,
    check_floats,
)
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
from .visitor import Substitution, Visitor

__all__ = ["Dim", "Kernel", "Param", "has_let", "interchange", "is_affine_step", "is_parallel",
           "loads_of", "nest_of", "normalize", "same_indices", "same_value", "uses",
           "with_body"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dim:
    """A dimension of a parameter.

    Attributes:
        value: the required length.
        binds: whether `value` is a variable that gets its value here, from the argument.
    """

    value: Expr
    binds: bool


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: a tensor (`dims` is its shape) or a scalar (`dims` is None)."""

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
        allocs: local buffers; their shapes depend only on parameters and `dims`.
        body: the body, a statement.
        returns: data type of the returned scalar, or None.
        tiles: whether products may run in tiles (`relaxvm.tir.products`).
    """

    name: str
    params: tuple[Param, ...]
    dims: tuple[Var, ...]
    allocs: tuple[Buffer, ...]
    body: Stmt
    returns: str | None
    tiles: bool = True


def normalize(func: PrimFunc, name: str) -> Kernel:
    """Return the normal form of a function.

    Raises:
        ValueError: a variable has no value, the shape of a local buffer depends on a loop, or a
            parameter has strides or an offset.
        NotImplementedError: a statement or expression cannot be lowered.
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
                        f"{name}: the shape of buffer {buffer.name} has {var.name}, which is "
                        "neither a parameter nor a dimension of one"
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
    """Parameters' offsets that are variables; their value is 0."""
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
    """The parameters, and the variables that are bound by their shapes."""
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
                        f"{name}: {var.name} has no value: it appears only inside larger "
                        f"expressions in the shape of parameter {p.name}; make it a parameter or a "
                        "whole dimension"
                    )
    return tuple(params), tuple(dims)


def _starts_at_0(buffer: Buffer) -> bool:
    """Whether the first element is at the start of the memory; a variable offset is 0."""
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
    """Checks that every variable is defined once and before its uses, and that constants fit their
    data types.  So a fact about a variable holds wherever the variable is used."""

    def __init__(self, name: str, defined: set[Var]) -> None:
        self._name = name
        self._defined = defined
        self._bound: list[Var] = []  # in the current scope, to be removed at its end

    def visit(self, node: Node) -> None:
        super().visit(node)
        if isinstance(node, Expr):
            expected = _dtype_of(node, self._name)
            got = node.ty.dtype if type(node.ty) is PrimType else str(node.ty)
            if expected is not None and got != expected:
                raise ValueError(
                    f"{self._name}: {type(node).__name__}: expected the data type {expected}, got "
                    f"{got}"
                )

    def visit_Var(self, var: Var) -> None:
        if var not in self._defined:
            raise ValueError(f"{self._name}: variable {var.name} has no value where it is used")

    def visit_Buffer(self, buffer: Buffer) -> None:
        if buffer not in self._defined:
            raise ValueError(
                f"{self._name}: buffer {buffer.name} is neither a parameter nor allocated"
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
        self._check_value(stmt.var, stmt.value)
        self._define(stmt.var)

    def visit_Let(self, let: Any) -> None:
        self.visit(let.value)
        self._check_value(let.var, let.value)
        self._scope(let.body, let.var)

    def _check_value(self, var: Var, value: Expr) -> None:
        if type(var.ty) is not PrimType or var.ty.dtype != value.dtype:
            raise ValueError(
                f"{self._name}: variable {var.name} of type {var.ty} gets a value of {value.dtype}"
            )

    def visit_parts(self, node: Node) -> None:
        if isinstance(node, BinaryOpExpr) and node.a.dtype != node.b.dtype:
            raise ValueError(
                f"{self._name}: {type(node).__name__} of {node.a.dtype} and {node.b.dtype}"
            )
        if isinstance(node, (BinaryOpExpr, BitwiseNot)):
            operands = (node.a, node.b) if isinstance(node, BinaryOpExpr) else (node.a,)
            problem = bits_problem(type(node), *operands)
            if problem is not None:  # of a node that was made without the operator
                raise ValueError(f"{self._name}: {node}: {problem}")
        super().visit_parts(node)

    def visit_IntImm(self, number: IntImm) -> None:
        low, high = _range(number.dtype)
        if not low <= number.value <= high:
            raise ValueError(f"{self._name}: {number.value} does not fit {number.dtype}")

    def _scope(self, body: Node, var: Var | None = None) -> None:
        """Visit a scope: `var` and the variables that it binds are removed at its end."""
        outer, self._bound = self._bound, []
        if var is not None:
            self._define(var)
        self.visit(body)
        self._defined.difference_update(self._bound)
        self._bound = outer

    def _define(self, var: Var) -> None:
        if var in self._defined:
            raise ValueError(
                f"{self._name}: variable {var.name} is defined again where it already has a value"
            )
        self._defined.add(var)
        self._bound.append(var)


def _dtype_of(e: Expr, name: str) -> str | None:
    """Return the data type that a scalar has by its operands, None if any.  Proofs about indices
    rely on the types of scalars.

    Raises:
        ValueError, TypeError: the operands of a function of scalars are wrong.
    """
    if isinstance(e, BufferLoad):
        return e.buffer.ty.dtype
    if isinstance(e, (CmpExpr, And, Or, Not)):
        return "bool"
    if isinstance(e, BinaryOpExpr):
        return e.a.dtype
    if isinstance(e, BitwiseNot):
        return e.a.dtype
    if isinstance(e, Select):
        return e.true_value.dtype
    if isinstance(e, Let):
        return e.body.dtype
    return _dtype_of_call(e, name) if isinstance(e, Call) else None


def _dtype_of_call(call: Call, name: str) -> str | None:
    row = INTRINSICS.get(getattr(call.op, "name", ""))
    if row is not None:
        dtype = check_floats(row, call.args)
        return row.result or dtype
    arity = _ARITY.get(call.op)
    if arity is None:
        return None
    if len(call.args) != arity:
        short = getattr(call.op, "name", "")
        raise ValueError(f"{name}: {short}: expected {arity} arguments, got {len(call.args)}")
    if call.op is IF_THEN_ELSE:
        _, then, orelse = call.args
        if then.dtype != orelse.dtype:
            raise ValueError(f"{name}: if_then_else of {then.dtype} and {orelse.dtype}")
        return then.dtype
    if call.op is CLZ:
        return "int32"
    return None if call.op is REINTERPRET else call.args[0].dtype


_ARITY: Final[dict[Any, int]] = {
    IF_THEN_ELSE: 3, LIKELY: 1, CLZ: 1, POPCOUNT: 1, REINTERPRET: 1, RET: 1,
}  # fmt: skip


@dataclass(slots=True)
class _Guard:
    """``if every axis is at its first value: init``; the axes are pairs of value and first value.
    """

    axes: list[tuple[Expr, Expr]]
    init: Stmt


@dataclass(slots=True)
class _Piece:
    """A statement, and the initialization of a reduction that has to run before it."""

    guard: _Guard
    rest: Stmt


@dataclass(slots=True)
class _View:
    """The region that a matched buffer denotes."""

    source: Buffer
    offsets: list[Expr]
    dropped: int


class _Flatten(Substitution):
    """Replaces blocks by plain statements.  `visit` returns a statement; `_flatten` returns a
    `_Piece` for statements that contain a block with an initialization still to be placed."""

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
        if var in self._loop_vars:  # the variable has a loop already: use a new one
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
                and same_value(own[0][1], least)
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
        binds: list[Bind] = []
        for at, iv in enumerate(block.iter_vars):
            values[at] = self._values[iv.var] = self._bound(
                iv.var.name, self._values[iv.var], binds
            )
        for buffer in block.alloc_buffers:
            self._allocate(buffer)
        for match in block.match_buffers:
            self._match(match.buffer, match.source, binds)
        body = self.visit(block.body)
        piece: Stmt | _Piece = body
        if block.init is not None:
            axes = []
            for iv, value in zip(block.iter_vars, values, strict=True):
                if iv.iter_type == IterVar.COMM_REDUCE and iv.dom is not None:
                    axes.append((value, self.visit(iv.dom.min)))
            piece = _Piece(_Guard(axes, self.visit(block.init)), body)
        if binds:
            piece = seq([*binds, _settle(piece)])
        if type(predicate) is IntImm:
            return piece if predicate.value else Evaluate(0)
        return IfThenElse(predicate, _settle(piece))

    def _bound(self, name: str, value: Expr, binds: list[Bind]) -> Expr:
        """A value that a block begins with: if it has elements of buffers, which the block may
        change, a new variable, which is added to `binds`."""
        if not loads_of(value):
            return value
        var = Var(name, value.ty)
        binds.append(Bind(var, value))
        return var

    def _allocate(self, buffer: Buffer) -> None:
        if buffer.ty.strides or not _starts_at_0(buffer):
            raise ValueError(
                f"{self._name}: local buffer {buffer.name} has strides or an offset; the lowerings "
                "take compact buffers"
            )
        local = self.visit_Buffer(buffer)
        if local not in self.allocs:
            self.allocs.append(local)

    def _match(self, buffer: Buffer, source: Any, binds: list[Bind]) -> None:
        """Make a buffer denote a region: its accesses become accesses of the source, and variables
        in its type get their values from the region."""
        offsets, extents = (
            [self._bound(buffer.name, self.visit(e), binds) for e in ends]
            for ends in ([r.min for r in source.region], [r.extent for r in source.region])
        )
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
    """The name of a callee with side effects in an expression, or None."""
    found: list[str] = []

    class Calls(Visitor):
        def visit_Call(self, call: Call) -> None:
            if not getattr(call.op, "is_pure", False):
                found.append(getattr(call.op, "name", str(call.op)))
            self.visit_parts(call)

    Calls().visit(e)
    return found[0] if found else None


def _settle(piece: Stmt | _Piece) -> Stmt:
    """Convert a piece to a statement: put the initialization before it, under a condition if there
    are axes left."""
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


def same_value(a: Expr, b: Expr) -> bool:
    """Check whether two integers are the same number or the same object."""
    return a is b or (type(a) is IntImm and type(b) is IntImm and a.value == b.value)


def uses(node: Node, var: Var) -> bool:
    """Check whether a variable is used in a statement or an expression."""
    found = False

    class Uses(Visitor):
        def visit_Var(self, other: Var) -> None:
            nonlocal found
            found = found or other is var

    Uses().visit(node)
    return found


# Interchange


class _Interchanger:
    """Interchanges the loops of reductions so that inner loops run along memory.

    ``for j: init C[j]; for k: C[j] = f(C[j], ...)`` becomes ``for j: init C[j]``, then
    ``for k: for j: C[j] = f(C[j], ...)``.  Every element sees the same operations in the same
    order, as long as buffers do not overlap.
    """

    def __init__(self, always: bool, leave: Callable[[For], bool]) -> None:
        self._always = always
        self._leave = leave

    def visit(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            if self._leave(stmt):
                return stmt
            interchanged = self._interchange(stmt)
            if interchanged is not None:
                return interchanged
            body = self.visit(stmt.body)
            if body is stmt.body:
                return stmt
            apart = self._distributed(stmt, body) if self._always else None
            return with_body(stmt, body) if apart is None else apart
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

    def _interchange(self, loop: For) -> Stmt | None:
        """Interchange the loops of one reduction; None if that is not possible or not useful."""
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
        rest: Stmt = with_body(loop, inner)
        for n in reversed(nest):
            rest = with_body(n, rest)
        other = Var(var.name, var.ty)
        first = with_body(loop, init)
        second = Substitution({var: other}).visit(rest)
        return SeqStmt([first, second])

    def _distributed(self, loop: For, body: Stmt) -> Stmt | None:
        """``for i: {for j: init C[i, j]; for k: for j: update C[i, j]}``, an interchanged sum,
        as ``for i: for j: init``, then ``for k: for i: for j: update``; None if it is another."""
        var = loop.loop_var
        if not isinstance(body, SeqStmt) or len(body.seq) != 2 or loop.step is not None:
            return None
        (around, init), (nest, update) = (nest_of(part) for part in body.seq)
        if not (isinstance(init, BufferStore) and isinstance(update, BufferStore)):
            return None
        target = update.buffer
        if init.buffer is not target or not _indexed_by(init.indices, var):
            return None
        if not _indexed_by(update.indices, var):
            return None
        bounds = [e for each in (*around, *nest) for e in (each.min, each.extent)]
        if any(each.step is not None for each in (*around, *nest)) or any(
            uses(e, var) or loads_of(e) for e in bounds
        ):
            return None
        loads = loads_of(update.value)
        if any(x.buffer is target and not same_indices(x.indices, update.indices) for x in loads):
            return None
        if any(x.buffer is target for x in loads_of(init.value)):
            return None
        # Both visit the same elements: an initialization after an update would undo it.
        spatial = [each for each in nest if _indexed_by(update.indices, each.loop_var)]
        reduced = [
            each for each in nest if not any(uses(i, each.loop_var) for i in update.indices)
        ]
        if nest != [*reduced, *spatial] or len(around) != len(spatial):
            return None
        renamed = Substitution(
            {a.loop_var: b.loop_var for a, b in zip(around, spatial, strict=True)}
        )
        if not same_indices([renamed.visit(i) for i in init.indices], update.indices) or any(
            not same_value(x, y)
            for a, b in zip(around, spatial, strict=True)
            for x, y in ((a.min, b.min), (a.extent, b.extent))
        ):
            return None
        other = Var(var.name, var.ty)
        inner: Stmt = update
        for each in reversed(spatial):
            inner = with_body(each, inner)
        inner = with_body(loop, inner)
        for each in reversed(reduced):
            inner = with_body(each, inner)
        return SeqStmt([with_body(loop, body.seq[0]), Substitution({var: other}).visit(inner)])


def nest_of(stmt: Stmt) -> tuple[list[For], Stmt]:
    """Return the loops that are only around each other, and what is in them."""
    nest: list[For] = []
    while isinstance(stmt, For):
        nest.append(stmt)
        stmt = stmt.body
    return nest, stmt


def interchange(
    body: Stmt, *, always: bool, leave: Callable[[For], bool] = lambda _: False
) -> Stmt:
    """Return a body in which reduction loops are outside of the loop over the last dimension of
    their result.  Valid only if no two buffers overlap.

    Args:
        always: if false, only where the inner loop then runs along the memory of all operands.
        leave: loops for which it returns true stay as they are, with all loops inside.
    """
    return _Interchanger(always, leave).visit(body)


def with_body(loop: For, body: Stmt) -> For:
    """Return a loop with another body."""
    return For(loop.loop_var, loop.min, loop.extent, loop.kind, body, None, None, loop.step,
               loop.span)  # fmt: skip


def loads_of(e: Node) -> list[BufferLoad]:
    """Return the loads in an expression or a statement."""
    found: list[BufferLoad] = []

    class Loads(Visitor):
        def visit_BufferLoad(self, load: BufferLoad) -> None:
            found.append(load)
            self.visit_parts(load)

    Loads().visit(e)
    return found


def same_indices(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Check whether indices are structurally equal."""
    return all(same(i, j) for i, j in zip(a, b, strict=True))


def _indexed_by(indices: Sequence[Expr], var: Var) -> bool:
    """Whether different values of `var` are different elements: it is one of the indices."""
    return any(i is var for i in indices)


def _runs_along(indices: Sequence[Expr], var: Var) -> bool:
    """Whether the next value of `var` is the next element in memory, or the same element."""
    if not any(uses(i, var) for i in indices):
        return True
    return not any(uses(i, var) for i in indices[:-1]) and is_affine_step(indices[-1], var)


def is_affine_step(index: Expr, var: Var) -> bool:
    """Check whether an index is `var` plus or minus something that does not depend on it."""
    if index is var:
        return True
    if isinstance(index, Add):
        return (is_affine_step(index.a, var) and not uses(index.b, var)) or (
            is_affine_step(index.b, var) and not uses(index.a, var)
        )
    return isinstance(index, Sub) and is_affine_step(index.a, var) and not uses(index.b, var)


# Loops of independent iterations


def is_parallel(loop: For) -> bool:
    """Whether a loop has only stores, none of which affects another iteration."""
    body, var = loop.body, loop.loop_var
    stores = body.seq if isinstance(body, SeqStmt) else (body,)
    if loop.step is not None or not stores:
        return False
    written: dict[Buffer, tuple[Expr, ...]] = {}
    for stmt in stores:
        if not isinstance(stmt, BufferStore):
            return False
        if not any(is_affine_step(i, var) for i in stmt.indices):
            return False
        before = written.setdefault(stmt.buffer, stmt.indices)
        if not same_indices(before, stmt.indices):
            return False
    for stmt in stores:
        if has_let(stmt):
            return False
        for load in loads_of(stmt):
            indices = written.get(load.buffer)
            if indices is not None and not same_indices(indices, load.indices):
                return False
    return True


def has_let(node: Node) -> bool:
    """Return whether an expression or a statement has a Let."""
    found = False

    class Lets(Visitor):
        def visit_Let(self, let: Any) -> None:
            nonlocal found
            found = True

    Lets().visit(node)
    return found
