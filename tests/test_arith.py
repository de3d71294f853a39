"""relaxvm.ir.arith: proofs, simplification and bounds of symbolic integers."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxvm.ir import (
    Add,
    And,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    LShift,
    Max,
    Min,
    Mul,
    Not,
    Or,
    RShift,
    Select,
    Sub,
    Var,
    int_imm,
    prim,
)
from relaxvm.ir.arith import (
    Analyzer,
    evaluate,
    free_vars,
    prove,
    prove_equal,
    simplify,
    substitute,
)
from relaxvm.ir.prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Div,
    Mod,
    floordiv,
    floormod,
    maximum,
    minimum,
    same,
    select,
    truncdiv,
    truncmod,
)

n, m, k = (Var(name, "int64") for name in "nmk")
VARIABLES = (n, m, k)


def text(e: Expr, above: int = 0) -> str:
    """Print a scalar as Python code."""
    if isinstance(e, IntImm):
        return str(bool(e.value) if e.dtype == "bool" else e.value)
    if isinstance(e, Var):
        return e.name
    if isinstance(e, (Min, Max)):
        return f"{e.SYMBOL}({text(e.a)}, {text(e.b)})"
    if isinstance(e, prim.BinaryOpExpr):
        level = {Add: 2, Sub: 2, Mul: 3, FloorDiv: 3, FloorMod: 3}.get(type(e), 1)
        inner = f"{text(e.a, level)} {e.SYMBOL} {text(e.b, level + 1)}"
        return f"({inner})" if level < above else inner
    if isinstance(e, Select):
        return f"select({text(e.condition)}, {text(e.true_value)}, {text(e.false_value)})"
    if isinstance(e, Not):
        return f"not {text(e.a, 9)}"
    assert isinstance(e, Cast)
    return f"{e.dtype}({text(e.value)})"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (n * m * 4, 4 * (m * n)),
        (20 * m * 4, 80 * m),
        ((n + 1) * (n - 1), n * n - 1),
        ((n + m) * k, k * n + k * m),
        ((n + m) * (n + m), n * n + 2 * n * m + m * m),
        (n - n, int_imm(0)),
        (n // 2 * 2 + n % 2, n),
        (n % 8 % 4, n % 4),
        (n // 2 // 3, n // 6),
        ((n // 2 + m) // 3, (n + 2 * m) // 6),
        ((n * 4 + 3) // 4, n),
        ((n + 4) // 4, n // 4 + 1),
        ((n + 3) // -4, (-3 - n) // 4),
        (n * m // m, n),
        (n * m % m, int_imm(0)),
        ((n * m * k) // (m * 2), n * k // 2),
        ((n * n - 1) // (n - 1), n + 1),
        ((n * m + n) // (m + 1), n),
        (truncdiv(n * 4, 4), n),
        (truncmod(n * 4, 4), int_imm(0)),
        (n << 3, n * 8),
        (n >> 1, n // 2),
        (maximum(n, m) + minimum(n, m), n + m),
        (maximum(n + 1, m + 1), maximum(m, n) + 1),
        (maximum(n, n + 1), n + 1),
        (minimum(n, maximum(n, n - 3)), n),
        (maximum(maximum(n, m), k), maximum(k, maximum(m, n))),
        (maximum(2 * n, 2 * m), 2 * maximum(m, n)),
        (-maximum(n, m), minimum(-n, -m)),
        (select(n < m, n, n), n),
        (select(n < n + 1, n, m), n),
        (n < m, m > n),
        (n <= m, prim.logical_not(m < n)),
        (2 * n < 2 * m + 1, n <= m),
        (EQ(n, m), EQ(m, n)),
        (EQ(2 * n, 2 * m), prim.logical_not(NE(m, n))),
        (And(n < m, m < k), And(m < k, n < m)),
        (Or(n < m, n < m), n < m),
        (prim.cast(n * 2, "int32"), prim.cast(n + n, "int32")),
        (n, n),
        (int_imm(4), int_imm(4)),
    ],
    ids=lambda e: text(e),
)
def test_equal(a: Expr, b: Expr) -> None:
    assert prove_equal(a, b)
    assert prove_equal(b, a)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (n, m),
        (n, n + 1),
        (n * m, n + m),
        (n * n, n),
        (n // 2 * 2, n),
        ((n + 3) // 4, n // 4 + 1),
        (n % 4, n),
        (n // m, m // n),
        (truncdiv(n, 2), n // 2),
        (maximum(n, m), n),
        (maximum(n, m), minimum(n, m)),
        (n < m, n <= m),
        (EQ(n, m), NE(n, m)),
        (EQ(n, m), EQ(n, m + 1)),
        (prim.cast(n, "int32"), prim.cast(n, "int16")),
        (select(n < m, n, m), select(n < m, m, n)),
        (Var("n", "int64"), Var("n", "int64")),
    ],
    ids=lambda e: text(e),
)
def test_not_equal(a: Expr, b: Expr) -> None:
    assert not prove_equal(a, b)


def test_floats_are_compared_as_they_are_written() -> None:
    x, y = Var("x", "float32"), Var("y", "float32")
    assert prove_equal(x + y, x + y)
    assert not prove_equal(x + y, y + x)
    assert not prove_equal(x - x, FloatImm("float32", 0.0))
    assert prove_equal(FloatImm("float32", math.nan), FloatImm("float32", math.nan))
    assert not prove_equal(FloatImm("float32", 0.0), FloatImm("float32", -0.0))
    assert prove_equal(prim.cast(x * y, "int64") * n, n * prim.cast(x * y, "int64"))


def test_unsigned_integers_are_compared_as_they_are_written() -> None:
    u = Var("u", "uint8")
    assert prove_equal(u + 1, u + 1)
    assert not prove_equal(u - 1 + 1, u)  # for u = 0, where it overflows


def test_numbers_are_scalars_too() -> None:
    assert prove_equal(n - n + 4, 4)
    assert prove_equal(4, 4)
    assert not prove_equal(4, 5)


def test_let_is_opaque() -> None:
    let = Let(m, n + 1, m * 2)
    assert prove_equal(let * 2, 2 * let)
    assert free_vars(let + m) == [n, m]
    assert evaluate(let, {n: 3}) == 8


def test_large_products_are_left_alone() -> None:
    variables = [Var(f"v{i}", "int64") for i in range(30)]
    total = sum(variables[1:], variables[0])
    assert prove_equal(total * total * total, total * (total * total))
    assert not prove_equal(total * total * total, total * total)


def test_long_sums_do_not_recurse() -> None:
    total: Expr = n
    for _ in range(5000):
        total = total + n
    assert prove_equal(total, n * 5001)
    assert text(simplify(total)) == "n * 5001"
    assert free_vars(total) == [n]


TVM_FORMS = """
n*m*4                     | n * m * 4
4*(n*m)                   | n * m * 4
n*4*m*4                   | n * m * 16
20*m*4                    | m * 80
32*m*4*2+4194304          | m * 256 + 4194304
m*n                       | m * n
n*m+m*n                   | n * m * 2
2*n+3*m+1                 | m * 3 + n * 2 + 1
1+n                       | n + 1
n+4-m                     | n + 4 - m
k-n+m                     | k + m - n
-n-1                      | 0 - n - 1
n-(m-k)                   | n + k - m
(n+1)*(n+1)               | (n + 1) * (n + 1)
(n+m)*4                   | n * 4 + m * 4
n*(m+1)                   | n * (m + 1)
n//2*2+n%2                | n
n+m//2                    | m // 2 + n
(n+4)//4                  | n // 4 + 1
(n*4+5)//4                | n + 1
(n+3)//4*4                | (n + 3) // 4 * 4
n//2//3                   | n // 6
n*6//4                    | n * 6 // 4
n*6%4                     | n % 2 * 2
(n+m*4)%4                 | n % 4
(n+m*4)//4                | n // 4 + m
n*m//m                    | n
minimum(n,n+1)            | n
minimum(n,m)              | min(n, m)
minimum(3,n)              | min(3, n)
maximum(n+1,m+1)          | max(n, m) + 1
minimum(minimum(n,4),2)   | min(n, 2)
n>m                       | m < n
n+1<m+1                   | n < m
n*2<4                     | n < 2
n+1<n                     | False
prim.logical_not(n<m)     | m <= n
select(n<n+1,n,m)         | n
""".strip().splitlines()


@pytest.mark.parametrize("line", TVM_FORMS, ids=lambda line: line.split("|")[0].strip())
def test_simplified_as_tvm_does(line: str) -> None:
    source, expected = line.split("|")
    assert text(simplify(eval(source))) == expected.strip()


def test_simplified_forms_are_those_of_tvm() -> None:
    pytest.importorskip("tvm")
    from tvm import sym, tirx

    names: dict[str, Any] = {name: tirx.Var(name, "int64") for name in "nmk"}
    names |= {"minimum": tirx.min, "maximum": tirx.max, "select": tirx.Select}
    names["prim"] = type("prim", (), {"logical_not": staticmethod(tirx.Not)})
    for line in TVM_FORMS:
        source, expected = line.split("|")
        found = str(sym.Analyzer().simplify(eval(source, names)))
        for old, new in (("T.int64(-", "(-"), ("T.int64", ""), ("T.bool", ""), ("T.", "")):
            found = found.replace(old, new)
        plain = "".join(c for c in found if c not in "() ")
        assert plain == "".join(c for c in expected if c not in "() "), source


def test_simplify_keeps_what_is_simple() -> None:
    for e in (n, int_imm(3), n * m, n * 4 + 1, minimum(n, m), n // 2, n < m):
        assert simplify(e) is e
    x = Var("x", "float32")
    assert text(simplify(Add(x, prim.cast(Add(n, n), "float32")))) == "x + float32(n * 2)"


def test_bounds() -> None:
    a = Analyzer()
    assert a.const_bounds(n) == (-math.inf, math.inf)
    assert a.const_bounds(n % 8) == (0, 7)
    assert a.const_bounds(n - n // 8 * 8 + 1) == (1, 8)
    a.bind(n, 0, 10)
    a.bind(m, 1)
    assert a.const_bounds(n * 2 - 3) == (-3, 17)
    assert a.const_bounds(n * m) == (0, math.inf)
    assert a.const_bounds(n * n) == (0, 100)
    assert a.const_bounds(-n // 3) == (-4, 0)
    assert a.const_bounds(minimum(n, m)) == (0, 10)
    assert a.const_bounds(maximum(n - 5, 2)) == (2, 5)
    assert a.const_bounds(n // m) == (0, 10)
    assert a.const_bounds(n - n // 2) == (0, 5)
    assert a.const_bounds(select(n < m, n, int_imm(-2))) == (-2, 10)
    a.bind(n)
    assert a.const_bounds(n) == (-math.inf, math.inf)


def test_simplify_with_bounds() -> None:
    a = Analyzer()
    i = Var("i", "int64")
    a.bind(i, 0, 7)
    assert a.prove_equal(i // 8, 0)
    assert a.prove_equal(i % 8, i)
    assert a.prove_equal((n * 8 + i) // 8, n)
    assert a.prove_equal((n * 8 + i) % 8, i)
    assert a.prove_equal(maximum(i, 9), 9)
    assert a.prove_equal(truncdiv(i, 2), i // 2)
    assert text(a.simplify((n * 8 + i) // 8)) == "n"
    assert a.prove(i < 8)
    assert not a.prove(i < 7)
    assert a.prove(And(i >= 0, prim.not_equal(i, 9)))
    assert a.prove(Or(n < 0, i + 1 > 0))
    a.bind(n, 1)
    a.bind(i, 0, n - 1)
    assert a.prove_equal(i % n, i)
    assert a.prove_equal(i // n, 0)
    assert not a.prove_equal((i + 1) % n, i + 1)
    assert not a.prove_equal((i - 1) // n, 0)
    assert a.prove(i < n)
    assert a.prove(n - i >= 1)
    assert not a.prove(i < n - 1)
    assert a.prove(n * 4 > i)
    assert prove(n <= maximum(n, m))
    assert prove(n // 2 * 2 <= n)
    assert not prove(n < m)
    assert prove(True)


def test_a_trivial_bound_does_not_hide_another() -> None:
    n, i = Var("n", "int64"), Var("i", "int64")
    analyzer = Analyzer()
    analyzer.bind(i, 0, n * 4 - 1)
    assert analyzer.const_bounds(i % 4) == (0, 3)


def test_binding_again_replaces_the_bound() -> None:
    a = Analyzer()
    a.bind(n, 0, 3)
    assert a.prove_equal(n // 4, 0)
    a.bind(n, 0, 4)
    assert not a.prove_equal(n // 4, 0)
    a.bind(n, 0)
    s = select(n // 4 < 2, n, m)
    a.bind(n, 0, 3)
    assert a.prove_equal(s, n)


def test_binding_again_replaces_bounds_that_mention_it() -> None:
    a = Analyzer()
    a.bind(n, 1, 10)
    a.bind(m, 0, prim.maximum(n, 1) - 1)
    a.bind(k, 0, m)
    assert a.prove(k <= n - 1)
    a.bind(n, -5, 10)
    assert not a.prove(m <= n - 1)  # where n is 0, m is, too
    assert not a.prove(k <= n - 1)
    a.bind(n, 1, 10)
    assert a.prove(k <= n - 1)
    a.bind(k, 0, prim.minimum(n, 1))  # a number with these bounds
    a.bind(n, -5, 10)
    assert a.const_bounds(k) == (0, 1)
    a.bind(n, -5, 0)
    a.bind(k, -9, prim.maximum(n, 0))
    a.bind(n, -5, 10)
    assert a.const_bounds(k) == (-9, 10)


def test_substitute() -> None:
    e = n * 4 + m
    assert text(substitute(e, {n: m + 1})) == "(m + 1) * 4 + m"
    assert substitute(e, {k: m}) is e
    assert substitute(e, {n: 2, m: 1}).value == 9  # type: ignore[attr-defined]
    assert text(substitute(e, {n: m, m: n})) == "m * 4 + n"
    s = select(n < 4, prim.cast(n, "float32"), FloatImm("float32", 0.5))
    assert substitute(s, {n: 5}).value == 0.5  # type: ignore[attr-defined]
    x, y = Var("x", "float32"), Var("y", "float32")
    assert same(substitute(prim.divide(x, y), {x: y}), prim.divide(y, y))
    assert same(substitute(Let(m, n, m + n), {n: k}), Let(m, k, m + k))


def test_free_vars() -> None:
    assert free_vars(m * (n + m)) == [m, n]
    assert free_vars(int_imm(2)) == []
    assert free_vars(select(k < n, n, m)) == [k, n, m]


def test_evaluate() -> None:
    assert evaluate((n - 7) // 2 + floormod(n, -3), {n: 2}) == -4
    assert evaluate(truncdiv(n, 2) + truncmod(n, 2), {n: -3}) == -2
    assert evaluate(prim.cast(n, "float32"), {n: 1}) == 1.0
    assert evaluate(Or(n < 0, Not(n < 0)), {n: 1}) is True
    assert evaluate(And(n < 0, prim.equal(n // 0, 1)), {n: 1}) is False
    with pytest.raises(ValueError, match="variable 'n' has no value"):
        evaluate(n + 1, {})
    with pytest.raises(ZeroDivisionError):
        evaluate(floordiv(m, n), {n: 0, m: 1})


# Proofs are sound


def expressions(divisors: bool = True) -> Any:
    """Random integer expressions of `VARIABLES`, made only with constructors of nodes."""
    leaves = st.sampled_from(VARIABLES) | st.integers(-6, 6).map(lambda i: IntImm("int64", i))

    def extend(inner: Any) -> Any:
        binary = st.sampled_from([Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, Div, Mod])
        comparison = st.sampled_from([LT, LE, GT, GE, EQ, NE])
        condition = st.builds(lambda c, a, b: c(a, b), comparison, inner, inner)
        both = st.sampled_from([And, Or])
        condition = (
            condition
            | st.builds(lambda c, a, b: c(a, b), both, condition, condition)
            | condition.map(Not)
        )
        return (
            st.builds(lambda c, a, b: c(a, b), binary, inner, inner)
            | st.builds(lambda c, a, b: Select(c, a, b), condition, inner, inner)
            | st.builds(
                lambda c, a, i: c(a, IntImm("int64", i)),
                st.sampled_from([LShift, RShift]), inner, st.integers(0, 4),
            )
        )  # fmt: skip

    return st.recursive(leaves, extend, max_leaves=8)


VALUES = [
    dict(zip(VARIABLES, values, strict=True))
    for values in [(0, 1, 2), (1, 1, 1), (5, 3, 2), (-1, 4, 7), (-6, -5, 3), (12, 2, -2), (7, 6, 9),
                   (2, 0, 1), (100, 10, 1), (3, -4, 0)]
]  # fmt: skip

PROPERTY = settings(
    derandomize=True, max_examples=600, deadline=None, database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip


def value(e: Expr, values: Any) -> Any:
    """The value, or None if there is a division by zero."""
    try:
        return evaluate(e, values)
    except ZeroDivisionError:
        return None


def differ(a: Expr, b: Expr) -> bool:
    pairs = [(value(a, values), value(b, values)) for values in VALUES]
    return any(x != y for x, y in pairs if x is not None and y is not None)


@PROPERTY
@given(expressions())
def test_simplified_is_equal(e: Expr) -> None:
    assert not differ(e, simplify(e)), f"{text(e)} -> {text(simplify(e))}"


@PROPERTY
@given(expressions(), expressions())
def test_proven_equal_is_equal(a: Expr, b: Expr) -> None:
    if prove_equal(a, b):
        assert not differ(a, b), f"{text(a)} and {text(b)}"
    # Two expressions that are equal by construction.
    c = Add(Sub(a, b), b)
    assert prove_equal(a, c), f"{text(a)} and {text(c)}"


@PROPERTY
@given(expressions(), expressions(), st.sampled_from([LT, LE, GT, GE, EQ, NE]))
def test_proven_conditions_hold(a: Expr, b: Expr, kind: Any) -> None:
    analyzer = Analyzer()
    analyzer.bind(n, 0, 12)
    analyzer.bind(m, 0)
    known = [v for v in VALUES if 0 <= v[n] <= 12 and v[m] >= 0]
    low, high = analyzer.const_bounds(a)
    holds = analyzer.prove(kind(a, b))
    short = analyzer.simplify(a)
    for values in known:
        x, y = value(a, values), value(b, values)
        if x is None:
            continue
        assert low <= x <= high, f"{text(a)} in [{low}, {high}]"
        assert value(short, values) in (x, None), f"{text(a)} -> {text(short)}"
        if holds and y is not None:
            assert kind.EVALUATE(x, y), f"{text(a)} {kind.SYMBOL} {text(b)}"


@PROPERTY
@given(expressions(), expressions())
def test_substitution_is_evaluation(e: Expr, by: Expr) -> None:
    replaced = substitute(e, {n: by})
    for values in VALUES:
        inner = value(by, values)
        if inner is not None:
            expected, got = value(e, {**values, n: inner}), value(replaced, values)
            assert got == expected or None in (got, expected)


def test_bounds_of_many_divisions() -> None:
    """n / 3 + n / 5 + ... is 0.92 n."""
    analyzer = Analyzer()
    analyzer.bind(n, 0)
    rest: Any = n
    for divisor in (3, 5, 8, 9, 10, 20):
        rest = rest - n // divisor
    assert analyzer.prove(rest >= 0)
    assert not analyzer.prove(rest >= 1)
    assert not analyzer.prove(rest - n // 10 >= 0)
    for number in (0, 1, 59, 360):
        assert evaluate(rest, {n: number}) >= 0


def test_bounds_of_divisions_within_divisions() -> None:
    """The inner division is in the sum, too: it is replaced with all that it is multiplied by."""
    analyzer = Analyzer()
    for var in (n, m, k):
        analyzer.bind(var, 0, 100)
    for e in (
        (n // 4 * 3 + m) // 4 + k // 4 + n // 4,
        (n // 4 * 3 + m) // 5 + k // 7 - n // 4,
        (n // 3 * 2 + m) // 4 * 2 - n // 3 + k // 5,
    ):
        low, high = analyzer.const_bounds(e)
        for i, j, x in itertools.product((0, 1, 2, 3, 50, 99, 100), repeat=3):
            assert low <= evaluate(e, {n: i, m: j, k: x}) <= high
    assert analyzer.const_bounds((n // 4 * 3 + m) // 4 + k // 4 + n // 4) == (0, 93)


def test_a_part_of_an_axis_begins_within_it() -> None:
    """A maximum is replaced before a division, whose remainder is lost."""
    analyzer = Analyzer()
    analyzer.bind(n, 0)
    assert analyzer.prove(prim.minimum((n + 5) // 6 * 2, n) >= 0)


def test_values_without_end_are_found_without_a_search() -> None:
    """Lengths of parts of parts: nested minima and maxima, which one that grows cannot be below."""
    analyzer = Analyzer()
    analyzer.bind(n, 0)
    dim: Any = n
    for i in range(1, 4):
        start = prim.select(dim < i, dim * 2 - i, dim - i)
        dim = prim.maximum(prim.minimum(dim, start + 3) - (dim + i) // (i + 1) // 9, 0)
    grows, most = analyzer.normal_form(n * 1000), analyzer.normal_form(dim)
    before = analyzer.asked
    assert not analyzer.is_at_most(grows, most)
    assert analyzer.asked == before
    assert analyzer.is_at_most(analyzer.normal_form(n - 5), analyzer.normal_form(n))


def test_bounds_of_shared_parts_are_computed_once() -> None:
    """Nested halves of sums, as in the shapes of a network's levels: the bounds of each shared part
    must be computed only once."""
    n, m = Var("n", "int64"), Var("m", "int64")
    dim: Any = n
    for _ in range(4):
        dim = simplify(prim.maximum(prim.minimum(dim * 2 + m + 1, 10**9) // 2, 0))
    for start, more in ((5, 3), (0, 0), (1000, 1), (10**9, 10**8), (-7, 2)):
        want = start
        for _ in range(4):
            want = max(min(want * 2 + more + 1, 10**9) // 2, 0)
        assert evaluate(dim, {n: start, m: more}) == want


def test_products_of_many_factors_are_not_expanded() -> None:
    """Each level of ((n * m + n) * m + n) * m ... has one more term, with one more factor."""
    n, m = Var("n", "int64"), Var("m", "int64")
    dim: Any = n
    for _ in range(300):
        dim = dim * m + n
    tracemalloc.start()
    try:
        simplify(dim)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20  # it was 70 MiB
    finally:
        tracemalloc.stop()


def test_maxima_of_many_operands() -> None:
    """What is equal by its structure stays equal, however many operands there are."""
    variables = [Var(f"n{i}", "int64") for i in range(200)]

    def greatest() -> Any:
        found: Any = variables[0]
        for each in variables[1:]:
            found = prim.maximum(found, each)
        return found

    assert prove_equal(greatest() + 1, 1 + greatest())
    assert prove_equal(prim.maximum(variables[3], variables[1]),
                       prim.maximum(variables[1], variables[3]))  # fmt: skip
