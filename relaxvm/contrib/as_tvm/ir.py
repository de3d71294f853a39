"""Names of ``tvm.ir`` and ``tvm.tirx`` that relaxvm spells in another way."""

from __future__ import annotations

from typing import Any

from ...ir import Constant, Expr, is_scalar
from ...ir import Var as _Var
from ...ir.node import Attrs

__all__ = ["DictAttrs", "GenericConst", "is_prim_expr", "is_prim_var"]

DictAttrs = Attrs
GenericConst = Constant


def is_prim_expr(value: Any) -> bool:
    """Whether it is a scalar."""
    return isinstance(value, Expr) and is_scalar(value)


def is_prim_var(value: Any) -> bool:
    """Whether it is a variable for a scalar."""
    return isinstance(value, _Var) and is_scalar(value)
