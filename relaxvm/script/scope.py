"""What names mean while a script is read."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from ..ir.expr import PrimType, Var
from ..ir.module import VDevice

__all__ = ["CURRENT", "MISSING", "Scope"]

MISSING: Final = object()
"""What a name means that nothing is known of."""


class Scope:
    """Names of a script and, beyond them, of the Python code around it.

    A frame is a function, a branch or a dataflow block: what is defined in it is forgotten at its
    end, and what was hidden by it is seen again.

    Attributes:
        vars: names of the script -> what they mean.
        outside: names of Python around it.
        gone: name -> why it is not seen any more, for messages.
        in_signature: strings in types are left for later, as they may declare what they name.
    """

    __slots__ = ("_log", "_starts", "gone", "in_signature", "outside", "vars", "vdevices")

    def __init__(self, outside: Mapping[str, Any]) -> None:
        self.vars: dict[str, Any] = {}
        self.outside = {**vars(builtins), **outside}
        self.gone: dict[str, str] = {}
        self.vdevices: list[VDevice] = []
        self.in_signature = False
        self._log: list[tuple[str, Any]] = []
        self._starts: list[int] = []

    def get(self, name: str) -> Any:
        """What a name means, or `MISSING`."""
        found = self.vars.get(name, MISSING)
        if found is not MISSING:
            return found
        found = self.outside.get(name, MISSING)
        if type(found) is TypeVar:
            found = Var(name, "int64")  # what TVM prints for the dimensions of a signature
            self.define(name, found)
        return found

    def define(self, name: str, value: Any) -> None:
        """Give a name a meaning, until the end of the frame."""
        self._log.append((name, self.vars.get(name, MISSING)))
        self.vars[name] = value

    def push(self) -> None:
        """Begin a frame."""
        self._starts.append(len(self._log))

    def pop(self, why: str = "", *, keep_symbols: bool = False) -> None:
        """End it.

        Args:
            why: where names of it were defined, for the message if they are used later.
            keep_symbols: let symbolic variables stay, as after a dataflow block.
        """
        start = self._starts.pop()
        undone = self._log[start:]
        del self._log[start:]
        symbols: dict[str, Any] = {}
        for name, before in reversed(undone):
            value = self.vars.pop(name, MISSING)
            if keep_symbols and type(value) is Var and type(value.ty) is PrimType:
                symbols.setdefault(name, value)
            elif why:
                self.gone[name] = why
            if before is not MISSING:
                self.vars[name] = before
        for name, value in symbols.items():
            self.define(name, value)

    def vdevice(self, text: str) -> VDevice:
        """The device of the module that is named as "llvm" or "llvm:1": of those of that target,
        the first, or the one of that place.

        Raises:
            ValueError: there is none.
        """
        target, _, place = text.partition(":")
        place = place.partition(":")[0]
        alike = [device for device in self.vdevices if device.target == target]
        index = int(place) if place else 0
        if index < len(alike):
            return alike[index]
        raise ValueError(
            f"vdevice {text!r}: the module has {len(alike)} of target {target!r}; "
            "I.module_global_infos declares them"
        )


CURRENT: ContextVar[Any] = ContextVar("relaxvm_script", default=None)
"""The parser that is at work: it has `dimension(text) -> Expr` and a `scope`."""
