"""Executables together with their kernels, in one file."""

from __future__ import annotations

import contextlib
import copy
import json
import pickle
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine, build
from relaxvm.contrib.tvm import shared_library
from relaxvm.errors import (
    FormatError,
    LimitError,
    LinkError,
    NoCompilerError,
    RelaxVMWarning,
    VerifyError,
)
from relaxvm.executable import StoredKernels
from relaxvm.executable.formats import binary
from relaxvm.ir import BlockBuilder, TensorType, Var
from relaxvm.native import export, stored, toolchain
from relaxvm.op import call_tir
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir.build import build_prim_funcs


@I.ir_module
class Program:
    @T.prim_func(private=True, s_tir=True)
    def double(x: T.handle, y: T.handle):
        n = T.int64()
        A = T.match_buffer(x, (n,), "float32")
        B = T.match_buffer(y, (n,), "float32")
        for i in range(n):
            with T.sblock("b"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Program.double, (x,), out_ty=R.Tensor((n,), "float32"))
        return R.add(y, R.const(1.0, "float32"))


X = np.arange(3, dtype=np.float32)
Y = X * 2 + 1
MODES = ("bytecode", "compiled")
FORMS = ("model.rvm", "model.so")
HAS_LIBRARIES = toolchain.compiler() is not None and bool(shared_library.SUFFIXES)
needs_libraries = pytest.mark.skipif(
    not HAS_LIBRARIES, reason="shared libraries are linked by a C compiler, on Linux"
)


@pytest.fixture(scope="module", params=MODES)
def executable(request: Any) -> relaxvm.VMExecutable:
    return build(Program, exec_mode=request.param)


@pytest.fixture
def plain(executable: Any, tmp_path: Path) -> Path:
    """The program in a file of the binary format."""
    path = tmp_path / FORMS[0]
    executable.export_library(path)
    return path


@pytest.fixture(params=[FORMS[0], pytest.param(FORMS[1], marks=needs_libraries)])
def path(executable: Any, tmp_path: Path, request: Any) -> Path:
    """The program in a file of either format."""
    path = tmp_path / str(request.param)
    executable.export_library(path)
    return path


def check(executable: Any) -> None:
    np.testing.assert_array_equal(VirtualMachine(executable)["main"](X), Y)


# Saving and loading


def test_a_file_is_self_contained(executable: Any, path: Path) -> None:
    loaded = relaxvm.load(path, native=True)
    assert loaded == executable
    assert loaded.debug == executable.debug
    check(loaded)
    check(relaxvm.load_library(path.read_bytes()))
    with path.open("rb") as file:
        check(relaxvm.load(file, native=True))
    check(relaxvm.load(path, native=True, mmap=True))


def test_the_file_may_be_deleted_after_loading(executable: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("lib.so" if HAS_LIBRARIES else "lib")
        executable.export_library(str(path))
        vm = VirtualMachine(relaxvm.load_library(path))
    np.testing.assert_array_equal(vm["main"](X), Y)


def test_loading_a_file_runs_nothing(path: Path, monkeypatch: Any) -> None:
    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("kernels were loaded")

    monkeypatch.setattr(stored, "load_stored", forbidden)
    loaded = relaxvm.load(path)
    assert isinstance(loaded.kernels, StoredKernels)
    assert loaded.kernels.names == {"double"}
    with pytest.raises(AssertionError, match="were loaded"):
        relaxvm.load(path, native=True)


def test_without_its_code_a_file_runs_by_its_ir(
    executable: Any, path: Path, monkeypatch: Any
) -> None:
    """As a file of `save`: also where its machine code cannot run, or must not."""
    monkeypatch.setattr(stored, "load_stored", None)
    for limits in (None, Limits.untrusted()):
        loaded = relaxvm.load(path, limits=limits)
        assert loaded.prim_funcs == executable.prim_funcs
        np.testing.assert_array_equal(VirtualMachine(loaded, limits=limits)["main"](X), Y)
        assert loaded.kernels.backends.keys() == {"double"}  # type: ignore[attr-defined]


def test_a_file_without_ir_needs_its_code(executable: Any, tmp_path: Path) -> None:
    """Such as older ones, and those with machine code only."""
    parts = export.parts_of(executable.kernels)
    binary.save(executable, tmp_path / "old", kernels=parts, prim_funcs=False)
    loaded = relaxvm.load(tmp_path / "old")
    assert not loaded.kernels
    assert loaded.kernels.backends == {}  # type: ignore[attr-defined]
    with pytest.raises(LinkError, match=r"native=True"):
        VirtualMachine(loaded)
    native = relaxvm.load(tmp_path / "old", native=True)
    np.testing.assert_array_equal(VirtualMachine(native)["main"](X), Y)


def test_the_ir_stays_when_the_code_is_loaded(executable: Any, path: Path, tmp_path: Path) -> None:
    native = relaxvm.load(path, native=True)
    assert native.prim_funcs == executable.prim_funcs
    native.save(tmp_path / "again")
    np.testing.assert_array_equal(VirtualMachine(relaxvm.load(tmp_path / "again"))["main"](X), Y)


def test_kernels_can_be_replaced(tmp_path: Path) -> None:
    build(Program).export_library(tmp_path / "m")
    functions = {"double": lambda x, y: np.multiply(x, 2, y)}
    vm = VirtualMachine(relaxvm.load(tmp_path / "m"), functions=functions)
    np.testing.assert_array_equal(vm["main"](X), Y)


def test_writing_again_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    for native in (False, True):
        again = tmp_path / f"{native}{path.suffix}"
        relaxvm.load(path, native=native).export_library(again)
        assert again.read_bytes() == path.read_bytes()


def test_the_stream_of_tvm_comes_first(executable: Any, plain: Path) -> None:
    assert plain.read_bytes().startswith(executable.to_bytes(kernels=False))
    assert relaxvm.loads(executable.to_bytes(kernels=False)) == executable


def test_without_debug_information_and_machine_code(executable: Any, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "m", debug=False, native=False)
    loaded = relaxvm.load(tmp_path / "m", native=True)
    assert loaded.debug is None
    assert not any(part.startswith("native/") for part in export.parts_of(
        relaxvm.load(tmp_path / "m").kernels))  # fmt: skip
    check(loaded)


def test_an_executable_without_kernels(tmp_path: Path) -> None:
    @I.ir_module
    class Plain:
        @R.function
        def main(x: R.Tensor((3,), "float32")):
            return R.add(x, x)

    executable = build(Plain)
    executable.export_library(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == executable.to_bytes(kernels=False)
    vm = VirtualMachine(relaxvm.load(tmp_path / "m", native=True))
    np.testing.assert_array_equal(vm["main"](X), X + X)


@pytest.mark.parametrize("exec_mode", MODES)
@pytest.mark.parametrize("form", [FORMS[0], pytest.param(FORMS[1], marks=needs_libraries)])
def test_a_program_without_prim_funcs(exec_mode: str, form: str, tmp_path: Path) -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    return R.add(R.add(x, x), R.const(1.0, "float32"))
"""
    executable = build(from_source(text), exec_mode=exec_mode)
    for path in (tmp_path / form, tmp_path / "again.rvm"):
        executable.export_library(path)
        check(relaxvm.load(path, native=True))
        executable = relaxvm.load(path)



def test_kernels_that_cannot_be_stored(tmp_path: Path) -> None:
    executable = build(Program).with_kernels({"double": lambda x, y: None})
    with pytest.raises(TypeError, match="'double': expected kernels that relaxvm has compiled"):
        executable.export_library(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with pytest.raises(TypeError, match="expected a path"):
        executable.export_library(3)  # type: ignore[arg-type]


# Machine code for another platform


def test_another_platform_compiles_the_text(plain: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(stored, "platform_name", lambda: "plan9-mips-32")
    check(relaxvm.load(plain, native=True))


def test_without_a_compiler_the_machine_code_is_loaded(path: Path, monkeypatch: Any) -> None:
    if toolchain.compiler() is None:
        pytest.skip("there is no C compiler, so the file has no machine code")
    monkeypatch.setenv("CC", "no-such-compiler")
    loaded = relaxvm.load(path, native=True)
    assert " in C" in repr(loaded.kernels)
    check(loaded)


def test_without_machine_code_and_compiler_python_runs(plain: Path, monkeypatch: Any) -> None:
    path = plain
    monkeypatch.setattr(stored, "platform_name", lambda: "plan9-mips-32")
    monkeypatch.setenv("CC", "no-such-compiler")
    if any(p.startswith("native/") for p in relaxvm.load(path).kernels.parts):  # type: ignore[attr-defined]
        with pytest.warns(RelaxVMWarning, match="no C compiler: .*; double will run as Python"):
            loaded = relaxvm.load(path, native=True)
    else:
        loaded = relaxvm.load(path, native=True)
    check(loaded)


def test_machine_code_that_cannot_be_loaded(executable: Any, tmp_path: Path) -> None:
    parts = export.parts_of(executable.kernels)
    name = f"native/{stored.platform_name()}/0"
    parts_in_file = StoredKernels({**parts, name: b"not a library"}, "m.so")
    with pytest.warns(RelaxVMWarning, match=r"m\.so: its machine code cannot be loaded here"):
        check(executable.with_kernels(stored.load_stored(parts_in_file)))


def test_code_for_this_processor_is_not_exported(executable: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("RELAXVM_CFLAGS", "-march=native")
    assert not any(p.startswith("native/") for p in export.parts_of(executable.kernels))


# Malformed files


def refused(data: bytes) -> str:
    with pytest.raises((FormatError, LimitError)) as caught:
        relaxvm.loads(data)
    return str(caught.value)


def test_every_prefix_is_refused(executable: Any, plain: Path) -> None:
    data = plain.read_bytes()
    start = len(executable.to_bytes(kernels=False))
    for end in (*range(start + 1, start + 80), *range(start + 80, len(data), 997)):
        refused(data[:end])


def test_every_changed_byte_is_refused(executable: Any, plain: Path) -> None:
    data = plain.read_bytes()
    start = len(executable.to_bytes(kernels=False))
    rng = random.Random(0)
    for at in (*range(start, start + 64), *rng.sample(range(start + 64, len(data)), 200)):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        refused(bytes(changed))
    changed = bytearray(data)
    changed[-1] ^= 1
    assert "PrimFunc section: its content has changed" in refused(bytes(changed))
    assert "bytes follow" in refused(data + b"\0")


def with_parts(executable: Any, parts: dict[str, bytes], folder: Path) -> Path:
    path = folder / "changed"
    executable.with_kernels(StoredKernels(parts, "x")).export_library(path)
    return path


BAD_PARTS = [
    ("kernels", lambda v: "text", "not JSON"),
    ("kernels", lambda v: [v], "an object"),
    ("kernels", lambda v: {**v, "version": 2}, "version 1, got int 2"),
    ("kernels", lambda v: {**v, "functions": []}, "functions"),
    ("kernels", lambda v: {**v, "functions": {"double": {"symbol": 1}}}, "symbol, writes and"),
    ("kernels", lambda v: {**v, "sources": {}}, "sources"),
    ("kernels", lambda v: {**v, "sources": [{"text": "", "names": ["other"]}]}, "text and names"),
]


@pytest.mark.parametrize(("part", "change", "message"), BAD_PARTS)
def test_parts_are_checked(part: str, change: Any, message: str, tmp_path: Path) -> None:
    executable = build(Program, exec_mode="compiled")
    parts = export.parts_of(executable.kernels)
    value = change(json.loads(parts[part]))
    data = b"{" if value == "text" else json.dumps(value).encode()
    path = with_parts(executable, {**parts, part: data}, tmp_path)
    relaxvm.load(path)
    with pytest.raises(FormatError, match=f"bad kernel section .part '{part}'.: .*{message}"):
        relaxvm.load(path, native=True)


def test_deep_json_is_refused(tmp_path: Path) -> None:
    executable = build(Program)
    path = with_parts(executable, {"kernels": b"[" * 100_000}, tmp_path)
    assert relaxvm.load(path).kernels.names == frozenset()  # type: ignore[attr-defined]
    with pytest.raises(FormatError, match="not JSON"):
        relaxvm.load(path, native=True)


def test_limits(path: Path) -> None:
    with pytest.raises(LimitError, match="file_bytes"):
        relaxvm.load(path, limits=Limits(file_bytes=1000))
    with pytest.raises(LimitError, match="name_bytes"):
        relaxvm.load(path, limits=Limits(name_bytes=4))


# Shared libraries


@pytest.fixture
def shared(executable: Any, tmp_path: Path) -> Path:
    """The program in a shared library."""
    if not HAS_LIBRARIES:
        pytest.skip("shared libraries are linked by a C compiler, on Linux")
    path = tmp_path / "model.so"
    executable.export_library(path)
    return path


def test_one_copy_of_the_program(executable: Any, shared: Path) -> None:
    data = shared.read_bytes()
    assert data.startswith(b"\x7fELF")
    assert data.count(executable.to_bytes(kernels=False)) == 1


def test_from_one_form_to_the_other(executable: Any, shared: Path, plain: Path) -> None:
    for native in (False, True):
        other = shared.with_name("other.so")
        relaxvm.load(plain, native=native).export_library(other)
        assert other.read_bytes() == shared.read_bytes()
        relaxvm.load(shared, native=native).export_library(other.with_suffix(".rvm"))
        check(relaxvm.load(other.with_suffix(".rvm"), native=True))


def test_a_form_that_came_from_a_library_needs_no_compiler(shared: Path, monkeypatch: Any) -> None:
    plain = shared.with_suffix(".rvm")
    relaxvm.load_library(shared).export_library(plain)
    monkeypatch.setenv("CC", "no-such-compiler")
    loaded = relaxvm.load_library(plain)
    assert " in C" in repr(loaded.kernels)
    check(loaded)


def test_a_library_without_machine_code_is_the_plain_form(
    executable: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    executable.export_library(tmp_path / "m.so", native=False)
    assert (tmp_path / "m.so").read_bytes().startswith(executable.to_bytes(kernels=False))


@needs_libraries
def test_a_library_needs_a_compiler(executable: Any, tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(b"as it was")
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NoCompilerError, match=r"CC is .*; or export to another suffix than \.so"):
        executable.export_library(path)
    assert path.read_bytes() == b"as it was"
    assert list(tmp_path.iterdir()) == [path]


def test_a_library_that_was_changed_never_crashes(shared: Path) -> None:
    data = shared.read_bytes()
    rng = random.Random(1)
    refusals = (FormatError, LimitError, VerifyError, LinkError)
    for at in (*range(64), *rng.sample(range(len(data)), 400)):
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        with contextlib.suppress(*refusals):
            relaxvm.loads(bytes(changed))
    for end in (*range(4, 200), *range(200, len(data), 499)):
        with pytest.raises(refusals):
            relaxvm.loads(data[:end])


@needs_libraries
def test_large_constants_are_in_the_file_once(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    mod = from_source(
        "from relaxvm.script import ir as I, relax as R\n"
        "@R.function\n"
        "def main(x: R.Tensor((1, 512), 'float32')):\n"
        "    return R.matmul(x, R.const(weights))\n",
        {"weights": weights},
    )
    path = tmp_path / "m.so"
    build(mod, relax_pipeline="tvm").export_library(path)
    assert weights.nbytes < path.stat().st_size < weights.nbytes + 100_000
    x = np.ones((1, 512), np.float32)
    for mmap in (False, True):
        machine = VirtualMachine(relaxvm.load(path, native=True, mmap=mmap))
        np.testing.assert_allclose(machine["main"](x), x @ weights, rtol=1e-4, atol=1e-4)


# Programs that TVM could not run


def test_programs_that_tvm_cannot_run_are_refused(tmp_path: Path) -> None:
    if not HAS_LIBRARIES:
        pytest.skip("shared libraries are linked by a C compiler, on Linux")
    path = tmp_path / "m.so"
    with pytest.raises(LinkError, match=r"TVM would lack 2 functions.*\n  relaxvm\.") as caught:
        build(Program).export_library(path, for_tvm=True)
    assert set(caught.value.missing) == {"relaxvm.builtin.compute_shape", "relaxvm.kernel.add"}
    assert str(caught.value).count("relax_pipeline='tvm'") == 2
    assert not path.exists()
    executable = build(Program, relax_pipeline="tvm", exec_mode="compiled")
    executable.export_library(path, for_tvm=True)
    check(executable)
    check(relaxvm.load_library(path))
    with pytest.raises(ValueError, match=r"TVM loads shared libraries.*end in \.so; got m"):
        executable.export_library("m.rvm", for_tvm=True)
    with pytest.raises(TypeError, match="expected True or names of functions, got a str"):
        executable.export_library(path, for_tvm="f")


@needs_libraries
def test_functions_that_tvms_process_registers(tmp_path: Path) -> None:
    mod = from_source(
        "from relaxvm.script import ir as I, relax as R\n"
        "@R.function(pure=False)\n"
        "def main(x: R.Tensor((3,), 'float32')):\n"
        "    return R.call_packed('my.f', x, ty_args=R.Tensor((3,), 'float32'))\n"
    )
    executable = build(mod, relax_pipeline="tvm")
    with pytest.raises(LinkError, match=r"my\.f: a packed function; if TVM's process registers it"):
        executable.export_library(tmp_path / "m.so", for_tvm=True)
    executable.export_library(tmp_path / "m.so", for_tvm=["my.f"])


@needs_libraries
def test_kernels_that_run_as_python_are_refused_for_tvm(tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("CC", "no-such-compiler")
        with pytest.warns(RelaxVMWarning, match="no C compiler"):
            executable = build(Program, relax_pipeline="tvm")
    with pytest.raises(LinkError, match="double: it has no C source and runs as Python"):
        executable.export_library(tmp_path / "m.so", for_tvm=True)


def renamed(*names: str) -> relaxvm.VMExecutable:
    """A program with kernels of these names."""
    builder = BlockBuilder()
    ty = TensorType((3,), "float32")
    x = Var("x", ty)
    with builder.function("main", [x]):
        y: Any = x
        for name in names:
            gvar = builder.add_func(Program["double"], name)
            y = builder.emit(call_tir(gvar, (y,), ty))
        builder.emit_func_output(y)
    return build(builder.get(), relax_pipeline="tvm")


@needs_libraries
def test_names_that_no_symbol_can_have(tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    with pytest.raises(LinkError, match="a@b: its name cannot be a symbol"):
        renamed("a@b").export_library(path, for_tvm=True)
    odd = renamed("a@b", "two words", 'quo"te', "slash\\", "line\nend", "ü")
    odd.export_library(path)
    machine = VirtualMachine(relaxvm.load_library(path))
    np.testing.assert_array_equal(machine["main"](X), X * 64)
    with pytest.raises(ValueError, match=r"kernel 'a_x2e_b': .* for kernel 'a\.b'; rename it"):
        renamed("a.b", "a_x2e_b").export_library(path)
    with pytest.raises(ValueError, match="kernel '_library_bin': a shared library has something"):
        renamed("_library_bin").export_library(path)


# Pickle, and TVM's interface


def test_pickle_and_copy(executable: Any, path: Path) -> None:
    again = pickle.loads(pickle.dumps(executable))
    assert again == executable
    check(again)
    again = pickle.loads(pickle.dumps(relaxvm.load(path)))
    assert again.kernels.names == {"double"}
    assert copy.deepcopy(executable) is executable


def test_the_module_of_an_executable(executable: Any, path: Path) -> None:
    loaded = relaxvm.load_library(path)
    assert loaded.mod.kind == "relax.VMExecutable"
    assert loaded["as_text"]() == executable.as_text()
    assert loaded.jit()["has_function"]("main")
    assert loaded.mod["get_function_arity"]("main") == 1
    assert loaded.mod.imports[0]["double"] is loaded.kernels["double"]
    np.testing.assert_array_equal(VirtualMachine(loaded.mod)["main"](X), Y)
    np.testing.assert_array_equal(loaded.mod["vm_load_executable"]()["main"](X), Y)
    with pytest.raises(AttributeError, match="has no function 'as_txt'; did you mean 'as_text'"):
        loaded["as_txt"]
    again = path.with_stem("again")
    loaded.mod.export_library(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_library_of_many_kernels(tmp_path: Path) -> None:
    funcs = {f"k{i}": Program["double"] for i in range(9)}
    kernels = build_prim_funcs(funcs)
    parts_in_file = StoredKernels(export.parts_of(kernels), "m")
    loaded = stored.load_stored(parts_in_file)
    assert set(loaded) == set(funcs)
    for kernel in loaded.values():
        out = np.empty_like(X)
        kernel(X, out)
        np.testing.assert_array_equal(out, X * 2)


def test_the_cache_is_not_written_to(path: Path, tmp_path: Path, monkeypatch: Any) -> None:
    if toolchain.compiler() is None:
        pytest.skip("there is no C compiler, so the file has no machine code")
    cache = tmp_path / "cache"
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(cache))
    loaded = relaxvm.load(path, native=True)
    check(loaded.with_section("exec_mode", None))
    assert not cache.exists()
    shutil.rmtree(cache, ignore_errors=True)


def test_the_sources_of_kernels_can_be_kept(executable: Any, tmp_path: Path) -> None:
    executable.export_library(tmp_path / "model.vmexec", workspace_dir=tmp_path / "a" / "b")
    (source,) = (tmp_path / "a" / "b").iterdir()
    assert source.name == "kernels0.c"
    assert "double" in source.read_text()
    vm = VirtualMachine(relaxvm.load(tmp_path / "model.vmexec"))
    assert np.array_equal(vm["main"](X), X * 2 + 1)
