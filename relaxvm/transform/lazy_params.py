"""LazyGetInput, LazySetOutput, LazyTransformParams: weights that are loaded when they are needed,
and stored as soon as they are done.

They rewrite the functions whose names end in "transform_params", which compute the weights that a
program uses from those that are stored in a file.  Together, all weights may not fit into memory.

Source: the passes of the same names in apache-tvm 0.27.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..analysis.variables import free_symbolic_vars, free_vars
from ..ir import (
    ANY,
    Binding,
    BindingBlock,
    Call,
    Expr,
    Function,
    FuncType,
    GlobalVar,
    IRModule,
    MatchCast,
    SeqExpr,
    ShapeType,
    StringImm,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    VarBinding,
    function_ret_type,
    int_imm,
    prim_type,
    type_free_vars,
)
from ..op.base import call_packed
from ..op.vm import kill_object
from ._renaming import Renamer
from .pass_infra import Pass, PassContext, module_pass
from .to_non_dataflow import to_non_dataflow

__all__ = ["LazyGetInput", "LazySetOutput", "LazyTransformParams"]

SUFFIX: Final = "transform_params"

Load = Callable[[int, str], Call]
"""Makes the call that loads a weight, from its index and its name."""

Store = Callable[[int, Expr], Call]
"""Makes the call that stores a result, from its index and its value."""


@dataclass
class _Body:
    """A function in parts: its parameters, its bindings in order, and its result."""

    params: list[Var]
    bindings: list[Binding]
    result: Expr
    loaded: dict[Var, None] = field(default_factory=dict)
    """Variables that hold a weight that was loaded."""

    @classmethod
    def of(cls, func: Function) -> _Body:
        body = to_non_dataflow(func).body
        bindings = [binding for block in body.blocks for binding in block.bindings]
        return cls(list(func.params), bindings, body.body)

    def function(self, func: Function, is_pure: bool, attrs: dict[str, Any]) -> Function:
        body = SeqExpr([BindingBlock(self.bindings)] if self.bindings else [], self.result)
        ret_ty = function_ret_type(self.params, body)
        return Function(self.params, body, ret_ty, is_pure, attrs, func.span)


class _Loader(Renamer):
    """Loads weights where they are first used."""

    def __init__(self, body: _Body, weights: Sequence[Var], load: Load) -> None:
        super().__init__()
        self._body = body
        self._waiting = {var: index for index, var in enumerate(weights)}
        self._load = load
        known = {v for p in body.params if p not in self._waiting for v in type_free_vars(p.ty)}
        self._defined_by: dict[Var, Var] = {}
        """Symbolic variable -> the weight whose shape defines it."""
        for var in weights:
            for symbol in type_free_vars(var.ty):
                if symbol not in known:
                    self._defined_by.setdefault(symbol, var)

    def run(self) -> None:
        out: list[Binding] = []
        for binding in self._body.bindings:
            symbols = free_symbolic_vars(binding.value)
            if isinstance(binding, MatchCast):
                symbols = [*symbols, *type_free_vars(binding.ty)]
            self._fetch([*free_vars(binding.value), *symbols], out)
            new = self.visit_binding(binding)
            out += [new] if isinstance(new, Binding) else new
        self._fetch(free_vars(self._body.result), out)
        self._body.result = self.visit(self._body.result)
        self._body.bindings = out

    def _fetch(self, used: Iterable[Var], out: list[Binding]) -> None:
        for var in used:
            weight = self._defined_by.get(var, var)
            index = self._waiting.pop(weight, None)
            if index is None:
                continue
            loaded = Var(weight.name, ANY)
            cast = Var(weight.name, weight.ty)
            out.append(VarBinding(loaded, self._load(index, weight.name)))
            out.append(MatchCast(cast, loaded, weight.ty))
            self.rename(weight, cast)
            self._body.loaded[cast] = None


def _load_elements(body: _Body, whole: Var, load: Load) -> None:
    """Load the elements of a tuple of weights where they are taken out of it."""
    out: list[Binding] = []
    renamer = Renamer()
    for binding in body.bindings:
        value = binding.value
        if isinstance(value, TupleGetItem) and value.tuple_value is whole:
            ty: Type = whole.ty.fields[value.index]
            loaded = Var(binding.var.name, ANY)
            cast = Var("gv", ty)
            out.append(VarBinding(loaded, load(value.index, binding.var.name)))
            out.append(MatchCast(cast, loaded, ty))
            held = Var(binding.var.name, ty)
            out.append(VarBinding(held, cast, binding.span))
            renamer.rename(binding.var, held)
            body.loaded[held] = None
            continue
        new = renamer.visit_binding(binding)
        out += [new] if isinstance(new, Binding) else new
    for binding in out:
        if whole in free_vars(binding.value):
            raise ValueError(
                f"the tuple of weights {whole.name} is used as a whole, by {binding}; expected "
                "only elements of it"
            )
    body.result = renamer.visit(body.result)
    body.bindings = out


class _Results:
    """The results of a function: which elements of its tuple a variable is."""

    def __init__(self, body: _Body) -> None:
        self.binding: Binding | None = None
        """The binding of the tuple, if it has one."""
        value = body.result
        for binding in body.bindings:
            if binding.var is value and isinstance(binding.value, Tuple):
                self.binding = binding
                value = binding.value
        fields = value.fields if isinstance(value, Tuple) else (value,)
        self.of_var: dict[Var, list[int]] = {}
        self.others: list[tuple[int, Expr]] = []
        """Constants and other results that no variable has."""
        for index, result in enumerate(fields):
            if isinstance(result, Var):
                self.of_var.setdefault(result, []).append(index)
            else:
                self.others.append((index, result))


def _store_results(body: _Body, store: Store, *, at_last_use: bool) -> None:
    """Store results: each after its definition, or after its last use, where a weight that was
    loaded is also released.  The function then returns an empty tuple."""
    results = _Results(body)
    ends: dict[Var, int] = {}
    """Variable -> the position after which it is stored or released."""
    for position, binding in enumerate(body.bindings):
        if binding is results.binding:
            continue
        if at_last_use:
            for var in free_vars(binding.value):
                ends[var] = position
        ends[binding.var] = position
    out: list[Binding] = []

    def end(var: Var) -> None:
        for index in results.of_var.get(var, ()):
            out.append(_effect(store(index, var)))
        if at_last_use and var in body.loaded:
            out.append(_effect(kill_object(var)))

    for param in body.params:
        if param not in ends:
            end(param)
    for position, binding in enumerate(body.bindings):
        if binding is results.binding:
            empty = Tuple(())
            replaced = Var(binding.var.name, empty.ty)
            out.append(VarBinding(replaced, empty, binding.span))
            body.result = replaced
            continue
        out.append(binding)
        for var in dict.fromkeys([*free_vars(binding.value), binding.var]):
            if ends.get(var) == position:
                end(var)
    for index, value in results.others:
        out.append(_effect(store(index, value)))
    if results.binding is None:
        body.result = Tuple(())
    body.bindings = out


def _effect(call: Call) -> VarBinding:
    return VarBinding(Var("_", call.ty), call)


def _rewritten(name: str, rewrite: Callable[[Function], Function]) -> Pass:
    """A pass that rewrites the functions whose names end in `SUFFIX`."""

    @module_pass(name=name)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions: dict[GlobalVar, Any] = {}
        for var, func in mod.functions.items():
            if isinstance(func, Function) and var.name_hint.endswith(SUFFIX):
                func = rewrite(func)
                var = GlobalVar(var.name_hint, func.ty, var.span)
            functions[var] = func
        return IRModule(functions, mod.attrs, mod.global_infos, mod.type_definitions)

    return run


def _weights(func: Function) -> tuple[int, list[Var]]:
    """The number of parameters that are no weights, and the weights."""
    count = int(func.attrs.get("num_input", 0))
    return count, list(func.params[count:])


def LazyGetInput() -> Pass:
    """Have functions named "...transform_params" load their weights where they are first used: they
    get a parameter ``fget_param``, a function from the index and the name of a weight to its value,
    in place of those after the first "num_input" parameters."""

    def rewrite(func: Function) -> Function:
        count, weights = _weights(func)
        getter = Var("fget_param", FuncType([prim_type("int64"), ANY], ANY))
        body = _Body.of(func)
        loader = _Loader(
            body,
            weights,
            lambda index, name: Call(getter, [int_imm(index), StringImm(name)], ret_ty=ANY),
        )
        loader.run()
        body.params = [*func.params[:count], getter]
        return body.function(func, func.is_pure, {**func.attrs, "num_input": count + 1})

    return _rewritten("LazyGetInput", rewrite)


def LazySetOutput() -> Pass:
    """Have functions named "...transform_params" pass each result to a function when it is made:
    they get a parameter ``fset_output``, a function of the index and the value of a result, after
    the first "num_input" parameters (the last one, if that attribute is missing)."""

    def rewrite(func: Function) -> Function:
        ty = FuncType([prim_type("int64"), ANY], TupleType(()), purity=False)
        setter = Var("fset_output", ty)
        body = _Body.of(func)
        _store_results(
            body,
            lambda index, value: Call(setter, [int_imm(index), value], ret_ty=TupleType(())),
            at_last_use=False,
        )
        attrs = dict(func.attrs)
        count = attrs.get("num_input")
        place = len(func.params) if count is None else int(count)
        if count is not None:
            attrs["num_input"] = int(count) + 1
        body.params = [*func.params[:place], setter, *func.params[place:]]
        return body.function(func, False, attrs)

    return _rewritten("LazySetOutput", rewrite)


def LazyTransformParams(
    fget_item: str | None = "get_item",
    fset_item: str | None = "set_item",
    extra_get_item_params: Sequence[Var] | None = None,
    extra_set_item_params: Sequence[Var] | None = None,
) -> Pass:
    """Have functions named "...transform_params" load each weight by a packed function, and store
    each result by another one after its last use, so that few are in memory at a time.

    Weights are the parameters after the first "num_input", or the elements of the last parameter if
    that is a tuple; shapes in the tuple become parameters.

    Args:
        fget_item: name of the function that loads the weight of an index; None to keep parameters.
        fset_item: name of the function that stores a result, from its index and its value; None to
            return the results.
        extra_get_item_params, extra_set_item_params: parameters that the functions get first.

    Raises:
        ValueError: the tuple of weights is used as a whole.
    """
    extra_get = list(extra_get_item_params or ())
    extra_set = list(extra_set_item_params or ())

    def load(index: int, name: str) -> Call:
        assert fget_item is not None
        call: Call = call_packed(fget_item, *extra_get, int_imm(index), ty_args=ANY)
        return call

    def store(index: int, value: Expr) -> Call:
        assert fset_item is not None
        call: Call = call_packed(fset_item, *extra_set, int_imm(index), value, ty_args=ANY)
        return call

    def rewrite(func: Function) -> Function:
        body = _Body.of(func)
        count, weights = _weights(func)
        kept = list(func.params[:count])
        if fget_item is None:
            kept = list(func.params)
        elif len(weights) == 1 and type(weights[0].ty) is TupleType:
            (whole,) = weights
            kept += [
                Var(f"{whole.name}_{index}", ty)
                for index, ty in enumerate(whole.ty.fields)
                if type(ty) is ShapeType
            ]
            _load_elements(body, whole, load)
        else:
            _Loader(body, weights, load).run()
        body.params = [*kept, *dict.fromkeys([*extra_get, *extra_set])]
        if fset_item is not None:
            _store_results(body, store, at_last_use=True)
        kept_attrs = {"global_symbol", "num_input"}
        attrs = {key: value for key, value in func.attrs.items() if key in kept_attrs}
        return body.function(func, False, attrs)

    return _rewritten("LazyTransformParams", rewrite)
