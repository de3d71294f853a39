"""Matrix products; BLAS does them where numpy has it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values import describe
from ._blocks import working_dtype
from ._kernel import (
    Dims,
    alike,
    broadcast,
    check_out,
    check_tensors,
    kernel,
    native,
    private,
    result_dtype,
)

__all__: list[str] = []

_PRODUCT = "a: tensor, b: tensor, out: tensor"


@kernel("matmul", _PRODUCT, direct=True)
def matmul(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = a @ b.  a[..., n, k], b[..., k, m], out[..., n, m]; leading dimensions broadcast.  A
    vector a has no n, a vector b no m.  out may be of a wider data type, which a and b are
    converted to first."""
    _product("matmul", a, b, out)


@kernel("matmul_nt", _PRODUCT, direct=True)
def matmul_nt(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = a @ the transpose of b.  a[..., n, k], b[..., m, k], out[..., n, m]."""
    _product("matmul_nt", a, b, out, transpose_b=True)


@kernel("matmul_tn", _PRODUCT, direct=True)
def matmul_tn(a: NDArray[Any], b: NDArray[Any], out: NDArray[Any]) -> None:
    """out = the transpose of a @ b.  a[..., k, n], b[..., k, m], out[..., n, m]."""
    _product("matmul_tn", a, b, out, transpose_a=True)


@kernel("linear", "x: tensor, weight: tensor, bias: tensor|none, out: tensor", direct=True)
def linear(
    x: NDArray[Any], weight: NDArray[Any], bias: NDArray[Any] | None, out: NDArray[Any]
) -> None:
    """out = x @ the transpose of weight, + bias unless it is None.  x[..., k] or x[k],
    weight[m, k], out[..., m]; bias broadcasts to out."""
    check_tensors("linear", x=x, weight=weight, out=out)
    if weight.ndim != 2 or x.ndim < 1:
        raise ValueError(
            f"linear: expected x[..., k], weight[m, k], got x {describe(x)}, weight "
            f"{describe(weight)}"
        )
    if bias is not None:
        check_tensors("linear", bias=bias)
    left, right, dtype = _operands("linear", x, weight, out, transpose_b=True)
    if bias is not None:
        if native(bias.dtype) != dtype:
            raise ValueError(f"linear: bias: expected {dtype}, got {describe(bias)}")
        check_out("linear", out, dtype, broadcast("linear", bias=bias, out=out))
        bias = private(bias, out)
    _multiply(left, right, out, dtype)
    if bias is not None:
        np.add(out, bias, out=out)


def _product(
    name: str,
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> None:
    if alike(out, a, b) and b.ndim == 2:
        try:
            if a.ndim == out.ndim == 2:
                np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out=out)
                return
            if a.shape[:-1] == out.shape[:-1] and _are_rows(a, out) and not transpose_a:
                rows = a.reshape(-1, a.shape[-1])
                np.matmul(rows, b.T if transpose_b else b, out=out.reshape(-1, out.shape[-1]))
                return
        except ValueError:
            pass  # said better below
    left, right, dtype = _operands(
        name, a, b, out, transpose_a=transpose_a, transpose_b=transpose_b
    )
    _multiply(left, right, out, dtype)


def _operands(
    name: str,
    a: NDArray[Any],
    b: NDArray[Any],
    out: NDArray[Any],
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> tuple[NDArray[Any], NDArray[Any], np.dtype[Any]]:
    """Check the arguments of a product; answer what numpy.matmul multiplies, and in which data
    type.

    Raises:
        TypeError: an argument is no tensor, or matmul does not take the data types.
        ValueError: the shapes do not fit, or `out` is not for the result.
    """
    check_tensors(name, a=a, b=b)
    takes_vectors = name in ("matmul", "linear")
    if min(a.ndim, b.ndim) < (1 if takes_vectors else 2):
        raise ValueError(
            f"{name}: expected {'vectors or ' if takes_vectors else ''}matrices, got a "
            f"{describe(a)}, b {describe(b)}; vm.builtin.reshape makes one of another tensor"
        )
    left = a.swapaxes(-1, -2) if transpose_a else a
    right = b.swapaxes(-1, -2) if transpose_b else b
    inner = -2 if right.ndim > 1 else -1
    if left.shape[-1] != right.shape[inner]:
        axes = (-2 if transpose_a else -1, -1 if transpose_b else inner)
        raise ValueError(
            f"{name}: expected dimension {axes[0]} of a to equal dimension "
            f"{axes[1]} of b, got a {describe(a)}, b {describe(b)}"
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ValueError(
            f"{name}: expected leading dimensions that broadcast, "
            f"got a {describe(a)}, b {describe(b)}"
        ) from None
    rows = left.shape[-2:-1]  # of a vector, none
    columns = right.shape[-1:] if right.ndim > 1 else ()
    dtype = native(a.dtype)
    if not _is_narrow(dtype) or native(b.dtype) != dtype:
        dtype = result_dtype(name, np.matmul, a=a, b=b)
    is_wider = isinstance(out, np.ndarray) and out.dtype.kind in "iuf"
    if is_wider and (dtype.kind in "iuf" or _is_narrow(dtype)) and np.can_cast(dtype, out.dtype):
        dtype = native(out.dtype)
    check_out(name, out, dtype, (*batch, *rows, *columns))
    return left, right, dtype


def _are_rows(a: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether leading dimensions can be taken for one, without copies."""
    return (
        a.ndim > 2 and a.size > 0 < out.size and a.flags.c_contiguous and out.flags.c_contiguous
    )


def _multiply(
    left: NDArray[Any], right: NDArray[Any], out: NDArray[Any], dtype: np.dtype[Any]
) -> None:
    """out = left @ right, computed in a data type."""
    if right.ndim == 2 and _are_rows(left, out):
        # One product of many rows, not many products of a few.
        left, out = left.reshape(-1, left.shape[-1]), out.reshape(-1, out.shape[-1])
    if _is_narrow(dtype):
        _narrow_matmul(left, right, out)
    else:
        np.matmul(left, right, out=out, dtype=dtype)


def _is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether these are floats of less than 32 bits, which those of ml_dtypes are."""
    return working_dtype(dtype) not in (None, dtype)


def _narrow_matmul(left: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> None:
    """A product by way of float32: numpy has no BLAS for narrower floats, if it has a loop."""
    product = np.matmul(left.astype(np.float32), right.astype(np.float32))
    np.copyto(out, product, casting="same_kind")


@kernel("einsum", "*operands: tensor, subscripts: str, out: tensor")
def einsum(*args: Any) -> None:
    """out = the sum that subscripts, as of numpy.einsum, describe: "bij,bjk->bik".  The operands
    have one data type.  A sum over more than one operand takes BLAS where it can, and memory for
    what BLAS gives."""
    if len(args) < 3:
        raise TypeError(f"einsum: expected operands, subscripts and out, got {len(args)} arguments")
    *operands, subscripts, out = args
    named = {f"operands[{i}]": operand for i, operand in enumerate(operands)}
    check_tensors("einsum", **named)
    if not isinstance(subscripts, str):
        raise TypeError(f"einsum: subscripts: expected a string, got {describe(subscripts)}")
    shape = _einsum_shape(subscripts, operands)
    dtype = operands[0].dtype
    for operand in operands:
        dtype = result_dtype("einsum", np.multiply, a=operands[0], b=operand)
    check_out("einsum", out, dtype, shape)
    operands = [private(operand, out) for operand in operands]
    np.einsum(subscripts, *operands, out=out, optimize=len(operands) > 1)


def _einsum_shape(subscripts: str, operands: list[NDArray[Any]]) -> Dims:
    """The shape of the result of numpy.einsum.

    Raises:
        ValueError: the subscripts do not go with the operands.
    """

    def refuse(why: str) -> ValueError:
        got = ", ".join(map(describe, operands))
        return ValueError(f"einsum: subscripts: expected {why}, got {subscripts!r} for {got}")

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
