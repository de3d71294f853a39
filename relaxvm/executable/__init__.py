"""Executables: the data, the builder, debug information, loading, binary and text forms."""

from .executable import (
    LIBRARY_PART,
    MAKE_ADT,
    FunctionInfo,
    Located,
    StoredKernels,
    VMExecutable,
    constant_key,
    prim_funcs_of,
)
from .prim_funcs import SavedPrimFuncs

__all__ = [
    "LIBRARY_PART",
    "MAKE_ADT",
    "FunctionInfo",
    "Located",
    "SavedPrimFuncs",
    "StoredKernels",
    "VMExecutable",
    "constant_key",
    "prim_funcs_of",
]
