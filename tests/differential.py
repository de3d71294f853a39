"""Differential tests: random programs in the evaluator, after every pass, and in the VM.

``python -m tests.differential --count 10000 --seed 0`` generates programs and checks for each

- that it is well-formed before and after every pass, and that printing and parsing, or saving as
  JSON and loading, returns the same program (for one program in ten, also after every pass);
- that no pass changes its input module;
- that the evaluator returns the same results after every pass, including each optimizing pass;
- that the VM returns these results too, with and without optimization, and in compiled mode;
- that arguments do not change, and that effects happen in the same order.

Native code is compiled without optimization, unless ``RELAXVM_CFLAGS`` has other options.

A difference is shrunk to a small program, which is printed with the arguments that show it.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import relaxvm
from relaxvm import VirtualMachine, analysis, ir, transform
from relaxvm.compiler.reduce import shrink
from relaxvm.script import from_source
from relaxvm.transform import Pass
from relaxvm.transform.pipelines import LOWERING

from .relax_evaluator import CheckError, Evaluator, KindError, MismatchError
from .relax_generator import Program, generate, packed_functions

OPTIMIZING: tuple[Callable[[], Pass], ...] = (
    transform.Normalize,
    transform.CanonicalizeBindings,
    transform.DeadCodeElimination,
    transform.EliminateCommonSubexpr,
    transform.FoldConstant,
    transform.InlinePrivateFunctions,
)
"""Passes that may run on any program, alone, and change no result."""


PROGRAM = "the program"
EXEC_MODES = ("bytecode", "compiled")
MAY_DROP_CHECKS = ("after DeadCodeElimination",)
"""Stages that remove pure calls that nobody uses, also those that would fail."""
THOROUGH_EVERY = 10
_PROGRESS_EVERY = 500
_BROKEN_BY_SHRINKING = ("function_has_type",)
"""Rules that smaller programs need not keep: GlobalVars stay as they are."""


def _after(the_pass: Pass) -> str:
    return f"after {the_pass.name}"


OTHERS: dict[str, tuple[Callable[[], Pass], ...]] = {
    "LegalizeOps": (partial(transform.FuseOps, min_elements=0),),
    "CallTIRRewrite": (transform.StaticPlanBlockMemory,),
}
"""Passes that the pipeline has not, by the one that they may come after."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: a value, or the kind of check that failed; and its effects."""

    value: Any
    error: str | None
    log: list[Any]


@dataclass(frozen=True)
class Difference:
    """A difference that was found.

    Attributes:
        stage: where: "after LambdaLift: results".
        what: the expected and the actual outcome.
        args: the arguments of "main", if the stage is a run.
    """

    stage: str
    what: str
    args: list[Any] | None = None

    @property
    def kind(self) -> str:
        """The kind of difference, which shrinking keeps."""
        return f"{self.stage}: {self.what.split(':')[0]}"

    def __str__(self) -> str:
        return f"{self.stage}: {self.what}"


class Differs(Exception):
    """Raised with a `Difference`."""

    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


# Runs


def run(function: Callable[..., Any], args: list[Any], log: list[Any]) -> Outcome:
    """Return the outcome of a run, and check that it does not change its arguments."""
    given = copy.deepcopy(args)
    value: Any = None
    error: str | None = None
    try:
        value = copy.deepcopy(function(*given))
    except CheckError as failed:
        error = _kind_of_check(failed)
    except (RuntimeError, ValueError, TypeError) as failed:
        if "ErrorContext" not in str(failed):
            raise
        error = type(failed).__name__
        error = {"InternalError": "RuntimeError"}.get(error, error)
    if not same(given, args):
        raise AssertionError(f"the arguments were changed to {given}")
    return Outcome(value, error, list(log))


def _kind_of_check(error: CheckError) -> str:
    if isinstance(error, MismatchError):
        return "RuntimeError"
    return "TypeError" if isinstance(error, KindError) else "ValueError"


def evaluate(mod: ir.IRModule, args: list[Any]) -> Outcome:
    """Run a program with the evaluator."""
    log: list[Any] = []
    evaluator = Evaluator(mod, packed_functions(log))
    return run(lambda *given: evaluator("main", *given), args, log)


def execute(executable: Any, args: list[Any], *, optimize: bool) -> Outcome:
    """Run a program with the VM."""
    log: list[Any] = []
    vm = VirtualMachine(executable, functions=packed_functions(log), optimize=optimize)
    assert vm.native_code is None or vm.native_code.problem is None, vm.native_code.problem
    return run(vm["main"], args, log)


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal; floats may differ by the order of additions."""
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.kind == "f":
            return bool(np.allclose(a, b, rtol=1e-4, atol=1e-3, equal_nan=True))
        return bool(np.array_equal(a, b))
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


# Checks


class Checker:
    """Checks one program.

    Args:
        only: the only stage to check; None for all.
        thorough: whether to print, parse, save and hash the output of every pass too, and to run
            it with all inputs rather than with one of them in turn.
    """

    def __init__(
        self,
        mod: ir.IRModule,
        inputs: Sequence[list[Any]],
        *,
        only: str | None = None,
        thorough: bool = True,
    ) -> None:
        self.mod = mod
        self.inputs = inputs
        self.only = only
        self.thorough = thorough
        self.expected: list[Outcome] = []
        self.turns = itertools.count()
        self.is_on_heap = False
        """Whether shapes are on the heap, so that the types in a text do not follow from it."""

    def check(self) -> None:
        """Check the program; raise Differs at the first check that fails."""
        if self.only in (None, PROGRAM):
            self.attempt(PROGRAM, lambda: self.structure(self.mod))
        before = ir.structural_hash(self.mod)
        self.expected = self.attempt(
            PROGRAM, lambda: [evaluate(self.mod, args) for args in self.inputs]
        )
        if self.only == PROGRAM:
            return
        optimizing = [make() for make in OPTIMIZING]
        if self.only is None or self.only not in [_after(each) for each in optimizing]:
            self.lowering()
        self.is_on_heap = False
        for each in optimizing:
            if self.only in (None, _after(each)):
                self.after(each, self.mod)
        if ir.structural_hash(self.mod) != before:
            raise Differs(Difference("all passes", "the program itself has changed"))

    def lowering(self) -> None:
        """Check every pass of the pipeline, optional passes, and the executable."""
        lowered = self.mod
        for make, _ in LOWERING:
            the_pass = make()
            lowered = self.after(the_pass, lowered)
            if self.only == _after(the_pass):
                return
            for other in OTHERS.get(the_pass.name, ()):
                if self.only in (None, _after(other())):
                    self.after(other(), lowered)
        for mode in EXEC_MODES:
            self.executable(lowered, mode)

    def attempt(self, stage: str, do: Callable[[], Any]) -> Any:
        """Call a function that must not fail."""
        try:
            return do()
        except Differs:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            raise Differs(Difference(stage, what)) from error

    def after(self, the_pass: Pass, mod: ir.IRModule) -> ir.IRModule:
        """Return the output of a pass, after checking it."""
        stage = _after(the_pass)
        if self.only not in (None, stage):
            return self.attempt(stage, lambda: the_pass(mod))
        before = ir.structural_hash(mod) if self.thorough else 0
        new = self.attempt(stage, lambda: the_pass(mod))
        if self.thorough and ir.structural_hash(mod) != before:
            raise Differs(Difference(stage, "the module that was given to the pass has changed"))
        self.is_on_heap = self.is_on_heap or the_pass.name == "VMShapeLower"
        check = self.structure if self.thorough else analysis.check_well_formed
        self.attempt(stage, lambda: check(new))
        runs = list(zip(self.inputs, self.expected, strict=True))
        if not self.thorough:
            runs = [runs[next(self.turns) % len(runs)]]
        self.compare(stage, runs, lambda args: evaluate(new, args))
        return new

    def compare(
        self,
        stage: str,
        runs: Iterable[tuple[list[Any], Outcome]],
        outcome: Callable[[list[Any]], Outcome],
    ) -> None:
        """Compare outcomes with the expected ones."""
        for args, expected in runs:
            try:
                got = outcome(args)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
                raise Differs(Difference(stage, what, args)) from error
            if expected.error and stage in MAY_DROP_CHECKS:
                continue
            for field in ("error", "value", "log"):
                one, other = getattr(expected, field), getattr(got, field)
                if not same(one, other):
                    what = f"{field} differs: expected {one!r}, got {other!r}"
                    raise Differs(Difference(stage, what, args))

    def structure(self, mod: ir.IRModule) -> None:
        """Check that a program is well-formed and is the same after printing and after JSON."""
        analysis.check_well_formed(mod)
        number = ir.structural_hash(mod)
        stored = ir.load_json(ir.save_json(mod))
        ir.assert_structural_equal(mod, stored)
        assert ir.structural_hash(stored) == number, "structural_hash: changed by JSON"
        if self.is_on_heap:
            return
        text = mod.script(show_meta=True)
        again = from_source(text, check_well_formed=False)
        ir.assert_structural_equal(mod, again)
        assert again.script(show_meta=True) == text, "script: the parsed module prints differently"

    def executable(self, lowered: ir.IRModule, mode: str) -> None:
        """Build the lowered module, and run it."""
        executable = self.attempt(
            f"build ({mode})",
            lambda: relaxvm.build(lowered, relax_pipeline=None, exec_mode=mode),
        )
        for optimize in (False, True):
            stage = f"run ({mode}{', optimized' * optimize})"
            if self.only in (None, stage):
                runs = zip(self.inputs, self.expected, strict=True)
                self.compare(stage, runs, partial(execute, executable, optimize=optimize))


def difference_of(
    mod: ir.IRModule,
    inputs: Sequence[list[Any]],
    *,
    only: str | None = None,
    thorough: bool = True,
) -> Difference | None:
    """Return the first difference of a program, or None; the options are those of `Checker`."""
    try:
        Checker(mod, inputs, only=only, thorough=thorough).check()
    except Differs as error:
        return error.difference
    return None


def check_program(program: Program) -> Difference | None:
    """Return the first difference of a random program, or None.  One in `THOROUGH_EVERY` is
    checked thoroughly, depending on the seed."""
    thorough = program.seed % THOROUGH_EVERY == 0
    return difference_of(program.module, program.inputs, thorough=thorough)


def shrunk(program: Program, difference: Difference) -> tuple[ir.IRModule, list[Any], Difference]:
    """Return a small program with a difference of the same kind."""
    args = program.inputs[0] if difference.args is None else difference.args

    def holds(mod: ir.IRModule, given: list[Any]) -> bool:
        if any(each.rule not in _BROKEN_BY_SHRINKING for each in analysis.violations(mod)):
            return False  # skip differences that only follow from this one
        found = difference_of(mod, [given], only=difference.stage)
        return found is not None and found.kind == difference.kind

    mod = program.module
    if holds(mod, args):
        mod, args = shrink(mod, args, holds)
    found = difference_of(mod, [args], only=difference.stage)
    return mod, args, difference if found is None else found


def report(program: Program, difference: Difference, *, small: bool = True) -> str:
    """Format the difference and the small program that shows it."""
    lines = [f"seed {program.seed}: {difference}"]
    if small:
        mod, args, found = shrunk(program, difference)
        lines += [f"smallest: {found}", f"arguments: {args}", str(mod)]
    return "\n".join(lines)


# The command


def _check_seed(seed: int) -> tuple[int, str | None, str]:
    try:
        program = generate(seed)
    except Exception as error:
        return seed, f"generate: {type(error).__name__}", traceback.format_exc()
    difference = check_program(program)
    return seed, None if difference is None else difference.kind, str(difference)


def _outcomes(seeds: Sequence[int], jobs: int) -> Iterator[tuple[int, str | None, str]]:
    if jobs == 1:
        yield from map(_check_seed, seeds)
        return
    with multiprocessing.Pool(jobs) as pool:
        yield from pool.imap_unordered(_check_seed, seeds, chunksize=8)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.differential",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--count", type=int, default=500, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--reports", type=int, default=5, help="how many differences to shrink")
    parser.add_argument("--no-shrink", action="store_true", help="print differences as they are")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as cache:  # of native code, which nobody runs again
        os.environ["RELAXVM_CACHE_DIR"] = cache
        os.environ.setdefault("RELAXVM_CFLAGS", "-O0")  # most of the time is the compiler's
        return _check(options)


def _check(options: argparse.Namespace) -> int:
    """Check the programs, print what differs, and return the exit status."""
    kinds: dict[str, list[int]] = {}
    begin = time.perf_counter()
    seeds = range(options.seed, options.seed + options.count)
    for done, (seed, kind, text) in enumerate(_outcomes(seeds, options.jobs), 1):
        if done % _PROGRESS_EVERY == 0:
            differ = sum(map(len, kinds.values()))
            print(f"{done} of {options.count}, {differ} differ", file=sys.stderr, flush=True)
        if kind is None:
            continue
        kinds.setdefault(kind, []).append(seed)
        if len(kinds[kind]) == 1 and len(kinds) <= options.reports:
            if options.no_shrink or kind.startswith("generate"):
                print(f"seed {seed}: {text}\n", flush=True)
            else:
                program = generate(seed)
                difference = check_program(program)
                assert difference is not None
                print(report(program, difference), end="\n\n", flush=True)
    seconds = time.perf_counter() - begin
    wrong = sum(map(len, kinds.values()))
    print(f"{options.count} programs from seed {options.seed}, {wrong} differ, {seconds:.0f} s")
    for kind, found in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"  {len(found)} x {kind} (seeds {', '.join(map(str, found[:5]))})")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
