"""Comparison, text, hash and pickled form of values that are nested to any depth.

Programs make lists of a million cells and tuples in tuples, whose parts may be shared.  Nothing
here recurses, and a part that is used many times is looked at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from .dtypes import dtype_name
from .messages import describe
from .nested import convert_nested
from .values import Shape, to_own_value

__all__ = ["equal", "hash_of", "own_fields", "rebuild", "reduce", "set_types", "show"]

_MOST_TEXT: Final = 400

_adt: Any = None
_ref: Any = None
_closure: Any = None
_function: Any = None
_with_parts: frozenset[type] = frozenset({tuple, list})


def set_types(adt: type, ref: type, closure: type, function: type) -> None:
    """Tell this module the types of values of data types, references, closures and functions of a
    virtual machine.  The core, which is above it, does so when it has made them."""
    global _adt, _ref, _closure, _function, _with_parts
    _adt, _ref, _closure, _function = adt, ref, closure, function
    _with_parts = frozenset({adt, tuple, list})


def own_fields(fields: Iterable[Any]) -> tuple[Any, ...]:
    """Return fields from Python as values; their tuples are new, and nobody outside holds them."""
    values: tuple[Any, ...] = to_own_value(tuple(fields))
    return values


def _items(value: Any) -> Any:
    """The parts of a value; None if it has none."""
    kind = type(value)
    if kind is _adt:
        return value.fields
    return value if kind is tuple or kind is list else None


def _has_parts(value: Any) -> bool:
    return type(value) in _with_parts


def _same_kind(a: Any, b: Any) -> bool:
    """Whether two values with parts may be equal."""
    kind = type(a)
    if kind is not type(b):
        return False
    if kind is _adt:
        return bool(a.tag == b.tag and a.constructor == b.constructor)
    return True


def equal(a: Any, b: Any) -> bool:
    """Check whether two values are equal: values of data types by constructor and fields, tuples by
    their elements, tensors by data type, shape and elements, other values by ``==``.

    It does not recurse: values may be nested to any depth.  As in Python's containers, the same
    object is equal to itself, even if it contains NaN.
    """
    work = [(a, b)]
    joined: dict[int, int] = {}  # parts that are equal if the rest is: a forest, by identity
    kept: list[Any] = []
    while work:
        x, y = work.pop()
        if x is y:
            continue
        parts = _items(x)
        if parts is None:
            if not _equal_leaves(x, y):
                return False
            continue
        if not _same_kind(x, y):
            return False
        root, other_root = _root(joined, id(x)), _root(joined, id(y))
        if root == other_root:
            continue
        others = _items(y)
        if len(parts) != len(others):
            return False
        joined[root] = other_root
        kept += (x, y)
        work += zip(parts, others, strict=True)
    return True


def _root(joined: dict[int, int], at: int) -> int:
    """The root of the tree of a forest that has `at`; halves the way to it."""
    while (parent := joined.get(at)) is not None:
        joined[at] = at = joined.get(parent, parent)
    return at


def _equal_leaves(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray)
            and isinstance(b, np.ndarray)
            and dtype_name(a.dtype) == dtype_name(b.dtype)
            and np.array_equal(a, b)
        )
    if isinstance(a, Shape) is not isinstance(b, Shape) or _items(b) is not None:
        return False
    return bool(a == b)


def hash_of(value: Any) -> int:
    """Return a hash that is equal for equal values.

    Raises:
        TypeError: a part of it is not hashable, such as a tensor.
    """

    def join(outer: Any, results: list[Any]) -> int:
        head = (outer.constructor, outer.tag) if type(outer) is _adt else _hashable(outer)
        return hash((head, *results))

    found: int = convert_nested(value, _has_parts, hash, join, items_of=_items)
    return found


def _hashable(outer: Any) -> int:
    return hash(type(outer)) if type(outer) is tuple else hash(outer)  # a list is not hashable


def show(value: Any, most: int = _MOST_TEXT) -> str:
    """Return a value as text of about `most` characters; what is left out is ``...``."""
    texts: list[str] = []
    left = most
    work: list[Any] = [(value, False)]
    while work:
        found, is_text = work.pop()
        if not is_text:
            found, rest = _shown(found)
            work += reversed(rest)
        if left < len(found):
            return f"{''.join(texts)}..."
        texts.append(found)
        left -= len(found)
    return "".join(texts)


def _shown(value: Any) -> tuple[str, list[tuple[Any, bool]]]:
    """The text of a value up to its first part, and what follows: parts and texts."""
    if type(value) is _ref:
        return "Ref(", [(value.value, False), (")", True)]
    parts = _items(value)
    if parts is None:
        return _shown_leaf(value), []
    begin, end = ("[", "]") if type(value) is list else ("(", ")")
    if type(value) is _adt:
        begin = f"{value.constructor}("
    rest: list[tuple[Any, bool]] = []
    for part in parts[:_MOST_TEXT]:
        if rest:
            rest.append((", ", True))
        rest.append((part, False))
    if len(parts) > _MOST_TEXT:
        rest.append((", ...", True))
    if type(value) is tuple and len(parts) == 1:
        end = ",)"
    return begin, [*rest, (end, True)]


def _shown_leaf(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return f"{dtype_name(value.dtype)}({value})"
    return describe(value)


# The pickled form: the parts in an order in which each comes after its own parts.

_LEAF: Final = -1
_TUPLE: Final = -2
_LIST: Final = -3
_CLOSURE: Final = -4


def _is_stored_in_parts(value: Any) -> bool:
    return _has_parts(value) or type(value) is _closure


def _stored_parts(value: Any) -> Any:
    return (value.func, *value.captured) if type(value) is _closure else _items(value)


def reduce(value: Any) -> tuple[Any, ...]:
    """Return what pickle needs to make the value again, without nesting.

    A function of a virtual machine is pickled with the machine, once.
    """
    names: dict[tuple[str, int], int] = {}
    functions: dict[Any, int] = {}
    leaves: list[Any] = []
    codes = array("q")
    count = 0

    def number() -> int:
        nonlocal count
        count += 1
        return count - 1

    def leaf(part: Any) -> int:
        if type(part) is _function and functions.setdefault(part, count) != count:
            return functions[part]
        codes.append(_LEAF)
        leaves.append(part)
        return number()

    def join(outer: Any, results: list[int]) -> int:
        if type(outer) is _adt:
            kind = names.setdefault((outer.constructor, outer.tag), len(names))
        elif type(outer) is _closure:
            kind = _CLOSURE
        else:
            kind = _TUPLE if type(outer) is tuple else _LIST
        codes.extend((kind, len(results), *results))
        return number()

    convert_nested(value, _is_stored_in_parts, leaf, join, items_of=_stored_parts)
    return rebuild, (_adt, codes.tobytes(), list(names), leaves)


def rebuild(adt: Any, codes: bytes, names: list[tuple[str, int]], leaves: list[Any]) -> Any:
    """Make the value again that `reduce` was given.

    Args:
        adt: the type of values of data types.  Pickle imports its module, the core, for it.
        codes, names, leaves: what `reduce` wrote.

    Raises:
        ValueError: `codes` are not what `reduce` made.
    """
    words = array("q")
    words.frombytes(codes)
    made: list[Any] = []
    next_leaf = iter(leaves)
    at = 0
    while at < len(words):
        kind = words[at]
        if kind == _LEAF:
            made.append(next(next_leaf))
            at += 1
            continue
        count = words[at + 1]
        end = at + 2 + count
        parts = [made[place] for place in words[at + 2 : end]]
        if len(parts) != count:
            raise ValueError(f"codes of a value: expected {count} parts, got {len(parts)}")
        if kind >= 0:
            made.append(adt(*names[kind], tuple(parts)))
        elif kind == _CLOSURE:
            made.append(_closure(parts[0], parts[1:]))
        else:
            made.append(tuple(parts) if kind == _TUPLE else parts)
        at = end
    return made[-1]
