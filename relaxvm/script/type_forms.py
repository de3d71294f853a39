"""Types as written in script: ``R.Tensor(("n", "m"), "float32")``.

Python evaluates the annotations of a decorated function before the parser runs.  So a type in which
a dimension or a device is named by a string is a `PendingType` until the signature is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ..dtypes import element_dtype
from ..ir.adt import NEVER, RefType
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
from ..ir.expr import TypeVar as TypeParam
from ..ir.module import VDevice
from ..messages import describe
from .scope import CURRENT

__all__ = [
    "TYPE_MAKERS",
    "DTypeMaker",
    "PendingType",
    "annotation",
    "compound",
    "type_of",
    "types_of",
]


class PendingType:
    """A type whose strings are not resolved yet.

    Attributes:
        strings: the dimensions that are given as strings.
        resolve: returns the type; its argument is a function from such a string to a scalar.
        texts: the types that are given as strings.
    """

    __slots__ = ("resolve", "strings", "texts")

    def __init__(
        self,
        strings: Sequence[str],
        resolve: Callable[[Callable[[str], Expr]], Type],
        texts: Sequence[str] = (),
    ) -> None:
        self.strings = tuple(strings)
        self.resolve = resolve
        self.texts = tuple(texts)

    def __repr__(self) -> str:
        return f"<type with dimensions {', '.join(self.strings) or 'and a device'} by name>"


class DTypeMaker:
    """A data type such as ``T.int64``.  ``T.int64()`` is a new symbolic variable, ``T.int64(1)`` a
    constant, ``T.int64(x)`` a conversion; as an annotation it is the type of scalars."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __call__(self, expr: Any = None) -> Expr:
        from ..ir.prim import cast, immediate, is_float

        if expr is None:
            return Var("", self.dtype)
        if isinstance(expr, Expr):
            return cast(expr, self.dtype)
        return immediate(self.dtype, float(expr) if is_float(self.dtype) else expr)

    def __repr__(self) -> str:
        return f"T.{self.dtype}"


def annotation(value: Any) -> Type | PendingType:
    """Convert the value of an annotation to a type; None is the empty tuple.

    Raises:
        TypeError: the value is not a type.
    """
    if isinstance(value, (Type, PendingType)):
        return value
    if value is None:
        return TupleType(())
    if isinstance(value, DTypeMaker):
        return prim_type(value.dtype)
    if isinstance(value, str):
        return _finished(PendingType((), lambda dim: CURRENT.get().type_text(value), [value]))
    if hasattr(value, "as_type"):  # a data type
        found: Type = value.as_type()
        return found
    maker = TYPE_MAKERS.get(value) if callable(value) else None
    if maker is not None:
        return annotation(maker())
    if getattr(value, "script_kind", None) == "data":
        return PendingType((), _outside)
    raise TypeError(f'expected a type such as R.Tensor((2, 3), "float32"), got {describe(value)}')


def _outside(dim: Callable[[str], Expr]) -> Type:
    raise TypeError("a data type is known only in the text of a module")


def type_of(value: Any) -> Type:
    """Convert a value to a type that declares no new names.

    Raises:
        TypeError: the value is not a type, or has dimensions by name outside of a script.
    """
    found = annotation(value)
    if isinstance(found, Type):
        return found
    parser = CURRENT.get()
    if parser is None:
        raise TypeError(f"{found}: names are known only in a script; pass variables instead")
    return found.resolve(parser.dimension)


def types_of(value: Any) -> tuple[Type, ...]:
    """Convert a type or a sequence of types to a tuple of types."""
    if isinstance(value, (list, tuple)):
        return tuple([type_of(item) for item in value])
    return (type_of(value),)


def _finished(pending: PendingType) -> Type | PendingType:
    """Resolve a type if that is possible now, that is in the body of a function."""
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
    """Replace Python type variables among dimensions by their names."""
    return [dim.__name__ if isinstance(dim, TypeVar) else dim for dim in dims]


def tensor(
    shape: Any = None, dtype: Any = None, vdevice: Any = None, ndim: int = -1
) -> Type | PendingType:
    """``R.Tensor``: a tensor type.

    Args:
        shape: dimensions (ints, scalars, strings), a shape, or None if unknown.
        dtype: name of the data type, or None if unknown.
        vdevice: a device of the module, or its name such as "llvm" or "llvm:1".
        ndim: rank, -1 if unknown.
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
    """``R.Shape``: the type of a shape with known dimensions, known rank, or neither."""
    if values is None:
        return ShapeType(None, ndim)
    dims = _named(_sequence("R.Shape: values", values))
    strings = [dim for dim in dims if isinstance(dim, str)]
    if not strings:
        return ShapeType(dims, ndim)
    return _finished(PendingType(strings, lambda dim: ShapeType(_resolved(dims, dim), ndim)))


def prim(dtype: Any) -> Type:
    """``R.Prim``: the type of the scalars of a data type."""
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
    return compound([annotation(field) for field in fields], TupleType)


def callable_(
    params: Any = None,
    ret: Any = ANY,
    purity: bool | None = None,
    derive_func: Any = None,
    *,
    type_params: Sequence[str] = (),
) -> Type | PendingType:
    """``R.Callable``: the type of a function.

    Args:
        params: types of the parameters, or None if unknown.
        ret: type of the result.
        purity: whether a call has no side effects; by default true if `params` are known.
        derive_func: the registered function that finds the type of a call, or its name, if
            `params` and `ret` are not given; see `relaxvm.ir.FuncType`.
        type_params: names of the function's own type parameters.
    """
    if derive_func is not None:
        if params is not None or ret is not ANY:
            raise TypeError("R.Callable: expected derive_func, or params and ret, got both")
        return FuncType.opaque_func(derive_func=derive_func, purity=bool(purity))
    if type_params:
        return _generic(tuple(type_params), params, ret, purity is None or purity)
    result = annotation(ANY if ret is None else ret)
    if params is None:
        return compound([result], lambda types: FuncType(None, types[0], bool(purity)))
    if not isinstance(params, (list, tuple)):
        params = [params]
    pure = purity is None or purity
    return compound(
        [*map(annotation, params), result], lambda types: FuncType(types[:-1], types[-1], pure)
    )


def _generic(names: tuple[str, ...], params: Any, ret: Any, purity: bool) -> Type | PendingType:
    """The type of a function with type parameters of its own."""

    def resolve(dim: Callable[[str], Expr]) -> Type:
        scope = CURRENT.get().scope
        own = [TypeParam(name) for name in names]
        scope.push()
        for var in own:
            scope.define(var.name_hint, var)
        try:
            found = callable_(params, ret, purity)
            ty = found if isinstance(found, Type) else found.resolve(dim)
        finally:
            scope.pop()
        assert isinstance(ty, FuncType)
        return FuncType(ty.params, ty.ret, ty.purity, type_params=own)

    return _finished(PendingType((), resolve))


def ref(value: Any = ANY) -> Type | PendingType:
    """``R.Ref``: the type of a reference to a value of a type."""
    return compound([annotation(value)], lambda types: RefType(types[0]))


def never() -> Type:
    """``R.Never``: the type of no value."""
    return NEVER


def compound(
    parts: list[Type | PendingType], make: Callable[[list[Type]], Type]
) -> Type | PendingType:
    """A type built from other types; pending if one of them is."""
    strings = [s for part in parts if isinstance(part, PendingType) for s in part.strings]
    texts = [t for part in parts if isinstance(part, PendingType) for t in part.texts]
    final = [part for part in parts if isinstance(part, Type)]
    if len(final) == len(parts):
        return make(final)

    def resolve(dim: Callable[[str], Expr]) -> Type:
        return make([p.resolve(dim) if isinstance(p, PendingType) else p for p in parts])

    return _finished(PendingType(strings, resolve, texts))


TYPE_MAKERS: Final[dict[Any, Callable[[], Any]]] = {
    maker: maker for maker in (tensor, shape, any_, tuple_, callable_, ref, never)
}
"""Constructors that are also a type without being called, such as ``R.Tensor``."""
