"""Programs of ``torch.export``: `from_exported_program` imports an archive without PyTorch."""

from __future__ import annotations

from .program import from_exported_program
from .registry import OPERATORS, aten

__all__ = ["OPERATORS", "aten", "from_exported_program"]
