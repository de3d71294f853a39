"""Decoders of the shapes of GPT-2 and Llama, with caches of keys and values (torch)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Shape:
    """The shape of a decoder.

    Attributes:
        words: of the vocabulary.
        width: of the vectors between layers.
        heads, kept_heads: of queries, and of keys and values.
        layers: their number.
        length: the most tokens of a text.
        style: "gpt2": learned positions, LayerNorm, GELU; "llama": rotated ones, RMSNorm, SiLU.
    """

    words: int
    width: int
    heads: int
    kept_heads: int
    layers: int
    length: int
    style: str


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """x[batch, head, token, dim] with its halves rotated by angles that grow with positions."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None] * rates
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    """Attention to the tokens before, whose keys and values are in a cache."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        size = shape.width // shape.heads
        self.sizes = [shape.width, size * shape.kept_heads, size * shape.kept_heads]
        bias = shape.style == "gpt2"
        self.qkv = nn.Linear(shape.width, sum(self.sizes), bias=bias)
        self.out = nn.Linear(shape.width, shape.width, bias=bias)
        for name in ("keys", "values"):
            cache = torch.zeros(1, shape.kept_heads, shape.length, size)
            self.register_buffer(name, cache, persistent=False)

    def split(self, x: Tensor, positions: Tensor) -> list[Tensor]:
        """Queries, keys and values, ``[batch, head, token, size]``."""
        batch, count, _ = x.shape
        found = [
            each.view(batch, count, -1, self.shape.width // self.shape.heads).transpose(1, 2)
            for each in self.qkv(x).split(self.sizes, -1)
        ]
        if self.shape.style == "llama":
            found[:2] = [rotated(each, positions) for each in found[:2]]
        return found

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        y = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=mask is None, enable_gqa=q.shape[1] != k.shape[1]
        )
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(x, positions)
        self.keys[:, :, positions] = k
        self.values[:, :, positions] = v
        return self.attend(q, self.keys, self.values, mask)


class Layer(nn.Module):
    """Attention, and a network of each token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.is_llama = shape.style == "llama"
        norm = nn.RMSNorm if self.is_llama else nn.LayerNorm
        self.before, self.after = norm(width, eps=1e-5), norm(width, eps=1e-5)
        self.attention = Attention(shape)
        inner = 8 * width // 3 if self.is_llama else 4 * width
        self.up = nn.Linear(width, inner * (2 if self.is_llama else 1), bias=not self.is_llama)
        self.down = nn.Linear(inner, width, bias=not self.is_llama)

    def network(self, x: Tensor) -> Tensor:
        y = self.up(self.after(x))
        if self.is_llama:
            gate, y = y.chunk(2, -1)
            return x + self.down(F.silu(gate) * y)
        return x + self.down(F.gelu(y, approximate="tanh"))

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        return self.network(x + self.attention(self.before(x), positions, mask))


class Decoder(nn.Module):
    """From tokens and their positions to the logits of the next token.

    The caches are buffers: each call adds the keys and values of its tokens.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.words = nn.Embedding(shape.words, shape.width)
        self.places = nn.Embedding(shape.length, shape.width) if shape.style == "gpt2" else None
        self.layers = nn.ModuleList([Layer(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width) if shape.style == "llama" else nn.LayerNorm(shape.width)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def embedded(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.words(tokens)
        return x if self.places is None else x + self.places(positions)

    def logits(self, x: Tensor) -> Tensor:
        return self.norm(x) @ self.words.weight.T

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """``tokens[1, n]``, ``positions[n]`` -> logits[1, words] of the token after the last."""
        x = self.embedded(tokens, positions)
        mask = torch.arange(self.shape.length) <= positions[:, None]
        for layer in self.layers:
            x = layer(x, positions, mask)
        return self.logits(x[:, -1])

    def trained(self, tokens: Tensor) -> Tensor:
        """Logits after each token of whole texts, ``[batch, n, words]``, without the caches."""
        positions = torch.arange(tokens.shape[1])
        x = self.embedded(tokens, positions)
        for layer in self.layers:
            q, k, v = layer.attention.split(layer.before(x), positions)
            x = layer.network(x + layer.attention.attend(q, k, v, None))
        return self.logits(x)


class WithCaches(nn.Module):
    """A decoder whose caches are inputs and outputs that grow, as ONNX has it.

    ``tokens[1, n]``, ``positions[n]``, and keys and values of each layer, ``[1, heads, before,
    size]``; the results are the logits, and all keys and values.
    """

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor, positions: Tensor, caches: list[Tensor]) -> list[Tensor]:
        x = self.decoder.embedded(tokens, positions)
        before = caches[0].shape[2]
        mask = torch.arange(before + tokens.shape[1]) <= positions[:, None]
        found = []
        for i, layer in enumerate(self.decoder.layers):
            q, k, v = layer.attention.split(layer.before(x), positions)
            k = torch.cat([caches[2 * i], k], 2)
            v = torch.cat([caches[2 * i + 1], v], 2)
            found += [k, v]
            x = layer.network(x + layer.attention.attend(q, k, v, mask))
        return [self.decoder.logits(x[:, -1]), *found]


def export(decoder: Decoder, path: str) -> None:
    """Write ``path.pt2``, whose caches are state, and ``path.onnx``, whose caches are inputs."""
    decoder.eval()
    shape = decoder.shape
    many = torch.export.Dim("n", min=1, max=shape.length)
    tokens, positions = torch.zeros(1, 4, dtype=torch.int64), torch.arange(4)
    program = torch.export.export(
        decoder, (tokens, positions),
        dynamic_shapes={"tokens": {1: many}, "positions": {0: many}},
    )  # fmt: skip
    torch.export.save(program, f"{path}.pt2")

    size = shape.width // shape.heads
    caches = [torch.zeros(1, shape.kept_heads, 3, size) for _ in range(2 * shape.layers)]
    names = [f"{kind}_{i}" for i in range(shape.layers) for kind in ("keys", "values")]
    # One name for the lengths of all caches: then their sums are equal, too.
    past = torch.export.Dim("past", min=0, max=shape.length)
    torch.onnx.export(
        WithCaches(decoder), (tokens, positions + 3, caches), f"{path}.onnx",
        input_names=["tokens", "positions", *names],
        output_names=["logits", *[f"new_{name}" for name in names]],
        dynamic_shapes={"tokens": {1: torch.export.Dim.DYNAMIC},
                        "positions": {0: torch.export.Dim.DYNAMIC},
                        "caches": [{2: past}] * len(caches)},
        external_data=False, verbose=False,
    )  # fmt: skip
