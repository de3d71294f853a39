"""ReorderPermuteDimsAfterConcat: transpose once, after tensors are joined."""

from __future__ import annotations

from typing import Any

from .. import op
from ..analysis import get_var2val, remove_all_unused
from ..ir import (
    Binding,
    Call,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    Op,
    Tuple,
    Var,
    VarBinding,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ReorderPermuteDimsAfterConcat"]

_CONCAT = Op.get("relax.concat")
_PERMUTE = Op.get("relax.permute_dims")


class _Reorder(ExprMutator):
    def __init__(self, values: dict[Var, Expr]) -> None:
        super().__init__()
        self._values = values

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding):
            return new
        found = self._transposed(new.value)
        if found is None:
            return new
        operands, axes, axis = found
        joined = op.concat(operands, axis)
        cls = DataflowVar if self.in_dataflow else Var
        var = cls(f"{new.var.name}_joined", joined.ty)
        reverses = axes == list(range(len(axes)))[::-1]
        value = op.permute_dims(var, None if reverses else axes)
        return [VarBinding(var, joined, new.span), VarBinding(new.var, value, new.span)]

    def _transposed(self, value: Expr) -> tuple[list[Expr], list[int], int] | None:
        """The operands before they are transposed, the axes, and the axis to join along."""
        if not isinstance(value, Call) or value.op is not _CONCAT:
            return None
        packed = self._values.get(value.args[0], value.args[0])  # type: ignore[call-overload]
        if not isinstance(packed, Tuple) or len(packed.fields) < 2:
            return None
        operands: list[Expr] = []
        axes: list[int] = []
        for field in packed.fields:
            inner = self._values.get(field)  # type: ignore[call-overload]
            if not isinstance(inner, Call) or inner.op is not _PERMUTE:
                return None
            own = _axes(inner)
            if own is None or (operands and own != axes):
                return None
            axes = own
            operands.append(inner.args[0])
        axis = value.attrs["axis"]
        if axis is None:
            return None
        return operands, axes, axes[axis]


def _axes(call: Call) -> list[int] | None:
    """The axes of a permute_dims, from the front; None if the rank is not known."""
    ndim = call.args[0].ty.ndim
    if ndim < 0:
        return None
    axes = call.attrs["axes"]
    if axes is None:
        return list(range(ndim))[::-1]
    return [int(axis) % ndim for axis in axes]


def ReorderPermuteDimsAfterConcat() -> Pass:
    """Replace ``concat(permute_dims(a), permute_dims(b))`` by ``permute_dims(concat(a, b))`` where
    all are permuted in the same way: one tensor is transposed instead of several, and a product of
    matrices may take the transposed operand as it is.
    """

    @function_pass(name="ReorderPermuteDimsAfterConcat")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        new = _Reorder(get_var2val(func)).visit(func)
        return func if new is func else remove_all_unused(new)

    return run
