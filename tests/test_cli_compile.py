"""``relaxvm compile`` and ``relaxvm decompile``, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import cli
from relaxvm.cli.exits import Exit
from relaxvm.frontend.relay import save_params

SCRIPT = '''
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
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
    def main(x: R.Tensor(("n",), "float32"), w: R.Tensor((1,), "float32")):
        n = T.int64()
        y = R.call_tir(Module.double, (x,), out_ty=R.Tensor((n,), "float32"))
        return R.add(y, w)
'''
X = np.arange(3, dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a script in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(SCRIPT)
    np.savez(tmp_path / "weights.npz", w=np.ones(1, np.float32))
    np.savez(tmp_path / "x.npz", x=X, w=np.ones(1, np.float32))
    return tmp_path


def run(*args: str) -> int:
    return cli.main(list(args))


def result(capsys: Any, *args: str) -> dict[str, Any]:
    assert run(*args, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def failure(capsys: Any, *args: str) -> tuple[int, str]:
    code = run(*args)
    return code, capsys.readouterr().err


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_compile_and_run(folder: Path, capsys: Any, mode: str) -> None:
    made = result(capsys, "compile", "model.py", "-o", "m.rvm", "--exec-mode", mode)
    assert made["file"] == "m.rvm"
    assert made["bytes"] == (folder / "m.rvm").stat().st_size
    assert made["functions"] == ["main"]
    assert "double" in made["kernels"]
    for native in ((), ("--native",)):  # by the IR in the file, by its machine code
        found = result(capsys, "run", "m.rvm", *native, "--input", "x.npz", "--output", "y.npz")
        assert found["function"] == "main"
        with np.load("y.npz") as arrays:
            np.testing.assert_array_equal(arrays["out0"], X * 2 + 1)


def test_the_output_of_compile(folder: Path, capsys: Any) -> None:
    assert run("compile", "model.py", "-o", "m.rvm") == 0
    out = capsys.readouterr().out
    assert out.startswith("m.rvm: ")
    assert "1 function, " in out
    assert "1 kernel\n" in out


def test_params_become_constants(folder: Path, capsys: Any) -> None:
    result(capsys, "compile", "model.py", "-o", "m.rvm", "--params", "weights.npz")
    vm = relaxvm.VirtualMachine(relaxvm.load("m.rvm", native=True))
    np.testing.assert_array_equal(vm["main"](X), X * 2 + 1)
    np.save("one.npy", X)
    assert run("compile", "model.py", "-o", "m.rvm", "--params", "one.npy") == Exit.USAGE
    np.savez("odd.npz", v=X)
    code, message = failure(capsys, "compile", "model.py", "-o", "m", "--params", "odd.npz")
    assert code == Exit.FAILED
    assert "'v'" in message


def test_options(folder: Path, capsys: Any) -> None:
    result(capsys, "compile", "model.py", "-o", "m", "--strip", "--no-native", "--target", "llvm",
           "--dump-ir", "passes")  # fmt: skip
    stored = relaxvm.load("m")
    assert stored.debug is None
    assert set(stored.kernels.parts) == {"kernels"}  # type: ignore[attr-defined]
    names = sorted(path.name for path in (folder / "passes").iterdir())
    assert names[0].startswith("00-")
    assert any(name.endswith("VMShapeLower.py") for name in names)
    assert run("compile", "model.py", "-o", "m", "--target", "cuda") == Exit.FAILED
    code, message = failure(capsys, "compile", "model.py", "-o", "m", "--pipeline", "defualt")
    assert code == Exit.USAGE
    assert "did you mean 'default'" in message


def test_a_lowered_program(folder: Path, capsys: Any) -> None:
    result(capsys, "compile", "model.py", "-o", "m", "--dump-ir", "passes")
    last = sorted((folder / "passes").iterdir())[-2]
    result(capsys, "compile", str(last), "-o", "again", "--pipeline", "none")
    again, first = (relaxvm.load(name) for name in ("again", "m"))
    assert again.as_text() == first.as_text()


def test_json_runs_nothing(folder: Path, capsys: Any) -> None:
    scope: dict[str, Any] = {}
    path = folder / "model.py"
    exec(compile(path.read_text(), str(path), "exec"), scope)
    (folder / "model.json").write_text(relaxvm.ir.save_json(scope["Module"]))
    result(capsys, "compile", "model.json", "-o", "m")
    assert relaxvm.load("m").has_function("main")
    (folder / "bad.json").write_text("{")
    assert run("compile", "bad.json", "-o", "m") == Exit.MALFORMED
    (folder / "dtype.json").write_text(relaxvm.ir.save_json(scope["Module"]["main"]))
    code, message = failure(capsys, "compile", "dtype.json", "-o", "m")
    assert (code, "expected an IRModule, got Function" in message) == (Exit.MALFORMED, True)


def test_which_module(folder: Path, capsys: Any) -> None:
    (folder / "two.py").write_text(
        SCRIPT.replace("class Module", "class A").replace("Module.", "A.")
        + SCRIPT.replace("class Module", "class Beta").replace("Module.", "Beta.")
    )
    code, message = failure(capsys, "compile", "two.py", "-o", "m")
    assert (code, "there are A, Beta; --entry says which" in message) == (Exit.USAGE, True)
    code, message = failure(capsys, "compile", "two.py", "-o", "m", "--entry", "Bta")
    assert (code, "did you mean 'Beta'" in message) == (Exit.USAGE, True)
    result(capsys, "compile", "two.py", "-o", "m", "--entry", "Beta")
    (folder / "none.py").write_text("x = 1\n")
    code, message = failure(capsys, "compile", "none.py", "-o", "m")
    assert (code, "there is none" in message) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("import nothing_of_that_name", Exit.MALFORMED, "ModuleNotFoundError"),
        ("def broken(:", Exit.MALFORMED, "SyntaxError"),
        (SCRIPT.replace("R.add(y, w)", "R.add(y, missing)"), Exit.MALFORMED, "bad.py:20:"),
        (
            SCRIPT.replace("return R.add(y, w)", "z = R.vm.kill_object(1, 2)\n        return y"),
            Exit.MALFORMED, "bad.py:20:",
        ),
    ],
)  # fmt: skip
def test_scripts_that_fail(
    folder: Path, capsys: Any, text: str, code: Exit, message: str
) -> None:
    (folder / "bad.py").write_text(text)
    found, words = failure(capsys, "compile", "bad.py", "-o", "m")
    assert found == code
    assert message in words
    assert not (folder / "m").exists()


def test_a_program_that_does_not_compile(folder: Path, capsys: Any) -> None:
    code, message = failure(capsys, "compile", "model.py", "-o", "m", "--pipeline", "none")
    assert code == Exit.FAILED
    assert "no pass has lowered it" in message
    assert "function 'main'" in message


def test_files_that_are_not_there(folder: Path, capsys: Any) -> None:
    assert run("compile", "nothing.py", "-o", "m") == Exit.MALFORMED
    assert run("compile", "nothing.json", "-o", "m") == Exit.MALFORMED
    assert run("compile", "model.py", "-o", "no/folder/m") == Exit.FAILED
    code, message = failure(capsys, "compile", "weights.npz", "-o", "m")
    assert "expected a .py, .onnx, .pt2, .json or .relay file; this is a zip" in message
    assert code == Exit.USAGE
    assert run("compile", "model.py") == Exit.USAGE


def test_decompile(folder: Path, capsys: Any) -> None:
    run("compile", "model.py", "-o", "m")
    capsys.readouterr()
    assert run("decompile", "m") == 0
    assert capsys.readouterr().out == relaxvm.decompile(relaxvm.load("m"))
    text = result(capsys, "decompile", "m", "--function", "main", "--limits", "untrusted")["text"]
    assert "def main(" in text
    code, message = failure(capsys, "decompile", "m", "--function", "mian")
    assert (code, "did you mean 'main'" in message) == (Exit.USAGE, True)
    (folder / "bad").write_bytes(b"nonsense")
    assert run("decompile", "bad") == Exit.MALFORMED


def test_inspect_says_what_the_file_holds(folder: Path, capsys: Any) -> None:
    run("compile", "model.py", "-o", "m")
    capsys.readouterr()
    assert run("inspect", "m") == 0
    shown = capsys.readouterr().out
    assert "double  1 call  in this file, a PrimFunc, and code for --native" in shown
    needs = {row["name"]: row for row in result(capsys, "inspect", "m")["needs"]}
    assert needs["double"]["in_file"]
    assert not needs["relaxvm.kernel.add"]["in_file"]


def test_a_library_for_tvm(folder: Path, capsys: Any) -> None:
    code, message = failure(capsys, "compile", "model.py", "-o", "m.so", "--for-tvm")
    assert code == Exit.MISSING
    assert "TVM would lack" in message
    code, message = failure(capsys, "compile", "model.py", "-o", "m.rvm", "--for-tvm")
    assert (code, "paths that end in .so" in message) == (Exit.USAGE, True)


RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(2,), float32], %w: Tensor[(2,), float32]) { add(%x, %w) }
"""


def test_relay_programs(folder: Path, capsys: Any) -> None:
    (folder / "model.relay").write_text(RELAY)
    weights = np.array([1, 2], np.float32)
    (folder / "w.params").write_bytes(save_params({"w": weights}))
    for more in ([], ["--limits", "untrusted"]):
        result(capsys, "compile", "model.relay", "-o", "m", "--params", "w.params", *more)
        machine = relaxvm.VirtualMachine(relaxvm.load("m", native=True))
        np.testing.assert_array_equal(machine["main"](weights), weights * 2)
    (folder / "bad.relay").write_text(RELAY.replace("%w)", "%v)"))
    code, message = failure(capsys, "compile", "bad.relay", "-o", "m")
    assert code == Exit.MALFORMED
    assert "bad.relay:2:75: unknown variable %v" in message
    (folder / "bad.params").write_bytes(b"\0" * 24)
    code, message = failure(capsys, "compile", "model.relay", "-o", "m", "--params", "bad.params")
    assert code == Exit.MALFORMED
    assert "bad.params: expected the magic 0xf7e58d4f05049cb7" in message
    assert run("compile", "none.relay", "-o", "m") == Exit.MALFORMED
