/* C helpers of native functions: Python objects to arguments of the C calling convention, and back.
 *
 * The fast path handles the arrays, numbers and None of an ordinary call without an allocation.  All
 * else takes the fallback in _native.pyx.
 */
#ifndef RELAXVM_NATIVE_IMPL_H
#define RELAXVM_NATIVE_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <numpy/arrayobject.h>

#include "_clock.h"
#include "_code.h"
#include "_ffi_objects.h"
#include "_gil.h"
#include "_native.h"

#if defined(__GNUC__) || defined(__clang__)
#define RVM_COLD __attribute__((noinline, cold))
/* Let the compiler keep a pointer rather than make it again. */
#define RVM_KEEP(pointer) __asm__("" : "+r"(pointer))
#else
#define RVM_COLD
#define RVM_KEEP(pointer) ((void)0)
#endif

#define RVM_STACK_ARGS 16

/* ---- policies --------------------------------------------------------------------------------- */

/* Bytes of all tensors of a call from which the policy "auto" releases the interpreter lock.  Taking
 * it back waits for other threads of Python, up to their switch interval of 5 ms: worth while for what
 * runs that long. */
#define RVM_BIG_CALL (UINT64_C(1) << 20)

/* A kernel may read little of large tensors, such as some rows of a table.  If so many big calls in a
 * row took less than RVM_QUICK_NS, the next ones hold the lock, as far as their tensors have no more
 * bytes.  After RVM_HELD_CALLS of them one is measured again. */
#define RVM_QUICK_CALLS 8
#define RVM_HELD_CALLS 32
#define RVM_QUICK_NS 20000
/* The bytes that such a call stands for where calls are counted by what they take. */
#define RVM_QUICK_COST (UINT64_C(1) << 15)

/* Whether the kernel is known to write argument i. */
static inline int rvm_is_written(const rvm_kernel *kernel, Py_ssize_t i, Py_ssize_t count) {
    Py_ssize_t back = count - 1 - i;
    return (i < 64 && (kernel->writes >> i & 1)) ||
           (back < 64 && (kernel->writes_last >> (63 - back) & 1));
}

/* The words of operands that stand in registers, one after the other. */
static const int64_t rvm_in_a_row[RVM_STACK_ARGS] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                     8, 9, 10, 11, 12, 13, 14, 15};

/* Argument i of a call: an operand of the instruction, or one of `values` where `words` is NULL. */
static inline PyObject *rvm_argument(PyObject *const *values, PyObject *const *pool_end,
                                     const int64_t *words, Py_ssize_t i) {
    return words == NULL ? values[i] : rvm_load(values, pool_end, words[i]);
}

/* Whether a value is one of the program's constants, which it may also have moved to a register. */
static RVM_COLD int rvm_is_constant(PyObject *const *pool_end, const PyObject *value) {
    if (pool_end == NULL) return 0; /* no program calls */
    for (PyObject *const *entry = pool_end - 1; *entry != NULL; entry--)
        if (*entry == value) return 1;
    return 0;
}

/* Whether argument i has to be writable to be passed as it is.  Of a kernel of which it is not known
 * what it writes, all are, but for constants of the program, to which it has a right. */
static inline int rvm_is_exposed(const rvm_kernel *kernel, const PyObject *value,
                                 PyObject *const *pool_end, const int64_t *words, Py_ssize_t i,
                                 Py_ssize_t count) {
    if (!kernel->unsure) return rvm_is_written(kernel, i, count);
    return (words == NULL || words[i] >= 0) && !rvm_is_constant(pool_end, value);
}

/* ---- data types ------------------------------------------------------------------------------
 * An RvmDtype as one number, which is quicker to move: of numpy's own types by their number, and of
 * those of ml_dtypes, whose numbers are given out as they register, in a second table that the slow
 * path fills.  0 where the calling convention has no such type. */
#if NPY_BYTE_ORDER == NPY_LITTLE_ENDIAN
#define RVM_PACKED(code, bits) ((uint32_t)(code) | (uint32_t)(bits) << 8 | UINT32_C(1) << 16)
#else
#define RVM_PACKED(code, bits) ((uint32_t)(code) << 24 | (uint32_t)(bits) << 16 | UINT32_C(1))
#endif

static const uint32_t rvm_numpy_dtypes[] = {
    [NPY_BOOL] = RVM_PACKED(RVM_BOOLEAN, 8),
    [NPY_BYTE] = RVM_PACKED(RVM_SIGNED, 8),
    [NPY_UBYTE] = RVM_PACKED(RVM_UNSIGNED, 8),
    [NPY_SHORT] = RVM_PACKED(RVM_SIGNED, 8 * sizeof(short)),
    [NPY_USHORT] = RVM_PACKED(RVM_UNSIGNED, 8 * sizeof(short)),
    [NPY_INT] = RVM_PACKED(RVM_SIGNED, 8 * sizeof(int)),
    [NPY_UINT] = RVM_PACKED(RVM_UNSIGNED, 8 * sizeof(int)),
    [NPY_LONG] = RVM_PACKED(RVM_SIGNED, 8 * sizeof(long)),
    [NPY_ULONG] = RVM_PACKED(RVM_UNSIGNED, 8 * sizeof(long)),
    [NPY_LONGLONG] = RVM_PACKED(RVM_SIGNED, 8 * sizeof(long long)),
    [NPY_ULONGLONG] = RVM_PACKED(RVM_UNSIGNED, 8 * sizeof(long long)),
    [NPY_FLOAT] = RVM_PACKED(RVM_FLOAT, 32),
    [NPY_DOUBLE] = RVM_PACKED(RVM_FLOAT, 64),
    [NPY_LONGDOUBLE] = RVM_PACKED(RVM_FLOAT, 8 * sizeof(npy_longdouble)),
    [NPY_CFLOAT] = RVM_PACKED(RVM_COMPLEX, 64),
    [NPY_CDOUBLE] = RVM_PACKED(RVM_COMPLEX, 128),
    [NPY_HALF] = RVM_PACKED(RVM_FLOAT, 16),
};

#define RVM_USER_DTYPES 64
static uint32_t rvm_user_dtypes[RVM_USER_DTYPES];

static inline uint32_t rvm_dtype_of(const PyArray_Descr *descr) {
    const unsigned known = sizeof rvm_numpy_dtypes / sizeof rvm_numpy_dtypes[0];
    unsigned number = (unsigned)descr->type_num;
    if (RVM_UNLIKELY(descr->byteorder == NPY_OPPBYTE)) return 0;
    if (RVM_LIKELY(number < known)) return rvm_numpy_dtypes[number];
    number -= NPY_USERDEF;
    return number < RVM_USER_DTYPES ? rvm_user_dtypes[number] : 0;
}

/* A data type in C, if it is known. */
static inline int rvm_get_dtype(PyObject *descr, RvmDtype *found) {
    uint32_t key = rvm_dtype_of((PyArray_Descr *)descr);
    memcpy(found, &key, sizeof key);
    return key != 0;
}

static inline void rvm_learn_dtype(int number, RvmDtype dtype) {
    if (number >= NPY_USERDEF && number < NPY_USERDEF + RVM_USER_DTYPES)
        memcpy(&rvm_user_dtypes[number - NPY_USERDEF], &dtype, sizeof dtype);
}

/* ---- the call in progress -------------------------------------------------------------------- */

/* What a kernel says of its failure. */
enum { RVM_SAID_WHY = 1, RVM_INTERRUPTED = 2, RVM_RAISED = 4 };

typedef struct rvm_call {
    struct rvm_call *outer;  /* of the same thread */
    int said;
    char *kind;              /* if it said why.  The texts are owned. */
    char *message;
} rvm_call;

static RVM_THREAD_LOCAL rvm_call *rvm_current_call;

static char *rvm_copy_text(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = (char *)malloc(size);
    if (copy != NULL) memcpy(copy, text, size);
    return copy;
}

static RVM_COLD void rvm_clear_call(rvm_call *call) {
    if (call->said & RVM_SAID_WHY) {
        free(call->kind);
        free(call->message);
        call->said &= ~RVM_SAID_WHY;
    }
}

static int rvm_set_error(const char *kind, const char *message) {
    rvm_call *call = rvm_current_call;
    if (call == NULL) return 0;
    rvm_clear_call(call);
    call->kind = rvm_copy_text(kind != NULL ? kind : "");
    call->message = rvm_copy_text(message != NULL ? message : "");
    call->said |= RVM_SAID_WHY;
    return 1;
}

/* A function of Python that the kernel called has raised an exception, which is set on this thread:
 * with it the call ends, whatever the kernel returns. */
static void rvm_set_raised(void) {
    if (rvm_current_call != NULL) rvm_current_call->said |= RVM_RAISED;
}

/* Looks at signals, and at the limits of the run: -1 with an exception where the call is to end. */
static int (*rvm_look)(void);

static int rvm_check_interrupted(void) {
    rvm_call *call = rvm_current_call;
    if (call == NULL) return 0;
    if (!(call->said & (RVM_INTERRUPTED | RVM_RAISED))) {
        rvm_gil gil = rvm_take_gil();
        if (rvm_look() != 0) call->said |= RVM_INTERRUPTED;
        rvm_leave_gil(gil);
    }
    return (call->said & (RVM_INTERRUPTED | RVM_RAISED)) != 0;
}

static const RvmHost rvm_host = {(uint32_t)sizeof(RvmHost), rvm_set_error, rvm_check_interrupted};

/* ---- arguments -------------------------------------------------------------------------------- */

#define RVM_FEW_DIMS 8
#define RVM_LOCAL_ALIGNMENT 64 /* of tensors of compiled functions, see relaxvm/compiled.h */

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

/* Steps in elements; false if a step is not a whole number of them. */
static RVM_COLD int rvm_get_strides(PyArrayObject *array, int64_t *strides) {
    npy_intp size = PyArray_ITEMSIZE(array);
    for (int i = 0; i < PyArray_NDIM(array); i++) {
        npy_intp step = PyArray_STRIDE(array, i);
        if (step % size != 0) return 0;
        strides[i] = step / size;
    }
    return 1;
}

/* The bytes of a contiguous array without its first dimension, which is 1: the step along that may be
 * any number. */
static RVM_NOINLINE uint64_t rvm_bytes_within(PyArrayObject *array) {
    for (int i = 1; i < PyArray_NDIM(array); i++)
        if (PyArray_DIM(array, i) != 1)
            return (uint64_t)PyArray_DIM(array, i) * (uint64_t)PyArray_STRIDE(array, i);
    return 0;
}

/* The bytes of a contiguous array, or 0 if it has one element; any number for other arrays. */
static inline uint64_t rvm_bytes_of(PyArrayObject *array) {
    if (RVM_UNLIKELY(PyArray_NDIM(array) == 0)) return 0;
    uint64_t dim = (uint64_t)PyArray_DIM(array, 0);
    return RVM_LIKELY(dim != 1) ? dim * (uint64_t)PyArray_STRIDE(array, 0) : rvm_bytes_within(array);
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

/* An argument that is not an array; false to take the fallback. */
static inline int rvm_put_plain(PyObject *value, RvmAny *arg) {
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

/* Give the tensors of a strided kernel their strides; false to take the fallback. */
static RVM_COLD int rvm_put_strides(PyObject *const *values, PyObject *const *pool_end,
                                    const int64_t *words, Py_ssize_t count, const RvmAny *args,
                                    rvm_slot *slots, uint64_t *bytes) {
    *bytes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (args[i].type != RVM_TENSOR) continue;
        PyArrayObject *array = (PyArrayObject *)rvm_argument(values, pool_end, words, i);
        if (PyArray_NDIM(array) > RVM_FEW_DIMS || !rvm_get_strides(array, slots[i].strides))
            return 0;
        slots[i].tensor.strides = slots[i].strides;
        *bytes += (uint64_t)PyArray_NBYTES(array);
    }
    return 1;
}

/* Arguments as the kernel can take them: arrays as they are, whether it may write to them or not.
 * The flags that all of these have, see `rvm_suits`, and their bytes; 0 to take the fallback. */
static inline int rvm_put(const rvm_kernel *kernel, PyObject *const *values,
                          PyObject *const *pool_end, const int64_t *words, Py_ssize_t count,
                          RvmAny *args, rvm_slot *slots, uint64_t *bytes) {
    static const RvmDevice device = {RVM_CPU, 0};
    static const struct {
        int32_t type;
        uint32_t short_size;
    } head = {RVM_TENSOR, 0};
    const PyTypeObject *array_type = &PyArray_Type;
    const PyArray_Descr *descr = NULL;
    uint32_t dtype = 0;
    int flags = ~0;
    uint64_t total = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = rvm_load(values, pool_end, words[i]);
        RvmTensor *tensor = &slots[i].tensor;
        if (RVM_UNLIKELY(Py_TYPE(value) != array_type)) {
            if (!rvm_put_plain(value, &args[i])) return 0;
            continue;
        }
        PyArrayObject *array = (PyArrayObject *)value;
        if (PyArray_DESCR(array) != descr) { /* the one before has the same, most of the time */
            descr = PyArray_DESCR(array);
            dtype = rvm_dtype_of(descr);
            if (RVM_UNLIKELY(dtype == 0)) return 0;
        }
        flags &= PyArray_FLAGS(array);
        if (RVM_UNLIKELY(((uintptr_t)PyArray_DATA(array) & kernel->misaligned) != 0)) return 0;
        tensor->data = PyArray_DATA(array);
        memcpy(&tensor->device, &device, sizeof device);
        tensor->ndim = PyArray_NDIM(array);
        memcpy(&tensor->dtype, &dtype, sizeof dtype);
        tensor->shape = (int64_t *)PyArray_DIMS(array);
        memset(&tensor->strides, 0, sizeof tensor->strides + sizeof tensor->byte_offset);
        memcpy(&args[i], &head, sizeof head);
        args[i].as_tensor = tensor;
        total += rvm_bytes_of(array);
    }
    *bytes = total;
    if (RVM_UNLIKELY(kernel->strided) &&
        !rvm_put_strides(values, pool_end, words, count, args, slots, bytes))
        return 0;
    return flags;
}

/* Whether the kernel can take arrays whose common flags are `flags`, as they are. */
static inline int rvm_suits(const rvm_kernel *kernel, int flags, PyObject *const *values,
                           PyObject *const *pool_end, const int64_t *words, Py_ssize_t count) {
    int lacks = kernel->needs & ~flags;
    if (RVM_LIKELY(lacks == 0)) return 1;
    if (lacks != NPY_ARRAY_WRITEABLE) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = rvm_argument(values, pool_end, words, i);
        if (PyArray_CheckExact(value) && !PyArray_ISWRITEABLE((PyArrayObject *)value) &&
            rvm_is_exposed(kernel, value, pool_end, words, i, count))
            return 0;
    }
    return 1;
}

/* Arguments of which some are tensors that no array is made of, in aligned memory that the kernel may
 * write: those that are not NULL in `locals`, of `*bytes` together.  False if the kernel does not take
 * them so, or other arguments not as they are. */
static inline int rvm_put_locals(const rvm_kernel *kernel, PyObject *const *values,
                                 PyObject *const *pool_end, const int64_t *words, Py_ssize_t count,
                                 RvmTensor *const *locals, RvmAny *args, rvm_slot *slots,
                                 uint64_t *bytes) {
    if (RVM_UNLIKELY(kernel->misaligned >= RVM_LOCAL_ALIGNMENT || kernel->strided)) return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        uint64_t more;
        int flags, lacks;
        if (locals[i] != NULL) {
            rvm_put_int(&args[i], RVM_TENSOR, 0);
            args[i].as_tensor = locals[i];
            continue;
        }
        flags = rvm_put(kernel, values, pool_end, words + i, 1, &args[i], &slots[i], &more);
        lacks = kernel->needs & ~flags;
        if (RVM_UNLIKELY(lacks != 0) &&
            (flags == 0 || lacks != NPY_ARRAY_WRITEABLE ||
             rvm_is_exposed(kernel, rvm_load(values, pool_end, words[i]), pool_end, words, i, count)))
            return 0;
        *bytes += more;
    }
    return *bytes < kernel->unlock_from; /* unlocked, it would get copies of dimensions */
}

/* Call without the interpreter lock.  Another thread may then give an array another shape, which
 * moves its dimensions: the kernel gets copies.  (With more dimensions than a slot has room for, the
 * lock is held.) */
static int rvm_call_unlocked(const rvm_kernel *kernel, const RvmAny *args, rvm_slot *slots,
                             Py_ssize_t count, RvmAny *ret, int64_t *nanoseconds) {
    for (Py_ssize_t i = 0; i < count; i++) {
        if (args[i].type != RVM_TENSOR) continue;
        RvmTensor *tensor = &slots[i].tensor;
        if (tensor->ndim > RVM_FEW_DIMS)
            return kernel->call(kernel->self, args, (int32_t)count, ret);
        for (int32_t k = 0; k < tensor->ndim; k++) slots[i].dims[k] = tensor->shape[k];
        tensor->shape = slots[i].dims;
    }
    PyThreadState *state = PyEval_SaveThread();
    int64_t start = rvm_clock_ns();
    int code = kernel->call(kernel->self, args, (int32_t)count, ret);
    *nanoseconds = rvm_clock_ns() - start;
    PyEval_RestoreThread(state);
    return code;
}

/* A call with so many bytes of tensors that the policy releases the interpreter lock, unless it is
 * "auto" and such calls of this kernel are quick: then `*bytes` becomes a number that fits its time. */
static RVM_COLD int rvm_call_big(rvm_kernel *kernel, const RvmAny *args, rvm_slot *slots,
                                 Py_ssize_t count, uint64_t *bytes, RvmAny *ret) {
    int64_t nanoseconds = RVM_QUICK_NS;
    int code;
    if (kernel->quick_calls >= RVM_QUICK_CALLS && *bytes <= kernel->quick_bytes) {
        kernel->quick_calls++;
        if (kernel->quick_calls == RVM_QUICK_CALLS + RVM_HELD_CALLS)
            kernel->quick_calls = RVM_QUICK_CALLS - 1;
        *bytes = RVM_QUICK_COST;
        return kernel->call(kernel->self, args, (int32_t)count, ret);
    }
    code = rvm_call_unlocked(kernel, args, slots, count, ret, &nanoseconds);
    if (kernel->unlock_from == 0) return code; /* not "auto" */
    if (nanoseconds >= RVM_QUICK_NS) {
        kernel->quick_calls = 0;
        kernel->quick_bytes = 0;
    } else {
        if (kernel->quick_calls < RVM_QUICK_CALLS) kernel->quick_calls++;
        if (*bytes > kernel->quick_bytes) kernel->quick_bytes = *bytes;
    }
    return code;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* A kernel returned 0 though Python's exception is set. */
enum { RVM_IGNORED = INT32_MIN };

/* Run the kernel: 0 if it ended well, else the number that it returned, or RVM_IGNORED.  `call` then
 * says why and is to be cleared. */
static inline int rvm_run(rvm_kernel *kernel, const RvmAny *args, rvm_slot *slots,
                          Py_ssize_t count, uint64_t *bytes, RvmAny *ret, rvm_call *call) {
    int code;
    rvm_call **current = &rvm_current_call;
    RVM_KEEP(current); /* looking it up costs as much as an argument */
    memset(ret, 0, sizeof *ret); /* None */
    call->outer = *current;
    call->said = 0;
    *current = call;
    if (RVM_UNLIKELY(*bytes >= kernel->unlock_from))
        code = rvm_call_big(kernel, args, slots, count, bytes, ret);
    else
        code = kernel->call(kernel->self, args, (int32_t)count, ret);
    *current = call->outer;
    if (RVM_LIKELY(call->said == 0) || code != 0) return code;
    if (call->said & (RVM_INTERRUPTED | RVM_RAISED)) {
        if (ret->type >= RVM_OBJECT && ret->as_object != NULL) rvm_release_object(ret->as_object);
        return RVM_IGNORED;
    }
    rvm_clear_call(call); /* it thought better of it */
    return 0;
}

/* For Cython: go on with the exception that is set; take over a new reference. */
static inline int rvm_reraise(void) { return -1; }
static inline PyObject *rvm_own(PyObject *made) { return made; }

/* ---- results ---------------------------------------------------------------------------------- */

/* An array over the memory of a tensor, which has at most 64 dimensions. */
static PyObject *rvm_new_array(PyObject *dtype, const RvmTensor *tensor) {
    static char nothing;
    PyArray_Descr *descr = (PyArray_Descr *)dtype;
    npy_intp size = PyDataType_ELSIZE(descr), step = 1;
    npy_intp strides[64], *given = NULL;
    int ndim = tensor->ndim;
    if (tensor->strides != NULL)
        for (int i = ndim - 1; i >= 0; i--) {
            strides[i] = tensor->strides[i] * size;
            /* numpy is faster without strides; those of a dimension of 1 do not matter. */
            if ((tensor->strides[i] != step && tensor->shape[i] != 1) || tensor->shape[i] == 0)
                given = strides;
            step *= tensor->shape[i];
        }
    Py_INCREF(dtype); /* taken over */
    return PyArray_NewFromDescr(
        &PyArray_Type, descr, ndim, (npy_intp *)tensor->shape, given,
        tensor->data != NULL ? (char *)tensor->data + tensor->byte_offset : &nothing,
        NPY_ARRAY_WRITEABLE, NULL);
}

/* Data types of numpy for those of tensors, as they were met: the last one for each slot. */
#define RVM_DTYPE_SLOTS 128
typedef struct {
    uint32_t key;
    PyObject *dtype; /* borrowed */
} rvm_met_dtype;
static rvm_met_dtype rvm_met_dtypes[RVM_DTYPE_SLOTS];

static inline rvm_met_dtype *rvm_dtype_slot(RvmDtype dtype, uint32_t *key) {
    memcpy(key, &dtype, sizeof *key);
    return &rvm_met_dtypes[(*key * UINT32_C(0x9E3779B1)) >> 25];
}

/* NULL if it was not met lately. */
static inline PyObject *rvm_known_dtype(RvmDtype dtype) {
    uint32_t key;
    rvm_met_dtype *slot = rvm_dtype_slot(dtype, &key);
    return slot->key == key ? slot->dtype : NULL;
}

/* The caller keeps the data type of numpy. */
static inline void rvm_meet_dtype(RvmDtype dtype, PyObject *found) {
    uint32_t key;
    rvm_met_dtype *slot = rvm_dtype_slot(dtype, &key);
    slot->key = key;
    slot->dtype = found;
}

/* A `relaxvm.Shape`, of the class that is passed. */
static PyObject *rvm_new_shape(PyObject *type, const RvmShape *given) {
    Py_ssize_t ndim = (Py_ssize_t)given->ndim;
    PyObject *shape = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, ndim);
    for (Py_ssize_t i = 0; shape != NULL && i < ndim; i++) {
        PyObject *dim = PyLong_FromLongLong(given->dims[i]);
        if (dim == NULL) {
            Py_CLEAR(shape);
            break;
        }
        PyTuple_SET_ITEM(shape, i, dim);
    }
    return shape;
}

/* The object that owns an array's memory; NULL if that is the array, or nothing. */
static inline PyObject *rvm_base(PyArrayObject *array) { return PyArray_BASE(array); }

/* Whether an array has the data type, dimensions and strides of a tensor. */
static inline int rvm_is_like(PyArrayObject *array, const RvmTensor *tensor) {
    int ndim = PyArray_NDIM(array);
    uint32_t dtype = rvm_dtype_of(PyArray_DESCR(array));
    npy_intp size = PyArray_ITEMSIZE(array);
    npy_intp step = size;
    if (ndim != tensor->ndim || memcmp(&dtype, &tensor->dtype, sizeof dtype) != 0) return 0;
    for (int i = ndim - 1; i >= 0; i--) {
        npy_intp dim = PyArray_DIM(array, i);
        if (dim != tensor->shape[i]) return 0;
        if (dim != 1 && PyArray_STRIDE(array, i) !=
                            (tensor->strides != NULL ? tensor->strides[i] * size : step))
            return 0;
        step *= dim;
    }
    return 1;
}

static inline char *rvm_data_of(const RvmTensor *tensor) {
    return (char *)tensor->data + tensor->byte_offset;
}

/* Whether an array is over all of a tensor.  A tensor without elements may have no address. */
static inline int rvm_is_whole(PyArrayObject *array, const RvmTensor *tensor) {
    return (tensor->data == NULL || PyArray_BYTES(array) == rvm_data_of(tensor)) &&
           rvm_is_like(array, tensor);
}

/* Whether an array without a base is as `rvm_new_array` has made it, as far as its memory is concerned,
 * and no weak reference can find it.  (An array of which `__setstate__` was called owns memory.) */
static inline int rvm_is_unmarked(PyArrayObject *array) {
    return ((PyArrayObject_fields *)array)->weakreflist == NULL && PyArray_BASE(array) == NULL &&
           !PyArray_CHKFLAGS(array, NPY_ARRAY_OWNDATA);
}

/* Let a writable array without a base point at another tensor that is like it and aligned as well. */
static inline int rvm_point_at(PyArrayObject *array, const RvmTensor *tensor) {
    char *data = rvm_data_of(tensor);
    uintptr_t moved = (uintptr_t)PyArray_BYTES(array) ^ (uintptr_t)data;
    if (moved & 63 || tensor->data == NULL || !PyArray_ISWRITEABLE(array) ||
        !rvm_is_like(array, tensor))
        return 0;
    ((PyArrayObject_fields *)array)->data = data;
    return 1;
}

/* ---- arrays for others ------------------------------------------------------------------------ */

/* DLPack's DLManagedTensor, and what it points into. */
typedef struct rvm_export {
    RvmTensor tensor;
    void *owner;  /* the array */
    void (*let_go)(struct rvm_export *);
    int64_t dims[];
} rvm_export;

static void rvm_end_export(rvm_export *made) {
    if (!Py_IsInitialized()) return; /* static objects of C++ end after the interpreter */
    rvm_gil gil = rvm_take_gil();
    Py_DECREF((PyObject *)made->owner);
    rvm_leave_gil(gil);
    free(made);
}

static void rvm_end_capsule(PyObject *capsule) {
    /* Who takes it over renames the capsule.  An exception that is set while it ends stays set. */
    if (PyCapsule_IsValid(capsule, "dltensor"))
        rvm_end_export((rvm_export *)PyCapsule_GetPointer(capsule, "dltensor"));
}

static inline int rvm_is_known(PyArrayObject *array) {
    return rvm_dtype_of(PyArray_DESCR(array)) != 0;
}

/* Make a tensor one over an array of a known data type, with dimensions and then strides in `dims`;
 * false with an exception if the array's steps are not whole elements. */
static int rvm_cover_array(PyArrayObject *array, RvmTensor *tensor, int64_t *dims) {
    int ndim = PyArray_NDIM(array);
    uint32_t dtype = rvm_dtype_of(PyArray_DESCR(array));
    tensor->data = PyArray_DATA(array);
    tensor->device.type = RVM_CPU;
    tensor->device.index = 0;
    tensor->ndim = ndim;
    memcpy(&tensor->dtype, &dtype, sizeof dtype);
    tensor->shape = dims;
    tensor->strides = dims + ndim;
    tensor->byte_offset = 0;
    for (int i = 0; i < ndim; i++) dims[i] = PyArray_DIM(array, i);
    if (RVM_LIKELY(PyArray_IS_C_CONTIGUOUS(array))) {
        int64_t step = 1;
        for (int i = ndim - 1; i >= 0; i--) {
            dims[ndim + i] = step;
            step *= dims[i];
        }
        return 1;
    }
    if (rvm_get_strides(array, dims + ndim)) return 1;
    PyErr_SetString(PyExc_BufferError, "dlpack: the array's steps are not whole elements");
    return 0;
}

/* A managed tensor over an array of a known data type; NULL with an exception. */
static rvm_export *rvm_export_array(PyArrayObject *array) {
    size_t ndim = (size_t)PyArray_NDIM(array);
    rvm_export *made = (rvm_export *)malloc(sizeof *made + 2 * ndim * sizeof(int64_t));
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!rvm_cover_array(array, &made->tensor, made->dims)) {
        free(made);
        return NULL;
    }
    made->let_go = rvm_end_export;
    made->owner = Py_NewRef((PyObject *)array);
    return made;
}

/* A tensor object of TVM's FFI over an array, which it keeps. */
typedef struct {
    RvmTensorObject object;
    PyObject *array;
    int64_t dims[];
} rvm_tensor_object;

static void rvm_end_tensor_object(void *self, int what) {
    rvm_tensor_object *made = (rvm_tensor_object *)self;
    if ((what & 1) && Py_IsInitialized()) {
        rvm_gil gil = rvm_take_gil();
        Py_DECREF(made->array);
        rvm_leave_gil(gil);
    }
    if (what & 2) free(made);
}

/* Such an object, for an array of a known data type; NULL with an exception. */
static RvmObject *rvm_new_tensor_object(PyArrayObject *array) {
    size_t ndim = (size_t)PyArray_NDIM(array);
    rvm_tensor_object *made = (rvm_tensor_object *)rvm_new_object(
        RVM_TENSOR_OBJECT, sizeof *made + 2 * ndim * sizeof(int64_t), rvm_end_tensor_object);
    if (made == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (!rvm_cover_array(array, &made->object.tensor, made->dims)) {
        free(made);
        return NULL;
    }
    made->array = Py_NewRef((PyObject *)array);
    return &made->object.object;
}

/* The same as a capsule of DLPack. */
static PyObject *rvm_capsule(PyArrayObject *array) {
    rvm_export *made = rvm_export_array(array);
    if (made == NULL) return NULL;
    PyObject *capsule = PyCapsule_New(made, "dltensor", rvm_end_capsule);
    if (capsule == NULL) rvm_end_export(made);
    return capsule;
}

#endif
