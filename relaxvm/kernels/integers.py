"""Products of bytes, exactly, and quantization.

Passes that optimize models put calls of these kernels into programs, for products of quantized
tensors.  The functions ``pack_*`` bring weights into the form that they take: data like other
constants, the same for all processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import PIECE, apply, check_time, converted, copied, copy_pieces
from ._arrays import copy_if_overlapping
from ._functions import Function, apply_function
from ._kernel import kernel
from ._multiply import multiply
from ._windows import Windows
from .blocks import BLOCK, blocks_of, planes_of
from .checks import FLOAT32, WrongType, WrongValue, check_out, native
from .convolution import Padding2d, Step2d, convolve
from .kinds import Floats, Int, Integers, Out, Tensor, an_int
from .recurrent import Direction, range_of

__all__ = [
    "Packed",
    "gates_in_blocks",
    "pack_integer_depthwise",
    "pack_integer_gates",
    "pack_integer_windows",
    "pack_integers",
]

LSTM_GATES: Final = 4
_QUAD: Final = 4
"""Inputs that are next to each other in packed weights: a lane of 32 bits."""
_BYTES: Final = (np.dtype(np.uint8), np.dtype(np.int8))
_INT32: Final = np.dtype(np.int32)


@dataclass(frozen=True)
class Packed:
    """Weights of a product of bytes."""

    weight: NDArray[Any]
    """Less `shift`."""
    sums: NDArray[np.int32]
    """Of the weights of each output, up to a whole block."""
    shift: int


def _shift_of(weight: NDArray[Any]) -> int | None:
    """A number that leaves the rest of all weights, and of 0, within int8, if there is one."""
    low, high = int(weight.min(initial=0)), int(weight.max(initial=0))
    shift = max(0, high - 127) or min(0, low + 128)
    return shift if -128 <= low - shift and high - shift <= 127 and abs(shift) <= 128 else None


def pack_integer_windows(weight: NDArray[Any]) -> Packed | None:
    """Integers weight[outputs, inputs, height, width] as [blocks of outputs, blocks of inputs,
    height, width, 4, 16 outputs, 4 inputs]; None if their range, 0 included, has more than 256
    numbers."""
    shift = _shift_of(weight)
    if shift is None:
        return None
    outputs, inputs, tall, wide = weight.shape
    shape = (blocks_of(outputs) * BLOCK, blocks_of(inputs) * BLOCK, tall, wide)
    moved = np.full(shape, -shift, np.int8)
    moved[:outputs, :inputs] = weight - shift
    split = moved.reshape(
        shape[0] // BLOCK, BLOCK, shape[1] // BLOCK, BLOCK // _QUAD, _QUAD, tall, wide
    )
    sums = np.zeros(shape[0], np.int32)
    sums[:outputs] = weight.sum((1, 2, 3), dtype=np.int64)
    return Packed(np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4)), sums, shift)


def pack_integer_depthwise(weight: NDArray[Any]) -> Packed | None:
    """Integers weight[channels, 1, height, width] as int16 [blocks, height, width, 16]; None as of
    `pack_integer_windows`."""
    if _shift_of(weight) is None:
        return None
    channels, _, tall, wide = weight.shape
    blocks = blocks_of(channels)
    padded = np.zeros((blocks * BLOCK, tall, wide), np.int16)
    padded[:channels] = weight[:, 0]
    split = padded.reshape(blocks, BLOCK, tall, wide).transpose(0, 2, 3, 1)
    return Packed(np.ascontiguousarray(split), padded.sum((1, 2), dtype=np.int32), 0)


def pack_integers(weight: NDArray[Any]) -> Packed | None:
    """Integers weight[inputs, outputs] as [blocks of outputs, lines of inputs, 4, 16 outputs, 4
    inputs]; None as of `pack_integer_windows`."""
    packed = pack_integer_windows(weight.T[:, :, None, None])
    if packed is None:
        return None
    return Packed(packed.weight[:, :, 0, 0], packed.sums, packed.shift)


def pack_integer_gates(weight: NDArray[Any]) -> Packed | None:
    """Integers weight[directions, 4 * size, inputs], of the gates of long short-term memory, as
    `pack_integers` has them of [inputs, directions * blocks * 64]: as by
    `relaxvm.kernels.linear.pack_gates`, the gates of 16 elements of the state are side by side."""
    return pack_integers(gates_in_blocks(weight).T)


def gates_in_blocks(numbers: NDArray[Any]) -> NDArray[Any]:
    """numbers[directions, 4 * size, ...], of the gates, as [directions * blocks * 64, ...]: 0 for
    elements that fill a block."""
    directions, rows, *rest = numbers.shape
    size = rows // LSTM_GATES
    blocks = blocks_of(size)
    padded = np.zeros((directions, LSTM_GATES, blocks * BLOCK, *rest), numbers.dtype)
    padded[:, :, :size] = numbers.reshape(directions, LSTM_GATES, size, *rest)
    split = padded.reshape(directions, LSTM_GATES, blocks, BLOCK, *rest)
    return split.swapaxes(1, 2).reshape(-1, *rest)


def _plain(weight: NDArray[Any], shift: int) -> NDArray[np.float64]:
    """What `pack_integer_windows` has packed."""
    of_line = (BLOCK // _QUAD, BLOCK, _QUAD)
    if weight.ndim != 7 or weight.shape[4:] != of_line or weight.dtype != np.int8:
        raise WrongValue(
            f"weight: expected int8 [blocks, lines, ..., {BLOCK // _QUAD}, {BLOCK}, {_QUAD}], got "
            f"{describe(weight)}"
        )
    blocks, lines, tall, wide = weight.shape[:4]
    plain = _centered(weight.transpose(0, 5, 1, 4, 6, 2, 3), -shift)
    return plain.reshape(blocks * BLOCK, lines * BLOCK, tall, wide)


@dataclass(frozen=True)
class _Finish:
    """What comes before and after the sums, checked."""

    zero: float
    offset: float
    """The zero point as that of unsigned bytes."""
    sums: NDArray[np.float64]
    bias: NDArray[Any] | None
    factor: NDArray[Any] | None
    more: NDArray[Any] | None
    function: str | None
    scale: NDArray[Any] | None
    point: NDArray[Any] | None

    def write(
        self, result: NDArray[np.float64], of_weights: NDArray[np.float64], out: NDArray[Any]
    ) -> None:
        """out[rows, outputs] = what follows the sums result[rows, outputs].

        Args:
            of_weights: the sums of the weights of each output, which `sums` should be.
        """
        more = self.offset * (of_weights - self.sums[: len(of_weights)])
        step = max(1, PIECE // max(1, result.shape[1]))
        for start in range(0, len(result), step):
            check_time()
            self._write_some(result[start : start + step] + more, out[start : start + step])

    def _write_some(self, result: NDArray[np.float64], out: NDArray[Any]) -> None:
        exact = (result + self._row(self.bias, result, 0)).astype(np.int64).astype(np.int32)
        if self.factor is None:
            out[...] = exact
            return
        with np.errstate(all="ignore"):
            real = exact.astype(np.float32) * self._row(self.factor, result, 1)
            if self.more is not None:
                real += self._row(self.more, result, 0)
            if self.function is not None:
                apply_function(self.function, real, real)
        if out.dtype == np.float32:
            out[...] = real
        else:
            scale = np.float32(1) if self.scale is None else self.scale
            _quantize(real, scale, self.point, out)

    def _row(self, numbers: NDArray[Any] | None, result: NDArray[Any], default: int) -> Any:
        if numbers is None:
            return default
        row = numbers.reshape(-1)
        if len(row) == 1:
            return row
        whole = np.zeros(result.shape[-1], row.dtype)
        whole[: len(row)] = row[: len(whole)]
        return whole


def _quantize(x: NDArray[Any], scale: Any, zero: NDArray[Any] | None, out: NDArray[Any]) -> None:
    """out = x / scale, rounded, plus zero, within the bounds of the data type of out."""
    divisor = np.float32(scale.reshape(())[()])
    point = np.float32(0 if zero is None else zero.reshape(())[()])
    bounds = np.iinfo(out.dtype)

    def quantized(part: NDArray[Any], out: NDArray[Any]) -> None:
        with np.errstate(all="ignore"):
            found = np.clip(np.rint(part / divisor) + point, bounds.min, bounds.max)
            out[...] = np.where(np.isnan(found), 0, found)

    apply(quantized, out, x)


def _check(
    x: NDArray[Any],
    x_zero: NDArray[Any] | None,
    shift: int,
    sums: NDArray[Any],
    bias: NDArray[Any] | None,
    factor: NDArray[Any] | None,
    more: NDArray[Any] | None,
    function: str | None,
    scale: NDArray[Any] | None,
    zero: NDArray[Any] | None,
    outputs: int,
    out: NDArray[Any],
) -> _Finish:
    """Check the operands of a product beside x, weight and the shape of out.

    Raises:
        WrongType: a data type is wrong.
        WrongValue: they do not fit.
    """
    if x.dtype not in _BYTES:
        raise WrongType(f"x: expected int8 or uint8, got {describe(x)}")
    if not -128 <= shift <= 128:
        raise WrongValue(f"shift: expected -128 to 128, got {shift}")
    blocks = blocks_of(outputs) * BLOCK
    if sums.shape != (blocks,) or native(sums.dtype) != _INT32:
        raise WrongValue(f"sums: expected int32 [{blocks}], got {describe(sums)}")
    is_byte = native(out.dtype) in _BYTES
    if native(out.dtype) not in (_INT32, FLOAT32, *_BYTES):
        raise WrongValue(f"out: expected int8, uint8, int32 or float32, got {describe(out)}")
    if (factor is None) != (native(out.dtype) == _INT32):
        raise WrongValue(f"factor: expected one unless out is int32, got out {describe(out)}")
    if factor is None and not (more is None and function is None):
        raise WrongValue("expected neither more nor function without factor")
    if not is_byte and not (scale is None and zero is None):
        raise WrongValue(f"expected neither scale nor zero, got out {describe(out)}")
    vectors = ("bias", bias, _INT32), ("factor", factor, FLOAT32), ("more", more, FLOAT32)
    for name, vector, dtype in vectors:
        if vector is not None and (
            native(vector.dtype) != dtype
            or vector.ndim > 1
            or not (vector.size in (1, outputs) or blocks_of(vector.size) * BLOCK == blocks)
        ):
            raise WrongValue(f"{name}: expected {dtype} [{outputs}], got {describe(vector)}")
    to = native(out.dtype)
    numbers = ("x_zero", x_zero, x.dtype), ("scale", scale, FLOAT32), ("zero", zero, to)
    for name, number, dtype in numbers:
        if number is not None and (native(number.dtype) != dtype or number.size != 1):
            raise WrongValue(f"{name}: expected one {dtype}, got {describe(number)}")
    point = 0.0 if x_zero is None else float(x_zero.reshape(()))

    def kept(each: NDArray[Any] | None) -> NDArray[Any] | None:
        if each is None:
            return None
        return converted(copy_if_overlapping(each, out), native(each.dtype))

    return _Finish(
        zero=point,
        offset=point + 128 * (x.dtype.kind == "i"),
        sums=sums.astype(np.float64),
        bias=kept(bias),
        factor=kept(factor),
        more=kept(more),
        function=function,
        scale=kept(scale),
        point=kept(zero),
    )


@kernel("nn.integer_linear_blocks")
def integer_linear_blocks(
    x: Integers,
    x_zero: Integers | None,
    weight: Integers,
    sums: Integers,
    shift: Int,
    bias: Integers | None,
    factor: Tensor | None,
    more: Tensor | None,
    function: Function | None,
    scale: Tensor | None,
    zero: Integers | None,
    out: Out,
) -> None:
    """out[..., outputs] = the product of x[..., inputs], int8 or uint8, less x_zero, and weight +
    shift, plus bias: exact, in int32, where a sum that does not fit wraps.  weight: int8 [blocks of
    outputs, lines of 16 inputs, 4, 16 outputs, 4 inputs]; sums: int32, of weight + shift, for each
    output up to a whole block.  With a factor, sums become float32 and are multiplied, more is
    added, and a function is applied, as of `nn.apply`.  If out is int8 or uint8, they are then
    quantized as by `quantize_bytes`.  bias, factor and more: a number, or one for each output,
    others being 0; x_zero, scale, zero: a number.  The reference uses memory for its operands in
    float64."""
    has_ranks = x.ndim >= 1 and out.ndim == x.ndim and weight.ndim == 5
    if not has_ranks or weight.shape[1] != blocks_of(x.shape[-1]):
        raise WrongValue(
            f"expected x[..., inputs] and weight[blocks, lines of inputs, 4, 16, 4], got x "
            f"{describe(x)}, weight {describe(weight)}, out {describe(out)}"
        )
    inputs, columns = x.shape[-1], out.shape[-1]
    if blocks_of(columns) != len(weight):
        raise WrongValue(f"out: expected columns for {len(weight)} blocks, got {describe(out)}")
    finish = _check(x, x_zero, shift, sums, bias, factor, more, function, scale, zero, columns, out)
    check_out(out, out.dtype, (*x.shape[:-1], columns))
    plain = _plain(weight[:, :, None, None], shift)[:columns, :inputs, 0, 0]
    rows = _centered(x, finish.zero).reshape(-1, inputs)
    result = np.empty((len(rows), columns), np.float64)
    multiply(rows, plain.T, result)
    written = np.empty(result.shape, native(out.dtype))
    finish.write(result, plain.sum(1), written)
    copy_pieces(out, written.reshape(out.shape))


@kernel("nn.integer_conv2d_blocks")
def integer_conv2d_blocks(
    x: Integers,
    x_zero: Integers | None,
    weight: Integers,
    sums: Integers,
    shift: Int,
    strides: Step2d,
    padding: Padding2d,
    dilation: Step2d,
    bias: Integers | None,
    factor: Tensor | None,
    more: Tensor | None,
    function: Function | None,
    scale: Tensor | None,
    zero: Integers | None,
    out: Out,
) -> None:
    """out = `nn.conv2d` of images in blocks of channels, x[batch, blocks, height, width, 16] of
    int8 or uint8, less x_zero; padding is 0 after that.  weight[blocks of outputs, blocks of
    inputs, height, width, 4, 16 outputs, 4 inputs]; otherwise as `nn.integer_linear_blocks`.  With
    weight of int16 [blocks, height, width, 16], each channel is computed by itself; shift is 0, and
    sums are not used."""
    is_depthwise = weight.ndim == 4
    lines = weight.shape[0 if is_depthwise else 1] if weight.ndim in (4, 7) else -1
    if x.ndim != 5 or x.shape[-1] != BLOCK or lines != x.shape[1]:
        raise WrongValue(
            f"expected x[batch, blocks, height, width, {BLOCK}] and weight[blocks, blocks of "
            f"inputs, height, width, 4, 16, 4], got x {describe(x)}, weight {describe(weight)}"
        )
    if is_depthwise:
        if weight.dtype != np.int16 or weight.shape[-1] != BLOCK or shift:
            raise WrongValue(
                f"weight: expected int16 [blocks, height, width, {BLOCK}] and shift 0, got "
                f"{describe(weight)}, {shift}"
            )
        plain = _centered(weight.transpose(0, 3, 1, 2), 0).reshape(-1, 1, *weight.shape[1:3])
    else:
        plain = _plain(weight, shift)
    if 0 in plain.shape[2:]:
        raise WrongValue(f"weight: expected a window, got {describe(weight)}")
    windows = Windows(x.shape[2:4], plain.shape[2:], strides, padding, dilation)
    outputs = len(plain)
    finish = _check(
        x, x_zero, shift, sums, bias, factor, more, function, scale, zero, outputs, out
    )
    check_out(out, out.dtype, (len(x), len(weight), *windows.count, BLOCK))
    planes = _centered(planes_of(x), finish.zero)
    result = np.empty((len(x), len(plain), *windows.count), np.float64)
    convolve(planes, plain, windows, outputs if is_depthwise else 1, result)
    pixels = copied(result.transpose(0, 2, 3, 1))
    written = np.empty(pixels.shape, native(out.dtype))
    of_weights = finish.sums if is_depthwise else plain.sum((1, 2, 3))
    finish.write(pixels.reshape(-1, outputs), of_weights, written.reshape(-1, outputs))
    for block in range(len(weight)):
        copy_pieces(out[:, block], written[..., block * BLOCK : (block + 1) * BLOCK])


def _centered(x: NDArray[Any], zero: float) -> NDArray[np.float64]:
    """A copy of x, less its zero point."""
    centered = np.empty(x.shape, np.float64)
    apply(np.subtract, centered, x, np.float64(zero))
    return centered


@kernel("nn.integer_lstm_blocks")
def integer_lstm_blocks(
    given: Floats,
    recurrence: Integers,
    sums: Integers,
    shift: Int,
    factors: Floats,
    initial_h: Floats,
    initial_c: Floats,
    direction: Direction,
    *outs: Out,
) -> None:
    """Long short-term memory of quantized states: outs = the states of all steps [steps,
    directions, batch, size], the last states, and the last cells.  given[steps, batch, directions
    * blocks * 64]: the products of the inputs, with the bias.  recurrence: int8 [directions *
    blocks * 4, lines, 4, 16, 4], less shift, as of `nn.integer_linear_blocks`, and sums; factors:
    of its columns.  The four gates of 16 elements of the state are side by side, in the order
    input, output, forget, cell.  The states of a step are quantized as by `quantization_range`
    before they are multiplied.  float32."""
    directions = 2 if direction == "bidirectional" else 1
    if given.ndim != 3 or initial_h.ndim != 3 or recurrence.ndim != 5:
        raise WrongValue(
            f"expected given and initial_h of 3 dimensions and recurrence of 5, got "
            f"{describe(given)}, {describe(initial_h)} and {describe(recurrence)}"
        )
    (steps, batch, _), size = given.shape, initial_h.shape[2]
    gates = directions * blocks_of(size) * LSTM_GATES
    state = (directions, batch, size)
    shapes: tuple[tuple[str, NDArray[Any], tuple[int, ...]], ...] = (
        ("given", given, (steps, batch, gates * BLOCK)),
        ("recurrence", recurrence, (gates, blocks_of(size), BLOCK // _QUAD, BLOCK, _QUAD)),
        ("sums", sums, (gates * BLOCK,)),
        ("factors", factors, (gates * BLOCK,)),
        ("initial_h", initial_h, state),
        ("initial_c", initial_c, state),
    )
    for name, x, shape in shapes:
        if x.shape != shape:
            raise WrongValue(f"{name}: expected {list(shape)}, got {describe(x)}")
    if native(given.dtype) != FLOAT32 or native(sums.dtype) != _INT32:
        raise WrongType(
            f"expected given of float32 and sums of int32, got {describe(given)} and "
            f"{describe(sums)}"
        )
    if not -128 <= shift <= 128:
        raise WrongValue(f"shift: expected -128 to 128, got {shift}")
    if len(outs) != 3:
        raise WrongValue(f"outs: expected 3 tensors, got {len(outs)}")
    for out, expected in zip(outs, ((steps, *state), state, state), strict=True):
        check_out(out, FLOAT32, expected)
    plain = _plain(recurrence[:, :, None, None], shift)[:, :size, 0, 0]
    plain = plain.reshape(directions, -1, size).swapaxes(1, 2)
    given, factors, initial_h, initial_c = (
        np.array(x) for x in (given, factors, initial_h, initial_c)
    )
    for i in range(directions):
        columns = slice(i * plain.shape[2], (i + 1) * plain.shape[2])
        weight, of_weights = np.ascontiguousarray(plain[i]), plain[i].sum(0)
        h, c = initial_h[i], initial_c[i]
        backwards = direction == "reverse" or i == 1
        for t in reversed(range(steps)) if backwards else range(steps):
            check_time()
            scale, zero = _range([h])
            quantized = np.empty(h.shape, np.uint8)
            _quantize(h, scale, zero, quantized)
            exact = np.empty((batch, weight.shape[1]), np.float64)
            multiply(quantized.astype(np.float64) - zero, weight, exact)
            exact += float(zero) * (of_weights - sums[columns])
            with np.errstate(all="ignore"):
                total = exact.astype(np.float32) * (factors[columns] * scale) + given[t, :, columns]
                split = total.reshape(batch, -1, LSTM_GATES, BLOCK)
                parts = [split[:, :, g].reshape(batch, -1)[:, :size] for g in range(LSTM_GATES)]
                let, shown, kept = (1 / (1 + np.exp(-part)) for part in parts[:3])
                c = kept * c + let * np.tanh(parts[3])
                h = shown * np.tanh(c)
            outs[0][t, i] = h
        outs[1][i], outs[2][i] = h, c


def _range(parts: Sequence[NDArray[Any]]) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Scale and zero point of all numbers."""
    bounds = [range_of(part) for part in parts]
    with np.errstate(all="ignore"):
        low = np.minimum.reduce([least for least, _ in bounds])
        high = np.maximum.reduce([greatest for _, greatest in bounds])
        span = np.float32(high - low)
        scale = np.float32(1) if span == 0 else span / np.float32(255)
        point = np.rint(np.clip(-low / scale, 0, 255))
    return np.array(scale, np.float32), np.array(0 if np.isnan(point) else point, np.uint8)


@kernel("quantize_bytes")
def quantize_bytes(x: Floats, scale: Floats, zero: Integers | None, out: Out) -> None:
    """out = x / scale, rounded to the nearest integer, halves to the even one, plus zero, within
    the bounds of the data type of out, int8 or uint8; NaN gives 0.  scale and zero are numbers.
    float32."""
    if native(x.dtype) != FLOAT32:
        raise WrongType(f"x: expected float32, got {describe(x)}")
    if out.dtype not in _BYTES:
        raise WrongValue(f"out: expected int8 or uint8, got {describe(out)}")
    check_out(out, out.dtype, x.shape)
    for name, number, dtype in (("scale", scale, FLOAT32), ("zero", zero, out.dtype)):
        if number is not None and (native(number.dtype) != dtype or number.size != 1):
            raise WrongValue(f"{name}: expected one {dtype}, got {describe(number)}")
    zero = None if zero is None else zero.copy()
    _quantize(copy_if_overlapping(x, out), scale.copy(), zero, out)


@kernel("quantization_range")
def quantization_range(
    x: Floats, channels: Annotated[int, an_int(least=1)] | None, *outs: Out
) -> None:
    """outs = scale and zero, for which `quantize_bytes` of x gives all of uint8: the scale of
    float32 is the distance between the least and the greatest element, 0 among them, over 255, or 1
    where there is none; zero is what 0 becomes, as ``DynamicQuantizeLinear`` of ONNX has it.
    channels: x is an image in blocks, of which only so many channels count.  float32."""
    if native(x.dtype) != FLOAT32:
        raise WrongType(f"x: expected float32, got {describe(x)}")
    if len(outs) != 2:
        raise WrongValue(f"outs: expected scale and zero, got {len(outs)} tensors")
    if channels is not None:
        if x.ndim != 5 or x.shape[-1] != BLOCK or blocks_of(channels) != x.shape[1]:
            raise WrongValue(f"x: expected {channels} channels in blocks, got {describe(x)}")
        whole = channels // BLOCK
        parts = [x[:, :whole], x[:, whole:, ..., : channels % BLOCK]]
    else:
        parts = [x]
    check_out(outs[0], FLOAT32, ())
    check_out(outs[1], np.dtype(np.uint8), ())
    scale, zero = _range(parts)
    outs[0][...] = scale
    outs[1][...] = zero
