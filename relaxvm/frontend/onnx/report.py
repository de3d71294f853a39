"""What relaxvm has to say about a model before it compiles it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ...ir import BlockBuilder
from ...limits import Limits
from ...vm.limited import run_limited
from .check import UnsupportedNode, unsupported_nodes
from .graph import Context
from .program import read_model
from .tensors import ExternalData

__all__ = ["ModelReport", "report"]


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A model at a glance.

    Attributes:
        nodes: how many its main graph has.
        versions: domain -> version of its operators; "ai.onnx" for the default one.
        producer: the program that wrote it, and its version.
        metadata: texts by name that an application reads.
        unsupported: nodes whose operators are not supported, those in graphs within it included.
    """

    nodes: int
    versions: dict[str, int]
    producer: str
    metadata: dict[str, str]
    unsupported: list[UnsupportedNode]


def report(
    model: str | os.PathLike[str] | bytes | Any, *, limits: Limits | None = None
) -> ModelReport:
    """Read a model, and list all nodes whose operators are not supported.  Nothing is imported.

    Args:
        model: as of `from_onnx`.
        limits: bounds for a model of unknown origin.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not an ONNX model, or malformed.
        LimitError: a limit is reached.
    """

    def work() -> ModelReport:
        found, name, folder = read_model(model, limits)
        assert found.graph is not None
        versions = {("" if v.domain == "ai.onnx" else v.domain): v.version
                    for v in found.opset_import}  # fmt: skip
        versions.setdefault("", 1)
        context = Context(BlockBuilder(), name, found, versions, ExternalData(folder, limits), {})
        return ModelReport(
            len(found.graph.node),
            {domain or "ai.onnx": version for domain, version in versions.items()},
            f"{found.producer_name} {found.producer_version}".strip(),
            {entry.key: entry.value for entry in found.metadata_props},
            unsupported_nodes(context, found, found.graph),
        )

    return run_limited(work, limits, "report")
