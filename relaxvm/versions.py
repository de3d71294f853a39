"""Versions of the installation for bug reports, and the path of the C headers."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Final

__all__ = ["get_include", "show_versions", "versions"]

_OPTIONAL: Final = ("ml_dtypes", "scikit-learn", "apache-tvm", "apache-tvm-ffi")


def get_include() -> str:
    """Return the directory to pass to a C compiler with ``-I`` for ``#include <relaxvm/isa.h>``.

    Raises:
        FileNotFoundError: the headers are not installed.
    """
    package = Path(__file__).resolve().parent
    # In the package if it is installed, next to the package in a checkout.
    for folder in (package / "include", package.parent / "include"):
        if (folder / "relaxvm" / "isa.h").is_file():
            return str(folder)
    raise FileNotFoundError(
        f"relaxvm headers: expected them in {package / 'include'}; install relaxvm again"
    )


def versions() -> dict[str, str]:
    """Return the versions of relaxvm, of the platform and of related packages, by name; for missing
    packages "not installed"."""
    import numpy as np

    from . import __version__
    from .core import _build
    from .kernels import cpu

    found = {
        "relaxvm": __version__ + (" (debug build)" if _build.debug else ""),
        "python": f"{platform.python_version()} ({platform.python_implementation()}"
        f"{'' if _has_gil() else ', free-threaded'})",
        "platform": platform.platform(),
        "numpy": np.__version__,
        "blas": _blas(np),
        "kernels": f"{cpu.CPU} (of {', '.join(cpu.SETS) or 'none'})",
        "built with": f"Cython {_build.cython}, {_build.compiler}",
    }
    for name in _OPTIONAL:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def show_versions() -> None:
    """Print `versions` as a table."""
    found = versions()
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:<{width}}  {text}")


def _has_gil() -> bool:
    is_enabled = getattr(sys, "_is_gil_enabled", None)
    return is_enabled is None or bool(is_enabled())


def _blas(np: Any) -> str:
    config = np.show_config(mode="dicts")
    blas = config.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
