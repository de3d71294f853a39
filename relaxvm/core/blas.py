"""On how many threads numpy's BLAS runs, which the kernels of matrix products call.

OpenBLAS, MKL and BLIS have functions for it.  They are found through numpy's own extension, which
is linked to the library; where that does not work, as on Windows or with Accelerate, nothing is
set, and the environment variables of the library decide.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import numpy as np

__all__ = ["get_blas_threads", "set_blas_threads"]

_NAMES: Final = (
    ("scipy_openblas_get_num_threads64_", "scipy_openblas_set_num_threads64_"),
    ("scipy_openblas_get_num_threads", "scipy_openblas_set_num_threads"),
    ("openblas_get_num_threads64_", "openblas_set_num_threads64_"),
    ("openblas_get_num_threads", "openblas_set_num_threads"),
    ("MKL_Get_Max_Threads", "MKL_Set_Num_Threads"),
    ("bli_thread_get_num_threads", "bli_thread_set_num_threads"),
)
"""Pairs of functions in libraries; ``bli_`` ones take a 64-bit number."""


class _Functions(NamedTuple):
    get: Callable[[], int]
    set: Callable[[int], object]


@cache
def _functions() -> _Functions | None:
    if sys.platform == "win32":
        return None  # a name is not looked for in the libraries that an extension is linked to
    core = getattr(np, "_core", None) or np.core
    try:
        library = ctypes.CDLL(core._multiarray_umath.__file__)
    except (AttributeError, OSError):
        return None
    for getter, setter in _NAMES:
        try:
            get, set_ = getattr(library, getter), getattr(library, setter)
        except AttributeError:
            continue
        number = ctypes.c_int64 if getter.startswith("bli_") else ctypes.c_int
        get.argtypes, get.restype = [], number
        set_.argtypes, set_.restype = [number], None
        return _Functions(get, set_)
    return None


def get_blas_threads() -> int | None:
    """The number of threads; None if it cannot be known."""
    found = _functions()
    return None if found is None else found.get()


def set_blas_threads(count: int) -> None:
    """Set the number of threads, if that is possible."""
    found = _functions()
    if found is not None:
        found.set(count)
