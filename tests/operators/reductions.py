"""Cases of reductions, cumulative sums, sorting and search; references use Python lists."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .table import cases, rounded


def groups(x: Any, axis: Any, keepdims: bool, function: Callable[[list[Any]], Any]) -> Any:
    """Apply a function to the elements of each group, in order."""
    axes = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis).tolist()]
    kept = [i for i in range(x.ndim) if i not in axes]
    found: dict[Any, list[Any]] = {index: [] for index in np.ndindex(*[x.shape[i] for i in kept])}
    for index in np.ndindex(x.shape):
        found[tuple(index[i] for i in kept)].append(x[index])
    shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes]
    out = np.empty(len(found), object)
    for i, elements in enumerate(found.values()):
        out[i] = function(elements)
    return out.reshape(shape)


def reduction(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keepdims=False: groups(x, axis, keepdims, function)


def total(elements: list[Any]) -> Any:
    return sum(elements[1:], elements[0]) if elements else 0


def mean(elements: list[Any]) -> Any:
    return total(elements) / len(elements)


def extreme(choose: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """The greatest or least element, or NaN if there is one."""
    return lambda elements: next((e for e in elements if e != e), choose(elements))


def place(choose: Callable[..., Any]) -> Callable[[list[Any]], int]:
    """The index of the first greatest or least element, or of the first NaN."""

    def find(elements: list[Any]) -> int:
        nans = [i for i, e in enumerate(elements) if e != e]
        return nans[0] if nans else elements.index(choose(elements))

    return find


def running(function: Callable[[Any, Any], Any], start: int) -> Callable[..., Any]:
    def scan(data: Any, axis: Any = None, dtype: str | None = None, exclusive: bool = False) -> Any:
        if axis is None:
            data, axis = data.reshape(-1), 0
        if dtype is not None and "int" in dtype and data.dtype == np.longdouble:
            data = np.trunc(data)
        out = np.empty(data.shape, object)
        rows, into = np.moveaxis(data, axis, 0), np.moveaxis(out, axis, 0)
        for index in np.ndindex(rows.shape[1:]):
            so_far: Any = start
            for i in range(len(rows)):
                element = rows[(i, *index)]
                element = int(element) if isinstance(element, np.bool_) else element
                after = function(so_far, element)
                into[(i, *index)] = so_far if exclusive else after
                so_far = after
        return out

    return scan


def ordered(row: list[Any], descending: bool) -> list[int]:
    """Indices that sort a row, stably; NaN is greater than all numbers."""
    if descending:
        return sorted(range(len(row)), key=lambda i: (row[i] == row[i], -row[i]))
    return sorted(range(len(row)), key=lambda i: (row[i] != row[i], row[i]))


def rows_of(x: Any, axis: int, function: Callable[[list[Any]], Any]) -> Any:
    """Apply a function from row to row along an axis."""
    moved = np.moveaxis(x, axis, -1)
    lists = [function(list(moved[index])) for index in np.ndindex(moved.shape[:-1])]
    length = len(lists[0]) if lists else moved.shape[-1]
    out = np.empty((len(lists), length), object)
    for i, row in enumerate(lists):
        out[i] = row
    return np.moveaxis(out.reshape(*moved.shape[:-1], length), -1, axis)


def sort(data: Any, axis: int = -1, descending: bool = False) -> Any:
    data = data.astype(int) if data.dtype == bool else data
    return rows_of(data, axis, lambda row: [row[i] for i in ordered(row, descending)])


def argsort(data: Any, axis: int = -1, descending: bool = False, dtype: str = "int32") -> Any:
    data = data.astype(int) if data.dtype == bool else data
    return rows_of(data, axis, lambda row: ordered(row, descending))


def topk(
    data: Any, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True,
    dtype: str = "int32",
) -> Any:  # fmt: skip
    count = k if k > 0 else data.shape[axis]
    values = rows_of(data, axis, lambda row: [row[i] for i in ordered(row, largest)[:count]])
    indices = rows_of(data, axis, lambda row: ordered(row, largest)[:count])
    return {"both": (values, indices), "values": values, "indices": indices}[ret_type]


cases(
    "max",
    """
max(f(n, m), 1, True) | R.Tensor((n, 1), "float32")
""",
    """
max(f(3), 1) | ValueError: relax.max: axis: expected an axis in -1 to 0, got 1
""",
    """
max(x(2, 3))
max(i(2, 3), -1, True)
max(x(2, 3, 4), 0)
max(x(2, 3, 4), [-1, 0], True)
max(x(2, 3, 4), [0, 2, 1])
max(x(3, 131), 1)
max(x(131, 3), 0)
max(x(2, 3), [])
max(x(), [])
max(x())
max(x(), keepdims=True)
""",
    reference=reduction(extreme(max)),
    odd="""
max(f(4, 5), 1)
max(d(4, 5), 0)
""",
    dtypes="fhdijub",
    ulps=rounded(4),
    of_largest=True,
    large="max(f(393216, 3), 0)",
)
cases(
    "mean",
    """
mean(f(n, m), -1) | R.Tensor((n,), "float32")
""",
    """
mean(i(3)) | TypeError: relax.mean: x: expected floats
""",
    """
mean(x(2, 3, 4), [0, -1])
mean(x(2, 3, 4), 0)
mean(negative(f(2, 3)), 0)
mean(x(2, 3, 4), [-1, 0], True)
mean(x(2, 3, 4), [0, 2, 1])
mean(x(3, 131), 1)
mean(x(131, 3), 0)
mean(x(2, 3), [])
mean(x(), [])
mean(x())
mean(x(), keepdims=True)
mean(h(70000))
mean(f(3, 9000), 1)
""",
    reference=reduction(mean),
    odd="""
mean(f(4, 5), 1)
mean(d(4, 5), 0)
""",
    dtypes="fhd",
    ulps=rounded(4),
    within=(0, 9),
    large="mean(f(393216, 3), 0)",
)
cases(
    "min",
    """
min(b(n, m), 1) | R.Tensor((n,), "bool")
""",
    """
min(f(3), 'x') | TypeError: relax.min: axis: expected
""",
    """
min(x(2, 3), 0)
min(x(2, 3, 4), 0)
min(x(2, 3, 4), [-1, 0], True)
min(x(2, 3, 4), [0, 2, 1])
min(x(3, 131), 1)
min(x(131, 3), 0)
min(x(2, 3), [])
min(x(), [])
min(x())
min(x(), keepdims=True)
""",
    reference=reduction(extreme(min)),
    odd="""
min(f(4, 5), 1)
min(d(4, 5), 0)
""",
    dtypes="fhdijub",
    ulps=rounded(4),
    of_largest=True,
    large="min(f(393216, 3), 0)",
)
cases(
    "prod",
    """
prod(i(n), 0) | R.Tensor((), "int64")
""",
    """
prod(b(3)) | TypeError: relax.prod: x: expected numbers, got R.Tensor((3,)
""",
    """
prod(i(2, 3), 0)
prod(x(2, 3, 4), 0)
prod(x(2, 3, 4), [-1, 0], True)
prod(x(2, 3, 4), [0, 2, 1])
prod(x(3, 131), 1)
prod(x(131, 3), 0)
prod(x(2, 3), [])
prod(x(), [])
prod(x())
prod(x(), keepdims=True)
prod(f(2, 0), 1)
prod(h(9))
""",
    reference=reduction(math.prod),
    odd="""
prod(f(4, 5), 1)
prod(d(4, 5), 0)
""",
    dtypes="fhdij",
    ulps=rounded(8),
    large="prod(f(393216, 3), 0)",
    within=(-2, 2),
)
cases(
    "sum",
    """
sum(f(n, m)) | R.Tensor((), "float32")
sum(f(n, m), [0, -1], True) | R.Tensor((1, 1), "float32")
sum(f(n, m), []) | R.Tensor((n, m), "float32")
sum(rank(2), 1) | R.Tensor(dtype="float32", ndim=1)
sum(rank(2), keepdims=True) | R.Tensor((1, 1), "float32")
sum(tensor(), 1) | R.Tensor(dtype="float32")
sum(tensor()) | R.Tensor((), "float32")
""",
    """
sum(b(3)) | TypeError: relax.sum: x: expected numbers, got R.Tensor((3,)
sum(f(3), [0, 0]) | ValueError: relax.sum: axis: expected each axis once, got [0, 0]
""",
    """
sum(x(2, 3))
sum(x(2, 3), [])
sum(i(2, 3, 4), [1, 2], True)
sum(x(2, 3, 4), 0)
sum(negative(f(2, 3)), 0)
sum(x(2, 3, 4), [-1, 0], True)
sum(x(2, 3, 4), [0, 2, 1])
sum(x(3, 131), 1)
sum(x(131, 3), 0)
sum(x(), [])
sum(x())
sum(x(), keepdims=True)
sum(f(2, 0), 1)
sum(h(2, 900), 1)
sum(h(900, 2), 0)
sum(f(3, 9000), 1)
sum(u(3, 90), 1)
""",
    reference=reduction(total),
    odd="""
sum(f(4, 5), 1)
sum(d(4, 5), 0)
""",
    dtypes="fhdiju",
    ulps=rounded(4),
    within=(0, 9),
    large="sum(f(393216, 3), 0)",
)
cases(
    "argmax",
    """
argmax(f(n, m)) | R.Tensor((), "int64")
argmax(f(n, m), 1, True) | R.Tensor((n, 1), "int64")
""",
    """
argmax(f(3), 1) | ValueError: relax.argmax: axis: expected an axis in -1 to 0, got 1
argmax(f(3), [0]) | TypeError: relax.argmax: axis: expected an int, got
""",
    """
argmax(x(2, 3))
argmax(x(2, 3), 1, True)
argmax(x(2, 3, 4), 1, True)
argmax(x(5, 131), -1)
argmax(x(131, 5), 0)
argmax(x(2, 3), None, True)
""",
    reference=lambda x, axis=None, keepdims=False: groups(x, axis, keepdims, place(max)),
    odd="""
argmax(f(4, 5), 1)
argmax(d(4, 5), 0)
""",
    dtypes="fhdijub",
    within=(-3, 3),
    large="argmax(f(393216, 3), 1)",
    failures="""
argmax(f(n, 3), 0) | np.empty((0, 3), 'f4') |
    ValueError: argmax: x: expected elements along axis 0, got
""",
)
cases(
    "argmin",
    """
argmin(rank(2), 1) | R.Tensor(dtype="int64", ndim=1)
""",
    """
argmin(f(3), 1) | ValueError: relax.argmin: axis: expected an axis in -1 to 0, got 1
""",
    """
argmin(x(2, 3), 0)
argmin(x(2, 3, 4), 1, True)
argmin(x(5, 131), -1)
argmin(x(131, 5), 0)
argmin(x(2, 3))
argmin(x(2, 3), None, True)
""",
    reference=lambda x, axis=None, keepdims=False: groups(x, axis, keepdims, place(min)),
    odd="""
argmin(f(4, 5), 1)
argmin(d(4, 5), 0)
""",
    dtypes="fhdijub",
    within=(-3, 3),
    large="argmin(f(393216, 3), 1)",
    failures="""
argmin(f(n, 3), 0) | np.empty((0, 3), 'f4') |
    ValueError: argmin: x: expected elements along axis 0, got
""",
)
cases(
    "cumsum",
    """
cumsum(f(n, m)) | R.Tensor((n * m,), "float32")
cumsum(f(n, m), 1, "float64", True) | R.Tensor((n, m), "float64")
cumsum(b(n), 0, "int32") | R.Tensor((n,), "int32")
""",
    """
cumsum(b(3)) | TypeError: relax.cumsum: data: expected numbers
""",
    """
cumsum(x(2, 3))
cumsum(j(2, 3), -1, "int64", True)
cumsum(x(2, 3), 0)
cumsum(x(2, 3, 4), -1, None, True)
cumsum(x(2, 3, 4), 1)
cumsum(b(5), 0, 'int32')
cumsum(d(5), 0, 'int32')
cumsum(x(2, 3), None, None, True)
cumsum(x())
cumsum(x(2, 0), 1)
""",
    reference=running(lambda a, b: a + b, 0),
    odd="""
cumsum(f(4, 5), 1)
cumsum(d(4, 5), 0)
""",
    free=("dtype",),
    dtypes="fhdiju",
    ulps={"float16": 4, "float32": 8, "float64": 8},
    of_largest=True,
    within=(-3, 3),
    large="cumsum(f(393216, 3), 1)",
)
cases(
    "cumprod",
    """
cumprod(rank(2)) | R.Tensor(dtype="float32", ndim=1)
""",
    """
cumprod(b(3)) | TypeError: relax.cumprod: data: expected numbers
""",
    """
cumprod(i(2, 3), 0)
cumprod(x(2, 3), 0)
cumprod(x(2, 3, 4), -1, None, True)
cumprod(x(2, 3, 4), 1)
cumprod(b(5), 0, 'int32')
cumprod(d(5), 0, 'int32')
cumprod(x(2, 3), None, None, True)
cumprod(x())
cumprod(x(2, 0), 1)
""",
    reference=running(lambda a, b: a * b, 1),
    odd="""
cumprod(f(4, 5), 1)
cumprod(d(4, 5), 0)
""",
    free=("dtype",),
    dtypes="fhdiju",
    ulps={"float16": 4, "float32": 8, "float64": 8},
    of_largest=True,
    within=(-3, 3),
    large="cumprod(f(393216, 3), 1)",
)
cases(
    "sort",
    """
sort(f(n, m), 0, True) | R.Tensor((n, m), "float32")
""",
    """
sort(f(3), 1) | ValueError: relax.sort: axis: expected an axis in -1 to 0, got 1
sort(f(3), descending="yes") | TypeError: relax.sort: descending: expected a bool, got str 'yes'
""",
    """
sort(x(2, 5), -1, True)
sort(x(2, 5))
sort(x(5, 2), 0)
sort(x(4, 131), 1, True)
sort(x(0, 3), 1)
sort(x(2, 3, 2), 1)
""",
    reference=sort,
    odd="""
sort(f(4, 5), 1)
sort(d(4, 5), 0)
sort(f(4, 5), 1, True)
""",
    dtypes="fhdijub",
    within=(-3, 3),
)
cases(
    "argsort",
    """
argsort(f(n, m)) | R.Tensor((n, m), "int32")
argsort(f(n, m), dtype="int64") | R.Tensor((n, m), "int64")
""",
    """
argsort(f(3), 1) | ValueError: relax.argsort: axis: expected an axis in -1 to 0, got 1
""",
    """
argsort(x(2, 5), 0)
argsort(x(5, 7), -1)
argsort(x(5, 7), 0, True)
argsort(x(3, 131), 1, True, 'int64')
argsort(x(0, 3), 0)
""",
    reference=argsort,
    odd="""
argsort(f(4, 5), 1)
argsort(d(4, 5), 0, True)
""",
    free=("dtype",),
    dtypes="fhdijub",
    within=(-3, 3),
)
cases(
    "topk",
    """
topk(f(n, 5), 2) | R.Tuple(R.Tensor((n, 2), "float32"), R.Tensor((n, 2), "int32"))
topk(f(n, 5), 7, ret_type="values") | R.Tensor((n, 5), "float32")
topk(f(n, 5), 2, 0, "indices", False, "int64") | R.Tensor((2, 5), "int64")
topk(f(n, 5), 0, 0, "values") | R.Tensor((n, 5), "float32")
topk(rank(2), 2, ret_type="values") | R.Tensor(dtype="float32", ndim=2)
""",
    """
topk(f(3), 1, ret_type="all") | ValueError: relax.topk: ret_type: expected 'both' or 'values' or
    'indices', got str 'all'
""",
    """
topk(x(2, 5), 2)
topk(x(2, 5), 9, 0, "values", False)
topk(x(2, 5), 2, 1, "indices", dtype="int64")
topk(x(4, 5), 3, 0)
topk(x(4, 5), 2, 1, 'values', False)
topk(x(4, 5), 0, 1, 'indices')
topk(x(3, 1200), 5, 1)
topk(x(3, 1200), 300, 1, 'both', False)
""",
    reference=topk,
    odd="""
topk(f(4, 5), 2, 1)
topk(d(4, 5), 2, 1, 'both', False)
""",
    free=("dtype",),
    dtypes="fdij",
    within=(-3, 3),
)


def median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    is_whole = axis is None or len(axis) == x.ndim != 1
    kept = [1] * x.ndim if keepdims else []
    if is_whole:
        flat = sorted(x.reshape(-1))
        return np.array(flat[(len(flat) - 1) // 2]).reshape(kept)
    at = axis[0] % x.ndim
    order = np.argsort(x, at, kind="stable").take([(x.shape[at] - 1) // 2], at)
    values = np.take_along_axis(x, order, at)
    found = values, order.astype(object)
    return found if keepdims else tuple(each.squeeze(at) for each in found)


def bucketized(x: Any, boundaries: Any, out_int32: bool = False, right: bool = False) -> Any:
    def count(number: Any) -> int:
        return sum(bool(b <= number if right else b < number) for b in boundaries)

    return np.array([count(x[i]) for i in np.ndindex(x.shape)], object).reshape(x.shape)


def moment(root: bool) -> Any:
    def reference(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        axes = None if axis is None else tuple(axis)
        apart = x - x.mean(axes, keepdims=True)
        found = (apart * apart).mean(axes, keepdims=keepdims)
        return np.sqrt(found) if root else found

    return reference


def collapsed(x: Any, shape: Any) -> Any:
    shape = shape.shape if isinstance(shape, np.ndarray) else tuple(shape)
    gone = x.ndim - len(shape)
    x = np.asarray(x.sum(tuple(range(gone))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return np.asarray(x.sum(axes, keepdims=True))


cases(
    "median",
    """
median(f(n, m), [1]) | R.Tuple(R.Tensor((n,), "float32"), R.Tensor((n,), "int64"))
median(f(n, m), -1, True) | R.Tuple(R.Tensor((n, 1), "float32"), R.Tensor((n, 1), "int64"))
median(f(n, m)) | R.Tensor((), "float32")
median(rank(2), keepdims=True) | R.Tensor((1, 1), "float32")
median(tensor(), [0]) | R.Tuple(R.Tensor(dtype="float32"), R.Tensor(dtype="int64"))
""",
    """
median(f(n, m, 3), [0, 1]) | ValueError: relax.median: axis: expected one axis or all of them
median(f(n), 1) | ValueError: relax.median: axis: expected an axis in -1 to 0, got 1
""",
    """
median(x(3, 5), [1])
median(x(3, 4), 0)
median(x(3, 4), [-1], True)
median(x(2, 3, 4))
median(x(2, 3), None, True)
median(x(7), 0)
""",
    reference=median,
    dtypes="fdij",
    failures="""
median(f(0, 3), [0]) | np.ones((0, 3), 'f4') | ValueError: median: x: expected elements along the
""",
)
cases(
    "bucketize",
    """
bucketize(f(n, m), f(5)) | R.Tensor((n, m), "int64")
bucketize(tensor(), i(5), True, True) | R.Tensor(dtype="int32")
""",
    """
bucketize(f(n), f(5, 3)) | ValueError: relax.bucketize: boundaries: expected a vector
bucketize(b(n), f(5)) | TypeError: relax.bucketize: input_tensor: expected numbers
""",
    """
bucketize(x(2, 3), const(np.array([-3, 0, 4], "float32")))
bucketize(x(2, 3), const(np.array([-3, 0, 4], "float32")), True, True)
bucketize(i(9), const(np.array([-3, 0, 4], "int64")), right=True)
bucketize(f(4), f(0))
""",
    reference=bucketized,
    dtypes="fhd",
    free=("dtype",),
)
for _name, _root in {"variance": False, "std": True}.items():
    cases(
        _name,
        f"""
{_name}(f(n, m), [1]) | R.Tensor((n,), "float32")
{_name}(f(n, m), keepdims=True) | R.Tensor((1, 1), "float32")
{_name}(rank(2), 0) | R.Tensor(dtype="float32", ndim=1)
""",
        f"""
{_name}(i(3)) | TypeError: relax.{_name}: x: expected floats
{_name}(f(3), 1) | ValueError: relax.{_name}: axis: expected an axis in -1 to 0, got 1
""",
        f"""
{_name}(x(2, 3))
{_name}(x(2, 3, 4), [0, -1])
{_name}(x(2, 3), 1, True)
""",
        reference=moment(_root),
        dtypes="fhd",
        ulps={"float16": 2, "float32": 16, "float64": 16},
        of_largest=True,
    )
cases(
    "collapse_sum_to",
    """
collapse_sum_to(f(n, m), (m,)) | R.Tensor((m,), "float32")
collapse_sum_to(f(n, m), (1, m)) | R.Tensor((1, m), "float32")
collapse_sum_to(rank(3), shape_var(2)) | R.Tensor(b, "float32")
""",
    """
collapse_sum_to(f(2, 3), (2,)) | ValueError: relax.collapse_sum_to: shape: (2,) does not broadcast
collapse_sum_to(f(n, 3), (m, 3)) | ValueError: relax.collapse_sum_to: shape: (m, 3) does not
collapse_sum_to(b(2, 3), (3,)) | TypeError: relax.collapse_sum_to: data: expected numbers
collapse_sum_to(f(3), (2, 3)) | ValueError: relax.collapse_sum_to: shape: expected at most 1
""",
    """
collapse_sum_to(x(2, 3), (3,))
collapse_sum_to(x(2, 3, 4), (1, 4))
collapse_sum_to(x(2, 3, 4), (2, 1, 4))
collapse_sum_to(x(2, 3), ())
collapse_sum_to(x(2, 3), (2, 3))
""",
    reference=collapsed,
    dtypes="fhdij",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
    free=("shape",),
    large="collapse_sum_to(f(393216, 3), (1, 3))",
)
cases(
    "collapse_sum_like",
    """
collapse_sum_like(f(n, m), f(m)) | R.Tensor((m,), "float32")
collapse_sum_like(f(n, m), rank(2)) | R.Tensor(dtype="float32", ndim=2)
""",
    """
collapse_sum_like(f(2, 3), f(2)) | ValueError: relax.collapse_sum_like: shape: (2,) does not
""",
    """
collapse_sum_like(x(2, 3), f(3))
collapse_sum_like(x(2, 3, 4), f(1, 4))
""",
    reference=collapsed,
    dtypes="fhdij",
    ulps={"float16": 2, "float32": 16, "float64": 16},
    of_largest=True,
    free=("shape",),
)
