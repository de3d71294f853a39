/* Tiles of products of matrices: some rows times one or more blocks of 16 columns, whose sums stay in
 * registers while k goes from its beginning to its end.  See linear.c.
 */
#ifndef RELAXVM_KERNELS_TILES_H
#define RELAXVM_KERNELS_TILES_H

#include "blocks.h"

#define LINE RVM_BLOCK
#define FEW_ROWS 3
#define FEW_ROWS_BLOCKS 4
/* One row has one sum for each block and vector: four of them wait for each other's results, eight do not. */
#define ONE_ROW_BLOCKS (RVM_LINE_VECTORS == 1 ? 8 : 4)
#define MOST_ROWS (RVM_TILE_PIXELS > FEW_ROWS ? RVM_TILE_PIXELS : FEW_ROWS)

/* Floats of the lines of a row. */
static inline int64_t lines_of(int64_t terms) { return (terms + LINE - 1) / LINE * LINE; }

/* A tile of rows, which are `x_row` floats apart if `are_lines` is 0, and else lines one after the other: then
 * `x_row` is how many lines of the weights that are wanted next, of each block from `ahead` on and 16 at most,
 * come to the second-level cache while 16 terms are added.  Sums go to `out`, whose rows are `out_row` floats apart. */
typedef void (*TileCall)(const float *x, int64_t x_row, const float *weight, int64_t weight_block,
                         int64_t terms, const float *bias, float *out, int64_t out_row, const float *ahead);

static inline __attribute__((always_inline)) void tile(int rows, int blocks, int are_lines, const float *x,
                                                       int64_t x_row, const float *w,
                                                       int64_t weight_block, int64_t terms,
                                                       const float *bias, float *out, int64_t out_row,
                                                       const float *ahead) {
    const int nv = RVM_LINE_VECTORS;
    vf sum[MOST_ROWS][ONE_ROW_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < blocks * nv; v++) {
        vf first = bias ? rvm_load(bias + v * RVM_LANES) : rvm_all(0);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) sum[r][v] = first;
    }
#define STEP(value)                                                                              \
    {                                                                                            \
        vf weight[ONE_ROW_BLOCKS * RVM_LINE_VECTORS];                                            \
        _Pragma("GCC unroll 8") for (int b = 0; b < blocks; b++)                                 \
            _Pragma("GCC unroll 4") for (int v = 0; v < nv; v++)                                 \
                weight[b * nv + v] = rvm_load(w + b * weight_block + v * RVM_LANES);             \
        _Pragma("GCC unroll 16") for (int r = 0; r < rows; r++) {                                \
            vf one = rvm_all(value);                                                             \
            _Pragma("GCC unroll 16") for (int v = 0; v < blocks * nv; v++)                       \
                sum[r][v] = rvm_fma(one, weight[v], sum[r][v]);                                  \
        }                                                                                        \
        w += RVM_BLOCK;                                                                          \
    }
    if (are_lines) {
        int64_t k = 0;
        if (x_row == 0) ahead = w;
        for (; k + LINE <= terms; k += LINE) {
#pragma GCC unroll 4
            for (int q = 0; q < LINE; q++) {
                if (q < x_row)
                    for (int b = 0; b < blocks; b++) __builtin_prefetch(ahead + b * weight_block + q * LINE, 0, 2);
                STEP(x[r * LINE + q])
            }
            ahead += x_row * LINE;
            x += rows * LINE;
        }
        for (int q = 0; q < terms - k; q++) STEP(x[r * LINE + q])
    } else {
        for (int64_t k = 0; k < terms; k++) STEP(x[r * x_row + k])
    }
#undef STEP
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < blocks * nv; v++) rvm_store(out + r * out_row + v * RVM_LANES, sum[r][v]);
}

#define TILE(name, rows, blocks, are_lines, unused)                                                 \
    static void name##_##blocks##_##rows(const float *x, int64_t x_row, const float *weight,        \
                                         int64_t weight_block, int64_t terms, const float *bias,    \
                                         float *out, int64_t out_row, const float *ahead) {         \
        tile(rows, blocks, are_lines, x, x_row, weight, weight_block, terms, bias, out, out_row,    \
             ahead);                                                                                \
    }

RVM_EACH_PIXELS(TILE, of_lines, 1, 1, 0)
#if RVM_TILE_BLOCKS == 2
RVM_EACH_PIXELS(TILE, of_lines, 2, 1, 0)
#endif
static const TileCall of_lines[RVM_TILE_BLOCKS][RVM_TILE_PIXELS] = {
    {RVM_EACH_PIXELS(RVM_TILE_ENTRY, of_lines, 1, 1, 0)},
#if RVM_TILE_BLOCKS == 2
    {RVM_EACH_PIXELS(RVM_TILE_ENTRY, of_lines, 2, 1, 0)},
#endif
};

/* Few rows, in place. */
#define FEW(rows) TILE(in_place, rows, 1, 0, 0) TILE(in_place, rows, 4, 0, 0)
FEW(1)
FEW(2)
FEW(3)
static const TileCall in_place[2][FEW_ROWS] = {{in_place_1_1, in_place_1_2, in_place_1_3},
                                               {in_place_4_1, in_place_4_2, in_place_4_3}};

#endif
