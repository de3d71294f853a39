"""Constant tensors as text, exact to the bit."""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dtypes import as_dtype, dtype_name

__all__ = ["LEFT_OUT", "array_of_bytes", "constant_text", "is_small"]

MOST_ELEMENTS: Final = 32
"""Larger tensors are written as bytes."""

LEFT_OUT: Final = "..."


def is_small(array: NDArray[Any]) -> bool:
    """Check whether a tensor is small enough to be written by its elements."""
    return array.size <= MOST_ELEMENTS


def constant_text(array: NDArray[Any], *, complete: bool = True) -> str:
    """Return ``R.const(elements, dtype)`` for a small tensor, otherwise
    ``R.const_bytes(base64, shape, dtype)`` with its bytes in C order, little endian.

    Args:
        complete: if false, the bytes of tensors that are not small are left out.
    """
    dtype = dtype_name(array.dtype)
    if is_small(array):
        text = _elements(array)
        if text is not None:
            return f'R.const({text}, "{dtype}")'
    data = base64.b64encode(_bytes(array)).decode() if complete else LEFT_OUT
    return f'R.const_bytes("{data}", {array.shape!r}, "{dtype}")'


def array_of_bytes(data: str, shape: Sequence[int], dtype: str) -> NDArray[Any]:
    """Decode a tensor that `constant_text` wrote as bytes.

    Raises:
        ValueError: the text is not base64, or the number of bytes does not match the shape.
    """
    if data == LEFT_OUT:
        raise ValueError(
            "the bytes of this constant were left out when the program was printed; print it with "
            "script(), which is complete"
        )
    raw = base64.b64decode(data, validate=True)
    found = as_dtype(dtype)
    size = math.prod(shape) * found.itemsize
    if len(raw) != size:
        raise ValueError(f"const_bytes: {dtype}{list(shape)} has {size} bytes, got {len(raw)}")
    array = np.frombuffer(raw, found).reshape(shape)
    return array if sys.byteorder == "little" else array.byteswap()


def _bytes(array: NDArray[Any]) -> bytes:
    return (array if sys.byteorder == "little" else array.byteswap()).tobytes()


def _elements(array: NDArray[Any]) -> str | None:
    """The elements as a (nested) list; None if that is not exact to the bit."""
    if array.dtype.kind in "biu":
        values: Any = array.tolist()
    else:
        values = _nested(array, _shortest)
    if np.shape(values) != array.shape:
        return None
    if array.dtype.kind not in "biu" and np.array(values, array.dtype).tobytes() != array.tobytes():
        return None
    return _list_text(values)


def _nested(array: NDArray[Any], of: Any) -> Any:
    return [_nested(row, of) for row in array] if array.ndim else of(array[()])


def _shortest(value: Any) -> float:
    """The float with the fewest digits that rounds to a value of a narrower type."""
    short = float(str(value))
    return short if value != value or value.dtype.type(short) == value else float(value)


def _list_text(values: Any) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_list_text, values))}]"
    if isinstance(values, float) and not math.isfinite(values):
        return f'float("{values}")'
    return repr(values)
