"""Cases of elementwise operators.

Each row of `_UNARY` and `_BINARY` describes an operator: `_unary` and `_binary` make its cases, for
all data types that it accepts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from .table import ROUNDED, cases, kernel, rounded

FLOATS, INTEGERS = "fhd", "ijusw"
NUMBERS, BITS, ANY = f"{FLOATS}{INTEGERS}", f"{INTEGERS}b", f"{FLOATS}{INTEGERS}b"
"""What operators take: letters of `notation.DTYPES`, in the words of `EXPECTED`."""

EXPECTED = {FLOATS: "floats", NUMBERS: "numbers", INTEGERS: "integers",
            BITS: "integers or bools"}  # fmt: skip
DTYPES = {"f": "float32", "h": "float16", "d": "float64", "i": "int64", "j": "int32", "s": "int8",
          "u": "uint8", "w": "uint16",
          "b": "bool"}  # fmt: skip

FUNCTION = rounded(4)
"""Bounds of functions such as exp, as numpy's vector loops compute them."""


class Row(NamedTuple):
    """An operator in one row.

    Attributes:
        takes: the data types of its operands.
        reference: computes the exact result.
        ulps: see `Cases`.
        gives: letter of the result's data type, if it differs from the operands'.
        within: see `Cases`.
        special: whether to test infinities, NaN and the ends of the range.
        of_largest: see `Cases`.
        in_tvm: see `Cases`.
    """

    takes: str
    reference: Callable[..., Any]
    ulps: Any = ROUNDED
    gives: str = ""
    within: Any = (-9, 9)
    special: bool = True
    of_largest: bool = False
    in_tvm: bool = True


COMPARISONS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
)
"""Operators whose tensors may have two data types."""


def per_element(function: Callable[..., Any]) -> Callable[..., Any]:
    """Apply a function of Python numbers to each element; NaN if it raises ValueError."""

    def element(*args: Any) -> Any:
        try:
            return function(*args)
        except ValueError:
            return math.nan

    def apply(*operands: Any) -> Any:
        arrays = np.broadcast_arrays(*[
            x if isinstance(x, np.ndarray) else np.asarray(x, object) for x in operands
        ])  # fmt: skip
        out = np.empty(arrays[0].shape, object)
        for i in np.ndindex(out.shape):
            out[i] = element(*[
                float(x[i]) if isinstance(x[i], (np.floating, float)) else x[i] for x in arrays
            ])  # fmt: skip
        return out

    return apply


def whole(function: Callable[[Any], int]) -> Callable[..., Any]:
    """A rounding by a `function` of fractions; keeps signs of zeros and values not finite."""

    def rounding(x: Any) -> Any:
        if isinstance(x, (int, np.bool_)) or not math.isfinite(x):
            return x
        return math.copysign(abs(function(Fraction(x))), x)

    return per_element(rounding)


def remainder(floored: bool) -> Callable[..., Any]:
    """The remainder of a division that rounds down or towards zero, computed with fractions."""

    def element(a: Any, b: Any) -> Any:
        if isinstance(a, int):
            return a - b * (a // b if floored else int(Fraction(a, b)))
        if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
            return math.nan
        if math.isinf(b):
            return a if not floored or a == 0 or (a > 0) == (b > 0) else b
        quotient = Fraction(a) / Fraction(b)
        return Fraction(a) - Fraction(b) * (math.floor(quotient) if floored else int(quotient))

    def apply(*operands: Any) -> Any:
        found = per_element(element)(*operands)
        if found.size and isinstance(found.reshape(-1)[0], int):
            return found
        # Fractions of float64 operands have no more digits than long doubles.
        numbers = [
            np.longdouble(x.numerator) / np.longdouble(x.denominator)
            if isinstance(x, Fraction) else np.longdouble(x) for x in found.reshape(-1)
        ]  # fmt: skip
        return np.array(numbers, np.longdouble).reshape(found.shape)

    return apply


def quotient(a: Any, b: Any) -> Any:
    """The quotient; for integers, without the fraction."""
    if np.asarray(a).dtype == object and np.asarray(b).dtype == object:
        return per_element(lambda x, y: int(Fraction(x, y)))(a, b)
    return a / b


def floored(a: Any, b: Any) -> Any:
    def element(x: Any, y: Any) -> Any:
        if isinstance(x, int):
            return x // y
        return math.floor(Fraction(x) / Fraction(y))

    return per_element(element)(a, b)


def log_add_exp(a: Any, b: Any) -> Any:
    more = np.where(a == b, np.log(np.longdouble(2)), np.log1p(np.exp(-abs(a - b))))
    return greatest(a, b) + more


def power(a: Any, b: Any) -> Any:
    return a**b


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


ERF = per_element(math.erf)


def erf(x: Any) -> Any:
    """The error function to 64 bits: its series, or the continued fraction of its complement."""

    def element(x: Any) -> Any:
        if math.isnan(x) or math.isinf(x) or abs(x) > 7:
            return np.longdouble(x if math.isnan(x) else math.copysign(1, x))
        if abs(x) < 1e-6:
            y = np.longdouble(x)
            return 2 * y / np.sqrt(PI) * (1 - y * y / 3)
        z = Fraction(x)
        if abs(x) < 4:
            term, total, k = z, z, 0
            while abs(term) > Fraction(1, 1 << 80) * abs(total):
                k += 1
                term = _short(term * -z * z / k)
                total += term / (2 * k + 1)
            return np.longdouble(2) * _long(total) / np.sqrt(PI)
        tail = Fraction(0)
        for k in range(80, 0, -1):
            tail = _short(Fraction(k, 2) / (abs(z) + tail))
        y = np.longdouble(abs(x))
        complement = np.exp(-y * y) / (np.sqrt(PI) * _long(abs(z) + tail))
        return np.longdouble(math.copysign(1, x)) * (1 - complement)

    out = np.empty(np.shape(x), np.longdouble)
    for i in np.ndindex(out.shape):
        out[i] = element(float(x[i])) if x[i] else x[i]
    return out


PI = 4 * np.arctan(np.longdouble(1))


def _short(x: Fraction) -> Fraction:
    """Round to about 110 bits, so that numbers do not grow."""
    excess = x.denominator.bit_length() - 400
    if excess <= 0:
        return x
    return Fraction(x.numerator >> excess, x.denominator >> excess)


def _long(x: Fraction) -> Any:
    if not x:
        return np.longdouble(0)
    scale = x.denominator.bit_length() - abs(x.numerator).bit_length() + 63
    digits = x.numerator * 2 ** max(scale, 0) // (x.denominator * 2 ** max(-scale, 0))
    return np.ldexp(np.longdouble(digits >> 32) * 2.0**32 + np.longdouble(digits & 0xFFFFFFFF),
                    -scale)  # fmt: skip


def gelu(x: Any) -> Any:
    return x * (1 + erf(x / np.sqrt(np.longdouble(2)))) / 2


def gelu_tanh(x: Any) -> Any:
    return x * (1 + np.tanh(np.sqrt(2 / PI) * (x + np.longdouble("0.044715") * x**3))) / 2


def least(x: Any, y: Any) -> Any:
    return np.where((x <= y) | (x != x), x, y)


def greatest(x: Any, y: Any) -> Any:
    return np.where((x >= y) | (x != x), x, y)


def true(x: Any) -> Any:
    return np.asarray(x != 0, bool)


def of_python_bools(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a function with tensors of Python's bools instead of numpy's."""

    def apply(*operands: Any) -> Any:
        return function(*[
            x.astype(object) if isinstance(x, np.ndarray) and x.dtype == bool else x
            for x in operands
        ])  # fmt: skip

    return apply


def sign(x: Any) -> Any:
    return np.where(x != x, x, (x > 0) * 1 - (x < 0) * 1)


_UNARY: dict[str, Row] = {
    "abs": Row(ANY, lambda x: np.where(x > 0, x, 0 - x)),
    "acos": Row(FLOATS, np.arccos, FUNCTION, within=(-1, 1)),
    "acosh": Row(FLOATS, np.arccosh, FUNCTION, within=(1, 9)),
    "asin": Row(FLOATS, np.arcsin, FUNCTION, within=(-1, 1)),
    "asinh": Row(FLOATS, np.arcsinh, FUNCTION),
    "atan": Row(FLOATS, np.arctan, FUNCTION),
    "atanh": Row(FLOATS, np.arctanh, FUNCTION, within=(-0.99, 0.99)),
    "bitwise_not": Row(BITS, per_element(lambda x: not x if isinstance(x, bool) else -1 - x)),
    "ceil": Row(ANY, whole(math.ceil)),
    "cos": Row(FLOATS, np.cos, FUNCTION),
    "cosh": Row(FLOATS, np.cosh, FUNCTION),
    "erf": Row(FLOATS, erf, rounded(3)),
    "exp": Row(FLOATS, np.exp, FUNCTION),
    "expm1": Row(FLOATS, np.expm1, FUNCTION, in_tvm=False),
    "floor": Row(ANY, whole(math.floor)),
    "log": Row(FLOATS, np.log, FUNCTION, within=(0.01, 9)),
    "log1p": Row(FLOATS, np.log1p, FUNCTION, within=(-0.99, 9), in_tvm=False),
    "negative": Row(NUMBERS, lambda x: -x),
    "round": Row(ANY, whole(round)),
    "rsqrt": Row(FLOATS, lambda x: 1 / np.sqrt(x), rounded(2), within=(0.01, 9)),
    "sigmoid": Row(FLOATS, sigmoid, FUNCTION),
    "sign": Row(NUMBERS, sign),
    "sin": Row(FLOATS, np.sin, FUNCTION),
    "sinh": Row(FLOATS, np.sinh, FUNCTION),
    "sqrt": Row(FLOATS, np.sqrt, within=(0, 9)),
    "square": Row(NUMBERS, lambda x: x * x),
    "tan": Row(FLOATS, np.tan, FUNCTION),
    "tanh": Row(FLOATS, np.tanh, FUNCTION),
    "trunc": Row(ANY, whole(math.trunc)),
    "isfinite": Row(ANY, per_element(lambda x: math.isfinite(x)), gives="b"),
    "isinf": Row(ANY, per_element(lambda x: math.isinf(x)), gives="b"),
    "isnan": Row(ANY, per_element(lambda x: math.isnan(x)), gives="b"),
    "logical_not": Row(ANY, lambda x: ~true(x), gives="b"),
    "nn.relu": Row(NUMBERS, lambda x: np.where(x > 0, x, x * 0 if x.dtype == object
                                               else np.where(x != x, x, 0))),
    "nn.gelu": Row(FLOATS, gelu, rounded(4), of_largest=True),
    "nn.gelu_tanh": Row(FLOATS, gelu_tanh, rounded(4), of_largest=True),
    "nn.silu": Row(FLOATS, lambda x: x * sigmoid(x), FUNCTION),
}  # fmt: skip

_SHIFTS = ((-99, 99), (0, 6))
_DIVISION = ((-99, 99), (1, 9))

_BINARY: dict[str, Row] = {
    "add": Row(ANY, lambda a, b: a + b),
    "atan2": Row(FLOATS, lambda a, b: np.arctan2(np.asarray(a, np.longdouble), b), FUNCTION),
    "divide": Row(NUMBERS, quotient, within=_DIVISION, special=False),
    "floor_divide": Row(NUMBERS, floored, within=_DIVISION, special=False),
    "floor_mod": Row(NUMBERS, remainder(True), within=_DIVISION, special=False),
    "log_add_exp": Row(FLOATS, log_add_exp, FUNCTION),
    "maximum": Row(ANY, greatest),
    "minimum": Row(ANY, least),
    "mod": Row(NUMBERS, remainder(False), within=_DIVISION, special=False),
    "multiply": Row(ANY, lambda a, b: a * b),
    "power": Row(NUMBERS, power, FUNCTION, within=((1, 5), (0, 3)), special=False),
    "subtract": Row(NUMBERS, lambda a, b: a - b),
    "bitwise_and": Row(BITS, lambda a, b: a & b),
    "bitwise_or": Row(BITS, lambda a, b: a | b),
    "bitwise_xor": Row(BITS, lambda a, b: a ^ b),
    "left_shift": Row(INTEGERS, lambda a, b: a * 2**b, within=_SHIFTS),
    "right_shift": Row(INTEGERS, lambda a, b: a // 2**b, within=_SHIFTS),
    "equal": Row(ANY, lambda a, b: a == b, gives="b", within=(-2, 2)),
    "greater": Row(ANY, lambda a, b: a > b, gives="b", within=(-2, 2)),
    "greater_equal": Row(ANY, lambda a, b: a >= b, gives="b", within=(-2, 2)),
    "less": Row(ANY, lambda a, b: a < b, gives="b", within=(-2, 2)),
    "less_equal": Row(ANY, lambda a, b: a <= b, gives="b", within=(-2, 2)),
    "not_equal": Row(ANY, lambda a, b: a != b, gives="b", within=(-2, 2)),
    "logical_and": Row(ANY, lambda a, b: true(a) & true(b), gives="b", within=(-2, 2)),
    "logical_or": Row(ANY, lambda a, b: true(a) | true(b), gives="b", within=(-2, 2)),
    "logical_xor": Row(ANY, lambda a, b: true(a) ^ true(b), gives="b", within=(-2, 2)),
}  # fmt: skip


def _unary(name: str, row: Row) -> None:
    operand = "data" if name.startswith("nn.") else "x"
    op = f"{name}({{}})".format
    first = row.takes[0]

    def gives(letter: str) -> str:
        return DTYPES[row.gives or letter]

    types = [f'{op(f"{c}(n, 3)")} | R.Tensor((n, 3), "{gives(c)}")' for c in row.takes]
    types += [f'{op(f"{c}()")} | R.Tensor((), "{gives(c)}")' for c in row.takes[:1]]
    types += [
        f'{op(f"rank(2, {DTYPES[first]!r})")} | R.Tensor(dtype="{gives(first)}", ndim=2)',
        f'{op(f"tensor({DTYPES[first]!r})")} | R.Tensor(dtype="{gives(first)}")',
    ]
    result = f', "{gives(first)}"' if row.gives else ""
    types.append(f"{op('t(n)')} | R.Tensor((n,){result})")
    if "f" in row.takes:
        types.append(f'{op("on(here, n)")} | R.Tensor((n,), "{gives("f")}", vdevice=here)')
    errors = [
        f"{op(f'{c}(3)')} | TypeError: relax.{name}: {operand}: expected {EXPECTED[row.takes]}, "
        "got R.Tensor((3,)"
        for c in "fib" if c not in row.takes
    ]  # fmt: skip
    errors += [
        f"{op('shape(3)')} | TypeError: relax.{name}: {operand}: expected a tensor, got",
        f"{op('')} | TypeError: relax.{name}: argument '{operand}' is missing",
        f"{op(f'{first}(3), {first}(3)')} | TypeError: relax.{name}: expected at most 1 arguments",
    ]
    values = [op(f"{c}({dims})") for c in row.takes for dims in ("2, 3", "131")]
    values += [op(f"{first}({dims})") for dims in ("", "0", "2, 0, 3", "1, 7")]
    _enter(name, row, types, errors, values, op(f"{first}(393216, 3)"))


def _binary(name: str, row: Row) -> None:
    op = f"{name}({{}}, {{}})".format
    first = row.takes[0]

    def gives(letter: str) -> str:
        return DTYPES[row.gives or letter]

    c, kind = first, gives(first)
    types = [f'{op(f"{c}(n, 3)", f"{c}(3)")} | R.Tensor((n, 3), "{gives(c)}")' for c in row.takes]
    named = repr(DTYPES[c])
    types += [
        f'{op(f"{c}(3)", f"{c}(n, 3)")} | R.Tensor((n, 3), "{kind}")',
        f'{op(f"{c}(n, 1)", f"{c}(1, m)")} | R.Tensor((n, m), "{kind}")',
        f'{op(f"{c}(n, m)", f"{c}()")} | R.Tensor((n, m), "{kind}")',
        f'{op(f"{c}(2 * n)", f"{c}(n + n)")} | R.Tensor((2 * n,), "{kind}")',
        # n is 1 or 3, so the result always has 3 elements.
        f'{op(f"{c}(n, 4)", f"{c}(3, 4)")} | R.Tensor((3, 4), "{kind}")',
        f'{op(f"{c}(n)", f"{c}(m)")} | R.Tensor(dtype="{kind}", ndim=1)',
        f'{op(f"{c}(n, 3)", f"rank(2, {named})")} | R.Tensor(dtype="{kind}", ndim=2)',
        f'{op(f"rank(1, {named})", f"rank(3, {named})")} | R.Tensor(dtype="{kind}", ndim=3)',
        f'{op(f"{c}(n, 3)", f"tensor({named})")} | R.Tensor(dtype="{kind}")',
        f'{op(f"{c}(0)", f"{c}(1)")} | R.Tensor((0,), "{kind}")',
        f'{op(f"{c}(n)", "1")} | R.Tensor((n,), "{kind}")',
        f'{op("1", f"{c}(n)")} | R.Tensor((n,), "{kind}")',
        f'{op(f"{c}(n)", f"const(1, {named})")} | R.Tensor((n,), "{kind}")',
    ]
    result = f', "{kind}"' if row.gives else ""
    types.append(f"{op(f'{c}(n)', 't(n)')} | R.Tensor((n,){result})")
    if "i" in row.takes:
        types.append(f'{op("i(n)", "m")} | R.Tensor((n,), "{gives("i")}")')
    if "f" in row.takes:
        types.append(f'{op("on(here, n)", "f(n)")} | R.Tensor((n,), "{gives("f")}", vdevice=here)')
    errors = [
        f"{op(f'{w}(3)', f'{w}(3)')} | TypeError: relax.{name}: x1: expected "
        f"{EXPECTED[row.takes]}, got R.Tensor((3,)"
        for w in "fib" if w not in row.takes
    ]  # fmt: skip
    other = "j" if c == "i" else "h"
    errors += [
        f"{op(f'{c}(n, 3)', f'{c}(n, 4)')} | ValueError: relax.{name}: shapes (n, 3) and (n, 4) do "
        "not broadcast: dimension 1 is 3 and 4",
        f"{op(f'{c}(3)', f'{other}(3)')} | TypeError: relax.{name}: expected operands of one data "
        f"type, got x1 {DTYPES[c]}, x2 {DTYPES[other]}; R.astype converts"
        if name not in COMPARISONS else
        f"{op(f'{c}(3)', 'm')} | TypeError: relax.{name}: expected operands of one data type",
        f"{op('1', '2')} | TypeError: relax.{name}: expected a tensor among the operands",
        f"{name}({c}(3)) | TypeError: relax.{name}: argument 'x2' is missing",
        f"{name}({c}(3), {c}(3), x2={c}(3)) | TypeError: relax.{name}: argument 'x2' is given "
        "twice",
    ]
    if "f" in row.takes:
        errors.append(f"{op('on(here, 3)', 'on(there, 3)')} | ValueError: relax.{name}: expected "
                      "operands on one device, got x1, x2 on llvm:0:global and llvm:1:global; "
                      "R.to_vdevice copies")  # fmt: skip
    values = [
        op(f"{w}({left})", f"{w}({right})")
        for w in row.takes for left, right in (("2, 3", "3"), ("131", "131"))
    ]  # fmt: skip
    values += [
        op(f"{c}({left})", f"{c}({right})")
        for left, right in (("2, 1", "1, 3"), ("2, 3", ""), ("", ""), ("4, 1, 0", "3, 1"),
                            ("5, 7", "5, 1"), ("", "2, 2"))
    ]  # fmt: skip
    values += [op(f"{w}(9)", "2") for w in row.takes if w != "b"]
    values += [op("3", f"clip({w}(9), 1, 4)") for w in row.takes if w != "b"]
    _enter(name, row, types, errors, values, op(f"{c}(393216, 3)", f"{c}(3)"))


def _enter(
    name: str, row: Row, types: list[str], errors: list[str], values: list[str], large: str
) -> None:
    more_types, more_errors = _MORE.get(name, ("", ""))
    cases(
        name, "\n".join([*types, more_types]), "\n".join([*errors, more_errors]), "\n".join(values),
        reference=of_python_bools(row.reference), ulps=row.ulps, of_largest=row.of_largest,
        within=row.within, special=row.special, large=large, in_tvm=row.in_tvm,
    )  # fmt: skip


_MORE = {
    "add": (
        """
add(2, h(n)) | R.Tensor((n,), "float16")
f(n) + f(n) | R.Tensor((n,), "float32")
""",
        """
add(f(3), n) | TypeError: relax.add: expected operands of one data type, got x1 float32, x2 int64
add(i(3), 1.5) | TypeError: relax.add: expected operands of one data type, got x1 int64, x2 float32
add(u(3), 300) | ValueError: relax.add: expected a number within uint8, got 300
add(n, scalar("float32")) | TypeError: relax.add: expected operands of one data type, got x1 int64
""",
    ),
    "subtract": ('1.0 - f(n) | R.Tensor((n,), "float32")', ""),
    "less": ('f(n) < 1 | R.Tensor((n,), "bool")', ""),
    "floor_mod": ('i(n) % 3 | R.Tensor((n,), "int64")', ""),
    "negative": ('-f(n) | R.Tensor((n,), "float32")', ""),
    "bitwise_not": ('~b(n) | R.Tensor((n,), "bool")', ""),
    "exp": (
        "",
        """
exp(any()) | TypeError: relax.exp: x: expected a tensor, got a of type R.Any; R.match_cast narrows
exp(3) | TypeError: relax.exp: x: expected an expression, got int 3
exp(y=f(3)) | TypeError: relax.exp: argument 'x' is missing
""",
    ),
}
"""Types and errors of single operators, which stand for how all of them are called."""


for _name, _row in _UNARY.items():
    _unary(_name, _row)
for _name, _row in _BINARY.items():
    _binary(_name, _row)


def _converted(x: Any, dtype: str) -> Any:
    return true(x) if dtype == "bool" else x


cases(
    "where",
    """
where(b(n, 1), f(3), f()) | R.Tensor((n, 3), "float32")
where(b(n), h(n), 0.0) | R.Tensor((n,), "float16")
where(b(n), b(n), b(n)) | R.Tensor((n,), "bool")
where(b(n), f(m), f(m)) | R.Tensor(dtype="float32", ndim=1)
""",
    """
where(i(3), f(3), f(3)) | TypeError: relax.where: condition: expected bools
where(b(3), f(3), i(3)) | TypeError: relax.where: expected operands of one data type, got x1
where(b(3), f(4), f(4)) | ValueError: relax.where: shapes (3,) and (4,) and (4,) do not broadcast
""",
    """
where(b(2, 1), f(3), f())
where(b(3), f(3), 0.5)
where(b(3), -1, i(3))
where(b(2, 3), d(3), d(2, 1))
where(b(131), h(131), h(131))
where(b(131), u(131), u(131))
where(b(7), b(7), b(7))
where(b(2, 3), 2, 1)
where(b(0, 3), f(3), f(3))
""",
    reference=lambda condition, a, b: np.where(condition, a, b),
    large="where(b(393216, 3), f(393216, 3), f(3))",
)
cases(
    "clip",
    """
clip(f(n), 0, 1) | R.Tensor((n,), "float32")
clip(i(n), n, m) | R.Tensor((n,), "int64")
""",
    """
clip(f(3), f(3), 1) | TypeError: relax.clip: min: expected a scalar, got b of type
clip(b(3), 0, 1) | TypeError: relax.clip: x: expected numbers, got R.Tensor((3,)
""",
    """
clip(f(9), -0.5, 0.25)
clip(h(131), -2, 7)
clip(d(2, 3), -2, 2.5)
clip(i(9), -3, 3)
clip(u(9), 2, 5)
clip(d(9), 2, 1)
""",
    reference=lambda x, low, high: greatest(least(x, x.dtype.type(high) if x.dtype != object
                                                  else high), low),
    large="clip(f(393216, 3), -0.5, 0.25)",
)  # fmt: skip
cases(
    "nn.relu6",
    'nn.relu6(f(n)) | R.Tensor((n,), "float32")',
    "nn.relu6(b(3)) | TypeError: relax.clip: x: expected numbers, got R.Tensor((3,)",
    "nn.relu6(x(9))\nnn.relu6(x(131))",
    dtypes=NUMBERS,
)
cases(
    "astype",
    """
astype(f(n), "int32") | R.Tensor((n,), "int32")
astype(tensor(), "int32") | R.Tensor(dtype="int32")
f(n).astype("int8") | R.Tensor((n,), "int8")
""",
    """
astype(f(3), "float33") | TypeError: relax.astype: dtype: expected a data type, got str 'float33'
astype(shape(3), "int8") | TypeError: relax.astype: x: expected a tensor, got
""",
    "\n".join(
        f"astype({c}({dims}), {dtype!r})"
        for dims in ("2, 3", "131") for c in "fhdijb"
        for dtype in ("int8", "int64", "float16", "float32", "float64", "bool", "int32")
    ) + "\nastype(u(9), 'int16')\nastype(i(9), 'uint8')\nastype(j(9), 'uint64')",
    reference=_converted,
    free=("dtype",),
    large="astype(f(393216, 3), 'int32')",
)  # fmt: skip
cases(
    "wrap_param",
    'wrap_param(f(3), "float16") | R.Tensor((3,), "float16")',
    "wrap_param(f(3), 'x') | TypeError: relax.wrap_param: dtype: expected a data type",
    "wrap_param(f(9), 'float64')\nwrap_param(d(9), 'float16')",
    reference=_converted,
    free=("dtype",),
)

kernel("remainder", lambda draw: (draw(3, 3), abs(draw(3)) + 1), remainder(True))
kernel("cast", lambda draw: (draw(3, 3),), lambda x: x, free=("dtype",))
kernel("relu", lambda draw: (draw(3, 3),), lambda x: np.where(x > 0, x, 0))
kernel(
    "fused",
    lambda draw: (draw(3, 3), draw(3, 3), "multiply($0, $1); add(%0, 2.0) -> %1"),
    lambda x, y, chain: x * y + 2,
    ulps=4,
)
