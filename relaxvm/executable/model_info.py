"""What a model says of itself: its name, author and description, and the types of its interface.

A program does not need it to run.  Doors for programs of other runtimes answer from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

__all__ = ["ModelInfo", "ValueInfo", "is_named"]

_TEXTS = (
    "producer", "producer_version", "domain", "description", "graph", "graph_description",
)  # fmt: skip


_UNNAMED = frozenset({"", "?", "None", "-1", "0", "*"})


def is_named(dim: str) -> bool:
    """Whether the text of a symbolic dimension is its name.  Some exporters write the same text,
    such as "?", for all dimensions that they do not know."""
    dim = dim.strip()
    return dim not in _UNNAMED and not dim.startswith("unk__")


class ValueInfo(NamedTuple):
    """An input, an output, or a constant that a run may replace.

    Attributes:
        name: in the model.
        type: as the ONNX standard spells it: ``tensor(float)``, ``seq(tensor(int64))``.
        dims: numbers, names of symbolic dimensions, and None for unknown ones; None if not even
            their number is known.  Of a sequence or an optional value, those of its tensors.
    """

    name: str
    type: str
    dims: tuple[int | str | None, ...] | None = None

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """`dims` of a tensor; None for other values."""
        return self.dims if self.type.startswith("tensor(") else None


class ModelInfo(NamedTuple):
    """What a model says of itself.

    Attributes:
        producer, producer_version: of the program that has written it.
        domain, version, description: of the model; the version is None if it has none.
        graph, graph_description: the name of its graph, and what that says.
        metadata: keys and values, of any kind.
        inputs, outputs: of the function ``main``, in order.
        constants: those that the model declares as inputs, too, with these values as defaults.
        files: names of the files beside the model that have elements of its tensors.
    """

    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    version: int | None = None
    description: str = ""
    graph: str = ""
    graph_description: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    inputs: tuple[ValueInfo, ...] = ()
    outputs: tuple[ValueInfo, ...] = ()
    constants: tuple[ValueInfo, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def texts(self) -> Iterator[tuple[str, str]]:
        """The single texts, by the names of the attributes."""
        return ((name, getattr(self, name)) for name in _TEXTS)

    def as_attribute(self) -> dict[str, Any]:
        """The same as values that an attribute of a module can have."""
        found: dict[str, Any] = {**dict(self.texts), "version": self.version}
        found["files"] = list(self.files)
        found["metadata"] = [list(pair) for pair in self.metadata]
        for kind in ("inputs", "outputs", "constants"):
            found[kind] = [
                [each.name, each.type, None if each.dims is None else list(each.dims)]
                for each in getattr(self, kind)
            ]
        return found

    @classmethod
    def of_attribute(cls, value: Any) -> ModelInfo | None:
        """What `as_attribute` was called on; None if `value` is something else, or has texts that
        no file can have."""
        if not isinstance(value, Mapping):
            return None
        try:
            texts: dict[str, Any] = {name: _text(value[name]) for name in _TEXTS}
            version = value["version"]
            return cls(
                **texts,
                version=None if version is None else _number(version),
                metadata=tuple([(_text(k), _text(v)) for k, v in value["metadata"]]),
                inputs=_values(value["inputs"]),
                outputs=_values(value["outputs"]),
                constants=_values(value["constants"]),
                files=tuple(map(_text, value["files"])),
            )
        except (KeyError, TypeError, ValueError):
            return None


def _values(value: Any) -> tuple[ValueInfo, ...]:
    return tuple([
        ValueInfo(_text(name), _text(kind), None if dims is None else tuple(map(_dim, dims)))
        for name, kind, dims in value
    ])  # fmt: skip


def _dim(value: Any) -> int | str | None:
    if value is None:
        return None
    return _text(value) if isinstance(value, str) else _number(value)


def _text(value: Any) -> str:
    if type(value) is not str or "\0" in value:
        raise ValueError("expected a text without NUL")
    value.encode()  # a UnicodeEncodeError is a ValueError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise ValueError("expected a number of 64 bits")
    return value
