"""Larger programs with data types from script: networks over lists and trees, tensors that grow,
Ackermann's function, functions at several types, rows of different lengths, long lists.

Each runs with all rewritings of the core, without any, and with each switched off in turn, and is
compared with an evaluator of the program or with numpy.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import relaxvm
from relaxvm import Adt, Limits, VirtualMachine
from relaxvm.errors import MatchError
from relaxvm.script import from_source
from relaxvm.transform import lower_data_types

from . import test_relay_programs
from .relax_evaluator import Cell, Closure, Data, Evaluator, NoClause
from .test_adt_programs import INT, LISTS, OPTIONS, TYPES, i32, ints, items, nat, rose, to_list
from .test_relay_programs import TREE_LSTM, random_tree, sigmoid, tensors, tree_text

F32 = '"float32"'
STATE = 'R.Tensor((1, 3), "float32")'
X = 'R.Tensor((1, 4), "float32")'
GATES = (
    'w: R.Tensor((12, 4), "float32"), u: R.Tensor((12, 3), "float32"), '
    'b: R.Tensor((12,), "float32")'
)
TREE_GATES = (
    'w: R.Tensor((9, 4), "float32"), u: R.Tensor((9, 3), "float32"), '
    'wf: R.Tensor((3, 4), "float32"), uf: R.Tensor((3, 3), "float32")'
)

SCRIPT = f"""
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
    def dense(
        x: R.Tensor((1, "n"), {F32}), w: R.Tensor(("m", "n"), {F32})
    ) -> R.Tensor((1, "m"), {F32}):
        return R.matmul(x, R.permute_dims(w))

    @R.function
    def lstm(xs: List[{X}], {GATES}) -> R.Tuple({STATE}, {STATE}):
        cls = Module
        @R.function
        def step(s: R.Tuple({STATE}, {STATE}), x: {X}) -> R.Tuple({STATE}, {STATE}):
            sums = R.add(R.add(cls.dense(x, w), cls.dense(s[0], u)), b)
            gates = R.split(sums, 4, axis=1)
            kept = R.multiply(R.sigmoid(gates[1]), s[1])
            c = R.add(kept, R.multiply(R.sigmoid(gates[0]), R.tanh(gates[2])))
            return (R.multiply(R.sigmoid(gates[3]), R.tanh(c)), c)
        zero = R.zeros((1, 3), "float32")
        r = cls.foldl(step, (zero, zero), xs)
        return r

    @R.function
    def tree_lstm(tree: Tree[{X}], {TREE_GATES}) -> R.Tuple({STATE}, {STATE}):
        cls = Module
        match tree:
            case Tree.Rose(x, children):
                @R.function
                def below(child: Tree[{X}]) -> R.Tuple({STATE}, {STATE}):
                    s = cls.tree_lstm(child, w, u, wf, uf)
                    return s
                states = cls.map(below, children)
                zero = R.zeros((1, 3), "float32")
                @R.function
                def add_h(a: {STATE}, s: R.Tuple({STATE}, {STATE})) -> {STATE}:
                    return R.add(a, s[0])
                h = cls.foldl(add_h, zero, states)
                gates = R.split(R.add(cls.dense(x, w), cls.dense(h, u)), 3, axis=1)
                own = cls.dense(x, wf)
                @R.function
                def add_c(a: {STATE}, s: R.Tuple({STATE}, {STATE})) -> {STATE}:
                    return R.add(a, R.multiply(R.sigmoid(R.add(own, cls.dense(s[0], uf))), s[1]))
                kept = cls.foldl(add_c, zero, states)
                c = R.add(R.multiply(R.sigmoid(gates[0]), R.tanh(gates[1])), kept)
                r = (R.multiply(R.sigmoid(gates[2]), R.tanh(c)), c)
        return r

    @R.function
    def grow(n: "Nat", table: R.Tensor(("k", 2), {F32}), row: R.Tensor((1, 2), {F32})) -> (
        R.Tensor(ndim=2, dtype={F32})
    ):
        cls = Module
        match n:
            case Z():
                r = table
            case S(m):
                more = R.concat([table, R.multiply(row, R.const(2.0, "float32"))], axis=0)
                r = cls.grow(m, more, R.add(row, row))
        return r

    @R.function
    def below(a: R.Tensor(("k", 2), {F32}), b: R.Tensor(("n", 2), {F32})) -> (
        R.Tensor(("k + n", 2), {F32})
    ):
        return R.concat([a, b], axis=0)

    @R.function
    def join(rows: List[R.Tensor(ndim=2, dtype={F32})]) -> R.Tensor(ndim=2, dtype={F32}):
        cls = Module
        match R.incomplete(rows):
            case Cons(x, Nil()):
                r = x
            case Cons(x, rest):
                r = cls.below(x, cls.join(rest))
        return r

    @R.function
    def ack(m: "Nat", n: "Nat") -> "Nat":
        cls = Module
        match (m, n):
            case (Z(), _):
                r = Nat.S(n)
            case (S(p), Z()):
                r = cls.ack(p, Nat.S(Nat.Z()))
            case (S(p), S(q)):
                r = cls.ack(p, cls.ack(m, q))
        return r

    @R.function
    def pair(x: "A", y: "B") -> R.Tuple("A", List["B"]):
        return (x, Cons(y, Nil()))

    @R.function
    def several_types(n: {INT}) -> R.Tuple(
        {INT}, List[List[{INT}]], Option[R.Tuple({INT}, List[{INT}])], {INT}
    ):
        cls = Module
        a = cls.pair(n, n)
        b = cls.pair(a[1], a[1])
        c = cls.pair(Option.Some(a), n)
        @R.function
        def add(x: {INT}) -> {INT}:
            return R.add(x, n)
        d = cls.pair(add, add)
        g = d[0]
        e = g(a[0])
        lists = Cons(b[0], b[1])
        return (a[0], lists, c[0], e)

    @R.function
    def compose(fs: List[R.Callable(({INT},), {INT})], x: {INT}) -> {INT}:
        cls = Module
        match fs:
            case Nil():
                r = x
            case Cons(f, rest):
                r = cls.compose(rest, f(x))
        return r

    @R.function
    def adders(xs: List[{INT}]) -> List[R.Callable(({INT},), {INT})]:
        cls = Module
        @R.function
        def adder(x: {INT}) -> R.Callable(({INT},), {INT}):
            @R.function
            def add(y: {INT}) -> {INT}:
                return R.add(R.multiply(y, R.const(2, "int32")), x)
            return add
        r = cls.map(adder, xs)
        return r

    @R.function
    def composed(xs: List[{INT}], x: {INT}) -> {INT}:
        cls = Module
        r = cls.compose(cls.adders(xs), x)
        return r

    @R.function
    def range(n: "Nat", onto: List["Nat"]) -> List["Nat"]:
        cls = Module
        match n:
            case Z():
                r = onto
            case S(m):
                r = cls.range(m, Cons(m, onto))
        return r

    @R.function
    def last(xs: List["A"]) -> Option["A"]:
        cls = Module
        match xs:
            case Cons(x, Nil()):
                r = Option.Some(x)
            case Cons(_, rest):
                r = cls.last(rest)
            case Nil():
                r = Option.None_()
        return r
"""


@pytest.fixture(scope="module")
def module() -> Any:
    return from_source(SCRIPT)


@pytest.fixture(scope="module")
def executable(module: Any) -> Any:
    return relaxvm.build(module)


@pytest.fixture(params=OPTIONS, scope="module")
def vm(request: pytest.FixtureRequest, executable: Any) -> VirtualMachine:
    return VirtualMachine(executable, optimize=OPTIONS[request.param])


# The evaluator


def to_evaluator(module: Any, value: Any) -> Any:
    """A value of the VM as one of the evaluator."""
    if isinstance(value, tuple):
        return tuple(to_evaluator(module, part) for part in value)
    if type(value) is not Adt:
        return value
    data, _, name = value.constructor.partition(".")
    found = {header.name_hint: definition for header, definition in module.type_definitions.items()}
    (constructor,) = (c for c in found[data].constructors if c.name_hint == name)
    return Data(constructor, [to_evaluator(module, part) for part in value.fields])


def assert_same(found: Any, expected: Any) -> None:
    """Compare a value of the VM with one of the evaluator."""
    if isinstance(expected, Data):
        assert found.constructor == expected.constructor.qualified_name
        assert found.tag == expected.constructor.tag
        assert_same(found.fields, expected.fields)
    elif isinstance(expected, tuple):
        assert type(found) is tuple
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)
    else:
        assert not isinstance(expected, Closure)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def floats(*shape: int) -> Any:
    return np.linspace(-1, 1, int(np.prod(shape))).astype("float32").reshape(shape)


NETWORK: dict[str, tuple[Any, ...]] = {
    "lstm": (
        to_list(floats(5, 1, 4)), tensors(12, 4), tensors(12, 3), tensors(12),
    ),
    "tree_lstm": (
        Adt("Tree.Rose", 0, (floats(1, 4), to_list([
            Adt("Tree.Rose", 0, (floats(1, 4) * 2, to_list([]))),
            Adt("Tree.Rose", 0, (floats(1, 4) * 3, to_list([]))),
        ]))),
        tensors(9, 4), tensors(9, 3), tensors(3, 4), tensors(3, 3),
    ),
    "grow": (nat(6), floats(2, 2), floats(1, 2)),
    "join": (to_list([floats(1, 2), floats(3, 2), floats(2, 2)]),),
    "ack": (nat(2), nat(3)),
    "several_types": (i32(4),),
    "composed": (ints(1, 2, 3), i32(5)),
    "range": (nat(9), to_list([])),
    "last": (ints(4, 5, 6),),
}  # fmt: skip
"""Function -> arguments."""


@pytest.mark.parametrize("name", NETWORK)
def test_programs(vm: VirtualMachine, module: Any, name: str) -> None:
    args = NETWORK[name]
    expected = Evaluator(module)(name, *(to_evaluator(module, arg) for arg in args))
    assert_same(vm[name](*args), expected)


TREE = rose(1, rose(2), rose(3, rose(4), rose(5)))
BASIC: dict[str, Sequence[tuple[Any, ...]]] = {
    "doubled": [(ints(1, 2, 3),), (ints(),)],
    "total": [(ints(1, 2, 3),)],
    "evens": [(ints(1, 2, 3, 4),)],
    "reverse": [(ints(1, 2, 3), ints(9))],
    "append": [(ints(1, 2), ints(3))],
    "flatten": [(to_list([ints(1), ints(), ints(2, 3)]),)],
    "zip": [(ints(1, 2, 3), ints(4, 5))],
    "head": [(ints(),), (ints(7),)],
    "sum_of_head": [(ints(3, 9), i32(4)), (ints(), i32(4))],
    "tree_sum": [(TREE,)],
    "plus": [(nat(3), nat(4))],
    "even": [(nat(6),), (nat(7),)],
    "count": [(nat(5),)],
    "third": [(ints(1, 2, 3, 4),)],
    "overlap": [(nat(a), nat(b)) for a in range(4) for b in range(4)],
}


@pytest.fixture(params=["results are copied", "results stand once"])
def leaves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How decision trees have results that stand at many leaves, whatever their length."""
    most = -1 if request.param == "results stand once" else 10**6
    monkeypatch.setattr(lower_data_types, "_MOST_COPIED", most)


@pytest.mark.usefixtures("leaves")
@pytest.mark.parametrize("name", BASIC)
def test_basic_programs(name: str) -> None:
    """The programs of `test_adt_programs`, which run there with each rewriting off."""
    module = from_source(LISTS)
    vm = VirtualMachine(relaxvm.build(module))
    for args in BASIC[name]:
        expected = Evaluator(module)(name, *(to_evaluator(module, arg) for arg in args))
        assert_same(vm[name](*args), expected)


MIXED = """
@I.ir_module
class Module:
    class Chain(R.Data):
        A = R.Constructor()
        B = R.Constructor()
        C = R.Constructor(R.Tensor(ndim=1, dtype="float32"), "Chain")

    @R.function(pure=False)
    def main(
        a: "Chain", b: "Chain", x: R.Tensor(("n",), "float32"), cell: R.Ref(R.Tensor((), "int32"))
    ) -> R.Tensor(ndim=1, dtype="float32"):
        cls = Module
        match R.incomplete((a, b)):
            case (C(u, A() | B()), C(_, rest)):
                m = T.int64()
                v = R.match_cast(u, R.Tensor((m,), "float32"))
                R.ref_write(cell, R.add(R.ref_read(cell), R.const(1, "int32")))
                @R.function
                def twice(z: R.Tensor(("k",), "float32")) -> R.Tensor(("k",), "float32"):
                    return R.add(z, z)
                r = cls.main(rest, rest, twice(v), cell)
            case (_, C(v, A())):
                p = T.int64()
                y = R.match_cast(v, R.Tensor((p,), "float32"))
                match b:
                    case C(w, _):
                        q = w
                    case _:
                        q = y
                r = q
            case (A(), _) | (_, A()):
                y = R.add(x, x)
                r = y
        return r
"""


@pytest.mark.usefixtures("leaves")
def test_results_with_functions_references_and_matches() -> None:
    module = from_source(MIXED)
    vm = VirtualMachine(relaxvm.build(module))
    a, b = Adt("Chain.A", 0), Adt("Chain.B", 1)

    def cell(value: Any, rest: Adt) -> Adt:
        return Adt("Chain.C", 2, (np.array([value], "float32"), rest))

    values = [a, b, cell(1, a), cell(2, b), cell(3, cell(4, a)), cell(5, cell(6, cell(7, b)))]
    failed = 0
    for given in itertools.product(values, repeat=2):
        steps, ref = Cell(i32(0)), relaxvm.Ref(i32(0))
        args = tuple(to_evaluator(module, value) for value in given)
        try:
            expected = Evaluator(module)("main", *args, floats(3), steps)
        except NoClause:
            failed += 1
            with pytest.raises(MatchError, match="no clause of the match is for"):
                vm["main"](*given, floats(3), ref)
        else:
            assert_same(vm["main"](*given, floats(3), ref), expected)
        assert ref.value == steps.value
    assert 0 < failed < 36


def test_the_evaluator_refuses_a_value_without_a_clause() -> None:
    module = from_source(LISTS)
    with pytest.raises(NoClause, match=r"no clause for List\.Cons"):
        Evaluator(module)("third", to_evaluator(module, ints(1, 2)))


# Numpy


def test_lstm(vm: VirtualMachine) -> None:
    xs, w, u, b = tensors(7, 1, 4), tensors(12, 4), tensors(12, 3), tensors(12)
    state = np.zeros((1, 3)), np.zeros((1, 3))
    for x in xs:
        state = test_relay_programs.cell(x, *state, w, u, b)
    for found, expected in zip(vm["lstm"](to_list(xs), w, u, b), state, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_tree_lstm(vm: VirtualMachine, seed: int) -> None:
    """Equal to numpy, and to the same program in Relay text."""
    count = 12
    tree = random_tree(random.Random(seed), count)
    xs, w, u = tensors(count, 4, seed=seed), tensors(9, 4), tensors(9, 3)
    wf, uf = tensors(3, 4), tensors(3, 3)

    def value(node: Any) -> Adt:
        return Adt("Tree.Rose", 0, (xs[node[0]][None], to_list(map(value, node[1]))))

    def expected(node: Any) -> Any:
        states = [expected(child) for child in node[1]]
        x = xs[node[0]][None]
        h = sum([s[0] for s in states], np.zeros((1, 3)))
        i, g, o = np.split(x @ w.T + h @ u.T, 3, 1)
        kept = sum([sigmoid(x @ wf.T + a @ uf.T) * c for a, c in states], np.zeros((1, 3)))
        c = sigmoid(i) * np.tanh(g) + kept
        return sigmoid(o) * np.tanh(c), c

    text = TREE_LSTM + f"""
    def @main(%xs: Tensor[({count}, 4), float32], %w, %u, %wf, %uf) {{
      let %x = split(%xs, indices_or_sections={count});
      @lstm({tree_text(tree)}, %w, %u, %wf, %uf)
    }}"""
    in_relay = test_relay_programs.run(text, xs, w, u, wf, uf)
    found = vm["tree_lstm"](value(tree), w, u, wf, uf)
    for a, b, c in zip(found, expected(tree), in_relay, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a, c, rtol=1e-6, atol=1e-7)


def test_a_tensor_that_grows(vm: VirtualMachine) -> None:
    table = vm["grow"](nat(5), floats(1, 2), floats(1, 2))
    np.testing.assert_allclose(table, floats(1, 2) * 2.0 ** np.arange(6)[:, None])
    parts = [floats(n, 2) for n in (1, 3, 2)]
    np.testing.assert_array_equal(vm["join"](to_list(parts)), np.concatenate(parts))


def test_ackermann(vm: VirtualMachine) -> None:
    def expected(m: int, n: int) -> int:
        return n + 1 if m == 0 else expected(m - 1, 1 if n == 0 else expected(m, n - 1))

    for m, n in ((0, 0), (1, 3), (2, 2), (2, 5), (3, 3)):
        assert vm["ack"](nat(m), nat(n)) == nat(expected(m, n))


# A million


@pytest.mark.parametrize("option", ["all", "none"])
def test_lists_of_a_million(executable: Any, option: str) -> None:
    machine = VirtualMachine(executable, optimize=OPTIONS[option])
    count = 1_000_000
    numbers = machine["range"](nat(count), Adt("List.Nil", 0))
    assert sum(1 for _ in items(numbers)) == count
    assert machine["last"](numbers) == Adt("Option.Some", 1, (nat(count - 1),))
    assert to_list(items(numbers)) == numbers


def test_recursion_a_million_deep(executable: Any) -> None:
    machine = VirtualMachine(executable, limits=Limits(call_depth=1_000_001))
    numbers = to_list([i32(1)] * 1_000_000)
    wrapped = machine["map"](lambda x: (x, x), numbers)
    assert all(pair == (1, 1) for pair in items(wrapped))
    assert sum(1 for _ in items(wrapped)) == 1_000_000
