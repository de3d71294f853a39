"""ONNX models as files in use have them: arguments that only the run knows, odd names, weights
behind nodes, functions of the model."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm import VirtualMachine, build
from relaxvm.errors import RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.arange(24, dtype="f4").reshape(2, 3, 4)
KNOWN, NAMED, RANK, NOTHING = [2, 3, 4], ["a", "b", "c"], [None] * 3, None


def i64(*values: Any) -> Any:
    return np.array(values, np.int64)


def at_run_time(op_type: str, dims: Any, arguments: list[Any], outputs: int = 1,
                **attributes: Any) -> Any:  # fmt: skip
    """Results of a node whose arguments after x are inputs of the model."""
    names = [f"a{i}" for i in range(len(arguments))]
    found = [f"y{i}" for i in range(outputs)]
    inputs = {"x": (FLOAT, dims)} | {
        name: (helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in zip(names, arguments, strict=True)
    }
    model = model_of([helper.make_node(op_type, ["x", *names], found, **attributes)], inputs, found)
    return run(model, X, *arguments)


# Arguments that only the run knows


@pytest.mark.parametrize("dims", [KNOWN, NAMED])
def test_pad(dims: Any) -> None:
    got = at_run_time("Pad", dims, [i64(1, 0, -1, 0, 2, 3), np.array(7, "f4")])
    want = np.pad(X[:, :, 1:], [(1, 0), (0, 2), (0, 3)], constant_values=7)
    np.testing.assert_array_equal(got, want)
    got = at_run_time("Pad", dims, [i64(2, 1), np.array(0, "f4"), i64(-1)])
    np.testing.assert_array_equal(got, np.pad(X, [(0, 0), (0, 0), (2, 1)]))
    got = at_run_time("Pad", dims, [i64(0, 1, 1, 0, 1, 2)], mode="reflect")
    np.testing.assert_array_equal(got, np.pad(X, [(0, 0), (1, 1), (1, 2)], mode="reflect"))


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 5, 1), (5, 0, -2), (3, 3, 1), (0, -4, 1), (1, 8, 3)]
)
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_range(start: int, limit: int, delta: int, dtype: str) -> None:
    numbers = [np.array(each, dtype) for each in (start, limit, delta)]
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of([node("Range", "a b c", "y")], {k: (elem, []) for k in "abc"}, ["y"])
    got = run(model, *numbers)
    np.testing.assert_array_equal(got, np.arange(start, limit, delta, dtype))
    assert got.dtype == dtype


def test_range_without_a_step() -> None:
    model = model_of([node("Range", "a b c", "y")], {k: (INT64, []) for k in "abc"}, ["y"])
    with pytest.raises(ValueError, match="step: expected a number other than 0"):
        run(model, *[np.array(n) for n in (0, 5, 0)])


@pytest.mark.parametrize("axis", [0, 2, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cum_sum(axis: int, exclusive: int, reverse: int) -> None:
    got = at_run_time("CumSum", NAMED, [np.array(axis)], exclusive=exclusive, reverse=reverse)
    x = np.flip(X, axis) if reverse else X
    want = np.cumsum(x, axis) - (x if exclusive else 0)
    np.testing.assert_array_equal(got, np.flip(want, axis) if reverse else want)


def test_cum_sum_along_no_axis() -> None:
    with pytest.raises(ValueError, match="axis: expected a number from -3 to 2, got 3"):
        at_run_time("CumSum", NAMED, [np.array(3)])


@pytest.mark.parametrize("dims", [KNOWN, NAMED, RANK])
@pytest.mark.parametrize("axis", [1, -1])
def test_split(dims: Any, axis: int) -> None:
    sizes = [1, 0, X.shape[axis] - 1]
    got = at_run_time("Split", dims, [i64(*sizes)], 3, axis=axis)
    for part, want in zip(got, np.split(X, np.cumsum(sizes)[:-1], axis), strict=True):
        np.testing.assert_array_equal(part, want)


def test_split_needs_all_of_an_axis() -> None:
    with pytest.raises(RuntimeError, match="match_shape: dimension 1"):
        at_run_time("Split", NAMED, [i64(1, 1)], 2, axis=1)
    with pytest.raises(RelaxVMError, match="split: expected 3 elements, got 2"):
        at_run_time("Split", NAMED, [i64(1, 2)], 3, axis=1)


def test_split_of_a_tensor_of_unknown_rank() -> None:
    got = at_run_time("Split", NOTHING, [], 2, axis=-1)
    for part, want in zip(got, np.split(X, 2, -1), strict=True):
        np.testing.assert_array_equal(part, want)


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize("largest", [0, 1])
def test_top_k(k: int, largest: int) -> None:
    values, indices = at_run_time("TopK", NAMED, [i64(k)], 2, axis=1, largest=largest)
    order = np.argsort(X if not largest else -X, 1, kind="stable")[:, :k]
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(X, order, 1))


@pytest.mark.parametrize("k", [-1, 4])
def test_top_k_of_too_many(k: int) -> None:
    with pytest.raises(ValueError, match=f"k: expected a number from 0 to 3, got {k}"):
        at_run_time("TopK", NAMED, [i64(k)], 2, axis=1)


@pytest.mark.parametrize("dims", [KNOWN, NAMED])
def test_arguments_that_are_shapes(dims: Any) -> None:
    for op_type, arguments, want in (
        ("Slice", [i64(1, -3), i64(3, 9), i64(1, 2), i64(1, 2)], X[:, 1:3, -3:9:2]),
        ("Expand", [i64(5, 1, 1, 4)], np.broadcast_to(X, (5, 2, 3, 4))),
        ("Tile", [i64(1, 2, 3)], np.tile(X, (1, 2, 3))),
        ("Reshape", [i64(0, -1, 2)], X.reshape(2, 6, 2)),
        ("Unsqueeze", [i64(0, -1)], X[None, ..., None]),
        ("ReduceSum", [i64(0, -1)], X.sum((0, -1), keepdims=True)),
        ("ReduceMax", [i64(1)], X.max(1, keepdims=True)),
        ("ReduceLogSumExp", [i64(1)], np.log(np.exp(X).sum(1, keepdims=True))),
    ):
        np.testing.assert_allclose(at_run_time(op_type, dims, arguments), want, rtol=1e-6)


def test_log_sum_exp_without_the_axes() -> None:
    got = at_run_time("ReduceLogSumExp", NAMED, [i64(2, 0)], keepdims=0)
    np.testing.assert_allclose(got, np.log(np.exp(X).sum((0, 2))), rtol=1e-6)


@pytest.mark.parametrize("known", [True, False])
def test_tile_needs_a_number_for_each_axis(known: bool) -> None:
    inputs: Any = {"x": (FLOAT, NAMED)} | ({} if known else {"r": (INT64, [2])})
    model = model_of([node("Tile", "x r", "y")], inputs, ["y"], {"r": i64(2, 2)} if known else {})
    with pytest.raises(RelaxVMError, match="repeats: expected 3 elements, got 2"):
        from_onnx(model)


def test_tile_needs_a_number_for_each_axis_at_run_time() -> None:
    model = model_of([node("Tile", "x r", "y")], {"x": (FLOAT, NAMED), "r": (INT64, ["k"])}, ["y"])
    np.testing.assert_array_equal(run(model, X, i64(1, 2, 1)), np.tile(X, (1, 2, 1)))
    with pytest.raises(ValueError, match="expected a Shape of ndim 3, got ndim 2"):
        run(model, X, i64(2, 2))


def test_the_mean_of_nothing() -> None:
    model = model_of([node("ReduceMean", "x", "y", axes=[0], keepdims=0)], {"x": (FLOAT, ["n", 2])},
                     ["y"], opset=13)  # fmt: skip
    with np.errstate(all="ignore"):
        assert np.isnan(run(model, np.zeros((0, 2), "f4"))).tolist() == [True, True]


@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.5}])
@pytest.mark.parametrize("op_type", ["Elu", "Selu", "Celu"])
def test_large_numbers_overflow_nowhere(op_type: str, attributes: dict[str, float]) -> None:
    x = np.array([-1e4, -1, 0, 1, 1e4, np.inf, -np.inf, np.nan], "f4")
    alpha = attributes.get("alpha", 1.6732632423543772 if op_type == "Selu" else 1.0)
    gamma = 1.0507009873554805 if op_type == "Selu" else 1.0
    below = alpha * (np.exp(np.minimum(x, 0) / (alpha if op_type == "Celu" else 1)) - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_of([node(op_type, "x", "y", **attributes)], {"x": (FLOAT, ["n"])}, ["y"])
        got = run(model, x)
    np.testing.assert_allclose(got, gamma * np.where(x > 0, x, below), rtol=1e-6)


# Names


ODD = ["a:0", "b/c/d", "x y", "größe", "1", "if", "a_0", "\u6570", "a" * 300, "..", "%"]


def test_names_of_all_kinds() -> None:
    nodes = [helper.make_node("Add", [a, b], [f"sum {a}{b}:0"], name=f"n/{a}")
             for a, b in itertools.pairwise(ODD)]  # fmt: skip
    outputs = [each.output[0] for each in nodes]
    model = model_of(nodes, {name: (FLOAT, ["n"]) for name in ODD}, outputs)
    module = from_onnx(model)
    assert module["main"].attrs["input_names"] == ODD
    assert module["main"].attrs["output_names"] == outputs
    assert len({param.name for param in module["main"].params}) == len(ODD)
    values = [np.full(2, i, "f4") for i in range(len(ODD))]
    results = VirtualMachine(build(module))["main"](*values)
    assert [each.tolist() for each in results] == [[2 * i + 1] * 2 for i in range(len(ODD) - 1)]


def test_dimensions_whose_names_mean_nothing_or_are_formulas() -> None:
    for name in ("?", "0", "-1", "", "None", "unk__12"):
        model = model_of([node("Sub", "x y", "z")],
                         {"x": (FLOAT, [name, 2]), "y": (FLOAT, [name, 2])}, ["z"])  # fmt: skip
        z = run(model, np.ones((3, 2), "f4"), np.ones((1, 2), "f4"))
        assert z.shape == (3, 2)
    formula = "floor(n/2) + 1"
    model = model_of([node("Sub", "x y", "z")], {
        "x": (FLOAT, [formula]), "y": (FLOAT, [formula])}, ["z"])  # fmt: skip
    assert run(model, np.ones(3, "f4"), np.ones(3, "f4")).tolist() == [0, 0, 0]
    with pytest.raises(RuntimeError, match=r"dimension 0 of float32\[4\]: expected 3"):
        run(model, np.ones(3, "f4"), np.ones(4, "f4"))


def test_unnamed_dimensions_that_meet() -> None:
    model = model_of([node("Sub", "x y", "z")], {"x": (FLOAT, [None, 2]), "y": (FLOAT, [None, 2])},
                     ["z"])  # fmt: skip
    x, y = np.ones((3, 2), "f4"), np.full((3, 2), 5, "f4")
    np.testing.assert_array_equal(run(model, x, y), x - y)
    np.testing.assert_array_equal(run(model, x, y[:1]), x - y[:1])
    with pytest.raises(ValueError, match="broadcast"):
        run(model, x, y[:2])


# Weights, inputs and outputs


def test_constants_that_are_inputs() -> None:
    model = model_of([node("MatMul", "x w", "y")], {"x": (FLOAT, ["n", 2]), "w": (FLOAT, [2, 2])},
                     ["y"], {"w": np.eye(2, dtype="f4") * 3})  # fmt: skip
    assert from_onnx(model)["main"].attrs["input_names"] == ["x"]
    assert run(model, np.ones((1, 2), "f4")).tolist() == [[3, 3]]


def test_weights_behind_nodes() -> None:
    weights = numpy_helper.from_array(np.eye(2, dtype="f4"), "value")
    nodes = [
        helper.make_node("Constant", [], ["w0"], value=weights),
        node("Identity", "w0", "w1"),
        node("Transpose", "w1", "w2", perm=[1, 0]),
        node("Identity", "w2", "w3"),
        node("Gemm", "x w3", "y", transB=1),
        node("Identity", "shape", "s"),
        node("Reshape", "y s", "z"),
    ]
    model = model_of(nodes, {"x": (FLOAT, ["n", 2])}, ["z"], {"shape": i64(-1)})
    assert run(model, np.ones((2, 2), "f4")).tolist() == [1, 1, 1, 1]


def test_outputs_that_are_inputs_or_constants_or_twice_the_same() -> None:
    model = model_of([node("Relu", "x", "y")], {"x": (FLOAT, ["n"])}, ["x", "y", "y", "w"],
                     {"w": np.float32([4])})  # fmt: skip
    x = np.float32([-1, 2])
    got = run(model, x)
    assert [each.tolist() for each in got] == [[-1, 2], [0, 2], [0, 2], [4]]


def test_only_outputs_that_are_inputs() -> None:
    model = model_of([], {"x": (FLOAT, ["n"])}, ["x"])
    assert run(model, np.float32([1])).tolist() == [1]


def test_two_constants_of_one_name_are_refused() -> None:
    model = model_of([node("Relu", "w", "y")], {}, ["y"], {"w": np.ones(1, "f4")})
    model.graph.initializer.append(model.graph.initializer[0])
    with pytest.raises(RelaxVMError, match="the value 'w' is defined twice"):
        from_onnx(model)


@pytest.mark.parametrize("ir_version", [3, 6, 10, 12])
def test_old_files_and_domains_that_nobody_uses(ir_version: int) -> None:
    graph = model_of([node("Relu", "x", "y")], {"x": (FLOAT, ["n"])}, ["y"]).graph
    opsets = [helper.make_opsetid(*each) for each in (
        ("", 12), ("ai.onnx.ml", 99), ("com.nobody", 1), ("org.pytorch.aten", 7))]  # fmt: skip
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    assert run(model, np.float32([-1, 1])).tolist() == [0, 1]


def test_a_name_that_two_nodes_define_is_refused() -> None:
    model = model_of([node("Relu", "x", "y"), node("Neg", "y", "y")], {"x": (FLOAT, ["n"])}, ["y"])
    with pytest.raises(RelaxVMError, match="the value 'y' is defined twice"):
        from_onnx(model)


def test_a_name_of_a_graph_within_that_the_outer_one_has() -> None:
    """The inner one is meant."""
    branch = helper.make_graph(
        [node("Neg", "x", "y")], "b", [], [helper.make_empty_tensor_value_info("y")])
    other = helper.make_graph(
        [node("Abs", "x", "z")], "b", [], [helper.make_empty_tensor_value_info("z")])
    nodes = [node("Relu", "x", "y"), node("If", "c", "r", then_branch=branch, else_branch=other),
             node("Add", "r y", "o")]  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "c": (BOOL, [])}, ["o"])
    assert run(model, np.float32([3]), np.array(True)).tolist() == [0]
    assert run(model, np.float32([3]), np.array(False)).tolist() == [6]


# Functions of the model


OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


def function_model(functions: list[Any], nodes: list[Any], inputs: Any, outputs: list[str]) -> Any:
    graph = model_of(nodes, inputs, outputs).graph
    return helper.make_model(graph, functions=functions, opset_imports=OPSETS)


def test_overloads_of_a_function() -> None:
    functions = [
        helper.make_function("own", "F", ["a"], ["b"], [node("Neg", "a", "b")], OPSETS),
        helper.make_function("own", "F", ["a"], ["b"], [node("Abs", "a", "b")], OPSETS,
                             overload="positive"),
    ]  # fmt: skip
    nodes = [node("F", "x", "y", domain="own"),
             helper.make_node("F", ["x"], ["z"], domain="own", overload="positive")]  # fmt: skip
    model = function_model(functions, nodes, {"x": (FLOAT, ["n"])}, ["y", "z"])
    y, z = run(model, np.float32([-1, 2]))
    assert (y.tolist(), z.tolist()) == ([1, -2], [1, 2])


def test_attributes_of_a_function_within_its_graphs_and_functions() -> None:
    scaled = helper.make_node("Elu", ["a"], ["b"])
    reference = scaled.attribute.add(name="alpha", ref_attr_name="slope")
    reference.type = 1
    slope = [helper.make_attribute("slope", 1.0)]
    inner = helper.make_function("own", "Inner", ["a"], ["b"], [scaled], OPSETS,
                                 attribute_protos=slope)  # fmt: skip
    call = helper.make_node("Inner", ["v"], ["w"], domain="own")
    reference = call.attribute.add(name="slope", ref_attr_name="steepness")
    reference.type = 1
    branches = [
        helper.make_graph(nodes, "b", [], [helper.make_empty_tensor_value_info("w")])
        for nodes in ([call], [node("Identity", "v", "w")])
    ]
    outer = helper.make_function(
        "own", "Outer", ["v", "c"], ["o"],
        [node("If", "c", "o", then_branch=branches[0], else_branch=branches[1])], OPSETS,
        attributes=["steepness"],
    )  # fmt: skip
    model = function_model(
        [inner, outer],
        [helper.make_node("Outer", ["x", "c"], ["y"], domain="own", steepness=3.0),
         helper.make_node("Outer", ["x", "c"], ["z"], domain="own")],
        {"x": (FLOAT, ["n"]), "c": (BOOL, [])}, ["y", "z"],
    )  # fmt: skip
    x = np.float32([-1, 2])
    y, z = run(model, x, np.array(True))
    np.testing.assert_allclose(y, [3 * np.expm1(-1), 2], rtol=1e-6)
    np.testing.assert_allclose(z, [np.expm1(-1), 2], rtol=1e-6)
    assert run(model, x, np.array(False))[0].tolist() == [-1, 2]


def test_inputs_of_a_function_that_a_call_leaves_out() -> None:
    clip = helper.make_function("own", "F", ["a", "low", "high"], ["b"],
                                [node("Clip", "a low high", "b")], OPSETS)  # fmt: skip
    call = helper.make_node("F", ["x", "", "h"], ["y"], domain="own")
    model = function_model([clip], [call], {"x": (FLOAT, ["n"]), "h": (FLOAT, [])}, ["y"])
    assert run(model, np.float32([-5, 5]), np.array(1, "f4")).tolist() == [-5, 1]


def test_a_sequence_is_no_tensor() -> None:
    tensor = helper.make_tensor_type_proto(FLOAT, None)
    value = helper.make_value_info("x", helper.make_sequence_type_proto(tensor))
    pool = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    model = model_of([pool], {}, ["y"])
    model.graph.input.append(value)
    with pytest.raises(RelaxVMError, match="expected a tensor, got a value of the kind 'sequence'"):
        from_onnx(model)


def test_the_type_of_an_optional_value_is_one_type() -> None:
    optional = helper.make_node("Optional", [], ["x"])
    optional.attribute.append(helper.make_attribute("type", [1, 2]))
    model = model_of([optional, helper.make_node("OptionalHasElement", ["x"], ["y"])], {}, ["y"])
    with pytest.raises(RelaxVMError, match="attribute 'type': expected TypeOf, got list"):
        from_onnx(model)
