"""The names that inputs and outputs of functions have in the model that a program was made of.

Parameters of a program are identifiers, and results have no names.  A model names both, with any
text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["NO_NAMES", "FunctionNames", "ModelNames"]


class FunctionNames(NamedTuple):
    """The names of a function in its model.

    Attributes:
        function: its name in the program.
        inputs: one per parameter, or empty.
        outputs: one per result, or empty.
    """

    function: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


NO_NAMES: Final = FunctionNames("")


class ModelNames(NamedTuple):
    """The names of the functions of a program.

    Attributes:
        functions: those that have names, each once.
    """

    functions: tuple[FunctionNames, ...]

    @classmethod
    def of(cls, functions: Iterable[FunctionNames]) -> ModelNames:
        return cls(tuple(functions))

    def find(self, function: str) -> FunctionNames:
        """The names of a function; empty ones if none are known."""
        for names in self.functions:
            if names.function == function:
                return names
        return NO_NAMES
