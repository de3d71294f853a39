"""Scalar functions: the table of intrinsics, and the constructors of their calls.

Every row of `INTRINSICS` is one operator, with its functions in C and in numpy.

Source: ``tvm.tirx.op`` of apache-tvm 0.27.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..ir import prim
from ..ir.expr import ANY, Call, Expr, FloatImm, IntImm, PrimType, StringImm, Type, prim_type
from ..ir.op import Op
from ..ir.prim import as_scalar, is_float
from .buffer import as_index

__all__ = [
    "INTRINSICS",
    "Intrinsic",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "anylist_getitem",
    "anylist_resetitem",
    "anylist_setitem_call_cpacked",
    "anylist_setitem_call_packed",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "call_cpacked",
    "call_extern",
    "call_intrin",
    "call_packed",
    "ceil",
    "ceildiv",
    "clz",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "fabs",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "min",
    "min_value",
    "nearbyint",
    "nextafter",
    "popcount",
    "pow",
    "power",
    "reinterpret",
    "ret",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
]


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """A function of floats.

    Attributes:
        name: the name of the operator.
        arity: number of arguments.
        c: the function of ``math.h`` for doubles; the one for floats has the suffix f.
        numpy: the function of numpy.
        doc: a description of one line.
        result: data type of the result, or "" for that of the arguments.
    """

    name: str
    arity: int
    c: str
    numpy: str
    doc: str
    result: str = ""


INTRINSICS: Final = {
    row.name: row
    for row in (
        Intrinsic("tirx.exp", 1, "exp", "_exp", "e to the power of x"),
        Intrinsic("tirx.exp2", 1, "exp2", "_exp2", "2 to the power of x"),
        Intrinsic("tirx.exp10", 1, "rvm_exp10", "_exp10", "10 to the power of x"),
        Intrinsic("tirx.expm1", 1, "expm1", "expm1", "exp(x) - 1"),
        Intrinsic("tirx.log", 1, "log", "_log", "natural logarithm"),
        Intrinsic("prim.log2", 1, "log2", "log2", "logarithm to base 2"),
        Intrinsic("tirx.log10", 1, "log10", "log10", "logarithm to base 10"),
        Intrinsic("tirx.log1p", 1, "log1p", "log1p", "log(1 + x)"),
        Intrinsic("tirx.sqrt", 1, "sqrt", "sqrt", "square root"),
        Intrinsic("tirx.rsqrt", 1, "rvm_rsqrt", "_rsqrt", "1 / sqrt(x), both rounded"),
        Intrinsic("tirx.sigmoid", 1, "rvm_sigmoid", "_sigmoid", "1 / (1 + exp(-x))"),
        Intrinsic("tirx.erf", 1, "erf", "_erf", "error function"),
        Intrinsic("tirx.tanh", 1, "tanh", "_tanh", "hyperbolic tangent"),
        Intrinsic("tirx.sinh", 1, "sinh", "sinh", "hyperbolic sine"),
        Intrinsic("tirx.cosh", 1, "cosh", "cosh", "hyperbolic cosine"),
        Intrinsic("tirx.sin", 1, "sin", "sin", "sine"),
        Intrinsic("tirx.cos", 1, "cos", "cos", "cosine"),
        Intrinsic("tirx.tan", 1, "tan", "tan", "tangent"),
        Intrinsic("tirx.asin", 1, "asin", "arcsin", "inverse sine"),
        Intrinsic("tirx.acos", 1, "acos", "arccos", "inverse cosine"),
        Intrinsic("tirx.atan", 1, "atan", "arctan", "inverse tangent"),
        Intrinsic("tirx.asinh", 1, "asinh", "arcsinh", "inverse hyperbolic sine"),
        Intrinsic("tirx.acosh", 1, "acosh", "arccosh", "inverse hyperbolic cosine"),
        Intrinsic("tirx.atanh", 1, "atanh", "arctanh", "inverse hyperbolic tangent"),
        Intrinsic("tirx.atan2", 2, "atan2", "arctan2", "angle of the point (x, y), given y and x"),
        Intrinsic("tirx.hypot", 2, "hypot", "hypot", "sqrt(x * x + y * y)"),
        Intrinsic("tirx.nextafter", 2, "nextafter", "nextafter", "next float after x towards y"),
        Intrinsic("tirx.copysign", 2, "copysign", "copysign", "x with the sign of y"),
        Intrinsic("tirx.pow", 2, "pow", "power", "x to the power of y"),
        Intrinsic("tirx.fmod", 2, "fmod", "fmod", "remainder with the sign of x"),
        Intrinsic("tirx.floor", 1, "floor", "floor", "greatest integer not above x"),
        Intrinsic("tirx.ceil", 1, "ceil", "ceil", "least integer not below x"),
        Intrinsic("tirx.trunc", 1, "trunc", "trunc", "x without its fraction"),
        Intrinsic("tirx.round", 1, "nearbyint", "rint", "nearest integer, of two the even one"),
        Intrinsic("tirx.nearbyint", 1, "nearbyint", "rint", "nearest integer, of two the even one"),
        Intrinsic("tirx.fabs", 1, "fabs", "fabs", "absolute value"),
        Intrinsic("tirx.isnan", 1, "rvm_isnan", "isnan", "whether x is not a number", "bool"),
    )
}
"""The functions of floats, by the name of the operator."""


def _infer_intrinsic(row: Intrinsic) -> Callable[[Call], Type]:
    def infer(call: Call) -> Type:
        dtype = check_floats(row, call.args)
        return prim_type(row.result or dtype)

    return infer


def check_floats(row: Intrinsic, args: Sequence[Expr]) -> str:
    """Return the data type of the arguments of a function of floats.

    Raises:
        TypeError: their number or a type is wrong.
    """
    short = row.name.partition(".")[2]
    if len(args) != row.arity:
        raise TypeError(f"{short}: expected {row.arity} arguments, got {len(args)}")
    for arg in args:
        if type(arg.ty) is not PrimType or not is_float(arg.ty.dtype):
            raise TypeError(
                f"{short}: expected a float scalar, got {arg} of type {arg.ty}; cast it"
            )
        if arg.ty.dtype != args[0].ty.dtype:
            raise TypeError(
                f"{short}: the arguments are of {args[0].ty.dtype} and {arg.ty.dtype}; cast one"
            )
    return args[0].dtype


_UNARY_DEFAULT: Final = "float32"


def _maker(row: Intrinsic) -> Callable[..., Expr]:
    op = Op.register(row.name, _infer_intrinsic(row), doc=row.doc)

    def call(args: Sequence[Any], dtype: Any, span: Any) -> Expr:
        scalars = _scalars(args)
        ty = prim_type(row.result or check_floats(row, scalars))
        return with_dtype(Call(op, scalars, ret_ty=ty, span=span), dtype)

    make: Callable[..., Expr]
    if row.arity == 1:

        def make(x: Any, *, dtype: Any = None, span: Any = None) -> Expr:
            return call((x,), dtype, span)

    elif row.name == "tirx.fmod":  # the only one of two floats whose parameters TVM calls x and y

        def make(x: Any, y: Any, *, dtype: Any = None, span: Any = None) -> Expr:
            return call((x, y), dtype, span)

    else:

        def make(x1: Any, x2: Any, *, dtype: Any = None, span: Any = None) -> Expr:
            return call((x1, x2), dtype, span)

    make.__name__ = make.__qualname__ = row.name.partition(".")[2]
    make.__doc__ = row.doc[0].upper() + row.doc[1:] + "."
    op.make = make
    return make


def with_dtype(value: Expr, dtype: Any) -> Expr:
    """Return a value, whose data type was given as well, as older programs do.

    Raises:
        TypeError: it is another one.
    """
    if dtype is not None and str(getattr(dtype, "dtype", dtype)) != value.dtype:
        raise TypeError(f"dtype: {value} is of {value.dtype}, got {dtype}; cast it")
    return value


def _scalars(args: Sequence[Any]) -> list[Expr]:
    """Convert plain numbers to constants of the data type of the other arguments."""
    dtype = next((a.dtype for a in args if isinstance(a, Expr)), _UNARY_DEFAULT)
    return [a if isinstance(a, Expr) else as_scalar(float(a), dtype) for a in args]


exp = _maker(INTRINSICS["tirx.exp"])
exp2 = _maker(INTRINSICS["tirx.exp2"])
exp10 = _maker(INTRINSICS["tirx.exp10"])
expm1 = _maker(INTRINSICS["tirx.expm1"])
log = _maker(INTRINSICS["tirx.log"])
log2 = _maker(INTRINSICS["prim.log2"])
log10 = _maker(INTRINSICS["tirx.log10"])
log1p = _maker(INTRINSICS["tirx.log1p"])
sqrt = _maker(INTRINSICS["tirx.sqrt"])
rsqrt = _maker(INTRINSICS["tirx.rsqrt"])
sigmoid = _maker(INTRINSICS["tirx.sigmoid"])
erf = _maker(INTRINSICS["tirx.erf"])
tanh = _maker(INTRINSICS["tirx.tanh"])
sinh = _maker(INTRINSICS["tirx.sinh"])
cosh = _maker(INTRINSICS["tirx.cosh"])
sin = _maker(INTRINSICS["tirx.sin"])
cos = _maker(INTRINSICS["tirx.cos"])
tan = _maker(INTRINSICS["tirx.tan"])
asin = _maker(INTRINSICS["tirx.asin"])
acos = _maker(INTRINSICS["tirx.acos"])
atan = _maker(INTRINSICS["tirx.atan"])
asinh = _maker(INTRINSICS["tirx.asinh"])
acosh = _maker(INTRINSICS["tirx.acosh"])
atanh = _maker(INTRINSICS["tirx.atanh"])
atan2 = _maker(INTRINSICS["tirx.atan2"])
hypot = _maker(INTRINSICS["tirx.hypot"])
nextafter = _maker(INTRINSICS["tirx.nextafter"])
copysign = _maker(INTRINSICS["tirx.copysign"])
_pow_float = _maker(INTRINSICS["tirx.pow"])
fmod = _maker(INTRINSICS["tirx.fmod"])
_floor = _maker(INTRINSICS["tirx.floor"])
_ceil = _maker(INTRINSICS["tirx.ceil"])
_trunc = _maker(INTRINSICS["tirx.trunc"])
_round = _maker(INTRINSICS["tirx.round"])
_nearbyint = _maker(INTRINSICS["tirx.nearbyint"])
_fabs = _maker(INTRINSICS["tirx.fabs"])
_isnan = _maker(INTRINSICS["tirx.isnan"])


def _accepting_integers(function: Callable[..., Expr], doc: str) -> Callable[..., Expr]:
    """A rounding function that also accepts integers and returns them unchanged."""

    def make(x: Any, span: Any = None, *, dtype: Any = None) -> Expr:
        if isinstance(x, Expr) and not is_float(x.dtype):
            return with_dtype(x, dtype)
        return function(x, dtype=dtype, span=span)

    make.__name__ = make.__qualname__ = function.__name__
    make.__doc__ = doc
    return make


floor = _accepting_integers(_floor, "Greatest integer not above x.")
ceil = _accepting_integers(_ceil, "Least integer not below x.")
trunc = _accepting_integers(_trunc, "x without its fraction.")
round = _accepting_integers(_round, "Nearest integer, of two the even one.")  # noqa: A001
nearbyint = _accepting_integers(_nearbyint, "Nearest integer, of two the even one.")


def abs(x: Any, span: Any = None, *, dtype: Any = None) -> Expr:  # noqa: A001
    """Absolute value; for integers it is ``select(x >= 0, x, 0 - x)``."""
    value: Expr = with_dtype(as_scalar(x), dtype)
    if is_float(value.dtype):
        return _fabs(value, span=span)
    if value.dtype.startswith(("uint", "bool")):
        return value
    return prim.select(value >= 0, value, prim.subtract(0, value))


fabs = abs


def pow(x: Any, y: Any, span: Any = None, *, dtype: Any = None) -> Expr:  # noqa: A001
    """x to the power of y, of floats."""
    return _pow_float(x, y, dtype=dtype, span=span)


power = pow


def isnan(x: Any, span: Any = None) -> Expr:
    """Whether x is not a number; false for integers."""
    x = as_scalar(x)
    return _isnan(x, span=span) if is_float(x.dtype) else IntImm("bool", False)


def isinf(x: Any, span: Any = None) -> Expr:
    """Whether x is an infinity."""
    x = as_scalar(x)
    if not is_float(x.dtype):
        return IntImm("bool", False)
    return prim.equal(_fabs(x), infinity(x.dtype))


def isfinite(x: Any, span: Any = None) -> Expr:
    """Whether x is finite: neither an infinity nor NaN."""
    return prim.logical_and(prim.logical_not(isinf(x)), prim.logical_not(isnan(x)))


# Operators that are not plain functions of floats


def _infer_if_then_else(call: Call) -> Type:
    _, true_value, false_value = call.args
    if true_value.dtype != false_value.dtype:
        raise TypeError(
            f"if_then_else: the values are of {true_value.dtype} and {false_value.dtype}"
        )
    return prim_type(true_value.dtype)


def _infer_same(call: Call) -> Type:
    return prim_type(call.args[0].dtype)


def _infer_given(call: Call) -> Type:
    return ANY if call.ty is None else call.ty


IF_THEN_ELSE: Final = Op.register(
    "prim.if_then_else", _infer_if_then_else, doc="one of two values; only that one is evaluated"
)
LIKELY: Final = Op.register("prim.likely", _infer_same, doc="a condition that is mostly true")
CLZ: Final = Op.register(
    "prim.clz", lambda call: prim_type("int32"), doc="number of leading zero bits"
)
POPCOUNT: Final = Op.register("tirx.popcount", _infer_same, doc="number of bits that are 1")
REINTERPRET: Final = Op.register(
    "tirx.reinterpret", _infer_given, doc="the same bits as another data type"
)
RET: Final = Op.register("tirx.ret", _infer_same, doc="end the function and return a scalar")
CALL_EXTERN: Final = Op.register(
    "tirx.call_extern", _infer_given, doc="a call of a C function by name", is_pure=False
)
CALL_PACKED: Final = Op.register(
    "tirx.tvm_call_packed", _infer_given, doc="a call of a packed function by name", is_pure=False
)
CALL_CPACKED: Final = Op.register(
    "tirx.tvm_call_cpacked", _infer_given, doc="a call of a function of the module", is_pure=False
)

# Lists of arbitrary values, for VM code that is expressed as TIR.
ANYLIST_GETITEM: Final = Op.register(
    "tirx.anylist_getitem", _infer_given, doc="an item of a list of values"
)
ANYLIST_RESETITEM: Final = Op.register(
    "tirx.anylist_resetitem", _infer_given, doc="None in the place of an item", is_pure=False
)
ANYLIST_SETITEM_CALL_PACKED: Final = Op.register(
    "tirx.anylist_setitem_call_packed",
    _infer_given,
    doc="the result of a call of a packed function as an item",
    is_pure=False,
)
ANYLIST_SETITEM_CALL_CPACKED: Final = Op.register(
    "tirx.anylist_setitem_call_cpacked",
    _infer_given,
    doc="the result of a call of a function of the module as an item",
    is_pure=False,
)


def if_then_else(
    cond: Any, t: Any, f: Any, span: Any = None, *, dtype: Any = None
) -> Expr:
    """`t` if `cond` else `f`; only the chosen one is evaluated."""
    cond = as_scalar(cond)
    if cond.dtype != "bool":
        cond = prim.not_equal(cond, 0)
    then, orelse = _index_pair(t, f)
    with_dtype(then, dtype)
    if type(cond) is IntImm:
        return then if cond.value else orelse
    return Call(IF_THEN_ELSE, (cond, then, orelse), ret_ty=then.ty, span=span)


def _index_pair(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Convert two values to a common data type; plain integers are int32, as elsewhere in TIR."""
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        a = _number(a)
    return prim._pair(a, b)


def _number(value: Any) -> Expr:
    if isinstance(value, int) and not isinstance(value, bool):
        return as_index(value)
    return as_scalar(value)


def likely(cond: Any, span: Any = None) -> Expr:
    """A condition with the hint that it is mostly true."""
    cond = as_scalar(cond)
    return cond if type(cond) is IntImm else Call(
        LIKELY, (cond,), ret_ty=cond.ty, span=span)  # fmt: skip


def clz(x: Any, span: Any = None) -> Expr:
    """The number of leading zero bits of an integer, as int32; for 0 it is the number of bits."""
    return Call(CLZ, (as_index(x),), ret_ty=prim_type("int32"), span=span)


def popcount(x: Any, span: Any = None) -> Expr:
    """Number of bits of an integer that are 1."""
    x = as_index(x)
    return Call(POPCOUNT, (x,), ret_ty=x.ty, span=span)


def reinterpret(dtype: Any, value: Any, span: Any = None) -> Expr:
    """The bits of a value as another data type of the same size.

    Raises:
        TypeError: the sizes differ.
    """
    operand: Expr = as_scalar(value)
    dtype = str(getattr(dtype, "dtype", dtype))
    if _bits(dtype) != _bits(operand.dtype):
        raise TypeError(f"reinterpret: {operand.dtype} and {dtype} have different sizes")
    if dtype == operand.dtype:
        return operand
    return Call(REINTERPRET, (operand,), ret_ty=prim_type(dtype), span=span)


def _bits(dtype: str) -> int:
    if dtype == "handle":
        return 64
    return 8 if dtype == "bool" else int("".join(c for c in dtype if c.isdigit()))


def ret(value: Any, span: Any = None) -> Expr:
    """End the function and return a scalar; for `Evaluate`."""
    value = _number(value)
    return Call(RET, (value,), ret_ty=value.ty, span=span)


def _call_named(op: Op, dtype: str, name: str, args: Sequence[Any], span: Any) -> Call:
    parts: list[Expr] = [StringImm(name)]
    for arg in args:
        if isinstance(arg, str):
            parts.append(StringImm(arg))
        else:
            parts.append(arg if isinstance(arg, Expr) else _number(arg))
    return Call(op, parts, ret_ty=prim_type(dtype), span=span)


def call_extern(dtype: str, func_name: str, *args: Any, span: Any = None) -> Expr:
    """A call of a C function by name.  It can be printed and stored, but not lowered."""
    return _call_named(CALL_EXTERN, dtype, func_name, args, span)


def call_packed(*args: Any, span: Any = None) -> Expr:
    """A call of a packed function by its name, the first argument.  It can be printed and stored,
    but not lowered."""
    return _call_packed(CALL_PACKED, args, span)


def call_cpacked(*args: Any, span: Any = None) -> Expr:
    """A call of a function of the same module as a packed function; the first argument is its name.
    It cannot be lowered."""
    return _call_packed(CALL_CPACKED, args, span)


def _call_packed(op: Op, args: Sequence[Any], span: Any) -> Call:
    if not args or not isinstance(args[0], str):
        got = repr(args[0]) if args else "nothing"
        raise TypeError(f"{op.name}: expected the name of a function first, got {got}")
    return _call_named(op, "int32", args[0], args[1:], span)


def anylist_getitem(list_handle: Expr, index: Any) -> Expr:
    """An item of a list of any values: a register, constant or function of the VM."""
    return Call(ANYLIST_GETITEM, (list_handle, _number(index)), ret_ty=prim_type("handle"))


def anylist_resetitem(list_handle: Expr, index: Any) -> Expr:
    """Set an item of a list to None."""
    return Call(ANYLIST_RESETITEM, (list_handle, _number(index)), ret_ty=prim_type("int32"))


def anylist_setitem_call_packed(list_handle: Expr, index: Any, func_name: str, *args: Any) -> Expr:
    """``list[index] = func_name(*args)`` with a packed function."""
    return _set_item(ANYLIST_SETITEM_CALL_PACKED, list_handle, index, func_name, args)


def anylist_setitem_call_cpacked(list_handle: Expr, index: Any, func_name: str, *args: Any) -> Expr:
    """``list[index] = func_name(*args)`` with a function of the same module."""
    return _set_item(ANYLIST_SETITEM_CALL_CPACKED, list_handle, index, func_name, args)


def _set_item(op: Op, list_handle: Expr, index: Any, name: str, args: Sequence[Any]) -> Expr:
    call = _call_named(op, "int32", name, args, None)
    return Call(op, (list_handle, _number(index), *call.args), ret_ty=call.ty)


def call_intrin(
    dtype: str,
    func_name: str,
    *args: Any,
    attrs: Mapping[str, Any] | None = None,
    span: Any = None,
) -> Expr:
    """A call of an intrinsic by its operator's name.

    "tirx.tvm_thread_invariant" is the value itself: a PrimFunc runs on one thread.

    Raises:
        ValueError: there is no such operator.
    """
    if func_name == "tirx.tvm_thread_invariant" and len(args) == 1:
        return args[0] if isinstance(args[0], Expr) else const(args[0], dtype)
    return Call(Op.get(func_name), [a if isinstance(a, Expr) else _number(a) for a in args],
                attrs, ret_ty=prim_type(dtype), span=span)  # fmt: skip


# Arithmetic by name.  Plain integers are int32.


def _binary(function: Callable[[Any, Any], Expr], doc: str) -> Callable[..., Expr]:
    def make(a: Any, b: Any, span: Any = None) -> Expr:
        return _of_numbers(function, a, b)

    make.__doc__ = doc
    return make


def _binary_of_bits(function: Callable[[Any, Any], Expr], doc: str) -> Callable[..., Expr]:
    """As `_binary`, with the names that TVM gives to the operands of bits."""

    def make(x: Any, y: Any, span: Any = None) -> Expr:
        return _of_numbers(function, x, y)

    make.__doc__ = doc
    return make


def _of_numbers(function: Callable[[Any, Any], Expr], a: Any, b: Any) -> Expr:
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        a, b = _number(a), _number(b)
    return function(a, b)


floordiv = _binary(prim.floordiv, "a // b, rounded towards minus infinity.")
floormod = _binary(prim.floormod, "a % b, with the sign of b.")
truncdiv = _binary(prim.truncdiv, "a / b of integers, rounded towards zero.")
truncmod = _binary(prim.truncmod, "The remainder of `truncdiv`.")
indexdiv = floordiv
indexmod = floormod
max = _binary(prim.maximum, "The greater of a and b: a if a > b, else b.")  # noqa: A001
min = _binary(prim.minimum, "The lesser of a and b: a if a < b, else b.")  # noqa: A001
bitwise_and = _binary_of_bits(lambda x, y: x & y, "x & y")
bitwise_or = _binary_of_bits(lambda x, y: x | y, "x | y")
bitwise_xor = _binary_of_bits(lambda x, y: x ^ y, "x ^ y")
shift_left = _binary_of_bits(lambda x, y: x << y, "x << y")
shift_right = _binary_of_bits(lambda x, y: x >> y, "x >> y")


def bitwise_not(x: Any, span: Any = None) -> Expr:
    """~x"""
    return prim.bitwise_not(_number(x) if not isinstance(x, Expr) else x)


def div(a: Any, b: Any, span: Any = None) -> Expr:
    """a / b; of integers rounded towards zero."""
    if type(b) is FloatImm and b.value == 1.0 and getattr(a, "ty", None) == b.ty:
        unchanged: Expr = a
        return unchanged
    node: Expr = prim._fold(prim.Div, a, b)
    return node


def ceildiv(lhs: Any, rhs: Any, span: Any = None) -> Expr:
    """lhs / rhs of integers, rounded towards plus infinity."""
    lhs, rhs = _index_pair(lhs, rhs)
    return prim.floordiv(prim.subtract(prim.add(lhs, rhs), 1), rhs)


def all(*conditions: Any, span: Any = None) -> Expr:  # noqa: A001
    """Whether all conditions are true."""
    result = as_scalar(conditions[0])
    for condition in conditions[1:]:
        result = prim.logical_and(result, condition)
    return result


def any(*conditions: Any, span: Any = None) -> Expr:  # noqa: A001
    """Whether one of the conditions is true."""
    result = as_scalar(conditions[0])
    for condition in conditions[1:]:
        result = prim.logical_or(result, condition)
    return result


def const(value: Any, dtype: str | None = None, span: Any = None) -> Expr:
    """A constant; a plain integer is int32, a float float32."""
    if dtype is None:
        return _number(value)
    return prim.immediate(dtype, value)


def max_value(dtype: str, span: Any = None) -> Expr:
    """The greatest finite number of a data type."""
    if is_float(dtype):
        return FloatImm(dtype, _float_limit(dtype))
    return IntImm(dtype, prim._range(dtype)[1])


def min_value(dtype: str, span: Any = None) -> Expr:
    """The least finite number of a data type."""
    if is_float(dtype):
        return FloatImm(dtype, -_float_limit(dtype))
    return IntImm(dtype, prim._range(dtype)[0])


def _float_limit(dtype: str) -> float:
    if dtype == "bfloat16":
        return float.fromhex("0x1.fep127")
    return float(np.finfo(dtype).max)


def infinity(dtype: str, span: Any = None) -> Expr:
    """Plus infinity."""
    return FloatImm(dtype, math.inf)
