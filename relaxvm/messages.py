"""Values and names in messages: short, printable, of bounded length; warnings at a user's line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any, Final

import numpy as np

from .values import Device, Shape

__all__ = ["describe", "readable", "warn"]

_PACKAGE: Final = __name__.partition(".")[0]


def describe(value: object) -> str:
    """A short text for messages: ``float32[2, 3]``, ``Shape(2, 3)``, ``int 7``, ``tuple of 3``.

    Bounded in length and work whatever the value, and calls no code of the value's own class: an
    object that is not a value of the VM is named by its type.
    """
    cls = type(value)
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        dims = _ndarray_shape(value)
        return f"{_dtype_text(_ndarray_dtype(value))}[{', '.join(map(str, dims))}]"
    if isinstance(value, Shape):
        count = tuple.__len__(value)
        if count > 8:
            return f"Shape of {count} dimensions"
        return f"Shape({', '.join(map(str, tuple.__iter__(value)))})"
    if isinstance(value, tuple):
        return f"tuple of {tuple.__len__(value)}"
    if isinstance(value, list):
        return f"tuple of {list.__len__(value)}"
    if isinstance(value, (bool, np.bool_)):
        return f"bool {bool(value)}"
    if isinstance(value, int):
        bits = int.bit_length(value)
        return f"int {int.__repr__(value)}" if bits <= 128 else f"int of {bits} bits"
    if isinstance(value, float):
        return f"float {float.__repr__(value)}"
    if isinstance(value, str):
        head = str.__getitem__(value, slice(_CLIP))
        return f"str {_clip(str.__repr__(head), str.__len__(value) > _CLIP)}"
    if isinstance(value, np.dtype):
        return f"dtype {_dtype_text(value)}"
    if isinstance(value, Device):
        return f"device {value}"
    if cls.__name__ == "Tensor":  # of another package, or a message would expect one and get one
        return f"{cls.__module__}.Tensor"
    return _clip(cls.__name__)


_CLIP: Final = 40
_ndarray_shape: Final = np.ndarray.shape.__get__
_ndarray_dtype: Final = np.ndarray.dtype.__get__


def _dtype_text(dtype: np.dtype[Any]) -> str:
    try:
        return _clip(str(dtype))
    except RecursionError:  # of arrays of arrays of arrays
        return dtype.name


def _clip(text: str, cut: bool = False) -> str:
    return text[: _CLIP - 3] + "..." if cut or len(text) > _CLIP else text


def readable(text: str, width: int = 60) -> str:
    """A name from a file for a message: printable and short."""
    if len(text) > width:
        text = text[: width - 3] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Give a warning at the line that has called this package."""
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE
