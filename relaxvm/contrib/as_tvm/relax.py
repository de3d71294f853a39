"""Names of ``tvm.relax`` that relaxvm spells in another way."""

from __future__ import annotations

from typing import Any

from ...ir import Expr, ShapeExpr

__all__ = ["make_shape", "update_type"]


def update_type(expr: Expr, ty: Any) -> None:
    """Set the type of an expression that is under construction."""
    expr.ty = ty


def make_shape(shape: Any) -> Expr:
    """Return a shape as an expression; an expression as it is."""
    return shape if isinstance(shape, Expr) else ShapeExpr(shape)
