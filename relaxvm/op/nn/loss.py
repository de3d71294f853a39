"""Losses."""

from __future__ import annotations

from ...ir.expr import TensorType, Type
from ..kinds import IllValued
from ..registry import operator
from ..rules import common_dtype, common_vdevice, differ, need_floats, shape_text

__all__ = ["cross_entropy_with_logits"]


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
