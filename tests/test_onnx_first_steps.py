"""What a new user meets with ONNX models: files that are something else, names with spaces, models
of old versions, means of integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
from relaxvm.cli import main
from relaxvm.errors import FormatError, RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.arange(24, dtype="f4").reshape(2, 3, 4) - 12

# Files


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an ONNX model; this is an empty file"),
        (b"\n<!DOCTYPE html><html>", "; this is a web page: a download may have failed"),
        (b"<HTML><body>", "; this is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "; this is a pointer of Git LFS"),
        (b'{"a": 1}', "; this is JSON"),
        (b"hello", r"expected an ONNX model \(Model: field 13 has"),
        (b"\xf0\x01\x01", "expected an ONNX model, got something else"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"model\.onnx: expected an ONNX model.*") as caught:
        from_onnx(path)
    assert caught.match(message)
    with pytest.raises(FormatError, match=message):
        relaxvm.VirtualMachine(path)


def test_a_machine_is_made_of_an_executable_or_a_path() -> None:
    with pytest.raises(ValueError, match=r"got bytes; relaxvm\.compile makes an executable"):
        relaxvm.VirtualMachine(b"")  # type: ignore[arg-type]


def test_one_unsupported_node() -> None:
    model = model_of([node("Nope", "x", "y")], {"x": (FLOAT, [1])}, ["y"])
    with pytest.raises(RelaxVMError, match="1 node has an operator that is not supported"):
        from_onnx(model)


def test_dimensions_by_their_names_in_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    model = model_of([node("Relu", "x", "y")], {"x": (FLOAT, ["batch size", 2])}, ["y"])
    path.write_bytes(model.SerializeToString())
    assert main(["run", str(path), "--random", "--dim", "batch size=3"]) == 0
    assert "float32[3, 2]" in capsys.readouterr().out
    assert main(["run", str(path), "--random", "--dim", "batches=3"]) == 2
    assert "did you mean 'batch_size'" in capsys.readouterr().err


# Integers


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("ReduceMean", np.mean),
        ("ReduceL2", lambda x, axis: np.sqrt((x * x).sum(axis))),
        ("ReduceLogSum", lambda x, axis: np.log(x.sum(axis))),
        ("ReduceLogSumExp", lambda x, axis: np.log(np.exp(x).sum(axis))),
    ],
)
def test_reductions_of_integers(name: str, function: Any, dtype: str) -> None:
    x = np.array([[1, 2, 6], [9, 4, 3]], dtype) * (-1 if name in ("ReduceMean", "ReduceL2") else 1)
    want = np.trunc(function(x.astype("f8"), 1)).astype(dtype)
    inputs: dict[str, Any] = {"x": (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), ["n", "m"])}
    model = model_of([node(name, "x", "y", axes=[1], keepdims=0)], inputs, ["y"], opset=12)
    got = run(model, x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, want)
    node_18 = node(name, "x axes", "y", keepdims=0)
    model = model_of([node_18], inputs | {"axes": (INT64, [1])}, ["y"], opset=18)
    np.testing.assert_array_equal(run(model, x, np.array([1])), want)


# Versions


def of_x(one: Any, constants: dict[str, Any], outputs: list[str], opset: int = 6) -> Any:
    return run(model_of([one], {"x": (FLOAT, X.shape)}, outputs, constants, opset=opset), X)


@pytest.mark.parametrize("opset", [6, 9])
@pytest.mark.parametrize("axis", [-1, 1])
def test_top_k_with_an_attribute(opset: int, axis: int) -> None:
    values, places = of_x(node("TopK", "x", "y i", k=2, axis=axis), {}, ["y", "i"], opset)
    want = np.argsort(-X, axis, kind="stable").take([0, 1], axis)
    np.testing.assert_array_equal(places, want)
    np.testing.assert_array_equal(values, np.take_along_axis(X, want, axis))


def test_operators_of_opset_6() -> None:
    slope = np.array([1, 2, 3], "f4")
    got = of_x(node("PRelu", "x s", "y"), {"s": slope}, ["y"])
    np.testing.assert_array_equal(got, np.where(X < 0, X * slope[:, None], X))
    got = of_x(node("PRelu", "x s", "y"), {"s": slope[1:2]}, ["y"])
    np.testing.assert_array_equal(got, np.where(X < 0, X * 2, X))
    got = of_x(node("Pow", "x p", "y", axis=1, broadcast=1), {"p": slope}, ["y"])
    np.testing.assert_array_equal(got, X ** slope[:, None])
    got = of_x(node("Dropout", "x", "y", ratio=0.3, is_test=1), {}, ["y"])
    np.testing.assert_array_equal(got, X)
    picture: dict[str, Any] = {"x": (FLOAT, [1, *X.shape])}
    one = node("Upsample", "x", "y", height_scale=2.0, width_scale=3.0)
    got = run(model_of([one], picture, ["y"], opset=6), X[None])
    np.testing.assert_array_equal(got, X[None].repeat(2, 2).repeat(3, 3))


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_networks_of_opset_6(name: str, gates: int) -> None:
    generator = np.random.default_rng(0)
    weights = {
        key: generator.random((1, gates * 5, size), "f4") for key, size in (("w", 4), ("r", 5))
    }
    new = node(name, "x w r", "y", hidden_size=5)
    one = node(name, "x w r", "y", hidden_size=5, output_sequence=1)
    np.testing.assert_array_equal(of_x(one, weights, ["y"]), of_x(new, weights, ["y"], 14))
