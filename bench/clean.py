"""A clean process for a benchmark, and what to say about the machine."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

_SETTINGS = ("OPENBLAS_", "MKL_", "OMP_", "GOTO_", "BLIS_")
_MARK = "RELAXVM_BENCH_CLEAN"


def restart() -> None:
    """Start this program over without inherited settings of BLAS libraries.

    They are read when the library is loaded, and they favour one side: a core type that is forced
    on numpy's BLAS slows numpy and nobody else.
    """
    if os.environ.get(_MARK):
        return
    env = {k: v for k, v in os.environ.items() if not k.startswith(_SETTINGS)}
    env[_MARK] = "1"
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


def machine() -> str:
    """Processor and number of cores, as far as the system tells."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"
