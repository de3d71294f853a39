"""Programs of unknown origin that would take the compiler too long, or too much memory."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import BlockBuilder, Limits, cli, op, tir, toolchain, transform
from relaxvm.cli.exits import Exit
from relaxvm.compiler.decompile import decompile
from relaxvm.core.checkpoints import checkpoint
from relaxvm.errors import CompilerError, FormatError, LimitError
from relaxvm.ir import (
    Function,
    GlobalVar,
    If,
    IRModule,
    SeqExpr,
    ShapeType,
    TensorType,
    Tuple,
    Var,
    const,
    load_json,
    prim,
    save_json,
)
from relaxvm.script import from_source
from relaxvm.tir.build import compile_prim_func
from relaxvm.vm.limited import run_limited

from . import children

GENEROUS = 120.0
"""Seconds after which work under a short limit counts as hung, on a busy machine."""

SHORT = Limits(wall_time=0.02)
SMALL = Limits(live_bytes=32 << 20, alloc_bytes=16 << 20)
MIB = 1 << 20
TENSOR = TensorType((2,), "float32")


@pytest.fixture(autouse=True)
def nothing_is_left_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("RELAXVM_CACHE_DIR", str(tmp_path / "cache"))
    limit, collects, threads = sys.getrecursionlimit(), gc.isenabled(), threading.active_count()
    yield
    assert (sys.getrecursionlimit(), gc.isenabled()) == (limit, collects)
    assert threading.active_count() == threads
    assert not list(tmp_path.glob("cache/.new-*"))
    relaxvm.build(chain(1))


def chain(length: int) -> IRModule:
    """A function with so many bindings."""
    x = Var("x", TENSOR)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        y: Any = x
        with bb.dataflow():
            for _ in range(length):
                y = bb.emit(op.add(y, x))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()


def wide(count: int) -> IRModule:
    """So many functions."""
    mod = IRModule()
    for number in range(count):
        x = Var("x", TENSOR)
        mod[GlobalVar(f"f{number}")] = Function(
            [x], SeqExpr([], x), TENSOR, attrs={"global_symbol": f"f{number}"}
        )
    return mod


def branches(levels: int) -> IRModule:
    """Conditionals whose branches are shared: 2**levels of them."""
    x, c = Var("x", TENSOR), Var("c", TensorType((), "bool"))
    body: Any = x
    for _ in range(levels):
        body = If(c, SeqExpr([], body), SeqExpr([], body))
    return IRModule({GlobalVar("main"): Function([x, c], SeqExpr([], body), TENSOR)})


def statements(levels: int) -> tir.PrimFunc:
    """Statements that are shared: 2**levels of them."""
    buffer = tir.decl_buffer((4,), "float32", "A")
    stmt: Any = tir.BufferStore(buffer, 1.0, [0])
    for _ in range(levels):
        stmt = tir.IfThenElse(buffer[0] > 0, stmt, stmt)
    return tir.PrimFunc([buffer], stmt, attrs={"global_symbol": "main"})


def of_shape(dim: Any, *variables: Var) -> IRModule:
    """A function of a tensor with this dimension."""
    bb = BlockBuilder()
    x = Var("x", TensorType([dim], "float32"))
    with bb.function("main", [Var("s", ShapeType(variables)), x]):
        bb.emit_func_output(bb.emit(op.add(x, x)))
    return bb.get()


def division(levels: int) -> IRModule:
    """A dimension whose C code takes the compiler half a minute."""
    n = Var("n", "int64")
    dim: Any = n
    for _ in range(levels):
        dim = prim.FloorDiv(dim, dim + 3)
    return of_shape(dim, n)


def nested(levels: int) -> IRModule:
    """A dimension that is hard to simplify."""
    n = Var("n", "int64")
    dim: Any = n
    for _ in range(levels):
        dim = prim.maximum(prim.minimum(dim, n) // 2, n // 3)
    return of_shape(dim, n)


def greatest(count: int) -> IRModule:
    """A dimension that is the greatest of many, each of which is compared with all others."""
    variables = [Var(f"n{i}", "int64") for i in range(count)]
    dim: Any = variables[0]
    for each in variables[1:]:
        dim = prim.maximum(dim, each)
    return of_shape(dim, *variables)


def functions_of(count: int) -> IRModule:
    """Slow functions of a constant, evaluated at compile time."""
    bb = BlockBuilder()
    with bb.function("main", []):
        y: Any = const(np.ones(MIB, np.float32))
        with bb.dataflow():
            for _ in range(count):
                y = bb.emit(op.erf(y))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()


def copies(count: int) -> IRModule:
    """Results of a MiB each, which are kept."""
    one = const(np.ones(MIB // 4, np.float32))
    bb = BlockBuilder()
    with bb.function("main", []):
        kept = []
        with bb.dataflow():
            y: Any = one
            for _ in range(count):
                y = bb.emit(op.add(y, one))
                kept.append(y)
            y = bb.emit_output(Tuple(kept))
        bb.emit_func_output(y)
    return bb.get()


def build(mod: Any, limits: Limits) -> Any:
    return relaxvm.build(mod, limits=limits)


def fold(mod: IRModule, limits: Limits) -> Any:
    return run_limited(lambda: transform.FoldConstant()(mod), limits, "fold")


def normalize(mod: IRModule, limits: Limits) -> Any:
    return run_limited(lambda: transform.Normalize()(mod), limits, "normalize")


def written(mod: Any, limits: Limits) -> Any:
    return run_limited(lambda: mod.script(), limits, "script")


def c_code(func: Any, limits: Limits) -> Any:
    return compile_prim_func(func, limits=limits)


def python_code(func: Any, limits: Limits) -> Any:
    return compile_prim_func(func, prefer="python", limits=limits)


LONG: dict[str, tuple[Callable[[], Any], Callable[[Any, Limits], Any]]] = {
    "chain": (lambda: chain(4000), build),
    "wide": (lambda: wide(9000), build),
    "branches": (lambda: branches(16), normalize),
    "statements": (lambda: statements(18), build),
    "statements in C": (lambda: statements(18), c_code),
    "statements in Python": (lambda: statements(18), python_code),
    "printed statements": (lambda: statements(18), written),
    "division": (lambda: division(10), build),
    "nested": (lambda: nested(400), build),
    "greatest": (lambda: greatest(1200), build),
    "folding": (lambda: functions_of(1000), fold),
    "JSON": (lambda: save_json(chain(4000)), lambda text, limits: load_json(text, limits=limits)),
    "script": (lambda: chain(4000).script(), lambda text, limits: from_source(text, limits=limits)),
}


@pytest.mark.parametrize("kind", LONG)
def test_what_takes_too_long_is_ended(kind: str) -> None:
    make, work = LONG[kind]
    program = make()
    start = time.monotonic()
    with pytest.raises(LimitError, match=r"wall_time") as caught:
        work(program, SHORT)
    assert time.monotonic() - start < GENEROUS
    assert caught.value.limit == "wall_time"


LARGE: dict[str, tuple[Callable[[], Any], Callable[[Any, Limits], Any]]] = {
    "copies": (lambda: copies(60), fold),
    "chain": (lambda: chain(20_000), build),
    "statements": (lambda: statements(16), c_code),
    "JSON": (lambda: save_json(chain(6000)), lambda text, limits: load_json(text, limits=limits)),
    "empty objects": (
        lambda: "[" + "{}," * 1_000_000 + "{}]",
        lambda text, limits: load_json(text, limits=limits),
    ),
    "script": (
        lambda: chain(20_000).script(), lambda text, limits: from_source(text, limits=limits),
    ),
    "names": (lambda: "x\n" * 1_000_000, lambda text, limits: from_source(text, limits=limits)),
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_what_takes_too_much_memory_is_ended(kind: str) -> None:
    make, work = LARGE[kind]
    program = make()
    with pytest.raises(LimitError, match=r"live_bytes") as caught:
        work(program, SMALL)
    assert caught.value.limit == "live_bytes"


@pytest.mark.skipif(os.name != "posix", reason="the system does not say what a process takes")
def test_memory_is_bounded_without_the_allocator_of_python() -> None:
    """With PYTHONMALLOC=malloc, there are no blocks to count."""
    script = """if True:
        import relaxvm
        from relaxvm import op

        builder = relaxvm.BlockBuilder()
        x = relaxvm.Var("x", relaxvm.TensorType([4], "float32"))
        with builder.function("main", [x]):
            value = x
            for _ in range(20_000):
                value = builder.emit(op.add(value, x))
            builder.emit_func_output(value)
        try:
            relaxvm.build(builder.get(), limits=relaxvm.Limits(live_bytes=16 << 20))
        except relaxvm.errors.LimitError as error:
            print(error.limit)
    """
    assert children.run_script(script, PYTHONMALLOC="malloc") == "live_bytes\n"


def test_the_error_names_subject_limit_pass_and_function() -> None:
    with pytest.raises(LimitError) as caught:
        relaxvm.build(nested(300), limits=Limits(wall_time=0.3))
    assert str(caught.value) == "build: the run took longer than 0.3 s (limit wall_time)"
    notes = caught.value.__notes__
    assert "in function 'main'" in notes
    assert any(note.startswith("in pass ") for note in notes)
    with pytest.raises(
        LimitError, match=r"^fold: allocation of \d+ bytes: .*alloc_bytes="
    ) as caught:
        fold(functions_of(1), SMALL.but(alloc_bytes=MIB))
    assert caught.value.limit == "alloc_bytes"
    assert caught.value.__notes__[-1] == "in pass FoldConstant"


def test_a_program_within_the_limits_is_compiled_as_without() -> None:
    limits = Limits.untrusted()
    mod = chain(20)
    assert relaxvm.build(load_json(save_json(mod), limits=limits), limits=limits) == relaxvm.build(
        mod
    )
    assert save_json(from_source(mod.script(), limits=limits), spans=False) == save_json(
        from_source(mod.script()), spans=False
    )
    executable = relaxvm.build(mod)
    assert decompile(executable, limits=limits) == decompile(executable)
    assert relaxvm.build(mod, limits=Limits()) == executable


def test_large_results_of_constants_are_computed_when_the_program_runs() -> None:
    text = (
        "@R.function\ndef main():\n    x = R.ones(R.shape([1048576, 4096]), 'float32')\n"
        "    y = R.add(x, x)\n    return y"
    )
    executable = relaxvm.build(from_source(text), limits=Limits.untrusted())
    assert len(executable.to_bytes()) < MIB
    vm = relaxvm.VirtualMachine(executable, limits=Limits.untrusted())
    with pytest.raises(LimitError, match="alloc_bytes"):
        vm["main"]()


def test_too_many_functions_or_bytes() -> None:
    with pytest.raises(
        LimitError, match=r"^build: the program: 11 is above the limit functions=10$"
    ):
        relaxvm.build(wide(11), limits=Limits(functions=10))
    for read in (load_json, from_source):
        with pytest.raises(LimitError, match=r"file_bytes=100$"):
            read(" " * 101, limits=Limits(file_bytes=100))


def test_an_outer_limit_holds_for_inner_work() -> None:
    with pytest.raises(LimitError, match=r"^outer: .* 0\.02 s"):
        run_limited(
            lambda: relaxvm.build(chain(4000), limits=Limits(wall_time=1e6)), SHORT, "outer"
        )
    with pytest.raises(LimitError, match=r"^outer: build: .* 0\.01 s"):
        run_limited(lambda: relaxvm.build(chain(4000), limits=SHORT.but(wall_time=0.01)),
                    Limits(wall_time=1e6), "outer")  # fmt: skip


def test_limits_are_checked() -> None:
    with pytest.raises(TypeError, match=r"^build: limits: expected relaxvm\.Limits, got int$"):
        relaxvm.build(chain(1), limits=1)  # type: ignore[arg-type]


def test_other_errors_stay_as_they_are() -> None:
    limits = Limits.untrusted()
    with pytest.raises(FormatError):
        load_json("{}", limits=limits)
    with pytest.raises(ValueError, match=r"^exec_mode") as caught:
        relaxvm.build(chain(1), exec_mode="none", limits=limits)
    assert not hasattr(caught.value, "__notes__")


def test_memory_of_another_thread_is_not_that_of_its_arrays() -> None:
    """Arrays are counted where they are made."""
    arrays: list[Any] = []

    def other() -> None:
        arrays.append(np.ones(64 * MIB, np.int8))

    def work() -> int:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        checkpoint()
        return len(arrays)

    assert run_limited(work, SMALL, "work") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are no interval timers")
@pytest.mark.parametrize("limits", [None, Limits.untrusted().but(wall_time=None)])
def test_ctrl_c_ends_a_compilation(limits: Limits | None) -> None:
    mod = chain(8000)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            relaxvm.build(mod, limits=limits)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


# The C compiler


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def make(script: str) -> None:
        path = tmp_path / "fakecc"
        path.write_text(f'#!/bin/sh\ncase "$*" in *--version) echo 1; exit 0;; esac\n{script}\n')
        path.chmod(0o755)
        monkeypatch.setenv("CC", str(path))

    return make


def test_the_compiler_is_stopped_at_the_deadline(fake_compiler: Any, tmp_path: Path) -> None:
    fake_compiler(f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(LimitError, match="the time of this compilation is over") as caught:
        run_limited(lambda: toolchain.compile_c("", name="x"), Limits(wall_time=2.0), "work")
    assert caught.value.limit == "wall_time"
    assert children.ends(int((tmp_path / "pid").read_text()))


def test_compilers_side_by_side_are_stopped_together(fake_compiler: Any, tmp_path: Path) -> None:
    fake_compiler(f"echo $$ >> {tmp_path}/pids; exec sleep 600")
    pieces = [f"int f{i}(void) {{ return {i}; }}\n" for i in range(64)]
    with pytest.raises(LimitError, match="wall_time"):
        run_limited(
            lambda: toolchain.compile_pieces("", pieces, name="x"), Limits(wall_time=2.0), "work"
        )
    for pid in (tmp_path / "pids").read_text().split():
        assert children.ends(int(pid))


def test_the_output_of_the_compiler_is_bounded(fake_compiler: Any) -> None:
    fake_compiler(f"head -c {8 * MIB} /dev/zero | tr '\\0' x; exit 1")
    with pytest.raises(CompilerError) as caught:
        toolchain.compile_c("", name="x")
    assert len(caught.value.output) == MIB


@pytest.mark.skipif(sys.platform != "linux", reason="bounds of memory need ulimit -v")
def test_the_memory_of_the_compiler_is_bounded(fake_compiler: Any) -> None:
    fake_compiler(
        f"exec {sys.executable} -c 'x = bytearray(3 << 30)' || echo Cannot allocate memory"
    )
    with pytest.raises((LimitError, CompilerError)):
        run_limited(lambda: toolchain.compile_c("", name="x"), SMALL, "work")


# The command


def run_cli(*args: str) -> int:
    return cli.main([*args])


def test_the_command_takes_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(save_json(chain(3)))
    assert run_cli("compile", "good.json", "-o", "good.rvm", "--limits", "untrusted") == Exit.OK
    assert relaxvm.load("good.rvm").function("main")
    (tmp_path / "large.json").write_text(json.dumps([{}] * 3_000_000))
    assert run_cli("compile", "large.json", "-o", "x.rvm", "--limits", "untrusted") == Exit.LIMIT
    assert "live_bytes" in capsys.readouterr().err
    (tmp_path / "script.py").write_text("raise SystemExit('the script ran')")
    assert run_cli("compile", "script.py", "-o", "x.rvm", "--limits", "untrusted") == Exit.USAGE
    assert "reading a script runs it" in capsys.readouterr().err
    assert not os.path.exists("x.rvm")
