"""A clean process for a benchmark, and a description of the machine."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

_SETTINGS = ("OPENBLAS_", "MKL_", "OMP_", "GOTO_", "BLIS_")
_MARK = "RELAXVM_BENCH_CLEAN"
LIMIT = "RELAXVM_BENCH_LIMIT"
"""The variable that says which instructions ``limited.py`` leaves."""


def restart() -> None:
    """Restart this program without environment variables that configure BLAS libraries.

    A library reads them when it is loaded, and they favour one side: a core type that is forced on
    numpy's BLAS slows down only numpy.
    """
    if os.environ.get(_MARK):
        return
    env = {k: v for k, v in os.environ.items() if not k.startswith(_SETTINGS)}
    env[_MARK] = "1"
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


def machine() -> str:
    """Return the name of the processor, if known, the instructions that are left of it, and the
    number of cores."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    if limit := os.environ.get(LIMIT):
        name += f", limited to {limit}"
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"
