"""ConcatInPlace: let what is concatenated be computed where the result has it."""

from __future__ import annotations

from math import prod
from typing import Any, Final, NamedTuple

from ..analysis.allocations import KERNELS, Allocation, Allocations, Region, all_bindings
from ..dtypes import as_dtype
from ..ir import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    ExprMutator,
    ExternFunc,
    Function,
    IntImm,
    IRModule,
    SeqExpr,
    TensorType,
    Var,
    VarBinding,
)
from ..ir.node import KINDS
from ._memory_calls import view
from .pass_infra import Pass, PassContext, function_pass

__all__ = ["ConcatInPlace"]

_CONCAT: Final = f"{KERNELS}concat"

_SMALL: Final = 4096
"""A result of fewer bytes is copied: a view takes as long."""


class _Place(NamedTuple):
    """Where an allocation is: bytes from the beginning of another one."""

    within: Allocation
    offset: int


class _Finder:
    """Finds the concatenations that need no copy.

    Attributes:
        places: for allocations that become parts of others.
        dropped: the variables of calls that are not needed any more.
    """

    def __init__(self, func: Function, mod: IRModule) -> None:
        self._allocations = Allocations(func, mod)
        self._writers: dict[Allocation, int] = {}
        self._calls: list[tuple[int, Var, Call, Region]] = []
        self._region(self._allocations.body)
        self.places: dict[Allocation, _Place] = {}
        self.dropped: set[Var] = set()
        for point, var, call, region in reversed(self._calls):
            self._concat(point, var, call, region)

    def _region(self, region: Region) -> None:
        for index, binding in enumerate(region.bindings):
            point = region.starts[index]
            for branch in region.branches.get(index, ()):
                self._region(branch)
            value = binding.value
            if not isinstance(value, Call) or not isinstance(value.op, ExternFunc):
                continue
            name = value.op.global_symbol
            if not name.startswith(KERNELS):
                continue
            made = self._allocations.of(value.args[-1]) if value.args else None
            if type(made) is Allocation:
                self._writers[made] = self._writers.get(made, 0) + 1
            if name == _CONCAT:
                self._calls.append((point, binding.var, value, region))

    def _concat(self, point: int, var: Var, call: Call, region: Region) -> None:
        *tensors, axis, out = call.args
        made = self._own(out, region)
        if made is None or made.first != point or not isinstance(axis, IntImm):
            return
        if not _are_in_one_piece(made.var.ty, axis.value):
            return
        places: dict[Allocation, int] = {}
        offset = 0
        for tensor in tensors:
            part = self._own(tensor, region)
            if (
                part is None
                or part in places
                or part in self.places
                or part is made
                or part.escapes
                or part.where != made.where
                or self._writers.get(part) != 1
                or _nbytes(part) != _nbytes_of(tensor.ty)
            ):
                return
            places[part] = offset
            offset += _nbytes(part)
        if offset != _nbytes(made) or offset < _SMALL:
            return
        self.dropped.add(var)
        for part, start in places.items():
            self.places[part] = _Place(made, start)

    def _own(self, expr: Expr, region: Region) -> Allocation | None:
        """The allocation of constant size, of the same region, that a tensor is."""
        made = self._allocations.of(expr)
        if type(made) is not Allocation or made.region is not region:
            return None
        return made if _constants(made.shape.values) is not None else None

    def whole(self, made: Allocation) -> tuple[Allocation, int]:
        """The allocation that one is a part of, which is no part itself, and where in it."""
        offset = 0
        while made in self.places:
            place = self.places[made]
            made, offset = place.within, offset + place.offset
        return made, offset


def _constants(dims: Any) -> list[int] | None:
    found = [dim.value for dim in dims if isinstance(dim, IntImm)]
    return found if len(found) == len(dims) and found else None


def _nbytes(made: Allocation) -> int:
    return prod(_constants(made.shape.values) or [0]) * as_dtype(made.dtype).itemsize


def _nbytes_of(ty: Any) -> int:
    dims = _constants(ty.dims or ()) if isinstance(ty, TensorType) else None
    return -1 if dims is None else prod(dims) * as_dtype(ty.dtype).itemsize


class _Rewriter(ExprMutator):
    def __init__(self, finder: _Finder) -> None:
        super().__init__()
        self._dropped = finder.dropped
        self._views: dict[Var, tuple[Allocation, int]] = {}
        first: dict[Allocation, Allocation] = {}
        for part in finder.places:
            made, offset = finder.whole(part)
            self._views[part.var] = made, offset
            if made not in first or part.start < first[made].start:
                first[made] = part
        self._moved = {made.var for made in first}
        self._before: dict[Var, list[Allocation]] = {}
        for made, part in first.items():
            self._before.setdefault(part.var, []).append(made)
        self._allocations: dict[Var, VarBinding] = {}

    def visit_seq(self, seq: SeqExpr) -> SeqExpr:
        for block in seq.blocks:
            for binding in block.bindings:
                if binding.var in self._moved and isinstance(binding, VarBinding):
                    self._allocations[binding.var] = binding
        return super().visit_seq(seq)

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        bindings: list[Binding] = []
        for binding in block.bindings:
            var = binding.var
            for made in self._before.get(var, ()):
                bindings.append(self._allocations[made.var])
            if var in self._moved or var in self._dropped:
                continue
            if var in self._views:
                made, offset = self._views[var]
                ty: Any = var.ty
                bindings.append(VarBinding(var, view(made.var, ty, offset), binding.span))
                continue
            new = super().visit_binding(binding)
            bindings += new if isinstance(new, list) else [new]
        changed: BindingBlock = KINDS[type(block)](bindings, block.span)
        return changed


class _Nester(ExprMutator):
    """Lets a concatenation begin with the result of an earlier one of the same block that has
    concatenated its first parts: `concat(a, b, c)` after `ab = concat(a, b)` is `concat(ab, c)`."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[Any, ...], Expr] = {}

    def visit_block(self, block: BindingBlock) -> BindingBlock:
        outer, self._known = self._known, {}
        new = super().visit_block(block)
        self._known = outer
        return new

    def visit_call(self, call: Call) -> Expr:
        if not _is_concat(call):
            return super().visit_call(call)
        *tensors, axis, out = call.args
        if not isinstance(axis, IntImm) or not _are_in_one_piece(out.ty, axis.value):
            return call
        parts: tuple[Any, ...] = (axis.value, *tensors)
        self._known.setdefault(parts, out)
        for end in range(len(parts) - 1, 2, -1):
            first = self._known.get(parts[:end])
            if first is not None:
                return Call(call.op, [first, *parts[end:], axis, out], call.attrs, call.ty_args,
                            span=call.span)  # fmt: skip
        return call


def _are_in_one_piece(ty: Any, axis: int) -> bool:
    """Whether each part of a tensor along an axis is in one piece."""
    dims = _constants(ty.dims or ()) if isinstance(ty, TensorType) else None
    return dims is not None and prod(dims[: axis % len(dims)]) == 1


def ConcatInPlace() -> Pass:
    """Compute tensors that are concatenated at their places in the result, which then is there
    without a copy: their allocations become views of it.

    That is done where the parts of the result are each in one piece, such as channels of one image,
    if all of them are tensors that the function allocates, and whose sizes are constant.  Where an
    earlier concatenation has the first parts of a later one, its result is what the later one
    begins with.

    Requires: explicit allocations (CallTIRRewrite).  Why: a copy takes as long as many kernels.
    """

    @function_pass(name="ConcatInPlace")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if not any(_is_concat(binding.value) for binding in all_bindings(func.body)):
            return func
        func = _Nester().visit(func)
        finder = _Finder(func, mod)
        return _Rewriter(finder).visit(func) if finder.places else func

    return run


def _is_concat(value: Expr) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.op, ExternFunc)
        and value.op.global_symbol == _CONCAT
    )
