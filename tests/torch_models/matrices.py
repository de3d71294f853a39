"""Linear algebra and quantized tensors.

Results that LAPACK is free to choose, such as the signs of eigenvectors, are put together again.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import Tensor, nn
from torch.nn import functional as F

from . import Case, case


class Matrices(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Any:
        spd = a @ a.mT + 4 * torch.eye(4)
        tall = b[..., :2]
        low = torch.linalg.cholesky(spd)
        q, r = torch.linalg.qr(tall)
        u, s, vh = torch.linalg.svd(tall, full_matrices=False)
        w, v = torch.linalg.eigh(spd)
        p, lower, upper = torch.linalg.lu(a)
        factors, pivots = torch.linalg.lu_factor(a)
        sign, size = torch.linalg.slogdet(a)
        return (
            torch.linalg.inv(a), torch.inverse(a), torch.linalg.solve(a, b),
            torch.linalg.solve(a, b[..., 0]), torch.linalg.solve(a, b.mT, left=False), low,
            torch.cholesky_solve(b, low), torch.cholesky_inverse(low), q @ r, q.mT @ q,
            u @ torch.diag_embed(s) @ vh, s, torch.linalg.svdvals(a), w,
            v @ torch.diag_embed(w) @ v.mT,
            torch.linalg.eigvalsh(spd), torch.linalg.eigvals(spd).real.sort().values,
            p @ lower @ upper, torch.linalg.lu_solve(factors, pivots, b), sign, size,
            torch.logdet(spd), torch.linalg.pinv(tall),
            torch.linalg.matrix_rank(tall), torch.linalg.cond(a),
            torch.linalg.matrix_norm(a, "nuc"),
            torch.linalg.matrix_norm(a, 2), torch.linalg.matrix_norm(a, 1), torch.linalg.norm(a),
            torch.linalg.solve_triangular(low, b, upper=False), torch.matrix_exp(a / 4),
            torch.linalg.matrix_power(a, -2), torch.linalg.tensorinv(a[0].reshape(4, 2, 2), ind=1),
            torch.linalg.inv_ex(a).inverse, torch.linalg.cond(a, 1),
        )  # fmt: skip


@case
def matrices() -> Case:
    return Case(Matrices(), [(torch.randn(2, 4, 4) + 2 * torch.eye(4), torch.randn(2, 4, 3))])


ops = torch.ops.quantized_decomposed


class Quantized(nn.Module):
    """A network as quantization in PyTorch leaves it: int8 weights with a scale for each channel,
    activations with one scale, and a layer whose scale is found when it runs."""

    def __init__(self) -> None:
        super().__init__()
        conv, linear = torch.randn(8, 3, 3, 3), torch.randn(5, 8)
        self.register_buffer("scales", conv.abs().amax((1, 2, 3)) / 127)
        self.register_buffer("zeros", torch.zeros(8, dtype=torch.int64))
        self.register_buffer("conv", ops.quantize_per_channel(
            conv, self.scales, self.zeros, 0, -127, 127, torch.int8))  # fmt: skip
        self.register_buffer("group_scales", torch.rand(5, 2) / 4 + 0.2)
        self.register_buffer("group_zeros", torch.zeros(5, 2))
        self.register_buffer("linear", ops.quantize_per_channel_group(
            linear, self.group_scales, self.group_zeros, -8, 7, torch.int8, 4))  # fmt: skip

    def forward(self, x: Tensor) -> Any:
        q = ops.quantize_per_tensor(x, 0.03, -5, -128, 127, torch.int8)
        x = ops.dequantize_per_tensor(q, 0.03, -5, -128, 127, torch.int8)
        weight = ops.dequantize_per_channel(
            self.conv, self.scales, self.zeros, 0, -127, 127, torch.int8
        )
        x = F.relu(F.conv2d(x, weight, padding=1))
        scale, zero = ops.choose_qparams.tensor(x, 0, 255, 1e-5, torch.uint8)
        byte = ops.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
        x = ops.dequantize_per_tensor.tensor(byte, scale, zero, 0, 255, torch.uint8).mean((2, 3))
        scales, zeros = ops.choose_qparams_per_token_asymmetric(x, torch.int8)
        token = ops.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
        x = ops.dequantize_per_token(token, scales, zeros, -128, 127, torch.int8, torch.float32)
        weight = ops.dequantize_per_channel_group(
            self.linear, self.group_scales, self.group_zeros, -8, 7, torch.int8, 4, torch.float32
        )
        fake = ops.fake_quant_per_channel(x.mT, self.scales, self.zeros, 0, -8, 7)
        return (F.linear(x, weight), q, byte, token, scale.float(), zero, scales.float(), zeros,
                fake)  # fmt: skip


@case
def quantized() -> Case:
    return Case(Quantized(), [(torch.randn(2, 3, 6, 6),), (torch.randn(2, 3, 6, 6) / 9,)])
