"""The tensors that a function allocates: their live ranges, and whether they escape.

The function has explicit allocations (after CallTIRRewrite).  Its bindings are numbered: each one
is a *point*, and the points inside a branch follow that of its If.  Only one of two branches runs,
so a tensor that is used only in the first branch is not live in the second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ..ir.expr import (
    Binding,
    Call,
    Constant,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    GlobalVar,
    If,
    IntImm,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from ..ir.module import IRModule
from ..ir.node import class_table
from ..ir.op import Op
from ..ir.visitor import ExprVisitor

__all__ = ["Allocation", "Allocations", "HeldGroup", "OneOf", "Region", "all_bindings",
           "uses"]  # fmt: skip

ALLOC_TENSOR: Final = Op.get("relax.builtin.alloc_tensor")
VIEWS: Final = frozenset({"relax.reshape", "relax.memory.view", "vm.builtin.reshape"})
"""Operators and packed functions whose result shares the memory of their first argument."""
_READERS: Final = frozenset(
    {"relax.shape_of", "relax.tensor_to_shape", "relax.print", "relax.assert_op",
     "relax.vm.call_tir_dyn", "vm.builtin.shape_of"}
)  # fmt: skip
"""Operators and packed functions that keep no reference to their arguments."""
_CALLING: Final = frozenset(
    {"relax.invoke_closure", "relax.invoke_pure_closure", "relax.call_builtin_with_ctx"}
)
"""Operators that call functions of the program."""
KERNELS: Final = "relaxvm.kernel."
"""Prefix of the names of kernels, which keep no reference to their arguments either."""


class _Uses(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var(self, var: Var) -> None:
        self.found[var] = None

    def visit_scalar(self, scalar: Expr) -> None:
        """Not visited: symbolic variables hold no tensors."""

    def visit_shape(self, expr: Any) -> None:
        """Not visited, as in `visit_scalar`."""


_WITHOUT_USES: Final = class_table(dict.fromkeys(
    (Constant, DataTypeImm, ExternFunc, FloatImm, GlobalVar, IntImm, Op, ShapeExpr, StringImm)
))  # fmt: skip


def uses(expr: Expr) -> dict[Var, None]:
    """Return the variables that an expression uses as values, nested bodies included, in order of
    first use."""
    if isinstance(expr, Call):
        found: dict[Var, None] = {}
        for part in (expr.op, *expr.args):
            if isinstance(part, Var):
                found[part] = None
            elif type(part) not in _WITHOUT_USES:
                break
        else:
            return found
    elif isinstance(expr, Var):
        return {expr: None}
    visitor = _Uses()
    visitor.visit(expr)
    return visitor.found


def all_bindings(seq: SeqExpr) -> Iterator[Binding]:
    """Yield the bindings of a sequence, each followed by those of its branches."""
    inside = [_bindings(seq)]
    while inside:
        for binding in inside[-1]:
            yield binding
            value = binding.value
            if isinstance(value, If):
                inside += (_bindings(value.false_branch), _bindings(value.true_branch))
                break
        else:
            inside.pop()


def _bindings(seq: SeqExpr) -> Iterator[Binding]:
    return (binding for block in seq.blocks for binding in block.bindings)


class Region:
    """A sequence of bindings: the body of the function, or a branch.

    Attributes:
        parent: the enclosing region, None for the body.
        bindings: its bindings, of all blocks.
        starts: the point of each binding.
        end: the point after the last one in the region.
        branches: the regions of branches, by the index of the binding of their If.
    """

    __slots__ = ("bindings", "branches", "end", "parent", "starts")

    def __init__(self, parent: Region | None) -> None:
        self.parent = parent
        self.bindings: list[Binding] = []
        self.starts: list[int] = []
        self.end = 0
        self.branches: dict[int, tuple[Region, Region]] = {}

    def index_at(self, point: int) -> int:
        """Index of the binding that a point belongs to: its own point or one in its branches."""
        return bisect_right(self.starts, point) - 1

    def start(self, index: int) -> int:
        """Point of a binding; the end for the index after the last one."""
        return self.starts[index] if index < len(self.starts) else self.end

    def last_of(self, point: int) -> int:
        """The last point of the binding that a point belongs to."""
        return self.start(self.index_at(point) + 1) - 1

    def contains(self, other: Region | None) -> bool:
        """Whether `other` is this region or inside it."""
        while other is not None and other is not self:
            other = other.parent
        return other is self


class Allocation:
    """A tensor that is allocated by builtin.alloc_tensor.

    Attributes:
        var: the variable that it is first bound to.
        shape, dtype: shape and data type of the tensor.
        device, scope: arguments of the allocation.
        region, start: where it is allocated.
        first, end: the first and the last point that may use it.
        sure: the last point that certainly uses it, and not perhaps another value in its place.
        last: the last point at which its memory is held, see `held_until`.
        escapes: whether it may be used after that: it is returned, or something may keep it.
        is_new: during the walk, whether it was not used so far.
    """

    __slots__ = ("device", "dtype", "end", "escapes", "first", "is_new", "last", "region", "scope",
                 "shape", "start", "sure", "var")  # fmt: skip

    def __init__(
        self,
        var: Var,
        shape: ShapeExpr,
        dtype: str,
        where: tuple[Any, Any],
        region: Region,
        start: int,
    ) -> None:
        self.var = var
        self.shape = shape
        self.dtype = dtype
        self.device, self.scope = where
        self.region = region
        self.start = self.first = self.sure = self.end = self.last = start
        self.escapes = False
        self.is_new = True

    @property
    def where(self) -> tuple[int, str]:
        """The device and the memory scope."""
        return int(self.device), self.scope.value

    def used(self, point: int) -> None:
        """Note that a point uses it."""
        self.first = point if self.first == self.start else min(self.first, point)
        self.end = max(self.end, point)
        self.is_new = False

    def held_until(self, point: int) -> int:
        """The last point at which its memory is held if `point` is the last that mentions it.  If
        that is in a branch of an If and the allocation is outside of it, the end of the If."""
        region = self.region
        while point >= region.end and region.parent is not None:
            region = region.parent
        return region.last_of(point)

    def live_ranges(self) -> Iterator[tuple[int, int, bool]]:
        """Yield the ranges of points at which it is live: the first point, the last one, and
        whether it is certainly live there.  Branches that exclude its own are left out."""
        sure, last = self.held_until(self.sure), self.last
        region, first = self.region, self.start
        while region.parent is not None and last >= region.end:
            yield from _cut(first, region.end - 1, sure)
            first = region.parent.last_of(region.starts[0]) + 1
            region = region.parent
        yield from _cut(first, last, sure)

    def __repr__(self) -> str:
        return f"<allocation {self.var.name}, points {self.start} to {self.end}>"


def _cut(first: int, last: int, sure: int) -> Iterator[tuple[int, int, bool]]:
    if first <= sure:
        yield first, min(last, sure), True
    if sure < last:
        yield max(first, sure + 1), last, False


class HeldGroup:
    """A value that may hold more than one allocation: all those of its `parts`.

    Uses of the whole are recorded here and passed on to the parts at the end, by `propagate_uses`.
    So recording a use takes constant time, however deeply tuples and branches are nested.
    """

    __slots__ = ("end", "escapes", "first", "parts", "sure")

    def __init__(self, parts: Iterable[Held]) -> None:
        self.parts = tuple(parts)
        self.first: int | None = None
        self.sure = self.end = -1
        self.escapes = False
        for part in self.parts:
            if type(part) is Allocation:
                part.is_new = False

    def propagate_uses(self) -> None:
        """Record the uses of the whole as uses of the parts."""
        for part in self.parts:
            if part is None:
                continue
            if self.first is not None:
                part.used(self.first)
                part.used(self.end)
            part.escapes |= self.escapes
            if type(self) is not OneOf:
                part.sure = max(part.sure, self.sure)

    def used(self, point: int) -> None:
        """Note that a point uses it."""
        self.first = point if self.first is None else min(self.first, point)
        self.end = max(self.end, point)


class TupleFields(HeldGroup):
    """The fields of a tuple."""

    __slots__ = ()


class OneOf(HeldGroup):
    """The result of an If or of an arbitrary call: one of the parts, or none of them."""

    __slots__ = ()


Held = Allocation | HeldGroup | None
"""The allocations that a variable holds."""


class Allocations:
    """The allocations of a function.

    Values are tracked through renamings, tuples and views.  An allocation escapes if it is the
    result of the function or of a branch, is captured, or is an argument of a callee that could
    return or keep it: a function of the program, a closure, a packed function.  PrimFuncs and
    kernels do not keep arguments, nor do calls that write into a tensor that is new at this point,
    the form of destination-passing calls.

    Attributes:
        all: the allocations, in order.
        body: the region of the whole function.
        regions: the region of each point.
        joins: the values of the results of Ifs, inner ones first.
        calls: points that run functions of the program, which allocate memory themselves.
    """

    _views = VIEWS

    def __init__(self, func: Function, mod: IRModule) -> None:
        self._functions = mod.functions
        self.all: list[Allocation] = []
        self.regions: list[Region] = []
        self.calls: list[int] = []
        self.joins: list[OneOf] = []
        self._held: dict[Var, Held] = {}
        self._groups: list[HeldGroup] = []
        self._may_hold: dict[Var, list[Allocation | HeldGroup]] = {}
        """Result of a call that writes its outputs -> the arguments that it may refer to."""
        self.body = self._sequence(func.body, None)
        self._escape(func.body.body)
        for group in reversed(self._groups):
            group.propagate_uses()
        for made in self.all:
            made.last = made.held_until(made.end)

    def live_ranges(
        self, is_same: Callable[[Allocation, Allocation], bool]
    ) -> Iterator[tuple[Allocation, int, int, bool]]:
        """Yield the live ranges of all allocations: the first point, the last one, and whether it
        is certainly live there.  If the result of an If is one of two allocations of the same size,
        as told by `is_same`, the first one represents both."""
        of_join: dict[Held, Allocation | None] = {}

        def one(held: Held) -> Allocation | None:
            return held if type(held) is Allocation else of_join.get(held)

        stands: set[Allocation] = set()
        stood_for: set[Allocation] = set()
        for join in self.joins:
            a, b = map(one, join.parts)
            if a is not None and b is not None and a is not b and is_same(a, b):
                of_join[join] = a
                stands.add(a)
                stood_for.add(b)
        for allocation in self.all:
            for first, last, is_certain in allocation.live_ranges():
                if is_certain or allocation not in stood_for:
                    yield allocation, first, last, is_certain or allocation in stands

    def of(self, expr: Expr) -> Held:
        """The allocations that an expression holds."""
        if isinstance(expr, Var):
            return self._held.get(expr)
        if isinstance(expr, Tuple):
            return self._group(TupleFields(map(self.of, expr.fields)))
        if isinstance(expr, TupleGetItem):
            inner = self.of(expr.tuple_value)
            return inner.parts[expr.index] if type(inner) is TupleFields else inner
        return None

    def _group(self, group: HeldGroup) -> HeldGroup | None:
        """Return it, or None if no part holds an allocation."""
        if all(part is None for part in group.parts):
            return None
        self._groups.append(group)
        return group

    def _sequence(self, seq: SeqExpr, parent: Region | None) -> Region:
        region = Region(parent)
        for block in seq.blocks:
            for binding in block.bindings:
                region.bindings.append(binding)
                region.starts.append(len(self.regions))
                self.regions.append(region)
                self._binding(binding, region)
        region.end = len(self.regions)
        self._mention(seq.body)
        return region

    def _binding(self, binding: Binding, region: Region) -> None:
        value = binding.value
        if isinstance(value, If):
            self._mention(value.cond)
            index = len(region.bindings) - 1
            yes = self._sequence(value.true_branch, region)
            region.branches[index] = yes, self._sequence(value.false_branch, region)
            self._joined(binding.var, value)
        elif isinstance(value, Call) and not isinstance(binding, MatchCast):
            self._call(binding.var, value, region)
        elif isinstance(value, (Var, Tuple, TupleGetItem)):
            # Not a use: if the new name is never used, KillAfterLastUse removes the binding.
            self._held[binding.var] = self.of(value)
        else:
            self._escape(value)

    def _call(self, var: Var, call: Call, region: Region) -> None:
        op = call.op
        point = len(self.regions) - 1
        made = self._allocation(var, call, region, point)
        if made is not None:
            self._held[var] = made
            self.all.append(made)
            return
        name = op.name if isinstance(op, Op) else ""
        if isinstance(op, ExternFunc):
            name = op.global_symbol
        if name in self._views and call.args and isinstance(call.args[0], Var):
            self._mention(call)
            self._held[var] = self.of(call.args[0])
            return
        callee = self._functions.get(op) if isinstance(op, GlobalVar) else None
        is_prim_func = isinstance(op, GlobalVar) and not isinstance(callee, Function)
        if is_prim_func or name in _READERS:
            self._mention(call)
        elif isinstance(op, ExternFunc) and (name.startswith(KERNELS) or self._writes_new(call)):
            self._mention(call)
            self._may_hold[var] = [x for x in map(self.of, call.args) if x is not None]
        else:
            self._unknown(var, call)
            if isinstance(op, (GlobalVar, Var)) or name in _CALLING:
                self.calls.append(point)

    def _allocation(self, var: Var, call: Call, region: Region, point: int) -> Allocation | None:
        """The allocation made by a call, or None."""
        if call.op is not ALLOC_TENSOR:
            return None
        shape, dtype, device, scope = call.args
        if not isinstance(shape, ShapeExpr) or not isinstance(dtype, DataTypeImm):
            return None
        return Allocation(var, shape, dtype.value, (device, scope), region, point)

    def _unknown(self, var: Var, call: Call) -> None:
        """Handle a call that may do anything with its arguments, such as return or keep them."""
        self._escape(call)
        self._held[var] = self._group(OneOf(map(self.of, uses(call))))

    def _joined(self, var: Var, value: If) -> None:
        """Handle the result of an If: the value of one of its branches."""
        self._join(var, value)
        self._escape(value.true_branch.body)
        self._escape(value.false_branch.body)

    def _join(self, var: Var, value: If) -> None:
        join = OneOf((self.of(value.true_branch.body), self.of(value.false_branch.body)))
        self._held[var] = self._group(join)
        self.joins.append(join)

    def _writes_new(self, call: Call) -> bool:
        """Whether an argument is a tensor that was not used so far: the call writes it."""
        return any(type(held) is Allocation and held.is_new for held in map(self.of, call.args))

    def _mention(self, expr: Expr) -> Iterable[Var]:
        point = len(self.regions) - 1
        found = uses(expr)
        for var in found:
            held = self._held.get(var)
            if held is not None:
                held.used(point)
                held.sure = point
            for kept in self._may_hold.get(var, ()):
                kept.escapes = True
        return found

    def _escape(self, expr: Expr) -> None:
        for var in self._mention(expr):
            held = self._held.get(var)
            if held is not None:
                held.escapes = True
