"""Mutants of shared libraries: what is read of them without running their code."""

from __future__ import annotations

import random
import struct
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from relaxvm import load
from relaxvm.contrib.tvm.library.copy import write_copy
from relaxvm.contrib.tvm.library.elf import MAGIC, ElfFile
from relaxvm.contrib.tvm.library.image import CONTAINER, LIBRARY_BIN
from relaxvm.errors import RelaxVMError
from relaxvm.executable import StoredKernels
from relaxvm.executable.formats import binary
from relaxvm.native import toolchain

from ..corpus import CORPUS
from ..test_tvm_library import compiled, tree
from .changes import INTERESTING, Mutant, change_bytes, number, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described
from .parameters import in_memory

__all__ = ["bases", "mutant", "run"]

_CASES: Final = ("identity", "two_kernels", "loop", "everything_at_once")
_SECTION_TABLE: Final = (0x28, 0x3A, 0x3C)
"""Places in the header: offset of the table, bytes of an entry, number of entries."""


@cache
def bases() -> dict[str, bytes]:
    """Return the libraries to mutate: those of relaxvm, and one like TVM's.  Without a C compiler
    there are only their first bytes."""
    if toolchain.compiler() is None:
        return {"header": MAGIC + bytes(60)}
    found = {}
    with tempfile.TemporaryDirectory(prefix="relaxvm-fuzz-") as folder:
        path = Path(folder) / "library.so"
        for name in _CASES:
            CORPUS[name].executable.export_library(path)
            found[name] = path.read_bytes()
    program = CORPUS["identity"].executable.to_bytes()
    blob = tree(("relax.VMExecutable", program), ("_lib", None))
    found["tvm"] = compiled(blob).read_bytes()
    return found


@cache
def _extents(base: str) -> tuple[tuple[int, int], ...]:
    """Return where in the file the parts are that a reader looks at: start and end."""
    data = bases()[base]
    if len(data) <= 64:
        return ((0, len(data)),)
    elf = ElfFile(data)
    table, entry, count = (
        struct.unpack_from(form, data, at)[0]
        for form, at in zip(("<Q", "<H", "<H"), _SECTION_TABLE, strict=True)
    )
    found = [(0, 64), (64, 64 + 56 * struct.unpack_from("<H", data, 0x38)[0])]
    found.append((table, table + entry * count))
    for i in range(count):
        _, kind, _, _, offset, size, *_ = struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry)
        if kind in (3, 4, 6, 11) and size:  # strings, relocations, dynamic entries and symbols
            found.append((offset, min(offset + size, len(data))))
    for symbol in (CONTAINER, LIBRARY_BIN):
        if elf.defines(symbol):
            start = elf.offset_of(elf.symbols[symbol].address)
            found += [(start, min(start + 600, len(data)))] * 4
    return tuple(found)


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("library", index, seed)
    base = rng.choice(sorted(bases()))
    data = bases()[base]
    if rng.random() < 0.05:
        data, steps = change_bytes(data, rng)
        return Mutant(base, tuple(steps), data)
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        start, end = rng.choice(_extents(base))
        step = rng.choice(("word", "half", "byte", "copy"))
        width = {"word": 8, "half": 2, "byte": 1, "copy": 8}[step]
        at = start + width * rng.randrange(max(1, (end - start) // width))
        data = data[:at] + _field(data, at, width, step, rng) + data[at + width :]
        steps.append(step)
    return Mutant(base, tuple(steps), data)


def _field(data: bytes, at: int, width: int, step: str, rng: random.Random) -> bytes:
    """Return a new value of a field: one that is close, one that occurs elsewhere, or any."""
    old = int.from_bytes(data[at : at + width], "little")
    if step == "copy":
        other = 8 * rng.randrange(max(1, len(data) // 8 - 1))
        return data[other : other + 8].ljust(8, b"\0")
    value = rng.choice(
        (old + rng.choice((-8, -1, 1, 8, 64)), number(rng), rng.choice(INTERESTING), len(data),
         len(data) - old, old << 8)
    )  # fmt: skip
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def run(mutant: Mutant, index: int) -> Ending:
    """Read a library, its executable, and the copy of it that would be loaded."""
    try:
        executable = load(mutant.data, limits=LIMITS)
        stored = executable.kernels
        if isinstance(stored, StoredKernels):
            _ = stored.names
            if stored.is_of_tvm:
                with tempfile.TemporaryFile(dir=in_memory()) as file:
                    write_copy(stored, file)
        binary.dumps(executable)
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)
    return Outcome.RESULT, ""
