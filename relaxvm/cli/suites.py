"""``bench --suite``: programs that time the machine itself."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from .console import Console
from .exits import Exit, UsageError

__all__ = ["SUITES", "run_suite"]


class _Program(NamedTuple):
    """A program to time.

    Attributes:
        name: of its row.
        run: what is timed.
        times: how often it does what the row is about.
    """

    name: str
    run: Callable[[], object]
    times: int


def _dispatch() -> Iterator[_Program]:
    """Instructions, each many times in a program, and calls of empty functions from Python."""
    from ..testing import dispatch_rows as rows
    from ..vm import VirtualMachine

    functions = {rows.PYTHON_FUNCTION: rows.identity}
    for row in (*rows.ROWS, *rows.DATA_TYPE_ROWS):
        machine = VirtualMachine(row.executable(), functions=functions, optimize=row.optimize)
        yield _Program(row.name, machine["main"].bind(*row.args), row.count)
    for count in rows.ENTRIES:
        name = f"entry, {count} argument{'s' if count > 1 else ''}"
        main, args = VirtualMachine(rows.entry(count))["main"], [rows.X] * count
        yield _Program(name, _repeated(main, args), _CALLS)


_CALLS: Final = 2000


def _repeated(function: Callable[..., Any], args: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_CALLS):
            function(*args)

    return run


SUITES: Final[dict[str, Callable[[], Iterator[_Program]]]] = {"dispatch": _dispatch}


def run_suite(args: argparse.Namespace, console: Console) -> int:
    """Time the programs of a suite; print the least time of each."""
    programs = [each for each in SUITES[args.suite]() if args.only in each.name]
    if not programs:
        raise UsageError(f"--only: the suite {args.suite} has no program named like {args.only!r}")
    width = max(len(each.name) for each in programs)
    number = args.number or 1
    rows = []
    console.text(f"{'':{width}}  ns, the least of {args.rounds} rounds")
    with console.progress(f"timing {args.suite}", len(programs)) as progress:
        for each in programs:
            each.run()
            least = min(_round(each.run, number) for _ in range(args.rounds)) / each.times
            console.text(f"{each.name:{width}}  {least:10.2f}")
            rows.append({"name": each.name, "ns": least})
            progress.step()
    console.result({"suite": args.suite, "rounds": args.rounds, "rows": rows})
    return Exit.OK


def _round(run: Callable[[], object], number: int) -> float:
    """Nanoseconds of a run: the mean of several in a row."""
    begun = time.perf_counter_ns()
    for _ in range(number):
        run()
    return (time.perf_counter_ns() - begun) / number
