/* C helpers of the dispatch loop: operand access, caches and the guards of the quickened builtins.
 *
 * A guard never raises.  It returns the result, or says that the operation has to take its fallback:
 * the call of the builtin's Python reference, which gives the result or raises the error.
 */
#ifndef RELAXVM_CORE_IMPL_H
#define RELAXVM_CORE_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
#include "_clock.h"
#include "_code.h"
#include "_header_impl.h"
#include "_runs.h"

/* Of what the loop does for nearly every operation: the loop is so large that the compiler would call
 * these, which costs a VM call a tenth of its time. */
#if defined(__GNUC__) || defined(__clang__)
#define RVM_LOOP_INLINE static inline __attribute__((always_inline))
#else
#define RVM_LOOP_INLINE static inline
#endif

static inline int rvm_likely(int x) { return RVM_LIKELY(x); }
static inline int rvm_unlikely(int x) { return RVM_UNLIKELY(x); }

/* Set when the core is imported. */
static PyTypeObject *rvm_shape_type; /* relaxvm.values.Shape */
static PyArray_Descr *rvm_int64, *rvm_bool;

/* ---- operands: registers and constants, see _code.h ------------------------------------------ */

/* Store an owned reference.  The old value is released last: its destructor may run any code. */
static inline void rvm_store(PyObject **cell, PyObject *value) {
    PyObject *old = *cell;
    *cell = value;
    if (old != NULL) rvm_drop(old);
}

/* Store True or False.  Often it is there already, and its counter need not change. */
RVM_LOOP_INLINE void rvm_store_bool(PyObject **cell, int truth) {
    PyObject *value = truth ? Py_True : Py_False;
    if (RVM_LIKELY(*cell == value)) return;
    rvm_incref(value);
    rvm_store(cell, value);
}

static inline void rvm_gather(PyObject **to, PyObject **fp, PyObject **pool_end,
                              const int64_t *words, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = rvm_load(fp, pool_end, words[i]);
}

RVM_LOOP_INLINE PyObject *rvm_gather_tuple(PyObject **fp, PyObject **pool_end, const int64_t *words,
                                           int64_t count) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);
    if (tuple == NULL) return NULL;
    for (int64_t i = 0; i < count; i++) {
        PyObject *value = rvm_load(fp, pool_end, words[i]);
        rvm_incref(value);
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, value);
    }
    return tuple;
}

/* Whether an operand among these is `object`. */
RVM_LOOP_INLINE int rvm_is_among(PyObject *object, PyObject **fp, PyObject **pool_end,
                                 const int64_t *words, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (rvm_load(fp, pool_end, words[i]) == object) return 1;
    return 0;
}

/* Put operands in the place of the items of a tuple that is about to be released, so that no new one
 * need be made: true if `old` is a tuple of as many items, to which there is no other reference, and
 * that is none of the operands.  (Tuples have no weak references.  Who takes a reference to one from
 * the garbage collector, while the destructor of an item runs, may see it change.) */
RVM_LOOP_INLINE int rvm_renew_tuple(PyObject *old, PyObject **fp, PyObject **pool_end,
                                    const int64_t *words, int64_t count) {
    if (old == NULL || Py_REFCNT(old) != 1 || !PyTuple_CheckExact(old) ||
        PyTuple_GET_SIZE(old) != count || rvm_is_among(old, fp, pool_end, words, count))
        return 0;
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)old)->ob_hash = -1; /* it may have been computed */
#endif
    /* The collector stops tracking tuples whose items cannot be in cycles. */
    if (RVM_UNLIKELY(!PyObject_GC_IsTracked(old))) PyObject_GC_Track(old);
    for (int64_t i = 0; i < count; i++) {
        PyObject *value = rvm_load(fp, pool_end, words[i]);
        PyObject *item = PyTuple_GET_ITEM(old, (Py_ssize_t)i);
        if (value == item) continue;
        rvm_incref(value);
        PyTuple_SET_ITEM(old, (Py_ssize_t)i, value);
        rvm_drop(item);
    }
    return 1;
}

/* Arguments of a VM function: owned references in the callee's first registers. */
static inline void rvm_push_args(PyObject **to, PyObject **fp, PyObject **pool_end,
                                 const int64_t *words, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        PyObject **base = words[i] < 0 ? pool_end : fp;
        PyObject *value = base[words[i]];
        if (value != NULL) rvm_incref(value);
        to[i] = value;
    }
}

RVM_LOOP_INLINE void rvm_clear_registers(PyObject **fp, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        PyObject *value = fp[i];
        if (value != NULL) {
            fp[i] = NULL;
            rvm_drop(value);
        }
    }
}

static inline void rvm_reset_tuple_item(PyObject *tuple, Py_ssize_t index) {
    PyObject *old = PyTuple_GET_ITEM(tuple, index);
    Py_INCREF(Py_None);
    PyTuple_SET_ITEM(tuple, index, Py_None);
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)tuple)->ob_hash = -1; /* it may have been computed */
#endif
    Py_DECREF(old);
}

/* ---- truth ---------------------------------------------------------------------------------- */
/* Condition of `if`: 1, 0, or -1 where the value is not an integer or a bool, or where its
 * __bool__ raised (then with the exception). */
RVM_LOOP_INLINE int rvm_truth(PyObject *value) {
    if (value == Py_True) return 1;
    if (value == Py_False) return 0;
    if (PyLong_CheckExact(value)) {
#if PY_VERSION_HEX >= 0x030C0000
        return (((PyLongObject *)value)->long_value.lv_tag & 3) != 1;
#else
        return Py_SIZE(value) != 0;
#endif
    }
    if (PyLong_Check(value) || PyArray_IsScalar(value, Bool) || PyArray_IsScalar(value, Integer)) {
        return PyObject_IsTrue(value);
    }
    return -1;
}

/* vm.builtin.read_if_cond: 1, 0, or -1 to take the fallback. */
static inline int rvm_read_cond(PyObject *value) {
    if (Py_TYPE(value) == rvm_array_type) {
        PyArrayObject *array = (PyArrayObject *)value;
        int nd = PyArray_NDIM(array);
        if ((nd == 0 || (nd == 1 && PyArray_DIM(array, 0) > 0)) && PyArray_ISBEHAVED_RO(array)) {
            const void *p = PyArray_DATA(array);
            switch (PyArray_TYPE(array)) {
                case NPY_BOOL: case NPY_BYTE: case NPY_UBYTE: return *(const int8_t *)p != 0;
                case NPY_SHORT: case NPY_USHORT: return *(const int16_t *)p != 0;
                case NPY_INT: case NPY_UINT: return *(const int *)p != 0;
                case NPY_LONG: case NPY_ULONG: return *(const long *)p != 0;
                case NPY_LONGLONG: case NPY_ULONGLONG: return *(const long long *)p != 0;
                default: return -1;
            }
        }
        return -1;
    }
    if (value == Py_True) return 1;
    if (value == Py_False) return 0;
    return PyLong_CheckExact(value) ? rvm_truth(value) : -1;
}

/* The same, with the result in a register.  Where the operand is a tensor of one bool, which nearly all
 * are, each result has a path of its own: the compiler need not compute a number to branch on it. */
RVM_LOOP_INLINE int rvm_store_cond(PyObject **cell, PyObject *value) {
    if (RVM_LIKELY(Py_TYPE(value) == rvm_array_type &&
                   PyArray_NDIM((PyArrayObject *)value) == 0 &&
                   PyArray_DESCR((PyArrayObject *)value) == rvm_bool)) {
        if (*(const int8_t *)PyArray_DATA((PyArrayObject *)value) != 0) {
            rvm_store_bool(cell, 1);
            return 1;
        }
        rvm_store_bool(cell, 0);
        return 0;
    }
    int truth = rvm_read_cond(value);
    if (truth >= 0) rvm_store_bool(cell, truth);
    return truth;
}

/* ---- shapes --------------------------------------------------------------------------------- */
static inline void *rvm_array_data(PyObject *array) {
    return PyArray_DATA((PyArrayObject *)array);
}

static inline PyObject *rvm_new_shape(int64_t count, const npy_intp *dims) {
    PyObject *shape = rvm_shape_type->tp_alloc(rvm_shape_type, (Py_ssize_t)count);
    if (shape == NULL) return NULL;
    for (int64_t i = 0; i < count; i++) {
        PyObject *dim = PyLong_FromSsize_t(dims[i]);
        if (dim == NULL) {
            Py_DECREF(shape);
            return NULL;
        }
        PyTuple_SET_ITEM(shape, (Py_ssize_t)i, dim);
    }
    return shape;
}

/* Whether an object is a Shape of these dimensions, as `rvm_new_shape` makes it. */
static inline int rvm_is_shape_of(PyObject *object, int64_t count, const npy_intp *dims) {
    if (object == NULL || Py_TYPE(object) != rvm_shape_type || PyTuple_GET_SIZE(object) != count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(object, (Py_ssize_t)i);
        int overflow;
        if (!PyLong_CheckExact(item) ||
            PyLong_AsLongLongAndOverflow(item, &overflow) != (long long)dims[i] || overflow)
            return 0;
    }
    return 1;
}

/* A Shape of these dimensions, for the site to remember: `near` if it is one, so that the sites of a
 * program share it, otherwise a new one.  The garbage collector may run here, and it may run any code,
 * so the array that the dimensions belong to may change: they are copied first. */
static PyObject *rvm_remember_shape(rvm_site *site, int64_t count, const npy_intp *dims,
                                    PyObject *near) {
    npy_intp copy[RVM_MAX_DIMS];
    for (int64_t i = 0; i < count; i++) copy[i] = dims[i];
    PyObject *shape = near;
    if (rvm_is_shape_of(near, count, copy)) {
        rvm_incref(shape);
    } else {
        shape = rvm_new_shape(count, copy);
        if (shape == NULL) return NULL;
    }
    memcpy(site->dims, copy, (size_t)count * sizeof(npy_intp));
    site->count = count;
    rvm_incref(shape);
    rvm_store(&site->object, shape);
    return shape;
}

/* Whether a site remembers a Shape of these dimensions. */
static inline int rvm_has_shape(const rvm_site *site, int64_t count, const npy_intp *dims) {
    if (site->object == NULL || site->count != count) return 0;
    for (int64_t i = 0; i < count; i++)
        if (site->dims[i] != dims[i]) return 0;
    return 1;
}

/* A Shape of these dimensions: the site's last one if it is equal. */
static inline PyObject *rvm_site_shape(rvm_site *site, int64_t count, const npy_intp *dims) {
    if (!rvm_has_shape(site, count, dims)) return rvm_remember_shape(site, count, dims, NULL);
    rvm_incref(site->object);
    return site->object;
}

/* Store such a Shape in a register, where it often is already; false with an exception. */
RVM_LOOP_INLINE int rvm_store_shape(PyObject **cell, rvm_site *site, int64_t count,
                                    const npy_intp *dims) {
    PyObject *shape = site->object;
    if (RVM_UNLIKELY(!rvm_has_shape(site, count, dims))) {
        shape = rvm_remember_shape(site, count, dims, *cell);
        if (shape == NULL) return 0;
    } else {
        if (RVM_LIKELY(*cell == shape)) return 1;
        rvm_incref(shape);
    }
    rvm_store(cell, shape);
    return 1;
}

/* A dimension; -1 with an exception if it does not fit. */
static inline Py_ssize_t rvm_dim(PyObject *dim) {
#if PY_VERSION_HEX >= 0x030C0000
    if (RVM_LIKELY(PyLong_CheckExact(dim) && PyUnstable_Long_IsCompact((PyLongObject *)dim)))
        return PyUnstable_Long_CompactValue((PyLongObject *)dim);
#else
    if (RVM_LIKELY(PyLong_CheckExact(dim) && Py_SIZE(dim) == 1))
        return (Py_ssize_t)((PyLongObject *)dim)->ob_digit[0];
#endif
    return PyLong_AsSsize_t(dim);
}

/* Dimensions of an exact Shape; false if it is none, or has other than `count` of them (any number
 * up to RVM_MAX_DIMS when `count` is negative; the number is then left in *found). */
static inline int rvm_shape_dims(PyObject *shape, int64_t count, npy_intp *dims, int64_t *found) {
    if (Py_TYPE(shape) != rvm_shape_type) return 0;
    Py_ssize_t size = PyTuple_GET_SIZE(shape);
    if (count >= 0 ? size != count : size > RVM_MAX_DIMS) return 0;
    for (Py_ssize_t i = 0; i < size; i++) {
        Py_ssize_t dim = rvm_dim(PyTuple_GET_ITEM(shape, i));
        if (RVM_UNLIKELY(dim == -1 && PyErr_Occurred())) {
            PyErr_Clear();
            return 0;
        }
        dims[i] = dim;
    }
    *found = size;
    return 1;
}

/* Whether this is a shape heap of more than `last_slot` slots.  Python code may change an array in any
 * way, so nothing of it is remembered. */
static inline int rvm_is_heap(PyObject *heap, int64_t last_slot) {
    PyArrayObject *array = (PyArrayObject *)heap;
    return RVM_LIKELY(Py_TYPE(heap) == rvm_array_type && PyArray_DESCR(array) == rvm_int64 &&
                      PyArray_NDIM(array) == 1 && PyArray_CHKFLAGS(array, NPY_ARRAY_CARRAY) &&
                      PyArray_DIM(array, 0) > last_slot);
}

/* Its words. */
static inline int64_t *rvm_slots(PyObject *heap) {
    return (int64_t *)PyArray_DATA((PyArrayObject *)heap);
}

/* The words of a heap for an operation that uses slots up to `last_slot`, NULL if it uses none; false if
 * it has to take its fallback. */
static inline int rvm_heap_slots(PyObject *heap, int64_t last_slot, int64_t **slots) {
    *slots = NULL;
    if (last_slot == RVM_NO_SLOT) return 1;
    if (last_slot != RVM_OWN_HEAP && !rvm_is_heap(heap, last_slot)) return 0;
    *slots = rvm_slots(heap);
    return 1;
}

/* The same for an operand of the loop.  Most heaps are the function's own. */
RVM_LOOP_INLINE int rvm_load_slots(PyObject **fp, PyObject **pool_end, int64_t word,
                                   int64_t last_slot, int64_t **slots) {
    if (RVM_LIKELY(last_slot == RVM_OWN_HEAP)) {
        *slots = rvm_slots(fp[word]);
        return 1;
    }
    return rvm_heap_slots(rvm_load(fp, pool_end, word), last_slot, slots);
}

static inline int rvm_match_dim(int64_t dim, int64_t code, int64_t value, int64_t *heap) {
    if (RVM_LIKELY(code == RVM_MATCH_STORE)) {
        heap[value] = dim;
        return 1;
    }
    if (code == RVM_MATCH_IMM) return dim == value;
    return code != RVM_MATCH_SLOT || heap[value] == dim;
}

/* vm.builtin.match_shape on a tensor or Shape: the end of the pattern, or NULL to take the fallback. */
static inline const int64_t *rvm_match_shape(PyObject *x, int64_t *heap, int64_t count,
                                             const int64_t *pattern) {
    npy_intp buffer[RVM_MAX_DIMS];
    const npy_intp *dims = buffer;
    int64_t found;
    if (RVM_LIKELY(Py_TYPE(x) == rvm_array_type || PyArray_Check(x))) {
        if (PyArray_NDIM((PyArrayObject *)x) != count) return NULL;
        dims = PyArray_DIMS((PyArrayObject *)x);
    } else if (count > RVM_MAX_DIMS || !rvm_shape_dims(x, count, buffer, &found)) {
        return NULL;
    }
    for (const npy_intp *end = dims + count; dims != end; dims++, pattern += 2)
        if (!rvm_match_dim(*dims, pattern[0], pattern[1], heap)) return NULL;
    return pattern;
}

/* The dimensions of vm.builtin.make_shape. */
static inline void rvm_make_dims(npy_intp *dims, const int64_t *heap, int64_t count,
                                 const int64_t *pattern) {
    for (int64_t i = 0; i < count; i++) {
        int64_t value = pattern[2 * i + 1];
        dims[i] = (npy_intp)(pattern[2 * i] == RVM_MAKE_IMM ? value : heap[value]);
    }
}

/* vm.builtin.make_shape: a new reference, or NULL, perhaps with an exception, to take the fallback. */
static inline PyObject *rvm_make_shape(rvm_site *site, const int64_t *heap, int64_t count,
                                       const int64_t *pattern) {
    npy_intp dims[RVM_MAX_DIMS];
    rvm_make_dims(dims, heap, count, pattern);
    return rvm_site_shape(site, count, dims);
}

/* The same, into a register; false to take the fallback. */
RVM_LOOP_INLINE int rvm_store_made_shape(PyObject **cell, rvm_site *site, const int64_t *heap,
                                         int64_t count, const int64_t *pattern) {
    npy_intp dims[RVM_MAX_DIMS];
    rvm_make_dims(dims, heap, count, pattern);
    return rvm_store_shape(cell, site, count, dims);
}

/* Whether vm.builtin.shape_of is done here. */
static inline int rvm_has_dims(PyObject *x) {
    return (Py_TYPE(x) == rvm_array_type || PyArray_Check(x)) &&
           PyArray_NDIM((PyArrayObject *)x) <= RVM_MAX_DIMS;
}

/* vm.builtin.shape_of: a new reference, or NULL, perhaps with an exception, to take the fallback. */
static inline PyObject *rvm_shape_of(rvm_site *site, PyObject *x) {
    PyArrayObject *array = (PyArrayObject *)x;
    if (!rvm_has_dims(x)) return NULL;
    return rvm_site_shape(site, PyArray_NDIM(array), PyArray_DIMS(array));
}

/* The same, into a register; false to take the fallback. */
RVM_LOOP_INLINE int rvm_store_shape_of(PyObject **cell, rvm_site *site, PyObject *x) {
    PyArrayObject *array = (PyArrayObject *)x;
    return rvm_has_dims(x) && rvm_store_shape(cell, site, PyArray_NDIM(array), PyArray_DIMS(array));
}

/* Whether two data types are one.  numpy has one object for each of its own types, but also makes
 * equal ones, for arrays that were pickled for example. */
static inline int rvm_same_dtype(const PyArray_Descr *a, const PyArray_Descr *b) {
    return a == b || (a->type_num == b->type_num && a->byteorder == b->byteorder &&
                      (a->type_num <= NPY_CLONGDOUBLE || a->type_num == NPY_HALF));
}

/* vm.builtin.check_tensor_info: `ndim` -1 and `descr` NULL mean any. */
static inline int rvm_check_tensor(PyObject *x, int64_t ndim, PyArray_Descr *descr) {
    if (RVM_UNLIKELY(Py_TYPE(x) != rvm_array_type && !PyArray_Check(x))) return 0;
    PyArrayObject *array = (PyArrayObject *)x;
    return (ndim < 0 || PyArray_NDIM(array) == ndim) &&
           (descr == NULL || rvm_same_dtype(PyArray_DESCR(array), descr));
}

static inline int rvm_check_shape(PyObject *x, int64_t ndim) {
    return Py_TYPE(x) == rvm_shape_type && (ndim < 0 || PyTuple_GET_SIZE(x) == ndim);
}

static inline int rvm_check_tuple(PyObject *x, int64_t size) {
    return PyTuple_CheckExact(x) && PyTuple_GET_SIZE(x) == size;
}

/* A scalar of Python, as check_prim_value_info takes it. */
static inline int rvm_check_prim(PyObject *x, int64_t floats) {
    return PyLong_CheckExact(x) || PyBool_Check(x) || (floats && PyFloat_CheckExact(x));
}

/* A scalar for match_prim_value / make_prim_value. */
static inline int rvm_exact_int64(PyObject *value, int64_t *out) {
    if (!PyLong_CheckExact(value)) return 0;
    int overflow;
    long long got = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return 0;
    *out = (int64_t)got;
    return 1;
}

static inline int rvm_match_prim(PyObject *x, PyObject *heap_object, int64_t code, int64_t value) {
    int64_t scalar;
    int uses_heap = code != RVM_MATCH_IMM && code != RVM_MATCH_ANY;
    if (!rvm_exact_int64(x, &scalar)) return 0;
    if (!rvm_is_heap(heap_object, uses_heap ? value : -1)) return 0;
    return rvm_match_dim(scalar, code, value, rvm_slots(heap_object));
}

static inline PyObject *rvm_make_prim(PyObject *heap_object, int64_t code, int64_t value) {
    if (!rvm_is_heap(heap_object, code == RVM_MAKE_IMM ? -1 : value)) return NULL;
    return PyLong_FromLongLong(
        (long long)(code == RVM_MAKE_IMM ? value : rvm_slots(heap_object)[value]));
}

/* ---- shape programs -------------------------------------------------------------------------- */
/* Whether a + b, a - b and a * b fit; the result is in *out if so. */
#if defined(__GNUC__) || defined(__clang__)
#define rvm_add_fits(a, b, out) (!__builtin_add_overflow(a, b, out))
#define rvm_sub_fits(a, b, out) (!__builtin_sub_overflow(a, b, out))
#define rvm_mul_fits(a, b, out) (!__builtin_mul_overflow(a, b, out))
#else
static inline int rvm_add_fits(int64_t a, int64_t b, int64_t *out) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return 0;
    *out = a + b;
    return 1;
}
static inline int rvm_sub_fits(int64_t a, int64_t b, int64_t *out) {
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b) return 0;
    *out = a - b;
    return 1;
}
static inline int rvm_mul_fits(int64_t a, int64_t b, int64_t *out) {
    if (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
              : (b > 0 ? a < INT64_MIN / b : a != 0 && b < INT64_MAX / a))
        return 0;
    *out = a * b;
    return 1;
}
#endif

/* a // b and a % b of Python, for b other than 0, and not of INT64_MIN // -1. */
static inline int64_t rvm_floordiv(int64_t a, int64_t b) {
    int64_t quotient = a / b;
    return quotient - (a % b != 0 && (a < 0) != (b < 0));
}

static inline int64_t rvm_floormod(int64_t a, int64_t b) {
    int64_t rest = b == -1 ? 0 : a % b;
    return rest + (rest != 0 && (rest < 0) != (b < 0) ? b : 0);
}

/* relaxvm.builtin.compute_shape.  The words have been checked; if one of the operations cannot be
 * done, the slots that have been assigned to get their old values back. */
static int rvm_compute_shape(int64_t *heap, const int64_t *words) {
    int64_t stack[RVM_MAX_STACK + 1], changed[RVM_MAX_STORES], old[RVM_MAX_STORES];
    int64_t *top = stack; /* the last value; stack[0] is none */
    int stores = 0;
    for (;;) {
        switch (*words++) {
            case RVM_SHAPE_CONST: *++top = *words++; break;
            case RVM_SHAPE_LOAD: *++top = heap[*words++]; break;
            case RVM_SHAPE_STORE:
                changed[stores] = *words++;
                old[stores] = heap[changed[stores]];
                heap[changed[stores++]] = *top--;
                break;
            case RVM_SHAPE_ADD:
                if (!rvm_add_fits(top[-1], top[0], &top[-1])) goto undo;
                top--;
                break;
            case RVM_SHAPE_SUB:
                if (!rvm_sub_fits(top[-1], top[0], &top[-1])) goto undo;
                top--;
                break;
            case RVM_SHAPE_MUL:
                if (!rvm_mul_fits(top[-1], top[0], &top[-1])) goto undo;
                top--;
                break;
            case RVM_SHAPE_FLOORDIV:
                if (top[0] == 0 || (top[0] == -1 && top[-1] == INT64_MIN)) goto undo;
                top[-1] = rvm_floordiv(top[-1], top[0]);
                top--;
                break;
            case RVM_SHAPE_FLOORMOD:
                if (top[0] == 0) goto undo;
                top[-1] = rvm_floormod(top[-1], top[0]);
                top--;
                break;
            case RVM_SHAPE_MIN: top--; if (top[1] < top[0]) top[0] = top[1]; break;
            case RVM_SHAPE_MAX: top--; if (top[1] > top[0]) top[0] = top[1]; break;
            case RVM_SHAPE_EQ: top--; top[0] = top[0] == top[1]; break;
            case RVM_SHAPE_NE: top--; top[0] = top[0] != top[1]; break;
            case RVM_SHAPE_LT: top--; top[0] = top[0] < top[1]; break;
            case RVM_SHAPE_LE: top--; top[0] = top[0] <= top[1]; break;
            case RVM_SHAPE_GT: top--; top[0] = top[0] > top[1]; break;
            case RVM_SHAPE_GE: top--; top[0] = top[0] >= top[1]; break;
            case RVM_SHAPE_AND: top--; top[0] = top[0] != 0 && top[1] != 0; break;
            case RVM_SHAPE_OR: top--; top[0] = top[0] != 0 || top[1] != 0; break;
            case RVM_SHAPE_NOT: top[0] = !top[0]; break;
            case RVM_SHAPE_SELECT: top -= 2; top[0] = top[0] != 0 ? top[1] : top[2]; break;
            default: return 1; /* RVM_SHAPE_END */
        }
    }
undo:
    while (stores-- > 0) heap[changed[stores]] = old[stores];
    return 0;
}

/* ---- arrays that a site hands out again ------------------------------------------------------
 * The conditions: only the site holds the array (no register, no result, and no view, which refers to
 * the array that it was taken from, since the base of that is not an array); only the array holds its
 * storage; it has no weak references; and shape, data type and flags are unchanged. */
static inline int rvm_is_idle(PyObject *object, int nd, const npy_intp *dims, PyArray_Descr *descr,
                              const void *data) {
    PyArrayObject *array = (PyArrayObject *)object;
    PyObject *base = PyArray_BASE(array);
    if (Py_REFCNT(object) != 1 || (base != NULL && Py_REFCNT(base) != 1) ||
        ((PyArrayObject_fields *)array)->weakreflist != NULL ||
        PyArray_DESCR(array) != descr || PyArray_NDIM(array) != nd ||
        PyArray_DATA(array) != data || !PyArray_CHKFLAGS(array, NPY_ARRAY_CARRAY))
        return 0;
    for (int i = 0; i < nd; i++)
        if (PyArray_DIM(array, i) != dims[i]) return 0;
    return 1;
}

/* A zeroed int64[slots] at a multiple of 64 bytes, which compiled kernels may ask for. */
static PyObject *rvm_new_heap(npy_intp slots) {
    const npy_intp more = 64 / (npy_intp)sizeof(int64_t) - 1;
    npy_intp room = slots + more;
    PyObject *memory = PyArray_ZEROS(1, &room, NPY_INT64, 0);
    if (memory == NULL) return NULL;
    char *data = PyArray_BYTES((PyArrayObject *)memory);
    data += -(uintptr_t)data & 63;
    PyObject *heap = PyArray_SimpleNewFromData(1, &slots, NPY_INT64, data);
    if (heap == NULL) {
        Py_DECREF(memory);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)heap, memory) < 0) {
        Py_DECREF(heap);
        return NULL;
    }
    return heap;
}

/* vm.builtin.alloc_shape_heap: zeroed int64[slots]. */
static inline PyObject *rvm_site_heap(rvm_site *site, npy_intp slots) {
    PyObject *heap = site->object;
    if (heap != NULL && rvm_is_idle(heap, 1, &slots, rvm_int64, site->data)) {
        memset(PyArray_DATA((PyArrayObject *)heap), 0, (size_t)slots * sizeof(int64_t));
        rvm_incref(heap);
        return heap;
    }
    heap = rvm_new_heap(slots);
    if (heap == NULL) return NULL;
    if (site->object == NULL || Py_REFCNT(site->object) == 1) {
        site->data = PyArray_DATA((PyArrayObject *)heap);
        rvm_incref(heap);
        rvm_store(&site->object, heap);
    }
    return heap;
}

/* Bytes of so many items; false if a dimension is negative, or if strides of such an array, for which
 * dimensions of 0 count as 1, do not fit. */
static inline int rvm_bytes(int64_t itemsize, int64_t rank, const npy_intp *dims, int64_t *bytes) {
    int64_t total = itemsize, any = 1;
    for (int64_t i = 0; i < rank; i++) {
        int64_t dim = dims[i];
        if (dim < 0 || !rvm_mul_fits(total, dim != 0 ? dim : 1, &total)) return 0;
        any &= dim != 0;
    }
    *bytes = any ? total : 0;
    return 1;
}

/* vm.builtin.reshape of a contiguous array to a Shape of as many elements: a view of it.  A new
 * reference, or NULL, perhaps with an exception. */
static inline PyObject *rvm_reshape(PyObject *x, PyObject *shape) {
    PyArrayObject *array = (PyArrayObject *)x;
    npy_intp dims[RVM_MAX_DIMS];
    int64_t rank, bytes;
    if (!PyArray_CheckExact(x) || !PyArray_CHKFLAGS(array, NPY_ARRAY_CARRAY)) return NULL;
    if (!rvm_shape_dims(shape, -1, dims, &rank)) return NULL;
    if (!rvm_bytes(PyArray_ITEMSIZE(array), rank, dims, &bytes)) return NULL;
    if (bytes == 0 || bytes != PyArray_NBYTES(array)) return NULL;
    PyObject *base = PyArray_BASE(array); /* views refer to what owns the memory, as numpy's do */
    if (base == NULL || !PyArray_CheckExact(base)) base = x;
    return rvm_new_array(base, (char *)PyArray_DATA(array), (int)rank, dims, PyArray_DESCR(array), 1);
}

/* ---- calls -----------------------------------------------------------------------------------
 * A Python function is called through its own pointer: PyObject_Vectorcall would look up the thread
 * and check the result first, which only foreign C code makes worth while. */
RVM_LOOP_INLINE PyObject *rvm_call_packed(PyObject *callee, PyObject **args, int64_t count,
                                          int64_t *ticks, int64_t python_ticks,
                                          int64_t other_ticks) {
    size_t nargsf = (size_t)count | PY_VECTORCALL_ARGUMENTS_OFFSET;
    if (RVM_LIKELY(PyFunction_Check(callee))) {
        *ticks -= python_ticks;
        return ((PyFunctionObject *)callee)->vectorcall(callee, args, nargsf, NULL);
    }
    *ticks -= other_ticks;
    return PyObject_Vectorcall(callee, args, nargsf, NULL);
}

/* ---- frames ----------------------------------------------------------------------------------
 * A frame is a run of words in a chunk: a header of RVM_HEADER words, the registers, one scratch
 * register for discarded results, one spare word (vectorcall may borrow the word before the
 * arguments), and room for the arguments of the widest call.  Chunks are linked and never move,
 * since callees hold pointers into them.
 *
 * The word RVM_CALLER is the caller's frame, plus 1 in the first frame of a chunk; for that of a run it
 * is 1.
 */

#define RVM_FIRST_CHUNK 1000
#define RVM_KEPT_CHUNKS 16

static rvm_chunk *rvm_idle_chunks; /* of RVM_FIRST_CHUNK words; guarded by the GIL */
static int rvm_num_idle_chunks;

static inline rvm_chunk *rvm_new_chunk(rvm_chunk *previous, int64_t words) {
    rvm_chunk *chunk;
    if (words <= RVM_FIRST_CHUNK) {
        words = RVM_FIRST_CHUNK;
        if (rvm_idle_chunks != NULL) {
            chunk = rvm_idle_chunks;
            rvm_idle_chunks = chunk->previous;
            rvm_num_idle_chunks--;
            chunk->previous = previous;
            return chunk;
        }
    }
    chunk = (rvm_chunk *)PyMem_RawMalloc(sizeof(rvm_chunk) + (size_t)words * sizeof(PyObject *));
    if (chunk == NULL) return NULL;
    chunk->previous = previous;
    chunk->words = words;
    chunk->end = chunk->memory + words;
    return chunk;
}

/* Release a chunk; returns the one before it. */
static inline rvm_chunk *rvm_drop_chunk(rvm_chunk *chunk) {
    rvm_chunk *previous = chunk->previous;
    if (chunk->words == RVM_FIRST_CHUNK && rvm_num_idle_chunks < RVM_KEPT_CHUNKS) {
        chunk->previous = rvm_idle_chunks;
        rvm_idle_chunks = chunk;
        rvm_num_idle_chunks++;
    } else {
        PyMem_RawFree(chunk);
    }
    return previous;
}

/* Fill in the header of a frame. */
static inline void rvm_push_frame(PyObject **fp, const rvm_func *func, PyObject **caller,
                                  const int64_t *return_ip, int64_t return_dst) {
    fp[RVM_RETURN_IP] = (PyObject *)return_ip;
    fp[RVM_CALLER] = (PyObject *)caller;
    fp[RVM_FUNC] = (PyObject *)func;
    fp[RVM_RETURN_DST] = (PyObject *)(intptr_t)return_dst;
}

static inline PyObject **rvm_in_new_chunk(PyObject **caller) {
    return (PyObject **)((intptr_t)caller | 1);
}

static inline int rvm_is_in_new_chunk(PyObject **caller) { return (intptr_t)caller & 1; }

/* The frame that has called the one at `fp`, or NULL. */
static inline PyObject **rvm_calling_frame(PyObject **fp) {
    return (PyObject **)((intptr_t)fp[RVM_CALLER] & ~(intptr_t)1);
}

/* Whether calls may be nested one level deeper, which is counted, and the chunk has room for the frame. */
RVM_LOOP_INLINE int rvm_has_room(rvm_active_run *run, PyObject **callee_fp, const rvm_func *func) {
    return RVM_LIKELY(--run->calls_left >= 0) &&
           RVM_LIKELY(callee_fp + func->frame_words <= run->end);
}

/* Make a frame that of another function, whose arguments, owned references, are laid out after the
 * registers.  The caller sets the rest of the registers. */
static inline void rvm_reuse_frame(PyObject **fp, const rvm_func *func, PyObject **args,
                                   int64_t count) {
    rvm_clear_registers(fp, ((const rvm_func *)fp[RVM_FUNC])->num_registers);
    fp[RVM_FUNC] = (PyObject *)func;
    memmove(fp, args, (size_t)count * sizeof *fp);
}

static inline void rvm_null_registers(PyObject **fp, int64_t first, int64_t end) {
    if (first >= end) return;
    if (RVM_UNLIKELY(end - first > 32)) {
        memset(fp + first, 0, (size_t)(end - first) * sizeof(PyObject *));
        return;
    }
    for (int64_t i = first; i < end; i++) {
        fp[i] = NULL;
#if defined(__GNUC__) || defined(__clang__)
        __asm__("" : "+r"(i)); /* or the loop becomes a call of memset, slow on so few words */
#endif
    }
}

/* What the loop does with the code of no operation. */
static inline void rvm_no_operation(void) {
#if (defined(__GNUC__) || defined(__clang__)) && !defined(RELAXVM_DEBUG)
    __builtin_unreachable();
#endif
}

#endif
