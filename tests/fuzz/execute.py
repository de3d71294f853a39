"""Run all functions of an executable that was read from a mutant, through the public interface."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from typing import Any, Final

import numpy as np

from relaxvm.compiler.decompile import decompile
from relaxvm.errors import FormatError, RelaxVMError
from relaxvm.executable import VMExecutable
from relaxvm.executable.formats import binary, text
from relaxvm.isa import FuncKind
from relaxvm.limits import Limits
from relaxvm.messages import describe
from relaxvm.registry import GLOBAL, Registry
from relaxvm.values import Shape

from ..corpus import CORPUS
from ..kernels import KERNELS
from .mutate import case_of
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["LIMITS", "LONG", "execute", "inputs"]

LIMITS: Final = Limits.untrusted().but(
    fuel=20_000, wall_time=900.0, live_bytes=64 << 20, alloc_bytes=16 << 20
)
"""`Limits.untrusted`, with less work per call so that a million mutants take minutes.  Fuel ends a
call; a limit of time would end one run of a mutant and not the other on a busy machine."""

LONG: Final = 400
"""Instructions."""
MOST_DRAWN: Final = 64
"""Arguments that are drawn; further ones are the same again."""


def execute(read: Callable[[], VMExecutable], base: str, index: int) -> Ending:
    """Read an executable, verify it and run it under untrusted limits, with arguments drawn from
    the index of the mutant.

    One mutant in four runs a second time with the plain Python builtins instead of the core's fast
    paths, and must have an equal outcome; another one in four is printed and read back, of the long
    ones one in 64.
    """
    try:
        executable = read()
        endings = _run(executable, base, index, True)
        if index % 4 == 0 and _run(executable, base, index, False) != endings:
            return Outcome.STRAY_ERROR, "differs: with and without the fast paths"
        if index % _printed_every(executable) == 1 and not _survives_printing(executable):
            return Outcome.STRAY_ERROR, "differs: after printing and reading"
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    return max(endings, default=(Outcome.RESULT, ""))


def _printed_every(executable: VMExecutable) -> int:
    """Printing a few long executables would take longer than all the rest."""
    return 4 if len(executable) <= LONG else 64


def _run(executable: VMExecutable, base: str, index: int, optimize: bool) -> list[Ending]:
    from relaxvm.vm import VirtualMachine

    machine = VirtualMachine(executable, limits=LIMITS, functions=_registry(), optimize=optimize)
    return [_call(machine[name], args) for name, args in inputs(executable, base, index)]


def _survives_printing(executable: VMExecutable) -> bool:
    """Return whether all formats can be written, and the readable ones read back as equal."""
    ex = executable
    for form in (ex.stats, ex.as_text, ex._repr_html_, ex.as_python):
        form()
    decompile(ex)
    copies = [text.parse_text(executable.as_text(complete=True))]
    with contextlib.suppress(FormatError):  # a listing may have constants that a stream has not
        copies.append(binary.loads(binary.dumps(executable)))
    return all(copy == executable and copy.debug == executable.debug for copy in copies)


def _call(function: Callable[..., Any], args: Sequence[Any]) -> Ending:
    try:
        result = function(*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        # An exception of a packed function passes through, with notes that name the frames.
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, described(error)
    return Outcome.RESULT, describe(result)


def inputs(
    executable: VMExecutable, base: str, index: int
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield calls to try: each function with arguments of the corpus, if any, and random ones."""
    rng = random.Random(index)
    case = CORPUS[case_of(base)]
    for info in executable.functions:
        if info.kind != FuncKind.BYTECODE:
            continue
        for run in case.runs:
            if run.function == info.name and len(run.specs) == info.num_args:
                yield info.name, run.args(index)
        drawn = [_value(rng) for _ in range(min(info.num_args, MOST_DRAWN))]
        yield info.name, tuple(itertools.islice(itertools.cycle(drawn), info.num_args))


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 2 else 7)
    if kind == 0:
        return rng.choice((None, True, False, "text", 0.5, float("nan"), np.dtype("float32")))
    if kind == 1:
        return rng.choice((0, 1, 2, 3, -1, 1 << 40, -(1 << 62), 1 << 70))
    if kind == 2:
        return Shape(rng.choice((0, 1, 2, 3, 4, -1, 1 << 40)) for _ in range(rng.randrange(4)))
    if kind == 3:
        return max  # any callable
    if kind >= 7:
        return tuple(_value(rng, depth + 1) for _ in range(rng.randrange(4)))
    dtype = rng.choice(("float32", "float32", "float64", "int64", "int32", "bool", "uint8"))
    shape = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randrange(4))]
    array = (np.arange(np.prod(shape, dtype=int)) % 5).astype(dtype).reshape(shape)
    return array.T if rng.random() < 0.2 else array


@cache
def _registry() -> Registry:
    import relaxvm.builtins  # noqa: F401  (registers itself)

    return Registry({name: _bounded(func) for name, func in KERNELS.items()}, parent=GLOBAL)


def _bounded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel reject huge amounts of work: limits do not apply to Python functions."""

    @wraps(kernel)
    def bounded(*args: Any) -> Any:
        longest = greatest = 0
        for arg in args:
            if isinstance(arg, int):
                greatest = max(greatest, abs(arg))
            elif isinstance(arg, (str, tuple)):
                longest = max(longest, len(arg))
        if greatest >= 1 << 64 or longest > 100_000 or longest * greatest > 100_000:
            raise OverflowError("more than a kernel of the corpus is meant for")
        return kernel(*args)

    return bounded
