"""LiftTransformParams: compute what depends on weights alone in a function of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..analysis import contains_impure_call, definable_tir_vars_in_type, free_vars
from ..analysis.variables import uses_of_binding
from ..errors import InternalError
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
    Function,
    GlobalVar,
    IRModule,
    Op,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    bind_type,
    copy_with_new_vars,
    expr_key,
    joined_blocks,
    prim_value,
    substitute_vars,
)
from ..ir.expr import IntImm
from ..op import base
from .canonicalize_bindings import canonicalize_bindings
from .config import register_config_option
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LiftTransformParams"]

CONSUME_PARAMS = "relax.lift_transform_params.consume_params"
register_config_option(CONSUME_PARAMS)

_STOP = Op.get("relax.builtin.stop_lift_params")


class _Lifted:
    """What may be lifted from a function.

    Attributes:
        inputs, weights: its parameters.
        bindings: bindings that depend on weights and constants alone, by variable, in order.
        varying: those of their variables that depend on weights.
    """

    def __init__(self, func: Function) -> None:
        count = int(func.attrs["num_input"])
        self.func = func
        self.inputs = func.params[:count]
        self.weights = func.params[count:]
        self.bindings: dict[Var, Binding] = {}
        self.varying: set[Var] = set()
        sources: set[Var] = {*self.weights, *defined_by(self.weights)}
        known = set(sources)
        for block in func.body.blocks:
            for binding in block.bindings:
                if not _may_be_lifted(binding):
                    continue
                used = [var for var in uses_of_binding(binding) if var is not binding.var]
                if not known.issuperset(used):
                    continue
                self.bindings[binding.var] = binding
                known.add(binding.var)
                if not sources.isdisjoint(used) or not self.varying.isdisjoint(used):
                    self.varying.add(binding.var)

    def rest(self, lifted: Iterable[Var]) -> tuple[list[Binding], list[Var]]:
        """The bindings that stay in the function, and the variables that they and the result use.
        A binding without weights stays where it is used."""
        gone = set(lifted)
        used = dict.fromkeys(free_vars(self.func.body.body))
        used.update(dict.fromkeys(free_vars(Function((), Tuple(()), self.func.ret_ty))))
        kept: list[Binding] = []
        for block in reversed(self.func.body.blocks):
            for binding in reversed(block.bindings):
                var = binding.var
                if var in gone and (var in self.varying or var not in used):
                    continue
                kept.append(binding)
                used.update(dict.fromkeys(uses_of_binding(binding)))
        return kept[::-1], list(used)


def defined_by(params: Iterable[Var]) -> list[Var]:
    """The symbolic variables that the types of parameters define."""
    found: dict[Var, None] = {}
    for param in params:
        found.update(dict.fromkeys(definable_tir_vars_in_type(param.ty)))
    return list(found)


def _may_be_lifted(binding: Binding) -> bool:
    value = binding.value
    if not isinstance(binding, VarBinding):
        return False
    if isinstance(value, Call):
        return value.op is not _STOP and not contains_impure_call(value)
    return isinstance(value, (Tuple, TupleGetItem, Var, Constant, ShapeExpr))


def _common(functions: Sequence[_Lifted]) -> tuple[set[Var], list[dict[Var, Var]]]:
    """The variables of the first function whose values all functions compute, and for every
    function the variables of the first that its own stand for."""
    first = functions[0]
    keys: dict[Any, Var] = {}
    for var, binding in first.bindings.items():
        keys.setdefault(expr_key(binding.value), var)
    maps: list[dict[Var, Var]] = [{var: var for var in first.bindings}]
    common = set(first.bindings)
    for other in functions[1:]:
        symbolic: dict[Var, Expr] = {}
        if len(other.weights) != len(first.weights) or any(
            bind_type(w.ty, v.ty, symbolic) is not BaseCheckResult.PASS
            for w, v in zip(other.weights, first.weights, strict=True)
        ):
            raise InternalError(
                "LiftTransformParams: functions with a shared transformation take the same "
                f"weights, but {_types(first.weights)} and {_types(other.weights)} differ"
            )
        same: dict[Var, Expr] = {**symbolic, **dict(zip(other.weights, first.weights, strict=True))}
        found: dict[Var, Var] = {}
        for var, binding in other.bindings.items():
            known = keys.get(expr_key(substitute_vars(binding.value, same)))
            if known is not None:
                same[var] = found[var] = known
        maps.append(found)
        common &= set(found.values())
    return common, maps


def _types(params: Sequence[Var]) -> str:
    return f"({', '.join(str(param.ty) for param in params)})"


class _Result:
    """A transformation of weights, and the functions that take its results."""

    def __init__(self, functions: Sequence[_Lifted], consume: bool) -> None:
        first = self._first = functions[0]
        common, maps = _common(functions) if len(functions) > 1 else (
            set(first.bindings), [{var: var for var in first.bindings}]
        )  # fmt: skip
        kept: dict[Var, None] = {}
        needed: set[Var] = set()
        rests = []
        for func, same in zip(functions, maps, strict=True):
            lifted = [var for var, of in same.items() if of in common]
            rest, used = func.rest(lifted)
            rests.append((func, same, rest))
            available = set(defined_by(func.inputs))
            for var in used:
                if var in func.weights:
                    kept[first.weights[func.weights.index(var)]] = None
                elif var in func.varying and same.get(var) in common:
                    needed.add(same[var])
            available.update(defined_by(kept))
            for weight in func.weights:
                missing = [v for v in defined_by([weight]) if v in used and v not in available]
                if missing:
                    kept[first.weights[func.weights.index(weight)]] = None
                    available.update(missing)
        self.outputs: list[Var] = [w for w in first.weights if w in kept]
        self.outputs += [var for var in first.bindings if var in needed]
        self.transform = _transform(first, self.outputs, consume)
        self.functions = [self._function(*each) for each in rests]

    def _function(self, func: _Lifted, same: Mapping[Var, Var], rest: list[Binding]) -> Function:
        """A function that takes the results of the transformation."""
        own = dict(zip(self._first.weights, func.weights, strict=True))
        of_first = {of: var for var, of in reversed(list(same.items()))}
        params: dict[Var, Var] = {}
        for output in self.outputs:
            if output in own:
                params[output] = own[output]
            else:
                var = of_first[output]
                params[output] = Var(var.name, var.ty)
        replaced = {var: params[of] for var, of in same.items() if of in params}
        new = _Kept({id(binding) for binding in rest}, replaced).visit(func.func.body)
        return func.func.replace(params=[*func.inputs, *params.values()], body=new)


class _Kept(ExprMutator):
    """Keeps some bindings of the outermost blocks, and replaces variables."""

    def __init__(self, kept: set[int], replaced: Mapping[Var, Expr]) -> None:
        super().__init__()
        self._kept = kept
        self._depth = 0
        self.var_map.update(replaced)

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        if self._depth == 0:
            blocks: list[BindingBlock] = []
            for block in seq.blocks:
                bindings = [b for b in block.bindings if id(b) in self._kept]
                same = len(bindings) == len(block.bindings)
                kind = DataflowBlock if isinstance(block, DataflowBlock) else BindingBlock
                blocks.append(block if same else kind(bindings, block.span))
            seq = SeqExpr(joined_blocks(blocks), seq.body, span=seq.span)
        self._depth += 1
        new = super().visit_seq(seq)
        self._depth -= 1
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        if isinstance(value, Call) and value.op is _STOP and isinstance(binding, VarBinding):
            self.var_map[binding.var] = self.visit(value.args[0])
            return []
        return super().visit_binding(binding)


def _transform(lifted: _Lifted, outputs: Sequence[Var], consume: bool) -> Function:
    """The function from the tuple of all weights to the tuple of what functions take instead."""
    weights = lifted.weights
    params = Var("params", TupleType([weight.ty for weight in weights]))
    if tuple(outputs) == weights:
        return Function([params], SeqExpr((), params if weights else Tuple(())))
    needed: set[Var] = set(outputs)
    for var, binding in reversed(lifted.bindings.items()):
        if var in needed:
            needed.update(uses_of_binding(binding))
    known: dict[Var, Expr] = {}
    for weight in weights:
        if isinstance(weight.ty, ShapeType) and weight.ty.values is not None:
            known[weight] = ShapeExpr(weight.ty.values)
    bindings: list[Binding] = []

    def take(weight: Var) -> None:
        index = weights.index(weight)
        known[weight] = taken = DataflowVar(weight.name, weight.ty)
        bindings.append(VarBinding(taken, TupleGetItem(params, index)))
        if consume:
            reset = base.call_pure_packed(
                "vm.builtin.tuple_reset_item",
                params,
                prim_value(IntImm("int32", index)),
                ty_args=[TupleType(())],
            )
            bindings.append(VarBinding(DataflowVar("_", TupleType(())), reset))

    for var, binding in lifted.bindings.items():
        if var not in needed:
            continue
        for used in uses_of_binding(binding):
            if used in weights and used not in known:
                take(used)
        value = substitute_vars(binding.value, known)
        new = DataflowVar(var.name, value.ty)
        bindings.append(VarBinding(new, value, binding.span))
        known[var] = new
    for output in outputs:
        if output in weights and output not in known:
            take(output)
    result = Tuple([known[output] for output in outputs])
    out = Var("output", result.ty)
    block = DataflowBlock([*bindings, VarBinding(out, result)])
    return Function([params], SeqExpr([block], out))


def _composed(before: Function, after: Function) -> Function:
    """The function that applies one transformation and then another."""
    if not after.body.blocks and after.body.body is after.params[0]:
        return before
    if not before.body.blocks and before.body.body is before.params[0]:
        renamed: Function = after.with_attrs(before.attrs)
        return renamed
    after = copy_with_new_vars(after)
    packed = Var("packed", before.body.body.ty)
    link = BindingBlock([VarBinding(packed, before.body.body)])
    rest = substitute_vars(after.body, {after.params[0]: packed})
    blocks = joined_blocks([*before.body.blocks, link, *rest.blocks])
    func = Function(before.params, SeqExpr(blocks, rest.body), attrs=before.attrs)
    return canonicalize_bindings(func)


def LiftTransformParams(shared_transform: bool | Sequence[str] = False) -> Pass:
    """Move what depends on weights alone out of public functions with the attribute "num_input",
    the number of parameters that are inputs: the others are weights.  A function
    ``NAME_transform_params`` takes a tuple of the weights, and returns a tuple of what the function
    takes in their place.

    Bindings after ``R.builtin.stop_lift_params`` stay.  With the option
    "relax.lift_transform_params.consume_params", each weight is dropped from the tuple once it has
    been read.

    Args:
        shared_transform: True, or the names of functions: these take the same weights, and one
            function ``transform_params`` computes what is common to them.

    Raises:
        InternalError: functions with a shared transformation take other weights.
    """

    @module_pass(name="LiftTransformParams")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        consume = bool(ctx.config.get(CONSUME_PARAMS, False))
        found = {
            var: _Lifted(func)
            for var, func in sorted(mod.items(), key=lambda item: item[0].name_hint)
            if isinstance(func, Function) and _has_weights(func)
        }
        if shared_transform is False:
            groups = [(f"{var.name_hint}_transform_params", [var]) for var in found]
        else:
            names = None if shared_transform is True else set(shared_transform)
            chosen = [v for v in found if names is None or v.name_hint in names]
            groups = [("transform_params", chosen)] if chosen else []
        replaced: dict[str, Function] = {}
        for name, variables in groups:
            result = _Result([found[var] for var in variables], consume)
            for var, func in zip(variables, result.functions, strict=True):
                replaced[var.name_hint] = func
            transform = copy_with_new_vars(result.transform).with_attrs(
                {"global_symbol": name, "num_input": 0}
            )
            if name in mod:
                transform = _composed(mod[name], transform)
            replaced[name] = transform
        return _with_functions(mod, replaced)

    return run


def _has_weights(func: Function) -> bool:
    return int(func.attrs.get("num_input", 0)) > 0 and "global_symbol" in func.attrs


def _with_functions(mod: IRModule, functions: Mapping[str, Function]) -> IRModule:
    result = IRModule(None, mod.attrs, mod.global_infos, mod.type_definitions)
    result.sources = mod.sources
    for var, func in mod.items():
        new = functions.get(var.name_hint)
        if new is None:
            result[var] = func
        else:
            result[GlobalVar(var.name_hint, new.ty)] = new
    for name, new in functions.items():
        if name not in mod:
            result[name] = new
    return result
