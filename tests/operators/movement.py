"""Cases of operators that move elements: each reference is a formula that maps indices of the
result to indices of the operands."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .table import cases, kernel


def built(shape: Any, x: Any, element: Callable[..., Any]) -> Any:
    """A tensor of the data type of `x`, with elements computed from their indices."""
    out = np.empty(tuple(shape), x.dtype)
    for index in np.ndindex(out.shape):
        out[index] = element(*index)
    return out


def in_order(shape: Any, x: Any) -> Any:
    """The elements in row-major order, in another shape."""
    elements = [x[i] for i in np.ndindex(x.shape)]
    out = np.empty(tuple(shape), x.dtype)
    for i, index in enumerate(np.ndindex(out.shape)):
        out[index] = elements[i]
    return out


def replaced(index: tuple[int, ...], axis: int, value: Any) -> tuple[Any, ...]:
    return (*index[:axis], value, *index[axis + 1 :])


def resized(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


def expanded(x: Any, axis: Any) -> Any:
    ndim = x.ndim + len(axis)
    new = {a % ndim for a in axis}
    dims = iter(x.shape)
    return in_order([1 if i in new else next(dims) for i in range(ndim)], x)


def squeezed(x: Any, axis: Any = None) -> Any:
    gone = {i for i, dim in enumerate(x.shape) if dim == 1}
    if axis is not None:
        gone &= {a % x.ndim for a in axis}
    return in_order([dim for i, dim in enumerate(x.shape) if i not in gone], x)


def permuted(x: Any, axes: Any = None) -> Any:
    order = [a % x.ndim for a in (axes if axes is not None else range(x.ndim)[::-1])]
    return built([x.shape[a] for a in order], x,
                 lambda *index: x[tuple(index[order.index(a)] for a in range(x.ndim))])  # fmt: skip


def flipped(x: Any, axis: int) -> Any:
    axis %= x.ndim
    last = x.shape[axis] - 1
    return built(x.shape, x, lambda *index: x[replaced(index, axis, last - index[axis])])


def concatenated(tensors: Any, axis: int | None = 0) -> Any:
    axis = (axis or 0) % tensors[0].ndim
    places = [(t, i) for t in tensors for i in range(t.shape[axis])]

    def element(*index: int) -> Any:
        tensor, at = places[index[axis]]
        return tensor[replaced(index, axis, at)]

    return built(resized(tensors[0].shape, axis, len(places)), tensors[0], element)


def stacked(tensors: Any, axis: int = 0) -> Any:
    first = tensors[0]
    axis %= first.ndim + 1
    shape = (*first.shape[:axis], len(tensors), *first.shape[axis:])
    return built(shape, first,
                 lambda *index: tensors[index[axis]][index[:axis] + index[axis + 1 :]])  # fmt: skip


def parts(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    axis %= x.ndim
    length, cuts = x.shape[axis], indices_or_sections
    if isinstance(cuts, int):
        step = math.ceil(length / cuts)
        cuts = [step * i for i in range(1, cuts)]
    ends = [*[min(length, max(0, cut)) for cut in cuts], length]
    starts = [0, *ends[:-1]]

    def part(start: int, end: int) -> Any:
        return built(resized(x.shape, axis, max(0, end - start)), x,
                     lambda *index: x[replaced(index, axis, start + index[axis])])  # fmt: skip

    found = tuple(map(part, starts, ends))
    return found if len(found) > 1 else found[0]


def broadcasted(x: Any, shape: Any) -> Any:
    lead = len(shape) - x.ndim
    return built(shape, x, lambda *index: x[tuple(
        0 if dim == 1 else i for dim, i in zip(x.shape, index[lead:], strict=True)
    )])  # fmt: skip


def repeated(x: Any, repeats: int, axis: int | None = None) -> Any:
    if axis is None:
        x, axis = in_order([x.size], x), 0
    axis %= x.ndim
    return built(resized(x.shape, axis, x.shape[axis] * repeats), x,
                 lambda *index: x[replaced(index, axis, index[axis] // repeats)])  # fmt: skip


def tiled(x: Any, repeats: Any) -> Any:
    repeats = (1,) * (x.ndim - len(repeats)) + tuple(repeats)
    dims = (1,) * (len(repeats) - x.ndim) + x.shape
    lead = len(repeats) - x.ndim
    return built([n * r for n, r in zip(dims, repeats, strict=True)], x, lambda *index: x[tuple(
        i % dim for i, dim in zip(index[lead:], x.shape, strict=True)
    )])  # fmt: skip


def taken(x: Any, indices: Any, axis: int | None = None, mode: str = "fast") -> Any:
    axis = 0 if axis is None else axis % x.ndim
    at = np.asarray(indices, object)
    length = x.shape[axis]

    def element(*index: int) -> Any:
        i = int(at[index[axis : axis + at.ndim]])
        if mode == "wrap":
            i %= length
        elif mode == "clip":
            i = min(max(i, 0), length - 1)
        elif not 0 <= i < length and mode == "nan":
            return math.nan
        elif i < 0 and mode == "python":
            i += length
        return x[(*index[:axis], i, *index[axis + at.ndim :])]

    return built((*x.shape[:axis], *at.shape, *x.shape[axis + 1 :]), x, element)


def sliced(
    x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, assume_inbound: bool = False
) -> Any:
    places = [range(dim) for dim in x.shape]
    for i, axis in enumerate(axes):
        step = 1 if strides is None else strides[i]
        places[axis] = range(*slice(begin[i], end[i], step).indices(x.shape[axis]))
    return built(map(len, places), x,
                 lambda *index: x[tuple(at[i] for at, i in zip(places, index, strict=True))]
                 )  # fmt: skip


cases(
    "reshape",
    """
reshape(f(3, 4), (2, -1)) | R.Tensor((2, 6), "float32")
reshape(f(n, m), [-1]) | R.Tensor((n * m,), "float32")
reshape(f(n, m), (m, -1)) | R.Tensor((m, n), "float32")
reshape(f(n, 4), (0, 2, -1)) | R.Tensor((n, 2, 2), "float32")
reshape(f(n, m), shape_var(2)) | R.Tensor(b, "float32")
reshape(tensor(), (n, 2)) | R.Tensor((n, 2), "float32")
reshape(tensor(), (2, -1)) | R.Tensor(dtype="float32", ndim=2)
reshape(rank(2), (0, 1, -1)) | R.Tensor(dtype="float32", ndim=3)
""",
    """
reshape(f(3, 4), (5, 2)) | ValueError: relax.reshape: shape: a tensor of shape (3, 4) has 12
    elements, one of shape (5, 2) has 10
reshape(f(3, 4), (5, -1)) | ValueError: relax.reshape: shape: a tensor of shape (3, 4) cannot be
    made of shape (5, -1)
reshape(f(3, 4), (-1, -1)) | ValueError: relax.reshape: shape: expected dimensions, of which one
    may be -1, got (-1, -1)
reshape(tensor(), (2, -2)) | ValueError: relax.reshape: shape: expected dimensions, of which one
    may be -1, got (2, -2)
reshape(tensor(), (-1, -1)) | ValueError: relax.reshape: shape: expected dimensions, of which one
    may be -1, got (-1, -1)
reshape(f(3), 3) | TypeError: relax.reshape: shape: expected a shape, such as [n], got int 3
reshape(f(3), (3.0,)) | TypeError: relax.reshape: shape[0]: expected an integer, got float 3.0
reshape(f(3), (3, 0)) | ValueError: relax.reshape: shape: 0 at place 1 of (3, 0), but x has 1
    dimensions
""",
    """
reshape(x(3, 4), (2, -1))
reshape(x(2, 3, 4), (4, 1, 6))
reshape(x(), (1, 1))
reshape(x(1, 1), ())
""",
    reference=lambda x, shape: in_order(shape, x),
    dtypes="fhdijub",
    large="reshape(f(393216, 3), (3, 393216))",
)
cases(
    "expand_dims",
    """
expand_dims(f(n, m), 0) | R.Tensor((1, n, m), "float32")
expand_dims(f(n, m), [0, -1]) | R.Tensor((1, n, m, 1), "float32")
expand_dims(rank(2), 0) | R.Tensor(dtype="float32", ndim=3)
expand_dims(tensor(), 0) | R.Tensor(dtype="float32")
""",
    """
expand_dims(f(n, m), [0, 0]) | ValueError: relax.expand_dims: axis: expected each axis once
expand_dims(f(n, m), 5) | ValueError: relax.expand_dims: axis: expected an axis in -3 to 2, got 5
""",
    """
expand_dims(x(3, 4), [0, -1])
expand_dims(x(3), 1)
expand_dims(x(), 0)
""",
    reference=expanded,
    dtypes="fhdijub",
)
cases(
    "squeeze",
    """
squeeze(f(1, 3, 1)) | R.Tensor((3,), "float32")
squeeze(f(1, n, 1), [0, -1]) | R.Tensor((n,), "float32")
squeeze(f(1, 3), 1) | R.Tensor((1, 3), "float32")
squeeze(f(1, n)) | R.Tensor(dtype="float32")
squeeze(rank(3), 0) | R.Tensor(dtype="float32", ndim=2)
""",
    """
squeeze(f(1, 1), 2) | ValueError: relax.squeeze: axis: expected an axis in -2 to 1, got 2
""",
    """
squeeze(x(1, 3, 1))
squeeze(x(1, 3, 1), [0])
""",
    reference=squeezed,
    dtypes="fhdijub",
)
cases(
    "flatten",
    """
flatten(f(n, 4)) | R.Tensor((n * 4,), "float32")
flatten(f()) | R.Tensor((1,), "float32")
flatten(tensor()) | R.Tensor(dtype="float32", ndim=1)
""",
    """
flatten(shape(3)) | TypeError: relax.flatten: x: expected a tensor
""",
    """
flatten(x(3, 4))
flatten(x())
""",
    reference=lambda x: in_order([x.size], x),
    dtypes="fhdijub",
)
cases(
    "permute_dims",
    """
permute_dims(f(n, m, 2)) | R.Tensor((2, m, n), "float32")
permute_dims(f(n, m), [-1, 0]) | R.Tensor((m, n), "float32")
permute_dims(tensor(), [1, 0]) | R.Tensor(dtype="float32", ndim=2)
""",
    """
permute_dims(f(n, m), [0]) | ValueError: relax.permute_dims: axes: expected 2, as x is R.Tensor
permute_dims(f(n, m), [0, 0]) | ValueError: relax.permute_dims: axes: expected each axis once
""",
    """
permute_dims(x(2, 3, 4))
permute_dims(x(2, 3, 4), [1, -1, 0])
permute_dims(x(2, 3, 4), [2, 0, 1])
permute_dims(x())
permute_dims(x(40, 33))
permute_dims(x(2, 3, 4, 5), [0, 2, 1, 3])
""",
    reference=permuted,
    dtypes="fhdijub",
    large="permute_dims(f(393216, 3))",
)
cases(
    "flip",
    """
flip(f(n, m), -1) | R.Tensor((n, m), "float32")
""",
    """
flip(f(n, m), 2) | ValueError: relax.flip: axis: expected an axis in -2 to 1, got 2
flip(f(n, m), 1.5) | TypeError: relax.flip: axis: expected an int, got float 1.5
flip(f(), 0) | ValueError: relax.flip: axis: expected an axis in none, as the rank is 0, got 0
""",
    """
flip(x(3, 4), -1)
flip(x(3, 4), 0)
flip(x(2, 3, 4), 1)
""",
    reference=flipped,
    dtypes="fhdijub",
    large="flip(f(393216, 3), 1)",
)
cases(
    "concat",
    """
concat([f(3, 4), f(n, 4)]) | R.Tensor((n + 3, 4), "float32")
concat([f(n, 3), f(n, m)], -1) | R.Tensor((n, m + 3), "float32")
concat((f(3), f(4)), None) | R.Tensor((7,), "float32")
concat(pair(f(n, 2), f(m, 2)), 0) | R.Tensor((n + m, 2), "float32")
concat([f(n, 2), f(m, 3)], 1) | R.Tensor(dtype="float32", ndim=2)
concat([f(n, 2), rank(2)], 1) | R.Tensor(dtype="float32", ndim=2)
""",
    """
concat([], 0) | ValueError: relax.concat: tensors: expected one or more, got none
concat([f(2, 3), f(3)], 0) | ValueError: relax.concat: tensors: expected tensors of one rank, got
    ranks 2, 1
concat([f(2, 3), f(2, 4)], 0) | ValueError: relax.concat: dimension 1 differs: it is 3 in
    tensors[0] and 4 in tensors[1]
concat([f(2), i(2)], 0) | TypeError: relax.concat: expected operands of one data type, got
    tensors[0] float32, tensors[1] int64
concat([f(2), 1], 0) | TypeError: relax.concat: tensors[1]: expected an expression, got int 1
concat([f(2, 2)], None) | ValueError: relax.concat: axis: None is for tensors of rank 1
""",
    """
concat([x(2, 3), x(2, 1)], -1)
concat([x(2), x(3)], None)
concat([x(2, 3, 4), x(2, 3, 4), x(2, 3, 4)], 1)
concat([x(2, 3)], 0)
concat([x(2, 0), x(2, 3)], 1)
""",
    reference=concatenated,
    dtypes="fhdijub",
    large="concat([f(393216, 3), f(393216, 2)], 1)",
)
cases(
    "stack",
    """
stack([f(n, 2), f(n, 2)]) | R.Tensor((2, n, 2), "float32")
stack([f(n, 2), f(n, 2)], -1) | R.Tensor((n, 2, 2), "float32")
stack([f(n), rank(1)]) | R.Tensor(dtype="float32", ndim=2)
""",
    """
stack([f(2, 3), f(2, 4)]) | ValueError: relax.stack: dimension 1 differs: it is 3 in tensors[0]
""",
    """
stack([x(2, 3), x(2, 3)], -1)
stack([x(2, 3), x(2, 3), x(2, 3)], 1)
stack([x(), x()])
stack([x(2, 3)])
""",
    reference=stacked,
    dtypes="fhdijub",
    large="stack([f(393216, 3), f(393216, 3)], 1)",
)
cases(
    "split",
    """
split(f(3, 4), 2, 1) | R.Tuple(R.Tensor((3, 2), "float32"), R.Tensor((3, 2), "float32"))
split(f(7), 3) | R.Tuple(R.Tensor((3,), "float32"), R.Tensor((3,), "float32"),
    R.Tensor((1,), "float32"))
split(f(n, 4), [1, 3], 1) | R.Tuple(R.Tensor((n, 1), "float32"), R.Tensor((n, 2), "float32"),
    R.Tensor((n, 1), "float32"))
split(f(n), 1) | R.Tensor((n,), "float32")
split(f(2 * n), 2) | R.Tuple(R.Tensor((n,), "float32"), R.Tensor((n,), "float32"))
split(f(n), 2) | R.Tuple(R.Tensor(((n + 1) // 2,), "float32"),
    R.Tensor((n - (n + 1) // 2,), "float32"))
split(f(n), 3) | R.Tuple(R.Tensor(((n + 2) // 3,), "float32"), R.Tensor(((n + 2) // 3,), "float32"),
    R.Tensor((n - (n + 2) // 3 * 2,), "float32"))
split(f(10), [-2, 2, 6, 4, 12, 9]) | R.Tuple(R.Tensor((0,), "float32"), R.Tensor((2,), "float32"),
    R.Tensor((4,), "float32"), R.Tensor((0,), "float32"), R.Tensor((6,), "float32"),
    R.Tensor((0,), "float32"), R.Tensor((1,), "float32"))
split(rank(2), [2]) | R.Tuple(R.Tensor(dtype="float32", ndim=2), R.Tensor(dtype="float32", ndim=2))
""",
    """
split(f(4), 0) | ValueError: relax.split: indices_or_sections: expected one part or more, got 0
split(f(4), [n]) | TypeError: relax.split: indices_or_sections[0]: expected an int, got n of type
""",
    """
split(x(3, 7), 3, -1)
split(x(7), [2, 2])
split(x(7), 1)
split(x(2, 6), [1, 1], 1)
split(x(2, 3, 4), 2, 2)
split(x(5, 2), [0, 9])
split(x(7), 4)
split(x(7), [-2, 4, 2, 9, 6])
""",
    reference=parts,
    dtypes="fhdijub",
    large="split(f(393216, 6), 3, 1)",
)
cases(
    "broadcast_to",
    """
broadcast_to(f(n, 1), (2, n, m)) | R.Tensor((2, n, m), "float32")
broadcast_to(f(3), shape_var(2)) | R.Tensor(b, "float32")
""",
    """
broadcast_to(f(3, 4), (5, 4)) | ValueError: relax.broadcast_to: shape: (3, 4) does not broadcast to
    (5, 4): dimension 0 is 3 and has to be 5
broadcast_to(f(3, 4), (4,)) | ValueError: relax.broadcast_to: shape: expected 2 dimensions or more
""",
    """
broadcast_to(x(3, 1), (2, 3, 4))
broadcast_to(x(), (2, 2))
broadcast_to(x(1), (0,))
broadcast_to(x(2, 3), (2, 3))
""",
    reference=broadcasted,
    free=("shape",),
    dtypes="fhdijub",
    large="broadcast_to(f(393216, 1), (393216, 3))",
)
cases(
    "repeat",
    """
repeat(f(n, m), 2, 0) | R.Tensor((n * 2, m), "float32")
repeat(f(n, m), 2) | R.Tensor((n * m * 2,), "float32")
repeat(tensor(), 2) | R.Tensor(dtype="float32", ndim=1)
""",
    """
repeat(f(3), -1) | ValueError: relax.repeat: repeats: expected 0 or more, got -1
""",
    """
repeat(x(2, 3), 2)
repeat(x(2, 3), 2, -1)
repeat(x(2, 3, 4), 3, 1)
repeat(x(2, 3), 0, 0)
repeat(x(), 3)
repeat(x(2, 3), 1, 0)
""",
    reference=repeated,
    dtypes="fhdijub",
    large="repeat(f(393216, 3), 2, 1)",
)
cases(
    "tile",
    """
tile(f(n, m), 2) | R.Tensor((n, m * 2), "float32")
tile(f(n, m), (2, 3, 1)) | R.Tensor((2, n * 3, m), "float32")
tile(rank(2), (2,)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
tile(f(3), (1, -1)) | ValueError: relax.tile: repeats: expected 0 or more each, got [1, -1]
""",
    """
tile(x(2, 3), (2, 1, 2))
tile(x(2, 3), 2)
tile(x(2, 3), (2, 1, 1, 3))
tile(x(2, 3), (0, 1))
tile(x(2, 3, 4), ())
""",
    reference=tiled,
    dtypes="fhdijub",
    large="tile(f(393216, 3), (1, 2))",
)
cases(
    "take",
    """
take(f(n, m), i(5), 0) | R.Tensor((5, m), "float32")
take(f(n, m), j(k, 2), -1) | R.Tensor((n, k, 2), "float32")
take(f(n), i(5, 2)) | R.Tensor((5, 2), "float32")
take(f(n, m), i(), 0, "wrap") | R.Tensor((m,), "float32")
take(f(n, m), k, 0) | R.Tensor((m,), "float32")
take(rank(2), i(5), 0) | R.Tensor(dtype="float32", ndim=2)
take(tensor(), i(5), 0) | R.Tensor(dtype="float32")
""",
    """
take(f(n, m), i(5)) | ValueError: relax.take: axis: it may be left out for tensors of rank 1 only
take(f(n), f(5)) | TypeError: relax.take: indices: expected integers
take(f(n), i(5), 0, "foo") | ValueError: relax.take: mode: expected 'fast' or 'wrap' or 'clip' or
    'nan' or 'python', got str 'foo'
""",
    """
take(x(5, 3), abs(i(2, 2)) % 5, 0)
take(x(2, 5), i(3), 1, "wrap")
take(x(5, 3), 4, 0)
take(x(5, 3), abs(j(2, 2)) % 5, 0)
take(x(2, 5), i(4), -1, 'wrap')
take(x(2, 5), i(4), 1, 'clip')
take(f(2, 5), i(4), 1, 'nan')
take(x(2, 5), abs(i(4)) % 10 - 5, 1, 'python')
take(d(2, 5), i(4), 1, 'nan')
take(x(5, 3), abs(i()) % 5, 0)
take(x(5), abs(i(0, 2)) % 5)
take(x(2, 3, 4), abs(i(2)) % 3, 1)
take(x(5), abs(u(131)) % 5, 0)
""",
    reference=taken,
    odd="""
take(f(4, 5), i(3), 1, 'wrap')
""",
    dtypes="fhdijub",
    large="take(f(393216, 3), const([2, 0, 0], 'int64'), 1)",
    failures="""
take(f(4), i(2), 0) | np.ones(4, 'f4'), np.array([1, -1]) | IndexError: take: indices: expected 0
    <= index < 4, got -1
take(f(4), i(2), 0, 'python') | np.ones(4, 'f4'), np.array([3, -5]) | IndexError: take: indices:
    expected -4 <= index < 4, got -5
take(f(4), i(2), 0) | np.ones(4, 'f4'), np.array([4, 1]) | IndexError: take: indices: expected 0
    <= index < 4, got 4
""",
)
cases(
    "strided_slice",
    """
strided_slice(f(3, 4), [0, 1], [0, 1], [3, 4], [1, 2]) | R.Tensor((3, 2), "float32")
strided_slice(f(3, 4), [1], [-1], [-100], [-1]) | R.Tensor((3, 4), "float32")
strided_slice(f(3, 4), [-1], [0], [100]) | R.Tensor((3, 4), "float32")
strided_slice(f(n, m), [0], [1], [n]) | R.Tensor((T.max(n - 1, 0), m), "float32")
strided_slice(f(n), [0], [0], [m], assume_inbound=True) | R.Tensor((m,), "float32")
strided_slice(f(n), [0], [0], [n], [2], True) | R.Tensor(((n + 1) // 2,), "float32")
strided_slice(f(8), [0], [0], [8], [n], True) | R.Tensor(((n + 7) // n,), "float32")
strided_slice(f(8), [0], [0], [8], [n]) | R.Tensor(dtype="float32", ndim=1)
strided_slice(rank(2), [0], [0], [1]) | R.Tensor(dtype="float32", ndim=2)
""",
    """
strided_slice(f(3), [0], [0], [1, 2]) | ValueError: relax.strided_slice: end: expected 1, one for
    each of axes, got 2
strided_slice(f(3), [1], [0], [1]) | ValueError: relax.strided_slice: axes: expected an axis in
strided_slice(f(3), [0], [0], [1], [0]) | ValueError: relax.strided_slice: strides: expected numbers
    other than 0, got [0]
strided_slice(f(3), [0], [1.5], [2]) | TypeError: relax.strided_slice: begin[0]: expected an
    integer, got T.float64(1.5)
""",
    """
strided_slice(x(5, 6), [0, -1], [-4, 5], [5, -100], [2, -2])
strided_slice(x(5), [0], [1], [3])
strided_slice(x(2, 3, 4), [2, 0], [-1, 0], [-100, 1], [-2, 1])
strided_slice(x(2, 3), [1], [2], [1], [1])
strided_slice(x(2, 3, 4), [1], [0], [100], [2])
strided_slice(x(2, 3), [], [], [])
strided_slice(x(2, 3), [-1], [-3], [-1], [1])
""",
    reference=sliced,
    dtypes="fhdijub",
    large="strided_slice(f(393216, 3), [1], [0], [2])",
)
for _name in ("reshape", "expand_dims", "squeeze", "flatten"):
    kernel(_name, lambda draw: (draw(3, 3),), lambda x: in_order([9], x), free=("shape",))


def sliced_everywhere(x: Any, begin: Any, end: Any, strides: Any) -> Any:
    bounds = [map(int, each) for each in (begin, end, strides)]
    places = [range(n)[slice(*each)] for n, *each in zip(x.shape, *bounds, strict=True)]

    def element(*index: int) -> Any:
        return x[tuple(place[i] for place, i in zip(places, index, strict=True))]

    return built([len(each) for each in places], x, element)


cases(
    "dynamic_strided_slice",
    """
dynamic_strided_slice(f(n, m), i(2), i(2), i(2)) | R.Tensor(dtype="float32", ndim=2)
dynamic_strided_slice(tensor(), i(2), i(2), i(2)) | R.Tensor(dtype="float32")
""",
    """
dynamic_strided_slice(f(n, m), i(3), i(2), i(2)) | ValueError: relax.dynamic_strided_slice: begin:
    expected an element for each of 2 axes
dynamic_strided_slice(f(n), i(1), j(1), i(1)) | TypeError: relax.dynamic_strided_slice: end:
    expected int64
dynamic_strided_slice(f(n), i(1), i(1, 1), i(1)) | ValueError: relax.dynamic_strided_slice: end:
    expected a vector
""",
    """
dynamic_strided_slice(x(4, 5), const(np.array([3, -1])), const(np.array([0, -9])),
    const(np.array([-1, -2])))
dynamic_strided_slice(x(4, 5), i(2), i(2), const(np.array([1, 2])))
dynamic_strided_slice(x(7), i(1), i(1), const(np.array([1])))
""",
    reference=sliced_everywhere,
    dtypes="fhdijub",
    failures="""
dynamic_strided_slice(f(4), i(1), i(1), i(1)) | np.ones(4, 'f4'), np.array([0]), np.array([1]),
    np.array([0]) | ValueError: dynamic_strided_slice: strides: expected ints other than 0, got [0]
""",
)
kernel(
    "dynamic_strided_slice",
    lambda draw: (draw(5, 4), np.array([1, -1]), np.array([4, -9]), np.array([2, -1])),
    sliced_everywhere,
)


def _laid_out(x: Any, index_map: Any, pad_value: Any, **_: Any) -> Any:
    places = {}
    for at in np.ndindex(x.shape):
        to = index_map.map_indices(at)
        places[tuple([int(i) for i in to])] = at
    shape = [max(place) + 1 for place in zip(*places, strict=True)]
    fill = getattr(pad_value, "value", 0)
    return built(shape, x, lambda *at: x[places[at]] if at in places else fill)


cases(
    "layout_transform",
    """
layout_transform(f(n, m), lambda a, b: (b, a)) | R.Tensor((m, n), "float32")
layout_transform(f(4, 6), lambda a, b: (a, b // 4, b % 4)) | R.Tensor((4, 2, 4), "float32")
layout_transform(rank(1), lambda a: (a // 2, a % 2)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
layout_transform(f(3), lambda a, b: a) | ValueError: relax.layout_transform: index_map: expected one
    for 1 dimensions, got
layout_transform(f(3), 3) | TypeError: relax.layout_transform: index_map: expected a function
""",
    """
layout_transform(x(3, 4), lambda a, b: (b, a))
layout_transform(x(2, 6), lambda a, b: (b // 4, a, b % 4), 7)
""",
    reference=_laid_out,
    dtypes="fij",
)
