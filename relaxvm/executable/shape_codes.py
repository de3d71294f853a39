"""Codes in the arguments of the VM's shape builtins: what to do with each dimension.

Source: MatchShapeCode and MakeShapeCode of the Relax VM of apache-tvm 0.27.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["ANNOTATED_DIMS", "MakeShapeCode", "MatchShapeCode"]

ANNOTATED_DIMS: Final = r"(?:annotation|ty)=R\.(?:Tensor|Shape)\([(\[]([^()\[\]]*)[)\]]"
"""A pattern: the dimensions of a parameter in the error context that the compiler gives to a
check."""


class MatchShapeCode(IntEnum):
    """For ``vm.builtin.match_shape``, in pairs with a number."""

    ASSERT_EQUAL_TO_IMM = 0
    """The dimension must equal the number."""
    STORE_TO_HEAP = 1
    """Store the dimension in the heap slot with that number."""
    NO_OP = 2
    """The dimension may have any value."""
    ASSERT_EQUAL_TO_LOAD = 3
    """The dimension must equal the value of the heap slot with that number."""


class MakeShapeCode(IntEnum):
    """For ``vm.builtin.make_shape``, in pairs with a number."""

    USE_IMM = 0
    """The dimension is the number."""
    LOAD_SHAPE = 1
    """The dimension is the value of the heap slot with that number."""
