"""Data types by name, as numpy's, and as DLPack's.

A data type is a `numpy.dtype`; bfloat16, float8 and narrower types are those of ml_dtypes.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

from .errors import FormatError, MissingExtraError

__all__ = [
    "NARROW",
    "array_of",
    "as_dtype",
    "dtype_from_dl",
    "dtype_name",
    "dtype_to_dl",
    "element_dtype",
    "extreme_of",
]

# DLPack type codes; the bits come from the numpy item size except where a narrow type is padded.
_DL_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_DL_KINDS: Final = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_ML_DTYPES: Final = {
    "bfloat16": (4, 16),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
NARROW: Final = {
    "int2": (192, 8),
    "int4": (193, 8),
    "uint1": (194, 8),
    "uint2": (195, 8),
    "uint4": (196, 8),
    "float4_e2m1fn": (197, 8),
}
"""Types of ml_dtypes of which an element takes a byte.  DLPack and TVM have several elements in a
byte, so these arrays are not exchanged with them: the values are codes and bits of relaxvm's own
for files."""
_ML_BY_DL: Final = {code: name for name, code in _ML_DTYPES.items()}


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise MissingExtraError(
            f"dtype {name}: needs the package ml_dtypes; install relaxvm[ml-dtypes]"
        ) from None
    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise MissingExtraError(
            f"dtype {name}: needs a later version of the package ml_dtypes than "
            f"{ml_dtypes.__version__}"
        )
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype


_LONGEST_NAME: Final = 100
"""A name of numpy may be a list of fields, which takes memory in proportion to its length."""


def _dtype_of_name(name: str) -> np.dtype[Any]:
    if len(name) > _LONGEST_NAME:
        raise TypeError(f"dtype: a name of {len(name)} characters is not a data type")
    return _dtype_of_short_name(name)


@functools.lru_cache(maxsize=1024)
def _dtype_of_short_name(name: str) -> np.dtype[Any]:
    if name in _ML_DTYPES or name in NARROW:
        return _ml_dtype(name)
    try:
        return np.dtype(name)
    except (TypeError, ValueError, SyntaxError):  # numpy reads some names as Python
        raise TypeError(f"dtype: {name!r} is not a data type") from None


def as_dtype(spec: Any) -> np.dtype[Any]:
    """A numpy dtype from a name (TVM's names, bfloat16 and float8 included), dtype or scalar type.

    Raises:
        TypeError: not a data type.
        MissingExtraError: a type of ml_dtypes, which is not installed or does not have it yet.
    """
    if isinstance(spec, np.dtype):
        return spec
    return _dtype_of_name(spec) if isinstance(spec, str) else np.dtype(spec)


def array_of(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return ``numpy.array(value, dtype)``, which wraps ints around before numpy 2.

    Raises:
        OverflowError: an int does not fit the data type.
        TypeError, ValueError: numpy cannot convert the value.
    """
    if dtype.kind in "iu" and not isinstance(value, (np.ndarray, np.generic)):
        given = np.asarray(value)
        if given.dtype.kind in "iu" and given.size:
            limits = np.iinfo(dtype)
            for number in (int(given.min()), int(given.max())):
                if not limits.min <= number <= limits.max:
                    raise OverflowError(f"Python integer {number} out of bounds for {dtype}")
    return np.array(value, dtype)


def extreme_of(dtype: np.dtype[Any], greatest: bool) -> Any:
    """The greatest number of a data type, or the least one: infinite where it can be."""
    if dtype.kind == "b":
        return dtype.type(greatest)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return dtype.type(limits.max if greatest else limits.min)
    if dtype.kind == "f":
        return dtype.type(np.inf if greatest else -np.inf)
    import ml_dtypes  # a data type of that package

    if dtype.name.startswith(("int", "uint")):
        small: Any = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
        return dtype.type(small.max if greatest else small.min)
    infinite = np.array(np.inf if greatest else -np.inf).astype(dtype)
    if np.isinf(infinite):
        return infinite[()]
    small = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return dtype.type(small.max if greatest else small.min)


@functools.lru_cache(maxsize=1024)
def element_dtype(spec: str) -> str:
    """The name of a data type that elements of a tensor in a program have: bool, an integer or a
    float.

    Raises:
        TypeError: it is something else.
    """
    if spec in _ML_DTYPES:
        return spec
    dtype = as_dtype(spec)
    if dtype.kind in "biuf" or dtype.name in NARROW:
        return dtype_name(dtype)
    raise TypeError(f"dtype: expected bool, an integer or a float, got {spec!r}")


@functools.lru_cache(maxsize=1024)  # numpy finds names in Python
def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name as TVM spells it: ``float32``, ``bool``, ``bfloat16``."""
    return dtype.name


def dtype_to_dl(dtype: np.dtype[Any]) -> tuple[int, int, int]:
    """(code, bits, lanes) of DLPack's DLDataType.

    Raises:
        FormatError: DLPack has no such type (strings, objects, dates, records).
    """
    if dtype.name in _ML_DTYPES:  # first, because float8_e5m2 claims to be of kind "f"
        return (*_ML_DTYPES[dtype.name], 1)
    if dtype.kind in _DL_CODES and dtype.fields is None and dtype.subdtype is None:
        return _DL_CODES[dtype.kind], dtype.itemsize * 8, 1
    raise FormatError(f"dtype {dtype}: DLPack has no such type")


def dtype_from_dl(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """The numpy dtype of a DLDataType; the inverse of `dtype_to_dl`.

    Raises:
        FormatError: no numpy dtype corresponds to it (vector lanes, 4-bit types, handles).
        MissingExtraError: a type of ml_dtypes, which is not installed or does not have it yet.
    """
    if lanes == 1:
        if (code, bits) in _ML_BY_DL:
            return _ml_dtype(_ML_BY_DL[code, bits])
        if code == 6 and bits == 8:
            return np.dtype(np.bool_)
        kind = _DL_KINDS.get(code)
        if kind in ("i", "u", "f", "c") and bits % 8 == 0:
            try:
                dtype = np.dtype(f"{kind}{bits // 8}")  # numpy's one object for it
            except TypeError:
                pass
            else:
                if dtype.itemsize * 8 == bits:
                    return dtype
    raise FormatError(f"data type (code {code}, bits {bits}, lanes {lanes}): no numpy dtype for it")
