"""PlanMemory: as few storages as will do without raising the peak.

A program that gives each tensor a storage of its own, from its allocation to its last use, has
the least peak that a plan can have, and the most allocations.  So tensors are put together as long
as no run of the function holds more for it at any time than that program would at its worst:

- Of constant size: many in one *arena*, each at an offset of its own, where none overlaps one that
  lives at the same time, whatever their data types.  Where an arena would raise the peak, those of
  shorter times are tried.
- The others: one after the other in a storage, if the one size is provably not above the other.
  The last one may be a result, if it fills the storage.

The most that may be held is figured for each path through the branches, since only one of two
branches runs, and where the function calls another one, which needs memory as well, nothing may be
held but what is alive.  Tensors that something may keep are not planned, see `Allocations`.
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
from ..values import as_dtype
from ._memory_calls import alloc_storage, alloc_tensor
from ._packing import Block, pack
from .pass_infra import Pass, PassContext, function_pass
from .static_plan_block_memory import DYNAMIC_OUTPUT, SizeBounds

__all__ = ["PlanMemory"]

SMALL: Final = 1024
"""Tensors of at most so many bytes are left alone: the VM keeps them between runs, and hands them
out several times faster than it makes a tensor in an arena."""

_ALIGNMENTS: Final = (64, 16)
"""Of offsets, in bytes, the best one first: that of storages, that of vectors.  If the gaps that
they leave raise the peak it is the size of the elements."""

_MOST_CUTS: Final = 4
"""How often a span of time is cut in two where its arena would raise the peak."""

_LOOK_BACK: Final = 16
"""Storages that are looked at for a tensor, the latest first."""

_LOOK_AROUND: Final = 256
"""Points that are looked at to see whether a storage may be held for longer."""


class _Storage:
    """Memory that is allocated before the binding of `before`, and `region` is around its use."""

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
    """Sizes of allocations, and what is known of them."""

    def __init__(self, func: Function, regions: Iterable[Region]) -> None:
        self._bounds = SizeBounds(func)
        super().__init__(self._bounds.analyzer)
        types = [param.ty for param in func.params]
        self.signature = frozenset(v for ty in types for v in type_free_vars(ty))
        types += [b.ty for r in regions for b in r.bindings if type(b) is MatchCast]
        for var in dimensions(types):
            self._bounds.bind_dimension(var)

        self._of_shape: dict[tuple[object, ...], tuple[Expr, Polynomial]] = {}

    def of(self, allocation: Allocation) -> tuple[Expr, Polynomial]:
        """Bytes of an allocation, and their normal form."""
        shape, dtype = allocation.shape, allocation.dtype
        key = (dtype, *[dim.value if type(dim) is IntImm else dim for dim in shape.values])
        found = self._of_shape.get(key)
        if found is None:
            nbytes = self._bounds.nbytes(shape, dtype)
            found = self._of_shape[key] = nbytes, self.analyzer.normal_form(nbytes)
        return found


class _Limit:
    """The most that may be held at some points: one of `peaks`, and `most` bytes where that is of
    constant size; what is known of it by now."""

    __slots__ = ("known", "most", "peaks")

    def __init__(self, peaks: list[Polynomial], most: int | None) -> None:
        self.peaks = peaks
        self.most = most
        self.known: dict[tuple[int, int], bool] = {}


class _Held:
    """What is held at each point, and the most that may be.

    An amount is a constant and a symbolic part; that part is a number, the same for equal ones.  So
    what many points have in common is figured once for all of them.
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

    def start(self, lives: list[tuple[int, int, Polynomial, bool]]) -> None:
        """Let it be what is alive: bytes from a first to a last point, and whether that is certain.
        The program with a storage for each tensor holds that, so its most is what may be held."""
        self._constant, self._symbolic = self._alive(lives)
        if not all(certain for *_, certain in lives):
            least = self._alive([life for life in lives if life[-1]])
        else:
            least = self._constant, self._symbolic
        limits = self._most(*least)
        self._limits = [limits[region] for region in self._regions]
        for point in self._calls:
            live = _amount(least[0][point], self._parts[least[1][point]])
            self._limits[point] = _Limit([live], None)

    def _alive(self, lives: list[tuple[int, int, Polynomial, bool]]) -> tuple[list[int], list[int]]:
        """What is alive at each point, of constant sizes and of others."""
        count = len(self._regions)
        changes: list[list[tuple[int, Polynomial]]] = [[] for _ in range(count + 1)]
        for first, last, size, _ in lives:
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

    def _most(self, constants: list[int], symbolics: list[int]) -> dict[Region | None, _Limit]:
        """The most that is alive on the way to and inside of each region, other branches left
        out."""
        greatest: dict[Region, dict[int, int]] = {}
        for region, constant, symbolic in zip(self._regions, constants, symbolics, strict=True):
            own = greatest.setdefault(region, {})
            if own.get(symbolic, -1) < constant:
                own[symbolic] = constant
        limits: dict[Region | None, _Limit] = {None: _Limit([], 0)}
        for region, own in greatest.items():  # those around come first
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
        """Whether so many more bytes may be held at each of some points."""
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
        """`allows` of a constant amount at one point."""
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
        """Hold so many more bytes at each of some points."""
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
        """`hold` of a constant amount at one point."""
        self._constant[point] += more


def _split(amount: Polynomial) -> tuple[int, Polynomial]:
    """The constant part of an amount, and the rest."""
    constant = amount.get((), 0)
    if not constant:
        return 0, amount
    return constant, {m: c for m, c in amount.items() if m} if len(amount) > 1 else {}


def _amount(constant: int, symbolic: Polynomial) -> Polynomial:
    return plus(symbolic, {(): constant}) if constant else symbolic


# One after the other


class _Sharing:
    """Puts tensors into storages, one after the other."""

    def __init__(self, sizes: _Sizes, held: _Held, places: Places) -> None:
        self._sizes = sizes
        self._held = held
        self._places = places
        self._storages: list[_Storage] = []
        self._users: dict[_Storage, list[Allocation]] = {}

    def add(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> None:
        """Find a storage for an allocation; they are added in order.  One that escapes may only be
        the last in a storage, which has to be of its size and region: it may outlive that."""
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
        """Storages of one tensor are no plan."""
        for storage, users in self._users.items():
            if len(users) > 1:
                self._places.update((user.var, (storage, 0)) for user in users)

    def _find(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> _Storage | None:
        free = [
            storage
            for storage in self._storages[: -_LOOK_BACK - 1 : -1]
            if self._users[storage][-1].end < allocation.start
            and storage.region.is_around(allocation.region)
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
        """Whether a storage may be of a size that is mentioned after its allocation only."""
        return self._sizes.at_most(storage.size, size) and all(
            var in self._sizes.signature for var in arith.free_vars(nbytes)
        )

    def _extend(
        self, storage: _Storage, allocation: Allocation, held: Polynomial, size: Polynomial
    ) -> bool:
        """Hold `held` bytes from the first user's start to the last point of the new one, unless
        that is too much."""
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
        # The new user may start while the storage is still held for the If around the former one.
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


# Beside each other


class _Arenas:
    """Puts tensors of constant size into arenas."""

    def __init__(self, held: _Held, calls: Iterable[int], places: Places) -> None:
        self._held = held
        self._calls = sorted(calls)
        self._places = places
        self._nbytes: dict[Allocation, int] = {}

    def plan(self, body: Region, users: dict[Allocation, int]) -> None:
        """Find places for allocations, in order, that need so many bytes."""
        self._nbytes = users
        self._region(body, list(users))

    def _region(self, region: Region, users: list[Allocation]) -> None:
        """Plan what starts inside of a region.  Calls of other functions cut it."""
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
        behind: int,
        users: list[Allocation],
        cuts: int = _MOST_CUTS,
    ) -> None:
        """Plan what starts and ends within the bindings of a region from `first` to `behind`."""
        start, end = region.start(first), region.start(behind)
        users = [u for u in users if start <= u.start and u.last < end]
        if len(users) < 2 or self._has_arena(region, users):
            return
        if cuts and behind - first > 1:
            middle = _best_cut(region, first, behind, users, self._nbytes)
            self._span(region, first, middle, users, cuts - 1)
            self._span(region, middle, behind, users, cuts - 1)
            return
        for index in region.branches:
            if first <= index < behind:
                self._branches(region, index, users)

    def _has_arena(self, region: Region, users: list[Allocation]) -> bool:
        """Place all in one arena; whether that was possible without holding too much."""
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
        """Whether `nbytes` may be held instead of what is alive, from `start` on."""
        return all(
            own >= nbytes or self._held.allows_constant(point, nbytes - own)
            for point, own in enumerate(alive, start)
        )


def _contains(region: Region, point: int) -> bool:
    return bool(region.starts) and region.starts[0] <= point < region.end


def _best_cut(
    region: Region, first: int, behind: int, users: list[Allocation], nbytes: dict[Allocation, int]
) -> int:
    """The binding, near the middle, before which the fewest bytes are alive."""
    crossing = [0] * (behind - first + 1)
    for user in users:
        crossing[region.index_at(user.start) + 1 - first] += nbytes[user]
        crossing[region.index_at(user.last) + 1 - first] -= nbytes[user]
    crossing = list(accumulate(crossing))
    quarter = (behind - first) // 4
    candidates = range(first + max(1, quarter), behind - quarter)
    return min(candidates, key=lambda cut: crossing[cut - first])


# The pass


class _Plan:
    """The plan of a function: the place of each allocation that has one."""

    def __init__(self, func: Function, mod: IRModule, small: int) -> None:
        self.places: Places = {}
        self._small = small
        allocations = Allocations(func, mod)
        if len(allocations.all) > 1:
            sizes = _Sizes(func, dict.fromkeys(allocations.regions))
            for group in _by_device(allocations.all):
                self._plan(group, allocations, sizes)

    def _plan(self, group: list[Allocation], allocations: Allocations, sizes: _Sizes) -> None:
        known = {allocation: sizes.of(allocation) for allocation in group}
        lives = allocations.lives(
            lambda a, b: a in known and b in known and known[a][1] == known[b][1]
        )
        held = _Held(sizes, allocations)
        held.start(
            [(first, last, known[a][1], sure) for a, first, last, sure in lives if a in known]
        )
        planned = [
            (a, nbytes, size)
            for a, (nbytes, size) in known.items()
            if not _is_left_alone(a.shape, a.dtype, self._small)
        ]
        constant = {a: n.value for a, n, _ in planned if type(n) is IntImm and not a.escapes}
        _Arenas(held, allocations.calls, self.places).plan(allocations.body, constant)
        sharing = _Sharing(sizes, held, self.places)
        for allocation, nbytes, size in planned:
            if allocation.var not in self.places:
                sharing.add(allocation, nbytes, size)
        sharing.finish()


def _has_several(func: Function, small: int) -> bool:
    """Whether a function has two allocations or more that are not left alone."""
    count = 0
    for binding in all_bindings(func.body):
        value = binding.value
        if type(value) is Call and value.op is ALLOC_TENSOR:
            shape, dtype, *_ = value.args
            if type(shape) is ShapeExpr and type(dtype) is DataTypeImm:
                count += not _is_left_alone(shape, dtype.value, small)
                if count > 1:
                    return True
    return False


def _is_left_alone(shape: ShapeExpr, dtype: str, small: int) -> bool:
    """Whether a tensor is of constant shape, and small."""
    nbytes = as_dtype(dtype).itemsize
    for dim in shape.values:
        if type(dim) is not IntImm:
            return False
        nbytes *= dim.value
    return nbytes <= small


def _by_device(planned: list[Allocation]) -> Iterator[list[Allocation]]:
    """Allocations by device and memory scope."""
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
            new = super().visit_binding(binding)
        else:
            call: Any = binding.value
            shape, dtype, device, _ = self.visit_all(call.args)
            assert type(dtype) is DataTypeImm
            storage, offset = place
            tensor = alloc_tensor(storage.var, offset, shape, dtype, device, binding.var.ty)
            new = self.rebind(binding, tensor)
        if not storages:
            return new
        return [*storages, *([new] if isinstance(new, Binding) else new)]


def PlanMemory(*, small: int = SMALL) -> Pass:
    """builtin.alloc_tensor becomes memory.alloc_tensor in a memory.alloc_storage that several
    tensors share, without ever holding more than the program would with a storage for each.

    Unlike `StaticPlanBlockMemory` it shares between data types, with branches, between different
    symbolic sizes of which one is provably the greater, and places tensors beside each other in one
    storage.  Tensors that are alone, that are small, or that something may keep are left as they
    are.  The attributes "tir_var_upper_bound" and so on mean what they mean there; results are not
    planned, "relax.memory_plan_dynamic_func_output" goes.

    Args:
        small: tensors of constant shape are left alone up to this size in bytes.

    Requires: allocations spelled out (CallTIRRewrite).  Ensures: the bytes of a tensor are written
    by nothing else between its allocation and its last use.
    """

    @function_pass(name="PlanMemory")
    def run(func: Function, mod: IRModule, ctx: PassContext) -> Any:
        if _has_several(func, small):
            places = _Plan(func, mod, small).places
            if places:
                func = _Rewriter(places).visit(func)
        return func.without_attr(DYNAMIC_OUTPUT) if DYNAMIC_OUTPUT in func.attrs else func

    return run
