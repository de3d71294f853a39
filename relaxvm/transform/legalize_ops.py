"""LegalizeOps: calls of operators become calls of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..errors import RelaxVMWarning
from ..ir import (
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
    TensorType,
    Tuple,
    Var,
    VarBinding,
    int_imm,
    post_order_visit,
)
from ..ir.block_builder import is_leaf
from ..op.lowering import is_allocatable, lower_call
from ..op.registry import Operator
from .pass_infra import Pass, PassContext, module_pass

__all__ = ["LegalizeOps", "register_legalize"]

Rule = Callable[[BlockBuilder, Call], Any]

_RULES: Final[dict[str, Rule]] = {}
"""Rules of `register_legalize`, by the full name of the operator."""


def register_legalize(op_name: str, legal_func: Rule | None = None) -> Any:
    """Set what calls of an operator are legalized to, in place of what is registered with it.

    Args:
        op_name: full name, as "relax.add".
        legal_func: takes a `BlockBuilder` and the call, gives an expression; if left out, this is a
            decorator of it.

    Raises:
        ValueError: there is no such operator.
    """
    Op.get(op_name)

    def register(rule: Rule) -> Rule:
        _RULES[op_name] = rule
        return rule

    return register if legal_func is None else register(legal_func)


_IN_PLACE: Final = frozenset({"relax.call_tir_inplace", "relax.call_inplace_packed"})


class _Builder(BlockBuilder):
    """A builder that rules ask what a variable is bound to before it is legalized, as long as
    nothing can have written to what that is made of."""

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
        """Tensors of known rank, as they are with names for their dimensions; of this block."""
        self.kept: dict[str, Call] = {}
        """A call of each operator that stays, as its result cannot be allocated."""

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
        if type(value) is not Call or type(value.op) is not Op or type(binding) is MatchCast:
            if type(value) in (Call, If):
                self.builder.calls = {}
            return super().visit_binding(binding)
        call: Any = self.visit(value)
        name = value.op.name
        if not value.op.is_pure or name in _IN_PLACE:
            self.builder.calls = {}
        self.builder.calls[binding.var] = call
        rule = self.rules.get(name)
        if rule is not None:
            return self.expanded(binding, call, rule, name)
        record = value.op.record
        if not _is_legalized(record) or name in self.skipped:
            return binding if call is value else self.rebind(binding, call)
        if record.lower is not None:
            return self.expanded(binding, call, record.lower)
        lowered = lower_call(record, call)
        if lowered is call:
            return self.named_dims(binding, call)
        if _is_flat(lowered):
            return self.rebind(binding, lowered)
        return self.expanded(binding, call, lambda builder, call: lowered)

    def expanded(
        self, binding: Binding, call: Call, rule: Rule, name: str | None = None
    ) -> list[Binding]:
        """The bindings that a rule gives for a call, legalized in turn; the last is that of the
        variable.  `name` is of an operator that is not to be legalized in them."""
        builder = self.builder
        builder.begin_scope()
        if self.in_dataflow:
            with builder.dataflow():
                value = self.applied(rule, call)
        else:
            value = self.applied(rule, call)
        blocks = builder.end_scope(int_imm(0)).blocks
        if value is call:
            stays = type(call.op) is Op and call.op.record.kernel is None
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
        """What becomes of a call whose result cannot be allocated: if there are operands of which
        only the rank is known, they get names for their dimensions, which may help."""
        casts: list[Binding] = []
        args = tuple([self.with_named_dims(arg, casts, binding) for arg in call.args])
        if casts or any(a is not b for a, b in zip(args, call.args, strict=True)):
            better = Call(call.op, args, call.attrs, call.ty_args, span=call.span)
            self.infer(better)
            if self.has_result(better):
                new = self.visit_binding(VarBinding(binding.var, better, binding.span))
                return [*casts, *(new if isinstance(new, list) else [new])]
        for cast in casts:
            del self.with_dims[cast.value]
        assert type(call.op) is Op
        self.kept.setdefault(call.op.name, call)
        return [self.rebind(binding, call)]

    def has_result(self, call: Call) -> bool:
        """Whether the result of a call can be allocated, if necessary by what is known of it when
        the program runs."""
        assert type(call.op) is Op
        if is_allocatable(call.ty):
            return True
        return call.op.record.lower is None and lower_call(call.op.record, call) is not call

    def with_named_dims(self, arg: Expr, casts: list[Binding], binding: Binding) -> Expr:
        ty = arg.ty
        if type(arg) is Tuple:
            fields = [self.with_named_dims(field, casts, binding) for field in arg.fields]
            return Tuple(fields, span=arg.span)
        if not isinstance(arg, Var) or type(ty) is not TensorType or ty.dims is not None:
            return arg
        if ty.ndim == -1:
            return arg
        if arg not in self.with_dims:
            dims = [Var(f"{arg.name}_{i}", "int64") for i in range(ty.ndim)]
            known = TensorType(dims, ty.dtype, ty.vdevice)
            var = (DataflowVar if self.in_dataflow else Var)(arg.name, known)
            self.with_dims[arg] = var
            casts.append(MatchCast(var, arg, known, binding.span))
        return self.with_dims[arg]


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
    """The function without bindings of those variables that nothing uses any more."""
    used: set[Expr] = set()
    post_order_visit(func, lambda expr: used.add(expr) if isinstance(expr, Var) else None)
    unused = candidates - used
    return _Remover(unused).visit(func) if unused else func


def LegalizeOps(
    customize_legalize_map: Mapping[str, Rule] | None = None,
    skip_ops: Iterable[str] | None = None,
    enable_warning: bool = False,
) -> Pass:
    """Each call of an operator becomes ``R.call_dps_packed("relaxvm.kernel.NAME", ...)``, or what
    else is registered with the operator: `relaxvm.op` says what.

    Why: passes behind this one deal with calls that are given the memory for their results; a
    kernel is such a call, and the memory can be planned.

    A call whose result has an unknown shape or data type stays.  Where only the rank of operands is
    known, a match_cast gives names to their dimensions, if that tells the shape of the result.

    Args:
        customize_legalize_map: what calls of operators, by their full names, are legalized to
            instead: functions that take a `BlockBuilder` and the call and give an expression.
        skip_ops: full names of operators, calls of which stay.
        enable_warning: whether to warn of each operator of which a call stays.
    """
    own = dict(customize_legalize_map or {})
    for name in own:
        Op.get(name)
    skipped = set(skip_ops or ())

    @module_pass(opt_level=0, name="LegalizeOps")
    def run(mod: IRModule, ctx: PassContext) -> IRModule:
        rules = {name: rule for name, rule in {**_RULES, **own}.items() if name not in skipped}
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
                        f"LegalizeOps: {var.name_hint}: {name} stays, as the shape or data type of "
                        f"its result is not known: {call.ty}",
                        RelaxVMWarning,
                        stacklevel=2,
                    )
        return builder.get()

    return run
