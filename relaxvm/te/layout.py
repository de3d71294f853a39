"""The formula of the operator that changes layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.arith import substitute
from ..ir.expr import Expr, IntImm
from ..ir.index_map import IndexMap
from ..ir.prim import as_scalar, is_float
from ..tir import intrinsics
from ..tir.buffer import Buffer
from ..tir.stmt import Stmt
from .extern import extern
from .tensor import Tensor, compute
from .topi import _loops as loops

__all__ = ["layout_transform"]


def layout_transform(x: Tensor, index_map: IndexMap, pad_value: Any = None, **_: Any) -> Any:
    """The element at ``i`` at ``index_map(*i)``: each place reads what goes there, or, if the map
    back is not known, each element is written to its place."""
    shape = index_map.map_shape(x.shape)
    zero = as_scalar(0.0 if is_float(x.dtype) else 0, x.dtype) if pad_value is None else pad_value
    try:
        inverse, outside = index_map.non_surjective_inverse(x.shape)
    except ValueError:
        return _scattered(x, index_map, shape, zero)
    places = inverse.initial_indices

    def element(*i: Expr) -> Any:
        value = x[tuple(inverse.map_indices(i))]
        if isinstance(outside, IntImm):
            return value
        gone = substitute(outside, dict(zip(places, i, strict=True)))
        return intrinsics.if_then_else(gone, zero, value)

    return compute(shape, element, "layout_transform")


def _scattered(x: Tensor, index_map: IndexMap, shape: Sequence[Expr], zero: Any) -> Any:
    def statements(inputs: list[Buffer], outputs: list[Buffer]) -> Stmt:
        source, target = inputs[0], outputs[0]
        return loops.run(
            loops.nest(shape, lambda i: loops.store(target, i, zero)),
            loops.nest(
                x.shape,
                lambda i: loops.store(target, index_map.map_indices(i), source[i]),
            ),
        )

    return extern([list(shape)], [x], statements, "layout_transform", x.dtype)
