"""Programs with data types, run: lists, trees, options, Peano numbers, closures in data types.

Each program runs with all rewritings of the core, without any, and with each switched off in turn,
and natively.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Adt, Limits, VirtualMachine
from relaxvm.core.operations import REWRITINGS
from relaxvm.errors import LimitError, MatchError
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source

NAMES = frozenset(rewriting.name for rewriting in REWRITINGS)
OPTIONS: dict[str, Any] = {"all": True, "none": False} | {
    f"no {name}": NAMES - {name} for name in sorted(NAMES)
}

TYPES = """
    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    class Option(R.Data["A"]):
        None_ = R.Constructor()
        Some = R.Constructor("A")

    class Nat(R.Data):
        Z = R.Constructor()
        S = R.Constructor("Nat")

    class Tree(R.Data["A"]):
        Rose = R.Constructor("A", "List[Tree[A]]")

    class Box(R.Data):
        Apply = R.Constructor(R.Callable((R.Tensor((), "int32"),), R.Tensor((), "int32")))
        Keep = R.Constructor()
"""

INT = 'R.Tensor((), "int32")'

LISTS = f"""
@I.ir_module
class Module:
{TYPES}
    @R.function
    def map(f: R.Callable(("A",), "B"), xs: List["A"]) -> List["B"]:
        cls = Module
        match xs:
            case Nil():
                r = Nil()
            case Cons(x, rest):
                r = Cons(f(x), cls.map(f, rest))
        return r

    @R.function
    def foldl(f: R.Callable(("B", "A"), "B"), z: "B", xs: List["A"]) -> "B":
        cls = Module
        match xs:
            case Nil():
                r = z
            case Cons(x, rest):
                r = cls.foldl(f, f(z, x), rest)
        return r

    @R.function
    def foldr(f: R.Callable(("A", "B"), "B"), z: "B", xs: List["A"]) -> "B":
        cls = Module
        match xs:
            case Nil():
                r = z
            case Cons(x, rest):
                r = f(x, cls.foldr(f, z, rest))
        return r

    @R.function
    def reverse(xs: List["A"], onto: List["A"]) -> List["A"]:
        cls = Module
        match xs:
            case Nil():
                r = onto
            case Cons(x, rest):
                r = cls.reverse(rest, Cons(x, onto))
        return r

    @R.function
    def zip(xs: List["A"], ys: List["B"]) -> List[R.Tuple("A", "B")]:
        cls = Module
        match (xs, ys):
            case (Cons(x, more), Cons(y, rest)):
                r = Cons((x, y), cls.zip(more, rest))
            case _:
                r = Nil()
        return r

    @R.function
    def filter(keep: R.Callable(("A",), R.Tensor((), "bool")), xs: List["A"]) -> List["A"]:
        cls = Module
        match xs:
            case Cons(x, rest) if keep(x):
                r = Cons(x, cls.filter(keep, rest))
            case Cons(_, rest):
                r = cls.filter(keep, rest)
            case Nil():
                r = Nil()
        return r

    @R.function
    def append(xs: List["A"], ys: List["A"]) -> List["A"]:
        cls = Module
        r = cls.foldr(Cons, ys, xs)
        return r

    @R.function
    def flatten(xs: List[List["A"]]) -> List["A"]:
        cls = Module
        match xs:
            case Nil():
                r = Nil()
            case Cons(x, rest):
                r = cls.append(x, cls.flatten(rest))
        return r

    @R.function
    def head(xs: List["A"]) -> Option["A"]:
        match xs:
            case Cons(x, _):
                r = Option.Some(x)
            case _:
                r = Option.None_()
        return r

    @R.function
    def double(x: {INT}) -> {INT}:
        return R.add(x, x)

    @R.function
    def add(x: {INT}, y: {INT}) -> {INT}:
        return R.add(x, y)

    @R.function
    def is_even(x: {INT}) -> R.Tensor((), "bool"):
        return R.equal(R.mod(x, R.const(2, "int32")), R.const(0, "int32"))

    @R.function
    def doubled(xs: List[{INT}]) -> List[{INT}]:
        cls = Module
        r = cls.map(cls.double, xs)
        return r

    @R.function
    def total(xs: List[{INT}]) -> {INT}:
        cls = Module
        r = cls.foldl(cls.add, R.const(0, "int32"), xs)
        return r

    @R.function
    def evens(xs: List[{INT}]) -> List[{INT}]:
        cls = Module
        r = cls.filter(cls.is_even, xs)
        return r

    @R.function
    def sum_of_head(xs: List[{INT}], y: {INT}) -> {INT}:
        cls = Module
        match cls.head(xs):
            case Some(x):
                r = R.add(x, y)
            case None_():
                r = y
        return r

    @R.function
    def tree_sum(tree: Tree[{INT}]) -> {INT}:
        cls = Module
        match tree:
            case Tree.Rose(x, children):
                r = cls.foldl(cls.add, x, cls.map(cls.tree_sum, children))
        return r

    @R.function
    def plus(a: "Nat", b: "Nat") -> "Nat":
        cls = Module
        match a:
            case Z():
                r = b
            case S(m):
                r = cls.plus(m, Nat.S(b))
        return r

    @R.function
    def even(n: "Nat") -> R.Tensor((), "bool"):
        cls = Module
        match n:
            case Z():
                r = R.const(True, "bool")
            case S(m):
                r = cls.odd(m)
        return r

    @R.function
    def odd(n: "Nat") -> R.Tensor((), "bool"):
        cls = Module
        match n:
            case Z():
                r = R.const(False, "bool")
            case S(m):
                r = cls.even(m)
        return r

    @R.function
    def boxed(y: {INT}) -> "Box":
        @R.function
        def added(x: {INT}) -> {INT}:
            return R.add(x, y)
        return Box.Apply(added)

    @R.function
    def unbox(box: "Box", x: {INT}) -> {INT}:
        match box:
            case Box.Apply(f):
                r = f(x)
            case Box.Keep():
                r = x
        return r

    @R.function
    def third(xs: List["A"]) -> "A":
        match R.incomplete(xs):
            case Cons(_, Cons(_, Cons(x, _))):
                r = x
        return r

    @R.function
    def overlap(a: "Nat", b: "Nat") -> {INT}:
        match (a, b):
            case (Z(), Z()):
                r = R.const(0, "int32")
            case (S(_), Z()):
                r = R.const(1, "int32")
            case (Z(), S(_)):
                r = R.const(2, "int32")
            case (S(S(_)), _):
                r = R.const(3, "int32")
            case (_, S(S(_))):
                r = R.const(4, "int32")
            case _:
                r = R.const(5, "int32")
        return r

    @R.function(pure=False)
    def counted(n: "Nat", cell: R.Ref({INT})) -> {INT}:
        cls = Module
        match n:
            case Z():
                r = R.ref_read(cell)
            case S(m):
                R.ref_write(cell, R.add(R.ref_read(cell), R.const(1, "int32")))
                r = cls.counted(m, cell)
        return r

    @R.function(pure=False)
    def count(n: "Nat") -> {INT}:
        cls = Module
        cell = R.ref(R.const(0, "int32"))
        r = cls.counted(n, cell)
        return r
"""


@pytest.fixture(scope="module")
def executable() -> Any:
    return relaxvm.build(from_source(LISTS))


def test_data_types_from_python(executable: Any) -> None:
    types = relaxvm.adt.data_types(from_source(LISTS))
    lists = types["List"]
    numbers = [i32(1), i32(2), i32(3)]
    value = lists.from_list(numbers)
    assert value == ints(1, 2, 3)
    got = VirtualMachine(executable)["reverse"](value, lists.Nil())
    assert [int(x) for x in lists.to_list(got)] == [3, 2, 1]
    assert lists.Cons(i32(0), value) == ints(0, 1, 2, 3)
    assert lists.Cons.matches(value)
    assert repr(lists) == "<DataType List: Nil, Cons>"
    with pytest.raises(TypeError, match=r"List.Cons: expected 2 fields, got 1"):
        lists.Cons(1)
    with pytest.raises(TypeError, match="Tree is no list"):
        types["Tree"].from_list([])
    with pytest.raises(TypeError, match=r"List: expected List.Nil or List.Cons, got tuple of 0"):
        lists.to_list(lists.Cons(1, ()))
    with pytest.raises(AttributeError, match="no constructor 'Con'; did you mean 'Cons'"):
        lists.Con  # noqa: B018


def test_the_optimizing_pipeline(executable: Any) -> None:
    mod = relaxvm.get_pipeline("zero")(from_source(LISTS))
    vm = VirtualMachine(relaxvm.build(mod))
    assert vm["doubled"](ints(1, 2, 3)) == ints(2, 4, 6)
    assert vm["tree_sum"](rose(1, rose(2), rose(3, rose(4)))) == 10


@pytest.fixture(params=[*OPTIONS, "compiled"], scope="module")
def vm(request: pytest.FixtureRequest, executable: Any) -> VirtualMachine:
    if request.param == "compiled":
        return VirtualMachine(executable.with_section("exec_mode", "compiled"))
    return VirtualMachine(executable, optimize=OPTIONS[request.param])


def to_list(items: Iterable[Any]) -> Adt:
    value = Adt("List.Nil", 0)
    for item in reversed(list(items)):
        value = Adt("List.Cons", 1, (item, value))
    return value


def ints(*numbers: int) -> Adt:
    return to_list(np.array(number, "int32") for number in numbers)


def items(value: Adt) -> Iterator[Any]:
    while value.tag:
        head, value = value.fields
        yield head


def nat(number: int) -> Adt:
    value = Adt("Nat.Z", 0)
    for _ in range(number):
        value = Adt("Nat.S", 1, (value,))
    return value


def i32(number: int) -> Any:
    return np.array(number, "int32")


def rose(number: int, *children: Adt) -> Adt:
    return Adt("Tree.Rose", 0, (i32(number), to_list(children)))


def test_lists(vm: VirtualMachine) -> None:
    assert vm["doubled"](ints(1, 2, 3)) == ints(2, 4, 6)
    assert vm["total"](ints(*range(100))) == 4950
    assert vm["evens"](ints(1, 2, 3, 4)) == ints(2, 4)
    assert vm["reverse"](ints(1, 2, 3), ints()) == ints(3, 2, 1)
    assert vm["append"](ints(1), ints(2, 3)) == ints(1, 2, 3)
    assert vm["flatten"](to_list([ints(1), ints(), ints(2, 3)])) == ints(1, 2, 3)
    zipped = vm["zip"](ints(1, 2, 3), ints(4, 5))
    assert [tuple(map(int, pair)) for pair in items(zipped)] == [(1, 4), (2, 5)]


def test_options_trees_and_numbers(vm: VirtualMachine) -> None:
    assert vm["head"](ints()) == Adt("Option.None_", 0)
    assert vm["head"](ints(7)) == Adt("Option.Some", 1, (i32(7),))
    assert vm["sum_of_head"](ints(3, 9), i32(4)) == 7
    assert vm["sum_of_head"](ints(), i32(4)) == 4
    assert vm["tree_sum"](rose(1, rose(2), rose(3, rose(4)))) == 10
    assert vm["plus"](nat(3), nat(4)) == nat(7)
    assert vm["even"](nat(10))
    assert vm["odd"](nat(7))
    assert not vm["odd"](nat(8))


def test_closures_in_data_types_and_references(vm: VirtualMachine) -> None:
    assert vm["unbox"](vm["boxed"](i32(3)), i32(4)) == 7
    assert vm["unbox"](Adt("Box.Keep", 1), i32(4)) == 4
    assert vm["count"](nat(20)) == 20


def test_overlapping_patterns(vm: VirtualMachine) -> None:
    def expected(a: int, b: int) -> int:
        if not a or not b:
            return 0 if not a and not b else 1 if a else 2
        return 3 if a > 1 else 4 if b > 1 else 5

    for a in range(4):
        for b in range(4):
            assert vm["overlap"](nat(a), nat(b)) == expected(a, b)


def test_a_value_without_a_clause(vm: VirtualMachine) -> None:
    assert vm["third"](ints(1, 2, 3)) == 3
    with pytest.raises(MatchError) as error:
        vm["third"](ints(1, 2))
    assert "no clause of the match is for List.Cons(int32(1), List.Cons(int32(2), " in str(
        error.value
    )
    assert error.value.missing == (
        "List.Nil(), List.Cons(_, List.Nil()), List.Cons(_, List.Cons(_, List.Nil()))"
    )
    notes = "\n".join(error.value.__notes__)
    assert "in third, pc " in notes
    assert "at <script>:" in notes


def test_a_wrong_value_in_a_list(vm: VirtualMachine) -> None:
    with pytest.raises((TypeError, ValueError), match="expected"):
        vm["total"](to_list([np.zeros(3, "int32")]))
    with pytest.raises(TypeError, match="expected a value of a data type, got tuple of 2"):
        vm["head"]((1, 2))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        ("total", (Adt("List.Cons", 7, (i32(1), Adt("List.Nil", 0))),)),  # no such tag
        ("total", (Adt("List.Cons", 0, (i32(1), Adt("List.Nil", 0))),)),  # that of another one
        ("total", (Adt("List.Nil", 1, (i32(1), Adt("List.Nil", 0))),)),
        ("total", (Adt("List.Cons", 1, (i32(1),)),)),
        ("total", (Adt("List.Cons", 1, (i32(1), Adt("List.Nil", 0), 3)),)),
        ("total", (Adt("Tree.Cons", 1, (i32(1), Adt("List.Nil", 0))),)),  # of another type
        ("total", (Adt("List.Cons", 1, (i32(1), Adt("Nat.Z", 0))),)),
        ("flatten", (to_list([ints(1), Adt("Nat.Z", 0)]),)),
        ("head", (Adt("Option.Some", 1, (i32(1),)),)),
        ("tree_sum", (Adt("Nat.S", 0, (i32(1), ints())),)),  # the type has one constructor
        ("even", (Adt("Nat.S", 1, (Adt("Option.None_", 0),)),)),
        ("count", (Adt("Box.Keep", 1),)),
    ],
)
def test_forged_values(vm: VirtualMachine, function: str, args: tuple[Any, ...]) -> None:
    """Values that no program makes are refused where a match looks at them."""
    with pytest.raises(TypeError, match=r"match: expected a value of \w+\.\w+ with tag 0 and"):
        vm[function](*args)


def test_forged_fields(vm: VirtualMachine) -> None:
    """Fields that are of another type than the constructor has."""
    with pytest.raises(TypeError, match="expected a value of a data type, got int 3"):
        vm["total"](Adt("List.Cons", 1, (i32(1), 3)))
    with pytest.raises(ValueError, match="expected a tensor of dtype int32, got dtype float32"):
        vm["total"](Adt("List.Cons", 1, (np.zeros((), "float32"), ints())))
    with pytest.raises(TypeError, match="expected"):
        vm["unbox"](Adt("Box.Apply", 0, (3,)), i32(1))
    with pytest.raises(TypeError, match="expected a reference, got int 3"):
        vm["counted"](nat(0), 3)


def test_tail_calls_of_other_functions_take_no_frames(executable: Any) -> None:
    number = nat(100_001)
    for limits in (Limits(), Limits(fuel=10**7), Limits(live_bytes=1 << 26)):
        assert VirtualMachine(executable, limits=limits)["odd"](number)
    keeping = VirtualMachine(executable, optimize=NAMES - {"tail_calls"})
    with pytest.raises(LimitError, match="calls are nested deeper than 10000 frames"):
        keeping["odd"](number)


def test_long_lists(executable: Any) -> None:
    vm = VirtualMachine(executable, limits=Limits(call_depth=10**6))
    numbers = ints(*range(100_000))
    assert int(vm["total"](numbers)) == 704982704
    assert sum(1 for _ in items(vm["doubled"](numbers))) == 100_000


def test_limits_hold(executable: Any) -> None:
    numbers = ints(*range(10_000))
    with pytest.raises(LimitError, match="live_bytes"):
        VirtualMachine(executable, limits=Limits(live_bytes=1 << 19))["reverse"](
            to_list([1] * 200_000), ints()
        )
    with pytest.raises(LimitError, match="fuel"):
        VirtualMachine(executable, limits=Limits(fuel=1000))["total"](numbers)


def test_tags_are_read_once_on_each_path(executable: Any) -> None:
    """Of the matched values and of their fields, as often as the decision needs."""
    vm = VirtualMachine(executable)
    for name in ("map", "foldl", "even", "head"):
        rows = [row for row in vm[name].translated if not row.is_fallback]
        assert [row.operation.name for row in rows].count("match_tag") == 1


# Results of clauses that stand at many leaves

CODES = """
@I.ir_module
class Module:
    class T(R.Data):
        A = R.Constructor()
        B = R.Constructor()
        C = R.Constructor(R.Tensor((), "int32"))

    @R.function
    def main(a: "T", b: "T", c: "T", x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        match (a, b, c):
            case (A(), B(), C(v)) if R.less(v, x):
                y = R.add(x, v)
                {long}
                r = y
            case (_, A(), C(w)):
                y = R.add(x, R.const(2, "int32"))
                {long}
                r = R.add(y, w)
            case (C(u), _, A()):
                y = R.add(x, u)
                {long}
                r = y
            case (A(), _, _):
                y = R.add(x, R.const(4, "int32"))
                {long}
                r = y
            case (_, p, q):
                y = R.add(x, R.const(5, "int32"))
                {long}
                r = y
        return r
"""


def codes(additions: int) -> Any:
    lines = "; ".join(["y = R.add(y, y)"] * additions) or "z = y"
    return from_source(CODES.format(long=lines))


def test_long_results_of_overlapping_patterns_stand_once() -> None:
    sizes = []
    values = [Adt("T.A", 0), Adt("T.B", 1), *(Adt("T.C", 2, (i32(n),)) for n in (3, 30))]
    for additions in (0, 10, 20, 21):
        executable = relaxvm.build(codes(additions))
        sizes.append(len(executable.instr_offset))
        vm = VirtualMachine(executable)
        for a, b, c in itertools.product(values, repeat=3):
            x, times = 7, 2**additions
            if (a.tag, b.tag, c.tag) == (0, 1, 2) and c.fields[0] < x:
                expected = (x + c.fields[0]) * times
            elif (b.tag, c.tag) == (0, 2):
                expected = (x + 2) * times + c.fields[0]
            elif (a.tag, c.tag) == (2, 0):
                expected = (x + a.fields[0]) * times
            else:
                expected = (x + (5 if a.tag else 4)) * times
            assert vm["main"](a, b, c, i32(x)) == expected
    assert sizes[3] - sizes[2] <= 5 * 2  # once for each clause: an addition and its tensor
    assert sizes[2] < 2 * sizes[0]


def test_a_loop_with_results_that_stand_once() -> None:
    """A clause that calls its function last is a loop there, too."""
    lines = "; ".join(["acc = R.add(acc, R.const(1, 'int32'))"] * 40)
    module = from_source(f"""
@I.ir_module
class Module:
    class Nat(R.Data):
        Z = R.Constructor()
        S = R.Constructor("Nat")

    @R.function
    def main(a: "Nat", b: "Nat", acc: {INT}) -> {INT}:
        cls = Module
        match (a, b):
            case (S(m), S(S(n))):
                r = cls.main(m, Nat.S(n), acc)
            case (S(m), _):
                {lines}
                r = cls.main(m, b, acc)
            case (Z(), _):
                r = acc
        return r
""")
    vm = VirtualMachine(relaxvm.build(module), limits=Limits(call_depth=10))
    assert vm["main"](nat(30_000), nat(10_001), i32(0)) == 40 * 20_000


# Alternatives and values in patterns

CASES = """
@I.ir_module
class Module:
    class Color(R.Data):
        Red = R.Constructor()
        Green = R.Constructor()
        Blue = R.Constructor(R.Tensor((), "int32"))
        Gray = R.Constructor(R.Tensor((), "int32"))

    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    @R.function
    def fib(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        cls = Module
        match n:
            case 0 | 1:
                r = n
            case _:
                a = cls.fib(R.subtract(n, R.const(1, "int32")))
                b = cls.fib(R.subtract(n, R.const(2, "int32")))
                r = R.add(a, b)
        return r

    @R.function
    def code(c: "Color") -> R.Tensor((), "int32"):
        match c:
            case Red() | Green():
                r = R.const(1, "int32")
            case Blue(-7 | 7):
                r = R.const(-1, "int32")
            case Blue(n) | Gray(n):
                r = n
        return r

    @R.function
    def start(
        xs: List[R.Tensor((), "int32")], flag: R.Tensor((), "bool")
    ) -> R.Tensor((), "int32"):
        match (xs, flag):
            case (Cons(1, Cons(2 | 3, _)), True):
                r = R.const(10, "int32")
            case (Cons(x, Nil() | Cons(_, Nil())), _) | (Cons(x, Cons(_, Cons(_, Nil()))), False):
                r = x
            case _:
                r = R.const(-1, "int32")
        return r
"""


@pytest.mark.parametrize("option", OPTIONS)
def test_alternatives_and_values(option: str) -> None:
    module = from_source(CASES)
    vm = VirtualMachine(relaxvm.build(module), optimize=OPTIONS[option])
    assert [int(vm["fib"](i32(n))) for n in range(8)] == [0, 1, 1, 2, 3, 5, 8, 13]
    types = relaxvm.adt.data_types(module)
    color, lists = types["Color"], types["List"]
    assert [int(vm["code"](made())) for made in (color.Red, color.Green)] == [1, 1]
    assert [int(vm["code"](color.Blue(i32(n)))) for n in (7, -7, 8)] == [-1, -1, 8]
    assert int(vm["code"](color.Gray(i32(7)))) == 7
    for numbers, flag, expected in (
        ([1, 2], True, 10), ([1, 3, 4, 5], True, 10), ([1, 2], False, 1), ([9], True, 9),
        ([9, 8, 7], False, 9), ([9, 8, 7], True, -1), ([], True, -1),
    ):  # fmt: skip
        xs = lists.from_list(map(i32, numbers))
        assert int(vm["start"](xs, np.array(flag))) == expected


def test_alternatives_are_printed_as_cases() -> None:
    module = from_source(CASES)
    assert "case List.Cons(x, List.Nil()), _" in module.script().replace("(List", "List")
    assert_structural_equal(from_source(module.script()), module)


def test_calls_without_end_take_no_memory() -> None:
    """Functions that call each other for ever end at a limit, in one frame."""
    module = from_source("""
@I.ir_module
class Module:
    class Nat(R.Data):
        Z = R.Constructor()
        S = R.Constructor("Nat")

    @R.function
    def ping(n: "Nat") -> "Nat":
        cls = Module
        match n:
            case Z() | S(_):
                r = cls.pong(n)
        return r

    @R.function
    def pong(n: "Nat") -> "Nat":
        cls = Module
        r = cls.ping(n)
        return r
""")
    executable = relaxvm.build(module)
    for limits, kind in (
        (Limits(fuel=2_000_000, call_depth=3), "fuel"),
        (Limits(wall_time=0.2, call_depth=3), "wall_time"),
        (Limits(fuel=2_000_000, call_depth=3, live_bytes=1 << 16), "fuel"),
    ):
        with pytest.raises(LimitError, match=kind):
            VirtualMachine(executable, limits=limits)["ping"](nat(1))
