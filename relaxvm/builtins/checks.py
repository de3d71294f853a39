"""Checks of values at run time: they return None or raise, with the caller's error context at the
start of the message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..dtypes import dtype_name
from ..errors import MissingExtraError
from ..messages import describe
from ..registry import StaticArg
from ..values import Shape
from .arguments import as_context, as_data_type, as_int, static_int
from .registration import builtin

__all__ = [
    "check_func_info",
    "check_prim_value_info",
    "check_shape_info",
    "check_string_info",
    "check_tensor_info",
    "check_tuple_info",
]


def _check_ndim(args: Sequence[StaticArg]) -> Iterator[str]:
    ndim = static_int(args, 1)
    if ndim is not None and ndim < -1:
        yield f"ndim: expected -1 (any) or more, got {ndim}"


def _check_tensor_arguments(args: Sequence[StaticArg]) -> Iterator[str]:
    yield from _check_ndim(args)
    if len(args) == 3 and args[2][0] == "dtype":
        yield "error context: expected str, got dtype"
    if len(args) == 4 and args[2][0] == "str":
        try:
            as_data_type(args[2][1], "dtype")
        except (TypeError, MissingExtraError) as exc:
            yield str(exc)


def _same_type(got: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Return whether the data types are equal, ignoring their byte order."""
    return got == expected or got.newbyteorder("=") == expected.newbyteorder("=")


@builtin(
    "check_tensor_info",
    "x: any, ndim: int, dtype: dtype|str|none, err: str|none = ...",
    result="none",
    check=_check_tensor_arguments,
)
def check_tensor_info(x: Any, ndim: Any, *rest: Any) -> None:
    """Check rank and data type of a tensor: ``check_tensor_info(x, ndim, [dtype], err)``.

    `ndim` -1 accepts any rank; a `dtype` that is None or left out accepts any data type.  The byte
    order does not matter.

    Raises:
        TypeError: not a tensor.
        ValueError: the rank or data type is wrong.
    """
    if len(rest) not in (1, 2):
        raise TypeError(f"check_tensor_info: expected 3 or 4 arguments, got {len(rest) + 2}")
    err = as_context(rest[-1])
    rank = as_int(ndim, "check_tensor_info: ndim")
    expected = rest[0] if len(rest) == 2 else None
    if expected is not None:
        expected = as_data_type(expected, "check_tensor_info: dtype")
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{err}check_tensor_info: expected a tensor, got {describe(x)}")
    if rank != -1 and x.ndim != rank:
        raise ValueError(f"{err}check_tensor_info: expected a tensor of ndim {rank}, "
                         f"got ndim {x.ndim} in {describe(x)}")
    if expected is not None and not _same_type(x.dtype, expected):
        raise ValueError(f"{err}check_tensor_info: expected a tensor of dtype "
                         f"{dtype_name(expected)}, got dtype {dtype_name(x.dtype)} in "
                         f"{describe(x)}")


@builtin(
    "check_shape_info", "x: any, ndim: int, err: str|none", result="none", check=_check_ndim
)
def check_shape_info(x: Any, ndim: Any, err: Any) -> None:
    """Check the number of dimensions of a Shape; -1 accepts any.

    Raises:
        TypeError: not a Shape.
        ValueError: the number of dimensions is wrong.
    """
    context = as_context(err)
    rank = as_int(ndim, "check_shape_info: ndim")
    if not isinstance(x, Shape):
        raise TypeError(f"{context}check_shape_info: expected a Shape, got {describe(x)}")
    if rank not in (-1, len(x)):
        raise ValueError(f"{context}check_shape_info: expected a Shape of ndim {rank}, "
                         f"got ndim {len(x)} in {describe(x)}")


@builtin("check_tuple_info", "x: any, size: int, err: str|none", result="none")
def check_tuple_info(x: Any, size: Any, err: Any) -> None:
    """Check the number of elements of a tuple.

    Raises:
        TypeError: not a tuple; a Shape does not count as one.
        ValueError: the number of elements is wrong.
    """
    context = as_context(err)
    count = as_int(size, "check_tuple_info: size")
    if isinstance(x, Shape) or not isinstance(x, (tuple, list)):
        raise TypeError(f"{context}check_tuple_info: expected a tuple, got {describe(x)}")
    if len(x) != count:
        raise ValueError(f"{context}check_tuple_info: expected a tuple of {count} elements, "
                         f"got {len(x)} elements")


@builtin("check_func_info", "x: any, err: str|none", result="none")
def check_func_info(x: Any, err: Any) -> None:
    """Check that a value is a function or closure.

    Raises:
        TypeError: it is neither.
    """
    context = as_context(err)
    if not callable(x):
        raise TypeError(f"{context}check_func_info: expected a function or closure, "
                        f"got {describe(x)}")


@builtin("check_prim_value_info", "x: any, dtype: dtype|str, err: str|none", result="none")
def check_prim_value_info(x: Any, dtype: Any, err: Any) -> None:
    """Check that a scalar can be converted to a data type.

    An int is accepted for every numeric type and for bool, a float only for floating-point types.

    Raises:
        TypeError: it cannot be converted, or the data type has no scalars.
    """
    context = as_context(err)
    expected = as_data_type(dtype, "check_prim_value_info: dtype")
    allowed = _scalars(expected)
    if not allowed:
        raise TypeError(f"{context}check_prim_value_info: dtype {expected} has no scalars")
    if not isinstance(x, allowed):
        raise TypeError(f"{context}check_prim_value_info: expected a scalar of dtype "
                        f"{dtype_name(expected)}, got {describe(x)}")


_INTEGERS = (int, np.integer, np.bool_)


def _scalars(dtype: np.dtype[Any]) -> tuple[type, ...]:
    """Return the classes of scalars that can be converted to a data type."""
    if dtype.kind in "iub":
        return _INTEGERS
    # Types of ml_dtypes have numpy's kind "void"; all supported ones are floating-point.
    if dtype.kind in "fc" or dtype.name.startswith(("bfloat", "float")):
        return (*_INTEGERS, float, np.floating)
    return ()


@builtin("check_string_info", "x: any, err: str|none", result="none")
def check_string_info(x: Any, err: Any) -> None:
    """Check that a value is a string.

    Raises:
        TypeError: not a string.
    """
    context = as_context(err)
    if not isinstance(x, str):
        raise TypeError(f"{context}check_string_info: expected a string, got {describe(x)}")
