"""FoldQuantization: products of numbers that were quantized as products of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import op
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    TensorType,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    int_imm,
)
from ..ir.node import KINDS
from ..op.lowering import kernel_call
from ._integers import centered, op_name
from ._placing import placed
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["FoldQuantization"]

_MOST: Final = (1 << 31) - 1
_LSTM: Final = "Sigmoid;Tanh;Tanh"


class _Folder(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._values: dict[Any, Expr] = {}
        self._emitted: list[Binding] = []
        self._kind: type[Var] = Var
        self._span: Any = None

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer = self._kind, self._emitted, self._span
        self._kind = DataflowVar if isinstance(block, DataflowBlock) else Var
        bindings: list[Binding] = []
        for binding in block.bindings:
            self._emitted, self._span = [], binding.span
            if isinstance(binding, VarBinding):
                self._values[binding.var] = binding.value
                rule = _RULES.get(op_name(binding.value))
                new = None if rule is None else rule(self, binding.var, binding.value)
                if new is not None:
                    bindings += self._emitted
                    bindings.append(VarBinding(binding.var, new, binding.span))
                    continue
            found = super().visit_binding(binding)
            bindings += found if isinstance(found, list) else [found]
        self._kind, self._emitted, self._span = outer
        folded: BindingBlock = KINDS[type(block)](bindings, block.span)
        return folded

    def _emit(self, name: str, value: Expr) -> Var:
        value = self.infer(value)
        var = self._kind(name, value.ty)
        self._emitted.append(VarBinding(var, value, self._span))
        return var

    def _value(self, expr: Expr) -> Expr:
        return self._values.get(expr, expr) if isinstance(expr, Var) else expr

    def _dequantized(self, expr: Expr) -> tuple[Expr, Expr] | None:
        """Bytes less their zero point, as floats, and a number that they are multiplied by."""
        value = self._value(expr)
        if op_name(value) != "relax.multiply":
            return None
        assert isinstance(value, Call)
        for one, other in (value.args, value.args[::-1]):
            ty = other.ty
            is_number = isinstance(ty, TensorType) and ty.dims is not None and (
                not ty.dims or (isinstance(other, Constant) and other.data.size == 1)
            )  # fmt: skip
            if is_number and ty.dtype == "float32" and one.ty.dtype == "float32":
                return (one, other) if centered(self._values, one) is not None else None
        return None

    def _integers(self, expr: Expr) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Constant integers, as floats, and their scales, which broadcast to them."""
        value = self._value(expr)
        if op_name(value) == "relax.permute_dims":
            assert isinstance(value, Call)
            found = self._integers(value.args[0])
            if found is None:
                return None
            axes = value.attrs["axes"]
            order = None if axes is None else [int(axis) for axis in axes]
            integers, scales = found
            scales = scales.reshape((1,) * (integers.ndim - scales.ndim) + scales.shape)
            return integers.transpose(order), scales.transpose(order)
        if op_name(value) != "relax.multiply":
            return None
        assert isinstance(value, Call)
        one, other = map(self._value, value.args)
        if not isinstance(one, Constant) or not isinstance(other, Constant):
            return None
        integers, scales = one.data, other.data
        if integers.dtype != np.float32:
            return None
        if scales.dtype != np.float32 or scales.ndim > integers.ndim:
            return None
        return (integers, scales) if np.array_equal(integers, np.rint(integers)) else None

    def _product(self, var: Var, call: Call) -> Expr | None:
        """The scales of both operands multiply the result."""
        x, weight = call.args
        data, found = self._dequantized(x), self._integers(weight)
        if data is None or found is None or var.ty.dtype != "float32":
            return None
        integers, scales = found
        is_matmul = op_name(call) == "relax.matmul"
        if is_matmul and integers.ndim != 2:
            return None
        if not is_matmul and call.attrs["groups"] not in (1, len(integers)):
            return None
        axis = 1 if is_matmul else 0
        outputs = integers.shape[axis]
        whole = (1,) * (integers.ndim - scales.ndim) + scales.shape
        if any(length != 1 for i, length in enumerate(whole) if i != axis):
            return None
        if whole[axis] not in (1, outputs):
            return None
        by_output: NDArray[Any] = scales.reshape(-1)
        if not is_matmul and len(by_output) > 1:
            by_output = by_output.reshape(-1, *[1] * (integers.ndim - 2))
        values, scale = data
        exact = Constant(placed(np.array(integers, order="C")))
        name = var.name
        attrs = {**call.attrs}
        product = self._emit(name, Call(call.op, [self.visit(values), exact], attrs, call.ty_args))
        if by_output.size == 1:
            by_output = by_output.reshape(())
        factor: Expr
        if isinstance(scale, Constant):
            factor = Constant(np.asarray(by_output * scale.data.reshape(()), np.float32))
        else:
            factor = self._emit(name, op.multiply(self.visit(scale), Constant(by_output)))
        return self.infer(op.multiply(product, factor))

    def _lstm(self, var: Var, call: Call) -> Expr | None:
        """Long short-term memory of quantized states, without lengths."""
        attrs: Any = call.attrs
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        found = [self._integers(arg) for arg in call.args[1:3]]
        x, bias, states = call.args[0], call.args[3], call.args[4:]
        ty = x.ty
        if (
            not attrs["quantized"]
            or len(states) != 2
            or None in found
            or not isinstance(bias, Constant)
            or bias.data.dtype != np.float32
            or attrs["activations"] != ";".join([_LSTM] * directions)
            or attrs["clip"] is not None
            or attrs["input_forget"]
            or not isinstance(ty, TensorType)
            or ty.dims is None
            or ty.dtype != "float32"
            or not isinstance(var.ty, TupleType)
            or any(isinstance(dim, IntImm) and dim.value == 0 for dim in ty.dims)
        ):
            return None
        from ..kernels.integers import gates_in_blocks, pack_integer_gates

        packed = []
        for pair in found:
            assert pair is not None
            integers, scales = pair
            if integers.ndim != 3 or not integers.size or len(integers) != directions:
                return None
            if np.abs(integers).sum(2).max() * 255 > _MOST:
                return None
            parts = pack_integer_gates(integers.astype(np.int64))
            whole = (1,) * (3 - scales.ndim) + scales.shape
            if parts is None or whole[2] != 1:
                return None
            of_rows = np.broadcast_to(scales.reshape(whole)[:, :, 0], integers.shape[:2])
            packed.append((parts, gates_in_blocks(np.ascontiguousarray(of_rows))))
        (given, given_scales), (recurrence, recurrence_scales) = packed
        total = bias.data.reshape(directions, 2, -1).astype(np.float64).sum(1).astype(np.float32)
        name, none = var.name, self._emit("none", op.null_value())
        source = self.visit(x)
        numbers = TupleType([TensorType([], "float32"), TensorType([], "uint8")])
        both = self._emit(name, kernel_call("quantization_range", (source, none), numbers))
        scale, zero = (self._emit(name, TupleGetItem(both, i)) for i in range(2))
        bytes_ty = TensorType(list(ty.dims), "uint8", ty.vdevice)
        quantized = self._emit(
            name, kernel_call("quantize_bytes", (source, scale, zero), bytes_ty)
        )
        factor = self._emit(name, op.multiply(scale, Constant(given_scales)))
        inputs = [
            quantized, zero, Constant(placed(given.weight)), Constant(placed(given.sums)),
            given.shift, none, factor, Constant(gates_in_blocks(total)), none, none, none,
        ]  # fmt: skip
        columns = TensorType([*ty.dims[:2], int_imm(len(given.sums))], "float32", ty.vdevice)
        products = self._emit(name, kernel_call("nn.integer_linear_blocks", inputs, columns))
        rest = [
            products, Constant(placed(recurrence.weight)), Constant(placed(recurrence.sums)),
            recurrence.shift, Constant(recurrence_scales), *map(self.visit, states),
            attrs["direction"],
        ]  # fmt: skip
        return kernel_call("nn.integer_lstm_blocks", rest, var.ty)


_RULES: Final[dict[str, Callable[[_Folder, Var, Any], Expr | None]]] = {
    "relax.matmul": _Folder._product,
    "relax.nn.conv1d": _Folder._product,
    "relax.nn.conv2d": _Folder._product,
    "relax.nn.lstm": _Folder._lstm,
}


def FoldQuantization() -> Pass:
    """Multiply integers, and then by scales, where a program multiplies numbers that were made of
    bytes: ``(x - zero) * scale``.

    ``matmul`` and convolutions of such a tensor and such a constant become those of the integers,
    whose result is multiplied by both scales.  `PackLinear` and `BlockConvolutions` have kernels
    for them.  ``nn.lstm`` of quantized states and constant weights becomes a call of the kernel
    ``nn.integer_lstm_blocks``.

    Results differ by rounding.  Requires that constants are not folded yet: weights are to be seen
    as products of integers and scales.
    """

    @function_pass(name="FoldQuantization")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if func.attrs.get("Primitive"):
            return func
        return _Folder().visit(func)

    return run
