"""Tensor expressions, and the loops that compute them."""

from .create import create_prim_func
from .emit import call_of_te
from .extern import extern, extern_primfunc
from .operation import ComputeOp, ExternOp, PlaceholderOp, tag_scope
from .tensor import (
    Compute,
    Reduce,
    Tensor,
    TensorLoad,
    TensorSlice,
    comm_reducer,
    compute,
    max,  # noqa: A004
    min,  # noqa: A004
    placeholder,
    prod,
    reduce_axis,
    size_var,
    sum,  # noqa: A004
    var,
)

__all__ = [
    "Compute",
    "ComputeOp",
    "ExternOp",
    "PlaceholderOp",
    "Reduce",
    "Tensor",
    "TensorLoad",
    "TensorSlice",
    "call_of_te",
    "comm_reducer",
    "compute",
    "create_prim_func",
    "extern",
    "extern_primfunc",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "size_var",
    "sum",
    "tag_scope",
    "var",
]
