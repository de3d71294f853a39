"""Types of the objects in registers, as far as the code of a function tells.

A register has the types of all that the function writes to it; a parameter, a field, and the result
of a call can be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..dtypes import dtype_name
from .problem import Problem
from .program import Function, Instruction, Program
from .table import Kind

__all__ = ["type_problems"]


class _Type(NamedTuple):
    """A type.

    Attributes:
        name: one of `TYPES`; "" for any.
        dtype, rank: of a tensor, None if not known.
    """

    name: str
    dtype: str | None = None
    rank: int | None = None

    def __str__(self) -> str:
        parts = [f"a {self.name}"]
        if self.dtype is not None:
            parts.append(f" of {self.dtype}")
        if self.rank is not None:
            parts.append(f" with {self.rank} dimension{'s' * (self.rank != 1)}")
        return "".join(parts)


_ANY = _Type("")


def type_problems(program: Program, func: Function) -> Iterator[Problem]:
    """Yield the problems of operands whose type is not the one that an instruction takes."""
    types = _types_of(program, func)
    for pc, instruction in enumerate(func.code):
        for operand, value in instruction.operands(program.dialect):
            if not operand.wants:
                continue
            found = types.get(value, _ANY)
            if found.name not in ("", operand.wants):
                yield Problem(func.name, pc, f"{operand.name}: expected a {operand.wants} in "
                              f"${value}, got {found}")  # fmt: skip
        if instruction.spec.name == "Phi":
            _, left, right = instruction.values
            a, b = types.get(left, _ANY), types.get(right, _ANY)
            if not _may_be_equal(a, b):
                yield Problem(func.name, pc, f"Phi: expected two objects of one type, got {a} in "
                              f"${left} and {b} in ${right}")  # fmt: skip


def _may_be_equal(a: _Type, b: _Type) -> bool:
    return all(x == y or not x or not y for x, y in zip(a[:2], b[:2], strict=True)) and (
        a.rank is None or b.rank is None or a.rank == b.rank
    )


def _types_of(program: Program, func: Function) -> dict[int, _Type]:
    """The types of the registers that are written."""
    types: dict[int, _Type] = dict.fromkeys(range(len(func.params)), _ANY)
    users: dict[int, list[Instruction]] = {}
    for instruction in func.code:
        for register in _sources(program, instruction):
            users.setdefault(register, []).append(instruction)
    # A type changes at most three times, so each instruction is looked at a few times only.
    work = list(reversed(func.code))
    while work:
        instruction = work.pop()
        written = instruction.registers(program.dialect, Kind.WRITTEN)
        new = _written_type(program, instruction, types) if written else None
        if new is None:
            continue
        old = types.get(written[0])
        joined = new if old is None else _join(old, new)
        if joined != old:
            types[written[0]] = joined
            work += users.get(written[0], ())
    return types


def _sources(program: Program, instruction: Instruction) -> list[int]:
    """The registers whose objects an instruction writes."""
    if instruction.spec.name in ("Move", "DeviceCopy"):
        return [instruction.value(program.dialect, "src")]
    return list(instruction.values[1:]) if instruction.spec.name == "Phi" else []


def _written_type(
    program: Program, instruction: Instruction, types: dict[int, _Type]
) -> _Type | None:
    """What an instruction writes; None if that is not known yet."""
    sources = _sources(program, instruction)
    if sources:
        known = [types[register] for register in sources if register in types]
        return None if not known else known[0] if len(known) == 1 else _join(*known)
    values: dict[str, Any] = {o.name: v for o, v in instruction.operands(program.dialect)}
    name = instruction.spec.makes
    if instruction.spec.name == "LoadConst":
        array = program.constants[values["const_index"]]
        return _Type(name, dtype_name(array.dtype), array.ndim)
    if instruction.spec.name == "LoadConsti":
        return _Type(name, "int64", 0)
    if instruction.spec.name == "ShapeOf":
        return _Type(name, "int64", 1)
    return _Type(name, values.get("dtype") if name == "tensor" else None, values.get("ndim"))


def _join(a: _Type, b: _Type) -> _Type:
    """The type that stands for both."""
    if a.name != b.name:
        return _ANY
    return _Type(a.name, a.dtype if a.dtype == b.dtype else None,
                 a.rank if a.rank == b.rank else None)  # fmt: skip
