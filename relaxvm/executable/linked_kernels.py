"""Kernels of a program together with functions that others made for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["LinkedKernels", "function_of"]


def function_of(module: Any, name: str) -> Callable[..., Any] | None:
    """Return a function of a mapping, or of an object with TVM's ``get_function``; None if it has
    none of this name."""
    if isinstance(module, Mapping):
        found: Callable[..., Any] | None = module.get(name)
        return found
    try:
        got: Callable[..., Any] | None = module.get_function(name)
    except AttributeError:
        return None
    return got


class LinkedKernels(Mapping[str, "Callable[..., Any]"]):
    """The kernels of a program and, after those, external functions.  Files contain the kernels
    alone.

    Attributes:
        own: the kernels that were compiled with the program.
        external: the functions of others.
    """

    __slots__ = ("external", "own")

    def __init__(
        self,
        own: Mapping[str, Callable[..., Any]],
        external: Mapping[str, Callable[..., Any]],
    ) -> None:
        self.own = own
        self.external = dict(external)

    @property
    def prim_funcs(self) -> Mapping[str, str]:
        """The IR of the kernels of the program, by name."""
        found: Mapping[str, str] = getattr(self.own, "prim_funcs", {})
        return found

    @property
    def backends(self) -> Mapping[str, str]:
        """Name -> "c" or "python", of the kernels of the program."""
        found: Mapping[str, str] = getattr(self.own, "backends", {})
        return found

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.own[name] if name in self.own else self.external[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from (name for name in self.external if name not in self.own)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return LinkedKernels, (self.own, self.external)
