/* Products of matrices, by numpy's loop, which calls BLAS. */
#include "loops.h"

/* A step or a dim of the last but `from_end` axis. */
static inline int64_t step_of(const RvmBuffer *x, int from_end) {
    return x->strides[x->ndim - 1 - from_end];
}
static inline int64_t dim_of(const RvmBuffer *x, int from_end) {
    return x->dims[x->ndim - 1 - from_end];
}

/* Steps along the leading axes of the result; false if they do not broadcast to it. */
static int batch_steps(const RvmBuffer *x, const RvmBuffer *out, int64_t *steps) {
    int lead = out->ndim - x->ndim;
    if (lead < 0) return 0;
    for (int i = 0; i < out->ndim - 2; i++) {
        int64_t dim = i < lead ? 1 : x->dims[i - lead];
        if (dim != 1 && dim != out->dims[i]) return 0;
        steps[i] = dim == 1 ? 0 : x->strides[i - lead];
    }
    return 1;
}

/* Products for all leading axes of `out_buffer` from `level` on. */
static void multiply_batches(const RvmKernelCall *call, const RvmBuffer *out_buffer, int level,
                             int64_t n, int64_t k, int64_t m, RvmMatrices a, const int64_t *a_steps,
                             RvmMatrices b, const int64_t *b_steps, RvmMatrices out) {
    int levels = out_buffer->ndim - 2;
    if (level >= levels - 1) {
        int64_t batch = levels > 0 ? out_buffer->dims[level] : 1;
        a.batch = levels > 0 ? a_steps[level] : 0;
        b.batch = levels > 0 ? b_steps[level] : 0;
        out.batch = levels > 0 ? out_buffer->strides[level] : 0;
        rvm_multiply(call, out_buffer->dtype, batch, n, k, m, &a, &b, &out);
        return;
    }
    for (int64_t i = 0; i < out_buffer->dims[level]; i++) {
        multiply_batches(call, out_buffer, level + 1, n, k, m, a, a_steps, b, b_steps, out);
        a.data += a_steps[level];
        b.data += b_steps[level];
        out.data += out_buffer->strides[level];
    }
}

/* out = a @ b of matrices, or @ their transposes */
static int product(const RvmKernelCall *call, const RvmBuffer *a, const RvmBuffer *b,
                   const RvmBuffer *out, int transpose_a, int transpose_b) {
    int64_t a_steps[RVM_MAX_DIMS], b_steps[RVM_MAX_DIMS];
    int dtype = out->dtype;
    if (a->ndim < 2 || b->ndim < 2 || out->ndim < 2 || !rvm_has_loop(call, RVM_MATMUL, dtype) ||
        !rvm_is_input(a, out) || !rvm_is_input(b, out))
        return RVM_ASK_REFERENCE;
    int64_t n = dim_of(a, !transpose_a), k = dim_of(a, transpose_a), m = dim_of(b, transpose_b);
    int64_t elements = rvm_length(out);
    if (k == 0 || k != dim_of(b, !transpose_b) || elements > RVM_SMALL_WORK / k ||
        dim_of(out, 0) != m || dim_of(out, 1) != n)
        return RVM_ASK_REFERENCE;
    RvmMatrices x = {a->data, 0, step_of(a, !transpose_a), step_of(a, transpose_a)};
    RvmMatrices y = {b->data, 0, step_of(b, !transpose_b), step_of(b, transpose_b)};
    RvmMatrices z = {out->data, 0, step_of(out, 1), step_of(out, 0)};
    if (b->ndim > out->ndim || a->ndim > out->ndim || (a->ndim < out->ndim && b->ndim < out->ndim))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < out->ndim - 2; i++) { /* the result is as long as one of the two */
        int from_a = i - (out->ndim - a->ndim), from_b = i - (out->ndim - b->ndim);
        int64_t dim = out->dims[i];
        if ((from_a < 0 || a->dims[from_a] != dim) && (from_b < 0 || b->dims[from_b] != dim))
            return RVM_ASK_REFERENCE;
    }
    if (elements == 0) return RVM_OK;
    if (b->ndim == 2 && a->ndim > 2 && !transpose_a && a->ndim == out->ndim &&
        rvm_is_contiguous(a) && rvm_is_contiguous(out)) {
        /* One product of many rows, not many products of a few. */
        if (!rvm_same_dims(a->dims, out->dims, out->ndim - 2)) return RVM_ASK_REFERENCE;
        /* Steps of axes of length 1 may be anything. */
        x.column = z.column = out->item;
        x.row = k * x.column;
        z.row = m * z.column;
        rvm_clear_float_status();
        rvm_multiply(call, dtype, 1, elements / m, k, m, &x, &y, &z);
        return RVM_OK;
    }
    if (!batch_steps(a, out, a_steps) || !batch_steps(b, out, b_steps)) return RVM_ASK_REFERENCE;
    rvm_clear_float_status();
    multiply_batches(call, out, 0, n, k, m, x, a_steps, y, b_steps, z);
    return RVM_OK;
}

static int matmul(const RvmKernelCall *call) {
    const RvmBuffer *b = call->buffers;
    return product(call, &b[0], &b[1], &b[2], 0, 0);
}
static int matmul_nt(const RvmKernelCall *call) {
    const RvmBuffer *b = call->buffers;
    return product(call, &b[0], &b[1], &b[2], 0, 1);
}
static int matmul_tn(const RvmKernelCall *call) {
    const RvmBuffer *b = call->buffers;
    return product(call, &b[0], &b[1], &b[2], 1, 0);
}

/* linear(x, weight, bias or None, out) */
static int linear(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *weight = x + 1, *bias = x + 2, *out = x + 3;
    int has_bias = !(bias->flags & RVM_ABSENT);
    int64_t m = out->ndim ? dim_of(out, 0) : 0;
    if (weight->ndim != 2 ||
        (has_bias && (bias->ndim != 1 || bias->dims[0] != m || !rvm_is_contiguous(out) ||
                      !rvm_has_loop(call, RVM_ADD, out->dtype) || !rvm_is_input(bias, out))))
        return RVM_ASK_REFERENCE;
    int answer = product(call, x, weight, out, 0, 1);
    if (answer != RVM_OK || !has_bias) return answer;
    int64_t rows = m ? rvm_length(out) / m : 0;
    for (int64_t i = 0; i < rows; i++) {
        char *row = out->data + i * m * out->item;
        rvm_apply_2(call, RVM_ADD, out->dtype, row, out->item, bias->data, bias->strides[0], row,
                    out->item, m);
    }
    return RVM_OK;
}

typedef struct {
    RvmInts strides, padding, dilation;
    int64_t groups;
} ConvParams;

/* A convolution with a window of one element, which is a product of matrices. */
static int points(const RvmKernelCall *call) {
    const ConvParams *params = (const ConvParams *)call->params;
    RvmBuffer x = call->buffers[0], weight = call->buffers[1], out = call->buffers[2];
    int axes = x.ndim - 2;
    if (axes < 1 || weight.ndim != x.ndim || out.ndim != x.ndim || params->groups != 1 ||
        params->strides.count != axes || params->padding.count != 2 * axes ||
        params->dilation.count != axes || !rvm_is_contiguous(&x) || !rvm_is_contiguous(&weight) ||
        !rvm_is_contiguous(&out) || x.dtype != weight.dtype)
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < axes; i++)
        if (weight.dims[2 + i] != 1 || x.dims[2 + i] == 0 || params->strides.values[i] != 1 || params->padding.values[i] ||
            params->padding.values[axes + i] || params->dilation.values[i] < 1)
            return RVM_ASK_REFERENCE;
    if (x.dims[0] != out.dims[0] || !rvm_same_dims(x.dims + 2, out.dims + 2, axes))
        return RVM_ASK_REFERENCE;
    RvmBuffer *images[2] = {&x, &out};
    for (int i = 0; i < 2; i++) { /* all places of an image as one axis */
        images[i]->dims[2] = rvm_product(images[i]->dims, 2, images[i]->ndim);
        images[i]->strides[2] = images[i]->item;
        images[i]->ndim = 3;
    }
    weight.ndim = 2;
    return product(call, &weight, &x, &out, 0, 0);
}

static const RvmArgument conv_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, ConvParams, strides),
    RVM_FIELD(INTS, ConvParams, padding),
    RVM_FIELD(INTS, ConvParams, dilation),
    RVM_FIELD(INT, ConvParams, groups),
    RVM_BUFFER(OUT),
};
static const RvmArgument product_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};
static const RvmArgument linear_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(OUT)};

#define PRODUCT(kernel_name, function, arguments_of)                                          \
    {.name = "products." kernel_name, .kernel = kernel_name, .run = function,                 \
     RVM_ARGUMENTS(arguments_of), .dtypes = RVM_BUILTIN & ~RVM_DTYPE_BIT(RVM_DTYPE_F16),            \
     .most_bytes = RVM_SMALL_RESULT}

/* The reference may add up the terms in another order. */
#define POINTS(kernel_name)                                                                   \
    {.name = "products." kernel_name, .kernel = kernel_name, .run = points,                   \
     RVM_ARGUMENTS(conv_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32) | RVM_DTYPE_BIT(RVM_DTYPE_F64), \
     .most_bytes = RVM_SMALL_RESULT, .ulp = RVM_SUM_ULP}

const RvmImplementation rvm_products[] = {
    PRODUCT("matmul", matmul, product_arguments),
    PRODUCT("matmul_nt", matmul_nt, product_arguments),
    PRODUCT("matmul_tn", matmul_tn, product_arguments),
    PRODUCT("linear", linear, linear_arguments),
    POINTS("nn.conv1d"),
    POINTS("nn.conv2d"),
    {.name = NULL},
};
