"""The pattern language: each kind of pattern, graphs of patterns, rewriting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import dpl, ir, op
from relaxvm.analysis import get_var2val
from relaxvm.dpl import (
    DFPattern,
    ExternFuncPattern,
    FunctionPattern,
    PatternContext,
    PatternMatchingRewriter,
    PatternSeq,
    WildcardPattern,
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    make_fused_bias_activation_pattern,
    reject,
    rewrite_bindings,
    rewrite_call,
    rewrite_calls,
    wildcard,
)
from relaxvm.ir import TensorType, Var
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T

F = TensorType((2, 3), "float32")
X, Y, Z = Var("x", F), Var("y", F), Var("z", F)
LV = ir.DataflowVar("lv", F)
GV = ir.GlobalVar("f")
N = Var("n", "int64")


# Single expressions


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (wildcard(), X, None),
        (is_var(), LV, GV),
        (is_var("x"), X, Y),
        (is_dfv(), LV, X),
        (is_dfv("lv"), LV, ir.DataflowVar("other", F)),
        (is_gv("f"), GV, ir.GlobalVar("g")),
        (is_const(), ir.const(1.0), X),
        (is_expr(ir.const(1.0)), ir.const(1.0), ir.const(2.0)),
        (is_expr(X), X, Y),
        (ExternFuncPattern("f"), ir.ExternFunc("f"), ir.ExternFunc("g")),
        (is_shape([2, N]), ir.ShapeExpr([2, N]), ir.ShapeExpr([N, 2])),
        (is_shape([N + 1]), ir.ShapeExpr([1 + N]), ir.ShapeExpr([1, 1])),
        (is_op("relax.add")(is_var("x"), wildcard()), op.add(X, Y), op.subtract(X, Y)),
        (is_op("relax.subtract")(is_var("x"), is_var("y")), op.subtract(X, Y), op.subtract(Y, X)),
        (is_op("relax.add")(is_var("x"), is_var("y")), op.add(Y, X), op.add(X, Z)),
        (is_op("relax.add")(is_var("x")), None, op.add(X, Y)),
        (is_op("relax.add")(is_var("x"), varg_default_wildcard=True), op.add(X, Y), op.add(Y, X)),
        (is_tuple([is_var(), is_const()]), ir.Tuple([X, ir.const(1)]), ir.Tuple([X])),
        (is_tuple([is_const(), is_var()], unordered=True), ir.Tuple([X, ir.const(1)]),
         ir.Tuple([X, Y])),
        (is_tuple_get_item(wildcard(), 1), ir.TupleGetItem(Var("t", ir.TupleType([F, F])), 1),
         ir.TupleGetItem(Var("t", ir.TupleType([F, F])), 0)),
        (is_tuple([wildcard(), wildcard()])[-1], ir.TupleGetItem(ir.Tuple([X, Y]), 1),
         ir.TupleGetItem(ir.Tuple([X, Y]), 0)),
        (is_tuple([is_var("x"), wildcard()])[None], ir.TupleGetItem(ir.Tuple([X, Y]), 1),
         ir.TupleGetItem(ir.Tuple([Y, Y]), 1)),
        (is_var("x") | is_gv(), GV, Y),
        (is_var() & has_dtype("float32"), X, Var("x", TensorType((2, 3), "int32"))),
        (~is_var("x"), Y, X),
        (reject(is_const()), X, ir.const(1)),
        (has_dtype("int64"), N, X),
        (wildcard().has_shape([2, 3]), X, Var("x", TensorType((3, 2), "float32"))),
        (wildcard().has_shape([N]), Var("x", TensorType((N,))), Var("x", TensorType(ndim=1))),
        (wildcard().has_ty(TensorType(None, "float32")), X, Var("x", TensorType((2, 3), "int32"))),
        (has_attr({"axis": [1]}, is_op("relax.sum")(wildcard())), op.sum(X, axis=[1]),
         op.sum(X, axis=[0])),
        (has_attr({"keepdims": True}), op.sum(X, keepdims=True), op.sum(X)),
        (FunctionPattern([is_var("x")], is_op("relax.exp")(is_var("x"))),
         ir.Function([X], op.exp(X)), ir.Function([X], op.log(X))),
        (FunctionPattern(None, wildcard()).has_attr({"k": "v"}),
         ir.Function([X], X).with_attr("k", "v"), ir.Function([X], X)),
    ],
    ids=str,
)  # fmt: skip
def test_kind(pattern: DFPattern, yes: Any, no: Any) -> None:
    if yes is not None:
        assert pattern.match(yes)
        assert pattern.dup().match(yes)
        assert pattern.dup() is not pattern
    if no is not None:
        assert not pattern.match(no)
        assert pattern.extract_matched_expr(no) is None


def test_what_matched() -> None:
    a, b = wildcard(), is_const()
    pattern = is_op("relax.add")(a, b)
    call = op.add(ir.const(1.0), X)
    assert pattern.extract_matched_expr(call) == {
        pattern.op: call.op, a: X, b: call.args[0], pattern: call
    }  # fmt: skip


def test_a_pattern_that_occurs_twice() -> None:
    a = wildcard()
    pattern = is_op("relax.subtract")(a, a)
    assert pattern.match(op.subtract(X, X))
    assert not pattern.match(op.subtract(X, Y))
    assert is_op("relax.subtract")(wildcard(), wildcard()).match(op.subtract(X, Y))


def test_what_an_alternative_matched_is_forgotten_when_it_fails() -> None:
    a = wildcard()
    pattern = is_op("relax.subtract")(a, is_const()) | is_op("relax.subtract")(wildcard(), a)
    found = pattern.extract_matched_expr(op.subtract(X, Y))
    assert found is not None
    assert found[a] is Y


def test_operands_exchanged_forget_the_first_try() -> None:
    a = wildcard()
    pattern = is_op("relax.add")(a, is_const())
    found = pattern.extract_matched_expr(op.add(ir.const(1.0), X))
    assert found is not None
    assert found[a] is X


def test_unordered_tuples_go_back() -> None:
    pattern = is_tuple([wildcard(), is_var("x"), is_const()], unordered=True)
    assert pattern.match(ir.Tuple([X, ir.const(1), ir.const(2)]))
    assert not pattern.match(ir.Tuple([Y, ir.const(1), ir.const(2)]))


def test_symbolic_variables_of_types_stand_for_dimensions() -> None:
    n, m = Var("n", "int64"), Var("m", "int64")
    ty = TensorType((n, m))
    pattern = is_op("relax.add")(wildcard().has_ty(ty), wildcard().has_ty(ty))
    assert pattern.match(op.add(X, Y))
    assert not pattern.match(op.add(X, Var("row", TensorType((1, 3), "float32"))))


def test_values_of_variables() -> None:
    values = {Y: op.exp(X), Z: Y}
    pattern = is_op("relax.log")(is_op("relax.exp")(is_var("x")))
    assert pattern.match(op.log(Z), values)
    assert not pattern.match(op.log(Z))


def test_tree_patterns_are_linear() -> None:
    """Both orders of the operands are tried at each of 300 levels; failures are remembered."""
    values: dict[Var, ir.Expr] = {}
    var = X
    pattern: DFPattern = is_const()
    for level in range(100):
        new = Var(f"v{level}", F)
        values[new] = op.add(var, var)
        var = new
        pattern = is_op("relax.add")(pattern, wildcard())
    assert not pattern.match(var, values)


@I.ir_module
class Calls:
    @T.prim_func(private=True)
    def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        for i in range(4):
            b[i] = a[i] * T.float32(2)

    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.call_tir(Calls.double, (x,), out_ty=R.Tensor((4,), "float32"))
        b = R.call_dps_packed("other", (a,), out_ty=R.Tensor((4,), "float32"))
        c = R.call_packed("third", b, ty_args=R.Tensor((4,), "float32"))
        return c


def test_calls_of_other_functions() -> None:
    main = Calls["main"]
    a, b, c = (binding.value for binding in main.body.blocks[0].bindings)
    values = get_var2val(main)
    assert is_call_tir("double").match(a)
    assert not is_call_tir("single").match(a)
    assert is_call_tir("double", [is_var("x")]).match(a)
    assert is_call_dps_packed("other", [is_call_tir("double")]).match(b, values)
    assert not is_call_dps_packed("other", [is_call_tir("single")]).match(b, values)
    assert is_call_packed("third").match(c)
    assert is_call_packed("third", [is_call_dps_packed("other")]).match(c, values)
    assert not is_call_packed("other").match(c)


def test_bias_and_activation() -> None:
    b = Var("b", TensorType((3,), "float32"))
    w = Var("w", TensorType((3, 3), "float32"))
    values: dict[Var, ir.Expr] = {Y: op.matmul(X, w), Z: op.add(Y, b)}
    pattern = make_fused_bias_activation_pattern("relax.matmul", True, "relax.nn.relu")
    assert pattern.match(op.nn.relu(Z), values)
    assert not pattern.match(op.nn.relu(Y), values)
    reshaped = make_fused_bias_activation_pattern("relax.matmul", True, allow_reshape=True)
    assert not reshaped.match(op.add(Y, b), values)
    assert reshaped.match(op.add(Y, op.reshape(b, (1, 3))), values)


def test_texts() -> None:
    pattern = is_op("relax.add")(wildcard(), is_const() | is_var("x"))
    assert str(pattern) == "relax.add(*, OrPattern(ConstantPattern() | VarPattern(x)))"
    assert str(is_op("relax.sum")(varg_default_wildcard=True)) == "relax.sum(...)"
    assert str(~wildcard().has_dtype("int8")) == "!(DataTypePattern(* has int8))"
    assert repr(wildcard() ^ is_var("y") >> is_gv()) == "* ^ VarPattern(y) >> GlobalVarPattern()"


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: is_op("relax.ad"), ValueError, "unknown operator 'relax.ad'; did you mean"),
        (lambda: wildcard()(X), TypeError, r"pattern of a call: expected patterns, got .*is_expr"),
        (lambda: wildcard() | X, TypeError, r"pattern of \|: expected patterns"),
        (lambda: is_tuple(wildcard()), ValueError, "is_tuple: expected a list or tuple"),
        (lambda: is_shape(3), ValueError, "is_shape: expected a list or tuple"),
        (lambda: wildcard().has_shape(3), ValueError, "has_shape: expected a list or tuple"),
        (lambda: wildcard().has_ty(3), TypeError, "has_ty: expected a type, got"),
        (lambda: is_tuple([wildcard()])[1], IndexError, "has 1 elements, index is 1"),
        (lambda: PatternSeq([]), ValueError, "expected at least one pattern"),
        (lambda: wildcard().redirect_to(is_const()), NotImplementedError, "patterns do not change"),
        (lambda: is_tuple([wildcard()] * 17, unordered=True).match(ir.Tuple([X] * 17)), ValueError,
         "17 elements: expected at most 16"),
    ],
)  # fmt: skip
def test_mistakes(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# Graphs


@R.function
def diamond(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(a)
        c = R.cos(a)
        d = R.add(b, c)
        R.output(d)
    return d


def unary(name: str) -> DFPattern:
    return is_op(f"relax.{name}")(wildcard(), add_constraint=False)


BLOCK = diamond.body.blocks[0]


def names(matched: dict[DFPattern, Var] | None) -> list[str] | None:
    return None if matched is None else [var.name for var in matched.values()]


def test_used_by() -> None:
    with PatternContext() as context:
        exp, cos = unary("exp"), unary("cos")
        exp ^ cos
    found = context.match_dfb(BLOCK)
    assert found is not None
    assert (found[exp].name, found[cos].name) == ("a", "c")
    with PatternContext() as context:
        unary("sin") ^ unary("cos")
    assert context.match_dfb(BLOCK) is None


def test_only_used_by() -> None:
    with PatternContext() as context:
        unary("exp") >> unary("cos")
    assert context.match_dfb(BLOCK) is None
    with PatternContext() as context:
        unary("cos") >> is_op("relax.add")(wildcard(), wildcard(), add_constraint=False)
    assert context.match_dfb(BLOCK) is not None


def test_positions_of_operands() -> None:
    for index, matches in ((0, False), (1, True), (-1, True)):
        with PatternContext() as context:
            add = is_op("relax.add")(wildcard(), wildcard(), add_constraint=False)
            unary("cos").used_by(add, index)
        assert (context.match_dfb(BLOCK) is not None) == matches


def test_calls_make_edges() -> None:
    with PatternContext() as context:
        a = is_op("relax.exp")(is_var("x"))
        d = is_op("relax.add")(is_op("relax.sin")(a), is_op("relax.cos")(a))
    found = context.match_dfb(BLOCK)
    assert found is not None
    assert (found[a].name, found[d].name, len(found)) == ("a", "d", 5)


def test_different_patterns_match_different_variables() -> None:
    with PatternContext() as context:
        unary("exp").fork_to(unary("sin"), unary("sin"))
    assert context.match_dfb(BLOCK) is None
    with PatternContext() as context:
        unary("exp").fork_to(unary("sin"), unary("cos"))
    assert sorted(names(context.match_dfb(BLOCK)) or ()) == ["a", "b", "c"]


def test_the_search_goes_back() -> None:
    """The first exp is not the one that cos uses."""

    @R.function
    def two(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            c = R.cos(b)
            R.output(c)
        return c

    with PatternContext() as context:
        first, second = unary("exp"), unary("cos")
        is_var("a").fork_to(first)
        first ^ second
    assert names(context.match_dfb(two.body.blocks[0])) is not None


def test_constants_may_be_operands() -> None:
    @R.function
    def scaled(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.multiply(x, R.const(2.0, "float32"))
            R.output(y)
        return y

    with PatternContext() as context:
        factor = is_const()
        product = is_op("relax.multiply")(wildcard(), factor)
    found = context.match_dfb(scaled.body.blocks[0])
    assert found is not None
    assert product in found
    assert factor not in found  # it is not a variable


def test_same_shape() -> None:
    @R.function
    def mixed(x: R.Tensor((2, 3), "float32"), row: R.Tensor((3,), "float32")):
        with R.dataflow():
            a = R.add(x, row)
            b = R.subtract(a, x)
            R.output(b)
        return b

    for name, matches in (("add", False), ("subtract", True)):
        with PatternContext() as context:
            a, b = wildcard(), wildcard()
            is_op(f"relax.{name}")(a, b)
            a.same_shape_as(b)
        assert (context.match_dfb(mixed.body.blocks[0]) is not None) == matches


def test_contexts_nest() -> None:
    assert PatternContext.current() is None
    exp, sin, cos = unary("exp"), unary("sin"), unary("cos")
    with PatternContext() as outer:
        exp ^ sin
        with PatternContext(incremental=True) as inner:
            assert PatternContext.current() is inner
            exp ^ cos
        with PatternContext() as apart:
            exp ^ cos
        assert PatternContext.current() is outer
    assert [len(context.edges) for context in (outer, inner, apart)] == [1, 2, 1]
    assert len(names(inner.match_dfb(BLOCK)) or ()) == 3


def test_sequences() -> None:
    with PatternContext() as context:
        sequence = unary("exp") ^ unary("sin")
        copy = sequence.dup()
    assert copy[0] is not sequence[0]
    assert len(context.edges) == 2
    assert context.match_dfb(BLOCK) is None  # there is one exp only
    with PatternContext() as context:
        unary("exp").used_by(PatternSeq([unary("sin"), wildcard()], only_use=True))
    assert context.match_dfb(BLOCK) is not None


def test_no_edges_match_nothing() -> None:
    with PatternContext() as context:
        wildcard()
    assert context.match_dfb(BLOCK) is None


# Rewriting


def run(func: ir.Function, *args: Any) -> Any:
    module = ir.IRModule({"main": func.with_attr("global_symbol", "main")})
    ir.assert_structural_equal(module, module)
    relaxvm.analysis.check_well_formed(module)
    return relaxvm.VirtualMachine(relaxvm.build(module))["main"](*args)


def same_results(before: ir.Function, after: ir.Function, *args: Any) -> None:
    np.testing.assert_allclose(run(after, *args), run(before, *args), rtol=1e-6)


def calls(func: ir.Function) -> list[str]:
    return [
        binding.value.op.name.removeprefix("relax.")
        for block in func.body.blocks
        for binding in block.bindings
        if isinstance(binding.value, ir.Call)
    ]


VALUES = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


def test_rewrite_until_nothing_changes() -> None:
    @R.function
    def before(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(a)
            c = R.negative(b)
            R.output(c)
        return c

    inner = wildcard()
    pattern = is_op("relax.negative")(is_op("relax.sin")(inner))
    again = is_op("relax.sin")(is_op("relax.negative")(inner))

    def rewriter(expr: ir.Expr, matched: dict[DFPattern, ir.Expr]) -> ir.Expr:
        if again in matched:
            return op.cos(matched[inner])
        return op.sin(op.negative(matched[inner]))

    after = rewrite_call(pattern | again, rewriter, before)
    assert calls(after) == ["exp", "cos"]


def test_rewriting_that_declines_changes_nothing() -> None:
    pattern = is_op("relax.exp")(wildcard())
    assert rewrite_call(pattern, lambda expr, matched: expr, diamond) is diamond
    equal = rewrite_call(pattern, lambda expr, matched: op.exp(expr.args[0]), diamond)
    assert equal is diamond


def test_values_of_dataflow_blocks_are_not_seen_outside() -> None:
    @R.function
    def before(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(a)
            R.output(b)
        c = R.negative(b)
        return c

    inner = wildcard()
    pattern = is_op("relax.negative")(is_op("relax.sin")(inner))
    after = rewrite_call(pattern, lambda expr, matched: op.cos(matched[inner]), before)
    assert after is before


def test_rewriting_in_branches() -> None:
    @R.function
    def before(flag: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
        if flag:
            y = R.add(x, x)
        else:
            y = R.exp(x)
        return y

    x = wildcard()
    after = rewrite_call(
        is_op("relax.add")(x, x),
        lambda expr, matched: op.multiply(matched[x], ir.const(2.0, "float32")),
        before,
    )
    assert "R.multiply" in str(after)
    for flag in (True, False):
        same_results(before, after, np.array(flag), VALUES)


def test_a_rewriter_may_change_the_type() -> None:
    @R.function
    def before(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.split(x, 2)
            b = a[0]
            R.output(b)
        return b

    arg = wildcard()
    pattern = is_op("relax.split")(arg)
    halves = rewrite_call(
        pattern,
        lambda expr, matched: [
            op.strided_slice(matched[arg], [0], [0], [2]),
            op.strided_slice(matched[arg], [0], [2], [4]),
        ],
        before,
    )
    assert calls(halves) == ["strided_slice"]
    same_results(before, halves, VALUES)


def test_a_rewriter_without_end() -> None:
    a, b = wildcard(), wildcard()
    pattern = is_op("relax.subtract")(a, b)

    def rewriter(expr: ir.Expr, matched: dict[DFPattern, ir.Expr]) -> ir.Expr:
        return op.subtract(matched[b], matched[a])

    @R.function
    def before(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        return R.subtract(x, y)

    with pytest.raises(RuntimeError, match=r"changed the function 100\d\d times and finds no end"):
        rewrite_call(pattern, rewriter, before)


def test_a_rewriter_that_returns_nothing() -> None:
    with pytest.raises(TypeError, match=r"a rewriter returns the new expression.*got None"):
        rewrite_call(is_op("relax.exp")(wildcard()), lambda expr, matched: None, diamond)


def test_patterns_of_missing_operators_are_passed_over() -> None:
    """A pattern matches where the function has one of its alternatives, and what it rejects need
    not be there; what a rule makes may be what the next one looks for."""
    calls: list[ir.Expr] = []

    def to(name: str) -> Any:
        def rewriter(expr: ir.Expr, matched: Any) -> Any:
            calls.append(expr)
            return getattr(op, name)(expr.args[0])

        return rewriter

    @R.function
    def before(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        y: R.Tensor((2, 3), "float32") = R.sin(x)
        return y

    sin, cos, tan = (is_op(f"relax.{name}")(wildcard()) for name in ("sin", "cos", "tan"))
    not_of_cos = is_op("relax.sin")(~is_op("relax.cos")(wildcard()))
    for pattern in (sin, cos | sin, not_of_cos):
        after = rewrite_call(pattern, to("exp"), before)
        assert "R.exp(x)" in after.script()
    calls.clear()
    assert rewrite_call(cos, to("exp"), before) is before
    assert rewrite_call(is_op("relax.sin")(cos) | tan, to("exp"), before) is before
    assert not calls
    rules = [(tan, to("exp")), (sin, to("cos")), (cos, to("tan")), (sin, to("log"))]
    assert "R.tan(x)" in rewrite_calls(rules, before).script()
    assert len(calls) == 2


def test_rewriters_of_modules() -> None:
    @R.rewriter
    class AddTwice:
        @R.function
        def pattern(x: R.Tensor((4,), "float32")):
            y = R.add(x, x)
            return y

        @R.function
        def replacement(x: R.Tensor((4,), "float32")):
            y = R.multiply(x, R.const(2.0, "float32"))
            return y

    @R.rewriter
    class SumOfAll:
        @R.function
        def pattern(x: R.Tensor((4,), "float32")):
            return R.sum(x, axis=[0])

        @R.function
        def replacement(x: R.Tensor((4,), "float32")):
            return R.sum(x)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), n: R.Tensor((5,), "float32")):
            with R.dataflow():
                a = R.add(x, x)
                b = R.add(n, n)  # of another shape
                c = R.sum(a, axis=[0])
                d = R.sum(a, axis=[0], keepdims=True)  # with other attributes
                R.output(b, c, d)
            return (b, c, d)

    after = (AddTwice | SumOfAll)(Before)
    assert sorted(calls(after["main"])) == ["add", "multiply", "sum", "sum"]
    args = VALUES, np.arange(5, dtype=np.float32)
    for x, y in zip(run(Before["main"], *args), run(after["main"], *args), strict=True):
        np.testing.assert_array_equal(x, y)
    assert AddTwice(diamond) is diamond


@pytest.mark.parametrize(
    ("functions", "error", "message"),
    [
        ({"pattern": ir.Function([X], X)}, ValueError, "'replacement' is missing"),
        ({"pattern": ir.Function([X], X), "replacement": ir.Function([X, Y], X)}, ValueError,
         "have the same parameters"),
        ({"pattern": ir.Function([X], ir.Tuple([X])), "replacement": ir.Function([X], X)},
         TypeError, "returns a tuple"),
    ],
)  # fmt: skip
def test_mistakes_of_modules(functions: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        PatternMatchingRewriter.from_module(ir.IRModule(functions))


def test_rewriters_take_programs() -> None:
    rewriter = PatternMatchingRewriter.from_pattern(wildcard(), lambda expr, matched: expr)
    with pytest.raises(TypeError, match="takes a Function or an IRModule, got"):
        rewriter(X)


# Several bindings


def pairs() -> tuple[PatternContext, Any]:
    with PatternContext() as context:
        x, a, b = wildcard(), wildcard(), wildcard()
        first = is_op("relax.matmul")(x, a)
        second = is_op("relax.matmul")(x, b)

    def rewriter(matched: Any, values: Any) -> Any:
        weights = op.concat([matched[a], matched[b]], axis=1)
        parts = op.split(op.matmul(matched[x], weights), 2, axis=1)
        return {matched[first]: parts[0], matched[second]: parts[1]}

    return context, rewriter


def test_rewrite_bindings() -> None:
    @R.function
    def before(
        x: R.Tensor((2, 3), "float32"),
        y: R.Tensor((2, 3), "float32"),
        a: R.Tensor((3, 3), "float32"),
        b: R.Tensor((3, 3), "float32"),
    ):
        with R.dataflow():
            p = R.matmul(x, a)
            c = R.exp(b)  # computed after the first product
            q = R.matmul(x, c)
            r = R.matmul(y, a)
            s = R.matmul(y, b)
            t = R.add(R.add(p, q), R.add(r, s))
            R.output(t)
        return t

    after = rewrite_bindings(*pairs(), before)
    assert calls(after).count("matmul") == 2
    rng = np.random.default_rng(0)
    args = [rng.random(shape, np.float32) for shape in ((2, 3), (2, 3), (3, 3), (3, 3))]
    same_results(before, after, *args)


def test_rewrite_bindings_declines() -> None:
    context, _ = pairs()
    assert rewrite_bindings(context, lambda matched, values: {}, diamond) is diamond


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda m, v: {X: Y}, ValueError, "x is not bound in the dataflow block"),
        (lambda m, v: None, TypeError, "returns a dict from variables"),
        (lambda m, v: {next(iter(v)): op.exp(list(v)[-1])}, ValueError, "depends on .* itself"),
        (lambda m, v: {next(iter(v)): ir.const(1)}, ValueError, "its new value of type"),
    ],
)
def test_mistakes_of_rewriters(change: Any, error: type[Exception], message: str) -> None:
    with PatternContext() as context:
        unary("exp") ^ unary("sin")
    with pytest.raises(error, match=message):
        rewrite_bindings(context, change, diamond)


def test_wildcards_have_no_state() -> None:
    assert not hasattr(WildcardPattern(), "__dict__")
    assert dpl.match_expr(wildcard(), X)
