"""Kinds of parameters: the annotations of a kernel define its signature and its checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest

from relaxvm.kernels import PREFIX, kernel, kinds
from relaxvm.kernels.checks import WrongType, WrongValue, check_out
from relaxvm.kernels.kinds import (
    Axes,
    Axis,
    Bools,
    Flag,
    Float,
    Floats,
    Int,
    Integers,
    Ints,
    Number,
    Numbers,
    Operand,
    Out,
    OutAny,
    OutLike,
    SameType,
    Tensor,
    Text,
    a_choice,
    an_axis,
    an_int,
    axes_or_all,
    checked,
    floats_over,
    int_or_ints,
    ints,
    operand_like,
    parameters_of,
    passed,
    signature_of,
    taken_by,
)
from relaxvm.registry import GLOBAL, Signature
from relaxvm.values import Shape

X = np.ones((2, 3), np.float32)
OBJECTS = np.array([object()])


def kernel_with(*annotations: Any, variadic: int | None = None) -> Any:
    """A checked kernel ``k(a, b, ...)`` that records the arguments of its body."""
    names = "abcdefgh"[: len(annotations)]
    written = [f"*{name}" if i == variadic else name for i, name in enumerate(names)]
    scope: dict[str, Any] = {"got": []}
    exec(f"def k({', '.join(written)}): got[:] = [{', '.join(names)}]", scope)
    body = scope["k"]
    body.__annotations__ = dict(zip(names, annotations, strict=True))
    run = checked("k", body, parameters_of(body))

    def call(*args: Any) -> list[Any]:
        run(*args)
        return list(scope["got"])

    return call


def least(number: int) -> Any:
    return Annotated[int, an_int(least=number)]


REFUSALS: list[tuple[list[Any], list[Any], type[Exception], str]] = [
    ([Tensor], [1], TypeError, "k: a: expected a tensor, got int 1"),
    ([Tensor], [None], TypeError, "k: a: expected a tensor, got None"),
    ([Out], ["x"], TypeError, "k: a: expected a tensor, got str 'x'"),
    ([Tensor | None], [1], TypeError, "k: a: expected a tensor, got int 1"),
    ([Floats], [X.astype(int)], TypeError, r"k: expected floats, got a int64\[2, 3\]; "
     r"relaxvm\.kernel\.cast converts"),
    ([Floats, Floats], [X, X.astype("f8")], TypeError, r"k: expected floats of one data type, got "
     r"a float32\[2, 3\], b float64\[2, 3\]"),
    ([Floats, Floats | None], [X, X.astype("f8")], TypeError, "k: expected floats of one data typ"),
    ([SameType, SameType], [X, X.astype(int)], ValueError, r"k: expected tensors of one data type, "
     r"got float32\[2, 3\] and int64\[2, 3\]; relaxvm\.kernel\.cast converts"),
    ([Integers], [X], ValueError, r"k: a: expected a tensor of integers, got float32\[2, 3\]"),
    ([Bools], [X], ValueError, r"k: a: expected a bool tensor, got float32\[2, 3\]"),
    ([Numbers], [X > 0], TypeError, r"k: a: expected a tensor of numbers, got bool\[2, 3\]"),
    ([Annotated[Any, taken_by(np.less)]], [OBJECTS], TypeError, "k: expected equal data types that "
     r"numpy\.less takes without conversion, got a object\[1\], other object\[1\]"),
    ([Int], [1.0], TypeError, r"k: a: expected an int, got float 1\.0"),
    ([Int], [True], TypeError, "k: a: expected an int, got bool True"),
    ([Int], [None], TypeError, "k: a: expected an int, got None"),
    ([least(2)], [1], ValueError, "k: a: expected at least 2, got 1"),
    ([Ints], [3], TypeError, "k: a: expected a shape of ints, got int 3"),
    ([Ints], [(1, "x")], TypeError, "k: a: expected a shape of ints, got tuple of 2"),
    ([Annotated[Any, ints(count=2)]], [Shape([1])], ValueError, r"k: a: expected 2 ints, got"),
    ([Annotated[Any, ints(count=1)]], [[1, 2]], ValueError, r"k: a: expected 1 int, got \[1, 2\]"),
    ([Annotated[Any, ints(least=1)]], [[0]], ValueError, r"k: a: expected ints of at least 1, got"),
    ([Ints, Annotated[Any, ints(like="a")]], [[1, 2], [3]], ValueError, r"k: b: expected 2 ints, "
     r"got \[3\]"),
    ([Annotated[Any, int_or_ints(least=0)]], [-1], ValueError, "k: a: expected at least 0, got -1"),
    ([Annotated[Any, int_or_ints(least=0)]], [[1, -1]], ValueError, "k: a: expected ints of at le"),
    ([Annotated[Any, int_or_ints(least=0)]], ["x"], TypeError, "k: a: expected a shape of ints"),
    ([Number], ["1"], TypeError, "k: a: expected a number, got str '1'"),
    ([Number], [True], TypeError, "k: a: expected a number, got bool True"),
    ([Float], [float("nan")], ValueError, "k: a: expected a finite number, got float nan"),
    ([Float], [10**400], ValueError, "k: a: expected a finite number, got int of 1329 bits"),
    ([Flag], [2], ValueError, "k: a: expected a bool, got int 2"),
    ([Flag], [None], TypeError, "k: a: expected a bool, got None"),
    ([Text], [1], TypeError, "k: a: expected a string, got int 1"),
    ([Annotated[str, a_choice("p", "q")]], ["r"], ValueError, "k: a: expected 'p' or 'q', got 'r'"),
    ([Annotated[str, a_choice("p", "q")]], [1], TypeError, "k: a: expected a string, got int 1"),
    ([Tensor, Axis], [X, 2], ValueError, r"k: b: expected an axis of float32\[2, 3\], got 2"),
    ([Tensor, Axis], [X, -3], ValueError, r"k: b: expected an axis of float32\[2, 3\], got -3"),
    ([Tensor, Axis], [X, None], TypeError, "k: b: expected an int, got None"),
    ([Tensor, Axis | None], [X, True], TypeError, "k: b: expected an int, got bool True"),
    ([Tensor, Annotated[int, an_axis(is_new=True)]], [X, 3], ValueError, "k: b: expected an axis"),
    ([Tensor, Axes], [X, Shape([0, -2])], ValueError, r"k: b: expected each axis once, got \[0, -"),
    ([Tensor, Axes], [X, Shape([2])], ValueError, "k: axis: expected an axis of float32"),
    ([Tensor, Axes], [X, 0], TypeError, "k: b: expected a shape of ints, got int 0"),
    ([Floats, Annotated[Any, floats_over("c")], Axes], [X, X, Shape([1])], ValueError,
     r"k: b: expected shape \[3\], got float32\[2, 3\]"),
    ([Floats, Annotated[Any, floats_over("c")], Axis], [X, X[0], 0], ValueError,
     r"k: b: expected shape \[2\], got float32\[3\]"),
    ([Floats, Annotated[Any, floats_over("c")], Axis], [X, X[0].astype(int), 1], TypeError,
     r"k: expected floats of one data type, got a float32\[2, 3\], b int64\[3\]"),
    ([Operand, Operand], [1, 2], TypeError, "k: expected at least one tensor, got a int"),
    ([Operand, Operand], [X, "2"], TypeError, "k: b: expected a tensor or a number that goes with"),
    ([Operand, Operand], [300, X.astype("i1")], ValueError, "k: a: expected a number within int8"),
    ([Tensor, Annotated[Any, operand_like("a")]], [X, 10**400], ValueError, "k: b: expected a num"),
    ([Tensor, OutLike], [X, X[0]], ValueError, r"k: b: expected float32\[2, 3\], got fl"),
    ([Tensor, OutLike], [X, X.astype(int)], ValueError, r"k: b: expected float32\[2, 3\], got int"),
    ([OutAny], [np.broadcast_to(X, X.shape)], ValueError, "k: a: expected a tensor that can be"),
    ([Tensor, Int], [X], TypeError, "k: expected a and b, got 1 arguments"),
    ([Tensor, Int, Out], [X, 1], TypeError, "k: expected a, b and c, got 2 arguments"),
    ([Out], [], TypeError, "k: expected a, got 0 arguments"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("annotations", "args", "error", "message"), REFUSALS, ids=[case[3] for case in REFUSALS]
)
def test_refusals(
    annotations: list[Any], args: list[Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{message}") as info:
        kernel_with(*annotations)(*args)
    assert type(info.value) is error


def test_variadic_refusals() -> None:
    concat = kernel_with(SameType, Axis, Out, variadic=0)
    with pytest.raises(TypeError, match=r"^k: a\[1\]: expected a tensor, got int 5"):
        concat(X, 5, 0, X)
    with pytest.raises(ValueError, match=r"^k: expected tensors of one data type"):
        concat(X, X.astype(int), 0, X)
    with pytest.raises(TypeError, match=r"^k: expected a, b and c, got 2 arguments"):
        concat(0, X)
    with pytest.raises(ValueError, match=r"^k: b: expected an axis of float32\[2, 3\], got 9"):
        concat(X, X, 9, X)
    reduce = kernel_with(Tensor, Annotated[int, axes_or_all()], Out, variadic=1)
    with pytest.raises(ValueError, match=r"^k: b: expected each axis once, got \[0, -2\]"):
        reduce(X, 0, -2, X)
    with pytest.raises(TypeError, match=r"^k: axis: expected an int, got float32\[2, 3\]"):
        reduce(X, X, X)


CONVERSIONS: list[tuple[list[Any], list[Any], list[Any]]] = [
    ([Tensor, Axis, Axes], [X, -1, Shape([-1, 0])], [X, 1, (1, 0)]),
    ([Tensor, Axis | None], [X, None], [X, None]),
    ([Tensor, Annotated[int, an_axis(is_new=True)]], [X, -1], [X, 2]),
    ([Flag, Flag, Flag], [0, 1, True], [False, True, True]),
    ([Float, Number, Float | None], [1, 1, None], [1.0, 1, None]),
    ([Ints, Ints], [Shape([1, 2]), [3]], [(1, 2), (3,)]),
    ([Annotated[Any, int_or_ints(least=0)]] * 2, [2, Shape([3, 4])], [(2,), (3, 4)]),
    ([Annotated[str, a_choice("p", "q")] | None, Text], [None, "t"], [None, "t"]),
    ([Annotated[Any, passed("int|shape")], Operand], ["anything", X], ["anything", X]),
    ([Operand, Operand], [2, X], [np.float32(2), X]),
    ([Tensor, Annotated[Any, operand_like("a")]], [X, True], [X, np.float32(1)]),
    ([Numbers, Annotated[Any, taken_by(np.less)]], [X, X], [X, X]),
]


@pytest.mark.parametrize(("annotations", "args", "want"), CONVERSIONS)
def test_the_body_gets_converted_arguments(
    annotations: list[Any], args: list[Any], want: list[Any]
) -> None:
    got = kernel_with(*annotations)(*args)
    assert [type(value) for value in got] == [type(value) for value in want]
    for g, w in zip(got, want, strict=True):
        if isinstance(w, np.ndarray):
            assert is_own_view(g, w)
        else:
            assert g == w


def is_own_view(view: Any, x: np.ndarray) -> bool:
    """Whether `view` is the elements of `x` in an array of its own: numpy reads shape and data type
    without Python's lock."""
    places = [each.__array_interface__ for each in (view, x)]
    return view is not x and places[0] == places[1]


@pytest.mark.parametrize("kind", [Tensor, Floats, SameType, Numbers, Operand, Out, OutAny, OutLike])
def test_the_body_gets_views_of_its_own(kind: Any) -> None:
    view, other = kernel_with(kind, Tensor)(X, X)
    assert is_own_view(view, X)
    assert is_own_view(other, X)


def test_the_body_gets_views_of_any_number_of_tensors() -> None:
    views, view = kernel_with(Tensor, Tensor, variadic=0)(X, X, X)
    assert [is_own_view(each, X) for each in (*views, view)] == [True] * 3
    none, view = kernel_with(Tensor | None, Tensor)(None, X)
    assert none is None
    assert is_own_view(view, X)


@pytest.mark.parametrize(
    ("given", "want"), [((), (0, 1)), ((None,), (0, 1)), ((Shape([-1]),), (1,)), ((1, 0), (1, 0))]
)
def test_axes_or_all(given: tuple[Any, ...], want: tuple[int, ...]) -> None:
    reduce = kernel_with(Tensor, Annotated[int, axes_or_all()], Out, variadic=1)
    assert reduce(X, *given, X)[1] == want
    permute = kernel_with(Tensor, Annotated[int, axes_or_all(is_reversed=True)], Out, variadic=1)
    assert permute(X, *given, X)[1] == ((1, 0) if given in ((), (None,)) else want)


def test_narrow_and_swapped_floats_are_floats() -> None:
    run = kernel_with(Floats, Floats, OutLike)
    run(X.astype("f2"), X.astype(">f2"), X.astype("f2"))
    with pytest.raises(TypeError, match=r"^k: expected floats of one data type"):
        run(X.astype("g"), X.astype("g"), X.astype("g"))


def test_order_of_checks() -> None:
    """Tensors first, then data types, values, shapes of weights, and the output."""
    run = kernel_with(Floats, Annotated[Any, floats_over("c")], Axis, Flag, OutLike)
    args: list[Any] = [X.astype(int), X[0, :1], 7, 2, None]
    fixes: list[tuple[int, Any, str]] = [
        (4, X[0], "k: e: expected a tensor"),
        (0, X, "k: expected floats of one data type"),
        (2, 1, "k: c: expected an axis"),
        (3, 1, "k: d: expected a bool"),
        (1, X[0], r"k: b: expected shape \[3\]"),
        (4, np.empty_like(X), r"k: e: expected float32\[2, 3\]"),
    ]
    for position, right, message in fixes:
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            run(*args)
        args[position] = right
    run(*args)


def test_signatures() -> None:
    def everything(
        x: Tensor,
        bias: Floats | None,
        axis: Axis | None,
        axes: Axes,
        flag: Flag,
        epsilon: Float,
        mode: Text | None,
        *outs: Out,
        value: Operand,
        out: OutLike,
    ) -> None:
        pass

    assert signature_of(parameters_of(everything)) == Signature.parse(
        "x: tensor, bias: tensor|none, axis: int|none, axes: shape, flag: bool|int, "
        "epsilon: float|int, mode: str|none, *outs: tensor, value: tensor|int|float, out: tensor",
        result="none",
    )


def test_every_kind_by_name_has_a_refusal() -> None:
    named = {name for name in kinds.__all__ if hasattr(getattr(kinds, name), "__metadata__")}
    tried = {id(kind) for case in REFUSALS for each in case[0] for kind in metadata(each)}
    missing = {name for name in named if id(getattr(kinds, name).__metadata__[0]) not in tried}
    assert missing == set()


def metadata(annotation: Any) -> tuple[Any, ...]:
    options = (annotation, *getattr(annotation, "__args__", ()))
    return tuple(kind for each in options for kind in getattr(each, "__metadata__", ()))


# Registration


@pytest.fixture
def scratch() -> Iterator[list[str]]:
    """Names of kernels to take out of the registry after the test."""
    names: list[str] = []
    yield names
    for name in names:
        GLOBAL.remove(PREFIX + name)


def test_a_kernel_of_another_package(scratch: list[str]) -> None:
    @kernel("test.scale", "test.scaled")
    def scale(x: Floats, factor: Float, out: OutLike) -> None:
        """out = x * factor."""
        np.multiply(x, factor, out=out)

    scratch += ["test.scale", "test.scaled"]
    record = GLOBAL.lookup(PREFIX + "test.scaled")
    assert record is not None
    assert str(record.signature) == "(x: tensor, factor: float|int, out: tensor) -> none"
    assert record.doc == "out = x * factor."
    out = np.empty_like(X)
    record.func(X, 2, out)
    assert (out == 2).all()
    record.func(X, out=out, factor=3)
    assert (out == 3).all()
    with pytest.raises(TypeError, match=r"^test\.scale: factor: expected a number, got None"):
        record.func(X, None, out)
    with pytest.raises(TypeError, match=r"^test\.scale\(\) got an unexpected keyword .*'by'"):
        record.func(X, by=3)
    with pytest.raises(TypeError, match=r"^test\.scale: expected x, factor and out, got 2"):
        record.func(X, out=out)


def test_a_kernel_that_checks_its_arguments_itself(scratch: list[str]) -> None:
    @kernel("test.raw", signature="x: any, *rest: int, out: tensor")
    def raw(*args: Any) -> None:
        """A kernel that gets unchecked arguments."""
        assert args == ("anything", 1)

    scratch.append("test.raw")
    record = GLOBAL.lookup(PREFIX + "test.raw")
    assert record is not None
    assert record.func is raw
    assert str(record.signature) == "(x: any, *rest: int, out: tensor) -> none"
    record.func("anything", 1)


def test_what_the_body_raises_begins_with_the_name(scratch: list[str]) -> None:
    @kernel("test.picky")
    def picky(x: Tensor, out: Out) -> None:
        """Refuses everything."""
        if x.ndim:
            raise WrongValue("x: expected no axes")
        check_out(out, np.dtype(np.int8), (1,))
        raise WrongType("expected something else")

    scratch.append("test.picky")
    run = GLOBAL.get(PREFIX + "test.picky")
    with pytest.raises(ValueError, match=r"^test\.picky: x: expected no axes$") as value:
        run(X, X)
    assert type(value.value) is ValueError
    with pytest.raises(ValueError, match=r"^test\.picky: out: expected int8\[1\], got float"):
        run(X[0, 0, ...], X[0])
    with pytest.raises(TypeError, match=r"^test\.picky: expected something else$"):
        run(X[0, 0, ...], np.zeros(1, np.int8))


def test_annotations_are_kinds() -> None:
    def none(x: Tensor, y) -> None:  # type: ignore[no-untyped-def]
        pass

    def other(x: np.ndarray) -> None:
        pass

    def several(x: Annotated[int, an_int()] | Annotated[str, a_choice("a")]) -> None:
        pass

    for body, name in ((none, "y"), (other, "x"), (several, "x")):
        with pytest.raises(TypeError, match=f"{body.__name__}: {name}: expected a kind of para"):
            parameters_of(body)


def test_the_numbers_of_one_hot_fit_its_result() -> None:
    one_hot, out = GLOBAL.get(f"{PREFIX}one_hot"), np.zeros((1, 3), np.int64)
    with pytest.raises(ValueError, match=r"^one_hot: expected numbers within int64"):
        one_hot(np.array([1]), 10**30, 0, 3, 1, out)
