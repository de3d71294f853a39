"""KillAfterLastUse: storages, tensors and other objects are let go where they are last used."""

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
from ..op.rules import VOID
from ._memory_calls import ALLOC_STORAGE, kill_object, kill_storage, kill_tensor
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["KillAfterLastUse"]

_TRIVIAL: Final = frozenset({Var, DataflowVar, Constant, Tuple, TupleGetItem})


class _Inserter:
    """Goes through a function from its end.  The first use that is met on the way is the last one,
    and belongs to the binding, of the sequence that bound the variable, that is being gone through:
    so a use is looked at once, however deeply branches are nested."""

    def __init__(self) -> None:
        self._used: set[Var] = set()
        self._bound: dict[Var, tuple[int, tuple[int, int]]] = {}
        """Variable that is killed -> depth of its sequence, and its rank and position there."""
        self._dying: list[list[tuple[int, int]]] = []
        """For each sequence around: what dies at the binding that is being gone through."""

    def seq(self, seq: SeqExpr) -> SeqExpr:
        """The sequence with kills, and its branches likewise; without bindings that only rearrange
        values and that nothing uses."""
        if any(type(block) is DataflowBlock for block in seq.blocks):
            raise TypeError(
                "KillAfterLastUse: there is a dataflow block; run ToNonDataflow first, since kills "
                "are effects"
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
        if type(value) is If:
            self._use(value.cond)
            branches = self.seq(value.true_branch), self.seq(value.false_branch)
            value = If(value.cond, *branches, value.ty, value.span)
        elif type(value) is Function:
            value = value.replace(body=self.seq(value.body))
        else:
            self._use(value)
            return binding
        if type(binding) is MatchCast:
            return MatchCast(binding.var, value, binding.ty, binding.span)
        return VarBinding(binding.var, value, binding.span)


def _only_rearranges(binding: Binding) -> bool:
    return (
        type(binding) is VarBinding
        and type(binding.value) in _TRIVIAL
        and type(binding.var.ty) is not PrimType
    )


_TENSOR, _STORAGE, _OBJECT = range(3)
_KILLS: Final = (kill_tensor, kill_storage, kill_object)
"""By rank."""


def _rank(binding: Binding) -> int | None:
    """How a variable is killed; None if it is not.  Also the order of kills at one place."""
    value = binding.value
    if type(value) is Call:
        if value.op is ALLOC_STORAGE:
            return _STORAGE
    elif isinstance(value, (Constant, GlobalVar, ExternFunc, Function)):
        return None
    ty = type(binding.var.ty)
    if ty is TensorType:
        return _TENSOR
    return None if ty in (PrimType, ShapeType, FuncType) else _OBJECT


def KillAfterLastUse() -> Pass:
    """After the last use of an object in the sequence that bound it comes its kill: kill_tensor for
    tensors on a storage, kill_storage, vm.kill_object for the rest.  Parameters, constants,
    functions, shapes, scalars and results are not killed.

    Renamings are removed first (CanonicalizeBindings), and unused tuples and elements.

    Requires: no dataflow blocks (ToNonDataflow).  Why: memory is given back as early as possible.

    Raises:
        TypeError: there is a dataflow block.
    """

    @function_pass(name="KillAfterLastUse")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        func = canonicalize_bindings(func)
        return func.replace(body=_Inserter().seq(func.body))

    return run
