/* Attention: softmax(query * key transposed * scale + bias) * value, for each head.
 *
 * The keys of a head are packed into blocks of 16 columns, its values into blocks of 16 channels, so that
 * both products are tiles of linear layers: 1 to 14 queries at once, by set, times a block.  Scores of a tile
 * of queries stay in the cache.  Of many keys they are computed for some of them at a time, with a running
 * maximum and sum: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al.,
 * "FlashAttention", 2022.  Which keys are taken at a time depends on their number alone.
 *
 * For few queries, as in a decoder with a cache, packing would take longer than the products: keys are
 * multiplied where they are, and so are values.
 */
#include "math.h"
#include "../pieces.h"
#include "tiles.h"

#define KEYS_AT_ONCE 256
#define KEYS_IN_ONE 512 /* up to so many keys are taken at once */

typedef struct {
    RvmReal scale;
    int64_t mask; /* the place in `masks`, or RVM_NO_INT */
    int64_t by_head;
} AttentionParams;

enum { TOP_LEFT, BOTTOM_RIGHT };
static const char *const masks[] = {"TopLeft", "BottomRight", NULL};

/* Steps in floats. */
typedef struct {
    const float *data;
    int64_t batch, head, row;
} Operand;

typedef struct {
    int64_t batch, queries, keys, heads, width, depth;
    int64_t times; /* heads of queries in a row that have keys and values in common */
    Operand query, key, value;
    float *out;            /* [batch, queries, heads, depth] */
    int64_t visible;       /* query i sees keys before i + visible; all, if that is INT64_MAX / 2 */
    const float *bias;     /* NULL for none */
    int64_t bias_steps[4]; /* batch, heads, queries, keys */
    float scale;
    int64_t keys_at_once;
    RvmGrid grid;          /* heads of all examples, and tiles of queries */
    char *workspace;
} Attention;

static int is_whole(const RvmBuffer *x) {
    return x->ndim == 4 && x->dtype == RVM_DTYPE_F32 && rvm_is_contiguous(x) && rvm_length(x) > 0;
}

/* Rows in one piece, wherever they are: the start of a longer cache is read in place. */
static int has_rows(const RvmBuffer *x) {
    if (x->ndim != 4 || x->dtype != RVM_DTYPE_F32 || rvm_length(x) <= 0) return 0;
    for (int i = 0; i < 3; i++)
        if (x->strides[i] % 4) return 0;
    return x->strides[3] == 4 || x->dims[3] == 1;
}

/* query, key, value: [batch, length, heads, size], or [batch, heads, length, size] if they are by head */
static int get_attention(const RvmKernelCall *call, Attention *a) {
    const RvmBuffer *q = call->buffers, *k = q + 1, *v = q + 2, *bias = q + 3, *out = q + 4;
    const AttentionParams *params = (const AttentionParams *)call->params;
    int length = params->by_head ? 2 : 1, head = params->by_head ? 1 : 2;
    RvmNumber scale;
    for (const RvmBuffer *each = q; each <= v; each++)
        if (!has_rows(each) || !rvm_is_input(each, out)) return 0;
    if (!is_whole(out)) return 0;
    a->batch = q->dims[0];
    a->queries = q->dims[length];
    a->heads = q->dims[head];
    a->width = q->dims[3];
    a->keys = k->dims[length];
    a->depth = v->dims[3];
    const int64_t out_dims[4] = {a->batch, a->queries, a->heads, a->depth};
    int64_t shared = k->dims[head];
    a->times = a->heads / shared;
    if (k->dims[0] != a->batch || v->dims[0] != a->batch || a->times * shared != a->heads ||
        v->dims[head] != shared || v->dims[length] != a->keys || k->dims[3] != a->width ||
        !rvm_same_dims(out->dims, out_dims, 4))
        return 0;
    Operand *operands[3] = {&a->query, &a->key, &a->value};
    for (int i = 0; i < 3; i++) {
        const RvmBuffer *x = q + i;
        Operand operand = {(const float *)x->data, x->strides[0] / 4, x->strides[head] / 4,
                           x->strides[length] / 4};
        *operands[i] = operand;
    }
    a->out = (float *)out->data;
    a->visible = INT64_MAX / 2;
    if (params->mask == TOP_LEFT) a->visible = 1;
    if (params->mask == BOTTOM_RIGHT) a->visible = a->keys - a->queries + 1;
    a->scale = 1.0f / sqrtf((float)a->width);
    if (params->scale.is_given) {
        if (!rvm_narrow(&params->scale, RVM_DTYPE_F32, &scale)) return 0;
        a->scale = scale.single;
    }
    a->keys_at_once = a->keys <= KEYS_IN_ONE ? lines_of(a->keys) : KEYS_AT_ONCE;
    a->bias = NULL;
    if (!(bias->flags & RVM_ABSENT)) {
        const int64_t dims[4] = {a->batch, a->heads, a->queries, a->keys};
        if (!is_whole(bias) || !rvm_is_input(bias, out)) return 0;
        int64_t step = 1;
        for (int i = 3; i >= 0; i--) {
            if (bias->dims[i] != 1 && bias->dims[i] != dims[i]) return 0;
            a->bias_steps[i] = bias->dims[i] == 1 ? 0 : step;
            step *= bias->dims[i];
        }
        a->bias = (const float *)bias->data;
    }
    int64_t scores = a->batch * a->heads * a->queries * a->keys;
    int64_t read = a->batch * a->heads * a->keys * (a->width + a->depth) * 4;
    a->grid = rvm_divide(call, rvm_time_for(scores * (a->width + a->depth + 16), read),
                         a->batch * a->heads, (a->queries + RVM_TILE_PIXELS - 1) / RVM_TILE_PIXELS);
    return 1;
}

/* The memory of a thread: packed keys and values, a tile of queries and its scores, sums of values. */
typedef struct {
    float *keys, *values, *query, *scores, *sums, *part;
} Memory;

static int is_packed(const Attention *a) { return a->queries > FEW_ROWS; }

static int64_t memory_bytes(const Attention *a) {
    int64_t keys = is_packed(a) ? lines_of(a->keys) : 0, depth = lines_of(a->depth);
    return rvm_apart(rvm_aligned(4 * keys * a->width) + rvm_aligned(4 * keys * depth) +
                     rvm_aligned(4 * MOST_ROWS * lines_of(a->width)) + rvm_aligned(4 * MOST_ROWS * a->keys_at_once) +
                     2 * rvm_aligned(4 * MOST_ROWS * depth));
}

static Memory memory_of(const Attention *a, char *workspace) {
    int64_t keys = is_packed(a) ? lines_of(a->keys) : 0, depth = lines_of(a->depth);
    Memory m;
    m.keys = (float *)rvm_take(&workspace, 4 * keys * a->width);
    m.values = (float *)rvm_take(&workspace, 4 * keys * depth);
    m.query = (float *)rvm_take(&workspace, 4 * MOST_ROWS * lines_of(a->width));
    m.scores = (float *)rvm_take(&workspace, 4 * MOST_ROWS * a->keys_at_once);
    m.sums = (float *)rvm_take(&workspace, 4 * MOST_ROWS * depth);
    m.part = (float *)rvm_take(&workspace, 4 * MOST_ROWS * depth);
    return m;
}

static int64_t attention_workspace(const RvmKernelCall *call) {
    Attention a;
    if (!get_attention(call, &a)) return -1;
    return a.grid.threads * memory_bytes(&a) + RVM_ALIGNMENT;
}

/* to[block][channel][16 keys] */
static void pack_keys(const Attention *a, const float *x, float *to) {
    for (int64_t first = 0; first < a->keys; first += LINE, to += a->width * LINE) {
        int64_t some = a->keys - first < LINE ? a->keys - first : LINE;
        int64_t whole = some < LINE ? 0 : a->width / RVM_QUAD * RVM_QUAD;
        if (some < LINE) memset(to, 0, (size_t)(a->width * LINE) * 4);
        for (int64_t key = 0; whole && key < LINE; key += RVM_QUAD)
            for (int64_t c = 0; c < whole; c += RVM_QUAD)
                rvm_transpose_quad(x + (first + key) * a->key.row + c, a->key.row, to + c * LINE + key, LINE);
        for (int64_t key = 0; key < some; key++)
            for (int64_t c = whole; c < a->width; c++)
                to[c * LINE + key] = x[(first + key) * a->key.row + c];
    }
}

/* to[block of channels][key][16], with zeros for keys and channels that are not there */
static void pack_values(const Attention *a, const float *x, float *to) {
    int64_t keys = lines_of(a->keys);
    for (int64_t c = 0; c < a->depth; c += LINE, to += keys * LINE) {
        int64_t some = a->depth - c < LINE ? a->depth - c : LINE;
        memset(to + a->keys * LINE, 0, (size_t)((keys - a->keys) * LINE) * 4);
        for (int64_t key = 0; key < a->keys; key++) {
            float *line = to + key * LINE;
            if (some < LINE) memset(line, 0, LINE * 4);
            memcpy(line, x + key * a->value.row + c, (size_t)some * 4);
        }
    }
}

/* A tile of queries in lines, times the scale. */
static void pack_queries(const Attention *a, const float *x, int rows, float *to) {
    for (int64_t c = 0; c < a->width; c += LINE) {
        int64_t some = a->width - c < LINE ? a->width - c : LINE;
        for (int r = 0; r < rows; r++, to += LINE) {
            for (int64_t i = 0; i < some; i++) to[i] = x[r * a->query.row + c + i] * a->scale;
            for (int64_t i = some; i < LINE; i++) to[i] = 0;
        }
    }
}

/* Add the bias of keys from `first` to `last` to a row of scores, whose blocks are `step` floats apart. */
static void add_bias(const float *bias, int64_t bias_step, int64_t first, int64_t last, float *row,
                     int64_t step) {
    for (int64_t k = first; k < last; k += LINE, row += step) {
        int64_t some = last - k < LINE ? last - k : LINE;
        if (some == LINE && bias_step == 1)
            for (int lane = 0; lane < LINE; lane += RVM_LANES)
                rvm_store(row + lane, rvm_load(row + lane) + rvm_load(bias + k + lane));
        else
            for (int64_t i = 0; i < some; i++) row[i] += bias[(k + i) * bias_step];
    }
}

/* -infinity for keys from `end` on, of a row of `blocks` blocks. */
static void hide(int64_t end, int64_t blocks, float *row, int64_t step) {
    for (int64_t k = end < 0 ? 0 : end; k < blocks * LINE; k++) row[k / LINE * step + k % LINE] = -INFINITY;
}

/* Turn a row of scores into powers of e relative to the greatest score so far; add them to `total`.  Return
 * by which factor what was summed up before has to be multiplied. */
static float weigh_row(float *row, int64_t blocks, int64_t step, float *greatest, float *total) {
    vf most = rvm_all(*greatest), sum[2] = {rvm_all(0), rvm_all(0)};
    for (int64_t b = 0; b < blocks; b++)
        for (int lane = 0; lane < LINE; lane += RVM_LANES)
            most = rvm_greater(most, rvm_load(row + b * step + lane));
    float lanes[RVM_LANES], now = -INFINITY, before = *greatest;
    rvm_store(lanes, most);
    for (int i = 0; i < RVM_LANES; i++)
        if (lanes[i] > now || lanes[i] != lanes[i]) now = lanes[i];
    vf base = rvm_all(now == -INFINITY ? 0.0f : now);
    for (int64_t b = 0; b < blocks; b++)
        for (int lane = 0; lane < LINE; lane += RVM_LANES) {
            vf power = rvm_weight(rvm_load(row + b * step + lane) - base);
            rvm_store(row + b * step + lane, power);
            sum[b & 1] += power;
        }
    float factor = 1;
    if (now != before) {
        rvm_store(lanes, rvm_exp(rvm_all(before) - base));
        factor = lanes[0];
    }
    *greatest = now;
    *total = *total * factor + rvm_sum(sum[0] + sum[1]);
    return factor;
}

/* Scores of few queries: rows of keys where they are.  scores[block][row][16 keys] */
static inline __attribute__((always_inline)) void few_keys(const Attention *a, const float *keys, int rows,
                                                           const float *query, int64_t first, int64_t last,
                                                           float *scores) {
    int64_t whole = a->width / LINE * LINE;
    for (int64_t k = first; k < last; k++) {
        const float *key = keys + k * a->key.row;
        vf sum[FEW_ROWS];
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) sum[r] = rvm_all(0);
        for (int64_t c = 0; c < whole; c += LINE)
#pragma GCC unroll 4
            for (int lane = 0; lane < LINE; lane += RVM_LANES) {
                vf value = rvm_load(key + c + lane);
#pragma GCC unroll 3
                for (int r = 0; r < rows; r++)
                    sum[r] = rvm_fma(value, rvm_load(query + c * rows + r * LINE + lane), sum[r]);
            }
        float *to = scores + (k - first) / LINE * rows * LINE + (k - first) % LINE;
#pragma GCC unroll 3
        for (int r = 0; r < rows; r++) {
            float score = rvm_sum(sum[r]);
            for (int64_t c = whole; c < a->width; c++)
                score += key[c] * query[whole * rows + r * LINE + c - whole];
            to[r * LINE] = score;
        }
    }
}

/* part[row][depth] = sums of values by weights, where they are: `lines` lines of channels from `c` on. */
static inline __attribute__((always_inline)) void few_values(const float *values, int64_t value_row,
                                                             int64_t keys, int rows, int lines,
                                                             const float *weights, float *part,
                                                             int64_t depth) {
    vf sum[FEW_ROWS][FEW_ROWS_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < lines * RVM_LINE_VECTORS; v++) sum[r][v] = rvm_all(0);
    for (int64_t k = 0; k < keys; k++, values += value_row) {
        const float *weight = weights + k / LINE * rows * LINE + k % LINE;
#pragma GCC unroll 16
        for (int v = 0; v < lines * RVM_LINE_VECTORS; v++) {
            vf x = rvm_load(values + v * RVM_LANES);
#pragma GCC unroll 3
            for (int r = 0; r < rows; r++) sum[r][v] = rvm_fma(rvm_all(weight[r * LINE]), x, sum[r][v]);
        }
    }
#pragma GCC unroll 3
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < lines * RVM_LINE_VECTORS; v++) rvm_store(part + r * depth + v * RVM_LANES, sum[r][v]);
}

static inline __attribute__((always_inline)) void few_of_rows(const Attention *a, const float *values,
                                                              int64_t keys, int rows, const float *weights,
                                                              float *part) {
    int64_t depth = lines_of(a->depth), c = 0;
    for (; c + FEW_ROWS_BLOCKS * LINE <= a->depth; c += FEW_ROWS_BLOCKS * LINE)
        few_values(values + c, a->value.row, keys, rows, FEW_ROWS_BLOCKS, weights, part + c, depth);
    for (; c + LINE <= a->depth; c += LINE)
        few_values(values + c, a->value.row, keys, rows, 1, weights, part + c, depth);
    for (int r = 0; c < a->depth && r < rows; r++)
        for (int64_t i = c; i < depth; i++) {
            float sum = 0;
            for (int64_t k = 0; i < a->depth && k < keys; k++)
                sum += weights[k / LINE * rows * LINE + r * LINE + k % LINE] * values[k * a->value.row + i];
            part[r * depth + i] = sum;
        }
}

static void multiply_few_keys(const Attention *a, const float *keys, int rows, const float *query,
                              int64_t first, int64_t last, float *scores) {
    switch (rows) {
        case 1: few_keys(a, keys, 1, query, first, last, scores); break;
        case 2: few_keys(a, keys, 2, query, first, last, scores); break;
        default: few_keys(a, keys, 3, query, first, last, scores);
    }
}

static void multiply_few_values(const Attention *a, const float *values, int64_t keys, int rows,
                                const float *weights, float *part) {
    switch (rows) {
        case 1: few_of_rows(a, values, keys, 1, weights, part); break;
        case 2: few_of_rows(a, values, keys, 2, weights, part); break;
        default: few_of_rows(a, values, keys, 3, weights, part);
    }
}

static const float *rows_of(const Operand *x, int64_t example, int64_t head) {
    return x->data + example * x->batch + head * x->head;
}

/* The results of some queries of a head. */
static int attend(const RvmKernelCall *call, const Attention *a, const Memory *m, int64_t example,
                  int64_t head, int64_t at, int rows) {
    int64_t depth = lines_of(a->depth);
    const float *bias =
        a->bias ? a->bias + example * a->bias_steps[0] + head * a->bias_steps[1] : NULL;
    const float *keys = rows_of(&a->key, example, head / a->times);
    const float *values = rows_of(&a->value, example, head / a->times);
    float greatest[MOST_ROWS], total[MOST_ROWS];
    pack_queries(a, rows_of(&a->query, example, head) + at * a->query.row, rows, m->query);
    for (int r = 0; r < rows; r++) {
        greatest[r] = -INFINITY;
        total[r] = 0;
    }
    memset(m->sums, 0, (size_t)(rows * depth) * 4);
    int64_t seen = at + rows - 1 + a->visible < a->keys ? at + rows - 1 + a->visible : a->keys;
    for (int64_t first = 0; first < seen; first += a->keys_at_once) {
        int64_t last = first + a->keys_at_once < seen ? first + a->keys_at_once : seen;
        int64_t blocks = (last - first + LINE - 1) / LINE;
        if (!is_packed(a)) multiply_few_keys(a, keys, rows, m->query, first, last, m->scores);
        for (int64_t b = 0; is_packed(a) && b < blocks; b++)
            of_lines[0][rows - 1](m->query, 0, m->keys + (first / LINE + b) * a->width * LINE, 0, a->width,
                                  NULL, m->scores + b * rows * LINE, LINE, NULL);
        for (int r = 0; r < rows; r++) {
            float *row = m->scores + r * LINE;
            int64_t end = at + r + a->visible < last ? at + r + a->visible : last;
            if (bias)
                add_bias(bias + (at + r) * a->bias_steps[2], a->bias_steps[3], first, last, row, rows * LINE);
            hide(end - first, blocks, row, rows * LINE);
            float factor = weigh_row(row, blocks, rows * LINE, greatest + r, total + r);
            if (factor != 1)
                for (int64_t c = 0; c < depth; c++) m->sums[r * depth + c] *= factor;
        }
        if (!is_packed(a))
            multiply_few_values(a, values + first * a->value.row, last - first, rows, m->scores, m->part);
        for (int64_t c = 0; is_packed(a) && c < depth; c += LINE)
            of_lines[0][rows - 1](m->scores, 0, m->values + c * lines_of(a->keys) + first * LINE, 0,
                                  blocks * LINE, NULL, m->part + c, depth, NULL);
        for (int64_t i = 0; i < rows * depth; i += RVM_LANES)
            rvm_store(m->sums + i, rvm_load(m->sums + i) + rvm_load(m->part + i));
        if (rvm_must_stop(call, rows * (last - first) * (a->width + depth + 64))) return 1;
    }
    for (int r = 0; r < rows; r++) {
        float inverse = 1.0f / (total[r] == 0 ? 1.0f : total[r]);
        float *out = a->out + ((example * a->queries + at + r) * a->heads + head) * a->depth;
        for (int64_t c = 0; c < a->depth; c++) out[c] = m->sums[r * depth + c] * inverse;
    }
    return 0;
}

static int attend_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Attention *a = (const Attention *)work;
    RvmPart part = rvm_part(&a->grid, piece);
    int64_t tiles = a->grid.inner;
    Memory m = memory_of(a, a->workspace + thread * memory_bytes(a));
    int64_t packed = -1;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t example = i / a->heads, head = i % a->heads;
        if (is_packed(a) && packed != i / a->times) {
            packed = i / a->times;
            pack_keys(a, rows_of(&a->key, example, head / a->times), m.keys);
            pack_values(a, rows_of(&a->value, example, head / a->times), m.values);
            if (rvm_must_stop(call, a->keys * (a->width + a->depth) * 32)) return RVM_FAILED;
        }
        for (int64_t t = part.inner; t < part.inner_end; t++) {
            int64_t from = a->queries * t / tiles, to = a->queries * (t + 1) / tiles;
            /* A tile may have more rows than are multiplied in place at once. */
            int64_t most = is_packed(a) ? RVM_TILE_PIXELS : FEW_ROWS;
            for (; from < to; from += most)
                if (attend(call, a, &m, example, head, from, (int)(to - from < most ? to - from : most)))
                    return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int attention(const RvmKernelCall *call) {
    Attention a;
    char *workspace = call->workspace;
    if (!get_attention(call, &a)) return RVM_ASK_REFERENCE;
    a.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &a.grid, attend_some, &a);
}

static const RvmArgument attention_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(REAL_OR_NONE, AttentionParams, scale),
    RVM_FIELD_OF(masks, CHOICE_OR_NONE, AttentionParams, mask),
    RVM_FIELD(FLAG, AttentionParams, by_head),
    RVM_BUFFER(OUT),
};

const RvmImplementation RVM_NAME(rvm_attention)[] = {
    {.name = "attention.tiles", .kernel = "nn.attention_tiles", .run = attention,
     .workspace = attention_workspace, RVM_ARGUMENTS(attention_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1,
     .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
