"""PlanMemory: as few storages as will do without raising the peak.

A program that gives each tensor a storage of its own, from its allocation to its last use, has
the least peak that a plan can have, and the most allocations.  So tensors are put together as long
as no run of the function holds more for it at any time than that program would at its worst:

- Of constant size: many in one *arena*, each at an offset of its own, where none overlaps one that
  lives at the same time, whatever their data types.  An arena that would raise the peak is split in
  time.
- Of symbolic size: one after the other in a storage, if the one size is provably not above the
  other.

The most that may be held is figured for each path through the branches, since only one of two
branches runs, and where the function calls another one, which needs memory as well, nothing may be
held but what is alive.  Tensors that something may keep are not planned, see `Allocations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ..analysis.allocations import Allocation, Allocations, Region, dimensions
from ..ir import (
    ANY,
    Binding,
    Expr,
    ExprMutator,
    Function,
    IntImm,
    IRModule,
    MatchCast,
    ShapeExpr,
    TensorType,
    Var,
    VarBinding,
    arith,
    int_imm,
    type_free_vars,
)
from ..ir.arith import Polynomial
from ..op import memory
from ..values import as_dtype
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

_LOOK_BACK: Final = 16
"""Storages of symbolic size that are looked at for a tensor, the latest first."""

_LOOK_AROUND: Final = 256
"""Points that are looked at to see whether a storage may be held for longer."""

_MOST_PEAKS: Final = 8
"""Symbolic amounts that are kept as the greatest of a region, of which none is known to be it."""


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
        shape = ShapeExpr([self.nbytes])
        value = memory.alloc_storage(shape, self.device, self.scope, "uint8")
        return VarBinding(self.var, value, span)


Places = dict[Var, tuple[_Storage, int]]
"""Variable of an allocation -> its storage and offset."""


class _Sizes:
    """Sizes of allocations, and what is known of them."""

    def __init__(self, func: Function) -> None:
        self._bounds = SizeBounds(func)
        self.analyzer = self._bounds.analyzer
        self._known: dict[Any, bool] = {}
        types = [param.ty for param in func.params]
        self.signature = frozenset(v for ty in types for v in type_free_vars(ty))
        for var in dimensions(types):
            self._bounds.bind_dimension(var)

    def bind_casts(self, regions: Iterable[Region]) -> None:
        """Dimensions that a match_cast defines are not negative either."""
        for region in regions:
            for binding in region.bindings:
                if type(binding) is MatchCast and type(binding.ty) is TensorType:
                    for var in dimensions([binding.ty]):
                        self._bounds.bind_dimension(var)

    def nbytes(self, allocation: Allocation) -> Expr:
        return self._bounds.nbytes(allocation.shape, allocation.dtype)

    def polynomial(self, nbytes: Expr) -> Polynomial:
        return self.analyzer.normal_form(nbytes)

    def at_most(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p <= q for sure."""
        if p == q:
            return True
        difference = _plus(q, p, -1)
        key = tuple(sorted(difference.items()))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self.analyzer.bounds_of(difference)[0] >= 0
        return known


def _plus(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    """p + scale * q"""
    if not q:
        return p
    total = dict(p)
    for monomial, coefficient in q.items():
        value = total.get(monomial, 0) + scale * coefficient
        if value:
            total[monomial] = value
        else:
            total.pop(monomial, None)
    return total


class _Held:
    """What is held at each point, and the most that may be: by constant and symbolic sizes."""

    def __init__(self, allocations: Allocations, sizes: _Sizes) -> None:
        self._regions = allocations.regions
        self._calls = frozenset(allocations.calls)
        self._sizes = sizes
        count = len(self._regions)
        self.constant = [0] * count
        self.symbolic: list[Polynomial] = [{}] * count
        self._live_constant: list[int] = []
        self._live_symbolic: list[Polynomial] = []
        self._most: dict[Region | None, int] = {}
        self._peaks: dict[Region | None, list[Polynomial]] = {}

    def live(
        self, constant: Sequence[Block], symbolic: Sequence[tuple[int, int, Polynomial]]
    ) -> None:
        """Let it be what is alive, and find out the most of it."""
        count = len(self._regions)
        changes: list[list[tuple[int, Polynomial]]] = [[] for _ in range(count + 1)]
        steps = [0] * (count + 1)
        for start, end, nbytes in constant:
            steps[start] += nbytes
            steps[end + 1] -= nbytes
        for start, end, size in symbolic:
            changes[start].append((1, size))
            changes[end + 1].append((-1, size))
        level = 0
        amount: Polynomial = {}
        for point in range(count):
            level += steps[point]
            for sign, size in changes[point]:
                amount = _plus(amount, size, sign)
            self.constant[point] = level
            self.symbolic[point] = amount
        self._live_constant = list(self.constant)
        self._live_symbolic = list(self.symbolic)
        self._find_most()

    def _find_most(self) -> None:
        """The most that is alive on the way to and inside of each region, other branches left
        out."""
        greatest: dict[Region, dict[Any, tuple[int, Polynomial]]] = {}
        for point, region in enumerate(self._regions):
            own = greatest.setdefault(region, {})
            amount = self.symbolic[point]
            key = tuple(sorted(amount.items())) if amount else ()
            if key not in own or own[key][0] < self.constant[point]:
                own[key] = self.constant[point], amount
        for region, own in greatest.items():  # those around come first
            peaks = list(self._peaks.get(region.parent, ()))
            for constant, amount in own.values():
                peaks.append(_plus(amount, {(): constant} if constant else {}))
            self._peaks[region] = self._without_lesser(peaks)
            most = max(constant for constant, _ in own.values())
            self._most[region] = max(most, self._most.get(region.parent, 0))

    def _without_lesser(self, peaks: list[Polynomial]) -> list[Polynomial]:
        kept: list[Polynomial] = []
        for p in peaks:
            if any(self._sizes.at_most(p, q) for q in kept):
                continue
            kept = [q for q in kept if not self._sizes.at_most(q, p)]
            kept.append(p)
        return kept[:_MOST_PEAKS]

    def allows(self, point: int, constant: int, more: Polynomial) -> bool:
        """Whether so many bytes of constant sizes may be held at a point, and `more` of symbolic
        ones than are."""
        amount = _plus(self.symbolic[point], more)
        if point in self._calls:
            return constant <= self._live_constant[point] and self._sizes.at_most(
                amount, self._live_symbolic[point]
            )
        region = self._regions[point]
        if not amount and constant <= self._most[region]:
            return True
        total = _plus(amount, {(): constant} if constant else {})
        return any(self._sizes.at_most(total, peak) for peak in self._peaks[region])


# Symbolic sizes


class _Sharing:
    """Puts tensors of symbolic size into storages, one after the other."""

    def __init__(self, sizes: _Sizes, held: _Held, places: Places) -> None:
        self._sizes = sizes
        self._held = held
        self._places = places
        self._storages: list[_Storage] = []
        self._users: dict[_Storage, list[Allocation]] = {}

    def add(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> None:
        """Find a storage for an allocation; they are added in order."""
        found = self._find(allocation, nbytes, size)
        if found is None:
            found = _Storage(allocation, allocation.region, nbytes)
            found.size = size
            found.last = allocation.last
            self._users[found] = []
        else:
            self._storages.remove(found)
        self._storages.append(found)
        self._users[found].append(allocation)

    def finish(self) -> None:
        """Storages of one tensor are no plan."""
        for storage, users in self._users.items():
            if len(users) > 1:
                self._places.update((user.var, (storage, 0)) for user in users)

    def _find(self, allocation: Allocation, nbytes: Expr, size: Polynomial) -> _Storage | None:
        for storage in self._storages[: -_LOOK_BACK - 1 : -1]:
            users = self._users[storage]
            if users[-1].end >= allocation.start or not storage.region.is_around(allocation.region):
                continue
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
        region = storage.region
        last = max(storage.last, region.start(region.index_at(allocation.end) + 1) - 1)
        first = self._users[storage][0].start
        more: list[tuple[int, Polynomial]] = []
        if held is not storage.size:
            growth = _plus(held, storage.size, -1)
            more += ((point, growth) for point in range(first, storage.last + 1))
        slack = _plus(held, size, -1)
        for point in range(storage.last + 1, last + 1):
            is_alive = allocation.start <= point <= allocation.last
            if not is_alive:
                more.append((point, held))
            elif slack:
                more.append((point, slack))
        # The new user may start while the storage is still held for the If around the former one.
        for point in range(allocation.start, min(storage.last, allocation.last) + 1):
            more.append((point, _plus({}, size, -1)))
        if len(more) > _LOOK_AROUND:
            return False
        constant, symbolic = self._held.constant, self._held.symbolic
        if not all(self._held.allows(point, constant[point], extra) for point, extra in more):
            return False
        for point, extra in more:
            symbolic[point] = _plus(symbolic[point], extra)
        storage.last = last
        return True


# Constant sizes


class _Arenas:
    """Puts tensors of constant size into arenas."""

    def __init__(self, held: _Held, calls: Iterable[int], places: Places) -> None:
        self._held = held
        self._calls = sorted(calls)
        self._places = places
        self._nbytes: dict[Allocation, int] = {}

    def plan(self, body: Region, blocks: dict[Allocation, int]) -> None:
        self._nbytes = blocks
        self._region(body, list(blocks))

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

    def _span(self, region: Region, first: int, behind: int, users: list[Allocation]) -> None:
        """Plan what starts and ends within the bindings of a region from `first` to `behind`."""
        start, end = region.start(first), region.start(behind)
        users = [u for u in users if start <= u.start and u.last < end]
        if len(users) < 2 or self._has_arena(region, users):
            return
        if behind - first == 1:
            self._branches(region, first, users)
            return
        middle = _best_cut(region, first, behind, users, self._nbytes)
        self._span(region, first, middle, users)
        self._span(region, middle, behind, users)

    def _has_arena(self, region: Region, users: list[Allocation]) -> bool:
        """Place all in one arena; whether that was possible without holding too much."""
        nbytes = self._nbytes
        start = region.start(region.index_at(users[0].start))
        last = max(region.start(region.index_at(u.end) + 1) - 1 for u in users)
        alive = [0] * (last + 2 - start)
        for user in users:
            alive[user.start - start] += nbytes[user]
            alive[user.last + 1 - start] -= nbytes[user]
        for point in range(1, len(alive)):
            alive[point] += alive[point - 1]
        blocks = [Block(u.start, u.end, nbytes[u]) for u in users]
        for alignment in (*_ALIGNMENTS, max(as_dtype(u.dtype).itemsize for u in users)):
            layout = pack(blocks, alignment)
            if self._is_allowed(start, alive[:-1], layout.nbytes):
                break
        else:
            return False
        storage = _Storage(users[0], region, int_imm(layout.nbytes))
        for user, offset in zip(users, layout.offsets, strict=True):
            self._places[user.var] = storage, offset
        for point, own in enumerate(alive[:-1], start):
            self._held.constant[point] += layout.nbytes - own
        return True

    def _is_allowed(self, start: int, alive: list[int], nbytes: int) -> bool:
        """Whether `nbytes` may be held instead of what is alive, from `start` on."""
        held = self._held
        return all(
            own >= nbytes or held.allows(point, held.constant[point] + nbytes - own, {})
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
    for index in range(1, len(crossing)):
        crossing[index] += crossing[index - 1]
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
        planned = [a for a in allocations.all if not a.escapes]
        if len(planned) > 1:
            sizes = _Sizes(func)
            sizes.bind_casts(dict.fromkeys(allocations.regions))
            for group in _by_device(planned):
                self._plan(group, allocations, sizes)

    def _plan(self, group: list[Allocation], allocations: Allocations, sizes: _Sizes) -> None:
        constant: dict[Allocation, int] = {}
        symbolic: list[tuple[Allocation, Expr, Polynomial]] = []
        for allocation in group:
            nbytes = sizes.nbytes(allocation)
            if type(nbytes) is not IntImm:
                symbolic.append((allocation, nbytes, sizes.polynomial(nbytes)))
            elif nbytes.value > self._small or not _is_constant(allocation.shape):
                constant[allocation] = nbytes.value
        held = _Held(allocations, sizes)
        held.live(
            [Block(a.start, a.last, n) for a, n in constant.items()],
            [(a.start, a.last, size) for a, _, size in symbolic],
        )
        sharing = _Sharing(sizes, held, self.places)
        for item in symbolic:
            sharing.add(*item)
        sharing.finish()
        _Arenas(held, allocations.calls, self.places).plan(allocations.body, constant)


def _is_constant(shape: ShapeExpr) -> bool:
    return all(type(dim) is IntImm for dim in shape.values)


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
            storage, offset = place
            tensor = memory.alloc_tensor(storage.var, offset, shape, dtype, device)
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
        places = _Plan(func, mod, small).places
        if places:
            func = _Rewriter(places).visit(func)
        return func.without_attr(DYNAMIC_OUTPUT) if DYNAMIC_OUTPUT in func.attrs else func

    return run
