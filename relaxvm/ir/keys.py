"""Dictionary keys of expressions and types: equal if they have the same structure and variables.

`structural_equal` compares two given nodes and matches bound variables; a key finds an equal
expression over the same variables among many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from .expr import (
    AnyType,
    Call,
    Constant,
    DataflowVar,
    ExternFunc,
    FloatImm,
    GlobalVar,
    IntImm,
    PrimType,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
)
from .node import Attrs, Node
from .op import Op

__all__ = ["expr_key"]


def expr_key(node: Any) -> Hashable:
    """Return a dictionary key that is equal for equal expressions, types or attribute values.
    Variables and functions are equal only to themselves; constants of up to 64 elements are
    compared by content, larger ones by the address of their memory."""
    kind = type(node)
    rule = _KEYS.get(kind)
    if rule is not None:
        return rule(node)
    if isinstance(node, Var):
        return node
    if isinstance(node, Node):
        return (kind, *[expr_key(getattr(node, field)) for field in node.FIELDS])
    if isinstance(node, (tuple, list)):
        return _of_items(node)
    if isinstance(node, dict):
        return _of_dict(node)
    return (kind, node)


def _itself(node: Any) -> Hashable:
    found: Hashable = node
    return found


def _of_items(node: Any) -> Hashable:
    return tuple([expr_key(item) for item in node])


def _of_dict(node: Any) -> Hashable:
    return tuple(sorted([(key, expr_key(value)) for key, value in node.items()]))


def _of_call(node: Any) -> Hashable:
    rules = _KEYS
    args = []
    for arg in node.args:
        rule = rules.get(type(arg), expr_key)
        args.append(arg if rule is _itself else rule(arg))
    attrs = _of_dict(node.attrs) if node.attrs else ()
    types = _of_items(node.ty_args) if node.ty_args else ()
    return (Call, expr_key(node.op), tuple(args), attrs, types)


def _of_int(node: Any) -> Hashable:
    return (node.value, node.ty.dtype)


def _of_float(node: Any) -> Hashable:
    return (node.value.hex(), node.ty.dtype)


def _of_constant(node: Any) -> Hashable:
    data = node.data
    if data.size <= 64:
        return (Constant, data.dtype, data.shape, data.tobytes())
    address = data.__array_interface__["data"][0]
    return (Constant, data.dtype, data.shape, data.strides, address)


def _of_tensor_type(node: Any) -> Hashable:
    shape = None if node.shape is None else expr_key(node.shape)
    return (TensorType, shape, node.dtype, node.ndim, node.vdevice and id(node.vdevice))


_KEYS: Final[dict[type, Callable[[Any], Hashable]]] = {
    IntImm: _of_int,
    FloatImm: _of_float,
    Constant: _of_constant,
    Var: _itself,
    DataflowVar: _itself,
    GlobalVar: _itself,
    Op: lambda node: (Op, node.name),
    Call: _of_call,
    Tuple: lambda node: (Tuple, _of_items(node.fields)),
    TupleGetItem: lambda node: (TupleGetItem, expr_key(node.tuple_value), node.index),
    ExternFunc: lambda node: (ExternFunc, node.global_symbol),
    ShapeExpr: lambda node: (ShapeExpr, *map(expr_key, node.values)),
    PrimType: lambda node: (PrimType, node.dtype),
    AnyType: lambda node: AnyType,
    TensorType: _of_tensor_type,
    Attrs: _of_dict,
    tuple: _of_items,
    list: _of_items,
    type(None): _itself,
    str: _itself,
    int: _itself,
}
