"""Sorting in pieces.

A long vector is sorted in three steps.  Runs of bounded length are sorted.  Splitters, a sample of
all runs, divide each run into buckets, which a binary search finds.  The parts of a bucket from all
runs are put together and sorted.  As the sample is regular, a bucket is no longer than about two
runs; elements that equal a splitter are a bucket of their own, of any length, that is sorted as it
is.

numpy sorts without Python's lock, and reads elements again that it has counted before.  So only
copies are sorted, which no other thread writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cut import PIECE, apply, check_time, copied, flat, pieces, positions, taken
from .reduce import accumulate

__all__ = ["Distinct", "argsort", "distinct", "distinct_slices", "in_order_of_occurrence", "sort"]

_SORTED: Final = 1 << 19
"""Elements of a run of values: numpy takes up to 60 ns for each."""
_ORDERED: Final = 1 << 18
"""Elements of a run of indices: numpy takes some 100 ns for each, and more without a cache."""


def sort(row: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the elements of a vector in increasing order, as by `numpy.sort`.

    Args:
        row: may be `out`.
        out: of a data type that holds the elements.
    """
    if len(row) <= _SORTED:
        out[:] = np.sort(row)
        return
    source = copied(row)
    runs = [source[start : start + _SORTED] for start in range(0, len(row), _SORTED)]
    for run in runs:
        run.sort()
        check_time()
    end = 0
    for slices, is_sorted in _buckets(runs):
        length = sum(part.stop - part.start for part in slices)
        written = out[end : end + length]
        if is_sorted:
            _join(runs, slices, written)
        else:
            bucket = np.empty(length, row.dtype)
            _join(runs, slices, bucket)
            bucket.sort()
            written[:] = bucket
        end += length


def argsort(row: NDArray[Any]) -> NDArray[np.intp]:
    """The indices that sort a vector, those of equal elements in increasing order.  For a long one,
    uses memory for a copy and the indices of its elements."""
    if len(row) <= _ORDERED:
        return np.argsort(row.copy(), kind="stable")
    order = np.empty(len(row), np.intp)
    keys = np.empty(len(row), row.dtype)
    starts = range(0, len(row), _ORDERED)
    for start in starts:
        part = slice(start, start + _ORDERED)
        run = row[part].copy()
        found = np.argsort(run, kind="stable")
        np.add(found, start, out=order[part])
        keys[part] = run[found]
        check_time()
    key_runs = [keys[start : start + _ORDERED] for start in starts]
    order_runs = [order[start : start + _ORDERED] for start in starts]
    result = np.empty(len(row), np.intp)
    end = 0
    for slices, is_sorted in _buckets(key_runs):
        bucket = result[end : end + sum(part.stop - part.start for part in slices)]
        _join(order_runs, slices, bucket)
        if not is_sorted:
            bucket_keys = np.empty(len(bucket), row.dtype)
            _join(key_runs, slices, bucket_keys)
            bucket[:] = bucket[np.argsort(bucket_keys, kind="stable")]
        end += len(bucket)
    return result


def _buckets(runs: Sequence[NDArray[Any]]) -> Iterator[tuple[list[slice], bool]]:
    """The buckets in increasing order: its part of each run, and whether its elements are equal."""
    most = max(64, len(runs))
    sample = np.concatenate([run[:: max(1, len(run) // most)] for run in runs])
    sample.sort(kind="stable")
    splitters = sample[most::most]
    # Each once; NaN does not equal itself, but is found by a binary search.
    is_first = np.searchsorted(splitters, splitters, "left") == np.arange(len(splitters))
    splitters = splitters[is_first]
    bounds = np.zeros((len(runs), 2 * len(splitters) + 2), np.intp)
    for run, own in zip(runs, bounds, strict=True):
        own[1:-1:2] = np.searchsorted(run, splitters, "left")
        own[2:-1:2] = np.searchsorted(run, splitters, "right")
        own[-1] = len(run)
    for k in range(bounds.shape[1] - 1):
        check_time()
        yield [slice(first, last) for first, last in bounds[:, k : k + 2].tolist()], k % 2 == 1


def _join(runs: Sequence[NDArray[Any]], slices: Sequence[slice], out: NDArray[Any]) -> None:
    end = done = 0
    for run, part in zip(runs, slices, strict=True):
        count = part.stop - part.start
        out[end : end + count] = run[part]
        end += count
        if end - done > PIECE:
            done = end
            check_time()


class Distinct(NamedTuple):
    """The distinct elements of a tensor, or slices along its first axis, in increasing order.

    Attributes:
        values: the elements or slices.
        first: index of the first occurrence of each.
        inverse: for each element or slice of the tensor, its index in `values`.
        counts: the number of occurrences of each.
    """

    values: NDArray[Any]
    first: NDArray[np.intp]
    inverse: NDArray[np.intp]
    counts: NDArray[np.intp]


def distinct(x: NDArray[Any]) -> Distinct:
    """The distinct elements, as by `numpy.unique`."""
    if x.size <= _ORDERED:
        return _numpys(x, None)
    elements = flat(x)
    order = argsort(elements)
    keys = taken(elements, order)
    is_first = np.ones(len(keys), np.bool_)
    apply(np.not_equal, is_first[1:], keys[1:], keys[:-1])
    if keys.dtype.kind in "fcmM" and np.isnan(keys[-1]):  # numpy takes all of them for equal
        is_nan = np.empty(len(keys), np.bool_)
        apply(np.isnan, is_nan, keys)
        is_first[np.searchsorted(is_nan, True) + 1 :] = False
    return _distinct(keys, order, is_first)


def distinct_slices(x: NDArray[Any]) -> Distinct:
    """The distinct slices along the first axis, compared element by element from the first one, as
    by `numpy.unique`."""
    if x.size <= PIECE >> 4:  # numpy makes a field of a data type for each column
        return _numpys(x, 0)
    rows = flat(x).reshape(len(x), x.size // len(x))
    order, is_first = _order_of_rows(rows)
    has_nan = np.empty(len(rows), np.bool_)
    for part, marked in pieces(rows, has_nan, row=1):
        marked[...] = _differs(part, part).any(-1)
    is_first |= has_nan[order]  # NaN does not equal itself
    found = _distinct(order, order, is_first)
    values = np.empty((len(found.values), *x.shape[1:]), x.dtype)
    for row, k in zip(values.reshape(-1, rows.shape[1]), found.first.tolist(), strict=True):
        for written, read in pieces(row, rows[k]):
            written[:] = read
        check_time()
    return found._replace(values=values)


def in_order_of_occurrence(found: Distinct) -> Distinct:
    """The same elements in the order of their first occurrence."""
    order = argsort(found.first)
    place = np.empty(len(order), np.intp)
    for at, start in pieces(order, np.arange(len(order))):
        place[at] = start
    values = np.empty(found.values.shape, found.values.dtype)
    for written, at in pieces(values, order, row=values.ndim - 1):
        written[...] = found.values[at]
    return Distinct(
        values, taken(found.first, order), taken(place, found.inverse), taken(found.counts, order)
    )


def _numpys(x: NDArray[Any], axis: int | None) -> Distinct:
    values, first, inverse, counts = np.unique(x, True, True, True, axis)
    return Distinct(values, first, inverse.reshape(-1), counts)


def _distinct(keys: NDArray[Any], order: NDArray[np.intp], is_first: NDArray[np.bool_]) -> Distinct:
    """What is distinct among sorted keys.

    Args:
        keys: sorted.
        order: their indices before they were sorted.
        is_first: whether a key is the first of equal ones.
    """
    places = positions(is_first)
    rank = np.empty(len(keys), np.intp)
    accumulate(np.add, is_first, rank)
    inverse = np.empty(len(keys), np.intp)
    for at, ranks in pieces(order, rank):
        inverse[at] = ranks - 1
    counts = np.empty(len(places), np.intp)
    apply(np.subtract, counts[:-1], places[1:], places[:-1])
    counts[-1:] = len(keys) - places[-1:]
    return Distinct(taken(keys, places), taken(order, places), inverse, counts)


def _order_of_rows(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The indices that sort rows, stably, and which of the sorted rows differ from those before.

    All rows are one group at first.  Of the columns, in turn, each that differs within a group
    divides it; those that do not are skipped, many at a time.
    """
    count, length = rows.shape
    order = np.arange(count)
    is_first = np.zeros(count, np.bool_)
    is_first[0] = True
    width = max(1, (PIECE >> 4) // count)
    column = 0
    while column < length and not is_first.all():
        check_time()
        together = np.flatnonzero(~is_first)  # the rows of one group with the row before
        block = slice(column, column + width)
        differs = np.zeros(min(width, length - column), np.bool_)
        for at in np.split(together, range(PIECE, len(together), PIECE)):
            check_time()
            a, b = rows[order[at - 1], block], rows[order[at], block]
            differs |= (_differs(a, b) & ~(_differs(a, a) & _differs(b, b))).any(0)
        if not differs.any():
            column += len(differs)
            continue
        column += int(differs.argmax())
        keys = taken(rows[:, column], order)
        group = np.empty(count, np.intp)
        accumulate(np.add, is_first, group)
        by_key = argsort(keys)
        by_group = taken(by_key, argsort(taken(group, by_key)))
        keys, order = taken(keys, by_group), taken(order, by_group)
        for written, a, b in pieces(is_first[1:], keys[1:], keys[:-1]):
            written |= _differs(a, b) & ~(_differs(a, a) & _differs(b, b))
        column += 1
    return order, is_first


def _differs(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Where elements differ; NaN differs from itself."""
    found: NDArray[np.bool_] = np.not_equal(a, b)
    return found
