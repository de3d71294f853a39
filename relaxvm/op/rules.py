"""Parts of type rules: checks of operands, axes, and types of results.

Functions that check take their operands by keyword, so that messages can name them:
``need_floats(data=data)``.  An operand is the type of a tensor.  Where scalars are allowed next to
tensors, it may be a `PrimType`, which counts as a tensor of rank 0.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from ..elementwise import Accepts
from ..ir import prim
from ..ir.arith import Analyzer, free_vars, prove_equal, simplify
from ..ir.expr import Expr, IntImm, PrimType, ShapeExpr, TensorType, TupleType, int_imm
from ..ir.module import VDevice
from ..ir.prim import is_float
from .kinds import IllTyped, IllValued

__all__ = [
    "DTYPE_CHECKS",
    "KEEP",
    "VOID",
    "DtypeCheck",
    "analyzer_of",
    "any_dtype",
    "broadcast",
    "broadcast_dim",
    "broadcast_dims",
    "common_dtype",
    "common_vdevice",
    "differ",
    "like",
    "need_bits",
    "need_bools",
    "need_divisor",
    "need_equal_dims",
    "need_floats",
    "need_integers",
    "need_numbers",
    "need_rank",
    "never_equal",
    "product",
    "same_dim",
    "shape_text",
    "without_shape_var",
]

VOID: Final = TupleType(())
"""The type of a call without a result."""

KEEP: Final[Any] = object()
"""In calls of `like`: unchanged."""

Dims = Sequence[Expr]
Dim = Expr | int


# Data types


def _check_dtypes(what: str, fits: Any, **operands: Any) -> None:
    for name, ty in operands.items():
        if ty.dtype is not None and not fits(ty.dtype):
            raise IllTyped(f"{name}: expected {what}, got {ty}; R.astype converts")


DtypeCheck: TypeAlias = Callable[..., None]
"""A check of the data types of operands, which are passed by keyword.  Raises IllTyped."""


def any_dtype(**operands: Any) -> None:
    """Any data type is accepted."""


def need_floats(**operands: Any) -> None:
    """Raise unless the data types, where known, are floats."""
    _check_dtypes("floats", is_float, **operands)


def need_numbers(**operands: Any) -> None:
    """Raise if a data type is bool."""
    _check_dtypes("numbers", lambda dtype: dtype != "bool", **operands)


def need_integers(**operands: Any) -> None:
    """Raise unless the data types, where known, are integers."""
    _check_dtypes("integers", lambda dtype: "int" in dtype, **operands)


def need_bits(**operands: Any) -> None:
    """Raise unless the data types, where known, are integers or bool."""
    _check_dtypes("integers or bools", lambda dtype: "int" in dtype or dtype == "bool", **operands)


def need_bools(**operands: Any) -> None:
    """Raise unless the data types, where known, are bool."""
    _check_dtypes("bools", lambda dtype: dtype == "bool", **operands)


DTYPE_CHECKS: Final[dict[Accepts, DtypeCheck]] = {
    "any": any_dtype,
    "bits": need_bits,
    "floats": need_floats,
    "integers": need_integers,
    "numbers": need_numbers,
}


def common_dtype(**operands: Any) -> str | None:
    """The data type of all operands; None if one is not known.

    Raises:
        IllTyped: two differ.
    """
    found: str | None = None
    is_known = True
    for ty in operands.values():
        dtype = ty.dtype
        if dtype is None:
            is_known = False
        elif found is None:
            found = dtype
        elif found != dtype:
            got = ", ".join(f"{name} {ty.dtype}" for name, ty in operands.items())
            raise IllTyped(f"expected operands of one data type, got {got}; R.astype converts")
    return found if is_known else None


def common_vdevice(**operands: Any) -> VDevice | None:
    """The device that operands are on; None if that is not known of any.

    Raises:
        IllValued: they are on several.
    """
    found: VDevice | None = None
    for ty in operands.values():
        vdevice = None if type(ty) is PrimType else ty.vdevice
        if vdevice is None or vdevice is found:
            continue
        if found is None:
            found = vdevice
        elif _place(found) != _place(vdevice):
            raise IllValued(
                f"expected operands on one device, got {', '.join(operands)} on {_place(found)} "
                f"and {_place(vdevice)}; R.to_vdevice copies"
            )
    return found


def _place(vdevice: VDevice) -> str:
    return f"{vdevice.target}:{vdevice.vdevice_id}:{vdevice.memory_scope}"


# Shapes


def same_dim(a: Expr, b: Expr) -> bool:
    """Whether two dimensions are certainly equal."""
    return a is b or prove_equal(a, b)


def differ(a: Expr, b: Expr) -> bool:
    """Whether two dimensions are known numbers that are not equal."""
    return type(a) is IntImm and type(b) is IntImm and a.value != b.value


def never_equal(a: Expr, b: Expr) -> bool:
    """Whether two dimensions differ whatever their variables are: 3 and 4, or n + 2 and n."""
    if type(a) is IntImm and type(b) is IntImm:
        return a.value != b.value
    if a is b or set(free_vars(a)) != set(free_vars(b)):
        return False
    distance = simplify(a - b)
    return type(distance) is IntImm and distance.value != 0


def without_shape_var(tensor: TensorType) -> TensorType:
    """The type of a tensor, with its rank alone if its shape is a variable.

    As in TVM, rules that make a new shape out of the dimensions of an operand take these from
    shapes that are written out only.
    """
    if tensor.shape is None or isinstance(tensor.shape, ShapeExpr):
        return tensor
    return TensorType(None, tensor.dtype, tensor.vdevice, tensor.ndim)


def shape_text(dims: Iterable[Expr]) -> str:
    """A shape in a message: ``(n, 3)``."""
    texts = [str(dim.value) if type(dim) is IntImm else str(dim) for dim in dims]
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def product(dims: Iterable[Expr]) -> Expr:
    """How many elements a shape has."""
    known = 1
    total: Expr | None = None
    for dim in dims:
        if type(dim) is IntImm:
            known *= dim.value
        else:
            total = dim if total is None else total * dim
    if total is None:
        return int_imm(known)
    return simplify(total if known == 1 else total * known)


def analyzer_of(dim: Expr) -> Analyzer:
    """An analyzer that knows the variables of a dimension as dimensions: they are not negative."""
    analyzer = Analyzer()
    for var in free_vars(dim):
        analyzer.bind(var, 0)
    return analyzer


def like(
    tensor: TensorType,
    dims: Sequence[Dim] | None = KEEP,
    *,
    dtype: str | None = KEEP,
    ndim: int = -1,
    vdevice: VDevice | None = KEEP,
) -> TensorType:
    """The type of a tensor that is another with some things changed.

    Args:
        tensor: type of the other.
        dims: the dimensions, None if they are not known.
        dtype: the data type.
        ndim: the rank, where `dims` are not known.
        vdevice: the device.
    """
    if dtype is KEEP:
        dtype = tensor.dtype
    if vdevice is KEEP:
        vdevice = tensor.vdevice
    if dims is KEEP:
        if dtype == tensor.dtype and vdevice is tensor.vdevice:
            return tensor
        return TensorType.of(tensor.shape, dtype, vdevice, tensor.ndim)
    return TensorType.of(dims, dtype, vdevice, ndim)


def need_rank(expected: int, **operands: TensorType) -> None:
    """Raise unless the ranks, where known, are the expected one."""
    for name, ty in operands.items():
        if ty.ndim not in (-1, expected):
            raise IllValued(f"{name}: expected a tensor of rank {expected}, got {ty}")


def need_equal_dims(what: str, **dims: Expr | None) -> None:
    """Raise if two dimensions, named, differ certainly; `what` says what they are.  Those that
    are None are not looked at."""
    known = [(name, dim) for name, dim in dims.items() if dim is not None]
    for (one, a), (other, b) in itertools.pairwise(known):
        if never_equal(a, b):
            raise IllValued(f"{what} differs: it is {a} in {one} and {b} in {other}")


def need_divisor(name: str, number: int, whole: Expr | None, what: str) -> None:
    """Raise unless a number is at least 1 and may divide a dimension, which may be unknown; `what`
    says what there are so many of."""
    if number < 1:
        raise IllValued(f"{name}: expected at least 1, got {number}")
    if whole is not None and differ(simplify(whole % number), int_imm(0)):
        raise IllValued(f"{name}: expected a divisor of the {whole} {what}, got {number}")


# Broadcasting


def broadcast(dtype: str | None, **operands: Any) -> TensorType:
    """The type, with this data type, that operands broadcast to.

    A dimension that is known to be neither 1 nor equal is that of the result, whatever it meets:
    the other has to be 1 or the same when the program runs.

    Raises:
        IllValued: two dimensions are known not to fit.
    """
    vdevice = common_vdevice(**operands)
    tensors = [ty for ty in operands.values() if type(ty) is TensorType]
    if not tensors:
        raise IllTyped(f"expected a tensor among {', '.join(operands)}, got scalars only")
    first = tensors[0]
    if len(tensors) == 1:
        return like(first, dtype=dtype, vdevice=vdevice)
    shape = first.shape
    if shape is not None and all(ty.shape is shape for ty in tensors):
        return like(first, dtype=dtype, vdevice=vdevice)
    ndim = -1 if any(ty.ndim == -1 for ty in tensors) else max(ty.ndim for ty in tensors)
    dims: Any = first.dims
    for ty in tensors[1:]:
        other = ty.dims
        dims = None if dims is None or other is None else _broadcast_dims(dims, other, operands)
    for ty in tensors if dims is not None else ():
        known = ty.dims or ()
        if len(known) == ndim and all(map(operator.is_, dims, known)):
            return like(ty, dtype=dtype, vdevice=vdevice)
    return TensorType.of(dims, dtype, vdevice, ndim)


def _broadcast_dims(a: Dims, b: Dims, operands: dict[str, Any]) -> list[Expr] | None:
    if len(a) < len(b):
        a, b = b, a
    dims = list(a)
    start = len(a) - len(b)
    is_known = True
    for i, theirs in enumerate(b, start):
        dim = broadcast_dim(dims[i], theirs)
        if dim is None:
            if differ(dims[i], theirs):
                raise IllValued(_no_broadcast(operands, i, dims[i], theirs))
            is_known = False
        else:
            dims[i] = dim
    return dims if is_known else None


def broadcast_dim(a: Expr, b: Expr) -> Expr | None:
    """The dimension that two broadcast to, None if it is not known."""
    if a is b:
        return a
    if type(a) is IntImm and a.value == 1:
        return b
    if type(b) is IntImm:
        if b.value == 1:
            return a
        if type(a) is not IntImm:
            return b
        return a if a.value == b.value else None
    if type(a) is IntImm or prove_equal(a, b) or _is_at_most(b, a):
        return a
    return b if _is_at_most(a, b) else None


def _is_at_most(a: Expr, b: Expr) -> bool:
    """Whether a is the lesser of b and a positive number, so that it is b where both fit."""
    if type(a) is not prim.Min:
        return False
    for limit, other in ((a.a, a.b), (a.b, a.a)):
        if type(limit) is IntImm and limit.value > 0 and prove_equal(other, b):
            return True
    return False


def broadcast_dims(*operands: Any) -> list[Expr] | None:
    """The dimensions that operands broadcast to, as expressions that choose where it is not known
    which of two it will be; None if a rank is not known."""
    dims: list[Any] = []
    for ty in operands:
        if type(ty) is PrimType:
            continue
        if ty.dims is None:
            return None
        longer, shorter = (dims, ty.dims) if len(dims) > len(ty.dims) else (ty.dims, dims)
        start = len(longer) - len(shorter)
        dims = list(longer)
        for i, other in enumerate(shorter, start):
            dim = broadcast_dim(dims[i], other)
            dims[i] = prim.select(dims[i] == 1, other, dims[i]) if dim is None else dim
    return dims


def _no_broadcast(operands: dict[str, Any], i: int, a: Expr, b: Expr) -> str:
    shapes = [shape_text(ty.dims) for ty in operands.values() if getattr(ty, "dims", None)]
    return f"shapes {' and '.join(shapes)} do not broadcast: dimension {i} is {a} and {b}"
