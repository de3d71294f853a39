"""Shapes: the shape heap, matching against it, and shapes made from it.

The *shape heap* is an int64 tensor with a slot for each symbolic dimension, or expression of
symbolic dimensions, that a function needs.  A new heap is zero.  A *code* and a value describe what
to do with a dimension.  When a shape is matched:

- 0: the dimension must equal the value;
- 1: it is stored in the heap slot with that number;
- 2: it may have any value;
- 3: it must equal the value in the heap slot.

When a shape is made:

- 0: the dimension is the value;
- 1: it is the value in the heap slot with that number.

A tuple of ints is accepted wherever a Shape is expected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import InternalError
from ..executable import shape_program
from ..executable.shape_codes import ANNOTATED_DIMS, MakeShapeCode, MatchShapeCode
from ..messages import describe, readable
from ..pieces.cut import PIECE, copied
from ..registry import StaticArg
from ..values import Shape
from .arguments import (
    as_array,
    as_context,
    as_int,
    as_machine,
    as_shape,
    as_str,
    size_of,
    static_int,
)
from .registration import OWN_PREFIX, builtin
from .shape_tensors import ints_of

__all__ = [
    "alloc_heap",
    "alloc_shape_heap",
    "check_upper_bound",
    "compute_shape",
    "load_shape",
    "make_prim_value",
    "make_shape",
    "match_prim_value",
    "match_shape",
    "reshape",
    "shape_of",
    "store_shape",
]

EQUAL, STORE, ANY, EQUAL_SLOT = MatchShapeCode
IMMEDIATE, SLOT = MakeShapeCode

MATCH_CODES: Final = range(4)
MAKE_CODES: Final = range(2)
MAX_SLOTS: Final = 1 << 31

_INT64: Final = np.iinfo(np.int64)


# The heap


def _check_heap_size(args: Sequence[StaticArg]) -> Iterator[str]:
    if len(args) == 2 and args[0][0] not in ("vm", "any"):
        yield f"expected the VM state before the size, got {args[0][0]}"
    elif len(args) == 1 and args[0][0] == "vm":
        yield "expected a number of slots, got the VM state only"
    size = static_int(args, len(args) - 1)
    if size is not None and not 0 <= size < MAX_SLOTS:
        yield f"expected 0 to 2**31 - 1 slots, got {size}"


def _new_heap(size: Any, subject: str) -> NDArray[np.int64]:
    slots = as_int(size, f"{subject}: size")
    if not 0 <= slots < MAX_SLOTS:
        raise InternalError(f"{subject}: expected 0 to 2**31 - 1 slots, got {slots}")
    # At a multiple of 64 bytes, which compiled kernels may require.
    memory = np.zeros(slots + 7, np.int64)
    start = -memory.ctypes.data % 64 // 8
    return memory[start : start + slots]


_OMITTED: Final = object()


@builtin(
    "alloc_shape_heap",
    "ctx: vm|int, size: int = ...",
    result="tensor",
    check=_check_heap_size,
)
def alloc_shape_heap(ctx: Any, size: Any = _OMITTED) -> NDArray[np.int64]:
    """Allocate a shape heap of `size` slots on the host, all zero.

    The form in the design documents has no VM state before the size.

    Raises:
        InternalError: `size` is negative or above 2**31 - 1.
        LimitError: the VM's limits do not allow this size and 56 bytes for alignment.
    """
    if size is _OMITTED:
        return _new_heap(ctx, "alloc_shape_heap")
    as_machine(ctx, "alloc_shape_heap: ctx")
    return _new_heap(size, "alloc_shape_heap")


@builtin("alloc_heap", "size: int", result="tensor", check=_check_heap_size)
def alloc_heap(size: Any) -> NDArray[np.int64]:
    """Allocate a shape heap of `size` slots: `alloc_shape_heap` in the design documents.

    Raises:
        InternalError: `size` is negative or above 2**31 - 1.
        LimitError: the VM's limits do not allow this size and 56 bytes for alignment.
    """
    return _new_heap(size, "alloc_heap")


def _cell(heap: Any, slot: Any, subject: str) -> tuple[NDArray[np.int64], int]:
    """Return a heap and one of its slots after checking both."""
    index = as_int(slot, f"{subject}: heap slot")
    cells = _heap(heap, subject)
    if not 0 <= index < len(cells):
        raise IndexError(f"{subject}: heap slot {index}: expected 0 to {len(cells) - 1}")
    return cells, index


def _heap(heap: Any, subject: str) -> NDArray[np.int64]:
    if not isinstance(heap, np.ndarray) or heap.ndim != 1 or heap.dtype.newbyteorder("=") != "i8":
        raise TypeError(f"{subject}: expected an int64 shape heap, got {describe(heap)}")
    return heap


def _load(heap: Any, slot: Any, subject: str) -> int:
    cells, index = _cell(heap, slot, subject)
    return int(cells[index])


def _store(value: int, heap: Any, slot: Any, subject: str) -> None:
    cells, index = _cell(heap, slot, subject)
    if not _INT64.min <= value <= _INT64.max:
        raise ValueError(f"{subject}: expected a value of 64 bits for heap slot {index}, "
                         f"got {value}")
    cells[index] = value


@builtin("store_shape", "shape: shape|tuple, heap: tensor, *slots: int", result="none")
def store_shape(shape: Any, heap: Any, *slots: Any) -> None:
    """Store the dimensions of a shape at heap slots, one slot per dimension.

    Raises:
        InternalError: the number of slots is not the number of dimensions.
        IndexError: the heap has no such slot.
    """
    dims = as_shape(shape, "store_shape: shape")
    if len(dims) != len(slots):
        raise InternalError(f"store_shape: expected a slot for each of {len(dims)} dimensions, "
                            f"got {len(slots)} slots")
    for dim, slot in zip(dims, slots, strict=True):
        _store(dim, heap, slot, "store_shape")


@builtin("load_shape", "heap: tensor, *slots: int", result="shape")
def load_shape(heap: Any, *slots: Any) -> Shape:
    """Return the Shape whose dimensions are in heap slots.

    Raises:
        IndexError: the heap has no such slot.
    """
    return Shape(_load(heap, slot, "load_shape") for slot in slots)


# Matching


def _check_pattern(
    args: Sequence[StaticArg],
    heap: int,
    start: int,
    count: int,
    codes: range,
    slots: frozenset[int],
) -> Iterator[str]:
    """Yield the faults in `count` pairs of code and value that begin at argument `start`."""
    for i in range(count):
        at = start + 2 * i
        for position in (at, at + 1):
            if args[position][0] not in ("int", "bool", "any"):
                yield f"argument {position}: expected int, got {args[position][0]}"
        code, value = static_int(args, at), static_int(args, at + 1)
        if code is None:
            continue
        if code not in codes:
            yield f"argument {at}: expected a shape code of 0 to {codes[-1]}, got {code}"
        elif code in slots and args[heap][0] == "none":
            yield f"argument {at + 1}: uses a heap slot, but the shape heap is None"
        elif code in slots and value is not None and not 0 <= value < MAX_SLOTS:
            yield f"argument {at + 1}: expected a heap slot of 0 to 2**31 - 1, got {value}"


_MATCH_SLOTS: Final[frozenset[int]] = frozenset({STORE, EQUAL_SLOT})
_MAKE_SLOTS: Final[frozenset[int]] = frozenset({SLOT})


def _check_match_shape(args: Sequence[StaticArg]) -> Iterator[str]:
    n = static_int(args, 2)
    if n is None:
        return
    given = len(args) - 3
    if n < 0 or given not in (2 * n, 2 * n + 1):
        yield (f"expected a code and a value for each of {n} dimensions and an error context, "
               f"got {given} arguments")
        return
    yield from _check_pattern(args, 1, 3, n, MATCH_CODES, _MATCH_SLOTS)
    if given > 2 * n and args[-1][0] not in ("str", "none", "any"):
        yield f"error context: expected str, got {args[-1][0]}"


def _match(
    got: int,
    heap: Any,
    code: Any,
    value: Any,
    subject: str,
    annotated: tuple[str, int, int] | None = None,
) -> None:
    code = as_int(code, f"{subject}: code")
    if code == EQUAL:
        expected = as_int(value, subject)
    elif code == STORE:
        _store(got, heap, value, subject)
        return
    elif code == ANY:
        return
    elif code == EQUAL_SLOT:
        expected = _load(heap, value, subject)
    else:
        raise InternalError(f"{subject}: expected a shape code of 0 to 3, got {code}")
    if got != expected:
        slot = f" ({_name_of_slot(value, annotated)})" if code == EQUAL_SLOT else ""
        raise RuntimeError(f"{subject}: expected {expected}{slot}, got {got}")


@builtin(
    "match_shape",
    "x: tensor|shape|tuple, heap: tensor|none, n: int, *pattern: any",
    result="none",
    check=_check_match_shape,
)
def match_shape(*args: Any) -> None:
    """Match the shape of a tensor, or a Shape: ``match_shape(x, heap, n, code, value, ..., err)``.

    There is a code and a value for each of `n` dimensions; they are processed in order, so that a
    dimension may be compared to one stored before it.  `heap` may be None if no slot is used, and
    the error context may be left out.

    Raises:
        RuntimeError: the number of dimensions is not `n`, or a dimension does not match.
        TypeError: `x` is neither a tensor nor a shape, or a slot is used and `heap` is not an int64
            heap.
        IndexError: the heap has no such slot.
        InternalError: the number of arguments does not fit `n`, or a code is unknown.
    """
    if len(args) < 3:
        raise InternalError(f"match_shape: expected a value, a shape heap, a number of dimensions "
                            f"and what they match, got {len(args)} arguments")
    x, heap, n, *pattern = args
    count = as_int(n, "match_shape: number of dimensions")
    if count < 0 or len(pattern) not in (2 * count, 2 * count + 1):
        raise InternalError(f"match_shape: expected a code and a value for each of {count} "
                            f"dimensions and an error context, got {len(pattern)} arguments")
    err = as_context(pattern[2 * count] if len(pattern) > 2 * count else None)
    dims = _dims(x, err)
    if len(dims) != count:
        raise RuntimeError(f"{err}match_shape: expected {count} dimensions, got {len(dims)} "
                           f"in {describe(x)}")
    for i, dim in enumerate(dims):
        subject = f"{err}match_shape: dimension {i} of {describe(x)}"
        code, value = pattern[2 * i], pattern[2 * i + 1]
        _match(dim, heap, code, value, subject, (err, i, count))


def _name_of_slot(value: Any, annotated: tuple[str, int, int] | None) -> str:
    """What a message calls the dimension in a heap slot.  A check that the compiler made says which
    value it checks, and the note of the error says which dimension is in the slot."""
    name = None if annotated is None else _name_of_dimension(*annotated)
    if name is None and annotated is not None and annotated[0]:
        return "a dimension known before"
    return name or f"heap slot {int(value)}"


def _name_of_dimension(err: str, index: int, count: int) -> str | None:
    """The symbolic dimension that a dimension must equal, as the error context has it; None if it
    does not say."""
    found = re.search(ANNOTATED_DIMS, err)
    dims = [] if found is None else [dim.strip() for dim in found[1].split(",") if dim.strip()]
    return readable(dims[index]) if len(dims) == count else None


def _dims(x: Any, err: str) -> tuple[int, ...]:
    if isinstance(x, np.ndarray):
        shape: tuple[int, ...] = x.shape
        return shape
    if isinstance(x, (tuple, list)):
        return as_shape(x, f"{err}match_shape")
    raise TypeError(f"{err}match_shape: expected a tensor or a Shape, got {describe(x)}")


def _check_match_prim(args: Sequence[StaticArg]) -> Iterator[str]:
    return _check_pattern(args, 1, 2, 1, MATCH_CODES, _MATCH_SLOTS)


@builtin(
    "match_prim_value",
    "x: int, heap: tensor, code: int, value: int, err: str|none",
    result="none",
    check=_check_match_prim,
)
def match_prim_value(x: Any, heap: Any, code: Any, value: Any, err: Any) -> None:
    """Match an int as `match_shape` matches a dimension.

    Raises:
        RuntimeError: it does not match.
        TypeError: `x` is not an int, or `heap` not a tensor.
        IndexError: the heap has no such slot.
        InternalError: the code is unknown.
    """
    context = as_context(err)
    scalar = as_int(x, f"{context}match_prim_value")
    as_array(heap, f"{context}match_prim_value: shape heap")
    _match(scalar, heap, code, value, f"{context}match_prim_value")


# Making


def _check_make_shape(args: Sequence[StaticArg]) -> Iterator[str]:
    n = static_int(args, 1)
    if n is None:
        return
    if n < 0 or len(args) - 2 != 2 * n:
        yield (f"expected a code and a value for each of {n} dimensions, "
               f"got {len(args) - 2} arguments")
        return
    yield from _check_pattern(args, 0, 2, n, MAKE_CODES, _MAKE_SLOTS)


def _make(heap: Any, code: Any, value: Any, subject: str) -> int:
    code = as_int(code, f"{subject}: code")
    if code == IMMEDIATE:
        return as_int(value, subject)
    if code == SLOT:
        return _load(heap, value, subject)
    raise InternalError(f"{subject}: expected a shape code of 0 or 1, got {code}")


@builtin(
    "make_shape",
    "heap: tensor|none, n: int, *pattern: int",
    result="shape",
    check=_check_make_shape,
)
def make_shape(heap: Any, n: Any, *pattern: Any) -> Shape:
    """Make a Shape of `n` dimensions from a code and a value for each of them.

    `heap` may be None if no slot is used.

    Raises:
        TypeError: a slot is used and `heap` is not an int64 heap.
        IndexError: the heap has no such slot.
        InternalError: the number of arguments does not fit `n`, or a code is unknown.
    """
    count = as_int(n, "make_shape: number of dimensions")
    if count < 0 or len(pattern) != 2 * count:
        raise InternalError(f"make_shape: expected a code and a value for each of {count} "
                            f"dimensions, got {len(pattern)} arguments")
    pairs = zip(pattern[::2], pattern[1::2], strict=True)
    return Shape(
        _make(heap, code, value, f"make_shape: dimension {i}")
        for i, (code, value) in enumerate(pairs)
    )


def _check_make_prim(args: Sequence[StaticArg]) -> Iterator[str]:
    return _check_pattern(args, 0, 1, 1, MAKE_CODES, _MAKE_SLOTS)


@builtin(
    "make_prim_value", "heap: tensor, code: int, value: int", result="int", check=_check_make_prim
)
def make_prim_value(heap: Any, code: Any, value: Any) -> int:
    """Make an int as `make_shape` makes a dimension.

    Raises:
        TypeError: `heap` is not a tensor.
        IndexError: the heap has no such slot.
        InternalError: the code is unknown.
    """
    as_array(heap, "make_prim_value: shape heap")
    return _make(heap, code, value, "make_prim_value")


@builtin(
    "check_upper_bound",
    "heap: tensor, slot: int, bound: int, name: str, err: str|none",
    result="none",
    prefix=OWN_PREFIX,
)
def check_upper_bound(heap: Any, slot: Any, bound: Any, name: Any, err: Any) -> None:
    """Check that the dimension in a heap slot does not exceed the upper bound that its function
    declares.  Memory is planned with these bounds.

    Raises:
        ValueError: it exceeds the bound.
        TypeError: `heap` is not an int64 heap.
        IndexError: the heap has no such slot.
    """
    value = _load(heap, slot, "check_upper_bound")
    most = as_int(bound, "check_upper_bound: bound")
    if value > most:
        raise ValueError(
            f"{as_context(err)}dimension {readable(as_str(name, 'check_upper_bound: name'))}: "
            f"expected at most {most}, the upper bound that the "
            f"function declares, got {value}"
        )


# Computing


def _check_compute_shape(args: Sequence[StaticArg]) -> Iterator[str]:
    program = args[1][1]
    if isinstance(program, tuple):
        fault = shape_program.problem(program)
        if fault is not None:
            yield f"program: {fault}"


@builtin(
    "compute_shape",
    "heap: tensor, program: shape|tuple",
    result="none",
    check=_check_compute_shape,
    prefix=OWN_PREFIX,
)
def compute_shape(heap: Any, program: Any) -> None:
    """Run a *shape program*, which assigns to heap slots values computed from other slots, as in
    ``h[2] = h[0] * h[1]; h[3] = max(h[2], 1)``.

    The program is encoded as a Shape; `relaxvm.executable.shape_program` has the operations, an
    encoder and a decoder.  If it fails, no slot changes.

    Raises:
        TypeError: `heap` is not an int64 heap.
        IndexError: the heap has no such slot.
        OverflowError: a result does not fit 64 bits.
        ZeroDivisionError: a division by zero.
        InternalError: `program` is not a shape program.
    """
    words = as_shape(program, "compute_shape: program")
    cells = _heap(heap, "compute_shape")
    fault = shape_program.problem(words)
    if fault is not None:
        raise InternalError(f"compute_shape: program: {fault}")
    try:
        changed = shape_program.evaluate(words, ints_of(cells))
    except (IndexError, OverflowError, ZeroDivisionError) as error:
        raise type(error)(f"compute_shape: {error}") from None
    for slot, value in changed.items():
        cells[slot] = value


# Shapes and tensors


@builtin("shape_of", "x: tensor", result="shape")
def shape_of(x: Any) -> Shape:
    """Return the shape of a tensor.

    Raises:
        TypeError: not a tensor.
    """
    return Shape(as_array(x, "shape_of").shape)


@builtin("reshape", "x: tensor, shape: shape|tuple", result="tensor")
def reshape(x: Any, shape: Any) -> NDArray[Any]:
    """Return a tensor of another shape over the same memory.

    The shape may have fewer elements; the result then has the first ones in row-major order.  A
    tensor that is not contiguous is copied if numpy cannot express the new shape as a view of it.

    Raises:
        TypeError: not a tensor, or not a shape.
        ValueError: the shape has more elements than the tensor, or a negative dimension.
    """
    tensor = np.asarray(as_array(x, "reshape"))
    dims = as_shape(shape, "reshape: shape")
    size = size_of(dims)
    if any(dim < 0 for dim in dims) or size > tensor.size:
        raise ValueError(f"reshape: expected at most {tensor.size} elements of {describe(tensor)}, "
                         f"got {describe(dims)}")
    if size < tensor.size:
        tensor = _reshaped(tensor, (-1,))[:size]
    return _reshaped(tensor, dims)


def _reshaped(tensor: NDArray[Any], dims: tuple[int, ...]) -> NDArray[Any]:
    """A view if numpy can express it, else a copy."""
    if tensor.size <= PIECE or tensor.flags.c_contiguous:
        return tensor.reshape(dims)
    try:
        return tensor.reshape(dims, copy=False)
    except ValueError:  # there is no view
        return copied(tensor).reshape(dims)
    except TypeError:  # numpy before 2.1, which does not tell
        return tensor.reshape(dims)
