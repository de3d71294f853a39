"""ToMixedPrecision: compute products and convolutions in float16."""

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
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    ExprVisitor,
    Function,
    IRModule,
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
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["ToMixedPrecision"]

_HALF: Final = "float16"
_SINGLE: Final = "float32"
_LARGEST_HALF: Final = 65504


def _operators(names: str) -> frozenset[str]:
    return frozenset(f"relax.{name}" for name in names.split())


_ALWAYS: Final = _operators(
    "matmul outer nn.attention nn.attention_bias nn.attention_var_len nn.conv1d "
    "nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose"
)
"""Operators that are computed in float16."""

_FOLLOW: Final = _operators(
    "abs acos acosh add arange asin asinh astype atan atan2 atanh bitwise_and bitwise_not "
    "bitwise_or bitwise_xor broadcast_to ceil concat cos cosh divide dynamic_strided_slice equal "
    "erf ewise_fma exp expand_dims eye flatten floor floor_divide floor_mod full full_like greater "
    "greater_equal hamming_window image.affine_grid image.grid_sample image.resize2d "
    "image.resize3d isfinite isinf isnan layout_transform left_shift less less_equal log "
    "log_add_exp logical_and logical_not logical_or logical_xor maximum meshgrid minimum mod "
    "multiply negative nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d "
    "nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.batch_flatten nn.dropout nn.gelu nn.gelu_tanh "
    "nn.group_norm nn.instance_norm nn.layer_norm nn.max_pool1d nn.max_pool2d nn.max_pool3d "
    "nn.relu nn.rms_norm nn.selu nn.silu not_equal ones permute_dims power reshape right_shift "
    "round rsqrt sigmoid sign sin sinh split sqrt square squeeze stack strided_slice subtract tan "
    "tanh trunc vision.roi_align vision.roi_pool zeros"
)
"""Operators that are computed in float16 if all operands are in float16, and in float32 if not.
The others, such as softmax, which is not exact enough in float16, keep their data types."""

_WRAP_PARAM: Final = Op.get("relax.wrap_param")

Dtypes = str | tuple["Dtypes", ...]
"""A data type for each tensor of a value; "" where any will do."""


def _is_tensors(ty: Any) -> bool:
    if isinstance(ty, TupleType):
        return all(map(_is_tensors, ty.fields))
    return isinstance(ty, TensorType)


def _dtypes(ty: Any, dtype: str | None = None) -> Dtypes:
    """The data types of a value, or `dtype` for each of its tensors."""
    if isinstance(ty, TupleType):
        return tuple([_dtypes(field, dtype) for field in ty.fields])
    if not isinstance(ty, TensorType):
        return ""
    return (ty.dtype or "") if dtype is None else dtype


def _wider(a: Dtypes, b: Dtypes) -> Dtypes:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(_wider, a, b))
    return _SINGLE if _SINGLE in (a, b) else a or b


def _stored(own: Dtypes, needed: Dtypes) -> Dtypes:
    """The data types in which a value is kept: float16 where nothing needs more."""
    if isinstance(own, tuple) and isinstance(needed, tuple):
        return tuple(map(_stored, own, needed))
    return needed if needed == _HALF else own


class _Needs(ExprVisitor):
    """Finds out, from the end of a function to its beginning, what its dataflow blocks need
    variables in: float16 if they are only operands of products, else float32."""

    def __init__(self) -> None:
        self.of: dict[Var, Dtypes] = {}

    def visit_seq(self, seq: SeqExpr) -> None:
        self.visit(seq.body)
        for block in reversed(seq.blocks):
            if isinstance(block, DataflowBlock):
                for binding in reversed(block.bindings):
                    self.visit_binding(binding)

    def visit_var(self, var: Var) -> None:
        if _is_tensors(var.ty):
            self._need(var, _dtypes(var.ty, _SINGLE))

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        here = self.of.get(binding.var) or _dtypes(binding.var.ty, "")
        if not isinstance(binding, VarBinding):
            super().visit_binding(binding)
        elif isinstance(value, Call) and isinstance(value.op, Op):
            dtype = _HALF if value.op.name in _ALWAYS else _SINGLE
            for arg in value.args:
                if _is_tensors(arg.ty):
                    self._need(arg, _dtypes(arg.ty, dtype))
        elif isinstance(value, Tuple):
            for field, need in zip(value.fields, here, strict=True):
                self._need(field, need)
        elif isinstance(value, TupleGetItem):
            whole = value.tuple_value
            needs = [_dtypes(field, "") for field in whole.ty.fields]
            needs[value.index] = here
            self._need(whole, tuple(needs))
        else:
            super().visit_binding(binding)

    def _need(self, expr: Expr, dtypes: Dtypes) -> None:
        if isinstance(expr, Tuple):
            for field, need in zip(expr.fields, dtypes, strict=True):
                self._need(field, need)
        elif isinstance(expr, Var):
            self.of[expr] = _wider(self.of[expr], dtypes) if expr in self.of else dtypes


class _Rewriter(ExprMutator):
    """Rewrites dataflow blocks from the beginning to the end.  `var_map` holds what a variable is
    kept as; where another data type is needed, it is cast there."""

    def __init__(self, needs: dict[Var, Dtypes], out_dtype: str, inputs: frozenset[str]) -> None:
        super().__init__()
        self._needs = needs
        self._out_dtype = out_dtype
        self._inputs = inputs
        self._params: Sequence[Var] = ()
        self._in_dataflow = False
        self._emitted: list[Binding] = []
        self._span: Any = None
        self._before: dict[Var, Expr | None] = {}
        """What parameters and outputs were kept as before their copies of this dataflow block."""

    def visit_function(self, func: Function) -> Expr:
        outer, self._params = self._params, func.params
        new: Expr = super().visit_function(func)
        self._params = outer
        return new

    def visit_var_def(self, var: Var) -> Var:
        ty = var.ty
        if var.name not in self._inputs or var not in self._params or type(ty) is not TensorType:
            return var
        return Var(var.name, TensorType.of(ty.shape, _HALF, ty.vdevice, ty.ndim), var.span)

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        outer, self._emitted = self._emitted, []
        new = super().visit_seq(seq)
        if self._emitted:
            blocks = [*new.blocks, BindingBlock(self._emitted)]
            new = SeqExpr(blocks, new.body, span=seq.span)
        self._emitted = outer
        return new

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer = self._in_dataflow, self._emitted, self._before
        self._in_dataflow, self._emitted, self._before = isinstance(block, DataflowBlock), [], {}
        if self._in_dataflow:
            for param in self._params:
                self._keep(param)
        first = self._emitted
        new = super().visit_block(block)
        if first:
            new = DataflowBlock([*first, *new.bindings], block.span)
        for var, before in self._before.items():
            if before is None:
                del self.var_map[var]
            else:
                self.var_map[var] = before
        self._in_dataflow, self._emitted, self._before = outer
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        outer, self._emitted, self._span = self._emitted, [], binding.span
        new = self._rewritten(binding) if self._in_dataflow else super().visit_binding(binding)
        assert isinstance(new, Binding)
        if not self._emitted and not self._in_dataflow:
            self._emitted = outer
            return new
        self._emitted.append(new)
        if self._in_dataflow:
            self._keep(binding.var)
        all_, self._emitted = self._emitted, outer
        return new if len(all_) == 1 else all_

    def _keep(self, var: Var) -> None:
        """Keep a variable in float16 if nothing in dataflow blocks needs more."""
        needed = self._needs.get(var)
        if needed is None:
            return
        now = self.var_map.get(var, var)
        new = self._cast(now, _stored(_dtypes(now.ty), needed))
        if new is not now:
            if not isinstance(var, DataflowVar):
                self._before[var] = self.var_map.get(var)
            self.var_map[var] = self._bound(new)

    def visit_var(self, var: Var) -> Expr:
        now = self.var_map.get(var)
        if now is None:
            return var
        if not _is_tensors(var.ty):
            return now
        return self._bound(self._cast(now, _dtypes(var.ty)))

    def _rewritten(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        is_output = not isinstance(binding.var, DataflowVar)
        if not isinstance(binding, VarBinding):
            return super().visit_binding(binding)
        if isinstance(value, Call) and isinstance(value.op, Op):
            new = self._call(value, binding.var)
            return binding if new is value else self.rebind(binding, new)
        if isinstance(value, Var) and _is_tensors(value.ty):
            new = self._cast(self._kept(value), _dtypes(value.ty))
        elif isinstance(value, Tuple):
            new = self._kept(value)
        elif isinstance(value, TupleGetItem):
            whole = self._kept(value.tuple_value)
            new = value if whole is value.tuple_value else TupleGetItem(whole, value.index)
        else:
            return super().visit_binding(binding)
        if is_output and _is_tensors(new.ty):
            new = self._cast(new, _dtypes(binding.var.ty))
        return binding if new is value else self.rebind(binding, new)

    def _call(self, call: Call, var: Var) -> Expr:
        args = [self._kept(arg) for arg in call.args]
        assert isinstance(call.op, Op)
        name, attrs = call.op.name, call.attrs
        if call.op is _WRAP_PARAM:
            return args[0]
        if name in _ALWAYS:
            dtype = _HALF
            if "out_dtype" in attrs:
                attrs = {**attrs, "out_dtype": self._out_dtype}  # type: ignore[assignment]
        elif name in _FOLLOW:
            dtype = _HALF if all(map(_is_half, args)) else _SINGLE
        else:
            args = [
                self._operand(arg, _dtypes(old.ty))
                for arg, old in zip(args, call.args, strict=True)
            ]
            return self._same_or_new(call, args, attrs)
        args = [self._operand(arg, _dtypes(arg.ty, dtype)) for arg in args]
        new = self._same_or_new(call, args, attrs)
        if not _is_tensors(new.ty):
            return new
        if not isinstance(var, DataflowVar):
            return self._cast(new, _dtypes(var.ty))
        return self._cast(new, _dtypes(new.ty, _HALF)) if name in _ALWAYS else new

    def _same_or_new(self, call: Call, args: list[Expr], attrs: Any) -> Expr:
        if attrs is call.attrs and all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        return self.infer(Call(call.op, args, attrs, call.ty_args, span=call.span))

    def _kept(self, expr: Expr) -> Expr:
        """An operand, with what its variables are kept as."""
        if isinstance(expr, Tuple):
            fields = [self._kept(field) for field in expr.fields]
            same = all(a is b for a, b in zip(fields, expr.fields, strict=True))
            return expr if same else Tuple(fields, span=expr.span)
        if isinstance(expr, Var):
            return self.var_map.get(expr, expr)
        return expr

    def _operand(self, arg: Expr, dtypes: Dtypes) -> Expr:
        return self._bound(self._cast(arg, dtypes)) if _is_tensors(arg.ty) else arg

    def _cast(self, expr: Expr, dtypes: Dtypes) -> Expr:
        """Cast tensors of float16 and float32; `expr` itself if there is nothing to do."""
        ty = expr.ty
        if isinstance(ty, TensorType):
            if ty.dtype == dtypes or ty.dtype not in (_HALF, _SINGLE):
                return expr
            return op.astype(self._bound(expr), dtypes)  # type: ignore[no-any-return]
        if not isinstance(ty, TupleType) or not _changes(ty, dtypes):
            return expr
        if not isinstance(expr, Tuple):
            expr = self._bound(expr)
        items = expr.fields if isinstance(expr, Tuple) else [
            TupleGetItem(expr, index) for index in range(len(ty.fields))
        ]  # fmt: skip
        fields = [self._cast(item, dtype) for item, dtype in zip(items, dtypes, strict=True)]
        return Tuple([self._bound(field) for field in fields])

    def _bound(self, expr: Expr) -> Expr:
        """An operand of a call that has the value: a variable if it is none yet."""
        if isinstance(expr, (Var, Constant)):
            return expr
        if isinstance(expr, Tuple):
            return expr
        new = (DataflowVar if self._in_dataflow else Var)("lv", expr.ty)
        self._emitted.append(VarBinding(new, expr, self._span))
        return new


def _changes(ty: Any, dtypes: Dtypes) -> bool:
    if isinstance(ty, TupleType):
        return any(map(_changes, ty.fields, dtypes))
    return isinstance(ty, TensorType) and ty.dtype in (_HALF, _SINGLE) and ty.dtype != dtypes


def _is_half(arg: Expr) -> bool:
    """Whether an operand is in float16, or a constant that may be."""
    if isinstance(arg, Tuple) and _is_tensors(arg.ty):
        return all(map(_is_half, arg.fields))
    if isinstance(arg, Constant) and arg.data.dtype.kind in "if":
        data = arg.data
        return data.dtype == np.float16 or bool(np.all(np.abs(data) <= _LARGEST_HALF))
    ty = arg.ty
    return not _is_tensors(ty) or (isinstance(ty, TensorType) and ty.dtype == _HALF)


def ToMixedPrecision(
    out_dtype: str = _SINGLE, fp16_input_names: Iterable[str] | None = None
) -> Pass:
    """In dataflow blocks, compute products of matrices, convolutions and attention on operands of
    float16.

    Other operators follow: they are computed in float16 if all their operands are in float16 or
    are constants in its range, else in float32.  Operators that are not exact enough in
    float16 keep their data types.  A variable is kept in float16 if it is an operand of products
    alone.  Results of functions and of dataflow blocks keep their data types.

    Args:
        out_dtype: the data type in which products are accumulated: "float32" or "float16".
        fp16_input_names: names of parameters whose data type becomes float16.

    Raises:
        ValueError: `out_dtype` is another data type.
        TypeError: a function of the module calls one whose parameters change their data types.

    Source: ``relax.transform.ToMixedPrecision`` of apache-tvm 0.27.
    """
    if out_dtype not in (_HALF, _SINGLE):
        raise ValueError(
            f"ToMixedPrecision: out_dtype: expected float32 or float16, got {out_dtype!r}"
        )
    if isinstance(fp16_input_names, str):
        fp16_input_names = (fp16_input_names,)
    inputs = frozenset(fp16_input_names or ())

    def rewritten(func: Function) -> Function:
        needs = _Needs()
        needs.visit(func)
        new: Function = _Rewriter(needs.of, out_dtype, inputs).visit(func)
        return new

    @module_pass(name="ToMixedPrecision")
    def run(mod: IRModule, ctx: PassContext) -> Any:
        functions = {
            var: new
            for var, func in mod.functions.items()
            if isinstance(func, Function) and (new := rewritten(func)) is not func
        }
        return replace_functions(mod, functions) if functions else mod

    return run
