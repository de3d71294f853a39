"""``T``: scalars and functions of loops."""

from __future__ import annotations

import builtins
from typing import Any, Final

from ..ir import prim as _prim
from ..ir.expr import Expr
from .type_forms import DTypeMaker

_RAW: Final = {
    cls.__name__: cls
    for cls in vars(_prim).values()
    if isinstance(cls, type) and issubclass(cls, Expr) and cls.__module__ == _prim.__name__
}


def _raw(cls: Any) -> Any:
    """A node just as it is, without folding: of numbers, constants of int64 or the other's type."""

    def make(*operands: Any) -> Any:
        dtype = next((o.dtype for o in operands if isinstance(o, Expr)), None)
        return cls(
            *[_prim.as_scalar(o, None if isinstance(o, builtins.bool) else dtype) for o in operands]
        )

    make.__name__ = cls.__name__
    make.__doc__ = cls.__doc__
    return make


def Cast(dtype: str, value: Any) -> Expr:
    """A scalar in another data type."""
    return _prim.Cast(dtype, _prim.as_scalar(value))


min = _prim.minimum  # noqa: A001
max = _prim.maximum  # noqa: A001
truncdiv = _prim.truncdiv
truncmod = _prim.truncmod
floordiv = _prim.floordiv
floormod = _prim.floormod
bool = DTypeMaker("bool")  # noqa: A001
handle = DTypeMaker("handle")


def __getattr__(name: str) -> Any:
    if name in _RAW:
        found: Any = _raw(_RAW[name])
    else:
        from ..values import as_dtype, dtype_name

        try:
            found = DTypeMaker(dtype_name(as_dtype(name)))
        except (TypeError, ValueError):
            raise AttributeError(f"T has no {name!r}") from None
        if found.dtype != name:
            raise AttributeError(f"T has no {name!r}")
    globals()[name] = found
    return found
