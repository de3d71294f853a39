/* Loops of fused kernels that are no ufunc's: conversions and choices, in the form of a ufunc's loop.
 * Operands are contiguous, or one element for all (step 0) where a comment says so. */
#ifndef RELAXVM_FUSED_IMPL_H
#define RELAXVM_FUSED_IMPL_H

#include "_ufunc_impl.h"

/* ---- conversions ---------------------------------------------------------------------------- */
#define RVM_CAST(from, to)                                                                      \
    static void rvm_cast_##from##_##to(char **args, npy_intp const *count, npy_intp const *steps, \
                                       void *data) {                                            \
        const from *in = (const from *)args[0];                                                 \
        to *out = (to *)args[1];                                                                \
        (void)steps;                                                                            \
        (void)data;                                                                             \
        for (npy_intp i = 0; i < *count; i++) out[i] = (to)in[i];                               \
    }
#define RVM_TRUTH(from)                                                                         \
    static void rvm_truth_##from(char **args, npy_intp const *count, npy_intp const *steps,     \
                                 void *data) {                                                  \
        const from *in = (const from *)args[0];                                                 \
        npy_bool *out = (npy_bool *)args[1];                                                    \
        (void)steps;                                                                            \
        (void)data;                                                                             \
        for (npy_intp i = 0; i < *count; i++) out[i] = in[i] != 0;                              \
    }
/* Memory that is seen as bools may hold other bytes than 0 and 1. */
#define RVM_CAST_BOOL(from, to)                                                                 \
    static void rvm_cast_##from##_##to(char **args, npy_intp const *count, npy_intp const *steps, \
                                       void *data) {                                            \
        const from *in = (const from *)args[0];                                                 \
        to *out = (to *)args[1];                                                                \
        (void)steps;                                                                            \
        (void)data;                                                                             \
        for (npy_intp i = 0; i < *count; i++) out[i] = (to)(in[i] != 0);                        \
    }
#define RVM_INT_TYPES(X, from) X(from, int8_t) X(from, uint8_t) X(from, int16_t) X(from, uint16_t) \
    X(from, int32_t) X(from, uint32_t) X(from, int64_t) X(from, uint64_t)
#define RVM_REAL_TYPES(X, from) X(from, float) X(from, double)
#define RVM_CASTS_OF_INT(from) RVM_INT_TYPES(RVM_CAST, from) RVM_REAL_TYPES(RVM_CAST, from) \
    RVM_TRUTH(from)

RVM_CASTS_OF_INT(int8_t)
RVM_CASTS_OF_INT(uint8_t)
RVM_CASTS_OF_INT(int16_t)
RVM_CASTS_OF_INT(uint16_t)
RVM_CASTS_OF_INT(int32_t)
RVM_CASTS_OF_INT(uint32_t)
RVM_CASTS_OF_INT(int64_t)
RVM_CASTS_OF_INT(uint64_t)
RVM_REAL_TYPES(RVM_CAST, float)
RVM_REAL_TYPES(RVM_CAST, double)
RVM_TRUTH(float)
RVM_TRUTH(double)
RVM_INT_TYPES(RVM_CAST_BOOL, npy_bool)
RVM_REAL_TYPES(RVM_CAST_BOOL, npy_bool)

/* The type of so many bytes that a type number stands for: 'i' or 'u' and size, 'f' and size; 0 of a
 * bool and of others. */
static int rvm_kind_of(int type) {
    switch (type) {
        case NPY_UBYTE: return 'u' << 8 | 1;
        case NPY_BYTE: return 'i' << 8 | 1;
        case NPY_SHORT: return 'i' << 8 | 2;
        case NPY_USHORT: return 'u' << 8 | 2;
        case NPY_INT: return 'i' << 8 | 4;
        case NPY_UINT: return 'u' << 8 | 4;
        case NPY_LONG: return 'i' << 8 | (int)sizeof(npy_long);
        case NPY_ULONG: return 'u' << 8 | (int)sizeof(npy_ulong);
        case NPY_LONGLONG: return 'i' << 8 | 8;
        case NPY_ULONGLONG: return 'u' << 8 | 8;
        case NPY_FLOAT: return 'f' << 8 | 4;
        case NPY_DOUBLE: return 'f' << 8 | 8;
        default: return 0;
    }
}

#define RVM_PICK(from, to) case RVM_KIND_##to: return rvm_cast_##from##_##to;
enum {
    RVM_KIND_int8_t = 'i' << 8 | 1, RVM_KIND_int16_t = 'i' << 8 | 2, RVM_KIND_int32_t = 'i' << 8 | 4,
    RVM_KIND_int64_t = 'i' << 8 | 8, RVM_KIND_uint8_t = 'u' << 8 | 1, RVM_KIND_uint16_t = 'u' << 8 | 2,
    RVM_KIND_uint32_t = 'u' << 8 | 4, RVM_KIND_uint64_t = 'u' << 8 | 8, RVM_KIND_float = 'f' << 8 | 4,
    RVM_KIND_double = 'f' << 8 | 8
};
#define RVM_PICK_FROM_INT(from)                                     \
    case RVM_KIND_##from:                                           \
        if (to == NPY_BOOL) return rvm_truth_##from;                \
        switch (rvm_kind_of(to)) { RVM_INT_TYPES(RVM_PICK, from) RVM_REAL_TYPES(RVM_PICK, from) } \
        return NULL;
#define RVM_PICK_FROM_REAL(from)                                    \
    case RVM_KIND_##from:                                           \
        if (to == NPY_BOOL) return rvm_truth_##from;                \
        switch (rvm_kind_of(to)) { RVM_REAL_TYPES(RVM_PICK, from) } \
        return NULL;

/* The conversion of contiguous elements between data types, NULL where it is left to numpy: what a
 * float beyond an integer type becomes is not for us to say. */
static PyUFuncGenericFunction rvm_find_cast(int from, int to) {
    if (from == NPY_BOOL) {
        if (to == NPY_BOOL) return rvm_cast_uint8_t_uint8_t; /* the bytes as they are, as in numpy */
        switch (rvm_kind_of(to)) {
            RVM_INT_TYPES(RVM_PICK, npy_bool)
            RVM_REAL_TYPES(RVM_PICK, npy_bool)
        }
        return NULL;
    }
    switch (rvm_kind_of(from)) {
        RVM_PICK_FROM_INT(int8_t)
        RVM_PICK_FROM_INT(uint8_t)
        RVM_PICK_FROM_INT(int16_t)
        RVM_PICK_FROM_INT(uint16_t)
        RVM_PICK_FROM_INT(int32_t)
        RVM_PICK_FROM_INT(uint32_t)
        RVM_PICK_FROM_INT(int64_t)
        RVM_PICK_FROM_INT(uint64_t)
        RVM_PICK_FROM_REAL(float)
        RVM_PICK_FROM_REAL(double)
        default: return NULL;
    }
}

/* ---- choices -------------------------------------------------------------------------------- */
/* out = cond ? a : b; any of the three may be one element for all.  By masks: conditions that nobody
 * can foresee would stall a processor at every other element. */
#define RVM_CHOOSE(type, c, x, y)                                                               \
    for (npy_intp k = 0; k < *count; k++) {                                                     \
        type mask = (type)(0 - (type)(cond[c] != 0));                                           \
        out[k] = (type)((x & mask) | (y & (type)~mask));                                        \
    }
#define RVM_WHERE(type)                                                                         \
    static void rvm_where_##type(char **args, npy_intp const *count, npy_intp const *steps,     \
                                 void *data) {                                                  \
        const npy_bool *cond = (const npy_bool *)args[0];                                       \
        const type *a = (const type *)args[1], *b = (const type *)args[2], a0 = *a, b0 = *b;    \
        type *out = (type *)args[3];                                                            \
        (void)data;                                                                             \
        if (steps[0] == 0) {                                                                    \
            npy_intp i = steps[1] != 0, j = steps[2] != 0;                                      \
            RVM_CHOOSE(type, 0, a[i * k], b[j * k])                                             \
        } else if (steps[1] == 0 && steps[2] == 0) {                                            \
            RVM_CHOOSE(type, k, a0, b0)                                                         \
        } else if (steps[1] == 0) {                                                             \
            RVM_CHOOSE(type, k, a0, b[k])                                                       \
        } else if (steps[2] == 0) {                                                             \
            RVM_CHOOSE(type, k, a[k], b0)                                                       \
        } else {                                                                                \
            RVM_CHOOSE(type, k, a[k], b[k])                                                     \
        }                                                                                       \
    }
RVM_WHERE(uint8_t)
RVM_WHERE(uint16_t)
RVM_WHERE(uint32_t)
RVM_WHERE(uint64_t)

static PyUFuncGenericFunction rvm_find_where(npy_intp size) {
    switch (size) {
        case 1: return rvm_where_uint8_t;
        case 2: return rvm_where_uint16_t;
        case 4: return rvm_where_uint32_t;
        case 8: return rvm_where_uint64_t;
        default: return NULL;
    }
}

/* ---- inputs that repeat ------------------------------------------------------------------------ */
/* Write `count` elements from place `start` on of a sequence in which each of `size` elements stands
 * `repeat` times in a row, over and over. */
static void rvm_spread(char *to, const char *from, npy_intp item, npy_intp start, npy_intp count,
                       npy_intp size, npy_intp repeat) {
    while (count > 0) {
        npy_intp index = start / repeat % size;
        npy_intp run = repeat == 1 ? size - index : repeat - start % repeat;
        if (run > count) run = count;
        const char *source = from + index * item;
        if (repeat == 1) {
            memcpy(to, source, (size_t)(run * item));
        } else {
            for (npy_intp i = 0; i < run; i++) memcpy(to + i * item, source, (size_t)item);
        }
        to += run * item;
        start += run;
        count -= run;
    }
}

#endif
