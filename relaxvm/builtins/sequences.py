"""Sequences and optional values: tuples whose length is known only at run time, and values that may
be None.

A position is an int, or an integer tensor of one element; negative ones count from the end.

A *chain* collects values in a loop: None is the empty one, and the tuple ``(chain, x)`` has x
behind the values of another.  Adding to it takes constant time, and leaves the shorter chain as it
is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import check_time, copied, copy_pieces
from .arguments import as_array, as_int, as_sequence, as_shape, as_str
from .registration import OWN_PREFIX, builtin

__all__ = ["chain_to_tensor", "chain_to_tuple", "optional_get_element", "optional_has_element",
           "sequence_at", "sequence_concat", "sequence_erase", "sequence_insert",
           "sequence_length", "sequence_split"]  # fmt: skip

_ARRAY_BYTES: Final = 150
"""About what an array takes beside its elements."""


def _position(value: Any, count: int, subject: str, *, behind: int = 0) -> int:
    """A position as an index; `behind` is 1 where the place after the last element is one, too."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "iu" or value.size != 1:
            raise TypeError(
                f"{subject}: position: expected an integer tensor of one element, got "
                f"{describe(value)}"
            )
        position = int(value.reshape(-1)[0])
    else:
        position = as_int(value, f"{subject}: position")
    index = position + count if position < 0 else position
    if not 0 <= index < count + behind:
        raise IndexError(
            f"{subject}: position {position}: the sequence has {count} elements"
        )
    return index


@builtin("sequence_length", "items: tuple", result="tensor", prefix=OWN_PREFIX)
def sequence_length(items: Any) -> NDArray[np.int64]:
    """Return the number of elements, an int64 tensor of rank 0.

    Raises:
        TypeError: not a tuple; a Shape does not count as one.
    """
    return np.array(len(as_sequence(items, "sequence_length")), np.int64)


@builtin("sequence_at", "items: tuple, position: any", prefix=OWN_PREFIX)
def sequence_at(items: Any, position: Any) -> Any:
    """Return an element.

    Raises:
        TypeError: not a tuple, or not a position.
        IndexError: there is no such element.
    """
    elements = as_sequence(items, "sequence_at")
    return elements[_position(position, len(elements), "sequence_at")]


@builtin("sequence_insert", "items: tuple, x: any, position: any", result="tuple",
         prefix=OWN_PREFIX)  # fmt: skip
def sequence_insert(items: Any, x: Any, position: Any) -> tuple[Any, ...]:
    """Return a sequence with x before the element at a position, or at the end if it is None.

    Raises:
        TypeError: not a tuple, or not a position.
        IndexError: the position is not within the sequence, nor behind its last element.
    """
    elements = as_sequence(items, "sequence_insert")
    count = len(elements)
    if position is None:
        return (*elements, x)
    index = _position(position, count, "sequence_insert", behind=1)
    return (*elements[:index], x, *elements[index:])


@builtin("sequence_erase", "items: tuple, position: any", result="tuple", prefix=OWN_PREFIX)
def sequence_erase(items: Any, position: Any) -> tuple[Any, ...]:
    """Return a sequence without the element at a position, or without the last one if it is None.

    Raises:
        TypeError: not a tuple, or not a position.
        IndexError: there is no such element.
    """
    elements = as_sequence(items, "sequence_erase")
    last = -1 if position is None else position
    index = _position(last, len(elements), "sequence_erase")
    return (*elements[:index], *elements[index + 1 :])


def _joined(
    parts: Sequence[NDArray[Any]], axis: int, is_new: bool, subject: str
) -> NDArray[Any]:
    """The parts side by side along an axis, which is a new one if `is_new`."""
    first = parts[0]
    rank = first.ndim + is_new
    if not -rank <= axis < rank:
        raise IndexError(f"{subject}: axis {axis}: expected one of {rank} axes")
    at = axis % rank
    shape = [*first.shape[:at], 1, *first.shape[at:]] if is_new else list(first.shape)
    lengths = []
    for i, part in enumerate(parts):
        check_time()
        dims = list(part.shape)
        length = 1 if is_new else dims[at] if len(dims) == rank else 0
        others = dims if is_new or len(dims) != rank else [*dims[:at], *dims[at + 1 :]]
        wanted = list(first.shape) if is_new else [*shape[:at], *shape[at + 1 :]]
        if others != wanted or part.dtype != first.dtype:
            raise ValueError(
                f"{subject}: element {i}: expected the data type and dimensions of element 0, "
                f"{describe(first)}{'' if is_new else f', but for axis {at}'}, got {describe(part)}"
            )
        lengths.append(length)
    shape[at] = sum(lengths)
    out = np.empty(shape, first.dtype)
    start = 0
    index: list[Any] = [slice(None)] * rank
    for part, length in zip(parts, lengths, strict=True):
        check_time()
        index[at] = start if is_new else slice(start, start + length)
        copy_pieces(out[(*index, ...)], part)
        start += length
    return out


@builtin("sequence_concat", "items: tuple, axis: int, new_axis: int", result="tensor",
         prefix=OWN_PREFIX)  # fmt: skip
def sequence_concat(items: Any, axis: Any, new_axis: Any) -> NDArray[Any]:
    """Return the tensors of a sequence as one, side by side along an axis; along a new one if
    `new_axis` is not 0.

    Raises:
        TypeError: not a tuple, or an element is not a tensor.
        ValueError: there is no element, or their data types or other dimensions differ.
        IndexError: there is no such axis.
    """
    elements = as_sequence(items, "sequence_concat")
    parts = [as_array(x, f"sequence_concat: element {i}") for i, x in enumerate(elements)]
    if not parts:
        raise ValueError("sequence_concat: expected one or more elements, got none")
    along = as_int(axis, "sequence_concat: axis")
    is_new = bool(as_int(new_axis, "sequence_concat: new_axis"))
    return _joined(parts, along, is_new, "sequence_concat")


@builtin("sequence_split", "x: tensor, parts: any, axis: int, keepdims: int", result="tuple",
         prefix=OWN_PREFIX)  # fmt: skip
def sequence_split(x: Any, parts: Any, axis: Any, keepdims: Any) -> tuple[NDArray[Any], ...]:
    """Return the parts of a tensor along an axis.

    Args:
        parts: an integer tensor: of rank 1, the length of each part; of rank 0, the length of all
            parts, of which the last one may be shorter.  None: parts of length 1.
        keepdims: without `parts`, whether the parts keep the axis.

    Raises:
        TypeError: x is not a tensor, or parts not an integer tensor.
        ValueError: the lengths are not those of parts of the axis.
        IndexError: there is no such axis.
        LimitError: the limits of the VM do not allow that many parts.
    """
    tensor = as_array(x, "sequence_split: x")
    along = as_int(axis, "sequence_split: axis")
    rank = tensor.ndim
    if not -rank <= along < rank:
        raise IndexError(f"sequence_split: axis {along}: expected one of {rank} axes")
    at = along % rank
    total = tensor.shape[at]
    index: list[Any] = [slice(None)] * rank
    if parts is None:
        charge_objects(_ARRAY_BYTES * total)
        keeps = bool(as_int(keepdims, "sequence_split: keepdims"))
        found = []
        for i in range(total):
            check_time()
            index[at] = slice(i, i + 1) if keeps else i
            found.append(copied(tensor[(*index, ...)]))
        return tuple(found)
    lengths = _lengths(parts, total, at)
    charge_objects(_ARRAY_BYTES * len(lengths))
    found, start = [], 0
    for length in lengths:
        check_time()
        index[at] = slice(start, start + length)
        found.append(copied(tensor[tuple(index)]))
        start += length
    return tuple(found)


def _lengths(parts: Any, total: int, axis: int) -> Sequence[int]:
    sizes = as_array(parts, "sequence_split: parts")
    if sizes.dtype.kind not in "iu" or sizes.ndim > 1:
        raise TypeError(
            f"sequence_split: parts: expected an integer tensor of rank 0 or 1, got "
            f"{describe(sizes)}"
        )
    if sizes.ndim == 0:
        step = int(sizes)
        if step < 1:
            raise ValueError(f"sequence_split: parts: expected a length of 1 or more, got {step}")
        charge_objects(_ARRAY_BYTES * -(-total // step))
        return [min(step, total - start) for start in range(0, total, step)]
    charge_objects(32 * sizes.size)
    lengths: list[int] = sizes.tolist()
    if min(lengths, default=0) < 0 or sum(lengths) != total:
        raise ValueError(
            f"sequence_split: parts: expected lengths of parts of axis {axis}, of length {total}, "
            f"got {describe(sizes)} with the sum {sum(lengths)}"
        )
    return lengths


# Chains


def _unchained(chain: Any, subject: str) -> list[Any]:
    """The values of a chain, the first one first."""
    found = []
    while chain is not None:
        check_time()
        if type(chain) is not tuple or len(chain) != 2:
            raise TypeError(f"{subject}: expected None or a pair, got {describe(chain)}")
        chain, x = chain
        found.append(x)
    found.reverse()
    return found


@builtin("chain_to_tuple", "chain: tuple|none", result="tuple", prefix=OWN_PREFIX)
def chain_to_tuple(chain: Any) -> tuple[Any, ...]:
    """Return the values of a chain as a tuple.

    Raises:
        TypeError: not a chain.
    """
    return tuple(_unchained(chain, "chain_to_tuple"))


@builtin(
    "chain_to_tensor",
    "chain: tuple|none, axis: int, reverse: int, dtype: str, dims: shape|tuple",
    result="tensor",
    prefix=OWN_PREFIX,
)
def chain_to_tensor(chain: Any, axis: Any, reverse: Any, dtype: Any, dims: Any) -> NDArray[Any]:
    """Return the tensors of a chain as one, side by side along a new axis.

    Args:
        reverse: whether the last one comes first.
        dtype: data type of the result if there are none.
        dims: dimensions of each of them, if there are none.

    Raises:
        TypeError: not a chain of tensors.
        ValueError: their data types or dimensions differ.
        IndexError: there is no such axis.
    """
    values = _unchained(chain, "chain_to_tensor")
    along = as_int(axis, "chain_to_tensor: axis")
    name = as_str(dtype, "chain_to_tensor: dtype")
    shape = as_shape(dims, "chain_to_tensor: dims")
    if not values:
        rank = len(shape) + 1
        if not -rank <= along < rank:
            raise IndexError(f"chain_to_tensor: axis {along}: expected one of {rank} axes")
        if min(shape, default=0) < 0:
            raise ValueError(f"chain_to_tensor: dims: expected dimensions >= 0, got {shape}")
        at = along % rank
        kind = np.dtype(object) if name == "str" else as_dtype(name)
        return np.empty((*shape[:at], 0, *shape[at:]), kind)
    parts = [as_array(x, f"chain_to_tensor: value {i}") for i, x in enumerate(values)]
    if as_int(reverse, "chain_to_tensor: reverse"):
        parts.reverse()
    return _joined(parts, along, True, "chain_to_tensor")


# Optional values


@builtin("optional_has_element", "x: any", result="tensor", prefix=OWN_PREFIX)
def optional_has_element(x: Any) -> NDArray[np.bool_]:
    """Return whether a value is not None, a bool tensor of rank 0."""
    return np.array(x is not None)


@builtin("optional_get_element", "x: any", prefix=OWN_PREFIX)
def optional_get_element(x: Any) -> Any:
    """Return the value, which is not None.

    Raises:
        ValueError: it is None.
    """
    if x is None:
        raise ValueError("optional_get_element: expected a value, got None")
    return x
