"""Models as modules."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import as_dtype
from ...errors import FormatError, RelaxVMError
from ...executable.file_kinds import HEAD_BYTES, KINDS, kind_of
from ...executable.model_info import is_named
from ...ir import (
    ANY,
    BlockBuilder,
    Expr,
    IntImm,
    IRModule,
    ShapeExpr,
    TensorType,
    Tuple,
    Var,
)
from ...ir.nesting import headroom
from ...limits import Limits
from ...messages import readable
from ...vm.limited import run_limited
from ..common.files import file_content
from ..common.generators import with_effects
from ..common.values import Kind, TensorKind, Value
from . import messages
from . import operators as _operators  # noqa: F401  (they register themselves)
from .caches import Caches
from .described import described
from .graph import Context, Graph, Problem, kind_of_type, number_of
from .order import in_order, outer_names
from .tensors import ExternalData
from .wire import read

__all__ = ["from_onnx", "read_model"]


def read_model(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    limits: Limits | None = None,
) -> tuple[messages.Model, str, Path | None]:
    """Read the messages of a model; its name for messages of errors, and its folder.

    Args:
        source: a path, which is mapped into memory unless `limits` lower ``file_bytes``; the bytes;
            or an ``onnx.ModelProto``.
        limits: bounds of bytes and of a file; None: those of ``Limits()``.

    Raises:
        OSError: the file cannot be read.
        FormatError: it is not an ONNX model.
        LimitError: it is larger than `limits` allow.
    """
    limits = limits or Limits()
    folder: Path | None = None
    data: Any
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        folder = Path(source).resolve().parent
        data = file_content(source, limits)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        name, data = "<model>", source
        limits.check("file_bytes", memoryview(data).nbytes, name)
    elif hasattr(source, "SerializeToString"):
        name, data = "<model>", source.SerializeToString()
    else:
        raise TypeError(
            f"from_onnx: expected a path, bytes or a ModelProto, got {type(source).__name__}"
        )
    kind = kind_of(bytes(memoryview(data)[:HEAD_BYTES]))
    other = "" if kind is None or kind is KINDS["onnx"] else f"; {kind}"
    try:
        model = read(messages.Model, data, name)
    except FormatError as error:
        if kind is KINDS["onnx"]:
            raise
        detail = str(error).removeprefix(f"{name}: ")
        raise FormatError(f"{name}: expected an ONNX model{other or f' ({detail})'}") from error
    if model.graph is None or not (model.ir_version or model.opset_import):
        raise FormatError(f"{name}: expected an ONNX model{other or ', got something else'}")
    return model, name, folder


def from_onnx(
    model: str | os.PathLike[str] | bytes | bytearray | memoryview | Any,
    shape_dict: Mapping[str, Sequence[Any]] | None = None,
    dtype_dict: str | Mapping[str, str] | None = None,
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    operators: Mapping[tuple[str, str], Callable[..., Any]] | None = None,
    constants_as_inputs: Collection[str] = (),
    extra_outputs: Sequence[str] = (),
    outputs: Sequence[str] | None = None,
    caches: Mapping[str, str] | None = None,
    constants: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    limits: Limits | None = None,
) -> IRModule:
    """Import an ONNX model.

    Args:
        model: a path, the bytes, or an ``onnx.ModelProto``.
        shape_dict: name of an input -> its shape, in place of the model's; dimensions are ints, or
            names of symbolic ones.
        dtype_dict: data type of all inputs, or name of an input -> its data type, in place of the
            model's.
        opset: version of the operators, in place of the model's.
        keep_params_in_input: whether constants become parameters, after the inputs; their values
            are the attribute "params" of the function.
        sanitize_input_names: whether names of inputs become identifiers.
        operators: (domain, name) -> function for operators, in place of relaxvm's own; see
            `relaxvm.frontend.onnx.registry`.
        constants_as_inputs: names of constants that the model declares as inputs, too, and that a
            caller gives instead of the model.
        extra_outputs: names of values of the graph that are results, too, after the model's
            outputs.
        outputs: names of the model's outputs that are results, in this order; None for all.  What
            only others need is not computed.
        caches: name of an input -> name of the output that continues it, as the keys and values of
            a decoder do.  Both become state that the VM keeps (``vm.state``), empty at first, and
            what is new is written behind what is there, without a copy; see
            `relaxvm.frontend.onnx.caches`.
        constants: name of a constant -> its value, in place of the model's.  Names that the model
            does not have are ignored.
        files: name of a file with elements of constants, as the model has it -> the bytes, in place
            of a file in the folder of the model.
        limits: bounds for a model of unknown origin: the time and memory of the import
            (`wall_time`, `live_bytes`, `alloc_bytes`), and the bytes of a file (`file_bytes`),
            which is read and not mapped into memory if this is lower than that of ``Limits()``.

    Returns:
        A module with a function "main", whose parameters are the inputs and whose result is the
        output, or a tuple of the outputs.  Its attributes "input_names" and "output_names" have the
        names in the model.  The module's attribute "model" is what the model says of itself, see
        `relaxvm.executable.model_info`.

    Raises:
        OSError: a file cannot be read.
        FormatError: the file is not a model, or is malformed.
        RelaxVMError: nodes cannot be imported; the message lists all of unknown operators.
        ValueError: one of `constants_as_inputs` is no constant, or no input; one of `outputs` is no
            output; `caches` has an output that does not continue the input; `shape_dict` or
            `dtype_dict` has a name that no input has, or a shape that none can have.
        TypeError: `dtype_dict` has no data types, `opset` is no int, or `operators` are no
            functions by domain and name.
        LimitError: a limit is reached.

    Source: ``tvm.relax.frontend.onnx.from_onnx`` of apache-tvm 0.27.
    """

    def work() -> IRModule:
        found, name, folder = read_model(model, limits)
        if extra_outputs:
            _add_outputs(found, extra_outputs)
        assert found.graph is not None
        kept = Caches(name, found.graph, caches) if caches else None
        if outputs is not None:
            _choose_outputs(found.graph, outputs, kept, name)
        with headroom("from_onnx"):
            return _import(
                found, name, ExternalData(folder, limits, files), shape_dict, dtype_dict, opset,
                keep_params_in_input, sanitize_input_names, operators or {}, constants_as_inputs,
                kept, constants or {},
            )  # fmt: skip

    return run_limited(work, limits, "from_onnx")


def _import(
    found: messages.Model,
    name: str,
    external: ExternalData,
    shape_dict: Mapping[str, Sequence[Any]] | None,
    dtype_dict: str | Mapping[str, str] | None,
    opset: int | None,
    keep_params_in_input: bool,
    sanitize_input_names: bool,
    operators: Mapping[tuple[str, str], Callable[..., Any]],
    constants_as_inputs: Collection[str],
    caches: Caches | None,
    replaced: Mapping[str, Any],
) -> IRModule:
    assert found.graph is not None
    graph = found.graph
    _check_settings(graph, name, shape_dict, dtype_dict, opset)
    if constants_as_inputs:
        _leave_to_callers(graph, constants_as_inputs, name)
    versions = {("" if v.domain == "ai.onnx" else v.domain): v.version for v in found.opset_import}
    versions.setdefault("", 1)
    if opset is not None:
        versions[""] = opset
    builder = BlockBuilder()
    context = Context(builder, name, found, versions, external, operators)
    if caches is not None:
        caches.use(context)
    _refuse_unknown(context, found, graph)
    top = Graph(context)
    try:
        top.add_constants(graph, {name: np.array(each) for name, each in replaced.items()})
    except Problem as problem:
        raise RelaxVMError(f"{name}: {problem}") from None
    constants = set(top.values)
    inputs = [each for each in graph.input if each.name not in constants]
    params: list[Var] = []
    texts: list[tuple[str, Var, TensorKind]] = []
    names = _ParameterNames(sanitize_input_names)
    defined = set(constants)
    for each in inputs:
        if each.name in defined:
            raise RelaxVMError(f"{name}: there are two inputs {readable(each.name)!r}")
        defined.add(each.name)
        try:
            kind = _input_kind(context, each, shape_dict, dtype_dict)
        except Problem as problem:
            raise RelaxVMError(str(problem)) from None
        if caches is not None and each.name in caches:
            try:
                caches.keep(each.name, kind)
            except Problem as problem:
                raise RelaxVMError(f"{name}: {problem}") from None
        elif isinstance(kind, TensorKind) and kind.dtype == "str":
            params.append(Var(names.of(each.name), ANY))
            texts.append((each.name, params[-1], kind))
        elif isinstance(kind, TensorKind):
            ty = TensorType.of(kind.dims, kind.dtype, ndim=kind.ndim)
            params.append(Var(names.of(each.name), ty))
            top[each.name] = Value(params[-1])
        else:
            params.append(Var(names.of(each.name), ANY))
            top[each.name] = Value(params[-1], compound=kind)
    if caches is not None:
        inputs = [each for each in inputs if each.name not in caches]
        graph.output = [each for each in graph.output if each.name not in caches]
    kept: list[Any] = []
    if keep_params_in_input:
        for tensor in graph.initializer:
            known = top[tensor.name].known
            assert known is not None
            if known.ndim and known.dtype.kind != "O":
                ty = TensorType(known.shape, known.dtype.name)
                params.append(Var(names.of(tensor.name), ty))
                top.values[tensor.name] = Value(params[-1], known)
                kept.append(known)
    attrs: dict[str, Any] = {
        "num_input": len(inputs),
        "input_names": [each.name for each in inputs],
        "output_names": [each.name for each in graph.output],
    }
    if kept:
        attrs["params"] = kept
    with builder.function("main", params, attrs):
        for text_name, param, text_kind in texts:
            top[text_name] = top.typed(param, text_kind, text_name)
        try:
            if caches is not None:
                caches.open(top)
            top.add_nodes(graph.node)
            results: list[Expr] = [top.expr(top[output.name]) for output in graph.output]
        except Problem as problem:
            raise RelaxVMError(f"{name}: {problem}") from problem.__cause__
        builder.place = None
        builder.emit_func_output(results[0] if len(results) == 1 else Tuple(results))
    about = described(found, inputs, results, context.external.files)
    module = builder.get().with_attr("model", about.as_attribute())
    module = with_effects(module, context)
    module.sources = {name: context.places.text()}
    return module


def _leave_to_callers(graph: messages.Graph, names: Collection[str], model: str) -> None:
    """Take the values of constants out of a graph, so that they are inputs.

    Raises:
        ValueError: a name is not that of a constant which is an input, too.
    """
    inputs = {each.name for each in graph.input}
    constants = {tensor.name for tensor in graph.initializer} & inputs
    for wrong in set(names) - constants:
        raise ValueError(
            f"{model}: constants_as_inputs: expected names of constants that are inputs, too "
            f"({', '.join(map(readable, sorted(constants))) or 'there are none'}), "
            f"got {readable(wrong)!r}"
        )
    graph.initializer = [tensor for tensor in graph.initializer if tensor.name not in names]


def _choose_outputs(
    graph: messages.Graph, names: Sequence[str], caches: Caches | None, model: str
) -> None:
    """Leave some of the outputs, and the nodes that they, or caches, need.

    Raises:
        ValueError: a name is not that of an output, or occurs twice.
    """
    found = {each.name: each for each in graph.output}
    for name in names:
        if name not in found:
            raise ValueError(f"{model}: outputs: expected names of outputs "
                             f"({', '.join(map(readable, found))}), got {name!r}")  # fmt: skip
    if len({*names}) < len(names) or not names:
        raise ValueError(f"{model}: outputs: expected at least one name, and each once, got "
                         f"{[*names]}")  # fmt: skip
    kept = [name for name in found if caches is not None and name in caches]
    graph.output = [found[name] for name in (*names, *(k for k in kept if k not in names))]
    wanted = {each.name for each in graph.output}
    needed = []
    for node in reversed(in_order(graph.node)):
        if wanted.isdisjoint(node.output):
            continue
        needed.append(node)
        wanted.update(node.input)
        wanted.update(outer_names(node))
    graph.node = needed[::-1]


def _add_outputs(model: messages.Model, names: Sequence[str]) -> None:
    """Let values of the graph be outputs, after those that there are."""
    assert model.graph is not None
    added = []
    for name in names:
        value = messages.Value()
        value.name = name
        added.append(value)
    model.graph.output = [*model.graph.output, *added]


class _ParameterNames:
    """Chooses names of parameters: each once, so that arguments may be given by name."""

    def __init__(self, sanitize: bool) -> None:
        self._sanitize = sanitize
        self._used: set[str] = set()

    def of(self, name: str) -> str:
        """The name of the parameter for an input or constant."""
        found = wanted = _parameter_name(name) if self._sanitize else name
        number = 0
        while found in self._used:
            number += 1
            found = f"{wanted}_{number}"
        self._used.add(found)
        return found


def _parameter_name(name: str) -> str:
    """A name as an identifier, as TVM's importer writes it where it makes one."""
    found = re.sub(r"\W", "_", name) or "empty_"
    return f"input_{found}" if not (found[0].isalpha() or found[0] == "_") else found


def _input_kind(
    context: Context,
    value: messages.Value,
    shapes: Mapping[str, Sequence[Any]] | None,
    dtypes: str | Mapping[str, str] | None,
) -> Kind:
    name = value.name

    def dim(dimension: messages.Dimension, place: int) -> Expr:
        number = number_of(dimension, place)
        if number is not None:
            return number
        text = dimension.name.strip()
        has_name = is_named(text) and dimension.value >= 0
        return context.symbol(text if has_name else f"{name}_{place}")

    kind = kind_of_type(value.type, dim, f"{context.name}: input {readable(name)!r}")
    dtype = dtypes if isinstance(dtypes, str) else (dtypes or {}).get(name)
    if not isinstance(kind, TensorKind):
        return kind
    if not (dtype or kind.dtype):
        raise Problem(f"{context.name}: input {readable(name)!r}: expected a data type")
    dims = kind.dims
    if shapes is not None and name in shapes:
        dims = _given_shape(context, name, shapes[name])
    return TensorKind(dtype or kind.dtype, -1 if dims is None else len(dims), dims)


def _given_shape(context: Context, name: str, given: Sequence[Any]) -> tuple[Expr, ...]:
    """The shape of an input that the caller gave."""
    subject = f"{context.name}: shape_dict[{readable(name)!r}]"
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{subject}: expected a sequence of dimensions, got {given!r}")
    dims: list[Expr] = []
    dim: Expr | None
    for each in given:
        try:
            (dim,) = ShapeExpr([context.symbol(each) if isinstance(each, str) else each]).values
        except (TypeError, OverflowError):
            dim = None
        is_negative = isinstance(dim, IntImm) and dim.value < 0
        if dim is None or is_negative or isinstance(each, bool):
            raise ValueError(
                f"{subject}: expected lengths of axes, names or expressions of int64, got {each!r}"
            )
        dims.append(dim)
    return tuple(dims)


def _check_settings(
    graph: messages.Graph,
    model: str,
    shapes: Mapping[str, Sequence[Any]] | None,
    dtypes: str | Mapping[str, str] | None,
    opset: int | None,
) -> None:
    """Refuse what a caller says of inputs that the model does not have, and wrong values.

    Raises:
        ValueError: a name is not that of an input, or a version is below 1.
        TypeError: something has a wrong type, or is no data type.
    """
    names = {each.name for each in graph.input} | {each.name for each in graph.initializer}
    for label, given in (("shape_dict", shapes), ("dtype_dict", dtypes)):
        if given is None or isinstance(given, str):
            continue
        if not isinstance(given, Mapping):
            raise TypeError(f"{model}: {label}: expected a mapping, got {type(given).__name__}")
        for wrong in given:
            if wrong not in names:
                known = ", ".join(readable(each.name) for each in graph.input)
                raise ValueError(
                    f"{model}: {label}: expected names of inputs ({known}), got {wrong!r}"
                )
    said = {"": dtypes} if isinstance(dtypes, str) else dtypes or {}
    for name, dtype in said.items():
        try:
            as_dtype(dtype)
        except TypeError as error:
            place = f"dtype_dict[{name!r}]" if name else "dtype_dict"
            raise TypeError(f"{model}: {place}: {error}") from None
    if opset is not None:
        if not isinstance(opset, int):
            raise TypeError(f"{model}: opset: expected an int, got {type(opset).__name__}")
        if opset < 1:
            raise ValueError(f"{model}: opset: expected a version of at least 1, got {opset}")


def _refuse_unknown(context: Context, model: messages.Model, graph: messages.Graph) -> None:
    """Raise an error that lists all nodes whose operators are unknown."""
    from .check import unsupported_nodes

    problems = unsupported_nodes(context, model, graph)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        which = "nodes have operators that are"
        if len(problems) == 1:
            which = "node has an operator that is"
        raise RelaxVMError(
            f"{context.name}: {len(problems)} {which} not supported:\n"
            f"{lines}\n"
            f"pass functions for them: from_onnx(..., operators={{(domain, name): function}})"
        )
