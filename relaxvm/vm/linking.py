"""Linking: find the callables of all packed functions of an executable before anything runs.

The caller of `VirtualMachine` decides which functions a file may call, by ``functions``:

============================  =====================================================================
``functions``                 packed functions that the file may call
============================  =====================================================================
None                          all that are registered globally
names: list, set, ...         these, from the global registry; and the harmless builtins
dict from name to callable    these; and the harmless builtins
`Registry`                    those in it and in its parents; and the harmless builtins
============================  =====================================================================

A builtin or kernel of relaxvm is harmless if it has no effects beyond its arguments
(`PackedFunc.effect` is false).  A function that a user registers under such a name is not.
Linking only looks up names: it does not open files or load libraries.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .. import builtins
from ..core.ffi import as_packed
from ..errors import InternalError, LinkError, did_you_mean
from ..executable import SavedPrimFuncs, StoredKernels, VMExecutable
from ..isa import KIND_SHIFT, VALUE_MASK, ArgKind, FuncKind, Opcode
from ..limits import Limits
from ..messages import readable
from ..registry import COMPILED_PREFIX, GLOBAL, KERNEL_PREFIX, RESULT_PREFIX, PackedFunc, Registry
from ..verify.verified import is_shipped

__all__ = ["Functions", "Linked", "is_own_kernel", "link", "scope_of"]

Functions = Registry | Mapping[str, Callable[..., Any]] | Iterable[str] | None

_LISTED: Final = 100
"""The most missing functions in the message of a LinkError; its `missing` has all of them."""
_HINTED: Final = 20
"""The most missing functions for which similar names are searched, which is slow."""
_NAME: Final = 200
"""The most characters shown of a name."""
_CALLERS: Final = 3
"""The most callers named per missing function."""


class Scope(Registry):
    """The packed functions that the executable of one VM may call.

    Attributes:
        allowed: the names permitted in the global registry, None for all of them.
    """

    def __init__(self, own: Registry | None, allowed: frozenset[str] | None) -> None:
        super().__init__()
        self._functions = own
        self._kernels: Mapping[str, Callable[..., Any]] = {}
        self._stored: StoredKernels | None = None
        self.allowed = allowed

    @property
    def given(self) -> Registry | frozenset[str] | None:
        """What another VM takes as `functions` to have the same ones."""
        return self.allowed if self._functions is None else self._functions

    @property
    def has_own(self) -> bool:
        """Whether it contains functions that are not in the global registry."""
        return self._functions is not None

    def add_kernels(self, kernels: Mapping[str, Callable[..., Any]]) -> None:
        """Add the functions that were compiled with an executable.  They are found after those
        passed by the caller and before the registered ones.

        PrimFuncs of a file are not compiled here, but by `make_kernels`; until then they are found,
        and cannot be called."""
        if isinstance(kernels, StoredKernels):
            self._stored = kernels
        is_made = not isinstance(kernels, (SavedPrimFuncs, StoredKernels))
        self._kernels = kernels if is_made else dict.fromkeys(kernels, _not_made)

    def make_kernels(self, executable: VMExecutable, limits: Limits) -> None:
        """Compile the PrimFuncs of a file that a verified executable calls.

        Raises:
            FormatError, LimitError, CompilerError: as `SavedPrimFuncs.make`.
        """
        saved = executable.kernels
        if isinstance(saved, StoredKernels):
            saved = saved.saved or {}
        if not isinstance(saved, SavedPrimFuncs):
            return
        names = [
            info.name
            for info in executable.functions
            if info.kind == FuncKind.PACKED and info.name in saved
            and (self._functions is None or self._functions.lookup(info.name) is None)
        ]  # fmt: skip
        self._kernels = {**self._kernels, **saved.make(names, limits)}

    def lookup(self, name: str) -> PackedFunc | None:
        return self._found(name, GLOBAL.lookup)

    def callee(self, name: str) -> PackedFunc | None:
        return self._found(name, GLOBAL.callee)

    def _found(
        self, name: str, in_global: Callable[[str], PackedFunc | None]
    ) -> PackedFunc | None:
        if self._functions is not None:
            record = self._functions.lookup(name)
            if record is not None:
                return record
        if name in self._kernels:
            return PackedFunc(name, self._kernels[name])
        record = in_global(name)
        return record if record is not None and self._permits(record) else None

    def _permits(self, record: PackedFunc) -> bool:
        if self._functions is None and (self.allowed is None or record.name in self.allowed):
            return True
        return is_shipped(record) and not record.effect

    def names(self) -> list[str]:
        known = set(self._functions.names()) if self._functions is not None else set()
        known.update(self._kernels)
        known.update(name for name in GLOBAL.names() if self.lookup(name) is not None)
        return sorted(known)

    def why_missing(self, name: str) -> str:
        """Return the reason why `lookup` returned None."""
        if GLOBAL.lookup(name) is not None:
            return "registered, but `functions` does not allow it"
        if self._stored is not None and name in self._stored.names:
            return "it is in the file, but only relaxvm.load(path, native=True) loads it"
        return "not registered" if self._functions is None else "not among `functions`"


def _not_made(*_: Any) -> Any:
    raise InternalError("a PrimFunc of a file that was not compiled")


def scope_of(functions: Functions) -> Scope:
    """Return the scope for the argument ``functions`` of a VM.

    Raises:
        TypeError: it has none of the forms in the module's docstring.
    """
    if functions is None:
        return Scope(None, None)
    if isinstance(functions, Registry):
        return Scope(functions, None)
    if isinstance(functions, Mapping):
        return Scope(Registry(dict(functions)), None)
    if isinstance(functions, (str, bytes)) or not isinstance(functions, Iterable):
        raise TypeError(f"functions: expected a dict, a Registry or an iterable of names, "
                        f"got {type(functions).__name__}")
    names = frozenset(functions)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"functions: expected names, got {type(name).__name__}")
    return Scope(None, names)


class Linked(NamedTuple):
    """The linked function table for the core, entry by entry.

    Attributes:
        callables: the callable of a packed function, None for a bytecode function.
        quick: the name of the builtin if the callable is the reference builtin; the ufunc if it is
            a kernel that only computes that ufunc; the kernel if it has implementations in C;
            else None.
    """

    callables: tuple[Callable[..., Any] | None, ...]
    quick: tuple[str | np.ufunc | Callable[..., Any] | None, ...]


def link(executable: VMExecutable, scope: Scope) -> Linked:
    """Find the callables of all packed functions.

    Raises:
        LinkError: one or more are missing; the error has all names.  A compiled function without
            code (see `relaxvm.vm.compiled_functions`) is listed by its own name.
    """
    callables: list[Callable[..., Any] | None] = []
    quick: list[str | np.ufunc | Callable[..., Any] | None] = []
    missing: list[int] = []
    for index, info in enumerate(executable.functions):
        record = scope.callee(info.name) if info.kind == FuncKind.PACKED else None
        if record is None and info.kind != FuncKind.BYTECODE:
            missing.append(index)
        callables.append(as_packed(record.func, record.name) if record is not None else None)
        quick.append(None if record is None else _quick(record))
    if missing:
        raise _link_error(executable, scope, missing)
    return Linked(tuple(callables), tuple(quick))


def _quick(record: PackedFunc) -> str | np.ufunc | Callable[..., Any] | None:
    is_deferred = GLOBAL.is_deferred(record)
    if not record.name.startswith((KERNEL_PREFIX, RESULT_PREFIX)):
        return record.name if is_deferred or builtins.is_reference(record) else None
    if is_deferred:
        from ..kernels import quick_of_deferred

        return quick_of_deferred(record)
    if not is_own_kernel(record):
        return None
    from ..kernels import record_of

    kernel = record_of(record.name)
    assert kernel is not None
    return kernel.ufunc or (kernel.run if kernel.implementations else None)


def is_own_kernel(record: PackedFunc) -> bool:
    """Whether a function is the one that `relaxvm.kernels.kernel` has registered for its name."""
    if not record.name.startswith(KERNEL_PREFIX):
        return False
    from ..kernels import is_kernel  # here, since most programs call no kernels

    return is_kernel(record)


def _link_error(executable: VMExecutable, scope: Scope, missing: Sequence[int]) -> LinkError:
    table = executable.functions
    compiled = [
        table[i].name.removeprefix(COMPILED_PREFIX) for i in missing if _is_code(executable, i)
    ]
    packed = [i for i in missing if not _is_code(executable, i)]
    lines = []
    if packed:
        total = sum(f.kind == FuncKind.PACKED for f in table)
        lines.append(f"cannot link: {len(packed)} of {total} packed functions missing")
        lines.extend(_missing_lines(executable, scope, packed))
        lines.append("  register with relaxvm.register_func(name, func), or pass it to this VM: "
                     "VirtualMachine(..., functions={name: func})")
    if compiled:
        lines.append(f"cannot link: compiled functions without their code: {_listing(compiled)}")
        lines.append("  load the file with relaxvm.load(path, native=True), or pass it as "
                     f"functions={{'{COMPILED_PREFIX}NAME': func}}")
    return LinkError("\n".join(lines), (*(table[i].name for i in packed), *compiled))


def _is_code(executable: VMExecutable, index: int) -> bool:
    """Return whether an entry of the table is the code of a compiled function."""
    prefix, name = COMPILED_PREFIX, executable.functions[index].name
    return name.startswith(prefix) and executable.has_function(name.removeprefix(prefix))


def _missing_lines(
    executable: VMExecutable, scope: Scope, packed: Sequence[int]
) -> Iterable[str]:
    listed = packed[:_LISTED]
    callers = _callers(executable, listed)
    known = scope.names()
    for rank, index in enumerate(listed):
        name = executable.functions[index].name
        hint = did_you_mean(name, known) if rank < _HINTED else ""
        yield f"  {_shown(name)!r}, {callers[index]}: {scope.why_missing(name)}{hint}"
    if len(packed) > _LISTED:
        yield f"  ... and {len(packed) - _LISTED:,} more"


def _callers(executable: VMExecutable, indices: Sequence[int]) -> dict[int, str]:
    """Return for each function of the table its users, with the first use in each."""
    data, offset = executable.instr_data, executable.instr_offset
    calls = offset[data[offset] == Opcode.CALL]
    callees = data[calls + 2]
    # Only argument words have the kind "function" in their upper bits.
    operands = np.flatnonzero(data >> KIND_SHIFT == ArgKind.FUNCTION)
    mentioned = data[operands] & VALUE_MASK
    functions = sorted(
        (f for f in executable.functions if f.kind == FuncKind.BYTECODE),
        key=lambda f: f.start_instr,
    )
    starts = [f.start_instr for f in functions]
    is_compiled = any(_is_code(executable, index) for index in range(len(executable.functions)))
    found = {}
    for index in indices:
        words = np.union1d(calls[callees == index], operands[mentioned == index])
        pcs = np.unique(np.searchsorted(offset, words, side="right") - 1)
        first: dict[str, int] = {}
        for pc in pcs.tolist():
            first.setdefault(functions[bisect_right(starts, pc) - 1].name, pc)
            if len(first) > _CALLERS:
                break
        found[index] = _called_by(first, len(pcs), is_compiled)
    return found


def _called_by(first: Mapping[str, int], total: int, is_compiled: bool) -> str:
    if not first:
        return "used by compiled functions" if is_compiled else "never used"
    shown = [f"{readable(name, _NAME)} (pc {pc})" for name, pc in list(first.items())[:_CALLERS]]
    more = total - len(shown)
    tail = f" and {more:,} more place{'s' if more > 1 else ''}" if more else ""
    return f"used by {', '.join(shown)}{tail}"


def _shown(name: str) -> str:
    # A file may have names of 64 KiB; the error's `missing` has the complete names.
    return name if len(name) <= _NAME else f"{name[:_NAME]}..."


def _listing(names: Sequence[str]) -> str:
    shown = ", ".join(repr(_shown(name)) for name in names[:_LISTED])
    more = len(names) - _LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown
