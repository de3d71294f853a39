"""`PyExprVisitor` and `PyExprMutator`, with which users of TVM write their passes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import ir, op
from relaxvm.ir import PyExprMutator, PyExprVisitor
from relaxvm.ir.expr_functor import mutator, visitor
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.te import topi


@I.ir_module
class Program:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32"), flag: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, R.const(1.0, "float32"))
            R.output(b)
        c = R.match_cast(b, R.Tensor((4,), "float32"))
        if flag:
            d = R.exp(c)
        else:
            e = (c, R.shape([3, 4]))
            d = e[0]
        f = R.call_packed("test.functor", d, R.str("x"), ty_args=R.Tensor((4,), "float32"))
        return f


MAIN = Program["main"]
X = np.arange(4, dtype=np.float32)


def run(mod: ir.IRModule, *args: Any) -> Any:
    relaxvm.analysis.check_well_formed(mod)
    functions = {"test.functor": lambda value, text: value * 2}
    return relaxvm.VirtualMachine(relaxvm.build(mod), functions=functions)["main"](*args)


def test_a_visitor_sees_everything() -> None:
    seen: list[str] = []

    @visitor
    class Names(PyExprVisitor):
        def visit_call_(self, op: ir.Call) -> None:
            callee = op.op
            seen.append(callee.name if isinstance(callee, ir.Op) else "call")
            super().visit_call_(op)

        def visit_constant_(self, op: ir.Constant) -> None:
            seen.append("constant")

        def visit_tuple_(self, op: ir.Tuple) -> None:
            seen.append("tuple")
            super().visit_tuple_(op)

        def visit_tuple_getitem_(self, op: ir.TupleGetItem) -> None:
            seen.append("element")
            super().visit_tuple_getitem_(op)

        def visit_shape_expr_(self, op: ir.ShapeExpr) -> None:
            seen.append("shape")
            super().visit_shape_expr_(op)

        def visit_int_imm_(self, op: ir.IntImm) -> None:
            seen.append(str(op.value))

        def visit_if_(self, op: ir.If) -> None:
            seen.append("if")
            super().visit_if_(op)

        def visit_match_cast_(self, binding: ir.MatchCast) -> None:
            seen.append("cast")
            super().visit_match_cast_(binding)

        def visit_dataflow_block_(self, block: ir.DataflowBlock) -> None:
            seen.append("dataflow")
            super().visit_dataflow_block_(block)

        def visit_var_def_(self, var: ir.Var) -> None:
            seen.append(f"def {var.name}")

        def visit_dataflow_var_def_(self, var: ir.Var) -> None:
            seen.append(f"def lv {var.name}")

        def visit_extern_func_(self, op: ir.ExternFunc) -> None:
            seen.append(op.global_symbol)

        def visit_string_imm_(self, op: ir.StringImm) -> None:
            seen.append(op.value)

    Names().visit_expr(MAIN)
    assert " ".join(seen) == (
        "def x def flag dataflow relax.exp def lv a relax.add constant def b cast def c if "
        "relax.exp def d_then tuple shape 3 4 def e element def d_else def d "
        "call test.functor x def f"
    )


def test_a_mutator_that_changes_nothing() -> None:
    assert PyExprMutator().visit_expr(MAIN) is MAIN


def rewritten(cls: type[PyExprMutator]) -> ir.IRModule:
    made = cls(Program)
    for var, func in Program.items():
        made.builder_.update_func(var, made.visit_expr(func))
    return made.builder_.get()


def test_a_mutator_replaces_calls_everywhere() -> None:
    @mutator
    class Doubled(PyExprMutator):
        def visit_call_(self, call: ir.Call) -> Any:
            call = self.visit_expr_post_order(call)
            if call.op is ir.Op.get("relax.exp"):
                return op.multiply(op.add(call.args[0], call.args[0]), ir.const(0.5, "float32"))
            return call

    mod = rewritten(Doubled)
    assert "R.exp" not in str(mod)
    for flag, expected in ((True, 2 * (X + 1)), (False, 2 * (X + 1))):
        np.testing.assert_array_equal(run(mod, X, np.array(flag)), expected)
    assert "R.exp" in str(Program)


def test_a_mutator_emits_calls_of_tensor_expressions() -> None:
    @mutator
    class InLoops(PyExprMutator):
        def visit_call_(self, call: ir.Call) -> Any:
            call = self.visit_expr_post_order(call)
            if call.op is ir.Op.get("relax.add"):
                return self.builder_.call_te(topi.add, *call.args)
            return call

    mod = rewritten(InLoops)
    assert sorted(var.name for var in mod) == ["add", "main"]
    np.testing.assert_allclose(run(mod, X, np.array(False)), 2 * (np.exp(X) + 1), rtol=1e-6)


def test_a_mutator_may_emit_bindings() -> None:
    @mutator
    class Negated(PyExprMutator):
        def visit_var_binding_(self, binding: ir.VarBinding) -> None:
            super().visit_var_binding_(binding)
            if binding.var.name == "a":
                new = self.builder_.emit(op.negative(self.get_var_remap(binding.var)), "minus")
                self.set_var_remap(binding.var, new)

    mod = rewritten(Negated)
    np.testing.assert_allclose(run(mod, X, np.array(False)), 2 * (1 - np.exp(X)), rtol=1e-6)


def test_types_follow() -> None:
    @mutator
    class Halves(PyExprMutator):
        def visit_constant_(self, op: ir.Constant) -> Any:
            return ir.const(op.data.astype("float16"))

        def visit_var_def_(self, var: ir.Var) -> ir.Var:
            if not isinstance(var.ty, ir.TensorType) or var.ty.dtype != "float32":
                return var
            return self.with_type(var, ir.TensorType(var.ty.shape, "float16"))

    @R.function(private=True)
    def before(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, R.const(1.0, "float32"))
            R.output(b)
        return b

    @R.function(private=True)
    def expected(x: R.Tensor((2,), "float16")):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, R.const(1.0, "float16"))
            R.output(b)
        return b

    ir.assert_structural_equal(Halves().visit_expr(before), expected)


def test_lookup_binding() -> None:
    found: list[Any] = []

    @mutator
    class Look(PyExprMutator):
        def visit_call_(self, call: ir.Call) -> Any:
            if call.op is ir.Op.get("relax.add"):
                found.append(self.lookup_binding(call.args[0]))
            return super().visit_call_(call)

    Look().visit_expr(MAIN)
    assert [call.op.name for call in found] == ["relax.exp"]


def test_matches_of_data_types() -> None:
    @I.ir_module
    class Lists:
        class List(R.Data):
            Nil = R.Constructor()
            Cons = R.Constructor(R.Tensor((2,), "float32"), "List")

        @R.function
        def main(x: List) -> R.Tensor((2,), "float32"):
            match x:
                case Nil():  # noqa: F821
                    y = R.const([0.0, 1.0], "float32")
                case Cons(head, _):  # noqa: F821
                    y = R.exp(head)
            return y

    names: list[str] = []

    class Names(PyExprVisitor):
        def visit_var_def_(self, var: ir.Var) -> None:
            names.append(var.name)

    @mutator
    class Negated(PyExprMutator):
        def visit_call_(self, call: ir.Call) -> Any:
            return op.negative(call.args[0])

    Names().visit_expr(Lists["main"])
    assert "head" in names
    assert PyExprMutator().visit_expr(Lists["main"]) is Lists["main"]
    assert "R.negative(head)" in str(Negated().visit_expr(Lists["main"]))


def test_an_error_leaves_no_scope_open() -> None:
    class Fails(PyExprMutator):
        def visit_constant_(self, op: ir.Constant) -> Any:
            raise LookupError("no constants here")

    made = Fails()
    with pytest.raises(LookupError, match="no constants here"):
        made.visit_expr(MAIN)
    assert not made.builder_.in_scope


def test_decorators_check_the_base() -> None:
    with pytest.raises(TypeError, match="class int is not derived from PyExprVisitor"):
        visitor(int)
    with pytest.raises(TypeError, match="class int is not derived from PyExprMutator"):
        mutator(int)
