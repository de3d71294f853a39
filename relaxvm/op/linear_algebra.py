"""Products of matrices, and sums of products in general."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.expr import Call, Expr, IntImm, TensorType, Type, Var
from . import manipulate
from .elementwise import astype
from .kinds import DType, IllTyped, IllValued, Tensors, axes_of
from .lowering import is_allocatable, kernel_call, results_text
from .registry import CONSTRUCTORS, OPERATORS, Unsupported, composite, operator
from .rules import (
    broadcast,
    common_dtype,
    common_vdevice,
    differ,
    need_numbers,
    never_equal,
    shape_text,
)

__all__ = ["einsum", "linear", "matmul"]


def _lower_matmul(builder: Any, call: Call) -> Expr:
    """The kernel of the product, after a conversion of the operands to `out_dtype`.  If the second
    operand is a transposition, the kernel for transposed matrices is called, without a copy."""
    if not is_allocatable(call.ty):
        return call
    operands = _converted(call)
    if operands is not call.args:
        return kernel_call("matmul", operands, call.ty)
    x1, x2 = call.args
    matrix = None
    if isinstance(x2, Var) and x1.ty.ndim > 1:  # the other kernel takes no vectors
        matrix = _transposed(builder.lookup_binding(x2))
    if matrix is None:
        return kernel_call("matmul", (x1, x2), call.ty)
    return kernel_call("matmul_nt", (x1, matrix), call.ty)


def _converted(call: Call) -> Sequence[Expr]:
    """The operands of a product, converted to `out_dtype`."""
    dtype = call.attrs["out_dtype"]
    if dtype is None or all(arg.dtype == dtype for arg in call.args):
        return call.args
    return [arg if arg.dtype == dtype else astype(arg, dtype) for arg in call.args]


def _returned_product(call: Call) -> tuple[str, list[Any]]:
    return "matmul", [*_converted(call), None, results_text(call)]


def _transposed(value: Expr | None) -> Expr | None:
    """The operand of a call of permute_dims that exchanges just the last two axes, else None."""
    if not isinstance(value, Call) or value.op is not OPERATORS["permute_dims"].op:
        return None
    ndim, axes = value.ty.ndim, value.attrs["axes"]
    if axes is None:
        return value.args[0] if ndim == 2 else None
    swapped = (*range(ndim - 2), ndim - 1, ndim - 2)
    return value.args[0] if ndim >= 2 and axes_of("axes", axes, ndim) == swapped else None


@operator(
    "matmul",
    loops="matmul",
    kernel="matmul",
    lower=_lower_matmul,
    returns=_returned_product,
)
def matmul(x1: TensorType, x2: TensorType, out_dtype: DType | None = None) -> Type:
    """The product of matrices, which are the last two dimensions; those before broadcast.

    A vector counts as a row on the left and as a column on the right, and its dimension is not part
    of the result.  With `out_dtype`, the operands are converted to this data type first.
    """
    need_numbers(x1=x1, x2=x2)
    dtype = common_dtype(x1=x1, x2=x2) if out_dtype is None else out_dtype
    vdevice = common_vdevice(x1=x1, x2=x2)
    for name, ty in (("x1", x1), ("x2", x2)):
        if ty.ndim == 0:
            raise IllValued(f"{name}: expected a tensor of rank 1 or more, got {ty}")
    if -1 in (x1.ndim, x2.ndim):
        return TensorType(None, dtype, vdevice)
    left, right = x1.dims, x2.dims
    if left is None or right is None:
        ndim = max(x1.ndim, x2.ndim, 2) - (x1.ndim == 1) - (x2.ndim == 1)
        return TensorType(None, dtype, vdevice, ndim)
    inner = right[-2] if len(right) > 1 else right[0]
    if never_equal(left[-1], inner):
        raise IllValued(
            f"shapes {shape_text(left)} and {shape_text(right)} do not multiply: the last "
            f"dimension of x1 is {left[-1]}, that of x2 before its last is {inner}"
        )
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    batch = broadcast(dtype, x1=TensorType(left[:-2], dtype), x2=TensorType(right[:-2], dtype))
    if batch.dims is None:
        return TensorType(None, dtype, vdevice, batch.ndim + len(rows) + len(columns))
    return TensorType((*batch.dims, *rows, *columns), dtype, vdevice)


@composite("linear")
def linear(
    data: Expr, weight: Expr, bias: Expr | None = None, out_dtype: str | None = None
) -> Call:
    """``data @ weight.T + bias``: a product with the transposed weight.

    Args:
        data: tensor[..., k].
        weight: tensor[n, k].
        bias: tensor[n], or None.
        out_dtype: as of `matmul`.
    """
    product: Call = matmul(data, manipulate.permute_dims(weight), out_dtype=out_dtype)
    return product if bias is None else CONSTRUCTORS["add"](product, bias)


def _subscripts(text: str, count: int) -> tuple[list[str], str]:
    """The terms of the operands and of the result, with a dot for an ellipsis.

    Raises:
        IllValued: the subscripts are not well-formed.
    """
    terms, arrow, result = text.replace(" ", "").replace("...", ".").partition("->")
    operands = terms.split(",")
    if len(operands) != count:
        raise IllValued(f"subscripts: {text!r} is for {len(operands)} operands, got {count}")
    letters = "".join(operands)
    if not arrow:
        once = sorted(c for c in set(letters) if c != "." and letters.count(c) == 1)
        result = ("." if "." in letters else "") + "".join(once)
    for term in (*operands, result):
        if term.count(".") > 1 or not all(c == "." or c.isalpha() for c in term):
            raise IllValued(f"subscripts: expected letters and '...' in {text!r}, got {term!r}")
    if not set(result) <= set(letters) or len(set(result)) < len(result):
        raise IllValued(
            f"subscripts: expected each letter of the result once, and from an operand, in {text!r}"
        )
    return operands, result


@operator(
    "einsum",
    loops=Unsupported(
        "One nest of loops over all labels would take the product of their lengths; the kernel "
        "contracts two operands at a time."
    ),
)
def einsum(operands: Tensors, subscripts: str) -> Type:
    """Sums of products by Einstein's convention, as of `numpy.einsum`: "ij,jk->ik"."""
    if not operands:
        raise IllTyped("operands: expected a tensor or more, got none")
    terms, result = _subscripts(subscripts, len(operands))
    names = {f"operands[{i}]": ty for i, ty in enumerate(operands)}
    dtype, vdevice = common_dtype(**names), common_vdevice(**names)
    dims: dict[str, Any] = {}
    batch: tuple[Expr, ...] | None = ()
    batch_ndim = 0
    for (name, ty), term in zip(names.items(), terms, strict=True):
        if ty.ndim == -1:
            return TensorType(None, dtype, vdevice, -1 if "." in result else len(result))
        extra = ty.ndim - (len(term) - ("." in term))
        if extra < 0 or (extra and "." not in term):
            raise IllValued(f"{name}: {term.replace('.', '...')!r} does not fit {ty}")
        batch_ndim = max(batch_ndim, extra)
        batch = _bind_term(term, ty, extra, dims, batch, subscripts)
    known = [dims.get(c) for c in result if c != "."]
    if batch is None or None in known:
        ndim = len(known) + batch_ndim * ("." in result)
        return TensorType(None, dtype, vdevice, ndim)
    values: list[Any] = []
    for c in result:
        values.extend(batch if c == "." else [dims[c]])
    return TensorType(values, dtype, vdevice)


def _bind_term(
    term: str,
    ty: TensorType,
    extra: int,
    dims: dict[str, Any],
    batch: tuple[Expr, ...] | None,
    subscripts: str,
) -> tuple[Expr, ...] | None:
    """Record the dimensions that the letters of an operand's term stand for; return those of the
    ellipsis, broadcast."""
    position = 0
    for c in term:
        if c == ".":
            if ty.dims is None or batch is None:
                batch = None
            else:
                theirs = TensorType(ty.dims[position : position + extra])
                batch = broadcast(None, operands=TensorType(batch), other=theirs).dims
            position += extra
            continue
        dim = None if ty.dims is None else ty.dims[position]
        position += 1
        _bind_letter(c, dim, dims, subscripts)
    return batch


def _bind_letter(c: str, dim: Expr | None, dims: dict[str, Any], subscripts: str) -> None:
    known = dims.get(c)
    if known is None or dim is None:
        dims[c] = dim if known is None else known
    elif _is_one(known) or (isinstance(dim, IntImm) and not _is_one(dim)):
        if differ(known, dim) and not _is_one(known):
            raise IllValued(f"subscripts: {c!r} of {subscripts!r} is {known} and {dim}")
        dims[c] = dim


def _is_one(dim: Expr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1
