"""KillAfterLastUse: release storages, tensors and other objects after their last use."""

from __future__ import annotations

from typing import Any, Final

from ..analysis.allocations import uses
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..ir.node import class_table
from ..op.rules import VOID
from ._memory_calls import ALLOC_STORAGE, kill_object, kill_storage, kill_tensor
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["KillAfterLastUse"]

_TRIVIAL: Final = class_table(
    dict.fromkeys((Var, DataflowVar, Constant, Tuple, TupleGetItem))
)


class _Inserter:
    """Walks a function backwards.  The first use that it meets is the last use of a variable; the
    variable dies at the current binding of the sequence that defines it.  So each use is visited
    once, however deeply branches are nested."""

    def __init__(self) -> None:
        self._used: set[Var] = set()
        self._bound: dict[Var, tuple[int, tuple[int, int]]] = {}
        """Variable to kill -> depth of its sequence, and its rank and position there."""
        self._dying: list[list[tuple[int, int]]] = []
        """For each enclosing sequence: the variables that die at its current binding."""

    def seq(self, seq: SeqExpr) -> SeqExpr:
        """Insert kills into a sequence and its branches, and drop unused bindings that only
        rearrange values."""
        if any(isinstance(block, DataflowBlock) for block in seq.blocks):
            raise TypeError(
                "KillAfterLastUse: there is a dataflow block; run ToNonDataflow first, since kills "
                "are side effects"
            )
        bindings = [binding for block in seq.blocks for binding in block.bindings]
        depth = len(self._dying)
        for position, binding in enumerate(bindings):
            rank = _rank(binding)
            if rank is not None:
                self._bound[binding.var] = depth, (rank, position)
        new: list[Binding] = []
        self._dying.append([])
        self._use(seq.body)
        for binding in reversed(bindings):
            if _only_rearranges(binding) and binding.var not in self._used:
                continue
            dying: list[tuple[int, int]] = []
            self._dying[depth] = dying
            kept = self._binding(binding)
            for rank, position in sorted(dying, reverse=True):
                kill = _KILLS[rank](bindings[position].var)
                new.append(VarBinding(Var("_", VOID), kill, binding.span))
            new.append(kept)
        self._dying.pop()
        new.reverse()
        return SeqExpr([BindingBlock(new)] if new else [], seq.body, span=seq.span)

    def _use(self, expr: Expr) -> None:
        for var in uses(expr):
            if var not in self._used:
                self._used.add(var)
                if var in self._bound:
                    depth, place = self._bound[var]
                    self._dying[depth].append(place)

    def _binding(self, binding: Binding) -> Binding:
        value = binding.value
        if isinstance(value, If):
            self._use(value.cond)
            branches = self.seq(value.true_branch), self.seq(value.false_branch)
            value = If(value.cond, *branches, ty=value.ty, span=value.span)
        elif isinstance(value, Function):
            value = value.replace(body=self.seq(value.body))
        else:
            self._use(value)
            return binding
        if isinstance(binding, MatchCast):
            return MatchCast(binding.var, value, binding.ty, binding.span)
        return VarBinding(binding.var, value, binding.span)


def _only_rearranges(binding: Binding) -> bool:
    return (
        isinstance(binding, VarBinding)
        and type(binding.value) in _TRIVIAL
        and type(binding.var.ty) is not PrimType
    )


_OF_TAGS: Final = frozenset(
    f"relaxvm.builtin.{name}" for name in ("adt_tag", "match_tag", "tag_is")
)

_TENSOR, _STORAGE, _OBJECT = range(3)
_KILLS: Final = (kill_tensor, kill_storage, kill_object)
"""Constructors of kills, by rank."""


def _rank(binding: Binding) -> int | None:
    """Index in `_KILLS` for the variable of a binding, None if it is not killed.  Kills at the same
    point are in this order."""
    value = binding.value
    if isinstance(value, Call):
        if value.op is ALLOC_STORAGE:
            return _STORAGE
        if isinstance(value.op, ExternFunc) and value.op.global_symbol in _OF_TAGS:
            return None  # a small int or a bool
    elif isinstance(value, (Constant, GlobalVar, ExternFunc, Function)):
        return None
    ty = type(binding.var.ty)
    if ty is TensorType:
        return _TENSOR
    return None if ty in (PrimType, ShapeType, FuncType) else _OBJECT


def KillAfterLastUse() -> Pass:
    """Insert a kill after the last use of each object, in the sequence that bound it: kill_tensor
    for tensors on a storage, kill_storage, and vm.kill_object for other objects.  Parameters,
    constants, functions, shapes, scalars and results are not killed.

    Renamings (CanonicalizeBindings), and unused tuples and elements are removed first.

    Requires: no dataflow blocks (ToNonDataflow).  Why: memory is released as early as possible.

    Raises:
        TypeError: there is a dataflow block.
    """

    @function_pass(name="KillAfterLastUse")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        func = canonicalize_bindings(func, keeps_casts=True)  # each is a register of its own
        return func.replace(body=_Inserter().seq(func.body))

    return run
