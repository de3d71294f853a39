"""The cases of the operators with less, more or something else known of their operands.

`variants` makes of a case one in which the tensors have symbolic shapes, ranks alone, no known
rank, no known data type, and, one tensor at a time, another rank or another data type.  A `Variant`
is evaluated with relaxvm's names or with apache-tvm's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from .notation import DTYPES, SYMBOLS

__all__ = ["DIMENSIONS", "Variant", "names_of", "variants"]

DIMENSIONS: Final = {2: 3001, 3: 3011, 4: 3019, 5: 3023, 6: 3037, 7: 3041, 8: 3049, 9: 3061}
"""Length -> the value by which types with a symbol in its place are compared."""

OTHER_DTYPES: Final = ("int64", "bool", "float64")

Tensor = tuple[tuple[Any, ...] | None, int, "str | None"]
"""Dimensions, rank and data type of a tensor of a case."""


class Variant(NamedTuple):
    """A change of the tensors of a case.

    Attributes:
        kind: its name.
        place: the position of the tensor that is changed; None for all.
    """

    kind: str
    place: int | None = None

    def __str__(self) -> str:
        return self.kind if self.place is None else f"{self.kind} {'abcdefgh'[self.place]}"

    def changed(self, tensor: Tensor, place: int, symbol: Callable[[int], Any]) -> Tensor:
        """A tensor of the case as the variant has it."""
        dims, ndim, dtype = tensor
        if self.place not in (None, place):
            return tensor
        if self.kind == "symbolic":
            if dims is not None:
                dims = tuple([symbol(d) if isinstance(d, int) and d > 1 else d for d in dims])
        elif self.kind == "rank":
            dims = None
        elif self.kind == "unknown":
            dims, ndim = None, -1
        elif self.kind == "untyped":
            dtype = None
        elif self.kind == "more":
            dims, ndim = (None if dims is None else (2, *dims)), ndim + (ndim >= 0)
        elif self.kind == "less":
            dims, ndim = (None if dims is None else dims[1:]), max(ndim - 1, -1)
        elif self.kind in OTHER_DTYPES:
            dtype = self.kind
        return dims, ndim, dtype


def variants(case: str) -> Iterator[Variant]:
    """The variants of a case."""
    count = len(re.findall(rf"\b(?:{'|'.join(DTYPES)}|rank|tensor)\(", case))
    yield Variant("itself")
    for kind in ("symbolic", "rank", "unknown", "untyped"):
        yield Variant(kind)
        if count > 1 and kind != "symbolic":
            for place in range(count):
                yield Variant(kind, place)
    for kind in ("more", "less", *OTHER_DTYPES):
        for place in range(count):
            yield Variant(kind, place)


class _Names(dict[str, Any]):
    """The names of `notation.Namespace`, for one library."""

    def __init__(self, library: Any, variant: Variant) -> None:
        super().__init__({name: library.symbol(name) for name in SYMBOLS})
        self.made: list[Any] = []
        self._library, self._variant = library, variant
        self._symbols: dict[int, Any] = {}
        for name, dtype in DTYPES.items():
            self[name] = self._maker(dtype)
        self["rank"] = lambda ndim, dtype="float32": self._tensor((None, ndim, dtype))
        self["tensor"] = lambda dtype="float32": self._tensor((None, -1, dtype))
        self["shape"], self["const"] = library.shape, library.const
        self["shape_var"] = lambda ndim: self._var(library.shape_type(ndim))
        self["of_shape"] = lambda shape: self._var(library.tensor_type(shape, "float32", -1))
        self["pair"] = self._pair

    def _pair(self, *parts: Any) -> Any:
        for part in parts:
            self.made.remove(part)
        return self._var(self._library.tuple_type([part.ty for part in parts]))

    def _maker(self, dtype: str | None) -> Any:
        return lambda *dims: self._tensor((dims, len(dims), dtype))

    def _symbol(self, length: int) -> Any:
        return self._symbols.setdefault(length, self._library.symbol(f"s{length}"))

    def _tensor(self, tensor: Tensor) -> Any:
        dims, ndim, dtype = self._variant.changed(tensor, len(self.made), self._symbol)
        return self._var(self._library.tensor_type(dims, dtype, -1 if dims is not None else ndim))

    def _var(self, ty: Any) -> Any:
        var = self._library.var("abcdefgh"[len(self.made)], ty)
        self.made.append(var)
        return var

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self._library.op, name)
        except AttributeError:
            raise KeyError(name) from None


class _Relaxvm:
    def __init__(self) -> None:
        from relaxvm import ir, op

        self.op, self.shape_type = op, lambda ndim: ir.ShapeType(ndim=ndim)
        self.shape, self.const = (lambda *dims: ir.ShapeExpr(dims)), ir.const
        self.tensor_type = lambda dims, dtype, ndim: ir.TensorType(dims, dtype, None, ndim)
        self.tuple_type, self.var = ir.TupleType, ir.Var
        self.symbol = lambda name: ir.Var(name, "int64")


class _Tvm:
    def __init__(self) -> None:
        from tvm import relax, tirx

        self.op, self.shape_type = relax.op, lambda ndim: relax.ShapeType(ndim=ndim)
        self.shape, self.const = (lambda *dims: relax.ShapeExpr(dims)), relax.const
        self.tensor_type = lambda dims, dtype, ndim: relax.TensorType(dims, dtype, ndim=ndim)
        self.tuple_type, self.var = relax.TupleType, relax.Var
        self.symbol = lambda name: tirx.Var(name, "int64")


_LIBRARIES: Final[dict[str, Any]] = {"relaxvm": _Relaxvm, "tvm": _Tvm}


def names_of(library: str, variant: Variant) -> dict[str, Any]:
    """The names that the text of a case is evaluated with."""
    return _Names(_LIBRARIES[library](), variant)
