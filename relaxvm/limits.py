"""Bounds on the content of files and on the resources of runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from .errors import LimitError
from .parameters import lists_fields

__all__ = ["Limits"]

_MIB = 1 << 20
_MOST = (1 << 63) - 1
"""The greatest number that the core can count to."""
_MOST_SECONDS = 10**9


@lists_fields
@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for loading, running and compiling; None means no bound.

    The fields up to `data_parts` are checked when a file is read or verified, the others during a
    run.  A compilation is a run, too: `file_bytes`, `functions`, `wall_time`, `live_bytes` and
    `alloc_bytes` bound it.  Exceeding one raises `relaxvm.errors.LimitError`, which names the
    field.

    Attributes:
        file_bytes: bytes of a stream that is not memory-mapped.
        functions: entries of the function table.
        instructions: instructions in an executable.
        registers: registers of a function.
        call_args: arguments of a call instruction.
        constants: entries of the constant pool.
        name_bytes: UTF-8 bytes of the name of a function or parameter, and in debug information of
            a file or variable.
        rank: dimensions of a tensor constant.
        shape_dims: dimensions of a shape constant, which may be a shape program.
        data_parts: types in the definitions of data types, and parts of constants of data types.
        call_depth: VM frames that exist at once.  Frames are on the heap: this bounds memory, not
            the C stack.
        fuel: instructions per call from Python, counted by basic block.
        wall_time: seconds per call from Python; checked between instructions and by
            kernels that take long.
        live_bytes: bytes of storages and arrays that runs have allocated and that are still
            referenced, and of the other objects of a run.
        alloc_bytes: bytes of one storage or array.
        unproved_accesses: accesses in a PrimFunc of a file that are not proved to be in bounds, and
            so are checked whenever the kernel runs: gathers, for example.  0 demands proofs.
    """

    file_bytes: int | None = 4096 * _MIB
    functions: int | None = 1_000_000
    instructions: int | None = 50_000_000
    registers: int | None = 1_000_000
    call_args: int | None = 65_535
    constants: int | None = 1_000_000
    name_bytes: int | None = 64 * 1024
    rank: int | None = 64
    shape_dims: int | None = 4096
    data_parts: int | None = 10_000_000

    call_depth: int = 10_000
    fuel: int | None = None
    wall_time: float | None = None
    live_bytes: int | None = None
    alloc_bytes: int | None = None
    unproved_accesses: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name != "call_depth":
                continue
            is_time = field.name == "wall_time"
            ok = isinstance(value, (int, float) if is_time else int)
            if not ok or isinstance(value, bool) or not value >= 0:
                raise ValueError(
                    f"Limits.{field.name}: expected a number >= 0 or None, got {value!r}"
                )
            most = _MOST_SECONDS if is_time else _MOST
            if value > most:
                raise ValueError(f"Limits.{field.name}: expected at most {most}, got {value}")

    @classmethod
    def untrusted(cls) -> Limits:
        """Return limits for files of unknown origin."""
        return cls(
            file_bytes=256 * _MIB,
            functions=10_000,
            instructions=1_000_000,
            registers=65_536,
            call_args=1_024,
            constants=10_000,
            name_bytes=1_024,
            rank=16,
            shape_dims=1024,
            data_parts=100_000,
            call_depth=200,
            fuel=10_000_000,
            wall_time=10.0,
            live_bytes=1024 * _MIB,
            alloc_bytes=256 * _MIB,
            unproved_accesses=1_000,
        )

    def but(self, **changes: Any) -> Limits:
        """Return a copy with some fields changed: ``Limits.untrusted().but(fuel=None)``."""
        return replace(self, **changes)

    def check(self, name: str, value: float, subject: str) -> None:
        """Check that `value` does not exceed the field `name`.

        Raises:
            LimitError: it does; the message has subject, limit and value.
        """
        bound = getattr(self, name)
        if bound is not None and value > bound:
            raise LimitError(f"{subject}: {value} is above the limit {name}={bound}", name)
