"""C code shared by all generated kernels: arguments, memory, errors, Ctrl-C.

It is most of the source of a small kernel, so it is compiled once: with ``SUPPORT`` defined, the
functions are in a separate object file.  Without it, each C source is self-contained.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["FEW_ITERATIONS", "HEAD", "c_string", "pieces_of", "symbol_of"]

FEW_ITERATIONS: Final = 2**20
"""A loop with at most this many iterations ends soon, so it need not check for Ctrl-C."""

HEAD: Final = (
    f"""/* A loop with at most this many iterations ends soon. */
#define ITERATIONS_PER_CHECK {FEW_ITERATIONS}

"""
    r"""/* Code shared by all kernels.  Without SUPPORT it is part of every source.  With SUPPORT 1
 * it is compiled to an object file, with which sources that define SUPPORT as 0 are linked. */
#if defined(SUPPORT) && !SUPPORT
#define RELAXVM_KERNEL_TYPES_ONLY
#endif
#include <relaxvm/kernel.h>

#ifdef SUPPORT
#define SHARED __attribute__((visibility("hidden")))
#else
#define SHARED RVM_UNUSED static
#endif
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define UNUSED __attribute__((unused))
/* Before a loop: no iteration needs another one.  Compilers that do not know this ignore it. */
#define VECTORIZED _Pragma("omp simd")
/* In a loop: its iterations stay one after the other.  Else GCC merges two, with the loops in them,
 * and keeps arrays in memory that have room in registers; and GCC 12 runs iterations at once that
 * need each other, if it has unrolled a loop in them before. */
#define ONE_BY_ONE __asm__ volatile("")

/* ---- arguments ---- */

/* A dimension: its length is `value`, or the value of the variable with index `value`. */
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

/* An argument as passed to the body. */
typedef union {
  void *data;
  int64_t i;
  double f;
} Value;

typedef struct {
  int (*run)(const RvmAny *args, const Value *values, const int64_t *variables, RvmAny *ret);
  const char *name;
  const char *parameters; /* their names, for messages */
  int count;
  const Param *params;
  int num_variables;            /* variables that are set from shapes */
  const char *const *variables; /* their names */
  const int64_t *longest;       /* their maxima */
} Function;

/* Check and unpack arguments, and run the function with them. */
SHARED __attribute__((noinline)) int call(const Function *f, const RvmAny *args, int32_t num_args,
                                          RvmAny *ret);
SHARED __attribute__((noinline)) int check_dim(const Function *f, const RvmAny *args, int i, int d,
                                               int64_t expected);

/* Allocate zeroed memory for a local buffer; NULL after an error. */
SHARED __attribute__((noinline)) void *allocate(const Function *f, const char *buffer, int ndim,
                                                const int64_t *shape, int64_t itemsize);

/* ---- long loops ---- */

SHARED __attribute__((cold, noinline)) int interrupted(void);

/* Count iterations, and check for Ctrl-C after many of them. */
#define CHECK_INTERRUPT(count)                                      \
  if (UNLIKELY((iterations += (count)) >= ITERATIONS_PER_CHECK)) {  \
    iterations = 0;                                                 \
    if (interrupted()) return RVM_FAILED;                           \
  }

/* ---- errors within a body ---- */

typedef struct {
  int site; /* counted from 1; 0 if there is no error */
  int64_t index, length;
} Fault;

typedef struct {
  const char *text; /* the position; for a division by zero, the whole message */
  int is_index;
} Site;

SHARED __attribute__((cold, noinline)) int64_t record(Fault *fault, int site, int64_t index,
                                                      int64_t length);
SHARED __attribute__((cold, noinline)) int fail(const Fault *fault, const Site *sites);

/* Set the error of the kernel, printf-style, and return RVM_FAILED. */
SHARED __attribute__((cold, noinline, format(printf, 2, 3))) int refuse(const char *kind,
                                                                        const char *format, ...);

#if !defined(SUPPORT) || SUPPORT

#include <stdlib.h>

SHARED int refuse(const char *kind, const char *format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  return rvm_error(kind, "%s", message);
}

SHARED int interrupted(void) { return rvm_interrupted(); }

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
  return refuse(kind, "%s: argument %d (%s): " format, f->name, i, p->name, __VA_ARGS__)

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

/* Return whether elements are in row-major order.  Then relaxvm passes no strides, but TVM does. */
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

/* The copies made for a call, as a linked list. */
typedef struct Copy {
  struct Copy *next;
  _Alignas(16) char data[];
} Copy;

/* Within a body buffers do not overlap: a buffer that is only read and overlaps a written one is
 * copied. */
static int separate(const Function *f, const RvmAny *args, Value *values, Copy **copies) {
  for (int i = 0; i < f->count; i++) {
    const Param *p = &f->params[i];
    if (p->ndim < 0) continue;
    for (int j = 0; j < f->count; j++) {
      if (j == i || f->params[j].ndim < 0 || !f->params[j].written ||
          !overlap(rvm_any_tensor(args, i), rvm_any_tensor(args, j)))
        continue;
      if (p->written)
        REFUSE("ValueError", "overlaps argument %d (%s), and both are written", j,
               f->params[j].name);
      size_t size = (size_t)nbytes(rvm_any_tensor(args, i));
      Copy *copy = malloc(sizeof *copy + size);
      if (!copy) REFUSE("MemoryError", "no memory for a %s", "copy");
      copy->next = *copies;
      *copies = copy;
      values[i].data = memcpy(copy->data, values[i].data, size);
      break;
    }
  }
  return RVM_OK;
}

static int take(const Function *f, const RvmAny *args, int32_t num_args, Value *values,
                int64_t *variables, Copy **copies) {
  if (num_args != f->count)
    return refuse("TypeError", "%s: expected %d argument%s (%s), got %d", f->name, f->count,
                  f->count == 1 ? "" : "s", f->parameters, (int)num_args);
  for (int i = 0; i < f->count; i++) {
    int status = f->params[i].ndim < 0 ? take_scalar(f, i, &args[i], &values[i])
                                       : take_tensor(f, i, args, &values[i], variables);
    if (UNLIKELY(status)) return status;
  }
  return separate(f, args, values, copies);
}

SHARED int call(const Function *f, const RvmAny *args, int32_t num_args, RvmAny *ret) {
  Value values[f->count + 1];
  int64_t variables[f->num_variables + 1];
  Copy *copies = NULL;
  int status = take(f, args, num_args, values, variables, &copies);
  if (!status) status = f->run(args, values, variables, ret);
  while (UNLIKELY(copies)) {
    Copy *copy = copies;
    copies = copy->next;
    free(copy);
  }
  return status;
}

SHARED int check_dim(const Function *f, const RvmAny *args, int i, int d, int64_t expected) {
  int64_t length = rvm_any_tensor(args, i)->shape[d];
  const Param *p = &f->params[i];
  if (length != expected)
    REFUSE("ValueError", "dimension %d: expected %lld, got %lld", d, (long long)expected,
           (long long)length);
  return RVM_OK;
}

SHARED void *allocate(const Function *f, const char *buffer, int ndim, const int64_t *shape,
                      int64_t itemsize) {
  int64_t bytes = itemsize;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0) {
      refuse("ValueError", "%s: buffer %s: dimension %d is %lld", f->name, buffer, i,
                       (long long)shape[i]);
      return NULL;
    }
    if (__builtin_mul_overflow(bytes, shape[i], &bytes)) bytes = INT64_MAX;
  }
  void *memory = bytes == INT64_MAX ? NULL : calloc(bytes ? (size_t)bytes : 1, 1);
  if (!memory) refuse("MemoryError", "%s: buffer %s: no memory", f->name, buffer);
  return memory;
}

SHARED int64_t record(Fault *fault, int site, int64_t index, int64_t length) {
  if (!fault->site) *fault = (Fault){site, index, length};
  return 0;
}

SHARED int fail(const Fault *fault, const Site *sites) {
  const Site *site = &sites[fault->site - 1];
  if (!site->is_index) return refuse("ZeroDivisionError", "%s", site->text);
  return refuse("IndexError", "%s: index %lld is out of bounds for length %lld", site->text,
                   (long long)fault->index, (long long)fault->length);
}

#endif
"""
)
"""The beginning of every C source."""

_PIECE: Final = re.compile(r"^(?=/\* ---- )", re.MULTILINE)
"""The line that starts the source of a kernel, after `HEAD`."""


def symbol_of(name: str) -> str:
    """Return the C symbol of a function: its name, with other characters escaped as ``_x2e_``.
    Different names have different symbols."""
    return re.sub(r"^\d|[^0-9A-Za-z_]|_(?=x)", lambda m: f"_x{ord(m[0]):x}_", name)


def pieces_of(text: str) -> list[str]:
    """Return the sources of the kernels in a source of `relaxvm.tir.lower_c.c_source`.  Each can be
    compiled after `HEAD` without the others.  Empty for a source of another version of relaxvm."""
    return _PIECE.split(text[len(HEAD) :])[1:] if text.startswith(HEAD) else []


def c_string(text: str) -> str:
    """Return a C string literal in UTF-8.  Quotes, newlines and question marks (which could start
    trigraphs) are escaped."""
    data = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data) + '"'


_PLAIN: Final = frozenset(range(32, 127)) - frozenset(b'"\\?')
