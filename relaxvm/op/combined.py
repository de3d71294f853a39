"""Operators that are short programs of others."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.expr import Call, Expr, TensorType, Tuple, TupleGetItem, TupleType, Type
from ..ir.infer import infer_type
from .kinds import Axis, DType, IllTyped, IllValued, Tensors
from .lowering import is_allocatable, kernel_call
from .registry import CONSTRUCTORS, attributes_of, composite, operator
from .rules import (
    broadcast,
    common_dtype,
    common_vdevice,
    like,
    need_equal_dims,
    need_floats,
    need_integers,
    need_numbers,
    need_rank,
)

__all__ = [
    "dequantize",
    "ewise_fma",
    "masked_fill",
    "meshgrid",
    "multinomial_from_uniform",
    "outer",
    "quantize",
]


def _op(name: str, *args: Any, **attrs: Any) -> Any:
    return CONSTRUCTORS[name](*args, **attrs)


# Element by element


def _multiply_add(builder: Any, call: Call) -> Expr:
    a, b, c = call.args
    found: Expr = _op("add", _op("multiply", a, b), c)
    return found


@operator("ewise_fma", lower=_multiply_add)
def ewise_fma(x1: TensorType, x2: TensorType, x3: TensorType) -> Type:
    """``x1 * x2 + x3``, of tensors of one shape."""
    operands = {"x1": x1, "x2": x2, "x3": x3}
    need_numbers(**operands)
    dtype = common_dtype(**operands)
    ranks = {ty.ndim for ty in operands.values()} - {-1}
    if len(ranks) > 1:
        got = ", ".join(f"{name} {ty}" for name, ty in operands.items())
        raise IllValued(f"expected tensors of one rank, got {got}")
    found = broadcast(dtype, **operands)
    for name, ty in operands.items():
        if found.dims is not None and ty.dims is not None:
            for i, (a, b) in enumerate(zip(found.dims, ty.dims, strict=True)):
                need_equal_dims(f"dimension {i}", **{name: b, "another operand": a})
    return found if found.ndim != -1 or not ranks else like(found, None, ndim=max(ranks))


@composite("masked_fill")
def masked_fill(x: Expr, mask: Expr, value: Expr) -> Call:
    """x, with a value where the mask, of bools, is true.

    Args:
        x: the tensor.
        mask: a tensor of bools.
        value: a tensor of rank 0, of x's data type.
    """
    call: Call = _op("where", mask, _op("full_like", x, value), x)
    return call


def _products(builder: Any, call: Call) -> Expr:
    a, b = call.args
    found: Expr = _op("multiply", _op("expand_dims", a, 1), _op("expand_dims", b, 0))
    return found


@operator("outer", lower=_products)
def outer(x1: TensorType, x2: TensorType) -> Type:
    """The products of each element of a vector with each of another, a matrix."""
    need_numbers(x1=x1, x2=x2)
    need_rank(1, x1=x1, x2=x2)
    common_dtype(x1=x1, x2=x2)
    dtype, vdevice = x1.dtype, common_vdevice(x1=x1, x2=x2)
    if x1.dims is None or x2.dims is None:
        return TensorType(None, dtype, vdevice, 2)
    return TensorType([*x1.dims, *x2.dims], dtype, vdevice)


# Grids


def _swapped(count: int, indexing: str) -> list[int]:
    """The axis of the result along which each of the vectors varies."""
    axes = list(range(count))
    if indexing == "xy" and count > 1:
        axes[:2] = 1, 0
    return axes


def _grid(builder: Any, call: Call) -> Expr:
    (packed,) = call.args
    ty: Any = infer_type(packed).ty
    count = len(ty.fields)
    vectors = packed.fields if isinstance(packed, Tuple) else [
        TupleGetItem(packed, i) for i in range(count)
    ]  # fmt: skip
    axes = _swapped(count, call.attrs["indexing"])
    lines = [
        _op("expand_dims", each, [i for i in range(count) if i != axis]) if count > 1 else each
        for each, axis in zip(vectors, axes, strict=True)
    ]
    lines = [builder.emit(line) for line in lines]
    # The data types may be any: shapes broadcast with bools.
    shape = builder.emit(_op("zeros_like", lines[0], "bool"))
    for line in lines[1:]:
        shape = builder.emit(_op("logical_or", shape, _op("zeros_like", line, "bool")))
    return Tuple([builder.emit(_op("where", shape, line, line)) for line in lines])


@operator("meshgrid", lower=_grid)
def meshgrid(tensors: Tensors, indexing: Literal["ij", "xy"] | None = "ij") -> Type:
    """For each vector a tensor with an axis for each of them, which varies along its own axis: a
    tuple.  With `indexing` "xy" the first two axes are swapped."""
    if not tensors:
        raise IllValued("tensors: expected one or more, got none")
    named = {f"tensors[{i}]": ty for i, ty in enumerate(tensors)}
    for name, ty in named.items():
        if ty.ndim != 1:
            raise IllValued(f"{name}: expected a tensor of rank 1, got {ty}")
    dtype, vdevice = common_dtype(**named), common_vdevice(**named)
    count = len(tensors)
    dims: list[Any] = [ty.dims[0] if ty.dims is not None else None for ty in tensors]
    dims = [dims[axis] for axis in _swapped(count, indexing or "ij")]
    known = None if None in dims else dims
    return TupleType([TensorType.of(known, dtype, vdevice, count)] * count)


# Sampling


def _sampled(builder: Any, call: Call) -> Expr:
    prob, uniform, indices = call.args
    rows = _op("take", prob, _op("squeeze", indices, [1]), 0)
    totals = _op("cumsum", rows, 1)
    # Of the last category the total is not looked at: it has what is left.
    below = _op("less_equal", _op("strided_slice", totals, [1], [0], [-1]), uniform)
    found: Expr = _op("sum", _op("astype", below, call.attrs["dtype"]), [1], True)
    return found


@operator("multinomial_from_uniform", lower=_sampled)
def multinomial_from_uniform(
    prob: TensorType,
    uniform_sample: TensorType,
    sample_indices: TensorType,
    dtype: DType = "int64",
) -> Type:
    """For each sample from 0 to 1 the category that it falls on: the first one at which the running
    sum of probabilities exceeds it, else the last one.

    The rows of `prob` are the probabilities of categories.  `uniform_sample` has a column of
    samples, and `sample_indices` for each of them the row that it is for.
    """
    need_floats(prob=prob, uniform_sample=uniform_sample)
    common_dtype(prob=prob, uniform_sample=uniform_sample)
    need_integers(sample_indices=sample_indices)
    need_rank(2, prob=prob, uniform_sample=uniform_sample, sample_indices=sample_indices)
    if uniform_sample.dims is not None and sample_indices.dims is not None:
        need_equal_dims(
            "number of samples",
            uniform_sample=uniform_sample.dims[0],
            sample_indices=sample_indices.dims[0],
        )
    return like(uniform_sample, None, dtype=dtype, ndim=2) if uniform_sample.dims is None else (
        like(uniform_sample, dtype=dtype)
    )


# Quantization

_RANGES: Final[dict[str, tuple[float, float]]] = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "float8_e4m3fn": (-448, 448),
    "float8_e5m2": (-57344, 57344),
    "float16": (-65504, 65504),
}
"""The least and greatest finite numbers of the data types of quantized tensors."""


def _along(call: Call, parameter: Expr) -> Any:
    """A parameter of quantization, which broadcasts to the shape of the data."""
    ty: Any = infer_type(parameter).ty
    if ty.ndim == 0:
        return parameter
    ndim = call.args[0].ty.ndim
    axis = attributes_of(call)["axis"]
    if ty.dims is not None and str(ty.dims[0]) == "1":
        return _op("reshape", parameter, ())
    return _op("expand_dims", parameter, [i for i in range(ndim) if i != axis])


def _suits_kernel(call: Call) -> bool:
    """Whether float32 becomes bytes, with numbers for all."""
    data, scale, zero_point = (infer_type(arg).ty for arg in call.args)
    target = call.attrs["out_dtype"]
    return (
        target in ("int8", "uint8")
        and (data.dtype, scale.dtype, zero_point.dtype) == ("float32", "float32", target)
        and scale.ndim == zero_point.ndim == 0
        and is_allocatable(call.ty)
    )


def _quantized(builder: Any, call: Call) -> Expr:
    data, scale, zero_point = call.args
    target = call.attrs["out_dtype"]
    if _suits_kernel(call):
        return kernel_call("quantize_bytes", (data, scale, zero_point), call.ty)
    wide = "float64" if data.ty.dtype == "float64" else "float32"
    scaled = _op(
        "divide", _op("astype", data, wide), _op("astype", _along(call, scale), wide)
    )
    if "int" in target:
        scaled = _op("round", scaled)
    moved = _op("add", scaled, _op("astype", _along(call, zero_point), wide))
    least, greatest = _RANGES[target]
    found: Expr = _op("astype", _op("clip", moved, least, greatest), target)
    return found


def _check_parameters(
    data: TensorType, axis: int, scale: TensorType, zero_point: TensorType
) -> None:
    need_floats(scale=scale)
    need_numbers(zero_point=zero_point)
    for name, ty in (("scale", scale), ("zero_point", zero_point)):
        if ty.ndim not in (0, 1):
            raise IllValued(f"{name}: expected a tensor of rank 0 or 1, got {ty}")
        if data.dims is not None and ty.dims and str(ty.dims[0]) != "1":
            need_equal_dims(
                f"number of elements along axis {axis}", data=data.dims[axis], **{name: ty.dims[0]}
            )
    if data.ndim == -1:
        raise IllValued(f"data: expected a tensor of known rank, got {data}")


@operator("quantize", lower=_quantized)
def quantize(
    data: TensorType,
    scale: TensorType,
    zero_point: TensorType,
    axis: Axis = -1,
    out_dtype: DType = "int8",
) -> Type:
    """``clamp(round(data / scale) + zero_point)`` to the range of `out_dtype`; floats are not
    rounded to integers.  Scale and zero point are numbers, or vectors along an axis."""
    need_floats(data=data)
    if out_dtype not in _RANGES:
        raise IllTyped(f"out_dtype: expected one of {', '.join(_RANGES)}, got {out_dtype}")
    _check_parameters(data, axis, scale, zero_point)
    return like(data, dtype=out_dtype)


def _dequantized(builder: Any, call: Call) -> Expr:
    data, scale, zero_point = call.args
    target = call.attrs["out_dtype"]
    is_integer = "int" in data.ty.dtype and "int" in zero_point.ty.dtype
    between = "int32" if is_integer else "float32"
    distance = _op(
        "subtract",
        _op("astype", data, between),
        _op("astype", _along(call, zero_point), between),
    )
    scaled = _op(
        "multiply",
        _op("astype", distance, "float32"),
        _op("astype", _along(call, scale), "float32"),
    )
    if target != "float16":
        return scaled if target == "float32" else _op("astype", scaled, target)  # type: ignore[no-any-return]
    least, greatest = _RANGES[target]
    found: Expr = _op("astype", _op("clip", scaled, least, greatest), target)
    return found


@operator("dequantize", lower=_dequantized)
def dequantize(
    data: TensorType,
    scale: TensorType,
    zero_point: TensorType,
    axis: Axis = -1,
    out_dtype: DType = "float32",
) -> Type:
    """``scale * (data - zero_point)``, within the finite numbers of `out_dtype`, float32 or
    float16.  Scale and zero point are numbers, or vectors along an axis."""
    need_numbers(data=data)
    if out_dtype not in ("float32", "float16"):
        raise IllTyped(f"out_dtype: expected float32 or float16, got {out_dtype}")
    _check_parameters(data, axis, scale, zero_point)
    return like(data, dtype=out_dtype)
