"""Paged caches as programs use them: in script, with limits, and against attention in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, Shape, get_func
from relaxvm.errors import LimitError
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

HEADS, DIM = 2, 4


def call(name: str, *args: Any) -> Any:
    return get_func(f"vm.builtin.{name}")(*args)


def cache_of(pages: int = 8, rotate: Any = None) -> Any:
    kernels: list[Any] = [None] * 15
    kernels[11] = rotate
    return call(
        "paged_attention_kv_cache_create", Shape([4, 4 * pages, 64, 4, 0]), Shape([0, 1]), HEADS,
        HEADS, DIM, DIM, Shape([0]), 0, 0, 1.0, 10000.0, None, np.zeros((), "float32"), *kernels,
    )  # fmt: skip


@I.ir_module
class Layer:
    """A layer of attention that keeps its keys and values in a paged cache."""

    @R.function(pure=False)
    def main(cache: R.Any, qkv: R.Tensor(("n", 6, 4), "float32")) -> R.Tensor(("n", 2, 4)):
        n = T.int64()
        with R.dataflow():
            out = R.call_dps_packed(
                "vm.builtin.attention_kv_cache_attention_with_fused_qkv",
                (cache, R.prim_value(0), R.prim_value(T.float64(0.5)), qkv),
                out_ty=R.Tensor((n, 2, 4), "float32"),
            )
            R.output(out)
        return out


def expected(q: Any, k: Any, v: Any) -> Any:
    """The attention of the last tokens, ``[token, head, dim]``."""
    scores = np.einsum("qhd,khd->hqk", q, k) * 0.5
    allowed = np.arange(len(k)) <= np.arange(len(q))[:, None] + len(k) - len(q)
    weights = np.exp(np.where(allowed, scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v)


def test_a_program_with_a_paged_cache() -> None:
    vm = relaxvm.VirtualMachine(relaxvm.build(Layer))
    cache = cache_of()
    rng = np.random.default_rng(0)
    call("kv_state_add_sequence", cache, 7)
    seen = np.zeros((0, 3 * HEADS, DIM), "float32")
    for count in (5, 1, 1, 3):
        qkv = rng.standard_normal((count, 3 * HEADS, DIM)).astype("float32")
        seen = np.concatenate([seen, qkv])
        call("kv_state_begin_forward", cache, Shape([7]), Shape([count]))
        got = vm["main"](cache, qkv)
        call("kv_state_end_forward", cache)
        q, k, v = qkv[:, :2], seen[:, 2:4], seen[:, 4:]
        np.testing.assert_allclose(got, expected(q, k, v), rtol=1e-5, atol=1e-6)
    assert call("attention_kv_cache_get_sequence_length", cache, 7) == 10
    assert call("attention_kv_cache_get_num_available_pages", cache) == 9 - 3


def test_the_kernel_that_rotates_is_called() -> None:
    seen = []

    def rotate(qkv: Any, positions: Any, q: Any, k: Any, v: Any, rotates: Any) -> None:
        seen.append((positions.tolist(), rotates))
        q[...], k[...], v[...] = qkv[:, :2], qkv[:, 2:4], 3

    cache = cache_of(rotate=rotate)
    call("kv_state_add_sequence", cache, 0)
    for count in (2, 1):
        call("kv_state_begin_forward", cache, Shape([0]), Shape([count]))
        out = np.zeros((count, HEADS, DIM), "float32")
        qkv = np.ones((count, 3 * HEADS, DIM), "float32")
        call("attention_kv_cache_attention_with_fused_qkv", cache, 0, 0.5, qkv, out)
        np.testing.assert_allclose(out, 3)
    assert seen == [([0, 1], 0), ([2], 0)]


def test_failed_calls_change_nothing() -> None:
    cache = cache_of(pages=2)  # and a third one
    call("kv_state_add_sequence", cache, 0)
    call("kv_state_add_sequence", cache, 1)
    with pytest.raises(relaxvm.errors.InternalError, match="the cache is full: 4 more pages"):
        call("kv_state_begin_forward", cache, Shape([0, 1]), Shape([5, 5]))
    with pytest.raises(relaxvm.errors.InternalError, match="the node before the node 1"):
        call("kv_state_begin_forward", cache, Shape([0, 1]), Shape([1, 2]), Shape([-1, -1, 1]))
    for number in (0, 1):
        assert call("attention_kv_cache_get_sequence_length", cache, number) == 0
    assert call("attention_kv_cache_get_num_available_pages", cache) == 3


def test_a_limit_of_memory_holds() -> None:
    builder = relaxvm.ExecBuilder()
    args = [Shape([1, 1 << 20, 64, 16, 0]), Shape([0, 1]), 2, 2, 64, 64, Shape([0]), 0, 0, 1.0, 1e4,
            None, np.zeros((), "float32"), *[None] * 15]  # fmt: skip
    with builder.function("main", num_inputs=len(args)):
        words = [builder.r(i) for i in range(len(args))]
        builder.emit_call("vm.builtin.paged_attention_kv_cache_create", words,
                          dst=builder.r(len(args)))  # fmt: skip
        builder.emit_ret(builder.r(len(args)))
    vm = relaxvm.VirtualMachine(builder.get(), limits=Limits(live_bytes=1 << 20))
    with pytest.raises(LimitError, match="live_bytes"):
        vm["main"](*args)


def test_a_size_beyond_all_memory_is_refused() -> None:
    with pytest.raises(MemoryError, match="cannot reserve"):
        call(
            "paged_attention_kv_cache_create", Shape([1, 1 << 60, 64, 16, 0]), Shape([0, 1]), 2, 2,
            64, 64, Shape([0]), 0, 0, 1.0, 1e4, None, np.zeros((), "float32"), *[None] * 15,
        )  # fmt: skip
