"""Whether a PrimFunc can be run while a program is compiled, and running it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Final

from ..errors import CompilerError, RelaxVMWarning
from ..ir.expr import Call, IntImm
from ..ir.op import Op
from .build import build_prim_funcs
from .function import PrimFunc
from .stmt import AssertStmt, For, While
from .visitor import Visitor

__all__ = ["runner"]

MOST_ITERATIONS: Final = 1 << 28
"""The most iterations of a function that is run: about a second."""
FEW_ITERATIONS: Final = 1 << 12
"""As many are faster in Python than a compilation."""


class _Scan(Visitor):
    """Finds whether a function only reads and writes its buffers, and counts its iterations, of
    which a loop with a symbolic extent has one."""

    def __init__(self) -> None:
        self.is_pure = True
        self.is_known = True
        self.iterations = 0.0
        self._times = 1.0

    def visit_For(self, loop: For) -> None:
        before = self._times
        if type(loop.extent) is IntImm:
            self._times *= max(0, loop.extent.value)
        else:
            self.is_known = False
        self.iterations = max(self.iterations, self._times)
        self.visit_parts(loop)
        self._times = before

    def visit_While(self, loop: While) -> None:
        self.is_pure = False  # it may never end

    def visit_AssertStmt(self, stmt: AssertStmt) -> None:
        self.is_pure = False  # to fail when the program runs

    def visit_Call(self, call: Call) -> None:
        if not isinstance(call.op, Op) or not call.op.is_pure:
            self.is_pure = False
        self.visit_parts(call)


def runner(func: PrimFunc, num_elements: int) -> Callable[..., Any] | None:
    """Return a callable for a function that may be run at compile time, else None.

    It may if it has no effects but on its buffers, and ends soon.

    Args:
        num_elements: how many elements its arguments have, which stands for the iterations where
            the extent of a loop is symbolic.
    """
    scan = _Scan()
    scan.visit(func.body)
    iterations = scan.iterations if scan.is_known else math.inf
    if not scan.is_pure or (scan.is_known and iterations > MOST_ITERATIONS):
        return None
    if not scan.is_known and num_elements > MOST_ITERATIONS >> 8:
        return None
    few = iterations if scan.is_known else num_elements
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RelaxVMWarning)  # no compiler: Python will do
            library = build_prim_funcs(
                {"folded": func}, prefer="python" if few <= FEW_ITERATIONS else "c"
            )
    except (CompilerError, NotImplementedError, ValueError):
        return None  # the program itself will report it
    return library["folded"]


