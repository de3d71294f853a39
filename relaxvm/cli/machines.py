"""A machine for the program of a file, and the function that a command runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ..errors import BugError, LimitError, LinkError, did_you_mean
from ..executable import FunctionInfo, StoredKernels, VMExecutable
from ..isa import FuncKind
from ..registry import GLOBAL, list_funcs
from .console import Console
from .exits import CommandError, Exit, UsageError
from .files import (
    add_file_argument,
    add_kernels_argument,
    import_kernels,
    limits_of,
    open_executable,
)
from .inputs import add_input_arguments

if TYPE_CHECKING:
    from ..limits import Limits
    from ..vm import VirtualMachine
    from ..vm.machine import Executor

__all__ = ["add_machine_arguments", "add_run_arguments", "make_machine", "make_vm", "running"]

_DEFAULT_FUNCTION: Final = "main"


def add_run_arguments(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The file, which may be optional, the function, and its inputs."""
    add_file_argument(parser, optional=optional)
    parser.add_argument("--function", metavar="NAME",
                        help="function to call (default: main, or the only one)")  # fmt: skip
    _add_kernel_arguments(parser)
    parser.add_argument("--executor", choices=("sequential", "dataflow"), default="sequential",
                        help="dataflow runs independent calls side by side")  # fmt: skip
    parser.add_argument("--threads", metavar="N", type=int,
                        help="on how many threads, with --executor dataflow")  # fmt: skip
    add_input_arguments(parser)


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, and the functions that it calls."""
    add_file_argument(parser)
    _add_kernel_arguments(parser)


def _add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    add_kernels_argument(parser)
    parser.add_argument("--native", action="store_true",
                        help="load the kernels in the file. This runs its code")  # fmt: skip


def make_vm(args: argparse.Namespace, console: Console) -> tuple[VirtualMachine, FunctionInfo]:
    """A machine for the file of `add_run_arguments`, and the function that they name.

    Raises:
        UsageError: there is no such function.
        CommandError: the file cannot be read, or functions are missing.
    """
    from ..vm.machine import check_executor  # here, since it takes long to import

    limits = limits_of(args)
    try:
        check_executor(args.executor, args.threads)
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    import_kernels(args.kernels)
    with console.progress(f"loading {args.file}"):
        pipeline = "dataflow" if args.executor == "dataflow" else "default"
        executable = open_executable(args.file, limits, relax_pipeline=pipeline).executable
        if args.executor == "dataflow" and executable.exec_mode == "compiled":
            raise UsageError("--executor dataflow: it runs bytecode, and the program was built "
                             "with --exec-mode compiled")
        info = _choose_function(executable, args.function)
        return _machine(executable, limits, args, args.executor, args.threads), info


def make_machine(args: argparse.Namespace, console: Console) -> VirtualMachine:
    """A machine for the file of `add_machine_arguments`.

    Raises:
        CommandError: the file cannot be read, or functions are missing.
    """
    limits = limits_of(args)
    import_kernels(args.kernels)
    with console.progress(f"loading {args.file}"):
        return _machine(open_executable(args.file, limits).executable, limits, args)


def _machine(
    executable: VMExecutable,
    limits: Limits | None,
    args: argparse.Namespace,
    executor: Executor = "sequential",
    threads: int | None = None,
) -> VirtualMachine:
    from ..vm import VirtualMachine

    if args.native and isinstance(executable.kernels, StoredKernels):
        from ..native.stored import load_stored  # here, since most commands do not need it

        executable = executable.with_kernels(load_stored(executable.kernels))
    # The VM verifies the executable first.
    try:
        return VirtualMachine(
            executable, limits=limits, functions=_allowed(args), executor=executor, threads=threads
        )
    except LinkError as error:
        raise CommandError(
            f"{error}\n  on the command line: --kernels MODULE registers them"
            + "; --native loads those in the file" * _is_stored(executable),
            Exit.MISSING,
        ) from error


def _is_stored(executable: VMExecutable) -> bool:
    """Return whether the file contains kernels that were not loaded."""
    return isinstance(executable.kernels, StoredKernels)


def _allowed(args: argparse.Namespace) -> frozenset[str] | None:
    """With untrusted limits, return the functions that may be called: kernels, and builtins
    without effects."""
    if args.limits != "untrusted":
        return None
    return frozenset(name for name in list_funcs() if not _has_effect(name))


def _has_effect(name: str) -> bool:
    record = GLOBAL.lookup(name)
    return record is not None and record.effect


def _choose_function(executable: VMExecutable, name: str | None) -> FunctionInfo:
    """Return the function to call: the one with the given name, else ``main``, else the only
    one."""
    own = {info.name: info for info in executable.functions if info.kind != FuncKind.PACKED}
    if name is None:
        if _DEFAULT_FUNCTION in own:
            name = _DEFAULT_FUNCTION
        elif len(own) == 1:
            (name,) = own
        else:
            raise UsageError(f"--function: {_listed(own)}, and none of them is called main"
                             if own else "the executable has no function to run")
    if name not in own:
        raise UsageError(f"--function {name}: {_listed(own)}{did_you_mean(name, own)}")
    return own[name]


def _listed(own: dict[str, FunctionInfo]) -> str:
    names = list(own)
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"the functions are {shown}" if names else "the executable has no function"


@contextmanager
def running(name: str) -> Iterator[None]:
    """Convert exceptions of the program to errors of the command."""
    try:
        yield
    except (LimitError, BugError):
        raise
    except Exception as error:
        raise CommandError(f"{name}: {type(error).__name__}: {error}") from error
