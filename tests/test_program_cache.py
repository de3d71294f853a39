"""The cache of compiled programs: what is found, what is not, and what others can do to it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import VirtualMachine
from relaxvm.cli import main as command
from relaxvm.compiler import build
from relaxvm.errors import RelaxVMError, RelaxVMWarning
from relaxvm.transform import PassContext
from relaxvm.vm import program_cache
from relaxvm.vm.program_cache import cache_limit, entries, programs_path

from . import children
from .onnxruntime_cases import GOLDEN, models_of

MODELS = models_of(json.loads(GOLDEN.read_text(encoding="utf-8")))
FEED = {"x": np.ones((2, 3), "f4"), "m": np.ones((3, 2), "f4")}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RELAXVM_CACHE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was compiled, rather than found."""
    made: list[Any] = []
    for name in ("compile", "compile_file"):
        real = getattr(build, name)

        def spy(program: Any, *args: Any, _real: Any = real, **kwargs: Any) -> Any:
            made.append(program)
            return _real(program, *args, **kwargs)

        monkeypatch.setattr(build, name, spy)
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "affine.onnx"
    path.write_bytes(MODELS["affine"])
    return path


def result(executable: Any) -> Any:
    return VirtualMachine(executable).main(**FEED)[0]


def test_the_second_time_it_is_found(model: Path, compiled: list[Any]) -> None:
    first = relaxvm.compile(model)
    second = relaxvm.compile(model)
    assert compiled == [model]
    assert first == second
    assert first.model == second.model
    assert first.debug == second.debug
    np.testing.assert_array_equal(result(first), result(second))
    VirtualMachine(str(model)).main(**FEED)
    assert compiled == [model]


def test_constants_are_mapped_and_aligned(model: Path) -> None:
    relaxvm.compile(model)
    arrays = [c for c in relaxvm.compile(model).constants if isinstance(c, np.ndarray)]
    assert arrays
    for array in arrays:
        assert array.ctypes.data % 64 == 0
        assert not array.flags.writeable
        assert not array.flags.owndata


def test_bytes_are_found_too(compiled: list[Any]) -> None:
    data = MODELS["affine"]
    relaxvm.compile(data)
    relaxvm.compile(bytearray(data))
    relaxvm.compile(memoryview(data))
    assert len(compiled) == 1


def test_what_makes_a_difference(model: Path, tmp_path: Path, compiled: list[Any]) -> None:
    relaxvm.compile(model)
    for options in (
        {"shape_dict": {"x": [2, 3]}}, {"shape_dict": {"x": ["k", 3]}}, {"exec_mode": "compiled"},
        {"constants_as_inputs": ["w"]}, {"params": {}}, {"relax_pipeline": "default_build"},
    ):  # fmt: skip
        before = len(compiled)
        relaxvm.compile(model, **options)  # type: ignore[arg-type]
        assert len(compiled) == before + 1, options
        relaxvm.compile(model, **options)  # type: ignore[arg-type]
        assert len(compiled) == before + 1, options
    other = tmp_path / "other.onnx"
    other.write_bytes(MODELS["affine"].replace(b"the graph", b"a graph.."))
    before = len(compiled)
    relaxvm.compile(other)
    assert len(compiled) == before + 1


def test_a_changed_file_is_compiled_again(model: Path, compiled: list[Any]) -> None:
    relaxvm.compile(model)
    status = model.stat()
    model.write_bytes(MODELS["affine"].replace(b"the graph", b"a graph.."))
    os.utime(model, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert relaxvm.compile(model).model.graph == "a graph.."  # type: ignore[union-attr]
    assert len(compiled) == 2


@pytest.mark.parametrize("what", ["version", "processor"])
def test_another_version_or_processor(
    model: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    relaxvm.compile(model)
    if what == "version":
        monkeypatch.setattr(relaxvm, "__version__", "0.0.0")
    else:
        from relaxvm.kernels import cpu

        monkeypatch.setattr(cpu, "CPU", "another")
    relaxvm.compile(model)
    assert len(compiled) == 2


def test_what_is_not_kept(model: Path, own_cache: Path, compiled: list[Any]) -> None:
    relaxvm.compile(model, cache=False)
    assert not own_cache.exists()

    def twice(g: Any, x: Any) -> Any:
        return g.op("add", x, x)

    relaxvm.compile(model, operators={("", "Identity"): twice})
    with PassContext(opt_level=0):
        relaxvm.compile(model)
    assert len(compiled) == 3
    assert not entries()


def test_the_variable_turns_it_off(
    model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_CACHE", "off")
    relaxvm.compile(model)
    assert not own_cache.exists()


def test_scripts_and_modules_are_not_kept(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(
        "from relaxvm.script import ir as I, relax as R\n"
        "@I.ir_module\nclass Module:\n    @R.function\n"
        "    def main(x: R.Tensor((2,), 'float32')) -> R.Tensor((2,), 'float32'):\n"
        "        return R.add(x, x)\n"
    )
    relaxvm.compile(str(script))
    assert not entries()


def test_errors_are_those_of_the_compiler(model: Path, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            relaxvm.compile(tmp_path / "absent.onnx")
        with pytest.raises(TypeError, match=r"unexpected argument .no_such_option"):
            relaxvm.compile(model, no_such_option=1)
        bad = tmp_path / "bad.onnx"
        bad.write_bytes(b"hello")
        with pytest.raises(RelaxVMError, match="expected an ONNX model"):
            relaxvm.compile(bad)
    assert not entries()


def test_tensors_in_other_files(tmp_path: Path, compiled: list[Any]) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path, weights = folder / "m.onnx", folder / "w.bin"
    path.write_bytes(model_with_file())
    weights.write_bytes(np.arange(3, dtype="<f4").tobytes())

    def run() -> Any:
        return VirtualMachine(relaxvm.compile(path)).main(np.zeros(3, "f4"))

    for _ in range(2):
        np.testing.assert_array_equal(run(), [0, 1, 2])
    assert len(compiled) == 1
    weights.write_bytes(np.full(3, 7, "<f4").tobytes())
    for _ in range(2):
        np.testing.assert_array_equal(run(), [7, 7, 7])
    assert len(compiled) == 2
    weights.write_bytes(np.arange(3, dtype="<f4").tobytes())
    np.testing.assert_array_equal(run(), [0, 1, 2])
    assert len(compiled) == 2  # the first one is still there
    weights.unlink()
    with pytest.raises(FileNotFoundError):
        run()
    (folder / "real.bin").write_bytes(np.arange(3, dtype="<f4").tobytes())
    weights.symlink_to(folder / "real.bin")
    with pytest.raises(RelaxVMError, match="symbolic link"):
        run()


def test_tensors_that_change_while_they_are_compiled(
    tmp_path: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, weights = tmp_path / "m.onnx", tmp_path / "w.bin"
    path.write_bytes(model_with_file())
    weights.write_bytes(np.arange(3, dtype="<f4").tobytes())
    compile_now = program_cache.hook("compile")

    def and_write(*args: Any, **options: Any) -> Any:
        made = compile_now(*args, **options)
        time.sleep(0.05)  # more than a tick of the clock of files
        weights.write_bytes(np.full(3, 7, "<f4").tobytes())
        return made

    with monkeypatch.context() as patch:
        real = program_cache.hook
        patch.setattr(
            program_cache, "hook", lambda name: and_write if name == "compile" else real(name)
        )
        relaxvm.compile(path)
    assert not entries()
    result = VirtualMachine(relaxvm.compile(path)).main(np.zeros(3, "f4"))
    np.testing.assert_array_equal(result, [7, 7, 7])
    assert len(compiled) == 2


def model_with_file() -> bytes:
    """A model that adds three elements of the file w.bin."""

    def field(number: int, content: bytes | str | int) -> bytes:
        if isinstance(content, int):
            return bytes([number << 3, content])
        data = content.encode() if isinstance(content, str) else content
        return bytes([number << 3 | 2, len(data)]) + data

    shape = field(1, field(1, 1) + field(2, field(1, field(1, 3))))
    tensor = (
        field(1, 3) + field(2, 1) + field(8, "w")
        + field(13, field(1, "location") + field(2, "w.bin")) + bytes([14 << 3, 1])
    )  # fmt: skip
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "Add")
    graph = (
        field(1, node) + field(2, "g") + field(5, tensor)
        + field(11, field(1, "x") + field(2, shape)) + field(12, field(1, "y") + field(2, shape))
    )  # fmt: skip
    return field(1, 8) + field(7, graph) + field(8, field(2, 17))


# What others do to it


def the_entry() -> Path:
    (entry,) = entries()
    return entry.path


def damage(name: str, entry: Path, elsewhere: Path) -> None:
    program = entry / "program.rvm"
    data = program.read_bytes()
    if name == "a flipped bit":
        program.write_bytes(data[:-5] + bytes([data[-5] ^ 1]) + data[-4:])
    elif name == "truncated":
        program.write_bytes(data[: len(data) // 2])
    elif name == "empty":
        program.write_bytes(b"")
    elif name == "no checksum":
        (entry / "sha256").unlink()
    elif name == "another checksum":
        (entry / "sha256").write_text("0" * 64)
    elif name == "not what it says":
        import hashlib

        program.write_bytes(b"something else")
        (entry / "sha256").write_text(hashlib.sha256(b"something else").hexdigest())
    elif name == "a link":
        elsewhere.mkdir()
        (elsewhere / "program.rvm").write_bytes(data)
        program.unlink()
        program.symlink_to(elsewhere / "program.rvm")
    elif name == "a directory":
        program.unlink()
        program.mkdir()
    elif name == "a pipe":
        program.unlink()
        os.mkfifo(program)
    elif name == "others can write":
        entry.chmod(0o777)
    elif name == "the entry is a link":
        entry.rename(elsewhere)
        entry.symlink_to(elsewhere)
    elif name == "the entry is a file":
        entry.rename(elsewhere)
        entry.write_bytes(b"")


DAMAGES = [
    "a flipped bit", "truncated", "empty", "no checksum", "another checksum", "not what it says",
    "a link", "a directory", "a pipe", "others can write", "the entry is a link",
    "the entry is a file",
]  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_broken_entry_is_replaced(
    name: str, model: Path, tmp_path: Path, compiled: list[Any]
) -> None:
    expected = result(relaxvm.compile(model))
    damage(name, the_entry(), tmp_path / "elsewhere")
    np.testing.assert_array_equal(result(relaxvm.compile(model)), expected)
    assert len(compiled) == 2, "the broken entry was used"
    np.testing.assert_array_equal(result(relaxvm.compile(model)), expected)
    assert len(compiled) == 2, "the broken entry was not replaced"
    assert not the_entry().is_symlink()


def test_a_directory_that_others_can_write_to(model: Path, own_cache: Path) -> None:
    relaxvm.compile(model)
    for path in (own_cache, own_cache / "programs"):
        path.chmod(0o777)
        with pytest.warns(RelaxVMWarning, match="are not kept: .*(others can|this user alone)"):
            result(relaxvm.compile(model))
        path.chmod(0o700)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result(relaxvm.compile(model))


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs another user")
def test_a_directory_of_another_user(model: Path, own_cache: Path) -> None:
    (own_cache / "programs").mkdir(parents=True, mode=0o700)
    os.chown(own_cache, 12345, -1)
    try:
        with pytest.warns(RelaxVMWarning, match="user 12345"):
            result(relaxvm.compile(model))
    finally:
        os.chown(own_cache, os.geteuid(), -1)


def test_a_directory_that_is_a_link(model: Path, own_cache: Path, tmp_path: Path) -> None:
    own_cache.mkdir(mode=0o700)
    (tmp_path / "target").mkdir(mode=0o700)
    (own_cache / "programs").symlink_to(tmp_path / "target")
    with pytest.warns(RelaxVMWarning, match="expected a directory that belongs to this user alone"):
        result(relaxvm.compile(model))
    assert not any((tmp_path / "target").iterdir())


def test_a_file_in_place_of_the_directory(model: Path, own_cache: Path) -> None:
    own_cache.write_bytes(b"")
    with pytest.warns(RelaxVMWarning, match="compiled programs are not kept"):
        result(relaxvm.compile(model))


@pytest.mark.parametrize("where", ["mkdtemp", "publish", "export"])
def test_a_full_disk(
    where: str, model: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if where == "mkdtemp":
            patch.setattr("tempfile.mkdtemp", full)
        elif where == "publish":
            patch.setattr(program_cache, "publish", full)
        else:
            patch.setattr(relaxvm.VMExecutable, "export_library", full)
        with pytest.warns(RelaxVMWarning, match=r"not kept in .*No space left"):
            result(relaxvm.compile(model))
    assert not entries()
    assert not [p for p in programs_path().iterdir() if p.name.startswith(".new-")]
    relaxvm.compile(model)
    assert len(entries()) == 1


def test_an_interrupted_compilation_leaves_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(program_cache, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            relaxvm.compile(model)
    assert not entries()
    relaxvm.compile(model)
    assert len(entries()) == 1


PROCESS = """
import sys
import numpy as np
from relaxvm import VirtualMachine
for path in sys.argv[1:]:
    vm = VirtualMachine(path)
    got = vm.main(x=np.ones((2, 3), "f4"), m=np.ones((3, 2), "f4"))[0]
    assert (got == 9).all(), got
print("relaxvm.compiler.build" in sys.modules, "relaxvm.ir" in sys.modules)
"""


def child(*paths: Path) -> AbstractContextManager[children.Popen[str]]:
    command = [sys.executable, "-c", PROCESS, *map(str, paths)]
    return children.start(command, stdout=children.PIPE, text=True)


def test_processes_at_once_and_one_after_them(tmp_path: Path) -> None:
    paths = []
    for i in range(3):
        paths.append(tmp_path / f"m{i}.onnx")
        paths[-1].write_bytes(MODELS["affine"])
    with child(*paths) as one, child(*paths[::-1]) as two, child(*paths) as three:
        for process in (one, two, three):
            process.communicate(timeout=300)
            assert process.returncode == 0
    assert len(entries()) == 3
    assert not [p for p in programs_path().iterdir() if p.name.startswith((".new", ".old"))]
    with child(*paths) as last:
        said, _ = last.communicate(timeout=300)
    assert said.split() == ["False", "False"], "the compiler was imported"


def test_a_process_waits_for_another_that_compiles(
    model: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = build.compile

    def slow(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.3)
        return real(*args, **kwargs)

    monkeypatch.setattr(build, "compile", slow)
    threads = [threading.Thread(target=relaxvm.compile, args=(model,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compiled) == 1


# The bound


def test_the_oldest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for i in range(4):
        paths.append(tmp_path / f"m{i}.onnx")
        paths[-1].write_bytes(MODELS["affine"])
        relaxvm.compile(paths[-1])
        os.utime(entries()[0].path, (i, i))
        for entry in entries():
            if entry.used > 1e6:
                os.utime(entry.path, (i, i))
    size = entries()[0].nbytes
    relaxvm.compile(paths[0])  # the oldest one is used
    monkeypatch.setenv("RELAXVM_CACHE_SIZE", str(3 * size + size // 2))
    last = tmp_path / "last.onnx"
    last.write_bytes(MODELS["affine"])
    relaxvm.compile(last)
    left = entries()
    assert len(left) == 3
    assert sum(entry.nbytes for entry in left) <= 3 * size + size // 2


def test_a_program_above_the_bound_is_not_kept(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_SIZE", "100")
    result(relaxvm.compile(model))
    assert not entries()


def test_files_of_a_program_above_the_bound_are_not_read_for_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model_with_file())
    (tmp_path / "w.bin").write_bytes(np.arange(3, dtype="<f4").tobytes())
    monkeypatch.setenv("RELAXVM_CACHE_SIZE", "11")  # less than the elements alone
    digests: list[Any] = []
    real = program_cache._digest_of_file
    monkeypatch.setattr(
        program_cache, "_digest_of_file", lambda each: digests.append(each) or real(each)
    )
    for _ in range(2):
        vm = VirtualMachine(relaxvm.compile(path))
        np.testing.assert_array_equal(vm.main(np.zeros(3, "f4")), [0, 1, 2])
    assert not [each for each in digests if str(each).endswith("w.bin")]
    monkeypatch.delenv("RELAXVM_CACHE_SIZE")
    relaxvm.compile(path)
    assert [each for each in digests if str(each).endswith("w.bin")]


@pytest.mark.parametrize(
    ("text", "size"), [("", 2 << 30), ("5000", 5000), ("2k", 2048), ("3M", 3 << 20),
                       ("1GiB", 1 << 30), ("10 MB", None), ("-1", None), ("lots", None)],
)  # fmt: skip
def test_sizes(text: str, size: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_SIZE", text)
    if size is None:
        with pytest.raises(ValueError, match="RELAXVM_CACHE_SIZE: expected a number of bytes"):
            cache_limit()
    else:
        assert cache_limit() == size


def test_a_wrong_size_is_a_warning(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXVM_CACHE_SIZE", "lots")
    with pytest.warns(RelaxVMWarning, match="RELAXVM_CACHE_SIZE: expected a number"):
        result(relaxvm.compile(model))


# The command


def test_the_command_shows_and_clears(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    relaxvm.compile(model)
    assert command(["cache", "show"]) == 0
    shown = capsys.readouterr().out
    assert str(programs_path()) in shown
    assert "1 program" in shown
    assert command(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed_bytes"] > 0
    assert not entries()
    assert command(["cache", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["programs"] == []


# Starts


START = """
import sys
import numpy as np
import relaxvm
from relaxvm.vm import cache_index
cache_index._SETTLED = 0  # the index takes files that have just been written
vm = relaxvm.VirtualMachine(sys.argv[1])
result = vm.main(x=np.ones((2, 3), "f4"), m=np.ones((3, 2), "f4"))[0]
print(result.tolist(), *sorted(name for name in sys.modules if name.startswith("relaxvm.")))
"""


def test_a_cached_program_starts_without_the_compiler_and_the_kernels_in_python(
    model: Path,
) -> None:
    expected = result(relaxvm.compile(model))
    for _ in range(2):  # the first one verifies the file and enters it into the index
        done = children.run(
            [sys.executable, "-c", START, str(model)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    values, modules = done.stdout.rsplit("]", 1)
    assert json.loads(f"{values}]") == expected.tolist()
    units = {name.split(".")[1] for name in modules.split()}
    assert not units & {"compiler", "frontend", "ir", "op", "te", "tir", "transform"}
    kernels = {name for name in modules.split() if name.startswith("relaxvm.kernels.")}
    assert kernels <= {
        f"relaxvm.kernels.{name}"
        for name in ("_families", "_homes", "_table", "cpu", "implementations")
    }


DEFERRED = """
import sys
import numpy as np
import relaxvm
from relaxvm.registry import GLOBAL

def program(name, *constants):
    ib = relaxvm.ExecBuilder()
    with ib.function("main", 2):
        ib.emit_call(name, [ib.r(0), *constants, ib.r(1)])
        ib.emit_ret(ib.r(1))
    return ib.get()

from relaxvm.vm.linking import link, scope_of
def linked(name, functions=None):
    executable = program(name)
    found = link(executable, scope_of(functions))
    at = [info.name for info in executable.functions].index(name)
    return found.callables[at], found.quick[at]

def is_imported(module):
    return f"relaxvm.kernels.{module}" in sys.modules

# A ufunc, a kernel with an implementation in C, one without, and a builtin.
sqrt, quick = linked("relaxvm.kernel.sqrt")
assert quick is np.sqrt
softmax, quick = linked("relaxvm.kernel.nn.softmax")
assert quick is softmax, quick
shuffle, quick = linked("relaxvm.kernel.nn.pixel_shuffle")
assert quick is None
copy, quick = linked("vm.builtin.copy")
assert quick == "vm.builtin.copy"
assert linked("vm.builtin.copy", [])[1] == quick, "a harmless builtin"
assert linked("relaxvm.kernel.cast")[0].implementations == (
    linked("relaxvm.kernel.astype")[0].implementations)
assert not is_imported("elementwise") and not is_imported("nn")
assert not is_imported("_kernel")
x, out = np.array([4.0, 9.0], "f4"), np.empty(2, "f4")
softmax(np.zeros((1, 2), "f4"), 1, out.reshape(1, 2))
assert out.tolist() == [0.5, 0.5]
assert not is_imported("_kernel"), "computed in C"
sqrt(x, out)
assert out.tolist() == [2, 3] and is_imported("elementwise")
assert copy(x) is x

# Errors are those of the function; so are its attributes.
try:
    softmax(np.zeros(2, "f4"), 1, out)
except ValueError as error:
    assert str(error) == "nn.softmax: axis: expected an axis of float32[2], got 1", error
assert softmax.__name__ == "softmax", softmax.__name__
assert softmax.reference.__module__ == "relaxvm.kernels.nn"
assert GLOBAL.lookup("relaxvm.kernel.nn.softmax").func.reference is softmax.reference

# Who registers another function under a name later does not change what is linked.
linked_before, _ = linked("relaxvm.kernel.nn.relu")
builtin_before, _ = linked("vm.builtin.make_tuple")
later = []
relaxvm.register_func("relaxvm.kernel.nn.relu", lambda *a: later.append(a), override=True)
relaxvm.register_func("vm.builtin.make_tuple", lambda *a: later.append(a), override=True)
linked_before(np.array([-1.0, 2.0], "f4"), out)
assert out.tolist() == [0, 2] and builtin_before(1, 2) == (1, 2) and not later
after, quick = linked("relaxvm.kernel.nn.relu")
assert quick is None and after(x, out) is None and len(later) == 1
assert linked("vm.builtin.make_tuple")[1] is None
GLOBAL.remove("vm.builtin.make_tuple")
assert GLOBAL.callee("vm.builtin.make_tuple") is None
print("fine")
"""


def test_functions_that_are_looked_for_when_they_are_called() -> None:
    done = children.run(
        [sys.executable, "-c", DEFERRED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fine\n"
