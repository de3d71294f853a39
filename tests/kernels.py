"""Packed functions in plain Python and numpy, called by the programs of the tests."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from relaxvm.registry import GLOBAL, Registry


def _add_into(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.add(a, b, out=out)


def _matmul_into(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.matmul(a, b, out=out)


def _relu_into(x: np.ndarray, out: np.ndarray) -> None:
    np.maximum(x, 0, out=out)


def _exp_into(x: np.ndarray, out: np.ndarray) -> None:
    np.exp(x, out=out)


def _fill(t: np.ndarray, value: float) -> None:
    t[...] = value


def _bump(t: np.ndarray) -> np.ndarray:
    """Add one in place and return the same tensor."""
    t += np.asarray(1, t.dtype)
    return t


def _double_slot(heap: np.ndarray, source: int, target: int) -> None:
    """A shape function: compute one heap slot from another."""
    heap[target] = 2 * heap[source]


def _fill_slot(heap: np.ndarray, slot: int, value: int) -> None:
    if value < 0:
        raise IndexError("negative dimension")
    heap[slot] = value


def _nbytes_slot(heap: np.ndarray) -> None:
    """The number of bytes of float32[heap[0], heap[1]]."""
    heap[2] = 4 * heap[0] * heap[1]


def _sub(a: Any, b: Any) -> Any:
    """A difference that stays a tensor if it has no dimensions."""
    return np.asarray(a - b) if isinstance(a, np.ndarray) else a - b


def _fail(message: str) -> None:
    raise ValueError(message)


class KernelError(Exception):
    """An exception class that is unknown to numpy and to the VM."""


def _fail_own(*args: Any) -> None:
    raise KernelError("own class", len(args))


def _fail_system(*args: Any) -> None:
    raise SystemExit(7)


def _apply(func: Callable[..., Any], *args: Any) -> Any:
    """Call back into the VM if `func` is one of its functions."""
    return func(*args)


def _twice(func: Callable[..., Any], x: Any) -> Any:
    return func(func(x))


def _window_sum(x: np.ndarray, out: np.ndarray, n: int, m: int) -> None:
    """A kernel that takes its dynamic dimensions as scalars, as call_tir_dyn passes them."""
    out[...] = x[:n, :m].sum()


KERNELS: Final[dict[str, Callable[..., Any]]] = {
    "test.add": operator.add,
    "test.sub": _sub,
    "test.mul": operator.mul,
    "test.neg": operator.neg,
    "test.less": lambda a, b: bool(a < b),
    "test.is_zero": lambda i: i == 0,
    "test.not": operator.not_,
    "test.sum": lambda t: np.asarray(t.sum(dtype=t.dtype)),
    "test.dim": lambda shape, i: shape[i],
    "test.extend": lambda a, b: (*a, *b),
    "test.count": lambda *args: len(args),
    "test.pack": lambda *args: args,
    "test.last": lambda *args: args[-1],
    "test.identity": lambda x: x,
    "test.none": lambda *args: None,
    "test.same": lambda a, b: isinstance(a, np.ndarray) and a is b,
    "test.is_none": lambda x: x is None,
    "test.clone": np.copy,
    "test.add_into": _add_into,
    "test.matmul_into": _matmul_into,
    "test.relu_into": _relu_into,
    "test.exp_into": _exp_into,
    "test.fill": _fill,
    "test.bump": _bump,
    "test.double_slot": _double_slot,
    "test.fill_slot": _fill_slot,
    "test.nbytes_slot": _nbytes_slot,
    "test.window_sum": _window_sum,
    "test.fail": _fail,
    "test.fail_own": _fail_own,
    "test.fail_system": _fail_system,
    "test.apply": _apply,
    "test.twice": _twice,
    "名 前 \N{SNOWMAN}": lambda x: x,
}
"""The packed functions of the corpus."""


def registry() -> Registry:
    """Return a new scope with the kernels, on top of the builtins."""
    import relaxvm.builtins  # noqa: F401  (registers itself)

    return Registry(KERNELS, parent=GLOBAL)
