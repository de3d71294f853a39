"""RecognizeAttention: attention in the forms that exporters write, and what only looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.ir import IRModule, PrimType, TensorType, Var, const
from relaxvm.script import relax as R

from .test_block_convolutions import run
from .test_recognize_ops import number


def recognized_of(mod: IRModule) -> IRModule:
    passes = (transform.RecognizeAttention(), transform.RecognizeOps(),
              transform.DeadCodeElimination())  # fmt: skip
    for each in passes:
        mod = each(mod)
    return mod


Attend = Callable[..., Any]


def attention(
    emit: Any, q: Any, k: Any, v: Any, *, key_axes: tuple[int, ...] = (0, 2, 3, 1),
    scale: str = "divide", bias: Any = None, axis: int = -1, last: bool = True,
    joined: bool = False, numbers: float | None = None,
) -> Any:  # fmt: skip
    """Of q, k, v[2, length, 3 heads, 8], as exporters write it."""
    query, value = (emit(R.permute_dims(each, [0, 2, 1, 3])) for each in (q, v))
    if key_axes == (0, 1, 3, 2):
        k = emit(R.permute_dims(k, [0, 2, 1, 3]))
    if joined:
        by_head = emit(R.permute_dims(k, [0, 2, 1, 3]))
        matrices = emit(R.reshape(by_head, (6, 6, 8)))
        key = emit(R.reshape(emit(R.permute_dims(matrices, [0, 2, 1])), (2, 3, 8, 6)))
    else:
        key = emit(R.permute_dims(k, list(key_axes)))
    if scale in ("of the key", "of both"):
        key = emit(R.multiply(key, number(0.125)))
    if scale == "of both":
        query = emit(R.multiply(query, number(0.5)))
    scores = emit(R.matmul(query, key))
    if scale == "divide":
        scores = emit(R.divide(scores, number(math.sqrt(8))))
    elif scale == "multiply":
        scores = emit(R.multiply(number(0.5), scores))
    if bias is not None:
        scores = emit(R.add(scores, const(bias)))
    weights = emit(R.nn.softmax(scores, axis))
    if numbers is not None:
        weights = emit(R.where(emit(R.isnan(weights)), number(numbers), weights))
    mixed = emit(R.matmul(weights, value))
    return emit(R.permute_dims(mixed, [0, 2, 1, 3])) if last else mixed


MASK = np.where(np.arange(6) % 4 < 3, 0, -np.inf).astype(np.float32).reshape(1, 1, 1, 6)
ATTENTIONS: dict[str, dict[str, Any]] = {
    "as torch writes it": {},
    "keys by head first": {"key_axes": (0, 1, 3, 2)},
    "multiplied": {"scale": "multiply"},
    "no scale": {"scale": ""},
    "the scale of the key": {"scale": "of the key"},
    "a mask": {"bias": MASK},
    "a mask for each query": {"bias": np.broadcast_to(MASK[0, 0], (5, 6)).copy()},
    "weights that are no numbers": {"bias": MASK, "numbers": 0.0},
    "the last axes alone": {"joined": True},
    "scales of both": {"joined": True, "scale": "of both"},
    "a bias for each head": {"bias": np.ones((1, 3, 5, 6), np.float32)},
    "by head to the end": {"last": False},
}  # fmt: skip


def attention_program(settings: dict[str, Any]) -> IRModule:
    bb = relaxvm.BlockBuilder()
    lengths = {"q": 5, "k": 6, "v": 6}
    inputs = [Var(name, TensorType((2, n, 3, 8), "float32")) for name, n in lengths.items()]
    with bb.function("main", inputs):
        with bb.dataflow():
            result = bb.emit_output(attention(bb.emit, *inputs, **settings))
        bb.emit_func_output(result)
    return bb.get()


def attention_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((2, n, 3, 8)).astype(np.float32) for n in (5, 6, 6)]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention(name: str) -> None:
    mod = attention_program(ATTENTIONS[name])
    recognized = recognized_of(mod)
    relaxvm.analysis.well_formed(recognized)
    text = str(recognized)
    assert text.count("R.nn.attention") == 1
    assert "softmax" not in text
    assert text.count("permute_dims") == ("last" in ATTENTIONS[name])
    inputs = attention_inputs()
    np.testing.assert_allclose(run(recognized, *inputs)[0], run(mod, *inputs)[0], atol=2e-6)
    packed = transform.DeadCodeElimination()(transform.PackLinear()(recognized))
    assert str(packed).count("nn.attention_tiles") == 1
    np.testing.assert_allclose(run(packed, *inputs)[0], run(mod, *inputs)[0], atol=2e-6)


NO_ATTENTION: dict[str, dict[str, Any]] = {
    "softmax over queries": {"axis": 2},
    "other numbers than 0": {"numbers": 1.0},
    "a bias of keys alone": {"bias": np.ones((5, 1), np.float32)},
}


@pytest.mark.parametrize("name", NO_ATTENTION)
def test_what_looks_like_attention(name: str) -> None:
    assert "attention" not in str(recognized_of(attention_program(NO_ATTENTION[name])))


# Heads of keys and values that queries share


def shared(
    *, times: int = 2, apart: str = "expand_dims", axis: int = 2, factor: float | None = None
) -> IRModule:
    """Four heads of queries, and two of keys and values, as exporters repeat them."""
    bb = relaxvm.BlockBuilder()
    length = Var("n", PrimType("int64"))
    q = Var("q", TensorType((1, 2 * times, 5, 8), "float32"))
    k, v = (Var(name, TensorType((1, 2, length, 8), "float32")) for name in ("k", "v"))

    def repeated(x: Any) -> Any:
        if apart == "reshape":
            wide = bb.emit(R.reshape(x, (1, 2, 1, length, 8)))
        else:
            wide = bb.emit(R.expand_dims(x, axis))
        shape = (1, 2, times, length, 8) if axis == 2 else (1, times, 2, length, 8)
        return bb.emit(R.reshape(bb.emit(R.broadcast_to(wide, shape)), (1, 2 * times, length, 8)))

    with bb.function("main", [q, k, v]):
        with bb.dataflow():
            keys = bb.emit(R.permute_dims(repeated(k), [0, 1, 3, 2]))
            if factor is not None:
                keys = bb.emit(R.multiply(keys, number(factor)))
            scores = bb.emit(R.matmul(q, keys))
            weights = bb.emit(R.nn.softmax(scores, -1))
            result = bb.emit_output(bb.emit(R.matmul(weights, repeated(v))))
        bb.emit_func_output(result)
    return bb.get()


SHARED: dict[str, dict[str, Any]] = {
    "an axis more": {},
    "shapes": {"apart": "reshape"},
    "four heads each": {"times": 4},
    "a factor of the keys": {"factor": 0.25},
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_heads_are_not_repeated(name: str) -> None:
    mod = shared(**SHARED[name])
    recognized = recognized_of(mod)
    relaxvm.analysis.well_formed(recognized)
    text = str(recognized)
    assert "broadcast_to" not in text
    assert "R.multiply" not in text
    rng = np.random.default_rng(0)
    times = SHARED[name].get("times", 2)
    q = rng.standard_normal((1, 2 * times, 5, 8)).astype(np.float32)
    k, v = (rng.standard_normal((1, 2, 6, 8)).astype(np.float32) for _ in range(2))
    expected = run(mod, q, k, v)[0]
    for program in (recognized, transform.PackLinear()(recognized)):
        np.testing.assert_allclose(run(program, q, k, v)[0], expected, atol=2e-6)


def test_heads_in_another_order_are_repeated() -> None:
    """Head i has head i % 2 of the keys, not i / 2."""
    text = str(recognized_of(shared(axis=1)))
    assert text.count("broadcast_to") == 2


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e9, math.nan])
def test_unusual_factors_stay_with_the_keys(factor: float) -> None:
    text = str(transform.RecognizeAttention()(shared(factor=factor)))
    assert text.index("permute_dims") < text.index("R.multiply(") < text.index("R.matmul(")
    assert "attention" not in text


def test_a_start_of_a_cache_is_read_in_place() -> None:
    """Keys and values whose heads are apart in memory, as in a cache with room for more."""
    mod = transform.PackLinear()(recognized_of(shared()))
    rng = np.random.default_rng(1)
    q = rng.standard_normal((1, 4, 5, 8)).astype(np.float32)
    rooms = [rng.standard_normal((1, 2, 40, 8)).astype(np.float32) for _ in range(2)]
    parts = [room[:, :, :6] for room in rooms]
    expected = run(mod, q, *[part.copy() for part in parts])[0]
    np.testing.assert_array_equal(run(mod, q, *parts)[0], expected)


def program_of(body: Any, *shapes: Any) -> IRModule:
    bb = relaxvm.BlockBuilder()
    names = zip("qkv", shapes, strict=True)
    inputs = [Var(name, TensorType(shape, "float32")) for name, shape in names]
    with bb.function("main", inputs):
        with bb.dataflow():
            result = bb.emit_output(body(bb.emit, *inputs))
        bb.emit_func_output(result)
    return bb.get()


def merged(
    emit: Any, q: Any, k: Any, v: Any, *, channels_first: bool, bias: Any = None,
    exchange: bool = True,
) -> Any:  # fmt: skip
    """Of q, k, v[6, length, 8], or [6, 8, length]: heads and examples are one axis."""
    if channels_first:
        query = emit(R.permute_dims(emit(R.multiply(q, number(0.5))), [0, 2, 1]))
        key = k
    else:
        query = q
        key = emit(R.permute_dims(k, [0, 2, 1])) if exchange else k
    scores = emit(R.matmul(query, key))
    if bias is not None:
        scores = emit(R.add(scores, const(bias)))
    weights = emit(R.nn.softmax(scores, 2))
    if not channels_first:
        return emit(R.matmul(weights, v))
    return emit(R.matmul(v, emit(R.permute_dims(weights, [0, 2, 1]))))


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("mask", [None, MASK, np.tile(MASK[0], (6, 1, 1)), MASK[0, 0, 0]])
def test_heads_that_are_one_axis_with_the_examples(channels_first: bool, mask: Any) -> None:
    if mask is not None and mask.ndim == 4:
        mask = mask[0]
    shape = (6, 8, 6) if channels_first else (6, 6, 8)
    mod = program_of(
        lambda emit, *given: merged(emit, *given, channels_first=channels_first, bias=mask),
        *[shape] * 3,
    )
    recognized = recognized_of(mod)
    text = recognized.script()
    assert "R.nn.attention" in text
    assert "softmax" not in text
    rng = np.random.default_rng(3)
    values = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    np.testing.assert_allclose(run(recognized, *values)[0], run(mod, *values)[0], atol=2e-6)


@pytest.mark.parametrize(
    ("keys", "exchange"), [((6, 8, 7), False), ((6, 8, 1), False), ((6, 7, 8), True)]
)
def test_keys_that_may_be_a_cache_are_not_exchanged(keys: Any, exchange: bool) -> None:
    """A key that is stored as the product takes it has to have the length of the queries."""
    length = keys[1] if exchange else keys[2]
    mod = program_of(
        lambda emit, *given: merged(emit, *given, channels_first=False, exchange=exchange),
        (6, 6, 8), keys, (6, length, 8),
    )  # fmt: skip
    assert ("R.nn.attention" in recognized_of(mod).script()) is exchange


def test_weights_of_another_rank_are_no_attention() -> None:
    def body(emit: Any, q: Any, k: Any, v: Any) -> Any:
        weights = emit(R.nn.softmax(emit(R.matmul(q, emit(R.permute_dims(k, [1, 0]))))))
        return emit(R.matmul(weights, v))

    mod = program_of(body, *[(6, 8)] * 3)
    assert "R.nn.attention" not in recognized_of(mod).script()
