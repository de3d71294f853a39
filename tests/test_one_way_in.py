"""Programs in files of any kind: compiled, loaded, checked; with the names of the model."""

from __future__ import annotations

import inspect
import json
import pydoc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.cli import main
from relaxvm.cli.exits import Exit
from relaxvm.errors import FormatError
from relaxvm.executable.file_kinds import KINDS, kind_of
from relaxvm.ir.json import save_json
from relaxvm.script import ir as I
from relaxvm.script import relax as R

from .test_onnx import FLOAT, model_of, node

SCRIPT = """
from pathlib import Path
from relaxvm.script import ir as I, relax as R

Path("has run").touch()


@I.ir_module
class Twice:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)
"""
RELAY = """#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32]) { add(%x, %x) }
"""
X = np.array([1, -2], "float32")


@I.ir_module
class Twice:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        return R.add(x, x)


def model(operator: str = "Neg") -> bytes:
    nodes = [node("Abs", "a:0", "h.1"), node(operator, "h.1", "out/1")]
    made = model_of(nodes, {"a:0": (FLOAT, ["batch"])}, ["h.1", "out/1"])
    data: bytes = made.SerializeToString()
    return data


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(model())
    (tmp_path / "odd.onnx").write_bytes(model("Nothing"))
    (tmp_path / "twice.py").write_text(SCRIPT)
    (tmp_path / "twice.json").write_text(save_json(Twice))
    (tmp_path / "twice.relay").write_text(RELAY)
    return tmp_path


@pytest.mark.parametrize("name", ["twice.py", "twice.json", "twice.relay"])
def test_compile_takes_files(folder: Path, name: str) -> None:
    executable = relaxvm.compile(name)
    assert relaxvm.VirtualMachine(executable).main(X).tolist() == [2, -4]
    assert relaxvm.build(folder / name) == executable


def test_compile_takes_bytes_and_messages(folder: Path) -> None:
    for source in (model(), bytearray(model()), save_json(Twice).encode(), RELAY.encode()):
        assert relaxvm.VirtualMachine(relaxvm.compile(source)).main(X) is not None
    onnx = pytest.importorskip("onnx")
    made = relaxvm.compile(onnx.load_model_from_string(model()))
    assert made == relaxvm.compile("model.onnx")


def test_options_of_the_importer(folder: Path) -> None:
    own = {("", "Nothing"): lambda g, x: g.op("add", x, x)}
    vm = relaxvm.VirtualMachine(relaxvm.compile("odd.onnx", operators=own))
    assert vm.main(X)[1].tolist() == [2, 4]
    with pytest.raises(TypeError, match=r"compile: opset: for ONNX models and .*this is a Relay"):
        relaxvm.compile("twice.relay", opset=7)
    with pytest.raises(TypeError, match="compile: entry: for Python scripts, and this is an ONNX"):
        relaxvm.compile("model.onnx", entry="Twice")
    with pytest.raises(ValueError, match=r"None: expected|Nope: expected an IRModule of .*Twice"):
        relaxvm.compile("twice.py", entry="Nope")
    with pytest.raises(TypeError, match=r"expected an IRModule or a function, the path .* got int"):
        relaxvm.compile(5)


def test_a_machine_compiles_what_is_data_and_runs_no_script(folder: Path) -> None:
    for name in ("model.onnx", "twice.json", "twice.relay"):
        assert relaxvm.VirtualMachine(name).main(X) is not None
    relaxvm.compile(Twice).save("twice.vmexec")
    assert relaxvm.VirtualMachine(folder / "twice.vmexec").main(X).tolist() == [2, -4]
    with pytest.raises(ValueError, match="reading a Python script runs it"):
        relaxvm.VirtualMachine("twice.py")
    for command in ("run", "check", "inspect", "dis", "bench"):
        assert main([command, "twice.py"]) == Exit.USAGE
    assert not Path("has run").exists()
    with pytest.raises(ValueError, match="without limits for programs of unknown origin"):
        relaxvm.compile("twice.py", limits=relaxvm.Limits.untrusted())
    assert not Path("has run").exists()
    relaxvm.compile("twice.py")
    assert Path("has run").exists()


def test_a_script_that_fails(folder: Path) -> None:
    Path("bad.py").write_text("1 / 0")
    with pytest.raises(FormatError, match=r"bad\.py: running it raised ZeroDivisionError"):
        relaxvm.compile("bad.py")
    Path("none.py").write_text("x = 1")
    with pytest.raises(ValueError, match=r"none\.py: expected an IRModule, there is none"):
        relaxvm.compile("none.py")


@pytest.mark.parametrize(
    ("name", "text"),
    [("model.onnx", "an ONNX model: relaxvm.compile"), ("twice.py", "a Python script"),
     ("twice.json", "JSON"), ("twice.relay", "a Relay program")],
)  # fmt: skip
def test_load_says_what_a_file_is(folder: Path, name: str, text: str) -> None:
    for source in (name, Path(name), open(name, "rb")):  # noqa: SIM115  (load reads it)
        with pytest.raises(FormatError, match=f"this is {text}"):
            relaxvm.load(source)


def test_kinds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", x=X)
    relaxvm.compile(Twice).save(tmp_path / "x")
    heads = {
        "npy": (tmp_path / "x.npy").read_bytes(), "zip": (tmp_path / "x.npz").read_bytes(),
        "executable": (tmp_path / "x").read_bytes(), "onnx": model(), "json": b' {"a": 1}',
        "listing": relaxvm.compile(Twice).as_text(complete=True).encode(), "empty": b"",
        "tflite": b"\x1c\0\0\0TFL3", "gguf": b"GGUF\3", "relay": RELAY.encode(),
    }  # fmt: skip
    for name, head in heads.items():
        assert kind_of(head[:64]) is KINDS[name]
    assert kind_of(b"some text") is None


def test_unknown_arguments(folder: Path) -> None:
    for program, name, hint in (
        ("model.onnx", "shape_dic", "did you mean 'shape_dict'.*; for this program there are"),
        (Twice, "exec_mod", "did you mean 'exec_mode'.*; it takes target, params"),
    ):
        with pytest.raises(TypeError, match=f"compile: .*{name}.*{hint}"):
            relaxvm.compile(program, **{name: 1})


# Names


def test_names_of_the_model(folder: Path) -> None:
    for executable in (
        relaxvm.compile("model.onnx"),
        relaxvm.loads(relaxvm.compile("model.onnx").to_bytes()),
    ):
        vm = relaxvm.VirtualMachine(executable)
        assert vm.main.input_names == ("a:0",)
        assert vm.main.output_names == ("h.1", "out/1")
        assert str(inspect.signature(vm.main)).startswith("(a_0: 'float32[")
        for result in (vm.main(X), vm.main(a_0=X), vm.main(**{"a:0": X})):
            assert [each.tolist() for each in result] == [[1, 2], [-1, -2]]
        vm.set_input("main", **{"a:0": X})
        vm.invoke_stateful("main")
        assert vm.get_outputs("main")[0].tolist() == [1, 2]
        with pytest.raises(TypeError, match="unexpected keyword 'b'"):
            vm.main(b=X)
    plain = relaxvm.VirtualMachine(relaxvm.compile(Twice)).main
    assert (plain.input_names, plain.output_names) == ((), ())


def test_bound_inputs_have_no_names(folder: Path) -> None:
    nodes = [node("Add", "a:0 b:0", "sum")]
    made = model_of(nodes, {"a:0": (FLOAT, [2]), "b:0": (FLOAT, [2])}, ["sum"])
    vm = relaxvm.VirtualMachine(relaxvm.compile(made, params={"a_0": X}))
    assert vm.main.input_names == ("b:0",)
    assert vm.main(**{"b:0": X}).tolist() == [2, -4]


def test_help(folder: Path) -> None:
    text = pydoc.render_doc(relaxvm.VirtualMachine("model.onnx").main, renderer=pydoc.plaintext)
    for expected in ("main(a_0) -> h.1, out/1", "a_0: float32[batch], 'a:0' in the model",
                     "The result is a tuple of 2 values."):  # fmt: skip
        assert expected in text


# The command line


def test_run_names_inputs_and_outputs(folder: Path, capsys: Any) -> None:
    assert main(["run", "model.onnx", "--random", "--dim", "batch=4", "--output", "o.npz"]) == 0
    out = capsys.readouterr().out
    assert "h.1  float32[4]" in out
    assert "out/1  float32[4]" in out
    with np.load("o.npz") as arrays:
        assert set(arrays) == {"h.1", "out/1"}
    np.save("x.npy", X)
    assert main(["run", "model.onnx", "--input", "a:0=x.npy", "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert [each["name"] for each in outputs] == ["h.1", "out/1"]


def test_a_number_for_a_tensor_without_dimensions(folder: Path, capsys: Any) -> None:
    made = model_of([node("Neg", "x", "y")], {"x": (FLOAT, [])}, ["y"])
    Path("scalar.onnx").write_bytes(made.SerializeToString())
    assert main(["run", "scalar.onnx", "--arg", "x=2"]) == 0
    assert "-2" in capsys.readouterr().out


def checked(capsys: Any, *files: str) -> tuple[int, dict[str, Any]]:
    code = main(["check", *files, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_check_lists_all_nodes(folder: Path, capsys: Any) -> None:
    nodes = [node("Nothing", "x", "a"), node("Neg", "a", "b"), node("Other", "b", "c")]
    made = model_of(nodes, {"x": (FLOAT, ["n"])}, ["c"])
    Path("bad.onnx").write_bytes(made.SerializeToString())
    assert main(["check", "bad.onnx"]) == Exit.FAILED
    out = capsys.readouterr().out
    for name, operator in (("a", "Nothing"), ("c", "Other")):
        assert f"'{name}': ai.onnx.{operator}, version" in out
    code, found = checked(capsys, "bad.onnx")
    (row,) = found["files"]
    assert (code, row["ok"], row["exit_code"]) == (Exit.FAILED, False, Exit.FAILED)
    assert [each["operator"] for each in row["unsupported"]] == ["Nothing", "Other"]
    assert row["nodes"] == 3


def test_check_of_good_and_bad_files(folder: Path, capsys: Any) -> None:
    relaxvm.compile(Twice).save("twice.vmexec")
    code, found = checked(capsys, "model.onnx", "twice.vmexec", "twice.relay", "twice.json")
    assert code == Exit.OK
    assert all(row["ok"] for row in found["files"])
    Path("broken.onnx").write_bytes(b"\x08")
    code, found = checked(capsys, "model.onnx", "broken.onnx", "none.onnx")
    assert code == Exit.MALFORMED
    assert [row["exit_code"] for row in found["files"]] == [0, 3, 3]


def test_check_of_models_that_do_not_compile(folder: Path, capsys: Any) -> None:
    made = model_of([node("Neg", "x", "y", nonsense=1)], {"x": (FLOAT, [2])}, ["y"])
    Path("bad.onnx").write_bytes(made.SerializeToString())
    code, found = checked(capsys, "bad.onnx")
    assert code == Exit.FAILED
    assert "attribute 'nonsense' is not supported" in found["files"][0]["error"]


def test_check_of_missing_functions(folder: Path, capsys: Any) -> None:
    @I.ir_module
    class Needs:
        @R.function(pure=False)
        def main(x: R.Tensor((2,), "float32")):
            return R.call_packed("test.nobody.has.this", x, ty_args=R.Any)

    relaxvm.compile(Needs).save("needs.vmexec", debug=False)
    code, found = checked(capsys, "needs.vmexec")
    assert code == Exit.MISSING
    assert found["files"][0]["missing"] == ["test.nobody.has.this"]
