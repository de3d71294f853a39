/* Native kernels: C and C++ functions that relaxvm calls directly.
 *
 *     #include <relaxvm/kernel.h>
 *
 *     RVM_KERNEL(scale) {                           // scale(x, factor, out)
 *       RVM_EXPECT_ARGS(3);
 *       const RvmTensor *x = rvm_tensor(args, 0, RVM_FLOAT, 32, 1);
 *       RvmTensor *out = rvm_tensor(args, 2, RVM_FLOAT, 32, 1);
 *       double factor;
 *       if (!x || !out || rvm_get_float(args, 1, &factor)) return RVM_FAILED;
 *       if (x->shape[0] != out->shape[0])
 *         return rvm_error("ValueError", "scale: out has %lld elements, x has %lld",
 *                          (long long)out->shape[0], (long long)x->shape[0]);
 *       for (int64_t i = 0; i < x->shape[0]; i++)
 *         rvm_f32(out)[i] = rvm_f32(x)[i] * (float)factor;
 *       return RVM_OK;
 *     }
 *
 * The calling convention is the open one of TVM's FFI and of DLPack.  The definitions here have the
 * same layout but different names, so this header can be included together with those of TVM.  A
 * library built with it works with relaxvm and with TVM's FFI.
 *
 * Rules for kernels:
 *
 * - Arguments are borrowed for the duration of the call.  Do not keep or free them, and write only
 *   to tensors that the kernel was registered to write (by default the last argument).
 * - Tensors are in host memory, aligned at least to their element type.  `strides` is NULL for
 *   row-major contiguous data, which is always the case unless the kernel was loaded with
 *   `strided=True`.  The data pointer may be NULL or dangling if a dimension is 0.
 * - The interpreter lock may be held or not, depending on the option `release_gil`.  Do not call
 *   Python without PyGILState_Ensure.
 * - A call returns RVM_OK, or another number after `rvm_error`, on the thread of the call.  It must
 *   not exit by longjmp or a C++ exception.
 * - `*ret` is None on entry.  It may be left unchanged, or set by `rvm_return_*`.
 */
#ifndef RELAXVM_KERNEL_H_
#define RELAXVM_KERNEL_H_

#include <stddef.h>
#include <stdint.h>

/* Marks uses of features that are newer than C99. */
#ifdef __GNUC__
#define RVM_EXTENSION __extension__
#else
#define RVM_EXTENSION
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values -------------------------------------------------------------------------------- */

/* The type of an RvmAny.  Types from RVM_OBJECT are reference-counted objects in `as_object`. */
enum {
  RVM_NONE = 0,
  RVM_INT = 1,            /* as_int */
  RVM_BOOL = 2,           /* as_int, 0 or 1 */
  RVM_REAL = 3,           /* as_float */
  RVM_POINTER = 4,        /* as_pointer, opaque */
  RVM_DTYPE = 5,          /* as_dtype */
  RVM_DEVICE = 6,         /* as_device */
  RVM_TENSOR = 7,         /* as_tensor, borrowed */
  RVM_TEXT = 8,           /* as_text, borrowed: UTF-8 that ends with a zero byte */
  RVM_BYTES = 9,          /* as_bytes, borrowed */
  RVM_SHORT_TEXT = 11,    /* short_bytes with length short_size: a result of up to 7 bytes */
  RVM_SHORT_BYTES = 12,   /* the same for bytes */
  RVM_OBJECT = 64,
  RVM_TEXT_OBJECT = 65,   /* as_object, an RvmBytesObject */
  RVM_BYTES_OBJECT = 66,  /* the same for bytes */
  RVM_SHAPE = 69,         /* as_object, an RvmShape */
  RVM_TENSOR_OBJECT = 70  /* as_object, an RvmTensorObject: used by TVM for tensors from Python */
};

/* The kind of number in an RvmDtype. */
enum {
  RVM_SIGNED = 0,
  RVM_UNSIGNED = 1,
  RVM_FLOAT = 2,
  RVM_BFLOAT = 4,
  RVM_COMPLEX = 5,
  RVM_BOOLEAN = 6,
  RVM_FLOAT8_E3M4 = 7,
  RVM_FLOAT8_E4M3 = 8,
  RVM_FLOAT8_E4M3B11FNUZ = 9,
  RVM_FLOAT8_E4M3FN = 10,
  RVM_FLOAT8_E4M3FNUZ = 11,
  RVM_FLOAT8_E5M2 = 12,
  RVM_FLOAT8_E5M2FNUZ = 13,
  RVM_FLOAT8_E8M0FNU = 14
};

/* A data type: 4 bytes.  float32 is {RVM_FLOAT, 32, 1}. */
typedef struct {
  uint8_t code;    /* kind of number */
  uint8_t bits;    /* of one element */
  uint16_t lanes;  /* 1, unless elements are short vectors */
} RvmDtype;

/* A device: 8 bytes. */
typedef struct {
  int32_t type;  /* RVM_CPU, or another device type of DLPack */
  int32_t index;
} RvmDevice;

enum { RVM_CPU = 1 };

/* A borrowed tensor: 48 bytes, DLPack's DLTensor. */
typedef struct {
  void *data;
  RvmDevice device;
  int32_t ndim;
  RvmDtype dtype;
  int64_t *shape;        /* ndim dimensions; may be NULL if ndim is 0 */
  int64_t *strides;      /* ndim strides in elements, or NULL: row-major and contiguous */
  uint64_t byte_offset;  /* of the first element from `data`; 0 in tensors passed by relaxvm */
} RvmTensor;

/* Borrowed bytes. */
typedef struct {
  const char *data;
  size_t size;
} RvmBytes;

/* The header of reference-counted objects: 24 bytes. */
typedef struct {
  uint64_t counts;                         /* strong in the low half, weak in the high half */
  int32_t type;                            /* as in RvmAny */
  uint32_t padding;
  void (*destroy)(void *self, int what);   /* 1: its contents, 2: its memory, 3: both */
} RvmObject;

/* A shape as an argument, independent of a tensor. */
typedef struct {
  RvmObject object;
  const int64_t *dims;
  size_t ndim;
} RvmShape;

/* Text or bytes as an object. */
typedef struct {
  RvmObject object;
  RvmBytes bytes;
} RvmBytesObject;

/* A tensor as an object. */
typedef struct {
  RvmObject object;
  RvmTensor tensor;
} RvmTensorObject;

/* An argument or a result: 16 bytes. */
typedef struct {
  int32_t type;         /* RVM_... */
  uint32_t short_size;  /* length of short text and bytes; otherwise 0 */
  RVM_EXTENSION union {
    int64_t as_int;
    double as_float;
    void *as_pointer;
    const char *as_text;
    const RvmBytes *as_bytes;
    RvmObject *as_object;
    RvmTensor *as_tensor;
    RvmDtype as_dtype;
    RvmDevice as_device;
    char short_bytes[8];
  };
} RvmAny;

/* A kernel.  `self` is set when it is registered: NULL for a function found by its symbol. */
typedef int (*RvmFunction)(void *self, const RvmAny *args, int32_t num_args, RvmAny *ret);

enum { RVM_OK = 0, RVM_FAILED = -1 };

/* Functions of the process that loads kernels.  New members are added at the end. */
typedef struct {
  uint32_t size;  /* bytes of this structure */
  /* Set the error of the current call on this thread.  Copies both strings.  Returns false if no
   * call by this host is active on this thread. */
  int (*set_error)(const char *kind, const char *message);
  /* Return whether Ctrl-C was pressed.  The kernel should then return RVM_FAILED. */
  int (*interrupted)(void);
} RvmHost;

#ifdef __cplusplus
}
#endif

/* ---- function declarations ------------------------------------------------------------------ */

#ifdef __cplusplus
#define RVM_EXTERN_C extern "C"
#else
#define RVM_EXTERN_C extern
#endif

#ifdef _WIN32
#define RVM_EXPORT RVM_EXTERN_C __declspec(dllexport)
#else
#define RVM_EXPORT RVM_EXTERN_C __attribute__((visibility("default")))
#endif
#define RVM_UNUSED __attribute__((unused))

/* The head of a kernel's definition; its parameters are self, args, num_args and ret.  The kernel
 * is exported under the symbol that TVM's FFI looks up. */
#define RVM_KERNEL(name)                                                      \
  RVM_EXPORT int __tvm_ffi_##name(void *, const RvmAny *, int32_t, RvmAny *); \
  int __tvm_ffi_##name(RVM_UNUSED void *self, RVM_UNUSED const RvmAny *args, \
                       RVM_UNUSED int32_t num_args, RVM_UNUSED RvmAny *ret)

/* Before a function: also compile it for wider vector units; the best version for the machine is
 * selected at load time.  Results are bit-identical.  Empty on platforms without support, or if
 * defined as empty in order to compile for one machine. */
#if defined(RVM_CLONES)
#elif defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && \
    (!defined(__clang__) || __clang_major__ >= 14)
#define RVM_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RVM_CLONES
#endif

/* ---- helpers for kernels -------------------------------------------------------------------- */

#ifndef RELAXVM_KERNEL_TYPES_ONLY

#if !defined(__GNUC__)
#error "relaxvm/kernel.h: needs GCC or Clang; define RELAXVM_KERNEL_TYPES_ONLY for the types alone"
#endif

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The names of the kernels of a library, once per library, for `relaxvm.load_kernels(path)`:
 *     RVM_KERNEL_NAMES("scale", "dot")                                                */
#define RVM_KERNEL_NAMES(...)                          \
  RVM_EXPORT const char *const relaxvm_kernel_names[]; \
  const char *const relaxvm_kernel_names[] = {__VA_ARGS__, NULL};

RVM_EXTERN_C __attribute__((weak, visibility("hidden"))) const RvmHost *relaxvm_host;
__attribute__((weak, visibility("hidden"))) const RvmHost *relaxvm_host;

/* Called by relaxvm when it loads the library. */
RVM_EXPORT __attribute__((weak)) void relaxvm_attach(const RvmHost *host);
__attribute__((weak)) void relaxvm_attach(const RvmHost *host) { relaxvm_host = host; }

#ifdef __ELF__
RVM_EXTERN_C __attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char *, const char *);
#endif

/* In old C libraries dlsym is in a separate library, which the process has loaded. */
#pragma weak dlsym
#ifndef RTLD_DEFAULT  /* glibc only defines it on request */
#define RTLD_DEFAULT ((void *)0)
#endif

/* Set the error of a kernel, printf-style, and evaluate to RVM_FAILED: `return rvm_error(...)`.
 * `kind` names the exception class: one of Python's (TypeError, ValueError, IndexError, ...), or
 * InternalError.  A macro, so that the compiler knows the value. */
#define rvm_error(kind, ...) (rvm_report_error(kind, __VA_ARGS__), rvm_failed())

RVM_UNUSED static inline int rvm_failed(void) { return RVM_FAILED; }

__attribute__((format(printf, 2, 3), cold)) RVM_UNUSED static void rvm_report_error(
    const char *kind, const char *format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  if (relaxvm_host && relaxvm_host->set_error(kind, message)) return;
  /* The caller is TVM's FFI, or a program that replaces it. */
  void (*raise_error)(const char *, const char *) = NULL;
#ifdef __ELF__
  raise_error = TVMFFIErrorSetRaisedFromCStr;
#endif
  if (!raise_error)  /* The FFI was loaded after this library. */
    *(void **)&raise_error = dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr");
  if (raise_error) raise_error(kind, message);
}

/* Return whether Ctrl-C was pressed.  A kernel that runs for seconds should check this now and
 * then, and return RVM_FAILED if it is true. */
RVM_UNUSED static int rvm_interrupted(void) {
  return relaxvm_host && relaxvm_host->interrupted();
}

/* Return with a TypeError unless the kernel was called with `count` arguments. */
#define RVM_EXPECT_ARGS(count)                                                             \
  do {                                                                                     \
    if (num_args != (count))                                                               \
      return rvm_error("TypeError", "expected %d arguments, got %d", (int)(count), (int)num_args); \
  } while (0)

/* Return argument `index` as a tensor of any kind, or NULL if it is not a tensor. */
RVM_UNUSED static RvmTensor *rvm_any_tensor(const RvmAny *args, int index) {
  if (args[index].type == RVM_TENSOR) return args[index].as_tensor;
  if (args[index].type != RVM_TENSOR_OBJECT) return NULL;
  return &((RvmTensorObject *)args[index].as_object)->tensor;
}

/* Return argument `index` as a tensor of this element type and rank (any rank if negative), or set
 * an error and return NULL. */
RVM_UNUSED static RvmTensor *rvm_tensor(const RvmAny *args, int index, int code, int bits, int ndim) {
  RvmTensor *x = rvm_any_tensor(args, index);
  if (!x) {
    rvm_error("TypeError", "argument %d: expected a tensor", index);
  } else if (x->dtype.code != code || x->dtype.bits != bits || x->dtype.lanes != 1) {
    rvm_error("TypeError", "argument %d: expected data type (code %d, bits %d), got (%d, %d)", index,
              code, bits, x->dtype.code, x->dtype.bits);
  } else if (ndim >= 0 && x->ndim != ndim) {
    rvm_error("ValueError", "argument %d: expected rank %d, got %d", index, ndim, (int)x->ndim);
  } else {
    return x;
  }
  return NULL;
}

/* Get argument `index` as an integer or bool; RVM_FAILED after an error. */
RVM_UNUSED static int rvm_get_int(const RvmAny *args, int index, int64_t *value) {
  if (args[index].type != RVM_INT && args[index].type != RVM_BOOL)
    return rvm_error("TypeError", "argument %d: expected an int", index);
  *value = args[index].as_int;
  return RVM_OK;
}

/* Get argument `index`, a float or int, as a float; RVM_FAILED after an error. */
RVM_UNUSED static int rvm_get_float(const RvmAny *args, int index, double *value) {
  if (args[index].type == RVM_REAL) {
    *value = args[index].as_float;
  } else if (args[index].type == RVM_INT) {
    *value = (double)args[index].as_int;
  } else {
    return rvm_error("TypeError", "argument %d: expected a float", index);
  }
  return RVM_OK;
}

/* Get argument `index` as text (UTF-8) or bytes; RVM_FAILED after an error. */
RVM_UNUSED static int rvm_get_bytes(const RvmAny *args, int index, RvmBytes *value) {
  const RvmAny *arg = &args[index];
  switch (arg->type) {
    case RVM_TEXT:
      value->data = arg->as_text;
      value->size = strlen(arg->as_text);
      return RVM_OK;
    case RVM_BYTES:
      *value = *arg->as_bytes;
      return RVM_OK;
    case RVM_SHORT_TEXT:
    case RVM_SHORT_BYTES:
      value->data = arg->short_bytes;
      value->size = arg->short_size;
      return RVM_OK;
    case RVM_TEXT_OBJECT:
    case RVM_BYTES_OBJECT:
      *value = ((const RvmBytesObject *)arg->as_object)->bytes;
      return RVM_OK;
    default:
      return rvm_error("TypeError", "argument %d: expected text or bytes", index);
  }
}

/* Return the address of the first element of a tensor. */
RVM_UNUSED static void *rvm_data(const RvmTensor *x) { return (char *)x->data + x->byte_offset; }
RVM_UNUSED static float *rvm_f32(const RvmTensor *x) { return (float *)rvm_data(x); }
RVM_UNUSED static double *rvm_f64(const RvmTensor *x) { return (double *)rvm_data(x); }
RVM_UNUSED static int32_t *rvm_i32(const RvmTensor *x) { return (int32_t *)rvm_data(x); }
RVM_UNUSED static int64_t *rvm_i64(const RvmTensor *x) { return (int64_t *)rvm_data(x); }

/* Return the number of elements. */
RVM_UNUSED static int64_t rvm_numel(const RvmTensor *x) {
  int64_t count = 1;
  for (int32_t i = 0; i < x->ndim; i++) count *= x->shape[i];
  return count;
}

/* Set the result and return RVM_OK. */
RVM_UNUSED static int rvm_return_int(RvmAny *ret, int64_t value) {
  ret->type = RVM_INT;
  ret->short_size = 0;
  ret->as_int = value;
  return RVM_OK;
}
RVM_UNUSED static int rvm_return_bool(RvmAny *ret, int value) {
  rvm_return_int(ret, value != 0);
  ret->type = RVM_BOOL;
  return RVM_OK;
}
RVM_UNUSED static int rvm_return_float(RvmAny *ret, double value) {
  ret->type = RVM_REAL;
  ret->short_size = 0;
  ret->as_float = value;
  return RVM_OK;
}

#endif /* RELAXVM_KERNEL_TYPES_ONLY */

#endif /* RELAXVM_KERNEL_H_ */
