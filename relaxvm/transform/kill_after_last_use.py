"""KillAfterLastUse: storages, tensors and other objects are let go where they are last used."""

from __future__ import annotations

from typing import Any, Final

from ..analysis.allocations import uses
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowVar,
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


def _insert_kills(seq: SeqExpr) -> SeqExpr:
    """The sequence with kills, and its branches likewise; without bindings that only rearrange
    values and that nothing uses."""
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    ranks = {b.var: (rank, n) for n, b in enumerate(bindings) if (rank := _rank(b)) is not None}
    used = dict(uses(seq.body))
    new: list[Binding] = []
    for binding in reversed(bindings):
        if _only_rearranges(binding) and binding.var not in used:
            continue
        found = uses(binding.value)
        dying = [ranks[var] for var in found if var not in used and var in ranks]
        for rank, position in sorted(dying, reverse=True):
            kill = _KILLS[rank](bindings[position].var)
            new.append(VarBinding(Var("_", VOID), kill, binding.span))
        used.update(found)
        new.append(_with_branches(binding))
    new.reverse()
    return SeqExpr([BindingBlock(new)] if new else [], seq.body, span=seq.span)


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


def _with_branches(binding: Binding) -> Binding:
    value = binding.value
    if type(value) is If:
        value = If(
            value.cond,
            _insert_kills(value.true_branch),
            _insert_kills(value.false_branch),
            value.ty,
            value.span,
        )
    elif type(value) is Function:
        value = value.replace(body=_insert_kills(value.body))
    else:
        return binding
    if type(binding) is MatchCast:
        return MatchCast(binding.var, value, binding.ty, binding.span)
    return VarBinding(binding.var, value, binding.span)


def KillAfterLastUse() -> Pass:
    """After the last use of an object in the sequence that bound it comes its kill: kill_tensor for
    tensors on a storage, kill_storage, vm.kill_object for the rest.  Parameters, constants,
    functions, shapes, scalars and results are not killed.

    Renamings are removed first (CanonicalizeBindings), and unused tuples and elements.  Why: memory
    is given back as early as possible.
    """

    @function_pass(name="KillAfterLastUse")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        func = canonicalize_bindings(func)
        return func.replace(body=_insert_kills(func.body))

    return run
