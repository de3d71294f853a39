"""The classes of onnxruntime's Python interface."""

from __future__ import annotations

from ..adapters import AdapterFormat
from ..memory import copy_tensors
from ..session import InferenceSession, IOBinding
from ..sparse import SparseTensor
from ..values import OrtDevice, OrtValue

__all__ = ["AdapterFormat", "IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session",
           "SparseTensor", "copy_tensors"]  # fmt: skip

Session = InferenceSession
"""The base class of sessions, of which there is one kind."""
