"""Programs as modules."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import FormatError, RelaxVMError
from ...ir import BlockBuilder, Constant, Expr, IRModule, TensorType, Tuple, Var
from ...ir.nesting import headroom
from ...limits import Limits
from ...messages import readable
from ...vm.limited import run_limited
from ..common.emitter import Problem, identifier
from ..common.values import Value
from . import messages
from .archive import Archive
from .check import refuse_unknown
from .graph import Context, Graph
from .registry import load

__all__ = ["from_exported_program", "open_archive"]


def open_archive(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    limits: Limits | None = None,
) -> Archive:
    """Open an archive.

    Args:
        source: a path, which is mapped into memory; the bytes; or a live
            ``torch.export.ExportedProgram``.
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
        with open(source, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
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
    program: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    *,
    model: str | None = None,
    operators: Mapping[str, Callable[..., Any]] | None = None,
    limits: Limits | None = None,
) -> IRModule:
    """Import a program that ``torch.export`` made.

    Args:
        program: the path of an archive of ``torch.export.save`` (.pt2); its bytes; or a live
            ``torch.export.ExportedProgram``.
        model: name of the program in the archive, if it has several.
        operators: name of an operator, as "my::op", -> function for it; see
            `relaxvm.frontend.torch.registry`.
        limits: bounds for a program of unknown origin: the time and memory of the import
            (`wall_time`, `live_bytes`, `alloc_bytes`), and `file_bytes` of bytes.

    Returns:
        A module with a function "main".

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not an archive, or is malformed.
        RelaxVMError: nodes cannot be imported; the message lists all of unknown operators.
        LimitError: a limit is reached.
    """

    def work() -> IRModule:
        load()
        archive = open_archive(program, limits)
        name, found = archive.program(model)
        with headroom("from_exported_program"):
            return _import(archive, name, found, operators or {})

    return run_limited(work, limits, "from_exported_program")


def _import(
    archive: Archive,
    name: str,
    program: messages.ExportedProgram,
    operators: Mapping[str, Callable[..., Any]],
) -> IRModule:
    tensors = archive.tensors(name)
    builder = BlockBuilder()
    context = Context(builder, archive.name, operators)
    graph = program.graph_module.graph
    refuse_unknown(context, graph)
    top = Graph(context, graph)
    params: list[Var] = []
    signature = program.graph_module.signature
    try:
        for spec in signature.input_specs:
            _add_input(top, spec, tensors, params)
    except Problem as problem:
        raise RelaxVMError(f"{archive.name}: {problem}") from None
    with builder.function("main", params):
        try:
            top.add_nodes(graph.nodes)
            results: list[Expr] = []
            for output in signature.output_specs:
                if output.kind != "user_output":
                    raise Problem(f"outputs of the kind {output.kind} are not supported")
                value = top.argument(output.value.arg)
                results.append(top.expr(value.read()))
        except Problem as problem:
            raise RelaxVMError(f"{archive.name}: {problem}") from problem.__cause__
        builder.place = None
        builder.emit_func_output(results[0] if len(results) == 1 else Tuple(results))
    return builder.get()


def _add_input(
    top: Graph, spec: messages.InputSpec, tensors: Mapping[str, NDArray[Any]], params: list[Var]
) -> None:
    kind, content = spec
    if kind in ("parameter", "buffer", "tensor_constant"):
        label = {"parameter": "parameter_name", "buffer": "buffer_name",
                 "tensor_constant": "tensor_constant_name"}[kind]  # fmt: skip
        name = getattr(content, label)
        if name not in tensors:
            raise FormatError(f"{top.context.name}: there is no tensor {readable(name)!r}")
        top[content.arg.name] = Value(Constant(np.asarray(tensors[name])))
    elif kind == "constant_input":
        top.values[content.name] = content.value.value
    elif kind == "user_input" and content.arg.kind == "as_tensor":
        name = content.arg.value.name
        found = top.kind(name)
        if found is None:
            raise Problem(f"there is no type of the input {readable(name)!r}")
        top.context.know(found)
        params.append(Var(identifier(name), TensorType(found.dims, found.dtype)))
        top[name] = Value(params[-1])
    else:
        raise Problem(f"inputs of the kind {kind} are not supported")
