"""The same mutants on apache-tvm.  Import this only where apache-tvm is installed."""

from __future__ import annotations

from relaxvm.executable import VMExecutable

from ..corpus import CORPUS
from ..tvm_side import load, to_tvm
from .changes import Mutant
from .execute import inputs
from .mutate import case_of

__all__ = ["execute"]


def execute(mutant: Mutant, index: int) -> str:
    """Load a mutant and run its functions with the arguments that relaxvm gets.

    The functions to call are those of the original executable: a mutant that relaxvm rejects may
    not have a usable function table.
    """
    try:
        machine = load(mutant.data)
    except Exception as error:
        return f"REFUSED {type(error).__name__}"
    outcome = "RESULT"
    for function, args in inputs(_unchanged(mutant), mutant.base, index):
        try:
            machine[function](*map(to_tvm, args))
        except Exception as error:
            outcome = f"ERROR {type(error).__name__}"
    return outcome


def _unchanged(mutant: Mutant) -> VMExecutable:
    return CORPUS[case_of(mutant.base)].executable
