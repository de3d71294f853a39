"""MergeCompositeFunctions: join neighbouring functions for the same code generator."""

from __future__ import annotations

from typing import Any

from ..analysis.variables import all_global_vars, uses_of_binding
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    GlobalVar,
    IRModule,
    MatchCast,
    SeqExpr,
    Var,
    VarBinding,
    copy_with_new_vars,
)
from ._grouping import Functions, Group, grouped_block
from .fuse_ops_by_pattern import codegen_of
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["MergeCompositeFunctions"]


class _Regions:
    """The regions of a block: sets of calls for one code generator, or single other bindings.

    Attributes:
        before: region -> all regions that it depends on, directly or not.
    """

    def __init__(self) -> None:
        self.members: dict[int, list[Binding]] = {}
        self.codegen: dict[int, str | None] = {}
        self.before: dict[int, set[int]] = {}
        self.home: dict[Var, int] = {}
        self._count = 0

    def add(self, binding: Binding, codegen: str | None) -> None:
        """Add a binding to the region of an operand for the same code generator, where nothing
        between the two prevents it; else as a region of its own."""
        operands = {self.home[v] for v in uses_of_binding(binding) if v in self.home}
        region = self._count
        self._count += 1
        self.members[region] = [binding]
        self.codegen[region] = codegen
        self.before[region] = operands.union(*[self.before[o] for o in operands])
        self.home[binding.var] = region
        if codegen is not None:
            for other in sorted(operands):
                if self.codegen.get(other) == codegen and not self._between(other, region):
                    self._join(other, region)

    def _between(self, first: int, last: int) -> bool:
        """Whether `last` depends on `first` by way of another region."""
        return any(first in self.before[r] for r in self.before[last] if r not in (first, last))

    def _join(self, other: int, region: int) -> None:
        self.members[region] = self.members.pop(other) + self.members[region]
        for binding in self.members[region]:
            self.home[binding.var] = region
        self.before[region] = (self.before.pop(other) | self.before[region]) - {other, region}
        del self.codegen[other]
        for later in self.before.values():
            if other in later:
                later.discard(other)
                later.add(region)
                later |= self.before[region]


class _Merger(ExprMutator):
    def __init__(self, mod: IRModule, functions: Functions) -> None:
        super().__init__()
        self._mod = mod
        self._functions = functions

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        visited = super().visit_block(block)
        if not isinstance(visited, DataflowBlock):
            return visited
        regions = _Regions()
        for binding in visited.bindings:
            regions.add(binding, self._codegen(binding))
        groups = []
        order = {binding.var: i for i, binding in enumerate(visited.bindings)}
        for region, bindings in regions.members.items():
            codegen = regions.codegen[region]
            if codegen is not None:
                group = Group({"Codegen": codegen})
                group.bindings = sorted(bindings, key=lambda b: order[b.var])
                groups.append(group)
        groups.sort(key=lambda group: order[group.bindings[0].var])
        if not groups:
            return visited
        return grouped_block(visited, groups, self._functions, {}, True)

    def _codegen(self, binding: Binding) -> str | None:
        if isinstance(binding, MatchCast):  # what it defines and checks stays outside
            return None
        value = binding.value
        if not isinstance(value, Call) or not isinstance(value.op, GlobalVar):
            return None
        func = self._mod[value.op]
        if not isinstance(func, Function) or "Composite" not in func.attrs:
            return None
        return codegen_of(func)


class _Inliner(ExprMutator):
    """Makes the composite functions that a function calls local functions of it."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self._mod = mod

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        bindings: list[Binding] = []
        local: dict[GlobalVar, Var] = {}
        for block in seq.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, Call) and isinstance(value.op, GlobalVar):
                    if value.op not in local:
                        func = self._mod[value.op].without_attr("Primitive")
                        callee = Var(value.op.name_hint, func.ty)
                        bindings.append(VarBinding(callee, copy_with_new_vars(func)))
                        local[value.op] = callee
                    value = Call(local[value.op], value.args, ret_ty=value.ty, span=value.span)
                bindings.append(VarBinding(binding.var, value, binding.span))
        return _Plain().visit(SeqExpr([BindingBlock(bindings)], seq.body))  # type: ignore[no-any-return]


class _Plain(ExprMutator):
    """Replaces dataflow variables by plain ones, outside of local functions."""

    def visit_var_def(self, var: Var) -> Var:
        if not isinstance(var, DataflowVar):
            return var
        new = self.var_map[var] = Var(var.name, var.ty, var.span)
        return new

    def visit_function(self, func: Function) -> Expr:
        return func


def MergeCompositeFunctions() -> Pass:
    """Join calls of composite functions, as `FuseOpsByPattern` makes them, for the same code
    generator that are neighbours in the graph: each becomes a local function of a function with the
    attribute "Codegen".  Where a value between two of them is computed elsewhere, they stay apart.

    Requires: FuseOpsByPattern.  Ensures: no function of the module has the attribute "Composite".
    """

    @module_pass(name="MergeCompositeFunctions")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions = Functions(mod)
        for var, func in mod.items():
            if isinstance(func, Function) and not {"Composite", "Codegen"} & set(func.attrs):
                functions.mod[var] = _Merger(mod, functions).visit(func)
        result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
        names: dict[GlobalVar, GlobalVar] = {}
        made: dict[GlobalVar, Function] = {}
        for var, func in functions.mod.items():
            if var not in mod.functions and isinstance(func, Function):
                codegen = func.attrs["Codegen"]
                name = functions.mod.unique_name(f"{var.name_hint}_{codegen}")
                new = names[var] = GlobalVar(name, func.ty)
                inlined: Function = func.replace(body=_Inliner(mod).visit_seq(func.body))
                made[new] = inlined.with_attr("global_symbol", name)
        for var, func in functions.mod.items():
            if var in names:
                result[names[var]] = made[names[var]]
            elif not (isinstance(func, Function) and "Composite" in func.attrs):
                result[var] = _Renamer(names).visit(func) if isinstance(func, Function) else func
        # Composite functions that are still called: outside of dataflow blocks, or in a cast.
        pending = [*result.functions.values()]
        while pending:
            func = pending.pop()
            if isinstance(func, Function):
                for used in all_global_vars(func):
                    if used not in result.functions and used in mod.functions:
                        result[used] = mod.functions[used]
                        pending.append(result[used])
        return result

    return run


class _Renamer(ExprMutator):
    def __init__(self, names: dict[GlobalVar, GlobalVar]) -> None:
        super().__init__()
        self._names = names

    def visit_global_var(self, var: GlobalVar) -> Expr:
        return self._names.get(var, var)
