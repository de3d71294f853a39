"""Names in printed text: unique in their scope, and deterministic."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Hashable, Iterable
from typing import Final

__all__ = ["Names", "function_names", "identifier", "is_function_name", "is_throwaway", "quoted"]

_OTHER: Final = re.compile(r"\W", re.ASCII)
_RESERVED: Final = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {
    "I", "R", "T", "cls", "_", "Module"}  # fmt: skip


def identifier(hint: str) -> str:
    """Return a name as a Python identifier: other characters become underscores."""
    name = _OTHER.sub("_", hint)
    if not name or name[0].isdigit():
        name = f"v{name}" if name else "v"
    return f"{name}_" if keyword.iskeyword(name) else name


def is_throwaway(hint: str) -> bool:
    """Check whether a name is one for unused values: "_", or "_" with a number."""
    if "a" <= hint[:1].lower() <= "z":
        return False
    name = identifier(hint)
    return name == "_" or (name[:1] == "_" and name[1:].isdecimal())


def quoted(text: str) -> str:
    """Return a string literal, in double quotes unless the string contains one."""
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'


class Names:
    """Unique names of variables, which are compared by identity.

    The first variable with a name keeps it; for later ones the smallest number that makes the name
    unique is appended.  Names defined inside a scope are available again after it.  Names assigned
    here do not change when the text is parsed and printed again.
    """

    __slots__ = ("_log", "_names", "_next", "_scopes", "_taken")

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._names: dict[Hashable, str] = {}
        self._taken = set(_RESERVED)
        self._taken.update(reserved)
        self._next: dict[str, int] = {}
        self._log: list[tuple[Hashable, str, str, int | None]] = []
        self._scopes: list[int] = []

    def get(self, var: Hashable) -> str | None:
        """Return the name of a variable, or None if it has none in scope."""
        return self._names.get(var)

    def define(self, var: Hashable, hint: str) -> str:
        """Assign a name to a variable; replaces the name that it had."""
        base = identifier(hint)
        before = self._next.get(base)
        name = base
        if name in self._taken:
            number = before or 1
            name = f"{base}_{number}"
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._next[base] = number + 1
        self._taken.add(name)
        self._names[var] = name
        if self._scopes:
            self._log.append((var, name, base, before))
        return name

    def define_fixed(self, name: str) -> None:
        """Reserve a name that is not one of a variable."""
        self._taken.add(identifier(name))

    def push(self) -> None:
        """Begin a scope."""
        self._scopes.append(len(self._log))

    def pop(self) -> None:
        """End the scope; its names become available again."""
        start = self._scopes.pop()
        for var, name, base, before in reversed(self._log[start:]):
            self._names.pop(var, None)
            self._taken.discard(name)
            if before is None:
                self._next.pop(base, None)
            else:
                self._next[base] = before
        del self._log[start:]


def is_function_name(name: str) -> bool:
    """Check whether a name may follow ``def``."""
    return name.isidentifier() and not keyword.iskeyword(name)


def function_names(names: Iterable[str]) -> dict[str, str]:
    """Return the name of each function of a module in its text: its own, or a similar one if that
    is not an identifier.  In this case the "global_symbol" in the text has the real name."""
    found = {name: name for name in names}
    others = Names(filter(is_function_name, found))
    for name in found:
        if not is_function_name(name):
            found[name] = others.define(name, name)
    return found
