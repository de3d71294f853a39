/* tvm.contrib.sort.* in C: what kernels compiled by TVM call to sort.  Cases that these functions do not
 * take go to their Python counterparts (`packed.py`).
 *
 * Ties keep their order, and NaN is larger than all numbers.
 */
#ifndef RELAXVM_SORT_IMPL_H
#define RELAXVM_SORT_IMPL_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_native.h"

/* Returned by a function that leaves a call to Python. */
#define RVM_NOT_MINE 1

#define RVM_LESS(a, b) ((a) < (b))
#define RVM_LESS_FLOAT(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
/* Runs of so many elements are sorted by insertion. */
#define RVM_SORT_RUN 16
/* Elements between two looks at whether the run is to end, a power of 2; sorting so many takes some
 * milliseconds. */
#define RVM_SORT_PIECE (1 << 20)

/* Whether the call is to end, with an exception: for a signal, a cancellation or the time. */
static int rvm_sort_ends(void);

/* Set order[0..n) to the positions of the keys in sorted order; RVM_FAILED if the call is to end.
 * `room` is scratch memory of the same length. */
#define RVM_DEFINE_ORDER(T, name, LESS)                                                          \
    static int name(const void *data, int64_t n, int ascending, int64_t *order, int64_t *room) { \
        const T *keys = (const T *)data;                                                         \
        int64_t *from = order, *to = room;                                                       \
        for (int64_t start = 0; start < n; start += RVM_SORT_RUN) {                              \
            if (start % RVM_SORT_PIECE == 0 && start > 0 && rvm_sort_ends()) return RVM_FAILED;  \
            int64_t end = start + RVM_SORT_RUN < n ? start + RVM_SORT_RUN : n;                   \
            for (int64_t i = start; i < end; i++) {                                              \
                T key = keys[i];                                                                 \
                int64_t k = i;                                                                   \
                for (; k > start; k--) {                                                         \
                    T before = keys[order[k - 1]];                                               \
                    if (!(ascending ? LESS(key, before) : LESS(before, key))) break;             \
                    order[k] = order[k - 1];                                                     \
                }                                                                                \
                order[k] = i;                                                                    \
            }                                                                                    \
        }                                                                                        \
        for (int64_t width = RVM_SORT_RUN; width < n; width *= 2) {                              \
            for (int64_t start = 0; start < n; start += 2 * width) {                             \
                int64_t left = start, middle = start + width < n ? start + width : n;            \
                int64_t right = middle, end = middle + width < n ? middle + width : n;           \
                for (int64_t i = start; i < end; i++) {                                          \
                    if (i % RVM_SORT_PIECE == 0 && i > 0 && rvm_sort_ends()) return RVM_FAILED;  \
                    int takes_right = left == middle;                                            \
                    if (left < middle && right < end) {                                          \
                        T a = keys[from[left]], b = keys[from[right]];                           \
                        takes_right = ascending ? LESS(b, a) : LESS(a, b);                       \
                    }                                                                            \
                    to[i] = takes_right ? from[right++] : from[left++];                          \
                }                                                                                \
            }                                                                                    \
            int64_t *other = from;                                                               \
            from = to;                                                                           \
            to = other;                                                                          \
        }                                                                                        \
        if (from != order && n > 0) memcpy(order, from, (size_t)n * sizeof *order);              \
        return 0;                                                                                \
    }

RVM_DEFINE_ORDER(float, rvm_order_f32, RVM_LESS_FLOAT)
RVM_DEFINE_ORDER(double, rvm_order_f64, RVM_LESS_FLOAT)
RVM_DEFINE_ORDER(int8_t, rvm_order_i8, RVM_LESS)
RVM_DEFINE_ORDER(int16_t, rvm_order_i16, RVM_LESS)
RVM_DEFINE_ORDER(int32_t, rvm_order_i32, RVM_LESS)
RVM_DEFINE_ORDER(int64_t, rvm_order_i64, RVM_LESS)
RVM_DEFINE_ORDER(uint8_t, rvm_order_u8, RVM_LESS)

typedef int (*rvm_order)(const void *, int64_t, int, int64_t *, int64_t *);

static rvm_order rvm_order_of(RvmDtype dtype) {
    if (dtype.lanes != 1) return NULL;
    switch (dtype.code << 8 | dtype.bits) {
        case RVM_FLOAT << 8 | 32: return rvm_order_f32;
        case RVM_FLOAT << 8 | 64: return rvm_order_f64;
        case RVM_SIGNED << 8 | 8: return rvm_order_i8;
        case RVM_SIGNED << 8 | 16: return rvm_order_i16;
        case RVM_SIGNED << 8 | 32: return rvm_order_i32;
        case RVM_SIGNED << 8 | 64: return rvm_order_i64;
        case RVM_UNSIGNED << 8 | 8: return rvm_order_u8;
        default: return NULL;
    }
}

/* A tensor whose elements follow each other, or NULL. */
static const RvmTensor *rvm_dense(const RvmAny *arg) {
    const RvmTensor *tensor = NULL;
    if (arg->type == RVM_TENSOR) tensor = arg->as_tensor;
    if (arg->type == RVM_TENSOR_OBJECT) tensor = &((const RvmTensorObject *)arg->as_object)->tensor;
    if (tensor == NULL || tensor->ndim < 1 || tensor->device.type != RVM_CPU) return NULL;
    if (tensor->strides == NULL) return tensor;
    int64_t step = 1;
    for (int32_t i = tensor->ndim - 1; i >= 0; i--) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != step) return NULL;
        step *= tensor->shape[i];
    }
    return tensor;
}

static char *rvm_elements(const RvmTensor *x) { return (char *)x->data + x->byte_offset; }

static int rvm_same_dtype(RvmDtype a, RvmDtype b) {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* Whether a tensor has a data type for positions. */
static int rvm_takes_positions(const RvmTensor *x) {
    RvmDtype t = x->dtype;
    if (t.lanes != 1) return 0;
    return (t.code == RVM_SIGNED && (t.bits == 32 || t.bits == 64)) ||
           (t.code == RVM_FLOAT && t.bits == 32);
}

static void rvm_put_position(const RvmTensor *x, int64_t at, int64_t position) {
    char *data = rvm_elements(x);
    if (x->dtype.code == RVM_FLOAT) ((float *)data)[at] = (float)position;
    else if (x->dtype.bits == 32) ((int32_t *)data)[at] = (int32_t)position;
    else ((int64_t *)data)[at] = position;
}

/* Write the first k elements along an axis of x in sorted order: their values, positions, or both.  The
 * outputs have the shape of x, with k in place of the axis' length. */
static int rvm_sort_lines(const RvmTensor *x, const RvmTensor *values, const RvmTensor *positions,
                          int64_t k, int64_t axis, int ascending) {
    rvm_order order_keys = rvm_order_of(x->dtype);
    if (axis < 0) axis += x->ndim;
    if (order_keys == NULL || axis < 0 || axis >= x->ndim) return RVM_NOT_MINE;
    int64_t n = x->shape[axis], outer = 1, inner = 1;
    if (k < 1 || k > n) k = n;
    for (int32_t i = 0; i < x->ndim; i++) {
        if (i != axis) *(i < axis ? &outer : &inner) *= x->shape[i];
        int64_t length = i == axis ? k : x->shape[i];
        if (values != NULL && (values->ndim != x->ndim || values->shape[i] != length))
            return RVM_NOT_MINE;
        if (positions != NULL && (positions->ndim != x->ndim || positions->shape[i] != length))
            return RVM_NOT_MINE;
    }
    if (values != NULL && !rvm_same_dtype(values->dtype, x->dtype)) return RVM_NOT_MINE;
    if (positions != NULL && !rvm_takes_positions(positions)) return RVM_NOT_MINE;
    if (outer == 0 || inner == 0 || n == 0) return 0;
    const size_t size = x->dtype.bits / 8;
    /* Each line is copied first: the input may be in the memory of an output. */
    char *memory = NULL;
    if ((uint64_t)n < (UINT64_C(1) << 56)) memory = (char *)malloc((size_t)n * (16 + size));
    if (memory == NULL) return RVM_NOT_MINE;
    int64_t *order = (int64_t *)memory, *room = order + n;
    char *keys = memory + 16 * (size_t)n;
    int code = 0;
    int64_t sorted = 0; /* elements since the last look */
    for (int64_t line = 0; line < outer * inner; line++) {
        int64_t block = line / inner, column = line % inner;
        const char *from = rvm_elements(x) + (size_t)(block * n * inner + column) * size;
        for (int64_t i = 0; i < n; i++)
            memcpy(keys + (size_t)i * size, from + (size_t)(i * inner) * size, size);
        code = order_keys(keys, n, ascending, order, room);
        sorted += n;
        if (code == 0 && sorted >= RVM_SORT_PIECE) {
            sorted = 0;
            if (rvm_sort_ends()) code = RVM_FAILED;
        }
        if (code != 0) break;
        int64_t to = block * k * inner + column;
        for (int64_t i = 0; i < k; i++, to += inner) {
            if (values != NULL)
                memcpy(rvm_elements(values) + (size_t)to * size, keys + (size_t)order[i] * size, size);
            if (positions != NULL) rvm_put_position(positions, to, order[i]);
        }
    }
    free(memory);
    return code;
}

static int rvm_is_number(const RvmAny *arg) { return arg->type == RVM_INT || arg->type == RVM_BOOL; }

/* sort(x, out, axis, ascending) and argsort(x, out, axis, ascending) */
static int rvm_sort_or_argsort(const RvmAny *args, int32_t count, int sorts) {
    if (count != 4 || !rvm_is_number(&args[2]) || !rvm_is_number(&args[3])) return RVM_NOT_MINE;
    const RvmTensor *x = rvm_dense(&args[0]), *out = rvm_dense(&args[1]);
    if (x == NULL || out == NULL) return RVM_NOT_MINE;
    return rvm_sort_lines(x, sorts ? out : NULL, sorts ? NULL : out, 0, args[2].as_int,
                          args[3].as_int != 0);
}

static int rvm_packed_sort(void *self, const RvmAny *args, int32_t count, RvmAny *ret) {
    (void)self, (void)ret;
    return rvm_sort_or_argsort(args, count, 1);
}

static int rvm_packed_argsort(void *self, const RvmAny *args, int32_t count, RvmAny *ret) {
    (void)self, (void)ret;
    return rvm_sort_or_argsort(args, count, 0);
}

/* topk(x, [values,] [positions,] k, axis, "both" or "values" or "indices", ascending) */
static int rvm_packed_topk(void *self, const RvmAny *args, int32_t count, RvmAny *ret) {
    (void)self, (void)ret;
    if (count != 6 && count != 7) return RVM_NOT_MINE;
    const RvmAny *rest = args + count - 4;
    if (!rvm_is_number(&rest[0]) || !rvm_is_number(&rest[1]) || rest[2].type != RVM_TEXT ||
        !rvm_is_number(&rest[3]))
        return RVM_NOT_MINE;
    const char *results = rest[2].as_text;
    const RvmTensor *x = rvm_dense(&args[0]), *first = rvm_dense(&args[1]);
    const RvmTensor *second = count == 7 ? rvm_dense(&args[2]) : NULL;
    const RvmTensor *values = NULL, *positions = NULL;
    if (x == NULL || first == NULL) return RVM_NOT_MINE;
    if (strcmp(results, "both") == 0 && second != NULL) {
        values = first;
        positions = second;
    } else if (strcmp(results, "values") == 0 && count == 6) {
        values = first;
    } else if (strcmp(results, "indices") == 0 && count == 6) {
        positions = first;
    } else {
        return RVM_NOT_MINE;
    }
    return rvm_sort_lines(x, values, positions, rest[0].as_int, rest[1].as_int, rest[3].as_int != 0);
}

static RvmFunction rvm_packed_function(const char *name) {
    if (strcmp(name, "tvm.contrib.sort.sort") == 0) return rvm_packed_sort;
    if (strcmp(name, "tvm.contrib.sort.argsort") == 0) return rvm_packed_argsort;
    if (strcmp(name, "tvm.contrib.sort.topk") == 0) return rvm_packed_topk;
    return NULL;
}

#endif
