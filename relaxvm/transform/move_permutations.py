"""MovePermutations: permutations of axes that undo each other meet."""

from __future__ import annotations

import math
from typing import Any, Final

from ..analysis.structure import without_unused
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
    IntImm,
    IRModule,
    Op,
    TensorType,
    Tuple,
    Var,
)
from ..op.registry import Operator
from ._layouts import Desired, Layouts, Rewriting, Rule, rule_of
from .canonicalize_bindings import canonicalize_bindings
from .convert_layout import LayoutConverter
from .convert_to_dataflow import convert_to_dataflow
from .pass_infra import Pass, PassContext, function_pass
from .to_non_dataflow import to_non_dataflow

__all__ = ["MovePermutations"]

_PERMUTE: Final = Op.get("relax.permute_dims")
_BY_RULE: Final = frozenset({"relax.concat", "relax.max", "relax.mean", "relax.min", "relax.sum"})
"""Operators of `_layouts` that are not slower on axes in another order."""
_LEAST: Final = 3
"""The rank of tensors of images and signals: batch, channels, and at least one axis."""


def _passes_on(call: Call) -> bool:
    """Whether a permutation may be moved behind a call."""
    if not isinstance(call.op, Op):
        return False
    record = call.op.record
    return call.op.name in _BY_RULE or (isinstance(record, Operator) and record.is_elementwise)


class _Search(ExprVisitor):
    """Finds out whether a permutation is behind another one, with nothing in between that it could
    not be moved across."""

    def __init__(self) -> None:
        self.found = False
        self._reached: set[Expr] = set()

    def visit_binding(self, binding: Binding) -> None:
        value = binding.value
        if not isinstance(value, Call):
            super().visit_binding(binding)
        elif value.op is _PERMUTE:
            self.found = self.found or value.args[0] in self._reached
            self._reached.add(binding.var)
        elif self._reached and _passes_on(value):
            operands = [
                part for arg in value.args
                for part in (arg.fields if isinstance(arg, Tuple) else (arg,))
            ]  # fmt: skip
            if not self._reached.isdisjoint(operands):
                self._reached.add(binding.var)


class _Mover(LayoutConverter):
    """Keeps what a permutation makes as its operand, as long as that will do."""

    def __init__(self) -> None:
        super().__init__({}, None)
        self._made: dict[tuple[Expr, tuple[int, ...]], Expr] = {}

    def call(self, call: Call) -> tuple[Expr, Layouts]:
        if call.op is _PERMUTE and call.ty.ndim >= _LEAST:
            layout: Any = self.layout_of(call.args[0])
            if layout is not None:
                given = call.attrs["axes"]
                axes = [axis % len(layout) for axis in given or range(len(layout))[::-1]]
                return self.renamed(call.args[0]), tuple(map(axes.index, layout))
        return super().call(call)

    def rule_of(self, call: Call, desired: Desired) -> Rule | None:
        if not _passes_on(call):
            return None
        by_rule = call.op.name in _BY_RULE  # type: ignore[attr-defined]
        return rule_of(call, desired) if by_rule else _elementwise

    def operand(self, arg: Expr, layout: Layouts) -> Expr:
        if isinstance(arg, Constant) and isinstance(layout, tuple) and arg.data.ndim:
            # As many axes as the other operands have; a constant is moved here.
            data = arg.data.reshape([1] * (len(layout) - arg.data.ndim) + list(arg.data.shape))
            return Constant(data.transpose(layout))
        return super().operand(arg, layout)

    def moved(self, expr: Expr, now: Any, then: Any) -> Expr:
        """As in the base class; a variable is permuted once in a way."""
        if not isinstance(expr, Var) or not isinstance(then, tuple) or now == then:
            return super().moved(expr, now, then)
        key = expr, tuple(now.index(axis) for axis in then)
        if key not in self._made:
            self._made[key] = self.bound(super().moved(expr, now, then))
        return self._made[key]


def _elementwise(call: Any, given: list[Layouts], desired: Desired) -> Rewriting | None:
    """Operands of the rank of the result are kept in one layout, which constants follow."""
    ndim = call.ty.ndim
    layouts: set[Any] = set()
    for arg, layout in zip(call.args, given, strict=True):
        if isinstance(arg.ty, TensorType) and arg.ty.ndim and not isinstance(arg, Constant):
            if arg.ty.ndim != ndim:
                return None
            layouts.add(layout)
    if len(layouts) != 1:
        return None
    (common,) = layouts
    operands = [
        common if isinstance(arg.ty, TensorType) and arg.ty.ndim else layout
        for arg, layout in zip(call.args, given, strict=True)
    ]
    return Rewriting(operands, common, {})


class _Blocks(ExprMutator):
    def visit_block(self, block: BindingBlock) -> BindingBlock:
        if not isinstance(block, DataflowBlock):
            return super().visit_block(block)
        new = _Mover().visit_block(block)
        assert isinstance(new, DataflowBlock)
        # What has become unused is no longer there.
        outputs = {binding.var for binding in new.bindings}
        outputs = {var for var in outputs if not isinstance(var, DataflowVar)}
        new_block = without_unused(new, outputs)
        return new_block if _cost(new_block) < _cost(block) else block


class _Permutations(ExprVisitor):
    """Finds permutations of tensors that are no constants."""

    def __init__(self) -> None:
        self.found: list[Call] = []

    def visit_call(self, call: Call) -> None:
        if call.op is _PERMUTE and not isinstance(call.args[0], Constant):
            self.found.append(call)
        super().visit_call(call)


def _cost(block: BindingBlock) -> tuple[int, int]:
    """The elements that permutations move, with 1 for dimensions that are not known, and how many
    permutations there are."""
    visitor = _Permutations()
    visitor.visit_block(block)
    return sum(map(_elements, visitor.found)), len(visitor.found)


def _elements(call: Call) -> int:
    dims = call.ty.dims if isinstance(call.ty, TensorType) else None
    return math.prod(dim.value for dim in dims or () if isinstance(dim, IntImm))


def _has_dataflow(func: Function) -> bool:
    return any(isinstance(block, DataflowBlock) for block in func.body.blocks)


def MovePermutations() -> Pass:
    """Move permutations of axes behind elementwise operators, `concat` and reductions, where they
    meet others that undo them, if less is permuted then.

    Why: networks that were written for images as NHWC have a permutation before and after each
    convolution, and what stands between them cannot become part of it.
    """

    @function_pass(name="MovePermutations")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        search = _Search()
        search.visit(func)
        if not search.found:
            return func
        as_blocks = convert_to_dataflow(func)
        new = _Blocks().visit(as_blocks)
        if new is as_blocks:
            return func
        new = canonicalize_bindings(new)
        return new if _has_dataflow(func) else to_non_dataflow(new)

    return run
