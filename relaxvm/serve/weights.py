"""Weights that several programs have: they are in memory once."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..executable import VMExecutable
from ..verify.verified import passes_as

__all__ = ["SharedWeights", "nbytes_of"]

Array = NDArray[Any]

_LEAST_BYTES: Final = 64 << 10
"""Smaller tensors are not worth it."""
_SAMPLES: Final = 64
"""Bytes of a tensor that are compared before all of them are."""


class SharedWeights:
    """The large weights of programs that are in memory.

    Equal ones are found by a sample of their bytes first, so that a program whose weights nobody
    else has is loaded without reading them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[Any, ...], list[weakref.ref[Array]]] = {}

    def of(self, executable: VMExecutable) -> VMExecutable:
        """The program with the weights of others where they are equal to its own."""
        with self._lock:
            constants = [self._shared(value) for value in executable.constants]
        if all(new is old for new, old in zip(constants, executable.constants, strict=True)):
            return executable
        return passes_as(executable.but(constants=constants), executable)

    def _shared(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.nbytes < _LEAST_BYTES:
            return value
        if value.dtype.hasobject or not value.flags.c_contiguous:
            return value
        data = value.reshape(-1).view(np.uint8)
        places = np.linspace(0, data.size - 1, _SAMPLES).astype(np.int64)
        key = value.dtype.name, value.dtype.str, value.shape, data[places].tobytes()
        others = self._known.setdefault(key, [])
        others[:] = [ref for ref in others if ref() is not None]
        for ref in others:
            other = ref()
            if other is value:
                return value
            if other is not None and _is_same(data, other):
                return other
        others.append(weakref.ref(value))
        return value

    def forget(self) -> None:
        """Forget weights that are not in memory any more."""
        with self._lock:
            for key, refs in list(self._known.items()):
                if all(ref() is None for ref in refs):
                    del self._known[key]


def _is_same(data: NDArray[np.uint8], other: Array) -> bool:
    return np.array_equal(data, other.reshape(-1).view(np.uint8))


def nbytes_of(executables: Iterable[VMExecutable]) -> int:
    """The bytes of the weights of programs, each tensor once."""
    arrays = {
        id(each): each.nbytes
        for executable in executables
        for each in executable.constants
        if isinstance(each, np.ndarray)
    }
    return sum(arrays.values())
