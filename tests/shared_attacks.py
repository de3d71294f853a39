"""Every builtin and every kernel, called with values in which a few parts stand for 2^60.

Run as a program, in a process that is killed when a call does not end: it prints each call before
it is made.  An argument that takes part in the calls of `builtin_cases`, or an operand of a kernel,
is replaced by a tuple, a value of a data type, a reference, or a closure of a shared value.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from relaxvm import Adt, ExecBuilder, Limits, Ref, VirtualMachine, get_func, list_funcs
from relaxvm.isa import FuncKind
from relaxvm.kernels import PREFIX

from .builtin_cases import CASES, names, own_builtins

__all__ = ["main"]

LEVELS: Final = 60
SECONDS: Final = 300
"""After which a call counts as endless, on a busy machine."""
KERNEL_ARGUMENTS: Final = 4


def tuples() -> Any:
    """A tuple of tuples."""
    value: Any = (1.0, "x")
    for _ in range(LEVELS):
        value = (value, value)
    return value


def values() -> Any:
    """A value of a data type whose fields are one value each."""
    value: Any = Adt("A", 0, ())
    for _ in range(LEVELS):
        value = Adt("A", 0, (value, value))
    return value


def cells() -> Any:
    """A reference to a tuple with the reference itself."""
    cell = Ref(())
    cell.value = (cell, tuples(), cell)
    return cell


def closures() -> Any:
    """A function with a captured tuple."""
    builder = ExecBuilder()
    builder.declare_function("inner", FuncKind.BYTECODE)
    with builder.function("main", num_inputs=1):
        args = [builder.f("inner"), builder.r(0)]
        builder.emit_call("vm.builtin.make_closure", args, dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    with builder.function("inner", num_inputs=1):
        builder.emit_ret(builder.r(0))
    return VirtualMachine(builder.get()).main(tuples())


MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "tuple": tuples, "adt": values, "ref": cells, "closure": closures,
}  # fmt: skip


def calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield builtins with their arguments, and kernels with numbers of arguments."""
    for name in sorted(own_builtins()):
        for line in CASES[name].strip().splitlines():
            yield name, eval(line.split(" | ")[0], names())
    for name in sorted(name for name in list_funcs() if name.startswith(PREFIX)):
        for count in range(1, KERNEL_ARGUMENTS + 1):
            yield name, (1.0,) * count


def attempt(function: Callable[..., Any], *args: Any) -> None:
    """Call a function; its error is described, too."""
    with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stdout(io.StringIO()):
        try:
            function(*args)
        except Exception as error:
            str(error)
            raise


def machine(name: str, count: int, optimize: bool) -> VirtualMachine:
    """A program that calls a builtin with its arguments."""
    builder = ExecBuilder()
    with builder.function("main", num_inputs=count):
        builder.emit_call(name, [builder.r(i) for i in range(count)], dst=builder.r(count))
        builder.emit_ret(builder.r(count))
    limits = Limits.untrusted().but(wall_time=float(SECONDS))
    return VirtualMachine(builder.get(), limits=limits, functions=None, optimize=optimize)


def main() -> None:
    """Make all calls."""
    shared = {kind: make() for kind, make in MAKERS.items()}
    for name, args in calls():
        for kind, at in itertools.product(shared, range(len(args))):
            changed = (*args[:at], shared[kind], *args[at + 1 :])
            os.write(1, f"{name}, argument {at + 1}: {kind}\n".encode())
            signal.alarm(SECONDS)
            attempt(get_func(name), *changed)
            for optimize in (True, False):
                with contextlib.suppress(Exception):  # the verifier knows the number of arguments
                    attempt(machine(name, len(args), optimize).main, *changed)
    signal.alarm(0)


if __name__ == "__main__":
    main()
    sys.exit(0)
