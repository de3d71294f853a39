"""The set of instructions that kernels use: the best one that the processor has.

Some of the C kernels are compiled once for each of several sets (``relaxvm/kernels/c/sets``).  The
environment variable ``RELAXVM_CPU`` forces one when the package is imported; ``RELAXVM_CPU=numpy``
turns all C kernels off.  Results of sets differ by rounding.
"""

from __future__ import annotations

import os
from typing import Final

from . import _table

__all__ = ["CPU", "SETS", "VARIABLE"]

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
