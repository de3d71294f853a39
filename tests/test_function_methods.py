"""Methods of a function that do what passes do: binding, inlining; and copies of functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import errors, ir
from relaxvm.script import ir as I
from relaxvm.script import relax as R


@R.function(private=True)
def scaled(x: R.Tensor(("n", "m"), "float32"), w: R.Tensor(("m",), "float32")):
    return R.multiply(x, w)


def test_bind_symbolic_vars() -> None:
    @R.function(private=True)
    def expected(x: R.Tensor((2, "m"), "float32"), w: R.Tensor(("m",), "float32")):
        return R.multiply(x, w)

    n = scaled.params[0].ty.shape[0]
    for key in (n, "n"):
        ir.assert_structural_equal(scaled.bind_symbolic_vars({key: 2}), expected)


def test_symbolic_vars_may_be_bound_to_new_ones() -> None:
    k = ir.Var("k", "int64")
    after = scaled.bind_symbolic_vars({"n": k * 2, "m": k})
    assert str(after.params[0].ty) == 'R.Tensor((k * 2, k), dtype="float32")'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: {"k": 1}, "function 'main' has no symbolic variable k"),
        (lambda: {ir.Var("n", "int64"): 1}, "has no symbolic variable"),
        (lambda: {"n": 1, scaled.params[0].ty.shape[0]: 1}, "variable 'n' is bound twice"),
        (lambda: {"n": ir.Var("k", "int64")}, None),
        (lambda: {"n": ir.Var("k", "int64") * 2}, "'k' is not defined by the type of a parameter"),
    ],
)
def test_symbolic_vars_that_cannot_be_bound(change: Any, message: str | None) -> None:
    if message is None:
        scaled.bind_symbolic_vars(change())
        return
    with pytest.raises(errors.BindError, match=message):
        scaled.bind_symbolic_vars(change())


def test_bind_params() -> None:
    after = scaled.bind_params({"w": np.ones(3, np.float32)})
    assert [param.name for param in after.params] == ["x"]
    assert str(after.params[0].ty) == 'R.Tensor((n, 3), dtype="float32")'
    with pytest.raises(errors.BindError, match="function 'main' has no parameter 'v'"):
        scaled.bind_params({"v": 1.0})


@I.ir_module
class Calls:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = Calls.outer(x)
            z = R.add(y, Calls.inner(y))
            R.output(z)
        return z

    @R.function(private=True)
    def outer(x: R.Tensor(("n",), "float32")):
        y = Calls.inner(x)
        z = R.exp(y)
        return z

    @R.function(private=True)
    def inner(x: R.Tensor(("n",), "float32")):
        y = R.negative(x)
        return y


def test_inline_functions() -> None:
    names = {var.name: func for var, func in Calls.items()}
    main = Calls["main"].inline_functions(names)
    module = ir.IRModule({"main": main})
    relaxvm.analysis.check_well_formed(module)
    assert not relaxvm.analysis.called_global_vars(main)
    x = np.arange(4, dtype=np.float32)
    results = [relaxvm.VirtualMachine(relaxvm.build(m))["main"](x) for m in (Calls, module)]
    np.testing.assert_array_equal(*results)


def test_only_named_functions_are_inlined() -> None:
    key = Calls.get_global_var("outer")
    main = Calls["main"].inline_functions({key: Calls["outer"]})
    assert [var.name for var in relaxvm.analysis.called_global_vars(main)] == ["inner"]


def test_functions_that_cannot_be_inlined() -> None:
    outer = Calls["outer"]
    with pytest.raises(ValueError, match="function 'outer' is given twice"):
        Calls["main"].inline_functions({"outer": outer, Calls.get_global_var("outer"): outer})

    @I.ir_module
    class Recursive:
        @R.function
        def main(x: R.Tensor((), "bool")) -> R.Tensor((), "bool"):
            if x:
                y = Recursive.main(x)
            else:
                y = x
            return y

    with pytest.raises(ValueError, match="function 'main' calls itself"):
        Recursive["main"].inline_functions({"main": Recursive["main"]})


def test_copies_have_variables_of_their_own() -> None:
    for func in (scaled, Calls["outer"], Calls["main"]):
        copy = ir.copy_with_new_vars(func)
        ir.assert_structural_equal(copy, func)
        mine, theirs = (set(relaxvm.analysis.all_vars(f)) for f in (func, copy))
        assert mine
        assert mine.isdisjoint(theirs)
