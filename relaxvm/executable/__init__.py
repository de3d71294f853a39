"""Executables: the data, the builder, debug information, loading, binary and text forms."""

from .executable import (
    LIBRARY_PART,
    FunctionInfo,
    Located,
    StoredKernels,
    VMExecutable,
    constant_key,
)

__all__ = [
    "LIBRARY_PART",
    "FunctionInfo",
    "Located",
    "StoredKernels",
    "VMExecutable",
    "constant_key",
]
