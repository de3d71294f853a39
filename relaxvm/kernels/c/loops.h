/* Calls of numpy's inner loops. */
#ifndef RELAXVM_KERNELS_LOOPS_H
#define RELAXVM_KERNELS_LOOPS_H

#include "buffers.h"
#include "float_status.h"

static inline int rvm_has_loop(const RvmKernelCall *call, int which, int dtype) {
    return dtype < RVM_NUM_DTYPES && call->host->loops[which][dtype].call != NULL;
}

/* Some loops clear the floating-point status when they end, so it is read after each of them. */
static inline void rvm_note_status(const RvmKernelCall *call) {
    int status = rvm_float_status();
    if (status) *call->float_status |= status;
}

static inline void rvm_apply_1(const RvmKernelCall *call, int which, int dtype, const char *x,
                               char *out, int64_t item, int64_t count) {
    const RvmLoop *loop = &call->host->loops[which][dtype];
    char *args[2] = {(char *)x, out};
    intptr_t length = (intptr_t)count, steps[2] = {(intptr_t)item, (intptr_t)item};
    loop->call(args, &length, steps, loop->data);
    rvm_note_status(call);
}

static inline void rvm_apply_2(const RvmKernelCall *call, int which, int dtype, const char *a,
                               int64_t a_step, const char *b, int64_t b_step, char *out,
                               int64_t out_step, int64_t count) {
    const RvmLoop *loop = &call->host->loops[which][dtype];
    char *args[3] = {(char *)a, (char *)b, out};
    intptr_t length = (intptr_t)count;
    intptr_t steps[3] = {(intptr_t)a_step, (intptr_t)b_step, (intptr_t)out_step};
    loop->call(args, &length, steps, loop->data);
    rvm_note_status(call);
}

/* total = f(total, each element in turn); sums are added up in pairs, as numpy does. */
static inline void rvm_reduce(const RvmKernelCall *call, int which, int dtype, char *total,
                              const char *x, int64_t item, int64_t count) {
    int64_t most = call->host->reduced_at_once;
    for (; count > most; count -= most, x += most * item)
        rvm_apply_2(call, which, dtype, total, 0, x, item, total, 0, most);
    rvm_apply_2(call, which, dtype, total, 0, x, item, total, 0, count);
}

/* Matrices of a tensor: steps in bytes. */
typedef struct {
    char *data;
    int64_t batch, row, column;
} RvmMatrices;

/* out[i] = a[i] @ b[i] for `batch` of them; a[i] has n rows and k columns, b[i] has m columns. */
static inline void rvm_multiply(const RvmKernelCall *call, int dtype, int64_t batch, int64_t n,
                                int64_t k, int64_t m, const RvmMatrices *a, const RvmMatrices *b,
                                const RvmMatrices *out) {
    const RvmLoop *loop = &call->host->loops[RVM_MATMUL][dtype];
    char *args[3] = {a->data, b->data, out->data};
    intptr_t dims[4] = {(intptr_t)batch, (intptr_t)n, (intptr_t)k, (intptr_t)m};
    intptr_t steps[9] = {
        (intptr_t)a->batch,  (intptr_t)b->batch, (intptr_t)out->batch,
        (intptr_t)a->row,    (intptr_t)a->column, (intptr_t)b->row,
        (intptr_t)b->column, (intptr_t)out->row, (intptr_t)out->column,
    };
    loop->call(args, dims, steps, loop->data);
    rvm_note_status(call);
}

#endif
