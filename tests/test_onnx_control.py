"""ONNX models with conditionals, loops, sequences and optional values."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm import Limits, VirtualMachine, backend, build
from relaxvm.errors import LimitError, RelaxVMError
from relaxvm.frontend.common.control import same_kind
from relaxvm.frontend.common.values import Opaque, OptionalKind, SequenceKind, TensorKind
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
SCALAR: tuple[int, Any] = (INT64, [])


def graph_of(
    nodes: list[Any],
    inputs: dict[str, tuple[int, Any]],
    outputs: str,
    constants: dict[str, Any] | None = None,
) -> Any:
    """A graph within another one."""
    return helper.make_graph(
        nodes,
        "body",
        [helper.make_tensor_value_info(name, *ty) for name, ty in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )


def f32(*values: Any) -> Any:
    return np.array(values, "float32")


def i64(value: Any) -> Any:
    return np.array(value, np.int64)


# Loops

COUNTING = {"i": SCALAR, "c": (BOOL, [])}


def sums(trips: str = "trips", cond: str = "") -> Any:
    """Adds x to a sum in each step, and collects the sums."""
    body = graph_of(
        [node("Add", "s x", "t"), node("Identity", "c", "more"), node("Identity", "t", "each")],
        {**COUNTING, "s": (FLOAT, ["n"])}, "more t each",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", [trips, cond, "zero"], ["sum", "all"], body=body)]
    return model_of(
        nodes, {"x": (FLOAT, ["n"]), "zero": (FLOAT, ["n"]), "trips": SCALAR, "cond": (BOOL, [])},
        ["sum", "all"],
    )  # fmt: skip


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_loop(trips: int) -> None:
    x, zero = f32(1, 2, 3), f32(0, 0, 1)
    total, each = run(sums(), x, zero, i64(trips), np.array(True))
    np.testing.assert_allclose(total, zero + trips * x)
    assert each.shape == (trips, 3)
    assert each.dtype == np.float32
    np.testing.assert_allclose(each, zero + np.arange(1, trips + 1)[:, None] * x)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_what_a_loop_does_not_change(trips: int) -> None:
    """It is captured: the loop has no parameter for it, and its shape is known."""
    body = graph_of(
        [node("MatMul", "s w", "t"), node("Identity", "w", "w1"), node("Identity", "w1", "w2"),
         node("Identity", "c", "more")],
        {**COUNTING, "s": (FLOAT, None), "w": (FLOAT, None), "a": (FLOAT, None),
         "b": (FLOAT, None), "k": (FLOAT, None)},
        "more t w2 b a k s",
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", ["trips", "", "x", "w", "a", "b", "k"],
                         ["s_out", "w_out", "a_out", "b_out", "k_out", "every"], body=body),
    ]  # fmt: skip
    weight = np.arange(9, dtype="float32").reshape(3, 3) / 8
    model = model_of(
        nodes,
        {"x": (FLOAT, [2, 3]), "trips": SCALAR, "a": (FLOAT, [1]), "b": (FLOAT, [1]),
         "k": (FLOAT, ["n"])},
        ["s_out", "w_out", "a_out", "b_out", "k_out", "every"], {"w": weight},
    )  # fmt: skip
    x = f32(1, 2, 3, 4, 5, 6).reshape(2, 3)
    s, w, a, b, k, every = run(model, x, i64(trips), f32(1), f32(2), f32(7, 8))
    want = [x @ np.linalg.matrix_power(weight, i) for i in range(trips + 1)]
    np.testing.assert_allclose(s, want[-1], rtol=1e-6)
    np.testing.assert_array_equal(w, weight)
    assert (a[0], b[0]) == ((2, 1) if trips % 2 else (1, 2))
    np.testing.assert_array_equal(k, f32(7, 8))
    assert every.shape == (trips, 2, 3)
    np.testing.assert_allclose(every, np.array(want[:-1]).reshape(trips, 2, 3), rtol=1e-6)
    script = from_onnx(model).script()
    (header,) = re.findall(r"def \w+_loop\((.*?)\)", script, re.DOTALL)
    assert re.findall(r"(\w+?)(?:_\d+)?: ", header) == ["i", "s", "a", "b", "s"]


@pytest.mark.parametrize("cond", [True, False])
def test_loop_with_a_condition_before_the_first_step(cond: bool) -> None:
    total, each = run(sums(cond="cond"), f32(1, 2), f32(0, 0), i64(4), np.array(cond))
    np.testing.assert_allclose(total, f32(4, 8) * cond)
    assert each.shape == (4 * cond, 2)


def test_a_long_loop_takes_one_frame_and_collects_in_linear_time() -> None:
    vm = VirtualMachine(build(from_onnx(sums())), limits=Limits(call_depth=8))
    total, each = vm["main"](f32(1), f32(0), i64(50_000), np.array(True))
    assert total[0] == 50_000
    assert each.shape == (50_000, 1)
    np.testing.assert_array_equal(each[:, 0], np.arange(1, 50_001))


def doubling() -> Any:
    """Doubles x until it is above the limit."""
    body = graph_of(
        [node("Add", "v v", "w"), node("Less", "w limit", "more")],
        {**COUNTING, "v": (FLOAT, [])}, "more w",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["", "yes", "x"], ["y"], body=body)]
    inputs: Any = {"x": (FLOAT, []), "limit": (FLOAT, [])}
    return model_of(nodes, inputs, ["y"], {"yes": np.array(True)})


def test_loop_that_its_condition_ends() -> None:
    assert run(doubling(), np.float32(3), np.float32(100)) == 192


def test_a_loop_without_end_is_ended_by_fuel() -> None:
    vm = VirtualMachine(build(from_onnx(doubling())), limits=Limits(fuel=10_000))
    with pytest.raises(LimitError):
        vm["main"](np.array(0, "f4"), np.array(100, "f4"))


def test_what_a_loop_changes_may_change_its_shape() -> None:
    body = graph_of(
        [node("Concat", "v x", "w", axis=0), node("Identity", "c", "more")],
        {**COUNTING, "v": (FLOAT, None)}, "more w",
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body),
        node("Shape", "y", "shape"),
    ]
    x = np.arange(6, dtype="f4").reshape(2, 3)
    model = model_of(nodes, {"x": (FLOAT, ["n", 3]), "trips": SCALAR}, ["y", "shape"])
    for trips in (0, 3):
        y, shape = run(model, x, i64(trips))
        np.testing.assert_array_equal(y, np.concatenate([x] * (trips + 1)))
        assert shape.tolist() == [2 * (trips + 1), 3]


def test_results_of_steps_must_have_one_shape() -> None:
    body = graph_of(
        [node("Concat", "v x", "w", axis=0), node("Identity", "c", "more"),
         node("Identity", "w", "each")],
        {**COUNTING, "v": (FLOAT, None)}, "more w each",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y", "all"], body=body)]
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "trips": SCALAR}, ["all"])
    with pytest.raises(ValueError, match="chain_to_tensor: element 1: expected the data type"):
        run(model, f32(1), i64(2))


def test_loops_within_loops_and_what_they_capture() -> None:
    inner = graph_of(
        [node("Cast", "j", "k", to=FLOAT), node("Mul", "k y", "p"), node("Add", "s p", "t"),
         node("Identity", "d", "again")],
        {"j": SCALAR, "d": (BOOL, []), "s": (FLOAT, ["n"])}, "again t",
    )  # fmt: skip
    outer = graph_of(
        [node("Add", "a x", "y"),
         helper.make_node("Loop", ["i", "", "a"], ["b"], body=inner),
         node("Identity", "c", "more")],
        {**COUNTING, "a": (FLOAT, ["n"])}, "more b",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["r"], body=outer)]
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "trips": SCALAR}, ["r"])
    x = f32(1, 2)
    want = x
    for i in range(4):
        y, s = want + x, want
        for j in range(i):
            s = s + j * y
        want = s
    np.testing.assert_allclose(run(model, x, i64(4)), want)


def test_a_body_must_have_an_input_for_each_value() -> None:
    body = graph_of([node("Identity", "c", "more")], COUNTING, "more")
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "trips": SCALAR}, ["y"])
    with pytest.raises(RelaxVMError, match="body: expected 3 inputs and at least 2 outputs"):
        from_onnx(model)


def test_memory_of_a_loop_does_not_grow() -> None:
    body = graph_of(
        [node("Add", "v x", "w"), node("Identity", "c", "more")],
        {**COUNTING, "v": (FLOAT, ["n"])}, "more w",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    vm = VirtualMachine(build(from_onnx(
        model_of(nodes, {"x": (FLOAT, ["n"]), "trips": SCALAR}, ["y"]))))  # fmt: skip
    x = np.zeros(10_000, "f4")
    peaks = []
    tracemalloc.start()
    for trips in (5, 500):
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        vm["main"](x, i64(trips))
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    assert peaks[1] < peaks[0] + 50_000


# Scans


def scan_model(**attributes: Any) -> Any:
    """Running sums of the elements."""
    body = graph_of(
        [node("Add", "s e", "t"), node("Identity", "t", "each")],
        {"s": (FLOAT, None), "e": (FLOAT, None)}, "t each",
    )  # fmt: skip
    nodes = [node("Scan", "start x", "last all", body=body, num_scan_inputs=1, **attributes)]
    inputs: Any = {"start": (FLOAT, ["n"]), "x": (FLOAT, ["k", "n"])}
    if attributes.get("scan_input_axes") == [1]:
        inputs["x"] = (FLOAT, ["n", "k"])
    return model_of(nodes, inputs, ["last", "all"])


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("out_backward", [0, 1])
@pytest.mark.parametrize("out_axis", [0, 1, -1])
def test_scan(backward: int, axis: int, out_backward: int, out_axis: int) -> None:
    x = np.arange(8, dtype="f4").reshape(4, 2)
    start = f32(1, 2)
    model = scan_model(
        scan_input_directions=[backward], scan_input_axes=[axis],
        scan_output_directions=[out_backward], scan_output_axes=[out_axis],
    )  # fmt: skip
    last, each = run(model, start, x.T.copy() if axis else x)
    sums = np.cumsum([start, *x[:: -1 if backward else 1]], 0)
    np.testing.assert_allclose(last, sums[-1])
    want = np.stack(list(sums[1:])[:: -1 if out_backward else 1], out_axis)
    np.testing.assert_allclose(each, want)


def test_scan_of_nothing() -> None:
    last, each = run(scan_model(), f32(1, 2), np.zeros((0, 2), "f4"))
    np.testing.assert_array_equal(last, f32(1, 2))
    assert each.shape == (0, 2)


def test_scanned_tensors_have_one_length() -> None:
    body = graph_of(
        [node("Add", "a b", "each")], {"a": (FLOAT, None), "b": (FLOAT, None)}, "each"
    )
    nodes = [node("Scan", "x y", "all", body=body, num_scan_inputs=2)]
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "y": (FLOAT, ["m"])}, ["all"])
    np.testing.assert_array_equal(run(model, f32(1, 2), f32(3, 4)), f32(4, 6))
    with pytest.raises(RuntimeError, match=r"dimension 0 of float32\[3\]: expected 2"):
        run(model, f32(1, 2), f32(3, 4, 5))


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("dims", [["b", "t", 2], [3, 4, 2], None])
def test_scan_of_sequences_of_different_lengths(backward: int, dims: Any) -> None:
    """Of version 8, with a batch: zeros follow what is collected of shorter sequences."""
    body = graph_of(
        [node("Add", "s e", "t"), node("Mul", "e t", "each")],
        {"s": (FLOAT, [2]), "e": (FLOAT, [2])}, "t each",
    )  # fmt: skip
    scan = node("Scan", "lengths start x", "last all", body=body, num_scan_inputs=1,
                directions=[backward])  # fmt: skip
    inputs: Any = {"lengths": (INT64, ["b"]), "start": (FLOAT, ["b", 2]), "x": (FLOAT, dims)}
    model = model_of([scan], inputs, ["last", "all"], opset=8)
    start, x = np.ones((3, 2), "f4"), np.arange(24, dtype="f4").reshape(3, 4, 2)
    lengths = [3, 0, 4]
    last, collected = run(model, i64(lengths), start, x)
    want = np.zeros_like(x)
    for i, count in enumerate(lengths):
        total = start[i]
        for at, element in enumerate(x[i, :count][:: -1 if backward else 1]):
            total = total + element
            want[i, at] = element * total
        np.testing.assert_allclose(last[i], total)
    np.testing.assert_allclose(collected, want)
    with pytest.raises(ValueError, match="sequence_lens: expected a number from 0 to 4, got 5"):
        run(model, i64([1, 5, 1]), start, x)


# Conditionals


def test_branches_of_different_rank() -> None:
    then = graph_of([node("Unsqueeze", "x zero", "y")], {}, "y", {"zero": i64([0])})
    other = graph_of([node("Identity", "x", "y")], {}, "y")
    nodes = [
        node("If", "c", "r", then_branch=then, else_branch=other),
        node("Add", "r x", "s"),
        node("Shape", "r", "shape"),
    ]
    inputs: Any = {"c": (BOOL, []), "x": (FLOAT, ["n"])}
    model = model_of(nodes, inputs, ["s", "shape"])
    for cond, shape in ((True, (1, 2)), (False, (2,))):
        got, dims = run(model, np.array(cond), f32(1, 2))
        np.testing.assert_array_equal(got, f32(2, 4).reshape(shape))
        assert tuple(dims) == shape


def test_a_value_that_is_used_in_both_branches_first() -> None:
    """What a branch makes of it is not visible outside."""
    then = graph_of([node("Add", "shape one", "y")], {}, "y", {"one": i64(1)})
    other = graph_of([node("Mul", "shape k", "y")], {}, "y", {"k": i64(10)})
    nodes = [
        node("Shape", "x", "shape"),
        node("If", "c", "r", then_branch=then, else_branch=other),
        node("Sub", "r shape", "d"),
    ]
    inputs: Any = {"c": (BOOL, []), "x": (FLOAT, ["n", "m"])}
    model = model_of(nodes, inputs, ["r", "d"])
    x = np.zeros((2, 3), "f4")
    for cond, want in ((True, [3, 4]), (False, [20, 30])):
        got, difference = run(model, np.array(cond), x)
        assert got.tolist() == want
        assert difference.tolist() == [want[0] - 2, want[1] - 3]


def test_branches_with_different_numbers_of_results() -> None:
    then = graph_of([node("Identity", "x", "y")], {}, "y")
    other = graph_of([node("Identity", "x", "y")], {}, "y x")
    nodes = [node("If", "c", "r", then_branch=then, else_branch=other)]
    model = model_of(nodes, {"c": (BOOL, []), "x": (FLOAT, ["n"])}, ["r"])
    with pytest.raises(RelaxVMError, match="the branches have 1 and 2 results"):
        from_onnx(model)


# Sequences


def sequence_type(elem: int = FLOAT, shape: Any = None) -> Any:
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(elem, shape))


def typed_model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_value_info(name, ty) for name, ty in inputs.items()],
        [helper.make_value_info(name, ty) for name, ty in outputs.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def tensor_type(elem: int, shape: Any) -> Any:
    return helper.make_tensor_type_proto(elem, shape)


def test_sequences_of_run_time_lengths() -> None:
    at = tensor_type(INT64, [])
    nodes = [
        node("SequenceInsert", "s x p", "inserted"),
        node("SequenceErase", "inserted q", "erased"),
        node("SequenceLength", "erased", "length"),
        node("SequenceAt", "erased q", "chosen"),
        node("ConcatFromSequence", "erased", "joined", axis=0),
        node("Relu", "joined", "positive"),
    ]
    model = typed_model(
        nodes,
        {"s": sequence_type(), "x": tensor_type(FLOAT, ["n"]), "p": at, "q": at},
        {"erased": sequence_type(), "length": at, "chosen": tensor_type(FLOAT, None),
         "positive": tensor_type(FLOAT, None)},
    )  # fmt: skip
    items = (f32(1), f32(-2, 3), f32(4))
    erased, length, chosen, positive = run(model, items, f32(9, 9), i64(1), i64(-2))
    assert [each.tolist() for each in erased] == [[1], [9, 9], [4]]
    assert length == 3
    assert chosen.tolist() == [9, 9]
    assert positive.tolist() == [1, 9, 9, 4]
    with pytest.raises(IndexError, match="sequence_insert: position 4: the sequence has 3"):
        run(model, items, f32(1), i64(4), i64(0))


def test_a_sequence_that_a_loop_builds() -> None:
    body = graph_of(
        [node("Cast", "i", "k", to=FLOAT), node("Add", "x k", "y"),
         node("SequenceInsert", "s y", "t"), node("Identity", "c", "more")],
        {**COUNTING}, "more t",
    )  # fmt: skip
    body.input.append(helper.make_value_info("s", sequence_type()))
    nodes = [
        node("SequenceEmpty", "", "empty"),
        helper.make_node("Loop", ["trips", "", "empty"], ["s_out"], body=body),
        node("ConcatFromSequence", "s_out", "all", axis=0, new_axis=1),
    ]
    model = typed_model(
        nodes, {"x": tensor_type(FLOAT, ["n"]), "trips": tensor_type(INT64, [])},
        {"s_out": sequence_type(), "all": tensor_type(FLOAT, None)},
    )  # fmt: skip
    items, together = run(model, f32(1, 2), i64(3))
    assert [each.tolist() for each in items] == [[1, 2], [2, 3], [3, 4]]
    np.testing.assert_array_equal(together, np.stack(items))


@pytest.mark.parametrize("known", [False, True])
def test_split_to_sequence(known: bool) -> None:
    nodes = [
        node("SplitToSequence", "x sizes", "parts", axis=1),
        node("SplitToSequence", "x", "ones", axis=1, keepdims=0),
    ]
    model = typed_model(
        nodes,
        {"x": tensor_type(FLOAT, [2, 5] if known else ["n", "m"]),
         "sizes": tensor_type(INT64, [2])},
        {"parts": sequence_type(), "ones": sequence_type()},
    )  # fmt: skip
    x = np.arange(10, dtype="f4").reshape(2, 5)
    parts, ones = run(model, x, i64([2, 3]))
    assert [each.tolist() for each in parts] == [x[:, :2].tolist(), x[:, 2:].tolist()]
    assert [each.tolist() for each in ones] == x.T.tolist()
    with pytest.raises(ValueError, match="expected lengths of parts of axis 1, of length 5"):
        run(model, x, i64([2, 2]))


def test_a_map_over_sequences() -> None:
    body = graph_of([node("Add", "a b", "c"), node("Mul", "c x", "d")], {
        "a": (FLOAT, None), "b": (FLOAT, None)}, "c d")  # fmt: skip
    model = typed_model(
        [node("SequenceMap", "s t", "sums products", body=body)],
        {"s": sequence_type(), "t": sequence_type(), "x": tensor_type(FLOAT, [])},
        {"sums": sequence_type(), "products": sequence_type()},
    )
    added, multiplied = run(
        model, (f32(1), f32(2, 3)), (f32(10), f32(20, 30)), np.array(2, "f4")
    )
    assert [each.tolist() for each in added] == [[11], [22, 33]]
    assert [each.tolist() for each in multiplied] == [[22], [44, 66]]


def test_a_sequence_is_expected() -> None:
    model = model_of([node("SequenceAt", "x p", "y")], {"x": (FLOAT, ["n"]), "p": SCALAR}, ["y"])
    with pytest.raises(RelaxVMError, match="expected a sequence, got a tensor"):
        from_onnx(model)


def test_elements_have_the_type_of_the_sequence() -> None:
    model = typed_model(
        [node("SequenceAt", "s p", "x"), node("Relu", "x", "y")],
        {"s": sequence_type(), "p": tensor_type(INT64, [])}, {"y": tensor_type(FLOAT, None)},
    )  # fmt: skip
    assert run(model, (f32(-1, 2),), i64(0)).tolist() == [0, 2]
    with pytest.raises(ValueError, match="expected a tensor of dtype float32, got dtype float64"):
        run(model, (np.zeros(2, "f8"),), i64(0))


# Optional values


def optional_type() -> Any:
    return helper.make_optional_type_proto(tensor_type(FLOAT, ["n"]))


def test_optional_values() -> None:
    then = graph_of([node("OptionalGetElement", "o", "v")], {}, "v")
    other = graph_of([node("Identity", "x", "v")], {}, "v")
    nodes = [
        node("OptionalHasElement", "o", "has"),
        node("If", "has", "y", then_branch=then, else_branch=other),
    ]
    model = typed_model(
        nodes, {"o": optional_type(), "x": tensor_type(FLOAT, ["n"])},
        {"has": tensor_type(BOOL, []), "y": tensor_type(FLOAT, None)},
    )  # fmt: skip
    has, y = run(model, f32(1, 2), f32(3))
    assert has
    assert y.tolist() == [1, 2]
    has, y = run(model, None, f32(3))
    assert not has
    assert y.tolist() == [3]


def test_an_output_that_may_be_none() -> None:
    then = graph_of([node("Optional", "x", "v")], {}, "v")
    other = graph_of([helper.make_node("Optional", [], ["v"], type=tensor_type(FLOAT, None))], {},
                     "v")  # fmt: skip
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other)]
    model = typed_model(nodes, {"c": tensor_type(BOOL, []), "x": tensor_type(FLOAT, ["n"])},
                        {"y": optional_type()})  # fmt: skip
    assert run(model, np.array(True), f32(1)).tolist() == [1]
    assert run(model, np.array(False), f32(1)) is None


def test_the_element_of_none() -> None:
    model = typed_model([node("OptionalGetElement", "o", "y")], {"o": optional_type()},
                        {"y": tensor_type(FLOAT, None)})  # fmt: skip
    with pytest.raises(ValueError, match="optional_get_element: expected a value, got None"):
        run(model, None)


def test_a_single_output_that_is_a_sequence_is_one_result_of_the_backend() -> None:
    model = typed_model([node("SequenceConstruct", "x x", "y")],
                        {"x": tensor_type(FLOAT, ["n"])}, {"y": sequence_type()})  # fmt: skip
    (items,) = backend.run_model(model, [f32(1)])
    assert [each.tolist() for each in items] == [[1], [1]]


# Attacks


def test_functions_that_call_many_functions() -> None:
    """Each doubles the nodes of the one before."""
    functions, domain = [], "own"
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, 1)]
    for level in range(40):
        name, domain_of = (f"F{level - 1}", domain) if level else ("Neg", "")
        nodes = [helper.make_node(name, ["a"], ["b"], domain=domain_of),
                 helper.make_node(name, ["b"], ["c"], domain=domain_of)]  # fmt: skip
        functions.append(helper.make_function(domain, f"F{level}", ["a"], ["c"], nodes, opsets))
    graph = helper.make_graph(
        [helper.make_node("F39", ["x"], ["y"], domain=domain)], "graph",
        [helper.make_tensor_value_info("x", FLOAT, [1])],
        [helper.make_tensor_value_info("y", FLOAT, [1])],
    )  # fmt: skip
    model = helper.make_model(graph, functions=functions, opset_imports=opsets)
    onnx.checker.check_model(model)
    with pytest.raises(RelaxVMError, match="more than 100000 nodes"):
        from_onnx(model)


def test_a_sequence_and_an_optional_value_are_different_kinds() -> None:
    tensor = TensorKind("float32", 1, None)
    kinds = [SequenceKind(tensor), OptionalKind(tensor), Opaque(), tensor]
    assert [[same_kind(a, b) for b in kinds] for a in kinds] == np.eye(4, dtype=bool).tolist()
