"""Rewriting by patterns, for passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..dpl.pattern import DFPattern
from ..ir import Expr, Function

__all__ = ["rewrite_call"]


def rewrite_call(
    pattern: DFPattern, rewriter: Callable[[Expr, dict[DFPattern, Expr]], Any], func: Function
) -> Function:
    """As `relaxvm.dpl.rewrite_call`.  It is imported late, since it uses passes itself."""
    from ..dpl.rewrite import rewrite_call

    return rewrite_call(pattern, rewriter, func)
