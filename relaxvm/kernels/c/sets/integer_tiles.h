/* Tiles of products of bytes, for one way to multiply them: integers.c includes this file once for each.
 *
 * Before it is included, these are defined:
 *
 *   METHOD(name)   the name of a function of this method
 *   TARGET         an attribute of its functions: instructions beyond those of the set
 *   DOT(s, x, w)   s plus, in each lane of 32 bits, the products of four bytes of x, which are unsigned, and of w,
 *                  which are signed
 *   PIXELS         rows of the largest tile: 2, 4, 8 or 14
 *   BLOCKS         blocks of 16 outputs of it: 1 or 2
 *   SPEED          products of quads of a nanosecond, about
 *   FEW, MANY      a tile of few rows has MANY blocks: a product of one row waits for each sum otherwise
 */

/* sums[block][row][16] of `rows` rows from one on, and `blocks` blocks of outputs, with what they begin with. */
static inline __attribute__((always_inline)) TARGET void METHOD(tile)(const Bytes *b, int64_t first, int rows,
                                                                       int blocks, int32_t *sums) {
    const int nv = RVM_LINE_VECTORS;
    const int8_t *w = b->weight;
    const int64_t step = b->x_step;
    const uint8_t *x[(PIXELS + 2) / 3]; /* every third row: the others are one or two steps on */
    vi sum[PIXELS][MANY * RVM_LINE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < (rows + 2) / 3; i++) x[i] = b->x + (first + 3 * i) * step;
#pragma GCC unroll 16
    for (int v = 0; v < blocks * nv; v++) {
        vi start = {0};
        if (b->start) memcpy(&start, b->start + v * RVM_LANES, sizeof start);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) sum[r][v] = start;
    }
    for (int64_t t = 0; t < b->count; t++) {
        const int64_t at = b->terms[t];
        const int64_t quads = t < b->whole ? QUADS : b->left;
        for (int64_t q = 0; q < quads; q++) {
            vi weight[MANY * RVM_LINE_VECTORS];
#pragma GCC unroll 4
            for (int o = 0; o < blocks; o++)
#pragma GCC unroll 4
                for (int v = 0; v < nv; v++)
                    memcpy(&weight[o * nv + v], w + o * b->weight_block + (q * RVM_BLOCK + v * RVM_LANES) * QUAD, sizeof(vi));
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                vi four = METHOD(all)(x[r / 3] + (r % 3) * step + at + q * QUAD);
#pragma GCC unroll 16
                for (int v = 0; v < blocks * nv; v++) sum[r][v] = DOT(sum[r][v], four, weight[v]);
            }
        }
        w += LINE_WEIGHTS;
    }
#pragma GCC unroll 4
    for (int o = 0; o < blocks; o++)
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                memcpy(sums + (o * rows + r) * RVM_BLOCK + v * RVM_LANES, &sum[r][o * nv + v], sizeof(vi));
}

#define ONE(rows, blocks)                                                                                   \
    static TARGET void METHOD(tile_##blocks##_##rows)(const Bytes *b, int64_t first, int32_t *sums) {       \
        METHOD(tile)(b, first, rows, blocks, sums);                                                         \
    }
#define ENTRY(rows, blocks) METHOD(tile_##blocks##_##rows),
#if PIXELS == 14
#define EACH(X, blocks)                                                                                     \
    X(1, blocks) X(2, blocks) X(3, blocks) X(4, blocks) X(5, blocks) X(6, blocks) X(7, blocks) X(8, blocks) \
    X(9, blocks) X(10, blocks) X(11, blocks) X(12, blocks) X(13, blocks) X(14, blocks)
#elif PIXELS == 8
#define EACH(X, blocks)                                                                                     \
    X(1, blocks) X(2, blocks) X(3, blocks) X(4, blocks) X(5, blocks) X(6, blocks) X(7, blocks) X(8, blocks)
#elif PIXELS == 4
#define EACH(X, blocks) X(1, blocks) X(2, blocks) X(3, blocks) X(4, blocks)
#else
#define EACH(X, blocks) X(1, blocks) X(2, blocks)
#endif
#if FEW == 3
#define EACH_FEW(X, blocks) X(1, blocks) X(2, blocks) X(3, blocks)
#else
#define EACH_FEW(X, blocks) X(1, blocks)
#endif

EACH(ONE, 1)
#if BLOCKS == 2
EACH(ONE, 2)
#endif
/* The number of blocks is in the names, so it is one token here. */
#if MANY == 4
EACH_FEW(ONE, 4)
#else
EACH_FEW(ONE, 2)
#endif

static const Tiles METHOD(tiles) = {
    .rows = PIXELS,
    .blocks = BLOCKS,
    .few = FEW,
    .many = MANY,
    .speed = SPEED,
    .one = {EACH(ENTRY, 1)},
#if BLOCKS == 2
    .two = {EACH(ENTRY, 2)},
#endif
#if MANY == 4
    .of_few = {EACH_FEW(ENTRY, 4)},
#else
    .of_few = {EACH_FEW(ENTRY, 2)},
#endif
};

#undef METHOD
#undef TARGET
#undef DOT
#undef PIXELS
#undef BLOCKS
#undef FEW
#undef MANY
#undef SPEED
#undef ONE
#undef ENTRY
#undef EACH
#undef EACH_FEW
