"""Registration of kernels."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from ..registry import (
    GLOBAL,
    KERNEL_PREFIX,
    RESULT_PREFIX,
    PackedFunc,
    Signature,
    StaticCheck,
)
from ..support import Unsupported
from .implementations import Impl, dispatched, implementations_of
from .kinds import checked, parameters_of, signature_of
from .results import result_form, result_signature

__all__ = [
    "PREFIX",
    "ChainStep",
    "KernelRecord",
    "is_kernel",
    "kernel",
    "record_of",
    "step_of",
    "ufunc_of",
]

PREFIX: Final = KERNEL_PREFIX

F = TypeVar("F", bound=Callable[..., None])


class ChainStep(NamedTuple):
    """How a kernel is a step of a fused chain (see `relaxvm.kernels.fused`).

    Attributes:
        arity: number of operands.
        chain: the step as a chain of its own, for kernels that are not one ufunc: takes the data
            type of the operands and returns the text of the chain, or None if the kernel is to
            compute this data type.  The steps of the text are ufunc kernels, ``where``, and
            functions of numpy such as ``numpy.reciprocal``.
        is_exact: whether the result depends on the values of the elements only.  Other functions
            are computed in several ways, chosen by the layout of the operands, and their last bits
            differ.
        keeps: kinds of data types (`numpy.dtype.kind`) that the kernel returns as they are, where
            its ufunc returns floats.
        takes_dtype: whether the last operand is the name of a data type.
        choices: the texts of which the last operand is one; empty if it is a tensor or number.
    """

    arity: int = 1
    chain: Callable[[np.dtype[Any]], str | None] | None = None
    is_exact: bool = False
    keeps: str = ""
    takes_dtype: bool = False
    choices: tuple[str, ...] = ()


NOT_A_STEP: Final = Unsupported("Only elementwise kernels are steps of fused chains.")
NOT_IN_PLACE: Final = Unsupported(
    "The kernel is not elementwise: it may read an element after it has written to its place."
)


class KernelRecord(NamedTuple):
    """What is known about a kernel.

    Attributes:
        name: the name it was registered under, without the prefix; aliases share the record.
        run: the registered function.
        ufunc: the numpy ufunc that the kernel is, or None; see `ufunc_of`.
        step: how the kernel is a step of a fused chain.
        in_place: True if the output may be an input of the same shape and data type, without a
            copy.  All kernels compute the right result then; others copy the input first.
        implementations: those in C, which take what they can before the function is asked.
    """

    name: str
    run: Callable[..., None]
    ufunc: np.ufunc | None
    step: ChainStep | Unsupported
    in_place: Literal[True] | Unsupported
    implementations: tuple[Impl, ...]

    @property
    def native(self) -> tuple[str, ...]:
        """How the kernel runs without Python code: names of its implementations in C; "loop" if the
        core calls numpy's inner loop; "chain" if it is several such loops."""
        is_chain = isinstance(self.step, ChainStep) and self.step.chain is not None
        loops = {"loop": self.ufunc is not None, "chain": is_chain}
        names = [impl.name for impl in self.implementations]
        return (*names, *[loop for loop, there_is in loops.items() if there_is])


_records: Final[dict[str, KernelRecord]] = {}


_VIEWS: Final = frozenset(
    RESULT_PREFIX + name for name in ("reshape", "expand_dims", "squeeze", "flatten")
)
"""Result forms that need no kernel; see `relaxvm.kernels.views`."""


def kernel(
    name: str,
    *aliases: str,
    signature: str | None = None,
    wrap: Callable[[Callable[..., None]], Callable[..., None]] | None = None,
    outermost: Callable[[Callable[..., None]], Callable[..., None]] | None = None,
    ufunc: np.ufunc | None = None,
    check: StaticCheck | None = None,
    step: ChainStep | Unsupported | None = None,
    in_place: Literal[True] | Unsupported | None = None,
    of_shapes: bool = False,
) -> Callable[[F], F]:
    """Decorator: register a function as ``relaxvm.kernel.<name>``, and its result form (see
    `relaxvm.kernels.results`) as ``relaxvm.result.<name>``.

    The annotations of the function are kinds of parameters (see `relaxvm.kernels.kinds`).  What is
    registered checks and converts the arguments as they say, and then calls the function; before
    that, it tries the implementations in C that `relaxvm.kernels.implementations` has for the name.

    Args:
        name: the name that messages begin with.
        aliases: further names, without the prefix.
        signature: of the call, `out` included, as in `relaxvm.registry`; for a function without
            such annotations, which checks its arguments itself.
        wrap: takes the kernel with its checks and returns the function to register in its place: a
            faster one, which calls it with the arguments that it does not compute itself.
        outermost: the same, but asked before the implementations in C, which it calls.
        ufunc: the ufunc that `ufunc_of` returns for it.
        check: further load-time check, as in `relaxvm.registry.Signature`.
        step: how the kernel is a step of a fused chain, or why it is not one.  A kernel with a
            `ufunc` is a step by default, others are not.
        in_place: True if the kernel may write over an input, or why it may not.  A kernel with a
            `ufunc` may by default, others may not.

        of_shapes: whether data types and shapes of results depend on those of the inputs and on
            numbers alone, as they do for steps of chains.

    Kernels of this package are registered when they are looked up; others at once.

    Raises:
        TypeError: an annotation is not a kind.
    """
    if step is None:
        step = NOT_A_STEP if ufunc is None else ChainStep(ufunc.nin)
    if in_place is None:
        in_place = NOT_IN_PLACE if ufunc is None else True

    def register(func: F) -> F:
        def make() -> None:
            run: Callable[..., None] = func
            returning: Signature | None = None
            if signature is None:
                parameters = parameters_of(func)
                takes = signature_of(parameters, check)
                returning = result_signature(takes, parameters)
                run = checked(name, func, parameters, ufunc)
            else:
                takes = Signature.parse(signature, result="none", check=check)
            with_checks = run
            if wrap is not None:
                run = wrap(run)
            found = implementations_of(name)
            if found:
                run = dispatched(run, found, ufunc)
            if outermost is not None:
                run = outermost(run)
            doc = inspect.cleandoc(func.__doc__ or "")
            record = KernelRecord(name, run, ufunc, step, in_place, found)
            for each in names:
                GLOBAL.register(PREFIX + each, run, signature=takes, effect=False, doc=doc)
                _records[PREFIX + each] = record
                if returning is not None and RESULT_PREFIX + each not in _VIEWS:
                    compute = result_form(
                        name, run, with_checks,
                        is_of_shapes=of_shapes or isinstance(step, ChainStep),
                    )  # fmt: skip
                    GLOBAL.register(RESULT_PREFIX + each, compute, signature=returning, doc=doc)

        names = (name, *aliases)
        forms = [prefix + each for each in names for prefix in (PREFIX, RESULT_PREFIX)]
        wait([form for form in forms if form not in _VIEWS], func, make)
        return func

    return register


class Waiting(NamedTuple):
    """A kernel of this package that is registered when it is looked up.  A module has many, of
    which a program calls few.

    Attributes:
        module: the module that it is in, below this package.
        make: registers it, and its result form.
    """

    module: str
    make: Callable[[], None]


_PACKAGE: Final = __name__.rpartition(".")[0] + "."
_waiting: Final[dict[str, Waiting]] = {}
_making: Final = threading.RLock()


def wait(names: Iterable[str], func: Callable[..., Any], make: Callable[[], None]) -> None:
    """Have a kernel of this package registered by `make` when one of its full names is looked up;
    register that of another package at once."""
    if func.__module__.startswith(_PACKAGE):
        _waiting.update(dict.fromkeys(names, Waiting(func.__module__.removeprefix(_PACKAGE), make)))
    else:
        make()


def waiting() -> dict[str, Waiting]:
    """The kernels that wait, by full name, those of the result forms too."""
    return dict(_waiting)


def make(name: str) -> None:
    """Register the kernel of a full name, if it waits.  A thread that finds another one doing so
    waits until it is there."""
    with _making:
        found = _waiting.pop(name, None)
        if found is None:
            return
        for each in [each for each, other in _waiting.items() if other is found]:
            del _waiting[each]
        found.make()


def make_all() -> None:
    """Register all kernels that wait."""
    for name in list(_waiting):
        make(name)


def record_of(name: str) -> KernelRecord | None:
    """The record of a kernel by its full name; None if there is no such kernel."""
    if name not in _records and name.startswith(PREFIX):
        GLOBAL.lookup(name)  # imports its module
    return _records.get(name)


def step_of(name: str) -> ChainStep | None:
    """How a kernel, by its name without the prefix, is a step; None if it cannot be one."""
    record = record_of(PREFIX + name)
    return record.step if record is not None and isinstance(record.step, ChainStep) else None


def ufunc_of(name: str) -> np.ufunc | None:
    """The ufunc that a kernel is, by the kernel's full name; None where it is not just one.

    The kernel computes what ``ufunc(*inputs, out=out)`` does wherever the ufunc has a loop for
    exactly the data types of the inputs and of `out`; for others (`divide` and `round` of integers)
    it is more than the ufunc.
    """
    record = record_of(name)
    return None if record is None else record.ufunc


def is_kernel(record: PackedFunc) -> bool:
    """Whether a name still has the kernel that was registered for it by `kernel`."""
    found = _records.get(record.name)
    return found is not None and found.run is record.func
