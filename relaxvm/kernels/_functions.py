"""Functions of one float that kernels in C compute, and what may follow the sums of others."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ._blocks import blockwise
from ._kernel import record_of
from .checks import native, working_dtype
from .kinds import a_choice

__all__ = ["FUNCTIONS", "Function", "apply_function"]

FUNCTIONS: Final = (
    "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf", "exp", "hard_swish",
)  # fmt: skip
"""In the order of `rvm_functions` in `c/sets/math.h`."""

Function: TypeAlias = Annotated[str, a_choice(*FUNCTIONS)]

_IN_NN: Final = frozenset(("relu", "gelu", "gelu_tanh", "silu"))


def _hard_swish(out: NDArray[Any], x: NDArray[Any]) -> None:
    gate = np.multiply(x, 1 / 6, dtype=x.dtype)
    np.add(gate, 0.5, out=gate)
    np.clip(gate, 0, 1, out=gate)
    np.multiply(x, gate, out=out)


def apply_function(function: str, x: NDArray[Any], out: NDArray[Any]) -> None:
    """out = one of `FUNCTIONS` of each element of x, which may be out itself."""
    if function == "hard_swish":
        blockwise(_hard_swish, out, x, dtype=working_dtype(native(x.dtype)))
        return
    record = record_of(f"relaxvm.kernel.{'nn.' * (function in _IN_NN)}{function}")
    assert record is not None
    record.run(x, out)
