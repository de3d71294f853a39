"""How often variables are used."""

from __future__ import annotations

from collections import Counter

from ..ir import (
    Call,
    Expr,
    Function,
    If,
    Match,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    post_order_visit,
)

__all__ = ["count_uses", "uses_of"]


def uses_of(func: Function) -> Counter[Var]:
    """How often each variable is used."""
    uses: Counter[Var] = Counter()
    count_uses(func, uses)
    return uses


def count_uses(expr: Expr, uses: Counter[Var]) -> None:
    """Add how often each variable is used in an expression."""

    def visit(expr: Expr) -> None:
        if isinstance(expr, Call):
            for arg in expr.args:
                if isinstance(arg, Var):
                    uses[arg] += 1
        elif isinstance(expr, Tuple):
            for field in expr.fields:
                if isinstance(field, Var):
                    uses[field] += 1
        elif isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Var):
            uses[expr.tuple_value] += 1
        elif isinstance(expr, SeqExpr):
            if isinstance(expr.body, Var):
                uses[expr.body] += 1
            for block in expr.blocks:
                uses.update(b.value for b in block.bindings if isinstance(b.value, Var))
        elif isinstance(expr, If) and isinstance(expr.cond, Var):
            uses[expr.cond] += 1
        elif isinstance(expr, Match) and isinstance(expr.data, Var):
            uses[expr.data] += 1

    if isinstance(expr, Var):
        uses[expr] += 1
    post_order_visit(expr, visit)
