"""Sequences and optional values.

A sequence is a tuple.  Where its length is known when the model is imported, its elements are
values of the program; else the builtins of `relaxvm.builtins.sequences` work on it.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np

from ....ir import ANY, IntImm, TensorType, Tuple, TupleGetItem, Var
from ...common.values import (
    Kind,
    OptionalKind,
    SequenceKind,
    TensorKind,
    Value,
    closed,
    joined,
    kind_of,
)
from .. import messages
from ..graph import Graph, Problem, kind_of_type, number_of
from ..messages import DataType
from ..registry import onnx
from ..tensors import dtype_of

__all__ = ["as_sequence", "element_of"]

_MOST_PARTS: Final = 1000
"""The most elements of a sequence whose elements are values of the program."""


def as_sequence(g: Graph, value: Value) -> Value:
    """The value, which has to be a sequence, as one of unknown length."""
    kind = kind_of(value)
    if not isinstance(kind, SequenceKind):
        raise Problem(f"expected a sequence, got {_text(kind)}")
    return Value(g.expr(value), compound=kind)


def _text(kind: Kind) -> str:
    if isinstance(kind, TensorKind):
        return "a tensor"
    return "an optional value" if isinstance(kind, OptionalKind) else "something else"


def _items(g: Graph, value: Value) -> list[Value] | None:
    """The elements of a sequence whose length is known."""
    fields = value.fields
    if fields is None:
        return None
    whole = g.expr(value)
    found = g.context.builder.lookup_binding(whole) if isinstance(whole, Var) else None
    if isinstance(found, Tuple):
        return [Value(field) for field in found.fields]
    return [Value(g.emit(TupleGetItem(whole, i))) for i in range(len(fields))]


def _place(position: Value | None, length: int, *, behind: int = 0) -> int | None:
    """A position that is known as an index; without one the last place.

    Args:
        behind: 1 where the place behind the last element counts, too.
    """
    if position is None:
        return length - 1 + behind
    known = position.constant()
    if known is None:
        return None
    if known.size != 1:
        raise Problem(f"position: expected one element, got {known.size}")
    number = int(known.reshape(-1)[0])
    index = number + length if number < 0 else number
    if not 0 <= index < length + behind:
        raise Problem(f"position {number}: the sequence has {length} elements")
    return index


def _is_plain(x: Value) -> bool:
    """Whether the type of the program's value says what the value is."""
    return x.compound is None and x.dtype != "str"


def _of(g: Graph, items: list[Value]) -> Value:
    return Value(g.emit(Tuple([g.expr(item) for item in items])))


def element_of(g: Graph, items: Value, position: Value) -> Value:
    """An element of a sequence, found at run time."""
    kind = kind_of(items)
    assert isinstance(kind, SequenceKind)
    return g.typed(g.builtin("sequence_at", [items, position]), kind.element)


@onnx("SequenceEmpty", since=11)
def sequence_empty(g: Graph, *, dtype: int = DataType.FLOAT) -> Value:
    """A tuple without elements."""
    kind = SequenceKind(TensorKind(dtype_of(dtype, "dtype")))
    return Value(g.emit(Tuple([])), compound=kind)


@onnx("SequenceConstruct", since=11)
def sequence_construct(g: Graph, *xs: Value) -> Value:
    """A tuple."""
    if len(xs) <= _MOST_PARTS and all(map(_is_plain, xs)):
        return _of(g, list(xs))
    kind: Kind = kind_of(xs[0])
    for x in xs[1:]:
        kind = joined(kind, kind_of(x))
    return Value(_of(g, list(xs)).expr, compound=SequenceKind(closed(kind)))


@onnx("SequenceLength", since=11)
def sequence_length(g: Graph, items: Value) -> Any:
    """The number of elements."""
    if items.fields is not None:
        return np.array(len(items.fields), np.int64)
    return g.builtin("sequence_length", [as_sequence(g, items)], TensorType((), "int64"))


@onnx("SequenceAt", since=11)
def sequence_at(g: Graph, items: Value, position: Value) -> Value:
    """An element."""
    known = None if items.compound else _items(g, items)
    if known is not None:
        place = _place(position, len(known))
        if place is not None:
            return known[place]
    return element_of(g, as_sequence(g, items), position)


@onnx("SequenceInsert", since=11)
def sequence_insert(g: Graph, items: Value, x: Value, position: Value | None = None) -> Value:
    """A sequence with another element."""
    known = None if items.compound else _items(g, items)
    if known is not None and len(known) < _MOST_PARTS and _is_plain(x):
        place = _place(position, len(known), behind=1)
        if place is not None:
            return _of(g, [*known[:place], x, *known[place:]])
    sequence = as_sequence(g, items)
    kind = kind_of(sequence)
    assert isinstance(kind, SequenceKind)
    is_empty = items.fields == ()
    element = kind_of(x) if is_empty else joined(kind.element, kind_of(x))
    result = g.builtin("sequence_insert", [sequence, x, position])
    return Value(result, compound=SequenceKind(closed(element)))


@onnx("SequenceErase", since=11)
def sequence_erase(g: Graph, items: Value, position: Value | None = None) -> Value:
    """A sequence without an element."""
    known = None if items.compound else _items(g, items)
    if known is not None:
        place = _place(position, len(known))
        if place is not None:
            return _of(g, [*known[:place], *known[place + 1 :]])
    sequence = as_sequence(g, items)
    result = g.builtin("sequence_erase", [sequence, position])
    return Value(result, compound=sequence.compound)


@onnx("ConcatFromSequence", since=11)
def concat_from_sequence(g: Graph, items: Value, *, axis: int, new_axis: int = 0) -> Any:
    """The elements side by side."""
    known = None if items.compound else _items(g, items)
    if known:
        if new_axis:
            return g.op("stack", known, axis)
        return known[0] if len(known) == 1 else g.op("concat", known, axis)
    sequence = as_sequence(g, items)
    kind = kind_of(sequence)
    element = kind.element if isinstance(kind, SequenceKind) else kind
    result = g.builtin("sequence_concat", [sequence, axis, new_axis])
    if not isinstance(element, TensorKind):
        raise Problem("expected a sequence of tensors")
    rank = element.ndim if element.ndim < 0 else element.ndim + bool(new_axis)
    dims: Any = element.dims
    if dims is not None:
        if not -rank <= axis < rank:
            raise Problem(f"axis: expected one of {rank} axes, got {axis}")
        at = axis % rank
        dims = (*dims[:at], None, *dims[at + (not new_axis) :])
    return g.typed(result, TensorKind(element.dtype, rank, dims))


@onnx("SplitToSequence", since=11)
def split_to_sequence(
    g: Graph, x: Value, sizes: Value | None = None, *, axis: int = 0, keepdims: int = 1
) -> Value:
    """The parts of a tensor along an axis."""
    kind = kind_of(x)
    if not isinstance(kind, TensorKind):
        raise Problem(f"expected a tensor, got {_text(kind)}")
    if kind.ndim >= 0 and not -kind.ndim <= axis < kind.ndim:
        raise Problem(f"axis: expected one of {kind.ndim} axes, got {axis}")
    lengths = _lengths(x, sizes, axis)
    if lengths is not None and (sizes is not None or keepdims) and _is_plain(x):
        bounds = np.cumsum([0, *lengths]).tolist()
        parts = [
            Value(g.op("strided_slice", x, [axis], [start], [end], [1]))
            for start, end in itertools.pairwise(bounds)
        ]
        return _of(g, parts)
    result = g.builtin("sequence_split", [x, sizes, axis, keepdims])
    dims: Any = None
    ndim = kind.ndim
    if ndim >= 0:
        at = axis % ndim
        if kind.dims is not None:
            dims = (*kind.dims[:at], None, *kind.dims[at + 1 :])
        if sizes is None and not keepdims:
            ndim -= 1
            dims = None if dims is None else (*dims[:at], *dims[at + 1 :])
    return Value(result, compound=SequenceKind(closed(TensorKind(kind.dtype, ndim, dims))))


def _lengths(x: Value, sizes: Value | None, axis: int) -> list[int] | None:
    """The lengths of the parts, if they are known and few."""
    found = None if x.dims is None else x.dims[axis]
    if not isinstance(found, IntImm):
        return None
    total = found.value
    known = np.array(1) if sizes is None else sizes.constant()
    if known is None or known.ndim > 1:
        return None
    if known.ndim == 0:
        step = int(known)
        if step < 1 or total > step * _MOST_PARTS:
            return None
        return [min(step, total - start) for start in range(0, total, step)]
    lengths = [int(each) for each in known]
    if min(lengths, default=0) < 0 or sum(lengths) != total:
        raise Problem(f"split: expected lengths of parts of {total} elements, got {lengths}")
    return lengths if len(lengths) <= _MOST_PARTS else None


# Optional values


@onnx("Optional", since=15)
def optional(g: Graph, x: Value | None = None, *, type: messages.TypeOf | None = None) -> Value:  # noqa: A002
    """The value itself, or None."""
    if x is not None:
        return x
    kind = kind_of_type(type, number_of, "type")
    return Value(g.none(), compound=OptionalKind(kind))


@onnx("OptionalHasElement", since=15)
def optional_has_element(g: Graph, x: Value | None = None) -> Any:
    """Whether a value is not None."""
    if x is None or not isinstance(x.compound, OptionalKind):
        return np.array(x is not None)
    return g.builtin("optional_has_element", [x], TensorType((), "bool"))


@onnx("OptionalGetElement", since=15)
def optional_get_element(g: Graph, x: Value) -> Value:
    """The value, which is not None."""
    if not isinstance(x.compound, OptionalKind):
        return x
    return g.typed(g.builtin("optional_get_element", [x], ANY), x.compound.element)
