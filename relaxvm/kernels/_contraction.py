"""Sums of products along labels (einsum), in steps of bounded work."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..pieces.cut import apply, check_time, converted
from ._multiply import products_at_once
from .checks import WrongValue

__all__ = ["contract"]

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""The labels that numpy takes."""
_FEW: Final = 8
"""Operands for which numpy looks for the best order; the search takes cubic time."""
_SMALL: Final = 1 << 22
"""Multiplications that are left to numpy, which takes a few ns for each."""


def contract(subscripts: str, operands: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """out = `numpy.einsum` of operands that fit the subscripts and do not overlap with `out`.

    Contractions that take long are made two operands at a time, from the left if there are many.
    Each step is cut along its longest label, and the time limit is checked between the parts.  The
    last bits of floats may depend on this.
    """
    terms, target = _terms(subscripts, operands, out)
    dims = _dims(terms, operands)
    if len(operands) <= _FEW and math.prod(dims.values()) * len(operands) <= _SMALL:
        np.einsum(subscripts, *operands, out=out, optimize=len(operands) > 1)
        return
    rest = _summed(list(zip(terms, operands, strict=True)), target)
    for one, other in _order(rest, target)[:-1]:
        check_time()
        pair = [rest[one], rest[other]]
        rest = [each for i, each in enumerate(rest) if i not in (one, other)]
        needed = {label for term, _ in rest for label in term} | set(target)
        kept = tuple(dict.fromkeys(i for term, _ in pair for i in term if i in needed))
        lengths = _dims([term for term, _ in pair], [x for _, x in pair])
        shape = [lengths[label] for label in kept]
        if math.prod(shape) > max(_LARGE, out.size):
            rest += pair
            break
        result = np.empty(shape, out.dtype)
        _step(pair, kept, result)
        rest.append((kept, result))
    check_time()
    _step(rest, target, out)


_LARGE: Final = 1 << 22
"""Most elements of an intermediate result, unless the result has more.  Beyond, all operands
that are left are multiplied at once."""

Term = tuple[int, ...]
"""A label for each axis of a tensor."""


def _summed(
    operands: list[tuple[Term, NDArray[Any]]], target: Term
) -> list[tuple[Term, NDArray[Any]]]:
    """The operands without labels that nothing else has: these are summed first."""
    uses = Counter(label for term in ({*target}, *({*term} for term, _ in operands))
                   for label in term)  # fmt: skip
    found = []
    for term, x in operands:
        kept = tuple(dict.fromkeys(label for label in term if uses[label] > 1 or label in target))
        if len(operands) > 1 and not {*term} <= {*kept}:
            lengths = _dims([term], [x])
            result = np.empty([lengths[label] for label in kept], x.dtype)
            _step([(term, x)], kept, result)
            x, term = result, kept
        found.append((term, x))
    return found


def _terms(
    subscripts: str, operands: Sequence[NDArray[Any]], out: NDArray[Any]
) -> tuple[list[Term], Term]:
    """The labels of the operands and of the result; those of an ellipsis are negative."""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    texts = left.split(",")
    if not arrow:
        letters = sorted(set(left) - {",", "."})
        right = "..." + "".join(letter for letter in letters if left.count(letter) == 1)
    labelled = [_labels(text, x.ndim) for text, x in zip(texts, operands, strict=True)]
    return labelled, _labels(right, out.ndim)


def _labels(text: str, ndim: int) -> Term:
    before, dots, after = text.partition("...")
    extra = ndim - len(before) - len(after) if dots else 0
    return (*map(ord, before), *range(-extra, 0), *map(ord, after))


def _dims(terms: Sequence[Term], operands: Sequence[NDArray[Any]]) -> dict[int, int]:
    """The length of each label."""
    dims: dict[int, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for label, dim in zip(term, operand.shape, strict=True):
            if dim != 1 or label not in dims:
                dims[label] = dim
    return dims


def _order(operands: list[tuple[Term, NDArray[Any]]], target: Term) -> list[tuple[int, int]]:
    """Which two operands are contracted in each step; the result goes to the end."""
    count = len(operands)
    from_left = [(0, 1), *[(0, count - 1 - i) for i in range(1, count - 1)]]
    if count <= 2 or count > _FEW:
        return from_left
    letters = _letters([term for term, _ in operands])
    texts = ["".join(letters[label] for label in term) for term, _ in operands]
    subscripts = f"{','.join(texts)}->{''.join(letters[label] for label in target)}"
    path, _ = np.einsum_path(
        subscripts, *[x for _, x in operands], optimize=("greedy", 1 << 62)
    )
    steps = path[1:]
    if any(len(step) != 2 for step in steps):  # numpy would multiply all of them at once
        return from_left
    return [(min(step), max(step)) for step in steps]


def _letters(terms: Sequence[Term]) -> dict[int, str]:
    labels = dict.fromkeys(label for term in terms for label in term)
    if len(labels) > len(_LETTERS):
        raise WrongValue(f"subscripts: a product of {len(labels)} labels, more than numpy has")
    return dict(zip(labels, _LETTERS, strict=False))


def _step(
    operands: Sequence[tuple[Term, NDArray[Any]]], target: Term, out: NDArray[Any]
) -> None:
    """Contract operands, all at once."""
    terms = [term for term, _ in operands]
    tensors = [converted(x, out.dtype) for _, x in operands]
    letters = _letters(terms)
    texts = ["".join(letters[label] for label in term) for term in terms]
    text = f"{','.join(texts)}->{''.join(letters[label] for label in target)}"
    _cut(text, terms, tensors, target, out, _most(terms, tensors, target, out))


def _most(
    terms: Sequence[Term], tensors: Sequence[NDArray[Any]], target: Term, out: NDArray[Any]
) -> int:
    """The multiplications of a part: many if numpy hands it to BLAS."""
    if len(terms) == 2:
        shared = set(terms[0]) & set(terms[1])
        if shared and not shared & set(target):
            return products_at_once(out.dtype)
    return _SMALL


def _cut(
    text: str,
    terms: Sequence[Term],
    tensors: Sequence[NDArray[Any]],
    target: Term,
    out: NDArray[Any],
    most: int,
) -> None:
    dims = _dims(terms, tensors)
    if math.prod(dims.values()) <= most:
        np.einsum(text, *tensors, out=out, optimize=len(tensors) == 2)
        return
    # Sums are cut where the result has a single element left.
    label = max(dims, key=lambda each: (dims[each] > 1 and each in target, dims[each]))
    half = dims[label] // 2
    for i, part in enumerate((slice(half), slice(half, None))):
        if i:
            check_time()
        parts = [
            x[tuple([part if each == label and dim > 1 else slice(None)
                     for each, dim in zip(term, x.shape, strict=True)])]
            for term, x in zip(terms, tensors, strict=True)
        ]  # fmt: skip
        if label in target:
            _cut(text, terms, parts, target, out[(slice(None),) * target.index(label) + (part,)],
                 most)  # fmt: skip
        elif i:
            more = np.empty_like(out)
            _cut(text, terms, parts, target, more, most)
            apply(np.add, out, out, more)
        else:
            _cut(text, terms, parts, target, out, most)
