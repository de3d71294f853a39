"""Chains of elementwise kernels as text: reading and writing them.

`relaxvm.kernels.fused` says what a chain is.  What a text has to fit is in a table that is made
from the records of the kernels, so that a program that runs chains in C imports no kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from ..dtypes import as_dtype
from ._homes import STEPS

__all__ = [
    "MAX_INPUTS", "MAX_STEPS", "MAX_TEXT", "Form", "Fused", "Operand", "Ref", "Step", "form_of",
    "inner_chain", "numpy_ufunc", "parse",
]  # fmt: skip


class Ref(NamedTuple):
    """An operand: an input (kind ``"$"``) or the result of a step (``"%"``), by its number."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


Operand = Ref | bool | int | float | str


class Step(NamedTuple):
    """A call of a kernel.

    Attributes:
        name: name of the kernel, without its prefix.
        operands: its operands; the last one of ``cast`` is the name of a data type, that of
            ``nn.apply`` the name of a function.
    """

    name: str
    operands: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_written, self.operands))})"


class Fused(NamedTuple):
    """A chain; ``str()`` writes it as `parse` reads it.

    Attributes:
        steps: the steps in order.
        results: numbers of the steps whose results are the outputs.
    """

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    @property
    def num_inputs(self) -> int:
        refs = [ref for step in self.steps for ref in step.operands if isinstance(ref, Ref)]
        return max((ref.number + 1 for ref in refs if ref.kind == "$"), default=0)

    def __str__(self) -> str:
        results = ", ".join(f"%{index}" for index in self.results)
        return f"{'; '.join(map(str, self.steps))} -> {results}"


def _written(operand: Operand) -> str:
    if isinstance(operand, (Ref, str)):
        return str(operand)
    return repr(operand).lower() if isinstance(operand, bool) else repr(operand)


class Form(NamedTuple):
    """What is asked of the text of a step; see `relaxvm.kernels.ChainStep`.

    Attributes:
        arity, takes_dtype, choices: as there.
        is_chain: whether the step may be a chain of its own.
        chain: what it is of float32; None if it is no chain, or if the interpreter in C does not
            know its steps.
    """

    arity: int
    takes_dtype: bool = False
    choices: tuple[str, ...] = ()
    is_chain: bool = False
    chain: str | None = None


def form_of(name: str) -> Form | None:
    """How a kernel, by its name without the prefix, is written as a step; None if it is none."""
    found = STEPS.get(name)
    if found is not None:
        return Form(*found)
    from ._kernel import step_of  # here, since only kernels of other packages are not in the table

    step = step_of(name)
    if step is None:
        return None
    chain = None if step.chain is None else step.chain(np.dtype(np.float32))
    return Form(step.arity, step.takes_dtype, step.choices, step.chain is not None, chain)


MAX_TEXT: Final = 1 << 14
MAX_STEPS: Final = 32
MAX_INPUTS: Final = 64
MAX_RESULTS: Final = 16

_STEP: Final = re.compile(r"\s*([\w.]+!?)\s*\(([^()]*)\)\s*")
_REF: Final = re.compile(r"([$%])(0|[1-9]\d{0,3})")
_NUMBER: Final = re.compile(r"-?(inf|nan|\d+(\.\d*)?([eE][-+]?\d+)?)")


@lru_cache(maxsize=1024)
def parse(text: str) -> Fused:
    """Read a chain.

    Raises:
        ValueError: the text is not a chain; the message says where and why.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"fused: expected at most {MAX_TEXT} characters, got {len(text)}")
    program = _parse(text, form_of)
    steps, results = program
    if len(steps) > MAX_STEPS or len(results) > MAX_RESULTS:
        raise ValueError(f"fused: expected at most {MAX_STEPS} steps and {MAX_RESULTS} results, "
                         f"got {len(steps)} and {len(results)}")
    return program


_NUMPY: Final = "numpy."


def numpy_ufunc(name: str) -> np.ufunc | None:
    """The function of numpy that a step of an inner chain is, by its name; None for a kernel.

    Raises:
        ValueError: numpy has no such function.
    """
    if not name.startswith(_NUMPY):
        return None
    found = getattr(np, name.removeprefix(_NUMPY), None)
    if not isinstance(found, np.ufunc):
        raise ValueError(f"fused: {name} is not a ufunc")
    return found


def _inner_form_of(name: str) -> Form | None:
    """`form_of` for the chain that a kernel consists of; such a chain contains no other."""
    name = name.removesuffix("!")
    ufunc = numpy_ufunc(name)
    form = Form(ufunc.nin) if ufunc is not None else form_of(name)
    return None if form is None or form.is_chain else form


@lru_cache
def inner_chain(text: str) -> Fused:
    """The chain that a kernel itself consists of."""
    return _parse(text, _inner_form_of)


Find = Callable[[str], Form | None]


def _parse(text: str, find: Find) -> Fused:
    body, arrow, wanted = text.partition("->")
    if not arrow:
        raise ValueError("fused: expected '-> %RESULT' at the end")
    steps: list[Step] = []
    for part in body.split(";"):
        match = _STEP.fullmatch(part)
        if match is None:
            raise ValueError(f"fused: step {len(steps)}: expected NAME(OPERANDS), got {part!r}")
        steps.append(_step(len(steps), match[1], match[2], find))
    results = tuple(_result(item.strip(), len(steps)) for item in wanted.split(","))
    fused = Fused(tuple(steps), results)
    used = {ref.number for step in steps for ref in step.operands
            if isinstance(ref, Ref) and ref.kind == "$"}  # fmt: skip
    if used != set(range(len(used))) or len(used) > MAX_INPUTS:
        raise ValueError(f"fused: expected inputs $0 to ${MAX_INPUTS - 1} at most, without gaps, "
                         f"got {', '.join(f'${i}' for i in sorted(used)) or 'none'}")
    return fused


def _step(index: int, name: str, args: str, find: Find) -> Step:
    found = find(name)
    if found is None:
        raise ValueError(f"fused: step {index}: {name!r} is not a kernel that can be a step")
    items = [item.strip() for item in args.split(",")]
    operands = [_operand(f"fused: step {index}", item, index) for item in items[:-1]]
    if found.takes_dtype:
        name = "cast"
        operands.append(_dtype_name(index, items[-1]))
    elif found.choices:
        operands.append(_choice(index, name, items[-1], found.choices))
    else:
        operands.append(_operand(f"fused: step {index}", items[-1], index))
    if len(operands) != found.arity:
        raise ValueError(f"fused: step {index}: {name} takes {found.arity} operands, "
                         f"got {len(operands)}")
    tensors = operands[1:] if name == "where" else operands
    refs = sum(isinstance(operand, Ref) for operand in tensors)
    if not refs or (not isinstance(operands[0], Ref) and found.arity != 2):
        raise ValueError(f"fused: step {index}: {name}: expected a tensor among {args!r}")
    return Step(name, tuple(operands))


def _operand(subject: str, text: str, index: int) -> Operand:
    ref = _REF.fullmatch(text)
    if ref is not None:
        if ref[1] == "%" and int(ref[2]) >= index:
            raise ValueError(f"{subject}: {text}: expected the result of an earlier step")
        return Ref(ref[1], int(ref[2]))
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{subject}: expected $INPUT, %STEP or a number, got {text!r}")
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def _dtype_name(index: int, text: str) -> str:
    try:
        dtype = as_dtype(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"fused: step {index}: {error}") from None
    if dtype.hasobject:
        raise ValueError(f"fused: step {index}: expected a data type of numbers, got {text!r}")
    return text


def _choice(index: int, name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError(f"fused: step {index}: {name}: expected one of {', '.join(choices)}, "
                         f"got {text!r}")
    return text


def _result(text: str, steps: int) -> int:
    match = _REF.fullmatch(text)
    if match is None or match[1] != "%" or int(match[2]) >= steps:
        raise ValueError(f"fused: expected results %0 to %{steps - 1}, got {text!r}")
    return int(match[2])
