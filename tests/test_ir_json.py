"""relaxvm.ir.json: programs as JSON."""

from __future__ import annotations

import copy
import json
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import tir
from relaxvm.errors import FormatError
from relaxvm.executable.debug_info import Span
from relaxvm.ir import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DataTypeImm,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    Op,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    VarBinding,
    VDevice,
    const,
    int_imm,
    prim,
)
from relaxvm.ir.equality import assert_structural_equal, structural_hash
from relaxvm.ir.expr import ANY
from relaxvm.ir.json import load_json, save_json
from relaxvm.script import from_source

from . import children

F32 = "float32"


def round_trip(node: Any) -> Any:
    text = save_json(node)
    loaded = load_json(text)
    assert save_json(loaded) == text
    if not isinstance(node, Expr) or not isinstance(node, Var):
        assert_structural_equal(loaded, node)
        assert structural_hash(loaded) == structural_hash(node)
    return loaded


def kernel() -> tir.PrimFunc:
    n = Var("n", "int64")
    i = Var("i", "int64")
    x, y = tir.decl_buffer((n,), F32, "x"), tir.decl_buffer((n,), F32, "y")
    store = tir.BufferStore(y, prim.add(x[i], FloatImm(F32, 1.0)), [i])
    loop = tir.For(i, 0, n, tir.ForKind.PARALLEL, store, annotations={"unroll": 4})
    return tir.PrimFunc([x, y], loop, attrs={"tirx.noalias": True})


def program() -> IRModule:
    """A module with every kind of node."""
    n, m = Var("n", "int64"), Var("m", "int64")
    device = VDevice("llvm", 1)
    ty = TensorType((n, n * 2 + 1), F32, device)
    x, s = Var("x", ty), Var("s", ShapeType((n, m)))
    c = Var("c", TensorType((), "bool"))
    lv = DataflowVar("lv", ty)
    out = Var("out", TupleType([ty, ANY]))
    cast, chosen = Var("cast", TensorType((m, 4), None)), Var("chosen", ANY)
    where = Span("model.py", 3, 5, 3, 20)
    call = Call(ExternFunc("f"), [x, const(np.arange(6, dtype="int8").reshape(2, 3))],
                {"axis": 1, "scale": math.nan}, [ty], ret_ty=ty)  # fmt: skip
    flow = DataflowBlock([
        VarBinding(lv, call, where),
        VarBinding(out, Tuple([lv, StringImm("é\n")]), Span("model.py", 4, 1)),
    ])  # fmt: skip
    branch = SeqExpr([BindingBlock([VarBinding(Var("t", ty), TupleGetItem(out, 0))])], x)
    plain = BindingBlock([
        MatchCast(cast, x, cast.ty),
        VarBinding(chosen, If(c, branch, DataTypeImm("float16"), ty=ANY)),
        VarBinding(Var("k", "int64"), prim.select(n < m, n // 2, prim.maximum(n, m))),
    ])  # fmt: skip
    inner = Function([Var("p", ty)], ShapeExpr([n, 3]))
    f = Var("f", inner.ty)
    body = SeqExpr([flow, plain, BindingBlock([VarBinding(f, inner)])], chosen)
    main = Function([x, s, c], body, ANY, False, {"global_symbol": "main", "bounds": {"n": 4}})
    module = IRModule({"main": main, "kernel": kernel()}, {"list": [1, (2.5, None)]},
                      {"vdevice": [device]})  # fmt: skip
    return module


def test_programs() -> None:
    module = round_trip(program())
    assert list(module.functions) == module.get_global_vars()
    assert [var.name_hint for var in module] == ["main", "kernel"]
    assert module.get_global_var("main").ty is module["main"].ty
    assert module["kernel"].body.kind is tir.ForKind.PARALLEL


def test_shared_nodes_stay_shared() -> None:
    main = round_trip(program())["main"]
    x = main.params[0]
    call = main.body.blocks[0].bindings[0].value
    assert call.args[0] is x
    assert call.ty_args[0] is x.ty
    n = x.ty.shape.values[0]
    assert main.body.blocks[1].bindings[2].value.condition.a is n
    assert load_json(save_json(ANY)) is ANY
    assert load_json(save_json(n)).ty is prim.prim_type("int64")


def test_inferred_types_are_kept() -> None:
    call = round_trip(program())["main"].body.blocks[0].bindings[0].value
    assert call.ty is call.ty_args[0]


def test_spans() -> None:
    module = program()
    binding = load_json(save_json(module))["main"].body.blocks[0].bindings[0]
    assert binding.span == Span("model.py", 3, 5, 3, 20)
    text = save_json(module, spans=False)
    assert "model.py" not in text
    assert load_json(text)["main"].body.blocks[0].bindings[0].span is None


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32",
                                   "float64", "bfloat16", "float8_e4m3fn"])  # fmt: skip
def test_constants(dtype: str) -> None:
    pytest.importorskip("ml_dtypes")
    constant = const([[0, 1, 2], [3, 4, 5]], dtype)
    data = round_trip(constant).data
    assert data.dtype == constant.data.dtype
    assert not data.flags.writeable
    assert data.tolist() == constant.data.tolist()


def test_unusual_constants() -> None:
    for array in (np.array(np.nan), np.zeros((2, 0)), np.asfortranarray(np.eye(3)),
                  np.arange(3, dtype=">i4")):  # fmt: skip
        round_trip(Constant(array))


VALUES = [None, True, 1, -(2**70), 1.5, -0.0, math.inf, "é\ud800", b"\x00\xff", (1, (2,)), [1, [2]],
          {"a": 1, 2: "b"}, np.dtype("int8"), int_imm(3)]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(value: Any) -> None:
    loaded = load_json(save_json(value))
    assert type(loaded) is type(value)
    assert_structural_equal(loaded, value)


def test_nan_keeps_its_bits() -> None:
    assert math.isnan(load_json(save_json(math.nan)))
    assert math.copysign(1, load_json(save_json(-math.nan))) == -1


def test_long_programs_do_not_recurse() -> None:
    n = Var("n", "int64")
    e = n + 1
    for _ in range(5000):
        e = e + n
    f = round_trip(Function([n], ShapeExpr([e])))
    assert f.body.body.values[0].ty.dtype == "int64"


def test_objects_that_cannot_be_saved() -> None:
    with pytest.raises(TypeError, match=r"root\.attrs\['a'\]: a object cannot be saved as JSON"):
        save_json(Call(ExternFunc("f"), [], {"a": object()}))
    with pytest.raises(TypeError, match="a ndarray cannot be saved"):
        save_json(np.array([None]))


def test_operators_are_found_by_name() -> None:
    op = Op("relax.test_ir_json", lambda call: ANY)
    with pytest.raises(FormatError, match=r"nodes\[0\] \(Op\): unknown operator 'relax.test_ir_"):
        load_json(save_json(op))
    found = Op.register("relax.test_ir_json", lambda call: ANY)
    assert load_json(save_json(op)) is found


# Malformed text

SMALL = json.loads(
    save_json(Function([Var("x", TensorType((2,), F32))], const(1.0), attrs={"a": 1}))
)


def broken_node(name: str, **parts: Any) -> str:
    return broken(lambda d: d["nodes"][at(name)].update(parts))


def broken_data(**parts: Any) -> str:
    return broken(lambda d: d["nodes"][at("Constant")]["data"].update(parts))


def broken(change: Any) -> str:
    document = copy.deepcopy(SMALL)
    change(document)
    return json.dumps(document)


def at(name: str) -> int:
    (index, *_) = (i for i, node in enumerate(SMALL["nodes"]) if node["is"] == name)
    return index


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: line 1, column 2"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", r"the text: expected an object, got \[\]"),
        ("{}", "format: expected 'relaxvm-ir', got None"),
        (broken(lambda d: d.update(version=2)), "version: 2 is newer than 1"),
        (broken(lambda d: d.update(version="1")), "version: expected a number, got '1'"),
        (broken(lambda d: d.update(more=1)), "the text: unknown 'more'"),
        (broken(lambda d: d.pop("root")), "root: missing"),
        (broken(lambda d: d.update(root={"node": 99})), "root: expected a node before this one"),
        (broken(lambda d: d["nodes"][0].update({"is": "Integer"})), r"nodes\[0\].is: unknown cl"),
        (broken(lambda d: d["nodes"][0].update({"is": "Expr"})), "unknown class 'Expr'"),
        (broken_node("Var", nam=1), r"\(Var\): unknown 'nam'"),
        (broken(lambda d: d["nodes"][at("Var")].pop("name")), r"\(Var\)\.name: expected str, got"),
        (broken_node("Var", ty=5), r"\.ty: expected .*Type"),
        (broken_node("Function", body={"node": 0}),
         r"\(Function\)\.body: expected SeqExpr, got a"),
        (broken_node("Function", params={"node": 0}), r"\.params: expec"),
        (broken_node("Function", is_pure=1), "is_pure: expected bool"),
        (broken_node("Function", span=[0, 1]), "expected five numbers"),
        (broken_node("Function", span=[0, 1, 1, 1, 1]), "a file below 0"),
        (broken_data(array="AAA"), "not base64"),
        (broken_data(shape=[2]),
         "expected 8 bytes, got 4"),
        (broken_data(shape=[-1]), "array of sizes"),
        (broken_data(dtype="float31"), "dtype: "),
        (broken_data(dtype="object"), "dtype: "),
        (broken_node("Function", attrs={"attrs": [["a", 1], ["a", 2]]}),
         "attribute 'a' appears twice"),
        (broken(lambda d: d.update(root={"float": "xyz"})), "expected 16 hexadecimal digits"),
        (broken(lambda d: d.update(root={"dict": [[{"list": []}, 1]]})), "cannot be a key"),
        (broken(lambda d: d.update(root={"what": 1})), "got an object of key 'what'"),
    ],
)  # fmt: skip
def test_malformed(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        load_json(text)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key of a document."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


def test_mutated_documents_load_or_are_refused() -> None:
    source = save_json(program())
    chance = random.Random(7)
    junk = [None, 0, -1, 10**9, 1.5, "", "x", [], {}, {"node": 0}, {"list": []}, [[]], True]
    refused = 0
    size = len(list(places(json.loads(source))))
    for number in chance.sample(range(size), 500):
        document = json.loads(source)
        container, key = list(places(document))[number]
        container[key] = chance.choice(junk)
        try:
            load_json(json.dumps(document))
        except FormatError:
            refused += 1
    assert refused > 300


def test_kinds_of_functions() -> None:
    for node in (FuncType(None, ANY), FuncType([ANY], ANY), GlobalVar("f"), tir.ForKind(1) + 0):
        round_trip(node)


def test_operators_are_registered_when_a_program_is_loaded() -> None:
    x = Var("x", TensorType((2,), F32))
    text = save_json(Call(Op.get("relax.add"), [x, x]))
    program = (
        "import sys; from relaxvm.ir import load_json\nprint(load_json(sys.stdin.read()).op.name)"
    )
    run = children.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    assert run.stdout == "relax.add\n"


def test_nodes_of_prim_funcs_are_known_when_a_program_is_loaded() -> None:
    text = save_json(
        from_source("""
@T.prim_func
def f(a: T.Buffer((3,), "float32")):
    a[0] = T.float32(1)
""")
    )
    program = (
        "import sys; from relaxvm.ir import load_json\nprint(type(load_json(sys.stdin.read())))"
    )
    run = children.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=True
    )
    assert "PrimFunc" in run.stdout


# What constructors guarantee


INT: Any = {"is": "PrimType", "dtype": "int64"}
SHAPE: Any = {"is": "ShapeType", "ndim": 1}
N: Any = {"is": "Var", "name": "n", "ty": {"node": 0}}
S: Any = {"is": "Var", "name": "s", "ty": {"node": 1}}
FLOAT: Any = {"is": "PrimType", "dtype": "float32"}
F: Any = {"is": "Var", "name": "f", "ty": {"node": 4}}
HEAD = [INT, SHAPE, N, S, FLOAT, F]
"""Nodes 0 to 5: two types, a scalar and a shape, and a float."""
UNSOUND: dict[str, tuple[Any, str]] = {
    "operand": ({"is": "Add", "a": {"node": 2}, "b": {"node": 3}, "ty": {"node": 0}},
                "nodes[6] (Add).b: expected a scalar, got one of type ShapeType"),
    "result": ({"is": "Add", "a": {"node": 2}, "b": {"node": 2}},
               "nodes[6] (Add): expected a scalar, got one of type None"),
    "two data types": ({"is": "Add", "a": {"node": 2}, "b": {"node": 5}, "ty": {"node": 0}},
                       "nodes[6] (Add): expected operands of one data type, got int64 and float32"),
    "and": ({"is": "And", "a": {"node": 2}, "b": {"node": 2}, "ty": {"node": 0}},
            "nodes[6] (And).a: expected a bool scalar, got one of int64"),
    "bits": ({"is": "BitwiseAnd", "a": {"node": 5}, "b": {"node": 5}, "ty": {"node": 4}},
             "nodes[6] (BitwiseAnd): expected integers or bools, got float32 and float32"),
    "bits of one": ({"is": "BitwiseNot", "a": {"node": 5}, "ty": {"node": 4}},
                    "nodes[6] (BitwiseNot): expected an integer or a bool, got float32"),
    "condition": ({"is": "Select", "condition": {"node": 2}, "true_value": {"node": 2},
                   "false_value": {"node": 2}, "ty": {"node": 0}},
                  "nodes[6] (Select).condition: expected a bool scalar, got one of int64"),
    "not": ({"is": "Not", "a": {"node": 3}, "ty": {"node": 0}},
            "nodes[6] (Not).a: expected a scalar, got one of type ShapeType"),
    "base": ({"is": "CmpExpr", "a": {"node": 2}, "b": {"node": 2}, "ty": {"node": 0}},
             "nodes[6] (CmpExpr): CmpExpr is the base of other classes"),
    "integer": ({"is": "IntImm", "value": 1 << 70, "ty": {"node": 0}},
                "nodes[6] (IntImm): 1180591620717411303424 does not fit int64"),
    "integer type": ({"is": "IntImm", "value": 1, "ty": {"node": 1}},
                     "nodes[6] (IntImm): expected a scalar, got one of type ShapeType"),
    "float": ({"is": "FloatImm", "value": 1.0, "ty": {"node": 0}},
              "nodes[6] (FloatImm): expected a data type of floats, got 'int64'"),
    "dimension": ({"is": "ShapeExpr", "values": [{"node": 3}], "ty": {"node": 1}},
                  "nodes[6] (ShapeExpr): a dimension is an integer scalar, got s of type "),
    "rank of a shape": ({"is": "ShapeExpr", "values": [], "ty": {"node": 1}},
                        "nodes[6] (ShapeExpr).ty: expected the type of a shape of 0 dimensions"),
    "rank": ({"is": "TensorType", "shape": {"node": 3}, "dtype": "int8", "ndim": 2},
             "nodes[6] (TensorType).ndim: expected 1, got 2"),
    "unknown rank": ({"is": "TensorType", "shape": {"node": 3}, "dtype": "int8", "ndim": -1},
                     "nodes[6] (TensorType).ndim: expected 1, got -1"),
    "elements": ({"is": "TensorType", "dtype": "datetime64", "ndim": 1}, "nodes[6] (TensorType): "),
    "data type": ({"is": "PrimType", "dtype": "intx"}, "nodes[6] (PrimType).dtype: "),
    "tuple": ({"is": "Tuple", "fields": [{"node": 2}], "ty": {"node": 1}},
              "nodes[6] (Tuple).ty: expected the type of a tuple of 1 elements"),
    "sequence": ({"is": "SeqExpr", "blocks": [], "body": {"node": 2}, "ty": {"node": 1}},
                 "nodes[6] (SeqExpr).ty: expected the type of the body"),
    "global": ({"is": "GlobalVar", "name_hint": "f", "ty": {"node": 0}},
               "nodes[6] (GlobalVar).ty: expected the type of a function"),
    "range": ({"is": "Range", "min": {"node": 2}, "extent": {"node": 3}},
              "nodes[6] (Range): expected an integer scalar, got s of type "),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSOUND)
def test_nodes_that_no_constructor_makes(case: str) -> None:
    node, message = UNSOUND[case]
    document = {"format": "relaxvm-ir", "version": 1, "root": {"node": 6}, "nodes": [*HEAD, node]}
    with pytest.raises(FormatError) as error:
        load_json(json.dumps(document))
    assert str(error.value).startswith(message)


def test_the_result_type_of_a_function_is_a_type() -> None:
    document = json.loads(save_json(Function([Var("n", "int64")], int_imm(1))))
    body = next(i for i, node in enumerate(document["nodes"]) if node["is"] == "SeqExpr")
    document["nodes"][-1]["ret_ty"] = {"node": body}
    with pytest.raises(FormatError, match=r"\(Function\)"):
        load_json(json.dumps(document))


def test_messages_about_shared_nodes_are_short() -> None:
    """The message of a wrong node shows it, however often its parts are shared."""
    doubled = [{"is": "Add", "a": {"node": i}, "b": {"node": i}, "ty": {"node": 0}}
               for i in (2, *range(6, 18))]  # fmt: skip
    wrong = {"is": "ShapeExpr", "values": [{"node": 18}, {"node": 3}], "ty": {"node": 1}}
    document = {"format": "relaxvm-ir", "version": 1, "root": None, "nodes": [*HEAD, *doubled]}
    load_json(json.dumps(document))
    document["nodes"] = [*HEAD, *doubled, wrong]
    with pytest.raises(FormatError) as error:
        load_json(json.dumps(document))
    assert len(str(error.value)) < 600


def test_constants_that_are_not_folded() -> None:
    """Python folds constants as they are made; in a file they need not be."""
    n = Var("n", "int64")
    half = prim.FloorDiv(int_imm(4), int_imm(2))
    main = Function([Var("x", TensorType((n,), F32))], ShapeExpr([half, n]))
    module = load_json(save_json(IRModule({"main": main.with_attr("global_symbol", "main")})))
    vm = relaxvm.VirtualMachine(relaxvm.build(module))
    assert vm["main"](np.zeros(3, np.float32)) == (2, 3)
