"""Operations on `nn.Tensor`: each emits operators of Relax and returns the result as a tensor.

`name` is the name of the variable that the result is bound to.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from ... import op as relax
from ...ir import ANY, Expr, ShapeExpr, StringImm, Tuple, const, is_scalar, prim_value
from ...messages import describe
from .core import OPERATIONS, Tensor, builder, expr_of, get_default_dtype, wrap_nested, wrap_tensor

__all__ = [
    "add",
    "arange",
    "argsort",
    "astype",
    "broadcast_to",
    "chunk",
    "concat",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv3d",
    "cumsum",
    "debug_func",
    "divide",
    "empty",
    "equal",
    "exp",
    "extern",
    "floor",
    "full",
    "gelu",
    "get_timestep_embedding",
    "greater",
    "greater_equal",
    "group_norm",
    "interpolate",
    "layer_norm",
    "less",
    "less_equal",
    "log",
    "matmul",
    "max",
    "maximum",
    "min",
    "minimum",
    "multinomial_from_uniform",
    "multiply",
    "negative",
    "not_equal",
    "ones",
    "pad",
    "permute",
    "permute_dims",
    "prelu",
    "print_",
    "relu",
    "relu6",
    "renormalize_top_p_top_k_prob",
    "repeat",
    "reshape",
    "rms_norm",
    "sample_top_p_top_k_from_sorted_prob",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "subtract",
    "sum",
    "take",
    "tanh",
    "tensor_expr_op",
    "tensor_ir_inplace_op",
    "tensor_ir_op",
    "topk",
    "triu",
    "unsqueeze",
    "where",
    "wrap_nested",
    "zeros",
]

Operation = Callable[..., Tensor]


def _unary(operator: str, name: str | None = None) -> Operation:
    """The operation of an operator of one tensor."""
    label = operator.rpartition(".")[2] if name is None else name

    def apply(x: Tensor, name: str = label) -> Tensor:
        return wrap_tensor(_operator(operator)(x._expr), name)

    apply.__name__ = apply.__qualname__ = operator.rpartition(".")[2]
    apply.__doc__ = f"``relax.{operator}`` of a tensor."
    return apply


def _binary(operator: str, name: str | None = None) -> Operation:
    """The operation of an operator of two tensors, which are broadcast."""
    label = operator if name is None else name

    def apply(a: Tensor, b: Tensor, name: str = label) -> Tensor:
        return wrap_tensor(_operator(operator)(expr_of(a), expr_of(b)), name)

    apply.__name__ = apply.__qualname__ = operator
    apply.__doc__ = f"``relax.{operator}`` of two tensors."
    return apply


def _operator(name: str) -> Callable[..., Expr]:
    found: Callable[..., Expr] = attrgetter(name)(relax)
    return found


exp = _unary("exp")
floor = _unary("floor")
log = _unary("log")
negative = _unary("negative", "neg")
relu = _unary("nn.relu")
relu6 = _unary("nn.relu6")
sigmoid = _unary("sigmoid")
silu = _unary("nn.silu")
sqrt = _unary("sqrt")
square = _unary("square")
tanh = _unary("tanh")

add = _binary("add")
divide = _binary("divide")
equal = _binary("equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
less = _binary("less")
less_equal = _binary("less_equal")
multiply = _binary("multiply", "mul")
not_equal = _binary("not_equal")
subtract = _binary("subtract")


def maximum(x1: Tensor, x2: Tensor, name: str = "maximum") -> Tensor:
    """``relax.maximum`` of two tensors."""
    return wrap_tensor(relax.maximum(expr_of(x1), expr_of(x2)), name)


def minimum(x1: Tensor, x2: Tensor, name: str = "minimum") -> Tensor:
    """``relax.minimum`` of two tensors."""
    return wrap_tensor(relax.minimum(expr_of(x1), expr_of(x2)), name)


# Shapes


def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """Return the tensor with a dimension of size 1 inserted."""
    return wrap_tensor(relax.expand_dims(x._expr, dim), name)


def squeeze(x: Tensor, axis: int = -1, name: str = "squeeze") -> Tensor:
    """Return the tensor without a dimension of size 1."""
    return wrap_tensor(relax.squeeze(x._expr, axis), name)


def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Return tensors one after the other along a dimension."""
    return wrap_tensor(relax.concat([t._expr for t in x], dim), name)


def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> Any:
    """Return the tensor split into parts of the same size."""
    return wrap_nested(relax.split(x._expr, chunks, dim), name)


def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> Any:
    """Return the tensor split into parts of the same size, or at indices."""
    return wrap_nested(relax.split(ary._expr, indices_or_sections, axis), name)


def broadcast_to(x: Tensor, shape: Sequence[Any], name: str = "broadcast_to") -> Tensor:
    """Return the tensor broadcast to a shape."""
    return wrap_tensor(relax.broadcast_to(x._expr, shape), name)


def reshape(x: Tensor, shape: Sequence[Any], name: str = "reshape") -> Tensor:
    """Return the tensor in another shape; -1 is what is left, 0 the dimension of the input."""
    return wrap_tensor(relax.reshape(x._expr, shape), name)


def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """Return the tensor with its axes in another order; None reverses them."""
    if name is None:
        of = getattr(x._expr, "name", "")
        name = of.replace("linear", "matmul") if "linear" in of else "permute_dims"
    return wrap_tensor(relax.permute_dims(x._expr, axes), name)


def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """The same as `permute_dims`."""
    return permute_dims(x, axes, name)


def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Return the tensor with every element repeated."""
    return wrap_tensor(relax.repeat(x._expr, repeats, axis), name)


def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    """Return the tensor with elements added: two counts per dimension, before and after."""
    return wrap_tensor(relax.nn.pad(x._expr, pad, mode, value), name)


def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Return the elements at indices along an axis."""
    return wrap_tensor(relax.take(x._expr, indices._expr, axis), name)


def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Return the upper triangle of matrices, from a diagonal on; zeros below it.

    Raises:
        ValueError: the tensor has fewer than two dimensions.
    """
    if x.ndim < 2:
        raise ValueError(f"triu: expected at least 2 dimensions, got {x.ndim}")
    return wrap_tensor(relax.triu(x._expr, diagonal), name)


def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """Return the tensor in a data type; the tensor itself if it has it."""
    if x.dtype == dtype:
        return x
    return wrap_tensor(relax.astype(x._expr, dtype), name)


# Reductions and orders


def sum(  # noqa: A001
    x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, name: str = "sum"
) -> Tensor:
    """Return sums over axes; None: over all."""
    return wrap_tensor(relax.sum(x._expr, axis, keepdims), name)


def max(  # noqa: A001
    x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, name: str = "max"
) -> Tensor:
    """Return maxima over axes; None: over all."""
    return wrap_tensor(relax.max(x._expr, axis, keepdims), name)


def min(  # noqa: A001
    x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False, name: str = "min"
) -> Tensor:
    """Return minima over axes; None: over all."""
    return wrap_tensor(relax.min(x._expr, axis, keepdims), name)


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Return the sums of all elements up to each; `exclusive`: without it."""
    return wrap_tensor(relax.cumsum(data._expr, axis, dtype, bool(exclusive)), name)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """Return the elements in order."""
    return wrap_tensor(relax.sort(x._expr, axis, descending), name)


def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """Return the indices that put the elements in order."""
    return wrap_tensor(relax.argsort(data._expr, axis, descending, dtype), name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """Return the largest elements, their indices, or both."""
    return wrap_nested(relax.topk(data._expr, k, axis, ret_type, largest, dtype), name)


def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    """Return elements of the first tensor where the condition holds, else of the second."""
    chosen = astype(condition, "bool")
    return wrap_tensor(relax.where(chosen._expr, x1._expr, x2._expr), name)


# New tensors


def arange(
    start: int,
    end: int | None = None,
    step: int = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """Return the numbers from `start` to `end` in steps; with one argument, from 0."""
    return wrap_tensor(relax.arange(start, end, step, dtype), name)


def full(
    shape: Sequence[Any], fill_value: Any, dtype: str = "float32", name: str = "full"
) -> Tensor:
    """Return a tensor of one value, a number or a tensor without dimensions."""
    value = (
        fill_value._expr if isinstance(fill_value, Tensor) else const(_number(fill_value), dtype)
    )
    return wrap_tensor(relax.full(shape, value, dtype), name)


def _number(value: Any) -> Any:
    return getattr(value, "value", value)


def zeros(shape: Sequence[Any], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Return a tensor of zeros."""
    return wrap_tensor(relax.zeros(shape, dtype), name)


def ones(shape: Sequence[Any], dtype: str = "float32", name: str = "ones") -> Tensor:
    """Return a tensor of ones."""
    return wrap_tensor(relax.ones(shape, dtype), name)


def empty(shape: Sequence[Any], dtype: str = "float32", name: str = "empty") -> Tensor:
    """Return a tensor whose values are not set."""
    return wrap_tensor(relax.builtin.alloc_tensor(ShapeExpr(shape), dtype, 0), name)


# Layers


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Return the product of matrices; further dimensions are broadcast."""
    return wrap_tensor(relax.matmul(a._expr, b._expr, out_dtype), name)


def _with_bias(out: Expr, bias: Tensor | None, layout: str, name: str) -> Tensor:
    if bias is not None:
        shape = [-1 if axis == "C" else 1 for axis in layout]
        out = relax.add(out, relax.reshape(bias._expr, shape))
    return wrap_tensor(out, name)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """Return the convolution of x: [n, c, w] with weight: [o, c, k], plus a bias."""
    out = relax.nn.conv1d(
        x._expr, weight._expr, strides=stride, padding=padding, dilation=dilation, groups=groups
    )
    return _with_bias(out, bias, "NCW", name)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """Return the convolution of x, in `data_layout`, with weight: [o, c, h, w], plus a bias."""
    out = relax.nn.conv2d(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_layout=data_layout,
    )
    return _with_bias(out, bias, data_layout, name)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """Return the convolution of x, in `data_layout`, with weight: [o, c, d, h, w], plus a bias."""
    out = relax.nn.conv3d(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        data_layout=data_layout,
    )
    return _with_bias(out, bias, data_layout, name)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """Return the transposed convolution of x: [n, c, w] with weight: [c, o, k], plus a bias."""
    out = relax.nn.conv1d_transpose(
        x._expr,
        weight._expr,
        strides=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
    )
    return _with_bias(out, bias, "NCW", name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """Return the Gaussian error linear unit; `approximate` may be "tanh"."""
    if approximate not in (None, "none", "tanh"):
        raise ValueError(f'gelu: approximate: expected None or "tanh", got {approximate!r}')
    function = relax.nn.gelu_tanh if approximate == "tanh" else relax.nn.gelu
    return wrap_tensor(function(x._expr), name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """Return the softmax along an axis."""
    return wrap_tensor(relax.nn.softmax(x._expr, axis), name)


def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """Return ``log(1 + exp(beta x)) / beta``, and `x` where ``beta x`` is over the threshold."""
    return wrap_tensor(relax.nn.softplus(x._expr, beta, threshold), name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """Return `x`, and ``alpha x`` where it is negative; alpha: [c], or [1] for all channels, which
    are the second dimension."""
    return wrap_tensor(relax.nn.prelu(x._expr, alpha._expr, 1 if x.ndim > 1 else 0), name)


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """Return the tensor normalized over its last dimensions, those of `normalized_shape`."""
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    gamma = const(np.ones(shape), x.dtype) if weight is None else weight._expr
    beta = const(np.zeros(shape), x.dtype) if bias is None else bias._expr
    axes = list(range(-len(shape), 0))
    out = relax.nn.layer_norm(x._expr, gamma, beta, axes=axes, epsilon=eps)
    return wrap_tensor(out, name)


def rms_norm(
    x: Tensor,
    weight: Tensor,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """Return the tensor divided by its root mean square over axes, times a weight."""
    return wrap_tensor(relax.nn.rms_norm(x._expr, weight._expr, axes, epsilon), name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Return the tensor normalized in groups of channels, over axes; None: all from the third."""
    channels = x.shape[channel_axis]
    gamma = const(np.ones(channels), x.dtype) if weight is None else weight._expr
    beta = const(np.zeros(channels), x.dtype) if bias is None else bias._expr
    over = list(range(2, x.ndim)) if axes is None else list(axes)
    out = relax.nn.group_norm(
        x._expr, gamma, beta, num_groups, channel_axis=channel_axis, axes=over, epsilon=eps
    )
    return wrap_tensor(out, name)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """Return the attention of query, key, value: [batch, length, heads, size].

    Raises:
        ValueError: there is a mask, and `is_causal`.
    """
    if attn_mask is not None and is_causal:
        raise ValueError("scaled_dot_product_attention: attn_mask and is_causal are exclusive")
    out = relax.nn.attention(
        query._expr,
        key._expr,
        value._expr,
        **({} if attn_mask is None else {"bias": attn_mask._expr}),
        causal_mask="TopLeft" if is_causal else None,
        scale=scale,
    )
    return wrap_tensor(out, name)


def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Return images in another size, or scaled by a factor.

    Raises:
        ValueError: `recompute_scale_factor` or `antialias` is set; there is no size and no factor.
    """
    if recompute_scale_factor is not None or antialias is not None:
        raise ValueError("interpolate: recompute_scale_factor and antialias are not supported")
    if size is None:
        if scale_factor is None:
            raise ValueError("interpolate: expected size or scale_factor")
        dims = [x.shape[i] for i, axis in enumerate(data_layout) if axis not in "NC"]
        factors = scale_factor if isinstance(scale_factor, Sequence) else [scale_factor] * len(dims)
        size = [int(dim * factor) for dim, factor in zip(dims, factors, strict=True)]
    method = "nearest_neighbor" if mode.startswith("nearest") else mode.removeprefix("bi")
    if method == "nearest_neighbor":
        coordinates = "asymmetric"
    else:
        coordinates = "align_corners" if align_corners else "half_pixel"
    out = relax.image.resize2d(
        x._expr,
        size,
        layout=data_layout,
        method=method,
        coordinate_transformation_mode=coordinates,
    )
    return wrap_tensor(out, name)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Return sinusoidal embeddings of steps: x: [n] -> [n, embedding_dim].  The first half are
    sines, or cosines with `flip_sin_to_cos`."""
    half = embedding_dim // 2
    exponent = relax.multiply(
        const(-math.log(max_period), "float32"), relax.arange(0, half, 1, "float32")
    )
    exponent = relax.divide(exponent, const(half - downscale_freq_shift, "float32"))
    steps = relax.expand_dims(relax.astype(x._expr, "float32"), 1)
    angles = relax.multiply(steps, relax.expand_dims(relax.exp(exponent), 0))
    if scale != 1:
        angles = relax.multiply(const(scale, "float32"), angles)
    parts = [relax.sin(angles), relax.cos(angles)]
    out = relax.concat(parts[::-1] if flip_sin_to_cos else parts, -1)
    if embedding_dim % 2 == 1:
        out = relax.nn.pad(out, [0, 0, 0, 1])
    return wrap_tensor(relax.astype(out, get_default_dtype()), name)


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: str = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """Return indices drawn with the probabilities prob: [b, v], from numbers between 0 and 1
    uniform_sample: [n, 1]; `sample_indices`: [n, 1] has the rows of `prob`; None: each its own."""
    if sample_indices is None:
        rows = uniform_sample.shape[0]
        sample_indices = Tensor.from_const(np.arange(rows, dtype=np.int64).reshape(rows, 1))
    out = relax.multinomial_from_uniform(
        prob._expr, uniform_sample._expr, sample_indices._expr, dtype
    )
    return wrap_tensor(out, name)


def _last_kept(totals: Any, top_p: Tensor, top_k: Tensor) -> Any:
    """The place of the last probability that is kept: [b, 1] of int64.  Of sorted probabilities
    with these sums of the first ones, [b, v], at most `top_k` are kept, up to the first whose sum
    is `top_p`."""
    length = totals.ty.dims[-1]
    order = relax.expand_dims(relax.arange(1, length + 1, 1, "int64"), 0)
    goes_on = relax.logical_and(
        relax.less(totals, top_p._expr), relax.less(order, relax.astype(top_k._expr, "int64"))
    )
    count = relax.sum(relax.astype(goes_on, "int64"), 1, keepdims=True)
    most = relax.subtract(relax.max(order, 1, keepdims=True), const(1, "int64"))
    return relax.minimum(count, most)


def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """Return the probabilities of the most likely words, as parts of their sum, and 0 for others.

    Args:
        prob: float[b, v].
        sorted_prob: the same in descending order.
        top_p: float[b, 1], the sum of probabilities up to which words are kept.
        top_k: int[b, 1], the number of words that are kept at most.
    """
    totals = relax.cumsum(sorted_prob._expr, 1)
    last = _last_kept(totals, top_p, top_k)
    least = relax.gather_elements(sorted_prob._expr, last, 1)
    is_kept = relax.greater_equal(prob._expr, least)
    kept = relax.where(is_kept, prob._expr, const(0, prob.dtype))
    out = relax.divide(kept, relax.sum(kept, 1, keepdims=True))
    return wrap_tensor(out, "renormalize_top_p_top_k_prob")


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """Return words drawn among the most likely ones: [n, 1], as `sorted_index`.

    Args:
        sorted_prob: float[b, v], probabilities in descending order.
        sorted_index: int[b, v], the words that they are of.
        top_p: float[b, 1], the sum of probabilities up to which words are kept.
        top_k: int[b, 1], the number of words that are kept at most.
        uniform_sample: float[n, 1], numbers between 0 and 1.
        sample_indices: int[n, 1], the rows of `sorted_prob`; None: each its own.
    """
    totals = relax.cumsum(sorted_prob._expr, 1)
    last = _last_kept(totals, top_p, top_k)
    whole = relax.gather_elements(totals, last, 1)
    words = sorted_index._expr
    if sample_indices is not None:
        rows = relax.squeeze(sample_indices._expr, 1)
        totals, whole, last, words = (relax.take(e, rows, 0) for e in (totals, whole, last, words))
    place = relax.multiply(uniform_sample._expr, whole)
    before = relax.astype(relax.less_equal(totals, place), "int64")
    drawn = relax.minimum(relax.sum(before, 1, keepdims=True), last)
    out = relax.gather_elements(words, drawn, 1)
    return wrap_tensor(out, "sample_top_p_top_k_from_sorted_prob")


# Functions of the program's own


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any],
    name_hint: str,
    args: Sequence[Any],
    *,
    attrs: dict[str, Any] | None = None,
) -> Any:
    """Emit a function that is written as a tensor expression; see `relaxvm.te`.

    Args:
        tensor_expr_func: takes te tensors for the tensors in `args`; returns one or several.
        name_hint: the name of the PrimFunc.
        attrs: attributes of the PrimFunc.
    """
    call = builder().call_te(
        tensor_expr_func,
        *map(expr_of, args),
        primfunc_name_hint=name_hint,
        primfunc_attrs=attrs,
    )
    return wrap_nested(call, name_hint)


def _prim_func_args(args: Any, subject: str) -> list[Any]:
    found: list[Any] = []
    for arg in args if isinstance(args, (tuple, list)) else [args]:
        if isinstance(arg, Tensor):
            found.append(arg._expr)
        elif isinstance(arg, ShapeExpr):
            found += arg.values
        elif isinstance(arg, Expr) and is_scalar(arg):
            found.append(arg)
        else:
            raise TypeError(f"{subject}: expected tensors, shapes and scalars, got {describe(arg)}")
    return found


def _types_of(out: Any) -> Any:
    return out._expr.ty if isinstance(out, Tensor) else [each._expr.ty for each in out]


def tensor_ir_op(func: Any, name_hint: str, args: Any, out: Any) -> Any:
    """Add a PrimFunc to the program and emit a call of it.

    Args:
        args: tensors, shapes (whose dimensions are arguments) and scalars.
        out: `nn.Tensor` of the type of the result, or several.
    """
    var = builder().add_func(func, name_hint)
    call = relax.call_tir(var, _prim_func_args(args, "tensor_ir_op"), _types_of(out))
    return wrap_nested(call, name_hint)


def tensor_ir_inplace_op(
    func: Any, name_hint: str, args: Any, inplace_indices: int | Sequence[int], out: Any
) -> Any:
    """Like `tensor_ir_op`, for a PrimFunc that writes its results into arguments.

    Args:
        inplace_indices: for each result, the position of the argument, or -1 for a new tensor.
    """
    var = builder().add_func(func, name_hint)
    indices = [inplace_indices] if isinstance(inplace_indices, int) else list(inplace_indices)
    given = _prim_func_args(args, "tensor_ir_inplace_op")
    call = relax.call_tir_inplace(var, given, indices, _types_of(out))
    return wrap_nested(call, name_hint)


def argument_of(value: Any) -> Any:
    """A Python value as the argument of a packed function.

    Raises:
        TypeError: it has no such form.
    """
    if isinstance(value, Tensor):
        return value._expr
    if isinstance(value, str):
        return StringImm(value)
    if isinstance(value, (int, float)) or (isinstance(value, Expr) and is_scalar(value)):
        return prim_value(value)
    if isinstance(value, (tuple, list)):
        return Tuple([argument_of(each) for each in value])
    raise TypeError(
        f"expected a tensor, a number, a string or a tuple of these, got {describe(value)}"
    )


def extern(name: str, args: Sequence[Any], out: Any) -> Any:
    """Emit a call of a packed function in destination-passing style.

    Args:
        out: `nn.Tensor` of the type of the result, or several.
    """
    call = relax.call_dps_packed(name, argument_of(args), argument_of(out).ty)
    return wrap_nested(call, name)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Emit a call of a packed function for its effect: ``name(line, *args)``.

    Raises:
        RuntimeError: the module is not exported with ``debug=True``.
    """
    from .exporter import Exporter

    effect = Exporter.current().io_effect
    if effect is None or effect.effect is None:
        raise RuntimeError("debug_func and print_ need export_tvm(..., debug=True)")
    if _line_info is None:
        frame = inspect.currentframe()
        assert frame is not None
        caller = inspect.getframeinfo(frame.f_back)  # type: ignore[arg-type]
        _line_info = f"{caller.filename}:{caller.lineno}"
    call = relax.call_pure_packed(
        "vm.builtin.invoke_debug_func",
        effect.effect,
        StringImm(name),
        StringImm(_line_info),
        *map(argument_of, args),
        ty_args=[ANY],
    )
    effect.effect = builder().emit(call, effect.effect.name)


def print_(tensor: Tensor) -> None:
    """Print a tensor when the program runs; see `debug_func`."""
    frame = inspect.currentframe()
    assert frame is not None
    caller = inspect.getframeinfo(frame.f_back)  # type: ignore[arg-type]
    line = f"{caller.filename}:{caller.lineno}"
    debug_func("vm.builtin.debug_print", tensor, _line_info=line)


_METHODS: Final = (
    add, subtract, multiply, divide, negative, less, less_equal, greater, greater_equal, maximum,
    minimum, astype, reshape, permute_dims, repeat,
)  # fmt: skip

OPERATIONS.update((operation.__name__, operation) for operation in _METHODS)
