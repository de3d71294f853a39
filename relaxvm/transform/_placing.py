"""Memory for the weights that passes make.

They begin at a line of the cache, since a vector of 64 bytes that is part of two lines takes two
loads, and those of some size lie side by side in blocks of 16 MiB: numpy asks for huge pages for
these, so that the processor need not look up the address of every 4 KiB.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..kernels._arrays import LINE

__all__ = ["placed"]

_ROOM: Final = 16 << 20
_SMALLEST: Final = 64 << 10
"""Bytes from which on weights share a block."""


class _Rooms:
    """The block that has room for the next weights.  Only the weights in a block keep it alive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._room: weakref.ref[NDArray[np.uint8]] | None = None
        self._used = 0

    def copied(self, array: NDArray[Any]) -> NDArray[Any]:
        with self._lock:
            room = self._room() if self._room else None
            if room is None or self._used + array.nbytes > _ROOM:
                room = _empty(_ROOM)
                self._room, self._used = weakref.ref(room), 0
            copy = _copied_to(room, self._used, array)
            self._used += -(-array.nbytes // LINE) * LINE
        return copy


_rooms = _Rooms()


def placed(array: NDArray[Any]) -> NDArray[Any]:
    """Weights that nobody writes any more, contiguous, read-only and at an aligned address: the
    array itself, or a copy."""
    if _SMALLEST <= array.nbytes <= _ROOM // 4:
        return _rooms.copied(array)
    memory = array if array.base is None else array.base
    if (
        array.ctypes.data % LINE == 0
        and array.flags.c_contiguous
        and isinstance(memory, np.ndarray)
        and memory.nbytes <= array.nbytes + LINE  # of an `aligned_zeros`, not a part of more
    ):
        memory.flags.writeable = array.flags.writeable = False
        return array
    return _copied_to(_empty(array.nbytes), 0, array)


def _empty(nbytes: int) -> NDArray[np.uint8]:
    """Memory for so many bytes from an aligned address in it on."""
    return np.empty(nbytes + LINE, np.uint8)


def _copied_to(room: NDArray[np.uint8], offset: int, array: NDArray[Any]) -> NDArray[Any]:
    start = -room.ctypes.data % LINE + offset
    room.flags.writeable = True
    np.ndarray(array.shape, array.dtype, room, start)[...] = array
    room.flags.writeable = False  # so that an executable keeps what is in it without a copy
    return np.ndarray(array.shape, array.dtype, room, start)
