"""Which executables have been verified, so that nothing is verified twice.

An executable is immutable, so what held once holds for good, under the same limits and for callees
with the same signatures.  The record goes by identity (equal content would have to be compared) and
lives as long as the executable.
"""

from __future__ import annotations

import weakref
from typing import Final

from .executable import FunctionInfo, VMExecutable
from .isa import FuncKind
from .limits import Limits
from .registry import GLOBAL, Registry, Signature, load_shipped
from .verify import verify

__all__ = ["ensure_verified", "passes_as"]

_LIMITS: Final = (
    "functions", "instructions", "registers", "call_args", "constants", "name_bytes", "rank",
    "shape_dims",
)  # fmt: skip
"""The fields of `Limits` that verification looks at."""

_KEPT: Final = 8
"""Verifications remembered per executable."""

_Basis = tuple[tuple[int | None, ...], tuple[Signature | None, ...]]
"""What a verification rests on: limits, and the signatures of the packed functions."""

_verified: Final[dict[int, tuple[weakref.ref[VMExecutable], list[_Basis]]]] = {}


def ensure_verified(
    executable: VMExecutable, *, limits: Limits | None = None, registry: Registry | None = None
) -> None:
    """Verify an executable unless this very object has passed under limits as strict as these.

    Args:
        executable: what is about to run.
        limits: bounds on its size; the default ones if None.
        registry: gives the signatures of packed functions; the global one if None.

    Raises:
        VerifyError: with all problems found.
    """
    limits = Limits() if limits is None else limits
    if registry is None:
        load_shipped()  # so that calls of builtins are checked against their signatures
        registry = GLOBAL
    bounds, signatures = _basis(executable, limits, registry)
    entry = _verified.get(id(executable))
    if entry is not None and any(
        known == signatures and _as_strict(old, bounds) for old, known in entry[1]
    ):
        return
    verify(executable, limits=limits, registry=registry).check()
    _remember(executable, (bounds, signatures))


def passes_as(executable: VMExecutable, verified: VMExecutable) -> VMExecutable:
    """An executable that differs from a verified one in its kernels alone, which no rule looks at:
    what is recorded of that one holds for it too."""
    _, known = _verified.get(id(verified), (None, []))
    for basis in known:
        _remember(executable, basis)
    return executable


def _remember(executable: VMExecutable, basis: _Basis) -> None:
    key = id(executable)
    if key not in _verified:
        _verified[key] = weakref.ref(executable, lambda _: _verified.pop(key, None)), []
    known = _verified[key][1]
    known.append(basis)
    del known[:-_KEPT]


def _basis(executable: VMExecutable, limits: Limits, registry: Registry) -> _Basis:
    # Nothing is known about the entries yet, not even that they are FunctionInfo.
    records = [
        registry.lookup(info.name)
        for info in executable.functions
        if type(info) is FunctionInfo and type(info.name) is str and info.kind == FuncKind.PACKED
    ]
    return (
        tuple(getattr(limits, name) for name in _LIMITS),
        tuple(record.signature if record is not None else None for record in records),
    )


def _as_strict(old: tuple[int | None, ...], new: tuple[int | None, ...]) -> bool:
    return all(
        wanted is None or (bound is not None and bound <= wanted)
        for bound, wanted in zip(old, new, strict=True)
    )
