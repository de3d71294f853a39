"""Quantized tensors, as PyTorch's export writes them: integers with scale and zero point.

The formulas are those of ``torch.ao.quantization.fx._decomposed``, the order of roundings included.
"""

from __future__ import annotations

from typing import Any, Final

from ...common.emitter import Emitter, Problem
from ..forms import (
    Tensor,
    axis_of,
    cast,
    dims_of,
    dtype_of,
    is_tensor,
    length,
    number,
    rank_of,
    reshaped,
)
from ..registry import aten

__all__: list[str] = []

_Q: Final = "quantized_decomposed::"
_EPS: Final = 2.0**-23


def _wide(c: Emitter, x: Tensor) -> Tensor:
    """16-bit floats as float32."""
    return cast(c, x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x


def _number(c: Emitter, x: Any, dtype: str) -> Tensor:
    if not is_tensor(x):
        return number(c, x, dtype)
    return reshaped(c, cast(c, x, dtype), []) if rank_of(x) else cast(c, x, dtype)


def _inverse(c: Emitter, scale: Tensor) -> Tensor:
    return c.op("divide", number(c, 1.0, dtype_of(scale)), scale)


def _bounded(c: Emitter, x: Tensor, least: Any, most: Any) -> Tensor:
    dtype = dtype_of(x)
    return c.op("minimum", c.op("maximum", x, _number(c, least, dtype)), _number(c, most, dtype))


def _quantized(c: Emitter, x: Tensor, scale: Tensor, zero: Tensor, bounds: tuple[Any, Any]
               ) -> Tensor:  # fmt: skip
    """Rounded, then moved by the zero point, as floats."""
    rounded = c.op("round", c.op("multiply", x, _inverse(c, scale)))
    return _bounded(c, c.op("add", rounded, cast(c, zero, dtype_of(rounded))), *bounds)


@aten(f"{_Q}quantize_per_tensor", f"{_Q}quantize_per_tensor.tensor",
      f"{_Q}quantize_per_tensor.tensor2")  # fmt: skip
def quantize_per_tensor(
    c: Emitter, input: Tensor, scale: Any, zero_point: Any, quant_min: Any,  # noqa: A002
    quant_max: Any, dtype: str,
) -> Tensor:  # fmt: skip
    """round(x / scale) + zero_point within bounds."""
    x = _wide(c, input)
    kind = dtype_of(x)
    scale, zero = _number(c, scale, kind), _number(c, zero_point, kind)
    return cast(c, _quantized(c, x, scale, zero, (quant_min, quant_max)), dtype)


@aten(f"{_Q}dequantize_per_tensor", f"{_Q}dequantize_per_tensor.tensor",
      f"{_Q}dequantize_per_tensor.tensor2")  # fmt: skip
def dequantize_per_tensor(
    c: Emitter, input: Tensor, scale: Any, zero_point: Any, quant_min: Any,  # noqa: A002
    quant_max: Any, dtype: str, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale."""
    kind = out_dtype or "float32"
    apart = c.op("subtract", cast(c, input, kind), _number(c, zero_point, kind))
    return c.op("multiply", apart, _number(c, scale, kind))


def _along(c: Emitter, x: Tensor, like: Tensor, axis: int) -> Tensor:
    """A vector as a tensor whose elements are along an axis of another one."""
    dims: list[Any] = [1] * rank_of(like)
    dims[axis_of(like, axis)] = dims_of(x)[0]
    return reshaped(c, x, dims)


def _per_channel(
    c: Emitter, x: Tensor, scales: Tensor, zeros: Tensor, axis: int, bounds: tuple[Any, Any]
) -> Tensor:
    scale = _along(c, cast(c, scales, dtype_of(x)), x, axis)
    return _quantized(c, x, scale, _along(c, zeros, x, axis), bounds)


@aten(f"{_Q}quantize_per_channel")
def quantize_per_channel(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor, axis: int,  # noqa: A002
    quant_min: Any, quant_max: Any, dtype: str,
) -> Tensor:  # fmt: skip
    """round(x / scale) + zero_point within bounds, with numbers for each place along an axis."""
    x = _wide(c, input)
    found = _per_channel(c, x, scales, zero_points, axis, (quant_min, quant_max))
    return cast(c, found, dtype)


@aten(f"{_Q}dequantize_per_channel")
def dequantize_per_channel(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor | None,  # noqa: A002
    axis: int, quant_min: Any, quant_max: Any, dtype: str, out_dtype: str | None = None,
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale, with numbers for each place along an axis."""
    kind = out_dtype or "float32"
    x = cast(c, input, kind)
    if zero_points is not None:
        x = c.op("subtract", x, cast(c, _along(c, zero_points, input, axis), kind))
    return c.op("multiply", x, cast(c, _along(c, scales, input, axis), kind))


@aten(f"{_Q}fake_quant_per_channel")
def fake_quant_per_channel(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor, axis: int,  # noqa: A002
    quant_min: Any, quant_max: Any,
) -> Tensor:  # fmt: skip
    """Floats after quantization, with numbers for each place along an axis."""
    dtype = dtype_of(input)
    x = _wide(c, input)
    kind = dtype_of(x)
    found = _per_channel(c, x, scales, zero_points, axis, (quant_min, quant_max))
    apart = c.op("subtract", found, cast(c, _along(c, zero_points, x, axis), kind))
    return cast(c, c.op("multiply", apart, cast(c, _along(c, scales, x, axis), kind)), dtype)


def _per_token(
    c: Emitter, x: Tensor, scales: Tensor, zeros: Tensor, bounds: tuple[Any, Any]
) -> Tensor:
    """Moved by the zero point, then rounded, as floats."""
    found = c.op("multiply", x, _inverse(c, cast(c, scales, dtype_of(x))))
    found = c.op("add", found, cast(c, zeros, dtype_of(x)))
    return _bounded(c, c.op("round", found), *bounds)


@aten(f"{_Q}quantize_per_token")
def quantize_per_token(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: Any,  # noqa: A002
    quant_max: Any, dtype: str,
) -> Tensor:  # fmt: skip
    """round(x / scale + zero_point) within bounds, with numbers for each row."""
    x = _wide(c, input)
    return cast(c, _per_token(c, x, scales, zero_points, (quant_min, quant_max)), dtype)


@aten(f"{_Q}dequantize_per_token")
def dequantize_per_token(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: Any,  # noqa: A002
    quant_max: Any, dtype: str, output_dtype: str,
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale, with numbers for each row."""
    kind = dtype_of(scales)
    apart = c.op("subtract", cast(c, input, kind), cast(c, zero_points, kind))
    return cast(c, c.op("multiply", apart, scales), output_dtype)


def _groups(c: Emitter, x: Tensor, size: int) -> Tensor:
    """Parts of rows as rows."""
    return reshaped(c, x, [-1, size])


def _column(c: Emitter, x: Tensor) -> Tensor:
    return reshaped(c, x, [-1, 1])


@aten(f"{_Q}quantize_per_channel_group")
def quantize_per_channel_group(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor, quant_min: Any,  # noqa: A002
    quant_max: Any, dtype: str, group_size: int = 128,
) -> Tensor:  # fmt: skip
    """round(x / scale + zero_point) within bounds, with numbers for each part of a row."""
    x = _wide(c, input)
    parts = _groups(c, x, group_size)
    bounds = (quant_min, quant_max)
    found = _per_token(c, parts, _column(c, scales), _column(c, zero_points), bounds)
    return reshaped(c, cast(c, found, dtype), dims_of(x))


@aten(f"{_Q}dequantize_per_channel_group")
def dequantize_per_channel_group(
    c: Emitter, input: Tensor, scales: Tensor, zero_points: Tensor | None,  # noqa: A002
    quant_min: Any, quant_max: Any, dtype: str, group_size: int = 128,
    output_dtype: str = "float32",
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale, with numbers for each part of a row."""
    kind = dtype_of(scales)
    parts = cast(c, _groups(c, input, group_size), kind)
    if zero_points is not None:
        parts = c.op("subtract", parts, cast(c, _column(c, zero_points), kind))
    found = cast(c, c.op("multiply", parts, _column(c, scales)), output_dtype)
    return reshaped(c, found, dims_of(input))


# Scales and zero points


def _ends(c: Emitter, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """The least element, at most 0, and the greatest one, at least 0."""
    zero = number(c, 0, dtype_of(x))
    keep = len(axes) == 1 and rank_of(x) > 0
    found = [c.op(name, x, axes, keep) if axes else x for name in ("min", "max")]
    return c.op("minimum", found[0], zero), c.op("maximum", found[1], zero)


@aten(f"{_Q}choose_qparams.tensor")
def choose_qparams(
    c: Emitter, input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: str  # noqa: A002
) -> Any:
    """The scale and the zero point for the range of a tensor."""
    x = reshaped(c, _wide(c, input), [-1])
    least, most = _ends(c, x, [0])
    kind = dtype_of(x)
    scale = c.op("divide", c.op("subtract", most, least),
                 number(c, float(quant_max - quant_min), kind))  # fmt: skip
    scale = c.op("maximum", scale, number(c, eps, kind))
    rounded = cast(c, c.op("round", c.op("divide", least, scale)), "int64")
    zero = c.op("subtract", number(c, quant_min, "int64"), rounded)
    return cast(c, scale, "float64"), _bounded(c, zero, quant_min, quant_max)


@aten(f"{_Q}choose_qparams_symmetric.tensor")
def choose_qparams_symmetric(
    c: Emitter, input: Tensor, quant_min: int, quant_max: int, eps: float, dtype: str  # noqa: A002
) -> Any:
    """The scale for the greatest magnitude of a tensor, and the zero point in the middle."""
    x = reshaped(c, _wide(c, input), [-1])
    least, most = _ends(c, x, [0])
    kind = dtype_of(x)
    most = c.op("maximum", c.op("negative", least), most)
    scale = c.op("divide", most, number(c, float(quant_max - quant_min) / 2, kind))
    scale = c.op("maximum", scale, number(c, eps, kind))
    zero = c.op("full", [1], number(c, 128 if dtype == "uint8" else 0, "int64"), "int64")
    return cast(c, scale, "float64"), zero


@aten(f"{_Q}choose_qparams_per_token")
def choose_qparams_per_token(c: Emitter, input: Tensor, dtype: str) -> Any:  # noqa: A002
    """Scales for the greatest magnitude of each row, and zero points of 0."""
    if dtype != "int8":
        raise Problem(f"dtype: expected int8, got {dtype}")
    x = c.op("abs", input)
    scales = _wide(c, c.op("max", x, [rank_of(x) - 1], True))
    kind = dtype_of(scales)
    scales = c.op("maximum", scales, number(c, 1e-5, kind))
    scales = c.op("divide", scales, number(c, 127.0, kind))
    return cast(c, scales, "float64"), c.op("zeros", dims_of(scales), "int64")


@aten(f"{_Q}choose_qparams_per_token_asymmetric",
      f"{_Q}_choose_qparams_per_token_asymmetric_impl")  # fmt: skip
def choose_qparams_per_token_asymmetric(c: Emitter, input: Tensor, dtype: str) -> Any:  # noqa: A002
    """Scales and zero points for the range of each row, within -128 and 127."""
    x = _wide(c, input)
    kind = dtype_of(x)
    least, most = _ends(c, x, [length(rank_of(x) - 1)])
    scale = c.op("divide", c.op("subtract", most, least), number(c, 255.0, kind))
    scale = c.op("maximum", scale, number(c, _EPS, kind))
    low, high = c.op("divide", least, scale), c.op("divide", most, scale)
    first = c.op("add", number(c, -128.0, kind), low)
    last = c.op("add", number(c, 127.0, kind), high)
    is_first = c.op("greater", c.op("add", first, last), number(c, 0.0, kind))
    zero = c.op("where", is_first, c.op("subtract", number(c, -128.0, kind), low),
                c.op("subtract", number(c, 127.0, kind), high))  # fmt: skip
    zero = c.op("round", _bounded(c, zero, -128, 127))
    return cast(c, scale, "float64"), cast(c, zero, "int64")


@aten(f"{_Q}convert_element_type.no_fuse")
def convert_element_type(c: Emitter, input: Tensor, dtype: str) -> Tensor:  # noqa: A002
    """R.astype."""
    return cast(c, input, dtype)
