"""OptimizeLayoutTransform: changes of layout that undo each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .. import dpl
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import Call, Expr, Function, IntImm, IRModule
from ..ir.arith import prove_equal
from ..ir.index_map import IndexMap
from ..tir import PrimFunc
from .alter_op_impl import OPERATOR_NAME, REMOVE_PAD
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["OptimizeLayoutTransform"]

_MOST: Final = 1 << 20
"""Shapes of at most so many elements are tried place by place."""


def _is_identity(
    first: IndexMap, second: IndexMap, shape: Sequence[Expr], middle: Sequence[Expr] | None
) -> bool:
    """Whether the second map brings the elements of a tensor back to where they were.

    Args:
        shape: of the tensor.
        middle: the places in between that count; None for all.
    """
    if middle is None:
        places = second.map_indices(first.final_indices)
        variables = first.initial_indices
        if len(places) == len(variables) and all(map(prove_equal, places, variables)):
            return True
    known = [dim.value for dim in (*shape, *(middle or ())) if isinstance(dim, IntImm)]
    lengths = known[: len(shape)]
    if len(known) != len(shape) + len(middle or ()) or math.prod(lengths) > _MOST:
        return False
    here = np.indices(lengths)
    try:
        there = first.map_arrays(here)
        back = second.map_arrays(there)
    except ValueError:
        return False
    counts = np.ones(lengths, np.bool_)
    for place, length in zip(there, known[len(shape) :], strict=False):
        counts &= place < length
    return len(back) == len(shape) and all(
        bool((b == h)[counts].all()) for b, h in zip(back, here, strict=True)
    )


def OptimizeLayoutTransform() -> Pass:
    """Replace ``layout_transform(layout_transform(x, there), back)`` by x, also with a PrimFunc in
    between whose operator name is "remove_pad", as `AlterOpImpl` makes them.

    What such a PrimFunc removes, and the second change of layout adds again without a given value,
    is left as it is.

    Source: ``tvm.relax.transform.OptimizeLayoutTransform`` of apache-tvm 0.27.
    """
    x, gvar = wildcard(), wildcard()
    first = is_op("relax.layout_transform")(x)
    cut = is_op("relax.call_tir")(gvar, dpl.TuplePattern([first]))
    twice = is_op("relax.layout_transform")(first)
    cut_twice = is_op("relax.layout_transform")(cut)
    pattern = twice | cut_twice

    @function_pass(name="OptimizeLayoutTransform")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        def replaced(expr: Expr, matches: dict[DFPattern, Expr]) -> Expr:
            source, inner, outer = matches[x], matches[first], expr
            if not isinstance(inner, Call) or not isinstance(outer, Call):
                return expr
            ty: Any = source.ty
            new: Any = outer.ty
            if ty.dims is None or new.dims is None or ty.dtype != new.dtype:
                return expr
            if len(ty.dims) != len(new.dims) or not all(map(prove_equal, ty.dims, new.dims)):
                return expr
            middle = None
            if matches.get(cut) is not None:
                callee = mod.functions.get(matches[gvar])  # type: ignore[call-overload]
                is_cut = isinstance(callee, PrimFunc) and (
                    callee.attrs.get(OPERATOR_NAME) == REMOVE_PAD
                )
                if not is_cut or outer.attrs["pad_value"] is not None:
                    return expr
                between: Any = matches[cut].ty
                middle = between.dims
            maps = inner.attrs["index_map"], outer.attrs["index_map"]
            return source if _is_identity(*maps, ty.dims, middle) else expr

        return dpl.rewrite_call(pattern, replaced, func)

    return run
