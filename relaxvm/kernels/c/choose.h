/* out = cond ? a : b, in the form of a ufunc's loop.  Each of the three operands is one element for all
 * (step 0), or its elements follow each other. */
#ifndef RELAXVM_KERNELS_CHOOSE_H
#define RELAXVM_KERNELS_CHOOSE_H

#include "kernel_call.h"

/* With masks: branches on conditions that follow no pattern would stall the processor. */
#define RVM_CHOOSE(type, c, x, y)                                                               \
    for (intptr_t k = 0; k < *count; k++) {                                                     \
        type mask = (type)(0 - (type)(cond[c] != 0));                                           \
        out[k] = (type)((x & mask) | (y & (type)~mask));                                        \
    }
#define RVM_WHERE(type)                                                                         \
    static void rvm_where_##type(char **args, const intptr_t *count, const intptr_t *steps,     \
                                 void *data) {                                                  \
        const uint8_t *cond = (const uint8_t *)args[0];                                         \
        const type *a = (const type *)args[1], *b = (const type *)args[2], a0 = *a, b0 = *b;    \
        type *out = (type *)args[3];                                                            \
        (void)data;                                                                             \
        if (steps[0] == 0) {                                                                    \
            intptr_t i = steps[1] != 0, j = steps[2] != 0;                                      \
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

/* The loop for elements of so many bytes; NULL if there is none. */
static RvmLoopCall rvm_where_loop(int64_t item) {
    switch (item) {
        case 1: return rvm_where_uint8_t;
        case 2: return rvm_where_uint16_t;
        case 4: return rvm_where_uint32_t;
        case 8: return rvm_where_uint64_t;
        default: return NULL;
    }
}

#endif
