"""R.macro: statements that are parsed where they are used."""

from __future__ import annotations

from typing import Any

import pytest

from relaxvm.errors import DiagnosticError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import ir as I
from relaxvm.script import relax as R

SCALE: Any = 3.0


@R.macro
def affine(x: Any, factor: float = 2.0, *, shift: float) -> Any:
    y = R.multiply(x, R.const(factor))
    with R.dataflow():
        z = R.add(y, R.const(shift))
        R.output(z)
    return R.multiply(z, R.const(SCALE))


def test_statements_of_a_macro_are_those_of_the_function() -> None:
    @R.function(private=True)
    def used(a: R.Tensor((2,), "float32")):  # type: ignore
        b = affine(a, shift=1.0)
        return b

    @R.function(private=True)
    def written(a: R.Tensor((2,), "float32")):  # type: ignore
        y = R.multiply(a, R.const(2.0))
        with R.dataflow():
            z = R.add(y, R.const(1.0))
            R.output(z)
        b = R.multiply(z, R.const(3.0))
        return b

    assert_structural_equal(used, written)
    assert repr(affine).startswith("<macro affine(x:")


def test_names_of_a_hygienic_macro_are_those_of_its_definition() -> None:
    offset = 1.0

    @R.macro(hygienic=True)
    def at_definition(x: Any) -> Any:
        return R.add(x, R.const(offset))

    @R.macro(hygienic=False)
    def at_use(x: Any) -> Any:
        return R.add(x, R.const(offset))

    offset = 5.0

    @I.ir_module
    class Module:
        @R.function
        def first(a: R.Tensor((2,), "float32")):  # type: ignore
            return at_definition(a)

        @R.function
        def second(a: R.Tensor((2,), "float32")):  # type: ignore
            return at_use(a)

    assert "R.const(1.0" in str(Module["first"])  # type: ignore[index]
    assert "R.const(5.0" in str(Module["second"])  # type: ignore[index]


def test_macros_use_macros_and_need_not_return() -> None:
    @R.macro
    def checked(x: Any) -> None:
        R.assert_op(R.const(True), x, format="not {}")

    @R.macro
    def both(x: Any) -> Any:
        checked(x)
        return affine(x, shift=0.0)

    @R.function(pure=False)
    def func(a: R.Tensor((), "float32")):  # type: ignore
        return both(a)

    text = str(func)
    assert text.index("R.assert_op") < text.index("R.multiply")


def test_variables_of_a_macro_are_not_visible_outside() -> None:
    for hygienic in (True, False):

        @R.macro(hygienic=hygienic)
        def inner(value: Any) -> Any:
            hidden = R.exp(value)
            return R.exp(hidden)

        with pytest.raises(DiagnosticError, match="undefined variable 'hidden'"):

            @R.function
            def func(a: R.Tensor((2,), "float32")):  # type: ignore
                _ = inner(a)
                return hidden  # type: ignore[name-defined]  # noqa: F821


def test_mistakes_in_macros_point_to_both_places() -> None:
    @R.macro
    def wrong(x: Any) -> Any:
        return R.reshape(x, (3,))

    with pytest.raises(DiagnosticError, match=r"return R\.reshape") as caught:

        @R.function
        def func(a: R.Tensor((2,), "float32")):  # type: ignore
            return wrong(a)

    (note,) = caught.value.__notes__
    assert note.startswith("in macro 'wrong', used at ")
    with pytest.raises(DiagnosticError, match="missing a required argument: 'x'"):

        @R.function
        def other(a: R.Tensor((2,), "float32")):  # type: ignore
            return wrong()  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="macro 'wrong': expected to be called in a Relax function"):
        wrong(1)
    with pytest.raises(TypeError, match=r"R\.macro: expected a function, got int"):
        R.macro(1)


def test_a_macro_that_uses_itself_is_refused() -> None:
    @R.macro(hygienic=False)
    def again(x: Any) -> Any:
        return again(x)

    with pytest.raises(DiagnosticError, match="macro 'again' uses itself"):

        @R.function
        def func(a: R.Tensor((2,), "float32")):  # type: ignore
            return again(a)
