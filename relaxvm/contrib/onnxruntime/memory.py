"""Kinds of memory, and formats in it.

Source: ``OrtAllocatorType``, ``OrtMemType`` and ``OrtSparseFormat`` of onnxruntime 1.32.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["OrtAllocatorType", "OrtMemType", "OrtSparseFormat"]


class OrtAllocatorType(IntEnum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Kinds of memory."""

    DEFAULT = 0
    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1


class OrtSparseFormat(IntEnum):
    """Formats of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4
