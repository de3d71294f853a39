"""Values of a graph while it is imported.

Much of a model computes shapes: `Shape`, `Gather`, `Concat`, `Slice` and arithmetic on a few
integers.  So a value knows its elements where it can: numbers, or expressions of symbolic
dimensions, in an array.  Operators that have a `fold` compute such elements while the model is
imported; what is left over is what runs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from ...dtypes import dtype_name
from ...ir import Constant, Expr, IntImm, ShapeExpr, TensorType, TupleType, Type, Var, int_imm
from ...ir.arith import Analyzer, free_vars, prove_equal, simplify
from ...ir.expr import MOST_AXES
from ...ir.infer import infer_type

__all__ = [
    "MOST_FOLDED",
    "Kind",
    "MapKind",
    "Opaque",
    "OptionalKind",
    "SequenceKind",
    "TensorKind",
    "Value",
    "closed",
    "elements_of",
    "is_never_negative",
    "is_symbolic",
    "joined",
    "kind_of",
]

MOST_FOLDED: Final = 4096
"""The most elements that are computed while a model is imported."""


class TensorKind(NamedTuple):
    """What is known of a tensor; None for what is not known.

    Attributes:
        dtype: data type of the elements by name.
        ndim: the rank, or -1.
        dims: the dimensions, each of which may be None.
    """

    dtype: str | None = None
    ndim: int = -1
    dims: tuple[Expr | None, ...] | None = None


class SequenceKind(NamedTuple):
    """A sequence: a tuple, whose length is not known.

    Attributes:
        element: what all elements are; dimensions are numbers.
    """

    element: Kind


class OptionalKind(NamedTuple):
    """A value that may be None.

    Attributes:
        element: what it is if it is not None.
    """

    element: Kind


class MapKind(NamedTuple):
    """A map: a dict.

    Attributes:
        key: data type of the keys by name; "str" for strings.
        dtype: data type of the values by name; "str" for strings.
    """

    key: str
    dtype: str


class Opaque(NamedTuple):
    """A value that only the program looks at, such as the chain of a loop's results."""


# Types of Python 3.10 cannot be forward references in unions that are written with |.
Kind: TypeAlias = Union[TensorKind, SequenceKind, OptionalKind, MapKind, Opaque]  # noqa: UP007


class Value:
    """A tensor, sequence, map or optional value of a graph.

    Attributes:
        expr: the expression of the program; None for one that is only known by its elements, until
            it is needed.
        known: the elements, if they are known: an array of numbers; or an int64 array of objects
            if some are expressions of dimensions; or strings.
        dtype: the data type of the elements by name; "str" for strings; None if it is no tensor.
        compound: what it is if it is no tensor.
        strings: the table and the indices of strings; see `relaxvm.frontend.onnx.strings`.
    """

    __slots__ = ("compound", "dtype", "expr", "known", "strings")

    def __init__(
        self,
        expr: Expr | None = None,
        known: NDArray[Any] | None = None,
        dtype: str | None = None,
        compound: SequenceKind | OptionalKind | MapKind | Opaque | None = None,
        strings: tuple[Expr, Value] | None = None,
    ) -> None:
        self.strings = strings
        self.expr = expr
        self.known = known
        self.compound = compound
        if dtype is None:
            if known is not None:
                dtype = _dtype_of(known)
            elif type(self.type) is TensorType:
                dtype = self.type.dtype
        self.dtype = dtype

    @property
    def type(self) -> Type:
        """The type of the value; of strings that of their indices."""
        if self.strings is not None:
            return self.strings[1].type
        if self.known is not None and (self.expr is None or self.dtype == "str"):
            return TensorType(self.known.shape, "int64" if self.dtype == "str" else self.dtype)
        assert self.expr is not None
        if self.expr.ty is None:
            infer_type(self.expr)
        ty: Type = self.expr.ty
        return ty

    @property
    def ndim(self) -> int:
        """The rank; -1 if it is not known."""
        ty = self.type
        return ty.ndim if type(ty) is TensorType else -1

    @property
    def dims(self) -> tuple[Expr, ...] | None:
        """The dimensions; None if they are not known."""
        ty = self.type
        return None if type(ty) is not TensorType or ty.dims is None else tuple(ty.dims)

    def lengths(self, start: int = 0) -> list[int] | None:
        """The dimensions from one on as numbers; None if one of them is not known."""
        dims = self.dims
        if dims is None:
            return None
        found = [dim.value for dim in dims[start:] if isinstance(dim, IntImm)]
        return found if len(found) == len(dims[start:]) else None

    @property
    def places(self) -> list[int] | None:
        """The axes that a vector of a number for each axis is about; None if its length is not
        known.

        Raises:
            ValueError: it is longer than tensors have axes.
        """
        count = self.length
        if count is not None and count > MOST_AXES:
            raise ValueError(f"expected a number for each axis, got a vector of {count}")
        return None if count is None else list(range(count))

    @property
    def length(self) -> int | None:
        """The number of elements of a vector; None if it is not known."""
        if self.known is not None:
            return int(self.known.size)
        dims = self.dims
        return dims[0].value if dims and isinstance(dims[0], IntImm) else None

    @property
    def fields(self) -> tuple[Type, ...] | None:
        """The types of the elements of a sequence; None if their number is not known."""
        ty = self.type
        return tuple(ty.fields) if type(ty) is TupleType else None

    def shape(self) -> ShapeExpr | None:
        """The shape as an expression."""
        dims = self.dims
        return None if dims is None else ShapeExpr(dims)

    def ints(self) -> list[Any] | None:
        """The elements as a list of ints and expressions; None if they are not known."""
        return None if self.known is None else elements_of(self.known)

    def constant(self) -> NDArray[Any] | None:
        """The elements as an array of numbers; None if they are not known."""
        if self.known is not None and self.known.dtype != object:
            return self.known
        if self.known is None and isinstance(self.expr, Constant):
            data: NDArray[Any] = self.expr.data
            return data
        return None

    def __repr__(self) -> str:
        return f"<Value {self.known if self.expr is None else self.expr}: {self.type}>"


def _dtype_of(known: NDArray[Any]) -> str:
    if known.dtype != object:
        return dtype_name(known.dtype)
    return "str" if known.size and isinstance(known.flat[0], str) else "int64"


def kind_of(value: Value) -> Kind:
    """What is known of a value, without its elements."""
    return value.compound or _kind_of_type(value.type, value.dtype)


def _kind_of_type(ty: Type, dtype: str | None = None) -> Kind:
    if type(ty) is TensorType:
        dims = None if ty.dims is None else tuple(ty.dims)
        return TensorKind(dtype or ty.dtype, ty.ndim, dims)
    if type(ty) is TupleType:
        found: Kind | None = None
        for field in ty.fields:
            kind = _kind_of_type(field)
            found = kind if found is None else joined(found, kind)
        return SequenceKind(closed(found or TensorKind()))
    return Opaque()


def joined(a: Kind, b: Kind) -> Kind:
    """What is known of a value that is one of two kinds."""
    if isinstance(a, OptionalKind) or isinstance(b, OptionalKind):
        x = a.element if isinstance(a, OptionalKind) else a
        y = b.element if isinstance(b, OptionalKind) else b
        return OptionalKind(joined(x, y))
    if isinstance(a, SequenceKind) and isinstance(b, SequenceKind):
        return SequenceKind(joined(a.element, b.element))
    if a == b and isinstance(a, MapKind):
        return a
    if not isinstance(a, TensorKind) or not isinstance(b, TensorKind):
        return Opaque()
    dims = None
    if a.dims is not None and b.dims is not None and len(a.dims) == len(b.dims):
        dims = tuple([_joined_dim(x, y) for x, y in zip(a.dims, b.dims, strict=True)])
    return TensorKind(
        a.dtype if a.dtype == b.dtype else None, a.ndim if a.ndim == b.ndim else -1, dims
    )


def _joined_dim(a: Expr | None, b: Expr | None) -> Expr | None:
    return a if a is not None and b is not None and prove_equal(a, b) else None


def closed(kind: Kind, visible: Collection[Var] = ()) -> Kind:
    """The kind without dimensions that mention other symbolic variables than `visible`."""
    if isinstance(kind, SequenceKind):
        return SequenceKind(closed(kind.element, visible))
    if isinstance(kind, OptionalKind):
        return OptionalKind(closed(kind.element, visible))
    if not isinstance(kind, TensorKind) or kind.dims is None:
        return kind
    dims = [
        dim if dim is not None and all(v in visible for v in free_vars(dim)) else None
        for dim in kind.dims
    ]
    return kind._replace(dims=tuple(dims))


def is_symbolic(array: NDArray[Any]) -> bool:
    """Whether elements are expressions rather than numbers."""
    return array.dtype == object and any(isinstance(each, Expr) for each in array.flat)


def elements_of(array: NDArray[Any]) -> list[Any]:
    """The elements as ints and expressions; expressions that are numbers become ints."""
    return [_plain(each) for each in array.reshape(-1).tolist()]


def is_never_negative(element: Any) -> bool:
    """Whether an element of a shape computation is 0 or more for all lengths of dimensions."""
    if not isinstance(element, Expr):
        return bool(element >= 0)
    analyzer = Analyzer()
    for var in free_vars(element):
        analyzer.bind(var, 0)
    return analyzer.const_bounds(element)[0] >= 0


def _plain(element: Any) -> Any:
    if isinstance(element, Expr):
        element = simplify(element)
        return element.value if isinstance(element, IntImm) else element
    return element


def normalized(array: NDArray[Any]) -> NDArray[Any]:
    """An array of objects with simplified elements; of int64 if all of them are numbers."""
    if array.dtype != object:
        return array
    found = np.empty(array.shape, object)
    found.reshape(-1)[:] = elements_of(array)
    if all(isinstance(each, int) for each in found.flat):
        return found.astype(np.int64)
    return found


def as_expr(element: Any) -> Expr:
    """An element of a shape as an expression."""
    return element if isinstance(element, Expr) else int_imm(int(element))
