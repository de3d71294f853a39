"""Kinds of parameters of operators.

A rule (see `registry`) annotates each of its parameters with the name of a kind.  The kind says
whether the parameter is an operand, that is an argument of the call, or an attribute; how a Python
value is converted to it; and what the rule receives for it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from ..dtypes import as_dtype, dtype_name
from ..ir.expr import (
    AnyType,
    DataTypeImm,
    Expr,
    IntImm,
    PrimType,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleType,
    const,
    constant_of,
    convert_to_expr,
    prim_value,
)
from ..messages import describe

__all__ = [
    "OPERAND",
    "Axes",
    "Axis",
    "DType",
    "DTypeValue",
    "Floats",
    "IllTyped",
    "IllValued",
    "Integers",
    "Ints",
    "Kind",
    "Operand",
    "Scalar",
    "ShapeLike",
    "StrValue",
    "Tensors",
    "Value",
    "axes_of",
    "axis_of",
    "constants_beside",
    "is_dim",
    "kind_named",
    "to_floats",
    "to_ints",
]

Operand: TypeAlias = "TensorType | PrimType"
"""A tensor, or a scalar next to one; the rule receives its type.  Python numbers become constants
of the data type of a tensor next to them."""
Tensors: TypeAlias = "tuple[TensorType, ...]"
"""A tuple of tensors; the rule receives their types."""
ShapeLike: TypeAlias = Expr
"""A shape: an expression of `ShapeType`, which the rule receives, or a sequence of dimensions."""
Scalar: TypeAlias = Any
"""A scalar, an expression of `PrimType`, or a number; the rule receives the former."""
Integers: TypeAlias = Any
"""A tuple of integers; the rule receives a tuple of expressions."""
Value: TypeAlias = Expr
"""Any value; the rule receives the expression."""
Ints: TypeAlias = "tuple[int, ...]"
"""Integers, given as a sequence or as one."""
Floats: TypeAlias = "tuple[float, ...]"
"""Numbers, given as a sequence or as one."""
Axis: TypeAlias = int
"""An axis of the first operand; the rule receives it counted from the front."""
Axes: TypeAlias = "tuple[int, ...]"
"""Axes of the first operand, each once; the rule receives them counted from the front."""
DTypeValue: TypeAlias = "str | None"
"""A data type as an argument; the rule receives its name, None if it is not known."""
StrValue: TypeAlias = Any
"""A string as an argument."""
DType: TypeAlias = str
"""Name of a data type, given as anything that names one."""


class IllTyped(TypeError):
    """An operand or attribute has a wrong type.  The caller of the operator gets an
    OperatorTypeError with the operator's name before the message."""


class IllValued(ValueError):
    """Operands or attributes do not fit each other.  The caller gets an
    OperatorValueError."""


class Kind(NamedTuple):
    """A kind of parameter.

    Attributes:
        text: names the kind in messages and documentation.
        convert: converts a Python value to an operand or attribute; raises IllTyped, IllValued.
        view: for operands, converts the argument to what the rule receives; None for attributes.
        optional: whether None is allowed.
        from_front: for axes of the first operand, counts them from the front, given its rank.
    """

    text: str
    convert: Callable[[str, Any], Any]
    view: Callable[[str, Expr], Any] | None
    optional: bool = False
    from_front: Callable[[str, Any, int], Any] | None = None


def _got(value: object) -> str:
    """A wrong value in a message."""
    return f"{value} of type {value.ty}" if isinstance(value, Expr) else describe(value)


# Operands


def _to_expr(name: str, value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.ndarray):
        return constant_of(value)
    raise IllTyped(f"{name}: expected an expression, got {describe(value)}")


def _to_operand(name: str, value: Any) -> Any:
    # Numbers are made constants when the tensor next to them is known; see `constants_beside`.
    return value if isinstance(value, (bool, int, float, np.generic)) else _to_expr(name, value)


def _to_value(name: str, value: Any) -> Expr:
    try:
        return convert_to_expr(value)
    except TypeError as error:
        raise IllTyped(f"{name}: {error}") from None


def _to_tensors(name: str, value: Any) -> Expr:
    if isinstance(value, (list, tuple)):
        return Tuple([_to_expr(f"{name}[{i}]", item) for i, item in enumerate(value)])
    return _to_expr(name, value)


def _to_shape(name: str, value: Any) -> Expr:
    if isinstance(value, Expr) and type(value.ty) is not PrimType:
        return value
    if isinstance(value, (int, Expr)):
        raise IllTyped(f"{name}: expected a shape, such as [n], got {_got(value)}")
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise IllTyped(f"{name}: expected a shape, got {describe(value)}")
    dims = tuple(value)
    for i, dim in enumerate(dims):
        if not is_dim(dim):
            raise IllTyped(f"{name}[{i}]: expected an integer, got {_got(dim)}")
    return ShapeExpr(dims)


def is_dim(value: Any) -> bool:
    """Whether a value may be a dimension: an integer, or a scalar that is one."""
    if isinstance(value, Expr):
        return type(value.ty) is PrimType and "int" in value.ty.dtype
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _to_scalar(name: str, value: Any) -> Expr:
    if isinstance(value, Expr):
        return value
    try:
        return prim_value(value)
    except TypeError:
        raise IllTyped(f"{name}: expected a scalar, got {describe(value)}") from None


def _to_dtype_value(name: str, value: Any) -> Expr:
    return value if isinstance(value, Expr) else DataTypeImm(_to_dtype(name, value))


def _to_str_value(name: str, value: Any) -> Expr:
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, Expr):
        return value
    raise IllTyped(f"{name}: expected a str, got {describe(value)}")


def _narrow(arg: Expr) -> str:
    return "; R.match_cast narrows it" if type(arg.ty) is AnyType else ""


def _view_tensor(name: str, arg: Expr) -> TensorType:
    if type(arg.ty) is not TensorType:
        raise IllTyped(f"{name}: expected a tensor, got {_got(arg)}{_narrow(arg)}")
    return arg.ty


def _view_operand(name: str, arg: Expr) -> Any:
    ty = arg.ty
    if type(ty) is not TensorType and type(ty) is not PrimType:
        raise IllTyped(f"{name}: expected a tensor or scalar, got {_got(arg)}{_narrow(arg)}")
    return ty


def _view_tensors(name: str, arg: Expr) -> tuple[TensorType, ...]:
    if type(arg.ty) is not TupleType:
        raise IllTyped(f"{name}: expected a tuple of tensors, got {_got(arg)}{_narrow(arg)}")
    for i, ty in enumerate(arg.ty.fields):
        if type(ty) is not TensorType:
            raise IllTyped(f"{name}[{i}]: expected a tensor, got a value of type {ty}")
    return arg.ty.fields  # type: ignore[return-value]  # checked one by one


def _view_shape(name: str, arg: Expr) -> Expr:
    if type(arg.ty) is not ShapeType:
        raise IllTyped(f"{name}: expected a shape, got {_got(arg)}{_narrow(arg)}")
    return arg


def _view_scalar(name: str, arg: Expr) -> Expr:
    if type(arg.ty) is not PrimType:
        raise IllTyped(f"{name}: expected a scalar, got {_got(arg)}{_narrow(arg)}")
    return arg


def _to_integers(name: str, value: Any) -> Expr:
    if isinstance(value, Expr) and type(value.ty) is not PrimType:
        return value if not isinstance(value, ShapeExpr) else Tuple(value.values)
    items = value if isinstance(value, (tuple, list)) else [value]
    return Tuple([_to_scalar(f"{name}[{i}]", item) for i, item in enumerate(items)])


def _view_integers(name: str, arg: Expr) -> tuple[Expr, ...]:
    if not isinstance(arg, Tuple):
        raise IllTyped(f"{name}: expected a tuple of integers, written out, got {_got(arg)}")
    for i, item in enumerate(arg.fields):
        if not is_dim(item):
            raise IllTyped(f"{name}[{i}]: expected an integer, got {_got(item)}")
    return arg.fields


def _view_dtype(name: str, arg: Expr) -> str | None:
    if isinstance(arg, DataTypeImm):
        return arg.value
    if type(arg.ty) is not AnyType:
        raise IllTyped(f"{name}: expected a data type, got {_got(arg)}")
    return None


def _view_value(name: str, arg: Expr) -> Expr:
    return arg


def constants_beside(operands: list[Any], numbers: list[int]) -> list[Expr]:
    """The operands, with Python numbers converted to constants of the data type of the first tensor
    or scalar among them.

    Args:
        operands: the operands, changed in place.
        numbers: positions of those that may be numbers.

    Raises:
        IllTyped: all are numbers.
        IllValued: a number does not fit the data type.
    """
    others = [operands[i].ty for i in numbers if isinstance(operands[i], Expr)]
    dtype = getattr(others[0], "dtype", None) if others else None
    if dtype is None and len(numbers) == len(operands):
        raise IllTyped(f"expected a tensor among the operands, got {describe(tuple(operands))}")
    for i in numbers:
        if not isinstance(operands[i], Expr):
            operands[i] = _constant(operands[i], dtype)
    return operands


def _constant(number: Any, dtype: str | None) -> Expr:
    if isinstance(number, np.generic) or dtype is None:
        return const(number)
    if isinstance(number, float) and as_dtype(dtype).kind in "biu":
        return const(number)  # the rule says what is wrong
    try:
        return const(number, dtype)
    except OverflowError:
        raise IllValued(f"expected a number within {dtype}, got {number}") from None


# Attributes


def _to_int(name: str, value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, Expr) and type(value) is not IntImm):
        raise IllTyped(f"{name}: expected an int, got {_got(value)}")
    try:
        return operator.index(value)
    except TypeError:
        raise IllTyped(f"{name}: expected an int, got {_got(value)}") from None


def to_ints(name: str, value: Any) -> tuple[int, ...]:
    """Integers, from a sequence or one.

    Raises:
        IllTyped: something else.
    """
    if isinstance(value, (str, bytes)):
        raise IllTyped(f"{name}: expected ints, got {describe(value)}")
    if isinstance(value, ShapeExpr):
        value = value.values
    try:
        items = tuple(value)
    except TypeError:
        return (_to_int(name, value),)
    return tuple([_to_int(f"{name}[{i}]", item) for i, item in enumerate(items)])


def _to_float(name: str, value: Any) -> float:
    if not isinstance(value, (str, bytes, bool)):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass  # the error is raised below
    raise IllTyped(f"{name}: expected a number, got {_got(value)}")


def to_floats(name: str, value: Any) -> tuple[float, ...]:
    """Numbers as a tuple of floats.

    Raises:
        IllTyped: one is not a number.
    """
    items = value if isinstance(value, (tuple, list, np.ndarray)) else (value,)
    return tuple([_to_float(f"{name}[{i}]", item) for i, item in enumerate(items)])


def _to_bool(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or (type(value) is IntImm and value.dtype == "bool"):
        return bool(value)
    if type(value) is int and value in (0, 1):
        return bool(value)
    raise IllTyped(f"{name}: expected a bool, got {_got(value)}")


def _to_str(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise IllTyped(f"{name}: expected a str, got {_got(value)}")


def _to_dtype(name: str, value: Any) -> str:
    if isinstance(value, PrimType):
        return value.dtype
    try:
        return dtype_name(as_dtype(getattr(value, "value", value)))
    except (TypeError, ValueError) as error:
        raise IllTyped(f"{name}: expected a data type, got {_got(value)}: {error}") from None


def _to_known_dtype(name: str, value: Any) -> str | None:
    """A data type; None for TVM's spellings of none."""
    return None if isinstance(value, str) and value in ("void", "") else _to_dtype(name, value)


def _to_any(name: str, value: Any) -> Any:
    return value


def axis_of(name: str, axis: int, ndim: int) -> int:
    """An axis counted from the front; as it is where the rank is not known (-1).

    Raises:
        IllValued: there is none of this number.
    """
    if ndim == -1:
        return axis
    if not -ndim <= axis < ndim:
        expected = f"-{ndim} to {ndim - 1}" if ndim else "none, as the rank is 0"
        raise IllValued(f"{name}: expected an axis in {expected}, got {axis}")
    return axis % ndim


def axes_of(name: str, axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, each only once.

    Raises:
        IllValued: one is out of range, or there twice.
    """
    found = tuple([axis_of(name, axis, ndim) for axis in axes])
    if len(set(found)) < len(found):
        raise IllValued(f"{name}: expected each axis once, got {list(axes)}")
    return found


OPERAND: Final = Kind("a tensor or scalar", _to_operand, _view_operand)

_KINDS: Final[dict[str, Kind]] = {
    "TensorType": Kind("a tensor", _to_expr, _view_tensor),
    "Operand": OPERAND,
    "Tensors": Kind("a tuple of tensors", _to_tensors, _view_tensors),
    "ShapeLike": Kind("a shape", _to_shape, _view_shape),
    "Scalar": Kind("a scalar", _to_scalar, _view_scalar),
    "DTypeValue": Kind("a data type", _to_dtype_value, _view_dtype),
    "Integers": Kind("a tuple of integers", _to_integers, _view_integers),
    "StrValue": Kind("a string", _to_str_value, _view_value),
    "Value": Kind("a value", _to_value, _view_value),
    "int": Kind("int", _to_int, None),
    "Ints": Kind("ints", to_ints, None),
    "Axis": Kind("int", _to_int, None, from_front=axis_of),
    "Axes": Kind("ints", to_ints, None, from_front=axes_of),
    "float": Kind("float", _to_float, None),
    "Floats": Kind("floats", to_floats, None),
    "bool": Kind("bool", _to_bool, None),
    "str": Kind("str", _to_str, None),
    "DType": Kind("data type", _to_dtype, None),
    "Any": Kind("object", _to_any, None),
}


def kind_named(annotation: str) -> Kind:
    """The kind that an annotation names: one of the table's names, or ``Literal[...]`` of strings;
    followed by ``| None`` for an optional one.

    Raises:
        ValueError: the annotation is not the name of a kind.
    """
    found = _KINDS.get(annotation)
    if found is None:
        found = _KINDS[annotation] = _derived(annotation)
    return found


def _derived(annotation: str) -> Kind:
    if annotation == "DType | None":
        return kind_named("DType")._replace(optional=True, convert=_to_known_dtype)
    if annotation.endswith(" | None"):
        return kind_named(annotation.removesuffix(" | None"))._replace(optional=True)
    if annotation.startswith("Literal["):
        return _choice(ast.literal_eval(f"({annotation[len('Literal[') : -1]},)"))
    raise ValueError(f"no kind of parameter is named {annotation!r}; there are {', '.join(_KINDS)}")


def _choice(choices: tuple[str, ...]) -> Kind:
    text = " or ".join(map(repr, choices))

    def convert(name: str, value: Any) -> str:
        if value not in choices:
            wrong = IllValued if isinstance(value, str) else IllTyped
            raise wrong(f"{name}: expected {text}, got {_got(value)}")
        return str(value)

    return Kind(text, convert, None)
