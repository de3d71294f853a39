"""Random numbers.  Each run draws others; they are not those that torch draws."""

from __future__ import annotations

import math
from typing import Any

from ....ir import TensorType
from ...common.emitter import Emitter, Problem
from ..forms import DEFAULT_FLOAT, Tensor, cast, dims_of, dtype_of, number, rank_of, reshaped
from ..registry import aten

__all__: list[str] = []


def _drawn(c: Emitter, name: str, dims: Any, dtype: str, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform numbers from a to b, or normal ones of mean a and deviation b."""
    wide = dtype if dtype in ("float32", "float64") else "float32"
    found = c.random(name, c, None, [list(dims), a, b, wide], TensorType(list(dims), wide))
    return cast(c, found, dtype)


def _factory(name: str) -> Any:
    def convert(
        c: Emitter, size: Any, dtype: str | None = None, layout: Any = None, device: Any = None,
        pin_memory: Any = None, generator: Any = None, names: Any = None,
    ) -> Tensor:  # fmt: skip
        return _drawn(c, name, size, dtype or DEFAULT_FLOAT)

    convert.__doc__ = f"Numbers of a {name} distribution."
    return convert


def _like(name: str) -> Any:
    def convert(
        c: Emitter, self: Tensor, dtype: str | None = None, layout: Any = None,
        device: Any = None, pin_memory: Any = None, memory_format: Any = None,
        generator: Any = None,
    ) -> Tensor:  # fmt: skip
        return _drawn(c, name, dims_of(self), dtype or dtype_of(self))

    convert.__doc__ = f"Numbers of a {name} distribution, as many as a tensor has."
    return convert


for _name, _kind in (("rand", "uniform"), ("randn", "normal")):
    aten(_name, f"{_name}.generator")(_factory(_kind))
    aten(f"{_name}_like", f"{_name}_like.generator")(_like(_kind))


def _integers(c: Emitter, low: Any, high: Any, dims: Any, dtype: str) -> Tensor:
    found = _drawn(c, "uniform", dims, "float64", float(low), float(high))
    return cast(c, cast(c, c.op("floor", found), "int64"), dtype)


@aten("randint", "randint.low", "randint.generator", "randint.low_generator")
def randint(
    c: Emitter, high: Any, size: Any, low: Any = 0, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None, generator: Any = None,
) -> Tensor:  # fmt: skip
    """Integers from low to before high."""
    return _integers(c, low, high, size, dtype or "int64")


@aten("randint_like", "randint_like.low_dtype")
def randint_like(
    c: Emitter, self: Tensor, high: Any, low: Any = 0, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Integers from low to before high, as many as a tensor has."""
    return _integers(c, low, high, dims_of(self), dtype or dtype_of(self))


@aten("randperm")
def randperm(
    c: Emitter, n: Any, dtype: str | None = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, generator: Any = None,
) -> Tensor:  # fmt: skip
    """The numbers before n in a random order."""
    return cast(c, c.op("argsort", _drawn(c, "uniform", [n], "float64"), 0, False, "int64"),
                dtype or "int64")  # fmt: skip


@aten("uniform")
def uniform(
    c: Emitter, self: Tensor, from_: Any = 0.0, to: Any = 1.0, generator: Any = None
) -> Tensor:
    """Uniform numbers in place of those of a tensor."""
    return _drawn(c, "uniform", dims_of(self), dtype_of(self), float(from_), float(to))


@aten("normal", "normal.float_float", "normal_functional")
def normal(
    c: Emitter, self: Tensor | None = None, mean: Any = 0.0, std: Any = 1.0, size: Any = None,
    dtype: str | None = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    generator: Any = None,
) -> Tensor:  # fmt: skip
    """Normal numbers: in place of those of a tensor, or of a shape."""
    dims = dims_of(self) if self is not None else size
    found = dtype or (dtype_of(self) if self is not None else DEFAULT_FLOAT)
    return _drawn(c, "normal", dims, found, float(mean), float(std))


@aten("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor")
def normal_of(c: Emitter, mean: Any, std: Any = 1.0, generator: Any = None) -> Tensor:
    """Normal numbers, each of a mean and a deviation of its own."""
    like: Any = mean if not isinstance(mean, (int, float)) else std
    dtype = dtype_of(like)
    a, b = [number(c, x, dtype) if isinstance(x, (int, float)) else x for x in (mean, std)]
    shape = dims_of(c.op("add", a, b))
    return c.op("add", a, c.op("multiply", b, _drawn(c, "normal", shape, dtype)))


@aten("exponential")
def exponential(c: Emitter, self: Tensor, lambd: Any = 1.0, generator: Any = None) -> Tensor:
    """Numbers of an exponential distribution in place of those of a tensor."""
    dtype = dtype_of(self)
    drawn = c.op("log1p", c.op("negative", _drawn(c, "uniform", dims_of(self), dtype)))
    return c.op("multiply", drawn, number(c, -1 / lambd, dtype))


@aten("cauchy")
def cauchy(
    c: Emitter, self: Tensor, median: Any = 0.0, sigma: Any = 1.0, generator: Any = None
) -> Tensor:
    """Numbers of a Cauchy distribution in place of those of a tensor."""
    dtype = dtype_of(self)
    angle = _drawn(c, "uniform", dims_of(self), dtype, -math.pi / 2, math.pi / 2)
    scaled = c.op("multiply", c.op("tan", angle), number(c, sigma, dtype))
    return c.op("add", scaled, number(c, median, dtype))


@aten("log_normal")
def log_normal(
    c: Emitter, self: Tensor, mean: Any = 1.0, std: Any = 2.0, generator: Any = None
) -> Tensor:
    """Numbers whose logarithms are normal in place of those of a tensor."""
    return c.op("exp", _drawn(c, "normal", dims_of(self), dtype_of(self), float(mean), float(std)))


@aten("bernoulli", "bernoulli.p", "bernoulli.float", "bernoulli.Tensor")
def bernoulli(c: Emitter, self: Tensor, p: Any = None, generator: Any = None) -> Tensor:
    """1 with a probability, else 0: that of each element, or one for all."""
    drawn = _drawn(c, "uniform", dims_of(self), "float64")
    chance: Any = self if p is None else p
    bound = number(c, chance, "float64") if isinstance(chance, (int, float)) else (
        cast(c, chance, "float64"))  # fmt: skip
    return cast(c, c.op("less", drawn, bound), dtype_of(self))


@aten("multinomial")
def multinomial(
    c: Emitter, self: Tensor, num_samples: int, replacement: bool = False, generator: Any = None
) -> Tensor:
    """Indices drawn by the weights of rows; without replacement, by the largest of keys."""
    rows = self if rank_of(self) == 2 else reshaped(c, self, [1, -1])
    dims = dims_of(rows)
    if replacement or num_samples == 1:
        logits = c.op("log", cast(c, rows, "float32"))
        ty = TensorType([dims[0], num_samples], "int64")
        found: Tensor = c.random("multinomial", c, None, [c.expr(logits), num_samples, "int64"], ty)
    else:  # exponential numbers divided by weights: the least are drawn first
        keys = c.op("log", _drawn(c, "uniform", dims, "float64"))
        keys = c.op("divide", keys, cast(c, rows, "float64"))
        order = c.op("argsort", keys, 1, True, "int64")
        found = c.op("strided_slice", order, [1], [0], [num_samples], [1])
    return found if rank_of(self) == 2 else reshaped(c, found, [num_samples])


def dropped(c: Emitter, x: Tensor, p: float, axes: int | None = None) -> tuple[Tensor, Tensor]:
    """x with elements set to 0 with a probability, the others made larger; and which are kept.

    Args:
        axes: how many first axes decide together; None for each element by itself.
    """
    if not 0 <= p <= 1:
        raise Problem(f"p: expected a probability of 0 to 1, got {p}")
    dims = dims_of(x)
    count = len(dims) if axes is None else axes
    shape = [*dims[:count], *[1] * (len(dims) - count)]
    drawn = _drawn(c, "uniform", shape, "float32")  # from 0 to before 1
    kept = c.op("greater_equal", drawn, number(c, p, "float32"))
    dtype = dtype_of(x)
    scaled = c.op("multiply", x, number(c, 1 / (1 - p) if p < 1 else 0, dtype))
    return c.op("where", kept, scaled, number(c, 0, dtype)), kept
