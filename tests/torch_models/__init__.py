"""Models of torch, exported; see `tests.torch_fixtures`.  Importing a module here needs torch.

A case is a function that returns a `Case`::

    @case
    def linear() -> Case:
        return Case(torch.nn.Linear(4, 3), [(torch.ones(2, 4),)])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["CASES", "Case", "case"]


@dataclass
class Case:
    """A model, and how it is exported and called.

    Attributes:
        model: a ``torch.nn.Module``.
        calls: positional arguments of each call; the first is what it is exported with.  A call is
            a tuple, or a pair of a tuple and a dict of keyword arguments.
        dynamic_shapes: of ``torch.export.export``.
        decompositions: whether the exported program is decomposed to the core operators.
        strict: of ``torch.export.export``.
        training: whether the model is in training.
    """

    model: Any
    calls: list[Any]
    dynamic_shapes: Any = None
    decompositions: bool = False
    strict: bool = False
    training: bool = False


CASES: dict[str, Callable[[], Case]] = {}
"""Name -> function that makes the case."""


def case(function: Callable[[], Case]) -> Callable[[], Case]:
    """Decorator: the function makes a case of its own name."""
    assert function.__name__ not in CASES, function.__name__
    CASES[function.__name__] = function
    return function
