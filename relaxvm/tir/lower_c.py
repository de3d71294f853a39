"""PrimFuncs as C, against ``relaxvm/kernel.h``.

Of every function there are two bodies: one for buffers that do not overlap, with pointers that are
``restrict`` and reductions exchanged so that inner loops run along memory, and one that takes every
step in the order of the program.  The kernel looks at its arguments and runs one of them.

What may go wrong is checked: arguments when the kernel is called, an index where it is not certain
to be within bounds, a divisor where it is not certainly no zero.  Integers wrap; floats are rounded
after every operation.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from ..ir import prim
from ..ir.expr import Call, Expr, FloatImm, IntImm, Var
from ..ir.prim import is_float
from .buffer import Buffer, BufferLoad
from .facts import MAX_DIM, Facts
from .intrinsics import CLZ, IF_THEN_ELSE, INTRINSICS, LIKELY, POPCOUNT, REINTERPRET, RET, Intrinsic
from .normalize import Kernel, Param, exchange
from .stmt import (
    AssertStmt,
    Bind,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    SeqStmt,
    Stmt,
    While,
)

__all__ = ["c_source", "symbol_of"]

STACK_BYTES: Final = 4096
"""Local buffers up to this size together are on the stack."""

_CODES: Final = {"int": "RVM_SIGNED", "uint": "RVM_UNSIGNED", "float": "RVM_FLOAT",
                 "bfloat": "RVM_BFLOAT", "bool": "RVM_BOOLEAN"}  # fmt: skip

_STORED: Final = {
    "bool": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t",
    "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t", "uint32": "uint32_t",
    "uint64": "uint64_t", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float",
    "float64": "double",
}  # fmt: skip
"""Data type -> type of an element in memory."""

_VALUES: Final = {**_STORED, "bool": "int", "float16": "float", "bfloat16": "float"}
"""Data type -> type of a value in an expression."""

_HALVES: Final = ("float16", "bfloat16")

_KEYWORDS: Final = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline "
    "int long register restrict return short signed sizeof static struct switch typedef union "
    "unsigned void volatile while self args num_args ret fault asm typeof linux unix".split()
)


def symbol_of(name: str) -> str:
    """The C symbol of a function: its name, other characters than letters and digits escaped."""
    return re.sub(r"[^0-9A-Za-z]", lambda m: "_" if m[0] == "_" else f"_x{ord(m[0]):x}_", name)


def c_source(kernels: Sequence[Kernel]) -> str:
    """The text of a library with a kernel for each function.

    Raises:
        NotImplementedError: an expression or data type that there is no C for.
    """
    helpers = _Helpers()
    functions = [_KernelText(kernel, helpers).text() for kernel in kernels]
    return "\n".join([_HEAD, *helpers.texts.values(), *functions])


_HEAD: Final = r"""#include <relaxvm/kernel.h>
#include <math.h>
#include <stdlib.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define UNUSED __attribute__((unused))

/* What a kernel takes, for messages. */
typedef struct {
  const char *name;
  const char *dtype;
  int code, bits, ndim; /* ndim is -1 for a scalar */
  const int64_t *dims;  /* pairs: a length and -1, or a number of a variable and its place */
} Param;

enum { DIM_IS = 0, DIM_BINDS = 1, DIM_SAME = 2, DIM_FREE = 3 };

/* What went wrong within an expression. */
typedef struct {
  int site;
  int64_t index, length;
} Fault;

typedef struct {
  const char *text; /* of the place; of a division by zero, the whole message */
  int is_index;
} Site;

static UNUSED __attribute__((cold, noinline)) int64_t record(Fault *fault, int site, int64_t index,
                                                             int64_t length) {
  if (!fault->site) *fault = (Fault){site, index, length};
  return 0;
}

static UNUSED __attribute__((cold, noinline)) int fail(const Fault *fault, const Site *sites) {
  const Site *site = &sites[fault->site - 1];
  if (!site->is_index) return rvm_error("ZeroDivisionError", "%s", site->text);
  return rvm_error("IndexError", "%s: index %lld is out of bounds for length %lld", site->text,
                   (long long)fault->index, (long long)fault->length);
}

static const char *kind_of(const RvmAny *x) {
  switch (x->type) {
    case RVM_NONE: return "None";
    case RVM_INT: return "an int";
    case RVM_BOOL: return "a bool";
    case RVM_REAL: return "a float";
    case RVM_TENSOR: return "a tensor";
    case RVM_SHAPE: return "a shape";
    case RVM_DTYPE: return "a dtype";
    case RVM_TEXT: case RVM_SHORT_TEXT: case RVM_TEXT_OBJECT: return "a str";
    default: return "another object";
  }
}

static void dtype_name(RvmDtype t, char *out, size_t size) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  if (t.code == RVM_BOOLEAN) snprintf(out, size, "bool");
  else if (t.code <= RVM_COMPLEX) snprintf(out, size, "%s%d", names[t.code], t.bits);
  else snprintf(out, size, "a data type of code %d", t.code);
}

/* Why a kernel does not take its arguments. */
static __attribute__((cold, noinline)) int refuse(const char *function, const Param *params, int count,
                                                  const char *list, const char *const *variables,
                                                  int64_t *values, const RvmAny *args,
                                                  int32_t num_args) {
  if (num_args != count)
    return rvm_error("TypeError", "%s: expected %d argument%s (%s), got %d", function, count,
                     count == 1 ? "" : "s", list, (int)num_args);
  for (int i = 0; i < count; i++) {
    const Param *p = &params[i];
    const RvmAny *arg = &args[i];
    if (p->ndim < 0) {
      int real = p->code == RVM_FLOAT || p->code == RVM_BFLOAT;
      if (arg->type != RVM_INT && arg->type != RVM_BOOL && !(real && arg->type == RVM_REAL))
        return rvm_error("TypeError", "%s: argument %d (%s): expected %s, got %s", function, i,
                         p->name, p->dtype, kind_of(arg));
      if (!real && p->bits < 64) {
        int64_t low = p->code == RVM_SIGNED ? -((int64_t)1 << (p->bits - 1)) : 0;
        int64_t high = ((int64_t)1 << (p->bits - (p->code == RVM_SIGNED))) - 1;
        if (p->code != RVM_BOOLEAN && (arg->as_int < low || arg->as_int > high))
          return rvm_error("ValueError", "%s: argument %d (%s): %lld does not fit %s", function, i,
                           p->name, (long long)arg->as_int, p->dtype);
      }
      continue;
    }
    if (arg->type != RVM_TENSOR)
      return rvm_error("TypeError", "%s: argument %d (%s): expected a tensor, got %s", function, i,
                       p->name, kind_of(arg));
    const RvmTensor *x = arg->as_tensor;
    if (x->dtype.code != p->code || x->dtype.bits != p->bits || x->dtype.lanes != 1) {
      char got[40];
      dtype_name(x->dtype, got, sizeof got);
      return rvm_error("TypeError", "%s: argument %d (%s): expected data type %s, got %s", function,
                       i, p->name, p->dtype, got);
    }
    if (x->ndim != p->ndim)
      return rvm_error("ValueError", "%s: argument %d (%s): expected %d dimension%s, got %d", function,
                       i, p->name, p->ndim, p->ndim == 1 ? "" : "s", (int)x->ndim);
    for (int d = 0; d < p->ndim; d++) {
      int64_t kind = p->dims[2 * d], value = p->dims[2 * d + 1], length = x->shape[d];
      if (kind == DIM_IS && length != value)
        return rvm_error("ValueError", "%s: argument %d (%s): dimension %d: expected %lld, got %lld",
                         function, i, p->name, d, (long long)value, (long long)length);
      if (kind == DIM_SAME && length != values[value])
        return rvm_error("ValueError",
                         "%s: argument %d (%s): dimension %d: expected %s = %lld, got %lld", function,
                         i, p->name, d, variables[value], (long long)values[value],
                         (long long)length);
      if (kind == DIM_BINDS) {
        values[value] = length;
        if (length > values[value + 64])
          return rvm_error("ValueError", "%s: argument %d (%s): dimension %d: %lld is too long",
                           function, i, p->name, d, (long long)length);
      }
    }
    if (x->strides)
      return rvm_error("ValueError", "%s: argument %d (%s): expected a contiguous tensor", function,
                       i, p->name);
  }
  return rvm_error("InternalError", "%s: the arguments were refused for no reason", function);
}

static UNUSED int overlap(const void *a, int64_t a_bytes, const void *b, int64_t b_bytes) {
  uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
  return x < y + (uint64_t)b_bytes && y < x + (uint64_t)a_bytes;
}

/* Zeroed memory for a local buffer, NULL after an error. */
static UNUSED void *allocate(const char *function, const char *buffer, int ndim, const int64_t *shape,
                             int64_t itemsize) {
  int64_t bytes = itemsize;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0) {
      rvm_report_error("ValueError", "%s: buffer %s: dimension %d is %lld", function, buffer, i,
                       (long long)shape[i]);
      return NULL;
    }
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = INT64_MAX;
  }
  void *memory = bytes == INT64_MAX ? NULL : calloc(bytes ? (size_t)bytes : 1, 1);
  if (!memory) rvm_report_error("MemoryError", "%s: no memory for buffer %s", function, buffer);
  return memory;
}
"""


class _Helpers:
    """Functions of C that the kernels use, in order of need."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def use(self, name: str, text: str, *needs: str) -> str:
        """Have a function; its name."""
        if name not in self.texts:
            self.texts[name] = f"static inline UNUSED {text}"
        return name

    def extreme(self, kind: str, dtype: str) -> str:
        t, sign = _VALUES[dtype], ">" if kind == "max" else "<"
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
        return self.use(
            f"round_{dtype}", f"float round_{dtype}({t} x) {{ return {of}({to}(x)); }}"
        )

    def to_int(self, source: str, dtype: str) -> str:
        t, f = _VALUES[dtype], _VALUES[source]
        low, high = prim._range(dtype)
        suffix = "f" if f == "float" else ""
        # The least float above the range, and the least within.
        above = f"0x1p{int(high).bit_length()}{suffix}"
        below = f"{_float_text(float(low), 'float64')}{suffix}" if low else f"0.0{suffix}"
        return self.use(
            f"{f}_to_{dtype}",
            f"{t} {f}_to_{dtype}({f} x) {{\n"
            f"  return x != x ? 0 : x >= {above} ? ({t}){_int_text(high, dtype)} : x <= {below} ? "
            f"({t}){_int_text(low, dtype)} : ({t})x;\n}}",
        )

    def divide(self, kind: str, dtype: str) -> str:
        """A division that rounds down or towards zero, or its remainder; by any divisor but 0."""
        t = _VALUES[dtype]
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
        t, bits = _VALUES[dtype], _bits(dtype)
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

    def fault_index(self) -> None:
        """The check of an index is part of the head."""


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


def _bits(dtype: str) -> int:
    return 8 if dtype == "bool" else int(re.sub(r"\D", "", dtype))


def _int_text(value: int, dtype: str) -> str:
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    if value == -(2**31):
        return "(-2147483647 - 1)"
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype, "")
    text = f"{value}{suffix}"
    return f"({text})" if value < 0 else text


def _float_text(value: float, dtype: str) -> str:
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


def _string(text: str) -> str:
    """A literal of C."""
    quoted = json.dumps(text, ensure_ascii=True)
    # JSON's \uXXXX is allowed in C for characters beyond ASCII only.
    return re.sub(r"\\u00([01][0-9a-f])", lambda m: f"\\{int(m[1], 16):03o}", quoted).replace(
        "??", '?""?'
    )


class _KernelText:
    """One kernel: its bodies, and the function that checks arguments and calls one of them."""

    def __init__(self, kernel: Kernel, helpers: _Helpers) -> None:
        for dtype in [p.dtype for p in kernel.params] + [b.ty.dtype for b in kernel.allocs]:
            if dtype not in _STORED:
                raise NotImplementedError(f"{kernel.name}: there is no C for data type {dtype}")
        self.kernel = kernel
        self.helpers = helpers
        self.symbol = symbol_of(kernel.name)
        self.names = _Names()
        self.sites: list[tuple[str, bool]] = []
        self.tensors = [p for p in kernel.params if p.dims is not None]
        for p in kernel.params:
            self.names.of(p.var)
        for dim in kernel.dims:
            self.names.of(dim)
        stack = 0
        self.on_stack: list[tuple[Buffer, int]] = []
        self.on_heap: list[Buffer] = []
        for buffer in kernel.allocs:
            self.names.of(buffer)
            size = _static_size(buffer)
            nbytes = None if size is None else size * _bits(buffer.ty.dtype) // 8
            if size is not None and nbytes is not None and stack + nbytes <= STACK_BYTES:
                stack += nbytes
                self.on_stack.append((buffer, size))
            else:
                self.on_heap.append(buffer)

    def text(self) -> str:
        kernel = self.kernel
        may_overlap = len(self.tensors) > 1 and any(p.written for p in self.tensors)
        bodies = [self._body("apart", exchange(kernel.body, always=False), True)]
        if may_overlap:
            bodies.append(self._body("any", kernel.body, False))
        sites = ""
        if self.sites:
            rows = ",\n".join(f"  {{{_string(text)}, {int(i)}}}" for text, i in self.sites)
            sites = f"static const Site {self.symbol}_sites[] = {{\n{rows}}};\n"
        return "\n".join([f"/* {_comment(kernel.name)} */", sites, *bodies,
                          self._entry(may_overlap)])  # fmt: skip

    def _signature(self, which: str, restrict: bool) -> str:
        parts = []
        for p in self.kernel.params:
            name = self.names.of(p.var)
            if p.dims is None:
                parts.append(f"{_scalar_type(p.dtype)} {name}")
            else:
                parts.append(self._pointer(p.var, p.written, restrict))
        parts += [self._pointer(b, True, restrict) for b in self.on_heap]
        parts += [f"int64_t {self.names.of(dim)}" for dim in self.kernel.dims]
        if self.kernel.returns:
            parts.append("RvmAny *ret")
        return f"static int {self.symbol}_{which}({', '.join(p + ' UNUSED' for p in parts) or 'void'})"

    def _pointer(self, buffer: Any, written: bool, restrict: bool) -> str:
        const = "" if written else "const "
        return (f"{const}{_STORED[buffer.ty.dtype]} *{'restrict ' if restrict else ''}"
                f"{self.names.of(buffer)}")  # fmt: skip

    def _body(self, which: str, body: Stmt, restrict: bool) -> str:
        writer = _Writer(self)
        lines = [
            f"{_STORED[b.ty.dtype]} {self.names.of(b)}[{max(size, 1)}] = {{0}};"
            for b, size in self.on_stack
        ]
        writer.statement(body)
        if writer.faults:
            lines.append("Fault fault = {0, 0, 0};")
        lines += [*writer.lines, "return RVM_OK;"]
        inner = "\n".join(f"  {line}" for line in lines)
        clones = "RVM_CLONES " if restrict and writer.vectorizable else ""
        return f"{clones}{self._signature(which, restrict)} {{\n{inner}\n}}\n"

    # The entry

    def _entry(self, may_overlap: bool) -> str:
        kernel, names = self.kernel, self.names
        count = len(kernel.params)
        slots = {dim: i for i, dim in enumerate(kernel.dims)}
        tables, tests, lines = [], [f"num_args == {count}"], []
        later: list[tuple[int, int, Expr]] = []
        for i, p in enumerate(kernel.params):
            if p.dims is None:
                tests += _scalar_tests(i, p.dtype)
                continue
            tests += [
                f"args[{i}].type == RVM_TENSOR",
                f"(t{i} = args[{i}].as_tensor)->ndim == {len(p.dims)}",
                f"t{i}->dtype.code == {_code(p.dtype)}",
                f"t{i}->dtype.bits == {_bits(p.dtype)}",
                f"t{i}->dtype.lanes == 1",
                f"!t{i}->strides",
            ]
            pairs = []
            for d, dim in enumerate(p.dims):
                length = f"t{i}->shape[{d}]"
                if type(dim.value) is IntImm:
                    tests.append(f"{length} == {_int_text(dim.value.value, 'int64')}")
                    pairs.append(f"DIM_IS, {dim.value.value}")
                elif dim.binds:
                    assert isinstance(dim.value, Var)
                    name = names.of(dim.value)
                    tests.append(f"({name} = {length}) <= {_longest(dim.value)}LL")
                    pairs.append(f"DIM_BINDS, {slots[dim.value]}")
                elif isinstance(dim.value, Var) and dim.value in slots:
                    tests.append(f"{length} == {names.of(dim.value)}")
                    pairs.append(f"DIM_SAME, {slots[dim.value]}")
                else:
                    later.append((i, d, dim.value))
                    pairs.append("DIM_FREE, 0")
            if pairs:
                tables.append(f"  static const int64_t dims{i}[] = {{{', '.join(pairs)}}};")
        rows = ", ".join(
            f"{{{_string(p.name)}, {_string(p.dtype)}, {_code(p.dtype)}, {_bits(p.dtype)}, "
            f"{-1 if p.dims is None else len(p.dims)}, {f'dims{i}' if p.dims else 'NULL'}}}"
            for i, p in enumerate(kernel.params)
        )
        if rows:
            tables.append(f"  static const Param params[] = {{{rows}}};")
        variables = ", ".join(_string(d.name) for d in kernel.dims) or "NULL"
        limits = "".join(f" values[{64 + i}] = {_longest(d)}LL;" for d, i in slots.items())
        listed = ", ".join(p.name for p in kernel.params)
        for i, p in enumerate(kernel.params):
            if p.dims is not None:
                lines.append(f"  const RvmTensor *t{i} = NULL;")
        lines += [f"  int64_t {names.of(d)} = 0;" for d in kernel.dims]
        lines.append(f"  if (UNLIKELY(!({' && '.join(tests)}))) {{")
        lines += [f"  {t}" for t in tables]
        if len(slots) > 64:
            raise NotImplementedError(f"{kernel.name}: more than 64 variables in shapes")
        lines += [
            f"    static const char *const variables[] = {{{variables}}};",
            f"    int64_t values[128] = {{0}};{limits}",
            f"    return refuse({_string(kernel.name)}, {'params' if rows else 'NULL'}, {count}, "
            f"{_string(listed)}, variables, values, args, num_args);",
            "  }",
        ]
        scalars = [
            f"  {_scalar_type(p.dtype)} {names.of(p.var)} = {_scalar_value(i, p.dtype)};"
            for i, p in enumerate(kernel.params) if p.dims is None
        ]  # fmt: skip
        lines += scalars
        lines += self._late_checks(later)
        lines += self._calls(may_overlap)
        body = "\n".join(lines)
        return f"RVM_KERNEL({self.symbol}) {{\n{body}\n}}\n"

    def _late_checks(self, later: list[tuple[int, int, Expr]]) -> list[str]:
        """Dimensions that are expressions, once all variables have values."""
        lines: list[str] = []
        for i, d, value in later:
            writer = _Writer(self)
            text = writer.expression(value)
            if writer.faults:
                raise NotImplementedError(
                    f"{self.kernel.name}: parameter {self.kernel.params[i].name}: a dimension may "
                    "divide by zero"
                )
            p = self.kernel.params[i]
            what = f"{self.kernel.name}: argument {i} ({p.name}): dimension {d}: expected "
            lines.append(
                f"  if (UNLIKELY(t{i}->shape[{d}] != {text})) return rvm_error(\"ValueError\", "
                f"\"%s%lld, got %lld\", {_string(what)}, (long long)({text}), "
                f"(long long)t{i}->shape[{d}]);"
            )
        return lines

    def _calls(self, may_overlap: bool) -> list[str]:
        kernel, names = self.kernel, self.names
        arguments = []
        for i, p in enumerate(kernel.params):
            if p.dims is None:
                arguments.append(names.of(p.var))
            else:
                const = "" if p.written else "const "
                arguments.append(f"({const}{_STORED[p.dtype]} *)rvm_data(t{i})")
        arguments += [names.of(b) for b in self.on_heap]
        arguments += [names.of(d) for d in kernel.dims]
        if kernel.returns:
            arguments.append("ret")
        inner = ", ".join(arguments)
        lines: list[str] = []
        for buffer in self.on_heap:
            writer = _Writer(self)
            dims = [writer.expression(dim) for dim in buffer.ty.shape]
            if writer.faults:
                raise NotImplementedError(
                    f"{kernel.name}: buffer {buffer.name}: a dimension may divide by zero"
                )
            lines.append(f"  {_STORED[buffer.ty.dtype]} *{names.of(buffer)} = NULL;")
            shape = f"(const int64_t[]){{{', '.join(dims)}}}" if dims else "NULL"
            lines.append(
                f"  if (!({names.of(buffer)} = allocate({_string(kernel.name)}, "
                f"{_string(buffer.name)}, {len(dims)}, {shape}, {_bits(buffer.ty.dtype) // 8}))) "
                f"{{ {self._free(before=buffer)} return RVM_FAILED; }}"
            )
        call = f"{self.symbol}_apart({inner})"
        if may_overlap:
            call = f"({self._overlaps()}) ? {self.symbol}_any({inner}) : {call}"
        if not self.on_heap:
            return [*lines, f"  return {call};"]
        return [*lines, f"  int status = {call};", f"  {self._free()}", "  return status;"]

    def _free(self, before: Buffer | None = None) -> str:
        texts = []
        for buffer in self.on_heap:
            if buffer is before:
                break
            texts.append(f"free({self.names.of(buffer)});")
        return " ".join(texts)

    def _overlaps(self) -> str:
        tests = []
        indices = [i for i, p in enumerate(self.kernel.params) if p.dims is not None]
        for x, i in enumerate(indices):
            for j in indices[x + 1 :]:
                a, b = self.kernel.params[i], self.kernel.params[j]
                if a.written or b.written:
                    tests.append(
                        f"overlap(rvm_data(t{i}), rvm_numel(t{i}) * {_bits(a.dtype) // 8}, "
                        f"rvm_data(t{j}), rvm_numel(t{j}) * {_bits(b.dtype) // 8})"
                    )
        return f"UNLIKELY({' || '.join(tests)})"


def _comment(text: str) -> str:
    return text.replace("*/", "* /")


def _code(dtype: str) -> str:
    return _CODES[re.sub(r"\d", "", dtype)]


def _longest(dim: Var) -> int:
    return min(MAX_DIM, int(prim._range(dim.ty.dtype)[1]))


def _static_size(buffer: Buffer) -> int | None:
    size = 1
    for dim in buffer.ty.shape:
        if type(dim) is not IntImm or dim.value < 0:
            return None
        size *= dim.value
    return size


def _scalar_type(dtype: str) -> str:
    """C type of a scalar parameter or variable: integers are wide, whatever their data type, so that
    sums that fit need no conversion."""
    if is_float(dtype) or dtype == "uint64":
        return _VALUES[dtype]
    return "int64_t"


def _scalar_tests(i: int, dtype: str) -> list[str]:
    kind = f"args[{i}].type"
    if is_float(dtype):
        return [f"({kind} == RVM_REAL || {kind} == RVM_INT || {kind} == RVM_BOOL)"]
    tests = [f"({kind} == RVM_INT || {kind} == RVM_BOOL)"]
    if dtype not in ("int64", "uint64", "bool"):
        low, high = prim._range(dtype)
        tests.append(f"args[{i}].as_int >= {_int_text(low, 'int64')}")
        tests.append(f"args[{i}].as_int <= {_int_text(high, 'int64')}")
    return tests


def _scalar_value(i: int, dtype: str) -> str:
    if is_float(dtype):
        real = (f"(args[{i}].type == RVM_REAL ? args[{i}].as_float : (double)args[{i}].as_int)")
        return f"({_VALUES[dtype]}){real}"
    return f"args[{i}].as_int != 0" if dtype == "bool" else f"args[{i}].as_int"


class _Names:
    """Identifiers of C for variables, each its own."""

    def __init__(self) -> None:
        self._by_var: dict[int, str] = {}
        self._keep: list[Var] = []
        self._taken: set[str] = set(_KEYWORDS)

    def of(self, var: Var) -> str:
        found = self._by_var.get(id(var))
        if found is None:
            base = re.sub(r"[^0-9A-Za-z_]", "_", var.name) or "v"
            base = f"v{base}" if base[0].isdigit() or base[0] == "_" else base
            # Upper case and digits at the end are for variables of programs; ours are short words.
            found, number = f"{base}_", 1
            while found in self._taken:
                found, number = f"{base}_{number}", number + 1
            self._taken.add(found)
            self._by_var[id(var)] = found
            self._keep.append(var)
        return found


class _Writer:
    """The statements of one body."""

    def __init__(self, owner: _KernelText) -> None:
        self._owner = owner
        self._helpers = owner.helpers
        self._names = owner.names
        self._facts = Facts()
        for p in owner.kernel.params:
            for dim in p.dims or ():
                if dim.binds:
                    assert isinstance(dim.value, Var)
                    self._facts.bind_dim(dim.value)
        self.lines: list[str] = []
        self.faults = 0
        """Number of checks written within expressions so far."""
        self.vectorizable = False
        self._depth = 0

    # Statements

    def _line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    def _checked(self, since: int) -> None:
        """After expressions: leave if one of their checks failed."""
        if self.faults > since:
            self._line(f"if (UNLIKELY(fault.site)) return fail(&fault, {self._owner.symbol}_sites);")

    def statement(self, stmt: Stmt) -> None:
        """Write a statement."""
        _STATEMENTS[type(stmt)](self, stmt)

    def _seq(self, stmt: SeqStmt) -> None:
        for part in stmt.seq:
            self.statement(part)

    def _for(self, loop: For) -> None:
        since = self.faults
        var = self._names.of(loop.loop_var)
        least = self.expression(loop.min)
        extent = self.expression(loop.extent)
        end = extent if least in ("0", "0LL") else f"{least} + {extent}"
        step = "1" if loop.step is None else self.expression(loop.step)
        self._line("{")
        self._depth += 1
        if not (isinstance(loop.extent, (IntImm, Var)) and isinstance(loop.min, (IntImm, Var))):
            # The bounds are those from before the loop.
            self._line(f"const int64_t {var}from = {least}, {var}to = {var}from + {extent};")
            least, end = f"{var}from", f"{var}to"
        self._checked(since)
        if loop.step is not None and type(loop.step) is not IntImm:
            self._line(f"const int64_t {var}by = {step};")
            step = f"{var}by"
            place = f"{self._owner.kernel.name}: loop {loop.loop_var.name}"
            self._line(f"if (UNLIKELY({step} <= 0)) return rvm_error(\"ValueError\", "
                       f"\"%s: the step is %lld\", {_string(place)}, (long long){step});")  # fmt: skip
        advance = f"{var}++" if step == "1" else f"{var} += {step}"
        self._line(f"for (int64_t {var} = {least}; {var} < {end}; {advance}) {{")
        self._depth += 1
        with self._facts.loop(loop.loop_var, loop.min, loop.extent):
            self.statement(loop.body)
        self._depth -= 1
        self._line("}")
        self._depth -= 1
        self._line("}")
        self.vectorizable = True

    def _while(self, stmt: While) -> None:
        self._line("for (uint32_t turn = 1;; turn++) {")
        self._depth += 1
        self._line("if (!(turn & 0xffff) && rvm_interrupted()) return RVM_FAILED;")
        since = self.faults
        self._line(f"const int go = {self.expression(stmt.condition)};")
        self._checked(since)
        self._line("if (!go) break;")
        self.statement(stmt.body)
        self._depth -= 1
        self._line("}")

    def _if(self, stmt: IfThenElse) -> None:
        since = self.faults
        condition = self.expression(stmt.condition)
        self._line("{")
        self._depth += 1
        if self.faults > since:
            self._line(f"const int holds = {condition};")
            self._checked(since)
            condition = "holds"
        self._line(f"if ({condition}) {{")
        self._branch(stmt.then_case, stmt.condition, True)
        if stmt.else_case is not None:
            self._line("} else {")
            self._branch(stmt.else_case, stmt.condition, False)
        self._line("}")
        self._depth -= 1
        self._line("}")

    def _branch(self, stmt: Stmt, condition: Expr, holds: bool) -> None:
        self._depth += 1
        with self._facts.given(condition, holds):
            self.statement(stmt)
        self._depth -= 1

    def _bind(self, stmt: Bind) -> None:
        since = self.faults
        dtype = stmt.var.ty.dtype
        value = self.expression(stmt.value)
        self._line(f"const {_scalar_type(dtype)} {self._names.of(stmt.var)} = {value};")
        self._checked(since)

    def _assert(self, stmt: AssertStmt) -> None:
        since = self.faults
        condition = self.expression(stmt.condition)
        message = "".join(part.value for part in stmt.message_parts)
        self._line("{")
        self._line(f"  const int holds = {condition};")
        self._checked(since)
        self._line(f"  if (UNLIKELY(!holds)) return rvm_error({_string(stmt.kind.value)}, \"%s\", "
                   f"{_string(f'{self._owner.kernel.name}: {message}')});")  # fmt: skip
        self._line("}")

    def _evaluate(self, stmt: Evaluate) -> None:
        value = stmt.value
        if not (isinstance(value, Call) and value.op is RET):
            return
        since = self.faults
        dtype = value.args[0].dtype
        result = self.expression(value.args[0])
        kind = "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"
        self._line("{")
        self._line(f"  const {_scalar_type(dtype)} result = {result};")
        self._checked(since)
        self._line(f"  return rvm_return_{kind}(ret, result);")
        self._line("}")

    def _store(self, stmt: BufferStore) -> None:
        since = self.faults
        buffer, dtype = stmt.buffer, stmt.buffer.ty.dtype
        value = self.expression(stmt.value)
        texts = [self.expression(i) for i in stmt.indices]
        unproven = [d for d, (i, n) in enumerate(zip(stmt.indices, buffer.ty.shape, strict=True))
                    if not self._facts.in_bounds(i, n)]  # fmt: skip
        stored = self._to_memory(value, dtype)
        if self.faults == since and not unproven:
            self._line(f"{self._element(buffer, texts)} = {stored};")
            return
        self._line("{")
        self._depth += 1
        self._line(f"const {_VALUES[dtype]} value = {value};")
        for d, text in enumerate(texts):
            self._line(f"const int64_t i{d} = {text};")
        names = [f"i{d}" for d in range(len(texts))]
        self._checked(since)
        for d in unproven:
            site = self._site(buffer, d)
            length = self.expression(buffer.ty.shape[d])
            self._line(f"if (UNLIKELY((uint64_t)i{d} >= (uint64_t)({length}))) return fail(&(Fault){{"
                       f"{site}, i{d}, {length}}}, {self._owner.symbol}_sites);")  # fmt: skip
        self._line(f"{self._element(buffer, names)} = {self._to_memory('value', dtype)};")
        self._depth -= 1
        self._line("}")

    # Memory

    def _site(self, buffer: Buffer, dimension: int) -> int:
        text = f"{self._owner.kernel.name}: buffer {buffer.name}, dimension {dimension}"
        return self._add_site(text, True)

    def _add_site(self, text: str, is_index: bool) -> int:
        sites = self._owner.sites
        if (text, is_index) not in sites:
            sites.append((text, is_index))
        return sites.index((text, is_index)) + 1

    def _element(self, buffer: Buffer, indices: Sequence[str]) -> str:
        """An element, by indices that are within bounds: the offset cannot overflow."""
        offset = ""
        for index, dim in zip(indices, buffer.ty.shape, strict=True):
            if not offset:
                offset = index
            else:
                length = self.expression(dim)
                offset = f"({offset}) * (int64_t)({length}) + {index}"
        name = self._names.of(buffer)
        return f"{name}[{offset or '0'}]"

    def _to_memory(self, value: str, dtype: str) -> str:
        return f"{self._helpers.half(dtype, False)}({value})" if dtype in _HALVES else value

    def _from_memory(self, element: str, dtype: str) -> str:
        if dtype in _HALVES:
            return f"{self._helpers.half(dtype, True)}({element})"
        return f"({element} != 0)" if dtype == "bool" else element

    def _load(self, load: BufferLoad) -> str:
        buffer, dtype = load.buffer, load.buffer.ty.dtype
        texts = [self.expression(i) for i in load.indices]
        unproven = [d for d, (i, n) in enumerate(zip(load.indices, buffer.ty.shape, strict=True))
                    if not self._facts.in_bounds(i, n)]  # fmt: skip
        if not unproven:
            return self._from_memory(self._element(buffer, texts), dtype)
        self.faults += 1
        # The names of statement expressions are their own, so they may nest.
        number = self.faults
        names = [f"x{number}_{d}" for d in range(len(texts))]
        binds = " ".join(
            f"const int64_t {n} = {t};" for n, t in zip(names, texts, strict=True)
        )
        element = self._from_memory(self._element(buffer, names), dtype)
        for d in reversed(unproven):
            length = self.expression(buffer.ty.shape[d])
            element = (
                f"LIKELY((uint64_t){names[d]} < (uint64_t)({length})) ? {element} : "
                f"({_VALUES[dtype]})record(&fault, {self._site(buffer, d)}, {names[d]}, {length})"
            )
        return f"({{ {binds} {element}; }})"

    # Expressions

    def expression(self, e: Expr) -> str:
        """An expression as text that may stand anywhere."""
        kind = type(e)
        if isinstance(e, Buffer):
            raise NotImplementedError(
                f"{self._owner.kernel.name}: buffer {e.name} is used as a value"
            )
        if isinstance(e, Var):
            return self._names.of(e)
        if kind is IntImm:
            return _int_text(e.value, e.dtype)  # type: ignore[attr-defined]
        if kind is FloatImm:
            return self._rounded(_float_text(e.value, e.dtype), e.dtype)  # type: ignore[attr-defined]
        if kind is BufferLoad:
            return self._load(e)  # type: ignore[arg-type]
        if kind is Call:
            return self._call(e)  # type: ignore[arg-type]
        method = _EXPRESSIONS.get(kind)
        if method is None:
            raise NotImplementedError(
                f"{self._owner.kernel.name}: expressions of class {kind.__name__} cannot be lowered"
            )
        return method(self, e)

    def _rounded(self, text: str, dtype: str) -> str:
        """The result of an operation on floats, in its data type."""
        return f"{self._helpers.round_half(dtype)}({text})" if dtype in _HALVES else text

    def _wrapped(self, text: str, e: Expr) -> str:
        """The result of an operation on integers, in its data type."""
        if e.dtype in ("int64", "uint64") or self._facts.fits(e):
            return f"({text})"
        return f"(({_VALUES[e.dtype]})({text}))"

    def _arithmetic(self, e: Any) -> str:
        text = f"{self.expression(e.a)} {e.SYMBOL} {self.expression(e.b)}"
        if is_float(e.dtype):
            return self._rounded(f"({text})", e.dtype)
        if e.dtype == "uint64":
            text = f"(uint64_t){self.expression(e.a)} {e.SYMBOL} (uint64_t){self.expression(e.b)}"
        return self._wrapped(text, e)

    def _divide(self, e: Any) -> str:
        """`Div` and `Mod` truncate, `FloorDiv` and `FloorMod` round down."""
        a, b, dtype = self.expression(e.a), self.expression(e.b), e.dtype
        kind = {prim.Div: "truncdiv", prim.Mod: "truncmod", prim.FloorDiv: "floordiv",
                prim.FloorMod: "floormod"}[type(e)]  # fmt: skip
        if is_float(dtype):
            suffix = "" if dtype == "float64" else "f"
            if kind == "truncdiv":
                return self._rounded(f"({a} / {b})", dtype)
            if kind == "truncmod":
                return self._rounded(f"fmod{suffix}({a}, {b})", dtype)
            quotient = self._rounded(f"({a} / {b})", dtype)
            whole = f"floor{suffix}({quotient})"
            if kind == "floordiv":
                return whole
            product = self._rounded(f"({whole} * {b})", dtype)
            return self._rounded(f"({a} - {product})", dtype)
        facts = self._facts
        if facts.interval(e.a)[0] >= 0 and facts.interval(e.b)[0] > 0:
            sign = "/" if kind.endswith("div") else "%"
            return f"({a} {sign} {b})"
        name = self._helpers.divide(kind, dtype)
        if facts.is_nonzero(e.b):
            return f"{name}({a}, {b})"
        self.faults += 1
        x, y = f"x{self.faults}", f"y{self.faults}"
        t = _VALUES[dtype]
        site = self._add_site(f"{self._owner.kernel.name}: integer division by zero", False)
        return (f"({{ const {t} {x} = {a}, {y} = {b}; LIKELY({y} != 0) ? {name}({x}, {y}) : "
                f"({t})record(&fault, {site}, 0, 0); }})")  # fmt: skip

    def _extreme(self, e: Any) -> str:
        kind = "max" if type(e) is prim.Max else "min"
        return f"{self._helpers.extreme(kind, e.dtype)}({self.expression(e.a)}, {self.expression(e.b)})"

    def _bitwise(self, e: Any) -> str:
        return f"(({_VALUES[e.dtype]})({self.expression(e.a)} {e.SYMBOL} {self.expression(e.b)}))"

    def _shift(self, e: Any) -> str:
        kind = "shl" if type(e) is prim.LShift else "shr"
        return f"{self._helpers.shift(kind, e.dtype)}({self.expression(e.a)}, {self.expression(e.b)})"

    def _compare(self, e: Any) -> str:
        a, b = self.expression(e.a), self.expression(e.b)
        if e.a.dtype == "uint64":
            a, b = f"(uint64_t){a}", f"(uint64_t){b}"
        return f"({a} {e.SYMBOL} {b})"

    def _logic(self, e: Any) -> str:
        is_and = type(e) is prim.And
        a = self.expression(e.a)
        with self._facts.given(e.a, is_and):
            b = self.expression(e.b)
        return f"({a} {'&&' if is_and else '||'} {b})"

    def _not(self, e: Any) -> str:
        return f"(!{self.expression(e.a)})"

    def _invert(self, e: Any) -> str:
        return f"(({_VALUES[e.dtype]})~{self.expression(e.a)})"

    def _choose(self, condition: Expr, true_value: Expr, false_value: Expr) -> str:
        test = self.expression(condition)
        with self._facts.given(condition, True):
            yes = self.expression(true_value)
        with self._facts.given(condition, False):
            no = self.expression(false_value)
        return f"({test} ? {yes} : {no})"

    def _select(self, e: Any) -> str:
        return self._choose(e.condition, e.true_value, e.false_value)

    def _let(self, e: Any) -> str:
        value = self.expression(e.value)
        name = self._names.of(e.var)
        return f"({{ const {_scalar_type(e.var.dtype)} {name} = {value}; {self.expression(e.body)}; }})"

    def _cast(self, e: Any) -> str:
        source, dtype, text = e.value.dtype, e.dtype, self.expression(e.value)
        if dtype not in _VALUES or source not in _VALUES:
            raise NotImplementedError(
                f"{self._owner.kernel.name}: there is no C for a cast of {source} to {dtype}"
            )
        if dtype == "bool":
            return f"({text} != 0)"
        if is_float(dtype):
            if dtype == "float16":
                return f"{self._helpers.round_half(dtype)}({text if is_float(source) else f'(float){text}'})"
            value = f"(({_VALUES[dtype]}){text})"
            return value if source == "float16" and dtype != "bfloat16" else self._rounded(value, dtype)
        if is_float(source):
            return f"{self._helpers.to_int(source, dtype)}({text})"
        low, high = prim._range(dtype)
        interval = self._facts.interval(e.value)
        if dtype != "uint64" and low <= interval[0] and interval[1] <= high:
            # Stays wide where it is an index; otherwise the wider type is what is asked for.
            return f"((int64_t){text})" if dtype == "int64" else text
        return f"(({_VALUES[dtype]}){text})"

    def _call(self, call: Call) -> str:
        op, args = call.op, call.args
        if op is IF_THEN_ELSE:
            return self._choose(args[0], args[1], args[2])
        if op is LIKELY:
            return f"LIKELY({self.expression(args[0])})"
        row = INTRINSICS.get(getattr(op, "name", ""))
        if row is not None:
            dtype = args[0].dtype
            name = self._helpers.function(row, dtype)
            result = f"{name}({', '.join(self.expression(a) for a in args)})"
            return result if row.result else self._rounded(result, dtype)
        if op is POPCOUNT or op is CLZ:
            dtype = args[0].dtype
            bits = _bits(dtype)
            text = f"(uint64_t)(uint{bits}_t){self.expression(args[0])}"
            if op is POPCOUNT:
                return f"__builtin_popcountll({text})"
            name = self._helpers.use(
                f"clz_{bits}",
                f"int clz_{bits}(uint64_t x) {{ return x ? __builtin_clzll(x) - {64 - bits} : {bits}; }}",
            )
            return f"{name}({text})"
        if op is REINTERPRET:
            return self._reinterpret(args[0], call.dtype)
        raise NotImplementedError(
            f"{self._owner.kernel.name}: {getattr(op, 'name', op)} cannot be lowered"
        )

    def _reinterpret(self, value: Expr, dtype: str) -> str:
        source = value.dtype
        stored = self._to_memory(self.expression(value), source)
        name = self._helpers.use(
            f"{source}_as_{dtype}",
            f"{_STORED[dtype]} {source}_as_{dtype}({_STORED[source]} x) {{\n"
            f"  union {{ {_STORED[source]} from; {_STORED[dtype]} to; }} u = {{x}};\n"
            "  return u.to;\n}",
        )
        return self._from_memory(f"{name}({stored})", dtype)


_STATEMENTS: Final[dict[type, Callable[[_Writer, Any], None]]] = {
    SeqStmt: _Writer._seq,
    For: _Writer._for,
    While: _Writer._while,
    IfThenElse: _Writer._if,
    Bind: _Writer._bind,
    AssertStmt: _Writer._assert,
    Evaluate: _Writer._evaluate,
    BufferStore: _Writer._store,
}


def _each(kinds: Iterable[type], method: Callable[[_Writer, Any], str]) -> dict[type, Any]:
    return dict.fromkeys(kinds, method)


_EXPRESSIONS: Final[dict[type, Callable[[_Writer, Any], str]]] = {
    **_each((prim.Add, prim.Sub, prim.Mul), _Writer._arithmetic),
    **_each((prim.Div, prim.Mod, prim.FloorDiv, prim.FloorMod), _Writer._divide),
    **_each((prim.Max, prim.Min), _Writer._extreme),
    **_each((prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor), _Writer._bitwise),
    **_each((prim.LShift, prim.RShift), _Writer._shift),
    **_each((prim.EQ, prim.NE, prim.LT, prim.LE, prim.GT, prim.GE), _Writer._compare),
    **_each((prim.And, prim.Or), _Writer._logic),
    prim.Not: _Writer._not,
    prim.BitwiseNot: _Writer._invert,
    prim.Select: _Writer._select,
    prim.Let: _Writer._let,
    prim.Cast: _Writer._cast,
}
