"""Programs with data types on relaxvm and in plain Python: a class for each constructor, `match`.

    python bench/compare_adt.py [--only TEXT]

Both run in this process, in turn, and the minimum of each counts.  Results are compared before
times.  A loop of the Python side is a loop, not a recursive call.  Instructions are compared by
``count_dispatch.py --only adt``.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import clean
import numpy as np

REQUIRED_RATIO = 5.0
"""The ratio that a program has to reach where the work is dispatch."""

HIDDEN = 16
H = f'R.Tensor((1, {HIDDEN}), "float32")'
W = f'R.Tensor(({HIDDEN}, {4 * HIDDEN}), "float32")'

SCRIPT = f"""
@I.ir_module
class Module:
    class Nat(R.Data):
        Z = R.Constructor()
        S = R.Constructor("Nat")

    class List(R.Data["A"]):
        Nil = R.Constructor()
        Cons = R.Constructor("A", "List[A]")

    class Tree(R.Data["A"]):
        Leaf = R.Constructor()
        Node = R.Constructor("Tree[A]", "A", "Tree[A]")

    class Words(R.Data):
        Word = R.Constructor({H})
        Both = R.Constructor("Words", "Words")

    @R.function
    def build(n: "Nat", onto: List["Nat"]) -> List["Nat"]:
        cls = Module
        match n:
            case Z():
                r = onto
            case S(m):
                r = cls.build(m, Cons(m, onto))
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
    def map(f: R.Callable(("A",), "B"), xs: List["A"]) -> List["B"]:
        cls = Module
        match xs:
            case Nil():
                r = Nil()
            case Cons(x, rest):
                r = Cons(f(x), cls.map(f, rest))
        return r

    @R.function
    def successors(xs: List["Nat"]) -> List["Nat"]:
        cls = Module
        r = cls.map(Nat.S, xs)
        return r

    @R.function
    def append(xs: List["A"], ys: List["A"]) -> List["A"]:
        cls = Module
        match xs:
            case Nil():
                r = ys
            case Cons(x, rest):
                r = Cons(x, cls.append(rest, ys))
        return r

    @R.function
    def fold(f: R.Callable(("B", "A"), "B"), z: "B", xs: List["A"]) -> "B":
        cls = Module
        match xs:
            case Nil():
                r = z
            case Cons(x, rest):
                r = cls.fold(f, f(z, x), rest)
        return r

    @R.function
    def more(n: "Nat", x: "Nat") -> "Nat":
        match x:
            case Z():
                r = n
            case S(_):
                r = Nat.S(n)
        return r

    @R.function
    def count(xs: List["Nat"]) -> "Nat":
        cls = Module
        r = cls.fold(cls.more, Nat.Z(), xs)
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
    def merge(xs: List["Nat"], ys: List["Nat"]) -> List["Nat"]:
        cls = Module
        match (xs, ys):
            case (Cons(Nat.Z(), more), _):
                r = Cons(Nat.Z(), cls.merge(more, ys))
            case (_, Cons(Nat.Z(), rest)):
                r = Cons(Nat.Z(), cls.merge(xs, rest))
            case (Cons(Nat.S(x), more), Cons(Nat.S(_), rest)):
                r = Cons(x, cls.merge(more, rest))
            case (Nil(), _):
                r = ys
            case (_, Nil()):
                r = xs
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
    def full(depth: "Nat") -> Tree["Nat"]:
        cls = Module
        match depth:
            case Z():
                r = Tree.Leaf()
            case S(less):
                r = Tree.Node(cls.full(less), depth, cls.full(less))
        return r

    @R.function
    def mirror(tree: Tree["A"]) -> Tree["A"]:
        cls = Module
        match tree:
            case Leaf():
                r = tree
            case Node(left, x, right):
                r = Tree.Node(cls.mirror(right), x, cls.mirror(left))
        return r

    @R.function
    def flatten(tree: Tree["A"], onto: List["A"]) -> List["A"]:
        cls = Module
        match tree:
            case Leaf():
                r = onto
            case Node(left, x, right):
                r = cls.flatten(left, Cons(x, cls.flatten(right, onto)))
        return r

    @R.function
    def lstm(words: "Words", w: {W}, u: {W}) -> R.Tuple({H}, {H}):
        cls = Module
        match words:
            case Words.Word(x):
                gates = R.split(R.matmul(x, w), 4, axis=1)
                c = R.multiply(R.sigmoid(gates[0]), R.tanh(gates[1]))
                h = R.multiply(R.sigmoid(gates[2]), R.tanh(c))
                r = (h, c)
            case Words.Both(a, b):
                left = cls.lstm(a, w, u)
                right = cls.lstm(b, w, u)
                gates = R.split(R.matmul(R.add(left[0], right[0]), u), 4, axis=1)
                forget = R.sigmoid(gates[3])
                kept = R.multiply(forget, R.add(left[1], right[1]))
                c = R.add(R.multiply(R.sigmoid(gates[0]), R.tanh(gates[1])), kept)
                h = R.multiply(R.sigmoid(gates[2]), R.tanh(c))
                r = (h, c)
        return r
"""


# The same in Python


class Z:
    __slots__ = __match_args__ = ()


class S:
    __slots__ = __match_args__ = ("before",)

    def __init__(self, before: Any) -> None:
        self.before = before


class Nil:
    __slots__ = __match_args__ = ()


class Cons:
    __slots__ = __match_args__ = ("head", "tail")

    def __init__(self, head: Any, tail: Any) -> None:
        self.head = head
        self.tail = tail


class Leaf:
    __slots__ = __match_args__ = ()


class Node:
    __slots__ = __match_args__ = ("left", "item", "right")

    def __init__(self, left: Any, item: Any, right: Any) -> None:
        self.left = left
        self.item = item
        self.right = right


class Word:
    __slots__ = __match_args__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Both:
    __slots__ = __match_args__ = ("a", "b")

    def __init__(self, a: Any, b: Any) -> None:
        self.a = a
        self.b = b


def build(n: Any, onto: Any) -> Any:
    while True:
        match n:
            case Z():
                return onto
            case S(m):
                n, onto = m, Cons(m, onto)


def reverse(xs: Any, onto: Any) -> Any:
    while True:
        match xs:
            case Nil():
                return onto
            case Cons(x, rest):
                xs, onto = rest, Cons(x, onto)


def map_(f: Any, xs: Any) -> Any:
    match xs:
        case Nil():
            return Nil()
        case Cons(x, rest):
            return Cons(f(x), map_(f, rest))


def successors(xs: Any) -> Any:
    return map_(S, xs)


def append(xs: Any, ys: Any) -> Any:
    match xs:
        case Nil():
            return ys
        case Cons(x, rest):
            return Cons(x, append(rest, ys))


def fold(f: Any, z: Any, xs: Any) -> Any:
    while True:
        match xs:
            case Nil():
                return z
            case Cons(x, rest):
                z, xs = f(z, x), rest


def more(n: Any, x: Any) -> Any:
    match x:
        case Z():
            return n
        case S(_):
            return S(n)


def count(xs: Any) -> Any:
    return fold(more, Z(), xs)


def zip_(xs: Any, ys: Any) -> Any:
    match (xs, ys):
        case (Cons(x, more), Cons(y, rest)):
            return Cons((x, y), zip_(more, rest))
        case _:
            return Nil()


def merge(xs: Any, ys: Any) -> Any:
    match (xs, ys):
        case (Cons(Z(), more), _):
            return Cons(Z(), merge(more, ys))
        case (_, Cons(Z(), rest)):
            return Cons(Z(), merge(xs, rest))
        case (Cons(S(x), more), Cons(S(_), rest)):
            return Cons(x, merge(more, rest))
        case (Nil(), _):
            return ys
        case (_, Nil()):
            return xs


def even(n: Any) -> Any:
    while True:  # both functions
        match n:
            case Z():
                return True
            case S(Z()):
                return False
            case S(S(m)):
                n = m


def full(depth: Any) -> Any:
    match depth:
        case Z():
            return Leaf()
        case S(less):
            return Node(full(less), depth, full(less))


def mirror(tree: Any) -> Any:
    match tree:
        case Leaf():
            return tree
        case Node(left, x, right):
            return Node(mirror(right), x, mirror(left))


def flatten(tree: Any, onto: Any) -> Any:
    match tree:
        case Leaf():
            return onto
        case Node(left, x, right):
            return flatten(left, Cons(x, flatten(right, onto)))


def sigmoid(x: Any) -> Any:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


def lstm(words: Any, w: Any, u: Any) -> Any:
    match words:
        case Word(x):
            i, g, o, _ = np.split(x @ w, 4, axis=1)
            c = sigmoid(i) * np.tanh(g)
            return sigmoid(o) * np.tanh(c), c
        case Both(a, b):
            left, right = lstm(a, w, u), lstm(b, w, u)
            i, g, o, f = np.split((left[0] + right[0]) @ u, 4, axis=1)
            c = sigmoid(i) * np.tanh(g) + sigmoid(f) * (left[1] + right[1])
            return sigmoid(o) * np.tanh(c), c


CLASSES: dict[str, Any] = {
    "Nat.Z": Z, "Nat.S": S, "List.Nil": Nil, "List.Cons": Cons, "Tree.Leaf": Leaf,
    "Tree.Node": Node, "Words.Word": Word, "Words.Both": Both,
}  # fmt: skip


def in_python(value: Any) -> Any:
    """A value of relaxvm as one of the Python side; the last field may be nested deeply."""
    from relaxvm import Adt

    if isinstance(value, tuple):
        return tuple(map(in_python, value))
    cells = []
    while type(value) is Adt:
        cells.append(value)
        value = value.fields[-1] if value.fields else None
    for cell in reversed(cells):
        fields = cell.fields
        value = CLASSES[cell.constructor](*map(in_python, fields[:-1]), *[value] * bool(fields))
    return value


def same(a: Any, b: Any) -> bool:
    """Whether results of the Python side are equal."""
    pairs = [(a, b)]
    while pairs:
        a, b = pairs.pop()
        if type(a) is tuple:
            pairs += zip(a, b, strict=True)
        elif type(a) in CLASSES.values():
            if type(a) is not type(b):
                return False
            pairs += [(getattr(a, name), getattr(b, name)) for name in a.__slots__]
        elif not np.allclose(a, b, atol=1e-5):
            return False
    return True


class Program(NamedTuple):
    """A row: a function of both sides, its arguments, and whether the work is dispatch."""

    name: str
    function: str
    python: Callable[..., Any]
    args: tuple[Any, ...]
    is_dispatch: bool = True


def programs() -> list[Program]:
    from relaxvm import Adt

    zero, nil = Adt("Nat.Z", 0), Adt("List.Nil", 0)

    def nat(number: int) -> Any:
        value = zero
        for _ in range(number):
            value = Adt("Nat.S", 1, (value,))
        return value

    def to_list(items: list[Any]) -> Any:
        value = nil
        for item in reversed(items):
            value = Adt("List.Cons", 1, (item, value))
        return value

    def tree(depth: int) -> Any:
        if not depth:
            return Adt("Tree.Leaf", 0)
        return Adt("Tree.Node", 1, (tree(depth - 1), nat(depth), tree(depth - 1)))

    def words(number: int) -> Any:
        if number == 1:
            x = rng.standard_normal((1, HIDDEN), dtype=np.float32)
            return Adt("Words.Word", 0, (x,))
        left = choose.randint(1, number - 1)
        return Adt("Words.Both", 1, (words(left), words(number - left)))

    rng, choose = np.random.default_rng(0), random.Random(0)
    numbers = [nat(choose.randint(0, 3)) for _ in range(400)]
    xs, ys = to_list(numbers[:200]), to_list(numbers[200:])
    weights = [rng.standard_normal((HIDDEN, 4 * HIDDEN), dtype=np.float32) for _ in range(2)]
    return [
        Program("build a list", "build", build, (nat(200), nil)),
        Program("reverse", "reverse", reverse, (xs, nil)),
        Program("map", "successors", successors, (xs,)),
        Program("fold", "count", count, (xs,)),
        Program("append", "append", append, (xs, ys)),
        Program("zip", "zip", zip_, (xs, ys)),
        Program("nested patterns", "merge", merge, (xs, ys)),
        Program("even and odd", "even", even, (nat(200),)),
        Program("build a tree", "full", full, (nat(7),)),
        Program("mirror a tree", "mirror", mirror, (tree(7),)),
        Program("flatten a tree", "flatten", flatten, (tree(7), nil)),
        Program("TreeLSTM, 32 words", "lstm", lstm, (words(32), *weights), False),
    ]


def best_times(calls: list[Callable[[], Any]]) -> list[float]:
    """The seconds of each call, the minimum of many turns."""
    number, best = 1, [math.inf] * len(calls)
    while True:
        start = time.perf_counter()
        for _ in range(number):
            calls[0]()
        if time.perf_counter() - start > 0.002:
            break
        number *= 2
    for _ in range(60):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(number):
                call()
            best[i] = min(best[i], (time.perf_counter() - start) / number)
    return best


def main() -> int:
    import relaxvm
    from relaxvm.script import from_source

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    options = parser.parse_args()
    sys.setrecursionlimit(10_000)
    vm = relaxvm.VirtualMachine(relaxvm.build(from_source(SCRIPT)))
    missed = 0
    print(f"{'program':24}{'relaxvm':>12}{'Python':>12}{'Python / relaxvm':>18}")
    ratios = []
    for row in programs():
        if options.only not in row.name:
            continue
        run, args = vm[row.function], [
            arg if isinstance(arg, np.ndarray) else in_python(arg) for arg in row.args
        ]  # fmt: skip
        result = run(*row.args)
        found = in_python(result) if not isinstance(result, tuple) else result
        if row.function == "even":
            found = bool(result)
        assert same(found, row.python(*args)), f"{row.name}: results differ"
        ours, theirs = best_times([
            lambda run=run, row=row: run(*row.args),  # type: ignore[misc]
            lambda row=row, args=args: row.python(*args),  # type: ignore[misc]
        ])  # fmt: skip
        ratios.append(theirs / ours)
        required = REQUIRED_RATIO if row.is_dispatch else 1.0
        missed += theirs / ours < required
        mark = "" if theirs / ours >= required else f"   below {required:g}"
        print(f"{row.name:24}{ours * 1e6:9.2f} us{theirs * 1e6:9.2f} us{theirs / ours:18.1f}{mark}")
    print(f"geometric mean: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.1f}")
    return int(missed > 0)


if __name__ == "__main__":
    clean.restart()
    sys.exit(main())
