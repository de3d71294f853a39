"""The C compiler and its cache: compiling, caching, errors and cleaning up."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxvm.errors import CompilerError, NoCompilerError, RelaxVMWarning
from relaxvm.native import toolchain

from . import children

needs_compiler = pytest.mark.skipif(toolchain.compiler() is None, reason="there is no C compiler")
posix = pytest.mark.skipif(sys.platform == "win32", reason="processes and permissions of POSIX")

ANSWER = """
#include <relaxvm/kernel.h>
RVM_KERNEL(answer) { return rvm_return_int(ret, 42); }
"""

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``fake_compiler(script)``: use a shell script as $CC; --version is handled."""

    def make(script: str) -> Path:
        path = tmp_path / "fakecc"
        path.write_text(
            f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n'
            f'case "$*" in *--version) echo fake 1.0; exit 0;; esac\n{script}\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))
        return path

    return make


def calls(tmp_path: Path) -> list[str]:
    """Return the calls of a fake compiler, except for its version."""
    lines = (tmp_path / "calls").read_text().splitlines()
    return [line for line in lines if not line.endswith("--version")]


def answer(library: Path) -> Any:
    return toolchain.load_function(library, "answer")()


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir())


# The compiler


def test_the_compiler_is_that_of_cc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "mycc"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("CC", "mycc -m64 '-DNAME=a b'")
    assert toolchain.compiler() == f"{program} -m64 '-DNAME=a b'"
    monkeypatch.setenv("CC", "")
    assert toolchain.compiler() is None
    program.rename(program.with_name("cc"))
    assert toolchain.compiler() == str(program.with_name("cc"))
    monkeypatch.delenv("CC")
    assert toolchain.compiler() == str(program.with_name("cc"))


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NoCompilerError, match="expected cc on the path; install one, or name it"):
        toolchain.compile_c(ANSWER, name="answer")
    monkeypatch.setenv("CC", "nocc -m64")
    with pytest.raises(NoCompilerError, match="CC is 'nocc -m64', and there is no such"):
        toolchain.compile_c(ANSWER, name="answer")
    assert issubclass(NoCompilerError, CompilerError)


def test_an_unterminated_quote_in_cc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc '-DA=")
    words = "expected words as for a shell, got"
    with pytest.raises(CompilerError, match=rf'^CC: {words} "cc \'-DA=": No closing quotation$'):
        toolchain.compiler()
    monkeypatch.setenv("CC", "sh")  # found, but not run
    monkeypatch.setenv("RELAXVM_CFLAGS", '-DA="')
    for compile_text in (toolchain.compile_c, toolchain.compile_object):
        with pytest.raises(CompilerError, match=f"^RELAXVM_CFLAGS: {words}"):
            compile_text(ANSWER, name="answer")


@posix
def test_a_compiler_that_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "cc"
    program.write_text("#!/bin/sh\necho I am broken; exit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    with pytest.raises(NoCompilerError, match=r"cc --version: exit status 3\nI am broken"):
        toolchain.compile_c(ANSWER, name="answer")
    assert toolchain.compiler() is None
    assert toolchain.why_no_compiler() == f"no C compiler: {program} --version: exit status 3"
    program.write_text("#!/no/such/interpreter\n")
    os.utime(program, (1, 1))
    with pytest.raises(NoCompilerError, match=r"cannot run .*cc: No such file"):
        toolchain.compile_c(ANSWER, name="answer")


@needs_compiler
def test_an_error_shows_what_the_compiler_wrote(cache: Path) -> None:
    with pytest.raises(CompilerError, match=r"cannot compile wrong\.c: exit status 1\n") as caught:
        toolchain.compile_c("int f(void) { return nothing; }", name="wrong")
    assert "wrong.c" in caught.value.output
    assert "nothing" in caught.value.output
    assert entries(cache) == []  # nothing is left behind


@posix
def test_a_long_error_is_cut(fake_compiler: Any) -> None:
    fake_compiler("for i in $(seq 100); do echo line $i; done; exit 1")
    with pytest.raises(CompilerError) as caught:
        toolchain.compile_c(ANSWER, name="answer")
    lines = str(caught.value).splitlines()
    assert lines[1] == "line 1"
    assert lines[20:] == ["line 20", "... 80 more lines"]
    assert len(caught.value.output.splitlines()) == 100


@posix
def test_a_compiler_that_crashes(fake_compiler: Any) -> None:
    fake_compiler("kill -SEGV $$")
    with pytest.raises(CompilerError, match=r"cannot compile answer\.c: killed by signal 11"):
        toolchain.compile_c(ANSWER, name="answer")


@posix
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_a_compiler_that_hangs(fake_compiler: Any, tmp_path: Path, cache: Path) -> None:
    # The child of the compiler would continue to run.
    fake_compiler(f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait")
    timeout = 0.5
    while not (tmp_path / "pid").exists():  # on a busy machine it takes longer to start
        said = rf"fakecc took more than {timeout:g} seconds and was stopped"
        with pytest.raises(CompilerError, match=re.escape(said)):
            toolchain.compile_c(ANSWER, name="answer", timeout=timeout)
        timeout *= 4
    assert children.ends(int((tmp_path / "pid").read_text()))
    assert entries(cache) == []


CTRL_C = """
import os, signal, sys, threading, time, traceback
from pathlib import Path
from relaxvm import toolchain

def waits(thread):
    # In subprocess.Popen.wait: the compiler runs, and is killed if anything happens.
    return any(frame.f_code.co_name == "wait"
               for frame, _ in traceback.walk_stack(sys._current_frames()[thread.ident]))

def interrupt():
    while not (Path(os.environ["WHERE"]) / "pid").exists() or not waits(threading.main_thread()):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    toolchain.compile_c("", name="x")
except KeyboardInterrupt:
    print("interrupted", os.listdir(os.environ["RELAXVM_CACHE_DIR"]))
"""


@posix
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")
def test_ctrl_c_ends_the_compiler(
    fake_compiler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler(f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; wait")
    monkeypatch.setenv("WHERE", str(tmp_path))
    done = children.run(
        [sys.executable, "-c", CTRL_C], capture_output=True, text=True
    )
    assert done.stdout == "interrupted []\n", done.stderr
    assert children.ends(int((tmp_path / "pid").read_text()))


@posix
def test_ctrl_c_before_the_output_is_read(
    fake_compiler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: Any) -> None:
        raise KeyboardInterrupt

    fake_compiler("sleep 600")
    monkeypatch.setattr(toolchain._Reader, "start", start)
    with pytest.raises(KeyboardInterrupt):
        toolchain.compile_c("", name="x")


# Arithmetic

FLOATS = """
#include <math.h>
#include <relaxvm/kernel.h>

static RVM_CLONES void poly(const double *restrict a, const double *restrict b,
                            double *restrict c, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    c[i] = a[i] > 0 ? a[i] * b[i] + sqrt(fabs(a[i])) / b[i] : a[i] - b[i] * b[i];
}
RVM_KERNEL(poly) {
  poly(rvm_f64(args[0].as_tensor), rvm_f64(args[1].as_tensor), rvm_f64(args[2].as_tensor),
       rvm_numel(args[2].as_tensor));
  return RVM_OK;
}
RVM_KERNEL(sum32) {
  float total = 0;
  for (int64_t i = 0; i < rvm_numel(args[0].as_tensor); i++) total += rvm_f32(args[0].as_tensor)[i];
  return rvm_return_float(ret, total);
}
RVM_KERNEL(wrap) { return rvm_return_int(ret, args[0].as_int * args[1].as_int + args[2].as_int); }
"""


@needs_compiler
@pytest.mark.parametrize("flags", [(), ("-march=native",)])
def test_arithmetic_is_that_of_numpy(flags: tuple[str, ...]) -> None:
    library = toolchain.compile_c(FLOATS, name="floats", flags=flags)
    poly = toolchain.load_function(library, "poly")
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, 10_007)) * 1e3
    a[:6] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324]
    out = np.empty_like(a)
    poly(a, b, out)
    with np.errstate(all="ignore"):
        expected = np.where(a > 0, a * b + np.sqrt(np.abs(a)) / b, a - b * b)
    np.testing.assert_array_equal(out.view(np.int64)[1:], expected.view(np.int64)[1:])
    assert np.isnan(out[0])
    # Sums are computed in order.
    x = random.standard_normal(10_001).astype(np.float32)
    total = np.float32(0)
    for value in x:
        total += value
    assert toolchain.load_function(library, "sum32")(x) == total


@needs_compiler
def test_integers_wrap() -> None:
    wrap = toolchain.load_function(toolchain.compile_c(FLOATS, name="floats"), "wrap")
    assert wrap(2**62, 4, 5) == 5
    assert wrap(2**63 - 1, 1, 1) == -(2**63)


# The cache


@needs_compiler
def test_a_text_is_compiled_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = toolchain.compile_c(ANSWER, name="answer")
    assert library.name == "answer.so"
    assert library.is_relative_to(cache)
    assert answer(library) == 42
    assert library.with_suffix(".c").read_text() == ANSWER
    made = library.stat()
    assert toolchain.compile_c(ANSWER, name="answer") == library
    assert library.stat().st_mtime_ns == made.st_mtime_ns
    assert entries(cache) == [library.parent]


@posix
def test_the_key_depends_on_all_inputs(
    fake_compiler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = 'while [ "$1" != -o ]; do shift; done; echo text > "$2"'
    program = fake_compiler(copy)
    seen = [toolchain.compile_c("a", name="x")]

    def compile_again(*args: Any, **kwargs: Any) -> None:
        before = len(calls(tmp_path))
        seen.append(toolchain.compile_c(*args, **kwargs))
        assert len(calls(tmp_path)) == before + 1
        assert len(set(seen)) == len(seen)

    compile_again("b", name="x")
    compile_again("a", name="y")
    compile_again("a", name="x", flags=["-DA"])
    compile_again("a", name="x", flags=["-DA", "-DB"])
    compile_again("a", name="x", flags=["-DA -DB"])
    monkeypatch.setenv("RELAXVM_CFLAGS", "-DA '-DC=a b'")
    compile_again("a", name="x")
    assert "-DA -DC=a b -I" in calls(tmp_path)[-1]
    monkeypatch.delenv("RELAXVM_CFLAGS")
    monkeypatch.setenv("CC", f"{program} -m32")
    compile_again("a", name="x")
    monkeypatch.setenv("CC", str(program))
    assert toolchain.compile_c("a", name="x") == seen[0]
    program.write_text(program.read_text().replace("fake 1.0", "fake 1.1"))
    os.utime(program, (1, 1))
    compile_again("a", name="x")


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda library: library.write_bytes(library.read_bytes()[:1000]),
        lambda library: library.write_bytes(b""),
        lambda library: library.unlink(),
        lambda library: library.with_name("sha256").unlink(),
        lambda library: library.with_name("sha256").write_bytes(b"\xff\xfe"),
        lambda library: shutil.rmtree(library.parent),
        lambda library: (shutil.rmtree(library.parent), library.parent.write_text("a file")),
    ],
)
def test_a_damaged_entry_is_rebuilt(damage: Any, cache: Path) -> None:
    library = toolchain.compile_c(ANSWER, name="answer")
    damage(library)
    assert toolchain.compile_c(ANSWER, name="answer") == library
    assert answer(library) == 42
    assert entries(cache) == [library.parent]


@needs_compiler
def test_many_threads_compile_the_same_text(cache: Path) -> None:
    found: list[Any] = []

    def work() -> None:
        for i in range(3):
            text = ANSWER.replace("42", str(i))
            found.append((i, answer(toolchain.compile_c(text, name="answer"))))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted([(0, 0), (1, 1), (2, 2)] * 6)
    assert len(entries(cache)) == 3


# Pieces of C code, each compiled once

HEAD = "#include <relaxvm/kernel.h>\n"


def piece(number: int, result: int | None = None) -> str:
    value = number if result is None else result
    return f"RVM_KERNEL(f{number}) {{ return rvm_return_int(ret, {value}); }}\n"


def results(pieces: dict[int, str]) -> dict[int, Any]:
    """Return the results of the functions, by number."""
    paths = toolchain.compile_pieces(HEAD, list(pieces.values()), name="p")
    return {
        number: toolchain.load_function(path, f"f{number}")()
        for number, path in zip(pieces, paths, strict=True)
    }


def texts(cache: Path) -> list[list[str]]:
    """The pieces of every C text that was compiled."""
    found = (path.read_text().removeprefix(HEAD) for path in cache.glob("*/p.c"))
    return sorted(sorted(text.splitlines(keepends=True)) for text in found)


@needs_compiler
def test_a_piece_is_compiled_once(cache: Path) -> None:
    pieces = {i: piece(i) for i in range(40)}
    assert results(pieces) == {i: i for i in range(40)}
    first = texts(cache)
    assert sorted(p for text in first for p in text) == sorted(pieces.values())
    assert all(2 <= len(text) <= 32 for text in first)
    # With other pieces, in another order: only the new and the changed one are compiled.
    changed = {99: piece(99), **dict(reversed(pieces.items())), 7: piece(7, 700)}
    assert results(changed) == {**{i: i for i in range(40)}, 7: 700, 99: 99}
    assert [t for t in texts(cache) if t not in first] == [[piece(7, 700), piece(99)]]
    assert results(pieces) == {i: i for i in range(40)}
    assert len(texts(cache)) == len(first) + 1
    assert toolchain.compile_pieces(HEAD, [], name="p") == []


@posix
def test_the_key_of_a_piece_depends_on_all_inputs(
    fake_compiler: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_compiler('while [ "$1" != -o ]; do shift; done; echo text > "$2"')
    other = tmp_path / "object"
    seen: list[Path] = []
    for head, text, name, flags, contents in (
        ("a", "b", "x", [], None),
        ("aa", "b", "x", [], None),
        ("a", "c", "x", [], None),
        ("a", "b", "y", [], None),
        ("a", "b", "x", ["-DA"], None),
        ("a", "b", "x", [], "1"),
        ("a", "b", "x", [], "2"),
    ):
        other.write_text(contents or "")
        objects = [] if contents is None else [other]
        for _ in range(2):
            seen += toolchain.compile_pieces(head, [text], name=name, flags=flags, objects=objects)
        assert seen[-1] == seen[-2]
    assert len(calls(tmp_path)) == 7
    monkeypatch.setenv("RELAXVM_CFLAGS", "-DB")
    toolchain.compile_pieces("a", ["b"], name="x")
    assert len(calls(tmp_path)) == 8


@needs_compiler
@pytest.mark.parametrize(
    "damage",
    [
        lambda library, note: library.write_bytes(b""),
        lambda library, note: shutil.rmtree(library.parent),
        lambda library, note: note.unlink(),
        lambda library, note: note.write_text(""),
        lambda library, note: note.write_bytes(b"\xff"),
        lambda library, note: note.write_text("../../p.so"),
        lambda library, note: (note.unlink(), note.mkdir()),
    ],
)
def test_a_damaged_piece_is_rebuilt(damage: Any, cache: Path) -> None:
    (library,) = toolchain.compile_pieces(HEAD, [piece(1)], name="p")
    (note,) = (cache / "pieces").iterdir()
    damage(library, note)
    assert results({1: piece(1)}) == {1: 1}
    assert results({1: piece(1)}) == {1: 1}
    assert not list(cache.rglob(".*"))


PIECES = """
import sys
from tests.test_toolchain import piece, results
start = int(sys.argv[1])
for size in (3, 7, 11):
    numbers = range(start, start + size)
    assert results({i: piece(i) for i in numbers}) == {i: i for i in numbers}
"""


def side_by_side(commands: Iterable[list[str]]) -> None:
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(children.start(command, stderr=children.PIPE, text=True))
            for command in commands
        ]
        for process in started:
            _, error = process.communicate(timeout=children.DEADLINE)
            assert process.returncode == 0, error


@needs_compiler
def test_many_processes_compile_the_same_pieces(cache: Path) -> None:
    side_by_side([sys.executable, "-c", PIECES, str(i)] for i in (0, 2, 2, 4))
    assert results({i: piece(i) for i in range(15)}) == {i: i for i in range(15)}
    assert not list(cache.rglob(".*"))


# Processes


PROCESS = """
import sys
from relaxvm import toolchain
for number in range(8):
    library = toolchain.compile_c(sys.argv[1].replace("42", str(number)), name="answer")
    assert toolchain.load_function(library, "answer")() == number
"""


@needs_compiler
def test_many_processes_compile_the_same_texts(cache: Path) -> None:
    side_by_side([[sys.executable, "-c", PROCESS, ANSWER]] * 4)
    assert len(entries(cache)) == 8


@posix
def test_files_of_killed_processes_are_removed(
    fake_compiler: Any, cache: Path, tmp_path: Path
) -> None:
    fake_compiler('while [ "$1" != -o ]; do shift; done; echo text > "$2"')
    toolchain.cache_dir()
    for name in (".new-old", ".new-young", ".old-old", "keep"):
        (cache / name).mkdir()
        (cache / name / "x").write_text("x")
        if "young" not in name:
            os.utime(cache / name, (1, 1))
    library = toolchain.compile_c("a", name="x")
    assert entries(cache) == sorted([cache / ".new-young", cache / "keep", library.parent])


def test_the_location_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert toolchain.cache_dir() == tmp_path / "cache"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", "relative")
    monkeypatch.chdir(tmp_path)
    assert toolchain.cache_dir() == tmp_path / "relative"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert toolchain.cache_dir() == tmp_path / "xdg" / "relaxvm"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    for ignored in ("", "relative/xdg"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert toolchain.cache_dir() == tmp_path / "home" / ".cache" / "relaxvm"


@posix
def test_the_cache_is_private_to_the_user(cache: Path) -> None:
    old = os.umask(0)
    try:
        toolchain.cache_dir()
    finally:
        os.umask(old)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    for mode in (0o770, 0o707, 0o777):
        cache.chmod(mode)
        with pytest.raises(CompilerError, match=rf"others can write to it \(mode 0{mode:o}\)"):
            toolchain.cache_dir()
    cache.chmod(0o755)
    assert toolchain.cache_dir() == cache


@posix
def test_others_cannot_replace_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    (shared / "mine" / "cache").mkdir(parents=True, mode=0o700)
    (shared / "mine" / "cache").chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(shared / "mine")
    for place in (shared / "mine" / "cache", link / "cache"):
        monkeypatch.setenv("RELAXVM_CACHE_DIR", str(place))
        shared.chmod(0o777)
        with pytest.raises(
            CompilerError,
            match="others can put another one in its place, because they can write to "
            r".*shared \(mode 0777\); set RELAXVM_CACHE_DIR",
        ):
            toolchain.cache_dir()
        shared.chmod(0o1777)  # sticky, like /tmp: only the owner of a file can move it
        assert toolchain.cache_dir() == place


@posix
def test_a_cache_of_somebody_else(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(CompilerError, match=r"belongs to user .*; set RELAXVM_CACHE_DIR to a dir"):
        toolchain.cache_dir()


@needs_compiler
def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(RelaxVMWarning, match=r"cannot use the cache directory .*file/cache: Not a "
                      r"directory; compiled kernels are kept for this process only"):  # fmt: skip
        first = toolchain.compile_c(ANSWER, name="answer")
    assert answer(first) == 42
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert toolchain.compile_c(ANSWER, name="answer") == first


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 0", r"No such file or directory: .*/\.new-\w+/answer\.so"),
        ("rm -r $CACHE", r"No such file or directory: .*/\.new-\w+/answer\.so"),
        ("touch answer.so; chmod 500 .", "Permission denied: .*/sha256"),
        ("touch answer.so; mkdir sha256", "Is a directory: .*/sha256"),
    ],
)
def test_a_cache_that_cannot_be_written_to(
    script: str,
    message: str,
    fake_compiler: Any,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    if "chmod" in script and os.access(locked, os.W_OK):
        pytest.skip("this user may write anywhere")
    monkeypatch.setenv("CACHE", str(cache))
    fake_compiler(script)
    message = rf"cannot compile answer in the cache directory {re.escape(str(cache))}: {message}; "
    with pytest.raises(CompilerError, match=message + "fix this, or set RELAXVM_CACHE_DIR"):
        toolchain.compile_c(ANSWER, name="answer")


@needs_compiler
def test_a_cache_with_a_file_in_place_of_a_folder(cache: Path) -> None:
    cache.mkdir(mode=0o700)
    (cache / "pieces").write_text("a file")
    with pytest.raises(CompilerError, match=r"cannot compile lib in .*: File exists: .*/pieces; "):
        toolchain.compile_pieces(HEAD, [piece(1)], name="lib")


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "a/b", "a b", "a\0", "a\n"])
def test_names_of_libraries(name: str) -> None:
    with pytest.raises(ValueError, match="compile_c: expected a plain file name, got"):
        toolchain.compile_c(ANSWER, name=name)


@needs_compiler
def test_the_compiler_is_found_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", f"{toolchain.compiler()} -DVALUE=7")
    library = toolchain.compile_c(ANSWER.replace("42", "VALUE"), name="answer")
    assert answer(library) == 7
    assert shlex.split(str(toolchain.compiler()))[1:] == ["-DVALUE=7"]


@needs_compiler
def test_libraries_are_linked_with_objects(cache: Path) -> None:
    text = "int answer_to(int x) { return x + OFFSET; }"
    made = [
        toolchain.compile_object(text, name="parts", flags=[f"-DOFFSET={i}"]) for i in (2, 2, 30)
    ]
    assert made[0] == made[1] != made[2]
    assert made[0].name == "parts.o"
    source = """
#include <relaxvm/kernel.h>
int answer_to(int x);
RVM_KERNEL(answer) { return rvm_return_int(ret, answer_to(40)); }
"""
    assert answer(toolchain.compile_c(source, name="whole", objects=[made[0]])) == 42
    assert answer(toolchain.compile_c(source, name="whole", objects=[made[2]])) == 70


@needs_compiler
def test_code_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = toolchain.for_this_machine()
    library = toolchain.compile_c(FLOATS, name="floats", flags=flags)
    other = toolchain.compile_c(FLOATS, name="floats")
    assert (library == other) == (not flags)
    a, b = np.random.default_rng(2).standard_normal((2, 1000))
    outs = []
    for path in (library, other):
        outs.append(np.empty_like(a))
        toolchain.load_function(path, "poly")(a, b, outs[-1])
    np.testing.assert_array_equal(*outs)
