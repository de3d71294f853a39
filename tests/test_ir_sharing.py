"""Programs whose parts are shared so often that a walk over them would never end: in files, and
made in Python."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import pytest

import relaxvm
from relaxvm import BlockBuilder, analysis, op, te, tir, transform
from relaxvm.errors import ExprSizeError, FormatError, LimitError, TypeSizeError
from relaxvm.ir import (
    MOST_EXPR_PARTS,
    BindingBlock,
    Function,
    GlobalVar,
    If,
    IRModule,
    SeqExpr,
    ShapeExpr,
    TensorType,
    Tuple,
    TupleType,
    Var,
    VarBinding,
    arith,
    prim,
    structural_equal,
    structural_hash,
)
from relaxvm.ir.json import LEAST_WALK, MOST_SHARING, load_json, save_json
from relaxvm.script import ir as I
from relaxvm.script import relax as R


def doubled(levels: int, wrap: Any) -> str:
    """A document in which every node refers twice to the previous one."""
    nodes: list[Any] = [
        {"is": "PrimType", "dtype": "int64"},
        {"is": "PrimType", "dtype": "bool"},
        {"is": "Var", "name": "c", "ty": {"node": 1}},
        {"is": "Var", "name": "n", "ty": {"node": 0}},
    ]
    for level in range(levels):
        nodes.append(wrap({"node": level + 3}))
    return json.dumps(
        {"format": "relaxvm-ir", "version": 1, "root": {"node": len(nodes) - 1}, "nodes": nodes}
    )


WRAPS = {
    "scalar": lambda x: {"is": "Add", "a": x, "b": x, "ty": {"node": 0}},
    "select": lambda x: {
        "is": "Select", "condition": {"node": 2}, "true_value": x, "false_value": x,
        "ty": {"node": 0},
    },
    "tuple": lambda x: {"is": "Tuple", "fields": [x, x]},
    "call": lambda x: {
        "is": "Call", "op": x, "args": [x, x], "attrs": {"attrs": []}, "ty_args": [],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", WRAPS)
@pytest.mark.parametrize("levels", [20, 26, 60, 3000])
def test_documents_with_exponential_sharing_are_refused(kind: str, levels: int) -> None:
    start = time.process_time()
    load_json(doubled(4, WRAPS[kind]))
    with pytest.raises(FormatError, match=r"nodes.*(a walk visits|parts: it has at most)"):
        load_json(doubled(levels, WRAPS[kind]))
    assert time.process_time() - start < 60


def test_scalars_up_to_the_bound_are_read_and_printed() -> None:
    node = load_json(doubled(14, WRAPS["scalar"]))
    assert str(node).count("n") == 2**14
    assert structural_equal(load_json(save_json(node)), node, map_free_vars=True)
    with pytest.raises(
        FormatError, match=r"nodes\[19\] \(Add\): an expression of 131071 parts: .*; bind"
    ):
        load_json(doubled(20, WRAPS["scalar"]))


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", "m"), "float32")) -> R.Tensor(("n", "m"), "float32"):
        with R.dataflow():
            y = R.add(x, x)
            z = R.multiply(y, y)
            R.output(z)
        return z


def test_programs_stay_far_below_the_bound() -> None:
    """Walks are longer than programs because variables share types."""
    for mod in (Module, relaxvm.get_pipeline("default")(Module)):
        document = json.loads(save_json(mod))
        assert structural_equal(load_json(json.dumps(document)), mod)
        assert LEAST_WALK > 100 * len(document["nodes"])
    builder = relaxvm.BlockBuilder()
    x = relaxvm.Var("x", Module["main"].params[0].ty)
    with builder.function("main", [x]):
        value = x
        for _ in range(2000):
            value = builder.emit(relaxvm.op.add(value, value))
        builder.emit_func_output(value)
    mod = builder.get()
    assert structural_equal(load_json(save_json(mod)), mod)
    assert MOST_SHARING >= 2


# Made in Python

TENSOR = TensorType((2,), "float32")
A = tir.decl_buffer((4,), "float32", "A")
N = Var("n", "int64")
X = Var("x", TENSOR)
C = Var("c", TensorType((), "bool"))

DOUBLES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "sum": (N, lambda d: d + d),
    "product": (N, lambda d: d * d),
    "division": (N, lambda d: d // (d + 3)),
    "maximum": (N, lambda d: prim.maximum(prim.minimum(d, d - N), d // N)),
    "select": (N, lambda d: prim.select(d < d + 1, d, d - 1)),
    "cast": (N, lambda d: prim.Cast("int64", d) + d),
    "let": (N, lambda d: prim.Let(Var("v", "int64"), d, d)),
    "element": (A[0], lambda e: e * e),
    "shape": (N, lambda d: ShapeExpr([d, d]).values[0] + ShapeExpr([d, d]).values[1]),
    "statement": (
        tir.BufferStore(A, 1.0, [0]), lambda s: tir.IfThenElse(A[0] > 0, s, s),
    ),
    "sequence": (tir.BufferStore(A, 1.0, [0]), lambda s: tir.SeqStmt([s, s])),
}  # fmt: skip


def doublings(start: Any, double: Callable[[Any], Any], levels: int) -> Any:
    for _ in range(levels):
        start = double(start)
    return start


@pytest.mark.parametrize("kind", DOUBLES)
def test_what_is_doubled_again_and_again_is_refused(kind: str) -> None:
    with pytest.raises(
        ExprSizeError, match=r"of \d+ parts: it has at most \d+, .*; bind"
    ) as caught:
        doublings(*DOUBLES[kind], 60)
    assert isinstance(caught.value, LimitError)


SCALARS = [kind for kind, (start, _) in DOUBLES.items() if start is N]


@pytest.mark.parametrize("kind", SCALARS)
def test_every_walk_over_a_large_scalar_ends(kind: str) -> None:
    start, double = DOUBLES[kind]
    levels = 0
    while doublings(start, double, levels + 1)._parts <= MOST_EXPR_PARTS // 16:
        levels += 1
    a, b = doublings(start, double, levels), doublings(start, double, levels)
    assert str(a) in repr(a)
    assert kind in ("let",) or structural_equal(a, b)
    assert structural_hash(a) == structural_hash(a)
    assert structural_equal(copy.deepcopy(a), a, map_free_vars=True)
    assert structural_equal(pickle.loads(pickle.dumps(a)), a, map_free_vars=True)
    assert structural_equal(load_json(save_json(a)), a, map_free_vars=True)
    assert arith.free_vars(a) == [N] or kind == "let"
    arith.evaluate(arith.substitute(a, {N: 3}), {N: 3})
    arith.simplify(a)
    arith.prove_equal(a, b)


def test_substitution_keeps_what_is_shared() -> None:
    d = doublings(*DOUBLES["sum"], 12)
    new = arith.substitute(d, {N: N + 1})
    for _ in range(12):
        assert new.a is new.b
        new = new.a


def test_simplifying_takes_time_in_proportion_to_the_levels() -> None:
    d: Any = N
    for level in range(60):
        d = prim.maximum(prim.minimum(d, Var(f"v{level}", "int64")) // 2, N + level)
    start = time.process_time()
    arith.simplify(d)
    assert time.process_time() - start < 30


def calls(levels: int) -> Any:
    return doublings(X, lambda y: op.add(y, y), levels)


def test_calls_that_are_shared_are_bound_once() -> None:
    bb = BlockBuilder()
    with bb.function("main", [X]):
        bb.emit_func_output(bb.emit(calls(60)))
    mod = bb.get()
    assert len(mod["main"].body.blocks[0].bindings) == 60
    relaxvm.build(mod)


def branches(levels: int) -> Any:
    return doublings(X, lambda e: If(C, SeqExpr([], e), SeqExpr([], e)), levels)


SHARED: dict[str, Callable[[int], Any]] = {
    "calls": calls,
    "branches": branches,
    "branches of calls": lambda levels: If(C, calls(levels), calls(levels)),
}


@pytest.mark.parametrize("kind", SHARED)
def test_what_is_shared_too_often_is_printed_in_short(kind: str) -> None:
    expr = SHARED[kind](60)
    short = f"<{type(expr).__name__} with so much sharing that its text would not end>"
    assert str(expr) == short
    assert repr(expr) == f"<{type(expr).__name__} {short}>"
    assert short.split()[1] in str(SeqExpr([BindingBlock([VarBinding(X, expr)])], X))
    with pytest.raises(ExprSizeError, match=r"^printing: .* visits .*\d{19} nodes, but only"):
        expr.script()
    assert SHARED[kind](6).script()


def test_printing_what_is_shared_less() -> None:
    assert calls(10).script().count("R.add") == 2**10 - 1
    assert str(Tuple([X] * 60_000)).count("x") == 60_000


WALKS: dict[str, Callable[[IRModule], Any]] = {
    "script": lambda mod: mod.script(),
    "well_formed": analysis.well_formed,
    "normalize": transform.Normalize(),
    "fold": transform.FoldConstant(),
    "pipeline": relaxvm.get_pipeline("default"),
    "build": relaxvm.build,
}


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("walk", WALKS)
def test_walks_refuse_what_is_shared_too_often(walk: str, kind: str) -> None:
    body = SeqExpr([], SHARED[kind](60))
    mod = IRModule({GlobalVar("main"): Function([X, C], body, TENSOR)})
    with pytest.raises(ExprSizeError, match="so much sharing that a walk visits"):
        WALKS[walk](mod)
    assert structural_equal(mod, copy.deepcopy(mod), map_free_vars=True)


def test_building_a_branch_that_is_shared_too_often() -> None:
    bb = BlockBuilder()
    with pytest.raises(ExprSizeError, match=r"^emit: "), bb.function("main", [X, C]):
        bb.emit(branches(60))


def test_types_count_the_parts_of_their_dimensions() -> None:
    ty: Any = TensorType([doublings(*DOUBLES["sum"], 14)], "float32")
    with pytest.raises(TypeSizeError):
        TupleType([ty, ty, TupleType([ty, ty])])
    assert len(TupleType([TensorType([4, 4], "float32")] * 60_000).fields) == 60_000


def test_tensor_expressions() -> None:
    source = te.placeholder((4,), name="A")
    with pytest.raises(ExprSizeError):
        te.compute((4,), lambda i: doublings(source[i], lambda e: e * e, 60))
    tensor: Any = source
    for level in range(60):
        tensor = te.compute((4,), lambda i, t=tensor: t[i] * t[i], name=f"B{level}")
    assert str(te.create_prim_func([source, tensor])).count("T.sblock") >= 60


def test_changing_a_part_counts_anew() -> None:
    d = prim.Select(N < 3, A[N], A[0])
    assert arith.substitute(d, {N: doublings(*DOUBLES["sum"], 10)})._parts > 2**12
    loop = tir.For(N, 0, 4, 0, tir.BufferStore(A, 1.0, [N]))
    new = tir.substitute(loop.body, {N: doublings(*DOUBLES["sum"], 10)})
    assert new._parts > 2**10 > loop._parts


def nested(kind: str) -> Any:
    value: Any = 1
    if kind == "in itself":
        value = [1]
        value.append(value)
        return value
    for _ in range(12):
        if kind == "dict":
            value = dict.fromkeys("abcdefghijklmnop", value)
        else:
            value = (value,) * 16 if kind == "tuple" else [value] * 16
    return value


@pytest.mark.parametrize("kind", ["tuple", "list", "dict", "in itself"])
def test_attributes_and_constants(kind: str) -> None:
    """Containers of Python with 2^48 values, or that contain themselves."""
    value = nested(kind)
    func = Function([X], X, TENSOR)
    doors: list[Callable[[], Any]] = [
        lambda: func.with_attr("name", value),
        lambda: func.with_attrs({"name": value}),
        lambda: Function([X], X, TENSOR, attrs={"name": value}),
        lambda: IRModule({}).with_attr("name", value),
        lambda: relaxvm.ir.Call(op.OPERATORS["exp"].op, [X], {"name": value}),
    ]
    if kind != "dict":
        doors += [lambda: R.const(value), lambda: R.const(value, "float32")]
        mod = IRModule({GlobalVar("main"): func})
        doors += [lambda: transform.BindParams("main", {X: value})(mod)]
    for door in doors:
        with pytest.raises(ExprSizeError, match=r"expected at most \d+ values in tuples, lists"):
            door()


def test_large_attributes_and_constants() -> None:
    value = [[1, 2, 3]] * 100_000
    assert Function([X], X, TENSOR, attrs={"name": value}).attrs["name"] is value
    assert R.const(value).data.shape == (100_000, 3)
