"""What can be computed before the inputs of a function are known."""

from __future__ import annotations

from ..ir.expr import Binding, Function, Var
from ..ir.visitor import ExprVisitor
from .variables import definable_tir_vars_in_type, free_symbolic_vars, free_vars

__all__ = ["computable_at_compile_time"]


class _Collector(ExprVisitor):
    def __init__(self) -> None:
        self.known: dict[Var, None] = {}
        self._symbols: set[Var] = set()

    def visit_function(self, func: Function) -> None:
        if "num_input" in func.attrs:
            for param in func.params[int(func.attrs["num_input"]) :]:
                self._add(param)
        super().visit_function(func)

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if all(var in self.known for var in free_vars(value)) and self._symbols.issuperset(
            free_symbolic_vars(value)
        ):
            self._add(binding.var)
        super().visit_binding(binding)

    def _add(self, var: Var) -> None:
        self.known[var] = None
        self._symbols.update(definable_tir_vars_in_type(var.ty))


def computable_at_compile_time(func: Function) -> list[Var]:
    """Return the variables that depend on weights and constants alone, in their order.  Weights are
    the parameters after the first ``num_input``, an attribute of the function; without it, there
    are none."""
    collector = _Collector()
    collector.visit(func)
    return list(collector.known)
