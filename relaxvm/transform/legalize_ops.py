"""LegalizeOps: replace calls of operators by calls of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..errors import RelaxVMWarning
from ..ir import (
    AnyType,
    Binding,
    BindingBlock,
    BlockBuilder,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExprMutator,
    Function,
    If,
    IRModule,
    MatchCast,
    Op,
    PrimType,
    TensorType,
    Tuple,
    Var,
    VarBinding,
    int_imm,
    post_order_visit,
)
from ..ir.block_builder import is_leaf
from ..ir.infer import BaseCheckResult, base_check, type_of_call
from ..ir.op import attrs_of_ops
from ..op.lowering import is_allocatable, lower_call
from ..op.registry import Operator
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LegalizeOps", "register_legalize"]

Rule = Callable[[BlockBuilder, Call], Any]


def register_legalize(op_name: str, legal_func: Rule | None = None) -> Any:
    """Set the rule by which calls of an operator are legalized, in place of the default one.  It is
    the operator's attribute "FLegalize"; ``Op.get(name).reset_attr("FLegalize")`` removes it.

    Args:
        op_name: the full name, such as "relax.add".
        legal_func: takes a `BlockBuilder` and the call, and returns an expression.  If omitted,
            the function returns a decorator for it.

    Raises:
        ValueError: there is no such operator.
    """
    op = Op.get(op_name)

    def register(rule: Rule) -> Rule:
        op.set_attr("FLegalize", rule)
        return rule

    return register if legal_func is None else register(legal_func)


_IN_PLACE: Final = frozenset({"relax.call_tir_inplace", "relax.call_inplace_packed"})


class _Builder(BlockBuilder):
    """A builder in which rules can look up the value that a variable had before legalization, as
    long as nothing can have written to the operands of the value."""

    def __init__(self, mod: IRModule) -> None:
        super().__init__(mod)
        self.calls: dict[Expr, Call] = {}
        self.asked: set[Expr] = set()

    def lookup_binding(self, var: Var) -> Expr | None:
        found = self.calls.get(var)
        if found is None:
            return super().lookup_binding(var)
        self.asked.add(var)
        return found


class _Legalizer(ExprMutator):
    def __init__(self, builder: _Builder, rules: Mapping[str, Rule], skipped: set[str]) -> None:
        super().__init__()
        self.builder = builder
        self.rules = rules
        self.skipped = skipped
        self.in_dataflow = False
        self.with_dims: dict[Expr, Var] = {}
        """Tensors of known rank in this block -> the same tensors with named dimensions."""
        self.kept: dict[str, Call] = {}
        """For each operator one call that is kept because its result cannot be allocated."""

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer = self.in_dataflow, self.with_dims
        self.in_dataflow, self.with_dims = isinstance(block, DataflowBlock), {}
        self.builder.calls = {}
        new = super().visit_block(block)
        self.in_dataflow, self.with_dims = outer
        self.builder.calls = {}
        return new

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        value = binding.value
        op = value.op if isinstance(value, Call) else None
        if not isinstance(op, Op) or isinstance(binding, MatchCast):
            if isinstance(value, (Call, If)):
                self.builder.calls = {}
            return super().visit_binding(binding)
        call: Any = self.visit(value)
        name = op.name
        if not op.is_pure or name in _IN_PLACE:
            self.builder.calls = {}
        self.builder.calls[binding.var] = call
        rule = self.rules.get(name)
        if rule is not None:
            return self.expanded(binding, call, rule, name)
        record = op.record
        if not _is_legalized(record) or name in self.skipped:
            return binding if call is value else self.rebind(binding, call)
        if type(call.ty) is AnyType:
            call = _with_type(call)
        try:
            return self.legalized(binding, call, record)
        except (AttributeError, IndexError, TypeError):
            _check_type(call)
            raise

    def legalized(self, binding: Binding, call: Call, record: Operator) -> Binding | list[Binding]:
        """Bindings for the call of an operator by its own rule, or by its kernel."""
        if record.lower is not None:
            return self.expanded(binding, call, record.lower)
        lowered = lower_call(record, call)
        if lowered is call:
            return self.named_dims(binding, call)
        if type(call.ty) is PrimType or _is_flat(lowered):
            return self.rebind(binding, lowered)
        return self.expanded(binding, call, lambda builder, call: lowered)

    def expanded(
        self, binding: Binding, call: Call, rule: Rule, name: str | None = None
    ) -> list[Binding]:
        """The bindings that a rule returns for a call, which are legalized too; the last one is of
        the variable itself.  `name` is the operator that is not legalized in them."""
        builder = self.builder
        builder.begin_scope()
        if self.in_dataflow:
            with builder.dataflow():
                value = self.applied(rule, call)
        else:
            value = self.applied(rule, call)
        blocks = builder.end_scope(int_imm(0)).blocks
        if value is call:
            record = call.op.record if isinstance(call.op, Op) else None
            stays = isinstance(call.op, Op) and (record is None or record.kernel is None)
            return [self.rebind(binding, call)] if stays else self.named_dims(binding, call)
        inner = [b for block in blocks for b in block.bindings]
        inner.append(VarBinding(binding.var, value, binding.span))
        rules = self.rules
        if name is not None:
            self.rules = {other: rules[other] for other in rules if other != name}
            self.skipped = self.skipped | {name}
        found: list[Binding] = []
        for each in inner:
            each.span = binding.span if each.span is None else each.span
            new = self.visit_binding(each)
            found += new if isinstance(new, list) else [new]
        if name is not None:
            self.rules = rules
            self.skipped = self.skipped - {name}
        return found

    def applied(self, rule: Rule, call: Call) -> Expr:
        lowered: Expr = rule(self.builder, call)
        return call if lowered is call else self.builder.normalize(lowered)

    def named_dims(self, binding: Binding, call: Call) -> list[Binding]:
        """Handle a call whose result cannot be allocated: name the dimensions of operands of which
        only the rank is known, which may give the result a shape."""
        casts: list[Binding] = []
        ranks = _ranks_by_layout(call)
        args = tuple(
            [
                self.with_named_dims(arg, casts, binding, ranks.get(i, -1))
                for i, arg in enumerate(call.args)
            ]
        )
        if casts or any(a is not b for a, b in zip(args, call.args, strict=True)):
            better = Call(call.op, args, call.attrs, call.ty_args, span=call.span)
            self.infer(better)
            if self.has_result(better):
                new = self.visit_binding(VarBinding(binding.var, better, binding.span))
                return [*casts, *(new if isinstance(new, list) else [new])]
        for cast in casts:
            del self.with_dims[cast.value]
        assert isinstance(call.op, Op)
        self.kept.setdefault(call.op.name, call)
        return [self.rebind(binding, call)]

    def has_result(self, call: Call) -> bool:
        """Whether the result of a call can be allocated, possibly with dimensions that are known
        only at run time."""
        assert isinstance(call.op, Op)
        if is_allocatable(call.ty):
            return True
        return call.op.record.lower is None and lower_call(call.op.record, call) is not call

    def with_named_dims(
        self, arg: Expr, casts: list[Binding], binding: Binding, rank: int = -1
    ) -> Expr:
        ty = arg.ty
        if isinstance(arg, Tuple):
            fields = [self.with_named_dims(field, casts, binding) for field in arg.fields]
            return Tuple(fields, span=arg.span)
        if not isinstance(arg, Var) or type(ty) is not TensorType or ty.dims is not None:
            return arg
        rank = rank if ty.ndim == -1 else ty.ndim
        if rank == -1:
            return arg
        if arg not in self.with_dims:
            dims = [Var(f"{arg.name}_{i}", "int64") for i in range(rank)]
            known = TensorType(dims, ty.dtype, ty.vdevice)
            var = (DataflowVar if self.in_dataflow else Var)(arg.name, known)
            self.with_dims[arg] = var
            casts.append(MatchCast(var, arg, known, binding.span))
        return self.with_dims[arg]


def _ranks_by_layout(call: Call) -> dict[int, int]:
    """The ranks of operands that layouts among the attributes determine, by position."""
    attrs = call.attrs
    layouts = (attrs.get("data_layout") or attrs.get("layout"), attrs.get("kernel_layout"))
    return {i: len(layout) for i, layout in enumerate(layouts) if layout}


def _with_type(call: Call) -> Call:
    """A call that is annotated with less than is known of it, with the inferred type."""
    ty = type_of_call(call)
    return Call(call.op, call.args, call.attrs, call.ty_args, ret_ty=ty, span=call.span)


def _check_type(call: Call) -> None:
    """Raise TypeError where the parts of a call, which nobody inferred, contradict each other."""
    for arg in call.args:
        if arg.ty is None:
            raise TypeError(f"{call}: the argument {arg} has no type")
    ty = type_of_call(call)
    if base_check(call.ty, ty) <= BaseCheckResult.FAIL_L1:
        raise TypeError(f"{call}: the call is of type {call.ty}, but the inferred type is {ty}")


def _is_legalized(record: Any) -> bool:
    return type(record) is Operator and (record.kernel is not None or record.lower is not None)


def _is_flat(call: Any) -> bool:
    """Whether a call of a kernel is in normal form."""
    return all(map(is_leaf, call.args[1].fields))


class _Remover(ExprMutator):
    def __init__(self, unused: set[Expr]) -> None:
        super().__init__()
        self.unused = unused

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        return [] if binding.var in self.unused else super().visit_binding(binding)


def _without_unused(func: Function, candidates: set[Expr]) -> Function:
    """Remove the bindings of those candidates that are no longer used."""
    used: set[Expr] = set()
    post_order_visit(func, lambda expr: used.add(expr) if isinstance(expr, Var) else None)
    unused = candidates - used
    return _Remover(unused).visit(func) if unused else func


def LegalizeOps(
    customize_legalize_map: Mapping[str, Rule] | None = None,
    skip_ops: Iterable[str] | None = None,
    enable_warning: bool = False,
) -> Pass:
    """Replace each call of an operator by ``R.call_dps_packed("relaxvm.kernel.NAME", ...)``, or by
    the expression that is registered with the operator; see `relaxvm.op`.

    Why: later passes handle calls that write into memory passed by the caller, which can be
    planned; calls of kernels do that.

    A call whose result has an unknown shape or data type is kept.  If only the rank of operands is
    known, a match_cast names their dimensions, if the shape of the result follows from that.

    Args:
        customize_legalize_map: full name of an operator -> rule in place of the default one, a
            function that takes a `BlockBuilder` and the call and returns an expression.
        skip_ops: full names of operators whose calls are kept.
        enable_warning: whether to warn about each operator of which a call is kept.
    """
    own = dict(customize_legalize_map or {})
    for name in own:
        Op.get(name)
    skipped = set(skip_ops or ())

    @module_pass(opt_level=0, name="LegalizeOps")
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        found = {**attrs_of_ops("FLegalize"), **own}
        rules = {name: rule for name, rule in found.items() if name not in skipped}
        builder = _Builder(mod)
        for var, func in mod.items():
            if not isinstance(func, Function):
                continue
            legalizer = _Legalizer(builder, rules, skipped)
            new = legalizer.visit(func)
            if builder.asked:
                new = _without_unused(new, builder.asked)
                builder.asked = set()
            if new is not func:
                builder.update_func(var, new)
            if enable_warning:
                for name, call in legalizer.kept.items():
                    warnings.warn(
                        f"LegalizeOps: {var.name_hint}: {name} is kept, since the shape or data "
                        f"type of its result is not known: {call.ty}",
                        RelaxVMWarning,
                        stacklevel=2,
                    )
        return builder.get()

    return run
