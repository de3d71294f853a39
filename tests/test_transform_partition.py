"""Passes that move parts of functions to functions of their own: FuseOpsByPattern,
MergeCompositeFunctions, LiftTransformParams, RemoveUnusedOutputs; and
ReorderPermuteDimsAfterConcat.  docs/passes.md has a program before and after each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import errors, ir, transform
from relaxvm.dpl import is_op, is_tuple_get_item, wildcard
from relaxvm.ir import DataflowBlock, IRModule, MatchCast, SeqExpr
from relaxvm.script import from_source
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T
from relaxvm.transform import (
    FuseOpsByPattern,
    FusionPattern,
    LiftTransformParams,
    MergeCompositeFunctions,
    PassContext,
    PatternCheckContext,
    RemoveUnusedOutputs,
    ReorderPermuteDimsAfterConcat,
)

from .passes import apply, run, unchanged


def call(name: str, *args: Any) -> Any:
    return is_op(f"relax.{name}")(*args)


def functions(mod: IRModule) -> list[str]:
    return sorted(var.name for var in mod)


def same_results(before: IRModule, after: IRModule, *args: Any) -> None:
    first, second = run(before, *args), run(after, *args)
    if not isinstance(first, tuple):
        first, second = (first,), (second,)
    for x, y in zip(first, second, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)


X = np.arange(1, 5, dtype=np.float32)


@I.ir_module
class Chain:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.sin(a)
            c = R.cos(b)
            d = R.add(c, a)
            R.output(d)
        return d


EXP_SIN = call("sin", call("exp", wildcard()))


# FuseOpsByPattern


def test_values_that_are_used_elsewhere_are_results_too() -> None:
    after = apply(FuseOpsByPattern([("ext.exp_sin", EXP_SIN)]), Chain)
    assert functions(after) == ["fused_relax_exp_relax_sin", "main"]
    assert len(after["fused_relax_exp_relax_sin"].body.body.fields) == 2
    same_results(Chain, after, X)


def test_the_first_pattern_wins() -> None:
    patterns = [("ext.sin", call("sin", wildcard())), ("ext.exp_sin", EXP_SIN)]
    after = apply(FuseOpsByPattern(patterns), Chain)
    assert functions(after) == ["fused_relax_sin", "main"]
    assert after["fused_relax_sin"].attrs == {"Composite": "ext.sin", "Primitive": True}


def test_the_longest_alternative_wins() -> None:
    pattern = EXP_SIN | call("cos", EXP_SIN)
    after = apply(FuseOpsByPattern([("ext.any", pattern)]), Chain)
    assert functions(after) == ["fused_relax_exp_relax_sin_relax_cos", "main"]


def test_a_check_declines() -> None:
    seen: list[PatternCheckContext] = []

    def check(context: PatternCheckContext) -> bool:
        seen.append(context)
        return False

    inner = wildcard()
    pattern = FusionPattern("ext.sin", call("sin", inner), {"inner": inner}, check)
    after = FuseOpsByPattern([pattern])(Chain)
    assert after["main"] is Chain["main"]
    (context,) = seen
    exp, sin, *_ = Chain["main"].body.blocks[0].bindings
    assert context.matched_expr is sin.value
    assert context.annotated_expr == {"inner": exp.var}
    assert context.value_to_bound_var == {sin.value: sin.var}
    assert [var.name for var in context.var_usages[exp.var]] == ["b", "d"]


def test_cycles_are_refused() -> None:
    pattern = call("add", call("cos", wildcard()), call("exp", wildcard()))
    with pytest.raises(RuntimeError, match="A cyclic dependency detected between the groups"):
        FuseOpsByPattern([("ext.add", pattern)])(Chain)


def test_constants_are_arguments_on_request() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = R.multiply(x, R.const([2.0, 3.0], "float32"))
                R.output(y)
            return y

    pattern = [("ext.multiply", call("multiply", wildcard(), wildcard()))]
    for bind, count in ((True, 1), (False, 2)):
        after = apply(FuseOpsByPattern(pattern, bind_constants=bind), Before)
        assert len(after["fused_relax_multiply"].params) == count
        same_results(Before, after, X[:2])


def test_symbolic_dimensions_are_arguments_where_no_parameter_has_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", "m"), "float32")):
            n, m = T.int64(), T.int64()
            with R.dataflow():
                y = R.exp(x)
                z = R.reshape(y, (n * m,))
                w = R.reshape(z, (m, n))
                R.output(w)
            return w

    pattern = [("ext.reshape", call("reshape", wildcard(), wildcard()))]
    after = apply(FuseOpsByPattern(pattern), Before)
    taken = [param.name for param in after["fused_relax_reshape1"].params]
    assert taken[-1] == "tir_vars"
    same_results(Before, after, np.arange(6, dtype=np.float32).reshape(2, 3))


def test_equal_functions_are_made_once_and_annotated() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.exp(a)
                R.output(b)
            return b

        @R.function
        def other(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                R.output(a)
            return a

    pattern = [("ext.exp", call("exp", wildcard()))]
    after = apply(FuseOpsByPattern(pattern, annotate_codegen=True), Before)
    assert functions(after) == ["fused_relax_exp_ext", "main", "other"]
    external = after["fused_relax_exp_ext"]
    assert external.attrs == {"Codegen": "ext", "global_symbol": "fused_relax_exp_ext"}
    same_results(Before, after, X)
    again = FuseOpsByPattern(pattern, annotate_codegen=True)(after)
    ir.assert_structural_equal(again, after)
    only = FuseOpsByPattern(pattern, entry_functions=["other"])(Before)
    assert only["main"] is Before["main"]
    assert functions(only) == ["fused_relax_exp", "main", "other"]


def test_elements_of_tuples() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                both = R.split(x, 2)
                a = both[0]
                b = both[1]
                c = R.add(a, b)
                R.output(c)
            return c

    split = call("split", wildcard())
    pattern = call("add", is_tuple_get_item(split, 0), is_tuple_get_item(split, 1))
    after = apply(FuseOpsByPattern([("ext.halves", pattern)]), Before)
    assert functions(after) == ["fused_relax_split_relax_add", "main"]
    same_results(Before, after, X)


def test_branches_are_searched() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(flag: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
            if flag:
                with R.dataflow():
                    a = R.exp(x)
                    y = R.sin(a)
                    R.output(y)
            else:
                y = x
            return y

    after = apply(FuseOpsByPattern([("ext.exp_sin", EXP_SIN)]), Before)
    assert functions(after) == ["fused_relax_exp_relax_sin", "main"]
    for flag in (True, False):
        same_results(Before, after, np.array(flag), X)


def test_variables_of_two_functions() -> None:
    mod = Chain.copy()
    mod["copy"] = mod["main"].with_attr("global_symbol", "copy")
    with pytest.raises(ValueError, match=r"variable 'x' is defined in the functions 'main' and"):
        FuseOpsByPattern([("ext.exp_sin", EXP_SIN)])(mod)


def test_what_a_pattern_is() -> None:
    with pytest.raises(TypeError, match="a fusion pattern is a FusionPattern, or a tuple"):
        FuseOpsByPattern([EXP_SIN])


def test_registered_patterns() -> None:
    transform.register_patterns([("test_ext.a", EXP_SIN), ("test_ext.b", EXP_SIN)])
    found = transform.get_patterns_with_prefix("test_ext.")
    assert [pattern.name for pattern in found] == ["test_ext.b", "test_ext.a"]
    assert transform.get_pattern("test_ext.a") is found[1]
    assert transform.get_pattern("test_ext.c") is None


# MergeCompositeFunctions


def merged(before: IRModule, *names: str) -> IRModule:
    """Make a function of each operator, given as "name:codegen", and merge."""
    patterns = []
    for name in names:
        op_name, _, codegen = name.partition(":")
        count = 2 if op_name == "add" else 1
        operands = [wildcard() for _ in range(count)]
        patterns.append((f"{codegen}.{op_name}", call(op_name, *operands)))
    return apply(MergeCompositeFunctions(), FuseOpsByPattern(patterns)(before))


def test_neighbours_are_merged() -> None:
    after = merged(Chain, "exp:a", "sin:a", "cos:b", "add:a")
    external = [f.attrs["Codegen"] for f in after.functions.values() if "Codegen" in f.attrs]
    assert sorted(external) == ["a", "a", "b"]
    assert not any("Composite" in func.attrs for func in after.functions.values())
    same_results(Chain, after, X)


def test_what_is_computed_in_between_keeps_calls_apart() -> None:
    """exp and add are neighbours, but the cosine between them is computed elsewhere."""
    after = merged(Chain, "exp:a", "add:a")
    external = [f for f in after.functions.values() if "Codegen" in f.attrs]
    assert len(external) == 2
    same_results(Chain, after, X)


def test_all_in_one() -> None:
    after = merged(Chain, "exp:a", "sin:a", "cos:a", "add:a")
    assert len(after.functions) == 2
    same_results(Chain, after, X)


# LiftTransformParams


@I.ir_module
class Weights:
    @R.function
    def main(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
        b: R.Tensor((8,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            s = R.multiply(t, R.const(2.0, "float32"))
            y = R.matmul(x, s)
            z = R.add(y, b)
            R.output(z)
        return z

    @R.function
    def half(
        x: R.Tensor(("n", 4), "float32"),
        w: R.Tensor((8, 4), "float32"),
        b: R.Tensor((8,), "float32"),
    ):
        R.func_attr({"num_input": 1})
        with R.dataflow():
            t = R.permute_dims(w)
            y = R.matmul(x, t)
            R.output(y)
        return y


RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(8, 4)).astype("float32"), RNG.normal(size=8).astype("float32")
INPUT = RNG.normal(size=(3, 4)).astype("float32")


def lifted(mod: IRModule, name: str, transformation: str) -> Any:
    machine = relaxvm.VirtualMachine(relaxvm.build(mod))
    return machine[name](INPUT, *machine[transformation](WEIGHTS))


def test_each_function_has_its_transformation() -> None:
    after = apply(LiftTransformParams(), Weights)
    assert functions(after) == ["half", "half_transform_params", "main", "main_transform_params"]
    assert [param.name for param in after["main"].params] == ["x", "b", "s"]
    assert [param.name for param in after["half"].params] == ["x", "t"]
    for name in ("main", "half"):
        expected = run(Weights, INPUT, *WEIGHTS, function=name)
        found = lifted(after, name, f"{name}_transform_params")
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_functions_may_share_a_transformation() -> None:
    after = apply(LiftTransformParams(shared_transform=True), Weights)
    assert functions(after) == ["half", "main", "transform_params"]
    assert [param.name for param in after["main"].params] == ["x", "b", "t"]
    for name in ("main", "half"):
        expected = run(Weights, INPUT, *WEIGHTS, function=name)
        np.testing.assert_allclose(lifted(after, name, "transform_params"), expected, rtol=1e-5)
    some = apply(LiftTransformParams(shared_transform=["half"]), Weights)
    assert functions(some) == ["half", "main", "transform_params"]
    assert some["main"] is Weights["main"]


def test_transformations_are_composed() -> None:
    once = LiftTransformParams()(Weights)
    ir.assert_structural_equal(LiftTransformParams()(once), once)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                s = R.exp(w)
                y = R.add(x, s)
                R.output(y)
            return y

        @R.function
        def main_transform_params(params: R.Tuple(R.Tensor((2,), "float32"))):
            R.func_attr({"num_input": 0})
            with R.dataflow():
                w = params[0]
                n = R.negative(w)
                out = (n,)
                R.output(out)
            return out

    after = apply(LiftTransformParams(), Before)
    machine = relaxvm.VirtualMachine(relaxvm.build(after))
    (found,) = machine["main_transform_params"]((np.array([1, 2], np.float32),))
    np.testing.assert_allclose(found, np.exp([-1, -2]), rtol=1e-6)


def test_lifting_stops() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32")):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                a = R.exp(w)
                b = R.builtin.stop_lift_params(a)
                c = R.sin(b)
                y = R.add(x, c)
                R.output(y)
            return y

    after = apply(LiftTransformParams(), Before)
    assert "R.sin" in str(after["main"])
    assert "R.exp" not in str(after["main"])
    assert "stop_lift_params" not in str(after)


def test_what_is_not_lifted() -> None:
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(
            x: R.Tensor((2,), "float32"), w: R.Tensor((2,), "float32"), c: R.Tensor((), "bool")
        ):
            R.func_attr({"num_input": 1})
            a = R.call_packed("test.effect", w, ty_args=R.Tensor((2,), "float32"))
            if c:
                b = R.exp(w)
            else:
                b = w
            y = R.add(R.add(x, a), b)
            return y

        @R.function
        def all_inputs(x: R.Tensor((2,), "float32")):
            y = R.exp(x)
            return y

    after = apply(LiftTransformParams(), Before)
    transformation = after["main_transform_params"]
    assert transformation.body.body is transformation.params[0]
    assert [param.name for param in after["main"].params] == ["x", "w", "c"]
    assert functions(after) == ["all_inputs", "main", "main_transform_params"]


def test_weights_are_consumed_on_request() -> None:
    with PassContext(config={"relax.lift_transform_params.consume_params": True}):
        after = LiftTransformParams()(Weights)
    assert str(after["main_transform_params"]).count("tuple_reset_item") == 2


def test_weights_of_a_shared_transformation_are_the_same() -> None:
    mod = Weights.copy()

    @R.function(private=True)
    def other(x: R.Tensor((2,), "float32"), w: R.Tensor((3,), "float32")):
        R.func_attr({"num_input": 1})
        return x

    mod["other"] = other.with_attr("global_symbol", "other")
    with pytest.raises(errors.InternalError, match="take the same weights, but"):
        LiftTransformParams(shared_transform=True)(mod)


# RemoveUnusedOutputs


def test_results_that_no_caller_uses() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            cls = Before
            a = cls.three(x)
            b = cls.whole(x)
            y = a[0]
            z = a[2]
            return (y, z, b)

        @R.function(private=True)
        def three(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            b = R.sin(x)
            c = R.cos(x)
            return (a, b, c)

        @R.function(private=True)
        def whole(x: R.Tensor((4,), "float32")):
            a = R.exp(x)
            return (a, a)

        @R.function
        def public(x: R.Tensor((4,), "float32")):
            return (x, x)

    after = apply(RemoveUnusedOutputs(), Before)
    assert len(after["three"].body.body.fields) == 2
    assert "R.sin" not in str(after["three"])
    assert after["whole"] is Before["whole"]
    assert after["public"] is Before["public"]
    first, second = run(Before, X), run(after, X)
    for x, y in zip(first[:2], second[:2], strict=True):
        np.testing.assert_array_equal(x, y)


def test_nothing_to_remove() -> None:
    unchanged(
        RemoveUnusedOutputs(),
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = R.exp(x)
            return (x, y)
        """,
    )


# ReorderPermuteDimsAfterConcat


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_transposed_tensors_are_joined_first(axis: int) -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 2, 2), "float32"), y: R.Tensor((2, 2, 2), "float32")):
            with R.dataflow():
                a = R.permute_dims(x, [1, 2, 0])
                b = R.permute_dims(y, [1, -1, 0])
                c = R.concat((a, b), axis=axis)
                R.output(c)
            return c

    after = apply(ReorderPermuteDimsAfterConcat(), Before)
    assert str(after).count("R.permute_dims") == 1
    x = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    same_results(Before, after, x, -x)


def test_other_permutations_stay() -> None:
    unchanged(
        ReorderPermuteDimsAfterConcat(),
        """
        @R.function
        def main(x: R.Tensor((2, 2), "float32"), y: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                a = R.permute_dims(x, [0, 1])
                b = R.permute_dims(y)
                c = R.concat((a, b), axis=0)
                d = R.concat((a, x), axis=0)
                e = R.concat((x,), axis=0)
                R.output(c, d, e)
            return (c, d, e)
        """,
    )


def test_a_cast_of_a_composite_call_stays() -> None:
    mod = from_source("""
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @R.function(private=True)
    def fused(x: R.Tensor(dtype="float32", ndim=1)) -> R.Tensor(dtype="float32", ndim=1):
        R.func_attr({"Composite": "my.relu", "Primitive": True})
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y

    @R.function
    def main(x: R.Tensor(dtype="float32", ndim=1)) -> R.Tensor(dtype="float32", ndim=1):
        k = T.int64()
        with R.dataflow():
            a = Module.fused(x)
            b = R.match_cast(a, R.Tensor((k,), "float32"))
            c = Module.fused(b)
            d = R.add(c, R.zeros((k,), "float32"))
            R.output(d)
        return d
""")
    main = mod["main"]
    call, cast, *rest = main.body.blocks[0].bindings
    joined = DataflowBlock([MatchCast(cast.var, call.value, cast.ty), *rest])
    mod["main"] = main.replace(body=SeqExpr([joined], main.body.body))
    found = MergeCompositeFunctions()(mod)
    kinds = [type(b) for b in found["main"].body.blocks[0].bindings]
    assert kinds.count(MatchCast) == 1
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(run(transform.Normalize()(found), x), [0, 2])
