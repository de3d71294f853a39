"""Relay text: the parser, names, types, and programs without data types.

There is no TVM with Relay to compare with: the texts follow the documented format, and the results
are compared with numpy and with the evaluator of the syntax tree.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm.errors import FormatError, LimitError, NestingError, ParseError
from relaxvm.executable.formats.stored_tensors import tensor_bytes
from relaxvm.frontend.relay import from_text, read_params, save_params, syntax, to_text
from relaxvm.frontend.relay.parser import parse_text
from relaxvm.frontend.relay.source import Source
from relaxvm.limits import Limits

from .relay_evaluator import evaluate

VERSION = '#[version = "0.0.5"]\n'


def parse(text: str) -> syntax.Module:
    return parse_text(Source(text))


def expression(text: str) -> syntax.Expr:
    block = parse(text).expression
    assert block is not None
    return block.result


def run(text: str, *args: Any, function: str = "main", params: Any = None) -> Any:
    machine = relaxvm.VirtualMachine(relaxvm.build(from_text(text, params)))
    return machine[function](*args)


def check(text: str, *args: Any) -> Any:
    """Compare the compiled program with the evaluator; returns the result."""
    found = run(text, *args)
    _assert_equal(found, evaluate(text, *args))
    return found


def _assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            _assert_equal(a, b)
    else:
        assert found.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def int32(value: Any) -> Any:
    return np.array(value, np.int32)


def refused(text: str, kind: type[Exception] = ParseError) -> str:
    with pytest.raises(kind) as caught:
        from_text(text)
    return str(caught.value)


# Literals


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [
        ("1", 1, "int32"),
        ("-100", -100, "int32"),
        ("-05", -5, "int32"),
        ("--10", 10, "int32"),
        ("---10", -10, "int32"),
        ("2147483647", 2**31 - 1, "int32"),
        ("2147483648", 2**31, "int64"),
        ("9223372036854775807", 2**63 - 1, "int64"),
        ("-9223372036854775808", -(2**63), "int64"),
        ("-42i", -42, "int32"),
        ("-128i8", -128, "int8"),
        ("-42i16", -42, "int16"),
        ("-42i64", -42, "int64"),
        ("255u8", 255, "uint8"),
        ("18446744073709551615u64", 2**64 - 1, "uint64"),
        ("1f", 1.0, "float32"),
        ("1.5e-3f", np.float32(1.5e-3), "float32"),
        ("1E+1f", 10.0, "float32"),
        ("3f16", 3.0, "float16"),
        ("0.1f64", 0.1, "float64"),
        ("inff", np.inf, "float32"),
        ("-inff", -np.inf, "float32"),
        ("True", True, "bool"),
        ("False", False, "bool"),
    ],
)
def test_literals(text: str, value: Any, dtype: str) -> None:
    found = expression(text)
    assert isinstance(found, syntax.Constant)
    assert found.data.dtype == dtype
    assert found.data.shape == ()
    assert found.data == value


def test_not_a_number() -> None:
    found = expression("nanf")
    assert isinstance(found, syntax.Constant)
    assert np.isnan(found.data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("128i8", "number 128i8 does not fit int8: expected -128 to 127"),
        ("-1u8", "number -1u8 does not fit uint8: expected 0 to 255"),
        ("2147483648i32", "does not fit int32"),
        ("9223372036854775808", "does not fit int64"),
        ("3.40283e+38f32", "number 3.40283e+38f32 does not fit float32"),
        ("65520f16", "does not fit float16"),
        ("1.5", "number 1.5: expected an integer, or a suffix as in 1.5f"),
        ("1i7", "there is no data type int7"),
        ("1u1", "there is no data type uint1"),
        ("1f128", "there is no data type float128"),
        ("fn (%x: Tensor[(2), object]) { %x }", "expected a data type such as float32, got object"),
        ("fn (%x: int8x4) { %x }", "expected a data type such as float32, got int8x4"),
        ("9" * 801, "expected at most 800 digits"),
        ("1x", "expected a number such as 1, 1i64 or 1.5f, got '1x'"),
    ],
)
def test_wrong_literals(text: str, message: str) -> None:
    assert message in refused(text)


# Expressions


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("1 * 2 + 3", "(1 * 2) + 3"),
        ("1 + 2 * 3", "1 + (2 * 3)"),
        ("1 - 2 - 3", "(1 - 2) - 3"),
        ("8 / 2 / 2", "(8 / 2) / 2"),
        ("1 * 1 + 1 < 1 == True", "(((1 * 1) + 1) < 1) == True"),
        ("True == 1 < 1 + 1 * 1", "True == (1 < (1 + (1 * 1)))"),
        ("1 <= 2 != 3 > 4", "(1 <= 2) != (3 > 4)"),
        ("-(1 + 2) * 3", "multiply(negative(add(1, 2)), 3)"),
        ("2 * -(3)", "multiply(2, negative(3))"),
        ("7 -2", "subtract(7, 2)"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert _shape(expression(text)) == _shape(expression(same))


def _shape(expr: syntax.Expr) -> Any:
    """An expression as nested tuples, without places."""
    if isinstance(expr, syntax.Call):
        assert isinstance(expr.callee, syntax.Name)
        return expr.callee.name, *map(_shape, expr.args)
    assert isinstance(expr, syntax.Constant)
    return expr.data.item()


def test_comments_nest_and_may_name_a_location() -> None:
    module = parse("/* a /* b */ c */ 1 // end\n + 2 /* ty=int32 span=net.py:12:5 */")
    assert module.expression is not None
    assert isinstance(module.expression.result, syntax.Call)
    two = module.expression.result.args[1]
    assert str(two.place.span) == "net.py:12:5"


def test_locations_of_comments_reach_errors() -> None:
    text = (VERSION + "def @main(%x: Tensor[(?,), float32], %y: Tensor[(?,), float32]) {\n"
            "  add(%x, %y) /* span=net.py:12:5 */\n}")
    with pytest.raises(ValueError, match=r"shape|dimension|broadcast") as caught:
        run(text, np.zeros(2, np.float32), np.zeros(3, np.float32))
    assert any("net.py:12:5" in note for note in caught.value.__notes__)


def test_attributes() -> None:
    call = expression(
        "f(1, axis=-1, eps=1e-05f, name=\"a\\\"b\", pads=[[0, 1], [-2, 3]], none=None, "
        "flag=True, low=-inff, a.b=2,)"
    )
    assert isinstance(call, syntax.Call)
    assert call.attrs == {
        "axis": -1, "eps": 1e-5, "name": 'a"b', "pads": [[0, 1], [-2, 3]],
        "none": None, "flag": True, "low": -np.inf, "a.b": 2,
    }  # fmt: skip


def test_functions_and_calls_have_attributes() -> None:
    text = VERSION + """
    def @main(%x: int32, Primitive=1, relay.reshape_only=1) -> int32 {
      %2 = fn (%y: int32, Primitive=1) { negative(%y) };
      %2(%x, name="call", attrs_type_key="attrs.TestAttrs")
    }"""
    function = parse(text).functions[0].function
    assert function.attrs == {"Primitive": 1, "relay.reshape_only": 1}
    assert run(text, int32(3)) == -3


def test_version_0_0_4() -> None:
    assert run("v0.0.4\ndef @main(%x: Tensor[(), int32]) -> Tensor[(), int32] { %x + 1 }",
               int32(1)) == 2  # fmt: skip


def test_types_are_read() -> None:
    text = VERSION + """
    def @f(%a: int32, %b: Tensor[(2, ?), float16], %c: (int32, bool), %d: (int32,), %e: (),
           %f: fn (int32, fn () -> bool) -> (int8), %g: ref(int64), %h: _, %i: uint1) {
      if (%i) { %h } else { %a }
    }"""
    module = from_text(text)
    types = [str(p.ty) for p in module["f"].params]
    assert types == [
        'R.Tensor((), dtype="int32")',
        'R.Tensor((2, d1), dtype="float16")',
        'R.Tuple(R.Tensor((), dtype="int32"), R.Tensor((), dtype="bool"))',
        'R.Tuple(R.Tensor((), dtype="int32"))',
        "R.Tuple",
        'R.Callable((R.Tensor((), dtype="int32"), R.Callable((), R.Tensor((), dtype="bool"), True)'
        '), R.Tensor((), dtype="int8"), True)',
        'R.Ref(R.Tensor((), dtype="int64"))',
        'R.Tensor((), dtype="int32")',
        'R.Tensor((), dtype="bool")',
    ]


# Programs


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 - 4",
        "7 / 2",
        "-7 / 2",
        "(1, 2f, True)",
        "()",
        "(1,)",
        "(1, (2, 3)).1.0",
        "let %x = (1, 2); (%x.1, %x.0)",
        "let %x: (int32, _) = (1, 2f); %x",
        "%0 = 1; %1 = %0 + %0; (%0, %1, %1)",
        "if (1 < 2) { 3 } else { 4 }",
        "if (let %x = True; %x) { %0 = 1; %0 } else { 2 }",
        "{ 1; 2; 3 }",
        "1; 2",
        "let %f = fn (%x, %y) { %x * %y }; %f(3, 4)",
        "let %f = fn (%x) { fn (%y) { %x * %y } }; %f(3)(5)",
        "(fn (%x) { %x + 1 })(2)",
        "let %k = 3; let %ap = fn (%f, %x) { %f(%x) }; %ap(fn (%y) { %y + %k }, 4)",
        "let %fact = fn (%n: int32) { if (%n == 0) { 1 } else { %n * %fact(%n - 1) } }; %fact(6)",
        "let %f = add; %f(1, 2)",
        "let %x = 1; let %x = %x + 1; %x",
        "%0 = fn (%x: int32) { %1 = %x + 1; %1 * %1 }; %0(2)",
    ],
)
def test_expressions(text: str) -> None:
    check(text)


def test_a_free_variable_is_a_parameter() -> None:
    text = "free_var %x: Tensor[(2,), float32]; free_var %y: float32; %x + %y"
    check(text, np.ones(2, np.float32), np.float32(2))


FACTORIAL = VERSION + """
def @factorial(%n: int32) -> int32 {
  if (%n == 0) { 1 } else { %n * @factorial(%n - 1) }
}
def @main(%n: int32) { @factorial(%n) }
"""

EVEN_ODD = VERSION + """
def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }
def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }
def @main(%n) { (@even(%n), @odd(%n)) }
"""

ACKERMANN = VERSION + """
def @main(%m: int32, %n: int32) -> int32 {
  if (%m == 0) {
    %n + 1
  } else {
    if (%n == 0) { @main(%m - 1, 1) } else { @main(%m - 1, @main(%m, %n - 1)) }
  }
}
"""

GROWING = VERSION + """
def @grow(%i: int32, %x: Tensor[(?, 2), float32]) -> Tensor[(?, 2), float32] {
  if (%i == 0) {
    %x
  } else {
    @grow(%i - 1, concatenate((%x, ones(shape=[1, 2], dtype="float32"))))
  }
}
def @main(%i: int32, %x: Tensor[(1, 2), float32]) { @grow(%i, %x) }
"""

MLP = VERSION + """
def @main(%x: Tensor[(?, 4), float32], %w: Tensor[(3, 4), float32], %b: Tensor[(3,), float32]) {
  %0 = nn.dense(%x, %w, units=3) /* ty=Tensor[(?, 3), float32] */;
  %1 = nn.bias_add(%0, %b);
  %2 = nn.relu(%1);
  (%0, add(%2, 1f))
}
"""

APPLY = VERSION + """
def @twice(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%f(%x)) }
def @inc(%x: int32) -> int32 { %x + 1 }
def @main(%n: int32) { (@twice(@inc, %n), @twice(negative, %n), @twice(fn (%x) { %x * %n }, %n)) }
"""


@pytest.mark.parametrize(
    ("text", "args"),
    [
        (FACTORIAL, [int32(6)]),
        (EVEN_ODD, [int32(7)]),
        (ACKERMANN, [int32(2), int32(3)]),
        (GROWING, [int32(3), np.zeros((1, 2), np.float32)]),
        (MLP, [np.ones((2, 4), np.float32), np.ones((3, 4), np.float32), np.ones(3, np.float32)]),
        (APPLY, [int32(5)]),
    ],
    ids=["factorial", "even and odd", "ackermann", "growing", "mlp", "apply"],
)
def test_programs(text: str, args: list[Any]) -> None:
    check(text, *args)


def test_functions_without_annotations() -> None:
    text = VERSION + """
    def @main(%x: float32) { @second((%x, 1)) + @use(%x) }
    def @use(%x) { @id(%x) * 2f }
    def @id(%x) { %x }
    def @second(%t: (_, _)) { if (%t.1 == 1) { %t.0 } else { 0f } }"""
    assert run(text, np.float32(3)) == 9


def test_types_that_could_be_any_become_type_parameters() -> None:
    module = from_text(VERSION + "def @id(%x) { %x } def @main() { (@id(1), @id(2f)) }")
    assert [var.name for var in module["id"].type_params] == ["T0"]


# Where graph bindings are evaluated


def test_a_graph_binding_is_evaluated_where_it_is_used() -> None:
    text = VERSION + """
    def @main(%n: int32) -> int32 {
      %0 = @main(%n - 1);
      if (%n == 0) { 0 } else { %0 + %n }
    }"""
    assert run(text, int32(4)) == 10  # in the branch: else it would not end


def test_a_graph_binding_of_two_branches_is_evaluated_before() -> None:
    text = "free_var %n: int32; %0 = %n * 2; if (%n == 0) { %0 } else { %0 + 1 }"
    function = from_text(text)["main"]
    (block,) = function.body.blocks
    assert "R.multiply" in str(block.bindings[0]) or "R.multiply" in str(block.bindings[1])
    assert str(function).count("R.multiply") == 1


def test_graph_bindings_in_functions_in_graph_bindings() -> None:
    check("%0 = 1 + 2; %1 = fn (%x: int32) { %2 = %x + %0; %2 * %2 }; "
          "if (%0 == 3) { %1(2) } else { 0 }")  # fmt: skip


def test_a_graph_variable_may_be_used_after_its_block() -> None:
    """Relay prints a node where it is used first: in a branch, or in a function."""
    text = "def @main(%c: bool, %x: int32) { if (%c) { %0 = %x + 1; %0 } else { %0 * 2 } }"
    assert run(VERSION + text, np.bool_(True), np.int32(3)) == 4
    assert run(VERSION + text, np.bool_(False), np.int32(3)) == 8
    text = "def @main(%x: int32) { %1 = fn (%y: int32) { %0 = %x + 1; %0 * %y }; %1(%0) + %0 }"
    assert run(VERSION + text, np.int32(3)) == 20
    assert run("%1 = { %0 = 2 * 5; %0 }; %0 = 4; %0 + %1") == 14
    assert run("%0 = 4; %1 = { %0 = 2 * 5; %0 }; %0 + %1") == 14


@pytest.mark.parametrize(
    "text",
    [
        "if (True) { let %y = 2; %0 = %y + 1; %0 } else { %0 * 2 }",
        "%1 = fn (%y: int32) { %0 = %y + 1; %0 * %y }; %1(%0)",
        "%1 = match ((1, 2)) { (%x, %y) => { %0 = %x + %y; %0 } }; %1 + %0",
        "%1 = { let %y = 3; %0 = fn () { %2 = %y; %2 }; %0() }; %1 + %0()",
    ],
)
def test_a_graph_variable_is_used_where_its_value_has_no_meaning(text: str) -> None:
    assert "which is in its value, is not defined" in refused(text)


@pytest.mark.parametrize(
    "text",
    [
        "def @main() { free_var %x: int32; %x }",
        "(free_var %x: int32; %x)",
        "let %f = fn () { free_var %x: int32; 1 }; %f()",
        "if (True) { free_var %x: int32; %x } else { 1 }",
    ],
)
def test_a_free_variable_in_a_block(text: str) -> None:
    assert "free_var %x: expected in an expression without definitions" in refused(text)


def test_an_unused_graph_binding_is_dropped() -> None:
    assert "R.add" not in str(from_text("%0 = 1 + 2; %1 = %0 + 1; 5"))


# Metadata and parameters


def _metadata(array: np.ndarray[Any, Any]) -> str:
    graph = {
        "root": 1,
        "nodes": [
            {"type_key": ""},
            {"type_key": "Map", "keys": ["relay.Constant", "Other"], "data": [2, 5]},
            {"type_key": "Array", "data": [3]},
            {"type_key": "relay.Constant",
             "attrs": {"_checked_type_": "4", "data": "0", "span": "0"}},
            {"type_key": "relay.TensorType", "attrs": {}},
            {"type_key": "Array", "data": [4]},
        ],
        "b64ndarrays": [base64.b64encode(tensor_bytes(array)).decode()],
        "attrs": {"tvm_version": "0.9.0"},
    }  # fmt: skip
    return json.dumps(graph)


def test_constants_of_the_metadata_section() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = (VERSION + "def @main(%x: Tensor[(2, 3), float32]) { add(%x, meta[relay.Constant][0]) }"
            "\n#[metadata]\n" + _metadata(array))
    np.testing.assert_array_equal(run(text, array), array * 2)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        ("meta[relay.Constant][1]", "expected an index below 1"),
        ("meta[Other][0]", "expected a tensor, relay.Constant"),
        ("meta[Unknown][0]", "no objects of this kind; its kinds are: relay.Constant, Other"),
    ],
)
def test_wrong_references_to_metadata(ref: str, message: str) -> None:
    text = VERSION + f"def @main() {{ {ref} }}\n#[metadata]\n{_metadata(np.zeros(1))}"
    assert message in refused(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "metadata: expected JSON"),
        ("[]", "expected a graph of nodes"),
        ('{"root": 9, "nodes": []}', "there are 0 nodes, got the number 9"),
        (_metadata(np.zeros(1)).replace("P6G0", "AAAA"), "expected the magic"),
        (_metadata(np.zeros(1)).replace("P6G0", "!!!!"), "tensor 0"),
    ],
)
def test_wrong_metadata(text: str, message: str) -> None:
    assert message in refused(VERSION + "def @main() { 1 }\n#[metadata]\n" + text)


def _stored_attrs(nodes: list[Any]) -> str:
    """A metadata section with the attributes of an operator: node 3, and those after it."""
    head = [
        {"type_key": ""},
        {"type_key": "Map", "keys": ["relay.attrs.A", "Array"], "data": [2, 2]},
        {"type_key": "Array", "data": [3]},
    ]
    return json.dumps({"root": 1, "nodes": [*head, *nodes], "b64ndarrays": []})


def _int(value: int) -> dict[str, Any]:
    return {"type_key": "IntImm", "attrs": {"dtype": "int32", "span": "0", "value": str(value)}}


def test_attributes_of_operators_in_the_metadata_section() -> None:
    """A number, bool or text is stored as it is, other attributes as numbers of nodes."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    head = VERSION + "def @main(%x: Tensor[(2, 3), float32]) {"
    attrs = {"axis": "4", "exclude": "0", "keepdims": "1"}
    nodes = [{"type_key": "A", "attrs": attrs}, {"type_key": "Array", "data": [5]}, _int(1)]
    text = f"{head} sum(%x, meta[relay.attrs.A][0]) }}\n#[metadata]\n{_stored_attrs(nodes)}"
    np.testing.assert_array_equal(run(text, x), x.sum(1, keepdims=True))
    attrs = {"k": "4", "axis": "1", "ret_type": "5", "is_ascend": "1", "dtype": "int64"}
    nodes = [{"type_key": "A", "attrs": attrs}, _int(2),
             {"type_key": "runtime.String", "repr_str": "indices"}]  # fmt: skip
    text = f"{head} topk(%x, meta[relay.attrs.A][0]) }}\n#[metadata]\n{_stored_attrs(nodes)}"
    np.testing.assert_array_equal(run(text, x), [[0, 1], [0, 1]])
    nodes = [{"type_key": "Array", "data": [4, 5]}, _int(3), _int(-1)]
    text = f"{head} reshape(%x, newshape=meta[Array][0]) }}\n#[metadata]\n{_stored_attrs(nodes)}"
    np.testing.assert_array_equal(run(text, x), x.reshape(3, 2))


@pytest.mark.parametrize(
    ("attrs", "nodes", "message"),
    [
        ({"axis": "9"}, [], "attribute 'axis': there are 4 nodes, got the number 9"),
        ({"axis": "x"}, [], "attribute 'axis': invalid literal"),
        ({"axis": "4"}, [{"type_key": "Other"}], "got an object 'Other'"),
        ({"axis": "4"}, [7], "expected a node as TVM writes it"),
        ({"axis": "4"}, [{"type_key": "Array", "data": [4]}], "at most 100 lists in each other"),
        ({"axis": "4"}, [{"type_key": "Array", "data": [i, i]} for i in range(5, 70)],
         "there are 69 nodes, got the number 69"),
        ({"axes": "0"}, [], "there is no attribute 'axes'; did you mean 'axis'"),
        (["axis"], [], "expected attributes"),
    ],
)  # fmt: skip
def test_wrong_attributes_in_the_metadata_section(attrs: Any, nodes: Any, message: str) -> None:
    text = "free_var %x: Tensor[(2, 3), float32]; sum(%x, meta[relay.attrs.A][0])"
    stored = _stored_attrs([{"type_key": "A", "attrs": attrs}, *nodes])
    assert message in refused(f"{text}\n#[metadata]\n{stored}")


def test_attributes_that_double_end_in_an_error() -> None:
    nodes: list[Any] = [{"type_key": "A", "attrs": {"axis": "4"}}]
    nodes += [{"type_key": "Array", "data": [i, i]} for i in range(5, 70)]
    text = "free_var %x: Tensor[(2, 3), float32]; sum(%x, meta[relay.attrs.A][0])"
    stored = _stored_attrs([*nodes, _int(1), _int(1)])
    assert "and 100000 numbers" in refused(f"{text}\n#[metadata]\n{stored}")


PARAMS = {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(3, np.float32)}


def test_parameters_round_trip(tmp_path: Path) -> None:
    mixed = {**PARAMS, "h": np.float16(1.5) * np.ones((2, 0)), "n": int32(7),
             "flag": np.array([True, False])}  # fmt: skip
    found = read_params(save_params(mixed))
    assert list(found) == list(mixed)
    for name, array in mixed.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_every_truncated_file_of_parameters_is_refused() -> None:
    data = save_params(PARAMS)
    for size in range(len(data)):
        with pytest.raises(FormatError, match=r"truncated at byte|expected"):
            read_params(data[:size])
    with pytest.raises(FormatError, match="1 bytes after the end"):
        read_params(data + b"\0")


def test_mutants_of_parameters_do_no_harm() -> None:
    data = save_params(PARAMS)
    for position in range(len(data)):
        for value in (0, 255, data[position] ^ 1):
            mutant = bytearray(data)
            mutant[position] = value
            try:
                read_params(bytes(mutant))
            except (FormatError, LimitError, ImportError):
                continue


@pytest.mark.parametrize("suffix", ["npz", "params"])
def test_parameters_become_constants(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"weights.{suffix}"
    if suffix == "npz":
        np.savez(path, **PARAMS)
    else:
        path.write_bytes(save_params(PARAMS))
    x = np.ones((2, 4), np.float32)
    expected = run(MLP, x, PARAMS["w"], PARAMS["b"])
    for params in (PARAMS, path, str(path)):
        for a, b in zip(run(MLP, x, params=params), expected, strict=True):
            np.testing.assert_array_equal(a, b)


def test_wrong_parameters() -> None:
    with pytest.raises(ValueError, match="@main has no parameter 'ww'; did you mean 'w'"):
        from_text(MLP, {"ww": PARAMS["w"]})
    with pytest.raises(ParseError, match=r"%b: expected Tensor\[\(3,\), float32\], got a tensor "
                                         r"\[4\] of float32"):  # fmt: skip
        from_text(MLP, {"b": np.zeros(4, np.float32)})


def test_compile_takes_a_path(tmp_path: Path) -> None:
    path, params = tmp_path / "model.relay", tmp_path / "model.params"
    path.write_text(MLP)
    params.write_bytes(save_params(PARAMS))
    x = np.ones((2, 4), np.float32)
    for executable in (
        relaxvm.compile(path, params=params),
        relaxvm.compile(str(path), params=PARAMS, limits=Limits.untrusted()),
    ):
        for a, b in zip(relaxvm.VirtualMachine(executable)["main"](x),
                        run(MLP, x, params=PARAMS), strict=True):  # fmt: skip
            np.testing.assert_array_equal(a, b)
    other = tmp_path / "model.txt"
    other.write_text("text")
    with pytest.raises(ValueError, match=r"expected an IRModule .* a Relay text"):
        relaxvm.compile(other)
    with pytest.raises(FileNotFoundError):
        relaxvm.compile(tmp_path / "none.relay")


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%x", "1:1: unknown variable %x"),
        ("let %data = 1; %date", "1:16: unknown variable %date; did you mean 'data'"),
        ("if (True) { let %x = 1; 2 } else { %x }", "1:36: unknown variable %x"),
        ("%0", "1:1: unknown graph variable %0: it is not defined before"),
        ("%0 = %1; %1 = 2; %0", "unknown graph variable %1"),
        ("%0 = 1; %0 = 2; %0", "%0 is defined twice in a block"),
        ("@f(1)", "unknown function @f"),
        ("fn (%x, %x) { 1 }", "parameter %x is defined twice"),
        ("fn [A, A](%x: A) { 1 }", "type parameter A is defined twice"),
        ("let %x: Lits[int32] = 1; 1", "unknown type Lits"),
        ("1 + 2f", "operator add"),
        ("1 + (1, 2)", "expected a tensor or scalar, got (x2, x2_1) of type"),
        ("fn (%x) { %x + 1 }(1, 2)", "expected 1 argument, got 2"),
        ("1(2)", "expected a function, got int32"),
        ("if (1) { 2 } else { 3 }", "the condition: expected bool, got int32"),
        ("if (True) { 2 } else { 3f }", "the other branch: expected int32, got float32"),
        ("let %x: float32 = 1; %x", "%x: expected float32, got int32"),
        ("(1, 2).2", "expected an index below 2, got 2: the tuple is of type (int32, int32)"),
        ("1.5f.0", "expected a tuple before .0, got float32"),
        ("fn (%x) { %x + %x }", "operator add: the type of argument 1 cannot be inferred"),
        ("let %f = fn (%x) { %x(%x) }; 1", "a type cannot contain itself"),
        ("nn.dense(1)", "operator nn.dense: expected 2 arguments, got 1"),
        ("nn.softmax(1f, axes=1)", "there is no attribute 'axes'; did you mean 'axis'"),
        ("cast(1)", "operator cast: attribute 'dtype' is missing"),
        ("cast(1, dtype=3)", "operator cast"),
        ("f(1, a=1, a=2)", "attribute a is given twice"),
        ("f(1, a=1, 2)", "expected an attribute, name=value, got '2'"),
        ("ref(1, 2)", "ref: expected 1 argument, got 2"),
        ("match (1) { }", "match: expected at least one clause"),
        ("let %x = 1", "expected ';', got the end of the text"),
        ("let @x = 1; 1", "expected a variable, %name, got '@x'"),
        ("(1, 2", "expected ',' or ')', got the end of the text"),
        ("$", "unexpected character '$'"),
        ('"abc', 'a string without an end: expected " in the same line'),
        ("/* /* */", "a comment without an end: expected */"),
        ("1 2", "expected 'def', 'type', 'extern', 'import' or the end of the text, got '2'"),
        ('#[version = "0.0.6"] 1', "version of the text: expected 0.0.4 or 0.0.5"),
        ("def @f() { 1 } def @f() { 2 }", "function @f is defined twice, first at <relay>:1:1"),
        ("type A { B } type A { C }", "type A is defined twice"),
        ("type A { B } type C { B }", "constructor B is defined twice"),
        ("extern type A { B }", "an extern type has no constructors, type A has 1"),
        ("type A { B(_) } def @f() { 1 }", "_ is not a type of a field"),
        ("type A { B(Tensor[(1, x), int8]) }", "expected a dimension: a number or ?, got 'x'"),
        ("let %x: Tensor[(1), float33] = 1; 1", "expected a data type such as float32"),
        ("let %x: Tensor[(99999999999999999999), int8] = 1; 1", "does not fit int64"),
    ],
)
def test_errors(text: str, message: str) -> None:
    found = refused(text)
    assert message in found
    assert found.startswith("<relay>:")
    assert "^" in found.splitlines()[-1]


def test_an_error_shows_its_line() -> None:
    text = VERSION + "def @main(%x: float32) {\n  let %y = add(%x, 1);\n  %y\n}"
    with pytest.raises(ParseError) as caught:
        from_text(text, file="net.relay")
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("net.relay:3:12: operator add: ")
    assert lines[1:] == ["    3 |   let %y = add(%x, 1);", "      |            ^^^^^^^^^^"]
    assert (caught.value.line, caught.value.column) == (3, 12)


def test_unknown_operators_are_listed_at_once() -> None:
    found = refused("(nn.lrn(1f), nn.lrn(2f), vision.nms(3f), nn.sofmax(4f))")
    assert "3 names that are neither a constructor nor an operator" in found
    assert "nn.lrn (<relay>:1:2 and 1 more)" in found
    assert "vision.nms (<relay>:1:26)" in found
    assert "nn.sofmax (<relay>:1:42); did you mean 'nn.softmax'" in found


# Hostile texts


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000,
        "[" * 100_000,
        "{" * 100_000,
        "f(" * 100_000,
        "1" + "+1" * 100_000,
        "f" + "(1)" * 100_000,
        "%x" + ".0" * 100_000,
        "let %x: " + "(" * 100_000,
        "let %x: " + "fn () -> " * 100_000,
        "f(a=" + "[" * 100_000,
        "match (1) { " + "A(" * 100_000,
        "if (True) {" * 100_000,
        "fn () {" * 100_000,
        "match (1) { _ => " * 100_000,
        "-" * 100_000 + "%x",
        "/*" * 100_000,
        '"' + "a" * 100_000,
        "/* " + "span=" * 100_000 + "*/",
        "1 #[metadata]" + "[" * 100_000,
        "",
    ],
)
def test_deep_texts_end_in_an_error(text: str) -> None:
    with pytest.raises((ParseError, NestingError)) as caught:
        from_text(text)
    assert len(str(caught.value)) < 1000


def test_long_texts() -> None:
    count = 20_000
    lets = "".join(f"let %x{i} = %x{i - 1};\n" for i in range(1, count))
    assert isinstance(from_text(f"let %x0 = 1;\n{lets}%x{count - 1}"), relaxvm.IRModule)
    binds = "".join(f"%{i} = %{i - 1};\n" for i in range(1, count))
    assert isinstance(from_text(f"%0 = 1;\n{binds}%{count - 1}"), relaxvm.IRModule)


def test_functions_in_functions_by_graph_bindings() -> None:
    count = 20_000
    binds = "".join(f"%{i} = fn () {{ %{i - 1} }};\n" for i in range(1, count))
    assert "in a function in a function" in refused(
        f"%0 = 1;\n{binds}%{count - 1}", NestingError
    )


def test_types_that_double_end_in_an_error() -> None:
    lines = "".join(f"let %x{i} = (%x{i - 1}, %x{i - 1});\n" for i in range(1, 200))
    with pytest.raises((LimitError, NestingError)):
        from_text(f"let %x0 = 1;\n{lines}%x199")
    with pytest.raises((ParseError, LimitError, NestingError)):
        from_text("fn (%y) { " + f"let %x0 = %y;\n{lines}%x199 }}")


def test_limits_of_files(tmp_path: Path) -> None:
    path = tmp_path / "a.relay"
    path.write_text("def @f() { 1 } def @main() { 2 }")
    with pytest.raises(LimitError, match="file_bytes"):
        from_text(path, limits=Limits(file_bytes=10))
    with pytest.raises(LimitError, match="functions"):
        from_text(path, limits=Limits(functions=1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../secret.rly", "expected the name of a .rly file, without a folder"),
        ("/etc/passwd", "expected the name of a .rly file"),
        ("none.rly", "there is no none.rly in the folder of the program, nor among nat.rly"),
        ("a.rly", "a.rly imports itself"),
    ],
)
def test_wrong_imports(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "a.rly").write_text('import "b.rly"')
    (tmp_path / "b.rly").write_text('import "a.rly"')
    path = tmp_path / "main.relay"
    path.write_text(f'import "{name}" def @main() {{ 1 }}')
    with pytest.raises(ParseError, match=message.replace(".", r"\.")):
        from_text(path)


def test_texts_are_imported_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "lib.rly").write_text("def @twice(%x: int32) { %x * 2 } def @unused() { 1 }")
    path = tmp_path / "main.relay"
    path.write_text('import "lib.rly"\ndef @main(%x: int32) { @twice(%x) }')
    module = from_text(path)
    assert [var.name_hint for var in module.functions] == ["twice", "main"]
    machine = relaxvm.VirtualMachine(relaxvm.build(module))
    assert machine["main"](int32(4)) == 8


# Printing


@pytest.mark.parametrize(
    "text",
    [
        FACTORIAL, EVEN_ODD, ACKERMANN, GROWING, MLP, APPLY,
        "(1, 2f, True, 3i64, 4u8, 1.5f16, 0.1f64, -inff)",
        "let %f = fn (%n: int32) { if (%n == 0) { %n } else { (fn (%x) { %x * %n })(2) } }; %f(1)",
        "free_var %r: ref(float32); ref_write(%r, 1f); ref_read(%r)",
        'import "prelude.rly" def @main(%xs: List[int32]) '
        "{ (@rev(@map(negative, %xs)), @zip(%xs, Cons(1f, Nil)), @hd(%xs), @iterate) }",
        'import "nat.rly" def @main(%n: nat, %t: Tree[(int32, bool)]) '
        "{ (@nat_add(%n, succ(zero)), @nat_iterate(@rev, %n)(Cons(1, Nil)), @size(%t), "
        "@tmap(fn (%p) { %p.0 }, %t)) }",
        "type Either[A, B] { Left(A), Right(B) } extern type Handle[A] "
        "def @main(%e: Either[int32, Handle[int8]]) { match? (%e) { Left(%x) => { %x + 1 } } }",
    ],
)  # fmt: skip
def test_what_is_printed_is_read_back(text: str) -> None:
    module = from_text(text)
    printed = to_text(module)
    again = from_text(printed)
    relaxvm.ir.assert_structural_equal(_private(again), _private(module))
    assert to_text(again) == printed


def _private(module: relaxvm.IRModule) -> relaxvm.IRModule:
    """A module without the difference between functions of the text and imported ones."""
    new = module.copy()
    for var, func in module.functions.items():
        new[var] = func.without_attr("global_symbol")
    return new


def test_printed_text() -> None:
    assert to_text(from_text(MLP)) == """#[version = "0.0.5"]

def @main(%x: Tensor[(?, 4), float32], %w: Tensor[(3, 4), float32], %b: Tensor[(3,), float32]) \
-> (Tensor[(?, ?), float32], Tensor[(?, ?), float32]) {
  let %gv = transpose(%w, axes=None);
  let %gv1 = nn.matmul(%x, %gv);
  let %gv2 = add(%gv1, %b);
  let %gv3 = nn.relu(%gv2);
  let %gv4 = add(%gv3, 1.0f);
  (%gv1, %gv4)
}
"""


def test_constants_are_printed_as_metadata() -> None:
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    module = from_text(MLP, {"w": weights})
    printed = to_text(module)
    assert "meta[relay.Constant][0]" in printed
    relaxvm.ir.assert_structural_equal(from_text(printed), module)


def test_what_relay_cannot_say_is_listed() -> None:
    module = relaxvm.IRModule()
    x = relaxvm.Var("x", relaxvm.TensorType(None, "float32"))
    y = relaxvm.Var("y", relaxvm.TensorType((2,), "float32"))
    builder = relaxvm.BlockBuilder(module)
    with builder.function("main", [x, y]):
        z = builder.emit(relaxvm.op.nn.gelu(y))
        builder.emit_func_output(builder.emit(relaxvm.op.expand_dims(z, [0, 2])))
    with pytest.raises(ValueError, match="Relay cannot say 3 parts of the module") as caught:
        to_text(builder.get())
    for reason in ("the type R.Tensor(dtype=", "the operator nn.gelu",
                   "the operator expand_dims: the axes are not next to each other"):  # fmt: skip
        assert f"function 'main': {reason}" in str(caught.value)


# The pages

DOCS = Path(__file__).parent.parent / "docs"
SHOWN = re.compile(r"^```python\n(.*?)^```\n(?:\n*^```text\n(.*?)^```$)?", re.M | re.S)
EXAMPLES = [
    pytest.param(code, output, id=f"{page}-{i}")
    for page in ("relay", "relay-isa")
    for i, (code, output) in enumerate(SHOWN.findall((DOCS / f"{page}.md").read_text("utf-8")))
]


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_examples_of_the_pages(code: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "page", "exec"), {})
    assert capsys.readouterr().out.rstrip() == output.rstrip()


def test_the_pages_have_examples() -> None:
    assert len(EXAMPLES) == 4
