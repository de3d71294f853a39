"""The structures of inputs and outputs, from torch's text to that of `relaxvm.builtins.trees`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ...errors import FormatError
from ...messages import readable
from . import messages

__all__ = ["LEAF", "Tree", "parameters_of", "read_tree"]

_VERSION: Final = 1
_LONGEST: Final = 1 << 20
_MOST_DEPTH: Final = 64
_LONGEST_PATH: Final = 1000
"""Characters of the place of a leaf; guards about a longer one are not found."""
_PLAIN: Final = {"builtins.tuple": "tuple", "builtins.list": "list", "torch.Size": "tuple",
                 "collections.deque": "list"}  # fmt: skip
_DICTS: Final = frozenset({
    "builtins.dict", "collections.OrderedDict", "collections.defaultdict",
    "torch.fx.immutable_collections.immutable_dict",
})  # fmt: skip


class Tree(NamedTuple):
    """A structure.

    Attributes:
        kind: "leaf", "none", "tuple", "list", "dict", "named" or "record".
        parts: its elements.
        names: keys or fields.
        title: name of its class.
    """

    kind: str
    parts: tuple[Tree, ...] = ()
    names: tuple[Any, ...] = ()
    title: str = ""

    def leaves(self) -> int:
        """The number of leaves."""
        return self.kind == "leaf" or sum([part.leaves() for part in self.parts])

    def paths(self, path: str) -> Iterator[str]:
        """The places of the leaves, as torch writes them in guards: ``L['x'][0]['key']``."""
        if self.kind == "leaf":
            yield path
        for i, part in enumerate(self.parts):
            if self.kind == "dict":
                inner = f"[{self.names[i]!r}]"
            elif self.kind == "record":
                inner = f".{self.names[i]}"
            else:
                inner = f"[{i}]"
            yield from part.paths((path + inner)[:_LONGEST_PATH])

    def data(self, constants: Iterator[Any]) -> Any:
        """The form of `relaxvm.builtins.trees`.

        Args:
            constants: for each leaf what stands for it: None for a value, or another form.
        """
        if self.kind == "leaf":
            constant = next(constants)
            return None if constant is None else constant
        if self.kind == "none":
            return ["constant", None]
        parts = [part.data(constants) for part in self.parts]
        if self.kind == "dict":
            return ["dict", list(self.names), parts]
        if self.kind in ("named", "record"):
            return [self.kind, self.title, list(self.names), parts]
        return [self.kind, parts]


LEAF: Final = Tree("leaf")


def read_tree(
    text: str, fields: Mapping[str, messages.NamedTuple_], subject: str
) -> Tree:
    """A structure from torch's text.

    Args:
        fields: names of the fields of classes of named tuples.
        subject: begins messages of errors.

    Raises:
        FormatError: it is malformed, or of another version.
    """
    if len(text) > _LONGEST:
        raise FormatError(f"{subject}: a structure of {len(text)} characters is too long")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(f"{subject}: expected JSON") from None
    if not isinstance(data, list) or len(data) != 2 or data[0] != _VERSION:
        raise FormatError(f"{subject}: expected a structure of version {_VERSION}")
    return _tree(data[1], fields, subject, 0)


def _tree(
    data: Any, named: Mapping[str, messages.NamedTuple_], subject: str, depth: int
) -> Tree:
    if depth > _MOST_DEPTH:
        raise FormatError(f"{subject}: it is nested deeper than {_MOST_DEPTH}")
    if not isinstance(data, dict) or not isinstance(data.get("children_spec"), list):
        raise FormatError(f"{subject}: expected a structure with its parts")
    kind, context = data.get("type"), data.get("context")
    if kind is None:
        return LEAF
    if not isinstance(kind, str):
        raise FormatError(f"{subject}: expected the name of a class")
    parts = tuple([_tree(each, named, subject, depth + 1) for each in data["children_spec"]])
    if kind in _PLAIN:
        return Tree(_PLAIN[kind], parts)
    names: Any = _context(context)
    if kind == "collections.namedtuple":
        title = context if isinstance(context, str) else ""
        if title not in named:
            raise FormatError(f"{subject}: the fields of {readable(title)!r} are not known")
        return _with_names("named", parts, named[title].field_names, title, subject)
    if kind in _DICTS:
        if kind == "collections.defaultdict" and isinstance(names, dict):
            names = names.get("dict_context")
        return _with_names("dict", parts, names, "", subject)
    if isinstance(names, list) and len(names) == 2 and all(isinstance(n, list) for n in names):
        # A data class: the fields that are there, and those that are None.
        absent = Tree("none")
        parts += tuple([absent] * len(names[1]))
        names = names[0] + names[1]
    if not isinstance(names, list) or len(names) != len(parts) or not all(
        isinstance(name, str) for name in names
    ):  # fmt: skip
        names = [str(i) for i in range(len(parts))]
    return _with_names("record", parts, names, kind, subject)


def _context(context: Any) -> Any:
    if not isinstance(context, str):
        return context
    try:
        return json.loads(context)
    except (ValueError, RecursionError):
        return None


def _with_names(
    kind: str, parts: tuple[Tree, ...], names: Any, title: str, subject: str
) -> Tree:
    if not isinstance(names, list) or len(names) != len(parts):
        raise FormatError(f"{subject}: expected a name for each of {len(parts)} parts")
    allowed = (str, int, bool, float) if kind == "dict" else (str,)
    if not all(type(name) in allowed for name in names) or len(set(names)) != len(names):
        raise FormatError(f"{subject}: expected names that are texts or numbers, each once")
    return Tree(kind, parts, tuple(names), title)


def parameters_of(
    tree: Tree, names: Sequence[str] | None, subject: str
) -> list[tuple[str, Tree]]:
    """The parameters of the user's function, with their structures.

    Args:
        tree: of all arguments: a tuple of the positional ones, and a dict of the others.
        names: of all of them, if they are known.

    Raises:
        FormatError: the tree is another one.
    """
    if tree.kind != "tuple" or len(tree.parts) != 2 or (
        tree.parts[0].kind != "tuple" or tree.parts[1].kind != "dict"
    ):  # fmt: skip
        raise FormatError(f"{subject}: expected a tuple and a dict of arguments")
    positional, keywords = tree.parts
    count = len(positional.parts)
    given = list(names or ())
    if len(given) < count:
        given = [f"arg_{i}" for i in range(count)]
    labels = [*given[:count], *map(str, keywords.names)]
    return list(zip(labels, [*positional.parts, *keywords.parts], strict=True))
