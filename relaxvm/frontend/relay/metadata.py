"""The metadata section of Relay text: TVM's JSON of nodes, of which the tensors are read."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from numpy.typing import NDArray

from ...errors import FormatError
from ...executable.formats.stored_tensors import read_tensor
from .source import Place

__all__ = ["CONSTANT", "read_metadata"]

CONSTANT = "relay.Constant"


def read_metadata(text: str, place: Place) -> dict[str, list[NDArray[Any] | None]]:
    """Return the objects of a metadata section by kind: tensors for constants, None for others.

    Raises:
        ParseError: it is not the JSON that TVM writes.
    """
    try:
        graph = json.loads(text)
    except (ValueError, RecursionError) as error:
        place.fail(f"metadata: expected JSON ({error})")
    try:
        return _objects(graph)
    except FormatError as error:
        place.fail(f"metadata: {error}")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        place.fail(f"metadata: expected a graph of nodes as TVM writes it ({error!r})")


def _objects(graph: Any) -> dict[str, list[NDArray[Any] | None]]:
    nodes, blobs = graph["nodes"], graph.get("b64ndarrays", [])
    arrays: dict[int, NDArray[Any]] = {}

    def node(index: Any) -> Any:
        number = int(index)
        if not 0 <= number < len(nodes):
            raise FormatError(f"there are {len(nodes)} nodes, got the number {number}")
        return nodes[number]

    def constant(index: Any) -> NDArray[Any] | None:
        found = node(index)
        if found["type_key"] != CONSTANT:
            return None
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
        return arrays[number]

    root = node(graph["root"])
    found: dict[str, list[NDArray[Any] | None]] = {}
    for key, value in zip(root.get("keys", ()), root.get("data", ()), strict=True):
        items = node(value).get("data", ())
        found[str(key)] = [constant(item) for item in items]
    return found
