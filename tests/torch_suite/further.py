"""More architectures: of torchvision and transformers, and modules as users write them, with
control flow, in-place operators and state."""

from __future__ import annotations

import importlib
import math
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .models import (
    _SMALL,
    AUTO,
    Case,
    _decoder,
    _encoder,
    _masks,
    _Named,
    _torchvision,
    _vision,
    image,
    model,
    numbers,
)

__all__: list[str] = []

BOTH: Final = {0: AUTO, 1: AUTO}

# torchvision


@model
def inception_v3() -> Case:
    return _vision(
        lambda m: m.Inception3(num_classes=10, aux_logits=False, init_weights=False), 96, False
    )


@model
def mvit() -> Case:
    video = _torchvision().models.video.mvit
    blocks = [
        video.MSBlockConfig(2, 16, 16, [3, 3, 3], [], [1, 2, 2], [1, 1, 1]),
        video.MSBlockConfig(2, 16, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 2, 2]),
    ]
    net = video.MViT((16, 16), 4, blocks, False, True, True, True, num_classes=10,
                     stochastic_depth_prob=0.0, patch_embed_kernel=(3, 3, 3),
                     patch_embed_stride=(1, 2, 2), patch_embed_padding=(1, 1, 1))  # fmt: skip
    return Case(net, (numbers(3, 3, 4, 16, 16),), dynamic=({0: AUTO},),
                others=(numbers(2, 3, 4, 16, 16),))  # fmt: skip


@model
def s3d_part() -> Case:
    s3d = importlib.import_module("torchvision.models.video.s3d")
    net = nn.Sequential(
        s3d.TemporalSeparableConv(3, 8, 5, 2, 2, nn.BatchNorm3d), nn.MaxPool3d((1, 3, 3), 2),
        s3d.SepInceptionBlock3D(8, 4, 4, 8, 2, 4, 4, nn.BatchNorm3d), nn.AvgPool3d(2, 1),
    )  # fmt: skip
    return Case(net, (numbers(3, 3, 9, 24, 24),), dynamic=({0: AUTO, 2: AUTO},),
                others=(numbers(2, 3, 13, 24, 24),))  # fmt: skip


@model
def region_head() -> Case:
    """What Mask R-CNN does with the features of regions: a pyramid, heads, boxes from deltas."""
    vision = _torchvision()

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pyramid = vision.ops.FeaturePyramidNetwork([8, 16], 8)
            self.head = vision.models.detection.rpn.RPNHead(8, 3)
            self.low, self.high = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)

        def forward(self, x: Tensor) -> Any:
            low = self.low(x).relu()
            found = self.pyramid({"low": low, "high": self.high(low).relu()})
            scores, deltas = self.head(list(found.values()))
            flat = torch.cat([d.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 4) for d in deltas], 1)
            size = flat[..., 2:].clamp(max=math.log(1000 / 16)).exp()
            boxes = torch.cat([flat[..., :2] - size / 2, flat[..., :2] + size / 2], -1)
            boxes[..., 0::2].clamp_(0, x.shape[3])
            boxes[..., 1::2].clamp_(0, x.shape[2])
            return boxes, torch.cat([s.flatten(1) for s in scores], 1).sigmoid()

    return Case(Heads(), (image(32),), dynamic=({0: AUTO},), others=(image(32, 3),))


# transformers


def _pictures(module: nn.Module, size: int = 32, **fixed: Any) -> Case:
    net = _Named(module, ("pixel_values",), ("last_hidden_state",), **fixed)
    return Case(net, (image(size),), dynamic=(({0: AUTO},),), others=(image(size, 3),))


@model
def dinov2() -> Case:
    from transformers import Dinov2Config, Dinov2Model

    return _pictures(Dinov2Model(Dinov2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8
    )))  # fmt: skip


@model
def mobilevit() -> Case:
    from transformers import MobileViTConfig, MobileViTModel

    return _pictures(MobileViTModel(MobileViTConfig(
        image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 16, 16, 32]
    )), 64)  # fmt: skip


@model
def poolformer() -> Case:
    from transformers import PoolFormerConfig, PoolFormerModel

    return _pictures(PoolFormerModel(PoolFormerConfig(
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32]
    )), 64)  # fmt: skip


@model
def timesformer() -> Case:
    from transformers import TimesformerConfig, TimesformerModel

    net = _Named(TimesformerModel(TimesformerConfig(
        image_size=16, patch_size=8, num_frames=3, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=64,
    )), ("pixel_values",), ("last_hidden_state",))  # fmt: skip
    return Case(net, (numbers(4, 3, 3, 16, 16),), dynamic=(({0: AUTO},),),
                others=(numbers(2, 3, 3, 16, 16),))  # fmt: skip


@model
def albert() -> Case:
    from transformers import AlbertConfig, AlbertModel

    return _encoder(AlbertModel(AlbertConfig(**_SMALL, embedding_size=16)))


@model
def xlm() -> Case:
    from transformers import XLMConfig, XLMModel

    return _encoder(XLMModel(XLMConfig(
        vocab_size=100, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=64
    )))  # fmt: skip


@model
def mistral() -> Case:
    from transformers import MistralConfig, MistralForCausalLM

    return _decoder(MistralForCausalLM(MistralConfig(
        **_SMALL, num_key_value_heads=2, sliding_window=6
    )))  # fmt: skip


@model
def bloom() -> Case:
    from transformers import BloomConfig, BloomForCausalLM

    return _decoder(BloomForCausalLM(BloomConfig(
        vocab_size=100, hidden_size=32, n_layer=2, n_head=4
    )))  # fmt: skip


@model
def perceiver() -> Case:
    from transformers import PerceiverConfig, PerceiverModel

    net = _Named(PerceiverModel(PerceiverConfig(
        num_latents=6, d_latents=16, d_model=12, num_blocks=1, num_self_attends_per_block=2,
        num_self_attention_heads=4, num_cross_attention_heads=4,
    )), ("inputs", "attention_mask"), ("last_hidden_state",))  # fmt: skip
    return Case(net, (numbers(2, 9, 12), _masks(2, 9)), dynamic=((BOTH, BOTH),),
                others=(numbers(3, 14, 12), _masks(3, 14)))  # fmt: skip


@model
def sew() -> Case:
    from transformers import SEWConfig, SEWModel

    net = _Named(SEWModel(SEWConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        conv_dim=(16, 16), conv_stride=(4, 2), conv_kernel=(8, 4), num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4, squeeze_factor=2,
    )), ("input_values",), ("last_hidden_state",))  # fmt: skip
    return Case(net, (numbers(2, 400),), dynamic=(({0: AUTO},),), others=(numbers(3, 400),))


# As users write them


@model
def diffusion_block() -> Case:
    class Block(nn.Module):
        """A level of a diffusion U-Net: features are scaled and moved by the time."""

        def __init__(self) -> None:
            super().__init__()
            self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
            self.enter, self.down = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 2, 1)
            self.norm, self.attention = nn.GroupNorm(4, 8), nn.MultiheadAttention(8, 2)
            self.leave = nn.Conv2d(16, 3, 3, 1, 1)

        def forward(self, x: Tensor, t: Tensor) -> Tensor:
            freqs = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
            angles = t[:, None].float() * freqs
            scale, shift = self.time(torch.cat([angles.sin(), angles.cos()], 1)).chunk(2, 1)
            first = self.enter(x)
            h = self.norm(self.down(first)) * (1 + scale[..., None, None]) + shift[..., None, None]
            flat = F.silu(h).flatten(2).permute(2, 0, 1)
            h = h + self.attention(flat, flat, flat, need_weights=False)[0].permute(
                1, 2, 0).view_as(h)  # fmt: skip
            up: Tensor = F.interpolate(h, size=first.shape[2:], mode="nearest")
            return self.leave(torch.cat([first, up], 1))

    axes = {0: AUTO, 2: AUTO, 3: AUTO}
    return Case(Block(), (image(16), torch.tensor([3, 40])), dynamic=(axes, {0: AUTO}),
                others=(image(24, 3), torch.tensor([7, 999, 0])))  # fmt: skip


@model
def policy() -> Case:
    class Policy(nn.Module):
        """Running statistics of observations, and an action that depends on the best value."""

        def __init__(self) -> None:
            super().__init__()
            self.body, self.value, self.actions = nn.Linear(6, 16), nn.Linear(16, 1), (
                nn.Linear(16, 4))  # fmt: skip

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            hidden = torch.tanh(self.body((x - x.mean(0)) / (x.std(0, correction=0) + 1e-6)))
            value, scores = self.value(hidden)[:, 0], self.actions(hidden)

            def greedy(scores: Tensor) -> Tensor:
                return F.one_hot(scores.argmax(1), 4).float()

            def soft(scores: Tensor) -> Tensor:
                return torch.softmax(scores / 2, 1)

            return torch.cond(value.mean() > 0, greedy, soft, (scores,)), value

    return Case(Policy(), (numbers(5, 6),), dynamic=({0: AUTO},), others=(numbers(8, 6),))


@model
def tree_lstm() -> Case:
    class TreeLSTM(nn.Module):
        """Nodes of a tree, children first: states are written where the parent looks for them."""

        def __init__(self) -> None:
            super().__init__()
            self.gates = nn.Linear(8 + 2 * 8, 5 * 8)

        def forward(self, x: Tensor, children: Tensor) -> Tensor:
            count = x.shape[0]
            states = torch.zeros(2, count + 1, 8)

            def more(i: Tensor, states: Tensor) -> Tensor:
                return i[0] < count

            def step(i: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
                row = x.index_select(0, i)[0]
                left, right = children.index_select(0, i)[0].unbind()
                pair = states.index_select(1, torch.stack([left, right]))
                gates = self.gates(torch.cat([row, pair[0].flatten()]))
                a, b, c, d, e = gates.chunk(5)
                cell = a.sigmoid() * e.tanh() + b.sigmoid() * pair[1, 0] + c.sigmoid() * pair[1, 1]
                new = torch.stack([d.sigmoid() * cell.tanh(), cell])[:, None]
                return i + 1, states.index_copy(1, i, new)

            done: Tensor = torch.while_loop(more, step, (torch.tensor([0]), states))[1]
            return done[0, :count]

    def inputs(count: int) -> tuple[Tensor, Tensor]:
        left = torch.arange(count)[:, None] - torch.tensor([[1, 2]])
        return numbers(count, 8), torch.where(left < 0, count, left)

    return Case(TreeLSTM(), inputs(5), dynamic=({0: AUTO}, {0: AUTO}), others=inputs(9))


@model
def conformer() -> Case:
    class Conformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
            self.wide, self.deep = nn.Conv1d(16, 32, 1), nn.Conv1d(16, 16, 7, padding=3, groups=16)
            self.batch, self.out = nn.BatchNorm1d(16), nn.Linear(16, 16)

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            mask = torch.arange(x.shape[1])[None] >= lengths[:, None]
            y = self.norm(x)
            x = x + self.attention(y, y, y, key_padding_mask=mask, need_weights=False)[0]
            y = F.glu(self.wide(x.transpose(1, 2)), 1)
            y = F.silu(self.batch(self.deep(y))).transpose(1, 2)
            x = x + self.out(y)
            x[mask] = 0.0
            return x

    return Case(Conformer(), (numbers(2, 11, 16), torch.tensor([11, 7])), dynamic=(BOTH, {0: AUTO}),
                others=(numbers(3, 15, 16), torch.tensor([15, 3, 9])))  # fmt: skip
