"""Devices and providers: one processor, and the provider of it.

Source: ``OrtEpDevice``, ``OrtHardwareDevice`` and their kin of onnxruntime 1.32.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

from .choices import Choice
from .environment import CPU, VERSION
from .memory import OrtAllocatorType, OrtDeviceMemoryType, OrtMemoryInfo, OrtMemType

__all__ = [
    "OrtDeviceVendorId",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "get_ep_devices",
]


class OrtDeviceVendorId(IntEnum):
    """Vendors of devices, by their numbers on the PCI bus."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtHardwareDeviceType(Choice):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(Choice):
    """Which device a session prefers.  It is accepted, and has no effect: there is one."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtHardwareDevice:
    """The processor.

    Attributes:
        type: its kind.
        vendor, vendor_id: who has made it, as far as it is known.
        device_id: its number.
        metadata: what else is known: nothing.
    """

    __slots__ = ("device_id", "metadata", "type", "vendor", "vendor_id")

    def __init__(self) -> None:
        self.type = OrtHardwareDeviceType.CPU
        self.vendor, self.vendor_id = _vendor()
        self.device_id = 0
        self.metadata: dict[str, str] = {}


class OrtEpDevice:
    """A provider for a device.

    Attributes:
        ep_name, ep_vendor: of the provider.
        ep_metadata, ep_options: what is known of it.
        device: what it runs on.
    """

    __slots__ = ("device", "ep_metadata", "ep_name", "ep_options", "ep_vendor")

    def __init__(self) -> None:
        self.ep_name = CPU
        self.ep_vendor = "relaxvm"
        self.ep_metadata = {"version": VERSION}
        self.ep_options: dict[str, str] = {}
        self.device = OrtHardwareDevice()

    def memory_info(self, memory_type: Any = OrtDeviceMemoryType.DEFAULT) -> OrtMemoryInfo:
        """The memory of the device."""
        return OrtMemoryInfo(
            "Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT
        )


def get_ep_devices() -> list[OrtEpDevice]:
    """The providers for devices: that of the CPU."""
    return [OrtEpDevice()]


_VENDORS: Final[Mapping[str, tuple[str, int]]] = MappingProxyType({
    "AuthenticAMD": ("AMD", OrtDeviceVendorId.AMD),
    "GenuineIntel": ("Intel", OrtDeviceVendorId.INTEL),
})  # fmt: skip


def _vendor() -> tuple[str, int]:
    """The vendor of the processor, where the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "vendor_id":
                    name, number = _VENDORS.get(value.strip(), (value.strip(), 0))
                    return name, int(number)
    except OSError:
        pass
    return "", 0
