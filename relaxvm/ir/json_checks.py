"""Checks of nodes that were read from a file: what the constructors of their classes guarantee.

A reader fills the parts of a node as they were saved, with their types, and so does not call
constructors.  Everything that works on nodes relies on what these guarantee: scalars are of
`PrimType`, a number fits its data type, the rank of a type is that of its shape.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..errors import FormatError
from ..messages import describe
from . import prim
from .expr import (
    AnyType,
    Expr,
    FloatImm,
    Function,
    FuncType,
    GlobalVar,
    IntImm,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Type,
)
from .infer import BaseCheckResult, base_check
from .node import Node

__all__ = ["check_node"]

_REFUSED: Final = (TypeError, ValueError, IndexError, OverflowError, AttributeError)
"""What constructors raise for parts that are of the right class and still wrong."""


def check_node(cls: type[Node], values: Mapping[str, Any], path: str) -> None:
    """Check the parts of a node.

    Args:
        cls: its class.
        values: its parts by name, each of the annotated class.
        path: where it is in the file, for messages.

    Raises:
        FormatError: the constructor of the class refuses such parts, or would change them.
    """
    if cls in _ABSTRACT:
        raise FormatError(f"{path}: {cls.__name__} is the base of other classes")
    names = _arguments(cls)
    if names is not None:
        try:
            made = cls(**{name: values[name] for name in names} | _inferred(cls, values))
        except _REFUSED as error:
            raise FormatError(f"{path}: {_brief(error)}") from None
        for name in names:
            value, expected = values[name], getattr(made, name)
            if type(value) in (int, str) and value != expected:
                raise FormatError(f"{path}.{name}: expected {expected!r}, got {value!r}")
    if issubclass(cls, prim.BinaryOpExpr):
        _binary(cls, values, path)
        return
    check = _CHECKS.get(cls)
    if check is not None:
        check(values, path)


def _inferred(cls: type[Node], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a constructor is not given although the node has it: a rank, beside a shape."""
    shape = {TensorType: "shape", ShapeType: "values"}.get(cls)
    return {} if shape is None or values[shape] is None else {"ndim": -1}


def _brief(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= 400 else f"{text[:400]}..."


_ABSTRACT: Final = (prim.BinaryOpExpr, prim.CmpExpr)

_KNOWN_ARGUMENTS: Final[dict[type[Node], tuple[str, ...] | None]] = {}


def _arguments(cls: type[Node]) -> tuple[str, ...] | None:
    """Return the parameters of a constructor that are parts of the node; None if others, that have
    no default, are not."""
    if cls not in _KNOWN_ARGUMENTS:
        names: tuple[str, ...] | None = ()
        for name, parameter in inspect.signature(cls).parameters.items():
            if names is None or name == "span":
                continue
            if any(name in getattr(base, "__slots__", ()) for base in cls.__mro__):
                names = (*names, name)
            elif parameter.default is inspect.Parameter.empty:
                names = None
        _KNOWN_ARGUMENTS[cls] = names
    return _KNOWN_ARGUMENTS[cls]


# Rules about types, which constructors infer


def _scalar(ty: Any, path: str) -> str:
    """Return the data type of a scalar."""
    if type(ty) is not PrimType:
        raise FormatError(f"{path}: expected a scalar, got one of type {describe(ty)}")
    return ty.dtype


def _integer(values: Mapping[str, Any], path: str) -> None:
    dtype = _scalar(values["ty"], path)
    if dtype == "handle":
        return
    try:
        prim.immediate(dtype, values["value"])
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: {error}") from None


def _float(values: Mapping[str, Any], path: str) -> None:
    dtype = _scalar(values["ty"], path)
    if not prim.is_float(dtype):
        raise FormatError(f"{path}: expected a data type of floats, got {dtype!r}")


def _operation(values: Mapping[str, Any], path: str) -> None:
    """Operands and result are scalars."""
    _scalar(values["ty"], path)
    for name, value in values.items():
        if isinstance(value, Expr):
            _scalar(value.ty, f"{path}.{name}")


def _bool(value: Expr, path: str) -> None:
    dtype = _scalar(value.ty, path)
    if dtype != "bool":
        raise FormatError(f"{path}: expected a bool scalar, got one of {dtype}")


def _alike(a: Expr, b: Expr, path: str) -> None:
    """Two operands have one data type."""
    if a.ty.dtype != b.ty.dtype:
        raise FormatError(
            f"{path}: expected operands of one data type, got {a.ty.dtype} and {b.ty.dtype}"
        )


def _binary(cls: type[Node], values: Mapping[str, Any], path: str) -> None:
    _operation(values, path)
    a, b = values["a"], values["b"]
    _alike(a, b, path)
    if cls in (prim.And, prim.Or):
        _bool(a, f"{path}.a")
    problem = prim.bits_problem(cls, a, b)
    if problem is not None:
        raise FormatError(f"{path}: {problem}")


def _not(values: Mapping[str, Any], path: str) -> None:
    _operation(values, path)
    _bool(values["a"], f"{path}.a")


def _bits(values: Mapping[str, Any], path: str) -> None:
    _operation(values, path)
    problem = prim.bits_problem(prim.BitwiseNot, values["a"])
    if problem is not None:
        raise FormatError(f"{path}: {problem}")


def _select(values: Mapping[str, Any], path: str) -> None:
    _operation(values, path)
    _bool(values["condition"], f"{path}.condition")
    _alike(values["true_value"], values["false_value"], path)


def _shape(values: Mapping[str, Any], path: str) -> None:
    ty, rank = values["ty"], len(values["values"])
    if type(ty) is not ShapeType or ty.ndim != rank:
        raise FormatError(f"{path}.ty: expected the type of a shape of {rank} dimensions")


def _tuple(values: Mapping[str, Any], path: str) -> None:
    ty, count = values["ty"], len(values["fields"])
    if ty is not None and (type(ty) is not TupleType or len(ty.fields) != count):
        raise FormatError(f"{path}.ty: expected the type of a tuple of {count} elements")


def _sequence(values: Mapping[str, Any], path: str) -> None:
    ty, body = values["ty"], values["body"].ty
    if None not in (ty, body) and base_check(ty, body) is BaseCheckResult.FAIL_L0:
        raise FormatError(f"{path}.ty: expected the type of the body")


def _global(values: Mapping[str, Any], path: str) -> None:
    if not isinstance(values["ty"], (FuncType, AnyType, type(None))):
        raise FormatError(f"{path}.ty: expected the type of a function")


def _function(values: Mapping[str, Any], path: str) -> None:
    if not isinstance(values["ret_ty"], (Type, type(None))):
        raise FormatError(f"{path}.ret_ty: expected a type, got {describe(values['ret_ty'])}")


def _primitive(values: Mapping[str, Any], path: str) -> None:
    dtype = values["dtype"]
    if dtype in ("handle", "void"):
        return
    if dtype == "bool" or prim.is_float(dtype):
        return
    try:
        prim.immediate(dtype, 0)
    except (TypeError, ValueError) as error:
        raise FormatError(f"{path}.dtype: {error}") from None


_CHECKS: Final[dict[type, Callable[[Mapping[str, Any], str], None]]] = {
    IntImm: _integer,
    FloatImm: _float,
    prim.Not: _not,
    prim.BitwiseNot: _bits,
    prim.Cast: _operation,
    prim.Select: _select,
    prim.Let: _operation,
    ShapeExpr: _shape,
    Tuple: _tuple,
    SeqExpr: _sequence,
    GlobalVar: _global,
    Function: _function,
    PrimType: _primitive,
}
