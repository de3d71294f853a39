"""Entry points of script, as programs for TVM use them.

TVM believes the types that are written.  Here a type that cannot be proved is checked when the
program runs, as by ``R.match_cast``, and a type of results that contradicts the body is replaced,
with an `AnnotationWarning`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final

from ...script.entry import decorated_class, decorated_function, program_of
from ...script.markers import Annotations

__all__ = ["from_source", "function", "ir_module"]

_CHECKED: Final = Annotations.CHECKED


def ir_module(
    cls: type | None = None, *, check_well_formed: bool = True, s_tir: bool = False
) -> Any:
    """Decorator for modules; see `relaxvm.script.ir_module`."""
    if cls is not None:
        return decorated_class(cls, sys._getframe(1), check_well_formed, _CHECKED)

    def decorate(cls: type) -> Any:
        return decorated_class(cls, sys._getframe(1), check_well_formed, _CHECKED)

    return decorate


def function(
    f: FunctionType | None = None,
    pure: bool = True,
    private: bool = False,
    check_well_formed: bool = True,
) -> Any:
    """Decorator for Relax functions; see `relaxvm.script.relax.function`."""
    # The parser reads the other options from the text.
    def decorate(func: Any) -> Any:
        return decorated_function(
            func, sys._getframe(1), "R.function", check_well_formed, _CHECKED
        )

    if f is None:
        return decorate
    return decorated_function(f, sys._getframe(1), "R.function", check_well_formed, _CHECKED)


function.script_kind = "relax"  # type: ignore[attr-defined]


def from_source(
    program: str | Callable[..., Any] | type,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    *,
    s_tir: bool = False,
) -> Any:
    """Parse a text, a function or a class; see `relaxvm.script.from_source`."""
    frame = sys._getframe(1)
    return program_of(program, frame, extra_vars, check_well_formed, _CHECKED)
