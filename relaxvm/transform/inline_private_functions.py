"""InlinePrivateFunctions: replace calls of private functions by their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis import definable_tir_vars_in_type
from ..analysis.variables import uses_of_binding
from ..ir import (
    BaseCheckResult,
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    ExprMutator,
    ExprVisitor,
    Function,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeType,
    Var,
    VarBinding,
    bind_type,
    is_base_of,
    substitute_type,
    substitute_vars,
    type_free_vars,
)
from .canonicalize_bindings import canonicalize_bindings
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["InlinePrivateFunctions", "inline_functions"]


class _FreshVariables(ExprMutator):
    """Replaces every bound variable by a new one, of the class that is required at the call."""

    def __init__(self, cls: type[Var] | None) -> None:
        super().__init__()
        self._cls = cls

    def visit_var_def(self, var: Var) -> Var:
        new = (self._cls or Var)(var.name, var.ty, var.span)
        self.var_map[var] = new
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if isinstance(new, Binding) and new.var is not binding.var:
            self.var_map[binding.var] = new.var
        return new

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_block(block)
        return BindingBlock(new.bindings, new.span)


class _Declarations(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_binding(self, binding: Binding) -> None:
        if isinstance(binding, MatchCast):
            self.found.update(dict.fromkeys(definable_tir_vars_in_type(binding.ty)))
        super().visit_binding(binding)

    def visit_call(self, call: Call) -> None:
        """Not visited: calls declare no variables."""


def _declared(func: Function) -> list[Var]:
    """The symbolic variables in the casts of a function."""
    declarations = _Declarations()
    declarations.visit(func.body)
    return list(declarations.found)


class _Facts(ExprVisitor):
    """The callees of a function, and whether its body may be in a dataflow block."""

    def __init__(self) -> None:
        self.called: set[GlobalVar] = set()
        self.has_control_flow = False

    def visit_global_var(self, var: GlobalVar) -> None:
        self.called.add(var)

    def visit_if(self, expr: If) -> None:
        self.has_control_flow = True
        super().visit_if(expr)

    def visit_function(self, func: Function) -> None:
        if func.params:
            self.has_control_flow = self.has_control_flow or self._depth > 0
        self._depth += 1
        super().visit_function(func)
        self._depth -= 1

    _depth = 0


def _has_plain_bindings(func: Function) -> bool:
    return any(
        block.bindings and not isinstance(block, DataflowBlock) for block in func.body.blocks
    )


class _Inliner(ExprMutator):
    """Replaces calls of some functions by their bodies.

    A dataflow block is split at a call whose body cannot be in one, and with `keeps_blocks` also
    at a call whose body is not in one.  Variables of the block that are used after the place where
    it is split become visible outside.
    """

    def __init__(
        self, bodies: dict[GlobalVar, tuple[Function, bool]], keeps_blocks: bool = False
    ) -> None:
        super().__init__()
        self._bodies = bodies
        self._keeps_blocks = keeps_blocks
        self._visible: set[Var] = set()

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        blocks: list[BindingBlock] = []
        for block in seq.blocks:
            blocks += self._split(block) if isinstance(block, DataflowBlock) else [block]
        if len(blocks) > len(seq.blocks):
            seq = SeqExpr(blocks, seq.body, span=seq.span)
        return super().visit_seq(seq)

    def _split(self, block: DataflowBlock) -> list[BindingBlock]:
        """The block, or what it becomes if it has calls that cannot be inlined within it."""
        parts: list[BindingBlock] = []
        part: list[Binding] = []
        place: dict[Var, int] = {}  # the part that binds a variable
        for binding in block.bindings:
            splits = self._splits(binding)
            if splits and part:
                parts.append(DataflowBlock(part, block.span))
                part = []
            for var in uses_of_binding(binding):
                if place.get(var, len(parts)) != len(parts) or (splits and var in place):
                    self._visible.add(var)
            place[binding.var] = len(parts)
            if splits:
                parts.append(BindingBlock([binding], block.span))
                self._visible.add(binding.var)
            else:
                part.append(binding)
        if not parts:
            return [block]
        return [*parts, DataflowBlock(part, block.span)] if part else parts

    def _splits(self, binding: Binding) -> bool:
        value = binding.value
        if not (isinstance(value, Call) and isinstance(value.op, GlobalVar)):
            return False
        func, is_plain = self._bodies.get(value.op, (None, False))
        return is_plain or (func is not None and self._keeps_blocks and _has_plain_bindings(func))

    def visit_var_def(self, var: Var) -> Var:
        if var not in self._visible or not isinstance(var, DataflowVar):
            return var
        new = self.var_map[var] = Var(var.name, var.ty, var.span)
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if (
            isinstance(binding, VarBinding)
            and isinstance(value, Call)
            and isinstance(value.op, GlobalVar)
        ):
            found = self._bodies.get(value.op)
            if found is not None:
                call = self.visit_call(value)
                assert isinstance(call, Call)
                return self._inlined(binding, call, found[0])
        return super().visit_binding(binding)

    def _inlined(self, binding: Binding, call: Call, func: Function) -> list[Binding]:
        cls = DataflowVar if self.in_dataflow else Var
        values: dict[Var, Any] = {}
        out: list[Binding] = []
        for param, arg in zip(func.params, call.args, strict=True):
            symbolic = {v: e for v, e in values.items() if v in type_free_vars(param.ty)}
            if bind_type(param.ty, arg.ty, symbolic) is BaseCheckResult.PASS:
                values.update(symbolic)
                values[param] = arg
                continue
            # The callee would check its argument.
            fresh = {v: Var(v.name, v.ty) for v in type_free_vars(param.ty) if v not in values}
            values.update(fresh)
            ty = substitute_type(param.ty, values)
            var = cls(param.name, ty, param.span)
            out.append(MatchCast(var, arg, ty, binding.span))
            values[param] = var
        renewer = _FreshVariables(cls if self.in_dataflow else None)
        renewed = renewer.visit(func.body)
        scalars = (PrimType, ShapeType)  # these may also be used in shapes and types
        values.update((v, new) for v, new in renewer.var_map.items() if type(v.ty) in scalars)
        for var in _declared(func):
            values.setdefault(var, Var(var.name, var.ty, var.span))
        body = substitute_vars(renewed, values)
        assert isinstance(body, SeqExpr)
        for block in body.blocks:
            for inner in block.bindings:
                inner.span = binding.span if inner.span is None else inner.span
                out.append(inner)
        out.append(self._result(binding, body.body))
        return out

    def _result(self, binding: Binding, value: Any) -> Binding:
        """Bind the variable of a call to the callee's result.  If the type of the result is less
        precise than that of the call, add a cast, since later bindings may need the type."""
        ty = binding.var.ty
        if is_base_of(ty, value.ty):
            return self.rebind(binding, value)
        return MatchCast(self.visit_var_def(binding.var), value, ty, binding.span)


def InlinePrivateFunctions() -> Pass:
    """Inline calls of private Relax functions (without "global_symbol") that are not recursive, and
    remove functions that are no longer called.

    A dataflow block is split at the call of a function with an If or a local function.
    """

    @module_pass(name="InlinePrivateFunctions", opt_level=1)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        facts: dict[GlobalVar, _Facts] = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function):
                facts[var] = _Facts()
                facts[var].visit(func)
        private = [
            v for v in facts
            if "global_symbol" not in mod.functions[v].attrs and not _reaches(v, v, facts)
        ]  # fmt: skip
        bodies: dict[GlobalVar, tuple[Function, bool]] = {}
        new = mod.copy()
        for var in _callees_first(private, facts):
            inlined = _Inliner(bodies).visit(mod.functions[var])
            new[var] = inlined
            bodies[var] = (inlined, facts[var].has_control_flow or not inlined.is_pure)
        for var in facts:
            if var not in bodies:
                new[var] = _Inliner(bodies).visit(mod.functions[var])
        return _without_unused(new, bodies)

    return run


def inline_functions(func: Function, functions: Mapping[Any, Function]) -> Function:
    """See `Function.inline_functions`."""
    by_name: dict[str, Function] = {}
    for key, given in functions.items():
        name = key if isinstance(key, str) else key.name_hint
        if name in by_name:
            raise ValueError(f"inline_functions: function {name!r} is given twice")
        by_name[name] = given
    called: dict[GlobalVar, None] = {}
    pending = [func]
    while pending:
        found = _Facts()
        found.visit(pending.pop())
        for var in found.called:
            if var.name_hint in by_name and var not in called:
                called[var] = None
                pending.append(by_name[var.name_hint])
    facts = {var: _Facts() for var in called}
    for var in called:
        facts[var].visit(by_name[var.name_hint])
    for var in called:
        if _reaches(var, var, facts):
            raise ValueError(f"inline_functions: function {var.name_hint!r} calls itself")
    bodies: dict[GlobalVar, tuple[Function, bool]] = {}
    for var in _callees_first(list(called), facts):
        body = _Inliner(bodies, keeps_blocks=True).visit(by_name[var.name_hint])
        bodies[var] = (body, facts[var].has_control_flow or not body.is_pure)
    return canonicalize_bindings(_Inliner(bodies, keeps_blocks=True).visit(func))


def _reaches(start: GlobalVar, goal: GlobalVar, facts: dict[GlobalVar, _Facts]) -> bool:
    seen: set[GlobalVar] = set()
    pending = list(facts[start].called)
    while pending:
        var = pending.pop()
        if var is goal:
            return True
        if var not in seen and var in facts:
            seen.add(var)
            pending += facts[var].called
    return False


def _callees_first(wanted: list[GlobalVar], facts: dict[GlobalVar, _Facts]) -> list[GlobalVar]:
    order: list[GlobalVar] = []
    seen: set[GlobalVar] = set()

    def visit(var: GlobalVar) -> None:
        if var in seen:
            return
        seen.add(var)
        for callee in wanted:
            if callee in facts[var].called:
                visit(callee)
        order.append(var)

    for var in wanted:
        visit(var)
    return order


def _without_unused(mod: IRModule, bodies: Any) -> IRModule:
    called: set[GlobalVar] = set()
    for var, func in mod.functions.items():
        if var not in bodies and isinstance(func, Function):
            facts = _Facts()
            facts.visit(func)
            called |= facts.called
    pending = [v for v in called if v in bodies]
    alive = set(pending)
    while pending:
        facts = _Facts()
        facts.visit(mod.functions[pending.pop()])
        for var in facts.called:
            if var in bodies and var not in alive:
                alive.add(var)
                pending.append(var)
    for var in bodies:
        if var not in alive:
            del mod[var]
    return mod
