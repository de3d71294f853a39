"""Libraries like those that TVM exports, made here by the C compiler, and their loader."""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import pickle
import platform
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ExecBuilder, Limits, VirtualMachine, VMExecutable
from relaxvm.contrib.tvm.library import image, packed
from relaxvm.contrib.tvm.library.elf import ElfFile
from relaxvm.contrib.tvm.library.image import LIBRARY_BIN, LibraryImage
from relaxvm.errors import FormatError, LimitError, LinkError
from relaxvm.native import toolchain

from . import children
from .threads import run_in_threads


def run_cli(*args: str) -> str:
    """Return the output of a command."""
    return children.run(
        [sys.executable, "-m", "relaxvm", *args], capture_output=True, text=True, check=True
    ).stdout


pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or toolchain.compiler() is None, reason="Linux, with a C compiler"
)

SOURCE = (Path(__file__).parent / "tvm_library.c").read_text()
X = np.arange(5, dtype=np.float32)


def program() -> VMExecutable:
    b = ExecBuilder()
    with b.function("main", num_inputs=2, param_names=["x", "out"]):
        b.emit_call("double", [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    return b.get()


def string(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def tree(*modules: tuple[str, bytes | None], imports: tuple[int, ...] = (1,)) -> bytes:
    """The import tree in which the first module imports the others."""
    starts = [0] + [len(imports)] * len(modules)
    numbers = [len(starts), *starts, len(imports), *imports]
    parts = [struct.pack(f"<{len(numbers)}Q", *numbers)]
    for kind, content in modules:
        parts.append(string(kind.encode()))
        if content is not None:
            parts.append(string(content))
    return string(b"".join(parts))


USUAL = tree(("relax.VMExecutable", program().to_bytes()), ("_lib", None))


def compiled(blob: bytes | None = USUAL, *flags: str, source: str = SOURCE) -> Path:
    if blob is not None:
        numbers = ",".join(map(str, blob))
        source += (f"\n__attribute__((visibility(\"default\"))) const unsigned char {LIBRARY_BIN}[]"
                   f" = {{{numbers}}};\n")  # fmt: skip
    return toolchain.compile_c(source, name="tvm_library", flags=flags)


@pytest.fixture(scope="module")
def path() -> Path:
    return compiled()


@pytest.fixture
def kernels(path: Path) -> Any:
    return relaxvm.load_library(path).kernels


@pytest.fixture
def threads() -> Iterator[Any]:
    before = relaxvm.get_num_threads()
    yield relaxvm.set_num_threads
    relaxvm.set_num_threads(before)


# Loading


@pytest.mark.parametrize("flags", [(), ("-Wl,-z,lazy",), ("-Wl,-z,relro,-z,now",)])
def test_programs_run_however_the_library_is_linked(flags: tuple[str, ...]) -> None:
    vm = VirtualMachine(relaxvm.load_library(compiled(USUAL, *flags)))
    assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()
    with pytest.raises(ValueError, match=r"^lengths differ in double") as caught:
        vm["main"](X, np.zeros(4, np.float32))
    assert caught.value.__notes__[0] == "in native function double"
    assert "in main, pc 0" in caught.value.__notes__[1]


def test_load_reads_only_data(path: Path) -> None:
    ex = relaxvm.load(path)
    assert ex == program()
    assert not ex.kernels
    assert "double" in ex.kernels.names
    with pytest.raises(LinkError, match=r"'double', used by main .*load\(path, native=True\)"):
        VirtualMachine(ex)
    mapped = relaxvm.load(path, mmap=True)
    assert mapped == ex
    assert relaxvm.load(path.read_bytes()) == ex
    with pytest.raises(LimitError, match="file_bytes"):
        relaxvm.load(path, limits=Limits(file_bytes=100))


def test_from_memory(path: Path) -> None:
    vm = VirtualMachine(relaxvm.load_library(path.read_bytes()))
    assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()


def test_each_load_is_a_library_of_its_own(path: Path) -> None:
    """Like with the loader of another package: its variables are separate."""
    theirs = ctypes.CDLL(str(path), os.RTLD_LAZY)
    slot = ctypes.c_void_p.in_dll(theirs, "__TVMBackendAllocWorkspace")
    first, second = (relaxvm.load_library(path).kernels for _ in range(2))
    assert slot.value is None
    assert first["double"].address != second["double"].address


def test_pickled_and_exported_again(path: Path, tmp_path: Path) -> None:
    for ex in (relaxvm.load_library(path), relaxvm.load(path)):
        again = pickle.loads(pickle.dumps(ex))
        assert again == ex
        if again.kernels:
            assert again.kernels["double"](X, out := np.zeros(5, np.float32)) is None
            assert out.tolist() == (2 * X).tolist()
        for name, native in (("model.relaxvm", True), ("model.so", True), ("less.so", False)):
            ex.export_library(tmp_path / name, native=native)
            vm = VirtualMachine(relaxvm.load_library(tmp_path / name))
            assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()
        with pytest.raises(ValueError, match=r"for_tvm: the kernels are machine code.* it is in /"):
            ex.export_library(tmp_path / "for_tvm.so", for_tvm=True)


def test_constants_are_not_copied_with_the_library() -> None:
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("double", [b.convert_constant(np.ones(1 << 18, np.float32)), b.r(0)])
        b.emit_ret(b.r(0))
    path = compiled(tree(("relax.VMExecutable", b.get().to_bytes()), ("_lib", None)))
    assert path.stat().st_size > 1 << 20
    for mapped in (False, True):
        ex = relaxvm.load_library(path, mmap=mapped)
        assert sum(map(len, ex.kernels.stored.parts.values())) < 1 << 17
        assert ex.constants[0].ctypes.data % 64 == 0  # so that no call has to copy it
        assert VirtualMachine(ex)["main"](np.zeros(1 << 18, np.float32)).sum() == 2 << 18
    assert relaxvm.load(path, mmap=True).constants[0].ctypes.data % 64 != 0


def test_files_that_can_be_read_once(path: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for data, native in ((path.read_bytes(), True), (program().to_bytes(), False)):
        writer = threading.Thread(target=pipe.write_bytes, args=(data,))
        writer.start()
        ex = relaxvm.load(pipe, native=native)
        writer.join()
        assert ex == program()
        assert ("double" in ex.kernels) == native


def test_a_file_that_is_cut_while_it_is_read(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a program overwrote the old model with a new one."""
    read = LibraryImage.executable

    def cut(library: LibraryImage, **options: Any) -> VMExecutable:
        os.truncate(victim, sizes.pop())
        return read(library, **options)

    monkeypatch.setattr(LibraryImage, "executable", cut)
    monkeypatch.setattr(image, "SMALL", 0)  # the part that is not read at once
    victim = tmp_path / "model mit ü.so"
    sizes = [0, 5000, path.stat().st_size - 100]
    while sizes:
        victim.write_bytes(path.read_bytes())
        with pytest.raises(FormatError, match=r"model mit ü\.so: .*(truncated|became shorter)"):
            relaxvm.load_library(victim)


def test_a_file_that_is_overwritten_later(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model.so"
    copy.write_bytes(path.read_bytes())
    vm = VirtualMachine(relaxvm.load_library(copy))
    copy.write_bytes(b"")
    assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()


# Lifetime of code


def copies() -> int:
    """Return how many private copies of libraries the process has mapped."""
    gc.collect()  # references from exceptions of other tests
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in lines if "/memfd:relaxvm" in line})  # [4]: the inode


def resident() -> int:
    """Return the resident memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_loading_again_and_again(path: Path) -> None:
    def load_and_run() -> None:
        vm = VirtualMachine(relaxvm.load_library(path))
        assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()

    for _ in range(50):
        load_and_run()
    before = copies(), len(os.listdir("/proc/self/fd"))
    size = resident()
    for _ in range(200):
        load_and_run()
    assert (copies(), len(os.listdir("/proc/self/fd"))) == before
    assert resident() - size < 4 << 20  # a library takes 100 KiB


def test_loading_and_dropping_while_threads_run(path: Path) -> None:
    def right(vm: VirtualMachine) -> bool:
        return vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()

    def run() -> None:
        while not done.is_set():
            found.append(right(shared))

    done = threading.Event()
    found: list[bool] = []
    shared = VirtualMachine(relaxvm.load_library(path))
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            found.append(right(VirtualMachine(relaxvm.load_library(path))))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert len(found) > 5
    assert all(found)


def test_code_stays_while_it_is_used(path: Path) -> None:
    before = copies()
    ex = relaxvm.load_library(path)
    kernels = ex.kernels
    function = kernels["double"]
    vm = VirtualMachine(ex)
    main = vm["main"]
    out = main(X, np.zeros(5, np.float32))
    assert copies() == before + 1
    del vm, ex, kernels
    assert main(X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()
    del main
    function(X, second := np.zeros(5, np.float32))
    assert second.tolist() == out.tolist()
    assert copies() == before + 1
    del function
    assert copies() == before
    assert out.tolist() == (2 * X).tolist()


def test_code_that_runs_stays(path: Path) -> None:
    """A kernel calls a function that drops all references to the kernel."""
    b = ExecBuilder()
    with b.function("main"):
        b.emit_call("calls", [], dst=b.r(0))
        b.emit_ret(b.r(0))
    path = compiled(tree(("relax.VMExecutable", b.get().to_bytes()), ("_lib", None)))
    before = copies()
    held = [VirtualMachine(relaxvm.load_library(path))]
    during = []

    @relaxvm.register_func("test.callee", override=True)
    def function() -> int:
        held.clear()
        during.append(copies())
        return 7

    try:
        assert held[0]["main"]() == 7
    finally:
        relaxvm.registry.GLOBAL.remove("test.callee")
    assert (during, copies()) == ([before + 1], before)


class Runs:
    """Runs code of a library in its finalizer, in a reference cycle that includes the code."""

    def __init__(self, path: Path, function: str, *args: Any) -> None:
        self.vm = VirtualMachine(relaxvm.load_library(path))
        self.cycle = self
        self.call = lambda: self.vm[function](*args)

    def __del__(self) -> None:
        FOUND.append(self.call())


class Stays(Runs):
    """Resurrects itself in its finalizer."""

    def __del__(self) -> None:
        FOUND.append(self)


FOUND: list[Any] = []


@pytest.mark.parametrize("ends", [True, False])
def test_code_in_cycles_that_the_collector_finds(path: Path, ends: bool) -> None:
    before = copies()
    for _ in range(3):  # in any order of finalization
        (Runs if ends else Stays)(path, "main", X, np.zeros(5, np.float32))
    gc.collect()
    found = [each if ends else each.call() for each in FOUND]
    FOUND.clear()
    assert [each.tolist() for each in found] == [(2 * X).tolist()] * 3
    assert copies() == before


GIVES = SOURCE + r"""
static float numbers[] = {1, 2, 3};
static int64_t shape[] = {3};
static RvmTensorObject tensor;
static void destroy(void *object, int how) { (void)object, (void)how; numbers[0] = 9; }

KERNEL(gives) {
  (void)self, (void)args, (void)count;
  tensor.object.counts = (UINT64_C(1) << 32) + 1;
  tensor.object.type = ret->type = RVM_TENSOR_OBJECT;
  tensor.object.destroy = destroy;
  tensor.tensor.data = numbers;
  tensor.tensor.device.type = 1;
  tensor.tensor.ndim = 1;
  tensor.tensor.dtype.code = 2;
  tensor.tensor.dtype.bits = 32;
  tensor.tensor.dtype.lanes = 1;
  tensor.tensor.shape = shape;
  ret->as_object = &tensor.object;
  return 0;
}
"""


def test_code_stays_as_long_as_its_tensors() -> None:
    before = copies()
    array = relaxvm.load_library(compiled(source=GIVES)).kernels["gives"]()
    assert copies() == before + 1
    assert array.tolist() == [1, 2, 3]
    part = array[1:]
    del array
    assert part.tolist() == [2, 3]
    assert copies() == before + 1
    del part
    assert copies() == before


def test_code_that_may_run_by_itself_stays() -> None:
    other = toolchain.compile_c("int other(void) { return 1; }", name="other")
    brings = compiled(USUAL, "-Wl,--no-as-needed", str(other))
    starts = compiled(source=SOURCE + """
#include <pthread.h>
int start(pthread_t *it, void *(*work)(void *)) { return pthread_create(it, 0, work, 0); }
""")
    before = copies()
    for count, path in enumerate((brings, starts), 1):
        relaxvm.load_library(path)
        assert copies() == before + count


def test_variables_of_threads() -> None:
    """The addresses of thread-local variables are not inside the library."""
    own = "".join(f"__thread int own{i} = {i};\n" for i in range(100))
    vm = VirtualMachine(relaxvm.load_library(compiled(source=SOURCE + own)))
    assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()


def test_copies_differ(path: Path) -> None:
    """Although they have no names, and inode numbers are reused."""
    tripled = compiled(source=SOURCE.replace("room[i] + ", "2 * room[i] + "))
    assert tripled != path
    kernels = [relaxvm.load_library(p).kernels["double"] for p in (path, tripled) * 3]
    for factor, double in zip((2, 3) * 3, kernels, strict=True):
        double(X, out := np.zeros(5, np.float32))
        assert out.tolist() == (factor * X).tolist()


@pytest.fixture(params=["not allowed", "not there"])
def no_memory(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system without memfd_create, or with a C library that is too old for it."""

    def memfd_create(name: str) -> int:
        raise PermissionError(request.param)

    if request.param == "not there":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "memfd_create", memfd_create)


@pytest.mark.usefixtures("no_memory")
def test_a_copy_in_a_folder(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    vm = VirtualMachine(relaxvm.load_library(path))
    assert vm["main"](X, np.zeros(5, np.float32)).tolist() == (2 * X).tolist()
    assert os.listdir(tmp_path) == []
    assert str(tmp_path) in Path("/proc/self/maps").read_text()
    del vm
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    message = r"a copy, which cannot be written: .*nowhere.*; set TMPDIR to a directory that can be"
    with pytest.raises(LinkError, match=message):
        relaxvm.load_library(path)


# Libraries that cannot be run


@pytest.mark.parametrize(
    ("blob", "error", "message"),
    [
        (None, LinkError, "kernels that TVM compiled without a Relax function"),
        (tree(("cuda", b"ptx"), ("_lib", None)), LinkError, r"of other kinds than .*: cuda"),
        (USUAL[:4], FormatError, "bad shared library|bad tree of modules"),
        (string(b""), FormatError, "bad tree of modules: truncated at byte 0"),
        (string(USUAL[8:70]), FormatError, "bad tree of modules: truncated"),
        (string(struct.pack("<3Q", 1, 0, 0)), FormatError, "expected 1 to 4096 modules, got 0"),
        (string(struct.pack("<QQ", 1 << 60, 0)), FormatError, "numbers for its modules"),
        (string(struct.pack("<4Q", 2, 0, 0, 1 << 17)), FormatError, "131072 numbers for its im"),
        (tree(("_lib", None), imports=(7,)), FormatError, "import of a module that does not exist"),
        (tree(("relax.VMExecutable", b"junk" * 9), imports=()), FormatError, "expected the magic"),
    ],
)  # fmt: skip
def test_other_contents(blob: bytes | None, error: type, message: str) -> None:
    path = compiled(blob)
    for read in (relaxvm.load, relaxvm.load_library):
        with pytest.raises(error, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)


def test_libraries_of_others() -> None:
    path = toolchain.compile_c("double cube(double x) { return x * x * x; }", name="cube")
    message = f"{path}: expected .* without the symbol {LIBRARY_BIN}.*relaxvm.load_kernels"
    with pytest.raises(LinkError, match=message):
        relaxvm.load_library(path)


def test_refused_modules_are_named_when_code_is_loaded() -> None:
    path = compiled(tree(("relax.VMExecutable", program().to_bytes()), ("cuda", b"ptx"),
                         ("_lib", None), imports=(1, 2)))  # fmt: skip
    assert relaxvm.load(path) == program()
    with pytest.raises(LinkError, match="cannot be run here: it has a module of kind 'cuda'"):
        relaxvm.load_library(path)


def test_functions_that_only_tvm_has_are_named() -> None:
    source = SOURCE + "\nint TVMFFIWhatever(void);\nint f(void) { return TVMFFIWhatever(); }\n"
    with pytest.raises(LinkError, match="code calls TVMFFIWhatever, which relaxvm does not have"):
        relaxvm.load_library(compiled(source=source))


def test_functions_that_nobody_has_are_named(tmp_path: Path) -> None:
    source = SOURCE + "\nint nobody_has(void);\nint f(void) { return nobody_has(); }\n"
    path = compiled(source=source)
    with pytest.raises(LinkError, match=r"cannot load .*nobody_has"):
        relaxvm.load_library(path)


@pytest.mark.parametrize("flags", [0, os.ST_NOEXEC])
def test_where_code_cannot_be_loaded_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    def statvfs(folder: str) -> Any:
        assert Path(folder).parent == tmp_path
        return SimpleNamespace(f_flag=flags)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "statvfs", statvfs)
    source = SOURCE + "\nint nobody_has(void);\nint f(void) { return nobody_has(); }\n"
    with pytest.raises(LinkError, match="nobody_has") as caught:
        relaxvm.load_library(compiled(source=source))
    hint = f"{tmp_path}, which is mounted with noexec: set TMPDIR to a directory that permits it"
    assert (hint in str(caught.value)) == (flags != 0)


def test_other_machines(path: Path, tmp_path: Path) -> None:
    data = bytearray(path.read_bytes())
    other = {"x86_64": 183}.get(platform.machine(), 62)
    data[18:20] = other.to_bytes(2, "little")
    changed = tmp_path / "other.so"
    changed.write_bytes(data)
    assert relaxvm.load(changed) == program()
    with pytest.raises(LinkError, match=r"its code is for \w+, this machine is"):
        relaxvm.load_library(changed)


def test_mutants_of_the_file(path: Path) -> None:
    """Reading any file succeeds or raises one of our errors."""
    data = path.read_bytes()
    elf = LibraryImage(data, "it").elf
    start = elf.offset_of(elf.symbols[LIBRARY_BIN].address)
    rng = np.random.default_rng(7)
    end_of_file = len(data) - 64 * 40
    read = 0
    for k in range(600):
        mutant = bytearray(data)
        low, high = ((0, 2000), (start, start + 200), (end_of_file, len(data)))[k % 3]
        for at in rng.integers(low, high, 2):
            mutant[at] = rng.integers(256)
        try:
            relaxvm.load(bytes(mutant))
            read += 1
        except relaxvm.errors.RelaxVMError:
            continue
    assert 0 < read < 600


@pytest.mark.parametrize("end", [4, 20, 64, 500, 4000, -2000, -1])
def test_truncated(path: Path, end: int) -> None:
    with pytest.raises(FormatError, match="bad shared library: "):
        relaxvm.load(path.read_bytes()[:end])


def test_elf_files_of_other_kinds(path: Path) -> None:
    data = path.read_bytes()
    for at, value, message in [(4, 1, "64 bits"), (5, 2, "little endian"), (16, 2, "of type 2")]:
        mutant = bytearray(data)
        mutant[at] = value
        with pytest.raises(FormatError, match=message):
            ElfFile(bytes(mutant), "it")


def sections(data: bytes) -> tuple[int, int]:
    """Return the position and number of the section headers."""
    (start,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    return start, count


@pytest.mark.parametrize(
    ("kind", "message"),
    [(11, "one section of dynamic symbols"), (6, "one section of dynamic entries")],
)
def test_there_is_one_section_of_a_kind(path: Path, kind: int, message: str) -> None:
    """Otherwise a file with many sections would take long to read."""
    mutant = bytearray(path.read_bytes())
    start, count = sections(mutant)
    for i in range(1, count):
        struct.pack_into("<I", mutant, start + 64 * i + 4, kind)
    with pytest.raises(FormatError, match=message):
        relaxvm.load(bytes(mutant))


def test_names_that_overlap_in_the_file() -> None:
    """Reading a file takes at most a few times its size in memory."""
    table = bytes(24) + struct.pack("<IBBHQQ", 1, 0, 0, 0, 0, 0) * 500
    strings = b"\0" + b"x" * 4000 + b"\0"
    places = 64 + 3 * 64, 64 + 3 * 64 + len(table)
    rows = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 11, 0, 0, places[0], len(table), 2, 0, 8, 24),
        (0, 3, 0, 0, places[1], len(strings), 0, 0, 1, 0),
    ]
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0,
                         64, 3, 0)  # fmt: skip
    data = header + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows) + table + strings
    with pytest.raises(FormatError, match="its strings are longer than the file"):
        relaxvm.load(data)


def test_an_import_tree_that_is_an_undefined_symbol(path: Path) -> None:
    mutant = bytearray(path.read_bytes())
    entry = ElfFile(bytes(mutant)).symbols[LIBRARY_BIN].entry
    struct.pack_into("<H", mutant, entry + 6, 0)
    with pytest.raises(LinkError, match="expected a library with a program"):
        relaxvm.load(bytes(mutant))


# The runtime functions of kernels


def test_workspaces(kernels: Any) -> None:
    for n in (0, 1, 1000, 1 << 20, 7, 1 << 20):
        x, out = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        kernels["double"](x, out)
        assert np.array_equal(out, x + x)
    with pytest.raises(MemoryError, match="no memory for a workspace of 4611686018427387904 bytes"):
        kernels["hungry"](1 << 62)
    with pytest.raises(MemoryError, match="of 18446744073709551615 bytes"):
        kernels["hungry"](-1)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_parallel_loops(kernels: Any, threads: Any, count: int) -> None:
    threads(count)
    assert relaxvm.get_num_threads() == count
    for n in (0, 1, 2, 1000):
        for tasks in (0, 1, 2, 20):
            out = np.zeros(n, np.int64)
            kernels["squares"](out, tasks, 0, -1)
            assert np.array_equal(out, np.arange(n) ** 2)
    out = np.zeros(100, np.int64)
    kernels["nested"](out)
    assert np.array_equal(out, np.arange(100) ** 2)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_barriers(kernels: Any, threads: Any, count: int) -> None:
    threads(count)
    for _ in range(20):
        kernels["squares"](np.zeros(10, np.int64), 0, 50, -1)
    with pytest.raises(RuntimeError, match="a barrier needs as many threads as there are tasks"):
        kernels["squares"](np.zeros(10, np.int64), 6, 1, -1)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_task_that_fails(kernels: Any, threads: Any, failing: int) -> None:
    threads(2)
    for _ in range(20):
        with pytest.raises(IndexError, match=r"^this task fails in fill"):
            kernels["squares"](np.zeros(10, np.int64), 2, 0, failing)
    kernels["squares"](np.zeros(10, np.int64), 2, 0, -1)


@pytest.mark.parametrize("failing", [0, 3])
def test_others_do_not_wait_for_a_task_that_fails(kernels: Any, threads: Any, failing: int) -> None:
    threads(4)
    for _ in range(20):
        with pytest.raises(IndexError, match=r"^this task fails in fill"):
            kernels["squares"](np.zeros(10, np.int64), 4, 3, failing)
    kernels["squares"](np.zeros(10, np.int64), 4, 3, -1)


def test_loops_with_barriers_run_one_at_a_time(path: Path) -> None:
    """With barriers, n tasks need n threads at the same time, even if other loops run."""
    code = f"""
import threading, numpy as np, relaxvm
relaxvm.set_num_threads(3)
kernels = relaxvm.load_library({str(path)!r}).kernels
failures = []
def work():
    try:
        for _ in range(30):
            kernels["squares"](np.zeros(1 << 17, np.int64), 3, 3, -1)
    except RuntimeError as error:
        failures.append(error)
workers = [threading.Thread(target=work) for _ in range(4)]
[worker.start() for worker in workers]
[worker.join() for worker in workers]
assert not failures, failures[0]
"""
    children.run([sys.executable, "-c", code], check=True)


def test_many_threads_of_python(kernels: Any, threads: Any) -> None:
    threads(4)
    failures: list[Any] = []

    def work(seed: int) -> None:
        n = 100 + seed
        for _ in range(200):
            out = np.zeros(n, np.int64)
            kernels["squares"](out, 0, 3, -1)
            x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
            kernels["double"](x, y)
            if not (np.array_equal(out, np.arange(n) ** 2) and np.array_equal(y, x + x)):
                failures.append(seed)

    run_in_threads(work, 8)
    assert not failures


def test_a_child_process_has_threads_of_its_own(path: Path) -> None:
    code = f"""
import os, numpy as np, relaxvm
relaxvm.set_num_threads(3)
kernels = relaxvm.load_library({str(path)!r}).kernels
kernels["squares"](np.zeros(10, np.int64), 0, 2, -1)
child = os.fork()
out = np.zeros(50, np.int64)
kernels["squares"](out, 0, 2, -1)
assert out[-1] == 49 ** 2
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    children.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_the_number_of_threads() -> None:
    for wrong in (0, -1, 257, 2.0, "2", True):
        with pytest.raises(ValueError, match="expected an int from 1 to 256"):
            relaxvm.set_num_threads(wrong)  # type: ignore[arg-type]
    ask = "import relaxvm; print(relaxvm.get_num_threads())"
    for setting, answer in (("3", "3"), ("", str(len(os.sched_getaffinity(0))))):
        env = {**os.environ, "RELAXVM_NUM_THREADS": setting}
        run = children.run(
            [sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True
        )
        assert run.stdout.strip() == answer
    env["RELAXVM_NUM_THREADS"] = "many"
    run = children.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True)
    assert "RELAXVM_NUM_THREADS: expected a number from 1 to 256, got 'many'" in run.stderr


# Functions that kernels call by name


@pytest.fixture
def callee() -> Iterator[list[Any]]:
    """The function ``test.callee``: the arguments of its calls, and its results, last in first
    out."""
    log: list[Any] = [[], []]

    @relaxvm.register_func("test.callee", override=True)
    def function(*args: Any) -> Any:
        log[0].append(tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args))
        if args and isinstance(args[0], np.ndarray) and args[0].size:
            args[0][...] = 1
        result = log[1].pop() if log[1] else None
        if isinstance(result, Exception):
            raise result
        return result

    yield log
    relaxvm.registry.GLOBAL.remove("test.callee")


def test_functions_by_name(path: Path, callee: list[Any]) -> None:
    calls = relaxvm.load_library(path).kernels["calls"]
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    callee[1].extend([2.5, True, 7, None])
    assert [calls(), calls(1, 2.5, False, None), calls("text", b"by\0tes"), calls(x)] == [
        None, 7, True, 2.5,
    ]  # fmt: skip
    (none, numbers, texts, (array,)) = callee[0]
    assert (none, numbers, texts) == ((), (1, 2.5, False, None), ("text", b"by\0tes"))
    assert array.dtype == x.dtype
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (x == 1).all()  # written through
    callee[1].append([])
    with pytest.raises(TypeError, match="a function that a kernel calls returned"):
        calls()
    callee[1].append(KeyError("lost"))
    with pytest.raises(KeyError, match="lost") as caught:
        calls()
    assert "in native function calls" in caught.value.__notes__


@pytest.mark.parametrize("error", [KeyError("lost"), None])
def test_a_failure_that_a_kernel_ignores(
    error: Exception | None, path: Path, callee: list[Any]
) -> None:
    ignores = relaxvm.load_library(path).kernels["ignores"]
    b = ExecBuilder()
    with b.function("main", num_inputs=1):
        b.emit_call("ignores", [b.r(0)], dst=b.r(1))
        b.emit_ret(b.r(1))
    vm = VirtualMachine(b.get(), functions={"ignores": ignores})
    note = "in native function ignores, which returned as if nothing had failed"
    for call in (ignores, vm["main"]):
        callee[1].append(error or [])
        with pytest.raises(KeyError if error else TypeError) as caught:
            call(1)
        assert caught.value.__notes__[0] == note
        assert len(callee[0]) == 1  # while an exception is set, Python is not called again
        callee[1].extend([3, 2])
        assert call(1) == 3
        assert len(callee[0]) == 3
        callee[0].clear()


def test_missing_functions_of_kernels(path: Path) -> None:
    calls = relaxvm.load_library(path).kernels["calls"]
    for _ in range(2):
        with pytest.raises(LinkError, match=r"calls 'test.callee', which relaxvm does not have"):
            calls()


def test_no_python_in_parallel_loops(path: Path, callee: list[Any], threads: Any) -> None:
    kernels = relaxvm.load_library(path).kernels
    for count in (1, 2):
        threads(count)
        with pytest.raises(RuntimeError, match="a parallel loop calls"):
            kernels["calls_in_parallel"](1)
    kernels["calls"]()
    with pytest.raises(RuntimeError, match="a parallel loop calls a function"):
        kernels["calls_in_parallel"](1)


DTYPES = ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "float16"]


@pytest.fixture(params=["C", "Python"])
def sorting(request: Any, kernels: Any) -> Any:
    """Functions that sort, called by a kernel or directly; C handles most data types."""
    if request.param == "Python":
        return packed.PACKED
    by_name = kernels["by_name"]
    return {name: functools.partial(by_name, name) for name in packed.PACKED}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorting(sorting: Any, dtype: str, ascending: bool, axis: int) -> None:
    sort, argsort, topk = (sorting[f"tvm.contrib.sort.{f}"] for f in ("sort", "argsort", "topk"))
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, (6, 7)).astype(dtype)
    order = np.empty(x.shape, np.int32)
    argsort(x, order, axis, ascending)
    lines = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    for line, places in zip(lines, np.moveaxis(order, axis, -1).reshape(lines.shape), strict=True):
        sign = 1 if ascending else -1
        wanted = sorted(range(len(line)), key=lambda i, line=line: (sign * float(line[i]), i))
        assert places.tolist() == wanted
    out = np.empty_like(x)
    sort(x, out, axis, ascending)
    assert np.array_equal(out, np.take_along_axis(x, order.astype(int), axis))
    for k in (0, 1, 3, 99):
        size = x.shape[axis] if k in (0, 99) else k
        shape = list(x.shape)
        shape[axis] = size
        values, places = np.empty(shape, dtype), np.empty(shape, np.int64)
        topk(x, values, places, k, axis, "both", ascending)
        first = np.take(order, np.arange(size), axis)
        assert np.array_equal(places, first)
        assert np.array_equal(values, np.take_along_axis(x, first.astype(int), axis))
        only = np.empty(shape, np.int32)
        topk(x, only, k, axis, "indices", ascending)
        assert np.array_equal(only, first)


def test_sorting_many_and_odd_values(sorting: Any) -> None:
    """Long rows are merged; NaN is the largest; rows and outputs may be empty."""
    argsort = sorting["tvm.contrib.sort.argsort"]
    rng = np.random.default_rng(1)
    for n in (0, 1, 15, 16, 17, 31, 33, 64, 100, 1000):
        x = rng.integers(0, max(1, n // 3), (3, n)).astype(np.float32)
        x[:, ::7] = np.nan
        x[:, 1::11] = -np.inf
        out = np.empty(x.shape, np.int64)
        argsort(x, out, 1, True)
        assert np.array_equal(out, np.argsort(x, axis=1, kind="stable"))
        argsort(x, out, 1, False)
        backwards = np.argsort(x[:, ::-1], axis=1, kind="stable")
        assert np.array_equal(out, (n - 1 - backwards)[:, ::-1])
    with pytest.raises(ValueError, match=r"axis|broadcast"):
        argsort(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32), 5, True)


def test_a_registered_function_comes_first(path: Path) -> None:
    name = "tvm.contrib.sort.sort"

    @relaxvm.register_func(name)
    def mine(x: Any, out: Any, axis: int, ascending: bool) -> None:
        out[...] = 7

    try:
        out = np.zeros(3, np.float32)
        relaxvm.load_library(path).kernels["by_name"](name, np.zeros(3, np.float32), out, 0, True)
        assert out.tolist() == [7, 7, 7]
    finally:
        relaxvm.registry.GLOBAL.remove(name)


@pytest.mark.parametrize("shape", [(1, 1 << 23), (1 << 13, 1 << 10)], ids=["a line", "lines"])
def test_sorting_ends_with_the_time(sorting: Any, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).random(shape, np.float32)
    out = np.empty(shape, np.int32)
    b = ExecBuilder()
    with b.function("main"):
        b.emit_call("sort", [], dst=b.r(0))
        b.emit_ret(b.r(0))
    functions = {"sort": lambda: sorting["tvm.contrib.sort.argsort"](x, out, 1, True)}
    vm = VirtualMachine(b.get(), limits=Limits(wall_time=0.1), functions=functions)
    before = time.process_time()
    with pytest.raises(LimitError, match="wall_time"):
        vm.main()
    stopped = time.process_time() - before
    VirtualMachine(b.get(), functions=functions).main()
    assert stopped < (time.process_time() - before - stopped) / 2
    assert np.array_equal(out[-1], np.argsort(x[-1], kind="stable"))


def test_sorting_the_first_elements() -> None:
    x = np.array([[3, 1, 2, 9], [5, 8, 6, 7]], np.float32)
    out = np.empty(x.shape, np.int32)
    packed.argsort_nms(x, np.array([3, 0], np.int32), out, 1, False)
    assert out.tolist() == [[0, 2, 1, 3], [0, 1, 2, 3]]


# The command line


def test_inspect(path: Path) -> None:
    shown = run_cli("inspect", str(path))
    assert f"a shared library for {platform.machine()}, modules relax.VMExecutable, _lib" in shown
    assert "TVMBackendParallelLaunch" in shown
    assert "double  1 call  in this file, for --native" in shown
    assert "WHY IT CANNOT RUN HERE" not in shown
    library = json.loads(run_cli("inspect", "--json", str(path)))["library"]
    assert {"double", "squares", "calls"} <= set(library["kernels"])
    assert library["refused"] == []
    refused = compiled(tree(("relax.VMExecutable", program().to_bytes()), ("cuda", b""),
                            ("_lib", None), imports=(1, 2)))  # fmt: skip
    shown = run_cli("inspect", str(refused))
    assert "functions of TVM's runtime that it calls (" in shown
    assert "WHY IT CANNOT RUN HERE (1):\n  it has a module of kind 'cuda'" in shown


def test_run(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=X, out=np.zeros(5, np.float32))
    given = ["--input", str(tmp_path / "in.npz"), "--output", str(tmp_path / "out.npy")]
    run_cli("run", str(path), "--native", *given)
    assert np.load(tmp_path / "out.npy").tolist() == (2 * X).tolist()
    with pytest.raises(children.CalledProcessError) as caught:
        run_cli("run", str(path), *given)
    assert "--native loads those in the file" in caught.value.stderr


# Kernels of relaxvm/kernel.h in a library of TVM

BY_HEADER = r"""
#include <relaxvm/kernel.h>
RVM_KERNEL(double) { return rvm_error("ValueError", "no good"); }
RVM_KERNEL(hosted) { return rvm_return_bool(ret, relaxvm_host != NULL && !rvm_interrupted()); }
"""


def test_kernels_by_the_header() -> None:
    ex = relaxvm.load_library(compiled(source=BY_HEADER))
    assert ex.kernels["hosted"]() is True
    with pytest.raises(ValueError, match="no good") as caught:
        VirtualMachine(ex)["main"](X, np.zeros(5, np.float32))
    assert caught.value.__notes__[0] == "in native function double"


# Constants of code from external compilers

SCALED = SOURCE + r"""
typedef struct { RvmObject object; const RvmAny *items; int64_t size; } Array;
static float factors[2];

KERNEL(__init_scaled) {
  (void)self;
  if (count != 1 || args[0].type != 71)
    return fail("TypeError", "expected an array", "__init_scaled");
  const Array *array = (const Array *)args[0].as_object;
  if (array->size != 2) return fail("ValueError", "expected two constants", "__init_scaled");
  for (int i = 0; i < 2; i++) {
    const RvmTensor *x = &((const RvmTensorObject *)array->items[i].as_object)->tensor;
    if (((uintptr_t)x->data & 63) || x->ndim != 1 || x->dtype.bits != 32) return -1;
    factors[i] = ((const float *)x->data)[x->shape[0] - 1];
  }
  ret->type = RVM_INT;
  ret->as_int = 0;
  return 0;
}

KERNEL(scaled) {
  (void)self, (void)ret, (void)count;
  const RvmTensor *x = args[0].as_tensor;
  for (int64_t i = 0; i < x->shape[0]; i++)
    ((float *)args[1].as_tensor->data)[i] = ((const float *)x->data)[i] * factors[0] + factors[1];
  return 0;
}
"""


def constants_of(constants: dict[str, Any], functions: dict[str, list[str]]) -> bytes:
    """The content of a module ``const_loader``."""
    count = struct.Struct("<Q").pack
    parts = [count(len(constants)), *(string(name.encode()) for name in constants)]
    parts.append(count(len(constants)))
    for values in constants.values():
        array = np.asarray(values, np.float32)
        parts.append(struct.pack("<QQiiiBBH", 0xDD5E40F096B4A13F, 0, 1, 0, 1, 2, 32, 1))
        parts.append(struct.pack("<qq", len(array), array.nbytes) + array.tobytes())
    parts += [count(len(functions)), *(string(name.encode()) for name in functions)]
    parts.append(count(len(functions)))
    for names in functions.values():
        parts += [count(len(names)), *(string(name.encode()) for name in names)]
    return b"".join(parts)


def scaled_by(content: bytes) -> Path:
    b = ExecBuilder()
    with b.function("main", num_inputs=2):
        b.emit_call("scaled", [b.r(0), b.r(1)])
        b.emit_ret(b.r(1))
    blob = tree(
        ("relax.VMExecutable", b.get().to_bytes()),
        ("const_loader", constants_of({}, {"scaled": []})),
        ("const_loader", content),
        ("_lib", None),
        imports=(1, 2, 3),
    )
    return compiled(blob, source=SCALED)


def test_constants_of_a_const_loader() -> None:
    constants = {"a": [1, 2, 3], "b": [10]}
    for order in (["a", "b"], ["b", "a"]):
        ex = relaxvm.load_library(scaled_by(constants_of(constants, {"scaled": order})))
        assert "__init_scaled" not in ex.kernels
        first, second = (constants[name][-1] for name in order)
        out = VirtualMachine(ex)["main"](X, np.zeros(5, np.float32))
        assert out.tolist() == (X * first + second).tolist()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (constants_of({"a": [1]}, {"scaled": ["a"]}), ValueError, "expected two constants"),
        (constants_of({"a": [1]}, {"scaled": ["z"]}), FormatError, "constant 'z' does not exist"),
        (constants_of({"a": [1]}, {"scaled": ["a"]})[:-1], FormatError, "truncated"),
        (constants_of({}, {"scaled": []}) + b"!", FormatError, "1 bytes follow its end"),
    ],
)
def test_wrong_constants(content: bytes, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        relaxvm.load_library(scaled_by(content))
