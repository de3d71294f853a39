/* Tiles of products with weights of 16 bits, for one way to multiply: bfloat16.c includes this file once for each.
 *
 * Before it is included, these are defined:
 *
 *   METHOD(name)   the name of a function of this method
 *   TARGET         an attribute of its functions: instructions beyond those of the set
 *   ITEM           the type of an element of a line
 *   STORED         the type of an element of the weights
 *   PARTS          1 if pairs of weights are multiplied at once, 2 if one after the other
 *   WEIGHT         the type of what ADD takes: weights of a vector of outputs
 *   WEIGHT_AT(w, v, part)  those of vector v of the 16 pairs at w, or of the first or second ones
 *   ADD(s, x, w)   s plus, in each lane, the products of weights and the one or two elements at x
 */

/* sums[block][row][16] of `rows` rows from one on, and `blocks` blocks of outputs. */
static inline __attribute__((always_inline)) TARGET void METHOD(tile)(const Lines *l, int64_t first, int rows,
                                                                      int blocks, float *sums) {
    const int nv = RVM_LINE_VECTORS;
    const STORED *w = (const STORED *)l->weight;
    const ITEM *x = (const ITEM *)l->x + first * LINE_TERMS;
    vf sum[RVM_TILE_PIXELS][RVM_TILE_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int v = 0; v < blocks * nv; v++) sum[r][v] = rvm_all(0);
    for (int64_t t = 0; t < l->count; t++) {
        const ITEM *line = x + l->terms[t];
#pragma GCC unroll 2
        for (int pair = 0; pair < LINE_TERMS; pair += 2) {
#pragma GCC unroll 2
            for (int part = 0; part < PARTS; part++) {
                WEIGHT weight[RVM_TILE_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 2
                for (int b = 0; b < blocks; b++)
#pragma GCC unroll 4
                    for (int v = 0; v < nv; v++) weight[b * nv + v] = WEIGHT_AT(w + b * l->weight_block, v, part);
#pragma GCC unroll 16
                for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
                    for (int v = 0; v < blocks * nv; v++)
                        sum[r][v] = ADD(sum[r][v], line + r * LINE_TERMS + pair + part, weight[v]);
            }
            w += 2 * RVM_BLOCK;
        }
    }
#pragma GCC unroll 2
    for (int b = 0; b < blocks; b++)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                rvm_store(sums + (b * rows + r) * RVM_BLOCK + v * RVM_LANES, sum[r][b * nv + v]);
}

#define ONE(name, rows, blocks, channels, step)                                                        \
    static TARGET void name##_##blocks##_##rows(const Lines *l, int64_t first, float *sums) {          \
        METHOD(tile)(l, first, rows, blocks, sums);                                                    \
    }

/* The names of the tiles are put together from METHOD(of), which is expanded first. */
#define ALL(name, blocks) RVM_EACH_PIXELS(ONE, name, blocks, 0, 0)
#define TABLE(name, blocks) RVM_EACH_PIXELS(RVM_TILE_ENTRY, name, blocks, 0, 0)
#define ALL_OF(name, blocks) ALL(name, blocks)

ALL_OF(METHOD(of), 1)
#if RVM_TILE_BLOCKS == 2
ALL_OF(METHOD(of), 2)
#endif
static const Tile METHOD(tiles)[RVM_TILE_BLOCKS][RVM_TILE_PIXELS] = {
    {TABLE(METHOD(of), 1)},
#if RVM_TILE_BLOCKS == 2
    {TABLE(METHOD(of), 2)},
#endif
};

static TARGET void METHOD(run)(const Lines *l, int64_t first, int rows, int blocks, float *sums, int *configured) {
    (void)configured;
    METHOD(tiles)[blocks - 1][rows - 1](l, first, sums);
}

#undef METHOD
#undef TARGET
#undef ITEM
#undef STORED
#undef PARTS
#undef WEIGHT
#undef WEIGHT_AT
#undef ADD
#undef ONE
#undef ALL
#undef TABLE
#undef ALL_OF
