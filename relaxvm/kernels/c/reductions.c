/* Sums and the like along axes, running sums, and positions of the greatest and least. */
#include "loops.h"

typedef struct {
    RvmInts axes; /* RVM_NO_INTS: all of them */
} ReduceParams;

#define RVM_LONG_SUM 1024 /* as in relaxvm/pieces/reduce.py */

/* A total becomes a mean as in numpy.mean, whose counts are int64: a float32 divided by one is computed
 * in float64. */
static inline void to_mean(char *total, int dtype, int64_t count) {
    if (dtype == RVM_DTYPE_F32) *(float *)total = (float)((double)*(float *)total / (double)count);
    else *(double *)total /= (double)count;
}

/* Whether out has the dims of x without those in [first, last), or with 1 in their place. */
static int is_reduced(const RvmBuffer *x, int first, int last, const RvmBuffer *out) {
    int keeps = out->ndim == x->ndim;
    if (!keeps && out->ndim != x->ndim - (last - first)) return 0;
    for (int i = 0, k = 0; i < x->ndim; i++) {
        int is_gone = i >= first && i < last;
        if (is_gone && !keeps) continue;
        if (out->dims[k++] != (is_gone ? 1 : x->dims[i])) return 0;
    }
    return 1;
}

/* reduction(x, axes..., out): over axes that follow each other */
static inline int reduce(const RvmKernelCall *call, int which, int mean) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    const ReduceParams *params = (const ReduceParams *)call->params;
    int axes[RVM_MAX_DIMS], ndim = x->ndim, dtype = x->dtype, first = 0, last = ndim;
    if (!rvm_has_loop(call, which, dtype) || (mean && !rvm_is_float(x)) || !rvm_is_contiguous(x) ||
        !rvm_is_contiguous(out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    if (params->axes.count != RVM_NO_INTS) {
        int given = rvm_axes(&params->axes, ndim, axes);
        if (given < 1) return RVM_ASK_REFERENCE;
        first = axes[0];
        last = first + given;
        for (int i = 1; i < given; i++)
            if (axes[i] != first + i) return RVM_ASK_REFERENCE;
    }
    int64_t outer = rvm_product(x->dims, 0, first), inner = rvm_product(x->dims, last, ndim);
    int64_t length = rvm_product(x->dims, first, last), item = x->item, row = inner * item;
    if (!is_reduced(x, first, last, out) || outer * inner * length == 0 ||
        outer * inner * length > RVM_QUICK_INPUT)
        return RVM_ASK_REFERENCE;
    /* The reference adds up more than this many numbers in groups, which is more exact. */
    if (which == RVM_ADD && inner > 1 && length > RVM_LONG_SUM && outer * inner * length > RVM_SMALL_INPUT)
        return RVM_ASK_REFERENCE;
    /* numpy begins with 0 or 1 where a sum or product has that, else with the first element. */
    int from_first = which == RVM_MAXIMUM || which == RVM_MINIMUM, begin = from_first ? 1 : 0;
    RvmNumber one;
    if (which == RVM_MULTIPLY && (dtype == RVM_DTYPE_BOOL || !rvm_set_bit(&one, dtype, 1)))
        return RVM_ASK_REFERENCE;
    const char *from = x->data;
    char *to = out->data;
    rvm_clear_float_status();
    for (int64_t k = 0; k < outer; k++) {
        if (from_first) memcpy(to, from, (size_t)row);
        else if (which == RVM_ADD) memset(to, 0, (size_t)row);
        else for (int64_t i = 0; i < inner; i++) memcpy(to + i * item, one.bytes, (size_t)item);
        if (inner == 1) {
            if (length > begin)
                rvm_reduce(call, which, dtype, to, from + begin * item, item, length - begin);
        } else {
            for (int64_t i = begin; i < length; i++)
                rvm_apply_2(call, which, dtype, to, item, from + i * row, item, to, item, inner);
        }
        if (mean)
            for (int64_t i = 0; i < inner; i++) to_mean(to + i * item, dtype, length);
        from += length * row;
        to += row;
    }
    return RVM_OK;
}

static int sum(const RvmKernelCall *call) { return reduce(call, RVM_ADD, 0); }
static int prod(const RvmKernelCall *call) { return reduce(call, RVM_MULTIPLY, 0); }
static int mean(const RvmKernelCall *call) { return reduce(call, RVM_ADD, 1); }
static int max(const RvmKernelCall *call) { return reduce(call, RVM_MAXIMUM, 0); }
static int min(const RvmKernelCall *call) { return reduce(call, RVM_MINIMUM, 0); }

typedef struct {
    int64_t axis, exclusive;
} CumulateParams;

/* cumsum(x, axis, exclusive, out) of numbers of one data type */
static int cumsum(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    const CumulateParams *params = (const CumulateParams *)call->params;
    int dtype = x->dtype;
    int64_t length, item = x->item;
    if (params->exclusive || params->axis == RVM_NO_INT || !rvm_has_loop(call, RVM_ADD, dtype) ||
        !rvm_get_row(x, params->axis, &length) || !rvm_is_contiguous(out) ||
        !rvm_same_shape(x, out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    int64_t rows = length ? rvm_length(x) / length : 0;
    const char *from = x->data;
    char *to = out->data;
    rvm_clear_float_status();
    for (int64_t k = 0; k < rows; k++) {
        memcpy(to, from, (size_t)item);
        if (length > 1)
            rvm_apply_2(call, RVM_ADD, dtype, to, item, from + item, item, to + item, item, length - 1);
        from += length * item;
        to += length * item;
    }
    return RVM_OK;
}

typedef struct {
    int64_t axis; /* RVM_NO_INT: the position among all elements */
} FindParams;

/* argmax(x, axis, out), argmin */
static int find(const RvmKernelCall *call, const RvmFindCall *finders) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t axis = ((const FindParams *)call->params)->axis, length;
    RvmFindCall finder = x->dtype < RVM_NUM_DTYPES ? finders[x->dtype] : NULL;
    if (finder == NULL || !rvm_is_contiguous(out) || !rvm_get_row(x, axis, &length) ||
        !rvm_no_overlap(x, out))
        return RVM_ASK_REFERENCE;
    int first = 0, last = x->ndim;
    if (axis != RVM_NO_INT) {
        (void)rvm_axis(axis, x->ndim, &first);
        last = first + 1;
    }
    if (!is_reduced(x, first, last, out) || length == 0 || rvm_length(x) > RVM_SMALL_INPUT)
        return RVM_ASK_REFERENCE;
    int64_t rows = rvm_length(x) / length, row = length * x->item;
    for (int64_t k = 0; k < rows; k++) {
        intptr_t index = 0;
        if (finder(x->data + k * row, (intptr_t)length, &index, NULL) < 0) return RVM_FAILED;
        ((int64_t *)out->data)[k] = index;
    }
    return RVM_OK;
}

static int argmax(const RvmKernelCall *call) { return find(call, call->host->find_greatest); }
static int argmin(const RvmKernelCall *call) { return find(call, call->host->find_least); }

static const RvmArgument reduce_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(EACH_INT, ReduceParams, axes), RVM_BUFFER(OUT)};
static const RvmArgument cumulate_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INT_OR_NONE, CumulateParams, axis),
    RVM_FIELD(FLAG, CumulateParams, exclusive), RVM_BUFFER(OUT)};
static const RvmArgument find_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INT_OR_NONE, FindParams, axis), RVM_BUFFER(OUT)};

/* The reference adds up floats of less than 32 bits in float32. */
#define REDUCTION(kernel_name, function)                                                      \
    {.name = "reductions." kernel_name, .kernel = kernel_name, .run = function,               \
     RVM_ARGUMENTS(reduce_arguments), .dtypes = RVM_BUILTIN & ~RVM_DTYPE_BIT(RVM_DTYPE_F16),        \
     .most_bytes = RVM_SMALL_RESULT}

const RvmImplementation rvm_reductions[] = {
    REDUCTION("sum", sum),
    REDUCTION("prod", prod),
    REDUCTION("mean", mean),
    REDUCTION("max", max),
    REDUCTION("min", min),
    {.name = "reductions.cumsum", .kernel = "cumsum", .run = cumsum,
     RVM_ARGUMENTS(cumulate_arguments), .dtypes = RVM_BUILTIN & ~RVM_DTYPE_BIT(RVM_DTYPE_BOOL),
     .most_bytes = RVM_SMALL_RESULT},
    {.name = "reductions.argmax", .kernel = "argmax", .run = argmax, RVM_ARGUMENTS(find_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_I64), .most_bytes = RVM_SMALL_RESULT},
    {.name = "reductions.argmin", .kernel = "argmin", .run = argmin, RVM_ARGUMENTS(find_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_I64), .most_bytes = RVM_SMALL_RESULT},
    {.name = NULL},
};
