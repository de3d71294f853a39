"""The results of a run: a short summary, and arrays for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..observe.summaries import summarize, summary_line
from ..values import Shape
from .exits import CommandError

__all__ = ["flatten", "summarize", "summary_line", "to_arrays"]

_MOST_LEAVES: Final = 65_535
"""As many as a type has parts.  A short program can return tuples with any number of leaves."""


def flatten(value: Any, names: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a result with their names: ``out0``; ``out0``, ``out1.0`` ... for a
    tuple.

    Args:
        value: the result.
        names: those of the outputs in the model of the program, instead of ``out0`` and so on.

    Raises:
        CommandError: there are too many.
    """
    items = value if _is_tuple(value) and len(names) != 1 else (value,)
    if len(names) != len(items) or len(set(names)) != len(names) or not all(names):
        names = [f"out{i}" for i in range(len(items))]
    pending = [(names[i], items[i]) for i in reversed(range(len(items)))]
    visited = 0
    while pending:
        name, value = pending.pop()
        visited += 1
        if _is_tuple(value):
            visited += len(value)
        if visited > _MOST_LEAVES:
            raise CommandError(f"the result has more than {_MOST_LEAVES:,} parts, where shared "
                               f"tuples count once per use; they are not written")
        if _is_tuple(value):
            pending.extend((f"{name}.{i}", value[i]) for i in reversed(range(len(value))))
        else:
            yield name, value


def _is_tuple(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and not isinstance(value, Shape)


def to_arrays(
    value: Any, names: Sequence[str] = ()
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the leaves of a result as arrays, and the names of those that cannot be arrays.

    Numbers and text become 0-d arrays, shapes int64 vectors, maps two vectors; None, closures and
    other objects are left out.
    """
    arrays, left_out = {}, []
    for name, leaf in flatten(value, names):
        if isinstance(leaf, Shape):
            arrays[name] = np.array(leaf, np.int64)
        elif isinstance(leaf, (np.ndarray, bool, int, float, str)):
            arrays[name] = np.asarray(leaf)
        elif isinstance(leaf, dict):  # a map of ONNX
            arrays[f"{name}.keys"] = np.array([*leaf])
            arrays[f"{name}.values"] = np.array([*leaf.values()])
        else:
            left_out.append(name)
    return arrays, left_out
