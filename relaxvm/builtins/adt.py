"""Values of data types, and references: builtins of relaxvm that TVM does not have."""

from __future__ import annotations

from typing import Any

from .._core import Adt, Ref
from ..deep import show
from ..errors import MatchError
from ..messages import describe, readable
from .arguments import as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["adt_field", "adt_tag", "make_adt", "match_failure", "match_tag", "ref", "ref_read",
           "ref_write", "tag_is"]  # fmt: skip


def _as_adt(x: Any, subject: str) -> Adt:
    if type(x) is not Adt:
        raise TypeError(f"{subject}: expected a value of a data type, got {describe(x)}")
    return x


@builtin("make_adt", "constructor: str, tag: int, *fields: any", result="adt", prefix=OWN_PREFIX)
def make_adt(constructor: Any, tag: Any, *fields: Any) -> Adt:
    """Return a value of a data type: the name of its constructor, such as ``List.Cons``, the number
    of the constructor in the type, and the fields.

    Raises:
        TypeError: constructor is not a string, or tag not an int.
        ValueError: tag is negative or above 2**31 - 1.
    """
    name, number = as_str(constructor, "make_adt: constructor"), as_int(tag, "make_adt: tag")
    # `Adt` converts to 64 bits before it looks at the number.
    return Adt(name, max(min(number, 1 << 31), -1), fields)


@builtin("adt_tag", "x: adt", result="int", prefix=OWN_PREFIX)
def adt_tag(x: Any) -> int:
    """Return the tag of a value of a data type.

    Raises:
        TypeError: not a value of a data type.
    """
    return _as_adt(x, "adt_tag").tag


@builtin("match_tag", "x: adt, *constructors: any", result="int", prefix=OWN_PREFIX)
def match_tag(x: Any, *constructors: Any) -> int:
    """Return the tag of a value of a certain data type.

    Args:
        constructors: those of the data type, in the order of their tags, for each its name and its
            number of fields.

    Raises:
        TypeError: the value has another constructor, or another number of fields.
        ValueError: the constructors are not pairs.
    """
    value = _as_adt(x, "match_tag")
    if len(constructors) % 2:
        raise ValueError("match_tag: constructors: expected a number of fields for each name")
    tag = value.tag
    if 2 * tag < len(constructors):
        name = as_str(constructors[2 * tag], "match_tag: name of a constructor")
        count = as_int(constructors[2 * tag + 1], "match_tag: number of fields")
        if (value.constructor, len(value.fields)) == (name, count):
            return tag
    known = ", ".join(
        f"{readable(as_str(name, 'match_tag: name of a constructor'))} with tag {i} and "
        f"{as_int(count, 'match_tag: number of fields')} fields"
        for i, (name, count) in enumerate(
            zip(constructors[:16:2], constructors[1:16:2], strict=True)
        )
    )
    more = ", ..." if len(constructors) > 16 else ""
    raise TypeError(
        f"match: expected a value of {known or 'a data type without constructors'}{more}, got "
        f"{show(value, 100)} with tag {tag} and {len(value.fields)} fields"
    )


@builtin("adt_field", "x: adt, index: int", prefix=OWN_PREFIX)
def adt_field(x: Any, index: Any) -> Any:
    """Return a field of a value of a data type.

    Raises:
        TypeError: not a value of a data type.
        IndexError: it has no such field; negative indices are not supported.
    """
    value = _as_adt(x, "adt_field")
    i = as_int(index, "adt_field: index")
    fields = value.fields
    if not 0 <= i < len(fields):
        raise IndexError(f"adt_field: index {i}: {value.constructor} has {len(fields)} fields")
    return fields[i]


@builtin("tag_is", "tag: int, number: int", result="bool", prefix=OWN_PREFIX)
def tag_is(tag: Any, number: Any) -> bool:
    """Return whether a tag, or another int, is a number.

    Raises:
        TypeError: one of them is not an int.
    """
    return as_int(tag, "tag_is") == as_int(number, "tag_is: number")


@builtin("match_failure", "x: any, missing: str", prefix=OWN_PREFIX)
def match_failure(x: Any, missing: Any) -> Any:
    """Raise the error for a value that no clause of a match has a pattern for.

    Args:
        missing: the patterns that have no clause, as text.

    Raises:
        MatchError: always.
    """
    value, patterns = show(x, 200), as_str(missing, "match_failure: missing")
    raise MatchError(
        f"no clause of the match is for {value}; there is none for {patterns}", value, patterns
    )


@builtin("ref", "value: any", prefix=OWN_PREFIX)
def ref(value: Any) -> Ref:
    """Return a new reference that holds a value."""
    return Ref(value)


def _as_ref(x: Any, subject: str) -> Ref:
    if type(x) is not Ref:
        raise TypeError(f"{subject}: expected a reference, got {describe(x)}")
    return x


@builtin("ref_read", "ref: object", prefix=OWN_PREFIX)
def ref_read(ref: Any) -> Any:
    """Return the value that a reference holds.

    Raises:
        TypeError: not a reference.
    """
    return _as_ref(ref, "ref_read").value


@builtin("ref_write", "ref: object, value: any", result="none", prefix=OWN_PREFIX)
def ref_write(ref: Any, value: Any) -> None:
    """Make a reference hold another value.

    Raises:
        TypeError: not a reference.
    """
    _as_ref(ref, "ref_write").value = value
