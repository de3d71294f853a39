"""What type rules are made of: demands on operands, and types of results.

Functions that check take their operands by keyword, so that messages can name them:
``need_floats(data=data)``.
"""

from __future__ import annotations

from typing import Final

from ..ir.expr import TupleType

__all__ = ["VOID"]

VOID: Final = TupleType(())
"""The type of a call that gives nothing."""
