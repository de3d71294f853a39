"""Printing of calls of operators as script.

Most operators are printed by the parameters of their constructor.  Those with a constructor of
another form (calls of functions, closures, output) have a printing function in a table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..ir.expr import Call, Expr, ExternFunc, GlobalVar, StringImm, Tuple
from ..ir.op import Op
from ..op.kinds import kind_named
from ..values import Device
from .names import quoted

if TYPE_CHECKING:
    from .printer import Printer

__all__ = ["CALLS", "operator_arguments"]


_OPERAND: Final = kind_named("Operand").view
"""Marks parameters for which a plain number is a tensor."""


def operator_arguments(printer: Printer, op: Op, call: Call) -> list[str] | None:
    """The constructor's arguments that build the call; None if the operator has no constructor."""
    if op.make is None or call.ty_args:
        return None
    parameters = getattr(op.record, "parameters", ())
    if not parameters:
        return [printer.bare((arg,)) for arg in call.args] + printer.keywords(call.attrs)
    texts: list[str] = []
    operands = iter(call.args)
    by_position = True
    for parameter in parameters:
        name = parameter.name
        if parameter.is_operand:
            operand = next(operands, None)
            if operand is None:
                by_position = False
                continue
            is_operand = parameter.kind.view is _OPERAND
            text = printer.bound(operand) if is_operand else printer.bare((operand,))
        elif name not in call.attrs or _same(call.attrs[name], parameter.default):
            by_position = False
            continue
        else:
            text = printer.value(call.attrs[name])
            by_position = by_position and parameter.default is inspect.Parameter.empty
        texts.append(text if by_position else f"{name}={text}")
    return texts


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _callee(printer: Printer, func: Expr) -> str:
    """A callee, where a packed function is written as a string."""
    text = printer.expr(func)
    if isinstance(func, ExternFunc) and text == f"R.ExternFunc({quoted(func.global_symbol)})":
        return quoted(func.global_symbol)
    return text


def _args(printer: Printer, args: Expr) -> str:
    return printer.group(args.fields) if isinstance(args, Tuple) else printer.expr(args)


def _call_tir(printer: Printer, call: Call) -> str:
    func, args, *tir_vars = call.args
    if isinstance(func, GlobalVar) and not printer.is_of_module(func):
        callee = printer.foreign_global_var(func, is_typed=False)  # it has out_ty
    else:
        callee = _callee(printer, func)
    parts = [callee, _args(printer, args), *printer.keywords(call.attrs)]
    parts += printer.types_option("out_ty", call.ty_args)
    parts += [f"tir_vars={printer.expr(shape)}" for shape in tir_vars]
    return f"R.{_name(call)}({', '.join(parts)})"


def _packed(printer: Printer, call: Call) -> str:
    func, *args = call.args
    parts = [_callee(printer, func), *[printer.bare((arg,)) for arg in args]]
    parts += printer.keywords(call.attrs) + printer.types_option("ty_args", call.ty_args)
    return f"R.{_name(call)}({', '.join(parts)})"


def _with_tuple(printer: Printer, call: Call) -> str:
    func, args = call.args
    parts = [_callee(printer, func), _args(printer, args)]
    parts += printer.types_option("ty_args", call.ty_args)
    return f"R.{_name(call)}({', '.join(parts)})"


def _py_func(printer: Printer, call: Call) -> str:
    func, args = call.args
    parts = [printer.bare((func,)), _args(printer, args)]
    parts += printer.types_option("out_ty", call.ty_args)
    return f"R.call_py_func({', '.join(parts)})"


def _format(printer: Printer, template: Expr) -> list[str]:
    if isinstance(template, StringImm) and not template.value:
        return []
    return [f"format={printer.bare((template,))}"]


def _print(printer: Printer, call: Call) -> str:
    template, *values = call.args
    parts = [printer.bare((value,)) for value in values] + _format(printer, template)
    return f"R.print({', '.join(parts)})"


def _assert_op(printer: Printer, call: Call) -> str:
    condition, template, *values = call.args
    parts = [printer.bound(condition)]
    if values:
        parts.append(f"[{printer.bare(values)}]")
    return f"R.assert_op({', '.join(parts + _format(printer, template))})"


def _to_vdevice(printer: Printer, call: Call) -> str:
    return f"R.to_vdevice({printer.expr(call.args[0])}, {printer.vdevice(call.attrs.dst_vdevice)})"


def _hint_on_device(printer: Printer, call: Call) -> str:
    attrs = call.attrs
    device = Device(attrs.device_type, attrs.index)
    parts = [printer.expr(call.args[0]), quoted(f"{device.type}:{device.index}")]
    if attrs.memory_scope != "global":
        parts.append(quoted(attrs.memory_scope))
    return f"R.hint_on_device({', '.join(parts)})"


def _name(call: Any) -> str:
    return str(call.op.name).removeprefix("relax.")


CALLS: Final[dict[str, Callable[[Any, Any], str]]] = {
    "relax.call_tir": _call_tir,
    "relax.call_tir_inplace": _call_tir,
    "relax.call_dps_packed": _call_tir,
    "relax.call_pure_packed": _packed,
    "relax.call_inplace_packed": _packed,
    "relax.call_builtin_with_ctx": _with_tuple,
    "relax.invoke_closure": _with_tuple,
    "relax.invoke_pure_closure": _with_tuple,
    "relax.make_closure": _with_tuple,
    "relax.call_py_func": _py_func,
    "relax.print": _print,
    "relax.assert_op": _assert_op,
    "relax.to_vdevice": _to_vdevice,
    "relax.hint_on_device": _hint_on_device,
}
"""Operator -> the function that prints a call of it."""
