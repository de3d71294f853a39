"""Kinds of memory, and formats in it.

Source: ``OrtAllocatorType``, ``OrtMemType``, ``OrtMemoryInfo``, ``OrtArenaCfg`` and their kin of
onnxruntime 1.32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .choices import Choice
from .values import OrtValue, check_device

__all__ = [
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
]


class OrtAllocatorType(Choice):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Choice):
    """Kinds of memory."""

    DEFAULT = 0
    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1


class OrtDeviceMemoryType(Choice):
    """Kinds of memory of a device."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Choice):
    """Kinds of devices that have memory."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtSparseFormat(Choice):
    """Formats of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtMemoryInfo:
    """A memory: its device, and how it is allocated.

    Args:
        name: of the device: ``"Cpu"``.
        allocator_type: a kind of allocator.
        device_id: its number.
        mem_type: a kind of memory.

    Attributes:
        name, allocator_type, device_id, mem_type: the arguments.
        device_mem_type, device_vendor_id: those of the CPU.

    Raises:
        RuntimeError: it is another device.
    """

    __slots__ = ("allocator_type", "device_id", "device_mem_type", "device_vendor_id", "mem_type",
                 "name")  # fmt: skip

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType, /
    ) -> None:
        check_device(name)
        self.name = name
        self.allocator_type = allocator_type
        self.device_id = device_id
        self.mem_type = mem_type
        self.device_mem_type = OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = 0

    @staticmethod
    def create_v2(
        name: str, device_type: OrtMemoryInfoDeviceType, vendor_id: int, device_id: int,
        mem_type: OrtDeviceMemoryType, alignment: int, allocator_type: OrtAllocatorType, /,
    ) -> OrtMemoryInfo:  # fmt: skip
        """Return a memory of the CPU.

        Raises:
            RuntimeError: it is another device.
        """
        check_device(OrtMemoryInfoDeviceType(device_type).name)
        return OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)


class OrtArenaCfg:
    """Settings of an arena, which are accepted and have no effect: relaxvm plans memory.

    Args:
        settings: four numbers, or a dict.

    Attributes:
        max_mem, arena_extend_strategy, initial_chunk_size_bytes, max_dead_bytes_per_chunk,
        initial_growth_chunk_size_bytes, max_power_of_two_extend_bytes: the settings.

    Raises:
        TypeError: there are others.
    """

    def __init__(self, *settings: Any) -> None:
        given: dict[str, Any] = dict.fromkeys(_ARENA, -1) | {"max_mem": 0}
        if len(settings) == 1 and isinstance(settings[0], dict):
            unknown = [key for key in settings[0] if key not in given]
            if unknown:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {unknown[0]}")
            given |= settings[0]
        elif len(settings) == 4:
            given |= dict(zip(_ARENA, settings, strict=False))
        else:
            raise TypeError("OrtArenaCfg: expected four numbers or a dict")
        for key, value in given.items():
            setattr(self, key, int(value))


_ARENA: Final = (
    "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
    "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
)  # fmt: skip


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Accepted: the allocators of relaxvm are those of its machines."""


def create_and_register_allocator_v2(
    provider: str, memory_info: OrtMemoryInfo, options: Any, arena: OrtArenaCfg | None
) -> None:
    """Accepted, as `create_and_register_allocator`."""


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy values into the memory of others.

    Raises:
        RuntimeError: their numbers, types or shapes differ.
    """
    if len(src) != len(dst):
        raise RuntimeError(f"copy_tensors: expected as many values, got {len(src)} and {len(dst)}")
    for one, other in zip(src, dst, strict=True):
        source, target = one.numpy(), other.numpy()
        if source.shape != target.shape or source.dtype != target.dtype:
            raise RuntimeError(f"copy_tensors: expected values of one type and shape, got "
                               f"{source.dtype}{list(source.shape)} and "
                               f"{target.dtype}{list(target.shape)}")  # fmt: skip
        np.copyto(target, source)
