"""CanonicalizeBindings: remove bindings that only rename a value."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..ir import (
    BaseCheckResult,
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    IntImm,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    bind_type,
    is_base_of,
    structural_equal,
    type_free_vars,
)
from ..ir.parts import MOST_DIM_PARTS, parts_of
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["CanonicalizeBindings", "canonicalize_bindings"]


class _Canonicalizer(Renamer):
    """Replaces variables bound to variables and constants, elements of known tuples, and redundant
    casts.  In a dataflow block, an output that is bound to a `DataflowVar` replaces it."""

    def __init__(self, known: Iterable[Var], keeps_casts: bool) -> None:
        super().__init__()
        self._keeps_casts = keeps_casts
        self._tuples: dict[Var, tuple[Expr, ...]] = {}
        self._item_of: dict[Var, tuple[Var, int]] = {}
        self.has_dataflow = False
        """Whether there was a dataflow block."""
        self._named: set[Var] = set()
        """Outputs that have replaced a variable: their uses keep them, also for a constant."""
        self._symbols: dict[Var, Expr | None] = dict.fromkeys(known)
        """Symbolic variables in scope, and what a cast has found them to be; else None."""

    def visit_tuple_getitem(self, expr: TupleGetItem) -> Expr:
        value = self.visit(expr.tuple_value)
        known = self._tuples.get(value)
        if known is not None:
            return known[expr.index]
        return super().visit_tuple_getitem(expr)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return super().visit_block(block)
        self.has_dataflow = True
        tuples = dict(self._tuples)
        promoted, outputs = _promote_outputs(block)
        self._named.update(outputs)
        new = super().visit_block(promoted)
        # Tuples of variables of the block are not valid after it.
        for var, fields in self._tuples.items():
            if var not in tuples and not any(isinstance(f, DataflowVar) for f in fields):
                tuples[var] = fields
        self._tuples = tuples
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = self._constant_item(binding) or super().visit_binding(binding)
        assert isinstance(new, Binding)
        var, value = new.var, new.value
        if not isinstance(new, VarBinding):
            assert isinstance(binding, MatchCast)
            assert isinstance(new, MatchCast)
            return self._cast(binding, new)
        if type(var.ty) in (PrimType, ShapeType):
            self._symbols.setdefault(var, None)
        if isinstance(value, Call):
            return new
        if isinstance(value, Var):
            return self._replace(binding, new, value)
        if isinstance(value, Constant):
            if var not in self._named and is_base_of(binding.var.ty, value.ty):
                self.rename(binding.var, value)
                self.rename(var, value)
            return new
        if isinstance(value, Tuple):
            whole = self._taken_apart(value)
            if whole is not None:
                return self._replace(binding, new, whole)
            self._tuples[var] = value.fields
        elif isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Var):
            self._item_of[var] = (value.tuple_value, value.index)
        return new

    def _constant_item(self, binding: Binding) -> Binding | None:
        """Keep ``x = t[i]`` for an element that is a constant, which replaces x."""
        value = binding.value
        if not isinstance(value, TupleGetItem) or isinstance(binding, MatchCast):
            return None
        whole = self.visit(value.tuple_value)
        known = self._tuples.get(whole)
        if known is None or not isinstance(known[value.index], Constant):
            return None
        self.rename(binding.var, known[value.index])
        if whole is value.tuple_value:
            return binding
        return VarBinding(binding.var, TupleGetItem(whole, value.index, value.span), binding.span)

    def _taken_apart(self, value: Tuple) -> Var | None:
        """Return the variable of which a tuple has all elements in their order."""
        items = [self._item_of.get(field) for field in value.fields]  # type: ignore[call-overload]
        if not items or items[0] is None:
            return None
        whole: Var = items[0][0]
        if items != [(whole, index) for index in range(len(items))]:
            return None
        ty = whole.ty
        return whole if type(ty) is TupleType and len(ty.fields) == len(items) else None

    def _cast(self, binding: MatchCast, new: MatchCast) -> Binding | list[Binding]:
        """Symbolic variables that a cast defines are replaced by the dimensions that they are,
        unless these are long.  A cast to a type that is then known is dropped."""
        if self._keeps_casts:
            return new
        value = new.value
        found: dict[Var, Expr] = {}
        bind_type(binding.ty, value.ty, found)
        for symbol, dim in found.items():
            before = self._symbols.get(symbol)
            if type(before) is IntImm and type(dim) is IntImm and before.value != dim.value:
                raise ValueError(
                    f"MatchCast statements must be consistent: {symbol.name} is {before} by an "
                    f"earlier one, and {dim} by {new}"
                )
        dims = {v: v for v in type_free_vars(new.ty) if v in self._symbols}
        result = bind_type(new.ty, value.ty, dims)  # type: ignore[arg-type]
        fresh = {v: dim for v, dim in dims.items() if v not in self._symbols}
        is_long = any(parts_of(dim) > MOST_DIM_PARTS for dim in fresh.values())
        if result is not BaseCheckResult.PASS or not isinstance(value, Var) or is_long:
            # All of them are defined here, also those of which nothing is known.
            for symbol in type_free_vars(new.ty):
                self._symbols.setdefault(symbol, None)
            if isinstance(value, (Var, Constant)) and is_base_of(new.ty, value.ty):
                return self._replace(binding, VarBinding(new.var, value, new.span), value)
            return new
        for symbol, dim in fresh.items():
            self._symbols[symbol] = dim
            self.rename(symbol, dim)
        ty = self.visit_type(new.ty)
        if is_base_of(ty, value.ty):
            return self._replace(binding, new, value)
        return new

    def _replace(self, binding: Binding, new: Binding, value: Expr) -> Binding | list[Binding]:
        """Drop ``var = value`` and use `value` from here on, if it is visible wherever `var` is."""
        if isinstance(value, DataflowVar) and not isinstance(binding.var, DataflowVar):
            return new
        if not is_base_of(self.visit_type(binding.var.ty), value.ty):
            return new
        self.rename(binding.var, value)
        self.rename(new.var, value)
        return []

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        # Facts from a branch or a local function do not hold outside of it.
        tuples = dict(self._tuples)
        symbols, in_types = dict(self._symbols), dict(self._in_types)
        new = super().visit_seq(seq)
        self._tuples = tuples
        self._symbols, self._in_types = symbols, in_types
        return new


def _promote_outputs(block: DataflowBlock) -> tuple[DataflowBlock, Collection[Var]]:
    """If an output only renames a DataflowVar of the block and has the same type, bind the value to
    the output directly and remove the renaming.  Return the block and such outputs."""
    defined = {b.var for b in block.bindings}
    source: dict[Var, Var] = {}
    outputs: dict[Var, Var] = {}
    for binding in block.bindings:
        var, value = binding.var, binding.value
        if not isinstance(value, Var) or not structural_equal(var.ty, value.ty):
            continue
        origin = source[var] = source.get(value, value)
        if (
            isinstance(origin, DataflowVar)
            and not isinstance(var, DataflowVar)
            and origin in defined
            and origin not in outputs
            and structural_equal(var.ty, origin.ty)
        ):
            outputs[origin] = var
    if not outputs:
        return block, ()
    rename = _Rename(outputs)
    promoted = set(outputs.values())
    kept = [b for b in block.bindings if b.var not in promoted]
    new = rename.visit_block(DataflowBlock(kept, block.span))
    assert isinstance(new, DataflowBlock)
    return new, promoted


class _UsedOutside(ExprVisitor):
    """Finds the variables of dataflow blocks that are used outside of their block."""

    def __init__(self) -> None:
        self._block: dict[Var, None] = {}
        self.inside: dict[Var, None] = {}
        self.outside: set[Var] = set()

    def visit_block(self, block: BindingBlock) -> None:
        before = self._block
        is_dataflow = isinstance(block, DataflowBlock)
        self._block = {b.var: None for b in block.bindings} if is_dataflow else {}
        self.inside.update(self._block)
        super().visit_block(block)
        self._block = before

    def visit_function(self, func: Function) -> None:
        # A function in a block may outlive it.
        before, self._block = self._block, {}
        super().visit_function(func)
        self._block = before

    def visit_var(self, var: Var) -> None:
        if var not in self._block:
            self.outside.add(var)


class _Hide(Renamer):
    """Makes variables DataflowVars."""

    def __init__(self, hidden: Collection[Var]) -> None:
        super().__init__()
        self._hidden = hidden

    def visit_var_def(self, var: Var) -> Var:
        if var not in self._hidden:
            return super().visit_var_def(var)
        return DataflowVar(var.name, self.visit_type(var.ty), var.span)


def _hide_unused_outputs(func: Function, before: Function) -> Function:
    """Make what is only used in its dataflow block a DataflowVar, as long as that was so in the
    function before, too.  Scalars and shapes are left out: types may mention them anywhere."""
    uses = _UsedOutside()
    uses.visit(before)
    if func is not before:
        uses.visit(func)
    hidden = {
        var
        for var in uses.inside
        if not isinstance(var, DataflowVar)
        and var not in uses.outside
        and type(var.ty) not in (PrimType, ShapeType)
    }
    new: Any = _Hide(hidden).visit(func) if hidden else func
    assert isinstance(new, Function)
    return new


class _Rename(ExprMutator):
    def __init__(self, names: dict[Var, Var]) -> None:
        super().__init__()
        self._names = names
        self.var_map.update(names)

    def visit_var_def(self, var: Var) -> Var:
        return self._names.get(var, var)


def canonicalize_bindings(func: Function, keeps_casts: bool = False) -> Function:
    """See `CanonicalizeBindings`; casts may be kept as they are."""
    known = [v for param in func.params for v in (param, *type_free_vars(param.ty))]
    canonicalizer = _Canonicalizer(known, keeps_casts)
    new = canonicalizer.visit(func)
    assert isinstance(new, Function)
    return _hide_unused_outputs(new, func) if canonicalizer.has_dataflow else new


def CanonicalizeBindings() -> Pass:
    """Replace variables that only rename a variable or a constant, elements of known tuples, tuples
    that were taken apart and put together again, and casts to a type that is known already.
    Outputs of dataflow blocks that are not used outside become DataflowVars.  A binding of a
    constant is kept; where it is not used, DeadCodeElimination removes it.

    Raises:
        ValueError: casts say that a symbolic variable has two different values.

    Why: passes that count uses see each value under one name.
    """

    @function_pass(name="CanonicalizeBindings")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return canonicalize_bindings(func)

    return run
