"""DecomposeOpsForInference, DecomposeOpsForTraining: operators that are made of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .. import op
from ..dpl.replacing import bindings_for
from ..errors import did_you_mean
from ..ir import (
    Binding,
    Call,
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
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["DecomposeOpsForInference", "DecomposeOpsForTraining"]

_BATCH_NORM: Final = Op.get("relax.nn.batch_norm")
_LAYER_NORM: Final = Op.get("relax.nn.layer_norm")
_TENSOR_TO_SHAPE: Final = Op.get("relax.tensor_to_shape")
_CALL_PURE_PACKED: Final = Op.get("relax.call_pure_packed")


Bind = Callable[[Expr], Var]
"""Binds a value to a variable, before what the rule returns."""
Rule = Callable[[Call, Bind], Expr]


def _along(vector: Expr, ndim: int, axis: int) -> Any:
    """A vector of channels, with dimensions of 1 for the other axes."""
    return op.expand_dims(vector, [i for i in range(ndim) if i != axis % ndim])


def _batch_norm(call: Call, bind: Bind) -> Expr:
    mean, variance = call.args[3:]
    return Tuple([_normalized(call, mean, variance), mean, variance])


def _batch_norm_in_training(call: Call, bind: Bind) -> Expr:
    """With the mean and variance of the batch, which the moving ones are moved towards."""
    data, _, _, *old = call.args
    ty: Any = data.ty
    axis, momentum = call.attrs["axis"] % ty.ndim, call.attrs["momentum"]
    others = [i for i in range(ty.ndim) if i != axis]
    own = [bind(op.mean(data, others)), bind(op.variance(data, others))]
    inner = bind(Tuple([_normalized(call, *own), *own]))
    result = bind(TupleGetItem(inner, 0))
    kept, new = const(1 - momentum, ty.dtype), const(momentum, ty.dtype)
    moved = [
        op.add(op.multiply(kept, a), op.multiply(new, b)) for a, b in zip(old, own, strict=True)
    ]
    return Tuple([result, *moved])


def _layer_norm(call: Call, bind: Bind) -> Expr:
    data, gamma, beta = call.args
    attrs = call.attrs
    ty: Any = data.ty
    axes: Any = attrs["axes"]
    shifted = op.subtract(data, op.mean(data, axes, keepdims=True))
    spread = op.add(op.variance(data, axes, keepdims=True), const(attrs["epsilon"], ty.dtype))
    out = op.divide(shifted, op.sqrt(spread))
    if attrs["scale"]:
        out = op.multiply(out, gamma)
    result: Expr = op.add(out, beta) if attrs["center"] else out
    return result


def _normalized(call: Call, mean: Expr, variance: Expr) -> Any:
    data, gamma, beta = call.args[:3]
    ty: Any = data.ty
    ndim, axis = ty.ndim, call.attrs["axis"]
    shifted = op.subtract(data, _along(mean, ndim, axis))
    epsilon = const(call.attrs["epsilon"], ty.dtype)
    out = op.divide(shifted, op.sqrt(op.add(_along(variance, ndim, axis), epsilon)))
    if call.attrs["scale"]:
        out = op.multiply(out, _along(gamma, ndim, axis))
    if call.attrs["center"]:
        out = op.add(out, _along(beta, ndim, axis))
    return out


def _is_known(data: Any) -> bool:
    return data.ty.ndim >= 0 and data.ty.dtype is not None


_IN_INFERENCE: Final[dict[Op, Rule]] = {_BATCH_NORM: _batch_norm}
_IN_TRAINING: Final[dict[Op, Rule]] = {
    _BATCH_NORM: _batch_norm_in_training,
    _LAYER_NORM: _layer_norm,
}


class _Decomposer(ExprMutator):
    def __init__(self, rules: Mapping[Op, Rule]) -> None:
        super().__init__()
        self._rules = rules

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        new = super().visit_binding(binding)
        if not isinstance(new, VarBinding) or not isinstance(new.value, Call):
            return new
        call = new.value
        if call.op is _TENSOR_TO_SHAPE:
            return self._shape(new, call)
        rule = self._rules.get(call.op) if isinstance(call.op, Op) else None
        if rule is None or not _is_known(call.args[0]):
            return new
        cls = DataflowVar if self.in_dataflow else Var
        made: list[Binding] = []

        def bind(value: Expr) -> Var:
            var = cls("lv", self.infer(value).ty if value.ty is None else value.ty)
            made.extend(bindings_for(value, VarBinding(var, value), self.in_dataflow))
            return made[-1].var

        value = rule(call, bind)
        made += bindings_for(value, new, self.in_dataflow)
        if made[-1].var is not binding.var:
            self.var_map[binding.var] = made[-1].var
        return made

    def _shape(self, binding: VarBinding, call: Call) -> Binding | list[Binding]:
        ty = call.ty
        assert isinstance(ty, ShapeType)
        if ty.ndim < 0:
            return binding
        cls = DataflowVar if self.in_dataflow else Var
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

    return _decompose("DecomposeOpsForInference", func_name, _IN_INFERENCE)


def DecomposeOpsForTraining(func_name: str | None = None) -> Pass:
    """Replace batch normalization by operators on the mean and variance of the batch, whether its
    attribute ``training`` is set or not, and layer normalization by operators, so that a function
    has none of both; and `tensor_to_shape` as `DecomposeOpsForInference` does.

    Args:
        func_name: the function; None for all.

    Raises:
        ValueError: there is no such function.
    """
    return _decompose("DecomposeOpsForTraining", func_name, _IN_TRAINING)


def _decompose(name: str, func_name: str | None, rules: Mapping[Op, Rule]) -> Pass:
    @module_pass(name=name)
    def run(mod: IRModule, ctx: PassContext) -> Any:
        if func_name is not None and func_name not in mod:
            names = [var.name_hint for var in mod]
            raise ValueError(
                f"{name}: the module has no function {func_name!r}{did_you_mean(func_name, names)}"
            )
        result = mod.copy()
        for var, func in mod.functions.items():
            if isinstance(func, Function) and func_name in (None, var.name_hint):
                result[var] = _Decomposer(rules).visit(func)
        return result

    return run
