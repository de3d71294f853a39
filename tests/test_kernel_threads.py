"""Kernels on several threads: the pool of the process, and results that do not depend on it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Shape
from relaxvm.core._threads import MAX_THREADS, count_sections
from relaxvm.core.processors import quota
from relaxvm.errors import CancelledError, LimitError
from relaxvm.kernels import bfloat16, blocks, integers, linear
from relaxvm.kernels._tiles import offer
from relaxvm.kernels.cpu import SETS

from . import children
from .operators.trees import forest
from .test_kernel_sets import of_set
from .time_attacks import machine

pytestmark = pytest.mark.skipif(
    not SETS or sys.platform == "win32", reason="no threads of kernels on this machine"
)

COUNTS = (1, 2, 3, 7)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Leave the number of threads as it was."""
    before = relaxvm.get_num_threads()
    yield
    relaxvm.set_num_threads(before)


# Results

rng = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def conv(
    name: str, x: np.ndarray, weight: np.ndarray, out: tuple[int, ...], *, stride: int = 1,
    pad: int = 0, groups: int = 1, residual: bool = False, channels: np.ndarray | None = None,
) -> tuple[str, list[Any], list[tuple[int, ...]]]:  # fmt: skip
    listed = [] if channels is None else [channels]
    args = [x, weight, drawn(out[1] * 16), drawn(*out) if residual else None, *listed,
            (stride,) * 2, (pad,) * 4, (1, 1), groups, 0.0, None, drawn(out[1] * 16), "silu", 0.5,
            None]  # fmt: skip
    return name, args, [out]


def gathered() -> tuple[str, list[Any], list[tuple[int, ...]]]:
    packed, channels = blocks.pack_gathered(drawn(48, 10, 3, 3), 3, np.arange(30))
    return conv("nn.conv2d_gathered_blocks", drawn(1, 2, 30, 30, 16), packed, (1, 3, 30, 30, 16),
                pad=1, channels=channels)  # fmt: skip


def chain() -> tuple[str, list[Any], list[tuple[int, ...]]]:
    text = "add($0, $1); nn.apply(%0, tanh); multiply(%1, $0) -> %2"
    offer(text)
    return "fused", [drawn(70, 30, 101), drawn(30, 1), text], [(70, 30, 101)]


def lstm(steps: int, batch: int, size: int) -> tuple[str, list[Any], list[tuple[int, ...]]]:
    padded = -(-size // 16) * 16
    args = [drawn(steps, batch, 40), drawn(2, padded // 4, 40, 16), drawn(2, padded // 4, size, 16),
            drawn(2, 4 * padded), drawn(2, batch, size), drawn(2, batch, size),
            rng.integers(0, steps + 1, batch), "bidirectional"]  # fmt: skip
    return "nn.lstm_blocks", args, [(steps, 2, batch, size), (2, batch, size), (2, batch, size)]


def gru(
    steps: int, batch: int, size: int, linear: int
) -> tuple[str, list[Any], list[tuple[int, ...]]]:
    padded = -(-size // 16) * 16
    args = [drawn(steps, batch, 40), drawn(2, 3 * padded // 16, 40, 16),
            drawn(2, 3 * padded // 16, size, 16), drawn(2, 3 * padded), drawn(2, padded),
            drawn(2, batch, size), None, "bidirectional", linear]  # fmt: skip
    return "nn.gru_blocks", args, [(steps, 2, batch, size), (2, batch, size)]


def whole(*shape: int) -> np.ndarray:
    return rng.integers(-5, 250, shape)


def drawn_bytes(*shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def packed(found: integers.Packed | None) -> list[Any]:
    assert found is not None
    return [found.weight, found.sums, found.shift]


def integer_linear(
    rows: int, inputs: int, columns: int
) -> tuple[str, list[Any], list[tuple[int, ...]]]:
    args = [drawn_bytes(rows, inputs), np.array(9, np.uint8),
            *packed(integers.pack_integers(whole(inputs, columns))), None,
            np.array(0.01, np.float32), drawn(columns), "gelu", None, None]  # fmt: skip
    return "nn.integer_linear_blocks", args, [(rows, columns)]


def linear_bfloat16(
    rows: int, inputs: int, columns: int
) -> tuple[str, list[Any], list[tuple[int, ...]]]:
    weight = bfloat16.pack_matrix(drawn(inputs, columns))
    args = [drawn(rows, inputs), weight, None, drawn(rows, columns), "gelu", 1]
    return "nn.linear_bfloat16", args, [(rows, columns)]


LINEAR = ("linear", "half_pixel", "floor", -0.75, 0, 0, 0.0, "stretch")
POOL = ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1))

FLOATS = (np.float32,) * 3
TYPES: dict[str, tuple[Any, ...]] = {
    "cast": (np.float64,), "quantize_bytes": (np.uint8,),
    "quantization_range": (np.float32, np.uint8),
}  # fmt: skip
"""Of the results, where they are not float32."""

CASES: dict[str, Callable[[], tuple[str, list[Any], list[tuple[int, ...]]]]] = {
    "chain": chain,
    "direct": lambda: conv(
        "nn.conv2d_blocks", drawn(1, 3, 40, 33, 16), drawn(5, 3, 3, 3, 16, 16),
        (1, 5, 20, 17, 16), stride=2, pad=1, residual=True,
    ),
    "direct, large weights": lambda: conv(
        "nn.conv2d_blocks", drawn(2, 8, 9, 9, 16), drawn(9, 8, 3, 3, 16, 16), (2, 9, 7, 7, 16)
    ),
    "direct, pixels": lambda: conv(
        "nn.conv2d_blocks", drawn(2, 6, 31, 29, 16), drawn(5, 6, 1, 1, 16, 16), (2, 5, 31, 29, 16)
    ),
    "direct, few pixels": lambda: conv(
        "nn.conv2d_blocks", drawn(1, 32, 7, 7, 16), drawn(33, 32, 1, 1, 16, 16), (1, 33, 7, 7, 16)
    ),
    "direct, groups": lambda: conv(
        "nn.conv2d_blocks", drawn(2, 6, 20, 20, 16), drawn(9, 2, 3, 3, 16, 16), (2, 9, 18, 18, 16),
        groups=3,
    ),
    "planes": lambda: conv(
        "nn.conv2d_blocks", drawn(2, 3, 90, 91), drawn(3, 3, 7, 7, 16), (2, 3, 45, 46, 16),
        stride=2, pad=3,
    ),
    "gathered": gathered,
    "depthwise, copied": lambda: conv(
        "nn.conv2d_depthwise_blocks", drawn(2, 9, 28, 28, 16), drawn(9, 5, 5, 16),
        (2, 9, 28, 28, 16), pad=2,
    ),
    "depthwise, rows": lambda: conv(
        "nn.conv2d_depthwise_blocks", drawn(1, 2, 90, 95, 16), drawn(2, 3, 3, 16),
        (1, 2, 90, 95, 16), pad=1, residual=True,
    ),
    "winograd, few tiles": lambda: conv(
        "nn.conv2d_winograd_blocks", drawn(1, 16, 9, 10, 16), drawn(36, 17, 16, 16, 16),
        (1, 17, 9, 10, 16), pad=1,
    ),
    "winograd, many tiles": lambda: conv(
        "nn.conv2d_winograd_blocks", drawn(2, 2, 75, 77, 16), drawn(36, 3, 2, 16, 16),
        (2, 3, 75, 77, 16), pad=1, residual=True,
    ),
    "mean": lambda: ("nn.mean_blocks", [drawn(2, 9, 60, 61, 16)], [(2, 9, 1, 1, 16)]),
    "gate": lambda: (
        "nn.gate_blocks",
        [drawn(1, 2, 150, 160, 16), drawn(1, 2, 1, 1, 16), drawn(1, 2, 150, 160, 16)],
        [(1, 2, 150, 160, 16)],
    ),
    "concat": lambda: (
        "concat", [drawn(2, 1, 90, 80, 16), drawn(2, 3, 90, 80, 16), 1], [(2, 4, 90, 80, 16)]
    ),
    "resize": lambda: (
        "image.resize",
        [drawn(1, 2, 80, 70, 16), None, None, (2, 3), (160, 150), *LINEAR],
        [(1, 2, 160, 150, 16)],
    ),
    "trees": lambda: (
        "tree_ensemble",
        [drawn(1500, 9), *forest(np.random.default_rng(0), 40, 7, 9, 3), "SUM", 3],
        [(1500, 3)],
    ),
    "to_blocks": lambda: ("nn.to_blocks", [drawn(1, 19, 210, 211)], [(1, 2, 210, 211, 16)]),
    "from_blocks": lambda: (
        "nn.from_blocks", [drawn(1, 2, 210, 211, 16)], [(1, 19, 210, 211)]
    ),
    "max_pool": lambda: (
        "nn.max_pool2d_blocks", [drawn(1, 3, 80, 81, 16), *POOL, 0], [(1, 3, 40, 41, 16)]
    ),
    "avg_pool": lambda: (
        "nn.avg_pool2d_blocks", [drawn(1, 3, 80, 81, 16), *POOL, 0, 1], [(1, 3, 40, 41, 16)]
    ),
    "linear": lambda: (
        "nn.linear_blocks",
        [drawn(97, 210), linear.pack_linear(drawn(210, 333)), drawn(336), drawn(97, 333), "gelu"],
        [(97, 333)],
    ),
    "linear, many rows": lambda: (
        "nn.linear_blocks", [drawn(3000, 50), linear.pack_linear(drawn(50, 40)), None, None, None],
        [(3000, 40)],
    ),
    "linear, one row": lambda: (
        "nn.linear_blocks",
        [drawn(1, 1500), linear.pack_linear(drawn(1500, 1100)), None, None, "relu"], [(1, 1100)],
    ),
    "bfloat16 linear": lambda: linear_bfloat16(297, 610, 733),
    "bfloat16 linear, many rows": lambda: linear_bfloat16(6000, 150, 140),
    "bfloat16 linear, one row": lambda: linear_bfloat16(1, 3000, 1100),
    "float16 linear": lambda: (
        "nn.linear_float16",
        [drawn(97, 210), bfloat16.pack_halves(drawn(210, 333)), drawn(336), None, "gelu"],
        [(97, 333)],
    ),
    "bfloat16 convolution": lambda: conv(
        "nn.conv2d_bfloat16", drawn(2, 3, 80, 63, 16),
        bfloat16.pack_convolution(drawn(80, 48, 3, 3)), (2, 5, 40, 32, 16), stride=2, pad=1,
        residual=True,
    ),
    "bfloat16 convolution, large weights": lambda: conv(
        "nn.conv2d_bfloat16", drawn(1, 16, 17, 17, 16),
        bfloat16.pack_convolution(drawn(270, 256, 3, 3)), (1, 17, 15, 15, 16),
    ),
    "integer linear": lambda: integer_linear(97, 410, 333),
    "integer linear, one row": lambda: integer_linear(1, 3000, 4000),
    "integer convolution": lambda: (
        "nn.integer_conv2d_blocks",
        [drawn_bytes(2, 3, 40, 33, 16), np.array(9, np.uint8),
         *packed(integers.pack_integer_windows(whole(70, 48, 3, 3))), (2, 1), (1, 1, 1, 1), (1, 1),
         None, np.array(0.01, np.float32), drawn(70), "silu", None, None],
        [(2, 5, 20, 33, 16)],
    ),
    "integer depthwise": lambda: (
        "nn.integer_conv2d_blocks",
        [drawn_bytes(2, 5, 60, 53, 16), np.array(9, np.uint8),
         *packed(integers.pack_integer_depthwise(whole(70, 1, 3, 3))), (1, 2), (1, 1, 1, 1), (1, 1),
         None, np.array(0.01, np.float32), drawn(70), "silu", None, None],
        [(2, 5, 60, 27, 16)],
    ),
    "integer lstm": lambda: (
        "nn.integer_lstm_blocks",
        [drawn(60, 2, 1664), *packed(integers.pack_integer_gates(whole(2, 800, 200))),
         np.abs(drawn(1664)) / 1000, drawn(2, 2, 200), drawn(2, 2, 200), "bidirectional"],
        [(60, 2, 2, 200), (2, 2, 200), (2, 2, 200)],
    ),
    "product of few rows and 4 bits": lambda: (
        "matmul_packed",
        [drawn(3, 1500), drawn_bytes(999, 47, 16), drawn(999 * 47), drawn_bytes(999 * 24), 4, 32],
        [(3, 999)],
    ),
    "product of 4 bits": lambda: (
        "matmul_packed",
        [drawn(33, 1500), drawn_bytes(999, 47, 16), drawn(999 * 47), drawn_bytes(999 * 24), 4, 32],
        [(33, 999)],
    ),
    "quantization range": lambda: (
        "quantization_range", [drawn(2, 9, 90, 91, 16), 140], [(), ()]
    ),
    "quantize": lambda: (
        "quantize_bytes", [drawn(700001), np.array(0.01, np.float32), None], [(700001,)]
    ),
    "lstm, long": lambda: lstm(60, 2, 60),
    "lstm, large": lambda: lstm(3, 20, 180),
    "gru, long": lambda: gru(60, 2, 60, 1),
    "gru, large": lambda: gru(3, 20, 180, 1),
    "gru, reset first": lambda: gru(3, 20, 180, 0),
    "apply": lambda: ("nn.apply", [drawn(70001), "tanh"], [(70001,)]),
    "attention": lambda: (
        "nn.attention_tiles",
        [*(drawn(2, 3, 100, 33) for _ in range(3)), drawn(2, 1, 1, 100), None, "TopLeft", 1],
        [(2, 100, 3, 33)],
    ),
    "attention, one query": lambda: (
        "nn.attention_tiles",
        [drawn(1, 1, 6, 64), drawn(1, 900, 6, 64), drawn(1, 900, 6, 64), None, None, None, 0],
        [(1, 1, 6, 64)],
    ),
    "softmax": lambda: ("nn.softmax_rows", [drawn(500, 333), 0.5], [(500, 333)]),
    "lrn": lambda: ("nn.lrn", [drawn(2, 33, 31, 29), 5, 0.3, 0.75, 1.0], [(2, 33, 31, 29)]),
    "layer_norm": lambda: (
        "nn.layer_norm_rows", [drawn(500, 333), drawn(333), drawn(333), 1e-5], [(500, 333)]
    ),
    # Movement: all kinds of copies.
    "transpose": lambda: (
        "permute_dims", [drawn(2, 301, 5, 203), Shape((0, 3, 2, 1))], [(2, 203, 5, 301)]
    ),
    "transpose, far rows": lambda: (
        "permute_dims", [drawn(512, 512), Shape((1, 0))], [(512, 512)]
    ),
    "transpose, heads": lambda: (
        "permute_dims", [drawn(2, 128, 12, 64), Shape((0, 2, 1, 3))], [(2, 12, 128, 64)]
    ),
    "transpose, colours": lambda: (
        "permute_dims", [drawn(1, 224, 224, 3), Shape((0, 3, 1, 2))], [(1, 3, 224, 224)]
    ),
    "reshape of columns": lambda: ("reshape", [drawn(300, 401).T], [(300 * 401,)]),
    "broadcast": lambda: ("broadcast_to", [drawn(64, 1, 50)], [(4, 64, 30, 50)]),
    "broadcast, rows": lambda: ("broadcast_to", [drawn(700, 1)], [(700, 500)]),
    "flip": lambda: ("flip", [drawn(300, 401), 1], [(300, 401)]),
    "slice": lambda: (
        "strided_slice",
        [drawn(3, 701, 350), *map(Shape, ((1, 2), (1, -1), (-1, -351), (2, -1)))],
        [(3, 350, 350)],
    ),
    "concat, columns": lambda: (
        "concat", [drawn(900, 200), drawn(900, 1), drawn(900, 150), 1], [(900, 351)]
    ),
    "stack": lambda: ("stack", [drawn(300, 401), drawn(300, 401), 2], [(300, 401, 2)]),
    "split": lambda: (
        "split", [drawn(128, 2304), 3, 1], [(128, 768), (128, 768), (128, 768)]
    ),
    "take, rows": lambda: (
        "take", [drawn(3000, 200), rng.integers(-3000, 3000, (9, 50)), 0, "python"], [(9, 50, 200)]
    ),
    "take, elements": lambda: ("take", [drawn(90, 700), rng.integers(0, 700, 999), 1], [(90, 999)]),
    "pad": lambda: (
        "nn.pad", [drawn(1, 60, 56, 57), Shape((0, 0, 0, 0, 1, 2, 3, 1)), "reflect", 0],
        [(1, 60, 59, 61)],
    ),
    "pad, one row": lambda: (
        "nn.pad", [drawn(300000), Shape((500, 20)), "constant", 1.5], [(300520,)]
    ),
    "full": lambda: ("full", [1.5], [(999, 400)]),
    "cast, wider": lambda: ("cast", [drawn(999, 300)], [(999, 300)]),
}  # fmt: skip


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("case", CASES)
def test_results_are_the_same_bits_for_every_number_of_threads(case: str, which: str) -> None:
    name, args, shapes = CASES[case]()
    run = of_set(name, which)
    wanted: list[np.ndarray] = []
    for count in COUNTS:
        relaxvm.set_num_threads(count)
        before = count_sections()
        outs = [np.full(shape, 99, dtype)
                for shape, dtype in zip(shapes, TYPES.get(name, FLOATS), strict=False)]  # fmt: skip
        run(*args, *outs)
        assert (count_sections() > before) == (count > 1), "the work was divided"
        if count == 1:
            assert all(np.isfinite(out).all() for out in outs)
            wanted = outs
        for out, want in zip(outs, wanted, strict=True):
            np.testing.assert_array_equal(out, want, err_msg=f"{count} threads")


def test_small_work_stays_on_its_thread() -> None:
    relaxvm.set_num_threads(4)
    before = count_sections()
    run = of_set("nn.linear_blocks", SETS[0])
    for rows in (1, 8):
        out = np.empty((rows, 64), np.float32)
        run(drawn(rows, 64), linear.pack_linear(drawn(64, 64)), None, None, None, out)
    assert count_sections() == before


# The workspace


def test_trim_gives_back_the_workspace() -> None:
    """That kernels keep for all machines of the process; `close` leaves it to the others."""
    name, args, shapes = CASES["winograd, many tiles"]()
    run = of_set(name, SETS[0])
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        builder.emit_ret(builder.r(0))
    vm, other = (relaxvm.VirtualMachine(builder.get()) for _ in range(2))
    relaxvm.set_num_threads(1)
    vm.trim()
    wanted: list[np.ndarray] = []
    for _ in range(2):
        out = np.zeros(shapes[0], np.float32)
        run(*args, out)
        wanted.append(out)
        other.close()
        freed = vm.trim()
        assert 1 << 16 < freed <= 32 << 20
        assert vm.trim() == 0
    np.testing.assert_array_equal(*wanted)


# The pool


class Layer:
    """A product that takes a millisecond or so, and its result on one thread."""

    def __init__(self, seed: int) -> None:
        numbers = np.random.default_rng(seed)
        self.x = numbers.standard_normal((128, 500)).astype(np.float32)
        weight = numbers.standard_normal((500, 512)).astype(np.float32)
        self.weight = linear.pack_linear(weight)
        self.run = of_set("nn.linear_blocks", SETS[0])
        relaxvm.set_num_threads(1)
        self.want = self.got()

    def got(self) -> np.ndarray:
        out = np.empty((128, 512), np.float32)
        self.run(self.x, self.weight, None, None, None, out)
        return out


def test_threads_of_python_share_the_pool() -> None:
    layers = [Layer(seed) for seed in range(8)]
    relaxvm.set_num_threads(3)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(60):
            if not np.array_equal(layers[number].got(), layers[number].want):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=[i]) for i in range(len(layers))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_number_of_threads_changes_while_kernels_run() -> None:
    layer = Layer(1)
    stop = threading.Event()

    def change() -> None:
        count = 0
        while not stop.is_set():
            count += 1
            relaxvm.set_num_threads(1 + count % 5)
            time.sleep(0.0005)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(300):
            assert np.array_equal(layer.got(), layer.want)
    finally:
        stop.set()
        changer.join()


CHILD = """
import os, sys, threading, time
import numpy as np
import relaxvm
from relaxvm import Shape
from relaxvm.core._threads import count_sections
from relaxvm.kernels import _table, linear
from relaxvm.kernels.cpu import SETS

names = tuple(row[0] for row in _table.rows(SETS[0]) if row[1] == "nn.linear_blocks")
kernel = _table.DispatchedKernel(print, names, None, SETS[0])
weight = linear.pack_linear(np.random.default_rng(0).standard_normal((400, 512)).astype(np.float32))
x = np.random.default_rng(1).standard_normal((128, 400)).astype(np.float32)

def product():
    out = np.empty((128, 512), np.float32)
    kernel(x, weight, None, None, None, out)
    return out

"""


def child(code: str, **environment: str) -> None:
    children.run(
        [sys.executable, "-W", "ignore", "-c", CHILD + code], check=True,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_there_is_one_pool() -> None:
    """However many threads of Python call kernels, there are as many workers as were asked for."""
    child("""
def count():
    return len(os.listdir("/proc/self/task"))
relaxvm.set_num_threads(3)
before = count()
def work():
    for _ in range(20):
        product()
workers = [threading.Thread(target=work) for _ in range(6)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert count_sections() > 0
end = time.monotonic() + 60
while count() > before + 2 and time.monotonic() < end:
    time.sleep(0.01)   # a thread that was joined may not be gone yet
assert count() == before + 2, (count(), before)
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_process_has_threads_of_its_own() -> None:
    child("""
relaxvm.set_num_threads(1)
want = product()
relaxvm.set_num_threads(3)
over = threading.Event()
def work():
    while not over.is_set():
        assert np.array_equal(product(), want)
other = threading.Thread(target=work, daemon=True)   # so that threads have work at some forks
other.start()
for _ in range(20):
    pid = os.fork()
    if not pid:
        before = count_sections()
        for _ in range(5):
            assert np.array_equal(product(), want)
        os._exit(0 if count_sections() > before else 3)
    assert os.waitpid(pid, 0)[1] == 0
over.set()
other.join()
assert np.array_equal(product(), want)
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_handler_of_signals_forks_in_the_middle_of_a_kernel() -> None:
    """Parent and child have the whole result, and the handler calls a kernel itself."""
    child("""
import signal
relaxvm.set_num_threads(3)
small, weights = product(), (weight, x)
draw = np.random.default_rng(2)
weight = linear.pack_linear(draw.standard_normal((2048, 512)).astype(np.float32))
x = draw.standard_normal((512, 2048)).astype(np.float32)
def large():   # takes long enough to look at signals
    out = np.empty((512, 512), np.float32)
    kernel(x, weight, None, None, None, out)
    return out
want = large()
pids, main = [], os.getpid()
small_weight, small_x = weights
def handle(*_):
    pids.append(os.fork())
    if not pids[-1]:
        signal.alarm(600)   # ends it if it hangs
    out = np.empty((128, 512), np.float32)
    kernel(small_x, small_weight, None, None, None, out)
    assert np.array_equal(out, small)
signal.signal(signal.SIGUSR1, handle)
for turn in range(20):
    delay = turn * 0.001
    sender = threading.Timer(delay, os.kill, (main, signal.SIGUSR1))
    sender.start()
    got = large()
    while len(pids) <= turn:
        got = large()
    if os.getpid() != main:
        os._exit(0 if np.array_equal(got, want) and np.array_equal(large(), want) else 3)
    sender.join()
    assert np.array_equal(got, want)
    assert os.waitpid(pids[turn], 0)[1] == 0
""")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity")
def test_the_default_is_the_affinity_of_the_process() -> None:
    child(
        """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
product()
assert relaxvm.get_num_threads() == 1
assert count_sections() == 0
""",
        RELAXVM_NUM_THREADS="",
    )


def test_settings() -> None:
    default = _default()
    for count in (1, 3, MAX_THREADS):
        relaxvm.set_num_threads(count)
        assert relaxvm.get_num_threads() == count
    relaxvm.set_num_threads(None)
    assert relaxvm.get_num_threads() == default
    child("assert relaxvm.get_num_threads() == 5", RELAXVM_NUM_THREADS="5")


def _default() -> int:
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(processors, quota() or processors, MAX_THREADS)


@pytest.mark.parametrize("end", ["limit", "interrupt", "cancel"])
def test_long_kernels_end_soon(end: str) -> None:
    """A product that takes more than a second of one core."""
    relaxvm.set_num_threads(3)
    rows, inputs, outputs = 1 << 12, 1 << 11, 1 << 13
    args = [np.zeros((rows, inputs), np.float32), np.zeros((outputs // 16, inputs, 16), np.float32),
            None, None, None, np.zeros((rows, outputs), np.float32)]  # fmt: skip
    name = "relaxvm.kernel.nn.linear_blocks"
    vm = machine(name, args, **({"wall_time": SOON} if end == "limit" else {}))
    action = {"interrupt": lambda: signal.raise_signal(signal.SIGINT), "cancel": vm.cancel}
    timer = threading.Timer(SOON, action.get(end, lambda: None))
    before = count_sections()
    timer.start()
    begun = time.process_time()
    with pytest.raises(ERRORS[end]):
        vm["main"](*args)
    assert time.process_time() - begun < SOON * 3 + SLACK
    assert count_sections() > before
    timer.join()


SOON = 0.03
SLACK = 0.5
"""Seconds of processor time from the end of that to the end of the call; 0.1 on an idle machine."""

ERRORS: dict[str, type[BaseException]] = {
    "limit": LimitError, "interrupt": KeyboardInterrupt, "cancel": CancelledError,
}  # fmt: skip


# Control groups


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def test_quotas_of_control_groups(tmp_path: Path) -> None:
    process, mount = tmp_path / "cgroup", tmp_path / "mount"
    read = lambda: quota(str(process), str(mount))  # noqa: E731
    assert read() is None
    process.write_text("0::/a/b\n")
    assert read() is None
    group(mount / "a" / "b", cpu__max="max 100000")
    assert read() is None
    group(mount / "a" / "b", cpu__max="250000 100000")
    assert read() == 3
    group(mount / "a", cpu__max="150000 100000")
    assert read() == 2
    group(mount, cpu__max="1000 100000")
    assert read() == 1
    for text in ("", "nonsense", "-1 5", "5 0", "1 2 3"):
        group(mount, cpu__max=text)
        assert read() == 2


def test_quotas_of_control_groups_of_version_1(tmp_path: Path) -> None:
    process, mount = tmp_path / "cgroup", tmp_path / "mount"
    process.write_text("9:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n")
    for name in ("cpu,cpuacct", "cpu"):
        group(mount / name, cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
        assert quota(str(process), str(mount)) is None
        group(mount / name, cpu__cfs_quota_us="200000")
        assert quota(str(process), str(mount)) == 2
        group(mount / name, cpu__cfs_quota_us="-1")
