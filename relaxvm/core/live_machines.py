"""The virtual machines of this process that are alive, for functions that reach all of them."""

from __future__ import annotations

import weakref
from typing import Final, Protocol

__all__ = ["track", "trim_all"]


class _Trims(Protocol):
    def trim(self) -> int: ...


_tracked: Final[weakref.WeakSet[_Trims]] = weakref.WeakSet()


def track(machine: _Trims) -> None:
    """Have `trim_all` reach this machine as long as it is alive."""
    _tracked.add(machine)


def trim_all() -> int:
    """Release the cached memory of all machines of the process; return the number of bytes."""
    return sum(machine.trim() for machine in list(_tracked))
