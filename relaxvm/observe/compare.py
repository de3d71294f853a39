"""Comparing two programs variable by variable: the first that differs, and by how much.

    print(relaxvm.compare(a, b, [x]))

Both run side by side, each to its next value, so only values that wait for their counterpart are
kept.  Another engine takes part as an iterator of `relaxvm.observe.computed.Computed`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from ..executable import VMExecutable
from ..executable.formats.places import place_text
from ..messages import describe, readable
from ..values import Shape
from ..vm import VirtualMachine
from .computed import Computed, computed
from .copies import copied

__all__ = ["Comparison", "Difference", "Tolerance", "compare", "compare_streams", "differ",
           "values_of"]  # fmt: skip

RESULT: Final = "(result)"
"""The name of what the function returns."""


class Tolerance(NamedTuple):
    """How far elements may be apart: ``abs(a - b) <= atol + rtol * abs(b)``.

    Attributes:
        rtol, atol: None for what fits the data type: sixteen units in the last place, and for
            integers nothing.
        within: in place of both, a part of the largest magnitude in the tensor; data types have to
            be the same, and integers equal.
    """

    rtol: float | None = None
    atol: float | None = None
    within: float | None = None

    def of(self, dtype: np.dtype[Any], largest: float) -> tuple[float, float]:
        """Both for a data type and the largest magnitude in a tensor."""
        if self.within is not None:
            exact = dtype.kind in "biu" and dtype.type.__module__ == "numpy"
            return 0.0, 0.0 if exact else self.within * (largest or 1.0)
        if dtype.kind not in "fc" and dtype.type.__module__ == "numpy":
            return self.rtol or 0.0, self.atol or 0.0
        eps = _epsilon(dtype)
        rtol = 16 * eps if self.rtol is None else self.rtol
        return rtol, rtol if self.atol is None else self.atol


def _epsilon(dtype: np.dtype[Any]) -> float:
    if dtype.type.__module__ == "numpy":
        return float(np.finfo(dtype).eps)
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Difference:
    """How two values of a variable differ, or that they do not.

    Attributes:
        name: the variable, or `RESULT`.
        text: what differs, for people; empty if they are the same within the tolerance.
        max_abs, max_rel: the greatest absolute and relative difference of elements.
        largest: the largest magnitude of a finite element of b.
        count: elements that are too far apart.
        index: of the one that is the farthest apart.
        a, b: where the values come from: function, pc, and place in the source.
    """

    name: str
    text: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    count: int = 0
    index: tuple[int, ...] = ()
    a: str = ""
    b: str = ""
    largest: float = 0.0

    @property
    def distance(self) -> float:
        """`max_abs` as a part of `largest`; 1 for texts that differ, infinite for tensors of other
        shapes or data types."""
        if self.text and not self.count:
            return math.inf
        if self.count and not self.largest and not self.max_abs:
            return 1.0
        return self.max_abs / (self.largest or 1.0)

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        places = "".join(f"\n  in {side}: {text}" for side, text in (("a", self.a), ("b", self.b))
                         if text)  # fmt: skip
        return f"{self.name}: {self.text or 'the same'}{places}"


@dataclass
class Comparison:
    """The result of comparing two programs.

    Attributes:
        compared: the variables that both have, in the order in which the later side had them.
        only_a, only_b: names that one side alone has computed: passes rename and fuse.
        stopped: whether it ended with the first difference.
    """

    compared: list[Difference] = field(default_factory=list)
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    stopped: bool = False

    @property
    def first(self) -> Difference | None:
        """The first variable that differs, None if none does."""
        return next((row for row in self.compared if row), None)

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return self.first is None

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "same": self.same,
            "compared": [{"name": row.name, "same": not row, "text": row.text,
                          "max_abs": row.max_abs, "max_rel": row.max_rel, "count": row.count}
                         for row in self.compared],
            "only_a": self.only_a, "only_b": self.only_b,
        }  # fmt: skip

    def table(self, limit: int = 50) -> str:
        """A line for each variable, those that differ marked."""
        rows = self.compared[:limit]
        width = min(max((len(row.name) for row in rows), default=0), 40)
        lines = [f"{'!' if row else ' '} {readable(row.name, 40):<{width}}  "
                 f"max abs {row.max_abs:.3g}  max rel {row.max_rel:.3g}"
                 f"{f'  {row.text}' if row else ''}" for row in rows]  # fmt: skip
        if len(self.compared) > limit:
            lines.append(f"  ... {len(self.compared) - limit} more")
        return "\n".join(lines)

    def __str__(self) -> str:
        first = self.first
        if first is None:
            head = f"the same: {len(self.compared)} values compared"
        else:
            head = f"the first that differs, of {len(self.compared)} values compared: {first}"
        for side, names in (("a", self.only_a), ("b", self.only_b)):
            if names:
                shown = ", ".join(map(readable, names[:6])) + ", ..." * (len(names) > 6)
                head += f"\nonly in {side}: {shown}"
        return head


def compare(
    a: VirtualMachine | VMExecutable,
    b: VirtualMachine | VMExecutable,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    function: str = "main",
    rtol: float | None = None,
    atol: float | None = None,
    stop: bool = True,
) -> Comparison:
    """Run a function of two programs on the same inputs, and compare what they compute.

    Variables are compared by name: programs that passes have made of one keep the names that are
    still there.  Each side gets its own copy of the inputs.  Memory holds the values that one side
    has computed and the other has not yet.

    Args:
        a, b: two VMs, or executables, for which VMs are made.
        inputs: the arguments of the function, in order or by name.
        function: its name in both.
        rtol, atol: see `Tolerance`.
        stop: end with the first difference; False compares everything.

    Raises:
        Exception: what only one of the programs raises; if both raise the same class, they are the
            same there.
    """
    sides = []
    for side in (a, b):
        vm = side if isinstance(side, VirtualMachine) else VirtualMachine(side)
        args, kwargs = ((), inputs) if isinstance(inputs, Mapping) else (inputs, {})
        own = {name: copied(value) for name, value in kwargs.items()}
        sides.append(values_of(vm, function, *copied(tuple(args)), **own))
    return compare_streams(*sides, tolerance=Tolerance(rtol, atol), stop=stop)


def values_of(
    vm: VirtualMachine, function: str, *args: Any, **kwargs: Any
) -> Iterator[Computed]:
    """What a run of a function computes, and at last its result; an exception is a value."""
    run = vm.functions[function].start(*args, **kwargs)
    debug = vm.executable.debug
    try:
        for item in computed(run):
            place = "" if debug is None or item.pc is None else place_text(debug.location(item.pc))
            yield item._replace(function=f"{item.function}, pc {item.pc}, {place}")
        yield Computed(RESULT, run.result())
    except Exception as error:
        yield Computed(RESULT, error)


def compare_streams(
    a: Iterable[Computed],
    b: Iterable[Computed],
    *,
    tolerance: Tolerance = Tolerance(),  # noqa: B008  (immutable)
    stop: bool = True,
) -> Comparison:
    """Compare two sequences of values by their names, each taken as far as is needed.

    Args:
        a, b: the values of both sides in the order in which they are computed.  A value may change
            once the next one is asked for.
        tolerance: how far elements may be apart.
        stop: end with the first difference.
    """
    found = Comparison()
    sides = iter(a), iter(b)
    waiting: tuple[dict[Any, Computed], dict[Any, Computed]] = {}, {}
    open_sides = [True, True]
    turn = 0
    while any(open_sides):
        turn = 1 - turn if open_sides[1 - turn] else turn
        item = next(sides[turn], None)
        if item is None:
            open_sides[turn] = False
            continue
        other = waiting[1 - turn].pop(item.key, None)
        if other is None:
            waiting[turn][item.key] = item._replace(value=copied(item.value))
            continue
        first, second = (item, other) if turn == 0 else (other, item)
        row = differ(first, second, tolerance)
        found.compared.append(row)
        if row and stop:
            found.stopped = True
            return found
    found.only_a, found.only_b = ([str(item) for item in side.values()] for side in waiting)
    return found


def differ(a: Computed, b: Computed, tolerance: Tolerance) -> Difference:
    """Compare two values of a variable."""
    found = _differ(a.value, b.value, tolerance)
    return Difference(
        str(a), found.text, found.max_abs, found.max_rel, found.count, found.index,
        a.function or "" if found.text else "", b.function or "" if found.text else "",
        found.largest,
    )  # fmt: skip


def _differ(a: Any, b: Any, tolerance: Tolerance) -> Difference:
    if isinstance(a, BaseException) or isinstance(b, BaseException):
        return _differ_errors(a, b)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return _differ_tuples(a, b, tolerance)
    numbers = (np.ndarray, np.generic, bool, int, float)
    if isinstance(a, numbers) and isinstance(b, numbers):
        return _differ_arrays(np.asarray(a), np.asarray(b), tolerance)
    # Functions, storages and other objects of a VM are compared by their class alone.
    plain = (str, Shape, np.dtype, type(None))
    if type(a) is type(b) and (not isinstance(a, plain) or a == b):
        return Difference("")
    return Difference("", f"{describe(a)} and {describe(b)}")


def _differ_errors(a: Any, b: Any) -> Difference:
    if type(a) is type(b):
        return Difference("")
    shown = [f"raises {type(x).__name__}: {str(x)[:200]}" if isinstance(x, BaseException)
             else f"returns {describe(x)}" for x in (a, b)]  # fmt: skip
    return Difference("", f"a {shown[0]}, b {shown[1]}")


def _differ_tuples(a: Sequence[Any], b: Sequence[Any], tolerance: Tolerance) -> Difference:
    if len(a) != len(b) or isinstance(a, Shape) != isinstance(b, Shape):
        return Difference("", f"{describe(a)} and {describe(b)}")
    rows = [_differ(x, y, tolerance) for x, y in zip(a, b, strict=True)]
    bad = next((i for i, row in enumerate(rows) if row), None)
    max_abs = max((row.max_abs for row in rows), default=0.0)
    max_rel = max((row.max_rel for row in rows), default=0.0)
    if bad is None:
        return Difference("", "", max_abs, max_rel)
    row = rows[bad]
    text = f"element {bad}: {row.text}"
    return Difference("", text, max_abs, max_rel, row.count, (bad, *row.index))


def _differ_arrays(a: Any, b: Any, tolerance: Tolerance) -> Difference:
    if a.shape != b.shape:
        return Difference("", f"shapes {list(a.shape)} and {list(b.shape)}")
    mixed = a.dtype.kind + b.dtype.kind
    alike = mixed in ("if", "fi", "bi", "ib") or a.dtype.kind == b.dtype.kind
    if a.dtype.kind in "OU" and b.dtype.kind in "OU":  # texts, as packages have them
        a, b = a.astype(object), b.astype(object)
    if a.dtype != b.dtype and (tolerance.within is not None or not alike):
        return Difference("", f"data types {a.dtype} and {b.dtype}")
    if a.dtype.kind in "OSUV" and a.dtype.type.__module__ == "numpy":
        same = a == b
        count = int(a.size - np.count_nonzero(same))
        return Difference("", f"{count} of {a.size} elements differ" if count else "", count=count)
    if a.size == 0:
        return Difference("")
    wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
    if a.dtype.kind in "iub" and b.dtype.kind in "iub" and a.dtype.type.__module__ == "numpy":
        close = a == b
    else:
        close = None
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        largest = float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
        rtol, atol = tolerance.of(max((a.dtype, b.dtype), key=_coarseness), largest)
        gap = np.abs(x - y)
        equal = (x == y) | (np.isnan(x) & np.isnan(y))
        gap = np.where(equal, 0.0, np.where(np.isnan(gap), math.inf, gap))
        ratio = np.where(gap == 0, 0.0, gap / np.maximum(np.abs(y), 1e-300))
        far = gap > atol + rtol * np.abs(np.where(np.isfinite(y), y, 0.0))
    if close is not None and not rtol and not atol:
        far = ~close
    count = int(np.count_nonzero(far))
    worst = np.unravel_index(int(np.argmax(np.where(far, gap, -1.0) if count else gap)), a.shape)
    index = tuple(int(i) for i in worst)
    max_abs, max_rel = float(gap.max()), float(ratio.max())
    if not count:
        return Difference("", "", max_abs, max_rel, 0, index, largest=largest)
    text = (f"{count} of {a.size} elements differ by up to {max_abs:.3g}, most at {list(index)}: "
            f"{a[worst]} and {b[worst]}")  # fmt: skip
    return Difference("", text, max_abs, max_rel, count, index, largest=largest)


def _coarseness(dtype: np.dtype[Any]) -> float:
    if dtype.kind in "biu" and dtype.type.__module__ == "numpy":
        return 0.0
    return _epsilon(dtype) if dtype.kind in "fcV" else 0.0


