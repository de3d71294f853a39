"""Conditionals and loops of any frontend.

A loop becomes a local function that calls itself last, which takes one frame however often it runs.
Its parameters are what the body changes; what it only reads is captured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ...ir import (
    ANY,
    Call,
    Expr,
    Function,
    FuncType,
    If,
    SeqExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ...ir.arith import prove_equal
from ...ir.infer import infer_type
from .emitter import Emitter, Problem, identifier
from .values import (
    Kind,
    Opaque,
    OptionalKind,
    SequenceKind,
    TensorKind,
    Value,
    closed,
    elements_of,
    joined,
    kind_of,
)

__all__ = ["Chains", "Step", "decided", "end_tuple", "repeated", "same_kind", "scalar", "visible"]

_MOST_TRIES: Final = 100
"""Of the types of what a loop changes, before it is given up; each one knows less than the last."""

Step: TypeAlias = Callable[[list[Value]], list[Value]]


def end_tuple(g: Emitter, values: Sequence[Value]) -> SeqExpr:
    """End a scope whose value is a tuple."""
    return g.context.builder.end_scope(Tuple([g.expr(value) for value in values]))


def scalar(g: Emitter, value: Value) -> Expr:
    """A tensor of one element as one of rank 0."""
    return g.expr(value) if value.ndim == 0 else g.op("reshape", value, ())


def decided(
    g: Emitter,
    value: Value,
    types: Sequence[TensorType],
    convert: Callable[[], list[Value | None]],
) -> list[Value | None]:
    """Branches of the program for the types that a tensor may have: its ranks, or the lengths of a
    vector.

    Args:
        g: the graph.
        value: the tensor.
        types: what it may be; the last one for everything else, which is an error of the run.
        convert: makes the results for the type that the value has then; it may leave some out, the
            same ones for all types.
    """
    first, *others = types
    if not others:
        g.context.bind(value, g.context.builder.match_cast(g.expr(value), first))
        return convert()
    shape = g.op("shape_to_tensor", g.op("shape_of", value))
    lengths = shape if first.dims else g.op("shape_to_tensor", g.op("shape_of", shape))
    (want,) = elements_of(np.array(first.dims or [first.ndim], object))
    test = g.op("equal", g.op("take", lengths, np.array(0), 0), np.array(want))
    hint, branches, results = g.hint, [], []
    for rest in ([first], others):
        with g.context.scope():
            g.hint = hint
            found = decided(g, value, rest, convert)
            results.append([each and kind_of(each) for each in found])
            branches.append(end_tuple(g, [each for each in found if each is not None]))
    g.hint = hint
    pair = g.emit(If(test, *branches))
    kinds = [a and b and closed(joined(a, b), visible(g)) for a, b in zip(*results, strict=True)]
    fields = itertools.count()
    return [
        None if kind is None else g.typed(g.emit(TupleGetItem(pair, next(fields))), kind)
        for kind in kinds
    ]


def visible(g: Emitter) -> list[Var]:
    """The symbolic variables that are visible everywhere: those of the inputs."""
    return list(g.context.symbols.values())




def repeated(
    g: Emitter,
    state: Sequence[Value],
    test: Callable[[list[Value]], Expr],
    step: Step,
    names: Sequence[str],
) -> list[Value]:
    """What a loop makes of a state.

    Args:
        state: values that change.
        test: returns the condition for another step, a bool tensor of rank 0.
        step: returns the next state.
        names: of the state, for the parameters of the function.
    """
    kinds = [closed(kind_of(value), visible(g)) for value in state]
    hint = g.hint
    for _ in range(_MOST_TRIES):
        g.hint = hint
        found = _function(g, kinds, test, step, names)
        if isinstance(found, Var):
            break
        kinds = found
    else:
        raise Problem("the types of the values that the loop changes are not found")
    g.hint = hint
    call = g.emit(Call(found, [g.expr(value) for value in state]))
    return [
        g.typed(g.emit(TupleGetItem(call, i), name), kind, name)
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    ]


def _function(
    g: Emitter,
    kinds: list[Kind],
    test: Callable[[list[Value]], Expr],
    step: Step,
    names: Sequence[str],
) -> Var | list[Kind]:
    """The function of a loop as a variable; or, where a step does not keep the kinds of the state,
    those of which both are, and nothing is bound."""
    builder, context = g.context.builder, g.context
    name = f"{identifier(g.hint)}_loop"
    params = [Var(identifier(each), ANY) for each in names]
    ty = FuncType([ANY] * len(params), TupleType([ANY] * len(params)))
    effects = context.effects
    var = Var(builder.get_unique_name(name), ty)
    with context.scope(params):
        inner = [g.typed(p, k, n) for p, k, n in zip(params, kinds, names, strict=True)]
        condition = test(inner)
        with context.scope():
            results = step(inner)
            wider = [
                closed(joined(kind, kind_of(value)), visible(g))
                for kind, value in zip(kinds, results, strict=True)
            ]
            if wider != kinds and not all(map(same_kind, wider, kinds)):
                builder.leave_scope()
                builder.leave_scope()
                return wider
            again = Call(var, [g.expr(value) for value in results])
            then = builder.end_scope(g.emit(again, name))
        with context.scope():
            done = builder.end_scope(Tuple(params))
        body = builder.end_scope(g.emit(If(condition, then, done), "result"))
    is_pure = context.effects == effects
    var.ty = FuncType(ty.params, ty.ret, is_pure)
    function = Function(params, body, ty.ret, is_pure)
    infer_type(function)
    builder.emit_normalized(VarBinding(var, function, g.span))
    return var


def same_kind(a: Kind, b: Kind) -> bool:
    """Whether two kinds are equal, dimensions by what they mean."""
    if isinstance(a, TensorKind) and isinstance(b, TensorKind):
        if a.dims is None or b.dims is None:
            return a == b
        return a[:2] == b[:2] and all(
            x is y or (x is not None and y is not None and prove_equal(x, y))
            for x, y in zip(a.dims, b.dims, strict=True)
        )
    for kind in (SequenceKind, OptionalKind):
        if isinstance(a, kind) and isinstance(b, kind):
            return same_kind(a.element, b.element)
    return type(a) is type(b) and a == b  # named tuples of different classes compare equal


class Chains:
    """The results that a loop collects: for each a chain, part of its state; see
    `relaxvm.builtins.sequences`.

    Args:
        count: how many there are.
    """

    def __init__(self, g: Emitter, count: int) -> None:
        self._g = g
        self.kinds: list[Kind] = [Opaque()] * count
        self.initial = [
            Value(g.none(), compound=Opaque()) for _ in range(count)
        ]

    def added(self, chains: Sequence[Value], values: Sequence[Value]) -> list[Value]:
        """The chains with the results of a step."""
        g = self._g
        self.kinds = [closed(kind_of(value), visible(g)) for value in values]
        return [
            Value(Tuple([g.expr(chain), g.expr(value)]), compound=Opaque())
            for chain, value in zip(chains, values, strict=True)
        ]

    def tensor(self, at: int, chain: Value, axis: int = 0, is_reversed: bool = False) -> Value:
        """The results as one tensor, along a new axis."""
        g, kind = self._g, self.kinds[at]
        if not isinstance(kind, TensorKind):
            raise Problem("expected results of steps that are tensors")
        if kind.dtype is None:
            raise Problem("the data type of the results of steps is not known")
        known = [None] * max(kind.ndim, 0) if kind.dims is None else kind.dims
        dims = [0 if dim is None else dim for dim in known]
        expr = g.builtin(
            "chain_to_tensor", [chain, axis, is_reversed, kind.dtype, dims]
        )
        if kind.ndim < 0:
            return g.typed(expr, TensorKind(kind.dtype))
        rank = kind.ndim + 1
        if not -rank <= axis < rank:
            raise Problem(f"expected one of {rank} axes for the results of steps, got {axis}")
        found: Any = None
        if kind.dims is not None:
            found = list(kind.dims)
            found.insert(axis % rank, None)
            found = tuple(found)
        return g.typed(expr, TensorKind(kind.dtype, rank, found))
