"""Operators on tensor expressions: element by element, reductions, shapes and products.

Operands may be tensors, numbers and scalars.  Shapes broadcast as in numpy, where dimensions are
known to be equal or 1.

Source: ``tvm.topi`` of apache-tvm 0.27, the subset that programs of Relax use.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...ir import prim
from ...ir.arith import prove_equal, simplify
from ...ir.expr import MOST_TYPE_PARTS, Expr, IntImm
from ...ir.prim import as_scalar, is_float
from ...op.index import slice_of
from ...tir import intrinsics
from ...tir.buffer import as_index
from .. import tensor as te
from ..tensor import INDEX_DTYPE, Tensor, compute
from ._loops import axis_of as _axis

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cosh",
    "divide",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "min",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "prod",
    "reshape",
    "right_shift",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "squeeze",
    "strided_slice",
    "subtract",
    "sum",
    "take",
    "tan",
    "tanh",
    "transpose",
    "trunc",
    "where",
]


# Elementwise


def _is_one(dim: Expr) -> bool:
    return type(dim) is IntImm and dim.value == 1


def broadcast_shape(a: Sequence[Expr], b: Sequence[Expr], what: str) -> list[Expr]:
    """The shape that two shapes broadcast to."""
    rank = builtins.max(len(a), len(b))
    result: list[Expr] = []
    for place in range(-rank, 0):
        x = a[place] if -place <= len(a) else None
        y = b[place] if -place <= len(b) else None
        if x is None or y is None:
            result.append(x if y is None else y)  # type: ignore[arg-type]
        elif _is_one(x):
            result.append(y)
        elif _is_one(y) or prove_equal(x, y):
            result.append(x)
        elif type(x) is IntImm and type(y) is IntImm:
            raise ValueError(f"{what}: dimensions {x} and {y} do not broadcast")
        else:
            # One that is not known may be 1 or the other: they are taken to be equal.
            result.append(y if type(y) is IntImm else x)
    return result


def _element(tensor: Any, indices: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The element of an operand for indices of the broadcast result; a scalar itself."""
    if not isinstance(tensor, Tensor):
        scalar: Expr = tensor
        return scalar
    start = len(indices) - tensor.ndim
    places = [
        as_index(0, i.dtype) if _is_one(dim) and not _is_one(out) else i
        for i, dim, out in zip(indices[start:], tensor.shape, shape[start:], strict=True)
    ]
    return tensor[tuple(places)]


def _binary(name: str, formula: Callable[[Expr, Expr], Any], doc: str) -> Callable[..., Any]:
    def make(lhs: Any, rhs: Any) -> Any:
        a, b = _operands(lhs, rhs)
        if not isinstance(a, Tensor) and not isinstance(b, Tensor):
            return formula(a, b)
        x, y = [t.shape if isinstance(t, Tensor) else () for t in (a, b)]
        shape = broadcast_shape(x, y, name)
        return compute(
            shape,
            lambda *i: formula(_element(a, i, shape), _element(b, i, shape)),
            f"T_{name}",
            varargs_names=_axes("ax", len(shape)),
        )

    make.__name__ = name
    make.__doc__ = doc
    return make


def _axes(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{i}" for i in range(count)]


def _operands(lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Numbers take the data type of the other side."""
    dtype = next((x.dtype for x in (lhs, rhs) if isinstance(x, (Tensor, Expr))), None)

    def operand(x: Any) -> Any:
        if isinstance(x, (Tensor, Expr)):
            return x
        if dtype is not None and is_float(dtype):
            return as_scalar(float(x), dtype)
        if isinstance(x, builtins.float):
            return as_scalar(x)
        return as_scalar(x, dtype)

    return operand(lhs), operand(rhs)


def _divide(a: Expr, b: Expr) -> Expr:
    return intrinsics.div(a, b)


add = _binary("add", lambda a, b: a + b, "a + b")
subtract = _binary("subtract", lambda a, b: a - b, "a - b")
multiply = _binary("multiply", lambda a, b: a * b, "a * b")
divide = _binary("divide", _divide, "a / b; of integers rounded towards zero")
floor_divide = _binary("floor_divide", prim.floordiv, "a // b, rounded towards minus infinity")
mod = _binary("mod", intrinsics.floormod, "a % b, with the sign of b")
floor_mod = mod
power = _binary("power", intrinsics.pow, "a to the power of b, of floats")
maximum = _binary("maximum", intrinsics.max, "the greater of both")
minimum = _binary("minimum", intrinsics.min, "the lesser of both")
equal = _binary("equal", prim.equal, "a == b")
not_equal = _binary("not_equal", prim.not_equal, "a != b")
less = _binary("less", lambda a, b: a < b, "a < b")
less_equal = _binary("less_equal", lambda a, b: a <= b, "a <= b")
greater = _binary("greater", lambda a, b: a > b, "a > b")
greater_equal = _binary("greater_equal", lambda a, b: a >= b, "a >= b")
logical_and = _binary("logical_and", prim.logical_and, "a and b, of bools")
logical_or = _binary("logical_or", prim.logical_or, "a or b, of bools")
logical_xor = _binary("logical_xor", prim.not_equal, "either a or b, of bools")
atan2 = _binary("atan2", intrinsics.atan2, "the angle of the point (b, a)")
bitwise_and = _binary("bitwise_and", lambda a, b: a & b, "a & b")
bitwise_or = _binary("bitwise_or", lambda a, b: a | b, "a | b")
bitwise_xor = _binary("bitwise_xor", lambda a, b: a ^ b, "a ^ b")
left_shift = _binary("left_shift", lambda a, b: a << b, "a << b")
right_shift = _binary("right_shift", lambda a, b: a >> b, "a >> b")


def _unary(name: str, formula: Callable[[Expr], Any], doc: str) -> Callable[..., Any]:
    def make(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return formula(x)
        return compute(
            x.shape, lambda *i: formula(x[i]), "compute", varargs_names=_axes("i", x.ndim)
        )

    make.__name__ = name
    make.__doc__ = doc
    return make


identity = _unary("identity", lambda x: x, "the tensor itself, copied")
exp = _unary("exp", intrinsics.exp, "e to the power of x")
log = _unary("log", intrinsics.log, "natural logarithm")
sqrt = _unary("sqrt", intrinsics.sqrt, "square root")
rsqrt = _unary("rsqrt", intrinsics.rsqrt, "1 / sqrt(x)")
tanh = _unary("tanh", intrinsics.tanh, "hyperbolic tangent")
sigmoid = _unary("sigmoid", intrinsics.sigmoid, "1 / (1 + exp(-x))")
erf = _unary("erf", intrinsics.erf, "error function")
sin = _unary("sin", intrinsics.sin, "sine")
cos = _unary("cos", intrinsics.cos, "cosine")
tan = _unary("tan", intrinsics.tan, "tangent")
asin = _unary("asin", intrinsics.asin, "inverse sine")
acos = _unary("acos", intrinsics.acos, "inverse cosine")
atan = _unary("atan", intrinsics.atan, "inverse tangent")
sinh = _unary("sinh", intrinsics.sinh, "hyperbolic sine")
cosh = _unary("cosh", intrinsics.cosh, "hyperbolic cosine")
asinh = _unary("asinh", intrinsics.asinh, "inverse hyperbolic sine")
acosh = _unary("acosh", intrinsics.acosh, "inverse hyperbolic cosine")
atanh = _unary("atanh", intrinsics.atanh, "inverse hyperbolic tangent")
log2 = _unary("log2", intrinsics.log2, "logarithm to base 2")
log10 = _unary("log10", intrinsics.log10, "logarithm to base 10")
isnan = _unary("isnan", intrinsics.isnan, "whether an element is not a number")
isinf = _unary("isinf", intrinsics.isinf, "whether an element is infinite")
isfinite = _unary("isfinite", intrinsics.isfinite, "whether an element is finite")
floor = _unary("floor", intrinsics.floor, "greatest integer not above x")
ceil = _unary("ceil", intrinsics.ceil, "least integer not below x")
trunc = _unary("trunc", intrinsics.trunc, "x without its fraction")
round = _unary("round", intrinsics.round, "nearest integer, of two the even one")  # noqa: A001
abs = _unary("abs", intrinsics.abs, "absolute value")  # noqa: A001
_bitwise_not = _unary("bitwise_not", prim.bitwise_not, "")
_logical_not = _unary("logical_not", prim.logical_not, "")


def _sign(x: Any) -> Any:
    x = _number(x, "sign")
    zero, one = (as_scalar(builtins.float(v) if is_float(x.dtype) else v, x.dtype) for v in (0, 1))
    if x.dtype.startswith("uint"):
        return prim.select(x > zero, one, zero)
    return prim.select(x > zero, one, prim.select(x < zero, zero - one, zero))


def _negative(x: Any) -> Any:
    x = _number(x, "negative")
    if x.dtype.startswith("uint"):  # modulo the range, as in C
        return as_scalar(0, x.dtype) - x
    return x * as_scalar(-1.0 if is_float(x.dtype) else -1, x.dtype)


def _number(x: Any, what: str) -> Any:
    scalar = as_scalar(x)
    if scalar.dtype == "bool":
        raise TypeError(f"{what}: x: expected numbers, got bool")
    return scalar


sign = _unary("sign", _sign, "1, 0 or -1, as the number is greater than 0, 0, or less")
negative = _unary("negative", _negative, "-x")


def bitwise_not(data: Any) -> Any:
    """~data"""
    return _bitwise_not(data)


def logical_not(data: Any) -> Any:
    """not data, of bools"""
    return _logical_not(data)


def cast(x: Any, dtype: str) -> Any:
    """The tensor converted to another data type."""
    return _unary("cast", lambda e: prim.cast(e, str(dtype)), "")(x)


def clip(x: Tensor, a_min: builtins.float, a_max: builtins.float) -> Tensor:
    """x limited to the range from `a_min` to `a_max`."""
    low, high = _operands(x, a_min)[1], _operands(x, a_max)[1]
    result: Tensor = _unary("clip", lambda e: intrinsics.max(intrinsics.min(e, high), low), "")(x)
    return result


def where(condition: Tensor, x: Any, y: Any) -> Tensor:
    """x where the condition is true, else y."""
    a, b = _operands(x, y)
    shape = list(condition.shape)
    for t in (a, b):
        if isinstance(t, Tensor):
            shape = broadcast_shape(shape, t.shape, "where")

    def formula(*i: Expr) -> Expr:
        test = _element(condition, i, shape)
        if test.dtype != "bool":
            test = prim.not_equal(test, 0)
        return prim.select(test, _element(a, i, shape), _element(b, i, shape))

    return compute(shape, formula, "T_where", varargs_names=_axes("ax", len(shape)))


def full(shape: Any, dtype: str, fill_value: Any) -> Tensor:
    """A tensor filled with a number."""
    value = (
        as_scalar(builtins.float(fill_value) if is_float(dtype) else fill_value, dtype)
        if not isinstance(fill_value, Expr)
        else prim.cast(fill_value, dtype)
    )
    rank = 1 if isinstance(shape, (int, Expr)) else len(shape)
    return compute(shape, lambda *i: value, "T_full", varargs_names=_axes("ax", rank))


def full_like(x: Tensor, fill_value: Any) -> Tensor:
    """A tensor filled with a number, of the shape and data type of another."""
    return full(x.shape, x.dtype, fill_value)


# Shapes


def broadcast_to(data: Tensor, shape: Sequence[Any]) -> Tensor:
    """The tensor repeated along dimensions of length 1 and new dimensions in front."""
    dims = [as_index(d, INDEX_DTYPE.get()) for d in shape]
    return compute(
        dims,
        lambda *i: _element(data, i, dims),
        "T_broadcast_to",
        varargs_names=_axes("ax", len(dims)),
    )


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The dimensions in another order, by default reversed."""
    order = (
        list(range(a.ndim))[::-1] if axes is None else [_axis(d, a.ndim, "transpose") for d in axes]
    )
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"transpose: {axes} is not an order of {a.ndim} dimensions")

    def formula(*i: Expr) -> Expr:
        places: list[Any] = [None] * a.ndim
        for at, axis in enumerate(order):
            places[axis] = i[at]
        return a[tuple(places)]

    return compute(
        [a.shape[d] for d in order], formula, "T_transpose", varargs_names=_axes("ax", a.ndim)
    )


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """The tensor with dimensions of length 1 inserted before an axis."""
    at = _axis(axis, a.ndim + 1, "expand_dims")
    if not 0 <= num_newaxis <= MOST_TYPE_PARTS:
        raise ValueError(
            f"expand_dims: num_newaxis: expected 0 to {MOST_TYPE_PARTS}, got {num_newaxis}"
        )
    one = IntImm(INDEX_DTYPE.get(), 1)
    shape = [*a.shape[:at], *[one] * num_newaxis, *a.shape[at:]]
    return compute(
        shape,
        lambda *i: a[(*i[:at], *i[at + num_newaxis :])],
        "T_expand_dims",
        varargs_names=_axes("ax", len(shape)),
    )


def squeeze(a: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """The tensor without dimensions of length 1: those given, by default all."""
    if axis is None:
        gone = {d for d, dim in enumerate(a.shape) if _is_one(dim)}
    else:
        axes = [axis] if isinstance(axis, int) else axis
        gone = {_axis(d, a.ndim, "squeeze") for d in axes}
        for d in gone:
            if type(a.shape[d]) is IntImm and not _is_one(a.shape[d]):
                raise ValueError(f"squeeze: dimension {d} is {a.shape[d]}, expected 1")
    shape = [dim for d, dim in enumerate(a.shape) if d not in gone]

    def formula(*i: Expr) -> Expr:
        rest = iter(i)
        return a[tuple(0 if d in gone else next(rest) for d in range(a.ndim))]

    return compute(shape, formula, "T_squeeze", varargs_names=_axes("ax", len(shape)))


def reshape(a: Tensor, newshape: Sequence[Any]) -> Tensor:
    """The same elements in another shape."""
    dims = [as_index(d, INDEX_DTYPE.get()) for d in newshape]

    def formula(*i: Expr) -> Expr:
        flat: Expr = as_index(0, dims[0].dtype if dims else INDEX_DTYPE.get())
        for index, dim in zip(i, dims, strict=True):
            flat = flat * dim + index
        places: list[Expr] = []
        for at in reversed(range(a.ndim)):
            places.append(flat % a.shape[at] if at else flat)
            flat = flat // a.shape[at]
        return a[tuple(simplify(p) for p in reversed(places))]

    return compute(dims, formula, "T_reshape", varargs_names=_axes("ax", len(dims)))


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an axis."""
    first = a_tuple[0]
    for k, t in enumerate(a_tuple):
        if t.ndim != first.ndim:
            raise ValueError(f"concatenate: a_tuple[{k}]: expected the rank of {first}, got {t}")
    at = _axis(axis, first.ndim, "concatenate")
    ends: list[Expr] = []
    for t in a_tuple:
        ends.append(t.shape[at] if not ends else simplify(ends[-1] + t.shape[at]))
    shape = [*first.shape[:at], ends[-1], *first.shape[at + 1 :]]

    def formula(*i: Expr) -> Expr:
        result: Expr | None = None
        for k in reversed(range(len(a_tuple))):
            place = i[at] if k == 0 else i[at] - ends[k - 1]
            element = a_tuple[k][(*i[:at], place, *i[at + 1 :])]
            if result is None:
                result = element
            else:
                result = intrinsics.if_then_else(i[at] < ends[k], element, result)
        assert result is not None
        return result

    return compute(shape, formula, "T_concat", varargs_names=_axes("ax", first.ndim))


def take(
    a: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "fast"
) -> Tensor:
    """The slices of an axis that `indices` name; without an axis, elements of the flat tensor.

    Args:
        a: the tensor.
        indices: integers, of any rank.
        axis: the axis.
        batch_dims: how many leading axes the two tensors share.
        mode: what an index outside of the axis means: "clip" takes the nearest one, "wrap" counts
            on around, "nan" gives NaN; "fast" says that there is none, and "python" that
            those below 0 count from the end.

    Raises:
        ValueError: there is no such mode, or `batch_dims` is more than `axis` or the rank of one.
    """
    if mode not in ("fast", "clip", "wrap", "nan", "python"):
        raise ValueError(f"take: mode: expected fast, clip, wrap, nan or python, got {mode!r}")
    if axis is None:
        total: Expr = as_index(1, INDEX_DTYPE.get())
        for dim in a.shape:
            total = total * dim
        a, axis = reshape(a, [simplify(total)]), 0
    at = _axis(axis, a.ndim, "take")
    shared = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    if not 0 <= shared <= builtins.min(at, indices.ndim):
        raise ValueError(
            f"take: batch_dims: expected at most the axis, {at}, and the rank of the indices, "
            f"{indices.ndim}, got {batch_dims}"
        )
    source, rank = a, indices.ndim - shared
    shape = [*a.shape[:at], *indices.shape[shared:], *a.shape[at + 1 :]]
    size = a.shape[at]

    def formula(*i: Expr) -> Expr:
        place: Expr = indices[(*i[:shared], *i[at : at + rank])]
        if mode == "clip":
            place = intrinsics.max(0, intrinsics.min(place, prim.cast(size, place.dtype) - 1))
        elif mode == "wrap":
            place = intrinsics.floormod(place, prim.cast(size, place.dtype))
        elif mode == "python":
            place = prim.select(place < 0, place + prim.cast(size, place.dtype), place)
        value: Expr = source[(*i[:at], place, *i[at + rank :])]
        if mode == "nan":
            inside = intrinsics.all(place >= 0, place < prim.cast(size, place.dtype))
            nan = as_scalar(float("nan"), source.dtype)
            value = intrinsics.if_then_else(inside, value, nan)
        return value

    return compute(shape, formula, "T_take", varargs_names=_axes("ax", len(shape)))


def strided_slice(
    a: Tensor,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Sequence[Any] | None = None,
    axes: Sequence[Any] | None = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> Tensor:
    """Every `strides`-th element from `begin` to before `end`, as a slice of Python.

    Args:
        begin, end, strides: for each of `axes`; bounds may be negative, to count from the end.
        axes: by default the first ones.
        slice_mode: "end", or "size" if `end` has the numbers of elements, -1 for all that follow.
        assume_inbound: whether bounds of dimensions that are not known are taken to be within them.

    Raises:
        ValueError: a step of 0, another mode, or numbers are missing.
    """
    if slice_mode not in ("end", "size"):
        raise ValueError(f"strided_slice: slice_mode: expected 'end' or 'size', got {slice_mode!r}")
    steps = [builtins.int(getattr(s, "value", s)) for s in strides or [1] * len(begin)]
    if slice_mode == "size":
        steps = [1] * len(begin)
    steps += [1] * (len(begin) - len(steps))
    places = (
        list(range(len(begin)))
        if axes is None
        else [_axis(x, a.ndim, "strided_slice") for x in axes]
    )
    if not len(begin) == len(end) == len(steps) == len(places) <= a.ndim:
        raise ValueError(
            f"strided_slice: expected as many bounds as axes, got {len(begin)} begins, {len(end)} "
            f"ends, {len(steps)} strides and {len(places)} axes of {a.ndim}"
        )
    if 0 in steps:
        raise ValueError(f"strided_slice: expected steps other than 0, got {steps}")
    dtype = INDEX_DTYPE.get()
    shape, starts = list(a.shape), {}
    for axis, first, last, step in zip(places, begin, end, steps, strict=True):
        low, high = as_index(first, dtype), as_index(last, dtype)
        if slice_mode == "size":
            is_rest = type(high) is IntImm and high.value < 0
            high = a.shape[axis] if is_rest else simplify(low + high)
        start, count = slice_of(a.shape[axis], low, high, step, assume_inbound)
        starts[axis] = (_as_index(start, dtype), step)
        shape[axis] = _as_index(count, dtype)

    def formula(*i: Expr) -> Expr:
        at = list(i)
        for axis, (start, step) in starts.items():
            at[axis] = start + i[axis] * step
        return a[tuple(at)]

    return compute(shape, formula, "T_strided_slice", varargs_names=_axes("ax", a.ndim))


def _as_index(e: Expr, dtype: str) -> Expr:
    return as_index(e.value, dtype) if type(e) is IntImm else e


# Reductions


def _reduction(name: str, reduce: Callable[..., Expr], doc: str) -> Callable[..., Tensor]:
    def make(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        if axis is None:
            gone = list(range(data.ndim))
        else:
            axes = [axis] if isinstance(axis, int) else axis
            gone = sorted({_axis(a, data.ndim, name) for a in axes})
        reduced = {a: te.reduce_axis((0, data.shape[a]), f"k{a}") for a in gone}
        one = IntImm(INDEX_DTYPE.get(), 1)
        shape = [
            one if a in reduced else dim
            for a, dim in enumerate(data.shape)
            if keepdims or a not in reduced
        ]

        def formula(*i: Expr) -> Expr:
            rest = iter(i)
            places: list[Any] = []
            for a in range(data.ndim):
                if a in reduced:
                    places.append(reduced[a].var)
                    if keepdims:
                        next(rest)
                else:
                    places.append(next(rest))
            return reduce(data[tuple(places)], list(reduced.values()))

        if not gone:
            result: Tensor = identity(data)
            return result
        return compute(shape, formula, f"{data.name}_red", varargs_names=_axes("ax", len(shape)))

    make.__name__ = name
    make.__doc__ = doc
    return make


_REDUCTION_DOC: Final = " over an axis, several, or all; `keepdims` leaves them as 1."

sum = _reduction("sum", te.sum, "The sum" + _REDUCTION_DOC)  # noqa: A001
prod = _reduction("prod", te.prod, "The product" + _REDUCTION_DOC)
max = _reduction("max", te.max, "The greatest value" + _REDUCTION_DOC)  # noqa: A001
min = _reduction("min", te.min, "The least value" + _REDUCTION_DOC)  # noqa: A001

all = _reduction(  # noqa: A001
    "all",
    te.comm_reducer(prim.logical_and, lambda _: True),
    "Whether all are true" + _REDUCTION_DOC,
)
any = _reduction(  # noqa: A001
    "any", te.comm_reducer(prim.logical_or, lambda t: False), "Whether any is true" + _REDUCTION_DOC
)


def matmul(
    a: Tensor, b: Tensor, transp_a: builtins.bool = False, transp_b: builtins.bool = False
) -> Tensor:
    """The product of two matrices, either of which may be given transposed."""
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"matmul: expected two matrices, got {a} and {b}")
    rows, inner = (a.shape[1], a.shape[0]) if transp_a else (a.shape[0], a.shape[1])
    columns = b.shape[0] if transp_b else b.shape[1]
    k = te.reduce_axis((0, inner), "k")

    def formula(i: Expr, j: Expr) -> Expr:
        x = a[k.var, i] if transp_a else a[i, k.var]
        y = b[j, k.var] if transp_b else b[k.var, j]
        return te.sum(x * y, k)

    return compute((rows, columns), lambda ax0, ax1: formula(ax0, ax1), "T_matmul")
