/* Functions of single elements. */
#include "choose.h"
#include "loops.h"

/* Operands along the axes of a result; axes that are contiguous in all of them are joined.  Steps are in
 * bytes; the result is the last operand. */
typedef struct {
    int operands, ndim;
    int64_t dims[RVM_MAX_DIMS + 1], steps[4][RVM_MAX_DIMS + 1];
    char *places[4];
} Grid;

/* The steps of an input along the axes of the result.  False if it does not broadcast, or if it overlaps
 * the result without being the very same elements. */
static int operand_steps(const RvmBuffer *x, const RvmBuffer *out, int64_t *steps) {
    if (!rvm_broadcast(x, out, steps)) return 0;
    if (rvm_no_overlap(x, out)) return 1;
    if (x->data != out->data || x->item != out->item || !rvm_same_shape(x, out)) return 0;
    for (int i = 0; i < out->ndim; i++)
        if (out->dims[i] != 1 && steps[i] != out->strides[i]) return 0;
    return 1;
}

/* Join the axes, given the steps of the inputs and a result that is contiguous. */
static void set_grid(Grid *g, const RvmBuffer *out) {
    int last = g->operands - 1, n = 0;
    g->places[last] = out->data;
    for (int i = 0; i < out->ndim; i++) {
        RVM_FEW_TURNS;
        int64_t dim = out->dims[i];
        g->steps[last][i] = out->strides[i];
        if (dim == 1) continue;
        int joins = n > 0;
        for (int k = 0; joins && k <= last; k++) joins = g->steps[k][n - 1] == dim * g->steps[k][i];
        g->dims[joins ? n - 1 : n] = joins ? g->dims[n - 1] * dim : dim;
        n += !joins;
        for (int k = 0; k <= last; k++) g->steps[k][n - 1] = g->steps[k][i];
    }
    if (n == 0) { /* one element */
        g->dims[n] = 1;
        for (int k = 0; k <= last; k++) g->steps[k][n] = out->item;
        n = 1;
    }
    g->ndim = n;
}

/* Whether each axis of the result is an axis of an operand: the result is not longer than they are. */
static int is_covered(const Grid *g, const RvmBuffer *out) {
    for (int i = 0; i < out->ndim; i++) {
        int found = out->dims[i] == 1;
        for (int k = 0; !found && k < g->operands - 1; k++) found = g->steps[k][i] != 0;
        if (!found) return 0;
    }
    return 1;
}

static void run_grid(const RvmKernelCall *call, Grid *g, const RvmLoop *loop) {
    int64_t at[RVM_MAX_DIMS];
    intptr_t inner[4];
    int last = g->ndim - 1;
    for (int k = 0; k < g->operands; k++) inner[k] = (intptr_t)g->steps[k][last];
    for (int i = 0; i < last; i++) at[i] = 0;
    for (;;) {
        char *row[4] = {g->places[0], g->places[1], g->places[2], g->places[3]};
        intptr_t length = (intptr_t)g->dims[last];
        loop->call(row, &length, inner, loop->data);
        rvm_note_status(call);
        int axis = last - 1;
        for (; axis >= 0; axis--) {
            for (int k = 0; k < g->operands; k++) g->places[k] += g->steps[k][axis];
            if (++at[axis] < g->dims[axis]) break;
            for (int k = 0; k < g->operands; k++) g->places[k] -= at[axis] * g->steps[k][axis];
            at[axis] = 0;
        }
        if (axis < 0) break;
    }
}

/* f(a, b, out), broadcast, of a ufunc that gives an element the same bits wherever it lies, and does not
 * set an exception. */
static int binary(const RvmKernelCall *call) {
    const RvmBuffer *b = call->buffers, *out = &b[2];
    const RvmLoop *loop = (const RvmLoop *)call->params;
    Grid g;
    g.operands = 3;
    g.places[3] = NULL;
    for (int k = 0; k < 2; k++) {
        if (!operand_steps(&b[k], out, g.steps[k])) return RVM_ASK_REFERENCE;
        g.places[k] = b[k].data;
    }
    if (rvm_length(out) < 2 || !rvm_is_contiguous(out) || b[0].dtype != b[1].dtype ||
        (b[0].ndim != out->ndim && b[1].ndim != out->ndim) || !is_covered(&g, out))
        return RVM_ASK_REFERENCE;
    set_grid(&g, out);
    rvm_clear_float_status();
    run_grid(call, &g, loop);
    return RVM_OK;
}

/* where(cond, a, b, out), broadcast; a and b may be numbers */
static int where(const RvmKernelCall *call) {
    const RvmBuffer *b = call->buffers, *out = &b[3];
    const RvmLoop loop = {rvm_where_loop(out->item), NULL};
    Grid g;
    int ndim = 0;
    if (loop.call == NULL || b[0].dtype != RVM_DTYPE_BOOL || !rvm_is_contiguous(out))
        return RVM_ASK_REFERENCE;
    g.operands = 4;
    for (int k = 0; k < 3; k++) {
        if (!operand_steps(&b[k], out, g.steps[k]) || (k > 0 && b[k].dtype != out->dtype))
            return RVM_ASK_REFERENCE;
        g.places[k] = b[k].data;
        if (b[k].ndim > ndim) ndim = b[k].ndim;
    }
    if (ndim != out->ndim || !is_covered(&g, out)) return RVM_ASK_REFERENCE;
    if (rvm_length(out) == 0) return RVM_OK;
    set_grid(&g, out);
    for (int k = 0; k < 3; k++) { /* the loop takes elements that follow each other, or one for all */
        int64_t step = g.steps[k][g.ndim - 1];
        if (step != 0 && step != (k ? out->item : 1) && g.dims[g.ndim - 1] != 1)
            return RVM_ASK_REFERENCE;
    }
    run_grid(call, &g, &loop);
    *call->float_status = 0; /* what earlier code left: choices do not set it */
    return RVM_OK;
}

/* x and out of one data type, shape and layout, and in the same place or apart. */
static int is_pair(const RvmBuffer *x, const RvmBuffer *out) {
    return x->dtype == out->dtype && rvm_is_contiguous(x) && rvm_is_contiguous(out) &&
           rvm_same_shape(x, out) && (x->data == out->data || rvm_no_overlap(x, out));
}

/* clip(x, min, max, out), also in place */
static int clip(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *low = x + 1, *high = x + 2, *out = x + 3;
    int dtype = x->dtype;
    int64_t n = rvm_length(x);
    if (!is_pair(x, out)) return RVM_ASK_REFERENCE;
    if (n == 0) return RVM_OK;
    rvm_apply_2(call, RVM_MINIMUM, dtype, x->data, x->item, high->data, 0, out->data, out->item, n);
    rvm_apply_2(call, RVM_MAXIMUM, dtype, out->data, out->item, low->data, 0, out->data, out->item, n);
    *call->float_status = 0; /* numpy reports nothing about these */
    return RVM_OK;
}

/* relu(x, out): the maximum of x and 0, also in place */
static int relu(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    const RvmNumber zero = {.full = 0};
    int64_t n = rvm_length(x);
    if (!is_pair(x, out)) return RVM_ASK_REFERENCE;
    if (n == 0) return RVM_OK;
    rvm_apply_2(call, RVM_MAXIMUM, x->dtype, x->data, x->item, zero.bytes, 0, out->data, out->item, n);
    *call->float_status = 0; /* numpy reports nothing about a maximum */
    return RVM_OK;
}

static const RvmArgument binary_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};
static const RvmArgument where_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR_OR_NUMBER), RVM_BUFFER(TENSOR_OR_NUMBER), RVM_BUFFER(OUT)};
static const RvmArgument clip_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(NUMBER), RVM_BUFFER(NUMBER), RVM_BUFFER(OUT)};
static const RvmArgument relu_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};

/* Not atan2, log_add_exp and power: their last bits depend on the layout, and which loop numpy picks. */
#define BINARY(kernel_name)                                                                   \
    {.name = "elementwise." kernel_name, .kernel = kernel_name, .run = binary,                \
     RVM_ARGUMENTS(binary_arguments), .uses_ufunc = 1, .dtypes = RVM_BUILTIN,                 \
     .most_bytes = RVM_QUICK_RESULT}

const RvmImplementation rvm_elementwise[] = {
    BINARY("add"),
    BINARY("bitwise_and"),
    BINARY("bitwise_or"),
    BINARY("bitwise_xor"),
    BINARY("divide"),
    BINARY("equal"),
    BINARY("floor_divide"),
    BINARY("floor_mod"),
    BINARY("greater"),
    BINARY("greater_equal"),
    BINARY("left_shift"),
    BINARY("less"),
    BINARY("less_equal"),
    BINARY("logical_and"),
    BINARY("logical_or"),
    BINARY("logical_xor"),
    BINARY("maximum"),
    BINARY("minimum"),
    BINARY("mod"),
    BINARY("multiply"),
    BINARY("not_equal"),
    BINARY("right_shift"),
    BINARY("subtract"),
    {.name = "elementwise.where", .kernel = "where", .run = where, RVM_ARGUMENTS(where_arguments),
     .dtypes = RVM_ANY_DTYPE, .most_bytes = RVM_SMALL_RESULT},
    {.name = "elementwise.clip", .kernel = "clip", .run = clip, RVM_ARGUMENTS(clip_arguments),
     .dtypes = RVM_BUILTIN, .most_bytes = RVM_SMALL_RESULT},
    {.name = "elementwise.relu", .kernel = "relu", .run = relu, RVM_ARGUMENTS(relu_arguments),
     .dtypes = RVM_FLOATS, .most_bytes = RVM_SMALL_RESULT},
    {.name = NULL},
};
