"""Scopes: the values of names while a script is parsed."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from ..ir.expr import PrimType, Var
from ..ir.module import VDevice

__all__ = ["CURRENT", "MISSING", "Scope"]

MISSING: Final = object()
"""The value of an undefined name."""


class Scope:
    """The names of a script and of the surrounding Python code.

    A frame is a function, a branch or a dataflow block.  At its end its names are removed, and
    names that they had hidden become visible again.

    Attributes:
        vars: names of the script -> their values.
        outside: names of the surrounding Python code -> their values.
        out_of_scope: names that went out of scope -> why, for messages.
        in_signature: true while a signature is parsed: strings in types may declare variables and
            are resolved later.
    """

    __slots__ = ("_log", "_starts", "in_signature", "out_of_scope", "outside", "vars", "vdevices")

    def __init__(self, outside: Mapping[str, Any]) -> None:
        self.vars: dict[str, Any] = {}
        self.outside = {**vars(builtins), **outside}
        self.out_of_scope: dict[str, str] = {}
        self.vdevices: list[VDevice] = []
        self.in_signature = False
        self._log: list[tuple[str, Any]] = []
        self._starts: list[int] = []

    def get(self, name: str) -> Any:
        """Return the value of a name, or `MISSING`."""
        found = self.vars.get(name, MISSING)
        if found is not MISSING:
            return found
        found = self.outside.get(name, MISSING)
        if type(found) is TypeVar:
            found = Var(name, "int64")  # what TVM prints for the dimensions of a signature
            self.define(name, found)
        return found

    def define(self, name: str, value: Any) -> None:
        """Define a name until the end of the frame."""
        self._log.append((name, self.vars.get(name, MISSING)))
        self.vars[name] = value

    def push(self) -> None:
        """Begin a frame."""
        self._starts.append(len(self._log))

    def pop(self, why: str = "", *, keep_symbols: bool = False) -> None:
        """End the frame.

        Args:
            why: where its names were defined, for the message if they are used later.
            keep_symbols: keep symbolic variables in scope, as after a dataflow block.
        """
        start = self._starts.pop()
        undone = self._log[start:]
        del self._log[start:]
        symbols: dict[str, Any] = {}
        for name, before in reversed(undone):
            value = self.vars.pop(name, MISSING)
            if keep_symbols and isinstance(value, Var) and type(value.ty) is PrimType:
                symbols.setdefault(name, value)
            elif why:
                self.out_of_scope[name] = why
            if before is not MISSING:
                self.vars[name] = before
        for name, value in symbols.items():
            self.define(name, value)

    def vdevice(self, text: str) -> VDevice:
        """Return the module's device named "llvm" or "llvm:1": the first one of that target, or the
        one with that index among them; "vdevice:3" is the one with that index among all.

        Raises:
            ValueError: there is no such device.
        """
        target, _, place = text.partition(":")
        place = place.partition(":")[0]
        candidates = [
            device for device in self.vdevices if target in ("vdevice", device.target)
        ]
        index = int(place) if place else 0
        if index < len(candidates):
            return candidates[index]
        raise ValueError(
            f"vdevice {text!r}: the module has {len(candidates)} of target {target!r}; "
            "I.module_global_infos declares them"
        )


CURRENT: ContextVar[Any] = ContextVar("relaxvm_script", default=None)
"""The active parser: an object with a method `dimension(text) -> Expr` and a `scope`."""
