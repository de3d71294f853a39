/* Images in blocks of channels (blocks.h): reordering to and from planes, and pools.  Other transposes. */
#include "blocks.h"

/* ---- reordering ---------------------------------------------------------------------------------- */
#define QUAD 4 /* pixels and channels that are transposed at once */

/* to[i][j] = from[j][i] for four rows of four; steps in floats. */
static inline void transpose_quad(const float *from, int64_t from_step, float *to, int64_t to_step) {
#if defined(__SSE2__)
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_step),
           c = _mm_loadu_ps(from + 2 * from_step), d = _mm_loadu_ps(from + 3 * from_step);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_step, b);
    _mm_storeu_ps(to + 2 * to_step, c);
    _mm_storeu_ps(to + 3 * to_step, d);
#else
    for (int i = 0; i < QUAD; i++)
        for (int j = 0; j < QUAD; j++) to[i * to_step + j] = from[j * from_step + i];
#endif
}

static int get_images(const RvmBuffer *planes, const RvmBuffer *blocks) {
    return planes->ndim == 4 && blocks->ndim == 5 && blocks->dims[4] == RVM_BLOCK &&
           rvm_is_contiguous(planes) && rvm_is_contiguous(blocks) &&
           planes->dtype == RVM_DTYPE_F32 && blocks->dtype == RVM_DTYPE_F32 &&
           planes->dims[0] == blocks->dims[0] && planes->dims[2] == blocks->dims[2] &&
           planes->dims[3] == blocks->dims[3] && rvm_length(planes) > 0 &&
           (planes->dims[1] + RVM_BLOCK - 1) / RVM_BLOCK == blocks->dims[1] &&
           rvm_no_overlap(planes, blocks);
}

/* Rows of `RVM_BLOCK` planes as lines, or fewer, with zeros for the rest. */
static void to_lines(const float *x, int64_t area, int channels, float *out) {
    int64_t pixel = 0;
    if (channels == RVM_BLOCK)
        for (; pixel + QUAD <= area; pixel += QUAD)
            for (int c = 0; c < RVM_BLOCK; c += QUAD)
                transpose_quad(x + c * area + pixel, area, out + pixel * RVM_BLOCK + c, RVM_BLOCK);
    for (; pixel < area; pixel++)
        for (int c = 0; c < RVM_BLOCK; c++)
            out[pixel * RVM_BLOCK + c] = c < channels ? x[c * area + pixel] : 0.0f;
}

static void from_lines(const float *x, int64_t area, int channels, float *out) {
    int64_t pixel = 0;
    int whole = channels / QUAD * QUAD;
    for (; pixel + QUAD <= area; pixel += QUAD) {
        for (int c = 0; c < whole; c += QUAD)
            transpose_quad(x + pixel * RVM_BLOCK + c, RVM_BLOCK, out + c * area + pixel, area);
        for (int c = whole; c < channels; c++)
            for (int p = 0; p < QUAD; p++)
                out[c * area + pixel + p] = x[(pixel + p) * RVM_BLOCK + c];
    }
    for (; pixel < area; pixel++)
        for (int c = 0; c < channels; c++) out[c * area + pixel] = x[pixel * RVM_BLOCK + c];
}

static int reorder(const RvmKernelCall *call, const RvmBuffer *planes, const RvmBuffer *blocks,
                   int is_back) {
    int64_t area = planes->dims[2] * planes->dims[3], done = 0;
    float *plane = (float *)planes->data, *block = (float *)blocks->data;
    for (int64_t n = 0; n < planes->dims[0]; n++)
        for (int64_t c = 0; c < planes->dims[1]; c += RVM_BLOCK) {
            int64_t left = planes->dims[1] - c;
            int channels = left < RVM_BLOCK ? (int)left : RVM_BLOCK;
            if (is_back) from_lines(block, area, channels, plane);
            else to_lines(plane, area, channels, block);
            plane += channels * area;
            block += RVM_BLOCK * area;
            if (rvm_must_stop(call, &done, area * RVM_BLOCK * 32)) return RVM_FAILED;
        }
    return RVM_OK;
}

static int to_blocks(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    return get_images(x, out) ? reorder(call, x, out, 0) : RVM_ASK_REFERENCE;
}

static int from_blocks(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    return get_images(out, x) ? reorder(call, out, x, 1) : RVM_ASK_REFERENCE;
}

/* ---- transposes ----------------------------------------------------------------------------------- */
typedef struct {
    RvmInts axes;
} PermuteParams;

/* Axes in the order of the result: lengths, and the distance of neighbours along them, in x and in the
 * result, in elements. */
typedef struct {
    int64_t dims[RVM_MAX_DIMS], from[RVM_MAX_DIMS], to[RVM_MAX_DIMS];
    int ndim;
} Order;

/* The axes longer than 1; those that follow each other in x, too, are joined. */
static int get_order(const RvmKernelCall *call, Order *order) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    const PermuteParams *params = (const PermuteParams *)call->params;
    int axes[RVM_MAX_DIMS], ndim = x->ndim, given = 0, n = 0;
    if (params->axes.count == RVM_NO_INTS) {
        for (; given < ndim; given++) axes[given] = ndim - 1 - given;
    } else {
        given = rvm_axes(&params->axes, ndim, axes);
    }
    if (given != ndim || out->ndim != ndim || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) ||
        !rvm_is_input(x, out) || x->item != 4)
        return 0;
    for (int i = 0; i < ndim; i++) {
        if (out->dims[i] != x->dims[axes[i]]) return 0;
        if (out->dims[i] == 1) continue;
        int64_t from = x->strides[axes[i]] / 4, dim = out->dims[i];
        if (n > 0 && order->from[n - 1] == dim * from) {
            n--;
            dim *= order->dims[n];
        }
        order->dims[n] = dim;
        order->from[n] = from;
        order->to[n++] = out->strides[i] / 4;
    }
    order->ndim = n;
    return 1;
}

/* to[i][j] = from[j][i] for `rows` rows of `columns`; steps in floats.  A line of x is read once. */
static int transpose_matrix(const RvmKernelCall *call, const float *from, int64_t from_step, float *to,
                            int64_t to_step, int64_t rows, int64_t columns, int64_t *done) {
    for (int64_t first = 0; first < rows; first += RVM_BLOCK) {
        int64_t last = first + RVM_BLOCK < rows ? first + RVM_BLOCK : rows, whole = columns / QUAD * QUAD;
        int64_t quads = first + (last - first) / QUAD * QUAD;
        for (int64_t j = 0; j < whole; j += QUAD) {
            for (int64_t i = first; i < quads; i += QUAD)
                transpose_quad(from + j * from_step + i, from_step, to + i * to_step + j, to_step);
            for (int64_t i = quads; i < last; i++)
                for (int k = 0; k < QUAD; k++) to[i * to_step + j + k] = from[(j + k) * from_step + i];
        }
        for (int64_t j = whole; j < columns; j++)
            for (int64_t i = first; i < last; i++) to[i * to_step + j] = from[j * from_step + i];
        if (rvm_must_stop(call, done, (last - first) * columns * 16)) return 1;
    }
    return 0;
}

/* out's axis i is x's axis axes[i]: runs of elements that follow each other in both are copied; else the
 * last axis of the result and the last one of x are those of matrices, which are transposed. */
static int transpose(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    const float *from = (const float *)x->data;
    float *to = (float *)out->data;
    int64_t at[RVM_MAX_DIMS] = {0}, done = 0;
    Order o;
    if (!get_order(call, &o)) return RVM_ASK_REFERENCE;
    if (rvm_length(out) == 0) return RVM_OK;
    if (o.ndim == 0) {
        memcpy(to, from, 4);
        return RVM_OK;
    }
    int last = o.ndim - 1, inner = last;
    while (o.from[inner] != 1) inner--; /* the last axis of x */
    for (;;) {
        if (inner == last) {
            memcpy(to, from, (size_t)o.dims[last] * 4);
            if (rvm_must_stop(call, &done, o.dims[last] * 4 + 16)) return RVM_FAILED;
        } else if (transpose_matrix(call, from, o.from[last], to, o.to[inner], o.dims[inner], o.dims[last],
                                    &done)) {
            return RVM_FAILED;
        }
        int axis = last - 1;
        for (; axis >= 0; axis--) {
            RVM_FEW_TURNS;
            if (axis == inner) continue;
            from += o.from[axis];
            to += o.to[axis];
            if (++at[axis] < o.dims[axis]) break;
            from -= o.dims[axis] * o.from[axis];
            to -= o.dims[axis] * o.to[axis];
            at[axis] = 0;
        }
        if (axis < 0) return RVM_OK;
    }
}

/* ---- pools --------------------------------------------------------------------------------------- */
typedef struct {
    RvmInts size, strides, padding, dilation;
    int64_t ceil_mode, count_include_pad;
} PoolParams;

/* Windows along an axis. */
typedef struct {
    int64_t length, results, size, stride, dilation, before, after;
} Axis;

static int get_pool_axis(const PoolParams *p, int i, const RvmBuffer *x, const RvmBuffer *out, Axis *axis) {
    Axis a = {x->dims[2 + i], out->dims[2 + i], p->size.values[i], p->strides.values[i],
              p->dilation.values[i], p->padding.values[i], p->padding.values[i + 2]};
    *axis = a;
    if (a.size < 1 || a.size > 1 << 16 || a.stride < 1 || a.stride > 1 << 16 || a.dilation < 1 ||
        a.dilation > 1 << 16 || a.before < 0 || a.before > 1 << 16 || a.after < 0 || a.after > 1 << 16)
        return 0;
    int64_t room = a.length + a.before + a.after - ((a.size - 1) * a.dilation + 1);
    if (room < 0) return 0;
    int64_t steps = room / a.stride;
    /* One more window, unless it begins in the padding after the image. */
    if (p->ceil_mode && room % a.stride) steps += (steps + 1) * a.stride < a.length + a.before;
    return steps + 1 == a.results;
}

/* The taps of a window that are on an image: [first, last). */
static inline void taps_inside(const Axis *a, int64_t at, int64_t *first, int64_t *last) {
    int64_t start = at * a->stride - a->before;
    *first = start >= 0 ? 0 : (-start + a->dilation - 1) / a->dilation;
    *last = start >= a->length ? 0 : (a->length - 1 - start) / a->dilation + 1;
    if (*last > a->size) *last = a->size;
    if (*first > *last) *first = *last;
}

/* How many taps of a window count: those on the padded image. */
static inline int64_t taps_padded(const Axis *a, int64_t at) {
    int64_t start = at * a->stride, length = a->length + a->before + a->after;
    int64_t last = start >= length ? 0 : (length - 1 - start) / a->dilation + 1;
    return last > a->size ? a->size : last;
}

static inline __attribute__((always_inline)) int pool(const RvmKernelCall *call, int is_mean) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    const PoolParams *p = (const PoolParams *)call->params;
    Axis rows, columns;
    if (x->ndim != 5 || out->ndim != 5 || x->dims[4] != RVM_BLOCK || out->dims[4] != RVM_BLOCK ||
        x->dtype != RVM_DTYPE_F32 || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) ||
        rvm_length(x) == 0 || rvm_length(out) == 0 || !rvm_is_input(x, out) ||
        x->dims[0] != out->dims[0] || x->dims[1] != out->dims[1] || p->size.count != 2 ||
        p->strides.count != 2 || p->padding.count != 4 || p->dilation.count != 2 ||
        !get_pool_axis(p, 0, x, out, &rows) || !get_pool_axis(p, 1, x, out, &columns))
        return RVM_ASK_REFERENCE;
    const float *from = (const float *)x->data;
    float *to = (float *)out->data;
    int64_t done = 0;
    for (int64_t n = 0; n < x->dims[0] * x->dims[1]; n++) {
        for (int64_t y = 0; y < rows.results; y++) {
            int64_t top, bottom;
            taps_inside(&rows, y, &top, &bottom);
            for (int64_t at = 0; at < columns.results; at++) {
                int64_t left, right;
                taps_inside(&columns, at, &left, &right);
                int64_t taps = (bottom - top) * (right - left);
                if (is_mean && p->count_include_pad)
                    taps = taps_padded(&rows, y) * taps_padded(&columns, at);
                for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                    vf result = rvm_all(is_mean ? 0.0f : -INFINITY);
                    for (int64_t ky = top; ky < bottom; ky++) {
                        int64_t row = y * rows.stride - rows.before + ky * rows.dilation;
                        int64_t first = at * columns.stride - columns.before;
                        const float *line =
                            from + (row * columns.length + first) * RVM_BLOCK + lane;
                        for (int64_t kx = left; kx < right; kx++) {
                            vf v = rvm_load(line + kx * columns.dilation * RVM_BLOCK);
                            result = is_mean ? result + v : rvm_greater(result, v);
                        }
                    }
                    if (is_mean) result = taps ? result / rvm_all((float)taps) : rvm_all(0);
                    rvm_store(to + lane, result);
                }
                to += RVM_BLOCK;
                if (rvm_must_stop(call, &done, ((bottom - top) * (right - left) + 1) * RVM_BLOCK * 8))
                    return RVM_FAILED;
            }
        }
        from += rows.length * columns.length * RVM_BLOCK;
    }
    return RVM_OK;
}

static int max_pool(const RvmKernelCall *call) { return pool(call, 0); }
static int avg_pool(const RvmKernelCall *call) { return pool(call, 1); }

static const RvmArgument reorder_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};

static const RvmArgument permute_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(EACH_INT, PermuteParams, axes), RVM_BUFFER(OUT)};

static const RvmArgument max_pool_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, PoolParams, size),
    RVM_FIELD(INTS, PoolParams, strides),
    RVM_FIELD(INTS, PoolParams, padding),
    RVM_FIELD(INTS, PoolParams, dilation),
    RVM_FIELD(FLAG, PoolParams, ceil_mode),
    RVM_BUFFER(OUT),
};

static const RvmArgument avg_pool_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, PoolParams, size),
    RVM_FIELD(INTS, PoolParams, strides),
    RVM_FIELD(INTS, PoolParams, padding),
    RVM_FIELD(INTS, PoolParams, dilation),
    RVM_FIELD(FLAG, PoolParams, ceil_mode),
    RVM_FIELD(FLAG, PoolParams, count_include_pad),
    RVM_BUFFER(OUT),
};

#define OF_BLOCKS(method, of, arguments, error)                                              \
    {.name = "blocks." #method, .kernel = "nn." of, .run = method, RVM_ARGUMENTS(arguments), \
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, \
     .ulp = error}

const RvmImplementation RVM_NAME(rvm_blocks)[] = {
    OF_BLOCKS(to_blocks, "to_blocks", reorder_arguments, 0),
    OF_BLOCKS(from_blocks, "from_blocks", reorder_arguments, 0),
    OF_BLOCKS(max_pool, "max_pool2d_blocks", max_pool_arguments, 0),
    OF_BLOCKS(avg_pool, "avg_pool2d_blocks", avg_pool_arguments, RVM_SUM_ULP),
    {.name = "blocks.transpose", .kernel = "permute_dims", .run = transpose,
     RVM_ARGUMENTS(permute_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32) | RVM_DTYPE_BIT(RVM_DTYPE_I32) |
               RVM_DTYPE_BIT(RVM_DTYPE_U32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1},
    {.name = NULL},
};
