"""Memory use of the functions of a program.

The program has explicit allocations, before or after memory planning.  The figures are for each
function alone, without the functions that it calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..dtypes import as_dtype
from ..ir.arith import Analyzer, Polynomial, evaluate, free_vars
from ..ir.expr import (
    Call,
    DataTypeImm,
    Expr,
    Function,
    If,
    IntImm,
    MatchCast,
    ShapeExpr,
    Var,
    int_imm,
)
from ..ir.infer import dimensions
from ..ir.module import IRModule
from ..ir.op import Op
from ..vm.allocators import format_bytes
from .allocations import VIEWS, Allocation, Allocations, HeldGroup, Region, uses
from .amounts import Amounts, plus

__all__ = ["FunctionMemory", "MemoryReport", "estimate_memory_usage", "memory_report"]

_STORAGES: Final = frozenset({"relax.memory.alloc_storage", "relax.vm.alloc_storage"})
_IN_STORAGE: Final = frozenset({"relax.memory.alloc_tensor", "relax.vm.alloc_tensor"})


@dataclass(frozen=True, slots=True)
class FunctionMemory:
    """Memory use of a function.  Sizes are in bytes, as expressions of its symbolic dimensions.

    Attributes:
        tensors: the number of tensors that it allocates, inside storages or separately.
        tensor_bytes: their total size.
        storages: the number of storages that it allocates; a separate tensor counts as one.
        storage_bytes: their total size.
        peaks: the peak memory is the maximum of these; more than one if it depends on dimensions.
    """

    tensors: int
    tensor_bytes: Expr
    storages: int
    storage_bytes: Expr
    peaks: tuple[Expr, ...]

    def peak(self, **dims: int) -> int:
        """Return the peak memory in bytes, for given values of the symbolic dimensions.

        Raises:
            ValueError: the value of a dimension is missing.
        """
        return max((_value(amount, dims) for amount in self.peaks), default=0)

    def __str__(self) -> str:
        peak = _text(self.peaks[0]) if len(self.peaks) == 1 else "0 bytes"
        if len(self.peaks) > 1:
            peak = f"max({', '.join(map(_text, self.peaks))})"
        return (
            f"{self.tensors} tensors of {_text(self.tensor_bytes)} in {self.storages} storages of "
            f"{_text(self.storage_bytes)}, at most {peak} at once"
        )


class MemoryReport(dict[str, FunctionMemory]):
    """The memory use of each function of a module, by name; ``str()`` is readable text."""

    def __str__(self) -> str:
        return "\n".join(f"{name}: {memory}" for name, memory in self.items())


def _value(amount: Expr, dims: Mapping[str, int]) -> int:
    variables = free_vars(amount)
    missing = [var.name for var in variables if var.name not in dims]
    if missing:
        raise ValueError(f"peak: expected values of {', '.join(missing)}, got {dict(dims)}")
    return int(evaluate(amount, {var: dims[var.name] for var in variables}))


def _text(amount: Expr) -> str:
    return format_bytes(amount.value) if type(amount) is IntImm else f"{amount} bytes"


class _Storages(Allocations):
    """Tracks storages, and tensors outside of storages, through a program, planned or not.  The
    result of a call is taken to hold its arguments, so that they live as long as the result."""

    _views = VIEWS | _IN_STORAGE

    def __init__(self, func: Function, mod: IRModule) -> None:
        self.tensors: list[Expr] = []
        super().__init__(func, mod)

    def _allocation(self, var: Var, call: Call, region: Region, point: int) -> Allocation | None:
        name = call.op.name if isinstance(call.op, Op) else ""
        if name in _STORAGES and isinstance(call.args[0], ShapeExpr):
            return Allocation(var, call.args[0], "uint8", (0, "global"), region, point)
        if name in _IN_STORAGE:
            shape, dtype = call.args[2], call.args[3]
            if isinstance(shape, ShapeExpr) and isinstance(dtype, DataTypeImm):
                self.tensors.append(_nbytes(shape, dtype.value))
        made = super()._allocation(var, call, region, point)
        if made is not None:
            self.tensors.append(_nbytes(made.shape, made.dtype))
        return made

    def _unknown(self, var: Var, call: Call) -> None:
        self._mention(call)
        self._held[var] = self._group(HeldGroup(map(self.of, uses(call))))

    def _joined(self, var: Var, value: If) -> None:
        self._join(var, value)


def _nbytes(shape: ShapeExpr, dtype: str) -> Expr:
    size: Any = int_imm(as_dtype(dtype).itemsize)
    for dim in shape.values:
        size = size * dim
    result: Expr = size
    return result


def memory_report(mod: IRModule) -> MemoryReport:
    """Return the memory use of each Relax function of a program.

    The program must have explicit allocations: after CallTIRRewrite, and possibly a planner and
    KillAfterLastUse.  A storage is held from its allocation to the last use of it or of a tensor in
    it.
    """
    return MemoryReport(
        (var.name_hint, _function_memory(func, mod))
        for var, func in mod.functions.items()
        if isinstance(func, Function)
    )


def _function_memory(func: Function, mod: IRModule) -> FunctionMemory:
    storages = _Storages(func, mod)
    analyzer = Analyzer()
    types = [param.ty for param in func.params]
    for region in dict.fromkeys(storages.regions):
        types += [b.ty for b in region.bindings if isinstance(b, MatchCast)]
    for var in dimensions(types):
        analyzer.bind(var, 0, None)
    sizes = [_nbytes(made.shape, made.dtype) for made in storages.all]
    return FunctionMemory(
        len(storages.tensors),
        _total(storages.tensors, analyzer),
        len(sizes),
        _total(sizes, analyzer),
        _peaks(storages, sizes, analyzer),
    )


def _total(sizes: list[Expr], analyzer: Analyzer) -> Expr:
    total: Any = int_imm(0)
    for size in sizes:
        total = total + size
    return analyzer.simplify(total)


def _peaks(storages: _Storages, sizes: list[Expr], analyzer: Analyzer) -> tuple[Expr, ...]:
    """The candidates for the greatest amount that is held at a point."""
    count = len(storages.regions)
    sizes_of = dict(zip(storages.all, map(analyzer.normal_form, sizes), strict=True))
    changes: list[list[tuple[int, Polynomial]]] = [[] for _ in range(count + 1)]
    for held, first, last, _ in storages.live_ranges(lambda a, b: sizes_of[a] == sizes_of[b]):
        changes[first].append((1, sizes_of[held]))
        changes[last + 1].append((-1, sizes_of[held]))
    amounts = Amounts(analyzer)
    level: Polynomial = {}
    seen: dict[Any, Polynomial] = {}
    for point in range(count):
        for sign, size in changes[point]:
            level = plus(level, size, sign)
        seen.setdefault(tuple(sorted(level.items())), level)
    return tuple(
        analyzer.expression_of(amount) for amount in amounts.greatest(seen.values()) if amount
    )


def estimate_memory_usage(mod: IRModule) -> str:
    """Return `memory_report` as text, one line per function.  Source: TVM's function of this name.
    """
    return str(memory_report(mod))
