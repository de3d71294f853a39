"""Tensors that statements compute: what has no formula for each element, such as sorting.

Source: ``tvm.te.extern`` and ``tvm.te.extern_primfunc`` of apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.arith import prove_equal
from ..ir.expr import Expr
from ..ir.node import Attrs
from ..tir.access import access_regions
from ..tir.buffer import Buffer, BufferType
from ..tir.function import PrimFunc
from ..tir.inline import without_root
from ..tir.stmt import Evaluate, Stmt
from .operation import tag_of
from .tensor import Tensor, _shape

__all__ = ["Extern", "extern", "extern_primfunc"]


class Extern:
    """How tensors are computed by statements.

    Attributes:
        inputs: the tensors that are read.
        in_buffers, out_buffers: what stands for them and for the results in `body`.
        body: the statements; they write all elements of the results.
        allocs: buffers that the block around them allocates.
        attrs: annotations of that block.
    """

    __slots__ = ("allocs", "attrs", "body", "in_buffers", "inputs", "out_buffers")

    def __init__(
        self,
        inputs: Sequence[Tensor],
        in_buffers: Sequence[Buffer],
        out_buffers: Sequence[Buffer],
        body: Stmt,
        allocs: Sequence[Buffer] = (),
        attrs: Mapping[str, Any] | None = None,
    ) -> None:
        self.inputs = tuple(inputs)
        self.in_buffers = tuple(in_buffers)
        self.out_buffers = tuple(out_buffers)
        self.body = body
        self.allocs = tuple(allocs)
        self.attrs = Attrs(attrs or {})


def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Any = None,
    out_buffers: Any = None,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """One or several tensors that statements compute.

    Args:
        shape: the dimensions of the result, or a list of the dimensions of each.
        inputs: the tensors that the statements read.
        fcompute: takes the buffers of the inputs and those of the results, and returns a
            statement, or an expression to evaluate.
        name: a hint.
        dtype: of the result or of each; by default that of the inputs.
        in_buffers, out_buffers: buffers to use, by default new ones.
        tag: a word that ``tensor.op.tag`` returns.
        attrs: annotations of the block.

    Raises:
        TypeError: an input is not a tensor, or `fcompute` returns no statement.
        ValueError: the numbers of shapes, data types or buffers differ, or the data type cannot be
            told from the inputs.
    """
    _check_tensors(inputs, "te.extern")
    shapes = _shapes(shape)
    sources = _listed(in_buffers, len(inputs), "in_buffers") or [
        Buffer(tensor.name, BufferType(tensor.shape, tensor.dtype)) for tensor in inputs
    ]
    targets = _listed(out_buffers, len(shapes), "out_buffers")
    if targets is None:
        dtypes = _dtypes(dtype, inputs, len(shapes))
        targets = [
            Buffer(name if len(shapes) == 1 else f"{name}_v{k}", BufferType(dims, each))
            for k, (dims, each) in enumerate(zip(shapes, dtypes, strict=True))
        ]
    body = fcompute(list(sources), list(targets))
    if isinstance(body, Expr):
        body = Evaluate(body)
    if not isinstance(body, Stmt):
        raise TypeError(
            f"te.extern {name}: expected a statement or an expression from the function, got "
            f"{type(body).__name__}"
        )
    return _outputs(name, tag, Extern(inputs, sources, targets, body, (), attrs))


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """The tensors that a PrimFunc computes: the parameters that it writes.

    Args:
        input_tensors: for the parameters that it only reads, in order.
        primfunc: takes buffers alone.
        kwargs: `name`, `tag`, `attrs` as in `extern`.

    Raises:
        TypeError: an input is not a tensor, or `primfunc` no PrimFunc.
        ValueError: the inputs are not as many as those parameters, or have other shapes or data
            types.
    """
    _check_tensors(input_tensors, "te.extern_primfunc")
    if not isinstance(primfunc, PrimFunc):
        raise TypeError(
            f"te.extern_primfunc: primfunc: expected a PrimFunc, got {type(primfunc).__name__}"
        )
    reads, writes = access_regions(primfunc.body, None)
    read, written = ({region.buffer for region in regions} for regions in (reads, writes))
    buffers = [param for param in primfunc.params if isinstance(param, Buffer)]
    targets = [buffer for buffer in buffers if buffer in written]
    sources = [buffer for buffer in buffers if buffer in read and buffer not in written]
    if not targets or len(sources) != len(input_tensors):
        raise ValueError(
            f"te.extern_primfunc: the function reads {len(sources)} parameters and writes "
            f"{len(targets)}, got {len(input_tensors)} tensors"
        )
    for tensor, buffer in zip(input_tensors, sources, strict=True):
        is_same = tensor.dtype == buffer.dtype and len(tensor.shape) == len(buffer.shape)
        if not is_same or not all(map(prove_equal, tensor.shape, buffer.shape)):
            raise ValueError(
                f"te.extern_primfunc: parameter {buffer.name} is {buffer.dtype}"
                f"{list(buffer.shape)}, got {tensor!r}"
            )
    body, allocs = without_root(primfunc.body)
    made = Extern(input_tensors, sources, targets, body, allocs, kwargs.get("attrs"))
    return _outputs(kwargs.get("name", "extern"), kwargs.get("tag", ""), made)


def _outputs(name: str, tag: str, made: Extern) -> Any:
    tensors = [Tensor(buffer.shape, buffer.dtype, buffer.name, made) for buffer in made.out_buffers]
    for tensor in tensors:
        tensor.tag = tag_of(tag)
        if len(tensors) == 1:
            tensor.name = name
        else:
            tensor.dependent = tuple(tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def _check_tensors(inputs: Sequence[Tensor], what: str) -> None:
    for tensor in inputs:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{what}: expected te tensors, got {type(tensor).__name__}")


def _shapes(shape: Any) -> list[tuple[Expr, ...]]:
    if isinstance(shape, (int, Expr)):
        return [_shape(shape)]
    items = list(shape)
    if not items or isinstance(items[0], (int, Expr)):
        return [_shape(items)]
    return [_shape(each) for each in items]


def _listed(buffers: Any, count: int, what: str) -> list[Buffer] | None:
    if buffers is None:
        return None
    given = [buffers] if isinstance(buffers, Buffer) else list(buffers)
    if len(given) != count:
        raise ValueError(f"te.extern: {what}: expected {count} buffers, got {len(given)}")
    for buffer in given:
        if not isinstance(buffer, Buffer):
            raise TypeError(f"te.extern: {what}: expected a Buffer, got {type(buffer).__name__}")
    return given


def _dtypes(dtype: Any, inputs: Sequence[Tensor], count: int) -> list[str]:
    if dtype is None:
        found = {tensor.dtype for tensor in inputs}
        if len(found) != 1:
            raise ValueError(
                "te.extern: dtype: it cannot be told from inputs of "
                f"{', '.join(sorted(found)) or 'no data type'}"
            )
        return [found.pop()] * count
    given = [str(dtype)] if isinstance(dtype, str) else [str(each) for each in dtype]
    if len(given) == 1:
        given *= count
    if len(given) != count:
        raise ValueError(f"te.extern: dtype: expected {count}, got {len(given)}")
    return given
