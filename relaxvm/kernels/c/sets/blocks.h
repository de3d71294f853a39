/* Images in blocks of channels: x[image, block of 16 channels, row, column, channel of the block].
 *
 * The 16 channels of a pixel are a line of 64 bytes: one, two or four vectors, by set.  So the layout, and
 * with it that of weights, is the same for all sets.  Where the number of channels is no multiple of 16,
 * the last block is filled up with channels whose values do not matter as long as they are finite:
 * weights have zeros there.  The idea is that of MLAS (NCHWc) and oneDNN (nChw16c).
 */
#ifndef RELAXVM_KERNELS_BLOCKS_H
#define RELAXVM_KERNELS_BLOCKS_H

#include <float.h>
#include <math.h>

#include "../buffers.h"
#include "../pieces.h"
#include "math.h"
#include "vector.h"

#define RVM_BLOCK 16
#define RVM_LINE_VECTORS (RVM_BLOCK / RVM_LANES)

/* ---- memory of a call ---------------------------------------------------------------------------- */
#define RVM_ALIGNMENT 64

static inline int64_t rvm_aligned(int64_t bytes) {
    return (bytes + RVM_ALIGNMENT - 1) & ~(int64_t)(RVM_ALIGNMENT - 1);
}

/* Bytes of the workspace that a thread has for itself: a page more than it takes.  A processor fetches what follows in a
 * page, and would take it from the thread that writes there. */
#define RVM_PAGE 4096

static inline int64_t rvm_apart(int64_t bytes) { return rvm_aligned(bytes) + RVM_PAGE; }

/* The next part of the workspace. */
static inline char *rvm_take(char **workspace, int64_t bytes) {
    char *part = (char *)(((uintptr_t)*workspace + RVM_ALIGNMENT - 1) & ~(uintptr_t)(RVM_ALIGNMENT - 1));
    *workspace = part + bytes;
    return part;
}

/* ---- products of lines -------------------------------------------------------------------------- */
/* Products of the tile below: pixels at once, and blocks of output channels at once.  Accumulators, the
 * weights of one input channel, and one broadcast pixel fill the registers. */
#if defined(__AVX512F__)
#define RVM_TILE_PIXELS 14
#define RVM_TILE_BLOCKS 2
#elif defined(__AVX2__)
#define RVM_TILE_PIXELS 6
#define RVM_TILE_BLOCKS 1
#elif defined(__aarch64__)
#define RVM_TILE_PIXELS 6
#define RVM_TILE_BLOCKS 1
#else
#define RVM_TILE_PIXELS 2
#define RVM_TILE_BLOCKS 1
#endif

/* What happens to a sum.  Before it is stored: addition of a residual, then bounds.  To the results of a
 * tile, while they are in the cache: negative ones are multiplied by the slope of their channel, then there
 * is a function, then a factor and a number to add. */
typedef struct {
    float low, high;     /* -inf and inf for none */
    const float *slope;  /* of all channels; NULL for none */
    int64_t function;    /* RVM_NO_INT for none */
    float scale, shift;
    int is_scaled;
    int is_more;         /* whether anything comes after the bounds */
} RvmEpilogue;

#define RVM_NO_EPILOGUE {-INFINITY, INFINITY, NULL, RVM_NO_INT, 1, 0, 0, 0}
/* Work of what comes after the bounds, for a line, in the unit of rvm_must_stop. */
#define RVM_FINISH_WORK 1024

static inline vf rvm_bounded(vf v, const RvmEpilogue *e) {
    return rvm_at_most(rvm_all(e->high), rvm_at_least(rvm_all(e->low), v));
}

/* What comes after the bounds, of lines of the block of channels that begins at `channel`. */
static __attribute__((noinline, unused)) void rvm_finish(const RvmEpilogue *e, int64_t channel, float *at,
                                                            int64_t lines) {
    int64_t count = lines * RVM_BLOCK;
    if (e->slope) {
        for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
            vf slope = rvm_load(e->slope + channel + lane);
            for (int64_t i = lane; i < count; i += RVM_BLOCK) {
                vf v = rvm_load(at + i);
                vi is_negative = v < rvm_all(0);
                rvm_store(at + i, (vf)(((vi)(v * slope) & is_negative) | ((vi)v & ~is_negative)));
            }
        }
    }
    if (e->function != RVM_NO_INT) rvm_apply(e->function, at, count);
    if (e->is_scaled) {
        vf scale = rvm_all(e->scale), shift = rvm_all(e->shift);
        for (int64_t i = 0; i < count; i += RVM_LANES) rvm_store(at + i, rvm_fma(rvm_load(at + i), scale, shift));
    }
}

/* A product of lines: for each of `pixels` pixels p, and each of `blocks` blocks b of 16 outputs,
 *
 *   out[b][p][o] = bias[b][o] + sum over terms t and channels q of
 *                  x[terms[t] + p * x_step + q] * weight[b][t][q][o]  (+ residual[b][p][o]), bounded
 *
 * x_step and offsets are in floats.  A term has `channels` channels: 16, or 1 for planes of pixels.  Of the
 * terms from `whole` on, those of the last block, only the first `left` channels, a multiple of
 * RVM_QUAD, have weights other than 0. */
typedef struct {
    const float *x, *weight, *bias, *residual; /* bias and residual may be NULL */
    float *out;
    const int64_t *terms;
    int64_t count;                   /* of terms */
    int64_t whole, left;
    int64_t x_step;                  /* floats from one pixel to the next, where it is no constant */
    int64_t weight_block, out_block; /* floats from one block of outputs to the next */
    int64_t channel;                 /* the first one of the first block of outputs */
    RvmEpilogue epilogue;
    const RvmKernelCall *call;
    /* Weights that are wanted next, as many as now, which come from memory meanwhile: each of `next_runs` runs of
     * tiles, of which this is number `next_run`, fetches a share of them into the second-level cache. */
    const float *next;               /* NULL for none */
    int64_t next_runs, next_run;
    /* The share of a tile: with each term so many lines of each block, one for a channel at most, from here on. */
    const float *ahead;
    int64_t ahead_lines;
} RvmLines;

/* As above; all counts but that of the terms are constants of the code that calls this. */
static inline __attribute__((always_inline)) void rvm_lines(const RvmLines *l, int64_t pixel, int pixels,
                                                            int blocks, int channels, int64_t x_step) {
    const int nv = RVM_LINE_VECTORS;
    const float *x = l->x + pixel * x_step, *w = l->weight;
    vf sum[RVM_TILE_PIXELS][RVM_TILE_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 8
    for (int b = 0; b < blocks; b++)
#pragma GCC unroll 8
        for (int v = 0; v < nv; v++) {
            vf first = l->bias ? rvm_load(l->bias + b * RVM_BLOCK + v * RVM_LANES) : rvm_all(0);
#pragma GCC unroll 16
            for (int p = 0; p < pixels; p++) sum[p][b * nv + v] = first;
        }
    const float *ahead = l->ahead;
    const int64_t ahead_lines = l->ahead_lines;
    for (int64_t t = 0; t < l->count; t++) {
        const float *line = x + l->terms[t];
        RVM_IN_REGISTER(line); /* else GCC computes the address of each pixel */
        int64_t used = channels == 1 || t < l->whole ? channels : l->left;
        /* Terms are far apart: no stream that the processor would follow by itself. */
        if (channels > 1 && t + 1 < l->count)
#pragma GCC unroll 16
            for (int p = 0; p < pixels; p++) __builtin_prefetch(x + l->terms[t + 1] + p * x_step);
        for (int64_t quad = 0; quad < used; quad += RVM_QUAD) {
            /* In the middle of a term, at some distance from the lines of the next one. */
            if (quad == channels / 2 / RVM_QUAD * RVM_QUAD)
                for (int64_t i = 0; i < ahead_lines && i < channels; i++)
                    for (int b = 0; b < blocks; b++)
                        __builtin_prefetch(ahead + b * l->weight_block + i * RVM_BLOCK, 0, 2);
#pragma GCC unroll 4
            for (int q = 0; q < (channels < RVM_QUAD ? channels : RVM_QUAD); q++) {
                vf weight[RVM_TILE_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 8
                for (int b = 0; b < blocks; b++)
#pragma GCC unroll 8
                    for (int v = 0; v < nv; v++)
                        weight[b * nv + v] = rvm_load(w + b * l->weight_block + v * RVM_LANES);
#pragma GCC unroll 16
                for (int p = 0; p < pixels; p++) {
                    vf value = rvm_all(line[p * x_step + quad + q]);
#pragma GCC unroll 8
                    for (int v = 0; v < blocks * nv; v++)
                        rvm_add_product(&sum[p][v], value, weight[v]);
                }
                w += RVM_BLOCK;
            }
        }
        w += (channels - used) * RVM_BLOCK;
        ahead += ahead_lines * RVM_BLOCK;
    }
    const float *residual = l->residual;
    float *out = l->out;
    int64_t out_block = l->out_block;
    if (residual)
#pragma GCC unroll 8
        for (int b = 0; b < blocks; b++)
#pragma GCC unroll 16
            for (int p = 0; p < pixels; p++)
#pragma GCC unroll 8
                for (int v = 0; v < nv; v++)
                    sum[p][b * nv + v] += rvm_load(residual + b * out_block + (pixel + p) * RVM_BLOCK + v * RVM_LANES);
    vf low = rvm_all(l->epilogue.low), high = rvm_all(l->epilogue.high);
#pragma GCC unroll 8
    for (int b = 0; b < blocks; b++)
#pragma GCC unroll 16
        for (int p = 0; p < pixels; p++)
#pragma GCC unroll 8
            for (int v = 0; v < nv; v++)
                rvm_store(out + b * out_block + (pixel + p) * RVM_BLOCK + v * RVM_LANES,
                          rvm_at_most(high, rvm_at_least(low, sum[p][b * nv + v])));
    if (l->epilogue.is_more)
        for (int b = 0; b < blocks; b++)
            rvm_finish(&l->epilogue, l->channel + b * RVM_BLOCK, l->out + b * l->out_block + pixel * RVM_BLOCK,
                       pixels);
}

/* Products of 1 to RVM_TILE_PIXELS pixels from one on. */
typedef void (*RvmLinesTile)(const RvmLines *, int64_t pixel);

#define RVM_TILE(name, pixels, blocks, channels, step)                             \
    static void name##_##blocks##_##pixels(const RvmLines *l, int64_t pixel) {     \
        rvm_lines(l, pixel, pixels, blocks, channels, step);                       \
    }

#if RVM_TILE_PIXELS == 14
#define RVM_EACH_PIXELS(X, name, blocks, channels, step)                                          \
    X(name, 1, blocks, channels, step) X(name, 2, blocks, channels, step)                         \
    X(name, 3, blocks, channels, step) X(name, 4, blocks, channels, step)                         \
    X(name, 5, blocks, channels, step) X(name, 6, blocks, channels, step)                         \
    X(name, 7, blocks, channels, step) X(name, 8, blocks, channels, step)                         \
    X(name, 9, blocks, channels, step) X(name, 10, blocks, channels, step)                        \
    X(name, 11, blocks, channels, step) X(name, 12, blocks, channels, step)                       \
    X(name, 13, blocks, channels, step) X(name, 14, blocks, channels, step)
#elif RVM_TILE_PIXELS == 6
#define RVM_EACH_PIXELS(X, name, blocks, channels, step)                                          \
    X(name, 1, blocks, channels, step) X(name, 2, blocks, channels, step)                         \
    X(name, 3, blocks, channels, step) X(name, 4, blocks, channels, step)                         \
    X(name, 5, blocks, channels, step) X(name, 6, blocks, channels, step)
#else
#define RVM_EACH_PIXELS(X, name, blocks, channels, step)                                          \
    X(name, 1, blocks, channels, step) X(name, 2, blocks, channels, step)
#endif
#define RVM_TILE_ENTRY(name, pixels, blocks, channels, step) name##_##blocks##_##pixels,

/* Define the tiles of a distance between pixels, and a table: name[blocks - 1][pixels - 1]. */
#if RVM_TILE_BLOCKS == 2
#define RVM_TILES(name, channels, step)                                                           \
    RVM_EACH_PIXELS(RVM_TILE, name, 1, channels, step)                                            \
    RVM_EACH_PIXELS(RVM_TILE, name, 2, channels, step)                                            \
    static const RvmLinesTile name[2][RVM_TILE_PIXELS] = {                                        \
        {RVM_EACH_PIXELS(RVM_TILE_ENTRY, name, 1, channels, step)},                               \
        {RVM_EACH_PIXELS(RVM_TILE_ENTRY, name, 2, channels, step)}};
#else
#define RVM_TILES(name, channels, step)                                                           \
    RVM_EACH_PIXELS(RVM_TILE, name, 1, channels, step)                                            \
    static const RvmLinesTile name[1][RVM_TILE_PIXELS] = {                                        \
        {RVM_EACH_PIXELS(RVM_TILE_ENTRY, name, 1, channels, step)}};
#endif

/* How many channels of the last block of inputs, a multiple of RVM_QUAD, some block of outputs has weights
 * other than 0 of: weights of `blocks` such blocks, `block_floats` apart, and `taps` taps. */
static inline int64_t rvm_used_channels(const float *weight, int64_t blocks, int64_t block_floats, int64_t taps) {
    int64_t used = RVM_QUAD;
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t t = 0; t < taps; t++) {
            const float *lines = weight + b * block_floats + t * RVM_BLOCK * RVM_BLOCK;
            for (int64_t q = RVM_BLOCK - 1; q >= used; q--)
                for (int o = 0; o < RVM_BLOCK; o++)
                    if (lines[q * RVM_BLOCK + o] != 0) {
                        used = (q + RVM_QUAD) / RVM_QUAD * RVM_QUAD;
                        break;
                    }
            if (used == RVM_BLOCK) return used;
        }
    return used;
}

/* Run tiles over `pixels` pixels, divided evenly: 49 are 13, 12, 12, 12 and not 14, 14, 14, 7.  Return
 * whether the call has to stop. */
static inline int rvm_run_tiles(const RvmLinesTile *tiles, RvmLines *l, int64_t first, int64_t pixels) {
    int64_t parts = (pixels + RVM_TILE_PIXELS - 1) / RVM_TILE_PIXELS;
    int64_t share = 0; /* lines of a block that a tile fetches with each term */
    /* One tile alone waits for its own weights: it does not end before memory has brought those. */
    if (l->next && l->count > 0 && parts * l->next_runs > 1) {
        int64_t terms = l->count * parts * l->next_runs;
        share = (l->weight_block / RVM_BLOCK + terms - 1) / terms;
    }
    int64_t least = parts ? pixels / parts : 0, longer = pixels - least * parts;
    for (int64_t part = 0, from = first; part < parts; part++) {
        int64_t count = least + (part < longer);
        int64_t done = (l->next_run * parts + part) * share * l->count * RVM_BLOCK;
        l->ahead_lines = done < l->weight_block ? share : 0;
        l->ahead = l->ahead_lines ? l->next + done : l->weight;
        tiles[count - 1](l, from);
        int64_t more = l->epilogue.is_more ? RVM_FINISH_WORK * RVM_TILE_BLOCKS : 0;
        if (rvm_must_stop(l->call, (l->weight_block + more) * count)) return 1;
        from += count;
    }
    return 0;
}

#endif
