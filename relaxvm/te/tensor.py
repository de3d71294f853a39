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
from . import operation
from .operation import ComputeOp, ExternOp, Operation, PlaceholderOp, tag_of

__all__ = [
    "INDEX_DTYPE",
    "Compute",
    "Reduce",
    "Tensor",
    "TensorLoad",
    "TensorSlice",
    "comm_reducer",
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
        compute: the formula, or statements (`relaxvm.te.extern.Extern`), or None.
        dependent: the tensors of the same formula, itself included, if it has several values.
        tag: the word that it was marked with, or "".
    """

    __slots__ = ("compute", "dependent", "dtype", "name", "shape", "tag")

    def __init__(self, shape: Sequence[Expr], dtype: str, name: str, compute: Any = None) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.name = name
        self.compute = compute
        self.dependent: tuple[Tensor, ...] = ()
        self.tag = ""

    @property
    def op(self) -> Operation:
        """What the tensor is a result of."""
        outputs = self.dependent or (self,)
        if self.compute is None:
            return PlaceholderOp(outputs)
        return (ComputeOp if isinstance(self.compute, Compute) else ExternOp)(outputs)

    @property
    def value_index(self) -> int:
        """Which result of its operation the tensor is."""
        return self.dependent.index(self) if self.dependent else 0

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"te.Tensor({self.name}: {self.dtype}[{dims}])"

    def __getitem__(self, indices: Any) -> TensorLoad:
        """An element; with fewer indices than dimensions, a `TensorSlice` that takes the others."""
        indices = indices if isinstance(indices, tuple) else (indices,)
        if len(indices) < self.ndim:
            return TensorSlice(self, indices)  # type: ignore[return-value]  # nearly none is one
        return TensorLoad(self, indices)

    __iter__ = None  # Python would ask for elements without end

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


class TensorSlice:
    """A tensor with its first indices, as in ``t[0][1]``: further ones make it an element."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: Sequence[Any]) -> None:
        self.tensor = tensor
        self.indices = tuple(indices)

    @property
    def dtype(self) -> str:
        """The data type of the elements."""
        return self.tensor.dtype

    def __getitem__(self, indices: Any) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    __iter__ = None


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
    """A reduction of `source` over `axes`; it must be the whole formula of `compute`.

    Attributes:
        combine: joins two values; of a reduction to several values, two tuples of values.
        identity: what an element that does not count is replaced by.
        source: the value of an element.
        axes: the axes to reduce over.
        condition: whether an element counts, or None.
        init: the value to begin with, by default `identity`.
        position: which value this is, if the reduction has several.
    """

    __slots__ = ("_parts", "axes", "combine", "condition", "identity", "init", "position", "source")
    FIELDS = ("source",)

    axes: tuple[IterVar, ...]
    combine: Callable[..., Any]
    condition: Expr | None
    identity: Expr
    init: Expr
    position: int | None
    source: Expr

    def __init__(
        self,
        combine: Callable[..., Any],
        identity: Expr,
        source: Expr,
        axes: Sequence[IterVar],
        condition: Expr | None,
        init: Expr | None = None,
        position: int | None = None,
    ) -> None:
        self.combine = combine
        self.identity = identity
        self.source = source
        self.axes = tuple(axes)
        self.condition = condition
        self.init = identity if init is None else init
        self.position = position
        self._parts = check_parts(
            1 + source._parts + (0 if condition is None else condition._parts)
        )
        self.ty = source.ty
        self.span = None

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The same as `axes`, by TVM's name."""
        return self.axes


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


def var(name: str = "tindex", dtype: str = "int32", span: Any = None) -> Var:
    """A symbolic scalar."""
    return Var(name, dtype, span)


size_var = var


def _shape(shape: Any) -> tuple[Expr, ...]:
    if isinstance(shape, (int, Expr)):
        shape = (shape,)
    return tuple([as_index(dim, INDEX_DTYPE.get()) for dim in shape])


def placeholder(shape: Any, dtype: str | None = None, name: str = "placeholder") -> Tensor:
    """An input, of float32 if `dtype` is not given."""
    return Tensor(_shape(shape), str(dtype or "float32"), name)


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
    """A tensor whose elements `fcompute` computes from their indices.  A formula that returns
    several scalars, or a reduction to several, gives a list of tensors.

    Args:
        shape: dimensions, or a single one.
        fcompute: takes the indices and returns a scalar; its parameters name the variables.
        name: a hint.
        tag: a word that ``tensor.op.tag`` returns.
        attrs: annotations of the block.
        varargs_names: names of the variables where `fcompute` has ``*indices``.

    Raises:
        TypeError: `fcompute` takes another number of indices, or gives no scalar.
        ValueError: it gives several, of which some are parts of a reduction and others are not.
    """
    dims = _shape(shape)
    names = _index_names(fcompute, len(dims), varargs_names)
    axis = [
        IterVar(Range.to(dim), Var(n, dim.dtype), IterVar.DATA_PAR)
        for n, dim in zip(names, dims, strict=True)
    ]
    tag = tag_of(tag)
    body = fcompute(*[iv.var for iv in axis])
    if not isinstance(body, (list, tuple)):
        return _computed(dims, axis, body, name, attrs, tag)
    tensors = [_computed(dims, axis, b, f"{name}_v{i}", attrs, tag) for i, b in enumerate(body)]
    parts = [b for b in body if isinstance(b, Reduce)]
    if parts:
        is_whole = [part.position for part in parts] == list(range(len(body)))
        if not is_whole or any(part.combine is not parts[0].combine for part in parts):
            raise ValueError(
                f"te.compute {name}: expected the values of one reduction, in order, got several "
                "reductions or other scalars beside them"
            )
    for tensor in tensors:
        tensor.dependent = tuple(tensors)
    return tensors  # type: ignore[return-value]  # nearly all formulas have one value


def _computed(
    dims: Sequence[Expr],
    axis: Sequence[IterVar],
    body: Any,
    name: str,
    attrs: Mapping[str, Any] | None,
    tag: str,
) -> Tensor:
    """A tensor of one formula."""
    if isinstance(body, TensorSlice):
        body = TensorLoad(body.tensor, body.indices)  # raises
    if not isinstance(body, Expr):
        body = as_scalar(body, INDEX_DTYPE.get() if isinstance(body, int) else None)
    dtype = body.source.dtype if isinstance(body, Reduce) else as_scalar(body).dtype
    tensor = Tensor(dims, dtype, name, Compute(axis, body, attrs or {}))
    tensor.tag = tag
    return tensor


def _index_names(
    fcompute: Callable[..., Any], ndim: int, varargs_names: Sequence[str] | None
) -> list[str]:
    parameters = list(inspect.signature(fcompute).parameters.values())
    names: list[str] = []
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            rest = ndim - len(names)
            names += varargs_names or [f"i{i}" for i in range(rest)]
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
    def make(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Expr:
        if not isinstance(axis, (IterVar, list, tuple)):
            # As TVM's tutorials write it: of two scalars, as in ``te.max(x[i], 0)``.
            return combine(as_scalar(expr), as_scalar(axis, as_scalar(expr).dtype))
        source = as_scalar(expr)
        condition = None if where is None else as_scalar(where)
        start = None if init is None else as_scalar(init, source.dtype)
        return Reduce(combine, identity(source.dtype), source, _axes(axis), condition, start)

    make.__doc__ = doc
    return make


def _axes(axis: Any) -> list[IterVar]:
    return [axis] if isinstance(axis, IterVar) else list(axis)


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Make a reduction, to be called as `sum`: ``reducer(expr, axis, where=None, init=None)``.

    Args:
        fcombine: joins two values, or two tuples of values where `expr` is a tuple of scalars.
        fidentity: takes the data types of the values, and returns the value, or the tuple of
            values, that `fcombine` leaves as it is.
        name: of the function that is returned.
    """

    def reducer(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Any:
        condition = None if where is None else as_scalar(where)
        sources = [as_scalar(e) for e in (expr if isinstance(expr, (list, tuple)) else [expr])]
        dtypes = [source.dtype for source in sources]
        given = fidentity(*dtypes)
        if not isinstance(expr, (list, tuple)):
            start = None if init is None else as_scalar(init, dtypes[0])
            return Reduce(fcombine, as_scalar(given, dtypes[0]), sources[0], _axes(axis), condition,
                          start)  # fmt: skip
        starts = [None] * len(sources) if init is None else list(init)
        if len(given) != len(sources) or len(starts) != len(sources):
            raise ValueError(
                f"{name}: expected {len(sources)} values to begin with, one for each of the tuple, "
                f"got {len(given) if init is None else len(starts)}"
            )

        def combine(a: Any, b: Any) -> Any:  # tells the values of this call from those of others
            return fcombine(a, b)

        return [
            Reduce(combine, as_scalar(identity, dtype), source, _axes(axis), condition,
                   None if start is None else as_scalar(start, dtype), position)
            for position, (identity, dtype, source, start) in enumerate(
                zip(given, dtypes, sources, starts, strict=True))
        ]  # fmt: skip

    reducer.__name__ = name
    return reducer


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


# `typing.get_type_hints` looks up the annotations of a class in its own module, which is before
# this one.
vars(operation)["Tensor"] = Tensor
