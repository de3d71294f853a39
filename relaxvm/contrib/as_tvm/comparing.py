"""``tvm.relax.testing.lib_comparator``: the kernels of a program against another library's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...values import Device, cpu
from .runtime import Tensor, empty
from .testing import assert_allclose

__all__ = ["LibCompareVMInstrument"]


class LibCompareVMInstrument:
    """An instrument that calls a function of the same name of another library after each call, with
    copies of the arguments, and compares what both have written to the last one.

    Calls of builtins, with other arguments than tensors, and of functions that the library does not
    have are passed over.

    Args:
        mod: the library, for example ``executable.mod``.
        device: where its functions run.
        verbose: whether to print what is compared.
        rtol, atol: of the comparison.
    """

    def __init__(
        self, mod: Any, device: Device, verbose: bool = True, rtol: float = 1e-5, atol: float = 1e-5
    ) -> None:
        self.mod = mod
        self.device = device
        self.verbose = verbose
        self.counter = 0
        self.rtol = rtol
        self.atol = atol

    def compare(
        self,
        name: str,
        ref_args: Sequence[Tensor],
        new_args: Sequence[Tensor],
        ret_indices: Iterable[int],
    ) -> None:
        """Call the library's function and compare; may be overridden.

        Args:
            name: of the function.
            ref_args: the arguments after the call of the program's function.
            new_args: those for the library's.
            ret_indices: which of them are results.

        Raises:
            AssertionError: a result differs.
        """
        self._say(f"Validating {name} ...")
        self.mod.get_function(name, query_imports=True)(*new_args)
        for index in ret_indices:
            assert_allclose(new_args[index], ref_args[index], self.rtol, self.atol)
        self._say(f"Validating {name}, passed.")
        self.counter += 1

    def skip_instrument(
        self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any
    ) -> bool:
        """Whether to pass over a call; may be overridden."""
        return False

    def __call__(self, func: Any, name: str, before_run: bool, ret_val: Any, *args: Any) -> None:
        if before_run or name.startswith("vm.builtin."):
            return
        if not args or not all(isinstance(arg, Tensor) for arg in args):
            return
        try:
            self.mod.get_function(name, query_imports=True)
        except AttributeError:
            if self.verbose:
                print(f"Cannot find {name}, skip...")
            return
        if self.skip_instrument(func, name, before_run, ret_val, *args):
            return
        result = empty(args[-1].shape, args[-1].dtype, self.device)
        self.compare(name, args, [*(arg.copyto(cpu()) for arg in args[:-1]), result],
                     (len(args) - 1,))  # fmt: skip

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[{self.counter}] {text}")
