"""ComputeInFloat32: what is stored in float16 or bfloat16 is computed in float32."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from .. import op
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ._replacing import replace_functions
from .dead_code_elimination import DeadCodeElimination
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["ComputeInFloat32"]

_KNOWN: Final = ("float16", "bfloat16")
_SINGLE: Final = "float32"


def _operators(names: str) -> frozenset[str]:
    return frozenset(f"relax.{name}" for name in names.split())


_COMPUTES: Final = _operators(
    "abs acos acosh add argmax argmin asin asinh atan atan2 atanh ceil clip cos cosh cumprod "
    "cumsum divide einsum equal erf ewise_fma exp expm1 floor floor_divide floor_mod greater "
    "greater_equal image.grid_sample image.resize image.resize2d image.resize3d isfinite isinf "
    "isnan less less_equal log log1p log_add_exp matmul max maximum mean median min minimum mod "
    "multiply negative nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d "
    "nn.attention nn.attention_bias nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_norm "
    "nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose "
    "nn.cross_entropy_with_logits nn.gelu nn.gelu_tanh nn.group_norm nn.gru nn.instance_norm "
    "nn.layer_norm nn.leakyrelu nn.log_softmax nn.lstm nn.max_pool1d nn.max_pool2d nn.max_pool3d "
    "nn.prelu nn.relu nn.rms_norm nn.rnn nn.selu nn.silu nn.softmax nn.softplus not_equal outer "
    "power prod round rsqrt sigmoid sign sin sinh sqrt square std subtract sum tan tanh trunc "
    "variance vision.roi_align vision.roi_pool"
)
"""Operators that are computed in float32."""

_MOVES: Final = _operators(
    "broadcast_to concat expand_dims flatten flip gather_elements gather_nd index_tensor "
    "layout_transform nn.batch_flatten nn.pad nn.pixel_shuffle nn.pixel_unshuffle permute_dims "
    "repeat reshape reverse_sequence split squeeze stack strided_slice take tile tril triu where"
)
"""Operators that move values.  They take what was computed in float32 as it is, and leave what is
stored in fewer bits so: a cache that grows, or a table of which few rows are used."""

_ATTRIBUTES: Final = ("dtype", "out_dtype")
"""Attributes that are the data type of the result."""


class _Rewriter(ExprMutator):
    """Gives variables of 16 bits twins: the same value in float32, before it is rounded."""

    def __init__(self, halves: frozenset[str]) -> None:
        super().__init__()
        self._halves = halves
        self._twins: dict[Var, Expr] = {}
        self._constants: dict[int, tuple[Constant, Constant]] = {}
        self._emitted: list[Binding] = []
        self._span: Any = None

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer = dict(self._twins)
        new = super().visit_seq(seq)
        self._twins = outer
        return new

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        new = super().visit_block(block)
        # Those of this block cannot be used after it.
        self._twins = {
            var: twin for var, twin in self._twins.items() if not isinstance(twin, DataflowVar)
        }
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        outer, self._emitted, self._span = self._emitted, [], binding.span
        new = self._rewritten(binding)
        if new is None:
            found = super().visit_binding(binding)
            new = found if isinstance(found, list) else [found]
        all_, self._emitted = [*self._emitted, *new], outer
        return all_[0] if len(all_) == 1 else all_

    def _rewritten(self, binding: Binding) -> list[Binding] | None:
        """The bindings in place of one; None to keep it."""
        value, var = binding.value, binding.var
        if isinstance(binding, MatchCast):
            if not (isinstance(value, Var) and value in self._twins and self._is_half(binding.ty)):
                return None
            twin = self._new(var, _single(binding.ty))
            cast = MatchCast(twin, self._twins[value], twin.ty, binding.span)
            return [cast, self._rounded(binding, twin)]
        if isinstance(value, Var) and value in self._twins:
            self._twins[var] = self._twins[value]
            return None
        if isinstance(value, TupleGetItem):
            whole = value.tuple_value
            if not (isinstance(whole, Var) and whole in self._twins and self._is_half(var.ty)):
                return None
            return self._computed(binding, TupleGetItem(self._twins[whole], value.index))
        if isinstance(value, Call) and isinstance(value.op, Op):
            return self._call(binding, value)
        return None

    def _call(self, binding: Binding, call: Call) -> list[Binding] | None:
        assert isinstance(call.op, Op)
        name, args = call.op.name, call.args
        if name == "relax.astype":
            twin = self._twins.get(args[0]) if isinstance(args[0], Var) else None
            if twin is None or binding.var.ty.dtype not in (_SINGLE, "float64"):
                return None
            new = self.infer(Call(call.op, [twin], call.attrs, call.ty_args, span=call.span))
            return [self.rebind(binding, new)]
        halves = [each for arg in args for each in _tensors(arg) if self._is_half(each.ty)]
        if not halves:
            return None
        if name in _MOVES:
            if not all(isinstance(each, Var) and each in self._twins for each in halves):
                return None
        elif name not in _COMPUTES:
            return None
        if not all(map(self._is_known, args)):
            return None
        new_args = [self._single_of(arg) for arg in args]
        attrs: Any = call.attrs
        changed = {
            key: _SINGLE for key in _ATTRIBUTES if str(attrs.get(key, "")) in self._halves
        }
        if changed:
            attrs = {**attrs, **changed}
        new = self.infer(Call(call.op, new_args, attrs, call.ty_args, span=call.span))
        return self._computed(binding, new)

    def _computed(self, binding: Binding, new: Expr) -> list[Binding]:
        """Bind a value that is computed in float32: to a twin, which is rounded, unless it is of
        another data type, as what a comparison finds is."""
        var = binding.var
        if not any(map(self._is_half, _types(var.ty))):
            return [self.rebind(binding, new)]
        twin = self._new(var, new.ty)
        return [VarBinding(twin, new, binding.span), *self._rounded_all(binding, twin)]

    def _rounded_all(self, binding: Binding, twin: Var) -> list[Binding]:
        if not isinstance(twin.ty, TupleType):
            return [self._rounded(binding, twin)]
        self._twins[binding.var] = twin
        bindings: list[Binding] = []
        fields: list[Expr] = []
        for index, (ty, own) in enumerate(zip(twin.ty.fields, binding.var.ty.fields, strict=True)):
            field = self._new(binding.var, ty)
            bindings.append(VarBinding(field, TupleGetItem(twin, index), binding.span))
            if self._is_half(own):
                rounded = self._new(binding.var, own)
                bindings.append(VarBinding(rounded, op.astype(field, own.dtype), binding.span))
                field = rounded
            fields.append(field)
        return [*bindings, self.rebind(binding, Tuple(fields))]

    def _rounded(self, binding: Binding, twin: Var) -> Binding:
        self._twins[binding.var] = twin
        return self.rebind(binding, op.astype(twin, binding.var.ty.dtype))

    def _new(self, var: Var, ty: Any) -> Var:
        """A variable beside another one, which is used in the same places."""
        return (DataflowVar if self.in_dataflow else Var)(var.name, ty, var.span)

    def _single_of(self, arg: Expr) -> Expr:
        """An operand in float32."""
        if isinstance(arg, Tuple):
            return Tuple([self._single_of(field) for field in arg.fields], span=arg.span)
        if not self._is_half(arg.ty):
            kept: Expr = self.visit(arg)
            return kept
        if isinstance(arg, Constant):
            found = self._constants.get(id(arg.data))
            if found is None:
                data = arg.data.astype(np.float32)
                data.flags.writeable = False
                found = self._constants[id(arg.data)] = (arg, Constant(data))
            return found[1]
        assert isinstance(arg, Var)
        twin = self._twins.get(arg)
        if twin is None:
            twin = self._new(arg, _single(arg.ty))
            self._emitted.append(VarBinding(twin, op.astype(self.visit(arg), _SINGLE), self._span))
            self._twins[arg] = twin
        return twin

    def _is_half(self, ty: Any) -> bool:
        return isinstance(ty, TensorType) and ty.dtype in self._halves

    def _is_known(self, arg: Expr) -> bool:
        """Whether an operand is a variable, a constant or a tuple of such, or has nothing of 16
        bits."""
        if isinstance(arg, Tuple):
            return all(map(self._is_known, arg.fields))
        if isinstance(arg.ty, TupleType):
            return not any(map(self._is_half, arg.ty.fields))
        return isinstance(arg, (Var, Constant)) or not self._is_half(arg.ty)


def _types(ty: Any) -> Sequence[Any]:
    return ty.fields if isinstance(ty, TupleType) else [ty]


def _single(ty: Any) -> TensorType:
    """A tensor type with float32 in place of its data type."""
    return TensorType.of(ty.shape, _SINGLE, ty.vdevice, ty.ndim)


def _tensors(arg: Expr) -> Iterable[Expr]:
    if isinstance(arg, Tuple):
        for field in arg.fields:
            yield from _tensors(field)
    else:
        yield arg


def ComputeInFloat32(dtypes: Iterable[str] = _KNOWN) -> Pass:
    """Compute in float32 what is stored in float16 or bfloat16.

    Operators that compute, such as products, convolutions, pools, norms and what is done for each
    element, take operands in float32, and their results are rounded where they are stored: where
    they are returned, go into other functions or branches, or are used by an operator that is left
    as it is.  Between operators they are not rounded, so results are nearer to those of exact
    numbers, and do not overflow at 65504.  Constants become float32.  Operators that move values
    take what was computed in float32; what nothing has computed, such as a cache or a table of
    embeddings, stays as it is.  A cast to float16 in the program rounds, as before.

    Kernels compute in float32 anyway; without the pass, each one converts its operands and its
    result.  ONNX Runtime's CPU provider does the same.

    Args:
        dtypes: which data types, "float16" and "bfloat16".

    Raises:
        ValueError: there is another one among them.
    """
    halves = frozenset((dtypes,) if isinstance(dtypes, str) else dtypes)
    if not halves <= frozenset(_KNOWN):
        wrong = ", ".join(sorted(map(repr, halves - frozenset(_KNOWN))))
        raise ValueError(
            f"ComputeInFloat32: dtypes: expected 'float16' and 'bfloat16', got {wrong}"
        )

    def rewritten(func: Function) -> Function:
        new: Function = _Rewriter(halves).visit(func)
        return new

    @module_pass(name="ComputeInFloat32")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions = {
            var: new
            for var, func in mod.functions.items()
            if isinstance(func, Function) and (new := rewritten(func)) is not func
        }
        if not functions:
            return mod
        return DeadCodeElimination()(replace_functions(mod, functions))

    return run
