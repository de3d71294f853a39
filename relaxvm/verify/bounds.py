"""The counts of an executable against `relaxvm.Limits`."""

from __future__ import annotations

import numpy as np

from ..limits import Limits
from ..values import Shape
from .code import Chunk
from .image import Image
from .text import quoted

__all__ = ["check_call_args", "check_limits"]


def check_limits(image: Image, limits: Limits) -> None:
    """Raise `LimitError` for what can be counted before the code is looked at."""
    limits.check("functions", len(image.functions), "function table")
    limits.check("instructions", len(image.offsets), "code")
    limits.check("constants", len(image.constants), "constant pool")
    name_bytes, registers = limits.name_bytes, limits.registers
    table = image.functions
    if registers is not None:
        for row in np.flatnonzero(table.registers > registers):
            subject = f"function {quoted(table.infos[row].name)}"
            limits.check("registers", int(table.registers[row]), subject)
    if name_bytes is not None:
        for info in table.infos:
            for name in (info.name, *info.param_names):
                _check_name(name, name_bytes, limits)
        if image.debug is not None:
            for name in (*image.debug.files, *image.debug.variables):
                _check_name(name, name_bytes, limits)
    for i, value in enumerate(image.constants):
        if isinstance(value, np.ndarray):
            limits.check("rank", value.ndim, f"constant {i}")
        elif isinstance(value, Shape):
            limits.check("shape_dims", len(value), f"constant {i}")


def _check_name(name: str, bound: int, limits: Limits) -> None:
    # A character has 1 to 4 bytes in UTF-8.
    if len(name) * 4 > bound:
        size = len(name.encode("utf-8", "replace"))
        limits.check("name_bytes", size, f"name {quoted(name)}")


def check_call_args(chunk: Chunk, limits: Limits) -> None:
    """Raise `LimitError` for a call with more arguments than allowed."""
    for rows in chunk.calls:
        limits.check("call_args", int(rows.counts.max()), f"{rows.op.name} instruction")
