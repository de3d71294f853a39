"""Kernels that ship with relaxvm: ``relaxvm.kernel.*``, numpy in destination-passing style.

A program that calls nothing but these and the builtins runs from its file alone.  A kernel has the
name of the Relax operator that it computes.  It takes the operator's inputs, then its attributes as
plain values (numbers, strings, None, bools or 0 and 1, a Shape for several ints), then `out`, the
tensor that the result is written into, or one for each result; it returns None.  Attributes that
`out` states itself (dtype, shape, keepdims) are not passed.  The rules are the same for all:

- `out` has exactly the shape and data type of the result; inputs are never converted, `cast` does
  that.  Where numpy would convert (``int64 / int64``, ``float32 + float64``) a kernel refuses.
- Inputs broadcast as in numpy.  Where a kernel takes a number beside a tensor, the number takes the
  tensor's data type.
- The result is as if all inputs had been read before `out` is written.  `out` may be an input: an
  elementwise kernel then works in place; where the overlap is another, an input is copied.
- No memory of the size of the operands is used but where a kernel says so.  What takes more than
  one pass is done in blocks that stay in the cache; floats narrower than 32 bits then go through
  float32.
- Division by zero, overflow and invalid operations are reported as ``numpy.errstate`` says.

TypeError: an argument is no tensor, a number does not fit the tensor's kind, or numpy has no such
operation for the data types.  ValueError: shapes or data types do not fit each other, or `out` is
read-only.  IndexError: `take` is asked for what is not there.

`ufunc_of` tells which kernels are one numpy ufunc.
"""

# Importing the modules registers their kernels.
from . import (  # noqa: F401
    composite,
    convolution,
    elementwise,
    fused,
    movement,
    nn,
    pooling,
    products,
    reductions,
    search,
)
from ._kernel import PREFIX, is_kernel, ufunc_of

__all__ = ["PREFIX", "is_kernel", "ufunc_of"]
