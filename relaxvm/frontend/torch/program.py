"""Programs as modules."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import RelaxVMError
from ...executable.model_info import ModelInfo
from ...ir import BlockBuilder, Expr, IRModule, Tuple
from ...ir.nesting import headroom
from ...limits import Limits
from ...messages import readable
from ...vm.limited import run_limited
from ..common.emitter import Problem
from ..common.files import file_content
from ..common.generators import with_effects
from . import messages
from .archive import Archive
from .check import has_effects, refuse_unknown
from .graph import Context, Graph
from .interface import Interface
from .registry import load

__all__ = ["from_exported_program", "open_archive"]


def open_archive(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    limits: Limits | None = None,
) -> Archive:
    """Open an archive.

    Args:
        source: a path, which is mapped into memory unless `limits` lower ``file_bytes``; the bytes;
            or a live ``torch.export.ExportedProgram``.
        limits: bounds of bytes and of what is read.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not an archive.
        LimitError: it is larger than `limits` allow.
    """
    limits = limits or Limits()
    data: Any
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        data = file_content(source, limits)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        name, data = "<program>", source
        limits.check("file_bytes", memoryview(data).nbytes, name)
    elif hasattr(source, "graph_signature") and hasattr(source, "graph_module"):
        from torch.export import save

        file_in_memory = io.BytesIO()
        save(source, file_in_memory)
        name, data = "<program>", file_in_memory.getvalue()
    else:
        raise TypeError(
            f"from_exported_program: expected a path, bytes or a torch.export.ExportedProgram, got "
            f"{type(source).__name__}"
        )
    return Archive(memoryview(data), name, limits)


def from_exported_program(
    exported_program: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    run_ep_decomposition: bool = False,
    model: str | None = None,
    operators: Mapping[str, Callable[..., Any]] | None = None,
    functional: bool = False,
    flat: bool = False,
    extra_outputs: Sequence[str] = (),
    limits: Limits | None = None,
) -> IRModule:
    """Import a program that ``torch.export`` made.

    Args:
        exported_program: the path of an archive of ``torch.export.save`` (.pt2); its bytes; or a
            live ``torch.export.ExportedProgram``.
        keep_params_as_input: whether parameters of the model become parameters of the function,
            after the inputs; their values are the attribute "params" of the function.
        unwrap_unit_return_tuple: with `flat`, whether a single result is not in a tuple.
        no_bind_return_tuple: accepted, and has no effect: the tuple of results is never bound.
        run_ep_decomposition: whether torch decomposes a live program to its core operators first.
        model: name of the program in the archive, if it has several.
        operators: name of an operator, such as "my::op", -> function for it; see
            `relaxvm.frontend.torch.registry`.
        functional: what the model changes, its buffers and its inputs, becomes results; the buffers
            become parameters, too.  The result is a pair: what the model returns, and a tuple of
            the new contents.  Without it the VM keeps the buffers, in ``vm.state``, and writes to
            the inputs.
        flat: the inputs and outputs are the tensors of the graph: no dicts, no tuples in tuples.
        extra_outputs: names of tensors of the graph that are results, too: the result is a pair
            then, of what the program returns and a tuple of these tensors, as their nodes left
            them.
        limits: bounds for a program of unknown origin: the time and memory of the import
            (`wall_time`, `live_bytes`, `alloc_bytes`), and the bytes of a file (`file_bytes`),
            which is read and not mapped into memory if this is lower than that of ``Limits()``.

    Returns:
        A module with a function "main", which has the parameters of the model's ``forward`` and
        returns what that returns.

    Raises:
        OSError: the file cannot be read.
        TypeError: `exported_program` is none of these.
        FormatError: the file is not an archive, or is malformed.
        RelaxVMError: nodes cannot be imported; the message lists all of unknown operators.
        LimitError: a limit is reached.

    Source: ``tvm.relax.frontend.torch.from_exported_program`` of apache-tvm 0.27.
    """

    def work() -> IRModule:
        load()
        source = exported_program
        if run_ep_decomposition:
            if not hasattr(source, "run_decompositions"):
                raise TypeError(
                    "from_exported_program: run_ep_decomposition: expected a live "
                    "torch.export.ExportedProgram; an archive has the operators that it has"
                )
            source = source.run_decompositions()
        archive = open_archive(source, limits)
        name, program = archive.program(model)
        with headroom("from_exported_program"):
            return _import(
                archive, name, program, operators or {},
                {"keeps_params": keep_params_as_input, "is_functional": functional,
                 "is_flat": flat}, unwrap_unit_return_tuple, extra_outputs,
            )  # fmt: skip

    return run_limited(work, limits, "from_exported_program")


def _import(
    archive: Archive,
    name: str,
    program: messages.ExportedProgram,
    operators: Mapping[str, Callable[..., Any]],
    options: Mapping[str, bool],
    unwraps: bool,
    extra_outputs: Sequence[str],
) -> IRModule:
    tensors = archive.tensors(name)
    builder = BlockBuilder()
    context = Context(builder, archive.name, operators)
    graph = program.graph_module.graph
    refuse_unknown(context, graph)
    top = Graph(context, graph)
    top.watched = dict.fromkeys(extra_outputs)
    try:
        interface = Interface(top, program, tensors, **options)
        pure = interface.is_pure and not has_effects(context, graph)
        with builder.function("main", interface.params, interface.attrs, pure=pure):
            interface.begin()
            top.add_nodes(graph.nodes)
            builder.place = top.span = None
            result = interface.end()
            if unwraps and isinstance(result, Tuple) and len(result.fields) == 1:
                result = result.fields[0]
            if extra_outputs:
                result = Tuple([result, Tuple(_watched(top))])
            builder.emit_func_output(result)
    except Problem as problem:
        raise RelaxVMError(f"{archive.name}: {problem}") from problem.__cause__
    about = ModelInfo(producer="pytorch", producer_version=program.torch_version)
    module = with_effects(builder.get(), context).with_attr("model", about.as_attribute())
    module.sources = context.places.texts()
    return module


def _watched(graph: Graph) -> list[Expr]:
    """The tensors of `extra_outputs`."""
    found = []
    for name, value in graph.watched.items():
        if value is None:
            raise Problem(f"extra_outputs: no node makes a tensor {readable(name)!r}")
        found.append(graph.expr(value))
    return found
