"""The package's C kernels in a program of C without Python, under sanitizers.

``python -m tests.kernel_driver address`` writes calls of each method of each set that the processor
has, with arguments that fit and with those of `tests.test_hostile_kernels`, compiles
``kernel_driver.c`` with the kernels and AddressSanitizer, and runs it: on 1, 2 and 3 threads, with
each array in memory of exactly its size.  ``undefined`` and ``thread`` are the other sanitizers;
``quick`` is "address" without optimization and without checks of undefined behaviour at each access
to memory, which takes the compiler a third of the time; ``none`` is without.  A report of the
sanitizer, results of threads that differ, and results other than those of the same method called
from Python, are failures, and so is a sanitizer that does not notice mistakes that are made on
purpose.

This takes some minutes, most of them for the compiler.  `scripts/sanitize.py` runs the tests of
all native code with Python, which is more and takes hours.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import runpy
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from relaxvm.kernels import _table
from relaxvm.kernels.cpu import SETS

from . import children
from .kernel_methods import Fitting, by_method, methods
from .test_hostile_kernels import Hostile, outcome
from .test_kernel_threads import CASES, FLOATS, TYPES

__all__: list[str] = []

ROOT: Final = Path(__file__).resolve().parents[1]
C: Final = ROOT / "relaxvm" / "kernels" / "c"

SANITIZERS: Final = {
    "none": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
    "quick": [
        "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
        "-fno-sanitize=null,alignment,pointer-overflow,object-size",
    ],
    "undefined": ["-fsanitize=undefined", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}  # fmt: skip
FLAGS: Final = ["-std=gnu11", "-O1", "-g1", "-fno-omit-frame-pointer", "-ffp-contract=off",
                "-fno-math-errno"]  # fmt: skip
"""The compiler looks at less with -O1, and takes a fifth of the time."""

DTYPES: Final = {
    name: number for number, name in enumerate(
        ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64"), 1)
}  # fmt: skip
"""The numbers of `dtypes.h`."""


class NotWritten(Exception):
    """An argument that the driver does not take, such as an array of another package's type."""


@dataclass
class Call:
    """A call, and the results that it has from Python; None if the method refuses it."""

    which: str
    method: str
    args: list[Any]
    wanted: np.ndarray | None

    @property
    def is_contiguous(self) -> bool:
        """Whether no array has strides: of others, `_table_impl.h` gives kernels copies."""
        return all(x.flags.c_contiguous for x in self.args if isinstance(x, np.ndarray))

    @property
    def is_apart(self) -> bool:
        """Whether the result has memory of its own, as each array has in the driver."""
        *others, out = self.args
        arrays = [x for x in others if isinstance(x, np.ndarray)]
        return not any(np.may_share_memory(x, out) for x in arrays)


def calls_of(seeds: int, sets: Sequence[str] = SETS) -> Iterator[Call]:
    for which, method, kernel in methods():
        if which not in sets:
            continue
        run = by_method(which, method)
        for seed in range(2 * seeds):
            made = (Fitting if seed < seeds else Hostile)(kernel, seed)
            args = made.copied()
            yield Call(which, method, args, outcome(run, made.copied()))


def large_calls(sets: Sequence[str] = SETS) -> Iterator[Call]:
    """The cases of `tests.test_kernel_threads`, which are large enough for several threads."""
    for make in CASES.values():
        kernel, args, shapes = make()
        types = TYPES.get(kernel, FLOATS)
        for which, method, of in methods():
            if of != kernel or which not in sets:
                continue
            first, second = (
                [np.zeros(shape, dtype) for shape, dtype in zip(shapes, types, strict=False)]
                for _ in range(2)
            )
            wanted = outcome(by_method(which, method), [*args, *first])
            yield Call(which, method, [*args, *second], wanted)


def write(call: Call, to: IO[bytes]) -> None:
    """Write a call as `kernel_driver.c` reads it.

    Raises:
        NotWritten: it does not.
    """
    parts = [_bytes(call.which.encode()), _bytes(call.method.encode()), _ints(len(call.args))]
    parts += [_argument(arg) for arg in call.args]
    if len(call.args) > 64:
        raise NotWritten
    to.write(b"".join(parts))


def _ints(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _bytes(value: bytes) -> bytes:
    return _ints(len(value)) + value


def _argument(value: Any) -> bytes:
    if value is None:
        return b"N"
    if isinstance(value, np.ndarray):
        return b"T" + _tensor(value)
    if isinstance(value, str):
        program = _table._programs.get(value)
        return b"C" + _bytes(value.encode()) if program is None else b"P" + _bytes(program)
    try:
        if isinstance(value, tuple):
            if len(value) > 8 or -(1 << 63) in value:
                raise NotWritten
            return b"S" + _ints(len(value), *value)
        if isinstance(value, int):
            if value == -(1 << 63):  # stands for no number
                raise NotWritten
            return b"I" + _ints(int(value))
    except struct.error:
        raise NotWritten from None
    if isinstance(value, float):
        return b"R" + struct.pack("=d", value)
    raise NotWritten


def _span(x: np.ndarray) -> tuple[int, int]:
    """Where the first element is in the memory of an array, and how long that is, in bytes."""
    if not x.size:
        return 0, 0
    steps = [(n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    return first, first + sum(step for step in steps if step > 0) + x.itemsize


def _tensor(x: np.ndarray) -> bytes:
    if x.dtype.name not in DTYPES or not x.dtype.isnative or not x.flags.aligned or x.ndim > 8:
        raise NotWritten
    first, length = _span(x)
    memory = ctypes.string_at(x.__array_interface__["data"][0] - first, length)
    flags = (1 if x.flags.c_contiguous else 0) | (2 if x.flags.writeable else 0)
    head = _ints(DTYPES[x.dtype.name], x.dtype.itemsize, flags, x.ndim, *x.shape, *x.strides, first)
    return head + _bytes(memory)


def build(sanitizer: str, folder: Path, jobs: int, sets: Sequence[str] = SETS) -> Path:
    """Compile the driver and the kernels of sets; return the program."""
    compiler = os.environ.get("CC", "gcc").split()
    common = [*compiler, *FLAGS, *SANITIZERS[sanitizer], f"-I{ROOT / 'relaxvm'}",
              f"-I{ROOT / 'relaxvm' / 'core'}", "-pthread"]  # fmt: skip
    of_sets: dict[str, list[str]] = runpy.run_path(str(ROOT / "setup.py"))["sets"]()
    # The sets are driven, and what moves elements: the other families are loops of numpy's loops.
    stub = folder / "families.c"
    table = (C / "table.c").read_text(encoding="utf-8")
    rest = table.partition("rvm_families[] =")[2].partition("};")[2]
    families = "const RvmImplementation *const rvm_families[] = {rvm_movement, NULL};"
    head = f'#include "kernels/c/kernel_call.h"\n{families}\n'
    stub.write_text(head + rest, encoding="utf-8")
    withs = [f"-DRVM_WITH_{name.upper()}=1" for name in sets]
    driver = str(ROOT / "tests" / "kernel_driver.c")
    work = [([*common, *withs, "-c", str(stub)], folder / "families.o"),
            ([*common, "-c", str(C / "movement.c")], folder / "movement.o"),
            ([*common, "-c", driver], folder / "driver.o")]  # fmt: skip
    for name in sets:
        for source in sorted((C / "sets").glob("*.c")):
            command = [*common, *of_sets[name], f"-DRVM_SET={name}", "-c", str(source)]
            work.append((command, folder / f"{name}-{source.stem}.o"))

    def compiled(one: tuple[list[str], Path]) -> children.CompletedProcess[str]:
        command, target = one
        return children.run(
            [*command, "-o", str(target)], capture_output=True, text=True, check=False
        )

    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(compiled, work):
            if done.returncode:
                raise SystemExit(f"kernel_driver: {done.stderr}")
    program = folder / "kernel_driver"
    objects = [str(target) for _, target in work]
    children.run([*common, *objects, "-o", str(program), "-lm"], check=True)
    return program


def started(sanitizer: str, program: Path, *arguments: str) -> children.CompletedProcess[str]:
    """Run the program with a sanitizer's options."""
    # ThreadSanitizer needs memory at fixed addresses, which randomization may give to others.
    prefix = ["setarch", platform.machine(), "-R"] if sanitizer == "thread" else []
    environment = {**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1",
                   "UBSAN_OPTIONS": "print_stacktrace=1",
                   "TSAN_OPTIONS": "allocator_may_return_null=1"}  # fmt: skip
    return children.run(
        [*prefix, str(program), *arguments], capture_output=True, text=True, check=False,
        env=environment,
    )  # fmt: skip


NOTICED: Final = {
    "address": ("heap-buffer-overflow", "insufficient space", "signed integer overflow"),
    "quick": ("heap-buffer-overflow", "signed integer overflow"),
    "undefined": ("signed integer overflow", "insufficient space"),
    "thread": ("data race",),
    "none": ("",),
}
"""One of these is said about mistakes that are made on purpose."""


def run(sanitizer: str, program: Path, folder: Path, calls: Sequence[Call]) -> list[str]:
    """Run calls; return what is wrong."""
    written: list[Call] = []
    body = folder / "body"
    with body.open("wb") as to:
        for call in calls:
            try:
                write(call, to)
            except NotWritten:
                continue
            written.append(call)
    (folder / "calls").write_bytes(_ints(len(written)) + body.read_bytes())
    done = started(sanitizer, program, str(folder / "calls"), str(folder / "results"))
    found = [done.stderr] if done.stderr else []
    if done.returncode:
        return [*found, f"the driver ended with status {done.returncode}"]
    results = (folder / "results").read_bytes()
    at, taken = 0, 0
    ran = dict.fromkeys(((call.which, call.method) for call in calls), 0)
    for call in written:
        answer = struct.unpack_from("=q", results, at)[0]
        at += 8
        where = f"{call.method}, {call.which}"
        if answer != 0:
            if call.wanted is not None and call.is_contiguous:
                found.append(f"{where}: the driver's call returned {answer}, Python's one has run")
            continue
        out = call.args[-1]
        first, length = _span(out)
        memory = np.frombuffer(results, np.uint8, length, at)
        got = np.ndarray(out.shape, out.dtype, memory, first, out.strides)
        at += length
        if call.wanted is None or not call.is_apart:
            if call.is_apart:
                found.append(f"{where}: the driver's call has run, Python's one was refused")
            continue
        taken += 1
        ran[call.which, call.method] += 1
        if not np.allclose(got, call.wanted, rtol=1e-3, atol=1e-3, equal_nan=True):
            found.append(f"{where}: other results than from Python")
    sections = int(done.stdout.split()[0])
    if not sections:
        found.append("no call was divided among threads")
    print(f"{len(calls)} calls, {len(written)} for the driver, {taken} taken by "
          f"{sum(map(bool, ran.values()))} of {len(ran)} methods, "
          f"{sections} sections of threads")  # fmt: skip
    missing = [f"{method}, {which}" for (which, method), count in ran.items() if not count]
    return [*found, *(f"{name}: no call was taken" for name in missing)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument("--seeds", type=int, default=12, help="so many of each kind")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="build here, and leave it")
    options = parser.parse_args()
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        program = build(options.sanitizer, folder, options.jobs)
        print(f"built in {time.perf_counter() - begun:.0f} s", flush=True)
        wrong = started(options.sanitizer, program, "wrong").stderr
        found = run(options.sanitizer, program, folder, [*calls_of(options.seeds), *large_calls()])
        if not any(text in wrong for text in NOTICED[options.sanitizer]):
            found.append("mistakes that were made on purpose are not reported: it does not work")
    for line in found:
        print(line)
    print(f"{options.sanitizer}: {len(found)} reports, {time.perf_counter() - begun:.0f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
