"""What generated C has in common: its head, and functions that kernels use where they need them."""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np

from ..ir import prim
from .intrinsics import Intrinsic

__all__ = ["HALVES", "HEAD", "STORED", "VALUES", "Helpers", "bits_of", "c_comment", "c_string",
           "float_text", "int_text", "scalar_type"]  # fmt: skip

STORED: Final = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip
"""Data type -> type of an element in memory."""

VALUES: Final = {**STORED, "bool": "int", "float16": "float", "bfloat16": "float"}
"""Data type -> type of a value in an expression."""

HALVES: Final = ("float16", "bfloat16")


def scalar_type(dtype: str) -> str:
    """C type of a scalar parameter or variable: integers are wide, whatever their data type, so
    that sums that fit need no conversion."""
    if prim.is_float(dtype) or dtype == "uint64":
        return VALUES[dtype]
    return "int64_t"


class Helpers:
    """Functions of C that the kernels use, in order of need."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def use(self, name: str, text: str, *needs: str) -> str:
        """Have a function; its name."""
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
        # The least float above the range, and the least within.
        above = f"0x1p{int(high).bit_length()}{suffix}"
        below = float_text(float(low), "float32" if f == "float" else "float64")
        return self.use(
            f"{f}_to_{dtype}",
            f"{t} {f}_to_{dtype}({f} x) {{\n"
            f"  return x != x ? 0 : x >= {above} ? ({t}){int_text(high, dtype)} : x <= {below} ? "
            f"({t}){int_text(low, dtype)} : ({t})x;\n}}",
        )

    def divide(self, kind: str, dtype: str) -> str:
        """A division that rounds down or towards zero, or its remainder; by any divisor but 0."""
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
        """A function of ``math.h``, or one of ours, for a data type."""
        t = "double" if dtype == "float64" else "float"
        suffix = "" if dtype == "float64" else "f"
        if not row.c.startswith("rvm_"):
            return row.c + suffix
        name = row.c[4:] + suffix
        one = f"1.0{suffix}"
        body = {
            "rvm_rsqrt": f"{one} / sqrt{suffix}(x)",
            "rvm_sigmoid": f"{one} / ({one} + exp{suffix}(-x))",
            "rvm_exp10": f"pow{suffix}(10.0{suffix}, x)",
            "rvm_isnan": "x != x",
        }[row.c]
        result = "int" if row.result == "bool" else t
        return self.use(f"my_{name}", f"{result} my_{name}({t} x) {{ return {body}; }}")


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
    """Bits of an element."""
    return 8 if dtype == "bool" else int(re.sub(r"\D", "", dtype))


def int_text(value: int, dtype: str) -> str:
    """An integer as it is written in C."""
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    if value == -(2**31):
        return f"(-2147483647{suffix} - 1)"
    text = f"{value}{suffix}"
    return f"({text})" if value < 0 else text


def float_text(value: float, dtype: str) -> str:
    """A float as it is written in C."""
    if dtype == "float64":
        suffix, number = "", value
    else:
        with np.errstate(over="ignore"):
            suffix, number = "f", float(np.float32(value))
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = f"{number.hex()}" if suffix == "" else f"{number:.9g}"
    if suffix and not re.search(r"[.e]", text):
        text += ".0"
    text += suffix
    return f"({text})" if text.startswith("-") else text


def c_string(text: str) -> str:
    """A literal of C, in UTF-8.  Nothing in the text ends it: quotes, line ends and question marks,
    which trigraphs begin with, are escaped."""
    data = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data) + '"'


_PLAIN: Final = frozenset(range(32, 127)) - frozenset(b'"\\?')


def c_comment(text: str) -> str:
    """What may stand within a comment of C."""
    return re.sub(r"[^0-9A-Za-z_ .-]", "_", text)


HEAD: Final = r"""#include <relaxvm/kernel.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define UNUSED __attribute__((unused))

/* ---- arguments ---- */

/* A dimension: of length `value`, or of the length that variable number `value` has. */
enum { DIM_IS, DIM_BINDS, DIM_SAME, DIM_FREE };
typedef struct {
  int kind;
  int64_t value;
} Dim;

typedef struct {
  const char *name;
  const char *dtype;
  int code, bits;
  int ndim;     /* -1 for a scalar */
  int written;
  const Dim *dims;
} Param;

typedef struct {
  const char *name;
  const char *parameters; /* their names, for messages */
  int count;
  const Param *params;
  const char *const *variables; /* names of those that have their values from shapes */
  const int64_t *longest;       /* what they are at most */
} Function;

/* An argument as the body takes it. */
typedef union {
  void *data;
  int64_t i;
  double f;
} Value;

static const char *kind_of(const RvmAny *x) {
  switch (x->type) {
    case RVM_NONE: return "None";
    case RVM_INT: return "an int";
    case RVM_BOOL: return "a bool";
    case RVM_REAL: return "a float";
    case RVM_TENSOR: case RVM_TENSOR_OBJECT: return "a tensor";
    case RVM_SHAPE: return "a shape";
    case RVM_DTYPE: return "a dtype";
    case RVM_TEXT: case RVM_SHORT_TEXT: case RVM_TEXT_OBJECT: return "a str";
    default: return "another object";
  }
}

static void dtype_name(RvmDtype t, char *out, size_t size) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat",
                                      "complex", "bool"};
  if (t.code == RVM_BOOLEAN) snprintf(out, size, "bool");
  else if (t.code <= RVM_COMPLEX) snprintf(out, size, "%s%d", names[t.code], t.bits);
  else snprintf(out, size, "a data type of code %d", t.code);
}

#define REFUSE(kind, format, ...) \
  return rvm_error(kind, "%s: argument %d (%s): " format, f->name, i, p->name, __VA_ARGS__)

static int take_scalar(const Function *f, int i, const RvmAny *arg, Value *value) {
  const Param *p = &f->params[i];
  int real = p->code == RVM_FLOAT || p->code == RVM_BFLOAT;
  if (arg->type != RVM_INT && arg->type != RVM_BOOL && !(real && arg->type == RVM_REAL))
    REFUSE("TypeError", "expected %s, got %s", p->dtype, kind_of(arg));
  if (real) {
    value->f = arg->type == RVM_REAL ? arg->as_float : (double)arg->as_int;
    return RVM_OK;
  }
  value->i = p->code == RVM_BOOLEAN ? arg->as_int != 0 : arg->as_int;
  if (p->code == RVM_BOOLEAN || p->bits == 64) return RVM_OK;
  int64_t low = p->code == RVM_SIGNED ? -((int64_t)1 << (p->bits - 1)) : 0;
  int64_t high = ((int64_t)1 << (p->bits - (p->code == RVM_SIGNED))) - 1;
  if (value->i < low || value->i > high)
    REFUSE("ValueError", "%lld does not fit %s", (long long)value->i, p->dtype);
  return RVM_OK;
}

/* Whether elements lie as in row-major order: relaxvm leaves strides out then, TVM does not. */
static int is_contiguous(const RvmTensor *x) {
  if (!x->strides) return 1;
  int64_t step = 1;
  for (int d = x->ndim - 1; d >= 0; d--) {
    if (x->shape[d] == 0) return 1;
    if (x->shape[d] != 1 && x->strides[d] != step) return 0;
    step *= x->shape[d];
  }
  return 1;
}

static int take_tensor(const Function *f, int i, const RvmAny *args, Value *value,
                       int64_t *variables) {
  const Param *p = &f->params[i];
  const RvmTensor *x = rvm_any_tensor(args, i);
  if (!x) REFUSE("TypeError", "expected a tensor, got %s", kind_of(&args[i]));
  if (x->device.type != RVM_CPU)
    REFUSE("ValueError", "expected a tensor in host memory, got one on device %d",
           (int)x->device.type);
  if (x->dtype.code != p->code || x->dtype.bits != p->bits || x->dtype.lanes != 1) {
    char got[40];
    dtype_name(x->dtype, got, sizeof got);
    REFUSE("TypeError", "expected data type %s, got %s", p->dtype, got);
  }
  if (x->ndim != p->ndim)
    REFUSE("ValueError", "expected %d dimension%s, got %d", p->ndim, p->ndim == 1 ? "" : "s",
           (int)x->ndim);
  for (int d = 0; d < p->ndim; d++) {
    int64_t expected = p->dims[d].value, length = x->shape[d];
    switch (p->dims[d].kind) {
      case DIM_IS:
        if (length != expected)
          REFUSE("ValueError", "dimension %d: expected %lld, got %lld", d, (long long)expected,
                 (long long)length);
        break;
      case DIM_SAME:
        if (length != variables[expected])
          REFUSE("ValueError", "dimension %d: expected %s = %lld, got %lld", d,
                 f->variables[expected], (long long)variables[expected], (long long)length);
        break;
      case DIM_BINDS:
        if (length > f->longest[expected])
          REFUSE("ValueError", "dimension %d: %lld is too long for %s", d, (long long)length,
                 f->variables[expected]);
        variables[expected] = length;
        break;
    }
  }
  if (!is_contiguous(x)) REFUSE("ValueError", "expected a %s tensor", "contiguous");
  value->data = rvm_data(x);
  return RVM_OK;
}

static int64_t nbytes(const RvmTensor *x) {
  return rvm_numel(x) * ((x->dtype.bits + 7) / 8);
}

static int overlap(const RvmTensor *a, const RvmTensor *b) {
  uintptr_t x = (uintptr_t)rvm_data(a), y = (uintptr_t)rvm_data(b);
  uint64_t m = (uint64_t)nbytes(a), n = (uint64_t)nbytes(b);
  return m && n && x < y + n && y < x + m;
}

/* Within a body buffers do not overlap: what is only read and lies in what is written is copied. */
static int separate(const Function *f, const RvmAny *args, Value *values, void **copies) {
  for (int i = 0; i < f->count; i++) {
    const Param *p = &f->params[i];
    copies[i] = NULL;
    if (p->ndim < 0) continue;
    for (int j = 0; j < f->count; j++) {
      if (j == i || f->params[j].ndim < 0 || !f->params[j].written ||
          !overlap(rvm_any_tensor(args, i), rvm_any_tensor(args, j)))
        continue;
      if (p->written)
        REFUSE("ValueError", "overlaps argument %d (%s), and both are written", j,
               f->params[j].name);
      size_t size = (size_t)nbytes(rvm_any_tensor(args, i));
      copies[i] = malloc(size);
      if (!copies[i]) REFUSE("MemoryError", "no memory for a %s", "copy");
      values[i].data = memcpy(copies[i], values[i].data, size);
      break;
    }
  }
  return RVM_OK;
}

/* Check arguments and take them apart. */
static __attribute__((noinline)) int take(const Function *f, const RvmAny *args, int32_t num_args,
                                          Value *values, int64_t *variables, void **copies) {
  if (num_args != f->count)
    return rvm_error("TypeError", "%s: expected %d argument%s (%s), got %d", f->name, f->count,
                     f->count == 1 ? "" : "s", f->parameters, (int)num_args);
  for (int i = 0; i < f->count; i++) {
    int status = f->params[i].ndim < 0 ? take_scalar(f, i, &args[i], &values[i])
                                       : take_tensor(f, i, args, &values[i], variables);
    if (UNLIKELY(status)) return status;
  }
  return separate(f, args, values, copies);
}

static __attribute__((noinline)) int check_dim(const Function *f, const RvmAny *args, int i, int d,
                                               int64_t expected) {
  int64_t length = rvm_any_tensor(args, i)->shape[d];
  const Param *p = &f->params[i];
  if (length != expected)
    REFUSE("ValueError", "dimension %d: expected %lld, got %lld", d, (long long)expected,
           (long long)length);
  return RVM_OK;
}

static __attribute__((noinline)) void release(void **memory, int count) {
  for (int i = 0; i < count; i++) free(memory[i]);
}

/* Zeroed memory for a local buffer, NULL after an error. */
static __attribute__((noinline)) void *allocate(const Function *f, const char *buffer, int ndim,
                                                const int64_t *shape, int64_t itemsize) {
  int64_t bytes = itemsize;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0) {
      rvm_report_error("ValueError", "%s: buffer %s: dimension %d is %lld", f->name, buffer, i,
                       (long long)shape[i]);
      return NULL;
    }
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = INT64_MAX;
  }
  void *memory = bytes == INT64_MAX ? NULL : calloc(bytes ? (size_t)bytes : 1, 1);
  if (!memory) rvm_report_error("MemoryError", "%s: buffer %s: no memory", f->name, buffer);
  return memory;
}

/* ---- loops that go on and on ---- */

/* Turns that are over soon, whatever is in them. */
#define MANY_TURNS (1 << 20)

/* Look for Ctrl-C now and then: after many turns. */
#define LOOK_FOR_INTERRUPT(turns)                     \
  if (UNLIKELY((looked += (turns)) >= MANY_TURNS)) {  \
    looked = 0;                                       \
    if (rvm_interrupted()) return RVM_FAILED;         \
  }

/* ---- what goes wrong within a body ---- */

typedef struct {
  int site; /* from 1 on; 0 as long as all is well */
  int64_t index, length;
} Fault;

typedef struct {
  const char *text; /* the place; of a division by zero, the whole message */
  int is_index;
} Site;

static __attribute__((cold, noinline)) int64_t record(Fault *fault, int site, int64_t index,
                                                      int64_t length) {
  if (!fault->site) *fault = (Fault){site, index, length};
  return 0;
}

static __attribute__((cold, noinline)) int fail(const Fault *fault, const Site *sites) {
  const Site *site = &sites[fault->site - 1];
  if (!site->is_index) return rvm_error("ZeroDivisionError", "%s", site->text);
  return rvm_error("IndexError", "%s: index %lld is out of bounds for length %lld", site->text,
                   (long long)fault->index, (long long)fault->length);
}

static UNUSED void *const used_by_some[] = {(void *)take, (void *)check_dim, (void *)release,
                                            (void *)allocate, (void *)record, (void *)fail};
"""
