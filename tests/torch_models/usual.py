"""Models in the way that users write them, for one group of operators each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import Case, case

AUTO = torch.export.Dim.AUTO


class Indexing(nn.Module):
    def forward(self, x: Tensor, i: Tensor, mask: Tensor) -> Any:
        y = x.clone()
        y[i] = 0.0
        y[..., 0] = 7
        y[mask] = -1.0
        y[1:3, ::2] += 1
        z = torch.zeros(5, 4).index_put_((i, i), torch.ones(3), accumulate=True)
        return (x[i], x[:, i], x[None, i, ..., None], x[i, i], x[i[:, None], i], x[-1], x[..., -2:],
                x[mask], y, z, x[[0, 2]], x[torch.tensor(True)], x[:, None, 1])  # fmt: skip


@case
def indexing() -> Case:
    mask = torch.tensor([True, False, True, False, True])
    return Case(Indexing(), [(torch.randn(5, 4), torch.tensor([0, 3, 1]), mask)])


class Promoting(nn.Module):
    def forward(self, f: Tensor, i: Tensor, b: Tensor, h: Tensor, s: Tensor) -> Any:
        return (f + i, i + b, b + b, i / 2, i // 2, i % 3, -i // 2, f * 2, i * 2.5, b * 2, h + f,
                h * s, i + s, i.float().mean(), b.sum(), i.sum(), torch.cat([i, f]), f > i, ~b,
                i << 1, i & 3, torch.where(b, i, 1.5), torch.stack([f, f * 2]), i.pow(2), i**0.5,
                f.to(torch.float64) + f, torch.add(i, i, alpha=2), i.true_divide(3),
                torch.clamp(i, 0, 2), torch.maximum(f, i.to(f)))  # fmt: skip


@case
def promoting() -> Case:
    i = torch.tensor([-3, 0, 4])
    return Case(Promoting(), [(torch.randn(3), i, i > 0, torch.randn(3).half(), torch.tensor(2.5))])


class Resizing(nn.Module):
    def forward(self, x: Tensor, grid: Tensor) -> Any:
        return (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=(7, 5), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(3, 9), mode="bilinear"),
            F.interpolate(x, scale_factor=1.5, mode="bicubic"),
            F.interpolate(x, size=(4, 4), mode="nearest-exact"),
            F.interpolate(x[:, :, 0], size=9, mode="linear"),
            F.interpolate(x, size=(3, 4), mode="area"),
            F.grid_sample(x, grid, align_corners=False),
            F.grid_sample(x, grid, mode="nearest", padding_mode="border", align_corners=True),
            F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False),
            F.grid_sample(x, grid, padding_mode="reflection", align_corners=True),
            F.grid_sample(x, grid, mode="bicubic", align_corners=True),
            F.grid_sample(x, grid, mode="bicubic", padding_mode="border", align_corners=False),
            F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
            F.interpolate(x, size=(11, 4), mode="bicubic", antialias=True),
        )  # fmt: skip


@case
def resizing() -> Case:
    return Case(Resizing(), [(torch.randn(2, 3, 6, 8), torch.rand(2, 5, 4, 2) * 3 - 1.5)])


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sum = nn.EmbeddingBag(20, 4, mode="sum")
        self.mean = nn.EmbeddingBag(20, 4, mode="mean", padding_idx=2)
        self.max = nn.EmbeddingBag(20, 4, mode="max", include_last_offset=True)

    def forward(self, ids: Tensor, offsets: Tensor, weights: Tensor, rows: Tensor) -> Any:
        ends = torch.cat([offsets, torch.tensor([ids.shape[0]])])
        return (self.sum(ids, offsets, weights), self.mean(ids, offsets), self.max(ids, ends),
                self.sum(rows), self.mean(rows), F.embedding(rows, self.sum.weight))  # fmt: skip


@case
def bags() -> Case:
    ids, offsets = torch.tensor([1, 2, 2, 7, 19, 0, 2]), torch.tensor([0, 3, 3, 5])
    return Case(Bags(), [(ids, offsets, torch.randn(7), torch.randint(0, 20, (3, 2)))])


class Sorting(nn.Module):
    def forward(self, x: Tensor) -> Any:
        values, places = x.topk(3, 1)
        low, _ = x.topk(2, 0, largest=False)
        ordered, order = x.sort(1, descending=True)
        return (values, places, low, ordered, order, x.argsort(0), x.median(1).values, x.msort(),
                x.kthvalue(2, 1).values, x.argmax(1), x.argmin(), x.max(1).indices, x.unique(),
                torch.searchsorted(ordered[0].flip(0), x[0]), x.cummax(1).values, x.cumsum(0),
                torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])), x.quantile(0.3))  # fmt: skip


@case
def sorting() -> Case:
    return Case(Sorting(), [(torch.randn(4, 6),)])


class Scattering(nn.Module):
    def forward(self, x: Tensor, i: Tensor) -> Any:
        zero = torch.zeros(4, 5)
        ways = ("sum", "prod", "mean", "amax", "amin")
        return (
            [zero.scatter_reduce(0, i, x, way, include_self=way != "mean") for way in ways],
            zero.scatter(1, i, x), zero.scatter(0, i, 2.5), zero.scatter_add(0, i, x),
            x.gather(1, i), zero.index_add(0, i[:, 0], x[:, :5], alpha=2), x.index_select(1, i[0]),
            x.take(i), zero.masked_fill(zero == 0, 3), zero.masked_scatter(zero == 0, x),
            x.repeat_interleave(2, 0), F.one_hot(i, 5), zero.index_fill(1, i[0], 9),
            x.repeat_interleave(i[:, 0] + 1, dim=0), x.scatter(0, i, x, reduce="multiply"),
            x.put(i, x), zero.select_scatter(x[0], 0, 1), zero.diagonal_scatter(x[:4, 0]),
        )  # fmt: skip


@case
def scattering() -> Case:
    return Case(Scattering(), [(torch.randn(4, 5), torch.randint(0, 4, (4, 5)))])


class Products(nn.Module):
    def forward(self, a: Tensor, b: Tensor, v: Tensor) -> Any:
        return (
            torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij,bij->b", a, a), a @ b, a @ v,
            torch.einsum("bij,j", a, v), torch.einsum("...ij->...ji", a), torch.bmm(a, b),
            torch.baddbmm(a @ b, a, b, beta=0.5), v @ v, torch.outer(v, v),
            torch.tensordot(a[0], b[0], 1),
            torch.addmm(a[0] @ b[0], a[0], b[0], alpha=2), torch.kron(a[0], b[0]), a.norm(),
            a.norm(dim=1), torch.cdist(a, b.mT), F.cosine_similarity(a, a + 1, -1), a.mT.tril(),
            torch.linalg.norm(a, dim=(1, 2)), F.normalize(a, dim=-1), torch.triu(a, 1),
            F.bilinear(v[None], v[None], torch.ones(2, 4, 4)), torch.trace(a[0, :3, :3]),
            torch.linalg.vector_norm(a, 1, -1),
            torch.linalg.det(a[:, :3, :3]),
            torch.cross(a[:, :3, :3], b[:, :3, :3], dim=-1), torch.logsumexp(a, 1), a.std(1),
            a.var(),
        )  # fmt: skip


@case
def products() -> Case:
    return Case(Products(), [(torch.randn(2, 3, 4), torch.randn(2, 4, 3), torch.randn(4))])


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Any:
        found = torch.stft(x, 16, 4, window=self.window, return_complex=True)
        back = torch.istft(found, 16, 4, window=self.window, length=x.shape[-1])
        f = torch.fft.rfft(x)
        g = torch.fft.fft(x)
        return (found.abs(), found.real, found.imag, torch.view_as_real(found),
                found.angle().cos(), back,
                f.abs() ** 2, torch.fft.irfft(f * 2, x.shape[-1]), g.real, torch.fft.ifft(g).real,
                torch.fft.rfftfreq(8), (found * found.conj()).real,
                torch.view_as_complex(torch.stack([x, x], -1)).abs(),
                torch.fft.fft2(x.reshape(2, 8, 8)).abs(), torch.fft.fftshift(x),
                torch.polar(x.abs(), x).real, torch.complex(x, x).exp().imag)  # fmt: skip


@case
def spectrum() -> Case:
    return Case(Spectrum(), [(torch.randn(2, 64),)])


class Rotary(nn.Module):
    """Positions as complex numbers, as the first Llama has them."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(8.0), 1 / 100 ** (torch.arange(2) / 2))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        turned = pairs * self.turns[: x.shape[1]].view(1, x.shape[1], 1, 2)
        return torch.view_as_real(turned).flatten(3).type_as(x)


@case
def rotary() -> Case:
    return Case(Rotary(), [(torch.randn(2, 5, 3, 4),)])


class Padding(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=3), F.pad(x, (1, 1), "reflect"),
                F.pad(x, (2, 1), "replicate"), F.pad(x, (1, 2), "circular"), x.unfold(2, 3, 2),
                F.unfold(x[None], 2), F.pixel_shuffle(x.reshape(4, 1, 6)[None], 2), x.flip(0, 2),
                x.roll(2), x.roll((1, -1), (0, 2)), x.rot90(1, (1, 2)), torch.meshgrid(x[0, 0],
                x[0, 1],
                indexing="ij"), x.tile(2, 1), x.movedim(0, 2), x.chunk(2, 2), x.split([1, 5], 2),
                torch.cartesian_prod(x[0, 0, :2], x[0, 1, :3]), x.diff(dim=2), x.diagonal(0, 1, 2),
                torch.block_diag(x[0], x[1]), x.unflatten(2, (2, 3)), x.swapaxes(0, 1),
                torch.atleast_2d(x[0, 0]), torch.dstack([x[0], x[1]]), x.ravel(), x.expand(3,
                2, 2, 6),
                torch.broadcast_to(x[0], (3, 2, 6)), torch.hstack([x, x]), x.squeeze(),
                x.T.contiguous(),
                torch.tensor_split(x, 3, 2), F.channel_shuffle(x.reshape(1, 4, 6, 1),
                2))  # fmt: skip


@case
def padding() -> Case:
    return Case(Padding(), [(torch.randn(2, 2, 6),)])


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2)
        self.two = nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, groups=2)
        self.three = nn.Conv2d(4, 32, 3, padding="same", bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(32), nn.GroupNorm(4, 32), nn.InstanceNorm2d(32),
                                    nn.LocalResponseNorm(2)])  # fmt: skip
        self.wide = nn.Conv2d(32, 32, 3, padding=1, padding_mode="reflect")
        self.depth = nn.Conv2d(32, 32, 3, groups=32, padding=1)
        self.spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(32, 5))
        self.attend = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        y = self.three(self.two(F.elu(self.one(x))))
        for norm in self.norms:
            y = F.relu6(norm(y))
        y = self.depth(self.wide(y)) + y
        pools = (F.max_pool2d(y, 3, 2, 1, ceil_mode=True), F.avg_pool2d(y, 3, 2, 1, True, False),
                 F.adaptive_avg_pool2d(y, (3, 2)), F.adaptive_max_pool2d(y, 2),
                 F.lp_pool2d(y.abs(), 2, 2), F.max_pool2d(y, 2, return_indices=True))  # fmt: skip
        flat = y.flatten(2).transpose(1, 2)[:, :5]
        found, weights = self.attend(flat, flat, flat)
        acts = [f(flat) for f in (F.gelu, F.silu, F.mish, F.softplus, F.hardswish, F.selu, F.celu,
                                  F.logsigmoid, F.softsign, F.tanhshrink, F.glu)]  # fmt: skip
        return pools, self.spectral(flat), found, weights, acts, F.softmin(flat, 1)


@case
def layers() -> Case:
    return Case(Layers(), [(torch.randn(2, 4, 12, 10),)])


class Losses(nn.Module):
    def forward(self, x: Tensor, y: Tensor, t: Tensor) -> Any:
        p = x.sigmoid()
        return (F.cross_entropy(x, t), F.cross_entropy(x, t, reduction="none", label_smoothing=0.1),
                F.nll_loss(x.log_softmax(1), t), F.mse_loss(x, y), F.l1_loss(x, y),
                F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.binary_cross_entropy(p, y.sigmoid()),
                F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x, y.softmax(1)),
                F.hinge_embedding_loss(x, torch.sign(y)), F.poisson_nll_loss(x, y),
                F.triplet_margin_loss(x, y, y + 1), F.cosine_embedding_loss(x, y, torch.ones(4)),
                F.multi_margin_loss(x, t), p)  # fmt: skip


@case
def losses() -> Case:
    t = torch.tensor([0, 2, 1, 2])
    return Case(Losses(), [(torch.randn(4, 3), torch.randn(4, 3), t)])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 3, bias=False)
        self.cell = nn.GRUCell(3, 3)

    def forward(self, x: Tensor) -> Any:
        y, state = self.lstm(x)
        z, h = self.gru(y)
        return y, state, z, self.cell(z[0], h[0])


@case
def recurrent() -> Case:
    return Case(Recurrent(), [(torch.randn(2, 4, 5),)])


class Projected(nn.Module):
    """Layers whose states are projected."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.LSTM(5, 6, 2, bidirectional=True, proj_size=3)
        self.one = nn.LSTM(6, 4, bias=False, batch_first=True, proj_size=2)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
        y, state = self.both(x, (h, c))
        return y, state, self.one(y.transpose(0, 1))


@case
def projected() -> Case:
    inputs = torch.randn(4, 2, 5), torch.randn(4, 2, 3), torch.randn(4, 2, 6)
    return Case(Projected(), [inputs])


class Special(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Any:
        s = torch.special
        y = x.abs() + 0.01
        return (
            s.bessel_j0(x), s.bessel_j1(x), s.bessel_y0(x), s.bessel_y1(y), s.i0(x),
            s.modified_bessel_k0(y), s.modified_bessel_k1(y), s.scaled_modified_bessel_k0(y),
            s.scaled_modified_bessel_k1(x), s.spherical_bessel_j0(x), s.erfcx(x), s.log_ndtr(x),
            s.ndtri(torch.sigmoid(x)), s.zeta(n + 2.0, x), s.polygamma(1, x), s.polygamma(4, x),
            s.multigammaln(y + 2, 3), s.chebyshev_polynomial_t(x / 4, n),
            s.chebyshev_polynomial_u(x / 4, n), s.chebyshev_polynomial_v(x / 4, n),
            s.chebyshev_polynomial_w(x / 4, n), s.shifted_chebyshev_polynomial_t(x / 9, n),
        )  # fmt: skip


@case
def special() -> Case:
    x = torch.linspace(-8.2, 40.0, 194)  # in float64 torch itself has 9 digits of some
    return Case(Special(), [(x, torch.arange(194) % 8)])


class HalfSpectra(nn.Module):
    def forward(self, x: Tensor) -> Any:
        f = torch.fft
        half = f.rfft(x, norm="ortho")
        return (
            f.irfft(x), f.irfft(half, 7, norm="ortho"), f.hfft(half), f.hfft(x, 9, dim=0),
            f.ihfft(x, norm="forward").abs(), f.hfft2(half, norm="ortho"), f.irfftn(x),
            f.ihfftn(x, (3, 6)).real, f.hfftn(half, dim=(1, 0)),
        )  # fmt: skip


@case
def half_spectra() -> Case:
    return Case(HalfSpectra(), [(torch.randn(4, 6, dtype=torch.float64),)])


class Distributions(nn.Module):
    """Operators that count, choose and measure slopes."""

    def forward(self, x: Tensor, n: Tensor) -> Any:
        holes = torch.where(x > 0.8, torch.nan, x)
        q = torch.tensor([0.1, 0.5, 0.95])
        counts, edges = torch.histogram(x, 5)
        weighed, _ = torch.histogram(x, 4, range=(-1.0, 1.0), weight=x * x, density=True)
        places = torch.tensor([0.0, 1.0, 3.0, 4.5, 5.0, 7.0])
        return (
            torch.nanquantile(holes, q, 1, keepdim=True), torch.nanquantile(holes, 0.3),
            torch.nanquantile(holes, q, 0, interpolation="nearest"),
            torch.nanquantile(holes, q, 0, interpolation="higher"),
            torch.bincount(n), torch.bincount(n, x.flatten(), 12), counts, edges, weighed,
            torch.cumulative_trapezoid(x), torch.cumulative_trapezoid(x, dx=0.5, dim=0),
            torch.cumulative_trapezoid(x, places, dim=1), *torch.gradient(x),
            *torch.gradient(x, spacing=2.0, dim=1, edge_order=2),
            *torch.gradient(x, spacing=(places,), dim=1),
            torch._chunk_cat([x, x[:, :3]], 1, 2),
            nn.utils.rnn.pad_sequence([x, x[:2], x[1:]], batch_first=True, padding_value=7.0),
            nn.utils.rnn.pad_sequence([n[:2] > 3, n[:4] > 3], padding_side="left"),
            F.pad(x[None], (-2, 3), "replicate"),
            F.conv_transpose1d(x[:3], torch.ones(3, 2, 3), dilation=4, output_padding=3),
            F.margin_ranking_loss(n, n.flip(0), torch.ones_like(n), margin=0.5),
            F.triplet_margin_loss(n[None], n[None] + 1, n[None] * 2),
        )  # fmt: skip


@case
def distributions() -> Case:
    x = torch.linspace(-1, 1, 24).reshape(4, 6).cos() * torch.linspace(-2, 1, 24).reshape(4, 6)
    n = torch.tensor([3, 0, 7, 7, 2, 3, 3, 9, 0, 1, 5, 5] * 2)
    return Case(Distributions(), [(x, n)])


class InPlace(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Any:
        z = x.clone()
        z.relu_().add_(y, alpha=2).clamp_(max=3).mul_(2)
        w = z.view(-1)
        w[::2].zero_()
        w.sub_(1)
        v = z.t()
        v[0].fill_(5)
        z.unsqueeze(0).squeeze_(0).neg_()
        u = torch.empty_like(x).copy_(y)
        u.transpose_(0, 1).exp_()
        a, b = z.chunk(2, 1)
        a += b
        torch.add(a, 1, out=b)
        z.masked_fill_(z > 4, 0).tril_()
        return z, w, v, u, a, b, x


@case
def in_place() -> Case:
    return Case(InPlace(), [(torch.randn(4, 6), torch.randn(4, 6))])


class Numbers(nn.Module):
    """Functions of elements."""

    def forward(self, x: Tensor) -> Any:
        p = x.abs() + 0.1
        return (torch.erf(x), torch.erfc(x), torch.erfinv(x.tanh()), torch.lgamma(p),
                torch.digamma(p),
                torch.expm1(x), torch.log1p(p), torch.sinc(x), torch.atan2(x, p), torch.hypot(x, p),
                torch.frac(x), torch.trunc(x), torch.round(x, decimals=1), torch.fmod(x, 0.7),
                torch.remainder(x, 0.7), torch.logit(p.clamp(max=0.9)), torch.xlogy(x, p),
                torch.lerp(x, p, 0.3), torch.addcmul(x, x, p), torch.addcdiv(x, x, p),
                torch.copysign(x, -p),
                torch.nan_to_num(x / 0), torch.sign(x), torch.heaviside(x, p), torch.rsqrt(p),
                x.exp2(),
                torch.logaddexp(x, p), torch.special.entr(p), torch.sgn(x), torch.deg2rad(x),
                torch.signbit(x), torch.isclose(x, p), torch.float_power(p, 1.5),
                torch.special.i0(x),
                torch.ldexp(x, torch.tensor([3])), torch.special.ndtr(x),
                torch.floor_divide(x, 0.3))  # fmt: skip


@case
def numbers() -> Case:
    return Case(Numbers(), [(torch.randn(3, 4),)])


class Varying(nn.Module):
    """Shapes that inputs decide."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        b, n = x.shape[:2]
        z = torch.zeros(b, n, n).masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf)
        w = (x @ x.mT + z).softmax(-1) @ x
        positions = torch.arange(n, device=x.device).expand(b, n)
        return (w.reshape(b, -1), w[:, -1], w[:, : n // 2], torch.cat([w, y], 1), positions,
                x.view(b, n, 2, -1).permute(0, 2, 1, 3).flatten(1, 2), torch.full((b, n), n),
                F.interpolate(x[:, None], scale_factor=2.0), x.new_ones(n, b) * n,
                x.sum() / n)  # fmt: skip


@case
def varying() -> Case:
    calls = [(torch.randn(2, 5, 4), torch.randn(2, 3, 4)), (torch.randn(3, 8, 4),
    torch.randn(3, 2, 4))]
    return Case(Varying(), calls, dynamic_shapes=({0: AUTO, 1: AUTO}, {0: AUTO, 1: AUTO}))


class Drawing(nn.Module):
    """Random numbers: their types and shapes, and what they have in common."""

    def forward(self, x: Tensor) -> Any:
        drawn = torch.rand_like(x), torch.rand(3), torch.randn(2, 2).abs(), torch.bernoulli(x * 0)
        inside = [(each >= 0).all() for each in drawn]
        order = torch.randperm(5).sort().values
        places = torch.multinomial(torch.ones(4), 4).sort().values
        kept = F.dropout(x, 0.5, training=True)
        whole = torch.randint(3, 7, (9,))
        return (inside, order, places, ((kept == 0) | (kept == x * 2)).all(), whole.min() >= 3,
                whole.max() < 7, torch.empty(4).uniform_(2, 3) >= 2,
                torch.zeros(3).normal_().shape[0])


@case
def drawing() -> Case:
    return Case(Drawing(), [(torch.rand(3, 4),)])


class Runs(nn.Module):
    """Runs of equal elements, and tables of places of a fixed length."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return (
            torch.unique_consecutive(x, return_inverse=True, return_counts=True),
            torch.unique_consecutive(y, dim=0, return_inverse=True, return_counts=True),
            torch.unique_consecutive(y, dim=1, return_counts=True),
            torch.unique(y, dim=1, return_counts=True),
            torch.nonzero_static(x, size=4),
            torch.nonzero_static(y, size=2, fill_value=9),
            torch.arange(0.5, -8.5, -4, dtype=torch.int64),
            torch.linspace(4.3, 1, 50, dtype=torch.int64),
        )


@case
def runs() -> Case:
    x = torch.tensor([1, 1, 2, 2, 2, 3, 1, 1])
    y = torch.tensor([[1, 1, 2], [1, 1, 2], [0, 0, 1], [1, 1, 2]])
    calls = [(x, y), (x[:3], y[:2]), (x[3:], y), (torch.zeros(9, dtype=torch.int64), y[1:])]
    rows = torch.export.Dim.DYNAMIC
    return Case(Runs(), calls, dynamic_shapes={"x": {0: rows}, "y": {0: rows}})


class CrossedLimits(nn.Module):
    """A lower limit that is above the upper one goes first."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.logit(x, eps=0.6), torch.logit(x, eps=0.2)


@case
def crossed_limits() -> Case:
    return Case(CrossedLimits(), [(torch.tensor([0.0, 0.3, 0.5, 0.65, 0.9, 1.0]),)])


class Conditions(nn.Module):
    """What assertions about the elements of tensors are made of."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        ops = torch.ops.aten
        return ops._is_all_true(x > 0), ops._is_any_true(x > 0)


@case
def conditions() -> Case:
    calls = [(torch.tensor([[1.0, low], [2.0, 3.0]]),) for low in (1.0, -1.0)]
    return Case(Conditions(), [*calls, (-torch.ones(2, 2),)])
