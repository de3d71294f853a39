"""The operators of ``tvm.relax.op``, which check the types of operands when a call is emitted.

relaxvm's constructors find the type of a call at once.  TVM's check attributes only, and leave the
rest to `BlockBuilder.normalize` and `emit`: its programs may make calls whose operands have wrong
types, to look into or to rewrite them.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Final

from ... import op
from ...errors import OperatorTypeError
from ...op.registry import OPERATORS, Constructor, Namespace, offered

__all__ = ["Operators"]

_UNTYPED: Final[dict[Any, Constructor]] = {
    record.make: record.untyped for record in OPERATORS.values() if record.untyped is not None
}
"""Constructor -> what makes its calls without type."""


def __getattr__(name: str) -> Any:
    found = getattr(op, name, None) or offered("vision.", name)  # TVM has these here, too
    return _checked_later(found, f"{op.__name__}.{name}")


def __dir__() -> list[str]:
    return dir(op)


class Operators(ModuleType):
    """The constructors of a module or a namespace of operators, as TVM has them."""

    def __init__(self, name: str, own: Any) -> None:
        super().__init__(name, own.__doc__)
        self._own = own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}", name=name)
        return _checked_later(getattr(self._own, name), f"{self.__name__}.{name}")

    def __dir__(self) -> list[str]:
        return dir(self._own)


def _checked_later(value: Any, name: str) -> Any:
    """The constructor of an operator as one whose calls are without type if operands are of wrong
    types: the error is raised where the type is asked for.  Other values are returned as they
    are."""
    if isinstance(value, (ModuleType, Namespace)):
        return Operators(name, value)
    return _made_later(value) if callable(value) and value in _UNTYPED else value


@functools.cache
def _made_later(constructor: Constructor) -> Constructor:
    untyped = _UNTYPED[constructor]

    @functools.wraps(constructor)
    def make(*args: Any, **kwargs: Any) -> Any:
        try:
            return constructor(*args, **kwargs)
        except OperatorTypeError:
            return untyped(*args, **kwargs)

    return make
