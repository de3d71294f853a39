"""Changing a dataflow block binding by binding.

Source: ``tvm.relax.DataflowBlockRewrite`` of apache-tvm 0.27.
"""

from __future__ import annotations

from typing import Any

from ..analysis.structure import remove_all_unused
from ..analysis.variables import free_vars, uses_of_binding
from ..errors import InternalError
from ..ir import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExprMutator,
    ExprVisitor,
    Function,
    IRModule,
    Var,
    VarBinding,
    convert_to_expr,
    infer_type,
)
from ._replacing import replace_functions

__all__ = ["DataflowBlockRewrite"]


class _Replaced(ExprMutator):
    """Replaces a block by another, found by identity."""

    def __init__(self, old: BindingBlock, new: BindingBlock) -> None:
        super().__init__()
        self._old = old
        self._new = new
        self.found = False

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if block is self._old:
            self.found = True
            return self._new
        return super().visit_block(block)


class _Finder(ExprVisitor):
    """Finds the dataflow block that binds one of some variables."""

    def __init__(self, bound: set[Var]) -> None:
        self._bound = bound
        self.found: DataflowBlock | None = None

    def visit_block(self, block: BindingBlock) -> None:
        if isinstance(block, DataflowBlock) and any(b.var in self._bound for b in block.bindings):
            self.found = block
        super().visit_block(block)


class DataflowBlockRewrite:
    """Rewrites a dataflow block of a function, step by step.  The block and the function that it
    was made of stay as they are; `mutated_dfb` and `mutated_root_fn` are those after the last step.

    Args:
        dfb: the block.
        root_fn: the function that it is in.

    Raises:
        ValueError: the function does not have this block.
    """

    def __init__(self, dfb: DataflowBlock, root_fn: Function) -> None:
        self._original = root_fn
        self._block = dfb
        self._func = root_fn
        self._set(dfb)

    def mutated_dfb(self) -> DataflowBlock:
        """The block as it is now."""
        return self._block

    def mutated_root_fn(self) -> Function:
        """The function as it is now."""
        return self._func

    def mutate_irmodule(self, irmodule: IRModule) -> IRModule:
        """Return a module with the function as it is now in place of the original one.

        Raises:
            ValueError: the module does not have that function.
        """
        for var, func in irmodule.items():
            if func is self._original:
                return replace_functions(irmodule, {var: self._func})
        raise ValueError(
            "mutate_irmodule: the module does not have the function that the block was taken from"
        )

    def add(self, expr: Any, name: str | None = None, is_dfvar: bool = False) -> None:
        """Add a binding to the block.

        Args:
            expr: its value.
            name: of its variable, by default ``tmp``, ``tmp_1`` and so on.
            is_dfvar: whether its variable is seen inside of the block alone.
        """
        value = infer_type(convert_to_expr(expr))
        if name is None:
            taken = {binding.var.name for binding in self._block.bindings}
            numbered = (f"tmp_{k}" if k else "tmp" for k in range(len(taken) + 1))
            name = next(each for each in numbered if each not in taken)
        var = (DataflowVar if is_dfvar else Var)(name, value.ty)
        self.add_binding(VarBinding(var, value))

    def add_binding(self, binding: Binding) -> None:
        """Add a binding to the block: after those that it uses, before all others, as in TVM."""
        used = set(uses_of_binding(binding))
        bindings = list(self._block.bindings)
        place = max((k + 1 for k, b in enumerate(bindings) if b.var in used), default=0)
        bindings.insert(place, binding)
        self._set(DataflowBlock(bindings, self._block.span))

    def remove_unused(self, var: Var, allow_undef: bool = False) -> None:
        """Remove the binding of a variable that nothing uses.

        Args:
            allow_undef: do nothing if the block does not bind the variable.

        Raises:
            InternalError: the block does not bind the variable, or something uses it.
        """
        kept = [binding for binding in self._block.bindings if binding.var is not var]
        user = next((b for b in kept if var in uses_of_binding(b)), None)
        if user is not None:
            raise InternalError(f"remove_unused: {var.name} is used by {user.var.name}")
        if len(kept) == len(self._block.bindings):
            if allow_undef:
                return
            raise InternalError(f"remove_unused: the block does not bind {var.name}")
        if var in free_vars(self._with_block(DataflowBlock(kept, self._block.span))):
            raise InternalError(f"remove_unused: {var.name} is used outside of the block")
        self._set(DataflowBlock(kept, self._block.span))

    def remove_all_unused(self) -> None:
        """Remove all bindings of the function whose values nothing uses and that have no effects,
        also in its other blocks."""
        self._update(remove_all_unused(self._func))

    def replace_all_uses(self, old_var: Var, new_var: Var) -> None:
        """Use another variable wherever a variable is used; the binding of that one stays."""
        renaming = ExprMutator()
        renaming.var_map[old_var] = new_var
        self._update(renaming.visit(self._func))

    def _update(self, func: Function) -> None:
        """Take a changed function; the block is the one that binds what it bound before."""
        bound = {binding.var for binding in self._block.bindings}
        finder = _Finder(bound)
        finder.visit(func)
        self._func = func
        self._block = finder.found or DataflowBlock()

    def _set(self, block: DataflowBlock) -> None:
        self._func = self._with_block(block)
        self._block = block

    def _with_block(self, block: DataflowBlock) -> Function:
        replaced = _Replaced(self._block, block)
        func: Function = replaced.visit(self._func)
        if not replaced.found:
            raise ValueError("DataflowBlockRewrite: the function does not have this block")
        return func
