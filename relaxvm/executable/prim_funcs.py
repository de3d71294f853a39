"""PrimFuncs that a file contains as IR, and the kernels that are made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ..hooks import hook
from ..limits import Limits
from ..messages import readable

__all__ = ["MadeKernel", "PrimFuncFacts", "SavedPrimFuncs"]


class PrimFuncFacts(NamedTuple):
    """What is known about a PrimFunc before it runs.

    Attributes:
        unproved: the buffers and dimensions of accesses that are not proved to be in bounds.  The
            kernel checks them whenever it runs.
        local_bytes: the bytes of each local buffer; None if they depend on arguments.
    """

    unproved: tuple[str, ...]
    local_bytes: tuple[int | None, ...]

    @property
    def grows(self) -> bool:
        """Whether the size of a local buffer depends on arguments."""
        return None in self.local_bytes

    def check(self, limits: Limits, place: str) -> None:
        """Raise `LimitError` if the function, which is called `place`, exceeds a limit."""
        if self.unproved:
            shown = ", ".join(self.unproved[:3]) + (", ..." if len(self.unproved) > 3 else "")
            limits.check(
                "unproved_accesses", len(self.unproved),
                f"{place}: accesses that are not proved to be in bounds ({shown})",
            )  # fmt: skip
        sizes = [size for size in self.local_bytes if size is not None]
        limits.check("alloc_bytes", max(sizes, default=0), f"{place}: bytes of a local buffer")
        limits.check("live_bytes", sum(sizes), f"{place}: bytes of local buffers")


class MadeKernel(NamedTuple):
    """A kernel that was made from a PrimFunc, and how it runs."""

    function: Callable[..., Any]
    backend: Literal["c", "python"]
    facts: PrimFuncFacts


class SavedPrimFuncs(Mapping[str, Callable[..., Any]]):
    """The kernels of a program that was saved: PrimFuncs, of which kernels are made when they are
    needed, that is when a `VirtualMachine` of the program is created, or one is looked up here.

    They are compiled by the system's C compiler, or run as Python if there is none; `backends` says
    which.  Under limits of memory, a kernel with local buffers whose sizes depend on arguments runs
    as Python, too.

    Args:
        texts: name -> IR, as JSON of `relaxvm.ir.save_json`.
        source: the file, for messages.
        offsets: name -> the byte of the file at which its IR begins.
        limits: those that the file was read under.  They bound its functions wherever kernels are
            made, also by a virtual machine that has other limits, or none.
    """

    __slots__ = ("_counted", "_made", "limits", "offsets", "source", "texts")

    def __init__(
        self,
        texts: Mapping[str, str],
        source: str = "<memory>",
        offsets: Mapping[str, int] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.texts = dict(texts)
        self.source = source
        self.offsets = dict(offsets or {})
        self.limits = limits
        self._made: dict[str, MadeKernel] = {}
        self._counted: dict[str, MadeKernel] = {}

    @property
    def prim_funcs(self) -> Mapping[str, str]:
        """The IR of the functions, by name: what a file contains."""
        return self.texts

    @property
    def backends(self) -> dict[str, str]:
        """Name -> "c" or "python", of the kernels that have been made."""
        return {name: kernel.backend for name, kernel in {**self._counted, **self._made}.items()}

    def make(self, names: Iterable[str], limits: Limits | None = None) -> dict[str, Any]:
        """Return kernels by name; those that have not been made are.

        Args:
            names: the functions.
            limits: bounds of the work, and on the functions: as for a `VirtualMachine`.

        Raises:
            FormatError: the IR of a function is malformed, or cannot be lowered.
            LimitError: a limit is exceeded.
            CompilerError: the C compiler fails.
        """
        names = list(names)
        counted = limits is not None and (limits.live_bytes, limits.alloc_bytes) != (None, None)
        missing = [name for name in names if self._find(name, counted) is None]
        if missing:
            made: dict[str, MadeKernel] = hook("prim_funcs")(self, missing, limits, counted)
            for name, kernel in made.items():
                # Another thread may have made it; then all use that one.
                found = self._counted if counted and kernel.facts.grows else self._made
                found.setdefault(name, kernel)
        kernels = {}
        for name in names:
            ready = self._find(name, counted)
            assert ready is not None
            for bounds in (limits, self.limits):
                if bounds is not None:
                    ready.facts.check(bounds, self.place(name))
            kernels[name] = ready.function
        return kernels

    def _find(self, name: str, counted: bool) -> MadeKernel | None:
        """Return a kernel if it has been made.

        Args:
            counted: whether memory has a limit.  The local buffers of a kernel in Python count,
                since they are arrays of numpy; those in C do not, so their sizes must be known.
        """
        kernel = self._made.get(name)
        if kernel is None or (counted and kernel.backend == "c" and kernel.facts.grows):
            kernel = self._counted.get(name) if counted else None
        return kernel

    def check(self, limits: Limits | None = None) -> None:
        """Check all functions as `make` does, and make no kernels.  Errors are those of `make`."""
        hook("check_prim_funcs")(self, limits)

    def library(self) -> Any:
        """Return all functions as a `KernelLibrary`, whose code `export_library` can write.  Errors
        are those of `make`."""
        return hook("prim_func_library")(self)

    def place(self, name: str) -> str:
        """Return where a function is, for messages."""
        at = self.offsets.get(name)
        where = "" if at is None else f" at byte {at}"
        return f"{self.source}: PrimFunc {readable(name)!r}{where}"

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self.texts:
            raise KeyError(name)
        function: Callable[..., Any] = self.make([name])[name]
        return function

    def __contains__(self, name: object) -> bool:
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __reduce__(self) -> tuple[Any, ...]:
        return SavedPrimFuncs, (self.texts, self.source, self.offsets)

    def __repr__(self) -> str:
        return f"<SavedPrimFuncs of {readable(self.source)}: {', '.join(map(readable, self))}>"
