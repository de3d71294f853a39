"""Bridges to other packages, one module per package, which is only needed by that module.

``relaxvm.contrib.tvm`` and the others of `__all__` are imported on first use.  `as_tvm` is not one
of them: importing it changes what ``import tvm`` finds.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import batches, compare, dask, onnxruntime, ray, tvm

__all__ = ["batches", "compare", "dask", "onnxruntime", "ray", "tvm"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
    )  # for the hint that Python adds


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
