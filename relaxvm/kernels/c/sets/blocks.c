/* Images in blocks of channels (blocks.h): reordering to and from planes, pools, means, gates and concatenation. */
#include "blocks.h"
#include "../pieces.h"

/* ---- reordering ---------------------------------------------------------------------------------- */
#define BYTES (RVM_DTYPE_BIT(RVM_DTYPE_U8) | RVM_DTYPE_BIT(RVM_DTYPE_I8))
#define REORDERED (RVM_DTYPE_BIT(RVM_DTYPE_F32) | BYTES)

static int get_images(const RvmBuffer *planes, const RvmBuffer *blocks) {
    return planes->ndim == 4 && blocks->ndim == 5 && blocks->dims[4] == RVM_BLOCK &&
           rvm_is_contiguous(planes) && rvm_is_contiguous(blocks) && planes->dtype == blocks->dtype &&
           rvm_is_in(REORDERED, planes->dtype) &&
           planes->dims[0] == blocks->dims[0] && planes->dims[2] == blocks->dims[2] &&
           planes->dims[3] == blocks->dims[3] && rvm_length(planes) > 0 &&
           (planes->dims[1] + RVM_BLOCK - 1) / RVM_BLOCK == blocks->dims[1] &&
           rvm_no_overlap(planes, blocks);
}

/* Some pixels of `RVM_BLOCK` planes as lines, or of fewer, with zeros for the rest. */
static void to_lines(const float *x, int64_t area, int channels, int64_t pixel, int64_t end, float *out) {
    if (channels == RVM_BLOCK)
        for (; pixel + RVM_QUAD <= end; pixel += RVM_QUAD)
            for (int c = 0; c < RVM_BLOCK; c += RVM_QUAD)
                rvm_transpose_quad(x + c * area + pixel, area, out + pixel * RVM_BLOCK + c, RVM_BLOCK);
    for (; pixel < end; pixel++)
        for (int c = 0; c < RVM_BLOCK; c++)
            out[pixel * RVM_BLOCK + c] = c < channels ? x[c * area + pixel] : 0.0f;
}

static void from_lines(const float *x, int64_t area, int channels, int64_t pixel, int64_t end, float *out) {
    int whole = channels / RVM_QUAD * RVM_QUAD;
    for (; pixel + RVM_QUAD <= end; pixel += RVM_QUAD) {
        for (int c = 0; c < whole; c += RVM_QUAD)
            rvm_transpose_quad(x + pixel * RVM_BLOCK + c, RVM_BLOCK, out + c * area + pixel, area);
        for (int c = whole; c < channels; c++)
            for (int p = 0; p < RVM_QUAD; p++)
                out[c * area + pixel + p] = x[(pixel + p) * RVM_BLOCK + c];
    }
    for (; pixel < end; pixel++)
        for (int c = 0; c < channels; c++) out[c * area + pixel] = x[pixel * RVM_BLOCK + c];
}

/* ---- the same of bytes ---------------------------------------------------------------------------- */
#if defined(__SSE2__)
/* The transpose of 16 rows of 16 bytes: four times, rows are interleaved with those eight further on. */
static inline void transpose_bytes(__m128i rows[16]) {
    __m128i other[16];
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 8; i++) {
            other[2 * i] = _mm_unpacklo_epi8(rows[i], rows[i + 8]);
            other[2 * i + 1] = _mm_unpackhi_epi8(rows[i], rows[i + 8]);
        }
        memcpy(rows, other, sizeof other);
    }
}
#endif

static void bytes_to_lines(const uint8_t *x, int64_t area, int channels, int64_t pixel, int64_t end,
                           uint8_t *out) {
#if defined(__SSE2__)
    for (; pixel + 16 <= end; pixel += 16) {
        __m128i rows[16];
        for (int c = 0; c < RVM_BLOCK; c++)
            rows[c] = c < channels ? _mm_loadu_si128((const __m128i *)(x + c * area + pixel))
                                   : _mm_setzero_si128();
        transpose_bytes(rows);
        memcpy(out + pixel * RVM_BLOCK, rows, sizeof rows);
    }
#endif
    for (; pixel < end; pixel++)
        for (int c = 0; c < RVM_BLOCK; c++)
            out[pixel * RVM_BLOCK + c] = c < channels ? x[c * area + pixel] : 0;
}

static void bytes_from_lines(const uint8_t *x, int64_t area, int channels, int64_t pixel, int64_t end,
                             uint8_t *out) {
#if defined(__SSE2__)
    for (; pixel + 16 <= end; pixel += 16) {
        __m128i rows[16];
        memcpy(rows, x + pixel * RVM_BLOCK, sizeof rows);
        transpose_bytes(rows);
        for (int c = 0; c < channels; c++) memcpy(out + c * area + pixel, &rows[c], 16);
    }
#endif
    for (; pixel < end; pixel++)
        for (int c = 0; c < channels; c++) out[c * area + pixel] = x[pixel * RVM_BLOCK + c];
}

#define SOME_PIXELS 256

typedef struct {
    char *plane, *block;
    int32_t item;
    int64_t planes, blocks, area; /* of an image */
    int is_back;
    RvmGrid grid;                 /* blocks of all images, and units of SOME_PIXELS */
} Reorder;

static int reorder_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Reorder *r = (const Reorder *)work;
    RvmPart part = rvm_part(&r->grid, piece);
    int64_t pixel = part.inner * SOME_PIXELS, end = part.inner_end * SOME_PIXELS;
    (void)thread;
    if (end > r->area) end = r->area;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t first = i % r->blocks * RVM_BLOCK, left = r->planes - first;
        int channels = left < RVM_BLOCK ? (int)left : RVM_BLOCK;
        char *plane = r->plane + (i / r->blocks * r->planes + first) * r->area * r->item;
        char *block = r->block + i * RVM_BLOCK * r->area * r->item;
        if (r->item == 1 && r->is_back)
            bytes_from_lines((uint8_t *)block, r->area, channels, pixel, end, (uint8_t *)plane);
        else if (r->item == 1)
            bytes_to_lines((uint8_t *)plane, r->area, channels, pixel, end, (uint8_t *)block);
        else if (r->is_back)
            from_lines((float *)(void *)block, r->area, channels, pixel, end, (float *)(void *)plane);
        else
            to_lines((float *)(void *)plane, r->area, channels, pixel, end, (float *)(void *)block);
        if (rvm_must_stop(call, (end - pixel) * RVM_BLOCK * 32)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int reorder(const RvmKernelCall *call, const RvmBuffer *planes, const RvmBuffer *blocks,
                   int is_back) {
    Reorder r = {planes->data, blocks->data, planes->item, planes->dims[1], blocks->dims[1],
                 planes->dims[2] * planes->dims[3], is_back};
    int64_t count = planes->dims[0] * r.blocks, bytes = count * r.area * RVM_BLOCK * 2 * r.item;
    r.grid = rvm_divide(call, rvm_time_for(0, bytes), count, (r.area + SOME_PIXELS - 1) / SOME_PIXELS);
    return rvm_run_grid(call, &r.grid, reorder_some, &r);
}

static int to_blocks(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    return get_images(x, out) ? reorder(call, x, out, 0) : RVM_ASK_REFERENCE;
}

static int from_blocks(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    return get_images(out, x) ? reorder(call, out, x, 1) : RVM_ASK_REFERENCE;
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

typedef struct {
    const float *x;
    float *out;
    Axis rows, columns;
    int count_include_pad;
    int64_t blocks; /* of an image */
    RvmGrid grid;   /* rows of all images, and blocks */
} Pool;

static inline vf pooled(vf a, vf b, int is_mean) { return is_mean ? a + b : rvm_greater(a, b); }

/* A row of windows of three columns side by side: those that windows share are read once.  `from` is the first of
 * `taps` rows, which are `row_step` floats apart; `padded` are the rows that count with padding, 0 without. */
static inline __attribute__((always_inline)) void pool_triples(const Axis *columns, const float *from, int64_t taps,
                                                               int64_t row_step, int64_t padded, float *to,
                                                               int is_mean) {
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        vf none = rvm_all(is_mean ? 0.0f : -INFINITY), last[3] = {none, none, none};
        for (int64_t at = -2; at < columns->results; at++) { /* the windows before the first one have no result */
            int64_t start = at - columns->before, next = start + 2;
            vf column = none;
            if (next >= 0 && next < columns->length)
                for (int64_t ky = 0; ky < taps; ky++)
                    column = pooled(column, rvm_load(from + ky * row_step + next * RVM_BLOCK + lane), is_mean);
            last[0] = last[1];
            last[1] = last[2];
            last[2] = column;
            if (at < 0) continue;
            vf result = pooled(pooled(last[0], last[1], is_mean), last[2], is_mean);
            if (is_mean) {
                int64_t left = start < 0 ? -start : 0, right = columns->length - start;
                int64_t count = taps * ((right < 3 ? right : 3) - left);
                if (padded) count = padded * taps_padded(columns, at);
                result = count > 0 ? result / rvm_all((float)count) : rvm_all(0);
            }
            rvm_store(to + at * RVM_BLOCK + lane, result);
        }
    }
}

/* Rows of results of a block of channels, counted over all images. */
static inline __attribute__((always_inline)) int pool_block(const RvmKernelCall *call, const Pool *p, int64_t n,
                                                            int64_t from_row, int64_t to_row, int is_mean) {
    const Axis rows = p->rows, columns = p->columns;
    const float *from = p->x + n * rows.length * columns.length * RVM_BLOCK;
    float *to = p->out + (n * rows.results + from_row) * columns.results * RVM_BLOCK;
    int are_triples = columns.size == 3 && columns.stride == 1 && columns.dilation == 1;
    for (int64_t y = from_row; y < to_row; y++) {
        int64_t top, bottom;
        taps_inside(&rows, y, &top, &bottom);
        if (are_triples) {
            int64_t padded = is_mean && p->count_include_pad ? taps_padded(&rows, y) : 0;
            int64_t row = bottom > top ? y * rows.stride - rows.before + top * rows.dilation : 0;
            const float *line = from + row * columns.length * RVM_BLOCK;
            int64_t row_step = rows.dilation * columns.length * RVM_BLOCK;
            if (bottom - top == 3)
                pool_triples(&columns, line, 3, row_step, padded, to, is_mean);
            else
                pool_triples(&columns, line, bottom - top, row_step, padded, to, is_mean);
            to += columns.results * RVM_BLOCK;
            if (rvm_must_stop(call, columns.results * (bottom - top + 3) * RVM_BLOCK * 4)) return RVM_FAILED;
            continue;
        }
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
            if (rvm_must_stop(call, ((bottom - top) * (right - left) + 1) * RVM_BLOCK * 8))
                return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static inline __attribute__((always_inline)) int pool_rows(const RvmKernelCall *call, const Pool *p,
                                                           int64_t piece, int is_mean) {
    RvmPart part = rvm_part(&p->grid, piece);
    RvmRows rows;
    while (rvm_take_rows(&part, p->rows.results, &rows))
        for (int64_t b = part.inner; b < part.inner_end; b++)
            if (pool_block(call, p, rows.image * p->blocks + b, rows.first, rows.end, is_mean))
                return RVM_FAILED;
    return RVM_OK;
}

static int max_of_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    (void)thread;
    return pool_rows(call, (const Pool *)work, piece, 0);
}

static int mean_of_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    (void)thread;
    return pool_rows(call, (const Pool *)work, piece, 1);
}

static int pool(const RvmKernelCall *call, RvmPiece piece) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    const PoolParams *p = (const PoolParams *)call->params;
    Pool pool = {(const float *)x->data, (float *)out->data};
    if (x->ndim != 5 || out->ndim != 5 || x->dims[4] != RVM_BLOCK || out->dims[4] != RVM_BLOCK ||
        x->dtype != RVM_DTYPE_F32 || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) ||
        rvm_length(x) == 0 || rvm_length(out) == 0 || !rvm_is_input(x, out) ||
        x->dims[0] != out->dims[0] || x->dims[1] != out->dims[1] || p->size.count != 2 ||
        p->strides.count != 2 || p->padding.count != 4 || p->dilation.count != 2 ||
        !get_pool_axis(p, 0, x, out, &pool.rows) || !get_pool_axis(p, 1, x, out, &pool.columns))
        return RVM_ASK_REFERENCE;
    int64_t lines = x->dims[0] * x->dims[1] * pool.rows.results * pool.columns.results;
    /* An element that is loaded and compared takes about as long as four products. */
    int64_t work = 4 * lines * RVM_BLOCK * pool.rows.size * pool.columns.size;
    pool.count_include_pad = p->count_include_pad == 1;
    pool.blocks = x->dims[1];
    pool.grid = rvm_divide_rows(call, rvm_time_for(work, lines * RVM_BLOCK * 4),
                                x->dims[0] * pool.rows.results, pool.blocks);
    return rvm_run_grid(call, &pool.grid, piece, &pool);
}

static int max_pool(const RvmKernelCall *call) { return pool(call, max_of_rows); }
static int avg_pool(const RvmKernelCall *call) { return pool(call, mean_of_rows); }

/* ---- means and gates ----------------------------------------------------------------------------- */
static int is_image(const RvmBuffer *x) {
    return x->ndim == 5 && x->dims[4] == RVM_BLOCK && x->dtype == RVM_DTYPE_F32 && rvm_is_contiguous(x) &&
           rvm_length(x) > 0;
}

/* x[image, block, 1, 1, 16] for an image of these dimensions. */
static int is_pixel_of(const RvmBuffer *x, const RvmBuffer *image) {
    return is_image(x) && x->dims[0] == image->dims[0] && x->dims[1] == image->dims[1] && x->dims[2] == 1 &&
           x->dims[3] == 1;
}

typedef struct {
    const float *x, *gate, *residual;
    float *out;
    int64_t blocks, rows, columns;
    RvmGrid grid; /* rows of all images, and blocks; of means blocks of all images */
} Pixels;

#define MEAN_SUMS 4

/* The sums of rows, each by sums of every fourth pixel, are added up. */
static int mean_of_blocks(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Pixels *p = (const Pixels *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    const vf count = rvm_all((float)(p->rows * p->columns));
    (void)thread;
    for (int64_t n = part.outer; n < part.outer_end; n++) {
        vf total[RVM_LINE_VECTORS];
        for (int v = 0; v < RVM_LINE_VECTORS; v++) total[v] = rvm_all(0);
        for (int64_t y = 0; y < p->rows; y++) {
            const float *row = p->x + (n * p->rows + y) * p->columns * RVM_BLOCK;
            for (int v = 0; v < RVM_LINE_VECTORS; v++) {
                vf sum[MEAN_SUMS];
                for (int i = 0; i < MEAN_SUMS; i++) sum[i] = rvm_all(0);
                int64_t at = 0;
                for (; at + MEAN_SUMS <= p->columns; at += MEAN_SUMS)
#pragma GCC unroll 4
                    for (int i = 0; i < MEAN_SUMS; i++)
                        sum[i] += rvm_load(row + (at + i) * RVM_BLOCK + v * RVM_LANES);
                for (; at < p->columns; at++) sum[0] += rvm_load(row + at * RVM_BLOCK + v * RVM_LANES);
                total[v] += (sum[0] + sum[1]) + (sum[2] + sum[3]);
            }
            if (rvm_must_stop(call, (p->columns + 1) * RVM_BLOCK * 16)) return RVM_FAILED;
        }
        for (int v = 0; v < RVM_LINE_VECTORS; v++)
            rvm_store(p->out + n * RVM_BLOCK + v * RVM_LANES, total[v] / count);
    }
    return RVM_OK;
}

static int mean(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    if (!is_image(x) || !is_pixel_of(out, x) || !rvm_is_input(x, out)) return RVM_ASK_REFERENCE;
    Pixels p = {.x = (const float *)x->data, .out = (float *)out->data, .rows = x->dims[2], .columns = x->dims[3]};
    p.grid = rvm_divide(call, rvm_time_for(0, rvm_length(x) * 4), x->dims[0] * x->dims[1], 1);
    return rvm_run_grid(call, &p.grid, mean_of_blocks, &p);
}

static int gate_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Pixels *p = (const Pixels *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    RvmRows rows;
    int64_t row = p->columns * RVM_BLOCK;
    (void)thread;
    while (rvm_take_rows(&part, p->rows, &rows))
        for (int64_t b = part.inner; b < part.inner_end; b++) {
            int64_t n = rows.image * p->blocks + b, end = (n * p->rows + rows.end) * row;
            for (int64_t at = (n * p->rows + rows.first) * row; at < end; at += row) {
                for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                    vf gate = rvm_load(p->gate + n * RVM_BLOCK + lane);
                    for (int64_t i = at + lane; i < at + row; i += RVM_BLOCK) {
                        vf v = rvm_load(p->x + i) * gate;
                        if (p->residual) v += rvm_load(p->residual + i);
                        rvm_store(p->out + i, v);
                    }
                }
                if (rvm_must_stop(call, row * 32)) return RVM_FAILED;
            }
        }
    return RVM_OK;
}

/* Operands that are the result's memory are taken: each element is read before it is written. */
static int gate(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *of = x + 1, *residual = x + 2, *out = x + 3;
    if (!is_image(x) || !is_image(out) || !rvm_same_shape(x, out) || !is_pixel_of(of, x) ||
        !rvm_is_input(of, out) || (x->data != out->data && !rvm_no_overlap(x, out)))
        return RVM_ASK_REFERENCE;
    if (!(residual->flags & RVM_ABSENT) &&
        (!is_image(residual) || !rvm_same_shape(residual, out) ||
         (residual->data != out->data && !rvm_no_overlap(residual, out))))
        return RVM_ASK_REFERENCE;
    Pixels p = {.x = (const float *)x->data,
                .gate = (const float *)of->data,
                .residual = (const float *)residual->data,
                .out = (float *)out->data,
                .blocks = x->dims[1],
                .rows = x->dims[2],
                .columns = x->dims[3]};
    p.grid = rvm_divide_rows(call, rvm_time_for(0, rvm_length(x) * 8), x->dims[0] * p.rows, p.blocks);
    return rvm_run_grid(call, &p.grid, gate_rows, &p);
}

/* ---- channels after each other -------------------------------------------------------------------- */

typedef struct {
    int64_t axis;
} ConcatParams;

typedef struct {
    const RvmBuffer *x; /* images, of which `blocks` together */
    int64_t blocks, rows, row;
    char *out;
    RvmGrid grid;
} Concat;

static int concat_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Concat *c = (const Concat *)work;
    RvmPart part = rvm_part(&c->grid, piece);
    RvmRows rows;
    (void)thread;
    while (rvm_take_rows(&part, c->rows, &rows)) {
        const RvmBuffer *x = c->x;
        int64_t before = 0, bytes = (rows.end - rows.first) * c->row;
        for (int64_t b = part.inner; b < part.inner_end; b++) {
            while (b >= before + x->dims[1]) before += (x++)->dims[1];
            int64_t from = (rows.image * x->dims[1] + b - before) * c->rows + rows.first;
            int64_t to = (rows.image * c->blocks + b) * c->rows + rows.first;
            memcpy(c->out + to * c->row, x->data + from * c->row, (size_t)bytes);
            if (rvm_must_stop(call, bytes / 2)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int concat(const RvmKernelCall *call) {
    int count = call->count - 1, axis;
    const RvmBuffer *x = call->buffers, *out = &x[count];
    int64_t total = 0;
    if (count < 1 || !is_image(out) || !rvm_axis(((const ConcatParams *)call->params)->axis, 5, &axis) || axis != 1)
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < count; i++) {
        if (!is_image(&x[i]) || !rvm_is_input(&x[i], out) || x[i].dims[0] != out->dims[0] ||
            x[i].dims[2] != out->dims[2] || x[i].dims[3] != out->dims[3] || x[i].dims[1] > out->dims[1] - total)
            return RVM_ASK_REFERENCE;
        total += x[i].dims[1];
    }
    if (total != out->dims[1]) return RVM_ASK_REFERENCE;
    Concat c = {.x = x, .blocks = total, .rows = out->dims[2], .row = out->dims[3] * RVM_BLOCK * 4, .out = out->data};
    c.grid = rvm_divide_rows(call, rvm_time_for(0, rvm_length(out) * 8), out->dims[0] * c.rows, total);
    return rvm_run_grid(call, &c.grid, concat_rows, &c);
}

static const RvmArgument concat_arguments[] = {
    RVM_BUFFER(TENSORS), RVM_FIELD(INT, ConcatParams, axis), RVM_BUFFER(OUT)};

static const RvmArgument gate_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
                                             RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(OUT)};

static const RvmArgument reorder_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};

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

#define OF_BLOCKS_OF(types, method, of, arguments, error)                                    \
    {.name = "blocks." #method, .kernel = "nn." of, .run = method, RVM_ARGUMENTS(arguments), \
     .dtypes = types, .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = error}
#define OF_BLOCKS(method, of, arguments, error) \
    OF_BLOCKS_OF(RVM_DTYPE_BIT(RVM_DTYPE_F32), method, of, arguments, error)

const RvmImplementation RVM_NAME(rvm_blocks)[] = {
    OF_BLOCKS_OF(REORDERED, to_blocks, "to_blocks", reorder_arguments, 0),
    OF_BLOCKS_OF(REORDERED, from_blocks, "from_blocks", reorder_arguments, 0),
    OF_BLOCKS(max_pool, "max_pool2d_blocks", max_pool_arguments, 0),
    OF_BLOCKS(avg_pool, "avg_pool2d_blocks", avg_pool_arguments, RVM_SUM_ULP),
    OF_BLOCKS(mean, "mean_blocks", reorder_arguments, RVM_SUM_ULP),
    OF_BLOCKS(gate, "gate_blocks", gate_arguments, RVM_SUM_ULP),
    {.name = "blocks.concat", .kernel = "concat", .run = concat, RVM_ARGUMENTS(concat_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1},
    {.name = NULL},
};
