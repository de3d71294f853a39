"""Allocators of a virtual machine: the argument ``memory_cfg``, and memory statistics.

A VM has one allocator per device.  All devices use host memory, so allocators differ only in their
strategy: "naive" asks the system every time, "pooled" keeps freed storages for the next request.
The limits ``live_bytes`` and ``alloc_bytes`` apply to each device separately.

In a run with these limits, numpy takes the memory of its arrays from the allocator of the host too;
see ``core/_storage_impl.h``.  So results and temporary arrays of kernels and builtins count like
storages, from their allocation until nothing refers to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

from ..core._storage import Allocator, NaiveAllocator, PooledAllocator, Storage
from ..errors import InternalError
from ..limits import Limits
from ..values import Device

__all__ = [
    "NAIVE_ALLOCATOR",
    "POOLED_ALLOCATOR",
    "Allocator",
    "MemoryConfig",
    "MemoryStats",
    "NaiveAllocator",
    "PooledAllocator",
    "Storage",
    "format_bytes",
    "make_allocators",
    "memory_stats",
]

NAIVE_ALLOCATOR: Final = 1
POOLED_ALLOCATOR: Final = 2

_CACHED_PART: Final = 8
"""With a limit of live bytes, a pool keeps at most an eighth of it for the next request."""

MemoryConfig = str | Mapping[Device, str | int] | None

_KINDS: Final[Mapping[str | int, type[NaiveAllocator] | type[PooledAllocator]]] = {
    "naive": NaiveAllocator,
    "pooled": PooledAllocator,
    NAIVE_ALLOCATOR: NaiveAllocator,
    POOLED_ALLOCATOR: PooledAllocator,
}


class _AbsentDevice(Allocator):
    """The allocator of a device that does not exist here: a program may name it, but not use it."""

    def alloc(self, nbytes: int, scope: str = "global") -> NoReturn:
        raise InternalError(
            f"cannot allocate {nbytes} bytes on {self.device}: expected a cpu, "
            f"tensors live in host memory"
        )


def make_allocators(
    devices: Sequence[Device], memory_cfg: MemoryConfig, limits: Limits
) -> tuple[Allocator, ...]:
    """Create one allocator per device.

    Args:
        devices: the devices of a VM.
        memory_cfg: ``"naive"`` or ``"pooled"`` for all of them, a mapping with a choice for some of
            them, or None.  Pooled is the default.
        limits: ``live_bytes`` and ``alloc_bytes`` bound every allocator.

    Raises:
        TypeError: `memory_cfg` is none of these, or a key of it is not a device.
        ValueError: there is no such kind of allocator, or the VM does not have the device.
    """
    if memory_cfg is not None and not isinstance(memory_cfg, (str, Mapping)):
        raise TypeError(f"memory_cfg: expected 'naive', 'pooled' or a dict from Device to one of "
                        f"them, got {type(memory_cfg).__name__}")
    chosen: Mapping[Device, str | int] = {}
    if isinstance(memory_cfg, Mapping):
        _check_keys(memory_cfg, devices)
        chosen = memory_cfg
    elif memory_cfg is not None:
        chosen = dict.fromkeys(devices, memory_cfg)
    return tuple(_make(device, chosen.get(device, "pooled"), limits) for device in devices)


def _check_keys(memory_cfg: Mapping[Device, str | int], devices: Sequence[Device]) -> None:
    for key in memory_cfg:
        if not isinstance(key, Device):
            raise TypeError(f"memory_cfg: expected a Device as key, got {type(key).__name__}")
        if key not in devices:
            raise ValueError(f"memory_cfg: {key} is not a device of this VM, expected one of "
                             f"{', '.join(map(str, devices))}")


def _make(device: Device, kind: str | int, limits: Limits) -> Allocator:
    allocator = _KINDS.get(kind) if isinstance(kind, (str, int)) else None
    if allocator is None:
        raise ValueError(f"memory_cfg: expected 'naive' or 'pooled' for {device}, got {kind!r}")
    if not device.exist:
        return _AbsentDevice(device)
    live_bytes, alloc_bytes = limits.live_bytes, limits.alloc_bytes
    if allocator is NaiveAllocator or live_bytes is None:
        return allocator(device, live_bytes=live_bytes, alloc_bytes=alloc_bytes)
    return PooledAllocator(device, live_bytes=live_bytes, alloc_bytes=alloc_bytes,
                           cached_bytes=live_bytes // _CACHED_PART)  # fmt: skip


class MemoryStats(NamedTuple):
    """Statistics of the allocators of a VM.

    Arrays that kernels and builtins allocate are counted in runs with limits of memory, and not in
    others.

    Attributes:
        live_bytes: allocated and not yet freed.
        peak_bytes: the maximum of `live_bytes`; with several devices the sum of their maxima.
        cached_bytes: kept for the next request.
        live_storages: number of storages in use.
        allocations: number of all storages allocated so far.
        devices: the same numbers for each device.
    """

    live_bytes: int
    peak_bytes: int
    cached_bytes: int
    live_storages: int
    allocations: int
    devices: Mapping[Device, Mapping[str, int]]

    def __str__(self) -> str:
        return (
            f"{format_bytes(self.live_bytes)} live in {self.live_storages} storages, "
            f"{format_bytes(self.peak_bytes)} at the peak, "
            f"{format_bytes(self.cached_bytes)} cached, {self.allocations} allocations"
        )


def memory_stats(allocators: Iterable[Allocator]) -> MemoryStats:
    """Return the statistics of all allocators.  A device that is listed twice counts once."""
    devices: dict[Device, dict[str, int]] = {}
    total = dict.fromkeys(
        ("live_bytes", "peak_bytes", "cached_bytes", "live_storages", "allocations"), 0
    )
    for allocator in allocators:
        own = devices.setdefault(allocator.device, dict.fromkeys(total, 0))
        for name, value in allocator.stats().items():
            own[name] += value
            total[name] += value
    return MemoryStats(**total, devices=devices)


def format_bytes(nbytes: int) -> str:
    """Return a size as text: ``512 bytes``, ``1.5 KiB``, ``2.0 GiB``."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"
