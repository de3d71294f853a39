"""ONNX operators that gather, scatter, transform spectra or train, beyond the standard's cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import relaxvm
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def test_symbolic_shapes() -> None:
    model = model_of(
        [
            node("GatherElements", "x i", "a", axis=1),
            node("ScatterElements", "x i a", "b", axis=1, reduction="add"),
            node("Trilu", "b k", "c", upper=0),
        ],
        {"x": (FLOAT, ["n", 4]), "i": (INT64, ["n", "m"]), "k": (INT64, [])},
        ["c"],
    )
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    indices = np.array([[0, -1], [2, 2], [1, 0]])
    want = x.copy()
    for row, places in enumerate(indices):
        for place in places:
            want[row, place] += x[row, place]
    got = run(model, x, indices, np.array(-1))
    np.testing.assert_array_equal(got, np.tril(want, -1))


def test_unknown_ranks() -> None:
    """A condition, of which only the run knows how many elements it has."""
    model = model_of(
        [
            node("NonZero", "c", "places"),
            node("Transpose", "places", "rows"),
            node("GatherND", "x rows", "found"),
            node("Unique", "found", "values first inverse counts"),
        ],
        {"x": (FLOAT, ["n", "m"]), "c": (TensorProto.BOOL, ["n", "m"])},
        ["values", "counts"],
    )
    x = np.array([[3, 1, 2], [1, 1, 5]], np.float32)
    values, counts = run(model, x, x < 4)
    assert values.tolist() == [1, 2, 3]
    assert counts.tolist() == [3, 1, 1]


def test_an_index_out_of_range() -> None:
    model = model_of(
        [node("GatherElements", "x i", "y")], {"x": (FLOAT, [3]), "i": (INT64, ["n"])}, ["y"]
    )
    with pytest.raises(IndexError, match="indices: expected -3 <= index < 3, got 3"):
        run(model, np.ones(3, np.float32), np.array([0, 3]))


@pytest.mark.parametrize("dims", [[2, 3], ["n", "m"]])
@pytest.mark.parametrize(
    ("dtype", "number"),
    [("bool", True), ("bool", False), ("int64", 2**62 + 12345), ("int64", 1 - 2**63),
     ("int64", -(2**53) - 1), ("uint64", 2**64 - 1)],
)  # fmt: skip
def test_pads_with_numbers_that_are_no_float64(dtype: str, number: int, dims: list[Any]) -> None:
    fill = np.array(number, dtype)
    model = model_of(
        [node("Pad", "x pads fill", "y")],
        {"x": (helper.np_dtype_to_tensor_dtype(fill.dtype), dims)},
        ["y"],
        {"pads": np.array([1, -1, 0, 2]), "fill": fill},
        opset=19,
    )
    x = np.array([[0, number, 1], [1, 0, number]], dtype)
    want = np.pad(x[:, 1:], [(1, 0), (0, 2)], constant_values=fill)
    got = relaxvm.VirtualMachine(relaxvm.compile(model)).main(x)
    assert got.dtype == want.dtype
    assert got.tolist() == want.tolist()


def test_center_crop_pad_of_symbolic_lengths() -> None:
    model = model_of(
        [node("CenterCropPad", "x shape", "y", axes=[0])],
        {"x": (FLOAT, ["n"]), "shape": (INT64, [1])},
        ["y"],
    )
    machine = relaxvm.VirtualMachine(relaxvm.build(from_onnx(model)))
    for length, wanted in ((5, [1, 2, 3, 4, 5]), (2, [2, 3]), (8, [0, 1, 2, 3, 4, 5, 0, 0])):
        got = machine["main"](np.arange(1, 6, dtype=np.float32), np.array([length]))
        assert got.tolist() == wanted


def test_mel_weight_matrix_of_constants() -> None:
    constants = {
        "bins": np.int64(8), "length": np.int64(16), "rate": np.int64(8192),
        "low": np.float32(0), "high": np.float32(4096),
    }  # fmt: skip
    model = model_of(
        [node("MelWeightMatrix", "bins length rate low high", "w"), node("MatMul", "x w", "y")],
        {"x": (FLOAT, [2, 9])},
        ["y"],
        constants,
    )
    weights = run(model, np.eye(2, 9, dtype=np.float32))
    assert weights.shape == (2, 8)
    assert (weights[0] > 0).sum() >= 1
    assert weights.max() <= 1


TRAINING = "ai.onnx.preview.training"


def step_model(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    names = inputs.split()
    shapes = {name: (FLOAT, []) if name == "r" else (FLOAT, [2]) for name in names}
    shapes["t"] = (INT64, [])
    made = helper.make_node(kind, names, outputs.split(), domain=TRAINING, **attributes)
    model = model_of([made], shapes, outputs.split())
    model.opset_import.append(helper.make_opsetid(TRAINING, 1))
    return model


def test_steps_of_two_tensors() -> None:
    """The results are in the order of their kinds, not of the tensors."""
    model = step_model("Adagrad", "r t a b ga gb ha hb", "a2 b2 ha2 hb2", epsilon=0.5)
    rate, first = np.float32(0.5), np.array(0)
    a, b, ga, gb = (np.array([i, i + 1], np.float32) for i in (1, 2, 3, 4))
    zero = np.zeros(2, np.float32)
    got = run(model, np.array(rate), first, a, b, ga, gb, zero, zero)
    for x, gradient, at in ((a, ga, 0), (b, gb, 1)):
        np.testing.assert_allclose(got[at], x - rate * gradient / (gradient + 0.5), rtol=1e-6)
        np.testing.assert_allclose(got[at + 2], gradient**2, rtol=1e-6)


@pytest.mark.parametrize(
    ("made", "inputs", "message"),
    [
        (node("ScatterND", "x i x", "y", reduction="sub"), {"i": (INT64, [2, 1])},
         "reduction: expected none, add, mul, max or min, got sub"),
        (node("OneHot", "i d x", "y", axis=3), {"i": (INT64, [2]), "d": (INT64, [])},
         "axis: expected an axis of a tensor of rank 2, got 3"),
        (node("HannWindow", "d", "y", output_datatype=7), {"d": (INT64, [])},
         "output_datatype: expected floats, got int64"),
        (node("DFT", "x", "y"), {}, "axis: expected an axis of x but the last one, got -2"),
        (node("STFT", "x d", "y"), {"d": (INT64, [])},
         "expected a window or a frame_length"),
        (node("Hardmax", "x", "y", axis=2), {}, "axis: expected one of 1 axes, got 2"),
    ],
)  # fmt: skip
def test_refused(made: Any, inputs: dict[str, Any], message: str) -> None:
    model = model_of([made], {"x": (FLOAT, [2]), **inputs}, ["y"], opset=24)
    with pytest.raises(RelaxVMError, match=message):
        from_onnx(model)


@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3), (0, 3), (2, 3, 0), (2, 3)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("version", [11, 13])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_hardmax_along_axes_without_elements(
    shape: tuple[int, ...], axis: int, version: int, dtype: str
) -> None:
    x = np.full(shape, -np.inf, dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    for dims in (shape, [f"d{i}" for i in range(len(shape))]):
        model = model_of([node("Hardmax", "x", "y", axis=axis)], {"x": (kind, dims)}, ["y"],
                         opset=version)  # fmt: skip
        found = run(model, x)
        if x.size and version < 13 and axis < x.ndim - 1:
            continue  # the reference evaluator takes one axis as later versions do
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, ReferenceEvaluator(model).run(None, {"x": x})[0])


def test_a_step_with_a_tensor_missing() -> None:
    model = step_model("Adagrad", "r t a ga", "a2 ha2")
    with pytest.raises(RelaxVMError, match="expected 3 inputs for each tensor, got 2"):
        from_onnx(model)
