"""Mutants of compiled kernels: entries of the cache, and the kernel sections of files.

In the cache, a library whose checksum does not match is compiled again.  The compiler is replaced
by a function that returns what it returned before, since a compiler takes as long as hundreds of
mutants.  The sections of a file are read and checked; their code does not run, because it may do
anything.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from relaxvm.errors import RelaxVMError
from relaxvm.executable import StoredKernels
from relaxvm.executable.formats import binary
from relaxvm.executable.formats.sections import SECTIONS
from relaxvm.native import toolchain
from relaxvm.native.functions import load_function
from relaxvm.native.stored import KERNELS, CheckedPart
from relaxvm.verify.verified import ensure_verified

from ..corpus import CORPUS
from .changes import Mutant, change_bytes, change_json, seeded
from .execute import LIMITS
from .outcomes import Ending, Outcome, described
from .parameters import in_memory, write_folder

__all__ = ["bases", "mutant", "run"]

HEAD: Final = "#include <relaxvm/kernel.h>\n"
PIECES: Final = tuple(f"RVM_KERNEL(kernel_{i}) {{ return {i}; }}\n" for i in range(4))
NAME: Final = "fuzz"


@cache
def bases() -> dict[str, dict[str, bytes]]:
    """Return what to mutate: the folder of a cache, and files with kernel sections."""
    found = {f"file {name}": {"file": data} for name, data in _files().items()}
    if toolchain.compiler() is not None:
        found["cache"] = _cache()
    return found


@cache
def _cache() -> dict[str, bytes]:
    """Fill a cache with two libraries of two pieces each, and return its files."""
    with tempfile.TemporaryDirectory(prefix="relaxvm-fuzz-") as folder:
        before = os.environ.get("RELAXVM_CACHE_DIR")
        os.environ["RELAXVM_CACHE_DIR"] = folder
        try:
            for pieces in (PIECES[:2], PIECES[2:]):
                toolchain.compile_pieces(HEAD, pieces, name=NAME)
        finally:
            del os.environ["RELAXVM_CACHE_DIR"]
            if before is not None:
                os.environ["RELAXVM_CACHE_DIR"] = before
        base = Path(folder)
        return {
            path.relative_to(base).as_posix(): path.read_bytes()
            for path in sorted(base.rglob("*"))
            if path.is_file()
        }


@cache
def _compiled() -> dict[str, bytes]:
    """The libraries of the cache by their source, for the function that replaces the compiler."""
    files = _cache()
    return {
        data.decode(): files[path.removesuffix(".c") + ".so"]
        for path, data in files.items()
        if path.endswith(".c")
    }


_STATE: Final = {
    "version": 1,
    "sources": [{"text": f"{HEAD}{PIECES[0]}", "names": ["f"]}],
    "functions": {"f": {"symbol": "kernel_0", "writes": [1], "python": "def function(x): pass\n"},
                  "g": {"symbol": "kernel_1", "writes": [], "python": ""}},
}  # fmt: skip


@cache
def _files() -> dict[str, bytes]:
    return {
        "kernels": _file({KERNELS: _json(_STATE), "native/linux-x86_64-64/0": bytes(64)}),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _file(parts: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    binary.save(CORPUS["identity"].executable, stream, kernels=parts)
    return stream.getvalue()


_STRINGS: Final = (
    "f", "g", "main", "other", "add", "x", "version", "sources", "functions", "symbol", "writes",
    "python", "text", "names", "packed", "tensors", "debug", "", "kernel_1", "class", "a b",
    "lambda: 0", "def f(:\n", "\0", "import os", "(" * 150, "-" * 3000 + "1", "x = " * 2000 + "1",
    "if 1:\n " * 50, "[" * 250 + "]" * 250, "# coding: utf-7\n+AAA-", "def main(x):\n\treturn x\n",
)  # fmt: skip


def mutant(index: int, seed: int = 0) -> Mutant:
    """Return the mutant with an index."""
    rng = seeded("kernels", index, seed)
    if "cache" in bases() and rng.random() < 0.3:
        return _changed_cache(rng)
    base = rng.choice(sorted(f"file {name}" for name in _files()))
    data = bases()[base]["file"]
    if rng.random() < 0.25:
        at = data.find(SECTIONS["kernels"].magic)
        section, steps = change_bytes(data[at:], rng)
        return Mutant(base, tuple(steps), data[:at] + section)
    stored = binary.loads(data).kernels
    assert isinstance(stored, StoredKernels)
    parts = dict(stored.parts)
    value = json.loads(parts[KERNELS])
    steps = [change_json(value, _STRINGS, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    parts[KERNELS] = _json(value)
    return Mutant(base, tuple(steps), _file(parts))


def _changed_cache(rng: random.Random) -> Mutant:
    files: dict[str, bytes | None] = {**_cache()}
    steps = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = rng.choice(sorted(files))
        other = rng.choice(sorted(files))
        step = rng.choice(("bytes", "bytes", "bytes", "empty", "missing", "directory", "swapped",
                           "note"))  # fmt: skip
        if step == "bytes":
            files[path], more = change_bytes(files[path] or b"", rng)
            steps += more
            continue
        if step == "empty":
            files[path] = b""
        elif step == "missing" and len(files) > 1:
            del files[path]
        elif step == "directory":
            files[path] = None
        elif step == "swapped":
            files[path], files[other] = files[other], files[path]
        elif step == "note":
            notes = [path for path in files if path.startswith("pieces/")]
            if notes:
                text = rng.choice(("../x/y.so", f"{'0' * 40}/fuzz.so", "", "a/b", "0/..", "é/x.so",
                                   other, f"{other}/", f"/{other}", "\n" + other))  # fmt: skip
                files[rng.choice(notes)] = text.encode()
        steps.append(step)
    return Mutant("cache", tuple(steps), folder=files)


# Running


def run(mutant: Mutant, index: int) -> Ending:
    """Read a file and check the parts of its kernel section, or use a cache."""
    try:
        return _run_cache(mutant) if mutant.folder else _run_file(mutant)
    except RelaxVMError as error:
        return Outcome.REFUSED, type(error).__name__
    except Exception as error:
        return Outcome.STRAY_ERROR, described(error)


def _run_file(mutant: Mutant) -> Ending:
    executable = binary.loads(mutant.data, limits=LIMITS)
    ensure_verified(executable, limits=LIMITS)
    stored = executable.kernels
    if not isinstance(stored, StoredKernels):
        return Outcome.RESULT, "no kernels"
    _ = stored.names
    repr(stored)
    if KERNELS in stored.parts:
        CheckedPart(stored.parts, stored.source, KERNELS).library_state()
    return Outcome.RESULT, "parts"


def _run_cache(mutant: Mutant) -> Ending:
    """Get the kernels from the cache; each library must be one that the compiler has made."""
    made = _compiled()
    count = 0

    def compile_again(command: Sequence[str], timeout: float, cwd: Path | None = None) -> Any:
        nonlocal count
        count += 1
        assert cwd is not None
        source = (cwd / f"{NAME}.c").read_text()
        pieces = [piece for piece in PIECES if piece in source]
        library = next(made[text] for text in made if all(p in text for p in pieces))
        (cwd / f"{NAME}.so").write_bytes(library)
        return 0, ""

    folder = Path(tempfile.mkdtemp(prefix="relaxvm-fuzz-", dir=in_memory()))
    saved, toolchain._run = toolchain._run, compile_again
    try:
        for path in mutant.folder:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, dict(mutant.folder))
        os.environ["RELAXVM_CACHE_DIR"] = str(folder)
        for start, pieces in ((0, PIECES[:2]), (2, PIECES[2:])):
            libraries = toolchain.compile_pieces(HEAD, pieces, name=NAME)
            if any(path.read_bytes() not in made.values() for path in libraries):
                return Outcome.STRAY_ERROR, "a library that no compiler has made"
            load_function(libraries[0], f"kernel_{start}")
    finally:
        toolchain._run = saved
        shutil.rmtree(folder)
    return Outcome.RESULT, "compiled again" if count else "from the cache"
