"""Calls of all builtins and kernels while other threads write and reshape their operands.

``python -m tests.race_attacks SEED`` makes the calls one after the other and prints what was
called, how often, and how often it raised an exception.  One thread fills the operands with random
bytes and their old content by turns, another one changes shape, data type and flags.  numpy
computes without Python's lock, so that this happens in the middle of a call.  Results are
meaningless; the process must survive.

With ``RELAXVM_CPU=numpy`` in the environment, kernels have no implementations in C, so that those
in numpy are attacked.  ``python -m tests.race_attacks SEED SECONDS NAME...`` makes the calls of
some kernels and builtins for longer; without names of all.

`resize` with ``refcheck=False`` is left out: it frees memory that numpy itself may be reading.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from relaxvm import Shape, VirtualMachine
from relaxvm.builtins.lm import AttentionKVCache
from relaxvm.builtins.random_numbers import RandomGenerator
from relaxvm.executable import shape_program
from relaxvm.kernels import PREFIX

from .memory_attacks import (
    VM,
    arguments_of,
    conv_bfloat16,
    extended,
    gathered,
    gru,
    importing,
    in_blocks,
    integer_conv,
    integer_linear,
    integer_lstm,
    large_calls_of,
    linear,
    linear_bfloat16,
    linear_float16,
    lstm,
    packed,
    page_group,
    paged,
    program_of,
    recurrent,
    sums,
    tokens,
    trees,
    with_weight,
)
from .operators.table import OPERATORS

__all__: list[str] = []

SECONDS = 0.02
"""For each call, which is repeated until they are over."""


def integers(size: int, dtype: str = "i8", most: int = 100) -> np.ndarray:
    return (np.arange(size) * 7919 % most).astype(dtype)


LARGE = 1 << 16

def heap(size: int = 4) -> np.ndarray:
    return integers(size)


def logits(size: int = LARGE) -> np.ndarray:
    return np.full((1, size), 1 / size, "f4")


def words(count: int = 100, word: str = "word") -> np.ndarray:
    found = np.full(count, word, object)
    found.flags.writeable = False  # no bytes may be written over its objects
    return found


def rows(count: int = 64) -> np.ndarray:
    return np.ones((count, 256), "f4")


def cache() -> AttentionKVCache:
    made = AttentionKVCache(Shape([64, 256]), np.dtype("f4"))
    made.append(rows())
    return made


PROGRAM = shape_program.encode(
    [("load", 0), ("load", 1), "mul", ("store", 2), ("load", 3), ("load", 2), "floordiv",
     ("store", 1)]
)
TYPES = ("i1", "u2", "i4", "f2", "f4")

N = 48
"""Rows and columns of a matrix."""


def matrix() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(N, N)) + N * np.eye(N)


CALLS: dict[str, list[Any]] = {
    f"{PREFIX}argsort": [
        lambda t=t: [integers(LARGE, t), 0, False, integers(LARGE)] for t in TYPES],
    f"{PREFIX}sort": [
        lambda down=down: [integers(LARGE, "u2"), 0, down, integers(LARGE, "u2")]
        for down in (False, True)],
    f"{PREFIX}topk": [lambda: [integers(LARGE, "u1"), 99, 0, "indices", True, integers(99)]],
    f"{PREFIX}take": [
        lambda mode=mode: [integers(100), integers(LARGE), 0, mode, integers(LARGE)]
        for mode in ("fast", "wrap", "clip")],
    f"{PREFIX}gather_elements": [lambda: [integers(100), integers(LARGE), 0, integers(LARGE)]],
    f"{PREFIX}gather_nd": [
        lambda: [integers(100), integers(LARGE).reshape(-1, 1), 0, integers(LARGE)]],
    f"{PREFIX}index_tensor": [lambda: [integers(100), integers(LARGE), integers(LARGE)]],
    f"{PREFIX}scatter_elements": [
        lambda how=how: [integers(100, "f4"), integers(LARGE), integers(LARGE, "f4"), 0, how,
                         integers(100, "f4")]
        for how in ("update", "add", "mean")],
    f"{PREFIX}scatter_nd": [
        lambda how=how: [integers(400).reshape(100, 4), integers(LARGE).reshape(-1, 1),
                         integers(4 * LARGE).reshape(-1, 4), how, integers(400).reshape(100, 4)]
        for how in ("update", "mul")],
    f"{PREFIX}dynamic_strided_slice": [
        lambda: [integers(10000).reshape(100, 100), np.zeros(2, "i8"), np.full(2, 100),
                 np.ones(2, "i8"), integers(10000).reshape(100, 100)]],
    f"{PREFIX}dft": [
        lambda: [integers(20000, "f4").reshape(100, 100, 2), None, 1, 0, 0,
                 integers(20000, "f4").reshape(100, 100, 2)]],
    f"{PREFIX}stft": [
        lambda: [integers(LARGE, "f4").reshape(1, LARGE, 1), 64, integers(64, "f4"), 64, 0,
                 integers(2 * LARGE, "f4").reshape(1, LARGE // 64, 64, 2)]],
    f"{PREFIX}median": [lambda: [integers(LARGE, "f4"), None, np.zeros((), "f4")]],
    f"{PREFIX}bucketize": [
        lambda: [integers(LARGE, "f4"), integers(100, "f4"), 0, integers(LARGE)]],
    f"{PREFIX}index_put": [
        lambda: [integers(100), integers(LARGE), integers(LARGE), 1, integers(100)]],
    f"{PREFIX}reverse_sequence": [
        lambda: [integers(10000).reshape(100, 100), integers(100), 1, 0,
                 integers(10000).reshape(100, 100)]],
    f"{PREFIX}nn.max_pool_indices": [
        lambda: [integers(10000, "f4").reshape(1, 1, 100, 100), (3, 3), (1, 1), (1,) * 4, (1, 1), 0,
                 0, integers(10000).reshape(1, 1, 100, 100)]],
    f"{PREFIX}nn.fold": [
        lambda: [integers(90000, "f4").reshape(1, 9, 10000), (102, 102), (3, 3), (1, 1), (0,) * 4,
                 (1, 1), integers(10404, "f4").reshape(1, 1, 102, 102)]],
    f"{PREFIX}special": [
        lambda: [integers(1000, "f4"), integers(1000, "f4"), "igamma", integers(1000, "f4")]],
    f"{PREFIX}frexp": [
        lambda: [integers(LARGE, "f4"), integers(LARGE, "f4"), integers(LARGE, "i4")]],
    f"{PREFIX}xor_sum": [lambda: [integers(10000).reshape(100, 100), (0,), 0, integers(100, "u8")]],
    f"{PREFIX}segment_reduce": [
        lambda: [integers(100, "f4"), np.full(50, 2), "sum", None, integers(50, "f4")]],
    f"{PREFIX}nn.fractional_max_pool": [
        lambda: [integers(10000, "f4").reshape(1, 1, 100, 100), np.full((1, 1, 2), 0.5, "f4"),
                 (3, 3), (50, 50), integers(2500, "f4").reshape(1, 1, 50, 50),
                 integers(2500).reshape(1, 1, 50, 50)]],
    f"{PREFIX}vision.ps_roi_pool": [
        lambda: [integers(40000, "f4").reshape(1, 4, 100, 100), integers(50, "f4").reshape(10, 5),
                 (2, 2), 1.0, integers(40, "f4").reshape(10, 1, 2, 2)]],
    f"{PREFIX}linalg.lu": [lambda: [matrix(), matrix(), integers(N, "i4")]],
    f"{PREFIX}linalg.solve": [lambda: [matrix(), matrix(), matrix()]],
    f"{PREFIX}linalg.solve_triangular": [lambda: [matrix(), matrix(), 1, 0, matrix()]],
    f"{PREFIX}linalg.cholesky": [lambda: [matrix(), matrix()]],
    f"{PREFIX}linalg.qr": [lambda: [matrix(), 0, matrix(), matrix()]],
    f"{PREFIX}linalg.svd": [lambda: [matrix(), 0, matrix(), np.ones(N), matrix()]],
    f"{PREFIX}linalg.eigh": [lambda: [matrix(), np.ones(N), matrix()]],
    f"{PREFIX}linalg.eig": [lambda: [matrix(), np.ones((N, 2)), np.ones((N, N, 2))]],
    f"{PREFIX}det": [
        lambda: [integers(4 * LARGE, "f4").reshape(-1, 2, 2), integers(LARGE, "f4")]],
    f"{PREFIX}image.center_crop_pad": [
        lambda: [integers(10000, "f4").reshape(100, 100), (0,), (120,),
                 integers(12000, "f4").reshape(120, 100)]],
    f"{PREFIX}vision.select_boxes": [
        lambda: [integers(400, "f4").reshape(1, 100, 4), integers(100, "f4").reshape(1, 1, 100),
                 np.array([9]), np.array([0.5], "f4"), np.array([0.0], "f4"), 0,
                 integers(27).reshape(9, 3)]],
    f"{PREFIX}vision.best_boxes": [
        lambda: [integers(400, "f4").reshape(1, 100, 4), integers(100, "f4").reshape(1, 1, 100),
                 np.array([9]), np.array([0.5], "f4"), np.array([0.0], "f4"),
                 integers(200).reshape(1, 100, 2), integers(100, "f4").reshape(1, 100),
                 integers(1)]],
    f"{PREFIX}vision.non_max_suppression": [
        lambda sigma=sigma: [integers(600, "f4").reshape(1, 100, 6), np.array([90]),
                 integers(100, "i4").reshape(1, 100), 9, 0.5, 0, -1, 2, 1, 0, 1, 0, sigma, 0.0,
                 *[integers(600, "f4").reshape(1, 100, 6)] * (sigma > 0),
                 integers(100, "i4").reshape(1, 100), integers(1, "i4").reshape(1, 1)]
        for sigma in (0.0, 0.5)],
    f"{PREFIX}vision.get_valid_counts": [
        lambda: [integers(600, "f4").reshape(1, 100, 6), 0.5, 0, 1, integers(1, "i4"),
                 integers(600, "f4").reshape(1, 100, 6), integers(100, "i4").reshape(1, 100)]],
    f"{PREFIX}nn.lstm_blocks": [lambda: lstm(20)],
    f"{PREFIX}nn.gru_blocks": [lambda: gru(20)],
    f"{PREFIX}nn.attention_tiles": [
        lambda: [*[integers(2 * 40 * 16, "f4").reshape(1, 2, 40, 16) for _ in range(3)], None, 0.5,
                 None, 1, np.ones((1, 40, 2, 16), "f4")]],
    f"{PREFIX}nn.softmax_rows": [
        lambda: [integers(9000, "f4").reshape(90, 100), 0.5, np.ones((90, 100), "f4")]],
    f"{PREFIX}nn.lrn": [
        lambda: [integers(9000, "f4").reshape(1, 90, 100), 5, 0.5, 0.75, 1.0,
                 np.ones((1, 90, 100), "f4")]],
    f"{PREFIX}nn.layer_norm_rows": [
        lambda: [integers(9000, "f4").reshape(90, 100), np.ones(100, "f4"), np.ones(100, "f4"),
                 1e-5, np.ones((90, 100), "f4")]],
    f"{PREFIX}nn.apply": [lambda: [np.ones(LARGE, "f4"), "tanh", np.ones(LARGE, "f4")]],
    f"{PREFIX}nn.linear_blocks": [lambda: linear(50)],
    f"{PREFIX}nn.linear_bfloat16": [lambda: linear_bfloat16(50)],
    f"{PREFIX}nn.linear_float16": [lambda: linear_float16(50)],
    f"{PREFIX}nn.integer_linear_blocks": [lambda: integer_linear(50)],
    f"{PREFIX}nn.integer_conv2d_blocks": [lambda: integer_conv(30)],
    f"{PREFIX}nn.integer_lstm_blocks": [lambda: integer_lstm(20)],
    f"{PREFIX}quantize_bytes": [
        lambda: [np.ones(LARGE, "f4"), np.array(1, "f4"), np.array(1, "u1"), np.ones(LARGE, "u1")]],
    f"{PREFIX}quantization_range": [
        lambda: [np.ones(LARGE, "f4"), None, np.array(1, "f4"), np.array(1, "u1")]],
    f"{PREFIX}nn.to_blocks": [
        lambda: [integers(16 * 900, "f4").reshape(1, 16, 30, 30),
                 integers(16 * 900, "f4").reshape(1, 1, 30, 30, 16)]],
    f"{PREFIX}nn.from_blocks": [
        lambda: [integers(16 * 900, "f4").reshape(1, 1, 30, 30, 16),
                 integers(16 * 900, "f4").reshape(1, 16, 30, 30)]],
    f"{PREFIX}nn.conv2d_blocks": [lambda: in_blocks(30)],
    f"{PREFIX}nn.conv2d_bfloat16": [lambda: conv_bfloat16(30)],
    f"{PREFIX}nn.conv2d_gathered_blocks": [lambda: gathered(in_blocks(30))],
    f"{PREFIX}nn.conv2d_depthwise_blocks": [lambda: with_weight(in_blocks(30), 2, 3, 3, 16)],
    f"{PREFIX}nn.conv2d_winograd_blocks": [lambda: with_weight(in_blocks(30), 36, 2, 2, 16, 16)],
    f"{PREFIX}nn.mean_blocks": [lambda: [in_blocks(30)[0], np.ones((1, 2, 1, 1, 16), "f4")]],
    f"{PREFIX}nn.gate_blocks": [
        lambda: [in_blocks(30)[0], np.ones((1, 2, 1, 1, 16), "f4"), in_blocks(30)[0],
                 in_blocks(30)[0]]],
    f"{PREFIX}nn.max_pool2d_blocks": [
        lambda: [in_blocks(30)[0], (3, 3), (1, 1), (1,) * 4, (1, 1), 0, in_blocks(30)[0]]],
    f"{PREFIX}nn.avg_pool2d_blocks": [
        lambda: [in_blocks(30)[0], (3, 3), (1, 1), (1,) * 4, (1, 1), 0, 1, in_blocks(30)[0]]],
    f"{PREFIX}tree_ensemble": [lambda: trees(LARGE)],
    f"{PREFIX}extend_cache": [lambda: extended(LARGE)],
    f"{PREFIX}matmul_packed": [lambda: packed(256)],
    "relax.run.nonzero": [
        lambda: [integers(LARGE, "?", 40) == 0], lambda: [integers(LARGE, "i2").reshape(-1, 4)]],
    "relax.run.unique": [
        *(lambda t=t: [integers(LARGE, t), 0, 1, 1, 1, None] for t in TYPES),
        lambda: [integers(LARGE, "u1").reshape(-1, 4), 1, 1, 1, 1, 0]],
    "relaxvm.builtin.strings_indexed": [lambda: [words()]],
    "relaxvm.builtin.strings_take": [lambda: [words(), integers(LARGE)]],
    "relaxvm.builtin.strings_merged": [lambda: [words(), integers(1000), words(), integers(10)]],
    "relaxvm.builtin.string_concat": [lambda: [words(), words()]],
    "relaxvm.builtin.string_equal": [lambda: [words(), words()]],
    "relaxvm.builtin.string_normalize": [lambda: [words(), "UPPER", 1, words(3)]],
    "relaxvm.builtin.string_split": [lambda: [words(), "w", -1]],
    "relaxvm.builtin.regex_full_match": [lambda: [words(), "w+"]],
    "relaxvm.builtin.number_to_string": [lambda: [integers(1000)]],
    "relaxvm.builtin.string_to_number": [lambda: [words(100, "7"), "float32"]],
    "relaxvm.builtin.tf_idf": [
        lambda: [integers(1000), integers(10), (0,), tuple(range(10)), 1, 1, 0, "TF", None]],
    "relaxvm.builtin.tokenize": [lambda: [words(), words(3), 1, 1, "#", 0]],
    "relaxvm.builtin.maps_from": [lambda: [rows(), integers(rows().shape[1])]],
    "relaxvm.builtin.map_vectorize": [lambda: [{1: 2}, integers(1000), "float32"]],
    "relaxvm.builtin.pairwise_probabilities": [lambda: [np.full((500, 3, 3), 0.5)]],
    "relaxvm.builtin.number_from": [lambda: [integers(1)]],
    "relaxvm.builtin.indices_within": [lambda: [integers(1000), 0, 99, "k"]],
    "relaxvm.builtin.nonzero_divisor": [lambda: [integers(1000), "k"]],
    "relaxvm.builtin.int_within": [lambda: [integers(1), 0, 99, "k"]],
    "relaxvm.builtin.sequence_split": [
        lambda: [rows(), None, 0, 0], lambda: [rows(), np.array([30, 34]), 0, 0],
        lambda: [rows(), np.array(7), 1, 0]],
    "relaxvm.builtin.sequence_concat": [lambda: [(rows(), rows()), 1, 0]],
    "relaxvm.builtin.random_multinomial": [lambda: [RandomGenerator(1), logits(), 100, "int64"]],
    "relaxvm.builtin.state_read": [lambda: [VM, "x", rows()]],
    "relaxvm.builtin.state_write": [lambda: [VM, "x", rows()], lambda: [VM, "x", rows().T]],
    "relaxvm.builtin.state_open": [lambda: [VM, "x", rows()]],
    "relaxvm.builtin.cache_open": [lambda: [VM, "x", rows(), 0]],
    "relaxvm.builtin.cache_extend": [lambda: [VM, "x", rows(), 0]],
    "relaxvm.builtin.put": [
        lambda: [rows(), rows(2), (0, 1, 3, 1), ()],
        lambda: [rows(), rows(3), (), (integers(3, "i8", 3),)]],
    "relaxvm.builtin.unshared": [lambda: [rows(), (rows(),)]],
    "relaxvm.builtin.complex_from": [lambda: [np.ones((LARGE, 2), "f4")]],
    "relaxvm.builtin.assign": [lambda: [rows(), rows(), "x"], lambda: [rows(), rows(), "x"]],
    "vm.builtin.store_shape": [lambda: [Shape([4, 5]), heap(), 1, 0]],
    "vm.builtin.load_shape": [lambda: [heap(), 1, 0, 1]],
    "vm.builtin.match_shape": [
        lambda: [rows(), heap(), 2, 1, 0, 1, 3, "ctx "], lambda: [rows(), heap(), 2, 3, 0, 3, 0]],
    "vm.builtin.match_prim_value": [lambda: [5, heap(), 1, 3, ""]],
    "vm.builtin.make_shape": [lambda: [heap(), 3, 0, 7, 1, 1, 1, 0]],
    "vm.builtin.make_prim_value": [lambda: [heap(), 1, 1]],
    "relaxvm.builtin.compute_shape": [lambda: [heap(), PROGRAM]],
    "relaxvm.builtin.check_upper_bound": [lambda: [heap(), 3, 9, "n", None]],
    "vm.builtin.shape_of": [lambda: [rows()]],
    "vm.builtin.tensor_to_shape": [lambda: [integers(1000)]],
    "vm.builtin.check_tensor_info": [lambda: [rows(), 2, np.dtype("f4"), ""]],
    "vm.builtin.read_if_cond": [lambda: [heap()]],
    "relaxvm.builtin.int_from": [lambda: [integers(1).reshape(())]],
    "relaxvm.builtin.scalar_equal": [
        lambda: [integers(1).reshape(()), 3], lambda: [3, integers(1, "u1").reshape(())]],
    "relaxvm.builtin.shape_from": [lambda: [integers(1000)]],
    "vm.builtin.reshape": [
        lambda: [rows(), Shape([32, 512])], lambda: [rows().T, Shape([512, 2])]],
    "vm.builtin.ensure_zero_offset": [lambda: [rows()], lambda: [rows()[1:]]],
    "vm.builtin.to_device": [lambda: [rows(), 1, 0]],
    "vm.builtin.free_tensor": [lambda: [rows()]],
    "vm.builtin.debug_print": [lambda: ["line", rows()]],
    "vm.builtin.print": [lambda: [rows()]],
    "relaxvm.builtin.tensor_property": [lambda: [rows(), "stride_i", 1]],
    "runtime.TVMTensorCreateView": [lambda: [rows(), Shape([3, 4]), np.dtype("i8"), 64]],
    "vm.builtin.attention_kv_cache_create": [lambda: [rows(), Shape([99, 256]), -1]],
    "vm.builtin.attention_kv_cache_append": [lambda: [cache(), rows(1)]],
    "vm.builtin.attention_kv_cache_update": [lambda: [cache(), rows()]],
    "vm.builtin.attention_kv_cache_window_override": [lambda: [cache(), rows(), 100]],
    "vm.builtin.attention_kv_cache_window_override_with_sinks": [lambda: [cache(), rows(), 100, 4]],
    "vm.builtin.paged_attention_kv_cache_create": [
        lambda: [Shape([1, 9, 9, 4, 0]), Shape([0, 1]), 2, 1, 64, 64, Shape([0]), 0, 1, 1.0, 1e4,
                 np.ones(32, "f4"), np.zeros((), "f4"), *[None] * 15]],
    "vm.builtin.attention_kv_cache_attention_with_fused_qkv": [
        lambda: [paged(64), 0, 0.5, tokens(64, 4), tokens(64, 2)]],
    "vm.builtin.attention_kv_cache_self_attention": [
        lambda: [paged(64), 0, 0.5, *(tokens(64, n) for n in (2, 1, 1, 2)), sums(64)]],
    "vm.builtin.attention_kv_cache_cross_attention": [
        lambda: [paged(64, 1), 0, 0.5, tokens(1, 2), tokens(1, 2), sums(1)]],
    "vm.builtin.attention_kv_cache_attention_with_shared_kv": [
        lambda: [paged(64), 0, 0.5, *(tokens(64, n) for n in (2, 1, 1, 2))]],
    "vm.builtin.attention_kv_cache_append_mla_kv": [
        lambda: [paged(64, kind=1), 0, tokens(64, 1)[:, 0]]],
    "vm.builtin.attention_kv_cache_merge_attn_output_inplace": [
        lambda: [paged(0), tokens(64, 2), sums(64), tokens(64, 2), sums(64)]],
    "vm.builtin.attention_kv_cache_debug_get_kv": [
        lambda: [paged(64), 0, 0, 64, tokens(64, 1)[None], tokens(64, 1)[None]]],
    "vm.builtin.attention_kv_cache_debug_get_kv_mla": [
        lambda: [paged(64, kind=1), 0, 0, 64, tokens(64, 1)[None, :, 0]]],
    "vm.builtin.attention_kv_cache_export_page_group": [
        lambda: [paged(64), 0, 0, page_group(64)]],
    "vm.builtin.attention_kv_cache_import_page_group": [
        lambda: [importing(64), 0, 0, page_group(64)]],
    "vm.builtin.rnn_state_get": [lambda: [recurrent(LARGE), 0, 0, np.ones((1, LARGE), "f4")]],
    "vm.builtin.rnn_state_set": [lambda: [recurrent(LARGE), 0, 0, np.ones((1, LARGE), "f4")]],
    "vm.builtin.multinomial_from_uniform": [lambda: [logits(), np.array([[0.3]], "f4")]],
    "vm.builtin.sample_top_p_from_logits": [lambda: [logits(), 1.0, 0.9, 0.5]],
    "vm.builtin.sample_top_p_from_prob": [lambda: [logits(), 0.4, 0.9]],
    "vm.builtin.apply_repetition_penalty": [lambda: [logits(), integers(LARGE, "i4"), 2.0]],
    "vm.builtin.apply_presence_and_frequency_penalty": [
        lambda: [logits(), integers(LARGE, "i4"), np.ones(LARGE, "i4"), 0.5, 0.25]],
    "vm.builtin.apply_softmax_with_temperature": [lambda: [logits(), 2.0]],
}  # fmt: skip
"""Function -> makers of arguments: builtins that take a tensor, and kernels of which numpy reads
elements more than once."""


def calls() -> Iterator[tuple[str, list[Any]]]:
    """Return (function, arguments): large ones, and small ones, which run in C."""
    for name, makers in CALLS.items():
        for make in makers:
            yield name, make()
    texts = [*large_calls_of(1)]
    texts += [(text, cases) for cases in OPERATORS.values() for text in cases.calls()[:1]]
    for text, cases in texts:
        for kernel, args in arguments_of(text, cases):
            yield PREFIX + kernel, args


class Attack:
    """Threads that change arrays until the block ends."""

    def __init__(self, arrays: list[np.ndarray], rng: np.random.Generator) -> None:
        self.over = False
        self.pairs = []
        for array in arrays:
            memory = np.frombuffer(array, np.uint8) if array.flags.c_contiguous else array
            if memory.size and memory.flags.writeable:
                other = rng.integers(0, 256, memory.shape, np.uint8)
                self.pairs.append((memory, memory.copy(), other.astype(memory.dtype)))
        self.contiguous = [
            each for each in arrays
            if each.size and each.ndim and each.base is None and each.flags.c_contiguous
        ]  # fmt: skip
        self.threads = [threading.Thread(target=self.write), threading.Thread(target=self.reshape)]

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self.over = True
        for thread in self.threads:
            thread.join()

    def write(self) -> None:
        while not self.over:
            for memory, old, other in self.pairs:
                np.copyto(memory, other)
                np.copyto(memory, old)
            time.sleep(0)

    def reshape(self) -> None:
        while not self.over:
            for array in self.contiguous:
                shape, dtype = array.shape, array.dtype
                for other in ((array.size,), shape[::-1], (1, array.size)):
                    array.shape = other
                    time.sleep(0)
                array.shape = shape
                for other in ("u1", "c16"):  # more and smaller elements, fewer and larger ones
                    with contextlib.suppress(ValueError):  # an axis is too short for the latter
                        array.dtype = np.dtype(other)
                        time.sleep(0)
                        array.dtype = dtype
                array.setflags(write=False)
                time.sleep(0)
                array.setflags(write=True)
            time.sleep(0.0001)


def main() -> None:
    seed = int(sys.argv[1])
    rng = np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    sys.setswitchinterval(1e-5)
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    wanted = [name if "." in name else PREFIX + name for name in sys.argv[3:]]
    for name, args in calls():
        if wanted and name not in wanted:
            continue
        given = [arg for arg in args if arg is not VM]
        vm = VirtualMachine(program_of(name, args))
        arrays = [arg for arg in given if isinstance(arg, np.ndarray)]
        done = failed = 0
        print(name, file=sys.stderr, flush=True)  # the last one, if the process ends
        with Attack(arrays, rng), contextlib.redirect_stdout(io.StringIO()):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                done += 1
                try:
                    vm.main(*given)
                except Exception:
                    failed += 1
        print(f"@{name}\t{done}\t{failed}", flush=True)


if __name__ == "__main__":
    main()
