"""Types as onnxruntime spells them (``tensor(float)``), as numpy has them, and as ONNX counts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...dtypes import as_dtype

__all__ = ["dtype_of_code", "dtype_of_type", "element_of", "element_type", "type_of_dtype"]

_TABLE: Final = (
    ("float", "float32", 1), ("uint8", "uint8", 2), ("int8", "int8", 3), ("uint16", "uint16", 4),
    ("int16", "int16", 5), ("int32", "int32", 6), ("int64", "int64", 7), ("string", "object", 8),
    ("bool", "bool", 9), ("float16", "float16", 10), ("double", "float64", 11),
    ("uint32", "uint32", 12), ("uint64", "uint64", 13), ("bfloat16", "bfloat16", 16),
    ("float8e4m3fn", "float8_e4m3fn", 17), ("float8e4m3fnuz", "float8_e4m3fnuz", 18),
    ("float8e5m2", "float8_e5m2", 19), ("float8e5m2fnuz", "float8_e5m2fnuz", 20),
    ("uint4", "uint4", 21), ("int4", "int4", 22), ("float4e2m1", "float4_e2m1fn", 23),
    ("float8e8m0", "float8_e8m0fnu", 24),
)  # fmt: skip
"""The name of a type of elements, its dtype, and its number in ONNX."""

_NAMES: Final = {dtype: name for name, dtype, _ in _TABLE}
_DTYPES: Final = {name: dtype for name, dtype, _ in _TABLE}
_CODES: Final = {name: code for name, _, code in _TABLE}
_BY_CODE: Final = {code: dtype for _, dtype, code in _TABLE}


def element_of(dtype: np.dtype[Any]) -> str | None:
    """The name of the type of an array's elements; None if models have no such elements."""
    return "string" if dtype.kind in "USOT" else _NAMES.get(dtype.name)


def type_of_dtype(dtype: np.dtype[Any]) -> str | None:
    """The type of an array, as ``tensor(float)``; None if models have no such elements."""
    name = element_of(dtype)
    return None if name is None else f"tensor({name})"


def dtype_of_type(text: str) -> np.dtype[Any] | None:
    """The dtype for a type such as ``tensor(float)``; None if it is no tensor.

    Raises:
        MissingExtraError: the type is one of ml_dtypes, which is not installed.
    """
    name = _DTYPES.get(text.removeprefix("tensor(").removesuffix(")"))
    return None if name is None or not text.startswith("tensor(") else as_dtype_or_object(name)


def dtype_of_code(code: int) -> np.dtype[Any]:
    """The dtype for a number of ONNX.

    Raises:
        ValueError: there is no such number.
    """
    name = _BY_CODE.get(code)
    if name is None:
        raise ValueError(f"expected the number of a type of ONNX, got {code}")
    return as_dtype_or_object(name)


def as_dtype_or_object(name: str) -> np.dtype[Any]:
    """The dtype of a name; that of objects for strings."""
    return np.dtype(object) if name == "object" else as_dtype(name)


def element_type(text: str) -> int:
    """The number in ONNX of the elements of a type such as ``tensor(float)``; 0 if it is none."""
    return _CODES.get(text.removeprefix("tensor(").removesuffix(")"), 0)
