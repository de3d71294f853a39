"""How operators take operands whose axes are in another order.

A layout is a tuple that says which axis of the tensor, as the program has it, each axis is now:
``(0, 2, 3, 1)`` where NCHW is kept as NHWC.  A layout of a tuple is a list of those of its
elements; None is that of what is no tensor of known rank.  A rule gets a call and the layouts that
its operands have, and returns those that the operands have to have, that of the result, and new
attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..ir import Call, Expr, IntImm, Op, TensorType, Tuple, TupleType

__all__ = ["Desired", "Layouts", "Rewriting", "initial", "rule_of"]

Layout = tuple[int, ...]
Layouts = Layout | list["Layouts"] | None
Desired = Mapping[str, Sequence[str]]
"""Name of an operator -> the layouts of data, weight and result, such as "NHWC" and "OHWI"."""


class Rewriting(NamedTuple):
    """The layouts of operands and result of a call, and attributes and arguments that change."""

    operands: list[Layouts]
    result: Layouts
    attrs: dict[str, Any]
    args: Mapping[int, Expr] = MappingProxyType({})


Rule = Callable[[Any, list[Layouts], Desired], Rewriting | None]
"""Returns None where the operands have to be as the program has them."""


def identity(ndim: int) -> Layout:
    """The layout of a tensor as the program has it."""
    return tuple(range(ndim))


def initial(ty: Any) -> Layouts:
    """The layout of a value as the program has it."""
    if isinstance(ty, TupleType):
        return [initial(field) for field in ty.fields]
    if isinstance(ty, TensorType) and ty.ndim >= 0:
        return identity(ty.ndim)
    return None


def _place(layout: Any, axis: int) -> int:
    """Where an axis is now."""
    place: int = layout.index(axis % len(layout))
    return place


def _letters(text: str, layout: Any) -> str:
    return "".join(text[axis] for axis in layout)


def _order(text: str, desired: str, operator: str) -> Layout:
    """The layout that turns the letters of `text` into the desired ones."""
    if sorted(text) != sorted(desired):
        raise ValueError(
            f"ConvertLayout: {operator}: expected a layout with the axes of {text}, got {desired!r}"
        )
    return tuple(text.index(letter) for letter in desired)


def _convolution(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    attrs, name = call.attrs, call.op.name
    texts = attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"]
    wanted = desired.get(name)
    layouts: tuple[Layouts, ...]
    if wanted is None:
        layouts = given[0], given[1], given[0]
    else:
        if len(wanted) not in (2, 3):
            raise ValueError(
                f"ConvertLayout: {name}: expected the layouts of data and weight, and perhaps that "
                f"of the result, got {list(wanted)}"
            )
        all_ = [str(text) for text in (*wanted, wanted[0])[:3]]
        layouts = tuple(_order(t, want, name) for t, want in zip(texts, all_, strict=True))
    new = [_letters(text, layout) for text, layout in zip(texts, layouts, strict=True)]
    names = ("data_layout", "kernel_layout", "out_layout")
    return Rewriting([layouts[0], layouts[1]], layouts[2], dict(zip(names, new, strict=True)))


def _same(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    return Rewriting([given[0]], given[0], {})


def _twice(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    return Rewriting([given[0]], [given[0], given[0]], {})


def _follow(layout: Any, ndim: int) -> Layout:
    """The layout of a tensor of more axes, to which one of this layout is broadcast."""
    more = ndim - len(layout)
    return (*range(more), *[axis + more for axis in layout])


def _elementwise(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    a, b = given
    if a is None or b is None:  # a scalar
        return Rewriting([a, b], b if a is None else a, {})
    if not a or not b:
        return Rewriting([a, b], a or b, {})
    result = _follow(a, len(b)) if len(a) <= len(b) else _follow(b, len(a))
    return Rewriting([a, result] if len(a) <= len(b) else [result, b], result, {})


def _pool(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    attrs = {name: _letters(call.attrs[name], given[0]) for name in ("layout", "out_layout")}
    return Rewriting([given[0]], given[0], attrs)


def _resize(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    attrs = {"layout": _letters(call.attrs["layout"], given[0])}
    return Rewriting([given[0]], given[0], attrs)


def _along_axis(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    if call.attrs["axis"] is None:
        return None
    return Rewriting([given[0]], given[0], {"axis": _place(given[0], call.attrs["axis"])})


def _elements(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    # Of three tensors, the one that differs from the others is transposed.
    layout = given[1] if len(given) == 3 and given[1] == given[2] else given[0]
    return Rewriting([layout] * len(given), layout, {"axis": _place(layout, call.attrs["axis"])})


def _batch_norm(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    axis = _place(given[0], call.attrs["axis"])
    one = identity(1)
    return Rewriting([given[0], *[one] * 4], [given[0], one, one], {"axis": axis})


def _norm(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    axes = [_place(given[0], axis) for axis in call.attrs["axes"]]
    attrs: dict[str, Any] = {"axes": tuple(axes)}
    if "channel_axis" in call.attrs:
        attrs["channel_axis"] = _place(given[0], call.attrs["channel_axis"])
    elif axes != sorted(axes):
        return None  # the weights have these axes in their order
    others = [initial(arg.ty) for arg in call.args[1:]]
    return Rewriting([given[0], *others], given[0], attrs)


def _concat(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    parts: Any = given[0]
    if not isinstance(parts, list) or not parts or call.attrs["axis"] is None:
        return None
    axis = _place(parts[0], call.attrs["axis"])
    return Rewriting([[parts[0]] * len(parts)], parts[0], {"axis": axis})


def _split(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    if not isinstance(call.ty, TupleType):
        return None
    axis = _place(given[0], call.attrs["axis"])
    return Rewriting([given[0]], [given[0]] * len(call.ty.fields), {"axis": axis})


def _without(layout: Any, axes: Sequence[int]) -> Layout:
    """The layout without some axes; the others are counted anew."""
    left = [axis for axis in range(len(layout)) if axis not in axes]
    return tuple(left.index(axis) for axis in layout if axis not in axes)


def _reduce(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    layout: Any = given[0]
    axes = call.attrs["axis"]
    axes = range(len(layout)) if axes is None else [axis % len(layout) for axis in axes]
    places = tuple(place for place, axis in enumerate(layout) if axis in axes)
    result = layout if call.attrs["keepdims"] else _without(layout, axes)
    return Rewriting([layout], result, {"axis": places})


def _squeeze(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    layout: Any = given[0]
    axes, dims = call.attrs["axis"], call.args[0].ty.dims
    if axes is None:
        if dims is None or call.ty.ndim < 0:
            return None
        axes = [axis for axis, dim in enumerate(dims) if getattr(dim, "value", None) == 1]
    axes = [axis % len(layout) for axis in axes]
    if len(layout) - len(axes) != call.ty.ndim:
        return None
    places = tuple(place for place, axis in enumerate(layout) if axis in axes)
    return Rewriting([layout], _without(layout, axes), {"axis": places})


def _expand_dims(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    layout: Any = given[0]
    ndim = len(layout) + len(call.attrs["axis"])
    new = {axis % ndim for axis in call.attrs["axis"]}
    old = [axis for axis in range(ndim) if axis not in new]
    order = iter([old[axis] for axis in layout])
    result = tuple(axis if axis in new else next(order) for axis in range(ndim))
    return Rewriting([layout], result, {})


def _permute_dims(call: Any, given: list[Layouts], desired: Desired) -> Rewriting:
    layout: Any = given[0]
    axes = call.attrs["axes"]
    axes = range(len(layout))[::-1] if axes is None else axes
    new = tuple(_place(layout, axis) for axis in axes)
    return Rewriting([layout], identity(len(layout)), {"axes": new})


def _tile(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    layout: Any = given[0]
    repeats = call.attrs["repeats"]
    if len(repeats) != len(layout):
        return None
    return Rewriting([layout], layout, {"repeats": tuple(repeats[axis] for axis in layout)})


def _strided_slice(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    axes = call.args[1]
    values = [axis for axis in getattr(axes, "fields", ()) if isinstance(axis, IntImm)]
    if not isinstance(axes, Tuple) or len(values) != len(axes.fields):
        return None
    places = [IntImm(axis.dtype, _place(given[0], axis.value)) for axis in values]
    return Rewriting([given[0]], given[0], {}, {1: Tuple(places)})


_RULES: Final[dict[str, Rule]] = {}


def _register(rule: Rule, names: str) -> None:
    _RULES.update({f"relax.{name}": rule for name in names.split()})


_register(
    _convolution,
    "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose",
)
_register(
    _same,
    "abs acos acosh asin asinh astype atan atanh bitwise_not ceil cos cosh erf exp floor isfinite "
    "isinf isnan log logical_not negative nn.gelu nn.gelu_tanh nn.relu nn.selu nn.silu round rsqrt "
    "sigmoid sign sin sinh sqrt square tan tanh trunc",
)
_register(
    _elementwise,
    "add atan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater "
    "greater_equal left_shift less less_equal log_add_exp logical_and logical_or logical_xor "
    "maximum minimum mod multiply not_equal power right_shift subtract",
)
_register(
    _pool,
    "nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d "
    "nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d",
)
_register(_resize, "image.resize2d image.resize3d")
_register(_along_axis, "nn.softmax flip repeat")
_register(_elements, "gather_elements scatter_elements")
_register(_norm, "nn.layer_norm nn.rms_norm nn.group_norm nn.instance_norm")
_register(_reduce, "sum mean max min prod std variance")
_register(_twice, "nn.dropout")
_register(_batch_norm, "nn.batch_norm")
_register(_concat, "concat")
_register(_split, "split")
_register(_squeeze, "squeeze")
_register(_expand_dims, "expand_dims")
_register(_permute_dims, "permute_dims")
_register(_strided_slice, "strided_slice")
_register(_tile, "tile")


def rule_of(call: Call, desired: Desired) -> Rule | None:
    """Return the rule of the operator of a call, None if its operands have to be as they were.

    Raises:
        ValueError: layouts are desired of an operator that has none to choose.
    """
    if not isinstance(call.op, Op):
        return None
    rule = _RULES.get(call.op.name)
    if call.op.name in desired and rule is not _convolution:
        raise ValueError(
            f"ConvertLayout: {call.op.name}: layouts may be desired of convolutions alone; other "
            "operators follow them"
        )
    return rule
