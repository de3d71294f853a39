"""Memory of a VM: memory_cfg, statistics, trimming, caps, lifetime of storages."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from relaxvm import ExecBuilder, Limits, VirtualMachine, cpu
from relaxvm.errors import InternalError, LimitError
from relaxvm.executable import VMExecutable
from relaxvm.kernels.implementations import release_workspace
from relaxvm.values import Device
from relaxvm.vm.allocators import (
    MemoryStats,
    NaiveAllocator,
    PooledAllocator,
    format_bytes,
    make_allocators,
    memory_stats,
)

CUDA = Device("cuda")


def kinds(devices: Any, cfg: Any) -> list[str]:
    return [type(a).__name__ for a in make_allocators(devices, cfg, Limits())]


@pytest.mark.parametrize(
    ("cfg", "want"),
    [
        (None, ["PooledAllocator", "PooledAllocator"]),
        ("pooled", ["PooledAllocator", "PooledAllocator"]),
        ("naive", ["NaiveAllocator", "NaiveAllocator"]),
        ({}, ["PooledAllocator", "PooledAllocator"]),
        ({cpu(1): "naive"}, ["PooledAllocator", "NaiveAllocator"]),
        ({cpu(0): "naive", cpu(1): "pooled"}, ["NaiveAllocator", "PooledAllocator"]),
        ({cpu(0): 1, cpu(1): 2}, ["NaiveAllocator", "PooledAllocator"]),
        (
            {cpu(0): VirtualMachine.NAIVE_ALLOCATOR, cpu(1): VirtualMachine.POOLED_ALLOCATOR},
            ["NaiveAllocator", "PooledAllocator"],
        ),
    ],
)
def test_memory_cfg(cfg: Any, want: list[str]) -> None:
    assert kinds([cpu(0), cpu(1)], cfg) == want


@pytest.mark.parametrize(
    ("cfg", "error", "text"),
    [
        ("fast", ValueError, r"expected 'naive' or 'pooled' for cpu\(0\), got 'fast'"),
        ({cpu(0): "fast"}, ValueError, r"expected 'naive' or 'pooled' for cpu\(0\), got 'fast'"),
        ({cpu(0): 3}, ValueError, "got 3"),
        ({cpu(0): None}, ValueError, "got None"),
        ({cpu(0): ["naive"]}, ValueError, "got "),
        ({"cpu": "naive"}, TypeError, "expected a Device as key, got str"),
        ({cpu(5): "naive"}, ValueError, r"cpu\(5\) is not a device of this VM"),
        (1, TypeError, "memory_cfg: expected 'naive', 'pooled' or a dict from Device"),
        (["naive"], TypeError, "got list"),
    ],
)
def test_wrong_memory_cfg(cfg: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_allocators([cpu(0)], cfg, Limits())


def test_an_unavailable_device_has_no_memory() -> None:
    absent, host = make_allocators([CUDA, cpu()], None, Limits())
    assert absent.device == CUDA
    with pytest.raises(InternalError, match=r"cannot allocate 8 bytes on cuda\(0\)"):
        absent.alloc(8)
    assert host.alloc(8).nbytes == 8


def test_limits_reach_the_allocators() -> None:
    (allocator,) = make_allocators([cpu()], None, Limits(alloc_bytes=100, live_bytes=150))
    with pytest.raises(LimitError, match="alloc_bytes=100"):
        allocator.alloc(101)
    first = allocator.alloc(100)
    with pytest.raises(LimitError, match="live_bytes=150"):
        allocator.alloc(51)
    del first
    assert allocator.alloc(51).nbytes == 51


def test_stats_add_up() -> None:
    one, two = PooledAllocator(cpu(0)), NaiveAllocator(cpu(1))
    a, b = one.alloc(100), two.alloc(30)
    stats = memory_stats([one, two])
    assert isinstance(stats, MemoryStats)
    assert (stats.live_bytes, stats.peak_bytes, stats.live_storages) == (130, 130, 2)
    assert stats.devices[cpu(0)]["live_bytes"] == 100
    assert stats.devices[cpu(1)]["live_bytes"] == 30
    del a, b
    after = memory_stats([one, two])
    assert (after.live_bytes, after.peak_bytes, after.allocations) == (0, 130, 2)
    assert after.cached_bytes >= 100
    assert stats.live_bytes == 130, "the statistics must be a copy"
    assert str(stats).startswith("130 bytes live in 2 storages, 130 bytes at the peak")


@pytest.mark.parametrize(
    ("first", "second", "is_shared"),
    [
        (19 << 20, 10 << 20, True),  # up to twice the size
        (40 << 20, 10 << 20, False),
        (10 << 20, 19 << 20, False),  # too small
        (900_000, 600_000, True),  # one class of their own
        (1000, 600, False),  # small ones are cheap
    ],
)
def test_greater_storages_are_used_again(first: int, second: int, is_shared: bool) -> None:
    allocator = PooledAllocator(cpu(0))
    storage = allocator.alloc(first)
    del storage
    kept = memory_stats([allocator]).cached_bytes
    again = allocator.alloc(second)
    assert again.nbytes == second
    assert memory_stats([allocator]).cached_bytes == (0 if is_shared else kept)
    del again
    cached = memory_stats([allocator]).cached_bytes
    assert (cached == kept) == is_shared, "a storage is kept by the size that it has"


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"),
     (2 << 30, "2.0 GiB"), (3 << 50, "3072.0 TiB")],
)  # fmt: skip
def test_format_bytes(nbytes: int, text: str) -> None:
    assert format_bytes(nbytes) == text


# In a VM


def alloc_program() -> VMExecutable:
    """``main(shape)``: a storage of that many bytes, and a uint8 tensor on it."""
    b = ExecBuilder()
    with b.function("main", num_inputs=1, param_names=["shape"]):
        uint8 = b.convert_constant(np.dtype("uint8"))
        scope = b.convert_constant("global")
        b.emit_call(
            "vm.builtin.alloc_storage", [b.vm_state(), b.r(0), b.imm(-1), uint8, scope], dst=b.r(1)
        )
        b.emit_call("vm.builtin.alloc_tensor", [b.r(1), b.imm(0), b.r(0), uint8], dst=b.r(2))
        b.emit_ret(b.r(2))
    return b.get()


@pytest.fixture(params=[True, False], ids=["optimized", "plain"])
def optimize(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("cfg", ["pooled", "naive"])
def test_vm_statistics(cfg: str, optimize: bool) -> None:
    vm = VirtualMachine(alloc_program(), memory_cfg=cfg, functions=[], optimize=optimize)
    assert vm.memory_stats().live_bytes == 0
    a = vm.main((1000,))
    b = vm.main((3000,))
    stats = vm.memory_stats()
    assert (stats.live_bytes, stats.live_storages) == (4000, 2)
    view = a[10:20]
    del a, b
    gc.collect()
    assert vm.memory_stats().live_bytes == 1000, "a view must keep its storage alive"
    del view
    stats = vm.memory_stats()
    assert (stats.live_bytes, stats.peak_bytes) == (0, 4000)
    release_workspace()  # of kernels that ran before; it belongs to the process
    if cfg == "naive":
        assert stats.cached_bytes == 0
        assert vm.trim() == 0
    else:
        assert stats.cached_bytes >= 4000
        assert vm.trim() == stats.cached_bytes
        assert vm.memory_stats().cached_bytes == 0


def test_cap_on_live_bytes_and_usable_after(optimize: bool) -> None:
    limits = Limits(live_bytes=10_000, alloc_bytes=8_000)
    vm = VirtualMachine(alloc_program(), limits=limits, functions=[], optimize=optimize)
    kept = vm.main((6_000,))
    for nbytes, limit in ((5_000, "live_bytes"), (8_001, "alloc_bytes")):
        with pytest.raises(LimitError, match=limit) as caught:
            vm.main((nbytes,))
        assert caught.value.limit == limit
    assert kept.nbytes == 6_000
    del kept
    gc.collect()
    assert vm.main((8_000,)).nbytes == 8_000


def test_outputs_never_alias(optimize: bool) -> None:
    vm = VirtualMachine(alloc_program(), functions=[], optimize=optimize)
    held = []
    for i in range(200):
        out = vm.main((64 + i % 5,))
        out[:] = i
        held.append(out)
    assert [int(out[0]) for out in held] == [i % 256 for i in range(200)]
    assert all((out == out[0]).all() for out in held)


def test_close_frees_cached_memory() -> None:
    vm = VirtualMachine(alloc_program(), functions=[])
    vm.main((5_000,))
    vm.close()
    assert vm.memory_stats().cached_bytes == 0


def test_an_output_outlives_its_vm() -> None:
    vm = VirtualMachine(alloc_program(), functions=[])
    out = vm.main((5_000,))
    out[:] = 7
    vm.close()
    del vm
    gc.collect()
    assert (out == 7).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("cfg", ["pooled", "naive"])
def test_ten_thousand_random_shapes_leave_memory_flat(cfg: str) -> None:
    def resident() -> int:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    vm = VirtualMachine(alloc_program(), memory_cfg=cfg, functions=[])
    sizes = np.random.default_rng(0).integers(1, 200_000, 10_000).tolist()
    for nbytes in sizes[:2_000]:
        vm.main((nbytes,))
    before = resident()
    for nbytes in sizes[2_000:]:
        vm.main((nbytes,))
    gc.collect()
    stats = vm.memory_stats()
    assert stats.live_bytes == 0
    assert stats.cached_bytes < 4 << 20, "at most one block per size class may be cached"
    assert resident() - before < 4 << 20
