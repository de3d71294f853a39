"""Mutants of Relay programs in text form."""

from __future__ import annotations

import os
import re
import warnings
from functools import cache
from typing import Any

import numpy as np

from relaxvm import analysis, ir
from relaxvm.compiler.build import build
from relaxvm.errors import InternalError, MissingExtraError, RelaxVMError
from relaxvm.frontend.relay import from_text, to_text
from relaxvm.vm import VirtualMachine

from ..relay_evaluator import NoClause, assert_same, evaluate
from ..relay_texts import HEAD, NETWORKS, PRELUDE, PROGRAMS, XS
from .changes import Mutant, Words, as_text, change_text, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described, is_from_function

__all__ = ["argument", "bases", "mutant", "run"]


@cache
def bases() -> dict[str, str]:
    """Return the texts to mutate: programs with data types, and networks."""
    programs = {
        name: HEAD + re.sub(r"([;{}]) ", r"\1\n", text.replace("XS;", XS))
        for name, text in PROGRAMS.items()
    }
    return {**programs, **NETWORKS, "prelude": PRELUDE}


@cache
def _words() -> Words:
    more = ("meta[relay.Constant][0]", "%0", "%1", "-", "?", "_", "0.0.4", "free_var", "extern")
    return Words.of([*bases().values()], more)


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("relay", index, seed)
    base = rng.choice(sorted(bases()))
    text, steps = change_text(bases()[base], _words(), rng)
    return Mutant(base, tuple(steps), text.encode("utf-8", "surrogatepass"))


def run(mutant: Mutant, index: int) -> Ending:
    """Read a program, check it, print it and read it again, compile it and call its functions;
    compare the result of ``@main`` with that of the evaluator of the syntax tree."""
    os.environ["CC"] = "no-compiler"  # a compiler takes as long as hundreds of mutants
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with np.errstate(all="ignore"):
            return _run(as_text(mutant.data), index)


def _run(text: str, index: int) -> Ending:
    try:
        module = from_text(text, limits=LIMITS)
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except (RelaxVMError, MissingExtraError) as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, f"from_text: {described(error)}"
    step = "violations"
    try:
        if problems := analysis.violations(module):
            return Outcome.STRAY_ERROR, f"ill-formed: {problems[0]}"
        step = "print"
        if index % 4 == 0 and not _survives_printing(module):
            return Outcome.STRAY_ERROR, "differs: after printing and reading"
        step = "build"
        executable = build(module)
        step = "vm"
        machine = VirtualMachine(executable, limits=LIMITS)
    except InternalError as error:
        return Outcome.STRAY_ERROR, described(error)
    except RelaxVMError as error:
        return Outcome.REFUSED, f"{step} {type(error).__name__}"
    except Exception as error:
        return Outcome.STRAY_ERROR, f"{step}: {described(error)}"
    endings = [(Outcome.RESULT, "")]
    for var, function in module.functions.items():
        if isinstance(function, ir.Function) and "global_symbol" in function.attrs:
            endings.append(_call(machine, text, var.name_hint, function, index))
    return max(endings)


def _survives_printing(module: ir.IRModule) -> bool:
    try:
        text = to_text(module)
    except ValueError:  # Relay cannot say it
        return True
    return to_text(from_text(text)) == text


def _call(
    machine: VirtualMachine, text: str, name: str, function: ir.Function, index: int
) -> Ending:
    args = [argument(parameter.ty, index) for parameter in function.params]
    if any(arg is None for arg in args):
        return Outcome.RESULT, ""
    try:
        result = machine[name](*args)
    except RelaxVMError as error:
        return Outcome.RELAXVM_ERROR, type(error).__name__
    except BaseException as error:
        if is_from_function(error):
            return Outcome.KERNEL_ERROR, type(error).__name__
        return Outcome.STRAY_ERROR, f"call: {described(error)}"
    if name != "main" or index % 2:
        return Outcome.RESULT, ""
    try:
        expected = evaluate(text, *args, std=PRELUDE)
    except (KeyError, TypeError, ValueError, IndexError, NoClause):
        return Outcome.RESULT, ""  # an operator that the evaluator has not
    try:
        assert_same(result, expected)
    except AssertionError as error:
        return Outcome.STRAY_ERROR, f"differs from the evaluator: {described(error)}"
    return Outcome.RESULT, "compared"


def argument(ty: Any, index: int) -> Any:
    """Return an argument of a type; None if there is none for it."""
    if isinstance(ty, ir.TupleType):
        fields = [argument(field, index) for field in ty.fields[:100]]
        return None if None in fields else tuple(fields)
    if isinstance(ty, ir.TensorType) and ty.dtype is not None:
        dims = ty.dims if ty.dims is not None else [2] * max(0, min(ty.ndim, 4))
        shape = [d.value if isinstance(d, ir.IntImm) else 2 + index % 2 for d in dims]
        if all(0 <= d <= 64 for d in shape) and len(shape) < 6:
            return np.full(shape, 1 + index % 3).astype(ty.dtype)
    return None
