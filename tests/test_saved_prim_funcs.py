"""Files that contain the IR of their kernels: saving, loading elsewhere, checks, limits."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine, VMExecutable, build, tir
from relaxvm.errors import (
    CompilerError,
    FormatError,
    LimitError,
    LinkError,
    NestingError,
    RelaxVMWarning,
    VerifyError,
)
from relaxvm.executable import SavedPrimFuncs, StoredKernels
from relaxvm.executable.formats import binary
from relaxvm.hooks import HOOKS, hook
from relaxvm.ir.json import save_json
from relaxvm.ir.prim import cast
from relaxvm.native import export, toolchain
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.tir import BufferStore, For, ForKind, IntImm, PrimFunc, Var, decl_buffer

from . import children
from .children import run_script
from .sections import PROGRAM, with_sections

needs_compiler = pytest.mark.skipif(toolchain.compiler() is None, reason="there is no C compiler")
posix = pytest.mark.skipif(sys.platform == "win32", reason="scripts of sh")
UNTRUSTED = Limits.untrusted()
GENEROUS = 120.0
"""Seconds after which work under a short limit counts as hung, on a busy machine."""


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

    @T.prim_func(private=True, s_tir=True)
    def unused(x: T.Buffer((2,), "float32"), y: T.Buffer((2,), "float32")):
        for i in range(2):
            y[i] = x[i]

    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.call_tir(Program.double, (x,), out_ty=R.Tensor((n,), "float32"))
        return R.add(y, R.const(1.0, "float32"))


X = np.arange(3, dtype=np.float32)
Y = X * 2 + 1


def program(body: str, params: str, call: str, result: str, dtype: str = "float32") -> VMExecutable:
    """A program of one PrimFunc, with ``main`` of one tensor that calls it."""
    text = f"""
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel({params}):
{body}

    @R.function
    def main(x: R.Tensor({call}, "{dtype}")):
        return R.call_tir(Module.kernel, (x,), out_ty=R.Tensor({result}, "float32"))
"""
    return build(from_source(text))


def gather() -> VMExecutable:
    """y[i] = table of 4 elements at x[i]: an access whose index is only known when it runs."""
    return program(
        """
        table = T.alloc_buffer((4,), "float32")
        for i in range(4):
            table[i] = T.Cast("float32", i) * T.float32(10)
        for i in range(3):
            y[i] = table[x[i]]
""",
        'x: T.Buffer((3,), "int64"), y: T.Buffer((3,), "float32")', "(3,)", "(3,)", "int64",
    )  # fmt: skip


def endless() -> VMExecutable:
    """A loop that does not end if x[0] is 0."""
    return program(
        """
        y[0] = x[0]
        while y[0] == T.float32(0):
            y[0] = y[0] * T.float32(2)
""",
        'x: T.Buffer((1,), "float32"), y: T.Buffer((1,), "float32")', "(1,)", "(1,)",
    )  # fmt: skip


def long_loops() -> VMExecutable:
    """2^60 iterations, of loops that are not vectorized."""
    return program(
        """
        y[0] = x[0]
        for i in range(1 << 30):
            for j in range(1 << 30):
                y[0] = y[0] + T.float32(1)
""",
        'x: T.Buffer((1,), "float32"), y: T.Buffer((1,), "float32")', "(1,)", "(1,)",
    )  # fmt: skip


def divisions(count: int, length: int) -> str:
    """IR of a loop that divides each element many times: few iterations, each of which is long."""
    x, y = (decl_buffer((length,), "int64", name) for name in "xy")
    i = Var("i", "int64")
    value: Any = x[i]
    for k in range(count):
        value = value // (x[i] + IntImm("int64", k + 3))
    body = BufferStore(y, value, [i])
    return save_json(PrimFunc([x, y], For(i, 0, length, ForKind.SERIAL, body)))


def caller(text: str) -> VMExecutable:
    """A file of ``main(x, y)``, which calls a PrimFunc."""
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=2):
        builder.emit_call("kernel", [builder.r(0), builder.r(1)])
        builder.emit_ret(builder.r(1))
    executable = builder.get().with_kernels(SavedPrimFuncs({"kernel": text}))
    return relaxvm.loads(executable.to_bytes())


def with_local(size: str) -> VMExecutable:
    """Copies 3 elements of x through a local buffer, whose size may depend on `n`."""
    return program(
        f"""
        n = T.int64()
        A = T.match_buffer(x, (n,), "float32")
        B = T.match_buffer(y, (3,), "float32")
        local = T.alloc_buffer(({size},), "float32")
        for i in range(3):
            local[i] = A[i]
        for i in range(3):
            B[i] = local[i]
""",
        "x: T.handle, y: T.handle", '("n",)', "(3,)",
    )  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.vmexec"
    build(Program).save(path)
    return path


def check(executable: VMExecutable, **options: Any) -> None:
    np.testing.assert_array_equal(VirtualMachine(executable, **options)["main"](X), Y)


# In another process

RUN = """
import sys
import numpy as np
import relaxvm
executable = relaxvm.load(sys.argv[1])
assert not any(name.startswith(("relaxvm.ir", "relaxvm.tir")) for name in sys.modules)
vm = relaxvm.VirtualMachine(executable, limits=relaxvm.Limits.untrusted())
print(vm["main"](np.arange(3, dtype=np.float32)).tolist(), executable.kernels.backends)
"""


@needs_compiler
def test_another_process_compiles_the_kernels(path: Path) -> None:
    assert run_script(RUN, path) == "[1.0, 3.0, 5.0] {'double': 'c'}\n"


def test_without_a_compiler_they_run_as_python(path: Path) -> None:
    assert run_script(RUN, path, CC="no-such-compiler") == "[1.0, 3.0, 5.0] {'double': 'python'}\n"


@pytest.mark.parametrize("compiler", [pytest.param(None, marks=needs_compiler), "no-such-compiler"])
def test_files_of_compiled_functions(compiler: str | None, tmp_path: Path) -> None:
    executable = build(Program, exec_mode="compiled")
    path = tmp_path / "compiled"
    assert saving(executable, path) == []
    assert relaxvm.load(path) == executable
    assert relaxvm.load(path).exec_mode == "compiled"
    env = {} if compiler is None else {"CC": compiler}
    backend = "c" if compiler is None else "python"
    assert run_script(RUN, path, **env) == f"[1.0, 3.0, 5.0] {{'double': '{backend}'}}\n"


def test_programs_without_prim_funcs_do_not_import_the_compiler(tmp_path: Path) -> None:
    path = tmp_path / "plain"
    build(from_source("@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n"
                      "    return R.add(x, x)\n")).save(path)  # fmt: skip
    script = RUN.replace("executable.kernels.backends", "executable.kernels") + (
        "assert not any(name.startswith(('relaxvm.ir', 'relaxvm.tir')) for name in sys.modules)\n"
    )
    assert run_script(script, path) == "[0.0, 2.0, 4.0] {}\n"


def test_hooks_lead_to_the_compiler() -> None:
    for name, target in HOOKS.items():
        assert target.startswith("compiler.")
        assert callable(hook(name))


@needs_compiler
def test_processes_that_load_a_file_at_once(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    command = [sys.executable, "-P", "-c", RUN, str(path)]
    with children.start(
        command, stdout=children.PIPE, env={**os.environ, "RELAXVM_CACHE_DIR": str(cache)}
    ) as one, children.start(
        command, stdout=children.PIPE, env={**os.environ, "RELAXVM_CACHE_DIR": str(cache)}
    ) as other:  # fmt: skip
        for process in (one, other):
            out, _ = process.communicate(timeout=children.DEADLINE)
            assert out == b"[1.0, 3.0, 5.0] {'double': 'c'}\n"


@needs_compiler
def test_what_was_compiled_is_cached(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(relaxvm.load(path))

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("the compiler was started")

    monkeypatch.setattr(toolchain, "_run", forbidden)
    check(relaxvm.load(path))


def test_threads_that_load_a_file_at_once(path: Path) -> None:
    executable = relaxvm.load(path)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for ex in (executable, relaxvm.load(path)):
                check(ex)
                check(ex, limits=UNTRUSTED)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


# Files


def test_loading_keeps_the_ir(path: Path) -> None:
    executable = build(Program)
    assert executable.prim_funcs.keys() == {"double"}  # not the one that is never called
    for loaded in (relaxvm.load(path), relaxvm.load(path, mmap=True),
                   relaxvm.loads(path.read_bytes())):  # fmt: skip
        assert isinstance(loaded.kernels, SavedPrimFuncs)
        assert loaded.kernels.backends == {}
        assert loaded == executable
        assert loaded.prim_funcs == executable.prim_funcs
        assert loaded.to_bytes() == path.read_bytes()
        check(loaded)


def test_two_builds_give_the_same_bytes(path: Path) -> None:
    assert build(Program).to_bytes() == path.read_bytes()


def test_the_ir_can_be_left_out(path: Path, tmp_path: Path) -> None:
    executable = build(Program)
    stream = executable.to_bytes(kernels=False)
    assert path.read_bytes().startswith(stream)
    message = r"does not contain 'double' \(a compiled kernel\); .*; export_library writes compiled"
    with pytest.warns(RelaxVMWarning, match=message):
        executable.save(tmp_path / "without", kernels=False)
    assert (tmp_path / "without").read_bytes() == stream
    with pytest.raises(LinkError, match=r"'double'.*: not registered"):
        VirtualMachine(relaxvm.load(tmp_path / "without"))


def test_pickles_and_copies(path: Path) -> None:
    for executable in (build(Program), relaxvm.load(path)):
        for again in (pickle.loads(pickle.dumps(executable)), copy.deepcopy(executable)):
            assert again == executable
            assert again.to_bytes() == path.read_bytes()
            check(again)


def test_a_loaded_file_can_be_exported(path: Path, tmp_path: Path) -> None:
    relaxvm.load(path).export_library(tmp_path / "again.rvm")
    loaded = relaxvm.load(tmp_path / "again.rvm")
    assert isinstance(loaded.kernels, StoredKernels)
    check(relaxvm.load(tmp_path / "again.rvm", native=True))


def test_a_file_with_both_sections(path: Path) -> None:
    """Without ``native=True`` the PrimFuncs are used."""
    executable = build(Program)
    parts = export.parts_of(executable.kernels)
    both = binary._encode(executable, True, True, parts)
    data = b"".join(both.views())
    loaded = relaxvm.loads(data)
    assert isinstance(loaded.kernels, StoredKernels)
    assert loaded.prim_funcs == executable.prim_funcs
    check(loaded)
    check(relaxvm.load(data, native=True))
    check(pickle.loads(pickle.dumps(loaded)))


def test_tvm_reads_the_stream_in_front(path: Path, tmp_path: Path) -> None:
    tvm = pytest.importorskip("tvm")
    pytest.importorskip("tvm.relax")
    read = tvm.get_global_func("ffi.Module.load_from_bytes.relax.VMExecutable")
    module = read(path.read_bytes())
    assert module["as_text"]() == build(Program).as_text()
    module.write_to_file(str(tmp_path / "by_tvm"), "")
    assert (tmp_path / "by_tvm").read_bytes() == build(Program).to_bytes(debug=False, kernels=False)


def test_functions_replace_kernels(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = relaxvm.load(path)
    check(executable, functions={"double": lambda x, y: np.multiply(x, 2, y)})
    assert executable.kernels.backends == {}  # type: ignore[attr-defined]


def test_a_mapped_file_has_aligned_constants(tmp_path: Path) -> None:
    weights = np.arange(3, dtype=np.float32)
    text = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(x: T.Buffer((3,), "float32"), w: T.Buffer((3,), "float32"),
               y: T.Buffer((3,), "float32")):
        for i in range(3):
            y[i] = x[i] * w[i]

    @R.function
    def main(x: R.Tensor((3,), "float32"), w: R.Tensor((3,), "float32")):
        return R.call_tir(Module.kernel, (x, w), out_ty=R.Tensor((3,), "float32"))
"""
    build(from_source(text), params={"w": weights}).save(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it", mmap=True)
    arrays = [c for c in loaded.constants if isinstance(c, np.ndarray)]
    assert arrays
    assert all(array.ctypes.data % 64 == 0 for array in arrays)
    assert VirtualMachine(loaded)["main"](X).tolist() == [0, 1, 4]


# What does not run elsewhere


def saving(executable: VMExecutable, path: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executable.save(path)
    return [str(warning.message) for warning in caught]


def test_functions_of_this_process_are_named(tmp_path: Path) -> None:
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=1):
        for name in ("saved.py", "saved.native", "saved.unknown", "vm.builtin.copy",
                     "relaxvm.kernel.add"):  # fmt: skip
            builder.emit_call(name, [builder.r(0), builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    executable = builder.get()
    functions: dict[str, Callable[..., Any]] = {"saved.py": lambda x, y: x, "saved.native": max}
    for name, func in functions.items():
        relaxvm.register_func(name, func, override=True)
    (message,) = saving(executable, tmp_path / "it")
    assert message == (
        f"{tmp_path / 'it'}: does not contain 'saved.py' (a Python function), 'saved.native' (a "
        f"builtin_function_or_method); a process that loads the file has to register them, or pass "
        f"them to VirtualMachine(..., functions={{name: func}})"
    )
    (message,) = saving(executable.with_kernels({"saved.unknown": lambda x, y: x}), tmp_path / "it")
    assert "'saved.unknown' (a Python function)" in message


def test_complete_files_are_saved_without_a_warning(tmp_path: Path) -> None:
    assert saving(build(Program), tmp_path / "it") == []
    assert saving(relaxvm.load(tmp_path / "it"), tmp_path / "it") == []
    assert saving(build(from_source("@R.function\ndef main(x: R.Tensor((3,), 'float32')):\n"
                                    "    return R.nn.softmax(R.add(x, x))\n")),
                  tmp_path / "it") == []  # fmt: skip


# What is not proved


def test_accesses_that_are_not_proved(tmp_path: Path) -> None:
    """They are checked when the kernel runs, and refused where proofs are demanded."""
    gather().save(tmp_path / "it")
    inside, outside = np.array([3, 0, 1]), np.array([0, 4, 1])
    loaded = relaxvm.load(tmp_path / "it", limits=UNTRUSTED)
    proved = UNTRUSTED.but(unproved_accesses=0)
    with pytest.raises(LimitError, match=(
        r"^[^:]*it: PrimFunc 'kernel' at byte \d+: accesses that are not proved to be in bounds "
        r"\(kernel: buffer table, dimension 0\): 1 is above the limit unproved_accesses=0"
    )) as caught:  # fmt: skip
        VirtualMachine(loaded, limits=proved)
    assert caught.value.limit == "unproved_accesses"
    for limits in (None, UNTRUSTED, UNTRUSTED.but(unproved_accesses=1)):
        vm = VirtualMachine(loaded, limits=limits)
        assert vm["main"](inside).tolist() == [30, 0, 10]
        with pytest.raises(IndexError, match="buffer table, dimension 0: index 4 is out of bounds"):
            vm["main"](outside)
    with pytest.raises(LimitError, match="not proved"):  # also where it has been compiled
        VirtualMachine(loaded, limits=proved)
    with pytest.raises(LimitError, match="not proved"):
        loaded.kernels.check(proved)  # type: ignore[attr-defined]
    strictly = relaxvm.load(tmp_path / "it", limits=proved)
    for limits in (None, UNTRUSTED, proved):  # what the file was read under holds as well
        with pytest.raises(LimitError, match="not proved"):
            VirtualMachine(strictly, limits=limits)
    loaded.kernels.check(UNTRUSTED)  # type: ignore[attr-defined]


GUARDED = """
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def kernel(table: T.Buffer((4,), "float32"), at: T.Buffer((3,), "int64"),
               y: T.Buffer((3,), "float32")):
        for k in range(3):
            if at[k] >= 0 and at[k] < 4:
                y[k] = table[at[k]]
            else:
                y[k] = T.float32(-1)

    @R.function
    def main(table: R.Tensor((4,), "float32"), at: R.Tensor((3,), "int64")):
        return R.call_tir(Module.kernel, (table, at), out_ty=R.Tensor((3,), "float32"))
"""


@pytest.mark.parametrize("backend", [pytest.param("c", marks=needs_compiler), "python"])
@pytest.mark.filterwarnings("ignore:no C compiler")
def test_a_gather_from_an_unknown_origin_that_guards_its_index(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(from_source(GUARDED)).save(tmp_path / "it")
    if backend == "python":
        monkeypatch.setenv("CC", "no-such-compiler")
    loaded = relaxvm.load(tmp_path / "it", limits=UNTRUSTED)
    vm = VirtualMachine(loaded, limits=UNTRUSTED)
    assert loaded.kernels.backends == {"kernel": backend}  # type: ignore[attr-defined]
    table = np.arange(4, dtype=np.float32)
    for at, expected in (([3, 0, 1], [3, 0, 1]), ([-1, 4, 2**62], [-1, -1, -1])):
        assert vm["main"](table, np.array(at)).tolist() == expected


def test_accesses_that_are_not_proved_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather().save(tmp_path / "it")
    monkeypatch.setenv("CC", "no-such-compiler")
    loaded = relaxvm.load(tmp_path / "it")
    with pytest.raises(LimitError, match="not proved"):
        VirtualMachine(loaded, limits=UNTRUSTED.but(unproved_accesses=0))
    with pytest.warns(RelaxVMWarning, match="no C compiler: .*; kernel will run as Python"):
        vm = VirtualMachine(loaded, limits=UNTRUSTED)
    with pytest.raises(IndexError, match="buffer table, dimension 0: index 4 is out of bounds"):
        vm["main"](np.array([0, 4, 1]))


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_compiler_that_does_not_work_is_none(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gather().save(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it")
    if mode == "compiled":
        loaded = loaded.but(sections={**loaded.sections, "exec_mode": mode})
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    why = f"no C compiler: {broken} --version: exit status 1"
    with pytest.warns(RelaxVMWarning) as warned:
        vm = VirtualMachine(loaded)
    texts = [f"{why}; kernel will run as Python, which is slower"]
    if mode == "compiled":
        texts.append(f"{why}; the functions of this program run as bytecode")
    assert [str(one.message) for one in warned] == texts
    assert {one.filename for one in warned} == {__file__}
    assert isinstance(loaded.kernels, SavedPrimFuncs)
    assert loaded.kernels.backends == {"kernel": "python"}
    assert vm["main"](np.array([0, 3, 1])).tolist() == [0, 30, 10]


# Time and memory


@pytest.mark.parametrize("make", [endless, long_loops])
@pytest.mark.parametrize("backend", [pytest.param("c", marks=needs_compiler), "python"])
def test_kernels_end_at_the_limit_of_time(
    make: Callable[[], VMExecutable],
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if backend == "python":
        monkeypatch.setenv("CC", "no-such-compiler")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)
        make().save(tmp_path / "it")
        loaded = relaxvm.load(tmp_path / "it")
        vm = VirtualMachine(loaded, limits=UNTRUSTED.but(wall_time=2.0))
    assert loaded.kernels.backends == {"kernel": backend}  # type: ignore[attr-defined]
    started = time.monotonic()
    with pytest.raises(LimitError) as caught:
        vm["main"](np.zeros(1, np.float32))
    assert caught.value.limit == "wall_time"
    assert time.monotonic() - started < GENEROUS


@pytest.mark.parametrize("backend", [pytest.param("c", marks=needs_compiler), "python"])
def test_long_iterations_end_at_the_limit_of_time(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a check inside, this takes minutes."""
    if backend == "python":
        monkeypatch.setenv("CC", "no-such-compiler")
    count = 1 << 25
    loaded = caller(divisions(60, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)
        VirtualMachine(loaded)
    vm = VirtualMachine(loaded, limits=UNTRUSTED.but(wall_time=1.0))
    x, y = np.ones((2, count), np.int64)
    started = time.monotonic()
    with pytest.raises(LimitError) as caught:
        vm["main"](x, y)
    assert caught.value.limit == "wall_time"
    assert time.monotonic() - started < GENEROUS


def test_expressions_that_python_does_not_nest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with (
        warnings.catch_warnings(),
        pytest.raises(NestingError, match=r"nested too deeply: .*; bind parts of them") as caught,
    ):
        warnings.simplefilter("ignore", RelaxVMWarning)
        VirtualMachine(caller(divisions(400, 4)))
    assert caught.value.__notes__ == ["in <bytes>: PrimFuncs 'kernel'"]


def test_local_buffers_of_unknown_size_count(tmp_path: Path) -> None:
    """In C they are not numpy's arrays, so a kernel with such a buffer runs as Python."""
    with_local("n").save(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it")
    kernels: Any = loaded.kernels
    vm = VirtualMachine(loaded, limits=Limits(alloc_bytes=1000))
    assert kernels.backends == {"kernel": "python"}
    assert vm["main"](X).tolist() == X.tolist()
    with pytest.raises(LimitError, match="alloc_bytes=1000"):
        vm["main"](np.zeros(1001, np.float32))
    vm = VirtualMachine(loaded)
    assert kernels.backends == {"kernel": "python" if toolchain.compiler() is None else "c"}
    assert vm["main"](X).tolist() == X.tolist()


def test_local_buffers_of_known_size_are_limited(tmp_path: Path) -> None:
    with_local("1 << 27").save(tmp_path / "it")
    loaded = relaxvm.load(tmp_path / "it")
    for limits, limit in (
        (UNTRUSTED, "alloc_bytes"),
        (Limits(live_bytes=1 << 28), "live_bytes"),
    ):
        with pytest.raises(
            LimitError, match=r"^[^:]*it: PrimFunc 'kernel' at byte \d+: bytes of .*local buffer"
        ) as got:
            VirtualMachine(loaded, limits=limits)
        assert got.value.limit == limit
    VirtualMachine(loaded, limits=Limits(live_bytes=1 << 29))


# Malformed IR


def with_ir(text: str | bytes, name: str = "double") -> bytes:
    """A file whose PrimFunc section has another text."""
    content = struct.pack("<Q", 1)
    for part in (name.encode(), text.encode() if isinstance(text, str) else text):
        content += struct.pack("<Q", len(part)) + part
    from relaxvm.executable.formats.sections import SECTIONS, _digest

    section = SECTIONS["prim_funcs"]
    head = struct.pack("<8sIIQ", section.magic, section.version, section.flags, len(content))
    return PROGRAM.to_bytes() + head + _digest(content) + content


def changed(*changes: tuple[str, str]) -> str:
    (text,) = relaxvm.loads(with_sections("prim_funcs")).prim_funcs.values()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


BAD = {
    "not JSON": ("{", "not JSON: line 1"),
    "deep": ("[" * 100_000, "not a program: nested too deeply"),
    "not a PrimFunc": ('{"format":"relaxvm-ir","version":1,"root":3,"nodes":[]}',
                       "expected a PrimFunc, got int"),
    "type": (changed(('"float32"', '"floatx"')), "'floatx' is not a data type"),
    "code": (changed(('"float32"', '"float32=0;import os"')), "is not a data type"),
    "no such node": (changed(('"is":"For"', '"is":"Fur"')), "Fur"),
    "indices": (changed(('"indices":[{"node":', '"indices":[{"node":0},{"node":')), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed_ir(name: str) -> None:
    text, message = BAD[name]
    data = with_ir(text)
    loaded = relaxvm.loads(data, limits=UNTRUSTED)
    at = len(data) - len(text)
    saved: Any = loaded.kernels
    for limits in (None, UNTRUSTED):
        for use in (partial(VirtualMachine, loaded, limits=limits), partial(saved.check, limits)):
            with pytest.raises(FormatError) as caught:
                use()
            assert str(caught.value).startswith(f"<bytes>: PrimFunc 'double' at byte {at}: ")
            assert message in str(caught.value)


def call_of(function: Callable[[Any], Any], dtype: str) -> dict[str, Any]:
    """The IR of z[i] = y[function(x[i])], as JSON."""
    x, z = decl_buffer((4,), dtype, "x"), decl_buffer((4,), "int64", "z")
    y = decl_buffer((2,), "int64", "y")
    i = Var("i", "int64")
    body = BufferStore(z, y[cast(function(x[i]), "int64")], [i])
    func = PrimFunc([x, y, z], For(i, 0, 4, ForKind.SERIAL, body))
    document: dict[str, Any] = json.loads(save_json(func))
    return document


@pytest.mark.parametrize(("function", "dtype"), [(tir.popcount, "int64"), (tir.exp, "float32")])
def test_types_of_calls_are_those_of_their_arguments(
    function: Callable[[Any], Any], dtype: str
) -> None:
    """An index of type bool is in bounds of 2 elements; these calls give other numbers."""
    document = call_of(function, dtype)
    nodes = [{"is": "PrimType", "dtype": "bool"}, *document["nodes"]]
    moved = re.sub(r'"node": (\d+)', lambda m: f'"node": {int(m[1]) + 1}', json.dumps(nodes))
    lying = {**document, "nodes": json.loads(moved), "root": {"node": len(nodes) - 1}}
    (call,) = (node for node in lying["nodes"] if node["is"] == "Call")
    call["ty"] = {"node": 0}
    for limits in (None, UNTRUSTED):
        with pytest.raises(FormatError, match=f"Call: expected the data type {dtype}, got bool"):
            SavedPrimFuncs({"kernel": json.dumps(lying)}).make(["kernel"], limits)


def test_calls_have_as_many_arguments_as_their_function() -> None:
    """numpy's functions would write to a second one."""
    document = call_of(tir.ceil, "float32")
    (call,) = (node for node in document["nodes"] if node["is"] == "Call")
    call["args"] *= 2
    with pytest.raises(FormatError, match="ceil: expected 1 arguments, got 2"):
        SavedPrimFuncs({"kernel": json.dumps(document)}).make(["kernel"])


def test_a_section_of_text_that_is_not_utf8() -> None:
    data = with_ir(b"\xff\xfe")
    with pytest.raises(FormatError, match=(
        rf"PrimFunc section, function 0: string at byte {len(data) - 2}: not UTF-8"
    )):  # fmt: skip
        relaxvm.loads(data)


def test_names_of_functions_that_are_not_called() -> None:
    with pytest.raises(VerifyError, match=r"prim-funcs.*'main': expected the name of a packed"):
        relaxvm.loads(with_ir(changed(), "main"))


ODD_NAMES = ("call", "take", "a b", "*/ int x; /*", "é", "1x", "_x2e_", '"', "\\", "${x}", "main\n",
             "import os", "__tvm_ffi_main", "?\x3f/", "a" * 900)  # fmt: skip


@pytest.mark.parametrize("backend", [pytest.param("c", marks=needs_compiler), "python"])
def test_odd_names_of_functions_and_variables(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are data: in no name is code."""
    if backend == "python":
        monkeypatch.setenv("CC", "no-such-compiler")
    saved = {
        name: changed(('"name":"x"', f'"name":{json.dumps(name)}'),
                      ('"name":"i"', f'"name":{json.dumps(name + "+1")}'))
        for name in ODD_NAMES
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RelaxVMWarning)
        made = SavedPrimFuncs(saved).make(ODD_NAMES, UNTRUSTED)
    for name in ODD_NAMES:
        out = np.empty(4, np.float32)
        made[name](np.arange(4, dtype=np.float32), out)
        assert out.tolist() == [0, 2, 4, 6]


def test_a_prim_func_with_the_name_of_a_builtin() -> None:
    """It is called instead of the builtin, with its own checks of arguments."""
    name = "vm.builtin.copy"
    builder = relaxvm.ExecBuilder()
    with builder.function("main", num_inputs=2):
        builder.emit_call(name, [builder.r(0)], dst=builder.r(1))
        builder.emit_ret(builder.r(1))
    executable = builder.get().with_kernels(SavedPrimFuncs({name: changed()}))
    loaded = relaxvm.loads(executable.to_bytes(), limits=UNTRUSTED)
    vm = VirtualMachine(loaded, limits=UNTRUSTED)
    with pytest.raises(TypeError, match=r"vm\.builtin\.copy: expected 2 arguments \(x, y\), got 1"):
        vm["main"](X, X)


# The compiler


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the compiler by a script; ``--version`` works."""
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))

    def replace(script: str) -> None:
        path = tmp_path / "compiler"
        path.write_text(
            f'#!/bin/sh\ncase "$*" in *--version) echo it; exit 0;; esac\n{script}\n'
        )
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))

    return replace


@posix
def test_a_compiler_that_hangs(path: Path, command: Callable[[str], None]) -> None:
    command("sleep 1000")
    loaded = relaxvm.load(path)
    started = time.monotonic()
    with pytest.raises(LimitError) as caught:
        VirtualMachine(loaded, limits=UNTRUSTED.but(wall_time=1.0))
    assert caught.value.limit == "wall_time"
    assert time.monotonic() - started < GENEROUS
    assert loaded.kernels.backends == {}  # type: ignore[attr-defined]


@posix
def test_a_compiler_that_fails(
    path: Path, command: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    command("echo no way; exit 1")
    loaded = relaxvm.load(path)
    for limits in (None, UNTRUSTED):
        with pytest.raises(CompilerError, match="no way") as caught:
            VirtualMachine(loaded, limits=limits)
        assert any("double" in note for note in caught.value.__notes__)
    monkeypatch.delenv("CC")
    check(loaded)  # the next attempt works


def test_limits_of_the_work(path: Path) -> None:
    loaded = relaxvm.load(path)
    for limit, bound in (("wall_time", 0.0), ("live_bytes", 100), ("file_bytes", 100)):
        with pytest.raises(LimitError) as caught:
            VirtualMachine(loaded, limits=Limits().but(**{limit: bound}))
        assert caught.value.limit == limit
    check(loaded, limits=UNTRUSTED)
