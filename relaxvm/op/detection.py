"""Operators of object detection: regions of images, resampled to one size."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.expr import Call, TensorType, Type, int_imm
from .kinds import IllValued, Ints
from .registry import Unsupported, operator
from .rules import common_dtype, common_vdevice, differ, like, need_floats, need_rank

__all__: list[str] = []

_NO_LOOPS: Final = Unsupported("The kernel computes the places of samples once for all channels.")


def _regions(data: TensorType, rois: TensorType, pooled_size: Ints, layout: str) -> Type:
    need_floats(data=data, rois=rois)
    common_dtype(data=data, rois=rois)
    vdevice = common_vdevice(data=data, rois=rois)
    need_rank(4, data=data)
    need_rank(2, rois=rois)
    if len(pooled_size) != 2 or min(pooled_size) < 1:
        raise IllValued(
            f"pooled_size: expected two numbers of at least 1, got {list(pooled_size)}"
        )
    if rois.dims is not None and differ(rois.dims[1], int_imm(5)):
        raise IllValued(f"rois: expected 5 numbers for each region, got {rois}")
    if data.dims is None or rois.dims is None:
        return like(data, None, ndim=4, vdevice=vdevice)
    dims = {"N": rois.dims[0], "C": data.dims[layout.index("C")]}
    dims.update(zip("HW", map(int_imm, pooled_size), strict=True))
    return like(data, [dims[letter] for letter in layout], vdevice=vdevice)


def _pair(pooled_size: Any) -> Any:
    return (pooled_size, pooled_size) if isinstance(pooled_size, int) else pooled_size


def _align_arguments(
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> tuple[Any, ...]:
    return (data, rois, _pair(pooled_size), spatial_scale, sample_ratio, aligned, layout, mode)


def _align_inputs(call: Call) -> list[Any]:
    attrs = call.attrs
    names = ("pooled_size", "spatial_scale", "sample_ratio", "aligned")
    settings = [attrs[name] for name in names]
    return [*call.args, *settings, 0.0, attrs["mode"], attrs["layout"] == "NHWC"]


@operator(
    "vision.roi_align", arguments=_align_arguments, takes=_align_inputs, loops=_NO_LOOPS
)
def roi_align(
    data: TensorType,
    rois: TensorType,
    pooled_size: Ints,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: Literal["NCHW", "NHWC"] = "NCHW",
    mode: Literal["avg", "max"] = "avg",
) -> Type:
    """Regions of images, divided into `pooled_size` parts along height and width: the mean or the
    greatest of the samples of each part, which are means of four neighbours.

    rois[n, 5]: the index of an image, and x and y of two corners, which are multiplied by
    `spatial_scale`.  sample_ratio: samples of a part along an axis; one for each element if it is
    not positive.  Without `aligned`, regions are at least one element high and wide.
    """
    return _regions(data, rois, pooled_size, layout)


def _pool_arguments(
    data: Any, rois: Any, pooled_size: Any, spatial_scale: float, layout: str = "NCHW"
) -> tuple[Any, ...]:
    return data, rois, _pair(pooled_size), spatial_scale, layout


def _pool_inputs(call: Call) -> list[Any]:
    return [*call.args, call.attrs["pooled_size"], call.attrs["spatial_scale"]]


@operator("vision.roi_pool", arguments=_pool_arguments, takes=_pool_inputs, loops=_NO_LOOPS)
def roi_pool(
    data: TensorType,
    rois: TensorType,
    pooled_size: Ints,
    spatial_scale: float,
    layout: Literal["NCHW"] = "NCHW",
) -> Type:
    """The greatest element of each of `pooled_size` parts of regions of images; 0 for a part
    without elements.

    rois[n, 5]: the index of an image, and x and y of the first and last elements, which are
    multiplied by `spatial_scale` and rounded.
    """
    return _regions(data, rois, pooled_size, layout)
