"""Shape programs: arithmetic on the slots of a shape heap, as the words of a Shape constant.

A *shape program* is a list of assignments to heap slots, for ``relaxvm.builtin.compute_shape``::

    h[2] = h[0] * h[1]; h[3] = max(h[2], 1)

Its words are postfix code for a stack of 64-bit integers: an operation, then its operand if it has
one.  An assignment leaves the stack empty; the program above is::

    load 0  load 1  mul  store 2      load 2  const 1  max  store 3

Every operation is one row of `OPS`.  Arithmetic is that of the integers: a result that does not fit
64 bits is an error, ``//`` and ``%`` round down.  Comparisons and logic give 0 or 1 and take every
number but 0 as true.  All operands are evaluated, those of ``select`` and of logic too.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from .values import Shape

__all__ = ["BY_NAME", "MAX_SLOTS", "OPS", "Op", "Step", "decode", "encode", "evaluate", "problem",
           "text"]  # fmt: skip

Step = str | tuple[str, int]
"""An operation of a program: its name, or its name and operand."""

MAX_SLOTS: Final = 1 << 31
"""Heap slots are numbered from 0 to one less than this."""

_REMEMBERED: Final = 1024
"""Programs whose operations are kept: loops run the same ones over and over."""

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


class Op(NamedTuple):
    """An operation.

    Attributes:
        code: its word.
        name: as `encode` and `decode` have it.
        operand: what its operand is, ``"slot"``, ``"value"`` or nothing.
        pops: values taken off the stack.  All operations but ``store`` put one there.
        form: how it is written, with ``{0}`` for the first value taken (or the operand).
        compute: its result from the values taken; None where the operand has a part in it.
    """

    code: int
    name: str
    operand: str
    pops: int
    form: str
    compute: Callable[..., int] | None = None

    @property
    def size(self) -> int:
        """Words it takes."""
        return 2 if self.operand else 1

    @property
    def is_infix(self) -> bool:
        """Whether it is written with an operator, and so in parentheses beside another one."""
        return self.pops > 0 and not self.form.endswith(")")


def _logic(holds: Callable[..., bool]) -> Callable[..., int]:
    return lambda *values: int(holds(*values))


OPS: Final[tuple[Op, ...]] = (
    Op(0, "const", "value", 0, "{0}"),
    Op(1, "load", "slot", 0, "h[{0}]"),
    Op(2, "store", "slot", 1, "h[{0}] = {1}"),
    Op(3, "add", "", 2, "{0} + {1}", operator.add),
    Op(4, "sub", "", 2, "{0} - {1}", operator.sub),
    Op(5, "mul", "", 2, "{0} * {1}", operator.mul),
    Op(6, "floordiv", "", 2, "{0} // {1}", operator.floordiv),
    Op(7, "floormod", "", 2, "{0} % {1}", operator.mod),
    Op(8, "min", "", 2, "min({0}, {1})", min),
    Op(9, "max", "", 2, "max({0}, {1})", max),
    Op(10, "eq", "", 2, "{0} == {1}", _logic(operator.eq)),
    Op(11, "ne", "", 2, "{0} != {1}", _logic(operator.ne)),
    Op(12, "lt", "", 2, "{0} < {1}", _logic(operator.lt)),
    Op(13, "le", "", 2, "{0} <= {1}", _logic(operator.le)),
    Op(14, "gt", "", 2, "{0} > {1}", _logic(operator.gt)),
    Op(15, "ge", "", 2, "{0} >= {1}", _logic(operator.ge)),
    Op(16, "and", "", 2, "{0} and {1}", _logic(lambda a, b: a != 0 and b != 0)),
    Op(17, "or", "", 2, "{0} or {1}", _logic(lambda a, b: a != 0 or b != 0)),
    Op(18, "not", "", 1, "not {0}", _logic(operator.not_)),
    Op(19, "select", "", 3, "select({0}, {1}, {2})", lambda cond, a, b: a if cond else b),
)
"""Every operation; its word is its place here."""

BY_NAME: Final = {op.name: op for op in OPS}


# Between words and steps


def encode(steps: Iterable[Step]) -> Shape:
    """The words of a program, as the Shape constant that it is kept in.

    >>> encode([("load", 0), ("const", 4), "mul", ("store", 1)])
    Shape(1, 0, 0, 4, 5, 2, 1)

    Raises:
        ValueError: no such operation, an operand that is missing, not wanted or out of range, or
            an assignment that does not come out: see `problem`.
    """
    words: list[int] = []
    for step in steps:
        name, *operands = (step,) if isinstance(step, str) else step
        op = BY_NAME.get(name)
        if op is None:
            raise ValueError(f"shape program: unknown operation {name!r}, expected one of "
                             f"{', '.join(BY_NAME)}")
        if len(operands) != op.size - 1:
            raise ValueError(f"shape program: {name} takes {op.operand or 'no operand'}, "
                             f"got {operands or 'none'}")
        words += [op.code, *operands]
    program = Shape(words)
    fault = problem(program)
    if fault is not None:
        raise ValueError(f"shape program: {fault}")
    return program


def decode(program: Sequence[int]) -> list[Step]:
    """The steps of a program, as `encode` takes them.

    Raises:
        ValueError: it is none.
    """
    return [op.name if not op.operand else (op.name, word) for op, word in _checked(program)]


def problem(program: Sequence[int]) -> str | None:
    """What is wrong with the words of a program, None if nothing is."""
    return _problem(tuple(program))


@functools.lru_cache(maxsize=_REMEMBERED)
def _problem(program: tuple[int, ...]) -> str | None:
    depth = at = 0
    while at < len(program):
        code = program[at]
        if not 0 <= code < len(OPS):
            return f"word {at}: expected an operation of 0 to {len(OPS) - 1}, got {code}"
        op = OPS[code]
        if at + op.size > len(program):
            return f"word {at}: {op.name}: expected a {op.operand} after it, got the end"
        if op.operand == "slot" and not 0 <= program[at + 1] < MAX_SLOTS:
            return (f"word {at + 1}: {op.name}: expected a heap slot of 0 to 2**31 - 1, "
                    f"got {program[at + 1]}")
        if depth < op.pops:
            return f"word {at}: {op.name}: expected {op.pops} values on the stack, got {depth}"
        if op.name == "store" and depth > 1:
            return f"word {at}: store: expected 1 value on the stack, got {depth}"
        depth += (op.name != "store") - op.pops
        at += op.size
    return f"expected a store at the end, got {depth} values on the stack" if depth else None


def _checked(program: Sequence[int]) -> Sequence[tuple[Op, int]]:
    """Operations and operands (0 where there is none) of a program."""
    return _operations(tuple(program))


@functools.lru_cache(maxsize=_REMEMBERED)
def _operations(program: tuple[int, ...]) -> Sequence[tuple[Op, int]]:
    fault = _problem(program)
    if fault is not None:
        raise ValueError(f"shape program: {fault}")
    found: list[tuple[Op, int]] = []
    at = 0
    while at < len(program):
        op = OPS[program[at]]
        found.append((op, program[at + 1] if op.operand else 0))
        at += op.size
    return found


def text(program: Sequence[int]) -> str:
    """A program as assignments, to be read.

    >>> text(Shape((1, 0, 0, 4, 5, 2, 1)))
    'h[1] = h[0] * 4'

    Raises:
        ValueError: it is none.
    """
    out: list[str] = []
    stack: list[tuple[str, bool]] = []  # each with whether it is infix
    for op, word in _checked(program):
        values = [stack.pop() for _ in range(op.pops)][::-1]
        operands = [f"({value})" if infix and op.is_infix and op.name != "store" else value
                    for value, infix in values]  # fmt: skip
        written = op.form.format(*([word] if op.operand else []), *operands)
        if op.name == "store":
            out.append(written)
        else:
            stack.append((written, op.is_infix))
    return "; ".join(out)


# The meaning


def evaluate(program: Sequence[int], heap: Sequence[int]) -> dict[int, int]:
    """Run a program.

    Args:
        program: its words.
        heap: the value of each slot before; it is not changed.

    Returns:
        The new values by slot, in the order in which the slots were first assigned.

    Raises:
        ValueError: the words are no program.
        IndexError: the heap has no such slot.
        OverflowError: a result does not fit 64 bits.
        ZeroDivisionError: a division by zero.  It and the former name the assignment.
    """
    slots: dict[int, int] = {}
    stack: list[int] = []
    stores = 0
    for op, word in _checked(program):
        if op.operand == "slot" and word >= len(heap):
            raise IndexError(f"{op.name}: heap slot {word}: expected 0 to {len(heap) - 1}")
        if op.name == "const":
            stack.append(word)
        elif op.name == "load":
            stack.append(slots[word] if word in slots else int(heap[word]))
        elif op.name == "store":
            slots[word] = stack.pop()
            stores += 1
        else:
            values = stack[len(stack) - op.pops :]
            try:
                result = _compute(op, values)
            except (OverflowError, ZeroDivisionError) as error:
                assignment = text(program).split("; ")[stores]
                raise type(error)(f"{error}, in {assignment}") from None
            stack[len(stack) - op.pops :] = [result]
    return slots


def _compute(op: Op, values: list[int]) -> int:
    assert op.compute is not None
    try:
        result = op.compute(*values)
    except ZeroDivisionError:
        raise ZeroDivisionError(f"{op.name}: {op.form.format(*values)}") from None
    if not _LOW <= result <= _HIGH:
        raise OverflowError(f"{op.name}: {op.form.format(*values)} = {result} does not fit "
                            "64 bits")
    return result
