"""What the arguments of the VM's shape builtins say to do with a dimension.

Source: MatchShapeCode and MakeShapeCode of the Relax VM of apache-tvm 0.27.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["MakeShapeCode", "MatchShapeCode"]


class MatchShapeCode(IntEnum):
    """For ``vm.builtin.match_shape``, in pairs with a number."""

    ASSERT_EQUAL_TO_IMM = 0
    """It has to be the number."""
    STORE_TO_HEAP = 1
    """Store it in the slot of that number."""
    NO_OP = 2
    """Anything goes."""
    ASSERT_EQUAL_TO_LOAD = 3
    """It has to be what is in the slot of that number."""


class MakeShapeCode(IntEnum):
    """For ``vm.builtin.make_shape``, in pairs with a number."""

    USE_IMM = 0
    """The number."""
    LOAD_SHAPE = 1
    """What is in the slot of that number."""
