"""BundleModelParams: one parameter for all weights."""

from __future__ import annotations

from typing import Any

from ..ir import (
    Binding,
    BindingBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    SeqExpr,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ._replacing import replace_functions
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["BundleModelParams"]


class _Bundler(ExprMutator):
    """Takes a weight from the tuple in front of each use."""

    def __init__(self, weights: dict[Var, tuple[Var, int]]) -> None:
        super().__init__()
        self._weights = weights
        self._taken: list[Binding] = []

    def visit_var(self, var: Var) -> Expr:
        if var not in self._weights:
            return super().visit_var(var)
        item = TupleGetItem(*self._weights[var])
        new = (DataflowVar if self.in_dataflow else Var)(var.name, var.ty, var.span)
        self._taken.append(VarBinding(new, item))
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        outer, self._taken = self._taken, []
        new = super().visit_binding(binding)
        assert isinstance(new, Binding)
        taken, self._taken = self._taken, outer
        return [*taken, new] if taken else new

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer, self._taken = self._taken, []
        in_dataflow, self.in_dataflow = self.in_dataflow, False
        new = super().visit_seq(seq)
        if self._taken:
            new = SeqExpr([*new.blocks, BindingBlock(self._taken)], new.body, span=seq.span)
        self._taken, self.in_dataflow = outer, in_dataflow
        return new


def BundleModelParams(param_tuple_name: str | None = None) -> Pass:
    """Make the weights of functions one parameter, a tuple.  Weights are the parameters after the
    first ``num_input``, an attribute of the function; without it, a function stays as it is.

    Args:
        param_tuple_name: the name of the parameter, "model_params" by default.

    Raises:
        ValueError: ``num_input`` is not a number of parameters.
    """
    name = "model_params" if param_tuple_name is None else param_tuple_name

    @module_pass(name="BundleModelParams", opt_level=1)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions = {}
        for var, func in mod.functions.items():
            if not isinstance(func, Function) or "num_input" not in func.attrs:
                continue
            count = int(func.attrs["num_input"])
            if not 0 <= count <= len(func.params):
                raise ValueError(
                    f"BundleModelParams: function {var.name_hint!r} has {len(func.params)} "
                    f"parameters, but num_input is {count}"
                )
            weights = func.params[count:]
            bundle = Var(name, TupleType([weight.ty for weight in weights]))
            places = {weight: (bundle, index) for index, weight in enumerate(weights)}
            body = _Bundler(places).visit(func.body)
            functions[var] = func.replace(params=[*func.params[:count], bundle], body=body)
        return replace_functions(mod, functions) if functions else mod

    return run
