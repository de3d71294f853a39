/* Direct calls of the inner loops of numpy's ufuncs.
 *
 * For aligned, contiguous arrays of one data type numpy itself does little more: it finds the loop by
 * data type, calls it once for all elements, and reads the floating-point status.  The functions here do
 * the same, after checking that the arrays are of this kind.
 */
#ifndef RELAXVM_UFUNC_IMPL_H
#define RELAXVM_UFUNC_IMPL_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>
#include "_code.h"
#include "kernels/c/float_status.h"

/* For results of up to so many bytes the floating-point status is only read afterwards.  In the rare case
 * that it is set it is cleared, and the result computed again: that is faster on average. */
#define RVM_ONCE_BYTES 4096
/* For results of at least so many bytes the interpreter lock is released. */
#define RVM_RELEASE_BYTES 65536

/* ---- loops ---------------------------------------------------------------------------------- */
/* Words of an operation that cache the loop for the data types of its last run. */
enum {
    RVM_UFUNC,
    RVM_UFUNC_IN, /* data types of inputs and output */
    RVM_UFUNC_OUT,
    RVM_UFUNC_IN_SIZE, /* bytes of an element of each */
    RVM_UFUNC_OUT_SIZE,
    RVM_UFUNC_LOOP, /* the loop, and its last argument */
    RVM_UFUNC_DATA,
    RVM_UFUNC_MAY_RAISE, /* whether it may set an exception: a negative power of an integer */
    RVM_UFUNC_WORDS
};

static inline int rvm_is_builtin(const PyArray_Descr *descr) {
    int type = descr->type_num;
    return (type >= 0 && type < NPY_OBJECT) || type == NPY_HALF;
}

/* Index in a ufunc's table of the loop for these type numbers (outputs are last); -1 if there is none. */
static int rvm_find_loop(PyUFuncObject *ufunc, const int *types) {
    for (int i = 0; i < ufunc->ntypes; i++) {
        const char *row = ufunc->types + i * ufunc->nargs;
        int k = 0;
        while (k < ufunc->nargs && row[k] == types[k]) k++;
        if (k == ufunc->nargs) return ufunc->functions[i] != NULL ? i : -1;
    }
    return -1;
}

/* Cache the loop for inputs of one data type; false if there is none.  The result has the inputs' type or
 * is bool: for other loops of numpy, such as quotients of integers, kernels may define another result. */
static int rvm_resolve(int64_t *words, PyArray_Descr *in, PyArray_Descr *out) {
    PyUFuncObject *ufunc = (PyUFuncObject *)words[RVM_UFUNC];
    int types[3] = {in->type_num, in->type_num, in->type_num};
    types[ufunc->nin] = out->type_num;
    if (!rvm_is_builtin(in) || !rvm_is_builtin(out)) return 0;
    if (in->type_num != out->type_num && out->type_num != NPY_BOOL) return 0;
    /* Only numpy's own descriptors, which exist once and have the byte order of this machine. */
    PyArray_Descr *own_in = PyArray_DescrFromType(in->type_num);
    PyArray_Descr *own_out = PyArray_DescrFromType(out->type_num);
    int found = own_in == in && own_out == out ? rvm_find_loop(ufunc, types) : -1;
    Py_DECREF(own_in);
    Py_DECREF(own_out);
    if (found < 0) return 0;
    words[RVM_UFUNC_IN] = (int64_t)in;
    words[RVM_UFUNC_OUT] = (int64_t)out;
    words[RVM_UFUNC_IN_SIZE] = (int64_t)PyDataType_ELSIZE(in);
    words[RVM_UFUNC_OUT_SIZE] = (int64_t)PyDataType_ELSIZE(out);
    words[RVM_UFUNC_MAY_RAISE] = PyTypeNum_ISINTEGER(in->type_num);
    words[RVM_UFUNC_LOOP] = (int64_t)ufunc->functions[found];
    words[RVM_UFUNC_DATA] = (int64_t)ufunc->data[found];
    return 1;
}

/* ---- operands ------------------------------------------------------------------------------- */
static inline int rvm_is_plain(PyObject *object, int flags) {
    return PyArray_CheckExact(object) && PyArray_CHKFLAGS((PyArrayObject *)object, flags);
}

#define RVM_INPUT_FLAGS (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED)

static inline npy_intp rvm_size(PyArrayObject *array) {
    npy_intp size = 1;
    for (int i = 0; i < PyArray_NDIM(array); i++) size *= PyArray_DIM(array, i);
    return size;
}

static inline int rvm_same_shape(PyArrayObject *a, PyArrayObject *b) {
    int nd = PyArray_NDIM(a);
    if (nd != PyArray_NDIM(b)) return 0;
    for (int i = 0; i < nd; i++)
        if (PyArray_DIM(a, i) != PyArray_DIM(b, i)) return 0;
    return 1;
}

/* Whether the shape of a is that of b with dimensions of 1 in front. */
static inline int rvm_ends_with(PyArrayObject *a, PyArrayObject *b) {
    int more = PyArray_NDIM(a) - PyArray_NDIM(b);
    for (int i = 0; i < more; i++)
        if (PyArray_DIM(a, i) != 1) return 0;
    for (int i = 0; i < PyArray_NDIM(b); i++)
        if (PyArray_DIM(a, more + i) != PyArray_DIM(b, i)) return 0;
    return 1;
}

static inline int rvm_are_apart(const char *a, npy_intp a_bytes, const char *b, npy_intp b_bytes) {
    return a + a_bytes <= b || b + b_bytes <= a;
}

static inline int rvm_put_float(double value, int type, void *to) {
    if (type == NPY_DOUBLE) {
        *(double *)to = value;
        return 1;
    }
    /* numpy may report a number that overflows, or that is below the normal numbers and loses bits. */
    if (type != NPY_FLOAT) return 0;
    float narrow = (float)value;
    if (isfinite(value) && value != 0.0 && !isnormal(narrow)) return 0;
    *(float *)to = narrow;
    return 1;
}

#define RVM_PUT_INT(ctype, low, high) \
    if (value < (int64_t)(low) || value > (int64_t)(high)) return 0; \
    *(ctype *)to = (ctype)value; \
    return 1

static inline int rvm_put_int(int64_t value, int type, void *to) {
    switch (type) {
        case NPY_BYTE: RVM_PUT_INT(npy_byte, NPY_MIN_BYTE, NPY_MAX_BYTE);
        case NPY_SHORT: RVM_PUT_INT(npy_short, NPY_MIN_SHORT, NPY_MAX_SHORT);
        case NPY_INT: RVM_PUT_INT(npy_int, NPY_MIN_INT, NPY_MAX_INT);
        case NPY_LONG: RVM_PUT_INT(npy_long, NPY_MIN_LONG, NPY_MAX_LONG);
        case NPY_LONGLONG: *(npy_longlong *)to = (npy_longlong)value; return 1;
        case NPY_UBYTE: RVM_PUT_INT(npy_ubyte, 0, NPY_MAX_UBYTE);
        case NPY_USHORT: RVM_PUT_INT(npy_ushort, 0, NPY_MAX_USHORT);
        case NPY_UINT: RVM_PUT_INT(npy_uint, 0, NPY_MAX_UINT);
        case NPY_FLOAT:
        case NPY_DOUBLE:
            if (value < -(1LL << 53) || value > 1LL << 53) return 0;
            return rvm_put_float((double)value, type, to);
        default: return 0;
    }
}

/* Convert a number next to a tensor to the tensor's data type; false where the kernel has to do it. */
static inline int rvm_put_number(PyObject *number, int type, void *to) {
    if (PyFloat_CheckExact(number)) return rvm_put_float(PyFloat_AS_DOUBLE(number), type, to);
    if (!PyLong_CheckExact(number)) return 0;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow && rvm_put_int((int64_t)value, type, to);
}

/* ---- calls ---------------------------------------------------------------------------------- */
/* The calls below return 0 to take the fallback, which calls the kernel; -1 with an exception;
 * -1 - status if the result is computed and numpy may report the status; else the amount of work: 1 to
 * 64. */
enum { RVM_FALLBACK = 0, RVM_RAISED = -1, RVM_MOST_WORK = 64 };

/* A loop of more elements is left to the kernel, which works in pieces and looks at the clock. */
#define RVM_MOST_ELEMENTS (1 << 20)

static inline int rvm_run_loop(const int64_t *words, char **data, npy_intp *steps, npy_intp count,
                               int in_place) {
    PyUFuncGenericFunction loop = (PyUFuncGenericFunction)words[RVM_UFUNC_LOOP];
    void *extra = (void *)words[RVM_UFUNC_DATA];
    /* Another thread may change the words while the loop runs. */
    int may_raise = (int)words[RVM_UFUNC_MAY_RAISE];
    npy_intp bytes = count * (npy_intp)words[RVM_UFUNC_OUT_SIZE];
    int once = in_place || bytes > RVM_ONCE_BYTES;
    if (count == 0) return 1;
    if (RVM_UNLIKELY(count == 1 && in_place)) {
        /* As numpy does: loops compute this case in another way, and the last bits may differ. */
        for (int i = 0; i <= ((PyUFuncObject *)words[RVM_UFUNC])->nin; i++) steps[i] = 0;
    }
    if (once) rvm_clear_float_status();
    if (bytes < RVM_RELEASE_BYTES) {
        loop(data, &count, steps, extra);
    } else {
        Py_BEGIN_ALLOW_THREADS
        loop(data, &count, steps, extra);
        Py_END_ALLOW_THREADS
    }
    if (may_raise && PyErr_Occurred()) return RVM_RAISED;
    int status = rvm_float_status();
    if (RVM_UNLIKELY(status) && !once) {
        rvm_clear_float_status();
        loop(data, &count, steps, extra);
        status = rvm_float_status();
    }
    if (RVM_UNLIKELY(status)) return -1 - status;
    return bytes >> 12 < RVM_MOST_WORK ? 1 + (int)(bytes >> 12) : RVM_MOST_WORK;
}

/* Whether an input of the output's shape may be read while the output is written: 0 if they do not
 * overlap, 1 if they are the same memory, -1 if not. */
static inline int rvm_is_in_place(PyArrayObject *x, PyArrayObject *out, npy_intp count,
                                  const int64_t *words) {
    char *from = (char *)PyArray_DATA(x), *to = (char *)PyArray_DATA(out);
    npy_intp size = (npy_intp)words[RVM_UFUNC_IN_SIZE], out_size = (npy_intp)words[RVM_UFUNC_OUT_SIZE];
    if (from == to) return size == out_size ? 1 : -1;
    return rvm_are_apart(from, count * size, to, count * out_size) ? 0 : -1;
}

static inline int rvm_knows_loop(int64_t *words, PyArray_Descr *in, PyArray_Descr *out) {
    if (RVM_LIKELY((int64_t)in == words[RVM_UFUNC_IN] && (int64_t)out == words[RVM_UFUNC_OUT]))
        return 1;
    return rvm_resolve(words, in, out);
}

/* out = ufunc(x) */
static inline int rvm_ufunc_1(int64_t *words, PyObject *x_object, PyObject *out_object) {
    PyArrayObject *x = (PyArrayObject *)x_object, *out = (PyArrayObject *)out_object;
    if (!rvm_is_plain(x_object, RVM_INPUT_FLAGS) || !rvm_is_plain(out_object, NPY_ARRAY_CARRAY))
        return RVM_FALLBACK;
    if (!rvm_knows_loop(words, PyArray_DESCR(x), PyArray_DESCR(out)) || !rvm_same_shape(x, out))
        return RVM_FALLBACK;
    npy_intp count = rvm_size(out);
    if (count > RVM_MOST_ELEMENTS) return RVM_FALLBACK;
    int in_place = rvm_is_in_place(x, out, count, words);
    if (in_place < 0) return RVM_FALLBACK;
    char *data[2] = {(char *)PyArray_DATA(x), (char *)PyArray_DATA(out)};
    npy_intp steps[2] = {(npy_intp)words[RVM_UFUNC_IN_SIZE], (npy_intp)words[RVM_UFUNC_OUT_SIZE]};
    return rvm_run_loop(words, data, steps, count, in_place);
}

/* An operand of a function of two: one element for all; of the result's shape but for dimensions of 1 in
 * front, without overlap; of the result's shape, without overlap; the memory of the result; or anything else,
 * for which the kernel is called. */
enum { RVM_ONE_FOR_ALL, RVM_SHORTER, RVM_APART, RVM_IN_PLACE, RVM_OTHER };

static inline int rvm_operand(PyObject *object, PyArrayObject *out, npy_intp count,
                              const int64_t *words, char **data, npy_intp *step, int64_t *number) {
    PyArrayObject *x = (PyArrayObject *)object;
    PyArray_Descr *descr = (PyArray_Descr *)words[RVM_UFUNC_IN];
    if (!PyArray_CheckExact(object)) {
        *data = (char *)number;
        *step = 0;
        return rvm_put_number(object, descr->type_num, number) ? RVM_ONE_FOR_ALL : RVM_OTHER;
    }
    if (PyArray_DESCR(x) != descr || !PyArray_CHKFLAGS(x, RVM_INPUT_FLAGS)) return RVM_OTHER;
    *data = (char *)PyArray_DATA(x);
    *step = (npy_intp)words[RVM_UFUNC_IN_SIZE];
    if (RVM_LIKELY(rvm_same_shape(x, out))) {
        int in_place = rvm_is_in_place(x, out, count, words);
        return in_place < 0 ? RVM_OTHER : in_place ? RVM_IN_PLACE : RVM_APART;
    }
    npy_intp size = rvm_size(x);
    if (PyArray_NDIM(x) > PyArray_NDIM(out) || (size != 1 && !rvm_ends_with(out, x))) return RVM_OTHER;
    if (!rvm_are_apart(*data, size * *step, (char *)PyArray_DATA(out),
                       count * (npy_intp)words[RVM_UFUNC_OUT_SIZE]))
        return RVM_OTHER;
    if (size != 1) return RVM_SHORTER;
    *step = 0;
    return RVM_ONE_FOR_ALL;
}

/* out = ufunc(a, b), where one of a and b may be a single element or a number. */
static inline int rvm_ufunc_2(int64_t *words, PyObject *a, PyObject *b, PyObject *out_object) {
    PyArrayObject *out = (PyArrayObject *)out_object;
    PyObject *tensor = PyArray_CheckExact(a) ? a : b;
    char *data[3];
    npy_intp steps[3];
    int64_t numbers[2];
    if (!PyArray_CheckExact(tensor) || !rvm_is_plain(out_object, NPY_ARRAY_CARRAY))
        return RVM_FALLBACK;
    if (!rvm_knows_loop(words, PyArray_DESCR((PyArrayObject *)tensor), PyArray_DESCR(out)))
        return RVM_FALLBACK;
    npy_intp count = rvm_size(out);
    if (count > RVM_MOST_ELEMENTS) return RVM_FALLBACK;
    int first = rvm_operand(a, out, count, words, &data[0], &steps[0], &numbers[0]);
    if (first == RVM_OTHER) return RVM_FALLBACK;
    int second = rvm_operand(b, out, count, words, &data[1], &steps[1], &numbers[1]);
    if (second == RVM_OTHER || (first | second) < RVM_APART) return RVM_FALLBACK;
    data[2] = (char *)PyArray_DATA(out);
    steps[2] = (npy_intp)words[RVM_UFUNC_OUT_SIZE];
    return rvm_run_loop(words, data, steps, count,
                        first == RVM_IN_PLACE || second == RVM_IN_PLACE);
}

#endif
