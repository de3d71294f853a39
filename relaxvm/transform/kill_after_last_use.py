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
    Expr,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    PrimType,
    SeqExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..op import memory, vm
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["KillAfterLastUse"]

_ALLOC_STORAGE: Final = Op.get("relax.memory.alloc_storage")
_KILLS: Final = (
    Op.get("relax.memory.kill_storage"),
    Op.get("relax.memory.kill_tensor"),
    Op.get("relax.vm.kill_object"),
)
_TRIVIAL: Final = (Var, DataflowVar, Constant, Tuple, TupleGetItem)


def _insert_kills(seq: SeqExpr) -> SeqExpr:
    """The sequence with kills, and its branches likewise."""
    bindings = _without_dead([b for block in seq.blocks for b in block.bindings], seq.body)
    last: dict[Var, int] = {}
    used = [uses(b.value) for b in bindings]
    for position, found in enumerate(used):
        for var in found:
            last[var] = position
    for var in uses(seq.body):
        last.pop(var, None)
    killable = {b.var: rank for b in bindings if (rank := _rank(b)) is not None}
    dying: dict[int, list[Var]] = {}
    for var in killable:
        if var in last:
            dying.setdefault(last[var], []).append(var)
    new: list[Binding] = []
    for position, binding in enumerate(bindings):
        new.append(_with_branches(binding))
        for var in sorted(dying.get(position, ()), key=killable.__getitem__):
            kill = _kill(var, killable[var])
            new.append(VarBinding(Var("_", kill.ty), kill, binding.span))
    return SeqExpr([BindingBlock(new)] if new else [], seq.body, span=seq.span)


def _without_dead(bindings: list[Binding], body: Expr) -> list[Binding]:
    """Without bindings that only rearrange values and that nothing uses."""
    live = dict(uses(body))
    kept: list[Binding] = []
    for binding in reversed(bindings):
        if (
            type(binding) is VarBinding
            and isinstance(binding.value, _TRIVIAL)
            and binding.var not in live
            and type(binding.var.ty) is not PrimType
        ):
            continue
        kept.append(binding)
        live.update(uses(binding.value))
    kept.reverse()
    return kept


_TENSOR, _STORAGE, _OBJECT = range(3)


def _rank(binding: Binding) -> int | None:
    """How a variable is killed; None if it is not.  Also the order of kills at one place."""
    value = binding.value
    if type(value) is Call:
        if value.op is _ALLOC_STORAGE:
            return _STORAGE
        if value.op in _KILLS:
            return None
    elif isinstance(value, (Constant, GlobalVar, ExternFunc, Function)):
        return None
    ty = type(binding.var.ty)
    if ty is TensorType:
        return _TENSOR
    return None if ty in (PrimType, ShapeType, FuncType) else _OBJECT


def _kill(var: Var, rank: int) -> Any:
    if rank == _TENSOR:
        return memory.kill_tensor(var)
    if rank == _STORAGE:
        return memory.kill_storage(var)
    return vm.kill_object(var)


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
