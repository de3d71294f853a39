"""The set of instructions that kernels use: the best one that the processor has.

Some of the C kernels are compiled once for each of several sets (``relaxvm/kernels/c/sets``).  The
environment variable ``RELAXVM_CPU`` forces one when the package is imported; ``RELAXVM_CPU=numpy``
turns all C kernels off.  Results of sets differ by rounding.
"""

from __future__ import annotations

import functools
import os
from typing import Any, Final

import numpy as np

from . import _table

__all__ = ["CPU", "SETS", "VARIABLE", "has_amx"]

VARIABLE: Final = "RELAXVM_CPU"

SETS: Final = tuple(name for name, _, is_present in _table.sets() if is_present)
"""The sets of this processor that there are kernels for, the best one first."""


def _choose() -> str:
    wanted = os.environ.get(VARIABLE, "")
    if not wanted:
        return SETS[0] if SETS else "none"
    if wanted != "numpy" and wanted not in SETS:
        compiled = [name for name, *_ in _table.sets()]
        why = "this processor does not have it" if wanted in compiled else "there is no such set"
        raise ImportError(
            f"{VARIABLE}={wanted}: {why}; expected one of {', '.join([*SETS, 'numpy'])}"
        )
    return wanted


CPU: Final = _choose()
"""The set that kernels use; "none" if there are none for this processor, "numpy" if C kernels are
turned off."""


@functools.cache
def has_amx() -> bool:
    """Whether products in bfloat16 use AMX, which the processor and the operating system must
    have: asks a kernel."""
    if "avx512" not in SETS or CPU != "avx512":
        return False

    refused: list[Any] = []
    out = np.empty((16, 16), np.float32)
    kernel = _table.DispatchedKernel(
        lambda *_: refused.append(None), ("bfloat16.amx_linear",), None, CPU
    )
    weight = np.zeros((1, 1, 16, 16, 2), np.uint16)
    kernel(np.zeros((16, 32), np.float32), weight, None, None, None, 1, out)
    return not refused
