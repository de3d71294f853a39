"""Writes to memory that the VM keeps, such as the cache of a decoder, without a copy of it.

A buffer that a program changes is read where the program begins and kept where it ends.  The first
write to some of its elements, if nothing was computed from it before, is done where it is: so a
step of a decoder writes a few rows of its cache.  Later writes make a new tensor, as elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...ir import Expr, ShapeExpr, Tuple, int_imm
from ...op.registry import CONSTRUCTORS
from ..common.values import Value, as_expr
from .aliases import Tensor
from .checked import index_within

if TYPE_CHECKING:
    from .graph import Graph

__all__ = ["key_of", "put_in_place"]

_END: Final = (1 << 63) - 1
_PUT: Final = "relaxvm.builtin.put"


def key_of(name: str, arguments: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What a view takes of its base, by the operator's name; None if this is not known here."""
    dim = arguments.get("dim", 0)
    if name == "select":
        return dim, arguments["index"]
    if name == "slice":
        start, end = arguments.get("start"), arguments.get("end")
        return (dim, 0 if start is None else start, _END if end is None else end,
                arguments.get("step", 1))  # fmt: skip
    if name == "narrow" and not isinstance(arguments["start"], Tensor):
        start = arguments["start"]
        return dim, start, start + arguments["length"], 1
    return None


def put_in_place(
    graph: Graph, name: str, target: Tensor, arguments: dict[str, Any]
) -> bool:
    """Write to kept memory, if an in-place operator allows that.

    Args:
        name: of the operator.
        target: what it writes to.
        arguments: of the operator.

    Returns:
        Whether this was done.
    """
    storage = target.storage
    if not storage.is_kept or storage.is_used or storage.version:
        return False
    keys = target.keys()
    if keys is None:
        return False
    found = _written(graph, name, target, arguments)
    if found is None:
        return False
    value, indices = found
    old = storage.read()
    if name == "index_copy_":
        indices[-1] = _checked(graph, target, arguments["dim"], indices[-1])
    if value.dtype != old.dtype:
        value = Value(graph.op("astype", value, old.dtype))
    steps = [
        as_expr(number)
        for key in keys
        for number in (key if len(key) == 4 else (*key, 0, 0))
    ]
    call = CONSTRUCTORS["call_packed"](
        _PUT, graph.expr(old), graph.expr(value), ShapeExpr(steps), Tuple(indices),
        ty_args=old.type,
    )  # fmt: skip
    storage.placed = Value(graph.emit(call, "kept"))
    storage.write(storage.placed)
    return True


def _checked(graph: Graph, target: Tensor, dim: int, index: Expr) -> Expr:
    """Indices of `index_copy_`, of which none is negative.  All layers of a decoder have the same
    ones: they are checked once."""
    read = target.read()
    dims = read.dims
    size = dims[dim % len(dims)] if dims else 1
    key = (index, size)
    found = graph.bounded.get(key)
    if found is None:
        found = graph.expr(index_within(graph, index, size, "index_copy: index"))
        graph.bounded[key] = found
    return found


def _written(
    graph: Graph, name: str, target: Tensor, arguments: dict[str, Any]
) -> tuple[Value, list[Expr]] | None:
    """The elements that an operator writes, and the indices where it does."""
    if name == "copy_":
        source = arguments["src"]
        return (source.read(), []) if isinstance(source, Tensor) and source.storage is not (
            target.storage) else None  # fmt: skip
    if name == "index_copy_":
        dim, index, source = (arguments[key] for key in ("dim", "index", "source"))
        rank = target.read().ndim
        places: list[Any] = [None] * (dim % rank if rank else 0) + [index]
    elif name == "index_put_" and not arguments.get("accumulate", False):
        places, source = list(arguments["indices"]), arguments["values"]
    else:
        return None
    if not isinstance(source, Tensor) or source.storage is target.storage:
        return None
    found: list[Expr] = []
    for each in places:
        if each is None:
            found.append(int_imm(0))
            continue
        index = each.read()
        if index.dtype != "int64":
            return None
        found.append(graph.expr(index))
    return source.read(), found
