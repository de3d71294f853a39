"""ONNX models with tensors of strings."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from relaxvm import Limits, VirtualMachine, build
from relaxvm.builtins.regex import Pattern
from relaxvm.errors import LimitError, RelaxVMError
from relaxvm.frontend.onnx import from_onnx

from .test_onnx import model_of, node, run
from .test_onnx_control import graph_of, sequence_type, tensor_type, typed_model

STRING, FLOAT, INT64, BOOL = (
    TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
)  # fmt: skip


def text(*strings: str, shape: Any = None) -> Any:
    found = np.empty(len(strings), object)
    found[:] = strings
    return found if shape is None else found.reshape(shape)


X = text("a", "bb", "", "größe", "e", "f", shape=(2, 3))
MOVES: dict[str, tuple[list[Any], dict[str, Any], int]] = {
    "Reshape": ([np.array([3, -1])], {}, 1),
    "Flatten": ([], {"axis": 0}, 1),
    "Unsqueeze": ([np.array([1])], {}, 1),
    "Transpose": ([], {"perm": [1, 0]}, 1),
    "Slice": ([np.array([1]), np.array([3]), np.array([1])], {}, 1),
    "Gather": ([np.array([[2, 0], [-1, 1]])], {"axis": 1}, 1),
    "GatherElements": ([np.array([[2, 0], [-1, 1]])], {"axis": 1}, 1),
    "Expand": ([np.array([2, 1, 1])], {}, 1),
    "Tile": ([np.array([2, 1])], {}, 1),
    "Split": ([np.array([1, 2])], {"axis": 1}, 2),
    "Concat": ([X], {"axis": 0}, 1),
    "Identity": ([], {}, 1),
}


@pytest.mark.parametrize("dims", [[2, 3], ["n", "m"]])
@pytest.mark.parametrize("op_type", MOVES)
def test_operators_that_move_elements(op_type: str, dims: Any) -> None:
    arguments, attributes, outputs = MOVES[op_type]
    names = [f"a{i}" for i in range(len(arguments))]
    found = [f"y{i}" for i in range(outputs)]
    constants = {n: v for n, v in zip(names, arguments, strict=True) if v.dtype != object}
    inputs = {"x": (STRING, dims)} | {
        n: (STRING, dims) for n, v in zip(names, arguments, strict=True) if v.dtype == object
    }
    model = model_of(
        [helper.make_node(op_type, ["x", *names], found, **attributes)], inputs, found, constants
    )
    given = [X, *[v for v in arguments if v.dtype == object]]
    got = run(model, *given)
    numbered = np.arange(6).reshape(2, 3)
    model.graph.input[0].type.tensor_type.elem_type = INT64
    feeds = {"x": numbered} | {n: numbered for n in inputs if n != "x"}
    for each in model.graph.input:
        each.type.tensor_type.elem_type = INT64
    for result, want in zip(
        got if outputs > 1 else [got], ReferenceEvaluator(model).run(None, feeds), strict=True
    ):
        assert result.dtype == object
        assert result.tolist() == X.reshape(-1)[want].tolist()


def test_strings_of_several_tables() -> None:
    constant = helper.make_node("Constant", [], ["k"], value_strings=["const", ""])
    nodes = [constant, node("Concat", "x k y", "z", axis=0), node("Equal", "z one", "e"),
             node("Where", "e x2 z", "w"), node("Shape", "w", "shape")]  # fmt: skip
    inputs: Any = {"x": (STRING, ["n"]), "y": (STRING, ["m"]), "one": (STRING, []),
                   "x2": (STRING, [1])}  # fmt: skip
    model = model_of(nodes, inputs, ["w", "shape"])
    w, shape = run(model, text("a", "b"), text("a"), np.array("a", object), text("new"))
    assert w.tolist() == ["new", "b", "const", "", "new"]
    assert shape.tolist() == [5]


@pytest.mark.parametrize("dtype", ["<U9", object, "T"])
def test_inputs_of_all_of_numpys_strings(dtype: Any) -> None:
    if dtype == "T" and not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy 1 has no StringDType")
    kind = np.dtypes.StringDType() if dtype == "T" else dtype
    model = model_of([node("Identity", "x", "y")], {"x": (STRING, ["n"])}, ["y"])
    assert run(model, np.array(["é", "b"], kind)).tolist() == ["é", "b"]


def test_inputs_that_are_no_strings_or_of_another_shape() -> None:
    model = model_of([node("Identity", "x", "y")], {"x": (STRING, ["n", 2])}, ["y"])
    with pytest.raises(TypeError, match="strings_indexed: expected a tensor of strings"):
        run(model, np.zeros((1, 2)))
    with pytest.raises(TypeError, match="strings_indexed: expected strings, got int 3"):
        run(model, np.array([["a", 3]], object))
    with pytest.raises(RuntimeError, match=r"dimension 1 of int64\[1, 3\]: expected 2"):
        run(model, text("a", "b", "c", shape=(1, 3)))


def test_strings_in_loops_branches_and_sequences() -> None:
    body = graph_of(
        [node("StringConcat", "s x", "t"), node("Identity", "c", "more"),
         node("Identity", "t", "each")],
        {"i": (INT64, []), "c": (BOOL, []), "s": (STRING, ["n"])}, "more t each",
    )  # fmt: skip
    then = graph_of([node("Identity", "last", "v")], {}, "v")
    other = graph_of([node("Identity", "x", "v")], {}, "v")
    nodes = [
        helper.make_node("Loop", ["trips", "", "x"], ["last", "all"], body=body),
        node("If", "flag", "chosen", then_branch=then, else_branch=other),
        node("SequenceConstruct", "last chosen", "seq"),
        node("SequenceAt", "seq one", "second"),
        node("ConcatFromSequence", "seq", "joined", axis=0),
    ]
    model = typed_model(
        nodes,
        {"x": tensor_type(STRING, ["n"]), "trips": tensor_type(INT64, []),
         "flag": tensor_type(BOOL, []), "one": tensor_type(INT64, [])},
        {"all": tensor_type(STRING, None), "second": tensor_type(STRING, None),
         "joined": tensor_type(STRING, None), "seq": sequence_type(STRING)},
    )  # fmt: skip
    arguments = (text("a", "b"), np.array(2), np.array(False), np.array(1))
    each, second, joined, seq = run(model, *arguments)
    assert each.tolist() == [["aa", "bb"], ["aaa", "bbb"]]
    assert second.tolist() == ["a", "b"]
    assert joined.tolist() == ["aaa", "bbb", "a", "b"]
    assert [part.tolist() for part in seq] == [["aaa", "bbb"], ["a", "b"]]
    nothing, *_ = run(model, arguments[0], np.array(0), *arguments[2:])
    assert nothing.shape == (0, 2)


def test_numbers_as_strings_and_back() -> None:
    nodes = [node("Cast", "x", "s", to=STRING), node("Cast", "s", "y", to=FLOAT),
             node("Cast", "t", "i", to=INT64)]  # fmt: skip
    model = model_of(nodes, {"x": (FLOAT, ["n"]), "t": (STRING, [1])}, ["s", "y", "i"])
    x = np.float32([1.5, 0.1, 1e-20, np.inf, np.nan])
    s, y, i = run(model, x, text("-7"))
    assert s.tolist() == ["1.5", "0.1", "1e-20", "INF", "NaN"]
    np.testing.assert_array_equal(y, x)
    assert i.tolist() == [-7]
    with pytest.raises(ValueError, match="string_to_number: expected a int64, got"):
        run(model, x, text("7.5"))


def test_labels_that_are_strings() -> None:
    encode = helper.make_node(
        "LabelEncoder", ["x"], ["i"], domain="ai.onnx.ml", keys_strings=["a", "b"],
        values_int64s=[5, 6],
    )  # fmt: skip
    decode = helper.make_node(
        "LabelEncoder", ["i"], ["s"], domain="ai.onnx.ml", keys_int64s=[5, 6],
        values_strings=["five", "six"], default_string="other",
    )  # fmt: skip
    rename = helper.make_node(
        "LabelEncoder", ["x"], ["t"], domain="ai.onnx.ml", keys_strings=["a"],
        values_strings=["A"],
    )  # fmt: skip
    model = model_of([encode, decode, rename], {"x": (STRING, ["n"])}, ["i", "s", "t"])
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    i, s, t = run(model, text("b", "c", "a"))
    assert i.tolist() == [6, -1, 5]
    assert s.tolist() == ["six", "other", "five"]
    assert t.tolist() == ["_Unused", "_Unused", "A"]


def test_other_operators_refuse_strings() -> None:
    model = model_of([node("Add", "x x", "y")], {"x": (STRING, ["n"])}, ["y"])
    with pytest.raises(RelaxVMError, match=r"node \(Add\): strings are not supported"):
        from_onnx(model)
    model = model_of([node("StringConcat", "x x", "y")], {"x": (FLOAT, ["n"])}, ["y"])
    with pytest.raises(RelaxVMError, match="X: expected strings, got a tensor of float32"):
        from_onnx(model)


def test_strings_that_a_program_makes_are_counted() -> None:
    body = graph_of(
        [node("StringConcat", "s s", "t"), node("Identity", "c", "more")],
        {"i": (INT64, []), "c": (BOOL, []), "s": (STRING, [1])}, "more t",
    )  # fmt: skip
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)]
    model = model_of(nodes, {"x": (STRING, [1]), "trips": (INT64, [])}, ["y"])
    vm = VirtualMachine(build(from_onnx(model)), limits=Limits(live_bytes=1 << 20))
    assert len(vm["main"](text("x"), np.array(10))[0]) == 1024
    with pytest.raises(LimitError, match="live_bytes"):
        vm["main"](text("x"), np.array(40))


# Regular expressions

PATTERNS = [
    "", "a", "a*", "(a|b)*abb", "a{2,4}", "a{2,}b?", "[a-c]+", "[^a-c]+", r"\d+\.\d*", r"\w+\s\w+",
    "^ab$", "(^a|b)+", "a.c", "(?i)ABC", "(?s)a.c", r"\bab\b", r"\Ba", "(?:ab)+?c", "x|", "[]a]+",
    r"[\w.\-]+@(yahoo|gmail)\.com", "(a?){3}b", "((a)(b))*",
]  # fmt: skip
TEXTS = ["", "a", "aa", "aaa", "abb", "aababb", "b", "ab", "abc", "ABC", "a\nc", "aXc", "12.5",
         "two words", "me.x-y@gmail.com", "x", "]a]", "abab", "ababc", "aaaaa", "aab"]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_are_those_of_python(pattern: str) -> None:
    ours, theirs = Pattern(pattern), re.compile(pattern, re.ASCII)
    for each in TEXTS:
        assert ours.matches(each) == bool(theirs.fullmatch(each)), each


def test_patterns_that_take_others_exponential_time() -> None:
    start = time.process_time()
    assert not Pattern("(a|a)*(a+)+b").matches("a" * 2000)
    assert not Pattern("(a?){500}a{500}").matches("a" * 499)
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "regular expression: missing"),
        (r"(a)\1", "GROUPREF is not supported"),
        ("(?!a)b", "ASSERT_NOT is not supported"),
        ("(a{1000}){1000}", "more than 10000 states"),
        ("((a{0}){1000}){1000}", "more than 10000 states"),
    ],
)
def test_patterns_that_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pattern(pattern)
