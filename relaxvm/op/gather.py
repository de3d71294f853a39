"""Gathering and scattering: elements at places that tensors of indices name."""

from __future__ import annotations

from typing import Any, Final, Literal

from ..ir.arith import simplify
from ..ir.expr import IntImm, TensorType, Type, int_imm
from .index import slice_of
from .kinds import Axis, IllTyped, IllValued, Scalar, Tensors, axis_of
from .registry import Unsupported, operator
from .rules import (
    analyzer_of,
    broadcast,
    common_dtype,
    common_vdevice,
    differ,
    like,
    need_equal_dims,
    need_floats,
    need_integers,
    need_rank,
    shape_text,
)

__all__ = [
    "gather_elements",
    "gather_nd",
    "index_put",
    "index_tensor",
    "one_hot",
    "reverse_sequence",
    "scatter_elements",
    "scatter_nd",
    "slice_scatter",
    "tril",
    "triu",
]

_NO_WRITES: Final = Unsupported(
    "A formula computes each element by itself; scattering needs statements that write to places "
    "that are known only at run time."
)


def _same_rank(**tensors: TensorType) -> int:
    """The common rank; -1 if none is known."""
    ranks = {ty.ndim for ty in tensors.values() if ty.ndim != -1}
    if len(ranks) > 1:
        got = ", ".join(f"{name} {ty}" for name, ty in tensors.items())
        raise IllValued(f"expected tensors of one rank, got {got}")
    return max(ranks, default=-1)


def _coordinates(data: TensorType, indices: TensorType, batch_dims: int = 0) -> int | None:
    """The number of axes that the rows of indices are coordinates for; None if it is not known."""
    if indices.ndim == 0:
        raise IllValued(f"indices: expected a tensor of rank 1 or more, got {indices}")
    last = None if indices.dims is None else indices.dims[-1]
    if not isinstance(last, IntImm):
        return None
    if data.ndim != -1 and last.value > data.ndim - batch_dims:
        after = f" after {batch_dims} axes of batches" if batch_dims else ""
        raise IllValued(
            f"indices: expected rows of at most {data.ndim - batch_dims} coordinates{after}, as "
            f"data is {data}, got {indices}"
        )
    return last.value


@operator("gather_elements", loops="gather_elements")
def gather_elements(data: TensorType, indices: TensorType, axis: Axis = 0) -> Type:
    """For each place of indices the element of data at this place, but with the index along an
    axis; negative indices count from the end."""
    need_integers(indices=indices)
    vdevice = common_vdevice(data=data, indices=indices)
    ndim = _same_rank(data=data, indices=indices)
    if data.ndim == -1 or indices.dims is None:
        return like(data, None, ndim=-1 if data.ndim == -1 else ndim, vdevice=vdevice)
    return like(data, indices.dims, vdevice=vdevice)


@operator("gather_nd", loops="gather_nd")
def gather_nd(data: TensorType, indices: TensorType, batch_dims: int = 0) -> Type:
    """The elements or slices of data at coordinates, which are the rows of indices; negative ones
    count from the end.

    The first `batch_dims` axes of data and indices are the same ones, and the coordinates are for
    the axes after them.
    """
    need_integers(indices=indices)
    if batch_dims < 0 or (data.ndim != -1 and batch_dims > data.ndim):
        raise IllValued(f"batch_dims: expected a number of axes of data, {data}, got {batch_dims}")
    if indices.ndim != -1 and batch_dims >= indices.ndim > 0:
        raise IllValued(
            f"batch_dims: expected less than the rank of indices, {indices}, got {batch_dims}"
        )
    vdevice = common_vdevice(data=data, indices=indices)
    count = _coordinates(data, indices, batch_dims)
    if data.dims is not None and indices.dims is not None:
        for i in range(batch_dims):
            need_equal_dims(f"dimension {i}", data=data.dims[i], indices=indices.dims[i])
    if data.ndim == -1 or count is None:
        return like(data, None, vdevice=vdevice)
    if data.dims is None or indices.dims is None:
        ndim = indices.ndim - 1 + data.ndim - batch_dims - count
        return like(data, None, ndim=ndim, vdevice=vdevice)
    return like(data, [*indices.dims[:-1], *data.dims[batch_dims + count :]], vdevice=vdevice)


def _places(data: TensorType, indices: tuple[TensorType, ...]) -> TensorType:
    """The type that tensors of indices broadcast to."""
    if not indices:
        raise IllValued("indices: expected one tensor or more, got none")
    if data.ndim != -1 and len(indices) > data.ndim:
        raise IllValued(
            f"indices: expected at most {data.ndim}, as data is {data}, got {len(indices)}"
        )
    named = {f"indices[{i}]": ty for i, ty in enumerate(indices)}
    need_integers(**named)
    return broadcast("int64", **named)


@operator("index_tensor", loops="index_tensor")
def index_tensor(data: TensorType, indices: Tensors) -> Type:
    """``data[indices[0], indices[1], ...]``: the elements or slices of data at coordinates in its
    first axes, one tensor of integers for each, which broadcast."""
    places = _places(data, indices)
    if data.ndim == -1 or places.ndim == -1:
        return like(data, None)
    if data.dims is None or places.dims is None:
        if places.dims is None:
            return like(data, None)
        return like(data, None, ndim=places.ndim + data.ndim - len(indices))
    return like(data, [*places.dims, *data.dims[len(indices) :]])


def _as_update(
    data: Any, indices: Any, updates: Any, axis: Any = 0, reduction: Any = "update"
) -> tuple[Any, ...]:
    return data, indices, updates, axis, "update" if reduction == "updates" else reduction


@operator("scatter_elements", loops=_NO_WRITES, arguments=_as_update)
def scatter_elements(
    data: TensorType,
    indices: TensorType,
    updates: TensorType,
    axis: Axis = 0,
    reduction: Literal["update", "add", "mul", "mean", "max", "min"] = "update",
) -> Type:
    """data with updates at the places of `gather_elements`.

    `reduction` says what an update does to an element: "update", also written "updates", replaces
    it, and the last update counts if there are several; "add", "mul", "max" and "min" combine the
    two; "mean" takes the mean of the two, one update after the other.
    """
    need_integers(indices=indices)
    common_dtype(data=data, updates=updates)
    if reduction == "mean":
        need_floats(data=data)
    vdevice = common_vdevice(data=data, indices=indices, updates=updates)
    _same_rank(data=data, indices=indices, updates=updates)
    if indices.dims is not None and updates.dims is not None:
        for i, (a, b) in enumerate(zip(indices.dims, updates.dims, strict=True)):
            if differ(analyzer_of(a).simplify(a - b), int_imm(0)):
                raise IllValued(
                    f"updates: expected the shape of indices, {shape_text(indices.dims)}, got "
                    f"{shape_text(updates.dims)}: dimension {i} differs"
                )
    return like(data, vdevice=vdevice)


@operator("scatter_nd", loops=_NO_WRITES)
def scatter_nd(
    data: TensorType,
    indices: TensorType,
    updates: TensorType,
    reduction: Literal["update", "add", "mul", "mean", "max", "min"] = "update",
) -> Type:
    """data with updates at the places of `gather_nd` without batches; `reduction` is that of
    `scatter_elements`.

    The dimensions of updates are those of indices but the last, then those of data after the axes
    that the coordinates are for.
    """
    need_integers(indices=indices)
    common_dtype(data=data, updates=updates)
    if reduction == "mean":
        need_floats(data=data)
    vdevice = common_vdevice(data=data, indices=indices, updates=updates)
    count = _coordinates(data, indices)
    if count is not None and -1 not in (data.ndim, updates.ndim):
        expected = indices.ndim - 1 + data.ndim - count
        if updates.ndim != expected:
            raise IllValued(f"updates: expected a tensor of rank {expected}, got {updates}")
        if data.dims is not None and updates.dims is not None and indices.dims is not None:
            wanted = [*indices.dims[:-1], *data.dims[count:]]
            if any(map(differ, wanted, updates.dims)):
                raise IllValued(
                    f"updates: expected the shape {shape_text(wanted)}, got "
                    f"{shape_text(updates.dims)}"
                )
    return like(data, vdevice=vdevice)


@operator(
    "index_put",
    loops=_NO_WRITES,
    takes=lambda call: [*call.args, call.attrs["accumulate"]],
)
def index_put(
    data: TensorType, indices: Tensors, values: TensorType, accumulate: bool = False
) -> Type:
    """data with values at coordinates, one tensor of integers for each axis, or with `accumulate`
    added to the elements there.

    The tensors of indices broadcast, and so do the values, to their shape.
    """
    if data.ndim not in (-1, len(indices)):
        raise IllValued(
            f"indices: expected {data.ndim} tensors, one for each axis of {data}, got "
            f"{len(indices)}"
        )
    common_dtype(data=data, values=values)
    places = _places(data, indices)
    if places.dims is not None and values.dims is not None:
        if len(values.dims) > len(places.dims):
            raise IllValued(
                f"values: expected a shape that broadcasts to {shape_text(places.dims)}, got "
                f"{shape_text(values.dims)}"
            )
        broadcast(None, indices=places, values=values)
    return data


@operator("slice_scatter", loops="slice_scatter")
def slice_scatter(
    input_tensor: TensorType,
    src: TensorType,
    start: Scalar,
    end: Scalar,
    step: Scalar,
    axis: Axis = 0,
) -> Type:
    """input_tensor with src in place of the slice ``input_tensor[start:end:step]`` along an axis,
    by the rules of Python's slices; the step is positive."""
    for name, value in (("start", start), ("end", end), ("step", step)):
        if "int" not in value.ty.dtype:
            raise IllTyped(f"{name}: expected an integer, got {value} of type {value.ty}")
    if isinstance(step, IntImm) and step.value < 1:
        raise IllValued(f"step: expected 1 or more, got {step.value}")
    common_dtype(input_tensor=input_tensor, src=src)
    vdevice = common_vdevice(input_tensor=input_tensor, src=src)
    _same_rank(input_tensor=input_tensor, src=src)
    if input_tensor.dims is not None and src.dims is not None:
        for i, (whole, part) in enumerate(zip(input_tensor.dims, src.dims, strict=True)):
            if i == axis and isinstance(step, IntImm):
                whole = slice_of(whole, start, end, step.value, assume_inbound=False)[1]
            if (i != axis or isinstance(step, IntImm)) and differ(simplify(whole), part):
                raise IllValued(
                    f"src: expected {whole} elements along axis {i}, got {shape_text(src.dims)}"
                )
    return like(input_tensor, vdevice=vdevice)


@operator("reverse_sequence", loops="reverse_sequence")
def reverse_sequence(
    data: TensorType, seq_lengths: TensorType, seq_axis: Axis = 1, batch_axis: Axis = 0
) -> Type:
    """data with the first elements along `seq_axis` in reversed order: ``seq_lengths[i]`` of them
    for index i of `batch_axis`."""
    if seq_lengths.dtype not in (None, "int32", "int64"):
        raise IllValued(f"seq_lengths: expected int32 or int64, got {seq_lengths}")
    need_rank(1, seq_lengths=seq_lengths)
    vdevice = common_vdevice(data=data, seq_lengths=seq_lengths)
    if data.ndim != -1 and seq_axis == batch_axis:
        raise IllValued(f"batch_axis: expected an axis other than seq_axis, got {batch_axis}")
    if data.dims is not None and seq_lengths.dims is not None:
        need_equal_dims(
            "number of batches", data=data.dims[batch_axis], seq_lengths=seq_lengths.dims[0]
        )
    return like(data, vdevice=vdevice)


@operator("one_hot", loops="one_hot")
def one_hot(
    indices: TensorType, on_value: Scalar, off_value: Scalar, depth: int, axis: int = -1
) -> Type:
    """A tensor with a new axis of length `depth`, that has `on_value` at the places of indices
    along this axis, and `off_value` elsewhere, also for an index out of range."""
    need_integers(indices=indices)
    if on_value.ty.dtype != off_value.ty.dtype:
        raise IllValued(
            f"off_value: expected the data type of on_value, {on_value.ty.dtype}, got "
            f"{off_value.ty.dtype}"
        )
    if depth < 0:
        raise IllValued(f"depth: expected 0 or more, got {depth}")
    dtype = on_value.ty.dtype
    if indices.ndim == -1:
        return like(indices, None, dtype=dtype)
    place = axis_of("axis", axis, indices.ndim + 1)
    if indices.dims is None:
        return like(indices, None, dtype=dtype, ndim=indices.ndim + 1)
    dims = list(indices.dims)
    dims.insert(place, int_imm(depth))
    return like(indices, dims, dtype=dtype)


def _check_triangle(x: TensorType, k: Any) -> None:
    if "int" not in k.ty.dtype:
        raise IllTyped(f"k: expected an integer, got {k} of type {k.ty}")
    if x.ndim in (0, 1):
        raise IllValued(f"x: expected a tensor of rank 2 or more, got {x}")


@operator("tril", loops="tril")
def tril(x: TensorType, k: Scalar = 0) -> Type:
    """x with zeros above diagonal k of its matrices, which are its last two axes; diagonal 0 is
    the main one, and k > 0 is above it."""
    _check_triangle(x, k)
    return x


@operator("triu", loops="triu")
def triu(x: TensorType, k: Scalar = 0) -> Type:
    """x with zeros below diagonal k of its matrices; see `tril`."""
    _check_triangle(x, k)
    return x
