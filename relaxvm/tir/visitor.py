"""Visitors and mutators of TIR, generic over the fields of nodes.

A subclass of `Visitor` or `Mutator` defines ``visit_<Class>`` for the classes that it handles, and
calls `visit_parts` or `change_parts` for the fields of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.checkpoints import checkpoint
from ..ir.arith import simplify
from ..ir.expr import Expr, PrimType, Type, Var
from ..ir.node import KINDS, Node
from ..ir.op import Op
from ..ir.parts import count_parts
from ..ir.prim import as_scalar, cast
from .buffer import Buffer, BufferType
from .function import PrimFunc

__all__ = ["Mutator", "Substitution", "Visitor", "post_order_visit", "specialize", "substitute"]


class Visitor:
    """Walks statements and expressions, parts in the order of `FIELDS`."""

    def visit(self, node: Node) -> None:
        """Walk any node."""
        checkpoint()
        method = getattr(self, f"visit_{KINDS[type(node)].__name__}", None)
        if method is None:
            self.visit_parts(node)
        else:
            method(node)

    def visit_parts(self, node: Node) -> None:
        """Walk the fields of a node."""
        for field in node.FIELDS:
            self._visit_value(getattr(node, field))

    def _visit_value(self, value: Any) -> None:
        if isinstance(value, Node):
            if not isinstance(value, (Type, Op)):
                self.visit(value)
        elif type(value) is tuple:
            for item in value:
                self._visit_value(item)


class _PostOrder(Visitor):
    def __init__(self, function: Callable[[Node], Any]) -> None:
        self._function = function

    def visit(self, node: Node) -> None:
        self.visit_parts(node)
        self._function(node)


def post_order_visit(node: Node, fvisit: Callable[[Node], Any]) -> None:
    """Call `fvisit` for all nodes in a tree, children first."""
    _PostOrder(fvisit).visit(node)


class Mutator:
    """Rewrites statements and expressions.  What does not change stays the same object."""

    def visit(self, node: Any) -> Any:
        """Rewrite any node."""
        checkpoint()
        method = getattr(self, f"visit_{KINDS[type(node)].__name__}", None)
        return self.change_parts(node) if method is None else method(node)

    def change_parts(self, node: Any) -> Any:
        """Return the node with its fields rewritten."""
        changed = {}
        for field in node.FIELDS:
            old = getattr(node, field)
            new = self._change(old)
            if new is not old:
                changed[field] = new
        return node if not changed else replace(node, changed)

    def _change(self, value: Any) -> Any:
        if isinstance(value, Node):
            return value if isinstance(value, (Type, Op)) else self.visit(value)
        if type(value) is tuple:
            new = [self._change(item) for item in value]
            if all(map(_is_same, value, new)):
                return value
            return tuple(new)
        return value


def _is_same(a: object, b: object) -> bool:
    return a is b


def replace(node: Any, changed: Mapping[str, Any]) -> Any:
    """Return a copy of a node with some fields replaced; its type is recomputed from them."""
    cls = type(node)
    new = object.__new__(cls)
    for base in cls.__mro__:
        for slot in getattr(base, "__slots__", ()):
            setattr(new, slot, getattr(node, slot, None))
    for field, value in changed.items():
        setattr(new, field, value)
    count_parts(new)
    return new


class Substitution(Mutator):
    """Replaces variables; a buffer whose type mentions one of them becomes a new buffer."""

    def __init__(self, values: Mapping[Var, Any]) -> None:
        self._values: dict[Var, Any] = dict(values)

    def visit_Var(self, var: Var) -> Any:
        new = self._values.get(var)
        return var if new is None else new

    def visit_Buffer(self, buffer: Buffer) -> Any:
        new = self._values.get(buffer)
        if new is None:
            ty = self._buffer_type(buffer.ty)
            new = buffer if ty is buffer.ty else Buffer(buffer.name, ty, buffer.span)
            self._values[buffer] = new
        return new

    def _buffer_type(self, ty: BufferType) -> BufferType:
        shape, strides = self._change(ty.shape), self._change(ty.strides)
        offset = self._change(ty.elem_offset)
        if shape is ty.shape and strides is ty.strides and offset is ty.elem_offset:
            return ty
        shape, strides = map(simplify, shape), map(simplify, strides)
        return BufferType(tuple(shape), ty.dtype, tuple(strides), offset, ty.storage_scope,
                          ty.data_alignment,
                          ty.offset_factor, ty.span)  # fmt: skip


def substitute(node: Any, values: Mapping[Var, Any]) -> Any:
    """Return a statement or expression with variables replaced by expressions or numbers of their
    data types, and buffers by buffers."""
    exact = {
        var: value if isinstance(value, Node) else as_scalar(value, var.ty.dtype)
        for var, value in values.items()
    }
    return Substitution(exact).visit(node) if exact else node


def specialize(func: PrimFunc, values: Mapping[Var, Any]) -> PrimFunc:
    """Return the function with values substituted for scalar parameters or shape variables.

    Raises:
        TypeError: a key is a buffer, or a value is not a number of the variable's data type.
    """
    exact: dict[Var, Expr] = {}
    for var, value in values.items():
        if isinstance(var, Buffer) or type(var.ty) is not PrimType:
            raise TypeError(f"specialize: {var.name} is not a scalar")
        exact[var] = cast(as_scalar(value, None if isinstance(value, Expr) else var.ty.dtype),
                          var.ty.dtype)  # fmt: skip
    change = Substitution(exact)
    params = [change.visit(p) for p in func.params if isinstance(p, Buffer) or p not in exact]
    return PrimFunc(params, change.visit(func.body), func.ret_type, func.attrs, func.span)
