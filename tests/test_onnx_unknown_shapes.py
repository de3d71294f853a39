"""ONNX operators whose inputs state no shape: every operand, also the shape-like ones, is an input
of the model.  The expected results are those of onnx's reference evaluator."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

import relaxvm

_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32,
          "bool": TensorProto.BOOL}  # fmt: skip


class Case(NamedTuple):
    operator: str
    args: tuple[Any, ...]
    outputs: int = 1
    attributes: dict[str, Any] = {}  # noqa: RUF012
    opset: int = 22
    wanted: np.ndarray | None = None
    """The result, where the reference evaluator does not have it."""


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def numbers(*dims: int) -> np.ndarray:
    return np.random.default_rng(len(dims)).random(dims, np.float32)


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = numbers(1, 3, 6, 6)
WEIGHT = numbers(4, 3, 3, 3)
ONES = np.ones(4, np.float32)

CASES = [
    Case("Reshape", (X, ints(0, -1))),
    Case("Reshape", (X, ints(4, 6))),
    Case("Expand", (X, ints(2, 1, 3, 4))),
    Case("Tile", (X, ints(1, 2, 1))),
    Case("Slice", (X, ints(0, 1), ints(2, 3))),
    Case("Slice", (X, ints(0), ints(2), ints(-1))),
    Case("Slice", (X, ints(3), ints(0), ints(2), ints(-2))),
    Case("Pad", (X, ints(0, 1, 0, 0, 1, 2))),
    Case("Pad", (X, ints(1, 2), np.array(3, np.float32), ints(1))),
    Case("Squeeze", (X[:1], ints(0))),
    Case("Squeeze", (X[:1],)),
    Case("Unsqueeze", (X, ints(0, -1))),
    Case("Split", (X, ints(1, 2)), 2, {"axis": 1}),
    Case("Split", (X,), 2, {"axis": 2, "num_outputs": 2}),
    Case("TopK", (X, ints(2)), 2),
    Case("TopK", (X, ints(2)), 2, {"axis": 1, "largest": 0}),
    Case("TopK", (X, ints(0)), 2),
    Case("ReduceSum", (X, ints(0, 2))),
    Case("ReduceSum", (X, ints()), 1, {"noop_with_empty_axes": 1}),
    Case("ReduceMax", (X,)),
    Case("CumSum", (X, np.array(1)), 1, {"reverse": 1}),
    Case("CumSum", (X, np.array(-1)), 1, {"exclusive": 1}),
    Case("Gather", (X, ints(1, 0)), 1, {"axis": 1}),
    Case("GatherElements", (X, np.zeros((2, 1, 4), np.int64)), 1, {"axis": 1}),
    Case("GatherND", (X, np.array([[0, 1], [1, 2]]))),
    Case("ScatterND", (X, np.array([[0], [1]]), X)),
    Case("ScatterElements", (X, np.zeros((2, 1, 4), np.int64), X[:, :1]), 1, {"axis": 1}),
    Case("OneHot", (ints(1, 2), np.array(4), np.array([0, 1], np.float32))),
    Case("OneHot", (np.array([[1, -2]]), np.array(4), np.array([0, 1], np.float32)), 1,
         {"axis": 0}),
    Case("Range", (np.array(0), np.array(5), np.array(2))),
    Case("ConstantOfShape", (ints(2, 3),)),
    Case("Concat", (X, X), 1, {"axis": 1}),
    Case("Transpose", (X,)),
    Case("Flatten", (X,), 1, {"axis": 2}),
    Case("Softmax", (X,), 1, {"axis": 1}),
    Case("MaxPool", (IMAGE,), 1, {"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER",
                                  "dilations": [2, 1], "strides": [2, 2]}),
    Case("Resize", (IMAGE, None, None, ints(12, 9)), 1,
         {"axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}),
    Case("Hardmax", (X,)),
    Case("Hardmax", (X,), 1, {"axis": 1}),
    Case("LayerNormalization", (X, ONES, ONES)),
    Case("RMSNormalization", (X, ONES), opset=23),
    Case("MatMul", (X, X.transpose(0, 2, 1).copy())),
    Case("Gemm", (X[0], X[0].T.copy())),
    Case("Where", (X > 3, X, X[0])),
    Case("Conv", (IMAGE, WEIGHT), 1, {"strides": [2, 2]}),
    Case("Conv", (IMAGE, WEIGHT)),
    Case("ConvTranspose", (IMAGE, WEIGHT.transpose(1, 0, 2, 3).copy()), 1, {"strides": [1, 1]}),
    Case("MaxPool", (IMAGE,), 1, {"kernel_shape": [2, 2]}),
    Case("AveragePool", (IMAGE,), 1, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    Case("GlobalAveragePool", (IMAGE,)),
    Case("BatchNormalization", (IMAGE, *[np.ones(3, np.float32)] * 4)),
    Case("BatchNormalization", (IMAGE, *[np.ones(3, np.float32)] * 4), 3, {"training_mode": 1}),
    Case("BatchNormalization", (X[0], *[ONES] * 4), 3, {"training_mode": 1}),
    Case("InstanceNormalization", (IMAGE, *[np.ones(3, np.float32)] * 2)),
    Case("Resize", (IMAGE, None, None, ints(1, 3, 9, 9))),
    Case("Resize", (IMAGE, None, np.array([1, 1, 2, 2], np.float32))),
    Case("ArgMax", (X,), 1, {"axis": 1}),
    Case("NonZero", (X,)),
    Case("Unique", (X,), 4),
    Case("Compress", (X, np.array([True, False])), 1, {"axis": 0}),
    Case("Einsum", (X, X), 1, {"equation": "bij,bij->b"}),
    Case("EyeLike", (X[0],)),
    Case("Shape", (X,)),
    Case("Clip", (X, np.array(2, np.float32), np.array(9, np.float32))),
    Case("CenterCropPad", (X, ints(4, 2, 4))),
    Case("ReverseSequence", (X, ints(2, 1, 1)), 1, {"batch_axis": 1, "time_axis": 0}),
    Case("LSTM", (numbers(5, 2, 3), numbers(1, 16, 3), numbers(1, 16, 4)), 3, {"hidden_size": 4}),
    Case("QuantizeLinear", (X, np.array(0.1, np.float32))),
    Case("QuantizeLinear", (X, np.array([0.1, 0.2, 0.3], np.float32)), 1, {"axis": 1}),
    Case("QuantizeLinear", (X, np.array([0.1, 0.2], np.float32)), 1, {"axis": -3}),
    Case("QuantizeLinear", (X, numbers(2, 3, 2)), 1, {"axis": 2, "block_size": 2}),
    Case("DequantizeLinear", (X.astype(np.int32), ONES), 1, {"axis": -1}),
    Case("Split", (X, ints(1, 0, 3)), 3, {"axis": -1}),
    Case("Split", (X, ints(2)), 1, {"axis": 0}),
    Case("Pad", (X, ints(-1, 2, 1, 0), np.array(3, np.float32), ints(-1, 0)),
         wanted=np.pad(X[:, :, 1:], [(2, 0), (0, 0), (0, 1)], constant_values=3)),
    Case("Pad", (X, ints(1, 1), None, ints(2)), 1, {"mode": "reflect"}),
    Case("OneHot", (np.array([[1, -2], [0, 3]]), np.array(4), np.array([0, 1], np.float32)), 1,
         {"axis": 1}),
    Case("GlobalMaxPool", (IMAGE,)),
    Case("GlobalLpPool", (IMAGE,), 1, {"p": 2},
         wanted=np.sqrt((IMAGE * IMAGE).sum((2, 3), keepdims=True))),
    Case("LRN", (IMAGE,), 1, {"size": 1, "alpha": 1.0, "beta": 1.0},
         wanted=IMAGE / (1 + IMAGE * IMAGE)),
    Case("GroupNormalization", (numbers(2, 4, 3), ONES, ONES), 1, {"num_groups": 2}),
    Case("GroupNormalization", (numbers(2, 4, 3), ONES[:2], ONES[:2]), 1, {"num_groups": 2},
         opset=18),
    Case("Conv", (numbers(2, 3, 6), numbers(4, 3, 3), ONES)),
    Case("ConvTranspose", (IMAGE, WEIGHT.transpose(1, 0, 2, 3).copy())),
    Case("Resize", (IMAGE, None, None, ints(9, 3)), 1, {"axes": [3, 2], "mode": "linear"}),
    Case("CenterCropPad", (X, ints(2, 6)), 1, {"axes": [-1, 0]}),
    Case("GRU", (numbers(5, 2, 3), numbers(1, 12, 3), numbers(1, 12, 4)), 2, {"hidden_size": 4}),
    Case("RNN", (numbers(5, 2, 3), numbers(1, 4, 3), numbers(1, 4, 4)), 2, {"hidden_size": 4}),
    Case("GridSample", (IMAGE, np.zeros((1, 2, 2, 2), np.float32))),
]  # fmt: skip


def model_of(case: Case, known: str) -> tuple[ModelProto, dict[str, np.ndarray]]:
    names, inputs, feeds = [], [], {}
    for i, value in enumerate(case.args):
        names.append("" if value is None else f"x{i}")
        if value is not None:
            array = np.asarray(value)
            dims: Any = None
            if known != "nothing":
                dims = [None if known == "ranks" else f"d{i}_{k}" for k in range(array.ndim)]
            kind = _TYPES[array.dtype.name]
            inputs.append(helper.make_tensor_value_info(names[-1], kind, dims))
            feeds[names[-1]] = array
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.operator, names, outputs, **case.attributes)
    infos = list(map(helper.make_empty_tensor_value_info, outputs))
    graph = helper.make_graph([node], "graph", inputs, infos)
    opsets = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds



@pytest.mark.parametrize("known", ["nothing", "ranks", "names"])
@pytest.mark.parametrize("case", CASES, ids=[f"{i} {c.operator}" for i, c in enumerate(CASES)])
def test_operands_of_unknown_shape(case: Case, known: str) -> None:
    model, feeds = model_of(case, known)
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    with np.errstate(all="ignore"):
        got = vm.main(**feeds)
        wanted = [case.wanted] if case.wanted is not None else ReferenceEvaluator(model).run(
            None, feeds
        )  # fmt: skip
    results = got if isinstance(got, tuple) else (got,)
    assert len(results) == len(wanted)
    for result, want in zip(results, wanted, strict=True):
        assert result.dtype == np.asarray(want).dtype
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)


def test_more_elements_than_there_are_of_an_unknown_rank() -> None:
    model, feeds = model_of(Case("TopK", (X, ints(5)), 2), "nothing")
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    with pytest.raises(ValueError, match="k: expected at most 4, the length of axis 2, got 5"):
        vm.main(**feeds)


def test_an_axis_that_an_unknown_rank_does_not_have() -> None:
    model, feeds = model_of(Case("CumSum", (X, np.array(3))), "nothing")
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    with pytest.raises((ValueError, IndexError), match="axis"):
        vm.main(**feeds)


@pytest.mark.parametrize(
    ("case", "error", "message"),
    [
        (Case("Split", (X, ints(1, 1)), 2, {"axis": 1}), RuntimeError, "expected 2 .*, got 3"),
        (Case("Split", (X, ints(1, 1)), 2, {"axis": 5}), ValueError,
         "axis 5 of a tensor: number of axes: expected a number from 6 to 64, got 3"),
        (Case("Reshape", (X, ints(5, -1))), ValueError, "24 elements"),
        (Case("QuantizeLinear", (X, ONES), 1, {"axis": 1}), ValueError, "broadcast|elements"),
        (Case("Conv", (numbers(1, 1, 2, 2, 2, 2), numbers(1, 1, 2, 2, 2, 2))), ValueError,
         "X: number of axes: expected a number from 3 to 5, got 6"),
    ],
)  # fmt: skip
def test_an_unknown_rank_that_does_not_fit(case: Case, error: type, message: str) -> None:
    model, feeds = model_of(case, "nothing")
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    with pytest.raises(error, match=message):
        vm.main(**feeds)


@pytest.mark.parametrize("known", ["nothing", "ranks", "names"])
@pytest.mark.parametrize(("index", "axis", "length"), [(-9, 0, 2), (-5, -1, 4), (3, 1, 3)])
def test_an_index_out_of_range_is_named_as_it_is(
    known: str, index: int, axis: int, length: int
) -> None:
    model, feeds = model_of(Case("Gather", (X, ints(0, index)), 1, {"axis": axis}), known)
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    with pytest.raises(IndexError, match=rf"-{length} <= index < {length}, got {index}\n"):
        vm.main(**feeds)
    inside = ints(length - 1, -length, -1)
    np.testing.assert_array_equal(vm.main(X, inside), np.take(X, inside, axis))


def test_a_constant_index_out_of_range_is_named_as_it_is() -> None:
    model, _ = model_of(Case("Gather", (X, ints(-9))), "nothing")
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 1, X.shape))
    del model.graph.input[1]
    model.graph.initializer.append(helper.make_tensor("x1", TensorProto.INT64, [1], [-9]))
    with pytest.raises((IndexError, relaxvm.errors.RelaxVMError), match="got -9"):
        relaxvm.VirtualMachine(relaxvm.compile(model, cache=False)).main(X)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin", "ReduceLogSumExp"])
@pytest.mark.parametrize("known", ["nothing", "ranks", "names"])
def test_no_elements_where_only_the_run_knows(operator: str, known: str) -> None:
    empty = np.empty((2, 0), np.float32)
    model, feeds = model_of(Case(operator, (empty, ints(1))), known)
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    number = np.inf if operator == "ReduceMin" else -np.inf
    np.testing.assert_array_equal(vm.main(**feeds), np.full((2, 1), number, np.float32))
    assert vm.main(empty.T, ints(1)).shape == (0, 1)


@pytest.mark.parametrize("ndim", [4, -1])
def test_old_resizing_by_scales_of_the_run(ndim: int) -> None:
    """Indices are rounded up along axes that become shorter, as onnxruntime does."""
    x = np.arange(63, dtype=np.float32).reshape(1, 1, 7, 9)
    shape = ["a", "b", "c", "d"] if ndim > 0 else None
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
              helper.make_tensor_value_info("scales", TensorProto.FLOAT, [4])]  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "scales"], ["y"])], "g", values,
        [helper.make_empty_tensor_value_info("y")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    vm = relaxvm.VirtualMachine(relaxvm.compile(model))
    found = vm["main"](x, np.array([1, 1, 2, 0.6], np.float32))
    np.testing.assert_array_equal(found, x[:, :, np.arange(14) // 2][..., [0, 2, 4, 5, 7]])
