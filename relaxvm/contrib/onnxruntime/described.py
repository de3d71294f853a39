"""What a session says of its model: `NodeArg` and `ModelMetadata`."""

from __future__ import annotations

from typing import Final

from ...executable.model_info import ModelInfo, ValueInfo

__all__ = ["ModelMetadata", "NodeArg"]

_HOME: Final = "onnxruntime.capi.onnxruntime_pybind11_state"

_NO_VERSION: Final = (1 << 63) - 1
"""The version of a model without one, as onnxruntime says."""


class NodeArg:
    """An input or output.

    Attributes:
        name: in the model.
        type: ``tensor(float)``, for example.
        shape: numbers, names of symbolic dimensions, and None for unknown ones.
    """

    __module__ = _HOME
    __slots__ = ("name", "shape", "type")

    def __init__(self, value: ValueInfo) -> None:
        self.name = value.name
        self.type = value.type
        self.shape: list[int | str | None] = list(value.shape or ())

    def __repr__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape!r})"


class ModelMetadata:
    """What a model says of itself.

    Attributes:
        custom_metadata_map: keys and texts of any kind.
        description, domain, graph_description, graph_name, producer_name: texts.
        version: a number.
    """

    __module__ = _HOME
    __slots__ = ("custom_metadata_map", "description", "domain", "graph_description", "graph_name",
                 "producer_name", "version")  # fmt: skip

    def __init__(self, model: ModelInfo) -> None:
        self.custom_metadata_map = dict(model.metadata)
        self.description = model.description
        self.domain = model.domain
        self.graph_description = model.graph_description
        self.graph_name = model.graph
        self.producer_name = model.producer
        self.version = _NO_VERSION if model.version is None else model.version
