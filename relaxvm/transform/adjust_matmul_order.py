"""AdjustMatmulOrder: multiply three matrices in the order that takes fewer operations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from .. import dpl, op
from ..analysis import computable_at_compile_time, free_vars, tir_vars_in_type
from ..dpl.pattern import DFPattern, is_op, wildcard
from ..ir import (
    Analyzer,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    prim_value,
    prove_equal,
    simplify,
    substitute,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["AdjustMatmulOrder"]

_Dims = Sequence[Any]


class _Costs:
    """Compares numbers of operations, for all sizes that symbolic variables may have."""

    def __init__(self, func: Function) -> None:
        self._analyzer = Analyzer()
        lower = dict(func.attrs.get("tir_var_lower_bound") or {})
        upper = dict(func.attrs.get("tir_var_upper_bound") or {})
        self._bounds: dict[Var, tuple[int, int | float]] = {}
        for var in (v for param in func.params for v in tir_vars_in_type(param.ty)):
            least = int(lower.get(var.name, 0))
            # An upper bound is exclusive.
            most = int(upper[var.name]) - 1 if var.name in upper else math.inf
            self._bounds[var] = (least, most)

    def is_less(self, a: Any, b: Any, sizes: Iterable[Any]) -> bool:
        """Whether a < b, where all `sizes` are at least 1."""
        difference = prim_value(a - b)
        known = {size for size in sizes if isinstance(size, Var)}
        bounds = {}
        for var in free_vars(difference):
            least, most = self._bounds.get(var, (0, math.inf))
            bounds[var] = (max(1, least) if var in known else least, most)
        return self._is_negative(difference, list(bounds.items()), True)

    def _is_negative(self, e: Any, variables: list[Any], strictly: bool) -> bool:
        """Whether e < 0, or e <= 0, for all values of its variables.  A polynomial of degree 1 in a
        variable is largest at one end of its range; without an upper end, its slope must not be
        positive."""
        if not variables:
            largest = self._analyzer.const_bounds(prim_value(e))[1]
            return largest < 0 if strictly else largest <= 0
        (var, (least, most)), *rest = variables

        def at(value: int) -> Any:
            return substitute(e, {var: prim_value(value)})

        start = at(0)
        slope = simplify(prim_value(at(1) - start))
        if not prove_equal(e, start + slope * var):
            return False  # of a higher degree
        if not self._is_negative(prim_value(at(least)), rest, strictly):
            return False
        if most == math.inf:
            return self._is_negative(slope, rest, False)
        return self._is_negative(prim_value(at(int(most))), rest, strictly)


def _product(dims: _Dims) -> Any:
    total: Any = prim_value(1)
    for dim in dims:
        total = total * dim
    return total


def _transposed(value: Expr, dims: _Dims) -> tuple[Any, _Dims]:
    ndim = len(dims)
    axes = None if ndim == 2 else [*range(ndim - 2), ndim - 1, ndim - 2]
    return op.permute_dims(value, axes), [*dims[:-2], dims[-1], dims[-2]]


def _broadcast(a: _Dims, b: _Dims) -> _Dims | None:
    """The dimensions of a batch that two batches broadcast to; None if it is not known."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    dims = list(longer)
    for i, dim in enumerate(shorter, len(longer) - len(shorter)):
        if prove_equal(dims[i], 1):
            dims[i] = dim
        elif not prove_equal(dim, 1) and not prove_equal(dim, dims[i]):
            return None
    return dims


def _swaps_the_last_two(call: Any) -> bool:
    ndim, axes = call.args[0].ty.ndim, call.attrs["axes"]
    if ndim < 2:
        return False
    if axes is None:
        return bool(ndim == 2)
    return [axis % ndim for axis in axes] == [*range(ndim - 2), ndim - 1, ndim - 2]


def AdjustMatmulOrder() -> Pass:
    """Replace ``matmul(matmul(a, b), c)`` by ``matmul(a, matmul(b, c))``, or the other way round.

    If two that stand beside each other are weights, they are multiplied with each other, so that
    this may be done once (see `LiftTransformParams`).  Otherwise it is the order that takes fewer
    multiplications for all sizes that symbolic variables may have: their bounds are the function's
    attributes ``tir_var_lower_bound`` and ``tir_var_upper_bound``, dicts from names to the least
    value and to the first one that is too large.  Where neither order is known to be better, the
    program stays as it is.  A product that is transposed before it is multiplied is taken apart,
    too.

    The result is rounded differently.
    """
    a, b, c = wildcard(), wildcard(), wildcard()
    matmul, permute = is_op("relax.matmul"), is_op("relax.permute_dims")
    left_first = matmul(matmul(a, b), c)
    right_first = matmul(a, matmul(b, c))
    left_transposed, right_transposed = permute(matmul(b, a)), permute(matmul(c, b))
    left_permuted = matmul(left_transposed, c)
    right_permuted = matmul(a, right_transposed)
    pattern = left_first | right_first | left_permuted | right_permuted

    @function_pass(name="AdjustMatmulOrder", opt_level=1)
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        weights = set(computable_at_compile_time(func))
        costs = _Costs(func)

        def reorder(expr: Expr, matches: dict[DFPattern, Expr]) -> Any:
            x, y, z = values = [matches[part] for part in (a, b, c)]
            if weights.issuperset(values):
                return expr
            types: list[Any] = [value.ty for value in values]
            if not all(isinstance(ty, TensorType) and ty.dims for ty in types):
                return expr
            shapes: list[Any] = [list(ty.dims) for ty in types]
            inner: Any = matches.get(left_transposed) or matches.get(right_transposed)
            if inner is not None and not _swaps_the_last_two(inner):
                return expr
            if left_permuted in matches:
                if len(shapes[0]) < 2 or len(shapes[1]) < 2:
                    return expr
                x, shapes[0] = _transposed(x, shapes[0])
                y, shapes[1] = _transposed(y, shapes[1])
            elif right_permuted in matches:
                if len(shapes[1]) < 2 or len(shapes[2]) < 2:
                    return expr
                y, shapes[1] = _transposed(y, shapes[1])
                z, shapes[2] = _transposed(z, shapes[2])

            def left() -> Any:
                return expr if left_first in matches else op.matmul(op.matmul(x, y), z)

            def right() -> Any:
                return expr if right_first in matches else op.matmul(x, op.matmul(y, z))

            if x in weights and y in weights:
                return left()
            if y in weights and z in weights:
                return right()
            counted = _operations(shapes, right_first in matches)
            if counted is None:
                return expr
            of_left, of_right, sizes = counted
            if costs.is_less(of_left, of_right, sizes):
                return left()
            if costs.is_less(of_right, of_left, sizes):
                return right()
            return expr

        return dpl.rewrite_call(pattern, reorder, func)

    return run


def _operations(shapes: list[Any], vector_is_row: bool) -> tuple[Any, Any, list[Any]] | None:
    """The multiplications of ``(a b) c`` and of ``a (b c)``, and all sizes that are in them."""
    one = prim_value(1)
    x, y, z = shapes
    if len(x) == 1:
        x = [one, x[0]]
    if len(y) == 1:
        y = [one, y[0]] if vector_is_row else [y[0], one]
    if len(z) == 1:
        z = [z[0], one]
    xy, yz = _broadcast(x[:-2], y[:-2]), _broadcast(y[:-2], z[:-2])
    if xy is None or yz is None:
        return None
    xyz, xyz_ = _broadcast(xy, z[:-2]), _broadcast(x[:-2], yz)
    if xyz is None or xyz_ is None:
        return None
    n, r, m, k = x[-2], x[-1], z[-2], z[-1]
    left = _product([*xy, n, r, m]) + _product([*xyz, n, m, k])
    right = _product([*yz, r, m, k]) + _product([*xyz_, n, r, k])
    return left, right, [*x, *y, *z]
