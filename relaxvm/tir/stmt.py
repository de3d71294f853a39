"""Statements: loops, blocks, stores.

A *block* (`SBlock`) is a unit of computation with its own iteration variables.  `SBlockRealize`
binds each of them to an expression of the enclosing loops' variables.

Source: ``tvm.tirx.stmt`` and ``tvm.s_tir.stmt`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from ..ir.expr import Expr, IntImm, PrimType, StringImm, Var
from ..ir.node import Attrs, Node
from ..ir.parts import MOST_PROGRAM_PARTS, count_parts
from ..ir.prim import as_scalar, cast
from .buffer import Buffer, BufferRegion, IterVar, as_index, cast_index, indices_of

__all__ = [
    "AllocBuffer",
    "AssertStmt",
    "AttrStmt",
    "Bind",
    "BufferStore",
    "Evaluate",
    "For",
    "ForKind",
    "IfThenElse",
    "MatchBufferRegion",
    "SBlock",
    "SBlockRealize",
    "SeqStmt",
    "Stmt",
    "While",
    "seq",
]


class Stmt(Node):
    """Base of all statements."""

    __slots__ = ("_parts",)
    MOST_PARTS = MOST_PROGRAM_PARTS


class ForKind(IntEnum):
    """How the iterations of a loop may be executed."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


def _condition(value: Any, what: str) -> Expr:
    condition = as_scalar(value)
    if condition.dtype != "bool":
        raise TypeError(f"{what}: the condition is a bool, got {condition} of type {condition.ty}")
    return condition


class For(Stmt):
    """Run `body` with `loop_var` = `min`, `min` + `step`, ... below `min` + `extent`.  A `step` of
    None means 1."""

    __slots__ = ("annotations", "body", "extent", "kind", "loop_var", "min", "step",
                 "thread_binding")  # fmt: skip
    FIELDS = ("min", "extent", "step", "loop_var", "kind", "thread_binding", "annotations", "body")
    DEFS = frozenset({"loop_var"})

    loop_var: Var
    min: Expr
    extent: Expr
    kind: ForKind
    body: Stmt
    thread_binding: IterVar | None
    annotations: Attrs
    step: Expr | None

    def __init__(
        self,
        loop_var: Var,
        min: Any,  # noqa: A002
        extent: Any,
        kind: int,
        body: Stmt,
        thread_binding: IterVar | None = None,
        annotations: Mapping[str, Any] | None = None,
        step: Any = None,
        span: Any = None,
    ) -> None:
        dtype = loop_var.ty.dtype
        self.loop_var = loop_var
        self.min = cast_index(as_index(min, dtype), dtype)
        self.extent = cast_index(as_index(extent, dtype), dtype)
        self.kind = ForKind(kind)
        self.body = body
        self.thread_binding = thread_binding
        self.annotations = Attrs(annotations or {})
        self.step = None if step is None else cast_index(as_index(step, dtype), dtype)
        if type(self.step) is IntImm:
            if self.step.value <= 0:
                raise ValueError(f"loop {loop_var.name}: the step is {self.step.value}")
            if self.step.value == 1:
                self.step = None
        self.span = span
        count_parts(self)


class While(Stmt):
    """Run `body` while `condition` is true."""

    __slots__ = ("body", "condition")
    FIELDS = ("condition", "body")

    condition: Expr
    body: Stmt

    def __init__(self, condition: Any, body: Stmt, span: Any = None) -> None:
        self.condition = _condition(condition, "while")
        self.body = body
        self.span = span
        count_parts(self)


class BufferStore(Stmt):
    """``buffer[indices] = value``.

    Raises:
        TypeError: the value is not of the buffer's data type.
        ValueError: the number of indices is not the buffer's number of dimensions.
    """

    __slots__ = ("buffer", "indices", "value")
    FIELDS = ("buffer", "value", "indices")

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]

    def __init__(
        self, buffer: Buffer, value: Any, indices: Sequence[Any], span: Any = None
    ) -> None:
        dtype = buffer.ty.dtype
        if not isinstance(value, Expr):
            value = as_scalar(value, dtype)
        ty = value.ty
        if type(ty) is not PrimType or ty.dtype != dtype:
            raise TypeError(
                f"store into buffer {buffer.name} of {dtype}: got {value} of type {ty}; cast it"
            )
        self.buffer = buffer
        self.value = value
        self.indices = indices_of(buffer, indices)
        self.span = span
        count_parts(self)


class Bind(Stmt):
    """``var = value``; in scope for the later statements of the same sequence."""

    __slots__ = ("value", "var")
    FIELDS = ("value", "var")
    DEFS = frozenset({"var"})

    var: Var
    value: Expr

    def __init__(self, var: Var, value: Any, span: Any = None) -> None:
        self.var = var
        self.value = cast(as_scalar(value, var.ty.dtype), var.ty.dtype)
        self.span = span
        count_parts(self)


class AllocBuffer(Stmt):
    """Allocate a buffer; in scope for the later statements of the same sequence."""

    __slots__ = ("annotations", "buffer")
    FIELDS = ("buffer", "annotations")
    DEFS = frozenset({"buffer"})

    buffer: Buffer
    annotations: Attrs

    def __init__(
        self, buffer: Buffer, annotations: Mapping[str, Any] | None = None, span: Any = None
    ) -> None:
        self.buffer = buffer
        self.annotations = Attrs(annotations or {})
        self.span = span
        count_parts(self)


class AssertStmt(Stmt):
    """Raise an exception of class `kind` unless `condition` is true; the message is the joined
    `message_parts`."""

    __slots__ = ("condition", "kind", "message_parts")
    FIELDS = ("kind", "condition", "message_parts")

    kind: StringImm
    condition: Expr
    message_parts: tuple[StringImm, ...]

    def __init__(
        self,
        kind: StringImm | str,
        condition: Any,
        message_parts: Iterable[StringImm | str] = (),
        span: Any = None,
    ) -> None:
        self.kind = StringImm(kind) if isinstance(kind, str) else kind
        self.condition = _condition(condition, "assert")
        self.message_parts = tuple(
            [StringImm(part) if isinstance(part, str) else part for part in message_parts]
        )
        self.span = span
        count_parts(self)


class AttrStmt(Stmt):
    """`body` with an annotation, which is ignored by lowering."""

    __slots__ = ("attr_key", "body", "node", "value")
    FIELDS = ("node", "attr_key", "value", "body")

    node: Any
    attr_key: str
    value: Expr
    body: Stmt

    def __init__(self, node: Any, attr_key: str, value: Any, body: Stmt, span: Any = None) -> None:
        self.node = node
        self.attr_key = attr_key
        self.value = StringImm(value) if isinstance(value, str) else (
            as_index(value) if isinstance(value, int) else as_scalar(value)
        )  # fmt: skip
        self.body = body
        self.span = span
        count_parts(self)


class SeqStmt(Stmt):
    """A sequence of statements; nested sequences are flattened."""

    __slots__ = ("seq",)
    FIELDS = ("seq",)

    seq: tuple[Stmt, ...]

    def __init__(self, seq: Iterable[Stmt], span: Any = None) -> None:
        statements: list[Stmt] = []
        for stmt in seq:
            if type(stmt) is SeqStmt:
                statements += stmt.seq
            else:
                statements.append(stmt)
        self.seq = tuple(statements)
        self.span = span
        count_parts(self)

    def __len__(self) -> int:
        return len(self.seq)

    def __getitem__(self, i: int) -> Stmt:
        return self.seq[i]


def seq(statements: Sequence[Stmt]) -> Stmt:
    """Return a statement for a sequence: the statement itself if there is only one, and
    ``T.evaluate(0)`` if there is none."""
    if len(statements) == 1:
        return statements[0]
    return SeqStmt(statements) if statements else Evaluate(0)


class IfThenElse(Stmt):
    """Run one of two statements; the second may be None."""

    __slots__ = ("condition", "else_case", "then_case")
    FIELDS = ("condition", "then_case", "else_case")

    condition: Expr
    then_case: Stmt
    else_case: Stmt | None

    def __init__(
        self, condition: Any, then_case: Stmt, else_case: Stmt | None = None, span: Any = None
    ) -> None:
        self.condition = _condition(condition, "if")
        self.then_case = then_case
        self.else_case = else_case
        self.span = span
        count_parts(self)


class Evaluate(Stmt):
    """Evaluate an expression for its side effect; a constant does nothing."""

    __slots__ = ("value",)
    FIELDS = ("value",)

    value: Expr

    def __init__(self, value: Any, span: Any = None) -> None:
        if isinstance(value, int) and not isinstance(value, bool):
            value = as_index(value)
        self.value = value if isinstance(value, Expr) else as_scalar(value)
        self.span = span
        count_parts(self)


class MatchBufferRegion(Node):
    """`buffer` denotes a region of another buffer, `source`; dimensions of 1 may be dropped."""

    __slots__ = ("buffer", "source")
    FIELDS = ("source", "buffer")
    DEFS = frozenset({"buffer"})

    buffer: Buffer
    source: BufferRegion

    def __init__(self, buffer: Buffer, source: BufferRegion, span: Any = None) -> None:
        self.buffer = buffer
        self.source = source
        self.span = span


class SBlock(Stmt):
    """A block.

    Attributes:
        iter_vars: its iteration variables.
        reads, writes: the regions it reads and writes.
        name_hint: a name; ignored in comparisons.
        body: the body, a statement.
        init: a statement that runs before the body in the first iteration of a reduction, or None.
        alloc_buffers: buffers that are local to the block.
        match_buffers: buffers that denote regions of other buffers.
        annotations: attributes.
    """

    __slots__ = ("alloc_buffers", "annotations", "body", "init", "iter_vars", "match_buffers",
                 "name_hint", "reads", "writes")  # fmt: skip
    FIELDS = ("iter_vars", "alloc_buffers", "match_buffers", "reads", "writes", "annotations",
              "init", "body")  # fmt: skip
    DEFS = frozenset({"alloc_buffers"})

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None
    alloc_buffers: tuple[Buffer, ...]
    match_buffers: tuple[MatchBufferRegion, ...]
    annotations: Attrs

    def __init__(
        self,
        iter_vars: Iterable[IterVar],
        reads: Iterable[BufferRegion],
        writes: Iterable[BufferRegion],
        name_hint: str,
        body: Stmt,
        init: Stmt | None = None,
        alloc_buffers: Iterable[Buffer] = (),
        match_buffers: Iterable[MatchBufferRegion] = (),
        annotations: Mapping[str, Any] | None = None,
        span: Any = None,
    ) -> None:
        self.iter_vars = tuple(iter_vars)
        self.reads = tuple(reads)
        self.writes = tuple(writes)
        self.name_hint = name_hint
        self.body = body
        self.init = init
        self.alloc_buffers = tuple(alloc_buffers)
        self.match_buffers = tuple(match_buffers)
        self.annotations = Attrs(annotations or {})
        self.span = span
        count_parts(self)


class SBlockRealize(Stmt):
    """Run `block` with its iteration variables bound to `iter_values`, if `predicate` is true.

    Raises:
        ValueError: the numbers of values and variables differ.
    """

    __slots__ = ("block", "iter_values", "predicate")
    FIELDS = ("iter_values", "predicate", "block")

    iter_values: tuple[Expr, ...]
    predicate: Expr
    block: SBlock

    def __init__(
        self, iter_values: Iterable[Any], predicate: Any, block: SBlock, span: Any = None
    ) -> None:
        self.iter_values = tuple(
            [
                cast_index(as_index(value, iv.var.ty.dtype), iv.var.ty.dtype)
                for value, iv in zip(iter_values, block.iter_vars, strict=True)
            ]
        )
        self.predicate = _condition(predicate, f"block {block.name_hint}")
        self.block = block
        self.span = span
        count_parts(self)
