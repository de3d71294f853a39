"""Objects of builtins that are values of a program, and change: caches and generators.

Each class has ``saved_fields()``, a tuple of values, and ``restore_fields(fields)``, which makes an
object out of them that was made without ``__init__``.  The latter checks what it gets, since it may
come from anybody, and raises a ValueError or a TypeError.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final, NamedTuple

__all__ = ["STATES", "State", "state_name_of"]

_PACKAGE: Final = "relaxvm.builtins"


class State(NamedTuple):
    """A class of such objects.

    Attributes:
        module: where it is defined, in `relaxvm.builtins`.
        name: of the class.
    """

    module: str
    name: str

    def load(self) -> Any:
        """Import the class."""
        return getattr(import_module(f"{_PACKAGE}.{self.module}"), self.name)

    def is_class_of(self, value: object) -> bool:
        """Whether a value is of this class, which nothing is before it is imported."""
        module = sys.modules.get(f"{_PACKAGE}.{self.module}")
        return module is not None and type(value) is getattr(module, self.name)


STATES: Final = {
    "attention cache": State("lm", "AttentionKVCache"),
    "paged attention cache": State("paged_attention", "PagedAttentionCache"),
    "recurrent state": State("rnn_state", "RNNState"),
    "random generator": State("random_numbers", "RandomGenerator"),
    "parameters": State("tensor_cache", "ParamModule"),
}
"""The classes by the names that files have for them."""


def state_name_of(value: object) -> str | None:
    """Return the name of the class of an object; None if it is none of these."""
    return next((name for name, state in STATES.items() if state.is_class_of(value)), None)
