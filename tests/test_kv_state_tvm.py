"""Paged caches and recurrent states compared with apache-tvm's, with its kernels for CPUs."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from relaxvm import Shape, get_func
from relaxvm.builtins import PREFIX

tvm = pytest.importorskip("tvm")
kv_cache = pytest.importorskip("tvm.relax.frontend.nn.llm.kv_cache")
tvm_ffi = pytest.importorskip("tvm_ffi")

QUERY_HEADS, HEADS, DIM, PAGE, LAYERS = 4, 2, 8, 16, 2
DTYPE = "float32"
SCALE = 0.35


def ours(name: str) -> Callable[..., Any]:
    return get_func(PREFIX + name)


def theirs(name: str) -> Callable[..., Any]:
    return tvm.get_global_func(PREFIX + name)


@functools.cache
def kernels() -> dict[str, Any]:
    """TVM's kernels, built for this processor."""
    shape = (HEADS, QUERY_HEADS, DIM, DTYPE)
    functions = {
        "append": kv_cache._kv_cache_transpose_append(HEADS, DIM, DTYPE),
        "ragged": kv_cache._attention_prefill_ragged_cpu(
            HEADS, QUERY_HEADS, DIM, DIM, DTYPE, {}
        ),
        "prefill": kv_cache._attention_prefill_cpu(*shape, False, {}),
        "decode": kv_cache._attention_decode_cpu(*shape, False, {}),
        "prefill sliding": kv_cache._attention_prefill_cpu(*shape, True, {}),
        "decode sliding": kv_cache._attention_decode_cpu(*shape, True, {}),
        "tree": kv_cache.tree_attn_cpu(*shape, {}),
        "paged tree": kv_cache.tree_attn_with_paged_kv_cache_cpu(*shape, {}),
        "merge": kv_cache._merge_state_inplace_cpu(DTYPE),
        "rotate": kv_cache.llama_rope_with_position_map(
            10000.0, 1.0, DIM, QUERY_HEADS, HEADS, DTYPE, {}
        ),
        "copy": kv_cache._copy_single_page_cpu(HEADS, PAGE, DIM, DTYPE),
        "get": kv_cache._kv_cache_debug_get_kv(LAYERS, HEADS, DIM, DTYPE),
        "compact": kv_cache._compact_kv_copy_cpu(HEADS, DIM, DTYPE),
    }
    found = {}
    for name, function in functions.items():
        module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        found[name] = tvm.compile(module, target="llvm")["main"]
    return found


def nothing(*args: Any) -> None:
    return None


class Pair:
    """A cache of each side; a call goes to both."""

    def __init__(
        self, rope: int = 0, slides: int = 0, kinds: Sequence[int] = (0, 0), pages: int = 32,
        page: int = PAGE, computes: bool = True,
    ) -> None:  # fmt: skip
        config = [8, pages * page, 64, page, slides, 1024]
        numbers = (QUERY_HEADS, HEADS, DIM, DIM)
        if computes:
            k: Any = kernels()
        else:
            k = dict.fromkeys(
                ("append", "merge", "rotate", "copy", "get", "compact"), tvm_ffi.convert(nothing)
            )
        attention = [["tirx", k[name]] if name in k else [] for name in (
            "ragged", "prefill", "decode", "prefill sliding", "decode sliding", "paged tree", "tree"
        )]  # fmt: skip
        self.theirs = theirs("paged_attention_kv_cache_create")(
            tvm_ffi.Shape(config), tvm_ffi.Shape([0, LAYERS]), *numbers, tvm_ffi.Shape(kinds),
            False, rope, 1.0, 10000.0, None, tvm.runtime.empty((), DTYPE), k["append"], None,
            *attention, [], [k["merge"], k["merge"]], k["rotate"], k["copy"], k["get"],
            k["compact"],
        )  # fmt: skip
        self.ours = ours("paged_attention_kv_cache_create")(
            Shape(config), Shape([0, LAYERS]), *numbers, Shape(kinds), False, rope, 1.0, 10000.0,
            None, np.zeros((), DTYPE), *[None] * 15,
        )  # fmt: skip
        self.rng = np.random.default_rng(0)

    def __call__(self, name: str, *args: Any) -> Any:
        """Call a builtin of both, with lists as shapes; their results are equal."""
        given = [tvm_ffi.Shape(each) if isinstance(each, list) else each for each in args]
        expected = theirs(name)(self.theirs, *given)
        got = ours(name)(self.ours, *[Shape(x) if isinstance(x, list) else x for x in args])
        if hasattr(expected, "numpy"):
            np.testing.assert_array_equal(got, expected.numpy())
        else:
            assert got == expected
        return got

    def state(self) -> None:
        for name in ("get_num_available_pages", "get_total_sequence_length", "empty"):
            self(f"attention_kv_cache_{name}")

    def attention(self, name: str, layer: int, results: list[Any], *tensors: Any) -> None:
        """Call a function of attention of both, and compare what it writes."""
        expected = [tvm.runtime.tensor(each) for each in results]
        theirs(name)(
            self.theirs, layer, SCALE, *[tvm.runtime.tensor(each) for each in tensors], *expected
        )
        ours(name)(self.ours, layer, SCALE, *tensors, *results)
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=2e-6)

    def draw(self, *shape: int) -> Any:
        return self.rng.standard_normal(shape).astype(DTYPE)

    def begin(self, batch: list[int], counts: list[int], tree: list[int] | None = None) -> int:
        self("kv_state_begin_forward", batch, counts, tree)
        return sum(counts)

    def forward(self, batch: list[int], counts: list[int], tree: list[int] | None = None) -> None:
        count = self.begin(batch, counts, tree)
        for layer in range(LAYERS):
            qkv = self.draw(count, QUERY_HEADS + 2 * HEADS, DIM)
            self.attention(
                "attention_kv_cache_attention_with_fused_qkv", layer,
                [np.zeros((count, QUERY_HEADS, DIM), DTYPE)], qkv,
            )  # fmt: skip
        self("attention_kv_cache_get_query_positions")
        self("kv_state_end_forward")
        self.state()

    def kept(self, number: int) -> None:
        """Compare all keys and values of a sequence."""
        count = ours("attention_kv_cache_get_sequence_length")(self.ours, number)
        results = [np.zeros((LAYERS, count, HEADS, DIM), DTYPE) for _ in range(2)]
        expected = [tvm.runtime.tensor(each) for each in results]
        theirs("attention_kv_cache_debug_get_kv")(self.theirs, number, 0, count, *expected)
        ours("attention_kv_cache_debug_get_kv")(self.ours, number, 0, count, *results)
        for got, want in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("rope", [0, 1, 2])
def test_prompts_and_tokens(rope: int) -> None:
    pair = Pair(rope)
    for number in (0, 1):
        pair("kv_state_add_sequence", number)
    pair.forward([0, 1], [5, 3])
    pair.forward([0, 1], [1, 1])
    pair.forward([1], [7])
    pair.forward([0, 1], [2, 40])
    pair("kv_state_fork_sequence", 1, 2, 20)
    pair("kv_state_fork_sequence", 1, 3, -1)
    pair.forward([0, 1, 2, 3], [1, 1, 1, 1])
    pair.forward([2, 3], [3, 5])
    pair("kv_state_popn", 3, 7)
    pair("kv_state_popn", 1, 30)
    pair.forward([3, 2, 1, 0], [1, 2, 3, 4])
    for number in range(4):
        pair.kept(number)
        pair("kv_state_remove_sequence", number)
    pair.state()


@pytest.mark.parametrize("rope", [0, 1])
def test_trees_of_tokens(rope: int) -> None:
    pair = Pair(rope)
    for number in (0, 1):
        pair("kv_state_add_sequence", number)
    pair.forward([0, 1], [5, 18])
    pair.forward([0, 1], [4, 3], [-1, 0, 0, 1, -1, 0, 0])
    pair("attention_kv_cache_commit_accepted_token_tree_nodes", [0, 1], [3, -1])
    pair.forward([0, 1], [2, 1])
    pair.forward([0, 1], [3, 1], [-1, 0, 0, -1])
    pair.forward([0, 1], [2, 2], [1, 2, 0, 0])  # nodes below those of the pass before


@pytest.mark.parametrize("rope", [0, 1])
def test_sliding_windows(rope: int) -> None:
    pair = Pair(rope, slides=1)
    for number in (0, 1):
        pair("kv_state_add_sequence", number)
    pair("attention_kv_cache_enable_sliding_window_for_seq", 0, 20, 4)
    for batch, counts in [
        ([0], [8]), ([0, 1], [9, 3]), ([0], [1]), ([0], [10]), ([0, 1], [1, 1]), ([0], [25]),
        ([0], [1]), ([0, 1], [5, 6]), ([0], [1]),
    ]:  # fmt: skip
        pair.forward(batch, counts)


def test_layers_with_windows() -> None:
    pair = Pair(1, kinds=(0, 3))
    pair("kv_state_add_sequence", 0)
    for count in (8, 9, 1, 1):
        pair.forward([0], [count])


@pytest.mark.parametrize("rope", [0, 1, 2])
def test_parts_of_attention(rope: int) -> None:
    pair = Pair(rope)
    pair("kv_state_add_sequence", 0)
    pair("kv_state_add_sequence", 1)
    pair.forward([0], [5])
    count = pair.begin([0, 1], [3, 2])
    q, k, v = [pair.draw(count, heads, DIM) for heads in (QUERY_HEADS, HEADS, HEADS)]
    out = [[pair.draw(count, QUERY_HEADS, DIM), pair.draw(count, QUERY_HEADS)] for _ in range(2)]
    name = "attention_kv_cache_"
    pair.attention(f"{name}self_attention", 0, out[0], q, k, v)
    expected, sums = [tvm.runtime.tensor(each) for each in out[1]]
    theirs(f"{name}cross_attention")(pair.theirs, 0, SCALE, tvm.runtime.tensor(q), expected, sums)
    ours(f"{name}cross_attention")(pair.ours, 0, SCALE, q, *out[1])
    np.testing.assert_allclose(out[1][0][:3], expected.numpy()[:3], rtol=1e-5, atol=2e-6)
    np.testing.assert_allclose(out[1][1], sums.numpy(), rtol=1e-5)
    assert not out[1][0][3:].any()  # the sequence 1 has nothing in the cache
    merged = [tvm.runtime.tensor(each) for each in (*out[0], *out[1])]
    theirs(f"{name}merge_attn_output_inplace")(pair.theirs, *merged)
    got = ours(f"{name}merge_attn_output_inplace")(pair.ours, *out[0], *out[1])
    assert got[0] is out[0][0]
    for i in range(2):
        np.testing.assert_allclose(got[i], merged[i].numpy(), rtol=1e-5, atol=2e-6)
    pair.attention(f"{name}attention_with_shared_kv", 0, [np.zeros_like(q)], q, k, v)


def test_numbers_of_pages() -> None:
    """Random sequences of calls leave the same number of free pages."""
    rng = random.Random(1)
    for _ in range(60):
        pair = Pair(pages=15, page=4, computes=False)
        for _ in range(40):
            a, b, count = rng.randrange(8), rng.randrange(8), rng.randrange(1, 4)
            name, *args = rng.choice([
                ["add_sequence", a], ["remove_sequence", a],
                ["fork_sequence", a, b, rng.choice([-1, 0, 1, 3, 4, 5, 8, 9, 12])],
                ["popn", a, rng.choice([0, 1, 2, 4, 5, 9])],
                ["begin_forward", rng.sample(range(8), count),
                 [rng.randrange(1, 5) for _ in range(count)]],
            ])  # fmt: skip
            args = [Shape(each) if isinstance(each, list) else each for each in args]
            try:
                ours(f"kv_state_{name}")(pair.ours, *args)
            except RuntimeError:
                continue  # where a call fails, TVM may have changed something already
            given = [tvm_ffi.Shape(each) if isinstance(each, Shape) else each for each in args]
            theirs(f"kv_state_{name}")(
                pair.theirs, *given, *[None] * (name == "begin_forward")
            )
            pair.state()


def test_checkpoints_are_read_by_the_other() -> None:
    source, target = Pair(1), Pair(1)
    source("kv_state_add_sequence", 0)
    source.forward([0], [PAGE + 3])
    name = "attention_kv_cache_"
    source(f"{name}get_layout_hash")
    text = source(f"{name}get_checkpoint_metadata", 0)
    shape = (1, 2, 2, HEADS, PAGE, DIM)
    for read, write, cache, other, make in (
        (ours, theirs, source.ours, target.theirs, tvm.runtime.tensor),
        (theirs, ours, source.theirs, target.ours, lambda tensor: tensor.numpy()),
    ):
        write(f"{name}prepare_import")(other, 0, text)
        for layer in range(LAYERS):
            group: Any = np.ones(shape, DTYPE)
            if read is theirs:
                group = tvm.runtime.tensor(group)
            read(f"{name}export_page_group")(cache, 0, layer, group)
            write(f"{name}import_page_group")(other, 0, layer, make(group))
        write(f"{name}finish_import")(other, 0)
    target("attention_kv_cache_get_sequence_length", 0)
    target.kept(0)
    target.forward([0], [2])


def test_the_slots_of_a_pass() -> None:
    pair = Pair(computes=False)
    for number in (0, 1):
        pair("kv_state_add_sequence", number)
    pair("kv_state_begin_forward", [0, 1], [PAGE + 3, 2], None)
    assert tuple(pair("kv_cache_disagg_prepare_recv", 0, 20)) == (2, PAGE + 3, 13, 3 * PAGE, 7)


def test_recurrent_states() -> None:
    def get(storage: Any, slots: Any, places: Any, out: Any) -> None:
        found = storage.numpy()[slots.numpy(), places.numpy()]
        tvm.runtime.tensor(found).copyto(out)

    def put(storage: Any, slots: Any, places: Any, data: Any) -> None:
        new = storage.numpy()
        new[slots.numpy(), (places.numpy() + 1) % new.shape[1]] = data.numpy()
        storage.copyfrom(new)

    initial = [np.arange(3, dtype=DTYPE), np.full((2, 2), 7, "float16")]
    functions = [[tvm_ffi.convert(each)] * 2 for each in (get, put)]
    other = theirs("rnn_state_create")(
        LAYERS, 4, 3, *functions, [tvm.runtime.tensor(each) for each in initial]
    )
    own = ours("rnn_state_create")(LAYERS, 4, 3, [None, None], [None, None], initial)

    def both(name: str, *args: Any) -> None:
        ours(name)(own, *[Shape(each) if isinstance(each, list) else each for each in args])
        extra = [None] if name == "kv_state_begin_forward" else []
        theirs(name)(
            other, *[tvm_ffi.Shape(x) if isinstance(x, list) else x for x in args], *extra
        )

    def states(count: int) -> None:
        for layer in range(LAYERS):
            for i, each in enumerate(initial):
                out = np.zeros((count, *each.shape), each.dtype)
                expected = tvm.runtime.tensor(out)
                ours("rnn_state_get")(own, layer, i, out)
                theirs("rnn_state_get")(other, layer, i, expected)
                np.testing.assert_array_equal(out, expected.numpy())

    rng = np.random.default_rng(0)

    def step(batch: list[int], counts: list[int]) -> None:
        both("kv_state_begin_forward", batch, counts)
        states(len(batch))
        for layer in range(LAYERS):
            for i, each in enumerate(initial):
                data = rng.standard_normal((len(batch), *each.shape)).astype(each.dtype)
                assert ours("rnn_state_set")(own, layer, i, data) is own
                theirs("rnn_state_set")(other, layer, i, tvm.runtime.tensor(data))
        both("kv_state_end_forward")
        for number in batch:
            for i in range(len(initial)):
                np.testing.assert_array_equal(
                    ours("rnn_state_debug_get")(own, 1, i, number),
                    theirs("rnn_state_debug_get")(other, 1, i, number).numpy(),
                )

    both("kv_state_add_sequence", 5)
    both("kv_state_add_sequence", 6)
    step([5, 6], [4, 2])
    step([5, 6], [1, 1])
    step([5], [1])
    both("kv_state_fork_sequence", 5, 7, -1)
    both("kv_state_popn", 7, 2)
    step([7, 6, 5], [1, 1, 1])
    both("kv_state_remove_sequence", 6)
    both("kv_state_add_sequence", 6)
    step([6, 5], [1, 1])
