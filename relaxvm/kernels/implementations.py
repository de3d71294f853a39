"""The table of the kernels' implementations in C.

A kernel is a Python function, the *reference*, which takes everything.  An implementation in C
takes some of its cases: a call goes to the first implementation whose guard accepts the arguments,
else to the reference.  What is known of a guard without a call is in the record here; the C
function decides the rest, such as layouts, before it writes anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from . import _table
from .cpu import CPU, SETS

__all__ = ["IMPLEMENTATIONS", "DispatchedKernel", "Impl", "dispatched", "implementations_of",
           "release_workspace"]  # fmt: skip

DispatchedKernel = _table.DispatchedKernel
release_workspace = _table.release_workspace


class Impl(NamedTuple):
    """An implementation of a kernel in C."""

    name: str
    """``family.method``; the family is the name of its C file."""
    kernel: str
    """Name of the kernel, without its prefix."""
    dtypes: tuple[np.dtype[Any] | None, ...]
    """Data types that results may have; None stands for those of other packages (bfloat16)."""
    most_bytes: int
    """Each result has fewer bytes."""
    has_workspace: bool
    """Whether a call needs memory in addition to the operands."""
    ulp: float
    """Greatest distance from the reference's results in units in the last place; 0: same bits;
    infinity: sums whose terms cancel, for which no number is a bound."""
    of_set: str | None
    """The set of instructions that it is compiled for; None if it needs none.  Such ones run
    without Python's lock, and take results of any size."""

    @property
    def family(self) -> str:
        """The C file that has it, without the suffix."""
        return self.name.partition(".")[0]


_SET: Final = CPU if CPU in SETS else None

IMPLEMENTATIONS: Final[tuple[Impl, ...]] = (
    ()
    if CPU == "numpy"
    else tuple(
        Impl(*row, of_set)
        for of_set in ([None] if _SET is None else [_SET, None])
        for row in _table.rows(of_set)
    )
)
"""All of them, by family."""

_by_kernel: Final[defaultdict[str, tuple[Impl, ...]]] = defaultdict(tuple)
for _impl in IMPLEMENTATIONS:
    _by_kernel[_impl.kernel] += (_impl,)


def implementations_of(kernel: str) -> tuple[Impl, ...]:
    """The implementations of a kernel, in the order in which they are tried.

    Args:
        kernel: its name without prefix, such as ``"nn.softmax"``; not one of its aliases.
    """
    return _by_kernel.get(kernel, ())


def dispatched(
    reference: Callable[..., None], impls: Iterable[Impl], ufunc: np.ufunc | None = None
) -> DispatchedKernel:
    """A kernel that tries implementations, and then its reference."""
    return DispatchedKernel(reference, tuple(impl.name for impl in impls), ufunc, _SET)
