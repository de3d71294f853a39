"""Cases of operators that gather and scatter elements by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import cases


def places(data: Any, indices: Any, axis: int) -> Any:
    """For each place of indices the place in data that it names."""
    for index in np.ndindex(indices.shape):
        at = int(indices[index])
        yield index, (*index[:axis], at % data.shape[axis], *index[axis + 1 :])


def gathered(data: Any, indices: Any, axis: int = 0) -> Any:
    out = np.empty(indices.shape, data.dtype)
    for index, place in places(data, indices, axis % data.ndim):
        out[index] = data[place]
    return out


def coordinates(data: Any, indices: Any, batch_dims: int = 0) -> Any:
    for index in np.ndindex(indices.shape[:-1]):
        row = [int(i) for i in indices[index]]
        lengths = data.shape[batch_dims:]
        yield index, (*index[:batch_dims], *[i % n for i, n in zip(row, lengths, strict=False)])


def gathered_nd(data: Any, indices: Any, batch_dims: int = 0) -> Any:
    count = indices.shape[-1]
    out = np.empty((*indices.shape[:-1], *data.shape[batch_dims + count :]), data.dtype)
    for index, place in coordinates(data, indices, batch_dims):
        out[index] = data[place]
    return out


def broadcasted(indices: Any) -> Any:
    return np.stack(np.broadcast_arrays(*indices), -1)


def combined(old: Any, new: Any, reduction: str) -> Any:
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    if reduction == "mean":
        return (old + new) / 2
    if reduction == "max":
        return new if new > old else old
    if reduction == "min":
        return new if new < old else old
    return new


def scattered(
    data: Any, indices: Any, updates: Any, axis: int = 0, reduction: str = "update"
) -> Any:
    out = data.copy()
    for index, place in places(data, indices, axis % data.ndim):
        out[place] = combined(out[place], updates[index], reduction)
    return out


def scattered_nd(data: Any, indices: Any, updates: Any, reduction: str = "update") -> Any:
    out = data.copy()
    rest = data.shape[indices.shape[-1] :]
    for index, place in coordinates(data, indices):
        for inner in np.ndindex(rest):
            old, new = out[place + inner], updates[index + inner]
            out[place + inner] = combined(old, new, reduction)
    return out


def put(data: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    at = broadcasted(indices)
    reduction = "add" if accumulate else "update"
    return scattered_nd(data, at, np.broadcast_to(values, at.shape[:-1]), reduction)


def slice_replaced(
    x: Any, src: Any, start: int, end: int, step: int, axis: int = 0
) -> Any:
    out = np.moveaxis(x.copy(), axis, 0)
    for i, place in enumerate(range(x.shape[axis])[start:end:step]):
        out[place] = np.moveaxis(src, axis, 0)[i]
    return np.moveaxis(out, 0, axis)


def reversed_parts(x: Any, lengths: Any, seq_axis: int = 1, batch_axis: int = 0) -> Any:
    seq_axis, batch_axis = seq_axis % x.ndim, batch_axis % x.ndim
    out = np.empty_like(x)
    for index in np.ndindex(x.shape):
        place, length = list(index), int(lengths[index[batch_axis]])
        if index[seq_axis] < length:
            place[seq_axis] = length - 1 - index[seq_axis]
        out[index] = x[tuple(place)]
    return out


def hot(indices: Any, on_value: Any, off_value: Any, depth: int, axis: int = -1) -> Any:
    axis %= indices.ndim + 1
    out = np.empty((*indices.shape[:axis], depth, *indices.shape[axis:]), object)
    for index in np.ndindex(out.shape):
        is_hot = indices[index[:axis] + index[axis + 1 :]] == index[axis]
        out[index] = on_value if is_hot else off_value
    return out


def triangle(keeps: Any) -> Any:
    def reference(x: Any, k: int = 0) -> Any:
        out = x.copy()
        for index in np.ndindex(x.shape):
            if not keeps(index[-1] - index[-2], k):
                out[index] = 0
        return out

    return reference


cases(
    "gather_elements",
    """
gather_elements(f(n, m), i(k, m), 0) | R.Tensor((k, m), "float32")
gather_elements(rank(2), i(k, 3), -1) | R.Tensor((k, 3), "float32")
gather_elements(f(n, m), rank(2, "int64")) | R.Tensor(dtype="float32", ndim=2)
gather_elements(tensor(), i(k, m)) | R.Tensor(dtype="float32")
""",
    """
gather_elements(f(n, m), i(n), 0) | ValueError: relax.gather_elements: expected tensors of one rank
gather_elements(f(n, m), f(n, m), 0) | TypeError: relax.gather_elements: indices: expected integers
gather_elements(f(n, m), i(n, m), 2) | ValueError: relax.gather_elements: axis: expected an axis in
    -2 to 1, got 2
""",
    """
gather_elements(x(3, 4), abs(i(2, 4)) % 3, 0)
gather_elements(x(3, 4), abs(j(3, 5)) % 4, -1)
gather_elements(x(3, 4), abs(i(2, 3)) % 3 - const(3, "int64"), 0)
gather_elements(x(4, 2, 3), abs(u(2, 2, 3)) % 4, 0)
gather_elements(x(4, 2, 3), abs(i(4, 5, 2)) % 2, 1)
gather_elements(x(5), i(0), 0)
gather_elements(x(131), abs(i(70)) % 131, 0)
""",
    reference=gathered,
    dtypes="fhdijub",
    failures="""
gather_elements(f(4), i(2), 0) | np.ones(4, 'f4'), np.array([1, -5]) | IndexError: gather_elements:
    indices: expected -4 <= index < 4, got -5
gather_elements(f(4), i(2), 0) | np.ones(4, 'f4'), np.array([4, 0]) | IndexError: gather_elements:
    indices: expected -4 <= index < 4, got 4
""",
)
cases(
    "gather_nd",
    """
gather_nd(f(n, m, 4), i(k, 2)) | R.Tensor((k, 4), "float32")
gather_nd(f(n, m, 4), i(n, k, 1), 1) | R.Tensor((n, k, 4), "float32")
gather_nd(f(n, m), i(k, n, 2)) | R.Tensor((k, n), "float32")
gather_nd(rank(3), i(k, 2)) | R.Tensor(dtype="float32", ndim=2)
gather_nd(f(n, m), i(k, n)) | R.Tensor(dtype="float32")
gather_nd(tensor(), i(k, 2)) | R.Tensor(dtype="float32")
""",
    """
gather_nd(f(2, 3), i(2, 3)) | ValueError: relax.gather_nd: indices: expected rows of at most 2
    coordinates, as data is
gather_nd(f(2, 3), i(2, 2), 1) | ValueError: relax.gather_nd: indices: expected rows of at most 1
    coordinates after 1 axes of batches
gather_nd(f(2, 3), f(2, 2)) | TypeError: relax.gather_nd: indices: expected integers
gather_nd(f(2, 3), i(2, 2), -1) | ValueError: relax.gather_nd: batch_dims: expected a number of axes
gather_nd(f(2, 3, 4), i(2, 2), 2) | ValueError: relax.gather_nd: batch_dims: expected less than the
    rank of indices
gather_nd(f(2, 3), i(3, 1), 1) | ValueError: relax.gather_nd: dimension 0 differs
gather_nd(f(2, 3), i()) | ValueError: relax.gather_nd: indices: expected a tensor of rank 1 or more
""",
    """
gather_nd(x(2, 2), abs(i(3, 2)) % 2)
gather_nd(x(3, 2, 4), abs(i(5, 2)) % 2)
gather_nd(x(3, 2, 4), abs(j(5, 1)) % 3 - const(3, "int32"))
gather_nd(x(2, 3, 4), abs(i(2, 1)) % 3, 1)
gather_nd(x(2, 3, 4), abs(i(2, 5, 2)) % 3, 1)
gather_nd(x(2, 3, 4), abs(i(2, 3, 1)) % 4, 2)
gather_nd(x(3, 4), abs(i(2)) % 3)
gather_nd(x(3, 4), i(0, 1))
""",
    reference=gathered_nd,
    dtypes="fhdijub",
    failures="""
gather_nd(f(4), i(2, 1)) | np.ones(4, 'f4'), np.array([[4], [0]]) | IndexError: gather_nd: indices:
    expected -4 <= index < 4, got 4
""",
)
cases(
    "index_tensor",
    """
index_tensor(f(n, m), (i(k), i(k))) | R.Tensor((k,), "float32")
index_tensor(f(n, m), (i(k),)) | R.Tensor((k, m), "float32")
index_tensor(f(n, m), (i(4, 1), i(k))) | R.Tensor((4, k), "float32")
index_tensor(rank(2), (i(k),)) | R.Tensor(dtype="float32", ndim=2)
index_tensor(tensor(), (i(k),)) | R.Tensor(dtype="float32")
""",
    """
index_tensor(f(n, m), (i(2), f(2))) | TypeError: relax.index_tensor: indices[1]: expected integers
index_tensor(f(n), (i(2), i(2))) | ValueError: relax.index_tensor: indices: expected at most 1, as
index_tensor(f(n, m), (i(2), i(3))) | ValueError: relax.index_tensor: shapes (2,) and (3,) do not
    broadcast
index_tensor(f(n), ()) | ValueError: relax.index_tensor: indices: expected one tensor or more, got
""",
    """
index_tensor(x(3, 4), (abs(i(5)) % 3, abs(i(5)) % 4))
index_tensor(x(3, 4), (abs(i(2, 1)) % 3, abs(j(3)) % 4))
index_tensor(x(3, 4, 2), (abs(i(2, 2)) % 3,))
index_tensor(x(3, 4), (abs(i(2)) % 3 - const(3, "int64"),))
index_tensor(x(3, 2), (i(0),))
""",
    reference=lambda data, indices: gathered_nd(data, broadcasted(indices)),
    dtypes="fhdijub",
    failures="""
index_tensor(f(4), (i(2),)) | np.ones(4, 'f4'), np.array([1, 7]) | IndexError: index_tensor:
    indices: expected -4 <= index < 4, got 7
""",
)
cases(
    "scatter_elements",
    """
scatter_elements(f(n, m), i(k, m), f(k, m), 0) | R.Tensor((n, m), "float32")
scatter_elements(f(n, m), i(k, m), f(m, k), 1, "updates") | R.Tensor((n, m), "float32")
scatter_elements(rank(2), i(2, 2), f(2, 2), 1, "add") | R.Tensor(dtype="float32", ndim=2)
scatter_elements(tensor(), i(2, 2), f(2, 2), -1, "mean") | R.Tensor(dtype="float32")
""",
    """
scatter_elements(f(4, 4), f(2, 2), f(2, 2)) | TypeError: relax.scatter_elements: indices: expected
    integers
scatter_elements(f(4, 4), i(2, 2), h(2, 2)) | TypeError: relax.scatter_elements: expected operands
    of one data type
scatter_elements(f(4, 4), i(2, 2), f(2)) | ValueError: relax.scatter_elements: expected tensors of
    one rank
scatter_elements(f(4, 4), i(n, 2), f(n + 1, 2)) | ValueError: relax.scatter_elements: updates:
    expected the shape of indices, (n, 2), got (n + 1, 2): dimension 0 differs
scatter_elements(f(4), i(2), f(2), 0, "sub") | ValueError: relax.scatter_elements: reduction:
    expected 'update' or 'add' or 'mul' or 'mean' or 'max' or 'min', got str 'sub'
scatter_elements(i(4), i(2), i(2), 0, "mean") | TypeError: relax.scatter_elements: data: expected
    floats
""",
    """
scatter_elements(x(3, 4), abs(i(2, 4)) % 3, x(2, 4), 0)
scatter_elements(x(3, 4), abs(j(3, 5)) % 4, x(3, 5), -1, "update")
scatter_elements(f(3, 4), abs(i(2, 4)) % 3, f(2, 4), 0, "add")
scatter_elements(i(3, 4), abs(i(3, 7)) % 4, i(3, 7), 1, "add")
scatter_elements(h(3, 4), abs(i(3, 7)) % 4, h(3, 7), 1, "add")
scatter_elements(x(3, 4), abs(i(2, 4)) % 3, x(2, 4), 0, "mul")
scatter_elements(x(3, 4), abs(i(2, 4)) % 3, x(2, 4), 0, "max")
scatter_elements(x(3, 4), abs(i(2, 4)) % 3, x(2, 4), 0, "min")
scatter_elements(f(3, 4), abs(i(3, 9)) % 4, f(3, 9), 1, "mean")
scatter_elements(h(3, 4), abs(i(3, 9)) % 4, h(3, 9), 1, "mean")
scatter_elements(x(4), abs(i(3)) % 4 - const(4, "int64"), x(3))
scatter_elements(x(4), i(0), x(0), 0, "add")
""",
    reference=scattered,
    dtypes="fhdijub",
    ulps={"float16": 4, "float32": 4, "float64": 4},
    of_largest=True,
    within=(-3, 3),
    failures="""
scatter_elements(f(4), i(2), f(2)) | np.ones(4, 'f4'), np.array([0, 4]), np.ones(2, 'f4') |
    IndexError: scatter_elements: indices: expected -4 <= index < 4, got 4
""",
)
cases(
    "scatter_nd",
    """
scatter_nd(f(n, m), i(k, 1), f(k, m)) | R.Tensor((n, m), "float32")
scatter_nd(f(n, m), i(k, 2), f(k), "add") | R.Tensor((n, m), "float32")
scatter_nd(rank(2), i(k, 2), f(k), "max") | R.Tensor(dtype="float32", ndim=2)
scatter_nd(f(n, m), i(k, n), tensor()) | R.Tensor((n, m), "float32")
""",
    """
scatter_nd(f(8), i(4, 2), f(4)) | ValueError: relax.scatter_nd: indices: expected rows of at most 1
    coordinates
scatter_nd(f(8), i(4, 1), f(5)) | ValueError: relax.scatter_nd: updates: expected the shape (4,),
    got (5,)
scatter_nd(f(8), i(4, 1), f(4, 1)) | ValueError: relax.scatter_nd: updates: expected a tensor of
    rank 1
scatter_nd(f(8), i(4, 1), h(4)) | TypeError: relax.scatter_nd: expected operands of one data type
scatter_nd(f(8), f(4, 1), f(4)) | TypeError: relax.scatter_nd: indices: expected integers
scatter_nd(i(8), i(4, 1), i(4), "mean") | TypeError: relax.scatter_nd: data: expected floats
""",
    """
scatter_nd(x(8), abs(i(4, 1)) % 8, x(4))
scatter_nd(x(4, 3), abs(j(5, 1)) % 4, x(5, 3))
scatter_nd(x(4, 3), abs(i(5, 2)) % 3, x(5), "max")
scatter_nd(f(4, 3), abs(i(7, 1)) % 4, f(7, 3), "add")
scatter_nd(i(4, 3), abs(i(7, 1)) % 4, i(7, 3), "mul")
scatter_nd(h(4, 3), abs(i(7, 1)) % 4, h(7, 3), "mul")
scatter_nd(f(4, 70), abs(i(7, 1)) % 4, f(7, 70), "add")
scatter_nd(x(4, 70), abs(i(2, 3, 1)) % 4, x(2, 3, 70))
scatter_nd(x(4, 3), abs(i(2, 3, 1)) % 4, x(2, 3, 3), "min")
scatter_nd(d(4, 3), abs(i(9, 1)) % 4, d(9, 3), "mean")
scatter_nd(x(4), i(0, 1), x(0))
""",
    reference=scattered_nd,
    dtypes="fhdijub",
    ulps={"float16": 4, "float32": 4, "float64": 4},
    of_largest=True,
    within=(-3, 3),
    failures="""
scatter_nd(f(4), i(1, 1), f(1)) | np.ones(4, 'f4'), np.array([[-5]]), np.ones(1, 'f4') | IndexError:
    scatter_nd: indices: expected -4 <= index < 4, got -5
""",
)
cases(
    "index_put",
    """
index_put(f(n, m), (i(k), i(k)), f(k)) | R.Tensor((n, m), "float32")
index_put(f(n, m), (i(3, 1), i(k)), f()) | R.Tensor((n, m), "float32")
index_put(tensor(), (i(k),), f(k), True) | R.Tensor(dtype="float32")
""",
    """
index_put(f(n, m), (i(2),), f(2)) | ValueError: relax.index_put: indices: expected 2 tensors, one
    for each axis of
index_put(f(n), (f(2),), f(2)) | TypeError: relax.index_put: indices[0]: expected integers
index_put(f(n), (i(2),), h(2)) | TypeError: relax.index_put: expected operands of one data type
index_put(f(n), (i(2),), f(1, 2)) | ValueError: relax.index_put: values: expected a shape that
    broadcasts to (2,), got (1, 2)
index_put(f(n), (i(2),), f(3)) | ValueError: relax.index_put: shapes (2,) and (3,) do not broadcast
""",
    """
index_put(x(3, 4), (abs(i(5)) % 3, abs(i(5)) % 4), x(5))
index_put(f(3, 4), (abs(i(9)) % 3, abs(i(9)) % 4), f(9), True)
index_put(i(3, 4), (abs(i(2, 1)) % 3, abs(j(3)) % 4), i(3), True)
index_put(x(5), (abs(i(3)) % 5 - const(5, "int64"),), x())
""",
    reference=put,
    dtypes="fhdijub",
    ulps=4,
    of_largest=True,
    failures="""
index_put(f(4), (i(1),), f(1)) | np.ones(4, 'f4'), np.array([4]), np.ones(1, 'f4') | IndexError:
    index_put: indices: expected -4 <= index < 4, got 4
""",
)
cases(
    "slice_scatter",
    """
slice_scatter(f(n, 4), f(n, 2), 1, 3, 1, axis=1) | R.Tensor((n, 4), "float32")
slice_scatter(f(n, 4), f(m, 4), 0, n, 1) | R.Tensor((n, 4), "float32")
slice_scatter(rank(2), rank(2), 0, 2, 1, axis=-1) | R.Tensor(dtype="float32", ndim=2)
slice_scatter(tensor(), rank(2), 0, 2, 1) | R.Tensor(dtype="float32")
""",
    """
slice_scatter(f(2, 3), f(2, 2), 0, 1, 1, axis=1) | ValueError: relax.slice_scatter: src: expected 1
    elements along axis 1, got (2, 2)
slice_scatter(f(2, 3), h(2, 2), 0, 2, 1, axis=1) | TypeError: relax.slice_scatter: expected operands
    of one data type
slice_scatter(f(2, 3), f(2), 0, 2, 1) | ValueError: relax.slice_scatter: expected tensors of one
    rank
slice_scatter(f(2, 3), f(2, 3), 0, 2, 0) | ValueError: relax.slice_scatter: step: expected 1 or
    more, got 0
slice_scatter(f(2, 3), f(2, 3), 0.5, 2, 1) | TypeError: relax.slice_scatter: start: expected an
    integer
""",
    """
slice_scatter(x(4, 3), x(2, 3), 1, 3, 1)
slice_scatter(x(3, 7), x(3, 3), 1, 7, 2, axis=1)
slice_scatter(x(3, 7), x(3, 2), -2, 100, 1, axis=-1)
slice_scatter(x(3), x(0), 2, 1, 1)
""",
    reference=slice_replaced,
    dtypes="fhdijub",
    large="slice_scatter(f(393216), f(131072), 0, 131072, 1)",
)
cases(
    "reverse_sequence",
    """
reverse_sequence(f(n, m, 4), i(n)) | R.Tensor((n, m, 4), "float32")
reverse_sequence(rank(3), rank(1, "int32"), 0, -1) | R.Tensor(dtype="float32", ndim=3)
""",
    """
reverse_sequence(f(2, 3), i(2, 1)) | ValueError: relax.reverse_sequence: seq_lengths: expected a
    tensor of rank 1
reverse_sequence(f(2, 3), u(2)) | ValueError: relax.reverse_sequence: seq_lengths: expected int32 or
    int64
reverse_sequence(f(2, 3), i(3)) | ValueError: relax.reverse_sequence: number of batches differs: it
    is 2 in data and 3 in seq_lengths
reverse_sequence(f(2, 3), i(2), 1, 1) | ValueError: relax.reverse_sequence: batch_axis: expected an
    axis other than seq_axis, got 1
""",
    """
reverse_sequence(x(3, 5), abs(i(3)) % 6)
reverse_sequence(x(5, 3, 2), abs(j(3)) % 6, 0, 1)
reverse_sequence(x(2, 3, 4), abs(i(4)) % 4, 1, -1)
reverse_sequence(x(0, 3), i(0))
""",
    reference=reversed_parts,
    dtypes="fhdijub",
    failures="""
reverse_sequence(f(2, 3), i(2)) | np.ones((2, 3), 'f4'), np.array([1, 4]) | ValueError:
    reverse_sequence: seq_lengths: expected numbers from 0 to 3, got 4
""",
)
cases(
    "one_hot",
    """
one_hot(i(n), 1.0, 0.0, 3) | R.Tensor((n, 3), "float64")
one_hot(j(n, m), 1, 0, 3, 1) | R.Tensor((n, 3, m), "int64")
one_hot(rank(2, "int64"), 1, 0, 3) | R.Tensor(dtype="int64", ndim=3)
one_hot(tensor("int64"), 1, 0, 3) | R.Tensor(dtype="int64")
""",
    """
one_hot(f(n), 1, 0, 3) | TypeError: relax.one_hot: indices: expected integers
one_hot(i(n), 1, 0.0, 3) | ValueError: relax.one_hot: off_value: expected the data type of on_value
one_hot(i(n), 1, 0, -1) | ValueError: relax.one_hot: depth: expected 0 or more, got -1
one_hot(i(n), 1, 0, 3, 2) | ValueError: relax.one_hot: axis: expected an axis in -2 to 1, got 2
""",
    """
one_hot(x(7), 1, 0, 5)
one_hot(x(2, 3), 2.5, -1.0, 4, 0)
one_hot(x(2, 3), 7, 3, 6, 1)
one_hot(x(), 7, 3, 6)
one_hot(x(2, 0), 7, 3, 6)
one_hot(x(2, 2), 7, 3, 0)
""",
    reference=hot,
    dtypes="ijusw",
    within=(-2, 7),
    free=("dtype",),
)
_TRIANGLES = {"tril": lambda offset, k: offset <= k, "triu": lambda offset, k: offset >= k}
for _name, _keeps in _TRIANGLES.items():
    cases(
        _name,
        f"""
{_name}(f(n, m)) | R.Tensor((n, m), "float32")
{_name}(f(n, m), k) | R.Tensor((n, m), "float32")
{_name}(tensor(), 1) | R.Tensor(dtype="float32")
""",
        f"""
{_name}(f(n)) | ValueError: relax.{_name}: x: expected a tensor of rank 2 or more, got
{_name}(f(n, m), 0.5) | TypeError: relax.{_name}: k: expected an integer, got
""",
        f"""
{_name}(x(3, 4))
{_name}(x(5, 3), 1)
{_name}(x(2, 5, 3), -2)
{_name}(x(3, 3), 100)
{_name}(x(3, 3), -100)
{_name}(x(0, 3), 1)
""",
        reference=triangle(_keeps),
        dtypes="fhdijub",
        odd=f"""
{_name}(f(4, 5), 1)
""",
    )
