"""Making functions of groups of bindings: what `FuseOpsByPattern` and `MergeCompositeFunctions` do
with the groups that they have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..analysis.variables import free_symbolic_vars, uses_of_binding
from ..executable.debug_info import FusedSpan
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
        self.found: dict[Constant, Var] = {}

    def visit_constant(self, constant: Constant) -> Expr:
        if constant not in self.found:
            self.found[constant] = Var(f"param_{len(self.found)}", constant.ty)
        return self.found[constant]


def _name(bindings: Iterable[Binding]) -> str:
    """The name of a function, by the operators and functions that it calls."""
    parts = ["fused"]
    for binding in bindings:
        value = binding.value
        if isinstance(value, Call):
            calls_tir = isinstance(value.op, Op) and value.op.name in _CALLS_OF_PRIM_FUNCS
            name = _name_of(value.args[0] if calls_tir else value.op)
            parts.append(name if calls_tir else name.removeprefix("fused_"))
    return "_".join(filter(None, parts))


_CALLS_OF_PRIM_FUNCS = ("relax.call_tir", "relax.call_tir_inplace")


def _name_of(callee: Expr) -> str:
    if isinstance(callee, Op):
        return callee.name.replace(".", "_")
    if isinstance(callee, GlobalVar):
        return callee.name_hint.replace(".", "_")
    return callee.global_symbol.replace(".", "_") if isinstance(callee, ExternFunc) else ""


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
            if id(unit) in outputs:  # else nothing uses what it computes
                new += _call_of(unit, outputs[id(unit)], functions, leaves, bind_constants)
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


class _Elements:
    """The elements that a group takes of tuples from outside that it does not use as a whole: these
    become its parameters.

    Attributes:
        params: tuple -> index -> the parameter.
    """

    def __init__(self, group: Group) -> None:
        inside = {binding.var for binding in group.bindings}
        self.params: dict[Var, dict[int, Var]] = {}
        whole: set[Var] = set()
        for binding in group.bindings:
            taken = _taken(binding)
            if taken is None:
                whole.update(uses_of_binding(binding))
            elif taken.tuple_value not in inside:
                var, index = taken.tuple_value, taken.index
                assert isinstance(var, Var)
                of_tuple = self.params.setdefault(var, {})
                of_tuple.setdefault(index, Var(f"{var.name}_{index}", taken.ty))
        for var in whole & set(self.params):
            del self.params[var]

    def param(self, binding: Binding) -> Var | None:
        """The parameter that a binding is equal to, if it takes an element."""
        taken = _taken(binding)
        if taken is None:
            return None
        return self.params.get(taken.tuple_value, {}).get(taken.index)  # type: ignore[call-overload,no-any-return]


def _taken(binding: Binding) -> TupleGetItem | None:
    """The value of a binding if it takes an element of a tuple."""
    value = binding.value
    if isinstance(binding, VarBinding) and isinstance(value, TupleGetItem):
        return value if isinstance(value.tuple_value, Var) else None
    return None


def _call_of(
    group: Group,
    outputs: list[Var],
    functions: Functions,
    leaves: Mapping[Var, Expr],
    bind_constants: bool,
) -> list[Binding]:
    """The bindings that call the function of a group."""
    inside = {binding.var for binding in group.bindings}
    used = _Used()
    bindings: list[Binding] = []
    lifted = _LiftConstants()
    elements = _Elements(group)
    renamed: dict[Var, Expr] = {}
    for binding in group.bindings:
        value = substitute_vars(binding.value, leaves)
        if not bind_constants:
            value = lifted.visit(value)
        used.visit(value)
        element = elements.param(binding)
        if element is not None:
            renamed[binding.var] = element
            continue
        if isinstance(binding.var, DataflowVar) and binding.var in outputs:
            renamed[binding.var] = Var(binding.var.name, binding.var.ty)
        elif not isinstance(binding.var, DataflowVar) and binding.var not in outputs:
            renamed[binding.var] = DataflowVar(binding.var.name, binding.var.ty)
        bindings.append(VarBinding(binding.var, value, binding.span))
    constants = {var: constant for constant, var in lifted.found.items()}
    last = group.bindings[-1]
    out: list[Binding] = []
    params: list[Var] = []
    args: list[Expr] = []
    for var in used.found:
        if var in inside:
            continue
        for index, param in elements.params.get(var, {}).items():
            arg = DataflowVar(param.name, param.ty)
            out.append(VarBinding(arg, TupleGetItem(var, index), last.span))
            params.append(param)
            args.append(arg)
        if var not in elements.params:
            param = Var(var.name, var.ty) if isinstance(var, DataflowVar) else var
            renamed[var] = param
            params.append(param)
            args.append(constants.get(var, var))
    block = _Renamed(renamed).visit_block(DataflowBlock(bindings))
    results = [renamed.get(var, var) for var in outputs]
    body = SeqExpr([block], results[0] if len(results) == 1 else Tuple(results))
    func = Function(params, body, is_pure=True, attrs=group.attrs)
    missing = free_symbolic_vars(func)
    if missing:
        params.append(Var("tir_vars", ShapeType(missing)))
        args.append(ShapeExpr(missing))
        func = func.replace(params=params)
    callee = functions.add(copy_with_new_vars(func), _name(group.bindings))
    call = Call(callee, args, ret_ty=body.ty)
    span = FusedSpan.of(last.span, [(each.span, each.var.name) for each in group.bindings[:-1]])
    if len(outputs) == 1:
        return [*out, VarBinding(outputs[0], call, span)]
    packed = DataflowVar("lv", body.ty)
    out.append(VarBinding(packed, call, span))
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
