"""The decorator that registers a builtin."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from ..registry import GLOBAL, PackedFunc, Signature, StaticCheck

__all__ = [
    "OWN_PREFIX",
    "PREFIX",
    "RUNTIME_PREFIX",
    "RUN_PREFIX",
    "builtin",
    "is_reference",
]

F = TypeVar("F", bound=Callable[..., Any])

PREFIX: Final = "vm.builtin."
OWN_PREFIX: Final = "relaxvm.builtin."
"""Of builtins that TVM's virtual machine does not have."""
RUN_PREFIX: Final = "relax.run."
"""Of functions that operators of Relax are lowered to."""
RUNTIME_PREFIX: Final = "runtime."
"""Of functions that TVM has in its runtime."""

_references: Final[dict[str, Callable[..., Any]]] = {}


def builtin(
    name: str,
    signature: str = "",
    *,
    result: str = "any",
    check: StaticCheck | None = None,
    effect: bool = False,
    aliases: Iterable[str] = (),
    prefix: str = PREFIX,
) -> Callable[[F], F]:
    """Register a function as ``vm.builtin.<name>``; its docstring goes to the reference page.

    Args:
        name: the name without its prefix.
        signature: its parameters, in the language of `relaxvm.registry`.
        result: kind of the result.
        check: further load-time check, as in `relaxvm.registry.Signature`.
        effect: whether it reaches beyond its arguments: an executable may then name it only where
            the caller of the VM allows it by name.
        aliases: full names that design documents use for it.  A function that a program has
            registered or registers under such a name takes precedence.
        prefix: what stands before the name; `OWN_PREFIX` for what TVM does not have.
    """

    def register(func: F) -> F:
        parsed = Signature.parse(signature, result, check)
        doc = inspect.cleandoc(func.__doc__ or "")
        GLOBAL.register(prefix + name, func, signature=parsed, effect=effect, doc=doc)
        _references[prefix + name] = func
        for alias in aliases:
            if alias not in GLOBAL:
                GLOBAL.register(alias, func, signature=parsed, effect=effect, doc=doc, weak=True)
        return func

    return register


def is_reference(record: PackedFunc) -> bool:
    """Whether a name still has the builtin that this package gave it."""
    return _references.get(record.name) is record.func
