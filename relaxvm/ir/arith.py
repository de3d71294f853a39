"""Symbolic integer arithmetic: proofs of equality, simplification, bounds.

An integer expression is converted to a normal form: a polynomial with integer coefficients over
atoms.  An atom is a variable, a floor division, a maximum, or an opaque expression.  Everything
else is expressed by these: ``a % b`` is ``a - b * (a // b)``, ``min(a, b)`` is ``-max(-a, -b)``, a
shift is a multiplication or division.  Equal normal forms mean equal values; different normal
forms mean that nothing is known.

Integers have unlimited width here, as is usual in compilers of tensor programs: a program whose
integers overflow at run time is wrong already.  A division by zero has no value, so
``n * m // m`` equals ``n``.  Unsigned integers and floats are equal only if they are written the
same way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import gcd, inf, lcm
from typing import Any, Final

from ..core.checkpoints import checkpoint
from ..errors import ExprSizeError
from . import prim
from .expr import Expr, FloatImm, IntImm, PrimType, Type, Var
from .nesting import headroom
from .node import Node
from .parts import count_parts
from .prim import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOpExpr,
    Cast,
    CmpExpr,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    LShift,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    RShift,
    Select,
    Sub,
)

__all__ = [
    "Analyzer",
    "evaluate",
    "free_vars",
    "prove",
    "prove_equal",
    "simplify",
    "substitute",
]

Monomial = tuple[int, ...]
"""Numbers of atoms, sorted; a squared atom appears twice."""

Polynomial = dict[Monomial, int]
"""Monomial -> nonzero coefficient.  Never modified after construction."""

Bound = int | float
"""An integer, or plus or minus infinity."""

Slopes = dict[tuple[int, int], Fraction]
"""Number of a variable, and 1 or -1 -> how much a value grows, in the limit, while the variable
goes one further into that direction and all others stay.  One that is left out is 0."""

_MAX_TERMS: Final = 512
"""A product with more terms than this is not expanded."""

_MAX_DEGREE: Final = 16
"""A product with more factors than this is not expanded."""

_MAX_CHOICES: Final = 8
"""Of a maximum of more operands than this, none is left out because another one is greater."""

_MAX_OPERANDS: Final = 32
"""A maximum of maxima with more operands than this in all is opaque: each is compared with all
others."""

_DEPTH: Final = 4
"""Depth of the search for bounds: the number of relations between atoms that it chains."""

_MAX_QUESTIONS: Final = 64
"""Bounds that are asked for to find others: from then on, relations between atoms are not looked
at.  Their number may double with each maximum within a maximum."""

_MOST_QUOTIENTS: Final = 2
"""Of a sum of more divisions by numbers than this, all are replaced at once."""

_GREATEST: Final = (1 << 63) - 1
"""The greatest int64."""

_SMALL: Final = 64
"""The number of parts of an expression from which it may be nested deeply."""

_ONE: Final[Polynomial] = {(): 1}
_ZERO: Final = Fraction(0)
_UNBOUNDED: Final = (-inf, inf)


# Polynomials


def _accumulate(into: Polynomial, p: Polynomial, scale: int) -> None:
    """into += scale * p"""
    for monomial, coefficient in p.items():
        total = into.get(monomial, 0) + scale * coefficient
        if total:
            into[monomial] = total
        else:
            into.pop(monomial, None)


def _sum(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    """p + scale * q"""
    total = dict(p)
    _accumulate(total, q, scale)
    return total


def _scaled(p: Polynomial, scale: int) -> Polynomial:
    return {monomial: scale * c for monomial, c in p.items()} if scale else {}


def _product(p: Polynomial, q: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, c in p.items():
        for right, d in q.items():
            monomial = tuple(sorted(left + right))
            value = total.get(monomial, 0) + c * d
            if value:
                total[monomial] = value
            else:
                total.pop(monomial, None)
    return total


def _is_expanded(p: Polynomial, q: Polynomial) -> bool:
    """Whether the product of two polynomials is small enough to be written as one."""
    degree = max(map(len, p), default=0) + max(map(len, q), default=0)
    return len(p) * len(q) <= _MAX_TERMS and degree <= _MAX_DEGREE


def _constant(p: Polynomial) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not p:
        return 0
    return p.get(()) if len(p) == 1 else None


def _content(p: Polynomial) -> int:
    """The greatest common divisor of the coefficients of all terms but the constant."""
    return gcd(*[c for monomial, c in p.items() if monomial])


def _quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """monomial / divisor, or None if it does not divide."""
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _leading(p: Polynomial) -> Monomial:
    """The greatest monomial in an order that is preserved by multiplication."""
    return max(p, key=lambda monomial: (len(monomial), [-atom for atom in monomial]))


def _exact_quotient(p: Polynomial, q: Polynomial) -> Polynomial | None:
    """p / q, or None if q does not divide p."""
    rest, result = dict(p), {}
    lead = _leading(q)
    while rest:
        top = _leading(rest)
        monomial = _quotient(top, lead)
        if monomial is None or rest[top] % q[lead]:
            return None
        term = {monomial: rest[top] // q[lead]}
        result.update(term)
        _accumulate(rest, _product(term, q), -1)
    return result


def _key(p: Polynomial) -> tuple[tuple[Monomial, int], ...]:
    return tuple(sorted(p.items()))


# Atoms


class _Atom:
    """An indivisible factor of a monomial, which refers to it by number."""

    __slots__ = ("expr",)

    expr: Any
    """A variable or an opaque expression."""

    def __init__(self, expr: Any = None) -> None:
        self.expr = expr


class _Quotient(_Atom):
    """floor(p / q).  A constant q is above 1, and then the coefficients of p lie between 0 and q
    and have no common factor with it."""

    __slots__ = ("p", "q")

    def __init__(self, p: Polynomial, q: Polynomial) -> None:
        self.expr = None
        self.p = p
        self.q = q


class _Maximum(_Atom):
    """The maximum of several polynomials, one of which is 0."""

    __slots__ = ("choices",)

    def __init__(self, choices: tuple[Polynomial, ...]) -> None:
        self.expr = None
        self.choices = choices


def _is_integer(expr: Expr) -> bool:
    """Whether the integer rules apply: to signed integers, and to bool as 0 and 1."""
    ty = expr.ty
    return type(ty) is PrimType and (ty.dtype.startswith("int") or ty.dtype == "bool")


class _Normalizer:
    """Converts expressions to polynomials; numbers the atoms and knows bounds of variables."""

    __slots__ = (
        "asked", "atoms", "bounds", "forms", "intervals", "left", "limits", "numbers", "slopes",
    )  # fmt: skip

    atoms: list[_Atom]
    numbers: dict[Any, int]
    bounds: dict[int, tuple[Bound, Bound]]
    """Number of a variable -> its least and greatest value, where these are constants."""
    limits: dict[int, tuple[Polynomial | None, Polynomial | None]]
    """The same for bounds that are expressions."""
    forms: dict[int, tuple[Expr, Polynomial]]
    """Cache of the normal forms of what is not a sum, by id; it keeps the expressions alive."""
    intervals: dict[Any, tuple[Bound, Bound]]
    """Cache of `interval` by polynomial and depth: nested atoms ask for the same ones often."""
    slopes: dict[int, Slopes | None]
    """Number of an atom -> its slopes; None where they are not known."""
    left: int | None
    """How many more bounds `interval` may look for; None where nobody asks."""
    asked: int
    """How many it has looked for."""

    def __init__(self) -> None:
        self.atoms = []
        self.numbers = {}
        self.bounds = {}
        self.limits = {}
        self.forms = {}
        self.intervals = {}
        self.slopes = {}
        self.asked = 0
        self.left = None

    def number(self, key: Any, make: Callable[..., _Atom], *args: Any) -> int:
        """Return the number of the atom with a key; create the atom if there is none."""
        found = self.numbers.get(key)
        if found is None:
            found = self.numbers[key] = len(self.atoms)
            self.atoms.append(make(*args))
        return found

    def of_var(self, var: Node) -> int:
        """Return the number of a variable, or of another expression, compared by identity."""
        return self.number(id(var), _Atom, var)

    def polynomial(self, expr: Expr) -> Polynomial:
        """The normal form of an integer or bool expression."""
        total: Polynomial = {}
        work: list[tuple[Any, int]] = [(expr, 1)]
        while work:
            e, scale = work.pop()
            kind = type(e)
            if kind is IntImm:
                if e.value:
                    _accumulate(total, _ONE, scale * e.value)
            elif isinstance(e, Var):
                monomial = (self.of_var(e),)
                value = total.get(monomial, 0) + scale
                if value:
                    total[monomial] = value
                else:
                    del total[monomial]
            elif not _is_integer(e):
                _accumulate(total, self._opaque(e), scale)
            elif kind is Add:
                work += ((e.b, scale), (e.a, scale))
            elif kind is Sub:
                work += ((e.b, -scale), (e.a, scale))
            elif kind is Mul and type(e.b) is IntImm:
                if e.b.value:
                    work.append((e.a, scale * e.b.value))
            else:
                known = self.forms.get(id(e))
                if known is None:
                    checkpoint()
                    rule = _RULES.get(kind, _Normalizer._opaque)
                    known = self.forms[id(e)] = e, rule(self, e)
                _accumulate(total, known[1], scale)
        return total

    # Rules: an expression of one class -> its polynomial

    def _multiply(self, e: Any) -> Polynomial:
        p, q = self.polynomial(e.a), self.polynomial(e.b)
        if not _is_expanded(p, q):
            return self._atom(("*", *sorted((_key(p), _key(q)))), e)
        return _product(p, q)

    def _floor_divide(self, e: Any) -> Polynomial:
        return self.floor_divide(self.polynomial(e.a), self.polynomial(e.b))

    def _floor_remainder(self, e: Any) -> Polynomial:
        p, q = self.polynomial(e.a), self.polynomial(e.b)
        return self._remainder(p, q, self.floor_divide(p, q), e)

    def _truncated_divide(self, e: Any) -> Polynomial:
        return self.truncated_divide(self.polynomial(e.a), self.polynomial(e.b), e)

    def _truncated_remainder(self, e: Any) -> Polynomial:
        p, q = self.polynomial(e.a), self.polynomial(e.b)
        return self._remainder(p, q, self.truncated_divide(p, q, e), e)

    def _remainder(self, p: Polynomial, q: Polynomial, quotient: Polynomial, e: Expr) -> Polynomial:
        if not _is_expanded(q, quotient):
            return self._opaque(e)
        return _sum(p, _product(q, quotient), -1)

    def _maximum(self, e: Any) -> Polynomial:
        return self._greatest(e, [self.polynomial(e.a), self.polynomial(e.b)], 1)

    def _minimum(self, e: Any) -> Polynomial:
        for x, other in ((e.a, e.b), (e.b, e.a)):
            if type(x) is IntImm and x.value >= _GREATEST:
                return self.polynomial(other)  # occurs in the length of x[a:] in TVM's text
        return self._greatest(e, [_scaled(self.polynomial(x), -1) for x in (e.a, e.b)], -1)

    def _greatest(self, e: Expr, choices: list[Polynomial], scale: int) -> Polynomial:
        """scale * the maximum of two polynomials, which is the value of e."""
        if sum([len(self._choices(p)) for p in choices]) > _MAX_OPERANDS:
            return self._atom(("extreme", scale, *sorted(map(_key, choices))), e)
        return _scaled(self.maximum(choices), scale)

    def _shift_left(self, e: Any) -> Polynomial:
        if type(e.b) is not IntImm or not 0 <= e.b.value < 64:
            return self._opaque(e)
        return _scaled(self.polynomial(e.a), 1 << e.b.value)

    def _shift_right(self, e: Any) -> Polynomial:
        if type(e.b) is not IntImm or not 0 <= e.b.value < 64:
            return self._opaque(e)
        return self.floor_divide(self.polynomial(e.a), {(): 1 << e.b.value})

    def _select(self, e: Any) -> Polynomial:
        condition = self.polynomial(e.condition)
        p, q = self.polynomial(e.true_value), self.polynomial(e.false_value)
        known = _constant(condition)
        if known is not None:
            return p if known else q
        if p == q:
            return p
        return self._atom(("select", _key(condition), _key(p), _key(q)), e)

    def _compare(self, e: Any) -> Polynomial:
        """A comparison becomes [difference < 0], [difference == 0], or 1 minus one of these."""
        if not (_is_integer(e.a) and _is_integer(e.b)):
            return self._opaque(e)
        kind = type(e)
        difference = _sum(self.polynomial(e.a), self.polynomial(e.b), -1)
        if kind is EQ or kind is NE:
            equal = self._is_zero(difference, e)
            return equal if kind is EQ else _sum(_ONE, equal, -1)
        if kind is LE or kind is GT:
            difference = _sum(difference, _ONE, -1)  # a <= b is a - b - 1 < 0
        negative = self._is_negative(difference, e)
        return negative if kind in (LT, LE) else _sum(_ONE, negative, -1)

    def _is_zero(self, p: Polynomial, e: Expr) -> Polynomial:
        low, high = self.interval(p)
        if low > 0 or high < 0:
            return {}
        if low == high == 0:
            return _ONE
        factor = gcd(*p.values())
        if p[_leading(p)] < 0:
            factor = -factor
        return self._atom(("zero", _key({m: c // factor for m, c in p.items()})), e)

    def _is_negative(self, p: Polynomial, e: Expr) -> Polynomial:
        low, high = self.interval(p)
        if high < 0:
            return _ONE
        if low >= 0:
            return {}
        if p[_leading(p)] < 0:  # p < 0 is not (-p - 1 < 0)
            return _sum(_ONE, self._is_negative(_sum(_scaled(p, -1), _ONE, -1), e), -1)
        # With integers, f * x + k < 0 is equivalent to x + floor(k / f) < 0.
        factor = _content(p)
        p = {m: c // factor for m, c in p.items() if c // factor}
        return self._atom(("negative", _key(p)), e)

    def _both(self, e: Any) -> Polynomial:
        return self._logic(e, And)

    def _either(self, e: Any) -> Polynomial:
        return self._logic(e, Or)

    def _logic(self, e: Any, kind: Any) -> Polynomial:
        """A chain of `and` or of `or`; order and repetition of its operands do not matter."""
        decided = 0 if kind is And else 1
        operands: dict[Any, Polynomial] = {}
        work = [e]
        while work:
            x = work.pop()
            if type(x) is kind:
                work += (x.b, x.a)
                continue
            p = self.polynomial(x)
            value = _constant(p)
            if value is None:
                operands[_key(p)] = p
            elif value == decided:
                return _scaled(_ONE, decided)
        if len(operands) < 2:
            return next(iter(operands.values())) if operands else _scaled(_ONE, 1 - decided)
        return self._atom((kind.SYMBOL, *sorted(operands)), e)

    def _negate(self, e: Any) -> Polynomial:
        return _sum(_ONE, self.polynomial(e.a), -1)

    def _opaque(self, e: Expr) -> Polynomial:
        return self._atom(self._written(e), e)

    def _atom(self, key: Any, e: Expr) -> Polynomial:
        return {(self.number(key, _Atom, e),): 1}

    def _written(self, value: Any) -> Any:
        """A structural key, in which integers are represented by their normal form."""
        if isinstance(value, (Var, Type)) and not isinstance(value, PrimType):
            return "object", self.of_var(value)
        if isinstance(value, FloatImm):
            return value.ty.dtype, struct.pack("d", value.value)
        if isinstance(value, tuple):
            return tuple(map(self._written, value))
        if isinstance(value, Mapping):
            return tuple((k, self._written(v)) for k, v in sorted(value.items()))
        if not isinstance(value, Node):
            return type(value), value
        if isinstance(value, Let):
            return "object", self.of_var(value)
        ty = getattr(value, "ty", None)
        dtype = ty.dtype if isinstance(ty, PrimType) else None
        parts = tuple(
            _key(self.polynomial(part))
            if isinstance(part, Expr) and _is_integer(part)
            else self._written(part)
            for part in (getattr(value, field) for field in value.FIELDS)
        )
        return type(value), dtype, parts

    # Operations on polynomials

    def floor_divide(self, p: Polynomial, q: Polynomial) -> Polynomial:
        """floor(p / q)"""
        negative = _constant(q) or 0
        if negative < 0 and p and p[_leading(p)] > 0:
            # -ceil(p / -q), so that p - p % -3 is (p + 2) // 3 * 3.
            rounded = _sum(p, _ONE, -negative - 1)
            return _scaled(self._divide_by_constant(rounded, -negative), -1)
        if q and q[_leading(q)] < 0:
            p, q = _scaled(p, -1), _scaled(q, -1)
        divisor = _constant(q)
        if divisor is not None:
            return self._divide_by_constant(p, divisor)
        if len(q) == 1:
            return self._divide_by_monomial(p, q)
        if not p:
            return {}
        exact = _exact_quotient(p, q)
        return exact if exact is not None else self._quotient_atom(p, q)

    def _divide_by_constant(self, p: Polynomial, divisor: int) -> Polynomial:
        if divisor == 0:
            return self._quotient_atom(p, {})
        whole = {m: c // divisor for m, c in p.items() if c // divisor}
        rest = {m: c % divisor for m, c in p.items() if c % divisor}
        factor = gcd(divisor, _content(rest))
        if factor > 1:
            divisor //= factor
            rest = {m: c // factor for m, c in rest.items() if c // factor}
        if divisor == 1:
            return _sum(whole, rest)
        if not rest or (len(rest) == 1 and () in rest):
            return whole
        inner = self._inner_quotient(rest)
        if inner is not None:
            # floor((floor(x / a) + y) / b) = floor((x + a y) / (a b)), y being an integer.
            atom = self.atoms[inner]
            assert isinstance(atom, _Quotient)
            a = atom.q[()]
            del rest[(inner,)]
            return _sum(whole, self._divide_by_constant(_sum(atom.p, rest, a), a * divisor))
        low, high = self.interval(rest)
        if low > -inf and high < inf and low // divisor == high // divisor:
            return _sum(whole, _ONE, int(low // divisor))
        return _sum(whole, self._quotient_atom(rest, {(): divisor}))

    def _inner_quotient(self, p: Polynomial) -> int | None:
        """The only atom of p that is a division by a constant, if its coefficient is 1."""
        found = None
        for monomial, coefficient in p.items():
            if len(monomial) == 1:
                atom = self.atoms[monomial[0]]
                if isinstance(atom, _Quotient) and _constant(atom.q):
                    if found is not None or coefficient != 1:
                        return None
                    found = monomial[0]
        return found

    def _divide_by_monomial(self, p: Polynomial, q: Polynomial) -> Polynomial:
        ((divisor, scale),) = q.items()
        whole: Polynomial = {}
        rest: Polynomial = {}
        for monomial, coefficient in p.items():
            quotient = _quotient(monomial, divisor)
            if quotient is None:
                rest[monomial] = coefficient
                continue
            if coefficient // scale:
                whole[quotient] = coefficient // scale
            if coefficient % scale:
                rest[monomial] = coefficient % scale
        if not rest:
            return whole
        common = list(divisor)
        for atom in divisor:
            if not all(m.count(atom) >= common.count(atom) for m in rest):
                common.remove(atom)
        factor = gcd(scale, *rest.values())
        if not common and factor == 1:
            return _sum(whole, self._quotient_atom(rest, q))
        rest = {_quotient(m, tuple(common)) or (): c // factor for m, c in rest.items()}
        q = {_quotient(divisor, tuple(common)) or (): scale // factor}
        return _sum(whole, self.floor_divide(rest, q))

    def _quotient_atom(self, p: Polynomial, q: Polynomial) -> Polynomial:
        if self.limits and len(q) > (() in q) and self._is_remainder(p, q):
            return {}
        return {(self.number(("//", _key(p), _key(q)), _Quotient, p, q),): 1}

    def _is_remainder(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether 0 <= p < q, as for the variable of a loop and its symbolic extent."""
        return self.interval(p)[0] >= 0 and self.interval(_sum(q, p, -1))[0] > 0

    def truncated_divide(self, p: Polynomial, q: Polynomial, e: Any) -> Polynomial:
        """p / q, rounded towards zero."""
        divisor = _constant(q)
        if divisor and all(c % divisor == 0 for c in p.values()):
            return {m: c // divisor for m, c in p.items()}
        if self.interval(p)[0] >= 0 and self.interval(q)[0] > 0:
            return self.floor_divide(p, q)
        key = ("truncdiv", _key(p), _key(q))
        return self._atom(key, e if type(e) is Div else Div(e.a, e.b))

    def maximum(self, choices: Iterable[Polynomial]) -> Polynomial:
        """The maximum of several polynomials."""
        flat = [choice for p in choices for choice in self._choices(p)]
        kept = self._without_dominated(flat)
        if len(kept) == 1:
            return kept[0]
        # Written relative to one of them, chosen by the differences alone, so that the result does
        # not depend on terms common to all.
        relative = [(tuple(sorted(_key(_sum(p, base, -1)) for p in kept)), base) for base in kept]
        keys, base = min(relative, key=lambda pair: pair[0])
        factor = gcd(*(c for key in keys for _, c in key))
        differences = tuple({m: c // factor for m, c in key} for key in keys)
        atom = self.number(("max", tuple(map(_key, differences))), _Maximum, differences)
        return _sum(base, {(atom,): factor})

    def _choices(self, p: Polynomial) -> list[Polynomial]:
        """The operands, if p is a maximum plus something; else p alone."""
        found = [
            monomial[0]
            for monomial, coefficient in p.items()
            if len(monomial) == 1
            and coefficient > 0
            and isinstance(self.atoms[monomial[0]], _Maximum)
        ]
        if len(found) != 1:
            return [p]
        (number,) = found
        atom = self.atoms[number]
        assert isinstance(atom, _Maximum)
        rest = dict(p)
        factor = rest.pop((number,))
        return [_sum(rest, choice, factor) for choice in atom.choices]

    def _without_dominated(self, choices: list[Polynomial]) -> list[Polynomial]:
        if len(choices) > _MAX_CHOICES:
            return list({_key(p): p for p in choices}.values())
        kept: list[Polynomial] = []
        for p in choices:
            if any(self.is_at_most(p, q) for q in kept):
                continue
            kept = [q for q in kept if not self.is_at_most(q, p)]
            kept.append(p)
        return kept

    # Bounds

    def is_at_most(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p <= q is provable."""
        difference = _sum(q, p, -1)
        return not self.ends(difference)[0] and self.interval(difference)[0] >= 0

    def ends(self, p: Polynomial) -> tuple[bool, bool]:
        """Whether p is known to have no least value, and no greatest one: it falls, or grows,
        without end while one variable goes on and on.  A search for bounds would find none, and
        take long for many maxima."""
        if self.limits:
            return False, False  # a variable may not go on without others
        total = self._slopes_of_sum(p)
        falls = grows = False
        for (number, direction), slope in (total or {}).items():
            if slope and self.bounds.get(number, _UNBOUNDED)[direction > 0] == direction * inf:
                falls = falls or slope < 0
                grows = grows or slope > 0
        return falls, grows

    def _slopes(self, number: int) -> Slopes | None:
        """The slopes of an atom; None if they are not known."""
        if number not in self.slopes:
            self.slopes[number] = self._slopes_of(self.atoms[number], number)
        return self.slopes[number]

    def _slopes_of(self, atom: _Atom, number: int) -> Slopes | None:
        if isinstance(atom, _Quotient):
            divisor = _constant(atom.q)
            found = self._slopes_of_sum(atom.p)
            if not divisor or found is None:
                return None
            return {ray: x / divisor for ray, x in found.items()}
        if isinstance(atom, _Maximum):
            choices = [self._slopes_of_sum(choice) for choice in atom.choices]
            known = [each for each in choices if each is not None]
            if len(known) < len(choices):
                return None
            rays = {ray for each in known for ray in each}
            return {ray: max(each.get(ray, _ZERO) for each in known) for ray in rays}
        if isinstance(atom.expr, Var):
            return {(number, 1): Fraction(1), (number, -1): Fraction(-1)}
        if isinstance(atom.expr, Select) and _is_integer(atom.expr):
            return self._slopes_of_select(atom.expr)
        return None

    def _slopes_of_select(self, e: Any) -> Slopes | None:
        """Far away, a comparison of two values that part is decided by their slopes."""
        condition = e.condition
        if type(condition) not in (LT, LE, GT, GE) or not _is_integer(condition.a):
            return None
        a, b = condition.a, condition.b
        if type(condition) in (GT, GE):
            a, b = b, a
        found = [
            self._slopes_of_sum(p)
            for p in (
                _sum(self.polynomial(b), self.polynomial(a), -1),
                self.polynomial(e.true_value),
                self.polynomial(e.false_value),
            )
        ]
        if None in found:
            return None
        distance, true, false = [each or {} for each in found]
        total: Slopes = {}
        for ray in distance.keys() | true.keys() | false.keys():
            x, y = true.get(ray, _ZERO), false.get(ray, _ZERO)
            parts = distance.get(ray, _ZERO)
            if not parts and x != y:
                return None
            total[ray] = x if parts > 0 else y
        return total

    def _slopes_of_sum(self, p: Polynomial) -> Slopes | None:
        total: Slopes = {}
        for monomial, coefficient in p.items():
            if monomial:
                found = self._slopes(monomial[0]) if len(monomial) == 1 else None
                if found is None:
                    return None
                for ray, slope in found.items():
                    total[ray] = total.get(ray, _ZERO) + coefficient * slope
        return total

    def interval(self, p: Polynomial, depth: int = _DEPTH) -> tuple[Bound, Bound]:
        """Bounds on the value of p, as far as they are known."""
        value = _constant(p)
        if value is not None:
            return value, value
        if not depth:
            return self._interval(p, 0)
        key = depth, _key(p)
        found = self.intervals.get(key)
        if found is not None:
            return found
        if self.ends(p) == (True, True):
            self.intervals[key] = _UNBOUNDED
            return _UNBOUNDED
        checkpoint()
        is_first = self.left is None
        if is_first:
            self.left = _MAX_QUESTIONS
        elif not self.left:
            return self._interval(p, 0)
        else:
            self.left -= 1
        self.asked += 1
        try:
            found = self.intervals[key] = self._interval(p, depth)
        finally:
            if is_first:
                self.left = None
        return found

    def _interval(self, p: Polynomial, depth: int) -> tuple[Bound, Bound]:
        low: Bound = p.get((), 0)
        high = low
        for monomial, coefficient in p.items():
            if monomial:
                a, b = self._monomial_interval(monomial, depth)
                if coefficient < 0:
                    a, b = b, a
                low += coefficient * a
                high += coefficient * b
        if depth and (low == -inf or high == inf or len(p) > 1):
            atoms = self._to_replace(p)
            quotients = [each for each in atoms if self._divisor(each)]
            if len(quotients) > _MOST_QUOTIENTS:
                first, last = self._without_quotients(p, quotients, depth)
                low, high = max(low, first), min(high, last)
                atoms = [each for each in atoms if each not in quotients]
            for monomial in atoms:
                if self.left == 0:
                    break
                tighter = self._by_atom(p, monomial, p[monomial], depth)
                if tighter is not None and tighter != (-inf, inf):
                    return max(low, tighter[0]), min(high, tighter[1])
        return low, high

    def _divisor(self, monomial: Monomial) -> int | None:
        """What an atom divides by, if that is a number."""
        atom = self.atoms[monomial[0]]
        return _constant(atom.q) if isinstance(atom, _Quotient) else None

    def _without_quotients(
        self, p: Polynomial, quotients: list[Monomial], depth: int
    ) -> tuple[Bound, Bound]:
        """Bounds of p, with all divisions by numbers replaced at once: d * floor(x / d) = x - m
        with m in [0, d)."""
        whole = lcm(*[self._divisor(each) or 1 for each in quotients])
        scaled = _scaled(p, whole)
        least = most = 0
        # A division within another one has the lower number, and its turn when the other one has
        # added to its coefficient.
        for each in sorted(quotients, reverse=True):
            atom, divisor = self.atoms[each[0]], self._divisor(each)
            assert isinstance(atom, _Quotient)
            assert divisor
            factor = scaled.pop(each, 0)
            if factor % divisor:
                more = divisor // gcd(divisor, factor)
                scaled, factor = _scaled(scaled, more), factor * more
                whole, least, most = whole * more, least * more, most * more
            factor //= divisor
            _accumulate(scaled, atom.p, factor)
            slack = -factor * (divisor - 1)
            least, most = least + min(0, slack), most + max(0, slack)
        low, high = self.interval(scaled, depth - 1)
        return -(-(low + least) // whole) if low > -inf else low, (
            (high + most) // whole if high < inf else high
        )

    def _to_replace(self, p: Polynomial) -> list[Monomial]:
        """The atoms of p by which to look for bounds, maxima first: those lose nothing, divisions
        the remainder."""
        found: list[Monomial] = [monomial for monomial in p if len(monomial) == 1]
        found.sort(key=lambda monomial: not isinstance(self.atoms[monomial[0]], _Maximum))
        return found

    def _by_atom(
        self, p: Polynomial, monomial: Monomial, coefficient: int, depth: int
    ) -> tuple[Bound, Bound] | None:
        """Bounds of p that follow from how one of its atoms relates to others."""
        atom = self.atoms[monomial[0]]
        rest = dict(p)
        del rest[monomial]
        if monomial[0] in self.limits:
            first, last = self.limits[monomial[0]]
            if coefficient < 0:
                first, last = last, first
            return (
                -inf if first is None
                else self.interval(_sum(rest, first, coefficient), depth - 1)[0],
                inf if last is None
                else self.interval(_sum(rest, last, coefficient), depth - 1)[1],
            )  # fmt: skip
        if isinstance(atom, _Maximum):
            ends = [self.interval(_sum(rest, c, coefficient), depth - 1) for c in atom.choices]
            lows, highs = [low for low, _ in ends], [high for _, high in ends]
            if coefficient > 0:
                return max(lows), max(highs)
            return min(lows), min(highs)
        if isinstance(atom, _Quotient) and rest:
            divisor = _constant(atom.q)
            if divisor:
                # d * floor(x / d) = x - m with m in [0, d); so compute bounds of d * p.
                scaled = _sum(_scaled(rest, divisor), atom.p, coefficient)
                low, high = self.interval(scaled, depth - 1)
                slack = -coefficient * (divisor - 1)
                low, high = low + min(0, slack), high + max(0, slack)
                return -(-low // divisor) if low > -inf else low, (
                    high // divisor if high < inf else high
                )
        return None

    def _monomial_interval(self, monomial: Monomial, depth: int) -> tuple[Bound, Bound]:
        low: Bound = 1
        high: Bound = 1
        at = 0
        while at < len(monomial):
            atom = monomial[at]
            power = monomial.count(atom)
            at += power
            a, b = self._atom_interval(atom, depth)
            ends = [_times(x, y) for x in (low, high) for y in _powers(a, b, power)]
            low, high = min(ends), max(ends)
        return low, high

    def _atom_interval(self, number: int, depth: int) -> tuple[Bound, Bound]:
        known = self.bounds.get(number)
        if known is not None:
            return known
        atom = self.atoms[number]
        if depth == 0:
            return -inf, inf
        if isinstance(atom, _Quotient):
            return self._quotient_interval(atom, depth)
        if isinstance(atom, _Maximum):
            ends = [self.interval(p, depth - 1) for p in atom.choices]
            return max(low for low, _ in ends), max(high for _, high in ends)
        expr = atom.expr
        if isinstance(expr, Select) and _is_integer(expr):
            a = self.interval(self.polynomial(expr.true_value), depth - 1)
            b = self.interval(self.polynomial(expr.false_value), depth - 1)
            return min(a[0], b[0]), max(a[1], b[1])
        if expr is not None and expr.ty.dtype == "bool":
            return 0, 1
        return -inf, inf

    def _quotient_interval(self, atom: _Quotient, depth: int) -> tuple[Bound, Bound]:
        low, high = self.interval(atom.p, depth - 1)
        divisor = _constant(atom.q)
        if divisor is not None:
            if divisor == 0:
                return -inf, inf
            return _floor(low, divisor), _floor(high, divisor)
        if self.interval(atom.q, depth - 1)[0] <= 0:
            return -inf, inf
        # A positive divisor moves a value towards zero, but a negative value at most to -1.
        return (0 if low >= 0 else low), (high if high >= 0 else -1)


def _floor(value: Bound, divisor: int) -> Bound:
    return value if value in (inf, -inf) else value // divisor


def _times(x: Bound, y: Bound) -> Bound:
    return 0 if x == 0 or y == 0 else x * y


def _powers(low: Bound, high: Bound, power: int) -> tuple[Bound, Bound]:
    """The interval of x ** power for x in [low, high]."""
    if power == 1:
        return low, high
    a, b = low**power, high**power
    if power % 2:
        return a, b
    if low <= 0 <= high:
        return 0, max(a, b)
    return min(a, b), max(a, b)


_RULES: Final[dict[type, Callable[[_Normalizer, Any], Polynomial]]] = {
    Mul: _Normalizer._multiply,
    FloorDiv: _Normalizer._floor_divide,
    FloorMod: _Normalizer._floor_remainder,
    Div: _Normalizer._truncated_divide,
    Mod: _Normalizer._truncated_remainder,
    Max: _Normalizer._maximum,
    Min: _Normalizer._minimum,
    LShift: _Normalizer._shift_left,
    RShift: _Normalizer._shift_right,
    Select: _Normalizer._select,
    And: _Normalizer._both,
    Or: _Normalizer._either,
    Not: _Normalizer._negate,
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), _Normalizer._compare),
}


# Back to expressions


class _Simplifier:
    """Builds short expressions, in TVM's order: positive terms before negative ones, by decreasing
    coefficient, then in order of appearance; factors in order of appearance, the constant last.

    There are two candidates.  One keeps the structure and collects equal terms; the other is built
    from the normal form, with products expanded.  The shorter one wins, in a tie the first.
    """

    __slots__ = ("done", "expressions", "normalizer")

    def __init__(self, normalizer: _Normalizer) -> None:
        self.normalizer = normalizer
        self.done: dict[int, tuple[Expr, Expr]] = {}
        self.expressions: dict[tuple[Any, str], Expr | ExprSizeError] = {}
        """Key of a polynomial and data type -> its expression, or why there is none.  Nested maxima
        and divisions occur in many polynomials."""

    def simplify(self, e: Expr) -> Expr:
        """Return a shorter expression of the same value, or the expression itself."""
        checkpoint()
        if not e.FIELDS or isinstance(e, (IntImm, FloatImm)):
            return e
        known = self.done.get(id(e))
        if known is not None:
            return known[1]
        result = self._simplify(e)
        self.done[id(e)] = e, result
        self.done[id(result)] = result, result
        return result

    def _simplify(self, e: Expr) -> Expr:
        if not _is_integer(e):
            return _map_parts(e, self.simplify)
        try:
            best = self._best(e)
        except OverflowError:
            return e  # the coefficients of polynomials may exceed every data type
        return e if _identical(e, best) else best

    def _best(self, e: Expr) -> Expr:
        p = self.normalizer.polynomial(e)
        value = _constant(p)
        if value is not None:
            return prim.immediate(e.ty.dtype, value)
        if e.ty.dtype == "bool":
            return self._condition(e)
        best = self._collected(e)
        if isinstance(best, Var):
            return best
        try:
            multiplied = self.expression(p, e.ty.dtype)
        except ExprSizeError:
            return best
        return multiplied if multiplied._parts < best._parts + _divides_sum(e) else best

    # By structure

    def _collected(self, e: Expr) -> Expr:
        """The expression with equal terms of sums collected."""
        terms: dict[Any, list[Any]] = {}
        work: list[tuple[Any, int]] = [(e, 1)]
        while work:
            x, scale = work.pop()
            kind = type(x)
            if kind is Add:
                work += ((x.b, scale), (x.a, scale))
            elif kind is Sub:
                work += ((x.b, -scale), (x.a, scale))
            else:
                factors, constant = self._factors(x)
                scale *= constant
                if len(factors) == 1 and type(factors[0]) in (Add, Sub):
                    work.append((factors[0], scale))
                    continue
                key = tuple(sorted(_key(self.normalizer.polynomial(f)) for f in factors))
                term = terms.setdefault(key, [0, factors])
                term[0] += scale
        return _build_sum([(c, factors) for c, factors in terms.values() if c], e.ty.dtype)

    def _factors(self, e: Expr) -> tuple[list[Expr], int]:
        """The non-constant factors of a product, and its constant factor."""
        factors: list[Expr] = []
        constant = 1
        work = [e]
        while work:
            x = work.pop()
            if type(x) is Mul:
                work += (x.b, x.a)
            elif type(x) is IntImm:
                constant *= x.value
            elif x is e or isinstance(x, Var):
                factors.append(x if isinstance(x, Var) else self._atom(x))
            else:
                simple = self.simplify(x)
                if type(simple) in (Mul, IntImm):
                    work.append(simple)
                else:
                    factors.append(simple)
        if constant == 0:
            return [], 0
        return factors, constant

    def _atom(self, e: Expr) -> Expr:
        """Simplify the operands of an expression that is neither a sum nor a product."""
        return _map_parts(e, self.simplify)

    def _condition(self, e: Any) -> Expr:
        kind = type(e)
        if not isinstance(e, CmpExpr) or kind in (And, Or) or not _is_integer(e.a):
            if kind is Not and type(e.a) in _OPPOSITE:
                return self.simplify(_OPPOSITE[type(e.a)](e.a.a, e.a.b))
            return _map_parts(e, self.simplify)
        if kind is GT or kind is GE:
            kind, e = (LT, LT(e.b, e.a)) if kind is GT else (LE, LE(e.b, e.a))
        kept: Expr = kind(self.simplify(e.a), self.simplify(e.b))
        n = self.normalizer
        difference = _sum(n.polynomial(e.a), n.polynomial(e.b), -1)
        try:
            moved = self._compared(kind, difference, e.a.ty.dtype)
        except ExprSizeError:
            return kept
        return moved if moved._parts < kept._parts else kept

    def _compared(self, kind: Any, difference: Polynomial, dtype: str) -> Expr:
        """A comparison of a difference with 0, with the negative terms moved to the other side."""
        factor = _content(difference)
        if kind in (EQ, NE):
            factor = gcd(factor, difference.get((), 0))
        rest = {m: c // factor for m, c in difference.items() if m}
        constant = difference.get((), 0)
        # x * f + k < 0 is x < ceil(-k / f);  x * f + k <= 0 is x <= floor(-k / f)
        constant = constant // factor if kind is LT else -(-constant // factor)
        left = {m: c for m, c in rest.items() if c > 0}
        right = {m: -c for m, c in rest.items() if c < 0}
        if constant:
            (left if constant > 0 and left else right)[()] = (
                constant if constant > 0 and left else -constant
            )
        result: Expr = kind(self.expression(left, dtype), self.expression(right, dtype))
        return result

    # From the normal form

    def expression(self, p: Polynomial, dtype: str) -> Expr:
        """A polynomial as an expression.

        Raises:
            ExprSizeError: it would be too long.
        """
        key = _key(p), dtype
        found = self.expressions.get(key)
        if found is None:
            try:
                found = self._expression(p, dtype)
            except ExprSizeError as error:
                found = error
            self.expressions[key] = found
        if isinstance(found, ExprSizeError):
            raise found
        return found

    def _expression(self, p: Polynomial, dtype: str) -> Expr:
        rest = dict(p)
        terms: list[tuple[int, list[Expr]]] = []
        atoms = self.normalizer.atoms
        for monomial in p:
            if len(monomial) == 1 and monomial in rest:
                atom = atoms[monomial[0]]
                if isinstance(atom, _Maximum):
                    terms.append(self._extreme(atom, rest, monomial, dtype))
        for monomial in p:
            for number in monomial:
                atom = atoms[number]
                if isinstance(atom, _Quotient) and atom.q:
                    self._take_remainder(atom, number, rest, terms, dtype)
        for monomial in sorted(rest, key=lambda m: (not m, len(m), m)):
            factors = [self._atom_expression(atoms[number], dtype) for number in monomial]
            terms.append((rest[monomial], factors))
        return _build_sum(terms, dtype)

    def _atom_expression(self, atom: _Atom, dtype: str) -> Expr:
        if isinstance(atom, _Quotient):
            return FloorDiv(self.expression(atom.p, dtype), self.expression(atom.q, dtype))
        if isinstance(atom, _Maximum):
            rest: Polynomial = {}
            return self._extreme_of(Max, [dict(c) for c in atom.choices], rest, dtype)
        expr: Expr = atom.expr
        return expr

    def _extreme(
        self, atom: _Maximum, rest: Polynomial, monomial: Monomial, dtype: str
    ) -> tuple[int, list[Expr]]:
        """Remove a maximum or minimum from `rest`, absorbing the terms of `rest` that cancel in
        its operands."""
        coefficient = rest.pop(monomial)
        size = abs(coefficient)
        shared: Polynomial = {}
        for choice in atom.choices:
            for m in choice:
                if m in rest and rest[m] % size == 0:
                    shared[m] = rest.pop(m) // size
        sign = 1 if coefficient > 0 else -1
        choices = [_sum(shared, choice, sign) for choice in atom.choices]
        kind = Max if sign > 0 else Min
        return size, [self._extreme_of(kind, choices, rest, dtype)]

    def _extreme_of(
        self, kind: Any, choices: list[Polynomial], rest: Polynomial, dtype: str
    ) -> Expr:
        ordered = sorted(choices, key=lambda c: (not any(c), sorted(c)))
        result, *others = [self.expression(choice, dtype) for choice in ordered]
        for other in others:
            result = kind(result, other)
        return result

    def _take_remainder(
        self,
        atom: _Quotient,
        number: int,
        rest: Polynomial,
        terms: list[tuple[int, list[Expr]]],
        dtype: str,
    ) -> None:
        """Turn s * x - s * q * (x // q) in `rest` into the term s * (x % q), if that is shorter."""
        lead = _leading(atom.q)
        coefficient = rest.get(tuple(sorted((*lead, number))), 0)
        if not coefficient or coefficient % atom.q[lead]:
            return
        scale = -(coefficient // atom.q[lead])
        without = _sum(rest, _product(atom.q, {(number,): 1}), scale)
        _accumulate(without, atom.p, -scale)
        if len(without) + 1 < len(rest):
            remainder = FloorMod(self.expression(atom.p, dtype), self.expression(atom.q, dtype))
            terms.append((scale, [remainder]))
            rest.clear()
            rest.update(without)


_OPPOSITE: Final[dict[type, Callable[[Expr, Expr], Expr]]] = {
    LT: GE, LE: GT, GT: LE, GE: LT, EQ: NE, NE: EQ
}  # fmt: skip


def _divides_sum(e: Expr) -> bool:
    """Whether to prefer the normal form even if it is not shorter: (n + 4) // 4 is n // 4 + 1."""
    return type(e) is FloorMod or (type(e) is FloorDiv and type(e.a) in (Add, Sub))


def _build_sum(terms: list[tuple[int, list[Expr]]], dtype: str) -> Expr:
    """The sum of the terms, each a coefficient and factors, in order."""
    total: Expr | None = None
    ordered = sorted(terms, key=_term_order)
    if (
        ordered
        and ordered[0][1]
        and (ordered[0][0] == -1 or (ordered[0][0] < 0 and len(ordered) > 1))
    ):
        total = prim.immediate(dtype, 0)
    for coefficient, factors in ordered:
        if total is None:
            total = _build_product(coefficient, factors, dtype)
        elif coefficient < 0:
            total = Sub(total, _build_product(-coefficient, factors, dtype))
        else:
            total = Add(total, _build_product(coefficient, factors, dtype))
    return prim.immediate(dtype, 0) if total is None else total


def _term_order(term: tuple[int, list[Expr]]) -> tuple[bool, bool, int, int]:
    coefficient, factors = term
    divisor = 0
    if len(factors) == 1 and type(factors[0]) is FloorDiv and type(factors[0].b) is IntImm:
        divisor = factors[0].b.value
    return coefficient < 0, not factors, -coefficient, -divisor


def _build_product(coefficient: int, factors: list[Expr], dtype: str) -> Expr:
    product: Expr | None = None
    for factor in factors:
        product = factor if product is None else Mul(product, factor)
    if product is None:
        return prim.immediate(dtype, coefficient)
    return product if coefficient == 1 else Mul(product, prim.immediate(dtype, coefficient))


# Walks


def _parts(e: Node) -> list[Expr]:
    """The direct operands of a scalar expression, in order."""
    if isinstance(e, BinaryOpExpr):
        return [e.a, e.b]
    parts: list[Expr] = []
    for field in e.FIELDS:
        value = getattr(e, field)
        if isinstance(value, Expr):
            parts.append(value)
        elif isinstance(value, tuple):
            parts += [x for x in value if isinstance(x, Expr)]
    return parts


def _identical(a: Any, b: Any) -> bool:
    """A quick check whether two scalars are written the same way; may miss cases."""
    while a is not b:
        kind = type(a)
        if kind is not type(b):
            return False
        if kind is IntImm:
            return bool(a.value == b.value and a.ty.dtype == b.ty.dtype)
        if not isinstance(a, BinaryOpExpr):
            return False
        if not _identical(a.b, b.b):
            return False
        a, b = a.a, b.a
    return True


_MAKERS: Final[dict[type, Callable[[Any, Any], Expr]]] = {
    Add: prim.add,
    Sub: prim.subtract,
    Mul: prim.multiply,
    FloorDiv: prim.floordiv,
    FloorMod: prim.floormod,
    Div: prim.truncdiv,
    Mod: prim.truncmod,
    Min: prim.minimum,
    Max: prim.maximum,
    EQ: prim.equal,
    NE: prim.not_equal,
    And: prim.logical_and,
    Or: prim.logical_or,
}


def _map_parts(e: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Apply a function to each operand; returns the expression itself if none changes."""
    if isinstance(e, BinaryOpExpr):
        a, b = change(e.a), change(e.b)
        if a is e.a and b is e.b:
            return e
        maker = _MAKERS.get(type(e))
        if maker is None or (type(e) is Div and prim.is_float(e.ty.dtype)):
            return prim._fold(type(e), a, b)
        return maker(a, b)
    changed: dict[str, Any] = {}
    for field in e.FIELDS:
        value = getattr(e, field)
        new: Any = value
        if field in e.DEFS:
            continue
        if isinstance(value, Expr):
            new = change(value)
        elif isinstance(value, tuple) and any(isinstance(x, Expr) for x in value):
            items = tuple(change(x) if isinstance(x, Expr) else x for x in value)
            if any(x is not y for x, y in zip(items, value, strict=True)):
                new = items
        if new is not value:
            changed[field] = new
    return _with_fields(e, changed) if changed else e


def _with_fields(e: Expr, changed: Mapping[str, Any]) -> Expr:
    if type(e) is Select:
        fields = {field: changed.get(field, getattr(e, field)) for field in e.FIELDS}
        return prim.select(*fields.values())
    if type(e) is Cast:
        return prim.cast(changed["value"], e.ty.dtype)
    if type(e) is Not:
        return prim.logical_not(changed["a"])
    new = object.__new__(type(e))
    for cls in type(e).__mro__:
        for slot in getattr(cls, "__slots__", ()):
            if hasattr(e, slot):
                setattr(new, slot, changed.get(slot, getattr(e, slot)))
    count_parts(new)
    return new


# Public functions


def free_vars(e: Expr) -> list[Var]:
    """Return the variables that a scalar expression uses and does not define, each once, in order
    of first appearance."""
    if isinstance(e, Var):
        return [e]
    if type(e) is IntImm:
        return []
    found: dict[Var, None] = {}
    bound: set[Var] = set()
    work = [e]
    while work:
        x = work.pop()
        if isinstance(x, Var):
            if x not in bound:
                found[x] = None
        elif isinstance(x, Let):
            for var in (*free_vars(x.value), *(v for v in free_vars(x.body) if v is not x.var)):
                found[var] = None
        elif type(x) is not IntImm:
            work += reversed(_parts(x))
    return list(found)


def substitute(e: Expr, values: Mapping[Var, Any]) -> Expr:
    """Return a scalar expression with variables replaced by expressions or numbers.  Constants are
    folded and neutral elements dropped; unchanged subexpressions stay the same objects."""
    return _Substitution(values)(e)


class _Substitution:
    """Changes expressions.  It is no local function that calls itself: that would be a cycle, and
    keep the values, which may be large constants, until the next run of the garbage collector."""

    __slots__ = ("_done", "_values")

    def __init__(self, values: Mapping[Var, Any]) -> None:
        self._values = values
        self._done: dict[int, Expr] = {}  # shared expressions stay shared

    def __call__(self, x: Expr) -> Expr:
        if isinstance(x, Var):
            if x not in self._values:
                return x
            value = self._values[x]
            return value if isinstance(value, Expr) else prim.as_scalar(value, x.ty.dtype)
        if type(x) is IntImm:
            return x
        new = self._done.get(id(x))
        if new is None:
            new = self._done[id(x)] = _map_parts(x, self)
        return new


def evaluate(e: Any, values: Mapping[Var, int]) -> Any:
    """Return the value of a scalar expression as a Python number; integers do not overflow.

    Raises:
        ValueError: a variable has no value, or the expression is not arithmetic.
        ZeroDivisionError: a division by zero.
    """
    kind = type(e)
    if isinstance(e, (IntImm, FloatImm)):
        return e.value
    if isinstance(e, Var):
        if e not in values:
            raise ValueError(f"variable {e.name!r} has no value")
        return values[e]
    if kind is And:
        return bool(evaluate(e.a, values) and evaluate(e.b, values))
    if kind is Or:
        return bool(evaluate(e.a, values) or evaluate(e.b, values))
    if isinstance(e, BinaryOpExpr):
        return type(e).EVALUATE(evaluate(e.a, values), evaluate(e.b, values))
    if isinstance(e, Not):
        return not evaluate(e.a, values)
    if isinstance(e, prim.BitwiseNot):
        return ~evaluate(e.a, values)
    if isinstance(e, Select):
        chosen = e.true_value if evaluate(e.condition, values) else e.false_value
        return evaluate(chosen, values)
    if isinstance(e, Let):
        return evaluate(e.body, {**values, e.var: evaluate(e.value, values)})
    if isinstance(e, Cast):
        value = evaluate(e.value, values)
        return float(value) if prim.is_float(e.ty.dtype) else int(value)
    raise ValueError(f"a {kind.__name__} cannot be evaluated before the program runs")


class Analyzer:
    """Proves facts about symbolic integers from the bounds of variables.

    A variable without bounds may be any integer.  The methods are sound but not complete: False
    means not proven.
    """

    __slots__ = ("_expressions", "_normalizer")

    def __init__(self) -> None:
        self._normalizer = _Normalizer()
        self._expressions: dict[int, tuple[Sequence[Expr | None], set[int]]] = {}
        """Number of a variable -> its bounds, if they are expressions, and the numbers of the
        variables in them."""

    def bind(self, var: Var, lower: Any = None, upper: Any = None) -> None:
        """Set the bounds of a variable: at least `lower` and at most `upper`.  Each is an int, an
        expression of other variables, or None for no bound.  Replaces earlier bounds."""
        n = self._normalizer
        number = n.of_var(var)
        ends = [None if x is None else prim.as_scalar(x) for x in (lower, upper)]
        is_replaced = number in n.bounds
        self._clear(number)
        self._set(number, ends)
        if is_replaced:
            # Bounds that mention the variable were simplified with the earlier ones.
            again = self._that_mention(number)
            for other in again:
                self._clear(other)
            for other in again:
                self._set(other, self._expressions[other][0])
        used = {n.of_var(v) for end in ends if end is not None for v in free_vars(end)}
        if used:
            self._expressions[number] = ends, used
        else:
            self._expressions.pop(number, None)

    def _that_mention(self, number: int) -> list[int]:
        """The variables whose bounds depend on the bounds of a variable, in order of their first
        bounds."""
        found = {number}
        while True:
            more = {
                other
                for other, (_, used) in self._expressions.items()
                if other not in found and not found.isdisjoint(used)
            }
            if not more:
                return [other for other in self._expressions if other in found - {number}]
            found |= more

    def _clear(self, number: int) -> None:
        """Remove the bounds of the variable with a number."""
        n = self._normalizer
        n.bounds[number] = _UNBOUNDED
        n.limits.pop(number, None)
        n.intervals.clear()
        n.forms.clear()

    def _set(self, number: int, ends: Sequence[Expr | None]) -> None:
        """Set the bounds of the variable with a number."""
        n = self._normalizer
        forms = [None if end is None else n.polynomial(end) for end in ends]
        constants = [None if p is None else _constant(p) for p in forms]
        n.intervals.clear()
        n.forms.clear()
        n.bounds[number] = (
            -inf if constants[0] is None else constants[0],
            inf if constants[1] is None else constants[1],
        )
        if any(p is not None and value is None for p, value in zip(forms, constants, strict=True)):
            n.limits[number] = forms[0], forms[1]

    def simplify(self, e: Expr) -> Expr:
        """Return a short expression of the same value; the same object if nothing changes."""
        if e._parts <= _SMALL:
            return _Simplifier(self._normalizer).simplify(e)
        with headroom("simplify", e):
            return _Simplifier(self._normalizer).simplify(e)

    def prove_equal(self, a: Any, b: Any) -> bool:
        """Check whether two scalars are provably equal."""
        if a is b:
            return True
        a, b = _operands(a, b)
        if _identical(a, b):
            return True
        if not (_is_integer(a) and _is_integer(b)):
            return self._same_as_written(a, b)
        if a._parts + b._parts <= _SMALL:
            return self._equal_forms(a, b)
        with headroom("prove_equal", a, b):
            return self._equal_forms(a, b)

    def _equal_forms(self, a: Expr, b: Expr) -> bool:
        n = self._normalizer
        p, q = n.polynomial(a), n.polynomial(b)
        if p == q:
            return True
        difference = _sum(p, q, -1)
        return not any(n.ends(difference)) and n.interval(difference) == (0, 0)

    def _same_as_written(self, a: Expr, b: Expr) -> bool:
        if a.ty.dtype != b.ty.dtype:
            return False
        n = self._normalizer
        return bool(n._written(a) == n._written(b))

    def prove(self, condition: Any) -> bool:
        """Check whether a condition provably holds."""
        if isinstance(condition, bool):
            return condition
        return _constant(self._normalizer.polynomial(condition)) == 1

    def const_bounds(self, e: Expr) -> tuple[int | float, int | float]:
        """Return the least and the greatest value of an integer; ``-math.inf`` and ``math.inf``
        where there is no bound or it is not known."""
        n = self._normalizer
        return n.interval(n.polynomial(e))

    def normal_form(self, e: Expr) -> Polynomial:
        """Return the normal form of an integer expression, a polynomial over this analyzer's
        atoms; do not modify it.  Expressions with equal normal forms are equal."""
        return self._normalizer.polynomial(e)

    def bounds_of(self, p: Polynomial) -> tuple[int | float, int | float]:
        """Return `const_bounds` of a polynomial over this analyzer's atoms."""
        return self._normalizer.interval(p)

    def quick_bounds_of(self, p: Polynomial) -> tuple[int | float, int | float]:
        """As `bounds_of`, from the bounds of the atoms alone: in linear time."""
        return self._normalizer.interval(p, 0)

    def is_at_most(self, p: Polynomial, q: Polynomial) -> bool:
        """Whether p <= q is provable, for polynomials over this analyzer's atoms."""
        return self._normalizer.is_at_most(p, q)

    @property
    def asked(self) -> int:
        """For how many polynomials bounds have been searched for: a measure of the time."""
        return self._normalizer.asked

    def expression_of(self, p: Polynomial) -> Expr:
        """Return a polynomial over this analyzer's atoms as an int64 expression."""
        return _Simplifier(self._normalizer).expression(p, "int64")


def _operands(a: Any, b: Any) -> Sequence[Expr]:
    return (
        a if isinstance(a, Expr) else prim.as_scalar(a),
        b if isinstance(b, Expr) else prim.as_scalar(b),
    )


def simplify(e: Expr) -> Expr:
    """Return a short expression that has the same value for all values of its variables.  It is in
    TVM's form where that form is cheap to find: ``20 * m * 4`` becomes ``m * 80``."""
    return Analyzer().simplify(e)


def prove_equal(a: Any, b: Any) -> bool:
    """Check whether two scalars are provably equal for all values of their variables."""
    return a is b or Analyzer().prove_equal(a, b)


def prove(condition: Any) -> bool:
    """Check whether a condition provably holds for all values of its variables."""
    return Analyzer().prove(condition)
