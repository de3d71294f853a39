"""Names of apache-tvm 0.27 that the tests use, where the installed version is 0.25.

Import it before a script of TVM is parsed.
"""

from __future__ import annotations

from typing import Any

from tvm.script import relax as R


def _renamed(function: Any, **names: str) -> Any:
    """Return a function that takes keywords by other names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{names.get(name, name): value for name, value in kwargs.items()})

    return call


if not hasattr(R, "Any"):
    R.Any = R.Object
    R.call_packed = _renamed(R.call_packed, ty_args="sinfo_args")
    R.call_tir = _renamed(R.call_tir, out_ty="out_sinfo")
