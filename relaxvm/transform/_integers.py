"""Products of bytes and constant integers, with what follows them, as the kernels of
`relaxvm.kernels.integers` compute them at once.

Importers write such a product as one of floats that hold all sums exactly: of bytes, converted,
less a zero point.  What may follow: conversion to int32, where a bias is added, and back to floats;
a factor; a number for each output; a function; quantization to bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..ir import Call, Constant, Expr, IntImm, Op, TensorType, Var

__all__ = ["IntegerProduct", "centered", "op_name", "operand_of", "packed_weight"]

_BYTES: Final = ("int8", "uint8")
_MOST: Final = (1 << 31) - 1
_FUNCTIONS: Final = {
    "relax.nn.relu": "relu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    "relax.nn.silu": "silu",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
    "relax.erf": "erf",
}


def op_name(expr: Expr | None) -> str:
    """The name of the operator that a value is a call of, or nothing."""
    return expr.op.name if isinstance(expr, Call) and isinstance(expr.op, Op) else ""


def _value(values: Mapping[Any, Expr], expr: Expr) -> Expr:
    return values.get(expr, expr) if isinstance(expr, Var) else expr


def _is_bytes(expr: Expr) -> bool:
    return isinstance(expr.ty, TensorType) and expr.ty.dtype in _BYTES and expr.ty.dims is not None


def centered(values: Mapping[Any, Expr], expr: Expr) -> tuple[Expr, Expr | None] | None:
    """The bytes, and the zero point, a number, that floats are the difference of."""
    value = _value(values, expr)
    zero: Expr | None = None
    if op_name(value) == "relax.subtract":
        assert isinstance(value, Call)
        wide, point = value.args
        value = _value(values, wide)
        zero = _value(values, point)
    if op_name(value) != "relax.astype":
        return None
    assert isinstance(value, Call)
    (x,) = value.args
    if not _is_bytes(x) or value.ty.dtype not in ("float32", "float64"):
        return None
    if zero is None:
        return x, None
    dtype = str(x.ty.dtype)
    if isinstance(zero, Constant):
        number = zero.data.reshape(-1)
        bounds = np.iinfo(dtype)
        if number.size != 1 or not bounds.min <= number[0] <= bounds.max or number[0] % 1:
            return None
        return x, None if number[0] == 0 else Constant(np.array(number[0], dtype))
    if op_name(zero) == "relax.astype":
        assert isinstance(zero, Call)
        (point,) = zero.args
        if _is_number(point) and point.ty.dtype == dtype:
            return x, point
    return None


def _is_number(expr: Expr) -> bool:
    ty = expr.ty
    return isinstance(ty, TensorType) and ty.dims is not None and len(ty.dims) == 0


def packed_weight(
    weight: NDArray[Any], zero: Expr | None, dtype: str, *, is_depthwise: bool = False
) -> Any:
    """Packed weights[outputs, inputs, height, width], floats that are integers, and the greatest
    sum; None if the kernels do not take them."""
    with np.errstate(invalid="ignore"):
        integers = weight.astype(np.int64)
    if not weight.size or not np.array_equal(integers, weight):
        return None
    bounds = np.iinfo(dtype)
    points = (bounds.min, bounds.max) if not isinstance(zero, Constant) else (int(zero.data),) * 2
    if zero is None:
        points = (0, 0)
    most = max(bounds.max - points[0], points[1] - bounds.min)
    # The parts that the kernel takes out of the products stay in 32 bits modulo 2 ** 32, so that
    # only the sum itself has to fit.
    greatest = most * int(np.abs(integers).sum((1, 2, 3)).max(initial=0))
    if greatest > _MOST:
        return None
    from ..kernels.integers import pack_integer_depthwise, pack_integer_windows

    packed = (pack_integer_depthwise if is_depthwise else pack_integer_windows)(integers)
    return None if packed is None else (packed, greatest)


def operand_of(call: Call, var: Var) -> Expr:
    """The other one of two operands."""
    return call.args[1] if call.args[0] is var else call.args[0]


@dataclass(frozen=True)
class IntegerProduct:
    """A product whose result a variable has, with what has become part of it."""

    x: Expr
    x_zero: Expr | None
    weight: Constant
    sums: Constant
    shift: int
    outputs: int
    axis: int
    """Of the outputs, from the end."""
    greatest: int
    """A bound of the sums."""
    settings: tuple[Any, ...] = ()
    """Strides, padding and dilation of a convolution."""
    dtype: str = "float32"
    """Of the result."""
    bias: Expr | None = None
    factor: Expr | None = None
    more: Expr | None = None
    function: str | None = None
    scale: Expr | None = None
    point: Expr | None = None

    @property
    def is_final(self) -> bool:
        """Whether the kernels have results of this data type."""
        return self.dtype in ("float32", "int32", *_BYTES)

    @property
    def _is_exact(self) -> bool:
        return self.factor is None and self.more is None and self.function is None

    def inputs(self, x: Expr, none: Any) -> Iterable[Any]:
        """The kernel's arguments before the result.

        Args:
            x: the bytes, in the kernel's layout.
            none: makes an expression for an argument that is not there.
        """
        factor = self.factor
        if factor is None and self.dtype != "int32":
            factor = Constant(np.array(1, np.float32))
        rest = (self.bias, factor, self.more, self.function, self.scale, self.point)
        return [
            x, none() if self.x_zero is None else self.x_zero, self.weight, self.sums, self.shift,
            *self.settings, *[none() if each is None else each for each in rest],
        ]  # fmt: skip

    def followed_by(
        self, values: Mapping[Any, Expr], var: Var, call: Call, *, precise: bool
    ) -> IntegerProduct | None:
        """The product with a call that has its result as an operand; None if it stays apart.

        Args:
            values: those of the variables.
            var: the result.
            call: what follows.
            precise: without functions that are not those of numpy.
        """
        name = op_name(call)
        if name == "relax.astype":
            return self._converted(str(call.ty.dtype))
        if name == "relax.quantize" and call.args[0] is var:
            found = self._quantized(call)
            return found if found is None or precise else found._with_one_factor()
        if self.dtype in _BYTES:
            return None
        if name in ("relax.add", "relax.multiply"):
            other = operand_of(call, var)
            if other is var or not isinstance(other.ty, TensorType):
                return None
            return self._with(values, name, other, call)
        if name in _FUNCTIONS and self.dtype == "float32" and self.function is None:
            if precise and name != "relax.nn.relu":
                return None
            return replace(self, function=_FUNCTIONS[name])
        return None

    def _converted(self, dtype: str) -> IntegerProduct | None:
        if self.dtype in _BYTES or (self.dtype == "float32" and not self._is_exact):
            return None
        is_wide = dtype in ("int32", "int64", "float32", "float64")
        return replace(self, dtype=dtype) if is_wide else None

    def _quantized(self, call: Call) -> IntegerProduct | None:
        _, scale, point = call.args
        target = call.attrs["out_dtype"]
        numbers = all(
            isinstance(p.ty, TensorType) and p.ty.dims is not None
            and (not p.ty.dims or (isinstance(p, Constant) and p.data.size == 1))
            for p in (scale, point)
        )  # fmt: skip
        if self.dtype != "float32" or target not in _BYTES or not numbers:
            return None
        if scale.ty.dtype != "float32" or point.ty.dtype != target:
            return None
        is_one = isinstance(scale, Constant) and bool((scale.data == 1).all())
        return replace(self, dtype=target, scale=None if is_one else scale, point=point)

    def _with_one_factor(self) -> IntegerProduct:
        """The product with the scale that results are divided by as part of the factor, and without
        a relu where bytes end at 0 in any case: the kernels then neither divide nor come back to
        sums.  Numbers at the edge between two bytes may become the other one."""
        if self.function not in (None, "relu") or not isinstance(self.factor, Constant):
            return self
        if not isinstance(self.scale, Constant) or not isinstance(self.point, Constant):
            return self
        if self.more is not None and not isinstance(self.more, Constant):
            return self
        scale = self.scale.data.astype(np.float64).reshape(())
        with np.errstate(all="ignore"):
            # Numbers stay arrays: numpy's quotient of two of no axes is a scalar.
            factor = np.asarray(self.factor.data / scale, np.float32)
            more = None if self.more is None else np.asarray(self.more.data / scale, np.float32)
        is_normal = np.isfinite(factor) & (np.abs(factor) >= np.finfo(np.float32).tiny)
        if not (scale > 0 and is_normal.all() and (more is None or np.isfinite(more).all())):
            return self
        is_least = bool((self.point.data == np.iinfo(self.dtype).min).all())
        return replace(
            self, factor=Constant(factor), more=None if more is None else Constant(more),
            scale=None, function=None if is_least else self.function,
        )  # fmt: skip

    def _with(
        self, values: Mapping[Any, Expr], name: str, other: Expr, call: Call
    ) -> IntegerProduct | None:
        if call.ty.dtype != self.dtype:
            return None
        if name == "relax.multiply":
            if self.dtype != "float32" or not self._is_exact:
                return None
            factor = other if _is_number(other) else self._vector(values, other)
            return None if factor is None else replace(self, factor=factor)
        if self.dtype == "float32" and not (self._is_exact and self.factor is None):
            if self.more is not None or self.function is not None:
                return None
            more = other if _is_number(other) else self._vector(values, other)
            return None if more is None else replace(self, more=more)
        if not self._is_exact or self.bias is not None:
            return None
        bias = self._vector(values, other)
        if bias is None:
            return None
        if isinstance(bias, Constant):
            with np.errstate(invalid="ignore"):
                integers = bias.data.astype(np.int64)
            most = int(np.abs(integers).max(initial=0))
            if not np.array_equal(integers, bias.data):
                return replace(self, more=bias) if self.dtype == "float32" else None
            if self.greatest + most > _MOST or (
                self.dtype == "float32" and self.greatest + most >= 1 << 24
            ):
                return None
            return replace(
                self, bias=Constant(integers.astype(np.int32)), greatest=self.greatest + most
            )
        return replace(self, bias=bias) if self.dtype == "int32" else None

    def _vector(self, values: Mapping[Any, Expr], other: Expr) -> Expr | None:
        """A number for each output, as a vector."""
        if isinstance(other, Constant):
            shape = other.data.shape
            if other.data.size == 1 and len(shape) <= -self.axis:
                return Constant(other.data.reshape(()))
            if other.data.size != self.outputs or len(shape) < -self.axis:
                return None
            if shape[len(shape) + self.axis] != self.outputs:
                return None
            return Constant(np.ascontiguousarray(other.data.reshape(-1)))
        dims = other.ty.dims
        if dims is None or len(dims) < -self.axis:
            return None
        lengths = [dim.value if isinstance(dim, IntImm) else None for dim in dims]
        at = len(lengths) + self.axis
        if lengths[at] != self.outputs or any(n != 1 for i, n in enumerate(lengths) if i != at):
            return None
        if len(lengths) == 1:
            return other
        value = _value(values, other)
        if op_name(value) == "relax.reshape":
            assert isinstance(value, Call)
            source = value.args[0]
            ty: Any = source.ty
            if isinstance(ty, TensorType) and ty.dims is not None and len(ty.dims) == 1:
                return source
        return None
