"""The operators of Relay: each entry of the table against numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import relaxvm
from relaxvm.frontend.relay import from_text, to_text
from relaxvm.frontend.relay.operators import OPERATORS, RENAMED
from relaxvm.ir import assert_structural_equal
from relaxvm.op import OPERATORS as OWN

RANDOM = np.random.default_rng(7)
F23 = RANDOM.normal(size=(2, 3)).astype(np.float32)
F3 = RANDOM.normal(size=3).astype(np.float32)
POSITIVE = np.abs(F23) + np.float32(0.1)
UNIT = (F23 / np.float32(np.abs(F23).max() * 1.1)).astype(np.float32)
I23 = np.array([[7, -7, 3], [-3, 5, 0]], np.int32)
J23 = np.array([[2, 2, -2], [-2, 3, 4]], np.int32)
B23 = np.array([[True, False, True], [False, False, True]])
C23 = np.array([[True, True, False], [False, True, True]])
IMAGE = RANDOM.normal(size=(2, 4, 6, 6)).astype(np.float32)
WEIGHT = RANDOM.normal(size=(5, 4, 3, 3)).astype(np.float32)
SIGNAL = RANDOM.normal(size=(2, 4, 9)).astype(np.float32)
VOLUME = RANDOM.normal(size=(1, 2, 3, 2, 2)).astype(np.float32)
F4 = RANDOM.normal(size=4).astype(np.float32)
V4 = np.abs(RANDOM.normal(size=4)).astype(np.float32)
M43 = RANDOM.normal(size=(4, 3)).astype(np.float32)
M34 = RANDOM.normal(size=(3, 4)).astype(np.float32)
BATCH = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
BATCH2 = RANDOM.normal(size=(2, 5, 4)).astype(np.float32)
ROW = np.array([3, 1], np.int32)


def softmax(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def conv(x: Any, w: Any, strides: int = 1, pad: int = 0) -> Any:
    """A convolution of NCHW or NCW, as a sum over the window."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * rank])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], range(2, x.ndim))
    windows = windows[(slice(None), slice(None), *[slice(None, None, strides)] * rank)]
    letters = "xyz"[:rank]
    inner = "ijk"[:rank]
    return np.einsum(f"nc{letters}{inner},oc{inner}->no{letters}", windows, w)


def pool(x: Any, size: int, reduce: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
    return reduce(windows[:, :, ::size, ::size], axis=(4, 5))


def depth_to_space(x: Any) -> Any:
    n, c, h, w = x.shape
    found = np.empty((n, c // 4, h * 2, w * 2), x.dtype)
    for i, j in np.ndindex(2, 2):
        found[:, :, i::2, j::2] = x[:, (2 * i + j) * (c // 4) :][:, : c // 4]
    return found


def space_to_depth(x: Any) -> Any:
    return np.concatenate([x[:, :, i::2, j::2] for i, j in np.ndindex(2, 2)], 1)


def normalized(x: Any, axes: Any, eps: float = 1e-5) -> Any:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def channels(v: Any) -> Any:
    return v[:, None, None]


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


Case = tuple[str, list[NDArray[Any]], Any]

NUMPY: dict[str, tuple[list[NDArray[Any]], Any]] = {
    "abs": ([F23], np.abs),
    "acos": ([UNIT], np.arccos),
    "acosh": ([POSITIVE + 1], np.arccosh),
    "asin": ([UNIT], np.arcsin),
    "asinh": ([F23], np.arcsinh),
    "atan": ([F23], np.arctan),
    "atanh": ([UNIT], np.arctanh),
    "bitwise_not": ([I23], np.invert),
    "ceil": ([F23], np.ceil),
    "cos": ([F23], np.cos),
    "cosh": ([F23], np.cosh),
    "erf": ([F23], erf),
    "fast_erf": ([F23], erf),
    "exp": ([F23], np.exp),
    "fast_exp": ([F23], np.exp),
    "floor": ([F23], np.floor),
    "isfinite": ([F23], np.isfinite),
    "isinf": ([F23], np.isinf),
    "isnan": ([F23], np.isnan),
    "log": ([POSITIVE], np.log),
    "logical_not": ([B23], np.logical_not),
    "negative": ([F23], np.negative),
    "round": ([F23], np.round),
    "rsqrt": ([POSITIVE], lambda x: 1 / np.sqrt(x)),
    "sigmoid": ([F23], lambda x: 1 / (1 + np.exp(-x))),
    "sign": ([F23], np.sign),
    "sin": ([F23], np.sin),
    "sinh": ([F23], np.sinh),
    "sqrt": ([POSITIVE], np.sqrt),
    "tan": ([F23], np.tan),
    "tanh": ([F23], np.tanh),
    "fast_tanh": ([F23], np.tanh),
    "trunc": ([F23], np.trunc),
    "nn.relu": ([F23], lambda x: np.maximum(x, 0)),
    "add": ([F23, F3], np.add),
    "bitwise_and": ([I23, J23], np.bitwise_and),
    "bitwise_or": ([I23, J23], np.bitwise_or),
    "bitwise_xor": ([I23, J23], np.bitwise_xor),
    "divide": ([I23, J23], lambda x, y: np.trunc(x / y).astype(np.int32)),
    "equal": ([I23, J23], np.equal),
    "floor_divide": ([I23, J23], np.floor_divide),
    "floor_mod": ([I23, J23], np.mod),
    "greater": ([F23, F3], np.greater),
    "greater_equal": ([F23, F3], np.greater_equal),
    "left_shift": ([I23, np.abs(J23)], np.left_shift),
    "less": ([F23, F3], np.less),
    "less_equal": ([F23, F3], np.less_equal),
    "logical_and": ([B23, C23], np.logical_and),
    "logical_or": ([B23, C23], np.logical_or),
    "logical_xor": ([B23, C23], np.logical_xor),
    "maximum": ([F23, F3], np.maximum),
    "minimum": ([F23, F3], np.minimum),
    "mod": ([I23, J23], np.fmod),
    "trunc_mod": ([I23, J23], np.fmod),
    "multiply": ([F23, F3], np.multiply),
    "not_equal": ([I23, J23], np.not_equal),
    "power": ([POSITIVE, F3], np.power),
    "right_shift": ([I23, np.abs(J23)], np.right_shift),
    "subtract": ([F23, F3], np.subtract),
    "nn.cross_entropy_with_logits": (
        [F23, UNIT], lambda p, t: np.array(-(p * t).sum() / 2, np.float32)
    ),
}  # fmt: skip
"""The operators of `RENAMED`."""

CASES: list[Case] = [
    ("clip(%x0, a_min=-0.5f, a_max=0.5f)", [F23], lambda x: np.clip(x, -0.5, 0.5)),
    ("clip(%x0, a_min=0f, a_max=inff)", [I23], lambda x: np.clip(x, 0, None)),
    ('cast(%x0, dtype="int64")', [I23], lambda x: x.astype(np.int64)),
    ("cast_like(%x0, %x1)", [I23, F3], lambda x, y: x.astype(np.float32)),
    ("copy(%x0)", [F23], lambda x: x),
    ("annotation.stop_fusion(%x0)", [F23], lambda x: x),
    ("annotation.checkpoint(%x0)", [F23], lambda x: x),
    ("annotation.cast_hint(%x0)", [F23], lambda x: x),
    ("on_device(%x0, constrain_result=True)", [F23], lambda x: x),
    ("device_copy(%x0)", [F23], lambda x: x),
    ("log2(%x0)", [POSITIVE], np.log2),
    ("log10(%x0)", [POSITIVE], np.log10),
    ("trunc_divide(%x0, %x1)", [F23, F3], lambda x, y: np.trunc(x / y)),
    ("trunc_divide(%x0, %x1)", [I23, J23], lambda x, y: np.trunc(x / y).astype(np.int32)),
    ("nn.leaky_relu(%x0, alpha=0.1f)", [F23], lambda x: np.where(x > 0, x, x * np.float32(0.1))),
    ("nn.prelu(%x0, %x1)", [IMAGE, F4], lambda x, a: np.where(x > 0, x, x * channels(a))),
    ("nn.bias_add(%x0, %x1)", [IMAGE, F4], lambda x, b: x + channels(b)),
    ("nn.bias_add(%x0, %x1, axis=-1)", [F23, F3], lambda x, b: x + b),
    ("where(%x0, %x1, %x2)", [B23, F23, F3], np.where),
    ("where(%x0, %x1, %x2)", [I23, F23, F3], np.where),
    ("zeros_like(%x0)", [I23], np.zeros_like),
    ("ones_like(%x0)", [I23], np.ones_like),
    ("nn.dense(%x0, %x1, units=4)", [F23, M43], lambda x, w: x @ w.T),
    ('nn.dense(%x0, %x1, units=4, out_dtype="float64")', [F23, M43],
     lambda x, w: x.astype(np.float64) @ w.T.astype(np.float64)),
    ("nn.matmul(%x0, %x1)", [F23, M34], np.matmul),
    ("nn.matmul(%x0, %x1, transpose_a=True, transpose_b=True)", [M34, M43],
     lambda x, y: x.T @ y.T),
    ("nn.batch_matmul(%x0, %x1)", [BATCH, BATCH2], lambda x, y: x @ y.transpose(0, 2, 1)),
    ("nn.batch_matmul(%x0, %x1, transpose_b=False)", [BATCH, BATCH2.transpose(0, 2, 1).copy()],
     np.matmul),
    ('einsum((%x0, %x1), equation="ij,jk->ik")', [F23, M34], np.matmul),
    ("nn.softmax(%x0)", [F23], softmax),
    ("nn.softmax(%x0, axis=0)", [F23], lambda x: softmax(x, 0)),
    ("nn.fast_softmax(%x0)", [F23], softmax),
    ("nn.log_softmax(%x0)", [F23], lambda x: np.log(softmax(x))),
    ("nn.dropout(%x0, rate=0.3f).0", [F23], lambda x: x),
    ("nn.cross_entropy(%x0, %x1)", [POSITIVE, UNIT],
     lambda p, t: np.array(-(np.log(p) * t).sum() / 2, np.float32)),
    ("nn.conv1d(%x0, %x1, channels=5, kernel_size=[3])", [SIGNAL, WEIGHT[..., 0].copy()], conv),
    ("nn.conv2d(%x0, %x1, padding=[1, 1, 1, 1], channels=5, kernel_size=[3, 3])",
     [IMAGE, WEIGHT], lambda x, w: conv(x, w, 1, 1)),
    ("nn.conv2d(%x0, %x1, strides=[2, 2], padding=[1, 1])", [IMAGE, WEIGHT],
     lambda x, w: conv(x, w, 2, 1)),
    ('nn.conv2d(%x0, %x1, data_layout="NHWC", kernel_layout="HWIO")',
     [IMAGE.transpose(0, 2, 3, 1).copy(), WEIGHT.transpose(2, 3, 1, 0).copy()],
     lambda x, w: conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1)).transpose(0, 2, 3, 1)),
    ("nn.max_pool2d(%x0, pool_size=[2, 2], strides=[2, 2], padding=[0, 0, 0, 0])", [IMAGE],
     lambda x: pool(x, 2, np.max)),
    ("nn.avg_pool2d(%x0, pool_size=[3, 3], strides=[3, 3])", [IMAGE],
     lambda x: pool(x, 3, np.mean)),
    ("nn.global_max_pool2d(%x0)", [IMAGE], lambda x: x.max((2, 3), keepdims=True)),
    ("nn.global_avg_pool2d(%x0)", [IMAGE], lambda x: x.mean((2, 3), keepdims=True)),
    ('nn.global_avg_pool2d(%x0, layout="NHWC")', [IMAGE],
     lambda x: x.mean((1, 2), keepdims=True)),
    ("nn.global_avg_pool1d(%x0)", [SIGNAL], lambda x: x.mean(2, keepdims=True)),
    ('nn.global_max_pool1d(%x0, layout="NWC")', [SIGNAL], lambda x: x.max(1, keepdims=True)),
    ("nn.global_avg_pool3d(%x0)", [VOLUME], lambda x: x.mean((2, 3, 4), keepdims=True)),
    ("nn.global_max_pool3d(%x0)", [VOLUME], lambda x: x.max((2, 3, 4), keepdims=True)),
    ("nn.max_pool1d(%x0, pool_size=[3], strides=[3])", [SIGNAL],
     lambda x: x.reshape(2, 4, 3, 3).max(3)),
    ('nn.avg_pool1d(%x0, pool_size=3, strides=3, layout="NWC")', [SIGNAL.transpose(0, 2, 1)],
     lambda x: x.transpose(0, 2, 1).reshape(2, 4, 3, 3).mean(3).transpose(0, 2, 1)),
    ("nn.avg_pool1d(%x0, pool_size=[3], strides=[3], padding=[3, 0], count_include_pad=True)",
     [SIGNAL], lambda x: np.pad(x.reshape(2, 4, 3, 3).mean(3), ((0, 0), (0, 0), (1, 0)))),
    ("nn.depth_to_space(%x0, block_size=2)", [IMAGE], depth_to_space),
    ('nn.depth_to_space(%x0, block_size=2, mode="CDR", layout="NHWC")',
     [IMAGE.transpose(0, 2, 3, 1)],
     lambda x: x.reshape(2, 6, 6, 1, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 12, 12, 1)),
    ("nn.space_to_depth(%x0, block_size=2)", [IMAGE], space_to_depth),
    ("nn.upsampling(%x0, scale_h=2, scale_w=3f)", [IMAGE], lambda x: x.repeat(2, 2).repeat(3, 3)),
    ('nn.mirror_pad(%x0, mode="REFLECT", pad_width=[[1, 0], [2, 1]])', [M34],
     lambda x: np.pad(x, ((1, 0), (2, 1)), "reflect")),
    ("stack(meshgrid((%x0, %x1)))", [F3, F4],
     lambda x, y: np.stack(np.meshgrid(x, y, indexing="ij"))),
    ('stack(meshgrid((%x0, %x1), indexing="xy"))', [F3, F4],
     lambda x, y: np.stack(np.meshgrid(x, y))),
    ("sequence_mask(%x0, %x1, mask_value=-1f)", [BATCH, np.array([1, 0, 2], np.int32)],
     lambda x, n: np.where((np.arange(2)[:, None] < n)[:, :, None], x, np.float32(-1))),
    ("sequence_mask(%x0, %x1, axis=1)", [M34, np.array([1, 0, 4], np.int32)],
     lambda x, n: np.where(np.arange(4) < n[:, None], x, np.float32(0))),
    ("nn.adaptive_avg_pool2d(%x0, output_size=[3, 3])", [IMAGE], lambda x: pool(x, 2, np.mean)),
    ("nn.adaptive_avg_pool2d(%x0, output_size=[1, 1])", [IMAGE],
     lambda x: x.mean((2, 3), keepdims=True)),
    ("nn.adaptive_max_pool2d(%x0, output_size=[2, 2])", [IMAGE], lambda x: pool(x, 3, np.max)),
    ("nn.batch_norm(%x0, %x1, %x2, %x3, %x4, epsilon=0.001f).0", [IMAGE, F4, F4, F4, V4],
     lambda x, g, b, m, v: (x - channels(m)) / np.sqrt(channels(v) + 1e-3) * channels(g)
     + channels(b)),
    ("nn.layer_norm(%x0, %x1, %x2)", [F23, F3, F3], lambda x, g, b: normalized(x, -1) * g + b),
    ("nn.group_norm(%x0, %x1, %x2, num_groups=2)", [IMAGE, F4, F4],
     lambda x, g, b: normalized(x.reshape(2, 2, -1), -1).reshape(x.shape) * channels(g)
     + channels(b)),
    ("nn.instance_norm(%x0, %x1, %x2)", [IMAGE, F4, F4],
     lambda x, g, b: normalized(x, (2, 3)) * channels(g) + channels(b)),
    ("nn.l2_normalize(%x0, eps=1e-6f, axis=[1])", [F23],
     lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    ("nn.pad(%x0, 2f, pad_width=[[1, 0], [0, 2]])", [F23],
     lambda x: np.pad(x, [(1, 0), (0, 2)], constant_values=2)),
    ('nn.pad(%x0, 0f, pad_width=[[1, 1], [1, 1]], pad_mode="edge")', [F23],
     lambda x: np.pad(x, 1, "edge")),
    ('nn.pad(%x0, 0f, pad_width=[[1, 1], [1, 1]], pad_mode="reflect")', [F23],
     lambda x: np.pad(x, 1, "reflect")),
    ("nn.batch_flatten(%x0)", [IMAGE], lambda x: x.reshape(2, -1)),
    ("sum(%x0)", [F23], lambda x: x.sum()),
    ("sum(%x0, axis=[0], keepdims=True)", [F23], lambda x: x.sum(0, keepdims=True)),
    ("sum(%x0, axis=[0], exclude=True)", [F23], lambda x: x.sum(1)),
    ("max(%x0, axis=[1])", [F23], lambda x: x.max(1)),
    ("min(%x0, axis=[-1])", [F23], lambda x: x.min(1)),
    ("mean(%x0, axis=[1])", [F23], lambda x: x.mean(1)),
    ("prod(%x0)", [F23], lambda x: x.prod()),
    ("all(%x0, axis=[1])", [B23], lambda x: x.all(1)),
    ("any(%x0, axis=[0], keepdims=True)", [B23], lambda x: x.any(0, keepdims=True)),
    ("argmax(%x0, axis=[1])", [F23], lambda x: x.argmax(1).astype(np.int32)),
    ("argmin(%x0, axis=0, keepdims=True)", [F23],
     lambda x: x.argmin(0, keepdims=True).astype(np.int32)),
    ("variance(%x0, mean(%x0, axis=[1], keepdims=True), axis=[1])", [F23], lambda x: x.var(1)),
    ("cumsum(%x0, axis=1)", [F23], lambda x: x.cumsum(1)),
    ("cumprod(%x0, axis=0)", [F23], lambda x: x.cumprod(0)),
    ("sort(%x0)", [F23], lambda x: np.sort(x)),
    ("sort(%x0, axis=0, is_ascend=False)", [F23], lambda x: -np.sort(-x, 0)),
    ("argsort(%x0)", [F23], lambda x: np.argsort(x).astype(np.int32)),
    ("topk(%x0, k=2).0", [F23], lambda x: -np.sort(-x)[:, :2]),
    ('topk(%x0, k=1, is_ascend=True, ret_type="indices")', [F23],
     lambda x: np.argsort(x)[:, :1].astype(np.int32)),
    ("reshape(%x0, newshape=[3, 2])", [F23], lambda x: x.reshape(3, 2)),
    ("reshape(%x0, newshape=[0, -1])", [IMAGE], lambda x: x.reshape(2, -1)),
    ("reshape(%x0, newshape=[0, -3, -2])", [IMAGE], lambda x: x.reshape(2, 24, 6)),
    ("reshape(%x0, newshape=[-4, 1, -1, -2])", [IMAGE], lambda x: x.reshape(1, 2, 4, 6, 6)),
    ("reshape_like(%x0, %x1)", [F23, M34[:, :2].copy()], lambda x, y: x.reshape(3, 2)),
    ("transpose(%x0)", [F23], lambda x: x.T),
    ("transpose(%x0, axes=[0, 2, 3, 1])", [IMAGE], lambda x: x.transpose(0, 2, 3, 1)),
    ('layout_transform(%x0, src_layout="NCHW", dst_layout="NHWC")', [IMAGE],
     lambda x: x.transpose(0, 2, 3, 1)),
    ("expand_dims(%x0, axis=1)", [F23], lambda x: x[:, None]),
    ("expand_dims(%x0, axis=-1, num_newaxis=2)", [F23], lambda x: x[..., None, None]),
    ("squeeze(%x0)", [F23[None, :, None]], lambda x: x[0, :, 0]),
    ("squeeze(%x0, axis=[0])", [F23[None]], lambda x: x[0]),
    ("broadcast_to(%x0, shape=[2, 3])", [F3], lambda x: np.broadcast_to(x, (2, 3))),
    ("broadcast_to_like(%x0, %x1)", [F3, F23], lambda x, y: np.broadcast_to(x, (2, 3))),
    ("shape_of(%x0)", [F23], lambda x: np.array([2, 3], np.int32)),
    ('ndarray_size(%x0, dtype="int64")', [F23], lambda x: np.array(6)),
    ("concatenate((%x0, %x1), axis=1)", [F23, F23], lambda x, y: np.concatenate((x, y), 1)),
    ("stack((%x0, %x1), axis=1)", [F23, F23], lambda x, y: np.stack((x, y), 1)),
    ("split(%x0, indices_or_sections=3, axis=1).1", [F23], lambda x: x[:, 1:2]),
    ("split(%x0, indices_or_sections=[1], axis=1).1", [F23], lambda x: x[:, 1:]),
    ("split(%x0, indices_or_sections=1).0", [F23], lambda x: x),
    ("repeat(%x0, repeats=2, axis=1)", [F23], lambda x: np.repeat(x, 2, 1)),
    ("tile(%x0, reps=[2, 1])", [F23], lambda x: np.tile(x, (2, 1))),
    ("reverse(%x0, axis=1)", [F23], lambda x: x[:, ::-1]),
    ("take(%x0, %x1, axis=1)", [BATCH, ROW - 1], lambda x, i: x[:, i]),
    ("take(%x0, %x1)", [F23, ROW], lambda x, i: x.reshape(-1)[i]),
    ('take(%x0, %x1, axis=0, mode="wrap")', [F23, ROW], lambda x, i: x[i % 2]),
    ("strided_slice(%x0, begin=[0, 1], end=[2, 3])", [F23], lambda x: x[:, 1:]),
    ("strided_slice(%x0, begin=[0], end=[9], strides=[2], axes=[1])", [F23], lambda x: x[:, ::2]),
    ('strided_slice(%x0, begin=[0, 1], end=[-1, 1], slice_mode="size")', [F23],
     lambda x: x[:, 1:2]),
    ("slice_like(%x0, %x1, axes=[0, 1])", [IMAGE, F23[:, :2].copy()], lambda x, y: x[:2, :2]),
    ('zeros(shape=[2, 3], dtype="int8")', [], lambda: np.zeros((2, 3), np.int8)),
    ('ones(shape=[2], dtype="float16")', [], lambda: np.ones(2, np.float16)),
    ('full(3, shape=[2], dtype="int32")', [], lambda: np.full(2, 3, np.int32)),
    ("full_like(%x0, 2f)", [F23], lambda x: np.full_like(x, 2)),
    ('arange(1, 7, 2, start=meta[relay.Constant][0], stop=None, step=None, dtype="int32")', [],
     lambda: np.arange(1, 7, 2, np.int32)),
    ('one_hot(%x0, 1f, 0f, depth=4, axis=-1, dtype="float32")', [ROW],
     lambda i: np.eye(4, dtype=np.float32)[i]),
    ('one_hot(%x0, 1f, 0f, depth=4, axis=0, dtype="float32")', [ROW],
     lambda i: np.eye(4, dtype=np.float32)[i].T),
    ("dyn.reshape(%x0, %x1)", [F23, ROW * 0 + np.array([3, 2], np.int32)],
     lambda x, s: x.reshape(3, 2)),
    ("dyn.broadcast_to(%x0, %x1)", [F3, np.array([2, 3])], lambda x, s: np.broadcast_to(x, s)),
    ('dyn.zeros(%x0, dtype="float32")', [ROW], lambda s: np.zeros((3, 1), np.float32)),
    ('dyn.ones(%x0, dtype="float32")', [ROW], lambda s: np.ones((3, 1), np.float32)),
    ('dyn.full(2f, %x0, dtype="float32")', [ROW], lambda s: np.full((3, 1), 2, np.float32)),
]  # fmt: skip

NO_COUNTERPART = frozenset(
    {
        *("nn.leakyrelu", "nn.selu", "nn.softplus", "nn.prelu", "nn.instance_norm"),
        *("nn.nll_loss", "nn.batch_flatten", "nn.pixel_shuffle", "nn.pixel_unshuffle"),
        *("vision.roi_align", "vision.roi_pool", "vision.get_valid_counts"),
        *("vision.non_max_suppression", "vision.all_class_non_max_suppression"),
        "vision.multibox_transform_loc",
        "layout_transform",  # Relay's takes the names of layouts
        *("image.grid_sample", "image.affine_grid"),
        *("image.resize", "image.resize2d", "image.resize3d"),
        *("nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"),
        *("nn.max_pool1d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool3d"),
        *("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d"),
        *("expm1", "log1p", "log_add_exp", "square", "nn.gelu", "nn.gelu_tanh", "nn.silu", "atan2"),
        *("nn.rms_norm", "nn.attention", "nn.attention_bias", "wrap_param"),
        *("assert_op", "print", "hint_on_device"),
        *("inspect.tensor_ndim", "inspect.tensor_shape_i", "inspect.tensor_stride_i"),
        *("inspect.tensor_dtype_code", "inspect.tensor_dtype_bits", "inspect.tensor_dtype_lanes"),
        *("inspect.tensor_byte_offset", "inspect.tensor_elem_offset"),
        *("nn.lstm", "nn.gru", "nn.rnn", "nn.linear_attention"),
        *("index_put", "index_tensor", "slice_scatter", "nonzero", "unique", "one_hot"),
        *("gather_elements", "gather_nd", "scatter_elements", "scatter_nd"),
        *("reverse_sequence", "tril", "triu", "eye", "eye_like", "hamming_window", "median"),
        *("bucketize", "dynamic_strided_slice", "meshgrid", "outer", "ewise_fma", "quantize"),
        *("dequantize", "multinomial_from_uniform", "collapse_sum_to", "collapse_sum_like"),
        *("variance", "std"),
    }
)
"""Operators of relaxvm that Relay does not have, or that are not imported from it."""


def _run(text: str, arrays: list[NDArray[Any]]) -> Any:
    free = "".join(
        f"free_var %x{i}: Tensor[({''.join(f'{d},' for d in a.shape)}), {a.dtype}];"
        for i, a in enumerate(arrays)
    )
    machine = relaxvm.VirtualMachine(relaxvm.build(from_text(free + text)))
    return machine["main"](*arrays)


def _check(text: str, arrays: list[NDArray[Any]], expected: Any) -> None:
    found = _run(text, arrays)
    wanted = np.asarray(expected(*arrays))
    assert found.shape == wanted.shape
    if wanted.dtype.kind != "f":
        assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", sorted(RENAMED))
def test_renamed(name: str) -> None:
    arrays, expected = NUMPY[name]
    operands = ", ".join(f"%x{i}" for i in range(len(arrays)))
    _check(f"{name}({operands})", arrays, expected)


@pytest.mark.parametrize(("text", "arrays", "expected"), CASES, ids=[case[0] for case in CASES])
def test_operators(text: str, arrays: list[NDArray[Any]], expected: Any) -> None:
    _check(text, arrays, expected)


def test_every_operator_has_a_case() -> None:
    cased = {name for name in OPERATORS if any(f"{name}(" in text for text, _, _ in CASES)}
    assert OPERATORS.keys() - cased == RENAMED.keys() - cased
    assert NUMPY.keys() == RENAMED.keys()


def test_every_operator_of_relaxvm_has_a_name_in_relay_or_none() -> None:
    """Each operator on tensors is made by some entry of the table, or known to be new in Relax."""
    made: set[str] = set()
    for text, arrays, _ in CASES:
        free = "".join(
            f"free_var %x{i}: Tensor[({''.join(f'{d},' for d in a.shape)}), {a.dtype}];"
            for i, a in enumerate(arrays)
        )
        module = str(from_text(free + text))
        made |= {name for name in OWN if f"R.{name}(" in module}
    made |= set(RENAMED.values())
    compilers = ("call_", "builtin.", "memory.", "vm.", "invoke_", "make_closure", "null_value")
    kernels = {name for name, record in OWN.items() if record.kernel or record.lower}
    missing = {name for name in kernels - made if not name.startswith(compilers)}
    assert missing == NO_COUNTERPART


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("argmax(1f, select_last_index=True)", "select_last_index: expected False"),
        ("variance(1f, 1f, unbiased=True)", "unbiased: expected False"),
        ('layout_transform(1f, src_layout="NCHW", dst_layout="NCHW4c")', "blocked layouts"),
        ('nn.pad(1f, 0f, pad_width=[], pad_mode="wrap")', "pad_mode: expected one of constant"),
        ("free_var %x: float32; free_var %y: float32; nn.pad(%x, %y, pad_width=[])",
         "pad_value: expected a constant number"),
        ("take(1f, 1, batch_dims=1)", "batch_dims: expected 0, got 1"),
        ("reshape(1f, newshape=[-5])", "newshape: expected numbers from -4 on, got -5"),
        ("reshape(1f, newshape=[-2, -3])", "needs more than 0 dimensions"),
        ("nn.global_avg_pool2d(1f)", "layout: expected an order of N, C, H and W"),
        ("free_var %x: Tensor[(1, 1, 5, 5), float32]; "
         "nn.adaptive_avg_pool2d(%x, output_size=[2, 2])", "output_size: expected divisors of 5"),
        ("concatenate(1f)", "expected a tuple of tensors"),
        ("nn.global_avg_pool1d(1f)", "layout: expected an order of the letters NCW"),
        ('nn.upsampling(1f, method="bilinear")', "method: expected 'nearest_neighbor'"),
        ("nn.mirror_pad(1f, pad_width=[])", "mode: expected 'REFLECT', got 'SYMMETRIC'"),
        ("nn.depth_to_space(1f, block_size=0)", "block_size: expected 1 or more, got 0"),
        ("nn.space_to_depth(1f, block_size=2)", "layout: expected 'NCHW' or 'NHWC'"),
        ("sequence_mask(1f, 1)", "axis: expected 0 or 1 of at least two dimensions"),
        ("cast(1f, dtype=None)", "attribute 'dtype': expected a string, got None"),
        ("nn.softmax(1f, axis=True)", "attribute 'axis': expected an integer, got True"),
        ("nn.dropout(1f, rate=[])", "attribute 'rate': expected a number, got []"),
        ("sum(1f, keepdims=2f)", "attribute 'keepdims': expected True or False, got 2.0"),
        ("sum(1f, axis=5)", "axis: the tensor has no dimensions, got 5"),
        ("reshape(1f, newshape=[None])", "newshape: expected integers, got [None]"),
        ("nn.pad(1f, 0f, pad_width=[[0, 1f]])", "pad_width: expected integers, got [0, 1.0]"),
        ('strided_slice(1f, begin=[None], end="x")', "end: expected integers, got 'x'"),
        ("nn.batch_flatten(1f)", "expected a tensor with at least one dimension"),
        ('strided_slice(1f, begin=[], end=[], slice_mode="x")', "slice_mode: expected 'end'"),
    ],
)
def test_what_has_no_counterpart(text: str, message: str) -> None:
    with pytest.raises(relaxvm.errors.ParseError) as caught:
        from_text(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "arrays", "expected"), CASES, ids=[case[0] for case in CASES])
def test_operators_are_printed(text: str, arrays: list[NDArray[Any]], expected: Any) -> None:
    free = "".join(
        f"free_var %x{i}: Tensor[({''.join(f'{d},' for d in a.shape)}), {a.dtype}];"
        for i, a in enumerate(arrays)
    )
    module = from_text(free + text)
    if text.startswith(("dyn.", "shape_of", "ndarray_size")):
        with pytest.raises(ValueError, match="Relay cannot say"):
            to_text(module)
        return
    again = from_text(to_text(module))
    if text.startswith(("argm", "take(%x0, %x1)", "split(%x0, indices_or_sections=1)")):
        machine = relaxvm.VirtualMachine(relaxvm.build(again))
        np.testing.assert_array_equal(machine["main"](*arrays), expected(*arrays))
    else:
        assert_structural_equal(again, module)
