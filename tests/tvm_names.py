"""What the tests use of apache-tvm 0.27 and 0.25 does not have.

Import it before a script of TVM is parsed.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tvm.script import relax as R


def address(tensor: Any) -> int:
    """Return the address of a tensor's data."""
    data = ctypes.c_void_p.from_address(tensor.__chandle__() + 24).value  # after the object's head
    return data or 0


def type_of(expr: Any) -> Any:
    """Return the type of an expression of Relax."""
    return expr.ty if hasattr(expr, "ty") else expr.struct_info


def _renamed(function: Any, **names: str) -> Any:
    """Return a function that takes keywords by other names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    return call


if not hasattr(R, "Any"):
    R.Any = R.Object
    R.call_packed = _renamed(R.call_packed, ty_args="sinfo_args")
    R.call_tir = _renamed(R.call_tir, out_ty="out_sinfo")
