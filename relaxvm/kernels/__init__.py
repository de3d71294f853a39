"""Kernels that ship with relaxvm: ``relaxvm.kernel.*``, numpy in destination-passing style.

A program that calls only these and the builtins runs from its file alone.  A kernel has the name of
the Relax operator that it computes.  Its arguments are the operator's inputs, then its attributes
as plain values (numbers, strings, None, bools or 0 and 1, a Shape for several ints), then `out`,
the tensor that the result is written to, or one tensor for each result.  It returns None.
Attributes that `out` already shows (dtype, shape, keepdims) are not passed.  All kernels follow
these rules:

- `out` has exactly the shape and data type of the result.  Inputs are never converted; `cast` does
  that.  Where numpy would convert (``int64 / int64``, ``float32 + float64``), a kernel raises.
- Inputs broadcast as in numpy.  A number next to a tensor takes the tensor's data type.
- The result is the same as if all inputs had been read before `out` is written.  `out` may be an
  input: an elementwise kernel then works in place.  If `out` and an input overlap in another way,
  the input is copied.
- A kernel uses no memory of the size of its operands unless its description says so.  Kernels that
  need several passes work in blocks that fit in the cache, and compute floats narrower than 32 bits
  in float32.
- Division by zero, overflow and invalid operations are reported as ``numpy.errstate`` says;
  warnings name the function, the pc and the variable, at the line that has called the VM.

Errors: TypeError if an argument has the wrong type, a number does not fit the tensor's data type,
or numpy does not have the operation for the data types.  ValueError if shapes or data types do not
fit each other, or `out` is read-only.  IndexError if `take` gets an index out of range.

`kernel` registers a kernel: its signature and the checks of its arguments come from its
annotations, which are kinds of parameters (`relaxvm.kernels.kinds`).  Importing a module registers
its kernels; that happens when one of them is looked up, or when a program that was verified before
calls one that the C implementations leave to Python.  `record_of` returns the record of a kernel,
`ufunc_of` the numpy ufunc that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..registry import KERNEL_PREFIX as PREFIX
from ._families import deferred, import_all, import_home, quick_of_deferred

if TYPE_CHECKING:
    from ._kernel import ChainStep, KernelRecord, is_kernel, kernel, record_of, ufunc_of

__all__ = [
    "PREFIX",
    "ChainStep",
    "KernelRecord",
    "deferred",
    "import_all",
    "import_home",
    "is_kernel",
    "kernel",
    "quick_of_deferred",
    "record_of",
    "ufunc_of",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: a program that runs its kernels in C does not need it.
    if name in __all__:
        from . import _kernel

        value = getattr(_kernel, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
