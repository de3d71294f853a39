"""Allocators of a virtual machine: what ``memory_cfg`` asks for, and the figures they keep.

A VM has one allocator per device.  Host memory is all there is, so an allocator differs from
another by its bookkeeping: "naive" asks the system every time, "pooled" keeps freed storages for
the next request.  The limits ``live_bytes`` and ``alloc_bytes`` hold for each device on its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn, Protocol

from ._memory import Allocator, NaiveAllocator, PooledAllocator, Storage
from .errors import InternalError
from .limits import Limits
from .values import Device

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
    "track",
    "trim_all",
]

NAIVE_ALLOCATOR: Final = 1
POOLED_ALLOCATOR: Final = 2

MemoryConfig = str | Mapping[Device, str | int] | None

_KINDS: Final[Mapping[str | int, type[NaiveAllocator] | type[PooledAllocator]]] = {
    "naive": NaiveAllocator,
    "pooled": PooledAllocator,
    NAIVE_ALLOCATOR: NaiveAllocator,
    POOLED_ALLOCATOR: PooledAllocator,
}


class _AbsentDevice(Allocator):
    """Stands for a device that this process does not have: a program may name it, not use it."""

    def alloc(self, nbytes: int, scope: str = "global") -> NoReturn:
        raise InternalError(
            f"cannot allocate {nbytes} bytes on {self.device}: expected a cpu, "
            f"tensors live in host memory"
        )


def make_allocators(
    devices: Sequence[Device], memory_cfg: MemoryConfig, limits: Limits
) -> tuple[Allocator, ...]:
    """One allocator per device.

    Args:
        devices: the devices of a VM.
        memory_cfg: ``"naive"`` or ``"pooled"`` for all of them, a mapping with a choice for some of
            them, or None.  Pooled is the default.
        limits: its ``live_bytes`` and ``alloc_bytes`` bound every allocator.

    Raises:
        TypeError: `memory_cfg` is neither, or a key of it is not a device.
        ValueError: a kind of allocator that does not exist, or a device that the VM does not have.
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
    return allocator(device, live_bytes=limits.live_bytes, alloc_bytes=limits.alloc_bytes)


class MemoryStats(NamedTuple):
    """What the allocators of a VM hold.  Arrays that kernels make by themselves are not counted.

    Attributes:
        live_bytes: handed out and not yet given back.
        peak_bytes: most that was live at once; the sum over devices where there are several.
        cached_bytes: kept for the next request.
        live_storages: storages that are alive.
        allocations: storages ever handed out.
        devices: the same figures, device by device.
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
    """The figures of all allocators, added up.  The same device twice counts as one."""
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
    """A size for people: ``512 bytes``, ``1.5 KiB``, ``2.0 GiB``."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


class _Trims(Protocol):
    def trim(self) -> int: ...


_tracked: Final[weakref.WeakSet[_Trims]] = weakref.WeakSet()


def track(machine: _Trims) -> None:
    """Have `trim_all` reach this machine as long as it is alive."""
    _tracked.add(machine)


def trim_all() -> int:
    """Give the cached memory of all machines of the process back; answers the number of bytes."""
    return sum(machine.trim() for machine in list(_tracked))
