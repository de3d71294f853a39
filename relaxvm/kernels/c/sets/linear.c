/* Products of matrices with weights in blocks of columns: linear and recurrent layers.
 *
 *   out[row, column] = f(sum over k of x[row, k] * weight[column / 16, k, column % 16]
 *                        + bias[column] + residual[row, column])
 *
 * A tile is some rows of the result times one or two blocks of columns, whose sums stay in registers while k
 * goes from its beginning to its end: each result is one chain of fused multiply-adds in the order of k, the
 * same for any number of rows.  Rows are copied first into lines of 16 elements, tile by tile, so that what
 * a tile reads is in one place: rows of a matrix are often some power of two apart, and would displace
 * each other in the cache.  Goto and van de Geijn, "Anatomy of high-performance matrix multiplication",
 * 2008.
 *
 * A product of few rows reads each weight once, and is as fast as memory: it reads rows in place, and four
 * blocks of weights side by side.
 */
#include "blocks.h"
#include "math.h"
#include "../pieces.h"
#include "recurrent.h"
#include "tiles.h"

/* Lines of rows that are multiplied by all weights before the next rows are. */
#define CACHED_LINES (1 << 19)

typedef struct {
    int64_t function;
} LinearParams;

typedef struct {
    const float *x, *weight, *bias, *residual; /* bias and residual may be NULL */
    float *out;
    int64_t rows, terms, columns;
    int64_t function; /* RVM_NO_INT for none */
    const RvmKernelCall *call;
} Linear;

/* memcpy of so few bytes takes longer. */
static inline void copy_floats(const float *from, int64_t count, float *to) {
    for (; count >= 4; count -= 4, from += 4, to += 4) memcpy(to, from, 16);
    for (; count > 0; count--) *to++ = *from++;
}

/* What follows the sums of a tile: columns `from` to `to` of rows that are `sums_row` floats apart.  The
 * sums are where the results belong, or, where the last block has fewer columns, in other memory. */
static void finish(const Linear *l, float *sums, int64_t sums_row, int64_t row, int rows, int64_t from,
                   int64_t to) {
    int64_t whole = (to - from + RVM_BLOCK - 1) / RVM_BLOCK * RVM_BLOCK;
    for (int r = 0; l->residual && r < rows; r++) {
        float *at = sums + r * sums_row;
        const float *more = l->residual + (row + r) * l->columns + from;
        int64_t i = 0;
        for (; i + RVM_LANES <= to - from; i += RVM_LANES)
            rvm_store(at + i, rvm_load(at + i) + rvm_load(more + i));
        for (; i < to - from; i++) at[i] += more[i];
    }
    if (l->function != RVM_NO_INT) {
        int is_one = sums_row == whole;
        for (int r = 0; r < (is_one ? 1 : rows); r++)
            rvm_apply(l->function, sums + r * sums_row, is_one ? rows * whole : whole);
    }
    for (int r = 0; r < rows; r++) {
        float *at = sums + r * sums_row, *out = l->out + (row + r) * l->columns + from;
        if (at == out) return;
        copy_floats(at, to - from, out);
    }
}

static int run_tile(Linear *l, TileCall run, int blocks, const float *x, int64_t x_row, int64_t row,
                    int rows, int64_t block, const float *ahead) {
    /* Where results overwrite the residual, the sums wait in other memory until it is read. */
    float apart[MOST_ROWS * FEW_ROWS_BLOCKS * RVM_BLOCK];
    int64_t from = block * RVM_BLOCK, to = from + blocks * RVM_BLOCK, step = blocks * RVM_BLOCK;
    int is_apart = to > l->columns || l->residual;
    if (to > l->columns) to = l->columns;
    float *sums = is_apart ? apart : l->out + row * l->columns + from;
    int64_t sums_row = is_apart ? step : l->columns;
    run(x, x_row, l->weight + block * l->terms * RVM_BLOCK, l->terms * RVM_BLOCK, l->terms,
        l->bias ? l->bias + from : NULL, sums, sums_row, ahead);
    if (is_apart || l->function != RVM_NO_INT) finish(l, sums, sums_row, row, rows, from, to);
    return rvm_must_stop(l->call, rows * step * (l->terms + 64));
}

/* A product, divided. */
typedef struct {
    const Linear *l;
    float *lines;
    int64_t first, last; /* tiles of rows */
    int64_t first_row;   /* of the first tile */
    int64_t tiles;       /* in all */
    RvmGrid grid;
} Division;

static int64_t linear_time(const Linear *l, int64_t rows) {
    return rvm_time_for(rows * l->terms * l->columns, 4 * (l->terms + rows) * l->columns);
}

static int run_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Division *d = (const Division *)work;
    RvmPart part = rvm_part(&d->grid, piece);
    Linear l = *d->l;
    int64_t blocks = (l.columns + RVM_BLOCK - 1) / RVM_BLOCK;
    (void)thread;
    l.call = call;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t end = (i + 1) * FEW_ROWS_BLOCKS < blocks ? (i + 1) * FEW_ROWS_BLOCKS : blocks;
        for (int64_t b = i * FEW_ROWS_BLOCKS; b < end;) {
            int is_wide = end - b == FEW_ROWS_BLOCKS, some = is_wide ? FEW_ROWS_BLOCKS : 1;
            if (run_tile(&l, in_place[is_wide][l.rows - 1], some, l.x, l.terms, 0, (int)l.rows, b,
                         NULL))
                return RVM_FAILED;
            b += some;
        }
    }
    return RVM_OK;
}

static int run_few(const RvmKernelCall *call, const Linear *l) {
    int64_t blocks = (l->columns + RVM_BLOCK - 1) / RVM_BLOCK;
    Division d = {.l = l};
    d.grid = rvm_divide(call, linear_time(l, l->rows), (blocks + FEW_ROWS_BLOCKS - 1) / FEW_ROWS_BLOCKS, 1);
    return rvm_run_grid(call, &d.grid, run_some, &d);
}

/* Tiles of rows that are in lines at once. */
static int64_t tiles_at_once(int64_t rows, int64_t terms) {
    int64_t tiles = (rows + RVM_TILE_PIXELS - 1) / RVM_TILE_PIXELS;
    int64_t most = CACHED_LINES / (lines_of(terms) * RVM_TILE_PIXELS * 4);
    return most < 1 ? 1 : most < tiles ? most : tiles;
}

/* Copy rows into lines, with zeros behind the last elements. */
static void pack_rows(const Linear *l, int64_t first, int rows, float *to) {
    for (int64_t k = 0; k < l->terms; k += LINE) {
        const float *from = l->x + first * l->terms + k;
        int64_t left = l->terms - k;
        for (int r = 0; r < rows; r++, from += l->terms, to += LINE)
            if (left >= LINE) {
                memcpy(to, from, LINE * 4);
            } else {
                memset(to, 0, LINE * 4);
                memcpy(to, from, (size_t)left * 4);
            }
    }
}

/* The first row of a tile; rows are divided evenly. */
static int64_t row_of(const Division *d, int64_t tile) { return d->l->rows * tile / d->tiles; }

static float *lines_at(const Division *d, int64_t row) {
    return d->lines + (row - d->first_row) * lines_of(d->l->terms);
}

static int pack_tiles(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Division *d = (const Division *)work;
    RvmPart part = rvm_part(&d->grid, piece);
    (void)thread;
    for (int64_t t = d->first + part.outer; t < d->first + part.outer_end; t++) {
        int64_t from = row_of(d, t), to = row_of(d, t + 1);
        pack_rows(d->l, from, (int)(to - from), lines_at(d, from));
        if (rvm_must_stop(call, (to - from) * d->l->terms * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* The piece that a thread has most likely after another one; its units are -1 if there is none. */
static RvmPart part_after(const Division *d, int64_t piece) {
    RvmPart none = {-1, -1, -1, -1};
    piece += d->grid.threads;
    return piece < d->grid.outer_parts * d->grid.inner_parts ? rvm_part(&d->grid, piece) : none;
}

static int multiply_tiles(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Division *d = (const Division *)work;
    RvmPart part = rvm_part(&d->grid, piece);
    Linear l = *d->l;
    int64_t blocks = (l.columns + RVM_BLOCK - 1) / RVM_BLOCK;
    (void)thread;
    l.call = call;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t b = i * RVM_TILE_BLOCKS;
        int some = blocks - b >= RVM_TILE_BLOCKS ? RVM_TILE_BLOCKS : 1;
        /* Meanwhile the weights that follow come from memory, or those of the piece that this thread will most
         * likely have next: all tiles of rows but the last one fetch a share of them. */
        int64_t next = i + 1 < part.outer_end ? i + 1 : part_after(d, piece).outer;
        int64_t tiles = part.inner_end - part.inner;
        int64_t share = next < 0 || tiles < 2 ? 0 : (LINE + tiles - 2) / (tiles - 1);
        int64_t to = row_of(d, d->first + part.inner);
        for (int64_t t = part.inner; t < part.inner_end; t++) {
            int64_t from = to;
            to = row_of(d, d->first + t + 1);
            int64_t done = (t - part.inner) * share * l.terms;
            const float *ahead = NULL;
            if (share && done < LINE * l.terms)
                ahead = l.weight + next * RVM_TILE_BLOCKS * l.terms * RVM_BLOCK + done;
            if (run_tile(&l, of_lines[some - 1][to - from - 1], some, lines_at(d, from), ahead ? share : 0, from,
                         (int)(to - from), b, ahead))
                return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int run_many(const RvmKernelCall *call, const Linear *l, float *lines) {
    Division d = {.l = l, .lines = lines, .tiles = (l->rows + RVM_TILE_PIXELS - 1) / RVM_TILE_PIXELS};
    int64_t at_once = tiles_at_once(l->rows, l->terms);
    int64_t outputs = ((l->columns + RVM_BLOCK - 1) / RVM_BLOCK + RVM_TILE_BLOCKS - 1) / RVM_TILE_BLOCKS;
    for (; d.first < d.tiles; d.first = d.last) {
        d.last = d.first + at_once < d.tiles ? d.first + at_once : d.tiles;
        d.first_row = row_of(&d, d.first);
        int64_t time = linear_time(l, row_of(&d, d.last) - row_of(&d, d.first));
        /* The threads are there for the products, so they share the little work before them, too. */
        d.grid = rvm_divide(call, time, d.last - d.first, 1);
        if (rvm_run_grid(call, &d.grid, pack_tiles, &d)) return RVM_FAILED;
        d.grid = rvm_divide(call, time, outputs, d.last - d.first);
        if (rvm_run_grid(call, &d.grid, multiply_tiles, &d)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* A few rows after the other, in place. */
static int run_short(const Linear *short_one) {
    Linear l = *short_one;
    int64_t blocks = (l.columns + RVM_BLOCK - 1) / RVM_BLOCK;
    for (int64_t row = 0; row < l.rows; row += FEW_ROWS) {
        int rows = l.rows - row < FEW_ROWS ? (int)(l.rows - row) : FEW_ROWS;
        for (int64_t b = 0; b < blocks; b++)
            if (run_tile(&l, in_place[0][rows - 1], 1, l.x + row * l.terms, l.terms, row, rows, b, NULL))
                return RVM_FAILED;
    }
    return RVM_OK;
}

static int run_linear(const RvmKernelCall *call, const Linear *l, float *lines) {
    return l->rows <= FEW_ROWS ? run_few(call, l) : run_many(call, l, lines);
}

static int is_of_floats(const RvmBuffer *x) {
    return x->dtype == RVM_DTYPE_F32 && rvm_is_contiguous(x) && rvm_length(x) > 0;
}

/* x[..., terms], weight[blocks, terms, 16], bias[blocks * 16], residual and out[..., columns] */
static int get_linear(const RvmKernelCall *call, Linear *l) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *bias = x + 2, *residual = x + 3, *out = x + 4;
    int is_in_place = residual->data == out->data;
    if (x->ndim < 1 || out->ndim != x->ndim || weight->ndim != 3 || !is_of_floats(x) ||
        !is_of_floats(weight) || !is_of_floats(out) || weight->dims[2] != RVM_BLOCK ||
        weight->dims[1] != x->dims[x->ndim - 1] || !rvm_is_input(x, out) || !rvm_is_input(weight, out))
        return 0;
    l->columns = out->dims[out->ndim - 1];
    l->terms = weight->dims[1];
    l->rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        RVM_FEW_TURNS;
        if (x->dims[i] != out->dims[i]) return 0;
        l->rows *= x->dims[i];
    }
    int64_t blocks = weight->dims[0];
    if ((l->columns + RVM_BLOCK - 1) / RVM_BLOCK != blocks) return 0;
    if (!(bias->flags & RVM_ABSENT) && (bias->ndim != 1 || !is_of_floats(bias) ||
                                        bias->dims[0] != blocks * RVM_BLOCK || !rvm_is_input(bias, out)))
        return 0;
    if (!(residual->flags & RVM_ABSENT) &&
        (!is_of_floats(residual) || !rvm_same_shape(residual, out) ||
         (!is_in_place && !rvm_no_overlap(residual, out))))
        return 0;
    l->x = (const float *)x->data;
    l->weight = (const float *)weight->data;
    l->bias = (const float *)bias->data;
    l->residual = (const float *)residual->data;
    l->out = (float *)out->data;
    l->function = ((const LinearParams *)call->params)->function;
    l->call = call;
    return 1;
}

static int64_t linear_workspace(const RvmKernelCall *call) {
    Linear l;
    if (call->is_short) return 0;
    if (!get_linear(call, &l)) return -1;
    if (l.rows <= FEW_ROWS) return 0;
    return tiles_at_once(l.rows, l.terms) * RVM_TILE_PIXELS * lines_of(l.terms) * 4 + RVM_ALIGNMENT;
}

static int packed(const RvmKernelCall *call) {
    Linear l;
    char *workspace = call->workspace;
    if (!get_linear(call, &l)) return RVM_ASK_REFERENCE;
    if (call->is_short) return run_short(&l);
    return run_linear(call, &l, l.rows <= FEW_ROWS ? NULL : (float *)rvm_take(&workspace, 0));
}

/* ---- recurrent layers ---------------------------------------------------------------------------- */
/* The products of the inputs of many steps are one product of matrices.  In each step, the gates of 16
 * elements of the state are one tile, to which these products are added; cells and states follow in
 * registers.  Weights have the gates of 16 elements side by side: those of long short-term memory in the
 * order input, output, forget, cell; those of gated recurrent units in the order update, reset, hidden. */
#define GRU_GATES 3
#define STEP_ROWS 64 /* inputs that are multiplied at once */

/* Blocks of a state of long short-term memory that are computed at once, where there is one example. */
#define ONE_ROW_STATES (ONE_ROW_BLOCKS / LSTM_GATES)
#define OF_GATES(rows) TILE(in_place, rows, 2, 0, 0) TILE(in_place, rows, 3, 0, 0)
#if ONE_ROW_STATES == 2
TILE(in_place, 1, 8, 0, 0)
#define OF_STATES in_place_8_1
#else
#define OF_STATES in_place_4_1
#endif
OF_GATES(1)
OF_GATES(2)
OF_GATES(3)
/* By the number of gates, less 1, and of rows, less 1. */
static const TileCall of_gates[LSTM_GATES][FEW_ROWS] = {{in_place_1_1, in_place_1_2, in_place_1_3},
                                                        {in_place_2_1, in_place_2_2, in_place_2_3},
                                                        {in_place_3_1, in_place_3_2, in_place_3_3},
                                                        {in_place_4_1, in_place_4_2, in_place_4_3}};

typedef struct {
    int64_t direction;
    int64_t linear_before_reset; /* of gated recurrent units */
} RecurrentParams;

typedef struct {
    int64_t steps, batch, inputs, size, directions, direction, gates;
    const RvmBuffer *lengths; /* of the sequences; may be absent */
    int64_t blocks, padded; /* of the state; its elements up to a whole block */
    int64_t steps_at_once;
    int64_t of_state[3], of_states[4]; /* dimensions of a state, and of those of all steps */
    RvmGrid of_step;        /* blocks of the state, and groups of examples */
    RvmGrid of_directions;  /* where a step is too short to be divided */
} Recurrent;

static int has_dims(const RvmBuffer *x, int ndim, const int64_t *dims) {
    return x->ndim == ndim && is_of_floats(x) && rvm_same_dims(x->dims, dims, ndim);
}

/* x[steps, batch, inputs], weight[directions, gates * blocks, inputs, 16], recurrence[directions, gates *
 * blocks, size, 16], bias[directions, gates * blocks * 16]; then other inputs; before `first_out`
 * lengths[batch], which may be absent; from there on states[steps, directions, batch, size] and last
 * states[directions, batch, size]. */
static int get_recurrent(const RvmKernelCall *call, int64_t gates, int first_out, Recurrent *l) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *recurrence = x + 2;
    const RvmBuffer *lengths = x + first_out - 1;
    int has_lengths = !(lengths->flags & RVM_ABSENT);
    if (x->ndim != 3 || weight->ndim != 4 || recurrence->ndim != 4) return 0;
    l->direction = ((const RecurrentParams *)call->params)->direction;
    l->directions = l->direction == BIDIRECTIONAL ? 2 : 1;
    l->gates = gates;
    l->steps = x->dims[0];
    l->batch = x->dims[1];
    l->inputs = x->dims[2];
    l->size = recurrence->dims[2];
    l->blocks = (l->size + RVM_BLOCK - 1) / RVM_BLOCK;
    l->padded = l->blocks * RVM_BLOCK;
    l->steps_at_once = l->batch >= STEP_ROWS ? 1 : l->batch < 1 ? 1 : STEP_ROWS / l->batch;
    int64_t of_weight[] = {l->directions, gates * l->blocks, l->inputs, RVM_BLOCK};
    int64_t of_recurrence[] = {l->directions, gates * l->blocks, l->size, RVM_BLOCK};
    int64_t of_bias[] = {l->directions, gates * l->padded};
    int64_t of_states[] = {l->steps, l->directions, l->batch, l->size};
    memcpy(l->of_states, of_states, sizeof of_states);
    memcpy(l->of_state, of_states + 1, sizeof l->of_state);
    if (!is_of_floats(x) || !has_dims(weight, 4, of_weight) || !has_dims(recurrence, 4, of_recurrence) ||
        !has_dims(x + 3, 2, of_bias) || !has_dims(x + first_out, 4, of_states))
        return 0;
    if (has_lengths && (lengths->ndim != 1 || lengths->dims[0] != l->batch || !rvm_is_contiguous(lengths) ||
                        (lengths->dtype != RVM_DTYPE_I32 && lengths->dtype != RVM_DTYPE_I64)))
        return 0;
    l->lengths = lengths;
    for (int out = first_out; out < call->count; out++) {
        if (out > first_out && !has_dims(x + out, 3, l->of_state)) return 0;
        for (int other = 0; other < out; other++)
            if ((x + other != lengths || has_lengths) && !rvm_no_overlap(x + other, x + out)) return 0;
    }
    return 1;
}

static int get_lstm(const RvmKernelCall *call, Recurrent *l) {
    const RvmBuffer *h = call->buffers + 4, *c = h + 1;
    return call->count == 10 && get_recurrent(call, LSTM_GATES, 7, l) && has_dims(h, 3, l->of_state) &&
           has_dims(c, 3, l->of_state);
}

/* The fifth input is the bias of the states for the hidden gate, which the reset gate multiplies. */
static int get_gru(const RvmKernelCall *call, Recurrent *l) {
    const RvmBuffer *bias = call->buffers + 4, *h = bias + 1;
    if (call->count != 9 || !get_recurrent(call, GRU_GATES, 7, l)) return 0;
    int64_t of_bias[] = {l->directions, l->padded};
    return has_dims(bias, 2, of_bias) && has_dims(h, 3, l->of_state);
}

static Linear given_by(const RvmKernelCall *call, const Recurrent *l, int64_t direction, float *out) {
    const RvmBuffer *x = call->buffers;
    int64_t columns = l->gates * l->padded;
    Linear product = {.x = (const float *)x->data,
                      .weight = (const float *)x[1].data + direction * columns * l->inputs,
                      .bias = (const float *)x[3].data + direction * columns,
                      .out = out,
                      .terms = l->inputs,
                      .columns = columns,
                      .function = RVM_NO_INT,
                      .call = call};
    return product;
}

static int64_t recurrent_bytes(const Recurrent *l) {
    int64_t rows = l->steps_at_once * l->batch;
    return rvm_apart(rvm_aligned(4 * tiles_at_once(rows, l->inputs) * RVM_TILE_PIXELS * lines_of(l->inputs)) +
                     rvm_aligned(4 * rows * l->gates * l->padded) + 3 * rvm_aligned(4 * l->batch * l->padded));
}

/* Blocks of the state may be apart, or only examples. */
static void divide_recurrent(const RvmKernelCall *call, int are_blocks_apart, Recurrent *l) {
    int64_t groups = (l->batch + FEW_ROWS - 1) / FEW_ROWS, gates = l->gates * l->padded * (l->size + 64);
    int64_t step = rvm_time_for(l->batch * gates, groups * gates * 4);
    RvmKernelCall alone = {.threads = 1};
    l->of_step = rvm_divide(call, step, are_blocks_apart ? l->blocks : 1, groups);
    l->of_directions = rvm_divide(l->of_step.threads > 1 ? &alone : call, l->steps * step * l->directions,
                                  l->directions, 1);
    l->of_directions.outer_parts = l->directions;
}

static int64_t recurrent_workspace(const Recurrent *l) {
    return l->of_directions.threads * recurrent_bytes(l) + rvm_aligned(8 * l->batch) + RVM_ALIGNMENT;
}

static int64_t lstm_workspace(const RvmKernelCall *call) {
    Recurrent l;
    if (!get_lstm(call, &l)) return -1;
    divide_recurrent(call, 1, &l);
    return recurrent_workspace(&l);
}

static int is_reset_first(const RvmKernelCall *call) {
    return !((const RecurrentParams *)call->params)->linear_before_reset;
}

static int64_t gru_workspace(const RvmKernelCall *call) {
    Recurrent l;
    if (!get_gru(call, &l)) return -1;
    divide_recurrent(call, !is_reset_first(call), &l);
    return recurrent_workspace(&l);
}

/* One step of all examples: new states from the old ones, and from what the inputs give.  `cell` has the
 * size of a state. */
typedef struct {
    const Recurrent *l;
    int64_t direction;
    const float *given, *old;
    float *cell, *state;
} Step;

static int lstm_step(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    const Recurrent *l = s->l;
    const RvmPart part = rvm_part(&l->of_step, piece);
    int64_t block = l->size * RVM_BLOCK, direction = s->direction;
    const float *given = s->given, *old = s->old;
    float *state = s->state, *cell = s->cell;
    (void)thread;
    const float *recurrence = (const float *)call->buffers[2].data + direction * LSTM_GATES * l->blocks * block;
    for (int64_t first = part.inner * FEW_ROWS; first < l->batch && first < part.inner_end * FEW_ROWS;
         first += FEW_ROWS) {
        int rows = l->batch - first < FEW_ROWS ? (int)(l->batch - first) : FEW_ROWS;
        for (int64_t b = part.outer, blocks; b < part.outer_end; b += blocks) {
            float sums[FEW_ROWS * LSTM_GATES * RVM_BLOCK];
            blocks = rows == 1 && part.outer_end - b >= ONE_ROW_STATES ? ONE_ROW_STATES : 1;
            TileCall run = blocks == 1 ? of_gates[LSTM_GATES - 1][rows - 1] : OF_STATES;
            run(old + first * l->padded, l->padded, recurrence + b * LSTM_GATES * block, block, l->size, NULL,
                sums, LSTM_GATES * RVM_BLOCK, NULL);
            for (int r = 0; r < rows; r++) {
                const float *more = given + ((first + r) * l->blocks + b) * LSTM_GATES * RVM_BLOCK;
                for (int i = 0; i < LSTM_GATES * RVM_BLOCK * blocks; i += RVM_LANES) {
                    float *at = sums + r * LSTM_GATES * RVM_BLOCK + i;
                    rvm_store(at, rvm_load(at) + rvm_load(more + i));
                }
            }
            int64_t at = first * l->padded + b * RVM_BLOCK;
            for (int i = 0; i < blocks; i++, at += RVM_BLOCK)
                rvm_lstm_update(rows, sums + i * LSTM_GATES * RVM_BLOCK, cell + at, state + at, l->padded);
        }
        if (rvm_must_stop(call, rows * l->padded * LSTM_GATES * (l->size + 256))) return RVM_FAILED;
    }
    return RVM_OK;
}

/* The hidden gate, weighed against the old state. */
static inline vf renewed(vf hidden, vf update, vf old) {
    return rvm_fma(update, old, (rvm_all(1) - update) * hidden);
}

/* The reset gate multiplies the product of the state and the weights of the hidden gate. */
static int gru_step(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    const Recurrent *l = s->l;
    const RvmPart part = rvm_part(&l->of_step, piece);
    int64_t block = l->size * RVM_BLOCK, direction = s->direction;
    const float *given = s->given, *old = s->old;
    float *state = s->state;
    (void)thread;
    const float *recurrence = (const float *)call->buffers[2].data + direction * GRU_GATES * l->blocks * block;
    const float *bias = (const float *)call->buffers[4].data + direction * l->padded;
    for (int64_t first = part.inner * FEW_ROWS; first < l->batch && first < part.inner_end * FEW_ROWS;
         first += FEW_ROWS) {
        int rows = l->batch - first < FEW_ROWS ? (int)(l->batch - first) : FEW_ROWS;
        for (int64_t b = part.outer; b < part.outer_end; b++) {
            float sums[FEW_ROWS * GRU_GATES * RVM_BLOCK];
            of_gates[GRU_GATES - 1][rows - 1](old + first * l->padded, l->padded,
                                              recurrence + b * GRU_GATES * block, block, l->size, NULL,
                                              sums, GRU_GATES * RVM_BLOCK, NULL);
            for (int r = 0; r < rows; r++)
                for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                    const float *sum = sums + r * GRU_GATES * RVM_BLOCK + lane;
                    const float *more = given + ((first + r) * l->blocks + b) * GRU_GATES * RVM_BLOCK + lane;
                    int64_t at = (first + r) * l->padded + b * RVM_BLOCK + lane;
                    vf update = rvm_sigmoid(rvm_load(sum) + rvm_load(more));
                    vf reset = rvm_sigmoid(rvm_load(sum + RVM_BLOCK) + rvm_load(more + RVM_BLOCK));
                    vf of_state = rvm_load(sum + 2 * RVM_BLOCK) + rvm_load(bias + b * RVM_BLOCK + lane);
                    vf hidden = rvm_tanh(rvm_fma(reset, of_state, rvm_load(more + 2 * RVM_BLOCK)));
                    rvm_store(state + at, renewed(hidden, update, rvm_load(old + at)));
                }
        }
        if (rvm_must_stop(call, rows * l->padded * GRU_GATES * (l->size + 256))) return RVM_FAILED;
    }
    return RVM_OK;
}

/* The reset gate multiplies the state, so that all reset gates come before all hidden ones; `kept` has the
 * products, and `state` the update gates meanwhile. */
static int gru_step_reset_first(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Step *s = (const Step *)work;
    const Recurrent *l = s->l;
    const RvmPart part = rvm_part(&l->of_step, piece);
    int64_t block = l->size * RVM_BLOCK, direction = s->direction;
    const float *given = s->given, *old = s->old;
    float *state = s->state, *kept = s->cell;
    (void)thread;
    const float *recurrence = (const float *)call->buffers[2].data + direction * GRU_GATES * l->blocks * block;
    const float *bias = (const float *)call->buffers[4].data + direction * l->padded;
    for (int64_t first = part.inner * FEW_ROWS; first < l->batch && first < part.inner_end * FEW_ROWS;
         first += FEW_ROWS) {
        int rows = l->batch - first < FEW_ROWS ? (int)(l->batch - first) : FEW_ROWS;
        float sums[FEW_ROWS * 2 * RVM_BLOCK];
        for (int64_t b = 0; b < l->blocks; b++) {
            of_gates[1][rows - 1](old + first * l->padded, l->padded, recurrence + b * GRU_GATES * block,
                                  block, l->size, NULL, sums, 2 * RVM_BLOCK, NULL);
            for (int r = 0; r < rows; r++)
                for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                    const float *sum = sums + r * 2 * RVM_BLOCK + lane;
                    const float *more = given + ((first + r) * l->blocks + b) * GRU_GATES * RVM_BLOCK + lane;
                    int64_t at = (first + r) * l->padded + b * RVM_BLOCK + lane;
                    vf reset = rvm_sigmoid(rvm_load(sum + RVM_BLOCK) + rvm_load(more + RVM_BLOCK));
                    rvm_store(state + at, rvm_sigmoid(rvm_load(sum) + rvm_load(more)));
                    rvm_store(kept + at, reset * rvm_load(old + at));
                }
        }
        for (int64_t b = 0; b < l->blocks; b++) {
            of_gates[0][rows - 1](kept + first * l->padded, l->padded,
                                  recurrence + (b * GRU_GATES + 2) * block, block, l->size,
                                  bias + b * RVM_BLOCK, sums, RVM_BLOCK, NULL);
            for (int r = 0; r < rows; r++)
                for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                    const float *more = given + ((first + r) * l->blocks + b) * GRU_GATES * RVM_BLOCK + lane;
                    int64_t at = (first + r) * l->padded + b * RVM_BLOCK + lane;
                    vf hidden = rvm_tanh(rvm_load(sums + r * RVM_BLOCK + lane) +
                                         rvm_load(more + 2 * RVM_BLOCK));
                    rvm_store(state + at, renewed(hidden, rvm_load(state + at), rvm_load(old + at)));
                }
        }
        if (rvm_must_stop(call, rows * l->padded * GRU_GATES * (l->size + 256))) return RVM_FAILED;
    }
    return RVM_OK;
}

/* All steps in all directions.  Initial states are `h` and, where there are cells, `c`; outputs are the
 * states of all steps, the last states, and the last cells.  Of sequences whose lengths are given, steps
 * behind the longest one do not run, and those behind a shorter one are computed and not kept. */
typedef struct {
    const Recurrent *l;
    RvmPiece step;
    const RvmBuffer *h, *c, *outs;
    const int64_t *lengths; /* NULL: all steps */
    int64_t steps;          /* of the longest sequence */
    char *workspace;
} Run;

/* A copy of the lengths, which other threads cannot change; 0 if one is not a number of steps. */
static int read_lengths(const Recurrent *l, char **workspace, Run *run) {
    const RvmBuffer *lengths = l->lengths;
    int64_t *found = (int64_t *)rvm_take(workspace, 8 * l->batch);
    run->lengths = NULL;
    run->steps = l->steps;
    if (lengths->flags & RVM_ABSENT) return 1;
    run->lengths = found;
    run->steps = 0;
    for (int64_t r = 0; r < l->batch; r++) {
        int64_t length = lengths->dtype == RVM_DTYPE_I32 ? ((const volatile int32_t *)lengths->data)[r]
                                                         : ((const volatile int64_t *)lengths->data)[r];
        if (length < 0 || length > l->steps) return 0;
        found[r] = length;
        if (length > run->steps) run->steps = length;
    }
    return 1;
}

/* Copy the states of the examples whose length is `length`. */
static void copy_ended(const Run *run, int64_t length, const float *from, int64_t from_row, float *to,
                       int64_t to_row) {
    const Recurrent *l = run->l;
    for (int64_t r = 0; r < l->batch; r++)
        if (run->lengths[r] == length)
            rvm_copy_rows(from + r * from_row, from_row, to + r * to_row, to_row, 1, l->size);
}

static int run_direction(const RvmKernelCall *call, void *work, int64_t d, int thread) {
    const Run *run = (const Run *)work;
    const Recurrent *l = run->l;
    const RvmBuffer *h = run->h, *c = run->c, *outs = run->outs;
    const int64_t *lengths = run->lengths;
    char *workspace = run->workspace + thread * recurrent_bytes(l);
    int64_t most = l->steps_at_once * l->batch, state = l->batch * l->padded, kept = l->batch * l->size;
    int is_backwards = l->direction == REVERSE || d == 1;
    float *lines = (float *)rvm_take(&workspace, 4 * tiles_at_once(most, l->inputs) * RVM_TILE_PIXELS *
                                                     lines_of(l->inputs));
    float *given = (float *)rvm_take(&workspace, 4 * most * l->gates * l->padded);
    float *cell = (float *)rvm_take(&workspace, 4 * state);
    float *old = (float *)rvm_take(&workspace, 4 * state), *new = (float *)rvm_take(&workspace, 4 * state);
    memset(cell, 0, (size_t)state * 4);
    memset(old, 0, (size_t)state * 4);
    const float *first_h = (const float *)h->data + d * kept;
    const float *first_c = c ? (const float *)c->data + d * kept : NULL;
    float *last_h = (float *)outs[1].data + d * kept;
    float *last_c = c ? (float *)outs[2].data + d * kept : NULL;
    rvm_copy_rows(first_h, l->size, old, l->padded, l->batch, l->size);
    if (c) rvm_copy_rows(first_c, l->size, cell, l->padded, l->batch, l->size);
    for (int64_t at = run->steps; at < l->steps; at++)
        memset((float *)outs->data + (at * l->directions + d) * kept, 0, (size_t)kept * 4);
    for (int64_t from = 0; from < run->steps; from += l->steps_at_once) {
        int64_t some = run->steps - from < l->steps_at_once ? run->steps - from : l->steps_at_once;
        int64_t first = is_backwards ? run->steps - from - some : from;
        Linear product = given_by(call, l, d, given);
        product.x += first * l->batch * l->inputs;
        product.rows = some * l->batch;
        if (run_linear(call, &product, lines)) return RVM_FAILED;
        for (int64_t i = 0; i < some; i++) {
            int64_t here = is_backwards ? some - 1 - i : i, at = first + here;
            Step step = {l, d, given + here * l->batch * l->gates * l->padded, old, cell, new};
            if (lengths && is_backwards) { /* sequences begin here */
                copy_ended(run, at + 1, first_h, l->size, old, l->padded);
                if (c) copy_ended(run, at + 1, first_c, l->size, cell, l->padded);
            }
            if (rvm_run_grid(call, &l->of_step, run->step, &step)) return RVM_FAILED;
            float *states = (float *)outs->data + (at * l->directions + d) * kept;
            rvm_copy_rows(new, l->padded, states, l->size, l->batch, l->size);
            for (int64_t r = 0; lengths && r < l->batch; r++)
                if (at >= lengths[r]) memset(states + r * l->size, 0, (size_t)l->size * 4);
            if (lengths && !is_backwards) { /* sequences end here */
                copy_ended(run, at + 1, new, l->padded, last_h, l->size);
                if (c) copy_ended(run, at + 1, cell, l->padded, last_c, l->size);
            }
            float *last = old;
            old = new;
            new = last;
        }
        /* The steps may have been pieces of other threads. */
        if (rvm_must_stop(call, some * l->batch * l->padded * l->gates * (l->size + 256))) return RVM_FAILED;
    }
    if (!lengths || is_backwards) {
        rvm_copy_rows(old, l->padded, last_h, l->size, l->batch, l->size);
        if (c) rvm_copy_rows(cell, l->padded, last_c, l->size, l->batch, l->size);
    }
    if (lengths) { /* of these no step has run */
        copy_ended(run, 0, first_h, l->size, last_h, l->size);
        if (c) copy_ended(run, 0, first_c, l->size, last_c, l->size);
    }
    return RVM_OK;
}

static int lstm(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers;
    char *workspace = call->workspace;
    Recurrent l;
    if (!get_lstm(call, &l)) return RVM_ASK_REFERENCE;
    divide_recurrent(call, 1, &l);
    Run run = {.l = &l, .step = lstm_step, .h = x + 4, .c = x + 5, .outs = x + 7};
    if (!read_lengths(&l, &workspace, &run)) return RVM_ASK_REFERENCE;
    run.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &l.of_directions, run_direction, &run);
}

static int gru(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers;
    char *workspace = call->workspace;
    Recurrent l;
    if (!get_gru(call, &l)) return RVM_ASK_REFERENCE;
    divide_recurrent(call, !is_reset_first(call), &l);
    Run run = {.l = &l, .step = is_reset_first(call) ? gru_step_reset_first : gru_step, .h = x + 5,
               .outs = x + 7};
    if (!read_lengths(&l, &workspace, &run)) return RVM_ASK_REFERENCE;
    run.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &l.of_directions, run_direction, &run);
}

/* ---- functions of elements ------------------------------------------------------------------------ */
#define PIECE 4096

typedef struct {
    const float *from;
    float *to;
    int64_t function, count;
    RvmGrid grid; /* of units of PIECE elements */
} Apply;

static int apply_to_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Apply *a = (const Apply *)work;
    RvmPart part = rvm_part(&a->grid, piece);
    (void)thread;
    for (int64_t at = part.outer * PIECE; at < a->count && at < part.outer_end * PIECE; at += PIECE) {
        int64_t some = a->count - at < PIECE ? a->count - at : PIECE;
        int64_t whole = some / RVM_LANES * RVM_LANES, left = some - whole;
        float *to = a->to + at;
        if (a->from != a->to) memcpy(to, a->from + at, (size_t)some * 4);
        rvm_apply(a->function, to, whole);
        if (left) {
            float last[RVM_LANES] = {0};
            memcpy(last, to + whole, (size_t)left * 4);
            rvm_apply(a->function, last, RVM_LANES);
            memcpy(to + whole, last, (size_t)left * 4);
        }
        if (rvm_must_stop(call, some * 64)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* Buffers that are the same memory are taken, since each element is read before it is written. */
static int apply(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *out = x + 1;
    if (!is_of_floats(x) || !is_of_floats(out) || !rvm_same_shape(x, out) ||
        (x->data != out->data && !rvm_no_overlap(x, out)))
        return RVM_ASK_REFERENCE;
    Apply a = {(const float *)x->data, (float *)out->data, ((const LinearParams *)call->params)->function,
               rvm_length(x)};
    a.grid = rvm_divide(call, rvm_time_for(a.count * 16, a.count * 8), (a.count + PIECE - 1) / PIECE, 1);
    return rvm_run_grid(call, &a.grid, apply_to_some, &a);
}

static const RvmArgument linear_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, LinearParams, function),
    RVM_BUFFER(OUT),
};

static const RvmArgument lstm_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE), RVM_FIELD_OF(rvm_directions, CHOICE, RecurrentParams, direction),
    RVM_BUFFER(OUTS),
};

static const RvmArgument gru_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_directions, CHOICE, RecurrentParams, direction),
    RVM_FIELD(FLAG, RecurrentParams, linear_before_reset),
    RVM_BUFFER(OUTS),
};

static const RvmArgument apply_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD_OF(rvm_functions, CHOICE, LinearParams, function), RVM_BUFFER(OUT)};

const RvmImplementation RVM_NAME(rvm_linear)[] = {
    {.name = "linear.packed", .kernel = "nn.linear_blocks", .run = packed, .workspace = linear_workspace,
     RVM_ARGUMENTS(linear_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = "linear.lstm", .kernel = "nn.lstm_blocks", .run = lstm, .workspace = lstm_workspace,
     RVM_ARGUMENTS(lstm_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = "linear.gru", .kernel = "nn.gru_blocks", .run = gru, .workspace = gru_workspace,
     RVM_ARGUMENTS(gru_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = "linear.apply", .kernel = "nn.apply", .run = apply, RVM_ARGUMENTS(apply_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1,
     .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
