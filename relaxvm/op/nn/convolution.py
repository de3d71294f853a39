"""Convolutions."""

from __future__ import annotations

from typing import Any, Final

from ...ir.arith import simplify
from ...ir.expr import Call, Expr, IntImm, TensorType, Type, int_imm
from ..elementwise import astype
from ..kinds import DType, IllValued, Ints
from ..lowering import is_allocatable, kernel_call
from ..registry import Constructor, Unsupported, operator
from ..rules import common_dtype, common_vdevice, differ, like, need_divisor, need_numbers
from ._windows import (
    check_layout,
    check_positive,
    dims_by_letter,
    in_layout,
    paddings,
    per_axis,
    to_layout,
    windows,
)

__all__: list[str] = []

_DOC: Final = """A window of weights moved along {axes} of data: the sum of products at each place.

    data: numbers of layout {data!r}, C channels; weight: of layout {weight!r}, O channels out of I
    in, which is C / groups; the result has the layout of data, unless `out_layout` is given.
    strides and dilation: a number for each spatial axis, or one for all; padding: one for all, one
    for each axis, or those before and then those after each.  With `out_dtype`, the operands are
    converted to this data type first.
    """


def _convolved(
    spatial: str,
    data: TensorType,
    weight: TensorType,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    layouts: tuple[str, str, str],
    out_dtype: str | None,
) -> TensorType:
    need_numbers(data=data, weight=weight)
    check_positive(strides=strides, dilation=dilation, groups=(groups,))
    data_layout, kernel_layout, out_layout = layouts
    check_layout("data_layout", data_layout, "NC" + spatial)
    check_layout("kernel_layout", kernel_layout, "OI" + spatial)
    check_layout("out_layout", out_layout, "NC" + spatial)
    dtype = common_dtype(data=data, weight=weight) if out_dtype is None else out_dtype
    vdevice = common_vdevice(data=data, weight=weight)
    x = dims_by_letter("data", data, data_layout)
    w = dims_by_letter("weight", weight, kernel_layout)
    if w is not None:
        need_divisor("groups", groups, w["O"], "channels of the result")
    if x is None or w is None:
        return TensorType(None, dtype, vdevice, len(data_layout))
    _check_channels(x["C"], w["I"], groups)
    result = {"N": x["N"], "C": w["O"]}
    for i, letter in enumerate(spatial):
        pads = padding[i], padding[i + len(spatial)]
        result[letter] = windows(letter, x[letter], w[letter], strides[i], pads, dilation[i])
    return like(data, in_layout(result, out_layout), dtype=dtype, vdevice=vdevice)


def _check_channels(channels: Expr, inputs: Expr, groups: int) -> None:
    if isinstance(inputs, IntImm) and differ(channels, int_imm(inputs.value * groups)):
        raise IllValued(
            f"data has {channels} channels, weight takes {inputs} in each of {groups} groups"
        )


_NO_LOOPS: Final = Unsupported("The kernel adds up products of BLAS, not element by element.")


def _lowering(name: str, spatial: str, channels: str, settings: tuple[str, ...]) -> Any:
    def lower(builder: Any, call: Call) -> Expr:
        """The kernel has batch and channels first."""
        if not is_allocatable(call.ty):
            return call
        attrs = call.attrs
        data, weight = [
            arg if attrs["out_dtype"] in (None, arg.dtype) else astype(arg, attrs["out_dtype"])
            for arg in call.args
        ]
        layout, out_layout = "NC" + spatial, attrs["out_layout"]
        dims = dict(zip(out_layout, call.ty.dims, strict=True))
        inputs = (
            to_layout(data, attrs["data_layout"], layout),
            to_layout(weight, attrs["kernel_layout"], channels + spatial),
            *(attrs[name] for name in settings),
        )
        result = kernel_call(name, inputs, like(call.ty, in_layout(dims, layout)))
        return to_layout(result, layout, out_layout)

    return lower


def convolution(name: str, spatial: str) -> Constructor:
    """Register a convolution along axes of these letters."""
    axes = len(spatial)

    def arguments(
        data: Any,
        weight: Any,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        data_layout: str = "NC" + spatial,
        kernel_layout: str = "OI" + spatial,
        out_layout: str | None = None,
        out_dtype: Any = None,
    ) -> tuple[Any, ...]:
        return (
            data,
            weight,
            per_axis("strides", strides, axes),
            paddings(padding, axes),
            per_axis("dilation", dilation, axes),
            groups,
            data_layout,
            kernel_layout,
            data_layout if out_layout is None else out_layout,
            out_dtype,
        )

    def rule(
        data: TensorType,
        weight: TensorType,
        strides: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
        data_layout: str,
        kernel_layout: str,
        out_layout: str,
        out_dtype: DType | None,
    ) -> Type:
        layouts = (data_layout, kernel_layout, out_layout)
        return _convolved(
            spatial, data, weight, strides, padding, dilation, groups, layouts, out_dtype
        )

    rule.__doc__ = _DOC.format(
        axes=" and ".join(spatial), data="NC" + spatial, weight="OI" + spatial
    )
    settings = ("strides", "padding", "dilation", "groups")
    lower = _lowering(name, spatial, "OI", settings)
    register = operator(name, kernel=name, arguments=arguments, lower=lower, loops=name)
    return register(rule)


convolution("nn.conv1d", "W")
convolution("nn.conv2d", "HW")
convolution("nn.conv3d", "DHW")


# Transposed convolutions

_TRANSPOSED_DOC: Final = """The gradient of a convolution along {axes}: weight, times each element
    of data, added up at `strides`.

    data: numbers of layout {data!r}, C channels; weight: of layout {weight!r}, I channels, which is
    C, to O, which is the channels of the result / groups; the result has the layout of data, unless
    `out_layout` is given.  strides and dilation: a number for each spatial axis, or one for all;
    padding: one for all, one for each axis, or those before and then those after each, removed from
    the result; output_padding: elements added after each axis of the result, fewer than `strides`.
    With `out_dtype`, the operands are converted to this data type first.
    """


def _transposed(
    spatial: str,
    data: TensorType,
    weight: TensorType,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    layouts: tuple[str, str, str],
    out_dtype: str | None,
) -> TensorType:
    need_numbers(data=data, weight=weight)
    check_positive(strides=strides, dilation=dilation, groups=(groups,))
    for more, stride in zip(output_padding, strides, strict=True):
        if not 0 <= more < stride:
            raise IllValued(
                f"output_padding: expected 0 or more each, and less than strides "
                f"{list(strides)}, got {list(output_padding)}"
            )
    data_layout, kernel_layout, out_layout = layouts
    check_layout("data_layout", data_layout, "NC" + spatial)
    check_layout("kernel_layout", kernel_layout, "IO" + spatial)
    check_layout("out_layout", out_layout, "NC" + spatial)
    dtype = common_dtype(data=data, weight=weight) if out_dtype is None else out_dtype
    vdevice = common_vdevice(data=data, weight=weight)
    x = dims_by_letter("data", data, data_layout)
    w = dims_by_letter("weight", weight, kernel_layout)
    if w is not None:
        need_divisor("groups", groups, w["I"], "channels of data")
    if x is None or w is None:
        return TensorType(None, dtype, vdevice, len(data_layout))
    if differ(x["C"], w["I"]):
        raise IllValued(f"data has {x['C']} channels, weight takes {w['I']}")
    need_divisor("groups", groups, x["C"], "channels of data")
    result = {"N": x["N"], "C": simplify(w["O"] * groups)}
    for i, letter in enumerate(spatial):
        reach = (w[letter] - 1) * dilation[i] + 1
        removed = padding[i] + padding[i + len(spatial)]
        length = simplify((x[letter] - 1) * strides[i] + reach - removed + output_padding[i])
        if isinstance(length, IntImm) and length.value < 0:
            raise IllValued(
                f"padding: expected at most the {length.value + removed} elements of the result "
                f"along {letter}, got {removed}"
            )
        result[letter] = length
    return like(data, in_layout(result, out_layout), dtype=dtype, vdevice=vdevice)


def transposed_convolution(name: str, spatial: str) -> Constructor:
    """Register a transposed convolution along axes of these letters."""
    axes = len(spatial)

    def arguments(
        data: Any,
        weight: Any,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        data_layout: str = "NC" + spatial,
        kernel_layout: str = "IO" + spatial,
        out_layout: str | None = None,
        out_dtype: Any = None,
    ) -> tuple[Any, ...]:
        return (
            data,
            weight,
            per_axis("strides", strides, axes),
            paddings(padding, axes),
            per_axis("output_padding", output_padding, axes),
            per_axis("dilation", dilation, axes),
            groups,
            data_layout,
            kernel_layout,
            data_layout if out_layout is None else out_layout,
            out_dtype,
        )

    def rule(
        data: TensorType,
        weight: TensorType,
        strides: Ints,
        padding: Ints,
        output_padding: Ints,
        dilation: Ints,
        groups: int,
        data_layout: str,
        kernel_layout: str,
        out_layout: str,
        out_dtype: DType | None,
    ) -> Type:
        layouts = (data_layout, kernel_layout, out_layout)
        return _transposed(
            spatial, data, weight, strides, padding, output_padding, dilation, groups, layouts,
            out_dtype,
        )  # fmt: skip

    rule.__doc__ = _TRANSPOSED_DOC.format(
        axes=" and ".join(spatial), data="NC" + spatial, weight="IO" + spatial
    )
    settings = ("strides", "padding", "output_padding", "dilation", "groups")
    register = operator(
        name,
        kernel=name,
        arguments=arguments,
        lower=_lowering(name, spatial, "IO", settings),
        loops=_NO_LOOPS,
    )
    return register(rule)


transposed_convolution("nn.conv1d_transpose", "W")
transposed_convolution("nn.conv2d_transpose", "HW")
transposed_convolution("nn.conv3d_transpose", "DHW")
