"""Native code of calls in the last place, and of data types: as in bytecode, in constant space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import relaxvm
from relaxvm import Limits, VirtualMachine
from relaxvm.adt import data_types
from relaxvm.errors import LimitError
from relaxvm.script import from_source

HEADER = "from relaxvm.script import ir as I, relax as R, tir as T\n"

CALLS = """
@I.ir_module(s_tir=True)
class Module:
    @R.function
    def even(n: R.Prim("int64"), a: R.Prim("int64")) -> R.Prim("int64"):
        if n == 0:
            r: R.Prim("int64") = a
        else:
            r: R.Prim("int64") = Module.odd(a + n, 2, n - 1)
        return r

    @R.function
    def odd(a: R.Prim("int64"), k: R.Prim("int64"), n: R.Prim("int64")) -> R.Prim("int64"):
        if n == 0:
            r: R.Prim("int64") = 0 - a
        else:
            r: R.Prim("int64") = Module.even(n - 1, a * k - a)
        return r

    @R.function
    def sum_of(n: R.Prim("int64")) -> R.Prim("int64"):
        a: R.Prim("int64") = Module.even(n, 1)
        b: R.Prim("int64") = Module.even(n + 1, 1)
        return a + b

    @R.function
    def as_value(n: R.Prim("int64"), x: R.Any) -> R.Any:
        if n > 5:
            r: R.Any = x
        else:
            r: R.Any = Module.of_number(n)
        return r

    @R.function
    def of_number(n: R.Prim("int64")) -> R.Any:
        s: R.Prim("int64") = Module.even(n, 7)
        return s

    @R.function
    def ping(n: R.Prim("int64"), x: R.Any, y: R.Any) -> R.Any:
        if n == 0:
            r: R.Any = (x, y)
        else:
            r: R.Any = Module.pong(n - 1, (x, y), y)
        return r

    @R.function
    def pong(n: R.Prim("int64"), x: R.Any, y: R.Any) -> R.Any:
        a = x
        b = (y, y, y)
        c = (b, a)
        if n == 0:
            r: R.Any = (c, b, a)
        else:
            r: R.Any = Module.ping(n - 1, b[0], c[0][1])
        return r

    @R.function(pure=False)
    def asks(n: R.Prim("int64"), x: R.Any) -> R.Any:
        if n == 0:
            r: R.Any = R.call_packed("t.last", x, ty_args=R.Any)
        else:
            r: R.Any = Module.asks_back(n - 1, x)
        return r

    @R.function(pure=False)
    def asks_back(n: R.Prim("int64"), x: R.Any) -> R.Any:
        s: R.Any = R.call_packed("t.turn", x, ty_args=R.Any)
        r: R.Any = Module.asks(n, s)
        return r

    @R.function(pure=False)
    def through(n: R.Prim("int64"), f: R.Any, x: R.Any) -> R.Any:
        if n == 0:
            r: R.Any = x
        else:
            r: R.Any = R.invoke_closure(f, (n - 1, f, x), ty_args=R.Any)
        return r

    @R.function(pure=False)
    def start(n: R.Prim("int64"), x: R.Any) -> R.Any:
        k = (x, x)

        @R.function(pure=False)
        def step(i: R.Prim("int64"), f: R.Any, y: R.Any) -> R.Any:
            r: R.Any = Module.through(i, f, k)
            return r

        r: R.Any = Module.through(n, step, x)
        return r
"""


def functions() -> dict[str, Callable[..., Any]]:
    def last(x: Any) -> Any:
        if x == 13:
            raise ValueError("unlucky")
        return x

    return {"t.turn": lambda x: x + 1, "t.last": last}


@pytest.fixture(scope="module")
def executables() -> list[relaxvm.VMExecutable]:
    mod = from_source(HEADER + CALLS)
    return [relaxvm.build(mod, exec_mode=mode) for mode in ("bytecode", "compiled")]


def machines(executables: Any, **options: Any) -> list[VirtualMachine]:
    made = [VirtualMachine(ex, functions=functions(), **options) for ex in executables]
    assert made[1].native_code is not None
    names = set(made[1].native_code.functions)
    assert {"even", "odd", "ping", "pong", "asks", "asks_back", "through"} <= names
    return made


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("even", (0, 3)), ("even", (7, 3)), ("even", (100, 2)), ("odd", (1, 2, 3)),
        ("sum_of", (6,)), ("as_value", (3, "x")), ("as_value", (9, "x")), ("of_number", (4,)),
        ("ping", (0, "x", "y")), ("ping", (1, "x", "y")), ("ping", (10, "x", "y")),
        ("ping", (11, "x", "y")), ("asks", (5, 1)), ("start", (4, "x")), ("start", (0, "x")),
    ],
)  # fmt: skip
def test_results_are_those_of_bytecode(executables: Any, name: str, args: tuple[Any, ...]) -> None:
    one, other = machines(executables)
    for _ in range(3):
        assert other[name](*args) == one[name](*args)


def test_a_million_calls_in_constant_space(executables: Any) -> None:
    _, vm = machines(executables, limits=Limits(call_depth=3))
    assert vm["even"](10**6, 0) == 250000500000
    assert vm["ping"](10**6, "x", "y") is not None
    assert vm["start"](10**6, "x") == ("x", "x")


@pytest.mark.parametrize(
    ("name", "args"), [("even", (5, "a")), ("asks", (6, 7)), ("pong", ("x", 1, 2))]
)
def test_errors_are_those_of_bytecode(executables: Any, name: str, args: tuple[Any, ...]) -> None:
    """With the same function, pc and values in the notes, and the machine goes on."""
    outcomes = []
    for vm in machines(executables):
        with pytest.raises((ValueError, TypeError)) as caught:
            vm[name](*args)
        error = caught.value
        outcomes.append((type(error), str(error), getattr(error, "__notes__", [])))
        assert vm["even"](6, 1) == vm["even"](6, 1)
    assert outcomes[0] == outcomes[1]


def test_an_overflow_goes_on_in_bytecode(executables: Any) -> None:
    """Numbers of more than 64 bits are an error of shape programs, whoever computes them."""
    outcomes = []
    for vm in machines(executables):
        with pytest.raises((ValueError, OverflowError)) as caught:
            vm["even"](10, (1 << 63) - 20)
        error = caught.value
        outcomes.append((type(error), str(error), getattr(error, "__notes__", [])))
    assert outcomes[0] == outcomes[1]


def test_limits_are_those_of_bytecode(executables: Any) -> None:
    counts = []
    for vm in machines(executables, limits=Limits(fuel=5000)):
        with pytest.raises(LimitError) as caught:
            vm["even"](10**6, 0)
        counts.append((str(caught.value), getattr(caught.value, "__notes__", [])))
    assert counts[0] == counts[1]


LISTS = """
@I.ir_module(s_tir=True)
class Module:
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    @R.function
    def upto(n: R.Prim("int64"), xs: List[R.Any]) -> List[R.Any]:
        if n == 0:
            r = xs
        else:
            r = Module.upto(n - 1, Cons(n, xs))
        return r

    @R.function
    def reverse(xs: List[R.Any], to: List[R.Any]) -> List[R.Any]:
        match xs:
            case Nil():
                r = to
            case Cons(x, rest):
                r = Module.reverse(rest, Cons(x, to))
        return r

    @R.function
    def main(n: R.Prim("int64")) -> List[R.Any]:
        return Module.reverse(Module.upto(n, Nil()), Nil())
"""


def test_lists() -> None:
    mod = from_source(HEADER + LISTS)
    one, other = (
        VirtualMachine(relaxvm.build(mod, exec_mode=mode)) for mode in ("bytecode", "compiled")
    )
    assert other.native_code is not None
    assert {"reverse", "upto"} <= set(other.native_code.functions)
    assert other["main"](5) == one["main"](5)
    lists = data_types(mod)["List"]
    assert other["main"](2) == lists.Cons(2, lists.Cons(1, lists.Nil()))
    assert other["main"](100_000) == one["main"](100_000)
    for vm in (one, other):
        with pytest.raises(TypeError, match="match_tag: expected a value of a data type"):
            vm["reverse"]((1, 2), lists.Nil())
