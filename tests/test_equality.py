"""relaxvm.ir.equality: structural equality and hash."""

from __future__ import annotations

import copy
import math
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from relaxvm.executable.debug_info import Span
from relaxvm.ir import (
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    DummyGlobalInfo,
    Expr,
    ExternFunc,
    FloatImm,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    StringImm,
    TensorType,
    Tuple,
    TupleType,
    Type,
    Var,
    VarBinding,
    VDevice,
    const,
    int_imm,
    prim,
)
from relaxvm.ir.equality import assert_structural_equal, structural_equal, structural_hash
from relaxvm.ir.expr import ANY
from relaxvm.ir.prim import Let

from . import children

F32 = "float32"
ONE = int_imm(1)


def packed(name: str, *args: Expr, ty: Type = ANY) -> Call:
    return Call(ExternFunc(name), args, ty_args=[ty])


def function(
    names: str = "n x y z",
    *,
    callee: str = "f",
    dim: Callable[[Var], Any] = lambda n: n,
    dtype: str = F32,
    block: type[BindingBlock] = BindingBlock,
    data: float = 1.0,
    extra: Iterable[str] = (),
    attrs: dict[str, Any] | None = None,
    is_pure: bool = True,
    cast: bool = True,
) -> Function:
    """A function of a symbolic shape, with a match_cast and a constant."""
    n, x, y, z = names.split()
    size = Var(n, "int64")
    rows = Var("rows", "int64")
    ty = TensorType((dim(size), 4), dtype)
    param = Var(x, ty)
    first, second = Var(y, ty), Var(z, TensorType((rows, size), F32))
    bindings: list[Any] = [VarBinding(first, packed(callee, param, const(data, F32), ty=ty))]
    if cast:
        bindings.append(MatchCast(second, first, TensorType((rows, size), F32)))
    bindings += [VarBinding(Var(name, ty), packed(name, first, ty=ty)) for name in extra]
    body = SeqExpr([block(bindings)], second if cast else first)
    return Function([param], body, TensorType((2,) * 0 or None, F32, ndim=2), is_pure, attrs)


def check(a: Any, b: Any, equal: bool, **options: Any) -> None:
    assert structural_equal(a, b, **options) is equal
    assert structural_equal(b, a, **options) is equal
    assert structural_equal(a, a)
    if equal:
        assert_structural_equal(a, b, **options)
        assert structural_hash(a, **options) == structural_hash(b, **options)
    else:
        with pytest.raises(ValueError, match="not structurally equal"):
            assert_structural_equal(a, b, **options)
        assert structural_hash(a, **options) != structural_hash(b, **options)


def test_names_do_not_count() -> None:
    check(function(), function("m a b c"), True)


@pytest.mark.parametrize(
    "change",
    [
        {"callee": "g"},
        {"dim": lambda n: n + 1},
        {"dim": lambda n: 3},
        {"dtype": "float16"},
        {"block": DataflowBlock},
        {"data": 2.0},
        {"extra": ["h"]},
        {"attrs": {"global_symbol": "main"}},
        {"is_pure": False},
        {"cast": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_content_counts(change: dict[str, Any]) -> None:
    check(function(), function(**change), False)


def test_variables_are_matched_one_to_one() -> None:
    def body(use: int) -> Function:
        x, y = Var("x", TensorType((2,), F32)), Var("y", TensorType((2,), F32))
        return Function([x, y], Tuple([x, (x, y)[use]]))

    check(body(0), body(1), False)


def test_symbolic_variables_are_defined_at_their_first_use() -> None:
    def two(same: bool) -> Function:
        n = Var("n", "int64")
        m = n if same else Var("n", "int64")
        params = [Var("x", TensorType((n,), F32)), Var("y", TensorType((m,), F32))]
        return Function(params, params[0])

    check(two(True), two(False), False)
    check(two(False), two(False), True)


def test_a_scalar_parameter_equals_an_earlier_dimension() -> None:
    def with_size(same: bool) -> Function:
        n = Var("n", "int64")
        m = n if same else Var("n", "int64")
        return Function([Var("x", TensorType((n,), F32)), m], m)

    check(with_size(True), with_size(True), True)
    check(with_size(True), with_size(False), False)


def test_types_of_functions_have_variables_of_their_own() -> None:
    def func_type(n: Var) -> FuncType:
        return FuncType([TensorType((n,), F32)], TensorType((n, n), F32))

    n, m, k = (Var(name, "int64") for name in "nmk")
    check(TupleType([func_type(n), func_type(n)]), TupleType([func_type(m), func_type(k)]), True)
    check(func_type(n), FuncType([TensorType((n,), F32)], TensorType((n, m), F32)), False)
    outer = [TupleType([TensorType((n,), F32), func_type(n)]),
             TupleType([TensorType((n,), F32), func_type(m)])]  # fmt: skip
    a, b = (Function([Var("x", ty)], int_imm(0)) for ty in outer)
    check(a, b, False)


def test_shared_types_are_compared_in_their_scope() -> None:
    """The same types inside a scope and outside: a variable is mapped to the other side's in one
    place and is free in the other."""

    def sides(n: Var, m: Var) -> tuple[Type, Type]:
        """One type, which shares its parts or has copies of them."""

        def part(var: Var) -> Type:
            return TupleType([TensorType((var,), "float32")])

        shared = part(n)
        return (
            TupleType([FuncType([shared], shared), shared, FuncType([part(m)], shared)]),
            TupleType([FuncType([part(n)], part(n)), part(n), FuncType([part(m)], part(n))]),
        )

    n, m = Var("n", "int64"), Var("m", "int64")
    shared, copied = sides(n, m)
    assert structural_equal(shared, copied)
    assert structural_hash(shared) == structural_hash(copied)
    for other in sides(Var("n", "int64"), m):
        assert not structural_equal(shared, other)
        assert structural_equal(shared, other, map_free_vars=True)
        assert structural_hash(shared) != structural_hash(other)
        assert structural_hash(shared, True) == structural_hash(other, True)


def test_free_variables() -> None:
    x, y = Var("x", TensorType((2,), F32)), Var("x", TensorType((2,), F32))
    z = Var("x", TensorType((3,), F32))
    check(Tuple([x, x]), Tuple([x, x]), True)
    check(Tuple([x, x]), Tuple([y, y]), False)
    check(Tuple([x, x]), Tuple([y, y]), True, map_free_vars=True)
    check(Tuple([x, x]), Tuple([y, x]), False, map_free_vars=True)
    check(Tuple([x]), Tuple([z]), False, map_free_vars=True)
    n, m = Var("n", "int64"), Var("m", "int64")
    check(TensorType((n, m * 2), F32), TensorType((n, m * 2), F32), True)
    check(TensorType((n, m), F32), TensorType((m, n), F32), False)
    check(TensorType((n, m), F32), TensorType((m, n), F32), True, map_free_vars=True)
    check(TensorType((n, n), F32), TensorType((m, n), F32), False, map_free_vars=True)


def test_shared_functions_may_be_copied() -> None:
    def twice(shared: bool) -> Function:
        def inner() -> Function:
            p = Var("p", TensorType((Var("n", "int64"),), F32))
            return Function([p], p)

        f = inner()
        functions = [f, f if shared else inner()]
        blocks = [BindingBlock([VarBinding(Var("f", g.ty), g) for g in functions])]
        return Function([], SeqExpr(blocks, int_imm(0)))

    check(twice(True), twice(False), True)


def test_kinds_of_variables_and_scalars() -> None:
    def bound(kind: type[Var], value: Expr = ONE) -> Function:
        var = kind("v", "int64")
        return Function([], SeqExpr([DataflowBlock([VarBinding(var, value)])], int_imm(0)))

    check(bound(Var), bound(DataflowVar), False)
    check(bound(Var), bound(Var, prim.IntImm("int32", 1)), False)
    check(bound(Var), bound(Var, prim.IntImm("bool", 1)), False)
    check(bound(Var), bound(Var, FloatImm("float64", 1)), False)
    check(FloatImm(F32, math.nan), FloatImm(F32, math.nan), True)
    check(FloatImm(F32, 0.0), FloatImm(F32, -0.0), False)
    n, m = Var("n", "int64"), Var("m", "int64")
    check(n + m, m + n, False)
    check(prim.cast(n, "int32"), prim.cast(n, "int16"), False)
    check(Let(n, m, n + 1), Let(k := Var("k", "int64"), m, k + 1), True)


def test_constants() -> None:
    nan = np.array([np.nan, 1.0], F32)
    check(Constant(nan), Constant(nan.copy()), True)
    check(Constant(nan), Constant(nan.astype("float64")), False)
    check(Constant(nan), Constant(nan.reshape(1, 2)), False)
    check(Constant(np.zeros(2)), Constant(-np.zeros(2)), False)
    matrix = np.arange(6.0).reshape(2, 3)
    check(Constant(matrix), Constant(np.asfortranarray(matrix)), True)
    placed = TensorType((2,), F32, VDevice("llvm"))
    check(Constant(nan), Constant(nan, placed), False)


def test_types() -> None:
    n = Var("n", "int64")
    types: list[Callable[[], Type]] = [
        lambda: ANY,
        lambda: PrimType("int64"),
        lambda: PrimType("int32"),
        lambda: ShapeType((n, 2)),
        lambda: ShapeType((n, 3)),
        lambda: ShapeType((n, n + 1)),
        lambda: ShapeType((n, n + 2)),
        lambda: ShapeType(ndim=2),
        lambda: ShapeType(),
        lambda: TensorType((n, 2), F32),
        lambda: TensorType((n, 2), "int32"),
        lambda: TensorType((n, 2), None),
        lambda: TensorType((n, 2), F32, VDevice("llvm")),
        lambda: TensorType((n, 2), F32, VDevice("llvm", 1)),
        lambda: TensorType(ndim=2, dtype=F32),
        lambda: TensorType(dtype=F32),
        lambda: TupleType([]),
        lambda: TupleType([TensorType((n, 2), F32)]),
        lambda: TupleType([TensorType((n, 2), F32), ANY]),
        lambda: TupleType([TensorType((n, 2), F32, VDevice("llvm")), ANY]),
        lambda: FuncType([ANY], ANY),
        lambda: FuncType([ANY], ANY, False),
        lambda: FuncType(None, ANY),
    ]
    for i, a in enumerate(types):
        for j, b in enumerate(types):
            check(a(), b(), i == j)
            assert structural_equal(a(), b(), map_free_vars=True) is (i == j)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda ty: pickle.loads(pickle.dumps(ty))]
)
def test_copies_of_types(copied: Callable[[Type], Type]) -> None:
    """Their dimensions have data types that are other objects."""
    shape = TensorType((2, 3), F32)
    for ty in (shape, ShapeType((2, 3)), TupleType([shape, ANY]), FuncType([shape], shape)):
        made = copied(ty)
        assert made == ty
        assert ty == made
        assert {ty: 1}[made] == 1
        check(made, ty, True)


def test_subclasses_of_types() -> None:
    """The answer is the same with and without variables to match."""

    class Own(TensorType):
        __slots__ = ()

    own, plain = Own((2,), F32), TensorType((2,), F32)
    check(own, plain, True)
    assert own == plain
    check(TupleType([own]), TupleType([plain]), True)
    check(FuncType([own], own), FuncType([plain], plain), True)


def test_modules_compare_functions_by_name() -> None:
    f, g = function(), function(callee="g")
    check(IRModule({"f": f, "g": g}), IRModule({"g": g, "f": f}), True)
    check(IRModule({"f": f}), IRModule({"g": f}), False)
    check(IRModule({"f": f}), IRModule({"f": f}, {"a": 1}), False)
    check(IRModule({}, {"a": 1, "b": [2]}), IRModule({}, {"b": (2,), "a": 1}), True)
    check(IRModule({}, None, {"d": [VDevice()]}), IRModule({}, None, {"d": [VDevice()]}), True)
    infos = IRModule({}, None, {"d": [VDevice()]})
    check(infos, IRModule({}, None, {"d": [DummyGlobalInfo()]}), False)
    check(GlobalVar("f"), GlobalVar("f", FuncType([], ANY)), True)
    check(GlobalVar("f"), GlobalVar("g"), False)


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, True), (1, 1.0), ("1", 1), (0.0, -0.0), (None, False), ([1], [1, 2]), ({"a": 1}, {"b": 1}),
     (np.zeros(2), np.zeros(3)), (int_imm(1), 1)],
    ids=str,
)  # fmt: skip
def test_values_of_attributes_differ(a: Any, b: Any) -> None:
    check(function(attrs={"a": a}), function(attrs={"a": b}), False)


def test_values_of_attributes_are_equal() -> None:
    for value in (math.nan, "s", {"a": [1, {"b": 2.0}]}, np.arange(3), int_imm(3), None, b"x",
                  np.dtype("int8")):  # fmt: skip
        check(function(attrs={"a": value}), function(attrs={"a": value}), True)
    check(Call(ExternFunc("f"), [], {"a": 1, "b": 2}), Call(ExternFunc("f"), [], {"b": 2, "a": 1}),
          True)  # fmt: skip


def test_spans_do_not_count() -> None:
    check(StringImm("s", span=Span("a.py", 1, 1)), StringImm("s"), True)


def test_branches() -> None:
    def choose(first: str, second: str) -> Function:
        c = Var("c", TensorType((), "bool"))
        return Function([c], If(c, packed(first), packed(second)), ANY)

    check(choose("f", "g"), choose("f", "g"), True)
    check(choose("f", "g"), choose("g", "f"), False)


# The first difference


def difference(a: Any, b: Any) -> str:
    with pytest.raises(ValueError, match="not structurally equal") as error:
        assert_structural_equal(a, b)
    return str(error.value)


def test_the_place_of_the_difference_is_named() -> None:
    text = difference(IRModule({"main": function()}), IRModule({"main": function(data=2.0)}))
    place = 'functions["main"].body.blocks[0].bindings[0].value.args[1].data'
    assert text.splitlines()[0] == f"not structurally equal at <root>.{place}"
    assert 'left:  R.const(1.0, "float32")' in text
    assert 'right: R.const(2.0, "float32")' in text
    assert "in the bindings\n  left:  y = R.call_packed(" in text


def test_differences_name_missing_parts() -> None:
    text = difference(function(), function(extra=["h"]))
    assert text.startswith(
        "not structurally equal at <root>.body.blocks[0].bindings[2] (2 elements against 3)"
    )
    assert "left:  nothing" in text
    text = difference(IRModule({"f": function()}), IRModule({"g": function()}))
    assert "at <root>.functions (only left has 'f'; only right has 'g')" in text
    text = difference(IRModule(None, {"a": 1}), IRModule(None, {"a": 2}))
    assert 'at <root>.attrs["a"]' in text


def test_variables_are_explained() -> None:
    x, y, z = (Var(name, ANY) for name in "xyz")
    text = difference(Function([x, y], x), Function([x, z], z))
    assert "at <root>.body.body (x stands for x)" in text
    assert "(free variables are equal to themselves only)" in difference(x, y)


def test_equal_texts_show_the_class() -> None:
    text = difference(Function([], SeqExpr([BindingBlock()], int_imm(0))),
                      Function([], SeqExpr([DataflowBlock()], int_imm(0))))  # fmt: skip
    assert "BindingBlock" in text or "dataflow" in text


def test_a_node_that_cannot_be_printed() -> None:
    broken = Call.__new__(Call)
    assert "<Call, which cannot be printed: AttributeError>" in difference(broken, int_imm(0))


# Size


def chain(length: int, last: str = "f") -> Function:
    ty = TensorType((Var("n", "int64"), 4), F32)
    param = value = Var("x", ty)
    bindings = []
    for i in range(length):
        var = Var(f"v{i}", ty)
        bindings.append(VarBinding(var, packed("f" if i < length - 1 else last, value, ty=ty)))
        value = var
    return Function([param], SeqExpr([BindingBlock(bindings)], value), ty)


def test_long_functions_do_not_recurse() -> None:
    a, b = chain(10_000), chain(10_000)
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert "bindings[9999]" in difference(a, chain(10_000, "g"))


def test_long_sums_do_not_recurse() -> None:
    def total(last: int) -> Function:
        n = Var("n", "int64")
        e = n + last
        for _ in range(5000):
            e = e + n
        return Function([n], ShapeExpr([e]))

    assert structural_equal(total(1), total(1))
    assert structural_hash(total(1)) == structural_hash(total(1))
    text = difference(total(1), total(2))
    assert text.partition("\n")[0].endswith(".a" * 5000 + ".b.value")


def test_the_hash_is_the_same_in_every_process() -> None:
    program = (
        "from relaxvm.ir import *; from relaxvm.ir.equality import structural_hash\n"
        "x = Var('x', TensorType((Var('n', 'int64'), 4), 'float32'))\n"
        "f = Function([x], Tuple([x, const(1.0)]), attrs={'b': 'text', 'a': 1.5})\n"
        "print(structural_hash(IRModule({'main': f})))"
    )
    runs = [
        children.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""
