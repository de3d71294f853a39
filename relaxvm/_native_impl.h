/* C helpers of native functions: Python objects to arguments of the C calling convention, and back.
 *
 * The fast path handles the arrays, numbers and None of an ordinary call without an allocation.  All
 * else is "not this way" and goes to the slow path in _native.pyx.
 */
#ifndef RELAXVM_NATIVE_IMPL_H
#define RELAXVM_NATIVE_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <numpy/arrayobject.h>

#include "_native.h"

#if defined(__GNUC__) || defined(__clang__)
#define RVM_LIKELY(x) __builtin_expect(!!(x), 1)
#define RVM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RVM_COLD __attribute__((noinline, cold))
#else
#define RVM_LIKELY(x) (x)
#define RVM_UNLIKELY(x) (x)
#define RVM_COLD
#endif

#if defined(_MSC_VER)
#define RVM_THREAD_LOCAL __declspec(thread)
#else
#define RVM_THREAD_LOCAL __thread
#endif

/* ---- policies --------------------------------------------------------------------------------- */

/* Bytes of all tensors of a call from which RVM_GIL_BY_SIZE releases the interpreter lock.  Taking it
 * back waits for other threads of Python, up to their switch interval of 5 ms: worth while for what
 * runs that long. */
#define RVM_BIG_CALL (INT64_C(1) << 20)


static inline int rvm_is_written(const rvm_kernel *kernel, Py_ssize_t i, Py_ssize_t count) {
    Py_ssize_t back = count - 1 - i;
    return (i < 64 && (kernel->writes >> i & 1)) || (back < 64 && (kernel->writes_last >> back & 1));
}

/* ---- data types ------------------------------------------------------------------------------
 * numpy's own types by number; those of ml_dtypes, whose numbers are given out as they register, in
 * a second table that the slow path fills.  bits is 0 where DLPack has no such type. */
#define RVM_USER_DTYPES 64
static RvmDtype rvm_user_dtypes[RVM_USER_DTYPES];

static inline RvmDtype rvm_dtype(uint8_t code, size_t bytes) {
    RvmDtype dtype = {code, (uint8_t)(8 * bytes), 1};
    return dtype;
}

static inline RvmDtype rvm_dtype_of(const PyArray_Descr *descr) {
    static const RvmDtype none = {0, 0, 0};
    if (RVM_UNLIKELY(descr->byteorder == NPY_OPPBYTE)) return none;
    switch (descr->type_num) {
        case NPY_BOOL: return rvm_dtype(RVM_BOOLEAN, 1);
        case NPY_BYTE: return rvm_dtype(RVM_SIGNED, 1);
        case NPY_UBYTE: return rvm_dtype(RVM_UNSIGNED, 1);
        case NPY_SHORT: return rvm_dtype(RVM_SIGNED, sizeof(short));
        case NPY_USHORT: return rvm_dtype(RVM_UNSIGNED, sizeof(short));
        case NPY_INT: return rvm_dtype(RVM_SIGNED, sizeof(int));
        case NPY_UINT: return rvm_dtype(RVM_UNSIGNED, sizeof(int));
        case NPY_LONG: return rvm_dtype(RVM_SIGNED, sizeof(long));
        case NPY_ULONG: return rvm_dtype(RVM_UNSIGNED, sizeof(long));
        case NPY_LONGLONG: return rvm_dtype(RVM_SIGNED, sizeof(long long));
        case NPY_ULONGLONG: return rvm_dtype(RVM_UNSIGNED, sizeof(long long));
        case NPY_HALF: return rvm_dtype(RVM_FLOAT, 2);
        case NPY_FLOAT: return rvm_dtype(RVM_FLOAT, 4);
        case NPY_DOUBLE: return rvm_dtype(RVM_FLOAT, 8);
        case NPY_LONGDOUBLE: return rvm_dtype(RVM_FLOAT, sizeof(npy_longdouble));
        case NPY_CFLOAT: return rvm_dtype(RVM_COMPLEX, 8);
        case NPY_CDOUBLE: return rvm_dtype(RVM_COMPLEX, 16);
        default: break;
    }
    if (descr->type_num >= NPY_USERDEF && descr->type_num < NPY_USERDEF + RVM_USER_DTYPES)
        return rvm_user_dtypes[descr->type_num - NPY_USERDEF];
    return none;
}

static inline void rvm_learn_dtype(int number, RvmDtype dtype) {
    if (number >= NPY_USERDEF && number < NPY_USERDEF + RVM_USER_DTYPES)
        rvm_user_dtypes[number - NPY_USERDEF] = dtype;
}

/* ---- the call in progress -------------------------------------------------------------------- */

/* What a kernel says of its failure.  The texts are owned. */
typedef struct rvm_call {
    struct rvm_call *outer;  /* of the same thread */
    char *kind;
    char *message;
    int interrupted;         /* with Python's exception set */
} rvm_call;

static RVM_THREAD_LOCAL rvm_call *rvm_current_call;

static char *rvm_copy_text(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)malloc(size);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

static int rvm_set_error(const char *kind, const char *message) {
    rvm_call *call = rvm_current_call;
    if (call == NULL) return 0;
    free(call->kind);
    free(call->message);
    call->kind = rvm_copy_text(kind != NULL ? kind : "");
    call->message = rvm_copy_text(message != NULL ? message : "");
    return 1;
}

static int rvm_check_interrupted(void) {
    rvm_call *call = rvm_current_call;
    if (call == NULL) return 0;
    if (!call->interrupted) {
        PyGILState_STATE state = PyGILState_Ensure();
        call->interrupted = PyErr_CheckSignals() != 0;
        PyGILState_Release(state);
    }
    return call->interrupted;
}

static const RvmHost rvm_host = {(uint32_t)sizeof(RvmHost), rvm_set_error, rvm_check_interrupted};

/* ---- arguments -------------------------------------------------------------------------------- */

#define RVM_STACK_ARGS 16
#define RVM_FEW_DIMS 8

/* What an argument points at. */
typedef struct {
    union {
        RvmTensor tensor;
        RvmShape shape;
        RvmBytes bytes;
    };
    int64_t dims[RVM_FEW_DIMS];
    int64_t strides[RVM_FEW_DIMS];
} rvm_slot;

/* Steps in elements; false if a step is no whole number of them. */
static inline int rvm_get_strides(PyArrayObject *array, int64_t *strides) {
    npy_intp size = PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        npy_intp step = PyArray_STRIDE(array, i);
        if (step % size != 0) return 0;
        strides[i] = step / size;
    }
    return 1;
}

/* An array that the kernel can take as it is. */
static inline int rvm_put_array(const rvm_kernel *kernel, PyArrayObject *array, int written,
                                RvmAny *arg, rvm_slot *slot) {
    int needs = kernel->needs | (written ? NPY_ARRAY_WRITEABLE : 0);
    void *data = PyArray_DATA(array);
    RvmDtype dtype = rvm_dtype_of(PyArray_DESCR(array));
    if (RVM_UNLIKELY((PyArray_FLAGS(array) & needs) != needs || dtype.bits == 0 ||
                     ((uintptr_t)data & kernel->misaligned) != 0))
        return 0;
    RvmTensor *tensor = &slot->tensor;
    tensor->data = data;
    tensor->device.type = RVM_CPU;
    tensor->device.index = 0;
    tensor->ndim = PyArray_NDIM(array);
    tensor->dtype = dtype;
    tensor->shape = (int64_t *)PyArray_DIMS(array);
    tensor->strides = NULL;
    tensor->byte_offset = 0;
    if (kernel->strided) {
        if (PyArray_NDIM(array) > RVM_FEW_DIMS || !rvm_get_strides(array, slot->strides)) return 0;
        tensor->strides = slot->strides;
    }
    arg->type = RVM_TENSOR;
    arg->short_size = 0;
    arg->as_tensor = tensor;
    return 1;
}

static inline void rvm_put_int(RvmAny *arg, int type, int64_t value) {
    arg->type = type;
    arg->short_size = 0;
    arg->as_int = value;
}

static inline void rvm_put_float(RvmAny *arg, double value) {
    arg->type = RVM_REAL;
    arg->short_size = 0;
    arg->as_float = value;
}

/* An argument; false for "not this way". */
static inline int rvm_put(const rvm_kernel *kernel, PyObject *value, int written, RvmAny *arg,
                          rvm_slot *slot) {
    if (RVM_LIKELY(PyArray_CheckExact(value)))
        return rvm_put_array(kernel, (PyArrayObject *)value, written, arg, slot);
    if (PyLong_CheckExact(value)) {
        int overflow;
        int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
        rvm_put_int(arg, RVM_INT, number);
        return !overflow;
    }
    if (PyFloat_CheckExact(value)) {
        rvm_put_float(arg, PyFloat_AS_DOUBLE(value));
        return 1;
    }
    if (value == Py_True || value == Py_False) {
        rvm_put_int(arg, RVM_BOOL, value == Py_True);
        return 1;
    }
    if (value == Py_None) {
        rvm_put_int(arg, RVM_NONE, 0);
        return 1;
    }
    return 0;
}

static inline int64_t rvm_tensor_bytes(const RvmTensor *tensor) {
    int64_t bytes = tensor->dtype.bits / 8;
    for (int32_t i = 0; i < tensor->ndim; i++) bytes *= tensor->shape[i];
    return bytes;
}

/* Whether the interpreter lock is let go of while the kernel runs. */
static inline int rvm_releases_gil(const rvm_kernel *kernel, const RvmAny *args, Py_ssize_t count) {
    int64_t bytes = 0;
    if (kernel->gil != RVM_GIL_BY_SIZE) return kernel->gil == RVM_RELEASE_GIL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (args[i].type == RVM_TENSOR) bytes += rvm_tensor_bytes(args[i].as_tensor);
    return bytes >= RVM_BIG_CALL;
}

/* Call without the interpreter lock.  Another thread may then give an array another shape, which
 * moves its dimensions: the kernel gets copies.  (With more dimensions than a slot has room for, the
 * lock is held.) */
static RVM_COLD int rvm_call_unlocked(const rvm_kernel *kernel, const RvmAny *args, rvm_slot *slots,
                                      Py_ssize_t count, RvmAny *ret) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (args[i].type != RVM_TENSOR) continue;
        RvmTensor *tensor = &slots[i].tensor;
        if (tensor->ndim > RVM_FEW_DIMS)
            return kernel->call(kernel->self, args, (int32_t)count, ret);
        for (int32_t k = 0; k < tensor->ndim; k++) slots[i].dims[k] = tensor->shape[k];
        tensor->shape = slots[i].dims;
    }
    PyThreadState *state = PyEval_SaveThread();
    int code = kernel->call(kernel->self, args, (int32_t)count, ret);
    PyEval_RestoreThread(state);
    return code;
}

/* Run the kernel: 0 if it ended well, else the number that it returned.  `call` then says why and is
 * to be cleared. */
static inline int rvm_run(const rvm_kernel *kernel, const RvmAny *args, rvm_slot *slots,
                          Py_ssize_t count, RvmAny *ret, rvm_call *call) {
    int code;
    rvm_call **current = &rvm_current_call;
    rvm_put_int(ret, RVM_NONE, 0);
    call->outer = *current;
    call->kind = call->message = NULL;
    call->interrupted = 0;
    *current = call;
    if (RVM_UNLIKELY(rvm_releases_gil(kernel, args, count)))
        code = rvm_call_unlocked(kernel, args, slots, count, ret);
    else
        code = kernel->call(kernel->self, args, (int32_t)count, ret);
    *current = call->outer;
    if (RVM_UNLIKELY(call->interrupted)) return RVM_FAILED;
    if (RVM_UNLIKELY(code == 0 && call->kind != NULL)) {  /* it thought better of it */
        free(call->kind);
        free(call->message);
    }
    return code;
}

static inline void rvm_clear_call(rvm_call *call) {
    free(call->kind);
    free(call->message);
}

/* For Cython: go on with the exception that is set. */
static inline int rvm_reraise(void) { return -1; }

/* ---- results ---------------------------------------------------------------------------------- */

/* Let go of an object that a kernel returned. */
static inline void rvm_release_object(RvmObject *object) {
#if defined(__GNUC__) || defined(__clang__)
    const uint64_t weak = UINT64_C(1) << 32;
    uint64_t before = __atomic_fetch_sub(&object->counts, 1, __ATOMIC_ACQ_REL);
    if ((uint32_t)before != 1) return;
    if (object->destroy == NULL) return;
    if (before == weak + 1) {
        object->destroy(object, 3);
        return;
    }
    object->destroy(object, 1);
    if (__atomic_fetch_sub(&object->counts, weak, __ATOMIC_ACQ_REL) >> 32 == 1)
        object->destroy(object, 2);
#else
    (void)object; /* kept: such results need GCC's or Clang's atomics */
#endif
}

#endif
