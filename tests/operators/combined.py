"""Cases of operators that are short programs of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import cases


def grid(tensors: Any, indexing: str = "ij") -> Any:
    return tuple(np.meshgrid(*tensors, indexing=indexing))


def sampled(prob: Any, uniform: Any, indices: Any, dtype: str = "int64") -> Any:
    found = []
    for sample, row in zip(uniform[:, 0], indices[:, 0], strict=True):
        totals = np.cumsum(prob[int(row)])
        found.append(next((i for i, t in enumerate(totals) if t > sample), len(totals) - 1))
    return np.array(found, object).reshape(-1, 1)


def along(x: Any, parameter: Any, axis: int) -> Any:
    parameter = np.asarray(parameter)
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def quantized(x: Any, scale: Any, zero: Any, axis: int = -1, out_dtype: str = "int8") -> Any:
    scaled = np.rint((x / along(x, scale, axis)).astype(np.float32).astype(np.longdouble))
    info = np.iinfo(out_dtype)
    return np.clip(scaled + along(x, zero, axis), info.min, info.max).astype(int).astype(object)


def dequantized(x: Any, scale: Any, zero: Any, axis: int = -1, out_dtype: str = "float32") -> Any:
    return (x - along(x, zero, axis)).astype(np.longdouble) * along(x, scale, axis)


cases(
    "ewise_fma",
    """
ewise_fma(f(n, m), f(n, m), f(n, m)) | R.Tensor((n, m), "float32")
ewise_fma(rank(2), f(n, m), f(n, m)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
ewise_fma(f(2, 3), f(2, 3), f(3)) | ValueError: relax.ewise_fma: expected tensors of one rank
ewise_fma(f(2, 3), f(2, 3), i(2, 3)) | TypeError: relax.ewise_fma: expected operands of one data
ewise_fma(f(2, 3), f(2, 3), f(2, 1)) | ValueError: relax.ewise_fma: dimension 1 differs
""",
    """
ewise_fma(x(2, 3), x(2, 3), x(2, 3))
ewise_fma(x(), x(), x())
""",
    reference=lambda a, b, c: a * b + c,
    dtypes="fdij",
    ulps=4,
    of_largest=True,
)
cases(
    "outer",
    """
outer(f(n), f(m)) | R.Tensor((n, m), "float32")
outer(rank(1), f(m)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
outer(f(2, 3), f(2)) | ValueError: relax.outer: x1: expected a tensor of rank 1
outer(f(2), i(2)) | TypeError: relax.outer: expected operands of one data type
""",
    """
outer(x(3), x(4))
outer(x(0), x(4))
""",
    reference=lambda a, b: a[:, None] * b[None],
    dtypes="fdij",
)
cases(
    "meshgrid",
    """
meshgrid((f(n), f(m))) | R.Tuple(R.Tensor((n, m), "float32"), R.Tensor((n, m), "float32"))
meshgrid((f(n), rank(1)), "xy") | R.Tuple(R.Tensor(dtype="float32", ndim=2),
    R.Tensor(dtype="float32", ndim=2))
meshgrid((f(n),)) | R.Tuple(R.Tensor((n,), "float32"))
""",
    """
meshgrid((f(n), f())) | ValueError: relax.meshgrid: tensors[1]: expected a tensor of rank 1
meshgrid((f(n), i(n))) | TypeError: relax.meshgrid: expected operands of one data type
meshgrid((f(n),), "ab") | ValueError: relax.meshgrid: indexing: expected 'ij' or 'xy', got str 'ab'
meshgrid(()) | ValueError: relax.meshgrid: tensors: expected one or more, got none
""",
    """
meshgrid((x(2), x(3)))
meshgrid((x(2), x(3), x(4)))
meshgrid((x(2), x(3), x(4)), "xy")
meshgrid((x(2),))
""",
    reference=grid,
    dtypes="fhijb",
)
cases(
    "multinomial_from_uniform",
    """
multinomial_from_uniform(f(n, m), f(k, 1), i(k, 1)) | R.Tensor((k, 1), "int64")
multinomial_from_uniform(f(n, m), rank(2), i(k, 1), "int32") | R.Tensor(dtype="int32", ndim=2)
""",
    """
multinomial_from_uniform(f(3, 5), f(4, 1), i(5, 1)) | ValueError: relax.multinomial_from_uniform:
    number of samples differs
multinomial_from_uniform(f(3, 5), i(4, 1), i(4, 1)) | TypeError: relax.multinomial_from_uniform:
    uniform_sample: expected floats
multinomial_from_uniform(f(3, 5), f(4), i(4, 1)) | ValueError: relax.multinomial_from_uniform:
    uniform_sample: expected a tensor of rank 2
""",
    """
multinomial_from_uniform(x(3, 4), x(5, 1), abs(i(5, 1)) % 3)
multinomial_from_uniform(x(2, 1), x(2, 1), abs(i(2, 1)) % 2, "int32")
""",
    reference=sampled,
    dtypes="fd",
    within=(0, 0.9),
)
cases(
    "quantize",
    """
quantize(f(n, 3), f(3), s(3)) | R.Tensor((n, 3), "int8")
quantize(h(n, 3), f(), u(), 0, "uint8") | R.Tensor((n, 3), "uint8")
""",
    """
quantize(i(2, 3), f(3), s(3)) | TypeError: relax.quantize: data: expected floats
quantize(f(2, 3), f(3), s(3), 0) | ValueError: relax.quantize: number of elements along axis 0
quantize(f(2, 3), f(3), s(3), 1, "int32") | TypeError: relax.quantize: out_dtype: expected one of
quantize(tensor(), f(3), s(3)) | ValueError: relax.quantize: data: expected a tensor of known rank
quantize(f(2, 3), f(3, 1), s(3)) | ValueError: relax.quantize: scale: expected a tensor of rank 0 or
""",
    """
quantize(x(2, 3), f(3), s(3))
quantize(x(2, 3), f(2), u(2), 0, "uint8")
quantize(x(2, 3), f(), s())
quantize(x(2, 3), f(), j(), -1, "int16")
""",
    reference=quantized,
    dtypes="f",
    within=(0.5, 9),
)
cases(
    "dequantize",
    """
dequantize(s(n, 3), f(3), s(3)) | R.Tensor((n, 3), "float32")
dequantize(u(n, 3), f(), u(), 0, "float16") | R.Tensor((n, 3), "float16")
""",
    """
dequantize(s(2, 3), f(3), s(3), 0) | ValueError: relax.dequantize: number of elements along axis 0
dequantize(s(2, 3), f(3), s(3), 1, "int32") | TypeError: relax.dequantize: out_dtype: expected
dequantize(s(2, 3), i(3), s(3)) | TypeError: relax.dequantize: scale: expected floats
""",
    """
dequantize(x(2, 3), f(3), x(3))
dequantize(x(2, 3), f(2), x(2), 0, "float16")
dequantize(x(2, 3), f(), j())
dequantize(f(2, 3), f(), f())
""",
    reference=dequantized,
    dtypes="suj",
    ulps=2,
    of_largest=True,
)
cases(
    "masked_fill",
    """
masked_fill(f(n, 3), b(n, 3), const(1.0, "float32")) | R.Tensor((n, 3), "float32")
""",
    """
masked_fill(f(n), f(n), const(1.0, "float32")) | TypeError: relax.where: condition: expected bools
""",
    """
masked_fill(x(2, 3), b(2, 3), const(1.5, "float32"))
masked_fill(f(2, 3), b(3), f())
""",
)
