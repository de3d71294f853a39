"""Normalization: elements minus their mean, divided by their deviation, scaled and shifted."""

from __future__ import annotations

from typing import Any

from ...ir.expr import Call, Expr, TensorType, Tuple, TupleType, Type
from ..kinds import Axes, Axis, IllTyped, IllValued
from ..lowering import is_allocatable, kernel_call, returning_call
from ..manipulate import squeeze
from ..registry import CONSTRUCTORS, attributes_of, operator
from ..rules import (
    common_dtype,
    common_vdevice,
    like,
    need_divisor,
    need_floats,
    need_rank,
    never_equal,
    same_dim,
    shape_text,
)

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm"]


def _normalized(data: TensorType, axes: tuple[int, ...], **weights: TensorType) -> TensorType:
    """The type of data, normalized over axes with weights of the shape that these axes have."""
    need_floats(data=data, **weights)
    for name, ty in weights.items():
        if (ty.dtype is None) != (data.dtype is None):
            raise IllTyped(
                f"{name}: expected the data type of data, {data.dtype or 'which is not known'}, "
                f"got {ty}; R.match_cast states a data type"
            )
    common_dtype(data=data, **weights)
    vdevice = common_vdevice(data=data, **weights)
    need_rank(len(axes), **weights)
    is_known = True
    for name, ty in weights.items():
        if data.dims is None or ty.dims is None:
            continue
        shape = [data.dims[i] for i in axes]
        if any(map(never_equal, shape, ty.dims)):
            raise IllValued(
                f"{name}: expected the shape {shape_text(shape)} that data has in axes "
                f"{list(axes)}, got {shape_text(ty.dims)}"
            )
        is_known = is_known and all(map(same_dim, shape, ty.dims))
    if is_known:  # otherwise dimensions may differ when the program runs
        return like(data, vdevice=vdevice)
    return like(data, None, ndim=data.ndim, vdevice=vdevice)


@operator("nn.layer_norm", loops="nn.layer_norm")
def layer_norm(
    data: TensorType,
    gamma: TensorType,
    beta: TensorType,
    axes: Axes,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> Type:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta`` with mean and variance over axes;
    gamma and beta have the shape of these.  Without `scale`, gamma is ignored; without `center`,
    beta is."""
    return _normalized(data, axes, gamma=gamma, beta=beta)


@operator("nn.rms_norm", loops="nn.rms_norm")
def rms_norm(
    data: TensorType, weight: TensorType, axes: Axes = (-1,), epsilon: float = 1e-05
) -> Type:
    """``data / sqrt(mean(data**2) + epsilon) * weight`` with the mean over axes; weight has the
    shape of these."""
    return _normalized(data, axes, weight=weight)


@operator("nn.group_norm", loops="nn.group_norm")
def group_norm(
    data: TensorType,
    gamma: TensorType,
    beta: TensorType,
    num_groups: int,
    channel_axis: Axis,
    axes: Axes,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> Type:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta``, with mean and variance over axes
    and the channels of a group; the channels, along `channel_axis`, form `num_groups` groups of
    equal size.  gamma and beta have an element for each channel.  Without `scale`, gamma is
    ignored; without `center`, beta is."""
    _normalized(data, (channel_axis,), gamma=gamma, beta=beta)
    if channel_axis in axes:
        raise IllValued(
            f"axes: expected axes other than channel_axis {channel_axis}, got {list(axes)}"
        )
    channels = None if data.dims is None else data.dims[channel_axis]
    need_divisor("num_groups", num_groups, channels, "channels")
    return data


@operator("nn.instance_norm", loops="nn.instance_norm")
def instance_norm(
    data: TensorType,
    gamma: TensorType,
    beta: TensorType,
    channel_axis: Axis,
    axes: Axes,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> Type:
    """``(data - mean) / sqrt(variance + epsilon) * gamma + beta``, with mean and variance over
    axes; gamma and beta have an element for each channel, along `channel_axis`.  Without `scale`,
    gamma is ignored; without `center`, beta is."""
    if channel_axis in axes:
        raise IllValued(
            f"axes: expected axes other than channel_axis {channel_axis}, got {list(axes)}"
        )
    checked = _normalized(data, (channel_axis,), gamma=gamma, beta=beta)
    return data if checked.vdevice == data.vdevice else like(data, vdevice=checked.vdevice)


def _lower_batch_norm(builder: Any, call: Call) -> Expr:
    """The kernel takes means and variances; in training they are computed from the batch."""
    data, gamma, beta, mean, variance = call.args
    attrs, normal_ty = attributes_of(call), call.ty.fields[0]
    axis = attrs["axis"]
    settings = (axis, attrs["epsilon"], attrs["center"], attrs["scale"])

    def normalized(mean: Expr, variance: Expr) -> Expr:
        inputs = [data, gamma, beta, mean, variance, *settings]
        normal = kernel_call if is_allocatable(normal_ty) else returning_call
        return normal("nn.batch_norm", inputs, normal_ty)

    if not attrs["training"]:
        return Tuple((normalized(mean, variance), mean, variance))
    if data.ty.ndim == -1:
        return call
    others = [i for i in range(data.ty.ndim) if i != axis]
    kept_mean = builder.emit(CONSTRUCTORS["mean"](data, others, keepdims=True))
    batch_mean = builder.emit(squeeze(kept_mean, others))
    distance = builder.emit(data - kept_mean)
    batch_variance = builder.emit(CONSTRUCTORS["mean"](distance * distance, others))
    momentum = attrs["momentum"]
    return Tuple(
        (
            normalized(batch_mean, batch_variance),
            mean * (1 - momentum) + batch_mean * momentum,
            variance * (1 - momentum) + batch_variance * momentum,
        )
    )


@operator(
    "nn.batch_norm", kernel="nn.batch_norm", lower=_lower_batch_norm, loops="nn.batch_norm"
)
def batch_norm(
    data: TensorType,
    gamma: TensorType,
    beta: TensorType,
    moving_mean: TensorType,
    moving_var: TensorType,
    axis: Axis,
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> Type:
    """data, normalized for each index of an axis, and the moving mean and variance, as a tuple.

    ``(data - mean) / sqrt(variance + epsilon) * gamma + beta``, with the moving mean and variance,
    which do not change.  In training, with those of the batch, and the moving ones change towards
    them by `momentum`.
    """
    places = {"gamma": gamma, "beta": beta, "moving_mean": moving_mean, "moving_var": moving_var}
    normal = _normalized(data, (axis,), **places)
    return TupleType((normal, moving_mean, moving_var))
