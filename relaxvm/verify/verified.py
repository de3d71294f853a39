"""A record of the executables that have been verified, so that none is verified twice.

An executable is immutable, so a verification stays valid, under the same limits and for callees
with the same signatures.  Executables are recorded by identity, since comparing their content would
take time; an entry exists as long as its executable.
"""

from __future__ import annotations

import weakref
from typing import Final

from ..executable import FunctionInfo, VMExecutable
from ..isa import FuncKind
from ..limits import Limits
from ..registry import GLOBAL, KERNEL_PREFIX, RESULT_PREFIX, PackedFunc, Registry, Signature

__all__ = ["ensure_verified", "is_shipped", "passed_before", "passes_as"]

_LIMITS: Final = (
    "functions", "instructions", "registers", "call_args", "constants", "name_bytes", "rank",
    "shape_dims",
)  # fmt: skip
"""The fields of `Limits` that verification uses."""

_KEPT: Final = 8
"""The most verifications recorded per executable."""

_SHIPPED: Final = "shipped"
"""Stands for the signature of a function of relaxvm, which cannot change."""

_Basis = tuple[tuple[int | None, ...], tuple[Signature | str | None, ...]]
"""The basis of a verification: limits, and the signatures of the packed functions."""

_verified: Final[dict[int, tuple[weakref.ref[VMExecutable], list[_Basis]]]] = {}


def ensure_verified(
    executable: VMExecutable, *, limits: Limits | None = None, registry: Registry | None = None
) -> None:
    """Verify an executable unless the same object has passed under limits at least as strict.

    Args:
        executable: the executable that is to run.
        limits: bounds on its size; the default ones if None.
        registry: has the signatures of packed functions; the global one if None.

    Raises:
        VerifyError: the executable is invalid; the error has all problems.
    """
    limits = Limits() if limits is None else limits
    if registry is None:
        registry = GLOBAL
    bounds, signatures = _basis(executable, limits, registry)
    entry = _verified.get(id(executable))
    if entry is not None and any(
        known == signatures and _as_strict(old, bounds) for old, known in entry[1]
    ):
        return
    from .verifier import verify  # here, since programs from the cache do not need it

    verify(executable, limits=limits, registry=registry).check()
    _remember(executable, (bounds, signatures))


def passes_as(executable: VMExecutable, verified: VMExecutable) -> VMExecutable:
    """Record that `executable` has passed what `verified` has passed, and return it.  They may
    differ only in their kernels, and those of `executable` are not from a file: no rule reads them.
    """
    _, known = _verified.get(id(verified), (None, []))
    for basis in known:
        _remember(executable, basis)
    return executable


def passed_before(executable: VMExecutable) -> None:
    """Record that an executable has passed in an earlier process under the default limits, with
    this copy of relaxvm.  Nothing is recorded if a function that it calls is not relaxvm's own: the
    earlier process may have known another signature."""
    if all(record is None or is_shipped(record) for record in _callees(executable, GLOBAL)):
        _remember(executable, _basis(executable, Limits(), GLOBAL))


def is_shipped(record: PackedFunc) -> bool:
    """Whether a function is still the builtin or kernel that relaxvm has registered under its name.
    Other packages may register kernels too."""
    from .. import builtins

    if GLOBAL.is_deferred(record) or builtins.is_reference(record):
        return True
    module = getattr(record.func, "__module__", None) or ""
    if record.name.startswith(RESULT_PREFIX):
        return module.startswith("relaxvm.kernels.")
    if not (record.name.startswith(KERNEL_PREFIX) and module.startswith("relaxvm.")):
        return False
    from .. import kernels  # here, since many programs call no kernels

    return kernels.is_kernel(record)


def _remember(executable: VMExecutable, basis: _Basis) -> None:
    key = id(executable)
    if key not in _verified:
        _verified[key] = weakref.ref(executable, lambda _: _verified.pop(key, None)), []
    known = _verified[key][1]
    known.append(basis)
    del known[:-_KEPT]


def _basis(executable: VMExecutable, limits: Limits, registry: Registry) -> _Basis:
    return (
        tuple(getattr(limits, name) for name in _LIMITS),
        tuple([
            None if record is None else _SHIPPED if is_shipped(record) else record.signature
            for record in _callees(executable, registry)
        ]),
    )


def _callees(executable: VMExecutable, registry: Registry) -> list[PackedFunc | None]:
    # Nothing is known about the entries yet, not even that they are FunctionInfo.
    return [
        registry.callee(info.name)
        for info in executable.functions
        if type(info) is FunctionInfo and type(info.name) is str and info.kind == FuncKind.PACKED
    ]


def _as_strict(old: tuple[int | None, ...], new: tuple[int | None, ...]) -> bool:
    return all(
        wanted is None or (bound is not None and bound <= wanted)
        for bound, wanted in zip(old, new, strict=True)
    )
