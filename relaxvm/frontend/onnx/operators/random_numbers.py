"""Random numbers, and dropout in training.

The numbers come from generators that the program makes when it begins.  A node with a seed has one
of its own, so that each run gives the same numbers, and each step of a loop further ones; all nodes
without a seed share one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr, TensorType, Type
from ...common.values import Value, as_expr
from ..graph import Graph, Problem
from ..registry import onnx
from ..tensors import dtype_of

__all__: list[str] = []


def _dims(shape: list[int]) -> list[Expr]:
    if min(shape, default=0) < 0:
        raise Problem(f"shape: expected lengths of 0 or more, got {shape}")
    return [as_expr(each) for each in shape]


def _float_type(dtype: int | None, like: Value | None = None) -> str:
    """The data type of the result; that of a tensor if it is not stated."""
    name = like.dtype if dtype is None and like is not None else dtype_of(dtype or 1, "dtype")
    if name not in ("bfloat16", "float16", "float32", "float64"):
        raise Problem(f"dtype: expected floats, got {name}")
    return name


def _shape_of(g: Graph, x: Value, dtype: str) -> tuple[Any, Type]:
    """The shape of a tensor, and the type of one with its shape and a data type."""
    if x.dims is not None:
        return list(x.dims), TensorType(x.dims, dtype)
    return g.op("shape_of", x), TensorType(None, dtype, ndim=x.ndim)


@onnx("RandomNormal", since=1)
def random_normal(
    g: Graph,
    *,
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: list[int],
) -> Expr:
    """Numbers of a normal distribution."""
    name, dims = _float_type(dtype), _dims(shape)
    given = [dims, float(mean), float(scale), name]
    return g.random("normal", g.node, seed, given, TensorType(dims, name))


@onnx("RandomNormalLike", since=1)
def random_normal_like(
    g: Graph,
    x: Value,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    """Numbers of a normal distribution, as many as x has."""
    name = _float_type(dtype, x)
    dims, ty = _shape_of(g, x, name)
    return g.random("normal", g.node, seed, [dims, float(mean), float(scale), name], ty)


@onnx("RandomUniform", since=1)
def random_uniform(
    g: Graph,
    *,
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: list[int],
) -> Expr:
    """Numbers of a uniform distribution."""
    name, dims = _float_type(dtype), _dims(shape)
    given = [dims, float(low), float(high), name]
    return g.random("uniform", g.node, seed, given, TensorType(dims, name))


@onnx("RandomUniformLike", since=1)
def random_uniform_like(
    g: Graph,
    x: Value,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    """Numbers of a uniform distribution, as many as x has."""
    name = _float_type(dtype, x)
    dims, ty = _shape_of(g, x, name)
    return g.random("uniform", g.node, seed, [dims, float(low), float(high), name], ty)


@onnx("Bernoulli", since=15)
def bernoulli(
    g: Graph, x: Value, *, dtype: int | None = None, seed: float | None = None
) -> Expr:
    """1 with the probability that x has, else 0."""
    name = x.dtype if dtype is None else dtype_of(dtype, "dtype")
    dims, ty = _shape_of(g, x, "float64")
    numbers = g.random("uniform", g.node, seed, [dims, 0.0, 1.0, "float64"], ty)
    drawn = g.op("less", numbers, g.op("astype", x, "float64"))
    return drawn if name == "bool" else g.op("astype", drawn, name)


@onnx("Multinomial", since=7)
def multinomial(
    g: Graph, x: Value, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Expr:
    """Classes, each with the probability whose logarithm x has, up to a constant for each row."""
    if x.ndim != 2:
        raise Problem(f"input: expected a matrix, got {x.type}")
    name = dtype_of(dtype, "dtype")
    if name not in ("int32", "int64"):
        raise Problem(f"dtype: expected int32 or int64, got {name}")
    if sample_size < 0:
        raise Problem(f"sample_size: expected 0 or more, got {sample_size}")
    ty = TensorType(None, name, ndim=2)
    if x.dims is not None:
        ty = TensorType([x.dims[0], as_expr(sample_size)], name)
    return g.random("multinomial", g.node, seed, [x, sample_size, name], ty)


@onnx("Dropout", since=1)
def dropout_since_1(
    g: Graph,
    x: Value,
    *,
    ratio: float = 0.5,
    is_test: int = 0,
    consumed_inputs: Any = None,
) -> Any:
    """x itself, as inference has it, and a mask of ones."""
    return _kept(g, x)


@onnx("Dropout", since=7)
def dropout(
    g: Graph,
    x: Value,
    ratio_input: Value | None = None,
    training: Value | None = None,
    *,
    ratio: float = 0.5,
    seed: int | None = None,
) -> Any:
    """x itself, and a mask of ones; in training x / (1 - ratio), of which a part becomes 0."""
    mode = None if training is None else training.constant()
    if training is None or (mode is not None and not mode.any()):
        return _kept(g, x)
    if x.dtype is None:
        raise Problem("the data type of data is not known")
    if ratio_input is None:
        ratio_input = Value(known=np.array(ratio, np.float32))
    if mode is None:  # nothing is dropped where it is false
        zero = np.array(0, as_dtype(ratio_input.dtype or "float32"))
        ratio_input = Value(g.op("where", _flat(g, training), _flat(g, ratio_input), zero))
    part = _flat(g, ratio_input)
    dims, ty = _shape_of(g, x, "float64")
    numbers = g.random("uniform", g.node, seed, [dims, 0.0, 1.0, "float64"], ty)
    mask = g.op("greater_equal", numbers, g.op("astype", part, "float64"))
    working = x.dtype if x.dtype in ("float32", "float64") else "float32"
    one = np.array(1, as_dtype(working))
    factor = g.op("divide", one, g.op("subtract", one, g.op("astype", part, working)))
    scaled: Any = g.op("multiply", g.op("astype", x, working), factor)
    found = g.op("where", mask, scaled, np.array(0, as_dtype(working)))
    return (found if working == x.dtype else g.op("astype", found, x.dtype)), mask


def _flat(g: Graph, x: Value) -> Expr:
    """A tensor of one element with rank 0."""
    return g.expr(x) if x.ndim == 0 else g.op("reshape", x, ())


def _kept(g: Graph, x: Value) -> Any:
    assert g.node is not None
    if len(g.node.output) < 2 or not g.node.output[1]:
        return x
    # Up to version 11 the standard leaves open what the mask of inference has.
    return x, Value(g.op("ones_like", x, "bool" if g.version >= 10 else x.dtype))
