/* What convolutions of images in blocks of channels have in common: parameters, windows, and what follows
 * the sums.
 */
#ifndef RELAXVM_KERNELS_CONVOLUTIONS_H
#define RELAXVM_KERNELS_CONVOLUTIONS_H

#include "blocks.h"
#include "../pieces.h"

#define LINE_BYTES (RVM_BLOCK * 4)
/* Weights that are read again for each row of results fit in the cache. */
#define CACHED_WEIGHTS (1 << 19)

typedef struct {
    RvmInts strides, padding, dilation;
    int64_t groups;
    RvmReal low, high;
    int64_t function;
    RvmReal scale, shift;
} ConvParams;

/* A convolution, checked. */
typedef struct {
    const float *x, *weight, *bias, *residual;
    float *out;
    int64_t images, groups;
    int64_t inputs;                        /* blocks of a group, or planes */
    int64_t outputs;                       /* blocks of a group */
    int64_t height, width, rows, columns;  /* of an image, and of its result */
    int64_t tall, wide;                    /* the window */
    int64_t stride_y, stride_x, dilation_y, dilation_x;
    int64_t top, left;                     /* padding */
    int64_t padded_height, padded_width;
    int is_padded;
    RvmEpilogue epilogue;
} Conv;

static inline int is_block_of(const RvmBuffer *x, int ndim) {
    return x->ndim == ndim && x->dtype == RVM_DTYPE_F32 && rvm_is_contiguous(x) &&
           rvm_length(x) > 0;
}

static inline int get_number(const RvmReal *bound, float without, float *to) {
    RvmNumber number;
    *to = without;
    if (!bound->is_given) return 1;
    if (!rvm_narrow(bound, RVM_DTYPE_F32, &number)) return 0;
    *to = number.single;
    return 1;
}

/* Check an axis: its result, and the length of the padded image along it. */
static inline int get_axis(const ConvParams *p, int axis, int64_t length, int64_t window, int64_t results,
                    int64_t *padded) {
    int64_t stride = p->strides.values[axis], dilation = p->dilation.values[axis];
    int64_t before = p->padding.values[axis], after = p->padding.values[axis + 2];
    if (window > 1 << 10 || dilation > 1 << 10 || before > 1 << 16 || after > 1 << 16 ||
        stride > 1 << 16 || stride < 1 || dilation < 1 || before < 0 || after < 0)
        return 0;
    int64_t room = length + before + after - (dilation * (window - 1) + 1);
    *padded = length + before + after;
    return room >= 0 && room / stride + 1 == results;
}

static inline void swap(int64_t *a, int64_t *b) {
    int64_t kept = *a;
    *a = *b;
    *b = kept;
}

/* What follows the sums; `out` is checked. */
static inline int get_epilogue(const RvmKernelCall *call, const ConvParams *p, RvmEpilogue *e) {
    const RvmBuffer *out = call->buffers + call->count - 1, *slope = out - 1;
    if (!get_number(&p->low, -INFINITY, &e->low) || !get_number(&p->high, INFINITY, &e->high) ||
        !get_number(&p->scale, 1, &e->scale) || !get_number(&p->shift, 0, &e->shift))
        return 0;
    if (!(slope->flags & RVM_ABSENT) &&
        (!is_block_of(slope, 1) || slope->dims[0] / RVM_BLOCK != out->dims[1] ||
         slope->dims[0] % RVM_BLOCK || !rvm_is_input(slope, out)))
        return 0;
    e->slope = (const float *)slope->data;
    e->function = p->function;
    e->is_scaled = p->scale.is_given || p->shift.is_given;
    e->is_more = e->slope || e->function != RVM_NO_INT || e->is_scaled;
    return 1;
}

/* The parts that all methods have: parameters, and the image and its result of `inputs` and `outputs`
 * blocks (or planes) in all.  The data type of the weights is for the caller to check. */
static inline int get_conv(const RvmKernelCall *call, int64_t tall, int64_t wide, Conv *c) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *bias = x + 2, *residual = x + 3;
    const RvmBuffer *out = x + call->count - 1;
    const ConvParams *p = (const ConvParams *)call->params;
    int is_residual_in_place = residual->data == out->data;
    if (!is_block_of(out, 5) || out->dims[4] != RVM_BLOCK || p->strides.count != 2 ||
        p->padding.count != 4 || p->dilation.count != 2 || p->groups < 1 ||
        x->dims[0] != out->dims[0] || !rvm_is_input(x, out) || !rvm_no_overlap(weight, out) ||
        !get_epilogue(call, p, &c->epilogue))
        return 0;
    if (!(bias->flags & RVM_ABSENT) &&
        (!is_block_of(bias, 1) || bias->dims[0] / RVM_BLOCK != out->dims[1] ||
         bias->dims[0] % RVM_BLOCK || !rvm_is_input(bias, out)))
        return 0;
    if (!(residual->flags & RVM_ABSENT) &&
        (!is_block_of(residual, 5) || !rvm_same_shape(residual, out) ||
         (!is_residual_in_place && !rvm_no_overlap(residual, out))))
        return 0;
    c->x = (const float *)x->data;
    c->weight = (const float *)weight->data;
    c->bias = (const float *)bias->data;
    c->residual = (const float *)residual->data;
    c->out = (float *)out->data;
    c->images = x->dims[0];
    c->groups = p->groups;
    c->height = x->dims[2];
    c->width = x->dims[3];
    c->rows = out->dims[2];
    c->columns = out->dims[3];
    c->tall = tall;
    c->wide = wide;
    c->stride_y = p->strides.values[0];
    c->stride_x = p->strides.values[1];
    c->dilation_y = p->dilation.values[0];
    c->dilation_x = p->dilation.values[1];
    c->top = p->padding.values[0];
    c->left = p->padding.values[1];
    if (!get_axis(p, 0, c->height, tall, c->rows, &c->padded_height) ||
        !get_axis(p, 1, c->width, wide, c->columns, &c->padded_width))
        return 0;
    /* Columns of one pixel are rows: pixels that follow each other are computed together. */
    if (c->padded_width == 1 && c->width == 1 && wide == 1 && c->left == 0) {
        swap(&c->height, &c->width);
        swap(&c->rows, &c->columns);
        swap(&c->tall, &c->wide);
        swap(&c->stride_y, &c->stride_x);
        swap(&c->dilation_y, &c->dilation_x);
        swap(&c->top, &c->left);
        swap(&c->padded_height, &c->padded_width);
    }
    c->is_padded = c->padded_height != c->height || c->padded_width != c->width;
    /* A padded copy of an image may take some times its memory, not any amount. */
    return !c->is_padded || (c->padded_height <= 4 * c->height + 64 && c->padded_width <= 4 * c->width + 64);
}

static const RvmArgument conv_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(INTS, ConvParams, strides),
    RVM_FIELD(INTS, ConvParams, padding),
    RVM_FIELD(INTS, ConvParams, dilation),
    RVM_FIELD(INT, ConvParams, groups),
    RVM_FIELD(REAL_OR_NONE, ConvParams, low),
    RVM_FIELD(REAL_OR_NONE, ConvParams, high),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, ConvParams, function),
    RVM_FIELD(REAL_OR_NONE, ConvParams, scale),
    RVM_FIELD(REAL_OR_NONE, ConvParams, shift),
    RVM_BUFFER(OUT),
};

#endif
