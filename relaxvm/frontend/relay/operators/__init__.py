"""Operators of Relay in terms of those of relaxvm: one table.

Each entry is a function whose positional parameters are the operands, and whose keyword parameters
are the attributes with their defaults in Relay.  Its result is an expression of relaxvm; the type
of that expression is the type of the call, so there are no type relations besides relaxvm's own
rules.  A module has the functions of one family.
"""

from __future__ import annotations

from . import elementwise, nn, pieces, products, reductions, shapes, spatial
from .elementwise import RENAMED
from .table import IGNORED, OPERATORS, RelayOperator, apply

__all__ = ["IGNORED", "OPERATORS", "RENAMED", "RelayOperator", "apply"]

_FAMILIES = (elementwise, nn, pieces, products, reductions, shapes, spatial)
"""Each enters its operators into the table when it is imported."""
