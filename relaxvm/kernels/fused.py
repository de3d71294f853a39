"""Chains of elementwise kernels in one.

A chain is text: its steps, in order, and the steps whose results are wanted::

    exp($0); add(%0, $1); where($2, %1, 0.5); cast(%2, float16) -> %3

``$0`` is the first input, ``%0`` the result of the first step.  A step is a kernel without its
`out`; which kernels can be steps, their records say (`relaxvm.kernels.ChainStep`).  The last
operand of ``cast`` is a data type, that of ``nn.apply`` a function.  A number has the data type of
the first tensor next to it.

The chain that a kernel itself consists of may call functions of numpy, as ``numpy.reciprocal``, and
may have steps whose overflow is not reported, written with an exclamation mark: ``exp!(%0)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..core._fused import FusedKernel, FusedPlan, find_loop, has_cast, mode_of, run_plan
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import copy_pieces
from ..registry import GLOBAL, StaticArg
from ._chains import (
    MAX_INPUTS,
    MAX_STEPS,
    MAX_TEXT,
    Fused,
    Operand,
    Ref,
    Step,
    inner_chain,
    numpy_ufunc,
    parse,
)
from ._kernel import PREFIX, ChainStep, kernel, step_of, ufunc_of
from ._tiles import least_of
from .checks import Dims, as_operand, broadcast, check_out, named, native, result_dtype

__all__ = [
    "MAX_INPUTS", "MAX_STEPS", "Fused", "Operand", "Ref", "Step", "inner_chain", "parse",
    "plan_of_chain", "run_chain", "step_of",
]  # fmt: skip


_OVERFLOW: Final = 2


def _inner_step_of(name: str) -> ChainStep | None:
    """How a step of the chain that a kernel consists of is one, which contains no other."""
    name = name.removesuffix("!")
    found = numpy_ufunc(name)
    if found is not None:
        return ChainStep(found.nin)
    step = step_of(name)
    return None if step is None or step.chain is not None else step


def _ufunc(name: str) -> np.ufunc | None:
    name = name.removesuffix("!")
    return numpy_ufunc(name) or ufunc_of(PREFIX + name)


# The kernel


def _check(args: Sequence[StaticArg]) -> Iterator[str]:
    """The faults of a call that can be seen in its static arguments."""
    texts = [(i, value) for i, (kind, value) in enumerate(args) if kind == "str"]
    if any(kind == "any" for kind, _ in args) and not texts:
        return
    if len(texts) != 1:
        yield f"expected one string among the arguments, the chain, got {len(texts)}"
        return
    ((position, text),) = texts
    if text is None:
        return
    try:
        program = parse(text)
    except ValueError as error:
        yield str(error).removeprefix("fused: ")
        return
    yield from _count_faults(program, position, len(args))


def _count_faults(program: Fused, inputs: int, given: int) -> Iterator[str]:
    outs = given - inputs - 1
    if (inputs, outs) != (program.num_inputs, len(program.results)):
        yield (f"expected {program.num_inputs} inputs, the chain and {len(program.results)} "
               f"outputs, got {inputs} before it and {outs} after it")


_plans: Final[dict[str, tuple[FusedPlan, ...]]] = {}
_MOST_CHAINS: Final = 4096
_MOST_PLANS: Final = 8
"""Number of plans that are kept for a chain."""


@kernel(
    "fused",
    signature="*operands: tensor|str, out: tensor",
    check=_check,
    outermost=partial(FusedKernel, plans=_plans),
)
def fused(*operands: Any) -> None:
    """``fused(inputs..., chain, outs...)``: outs = the results of a chain of elementwise kernels,
    bit for bit those of the kernels called one by one.

    Large tensors are computed in blocks that stay in the cache, without temporaries of their size,
    if all inputs and outputs are contiguous, the outputs have one shape, and each input has that
    shape, holds one element, or is repeated along leading or trailing axes by exact operations.
    Chains of float32 with one result run in C, on several threads, in tiles of 1,024 elements, if
    the output is contiguous, whatever the layouts of the inputs: arithmetic, comparisons, choices,
    rounding, exponentials, logarithms and `nn.apply`.  Other chains run kernel by kernel, with
    memory for each result.  Floating-point errors are reported step by step at the end.
    ValueError, too: the string is not a chain, or does not fit the number of arguments."""
    position = 0
    for text in operands:
        if type(text) is str:
            break
        position += 1
    else:
        raise TypeError("fused: chain: expected a string among the arguments, got none")
    _run_new(text, position, operands)


def _run_new(text: str, position: int, operands: tuple[Any, ...]) -> None:
    """Run a chain that has no plan yet."""
    program = parse(text)
    for fault in _count_faults(program, position, len(operands)):
        raise ValueError(f"fused: {fault}")
    inputs, outs = operands[:position], operands[position + 1 :]
    for what, tensors in (("inputs", inputs), ("outs", outs)):
        for i, x in enumerate(tensors):
            if not isinstance(x, np.ndarray):
                raise TypeError(f"fused: {what}[{i}]: expected a tensor, got {describe(x)}")
    plan = _plan(text, inputs, outs)
    if plan is not None and run_plan(plan, operands):
        if len(_plans) >= _MOST_CHAINS:
            _plans.clear()
        others = [other for other in _plans.get(text, ()) if other is not plan]
        _plans[text] = (plan, *others[: _MOST_PLANS - 1])
        return
    _run_apart(program, inputs, outs)


def _run_apart(program: Fused, inputs: Sequence[NDArray[Any]], outs: Sequence[Any]) -> None:
    """Run the kernels of a chain one by one, which defines its results."""
    results: list[NDArray[Any]] = []
    for step in program.steps:
        operands = [_value(operand, inputs, results) for operand in step.operands]
        if step.name == "cast":
            operands.pop()
        with named(step.name):
            out = np.empty(_shape(operands), _dtype(step, operands))
        GLOBAL.get(PREFIX + step.name)(*operands, out)
        results.append(out)
    with named("fused"):
        for index, out in zip(program.results, outs, strict=True):
            check_out(out, results[index].dtype, results[index].shape)
    for index, out in zip(program.results, outs, strict=True):
        copy_pieces(out, results[index])


def _value(operand: Operand, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    if isinstance(operand, Ref):
        return (inputs if operand.kind == "$" else results)[operand.number]
    return operand


def _shape(operands: Sequence[Any]) -> Dims:
    tensors = [x for x in operands if isinstance(x, np.ndarray)]
    return broadcast(**{f"operand {i}": x for i, x in enumerate(tensors)})


def _dtype(step: Step, operands: Sequence[Any]) -> np.dtype[Any]:
    """Data type of the result of a step on tensors and numbers.

    Raises:
        WrongType: the step does not accept the data types of these operands.
    """
    name = step.name
    if name == "cast":
        return as_dtype(str(step.operands[1]))
    tensors = [x for x in operands[name == "where" :] if isinstance(x, np.ndarray)]
    dtype = native(tensors[0].dtype)
    ufunc = _ufunc(name)
    step_kind = step_of(name)
    if ufunc is None or (step_kind is not None and dtype.kind in step_kind.keeps):
        return dtype
    like = [x if isinstance(x, np.ndarray) else tensors[0] for x in operands]
    return result_dtype(ufunc, **{f"operand {i}": x for i, x in enumerate(like)})


# Plans

_FULL, _ONE, _SPREAD = range(3)

class _Unplanned(Exception):
    """There is no plan for a chain: its kernels run one by one."""


class _Planner:
    """Collects the parts of a plan.  Places of operands count inputs, then numbers, then steps.
    Until all numbers are known, the place of a step is a `Ref` of kind ``"%"``."""

    def __init__(self, dtypes: Sequence[np.dtype[Any]], modes: Sequence[int]) -> None:
        self.inputs = [(_plain(dtype), mode) for dtype, mode in zip(dtypes, modes, strict=True)]
        self.numbers: list[bytes] = []
        self.steps: list[tuple[Any, list[Any], np.dtype[Any], int, str, bool]] = []
        self.modes: list[int] = []

    def add(self, step: Step, operands: Sequence[Any]) -> Any:
        """Add a step; return the place of its result."""
        found = _inner_step_of(step.name) or step_of(step.name)
        assert found is not None
        if found.chain is not None:
            return self.add_chain(found, operands)
        name = step.name.removesuffix("!")
        refs = [x for x in operands[: 1 if name == "cast" else None] if isinstance(x, Ref)]
        modes = [self._mode(ref) for ref in refs]
        if _FULL not in modes and not (_SPREAD in modes and found.is_exact):
            raise _Unplanned  # the step is computed once, for one element
        if _SPREAD in modes and not found.is_exact:
            raise _Unplanned
        loop, dtype = self._loop(name, refs, operands)
        number_dtype = self._dtype(refs[name == "where"]) if len(refs) > (name == "where") else None
        args = [
            x if isinstance(x, Ref) else self._number(x, number_dtype)
            for x in operands[: len(operands) - (name == "cast")]
        ]
        label = "cast" if name == "cast" else "where" if loop is None else loop[0].__name__
        ignored = _OVERFLOW if step.name.endswith("!") else 0
        in_place = found.is_exact and name != "cast"
        self.steps.append((loop, args, dtype, ignored, label, in_place))
        self.modes.append(_FULL if _FULL in modes else _SPREAD)
        return Ref("%", len(self.steps) - 1)

    def add_chain(self, found: ChainStep, operands: Sequence[Any]) -> Ref:
        """Add the steps that a step consists of; return the place of the last result."""
        assert found.chain is not None
        text = found.chain(self._dtype(next(x for x in operands if isinstance(x, Ref))))
        if text is None:
            raise _Unplanned
        return self.add_steps(inner_chain(text), operands)

    def add_steps(self, chain: Fused, inputs: Sequence[Any]) -> Ref:
        """Add the steps of a chain of these inputs; return the place of its result."""
        made: list[Ref] = []
        for step in chain.steps:
            operands = [
                x if not isinstance(x, Ref) else (inputs if x.kind == "$" else made)[x.number]
                for x in step.operands
            ]
            made.append(self.add(step, operands))
        return made[chain.results[0]]

    def _loop(
        self, name: str, refs: Sequence[Ref], operands: Sequence[Any]
    ) -> tuple[Any, np.dtype[Any]]:
        """The loop of a step, None for conversions and selections; the data type of the result."""
        dtype = self._dtype(refs[name == "where"] if len(refs) > (name == "where") else refs[0])
        if name == "cast":
            to = as_dtype(str(operands[1]))
            if not has_cast(dtype, _plain(to)):
                raise _Unplanned
            return None, to
        if name == "where":
            if self._dtype(refs[0]) != np.bool_ or dtype.itemsize not in (1, 2, 4, 8):
                raise _Unplanned
            if any(self._dtype(ref) is not dtype for ref in refs[1:]):
                raise _Unplanned
            return None, dtype
        ufunc = _ufunc(name)
        if ufunc is None:
            raise _Unplanned
        if any(self._dtype(ref) is not dtype for ref in refs):
            raise _Unplanned
        operand = np.empty(0, dtype)
        result = result_dtype(ufunc, **{f"operand {i}": operand for i in range(ufunc.nin)})
        # As in the core: for other data types a kernel may compute something else than its ufunc.
        raises = name == "power" and dtype.kind in "iu"
        if raises or (result is not dtype and result != np.bool_):
            raise _Unplanned
        index = find_loop(ufunc, [*[dtype] * ufunc.nin, result])
        if index < 0:
            raise _Unplanned
        return (ufunc, index), result

    def _dtype(self, ref: Ref) -> np.dtype[Any]:
        return self.inputs[ref.number][0] if ref.kind == "$" else self.steps[ref.number][2]

    def _mode(self, ref: Ref) -> int:
        return self.inputs[ref.number][1] if ref.kind == "$" else self.modes[ref.number]

    def _number(self, value: Any, dtype: Any) -> int:
        """Place of a number."""
        self.numbers.append(as_operand("number", value, dtype).tobytes())
        return len(self.inputs) + len(self.numbers) - 1

    def plan(self, results: Sequence[Ref], below: int = 0) -> FusedPlan:
        first = len(self.inputs) + len(self.numbers)

        def place(arg: Any) -> int:
            if isinstance(arg, Ref):
                return arg.number + (first if arg.kind == "%" else 0)
            return int(arg)

        steps = [(loop, list(map(place, args)), *rest) for loop, args, *rest in self.steps]
        numbers = [ref.number for ref in results]
        return FusedPlan(self.inputs, self.numbers, steps, numbers, below)


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    is_own = dtype.kind in "biufc" and dtype.isbuiltin != 2  # float8_e5m2 is of kind "f", too
    if not is_own or np.dtype(dtype.char) is not dtype:
        raise _Unplanned  # of another byte order, say
    return dtype


def plan_of_chain(text: str, dtype: np.dtype[Any]) -> FusedPlan:
    """A plan for a chain that a kernel consists of, of one input as long as the result."""
    planner = _Planner((dtype,), (_FULL,))
    return planner.plan([planner.add_steps(inner_chain(text), [Ref("$", 0)])])


def run_chain(text: str, inputs: Sequence[NDArray[Any]], out: NDArray[Any]) -> bool:
    """Run a chain of one result if there is a plan for such tensors; return whether there is."""
    plan = _plan(text, inputs, (out,))
    return plan is not None and run_plan(plan, (*inputs, text, out))


def _plan(
    text: str, inputs: Sequence[NDArray[Any]], outs: Sequence[NDArray[Any]]
) -> FusedPlan | None:
    """A plan for tensors like these; None if the kernels have to run one by one."""
    if len(text) > MAX_TEXT or any(out.shape != outs[0].shape for out in outs):
        return None
    modes = tuple(mode_of(x, outs[0]) for x in inputs)
    if None in modes:
        return None
    dtypes = tuple(x.dtype for x in inputs)
    return _plan_for(text, dtypes, modes, tuple(dtype.num for dtype in dtypes))


@lru_cache(maxsize=1024)
def _plan_for(
    text: str,
    dtypes: tuple[np.dtype[Any], ...],
    modes: tuple[int, ...],
    nums: tuple[int, ...],  # C's long and long long are equal data types
) -> FusedPlan | None:
    program = parse(text)
    made: list[Ref] = []
    try:
        planner = _Planner(dtypes, modes)
        for step in program.steps:
            operands = [made[x.number] if isinstance(x, Ref) and x.kind == "%" else x
                        for x in step.operands]  # fmt: skip
            made.append(planner.add(step, operands))
        results = [made[index] for index in program.results]
        if any(planner.modes[ref.number] != _FULL for ref in results):
            return None
        return planner.plan(results, least_of(program, dtypes))
    except (_Unplanned, TypeError, ValueError):
        return None  # its kernels do it, or say what is wrong


