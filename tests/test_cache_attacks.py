"""The cache of compiled libraries: planted links and files, damage, crowds, killed processes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaxvm import disk_cache
from relaxvm.errors import CompilerError
from relaxvm.native import toolchain

from . import children

pytestmark = [
    pytest.mark.skipif(toolchain.compiler() is None, reason="there is no C compiler"),
    pytest.mark.skipif(sys.platform == "win32", reason="links and processes of POSIX"),
    pytest.mark.usefixtures("cache"),
]

SOURCE = "#include <relaxvm/kernel.h>\nRVM_KERNEL(answer) { return rvm_return_int(ret, 42); }\n"
FOREIGN = SOURCE.replace("rvm_return_int(ret, 42)", "(abort(), 0)")
SEED = 5


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound entry that somebody else has made, whose code ends the process."""
    with monkeypatch.context() as patch:
        patch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "theirs"))
        return toolchain.compile_c(f"#include <stdlib.h>\n{FOREIGN}", name="answer").parent


@pytest.fixture
def copier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that copies the library that `SOURCE` is compiled to, in two halves."""
    with monkeypatch.context() as patch:
        patch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "first"))
        library = toolchain.compile_c(SOURCE, name="answer")
    shutil.copy(library, tmp_path / "made.so")
    size = library.stat().st_size // 2
    path = tmp_path / "copier"
    path.write_text(
        f'#!/bin/sh\ncase "$*" in *--version) echo copier; exit 0;; esac\n'
        f'while [ "$1" != -o ]; do shift; done\n'
        f'head -c {size} {tmp_path}/made.so > "$2"; sleep 0.02\n'
        f'tail -c +{size + 1} {tmp_path}/made.so >> "$2"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    return path


def answer() -> Any:
    return toolchain.load_function(toolchain.compile_c(SOURCE, name="answer"), "answer")()


def entry_of(cache: Path) -> Path:
    (entry,) = [path for path in cache.iterdir() if not path.name.startswith(".")]
    return entry


def link_to(target: Path, path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target)


def plant_file(foreign: Path, entry: Path, name: str) -> None:
    """Put the foreign library in the entry, and its hash, so that one of them is a link."""
    for file in ("answer.so", "sha256"):
        (entry / file).unlink()
        if file == name:
            (entry / file).symlink_to(foreign / file)
        else:
            shutil.copy(foreign / file, entry / file)


def plant_entry(foreign: Path, entry: Path, change: Callable[[Path], None]) -> None:
    shutil.rmtree(entry)
    shutil.copytree(foreign, entry)
    change(entry)


def put_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def own_by_another(path: Path) -> None:
    try:
        os.chown(path, 12345, 12345)
    except PermissionError:
        pytest.skip("only root can give files away")


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "link for an entry": lambda foreign, entry: link_to(foreign, entry),
    "link that leads nowhere": lambda foreign, entry: link_to(foreign / "none", entry),
    "link to itself": lambda foreign, entry: link_to(entry, entry),
    "link for the library": lambda foreign, entry: plant_file(foreign, entry, "answer.so"),
    "link for the hash": lambda foreign, entry: plant_file(foreign, entry, "sha256"),
    "entry that others can write": lambda foreign, entry: plant_entry(
        foreign, entry, lambda path: path.chmod(0o777)),
    "entry of somebody else": lambda foreign, entry: plant_entry(foreign, entry, own_by_another),
    "library of somebody else": lambda foreign, entry: plant_entry(
        foreign, entry, lambda path: own_by_another(path / "answer.so")),
    "pipe for the library": lambda foreign, entry: put_pipe(entry / "answer.so"),
    "pipe for the hash": lambda foreign, entry: put_pipe(entry / "sha256"),
    "folder for the library": lambda foreign, entry: (
        (entry / "answer.so").unlink(), (entry / "answer.so").mkdir())[1],
    "folder for the hash": lambda foreign, entry: (
        (entry / "sha256").unlink(), (entry / "sha256").mkdir())[1],
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_replaced(name: str, foreign: Path, cache: Path) -> None:
    before = {path: path.read_bytes() for path in foreign.iterdir()}
    assert answer() == 42
    PLANTED[name](foreign, entry_of(cache))
    assert answer() == 42
    assert disk_cache.is_sound(entry_of(cache) / "answer.so")
    assert [path.name for path in cache.iterdir()] == [entry_of(cache).name]
    assert {path: path.read_bytes() for path in foreign.iterdir()} == before


def piece() -> Any:
    text = "RVM_KERNEL(answer) { return rvm_return_int(ret, 42); }\n"
    head = "#include <relaxvm/kernel.h>\n"
    (library,) = toolchain.compile_pieces(head, [text], name="answer")
    return toolchain.load_function(library, "answer")()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "wild", "long"])
def test_notes_of_pieces(kind: str, foreign: Path, cache: Path, tmp_path: Path) -> None:
    assert piece() == 42
    (note,) = (cache / "pieces").iterdir()
    text = note.read_text()
    note.unlink()
    if kind == "link":
        (tmp_path / "note").write_text(text)
        note.symlink_to(tmp_path / "note")
    elif kind == "pipe":
        os.mkfifo(note)
    elif kind == "folder":
        note.mkdir()
    elif kind == "wild":
        note.write_text(f"../theirs/{foreign.name}/answer.so")
    else:
        note.write_text("a" * 10_000 + "/answer.so")
    assert piece() == 42
    assert piece() == 42
    assert not note.is_symlink()


def test_a_cache_in_a_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "cache").mkdir(parents=True, mode=0o700)
    own_by_another(theirs)
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(theirs / "cache"))
    with pytest.raises(CompilerError, match="user 12345 can put another one in its place"):
        toolchain.cache_dir()


def test_mutated_entries_are_made_again(copier: Path, cache: Path) -> None:
    draw = random.Random(SEED)
    library = toolchain.compile_c(SOURCE, name="answer")
    right = library.read_bytes()
    for turn in range(60):
        path = draw.choice([library, library.with_name("sha256")])
        data = bytearray(path.read_bytes())
        for _ in range(draw.choice([1, 1, 1, 9])):
            at = draw.randrange(len(data))
            kind = draw.randrange(3)
            if kind == 0:
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del data[at : at + draw.choice([1, 100, 10_000])]
                data += b"0"
            else:
                data[at:at] = draw.randbytes(draw.choice([1, 8]))
        path.write_bytes(data)
        assert toolchain.compile_c(SOURCE, name="answer") == library, f"seed {SEED}, turn {turn}"
        assert library.read_bytes() == right, f"seed {SEED}, turn {turn}"


def test_the_clock_may_be_wrong(
    copier: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process is working on is kept, whatever time it is here."""
    toolchain.cache_dir()
    for name in (".new-now", ".new-later"):
        (cache / name).mkdir()
    os.utime(cache / ".new-later", (time.time() + 1e6,) * 2)
    monkeypatch.setattr(time, "time", lambda: 1e10)
    assert answer() == 42
    assert {path.name for path in cache.iterdir() if path.name[0] == "."} == {
        ".new-now", ".new-later"
    }  # fmt: skip


# Processes

WORK = """
import sys
from relaxvm import toolchain
for number in range(int(sys.argv[2])):
    library = toolchain.compile_c(sys.argv[1] + f"/* {number} */", name="answer")
    assert toolchain.load_function(library, "answer")() == 42
print("done")
"""


def worker(count: int) -> list[str]:
    return [sys.executable, "-P", "-c", WORK, SOURCE, str(count)]


def check_entries(cache: Path) -> None:
    for path in cache.iterdir():
        assert path.name.startswith(".new-") or disk_cache.is_sound(path / "answer.so")


def test_many_processes_of_which_some_are_killed(copier: Path, cache: Path) -> None:
    draw = random.Random(SEED)
    with contextlib.ExitStack() as stack:
        start = lambda: stack.enter_context(  # noqa: E731
            children.start(worker(12), stdout=children.PIPE, stderr=children.PIPE, text=True)
        )
        kept, victims = [start() for _ in range(4)], [start() for _ in range(4)]
        for victim in victims:
            time.sleep(draw.random() / 4)
            os.killpg(victim.pid, signal.SIGKILL)
            check_entries(cache) if cache.exists() else None
        for process in kept:
            out, error = process.communicate(timeout=children.DEADLINE)
            assert (process.returncode, out) == (0, "done\n"), f"seed {SEED}: {error}"
    check_entries(cache)
    assert len([path for path in cache.iterdir() if path.name[0] != "."]) == 12


def test_interrupted_compilations(copier: Path, cache: Path) -> None:
    """Kill one process after the other, at random moments; then compile."""
    draw = random.Random(SEED)
    for _ in range(6):
        with children.start(worker(4), stdout=children.PIPE) as process:
            time.sleep(0.1 + draw.random() / 3)
            os.killpg(process.pid, signal.SIGKILL)
        if cache.exists():
            check_entries(cache)
    assert children.run(worker(4), capture_output=True, check=True).stdout == b"done\n"


FULL = """
import resource, sys
from relaxvm import toolchain
from relaxvm.errors import CompilerError
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    toolchain.compile_c(sys.argv[1], name="answer")
except CompilerError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [0, 10, 100, 1000])
def test_a_full_disk(size: int, cache: Path) -> None:
    """A limit on the size of files stands for it: the compiler, or relaxvm itself, fails."""
    command = [sys.executable, "-P", "-c", FULL, SOURCE, str(size)]
    done = children.run(command, capture_output=True, text=True, check=True)
    assert "cannot compile answer" in done.stdout
    assert [path for path in cache.iterdir() if not path.name.startswith(".")] == []
    assert answer() == 42


def test_a_hash_is_of_the_library(cache: Path) -> None:
    library = toolchain.compile_c(SOURCE, name="answer")
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    assert library.with_name("sha256").read_text() == digest
