"""The same names as `onnxruntime_pybind11_state`, where older programs import them from."""

from __future__ import annotations

from .onnxruntime_pybind11_state import *  # noqa: F403  (all of its names)
from .onnxruntime_pybind11_state import __all__ as __all__
