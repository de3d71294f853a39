"""Expected results of calls, computed without the loops that kernels call.

Floats are computed as `numpy.longdouble`, which has 11 bits more than float64 on x86 and does not
use the vector loops of float32 and float64; integers are Python's, in object arrays.  Results are
compared in units in the last place.  (Where a long double is a float64, as on Windows, numpy still
has loops of their own for it, which call the functions of C.)
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxvm import ir
from relaxvm.values import Shape

from .table import OPERATORS, Cases, KernelCase

__all__ = [
    "assert_close",
    "draw",
    "exact",
    "exact_of_kernel",
    "leaves",
    "narrow",
    "operands_of",
    "rounded_to",
    "seed_of",
    "value_of",
    "wide",
]


def wide(value: Any) -> Any:
    """Convert a value to the oracle's types: floats to long doubles, integers to Python objects,
    bools unchanged."""
    if isinstance(value, tuple) and not isinstance(value, Shape):
        return tuple(map(wide, value))
    if not isinstance(value, np.ndarray) or value.dtype.kind == "b":
        return value
    return value.astype(object if value.dtype.kind in "iu" else np.longdouble)


def narrow(value: Any, dtype: Any) -> NDArray[Any]:
    """Convert a wide tensor to a data type: floats are rounded, integers wrap."""
    dtype, value = np.dtype(dtype), np.asarray(value)
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        numbers = [int(x) & ((1 << bits) - 1) for x in value.reshape(-1).tolist()]
        return np.array(numbers, f"u{dtype.itemsize}").view(dtype).reshape(value.shape)
    if dtype.kind == "b":
        return value.astype(bool)
    with np.errstate(all="ignore"):
        return value.astype(np.longdouble).astype(dtype)


def exact(expr: Any, env: dict[Any, Any]) -> Any:
    """The exact value of an expression; intermediate results are rounded to their types."""
    if isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op):
        found = OPERATORS[expr.op.name.removeprefix("relax.")]
        assert found.reference is not None, found.name
        args = [_value(arg, env) for arg in expr.args]
        with np.errstate(all="ignore"):
            return found.reference(*(args if found.raw else map(wide, args)), **expr.attrs)
    if isinstance(expr, ir.Tuple):
        return tuple(exact(item, env) for item in expr.fields)
    return wide(_value(expr, env))


def _value(expr: Any, env: dict[Any, Any]) -> Any:
    return value_of(expr, env, lambda call: rounded_to(call.ty, exact(call, env)))


def value_of(expr: Any, env: dict[Any, Any], compute: Callable[[ir.Call], Any]) -> Any:
    """The value of an expression, whose calls `compute` computes."""
    if isinstance(expr, ir.Var):
        return env[expr]
    if isinstance(expr, ir.Constant):
        return expr.data
    if isinstance(expr, ir.ShapeExpr):
        return Shape(int(dim) for dim in expr.values)
    if isinstance(expr, ir.Tuple):
        return tuple(value_of(item, env, compute) for item in expr.fields)
    if isinstance(expr, ir.TupleGetItem):
        return value_of(expr.tuple_value, env, compute)[expr.index]
    if isinstance(expr, ir.Call):
        return compute(expr)
    return getattr(expr, "value", None)


def rounded_to(ty: Any, value: Any) -> Any:
    """Round a wide value to a type."""
    if isinstance(ty, ir.TupleType):
        return tuple(map(rounded_to, ty.fields, value))
    return narrow(value, ty.dtype) if isinstance(ty, ir.TensorType) else value


def exact_of_kernel(case: KernelCase, args: list[Any]) -> list[NDArray[Any]]:
    """Return the rounded exact results of a kernel's case."""
    with np.errstate(all="ignore"):
        found = case.reference(*map(wide, args))
        results = found if isinstance(found, tuple) else (found,)
        dtypes = case.dtype.split(",")
        dtypes *= len(results) if len(dtypes) == 1 else 1
        return [narrow(*each) for each in zip(results, dtypes, strict=True)]


def leaves(value: Any) -> list[Any]:
    """Return the tensors of a value, in order."""
    if isinstance(value, (tuple, list)) and not isinstance(value, Shape):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


# Operands


def seed_of(text: str) -> int:
    """Return the seed of a case's operands: the same in every run, different for every case."""
    return zlib.crc32(text.encode())


def draw(shape: Any, dtype: str, low: float, high: float, rng: np.random.Generator) -> NDArray[Any]:
    """A random tensor of numbers from `low` to `high`; not negative if the type is unsigned."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        least = max(0, int(np.ceil(low))) if kind == "u" else int(np.ceil(low))
        return np.asarray(rng.integers(least, int(high) + 1, shape), dtype)
    return np.asarray(rng.uniform(low, high, shape), dtype)


def operands_of(text: str, made: list[ir.Var], found: Cases) -> dict[ir.Var, NDArray[Any]]:
    """Return random operands for the variables of a case."""
    rng = np.random.default_rng(seed_of(text))
    operands = {}
    for i, var in enumerate(made):
        low, high = found.within[i] if isinstance(found.within[0], tuple) else found.within
        shape = tuple(int(dim) for dim in var.ty.dims)  # type: ignore[union-attr]
        operands[var] = draw(shape, var.ty.dtype, low, high, rng)  # type: ignore[union-attr]
    return operands


# Comparison


def assert_close(
    got: Any, want: Any, dtype: Any, found: Any, where: str, factor: float = 1
) -> None:
    """Check that a tensor has this data type and is equal to the rounded exact one: integers and
    bools exactly, floats within the bound of the cases times `factor`."""
    assert isinstance(got, np.ndarray), f"{where}: {got!r}"
    expected = narrow(want, dtype)
    assert got.dtype == expected.dtype, f"{where}: {got.dtype}, not {expected.dtype}"
    assert got.shape == expected.shape, f"{where}: {got.shape}, not {expected.shape}"
    if expected.dtype.kind in "biu":
        assert np.array_equal(got, expected), f"{where}:\n{got}\nnot\n{expected}"
        return
    finite = np.isfinite(expected)
    assert np.array_equal(got[~finite], expected[~finite], equal_nan=True), (
        f"{where}:\n{got}\nnot\n{expected}"
    )
    if not finite.any():
        return
    exact_values = np.asarray(want).astype(np.longdouble)[finite]
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(expected[finite])).astype(np.longdouble)
        if found.of_largest:
            unit = np.maximum(unit.max(), np.spacing(expected.dtype.type(1)))
        error = np.abs(got[finite].astype(np.longdouble) - exact_values) / unit
    bound = factor * found.bound(expected.dtype.name)
    if not (error <= bound).all():  # NaN is not
        at = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
        raise AssertionError(
            f"{where}: {float(error[at]):.3g} ulps off, {bound} are allowed: {got[finite][at]!r}, "
            f"not {exact_values[at]!r}"
        )
