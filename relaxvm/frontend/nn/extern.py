"""Functions from outside of the program: their names, and the types of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ... import op as relax
from ...errors import did_you_mean
from .core import wrap_nested
from .op import argument_of

__all__ = ["ExternModule"]


class ExternModule:
    """Packed functions in destination-passing style, by name.

    ``module["name"](x, y)`` emits a call.  The functions themselves are registered, or passed to
    the `VirtualMachine`, or linked from a library (`relaxvm.load_kernels`).

    Args:
        symbols: name -> a Python function that takes the arguments of a call and returns the
            results as `nn.Tensor`; only their types count.
    """

    def __init__(self, symbols: Mapping[str, Callable[..., Any]]) -> None:
        self.symbols = dict(symbols)

    def __getitem__(self, func_name: str) -> Callable[..., Any]:
        if func_name not in self.symbols:
            raise KeyError(
                f"the external module has no function {func_name!r}"
                f"{did_you_mean(func_name, self.symbols)}"
            )
        infer = self.symbols[func_name]

        def call(*args: Any) -> Any:
            out_ty = argument_of(infer(*args)).ty
            inputs = argument_of(args)
            return wrap_nested(relax.call_dps_packed(func_name, inputs, out_ty), func_name)

        return call
