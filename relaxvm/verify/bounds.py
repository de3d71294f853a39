"""Check the counts of an executable against `relaxvm.Limits`."""

from __future__ import annotations

import numpy as np

from ..limits import Limits
from ..values import Shape
from .code import Chunk
from .parts import Parts
from .text import quoted

__all__ = ["check_call_args", "check_limits"]


def check_limits(parts: Parts, limits: Limits) -> None:
    """Raise `LimitError` if a count that does not depend on the code exceeds its limit."""
    limits.check("functions", len(parts.functions), "function table")
    limits.check("instructions", len(parts.offsets), "code")
    limits.check("constants", len(parts.constants), "constant pool")
    name_bytes, registers = limits.name_bytes, limits.registers
    table = parts.functions
    if registers is not None:
        for row in np.flatnonzero(table.registers > registers):
            subject = f"function {quoted(table.infos[row].name)}"
            limits.check("registers", int(table.registers[row]), subject)
    if name_bytes is not None:
        for info in table.infos:
            for name in (info.name, *info.param_names):
                _check_name(name, name_bytes, limits)
        if parts.debug is not None:
            for name in (*parts.debug.files, *parts.debug.variables):
                _check_name(name, name_bytes, limits)
    _check_data_types(parts, limits)
    suspects = parts.values
    if limits.rank is not None and parts.most_dims > limits.rank:
        suspects = [*enumerate(parts.constants), *parts.values]
    for i, value in suspects:
        if isinstance(value, np.ndarray):
            limits.check("rank", value.ndim, f"constant {i}")
        elif isinstance(value, Shape):
            limits.check("shape_dims", len(value), f"constant {i}")


def _check_data_types(parts: Parts, limits: Limits) -> None:
    """Check the definitions of data types.  A rule reports those that are none."""
    found = parts.sections.get("data_types")
    if found is None:
        return
    from ..adt import DataTypes  # here, since most programs have no data types

    if type(found) is DataTypes:
        limits.check("data_parts", found.num_parts, "data types")
        if limits.name_bytes is not None:
            for name in found.names():
                _check_name(name, limits.name_bytes, limits)


def _check_name(name: str, bound: int, limits: Limits) -> None:
    # A character has 1 to 4 bytes in UTF-8.
    if len(name) * 4 > bound:
        size = len(name.encode("utf-8", "replace"))
        limits.check("name_bytes", size, f"name {quoted(name)}")


def check_call_args(chunk: Chunk, limits: Limits) -> None:
    """Raise `LimitError` for a call with more arguments than allowed."""
    for rows in chunk.calls:
        limits.check("call_args", int(rows.counts.max()), f"{rows.op.name} instruction")
