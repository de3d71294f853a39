"""The formulas of all operators by name, as ``relaxvm.te.operators.FORMULAS`` had them.

New code reads the records: ``relaxvm.op.OPERATORS["exp"].loops``.
"""

from __future__ import annotations

from typing import Final

from ..op import OPERATORS
from ..op.registry import Loops
from .operators import BOOLS, NUMBERS, Formula

__all__ = ["FORMULAS"]

FORMULAS: Final[dict[str, tuple[frozenset[str], Formula]]] = {
    name: (loops.dtypes or NUMBERS | BOOLS, loops.formula)
    for name, record in OPERATORS.items()
    if isinstance(loops := record.loops, Loops)
}
"""Data types of the first operand, and formula, by the operator's name without "relax."."""
