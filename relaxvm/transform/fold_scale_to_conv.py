"""FoldScaleToConv: numbers that scale the channels of a convolution's result scale its weight."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..executable.debug_info import FusedSpan
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    Op,
    TensorType,
    Var,
    VarBinding,
    structural_equal,
)
from ..ir.node import KINDS
from ._integers import centered
from ._uses import uses_of
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldScaleToConv"]

_OUTPUT_AXES: Final = {"OI": 0, "IO": 1}
"""The first letters of a layout of weights -> the axis of the outputs."""
_ADD: Final = Op.get("relax.add")
_SUBTRACT: Final = Op.get("relax.subtract")
_MULTIPLY: Final = Op.get("relax.multiply")
_DIVIDE: Final = Op.get("relax.divide")
_STEPS: Final = (_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE)
_CONVOLUTIONS: Final = frozenset(
    Op.get(f"relax.nn.conv{n}d{kind}") for n in (1, 2, 3) for kind in ("", "_transpose")
)
_FEWEST: Final = 2
"""Sums after a convolution that are worth to be one."""

_Numbers = NDArray[np.float64]


class _Chain(NamedTuple):
    """What is computed of the result of a convolution: ``result * scale + shift``.

    Attributes:
        bindings: the one of the convolution, and those of the steps.
        axis: of the outputs in the weight.
        scale: a number for each output, or None for ones.
        shift: a number for each output.
    """

    bindings: tuple[VarBinding, ...]
    axis: int
    scale: _Numbers | None
    shift: _Numbers

    @property
    def is_worth_it(self) -> bool:
        """Whether fewer steps do the same, with numbers of float32."""
        if self.scale is None and len(self.bindings) <= _FEWEST:
            return False
        with np.errstate(over="ignore"):
            singles = [each.astype(np.float32) for each in (self.scale, self.shift)
                       if each is not None]  # fmt: skip
        return all(bool(np.isfinite(each).all()) for each in singles)

    def bindings_in_place(self) -> list[Binding]:
        """The convolution with the scaled weight, and one sum."""
        first, last = self.bindings[0], self.bindings[-1]
        call: Any = first.value
        data, weight = call.args
        if self.scale is not None:
            shape = [1] * weight.data.ndim
            shape[self.axis] = -1
            scale = self.scale.reshape(shape).astype(np.float32)
            weight = Constant(weight.data * scale, weight.ty, weight.span)
        new = Call(call.op, (data, weight), call.attrs, call.ty_args, call.span, call.ty)
        parts = [(each.span, each.var.name) for each in self.bindings[1:-1]]
        place = FusedSpan.of(last.span, parts)
        shift = self.shift.astype(np.float32).reshape([1, -1] + [1] * (weight.data.ndim - 2))
        args = first.var, Constant(shift)
        total = Call(_ADD, args, span=last.value.span, ret_ty=last.value.ty)
        return [VarBinding(first.var, new, first.span), VarBinding(last.var, total, place)]


class _Folder(ExprMutator):
    def __init__(self, uses: Counter[Var]) -> None:
        super().__init__()
        self._uses = uses
        self._values: dict[Var, Expr] = {}

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        block = super().visit_block(block)  # branches and functions
        chains: dict[Var, _Chain] = {}
        for binding in block.bindings:
            self._values[binding.var] = binding.value
            chain = self._chain(binding, chains)
            if chain is not None:
                chains[binding.var] = chain
        inner = {chain.bindings[-2].var for chain in chains.values() if len(chain.bindings) > 1}
        ends = {
            var: chain for var, chain in chains.items()
            if len(chain.bindings) > 1 and var not in inner and chain.is_worth_it
        }  # fmt: skip
        if not ends:
            return block
        gone = {each.var for chain in ends.values() for each in chain.bindings[:-1]}
        bindings: list[Binding] = []
        for binding in block.bindings:
            if binding.var in ends:
                bindings += ends[binding.var].bindings_in_place()
            elif binding.var not in gone:
                bindings.append(binding)
        new: BindingBlock = KINDS[type(block)](bindings, block.span)
        return new

    def _chain(self, binding: Binding, chains: dict[Var, _Chain]) -> _Chain | None:
        call = binding.value
        if not isinstance(binding, VarBinding) or not isinstance(call, Call):
            return None
        if call.op in _CONVOLUTIONS:
            is_of_bytes = centered(self._values, call.args[0]) is not None
            return None if is_of_bytes else _begun(binding, call)
        return self._continued(binding, call, chains) if call.op in _STEPS else None

    def _continued(
        self, binding: VarBinding, call: Call, chains: dict[Var, _Chain]
    ) -> _Chain | None:
        first, second = call.args
        is_left = first in chains
        before, other = (first, second) if is_left else (second, first)
        chain = chains.get(before)  # type: ignore[call-overload]
        if chain is None or self._uses[before] != 1:  # type: ignore[index]
            return None
        numbers = _by_channel(other, before.ty, chain.shift.size)
        if numbers is None or not structural_equal(binding.var.ty, before.ty):
            return None
        scale, shift = chain.scale, chain.shift
        with np.errstate(all="ignore"):  # what is not finite is left out at the end
            if call.op is _ADD:
                shift = shift + numbers
            elif call.op is _SUBTRACT and is_left:
                shift = shift - numbers
            elif call.op is _SUBTRACT:
                scale = -np.ones_like(shift) if scale is None else -scale
                shift = numbers - shift
            elif call.op is _MULTIPLY or (is_left and numbers.all()):
                factor = numbers if call.op is _MULTIPLY else 1 / numbers
                scale, shift = factor if scale is None else scale * factor, shift * factor
            else:
                return None
        return _Chain((*chain.bindings, binding), chain.axis, scale, shift)


def _begun(binding: VarBinding, call: Call) -> _Chain | None:
    """A convolution of float32 with a constant weight, and channels as the second axis."""
    attrs: Any = call.attrs
    weight, layout = call.args[1], attrs["kernel_layout"]
    axis = _OUTPUT_AXES.get(layout[:2])
    if (
        not isinstance(weight, Constant)
        or weight.data.dtype != np.float32
        or not isinstance(binding.var.ty, TensorType)
        or binding.var.ty.dtype != "float32"
        or axis is None
        or (axis and attrs["groups"] != 1)
        or attrs["data_layout"][:2] != "NC"
        or attrs["out_layout"] not in ("", None, attrs["data_layout"])
    ):
        return None
    return _Chain((binding,), axis, None, np.zeros(weight.data.shape[axis]))


def _by_channel(expr: Expr, ty: Any, channels: int) -> _Numbers | None:
    """A constant operand as a number for each channel; None if it is something else."""
    if not isinstance(expr, Constant) or expr.data.dtype != np.float32:
        return None
    shape = expr.data.shape
    if len(shape) > ty.ndim:
        return None
    whole = [1] * (ty.ndim - len(shape)) + list(shape)
    if whole[1] not in (1, channels) or any(n != 1 for n in (whole[0], *whole[2:])):
        return None
    return np.broadcast_to(expr.data.reshape(-1), channels).astype(np.float64)


def FoldScaleToConv() -> Pass:
    """Replace what is multiplied with, added to, or subtracted from the channels of a convolution's
    result, all of it constant, by a scaled weight and one addition.

    It applies to float32, channels as the second axis, and results that nothing else uses.  A
    product of bytes stays as it is: its weight is integers.

    Why: exporters write normalizations so that have been trained; one sum is part of the
    convolution's kernel.
    """

    @function_pass(name="FoldScaleToConv")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        return _Folder(uses_of(func)).visit(func)

    return run
