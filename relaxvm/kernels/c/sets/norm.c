/* Softmax and normalization of rows, and normalization by nearby channels.  A row is copied to the workspace, up to
 * a whole vector, and stays in the cache for all passes over it.
 *
 * Sums are of four vectors side by side, then of the lanes by halves: the order depends on the set and
 * the length of a row, not on its address or on other rows.  Those of channels are in their order.
 */
#include "blocks.h"
#include "math.h"
#include "../pieces.h"

#define STRIDE (4 * RVM_LANES)

typedef struct {
    const float *x;
    float *out;
    int64_t rows, length, padded;
    RvmGrid grid;
    char *workspace;  /* a row for each thread */
    const float *gamma, *beta;
    float number;     /* the factor, or what is added to the variance */
} Rows;

static RvmGrid divide_rows(const RvmKernelCall *call, const Rows *r) {
    int64_t elements = r->rows * r->padded;
    return rvm_divide(call, rvm_time_for(elements * 16, elements * 8), r->rows, 1);
}

static int64_t row_bytes(const Rows *r) { return rvm_apart(r->padded * 4); }

static int is_of_floats(const RvmBuffer *x) {
    return x->dtype == RVM_DTYPE_F32 && rvm_is_contiguous(x) && rvm_length(x) > 0;
}

/* x and out[..., length]; they may be the same memory, since a row is copied before it is written. */
static int get_rows(const RvmBuffer *x, const RvmBuffer *out, Rows *r) {
    if (x->ndim < 1 || !is_of_floats(x) || !is_of_floats(out) || !rvm_same_shape(x, out) ||
        (x->data != out->data && !rvm_no_overlap(x, out)))
        return 0;
    r->x = (const float *)x->data;
    r->out = (float *)out->data;
    r->length = x->dims[x->ndim - 1];
    r->rows = rvm_length(x) / r->length;
    r->padded = (r->length + STRIDE - 1) / STRIDE * STRIDE;
    return 1;
}

static void fill_row(const Rows *r, int64_t row, float behind, float *to) {
    memcpy(to, r->x + row * r->length, (size_t)r->length * 4);
    for (int64_t i = r->length; i < r->padded; i++) to[i] = behind;
}

/* The sum of a row of whole strides. */
static float sum_of(const float *row, int64_t padded) {
    vf sum[4] = {rvm_all(0), rvm_all(0), rvm_all(0), rvm_all(0)};
    for (int64_t i = 0; i < padded; i += STRIDE)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) sum[j] += rvm_load(row + i + j * RVM_LANES);
    return rvm_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* ---- softmax ------------------------------------------------------------------------------------ */
typedef struct {
    RvmReal scale;
} SoftmaxParams;

static int64_t softmax_workspace(const RvmKernelCall *call) {
    Rows r;
    if (!get_rows(call->buffers, call->buffers + 1, &r)) return -1;
    return divide_rows(call, &r).threads * row_bytes(&r) + RVM_ALIGNMENT;
}

static int softmax_of_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Rows r = *(const Rows *)work;
    RvmPart part = rvm_part(&r.grid, piece);
    float *row = (float *)(r.workspace + thread * row_bytes(&r));
    vf factor = rvm_all(r.number);
    for (int64_t n = part.outer; n < part.outer_end; n++) {
        fill_row(&r, n, 0, row);
        /* The last vectors first: what fills them up has no weight. */
        int64_t last = r.padded - STRIDE;
        for (int64_t i = last; i < r.padded; i += RVM_LANES) rvm_store(row + i, factor * rvm_load(row + i));
        for (int64_t i = r.length; i < r.padded; i++) row[i] = -INFINITY;
        /* A NaN may be lost here: its weight is NaN, and with it the sum and all results. */
        vf most[4];
        for (int j = 0; j < 4; j++) most[j] = rvm_load(row + last + j * RVM_LANES);
        for (int64_t i = 0; i < last; i += STRIDE)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                vf score = factor * rvm_load(row + i + j * RVM_LANES);
                rvm_store(row + i + j * RVM_LANES, score);
                most[j] = rvm_at_least(most[j], score);
            }
        float lanes[RVM_LANES], greatest = -INFINITY;
        rvm_store(lanes, rvm_at_least(rvm_at_least(most[0], most[1]), rvm_at_least(most[2], most[3])));
        for (int i = 0; i < RVM_LANES; i++)
            if (lanes[i] > greatest) greatest = lanes[i];
        vf sum[4] = {rvm_all(0), rvm_all(0), rvm_all(0), rvm_all(0)}, base = rvm_all(greatest);
        for (int64_t i = 0; i < r.padded; i += STRIDE)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                vf power = rvm_weight(rvm_load(row + i + j * RVM_LANES) - base);
                rvm_store(row + i + j * RVM_LANES, power);
                sum[j] += power;
            }
        vf inverse = rvm_all(1.0f / rvm_sum((sum[0] + sum[1]) + (sum[2] + sum[3])));
        float *out = r.out + n * r.length;
        int64_t i = 0;
        for (; i + RVM_LANES <= r.length; i += RVM_LANES) rvm_store(out + i, rvm_load(row + i) * inverse);
        if (i < r.length) {
            rvm_store(row + i, rvm_load(row + i) * inverse);
            memcpy(out + i, row + i, (size_t)(r.length - i) * 4);
        }
        if (rvm_must_stop(call, r.padded * 64)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int softmax(const RvmKernelCall *call) {
    Rows r;
    RvmNumber scale;
    char *workspace = call->workspace;
    if (!get_rows(call->buffers, call->buffers + 1, &r) ||
        !rvm_narrow(&((const SoftmaxParams *)call->params)->scale, RVM_DTYPE_F32, &scale))
        return RVM_ASK_REFERENCE;
    r.number = scale.single;
    r.grid = divide_rows(call, &r);
    r.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &r.grid, softmax_of_rows, &r);
}

/* ---- layer normalization ------------------------------------------------------------------------- */
typedef struct {
    RvmReal epsilon;
} NormParams;

/* x, gamma[length], beta[length] or none, out */
static int get_norm(const RvmBuffer *buffers, Rows *r) {
    const RvmBuffer *gamma = buffers + 1, *beta = buffers + 2, *out = buffers + 3;
    if (!get_rows(buffers, out, r)) return 0;
    for (const RvmBuffer *each = gamma; each <= beta; each++) {
        if (each == beta && beta->flags & RVM_ABSENT) continue;
        if (each->ndim != 1 || !is_of_floats(each) || each->dims[0] != r->length || !rvm_is_input(each, out))
            return 0;
    }
    return 1;
}

static int64_t norm_workspace(const RvmKernelCall *call) {
    Rows r;
    if (!get_norm(call->buffers, &r)) return -1;
    return (divide_rows(call, &r).threads + 2) * row_bytes(&r) + RVM_ALIGNMENT;
}

static float *padded_copy(const Rows *r, const float *from, char **workspace) {
    float *to = (float *)rvm_take(workspace, r->padded * 4);
    memset(to, 0, (size_t)r->padded * 4);
    if (from) memcpy(to, from, (size_t)r->length * 4);
    return to;
}

static int layer_norm_of_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Rows r = *(const Rows *)work;
    RvmPart part = rvm_part(&r.grid, piece);
    float *row = (float *)(r.workspace + thread * row_bytes(&r)), count = (float)r.length;
    const float *gamma = r.gamma, *beta = r.beta;
    for (int64_t n = part.outer; n < part.outer_end; n++) {
        fill_row(&r, n, 0, row);
        vf mean = rvm_all(sum_of(row, r.padded) / count);
        for (int64_t i = 0; i < r.padded; i += RVM_LANES) rvm_store(row + i, rvm_load(row + i) - mean);
        for (int64_t i = r.length; i < r.padded; i++) row[i] = 0;
        vf sum[4] = {rvm_all(0), rvm_all(0), rvm_all(0), rvm_all(0)};
        for (int64_t i = 0; i < r.padded; i += STRIDE)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                vf v = rvm_load(row + i + j * RVM_LANES);
                sum[j] = rvm_fma(v, v, sum[j]);
            }
        float variance = rvm_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) / count;
        vf inverse = rvm_all(1.0f / sqrtf(variance + r.number));
        for (int64_t i = 0; i < r.padded; i += RVM_LANES)
            rvm_store(row + i, rvm_fma(rvm_load(row + i) * inverse, rvm_load(gamma + i), rvm_load(beta + i)));
        memcpy(r.out + n * r.length, row, (size_t)r.length * 4);
        if (rvm_must_stop(call, r.padded * 64)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int layer_norm(const RvmKernelCall *call) {
    Rows r;
    RvmNumber epsilon;
    char *workspace = call->workspace;
    if (!get_norm(call->buffers, &r) ||
        !rvm_narrow(&((const NormParams *)call->params)->epsilon, RVM_DTYPE_F32, &epsilon))
        return RVM_ASK_REFERENCE;
    r.number = epsilon.single;
    r.gamma = padded_copy(&r, (const float *)call->buffers[1].data, &workspace);
    r.beta = padded_copy(&r, (const float *)call->buffers[2].data, &workspace);
    r.grid = divide_rows(call, &r);
    r.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &r.grid, layer_norm_of_rows, &r);
}

/* ---- local response normalization ---------------------------------------------------------------- */
typedef struct {
    int64_t size;
    RvmReal factor, power, bias;
} ResponseParams;

/* x and out[image, channel, pixel] */
typedef struct {
    const float *x;
    float *out;
    int64_t channels, pixels, runs, before, after;
    float factor, bias;
    int is_root;  /* the power is a half, else three quarters */
    RvmGrid grid; /* runs of pixels of all images, and channels */
} Response;

/* Pixels whose channels stay in the cache. */
#define RESPONSE_RUN 256

static inline vf load_some(const float *from, int64_t count) {
    if (count >= RVM_LANES) return rvm_load(from);
    float lanes[RVM_LANES] = {0};
    memcpy(lanes, from, (size_t)count * 4);
    return rvm_load(lanes);
}

static void respond(const Response *r, const float *x, float *out, int64_t channel, int64_t pixels) {
    int64_t first = channel < r->before ? 0 : channel - r->before;
    int64_t last = r->channels - 1 - channel < r->after ? r->channels - 1 : channel + r->after;
    for (int64_t i = 0; i < pixels; i += RVM_LANES) {
        int64_t left = pixels - i;
        vf sum = rvm_all(0);
        for (int64_t k = first; k <= last; k++) {
            vf v = load_some(x + k * r->pixels + i, left);
            sum = rvm_fma(v, v, sum);
        }
        vf root = rvm_sqrt(rvm_fma(rvm_all(r->factor), sum, rvm_all(r->bias)));
        vf result = load_some(x + channel * r->pixels + i, left) / (r->is_root ? root : root * rvm_sqrt(root));
        if (left >= RVM_LANES) {
            rvm_store(out + channel * r->pixels + i, result);
        } else {
            float lanes[RVM_LANES];
            rvm_store(lanes, result);
            memcpy(out + channel * r->pixels + i, lanes, (size_t)left * 4);
        }
    }
}

static int respond_in_runs(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Response *r = (const Response *)work;
    RvmPart part = rvm_part(&r->grid, piece);
    (void)thread;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t first = i % r->runs * RESPONSE_RUN, left = r->pixels - first;
        int64_t at = i / r->runs * r->channels * r->pixels + first, some = left < RESPONSE_RUN ? left : RESPONSE_RUN;
        for (int64_t c = part.inner; c < part.inner_end; c++) {
            respond(r, r->x + at, r->out + at, c, some);
            if (rvm_must_stop(call, some * (r->before + r->after + 8) * 4)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

/* x, out; other powers than a half and three quarters are the reference's. */
static int response(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    const ResponseParams *p = (const ResponseParams *)call->params;
    RvmNumber factor, power, bias;
    if (x->ndim < 2 || !is_of_floats(x) || !is_of_floats(out) || !rvm_same_shape(x, out) || !rvm_no_overlap(x, out) ||
        p->size < 1 || !rvm_narrow(&p->factor, RVM_DTYPE_F32, &factor) ||
        !rvm_narrow(&p->power, RVM_DTYPE_F32, &power) || !rvm_narrow(&p->bias, RVM_DTYPE_F32, &bias) ||
        (power.single != 0.5f && power.single != 0.75f))
        return RVM_ASK_REFERENCE;
    Response r = {.x = (const float *)x->data,
                  .out = (float *)out->data,
                  .channels = x->dims[1],
                  .before = (p->size - 1) / 2,
                  .after = p->size / 2,
                  .factor = factor.single,
                  .bias = bias.single,
                  .is_root = power.single == 0.5f};
    if (r.after > r.channels) r.after = r.channels;
    if (r.before > r.channels) r.before = r.channels;
    int64_t elements = rvm_length(x);
    r.pixels = elements / (x->dims[0] * r.channels);
    r.runs = (r.pixels + RESPONSE_RUN - 1) / RESPONSE_RUN;
    r.grid = rvm_divide(call, rvm_time_for(elements * (r.before + r.after + 24), elements * 8),
                        x->dims[0] * r.runs, r.channels);
    return rvm_run_grid(call, &r.grid, respond_in_runs, &r);
}

static const RvmArgument response_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INT, ResponseParams, size),
    RVM_FIELD(REAL, ResponseParams, factor),
    RVM_FIELD(REAL, ResponseParams, power),
    RVM_FIELD(REAL, ResponseParams, bias),
    RVM_BUFFER(OUT),
};

static const RvmArgument softmax_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(REAL, SoftmaxParams, scale), RVM_BUFFER(OUT)};

static const RvmArgument norm_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(REAL, NormParams, epsilon),
    RVM_BUFFER(OUT),
};

#define OF_ROWS(method, of, arguments, memory)                                               \
    {.name = "norm." #method, .kernel = "nn." of, .run = method, .workspace = memory,        \
     RVM_ARGUMENTS(arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),                       \
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP}

const RvmImplementation RVM_NAME(rvm_norm)[] = {
    OF_ROWS(softmax, "softmax_rows", softmax_arguments, softmax_workspace),
    OF_ROWS(layer_norm, "layer_norm_rows", norm_arguments, norm_workspace),
    {.name = "norm.response", .kernel = "nn.lrn", .run = response, RVM_ARGUMENTS(response_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
