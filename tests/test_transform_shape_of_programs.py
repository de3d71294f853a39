"""Passes about functions, parameters and blocks: NormalizeGlobalVar, UpdateParamType,
BundleModelParams, RemoveUnusedParameters, ExpandTupleArguments; TopologicalSort, ConvertToDataflow,
RemoveRedundantReshape, DecomposeOpsForInference.  docs/passes.md has a program before and after
each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxvm.analysis import remove_all_unused, well_formed
from relaxvm.ir import GlobalVar, IRModule, TensorType, copy_with_new_vars
from relaxvm.script import from_source
from relaxvm.transform import (
    BundleModelParams,
    ConvertToDataflow,
    DecomposeOpsForInference,
    ExpandTupleArguments,
    NormalizeGlobalVar,
    RemoveRedundantReshape,
    RemoveUnusedParameters,
    TopologicalSort,
    UpdateParamType,
)
from relaxvm.values import Shape

from .passes import apply, check, module, run, unchanged

X = np.arange(1, 5, dtype=np.float32)


# NormalizeGlobalVar


def named(*functions: tuple[str, str | None]) -> IRModule:
    """A module of functions with these names and symbols; each calls the first one."""
    text = """
@R.function(private=True)
def f(x: R.Tensor((4,), "float32")):
    y = R.exp(x)
    return y
"""
    func = module(text)["f"]
    mod = IRModule()
    for name, symbol in functions:
        new = copy_with_new_vars(func)
        if symbol is not None:
            new = new.with_attr("global_symbol", symbol)
        mod[GlobalVar(name, new.ty)] = new
    return mod


def test_names_are_those_that_are_exported() -> None:
    after = NormalizeGlobalVar()(named(("f", None), ("f1", "f"), ("g", None)))
    assert sorted(var.name_hint for var in after) == ["f", "f1", "g"]
    assert after["f"].attrs["global_symbol"] == "f"
    assert "global_symbol" not in after["f1"].attrs
    well_formed(after)


def test_calls_follow_the_names() -> None:
    text = """
@I.ir_module
class Module:
    @R.function(private=True)
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return y

    @R.function
    def f(x: R.Tensor((4,), "float32")):
        R.func_attr({"global_symbol": "main"})
        y = Module.main(x)
        return y
"""
    after = NormalizeGlobalVar()(from_source(text, check_well_formed=False))
    well_formed(after)
    np.testing.assert_allclose(run(after, X), np.exp(X))


def test_names_that_are_right() -> None:
    mod = named(("f", "f"), ("g", None))
    assert NormalizeGlobalVar()(mod) is mod


def test_two_functions_of_one_name() -> None:
    with pytest.raises(ValueError, match="functions 'f' and 'g' have the same global_symbol, 'h'"):
        NormalizeGlobalVar()(named(("f", "h"), ("g", "h")))


# Parameters


CALLS = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        z = R.exp(x)
        y = Module.f((x, z), z)
        return y

    @R.function(private=True)
    def f(t: R.Tuple(R.Tensor(("n",), "float32"), R.Tensor(("n",), "float32")),
          u: R.Tensor(("m",), "float32")) -> R.Tensor(("n",), "float32"):
        m = T.int64()
        a = t[0]
        b = R.zeros((m,), "float32")
        c = R.add(a, b)
        return c
"""


def test_fewer_parameters() -> None:
    expected = run(module(CALLS), X)
    expanded = apply(ExpandTupleArguments(), CALLS)
    assert [param.name for param in expanded["f"].params] == ["t_0", "t_1", "u"]
    after = apply(RemoveUnusedParameters(), expanded)
    assert [str(param.ty) for param in after["f"].params] == [
        'R.Tensor((n,), dtype="float32")', "R.Shape([m])",
    ]  # fmt: skip
    for mod in (expanded, after):
        np.testing.assert_array_equal(run(mod, X), expected)
    assert "R.exp" not in after.script()  # the shape of its result is known without it


@pytest.mark.parametrize("make", [RemoveUnusedParameters, ExpandTupleArguments])
def test_functions_that_are_values_keep_their_parameters(make: Any) -> None:
    unchanged(
        make(),
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        g = Module.f
        y = g(x, (x,))
        return y

    @R.function(private=True)
    def f(a: R.Tensor((4,), "float32"), b: R.Tuple(R.Tensor((4,), "float32"))
          ) -> R.Tensor((4,), "float32"):
        return a
""",
    )


@pytest.mark.parametrize("make", [RemoveUnusedParameters, ExpandTupleArguments])
def test_public_functions_keep_their_parameters(make: Any) -> None:
    unchanged(
        make(),
        """
@R.function
def main(a: R.Tensor((4,), "float32"), b: R.Tuple(R.Tensor((4,), "float32"))):
    return a
""",
    )


WEIGHTS = """
@R.function
def main(x: R.Tensor((4,), "float32"), w: R.Tensor((4,), "float32"),
         b: R.Tensor((4,), "float32")):
    R.func_attr({"num_input": 1})
    y = R.multiply(x, w)
    return (y, b)
"""


def test_weights_in_a_tuple() -> None:
    after = apply(BundleModelParams("weights"), WEIGHTS)
    assert [param.name for param in after["main"].params] == ["x", "weights"]
    got = run(after, X, (X, X + 1))
    np.testing.assert_array_equal(got, run(module(WEIGHTS), X, X, X + 1))


def test_functions_without_weights() -> None:
    unchanged(BundleModelParams(), WEIGHTS.replace('{"num_input": 1}', "{}"))


def test_more_inputs_than_parameters() -> None:
    with pytest.raises(ValueError, match="'main' has 3 parameters, but num_input is 4"):
        BundleModelParams()(module(WEIGHTS.replace("1}", "4}")))


def test_other_types_of_parameters() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32"), y: R.Tensor((1,), "float32")):
    z = R.add(x, y)
    return z
"""
    wide = TensorType((8,), "float32")
    after = apply(UpdateParamType(lambda var: wide if var.name == "x" else None), text)
    assert str(after["main"].ret_ty) == 'R.Tensor((8,), dtype="float32")'
    unchanged(UpdateParamType(lambda var: None), text)
    with pytest.raises((TypeError, ValueError), match="int32"):
        UpdateParamType(lambda var: TensorType((4,), "int32") if var.name == "x" else None)(
            module(text)
        )


# Blocks


GRAPH = """
@R.function
def main(x: R.Tensor((), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(a)
        c = R.cos(a)
        u = R.tan(x)
        d = R.abs(x)
        e = R.add(b, c)
        f = R.add(e, d)
        R.output(f)
    return f
"""


@pytest.mark.parametrize(
    ("order", "direction", "names"),
    [
        ("depth-first", "from-inputs", "abceudf"),
        ("breadth-first", "from-inputs", "audbcef"),
        ("depth-first", "from-outputs", "uabcedf"),
        ("breadth-first", "from-outputs", "acbdefu"),
    ],
)
def test_orders(order: str, direction: str, names: str) -> None:
    after = apply(TopologicalSort(order, direction), GRAPH)
    found = "".join(b.var.name for b in after["main"].body.blocks[0].bindings)
    assert sorted(found) == sorted(names)
    again = TopologicalSort(order, direction)(after)["main"].body.blocks[0].bindings
    assert len(again) == len(names)
    np.testing.assert_array_equal(run(after, np.float32(0.5)), run(module(GRAPH), np.float32(0.5)))
    assert found == names


def test_dimensions_stay_behind_their_definition() -> None:
    text = """
@R.function
def main(x: R.Tensor("float32", ndim=1)):
    with R.dataflow():
        n = T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.zeros((n,), "float32")
        c = R.add(a, b)
        R.output(c)
    return c
"""
    for order in ("depth-first", "breadth-first"):
        for direction in ("from-inputs", "from-outputs"):
            after = apply(TopologicalSort(order, direction), text)
            np.testing.assert_array_equal(run(after, X), X)


def test_orders_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="order: expected 'depth-first' or 'breadth-first', got"):
        TopologicalSort("depth")
    with pytest.raises(ValueError, match="direction: expected 'from-inputs' or 'from-outputs'"):
        TopologicalSort(direction="inputs")


def test_blocks_grow() -> None:
    check(
        ConvertToDataflow(),
        """
@R.function(pure=False)
def main(x: R.Tensor((), "float32")):
    a = R.exp(x)
    with R.dataflow():
        b = R.sin(a)
        R.output(b)
    c = R.cos(b)
    _ = R.print(format="here")
    d = R.tan(c)
    return d
""",
        """
@R.function(pure=False)
def main(x: R.Tensor((), "float32")):
    with R.dataflow():
        a = R.exp(x)
        b = R.sin(a)
        c = R.cos(b)
        R.output(c)
    _ = R.print(format="here")
    d = R.tan(c)
    return d
""",
        again=True,
    )
    with pytest.raises(ValueError, match="min_size: expected at least 1, got 0"):
        ConvertToDataflow(0)


def test_shapes_with_zeros_and_unknown_ones() -> None:
    text = """
@R.function
def main(x: R.Tensor((4,), "float32"), s: R.Shape(ndim=1)):
    a = R.reshape(x, (2, 2))
    b = R.reshape(a, s)
    return b
"""
    after = apply(RemoveRedundantReshape(), text)
    np.testing.assert_array_equal(run(after, X, Shape((4,))), X)


def test_a_normalization_of_inference() -> None:
    text = """
@R.function
def main(x: R.Tensor((2, 3, 4), "float32"), g: R.Tensor((3,), "float32"),
         b: R.Tensor((3,), "float32"), m: R.Tensor((3,), "float32"),
         v: R.Tensor((3,), "float32")):
    with R.dataflow():
        y = R.nn.batch_norm(x, g, b, m, v, axis=1, training=False)
        z = y[0]
        R.output(z)
    return z
"""
    rng = np.random.default_rng(4)
    args = [rng.uniform(0.5, 1, shape).astype("float32") for shape in ((2, 3, 4), *[(3,)] * 4)]
    after = apply(DecomposeOpsForInference("main"), text)
    assert "batch_norm" not in after.script()
    np.testing.assert_allclose(run(after, *args), run(module(text), *args), rtol=1e-5)
    with pytest.raises(ValueError, match="has no function 'mean'; did you mean 'main'"):
        DecomposeOpsForInference("mean")(module(text))


def test_lengths_that_are_joined() -> None:
    """They are added in the order of the tensors, unless the sum has a shorter form."""
    func = module("""
@R.function
def main(x: R.Tensor((640,), "float32"), y: R.Tensor(("m",), "float32")):
    a = R.concat((x, y))
    b = R.concat((y, x))
    c = R.concat((y, y))
    d = R.concat((y, x, x))
    return (a, b, c, d)
""")["main"]
    lengths = [str(ty.dims[0]) for ty in func.ret_ty.fields]
    assert lengths == ["640 + m", "m + 640", "m * 2", "m + 1280"]


# remove_all_unused


def test_unused_bindings_outside_of_dataflow_blocks() -> None:
    """What has no side effects is removed; casts and impure calls, and what they use, are not."""
    func = module("""
@R.function(pure=False)
def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
    a = R.exp(x)
    b = R.sin(a)

    @R.function
    def unused(y: R.Tensor((4,), "float32")):
        return y

    d = R.cos(x)
    _ = R.print(d, format="{}")
    n = T.int64()
    e = R.match_cast(x, R.Tensor((n,), "float32"))
    if c:
        p = R.exp(x)
        q = R.sin(x)
    else:
        q = R.cos(x)
    return q
""")["main"]
    new = remove_all_unused(func)
    (block,) = new.body.blocks
    assert [b.var.name for b in block.bindings] == ["d", "_", "e", "q"]
    branch = block.bindings[-1].value.true_branch
    assert "R.exp" not in str(branch)
    assert remove_all_unused(new) is new
