"""Values in a line: type, shape, statistics, and the elements of small arrays."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..values import Shape, kind_of

__all__ = ["summarize", "summary_line", "value_line"]

_SHOWN_VALUES: Final = 8
"""Arrays up to this size are shown completely."""


def summarize(name: str, value: Any) -> dict[str, Any]:
    """Return a result, or a leaf of it, as plain data: kind, type, shape, and statistics."""
    summary: dict[str, Any] = {"name": name, "kind": kind_of(value)}
    if isinstance(value, np.ndarray):
        summary |= {"dtype": value.dtype.name, "shape": list(value.shape), **_figures(value)}
    elif isinstance(value, Shape):
        summary["value"] = list(value)
    elif isinstance(value, (bool, int, float, str)):
        summary["value"] = value
    elif type(value) is dict and len(value) <= _SHOWN_VALUES and all(
        isinstance(each, (bool, int, float, str)) for pair in value.items() for each in pair
    ):
        summary["text"] = f"dict  {value}"  # a map of ONNX
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


def value_line(value: Any, elements: int = 6) -> str:
    """A value for people: as `summary_line` without the name, with the first elements of a large
    array."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    text = summary_line(summarize("", value)).strip()
    if isinstance(value, np.ndarray) and value.size > _SHOWN_VALUES:
        numbers = _as_numbers(value.reshape(-1)[:elements])
        if numbers is not None:
            text += f"  [{', '.join(map(_number, numbers.tolist()))}, ...]"
    elif isinstance(value, tuple) and not isinstance(value, Shape):
        text = f"({', '.join(describe(item) for item in value[:_SHOWN_VALUES])}" + (
            ", ...)" if len(value) > _SHOWN_VALUES else ",)" if len(value) == 1 else ")")
    return text
