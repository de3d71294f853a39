"""What relaxvm has to say about a program of torch.export before it compiles it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from ...ir import BlockBuilder
from ...limits import Limits
from ...vm.limited import run_limited
from .check import UnsupportedNode, unsupported_nodes
from .graph import Context
from .program import open_archive
from .registry import load

__all__ = ["ProgramReport", "report"]


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A program at a glance.

    Attributes:
        nodes: how many its main graph has.
        versions: "schema" and the namespaces of operators -> version.
        producer: the torch that wrote it.
        metadata: texts by name that an application reads.
        unsupported: nodes whose operators are not supported, those in graphs within it included.
    """

    nodes: int
    versions: dict[str, int]
    producer: str
    metadata: dict[str, str]
    unsupported: list[UnsupportedNode]


def report(
    program: str | os.PathLike[str] | bytes | Any,
    *,
    model: str | None = None,
    limits: Limits | None = None,
) -> ProgramReport:
    """Read a program, and list all nodes whose operators are not supported.  Nothing is imported.

    Args:
        program, model: as of `from_exported_program`.
        limits: bounds for a program of unknown origin.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not an archive, or malformed.
        LimitError: a limit is reached.
    """

    def work() -> ProgramReport:
        load()
        archive = open_archive(program, limits)
        _, found = archive.program(model)
        context = Context(BlockBuilder(), archive.name, {})
        graph = found.graph_module.graph
        return ProgramReport(
            len(graph.nodes),
            {"schema": found.schema_version.major, **found.opset_version},
            f"torch {found.torch_version}",
            found.graph_module.metadata,
            list(unsupported_nodes(context, graph)),
        )

    return run_limited(work, limits, "report")
