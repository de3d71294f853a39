"""Operators: the table of names such as "relax.add".

The table is filled by `relaxvm.op` (operators of Relax) and `relaxvm.tir` (scalar intrinsics).  An
operator is an expression, so that it can be the callee of a `Call`; there is one `Op` per name.
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
        doc: a description of one line.
        infer: returns the type of a call of the operator, whose arguments have types; raises
            TypeError or ValueError if they are not accepted.
        is_pure: whether a call has no side effects.
        make: the constructor of a call, ``R.name`` in script; None if there is none.
        record: further data of the package that registers the operator.
    """

    __slots__ = ("_attrs", "doc", "infer", "is_pure", "make", "name", "record")
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
        self._attrs: dict[str, Any] = {}
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
        """Return the operator of a name.

        Raises:
            ValueError: there is no such operator.
        """
        found = _OPS.get(name)
        if found is None:
            _fill()
            found = _OPS.get(name)
        if found is None:
            raise ValueError(f"unknown operator {name!r}{did_you_mean(name, _OPS)}")
        return found

    def get_attr(self, name: str) -> Any:
        """What was set for the operator by a name, such as "FLegalize"; None if nothing was."""
        return self._attrs.get(name)

    def has_attr(self, name: str) -> bool:
        """Whether something was set for the operator by a name."""
        return name in self._attrs

    def set_attr(self, name: str, value: Any) -> None:
        """Set something for the operator by a name, in place of what was set before.

        Passes ask for "FLegalize", the rule of `relaxvm.transform.register_legalize`.
        """
        self._attrs[name] = value

    def reset_attr(self, name: str) -> None:
        """Forget what was set for the operator by a name, if anything was."""
        self._attrs.pop(name, None)

    def __hash__(self) -> int:
        return hash(self.name)

    def __deepcopy__(self, memo: Any) -> Op:
        return self

    def __reduce__(self) -> Any:
        return Op.get, (self.name,)


def _fill() -> None:
    """Register all operators by importing the packages that define them: a program that is loaded
    from a file may name operators that nothing has imported yet."""
    from .. import op, tir  # noqa: F401


def op_names(prefix: str = "") -> list[str]:
    """Return the names of the registered operators, sorted."""
    return sorted(name for name in _OPS if name.startswith(prefix))


def attrs_of_ops(name: str) -> dict[str, Any]:
    """Return what was set for operators by `Op.set_attr` with a name, by name of the operator."""
    return {op.name: op.get_attr(name) for op in list(_OPS.values()) if op.has_attr(name)}
