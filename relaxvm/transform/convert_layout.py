"""ConvertLayout: convolutions on data whose axes are in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    IRModule,
    MatchCast,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
)
from ._layouts import Desired, Layouts, Rewriting, Rule, initial, rule_of
from .pass_infra import Pass, PassContext, dataflowblock_pass

__all__ = ["ConvertLayout"]


class LayoutConverter(ExprMutator):
    """Rewrites a dataflow block from its beginning to its end.  A variable of the block is kept in
    the layout that its value was computed in; it is transposed where another one is needed."""

    def __init__(self, desired: Desired, choose: Callable[[Call], Desired] | None) -> None:
        super().__init__()
        self._desired = desired
        self._choose = choose
        self._layouts: dict[Var, Layouts] = {}
        self._emitted: list[Binding] = []
        self._span: Any = None

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return block
        return super().visit_block(block)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        self._emitted, self._span = [], binding.span
        new = self._rewritten(binding)
        if not self._emitted:
            return new
        return [*self._emitted, new]

    def visit_var(self, var: Var) -> Expr:
        return self.bound(self._in(var, initial(var.ty)))

    def _rewritten(self, binding: Binding) -> Binding:
        value, var = binding.value, binding.var
        hidden = isinstance(var, DataflowVar)
        if isinstance(binding, MatchCast):
            return self._cast(binding)
        new: Expr
        layout = initial(var.ty)
        if isinstance(value, Call):
            new, layout = self.call(value)
        elif isinstance(value, Var):
            new = self._in(value, layout)
        elif isinstance(value, Tuple):
            layout = [self.layout_of(f) if hidden else initial(f.ty) for f in value.fields]
            new = self._in(value, layout)
        elif isinstance(value, TupleGetItem):
            whole = value.tuple_value
            all_: Any = self.layout_of(whole) if hidden else initial(whole.ty)
            kept = self.bound(self._in(whole, all_))
            layout = all_[value.index]
            new = value if kept is whole else TupleGetItem(kept, value.index)
        else:
            made = super().visit_binding(binding)
            assert isinstance(made, Binding)
            return made
        if not hidden and layout != initial(var.ty):
            new = self.moved(self.bound(new), layout, initial(var.ty))
            layout = initial(var.ty)
        self._layouts[var] = layout
        # Nothing may have changed but the order of axes, where all of them have one length.
        return binding if new is value else self.rebind(binding, new)

    def rule_of(self, call: Call, desired: Desired) -> Rule | None:
        """The rule of a call; None if its operands have to be as the program has them."""
        return rule_of(call, desired)

    def operand(self, arg: Expr, layout: Layouts) -> Expr:
        """An operand of a call that has to be in a layout."""
        return self.bound(self._in(arg, layout))

    def call(self, call: Call) -> tuple[Expr, Layouts]:
        """The call for one of the program, and the layout of what it computes."""
        desired = self._desired if self._choose is None else self._choose(call)
        rule = self.rule_of(call, desired)
        given = [self.layout_of(arg) for arg in call.args]
        unknown = any(
            _has_unknown(layout)
            for arg, layout in zip(call.args, given, strict=True)
            if _is_tensors(arg.ty)
        )
        rewriting = None if rule is None or unknown else rule(call, given, desired)
        if rewriting is None:
            rewriting = Rewriting([initial(arg.ty) for arg in call.args], initial(call.ty), {})
        operands, result, attrs, fixed = rewriting
        operands = [*operands, *[None] * (len(call.args) - len(operands))]
        args = [
            self.operand(arg, layout) if _is_tensors(arg.ty) else self._in_program(arg)
            for arg, layout in zip(call.args, operands, strict=True)
        ]
        if all(arg is old for arg, old in zip(args, call.args, strict=True)) and all(
            layout == initial(arg.ty)
            for arg, layout in zip(call.args, operands, strict=True)
            if _is_tensors(arg.ty)
        ):
            fixed = {}  # axes keep their spelling
        args = [fixed.get(index, arg) for index, arg in enumerate(args)]
        same = all(a is b for a, b in zip(args, call.args, strict=True))
        if same and all(call.attrs[name] == value for name, value in attrs.items()):
            return call, result
        new = Call(call.op, args, {**call.attrs, **attrs}, call.ty_args, span=call.span)
        return self.infer(new), result

    def _in_program(self, arg: Expr) -> Expr:
        """An operand that is not only tensors, such as a tuple of a tensor and a text: tensors in
        it are in the layouts of the program."""
        if not isinstance(arg, Tuple):
            return self.renamed(arg)
        fields = [
            self.operand(field, initial(field.ty)) if _is_tensors(field.ty)
            else self._in_program(field)
            for field in arg.fields
        ]  # fmt: skip
        same = all(a is b for a, b in zip(fields, arg.fields, strict=True))
        return arg if same else Tuple(fields, arg.span)

    def _cast(self, binding: MatchCast) -> Binding:
        value, layout = binding.value, self.layout_of(binding.value)
        if not isinstance(binding.var, DataflowVar) or layout == initial(value.ty):
            made = super().visit_binding(binding)
            assert isinstance(made, Binding)
            return made
        ty = _permuted(binding.ty, layout)
        var = DataflowVar(binding.var.name, ty, binding.var.span)
        self.var_map[binding.var] = var
        self._layouts[binding.var] = layout
        return MatchCast(var, self.bound(self._in(value, layout)), ty, binding.span)

    def layout_of(self, expr: Expr) -> Layouts:
        """The layout that a value of the program is kept in."""
        if isinstance(expr, Tuple):
            return [self.layout_of(field) for field in expr.fields]
        if isinstance(expr, Var) and expr in self._layouts:
            return self._layouts[expr]
        return initial(expr.ty)

    def renamed(self, expr: Expr) -> Expr:
        """What takes the place of an operand, as it is kept."""
        if isinstance(expr, Var):
            return self.var_map.get(expr, expr)
        if isinstance(expr, Tuple):
            fields = [self.renamed(field) for field in expr.fields]
            same = all(a is b for a, b in zip(fields, expr.fields, strict=True))
            return expr if same else Tuple(fields)
        return expr

    def _in(self, expr: Expr, layout: Layouts) -> Expr:
        """A value of the program, in a layout; None leaves it as it is kept."""
        return self.moved(self.renamed(expr), self.layout_of(expr), layout)

    def moved(self, expr: Expr, now: Any, then: Any) -> Expr:
        """A value that is kept in one layout, in another one."""
        if now is None or then is None or now == then:
            return expr
        if isinstance(then, list):
            items = expr.fields if isinstance(expr, Tuple) else [
                TupleGetItem(expr, index) for index in range(len(then))
            ]  # fmt: skip
            moved = [
                self.bound(self.moved(self.bound(item), a, b))
                for item, a, b in zip(items, now, then, strict=True)
            ]
            return Tuple(moved)
        value: Expr = op.permute_dims(expr, [now.index(axis) for axis in then])
        return value

    def bound(self, expr: Expr) -> Expr:
        """An operand of a call that has the value: a variable if it is none yet."""
        if isinstance(expr, (Var, Constant, Tuple)):
            return expr
        new = DataflowVar("lv", expr.ty)
        self._emitted.append(VarBinding(new, expr, self._span))
        return new


def _is_tensors(ty: Any) -> bool:
    if isinstance(ty, TupleType):
        return all(map(_is_tensors, ty.fields))
    return isinstance(ty, TensorType)


def _has_unknown(layout: Layouts) -> bool:
    return any(map(_has_unknown, layout)) if isinstance(layout, list) else layout is None


def _permuted(ty: Any, layout: Any) -> Any:
    if isinstance(ty, TupleType):
        return TupleType(list(map(_permuted, ty.fields, layout)))
    if not isinstance(ty, TensorType) or layout is None or ty.dims is None:
        return ty
    return TensorType([ty.dims[axis] for axis in layout], ty.dtype, ty.vdevice)


def ConvertLayout(
    desired_layouts: Desired, layout_cb: Callable[[Call], Desired] | None = None
) -> Pass:
    """In dataflow blocks, compute convolutions on data and weights whose axes are in another order.

    Operators that follow keep the order where they can, so that only what enters and what leaves
    is transposed: elementwise operators, pools, reductions, normalizations, concat, split and
    others that have axes.  Results of the block, and operands of other operators and functions,
    have the order that they had.

    Args:
        desired_layouts: name of a convolution -> the layouts of data, of weight and, if it is not
            that of data, of the result; ``{"relax.nn.conv2d": ["NHWC", "OHWI"]}``.
        layout_cb: called with each call; returns the desired layouts for it.  `desired_layouts` is
            then not used.

    Raises:
        ValueError: a layout does not have the axes of the one in the program, such as "NCHW4c", or
            is desired of an operator that is no convolution.

    Source: ``relax.transform.ConvertLayout`` of apache-tvm 0.27.
    """
    desired = {name: tuple(layouts) for name, layouts in desired_layouts.items()}

    @dataflowblock_pass(name="ConvertLayout")
    def run(block: DataflowBlock, mod: IRModule, ctx: PassContext) -> Any:
        return LayoutConverter(desired, layout_cb).visit_block(block)

    return run
