"""DecomposeOpsForInference: operators that are made of others."""

from __future__ import annotations

from typing import Any, Final

from .. import op
from ..dpl.replacing import bindings_for
from ..errors import did_you_mean
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    IRModule,
    MatchCast,
    Op,
    ShapeExpr,
    ShapeType,
    Tuple,
    Var,
    VarBinding,
    const,
)
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["DecomposeOpsForInference"]

_BATCH_NORM: Final = Op.get("relax.nn.batch_norm")
_TENSOR_TO_SHAPE: Final = Op.get("relax.tensor_to_shape")
_CALL_PURE_PACKED: Final = Op.get("relax.call_pure_packed")


def _along(vector: Expr, ndim: int, axis: int) -> Any:
    """A vector of channels, with dimensions of 1 for the other axes."""
    return op.expand_dims(vector, [i for i in range(ndim) if i != axis % ndim])


def _batch_norm(call: Call) -> Expr:
    data, gamma, beta, mean, variance = call.args
    ty: Any = data.ty
    ndim, axis = ty.ndim, call.attrs["axis"]
    shifted = op.subtract(data, _along(mean, ndim, axis))
    epsilon = const(call.attrs["epsilon"], ty.dtype)
    out = op.divide(shifted, op.sqrt(op.add(_along(variance, ndim, axis), epsilon)))
    if call.attrs["scale"]:
        out = op.multiply(out, _along(gamma, ndim, axis))
    if call.attrs["center"]:
        out = op.add(out, _along(beta, ndim, axis))
    return Tuple([out, mean, variance])


def _is_known(data: Any) -> bool:
    return data.ty.ndim >= 0 and data.ty.dtype is not None


class _Decomposer(ExprMutator):
    def __init__(self) -> None:
        super().__init__()
        self._in_dataflow = False

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer, self._in_dataflow = self._in_dataflow, isinstance(block, DataflowBlock)
        new = super().visit_block(block)
        self._in_dataflow = outer
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or not isinstance(new.value, Call):
            return new
        call = new.value
        if call.op is _TENSOR_TO_SHAPE:
            return self._shape(new, call)
        if call.op is not _BATCH_NORM or not _is_known(call.args[0]):
            return new
        made = bindings_for(_batch_norm(call), new, self._in_dataflow)
        if made[-1].var is not binding.var:
            self.var_map[binding.var] = made[-1].var
        return made

    def _shape(self, binding: VarBinding, call: Call) -> Binding | list[Binding]:
        ty = call.ty
        assert isinstance(ty, ShapeType)
        if ty.ndim < 0:
            return binding
        cls = DataflowVar if self._in_dataflow else Var
        # The builtin returns a shape, whose dimensions get names by a cast.
        builtin = ExternFunc("vm.builtin.tensor_to_shape")
        packed = Call(_CALL_PURE_PACKED, [builtin, *call.args], ty_args=[ty])
        found = cls("lv", ty)
        dims = [Var("x", "int64") for _ in range(ty.ndim)]
        named = ShapeType(dims)
        value = ShapeExpr(dims)
        return [
            VarBinding(found, self.infer(packed), binding.span),
            MatchCast(cls("y", named), found, named, binding.span),
            self.rebind(binding, value),
        ]


def DecomposeOpsForInference(func_name: str | None = None) -> Pass:
    """Replace batch normalization by elementwise operators on its moving mean and variance, whether
    its attribute ``training`` is set or not, and `tensor_to_shape` by a call of the builtin and a
    cast that names the dimensions.

    Args:
        func_name: the function; None for all.

    Raises:
        ValueError: there is no such function.
    """

    @module_pass(name="DecomposeOpsForInference")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        if func_name is not None and func_name not in mod:
            names = [var.name_hint for var in mod]
            raise ValueError(
                f"DecomposeOpsForInference: the module has no function {func_name!r}"
                f"{did_you_mean(func_name, names)}"
            )
        result = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and func_name in (None, var.name_hint):
                result[var] = _Decomposer().visit(func)
        return result

    return run
