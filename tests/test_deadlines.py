"""Every kernel ends soon after a limit, a cancellation or Ctrl-C, whatever it is given to do."""

from __future__ import annotations

import itertools
import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import CancelledError, LimitError
from relaxvm.kernels import record_of
from relaxvm.registry import GLOBAL, KERNEL_PREFIX

from . import children

Make = Callable[[], list[Any]]
"""Gives the arguments of a kernel; the tensors take less than 64 MiB."""

SHORT = frozenset(
    """
    abs negative sign square add subtract multiply divide floor_divide floor_mod mod
    maximum minimum ceil floor round trunc sqrt expm1 log1p acos acosh asin asinh atan atan2 atanh
    sin cos sinh cosh tan tanh exp log bitwise_and bitwise_not bitwise_or bitwise_xor left_shift
    right_shift equal greater greater_equal less less_equal not_equal isfinite isinf isnan
    logical_and logical_not logical_or logical_xor relu where clip cast fill full zeros ones arange
    reshape permute_dims take broadcast_to concat stack split repeat tile flip strided_slice
    rsqrt sigmoid erf nn.silu nn.gelu nn.gelu_tanh
    nn.softmax nn.log_softmax nn.layer_norm nn.rms_norm nn.batch_norm nn.group_norm nn.dropout
    nn.cross_entropy_with_logits cumsum cumprod sum prod mean max min argmax argmin
    """.split()  # noqa: SIM905
)
"""Kernels that take some ns for each element of their tensors, at most ten times as much: memory
bounds their time."""


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


def random(*shape: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def convolution(axes: int) -> list[Any]:
    """Many outputs of large windows."""
    if axes == 1:
        return [zeros(1, 64, 20000), zeros(512, 64, 256), (1,), (128, 127), (1,), 1,
                zeros(1, 512, 20000)]  # fmt: skip
    return [zeros(1, 16, 300, 300), zeros(64, 16, 63, 63), (1, 1), (31, 31, 31, 31), (1, 1), 1,
            zeros(1, 64, 300, 300)]  # fmt: skip


def pool(*flags: int) -> list[Any]:
    return [zeros(1, 1, 2000, 2000), (99, 99), (1, 1), (49, 49, 49, 49), (1, 1), *flags,
            zeros(1, 1, 2000, 2000)]  # fmt: skip


def attention() -> list[Any]:
    tensors = [zeros(1, 6000, 4, 64) for _ in range(3)]
    return [*tensors, None, None, None, zeros(1, 6000, 4, 64)]


def integers() -> list[Any]:
    return [zeros(1500, 1500, dtype="int64") for _ in range(3)]


def chain() -> list[Any]:
    steps = [f"sin({'$0' if i == 0 else f'%{i - 1}'})" for i in range(32)]
    x = random(4_000_000)
    return [x, f"{'; '.join(steps)} -> %31", np.empty_like(x)]


def binary() -> list[Any]:
    x = random(2_000_000) ** 2
    return [x, x, np.empty_like(x)]


def many_operands() -> list[Any]:
    terms = itertools.islice(itertools.cycle(("ab", "bc")), 1000)
    return [*[zeros(20, 20) for _ in range(1000)], f"{','.join(terms)}->ac", zeros(20, 20)]


def rows() -> np.ndarray:
    return random(8, 500_000)


def steps() -> list[Any]:
    """Pads of one element at a time."""
    return [zeros(1), (6_000_000, 6_000_000), "circular", 0, zeros(12_000_001)]


LONG: dict[str, Make] = {
    "nn.conv1d": lambda: convolution(1),
    "nn.conv2d": lambda: convolution(2),
    "nn.max_pool2d": lambda: pool(0),
    "nn.avg_pool2d": lambda: pool(0, 1),
    "nn.attention": attention,
    "matmul": integers,
    "matmul_nt": integers,
    "matmul_tn": integers,
    "linear": lambda: [*integers()[:2], None, zeros(1500, 1500, dtype="int64")],
    "einsum": lambda: [*integers()[:2], "ij,jk->ik", integers()[0]],
    "nn.pad": steps,
    "fused": chain,
    "sort": lambda: [rows(), 1, 0, np.empty_like(rows())],
    "argsort": lambda: [rows(), 1, 0, np.empty_like(rows())],
    "topk": lambda: [rows(), 500_000, 1, "values", 1, np.empty_like(rows())],
    "power": binary,
    "log_add_exp": binary,
}
"""Arguments of kernels whose time is not bounded by memory alone; with these, most of them run for
seconds."""

MAY_END = {"sort", "argsort", "topk", "power", "log_add_exp"}
"""Kernels of `LONG` that may be done within `WALL_TIME`."""

WALL_TIME = 0.05
SLACK = 5.0
"""Seconds of processor time from the deadline to the end; waiting threads of BLAS use some, too."""


def test_every_kernel_is_in_the_table() -> None:
    names = {
        record.name
        for name in GLOBAL.names()
        if name.startswith(KERNEL_PREFIX) and (record := record_of(name)) is not None
    }
    assert names == {*SHORT, *LONG}, names ^ {*SHORT, *LONG}
    assert not SHORT & set(LONG)


def machine(name: str, args: list[Any], **limits: Any) -> relaxvm.VirtualMachine:
    """A program that calls a kernel with its parameters."""
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=len(args)):
        builder.emit_call(KERNEL_PREFIX + name, [builder.r(i) for i in range(len(args))])
        builder.emit_ret(builder.r(0))
    return relaxvm.VirtualMachine(builder.get(), limits=relaxvm.Limits(**limits))


def outcome(name: str, stop: Callable[[relaxvm.VirtualMachine], None], **limits: Any) -> list[Any]:
    """How a run ends that is stopped, and after how much processor time."""
    args = LONG[name]()
    vm = machine(name, args, **limits)
    start = time.process_time()
    try:
        stop(vm)
        vm["main"](*args)
        end = "result"
    except (LimitError, CancelledError, KeyboardInterrupt) as error:
        end = type(error).__name__
    return [name, end, time.process_time() - start]


def cancel_soon(vm: relaxvm.VirtualMachine) -> None:
    timer = threading.Timer(WALL_TIME, vm.cancel)
    timer.daemon = True
    timer.start()


def interrupt_soon(vm: relaxvm.VirtualMachine) -> None:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, WALL_TIME)


def ends(how: str, *names: str) -> list[list[Any]]:
    """The outcomes of some kernels in a process of its own."""
    command = [sys.executable, "-m", "tests.test_deadlines", how, *names]
    done = children.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def main(how: str, *names: str) -> None:
    for name in names:
        if how == "limit":
            found = outcome(name, lambda vm: None, wall_time=WALL_TIME)
        else:
            found = outcome(name, cancel_soon if how == "cancel" else interrupt_soon)
        print(json.dumps(found), flush=True)


def test_a_limit_ends_kernels() -> None:
    found = ends("limit", *LONG)
    assert [name for name, *_ in found] == list(LONG)
    assert not [each for each in found if each[2] > WALL_TIME + SLACK]
    ended = {name for name, end, _ in found if end == "LimitError"}
    assert ended >= set(LONG) - MAY_END, found


def test_einsum_of_many_operands_looks_for_no_order() -> None:
    args = many_operands()
    start = time.process_time()
    machine("einsum", args, wall_time=60.0)["main"](*args)
    assert time.process_time() - start < 10


SOME = "matmul", "nn.conv2d", "nn.max_pool2d", "fused", "nn.pad"


def test_cancel_ends_kernels() -> None:
    found = ends("cancel", *SOME)
    assert [end for _, end, _ in found] == ["CancelledError"] * len(SOME), found
    assert not [each for each in found if each[2] > WALL_TIME + SLACK]


@pytest.mark.skipif(sys.platform == "win32", reason="alarms of POSIX")
def test_ctrl_c_ends_kernels() -> None:
    found = ends("interrupt", *SOME)
    assert [end for _, end, _ in found] == ["KeyboardInterrupt"] * len(SOME), found
    assert not [each for each in found if each[2] > WALL_TIME + SLACK]


if __name__ == "__main__":
    main(*sys.argv[1:])
