"""Tensors of strings while a graph is imported; see `relaxvm.builtins.strings`.

A value of strings has a table and a tensor of indices into it.  Operators that only move elements
work on the indices; so rank and dimensions of strings are known as those of numbers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...ir import ANY, Expr, ShapeExpr, StringImm, TensorType, TupleGetItem, TupleType
from ..common.values import TensorKind, Value, as_expr

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["MEASURING", "MOVING", "TAKING", "moved", "packed", "table_of", "unpacked"]

MOVING: Final = frozenset({
    "Compress", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Reshape",
    "ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "Slice", "Split", "Squeeze",
    "Tile", "Transpose", "Unsqueeze", "Where", "ai.onnx.ml.ArrayFeatureExtractor",
})  # fmt: skip
"""Operators that only move elements, so that they take strings as they take numbers."""

TAKING: Final = frozenset({
    "Cast", "CastLike", "ConcatFromSequence", "Constant", "Equal", "Identity", "If", "Loop",
    "Optional", "OptionalGetElement", "OptionalHasElement", "RegexFullMatch", "Scan",
    "SequenceAt", "SequenceConstruct", "SequenceInsert", "SequenceMap", "SplitToSequence",
    "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
})  # fmt: skip
"""Operators of ai.onnx whose functions take strings."""

MEASURING: Final = frozenset({"Shape", "Size"})
"""Operators of ai.onnx that look at shapes alone."""


def table_of(g: Graph, value: Value) -> tuple[Expr, Value]:
    """The table of strings, and the indices."""
    if value.strings is None:
        known = value.known
        assert known is not None
        texts = known.reshape(-1).tolist()
        lengths = ShapeExpr([as_expr(len(text)) for text in texts])
        table = g.builtin("strings_from", [StringImm("".join(texts)), lengths])
        return table, Value(known=np.arange(len(texts)).reshape(known.shape))
    return value.strings


def packed(g: Graph, value: Value) -> Expr:
    """The strings as one value of the program: a tensor of objects."""
    table, indices = table_of(g, value)
    return g.builtin("strings_take", [table, indices])


def unpacked(g: Graph, expr: Expr, kind: TensorKind) -> Value:
    """The value of a tensor of objects, whose rank and dimensions are checked."""
    pair = TupleType([ANY, TensorType(None, "int64")])
    call = g.builtin("strings_indexed", [expr], pair)
    table = g.emit(TupleGetItem(call, 0), "table")
    indices = g.typed(g.emit(TupleGetItem(call, 1)), kind._replace(dtype="int64"))
    return Value(dtype="str", strings=(table, indices))


def moved(
    g: Graph, inputs: Sequence[Value | None], convert: Callable[..., Any]
) -> list[Value | None]:
    """The results of an operator that moves strings.

    Args:
        convert: takes the inputs, with indices in place of strings, and returns the results.
    """
    strings = [value for value in inputs if value is not None and value.dtype == "str"]
    pairs = [table_of(g, value) for value in strings]
    table = pairs[0][0]
    found = [indices for _, indices in pairs]
    if any(other is not table for other, _ in pairs):
        types = [TensorType.of(each.dims, "int64", ndim=each.ndim) for each in found]
        arguments = [part for pair in pairs for part in pair]
        call = g.builtin("strings_merged", arguments, TupleType([ANY, *types]))
        table = g.emit(TupleGetItem(call, 0), "table")
        found = [Value(g.emit(TupleGetItem(call, 1 + i))) for i in range(len(found))]
    rest = iter(found)
    given = [next(rest) if v is not None and v.dtype == "str" else v for v in inputs]
    return [
        None if result is None else Value(dtype="str", strings=(table, result))
        for result in convert(given)
    ]
