"""The classes of onnxruntime's Python interface."""

from __future__ import annotations

from ..session import InferenceSession, IOBinding
from ..values import OrtDevice, OrtValue, SparseTensor

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "SparseTensor"]
