"""New tensors: constants, ranges, random numbers, and other data types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....dtypes import as_dtype
from ....ir import Expr
from ...common.emitter import Emitter, Problem
from ..forms import (
    DEFAULT_FLOAT,
    Tensor,
    cast,
    dims_of,
    dtype_of,
    each_of,
    is_float,
    is_tensor,
    length,
    number,
    numel,
    rank_of,
    reshaped,
)
from ..graph import Graph
from ..registry import aten
from .shapes import expand

__all__: list[str] = []


def _filled(c: Emitter, size: Any, value: Any, dtype: str) -> Tensor:
    return c.op("full", [length(each) for each in size], number(c, value, dtype), dtype)


@each_of("zeros", "ones", "empty.memory_format", "empty_strided", "empty_permuted")
def constant(
    name: str, c: Emitter, size: Any, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None, memory_format: Any = None, stride: Any = None,
    physical_layout: Any = None,
) -> Tensor:  # fmt: skip
    """R.full of 0 or 1."""
    return _filled(c, size, int(name == "ones"), dtype or DEFAULT_FLOAT)


@each_of("zeros_like", "ones_like", "empty_like")
def constant_like(
    name: str, c: Emitter, self: Tensor, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """R.full of 0 or 1, in the shape of a tensor."""
    return _filled(c, dims_of(self), int(name == "ones_like"), dtype or dtype_of(self))


@each_of("new_zeros", "new_ones", "new_empty", "new_empty_strided")
def new_constant(
    name: str, c: Emitter, self: Tensor, size: Any, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None, stride: Any = None,
) -> Tensor:  # fmt: skip
    """R.full of 0 or 1, of the data type of a tensor."""
    return _filled(c, size, int(name == "new_ones"), dtype or dtype_of(self))


def _dtype_of_number(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, Expr):
        found = str(getattr(value.ty, "dtype", "int64"))
        return DEFAULT_FLOAT if "float" in found else found
    return DEFAULT_FLOAT


@aten("full")
def full(
    c: Emitter, size: Any, fill_value: Any, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """R.full."""
    return _filled(c, size, fill_value, dtype or _dtype_of_number(fill_value))


@aten("full_like")
def full_like(
    c: Emitter, self: Tensor, fill_value: Any, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """R.full, in the shape of a tensor."""
    return _filled(c, dims_of(self), fill_value, dtype or dtype_of(self))


@aten("new_full")
def new_full(
    c: Emitter, self: Tensor, size: Any, fill_value: Any, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """R.full, of the data type of a tensor."""
    return _filled(c, size, fill_value, dtype or dtype_of(self))


@aten("fill.Scalar", "fill.Tensor")
def fill(c: Emitter, self: Tensor, value: Any) -> Tensor:
    """R.full, in shape and data type of a tensor."""
    if is_tensor(value):
        return expand(c, cast(c, value, dtype_of(self)), dims_of(self))
    return _filled(c, dims_of(self), value, dtype_of(self))


@aten("zero")
def zero(c: Emitter, self: Tensor) -> Tensor:
    """R.full of 0."""
    return _filled(c, dims_of(self), 0, dtype_of(self))


@aten("scalar_tensor")
def scalar_tensor(
    c: Emitter, s: Any, dtype: str | None = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """A number as a tensor, of floats unless the data type is given."""
    return number(c, s, dtype or DEFAULT_FLOAT)


@aten("tensor.float", "tensor.int", "tensor.bool")
def tensor(
    c: Emitter, t: Any, dtype: str | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A number as a tensor."""
    return number(c, t, dtype or _dtype_of_number(t))


@aten("fill_diagonal")
def fill_diagonal(c: Emitter, self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """A tensor with a number on its diagonal."""
    dims = dims_of(self)
    if wrap or len(dims) != 2:
        raise Problem("fill_diagonal: expected a matrix, without wrap")
    mask = c.op("eye", dims[0], dims[1], 0, "bool")
    return c.op("where", mask, number(c, fill_value, dtype_of(self)), self)


# Ranges


@aten("arange", "arange.start", "arange.start_step")
def arange(
    c: Graph, end: Any, start: Any = 0, step: Any = 1, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """R.arange."""
    kinds = [_dtype_of_number(each) for each in (start, end, step)]
    dtype = dtype or (DEFAULT_FLOAT if DEFAULT_FLOAT in kinds else "int64")
    if not any(isinstance(length(each), Expr) for each in (start, end, step)):
        start, end, step = (length(each) for each in (start, end, step))
        count = math.ceil((end - start) / step)
        if not is_float(dtype):
            start, end, step = int(start), int(end), int(step)
            older = math.ceil((end - start) / step) if step else count
            if older != count and _stated_length(c) == older:
                count = older  # as older versions of PyTorch have it
        wide = np.float64 if is_float(dtype) else np.int64
        found = start + np.arange(max(count, 0), dtype=wide) * step
        if count <= 4096:
            return c.expr(found.astype(as_dtype(dtype)))
    return c.op("arange", start, end, step, dtype)


def _stated_length(c: Graph) -> Any:
    """The length that the graph states for the vector that a node returns; None if it does not."""
    output = None if c.node is None else c.node.outputs[0]
    if output is None or output.kind != "as_tensor":
        return None
    kind = c.kind(output.value.name)
    return None if kind is None or not kind.dims else length(kind.dims[0])


@aten("linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(
    c: Emitter, start: Any, end: Any, steps: Any, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """Numbers at equal distances, from the first to the last."""
    dtype = dtype or DEFAULT_FLOAT
    if not is_float(dtype):  # torch converts the bounds first
        start, end = (int(x) if isinstance(x, float) else x for x in (start, end))
    return cast(c, _spaced(c, start, end, steps), dtype)


def _spaced(c: Emitter, start: Any, end: Any, steps: Any) -> Tensor:
    steps = length(steps)
    if not any(isinstance(each, Expr) or is_tensor(each) for each in (start, end, steps)):
        return c.expr(np.linspace(start, end, steps))
    a, b = (cast(c, each, "float64") if is_tensor(each) else number(c, each, "float64")
            for each in (start, end))  # fmt: skip
    if isinstance(steps, int) and steps == 1:
        return reshaped(c, a, [1])
    part = c.op("divide", c.op("astype", c.op("arange", 0, steps, 1, "int64"), "float64"),
                number(c, steps - 1, "float64"))  # fmt: skip
    return c.op("add", a, c.op("multiply", part, c.op("subtract", b, a)))


@aten("logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor")
def logspace(
    c: Emitter, start: Any, end: Any, steps: Any, base: float = 10.0, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """A base to the power of numbers at equal distances."""
    dtype = dtype or DEFAULT_FLOAT
    if not is_float(dtype):  # torch converts the bounds first
        start, end = (
            cast(c, x, "int64") if is_tensor(x) else int(x) if isinstance(x, float) else x
            for x in (start, end)
        )
    powers = _spaced(c, start, end, steps)
    return cast(c, c.op("power", number(c, base, "float64"), powers), dtype)


@aten("eye", "eye.m")
def eye(
    c: Emitter, n: Any, m: Any = None, dtype: str | None = None, layout: Any = None,
    device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """R.eye."""
    return c.op("eye", n, n if m is None else m, 0, dtype or DEFAULT_FLOAT)


@each_of("tril_indices", "triu_indices")
def triangle_indices(
    name: str, c: Emitter, row: int, col: int, offset: int = 0, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """The places below or above a diagonal."""
    rows, columns = length(row), length(col)
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise Problem(f"{name}: expected lengths that are known before the program runs")
    function = np.tril_indices if name == "tril_indices" else np.triu_indices
    return c.expr(np.stack(function(rows, offset, columns)).astype(dtype or "int64"))


_WINDOWS = {"hann_window": (0.5, 0.5, 0.0), "hamming_window": (0.54, 0.46, 0.0),
            "blackman_window": (0.42, 0.5, 0.08), "bartlett_window": (0.0, 0.0, 0.0)}  # fmt: skip


@each_of("hann_window", "hann_window.periodic", "hamming_window", "hamming_window.periodic",
         "blackman_window", "blackman_window.periodic", "bartlett_window",
         "bartlett_window.periodic")  # fmt: skip
def window(
    name: str, c: Emitter, window_length: int, periodic: bool = True, dtype: str | None = None,
    layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """A window for spectra."""
    count = length(window_length)
    if not isinstance(count, int):
        raise Problem(f"{name}: expected a length that is known before the program runs")
    around = max(count if periodic else count - 1, 1)
    place = np.arange(count) / around
    if name == "bartlett_window":
        found = 1 - np.abs(2 * place - 1)
    else:
        a, b, d = _WINDOWS[name]
        found = a - b * np.cos(2 * np.pi * place) + d * np.cos(4 * np.pi * place)
    if count == 1:
        found = np.ones(1)
    return c.expr(found.astype(as_dtype(dtype or DEFAULT_FLOAT)))


@aten("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta")
def kaiser_window(
    c: Emitter, window_length: int, periodic: bool = True, beta: float = 12.0,
    dtype: str | None = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
) -> Tensor:  # fmt: skip
    """Kaiser's window."""
    count = length(window_length)
    if not isinstance(count, int):
        raise Problem("kaiser_window: expected a length that is known before the program runs")
    found = np.ones(1) if count == 1 else np.kaiser(count + periodic, beta)[:count]
    return c.expr(found.astype(as_dtype(dtype or DEFAULT_FLOAT)))


@aten("vander")
def vander(c: Emitter, x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of the elements of a vector, as rows."""
    count = dims_of(x)[0] if N is None else N
    powers = np.arange(count)
    wide = reshaped(c, x, [-1, 1])
    exponents = c.expr((powers if increasing else powers[::-1]).astype(as_dtype(dtype_of(x))))
    return c.op("power", wide, exponents)


# Other data types


@aten("to.dtype", "to.dtype_layout", "to.device", "to.other", "to.prim_Device", "type_as",
      "_to_copy", "_cast_Float")  # fmt: skip
def to(
    c: Emitter, self: Tensor, dtype: str | None = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None, other: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """R.astype."""
    return cast(c, self, dtype_of(other) if other is not None else dtype)


@aten("copy")
def copy(c: Emitter, self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Another content in shape and data type of a tensor."""
    return expand(c, cast(c, src, dtype_of(self)), dims_of(self))


@aten("numel", "sym_numel")
def element_count(c: Emitter, self: Tensor) -> Any:
    """The number of elements."""
    return numel(dims_of(self))


@aten("sym_size.int")
def sym_size(c: Emitter, self: Tensor, dim: int) -> Any:
    """A dimension."""
    return dims_of(self)[dim % max(rank_of(self), 1)]


@aten("_assert_tensor_metadata")
def assert_metadata(
    c: Emitter, a: Tensor, size: Any = None, stride: Any = None, dtype: Any = None,
    device: Any = None, layout: Any = None,
) -> Any:  # fmt: skip
    """Nothing: the types of the program say the same."""
    return []


