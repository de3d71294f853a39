"""The namespace ``R`` of script: Relax functions, types, values and operators.

Names that are not defined here are constructors of `relaxvm.op`: ``R.nn.softmax`` is
``relaxvm.op.nn.softmax``.
"""

from __future__ import annotations

import builtins
import sys
import typing
from collections.abc import Callable as _Callable
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from .. import op as _op
from ..dtypes import as_dtype, dtype_name
from ..errors import did_you_mean
from ..ir.expr import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    ShapeExpr,
    StringImm,
    TupleGetItem,
    Type,
    const,
    convert_to_expr,
    prim_value,
)
from ..ir.expr import Tuple as _TupleExpr
from ..ir.module import VDevice
from ..ir.op import Op
from ..values import device
from . import ir_builder as _ir_builder
from . import type_forms
from .constants import array_of_bytes
from .data_types import Constructor, Data
from .earlier import today
from .entry import decorated_class, decorated_function
from .macros import macro as make_macro
from .markers import Dataflow, FunctionAttrs, Incomplete, MatchCastPair, Output
from .scope import CURRENT

__all__ = [
    "Any",
    "Callable",
    "Constant",
    "Constructor",
    "Data",
    "ExternFunc",
    "Never",
    "Object",
    "Prim",
    "Ref",
    "Shape",
    "ShapeExpr",
    "Tensor",
    "Tuple",
    "TupleGetItem",
    "const",
    "const_bytes",
    "dataflow",
    "device",
    "dtype",
    "emit_te",
    "emit_with_ty",
    "func_attr",
    "function",
    "incomplete",
    "macro",
    "match_cast",
    "output",
    "prim_value",
    "rewriter",
    "shape",
]

# Types

Tensor = type_forms.tensor
Shape = type_forms.shape
Prim = type_forms.prim
Tuple = type_forms.tuple_
Callable = type_forms.callable_
Ref = type_forms.ref
Never = type_forms.never
Any = Object = type_forms.any_


# Functions


_Script = typing.Callable[..., typing.Any]


@typing.overload
def function(func: _Script, /) -> typing.Any: ...
@typing.overload
def function(
    f: None = ...,
    pure: bool = ...,
    private: bool = ...,
    check_well_formed: bool = ...,
    *,
    type_params: Sequence[builtins.str] = ...,
) -> typing.Callable[[_Script], typing.Any]: ...
def function(
    f: _Script | None = None,
    pure: bool = True,
    private: bool = False,
    check_well_formed: bool = True,
    *,
    type_params: Sequence[builtins.str] = (),
) -> typing.Any:
    """Decorator: parse the Python function and replace it by a Relax function.  In a class, it is
    parsed by `I.ir_module`.

    Args:
        private: if true, only the module can call it: it gets no attribute "global_symbol".
        pure: whether a call has no side effects.
        type_params: names of type parameters, if they are to be in another order than the one in
            which the signature mentions them.
        check_well_formed: whether to reject a function that is not well-formed.

    Raises:
        DiagnosticError: there is an error in the script.
    """
    # The parser reads the options from the text, since in a class only that is parsed.
    if f is not None:
        return decorated_function(f, sys._getframe(1), "R.function", check_well_formed)

    def decorate(func: typing.Any) -> typing.Any:
        return decorated_function(func, sys._getframe(1), "R.function", check_well_formed)

    return decorate


@typing.overload
def macro(func: _Script, /) -> typing.Any: ...
@typing.overload
def macro(*, hygienic: bool = ...) -> typing.Callable[[_Script], typing.Any]: ...
def macro(func: _Script | None = None, *, hygienic: bool = True) -> typing.Any:
    """Decorator: a function whose statements are parsed where it is called, in a Relax function.

    Args:
        hygienic: whether names that are not parameters mean what they mean where the macro is
            defined; if not, what they mean where it is called.

    Raises:
        TypeError: it is not a function, or is called outside of a Relax function.
    """
    if func is not None:
        return make_macro(func, sys._getframe(1), hygienic)

    def decorate(func: typing.Any) -> typing.Any:
        return make_macro(func, sys._getframe(1), hygienic)

    return decorate


def func_attr(attrs: Mapping[builtins.str, typing.Any]) -> FunctionAttrs:
    """``R.func_attr({...})``: a statement that sets attributes of the function."""
    if _is_building():
        _ir_builder.func_attr(attrs)
    return FunctionAttrs(attrs)


def _is_building() -> bool:
    """Whether a statement belongs to the `ir_builder` around it, and not to a script."""
    return CURRENT.get() is None and _ir_builder.IRBuilder.is_in_scope()


def dataflow() -> Dataflow:
    """``with R.dataflow():`` begins a block of bindings without side effects."""
    return Dataflow()


def output(*variables: typing.Any) -> Output:
    """The last statement of a dataflow block: the variables that are visible after it."""
    if _is_building():
        _ir_builder.output(*variables)
    return Output(variables)


def match_cast(value: typing.Any, ty: typing.Any) -> MatchCastPair:
    """``y = R.match_cast(x, type)``: check at run time that x has the type, and define the symbolic
    variables that are new in it."""
    return MatchCastPair(convert_to_expr(value), type_forms.type_of(ty))


def incomplete(value: typing.Any) -> Incomplete:
    """``match R.incomplete(x):``: the clauses need not match every value; one that has no clause is
    a `relaxvm.MatchError` when it occurs."""
    return Incomplete(convert_to_expr(value))


function.script_kind = "relax"  # type: ignore[attr-defined]
output.script_kind = "output"  # type: ignore[attr-defined]


# Values


def shape(value: Sequence[typing.Any]) -> ShapeExpr:
    """A shape as a value."""
    parser = CURRENT.get()
    if parser is not None:
        value = [parser.dimension(v) if isinstance(v, builtins.str) else v for v in value]
    return ShapeExpr(value)


def dtype(value: typing.Any) -> DataTypeImm:
    """A data type as a value."""
    return DataTypeImm(dtype_name(as_dtype(value)))


def const_bytes(data: builtins.str, shape: Sequence[int], dtype: builtins.str) -> Constant:
    """A constant tensor from its bytes in base64, in C order and little endian."""
    return Constant(array_of_bytes(data, shape, dtype))


def _string(value: builtins.str) -> StringImm:
    """A string as a value."""
    return StringImm(value)


def _tuple(*fields: typing.Any) -> _TupleExpr:
    """A tuple as a value."""
    return _TupleExpr(fields)


# Calls with type arguments


def emit_with_ty(
    op: builtins.str,
    args: typing.Any,
    ty_args: typing.Any = None,
    attrs: Mapping[builtins.str, typing.Any] | None = None,
) -> Call:
    """A call of an operator by its name, without its constructor.

    Args:
        op: the full name of the operator, beginning with "relax.".
        args: the arguments.
        ty_args: type arguments, one or several.
        attrs: attributes.
    """
    if isinstance(args, _TupleExpr):
        args = args.fields
    operands = [convert_to_expr(arg) for arg in ([args] if isinstance(args, Expr) else args)]
    types = () if ty_args is None else type_forms.types_of(ty_args)
    call = Call(Op.get(op), operands, attrs, types)
    call.ty = Op.get(op).infer(call)
    return call


def _with_types(
    make: _Callable[..., typing.Any], keyword: builtins.str, position: int | None
) -> typing.Any:
    """Wrap a constructor with type arguments so that it accepts types as written in script."""

    def construct(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if args and isinstance(args[0], (list, builtins.tuple)):
            return make(*args, **kwargs)  # a shape in the place of the function, which is refused
        if keyword in kwargs:
            kwargs[keyword] = _types(kwargs[keyword])
        elif position is not None and len(args) > position:
            args = (*args[:position], _types(args[position]), *args[position + 1 :])
        return make(*args, **kwargs)

    construct.__name__ = make.__name__
    construct.__doc__ = make.__doc__
    return construct


def _types(value: typing.Any) -> Type | list[Type] | None:
    if value is None:
        return None
    if isinstance(value, (list, builtins.tuple)):
        return list(type_forms.types_of(value))
    return type_forms.type_of(value)


def _to_vdevice(data: Expr, dst_vdevice: VDevice | builtins.str) -> typing.Any:
    """``relaxvm.op.to_vdevice``; the device may also be given by name."""
    if isinstance(dst_vdevice, builtins.str):
        parser = CURRENT.get()
        if parser is None:
            raise TypeError("R.to_vdevice: names of devices are known only in a module")
        dst_vdevice = parser.scope.vdevice(dst_vdevice)
    return _op.to_vdevice(data, dst_vdevice)


_WITH_TYPES: Final[dict[builtins.str, tuple[builtins.str, int | None]]] = {
    "call_tir": ("out_ty", 2),
    "call_tir_inplace": ("out_ty", 3),
    "call_dps_packed": ("out_ty", 2),
    "call_py_func": ("out_ty", 2),
    "call_packed": ("ty_args", None),
    "call_pure_packed": ("ty_args", None),
    "call_inplace_packed": ("ty_args", None),
    "call_builtin_with_ctx": ("ty_args", None),
    "invoke_closure": ("ty_args", 2),
    "invoke_pure_closure": ("ty_args", 2),
}
"""Constructor -> the parameter for types, and its position."""

_NAMED: Final[dict[builtins.str, typing.Any]] = {
    "str": _string,
    "tuple": _tuple,
    "to_vdevice": _to_vdevice,
    "emit_with_type": emit_with_ty,
    "outputs": output,
    **{name: getattr(_ir_builder, name) for name in (
        "Else", "If", "Then", "arg", "emit", "emit_match_cast", "emit_var_binding", "func_name",
        "func_ret_ty", "func_ret_type", "func_ret_value",
    )},
}
"""Attributes of ``R`` that have the name of a Python builtin, aliases, and those of the builder."""


class _Builder:
    """What `relaxvm.te.call_of_te` needs of a builder: the module that is being parsed."""

    def __init__(self, parser: typing.Any) -> None:
        self._parser = parser

    def get(self) -> typing.Any:
        return dict(self._parser.prim_funcs())

    def add_func(self, func: typing.Any, name: builtins.str) -> typing.Any:
        return self._parser.add_prim_func(func, name)


def emit_te(func: _Callable[..., typing.Any], *args: typing.Any, **kwargs: typing.Any) -> Call:
    """Call a function on tensor expressions, add the PrimFunc that computes its result to the
    module, and return a call of it; see `relaxvm.BlockBuilder.call_te`.

    Raises:
        TypeError: it is not in a module.
    """
    from ..te import call_of_te

    parser = CURRENT.get()
    if parser is None:
        if _is_building():
            return _ir_builder.emit_te(func, *args, **kwargs)
        raise TypeError("R.emit_te: expected to be in a script; use BlockBuilder.emit_te")
    call: Call = call_of_te(_Builder(parser), func, *args, **kwargs)
    return call


def rewriter(rewriter_mod: type) -> typing.Any:
    """Decorator: a class with the functions ``pattern`` and ``replacement`` as a rewriter; see
    `relaxvm.dpl.PatternMatchingRewriter.from_module`."""
    from ..dpl.rewrite import PatternMatchingRewriter

    return PatternMatchingRewriter.from_module(decorated_class(rewriter_mod, sys._getframe(1)))


if TYPE_CHECKING:
    # Type checkers know every name, so that one that is not there is an error.
    from ._operators import *  # noqa: F403
else:

    def __getattr__(name: builtins.str) -> typing.Any:
        found = _NAMED.get(name)
        if found is None:
            if name.startswith("_"):
                raise AttributeError(name)
            if name in ("cpu", "cuda", "metal", "rocm", "vulkan", "opencl"):
                found = _device_of(name)
            else:
                found = _operator(name)
                if name in _WITH_TYPES:
                    keyword, position = _WITH_TYPES[name]
                    found = _with_types(found, keyword, position)
        globals()[name] = found
        return found


def __dir__() -> list[builtins.str]:
    """Every name, also of the operators that nobody has asked for yet."""
    return sorted({*globals(), *_NAMED, *dir(_op)})


def _operator(name: builtins.str) -> typing.Any:
    try:
        return getattr(_op, name)
    except AttributeError:
        hint = today("R", name) or did_you_mean(name, [*__all__, *_NAMED, *_op.CONSTRUCTORS])
        raise AttributeError(f"there is no operator {name!r}{hint}") from None


def _device_of(kind: builtins.str) -> _Callable[..., typing.Any]:
    return lambda index=0: device(kind, index)
