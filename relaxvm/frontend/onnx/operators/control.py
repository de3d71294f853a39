"""Conditionals and loops.

A loop becomes a local function that calls itself last, which takes one frame however often it runs.
Its parameters are what the body changes; what it only reads, or returns as it is, is captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir import (
    Constant,
    Expr,
    If,
    IntImm,
    ShapeType,
    TensorType,
    TupleGetItem,
)
from ....ir.arith import prove_equal
from ...common.control import Chains, end_tuple, repeated, scalar, visible
from ...common.values import (
    Opaque,
    SequenceKind,
    Value,
    as_expr,
    closed,
    elements_of,
    joined,
    kind_of,
)
from .. import messages
from ..graph import Graph, Problem
from ..registry import onnx
from .ranks import part, shape_vector, with_rank

__all__: list[str] = []

# Conditionals


@onnx("If", since=1)
def if_(
    g: Graph, cond: Value, *, then_branch: messages.Graph, else_branch: messages.Graph
) -> Any:
    """A branch of the program; a condition that is known chooses a graph when the model is
    imported."""
    known = cond.constant()
    if known is not None and known.size == 1:
        return tuple(g.subgraph(then_branch if known.reshape(-1)[0] else else_branch))
    hint = g.hint
    test = scalar(g, cond)
    branches, kinds = [], []
    for graph in (then_branch, else_branch):
        with g.context.scope():
            values = g.subgraph(graph)
            kinds.append([kind_of(value) for value in values])
            branches.append(end_tuple(g, values))
    g.hint = hint
    if len(kinds[0]) != len(kinds[1]):
        raise Problem(
            f"the branches have {len(kinds[0])} and {len(kinds[1])} results, expected as many"
        )
    result = g.emit(If(test, branches[0], branches[1]))
    found = []
    for i, (a, b) in enumerate(zip(*kinds, strict=True)):
        kind = closed(joined(a, b), visible(g))
        found.append(g.typed(g.emit(TupleGetItem(result, i)), kind))
    return tuple(found)


# Loops


def _number(number: int) -> Value:
    return Value(known=np.array(number, np.int64))


def _next(g: Graph, i: Value) -> Value:
    return Value(g.op("add", i, _number(1)))


def _is_true(value: Value) -> bool:
    known = value.constant()
    return known is not None and known.size == 1 and bool(known.reshape(-1)[0])


class _Unsteady(Exception):
    """The condition of a loop depends on its steps."""


@onnx("Loop", since=1)
def loop(
    g: Graph, trips: Value | None, cond: Value | None = None, *initial: Value | None,
    body: messages.Graph,
) -> Any:
    """A function that calls itself last."""
    count = len(initial)
    collected = len(body.output) - 1 - count
    if len(body.input) != count + 2 or collected < 0:
        raise Problem(
            f"body: expected {count + 2} inputs and at least {count + 1} outputs, got "
            f"{len(body.input)} and {len(body.output)}"
        )
    carried = [value or Value(g.none(), compound=Opaque()) for value in initial]
    kept = _kept(body, count)
    if cond is None or _is_true(cond):
        try:
            return _loop(g, trips, None, carried, kept, collected, body)
        except _Unsteady:
            cond = Value(known=np.array(True))
    return _loop(g, trips, cond, carried, kept, collected, body)


def _kept(body: messages.Graph, count: int) -> list[bool]:
    """Which of the values that a body is given it returns as they are, by name or through
    `Identity`: programs that were loops over all their weights have many."""
    sources: dict[str, str] = {}
    for node in body.node:
        if node.op_type == "Identity" and not node.domain and len(node.input) == len(node.output):
            for before, after in zip(node.input, node.output, strict=True):
                sources[after] = sources.get(before, before)
    return [
        sources.get(result.name, result.name) == given.name
        for given, result in zip(body.input[2:], body.output[1 : 1 + count], strict=True)
    ]


def _loop(
    g: Graph,
    trips: Value | None,
    cond: Value | None,
    carried: list[Value],
    kept: list[bool],
    collected: int,
    body: messages.Graph,
) -> tuple[Value, ...]:
    """A loop; without `cond` one whose body never ends it.

    Args:
        carried: what the body is given first.
        kept: which of these the body does not change.

    Raises:
        _Unsteady: the body ends the loop, and there is no `cond`.
    """
    moving = [i for i, is_kept in enumerate(kept) if not is_kept]
    count, first = len(moving), 1 + (cond is not None)
    chains = Chains(g, collected)
    limit = None if trips is None else Value(scalar(g, trips))
    given = [_shaped_like(g, body.input[i]) for i in range(2)]

    def test(state: list[Value]) -> Expr:
        more = None if cond is None else g.expr(state[1])
        if limit is None:
            return Constant(np.array(True)) if more is None else more
        within = g.op("less", state[0], limit)
        return within if more is None else g.op("logical_and", within, more)

    def every(changed: list[Value]) -> list[Value]:
        found = list(carried)
        for i, value in zip(moving, changed, strict=True):
            found[i] = value
        return found

    def step(state: list[Value]) -> list[Value]:
        values = every(state[first : first + count])
        before = Value(known=np.array(True))
        results = g.subgraph(body, [given[0](state[0]), given[1](before), *values])
        if cond is None:
            if not _is_true(results[0]):
                raise _Unsteady
            again = []
        else:
            again = [Value(scalar(g, results[0]))]
        added = chains.added(state[first + count :], results[1 + len(carried) :])
        return [_next(g, state[0]), *again, *[results[1 + i] for i in moving], *added]

    state = [_number(0), *([] if cond is None else [Value(scalar(g, cond))]),
             *[carried[i] for i in moving], *chains.initial]  # fmt: skip
    names = ["i", *([] if cond is None else ["cond"]),
             *[body.input[2 + i].name for i in moving],
             *[each.name for each in body.output[1 + len(carried) :]]]  # fmt: skip
    depth = g.context.depth
    scopes = g.context.builder.depth
    try:
        final = repeated(g, state, test, step, names)
    except _Unsteady:
        g.context.depth = depth
        while g.context.builder.depth > scopes:
            g.context.builder.leave_scope()
        raise
    results = [chains.tensor(i, chain) for i, chain in enumerate(final[first + count :])]
    return (*every(final[first : first + count]), *results)


def _shaped_like(g: Graph, declared: messages.Value) -> Callable[[Value], Value]:
    """A function that gives a tensor of one element the rank that the body declares, 0 or 1."""
    tensor = declared.type.tensor if declared.type is not None else None
    if tensor is None or tensor.shape is None or len(tensor.shape.dims) != 1:
        return lambda value: value

    def vector(value: Value) -> Value:
        if value.known is not None:
            return Value(known=value.known.reshape(1))
        return Value(g.op("reshape", value, (1,)))

    return vector


@onnx("Scan", since=9)
def scan(
    g: Graph,
    *values: Value,
    body: messages.Graph,
    num_scan_inputs: int,
    scan_input_axes: list[int] | None = None,
    scan_input_directions: list[int] | None = None,
    scan_output_axes: list[int] | None = None,
    scan_output_directions: list[int] | None = None,
) -> Any:
    """A function that calls itself last, once for each element of the scanned axes."""
    if not 1 <= num_scan_inputs <= len(values):
        raise Problem(
            f"num_scan_inputs: expected 1 to {len(values)}, got {num_scan_inputs}"
        )
    split = len(values) - num_scan_inputs
    states, scanned = list(values[:split]), list(values[split:])
    collected = len(body.output) - split
    if len(body.input) != len(values) or collected < 0:
        raise Problem(
            f"body: expected {len(values)} inputs and at least {split} outputs, got "
            f"{len(body.input)} and {len(body.output)}"
        )
    axes = _list("scan_input_axes", scan_input_axes, num_scan_inputs)
    directions = _list("scan_input_directions", scan_input_directions, num_scan_inputs)
    out_axes = _list("scan_output_axes", scan_output_axes, collected)
    out_directions = _list("scan_output_directions", scan_output_directions, collected)
    scanned = _of_stated_ranks(g, scanned, body.input[split:], 1)
    length = _length(g, scanned, axes)
    chains = Chains(g, collected)

    def step(state: list[Value]) -> list[Value]:
        i, *rest = state
        places = {0: i, 1: i}
        if any(directions):
            last = g.op("subtract", length, _number(1))
            places[1] = Value(g.op("subtract", last, i))
        elements = [
            Value(g.op("take", x, places[direction], axis))
            for x, axis, direction in zip(scanned, axes, directions, strict=True)
        ]
        results = g.subgraph(body, [*rest[:split], *elements])
        added = chains.added(rest[split:], results[split:])
        return [_next(g, i), *results[:split], *added]

    final = repeated(
        g,
        [_number(0), *states, *chains.initial],
        lambda state: g.op("less", state[0], length),
        step,
        ["i", *[each.name for each in body.input[:split]],
         *[each.name for each in body.output[split:]]],
    )  # fmt: skip
    results = [
        chains.tensor(i, chain, out_axes[i], bool(out_directions[i]))
        for i, chain in enumerate(final[1 + split :])
    ]
    return (*final[1 : 1 + split], *results)


def _of_stated_ranks(
    g: Graph, scanned: list[Value], declared: Sequence[messages.Value], more: int
) -> list[Value]:
    """Tensors of unknown rank with the ranks that the body states of their elements, which have
    fewer axes."""
    found = []
    for x, each in zip(scanned, declared, strict=True):
        tensor = each.type.tensor if each.type is not None else None
        if x.ndim < 0 and tensor is not None and tensor.shape is not None:
            x = with_rank(g, x, len(tensor.shape.dims) + more, each.name)
        found.append(x)
    return found


def _list(name: str, given: list[int] | None, count: int) -> list[int]:
    if given is None:
        return [0] * count
    if len(given) != count or ("directions" in name and not set(given) <= {0, 1}):
        kind = "0 or 1" if "directions" in name else "a number"
        raise Problem(f"{name}: expected {kind} for each of {count}, got {given}")
    return given


def _length(g: Graph, scanned: list[Value], axes: list[int]) -> Value:
    """The length of the scanned axes as a tensor of rank 0; values whose length is known only at
    run time are checked to have the same one."""
    total: Any = None
    for at, (x, axis) in enumerate(zip(scanned, axes, strict=True)):
        if x.ndim < 0:
            if total is None:
                total = _steps(g, x, axis)
            else:
                length = g.shape_in(part(g, part(g, shape_vector(g, x), axis), 0, 1))
                g.context.builder.match_cast(length, ShapeType([total]))
            continue
        if not -x.ndim <= axis < x.ndim:
            raise Problem(f"scan_input_axes: expected one of {x.ndim} axes, got {axis}")
        dims = list(g.named_dims(x, x.ndim) or ())
        dim = dims[axis]
        if total is None:
            total = dim
        elif not prove_equal(total, dim):
            if isinstance(total, IntImm) and isinstance(dim, IntImm):
                raise Problem(
                    f"expected scanned tensors of one length, got {total.value} and {dim.value}"
                )
            dims[axis] = total
            ty = TensorType(dims, x.dtype)
            scanned[at] = Value(g.context.builder.match_cast(g.expr(x), ty))
    found = np.empty((), object)
    found[()] = elements_of(np.array([total, None], object)[:-1])[0]
    return Value(g.expr(g.value(found) or Value(known=found)))


def _steps(g: Graph, x: Value, axis: int) -> Any:
    """The length of an axis of a tensor of unknown rank, as a variable of shapes."""
    (found,) = g.elements(part(g, part(g, shape_vector(g, x), axis), 0, 1), 1, "steps")
    return found


def _first(g: Graph, x: Value, count: Any) -> Value:
    """The first elements of a sequence."""
    dims = None if x.dims is None else [as_expr(count), *x.dims[1:]]
    ty = TensorType.of(dims, x.dtype, ndim=x.ndim)
    return Value(g.run("strided_slice", [x, (0,), (0,), (count,), None], ty, x.dtype or "?"))


def _filled(g: Graph, x: Value, length: Any) -> Value:
    """A sequence with zeros behind it, up to a length."""
    if x.ndim < 0:
        shape = shape_vector(g, x)
        whole = g.expr(Value(known=np.array([length], object)))
        missing = g.op("subtract", whole, part(g, shape, 0, 1))
        rest = g.op("zeros", g.shape_in(Value(g.op("concat", [missing, part(g, shape, 1)], 0))),
                    x.dtype)  # fmt: skip
        return Value(g.op("concat", [x, Value(rest)], 0))
    dims = g.named_dims(x, x.ndim) or ()
    rest = g.op("zeros", (length - dims[0], *dims[1:]), x.dtype)
    return Value(g.op("concat", [x, Value(rest)], 0))


@onnx("Scan", since=8)
def scan_batches(
    g: Graph,
    lengths: Value | None,
    *values: Value,
    body: messages.Graph,
    num_scan_inputs: int,
    directions: list[int] | None = None,
) -> Any:
    """Scan for each element of a batch; zeros follow what is collected of shorter sequences."""
    split = len(values) - num_scan_inputs
    if len(body.input) != len(values):
        raise Problem(f"body: expected {len(values)} inputs, got {len(body.input)}")
    inputs = _of_stated_ranks(g, list(values[:split]), body.input[:split], 1)
    inputs += _of_stated_ranks(g, list(values[split:]), body.input[split:], 2)
    batch = _length(g, inputs, [0] * len(values))
    chains = Chains(g, len(body.output))

    def step(state: list[Value]) -> list[Value]:
        i, *rest = state
        elements = [Value(g.op("take", x, i, 0)) for x in inputs]
        longest: Any = None
        if lengths is not None:
            x = elements[split]
            if x.ndim == 0:
                raise Problem("sequence_lens: expected tensors with an axis to scan")
            longest = _steps(g, x, 0) if x.ndim < 0 else (g.named_dims(x, x.ndim) or ())[0]
            length = Value(g.op("take", lengths, i, 0))
            g.builtin("int_within", [length, 0, longest, "sequence_lens"])
            (count,) = g.elements(length, 1, "sequence_lens")
            elements[split:] = [_first(g, x, count) for x in elements[split:]]
        results = scan(
            g, *elements, body=body, num_scan_inputs=num_scan_inputs,
            scan_input_directions=directions,
        )  # fmt: skip
        if longest is not None:
            results = (*results[:split], *[_filled(g, x, longest) for x in results[split:]])
        return [_next(g, i), *chains.added(rest, results)]

    final = repeated(
        g, [_number(0), *chains.initial], lambda state: g.op("less", state[0], batch), step,
        ["i", *[each.name for each in body.output]],
    )  # fmt: skip
    assert split >= 0
    return tuple([chains.tensor(i, chain) for i, chain in enumerate(final[1:])])


# Sequences


@onnx("SequenceMap", since=17)
def sequence_map(g: Graph, items: Value, *more: Value, body: messages.Graph) -> Any:
    """The results of a graph for each element of a sequence."""
    from .sequences import as_sequence, element_of

    sources = [as_sequence(g, items)]
    for value in more:
        is_sequence = isinstance(kind_of(value), SequenceKind)
        sources.append(as_sequence(g, value) if is_sequence else value)
    length = Value(g.builtin("sequence_length", [sources[0]], TensorType((), "int64")))
    chains = Chains(g, len(body.output))

    def step(state: list[Value]) -> list[Value]:
        i, *rest = state
        elements = [
            element_of(g, x, i) if isinstance(x.compound, SequenceKind) else x for x in sources
        ]
        return [_next(g, i), *chains.added(rest, g.subgraph(body, elements))]

    final = repeated(
        g, [_number(0), *chains.initial], lambda state: g.op("less", state[0], length), step,
        ["i", *[each.name for each in body.output]],
    )  # fmt: skip
    return tuple([
        Value(g.builtin("chain_to_tuple", [chain]), compound=SequenceKind(closed(kind)))
        for chain, kind in zip(final[1:], chains.kinds, strict=True)
    ])  # fmt: skip


