/* Kernels in C, for small tensors that lie in memory as usual.
 *
 * Of such a call most of the time goes to Python and to what numpy does around its loops.  Here the same
 * loops are called in the same order, so that results are the same bit for bit.  A kernel looks whether
 * its arguments are what it takes before it writes anything; if not, it leaves the call to the kernel in
 * Python, which is where errors are told from tensors of other kinds.  The interpreter lock is held: what
 * takes long is left to Python, too.
 */
#ifndef RELAXVM_DIRECT_IMPL_H
#define RELAXVM_DIRECT_IMPL_H

#include "_fused_impl.h"

/* A kernel's answer: RVM_ASK_KERNEL (0), RVM_RAISED, -1 - status if numpy may have something to say
 * about the result (see rvm_ufunc_1), else this.  It is given the ufunc if it computes just one. */
enum { RVM_DONE = 1 };
typedef int (*rvm_direct)(void *ufunc, PyObject *const *args, Py_ssize_t count);

#define RVM_DIRECT_BYTES RVM_RELEASE_BYTES /* less than that of a result, ... */
#define RVM_DIRECT_ITEMS (1 << 16)         /* ... elements at most that are read for it, ... */
#define RVM_DIRECT_WORK (1 << 19)          /* ... and multiplications of products: some 30 us */
#define RVM_STACK_BYTES 8192       /* of temporaries on the stack */

#if defined(_MSC_VER)
#define RVM_THREAD_LOCAL __declspec(thread)
#else
#define RVM_THREAD_LOCAL __thread
#endif

/* What the loops of a kernel did to the floating-point status.  Some clear it when they end, so it is
 * looked at after each of them. */
static RVM_THREAD_LOCAL int rvm_seen_status;

static inline void rvm_start(void) {
    rvm_clear_float_status();
    rvm_seen_status = 0;
}

static inline void rvm_note_status(void) {
    int status = rvm_float_status();
    if (RVM_UNLIKELY(status)) rvm_seen_status |= status;
}

static inline int rvm_answer(void) {
    int status = rvm_seen_status;
    return RVM_LIKELY(!status) ? RVM_DONE : -1 - status;
}

/* ---- loops -------------------------------------------------------------------------------------- */
/* Ufuncs whose loops kernels call, by the type number that inputs and output have. */
enum {
    RVM_ADD, RVM_SUBTRACT, RVM_MULTIPLY, RVM_DIVIDE, RVM_MAXIMUM, RVM_MINIMUM, RVM_EXP, RVM_LOG,
    RVM_SQUARE, RVM_MATMUL, RVM_NUM_LOOPS
};

typedef struct {
    PyUFuncGenericFunction call;
    void *data;
} rvm_loop;

static rvm_loop rvm_loops[RVM_NUM_LOOPS][NPY_HALF + 1];

static void rvm_learn_loops(int which, PyUFuncObject *ufunc) {
    for (int type = 0; type <= NPY_HALF; type++) {
        const int types[3] = {type, type, type};
        int found = type < NPY_OBJECT || type == NPY_HALF ? rvm_find_loop(ufunc, types) : -1;
        if (found < 0) continue;
        rvm_loops[which][type].call = ufunc->functions[found];
        rvm_loops[which][type].data = ufunc->data[found];
    }
}

/* A step of 0 stands for one element for all. */
static inline void rvm_apply_1(int which, int type, const char *x, char *out, npy_intp item,
                               npy_intp count) {
    const rvm_loop *loop = &rvm_loops[which][type];
    char *args[2] = {(char *)x, out};
    npy_intp steps[2] = {item, item};
    loop->call(args, &count, steps, loop->data);
    rvm_note_status();
}

static inline void rvm_apply_2(int which, int type, const char *a, npy_intp a_step, const char *b,
                               npy_intp b_step, char *out, npy_intp out_step, npy_intp count) {
    const rvm_loop *loop = &rvm_loops[which][type];
    char *args[3] = {(char *)a, (char *)b, out};
    npy_intp steps[3] = {a_step, b_step, out_step};
    loop->call(args, &count, steps, loop->data);
    rvm_note_status();
}

/* total = ufunc(total, each element in turn), or as numpy adds up */
static inline void rvm_reduce(int which, int type, char *total, const char *x, npy_intp item,
                              npy_intp count) {
    rvm_apply_2(which, type, total, 0, x, item, total, 0, count);
}

/* ---- arguments ---------------------------------------------------------------------------------- */
/* An array of numbers in the byte order of this machine. */
static inline int rvm_is_tensor(PyObject *object) {
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(object)) return 0;
    const PyArray_Descr *descr = PyArray_DESCR(x);
    if (PyArray_NDIM(x) > RVM_MAX_DIMS || !PyArray_CHKFLAGS(x, NPY_ARRAY_ALIGNED)) return 0;
    if (descr->byteorder == NPY_OPPBYTE) return 0;
    return rvm_is_builtin(descr) || (descr->type_num >= NPY_USERDEF && !PyDataType_REFCHK(descr));
}

static inline int rvm_type(PyObject *x) { return PyArray_DESCR((PyArrayObject *)x)->type_num; }
static inline int rvm_ndim(PyObject *x) { return PyArray_NDIM((PyArrayObject *)x); }
static inline npy_intp *rvm_dims(PyObject *x) { return PyArray_DIMS((PyArrayObject *)x); }
static inline npy_intp *rvm_strides(PyObject *x) { return PyArray_STRIDES((PyArrayObject *)x); }
static inline npy_intp rvm_item(PyObject *x) { return PyArray_ITEMSIZE((PyArrayObject *)x); }
static inline char *rvm_data(PyObject *x) { return PyArray_BYTES((PyArrayObject *)x); }
static inline npy_intp rvm_length(PyObject *x) { return rvm_size((PyArrayObject *)x); }
static inline int rvm_is_contiguous(PyObject *x) {
    return PyArray_CHKFLAGS((PyArrayObject *)x, NPY_ARRAY_C_CONTIGUOUS);
}
static inline int rvm_is_float(PyObject *x) {
    return rvm_type(x) == NPY_FLOAT || rvm_type(x) == NPY_DOUBLE;
}

/* A tensor that a small result may be written to. */
static inline int rvm_is_out(PyObject *object) {
    return rvm_is_tensor(object) &&
           PyArray_CHKFLAGS((PyArrayObject *)object, NPY_ARRAY_WRITEABLE) &&
           rvm_length(object) * rvm_item(object) < RVM_DIRECT_BYTES;
}

static void rvm_extent(PyObject *x, const char **low, const char **high) {
    *low = *high = rvm_data(x);
    for (int i = 0; i < rvm_ndim(x); i++) {
        if (rvm_dims(x)[i] == 0) {
            *high = *low;
            return;
        }
        npy_intp span = (rvm_dims(x)[i] - 1) * rvm_strides(x)[i];
        *(span < 0 ? low : high) += span;
    }
    *high += rvm_item(x);
}

/* Whether no element of one is in the memory of the other. */
static int rvm_no_overlap(PyObject *x, PyObject *out) {
    const char *x_low, *x_high, *out_low, *out_high;
    rvm_extent(x, &x_low, &x_high);
    rvm_extent(out, &out_low, &out_high);
    return x_high <= out_low || out_high <= x_low;
}

/* An input of the data type of `out` that writing to it does not change. */
static inline int rvm_is_input(PyObject *x, PyObject *out) {
    return rvm_is_tensor(x) && rvm_type(x) == rvm_type(out) && rvm_no_overlap(x, out);
}

static inline int rvm_get_int(PyObject *object, npy_intp *value) {
    int overflow;
    if (!PyLong_CheckExact(object)) return 0;
    *value = (npy_intp)PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

static inline int rvm_get_axis(PyObject *object, int ndim, int *axis) {
    npy_intp value;
    if (!rvm_get_int(object, &value) || value < -ndim || value >= ndim) return 0;
    *axis = (int)(value < 0 ? value + ndim : value);
    return 1;
}

/* A float32 or a float64. */
typedef union {
    float single;
    double full;
    char bytes[8];
} rvm_real;

static inline void rvm_set_real(rvm_real *real, int type, double value) {
    if (type == NPY_FLOAT) real->single = (float)value;
    else real->full = value;
}

/* A finite number among the arguments. */
static inline int rvm_get_real(PyObject *object, int type, rvm_real *value) {
    if (PyFloat_CheckExact(object) && !isfinite(PyFloat_AS_DOUBLE(object))) return 0;
    return rvm_put_number(object, type, value->bytes);
}

/* Up to RVM_MAX_DIMS ints of a Shape; how many, or -1. */
static int rvm_get_ints(PyObject *object, npy_intp *values) {
    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) > RVM_MAX_DIMS) return -1;
    int count = (int)PyTuple_GET_SIZE(object);
    for (int i = 0; i < count; i++)
        if (!rvm_get_int(PyTuple_GET_ITEM(object, i), &values[i])) return -1;
    return count;
}

/* Axes of a tensor: how many, or -1.  They are given as a Shape, as ints, or not at all, which
 * `all` allows, or by None. */
static int rvm_get_axes(PyObject *const *given, Py_ssize_t count, int ndim, int *axes) {
    if (count == 1 && PyTuple_Check(given[0])) {
        count = PyTuple_GET_SIZE(given[0]);
        given = &PyTuple_GET_ITEM(given[0], 0);
    }
    if (count > ndim) return -1;
    unsigned seen = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!rvm_get_axis(given[i], ndim, &axes[i]) || (seen >> axes[i] & 1)) return -1;
        seen |= 1u << axes[i];
    }
    return (int)count;
}

static inline npy_intp rvm_product(const npy_intp *dims, int from, int to) {
    npy_intp product = 1;
    for (int i = from; i < to; i++) product *= dims[i];
    return product;
}

/* ---- copies ------------------------------------------------------------------------------------- */
#define RVM_COPY_STRIDED(type)                                                          \
    for (npy_intp i = 0; i < count; i++)                                                \
        *(type *)(to + i * to_step) = *(const type *)(from + i * from_step);            \
    return

static void rvm_copy_row(char *to, npy_intp to_step, const char *from, npy_intp from_step,
                         npy_intp count, npy_intp item) {
    if (to_step == item && from_step == item) {
        memcpy(to, from, (size_t)(count * item));
        return;
    }
    switch (item) { /* aligned, by rvm_is_tensor */
        case 1: RVM_COPY_STRIDED(uint8_t);
        case 2: RVM_COPY_STRIDED(uint16_t);
        case 4: RVM_COPY_STRIDED(uint32_t);
        default:
            for (npy_intp i = 0; i < count; i++)
                memcpy(to + i * to_step, from + i * from_step, (size_t)item);
    }
}

static void rvm_copy_axes(char *to, const npy_intp *to_strides, const char *from,
                          const npy_intp *from_strides, const npy_intp *dims, int ndim, npy_intp item) {
    if (ndim == 1) {
        rvm_copy_row(to, to_strides[0], from, from_strides[0], dims[0], item);
        return;
    }
    for (npy_intp i = 0; i < dims[0]; i++)
        rvm_copy_axes(to + i * to_strides[0], to_strides + 1, from + i * from_strides[0],
                      from_strides + 1, dims + 1, ndim - 1, item);
}

/* Copy elements, axis by axis; those that lie alike in both count as one. */
static void rvm_copy(char *to, const npy_intp *to_strides, const char *from,
                     const npy_intp *from_strides, const npy_intp *dims, int ndim, npy_intp item) {
    npy_intp d[RVM_MAX_DIMS + 1], t[RVM_MAX_DIMS + 1], f[RVM_MAX_DIMS + 1];
    int n = 0;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] == 0) return;
        if (dims[i] == 1) continue;
        if (n > 0 && t[n - 1] == dims[i] * to_strides[i] && f[n - 1] == dims[i] * from_strides[i]) {
            n--;
            d[n] *= dims[i];
        } else {
            d[n] = dims[i];
        }
        t[n] = to_strides[i];
        f[n++] = from_strides[i];
    }
    if (n == 0) {
        memcpy(to, from, (size_t)item);
        return;
    }
    rvm_copy_axes(to, t, from, f, d, n, item);
}

/* out = the elements of x, row by row, in whatever shape */
static int rvm_reshape_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp strides[RVM_MAX_DIMS];
    (void)ufunc;
    if (count != 2 || !rvm_is_out(args[1]) || !rvm_is_input(args[0], args[1])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[1];
    if (rvm_length(x) != rvm_length(out) || !rvm_is_contiguous(out)) return RVM_ASK_KERNEL;
    npy_intp step = rvm_item(x);
    for (int i = rvm_ndim(x) - 1; i >= 0; i--) {
        strides[i] = step;
        step *= rvm_dims(x)[i];
    }
    rvm_copy(rvm_data(out), strides, rvm_data(x), rvm_strides(x), rvm_dims(x), rvm_ndim(x),
             rvm_item(x));
    return RVM_DONE;
}

/* Whether x broadcasts to the shape of out; its strides there. */
static int rvm_broadcast(PyObject *x, PyObject *out, npy_intp *strides) {
    int lead = rvm_ndim(out) - rvm_ndim(x);
    if (lead < 0) return 0;
    for (int i = 0; i < lead; i++) strides[i] = 0;
    for (int i = 0; i < rvm_ndim(x); i++) {
        npy_intp dim = rvm_dims(x)[i];
        if (dim != rvm_dims(out)[lead + i] && dim != 1) return 0;
        strides[lead + i] = dim == 1 ? 0 : rvm_strides(x)[i];
    }
    return 1;
}

static int rvm_broadcast_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp strides[RVM_MAX_DIMS];
    (void)ufunc;
    if (count != 2 || !rvm_is_out(args[1]) || !rvm_is_input(args[0], args[1])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[1];
    if (!rvm_broadcast(x, out, strides)) return RVM_ASK_KERNEL;
    rvm_copy(rvm_data(out), rvm_strides(out), rvm_data(x), strides, rvm_dims(out), rvm_ndim(out),
             rvm_item(x));
    return RVM_DONE;
}

/* out = x in another data type */
static int rvm_cast_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !rvm_is_tensor(args[0]) || !rvm_is_out(args[1])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[1];
    if (rvm_type(x) == rvm_type(out)) return rvm_broadcast_kernel(ufunc, args, count);
    if (!rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_no_overlap(x, out) ||
        !rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out))
        return RVM_ASK_KERNEL;
    PyUFuncGenericFunction loop = rvm_find_cast(rvm_type(x), rvm_type(out));
    if (loop == NULL) return RVM_ASK_KERNEL;
    char *data[2] = {rvm_data(x), rvm_data(out)};
    npy_intp elements = rvm_length(x), steps[2] = {rvm_item(x), rvm_item(out)};
    rvm_start();
    loop(data, &elements, steps, NULL);
    rvm_note_status();
    return rvm_answer();
}

/* out's axis i is x's axis axes[i] */
static int rvm_permute_dims_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp strides[RVM_MAX_DIMS];
    int axes[RVM_MAX_DIMS], given = 0;
    (void)ufunc;
    if (count < 2 || !rvm_is_out(args[count - 1]) || !rvm_is_input(args[0], args[count - 1]))
        return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[count - 1];
    int ndim = rvm_ndim(x);
    if (count == 2 || (count == 3 && args[1] == Py_None)) {
        for (; given < ndim; given++) axes[given] = ndim - 1 - given;
    } else {
        given = rvm_get_axes(args + 1, count - 2, ndim, axes);
    }
    if (given != ndim || rvm_ndim(out) != ndim) return RVM_ASK_KERNEL;
    for (int i = 0; i < ndim; i++) {
        if (rvm_dims(out)[i] != rvm_dims(x)[axes[i]]) return RVM_ASK_KERNEL;
        strides[i] = rvm_strides(x)[axes[i]];
    }
    rvm_copy(rvm_data(out), rvm_strides(out), rvm_data(x), strides, rvm_dims(out), ndim, rvm_item(x));
    return RVM_DONE;
}

/* out = x from the end to the beginning of an axis */
static int rvm_flip_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp strides[RVM_MAX_DIMS];
    int axis;
    (void)ufunc;
    if (count != 3 || !rvm_is_out(args[2]) || !rvm_is_input(args[0], args[2])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[2];
    if (!rvm_get_axis(args[1], rvm_ndim(x), &axis) ||
        !rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out))
        return RVM_ASK_KERNEL;
    memcpy(strides, rvm_strides(x), (size_t)rvm_ndim(x) * sizeof *strides);
    const char *from = rvm_data(x) + (rvm_dims(x)[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
    rvm_copy(rvm_data(out), rvm_strides(out), from, strides, rvm_dims(x), rvm_ndim(x), rvm_item(x));
    return RVM_DONE;
}

/* strided_slice(x, axes, begin, end, strides, out) */
static int rvm_strided_slice_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp begin[RVM_MAX_DIMS], end[RVM_MAX_DIMS], step[RVM_MAX_DIMS];
    npy_intp dims[RVM_MAX_DIMS], strides[RVM_MAX_DIMS];
    int axes[RVM_MAX_DIMS];
    (void)ufunc;
    if (count != 6 || !rvm_is_out(args[5]) || !rvm_is_input(args[0], args[5])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[5];
    int ndim = rvm_ndim(x);
    int given = PyTuple_Check(args[1]) ? rvm_get_axes(args + 1, 1, ndim, axes) : -1;
    if (given < 0 || rvm_ndim(out) != ndim || rvm_get_ints(args[2], begin) != given ||
        rvm_get_ints(args[3], end) != given)
        return RVM_ASK_KERNEL;
    if (args[4] == Py_None) {
        for (int i = 0; i < given; i++) step[i] = 1;
    } else if (rvm_get_ints(args[4], step) != given) {
        return RVM_ASK_KERNEL;
    }
    const char *from = rvm_data(x);
    memcpy(dims, rvm_dims(x), (size_t)ndim * sizeof *dims);
    memcpy(strides, rvm_strides(x), (size_t)ndim * sizeof *strides);
    for (int i = 0; i < given; i++) {
        int axis = axes[i];
        if (step[i] == 0 || step[i] < -NPY_MAX_INTP) return RVM_ASK_KERNEL;
        dims[axis] = PySlice_AdjustIndices(dims[axis], &begin[i], &end[i], step[i]);
        if (dims[axis] > 0) from += begin[i] * strides[axis];
        strides[axis] *= dims[axis] > 1 ? step[i] : 1;
    }
    for (int i = 0; i < ndim; i++)
        if (dims[i] != rvm_dims(out)[i]) return RVM_ASK_KERNEL;
    rvm_copy(rvm_data(out), rvm_strides(out), from, strides, dims, ndim, rvm_item(x));
    return RVM_DONE;
}

static inline int rvm_same_dims_but(PyObject *x, PyObject *out, int axis) {
    if (rvm_ndim(x) != rvm_ndim(out)) return 0;
    for (int i = 0; i < rvm_ndim(x); i++)
        if (i != axis && rvm_dims(x)[i] != rvm_dims(out)[i]) return 0;
    return 1;
}

/* concat(tensors..., axis, out) */
static int rvm_concat_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp total = 0;
    int axis;
    (void)ufunc;
    if (count < 3 || !rvm_is_out(args[count - 1])) return RVM_ASK_KERNEL;
    PyObject *out = args[count - 1];
    if (!rvm_get_axis(args[count - 2], rvm_ndim(out), &axis)) return RVM_ASK_KERNEL;
    for (Py_ssize_t i = 0; i < count - 2; i++) {
        if (!rvm_is_input(args[i], out) || !rvm_same_dims_but(args[i], out, axis))
            return RVM_ASK_KERNEL;
        total += rvm_dims(args[i])[axis];
    }
    if (total != rvm_dims(out)[axis]) return RVM_ASK_KERNEL;
    char *to = rvm_data(out);
    for (Py_ssize_t i = 0; i < count - 2; i++) {
        PyObject *x = args[i];
        rvm_copy(to, rvm_strides(out), rvm_data(x), rvm_strides(x), rvm_dims(x), rvm_ndim(x),
                 rvm_item(x));
        to += rvm_dims(x)[axis] * rvm_strides(out)[axis];
    }
    return RVM_DONE;
}

/* stack(tensors..., axis, out) */
static int rvm_stack_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp dims[RVM_MAX_DIMS + 1], strides[RVM_MAX_DIMS + 1];
    int axis, n = 0;
    (void)ufunc;
    if (count < 3 || !rvm_is_out(args[count - 1])) return RVM_ASK_KERNEL;
    PyObject *out = args[count - 1];
    if (!rvm_get_axis(args[count - 2], rvm_ndim(out), &axis) || rvm_dims(out)[axis] != count - 2)
        return RVM_ASK_KERNEL;
    for (int i = 0; i < rvm_ndim(out); i++) {
        if (i == axis) continue;
        dims[n] = rvm_dims(out)[i];
        strides[n++] = rvm_strides(out)[i];
    }
    for (Py_ssize_t i = 0; i < count - 2; i++)
        if (!rvm_is_input(args[i], out) || rvm_ndim(args[i]) != n ||
            memcmp(rvm_dims(args[i]), dims, (size_t)n * sizeof *dims) != 0)
            return RVM_ASK_KERNEL;
    for (Py_ssize_t i = 0; i < count - 2; i++)
        rvm_copy(rvm_data(out) + i * rvm_strides(out)[axis], strides, rvm_data(args[i]),
                 rvm_strides(args[i]), dims, n, rvm_item(out));
    return RVM_DONE;
}

/* Where part `i` of a split begins; -1 if that is for the kernel to say. */
static npy_intp rvm_split_bound(PyObject *sections, npy_intp length, Py_ssize_t parts, Py_ssize_t i) {
    npy_intp value;
    if (PyTuple_Check(sections)) {
        if (PyTuple_GET_SIZE(sections) != parts - 1) return -1;
        if (i == 0 || i == parts) return i == 0 ? 0 : length;
        if (!rvm_get_int(PyTuple_GET_ITEM(sections, i - 1), &value)) return -1;
        return value >= 0 && value <= length ? value : -1;
    }
    if (!rvm_get_int(sections, &value) || value != parts) return -1;
    value = (length + parts - 1) / parts * i;
    return value < length ? value : length;
}

/* split(x, indices or sections, axis, outs...) */
static int rvm_split_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    int axis;
    (void)ufunc;
    Py_ssize_t parts = count - 3;
    if (parts < 1 || !rvm_is_tensor(args[0])) return RVM_ASK_KERNEL;
    PyObject *x = args[0];
    if (!rvm_get_axis(args[2], rvm_ndim(x), &axis)) return RVM_ASK_KERNEL;
    npy_intp length = rvm_dims(x)[axis], start = 0;
    for (Py_ssize_t i = 0; i < parts; i++) {
        PyObject *out = args[3 + i];
        npy_intp stop = rvm_split_bound(args[1], length, parts, i + 1);
        if (start < 0 || stop < start || !rvm_is_out(out) || !rvm_is_input(x, out) ||
            !rvm_same_dims_but(x, out, axis) || rvm_dims(out)[axis] != stop - start)
            return RVM_ASK_KERNEL;
        start = stop;
    }
    const char *from = rvm_data(x);
    for (Py_ssize_t i = 0; i < parts; i++) {
        PyObject *out = args[3 + i];
        rvm_copy(rvm_data(out), rvm_strides(out), from, rvm_strides(x), rvm_dims(out), rvm_ndim(x),
                 rvm_item(x));
        from += rvm_dims(out)[axis] * rvm_strides(x)[axis];
    }
    return RVM_DONE;
}

static inline npy_intp rvm_index(const char *indices, int type, npy_intp i) {
    return type == NPY_INT ? (npy_intp)((const npy_int *)indices)[i] : ((const npy_intp *)indices)[i];
}

/* take(x, indices, axis, out), where an index outside is an error */
static int rvm_take_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    int axis = 0;
    (void)ufunc;
    if (count == 5 && (!PyUnicode_Check(args[3]) ||
                       PyUnicode_CompareWithASCIIString(args[3], "fast") != 0))
        return RVM_ASK_KERNEL;
    if (count < 4 || count > 5 || !rvm_is_out(args[count - 1])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *indices = args[1], *out = args[count - 1];
    if (!rvm_is_input(x, out) || !rvm_is_tensor(indices) || !rvm_no_overlap(indices, out))
        return RVM_ASK_KERNEL;
    int type = rvm_type(indices), ndim = rvm_ndim(x), more = rvm_ndim(indices);
    if ((type != NPY_INT && type != NPY_INTP) || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) ||
        !rvm_is_contiguous(indices))
        return RVM_ASK_KERNEL;
    if (args[2] == Py_None ? ndim != 1 : !rvm_get_axis(args[2], ndim, &axis)) return RVM_ASK_KERNEL;
    if (rvm_ndim(out) != ndim - 1 + more) return RVM_ASK_KERNEL;
    for (int i = 0; i < rvm_ndim(out); i++) {
        npy_intp dim = i < axis          ? rvm_dims(x)[i]
                       : i < axis + more ? rvm_dims(indices)[i - axis]
                                         : rvm_dims(x)[i - more + 1];
        if (dim != rvm_dims(out)[i]) return RVM_ASK_KERNEL;
    }
    npy_intp length = rvm_dims(x)[axis], taken = rvm_length(indices);
    npy_intp row = rvm_product(rvm_dims(x), axis + 1, ndim) * rvm_item(x);
    npy_intp outer = rvm_product(rvm_dims(x), 0, axis);
    if (taken * outer > RVM_DIRECT_ITEMS) return RVM_ASK_KERNEL; /* rows of nothing */
    for (npy_intp i = 0; i < taken; i++) {
        npy_intp index = rvm_index(rvm_data(indices), type, i);
        if (index < 0 || index >= length) return RVM_ASK_KERNEL;
    }
    const char *from = rvm_data(x);
    char *to = rvm_data(out);
    for (npy_intp k = 0; k < outer; k++) {
        for (npy_intp i = 0; i < taken; i++) {
            memcpy(to, from + rvm_index(rvm_data(indices), type, i) * row, (size_t)row);
            to += row;
        }
        from += length * row;
    }
    return RVM_DONE;
}

/* ---- constants ---------------------------------------------------------------------------------- */
/* All elements of out = a number of its data type. */
static int rvm_fill(PyObject *out, const char *number) {
    npy_intp bytes = rvm_length(out) * rvm_item(out), done = rvm_item(out);
    if (!rvm_is_contiguous(out)) return RVM_ASK_KERNEL;
    if (bytes == 0) return RVM_DONE;
    memcpy(rvm_data(out), number, (size_t)done);
    for (; done < bytes; done *= 2)
        memcpy(rvm_data(out) + done, rvm_data(out), (size_t)(done < bytes - done ? done : bytes - done));
    return RVM_DONE;
}

/* fill(number, out) */
static int rvm_fill_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_real number;
    (void)ufunc;
    if (count != 2 || !rvm_is_out(args[1]) || !rvm_put_number(args[0], rvm_type(args[1]), number.bytes))
        return RVM_ASK_KERNEL;
    return rvm_fill(args[1], number.bytes);
}

/* full(number or tensor without axes, out) */
static int rvm_full_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyArray_Check(args[0])) return rvm_fill_kernel(ufunc, args, count);
    if (!rvm_is_out(args[1]) || !rvm_is_input(args[0], args[1]) || rvm_ndim(args[0]) != 0)
        return RVM_ASK_KERNEL;
    return rvm_fill(args[1], rvm_data(args[0]));
}

/* zeros(out), ones(out) */
static int rvm_same_kernel(int value, PyObject *const *args, Py_ssize_t count) {
    rvm_real number = {.full = 0};
    if (count != 1 || !rvm_is_out(args[0])) return RVM_ASK_KERNEL;
    int type = rvm_type(args[0]);
    if (type == NPY_BOOL) number.bytes[0] = (char)value;
    else if (!rvm_put_int(value, type, number.bytes)) return RVM_ASK_KERNEL;
    return rvm_fill(args[0], number.bytes);
}
static int rvm_zeros_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_same_kernel(0, args, count);
}
static int rvm_ones_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_same_kernel(1, args, count);
}

/* ---- reductions --------------------------------------------------------------------------------- */
/* A total becomes a mean as in numpy.mean, whose counts are int64: beside them a float32 becomes a
 * float64. */
static inline void rvm_mean(char *total, int type, npy_intp count) {
    if (type == NPY_FLOAT) *(float *)total = (float)((double)*(float *)total / (double)count);
    else *(double *)total /= (double)count;
}

/* reduction(x, axes..., out): over axes that follow each other */
static int rvm_reduction(int which, int mean, PyObject *const *args, Py_ssize_t count) {
    int axes[RVM_MAX_DIMS], given;
    if (count < 2 || !rvm_is_out(args[count - 1]) || !rvm_is_input(args[0], args[count - 1]))
        return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[count - 1];
    int ndim = rvm_ndim(x), type = rvm_type(x), first = 0, last = ndim;
    npy_intp *dims = rvm_dims(x), item = rvm_item(x);
    if (!rvm_is_contiguous(x) || !rvm_is_contiguous(out)) return RVM_ASK_KERNEL;
    /* Python adds up floats of less than 32 bits in float32. */
    if (type >= NPY_HALF || rvm_loops[which][type].call == NULL ||
        (mean && !rvm_is_float(x)))
        return RVM_ASK_KERNEL;
    if (count > 2 && !(count == 3 && args[1] == Py_None)) {
        given = rvm_get_axes(args + 1, count - 2, ndim, axes);
        if (given < 1) return RVM_ASK_KERNEL;
        first = axes[0];
        last = first + given;
        for (int i = 1; i < given; i++)
            if (axes[i] != first + i) return RVM_ASK_KERNEL;
    }
    npy_intp outer = rvm_product(dims, 0, first), inner = rvm_product(dims, last, ndim);
    npy_intp length = rvm_product(dims, first, last);
    int keeps = rvm_ndim(out) == ndim;
    if (!keeps && rvm_ndim(out) != ndim - (last - first)) return RVM_ASK_KERNEL;
    for (int i = 0, k = 0; i < ndim; i++) {
        int is_gone = i >= first && i < last;
        if (is_gone && !keeps) continue;
        if (rvm_dims(out)[k++] != (is_gone ? 1 : dims[i])) return RVM_ASK_KERNEL;
    }
    if (outer * inner * length == 0 || outer * inner * length > RVM_DIRECT_ITEMS) return RVM_ASK_KERNEL;
    /* numpy begins with 0 or 1 where a sum or product has that, else with the first element. */
    int from_first = which == RVM_MAXIMUM || which == RVM_MINIMUM;
    rvm_real one;
    if (which == RVM_MULTIPLY && !rvm_put_int(1, type, one.bytes)) return RVM_ASK_KERNEL;
    npy_intp row = inner * item;
    const char *from = rvm_data(x);
    char *to = rvm_data(out);
    rvm_start();
    for (npy_intp k = 0; k < outer; k++) {
        npy_intp begin = from_first ? 1 : 0;
        if (from_first) memcpy(to, from, (size_t)row);
        else if (which == RVM_ADD) memset(to, 0, (size_t)row);
        else for (npy_intp i = 0; i < inner; i++) memcpy(to + i * item, one.bytes, (size_t)item);
        if (inner == 1) {
            if (length > begin)
                rvm_reduce(which, type, to, from + begin * item, item, length - begin);
        } else {
            for (npy_intp i = begin; i < length; i++)
                rvm_apply_2(which, type, to, item, from + i * row, item, to, item, inner);
        }
        if (mean)
            for (npy_intp i = 0; i < inner; i++) rvm_mean(to + i * item, type, length);
        from += length * row;
        to += row;
    }
    return rvm_answer();
}

static int rvm_sum_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_reduction(RVM_ADD, 0, args, count);
}
static int rvm_prod_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_reduction(RVM_MULTIPLY, 0, args, count);
}
static int rvm_mean_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_reduction(RVM_ADD, 1, args, count);
}
static int rvm_max_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_reduction(RVM_MAXIMUM, 0, args, count);
}
static int rvm_min_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_reduction(RVM_MINIMUM, 0, args, count);
}

/* Rows along an axis that is the last one, but for such of length 1; or all of x for None. */
static int rvm_get_row(PyObject *x, PyObject *axis_object, npy_intp *length) {
    int axis;
    if (!rvm_is_contiguous(x)) return 0;
    if (axis_object == Py_None) {
        *length = rvm_length(x);
        return 1;
    }
    if (!rvm_get_axis(axis_object, rvm_ndim(x), &axis)) return 0;
    *length = rvm_dims(x)[axis];
    return rvm_product(rvm_dims(x), axis + 1, rvm_ndim(x)) == 1;
}

/* cumsum(x, axis, exclusive, out) of numbers of one data type */
static int rvm_cumsum_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    npy_intp exclusive, length;
    (void)ufunc;
    if (count != 4 || !rvm_is_out(args[3]) || !rvm_is_input(args[0], args[3])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[3];
    int type = rvm_type(x);
    if (args[2] != Py_False && (!rvm_get_int(args[2], &exclusive) || exclusive)) return RVM_ASK_KERNEL;
    if (type == NPY_BOOL || type > NPY_HALF || rvm_loops[RVM_ADD][type].call == NULL ||
        args[1] == Py_None || !rvm_get_row(x, args[1], &length) || !rvm_is_contiguous(out) ||
        !rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out))
        return RVM_ASK_KERNEL;
    npy_intp rows = length ? rvm_length(x) / length : 0, item = rvm_item(x);
    const char *from = rvm_data(x);
    char *to = rvm_data(out);
    rvm_start();
    for (npy_intp k = 0; k < rows; k++) {
        memcpy(to, from, (size_t)item);
        if (length > 1)
            rvm_apply_2(RVM_ADD, type, to, item, from + item, item, to + item, item, length - 1);
        from += length * item;
        to += length * item;
    }
    return rvm_answer();
}

/* argmax(x, axis, out), argmin */
static int rvm_arg_reduction(int least, PyObject *const *args, Py_ssize_t count) {
    npy_intp length;
    if (count != 3 || !rvm_is_tensor(args[0]) || !rvm_is_out(args[2])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[2];
    const PyArray_Descr *descr = PyArray_DESCR((PyArrayObject *)x);
    if (rvm_type(out) != NPY_INT64 || !rvm_is_contiguous(out) || !rvm_is_builtin(descr) ||
        PyTypeNum_ISCOMPLEX(descr->type_num) || !rvm_no_overlap(x, out) ||
        !rvm_get_row(x, args[1], &length))
        return RVM_ASK_KERNEL;
    /* Dimensions of length 1 say nothing, but there has to be the right number of them. */
    int ndim = rvm_ndim(x), gone = args[1] == Py_None ? ndim : 1, axis = 0;
    if (gone == 1 && args[1] != Py_None) (void)rvm_get_axis(args[1], ndim, &axis);
    int keeps = rvm_ndim(out) == ndim;
    if (!keeps && rvm_ndim(out) != ndim - gone) return RVM_ASK_KERNEL;
    for (int i = 0, k = 0; i < ndim; i++) {
        int is_gone = args[1] == Py_None || i == axis;
        if (is_gone && !keeps) continue;
        if (rvm_dims(out)[k++] != (is_gone ? 1 : rvm_dims(x)[i])) return RVM_ASK_KERNEL;
    }
    if (length == 0 || rvm_length(x) > RVM_DIRECT_ITEMS) return RVM_ASK_KERNEL;
    PyArray_ArrFuncs *funcs = PyDataType_GetArrFuncs(descr);
    PyArray_ArgFunc *find = least ? funcs->argmin : funcs->argmax;
    if (find == NULL) return RVM_ASK_KERNEL;
    npy_intp rows = rvm_length(x) / length, row = length * rvm_item(x), index;
    for (npy_intp k = 0; k < rows; k++) {
        index = 0;
        if (find(rvm_data(x) + k * row, length, &index, x) < 0) return RVM_RAISED;
        ((npy_int64 *)rvm_data(out))[k] = index;
    }
    return RVM_DONE;
}

static int rvm_argmax_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_arg_reduction(0, args, count);
}
static int rvm_argmin_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return rvm_arg_reduction(1, args, count);
}

/* ---- rows --------------------------------------------------------------------------------------- */
typedef struct {
    const char *x;
    char *out;
    npy_intp rows, length, item;
    int type;
} rvm_rows;

static int rvm_get_rows(PyObject *x, PyObject *out, rvm_rows *r) {
    if (!rvm_is_out(out) || !rvm_is_float(out) || !rvm_is_input(x, out) || !rvm_is_contiguous(x) ||
        !rvm_is_contiguous(out) || !rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out) ||
        rvm_length(x) == 0)
        return 0;
    r->x = rvm_data(x);
    r->out = rvm_data(out);
    r->item = rvm_item(x);
    r->type = rvm_type(x);
    r->rows = 1;
    r->length = rvm_length(x);
    return 1;
}

static inline void rvm_set_length(rvm_rows *r, npy_intp length) {
    r->rows = r->rows * r->length / length;
    r->length = length;
}

/* out = x less the greatest of each row */
static void rvm_below_peak(const rvm_rows *r) {
    rvm_real peak;
    for (npy_intp i = 0; i < r->rows; i++) {
        const char *x = r->x + i * r->length * r->item;
        char *out = r->out + i * r->length * r->item;
        memcpy(peak.bytes, x, (size_t)r->item);
        if (r->length > 1)
            rvm_reduce(RVM_MAXIMUM, r->type, peak.bytes, x + r->item, r->item, r->length - 1);
        rvm_apply_2(RVM_SUBTRACT, r->type, x, r->item, peak.bytes, 0, out, r->item, r->length);
    }
}

static int rvm_softmax_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_rows r;
    npy_intp length;
    rvm_real total;
    (void)ufunc;
    if (count != 3 || !rvm_get_rows(args[0], args[2], &r) || args[1] == Py_None ||
        !rvm_get_row(args[0], args[1], &length))
        return RVM_ASK_KERNEL;
    rvm_set_length(&r, length);
    rvm_start();
    rvm_below_peak(&r);
    rvm_apply_1(RVM_EXP, r.type, r.out, r.out, r.item, r.rows * r.length);
    for (npy_intp i = 0; i < r.rows; i++) {
        char *out = r.out + i * r.length * r.item;
        rvm_set_real(&total, r.type, 0);
        rvm_reduce(RVM_ADD, r.type, total.bytes, out, r.item, r.length);
        rvm_apply_2(RVM_DIVIDE, r.type, out, r.item, total.bytes, 0, out, r.item, r.length);
    }
    return rvm_answer();
}

static int rvm_log_softmax_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_rows r;
    npy_intp length;
    rvm_real total, powers[RVM_STACK_BYTES / sizeof(rvm_real)];
    (void)ufunc;
    if (count != 3 || !rvm_get_rows(args[0], args[2], &r) || args[1] == Py_None ||
        !rvm_get_row(args[0], args[1], &length) || length * r.item > RVM_STACK_BYTES)
        return RVM_ASK_KERNEL;
    rvm_set_length(&r, length);
    rvm_start();
    rvm_below_peak(&r);
    for (npy_intp i = 0; i < r.rows; i++) {
        char *out = r.out + i * r.length * r.item;
        rvm_apply_1(RVM_EXP, r.type, out, powers->bytes, r.item, r.length);
        rvm_set_real(&total, r.type, 0);
        rvm_reduce(RVM_ADD, r.type, total.bytes, powers->bytes, r.item, r.length);
        rvm_apply_1(RVM_LOG, r.type, total.bytes, total.bytes, r.item, 1);
        rvm_apply_2(RVM_SUBTRACT, r.type, out, r.item, total.bytes, 0, out, r.item, r.length);
    }
    return rvm_answer();
}

static inline void rvm_divide_by(rvm_real *total, int type, npy_intp count) {
    if (type == NPY_FLOAT) total->single /= (float)count;
    else total->full /= (double)count;
}

/* total = the square root of its mean, after addition of epsilon */
static inline void rvm_root_mean(rvm_real *total, const rvm_real *epsilon, int type, npy_intp count) {
    rvm_divide_by(total, type, count);
    if (type == NPY_FLOAT) total->single = sqrtf(total->single + epsilon->single);
    else total->full = sqrt(total->full + epsilon->full);
}

/* Rows over the last axes, and how many elements they have; the factors' shape is that of the axes. */
static int rvm_set_axes(rvm_rows *r, PyObject *x, PyObject *axes_object, PyObject *like) {
    int axes[RVM_MAX_DIMS], ndim = rvm_ndim(x);
    if (!PyTuple_Check(axes_object)) return 0;
    int given = rvm_get_axes(&axes_object, 1, ndim, axes);
    if (given < 1 || !rvm_is_contiguous(like) || rvm_ndim(like) != given) return 0;
    for (int i = 0; i < given; i++)
        if (axes[i] != ndim - given + i || rvm_dims(like)[i] != rvm_dims(x)[axes[i]]) return 0;
    rvm_set_length(r, rvm_length(like));
    return 1;
}

/* rms_norm(x, weight, axes, epsilon, out) */
static int rvm_rms_norm_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_rows r;
    rvm_real epsilon, total;
    (void)ufunc;
    if (count != 5 || !rvm_get_rows(args[0], args[4], &r) || !rvm_is_input(args[1], args[4]) ||
        !rvm_set_axes(&r, args[0], args[2], args[1]) || !rvm_get_real(args[3], r.type, &epsilon))
        return RVM_ASK_KERNEL;
    npy_intp n = r.length, item = r.item;
    rvm_start();
    for (npy_intp i = 0; i < r.rows; i++) {
        const char *x = r.x + i * n * item;
        char *out = r.out + i * n * item;
        rvm_apply_1(RVM_SQUARE, r.type, x, out, item, n);
        rvm_set_real(&total, r.type, 0);
        rvm_reduce(RVM_ADD, r.type, total.bytes, out, item, n);
        rvm_root_mean(&total, &epsilon, r.type, n);
        rvm_apply_2(RVM_DIVIDE, r.type, x, item, total.bytes, 0, out, item, n);
        rvm_apply_2(RVM_MULTIPLY, r.type, out, item, rvm_data(args[1]), item, out, item, n);
    }
    return rvm_answer();
}

static inline int rvm_get_flag(PyObject *object, npy_intp *flag) {
    if (object == Py_True || object == Py_False) {
        *flag = object == Py_True;
        return 1;
    }
    return rvm_get_int(object, flag) && (*flag == 0 || *flag == 1);
}

/* layer_norm(x, gamma, beta, axes, epsilon, center, scale, out) */
static int rvm_layer_norm_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_rows r;
    rvm_real epsilon, total, squares[RVM_STACK_BYTES / sizeof(rvm_real)];
    npy_intp center, scale;
    (void)ufunc;
    if (count != 8 || !rvm_get_rows(args[0], args[7], &r)) return RVM_ASK_KERNEL;
    PyObject *gamma = args[1], *beta = args[2];
    if (!rvm_is_input(gamma, args[7]) || !rvm_is_input(beta, args[7]) ||
        !rvm_set_axes(&r, args[0], args[3], gamma) || !rvm_is_contiguous(beta) ||
        !rvm_same_shape((PyArrayObject *)gamma, (PyArrayObject *)beta) ||
        !rvm_get_real(args[4], r.type, &epsilon) || !rvm_get_flag(args[5], &center) ||
        !rvm_get_flag(args[6], &scale) || r.length * r.item > RVM_STACK_BYTES)
        return RVM_ASK_KERNEL;
    npy_intp n = r.length, item = r.item;
    rvm_start();
    for (npy_intp i = 0; i < r.rows; i++) {
        const char *x = r.x + i * n * item;
        char *out = r.out + i * n * item;
        rvm_set_real(&total, r.type, 0);
        rvm_reduce(RVM_ADD, r.type, total.bytes, x, item, n);
        rvm_divide_by(&total, r.type, n);
        rvm_apply_2(RVM_SUBTRACT, r.type, x, item, total.bytes, 0, out, item, n);
        rvm_apply_1(RVM_SQUARE, r.type, out, squares->bytes, item, n);
        rvm_set_real(&total, r.type, 0);
        rvm_reduce(RVM_ADD, r.type, total.bytes, squares->bytes, item, n);
        rvm_root_mean(&total, &epsilon, r.type, n);
        rvm_apply_2(RVM_DIVIDE, r.type, out, item, total.bytes, 0, out, item, n);
        if (scale) rvm_apply_2(RVM_MULTIPLY, r.type, out, item, rvm_data(gamma), item, out, item, n);
        if (center) rvm_apply_2(RVM_ADD, r.type, out, item, rvm_data(beta), item, out, item, n);
    }
    return rvm_answer();
}

/* ---- products ----------------------------------------------------------------------------------- */
/* Matrices of a tensor: steps in bytes. */
typedef struct {
    char *data;
    npy_intp batch, row, column;
} rvm_matrices;

/* out[i] = a[i] @ b[i] for `batch` of them; a[i] has n rows and k columns, b[i] has m columns. */
static void rvm_multiply(int type, npy_intp batch, npy_intp n, npy_intp k, npy_intp m,
                         const rvm_matrices *a, const rvm_matrices *b, const rvm_matrices *out) {
    const rvm_loop *loop = &rvm_loops[RVM_MATMUL][type];
    char *args[3] = {a->data, b->data, out->data};
    npy_intp dims[4] = {batch, n, k, m};
    npy_intp steps[9] = {a->batch, b->batch, out->batch, a->row, a->column,
                         b->row,   b->column, out->row,  out->column};
    loop->call(args, dims, steps, loop->data);
    rvm_note_status();
}

/* A step of the last but `from_end` axis. */
static inline npy_intp rvm_step(PyObject *x, int from_end) {
    return rvm_strides(x)[rvm_ndim(x) - 1 - from_end];
}
static inline npy_intp rvm_dim(PyObject *x, int from_end) {
    return rvm_dims(x)[rvm_ndim(x) - 1 - from_end];
}

/* Steps along the leading axes of the result; false if they do not broadcast to it. */
static int rvm_batch_steps(PyObject *x, PyObject *out, npy_intp *steps) {
    int lead = rvm_ndim(out) - rvm_ndim(x);
    if (lead < 0) return 0;
    for (int i = 0; i < rvm_ndim(out) - 2; i++) {
        npy_intp dim = i < lead ? 1 : rvm_dims(x)[i - lead];
        if (dim != 1 && dim != rvm_dims(out)[i]) return 0;
        steps[i] = dim == 1 ? 0 : rvm_strides(x)[i - lead];
    }
    return 1;
}

/* Products for all leading axes from `level` on. */
static void rvm_multiply_batches(int type, PyObject *out_object, int level, npy_intp n, npy_intp k,
                                 npy_intp m, rvm_matrices a, const npy_intp *a_steps, rvm_matrices b,
                                 const npy_intp *b_steps, rvm_matrices out) {
    int levels = rvm_ndim(out_object) - 2;
    if (level >= levels - 1) {
        npy_intp batch = levels > 0 ? rvm_dims(out_object)[level] : 1;
        a.batch = levels > 0 ? a_steps[level] : 0;
        b.batch = levels > 0 ? b_steps[level] : 0;
        out.batch = levels > 0 ? rvm_strides(out_object)[level] : 0;
        rvm_multiply(type, batch, n, k, m, &a, &b, &out);
        return;
    }
    for (npy_intp i = 0; i < rvm_dims(out_object)[level]; i++) {
        rvm_multiply_batches(type, out_object, level + 1, n, k, m, a, a_steps, b, b_steps, out);
        a.data += a_steps[level];
        b.data += b_steps[level];
        out.data += rvm_strides(out_object)[level];
    }
}

/* out = a @ b of matrices, or @ their transposes; 0 if that is for the kernel. */
static int rvm_product_of(PyObject *a, PyObject *b, PyObject *out, int transpose_a, int transpose_b) {
    npy_intp a_steps[RVM_MAX_DIMS], b_steps[RVM_MAX_DIMS];
    if (!rvm_is_out(out) || !rvm_is_input(a, out) || !rvm_is_input(b, out) || rvm_ndim(a) < 2 ||
        rvm_ndim(b) < 2)
        return 0;
    int type = rvm_type(out);
    if (type >= NPY_HALF || rvm_loops[RVM_MATMUL][type].call == NULL) return 0;
    npy_intp n = rvm_dim(a, !transpose_a), k = rvm_dim(a, transpose_a), m = rvm_dim(b, transpose_b);
    npy_intp elements = rvm_length(out);
    if (k == 0 || k != rvm_dim(b, !transpose_b) || elements > RVM_DIRECT_WORK / k) return 0;
    rvm_matrices x = {rvm_data(a), 0, rvm_step(a, !transpose_a), rvm_step(a, transpose_a)};
    rvm_matrices y = {rvm_data(b), 0, rvm_step(b, !transpose_b), rvm_step(b, transpose_b)};
    if (rvm_ndim(out) < 2 || rvm_dim(out, 0) != m) return 0;
    rvm_matrices z = {rvm_data(out), 0, rvm_step(out, 1), rvm_step(out, 0)};
    if (rvm_dim(out, 1) != n) return 0;
    if (rvm_ndim(b) > rvm_ndim(out) || rvm_ndim(a) > rvm_ndim(out) ||
        (rvm_ndim(a) < rvm_ndim(out) && rvm_ndim(b) < rvm_ndim(out)))
        return 0;
    for (int i = 0; i < rvm_ndim(out) - 2; i++) { /* the result is as long as one of the two */
        int from_a = i - (rvm_ndim(out) - rvm_ndim(a)), from_b = i - (rvm_ndim(out) - rvm_ndim(b));
        npy_intp dim = rvm_dims(out)[i];
        if ((from_a < 0 || rvm_dims(a)[from_a] != dim) && (from_b < 0 || rvm_dims(b)[from_b] != dim))
            return 0;
    }
    if (elements == 0) return RVM_DONE;
    if (rvm_ndim(b) == 2 && rvm_ndim(a) > 2 && !transpose_a && rvm_ndim(a) == rvm_ndim(out) &&
        rvm_is_contiguous(a) && rvm_is_contiguous(out)) {
        /* One product of many rows, not many products of a few. */
        for (int i = 0; i < rvm_ndim(out) - 2; i++)
            if (rvm_dims(a)[i] != rvm_dims(out)[i]) return 0;
        /* Steps of axes of length 1 say nothing. */
        x.column = z.column = rvm_item(out);
        x.row = k * x.column;
        z.row = m * z.column;
        rvm_start();
        rvm_multiply(type, 1, elements / m, k, m, &x, &y, &z);
        return rvm_answer();
    }
    if (!rvm_batch_steps(a, out, a_steps) || !rvm_batch_steps(b, out, b_steps)) return 0;
    rvm_start();
    rvm_multiply_batches(type, out, 0, n, k, m, x, a_steps, y, b_steps, z);
    return rvm_answer();
}

static int rvm_matmul_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return count == 3 ? rvm_product_of(args[0], args[1], args[2], 0, 0) : RVM_ASK_KERNEL;
}
static int rvm_matmul_nt_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return count == 3 ? rvm_product_of(args[0], args[1], args[2], 0, 1) : RVM_ASK_KERNEL;
}
static int rvm_matmul_tn_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    return count == 3 ? rvm_product_of(args[0], args[1], args[2], 1, 0) : RVM_ASK_KERNEL;
}

/* linear(x, weight, bias or None, out) */
static int rvm_linear_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    (void)ufunc;
    if (count != 4 || !rvm_is_out(args[3]) || !rvm_is_tensor(args[1]) || rvm_ndim(args[1]) != 2)
        return RVM_ASK_KERNEL;
    PyObject *bias = args[2], *out = args[3];
    int type = rvm_type(out);
    npy_intp m = rvm_ndim(out) ? rvm_dim(out, 0) : 0;
    if (bias != Py_None && (!rvm_is_input(bias, out) || type > NPY_HALF || rvm_ndim(bias) != 1 ||
                            rvm_dims(bias)[0] != m || !rvm_is_contiguous(out)))
        return RVM_ASK_KERNEL;
    int answer = rvm_product_of(args[0], args[1], out, 0, 1);
    if (answer != RVM_DONE || bias == Py_None) return answer;
    npy_intp rows = m ? rvm_length(out) / m : 0;
    for (npy_intp i = 0; i < rows; i++) {
        char *row = rvm_data(out) + i * m * rvm_item(out);
        rvm_apply_2(RVM_ADD, type, row, rvm_item(out), rvm_data(bias), rvm_strides(bias)[0], row,
                    rvm_item(out), m);
    }
    return rvm_answer();
}

/* ---- attention ---------------------------------------------------------------------------------- */
typedef struct {
    npy_intp batch, queries, keys, heads, width, depth, item;
    npy_intp hidden;      /* query i does not see the keys behind i + hidden, if it is masked */
    npy_intp bias[4];     /* steps along batch, heads, queries, keys */
    const char *bias_data;
    rvm_real factor;
    int type, masked;
} rvm_attention;

/* The softmax of a row of scores; one of -infinity gives zeros. */
static void rvm_weigh_row(char *row, int type, npy_intp item, npy_intp n) {
    rvm_real peak, total;
    memcpy(peak.bytes, row, (size_t)item);
    if (n > 1) rvm_reduce(RVM_MAXIMUM, type, peak.bytes, row + item, item, n - 1);
    if (type == NPY_FLOAT ? peak.single == -INFINITY : peak.full == -INFINITY)
        rvm_set_real(&peak, type, 0);
    rvm_apply_2(RVM_SUBTRACT, type, row, item, peak.bytes, 0, row, item, n);
    rvm_apply_1(RVM_EXP, type, row, row, item, n);
    rvm_set_real(&total, type, 0);
    rvm_reduce(RVM_ADD, type, total.bytes, row, item, n);
    if (type == NPY_FLOAT ? total.single == 0 : total.full == 0) rvm_set_real(&total, type, 1);
    rvm_apply_2(RVM_DIVIDE, type, row, item, total.bytes, 0, row, item, n);
}

static void rvm_hide(char *row, int type, npy_intp from, npy_intp to) {
    for (npy_intp i = from < 0 ? 0 : from; i < to; i++) {
        if (type == NPY_FLOAT) ((float *)row)[i] = -INFINITY;
        else ((double *)row)[i] = -INFINITY;
    }
}

/* The scores of an element of the batch, as shares. */
static void rvm_weigh(const rvm_attention *a, npy_intp i, char *scores) {
    rvm_apply_2(RVM_MULTIPLY, a->type, scores, a->item, a->factor.bytes, 0, scores, a->item,
                a->heads * a->queries * a->keys);
    for (npy_intp h = 0; h < a->heads; h++) {
        for (npy_intp q = 0; q < a->queries; q++) {
            char *row = scores + (h * a->queries + q) * a->keys * a->item;
            if (a->bias_data != NULL)
                rvm_apply_2(RVM_ADD, a->type, row, a->item,
                            a->bias_data + i * a->bias[0] + h * a->bias[1] + q * a->bias[2],
                            a->bias[3], row, a->item, a->keys);
            if (a->masked) rvm_hide(row, a->type, q + a->hidden + 1, a->keys);
            rvm_weigh_row(row, a->type, a->item, a->keys);
        }
    }
}

static int rvm_get_attention(PyObject *const *args, rvm_attention *a) {
    PyObject *query = args[0], *key = args[1], *value = args[2], *bias = args[3], *out = args[6];
    if (!rvm_is_out(out) || !rvm_is_float(out) || rvm_ndim(out) != 4) return 0;
    for (int i = 0; i < 3; i++)
        if (!rvm_is_input(args[i], out) || rvm_ndim(args[i]) != 4) return 0;
    a->batch = rvm_dims(query)[0];
    a->queries = rvm_dims(query)[1];
    a->heads = rvm_dims(query)[2];
    a->width = rvm_dims(query)[3];
    a->keys = rvm_dims(key)[1];
    a->depth = rvm_dims(value)[3];
    a->item = rvm_item(out);
    a->type = rvm_type(out);
    const npy_intp k_dims[4] = {a->batch, a->keys, a->heads, a->width};
    const npy_intp v_dims[4] = {a->batch, a->keys, a->heads, a->depth};
    const npy_intp out_dims[4] = {a->batch, a->queries, a->heads, a->depth};
    if (memcmp(rvm_dims(key), k_dims, sizeof k_dims) || memcmp(rvm_dims(value), v_dims, sizeof v_dims) ||
        memcmp(rvm_dims(out), out_dims, sizeof out_dims))
        return 0;
    if (a->batch == 0 || a->queries == 0 || a->heads == 0 || a->width == 0 || a->keys == 0 ||
        a->depth == 0)
        return 0;
    if (args[4] == Py_None) {
        double scale = 1 / sqrt((double)a->width);
        rvm_set_real(&a->factor, a->type, scale);
    } else if (!rvm_get_real(args[4], a->type, &a->factor)) {
        return 0;
    }
    a->masked = args[5] != Py_None;
    a->hidden = 0;
    if (a->masked) {
        if (!PyUnicode_Check(args[5])) return 0;
        if (PyUnicode_CompareWithASCIIString(args[5], "BottomRight") == 0)
            a->hidden = a->keys - a->queries;
        else if (PyUnicode_CompareWithASCIIString(args[5], "TopLeft") != 0)
            return 0;
    }
    a->bias_data = NULL;
    if (bias == Py_None) return 1;
    if (!rvm_is_input(bias, out) || rvm_ndim(bias) != 4) return 0;
    const npy_intp bias_dims[4] = {a->batch, a->heads, a->queries, a->keys};
    for (int i = 0; i < 4; i++) {
        npy_intp dim = rvm_dims(bias)[i];
        if (dim != 1 && dim != bias_dims[i]) return 0;
        a->bias[i] = dim == 1 ? 0 : rvm_strides(bias)[i];
    }
    a->bias_data = rvm_data(bias);
    return 1;
}

/* attention(query, key, value, bias or None, scale or None, causal mask or None, out) */
static int rvm_attention_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_attention a;
    rvm_real small[RVM_STACK_BYTES / sizeof(rvm_real)];
    (void)ufunc;
    if (count != 7 || !rvm_get_attention(args, &a)) return RVM_ASK_KERNEL;
    npy_intp left = RVM_DIRECT_WORK; /* keys that repeat in memory may be any number */
    const npy_intp factors[5] = {a.batch, a.heads, a.queries, a.keys, a.width};
    for (int i = 0; i < 5; i++) left /= factors[i];
    if (left == 0) return RVM_ASK_KERNEL;
    npy_intp scores = a.heads * a.queries * a.keys;
    if (a.batch * (a.width + a.depth) > RVM_DIRECT_WORK / scores) return RVM_ASK_KERNEL;
    char *memory = small->bytes;
    if (scores * a.item > RVM_STACK_BYTES) {
        memory = (char *)PyMem_RawMalloc((size_t)(scores * a.item));
        if (memory == NULL) return RVM_ASK_KERNEL;
    }
    const npy_intp *q_steps = rvm_strides(args[0]), *k_steps = rvm_strides(args[1]);
    const npy_intp *v_steps = rvm_strides(args[2]), *out_steps = rvm_strides(args[6]);
    rvm_start();
    for (npy_intp i = 0; i < a.batch; i++) {
        rvm_matrices q = {rvm_data(args[0]) + i * q_steps[0], q_steps[2], q_steps[1], q_steps[3]};
        rvm_matrices k = {rvm_data(args[1]) + i * k_steps[0], k_steps[2], k_steps[3], k_steps[1]};
        rvm_matrices v = {rvm_data(args[2]) + i * v_steps[0], v_steps[2], v_steps[1], v_steps[3]};
        rvm_matrices out = {rvm_data(args[6]) + i * out_steps[0], out_steps[2], out_steps[1],
                            out_steps[3]};
        rvm_matrices s = {memory, a.queries * a.keys * a.item, a.keys * a.item, a.item};
        rvm_multiply(a.type, a.heads, a.queries, a.width, a.keys, &q, &k, &s);
        rvm_weigh(&a, i, memory);
        rvm_multiply(a.type, a.heads, a.queries, a.keys, a.depth, &s, &v, &out);
    }
    int answer = rvm_answer();
    if (memory != small->bytes) PyMem_RawFree(memory);
    return answer;
}

/* ---- element by element --------------------------------------------------------------------------- */
/* An input of a ufunc: its steps along the axes of out.  False if that is for the kernel. */
static int rvm_operand_steps(PyObject *x, PyObject *out, npy_intp *steps) {
    if (!rvm_is_tensor(x) || !rvm_broadcast(x, out, steps)) return 0;
    if (rvm_no_overlap(x, out)) return 1;
    return rvm_data(x) == rvm_data(out) && rvm_item(x) == rvm_item(out) &&
           rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out) &&
           memcmp(steps, rvm_strides(out), (size_t)rvm_ndim(out) * sizeof *steps) == 0;
}

/* Operands along the axes of a result, those that lie alike in all taken for one: steps in bytes, the
 * result's last. */
typedef struct {
    int operands, ndim;
    npy_intp dims[RVM_MAX_DIMS], steps[4][RVM_MAX_DIMS];
    char *places[4];
} rvm_grid;

/* Set the steps of the result, which is contiguous; those of the inputs are there. */
static void rvm_set_grid(rvm_grid *g, PyObject *out) {
    int last = g->operands - 1, n = 0;
    g->places[last] = rvm_data(out);
    memcpy(g->steps[last], rvm_strides(out), (size_t)rvm_ndim(out) * sizeof(npy_intp));
    for (int i = 0; i < rvm_ndim(out); i++) {
        npy_intp dim = rvm_dims(out)[i];
        if (dim == 1) continue;
        int joins = n > 0;
        for (int k = 0; joins && k <= last; k++) joins = g->steps[k][n - 1] == dim * g->steps[k][i];
        g->dims[joins ? n - 1 : n] = joins ? g->dims[n - 1] * dim : dim;
        n += !joins;
        for (int k = 0; k <= last; k++) g->steps[k][n - 1] = g->steps[k][i];
    }
    if (n == 0) { /* one element */
        g->dims[n] = 1;
        for (int k = 0; k <= last; k++) g->steps[k][n] = rvm_item(out);
        n = 1;
    }
    g->ndim = n;
}

/* Whether each axis of the result is one of an operand, so that the result is no longer than they. */
static int rvm_is_covered(const rvm_grid *g, PyObject *out) {
    for (int i = 0; i < rvm_ndim(out); i++) {
        int found = rvm_dims(out)[i] == 1;
        for (int k = 0; !found && k < g->operands - 1; k++) found = g->steps[k][i] != 0;
        if (!found) return 0;
    }
    return 1;
}

static void rvm_run_grid(rvm_grid *g, PyUFuncGenericFunction loop, void *data) {
    npy_intp at[RVM_MAX_DIMS] = {0}, inner[4];
    int last = g->ndim - 1;
    for (int k = 0; k < g->operands; k++) inner[k] = g->steps[k][last];
    for (;;) {
        char *row[4];
        memcpy(row, g->places, sizeof row);
        loop(row, &g->dims[last], inner, data);
        rvm_note_status();
        int axis = last - 1;
        for (; axis >= 0; axis--) {
            for (int k = 0; k < g->operands; k++) g->places[k] += g->steps[k][axis];
            if (++at[axis] < g->dims[axis]) break;
            for (int k = 0; k < g->operands; k++) g->places[k] -= at[axis] * g->steps[k][axis];
            at[axis] = 0;
        }
        if (axis < 0) break;
    }
}

/* ufunc(a, b, out), broadcast, of a ufunc that gives an element the same bits wherever it lies, and sets
 * no exception */
static int rvm_binary_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    int64_t words[RVM_UFUNC_WORDS] = {(int64_t)ufunc};
    rvm_grid g = {.operands = 3};
    if (count != 3 || !rvm_is_out(args[2])) return RVM_ASK_KERNEL;
    PyObject *out = args[2];
    for (int k = 0; k < 2; k++) {
        if (!rvm_operand_steps(args[k], out, g.steps[k])) return RVM_ASK_KERNEL;
        g.places[k] = rvm_data(args[k]);
    }
    if (rvm_length(out) < 2 || !rvm_is_contiguous(out) || !rvm_is_covered(&g, out) ||
        (rvm_ndim(args[0]) != rvm_ndim(out) && rvm_ndim(args[1]) != rvm_ndim(out)) ||
        PyArray_DESCR((PyArrayObject *)args[0]) != PyArray_DESCR((PyArrayObject *)args[1]))
        return RVM_ASK_KERNEL;
    if (!rvm_resolve(words, PyArray_DESCR((PyArrayObject *)args[0]),
                     PyArray_DESCR((PyArrayObject *)out)))
        return RVM_ASK_KERNEL;
    rvm_set_grid(&g, out);
    rvm_start();
    rvm_run_grid(&g, (PyUFuncGenericFunction)words[RVM_UFUNC_LOOP], (void *)words[RVM_UFUNC_DATA]);
    return rvm_answer();
}

/* where(cond, a, b, out), broadcast; a and b may be numbers */
static int rvm_where_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_grid g = {.operands = 4};
    rvm_real numbers[3];
    int ndim = 0;
    (void)ufunc;
    if (count != 4 || !rvm_is_out(args[3]) || !rvm_is_tensor(args[0]) || rvm_type(args[0]) != NPY_BOOL)
        return RVM_ASK_KERNEL;
    PyObject *out = args[3];
    PyUFuncGenericFunction loop = rvm_find_where(rvm_item(out));
    if (loop == NULL || !rvm_is_contiguous(out)) return RVM_ASK_KERNEL;
    for (int k = 0; k < 3; k++) {
        if (k > 0 && !PyArray_Check(args[k])) {
            if (!rvm_put_number(args[k], rvm_type(out), numbers[k].bytes)) return RVM_ASK_KERNEL;
            g.places[k] = numbers[k].bytes;
            continue;
        }
        if (!rvm_operand_steps(args[k], out, g.steps[k]) || (k > 0 && rvm_type(args[k]) != rvm_type(out)))
            return RVM_ASK_KERNEL;
        g.places[k] = rvm_data(args[k]);
        if (rvm_ndim(args[k]) > ndim) ndim = rvm_ndim(args[k]);
    }
    if (ndim != rvm_ndim(out) || !rvm_is_covered(&g, out)) return RVM_ASK_KERNEL;
    if (rvm_length(out) == 0) return RVM_DONE;
    rvm_set_grid(&g, out);
    for (int k = 0; k < 3; k++) { /* the loop takes elements that follow each other, or one for all */
        npy_intp step = g.steps[k][g.ndim - 1];
        if (step != 0 && step != (k ? rvm_item(out) : 1) && g.dims[g.ndim - 1] != 1)
            return RVM_ASK_KERNEL;
    }
    rvm_run_grid(&g, loop, NULL);
    return RVM_DONE;
}

/* x and out of one data type, shape and layout, one behind the other in memory or in the same place */
static int rvm_is_pair(PyObject *x, PyObject *out) {
    return rvm_is_tensor(x) && rvm_is_out(out) && rvm_type(x) == rvm_type(out) &&
           rvm_is_contiguous(x) && rvm_is_contiguous(out) &&
           rvm_same_shape((PyArrayObject *)x, (PyArrayObject *)out) &&
           (rvm_data(x) == rvm_data(out) || rvm_no_overlap(x, out));
}

/* clip(x, min, max, out), also in place */
static int rvm_clip_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    rvm_real low, high;
    (void)ufunc;
    if (count != 4 || !rvm_is_pair(args[0], args[3])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[3];
    int type = rvm_type(x);
    npy_intp n = rvm_length(x), item = rvm_item(x);
    if (!rvm_put_number(args[1], type, low.bytes) || !rvm_put_number(args[2], type, high.bytes))
        return RVM_ASK_KERNEL;
    if (n == 0) return RVM_DONE;
    rvm_start();
    rvm_apply_2(RVM_MINIMUM, type, rvm_data(x), item, high.bytes, 0, rvm_data(out), item, n);
    rvm_apply_2(RVM_MAXIMUM, type, rvm_data(out), item, low.bytes, 0, rvm_data(out), item, n);
    return RVM_DONE; /* there is nothing to say about these */
}

/* relu(x, out): the maximum of x and 0, also in place */
static int rvm_relu_kernel(void *ufunc, PyObject *const *args, Py_ssize_t count) {
    const rvm_real zero = {.full = 0};
    (void)ufunc;
    if (count != 2 || !rvm_is_pair(args[0], args[1]) || !rvm_is_float(args[0])) return RVM_ASK_KERNEL;
    PyObject *x = args[0], *out = args[1];
    rvm_start();
    if (rvm_length(x) > 0)
        rvm_apply_2(RVM_MAXIMUM, rvm_type(x), rvm_data(x), rvm_item(x), zero.bytes, 0,
                    rvm_data(out), rvm_item(out), rvm_length(x));
    return RVM_DONE; /* there is nothing to say about a maximum */
}

/* ---- all of them ---------------------------------------------------------------------------------- */
typedef struct {
    const char *name; /* of the kernel */
    rvm_direct call;
} rvm_entry;

static const rvm_entry rvm_entries[] = {
    {"reshape", rvm_reshape_kernel},
    {"broadcast_to", rvm_broadcast_kernel},
    {"cast", rvm_cast_kernel},
    {"permute_dims", rvm_permute_dims_kernel},
    {"flip", rvm_flip_kernel},
    {"strided_slice", rvm_strided_slice_kernel},
    {"concat", rvm_concat_kernel},
    {"stack", rvm_stack_kernel},
    {"split", rvm_split_kernel},
    {"take", rvm_take_kernel},
    {"fill", rvm_fill_kernel},
    {"full", rvm_full_kernel},
    {"zeros", rvm_zeros_kernel},
    {"ones", rvm_ones_kernel},
    {"sum", rvm_sum_kernel},
    {"prod", rvm_prod_kernel},
    {"mean", rvm_mean_kernel},
    {"max", rvm_max_kernel},
    {"min", rvm_min_kernel},
    {"cumsum", rvm_cumsum_kernel},
    {"argmax", rvm_argmax_kernel},
    {"argmin", rvm_argmin_kernel},
    {"nn.softmax", rvm_softmax_kernel},
    {"nn.log_softmax", rvm_log_softmax_kernel},
    {"nn.rms_norm", rvm_rms_norm_kernel},
    {"nn.layer_norm", rvm_layer_norm_kernel},
    {"nn.attention", rvm_attention_kernel},
    {"matmul", rvm_matmul_kernel},
    {"matmul_nt", rvm_matmul_nt_kernel},
    {"matmul_tn", rvm_matmul_tn_kernel},
    {"linear", rvm_linear_kernel},
    {"where", rvm_where_kernel},
    {"clip", rvm_clip_kernel},
    {"relu", rvm_relu_kernel},
    {NULL, NULL},
};

/* NULL if there is none. */
static rvm_direct rvm_find_direct(const char *name) {
    for (const rvm_entry *entry = rvm_entries; entry->name != NULL; entry++)
        if (strcmp(entry->name, name) == 0) return entry->call;
    return NULL;
}

#endif
