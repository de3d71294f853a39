"""Pools: one number for each window, or part, of an image."""

from __future__ import annotations

from typing import Any, Final

from ...ir.expr import Call, Expr, TensorType, Type, int_imm
from ..kinds import Ints
from ..lowering import is_allocatable, kernel_call
from ..registry import Constructor, Unsupported, operator
from ..rules import DtypeCheck, like, need_floats, need_numbers
from ._windows import (
    check_layout,
    check_positive,
    dims_by_letter,
    in_layout,
    paddings,
    per_axis,
    pooled,
    to_layout,
)

__all__: list[str] = []

_DOC: Final = """{what} of each window, of size `pool_size`, moved along {axes}.

    data: of layout {layout!r}, or `layout` if given; the result has the same, unless `out_layout`
    is given.  strides and dilation: a number for each spatial axis, or one for all; padding: one
    for all, one for each axis, or those before and then those after each.  With `ceil_mode`, the
    last window may reach beyond the padding.{more}
    """


def pool(
    name: str,
    spatial: str,
    what: str,
    check: DtypeCheck,
    more: str,
    *settings: str,
    counts_padding: bool = False,
) -> Constructor:
    """Register a pool along axes of these letters.

    Args:
        name: name of the operator.
        spatial: the letters.
        what: names the result of a window, for the documentation.
        check: checks the data type.
        more: further documentation.
        settings: additional attributes, which the kernel takes last.
        counts_padding: the default of `count_include_pad`.
    """
    axes, default_layout = len(spatial), "NC" + spatial

    def arguments(
        data: Any,
        pool_size: Any = 1,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: Any = False,
        count_include_pad: Any = counts_padding,
        layout: str = default_layout,
        out_layout: str | None = None,
    ) -> tuple[Any, ...]:
        return (
            data,
            per_axis("pool_size", pool_size, axes),
            per_axis("strides", strides, axes),
            paddings(padding, axes),
            per_axis("dilation", dilation, axes),
            ceil_mode,
            count_include_pad,
            layout,
            layout if out_layout is None else out_layout,
        )

    def rule(
        data: TensorType,
        pool_size: Ints,
        strides: Ints,
        padding: Ints,
        dilation: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> Type:
        check(data=data)
        check_positive(pool_size=pool_size, strides=strides, dilation=dilation)
        check_layout("layout", layout, default_layout)
        check_layout("out_layout", out_layout, default_layout)
        dims = dims_by_letter("data", data, layout)
        if dims is None:
            return like(data, None, ndim=len(layout))
        dims = pooled(dims, spatial, pool_size, strides, padding, dilation, ceil_mode)
        return like(data, in_layout(dims, out_layout))

    def lower(builder: Any, call: Call) -> Expr:
        """The kernel has batch and channels first."""
        if not is_allocatable(call.ty):
            return call
        attrs = call.attrs
        dims = dict(zip(attrs["out_layout"], call.ty.dims, strict=True))
        names = ("pool_size", "strides", "padding", "dilation", "ceil_mode", *settings)
        data = to_layout(call.args[0], attrs["layout"], default_layout)
        out_ty = like(call.ty, in_layout(dims, default_layout))
        result = kernel_call(name, [data, *(attrs[name] for name in names)], out_ty)
        return to_layout(result, default_layout, attrs["out_layout"])

    rule.__doc__ = _DOC.format(
        what=what, axes=" and ".join(spatial), layout=default_layout, more=more
    )
    return operator(name, kernel=name, arguments=arguments, lower=lower, loops=name)(rule)


_COUNT: Final = """  With `count_include_pad`, elements of the
    padding count, as zeros."""

for _axes, _spatial in enumerate(("W", "HW", "DHW"), 1):
    pool(f"nn.max_pool{_axes}d", _spatial, "The greatest element", need_numbers, "")
    # The defaults are TVM's.
    pool(f"nn.avg_pool{_axes}d", _spatial, "The mean", need_floats, _COUNT, "count_include_pad",
         counts_padding=_axes != 2)  # fmt: skip


_ADAPTIVE_DOC: Final = """The means of parts of data: `output_size` of them along {axes}.

    Part i of n of an axis reaches from the element length * i // n to before length * (i + 1) / n,
    rounded up.  data: of layout {layout!r}, or `layout` if given; the result has the same, unless
    `out_layout` is given.  output_size: a number for each spatial axis, or one for all; the lengths
    of data if None.
    """


def adaptive_pool(name: str, spatial: str) -> Constructor:
    """Register an adaptive pool along axes of these letters."""
    axes, default_layout = len(spatial), "NC" + spatial

    def arguments(
        data: Any,
        output_size: Any = None,
        layout: str = default_layout,
        out_layout: str | None = None,
    ) -> tuple[Any, ...]:
        size = None if output_size is None else per_axis("output_size", output_size, axes)
        return data, size, layout, layout if out_layout is None else out_layout

    def rule(data: TensorType, output_size: Ints | None, layout: str, out_layout: str) -> Type:
        need_floats(data=data)
        if output_size is not None:
            check_positive(output_size=output_size)
        check_layout("layout", layout, default_layout)
        check_layout("out_layout", out_layout, default_layout)
        dims = dims_by_letter("data", data, layout)
        if output_size is None and layout == out_layout and data.ndim != -1:
            return data
        if dims is None:
            return like(data, None, ndim=len(layout))
        for letter, size in zip(spatial, output_size or (), strict=False):
            dims[letter] = int_imm(size)
        return like(data, in_layout(dims, out_layout))

    def lower(builder: Any, call: Call) -> Expr:
        """The kernel has batch and channels first."""
        attrs = call.attrs
        size, layout = attrs["output_size"], attrs["layout"]
        if size is None:
            return to_layout(call.args[0], layout, attrs["out_layout"])
        if not is_allocatable(call.ty):
            return call
        dims = dict(zip(attrs["out_layout"], call.ty.dims, strict=True))
        data = to_layout(call.args[0], layout, default_layout)
        result = kernel_call(name, [data, size], like(call.ty, in_layout(dims, default_layout)))
        return to_layout(result, default_layout, attrs["out_layout"])

    rule.__doc__ = _ADAPTIVE_DOC.format(axes=" and ".join(spatial), layout=default_layout)
    loops = Unsupported("The kernel adds up parts of several lengths.")
    return operator(name, kernel=name, arguments=arguments, lower=lower, loops=loops)(rule)


adaptive_pool("nn.adaptive_avg_pool1d", "W")
adaptive_pool("nn.adaptive_avg_pool2d", "HW")
adaptive_pool("nn.adaptive_avg_pool3d", "DHW")
