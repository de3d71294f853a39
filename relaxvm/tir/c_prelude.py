"""C types and literals, and the helper functions of generated kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from ..ir import prim
from ..native.elementary import C_BASE, c_functions, elementary
from .intrinsics import Intrinsic

__all__ = ["HALVES", "STORED", "VALUES", "Helpers", "bits_of", "c_comment",
           "float_text", "int_text", "scalar_type"]  # fmt: skip

STORED: Final = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip
"""Data type -> C type of an element in memory."""

VALUES: Final = {**STORED, "bool": "int", "float16": "float", "bfloat16": "float"}
"""Data type -> C type of a value in an expression."""

HALVES: Final = ("float16", "bfloat16")


def scalar_type(dtype: str) -> str:
    """Return the C type of a scalar parameter or variable.  All integers are 64 bits wide, so that
    sums that are known to fit need no conversion."""
    if prim.is_float(dtype) or dtype == "uint64":
        return VALUES[dtype]
    return "int64_t"


class Helpers:
    """The C helper functions that a kernel uses, each after those that it calls."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def guarded(self) -> Iterator[str]:
        """Yield their texts, with include guards since other kernels may define the same ones."""
        for name, text in self.texts.items():
            yield f"#ifndef HAS_{name}\n#define HAS_{name}\n{text}\n#endif"

    def use(self, name: str, text: str, *needs: str) -> str:
        """Add a function, unless it was added before, and return its name."""
        if name not in self.texts:
            self.texts[name] = f"static inline UNUSED {text}"
        return name

    def extreme(self, kind: str, dtype: str) -> str:
        t, sign = VALUES[dtype], ">" if kind == "max" else "<"
        return self.use(
            f"{kind}_{dtype}",
            f"{t} {kind}_{dtype}({t} a, {t} b) {{ return a {sign} b ? a : b; }}",
        )

    def half(self, dtype: str, to_float: bool) -> str:
        if dtype == "bfloat16":
            return (
                self.use("from_bfloat16", _FROM_BFLOAT16)
                if to_float
                else self.use("to_bfloat16", _TO_BFLOAT16)
            )
        return (
            self.use("from_float16", _FROM_FLOAT16)
            if to_float
            else self.use("to_float16", _TO_FLOAT16)
        )

    def round_half(self, dtype: str) -> str:
        to, of = self.half(dtype, False), self.half(dtype, True)
        t = "double" if dtype == "float16" else "float"
        return self.use(f"round_{dtype}", f"float round_{dtype}({t} x) {{ return {of}({to}(x)); }}")

    def to_int(self, source: str, dtype: str) -> str:
        t, f = VALUES[dtype], VALUES[source]
        low, high = prim._range(dtype)
        suffix = "f" if f == "float" else ""
        # The least float above the range of the integers, and the least float in it.
        above = f"0x1p{int(high).bit_length()}{suffix}"
        below = float_text(float(low), "float32" if f == "float" else "float64")
        return self.use(
            f"{f}_to_{dtype}",
            f"{t} {f}_to_{dtype}({f} x) {{\n"
            f"  return x != x ? 0 : x >= {above} ? ({t}){int_text(high, dtype)} : x <= {below} ? "
            f"({t}){int_text(low, dtype)} : ({t})x;\n}}",
        )

    def divide(self, kind: str, dtype: str) -> str:
        """A division that rounds down or towards zero, or its remainder; the divisor is not 0."""
        t = VALUES[dtype]
        name = f"{kind}_{dtype}"
        if dtype.startswith("uint"):
            sign = "/" if kind in ("floordiv", "truncdiv") else "%"
            return self.use(name, f"{t} {name}({t} a, {t} b) {{ return ({t})(a {sign} b); }}")
        rest = {
            "truncdiv": "a / b",
            "truncmod": "a % b",
            "floordiv": "a / b - ((a % b != 0) & ((a ^ b) < 0))",
            "floormod": "a % b + ((a % b != 0) & ((a ^ b) < 0) ? b : 0)",
        }[kind]
        minus = f"({t})(0 - a)" if kind.endswith("div") else "0"
        return self.use(
            name,
            f"{t} {name}({t} a, {t} b) {{\n"
            f"  if (b == -1) return {minus}; /* the quotient of the least number wraps */\n"
            f"  return ({t})({rest});\n}}",
        )

    def shift(self, kind: str, dtype: str) -> str:
        t, bits = VALUES[dtype], bits_of(dtype)
        name = f"{kind}_{dtype}"
        unsigned = t if t.startswith("u") else f"u{t}"
        if kind == "shl":
            body = f"(uint64_t)b < {bits} ? ({t})(({unsigned})a << b) : 0"
        else:
            out = "0" if t.startswith("u") else "(a < 0 ? -1 : 0)"
            body = f"(uint64_t)b < {bits} ? ({t})(a >> b) : {out}"
        return self.use(name, f"{t} {name}({t} a, {t} b) {{ return {body}; }}")

    def function(self, row: Intrinsic, dtype: str) -> str:
        """A function of ``math.h``, as a builtin of the compiler, or one of our own."""
        own = elementary(row.name, dtype)
        if own is not None:
            return self._elementary(own)
        t = "double" if dtype == "float64" else "float"
        suffix = "" if dtype == "float64" else "f"
        if not row.c.startswith("rvm_"):
            return f"__builtin_{row.c}{suffix}"
        name = row.c[4:] + suffix
        one = f"1.0{suffix}"
        body = {
            "rvm_rsqrt": f"{one} / __builtin_sqrt{suffix}(x)",
            "rvm_sigmoid": f"{one} / ({one} + __builtin_exp{suffix}(-x))",
            "rvm_exp10": f"__builtin_pow{suffix}(10.0{suffix}, x)",
            "rvm_isnan": "x != x",
        }[row.c]
        result = "int" if row.result == "bool" else t
        return self.use(f"my_{name}", f"{result} my_{name}({t} x) {{ return {body}; }}")

    def _elementary(self, name: str) -> str:
        """One of our own functions, inlined so that loops around it can be vectorized."""
        self.texts.setdefault("elementary", C_BASE)
        text, needs = c_functions()[name]
        for other in needs:
            self._elementary(other)
        self.texts.setdefault(name, f"static inline UNUSED __attribute__((always_inline)) {text}")
        return name


_FROM_BFLOAT16: Final = """float from_bfloat16(uint16_t h) {
  union { uint32_t bits; float value; } u = {(uint32_t)h << 16};
  return u.value;
}"""

_TO_BFLOAT16: Final = """uint16_t to_bfloat16(float x) {
  union { float value; uint32_t bits; } u = {x};
  if (x != x) return (uint16_t)((u.bits >> 16 & 0x8000) | 0x7fc0);
  return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}"""

_FROM_FLOAT16: Final = """float from_float16(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
  union { uint32_t bits; float value; } u, scale = {0x77800000}; /* 2**112 */
  if (rest >= 0x7c00) { /* infinity, or not a number */
    u.bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    return u.value;
  }
  u.bits = rest << 13;
  u.value *= scale.value; /* exact, and right for subnormal numbers too */
  u.bits |= sign;
  return u.value;
}"""

_TO_FLOAT16: Final = """uint16_t to_float16(double x) {
  union { double value; uint64_t bits; } u = {x};
  uint16_t sign = (uint16_t)(u.bits >> 48 & 0x8000);
  u.bits &= ~(1ull << 63);
  if (u.bits > 0x7ff0000000000000ull) return sign | 0x7e00; /* not a number */
  if (u.value >= 65520.0) return sign | 0x7c00;
  if (u.value < 0x1p-14) { /* subnormal: steps of 2**-24; the addition rounds */
    u.value += 0x1p28;
    return sign | (uint16_t)(u.bits & 0xffff);
  }
  uint64_t odd = u.bits >> 42 & 1;
  return sign | (uint16_t)((u.bits - (1008ull << 52) + ((1ull << 41) - 1) + odd) >> 42);
}"""


def bits_of(dtype: str) -> int:
    """Return the number of bits of an element."""
    return 8 if dtype == "bool" else int(re.sub(r"\D", "", dtype))


def int_text(value: int, dtype: str) -> str:
    """Return an integer as a C literal."""
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    if value == -(2**31):
        return f"(-2147483647{suffix} - 1)"
    text = f"{value}{suffix}"
    return f"({text})" if value < 0 else text


def float_text(value: float, dtype: str) -> str:
    """Return a float as a C literal."""
    if dtype == "float64":
        suffix, number = "", value
    else:
        with np.errstate(over="ignore"):
            suffix, number = "f", float(np.float32(value))
    if math.isnan(number):
        return '__builtin_nanf("")'
    if math.isinf(number):
        return "__builtin_inff()" if number > 0 else "(-__builtin_inff())"
    text = f"{number.hex()}" if suffix == "" else f"{number:.9g}"
    if suffix and not re.search(r"[.e]", text):
        text += ".0"
    text += suffix
    return f"({text})" if text.startswith("-") else text


def c_comment(text: str) -> str:
    """Return a text with characters replaced that are unsafe in a C comment."""
    return re.sub(r"[^0-9A-Za-z_ .-]", "_", text)
