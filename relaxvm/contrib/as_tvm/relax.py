"""Names of ``tvm.relax`` that relaxvm spells in another way."""

from __future__ import annotations

from typing import Any

from ...ir import Expr, ShapeExpr
from ...transform import FoldConstant as _FoldConstant
from ...transform import Pass
from ...transform.pipelines import get_pipeline

__all__ = ["FoldConstant", "get_default_pipeline", "make_shape", "update_type"]


def update_type(expr: Expr, ty: Any) -> None:
    """Set the type of an expression that is under construction."""
    expr.ty = ty


def get_default_pipeline(target: Any) -> Pass:
    """Return the pipeline that lowers a program for a target, the CPU.

    Raises:
        ValueError: the target is another device.
    """
    from .target import Target

    chosen = target if isinstance(target, Target) else Target(target)
    if chosen.get_target_device_type() != 1:
        raise ValueError(
            f"get_default_pipeline: expected a target for the CPU, such as 'llvm', got {chosen}"
        )
    return get_pipeline("default")


def FoldConstant() -> Pass:
    """See `relaxvm.transform.FoldConstant`; TVM folds in dataflow blocks alone."""
    return _FoldConstant(only_dataflow=True)


def make_shape(shape: Any) -> Expr:
    """Return a shape as an expression; an expression as it is."""
    return shape if isinstance(shape, Expr) else ShapeExpr(shape)
