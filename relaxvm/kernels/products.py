"""Matrix products, computed by BLAS for the data types that numpy has it for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..messages import describe
from ..pieces.cut import converted, copy_pieces
from ._arrays import copy_if_overlapping, share_float_type
from ._blocks import piecewise
from ._contraction import contract
from ._kernel import kernel
from ._multiply import multiply
from .checks import Dims, WrongValue, broadcast, check_out, native, result_dtype, working_dtype
from .kinds import Out, Tensor, Text

__all__: list[str] = []


@kernel("matmul")
def matmul(a: Tensor, b: Tensor, out: Out) -> None:
    """out = a @ b.  a[..., n, k], b[..., k, m], out[..., n, m]; leading dimensions broadcast.  If a
    is a vector there is no n, if b is one no m.  out may be of a wider data type, which a and b are
    converted to first."""
    _product(a, b, out, takes_vectors=True)


@kernel("matmul_nt")
def matmul_nt(a: Tensor, b: Tensor, out: Out) -> None:
    """out = a @ the transpose of b.  a[..., n, k], b[..., m, k], out[..., n, m]."""
    _product(a, b, out, transpose_b=True)


@kernel("matmul_tn")
def matmul_tn(a: Tensor, b: Tensor, out: Out) -> None:
    """out = the transpose of a @ b.  a[..., k, n], b[..., k, m], out[..., n, m]."""
    _product(a, b, out, transpose_a=True)


@kernel("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None, out: Out) -> None:
    """out = x @ the transpose of weight, + bias unless it is None.  x[..., k] or x[k],
    weight[m, k], out[..., m]; bias broadcasts to out."""
    if weight.ndim != 2 or x.ndim < 1:
        raise WrongValue(
            f"expected x[..., k], weight[m, k], got x {describe(x)}, weight {describe(weight)}"
        )
    left, right, dtype = _operands(x, weight, out, takes_vectors=True, transpose_b=True)
    if bias is not None:
        if native(bias.dtype) != dtype:
            raise WrongValue(f"bias: expected {dtype}, got {describe(bias)}")
        check_out(out, dtype, broadcast(bias=bias, out=out))
        bias = copy_if_overlapping(bias, out)
    _multiply(left, right, out, dtype)
    if bias is not None:
        piecewise(np.add, out, out, bias)


def _product(
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    *,
    takes_vectors: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> None:
    if share_float_type(out, a, b) and b.ndim == 2:
        try:
            if a.ndim == out.ndim == 2:
                multiply(a.T if transpose_a else a, b.T if transpose_b else b, out)
                return
            if a.shape[:-1] == out.shape[:-1] and _are_rows(a, out) and not transpose_a:
                rows = a.reshape(-1, a.shape[-1])
                multiply(rows, b.T if transpose_b else b, out.reshape(-1, out.shape[-1]))
                return
        except ValueError:
            pass  # the message below is better
    left, right, dtype = _operands(
        a, b, out, takes_vectors=takes_vectors, transpose_a=transpose_a, transpose_b=transpose_b
    )
    _multiply(left, right, out, dtype)


def _operands(
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    *,
    takes_vectors: bool = False,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tuple[NDArray[Any], NDArray[Any], np.dtype[Any]]:
    """Check that the arguments of a product fit each other; return what numpy.matmul multiplies,
    and in which data type.

    Raises:
        WrongType: matmul does not take the data types.
        WrongValue: the shapes do not fit, or `out` is not for the result.
    """
    if min(a.ndim, b.ndim) < (1 if takes_vectors else 2):
        raise WrongValue(
            f"expected {'vectors or ' if takes_vectors else ''}matrices, got a {describe(a)}, b "
            f"{describe(b)}; vm.builtin.reshape makes one of another tensor"
        )
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    inner = -2 if right.ndim > 1 else -1
    if left.shape[-1] != right.shape[inner]:
        axes = (-2 if transpose_a else -1, -1 if transpose_b else inner)
        raise WrongValue(
            f"expected dimension {axes[0]} of a to equal dimension {axes[1]} of b, got a "
            f"{describe(a)}, b {describe(b)}"
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise WrongValue(
            f"expected leading dimensions that broadcast, got a {describe(a)}, b {describe(b)}"
        ) from None
    rows = left.shape[-2:-1]  # of a vector, none
    columns = right.shape[-1:] if right.ndim > 1 else ()
    dtype = native(a.dtype)
    if not _is_narrow(dtype) or native(b.dtype) != dtype:
        dtype = result_dtype(np.matmul, a=a, b=b)
    is_wider = out.dtype.kind in "iuf" and np.can_cast(dtype, out.dtype)
    if is_wider and (dtype.kind in "iuf" or _is_narrow(dtype)):
        dtype = native(out.dtype)
    check_out(out, dtype, (*batch, *rows, *columns))
    return left, right, dtype


def _are_rows(a: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether the leading dimensions can be merged into one without copies."""
    return (
        a.ndim > 2 and a.size > 0 < out.size and a.flags.c_contiguous and out.flags.c_contiguous
    )


def _multiply(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any]
) -> None:
    """out = left @ right, computed in a data type."""
    if right.ndim == 2 and _are_rows(left, out):
        # One product of many rows is faster than many products of a few.
        left, out = left.reshape(-1, left.shape[-1]), out.reshape(-1, out.shape[-1])
    if _is_narrow(dtype):
        _narrow_matmul(left, right, out)
    else:
        multiply(left, right, out, dtype)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether these are floats of less than 32 bits, which those of ml_dtypes are."""
    return working_dtype(dtype) not in (None, dtype)


def _narrow_matmul(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None:
    """A product computed in float32: numpy has no BLAS, and for some no loop, for narrower
    floats."""
    product = np.empty(out.shape, np.float32)
    multiply(converted(left, np.float32), converted(right, np.float32), product)
    copy_pieces(out, product)


@kernel("einsum")
def einsum(*operands: Tensor, subscripts: Text, out: Out) -> None:
    """out = the sum that subscripts describe, as in numpy.einsum: "bij,bjk->bik".  The operands
    have one data type.  With several operands BLAS is used where possible, and memory for its
    results.  The data types of ml_dtypes are computed in float32 or int32."""
    shape = _einsum_shape(subscripts, operands)
    dtype = operands[0].dtype
    for operand in operands:
        dtype = result_dtype(np.multiply, a=operands[0], b=operand)
    check_out(out, dtype, shape)
    if dtype.isbuiltin != 2:
        parts = [copy_if_overlapping(operand, out) for operand in operands]
        contract(subscripts, parts, out)
        return
    # numpy.einsum has no loops for these, and raises a SystemError for one operand.
    working = np.dtype(np.int32 if np.can_cast(dtype, np.int32, "safe") else np.float32)
    product = np.empty(out.shape, working)
    contract(subscripts, [converted(operand, working) for operand in operands], product)
    copy_pieces(out, product)


def _einsum_shape(subscripts: str, operands: tuple[NDArray[Any], ...]) -> Dims:
    """The shape of the result of numpy.einsum.

    Raises:
        WrongValue: the subscripts do not go with the operands.
    """

    def refuse(why: str) -> WrongValue:
        got = ", ".join(map(describe, operands))
        return WrongValue(f"subscripts: expected {why}, got {subscripts!r} for {got}")

    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise refuse("as many terms as operands")
    dims: dict[str, int] = {}
    rest: Dims = ()
    for term, operand in zip(terms, operands, strict=True):
        before, dots, after = term.partition("...")
        labels = before + after
        extra = operand.ndim - len(labels)
        if extra < 0 or (extra and not dots) or not all(map(_is_label, labels)):
            raise refuse("a letter for each axis of an operand")
        middle = operand.shape[len(before) : len(before) + extra]
        try:
            rest = np.broadcast_shapes(rest, middle)
        except ValueError:
            raise refuse("axes of ... that broadcast") from None
        sizes = operand.shape[: len(before)] + operand.shape[len(before) + extra :]
        for label, size in zip(labels, sizes, strict=True):
            if size != 1 and dims.get(label, 1) not in (1, size):
                raise refuse(f"one length for {label}")
            if size != 1 or label not in dims:
                dims[label] = size
    if not arrow:
        once = sorted(label for label in dims if left.count(label) == 1)
        right = "..." + "".join(once)
    before, dots, after = right.partition("...")
    labels = before + after
    if len(set(labels)) < len(labels) or not set(labels) <= set(dims) or (rest and not dots):
        raise refuse("a result of letters of the operands, each once")
    return (*[dims[i] for i in before], *(rest if dots else ()), *[dims[i] for i in after])


def _is_label(character: str) -> bool:
    return character.isascii() and character.isalpha()
