"""Tensor expressions: tensors with a formula for each element.

``te.compute((n, m), lambda i, j: A[i, j] + 1)`` is a tensor; `create_prim_func` makes loops that
compute it.

Source: ``tvm.te`` of apache-tvm 0.27, the subset that programs of Relax use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from ..ir.expr import Expr, Var, prim_type
from ..ir.node import Attrs
from ..ir.parts import check_parts, count_parts
from ..ir.prim import as_scalar, is_float
from ..tir import intrinsics
from ..tir.buffer import IterVar, Range, as_index

__all__ = [
    "INDEX_DTYPE",
    "Compute",
    "Reduce",
    "Tensor",
    "TensorLoad",
    "compute",
    "max",
    "min",
    "placeholder",
    "prod",
    "reduce_axis",
    "size_var",
    "sum",
    "var",
]

INDEX_DTYPE: ContextVar[str] = ContextVar("relaxvm_te_index_dtype", default="int32")
"""Data type of plain integers in shapes and indices: int64 within `BlockBuilder.emit_te`."""


class Tensor:
    """A tensor: an input (`compute` is None), or a computed one.

    Attributes:
        shape: integer scalars.
        dtype: data type of the elements.
        name: a hint.
        compute: the formula, or None.
    """

    __slots__ = ("compute", "dtype", "name", "shape")

    def __init__(
        self, shape: Sequence[Expr], dtype: str, name: str, compute: Compute | None = None
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.name = name
        self.compute = compute

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"te.Tensor({self.name}: {self.dtype}[{dims}])"

    def __getitem__(self, index: Any) -> TensorLoad:
        return TensorLoad(self, index if isinstance(index, tuple) else (index,))

    def __call__(self, *indices: Any) -> TensorLoad:
        return TensorLoad(self, indices)

    def _with(self, operation: str, *operands: Any) -> Any:
        from . import topi

        return getattr(topi, operation)(*operands)

    def __add__(self, other: Any) -> Any:
        return self._with("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._with("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._with("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._with("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._with("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with("divide", other, self)

    def __neg__(self) -> Any:
        return self._with("negative", self)

    def astype(self, dtype: str) -> Tensor:
        """The tensor in another data type."""
        from . import topi

        result: Tensor = topi.cast(self, dtype)
        return result


class TensorLoad(Expr):
    """An element of a tensor, a scalar.

    Raises:
        ValueError: the number of indices is not the tensor's number of dimensions.
    """

    __slots__ = ("_parts", "indices", "tensor")
    FIELDS = ("indices",)

    indices: tuple[Expr, ...]
    tensor: Tensor

    def __init__(self, tensor: Tensor, indices: Sequence[Any]) -> None:
        if len(indices) != tensor.ndim:
            raise ValueError(
                f"tensor {tensor.name} has {tensor.ndim} dimensions, got {len(indices)} "
                f"{'index' if len(indices) == 1 else 'indices'}"
            )
        self.tensor = tensor
        self.indices = tuple([as_index(i, INDEX_DTYPE.get()) for i in indices])
        count_parts(self)
        self.ty = prim_type(tensor.dtype)
        self.span = None


class Reduce(Expr):
    """A reduction of `source` over `axes`; it must be the whole formula of `compute`."""

    __slots__ = ("_parts", "axes", "combine", "condition", "identity", "source")
    FIELDS = ("source",)

    axes: tuple[IterVar, ...]
    combine: Callable[[Expr, Expr], Expr]
    condition: Expr | None
    identity: Expr
    source: Expr

    def __init__(
        self,
        combine: Callable[[Expr, Expr], Expr],
        identity: Expr,
        source: Expr,
        axes: Sequence[IterVar],
        condition: Expr | None,
    ) -> None:
        self.combine = combine
        self.identity = identity
        self.source = source
        self.axes = tuple(axes)
        self.condition = condition
        self._parts = check_parts(
            1 + source._parts + (0 if condition is None else condition._parts)
        )
        self.ty = source.ty
        self.span = None


class Compute:
    """How a tensor is computed: `body` for each value of the variables of `axis`."""

    __slots__ = ("attrs", "axis", "body")

    def __init__(self, axis: Sequence[IterVar], body: Expr, attrs: Mapping[str, Any]) -> None:
        self.axis = tuple(axis)
        self.body = body
        self.attrs = Attrs(attrs)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes of the reduction."""
        return self.body.axes if isinstance(self.body, Reduce) else ()


def var(name: str = "n", dtype: str = "int32") -> Var:
    """A symbolic scalar."""
    return Var(name, dtype)


size_var = var


def _shape(shape: Any) -> tuple[Expr, ...]:
    if isinstance(shape, (int, Expr)):
        shape = (shape,)
    return tuple([as_index(dim, INDEX_DTYPE.get()) for dim in shape])


def placeholder(shape: Any, dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """An input."""
    return Tensor(_shape(shape), str(dtype), name)


def reduce_axis(dom: Any, name: str = "rv") -> IterVar:
    """An axis to reduce over.

    Args:
        dom: a pair (start, stop), or a `Range`.
        name: of its variable.
    """
    if not isinstance(dom, Range):
        start, stop = [as_index(end, INDEX_DTYPE.get()) for end in dom]
        dom = Range(as_index(0, stop.dtype) if _is_zero(start) else start, stop - start)
    return IterVar(dom, Var(name, dom.extent.dtype), IterVar.COMM_REDUCE)


def _is_zero(e: Any) -> bool:
    return getattr(e, "value", None) == 0


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
    varargs_names: Sequence[str] | None = None,
) -> Tensor:
    """A tensor whose elements `fcompute` computes from their indices.

    Args:
        shape: dimensions, or a single one.
        fcompute: takes the indices and returns a scalar; its parameters name the variables.
        name: a hint.
        tag: ignored; accepted for compatibility.
        attrs: annotations of the block.
        varargs_names: names of the variables where `fcompute` has ``*indices``.

    Raises:
        TypeError: `fcompute` takes another number of indices, or gives no scalar.
    """
    dims = _shape(shape)
    names = _index_names(fcompute, len(dims), varargs_names)
    axis = [
        IterVar(Range.to(dim), Var(n, dim.dtype), IterVar.DATA_PAR)
        for n, dim in zip(names, dims, strict=True)
    ]
    body = fcompute(*[iv.var for iv in axis])
    if isinstance(body, (list, tuple)):
        raise TypeError(f"te.compute {name}: several results are not supported")
    if not isinstance(body, Expr):
        body = as_scalar(body, INDEX_DTYPE.get() if isinstance(body, int) else None)
    if isinstance(body, Reduce):
        scalar_type = body.source.dtype
    else:
        scalar_type = as_scalar(body).dtype
    return Tensor(dims, scalar_type, name, Compute(axis, body, attrs or {}))


def _index_names(
    fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None
) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    names: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            rest = ndim - len(names)
            names += varargs_names or [f"{p.name}{i}" for i in range(rest)]
        elif p.default is p.empty and p.kind is not p.KEYWORD_ONLY:
            names.append(p.name)
    if len(names) != ndim:
        raise TypeError(
            f"te.compute: the formula takes {len(names)} indices, the shape has {ndim} dimensions"
        )
    return names


# Reductions


def _reduction(
    combine: Callable[[Expr, Expr], Expr], identity: Callable[[str], Expr], doc: str
) -> Callable[..., Expr]:
    def make(expr: Any, axis: Any, where: Any = None) -> Expr:
        if not isinstance(axis, (IterVar, list, tuple)):
            # As TVM's tutorials write it: of two scalars, as in ``te.max(x[i], 0)``.
            return combine(as_scalar(expr), as_scalar(axis, as_scalar(expr).dtype))
        axes = [axis] if isinstance(axis, IterVar) else list(axis)
        source = as_scalar(expr)
        condition = None if where is None else as_scalar(where)
        return Reduce(combine, identity(source.dtype), source, axes, condition)

    make.__doc__ = doc
    return make


def _number(dtype: str, value: int) -> Expr:
    return as_scalar(float(value) if is_float(dtype) else value, dtype)


sum: Final = _reduction(  # noqa: A001
    lambda a, b: a + b, lambda t: _number(t, 0), "The sum over axes made by `reduce_axis`."
)
prod: Final = _reduction(
    lambda a, b: a * b, lambda t: _number(t, 1), "The product over axes made by `reduce_axis`."
)
max: Final = _reduction(  # noqa: A001
    intrinsics.max, intrinsics.min_value, "The greatest value over axes made by `reduce_axis`."
)
min: Final = _reduction(  # noqa: A001
    intrinsics.min, intrinsics.max_value, "The least value over axes made by `reduce_axis`."
)
