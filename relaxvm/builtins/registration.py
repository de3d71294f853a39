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
    "reference_of",
]

F = TypeVar("F", bound=Callable[..., Any])

PREFIX: Final = "vm.builtin."
OWN_PREFIX: Final = "relaxvm.builtin."
"""Prefix of builtins that TVM's virtual machine does not have."""
RUN_PREFIX: Final = "relax.run."
"""Prefix of functions that operators of Relax are lowered to."""
RUNTIME_PREFIX: Final = "runtime."
"""Prefix of functions in TVM's runtime."""

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
    """Register a function as ``vm.builtin.<name>``; its docstring appears on the reference page.

    Args:
        name: the name without its prefix.
        signature: its parameters, in the language of `relaxvm.registry`.
        result: kind of the result.
        check: further load-time check, as in `relaxvm.registry.Signature`.
        effect: whether it has effects beyond its arguments: an executable may then call it only if
            the creator of the VM allows it by name.
        aliases: full names that design documents use for it.  A function that the user registers
            under such a name, before or after, takes precedence.
        prefix: the prefix of the full name; `OWN_PREFIX` for builtins that TVM does not have.
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


def reference_of(name: str) -> Callable[..., Any]:
    """The builtin of a full name, whose module has been imported."""
    return _references[name]


def is_reference(record: PackedFunc) -> bool:
    """Return whether a record is still the builtin that this package registered."""
    return _references.get(record.name) is record.func
