"""Maps of ONNX: dicts whose keys are ints, or strings, and whose values are numbers or strings.

Their operators are those of ai.onnx.ml.  A map is not changed once it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import check_time
from .arguments import as_array, as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["map_to_tensor", "map_vectorize", "maps_from"]

_MAP_BYTES: Final = 200
"""About what a map takes beside its entries."""
_ENTRY_BYTES: Final = 140
"""About what an entry takes, with a number as its value."""
_KEY_BYTES: Final = 48
"""About what a key takes, or a value, in a list."""
_MOST_COLUMNS: Final = 1 << 40


def _as_map(value: Any, subject: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{subject}: expected a map (a dict), got {describe(value)}")
    return value


def _as_keys(value: Any, subject: str) -> list[Any]:
    """A vector of ints or strings as a list."""
    keys = as_array(value, subject)
    if keys.ndim != 1 or keys.dtype.kind not in "iuO":
        raise TypeError(f"{subject}: expected a vector of integers or strings, got "
                        f"{describe(keys)}")  # fmt: skip
    charge_objects(keys.size * _KEY_BYTES)
    found: list[Any] = keys.tolist()
    return found


@builtin("maps_from", "x: tensor, keys: tensor", result="tuple", prefix=OWN_PREFIX)
def maps_from(x: Any, keys: Any) -> tuple[dict[Any, Any], ...]:
    """Return a map for each row of a matrix, or one for a vector.

    Args:
        keys: a vector of ints or strings: the key of each column.

    Raises:
        TypeError: the arguments are something else.
        ValueError: there is not a key for each column.
    """
    table = as_array(x, "maps_from: x")
    names = _as_keys(keys, "maps_from: keys")
    if table.ndim == 1:
        table = table.reshape(1, -1)
    if table.ndim != 2 or table.dtype.kind not in "fiu":
        raise TypeError(f"maps_from: x: expected a matrix of numbers, got {describe(x)}")
    if table.shape[1] != len(names):
        raise ValueError(
            f"maps_from: expected a key for each of {table.shape[1]} columns, got {len(names)}"
        )
    found = []
    for row in table:
        check_time()
        charge_objects(_MAP_BYTES + _ENTRY_BYTES * len(names))
        found.append(dict(zip(names, row.tolist(), strict=True)))
    return tuple(found)


def _number(value: Any, subject: str) -> Any:
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(-1)[0]
    if not isinstance(value, (str, int, float, np.generic)):
        raise TypeError(f"{subject}: expected numbers or strings as values, got {describe(value)}")
    return value


def _converted(value: Any, dtype: str, subject: str) -> Any:
    """A value of a map in the data type of the result; "str" stands for strings."""
    check_time()
    number = _number(value, subject)
    try:
        if dtype == "str":
            return str(number)
        kind = as_dtype(dtype)
        if kind.isbuiltin == 2:  # types of ml_dtypes crash for a text that is no number
            number = float(number)
        return kind.type(number)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{subject}: {describe(number)} is no {dtype}: {error}") from None


def _row(values: Iterable[Any], count: int, dtype: str, subject: str) -> NDArray[Any]:
    """Values of a map as a tensor ``[1, count]``."""
    charge_objects(count * _KEY_BYTES)
    row = np.empty((1, count), object if dtype == "str" else as_dtype(dtype))
    for i, value in enumerate(values):
        row[0, i] = _converted(value, dtype, subject)
    return row


@builtin("map_to_tensor", "map: any, dtype: str, columns: int", result="tensor", prefix=OWN_PREFIX)
def map_to_tensor(map: Any, dtype: Any, columns: Any) -> NDArray[Any]:  # noqa: A002
    """Return the values of a map whose keys are ints, in the order of the keys: ``[1, entries]``.

    Args:
        dtype: data type of the result; "str" for strings.
        columns: if it is 0 or more, the result has so many columns, the value of key i is in column
            i, and the others are 0, or empty.

    Raises:
        TypeError: the arguments are something else.
        ValueError: a value cannot be converted, or a key is no column.
    """
    entries = _as_map(map, "map_to_tensor")
    kind = as_str(dtype, "map_to_tensor: dtype")
    count = as_int(columns, "map_to_tensor: columns")
    for key in entries:
        if isinstance(key, bool) or not isinstance(key, (int, np.integer)):
            raise TypeError(f"map_to_tensor: expected ints as keys, got {describe(key)}")
    if count < 0:
        charge_objects(len(entries) * _KEY_BYTES)
        ordered = sorted(entries)
        return _row((entries[key] for key in ordered), len(ordered), kind, "map_to_tensor")
    if count > _MOST_COLUMNS:
        raise ValueError(f"map_to_tensor: columns: {count} are too many")
    charge_objects(count * 8)
    if kind == "str":
        found = np.full((1, count), "", object)
    else:
        found = np.zeros((1, count), as_dtype(kind))
    for key, value in entries.items():
        if not 0 <= key < count:
            raise ValueError(f"map_to_tensor: key {key}: there are {count} columns")
        found[0, key] = _converted(value, kind, "map_to_tensor")
    return found


@builtin("map_vectorize", "map: any, keys: tensor, dtype: str", result="tensor", prefix=OWN_PREFIX)
def map_vectorize(map: Any, keys: Any, dtype: Any) -> NDArray[Any]:  # noqa: A002
    """Return the values of these keys: ``[1, keys]``, with 0, or an empty string, where the map has
    no such key.

    Raises:
        TypeError: the arguments are something else.
        ValueError: a value cannot be converted.
    """
    entries = _as_map(map, "map_vectorize")
    names = _as_keys(keys, "map_vectorize: keys")
    kind = as_str(dtype, "map_vectorize: dtype")
    empty: Any = "" if kind == "str" else 0
    values = (entries.get(name, empty) for name in names)
    return _row(values, len(names), kind, "map_vectorize")
