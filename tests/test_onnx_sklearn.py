"""Models of scikit-learn and of boosted trees: the results are those of onnxruntime, stored in a
file."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import relaxvm
from relaxvm.builtins.regex import compiled
from relaxvm.errors import RelaxVMError

from .sklearn_models import load, names

ML = "ai.onnx.ml"
MAP_TYPES = {"str": TensorProto.STRING, "int": TensorProto.INT64}


def assert_same(got: Any, want: Any) -> None:
    if isinstance(want, tuple):
        assert isinstance(got, tuple)
        assert [list(each) for each in got] == [list(each) for each in want]
        numbers = [[list(each.values()) for each in maps] for maps in (got, want)]
        np.testing.assert_allclose(*numbers, 1e-4, 1e-5)
        return
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, 1e-4, 1e-5)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", names())
def test_as_onnxruntime(name: str) -> None:
    model, inputs, wants = load(name)
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    got = vm.main(**inputs)
    got = got if len(wants) > 1 else (got,)
    for found, want in zip(got, wants, strict=True):
        assert_same(found, want)


def map_model(op_type: str, key: str, value: int = TensorProto.FLOAT, **attributes: Any) -> bytes:
    """A model of one operator whose input is a map."""
    ty = helper.make_map_type_proto(MAP_TYPES[key], helper.make_tensor_type_proto(value, None))
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], ["y"], domain=ML, name="it", **attributes)],
        "graph",
        [helper.make_value_info("x", ty)],
        [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)]
    data: bytes = helper.make_model(graph, opset_imports=opsets).SerializeToString()
    return data


def run(model: bytes, *args: Any) -> Any:
    return relaxvm.VirtualMachine(relaxvm.compile(model, cache=False)).main(*args)


def test_maps_become_rows() -> None:
    """The cases of the standard's text on CastMap and DictVectorizer."""
    dense = run(map_model("CastMap", "int", cast_to="TO_FLOAT"), {3: 0.5, 1: 2.0})
    np.testing.assert_array_equal(dense, np.array([[2, 0.5]], np.float32))
    sparse = map_model("CastMap", "int", cast_to="TO_INT64", map_form="SPARSE", max_map=5)
    np.testing.assert_array_equal(run(sparse, {3: 7.0, 1: 2.0}), [[0, 2, 0, 7, 0]])
    texts = run(map_model("CastMap", "int", TensorProto.STRING, cast_to="TO_STRING"), {2: "b"})
    assert texts.tolist() == [["b"]]
    vector = map_model("DictVectorizer", "str", string_vocabulary=["a", "c", "b", "z"])
    np.testing.assert_array_equal(run(vector, {"a": 4.0, "c": 8.0}),
                                  np.array([[4, 8, 0, 0]], np.float32))  # fmt: skip


@pytest.mark.parametrize(("model", "value", "error", "message"), [
    (map_model("CastMap", "int"), {"a": 1.0}, TypeError, "expected ints as keys, got"),
    (map_model("CastMap", "int"), {1: "x"}, ValueError, "is no float32"),
    (map_model("CastMap", "int"), {1: []}, TypeError, "expected numbers or strings as values"),
    (map_model("CastMap", "int"), [1.0], TypeError, r"expected a map \(a dict\), got"),
    (map_model("CastMap", "int", map_form="SPARSE", max_map=2), {2: 1.0}, ValueError,
     "key 2: there are 2 columns"),
])  # fmt: skip
def test_values_that_are_no_maps(model: bytes, value: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        run(model, value)


@pytest.mark.parametrize(("model", "message"), [
    (map_model("CastMap", "str"), "expected a map whose keys are ints"),
    (map_model("CastMap", "int", cast_to="TO_BOOL"), "cast_to: 'TO_BOOL'"),
    (map_model("DictVectorizer", "int", string_vocabulary=["a"]), "keys are those of the vocab"),
    (map_model("DictVectorizer", "int"), "expected ints or strings as keys"),
    (map_model("Binarizer", "int"), "expected a tensor"),
    (map_model("ZipMap", "int", classlabels_int64s=[1]), "expected a tensor of numbers"),
])  # fmt: skip
def test_operators_that_do_not_fit(model: bytes, message: str) -> None:
    with pytest.raises(RelaxVMError, match=message):
        relaxvm.compile(model, cache=False)


@pytest.mark.parametrize(("pattern", "text", "wants"), [
    ("[a-z]+", "ab 12 cd", [(0, 2), (6, 8)]),
    ("a|ab|abc", "xabcd ab", [(1, 4), (6, 8)]),  # the longest one, in whatever order
    ("b*", "abba", [(0, 0), (1, 3)]),
    ("^a", "aa", [(0, 1)]),
    ("a+b|a", "aaac", [(0, 1), (1, 2), (2, 3)]),
    (r"\b\w", "ab cd", [(0, 1), (3, 4)]),
    ("x", "", []),
])  # fmt: skip
def test_first_and_longest_matches(pattern: str, text: str, wants: Any) -> None:
    machine, place = compiled(pattern), 0
    for want in wants:
        found = machine.find(text, place)
        assert found == want
        place = max(found[1], found[0] + 1)


def test_searching_takes_linear_time() -> None:
    """Python's own engine takes exponential time for such a pattern."""
    assert compiled("(a|aa)+$").find("a" * 3000 + "b", 0) is None


def tokens(x: Any, **attributes: Any) -> Any:
    graph = helper.make_graph(
        [helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.STRING, [None])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [None, None])],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    return run(model.SerializeToString(), np.array(x, object)).tolist()


def test_tokens() -> None:
    """As onnxruntime 1.32 answers."""
    common: Any = {"pad_value": "#", "mincharnum": 1, "mark": 0}
    assert tokens(["ab c", "d"], separators=[" "], **common) == [["ab", "c"], ["d", "#"]]
    assert tokens(["a,b;c"], separators=[";", ","], **common) == [["a", "b", "c"]]
    assert tokens(["aé"], separators=[""], **common) == [["a", "é"]]
    marked = {**common, "mark": 1}
    assert tokens(["ab", ""], tokenexp="[a-z]", **marked) == [
        ["\x02", "a", "b", "\x03"], ["\x02", "\x03", "#", "#"],
    ]  # fmt: skip
    longer = {**common, "mincharnum": 2}
    assert tokens(["a bc def"], tokenexp="[a-z]+", **longer) == [["bc", "def"]]
    with pytest.raises(RelaxVMError, match="expected separators or tokenexp"):
        tokens(["a"], **common)
    with pytest.raises(RelaxVMError, match="stopwords are not supported"):
        tokens(["a"], tokenexp="a", stopwords=["b"], **common)


def test_elements_of_no_category() -> None:
    """A OneHotEncoder that refuses them, as scikit-learn's does unless it is told otherwise."""
    model, inputs, _ = load("columns, one-hot")
    vm = relaxvm.VirtualMachine(relaxvm.compile(model, cache=False))
    wrong = {**inputs, "c": np.full_like(inputs["c"], "other")}
    with pytest.raises(AssertionError, match="X: an element is none of the categories"):
        vm.main(**wrong)
    empty = {key: value[:0] for key, value in inputs.items()}
    assert len(vm.main(**empty)[0]) == 0
