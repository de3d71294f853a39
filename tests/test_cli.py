"""The command line as a user sees it: arguments, text, JSON, files and exit codes."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxvm
from relaxvm import cli
from relaxvm.cli import console as console_module
from relaxvm.cli.exits import Exit
from relaxvm.executable.formats.sections import SECTIONS
from relaxvm.registry import GLOBAL
from relaxvm.values import Shape
from relaxvm.vm.entry_checks import params_of

from . import children
from .asm import VM, VOID, Asm, Reg, r0, r1, r2, r3, r4
from .corpus import CORPUS
from .passes import module
from .sections import with_sections

ROOT = Path(__file__).parent.parent

KERNELS = '''
"""Packed functions of the tests of the command line."""
import ml_dtypes
import numpy as np
import relaxvm

def register(f):
    relaxvm.register_func(f"clitest.{f.__name__}", f, override=True)

@register
def matmul(x, w):
    return x @ w

@register
def identity(*args):
    return args[0] if len(args) == 1 else args

@register
def many(x):
    return x, (x.sum(), "text"), relaxvm.Shape([2, 3]), None, 2.5

@register
def narrow(x):
    return x.astype(ml_dtypes.bfloat16)

@register
def fail(x):
    raise ZeroDivisionError("by nothing")

@register
def zero_in_place(x):
    x[...] = 0
    return x
'''

CONTEXT = (
    'ErrorContext(fn=main, loc=param[{}], param={}, annotation=R.Tensor({}, dtype="float32")) '
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with executables and their kernels."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "kernels.py").write_text(KERNELS)
    for name, make in PROGRAMS.items():
        make().get().save(folder / f"{name}.vmexec")
    return folder


def linear() -> Asm:
    """main(x: float32[n, 4], w: float32[4, m]): matmul, with the checks that a compiler emits."""
    asm = Asm()
    with asm.func("main", params=["x", "w"]):
        asm.op(r2, ".alloc_shape_heap", VM, 2)
        for i, (register, name, dims) in enumerate([(r0, "x", "(n, 4)"), (r1, "w", "(4, m)")]):
            context = CONTEXT.format(i, name, dims)
            asm.op(None, ".check_tensor_info", register, 2, np.dtype("float32"), context)
        asm.op(None, ".match_shape", r0, r2, 2, 1, 0, 0, 4, CONTEXT.format(0, "x", "(n, 4)"))
        asm.op(None, ".match_shape", r1, r2, 2, 0, 4, 1, 1, CONTEXT.format(1, "w", "(4, m)"))
        asm.op(r3, "clitest.matmul", r0, r1)
        asm.ret(r3)
    return asm


def one_call(kernel: str, params: list[str]) -> Callable[[], Asm]:
    def make() -> Asm:
        asm = Asm()
        with asm.func("main", params=params):
            args = [(r0, r1, r2, r3)[i] for i in range(len(params))]
            asm.op(r4, f"clitest.{kernel}", *args)
            asm.ret(r4)
        return asm

    return make


def kinds() -> Asm:
    """main(t: (float32[2], int64[s0]), n: int, flag: bool, s: Shape, name: str)."""
    asm = Asm()
    params = ["t", "n", "flag", "s", "name"]
    with asm.func("main", params=params):
        heap, item = Reg(5), Reg(6)
        asm.op(heap, ".alloc_shape_heap", VM, 2)
        asm.op(None, ".check_tuple_info", r0, 2, "")
        asm.op(item, ".tuple_getitem", r0, 0)
        asm.op(None, ".check_tensor_info", item, 1, np.dtype("float32"), "")
        asm.op(None, ".match_shape", item, heap, 1, 0, 2, "")
        asm.op(item, ".tuple_getitem", r0, 1)
        asm.op(None, ".check_tensor_info", item, 1, np.dtype("int64"), "")
        asm.op(None, ".match_shape", item, heap, 1, 1, 0, "")
        asm.op(None, ".check_prim_value_info", r1, np.dtype("int64"), "")
        asm.op(None, ".check_prim_value_info", r2, np.dtype("bool"), "")
        asm.op(None, ".check_shape_info", r3, 2, "")
        asm.op(None, ".match_shape", r3, heap, 2, 3, 0, 1, 1, "")
        asm.op(None, ".check_string_info", r4, "")
        asm.op(Reg(7), "clitest.identity", r0, r1, r2, r3, r4)
        asm.ret(Reg(7))
    return asm


def loop() -> Asm:
    asm = Asm()
    with asm.func("forever"):
        asm.op(r0, ".null_value")
        asm.go(-1)
    return asm


def two_functions() -> Asm:
    asm = Asm()
    for name in ("first", "second"):
        with asm.func(name, params=["x"]):
            asm.op(r1, ".copy", r0)
            asm.ret(r1)
    return asm


def missing() -> Asm:
    asm = Asm()
    with asm.func("main", params=["x"]):
        asm.op(r1, "nowhere.add", r0)
        asm.op(r1, "nowhere.multiply", r1)
        asm.ret(r1)
    return asm


def strange_names() -> Asm:
    asm = Asm()
    with asm.func("main", params=["x"]):
        asm.op(r1, "evil\x1b[2J\u202etxt", r0)
        asm.ret(r1)
    return asm


PROGRAMS: dict[str, Callable[[], Asm]] = {
    "linear": linear,
    "identity": one_call("identity", ["x"]),
    "pair": one_call("identity", ["x", "y"]),
    "many": one_call("many", ["x"]),
    "narrow": one_call("narrow", ["x"]),
    "fail": one_call("fail", ["x"]),
    "zero": one_call("zero_in_place", ["x"]),
    "kinds": kinds,
    "loop": loop,
    "two": two_functions,
    "missing": missing,
    "strange": strange_names,
}


class Outcome:
    """The outcome of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Cli = Callable[..., Outcome]


@pytest.fixture
def run(files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run a command in this process, in the folder of the files."""
    monkeypatch.chdir(files)

    def call(*args: Any, code: int = 0, stdin: bytes | None = None) -> Outcome:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        got = cli.main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert got == code, f"exit code {got}\n{out}\n{err}"
        assert "Traceback" not in err or "--debug" in args
        return Outcome(got, out, err)

    return call


def with_kernels(*args: Any) -> tuple[Any, ...]:
    return (*args, "--kernels", "kernels.py")


class TestRun:
    def test_input_by_name(self, run: Cli, files: Path) -> None:
        x, w = np.ones((3, 4), np.float32), np.eye(4, 2, dtype=np.float32)
        np.savez(files / "in.npz", w=w, x=x, labels=np.arange(3))
        got = run(*with_kernels("run", "linear.vmexec", "--input", "in.npz"))
        assert got.out == (
            "out0  float32[3, 2]  min 1  max 1  mean 1  [[1, 1], [1, 1], [1, 1]]\n"
        )
        assert got.err == "relaxvm: in.npz: not a parameter, not used: labels\n"

    def test_a_result_of_many_parts(self, run: Cli, files: Path) -> None:
        """A few instructions make a tuple of 16 ** 12 leaves."""
        builder = relaxvm.ExecBuilder()
        with builder.function("main", num_inputs=0):
            for i in range(12):
                item = builder.r(0) if i else builder.imm(1)
                builder.emit_call("vm.builtin.make_tuple", [item] * 16, dst=builder.r(0))
            builder.emit_ret(builder.r(0))
        builder.get().save(files / "shared.vmexec")
        got = run("run", "shared.vmexec", code=Exit.FAILED)
        assert "the result has more than 65,535 parts" in got.err

    @pytest.mark.parametrize("keys", [("arg0", "arg1"), ("arr_0", "arr_1"), ("x", "arg1")])
    def test_input_by_position(self, run: Cli, files: Path, keys: tuple[str, str]) -> None:
        x, w = np.ones((3, 4), np.float32), np.full((4, 1), 2, np.float32)
        np.savez(files / "in.npz", **{keys[0]: x, keys[1]: w})
        got = run(*with_kernels("run", "linear.vmexec", "--input", "in.npz", "--json"))
        assert got.json["outputs"][0]["values"] == [[8], [8], [8]]

    def test_npy(self, run: Cli, files: Path) -> None:
        np.save(files / "x.npy", np.arange(3))
        np.save(files / "y.npy", np.arange(2))
        args = with_kernels("run", "pair.vmexec", "--input", "y=y.npy", "--input", "x.npy")
        assert run(*args).out == (
            "out0  int64[3]  min 0  max 2  mean 1  [0, 1, 2]\n"
            "out1  int64[2]  min 0  max 1  mean 0.5  [0, 1]\n"
        )

    def test_tuples_and_scalars(self, run: Cli, files: Path) -> None:
        np.savez(
            files / "in.npz",
            **{"t.0": np.ones(2, np.float32), "t.1": np.arange(3), "n": np.int64(5),
               "flag": np.True_, "s": np.array([3, 9]), "name": np.array("héllo")},
        )  # fmt: skip
        got = run(*with_kernels("run", "kinds.vmexec", "--input", "in.npz"))
        assert got.out == (
            "out0.0  float32[2]  min 1  max 1  mean 1  [1, 1]\n"
            "out0.1  int64[3]  min 0  max 2  mean 1  [0, 1, 2]\n"
            "out1  int 5\n"
            "out2  bool True\n"
            "out3  shape (3, 9)\n"
            "out4  str 'héllo'\n"
        )

    def test_values_on_the_command_line(self, run: Cli) -> None:
        args = ["run", "kinds.vmexec", "--arg", "n=5", "--arg", "flag=true", "--arg", "s=[4, 9]",
                "--arg", 'name="hello"', "--shape", "t.0=2:float32", "--shape", "t.1=4:int64",
                "--json"]  # fmt: skip
        outputs = run(*with_kernels(*args)).json["outputs"]
        assert [o["kind"] for o in outputs] == ["tensor", "tensor", "int", "bool", "shape", "str"]
        assert [o.get("value") for o in outputs[2:]] == [5, True, [4, 9], "hello"]
        assert outputs[1]["shape"] == [4]

    def test_random_by_the_checks_of_the_code(self, run: Cli) -> None:
        args = ["run", "linear.vmexec", "--random", "--dim", "n=8", "--dim", "m=2", "--json"]
        one = run(*with_kernels(*args)).json
        assert one["function"] == "main"
        (output,) = one["outputs"]
        assert (output["dtype"], output["shape"]) == ("float32", [8, 2])
        assert run(*with_kernels(*args)).json == one
        other = run(*with_kernels(*args, "--seed", "1")).json
        assert other["outputs"][0]["mean"] != output["mean"]
        by_slot = ["run", "linear.vmexec", "--random", "--dim", "0=8", "--dim", "1=2", "--json"]
        assert run(*with_kernels(*by_slot)).json == one

    def test_random_values_do_not_depend_on_the_others(self, run: Cli, files: Path) -> None:
        args = ["run", "pair.vmexec", "--shape", "y=3", "--json"]
        np.save(files / "x.npy", np.ones(2))
        both = run(*with_kernels(*args, "--shape", "x=5")).json["outputs"][1]
        one = run(*with_kernels(*args, "--input", "x=x.npy")).json["outputs"][1]
        assert both["values"] == one["values"]

    def test_random_kinds(self, run: Cli) -> None:
        args = ["run", "kinds.vmexec", "--random", "--dim", "s0=3", "--dim", "s1=2",
                "--arg", 'name="x"', "--json"]  # fmt: skip
        outputs = run(*with_kernels(*args)).json["outputs"]
        assert [o["kind"] for o in outputs] == ["tensor", "tensor", "int", "bool", "shape", "str"]
        assert outputs[1]["dtype"] == "int64"
        assert all(0 <= value < 10 for value in outputs[1]["values"])
        assert 0 <= outputs[2]["value"] < 10
        assert outputs[4]["value"] == [3, 2]

    @pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "complex64", "bfloat16"])
    def test_random_types(self, run: Cli, dtype: str) -> None:
        args = ["run", "identity.vmexec", "--shape", f"x=2,3:{dtype}", "--json"]
        (output,) = run(*with_kernels(*args)).json["outputs"]
        assert (output["dtype"], output["shape"]) == (dtype, [2, 3])

    def test_output_npz(self, run: Cli, files: Path) -> None:
        args = ["run", "many.vmexec", "--shape", "x=2:int32", "--output", "out.npz"]
        got = run(*with_kernels(*args))
        assert got.err == "relaxvm: out.npz: no array, not written: out3\n"
        first = (files / "out.npz").read_bytes()
        with np.load(files / "out.npz") as out:
            assert sorted(out.files) == ["out0", "out1.0", "out1.1", "out2", "out4"]
            assert out["out1.0"] == out["out0"].sum()
            assert str(out["out1.1"]) == "text"
            assert out["out2"].tolist() == [2, 3]
            assert out["out4"] == 2.5
        run(*with_kernels(*args))
        assert (files / "out.npz").read_bytes() == first, "equal outputs must make equal files"
        assert not list(files.glob(".out*")), "no temporary file is left"

    def test_output_of_one_run_is_input_of_the_next(self, run: Cli, files: Path) -> None:
        run(*with_kernels("run", "narrow.vmexec", "--shape", "x=3", "--output", "narrow.npz"))
        with np.load(files / "narrow.npz") as out:
            assert out.files == ["out0@bfloat16"]
            stored = out["out0@bfloat16"].view(ml_dtypes.bfloat16)
        np.savez(files / "in.npz", **{"x@bfloat16": stored.view(np.uint16)})
        got = run(*with_kernels("run", "identity.vmexec", "--input", "in.npz", "--json"))
        (output,) = got.json["outputs"]
        assert output["dtype"] == "bfloat16"
        assert output["values"] == stored.astype(float).tolist()

    def test_output_npy(self, run: Cli, files: Path) -> None:
        run(*with_kernels("run", "identity.vmexec", "--shape", "x=2,2", "--output", "out.npy"))
        assert np.load(files / "out.npy").shape == (2, 2)
        many = with_kernels("run", "many.vmexec", "--shape", "x=2", "--output", "no.npy")
        got = run(*many, code=2)
        assert "an .npy file holds one array, the outputs are 5; use .npz" in got.err
        assert not (files / "no.npy").exists()
        narrow = with_kernels("run", "narrow.vmexec", "--shape", "x=2", "--output", "no.npy")
        got = run(*narrow, code=2)
        assert "an .npy file cannot hold bfloat16; use .npz" in got.err

    def test_output_that_cannot_be_written(self, run: Cli) -> None:
        args = ["run", "identity.vmexec", "--shape", "x=2", "--output", "no/such/folder.npz"]
        got = run(*with_kernels(*args), code=1)
        assert "no/such/folder.npz: cannot be written: No such file or directory" in got.err

    def test_summaries(self, run: Cli, files: Path) -> None:
        np.savez(files / "in.npz", x=np.array([np.nan, 1, np.inf, 3]), y=np.zeros((0, 3)))
        got = run(*with_kernels("run", "pair.vmexec", "--input", "in.npz"))
        assert got.out == (
            "out0  float64[4]  min 1  max 3  mean 2  not finite 2  [nan, 1, inf, 3]\n"
            "out1  float64[0, 3]\n"
        )
        got = run(*with_kernels("run", "pair.vmexec", "--input", "in.npz", "--json"))
        assert got.json["outputs"][0]["values"] == ["nan", 1, "inf", 3]

    def test_a_single_value(self, run: Cli, files: Path) -> None:
        np.savez(files / "in.npz", x=np.float32(0.25), y=np.array([[np.nan]]))
        got = run(*with_kernels("run", "pair.vmexec", "--input", "in.npz"))
        assert got.out == "out0  float32[]  0.25\nout1  float64[1, 1]  [[nan]]\n"

    def test_mean_of_large_half_precision_values(self, run: Cli, files: Path) -> None:
        np.save(files / "x.npy", np.full(100, 60_000, np.float16))
        got = run(*with_kernels("run", "identity.vmexec", "--input", "x.npy", "--json"))
        assert got.json["outputs"][0]["mean"] == 60_000

    def test_repeat(self, run: Cli) -> None:
        args = ["run", "identity.vmexec", "--shape", "x=2", "--repeat", "3"]
        got = run(*with_kernels(*args))
        assert re.search(r"^3 runs: min [\d.]+ [num]?s, median .*, max .*$", got.out, re.MULTILINE)
        assert len(run(*with_kernels(*args, "--json")).json["times_ns"]) == 3

    def test_profile_and_trace(self, run: Cli, files: Path) -> None:
        args = ["run", "linear.vmexec", "--random", "--dim", "n=8", "--dim", "m=2",
                "--repeat", "2", "--profile", "--trace", "trace.json"]  # fmt: skip
        got = run(*with_kernels(*args))
        assert "2 runs on 1 thread" in got.out
        assert re.search(r"clitest\.matmul \[kernel\]$", got.out, re.MULTILINE)
        assert re.search(r"main:5 call +clitest\.matmul .*\(float32\[8, 4\], float32\[4, 2\]\)$",
                         got.out, re.MULTILINE)  # fmt: skip
        trace = json.loads((files / "trace.json").read_text())
        names = {event["name"] for event in trace["traceEvents"]}
        assert {"main", "clitest.matmul", "vm.builtin.match_shape"} <= names
        data = run(*with_kernels(*args, "--json")).json
        assert data["profile"]["runs"] == 2

    @pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
    def test_a_device_without_end(self, run: Cli) -> None:
        got = run("inspect", "/dev/zero", code=Exit.MALFORMED)
        assert "/dev/zero: bad executable (header: expected the magic" in got.err

    def test_stdin(self, run: Cli, files: Path) -> None:
        data = (files / "two.vmexec").read_bytes()
        got = run("run", "-", "--function", "second", "--arg", "x=7", stdin=data)
        assert got.out == "out0  int 7\n"
        assert run("check", "-", stdin=data).out == "-: ok, runs here\n"

    def test_which_function(self, run: Cli) -> None:
        got = run("run", "two.vmexec", "--arg", "x=7", code=2)
        assert "the functions are first, second, and none of them is called main" in got.err
        got = run("run", "two.vmexec", "--function", "secund", code=2)
        assert "secund: the functions are first, second; did you mean 'second'?" in got.err

    def test_error_of_a_kernel(self, run: Cli) -> None:
        args = with_kernels("run", "fail.vmexec", "--shape", "x=2,2")
        got = run(*args, code=1)
        assert got.out == ""
        assert got.err.startswith("relaxvm: error: main: ZeroDivisionError: by nothing\n")
        assert "in main, pc 0: call clitest.fail in: %0 dst: %1" in got.err
        assert "with float32[2, 2]" in got.err
        assert "Traceback" in run(*args, "--debug", code=1).err
        error = run(*args, "--json", code=1).json["error"]
        assert error["type"] == "ZeroDivisionError"
        assert error["exit_code"] == 1

    def test_check_that_fails(self, run: Cli) -> None:
        args = ["run", "linear.vmexec", "--shape", "x=3,4", "--shape", "w=5,2"]
        got = run(*with_kernels(*args), code=1)
        assert "ErrorContext(fn=main, loc=param[1]" in got.err

    def test_limits(self, run: Cli) -> None:
        got = run("run", "loop.vmexec", "--limits", "untrusted", code=5)
        assert re.search(r"error: .*limit (fuel|wall_time)", got.err)
        error = run("run", "loop.vmexec", "--limits", "untrusted", "--json", code=5).json["error"]
        assert error["type"] == "LimitError"

    def test_untrusted_files_cannot_reach_out(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, ".invoke_debug_func", VOID, "builtins.print", "line", r0)
            asm.ret(r1)
        asm.get().save(files / "reach.vmexec")
        args = ["run", "reach.vmexec", "--arg", "x=1", "--limits", "untrusted"]
        assert "vm.builtin.invoke_debug_func" in run(*args, code=4).err
        assert run(*args[:4], code=1).err  # allowed, but the function does not exist

    def test_untrusted_files_may_use_kernels(self, run: Cli, files: Path) -> None:
        args = ["run", "identity.vmexec", "--arg", "x=1", "--limits", "untrusted"]
        assert run(*with_kernels(*args)).out == "out0  int 1\n"
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(None, "relaxvm.kernel.add", r0, r0, r0)
            asm.ret(r0)
        asm.get().save(files / "shipped.vmexec")
        args = ["run", "shipped.vmexec", "--shape", "x=2", "--limits", "untrusted"]
        code = "import sys; from relaxvm.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, *args]
        done = children.run(command, cwd=files, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_missing_functions(self, run: Cli) -> None:
        got = run("run", "missing.vmexec", "--arg", "x=1", code=4)
        assert "nowhere.add" in got.err
        assert "nowhere.multiply" in got.err
        assert "--kernels MODULE" in got.err

    def test_kernels(self, run: Cli, files: Path) -> None:
        (files / "broken.py").write_text("import relaxvm\nraise OSError('no luck')\n")
        args = ("run", "identity.vmexec", "--arg", "x=1", "--kernels")
        assert "--kernels nothing.py: no such file" in run(*args, "nothing.py", code=2).err
        assert "--kernels no.such: no such module" in run(*args, "no.such", code=2).err
        got = run(*args, "broken.py", code=1)
        assert "--kernels broken.py: importing it raised OSError: no luck" in got.err
        (files / "my_kernels.py").write_text(
            "import relaxvm\n"
            "relaxvm.register_func('clitest.identity', lambda x: x + 1, override=True)\n"
        )
        try:
            assert run(*args, "my_kernels").out == "out0  int 2\n"
        finally:
            GLOBAL.remove("clitest.identity")
            sys.modules.pop("my_kernels")
            sys.modules.pop(f"relaxvm_kernels:{(files / 'kernels.py').resolve()}", None)
            sys.path.remove(str(files))


class TestWrongInputs:
    @pytest.mark.parametrize(
        ("args", "message"),
        [
            ((), "no value for x (float32[n, 4]), w (float32[4, m]); give one with --input"),
            (("--random",), "x (float32[n, 4]) has the symbolic dimension n; set it with --dim"),
            (("--random", "--dim", "k=8"), "--dim k: not a symbolic dimension of the function, "
                                           "expected one of n, m"),
            (("--random", "--dim", "n=many"), "--dim n: expected a size, got 'many'"),
            (("--random", "--dim", "n"), "--dim: expected NAME=SIZE, got 'n'"),
            (("--arg", "y=1"), "--arg y: not a parameter, expected one of x, w"),
            (("--arg", "x=1", "--arg", "arg0=1"), "--arg arg0: the parameter x has two values"),
            (("--arg", "x={}"), "--arg x: expected a number, true, false, null, text or a list, "
                                "got an object"),
            (("--arg", "x=abc"), "--arg x: expected a JSON value"),
            (("--arg", f"x={1 << 63}"), "does not fit 64 bits"),
            (("--arg", "x=" + "[" * 100_000), "--arg x: expected a JSON value"),
            (("--arg", "x=" + "[" * 100_000 + "]" * 100_000), "--arg x: expected a JSON value"),
            (("--arg", "x=1", "--arg", "x.0=1"), "--arg x.0: there is a value for x too"),
            (("--arg", "x.0=1", "--arg", "x=1"), "--arg x: there is a value for x.0 too"),
            (("--arg", "x=1", "--shape", "x=2"), "--shape x: the parameter has a value"),
            (("--arg", f"x.{'9' * 5000}=1"), "not a parameter"),
            (("--shape", "x=2,a"), "--shape x: expected dimensions as in 2,3, got '2,a'"),
            (("--shape", "x=2:float33"), "--shape x: dtype: 'float33' is not a data type"),
            (("--shape", "x=999999999999,999999999999", "--shape", "w=1"), "no array has the "),
            (("--random", "--seed", "-1"), "--seed: expected a number >= 0, got -1"),
            (("--repeat", "0"), "--repeat: expected a number >= 1, got 0"),
        ],
    )  # fmt: skip
    def test_options(self, run: Cli, args: tuple[str, ...], message: str) -> None:
        got = run(*with_kernels("run", "linear.vmexec", *args), code=2)
        assert message in got.err
        assert got.err.startswith("relaxvm: error: ")

    def test_what_the_code_does_not_tell(self, run: Cli) -> None:
        got = run(*with_kernels("run", "identity.vmexec", "--random"), code=2)
        assert "the code does not determine what x (any) is; set it with --shape" in got.err

    def test_npz_with_a_name(self, run: Cli, files: Path) -> None:
        np.savez(files / "in.npz", x=np.ones(2))
        got = run(*with_kernels("run", "pair.vmexec", "--input", "y=in.npz"), code=2)
        assert "a name goes with an .npy file" in got.err

    def test_too_many_npy(self, run: Cli, files: Path) -> None:
        np.save(files / "x.npy", np.ones(2))
        args = with_kernels("run", "identity.vmexec", "--input", "x.npy", "--input", "x.npy")
        assert "all 1 parameters have a value" in run(*args, code=2).err

    def test_pickles_are_refused(self, run: Cli, files: Path) -> None:
        np.save(files / "pickle.npy", np.array([{}], object), allow_pickle=True)
        np.savez(files / "pickle.npz", x=np.array([{}], object))
        for name in ("pickle.npy", "pickle.npz"):
            got = run(*with_kernels("run", "identity.vmexec", "--input", name), code=3)
            assert f"{name}" in got.err
            assert "expected arrays in .npy or .npz form: it holds Python objects" in got.err

    def test_files_that_are_no_arrays(self, run: Cli, files: Path) -> None:
        (files / "text.npz").write_text("no arrays")
        (files / "empty.npy").write_bytes(b"")
        np.savez(files / "whole.npz", x=np.arange(1000))
        (files / "cut.npz").write_bytes((files / "whole.npz").read_bytes()[:300])
        for name in ("text.npz", "empty.npy", "cut.npz"):
            got = run(*with_kernels("run", "identity.vmexec", "--input", name), code=3)
            assert f"{name}: expected arrays in .npy or .npz form" in got.err
            assert "pickle" not in got.err
        got = run(*with_kernels("run", "identity.vmexec", "--input", "none.npz"), code=3)
        assert "none.npz: cannot be read: No such file or directory" in got.err


class TestParameters:
    """The parameters that `inspect` shows and --random uses."""

    def test_kinds(self) -> None:
        executable = kinds().get()
        specs = params_of(executable, executable.function("main"))
        assert [str(spec) for spec in specs] == [
            "(float32[2], int64[s0])", "int64", "bool", "Shape(s0, s1)", "str",
        ]  # fmt: skip

    def test_through_shape_of_and_copy(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, ".alloc_shape_heap", VM, 1)
            asm.op(r2, ".copy", r0)
            asm.op(None, ".check_tensor_info", r2, 2, np.dtype("int8"), "")
            asm.op(r3, ".shape_of", r2)
            asm.op(None, ".match_shape", r3, r1, 2, 1, 0, 0, 5, "")
            asm.ret(r2)
        executable = asm.get()
        assert list(map(str, params_of(executable, executable.function("main")))) == ["int8[s0, 5]"]

    def test_a_register_that_is_written_again_is_not_the_parameter(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r0, "clitest.identity", r0)
            asm.op(None, ".check_tensor_info", r0, 2, np.dtype("int8"), "")
            asm.ret(r0)
        executable = asm.get()
        assert list(map(str, params_of(executable, executable.function("main")))) == ["any"]

    def test_only_the_entry_block_counts(self) -> None:
        asm = Asm()
        with asm.func("main", params=["c", "x"]):
            asm.iff(r0, 2)
            asm.op(None, ".check_tensor_info", r1, 2, np.dtype("int8"), "")
            asm.ret(r1)
        executable = asm.get()
        specs = params_of(executable, executable.function("main"))
        assert list(map(str, specs)) == ["any", "any"]

    def test_nonsense_is_bounded(self) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            for _ in range(40):
                asm.op(r0, ".tuple_getitem", r0, 1000)
            asm.ret(r0)
        executable = asm.get()
        (spec,) = params_of(executable, executable.function("main"))
        assert len(str(spec)) < 100_000

    def test_compiled_by_tvm(self) -> None:
        pytest.importorskip("tvm")
        from tvm.script import ir as I
        from tvm.script import relax as R

        from .tvm_programs import stream

        @I.ir_module
        class Module:
            @R.function
            def main(
                x: R.Tensor(("n", 4), "float32"),
                y: R.Tensor(("n", "m"), "float16"),
                s: R.Shape(["n", "k"]),
                t: R.Tuple(R.Tensor((2,), "int32"), R.Tensor(ndim=2, dtype="bool")),
                u: R.Tensor,
            ):
                return x

        executable = relaxvm.loads(stream(Module))
        specs = params_of(executable, executable.function("main"))
        assert {spec.name: str(spec) for spec in specs} == {
            "x": "float32[n, 4]",
            "y": "float16[n, m]",
            "s": "Shape(n, k)",
            "t": "(int32[2], bool[?, ?])",
            "u": "tensor[...]",
        }


class TestInspect:
    def test_text(self, run: Cli, golden: Callable[[str, str], None]) -> None:
        golden("cli_inspect_linear.txt", run(*with_kernels("inspect", "linear.vmexec")).out)
        golden("cli_inspect_kinds.txt", run(*with_kernels("inspect", "kinds.vmexec")).out)

    def test_json(self, run: Cli, files: Path) -> None:
        data = run("inspect", "missing.vmexec", "--json").json
        assert data["verified"] is True
        assert data["file"]["bytes"] == (files / "missing.vmexec").stat().st_size
        assert data["file"]["version"] == "0.14"
        assert data["needs"] == [
            {"name": f"nowhere.{name}", "calls": 1, "available": False, "in_file": False,
             "prim_func": False, "code": False}
            for name in ("add", "multiply")
        ]  # fmt: skip
        (main,) = data["functions"]
        assert main["parameters"] == [{"name": "x", "type": "any"}]
        assert main["instructions"] == 3

    @pytest.mark.filterwarnings("ignore:.*does not contain:relaxvm.errors.RelaxVMWarning")
    def test_constants(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main"):
            for value in (np.zeros((4, 8), np.int16), Shape([2, 3]), "text", 2.5, np.dtype("int8")):
                asm.op(r0, "clitest.identity", value)
            asm.ret(r0)
        asm.get().save(files / "constants.vmexec")
        rows = run("inspect", "constants.vmexec", "--json").json["constants"]
        assert [row["value"] for row in rows] == [
            "int16[4, 8]", "Shape(2, 3)", "str 'text'", "float 2.5", "dtype int8",
        ]  # fmt: skip
        assert rows[0]["bytes"] == 64

    @pytest.mark.filterwarnings("ignore:.*does not contain:relaxvm.errors.RelaxVMWarning")
    def test_long_lists_are_cut(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main"):
            for i in range(50):
                asm.op(r0, "clitest.identity", f"text {i}")
            asm.ret(r0)
        asm.get().save(files / "long.vmexec")
        got = run("inspect", "long.vmexec").out
        assert "c[39]" in got
        assert "c[40]" not in got
        assert "... 10 more, shown with --all" in got
        assert "c[49]" in run("inspect", "long.vmexec", "--all").out

    def test_older_magic(self, run: Cli, files: Path) -> None:
        executable = two_functions().get()
        stream = bytearray(executable.to_bytes())
        scopes = position_of_scopes(executable)
        assert stream[0] == 0x1E
        stream[0] = 0x1D
        del stream[scopes : scopes + 8]
        (files / "old.vmexec").write_bytes(stream)
        data = run("inspect", "old.vmexec", "--json").json
        assert data["file"]["magic_kind"] == "older, without memory scopes"

    def test_sections(self, run: Cli, files: Path) -> None:
        data = with_sections(*SECTIONS)
        (files / "sections.vmexec").write_bytes(data)
        for name, stdin in (("sections.vmexec", None), ("-", data)):
            rows = run("inspect", name, "--json", stdin=stdin).json["sections"]
            assert [row["name"] for row in rows] == list(SECTIONS)
            for row in rows:
                section = SECTIONS[row["name"]]
                assert row["version"] == section.version
                assert row["required"] == section.required
                assert data[row["offset"] :].startswith(section.magic)
            assert sum(row["nbytes"] for row in rows) == len(data) - rows[0]["offset"]
            text = run("inspect", name, stdin=stdin).out
            size = rows[0]["nbytes"]
            shown = f"\nsections ({len(SECTIONS)}):\n  debug  version 1, optional, {size} "
            assert shown in text
        assert run("inspect", "linear.vmexec", "--json").json["sections"] == []
        assert "sections" not in run("inspect", "linear.vmexec").out

    def test_prim_funcs(self, run: Cli, files: Path) -> None:
        data = with_sections("prim_funcs")
        (files / "prim_funcs.vmexec").write_bytes(data)
        (row,) = run("inspect", "prim_funcs.vmexec", "--json").json["needs"]
        assert row == {"name": "double", "calls": 1, "available": False, "in_file": True,
                       "prim_func": True, "code": False}  # fmt: skip
        text = run("inspect", "prim_funcs.vmexec").out
        assert "needs (1, 0 missing):\n  double  1 call  in this file, a PrimFunc\n" in text
        assert run("verify", "prim_funcs.vmexec", "--json").json["ok"] is True
        at = data.index(b'"For"')
        changed = bytearray(data[: at + 1] + b"Fur" + data[at + 4 :])
        start = data.index(b"rvmprims") + 24
        changed[start : start + 32] = hashlib.sha256(changed[start + 32 :]).digest()
        (files / "changed.vmexec").write_bytes(changed)
        for untrusted in ((), ("--limits", "untrusted")):
            got = run("verify", "changed.vmexec", *untrusted, code=Exit.MALFORMED)
            assert "changed.vmexec: PrimFunc 'double' at byte " in got.err + got.out

    def test_a_file_that_breaks_rules(self, run: Cli, files: Path) -> None:
        broken(files / "broken.vmexec")
        got = run("inspect", "broken.vmexec")
        assert "verification: 1 error, see relaxvm verify" in got.out
        assert run("inspect", "broken.vmexec", "--json").json["verified"] is False


def position_of_scopes(executable: relaxvm.VMExecutable) -> int:
    """Return the position of the count of memory scopes: after header and function table."""
    size = 8 + 8 + 4 + 8
    for info in executable.functions:
        size += 4 + 8 + len(info.name.encode()) + 4 * 8 + 8
        size += sum(8 + len(name.encode()) for name in info.param_names)
    return size


def broken(path: Path) -> None:
    """Write an executable that jumps out of its function."""
    asm = two_functions()
    executable = asm.get()
    words = executable.instr_data.copy()
    last = int(executable.instr_offset[1])
    words[last : last + 2] = [3, 7]
    relaxvm.VMExecutable(
        executable.functions, executable.constants, executable.instr_offset, words
    ).save(path)


class TestDis:
    def test_text(self, run: Cli, golden: Callable[[str, str], None]) -> None:
        golden("cli_dis_linear.txt", run("dis", "linear.vmexec").out)
        golden("cli_dis_function.txt", run("dis", "linear.vmexec", "--function", "main").out)

    def test_listing_is_that_of_the_executable(self, run: Cli, files: Path) -> None:
        assert run("dis", "linear.vmexec").out == relaxvm.load(files / "linear.vmexec").as_text()

    def test_json(self, run: Cli) -> None:
        data = run("dis", "two.vmexec", "--function", "second", "--json").json
        assert data["functions"] == [
            {"name": "second", "kind": "bytecode", "start_instr": 2, "end_instr": 4}
        ]
        call, ret = data["instructions"]
        assert (call["pc"], call["op"], call["dst"]) == (2, "call", 1)
        assert call["args"] == [{"kind": "register", "value": 0}]
        assert (ret["op"], ret["result"]) == ("ret", 1)

    def test_translated(self, run: Cli, files: Path) -> None:
        vm = relaxvm.VirtualMachine(relaxvm.load(files / "two.vmexec"))
        listings = [str(vm.functions[name].translated) for name in vm.functions]
        assert run("dis", "two.vmexec", "--translated").out == "\n".join(listings)
        second = run("dis", "two.vmexec", "--translated", "--function", "second")
        assert second.out == str(vm.functions["second"].translated)

    def test_translated_as_json(self, run: Cli) -> None:
        data = run("dis", "two.vmexec", "--translated", "--function", "second", "--json").json
        assert data["functions"] == ["second"]
        copy, ret = data["operations"]
        assert copy == {
            "function": "second", "position": 0, "pc": 2, "part": "main", "op": "copy",
            "operands": {"dst": "%1", "value": "%0"},
        }  # fmt: skip
        assert (ret["pc"], ret["op"]) == (3, "ret")

    def test_translated_of_functions_that_are_missing(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main", 1):
            asm.op(r1, "nobody.has_this", r0)
            asm.ret(r1)
        asm.get().save(files / "missing.vmexec")
        out = run("dis", "missing.vmexec", "--translated").out
        assert "callee=f[nobody.has_this]" in out

    def test_translated_goes_with_function_and_kernels_alone(self, run: Cli) -> None:
        for other in ("--complete", "--python", "--source"):
            got = run("dis", "two.vmexec", "--translated", other, code=2)
            assert "--translated: not allowed with" in got.err
        got = run("dis", "two.vmexec", "--kernels", "x", code=2)
        assert "--kernels: goes with --translated" in got.err
        got = run("dis", "two.vmexec", "--translated", "--function", "vm.builtin.copy", code=2)
        assert "--function vm.builtin.copy: it is a packed function, and has no code" in got.err

    def test_python(self, run: Cli, files: Path) -> None:
        source = run("dis", "linear.vmexec", "--python").out
        scope: dict[str, Any] = {}
        exec(compile(source, "rebuild.py", "exec"), scope)
        assert scope["ex"] == relaxvm.load(files / "linear.vmexec")
        assert run("dis", "linear.vmexec", "--python", "--json").json["python"] == source

    def test_python_with_constants_beside(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main"):
            asm.op(r0, ".copy", np.arange(1000))
            asm.ret(r0)
        asm.get().save(files / "large.vmexec")
        source = run("dis", "large.vmexec", "--python", "--npz", "large.npz").out
        assert len(source) < 2000
        scope: dict[str, Any] = {}
        exec(compile(source, "rebuild.py", "exec"), scope)
        assert scope["ex"] == asm.get()
        args = ("dis", "large.vmexec", "--python", "--npz", "no/such/folder.npz")
        assert "cannot be written" in run(*args, code=1).err
        assert "--npz: goes with --python" in run("dis", "large.vmexec", "--npz", "x", code=2).err

    def test_unknown_function(self, run: Cli) -> None:
        got = run("dis", "two.vmexec", "--function", "frist", code=2)
        assert "frist: the executable has no such function; did you mean 'first'?" in got.err

    def test_packed_function(self, run: Cli) -> None:
        assert run("dis", "two.vmexec", "--function", "vm.builtin.copy").out == (
            "@vm.builtin.copy packed\n"
        )

    def test_a_file_that_breaks_rules(self, run: Cli, files: Path) -> None:
        broken(files / "broken.vmexec")
        got = run("dis", "broken.vmexec")
        assert "goto 7" in " ".join(got.out.split())
        assert "1 errors, see relaxvm verify" in got.err
        for form in ("--complete", "--python"):
            assert "jump-target" in run("dis", "broken.vmexec", form, code=1).err
        assert len(run("dis", "broken.vmexec", "--json").json["instructions"]) == 4

    def test_names_cannot_reach_the_terminal(self, run: Cli) -> None:
        for command in ("dis", "inspect", "verify"):
            out = run(command, "strange.vmexec").out
            assert "\x1b" not in out
            assert "\u202e" not in out
        assert "\\x1b[2J" in run("dis", "strange.vmexec").out
        run("run", "strange.vmexec", "--arg", "x=1", code=4)


class TestAsm:
    def test_round_trip(self, run: Cli, files: Path) -> None:
        listing = run("dis", "linear.vmexec", "--complete").out
        (files / "linear.txt").write_text(listing, encoding="utf-8")
        got = run("asm", "linear.txt", "-o", "again.vmexec", "--json")
        assert (files / "again.vmexec").read_bytes() == (files / "linear.vmexec").read_bytes()
        assert got.json["bytes"] == (files / "again.vmexec").stat().st_size

    def test_pipes(self, files: Path) -> None:
        listing = command("dis", files / "linear.vmexec", "--complete")
        again = command("asm", "-", "-o", "-", stdin=listing)
        assert again == (files / "linear.vmexec").read_bytes()

    def test_what_is_wrong_and_where(self, run: Cli, files: Path) -> None:
        (files / "bad.txt").write_text("@main:\n  call nothing\n")
        got = run("asm", "bad.txt", "-o", "no.vmexec", code=3)
        assert "bad.txt:2" in got.err
        assert "^" in got.err
        assert not (files / "no.vmexec").exists()
        (files / "latin.txt").write_bytes(b"@m\xe4in:\n")
        got = run("asm", "latin.txt", "-o", "no.vmexec", code=3)
        assert "latin.txt: expected UTF-8 text, got byte 0xe4 at position 2" in got.err
        assert "no.txt: cannot be read" in run("asm", "no.txt", "-o", "no.vmexec", code=3).err

    def test_verification(self, run: Cli, files: Path) -> None:
        listing = relaxvm.load(files / "two.vmexec").as_text(complete=True)
        assert "vm.builtin.copy in: %0 " in " ".join(listing.split()) + " "
        (files / "arity.txt").write_text(
            re.sub(r"(call +vm\.builtin\.copy +in: %0)( +dst)", r"\1, %0\2", listing, count=1)
        )
        got = run("asm", "arity.txt", "-o", "arity.vmexec", code=1)
        assert "vm.builtin.copy" in got.err
        assert not (files / "arity.vmexec").exists()
        run("asm", "arity.txt", "-o", "arity.vmexec", "--no-verify")
        run("verify", "arity.vmexec", code=1)

    def test_output(self, run: Cli, files: Path) -> None:
        assert "required" in run("asm", "x.txt", code=2).err
        got = run("asm", "x.txt", "-o", "-", "--json", code=2)
        assert "with --json it is used for the result" in got.err


    def test_what_only_text_can_hold(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main"):
            asm.op(r0, ".make_tuple", None, True)
            asm.ret(r0)
        (files / "none.txt").write_text(asm.get().as_text(complete=True))
        got = run("asm", "none.txt", "-o", "none.vmexec", code=1)
        assert "None cannot be stored in TVM's stream" in got.err
        assert run("run", "none.txt").out == "out0  None\nout1  bool True\n"


class TestListings:
    """A complete listing instead of a binary file."""

    def test_every_command(self, run: Cli, files: Path) -> None:
        listing = run("dis", "two.vmexec", "--complete").out
        (files / "two.txt").write_text(listing)
        assert run("dis", "two.txt", "--complete").out == listing
        assert run("verify", "two.txt").out.startswith("two.txt: ")
        assert run("run", "two.txt", "--function", "first", "--arg", "x=3").out == "out0  int 3\n"
        data = run("inspect", "-", "--json", stdin=listing.encode()).json
        assert data["file"]["form"] == "text"
        assert data["file"]["bytes"] == len(listing)
        assert "<stdin>: " in run("inspect", "-", stdin=listing.encode()).out

    def test_what_is_wrong(self, run: Cli, files: Path) -> None:
        header = "relaxvm text 1\n\n@main num_inputs=1 registers=2:\n"
        (files / "bad.txt").write_text(header + "  call\n")
        assert "bad.txt:4" in run("verify", "bad.txt", code=3).err
        (files / "future.txt").write_text("relaxvm text 99\n")
        assert "future.txt:1" in run("dis", "future.txt", code=3).err


class TestVerify:
    def test_good(self, run: Cli) -> None:
        got = run("verify", "two.vmexec")
        assert got.out == "two.vmexec: 3 functions, 4 instructions: 0 errors, 0 warnings\n"

    def test_problems(self, run: Cli, files: Path) -> None:
        broken(files / "broken.vmexec")
        got = run("verify", "broken.vmexec", code=1)
        assert "broken.vmexec: error[jump-target] first, pc 1: " in got.out
        data = run("verify", "broken.vmexec", "--json", code=1).json
        assert data["ok"] is False
        assert data["files"][0]["problems"][0]["rule"] == "jump-target"

    def test_warnings(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.go(2)
            asm.op(r0, ".copy", r0)  # unreachable
            asm.ret(r0)
        asm.get().save(files / "warning.vmexec")
        assert "warning[" in run("verify", "warning.vmexec").out
        run("verify", "warning.vmexec", "--strict", code=1)

    def test_many_files(self, run: Cli, files: Path) -> None:
        broken(files / "broken.vmexec")
        (files / "cut.vmexec").write_bytes((files / "two.vmexec").read_bytes()[:100])
        got = run("verify", "two.vmexec", "broken.vmexec", "cut.vmexec", "none.vmexec", code=3)
        assert [line.split(":")[0] for line in got.out.splitlines()] == [
            "two.vmexec", "broken.vmexec", "broken.vmexec", "cut.vmexec", "none.vmexec",
        ]  # fmt: skip
        data = run("verify", "two.vmexec", "cut.vmexec", "--json", code=3).json
        assert [row["ok"] for row in data["files"]] == [True, False]

    def test_malformed(self, run: Cli, files: Path) -> None:
        data = (files / "linear.vmexec").read_bytes()
        contents = {"empty": b"", "magic": b"x" * 100, "cut": data[:-1], "more": data + b"x"}
        for name, content in contents.items():
            (files / f"{name}.vmexec").write_bytes(content)
            for which in ("verify", "inspect", "dis", "run"):
                got = run(which, f"{name}.vmexec", code=3)
                assert got.err.startswith(f"relaxvm: error: {name}.vmexec: ")
                assert got.out == ""
            error = run("verify", f"{name}.vmexec", "--json", code=3).json["error"]
            assert error["exit_code"] == 3

    def test_limits(self, run: Cli, files: Path) -> None:
        asm = Asm()
        with asm.func("main"):
            for _ in range(1025):
                asm.op(r0, ".make_tuple", *[r0] * 0)
            asm.op(r0, ".make_tuple", *range(1025))
            asm.ret(r0)
        asm.get().save(files / "wide.vmexec")
        run("verify", "wide.vmexec")
        assert "call_args" in run("verify", "wide.vmexec", "--limits", "untrusted", code=5).err

    def test_signatures_of_kernels(self, run: Cli, files: Path) -> None:
        (files / "signed.py").write_text(
            "import relaxvm\n"
            "relaxvm.register_func('clitest.signed', len, override=True, signature='x: tensor')\n"
        )
        asm = Asm()
        with asm.func("main", params=["x"]):
            asm.op(r1, "clitest.signed", r0, r0)
            asm.ret(r1)
        asm.get().save(files / "signed.vmexec")
        try:
            run("verify", "signed.vmexec")
            run("verify", "signed.vmexec", "--kernels", "signed.py", code=1)
        finally:
            GLOBAL.remove("clitest.signed")

    def test_a_folder_and_a_missing_file(self, run: Cli) -> None:
        assert ".: cannot be read: Is a directory" in run("verify", ".", code=3).err
        got = run("verify", "none.vmexec", code=3)
        assert "none.vmexec: cannot be read: No such file or directory" in got.err


class TestBench:
    def test_figures(self, run: Cli) -> None:
        args = ["bench", "two.vmexec", "--function", "first", "--arg", "x=1",
                "--rounds", "3", "--number", "5"]  # fmt: skip
        got = run(*args)
        assert re.fullmatch(
            r"first: min [\d.]+ \w+, median .* per call \(3 rounds of 5 calls\)\n", got.out
        )
        data = run(*args, "--json").json
        assert len(data["rounds_ns"]) == 3
        assert data["min_ns"] <= data["median_ns"] <= data["max_ns"]

    def test_number_of_calls_is_found(self, run: Cli) -> None:
        data = run("bench", "two.vmexec", "--function", "first", "--arg", "x=1", "--rounds", "1",
                   "--json").json  # fmt: skip
        assert data["calls_per_round"] > 1

    def test_wrong(self, run: Cli) -> None:
        args = ("bench", "two.vmexec", "--function", "first", "--arg", "x=1")
        assert "--rounds: expected a number >= 1" in run(*args, "--rounds", "0", code=2).err
        assert "--number: expected a number >= 1" in run(*args, "--number", "0", code=2).err
        run(*with_kernels("bench", "fail.vmexec", "--shape", "x=2"), code=1)

    def test_suite(self, run: Cli) -> None:
        got = run("bench", "--suite", "dispatch", "--rounds", "1")
        assert re.search(r"^make_tuple of two +[\d.]+$", got.out, re.MULTILINE)
        assert re.search(r"^entry, 16 arguments +[\d.]+$", got.out, re.MULTILINE)
        args = ("bench", "--suite", "dispatch", "--rounds", "1", "--only", "entry")
        data = run(*args, "--json").json
        assert [row["name"] for row in data["rows"]] == [
            "entry, 1 argument", "entry, 4 arguments", "entry, 16 arguments"
        ]  # fmt: skip
        assert all(row["ns"] > 0 for row in data["rows"])

    def test_wrong_suite(self, run: Cli) -> None:
        assert "expected either FILE or --suite" in run("bench", code=2).err
        both = run("bench", "two.vmexec", "--suite", "dispatch", code=2)
        assert "expected either FILE or --suite" in both.err
        none = run("bench", "--suite", "dispatch", "--only", "nothing", code=2)
        assert "no program named like 'nothing'" in none.err


class TestProgram:
    def test_versions(self, run: Cli) -> None:
        assert re.search(r"^relaxvm +\d", run("versions").out, re.MULTILINE)
        assert run("versions", "--json").json["numpy"] == np.__version__

    def test_usage(self, run: Cli) -> None:
        assert "required: COMMAND" in run(code=2).err
        assert "invalid choice: 'fly'" in run("fly", code=2).err
        assert "unrecognized arguments: --fast" in run("verify", "x", "--fast", code=2).err
        assert "exit codes" in run("--help").out
        assert run("--version").out == f"relaxvm {relaxvm.__version__}\n"

    def test_module(self, files: Path) -> None:
        assert command("verify", files / "two.vmexec").decode().endswith("0 warnings\n")

    def test_terminal_as_input(self, run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        stdin = io.TextIOWrapper(io.BytesIO(b""))
        monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert "got a terminal" in run("inspect", "-", code=2).err

    def test_our_own_bugs(self, run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*args: Any) -> int:
            raise AttributeError("oops")

        monkeypatch.setattr("relaxvm.cli.check.versions", fail)
        got = run("versions", code=70)
        assert "this is a bug in relaxvm: AttributeError: oops" in got.err

    def test_narrow_encoding(self, files: Path) -> None:
        asm = Asm()
        with asm.func("größe", params=["x"]):
            asm.ret(r0)
        asm.get().save(files / "umlaut.vmexec")
        out = command("dis", files / "umlaut.vmexec", env={"PYTHONIOENCODING": "ascii"})
        assert out.startswith(b"@gr\\xf6\\xdfe:")

    def test_reader_that_goes_away(self, files: Path) -> None:
        # A previous error keeps its exit code.
        for args, code in (
            (["dis", "two.vmexec"], Exit.BROKEN_PIPE),
            (["verify", "none.vmexec", "--json"], Exit.MALFORMED),
        ):
            reader, writer = os.pipe()
            os.close(reader)
            done = children.run(
                [sys.executable, "-m", "relaxvm", args[0], str(files / args[1]), *args[2:]],
                stdout=writer, stderr=children.PIPE, check=False,
            )  # fmt: skip
            os.close(writer)
            assert done.returncode == code
            assert b"Traceback" not in done.stderr
            assert b"BrokenPipe" not in done.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    def test_full_disk(self, files: Path) -> None:
        for form in ([], ["--json"]):
            with open("/dev/full", "wb") as full:
                done = children.run(
                    [sys.executable, "-m", "relaxvm", "dis", str(files / "two.vmexec"), *form],
                    stdout=full, stderr=children.PIPE, check=False,
                )  # fmt: skip
            assert done.returncode == Exit.FAILED
            assert done.stderr == (
                b"relaxvm: error: standard output: cannot be written: No space left on device\n"
            )

    @pytest.mark.skipif(sys.platform == "win32", reason="no POSIX signals")
    def test_interrupt(self, files: Path) -> None:
        command = [sys.executable, "-m", "relaxvm", "run", files / "loop.vmexec", "--progress"]
        with children.start(command, stdout=children.PIPE, stderr=children.PIPE) as process:
            assert process.stderr is not None
            # The first line of progress shows that the program is running.
            assert process.stderr.readline().startswith(b"relaxvm: running forever, ")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=children.DEADLINE)
        assert process.returncode == Exit.INTERRUPTED
        assert out == b""
        assert b"relaxvm: error: interrupted\n  in forever, pc " in err
        assert b"Traceback" not in err


def command(*args: Any, stdin: bytes = b"", env: dict[str, str] | None = None) -> bytes:
    """Run a command in another process and return its standard output."""
    done = children.run(
        [sys.executable, "-m", "relaxvm", *map(str, args)],
        input=stdin, capture_output=True, env={**os.environ, **(env or {})}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


class Terminal(io.StringIO):
    """A stream that can be a terminal, with a way to wait for output."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        if "2 of 3" in text:
            self.written.set()
        return count


class TestProgress:
    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("SILENT", "PERIOD", "PERIOD_PLAIN"):
            monkeypatch.setattr(console_module.Progress, name, 0.001)
        monkeypatch.setenv("NO_COLOR", "1")  # with rich, a terminal with colours shows a bar

    def progress(self, stream: Terminal, *, wanted: bool) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            console = console_module.Console(as_json=False, debug=False, progress=wanted)
        with console.progress("working", 3) as progress:
            progress.step(2)
            if wanted or stream.isatty():
                assert stream.written.wait(children.DEADLINE)

    def test_terminal(self) -> None:
        stream = Terminal(terminal=True)
        self.progress(stream, wanted=False)
        assert re.search(r"\rrelaxvm: working, 2 of 3, \d+ s\x1b\[K", stream.getvalue())
        assert stream.getvalue().endswith("\r\x1b[K"), "the progress line must be erased at the end"

    def test_file(self) -> None:
        stream = Terminal(terminal=False)
        self.progress(stream, wanted=True)
        assert re.search(r"^relaxvm: working, 2 of 3, \d+ s$", stream.getvalue(), re.MULTILINE)
        assert "\r" not in stream.getvalue()

    def test_silent(self) -> None:
        stream = Terminal(terminal=False)
        self.progress(stream, wanted=False)
        time.sleep(0.05)
        assert stream.getvalue() == ""


SAVABLE = [name for name, case in CORPUS.items() if case.savable]


class TestCorpus:
    @pytest.mark.parametrize("name", SAVABLE)
    def test_every_form(self, run: Cli, files: Path, name: str) -> None:
        executable = CORPUS[name].executable
        path = files / "case.vmexec"
        executable.save(path)
        run("verify", path)
        assert run("dis", path).out == executable.as_text()
        assert run("inspect", path, "--json").json["verified"] is True
        run("inspect", path)
        run("dis", path, "--json")
        (files / "case.txt").write_text(run("dis", path, "--complete").out, encoding="utf-8")
        run("asm", "case.txt", "-o", "case2.vmexec")
        assert (files / "case2.vmexec").read_bytes() == path.read_bytes()

    def test_mutants_end_in_a_documented_way(
        self, files: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rng = np.random.default_rng(7)
        streams = [CORPUS[name].executable.to_bytes() for name in SAVABLE]
        path = files / "mutant.vmexec"
        seen = set()
        for i in range(120):
            data = bytearray(streams[i % len(streams)])
            for _ in range(rng.integers(1, 4)):
                at = int(rng.integers(len(data)))
                if rng.integers(2):
                    data[at] = int(rng.integers(256))
                else:
                    word = int(rng.choice([0, 1, 2, 7, 255, 1 << 31, 1 << 40, (1 << 63) - 1]))
                    data[at : at + 8] = word.to_bytes(8, "little")
            path.write_bytes(data)
            for which in ("inspect", "dis", "verify"):
                for form in ((), ("--json",)):
                    code = cli.main([which, str(path), "--limits", "untrusted", *form])
                    out, err = capsys.readouterr()
                    assert code in (0, 1, 3, 5), f"mutant {i}: {which} {form}: {code}\n{err}"
                    assert "Traceback" not in err
                    if form:
                        json.loads(out)
                    seen.add(code)
        assert {0, 1, 3} <= seen


class TestDocumentation:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    def test_exit_codes(self) -> None:
        rows = re.findall(r"^\| (\d+) \|", self.page, re.MULTILINE)
        assert [int(row) for row in rows] == sorted(Exit)
        listed = re.findall(r"^ +(\d+)  ", cli._EPILOG, re.MULTILINE)
        assert [int(code) for code in listed] == sorted(Exit)

    def test_every_option_is_described(self) -> None:
        (commands,) = (a for a in cli._parser()._actions
                       if isinstance(a, argparse._SubParsersAction))  # fmt: skip
        for name, parser in commands.choices.items():
            assert f"relaxvm {name}" in self.page
            for action in parser._actions:
                for option in action.option_strings:
                    if option not in ("-h", "--help", "-o", "--output"):
                        assert option in self.page, f"{name} {option}"


def test_warnings_of_programs_are_remarks(run: Cli) -> None:
    """Without a line of Python, which would be one of relaxvm; a function that is called as an
    attribute of virtual machines is none of them here."""
    script = """
        @R.function
        def cancel(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
            y = R.log(x)
            return y
    """
    relaxvm.build(module(script)).save("logs.rvm")
    np.save("zeros.npy", np.zeros(2, np.float32))
    got = run("run", "logs.rvm", "--input", "zeros.npy")
    (line,) = got.err.splitlines()
    assert line.startswith("relaxvm: warning: divide by zero encountered in log (cancel, pc ")
