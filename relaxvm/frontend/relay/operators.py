"""Operators of Relay in terms of those of relaxvm: one table.

Each entry is a function whose positional parameters are the operands, and whose keyword parameters
are the attributes with their defaults in Relay.  Its result is an expression of relaxvm; the type
of that expression is the type of the call, so there are no type relations besides relaxvm's own
rules.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ... import op
from ...errors import did_you_mean
from ...ir import (
    Call,
    Constant,
    Expr,
    IntImm,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleType,
    get_shape_of,
)
from ...ir import const as constant

__all__ = ["IGNORED", "OPERATORS", "RENAMED", "RelayOperator", "apply"]

Make = Callable[..., Any]


class RelayOperator:
    """An operator of Relay.

    Attributes:
        name: its name.
        arity: the number of its operands.
        attrs: its attributes and their defaults.
        make: the function that translates a call.
    """

    __slots__ = ("arity", "attrs", "make", "name")

    def __init__(self, name: str, make: Make) -> None:
        self.name = name
        self.make = make
        params = inspect.signature(make).parameters.values()
        self.arity = sum(p.kind is not p.KEYWORD_ONLY for p in params)
        self.attrs = {p.name: p.default for p in params if p.kind is p.KEYWORD_ONLY}


OPERATORS: Final[dict[str, RelayOperator]] = {}
"""All operators of Relay that have a counterpart, by name."""

IGNORED: Final = frozenset(
    {
        "attrs_type_key",
        "auto_scheduler_rewritten_layout",
        "start",  # of arange, where they are operands too
        "step",
        "stop",
        "meta_schedule_original_shape",
    }
)
"""Attributes that do not change what is computed."""


def apply(name: str, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Expr:
    """Return a call of an operator of Relay as an expression of relaxvm.

    Raises:
        TypeError, ValueError: an operand or attribute is wrong, or has no counterpart.
    """
    found = OPERATORS[name]
    if len(args) != found.arity:
        raise TypeError(f"expected {found.arity} argument{'s' * (found.arity != 1)}, "
                        f"got {len(args)}")  # fmt: skip
    given = {key: value for key, value in attrs.items() if key not in IGNORED}
    for key in given:
        if key not in found.attrs:
            known = ", ".join(found.attrs) or "none"
            raise TypeError(f"there is no attribute {key!r}{did_you_mean(key, found.attrs)}; the "
                            f"attributes are: {known}")  # fmt: skip
    for key, default in found.attrs.items():
        if default is inspect.Parameter.empty and key not in given:
            raise TypeError(f"attribute {key!r} is missing")
    made: Expr = found.make(*args, **given)
    return made


def relay(*names: str) -> Callable[[Make], Make]:
    """Decorator: enter a function in the table, under one or more names."""

    def register(make: Make) -> Make:
        for name in names:
            OPERATORS[name] = RelayOperator(name, make)
        return make

    return register


# The same operator under another name

_SAME: Final = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos"),
    *("cosh", "erf", "exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not"),
    *("negative", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh"),
    *("trunc", "nn.relu", "add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal"),
    *("floor_divide", "floor_mod", "greater", "greater_equal", "left_shift", "less", "less_equal"),
    *("logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply"),
    *("not_equal", "power", "right_shift", "subtract", "nn.cross_entropy_with_logits"),
)

RENAMED: Final = {
    **{name: name for name in _SAME},
    "fast_erf": "erf",
    "fast_exp": "exp",
    "fast_tanh": "tanh",
    "trunc_mod": "mod",
}
"""Operators of Relay without attributes -> operators of relaxvm with the same operands."""


def _maker(name: str) -> Any:
    made: Any = op
    for part in name.split("."):
        made = getattr(made, part)
    return made


def _renamed(name: str) -> Make:
    make = _maker(name)
    if len(op.OPERATORS[name].parameters) == 1:
        return lambda x: make(x)
    return lambda x, y: make(x, y)


for _relay_name, _own_name in RENAMED.items():
    relay(_relay_name)(_renamed(_own_name))


# Facts of operands


def _tensor(x: Expr) -> TensorType:
    if not isinstance(x.ty, TensorType):
        raise TypeError(f"expected a tensor, got a value of type {x.ty}")
    if x.ty.ndim < 0 or x.ty.dtype is None:
        raise TypeError(f"expected a tensor of known rank and data type, got {x.ty}")
    return x.ty


def _rank(x: Expr) -> int:
    return _tensor(x).ndim


def _dtype(x: Expr) -> str:
    dtype = _tensor(x).dtype
    assert dtype is not None
    return dtype


def _dims(x: Expr) -> Sequence[Expr]:
    """The dimensions of a tensor; expressions of its shape where the type does not have them."""
    ty = _tensor(x)
    if ty.dims is None:
        raise TypeError(f"expected a tensor whose dimensions are known or named, got {ty}")
    return ty.dims


def _axis(axis: Any, rank: int) -> int:
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"axis: expected a number, got {axis!r}")
    if not -rank <= axis < max(rank, 1):
        raise ValueError(f"axis: expected {-rank} to {rank - 1}, got {axis}")
    return axis % rank if rank else 0


def _axes(axis: Any, x: Expr, exclude: bool) -> list[int] | None:
    rank = _rank(x)
    if axis is None or axis == []:
        if exclude and axis is not None:
            return list(range(rank))
        return None
    axes = [_axis(a, rank) for a in (axis if isinstance(axis, list) else [axis])]
    return [a for a in range(rank) if a not in axes] if exclude else axes


def _value(x: Expr, what: str) -> Any:
    """The number that a constant of rank 0 is."""
    if isinstance(x, Constant) and x.data.size == 1:
        return x.data.item()
    raise TypeError(f"{what}: expected a constant number, which is known when the program is "
                    "compiled")  # fmt: skip


def _or_none(dtype: str | None) -> str | None:
    return dtype or None


def _scalar_like(x: Expr, value: float) -> Constant:
    dtype = _dtype(x)
    return constant(np.array(value).astype(dtype), dtype)


def _in_range(x: Expr, value: Any, what: str) -> float:
    """A bound, limited to what the data type of a tensor of integers can hold."""
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what}: expected a number, got {value!r}")
    dtype = np.dtype(_dtype(x)) if _dtype(x)[:3] in ("int", "uin") else None
    if dtype is None:
        return float(value)
    bounds = np.iinfo(dtype)
    return int(min(max(value, bounds.min), bounds.max))


# Element by element


@relay("clip")
def _clip(x: Expr, *, a_min: Any, a_max: Any) -> Any:
    return op.clip(x, _in_range(x, a_min, "a_min"), _in_range(x, a_max, "a_max"))


@relay("cast")
def _cast(x: Expr, *, dtype: str) -> Any:
    return op.astype(x, dtype)


@relay("cast_like")
def _cast_like(x: Expr, like: Expr) -> Any:
    return _cast(x, dtype=_dtype(like))


@relay("copy", "annotation.stop_fusion", "annotation.checkpoint", "annotation.cast_hint")
def _copy(x: Expr) -> Any:
    return x


@relay("on_device", "device_copy")
def _on_device(
    x: Expr,
    *,
    virtual_device: Any = None,
    src_virtual_device: Any = None,
    dst_virtual_device: Any = None,
    src_dev_type: Any = None,
    dst_dev_type: Any = None,
    constrain_result: Any = None,
    constrain_body: Any = None,
) -> Any:
    return x


@relay("log2")
def _log2(x: Expr) -> Any:
    return op.divide(op.log(x), _scalar_like(x, math.log(2)))


@relay("log10")
def _log10(x: Expr) -> Any:
    return op.divide(op.log(x), _scalar_like(x, math.log(10)))


@relay("trunc_divide")
def _trunc_divide(x: Expr, y: Expr) -> Any:
    quotient = op.divide(x, y)
    return quotient if _dtype(x)[:3] in ("int", "uin") else op.trunc(quotient)


@relay("nn.leaky_relu")
def _leaky_relu(x: Expr, *, alpha: float = 0.25) -> Any:
    scaled = op.multiply(x, _scalar_like(x, alpha))
    return op.where(op.greater(x, _scalar_like(x, 0)), x, scaled)


@relay("nn.prelu")
def _prelu(x: Expr, alpha: Expr, *, axis: int = 1) -> Any:
    scaled = op.multiply(x, _along(alpha, axis, x))
    return op.where(op.greater(x, _scalar_like(x, 0)), x, scaled)


def _along(vector: Expr, axis: int, x: Expr) -> Any:
    """A vector with an element for each index of an axis of x, so that it broadcasts to x."""
    after = _rank(x) - _axis(axis, _rank(x)) - 1
    return vector if not after else op.expand_dims(vector, list(range(1, after + 1)))


@relay("nn.bias_add")
def _bias_add(x: Expr, bias: Expr, *, axis: int = 1) -> Any:
    return op.add(x, _along(bias, axis, x))


@relay("where")
def _where(condition: Expr, x: Expr, y: Expr) -> Any:
    return op.where(_as_bool(condition), x, y)


def _as_bool(x: Expr) -> Any:
    return x if _dtype(x) == "bool" else op.not_equal(x, _scalar_like(x, 0))


@relay("zeros_like")
def _zeros_like(x: Expr) -> Any:
    return op.zeros_like(x)


@relay("ones_like")
def _ones_like(x: Expr) -> Any:
    return op.ones_like(x)


# Products of matrices


@relay("nn.dense")
def _dense(x: Expr, weight: Expr, *, units: Any = None, out_dtype: str | None = "") -> Any:
    return op.matmul(x, op.permute_dims(weight), _or_none(out_dtype))


def _transposed(x: Expr, wanted: bool) -> Any:
    if not wanted:
        return x
    rank = _rank(x)
    return op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


@relay("nn.matmul")
def _matmul(
    x: Expr,
    y: Expr,
    *,
    units: Any = None,
    out_dtype: str | None = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Any:
    return op.matmul(_transposed(x, transpose_a), _transposed(y, transpose_b), _or_none(out_dtype))


@relay("nn.batch_matmul")
def _batch_matmul(
    x: Expr,
    y: Expr,
    *,
    out_dtype: str | None = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Any:
    return _matmul(x, y, out_dtype=out_dtype, transpose_a=transpose_a, transpose_b=transpose_b)


@relay("einsum")
def _einsum(tensors: Expr, *, equation: str) -> Any:
    return op.einsum(_items(tensors), equation)


def _items(tensors: Expr) -> Any:
    if isinstance(tensors.ty, TupleType):
        return list(tensors)
    raise TypeError(f"expected a tuple of tensors, got a value of type {tensors.ty}")


# Neural networks


@relay("nn.softmax", "nn.fast_softmax")
def _softmax(x: Expr, *, axis: int = -1) -> Any:
    return op.nn.softmax(x, axis)


@relay("nn.log_softmax")
def _log_softmax(x: Expr, *, axis: int = -1) -> Any:
    return op.nn.log_softmax(x, axis)


@relay("nn.dropout")
def _dropout(x: Expr, *, rate: float = 0.5) -> Any:
    return op.nn.dropout(x, rate)


@relay("nn.cross_entropy")
def _cross_entropy(predictions: Expr, targets: Expr) -> Any:
    return op.nn.cross_entropy_with_logits(op.log(predictions), targets)


@relay("nn.conv1d")
def _conv1d(
    x: Expr,
    weight: Expr,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str | None = "",
    out_dtype: str | None = "",
) -> Any:
    return op.nn.conv1d(x, weight, strides, padding, dilation, groups, data_layout, kernel_layout,
                        _or_none(out_layout), _or_none(out_dtype))  # fmt: skip


@relay("nn.conv2d")
def _conv2d(
    x: Expr,
    weight: Expr,
    *,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str | None = "",
    out_dtype: str | None = "",
) -> Any:
    return op.nn.conv2d(x, weight, strides, padding, dilation, groups, data_layout, kernel_layout,
                        _or_none(out_layout), _or_none(out_dtype))  # fmt: skip


@relay("nn.max_pool2d")
def _max_pool2d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCHW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
) -> Any:
    return op.nn.max_pool2d(x, pool_size, strides, padding, dilation, bool(ceil_mode), False,
                            layout, _or_none(out_layout))  # fmt: skip


@relay("nn.avg_pool2d")
def _avg_pool2d(
    x: Expr,
    *,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    layout: str = "NCHW",
    out_layout: str | None = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Any:
    return op.nn.avg_pool2d(x, pool_size, strides, padding, dilation, bool(ceil_mode),
                            bool(count_include_pad), layout, _or_none(out_layout))  # fmt: skip


def _spatial(layout: str, x: Expr) -> list[int]:
    if sorted(layout) != sorted("NCHW") or _rank(x) != 4:
        raise ValueError(f"layout: expected an order of N, C, H and W, got {layout!r} for a tensor "
                         f"of rank {_rank(x)}")  # fmt: skip
    return [layout.index("H"), layout.index("W")]


def _same_layout(layout: str, out_layout: str | None) -> None:
    if out_layout and out_layout != layout:
        raise ValueError(f"out_layout: expected {layout!r}, got {out_layout!r}")


@relay("nn.global_max_pool2d")
def _global_max(x: Expr, *, layout: str = "NCHW", out_layout: str | None = "") -> Any:
    _same_layout(layout, out_layout)
    return op.max(x, _spatial(layout, x), True)


@relay("nn.global_avg_pool2d")
def _global_avg(x: Expr, *, layout: str = "NCHW", out_layout: str | None = "") -> Any:
    _same_layout(layout, out_layout)
    return op.mean(x, _spatial(layout, x), True)


def _adaptive(x: Expr, pool: Make, whole: Make, output_size: Any, layout: str) -> Any:
    axes, dims = _spatial(layout, x), _dims(x)
    sizes = list(output_size) if isinstance(output_size, list) else [output_size]
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    if sizes in ([1, 1], [None, None]) and sizes[0] == 1:
        return whole(x, axes, True)
    windows = []
    for axis, size in zip(axes, sizes, strict=True):
        dim = dims[axis]
        if size is None:
            windows.append(1)
        elif isinstance(dim, IntImm) and size > 0 and dim.value % size == 0:
            windows.append(dim.value // size)
        else:
            raise ValueError(f"output_size: expected divisors of {dims[axes[0]]} and "
                             f"{dims[axes[1]]}, got {output_size}")  # fmt: skip
    return pool(x, pool_size=windows, strides=windows, layout=layout)


@relay("nn.adaptive_avg_pool2d")
def _adaptive_avg(
    x: Expr, *, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = ""
) -> Any:
    _same_layout(layout, out_layout)
    return _adaptive(x, _avg_pool2d, op.mean, output_size, layout)


@relay("nn.adaptive_max_pool2d")
def _adaptive_max(
    x: Expr, *, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = ""
) -> Any:
    _same_layout(layout, out_layout)
    return _adaptive(x, _max_pool2d, op.max, output_size, layout)


@relay("nn.batch_norm")
def _batch_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    mean: Expr,
    variance: Expr,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    return op.nn.batch_norm(x, gamma, beta, mean, variance, axis, float(epsilon), bool(center),
                            bool(scale), training=False)  # fmt: skip


@relay("nn.layer_norm")
def _layer_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    return op.nn.layer_norm(x, gamma, beta, [axis], float(epsilon), bool(center), bool(scale))


@relay("nn.group_norm")
def _group_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    channel = _axis(axis, _rank(x))
    axes = [a for a in range(1, _rank(x)) if a != channel]
    return op.nn.group_norm(x, gamma, beta, num_groups, channel, axes, float(epsilon), bool(center),
                            bool(scale))  # fmt: skip


@relay("nn.instance_norm")
def _instance_norm(
    x: Expr,
    gamma: Expr,
    beta: Expr,
    *,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Any:
    channels = _dims(x)[_axis(axis, _rank(x))]
    if not isinstance(channels, IntImm):
        raise ValueError("expected a known number of channels")
    return _group_norm(x, gamma, beta, num_groups=channels.value, axis=axis, epsilon=epsilon,
                       center=center, scale=scale)  # fmt: skip


@relay("nn.l2_normalize")
def _l2_normalize(x: Expr, *, eps: float, axis: Any = None) -> Any:
    total = op.sum(op.multiply(x, x), _axes(axis, x, False), True)
    return op.divide(x, op.sqrt(op.maximum(total, _scalar_like(x, eps))))


@relay("nn.pad")
def _pad(x: Expr, pad_value: Expr, *, pad_width: Any, pad_mode: str = "constant") -> Any:
    modes = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}
    if pad_mode not in modes:
        raise ValueError(f"pad_mode: expected one of {', '.join(modes)}, got {pad_mode!r}")
    widths = [w for pair in pad_width for w in (pair if isinstance(pair, list) else [pair, pair])]
    value = _value(pad_value, "pad_value") if pad_mode == "constant" else 0
    return op.nn.pad(x, widths, modes[pad_mode], float(value))


@relay("nn.batch_flatten")
def _batch_flatten(x: Expr) -> Any:
    return op.reshape(x, [_dims(x)[0], -1])


# Reductions


def _reduction(reduce: Make) -> Make:
    def make(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
        axes = _axes(axis, x, bool(exclude))
        return x if axes == [] else reduce(x, axes, bool(keepdims))

    return make


for _name in ("sum", "max", "min", "mean", "prod"):
    relay(_name)(_reduction(getattr(op, _name)))


@relay("all")
def _all(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
    found = _reduction(op.min)(op.astype(_as_bool(x), "int8"), axis=axis, keepdims=keepdims,
                               exclude=exclude)  # fmt: skip
    return op.astype(found, "bool")


@relay("any")
def _any(x: Expr, *, axis: Any = None, keepdims: bool = False, exclude: bool = False) -> Any:
    found = _reduction(op.max)(op.astype(_as_bool(x), "int8"), axis=axis, keepdims=keepdims,
                               exclude=exclude)  # fmt: skip
    return op.astype(found, "bool")


def _position(find: Make) -> Make:
    def make(
        x: Expr,
        *,
        axis: Any = None,
        keepdims: bool = False,
        exclude: bool = False,
        select_last_index: bool = False,
    ) -> Any:
        if select_last_index:
            raise ValueError("select_last_index: expected False: there is no such operator")
        axes = _axes(axis, x, bool(exclude))
        if axes is not None and len(axes) != 1:
            raise ValueError(f"axis: expected one axis or None, got {axis}")
        found = find(x, None if axes is None else axes[0], bool(keepdims))
        return op.astype(found, "int32")

    return make


relay("argmax")(_position(op.argmax))
relay("argmin")(_position(op.argmin))


@relay("variance")
def _variance(
    x: Expr,
    mean: Expr,
    *,
    axis: Any = None,
    keepdims: bool = False,
    exclude: bool = False,
    unbiased: bool = False,
) -> Any:
    if unbiased:
        raise ValueError("unbiased: expected False: there is no such operator")
    off = op.subtract(x, mean)
    return _reduction(op.mean)(op.multiply(off, off), axis=axis, keepdims=keepdims, exclude=exclude)


@relay("cumsum")
def _cumsum(
    x: Expr, *, axis: Any = None, dtype: str | None = None, exclusive: Any = False
) -> Any:
    return op.cumsum(x, axis, _or_none(dtype), bool(exclusive))


@relay("cumprod")
def _cumprod(
    x: Expr, *, axis: Any = None, dtype: str | None = None, exclusive: Any = False
) -> Any:
    return op.cumprod(x, axis, _or_none(dtype), bool(exclusive))


@relay("sort")
def _sort(x: Expr, *, axis: int = -1, is_ascend: Any = True) -> Any:
    return op.sort(x, axis, not is_ascend)


@relay("argsort")
def _argsort(x: Expr, *, axis: int = -1, is_ascend: Any = True, dtype: str = "int32") -> Any:
    return op.argsort(x, axis, not is_ascend, dtype)


@relay("topk")
def _topk(
    x: Expr,
    *,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: Any = False,
    dtype: str = "int32",
) -> Any:
    return op.topk(x, k, axis, ret_type, not is_ascend, dtype)


# Shapes


@relay("reshape")
def _reshape(x: Expr, *, newshape: Any, allowzero: Any = False) -> Any:
    if not isinstance(newshape, list):
        newshape = [newshape]
    if all(isinstance(d, int) and d >= -1 for d in newshape) and not (allowzero and 0 in newshape):
        return op.reshape(x, newshape)
    if allowzero:
        return op.reshape(x, ShapeExpr(newshape))
    return op.reshape(x, _new_dims(_dims(x), newshape))


def _new_dims(dims: Sequence[Expr], codes: Sequence[int]) -> list[Any]:
    """A shape by Relay's codes: 0 keeps a dimension, -1 is what is left, -2 keeps all that remain,
    -3 joins two, -4 splits one into the two numbers that follow."""
    new: list[Any] = []
    at, i = 0, 0

    def take() -> Any:
        nonlocal at
        if at >= len(dims):
            raise ValueError(f"newshape: {list(codes)} needs more than {len(dims)} dimensions")
        at += 1
        return dims[at - 1]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code == 0:
            new.append(take())
        elif code == -2:
            new += dims[at:]
            at = len(dims)
        elif code == -3:
            first = take()
            new.append(first * take())
        elif code == -4:
            pair, whole = list(codes[i : i + 2]), take()
            i += 2
            if len(pair) != 2 or pair == [-1, -1] or 0 in pair:
                raise ValueError(f"newshape: expected two numbers after -4, got {pair}")
            if -1 in pair:
                known = pair[1] if pair[0] == -1 else pair[0]
                pair[pair.index(-1)] = whole // known
            new += pair
        else:
            if code == -1 or code > 0:
                at += 1
            else:
                raise ValueError(f"newshape: expected numbers from -4 on, got {code}")
            new.append(code)
    return new


@relay("reshape_like")
def _reshape_like(
    x: Expr,
    like: Expr,
    *,
    lhs_begin: Any = 0,
    lhs_end: Any = None,
    rhs_begin: Any = 0,
    rhs_end: Any = None,
) -> Any:
    if (lhs_begin, lhs_end, rhs_begin, rhs_end) == (0, None, 0, None):
        return op.reshape(x, get_shape_of(like))
    a, b = list(_dims(x)), list(_dims(like))
    return op.reshape(x, [*a[:lhs_begin], *b[slice(rhs_begin, rhs_end)],
                          *(a[lhs_end:] if lhs_end is not None else [])])  # fmt: skip


@relay("transpose")
def _transpose(x: Expr, *, axes: Any = None) -> Any:
    return op.permute_dims(x, axes or None)


@relay("layout_transform")
def _layout_transform(x: Expr, *, src_layout: str, dst_layout: str) -> Any:
    if sorted(src_layout) != sorted(dst_layout) or len(set(src_layout)) != len(src_layout):
        raise ValueError("src_layout, dst_layout: expected two orders of the same letters, got "
                         f"{src_layout!r} and {dst_layout!r}; blocked layouts have no counterpart")
    return op.permute_dims(x, [src_layout.index(letter) for letter in dst_layout])


@relay("expand_dims")
def _expand_dims(x: Expr, *, axis: int, num_newaxis: int = 1) -> Any:
    first = axis if axis >= 0 else axis + _rank(x) + 1
    return op.expand_dims(x, list(range(first, first + num_newaxis))) if num_newaxis else x


@relay("squeeze")
def _squeeze(x: Expr, *, axis: Any = None) -> Any:
    return op.squeeze(x, axis)


@relay("broadcast_to")
def _broadcast_to(x: Expr, *, shape: Any, dtype: Any = "") -> Any:
    return op.broadcast_to(x, shape)


@relay("broadcast_to_like")
def _broadcast_to_like(x: Expr, like: Expr) -> Any:
    return op.broadcast_to(x, get_shape_of(like))


@relay("shape_of")
def _shape_of(x: Expr, *, dtype: str = "int32") -> Any:
    shape = op.shape_to_tensor(get_shape_of(x))
    return shape if dtype == "int64" else op.astype(shape, dtype)


@relay("ndarray_size")
def _ndarray_size(x: Expr, *, dtype: str = "int32") -> Any:
    size = op.size(x)
    return size if dtype == "int64" else op.astype(size, dtype)


# Parts of tensors, and tensors from parts


@relay("concatenate")
def _concatenate(tensors: Expr, *, axis: int = 0) -> Any:
    return op.concat(_items(tensors), axis)


@relay("stack")
def _stack(tensors: Expr, *, axis: int = 0) -> Any:
    return op.stack(_items(tensors), axis)


@relay("split")
def _split(x: Expr, *, indices_or_sections: Any, axis: int = 0) -> Any:
    parts = op.split(x, indices_or_sections, axis)
    if isinstance(parts, Call) and not isinstance(parts.ty, TupleType):
        return Tuple([parts])
    return parts


@relay("repeat")
def _repeat(x: Expr, *, repeats: int, axis: Any = None) -> Any:
    return op.repeat(x, repeats, axis)


@relay("tile")
def _tile(x: Expr, *, reps: Any) -> Any:
    return op.tile(x, reps)


@relay("reverse")
def _reverse(x: Expr, *, axis: int) -> Any:
    return op.flip(x, axis)


@relay("take")
def _take(
    x: Expr, indices: Expr, *, batch_dims: int = 0, axis: Any = None, mode: str = "clip"
) -> Any:
    if batch_dims:
        raise ValueError(f"batch_dims: expected 0, got {batch_dims}: there is no such operator")
    if axis is None:
        return op.take(op.flatten(x), indices, 0, mode)
    return op.take(x, indices, axis, mode)


@relay("strided_slice")
def _strided_slice(
    x: Expr,
    *,
    begin: Any,
    end: Any,
    strides: Any = None,
    slice_mode: str = "end",
    axes: Any = None,
) -> Any:
    if slice_mode not in ("end", "size"):
        raise ValueError(f"slice_mode: expected 'end' or 'size', got {slice_mode!r}")
    begin, end = list(begin), list(end)
    count = max(len(begin), len(end))
    axes = list(range(count)) if axes is None else [_axis(a, _rank(x)) for a in axes]
    strides = [1] if not strides else list(strides)
    strides = strides * count if len(strides) == 1 else strides + [1] * (count - len(strides))
    begin += [0] * (count - len(begin))
    end += [_END] * (count - len(end))
    if slice_mode == "size":
        strides = [1] * count
        end = [_END if size == -1 else first + size for first, size in zip(begin, end, strict=True)]
    begin = [0 if b is None else b for b in begin]
    end = [_END if e is None else e for e in end]
    return op.strided_slice(x, axes, begin, end, strides)


_END: Final = 2**31 - 1


@relay("slice_like")
def _slice_like(x: Expr, like: Expr, *, axes: Any = None) -> Any:
    chosen = [_axis(a, _rank(x)) for a in axes] if axes else list(range(_rank(x)))
    dims, count = _dims(like), len(chosen)
    return op.strided_slice(x, chosen, [0] * count, [dims[a] for a in chosen], [1] * count)


# Tensors of given shapes


@relay("zeros")
def _zeros(*, shape: Any, dtype: str) -> Any:
    return op.zeros(shape, dtype)


@relay("ones")
def _ones(*, shape: Any, dtype: str) -> Any:
    return op.ones(shape, dtype)


@relay("full")
def _full(value: Expr, *, shape: Any, dtype: str | None = "") -> Any:
    return op.full(shape, value, _or_none(dtype))


@relay("full_like")
def _full_like(x: Expr, value: Expr) -> Any:
    return op.full_like(x, value)


@relay("arange")
def _arange(
    start: Expr,
    stop: Expr,
    step: Expr,
    *,
    dtype: str,
) -> Any:
    bounds = [_value(x, what) for x, what in ((start, "start"), (stop, "stop"), (step, "step"))]
    return op.arange(*bounds, dtype)


@relay("one_hot")
def _one_hot(
    indices: Expr, on_value: Expr, off_value: Expr, *, depth: int, axis: int = -1, dtype: str
) -> Any:
    at = _axis(axis, _rank(indices) + 1)
    numbers = op.arange(0, depth, 1, _dtype(indices))
    after = _rank(indices) - at
    if after:
        numbers = op.expand_dims(numbers, list(range(1, after + 1)))
    chosen = op.equal(op.expand_dims(indices, [at]), numbers)
    return op.where(chosen, op.astype(on_value, dtype), op.astype(off_value, dtype))


# Shapes that are values


@relay("dyn.reshape")
def _dyn_reshape(x: Expr, shape: Expr, *, newshape: Any = None, allowzero: Any = False) -> Any:
    return op.reshape(x, _as_shape(shape))


@relay("dyn.broadcast_to")
def _dyn_broadcast_to(x: Expr, shape: Expr, *, dtype: Any = "") -> Any:
    return op.broadcast_to(x, _as_shape(shape))


@relay("dyn.zeros")
def _dyn_zeros(shape: Expr, *, dtype: str) -> Any:
    return op.zeros(_as_shape(shape), dtype)


@relay("dyn.ones")
def _dyn_ones(shape: Expr, *, dtype: str) -> Any:
    return op.ones(_as_shape(shape), dtype)


@relay("dyn.full")
def _dyn_full(value: Expr, shape: Expr, *, dtype: str | None = "") -> Any:
    return op.full(_as_shape(shape), value, _or_none(dtype))


def _as_shape(shape: Expr) -> Any:
    return op.tensor_to_shape(shape if _dtype(shape) == "int64" else op.astype(shape, "int64"))
