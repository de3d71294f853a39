"""Markers: the values of statements of TIR, such as ``T.reads(...)``, for the parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from ..ir.expr import Expr, IntImm, Var, prim_type
from ..ir.prim import as_scalar, cast
from ..tir.buffer import Buffer, BufferLoad, BufferRegion, Range, as_index, decl_buffer
from ..tir.stmt import ForKind
from .scope import CURRENT

__all__ = [
    "PLAIN_INT",
    "Alloc",
    "Attribute",
    "Axes",
    "Axis",
    "BlockAlloc",
    "BlockAttrs",
    "BlockFrame",
    "EvaluateForm",
    "InitFrame",
    "Let",
    "LetType",
    "LoopFrame",
    "Match",
    "Regions",
    "Where",
    "make_buffer",
]

PLAIN_INT: ContextVar[str] = ContextVar("relaxvm_plain_int", default="int64")
"""Data type of a plain integer if no other operand determines it: int32 in TIR."""


class LoopFrame:
    """``range(...)``, ``T.grid(...)`` and other loops: one range for each variable."""

    __slots__ = ("annotations", "kind", "ranges", "step", "thread")

    def __init__(
        self,
        kind: ForKind,
        ranges: Sequence[Range],
        step: Expr | None = None,
        annotations: Mapping[str, Any] | None = None,
        thread: str = "",
    ) -> None:
        self.kind = kind
        self.ranges = list(ranges)
        self.step = step
        self.annotations = annotations
        self.thread = thread


class BlockFrame:
    """``T.sblock(name)``"""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class InitFrame:
    """``T.init()``"""

    __slots__ = ()


class Attribute:
    """``T.attr(node, key, value)``"""

    __slots__ = ("key", "node", "value")

    def __init__(self, node: Any, key: str, value: Any) -> None:
        self.node = node
        self.key = key
        self.value = value


class Axis:
    """``T.axis.spatial(...)`` and the other kinds; in a remap `dom` is None: it is the loop's."""

    __slots__ = ("dom", "kind", "value")

    def __init__(self, kind: int, dom: Range | None, value: Expr) -> None:
        self.kind = kind
        self.dom = dom
        self.value = value


class Axes:
    """``T.axis.remap(kinds, values)``"""

    __slots__ = ("axes",)

    def __init__(self, axes: list[Axis]) -> None:
        self.axes = axes


class Regions:
    """``T.reads(...)`` and ``T.writes(...)``"""

    __slots__ = ("is_read", "regions")

    def __init__(self, is_read: bool, regions: Sequence[Any]) -> None:
        self.is_read = is_read
        self.regions = [_region(r) for r in regions]


def _region(value: Any) -> BufferRegion:
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, BufferLoad):
        return BufferRegion(value.buffer, [Range.point(i) for i in value.indices])
    if isinstance(value, Buffer):
        return BufferRegion(value, [Range.to(dim) for dim in value.shape])
    raise TypeError(f"expected a region of a buffer such as A[0:n, i], got {value!r}")


class Where:
    """``T.where(condition)``"""

    __slots__ = ("condition",)

    def __init__(self, condition: Any) -> None:
        self.condition = as_scalar(condition)


class BlockAttrs:
    """``T.sblock_attr({...})``"""

    __slots__ = ("attrs",)

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs = dict(attrs)


class BlockAlloc:
    """``T.sblock_alloc_buffer(...)``"""

    __slots__ = ("buffer",)

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class Alloc:
    """``T.alloc_buffer(...)``"""

    __slots__ = ("annotations", "buffer")

    def __init__(self, buffer: Buffer, annotations: Mapping[str, Any] | None) -> None:
        self.buffer = buffer
        self.annotations = annotations


class Match:
    """``T.match_buffer(source, ...)``, where the source is a handle or a region."""

    __slots__ = ("buffer", "source")

    def __init__(self, source: Any, buffer: Buffer) -> None:
        self.source = source if isinstance(source, Expr) and not isinstance(
            source, (Buffer, BufferLoad)) else _region(source)  # fmt: skip
        self.buffer = buffer


class Let:
    """``T.bind(value)``"""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = as_scalar(value)


class LetType:
    """``T.let`` and ``T.let[T.int32]``: an annotation."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str | None = None) -> None:
        self.dtype = dtype

    def __getitem__(self, ty: Any) -> LetType:
        return LetType(getattr(ty, "dtype", str(ty)))


class EvaluateForm:
    """``T.evaluate(value)``"""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def make_buffer(
    shape: Any,
    dtype: str = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
) -> Buffer:
    """Return a buffer without a name; strings in its shape are expressions."""
    if isinstance(shape, (str, int, Expr)):
        shape = (shape,)
    return decl_buffer(
        [_dim(dim) for dim in shape],
        str(getattr(dtype, "dtype", dtype)),
        "",
        data,
        None if strides is None else [_dim(s) for s in strides],
        None if elem_offset is None else _dim(elem_offset),
        scope,
        align,
        offset_factor,
    )


def _dim(dim: Any) -> Any:
    if not isinstance(dim, str):
        return dim
    parser = CURRENT.get()
    # Without a parser, Python is evaluating an annotation before the decorator is called.
    return Var(dim, prim_type("int64")) if parser is None else parser.dimension(dim)


_ZERO: Final = IntImm("int32", 0)


def range_to(start: Any, stop: Any = None, dtype: str | None = None) -> Range:
    """Return ``range(stop)`` or ``range(start, stop)``, in a data type or the wider of theirs."""
    from ..ir.arith import simplify

    if dtype is not None:
        start = cast(as_index(start), dtype)
        stop = None if stop is None else cast(as_index(stop), dtype)

    if stop is None:
        return Range.to(as_index(start))
    low, high = as_index(start), as_index(stop)
    if isinstance(start, int):
        low = cast(low, high.dtype)
    elif isinstance(stop, int):
        high = cast(high, low.dtype)
    return Range(low, simplify(high - low))
