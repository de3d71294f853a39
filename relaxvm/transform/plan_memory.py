"""PlanMemory: use as few storages as possible without raising the peak memory.

A program with a separate storage for each tensor, held from its allocation to its last use, has the
lowest possible peak and the most allocations.  So tensors share storages as long as the function
never holds more memory than the peak of that program:

- Tensors of constant size: many in one *arena*, at offsets such that tensors that are live at the
  same time do not overlap, whatever their data types.  If an arena would raise the peak, arenas for
  shorter spans of time are tried.
- Other tensors: one after the other in a storage, if one size is provably at most the other.  The
  last one may be a result of the function, if it fills the storage.

The peak is computed for each path through the branches, since only one of two branches runs.  At
calls of other functions, which need memory too, only live tensors may be held.  Tensors that may
escape are not planned; see `Allocations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from ..analysis.allocations import (
    ALLOC_TENSOR,
    Allocation,
    Allocations,
    Region,
    all_bindings,
)
from ..analysis.amounts import Amounts, plus
from ..dtypes import as_dtype
from ..ir import (
    ANY,
    Binding,
    Call,
    DataTypeImm,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    MatchCast,
    ShapeExpr,
    Var,
    VarBinding,
    arith,
    dimensions,
    int_imm,
    type_free_vars,
)
from ..ir.arith import Polynomial
from ._branches import keep_branches_apart
from ._memory_calls import VIEW, alloc_storage, alloc_tensor
from ._packing import Block, pack
from .pass_infra import Pass, PassContext, function_pass
from .static_plan_block_memory import DYNAMIC_OUTPUT, SizeBounds

__all__ = ["PlanMemory"]

SMALL: Final = 1024
"""Tensors of at most this many bytes are not planned: the VM keeps their memory between runs, and
reuses it several times faster than it creates a tensor in an arena."""

_ALIGNMENTS: Final = (64, 16)
"""Alignments of offsets in bytes, the preferred one first: of storages, of vectors.  If the padding
raises the peak with both, offsets are aligned to the size of the elements."""

_MOST_CUTS: Final = 4
"""How often a span of time is split in two because its arena would raise the peak."""

_LOOK_BACK: Final = 16
"""The number of storages that are tried for a tensor, the latest first."""

_LOOK_AROUND: Final = 256
"""The number of points that are checked when the lifetime of a storage is extended."""


class _Storage:
    """A storage: it is allocated before the binding of `before`; all uses are inside `region`."""

    __slots__ = ("before", "device", "last", "nbytes", "region", "scope", "size", "var")

    def __init__(self, first: Allocation, region: Region, nbytes: Expr) -> None:
        self.region = region
        self.before = region.bindings[region.index_at(first.start)].var
        self.device = first.device
        self.scope = first.scope
        self.nbytes = nbytes
        self.size: Polynomial = {}
        self.last = 0
        self.var = Var("storage", ANY)

    def alloc(self, span: Any) -> Binding:
        value = alloc_storage(ShapeExpr([self.nbytes]), self.device, self.scope)
        return VarBinding(self.var, value, span)


Places = dict[Var, tuple[_Storage, int]]
"""Variable of an allocation -> its storage and offset."""


class _Sizes(Amounts):
    """Sizes of allocations and comparisons of them."""

    def __init__(self, func: Function, regions: Iterable[Region]) -> None:
        self._bounds = SizeBounds(func)
        super().__init__(self._bounds.analyzer)
        types = [param.ty for param in func.params]
        self.signature = frozenset(v for ty in types for v in type_free_vars(ty))
        types += [b.ty for r in regions for b in r.bindings if isinstance(b, MatchCast)]
        for var in dimensions(types):
            self._bounds.bind_dimension(var)

        self._of_shape: dict[tuple[object, ...], tuple[Expr, Polynomial]] = {}

    def of(self, allocation: Allocation) -> tuple[Expr, Polynomial]:
        """The size of an allocation in bytes, and its normal form."""
        shape, dtype = allocation.shape, allocation.dtype
        key = (dtype, *[dim.value if type(dim) is IntImm else dim for dim in shape.values])
        found = self._of_shape.get(key)
        if found is None:
            nbytes = self._bounds.nbytes(shape, dtype)
            found = self._of_shape[key] = nbytes, self.analyzer.normal_form(nbytes)
        return found


class _Limit:
    """The greatest amount that may be held at some points: any one of `peaks`, or `most` bytes if
    the amount is constant; and a cache of comparisons with it."""

    __slots__ = ("known", "most", "peaks")

    def __init__(self, peaks: list[Polynomial], most: int | None) -> None:
        self.peaks = peaks
        self.most = most
        self.known: dict[tuple[int, int], bool] = {}


class _Held:
    """The memory that is held at each point, and its limit.

    An amount has a constant part and a symbolic part.  Symbolic parts are numbered, so that each
    distinct one is computed and compared only once.
    """

    def __init__(self, sizes: _Sizes, allocations: Allocations) -> None:
        self._sizes = sizes
        self._regions = allocations.regions
        self._calls = frozenset(allocations.calls)
        self._constant: list[int] = []
        self._symbolic: list[int] = []
        self._limits: list[_Limit] = []
        self._parts: list[Polynomial] = [{}]
        self._numbers: dict[frozenset[Any], int] = {frozenset(): 0}
        self._sums: dict[tuple[int, int], int] = {}

    def start(self, ranges: list[tuple[int, int, Polynomial, bool]]) -> None:
        """Start with the live tensors: first point, last point, bytes, and whether it is certainly
        live there.  A program with a storage for each tensor holds exactly these, so their peak is
        the limit."""
        self._constant, self._symbolic = self._live_amounts(ranges)
        if not all(certain for *_, certain in ranges):
            least = self._live_amounts([live for live in ranges if live[-1]])
        else:
            least = self._constant, self._symbolic
        limits = self._peaks(*least)
        self._limits = [limits[region] for region in self._regions]
        for point in self._calls:
            live = _amount(least[0][point], self._parts[least[1][point]])
            self._limits[point] = _Limit([live], None)

    def _live_amounts(
        self, ranges: list[tuple[int, int, Polynomial, bool]]
    ) -> tuple[list[int], list[int]]:
        """The live bytes at each point: constant parts, and numbers of symbolic parts."""
        count = len(self._regions)
        changes: list[list[tuple[int, Polynomial]]] = [[] for _ in range(count + 1)]
        for first, last, size, _ in ranges:
            changes[first].append((1, size))
            changes[last + 1].append((-1, size))
        total: Polynomial = {}
        parts = []
        for point in range(count):
            for sign, size in changes[point]:
                total = plus(total, size, sign)
            constant, symbolic = _split(total)
            parts.append((constant, self._number(symbolic)))
        return [constant for constant, _ in parts], [symbolic for _, symbolic in parts]

    def _peaks(self, constants: list[int], symbolics: list[int]) -> dict[Region | None, _Limit]:
        """For each region, the greatest live amount on the path to it and inside it, without other
        branches."""
        greatest: dict[Region, dict[int, int]] = {}
        for region, constant, symbolic in zip(self._regions, constants, symbolics, strict=True):
            own = greatest.setdefault(region, {})
            if own.get(symbolic, -1) < constant:
                own[symbolic] = constant
        limits: dict[Region | None, _Limit] = {None: _Limit([], 0)}
        for region, own in greatest.items():  # enclosing regions come first
            outer = limits[region.parent]
            peaks = [*outer.peaks, *(_amount(c, self._parts[number]) for number, c in own.items())]
            most = max(outer.most or 0, *own.values())
            limits[region] = _Limit(self._sizes.greatest(peaks), most)
        return limits

    def _number(self, symbolic: Polynomial) -> int:
        """The number of a symbolic part."""
        if not symbolic:
            return 0
        number = self._numbers.setdefault(frozenset(symbolic.items()), len(self._parts))
        if number == len(self._parts):
            self._parts.append(symbolic)
        return number

    def _sum(self, a: int, b: int) -> int:
        """The number of the sum of two symbolic parts."""
        if not a or not b:
            return a or b
        found = self._sums.get((a, b))
        if found is None:
            found = self._number(plus(self._parts[a], self._parts[b]))
            self._sums[a, b] = found
        return found

    def allows(self, points: range, more: Polynomial) -> bool:
        """Whether `more` additional bytes may be held at all of some points."""
        constant, symbolic = _split(more)
        added = self._number(symbolic)
        here = slice(points.start, points.stop)
        most: dict[tuple[int, _Limit], int] = {}
        for own, part, limit in set(
            zip(self._constant[here], self._symbolic[here], self._limits[here], strict=True)
        ):
            key = part, limit
            if own >= most.get(key, own):
                most[key] = own
        return all(
            self._is_within(own + constant, self._sum(part, added), limit)
            for (part, limit), own in most.items()
        )

    def allows_constant(self, point: int, more: int) -> bool:
        """As `allows`, for a constant amount at one point."""
        constant = self._constant[point] + more
        return self._is_within(constant, self._symbolic[point], self._limits[point])

    def _is_within(self, constant: int, symbolic: int, limit: _Limit) -> bool:
        if not symbolic and limit.most is not None:
            return constant <= limit.most
        key = constant, symbolic
        known = limit.known.get(key)
        if known is None:
            total = _amount(constant, self._parts[symbolic])
            known = any(self._sizes.at_most(total, peak) for peak in limit.peaks)
            limit.known[key] = known
        return known

    def hold(self, points: range, more: Polynomial) -> None:
        """Hold `more` additional bytes at all of some points."""
        constant, symbolic = _split(more)
        here = slice(points.start, points.stop)
        if constant:
            self._constant[here] = [own + constant for own in self._constant[here]]
        if symbolic:
            added = self._number(symbolic)
            parts = self._symbolic[here]
            sums = {part: self._sum(part, added) for part in set(parts)}
            self._symbolic[here] = [sums[part] for part in parts]

    def hold_constant(self, point: int, more: int) -> None:
        """As `hold`, for a constant amount at one point."""
        self._constant[point] += more


def _split(amount: Polynomial) -> tuple[int, Polynomial]:
    """The constant part of an amount, and the symbolic rest."""
    constant = amount.get((), 0)
    if not constant:
        return 0, amount
    return constant, {m: c for m, c in amount.items() if m} if len(amount) > 1 else {}


def _amount(constant: int, symbolic: Polynomial) -> Polynomial:
    return plus(symbolic, {(): constant}) if constant else symbolic


# One after the other


class _Sharing:
    """Assigns tensors to storages, one after the other in each."""

    def __init__(self, sizes: _Sizes, held: _Held, places: Places) -> None:
        self._sizes = sizes
        self._held = held
        self._places = places
        self._storages: list[_Storage] = []
        self._users: dict[_Storage, list[Allocation]] = {}

    def add(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> None:
        """Find a storage for an allocation; allocations are added in order.  One that escapes can
        only be the last in a storage of its size and region, since it may outlive the region."""
        found = self._find(allocation, nbytes, size)
        if found is not None:
            self._storages.remove(found)
        elif not allocation.escapes:
            found = _Storage(allocation, allocation.region, nbytes)
            found.size = size
            found.last = allocation.last
            self._users[found] = []
        if found is not None:
            self._users[found].append(allocation)
            if not allocation.escapes:
                self._storages.append(found)

    def finish(self) -> None:
        """Drop storages of only one tensor, which are of no use."""
        for storage, users in self._users.items():
            if len(users) > 1:
                self._places.update((user.var, (storage, 0)) for user in users)

    def _find(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> _Storage | None:
        free = [
            storage
            for storage in self._storages[: -_LOOK_BACK - 1 : -1]
            if self._users[storage][-1].end < allocation.start
            and storage.region.contains(allocation.region)
            and not (allocation.escapes and storage.region is not allocation.region)
        ]
        for storage in free:
            if storage.size == size and self._extend(storage, allocation, size, size):
                return storage
        for storage in free if not allocation.escapes else ():
            if self._sizes.at_most(size, storage.size):
                if self._extend(storage, allocation, storage.size, size):
                    return storage
            elif self._may_grow(storage, nbytes, size) and self._extend(
                storage, allocation, size, size
            ):
                storage.nbytes, storage.size = nbytes, size
                return storage
        return None

    def _may_grow(self, storage: _Storage, nbytes: Expr, size: Polynomial) -> bool:
        """Whether a storage may grow to a size whose expression appears only after its allocation.
        """
        return self._sizes.at_most(storage.size, size) and all(
            var in self._sizes.signature for var in arith.free_vars(nbytes)
        )

    def _extend(
        self, storage: _Storage, allocation: Allocation, held: Polynomial, size: Polynomial
    ) -> bool:
        """Hold `held` bytes from the start of the first tensor in the storage to the last point of
        the new one, if the limit allows it."""
        last = max(storage.last, allocation.last)
        if allocation.end < storage.region.end:
            last = max(last, storage.region.last_of(allocation.end))
        start, free = allocation.start, storage.last + 1
        more: list[tuple[range, Polynomial]] = []
        if held is not storage.size and held != storage.size:
            growth = plus(held, storage.size, -1)
            more.append((range(self._users[storage][0].start, free), growth))
        slack = plus(held, size, -1)
        if slack or last > allocation.last or free < start:
            more.append((range(free, start), held))
            if slack:
                more.append((range(max(free, start), allocation.last + 1), slack))
            more.append((range(max(free, allocation.last + 1), last + 1), held))
        # The new one may start while the storage is still held for the If around the previous one.
        more.append((range(start, min(free, allocation.last + 1)), plus({}, size, -1)))
        more = [(points, amount) for points, amount in more if points]
        if sum(len(points) for points, _ in more) > _LOOK_AROUND:
            return False
        if not all(self._held.allows(points, amount) for points, amount in more):
            return False
        for points, amount in more:
            self._held.hold(points, amount)
        storage.last = last
        return True


# Side by side in one storage


class _Arenas:
    """Assigns tensors of constant size to arenas."""

    def __init__(self, held: _Held, calls: Iterable[int], places: Places) -> None:
        self._held = held
        self._calls = sorted(calls)
        self._places = places
        self._nbytes: dict[Allocation, int] = {}

    def plan(self, body: Region, users: dict[Allocation, int]) -> None:
        """Assign places to allocations, given in order with their sizes in bytes."""
        self._nbytes = users
        self._region(body, list(users))

    def _region(self, region: Region, users: list[Allocation]) -> None:
        """Plan the allocations in a region.  No arena is held across a call of another function."""
        cuts = sorted({region.index_at(p) for p in self._calls if _contains(region, p)})
        first = 0
        for cut in cuts:
            self._span(region, first, cut, users)
            self._branches(region, cut, users)
            first = cut + 1
        self._span(region, first, len(region.bindings), users)

    def _branches(self, region: Region, index: int, users: list[Allocation]) -> None:
        for branch in region.branches.get(index, ()):
            self._region(branch, [u for u in users if _contains(branch, u.start)])

    def _span(
        self,
        region: Region,
        first: int,
        stop: int,
        users: list[Allocation],
        cuts: int = _MOST_CUTS,
    ) -> None:
        """Plan the allocations that start and end in the bindings of a region from `first` to
        before `stop`."""
        start, end = region.start(first), region.start(stop)
        users = [u for u in users if start <= u.start and u.last < end]
        if len(users) < 2 or self._place_in_arena(region, users):
            return
        if cuts and stop - first > 1:
            middle = _best_cut(region, first, stop, users, self._nbytes)
            self._span(region, first, middle, users, cuts - 1)
            self._span(region, middle, stop, users, cuts - 1)
            return
        for index in region.branches:
            if first <= index < stop:
                self._branches(region, index, users)

    def _place_in_arena(self, region: Region, users: list[Allocation]) -> bool:
        """Place all allocations in one arena; returns whether the limit allows it."""
        nbytes = self._nbytes
        start = region.start(region.index_at(users[0].start))
        last = max(region.last_of(u.end) for u in users)
        alive = [0] * (last + 2 - start)
        for user in users:
            alive[user.start - start] += nbytes[user]
            alive[user.last + 1 - start] -= nbytes[user]
        alive = list(accumulate(alive[:-1]))
        if not self._is_allowed(start, alive, max(alive)):
            return False
        blocks = [Block(u.start, u.end, nbytes[u]) for u in users]
        for alignment in (*_ALIGNMENTS, max(as_dtype(u.dtype).itemsize for u in users)):
            layout = pack(blocks, alignment)
            if self._is_allowed(start, alive, layout.nbytes):
                break
        else:
            return False
        storage = _Storage(users[0], region, int_imm(layout.nbytes))
        for user, offset in zip(users, layout.offsets, strict=True):
            self._places[user.var] = storage, offset
        for point, own in enumerate(alive, start):
            self._held.hold_constant(point, layout.nbytes - own)
        return True

    def _is_allowed(self, start: int, alive: list[int], nbytes: int) -> bool:
        """Whether `nbytes` may be held in place of the live bytes, from `start` on."""
        return all(
            own >= nbytes or self._held.allows_constant(point, nbytes - own)
            for point, own in enumerate(alive, start)
        )


def _contains(region: Region, point: int) -> bool:
    return bool(region.starts) and region.starts[0] <= point < region.end


def _best_cut(
    region: Region, first: int, stop: int, users: list[Allocation], nbytes: dict[Allocation, int]
) -> int:
    """The binding near the middle before which the fewest bytes are live."""
    crossing = [0] * (stop - first + 1)
    for user in users:
        crossing[region.index_at(user.start) + 1 - first] += nbytes[user]
        crossing[region.index_at(user.last) + 1 - first] -= nbytes[user]
    crossing = list(accumulate(crossing))
    quarter = (stop - first) // 4
    candidates = range(first + max(1, quarter), stop - quarter)
    return min(candidates, key=lambda cut: crossing[cut - first])


# The pass


class _Plan:
    """The plan of a function: places of allocations."""

    def __init__(self, func: Function, mod: IRModule, small: int, keep_apart: bool) -> None:
        self.places: Places = {}
        self._small = small
        allocations = Allocations(func, mod)
        if keep_apart:
            keep_branches_apart(allocations)
        if len(allocations.all) > 1:
            sizes = _Sizes(func, dict.fromkeys(allocations.regions))
            for group in _by_device(allocations.all):
                self._plan(group, allocations, sizes)

    def _plan(self, group: list[Allocation], allocations: Allocations, sizes: _Sizes) -> None:
        known = {allocation: sizes.of(allocation) for allocation in group}
        ranges = allocations.live_ranges(
            lambda a, b: a in known and b in known and known[a][1] == known[b][1]
        )
        held = _Held(sizes, allocations)
        held.start(
            [(first, last, known[a][1], sure) for a, first, last, sure in ranges if a in known]
        )
        planned = [
            (a, nbytes, size)
            for a, (nbytes, size) in known.items()
            if not _is_too_small(a.shape, a.dtype, self._small)
        ]
        constant = {a: n.value for a, n, _ in planned if type(n) is IntImm and not a.escapes}
        _Arenas(held, allocations.calls, self.places).plan(allocations.body, constant)
        sharing = _Sharing(sizes, held, self.places)
        for allocation, nbytes, size in planned:
            if allocation.var not in self.places:
                sharing.add(allocation, nbytes, size)
        sharing.finish()


def _has_work(func: Function, small: int) -> bool:
    """Whether a function has at least two allocations to plan."""
    count = 0
    for binding in all_bindings(func.body):
        value = binding.value
        if isinstance(value, Call) and value.op is ALLOC_TENSOR:
            shape, dtype, *_ = value.args
            if isinstance(shape, ShapeExpr) and isinstance(dtype, DataTypeImm):
                count += not _is_too_small(shape, dtype.value, small)
                if count > 1:
                    return True
    return False


def _is_too_small(shape: ShapeExpr, dtype: str, small: int) -> bool:
    """Whether a tensor is of constant shape, and small."""
    nbytes = as_dtype(dtype).itemsize
    for dim in shape.values:
        if type(dim) is not IntImm:
            return False
        nbytes *= dim.value
    return nbytes <= small


def _by_device(planned: list[Allocation]) -> Iterator[list[Allocation]]:
    """Group allocations by device and memory scope."""
    groups: dict[Any, list[Allocation]] = {}
    for allocation in planned:
        groups.setdefault(allocation.where, []).append(allocation)
    yield from groups.values()


class _Rewriter(ExprMutator):
    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places
        self._before: dict[Var, list[_Storage]] = {}
        for storage in dict.fromkeys(storage for storage, _ in places.values()):
            self._before.setdefault(storage.before, []).append(storage)

    def visit_binding(self, binding: Binding) -> Binding | list[Binding]:
        storages = [s.alloc(binding.span) for s in self._before.get(binding.var, ())]
        place = self._places.get(binding.var)
        if place is None:
            new = self._view(binding) or super().visit_binding(binding)
        else:
            call: Any = binding.value
            shape, dtype, device, _ = self.visit_all(call.args)
            assert isinstance(dtype, DataTypeImm)
            storage, offset = place
            tensor = alloc_tensor(storage.var, offset, shape, dtype, device, binding.var.ty)
            new = self.rebind(binding, tensor)
        if not storages:
            return new
        return [*storages, *([new] if isinstance(new, Binding) else new)]


    def _view(self, binding: Binding) -> Binding | None:
        """Instead of a view of a tensor in a storage: a tensor there, which is made faster."""
        value = binding.value
        if not isinstance(value, Call) or value.op is not VIEW:
            return None
        tensor, shape, dtype, offset = value.args
        place = self._places.get(tensor)  # type: ignore[call-overload]
        if place is None or not isinstance(shape, ShapeExpr):
            return None
        if not isinstance(dtype, DataTypeImm) or not isinstance(offset, IntImm):
            return None
        storage, start = place
        start += offset.value
        part = alloc_tensor(storage.var, start, shape, dtype, storage.device, binding.var.ty)
        return self.rebind(binding, part)


def PlanMemory(*, small: int = SMALL, keep_apart: bool = False) -> Pass:
    """Replace builtin.alloc_tensor by memory.alloc_tensor in storages (memory.alloc_storage) that
    tensors share.  The peak is not higher than with a separate storage for each tensor.

    Unlike `StaticPlanBlockMemory` it shares storages between data types, across branches, between
    different symbolic sizes if one is provably greater, and places tensors side by side in one
    storage.  Tensors that cannot share, that are small, or that may escape are left unchanged.  The
    attributes "tir_var_upper_bound", "tir_var_lower_bound" and "tir_non_negative_var" have the same
    meaning.  Results are not planned, and "relax.memory_plan_dynamic_func_output" is removed.

    Args:
        small: tensors of constant shape are not planned up to this size in bytes.
        keep_apart: let a tensor take over the memory of another one only if whatever writes it
            depends on all uses of that, so that calls that are independent of each other can run
            side by side: for ``VirtualMachine(..., executor="dataflow")``.  This takes more memory.

    Requires: explicit allocations (CallTIRRewrite).  Ensures: nothing else writes to the bytes of a
    tensor between its allocation and its last use.
    """

    @function_pass(name="PlanMemory")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if _has_work(func, small):
            places = _Plan(func, mod, small, keep_apart).places
            if places:
                func = _Rewriter(places).visit(func)
        return func.without_attr(DYNAMIC_OUTPUT) if DYNAMIC_OUTPUT in func.attrs else func

    return run
