"""Shape programs: arithmetic on the slots of a shape heap, encoded as a Shape constant.

A *shape program* is a list of assignments to heap slots, for ``relaxvm.builtin.compute_shape``::

    h[2] = h[0] * h[1]; h[3] = max(h[2], 1)

Its words are code for a stack machine of 64-bit integers: each operation is followed by its operand
if it has one.  An assignment leaves the stack empty; the program above is::

    load 0  load 1  mul  store 2      load 2  const 1  max  store 3

Every operation is one row of `OPS`.  A result that does not fit 64 bits is an error; ``//`` and
``%`` round down.  Comparisons and logical operations return 0 or 1; every number but 0 is true.
All operands are evaluated, also those of ``select`` and of logical operations.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ..aliases import attribute
from ..values import Shape

__all__ = [
    "BY_NAME", "MAX_SLOTS", "MAX_WORDS", "OPS", "ShapeOp", "Step", "decode", "encode", "evaluate",
    "problem", "text",
]  # fmt: skip

Step = str | tuple[str, int]
"""An operation of a program: its name, or its name and operand."""

MAX_SLOTS: Final = 1 << 31
"""Heap slots are numbered from 0 to one less than this."""

MAX_WORDS: Final = 1 << 16
"""A program has at most as many words."""

_REMEMBERED: Final = 1024
"""The number of decoded programs that are cached: loops run the same ones repeatedly."""
_SHORT: Final = 256
"""Programs of at most as many words are cached."""

_LOW, _HIGH = -(1 << 63), (1 << 63) - 1


class ShapeOp(NamedTuple):
    """An operation.

    Attributes:
        code: its word.
        name: its name in `encode` and `decode`.
        operand: the kind of its operand, ``"slot"``, ``"value"`` or nothing.
        pops: the number of values it pops.  All operations but ``store`` push one value.
        form: its text, with ``{0}`` for the first popped value (or the operand).
        compute: computes its result from the popped values; None if it depends on the operand.
    """

    code: int
    name: str
    operand: str
    pops: int
    form: str
    compute: Callable[..., int] | None = None

    @property
    def size(self) -> int:
        """Number of words."""
        return 2 if self.operand else 1

    @property
    def is_infix(self) -> bool:
        """Whether its text is an infix operator, which needs parentheses within another one."""
        return self.pops > 0 and not self.form.endswith(")")


def _logic(holds: Callable[..., bool]) -> Callable[..., int]:
    return lambda *values: int(holds(*values))


OPS: Final[tuple[ShapeOp, ...]] = (
    ShapeOp(0, "const", "value", 0, "{0}"),
    ShapeOp(1, "load", "slot", 0, "h[{0}]"),
    ShapeOp(2, "store", "slot", 1, "h[{0}] = {1}"),
    ShapeOp(3, "add", "", 2, "{0} + {1}", operator.add),
    ShapeOp(4, "sub", "", 2, "{0} - {1}", operator.sub),
    ShapeOp(5, "mul", "", 2, "{0} * {1}", operator.mul),
    ShapeOp(6, "floordiv", "", 2, "{0} // {1}", operator.floordiv),
    ShapeOp(7, "floormod", "", 2, "{0} % {1}", operator.mod),
    ShapeOp(8, "min", "", 2, "min({0}, {1})", min),
    ShapeOp(9, "max", "", 2, "max({0}, {1})", max),
    ShapeOp(10, "eq", "", 2, "{0} == {1}", _logic(operator.eq)),
    ShapeOp(11, "ne", "", 2, "{0} != {1}", _logic(operator.ne)),
    ShapeOp(12, "lt", "", 2, "{0} < {1}", _logic(operator.lt)),
    ShapeOp(13, "le", "", 2, "{0} <= {1}", _logic(operator.le)),
    ShapeOp(14, "gt", "", 2, "{0} > {1}", _logic(operator.gt)),
    ShapeOp(15, "ge", "", 2, "{0} >= {1}", _logic(operator.ge)),
    ShapeOp(16, "and", "", 2, "{0} and {1}", _logic(lambda a, b: a != 0 and b != 0)),
    ShapeOp(17, "or", "", 2, "{0} or {1}", _logic(lambda a, b: a != 0 or b != 0)),
    ShapeOp(18, "not", "", 1, "not {0}", _logic(operator.not_)),
    ShapeOp(19, "select", "", 3, "select({0}, {1}, {2})", lambda cond, a, b: a if cond else b),
)
"""Every operation; the word of an operation is its index here."""

BY_NAME: Final = {op.name: op for op in OPS}


# Between words and steps


def encode(steps: Iterable[Step]) -> Shape:
    """Return the words of a program as a Shape constant.

    >>> encode([("load", 0), ("const", 4), "mul", ("store", 1)])
    Shape(1, 0, 0, 4, 5, 2, 1)

    Raises:
        ValueError: an operation is unknown, an operand is missing, superfluous or out of range, or
            the stack is not as an operation needs it: see `problem`.
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
    """Return the steps of a program; the inverse of `encode`.

    Raises:
        ValueError: the words are not a program.
    """
    return [op.name if not op.operand else (op.name, word) for op, word in _checked(program)]


def problem(program: Sequence[int]) -> str | None:
    """Return what is wrong with the words of a program; None if they are valid."""
    words = tuple(program)
    if len(words) > MAX_WORDS:
        return f"expected at most {MAX_WORDS:,} words, got {len(words):,}"
    return _short_problem(words) if len(words) <= _SHORT else _problem(words)


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


def _checked(program: Sequence[int]) -> Sequence[tuple[ShapeOp, int]]:
    """Return the operations and operands (0 where there is none) of a valid program."""
    words = tuple(program)
    return _short_operations(words) if len(words) <= _SHORT else _operations(words)


def _operations(program: tuple[int, ...]) -> Sequence[tuple[ShapeOp, int]]:
    fault = problem(program)
    if fault is not None:
        raise ValueError(f"shape program: {fault}")
    found: list[tuple[ShapeOp, int]] = []
    at = 0
    while at < len(program):
        op = OPS[program[at]]
        found.append((op, program[at + 1] if op.operand else 0))
        at += op.size
    return found


_short_problem: Final = functools.lru_cache(maxsize=_REMEMBERED)(_problem)
_short_operations: Final = functools.lru_cache(maxsize=_REMEMBERED)(_operations)


def text(program: Sequence[int]) -> str:
    """Return a program as readable assignments.

    >>> text(Shape((1, 0, 0, 4, 5, 2, 1)))
    'h[1] = h[0] * 4'

    Raises:
        ValueError: the words are not a program.
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
        heap: the initial value of each slot; it is not changed.

    Returns:
        The new values by slot, in the order in which the slots were first assigned.

    Raises:
        ValueError: the words are not a program.
        IndexError: the heap has no such slot.
        OverflowError: a result does not fit 64 bits; the message shows the operation.
        ZeroDivisionError: a division by zero; the message shows the operation.
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


def _compute(op: ShapeOp, values: list[int]) -> int:
    assert op.compute is not None
    try:
        result = op.compute(*values)
    except ZeroDivisionError:
        raise ZeroDivisionError(f"{op.name}: {op.form.format(*values)}") from None
    if not _LOW <= result <= _HIGH:
        raise OverflowError(f"{op.name}: {op.form.format(*values)} = {result} does not fit "
                            "64 bits")
    return result


def __getattr__(name: str) -> Any:
    return attribute(__name__, name)
