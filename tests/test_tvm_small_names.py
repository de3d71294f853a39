"""Names of TVM that programs use now and then: rewriting of a block, functors, rewriters made by
hand."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm import errors, ir, op
from relaxvm.analysis import check_well_formed, name_to_binding
from relaxvm.dpl import ExprPatternRewriter, OrRewriter, is_op, wildcard
from relaxvm.ir.expr_functor import ExprFunctor
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.transform import DataflowBlockRewrite


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            unused = R.abs(b)  # noqa: F841
            c = R.add(a, b)
            R.output(c)
        return c


MAIN = Module["main"]
BLOCK = MAIN.body.blocks[0]


def var(name: str) -> ir.Var:
    found: ir.Var = name_to_binding(MAIN)[name][0].var
    return found


def names(rewrite: DataflowBlockRewrite) -> list[str]:
    return [binding.var.name for binding in rewrite.mutated_dfb().bindings]


# Rewriting of a dataflow block


def test_added_bindings_come_after_what_they_use() -> None:
    rewrite = DataflowBlockRewrite(BLOCK, MAIN)
    rewrite.add(op.sin(MAIN.params[0]), "first", is_dfvar=True)
    rewrite.add(op.cos(var("b")))
    rewrite.add(op.cos(var("b")))
    assert names(rewrite) == ["first", "a", "b", "tmp_1", "tmp", "unused", "c"]
    added = {b.var.name: type(b.var) for b in rewrite.mutated_dfb().bindings}
    assert (added["first"], added["tmp"]) == (ir.DataflowVar, ir.Var)
    check_well_formed(ir.IRModule({"main": rewrite.mutated_root_fn()}))
    assert rewrite.mutated_root_fn().body.blocks[0] is rewrite.mutated_dfb()
    assert [b.var.name for b in BLOCK.bindings] == ["a", "b", "unused", "c"]


def test_unused_bindings_are_removed() -> None:
    rewrite = DataflowBlockRewrite(BLOCK, MAIN)
    rewrite.remove_unused(var("unused"))
    assert names(rewrite) == ["a", "b", "c"]
    rewrite.remove_unused(var("unused"), allow_undef=True)
    for name, message in (("unused", "does not bind"), ("a", "a is used by b"),
                          ("c", "c is used outside of the block")):  # fmt: skip
        with pytest.raises(errors.InternalError, match=message):
            rewrite.remove_unused(var(name))


def test_uses_are_replaced() -> None:
    rewrite = DataflowBlockRewrite(BLOCK, MAIN)
    rewrite.replace_all_uses(var("b"), var("a"))
    rewrite.remove_all_unused()
    assert names(rewrite) == ["a", "c"]

    @R.function(private=True)
    def expected(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            c = R.add(a, a)
            R.output(c)
        return c

    ir.assert_structural_equal(rewrite.mutated_root_fn().without_attr("global_symbol"), expected)
    new = rewrite.mutate_irmodule(Module)
    ir.assert_structural_equal(new["main"], rewrite.mutated_root_fn())
    assert len(Module["main"].body.blocks[0].bindings) == 4
    with pytest.raises(ValueError, match="does not have the function"):
        rewrite.mutate_irmodule(new)


def test_a_block_of_another_function() -> None:
    with pytest.raises(ValueError, match="the function does not have this block"):
        DataflowBlockRewrite(ir.DataflowBlock(), MAIN)


# Functors and rewriters


def test_functor() -> None:
    class Depth(ExprFunctor):
        def visit_call_(self, call: Any) -> int:
            return 1 + max(self.visit_expr(arg) for arg in call.args)

        def visit_var_(self, var: Any) -> int:
            return 0

    x = MAIN.params[0]
    assert Depth().visit_expr(op.add(op.exp(x), x)) == 2
    assert Depth().visit_expr(var("a")) == 0  # a DataflowVar is a Var
    with pytest.raises(NotImplementedError, match="Depth has no method 'visit_tuple_'"):
        Depth().visit_expr(ir.Tuple([x]))


def test_rewriters() -> None:
    x = wildcard()
    exp, negative = is_op("relax.exp")(x), is_op("relax.negative")(x)
    first = ExprPatternRewriter(exp, lambda call, found: op.sin(found[x]))
    second = ExprPatternRewriter(negative, lambda call, found: op.cos(found[x]))
    text = OrRewriter(first, second)(MAIN).script()
    assert "R.sin(x)" in text
    assert "R.cos(a)" in text
    assert "R.negative" in first(MAIN).script()
