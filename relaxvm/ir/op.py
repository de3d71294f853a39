"""Operators: the record behind a name such as "relax.add".

The table is filled by `relaxvm.op` (operators of Relax) and `relaxvm.tir` (scalar intrinsics).  An
operator is an expression, so that it can be what a `Call` calls; there is one `Op` per name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..errors import did_you_mean
from .expr import Call, Expr, Type

__all__ = ["Op", "op_names"]

_OPS: Final[dict[str, Op]] = {}


class Op(Expr):
    """An operator.

    Attributes:
        name: "relax.add", "tirx.exp".
        doc: one line.
        infer: gives the type of a call of it, whose arguments have types; raises TypeError or
            ValueError where they do not fit.
        is_pure: whether a call has no effect but its result.
        make: the constructor, what the script's ``R.name`` is; None where there is none.
        record: what else is registered of it, by the package that registers.
    """

    __slots__ = ("doc", "infer", "is_pure", "make", "name", "record")
    FIELDS = ("name",)

    def __init__(
        self,
        name: str,
        infer: Callable[[Call], Type],
        *,
        doc: str = "",
        is_pure: bool = True,
        make: Callable[..., Expr] | None = None,
        record: Any = None,
    ) -> None:
        self.name = name
        self.infer = infer
        self.doc = doc
        self.is_pure = is_pure
        self.make = make
        self.record = record
        self.ty = None
        self.span = None

    @classmethod
    def register(cls, name: str, infer: Callable[[Call], Type], **details: Any) -> Op:
        """Add an operator to the table.

        Raises:
            ValueError: the name is taken.
        """
        if name in _OPS:
            raise ValueError(f"operator {name!r} is registered twice: {_OPS[name].doc!r}")
        op = _OPS[name] = cls(name, infer, **details)
        return op

    @classmethod
    def get(cls, name: str) -> Op:
        """The operator of a name.

        Raises:
            ValueError: there is none.
        """
        found = _OPS.get(name)
        if found is None:
            _fill()
            found = _OPS.get(name)
        if found is None:
            raise ValueError(f"unknown operator {name!r}{did_you_mean(name, _OPS)}")
        return found

    def __hash__(self) -> int:
        return hash(self.name)

    def __deepcopy__(self, memo: Any) -> Op:
        return self

    def __reduce__(self) -> Any:
        return Op.get, (self.name,)


def _fill() -> None:
    """Register all operators, as importing the packages that define them does: a program that is
    loaded names operators before anyone has used them."""
    from .. import op, tir  # noqa: F401


def op_names(prefix: str = "") -> list[str]:
    """Names of the registered operators, sorted."""
    return sorted(name for name in _OPS if name.startswith(prefix))
