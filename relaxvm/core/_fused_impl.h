/* Loops of fused kernels that are not those of ufuncs: conversions and choices, with the signature of a ufunc's
 * loop. */
#ifndef RELAXVM_FUSED_IMPL_H
#define RELAXVM_FUSED_IMPL_H

#include "_ufunc_impl.h"
#include "kernels/_numpy_dtypes.h"
#include "kernels/c/cast.h"
#include "kernels/c/choose.h"

/* The conversion between two data types, by numpy's numbers of them; NULL where it is left to numpy. */
static PyUFuncGenericFunction rvm_find_cast(int from, int to) {
    return (PyUFuncGenericFunction)rvm_cast_loop(rvm_builtin_dtype(from), rvm_builtin_dtype(to));
}

/* The choice between elements of so many bytes, NULL if there is none. */
static PyUFuncGenericFunction rvm_find_where(npy_intp size) {
    return (PyUFuncGenericFunction)rvm_where_loop(size);
}

/* ---- inputs that repeat ------------------------------------------------------------------------ */
/* Write one element `count` times.  The sizes of most data types have loops that compilers vectorize. */
static void rvm_fill(char *to, const char *source, npy_intp item, npy_intp count) {
#define RVM_FILL(type)                                                        \
    case sizeof(type): {                                                      \
        type value;                                                           \
        memcpy(&value, source, sizeof(type));                                 \
        for (npy_intp i = 0; i < count; i++) ((type *)(void *)to)[i] = value; \
        return;                                                               \
    }
    switch (item) {
        case 1:
            memset(to, *source, (size_t)count);
            return;
            RVM_FILL(npy_uint16)
            RVM_FILL(npy_uint32)
            RVM_FILL(npy_uint64)
    }
#undef RVM_FILL
    for (npy_intp i = 0; i < count; i++) memcpy(to + i * item, source, (size_t)item);
}

/* Write a part of a sequence: `count` elements from index `start` on.  The sequence has each of the `size`
 * elements `repeat` times in a row, and then begins again.  `to` is aligned for its elements. */
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
            rvm_fill(to, source, item, run);
        }
        to += run * item;
        start += run;
        count -= run;
    }
}

#endif
