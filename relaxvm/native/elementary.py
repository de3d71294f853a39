"""Elementary functions of float32 with bit-identical results in C and Python, on every machine.

They use only sums, products, quotients and bit operations, whose results are fully specified.  The
source is C and, line by line without the types, also Python.  There are no branches, so that C
compilers can vectorize it.

Results are within 2.5 units in the last place; infinities, subnormal numbers, signed zeros and NaNs
follow IEEE 754.

Source: the reduction of arguments in two steps follows W. J. Cody and W. Waite, Software Manual for
the Elementary Functions, 1980.  The minimax coefficients are our own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

__all__ = ["C_BASE", "c_functions", "elementary", "python_functions"]

TEXT: Final = """
float scaled(float y, int n) {
    int half = n >> 1;
    float z = y * number((half + 127) << 23);
    return z * number((n - half + 127) << 23);
}
float exp_float32(float x) {
    float c = where(x > 89.0f, 89.0f, where(x < -104.0f, -104.0f, x));
    float t = c * 1.44269502f + 12582912.0f;
    float n = t - 12582912.0f;
    float r = c - n * 0.693359375f - n * -0.000212194442f;
    float q = 0.0416682288f + r * (0.00836938433f + r * 0.00138254452f);
    float p = 0.49999994f + r * (0.166665152f + r * q);
    return scaled(1.0f + (r + r * r * p), bits(t) - 0x4b400000);
}
float exp2_float32(float x) {
    float c = where(x > 129.0f, 129.0f, where(x < -151.0f, -151.0f, x));
    float t = c + 12582912.0f;
    float r = c - (t - 12582912.0f);
    float q = 0.00961914752f + r * (0.0013392542f + r * 0.000151648332f);
    float p = 0.693147182f + r * (0.240226418f + r * (0.0555035658f + r * q));
    return scaled(1.0f + r * p, bits(t) - 0x4b400000);
}
float log_float32(float x) {
    float c = where(x < 1.17549435e-38f, x * 8388608.0f, x);
    int e = (bits(c) - 0x3f3504f3) >> 23;
    float n = real(e) - where(x < 1.17549435e-38f, 23.0f, 0.0f);
    float r = number(bits(c) - (e << 23)) - 1.0f;
    float z = r * r;
    float o = 0.14201501f + r * (-0.131594718f + r * (0.127627313f + r * -0.0763747096f));
    float q = 0.200012445f + r * (-0.166234136f + r * o);
    float p = 0.333333313f + r * (-0.250008196f + r * q);
    float s = r * z * p + n * -0.000212194442f - 0.5f * z;
    float y = n * 0.693359375f + (r + s);
    float w = where(x == 0.0f, -number(0x7f800000), number(0x7fc00000));
    return where(x > 0.0f, where(x > 3.40282347e+38f, x, y), w);
}
float signed_as(float y, float x) {
    return number(bits(y) | (bits(x) & (-2147483647 - 1)));
}
float tanh_float32(float x) {
    float a = number(bits(x) & 0x7fffffff);
    float z = a * a;
    float q = -0.0537352972f + z * (0.0206230842f + z * -0.00568565587f);
    float p = -0.333332807f + z * (0.133313969f + z * q);
    float y = 1.0f - 2.0f / (exp_float32(a + a) + 1.0f);
    return signed_as(where(a < 0.625f, a + a * (z * p), y), x);
}
float sigmoid_float32(float x) {
    float e = exp_float32(-number(bits(x) & 0x7fffffff));
    return where(x < 0.0f, e, 1.0f) / (1.0f + e);
}
float erf_float32(float x) {
    float y = number(bits(x) & 0x7fffffff);
    float a = where(y > 4.0f, 4.0f, y);
    float z = a * a;
    float o = 0.00519876368f + z * (-0.000811838487f + z * 8.27156982e-05f);
    float q = -0.376126319f + z * (0.112836748f + z * (-0.0268584043f + z * o));
    float v = -0.0228900481f + a * (0.00321497209f + a * -0.000213985477f);
    float u = 1.12851441f + a * (0.635718167f + a * (0.105262011f + a * v));
    float e = exp_float32(a * -u);
    return signed_as(where(a < 0.92f, a + a * (0.128379166f + z * q), 1.0f - e), x);
}
"""
"""The functions.  `where` selects one of two values, `bits` returns the bits of a float as an
integer, `number` is the inverse of `bits`, and `real` converts an integer to a float.  A small
number is rounded to an integer by adding 1.5 * 2**23 (bits 0x4b400000): the integer is then in the
last bits."""

C_BASE: Final = """
#define where(c, a, b) ((c) ? (a) : (b))
#define real(i) ((float)(i))
static inline UNUSED int bits(float x) {
  union { float value; int bits; } u = {x};
  return u.bits;
}
static inline UNUSED float number(int i) {
  union { int bits; float value; } u = {i};
  return u.value;
}"""
"""The definitions that the functions need in C."""


def elementary(operator: str, dtype: str) -> str | None:
    """Return the name of the function that implements an operator for a float data type, or None.
    float16 and bfloat16 are computed in float32."""
    name = f"{operator.partition('.')[2]}_float32"
    return name if dtype != "float64" and name in c_functions() else None


@functools.cache
def c_functions() -> dict[str, tuple[str, list[str]]]:
    """Return for every function, by name, its C source and the names of the functions it calls."""
    found: dict[str, tuple[str, list[str]]] = {}
    for text in re.findall(r"^float .*?^}", TEXT, re.MULTILINE | re.DOTALL):
        name = text[len("float ") : text.index("(")]
        found[name] = text, [other for other in found if f"{other}(" in text]
    return found


@functools.cache
def python_functions() -> dict[str, Callable[[Any], Any]]:
    """Return the functions by name, for float32 arrays of numpy."""
    text = re.sub(r"^float (\w+)\(\w+ (\w+)(?:, \w+ (\w+))?\) {", r"def \1(\2, \3):", TEXT,
                  flags=re.MULTILINE)  # fmt: skip
    text = re.sub(r"^    (?:float|int) ", "    ", text, flags=re.MULTILINE)
    text = re.sub(r"([\d.]+(?:e[+-]\d+)?)f\b", r"f(\1)", text)
    text = re.sub(r";$|^}$", "", text, flags=re.MULTILINE)
    names: dict[str, Any] = {
        "f": np.float32,
        "where": np.where,
        "bits": lambda x: np.asarray(x).view(np.int32),
        "number": lambda i: np.asarray(i).astype(np.int32).view(np.float32),
        "real": lambda i: np.asarray(i).astype(np.float32),
    }
    exec(compile(text, "<elementary>", "exec"), names)
    return {name: names[name] for name in c_functions()}
