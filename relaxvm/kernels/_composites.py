"""Functions of one float that are several ufuncs one after the other, as chains.

A chain is written as `relaxvm.kernels.fused` says, and may have steps that are no kernels; an
exclamation mark: an overflow is not reported, as 1 / infinity is the result that is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from ._erf import erf32, erf64

__all__ = ["COMPOSITES", "composite"]


class _Chain:
    """Gathers steps."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def add(self, name: str, *operands: Any) -> str:
        """Append a step; answers what its result is written as."""
        self.steps.append(f"{name}({', '.join(map(str, operands))})")
        return f"%{len(self.steps) - 1}"


_Write = Callable[[_Chain, str], str]


def _rsqrt(chain: _Chain, x: str) -> str:
    return chain.add("reciprocal", chain.add("sqrt", x))


def _sigmoid(chain: _Chain, x: str) -> str:
    power = chain.add("exp!", chain.add("negative", x))
    return chain.add("reciprocal", chain.add("add", power, 1))


def _silu(chain: _Chain, x: str) -> str:
    return chain.add("multiply", x, _sigmoid(chain, x))


def _gelu(erf: Callable[..., str]) -> _Write:
    def write(chain: _Chain, x: str) -> str:
        weight = erf(chain.add, chain.add("multiply", x, math.sqrt(0.5)))
        weight = chain.add("multiply", chain.add("add", weight, 1), 0.5)
        return chain.add("multiply", x, weight)

    return write


def _gelu_tanh(chain: _Chain, x: str) -> str:
    # (1 + tanh(y)) / 2 is sigmoid(2 * y), which keeps its digits where tanh(y) is near -1.
    weight = chain.add("multiply", chain.add("square", x), 0.044715)
    weight = chain.add("multiply", chain.add("add", weight, 1), x)
    weight = chain.add("multiply", weight, 2 * math.sqrt(2 / math.pi))
    return chain.add("multiply", x, _sigmoid(chain, weight))


_BOTH: Final[dict[str, _Write]] = {
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "nn.silu": _silu,
    "nn.gelu_tanh": _gelu_tanh,
}
_FLOAT32: Final[dict[str, _Write]] = {
    **_BOTH,
    "erf": lambda chain, x: erf32(chain.add, x),
    "nn.gelu": _gelu(erf32),
}
_FLOAT64: Final[dict[str, _Write]] = {
    **_BOTH,
    "erf": lambda chain, x: erf64(chain.add, x),
    "nn.gelu": _gelu(erf64),
}

COMPOSITES: Final = frozenset(_FLOAT32)
"""Names of the functions."""


@lru_cache
def composite(name: str, itemsize: int) -> str:
    """The chain of a function of ``$0``, float32 or float64 by the bytes of an item."""
    chain = _Chain()
    result = {4: _FLOAT32, 8: _FLOAT64}[itemsize][name](chain, "$0")
    return f"{'; '.join(chain.steps)} -> {result}"
