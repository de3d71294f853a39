"""Sums of products over axes that operands share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...ir.expr import Expr
from .. import tensor as te
from ..tensor import Tensor, compute
from ._loops import axis_of

__all__ = ["einsum", "tensordot"]


def einsum(subscripts: str, *operand: Any) -> Tensor:
    """Einstein's sum: letters name the axes of the operands; the others are summed.

    Args:
        subscripts: as in ``numpy.einsum``: ``"ij,jk->ik"``; without ``->`` the result has the
            letters that appear once, in alphabetical order; ``...`` stands for leading axes that
            broadcast.
        operand: the tensors, or one list of them.

    Raises:
        ValueError: the subscripts do not fit the operands, or name an unknown axis.
    """
    tensors: Sequence[Tensor] = (
        operand[0] if len(operand) == 1 and isinstance(operand[0], (list, tuple)) else operand
    )
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise ValueError(f"einsum: {subscripts!r} has {len(terms)} operands, got {len(tensors)}")
    names = [
        _axes(term, tensor.ndim, subscripts) for term, tensor in zip(terms, tensors, strict=True)
    ]
    dims: dict[Any, Expr] = {}
    for axes, tensor in zip(names, tensors, strict=True):
        for name, dim in zip(axes, tensor.shape, strict=True):
            known = dims.get(name)
            if known is None or getattr(known, "value", None) == 1:
                dims[name] = dim
            elif not _may_be_equal(dim, known):
                sizes = " and ".join(str(getattr(d, "value", d)) for d in (known, dim))
                raise ValueError(f"einsum: {subscripts!r}: axis {name!r} is {sizes}")
    broadcast = sorted(name for name in dims if isinstance(name, int))
    if arrow:
        depth = len(broadcast)
        result = _axes(right, len(right.replace("...", "")) + depth * ("..." in right), subscripts)
    else:
        used = "".join(terms)
        result = [*broadcast, *sorted(c for c in set(used) - {"."} if used.count(c) == 1)]
    for name in result:
        if name not in dims or result.count(name) > 1:
            raise ValueError(f"einsum: {subscripts!r}: axis {name!r} of the result")
    summed = {
        name: te.reduce_axis((0, dim), f"r_{name}")
        for name, dim in dims.items()
        if name not in result
    }

    def element(*i: Expr) -> Any:
        at = {**dict(zip(result, i, strict=True)), **{n: iv.var for n, iv in summed.items()}}
        factors = []
        for axes, tensor in zip(names, tensors, strict=True):
            places = zip(axes, tensor.shape, strict=True)
            factors.append(tensor[tuple([0 if _is_wide(d, dims[n]) else at[n] for n, d in places])])
        product = functools.reduce(lambda a, b: a * b, factors)
        return te.sum(product, list(summed.values())) if summed else product

    shape = [dims[name] for name in result]
    return compute(shape, element, "T_einsum", varargs_names=[f"ax{k}" for k in range(len(shape))])


def _may_be_equal(dim: Expr, known: Expr) -> bool:
    """Whether one dimension is 1, or the two are not known to differ."""
    a, b = getattr(dim, "value", None), getattr(known, "value", None)
    return a is None or b is None or a == 1 or a == b


def _is_wide(own: Expr, whole: Expr) -> bool:
    """Whether an axis of length 1 is repeated."""
    return getattr(own, "value", None) == 1 and getattr(whole, "value", None) != 1


def _axes(term: str, rank: int, subscripts: str) -> list[Any]:
    """The names of the axes of a term: letters, and numbers from -1 down for those of ``...``."""
    start, dots, end = term.partition("...")
    letters = [*start, *end]
    if not all(letter.isalpha() for letter in letters):
        raise ValueError(f"einsum: {subscripts!r}: expected letters, got {term!r}")
    wide = rank - len(letters)
    if wide < 0 or (wide and not dots):
        raise ValueError(f"einsum: {subscripts!r}: {term!r} for a tensor of {rank} dimensions")
    return [*start, *range(-wide, 0), *end]


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """The sum of products over axes of two tensors; the result has the other axes of the first,
    then those of the second.

    Args:
        axes: how many of the last axes of `a` and the first of `b`, or two lists of axes.

    Raises:
        ValueError: the lists differ in length, or there is no such axis.
    """
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise ValueError(
                f"tensordot: axes: expected 0 to {min(a.ndim, b.ndim)} for {a} and {b}, got {axes}"
            )
        mine = list(range(a.ndim - axes, a.ndim))
        theirs = list(range(axes))
    else:
        mine, theirs = [[each] if isinstance(each, int) else list(each) for each in axes]
    mine = [axis_of(axis, a.ndim, "tensordot") for axis in mine]
    theirs = [axis_of(axis, b.ndim, "tensordot") for axis in theirs]
    if len(mine) != len(theirs):
        raise ValueError(f"tensordot: {len(mine)} axes against {len(theirs)}")
    summed = [te.reduce_axis((0, a.shape[axis]), f"k{n}") for n, axis in enumerate(mine)]
    of_a = [axis for axis in range(a.ndim) if axis not in mine]
    of_b = [axis for axis in range(b.ndim) if axis not in theirs]

    def element(*i: Expr) -> Any:
        x = {**dict(zip(of_a, i, strict=False)),
             **{axis: iv.var for axis, iv in zip(mine, summed, strict=True)}}  # fmt: skip
        y = {**dict(zip(of_b, i[len(of_a) :], strict=True)),
             **{axis: iv.var for axis, iv in zip(theirs, summed, strict=True)}}  # fmt: skip
        product = a[tuple([x[k] for k in range(a.ndim)])] * b[tuple([y[k] for k in range(b.ndim)])]
        return te.sum(product, summed) if summed else product

    shape = [a.shape[axis] for axis in of_a] + [b.shape[axis] for axis in of_b]
    return compute(
        shape, element, "T_tensordot", varargs_names=[f"ax{k}" for k in range(len(shape))]
    )
