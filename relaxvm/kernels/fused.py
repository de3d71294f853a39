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

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core._fused import FusedKernel, FusedPlan, find_loop, has_cast, mode_of, run_plan
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import copy_pieces
from ..registry import GLOBAL, StaticArg
from ._kernel import PREFIX, ChainStep, kernel, record_of, ufunc_of
from ._tiles import offer
from .checks import Dims, as_operand, broadcast, check_out, named, native, result_dtype

__all__ = [
    "Fused", "Operand", "Ref", "Step", "inner_chain", "parse", "plan_of_chain", "run_chain",
    "step_of",
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


# Chains as text

_OVERFLOW: Final = 2

_NUMPY: Final = "numpy."

MAX_TEXT: Final = 1 << 14
MAX_STEPS: Final = 32
MAX_INPUTS: Final = 64
MAX_RESULTS: Final = 16

_STEP: Final = re.compile(r"\s*([\w.]+!?)\s*\(([^()]*)\)\s*")
_REF: Final = re.compile(r"([$%])(0|[1-9]\d{0,3})")
_NUMBER: Final = re.compile(r"-?(inf|nan|\d+(\.\d*)?([eE][-+]?\d+)?)")


def step_of(name: str) -> ChainStep | None:
    """How a kernel, by its name without the prefix, is a step; None if it cannot be one."""
    record = record_of(PREFIX + name)
    return record.step if record is not None and isinstance(record.step, ChainStep) else None


def _inner_step_of(name: str) -> ChainStep | None:
    """The same for the chain that a kernel consists of; such a chain contains no other."""
    name = name.removesuffix("!")
    if name.startswith(_NUMPY):
        return ChainStep(_numpy_ufunc(name).nin)
    step = step_of(name)
    return None if step is None or step.chain is not None else step


def _numpy_ufunc(name: str) -> np.ufunc:
    found = getattr(np, name.removeprefix(_NUMPY), None)
    if not isinstance(found, np.ufunc):
        raise ValueError(f"fused: {name} is not a ufunc")
    return found


@lru_cache(maxsize=1024)
def parse(text: str) -> Fused:
    """Read a chain.

    Raises:
        ValueError: the text is not a chain; the message says where and why.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"fused: expected at most {MAX_TEXT} characters, got {len(text)}")
    program = _parse(text, step_of)
    steps, results = program
    if len(steps) > MAX_STEPS or len(results) > MAX_RESULTS:
        raise ValueError(f"fused: expected at most {MAX_STEPS} steps and {MAX_RESULTS} results, "
                         f"got {len(steps)} and {len(results)}")
    return program


Find = Callable[[str], ChainStep | None]


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


def _ufunc(name: str) -> np.ufunc | None:
    name = name.removesuffix("!")
    return _numpy_ufunc(name) if name.startswith(_NUMPY) else ufunc_of(PREFIX + name)


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


@kernel("fused", signature="*operands: tensor|str, out: tensor", check=_check)
@partial(FusedKernel, plans=_plans)
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
    if offer(text, program):
        GLOBAL.get(PREFIX + "fused")(*operands)  # in C, if it takes these tensors
        return
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

    def plan(self, results: Sequence[Ref]) -> FusedPlan:
        first = len(self.inputs) + len(self.numbers)

        def place(arg: Any) -> int:
            if isinstance(arg, Ref):
                return arg.number + (first if arg.kind == "%" else 0)
            return int(arg)

        steps = [(loop, list(map(place, args)), *rest) for loop, args, *rest in self.steps]
        return FusedPlan(self.inputs, self.numbers, steps, [ref.number for ref in results])


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    is_own = dtype.kind in "biufc" and dtype.isbuiltin != 2  # float8_e5m2 is of kind "f", too
    if not is_own or np.dtype(dtype.char) is not dtype:
        raise _Unplanned  # of another byte order, say
    return dtype


@lru_cache
def inner_chain(text: str) -> Fused:
    """The chain that a kernel itself consists of."""
    return _parse(text, _inner_step_of)


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
        return planner.plan(results)
    except (_Unplanned, TypeError, ValueError):
        return None  # its kernels do it, or say what is wrong


