"""CombineParallelMatmul: one product of matrices instead of several with the same left operand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .. import op
from ..analysis import remove_all_unused
from ..analysis.variables import udchain
from ..dpl.replacing import DependenceError, with_new_values
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    Op,
    TensorType,
    Var,
    VarBinding,
    prove_equal,
)
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["CombineParallelMatmul"]

_MATMUL: Final = Op.get("relax.matmul")
_ADD: Final = Op.get("relax.add")
_ACTIVATIONS: Final = frozenset(
    map(Op.get, ("relax.nn.relu", "relax.nn.gelu", "relax.nn.silu", "relax.nn.gelu_tanh"))
)

Check = Callable[[Var, Sequence[Var], Sequence[Var], Mapping[Var, Expr]], bool]


class _Branch:
    """A product, and what is done with nothing but it.

    Attributes:
        steps: the variables of these, in order.
        rhs, bias: the right operand; the bias that is added, or None.
        activation: the operator that is applied, or None.
    """

    def __init__(self, binding: Binding) -> None:
        assert isinstance(binding.value, Call)
        self.matmul = binding
        self.rhs = binding.value.args[1]
        self.bias: Expr | None = None
        self.activation: Op | None = None
        self.steps = [binding.var]

    @property
    def width(self) -> Expr:
        """The number of columns of the right operand."""
        width: Expr = self.rhs.ty.dims[-1]
        return width


def _branches(block: DataflowBlock) -> dict[Var, list[_Branch]]:
    """Left operand -> the products of it that may be combined."""
    users = udchain(block)
    bindings = {binding.var: binding for binding in block.bindings}
    found: dict[Var, list[_Branch]] = {}
    for binding in block.bindings:
        value = binding.value
        if not isinstance(binding, VarBinding) or not isinstance(value, Call):
            continue
        if value.op is not _MATMUL or not isinstance(value.args[0], Var):
            continue
        lhs, rhs = value.args
        if not _is_known(lhs.ty) or not _is_known(rhs.ty) or rhs.ty.ndim < 2 or lhs.ty.ndim < 2:
            continue
        branch = _Branch(binding)
        _follow(branch, users, bindings)
        found.setdefault(value.args[0], []).append(branch)
    return found


def _is_known(ty: Any) -> bool:
    return isinstance(ty, TensorType) and ty.dims is not None and ty.dtype is not None


def _follow(
    branch: _Branch, users: Mapping[Var, Sequence[Var]], bindings: Mapping[Var, Binding]
) -> None:
    """Add the bias and the activation to a branch, if the product has no other use."""
    for step in ("bias", "activation"):
        using = users.get(branch.steps[-1], ())
        if len(using) != 1:
            return
        value = bindings[using[0]].value
        if not isinstance(value, Call):
            return
        if step == "bias" and value.op is _ADD:
            bias = value.args[1]
            if value.args[0] is branch.steps[-1] and _is_bias(bias, branch.width):
                branch.bias = bias
                branch.steps.append(using[0])
        elif isinstance(value.op, Op) and value.op in _ACTIVATIONS:
            branch.activation = value.op
            branch.steps.append(using[0])
            return


def _is_bias(expr: Expr, width: Expr) -> bool:
    ty = expr.ty
    return _is_known(ty) and ty.ndim == 1 and prove_equal(ty.dims[0], width)


def _groups(branches: Sequence[_Branch]) -> list[list[_Branch]]:
    """The branches whose right operands differ in the number of columns alone, by their rank."""
    by_rank: dict[int, list[_Branch]] = {}
    for branch in branches:
        by_rank.setdefault(branch.rhs.ty.ndim, []).append(branch)
    groups = []
    for same in by_rank.values():
        first = same[0]
        fits = all(
            branch.rhs.ty.dtype == first.rhs.ty.dtype
            and all(map(prove_equal, branch.rhs.ty.dims[:-1], first.rhs.ty.dims[:-1]))
            and branch.matmul.var.ty.dtype == first.matmul.var.ty.dtype
            for branch in same
        )
        if not fits:
            continue
        # The operator split takes numbers: only the last part may be of symbolic size.
        static = [branch for branch in same if isinstance(branch.width, IntImm)]
        symbolic = [branch for branch in same if not isinstance(branch.width, IntImm)]
        groups.append([*static, *symbolic[:1]])
    return [group for group in groups if len(group) > 1]


def _replacements(lhs: Var, group: Sequence[_Branch]) -> dict[Var, Expr]:
    """Variable -> its new value."""
    first = group[0]
    joined = op.concat([branch.rhs for branch in group], first.rhs.ty.ndim - 1)
    dtype = first.matmul.var.ty.dtype
    out = op.matmul(lhs, joined, dtype)
    results = [branch.steps[0] for branch in group]
    biases = [branch.bias for branch in group]
    if all(bias is not None for bias in biases) and _same_dtype(biases):
        out = op.add(out, op.concat(biases, 0))
        results = [branch.steps[1] for branch in group]
        with_bias = True
    else:
        with_bias = False
    activation = first.activation
    apply = (
        activation is not None
        and all(branch.activation is activation for branch in group)
        and (with_bias or all(bias is None for bias in biases))
    )
    if apply:
        assert activation is not None
        out = Call(activation, [out])
        results = [branch.steps[-1] for branch in group]
    sizes: list[int] = []
    for branch in group[:-1]:
        width = branch.width
        assert isinstance(width, IntImm)
        sizes.append((sizes[-1] if sizes else 0) + width.value)
    parts = op.split(out, sizes, first.matmul.var.ty.ndim - 1)
    return {result: parts[i] for i, result in enumerate(results)}


def _same_dtype(biases: Sequence[Any]) -> bool:
    return len({bias.ty.dtype for bias in biases}) == 1


class _Combiner(ExprMutator):
    def __init__(self, check: Check | None) -> None:
        super().__init__()
        self._check = check

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        visited = super().visit_block(block)
        if not isinstance(visited, DataflowBlock):
            return visited
        values = {b.var: b.value for b in visited.bindings if isinstance(b, VarBinding)}
        for lhs, branches in _branches(visited).items():
            for group in _groups(branches):
                if self._check is not None and not self._allowed(lhs, group, values):
                    continue
                try:
                    visited = with_new_values(visited, _replacements(lhs, group))
                except DependenceError:
                    continue  # an operand is computed from another product of the group
        return visited

    def _allowed(self, lhs: Var, group: Sequence[_Branch], values: Mapping[Var, Expr]) -> bool:
        assert self._check is not None
        rhs = [branch.rhs for branch in group]
        biases = [branch.bias for branch in group if branch.bias is not None]
        return bool(self._check(lhs, rhs, biases, values))  # type: ignore[arg-type]


def CombineParallelMatmul(check: Check | None = None) -> Pass:
    """In dataflow blocks, replace products of matrices with the same left operand by one: the right
    operands are joined, and the result is split.  Biases that are added to all of them, and an
    activation that is the same for all, are applied to the joined result.

    Right operands of the same rank are combined if they differ in the number of columns alone; that
    of one of them may be symbolic.

    Args:
        check: called with the left operand, the right operands, the biases, and the values of the
            variables of the block; false declines.
    """

    @function_pass(name="CombineParallelMatmul")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        new = _Combiner(check).visit(func)
        return func if new is func else remove_all_unused(new)

    return run
