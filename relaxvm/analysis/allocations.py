"""The tensors that a function allocates: where each is used, and whether anything may keep it.

A function that has its allocations spelled out (after CallTIRRewrite) is numbered through: each
binding is a *point*, those inside of a branch follow the If that they belong to.  Of two branches
only one runs, so what is used in the first one only is not alive in the second.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ..ir.expr import (
    Binding,
    Call,
    Constant,
    DataflowVar,
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
from ..ir.op import Op
from ..ir.visitor import ExprVisitor

__all__ = ["Allocation", "Allocations", "Either", "Region", "Several", "all_bindings",
           "uses"]  # fmt: skip

ALLOC_TENSOR: Final = Op.get("relax.builtin.alloc_tensor")
VIEWS: Final = frozenset({"relax.reshape", "relax.memory.view", "vm.builtin.reshape"})
"""Operators and packed functions whose result shares the memory of their first argument."""
_READERS: Final = frozenset(
    {"relax.shape_of", "relax.tensor_to_shape", "relax.print", "relax.assert_op",
     "relax.vm.call_tir_dyn", "vm.builtin.shape_of"}
)  # fmt: skip
"""Those that are done with their arguments when they return."""
_CALLING: Final = frozenset(
    {"relax.invoke_closure", "relax.invoke_pure_closure", "relax.call_builtin_with_ctx"}
)
"""Operators that run code of the program."""
KERNELS: Final = "relaxvm.kernel."
"""What the names of kernels begin with: they are done with their arguments, too."""


class _Uses(ExprVisitor):
    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var(self, var: Var) -> None:
        self.found[var] = None

    def visit_scalar(self, scalar: Expr) -> None:
        """Symbolic variables hold no tensors."""

    def visit_shape(self, expr: Any) -> None:
        """As above."""


_WITHOUT_USES: Final = frozenset(
    {Constant, DataTypeImm, ExternFunc, FloatImm, GlobalVar, IntImm, Op, ShapeExpr, StringImm}
)


def uses(expr: Expr) -> dict[Var, None]:
    """Variables that an expression uses as values, nested bodies included, by their first use."""
    if type(expr) is Call:
        found: dict[Var, None] = {}
        for part in (expr.op, *expr.args):
            kind = type(part)
            if kind is Var or kind is DataflowVar:
                found[part] = None  # type: ignore[index]
            elif kind not in _WITHOUT_USES:
                break
        else:
            return found
    elif isinstance(expr, Var):
        return {expr: None}
    visitor = _Uses()
    visitor.visit(expr)
    return visitor.found


def all_bindings(seq: SeqExpr) -> Iterator[Binding]:
    """The bindings of a sequence, each followed by those of the branches that it has."""
    inside = [_bindings(seq)]
    while inside:
        for binding in inside[-1]:
            yield binding
            value = binding.value
            if type(value) is If:
                inside += (_bindings(value.false_branch), _bindings(value.true_branch))
                break
        else:
            inside.pop()


def _bindings(seq: SeqExpr) -> Iterator[Binding]:
    return (binding for block in seq.blocks for binding in block.bindings)


class Region:
    """A sequence of bindings: the body of the function, or a branch.

    Attributes:
        parent: the region around it, None for the body.
        bindings: its bindings, blocks joined.
        starts: the point of each.
        end: the point behind all that is inside.
        branches: regions inside, by the index of their If.
    """

    __slots__ = ("bindings", "branches", "end", "parent", "starts")

    def __init__(self, parent: Region | None) -> None:
        self.parent = parent
        self.bindings: list[Binding] = []
        self.starts: list[int] = []
        self.end = 0
        self.branches: dict[int, tuple[Region, Region]] = {}

    def index_at(self, point: int) -> int:
        """Index of the binding that a point belongs to, itself or by a branch of it."""
        return bisect_right(self.starts, point) - 1

    def start(self, index: int) -> int:
        """Point of a binding; behind the last one, the end."""
        return self.starts[index] if index < len(self.starts) else self.end

    def last_of(self, point: int) -> int:
        """The last point of the binding that a point belongs to."""
        return self.start(self.index_at(point) + 1) - 1

    def is_around(self, other: Region | None) -> bool:
        """Whether `other` is this region or inside of it."""
        while other is not None and other is not self:
            other = other.parent
        return other is self


class Allocation:
    """A tensor that is allocated by builtin.alloc_tensor.

    Attributes:
        var: the variable that it is bound to first.
        shape, dtype: of the tensor.
        device, scope: arguments of the allocation.
        region, start: where it is allocated.
        first, end: the first and the last point that uses it.
        sure: the last point that certainly does, and not perhaps something else instead.
        last: the last point at which its memory is held, see `held_until`.
        escapes: whether it may be reached after that: it is returned, or something may keep it.
        is_new: whether nothing has been done with it, while the program is gone through.
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
        """Device and memory scope."""
        return int(self.device), self.scope.value

    def used(self, point: int) -> None:
        """Note that a point uses it."""
        self.first = point if self.first == self.start else min(self.first, point)
        self.end = max(self.end, point)
        self.is_new = False

    def held_until(self, point: int) -> int:
        """The last point at which its memory is held if a point mentions it last: if that is inside
        of an If that the allocation is not inside of, the end of that."""
        region = self.region
        while point >= region.end and region.parent is not None:
            region = region.parent
        return region.last_of(point)

    def lives(self) -> Iterator[tuple[int, int, bool]]:
        """First and last points of pieces of its life, and whether it is certain that it lives
        there.  Branches that are not run with its own are no part of it."""
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


class Several:
    """What a variable holds that may be more than one allocation: all of `parts`.

    Uses of the whole are noted here and handed down to the parts in the end, by `hand_down`: so a
    use is noted at once, however deeply tuples and branches are nested.
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

    def hand_down(self) -> None:
        """Uses of the whole are uses of the parts."""
        for part in self.parts:
            if part is None:
                continue
            if self.first is not None:
                part.used(self.first)
                part.used(self.end)
            part.escapes |= self.escapes
            if type(self) is not Either:
                part.sure = max(part.sure, self.sure)

    def used(self, point: int) -> None:
        """Note that a point uses it."""
        self.first = point if self.first is None else min(self.first, point)
        self.end = max(self.end, point)


class Fields(Several):
    """The fields of a tuple."""

    __slots__ = ()


class Either(Several):
    """The result of an If, or that of a call of anything: one of these, or none."""

    __slots__ = ()


Held = Allocation | Several | None
"""What a variable holds."""


class Allocations:
    """The allocations of a function.

    What a variable holds is followed through renamings, tuples and views.  An allocation escapes if
    it is the result of the function or of a branch, is captured, or is an argument of anything that
    could return or keep it: a function of the program, a closure, a packed function.  PrimFuncs and
    kernels do not, nor do calls that write into a tensor that is new at this point, which is how
    destination-passing calls look.

    Attributes:
        all: in order.
        body: the region of the whole function.
        regions: the region of each point.
        joins: what results of Ifs hold, inner ones first.
        calls: points at which code of the program runs, that allocates by itself.
    """

    _views = VIEWS

    def __init__(self, func: Function, mod: IRModule) -> None:
        self._functions = mod.functions
        self.all: list[Allocation] = []
        self.regions: list[Region] = []
        self.calls: list[int] = []
        self.joins: list[Either] = []
        self._held: dict[Var, Held] = {}
        self._several: list[Several] = []
        self._kept_by: dict[Var, list[Allocation | Several]] = {}
        """Result of a call that writes its outputs -> what it may be, if it is anything at all."""
        self.body = self._sequence(func.body, None)
        self._escape(func.body.body)
        for several in reversed(self._several):
            several.hand_down()
        for made in self.all:
            made.last = made.held_until(made.end)

    def lives(
        self, is_same: Callable[[Allocation, Allocation], bool]
    ) -> Iterator[tuple[Allocation, int, int, bool]]:
        """Pieces of the lives of all allocations: the first point, the last, and whether it is
        certain.  Where the result of an If is one of two allocations of which `is_same` says that
        they are of one size, the first one stands for both."""
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
            for first, last, is_certain in allocation.lives():
                if is_certain or allocation not in stood_for:
                    yield allocation, first, last, is_certain or allocation in stands

    def of(self, expr: Expr) -> Held:
        """What an expression holds."""
        if isinstance(expr, Var):
            return self._held.get(expr)
        if type(expr) is Tuple:
            return self._of_several(Fields(map(self.of, expr.fields)))
        if type(expr) is TupleGetItem:
            inner = self.of(expr.tuple_value)
            return inner.parts[expr.index] if type(inner) is Fields else inner
        return None

    def _of_several(self, several: Several) -> Several | None:
        """The same, or None if there is nothing in it."""
        if all(part is None for part in several.parts):
            return None
        self._several.append(several)
        return several

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
        if type(value) is If:
            self._mention(value.cond)
            index = len(region.bindings) - 1
            yes = self._sequence(value.true_branch, region)
            region.branches[index] = yes, self._sequence(value.false_branch, region)
            self._joined(binding.var, value)
        elif type(value) is Call and type(binding) is not MatchCast:
            self._call(binding.var, value, region)
        elif isinstance(value, (Var, Tuple, TupleGetItem)):
            # No use: where nothing uses the new name, KillAfterLastUse takes it away.
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
        name = op.name if type(op) is Op else ""
        if type(op) is ExternFunc:
            name = op.global_symbol
        if name in self._views and call.args and isinstance(call.args[0], Var):
            self._mention(call)
            self._held[var] = self.of(call.args[0])
            return
        is_prim_func = type(op) is GlobalVar and type(self._functions.get(op)) is not Function
        if is_prim_func or name in _READERS:
            self._mention(call)
        elif type(op) is ExternFunc and (name.startswith(KERNELS) or self._has_new(call)):
            self._mention(call)
            self._kept_by[var] = [x for x in map(self.of, call.args) if x is not None]
        else:
            self._unknown(var, call)
            if type(op) is GlobalVar or isinstance(op, Var) or name in _CALLING:
                self.calls.append(point)

    def _allocation(self, var: Var, call: Call, region: Region, point: int) -> Allocation | None:
        """The allocation that a call is, if it is one."""
        if call.op is not ALLOC_TENSOR:
            return None
        shape, dtype, device, scope = call.args
        if type(shape) is not ShapeExpr or type(dtype) is not DataTypeImm:
            return None
        return Allocation(var, shape, dtype.value, (device, scope), region, point)

    def _unknown(self, var: Var, call: Call) -> None:
        """A call that may do anything with its arguments, return them for example."""
        self._escape(call)
        self._held[var] = self._of_several(Either(map(self.of, uses(call))))

    def _joined(self, var: Var, value: If) -> None:
        """The result of an If, which is that of one of its branches."""
        self._join(var, value)
        self._escape(value.true_branch.body)
        self._escape(value.false_branch.body)

    def _join(self, var: Var, value: If) -> None:
        join = Either((self.of(value.true_branch.body), self.of(value.false_branch.body)))
        self._held[var] = self._of_several(join)
        self.joins.append(join)

    def _has_new(self, call: Call) -> bool:
        """Whether an argument is a tensor that nothing has been done with: the call writes it."""
        return any(type(held) is Allocation and held.is_new for held in map(self.of, call.args))

    def _mention(self, expr: Expr) -> Iterable[Var]:
        point = len(self.regions) - 1
        found = uses(expr)
        for var in found:
            held = self._held.get(var)
            if held is not None:
                held.used(point)
                held.sure = point
            for kept in self._kept_by.get(var, ()):
                kept.escapes = True
        return found

    def _escape(self, expr: Expr) -> None:
        for var in self._mention(expr):
            held = self._held.get(var)
            if held is not None:
                held.escapes = True
