"""Operators: the table of names such as "relax.add".

The table is filled by `relaxvm.op` (operators of Relax) and `relaxvm.tir` (scalar intrinsics).  An
operator is an expression, so that it can be the callee of a `Call`; there is one `Op` per name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..errors import did_you_mean
from .expr import ANY, Call, Expr, Type

__all__ = ["Normalizer", "Op", "op_names", "register_op_attr"]

_OPS: Final[dict[str, Op]] = {}

Normalizer = Callable[[Any, Call], Expr]
"""Takes a `BlockBuilder` and a call of the operator; returns the call if it is in normal form, or
what replaces it."""

CONTEXT: Final[dict[str, Callable[[], Any]]] = {}
"""What makes the builder that type rules written for TVM get.  Filled by
`relaxvm.ir.block_builder`."""

_UNSET: Final = object()


class Op(Expr):
    """An operator.

    Attributes:
        name: "relax.add", "tirx.exp".
        doc: a description of one line.
        infer: returns the type of a call of the operator, whose arguments have types; raises
            TypeError or ValueError if they are not accepted.
        is_pure: whether a call has no side effects.
        make: the constructor of a call, ``R.name`` in script; None if there is none.
        normalizer: the operator's own normal form, beyond that of all calls; None if there is none.
            `BlockBuilder.normalize` applies it, and programs in which it would change a call are
            not well-formed.
        record: further data of the package that registers the operator.
    """

    __slots__ = (
        "_attrs",
        "_replaced",
        "doc",
        "infer",
        "is_pure",
        "make",
        "name",
        "normalizer",
        "record",
    )
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
        normalizer: Normalizer | None = None,
    ) -> None:
        self.name = name
        self.infer = infer
        self.doc = doc
        self.is_pure = is_pure
        self.make = make
        self.record = record
        self.normalizer = normalizer
        self._attrs: dict[str, Any] = {}
        self._replaced: dict[str, Any] = {}
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
    def get(cls, op_name: str) -> Op:
        """Return the operator of a name.

        Raises:
            ValueError: there is no such operator.
        """
        found = _OPS.get(op_name)
        if found is None:
            _fill()
            found = _OPS.get(op_name)
        if found is None:
            raise ValueError(f"unknown operator {op_name!r}{did_you_mean(op_name, _OPS)}")
        return found

    def normalized(self, builder: Any, call: Call) -> Expr:
        """Apply the operator's own normal form to a call whose arguments are in normal form.

        Raises:
            TypeError: the normalizer does not return an expression.
        """
        if self.normalizer is None:
            return call
        new = self.normalizer(builder, call)
        if not isinstance(new, Expr):
            raise TypeError(f"{self.name}: FNormalize: expected an expression, got {new!r}")
        return new

    def has_attr(self, attr_name: str) -> bool:
        """Whether an attribute is set; see `set_attr`."""
        return self.get_attr(attr_name) is not None

    def get_attr(self, attr_name: str) -> Any:
        """Return the value of an attribute, None if it is not set; see `set_attr`."""
        field = _FIELDS.get(attr_name)
        if attr_name in self._attrs or field is None:
            return self._attrs.get(attr_name)
        return getattr(self, field)

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Set an attribute, as TVM names them.

        "FInferType" is the type rule, called with a call and a `BlockBuilder`; "FPurity" is
        `is_pure`; "FNormalize" is `normalizer`; "FLegalize" is the rule by which
        `relaxvm.transform.LegalizeOps` replaces calls.  Other attributes are kept for `get_attr`.

        Args:
            plevel: taken as in TVM; the last value counts.

        Raises:
            TypeError: the value is not what the attribute holds.
        """
        if attr_name == "FPurity":
            if not isinstance(value, bool):
                raise TypeError(f"{self.name}: FPurity: expected a bool, got {value!r}")
        elif attr_name in _FUNCTIONS and not callable(value):
            raise TypeError(f"{self.name}: {attr_name}: expected a function, got {value!r}")
        self._attrs[attr_name] = value
        field = _FIELDS.get(attr_name)
        if field is not None:
            self._replaced.setdefault(field, getattr(self, field))
            setattr(self, field, _type_rule(value) if field == "infer" else value)

    def reset_attr(self, attr_name: str) -> None:
        """Undo what `set_attr` has done to an attribute; does nothing if it is not set."""
        self._attrs.pop(attr_name, None)
        field = _FIELDS.get(attr_name)
        if field is not None and field in self._replaced:
            setattr(self, field, self._replaced.pop(field))

    def __hash__(self) -> int:
        return hash(self.name)

    def __deepcopy__(self, memo: Any) -> Op:
        return self

    def __reduce__(self) -> Any:
        return Op.get, (self.name,)


_FIELDS: Final = {"FInferType": "infer", "FPurity": "is_pure", "FNormalize": "normalizer"}
"""Attributes of TVM's operators -> the fields that hold them here."""

_FUNCTIONS: Final = frozenset({"FInferType", "FNormalize", "FLegalize"})


def _type_rule(rule: Callable[[Call, Any], Type]) -> Callable[[Call], Type]:
    return lambda call: rule(call, CONTEXT["builder"]())


def register_op_attr(
    op_name: str, attr_key: str, value: Any = _UNSET, level: int = 10
) -> Callable[[Any], Any] | None:
    """Set an attribute of an operator, which is added to the table if there is none of this name:
    its calls are of type `ANY` and are impure until "FInferType" and "FPurity" say more.

    Args:
        op_name: the full name, such as "relax.add".
        attr_key: see `Op.set_attr`.
        value: if omitted, the function returns a decorator for it.
        level: as `plevel` of `Op.set_attr`.
    """

    def register(found: Any) -> Any:
        try:
            op = Op.get(op_name)
        except ValueError:
            op = Op.register(op_name, lambda call: ANY, is_pure=False)
        op.set_attr(attr_key, found, level)
        return found

    if value is _UNSET:
        return register
    register(value)
    return None


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
