"""Attention, rotary positions, and recurrent attention of ONNX models."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from relaxvm import VirtualMachine, build
from relaxvm.dtypes import as_dtype
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node
from .test_onnx_quantized import check

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
RNG = np.random.default_rng(6)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def oracle(
    q: Any, k: Any, v: Any, allowed: Any = True, bias: Any = 0.0, softcap: float = 0.0
) -> np.ndarray:
    """Attention of [batch, heads, length, size] in float64; 0 for queries without keys."""
    q, k, v = (np.asarray(each, np.float64) for each in (q, k, v))
    k, v = (np.repeat(each, q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    if softcap:
        scores = np.tanh(scores / softcap) * softcap
    scores = np.where(np.broadcast_to(allowed, scores.shape), scores + bias, -np.inf)
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def attention(inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return node("Attention", inputs, outputs, **attributes)


def machine(nodes: list[Any], inputs: Any, outputs: list[str], **more: Any) -> VirtualMachine:
    return VirtualMachine(build(from_onnx(model_of(nodes, inputs, outputs, opset=25, **more))))


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_heads_that_share_keys(heads: tuple[int, int], softcap: float) -> None:
    q, k, v = normal(2, heads[0], 5, 8), normal(2, heads[1], 7, 8), normal(2, heads[1], 7, 6)
    vm = machine([attention("q k v", softcap=softcap)],
                 {"q": (FLOAT, q.shape), "k": (FLOAT, k.shape), "v": (FLOAT, v.shape)},
                 ["y"])  # fmt: skip
    np.testing.assert_allclose(vm["main"](q, k, v), oracle(q, k, v, softcap=softcap), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("causal", [0, 1])
def test_masks(kind: str, rank: int, causal: int) -> None:
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 8)
    shape = ((4, 6), (3, 4, 6), (2, 1, 4, 6))[rank - 2]
    mask = normal(*shape) if kind == "float" else RNG.random(shape) < 0.6
    allowed, bias = (True, mask) if kind == "float" else (mask, 0.0)
    if causal:
        allowed = np.logical_and(allowed, np.arange(6) <= np.arange(4)[:, None])
    vm = machine(
        [attention("q k v m", is_causal=causal)],
        {**{n: (FLOAT, each.shape) for n, each in (("q", q), ("k", k), ("v", v))},
         "m": (FLOAT if kind == "float" else TensorProto.BOOL, shape)},
        ["y"],
    )  # fmt: skip
    want = oracle(q, k, v, allowed, bias)
    np.testing.assert_allclose(vm["main"](q, k, v, mask), want, 1e-5, 1e-6)


def test_a_query_without_keys_is_zero() -> None:
    """Also where a score is not a number, and without warnings."""
    q, k, v = normal(1, 1, 2, 4), normal(1, 1, 3, 4), normal(1, 1, 3, 4)
    q[0, 0, 0] = np.inf
    mask = np.array([[False] * 3, [True] * 3])
    vm = machine([attention("q k v m", "y   s", qk_matmul_output_mode=3)],
                 {"q": (FLOAT, q.shape), "k": (FLOAT, k.shape), "v": (FLOAT, v.shape),
                  "m": (TensorProto.BOOL, mask.shape)}, ["y"])  # fmt: skip
    got = vm["main"](q, k, v, mask)
    assert got[0, 0, 0].tolist() == [0] * 4
    np.testing.assert_allclose(got[:, :, 1:], oracle(q[:, :, 1:], k, v), 1e-5)


def test_a_cache_that_grows() -> None:
    """Steps of one token give what the whole sequence gives; the past has a symbolic length."""
    x, size, heads = normal(1, 6, 12), 4, 3
    nodes = [attention("x x x  pk pv", "y nk nv", is_causal=1, q_num_heads=heads,
                       kv_num_heads=heads)]  # fmt: skip
    nodes[0].input[:] = ["x", "x", "x", "", "pk", "pv"]
    past = (FLOAT, [1, heads, "past", size])
    vm = machine(nodes, {"x": (FLOAT, [1, "n", 12]), "pk": past, "pv": past}, ["y", "nk", "nv"])
    empty = np.zeros((1, heads, 0, size), np.float32)
    whole, *_ = vm["main"](x, empty, empty)
    cache, steps = (empty, empty), []
    for i in range(6):
        y, *cache = vm["main"](x[:, i : i + 1], *cache)
        steps.append(y)
    np.testing.assert_allclose(np.concatenate(steps, 1), whole, 1e-5, 1e-6)
    assert cache[0].shape == (1, heads, 6, size)
    split = x.reshape(1, 6, heads, size).swapaxes(1, 2)
    want = oracle(split, split, split, np.tri(6, dtype=bool))
    np.testing.assert_allclose(whole, want.swapaxes(1, 2).reshape(1, 6, 12), 1e-5, 1e-6)


@pytest.mark.parametrize("windows", [(2, -1), (-1, 1), (1, 2), (0, 0)])
@pytest.mark.parametrize("lengths", [None, [6, 4]])
def test_windows(windows: tuple[int, int], lengths: list[int] | None) -> None:
    q, k, v = normal(2, 2, 3, 4), normal(2, 2, 6, 4), normal(2, 2, 6, 4)
    given = attention("q k v", left_window_size=windows[0], right_window_size=windows[1])
    inputs: dict[str, Any] = {"q": (FLOAT, q.shape), "k": (FLOAT, k.shape), "v": (FLOAT, v.shape)}
    values: list[Any] = [q, k, v]
    keys, own = np.arange(6), np.arange(3)[:, None]
    allowed: Any = np.ones((3, 6), bool)
    if lengths is not None:
        given.input.extend(["", "", "", "l"])
        inputs["l"] = (INT64, [2])
        values.append(np.array(lengths))
        length = np.array(lengths).reshape(2, 1, 1, 1)
        own, allowed = own + length - 3, keys < length
    if windows[0] >= 0:
        allowed = allowed & (keys >= own - windows[0])
    if windows[1] >= 0:
        allowed = allowed & (keys <= own + windows[1])
    vm = machine([given], inputs, ["y"])
    np.testing.assert_allclose(vm["main"](*values), oracle(q, k, v, allowed), 1e-5, 1e-6)


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_scores(mode: int) -> None:
    q, k, v, m = normal(1, 2, 3, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4), normal(3, 5)
    given = node("Attention", "q k v m", "y", softcap=1.5, qk_matmul_output_mode=mode)
    given.output.extend(["", "", "s"])
    vm = machine([given], {n: (FLOAT, each.shape) for n, each in
                           (("q", q), ("k", k), ("v", v), ("m", m))}, ["s"])  # fmt: skip
    raw = q.astype(np.float64) @ k.swapaxes(2, 3) / 2
    capped = np.tanh(raw / 1.5) * 1.5
    powers = np.exp(capped + m)
    want = [raw, capped, capped + m, powers / powers.sum(-1, keepdims=True)][mode]
    np.testing.assert_allclose(vm["main"](q, k, v, m), want, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(dtype: str) -> None:
    dt = as_dtype(dtype)
    q, k, v = (normal(1, 2, length, 4, dtype=dt) for length in (3, 5, 5))
    code = helper.np_dtype_to_tensor_dtype(dt)
    vm = machine([attention("q k v", softmax_precision=FLOAT)],
                 {n: (code, each.shape) for n, each in (("q", q), ("k", k), ("v", v))},
                 ["y"])  # fmt: skip
    got = vm["main"](q, k, v)
    assert got.dtype == dt
    np.testing.assert_allclose(got.astype(float), oracle(q, k, v), 4e-2, 2e-2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("form", ["4d", "3d", "ids"])
def test_rotary_positions(interleaved: int, width: int, form: str) -> None:
    half = (width or 8) // 2
    x = normal(2, 3, 5, 8) if form != "3d" else normal(2, 5, 24)
    caches = (9, half) if form == "ids" else (2, 5, half)
    arrays = {"x": x, "c": normal(*caches), "s": normal(*caches)}
    if form == "ids":
        arrays["p"] = RNG.integers(0, 9, (2, 5))
    given = node("RotaryEmbedding", " ".join(arrays), "y", interleaved=interleaved,
                 rotary_embedding_dim=width, num_heads=3)  # fmt: skip
    check([given], arrays, opset=23, rtol=1e-4)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_continues(rule: str) -> None:
    """Two calls, with the state of the first, give what one call gives; also the oracle."""
    heads, groups, size = 4, 2, 3
    names = ["q", "k", "v", "h", *["d"] * ("gated" in rule), *["b"] * ("delta" in rule)]
    shapes = {"q": heads * size, "k": groups * size, "v": groups * 5, "d": groups, "b": groups}
    arrays = {n: normal(2, 6, shapes[n]) for n in names if n != "h"}
    if "d" in arrays:
        arrays["d"] = -abs(arrays["d"])
    given = node("LinearAttention", "", "y n", q_num_heads=heads, kv_num_heads=groups,
                 update_rule=rule)  # fmt: skip
    given.input.extend([n if n in names else "" for n in "qkvhdb"])
    inputs = {n: (FLOAT, [2, "n", shapes[n]]) if n != "h" else (FLOAT, [2, groups, size, 5])
              for n in names}  # fmt: skip
    model = model_of([given], inputs, ["y", "n"], opset=27)
    vm = VirtualMachine(build(from_onnx(model)))
    state = normal(2, groups, size, 5)

    def call(part: slice, state: Any) -> Any:
        return vm["main"](*[state if n == "h" else arrays[n][:, part] for n in names])

    whole, last = call(slice(None), state)
    first, between = call(slice(0, 2), state)
    second, end = call(slice(2, 6), between)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, 1e-5, 1e-5)
    np.testing.assert_allclose(end, last, 1e-5, 1e-5)
    want = state.astype(np.float64)
    parts = {n: each.reshape(2, 6, -1, 1 if n in "db" else size if n in "qk" else 5)
             for n, each in arrays.items()}  # fmt: skip
    for i in range(6):
        if "d" in parts:
            want *= np.exp(parts["d"][:, i])[..., None]
        k, v = parts["k"][:, i], parts["v"][:, i].astype(np.float64)
        if "b" in parts:
            v = parts["b"][:, i] * (v - np.einsum("bgk,bgkv->bgv", k, want))
        want += k[..., None] * v[:, :, None]
    np.testing.assert_allclose(last, want, 1e-4, 1e-5)


def test_a_convolution_continues() -> None:
    x, w = normal(1, 3, 8), normal(3, 1, 4)
    given = node("CausalConvWithState", "x w", "y n", activation="silu")
    given.input.extend(["", "s"])
    model = model_of([given], {"x": (FLOAT, [1, 3, "n"]), "s": (FLOAT, [1, 3, 3])}, ["y", "n"],
                     {"w": w}, 27)  # fmt: skip
    vm = VirtualMachine(build(from_onnx(model)))
    state = np.zeros((1, 3, 3), np.float32)
    whole, last = vm["main"](x, state)
    first, state = vm["main"](x[..., :5], state)
    second, end = vm["main"](x[..., 5:], state)
    np.testing.assert_allclose(np.concatenate([first, second], 2), whole, 1e-6)
    assert end.tolist() == last.tolist() == x[..., 5:].tolist()


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_that_is_written_to(mode: str) -> None:
    past, update = normal(2, 2, 5, 3), normal(2, 2, 2, 3)
    start = np.array([1, 4 if mode == "circular" else 3])
    want = past.copy()
    for b in range(2):
        for i in range(2):
            want[b, :, (start[b] + i) % 5] = update[b, :, i]
    given = node("TensorScatter", "p u w", "y", mode=mode)
    vm = machine([given], {"p": (FLOAT, [2, 2, "n", 3]), "u": (FLOAT, [2, 2, "m", 3]),
                           "w": (INT64, [2])}, ["y"])  # fmt: skip
    assert vm["main"](past, update, start).tolist() == want.tolist()


THREE: dict[str, Any] = {name: (FLOAT, [1, 2, 3, 4]) for name in "qkv"}
FLAT: dict[str, Any] = {name: (FLOAT, [1, 3, 8]) for name in "qkv"}


@pytest.mark.parametrize(
    ("given", "inputs", "message"),
    [
        (attention("q k v"), FLAT, "expected q_num_heads and kv_num_heads where Q has rank 3"),
        (attention("q k v", q_num_heads=3, kv_num_heads=3), FLAT,
         "Q: expected 3 heads of equal size"),
        (attention("q k v", qk_matmul_output_mode=4), THREE,
         "qk_matmul_output_mode: expected 0 to 3, got 4"),
        (attention("q k v", left_window_size=-2), THREE, "expected windows of -1 or more"),
        (attention("q k v"), {**THREE, "k": (FLOAT, [1, 3, 3, 4])},
         "expected a multiple of 3 query heads, got 2"),
        (attention("q k v q q"), THREE, "expected past_key and past_value, got one of them"),
        (node("RotaryEmbedding", "q k v", "y"), FLAT, "expected num_heads where X has rank 3"),
        (node("LinearAttention", "q k v", "y n", q_num_heads=2, kv_num_heads=2,
              update_rule="gated"), FLAT, "update_rule 'gated': expected it with decay"),
        (node("TensorScatter", "q k", "y", mode="ring"), THREE,
         "mode: expected linear or circular, got 'ring'"),
        (node("TensorScatter", "q k", "y", axis=0), THREE, "axis: expected one behind the batch"),
        (node("CausalConvWithState", "q k", "y n", activation="relu"), FLAT,
         "activation: 'relu' is not supported"),
    ],
)  # fmt: skip
def test_what_is_refused(given: Any, inputs: Any, message: str) -> None:
    with pytest.raises(RelaxVMError, match=re.escape(message)):
        from_onnx(model_of([given], inputs, ["y"], opset=27))


def test_weights_in_bfloat16_add_up_to_one() -> None:
    """Sums in bfloat16 stop growing at 256, and weights of 1,000 keys would add up to 4.  The
    standard's suite expects such sums, so that its cases differ by a unit in the last place."""
    lengths = {"q": 1, "k": 1000, "v": 1000}
    inputs = {name: (TensorProto.BFLOAT16, [1, 1, n, 8]) for name, n in lengths.items()}
    model = model_of([node("Attention", "q k v", "y")], inputs, ["y"], opset=23)
    bfloat16 = as_dtype("bfloat16")
    zeros = np.zeros((1, 1, 1000, 8), bfloat16)
    got = VirtualMachine(build(from_onnx(model)))["main"](zeros[:, :, :1], zeros, zeros + 1)
    assert got.dtype == bfloat16
    np.testing.assert_array_equal(got.astype("f4"), 1)
