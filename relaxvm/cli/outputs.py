"""The results of a run: a short summary, and arrays for a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..values import Shape, kind_of
from .exits import CommandError

__all__ = ["flatten", "summarize", "summary_line", "to_arrays"]

_MOST_LEAVES: Final = 65_535
"""As many as a type has parts.  A short program can return tuples with any number of leaves."""

_SHOWN_VALUES: Final = 8
"""Arrays up to this size are shown completely."""


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

    Numbers and text become 0-d arrays, shapes int64 vectors; None, closures and other objects are
    left out.
    """
    arrays, left_out = {}, []
    for name, leaf in flatten(value, names):
        if isinstance(leaf, Shape):
            arrays[name] = np.array(leaf, np.int64)
        elif isinstance(leaf, (np.ndarray, bool, int, float, str)):
            arrays[name] = np.asarray(leaf)
        else:
            left_out.append(name)
    return arrays, left_out


def summarize(name: str, value: Any) -> dict[str, Any]:
    """Return a result, or a leaf of it, as plain data: kind, type, shape, and statistics."""
    summary: dict[str, Any] = {"name": name, "kind": kind_of(value)}
    if isinstance(value, np.ndarray):
        summary |= {"dtype": value.dtype.name, "shape": list(value.shape), **_figures(value)}
    elif isinstance(value, Shape):
        summary["value"] = list(value)
    elif isinstance(value, (bool, int, float, str)):
        summary["value"] = value
    else:
        summary["text"] = describe(value)
    return summary


def _figures(array: NDArray[Any]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    numbers = _as_numbers(array)
    if numbers is None or numbers.size == 0:
        return figures
    if numbers.size <= _SHOWN_VALUES:
        figures["values"] = numbers.tolist()
    if numbers.dtype.kind == "f":
        finite = np.isfinite(numbers)
        strange = numbers.size - int(np.count_nonzero(finite))
        if strange:
            figures["not_finite"] = strange
            numbers = numbers[finite]
            if numbers.size == 0:
                return figures
    figures["min"] = numbers.min().item()
    figures["max"] = numbers.max().item()
    # In float64, since sums of narrow floats may overflow.
    figures["mean"] = float(np.mean(numbers, dtype=np.float64))
    return figures


def _as_numbers(array: NDArray[Any]) -> NDArray[Any] | None:
    """Return an array of real numbers, or None for complex numbers, records and objects."""
    if array.dtype.kind in "biuf" and array.dtype.type.__module__ == "numpy":
        return array
    if array.dtype.type.__module__ == "ml_dtypes":
        return array.astype(np.float32)
    return None


def summary_line(summary: dict[str, Any]) -> str:
    """Return a summary for people: ``out0  float32[2, 3]  min -1  max 4.5  mean 0.25``."""
    if "dtype" in summary:
        text = f"{summary['dtype']}[{', '.join(map(str, summary['shape']))}]"
        single = math.prod(summary["shape"]) == 1
        for key in ("min", "max", "mean"):
            if key in summary and not single:
                text += f"  {key} {_number(summary[key])}"
        if "not_finite" in summary and not single:
            text += f"  not finite {summary['not_finite']}"
        if "values" in summary:
            text += f"  {_nested(summary['values'])}"
    elif "value" in summary:
        value = summary["value"]
        text = f"{summary['kind']} {tuple(value) if isinstance(value, list) else repr(value)}"
    else:
        text = summary["text"]
    return f"{summary['name']}  {text}"


def _nested(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_nested, values))}]"
    return _number(values)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
