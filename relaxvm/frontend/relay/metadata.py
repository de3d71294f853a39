"""The metadata section of Relay text: TVM's JSON of nodes.

Tensors are read from it, and attributes of operators.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from numpy.typing import NDArray

from ...core.checkpoints import BYTES_PER_BLOCK, check_objects, checkpoint
from ...errors import FormatError
from ...executable.formats.stored_tensors import read_tensor
from .source import Place

__all__ = ["ATTRS", "CONSTANT", "StoredObject", "read_metadata"]

CONSTANT: Final = "relay.Constant"
ATTRS: Final = "attrs"
"""A part of the names of kinds of objects that are attributes of an operator."""

_MOST_LEVELS: Final = 100
_MOST_VALUES: Final = 100_000
"""Of one object: nodes that share parts can be exponentially large."""
_STRINGS: Final = ("runtime.String", "ffi.String")


class StoredObject:
    """An object of a metadata section.

    Attributes:
        tensor: of a ``relay.Constant``; None for other kinds.
    """

    __slots__ = ("_node", "_nodes", "tensor")

    def __init__(self, nodes: Sequence[Any], node: Any, tensor: NDArray[Any] | None) -> None:
        self._nodes = nodes
        self._node = node
        self.tensor = tensor

    def value(self) -> Any:
        """Return it as a number, text, None, or list of these.

        Raises:
            FormatError: it is something else.
        """
        return _Decoder(self._nodes).value(self._node)

    def attributes(self, plain: Mapping[str, str]) -> dict[str, Any]:
        """Return the attributes of an operator by name.

        Args:
            plain: the attributes that are stored as text -> their type: int, float, bool or str.
                The others are numbers of nodes.

        Raises:
            FormatError: an attribute has another form.
        """
        decoder = _Decoder(self._nodes)
        try:
            stored = dict(self._node["attrs"]).items()
            return {key: decoder.attribute(key, text, plain.get(key)) for key, text in stored}
        except FormatError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"expected attributes ({error!r})") from None


class _Decoder:
    """Makes Python values of nodes."""

    def __init__(self, nodes: Sequence[Any]) -> None:
        self._nodes = nodes
        self._left = _MOST_VALUES

    def value(self, node: Any) -> Any:
        """A node as a number, text, None, or list of these."""
        try:
            return self._value(node, 0)
        except FormatError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"expected a node as TVM writes it ({error!r})") from None

    def attribute(self, key: str, text: Any, kind: str | None) -> Any:
        """An attribute whose type is `kind`; None: a node."""
        try:
            if kind == "str":  # a number is that of a node with the text
                node = _node(self._nodes, text) if str(text).isdigit() else None
                return text if node is None or not _is_text(node) else self.value(node)
            if kind == "bool":
                return bool(int(text))
            if kind in ("int", "float"):
                return int(text) if kind == "int" else float(text)
            return self.value(_node(self._nodes, text))
        except (FormatError, TypeError, ValueError) as error:
            raise FormatError(f"attribute {key!r}: {error}") from None

    def _value(self, node: Any, level: int) -> Any:
        self._left -= 1
        if level > _MOST_LEVELS or self._left < 0:
            raise FormatError(f"expected at most {_MOST_LEVELS} lists in each other, and "
                              f"{_MOST_VALUES} numbers")  # fmt: skip
        kind = node["type_key"]
        if not kind:
            return None
        if kind == "Array":
            return [self._value(_node(self._nodes, i), level + 1) for i in node.get("data", ())]
        if kind == "IntImm":
            number = int(node["attrs"]["value"])
            return bool(number) if node["attrs"].get("dtype") == "bool" else number
        if kind == "FloatImm":
            return float(node["attrs"]["value"])
        if _is_text(node):
            return str(node["repr_str"])
        raise FormatError(f"expected a number, a text or a list, got an object {kind!r}")


def _is_text(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type_key") in _STRINGS


def _node(nodes: Sequence[Any], index: Any) -> Any:
    number = int(index)
    if not 0 <= number < len(nodes):
        raise FormatError(f"there are {len(nodes)} nodes, got the number {number}")
    return nodes[number]


def read_metadata(text: str, place: Place) -> dict[str, list[StoredObject]]:
    """Return the objects of a metadata section by kind.

    Raises:
        ParseError: it is not the JSON that TVM writes.
    """
    # Each value, key and element is one object or two.
    objects = sum(map(text.count, ",:[{")) + 1
    check_objects(len(text) + 2 * BYTES_PER_BLOCK * objects, "metadata: parsing the text")
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError) as error:
        place.fail(f"metadata: expected JSON ({error})")
    try:
        return _objects(graph)
    except FormatError as error:
        place.fail(f"metadata: {error}")
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        place.fail(f"metadata: expected a graph of nodes as TVM writes it ({error!r})")


def _objects(graph: Any) -> dict[str, list[StoredObject]]:
    nodes, blobs = graph["nodes"], graph.get("b64ndarrays", [])
    arrays: dict[int, NDArray[Any]] = {}
    lists: dict[int, list[StoredObject]] = {}

    def stored(index: Any) -> StoredObject:
        checkpoint()
        found = _node(nodes, index)
        if found["type_key"] != CONSTANT:
            return StoredObject(nodes, found, None)
        number = int(found["attrs"]["data"])
        if number not in arrays:
            if not 0 <= number < len(blobs):
                raise FormatError(f"there are {len(blobs)} tensors, got the number {number}")
            try:
                data = base64.b64decode(blobs[number], validate=True)
            except binascii.Error as error:
                raise FormatError(f"tensor {number}: {error}") from None
            array, end = read_tensor(memoryview(data), 0, f"tensor {number}")
            if end != len(data):
                raise FormatError(f"tensor {number}: expected {end} bytes, got {len(data)}")
            arrays[number] = array
        return StoredObject(nodes, found, arrays[number])

    root = _node(nodes, graph["root"])
    found: dict[str, list[StoredObject]] = {}
    for key, value in zip(root.get("keys", ()), root.get("data", ()), strict=True):
        number = int(value)
        if number not in lists:  # once, since many keys can have the same list
            lists[number] = [stored(item) for item in _node(nodes, number).get("data", ())]
        found[str(key)] = lists[number]
    return found
