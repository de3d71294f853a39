"""Reference semantics of operators, each as one expression of numpy.

Written independently of `relaxvm.kernels`.  Operands come first, attributes by name; shapes are
tuples, data types strings.  Kernels take the arguments of operators and then the outputs; `KERNELS`
has the kernels that need information from their outputs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]


def _divide(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a), np.floating):
        return a / b
    return np.trunc(a / b).astype(np.result_type(a))


def _axes(axis: Any) -> Any:
    return tuple(axis) if isinstance(axis, (list, tuple)) else axis


def _split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Any, ...]:
    where = indices_or_sections
    if not isinstance(where, int):
        return tuple(np.split(x, list(where), axis))
    step = -(-x.shape[axis] // where)
    return tuple(np.split(x, [step * i for i in range(1, where)], axis))


def _squeeze(x: Any, axis: Any = None) -> Any:
    return np.squeeze(x, _axes(axis))


def _expand_dims(x: Any, axis: Any) -> Any:
    return np.expand_dims(x, _axes(axis))


def _matmul(x1: Any, x2: Any, out_dtype: Any = None) -> Any:
    return np.matmul(x1, x2) if out_dtype is None else np.matmul(x1, x2, dtype=out_dtype)


def _take(x: Any, indices: Any, axis: Any = None, mode: str = "fast") -> Any:
    return np.take(x, indices, axis, mode="clip" if mode == "fast" else mode)


def _cumsum(data: Any, axis: Any = None, dtype: Any = None, exclusive: Any = False) -> Any:
    total = np.cumsum(data, axis, dtype or data.dtype)
    return total - data if exclusive else total


def _reduce(function: Function) -> Function:
    def reduce(x: Any, axis: Any = None, keepdims: Any = False) -> Any:
        return function(x, axis=_axes(axis), keepdims=bool(keepdims))

    return reduce


def _total(function: Function) -> Function:
    def reduce(x: Any, axis: Any = None, keepdims: Any = False) -> Any:
        return function(x, axis=_axes(axis), keepdims=bool(keepdims), dtype=x.dtype)

    return reduce


def _find(function: Function) -> Function:
    def find(x: Any, axis: Any = None, keepdims: Any = False) -> Any:
        return np.asarray(function(x, axis=axis, keepdims=bool(keepdims)), "int64")

    return find


def _strided_slice(
    x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: Any = False
) -> Any:
    index: list[Any] = [slice(None)] * x.ndim
    for place, axis in enumerate(axes):
        step = 1 if strides is None else strides[place]
        index[axis] = slice(begin[place], end[place], step)
    return x[tuple(index)]


OPERATORS: dict[str, Function] = {
    "abs": np.abs,
    "negative": np.negative,
    "square": lambda x: x * x,
    "floor": np.floor,
    "ceil": np.ceil,
    "sign": np.sign,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
    "nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "logical_not": np.logical_not,
    "bitwise_not": np.invert,
    "isnan": np.isnan,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _divide,
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "where": np.where,
    "clip": lambda x, lo, hi: np.maximum(lo, np.minimum(x, hi)).astype(x.dtype),
    "astype": lambda x, dtype: x.astype(dtype),
    "full": lambda shape, value, dtype=None: np.full(shape, value, dtype or value.dtype),
    "full_like": lambda x, value, dtype=None: np.full(x.shape, value, dtype or x.dtype),
    "ones": lambda shape, dtype: np.ones(shape, dtype),
    "zeros": lambda shape, dtype: np.zeros(shape, dtype),
    "ones_like": lambda x, dtype=None: np.ones(x.shape, dtype or x.dtype),
    "zeros_like": lambda x, dtype=None: np.zeros(x.shape, dtype or x.dtype),
    "arange": lambda start, end, step, dtype: np.arange(start, end, step, dtype),
    "reshape": lambda x, shape: x.reshape(shape),
    "flatten": lambda x: x.reshape(-1),
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "permute_dims": lambda x, axes=None: np.transpose(x, axes),
    "flip": lambda x, axis: np.flip(x, axis),
    "concat": lambda tensors, axis=0: np.concatenate(tensors, axis or 0),
    "stack": lambda tensors, axis=0: np.stack(tensors, axis),
    "split": _split,
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "repeat": lambda x, repeats, axis=None: np.repeat(x, repeats, axis),
    "tile": lambda x, repeats: np.tile(x, repeats),
    "take": _take,
    "strided_slice": _strided_slice,
    "matmul": _matmul,
    "sum": _total(np.sum),
    "prod": _total(np.prod),
    "max": _reduce(np.max),
    "min": _reduce(np.min),
    "argmax": _find(np.argmax),
    "argmin": _find(np.argmin),
    "cumsum": _cumsum,
}
"""Operator, without "relax." -> what it gives."""


def _reduce_to(function: Function) -> Function:
    """A reduction that keeps dimensions if the rank of the output says so."""

    def reduce(*args: Any) -> Any:
        x, axis, out = args[0], args[1] if len(args) > 2 else None, args[-1]
        return function(x, _axes(axis), x.ndim == out.ndim).astype(out.dtype)

    return reduce


KERNELS: dict[str, Function] = {
    "astype": lambda x, out: x.astype(out.dtype),
    "full": lambda value, out: np.full(out.shape, value, out.dtype),
    "zeros": lambda out: np.zeros(out.shape, out.dtype),
    "ones": lambda out: np.ones(out.shape, out.dtype),
    "arange": lambda start, end, step, out: np.arange(start, end, step, out.dtype),
    "reshape": lambda x, out: x.reshape(out.shape),
    "broadcast_to": lambda x, out: np.broadcast_to(x, out.shape),
    "concat": lambda *args: np.concatenate(args[:-2], args[-2]),
    "stack": lambda *args: np.stack(args[:-2], args[-2]),
    "matmul": lambda a, b, out: np.matmul(a, b, dtype=out.dtype),
    "matmul_nt": lambda a, b, out: np.matmul(a, np.swapaxes(b, -1, -2), dtype=out.dtype),
    "cumsum": lambda x, axis, exclusive, out: _cumsum(x, axis, out.dtype, exclusive),
    **{name: _reduce_to(OPERATORS[name]) for name in ("sum", "prod", "max", "min", "argmax",
                                                      "argmin")},
}  # fmt: skip
"""Kernel, without "relaxvm.kernel." -> what its output becomes; it gets the output as well."""


def _fused(*args: Any) -> Any:
    """A chain of kernels, as "exp($0); add(%0, 2) -> %1": $ are inputs, % earlier steps."""
    *inputs, text, out = args
    body, _, result = text.partition(" -> ")
    done: list[Any] = []
    for step in body.split("; "):
        name, _, rest = step.removesuffix(")").partition("(")
        words = rest.split(", ")
        tensors = {w: (inputs if w[0] == "$" else done)[int(w[1:])] for w in words if w[0] in "$%"}
        if name == "cast":
            done.append(tensors[words[0]].astype(words[1]))
            continue
        beside = [tensors[w] for w in words if w in tensors]
        number = beside[-1 if name == "where" else 0].dtype.type
        operands = [tensors[w] if w in tensors else number(ast.literal_eval(w.title()))
                    for w in words]  # fmt: skip
        done.append(np.asarray(OPERATORS[name](*operands)))
    return np.broadcast_to(done[int(result[1:])], out.shape)


KERNELS["fused"] = _fused


def run_kernel(name: str, args: list[Any], outputs: int) -> None:
    """Call a kernel; the last `outputs` arguments are outputs.

    Raises:
        KeyError: the kernel is not in the tables.
    """
    operands, outs = args[: len(args) - outputs], args[len(args) - outputs :]
    with np.errstate(all="ignore"):
        if name in KERNELS:
            results = KERNELS[name](*operands, *outs)
        else:
            results = OPERATORS[name](*operands)
    if not isinstance(results, tuple):
        results = (results,)
    for out, result in zip(outs, results, strict=True):
        result = np.asarray(result)
        if result.shape != out.shape or result.dtype != out.dtype:
            raise TypeError(
                f"{name} gives {result.dtype}{list(result.shape)}, its output is "
                f"{out.dtype}{list(out.shape)}"
            )
        out[...] = result
