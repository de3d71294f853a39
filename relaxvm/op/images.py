"""Operators on images: other sizes, and samples at coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

from ..ir.expr import Call, Expr, ShapeExpr, TensorType, Type, const, int_imm
from .kinds import Axes, DType, Floats, IllValued, ShapeLike, to_floats
from .lowering import is_allocatable, kernel_call, results_text
from .registry import Constructor, Unsupported, attributes_of, operator
from .rules import (
    common_vdevice,
    differ,
    like,
    need_equal_dims,
    need_floats,
    need_numbers,
    need_rank,
)

__all__: list[str] = []

_NO_LOOPS: Final = Unsupported("The kernel computes indices and weights once for all images.")

_RESIZE_DOC: Final = """Images with other lengths of {axes}: `size`.

    data: of layout {layout!r}, or `layout` if given.  method: of the "nearest_neighbor", the
    "linear" mean of neighbours, or the "cubic" one, with the coefficient `cubic_alpha`, without
    those outside the image if `cubic_exclude`.  coordinate_transformation_mode: how an index of the
    result becomes a place of the image, as in ONNX.  rounding_method: how the nearest neighbour is
    chosen.  roi: for "tf_crop_and_resize", the starts and then the ends of the axes, as parts of
    them; what is not on the image is `extrapolation_value`.
    """

_COORDINATES: Final = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
    "tf_crop_and_resize", "half_pixel_symmetric",
)  # fmt: skip
_ROUNDING: Final = ("", "round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def _need_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise IllValued(f"{name}: expected {' or '.join(map(repr, choices))}, got {value!r}")


def _places(layout: str, spatial: str) -> list[int]:
    """The axes of a layout with these letters."""
    if sorted(layout) != sorted("NC" + spatial):
        raise IllValued(f"layout: expected an order of the letters of {'NC' + spatial!r}, got "
                        f"{layout!r}")  # fmt: skip
    return [layout.index(letter) for letter in spatial]


def _check_rank(name: str, ty: TensorType, layout: str) -> None:
    if ty.ndim not in (-1, len(layout)):
        raise IllValued(f"{name}: expected a tensor of layout {layout!r}, got {ty}")


def resize(name: str, spatial: str, rounding: str) -> Constructor:
    """Register a resizing of images with axes of these letters; `rounding` is the default."""
    count, default_layout = len(spatial), "NC" + spatial

    def arguments(
        data: Any,
        size: Any,
        roi: Any = None,
        layout: str = default_layout,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = rounding,
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: Any = None,
    ) -> tuple[Any, ...]:
        if not isinstance(size, Expr) or not hasattr(size.ty, "ndim"):
            sizes = list(size) if isinstance(size, (tuple, list)) else [size]
            size = sizes * count if len(sizes) == 1 else sizes
        region = to_floats("roi", 0.0 if roi is None else roi)
        region = region * (2 * count) if len(region) == 1 else region
        return (
            data, size, region, layout, method, coordinate_transformation_mode, rounding_method,
            cubic_alpha, cubic_exclude, extrapolation_value, out_dtype,
        )  # fmt: skip

    def rule(
        data: TensorType,
        size: ShapeLike,
        roi: Floats,
        layout: str,
        method: str,
        coordinate_transformation_mode: str,
        rounding_method: str,
        cubic_alpha: float,
        cubic_exclude: int,
        extrapolation_value: float,
        out_dtype: DType | None,
    ) -> Type:
        axes = _places(layout, spatial)
        _check_rank("data", data, layout)
        _need_choice("method", method, ("nearest_neighbor", "linear", "cubic"))
        _need_choice(
            "coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES
        )
        _need_choice("rounding_method", rounding_method, _ROUNDING)
        if method != "nearest_neighbor":
            need_numbers(data=data)
        if len(roi) != 2 * count:
            raise IllValued(f"roi: expected {2 * count} numbers, got {list(roi)}")
        if cubic_exclude not in (0, 1):
            raise IllValued(f"cubic_exclude: expected 0 or 1, got {cubic_exclude}")
        if size.ty.ndim not in (-1, count):
            raise IllValued(f"size: expected {count} numbers, got {size}")
        dtype = data.dtype if out_dtype is None else out_dtype
        if data.dims is None or not isinstance(size, ShapeExpr):
            return like(data, None, dtype=dtype, ndim=len(layout))
        dims = list(data.dims)
        for axis, length in zip(axes, size.values, strict=True):
            dims[axis] = length
        return like(data, dims, dtype=dtype)

    def inputs(call: Call) -> list[Any]:
        data, size = call.args
        attrs = call.attrs
        mode, how = attrs["coordinate_transformation_mode"], attrs["rounding_method"]
        region = None
        if mode == "tf_crop_and_resize":
            region = const(list(attrs["roi"]), "float64")
        axes = tuple(_places(attrs["layout"], spatial))
        return [
            data, None, region, axes, size, attrs["method"], mode,
            how or ("round" if mode == "align_corners" else "floor"), attrs["cubic_alpha"],
            bool(attrs["cubic_exclude"]), False, attrs["extrapolation_value"], "stretch",
        ]  # fmt: skip

    def lower(builder: Any, call: Call) -> Expr:
        return kernel_call(_KERNEL, inputs(call), call.ty) if is_allocatable(call.ty) else call

    def returns(call: Call) -> tuple[str, list[Any]]:
        return _KERNEL, [*inputs(call), None, results_text(call)]

    rule.__doc__ = _RESIZE_DOC.format(axes=" and ".join(spatial), layout=default_layout)
    return operator(
        name, kernel=_KERNEL, arguments=arguments, lower=lower, returns=returns, loops=_NO_LOOPS
    )(rule)


_KERNEL: Final = "image.resize"



def _resize_inputs(call: Call) -> list[Any]:
    data, size = call.args
    attrs = attributes_of(call)
    scales, region = attrs["scales"], attrs["roi"]
    return [
        data,
        None if scales is None else const(list(scales), "float64"),
        None if region is None else const(list(region), "float64"),
        attrs["axes"],
        size,
        *list(attrs.values())[3:],
        "stretch",
    ]


def _resize_result(call: Call) -> tuple[str, list[Any]]:
    return _KERNEL, [*_resize_inputs(call), None, results_text(call)]


@operator("image.resize", takes=_resize_inputs, returns=_resize_result, loops=_NO_LOOPS)
def resize_axes(
    data: TensorType,
    size: ShapeLike,
    axes: Axes,
    scales: Floats | None = None,
    roi: Floats | None = None,
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round_prefer_floor",
    cubic_alpha: float = -0.75,
    exclude_outside: bool = False,
    antialias: bool = False,
    extrapolation_value: float = 0.0,
) -> Type:
    """data with other lengths of axes, as ONNX has it; otherwise as `image.resize2d`.

    size: the lengths.  scales: how much longer the axes become, for coordinates; size / length if
    not given.  exclude_outside: elements outside data have no weight.  antialias: the filter is
    wider where an axis becomes shorter.
    """
    count = len(axes)
    _need_choice("method", method, ("nearest_neighbor", "linear", "cubic"))
    _need_choice("coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES)
    _need_choice("rounding_method", rounding_method, _ROUNDING[1:])
    if method != "nearest_neighbor":
        need_numbers(data=data)
    if scales is not None and (len(scales) != count or not all(0 < s < math.inf for s in scales)):
        raise IllValued(f"scales: expected {count} positive numbers, got {list(scales)}")
    needs_roi = coordinate_transformation_mode == "tf_crop_and_resize"
    if len(roi) != 2 * count if roi is not None else needs_roi:
        given = None if roi is None else list(roi)
        raise IllValued(f"roi: expected {2 * count} numbers, got {given}")
    if size.ty.ndim not in (-1, count):
        raise IllValued(f"size: expected {count} numbers, got {size}")
    if data.dims is None or not isinstance(size, ShapeExpr):
        return like(data, None, ndim=data.ndim)
    dims = list(data.dims)
    for axis, length in zip(axes, size.values, strict=True):
        dims[axis] = length
    return like(data, dims)


# The defaults of the rounding are TVM's.
resize("image.resize2d", "HW", "round")
resize("image.resize3d", "DHW", "")


# Samples at coordinates

_LAYOUTS: Final = ("NCHW", "NHWC", "NCDHW", "NDHWC")


def _sample_inputs(call: Call) -> list[Any]:
    attrs = call.attrs
    settings = (attrs["method"], attrs["padding_mode"], attrs["align_corners"])
    return [*call.args, *settings, True, attrs["layout"][-1] == "C"]


@operator("image.grid_sample", takes=_sample_inputs, loops=_NO_LOOPS)
def grid_sample(
    data: TensorType,
    grid: TensorType,
    method: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
    layout: str = "NCHW",
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros",
    align_corners: bool = False,
) -> Type:
    """Images at coordinates: grid[batch, 2, height, width] has x and y of each element of the
    result, grid[batch, 3, depth, height, width] x, y and z.

    -1 and 1 are the outermost elements if `align_corners`, the outer edges of these otherwise.
    method: the "nearest" element, or the mean of two ("bilinear") or four ("bicubic") neighbours
    along each axis.  padding_mode: what is outside: "zeros", the outermost elements ("border"), or
    the mirror image ("reflection").
    """
    need_numbers(data=data)
    need_floats(grid=grid)
    _need_choice("layout", layout, _LAYOUTS)
    _check_rank("data", data, layout)
    ndim = len(layout)
    need_rank(ndim, grid=grid)
    vdevice = common_vdevice(data=data, grid=grid)
    if data.dims is None or grid.dims is None:
        return like(data, None, ndim=ndim, vdevice=vdevice)
    dims = dict(zip(layout, data.dims, strict=True))
    need_equal_dims("the batch (dimension 0)", data=dims["N"], grid=grid.dims[0])
    if differ(grid.dims[1], int_imm(ndim - 2)):
        raise IllValued(f"grid: expected {ndim - 2} coordinates in dimension 1, got {grid}")
    spatial = [letter for letter in "DHW" if letter in layout]
    dims.update(zip(spatial, grid.dims[2:], strict=True))
    return like(data, [dims[letter] for letter in layout], vdevice=vdevice)


def _affine_arguments(data: Any, size: Any, align_corners: bool = True) -> tuple[Any, ...]:
    if not isinstance(size, Expr) or not hasattr(size.ty, "ndim"):
        size = list(size) if isinstance(size, (tuple, list)) else [size, size]
    return data, size, align_corners


def _affine_inputs(call: Call) -> list[Any]:
    return [*call.args, call.attrs["align_corners"], True]


def _affine_result(call: Call) -> tuple[str, list[Any]]:
    return "image.affine_grid", [*_affine_inputs(call), None, results_text(call)]


@operator(
    "image.affine_grid",
    arguments=_affine_arguments,
    takes=_affine_inputs,
    returns=_affine_result,
    loops=_NO_LOOPS,
)
def affine_grid(data: TensorType, size: ShapeLike, align_corners: bool = True) -> Type:
    """The coordinates of the elements of images of a size, transformed by matrices, for
    `image.grid_sample`.

    data[batch, 2, 3] for height and width, data[batch, 3, 4] for depth, height and width.
    """
    need_floats(data=data)
    need_rank(3, data=data)
    count = size.ty.ndim
    if count not in (-1, 2, 3):
        raise IllValued(f"size: expected 2 or 3 lengths, got {size}")
    dims = data.dims
    if dims is not None and count != -1:
        for place, length in ((1, count), (2, count + 1)):
            if differ(dims[place], int_imm(length)):
                raise IllValued(
                    f"data: expected matrices of {count} rows and {count + 1} columns, got {data}"
                )
    if dims is None or not isinstance(size, ShapeExpr):
        return like(data, None, ndim=-1 if count == -1 else count + 2)
    return like(data, [dims[0], int_imm(count), *size.values])
