"""Windows, and discrete Fourier transforms."""

from __future__ import annotations

from typing import Any

from ....ir import Expr, IntImm, TensorType
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import onnx
from ..tensors import dtype_of
from .elementwise import scalar
from .ranks import rank_of

__all__ = ["transformed"]


def _window(
    g: Graph, size: Value, a: float, b: float, c: float, output_datatype: int, periodic: int
) -> Expr:
    """``a - b * cos(t) + c * cos(2 * t)`` for angles t around the circle."""
    dtype = dtype_of(output_datatype, "output_datatype")
    if dtype is None or "float" not in dtype:
        raise Problem(f"output_datatype: expected floats, got {dtype}")
    (count,) = g.elements(size, 1, "size")
    if isinstance(count, int) and count < 1:
        raise Problem(f"size: expected 1 or more, got {count}")
    cosine = Value(g.op("hamming_window", count, bool(periodic), 0.0, -1.0, dtype))
    found = g.op("multiply", cosine, scalar(g, -b, cosine))
    if c:  # cos(2 * t) is 2 * cos(t) ** 2 - 1
        twice = g.op("multiply", g.op("square", cosine), scalar(g, 2 * c, cosine))
        found = g.op("add", found, twice)
    return g.op("add", found, scalar(g, a - c, cosine))


@onnx("HannWindow", since=17)
def hann_window(g: Graph, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Expr:
    """Half of one minus the cosine."""
    return _window(g, size, 0.5, 0.5, 0.0, output_datatype, periodic)


@onnx("HammingWindow", since=17)
def hamming_window(g: Graph, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Expr:
    """R.hamming_window."""
    return _window(g, size, 25 / 46, 21 / 46, 0.0, output_datatype, periodic)


@onnx("BlackmanWindow", since=17)
def blackman_window(g: Graph, size: Value, *, output_datatype: int = 1, periodic: int = 1) -> Expr:
    """A sum of two cosines."""
    return _window(g, size, 0.42, 0.5, 0.08, output_datatype, periodic)


def transformed(
    g: Graph, x: Value, length: Value | None, axis: Any, inverse: bool, onesided: bool
) -> Expr:
    """The discrete Fourier transform along an axis.

    Args:
        g: the graph.
        x: numbers; the last axis has their real parts, or also their imaginary parts.
        length: of the signals, which are cut or extended by zeros; None for as long as they are.
        axis: of x, but not its last one.
        inverse: whether it is the inverse transform.
        onesided: whether the result, or x for the inverse one, has the first half of the spectrum.
    """
    if x.dtype is None:
        raise Problem("x: expected a known data type")
    count = None if length is None else g.elements(length, 1, "dft_length")[0]
    dims: list[Any] | None = None
    if x.dims is not None and isinstance(axis, int):
        if not -x.ndim <= axis < x.ndim - 1 or axis == -1:
            raise Problem(f"axis: expected an axis of x but the last one, got {axis}")
        dims = list(x.dims)
        known = dims[axis] if count is None else count
        known = known.value if isinstance(known, IntImm) else known
        if isinstance(known, int):
            if inverse and onesided and count is None:
                known = 2 * (known - 1)
            dims[axis] = known // 2 + 1 if onesided and not inverse else known
            dims[-1] = 1 if inverse and onesided else 2
        else:
            dims = None
    ty = TensorType.of(dims, x.dtype, ndim=x.ndim)
    return g.run("dft", [x, count, axis, inverse, onesided], ty, x.dtype)


@onnx("DFT", since=20)
def dft(
    g: Graph,
    x: Value,
    length: Value | None = None,
    axis: Value | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    """The discrete Fourier transform along an axis."""
    along: Any = -2
    if axis is not None:
        (along,) = axis.ints() or (None,)
        if not isinstance(along, int):
            rank = rank_of(x, "x", 2)
            along = g.builtin("int_within", [axis, -rank, rank - 1, "axis"])
    return transformed(g, x, length, along, bool(inverse), bool(onesided))


@onnx("DFT", since=17)
def dft_by_attribute(
    g: Graph,
    x: Value,
    length: Value | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    """The discrete Fourier transform along an axis."""
    return transformed(g, x, length, axis, bool(inverse), bool(onesided))


@onnx("STFT", since=17)
def stft(
    g: Graph,
    x: Value,
    step: Value,
    window: Value | None = None,
    length: Value | None = None,
    *,
    onesided: int = 1,
) -> Expr:
    """The discrete Fourier transforms of parts of signals."""
    if x.dtype is None:
        raise Problem("signal: expected a known data type")
    (by,) = g.elements(step, 1, "frame_step")
    if length is not None:
        (count,) = g.elements(length, 1, "frame_length")
    elif window is not None and (dims := g.named_dims(window, 1)) is not None:
        count = dims[0]
    else:
        raise Problem("expected a window or a frame_length")
    if x.ndim == 2:
        x = Value(g.op("expand_dims", x, [-1]))
    ty = TensorType(None, x.dtype, ndim=4)
    return g.run("stft", [x, by, window, count, bool(onesided)], ty, x.dtype or "?")


@onnx("MelWeightMatrix", since=17)
def mel_weight_matrix(
    g: Graph,
    num_mel_bins: Value,
    dft_length: Value,
    sample_rate: Value,
    lower_edge_hertz: Value,
    upper_edge_hertz: Value,
    *,
    output_datatype: int = 1,
) -> Expr:
    """The weights of frequencies in bands of the mel scale."""
    dtype = dtype_of(output_datatype, "output_datatype")
    if dtype is None or "float" not in dtype:
        raise Problem(f"output_datatype: expected floats, got {dtype}")
    (bands,), (length,), (rate,) = (
        g.elements(each, 1, what) for each, what in (
            (num_mel_bins, "num_mel_bins"), (dft_length, "dft_length"),
            (sample_rate, "sample_rate"),
        )
    )  # fmt: skip
    edges = [g.number(each) for each in (lower_edge_hertz, upper_edge_hertz)]
    dims = [length // 2 + 1, bands] if isinstance(length, int) and isinstance(bands, int) else None
    ty = TensorType.of(dims, dtype, ndim=2)
    return g.run("mel_weights", [bands, length, rate, *edges], ty, dtype)
