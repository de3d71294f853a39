"""Buffers: views of memory with a shape and a data type, and accesses of them.

A buffer is a variable of `BufferType`, so it may be a parameter of a function.

Source: ``tvm.tirx.buffer`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from ..dtypes import element_dtype
from ..ir.arith import simplify
from ..ir.expr import Expr, IntImm, Operators, PrimType, Type, Var, prim_type
from ..ir.node import Node
from ..ir.parts import check_parts
from ..ir.prim import as_scalar, cast

__all__ = [
    "Buffer",
    "BufferLoad",
    "BufferRegion",
    "BufferType",
    "IterVar",
    "Range",
    "decl_buffer",
    "is_buffer_var",
]

DEFAULT_ALIGNMENT: Final = 64
DEFAULT_INT: Final = "int32"
"""Data type of plain Python numbers in shapes, indices and bounds of TIR."""


class BufferType(Type):
    """The shape and layout of a buffer.

    Attributes:
        dtype: data type of the elements.
        shape: integer scalars.
        strides: the stride of each dimension, in elements; empty for a compact buffer.
        elem_offset: the offset of the first element, in elements, or None for 0.
        storage_scope: such as "global"; all scopes are main memory here.
        data_alignment, offset_factor: guaranteed alignment of the memory in bytes, and factor of
            the offset in elements.
    """

    __slots__ = ("data_alignment", "dtype", "elem_offset", "offset_factor", "shape",
                 "storage_scope", "strides")  # fmt: skip
    FIELDS = ("shape", "dtype", "strides", "elem_offset", "storage_scope", "data_alignment",
              "offset_factor")  # fmt: skip

    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    elem_offset: Expr | None
    storage_scope: str
    data_alignment: int
    offset_factor: int

    def __init__(
        self,
        shape: Sequence[Any],
        dtype: str = "float32",
        strides: Sequence[Any] = (),
        elem_offset: Any = None,
        storage_scope: str = "global",
        data_alignment: int = DEFAULT_ALIGNMENT,
        offset_factor: int = 1,
        span: Any = None,
    ) -> None:
        self.shape = as_dims(shape)
        self.dtype = element_dtype(str(dtype))
        self.strides = as_dims(strides)
        if self.strides and len(self.strides) != len(self.shape):
            raise ValueError(
                f"a buffer of {len(self.shape)} dimensions has {len(self.strides)} strides"
            )
        self.elem_offset = None if elem_offset is None else as_index(elem_offset)
        if type(self.elem_offset) is IntImm and self.elem_offset.value == 0:
            self.elem_offset = None
        self.storage_scope = storage_scope or "global"
        self.data_alignment = DEFAULT_ALIGNMENT if data_alignment <= 0 else data_alignment
        self.offset_factor = offset_factor or 1
        self.span = span


def as_index(value: Any, dtype: str = DEFAULT_INT) -> Expr:
    """Return an integer scalar; a Python number gets `dtype`, or int64 if it does not fit.

    Raises:
        TypeError: the value is not an integer.
    """
    if not isinstance(value, Operators):
        number = value.__index__() if hasattr(value, "__index__") else None
        if number is None:
            raise TypeError(f"expected an integer scalar, got {type(value).__name__}")
        if dtype == "int32" and not -(2**31) <= number < 2**31:
            dtype = "int64"
        return as_scalar(number, dtype)
    expr: Expr = value.as_expr()
    ty = expr.ty
    if type(ty) is not PrimType or not ty.dtype.startswith(("int", "uint", "bool")):
        raise TypeError(f"expected an integer scalar, got {expr} of type {ty}")
    return expr


def as_dims(shape: Any) -> tuple[Expr, ...]:
    """Return the dimensions of a shape; a single integer is a shape of one dimension."""
    if isinstance(shape, (int, Expr)) and not hasattr(shape, "values"):
        shape = (shape,)
    return tuple([as_index(dim) for dim in shape])


class Buffer(Var):
    """A buffer variable.  ``buffer[i, j]`` is an element (`BufferLoad`); with a slice among the
    indices it is a `BufferRegion`."""

    __slots__ = ()

    ty: BufferType

    def __init__(self, name: str, ty: BufferType, span: Any = None) -> None:
        super().__init__(name, ty, span)

    @property
    def dtype(self) -> str:
        return self.ty.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        """The dimensions."""
        return self.ty.shape

    @property
    def strides(self) -> tuple[Expr, ...]:
        """The strides in elements; empty for a compact buffer."""
        return self.ty.strides

    @property
    def elem_offset(self) -> Expr | None:
        """The offset of the first element, in elements, or None for 0."""
        return self.ty.elem_offset

    @property
    def data_alignment(self) -> int:
        """The alignment of the address, in bytes."""
        return self.ty.data_alignment

    @property
    def offset_factor(self) -> int:
        """A factor of `elem_offset`."""
        return self.ty.offset_factor

    def scope(self) -> str:
        """The storage scope."""
        return self.ty.storage_scope

    def __getitem__(self, index: Any) -> Any:
        indices = index if isinstance(index, tuple) else (index,)
        if any(isinstance(i, (slice, Range)) for i in indices):
            return BufferRegion(
                self, [_range_of(i, d) for i, d in zip(indices, self.shape, strict=True)]
            )
        return BufferLoad(self, indices)


def _range_of(index: Any, dim: Expr) -> Range:
    if isinstance(index, Range):
        return index
    if isinstance(index, slice):
        if index.step is not None:
            raise ValueError("the slice of a region has no step")
        start = as_index(0, dim.dtype) if index.start is None else as_index(index.start)
        stop = dim if index.stop is None else as_index(index.stop)
        return Range(start, simplify(stop - start))
    return Range.point(as_index(index))


def decl_buffer(
    shape: Any,
    dtype: str | None = None,
    name: str = "buffer",
    data: None = None,
    strides: Sequence[Any] | None = None,
    elem_offset: Any = None,
    scope: str = "",
    data_alignment: int = -1,
    offset_factor: int = 0,
    span: Any = None,
) -> Buffer:
    """Return a new buffer of the given shape and data type (default float32).  If `offset_factor`
    is given and `elem_offset` is not, the offset is a new variable.

    Raises:
        ValueError: `data` is given: a buffer has memory of its own, or that of a parameter.
    """
    if data is not None:
        raise ValueError(
            "data: expected None, since a buffer has memory of its own; a part of another buffer "
            f"is what T.match_buffer in a block makes; got {data}"
        )
    if offset_factor and elem_offset is None:
        elem_offset = Var(f"{name}_elem_offset", DEFAULT_INT)
    ty = BufferType(
        as_dims(shape), dtype or "float32", strides or (), elem_offset, scope or "global",
        data_alignment, offset_factor,
    )  # fmt: skip
    return Buffer(name, ty, span)


def is_buffer_var(value: object) -> TypeGuard[Buffer]:
    """Check whether a value is a buffer."""
    return isinstance(value, Buffer)


class BufferLoad(Expr):
    """An element of a buffer, a scalar.

    Raises:
        ValueError: the number of indices is not the buffer's number of dimensions.
    """

    __slots__ = ("_parts", "buffer", "indices")
    FIELDS = ("buffer", "indices")

    buffer: Buffer
    indices: tuple[Expr, ...]

    def __init__(self, buffer: Buffer, indices: Sequence[Any], span: Any = None) -> None:
        self.buffer = buffer
        self.indices = indices_of(buffer, indices)
        self._parts = check_parts(1 + sum([index._parts for index in self.indices]))
        self.ty = prim_type(buffer.ty.dtype)
        self.span = span


def indices_of(buffer: Buffer, indices: Sequence[Any]) -> tuple[Expr, ...]:
    """Return indices into a buffer as integer scalars, one for each dimension."""
    if len(indices) != len(buffer.ty.shape):
        raise ValueError(
            f"buffer {buffer.name} has {len(buffer.ty.shape)} dimensions, got {len(indices)} "
            f"{'index' if len(indices) == 1 else 'indices'}"
        )
    return tuple([as_index(i) for i in indices])


class Range(Node):
    """The integers from `min` to before `min` + `extent`."""

    __slots__ = ("extent", "min")
    FIELDS = ("min", "extent")

    min: Expr
    extent: Expr

    def __init__(self, min: Any, extent: Any, span: Any = None) -> None:  # noqa: A002
        self.min = as_index(min)
        self.extent = as_index(extent)
        self.span = span

    @classmethod
    def from_min_extent(cls, min: Any, extent: Any) -> Range:  # noqa: A002
        """The integers from `min` to before `min` + `extent`."""
        return cls(min, extent)

    @classmethod
    def to(cls, end: Any) -> Range:
        """The integers from 0 to before `end`."""
        end = as_index(end)
        return cls(as_index(0, end.dtype), end)

    @classmethod
    def point(cls, index: Expr) -> Range:
        """One integer."""
        return cls(index, as_index(1, index.dtype))

    @property
    def is_point(self) -> bool:
        """Check whether it is certainly a single integer."""
        return type(self.extent) is IntImm and self.extent.value == 1


class BufferRegion(Node):
    """A part of a buffer: a range along each dimension."""

    __slots__ = ("buffer", "region")
    FIELDS = ("buffer", "region")

    buffer: Buffer
    region: tuple[Range, ...]

    def __init__(self, buffer: Buffer, region: Sequence[Range], span: Any = None) -> None:
        if len(region) != len(buffer.ty.shape):
            raise ValueError(
                f"buffer {buffer.name} has {len(buffer.ty.shape)} dimensions, the region "
                f"{len(region)}"
            )
        self.buffer = buffer
        self.region = tuple(region)
        self.span = span


class IterVar(Operators, Node):
    """An iteration variable with its range and its kind: `DATA_PAR` (spatial), `COMM_REDUCE`
    (reduce), `ORDERED` (scan), `OPAQUE`, `THREAD`.  In expressions it converts to its variable."""

    __slots__ = ("dom", "iter_type", "thread_tag", "var")
    FIELDS = ("dom", "var", "iter_type", "thread_tag")
    DEFS = frozenset({"var"})

    DATA_PAR: Final = 0
    THREAD: Final = 1
    COMM_REDUCE: Final = 2
    ORDERED: Final = 3
    OPAQUE: Final = 4

    dom: Range | None
    var: Var
    iter_type: int
    thread_tag: str

    def __init__(
        self,
        dom: Range | None,
        var: Var | str,
        iter_type: int,
        thread_tag: str = "",
        span: Any = None,
    ) -> None:
        self.dom = dom
        self.var = Var(var, DEFAULT_INT if dom is None else dom.extent.dtype) if isinstance(
            var, str) else var  # fmt: skip
        self.iter_type = iter_type
        self.thread_tag = thread_tag
        self.span = span

    def as_expr(self) -> Var:
        return self.var


def cast_index(value: Expr, dtype: str) -> Expr:
    """Convert an index to another integer data type."""
    return value if value.dtype == dtype else cast(value, dtype)
