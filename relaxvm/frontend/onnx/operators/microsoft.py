"""Fused layers of com.microsoft: activations, products, normalizations and embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr, TensorType
from ...common.values import Value
from ..graph import Graph, Problem
from ..registry import MICROSOFT, onnx
from .attention import dims_of, length_of, rotated
from .elementwise import scalar
from .neural import layer_norm, pad, rms_norm
from .products import gemm
from .ranks import matrix_turned, rank_of, with_rank
from .spectral import transformed
from .windows import conv, spatial_axes

__all__ = ["activated", "rotary"]


def _value(x: Any) -> Value:
    return x if isinstance(x, Value) else Value(x)


# Activations


@onnx("Gelu", since=1, domain=MICROSOFT)
def gelu(g: Graph, x: Value) -> Expr:
    """R.nn.gelu."""
    return g.op("nn.gelu", x)


@onnx("BiasGelu", since=1, domain=MICROSOFT)
def bias_gelu(g: Graph, x: Value, bias: Value) -> Expr:
    """R.nn.gelu of a sum."""
    return g.op("nn.gelu", g.op("add", x, bias))


@onnx("FastGelu", since=1, domain=MICROSOFT)
def fast_gelu(g: Graph, x: Value, bias: Value | None = None) -> Expr:
    """R.nn.gelu_tanh, of a sum if there is a bias."""
    return g.op("nn.gelu_tanh", x if bias is None else g.op("add", x, bias))


@onnx("QuickGelu", since=1, domain=MICROSOFT)
def quick_gelu(g: Graph, x: Value, *, alpha: float = 1.702) -> Expr:
    """x * sigmoid(alpha * x)."""
    return g.op("multiply", x, g.op("sigmoid", g.op("multiply", x, scalar(g, alpha, x))))


def activated(g: Graph, x: Expr, name: str, parameters: list[float]) -> Expr:
    """The activation that a fused layer names."""
    if not name:
        return x
    simple = {"Relu": "nn.relu", "Tanh": "tanh", "Sigmoid": "sigmoid"}
    if name in simple:
        return g.op(simple[name], x)
    if name == "LeakyRelu":
        slope = scalar(g, parameters[0] if parameters else 0.01, x)
        is_below = g.op("less", x, scalar(g, 0, x))
        return g.op("where", is_below, g.op("multiply", x, slope), x)
    if name == "Clip" and len(parameters) == 2:
        return g.op("clip", x, parameters[0], parameters[1])
    if name == "HardSigmoid":
        alpha, beta = parameters if len(parameters) == 2 else (0.2, 0.5)
        line = g.op("add", g.op("multiply", x, scalar(g, alpha, x)), scalar(g, beta, x))
        return g.op("clip", line, 0, 1)
    raise Problem(f"activation: {name!r} with {len(parameters)} parameters is not supported")


# Products


def _turned(g: Graph, x: Value, matrix: int, batch: int) -> Value:
    """A matrix transposed, or with its rows before the batch."""
    if not matrix and not batch:
        return x
    if not batch:
        return matrix_turned(g, x)
    order = list(range(rank_of(x, "a matrix", 2)))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if matrix:
        order[-2:] = order[-1], order[-2]
    return Value(g.op("permute_dims", x, tuple(order)))


@onnx("FusedMatMul", "TransposeMatMul", since=1, domain=MICROSOFT)
def fused_matmul(
    g: Graph,
    a: Value,
    b: Value,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> Expr:
    """alpha times the product of matrices that may be transposed."""
    found = g.op("matmul", _turned(g, a, transA, transBatchA), _turned(g, b, transB, transBatchB))
    return found if alpha == 1 else g.op("multiply", found, scalar(g, alpha, found))


@onnx("FusedGemm", since=1, domain=MICROSOFT)
def fused_gemm(
    g: Graph,
    a: Value,
    b: Value,
    c: Value | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """Gemm, then an activation."""
    found = gemm(g, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = [each for each in (activation_alpha, activation_beta) if each is not None]
    return activated(g, found, activation, given)


@onnx("Inverse", since=1, domain=MICROSOFT)
def inverse(g: Graph, x: Value) -> Expr:
    """The inverse of matrices, by the kernel linalg.solve.  A singular one is an error of the
    run."""
    unit = g.op("triu", g.op("tril", g.op("ones_like", x), 0), 0)
    ty = TensorType.of(x.dims, x.dtype, ndim=x.ndim)
    return g.run("linalg.solve", [x, unit], ty, x.dtype or "?")


@onnx("Rfft", since=1, domain=MICROSOFT)
def rfft(
    g: Graph, x: Value, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1
) -> Expr:
    """The first half of the discrete Fourier transform of real signals along the last axes."""
    if normalized or not onesided:
        raise Problem(
            f"expected normalized 0 and onesided 1, got normalized {normalized}, onesided "
            f"{onesided}"
        )
    if not 1 <= signal_ndim <= 3:
        raise Problem(f"signal_ndim: expected a number from 1 to 3, got {signal_ndim}")
    if 0 <= x.ndim < signal_ndim:
        raise Problem(f"X: expected a tensor of rank {signal_ndim} or more, got {x.type}")
    pairs = Value(g.op("expand_dims", x, [-1]))
    found = transformed(g, pairs, None, -2, inverse=False, onesided=True)
    for axis in range(3, signal_ndim + 2):
        found = transformed(g, Value(found), None, -axis, inverse=False, onesided=False)
    return found


@onnx("FusedConv", since=1, domain=MICROSOFT)
def fused_conv(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """Conv, plus a tensor, then an activation."""
    found = conv(
        g, x, w, b, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    if z is not None:
        found = g.op("add", found, z)
    return activated(g, found, activation, activation_params or [])


@onnx("NhwcFusedConv", since=1, domain=MICROSOFT)
def nhwc_fused_conv(
    g: Graph,
    x: Value,
    w: Value,
    b: Value | None = None,
    z: Value | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Expr:
    """As FusedConv, with channels last."""
    last = spatial_axes(x, "X", kernel_shape, strides, dilations, (pads or [])[::2]) + 1
    x = with_rank(g, x, last + 1, "X")
    first = Value(g.op("permute_dims", x, (0, last, *range(1, last))))
    found = conv(
        g, first, w, b, auto_pad=auto_pad, dilations=dilations, group=group,
        kernel_shape=kernel_shape, pads=pads, strides=strides,
    )  # fmt: skip
    found = g.op("permute_dims", found, (0, *range(2, last + 1), 1))
    if z is not None:
        found = g.op("add", found, z)
    return activated(g, found, activation, activation_params or [])


# Normalizations


@onnx("LayerNormalization", since=1, domain=MICROSOFT)
def microsoft_layer_norm(
    g: Graph,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Any:
    """LayerNormalization of ai.onnx."""
    return layer_norm(g, x, scale, bias, axis=axis, epsilon=epsilon, stash_type=stash_type)


@onnx("SimplifiedLayerNormalization", since=1)
@onnx("SimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def simplified_layer_norm(
    g: Graph, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    """RMSNormalization of ai.onnx, with 1 / deviation."""
    found = rms_norm(g, x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)
    if not _wants(g, 1):
        return found
    axes = list(range(axis % x.ndim, x.ndim))
    wide = _value(x if x.dtype == "float32" else g.op("astype", x, "float32"))
    square = g.op("mean", g.op("multiply", wide, wide), axes, True)
    return found, g.op("rsqrt", g.op("add", square, scalar(g, epsilon, square)))


def _wants(g: Graph, output: int) -> bool:
    """Whether the model uses an output of the node."""
    return g.node is not None and len(g.node.output) > output and bool(g.node.output[output])


@onnx("SkipLayerNormalization", since=1, domain=MICROSOFT)
def skip_layer_norm(
    g: Graph,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """LayerNormalization of a sum, with the sum."""
    total = g.op("add", x, skip)
    if bias is not None:
        total = g.op("add", total, bias)
    found, mean, inverse = layer_norm(g, Value(total), gamma, beta, axis=-1, epsilon=epsilon)
    return found, mean, inverse, total


@onnx("SkipSimplifiedLayerNormalization", since=1, domain=MICROSOFT)
def skip_simplified_layer_norm(
    g: Graph,
    x: Value,
    skip: Value,
    gamma: Value,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """RMSNormalization of a sum, with the sum."""
    if _wants(g, 1) or _wants(g, 2):
        raise Problem("mean and inv_std_var are not supported")
    total = g.op("add", x, skip)
    if bias is not None:
        total = g.op("add", total, bias)
    return rms_norm(g, Value(total), gamma, epsilon=epsilon), None, None, total


@onnx("EmbedLayerNormalization", since=1, domain=MICROSOFT)
def embed_layer_norm(
    g: Graph,
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Any:
    """LayerNormalization of the sum of embeddings of words, positions and segments."""
    batch, length = dims_of(g, input_ids, 2, "input_ids")
    total = g.op("take", word_embedding, input_ids, 0)
    if position_ids is None:
        places: Any = g.op("strided_slice", position_embedding, [0], [0], [length])
    else:
        places = g.op("take", position_embedding, position_ids, 0)
    total = g.op("add", total, places)
    if segment_ids is not None and segment_embedding is not None:
        total = g.op("add", total, g.op("take", segment_embedding, segment_ids, 0))
    found, _, _ = layer_norm(g, Value(total), gamma, beta, axis=-1, epsilon=epsilon)
    if mask is None:
        index: Any = g.op("zeros", (batch,), "int32")
    else:
        index = g.op("sum", g.op("astype", mask, "int32"), [1], False)
    return found, index, total


# Positions


def rotary(
    g: Graph,
    x: Value,
    positions: Value | Expr,
    cos_cache: Value,
    sin_cache: Value,
    width: int,
    interleaved: bool,
) -> Expr:
    """x[batch, heads, length, size] rotated by the angles of positions[batch or 1, length]."""
    angles = [
        g.op("expand_dims", g.op("take", cache, positions, 0), (1,))
        for cache in (cos_cache, sin_cache)
    ]
    return rotated(g, x, angles[0], angles[1], width, interleaved)


@onnx("RotaryEmbedding", since=1, domain=MICROSOFT)
def rotary_embedding(
    g: Graph,
    x: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Expr:
    """Pairs of elements of each head rotated by angles of their position."""
    if is_packed_batching:
        raise Problem("is_packed_batching is not supported")
    columns = dims_of(g, cos_cache, 2, "cos_cache")[1]
    width: Any = rotary_embedding_dim or 2 * (length_of(columns) or columns)
    apart = x
    if rank_of(x, "input", 3, 4) == 3:
        batch, length, hidden = dims_of(g, x, 3, "input")
        total = length_of(hidden)
        heads = num_heads or (hidden if total is None else total) // width
        if total is not None and isinstance(heads, int) and (not heads or total % heads):
            raise Problem(f"num_heads: expected heads of equal size, got {heads} of {x.type}")
        shape = (batch, length, heads, hidden // heads)
        apart = Value(g.op("permute_dims", g.reshaped(x, shape), (0, 2, 1, 3)))
    length = dims_of(g, apart, 4, "input")[2]
    if rank_of(position_ids, "position_ids", 0, 2) < 2:  # the position of the first one
        places: Any = g.op("add", g.op("arange", 0, length, 1, "int64"),
                           g.op("reshape", position_ids, (1, 1)))  # fmt: skip
    else:
        places = position_ids
    found = rotary(g, apart, places, cos_cache, sin_cache, width, bool(interleaved))
    if x.ndim == 3:
        found = g.reshaped(Value(g.op("permute_dims", found, (0, 2, 1, 3))), x.dims or ())
    return found if scale == 1 else g.op("multiply", found, scalar(g, scale, found))


# Others


@onnx("ExpandDims", since=1, domain=MICROSOFT)
def expand_dims(g: Graph, x: Value, axis: Value) -> Expr:
    """R.expand_dims."""
    (place,) = g.sized(axis, "axis")
    return g.op("expand_dims", x, (int(place),))


@onnx("Pad", since=1, domain=MICROSOFT)
def microsoft_pad(
    g: Graph, x: Value, pads: Value, value: Value | None = None, *, mode: str = "constant"
) -> Expr:
    """Pad of ai.onnx."""
    return pad(g, x, pads, value, mode=mode)


@onnx("Trilu", since=1, domain=MICROSOFT)
def microsoft_trilu(g: Graph, x: Value, k: Value | None = None, *, upper: int = 1) -> Expr:
    """Trilu of ai.onnx."""
    from .gathering import trilu

    return trilu(g, x, k, upper=upper)


@onnx("Range", since=1, domain=MICROSOFT)
def microsoft_range(g: Graph, start: Value, limit: Value, delta: Value | None = None) -> Expr:
    """Range of ai.onnx, in steps of 1 unless delta is given."""
    from .creation import range_

    if delta is None:
        dtype = start.dtype
        if dtype is None:
            raise Problem("the data type of start is not known")
        delta = Value(known=np.ones((), as_dtype(dtype)))
    return range_(g, start, limit, delta)


@onnx("GatherND", since=1, domain=MICROSOFT)
def microsoft_gather_nd(g: Graph, x: Value, indices: Value) -> Any:
    """GatherND of ai.onnx."""
    from .gathering import gather_nd

    return gather_nd(g, x, indices)
