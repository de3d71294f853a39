/* Softmax and normalizations: functions of whole rows. */
#include "loops.h"

/* A temporary row is at most so long. */
#define ROW_BYTES 8192

typedef struct {
    const char *x;
    char *out;
    int64_t rows, length, item;
    int dtype;
} Rows;

/* x and out as rows of `length` elements; false if they are not contiguous floats of one shape. */
static int get_rows(const RvmBuffer *x, const RvmBuffer *out, int64_t length, Rows *r) {
    int64_t elements = rvm_length(x);
    if (!rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_same_shape(x, out) ||
        elements == 0 || !rvm_is_input(x, out))
        return 0;
    r->x = x->data;
    r->out = out->data;
    r->item = x->item;
    r->dtype = x->dtype;
    r->rows = elements / length;
    r->length = length;
    return 1;
}


/* ---- softmax ------------------------------------------------------------------------------------ */
typedef struct {
    int64_t axis;
} SoftmaxParams;

static int get_softmax_rows(const RvmKernelCall *call, Rows *r) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t length;
    return rvm_get_row(x, ((const SoftmaxParams *)call->params)->axis, &length) &&
           get_rows(x, out, length, r);
}

/* out = x less the greatest of the row */
static void subtract_peak(const RvmKernelCall *call, const Rows *r, const char *x, char *out) {
    RvmNumber peak;
    memcpy(peak.bytes, x, (size_t)r->item);
    if (r->length > 1)
        rvm_reduce(call, RVM_MAXIMUM, r->dtype, peak.bytes, x + r->item, r->item, r->length - 1);
    rvm_apply_2(call, RVM_SUBTRACT, r->dtype, x, r->item, peak.bytes, 0, out, r->item, r->length);
}

/* total = the sum of a row */
static inline void add_up(const RvmKernelCall *call, const Rows *r, const char *row,
                          RvmNumber *total) {
    rvm_set_real(total, r->dtype, 0);
    rvm_reduce(call, RVM_ADD, r->dtype, total->bytes, row, r->item, r->length);
}

static int softmax(const RvmKernelCall *call) {
    Rows r;
    RvmNumber total;
    if (!get_softmax_rows(call, &r)) return RVM_ASK_REFERENCE;
    int64_t row = r.length * r.item;
    rvm_clear_float_status();
    for (int64_t i = 0; i < r.rows; i++) subtract_peak(call, &r, r.x + i * row, r.out + i * row);
    rvm_apply_1(call, RVM_EXP, r.dtype, r.out, r.out, r.item, r.rows * r.length);
    for (int64_t i = 0; i < r.rows; i++) {
        char *out = r.out + i * row;
        add_up(call, &r, out, &total);
        rvm_apply_2(call, RVM_DIVIDE, r.dtype, out, r.item, total.bytes, 0, out, r.item, r.length);
    }
    return RVM_OK;
}

static int64_t log_softmax_workspace(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers;
    int64_t length;
    if (!rvm_get_row(x, ((const SoftmaxParams *)call->params)->axis, &length)) return -1;
    return length <= ROW_BYTES / x->item ? length * x->item : -1;
}

static int log_softmax(const RvmKernelCall *call) {
    Rows r;
    RvmNumber total;
    if (!get_softmax_rows(call, &r)) return RVM_ASK_REFERENCE;
    int64_t row = r.length * r.item;
    char *powers = call->workspace;
    rvm_clear_float_status();
    for (int64_t i = 0; i < r.rows; i++) subtract_peak(call, &r, r.x + i * row, r.out + i * row);
    for (int64_t i = 0; i < r.rows; i++) {
        char *out = r.out + i * row;
        rvm_apply_1(call, RVM_EXP, r.dtype, out, powers, r.item, r.length);
        add_up(call, &r, powers, &total);
        rvm_apply_1(call, RVM_LOG, r.dtype, total.bytes, total.bytes, r.item, 1);
        rvm_apply_2(call, RVM_SUBTRACT, r.dtype, out, r.item, total.bytes, 0, out, r.item, r.length);
    }
    return RVM_OK;
}

/* ---- normalizations ------------------------------------------------------------------------------ */
static inline void divide_by(RvmNumber *total, int dtype, int64_t count) {
    if (dtype == RVM_DTYPE_F32) total->single /= (float)count;
    else total->full /= (double)count;
}

/* total = the square root of its mean, after addition of epsilon */
static inline void root_mean(RvmNumber *total, const RvmNumber *epsilon, int dtype, int64_t count) {
    divide_by(total, dtype, count);
    if (dtype == RVM_DTYPE_F32) total->single = sqrtf(total->single + epsilon->single);
    else total->full = sqrt(total->full + epsilon->full);
}

/* The length of rows over the last axes of x, which are the axes of the weights; -1 if they are not. */
static int64_t norm_length(const RvmBuffer *x, const RvmBuffer *weight, const RvmInts *given_axes) {
    int axes[RVM_MAX_DIMS], ndim = x->ndim, given = rvm_axes(given_axes, ndim, axes);
    if (given < 1 || !rvm_is_contiguous(weight) || weight->ndim != given) return -1;
    for (int i = 0; i < given; i++)
        if (axes[i] != ndim - given + i || weight->dims[i] != x->dims[axes[i]]) return -1;
    return rvm_length(weight);
}

typedef struct {
    RvmInts axes;
    RvmReal epsilon;
} RmsNormParams;

/* rms_norm(x, weight, axes, epsilon, out) */
static int rms_norm(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *weight = x + 1, *out = x + 2;
    const RmsNormParams *params = (const RmsNormParams *)call->params;
    Rows r;
    RvmNumber epsilon, total;
    int64_t n = norm_length(x, weight, &params->axes);
    if (n < 0 || !get_rows(x, out, n, &r) || !rvm_is_input(weight, out) ||
        !rvm_narrow(&params->epsilon, r.dtype, &epsilon))
        return RVM_ASK_REFERENCE;
    int64_t item = r.item;
    rvm_clear_float_status();
    for (int64_t i = 0; i < r.rows; i++) {
        const char *from = r.x + i * n * item;
        char *to = r.out + i * n * item;
        rvm_apply_1(call, RVM_SQUARE, r.dtype, from, to, item, n);
        add_up(call, &r, to, &total);
        root_mean(&total, &epsilon, r.dtype, n);
        rvm_apply_2(call, RVM_DIVIDE, r.dtype, from, item, total.bytes, 0, to, item, n);
        rvm_apply_2(call, RVM_MULTIPLY, r.dtype, to, item, weight->data, item, to, item, n);
    }
    return RVM_OK;
}

typedef struct {
    RvmInts axes;
    RvmReal epsilon;
    int64_t center, scale; /* whether beta is added, and gamma multiplied */
} LayerNormParams;

static int64_t layer_norm_workspace(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers;
    int64_t length = norm_length(x, x + 1, &((const LayerNormParams *)call->params)->axes);
    return length <= ROW_BYTES / x->item ? length * x->item : -1;
}

/* layer_norm(x, gamma, beta, axes, epsilon, center, scale, out) */
static int layer_norm(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *gamma = x + 1, *beta = x + 2, *out = x + 3;
    const LayerNormParams *params = (const LayerNormParams *)call->params;
    Rows r;
    RvmNumber epsilon, total;
    int64_t n = norm_length(x, gamma, &params->axes);
    if (n < 0 || !get_rows(x, out, n, &r) || !rvm_is_contiguous(beta) ||
        !rvm_same_shape(gamma, beta) || !rvm_is_input(gamma, out) || !rvm_is_input(beta, out) ||
        !rvm_narrow(&params->epsilon, r.dtype, &epsilon))
        return RVM_ASK_REFERENCE;
    int64_t item = r.item;
    char *squares = call->workspace;
    rvm_clear_float_status();
    for (int64_t i = 0; i < r.rows; i++) {
        const char *from = r.x + i * n * item;
        char *to = r.out + i * n * item;
        add_up(call, &r, from, &total);
        divide_by(&total, r.dtype, n);
        rvm_apply_2(call, RVM_SUBTRACT, r.dtype, from, item, total.bytes, 0, to, item, n);
        rvm_apply_1(call, RVM_SQUARE, r.dtype, to, squares, item, n);
        add_up(call, &r, squares, &total);
        root_mean(&total, &epsilon, r.dtype, n);
        rvm_apply_2(call, RVM_DIVIDE, r.dtype, to, item, total.bytes, 0, to, item, n);
        if (params->scale)
            rvm_apply_2(call, RVM_MULTIPLY, r.dtype, to, item, gamma->data, item, to, item, n);
        if (params->center)
            rvm_apply_2(call, RVM_ADD, r.dtype, to, item, beta->data, item, to, item, n);
    }
    return RVM_OK;
}

static const RvmArgument softmax_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INT, SoftmaxParams, axis), RVM_BUFFER(OUT)};
static const RvmArgument rms_norm_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_FIELD(INTS, RmsNormParams, axes),
    RVM_FIELD(REAL, RmsNormParams, epsilon), RVM_BUFFER(OUT)};
static const RvmArgument layer_norm_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, LayerNormParams, axes),
    RVM_FIELD(REAL, LayerNormParams, epsilon),
    RVM_FIELD(FLAG, LayerNormParams, center),
    RVM_FIELD(FLAG, LayerNormParams, scale),
    RVM_BUFFER(OUT),
};

const RvmImplementation rvm_norms[] = {
    {.name = "norms.softmax", .kernel = "nn.softmax", .run = softmax,
     RVM_ARGUMENTS(softmax_arguments), .dtypes = RVM_FLOATS, .most_bytes = RVM_SMALL_RESULT},
    {.name = "norms.log_softmax", .kernel = "nn.log_softmax", .run = log_softmax,
     .workspace = log_softmax_workspace, RVM_ARGUMENTS(softmax_arguments), .dtypes = RVM_FLOATS,
     .most_bytes = RVM_SMALL_RESULT},
    {.name = "norms.rms_norm", .kernel = "nn.rms_norm", .run = rms_norm,
     RVM_ARGUMENTS(rms_norm_arguments), .dtypes = RVM_FLOATS, .most_bytes = RVM_SMALL_RESULT},
    {.name = "norms.layer_norm", .kernel = "nn.layer_norm", .run = layer_norm,
     .workspace = layer_norm_workspace, RVM_ARGUMENTS(layer_norm_arguments), .dtypes = RVM_FLOATS,
     .most_bytes = RVM_SMALL_RESULT},
    {.name = NULL},
};
