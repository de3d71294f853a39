"""Types as they are written: ``R.Tensor(("n", "m"), "float32")``.

A type in which a dimension or a device is named by a string is a `PendingType` until the signature
is known: Python itself evaluates the annotations of a decorated function, long before the parser.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ..ir.expr import (
    ANY,
    Expr,
    FuncType,
    ShapeExpr,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    Var,
    prim_type,
)
from ..ir.module import VDevice
from ..values import describe, element_dtype
from .scope import CURRENT

__all__ = [
    "TYPE_MAKERS",
    "DTypeMaker",
    "PendingType",
    "annotation",
    "type_of",
    "types_of",
]


class PendingType:
    """A type whose strings are not resolved yet.

    Attributes:
        strings: the dimensions that are given as strings.
        resolve: makes the type, given what makes a scalar of such a string.
    """

    __slots__ = ("resolve", "strings")

    def __init__(
        self, strings: Sequence[str], resolve: Callable[[Callable[[str], Expr]], Type]
    ) -> None:
        self.strings = tuple(strings)
        self.resolve = resolve

    def __repr__(self) -> str:
        return f"<type with dimensions {', '.join(self.strings) or 'and a device'} by name>"


class DTypeMaker:
    """``T.int64``: called without arguments a new symbolic variable, with a number a constant, with
    a scalar its conversion; as a type the scalars of that data type."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, value: Any = None) -> Expr:
        from ..ir.prim import cast, immediate, is_float

        if value is None:
            return Var("", self.dtype)
        if isinstance(value, Expr):
            return cast(value, self.dtype)
        return immediate(self.dtype, float(value) if is_float(self.dtype) else value)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


def annotation(value: Any) -> Type | PendingType:
    """A value that stands where a type is expected, as a type; None is the empty tuple.

    Raises:
        TypeError: it is no type.
    """
    if isinstance(value, (Type, PendingType)):
        return value
    if value is None:
        return TupleType(())
    if isinstance(value, DTypeMaker):
        return prim_type(value.dtype)
    maker = TYPE_MAKERS.get(value) if callable(value) else None
    if maker is not None:
        return annotation(maker())
    raise TypeError(f'expected a type such as R.Tensor((2, 3), "float32"), got {describe(value)}')


def type_of(value: Any) -> Type:
    """The same where no new names may be declared.

    Raises:
        TypeError: it is no type, or has names outside of a script.
    """
    found = annotation(value)
    if isinstance(found, Type):
        return found
    parser = CURRENT.get()
    if parser is None:
        raise TypeError(f"{found}: names are known in a script only; give variables instead")
    return found.resolve(parser.dimension)


def types_of(value: Any) -> tuple[Type, ...]:
    """A type or a sequence of types."""
    if isinstance(value, (list, tuple)):
        return tuple([type_of(item) for item in value])
    return (type_of(value),)


def _finished(pending: PendingType) -> Type | PendingType:
    """The type if its strings can be resolved now, that is in the body of a function."""
    parser = CURRENT.get()
    if parser is None or parser.scope.in_signature:
        return pending
    return pending.resolve(parser.dimension)


def _vdevice(value: Any) -> VDevice | None:
    found: VDevice | None = value
    if isinstance(value, str):
        found = CURRENT.get().scope.vdevice(value)
    return found


def _named(dims: Sequence[Any]) -> list[Any]:
    """Dimensions, of which type variables of Python stand for their names."""
    return [dim.__name__ if isinstance(dim, TypeVar) else dim for dim in dims]


def tensor(
    shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1
) -> Type | PendingType:
    """``R.Tensor``: a tensor type.

    Args:
        shape: dimensions (ints, scalars, strings), a shape, or None if not known.
        dtype: name of the data type, or None if not known.
        vdevice: a device of the module, also as "llvm" or "llvm:1".
        ndim: rank, -1 if not known.
    """
    if isinstance(shape, str) and dtype is None:
        shape, dtype = None, shape
    if isinstance(dtype, DTypeMaker):
        dtype = dtype.dtype
    if dtype is not None and not isinstance(dtype, str):
        raise TypeError(f"R.Tensor: dtype: expected a string, got {describe(dtype)}")
    if shape is None or isinstance(shape, Expr):
        _check_shape(shape)
        if not isinstance(vdevice, str):
            return TensorType(shape, dtype, vdevice, ndim)
        return _finished(
            PendingType((), lambda dim: TensorType(shape, dtype, _vdevice(vdevice), ndim))
        )
    dims = _named(_sequence("R.Tensor: shape", shape))
    strings = [dim for dim in dims if isinstance(dim, str)]
    if not strings and not isinstance(vdevice, str):
        return TensorType(dims, dtype, vdevice, ndim)
    return _finished(
        PendingType(
            strings,
            lambda dim: TensorType(_resolved(dims, dim), dtype, _vdevice(vdevice), ndim),
        )
    )


def _check_shape(shape: Expr | None) -> None:
    if shape is None or isinstance(shape, ShapeExpr):
        return
    if not isinstance(shape, Var) or type(shape.ty) is not ShapeType:
        raise TypeError(
            "R.Tensor: shape: expected dimensions, R.shape(...) or a variable that is a shape, "
            f"got {shape} of type {shape.ty}"
        )


def _sequence(what: str, value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    raise TypeError(f"{what}: expected a tuple of dimensions, got {describe(value)}")


def _resolved(dims: list[Any], dim: Callable[[str], Expr]) -> list[Any]:
    return [dim(d) if isinstance(d, str) else d for d in dims]


def shape(values: Any = None, ndim: int = -1) -> Type | PendingType:
    """``R.Shape``: the type of a shape, of known dimensions, of known rank, or neither."""
    if values is None:
        return ShapeType(None, ndim)
    dims = _named(_sequence("R.Shape: values", values))
    strings = [dim for dim in dims if isinstance(dim, str)]
    if not strings:
        return ShapeType(dims, ndim)
    return _finished(PendingType(strings, lambda dim: ShapeType(_resolved(dims, dim), ndim)))


def prim(dtype: Any = None) -> Type:
    """``R.Prim``: the type of scalars of a data type."""
    if isinstance(dtype, DTypeMaker):
        dtype = dtype.dtype
    if not isinstance(dtype, str):
        raise TypeError(f'R.Prim: expected a data type, as R.Prim("int64"), got {describe(dtype)}')
    return prim_type(dtype if dtype == "handle" else element_dtype(dtype))


def any_() -> Type:
    """``R.Any``: the type of all values."""
    return ANY


def tuple_(*fields: Any) -> Type | PendingType:
    """``R.Tuple``: the type of a tuple of values of these types."""
    if len(fields) == 1 and isinstance(fields[0], (list, tuple)):
        fields = tuple(fields[0])
    return _compound([annotation(field) for field in fields], TupleType)


def callable_(
    params: Any = None, ret: Any = ANY, purity: bool | None = None, derive_func: Any = None
) -> Type | PendingType:
    """``R.Callable``: the type of a function.

    Args:
        params: types of the parameters, None if not known.
        ret: type of the result.
        purity: whether a call has no effect; if not given, that of a function whose parameters are
            known is taken to be pure.
        derive_func: must be None: types of results are not computed by functions.
    """
    if derive_func is not None:
        raise TypeError("R.Callable: derive_func is not supported; give the type of the result")
    result = annotation(ANY if ret is None else ret)
    if params is None:
        return _compound([result], lambda types: FuncType(None, types[0], bool(purity)))
    if not isinstance(params, (list, tuple)):
        params = [params]
    pure = purity is None or purity
    return _compound(
        [*map(annotation, params), result], lambda types: FuncType(types[:-1], types[-1], pure)
    )


def _compound(
    parts: list[Type | PendingType], make: Callable[[list[Type]], Type]
) -> Type | PendingType:
    """A type made of types, pending if one of them is."""
    strings = [s for part in parts if isinstance(part, PendingType) for s in part.strings]
    final = [part for part in parts if isinstance(part, Type)]
    if len(final) == len(parts):
        return make(final)

    def resolve(dim: Callable[[str], Expr]) -> Type:
        return make([p.resolve(dim) if isinstance(p, PendingType) else p for p in parts])

    return _finished(PendingType(strings, resolve))


TYPE_MAKERS: Final[dict[Any, Callable[[], Any]]] = {
    maker: maker for maker in (tensor, shape, any_, tuple_, callable_)
}
"""What is a type also without being called."""
