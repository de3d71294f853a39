"""``relaxvm compare``: values of nodes here and in another package."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.cli import main
from relaxvm.contrib import compare as package
from relaxvm.contrib.compare import compare, values_of
from relaxvm.contrib.compare.others import Batches, Reference
from relaxvm.errors import MissingExtraError, RelaxVMError
from relaxvm.frontend.torch import from_exported_program

from .torch_fixtures import load

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model of four nodes, one with a graph inside and one with two results."""
    then = helper.make_graph(
        [helper.make_node("Neg", ["h"], ["n"])], "then", [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Abs", ["h"], ["m"])], "else", [],
        [helper.make_tensor_value_info("m", TensorProto.FLOAT, None)],
    )  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["h"], name="plus"),
            helper.make_node("Split", ["h"], ["a", "b"], axis=0, num_outputs=2),
            helper.make_node("If", ["flag"], ["c"], then_branch=then, else_branch=other),
            helper.make_node("Sub", ["c", "h"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3]),
         helper.make_tensor_value_info("flag", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.arange(3, dtype="float32"), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


class Wrong(Reference):
    """A package with an error in the node Split."""

    def values(self) -> Iterator[tuple[str, Any]]:
        for name, value in super().values():
            if name == "b":
                value = value.copy()
                value[0, 1] += 1
            yield name, value


INPUTS = [np.arange(12, dtype="float32").reshape(4, 3), np.array(True)]


def test_the_values_of_a_model(path: Path) -> None:
    assert [(each.name, each.node) for each in values_of(path)] == [
        ("h", "node plus (Add)"), ("a", "node 1 (Split)"), ("b", "node 1 (Split)"),
        ("c", "node 2 (If)"), ("y", "node 3 (Sub)"),
    ]  # fmt: skip


def test_statistics_of_a_model_that_is_not_trained(tmp_path: Path) -> None:
    """onnx's reference takes BatchNormalization of versions 9 to 13 for training."""
    constants = [
        onnx.numpy_helper.from_array(np.array(values, np.float32), name)
        for name, values in {"s": [1, 2], "b": [0, 3], "m": [5, 6], "v": [4, 9]}.items()
    ]
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    inputs = [np.arange(12, dtype=np.float32).reshape(2, 2, 3)]
    (found,) = compare(tmp_path / "model.onnx", "reference", inputs)
    assert not found.problem


@pytest.mark.parametrize("count", [1, 2, 16])
def test_equal_values(path: Path, count: int) -> None:
    found = list(compare(path, "reference", INPUTS, count=count))
    assert [each.value.name for each in found] == ["h", "a", "b", "c", "y"]
    assert all(not each.problem and each.distance == 0 for each in found)


def test_onnxruntime_has_equal_values(path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert not any(each.problem for each in compare(path, "onnxruntime", INPUTS, count=2))


def test_the_values_of_an_archive(tmp_path: Path) -> None:
    fixture = load("writing")
    path = tmp_path / "model.pt2"
    path.write_bytes(fixture.archive)
    names = [each.name for each in values_of(path)]
    module = from_exported_program(path, flat=True, extra_outputs=names)
    result, found = relaxvm.VirtualMachine(relaxvm.compile(module))["main"](*fixture.calls[0].args)
    np.testing.assert_array_equal(found[names.index("relu_")] >= 0, True)
    np.testing.assert_allclose(result[0], fixture.calls[0].result[0], rtol=1e-5)
    with pytest.raises(RelaxVMError, match="no node makes a tensor 'nothing'"):
        from_exported_program(path, extra_outputs=["nothing"])
    pytest.importorskip("torch")
    inputs = list(fixture.calls[0].args)
    assert not any(each.problem for each in compare(path, "torch", inputs, count=3))


def test_the_first_value_that_differs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(package.OTHERS, "reference", Wrong)
    args = ["compare", str(path), "--with", "reference", "--random", "--dim", "n=4"]
    assert main(args) == 1
    out = capsys.readouterr().out
    assert "b, of node 1 (Split): 1 of 6 elements differ by up to" in out
    assert "at [0, 1]: " in out
    assert "2 of 5 values are equal" in out
    assert main([*args, "--all", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["value"] for each in found["different"]] == ["b"]
    assert found["equal"] == 4
    assert main([*args, "--within", "1e9"]) == 0


def off(g: Any, x: Any) -> Any:
    """A negation that is off by a hundredth."""
    return g.op("add", g.op("negative", x), np.array(0.01, "float32"))


def test_an_operator_of_the_user_is_to_blame(path: Path) -> None:
    inputs = [INPUTS[0] + 1, INPUTS[1]]
    wrong = {("", "Neg"): off}
    found = [each for each in compare(path, "reference", inputs, operators=wrong) if each.problem]
    assert [each.value.name for each in found] == ["c", "y"]
    assert found[0].value.node == "node 2 (If)"
    assert "12 of 12 elements differ by up to 0.01" in found[0].problem


def test_a_module_of_the_user_is_imported(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernels.py").write_text("raise RuntimeError('imported')")
    args = ["compare", str(path), "--with", "reference", "--random", "--dim", "n=4"]
    assert main([*args, "--kernels", str(tmp_path / "kernels.py")]) == 1
    assert "importing it raised RuntimeError: imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [["--function", "f"], ["--native"], ["--executor", "dataflow"], ["--threads", "2"],
     ["--rtol", "1"], ["--atol", "1"]],
)  # fmt: skip
def test_options_for_two_programs(
    path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["compare", str(path), "--with", "reference", "--random", "--dim", "n=4"]
    assert main([*args, *option]) == 2
    assert f"{option[0]}: it is for a comparison of two programs" in capsys.readouterr().err


def test_texts_are_equal_whatever_their_data_type(tmp_path: Path) -> None:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    inputs = [np.array(["ab", "cd"], object)]
    (found,) = compare(tmp_path / "model.onnx", "reference", inputs)
    assert not found.problem


def test_what_cannot_be_compared(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RelaxVMError, match="expected onnxruntime or reference to compare with"):
        list(compare(path, "torch", INPUTS))
    (tmp_path / "text").write_text("x")
    with pytest.raises(RelaxVMError, match=r"expected an \.onnx or a \.pt2 file"):
        list(compare(tmp_path / "text", "reference", INPUTS))
    args = ["compare", str(path), "--with", "torch", "--random", "--dim", "n=4"]
    assert main(args) == 1
    assert "expected onnxruntime or reference" in capsys.readouterr().err
    assert main(["compare", str(path), "--with", "reference", "--within", "-1"]) == 2


def test_a_package_that_is_not_installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match="comparing needs the package onnxruntime"):
        list(compare(path, "onnxruntime", INPUTS))


def test_unknown_extra_outputs_are_named(path: Path) -> None:
    from relaxvm.frontend.onnx import from_onnx

    with pytest.raises(RelaxVMError, match="nothing"):
        from_onnx(str(path), extra_outputs=["nothing"])


def test_more_values_at_a_time_while_they_are_small() -> None:
    """To compile a model again and again takes long; memory is bounded all the same."""
    names = [f"v{i}" for i in range(4000)]
    small, large = np.zeros(4, "f"), np.empty(1 << 27, np.uint8)

    def sizes(value: Any, count: int) -> list[int]:
        batches = Batches(names, count)
        found = []
        for batch in batches:
            assert list(batch) == names[sum(found) : sum(found) + len(batch)]
            found.append(len(batch))
            batches.took([value, None])
        assert sum(found) == len(names)
        return found

    assert sizes(small, 16)[:8] == [16, 32, 64, 128, 256, 512, 512, 512]
    assert sizes(small, 1000)[:2] == [1000, 1000]
    assert sizes(large, 4)[:4] == [4, 2, 1, 1]
