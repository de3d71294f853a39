"""CanonicalizeBindings: remove bindings that only rename a value."""

from __future__ import annotations

from typing import Any

from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_base_of,
    structural_equal,
)
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["CanonicalizeBindings", "canonicalize_bindings"]


class _Canonicalizer(Renamer):
    """Replaces variables bound to variables, elements of known tuples, and redundant casts.  In a
    dataflow block, an output that is bound to a `DataflowVar` replaces it."""

    def __init__(self) -> None:
        super().__init__()
        self._tuples: dict[Var, tuple[Expr, ...]] = {}
        self._items: dict[tuple[Var, int], Var] = {}

    def visit_tuple_getitem(self, expr: TupleGetItem) -> Expr:
        value = self.visit(expr.tuple_value)
        known = self._tuples.get(value)
        if known is not None:
            return known[expr.index]
        item = self._items.get((value, expr.index))
        if item is not None:
            return item
        return super().visit_tuple_getitem(expr)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return super().visit_block(block)
        tuples, items = dict(self._tuples), dict(self._items)
        new = super().visit_block(_promote_outputs(block))
        # Tuples of variables of the block are not valid after it.
        for var, fields in self._tuples.items():
            if var not in tuples and not any(isinstance(f, DataflowVar) for f in fields):
                tuples[var] = fields
        for key, item in self._items.items():
            if key not in items and not isinstance(item, DataflowVar):
                items[key] = item
        self._tuples, self._items = tuples, items
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        assert isinstance(new, Binding)
        var, value = new.var, new.value
        if not isinstance(new, VarBinding):
            assert isinstance(new, MatchCast)
            if isinstance(value, Var) and is_base_of(new.ty, value.ty):
                return self._replace(binding, new, value)
            return new
        if isinstance(value, Call):
            return new
        if isinstance(value, (Var, Constant)):
            return self._replace(binding, new, value)
        if isinstance(value, Tuple):
            self._tuples[var] = value.fields
        elif isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            self._items.setdefault((value.tuple_value, value.index), var)
        return new

    def _replace(self, binding: Binding, new: Binding, value: Expr) -> Binding | list[Binding]:
        """Drop ``var = value`` and use `value` from here on, if it is visible wherever `var` is."""
        if isinstance(value, DataflowVar) and not isinstance(binding.var, DataflowVar):
            return new
        if not is_base_of(binding.var.ty, value.ty):
            return new
        self.rename(binding.var, value)
        self.rename(new.var, value)
        return []

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        # Facts from a branch or a local function do not hold outside of it.
        tuples, items = dict(self._tuples), dict(self._items)
        new = super().visit_seq(seq)
        self._tuples, self._items = tuples, items
        return new


def _promote_outputs(block: DataflowBlock) -> DataflowBlock:
    """If an output only renames a DataflowVar of the block and has the same type, bind the value to
    the output directly and remove the renaming."""
    outputs: dict[Var, Var] = {}
    for binding in block.bindings:
        if (
            isinstance(binding, VarBinding)
            and not isinstance(binding.var, DataflowVar)
            and isinstance(binding.value, DataflowVar)
            and binding.value not in outputs
            and structural_equal(binding.var.ty, binding.value.ty)
        ):
            outputs[binding.value] = binding.var
    defined = {b.var for b in block.bindings}
    outputs = {inner: outer for inner, outer in outputs.items() if inner in defined}
    if not outputs:
        return block
    rename = _Rename(outputs)
    kept = [b for b in block.bindings if outputs.get(b.value) is not b.var]  # type: ignore[call-overload]
    new = rename.visit_block(DataflowBlock(kept, block.span))
    assert isinstance(new, DataflowBlock)
    return new


class _Rename(ExprMutator):
    def __init__(self, names: dict[Var, Var]) -> None:
        super().__init__()
        self._names = names
        self.var_map.update(names)

    def visit_var_def(self, var: Var) -> Var:
        return self._names.get(var, var)


def canonicalize_bindings(func: Function) -> Function:
    """See `CanonicalizeBindings`."""
    new = _Canonicalizer().visit(func)
    assert isinstance(new, Function)
    return new


def CanonicalizeBindings() -> Pass:
    """Replace variables that only rename a variable or a constant, elements of known tuples,
    elements that are taken twice, and casts to a type that is known already.

    Why: passes that count uses see each value under one name.
    """

    @function_pass(name="CanonicalizeBindings")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return canonicalize_bindings(func)

    return run
