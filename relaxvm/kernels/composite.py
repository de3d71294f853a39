"""Functions of one float that are several ufuncs, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..core._fused import ChainKernel, FusedPlan, run_plan
from ..elementwise import FUNCTIONS
from ._blocks import blockwise
from ._erf import erf32, erf64
from ._kernel import ChainStep, kernel
from .checks import native, working_dtype
from .fused import plan_of_chain
from .kinds import Floats, OutLike

__all__: list[str] = []


class _Chain:
    """Collects the steps of a chain, written as `relaxvm.kernels.fused` describes."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self.steps: list[str] = []

    def add(self, name: str, *operands: Any) -> str:
        """Append a step; return the reference to its result."""
        self.steps.append(f"{name}({', '.join(map(str, operands))})")
        return f"%{len(self.steps) - 1}"


Formula = Callable[[_Chain, str], str]
"""Appends the steps of a function of an operand; returns the reference to the result."""


def _rsqrt(chain: _Chain, x: str) -> str:
    return chain.add("numpy.reciprocal", chain.add("sqrt", x))


def _sigmoid(chain: _Chain, x: str) -> str:
    power = chain.add("exp!", chain.add("negative", x))  # 1 / infinity is the wanted result
    return chain.add("numpy.reciprocal", chain.add("add", power, 1))


def _silu(chain: _Chain, x: str) -> str:
    return chain.add("multiply", x, _sigmoid(chain, x))


def _erf(chain: _Chain, x: str) -> str:
    return (erf32 if chain.dtype == np.float32 else erf64)(chain.add, x)


def _gelu(chain: _Chain, x: str) -> str:
    weight = _erf(chain, chain.add("multiply", x, math.sqrt(0.5)))
    weight = chain.add("multiply", chain.add("add", weight, 1), 0.5)
    return chain.add("multiply", x, weight)


def _gelu_tanh(chain: _Chain, x: str) -> str:
    # (1 + tanh(y)) / 2 is sigmoid(2 * y), which keeps its digits where tanh(y) is near -1.
    weight = chain.add("multiply", chain.add("square", x), 0.044715)
    weight = chain.add("multiply", chain.add("add", weight, 1), x)
    weight = chain.add("multiply", weight, 2 * math.sqrt(2 / math.pi))
    return chain.add("multiply", x, _sigmoid(chain, weight))


_FLOATS: Final = (np.dtype(np.float32), np.dtype(np.float64))


def _register(name: str, formula: Formula) -> None:
    """Register the kernel of a function; 16-bit floats are computed in float32."""

    def chain_for(dtype: np.dtype[Any]) -> str | None:
        if dtype not in _FLOATS:
            return None
        chain = _Chain(dtype)
        result = formula(chain, "$0")
        return f"{'; '.join(chain.steps)} -> {result}"

    @lru_cache
    def plans() -> tuple[FusedPlan, ...]:
        return tuple(plan_of_chain(chain_for(dtype) or "", dtype) for dtype in _FLOATS)

    def compute(out: NDArray[Any], x: NDArray[Any]) -> None:
        """A block of float32 or float64."""
        plan = plans()[x.itemsize == 8]
        if not run_plan(plan, (x, None, out)):
            work = np.empty(x.shape, np.float64 if x.itemsize == 8 else np.float32)
            np.copyto(work, x)
            run_plan(plan, (work, None, work))
            np.copyto(out, work)

    def run(x: Floats, out: OutLike) -> None:
        blockwise(compute, out, x, dtype=working_dtype(native(x.dtype)))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{FUNCTIONS[name].sentence_for('x')}  x: floats of at most 64 bits."
    kernel(
        name,
        wrap=lambda general: ChainKernel(general, plans),
        step=ChainStep(chain=chain_for),
        in_place=True,
    )(run)


_register("rsqrt", _rsqrt)
_register("sigmoid", _sigmoid)
_register("erf", _erf)
_register("nn.silu", _silu)
_register("nn.gelu", _gelu)
_register("nn.gelu_tanh", _gelu_tanh)
