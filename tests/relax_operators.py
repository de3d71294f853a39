"""Operators and kernels of programs that the evaluator runs, by the table of cases.

An operator is computed by its reference (`tests.operators`) and rounded to its type.  Kernels take
the arguments of operators and then the outputs; `KERNELS` has those that need information from
their outputs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from relaxvm.elementwise import FUNCTIONS

from . import operators  # noqa: F401  (fills the table)
from .operators.oracle import narrow, rounded_to, wide
from .operators.table import OPERATORS

Function = Callable[..., Any]


def run_operator(call: Any, operands: list[Any]) -> Any:
    """Return the result of a call of an operator.

    Raises:
        KeyError: the operator is not in the table.
    """
    name = call.op.name.removeprefix("relax.")
    return rounded_to(call.ty, _exact(name, *operands, **call.attrs))


def _exact(name: str, *operands: Any, **attributes: Any) -> Any:
    reference = OPERATORS[name].reference
    assert reference is not None, name
    with np.errstate(all="ignore"):
        return reference(*map(_wide, operands), **attributes)


def _wide(value: Any) -> Any:
    return tuple(map(wide, value)) if isinstance(value, list) else wide(value)


def _reduced(name: str) -> Function:
    """A reduction that keeps dimensions if the rank of the output says so."""

    def reduce(*args: Any) -> Any:
        x, axis, out = args[0], args[1] if len(args) > 2 else None, args[-1]
        return _exact(name, x, axis, x.ndim == out.ndim)

    return reduce


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
        found = [tensors[w] for w in words if w in tensors]
        dtype = found[-1 if name == "where" else 0].dtype
        operands = [
            tensors[w] if w in tensors else np.asarray(ast.literal_eval(w.title()), dtype)
            for w in words
        ]
        if name in FUNCTIONS and FUNCTIONS[name].result:
            dtype = np.dtype(FUNCTIONS[name].result)
        done.append(narrow(_exact(name, *operands), dtype))
    return np.broadcast_to(done[int(result[1:])], out.shape)


KERNELS: dict[str, Function] = {
    "astype": lambda x, out: x.astype(out.dtype),
    "full": lambda value, out: np.full(out.shape, value, out.dtype),
    "zeros": lambda out: np.zeros(out.shape, out.dtype),
    "ones": lambda out: np.ones(out.shape, out.dtype),
    "reshape": lambda x, out: x.reshape(out.shape),
    "broadcast_to": lambda x, out: np.broadcast_to(x, out.shape),
    "arange": lambda start, end, step, out: np.arange(start, end, step, out.dtype),
    "concat": lambda *args: _exact("concat", args[:-2], args[-2]),
    "stack": lambda *args: _exact("stack", args[:-2], args[-2]),
    "matmul": lambda a, b, out: _exact("matmul", a, b),
    "matmul_nt": lambda a, b, out: _exact("matmul", a, np.swapaxes(b, -1, -2)),
    "cumsum": lambda x, axis, exclusive, out: _exact("cumsum", x, axis, None, exclusive),
    "fused": _fused,
    **{name: _reduced(name) for name in ("sum", "prod", "max", "min", "argmax", "argmin")},
}
"""Kernel, without "relaxvm.kernel." -> what its output becomes; it gets the output as well."""


def run_kernel(name: str, args: list[Any], outputs: int) -> None:
    """Call a kernel; the last `outputs` arguments are outputs.

    Raises:
        KeyError: the kernel is not in the tables.
    """
    operands, outs = args[: len(args) - outputs], args[len(args) - outputs :]
    results = KERNELS[name](*operands, *outs) if name in KERNELS else _exact(name, *operands)
    if not isinstance(results, tuple):
        results = (results,)
    for out, result in zip(outs, results, strict=True):
        if np.shape(result) != out.shape:
            raise TypeError(f"{name} gives {np.shape(result)}, its output is {out.shape}")
        out[...] = narrow(result, out.dtype)
