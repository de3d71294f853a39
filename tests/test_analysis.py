"""relaxvm.analysis: variables, calls, types and functions of a program."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm import analysis as A
from relaxvm import op
from relaxvm.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    FuncType,
    GlobalVar,
    IRModule,
    MatchCast,
    PrimType,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Var,
    VarBinding,
    assert_structural_equal,
    int_imm,
)
from relaxvm.ir.expr import ANY

F32 = "float32"


class Program:
    """``main(x: (n, m), k)`` with a dataflow block of y and z, a match_cast w to (p, q), and v."""

    def __init__(self) -> None:
        n, m, p, q = (Var(name, "int64") for name in "nmpq")
        self.n, self.m, self.p, self.q = n, m, p, q
        ty = TensorType((n, m), F32)
        self.x, self.k = Var("x", ty), Var("k", "int64")
        self.y = DataflowVar("y", ty)
        first = VarBinding(self.y, op.call_dps_packed("f", (self.x,), ty))
        flat = TensorType((n * m,), F32)
        self.z = Var("z", flat)
        value = op.call_dps_packed("g", (self.y, ShapeExpr([n * m])), flat)
        self.unused = DataflowVar("u", flat)
        self.block = DataflowBlock([
            first, VarBinding(self.z, value), VarBinding(self.unused, self.z)
        ])  # fmt: skip
        cast = TensorType((p, q), None)
        self.w, self.v = Var("w", cast), Var("v", flat)
        rest = BindingBlock([MatchCast(self.w, self.z, cast), VarBinding(self.v, self.z)])
        self.main = Function([self.x, self.k], SeqExpr([self.block, rest], self.w),
                             TensorType(None, None, ndim=2))  # fmt: skip


P = Program()


def test_variables_of_a_function() -> None:
    assert A.free_vars(P.main) == []
    bound = [P.x, P.n, P.m, P.k, P.y, P.z, P.unused, P.p, P.q, P.w, P.v]
    assert A.bound_vars(P.main) == bound
    assert A.all_vars(P.main) == bound
    assert set(A.used_vars(P.main)) == {P.n, P.m, P.p, P.q, P.x, P.y, P.z, P.w}
    assert A.defined_symbolic_vars(P.main) == [P.n, P.m, P.k, P.p, P.q]
    assert A.free_symbolic_vars(P.main) == []


def test_variables_of_a_part() -> None:
    body = P.main.body
    assert A.free_vars(body) == [P.x, P.n, P.m]
    assert A.free_symbolic_vars(body) == [P.n, P.m]
    assert A.free_vars(ShapeExpr([P.n + 1, P.m])) == [P.n, P.m]
    assert A.bound_vars(Tuple([P.x])) == []


def test_bindings() -> None:
    assert A.get_var2val(P.main)[P.v] is P.z
    assert P.w not in A.get_var2val(P.main)
    by_name = A.name_to_binding(P.main)
    assert list(by_name) == ["y", "z", "u", "w", "v"]
    assert by_name["w"][0].value is P.z
    chain = A.udchain(P.block)
    assert chain[P.y] == [P.z]
    assert chain[P.z] == [P.unused]
    assert chain[P.unused] == []
    assert chain[P.x] == [P.y]
    assert chain[P.n] == [P.y, P.z, P.unused]


def test_global_variables() -> None:
    f, g = GlobalVar("f", FuncType([ANY], ANY)), GlobalVar("g", FuncType([ANY], ANY))
    call = Call(f, [g], ret_ty=ANY)
    assert A.all_global_vars(call) == [f, g]
    assert A.called_global_vars(call) == [f]


def test_post_order() -> None:
    seen: list[Any] = []
    pair = Tuple([P.x, P.k])
    A.post_order_visit(pair, seen.append)
    assert seen == [P.x, P.k, pair]


def test_impure_calls() -> None:
    x = P.x
    packed = op.call_packed("f", x)
    pure = op.call_pure_packed("f", x, ty_args=ANY)
    assert A.is_impure_call(packed)
    assert not A.is_impure_call(pure)
    assert A.is_impure_call(op.print(x))
    assert A.is_impure_call(Call(Var("closure", ANY), [x]))
    assert A.contains_impure_call(Tuple([pure, packed]))
    assert not A.contains_impure_call(Tuple([pure, x]))

    def function(value: Any) -> Function:
        return Function([x], SeqExpr([BindingBlock([VarBinding(Var("y", ANY), value)])], x))

    assert A.contains_impure_call(function(packed))
    assert not A.contains_impure_call(function(function(packed)))
    own = GlobalVar("main", FuncType([ANY], ANY, False))
    itself = function(Call(own, [x], ret_ty=ANY))
    assert A.contains_impure_call(itself)
    assert not A.contains_impure_call(itself, own)


def test_symbolic_variables_of_types() -> None:
    n, m = P.n, P.m
    ty = TupleType([TensorType((n, n + m), F32), ShapeType([m * 2])])
    assert A.tir_vars_in_type(ty) == [n, m]
    assert A.definable_tir_vars_in_type(ty) == [n]
    sizes = TupleType([TensorType((n, n - 1, 4), F32), ShapeType([n - 2, n, n - 1])])
    found = A.collect_non_negative_expressions(sizes)
    assert_structural_equal(found, [n, n - 1, n - 2])


def test_types() -> None:
    n = P.n
    check = A.type_base_check
    assert check(TensorType((n,), F32), TensorType((4,), F32)) is A.BaseCheckResult.FAIL_L2
    assert check(ANY, TensorType((4,), F32)) is A.TypeBaseCheckResult.PASS
    assert A.type_lca(TensorType((4,), F32), TensorType((4,), "int8")).ndim == 1
    ty = TensorType((n, n + 1), F32)
    assert_structural_equal(A.erase_to_well_defined(ty), TensorType(None, F32, ndim=2))
    erased = A.erase_to_well_defined(ty, {n: int_imm(3)})
    assert_structural_equal(erased, TensorType((3, 4), F32))
    static = A.get_static_type(TupleType([ty, ShapeType([n]), PrimType("int64")]))
    expected = TupleType([TensorType(None, F32, ndim=2), ShapeType(ndim=1), PrimType("int64")])
    assert_structural_equal(static, expected)
    func = FuncType([TensorType((n,), F32)], TensorType((n * 2,), F32))
    call = Call(ExternFunc("f"), [Var("a", TensorType((3,), F32))])
    assert_structural_equal(A.derive_call_ret_type(func, call), TensorType((6,), F32))
    with pytest.raises(TypeError, match="expected 1 argument, got 0"):
        A.derive_call_ret_type(func, Call(ExternFunc("f"), []))


def test_unused_bindings() -> None:
    def program(unused: bool) -> Function:
        ty = TensorType((Var("n", "int64"),), F32)
        x, y, a, b = Var("x", ty), Var("y", ty), DataflowVar("a", ty), DataflowVar("b", ty)
        dead = [VarBinding(a, x), VarBinding(b, a)] if unused else []
        blocks = [DataflowBlock([VarBinding(y, x), *dead])]
        if unused:
            blocks.append(DataflowBlock([VarBinding(DataflowVar("c", ty), y)]))
        return Function([x], SeqExpr(blocks, y), ty)

    assert_structural_equal(A.remove_all_unused(program(True)), program(False))
    kept = program(False)
    assert A.remove_all_unused(kept) is kept


def test_recursion() -> None:
    names = ["a", "b", "c", "alone", "itself", "caller"]
    calls = {"a": ["b"], "b": ["c", "alone"], "c": ["a"], "itself": ["itself"], "caller": ["a"]}
    variables = {name: GlobalVar(name, FuncType([], ANY)) for name in names}
    mod = IRModule()
    for name, var in variables.items():
        bindings = [VarBinding(Var("v", ANY), Call(variables[c], [], ret_ty=ANY))
                    for c in calls.get(name, ())]  # fmt: skip
        mod[var] = Function([], SeqExpr([BindingBlock(bindings)], int_imm(0)))
    found = A.detect_recursion(mod)
    assert [[var.name_hint for var in group] for group in found] == [["a", "b", "c"], ["itself"]]


def test_long_chains_of_calls_do_not_recurse() -> None:
    variables = [GlobalVar(f"f{i}", FuncType([], ANY)) for i in range(3000)]
    mod = IRModule()
    for var, callee in zip(variables, [*variables[1:], variables[0]], strict=True):
        binding = VarBinding(Var("v", ANY), Call(callee, [], ret_ty=ANY))
        mod[var] = Function([], SeqExpr([BindingBlock([binding])], int_imm(0)))
    (group,) = A.detect_recursion(mod)
    assert group == variables
