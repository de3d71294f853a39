"""Operators of ai.onnx.ml on maps; see `relaxvm.builtins.maps`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ....ir import TensorType
from ...common.values import MapKind, SequenceKind, TensorKind, Value, kind_of
from ..graph import Graph, Problem
from ..registry import ML, onnx

__all__: list[str] = []

_CASTS: Final = {"TO_FLOAT": "float32", "TO_INT64": "int64", "TO_STRING": "str"}


def _keys(ints: list[int] | None, texts: list[str] | None, subject: str) -> Value:
    """A vector of the keys."""
    if bool(ints) == bool(texts):
        raise Problem(f"{subject}: expected ints or strings as keys")
    known: Any = np.array(ints or texts, np.int64 if ints else object)
    return Value(known=known, dtype="str" if texts else None)


def _map_of(value: Value) -> MapKind:
    kind = kind_of(value)
    if not isinstance(kind, MapKind):
        raise Problem("expected a map")
    return kind


@onnx("ZipMap", since=1, domain=ML)
def zip_map(
    g: Graph,
    x: Value,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> Value:
    """A map for each row, from the labels to the elements: a tuple of dicts."""
    keys = _keys(classlabels_int64s, classlabels_strings, "ZipMap")
    if not isinstance(kind_of(x), TensorKind) or x.dtype in (None, "str"):
        raise Problem("expected a tensor of numbers")
    assert x.dtype is not None
    entry = MapKind("str" if classlabels_strings else "int64", x.dtype)
    return Value(g.builtin("maps_from", [x, keys]), compound=SequenceKind(entry))


@onnx("CastMap", since=1, domain=ML)
def cast_map(
    g: Graph, x: Value, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Value:
    """The values of a map as a row, in the order of the keys, or each in the column of its key."""
    if _map_of(x).key != "int64":
        raise Problem("expected a map whose keys are ints")
    if cast_to not in _CASTS or map_form not in ("DENSE", "SPARSE"):
        raise Problem(f"cast_to: {cast_to!r}, map_form: {map_form!r}: not a form of CastMap")
    dtype = _CASTS[cast_to]
    columns = max_map if map_form == "SPARSE" else -1
    if map_form == "SPARSE" and columns < 1:
        raise Problem(f"max_map: expected 1 or more, got {max_map}")
    found = g.builtin("map_to_tensor", [x, dtype, columns])
    return g.typed(found, TensorKind(dtype, 2))


@onnx("DictVectorizer", since=1, domain=ML)
def dict_vectorizer(
    g: Graph,
    x: Value,
    *,
    int64_vocabulary: list[int] | None = None,
    string_vocabulary: list[str] | None = None,
) -> Value:
    """The values of a map for the keys of the vocabulary, as a row; 0 for others."""
    kind = _map_of(x)
    keys = _keys(int64_vocabulary, string_vocabulary, "DictVectorizer")
    if kind.key != ("str" if string_vocabulary else "int64"):
        raise Problem(f"expected a map whose keys are those of the vocabulary, got {kind.key}")
    found = g.builtin("map_vectorize", [x, keys, kind.dtype])
    if kind.dtype == "str":
        return g.typed(found, TensorKind("str", 2))
    ty = TensorType((1, len(string_vocabulary or int64_vocabulary or ())), kind.dtype)
    return Value(g.context.builder.match_cast(found, ty))
