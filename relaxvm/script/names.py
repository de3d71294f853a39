"""Names in printed text: unique where they are seen, the same in every run."""

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
    """A Python identifier that resembles a name: other characters become underscores."""
    name = _OTHER.sub("_", hint)
    if not name or name[0].isdigit():
        name = f"v{name}" if name else "v"
    return f"{name}_" if keyword.iskeyword(name) else name


def is_throwaway(hint: str) -> bool:
    """Whether a name is that of a value which is not used: "_", or with a number."""
    if "a" <= hint[:1].lower() <= "z":
        return False
    name = identifier(hint)
    return name == "_" or (name[:1] == "_" and name[1:].isdecimal())


def quoted(text: str) -> str:
    """A string as a literal, in double quotes unless it has some."""
    return repr(text) if '"' in text else f'"{repr(chr(39) + text)[2:]}'


class Names:
    """Names of variables, by the object.

    The first variable of a name has it as it is, the next one with the least number appended that
    makes it new.  Names that are given inside of a scope are free again after it.  Text that holds
    only names given here keeps them when it is parsed and printed again.
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
        """The name of a variable, None if it has none here."""
        return self._names.get(var)

    def define(self, var: Hashable, hint: str) -> str:
        """Give a variable a name, or another one if it has one."""
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

    def push(self) -> None:
        """Begin a scope."""
        self._scopes.append(len(self._log))

    def pop(self) -> None:
        """End it: its names are free again."""
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
    """Whether a name can stand behind def."""
    return name.isidentifier() and not keyword.iskeyword(name)


def function_names(names: Iterable[str]) -> dict[str, str]:
    """The name that each function of a module has in its text: its own, or one that resembles it
    where that cannot stand behind def.  Its "global_symbol" tells its name then."""
    found = {name: name for name in names}
    others = Names(filter(is_function_name, found))
    for name in found:
        if not is_function_name(name):
            found[name] = others.define(name, name)
    return found
