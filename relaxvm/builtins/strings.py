"""Tensors of strings: arrays of objects, all of which are strings.

Programs move strings by their indices: a tensor of strings is a *table*, a vector of strings, and a
tensor of indices into it, on which the operators for numbers work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .._core import charge_objects
from ..dtypes import as_dtype
from ..messages import describe
from ..pieces.cut import check_time
from .arguments import as_array, as_int, as_shape, as_str
from .regex import Pattern, compiled
from .registration import OWN_PREFIX, builtin

__all__ = ["number_to_string", "regex_full_match", "string_concat", "string_equal",
           "string_normalize", "string_split", "string_to_number", "strings_from",
           "strings_indexed", "strings_merged", "strings_take", "tf_idf", "tokenize"]  # fmt: skip

_CASES: Final[dict[str, Callable[[str], str]]] = {
    "LOWER": str.lower, "UPPER": str.upper, "NONE": str,
}  # fmt: skip
_FEW: Final = 4096
"""Strings that are looked at without a look at the time in between."""
_STRING_BYTES: Final = 60
"""About what a string takes beside its characters."""


def _size(*parts: str) -> int:
    """Return about how many bytes a string of these parts takes, at most."""
    width = 1 if all(map(str.isascii, parts)) else 4
    return _STRING_BYTES + width * sum(map(len, parts))


def _as_strings(x: Any, subject: str) -> NDArray[Any]:
    """A tensor of strings as an array of objects."""
    array = as_array(x, subject)
    if array.dtype.kind in "UT":
        charge_objects(array.size * (_STRING_BYTES + array.dtype.itemsize))
        return array.astype(object)
    if array.dtype.kind != "O":
        raise TypeError(f"{subject}: expected a tensor of strings, got {describe(array)}")
    if array.size <= _FEW and {str}.issuperset(map(type, array.reshape(-1).tolist())):
        return array
    for each in array.flat:
        check_time()
        if not isinstance(each, str):
            raise TypeError(f"{subject}: expected strings, got {describe(each)}")
    return array


def _made(strings: Iterable[str], shape: Sequence[int]) -> NDArray[Any]:
    """New strings as a tensor."""
    found = np.empty(tuple(shape), object)
    flat = found.reshape(-1)
    for i, each in enumerate(strings):
        check_time()
        charge_objects(_size(each))
        flat[i] = each
    return found


# Tables


@builtin("strings_from", "text: str, lengths: shape|tuple", result="tensor", prefix=OWN_PREFIX)
def strings_from(text: Any, lengths: Any) -> NDArray[Any]:
    """Return a table: the parts of a text.

    Args:
        lengths: the number of characters of each part.

    Raises:
        TypeError: the arguments are something else.
        ValueError: the lengths are not those of parts of the text.
    """
    whole = as_str(text, "strings_from: text")
    counts = as_shape(lengths, "strings_from: lengths")
    if min(counts, default=0) < 0 or sum(counts) != len(whole):
        raise ValueError(
            f"strings_from: lengths: expected those of parts of {len(whole)} characters"
        )

    # All at once: they take no more than this.
    charge_objects(_STRING_BYTES * max(len(counts) - 1, 0) + _size(whole))
    found = np.empty(len(counts), object)
    start = 0
    for i, count in enumerate(counts):
        if not i % _FEW:
            check_time()
        found[i] = whole[start : start + count]
        start += count
    return found


@builtin("strings_indexed", "x: tensor", result="tuple", prefix=OWN_PREFIX)
def strings_indexed(x: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the table of a tensor of strings, and the indices, a tensor of its shape.

    Raises:
        TypeError: not a tensor of strings.
    """
    strings = _as_strings(x, "strings_indexed")
    return strings.reshape(-1), np.arange(strings.size).reshape(strings.shape)


@builtin("strings_take", "table: tensor, indices: tensor", result="tensor", prefix=OWN_PREFIX)
def strings_take(table: Any, indices: Any) -> NDArray[Any]:
    """Return the strings of a table at indices.

    Raises:
        TypeError: the arguments are something else.
        IndexError: the table does not have an index.
    """
    strings = _as_strings(table, "strings_take: table")
    places = as_array(indices, "strings_take: indices")
    if strings.ndim != 1 or places.dtype.kind not in "iu":
        raise TypeError(
            f"strings_take: expected a vector and a tensor of integers, got {describe(strings)} "
            f"and {describe(places)}"
        )
    found = np.empty(places.shape, object)
    np.take(strings, places, out=found)
    return found


@builtin("strings_merged", "*pairs: tensor", result="tuple", prefix=OWN_PREFIX)
def strings_merged(*pairs: Any) -> tuple[NDArray[Any], ...]:
    """Return one table for several: given each table and the indices into it, return the table and
    the indices into it.

    Raises:
        TypeError: the arguments are something else.
        ValueError: they are not pairs.
    """
    if len(pairs) % 2:
        raise ValueError("strings_merged: expected indices for each table")
    tables, moved, start = [], [], 0
    for table, indices in zip(pairs[::2], pairs[1::2], strict=True):
        check_time()
        strings = _as_strings(table, "strings_merged: table")
        places = as_array(indices, "strings_merged: indices")
        if strings.ndim != 1 or places.dtype.kind not in "iu":
            raise TypeError(
                f"strings_merged: expected a vector and a tensor of integers, got "
                f"{describe(strings)} and {describe(places)}"
            )
        tables.append(strings)
        moved.append(np.asarray(places + np.int64(start)))
        start += strings.size
    return (np.concatenate([np.empty(0, object), *tables]), *moved)


# Functions of strings


@builtin("string_concat", "a: tensor, b: tensor", result="tensor", prefix=OWN_PREFIX)
def string_concat(a: Any, b: Any) -> NDArray[Any]:
    """Return each string of a with one of b behind it; the shapes broadcast.

    Raises:
        TypeError: not tensors of strings.
        ValueError: the shapes do not broadcast.
    """
    x, y = _as_strings(a, "string_concat: a"), _as_strings(b, "string_concat: b")
    left, right = np.broadcast_arrays(x, y)

    def joined() -> Iterable[str]:
        for p, q in zip(left.flat, right.flat, strict=True):
            charge_objects(_size(p, q))
            yield p + q

    return _made(joined(), left.shape)


@builtin("string_equal", "a: tensor, b: tensor", result="tensor", prefix=OWN_PREFIX)
def string_equal(a: Any, b: Any) -> NDArray[np.bool_]:
    """Return whether strings are equal; the shapes broadcast.

    Raises:
        TypeError: not tensors of strings.
        ValueError: the shapes do not broadcast.
    """
    x, y = _as_strings(a, "string_equal: a"), _as_strings(b, "string_equal: b")
    left, right = np.broadcast_arrays(x, y)
    found = np.empty(left.shape, np.bool_)
    if found.size <= _FEW:
        np.equal(left, right, out=found)
        return found
    flat = found.reshape(-1)
    for i, (p, q) in enumerate(zip(left.flat, right.flat, strict=True)):
        check_time()
        flat[i] = p == q
    return found


@builtin(
    "string_normalize",
    "x: tensor, case: str, is_case_sensitive: int, stopwords: tensor",
    result="tensor",
    prefix=OWN_PREFIX,
)
def string_normalize(
    x: Any, case: Any, is_case_sensitive: Any, stopwords: Any
) -> NDArray[Any]:
    """Return a vector of strings, or a matrix of one row, without some of them.

    Args:
        case: "LOWER" or "UPPER": what the other strings are changed to; or "NONE".
        is_case_sensitive: whether stopwords have to be spelt alike.
        stopwords: the strings to remove.

    Returns:
        The rest, in a tensor of the same rank; one empty string if nothing is left.

    Raises:
        TypeError: not tensors of strings.
        ValueError: another rank or case.
    """
    strings = _as_strings(x, "string_normalize: x")
    words = _as_strings(stopwords, "string_normalize: stopwords")
    if strings.ndim not in (1, 2) or (strings.ndim == 2 and len(strings) != 1):
        raise ValueError(
            f"string_normalize: x: expected a vector or a matrix of one row, got "
            f"{describe(strings)}"
        )
    change = _CASES.get(as_str(case, "string_normalize: case"))
    if change is None:
        raise ValueError(f"string_normalize: case: expected LOWER, UPPER or NONE, got {case!r}")
    spelt = str if as_int(is_case_sensitive, "string_normalize: is_case_sensitive") else str.lower
    unwanted = {spelt(word) for word in words.flat}
    kept = []
    for each in strings.flat:
        check_time()
        charge_objects(_size(each, each, each))  # a character becomes up to three
        if spelt(each) not in unwanted:
            kept.append(change(each))
    kept = kept or [""]
    return _made(kept, [len(kept)] if strings.ndim == 1 else [1, len(kept)])


@builtin("string_split", "x: tensor, delimiter: none|str, maxsplit: int", result="tuple",
         prefix=OWN_PREFIX)  # fmt: skip
def string_split(x: Any, delimiter: Any, maxsplit: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the parts of strings, along a new last axis with empty strings behind the last part;
    and the number of parts of each.

    Args:
        delimiter: the text between parts; None or "" is any white space.
        maxsplit: of how many delimiters at most; -1 of all.

    Raises:
        TypeError: not a tensor of strings.
        LimitError: the limits of the VM do not allow that many parts.
    """
    strings = _as_strings(x, "string_split: x")
    text = None if delimiter is None else as_str(delimiter, "string_split: delimiter") or None
    most = as_int(maxsplit, "string_split: maxsplit")
    rows = []
    for each in strings.flat:
        check_time()
        parts = len(each) // 2 if text is None else each.count(text)
        charge_objects(_size(each) + _STRING_BYTES * (parts + 1))
        rows.append(each.split(text, min(most, len(each))))
    counts = np.array([len(row) for row in rows], np.int64).reshape(strings.shape)
    return _side_by_side(rows, strings.shape, ""), counts


@builtin(
    "tokenize",
    "x: tensor, patterns: tensor, is_separator: int, least: int, pad: str, mark: int",
    result="tensor",
    prefix=OWN_PREFIX,
)
def tokenize(
    x: Any, patterns: Any, is_separator: Any, least: Any, pad: Any, mark: Any
) -> NDArray[Any]:
    """Return the tokens of strings, along a new last axis.

    Args:
        patterns: regular expressions, see `regex_full_match`: of the tokens, or of what separates
            them; none stands for tokens of one character.
        is_separator: whether they separate tokens, one after the other.
        least: tokens of fewer characters are left out.
        pad: is behind the last token of a string that has fewer than others.
        mark: whether a token "\\x02" comes first, and a token "\\x03" last.

    Raises:
        TypeError: the arguments are something else.
        ValueError: a pattern is malformed, or has something that is not supported.
    """
    strings = _as_strings(x, "tokenize: x")
    machines = [compiled(each) for each in _as_strings(patterns, "tokenize: patterns").flat]
    filler = as_str(pad, "tokenize: pad")
    shortest = max(as_int(least, "tokenize: least"), 1)
    rows = []
    for each in strings.flat:
        check_time()
        charge_objects(_size(each) + len(each) * (_STRING_BYTES + 2))
        found = _tokens(each, machines, bool(is_separator))
        row = [token for token in found if len(token) >= shortest]
        rows.append(["\x02", *row, "\x03"] if mark else row)
    return _side_by_side(rows, strings.shape, filler)


def _tokens(text: str, machines: Sequence[Pattern], is_separator: bool) -> list[str]:
    if not machines:
        return [*text]
    if not is_separator:
        return [text[start:end] for start, end in _matches(machines[0], text)]
    found = [text]
    for machine in machines:
        parts = []
        for each in found:
            place = 0
            for start, end in _matches(machine, each):
                parts.append(each[place:start])
                place = end
            parts.append(each[place:])
        found = [part for part in parts if part]
    return found


def _matches(machine: Pattern, text: str) -> Iterator[tuple[int, int]]:
    """The matches that have characters, from the first on."""
    place = 0
    while place < len(text):
        found = machine.find(text, place)
        if found is None:
            return
        start, end = found
        if end > start:
            yield start, end
        place = max(end, start + 1)


def _side_by_side(rows: Sequence[Sequence[str]], shape: Sequence[int], filler: str) -> NDArray[Any]:
    """A tensor of a shape, with a new last axis for each row."""
    width = max(map(len, rows), default=0)
    found = np.empty((*shape, width), object)
    flat = found.reshape(-1)
    flat[:] = filler
    for i, row in enumerate(rows):
        check_time()
        charge_objects(sum(map(_size, row)))
        flat[i * width : i * width + len(row)] = row
    return found


@builtin("regex_full_match", "x: tensor, pattern: str", result="tensor", prefix=OWN_PREFIX)
def regex_full_match(x: Any, pattern: Any) -> NDArray[np.bool_]:
    """Return whether a regular expression matches the whole of each string.  The syntax is that of
    RE2; the time is linear in the length of a string.

    Raises:
        TypeError: not a tensor of strings.
        ValueError: the pattern is malformed, or has something that is not supported.
    """
    strings = _as_strings(x, "regex_full_match: x")
    machine = compiled(as_str(pattern, "regex_full_match: pattern"))
    found = np.empty(strings.shape, np.bool_)
    flat = found.reshape(-1)
    for i, each in enumerate(strings.flat):
        check_time()
        flat[i] = machine.matches(each)
    return found


# Numbers


@builtin("number_to_string", "x: tensor", result="tensor", prefix=OWN_PREFIX)
def number_to_string(x: Any) -> NDArray[Any]:
    """Return numbers as text, the shortest that is read as the same number; "NaN", "INF", "-INF".

    Raises:
        TypeError: not a tensor of numbers.
    """
    array = as_array(x, "number_to_string")
    if array.dtype.kind not in "biufV":
        raise TypeError(f"number_to_string: expected numbers, got {describe(array)}")
    special = {"nan": "NaN", "inf": "INF", "-inf": "-INF", "True": "1", "False": "0"}
    texts = (str(each) for each in array.flat)
    return _made((special.get(text, text) for text in texts), array.shape)


@builtin("string_to_number", "x: tensor, dtype: str", result="tensor", prefix=OWN_PREFIX)
def string_to_number(x: Any, dtype: Any) -> NDArray[Any]:
    """Return the numbers that strings spell, as a data type.

    Raises:
        TypeError: not a tensor of strings, or not a data type of numbers.
        ValueError: a string is not a number of the data type.
    """
    strings = _as_strings(x, "string_to_number: x")
    kind = as_dtype(as_str(dtype, "string_to_number: dtype"))
    if kind.kind not in "biufV" or kind.hasobject:
        raise TypeError(f"string_to_number: dtype: expected one of numbers, got {dtype!r}")
    found = np.empty(strings.shape, kind)
    flat = found.reshape(-1)
    limits = np.iinfo(kind) if kind.kind in "iu" else None
    for i, each in enumerate(strings.flat):
        check_time()
        try:
            if "_" in each or len(each) > 1000:
                raise ValueError
            if limits is None:
                flat[i] = float(each)
                continue
            number = int(each)
            if not limits.min <= number <= limits.max:  # numpy before 2 wraps them around
                raise OverflowError
            flat[i] = number
        except (ValueError, OverflowError):
            raise ValueError(
                f"string_to_number: expected a {dtype}, got {describe(each)}"
            ) from None
    return found


# N-grams


@builtin(
    "tf_idf",
    "x: tensor, pool: tensor, starts: shape|tuple, outputs: shape|tuple, least: int, most: int, "
    "skips: int, mode: str, weights: none|tensor",
    result="tensor",
    prefix=OWN_PREFIX,
)
def tf_idf(
    x: Any, pool: Any, starts: Any, outputs: Any, least: Any, most: Any, skips: Any, mode: Any,
    weights: Any,
) -> NDArray[np.float32]:  # fmt: skip
    """Return how often each n-gram of a pool occurs in a row.

    Args:
        x: a vector or matrix of integers or strings.
        pool: the n-grams, one behind the other, those of one element first.
        starts: where those of 1, 2, 3 and more elements begin.
        outputs: for each n-gram its column in the result.
        least, most: the lengths of n-grams that are counted.
        skips: by how many elements at most those of an n-gram are apart, for which it counts again.
        mode: "TF": how often; "IDF": the weight if it occurs; "TFIDF": the product.
        weights: float32, for each n-gram; None: 1.

    Raises:
        TypeError: the arguments are something else.
        ValueError: they do not fit together.
    """
    rows = _as_ids(x, "tf_idf: x")
    known = _as_ids(pool, "tf_idf: pool").reshape(-1)
    charge_objects(150 * known.size)  # for the n-grams as tuples, and their places
    begins = as_shape(starts, "tf_idf: starts")
    columns = as_shape(outputs, "tf_idf: outputs")
    low, high = as_int(least, "tf_idf: least"), as_int(most, "tf_idf: most")
    apart = as_int(skips, "tf_idf: skips")
    if rows.ndim not in (1, 2):
        raise ValueError(f"tf_idf: x: expected a vector or a matrix, got {describe(rows)}")
    if not 1 <= low <= high or apart < 0 or mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(
            f"tf_idf: expected 1 <= least <= most, skips >= 0 and a mode, got {low}, {high}, "
            f"{apart} and {describe(mode)}"
        )
    grams = _grams(known, begins, len(columns))
    if min(columns, default=0) < 0:
        raise ValueError("tf_idf: outputs: expected columns >= 0")
    factors = None
    if weights is not None and mode != "TF":
        factors = as_array(weights, "tf_idf: weights")
        if factors.shape != (len(columns),) or factors.dtype.kind != "f":
            raise ValueError(
                f"tf_idf: weights: expected {len(columns)} floats, got {describe(factors)}"
            )
    lengths = sorted(n for n in grams.lengths if low <= n <= high)
    table = rows.reshape(1, -1) if rows.ndim == 1 else rows
    found = np.zeros((len(table), max(columns, default=-1) + 1), np.float32)
    for out, row in zip(found, table, strict=True):
        counts = np.zeros(len(columns), np.float32)
        charge_objects(40 * row.size)
        items = row.tolist()
        for n in lengths:
            for gap in range(1, (apart if n > 1 else 0) + 2):
                if (n - 1) * gap >= len(items):
                    break
                for start in range(len(items) - (n - 1) * gap):
                    check_time()
                    at = grams.index.get(tuple(items[start : start + (n - 1) * gap + 1 : gap]))
                    if at is not None:
                        counts[at] += 1
        if mode == "IDF":
            np.minimum(counts, 1, out=counts)
        if factors is not None:
            counts *= factors
        np.add.at(out, list(columns), counts)
    return found[0] if rows.ndim == 1 else found


def _as_ids(x: Any, subject: str) -> NDArray[Any]:
    """Integers as they are, or strings."""
    array = as_array(x, subject)
    return array if array.dtype.kind in "iu" else _as_strings(array, subject)


class _Grams:
    """Where n-grams are in a pool.

    Attributes:
        index: the n-grams and their numbers.
        lengths: those that there are.
    """

    def __init__(self) -> None:
        self.index: dict[tuple[Any, ...], int] = {}
        self.lengths: set[int] = set()


def _grams(pool: NDArray[Any], starts: Sequence[int], count: int) -> _Grams:
    found = _Grams()
    items = pool.tolist()
    bounds = [*starts, len(items)]
    if bounds != sorted(bounds) or (bounds and bounds[0] < 0):
        raise ValueError(f"tf_idf: starts: expected places in the pool, got {tuple(starts)}")
    number = 0
    for n, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        if (end - begin) % n:
            raise ValueError(f"tf_idf: pool: expected n-grams of {n} elements from {begin} on")
        for at in range(begin, end, n):
            check_time()
            found.index.setdefault(tuple(items[at : at + n]), number)
            found.lengths.add(n)
            number += 1
    if number != count:
        raise ValueError(f"tf_idf: outputs: expected {number} columns, got {count}")
    return found
