"""What the register instruction set of Relay needs beyond the other builtins; see
`relaxvm.relay_isa`."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..errors import MatchError
from ..messages import describe
from ..values import Shape
from .arguments import as_str
from .registration import OWN_PREFIX, builtin
from .shape_tensors import ints_of

__all__ = ["fatal", "int_from", "scalar_equal", "shape_from"]


@builtin("fatal", "message: str", prefix=OWN_PREFIX)
def fatal(message: Any) -> NoReturn:
    """End the run: the instruction Fatal.

    Raises:
        MatchError: always.
    """
    raise MatchError(as_str(message, "fatal: message"))


def _scalar(x: Any, subject: str) -> int:
    if isinstance(x, (int, np.bool_, np.integer)):
        return int(x)
    if isinstance(x, np.ndarray) and x.ndim == 0 and x.dtype.kind in "iub":
        return int(x)
    raise TypeError(f"{subject}: expected an int, or an integer or bool tensor of rank 0, got "
                    f"{describe(x)}")  # fmt: skip


@builtin("int_from", "x: tensor|int|bool|object", result="int", prefix=OWN_PREFIX)
def int_from(x: Any) -> int:
    """Return an int, or the element of an integer tensor of rank 0, as an int.

    Raises:
        TypeError: the argument is of another kind.
    """
    return _scalar(x, "int_from")


@builtin("scalar_equal", "x: tensor|int|bool|object, y: tensor|int|bool|object", result="bool",
         prefix=OWN_PREFIX)  # fmt: skip
def scalar_equal(x: Any, y: Any) -> bool:
    """Return whether two integers are equal; each is an int, or an integer tensor of rank 0.

    Raises:
        TypeError: an argument is of another kind.
    """
    return _scalar(x, "scalar_equal: x") == _scalar(y, "scalar_equal: y")


@builtin("shape_from", "x: tensor|shape|object", result="shape", prefix=OWN_PREFIX)
def shape_from(x: Any) -> Shape:
    """Return a shape: of the elements of an integer tensor of rank 1 or 0, or the shape itself.

    Raises:
        TypeError: the argument is of another kind.
        ValueError: an element is negative.
    """
    if isinstance(x, Shape):
        return x
    if not isinstance(x, np.ndarray) or x.ndim > 1 or x.dtype.kind not in "iu":
        raise TypeError(f"shape_from: expected an integer tensor of rank 1, got {describe(x)}")
    dims = ints_of(x.reshape(-1))
    least = min(dims, default=0)
    if least < 0:
        raise ValueError(f"shape_from: expected dimensions >= 0, got {least}")
    return Shape(dims)
