"""Rearranging the elements of tensors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..ir import prim
from ..ir.arith import prove_equal, simplify
from ..ir.expr import (
    MOST_TYPE_PARTS,
    Call,
    Expr,
    IntImm,
    PrimType,
    ShapeExpr,
    TensorType,
    TupleType,
    Type,
    int_imm,
)
from ..ir.infer import infer_type
from .kinds import (
    Axes,
    Axis,
    IllTyped,
    IllValued,
    Ints,
    ShapeLike,
    Tensors,
    axes_of,
    axis_of,
    is_dim,
    to_ints,
)
from .lowering import is_allocatable, kernel_call
from .registry import operator
from .rules import (
    analyzer_of,
    common_dtype,
    common_vdevice,
    differ,
    like,
    need_equal_dims,
    product,
    same_dim,
    shape_text,
    without_shape_var,
)

__all__ = [
    "broadcast_to",
    "concat",
    "expand_dims",
    "flatten",
    "flip",
    "permute_dims",
    "repeat",
    "reshape",
    "split",
    "squeeze",
    "stack",
    "tile",
]


# The same elements in the same order


def _reshape_arguments(x: Expr, shape: Any) -> tuple[Any, ...]:
    if isinstance(shape, Expr) and not isinstance(shape, ShapeExpr):
        return x, shape
    try:
        dims = list(shape)
    except TypeError:
        return x, shape  # not a shape: the conversion raises the error
    if not all(map(is_dim, dims)):
        return x, dims  # as above
    fixed = [dim.value if isinstance(dim, IntImm) else dim for dim in dims]
    if isinstance(shape, ShapeExpr) and 0 in fixed and _is_empty(x):
        return x, shape  # the shape of a tensor, in which 0 is 0
    if any(isinstance(dim, int) and dim <= 0 for dim in fixed):
        if not isinstance(x, Expr):
            raise IllTyped(f"x: expected an expression, got {type(x).__name__}")
        old = _dims_of(x)
        return x, dims if old is None and _is_template(fixed) else _fill_in(old, fixed)
    return x, dims


def _dims_of(x: Expr) -> tuple[Expr, ...] | None:
    ty = infer_type(x).ty
    return ty.dims if type(ty) is TensorType else None


def _is_empty(x: Any) -> bool:
    """Whether a tensor is known to have no elements."""
    dims = _dims_of(x) if isinstance(x, Expr) else None
    return dims is not None and any(_is_zero(d) for d in dims)


def _is_zero(dim: Expr) -> bool:
    return _is_number(dim, 0)


def _is_number(dim: Expr, value: int) -> bool:
    return isinstance(dim, IntImm) and dim.value == value


def _is_template(dims: list[Any]) -> bool:
    """Whether dimensions that a shape leaves open are stated as they may be."""
    numbers = [dim for dim in dims if isinstance(dim, int)]
    return numbers.count(-1) <= 1 and min(numbers, default=0) >= -1


def _fill_in(old: Sequence[Expr] | None, dims: list[Any]) -> list[Any]:
    """A shape with 0 and -1 replaced by the dimensions that they stand for."""
    if old is None or not _is_template(dims):
        raise IllValued(f"shape: expected dimensions, of which one may be -1, got {_text(dims)}")
    unknown = [i for i, dim in enumerate(dims) if _is(dim, -1)]
    filled = []
    for i, dim in enumerate(dims):
        if _is(dim, 0) and i >= len(old):
            raise IllValued(
                f"shape: 0 at place {i} of {_text(dims)}, but x has {len(old)} dimensions"
            )
        filled.append(old[i] if _is(dim, 0) else dim)
    if unknown:
        rest = product(d if isinstance(d, Expr) else int_imm(d) for d in filled if not _is(d, -1))
        filled[unknown[0]] = _quotient(old, rest, dims)
    return filled


def _is(dim: Any, value: int) -> bool:
    return isinstance(dim, int) and dim == value


def _text(dims: list[Any]) -> str:
    return shape_text(dim if isinstance(dim, Expr) else int_imm(dim) for dim in dims)


def _quotient(old: Sequence[Expr], rest: Expr, dims: list[Any]) -> Expr:
    total = product(old)
    if (
        isinstance(total, IntImm)
        and isinstance(rest, IntImm)
        and (rest.value == 0 or total.value % rest.value)
    ):
        raise IllValued(
            f"shape: a tensor of shape {shape_text(old)} cannot be made of shape {_text(dims)}"
        )
    return simplify(total // rest)


def has_as_many(x: Expr, new: Type) -> bool:
    """Whether a tensor is known to have as many elements as one of another type, so that it can be
    viewed as one."""
    old = x.ty.dims if type(x.ty) is TensorType else None
    dims = new.dims if type(new) is TensorType else None
    return old is not None and dims is not None and prove_equal(product(old), product(dims))


def _checked(builder: Any, call: Call) -> Expr:
    """A view if it is known to fit, else a call of the kernel, which checks it and copies."""
    (x, shape), ty = call.args, call.ty
    if ty.dims is not None and any(
        isinstance(dim, int) and dim <= 0 and not _is_number(found, dim)
        for dim, found in zip(_open_dims(shape), ty.dims, strict=False)
    ):  # x has got a shape since the call was made
        lowered: Expr = builder.normalize(reshape(x, ty.shape))
        return lowered
    if has_as_many(x, ty) or not is_allocatable(ty):
        return call
    return kernel_call("reshape", (x,), ty)


def _open_dims(shape: Expr) -> list[Any]:
    """The dimensions of a shape in which 0 or -1 stands for what x has; empty without these."""
    values = shape.values if isinstance(shape, ShapeExpr) else ()
    dims = [dim.value if isinstance(dim, IntImm) else dim for dim in values]
    return dims if any(isinstance(dim, int) and dim <= 0 for dim in dims) else []


def _result(call: Call) -> tuple[str, list[Any]]:
    """The kernel that returns its result; a shape that is stated in full takes 0 as it is."""
    x, shape = call.args
    is_full = _dims_of(x) is not None or not _open_dims(shape)
    return "reshape", [x, shape, is_full]


@operator(
    "reshape",
    loops="reshape",
    kernel=False,
    arguments=_reshape_arguments,
    lower=_checked,
    returns=_result,
)
def reshape(x: TensorType, shape: ShapeLike) -> Type:
    """The elements of x, in order, as a tensor of another shape.

    In a shape given as a list, -1 stands for the remaining elements and 0 for the dimension of x at
    the same place; in an R.shape for a tensor without elements, 0 is 0.  The result is a view that
    shares x's memory if the shapes are known to have equally many elements, else a copy; it is an
    error if they differ when the program runs.  What 0 and -1 stand for is found at run time if the
    shape of x is not known before.
    """
    old, new = x.dims, shape.ty.values
    open_dims = _open_dims(shape)
    if old is None and open_dims:
        return like(x, None, ndim=len(open_dims))
    if old is not None and open_dims and not any(map(_is_zero, old)):  # x has got a shape since
        new = tuple(d if isinstance(d, Expr) else int_imm(d) for d in _fill_in(old, open_dims))
    if old is not None and new is not None and all(isinstance(d, IntImm) for d in (*old, *new)):
        before, after = product(old), product(new)
        if differ(before, after):
            raise IllValued(
                f"shape: a tensor of shape {shape_text(old)} has {before} elements, one of shape "
                f"{shape_text(new)} has {after}"
            )
    return TensorType(shape if new is None else new, x.dtype, x.vdevice)


def _as_reshape(builder: Any, call: Call) -> Expr:
    ty = call.ty
    if ty.shape is None:
        return call
    lowered: Expr = reshape(call.args[0], ty.shape)
    return lowered


@operator(
    "expand_dims",
    lower=_as_reshape,
    returns=lambda call: ("expand_dims", [*call.args, call.attrs["axis"]]),
)
def expand_dims(x: TensorType, axis: Ints) -> Type:
    """x with additional dimensions of length 1, which are these axes of the result."""
    if not axis:
        return x
    if x.ndim == -1:
        return like(x, None)
    x = without_shape_var(x)
    ndim = x.ndim + len(axis)
    new = frozenset(axes_of("axis", axis, ndim))
    if x.dims is None:
        return like(x, None, ndim=ndim)
    old = iter(x.dims)
    return like(x, [int_imm(1) if i in new else next(old) for i in range(ndim)])


@operator(
    "squeeze",
    lower=_as_reshape,
    returns=lambda call: ("squeeze", [*call.args, call.attrs["axis"]]),
)
def squeeze(x: TensorType, axis: Axes | None = None) -> Type:
    """x without these axes, which have length 1; if none are given, without all axes of length 1.

    An axis that is known to have another length stays.
    """
    if axis == ():
        return x
    if x.ndim == -1:
        return like(x, None)
    dims, one = x.dims, int_imm(1)
    if dims is None or (axis is None and not all(isinstance(dim, IntImm) for dim in dims)):
        return like(x, None, ndim=-1 if axis is None else x.ndim - len(axis))
    gone = frozenset(range(x.ndim) if axis is None else axis)
    left = [d for i, d in enumerate(dims) if i not in gone or differ(d, one)]
    if len(left) == len(dims):
        return x
    if not isinstance(x.shape, ShapeExpr):
        return like(x, None, ndim=-1 if axis is None else len(left))
    return like(x, left)


@operator(
    "flatten",
    lower=_as_reshape,
    returns=lambda call: ("flatten", [*call.args, None]),
)
def flatten(x: TensorType) -> Type:
    """The elements of x, in order, as a vector."""
    if x.ndim == 1:
        return x
    if x.ndim == 0:
        return like(x, [int_imm(1)])
    x = without_shape_var(x)
    if x.dims is None:
        return like(x, None, ndim=1)
    return like(x, [product(x.dims)])


# The same elements in another order


def _permuted(call: Call) -> list[Any]:
    x, axes = call.args[0], call.attrs["axes"]
    ndim = x.ty.ndim
    if axes is None:
        return [x, None if ndim == -1 else tuple(reversed(range(ndim)))]
    return [x, axes_of("axes", axes, ndim)]


@operator("permute_dims", loops="permute_dims", takes=_permuted)
def permute_dims(x: TensorType, axes: Ints | None = None) -> Type:
    """x with its axes in another order: axis i of the result is axis ``axes[i]`` of x; without
    axes, in reversed order."""
    if axes is None:
        x = without_shape_var(x)
        return like(x, None if x.dims is None else tuple(reversed(x.dims)), ndim=x.ndim)
    if x.ndim not in (-1, len(axes)):
        raise IllValued(f"axes: expected {x.ndim}, as x is {x}, got {list(axes)}")
    order = axes_of("axes", axes, len(axes))
    if x.ndim != -1 and order == tuple(range(x.ndim)):
        return x
    x = without_shape_var(x)
    return like(x, None if x.dims is None else [x.dims[i] for i in order], ndim=len(axes))


@operator("flip", loops="flip")
def flip(data: TensorType, axis: Axis) -> Type:
    """data with the order along an axis reversed."""
    return data


# Several tensors


def _same_but(axis: int, tensors: dict[str, TensorType]) -> list[Expr] | None:
    """The dimensions that tensors have in common, except for one axis; None if they are not known.

    Raises:
        IllValued: two are known to differ.
    """
    shared: list[Expr] | None = None
    is_known = True
    for name, ty in tensors.items():
        if ty.dims is None:
            is_known = False
            continue
        if shared is None:
            shared, first = list(ty.dims), name
            continue
        for i, dim in enumerate(ty.dims):
            if i == axis:
                continue
            need_equal_dims(f"dimension {i}", **{first: shared[i], name: dim})
            is_known = is_known and same_dim(shared[i], dim)
    return shared if is_known else None


def _named(tensors: Sequence[TensorType]) -> tuple[dict[str, TensorType], int]:
    """Tensors by their names in messages, and their common rank, -1 if it is not known."""
    if not tensors:
        raise IllValued("tensors: expected one or more, got none")
    ranks = {ty.ndim for ty in tensors if ty.ndim != -1}
    if len(ranks) > 1:
        got = ", ".join(str(ty.ndim) for ty in tensors)
        raise IllValued(f"tensors: expected tensors of one rank, got ranks {got}")
    return {f"tensors[{i}]": ty for i, ty in enumerate(tensors)}, max(ranks, default=-1)


@operator("concat", loops="concat", takes=lambda call: [call.args[0], call.attrs["axis"] or 0])
def concat(tensors: Tensors, axis: int | None = 0) -> Type:
    """Tensors joined along an axis; None stands for the axis of vectors."""
    named, ndim = _named(tensors)
    if axis is None and ndim not in (-1, 1):
        raise IllValued(f"axis: None is for tensors of rank 1, got rank {ndim}")
    dtype, vdevice = common_dtype(**named), common_vdevice(**named)
    place = axis_of("axis", axis or 0, ndim)
    if len(tensors) == 1:
        return tensors[0]
    if axis is None:
        ndim = 1
    dims = None if ndim == -1 else _same_but(place, named)
    if dims is None or any(without_shape_var(ty).dims is None for ty in tensors):
        return TensorType(None, dtype, vdevice, ndim)
    length: Expr = int_imm(0)
    for ty in tensors:
        assert ty.dims is not None
        length = length + ty.dims[place]
    short = simplify(length)
    # In the order of the tensors, unless there is a shorter form, or one as short: M * 2 for M + M.
    symbolic = [dim for ty in tensors if not isinstance(dim := ty.dims[place], IntImm)]  # type: ignore[index]
    in_order = short._parts == length._parts and len(set(symbolic)) == len(symbolic)
    dims[place] = length if in_order else short
    return TensorType(dims, dtype, vdevice)


@operator("stack", loops="stack")
def stack(tensors: Tensors, axis: int = 0) -> Type:
    """Tensors of one shape, joined along a new axis."""
    named, ndim = _named(tensors)
    dtype, vdevice = common_dtype(**named), common_vdevice(**named)
    if ndim == -1:
        return TensorType(None, dtype, vdevice)
    place = axis_of("axis", axis, ndim + 1)
    dims = _same_but(-1, named)
    if dims is None:
        return TensorType(None, dtype, vdevice, ndim + 1)
    dims.insert(place, int_imm(len(tensors)))
    return TensorType(dims, dtype, vdevice)


class _Index(int):
    """An index in an attribute: an int with the type of the `IntImm` that TVM has there."""

    ty: Final = PrimType("int64")
    dtype: Final = "int64"

    @property
    def value(self) -> int:
        return int(self)


def _split_arguments(x: Any, indices_or_sections: Any, axis: Any = 0) -> tuple[Any, ...]:
    where = indices_or_sections
    if isinstance(where, (IntImm, np.integer, int)):
        return x, _Index(where), axis
    return x, tuple([_Index(i) for i in to_ints("indices_or_sections", where)]), axis


@operator("split", loops="split", arguments=_split_arguments)
def split(x: TensorType, indices_or_sections: Any, axis: Axis = 0) -> Type:
    """The parts of x along an axis, a tuple.

    A number is the number of parts: they have equal lengths, the quotient rounded up, and the last
    one is shorter if the division leaves a remainder.  If nothing is left for it, the last parts of
    an axis of known length are shorter or empty; if only the run knows the length, it is an error
    then.  A sequence has the indices at which parts begin: a part is ``x[begin:end]`` with both cut
    to the range from 0 to the length, and empty if its end comes first.  One part, 1 or no indices,
    is x itself, not a tuple.
    """
    where = indices_or_sections
    if isinstance(where, int) and where < 1:
        raise IllValued(f"indices_or_sections: expected one part or more, got {where}")
    if where in (1, ()):
        return x
    x = without_shape_var(x)
    count = where if isinstance(where, int) else len(where) + 1
    if count > MOST_TYPE_PARTS:
        raise IllValued(
            f"indices_or_sections: expected at most {MOST_TYPE_PARTS} parts, got {count}"
        )
    if x.dims is None:
        return TupleType([like(x, None, ndim=x.ndim)] * count)
    length = x.dims[axis]
    parts = _equal_parts(length, where) if isinstance(where, int) else _parts_at(length, where)
    return TupleType([like(x, [*x.dims[:axis], p, *x.dims[axis + 1 :]]) for p in parts])


def _equal_parts(length: Expr, count: int) -> list[Expr]:
    if isinstance(length, IntImm):
        step = -(-length.value // count)
        ends = [min(i * step, length.value) for i in range(count + 1)]
        return [int_imm(b - a) for a, b in itertools.pairwise(ends)]
    part = simplify((length + (count - 1)) // count)  # as TVM writes them
    return [part] * (count - 1) + [simplify(length - part * (count - 1))]


def _parts_at(length: Expr, indices: tuple[int, ...]) -> list[Expr]:
    starts: list[Any] = [max(i, 0) for i in indices]
    if isinstance(length, IntImm):
        known = [0, *[min(start, length.value) for start in starts], length.value]
        return [int_imm(max(0, end - start)) for start, end in itertools.pairwise(known)]
    analyzer = analyzer_of(length)
    ends = [prim.minimum(start, length) for start in starts]
    return [
        analyzer.simplify(prim.maximum(end - start, 0))
        for start, end in zip([0, *starts], [*ends, length], strict=True)
    ]


# Repetition


@operator("broadcast_to", loops="broadcast_to", takes=lambda call: [call.args[0]])
def broadcast_to(x: TensorType, shape: ShapeLike) -> Type:
    """x repeated along axes of length 1, and along new axes in front."""
    new = shape.ty.values
    if x.ndim != -1 and shape.ty.ndim != -1 and x.ndim > shape.ty.ndim:
        raise IllValued(f"shape: expected {x.ndim} dimensions or more, got {shape.ty.ndim}")
    if x.dims is not None and new is not None:
        one = int_imm(1)
        for i, (old, dim) in enumerate(zip(reversed(x.dims), reversed(new), strict=False), 1):
            if differ(old, dim) and differ(old, one):
                raise IllValued(
                    f"shape: {shape_text(x.dims)} does not broadcast to {shape_text(new)}: "
                    f"dimension {len(new) - i} is {old} and has to be {dim}"
                )
    return TensorType(shape, x.dtype, x.vdevice)


@operator("repeat", loops="repeat")
def repeat(data: TensorType, repeats: int, axis: Axis | None = None) -> Type:
    """data with each slice along an axis repeated; without an axis, each element, as a vector."""
    if repeats < 0:
        raise IllValued(f"repeats: expected 0 or more, got {repeats}")
    if axis is None:
        if data.dims is None:
            return like(data, None, ndim=1)
        return like(data, [simplify(product(data.dims) * repeats)])
    if data.dims is None:
        return like(data, None, ndim=data.ndim)
    dims = list(data.dims)
    dims[axis] = simplify(dims[axis] * repeats)
    return like(data, dims)


@operator("tile", loops="tile")
def tile(data: TensorType, repeats: Ints) -> Type:
    """Copies of data side by side: ``repeats[i]`` along axis i.  If there are fewer repeats than
    axes, they are for the last axes; if there are more, data gets axes of length 1 in front."""
    if any(count < 0 for count in repeats):
        raise IllValued(f"repeats: expected 0 or more each, got {list(repeats)}")
    if data.ndim == -1:
        return like(data, None)
    ndim = max(data.ndim, len(repeats))
    if data.dims is None:
        return like(data, None, ndim=ndim)
    counts = (1,) * (ndim - len(repeats)) + repeats
    dims: list[Any] = [int_imm(1) for _ in range(ndim - data.ndim)]
    dims += data.dims
    return like(data, [simplify(dim * n) for dim, n in zip(dims, counts, strict=True)])
