"""The runtime of generated Python code: arguments, arithmetic as in C, and errors.

Integers from loops, shapes and parameters are exact: Python's integers, or int64 arrays.  Elements
of buffers are numpy's values of their data type.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import errors
from ..core._deadlines import check_time
from ..dtypes import as_dtype, dtype_name
from ..values import Shape, to_value
from .elementary import python_functions

__all__ = ["PythonFunction", "namespace"]


# Arguments


class PythonFunction:
    """A function in Python: checks its arguments as the native function does, and runs the body.

    Args:
        name: for messages.
        params: for each parameter its name, data type, dimensions (None for a scalar) and whether
            it is written.  A dimension is a number, or a pair: ("binds" | "same", index of a
            variable) or ("free", 0).
        variables: for each variable of shapes its name and maximum.
        body: called with the arguments, then the variables.
    """

    __slots__ = ("__name__", "_body", "_params", "_scalars_only", "_variables", "source")

    def __init__(
        self,
        name: str,
        params: Sequence[tuple[str, str, tuple[Any, ...] | None, bool]],
        variables: Sequence[tuple[str, int]],
        body: Callable[..., Any],
    ) -> None:
        self.__name__ = name
        self._params = tuple(params)
        self._variables = tuple(variables)
        self._body = body
        self.source = ""

    def __repr__(self) -> str:
        return f"<PythonFunction {self.__name__}>"

    def __call__(self, *args: Any) -> Any:
        values = self._take(args)
        with np.errstate(all="ignore"):
            return self._body(*values)

    def _take(self, args: Sequence[Any]) -> list[Any]:
        name, params = self.__name__, self._params
        if len(args) != len(params):
            listed = ", ".join(p[0] for p in params)
            plural = "" if len(params) == 1 else "s"
            raise TypeError(
                f"{name}: expected {len(params)} argument{plural} ({listed}), got {len(args)}"
            )
        variables: list[int] = [0] * len(self._variables)
        values: list[Any] = []
        for i, (arg, (param, dtype, dims, written)) in enumerate(zip(args, params, strict=True)):
            place = f"{name}: argument {i} ({param})"
            if dims is None:
                values.append(_take_scalar(place, arg, dtype))
            else:
                values.append(self._take_tensor(place, arg, dtype, dims, variables))
                if written and not values[-1].flags.writeable:
                    raise ValueError(f"{place}: the kernel writes it, and the array is read-only")
        self._separate(values)
        return values + variables

    def _take_tensor(
        self, place: str, arg: Any, dtype: str, dims: tuple[Any, ...], variables: list[int]
    ) -> NDArray[Any]:
        if not isinstance(arg, np.ndarray):
            arg = to_value(arg)
            if not isinstance(arg, np.ndarray):
                raise TypeError(f"{place}: expected a tensor, got {_kind_of(arg)}")
        got = dtype_name(arg.dtype)
        if got != dtype:
            raise TypeError(f"{place}: expected data type {dtype}, got {got}")
        if arg.ndim != len(dims):
            plural = "" if len(dims) == 1 else "s"
            raise ValueError(f"{place}: expected {len(dims)} dimension{plural}, got {arg.ndim}")
        for d, (dim, length) in enumerate(zip(dims, arg.shape, strict=True)):
            if isinstance(dim, int):
                if length != dim:
                    raise ValueError(f"{place}: dimension {d}: expected {dim}, got {length}")
                continue
            kind, at = dim
            if kind == "same" and length != variables[at]:
                raise ValueError(
                    f"{place}: dimension {d}: expected {self._variables[at][0]} = {variables[at]}, "
                    f"got {length}"
                )
            if kind == "binds":
                variable, longest = self._variables[at]
                if length > longest:
                    raise ValueError(f"{place}: dimension {d}: {length} is too long for {variable}")
                variables[at] = length
        return arg

    def _separate(self, values: list[Any]) -> None:
        """Copy tensors that are only read and overlap a tensor that is written."""
        arrays = [i for i, v in enumerate(values) if isinstance(v, np.ndarray)]
        for i in arrays:
            for j in arrays:
                if j == i or not self._params[j][3]:
                    continue
                if not np.may_share_memory(values[i], values[j]):
                    continue
                if self._params[i][3]:
                    raise ValueError(
                        f"{self.__name__}: argument {i} ({self._params[i][0]}): overlaps argument "
                        f"{j} ({self._params[j][0]}), and both are written"
                    )
                values[i] = values[i].copy()
                break


_KINDS: Final = (
    (type(None), "None"),
    ((bool, np.bool_), "a bool"),
    ((int, np.integer), "an int"),
    ((float, np.floating), "a float"),
    (np.ndarray, "a tensor"),
    (Shape, "a shape"),
    (np.dtype, "a dtype"),
    (str, "a str"),
)


def _kind_of(arg: Any) -> str:
    for cls, text in _KINDS:
        if isinstance(arg, cls):
            return text
    return "another object"


def _take_scalar(place: str, arg: Any, dtype: str) -> Any:
    real = dtype.startswith(("float", "bfloat"))
    integer = isinstance(arg, (int, np.integer, np.bool_))
    if not integer and not (real and isinstance(arg, (float, np.floating))):
        raise TypeError(f"{place}: expected {dtype}, got {_kind_of(arg)}")
    if real:
        return as_dtype(dtype).type(float(arg))
    if dtype == "bool":
        return bool(arg)
    value = int(arg)
    if dtype in ("int64", "uint64"):
        return wrap(value, dtype)
    low, high = _RANGES[dtype]
    if not low <= value <= high:
        raise ValueError(f"{place}: {value} does not fit {dtype}")
    return value


def check_dim(name: str, i: int, param: str, d: int, length: int, expected: int) -> None:
    """Check a dimension that is an expression."""
    if length != expected:
        raise ValueError(
            f"{name}: argument {i} ({param}): dimension {d}: expected {expected}, got {length}"
        )


def allocate(name: str, buffer: str, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    """Allocate zeroed memory for a local buffer."""
    for d, dim in enumerate(shape):
        if dim < 0:
            raise ValueError(f"{name}: buffer {buffer}: dimension {d} is {dim}")
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError):
        raise MemoryError(f"{name}: buffer {buffer}: no memory") from None


# Errors


def error(kind: str, message: str) -> Exception:
    """Return an exception of a class of Python or relaxvm, by the name of the class."""
    cls = getattr(errors, kind, None) or getattr(builtins, kind, None)
    if isinstance(cls, type) and issubclass(cls, Exception):
        return cls(message)
    return errors.InternalError(f"{kind}: {message}")


def _out_of_bounds(place: str, index: Any, length: int) -> IndexError:
    return IndexError(f"{place}: index {index} is out of bounds for length {length}")


def at(index: Any, length: int, place: str) -> Any:
    """Return an index, or an array of indices, after checking the bounds."""
    if isinstance(index, np.ndarray):
        wrong = (index < 0) | (index >= length)
        if wrong.any():
            raise _out_of_bounds(place, index[wrong.argmax()], length)
    elif not 0 <= index < length:
        raise _out_of_bounds(place, index, length)
    return index


def span(start: int, count: int, length: int, place: str) -> slice:
    """Return a slice of `count` indices after checking the bounds."""
    if count > 0 and (start < 0 or start + count > length):
        raise _out_of_bounds(place, start if not 0 <= start < length else length, length)
    return slice(start, start + count)


# Arithmetic


_RANGES: Final = {
    "bool": (0, 1),
    **{f"int{b}": (-(2 ** (b - 1)), 2 ** (b - 1) - 1) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (0, 2**b - 1) for b in (8, 16, 32, 64)},
}


def wrap(x: Any, dtype: str) -> Any:
    """Wrap an exact integer to the range of its data type."""
    if isinstance(x, np.ndarray):
        return x.astype(dtype).astype(np.int64)
    low, high = _RANGES[dtype]
    return x if low <= x <= high else (x - low) % (high - low + 1) + low


def typed(x: Any, dtype: Any) -> Any:
    """Convert a value or an array to numpy's values of a data type; integers wrap."""
    if isinstance(x, np.ndarray):
        return x.astype(dtype, copy=False)
    if isinstance(x, int) and not -(2**63) <= x < 2**63:
        return np.uint64(x).astype(dtype)
    return np.asarray(x).astype(dtype)[()]


def to_int(x: Any, dtype: str) -> Any:
    """Convert floats to integers: truncate, clamp to the range; NaN becomes 0."""
    low, high = _RANGES[dtype]
    x = np.asarray(x)
    if x.dtype not in (np.float32, np.float64):
        x = x.astype(np.float32)
    above = x >= x.dtype.type(math.ldexp(1.0, int(high).bit_length()))
    below = x <= x.dtype.type(low)
    plain = np.where(above | below | np.isnan(x), x.dtype.type(0), x).astype(dtype)
    kind = plain.dtype.type
    result = np.where(above, kind(high), np.where(below, kind(low), plain))
    return result[()]


def exact(x: Any) -> Any:
    """Convert integers of a data type to exact ones."""
    return x.astype(np.int64) if isinstance(x, np.ndarray) else int(x)


def maximum(a: Any, b: Any) -> Any:
    """Return ``a if a > b else b``."""
    return np.where(a > b, a, b)[()]


def minimum(a: Any, b: Any) -> Any:
    """Return ``a if a < b else b``."""
    return np.where(a < b, a, b)[()]


def greatest(a: Any, b: Any) -> Any:
    """Return the greater of exact integers."""
    vector = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
    return np.maximum(a, b) if vector else max(a, b)


def least(a: Any, b: Any) -> Any:
    """Return the lesser of exact integers."""
    vector = isinstance(a, np.ndarray) or isinstance(b, np.ndarray)
    return np.minimum(a, b) if vector else min(a, b)


def divide(kind: str, a: Any, b: Any, name: str) -> Any:
    """Divide integers, exact ones or of one data type.

    Args:
        kind: floordiv, floormod, truncdiv or truncmod.
        a, b: the operands.
        name: the function's name, for the message.

    Raises:
        ZeroDivisionError: a divisor is 0.
    """
    if np.any(np.equal(b, 0)):
        raise ZeroDivisionError(f"{name}: integer division by zero")
    quotient: Any
    rest: Any
    if isinstance(a, int) and isinstance(b, int):
        quotient, rest = divmod(a, b)
    else:
        quotient = np.floor_divide(a, b)
        rest = a - quotient * b
    if kind.startswith("trunc"):
        # Add one to a negative quotient that was rounded down.
        up: Any = (rest != 0) & ((np.less(a, 0)) != (np.less(b, 0)))
        if isinstance(a, int) and isinstance(b, int):
            quotient, rest = quotient + int(up), rest - b * int(up)
        else:
            up = up.astype(quotient.dtype)
            quotient, rest = quotient + up, rest - b * up
    return quotient if kind.endswith("div") else rest


def float_mod(a: Any, b: Any) -> Any:
    """Return ``a - floor(a / b) * b``, rounded after every operation."""
    return a - np.floor(a / b) * b


def choose(
    mask: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], index: Any, dtype: Any
) -> Any:
    """Select elementwise `yes` where the mask is true, else `no`; each is computed only for its
    own indices."""
    if not isinstance(mask, np.ndarray):
        return yes(index) if mask else no(index)
    if mask.all():
        return yes(index)
    if not mask.any():
        return no(index)
    result = np.empty(mask.shape, dtype)
    result[mask] = yes(index[mask])
    result[~mask] = no(index[~mask])
    return result


def popcount(x: Any, bits: int) -> Any:
    """Count the bits that are 1 in exact integers."""
    if isinstance(x, np.ndarray):
        return np.array([popcount(int(i), bits) for i in x], np.int64)
    return (int(x) & (2**bits - 1)).bit_count()


def clz(x: Any, bits: int) -> Any:
    """Count the leading bits that are 0 in exact integers."""
    if isinstance(x, np.ndarray):
        return np.array([clz(int(i), bits) for i in x], np.int64)
    return bits - (int(x) & (2**bits - 1)).bit_length()


def reinterpret(x: Any, dtype: Any) -> Any:
    """Reinterpret the bits of numpy's values as another data type."""
    return np.asarray(x).view(dtype)[()]


def _in_float(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """Apply a function of `math` elementwise, in double precision, and round the result."""

    def apply(x: Any) -> Any:
        array = np.asarray(x)
        flat = [function(v) for v in array.astype(np.float64).ravel().tolist()]
        return np.array(flat, np.float64).reshape(array.shape).astype(array.dtype)[()]

    return apply


def _one(x: Any) -> Any:
    return np.asarray(x).dtype.type(1)


def _rsqrt(x: Any) -> Any:
    return _one(x) / np.sqrt(x)


def _exp10(x: Any) -> Any:
    return np.power(np.asarray(x).dtype.type(10), x)


def _elementary(name: str, double: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine a function of `relaxvm.native.elementary` with one for float64."""

    def apply(x: Any) -> Any:
        array = np.asarray(x)
        if array.dtype == np.float64:
            return double(x)
        function = python_functions()[f"{name}_float32"]
        return function(array.astype(np.float32, copy=False)).astype(array.dtype)[()]

    return apply


_OWN: Final = {
    "_rsqrt": _rsqrt,
    "_exp10": _exp10,
    "_exp": _elementary("exp", np.exp),
    "_exp2": _elementary("exp2", np.exp2),
    "_log": _elementary("log", np.log),
    "_tanh": _elementary("tanh", np.tanh),
    "_sigmoid": _elementary("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    "_erf": _elementary("erf", _in_float(math.erf)),
}


def namespace() -> dict[str, Any]:
    """Return the names that generated code may use."""
    names = {
        f.__name__: f
        for f in (
            PythonFunction, allocate, at, check_dim, check_time, choose, clz, divide, error, exact,
            float_mod, greatest, least, maximum, minimum, popcount, reinterpret, span, to_int,
            typed, wrap,
        )
    }  # fmt: skip
    return {"np": np, "dtype": as_dtype, **names, **_OWN}
