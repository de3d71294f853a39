"""Discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import check_time, copy_pieces, pieces
from ._arrays import copy_if_overlapping
from ._blocks import BLOCK
from ._kernel import kernel
from .checks import FLOAT64, WrongValue, check_out, native
from .kinds import Axis, Flag, Float, Floats, Out, an_int

__all__: list[str] = []

Count: TypeAlias = Annotated[int, an_int(least=1)]


@kernel("dft")
def dft(
    x: Floats,
    length: Annotated[int, an_int(least=1)] | None,
    axis: Axis,
    inverse: Flag,
    onesided: Flag,
    out: Out,
) -> None:
    """out = the discrete Fourier transform of x along an axis, or the inverse one.  The last axis
    has the real part of a number and, if its length is 2, the imaginary part.  length: of the
    signal along the axis, which is cut or extended by zeros; None for as long as it is.  onesided:
    out has the first half of the spectrum, length // 2 + 1 numbers; for the inverse, x has it, and
    out has real numbers; then None stands for 2 * (n - 1).  float64 is computed in float64, others
    in float32, a row at a time; uses memory for a row."""
    if axis == x.ndim - 1 or x.shape[-1] not in (1, 2):
        raise WrongValue(
            f"x: expected a last axis of length 1 or 2, and another axis to transform, got "
            f"{describe(x)}, axis {axis}"
        )
    count = x.shape[axis]
    is_real = inverse and onesided
    if length is None:
        length = 2 * (count - 1) if is_real else count
        if length < 1:
            raise WrongValue(f"x: expected elements along axis {axis}, got {describe(x)}")
    bins = length // 2 + 1 if onesided and not inverse else length
    shape = [*x.shape[:-1], 1 if is_real else 2]
    shape[axis] = bins
    check_out(out, x.dtype, tuple(shape))
    parts = _parts(copy_if_overlapping(x, out), axis)
    found = _parts(out, axis)

    def transform(rows: NDArray[Any]) -> Any:
        if is_real:
            return np.fft.irfft(rows, length)
        return (np.fft.ifft if inverse else np.fft.fft)(rows, length)[..., :bins]

    _transform(transform, parts, found)


@kernel("stft")
def stft(
    x: Floats,
    frame_step: Annotated[int, an_int(least=1)],
    window: Floats | None,
    frame_length: Annotated[int, an_int(least=1)],
    onesided: Flag,
    out: Out,
) -> None:
    """out = the discrete Fourier transforms of parts of the signals x, which begin every frame_step
    elements and have frame_length elements.  x: for each signal its elements, real and imaginary
    part as of `dft`.  window: a vector that the parts are multiplied by, or None.  out: for each
    signal and part the numbers of the transform, the first half of them if onesided."""
    if x.ndim != 3 or x.shape[-1] not in (1, 2) or x.shape[1] < frame_length:
        raise WrongValue(
            f"x: expected signals of at least {frame_length} elements, of 1 or 2 numbers each, got "
            f"{describe(x)}"
        )
    if window is not None and window.shape != (frame_length,):
        raise WrongValue(f"window: expected shape {[frame_length]}, got {describe(window)}")
    bins = frame_length // 2 + 1 if onesided else frame_length
    frames = (x.shape[1] - frame_length) // frame_step + 1
    check_out(out, x.dtype, (x.shape[0], frames, bins, 2))
    x = copy_if_overlapping(x, out)
    windows = np.lib.stride_tricks.sliding_window_view(x, frame_length, 1)[:, ::frame_step]
    dtype = np.float64 if native(x.dtype) == FLOAT64 else np.float32
    weights = np.ones((), dtype) if window is None else window.astype(dtype)

    def transform(rows: NDArray[Any]) -> Any:
        rows *= weights
        return np.fft.fft(rows)[..., :bins]

    parts = [windows[:, :, i] for i in range(x.shape[-1])]
    _transform(transform, parts, [out[..., 0], out[..., 1]])


@kernel("mel_weights")
def mel_weights(
    bands: Count, length: Count, sample_rate: Count, lowest: Float, highest: Float, out: Floats
) -> None:
    """out[length // 2 + 1, bands] = the weights of frequencies in bands of the mel scale, for
    signals of this length: they rise from 0 to 1 at the middle of a band and fall to 0.  The bands
    begin at `lowest` Hz, and end below `highest`; their middles are equally far apart on the scale.
    Computed in float64."""
    check_out(out, out.dtype, (length // 2 + 1, bands))
    if not 0 <= lowest < highest <= sample_rate / 2:
        raise WrongValue(
            f"expected 0 <= lowest < highest <= {sample_rate / 2}, half of the sample rate, got "
            f"{lowest} and {highest}"
        )
    first, last = (2595 * math.log10(1 + edge / 700) for edge in (lowest, highest))
    step = (last - first) / (bands + 2)

    def place(i: int) -> int:
        """The frequency at which band i begins, as an index."""
        return int((length + 1) * 700 * (10 ** ((first + i * step) / 2595) - 1) // sample_rate)

    copy_pieces(out, 0)
    for band in range(bands):
        start, middle, end = place(band), place(band + 1), place(band + 2)
        rising = np.arange(start, middle + 1)
        falling = np.arange(middle, end)
        up = (rising - start) / (middle - start) if middle > start else np.ones(1)
        np.copyto(out[start : middle + 1, band], up, casting="unsafe")
        down = (end - falling) / max(1, end - middle)
        np.copyto(out[middle:end, band], down, casting="unsafe")
        if band % 256 == 255:
            check_time()


def _parts(x: NDArray[Any], axis: int) -> list[NDArray[Any]]:
    """Real and imaginary parts, with the axis last."""
    return [np.moveaxis(x[..., i], axis, -1) for i in range(x.shape[-1])]


def _transform(
    function: Callable[[NDArray[Any]], Any],
    parts: list[NDArray[Any]],
    found: list[NDArray[Any]],
) -> None:
    """Transform rows, which have one or two parts, in blocks."""
    if not found[0].size:
        return
    dtype = np.complex128 if native(found[0].dtype) == FLOAT64 else np.complex64
    for real, *more in pieces(parts[0], *parts[1:], *found, row=1, most=BLOCK):
        rows = np.zeros(real.shape, dtype)
        rows.real = real
        results = more
        if len(parts) == 2:
            rows.imag, *results = more
        values = function(rows)
        if len(results) == 1:
            np.copyto(results[0], values, casting="unsafe")
        else:
            np.copyto(results[0], values.real, casting="unsafe")
            np.copyto(results[1], values.imag, casting="unsafe")
