"""Functions of one float that are several ufuncs, one after the other."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._fused import ChainKernel, FusedPlan, run_plan
from ._blocks import blockwise, float_dtype, working_dtype
from ._kernel import check_out, check_tensors, kernel
from .fused import composite_plans

__all__: list[str] = []

_MEANINGS: Final[dict[str, str]] = {
    "rsqrt": "1 / the square root of x",
    "sigmoid": "1 / (1 + exp(-x))",
    "erf": "the error function of x, 2/sqrt(pi) * integral of exp(-t*t)",
    "nn.silu": "x * sigmoid(x)",
    "nn.gelu": "x * (1 + erf(x / sqrt(2))) / 2",
    "nn.gelu_tanh": "x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3))) / 2",
}

_plans = lru_cache(composite_plans)


def _compute(name: str, out: NDArray[Any], x: NDArray[Any]) -> None:
    """A block of float32 or float64."""
    plan: FusedPlan = _plans(name)[x.itemsize == 8]
    if not run_plan(plan, (x, None, out)):
        work = np.empty(x.shape, np.float64 if x.itemsize == 8 else np.float32)
        np.copyto(work, x)
        run_plan(plan, (work, None, work))
        np.copyto(out, work)


def _register(name: str, meaning: str) -> None:
    """Narrow floats go through float32."""

    def run(x: NDArray[Any], out: NDArray[Any]) -> None:
        check_tensors(name, x=x)
        dtype = float_dtype(name, x=x)
        check_out(name, out, dtype, x.shape)
        blockwise(partial(_compute, name), out, x, dtype=working_dtype(dtype))

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"out = {meaning}, element by element.  x: floats of at most 64 bits."
    kernel(name, "x: tensor, out: tensor")(ChainKernel(run, partial(_plans, name)))


for _name, _meaning in _MEANINGS.items():
    _register(_name, _meaning)
