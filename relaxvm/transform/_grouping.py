"""Making functions of groups of bindings: what `FuseOpsByPattern` and `MergeCompositeFunctions` do
with the groups that they have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..analysis.variables import free_symbolic_vars, uses_of_binding
from ..ir import (
    Binding,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    GlobalVar,
    IRModule,
    Op,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    copy_with_new_vars,
    structural_equal,
    structural_hash,
    substitute_vars,
)
from ..ir.visitor import ExprVisitor

__all__ = ["Functions", "Group", "grouped_block"]


class Group:
    """Bindings of a block that become a function.

    Attributes:
        bindings: the bindings, in the order of the block.
        attrs: the attributes of the function.
    """

    def __init__(self, attrs: Mapping[str, Any]) -> None:
        self.bindings: list[Binding] = []
        self.attrs = dict(attrs)


class Functions:
    """The functions of a module, to which those of groups are added.  Equal ones are added once."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod.copy()
        self._made: dict[int, list[tuple[Function, GlobalVar]]] = {}

    def add(self, func: Function, name: str) -> GlobalVar:
        """Return the variable of a function, which is added unless there is an equal one."""
        key = structural_hash(func)
        for known, var in self._made.get(key, ()):
            if structural_equal(known, func):
                return var
        var = GlobalVar(self.mod.unique_name(name), func.ty)
        self.mod[var] = func
        self._made.setdefault(key, []).append((func, var))
        return var


class _LiftConstants(ExprMutator):
    """Replaces constants by parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Var, Constant]] = []

    def visit_constant(self, constant: Constant) -> Expr:
        var = Var(f"param_{len(self.found)}", constant.ty)
        self.found.append((var, constant))
        return var


def _name(bindings: Iterable[Binding]) -> str:
    """The name of a function, by the operators and functions that it calls."""
    parts = []
    for binding in bindings:
        value = binding.value
        if not isinstance(value, Call):
            continue
        callee = value.args[0] if _calls_tir(value) else value.op
        if isinstance(callee, Op):
            parts.append(callee.name.replace(".", "_"))
        elif isinstance(callee, (GlobalVar, ExternFunc)):
            name = callee.name_hint if isinstance(callee, GlobalVar) else callee.global_symbol
            parts.append(name.replace(".", "_").removeprefix("fused_"))
    return "_".join(["fused", *parts])


def _calls_tir(value: Call) -> bool:
    return isinstance(value.op, Op) and value.op.name == "relax.call_tir"


def grouped_block(
    block: DataflowBlock,
    groups: Sequence[Group],
    functions: Functions,
    leaves: Mapping[Var, Expr],
    bind_constants: bool,
) -> DataflowBlock:
    """Return a block in which every group is a call of a function made of it.

    Args:
        leaves: variables that functions contain instead of taking them: bound to static shapes.
        bind_constants: whether functions contain constants; else these are arguments.

    Raises:
        RuntimeError: groups depend on each other in a cycle.
    """
    of: dict[Var, Group] = {}
    for group in groups:
        for binding in group.bindings:
            of[binding.var] = group
    units: list[Any] = []
    seen: set[int] = set()
    for binding in block.bindings:
        unit = of.get(binding.var, binding)
        if id(unit) not in seen:
            seen.add(id(unit))
            units.append(unit)
    outputs = _outputs(block, of)
    new: list[Binding] = []
    for unit in _sorted(units, of, block):
        if isinstance(unit, Group):
            new += _call_of(unit, outputs.get(id(unit), []), functions, leaves, bind_constants)
        else:
            new.append(unit)
    return DataflowBlock(new, block.span)


def _outputs(block: DataflowBlock, of: Mapping[Var, Group]) -> dict[int, list[Var]]:
    """Group, by id -> its variables that are used outside of it, in order of the first use."""
    found: dict[int, dict[Var, None]] = {}
    for binding in block.bindings:
        own = of.get(binding.var)
        for var in uses_of_binding(binding):
            group = of.get(var)
            if group is not None and group is not own:
                found.setdefault(id(group), {})[var] = None
        if own is not None and not isinstance(binding.var, DataflowVar):
            found.setdefault(id(own), {})[binding.var] = None
    return {key: list(variables) for key, variables in found.items()}


def _sorted(units: Sequence[Any], of: Mapping[Var, Group], block: DataflowBlock) -> list[Any]:
    """The units, each after those that it depends on, else in their order."""
    home: dict[Var, Any] = {b.var: of.get(b.var, b) for b in block.bindings}
    order: list[Any] = []
    state: dict[int, int] = {}
    for start in units:
        work = [start]
        while work:
            unit = work[-1]
            if state.get(id(unit)) == 2:
                work.pop()
                continue
            state[id(unit)] = 1
            missing = []
            for binding in _bindings(unit):
                for var in uses_of_binding(binding):
                    other = home.get(var)
                    if other is None or other is unit or state.get(id(other)) == 2:
                        continue
                    if state.get(id(other)) == 1:
                        raise RuntimeError(
                            "A cyclic dependency detected between the groups that "
                            f"{var.name!r} and {binding.var.name!r} are in: the pattern leaves out "
                            "a binding between its parts"
                        )
                    missing.append(other)
            if missing:
                work += reversed(missing)
                continue
            work.pop()
            state[id(unit)] = 2
            order.append(unit)
    return order


def _bindings(unit: Any) -> list[Binding]:
    return unit.bindings if isinstance(unit, Group) else [unit]


class _Used(ExprVisitor):
    """The variables that an expression uses, in order; scalars in shapes and types are apart."""

    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var(self, var: Var) -> None:
        if type(var.ty) is not PrimType:
            self.found[var] = None


def _call_of(
    group: Group,
    outputs: list[Var],
    functions: Functions,
    leaves: Mapping[Var, Expr],
    bind_constants: bool,
) -> list[Binding]:
    """The bindings that call the function of a group."""
    outputs = outputs or [group.bindings[-1].var]
    inside = {binding.var for binding in group.bindings}
    used = _Used()
    bindings: list[Binding] = []
    lifted = _LiftConstants()
    renamed: dict[Var, Expr] = {}
    for binding in group.bindings:
        value = substitute_vars(binding.value, leaves)
        if not bind_constants:
            value = lifted.visit(value)
        used.visit(value)
        if isinstance(binding.var, DataflowVar) and binding.var in outputs:
            renamed[binding.var] = Var(binding.var.name, binding.var.ty)
        elif not isinstance(binding.var, DataflowVar) and binding.var not in outputs:
            renamed[binding.var] = DataflowVar(binding.var.name, binding.var.ty)
        bindings.append(VarBinding(binding.var, value, binding.span))
    constants = dict(lifted.found)
    arguments = [var for var in used.found if var not in inside]
    args: list[Expr] = [constants.get(var, var) for var in arguments]
    for position, var in enumerate(arguments):
        if isinstance(var, DataflowVar):
            renamed[var] = arguments[position] = Var(var.name, var.ty)
    block = _Renamed(renamed).visit_block(DataflowBlock(bindings))
    results = [renamed.get(var, var) for var in outputs]
    body = SeqExpr([block], results[0] if len(results) == 1 else Tuple(results))
    func = Function(arguments, body, is_pure=True, attrs=group.attrs)
    missing = free_symbolic_vars(func)
    if missing:
        arguments = [*arguments, Var("tir_vars", ShapeType(missing))]
        args.append(ShapeExpr(missing))
        func = func.replace(params=arguments)
    callee = functions.add(copy_with_new_vars(func), _name(group.bindings))
    call = Call(callee, args, ty=body.ty)
    last = group.bindings[-1]
    if len(outputs) == 1:
        return [VarBinding(outputs[0], call, last.span)]
    packed = DataflowVar("lv", body.ty)
    out: list[Binding] = [VarBinding(packed, call, last.span)]
    for binding in group.bindings:
        if binding.var in outputs:
            index = outputs.index(binding.var)
            out.append(VarBinding(binding.var, TupleGetItem(packed, index), binding.span))
    return out


class _Renamed(ExprMutator):
    def __init__(self, names: Mapping[Var, Expr]) -> None:
        super().__init__()
        self.var_map.update(names)

    def visit_var_def(self, var: Var) -> Var:
        new = self.var_map.get(var, var)
        assert isinstance(new, Var)
        return new
