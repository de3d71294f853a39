"""WriteInPlace: let elementwise kernels overwrite inputs that are no longer used."""

from __future__ import annotations

from typing import Any, Final

from ..analysis.allocations import KERNELS, Allocation, Allocations, Region, all_bindings
from ..ir import (
    Binding,
    Call,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    IRModule,
    StringImm,
    TensorType,
    Var,
    int_imm,
    prove_equal,
)
from ..kernels import record_of
from ..kernels.fused import parse
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["WriteInPlace"]

_FUSED: Final = f"{KERNELS}fused"


def _writes_in_place(call: Call) -> bool:
    """Whether the last argument of a call is its only output, and may be an input."""
    if not isinstance(call.op, ExternFunc):
        return False
    name = call.op.global_symbol
    if name == _FUSED:
        (chain,) = [arg.value for arg in call.args if isinstance(arg, StringImm)]
        return len(parse(chain).results) == 1
    record = record_of(name)
    return record is not None and bool(record.in_place)


def _is_same_tensor(a: Any, b: Any) -> bool:
    """Whether two types are provably tensors of the same shape and data type."""
    if type(a) is not TensorType or type(b) is not TensorType or a.dtype != b.dtype:
        return False
    if a.dims is None or b.dims is None:
        return False
    return a.dims is b.dims or _are_equal(a.dims, b.dims)


def _are_equal(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    return len(a) == len(b) and all(x is y or prove_equal(x, y) for x, y in zip(a, b, strict=True))


class _Finder:
    """Walks a function in order; `replaced` maps allocations to the variables that replace them."""

    def __init__(self, allocations: Allocations) -> None:
        self._allocations = allocations
        self._into: dict[Allocation, Allocation] = {}
        self.replaced: dict[Var, Var] = {}
        self._region(allocations.body)

    def _region(self, region: Region) -> None:
        for index, binding in enumerate(region.bindings):
            if index in region.branches:
                for branch in region.branches[index]:
                    self._region(branch)
            elif isinstance(binding.value, Call) and _writes_in_place(binding.value):
                self._call(binding.value, region.starts[index], region)

    def _call(self, call: Call, point: int, region: Region) -> None:
        *inputs, out = call.args
        made = self._allocations.of(out)
        if type(made) is not Allocation or made.var is not out or made.region is not region:
            return
        if made.first != point:
            return  # its old contents may be read
        for arg in inputs:
            donor = self._donor(arg, made, inputs, point)
            if donor is not None:
                self.replaced[made.var] = self.replaced.get(arg, arg)  # type: ignore[call-overload]
                donor.end = max(donor.end, made.end)
                donor.escapes |= made.escapes
                self._into[made] = donor
                return

    def _held_by(self, arg: Expr) -> Allocation | None:
        """The allocation that contains an argument."""
        held = self._allocations.of(arg)
        if type(held) is not Allocation:
            return None
        while held in self._into:
            held = self._into[held]
        return held

    def _donor(
        self, arg: Expr, made: Allocation, inputs: list[Expr], point: int
    ) -> Allocation | None:
        """The allocation of an argument that may become the output."""
        if not isinstance(arg, Var) or not _is_same_tensor(arg.ty, made.var.ty):
            return None
        donor = self._held_by(arg)
        if donor is None or donor.escapes or donor.end != point:
            return None  # such as results of branches, which escape
        # Under another shape, elements could be read after they have been overwritten.
        shared = [x for x in inputs if self._held_by(x) is donor]
        if donor.where != made.where or not all(_is_same_tensor(x.ty, arg.ty) for x in shared):
            return None
        # The output must use the whole memory of the donor, from its start.
        dims, others = donor.shape.values, made.shape.values
        is_whole = donor.dtype == made.dtype and (
            _are_equal(dims, others) or prove_equal(_count(dims), _count(others))
        )
        return donor if is_whole else None


def _count(dims: tuple[Expr, ...]) -> Any:
    """The number of elements of a shape."""
    count: Any = int_imm(1)
    for dim in dims:
        count = dim * count
    return count


class _Rewriter(ExprMutator):
    def __init__(self, replaced: dict[Var, Var]) -> None:
        super().__init__()
        self._replaced = replaced

    def visit_var(self, var: Var) -> Expr:
        # The variable that replaces an allocation may have been replaced itself.
        return super().visit_var(self._replaced.get(var, var))

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        if binding.var in self._replaced:
            return []
        return super().visit_binding(binding)


def WriteInPlace() -> Pass:
    """Replace the output of an elementwise kernel by an input of the same shape and data type, if
    that is a tensor of this function that is not used after the call.  The allocation of the output
    is removed.

    Requires: explicit allocations (CallTIRRewrite).  Why: it saves an allocation and lowers the
    peak; a chain of elementwise kernels needs only one tensor, which is also its result.
    """

    @function_pass(name="WriteInPlace")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        calls = (b.value for b in all_bindings(func.body) if isinstance(b.value, Call))
        if not any(map(_writes_in_place, calls)):
            return func
        replaced = _Finder(Allocations(func, mod)).replaced
        return _Rewriter(replaced).visit(func) if replaced else func

    return run
