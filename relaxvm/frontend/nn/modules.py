"""Layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import op as relax
from ...ir import ANY, BlockBuilder, Expr, ShapeExpr, TensorType, Var, prim_value
from . import op
from .core import (
    Dim,
    Effect,
    Module,
    ModuleList,
    Parameter,
    Tensor,
    builder,
    get_default_dtype,
)

__all__ = [
    "GELU",
    "Attention",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "Embedding",
    "GroupNorm",
    "IOEffect",
    "Identity",
    "KVCache",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "TimestepEmbedding",
    "Timesteps",
]


class _OneState(Effect):
    """An effect of one value."""

    def __init__(self) -> None:
        self._state: Var | None = None

    def _name(self, name_hint: str) -> str:
        return name_hint

    def create(self, name_hint: str) -> list[Var]:
        return [Var(self._name(name_hint), ANY)]

    def set_state(self, state_vars: list[Var]) -> None:
        (self._state,) = state_vars

    def finalize(self) -> list[Var]:
        state, self._state = self._state, None
        if state is None:
            raise RuntimeError(f"{type(self).__name__} has no state outside of an export")
        return [state]


class IOEffect(_OneState):
    """The order of printed output."""

    def _name(self, name_hint: str) -> str:
        return f"{name_hint}_io"

    @property
    def effect(self) -> Var | None:
        """The variable of the state."""
        return self._state

    @effect.setter
    def effect(self, var: Var) -> None:
        self._state = var

    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Var]:
        return [builder.emit(relax.null_value(), self._name(name_hint))]


class KVCache(_OneState):
    """A cache that grows by rows: the keys or values of an attention.

    Args:
        init_seq_len: the number of rows that memory is allocated for at first.
        unit_shape: the shape of a row.
        dtype: the data type.
    """

    def __init__(
        self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None
    ) -> None:
        super().__init__()
        self.init_seq_len = init_seq_len
        self.unit_shape = [int(dim) for dim in unit_shape]
        self.dtype = dtype or get_default_dtype()

    @property
    def cache(self) -> Var | None:
        """The variable of the state."""
        return self._state

    def _known(self) -> Var:
        if self._state is None:
            raise RuntimeError("KVCache has no state outside of an export")
        return self._state

    def emit_init(self, name_hint: str, bb: BlockBuilder) -> list[Var]:
        shape = ShapeExpr([self.init_seq_len, *self.unit_shape])
        call = relax.call_pure_packed(
            "vm.builtin.attention_kv_cache_create",
            relax.zeros(shape, self.dtype),
            shape,
            prim_value(0),
            ty_args=[ANY],
        )
        return [bb.emit(call, name_hint)]

    def to(self, dtype: str | None = None) -> None:
        if dtype is not None:
            self.dtype = dtype

    def view(self, seq_len: int | Expr) -> Tensor:
        """Return the first rows of the cache."""
        shape = ShapeExpr([seq_len, *self.unit_shape])
        call = relax.call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self._known(),
            shape,
            ty_args=[TensorType(shape, self.dtype)],
        )
        return Tensor(_expr=builder().emit(call))

    def append(self, new_element: Tensor) -> None:
        """Add rows.

        Raises:
            TypeError: they are of another data type.
        """
        if new_element.dtype != self.dtype:
            raise TypeError(f"KVCache: expected rows of {self.dtype}, got {new_element.dtype}")
        call = relax.call_inplace_packed(
            "vm.builtin.attention_kv_cache_append",
            self._known(),
            new_element._expr,
            inplace_indices=[0],
            ty_args=[ANY],
        )
        self._state = builder().emit(call)


class Identity(Module):
    """Returns its argument."""

    def forward(self, x: Any) -> Any:
        return x


class ReLU(Module):
    """``max(x, 0)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.relu(x)


class SiLU(Module):
    """``x * sigmoid(x)``"""

    def forward(self, x: Tensor) -> Tensor:
        return op.silu(x)


class GELU(Module):
    """The Gaussian error linear unit."""

    def forward(self, x: Tensor) -> Tensor:
        return op.gelu(x)


class Linear(Module):
    """``x @ weight.T + bias``, with weight: [out_features, in_features].

    Args:
        out_dtype: data type of the result and the bias, if it is not that of the weight.
    """

    def __init__(
        self,
        in_features: Dim,
        out_features: Dim,
        bias: bool = True,
        dtype: str | None = None,
        out_dtype: str | None = None,
    ) -> None:
        self.in_features = in_features
        self.out_features = out_features
        self.out_dtype = out_dtype
        self.weight = Parameter((out_features, in_features), dtype)
        self.bias = Parameter((out_features,), out_dtype or dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return out if self.bias is None else op.add(out, self.bias)

    def to(self, dtype: str | None = None) -> None:
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)


class _Convolution(Module):
    """Base of convolutions: the weight and the bias."""

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: Sequence[int],
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        bias: bool,
        dtype: str | None,
    ) -> None:
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size: Any = list(kernel_size)
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        self.weight = Parameter((*self._channels(), *kernel_size), dtype)
        self.bias = Parameter((out_channels,), dtype) if bias else None

    def _channels(self) -> tuple[Any, Any]:
        return self.out_channels, _per_group(self.in_channels, self.groups)

    def _options(self) -> tuple[Any, Any, Any, int]:
        return self.stride, self.padding, self.dilation, self.groups


def _per_group(channels: Any, groups: int) -> Any:
    return channels if groups == 1 else channels // groups


def _sizes(kernel_size: Any, count: int) -> list[int]:
    return [kernel_size] * count if isinstance(kernel_size, int) else list(kernel_size)


class Conv1D(_Convolution):
    """A convolution of x: [n, c, w] with weight: [o, c / groups, k]."""

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        sizes = _sizes(kernel_size, 1)
        super().__init__(
            in_channels, out_channels, sizes, stride, padding, dilation, groups, bias, dtype
        )
        self.kernel_size = kernel_size

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d(x, self.weight, self.bias, *self._options())


class Conv2D(_Convolution):
    """A convolution of x: [n, c, h, w], or another layout, with weight: [o, c / groups, kh, kw]."""

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: int | Sequence[int],
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCHW",
    ) -> None:
        sizes = _sizes(kernel_size, 2)
        super().__init__(
            in_channels, out_channels, sizes, stride, padding, dilation, groups, bias, dtype
        )
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv2d(x, self.weight, self.bias, *self._options(), data_layout=self.data_layout)


class Conv3D(_Convolution):
    """A convolution of x: [n, c, d, h, w], or another layout, with
    weight: [o, c / groups, kd, kh, kw]."""

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: int | Sequence[int],
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
        data_layout: str = "NCDHW",
    ) -> None:
        sizes = _sizes(kernel_size, 3)
        super().__init__(
            in_channels, out_channels, sizes, stride, padding, dilation, groups, bias, dtype
        )
        self.data_layout = data_layout

    def forward(self, x: Tensor) -> Tensor:
        return op.conv3d(x, self.weight, self.bias, *self._options(), data_layout=self.data_layout)


class ConvTranspose1D(_Convolution):
    """A transposed convolution of x: [n, c, w] with weight: [c, o / groups, k]."""

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        output_padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        sizes = _sizes(kernel_size, 1)
        super().__init__(
            in_channels, out_channels, sizes, stride, padding, dilation, groups, bias, dtype
        )
        self.kernel_size = kernel_size
        self.output_padding = output_padding

    def _channels(self) -> tuple[Any, Any]:
        return self.in_channels, _per_group(self.out_channels, self.groups)

    def forward(self, x: Tensor) -> Tensor:
        return op.conv1d_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.output_padding,
            self.dilation,
            self.groups,
        )


class LayerNorm(Module):
    """Normalizes the last dimension."""

    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = Parameter((normalized_shape,), dtype) if elementwise_affine else None
        self.bias = Parameter((normalized_shape,), dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """Divides by the root mean square over axes."""

    def __init__(
        self,
        hidden_size: int,
        axes: int | Sequence[int],
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.axes = axes
        self.weight = Parameter((hidden_size,), dtype)
        self.bias = Parameter((hidden_size,), dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        out = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return out if self.bias is None else op.add(out, self.bias)


class GroupNorm(Module):
    """Normalizes groups of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: str | None = None,
    ) -> None:
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Parameter((num_channels,), dtype) if affine else None
        self.bias = Parameter((num_channels,), dtype) if affine else None

    def forward(
        self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None
    ) -> Tensor:
        return op.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )


class Embedding(Module):
    """Rows of a table, weight: [num, dim], by index."""

    def __init__(self, num: Dim, dim: Dim, dtype: str | None = None) -> None:
        self.num = num
        self.dim = dim
        self.weight = Parameter((num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        rows = op.take(self.weight, op.reshape(x, [-1]), axis=0)
        return op.reshape(rows, [*x.shape, self.weight.shape[1]])


class TimestepEmbedding(Module):
    """Two linear layers with SiLU between them, for embeddings of steps.

    Raises:
        ValueError: an activation is not "silu".
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        for activation in (act_fn, post_act_fn or "silu"):
            if activation != "silu":
                raise ValueError(f'TimestepEmbedding: expected the activation "silu", got '
                                 f"{activation!r}")  # fmt: skip
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = (
            None if cond_proj_dim is None else Linear(cond_proj_dim, in_channels, bias=False)
        )
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, time_embed_dim if out_dim is None else out_dim)
        self.post_act = None if post_act_fn is None else SiLU()

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        if condition is not None:
            if self.cond_proj is None:
                raise ValueError("TimestepEmbedding: a condition needs cond_proj_dim")
            sample = op.add(sample, self.cond_proj(condition))
        out: Tensor = self.linear_2(self.act(self.linear_1(sample)))
        return out if self.post_act is None else self.post_act(out)


class Timesteps(Module):
    """Sinusoidal embeddings of steps."""

    def __init__(
        self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1
    ) -> None:
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        return op.get_timestep_embedding(
            x, self.num_channels, self.flip_sin_to_cos, self.downscale_freq_shift
        )


class Attention(Module):
    """Attention of hidden states, to themselves or to encoded ones.

    x: [batch, length, query_dim] -> [batch, length, query_dim]
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int = 64,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        self.query_dim = query_dim
        self.cross_attention_dim = cross_attention_dim or query_dim
        self.heads = heads
        self.dim_head = dim_head
        self.scale_qk = scale_qk
        self.inner_dim = dim_head * heads
        self.to_q = Linear(query_dim, self.inner_dim, bias=bias)
        self.to_k = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.to_v = Linear(self.cross_attention_dim, self.inner_dim, bias=bias)
        self.group_norm = None if norm_num_groups is None else GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(self.inner_dim, query_dim, bias=out_bias)])

    def forward(self, hidden_states: Tensor, encoder_hidden_states: Tensor | None = None) -> Tensor:
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        encoded = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        projected = [self.to_q(hidden_states), self.to_k(encoded), self.to_v(encoded)]
        query, key, value = [op.reshape(p, [0, -1, self.heads, self.dim_head]) for p in projected]
        scale = None if self.scale_qk else 1.0
        out = op.scaled_dot_product_attention(query, key, value, scale=scale)
        out = op.reshape(out, [0, -1, self.inner_dim])
        return self.to_out[0](out)  # type: ignore[no-any-return]
