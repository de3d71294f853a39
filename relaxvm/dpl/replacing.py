"""Replacing the values of several bindings of a dataflow block."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.variables import uses_of_binding
from ..core.checkpoints import checkpoint
from ..ir import (
    Binding,
    BlockBuilder,
    DataflowBlock,
    Expr,
    Tuple,
    Var,
    VarBinding,
    is_base_of,
)
from ..ir.node import KINDS

__all__ = ["DependenceError", "bindings_for", "with_new_values"]


class DependenceError(ValueError):
    """A new value depends on the variable that it is for."""


def with_new_values(block: DataflowBlock, changes: Mapping[Var, Expr]) -> DataflowBlock:
    """Return a block in which variables have new values.  These may use any variable of the block:
    bindings are moved, so that each is after what it uses.

    Raises:
        DependenceError: a new value depends on its own variable.
        ValueError: a new value is of another type.
    """
    bindings: dict[Var, Binding] = {}
    for binding in block.bindings:
        value = changes.get(binding.var)
        bindings[binding.var] = (
            binding if value is None else VarBinding(binding.var, value, binding.span)
        )
    builder = BlockBuilder()
    builder.begin_scope()
    done: set[Var] = set()
    open_: dict[Var, None] = {}
    with builder.dataflow():
        for start in bindings:
            work = [start]
            while work:
                checkpoint()
                var = work[-1]
                if var in done:
                    work.pop()
                    continue
                binding = bindings[var]
                missing = [u for u in uses_of_binding(binding) if u in bindings and u not in done]
                if missing:
                    if any(u in open_ for u in missing) or var in missing:
                        raise DependenceError(f"the new value of {var} depends on {var} itself")
                    open_[var] = None
                    work += reversed(missing)
                    continue
                work.pop()
                open_.pop(var, None)
                done.add(var)
                if var in changes:
                    value = builder.normalize(binding.value)
                    if not is_base_of(var.ty, value.ty):
                        raise ValueError(
                            f"{var} is of type {var.ty}, and its new value of type {value.ty}"
                        )
                    builder.emit_normalized(VarBinding(var, value, binding.span))
                else:
                    builder.emit_normalized(binding)
    (new,) = builder.end_scope(Tuple(())).blocks
    assert isinstance(new, DataflowBlock)
    return new


def bindings_for(value: Expr, binding: Binding, is_dataflow: bool) -> list[Binding]:
    """Return bindings that compute a value, which may be nested, for the variable of a binding.
    The last one binds this variable, or one of its name if the value is of another type."""
    builder = BlockBuilder()
    builder.begin_scope()
    if is_dataflow:
        with builder.dataflow():
            _emit(builder, value, binding)
    else:
        _emit(builder, value, binding)
    seq = builder.end_scope(Tuple(()))
    return [b for block in seq.blocks for b in block.bindings]


def _emit(builder: BlockBuilder, value: Expr, binding: Binding) -> None:
    normalized = builder.normalize(value)
    var = binding.var
    if not is_base_of(var.ty, normalized.ty):
        var = KINDS[type(var)](var.name, normalized.ty, var.span)
    builder.emit_normalized(VarBinding(var, normalized, binding.span))
