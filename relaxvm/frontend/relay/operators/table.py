"""The table of Relay's operators, and the application of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ....errors import did_you_mean
from ....ir import Expr, TensorType
from .equal_dims import Cast, Equal, with_equal_dims

__all__ = ["IGNORED", "OPERATORS", "Make", "RelayOperator", "apply", "relay"]

Make = Callable[..., Any]


class RelayOperator:
    """An operator of Relay.

    Attributes:
        name: its name.
        arity: the number of its operands.
        attrs: its attributes and their defaults.
        plain: the attributes that TVM keeps as a number, bool or text -> the name of that type; it
            keeps the others as objects.  They are annotated as Any.
        optional: those of `plain` that can be None.
        make: the function that translates a call.
        equal: the function that tells which dimensions of the operands must be equal, or None.
    """

    __slots__ = ("arity", "attrs", "equal", "make", "name", "optional", "plain")

    def __init__(self, name: str, make: Make, equal: Equal | None = None) -> None:
        self.name = name
        self.make = make
        self.equal = equal
        params = inspect.signature(make).parameters.values()
        self.arity = sum(p.kind is not p.KEYWORD_ONLY for p in params)
        self.attrs = {p.name: p.default for p in params if p.kind is p.KEYWORD_ONLY}
        self.plain = {
            p.name: p.annotation.partition(" ")[0]
            for p in params
            if p.kind is p.KEYWORD_ONLY and p.annotation != "Any"
        }
        self.optional = {p.name for p in params if str(p.annotation).endswith("| None")}


OPERATORS: Final[dict[str, RelayOperator]] = {}
"""All operators of Relay that have a counterpart, by name."""

IGNORED: Final = frozenset(
    {
        "attrs_type_key",
        "auto_scheduler_rewritten_layout",
        "start",  # of arange, where they are operands too
        "step",
        "stop",
        "meta_schedule_original_shape",
    }
)
"""Attributes that do not change what is computed."""


def _unchecked(x: Expr, ty: TensorType) -> Expr:
    return x


def apply(
    name: str, args: Sequence[Expr], attrs: Mapping[str, Any], cast: Cast = _unchecked
) -> Expr:
    """Return a call of an operator of Relay as an expression of relaxvm.

    Args:
        cast: returns a tensor as one of a type with other dimensions, which are checked when the
            program runs.  Where operands must have equal dimensions of which some are ``?``, this
            makes them equal.

    Raises:
        TypeError, ValueError: an operand or attribute is wrong, or has no counterpart.
    """
    found = OPERATORS[name]
    if len(args) != found.arity:
        raise TypeError(f"expected {found.arity} argument{'s' * (found.arity != 1)}, "
                        f"got {len(args)}")  # fmt: skip
    given = {key: value for key, value in attrs.items() if key not in IGNORED}
    for key in given:
        if key not in found.attrs:
            known = ", ".join(found.attrs) or "none"
            raise TypeError(f"there is no attribute {key!r}{did_you_mean(key, found.attrs)}; the "
                            f"attributes are: {known}")  # fmt: skip
        _check_attribute(found, key, given[key])
    for key, default in found.attrs.items():
        if default is inspect.Parameter.empty and key not in given:
            raise TypeError(f"attribute {key!r} is missing")
    if found.equal is not None:
        args = with_equal_dims(args, found.equal(args, {**found.attrs, **given}), cast)
    made: Expr = found.make(*args, **given)
    return made


_ACCEPTED: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "int": ((int,), "an integer"),
    "float": ((int, float), "a number"),
    "bool": ((bool, int), "True or False"),
    "str": ((str,), "a string"),
}
"""Types of attributes -> of values as written, and what the message says."""


def _check_attribute(found: RelayOperator, key: str, value: Any) -> None:
    kind = found.plain.get(key)
    if kind is None or (value is None and key in found.optional):
        return
    types, wanted = _ACCEPTED[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise TypeError(f"attribute {key!r}: expected {wanted}, got {value!r}")


def relay(*names: str, equal: Equal | None = None) -> Callable[[Make], Make]:
    """Decorator: enter a function in the table, under one or more names.

    Args:
        equal: as of `RelayOperator`.
    """

    def register(make: Make) -> Make:
        for name in names:
            OPERATORS[name] = RelayOperator(name, make, equal)
        return make

    return register
