"""ONNX models: `from_onnx` imports a file without the package onnx."""

from __future__ import annotations

from .program import from_onnx
from .registry import OPERATORS, onnx

__all__ = ["OPERATORS", "from_onnx", "onnx"]
