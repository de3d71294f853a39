/* What several kernels ask about buffers. */
#ifndef RELAXVM_KERNELS_BUFFERS_H
#define RELAXVM_KERNELS_BUFFERS_H

#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel_call.h"

static inline int64_t rvm_product(const int64_t *dims, int from, int to) {
    int64_t product = 1;
    for (int i = from; i < to; i++) product *= dims[i];
    return product;
}

static inline int64_t rvm_length(const RvmBuffer *x) { return rvm_product(x->dims, 0, x->ndim); }
static inline int rvm_is_contiguous(const RvmBuffer *x) { return x->flags & RVM_CONTIGUOUS; }
static inline int rvm_is_float(const RvmBuffer *x) { return rvm_is_in(RVM_FLOATS, x->dtype); }

static inline int rvm_same_dims(const int64_t *a, const int64_t *b, int ndim) {
    for (int i = 0; i < ndim; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}

static inline int rvm_same_shape(const RvmBuffer *a, const RvmBuffer *b) {
    return a->ndim == b->ndim && rvm_same_dims(a->dims, b->dims, a->ndim);
}

/* The memory from the first to the last element: [low, high). */
static inline void rvm_extent(const RvmBuffer *x, const char **low, const char **high) {
    int64_t before = 0, behind = x->item;
    *low = *high = x->data;
    if (rvm_is_contiguous(x)) {
        *high += rvm_length(x) * x->item;
        return;
    }
    for (int i = 0; i < x->ndim; i++) {
        if (x->dims[i] == 0) return;
        int64_t span = (x->dims[i] - 1) * x->strides[i];
        *(span < 0 ? &before : &behind) += span;
    }
    *low += before;
    *high += behind;
}

/* Whether no element of one is in the memory of the other. */
static inline int rvm_no_overlap(const RvmBuffer *x, const RvmBuffer *out) {
    const char *x_low, *x_high, *out_low, *out_high;
    rvm_extent(x, &x_low, &x_high);
    rvm_extent(out, &out_low, &out_high);
    return x_high <= out_low || out_high <= x_low;
}

/* An input of the data type of `out` that writing to `out` does not change. */
static inline int rvm_is_input(const RvmBuffer *x, const RvmBuffer *out) {
    return x->dtype == out->dtype && rvm_no_overlap(x, out);
}

/* Whether x broadcasts to the shape of out; its strides along the axes of out. */
static inline int rvm_broadcast(const RvmBuffer *x, const RvmBuffer *out, int64_t *strides) {
    int lead = out->ndim - x->ndim;
    if (lead < 0) return 0;
    for (int i = 0; i < lead; i++) strides[i] = 0;
    for (int i = 0; i < x->ndim; i++) {
        RVM_FEW_TURNS;
        int64_t dim = x->dims[i];
        if (dim != out->dims[lead + i] && dim != 1) return 0;
        strides[lead + i] = dim == 1 ? 0 : x->strides[i];
    }
    return 1;
}

/* An axis counted from the front, given one that may count from the end; false if there is none. */
static inline int rvm_axis(int64_t given, int ndim, int *axis) {
    if (given < -ndim || given >= ndim) return 0;
    *axis = (int)(given < 0 ? given + ndim : given);
    return 1;
}

/* Axes counted from the front, all different: how many, or -1. */
static inline int rvm_axes(const RvmInts *given, int ndim, int *axes) {
    unsigned seen = 0;
    if (given->count < 0 || given->count > ndim) return -1;
    for (int i = 0; i < given->count; i++) {
        if (!rvm_axis(given->values[i], ndim, &axes[i]) || (seen >> axes[i] & 1)) return -1;
        seen |= 1u << axes[i];
    }
    return (int)given->count;
}

/* Rows along an axis that is the last one, except for axes of length 1 after it; or all of x for no
 * axis.  Sets the length of a row. */
static inline int rvm_get_row(const RvmBuffer *x, int64_t given, int64_t *length) {
    int axis;
    if (!rvm_is_contiguous(x)) return 0;
    if (given == RVM_NO_INT) {
        *length = rvm_length(x);
        return 1;
    }
    if (!rvm_axis(given, x->ndim, &axis)) return 0;
    *length = x->dims[axis];
    return rvm_product(x->dims, axis + 1, x->ndim) == 1;
}

/* ---- single numbers ------------------------------------------------------------------------------ */
/* A number of any data type of at most 8 bytes. */
typedef union {
    float single;
    double full;
    char bytes[8];
} RvmNumber;

static inline void rvm_set_real(RvmNumber *number, int dtype, double value) {
    if (dtype == RVM_DTYPE_F32) number->single = (float)value;
    else number->full = value;
}

/* A real among the arguments as a float32 or float64; false where numpy might report that it overflows or
 * loses bits. */
static inline int rvm_narrow(const RvmReal *real, int dtype, RvmNumber *number) {
    if (dtype == RVM_DTYPE_F32 && real->value != 0.0 && !isnormal((float)real->value)) return 0;
    rvm_set_real(number, dtype, real->value);
    return 1;
}

#define RVM_SET_BIT(type)                          \
    do {                                           \
        type value = (type)bit;                    \
        memcpy(number->bytes, &value, sizeof value); \
        return 1;                                  \
    } while (0)

/* 0 or 1 as a number of a data type; false for types that kernels do not make numbers of. */
static inline int rvm_set_bit(RvmNumber *number, int dtype, int bit) {
    switch (dtype) {
        case RVM_DTYPE_BOOL:
        case RVM_DTYPE_I8:
        case RVM_DTYPE_U8: RVM_SET_BIT(int8_t);
        case RVM_DTYPE_I16:
        case RVM_DTYPE_U16: RVM_SET_BIT(int16_t);
        case RVM_DTYPE_I32:
        case RVM_DTYPE_U32: RVM_SET_BIT(int32_t);
        case RVM_DTYPE_I64:
        case RVM_DTYPE_U64: RVM_SET_BIT(int64_t);
        case RVM_DTYPE_F32: RVM_SET_BIT(float);
        case RVM_DTYPE_F64: RVM_SET_BIT(double);
        default: return 0;
    }
}

#endif
