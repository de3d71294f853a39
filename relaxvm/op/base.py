"""Calls of PrimFuncs and packed functions, closures, shapes as values, output, placement.

The compiler handles these itself: most have no kernel, and passes lower them one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import OperatorTypeError
from ..ir.block_builder import BlockBuilder
from ..ir.expr import (
    ANY,
    AnyType,
    Call,
    Expr,
    ExternFunc,
    FuncType,
    IntImm,
    PrimType,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    const,
    convert_to_expr,
)
from ..ir.infer import infer_type, is_base_of
from ..ir.module import VDevice
from ..ir.op import Op
from ..messages import describe
from ..values import Device, device
from .kinds import IllTyped, IllValued, ShapeLike
from .registry import PREFIX, composite, constructor, make_call, operator, type_of_results
from .rules import VOID

__all__ = [
    "assert_op",
    "call_builtin_with_ctx",
    "call_dps_packed",
    "call_inplace_packed",
    "call_packed",
    "call_pure_packed",
    "call_py_func",
    "call_tir",
    "call_tir_inplace",
    "hint_on_device",
    "invoke_closure",
    "invoke_pure_closure",
    "make_closure",
    "null_value",
    "print_",
    "shape_of",
    "shape_to_tensor",
    "tensor_to_shape",
    "to_vdevice",
]

Types = Type | Sequence[Type]


# Functions that write their results into tensors they are given


def _type_of_outputs(call: Call) -> Type:
    if len(call.args) not in (2, 3):
        raise IllTyped(f"expected a function and its arguments, got {len(call.args)} operands")
    if len(call.ty_args) != 1:
        raise IllTyped(f"out_ty: expected a type, got {len(call.ty_args)}")
    if type(call.args[1].ty) is not TupleType:
        raise IllTyped(f"args: expected a tuple, got {call.args[1]} of type {call.args[1].ty}")
    (ty,) = call.ty_args
    _check_output(ty)
    return ty


def _check_output(ty: Type) -> None:
    if type(ty) is TupleType:
        for field in ty.fields:
            _check_output(field)
    elif type(ty) is not TensorType:
        raise IllTyped(f"out_ty: expected a tensor type or a tuple of such, got {ty}")
    elif ty.shape is None:
        raise IllValued(
            f"out_ty: expected a tensor type with shape, as it is allocated, got {ty}"
        )


def _type_in_place(call: Call) -> Type:
    ty = _type_of_outputs(call)
    args = call.args[1].ty.fields
    outputs = ty.fields if type(ty) is TupleType else (ty,)
    indices = call.attrs.get("inplace_indices", ())
    _check_indices(indices, len(args), len(outputs))
    for position, (index, output) in enumerate(zip(indices, outputs, strict=True)):
        if index >= 0 and not is_base_of(_of_any_dims(output), args[index]):
            raise IllValued(
                f"inplace_indices: result {position} is of type {output}, and cannot be written "
                f"into argument {index} of type {args[index]}"
            )
    return ty


def _of_any_dims(ty: Any) -> Type:
    """A tensor type without its dimensions, which well-formedness compares."""
    return TensorType(None, ty.dtype, ty.vdevice, ty.ndim)


def _check_indices(indices: Sequence[int], args: int, outputs: int) -> None:
    if len(indices) != outputs:
        raise IllValued(
            f"inplace_indices: expected one for each of {outputs} results, got {list(indices)}"
        )
    for index in indices:
        if not -1 <= index < args:
            raise IllValued(f"inplace_indices: expected -1 to {args - 1}, got {index}")
    used = [index for index in indices if index >= 0]
    if len(set(used)) < len(used):
        raise IllValued(f"inplace_indices: expected each argument once, got {list(indices)}")
    if not used:
        raise IllValued("inplace_indices: all are -1: a call that is not in place does that")


def _with_inline_arguments(builder: BlockBuilder, call: Call) -> Call:
    """The normal form of calls that take their arguments as a tuple: a tuple expression, which
    passes can look into, rather than a variable."""
    args = call.args[1] if len(call.args) > 1 else None
    if args is None or isinstance(args, Tuple) or type(args.ty) is not TupleType:
        return call
    known = builder.lookup_binding(args) if isinstance(args, Var) else None
    if not isinstance(known, Tuple):
        known = Tuple([TupleGetItem(args, i) for i in range(len(args.ty.fields))])
    inlined = (call.args[0], known, *call.args[2:])
    return Call(call.op, inlined, call.attrs, call.ty_args, span=call.span)


@constructor("call_tir", _type_of_outputs, normalizer=_with_inline_arguments)
def call_tir(gvar: Expr, args: Any, out_ty: Types, tir_vars: Any = None) -> Call:
    """Call a PrimFunc of the module with `args`, followed by the tensors of type `out_ty` that it
    writes its results to.

    Args:
        gvar: the PrimFunc, a `GlobalVar`.
        args: tensors and scalars, a tuple.
        out_ty: type of the result, or types of several.
        tir_vars: integers that the PrimFunc takes after the tensors, a shape.
    """
    operands = [_prim_func(gvar), _tuple_of(args)]
    if tir_vars is not None:
        operands.append(tir_vars if isinstance(tir_vars, Expr) else ShapeExpr(tir_vars))
    return make_call("call_tir", operands, None, [_output(out_ty)])


@constructor("call_tir_inplace", _type_in_place, normalizer=_with_inline_arguments)
def call_tir_inplace(
    gvar: Expr, args: Any, inplace_indices: int | Sequence[int], out_ty: Types, tir_vars: Any = None
) -> Call:
    """Call a PrimFunc that writes some of its results to its arguments: result i to argument
    ``inplace_indices[i]``, or to a new tensor if that is -1.

    Args:
        gvar: the PrimFunc, a `GlobalVar`.
        args: tensors and scalars, a tuple.
        inplace_indices: one for each result.
        out_ty: type of the result, or types of several.
        tir_vars: integers that the PrimFunc takes after the tensors, a shape.

    Raises:
        OperatorTypeError: `args` is a variable that is a tuple.  Its other uses would see what is
            written.
    """
    if isinstance(args, Var) and type(args.ty) is TupleType:
        raise OperatorTypeError(
            f"relax.call_tir_inplace: args: expected the arguments themselves, as some of them are "
            f"written, got the variable {args}, which is a tuple"
        )
    operands = [_prim_func(gvar), _tuple_of(args)]
    if tir_vars is not None:
        operands.append(tir_vars if isinstance(tir_vars, Expr) else ShapeExpr(tir_vars))
    attrs = {"inplace_indices": _indices(inplace_indices)}
    return make_call("call_tir_inplace", operands, attrs, [_output(out_ty)])


@constructor("call_dps_packed", _type_of_outputs)
def call_dps_packed(func: str | Expr, args: Any, out_ty: Types) -> Call:
    """Call a packed function with `args`, followed by the tensors of type `out_ty` that it writes
    its results to.

    Args:
        func: its name, or an `ExternFunc`.
        args: its arguments, a tuple.
        out_ty: type of the result, or types of several.
    """
    return make_call("call_dps_packed", [_extern(func), _tuple_of(args)], None, [_output(out_ty)])


def _output(out_ty: Types) -> Type:
    if isinstance(out_ty, Type):
        return out_ty
    types = list(out_ty)
    return types[0] if len(types) == 1 else TupleType(types)


def _indices(indices: int | Sequence[int]) -> tuple[int, ...]:
    return (indices,) if isinstance(indices, int) else tuple(int(i) for i in indices)


# Packed functions


def _type_of_packed(call: Call) -> Type:
    if not call.args:
        raise IllTyped("expected a function and its arguments, got nothing")
    if not call.ty_args:
        raise IllTyped("ty_args: expected the type of the result, got nothing")
    return type_of_results(call)


def _type_of_packed_in_place(call: Call) -> Type:
    ty = _type_of_packed(call)
    indices = call.attrs.get("inplace_indices", ())
    _check_indices(indices, len(call.args) - 1, max(1, len(call.ty_args)))
    return ty


def _type_of_py_func(call: Call) -> Type:
    if len(call.args) != 2 or not isinstance(call.args[0], StringImm):
        raise IllTyped("expected the name of a function and its arguments")
    return _type_of_outputs(call)


@composite("call_packed")
def call_packed(func: str | Expr, *args: Any, ty_args: Types | None = None, **attrs: Any) -> Call:
    """Call a packed function that may have effects.

    Args:
        func: its name, or an `ExternFunc`.
        args: its arguments.
        ty_args: type of the result, any value if not given.
        attrs: attributes of the call.
    """
    operands = [convert_to_expr(arg) for arg in args]
    call = Call(_extern(func), operands, attrs, _types(ty_args))
    infer_type(call)
    return call


@constructor("call_pure_packed", _type_of_packed)
def call_pure_packed(func: str | Expr, *args: Any, ty_args: Types) -> Call:
    """Call a packed function that has no effect other than its result.

    Args:
        func: its name, or an `ExternFunc`.
        args: its arguments.
        ty_args: type of the result.
    """
    operands = [_extern(func), *[convert_to_expr(arg) for arg in args]]
    return make_call("call_pure_packed", operands, None, _types(ty_args))


@constructor("call_inplace_packed", _type_of_packed_in_place)
def call_inplace_packed(
    func: str | Expr, *args: Any, inplace_indices: int | Sequence[int], ty_args: Types
) -> Call:
    """Call a packed function whose only effect is to write results to its arguments, which must not
    be used afterwards: result i is argument ``inplace_indices[i]``, or new if that is -1.

    Args:
        func: its name, or an `ExternFunc`.
        args: its arguments.
        inplace_indices: one for each result.
        ty_args: types of the results.
    """
    operands = [_extern(func), *[convert_to_expr(arg) for arg in args]]
    attrs = {"inplace_indices": _indices(inplace_indices)}
    return make_call("call_inplace_packed", operands, attrs, _types(ty_args))


@constructor("call_builtin_with_ctx", type_of_results, pure=False)
def call_builtin_with_ctx(func: str | Expr, args: Any, *, ty_args: Types | None = None) -> Call:
    """Call a packed function of the VM that takes the VM as its first argument.

    Args:
        func: its name, or an `ExternFunc`.
        args: its arguments after the VM, a tuple.
        ty_args: type of the result, any value if not given.
    """
    operands = [_extern(func), _tuple_of(args)]
    return make_call("call_builtin_with_ctx", operands, None, _types(ty_args))


@constructor("call_py_func", _type_of_py_func)
def call_py_func(func_name: str | Expr, args: Any, out_ty: Types) -> Call:
    """Call a Python function by the name it is registered under for ``vm.builtin.call_py_func``.

    Args:
        func_name: its name.
        args: its arguments, a tuple.
        out_ty: type of the result, or types of several.
    """
    name = StringImm(func_name) if isinstance(func_name, str) else func_name
    return make_call("call_py_func", [name, _tuple_of(args)], None, [_output(out_ty)])


def _extern(func: str | Expr) -> Expr:
    if isinstance(func, str):
        return ExternFunc(func)
    return _callee(func, "a packed function or its name")


def _prim_func(gvar: Any) -> Expr:
    hint = "; R.call_dps_packed calls a packed function" if isinstance(gvar, str) else ""
    if isinstance(gvar, (tuple, list, ShapeExpr)):  # the order of the first design documents
        raise TypeError(
            "expected a PrimFunc of the module first, got a shape; today it is "
            'R.call_tir(f, (x,), R.Tensor((n, m), "float32"))'
        )
    return _callee(gvar, "a PrimFunc of the module", hint)


def _callee(func: Any, expected: str, hint: str = "") -> Expr:
    if not isinstance(func, Expr):
        raise TypeError(f"expected {expected}, got {describe(func)}{hint}")
    if func.ty is not None and type(func.ty) not in (FuncType, AnyType):
        raise TypeError(f"expected {expected}, got {func} of type {func.ty}")
    return func


def _tuple_of(args: Any) -> Expr:
    """Arguments as one tuple, from a sequence, an expression, or a tuple expression."""
    if isinstance(args, (tuple, list)):
        return Tuple([convert_to_expr(arg) for arg in args])
    if not isinstance(args, Expr):
        return Tuple([convert_to_expr(args)])
    if isinstance(args, Tuple) or type(args.ty) is TupleType:
        return args
    return Tuple([args])


def _types(types: Types | None) -> Sequence[Type]:
    if types is None:
        return ()
    return (types,) if isinstance(types, Type) else tuple(types)


# Closures


@constructor("make_closure", lambda call: ANY)
def make_closure(func: Expr, args: Any) -> Call:
    """A closure: a function of the module with its last arguments bound.

    Args:
        func: the function, a `GlobalVar`.
        args: the captured values, a tuple.
    """
    return make_call("make_closure", [func, _tuple_of(args)])


@constructor("invoke_closure", type_of_results, pure=False)
def invoke_closure(closure: Expr, args: Any, ty_args: Types) -> Call:
    """Call a closure that may have effects.

    Args:
        closure: what `make_closure` gave.
        args: what it takes before what it has captured, a tuple.
        ty_args: type of the result.
    """
    return make_call("invoke_closure", [closure, _tuple_of(args)], None, _types(ty_args))


@constructor("invoke_pure_closure", type_of_results)
def invoke_pure_closure(closure: Expr, args: Any, ty_args: Types) -> Call:
    """Call a closure that has no effect other than its result; see `invoke_closure`."""
    return make_call("invoke_pure_closure", [closure, _tuple_of(args)], None, _types(ty_args))


@operator("null_value", kernel=False)
def null_value() -> Type:
    """No value: stands for an argument that is left out."""
    return ANY


# Shapes as values


@operator("shape_of", kernel=False)
def shape_of(expr: TensorType) -> Type:
    """The shape of a tensor, as a value."""
    shape = expr.shape
    if shape is None:
        return ShapeType(ndim=expr.ndim)
    ty: Type = shape.ty
    return ty


@operator("tensor_to_shape", kernel=False)
def tensor_to_shape(expr: TensorType) -> Type:
    """A tensor of rank 1, of integers, as a shape."""
    if expr.ndim not in (-1, 1):
        raise IllValued(f"expr: expected a tensor of rank 1, got {expr}")
    if expr.dtype not in (None, "int64", "int32", "int16"):
        raise IllValued(f"expr: expected signed integers of at least 16 bits, got {expr}")
    if expr.dims is not None and isinstance(expr.dims[0], IntImm):
        return ShapeType(ndim=expr.dims[0].value)
    return ShapeType(ndim=-1)


def _type_of_shape_tensor(call: Call) -> Type:
    (shape,) = call.args
    if type(shape.ty) is not ShapeType:
        raise IllTyped(f"expr: expected a shape, got {shape} of type {shape.ty}")
    if shape.ty.ndim == -1:
        return TensorType(None, "int64", ndim=1)
    return TensorType((shape.ty.ndim,), "int64")


def run(builder: Any, call: Call) -> Call:
    """A call of the function "relax.run.*" of an operator's name, with the same arguments."""
    assert isinstance(call.op, Op)
    func = ExternFunc("relax.run." + call.op.name.removeprefix(PREFIX))
    if call.op.is_pure:
        pure = Op.get(f"{PREFIX}call_pure_packed")
        return Call(pure, [func, *call.args], None, [call.ty], ret_ty=call.ty, span=call.span)
    return Call(func, call.args, None, [call.ty], ret_ty=call.ty, span=call.span)


@constructor(
    "shape_to_tensor",
    _type_of_shape_tensor,
    lower=run,
)
def shape_to_tensor(expr: ShapeLike) -> Call:
    """A shape as an int64 tensor of rank 1."""
    return make_call("shape_to_tensor", [expr if isinstance(expr, Expr) else ShapeExpr(expr)])


# Output and checks


@constructor("print", lambda call: VOID, pure=False, lower=run)
def print_(*values: Any, format: str | Expr = "") -> Call:  # noqa: A002
    """Print values when the program runs.

    Args:
        values: what is printed.
        format: as of `str.format`; if empty, the values are printed with blanks between them.
    """
    template = StringImm(format) if isinstance(format, str) else format
    return make_call("print", [template, *[convert_to_expr(value) for value in values]])


def _type_of_assert(call: Call) -> Type:
    if len(call.args) < 2:
        raise IllTyped(f"expected a condition and a format, got {len(call.args)} operands")
    condition, template = call.args[:2]
    ty = condition.ty
    is_bool = (type(ty) is PrimType and ty.dtype == "bool") or (
        type(ty) is TensorType and ty.dtype in (None, "bool") and ty.ndim in (-1, 0)
    )
    if not is_bool:
        raise IllTyped(f"condition: expected a bool of rank 0, got {condition} of type {ty}")
    if not isinstance(template, StringImm):
        raise IllTyped(f"format: expected a string, got {template}")
    return VOID


@constructor(
    "assert_op",
    _type_of_assert,
    pure=False,
    lower=run,
)
def assert_op(
    condition: Any,
    format_args: Any = None,
    format: str | Expr = "",  # noqa: A002
) -> Call:
    """Raise AssertionError when the program runs, unless a condition is true.

    Args:
        condition: a bool, scalar or tensor of rank 0.
        format_args: values for the message, one or a list.
        format: the message, as of `str.format`; if empty, the values are the message.
    """
    if isinstance(condition, (bool, np.bool_)):
        condition = const(bool(condition), "bool")
    values = [format_args] if isinstance(format_args, Expr) else format_args or ()
    template = StringImm(format) if isinstance(format, str) else format
    operands = [convert_to_expr(condition), template, *[convert_to_expr(v) for v in values]]
    return make_call("assert_op", operands)


# Placement


def _tensor_of(name: str, arg: Expr) -> TensorType:
    if type(arg.ty) is not TensorType:
        raise IllTyped(f"{name}: expected a tensor, got {arg} of type {arg.ty}")
    return arg.ty


def _type_on_vdevice(call: Call) -> Type:
    ty = _tensor_of("data", call.args[0])
    return TensorType.of(ty.shape, ty.dtype, call.attrs["dst_vdevice"], ty.ndim)


@constructor("to_vdevice", _type_on_vdevice)
def to_vdevice(data: Expr, dst_vdevice: VDevice) -> Call:
    """A copy of a tensor on a device.

    Args:
        data: the tensor.
        dst_vdevice: a `VDevice` of the module.
    """
    if not isinstance(dst_vdevice, VDevice):
        raise TypeError(f"relax.to_vdevice: dst_vdevice: expected a VDevice, got "
                        f"{describe(dst_vdevice)}")  # fmt: skip
    return make_call("to_vdevice", [data], {"dst_vdevice": dst_vdevice})


@constructor(
    "hint_on_device",
    lambda call: _tensor_of("data", call.args[0]),
    lower=lambda builder, call: call.args[0],
)
def hint_on_device(data: Expr, dst_vdevice: Any, memory_scope: str = "global") -> Call:
    """The tensor itself, with the hint to keep it on a device.

    Args:
        data: the tensor.
        dst_vdevice: a `Device`, or its name as "cpu" or "cuda:1".
        memory_scope: the kind of memory there.
    """
    target: Device = device(dst_vdevice)
    attrs = {
        "device_type": target.dlpack_device_type(),
        "index": target.index,
        "memory_scope": memory_scope,
    }
    return make_call("hint_on_device", [data], attrs)
