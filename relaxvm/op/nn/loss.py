"""Losses."""

from __future__ import annotations

from typing import Any, Literal

from ...ir.expr import Call, Expr, TensorType, Type
from ..kinds import IllValued
from ..registry import Unsupported, attributes_of, operator
from ..rules import (
    common_dtype,
    common_vdevice,
    differ,
    need_equal_dims,
    need_floats,
    need_integers,
    need_numbers,
    need_rank,
    shape_text,
    without_shape_var,
)

__all__ = ["cross_entropy_with_logits", "nll_loss"]


@operator("nn.cross_entropy_with_logits", loops="nn.cross_entropy_with_logits")
def cross_entropy_with_logits(predictions: TensorType, labels: TensorType) -> Type:
    """The negative sum of ``predictions * labels``, divided by the first dimension if there are
    two: predictions are logarithms of probabilities, labels probabilities.  A tensor of rank 0."""
    need_floats(predictions=predictions, labels=labels)
    dtype = common_dtype(predictions=predictions, labels=labels)
    vdevice = common_vdevice(predictions=predictions, labels=labels)
    for name, ty in (("predictions", predictions), ("labels", labels)):
        if ty.ndim not in (-1, 1, 2):
            raise IllValued(f"{name}: expected a tensor of rank 1 or 2, got {ty}")
    a, b = predictions.dims, labels.dims
    if a is not None and b is not None and (len(a) != len(b) or any(map(differ, a, b))):
        raise IllValued(
            f"expected predictions and labels of one shape, got {shape_text(a)} and {shape_text(b)}"
        )
    return TensorType((), dtype, vdevice)


def _nll_inputs(call: Call) -> list[Any]:
    predictions, targets, *weights = call.args
    return [predictions, targets, weights[0] if weights else None, *attributes_of(call).values()]


@operator(
    "nn.nll_loss", takes=_nll_inputs, loops=Unsupported("The kernel checks the targets.")
)
def nll_loss(
    predictions: TensorType,
    targets: TensorType,
    weights: TensorType | None = None,
    reduction: Literal["none", "sum", "mean"] = "mean",
    ignore_index: int = -100,
) -> Type:
    """Minus the prediction of the class that targets say, times its weight.

    predictions[batch, classes, ...]: logarithms of probabilities; targets[batch, ...]: integers; or
    predictions[classes] and one target; weights[classes]: ones if not given.  With `reduction`
    "none", the result has the shape of targets; otherwise it is the sum, or the sum divided by that
    of the weights.  Targets that are `ignore_index` do not count.  Integers are divided as in C.
    """
    numbers = {"predictions": predictions}
    if weights is not None:
        numbers["weights"] = weights
        need_rank(1, weights=weights)
    need_numbers(**numbers)
    need_integers(targets=targets)
    dtype = common_dtype(**numbers)
    vdevice = common_vdevice(**numbers, targets=targets)
    ndim = predictions.ndim
    if ndim == 0:
        raise IllValued(f"predictions: expected a tensor of rank 1 or more, got {predictions}")
    rest = ndim - 1 if ndim > 0 else -1
    if rest >= 0:
        need_rank(rest, targets=targets)
    dims = predictions.dims
    others: list[Expr] | None = None
    if dims is not None:
        axis = min(1, rest)
        if weights is not None:
            known = None if weights.dims is None else weights.dims[0]
            need_equal_dims("the number of classes", predictions=dims[axis], weights=known)
        others = [*dims[:axis], *dims[axis + 1 :]]
        if targets.dims is not None and any(map(differ, others, targets.dims)):
            raise IllValued(
                f"targets: expected the shape {shape_text(others)}, as predictions have, got "
                f"{shape_text(targets.dims)}"
            )
    if reduction != "none":
        return TensorType((), dtype, vdevice)
    if without_shape_var(predictions).dims is None:
        others = None
    return TensorType.of(others, dtype, vdevice, rest)
