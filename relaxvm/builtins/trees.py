"""Structures of tensors as a user's model takes and returns them: dicts, named tuples, records.

A *tree* is JSON that says what a structure is::

    null                                    a leaf
    ["int"]                                 a leaf that is an int; as an argument it becomes a shape
    ["constant", value]                     a number, text or None that never changes
    ["tuple", [tree, ...]]                  a tuple; a list counts as one where it is an argument
    ["list", [tree, ...]]
    ["dict", [key, ...], [tree, ...]]
    ["named", name, [field, ...], [tree, ...]]    a named tuple
    ["record", name, [field, ...], [tree, ...]]   an object with these fields

Classes of the user's program are never looked up: a result has a class of its own here.
"""

from __future__ import annotations

import functools
import json
import keyword
from collections import namedtuple
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..messages import describe, readable
from ..pieces.cut import copied
from ..values import Shape, to_value
from .arguments import as_array, as_int, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["Record", "complex_from", "named_tuple", "tree_from", "tree_leaves"]

_LONGEST: Final = 1 << 20
_MOST_DEPTH: Final = 64
_ABSENT: Final = object()
_KEYS: Final = (str, int, bool, float)
_NONE: Final = ["constant", None]


class Record(dict[str, Any]):
    """A result that the user's program has as an object with fields: a dict whose values are also
    attributes, and elements by their position.

    Attributes:
        type_name: name of the class in the user's program.
    """

    type_name = ""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{self.type_name} has no field {name!r}", name=name, obj=self)\
                from None  # fmt: skip

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int):
            return [*self.values()][key]
        raise KeyError(key)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{self.type_name}({fields})"


def _parsed(text: Any, subject: str) -> Any:
    found = as_str(text, f"{subject}: tree")
    if len(found) > _LONGEST:
        raise ValueError(f"{subject}: a tree of {len(found)} characters is too long")
    return _tree(found)


@functools.lru_cache(maxsize=256)
def _tree(text: str) -> Any:
    try:
        tree = json.loads(text)
    except RecursionError:
        raise ValueError("tree: it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"tree: expected JSON: {error}") from None
    _check(tree, 0)
    return tree


def _check(tree: Any, depth: int) -> None:
    if tree is None:
        return
    if depth > _MOST_DEPTH:
        raise ValueError(f"tree: it is nested deeper than {_MOST_DEPTH}")
    kind = tree[0] if isinstance(tree, list) and tree else None
    fields = tree[1:] if isinstance(tree, list) else []
    if kind == "constant" and len(fields) == 1:
        if not isinstance(fields[0], (bool, int, float, str, type(None))):
            raise ValueError(f"tree: {describe(fields[0])} is no constant")
        return
    if kind == "int" and not fields:
        return
    names: Any = None
    if kind in ("tuple", "list") and len(fields) == 1:
        parts = fields[0]
    elif kind == "dict" and len(fields) == 2:
        names, parts = fields
        if not isinstance(names, list) or not all(type(name) in _KEYS for name in names):
            raise ValueError("tree: expected keys that are texts or numbers")
    elif kind in ("named", "record") and len(fields) == 3:
        title, names, parts = fields
        if not isinstance(title, str) or not isinstance(names, list) or not all(
            isinstance(name, str) and (kind == "record" or _is_field(name)) for name in names
        ):  # fmt: skip
            raise ValueError("tree: expected the names of fields")
    else:
        raise ValueError(f"tree: {describe(kind)} is no kind of structure")
    if not isinstance(parts, list) or (names is not None and (
        len(names) != len(parts) or len(set(names)) != len(names)
    )):  # fmt: skip
        raise ValueError("tree: expected a part for each name, and each name once")
    for part in parts:
        _check(part, depth + 1)


def _is_field(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_")


@builtin("tree_leaves", "tree: str, value: any, name: str", result="tuple", prefix=OWN_PREFIX)
def tree_leaves(tree: Any, value: Any, name: Any) -> tuple[Any, ...]:
    """Return the leaves of a structure, converted as arguments of a call are.

    Args:
        name: begins messages of errors.

    Raises:
        TypeError: the value is another structure; the message has the place.
        ValueError: the tree is malformed.
    """
    found = _parsed(tree, "tree_leaves")
    return tuple(_leaves(found, value, as_str(name, "tree_leaves: name")))


def _leaves(tree: Any, value: Any, place: str) -> Iterator[Any]:
    if tree is None:
        yield to_value(value)
        return
    kind, *fields = tree
    if kind == "constant":
        (expected,) = fields
        if type(value) is not type(expected) or (value != expected and value == value):
            raise TypeError(
                f"{place}: the program was exported for {describe(expected)}, got {describe(value)}"
            )
        return
    if kind == "int":
        yield Shape([as_int(value, place)])
        return
    parts = fields[-1]
    if kind in ("tuple", "list"):
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise TypeError(f"{place}: expected a {kind} of {len(parts)}, got {_described(value)}")
        for i, (part, each) in enumerate(zip(parts, value, strict=True)):
            yield from _leaves(part, each, f"{place}[{i}]")
        return
    names = fields[-2]
    if kind == "dict":
        if not isinstance(value, Mapping) or set(value) != set(names):
            keys = ", ".join(map(repr, names))
            raise TypeError(f"{place}: expected a dict with the keys {keys}, got "
                            f"{_described(value)}")  # fmt: skip
        for key, part in zip(names, parts, strict=True):
            yield from _leaves(part, value[key], f"{place}[{readable(repr(key))}]")
        return
    for i, (field, part) in enumerate(zip(names, parts, strict=True)):
        each = _field(value, field, i)
        if each is _ABSENT and part == _NONE:
            continue
        if each is _ABSENT:
            raise TypeError(
                f"{place}: expected {readable(fields[0])} with a field {readable(field)!r}, got "
                f"{_described(value)}"
            )
        yield from _leaves(part, each, f"{place}.{readable(field)}")


def _field(value: Any, name: str, position: int) -> Any:
    """A field of an object, of a dict, or an element of a tuple."""
    if isinstance(value, Mapping):
        return value.get(name, _ABSENT)
    if not name.startswith("_") and hasattr(value, name):
        return getattr(value, name)
    if isinstance(value, (tuple, list)) and position < len(value):
        return value[position]
    return _ABSENT


def _described(value: Any) -> str:
    if isinstance(value, Mapping):
        keys = ", ".join(readable(repr(key)) for key in [*value][:8])
        return f"a dict with the keys {keys}" if value else "an empty dict"
    return describe(value)


@builtin("tree_from", "tree: str, *leaves: any", prefix=OWN_PREFIX)
def tree_from(tree: Any, *leaves: Any) -> Any:
    """Return the structure of a tree with these leaves.

    Raises:
        ValueError: the tree is malformed, or has another number of leaves.
    """
    found = _parsed(tree, "tree_from")
    rest = iter(leaves)
    result = _made(found, rest)
    if result is _ABSENT or next(rest, _ABSENT) is not _ABSENT:
        raise ValueError(f"tree_from: the tree does not have {len(leaves)} leaves")
    return result


def _made(tree: Any, leaves: Iterator[Any]) -> Any:
    if tree is None or tree == ["int"]:
        return next(leaves, _ABSENT)
    kind, *fields = tree
    if kind == "constant":
        return fields[0]
    parts = [_made(part, leaves) for part in fields[-1]]
    if any(part is _ABSENT for part in parts):
        return _ABSENT
    if kind == "tuple":
        return tuple(parts)
    if kind == "list":
        return parts
    if kind == "dict":
        return dict(zip(fields[0], parts, strict=True))
    if kind == "named":
        return named_tuple(fields[0], tuple(fields[1]))(*parts)
    found = Record(zip(fields[1], parts, strict=True))
    object.__setattr__(found, "type_name", fields[0])
    return found


@functools.lru_cache(maxsize=256)
def named_tuple(title: str, fields: tuple[str, ...]) -> Any:
    """A class of tuples whose items have names.

    Args:
        title: the name of the user's class; that of the class is its last part.

    Raises:
        ValueError: a name is none that a field can have.
    """
    name = title.rpartition(".")[2]
    return namedtuple(name if _is_field(name) else "Result", fields)


@builtin("complex_from", "x: tensor", result="tensor", prefix=OWN_PREFIX)
def complex_from(x: Any) -> NDArray[Any]:
    """Return the complex numbers whose parts are along the last axis of a tensor,
    ``float32[..., 2]`` or ``float64[..., 2]``.

    Raises:
        TypeError: not a tensor.
        ValueError: it has another data type, or another last axis.
    """
    parts = as_array(x, "complex_from: x")
    dtype = {4: np.complex64, 8: np.complex128}.get(parts.dtype.itemsize)
    if parts.dtype.kind != "f" or dtype is None or parts.ndim == 0 or parts.shape[-1] != 2:
        raise ValueError(
            f"complex_from: x: expected float32[..., 2] or float64[..., 2], got {describe(parts)}"
        )
    found: NDArray[Any] = copied(parts).view(dtype)
    return found.reshape(parts.shape[:-1])
