"""Calls of relaxvm's operators as calls of Relay's: the inverse of `operators`, as far as there is
one.

The table `WRITTEN` has a function for each operator: it takes a call and returns Relay's name, the
operands and the attributes.  Texts that are made by it are read back to the same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...ir import Call, Constant, Expr, FloatImm, IntImm, ShapeExpr, TensorType, Tuple
from ...ir import const as constant
from .operators import RENAMED

__all__ = ["WRITTEN", "CannotSay", "Written"]


class CannotSay(Exception):
    """Relay has no such operator, or no such form of it; the argument is the reason."""


class Written(NamedTuple):
    """A call of an operator of Relay.

    Attributes:
        name: the operator.
        args: the operands.
        attrs: the attributes.
        dtype: the data type to which the result is converted, if it is another one in relaxvm.
    """

    name: str
    args: Sequence[Expr]
    attrs: Mapping[str, Any]
    dtype: str | None = None


WRITTEN: Final[dict[str, Callable[[Call], Written]]] = {}
"""Operator of relaxvm, without the prefix -> how its calls are written."""


def _with_attrs(name: str, **names: str) -> Callable[[Call], Written]:
    """Relay has the same operands, and the attributes under other names."""

    def write(call: Call) -> Written:
        attrs = {names.get(key, key): value for key, value in call.attrs.items()}
        return Written(name, call.args, attrs)

    return write


def _renamed(name: str) -> Callable[[Call], Written]:
    return lambda call: Written(name, call.args, {})


for _relay_name, _own_name in reversed(RENAMED.items()):
    WRITTEN[_own_name] = _renamed(_relay_name)

WRITTEN.update(
    {
        "astype": _with_attrs("cast"),
        "concat": _with_attrs("concatenate"),
        "cumprod": _with_attrs("cumprod"),
        "cumsum": _with_attrs("cumsum"),
        "einsum": _with_attrs("einsum", subscripts="equation"),
        "flip": _with_attrs("reverse"),
        "max": _with_attrs("max"),
        "mean": _with_attrs("mean"),
        "min": _with_attrs("min"),
        "nn.dropout": _with_attrs("nn.dropout"),
        "nn.log_softmax": _with_attrs("nn.log_softmax"),
        "nn.softmax": _with_attrs("nn.softmax"),
        "prod": _with_attrs("prod"),
        "repeat": _with_attrs("repeat"),
        "squeeze": _with_attrs("squeeze"),
        "stack": _with_attrs("stack"),
        "sum": _with_attrs("sum"),
        "take": _with_attrs("take"),
        "tile": _with_attrs("tile", repeats="reps"),
        "where": _renamed("where"),
    }
)


def _writes(*names: str) -> Callable[[Callable[[Call], Written]], Callable[[Call], Written]]:
    def register(write: Callable[[Call], Written]) -> Callable[[Call], Written]:
        for name in names:
            WRITTEN[name] = write
        return write

    return register


def _number(expr: Expr, what: str) -> Any:
    if isinstance(expr, (IntImm, FloatImm)):
        return expr.value
    if isinstance(expr, Constant) and expr.data.ndim == 0:
        return expr.data.item()
    raise CannotSay(f"{what} is not a known number")


def _numbers(expr: Expr, what: str) -> list[Any]:
    if isinstance(expr, (Tuple, ShapeExpr)):
        items = expr.fields if isinstance(expr, Tuple) else expr.values
        return [_number(item, what) for item in items]
    raise CannotSay(f"{what} is not a list of known numbers")


def _shape(call: Call, position: int) -> list[int]:
    return _numbers(call.args[position], "the shape")


@_writes("clip")
def _clip(call: Call) -> Written:
    low, high = (_number(arg, "a bound") for arg in call.args[1:])
    return Written("clip", call.args[:1], {"a_min": float(low), "a_max": float(high)})


@_writes("matmul")
def _matmul(call: Call) -> Written:
    attrs: dict[str, Any] = {}
    if call.attrs["out_dtype"]:
        attrs["out_dtype"] = call.attrs["out_dtype"]
    ranks = [arg.ty.ndim for arg in call.args]
    if min(ranks) > 2:
        return Written("nn.batch_matmul", call.args, {"transpose_b": False, **attrs})
    return Written("nn.matmul", call.args, attrs)


@_writes("permute_dims")
def _permute_dims(call: Call) -> Written:
    return Written("transpose", call.args, {"axes": call.attrs["axes"]})


@_writes("reshape")
def _reshape(call: Call) -> Written:
    x, shape = call.args
    if not isinstance(shape, ShapeExpr):
        raise CannotSay("the shape is a value of the program")
    source = x.ty.dims if isinstance(x.ty, TensorType) else None
    codes: list[int] = []
    for i, dim in enumerate(shape.values):
        if isinstance(dim, IntImm) and dim.value:
            codes.append(dim.value)
        elif source is not None and i < len(source) and dim is source[i]:
            codes.append(0)
        elif -1 not in codes and not isinstance(dim, IntImm):
            codes.append(-1)
        else:
            raise CannotSay("the shape has several dimensions that are not known")
    return Written("reshape", [x], {"newshape": codes})


@_writes("flatten")
def _flatten(call: Call) -> Written:
    return Written("reshape", call.args, {"newshape": [-1]})


@_writes("split")
def _split(call: Call) -> Written:
    if call.attrs["indices_or_sections"] == 1:  # a tensor, not a tuple as in Relay
        return Written("copy", call.args, {})
    return Written("split", call.args, call.attrs)


@_writes("expand_dims")
def _expand_dims(call: Call) -> Written:
    axes = list(call.attrs["axis"])
    if axes != list(range(axes[0], axes[0] + len(axes))):
        raise CannotSay("the axes are not next to each other")
    attrs = {"axis": axes[0]} if len(axes) == 1 else {"axis": axes[0], "num_newaxis": len(axes)}
    return Written("expand_dims", call.args, attrs)


@_writes("broadcast_to")
def _broadcast_to(call: Call) -> Written:
    return Written("broadcast_to", call.args[:1], {"shape": _shape(call, 1)})


@_writes("strided_slice")
def _strided_slice(call: Call) -> Written:
    names = ("axes", "begin", "end", "strides")
    attrs = {name: _numbers(arg, name) for name, arg in zip(names, call.args[1:], strict=False)}
    return Written("strided_slice", call.args[:1], attrs)


@_writes("argmax", "argmin")
def _position(call: Call) -> Written:
    name = call.op.name.removeprefix("relax.")  # type: ignore[attr-defined]
    return Written(name, call.args, call.attrs, "int64")


@_writes("sort")
def _sort(call: Call) -> Written:
    return Written("sort", call.args, {"axis": call.attrs["axis"],
                                       "is_ascend": not call.attrs["descending"]})  # fmt: skip


@_writes("argsort")
def _argsort(call: Call) -> Written:
    attrs = call.attrs
    return Written("argsort", call.args, {"axis": attrs["axis"], "dtype": attrs["dtype"],
                                          "is_ascend": not attrs["descending"]})  # fmt: skip


@_writes("topk")
def _topk(call: Call) -> Written:
    attrs = {key: value for key, value in call.attrs.items() if key != "largest"}
    return Written("topk", call.args, {**attrs, "is_ascend": not call.attrs["largest"]})


@_writes("zeros", "ones")
def _filled(call: Call) -> Written:
    name = call.op.name.removeprefix("relax.")  # type: ignore[attr-defined]
    return Written(name, [], {"shape": _shape(call, 0), "dtype": call.attrs["dtype"]})


@_writes("full_like", "ones_like", "zeros_like")
def _like(call: Call) -> Written:
    name = call.op.name.removeprefix("relax.")  # type: ignore[attr-defined]
    if call.attrs["dtype"] is not None:
        raise CannotSay("it has a data type of its own")
    return Written(name, call.args, {})


@_writes("full")
def _full(call: Call) -> Written:
    attrs: dict[str, Any] = {"shape": _shape(call, 0)}
    if call.attrs["dtype"]:
        attrs["dtype"] = call.attrs["dtype"]
    return Written("full", call.args[1:], attrs)


@_writes("arange")
def _arange(call: Call) -> Written:
    bounds = [constant(_number(arg, "a bound"), "int64" if isinstance(arg, IntImm) else "float64")
              for arg in call.args]  # fmt: skip
    return Written("arange", bounds, {"dtype": call.attrs["dtype"]})


@_writes("nn.conv1d", "nn.conv2d")
def _convolution(call: Call) -> Written:
    name = call.op.name.removeprefix("relax.")  # type: ignore[attr-defined]
    attrs = {key: value for key, value in call.attrs.items() if value is not None}
    return Written(name, call.args, attrs)


@_writes("nn.max_pool2d", "nn.avg_pool2d")
def _pool(call: Call) -> Written:
    name = call.op.name.removeprefix("relax.")  # type: ignore[attr-defined]
    attrs = {key: value for key, value in call.attrs.items() if value is not None}
    if name == "nn.max_pool2d":
        del attrs["count_include_pad"]  # without effect
    return Written(name, call.args, attrs)


@_writes("nn.batch_norm")
def _batch_norm(call: Call) -> Written:
    if call.attrs["training"]:
        raise CannotSay("it is in training")
    names = ("axis", "epsilon", "center", "scale")
    return Written("nn.batch_norm", call.args, {name: call.attrs[name] for name in names})


@_writes("nn.layer_norm")
def _layer_norm(call: Call) -> Written:
    attrs = dict(call.attrs)
    axes = attrs.pop("axes")
    if len(axes) != 1:
        raise CannotSay("it has several axes")
    return Written("nn.layer_norm", call.args, {"axis": axes[0], **attrs})


@_writes("nn.group_norm")
def _group_norm(call: Call) -> Written:
    attrs = dict(call.attrs)
    axes, channel = list(attrs.pop("axes")), attrs.pop("channel_axis")
    rank = call.args[0].ty.ndim
    if axes != [axis for axis in range(1, rank) if axis != channel % rank]:
        raise CannotSay("its axes are not all but the first and the channels")
    return Written("nn.group_norm", call.args, {"axis": channel, **attrs})


@_writes("nn.pad")
def _pad(call: Call) -> Written:
    modes = {"constant": "constant", "replicate": "edge", "reflect": "reflect"}
    mode = call.attrs["pad_mode"]
    if mode not in modes:
        raise CannotSay(f"its pad_mode is {mode!r}")
    widths = list(call.attrs["pad_width"])
    pairs = [widths[i : i + 2] for i in range(0, len(widths), 2)]
    value = constant(call.attrs["pad_value"], "float64")
    return Written("nn.pad", [*call.args, value], {"pad_width": pairs, "pad_mode": modes[mode]})
