"""What converters of operators share: data types, shapes, axes, numbers as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from ...dtypes import as_dtype
from ...ir import Constant, Expr, IntImm, TensorType, TupleGetItem, Type
from ...ir.arith import prove_equal, simplify
from ...ir.infer import infer_type
from ..common.emitter import Emitter, Problem
from ..common.values import Value
from .registry import aten

__all__ = [
    "DEFAULT_FLOAT",
    "Tensor",
    "axes_of",
    "axis_of",
    "broadcast_dims",
    "cast",
    "constant_of",
    "dims_of",
    "dtype_of",
    "each_of",
    "floating",
    "is_bool",
    "is_complex",
    "is_float",
    "is_integral",
    "is_tensor",
    "item",
    "items",
    "known",
    "length",
    "number",
    "numel",
    "per_axis",
    "promoted",
    "promoted_dtype",
    "rank_of",
    "reshaped",
    "same_dim",
    "sliced",
    "tensor_type",
    "type_of",
]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FLOAT: Final = "float32"


Tensor: TypeAlias = Union[Value, Expr]  # noqa: UP007
"""A tensor: an argument of a converter, or what it has computed."""


def each_of(*names: str, back: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """As `aten`, for functions whose first parameter is the name of the operator without its
    overload, such as "amax"."""

    def register(function: F) -> F:
        for name in names:
            base = name.rpartition("::")[2].partition(".")[0]
            bound = partial(function, base)
            bound.__doc__ = function.__doc__
            bound.__annotations__ = function.__annotations__
            bound.__qualname__ = function.__qualname__  # type: ignore[attr-defined]
            aten(name, back=back and partial(back, base))(bound)
        return function

    return register


def type_of(x: Tensor) -> Type:
    """The type of a tensor."""
    if isinstance(x, Value):
        return x.type
    if x.ty is None:
        infer_type(x)
    found: Type = x.ty
    return found


def is_tensor(value: Any) -> bool:
    """Whether an argument is a tensor rather than a number."""
    return isinstance(value, Value) or (
        isinstance(value, Expr) and type(type_of(value)) is TensorType
    )


def dtype_of(x: Tensor) -> str:
    """The data type of a tensor by name."""
    ty: Any = type_of(x)
    found = x.dtype if isinstance(x, Value) else ty.dtype
    if found is None:
        raise Problem("the data type of a tensor is not known")
    return str(found)


def rank_of(x: Tensor) -> int:
    """The rank of a tensor."""
    ty = type_of(x)
    if type(ty) is not TensorType or ty.ndim < 0:
        raise Problem("the rank of a tensor is not known")
    return int(ty.ndim)


def constant_of(x: Any) -> NDArray[Any] | None:
    """The elements of a tensor, if they are known."""
    if isinstance(x, Value):
        return x.constant()
    return x.data if isinstance(x, Constant) else None


def length(dim: Any) -> Any:
    """A number as it is; an expression of dimensions simplified, as an int if it is one."""
    if not isinstance(dim, Expr):
        return dim
    dim = simplify(dim)
    return dim.value if isinstance(dim, IntImm) else dim


def dims_of(x: Tensor) -> list[Any]:
    """The dimensions of a tensor: ints and expressions."""
    ty = type_of(x)
    if type(ty) is not TensorType or ty.dims is None:
        raise Problem("the shape of a tensor is not known")
    return [length(dim) for dim in ty.dims]


def known(value: Any, what: str) -> int:
    """A number that has to be known when the program is imported.

    Raises:
        Problem: it is not.
    """
    value = length(value)
    if not isinstance(value, int):
        raise Problem(f"{what}: expected a number that is known before the program runs")
    return value


def numel(dims: Sequence[Any]) -> Any:
    """The number of elements of a shape."""
    total: Any = 1
    for dim in dims:
        total = total * dim
    return length(total)


def same_dim(a: Any, b: Any) -> bool:
    """Whether two dimensions are known to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return bool(prove_equal(a, b))


def broadcast_dims(*shapes: Sequence[Any]) -> list[Any]:
    """The shape that shapes broadcast to."""
    rank = max(map(len, shapes), default=0)
    found: list[Any] = [1] * rank
    for shape in shapes:
        for i, dim in enumerate(shape, rank - len(shape)):
            if not (isinstance(dim, int) and dim == 1):
                found[i] = dim if found[i] == 1 or isinstance(dim, int) else found[i]
    return found


def axis_of(x: Tensor | int, dim: int) -> int:
    """An axis counted from the front; a tensor without axes has the axis 0 here.

    Raises:
        Problem: there is no such axis.
    """
    rank = max(x if isinstance(x, int) else rank_of(x), 1)
    if not -rank <= dim < rank:
        raise Problem(f"dim: expected an axis of a tensor of rank {rank}, got {dim}")
    return dim % rank


def axes_of(x: Tensor, dim: Any) -> list[int]:
    """Axes counted from the front; all of them for None and an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(rank_of(x)))
    if isinstance(dim, int):
        dim = [dim]
    found = [axis_of(x, each) for each in dim]
    return [] if rank_of(x) == 0 else sorted(set(found))


def per_axis(value: Any, count: int) -> list[Any]:
    """A number for each of several axes, where one stands for all of them."""
    if not isinstance(value, (list, tuple)):
        return [value] * count
    return list(value) * count if len(value) == 1 and count != 1 else list(value)


# Data types


def is_bool(dtype: str) -> bool:
    return dtype == "bool"


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_complex(dtype: str) -> bool:
    return dtype.startswith("complex")


def is_integral(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))


def _category(dtype: str) -> int:
    return 3 if is_complex(dtype) else 2 if is_float(dtype) else 0 if dtype == "bool" else 1


def _wider(a: str | None, b: str | None) -> str | None:
    """torch.promote_types; None stands for no operand."""
    if a is None or b is None or a == b:
        return b if a is None else a
    first, second = _category(a), _category(b)
    if first != second and max(first, second) < 3:
        return a if first > second else b
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if first == 1 and "uint8" in (a, b) and "int8" in (a, b):
        return "int16"
    x, y = as_dtype(a), as_dtype(b)
    if first == 1 and x.itemsize == y.itemsize:
        return np.promote_types(x, y).name
    return a if x.itemsize > y.itemsize else b


def promoted_dtype(*operands: Any) -> str:
    """The data type that operands of an operator are converted to: tensors with axes decide, then
    tensors without, then numbers, unless these are of a higher category (bool, integer, float)."""
    ranked: list[str | None] = [None, None, None]
    for each in operands:
        if each is None:
            continue
        if is_tensor(each):
            place, dtype = (0 if rank_of(each) else 1), dtype_of(each)
        else:
            place, dtype = 2, _dtype_of_number(each)
        ranked[place] = _wider(ranked[place], dtype)
    found: str | None = None
    for each in reversed(ranked):
        found = _combined(each, found)
    return found or DEFAULT_FLOAT


def _combined(higher: str | None, lower: str | None) -> str | None:
    if higher is None or lower is None:
        return lower if higher is None else higher
    return higher if _category(higher) >= _category(lower) else _wider(higher, lower)


def _dtype_of_number(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return DEFAULT_FLOAT
    if isinstance(value, complex):
        return "complex64"
    dtype = str(getattr(value.ty, "dtype", "int64"))
    return "bool" if dtype == "bool" else DEFAULT_FLOAT if is_float(dtype) else "int64"


def floating(dtype: str) -> str:
    """The data type of functions that only floats have."""
    return dtype if is_float(dtype) or is_complex(dtype) else DEFAULT_FLOAT


def cast(c: Emitter, x: Tensor, dtype: str | None) -> Tensor:
    """A tensor of another data type, or the tensor itself."""
    if dtype is None or dtype_of(x) == dtype:
        return x
    return c.op("astype", x, dtype)


def number(c: Emitter, value: Any, dtype: str) -> Expr:
    """A number as a tensor without axes."""
    if isinstance(value, IntImm):
        value = value.value
    if not isinstance(value, Expr):
        if isinstance(value, float) and is_integral(dtype):
            value = int(value)
        with np.errstate(over="ignore"):
            return Constant(_array_of(value, dtype))
    found: Expr = c.op("full", [], value, dtype)
    return found


def _array_of(value: Any, dtype: str) -> Any:
    numpy_dtype = as_dtype(dtype)
    if numpy_dtype.kind in "iu" and isinstance(value, int):
        bits = 8 * numpy_dtype.itemsize
        value &= (1 << bits) - 1
        if numpy_dtype.kind == "i" and value >> (bits - 1):
            value -= 1 << bits
    return np.array(value, numpy_dtype)


def promoted(c: Emitter, *operands: Any, dtype: str | None = None) -> list[Tensor]:
    """Operands as tensors of the data type that they are promoted to, or of one that is given."""
    dtype = promoted_dtype(*operands) if dtype is None else dtype
    return [
        cast(c, each, dtype) if is_tensor(each) else number(c, each, dtype) for each in operands
    ]


# Shapes


def tensor_type(dims: Sequence[Any], dtype: str) -> TensorType:
    """The type of a tensor of these dimensions."""
    return TensorType(list(dims), dtype)


def reshaped(c: Emitter, x: Tensor, dims: Sequence[Any]) -> Tensor:
    """The elements of x in order, in another shape; one dimension may be -1."""
    new = [length(dim) for dim in dims]
    old = dims_of(x)
    if -1 in [dim for dim in new if isinstance(dim, int)]:
        at = next(i for i, dim in enumerate(new) if isinstance(dim, int) and dim == -1)
        new[at] = _rest(old, new[:at] + new[at + 1 :])
    if len(old) == len(new) and all(map(same_dim, old, new)):
        return x
    return c.reshaped(x if isinstance(x, Value) else Value(x), new)


def _rest(old: Sequence[Any], others: Sequence[Any]) -> Any:
    """The product of dimensions divided by that of others."""
    left, below = list(old), []
    for dim in others:
        for i, each in enumerate(left):
            if same_dim(each, dim):
                del left[i]
                break
        else:
            below.append(dim)
    above, under = numel(left), numel(below)
    if isinstance(under, int) and under == 0:
        return 0
    if isinstance(under, int) and under == 1:
        return above
    return length(above // under)


def sliced(
    c: Emitter, x: Tensor, axis: int, start: Any, end: Any, step: int = 1, is_within: bool = False
) -> Tensor:
    """``x[start:end:step]`` along an axis.

    Args:
        is_within: whether 0 <= start <= end <= length of the axis, whatever the run's lengths are.
            Then the length of the result is ``end - start``, without minima and maxima.
    """
    size = dims_of(x)[axis]
    if isinstance(start, int) and start == 0 and step == 1 and same_dim(length(end), size):
        return x
    return c.op("strided_slice", x, [axis], [start], [end], [step], is_within)


def item(c: Emitter, x: Expr, i: int) -> Expr:
    """An element of a tuple."""
    found: Expr = c.emit(TupleGetItem(x, i))
    return found


def items(c: Emitter, x: Expr) -> list[Expr]:
    """The elements of a tuple."""
    ty: Any = type_of(x)
    return [item(c, x, i) for i in range(len(ty.fields))]

