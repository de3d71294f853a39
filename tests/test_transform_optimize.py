"""The optimizing passes: edge cases, programs that they do not change, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import transform
from relaxvm.ir import Constant, IRModule, Var, const, prim_value
from relaxvm.script import from_source
from relaxvm.transform import (
    BindParams,
    BindSymbolicVars,
    CanonicalizeBindings,
    DeadCodeElimination,
    EliminateCommonSubexpr,
    FoldConstant,
    InlinePrivateFunctions,
    Normalize,
)

from .passes import apply, check, module, run, unchanged

X = np.array([1, 2, 3, 4], np.float32)

BRANCHES = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    if c:
        a = R.exp(x)
        y = R.abs(a)
    else:
        y = R.exp(x)
    z = R.exp(x)
    return (y, z)
"""


@pytest.mark.parametrize("make", [
    CanonicalizeBindings, DeadCodeElimination, EliminateCommonSubexpr, FoldConstant,
    InlinePrivateFunctions, Normalize, transform.FuseOps,
])  # fmt: skip
def test_functions_with_nothing_to_optimize_are_returned_unchanged(make: Any) -> None:
    unchanged(make(), BRANCHES)


# CanonicalizeBindings


def test_a_local_function_gets_its_own_tuple_items() -> None:
    unchanged(
        CanonicalizeBindings(),
        """
@R.function
def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
    @R.function
    def inner(y: R.Tensor((4,), "float32")):
        a = t[0]
        b = R.add(a, y)
        return b
    c = t[0]
    d = inner(c)
    return d
""",
    )


def test_variables_of_a_dataflow_block_are_not_used_after_it() -> None:
    check(
        EliminateCommonSubexpr(),
        """
@R.function
def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
    with R.dataflow():
        a = t[0]
        b = t[0]
        c = R.add(a, b)
        R.output(c)
    d = t[0]
    return (c, d)
""",
        """
@R.function
def main(t: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
    with R.dataflow():
        a = t[0]
        b = a
        c = R.add(a, a)
        R.output(c)
    d = t[0]
    return (c, d)
""",
        again=True,
    )


def test_an_output_replaces_the_variable_that_it_names() -> None:
    check(
        CanonicalizeBindings(),
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.abs(a)
        c = a
        R.output(b, c)
    return (b, c)
""",
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        c = R.exp(x)
        b = R.abs(c)
        R.output(b, c)
    return (b, c)
""",
        again=True,
    )


def test_a_cast_that_adds_information_stays() -> None:
    check(
        CanonicalizeBindings(),
        """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    m = T.int64()
    a = R.match_cast(x, R.Tensor((n,), "float32"))
    b = R.match_cast(y, R.Tensor((m,), "float32"))
    return (a, b)
""",
        """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
    m = T.int64()
    b = R.match_cast(y, R.Tensor((m,), "float32"))
    return (x, b)
""",
        again=True,
    )


def test_a_cast_to_a_dimension_that_an_earlier_cast_found_stays() -> None:
    text = """
@R.function
def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    m = T.int64()
    a = R.match_cast(x, R.Tensor((n,), "float32"))
    b = R.match_cast(y, R.Tensor((m,), "float32"))
    c = R.match_cast(b, R.Tensor((n,), "float32"))
    return (a, c)
"""
    check(CanonicalizeBindings(), text, text, again=True)


# EliminateCommonSubexpr


def test_common_subexpressions_of_a_branch_and_what_is_before_it() -> None:
    check(
        EliminateCommonSubexpr(),
        """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    a = R.exp(x)
    if c:
        b = R.exp(x)
        y = R.abs(b)
    else:
        d = R.abs(x)
        e = R.abs(x)
        y = R.negative(e)
    return (a, y)
""",
        """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    a = R.exp(x)
    if c:
        b = a
        y = R.abs(a)
    else:
        d = R.abs(x)
        e = d
        y = R.negative(d)
    return (a, y)
""",
    )


def test_equal_arguments_and_other_attributes() -> None:
    unchanged(
        EliminateCommonSubexpr(),
        """
@R.function
def main(x: R.Tensor((4, 4), "float32")):
    a = R.sum(x, axis=[0])
    b = R.sum(x, axis=[1])
    c = R.astype(x, "float16")
    d = R.astype(x, "float64")
    return (a, b, c, d)
""",
    )


def test_effects_are_not_shared() -> None:
    unchanged(
        EliminateCommonSubexpr(),
        """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    a = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    b = R.call_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    return (a, b)
""",
    )


def test_memory_is_not_shared() -> None:
    unchanged(
        EliminateCommonSubexpr(),
        """
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32")):
    s: R.Any = R.memory.alloc_storage(R.shape([16]), 0, "global", R.dtype("uint8"))
    t: R.Any = R.memory.alloc_storage(R.shape([16]), 0, "global", R.dtype("uint8"))
    a: R.Tensor((4,), "float32") = R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))
    b: R.Tensor((4,), "float32") = R.memory.alloc_tensor(s, 0, R.shape([4]), R.dtype("float32"))
    c: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0)
    d: R.Tensor((4,), "float32") = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), 0)
    return (a, b, c, d, t)
""",
    )


BUMP = """
@T.prim_func(s_tir=True, private=True)
def bump(x: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("x"):
            vi = T.axis.spatial(4, i)
            x[vi] = x[vi] + T.float32(1)
"""


def test_tensors_written_in_place_are_not_shared() -> None:
    unchanged(
        EliminateCommonSubexpr(),
        BUMP
        + """
@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(x)
        c = R.call_tir_inplace(cls.bump, (b,), inplace_indices=[0],
            out_ty=R.Tensor((4,), "float32"))
        d = R.add(a, c)
        R.output(d)
    return d
""",
    )


def test_calls_only() -> None:
    text = """
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = (x, x)
    b = (x, x)
    return (a, b)
"""
    unchanged(EliminateCommonSubexpr(call_only=True), text)
    assert apply(EliminateCommonSubexpr(), text).script().count("(x, x)") == 1


def test_outputs_of_a_block_are_shared_after_it() -> None:
    """Inside, an output is another name of a variable of the block, which is not visible after it.
    Casts are shared, too, unless they define symbolic variables."""
    check(
        EliminateCommonSubexpr(),
        """
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor("float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(x)
        c = R.multiply(a, b)
        d = R.match_cast(y, R.Tensor((2,), "float32"))
        e = R.match_cast(y, R.Tensor((2,), "float32"))
        m = T.int64()
        f = R.match_cast(y, R.Tensor((m,), "float32"))
        n = T.int64()
        g = R.match_cast(y, R.Tensor((n,), "float32"))
        h = (c, d, e, f, g)
        R.output(b, h)
    i = R.exp(x)
    return (b, h, i)
""",
        """
@R.function
def main(x: R.Tensor((2,), "float32"), y: R.Tensor("float32")):
    with R.dataflow():
        a = R.exp(x)
        b = a
        c = R.multiply(a, a)
        d = R.match_cast(y, R.Tensor((2,), "float32"))
        e = d
        m = T.int64()
        f = R.match_cast(y, R.Tensor((m,), "float32"))
        n = T.int64()
        g = R.match_cast(y, R.Tensor((n,), "float32"))
        h = (c, d, d, f, g)
        R.output(b, h)
    i = b
    return (b, h, b)
""",
        again=True,
    )


# FoldConstant


def test_a_chain_of_constants() -> None:
    mod = apply(
        FoldConstant(),
        """
@R.function
def main(x: R.Tensor((), "float32")):
    a = R.exp(R.const(0.0, "float32"))
    b = R.reshape(a, R.shape([1]))
    t = R.split(R.const([1, 2, 3, 4], "int32"), 2)
    c = t[1]
    d = R.sum(c)
    return (b, d)
""",
    )
    (b, d) = run(mod, np.zeros((), np.float32))
    assert [type(field) for field in mod["main"].body.body.fields] == [Constant, Constant]
    assert (b.tolist(), int(d)) == ([1], 7)


ADD_ONE = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        for i in range(EXTENT):
            B[i] = A[i] + T.float32(1)
            EFFECT

    @R.function
    def main() -> R.Tensor((4,), "float32"):
        c = R.const([0, 1, 2, 3], "float32")
        y = R.call_tir(Module.add_one, (c,), R.Tensor((4,), "float32"))
        z = R.call_tir(Module.add_one, (y,), R.Tensor((4,), "float32"))
        return z
"""


def test_prim_funcs_of_constants_are_run() -> None:
    mod = from_source(ADD_ONE.replace("EXTENT", "4").replace("EFFECT", ""))
    result = FoldConstant()(mod)["main"].body.body
    assert isinstance(result, Constant)
    assert result.data.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("extent", "effect"),
    [("4", 'T.evaluate(T.call_extern("int32", "puts"))'), ("4 * 10**9", "")],
    ids=["effect", "long"],
)
def test_prim_funcs_with_effects_or_long_loops_are_left(extent: str, effect: str) -> None:
    mod = from_source(ADD_ONE.replace("EXTENT", extent).replace("EFFECT", effect))
    assert isinstance(FoldConstant()(mod)["main"].body.body, Var)


def test_shapes_of_constants_are_folded() -> None:
    mod = apply(
        FoldConstant(),
        """
@R.function
def main(x: R.Tensor((256,), "float32")):
    s = R.tensor_to_shape(R.const([16, 16], "int64"))
    t = R.expand_dims(R.shape_to_tensor(R.shape([5, 4])), axis=0)
    y = R.reshape(x, s)
    return (y, t)
""",
    )
    assert mod["main"].ret_ty.fields[0].dims[0].value == 16
    (y, t) = run(mod, np.zeros(256, np.float32))
    assert (y.shape, t.tolist()) == ((16, 16), [[5, 4]])
    assert isinstance(mod["main"].body.body.fields[1], Constant)


def test_large_results_and_errors_are_left() -> None:
    unchanged(
        FoldConstant(),
        """
@R.function
def main(x: R.Tensor((), "float32")):
    a = R.zeros(R.shape([1024, 1024]), "float32")
    b = R.call_dps_packed("relaxvm.kernel.take", (R.const([1, 2], "int32"), R.const(5, "int64")),
        out_ty=R.Tensor((), "int32"))
    return (a, b)
""",
    )


def test_tensors_written_in_place_are_not_constants() -> None:
    mod = module(
        BUMP,
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    with R.dataflow():
        a = R.ones(R.shape([4]), "float32")
        b = R.call_tir_inplace(cls.bump, (a,), inplace_indices=[0],
            out_ty=R.Tensor((4,), "float32"))
        R.output(b)
    return b
""",
    )
    folded = apply(FoldConstant(), mod)
    machine = relaxvm.VirtualMachine(relaxvm.build(folded))
    assert [machine["main"](X).tolist() for _ in range(2)] == [[2, 2, 2, 2]] * 2


# DeadCodeElimination


def test_a_cast_outside_of_dataflow_is_kept_as_a_check() -> None:
    check(
        DeadCodeElimination(),
        """
@R.function
def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    a = R.match_cast(x, R.Tensor((n,), "float32"))
    with R.dataflow():
        m = T.int64()
        b = R.match_cast(y, R.Tensor((m,), "float32"))
        c = R.exp(y)
        R.output(c)
    return c
""",
        """
@R.function
def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    a = R.match_cast(x, R.Tensor((n,), "float32"))
    with R.dataflow():
        c = R.exp(y)
        R.output(c)
    return c
""",
        again=True,
    )


def test_bindings_that_define_dimensions_stay() -> None:
    unchanged(
        DeadCodeElimination(),
        """
@R.function
def main(x: R.Tensor(ndim=1, dtype="float32")):
    with R.dataflow():
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.zeros(R.shape([n]), "float32")
        R.output(b)
    return b
""",
    )


def test_dead_branches_and_functions() -> None:
    check(
        DeadCodeElimination(["main"]),
        """
@R.function(private=True)
def other(x: R.Tensor((4,), "float32")):
    return x

@R.function(private=True)
def used(x: R.Tensor((4,), "float32")):
    return x

@R.function(private=True)
def unused(x: R.Tensor((4,), "float32")):
    return x

@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    cls = Module
    if c:
        a = R.exp(x)
        b = cls.unused(a)
        y = cls.used(x)
    else:
        y = x
    return y
""",
        """
@R.function(private=True)
def used(x: R.Tensor((4,), "float32")):
    return x

@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")):
    cls = Module
    if c:
        y1 = cls.used(x)
        y = y1
    else:
        y = x
    return y
""".replace("y1 = cls.used(x)\n        y = y1", "y = cls.used(x)"),
        again=True,
    )


def test_an_unused_pure_packed_call_stays() -> None:
    unchanged(
        DeadCodeElimination(),
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    a = R.call_pure_packed("f", x, ty_args=R.Tensor((4,), "float32"))
    return x
""",
    )


def test_an_unknown_entry_function() -> None:
    with pytest.raises(ValueError, match=r"no function 'mian'; did you mean 'main'\?"):
        DeadCodeElimination(["mian"])(module(BRANCHES))


# InlinePrivateFunctions


def test_recursive_and_public_functions_are_called() -> None:
    unchanged(
        InlinePrivateFunctions(),
        """
@R.function(private=True)
def loop(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    cls = Module
    y = cls.loop(x)
    return y

@R.function
def public(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    return x

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    y = cls.loop(x)
    z = cls.public(y)
    return z
""",
    )


def test_inlining_checks_what_the_callee_would() -> None:
    mod = module("""
@R.function(private=True)
def inner(x: R.Tensor(("n", "n"), "float32")):
    n = T.int64()
    y = R.reshape(x, R.shape([n * n]))
    return y

@R.function
def main(x: R.Tensor(("a", "b"), "float32")):
    cls = Module
    y = cls.inner(x)
    return y
""")
    inlined = apply(InlinePrivateFunctions(), mod)
    assert [var.name_hint for var in inlined.get_global_vars()] == ["main"]
    assert run(inlined, X.reshape(2, 2)).tolist() == X.tolist()
    with pytest.raises(RuntimeError, match="match_cast"):
        run(inlined, X.reshape(4, 1))


def test_inlining_into_dataflow() -> None:
    check(
        InlinePrivateFunctions(),
        """
@R.function(private=True)
def inner(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.exp(x)
        z = R.abs(y)
        R.output(z)
    return z

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    with R.dataflow():
        a = cls.inner(x)
        b = R.add(a, a)
        R.output(b)
    return b
""",
        """
@R.function
def main(x: R.Tensor((4,), "float32")):
    with R.dataflow():
        y = R.exp(x)
        z = R.abs(y)
        a = z
        b = R.add(a, a)
        R.output(b)
    return b
""",
    )


# BindParams, BindSymbolicVars

WEIGHTS = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m",), "float32"), s: R.Prim("int64")):
    y = R.multiply(x, w)
    return y
"""


@pytest.mark.parametrize(
    "value", [X, const(X), [1.0, 2.0, 3.0, 4.0]], ids=["array", "const", "list"]
)
def test_bound_weights_define_dimensions(value: Any) -> None:
    mod = apply(BindParams("main", {"w": value}), WEIGHTS)
    x, _ = mod["main"].params
    assert str(x.ty) == 'R.Tensor((n, 4), dtype="float32")'
    assert run(mod, np.ones((2, 4), np.float32), 3).tolist() == [X.tolist()] * 2


def test_params_are_bound_by_variable_as_well() -> None:
    mod = module(WEIGHTS)
    bound = BindParams("main", {mod["main"].params[1]: X, "s": 3})(mod)
    assert [param.name for param in bound["main"].params] == ["x"]


@pytest.mark.parametrize(("name", "params", "error", "text"), [
    ("mian", {}, ValueError, r"the module has no function 'mian'; did you mean 'main'"),
    ("main", {"v": X}, ValueError, r"function 'main' has no parameter 'v'"),
    ("main", {Var("w"): X}, ValueError, r"w is not a parameter of function 'main'"),
    ("main", {"w": X.astype("int32")}, TypeError, r"parameter 'w' of function 'main' is of type"),
    ("main", {"w": X.reshape(2, 2)}, TypeError, r"parameter 'w' of function 'main' is of type"),
])  # fmt: skip
def test_params_that_cannot_be_bound(name: str, params: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        BindParams(name, params)(module(WEIGHTS))


def test_a_primfunc_has_no_params_to_bind() -> None:
    with pytest.raises(ValueError, match="function 'bump' is not a Relax function"):
        BindParams("bump", {})(module(BUMP))


def test_symbolic_variables_are_bound_where_they_are() -> None:
    mod = module(WEIGHTS, WEIGHTS.replace("main", "second").replace('"n"', '"k"'))
    bound = BindSymbolicVars({"n": 2, "m": prim_value(4)})(mod)
    assert str(bound["main"].ret_ty) == 'R.Tensor((2, 4), dtype="float32")'
    assert str(bound["second"].ret_ty) == 'R.Tensor((k, 4), dtype="float32")'
    assert bound.get_global_var("main").ty.ret is bound["main"].ret_ty


def test_symbolic_variables_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="function 'main' has no symbolic variable k"):
        BindSymbolicVars({"k": 2}, "main")(module(WEIGHTS))


def test_everything_together_computes_the_same() -> None:
    mod = module(
        BUMP,
        """
@R.function(private=True)
def inner(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32")):
    y = R.multiply(x, w)
    z = R.add(y, R.const(1.0, "float32"))
    return z

@R.function
def main(x: R.Tensor((4,), "float32")):
    cls = Module
    w = R.exp(R.const([0.0, 1.0, 2.0, 3.0], "float32"))
    a = cls.inner(x, w)
    b = cls.inner(x, w)
    c = R.add(a, b)
    return c
""",
    )
    steps: list[Any] = [InlinePrivateFunctions(), CanonicalizeBindings(), EliminateCommonSubexpr(),
                        FoldConstant(), DeadCodeElimination()]  # fmt: skip
    expected = run(mod, X)
    for step in steps:
        mod = apply(step, mod)
        assert run(mod, X).tobytes() == expected.tobytes(), step
    assert isinstance(mod, IRModule)
    assert mod.script().count("R.multiply") == 1
    assert "R.exp" not in mod.script()


def test_binding_leaves_the_variable_of_the_function_alone() -> None:
    mod = module(WEIGHTS)
    var = mod.get_global_var("main")
    bound = BindParams("main", {"w": X})(mod)
    assert len(bound.get_global_var("main").ty.params) == 2
    assert len(var.ty.params) == 3
    assert mod.get_global_var("main") is var


def test_a_function_that_is_called_keeps_its_parameters() -> None:
    mod = module(
        WEIGHTS,
        """
@R.function
def other(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4,), "float32")):
    cls = Module
    y = cls.main(x, w, 3)
    return y
""",
    )
    with pytest.raises(TypeError, match="main: expected 2 arguments, got 3"):
        BindParams("main", {"w": X})(mod)
