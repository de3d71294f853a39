"""What a model says of itself, as the record that executables keep."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Final

from ...executable.model_info import ModelInfo, ValueInfo
from ...ir import Expr, IntImm, TensorType, Var
from . import messages

__all__ = ["described"]

_FIRST_WITH_DEFAULTS: Final = 4
"""The first version of the format in which a constant that is an input, too, is its default."""

_SPELLED: Final = {
    messages.DataType.FLOAT8E4M3FN: "float8e4m3fn",
    messages.DataType.FLOAT8E4M3FNUZ: "float8e4m3fnuz",
    messages.DataType.FLOAT8E5M2: "float8e5m2",
    messages.DataType.FLOAT8E5M2FNUZ: "float8e5m2fnuz",
}


def described(
    model: messages.Model,
    inputs: Iterable[messages.Value],
    results: Sequence[Expr],
    files: Iterable[str],
) -> ModelInfo:
    """The record of a model.

    Args:
        model: what the file says.
        inputs: those of the graph that are no constants.
        results: the outputs in the program: their types complete what the model leaves open.
        files: names of the files beside the model that were read.
    """
    graph = model.graph
    assert graph is not None
    given = list(inputs)
    names = {each.name for each in given}
    constants = graph.input if model.ir_version >= _FIRST_WITH_DEFAULTS else ()
    symbols = {dim for each in map(_value, given) for dim in each.dims or () if dim is not None}
    outputs = [
        _completed(_value(output), result, symbols)
        for output, result in zip(graph.output, results, strict=True)
    ]
    return ModelInfo(
        producer=model.producer_name, producer_version=model.producer_version,
        domain=model.domain, description=model.doc_string,
        version=model.model_version if model.has("model_version") else None,
        graph=graph.name, graph_description=graph.doc_string,
        metadata=tuple({pair.key: pair.value for pair in model.metadata_props}.items()),
        inputs=tuple(map(_value, given)), outputs=tuple(outputs),
        constants=tuple([_value(each) for each in constants if each.name not in names]),
        files=tuple(sorted(files)),
    )  # fmt: skip


def _value(value: messages.Value) -> ValueInfo:
    ty = value.type
    while ty is not None and (inner := ty.sequence or ty.optional) is not None:
        ty = inner.elem_type
    tensor = None if ty is None else ty.tensor
    dims = None
    if tensor is not None and tensor.shape is not None:
        dims = tuple(map(_dim, tensor.shape.dims))
    return ValueInfo(value.name, _spelled(value.type), dims)


def _dim(dim: messages.Dimension) -> int | str | None:
    if dim.name:
        return dim.name
    return dim.value if dim.has("value") and dim.value >= 0 else None


def _spelled(ty: messages.TypeOf | None) -> str:
    """A type as the standard spells it; an empty text if there is none."""
    if ty is None:
        return ""
    for kind, tensor in (("tensor", ty.tensor), ("sparse_tensor", ty.sparse_tensor)):
        if tensor is not None:
            return f"{kind}({_element(tensor.elem_type)})"
    for kind, inner in (("seq", ty.sequence), ("optional", ty.optional)):
        if inner is not None:
            return f"{kind}({_spelled(inner.elem_type)})"
    if ty.map is not None:
        return f"map({_element(ty.map.key_type)},{_spelled(ty.map.value_type)})"
    return ""


def _element(code: int) -> str:
    try:
        kind = messages.DataType(code)
    except ValueError:
        return ""
    return _SPELLED.get(kind, kind.name.lower())


def _completed(value: ValueInfo, result: Expr, symbols: Container[int | str]) -> ValueInfo:
    """What a model says of an output, and where it says nothing, what the program knows, with the
    symbols of the model."""
    ty = getattr(result, "ty", None)
    if not isinstance(ty, TensorType) or not value.type.startswith("tensor("):
        return value
    known = ty.dims
    if known is None or (value.dims is not None and len(known) != len(value.dims)):
        return value
    inferred = [
        dim.value if isinstance(dim, IntImm)
        else dim.name if isinstance(dim, Var) and dim.name in symbols else None
        for dim in known
    ]  # fmt: skip
    stated = value.dims or (None,) * len(inferred)
    dims = [b if a is None else a for a, b in zip(stated, inferred, strict=True)]
    return ValueInfo(value.name, value.type, tuple(dims))
