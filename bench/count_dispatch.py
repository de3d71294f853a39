"""Instructions and stores of each row of ``compare_tvm.py``, counted by Valgrind.

    python bench/count_dispatch.py [--only TEXT]... [--other CHECKOUT]

Counts vary little from run to run, unlike times, so they show changes of a few parts in a thousand.
With ``--other``, the rows also run on the package in another checkout, whose extensions must be
built.  Needs ``valgrind`` with its headers, and a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from relaxvm.testing import dispatch_rows as rows
from relaxvm.testing.dispatch_rows import DATA_TYPE_ROWS, ENTRIES, PYTHON_FUNCTION, ROWS

REQUESTS = """
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
void dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
"""
CALLS = (1, 3)
"""A row is run so many times; the difference leaves out what the measurement itself takes."""


Program = tuple[str, Callable[[], Callable[..., Any]], tuple[Any, ...]]
"""The name of a row, what makes its function, and the arguments."""


class Counts(NamedTuple):
    """What one repetition of a row takes."""

    instructions: float
    loads: float
    stores: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", help="rows whose name contains this text")
    parser.add_argument("--other", metavar="CHECKOUT", help="count in another checkout, too")
    parser.add_argument("--counted", metavar="LIBRARY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    only = options.only or [""]
    if options.counted:
        run_rows(ctypes.CDLL(options.counted), only)
        return 0

    here = counts(str(Path(__file__).resolve().parent.parent), only)
    there = counts(options.other, only) if options.other else {}
    columns = f"{'instructions':>13}{'loads':>8}{'stores':>8}"
    print(f"{'per repetition':26}{columns}", f"{columns}{'ratio':>8}" if there else "", sep="")
    for name, count in here.items():
        print(f"{name:26}{line(count)}", end="")
        if name in there:
            ratio = count.instructions / there[name].instructions
            print(f"{line(there[name])}{ratio:8.3f}", end="")
        print()
    return 0


def line(count: Counts) -> str:
    return f"{count.instructions:13.2f}{count.loads:8.2f}{count.stores:8.2f}"


def counts(checkout: str, only: list[str]) -> dict[str, Counts]:
    """Run the rows with the package of a checkout under Valgrind."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "requests.c"), Path(folder, "requests.so")
        source.write_text(REQUESTS, encoding="utf-8")
        compiler = os.environ.get("CC", "cc").split()
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        output = Path(folder, "counts")
        command = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "-q", "--instr-atstart=no",
                   f"--callgrind-out-file={output}", sys.executable, __file__,
                   "--counted", str(library), *(f"--only={text}" for text in only)]  # fmt: skip
        env = os.environ | {"PYTHONPATH": checkout, "PYTHONHASHSEED": "0"}
        subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        totals: dict[str, dict[int, list[float]]] = {}
        repetitions: dict[str, int] = {}
        for dump in Path(folder).glob("counts.*"):
            name, calls, count, total = read_dump(dump)
            if name:
                totals.setdefault(name, {})[calls] = total
                repetitions[name] = count
    found = {}
    for name, _, _ in programs(only):
        few, many = (totals[name][calls] for calls in CALLS)
        number = repetitions[name] * (CALLS[1] - CALLS[0])
        found[name] = Counts(*((b - a) / number for a, b in zip(few, many, strict=True)))
    return found


def read_dump(path: Path) -> tuple[str, int, int, list[float]]:
    """The name of a row, its calls and repetitions, and the events, of a dump; or no name."""
    name, calls, count, events, total = "", 0, 0, [""], [""]
    with path.open(encoding="utf-8") as file:
        for text in file:
            key, _, value = text.rstrip("\n").partition(": ")
            if key == "desc" and value.startswith("Trigger: Client Request: "):
                name, calls_text, count_text = value.rpartition(": ")[2].split("|")
                calls, count = int(calls_text), int(count_text)
            elif key == "events":
                events = value.split()
            elif key == "totals":
                total = value.split()
    by_event = dict(zip(events, total, strict=False))
    return name, calls, count, [float(by_event.get(event, 0)) for event in ("Ir", "Dr", "Dw")]


def programs(only: list[str]) -> Iterator[Program]:
    """The rows whose names contain one of the texts."""
    import relaxvm

    for row in (*ROWS, *DATA_TYPE_ROWS):
        if any(text in row.name for text in only):
            yield (row.name, lambda row=row: relaxvm.VirtualMachine(  # type: ignore[misc]
                row.executable(), optimize=row.optimize)["main"], row.args)  # fmt: skip
    for count in ENTRIES:
        name = f"entry, {count} argument{'s' if count > 1 else ''}"
        if any(text in name for text in only):
            yield (name, lambda count=count: relaxvm.VirtualMachine(  # type: ignore[misc]
                rows.entry(count))["main"], (rows.X,) * count)  # fmt: skip


def run_rows(requests: ctypes.CDLL, only: list[str]) -> None:
    """Run the rows, and have Valgrind write what each takes."""
    import relaxvm

    relaxvm.register_func(PYTHON_FUNCTION, rows.identity, override=True)
    repetitions = {row.name: row.count for row in (*ROWS, *DATA_TYPE_ROWS)}
    for name, make, args in programs(only):
        call = make()
        for _ in range(3):
            call(*args)
        requests.start()
        for calls in CALLS:
            requests.dump(b"|0|0")  # which also sets the counters to zero
            for _ in range(calls):
                call(*args)
            requests.dump(f"{name}|{calls}|{repetitions.get(name, 1)}".encode())
        requests.stop()


if __name__ == "__main__":
    sys.exit(main())
