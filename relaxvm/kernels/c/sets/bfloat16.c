/* Products and convolutions of float32 with weights in bfloat16, and products with weights in float16: half the memory, and with instructions for it
 * several times the speed.
 *
 *   amx      tiles of 16 x 32 and 32 x 16 in one instruction, where the processor has AMX and Linux allows it
 *   dot      two products and sums in each lane of 32 bits: AVX512_BF16
 *   widened  weights become float32 when they are loaded; x is not rounded
 *   halves   the same of float16
 *
 * The first two round x to bfloat16, to the nearest even number, when rows or pixels are copied into lines.  Products
 * of two numbers of bfloat16 are exact in float32; sums are float32.  Both take numbers below 2^-126 for 0 and round
 * results below it to 0, as the instructions do.  Products of few rows are as fast as memory in any case: they
 * read rows in place, and do not round x.
 *
 * A line has 32 elements of a row, or 32 channels of a pixel: two blocks.  Weights have pairs of elements side by side,
 * weight[block of outputs][line][pair][16 outputs][2], which is what these instructions take; the first of a pair
 * is in the lower half of 32 bits, so that a shift makes it float32, and a mask the second.
 *
 * An image is copied so that pixels which follow each other in a result are lines that follow each other: at a
 * stride of 2, even and odd rows and columns are apart.  Rows of results then are parts of one long row of lines;
 * what lies between them, where windows would hang over the edge, is computed and left out.  So tiles
 * are full for small images, too.
 *
 * Intel, "Intel 64 and IA-32 Architectures Optimization Reference Manual", chapter 20, describes AMX.
 */
#include "amx.h"
#include "convolutions.h"
#include "tiles.h"

#define LINE_TERMS 32
#define LINE_WEIGHTS (LINE_TERMS * RVM_BLOCK)
/* Bytes of lines that are multiplied by all weights before the next ones are. */
#define CACHED_ROWS (1 << 19)
/* Of a tile, at most, of any method. */
#define MOST_TILE_ROWS 32
#define MOST_TILE_BLOCKS 2
/* Tiles of rows for which weights become float32 once, before they are multiplied. */
#define FEWEST_UNPACKED 5

/* Products of lines: for rows r and outputs o of some blocks b,
 *
 *   sums[b][r][o] = sum over terms t and elements i of x[terms[t] + r * 32 + i] * weight[b][t][i][o]
 *
 * where x and terms are in elements: of 16 bits, or floats if they are not rounded. */
typedef struct {
    const void *x;
    const int64_t *terms;
    int64_t count;
    const void *weight;
    int64_t weight_block; /* from one block of outputs to the next, in elements */
} Lines;

typedef void (*Tile)(const Lines *, int64_t first, float *sums);

/* A way to multiply. */
typedef struct {
    int rows, blocks; /* of a tile, at most */
    int item;         /* bytes of an element of x */
    int speed;        /* products at once, compared with those of float32 */
    /* `configured` is what the processor's tiles are set up for; 0 for nothing. */
    void (*run)(const Lines *, int64_t first, int rows, int blocks, float *sums, int *configured);
    void (*end)(int *configured);
    /* A row of x as lines that are `step` lines apart, with zeros in the last one. */
    void (*copy_row)(const float *x, int64_t terms, void *lines, int64_t step);
    /* Pixels of two blocks, `step` floats apart, as lines that follow each other; b may be NULL. */
    void (*copy_pixels)(const float *a, const float *b, int64_t step, int64_t pixels, void *lines);
    /* Weights as float32, and how to multiply them: where several tiles of rows have the same weights. */
    void (*unpack)(const uint16_t *w, int64_t pairs, float *to);
    void (*run_unpacked)(const Lines *, int64_t first, int rows, int blocks, float *sums, int *configured);
} Method;

static void end_nothing(int *configured) { (void)configured; }

/* ---- widened ------------------------------------------------------------------------------------- */
static inline __attribute__((always_inline)) vi pairs_at(const uint16_t *w, int v) {
    vi pairs;
    memcpy(&pairs, w + v * RVM_LANES * 2, sizeof pairs);
    return pairs;
}

/* The first or second ones of pairs of weights, as float32. */
static inline __attribute__((always_inline)) vf from_pairs(const uint16_t *w, int v, int part) {
    vi pairs = pairs_at(w, v);
    return (vf)(part ? pairs & (int32_t)0xffff0000 : pairs << 16);
}

/* Numbers of float16. */
static inline __attribute__((always_inline)) vf wide_halves(const uint16_t *w) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)w));
#elif defined(__F16C__)
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)w));
#else
    typedef uint16_t Halves __attribute__((vector_size(RVM_LANES * 2)));
    Halves vh;
    memcpy(&vh, w, sizeof vh);
    vi bits = __builtin_convertvector(vh, vi), rest = (bits & 0x7fff) << 13;
    /* The exponent has another bias; that of infinities and NaNs has all bits. */
    vi found = (vi)((vf)rest * rvm_all(0x1p112f)), is_special = rest >= 0x7c00 << 13;
    found = ((rest | 0x7f800000) & is_special) | (found & ~is_special);
    return (vf)(found | (bits & 0x8000) << 16);
#endif
}

/* The first ones of 16 pairs are before the second ones: a vector of pairs would have to be taken apart. */
static inline __attribute__((always_inline)) vf from_halves(const uint16_t *w, int v, int part) {
    return wide_halves(w + part * RVM_BLOCK + v * RVM_LANES);
}

static inline __attribute__((always_inline)) vf add_one(vf sum, const float *x, vf w) {
    return rvm_fma(rvm_all(*x), w, sum);
}

#define METHOD(name) widened_##name
#define TARGET
#define ITEM float
#define STORED uint16_t
#define PARTS 2
#define WEIGHT vf
#define WEIGHT_AT from_pairs
#define ADD add_one
#include "bfloat16_tiles.h"

#define METHOD(name) halves_##name
#define TARGET
#define ITEM float
#define STORED uint16_t
#define PARTS 2
#define WEIGHT vf
#define WEIGHT_AT from_halves
#define ADD add_one
#include "bfloat16_tiles.h"

static inline __attribute__((always_inline)) vf from_floats(const float *w, int v, int part) {
    return rvm_load(w + part * RVM_BLOCK + v * RVM_LANES);
}

#define METHOD(name) floats_##name
#define TARGET
#define ITEM float
#define STORED float
#define PARTS 2
#define WEIGHT vf
#define WEIGHT_AT from_floats
#define ADD add_one
#include "bfloat16_tiles.h"

#define UNPACK(name, from)                                                                         \
    static void name(const uint16_t *w, int64_t pairs, float *to) {                                \
        for (; pairs; pairs--, w += 2 * RVM_BLOCK, to += 2 * RVM_BLOCK)                            \
            for (int v = 0; v < RVM_LINE_VECTORS; v++) {                                           \
                rvm_store(to + v * RVM_LANES, from(w, v, 0));                                      \
                rvm_store(to + RVM_BLOCK + v * RVM_LANES, from(w, v, 1));                          \
            }                                                                                      \
    }
UNPACK(unpack, from_pairs)
UNPACK(unpack_halves, from_halves)

static void copy_row(const float *x, int64_t terms, void *lines, int64_t step) {
    float *to = lines;
    for (; terms >= LINE_TERMS; terms -= LINE_TERMS, x += LINE_TERMS, to += step * LINE_TERMS)
        memcpy(to, x, LINE_TERMS * 4);
    if (!terms) return;
    memset(to, 0, LINE_TERMS * 4);
    memcpy(to, x, (size_t)terms * 4);
}

static void copy_pixels(const float *a, const float *b, int64_t step, int64_t pixels, void *lines) {
    float *to = lines;
    for (int64_t i = 0; i < pixels; i++, to += LINE_TERMS) {
        memcpy(to, a + i * step, RVM_BLOCK * 4);
        if (b)
            memcpy(to + RVM_BLOCK, b + i * step, RVM_BLOCK * 4);
        else
            memset(to + RVM_BLOCK, 0, RVM_BLOCK * 4);
    }
}

static const Method widened = {
    .rows = RVM_TILE_PIXELS, .blocks = RVM_TILE_BLOCKS, .item = 4, .speed = 1, .run = widened_run, .end = end_nothing,
    .copy_row = copy_row, .copy_pixels = copy_pixels, .unpack = unpack, .run_unpacked = floats_run};

static const Method halves = {
    .rows = RVM_TILE_PIXELS, .blocks = RVM_TILE_BLOCKS, .item = 4, .speed = 1, .run = halves_run, .end = end_nothing,
    .copy_row = copy_row, .copy_pixels = copy_pixels, .unpack = unpack_halves, .run_unpacked = floats_run};

/* Few rows, in place: `rows` rows of `terms` elements, and `blocks` blocks. */
static inline __attribute__((always_inline)) void few(const float *x, int rows, int blocks, int are_halves,
                                                      int64_t terms, const uint16_t *w, int64_t weight_block,
                                                      float *sums) {
    const int nv = RVM_LINE_VECTORS;
    vf sum[FEW_ROWS][FEW_ROWS_BLOCKS * RVM_LINE_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 16
        for (int v = 0; v < blocks * nv; v++) sum[r][v] = rvm_all(0);
#define PAIR(is_whole)                                                                                  \
    _Pragma("GCC unroll 4") for (int b = 0; b < blocks; b++)                                            \
        _Pragma("GCC unroll 4") for (int v = 0; v < nv; v++) {                                          \
            const uint16_t *at = w + b * weight_block;                                                  \
            vf first = are_halves ? from_halves(at, v, 0) : from_pairs(at, v, 0);                       \
            vf second = are_halves ? from_halves(at, v, 1) : from_pairs(at, v, 1);                      \
            _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) {                                    \
                vf *to = &sum[r][b * nv + v];                                                           \
                *to = rvm_fma(rvm_all(x[r * terms + k]), first, *to);                               \
                if (is_whole) *to = rvm_fma(rvm_all(x[r * terms + k + 1]), second, *to);            \
            }                                                                                           \
        }
    int64_t k = 0;
    for (; k + 1 < terms; k += 2, w += 2 * RVM_BLOCK) PAIR(1)
    if (k < terms) PAIR(0)
#undef PAIR
#pragma GCC unroll 4
    for (int b = 0; b < blocks; b++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                rvm_store(sums + (b * rows + r) * RVM_BLOCK + v * RVM_LANES, sum[r][b * nv + v]);
}

typedef void (*FewCall)(const float *x, int64_t terms, const uint16_t *w, int64_t weight_block, float *sums);

#define FEW_OF(name, are_halves, rows, blocks)                                                                 \
    static void name##_##blocks##_##rows(const float *x, int64_t terms, const uint16_t *w, int64_t weight_block, \
                                         float *sums) {                                                        \
        few(x, rows, blocks, are_halves, terms, w, weight_block, sums);                                        \
    }
#define EACH_FEW(name, are_halves)                                                                             \
    FEW_OF(name, are_halves, 1, 1) FEW_OF(name, are_halves, 2, 1) FEW_OF(name, are_halves, 3, 1)               \
    FEW_OF(name, are_halves, 1, 4) FEW_OF(name, are_halves, 2, 4) FEW_OF(name, are_halves, 3, 4)
EACH_FEW(few, 0)
EACH_FEW(few_halves, 1)
static const FewCall of_few[2][2][FEW_ROWS] = {
    {{few_1_1, few_1_2, few_1_3}, {few_4_1, few_4_2, few_4_3}},
    {{few_halves_1_1, few_halves_1_2, few_halves_1_3}, {few_halves_4_1, few_halves_4_2, few_halves_4_3}}};

/* ---- AVX512_BF16 --------------------------------------------------------------------------------- */
#if defined(__AVX512F__)
#define HAS_DOT 1
#define DOT __attribute__((target("avx512bf16")))

static inline DOT __attribute__((always_inline)) vf add_pairs(vf sum, const uint16_t *x, __m512bh w) {
    int32_t pair;
    memcpy(&pair, x, 4);
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), w);
}

#define METHOD(name) dot_##name
#define TARGET DOT
#define ITEM uint16_t
#define STORED uint16_t
#define PARTS 1
#define WEIGHT __m512bh
#define WEIGHT_AT(w, v, part) ((__m512bh)pairs_at(w, v))
#define ADD add_pairs
#include "bfloat16_tiles.h"

static DOT void round_row(const float *x, int64_t terms, void *lines, int64_t step) {
    char *to = lines;
    for (; terms >= LINE_TERMS; terms -= LINE_TERMS, x += LINE_TERMS, to += step * LINE_TERMS * 2)
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x)));
    if (!terms) return;
    __mmask32 left = ((__mmask32)1 << terms) - 1;
    __m512 first = _mm512_maskz_loadu_ps((__mmask16)left, x), second = _mm512_setzero_ps();
    if (terms > 16) second = _mm512_maskz_loadu_ps((__mmask16)(left >> 16), x + 16);
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}

static DOT void round_pixels(const float *a, const float *b, int64_t step, int64_t pixels, void *lines) {
    char *to = lines;
    for (int64_t i = 0; i < pixels; i++, to += LINE_TERMS * 2) {
        __m512 second = b ? _mm512_loadu_ps(b + i * step) : _mm512_setzero_ps();
        _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(second, _mm512_loadu_ps(a + i * step)));
    }
}

static const Method dot = {
    .rows = RVM_TILE_PIXELS, .blocks = RVM_TILE_BLOCKS, .item = 2, .speed = 2, .run = dot_run, .end = end_nothing,
    .copy_row = round_row, .copy_pixels = round_pixels};

static int has_dot(void) { return __builtin_cpu_supports("avx512bf16") != 0; }
#endif

/* ---- AMX ----------------------------------------------------------------------------------------- */
#if defined(HAS_DOT) && defined(HAS_AMX)
#define AMX __attribute__((target("amx-tile,amx-bf16")))

static int has_amx(void) {
    static int known;
    return has_dot() && may_use_tiles(AMX_BF16, &known);
}

/* Tiles 0 to 3 are sums, of one or two groups of rows and of blocks; 4 and 5 are lines, 6 and 7 weights. */
static AMX void configure(int rows) {
    TileShapes tiles = {.palette = 1};
    int first = rows < TILE_ROWS ? rows : TILE_ROWS, second = rows > TILE_ROWS ? rows - TILE_ROWS : first;
    for (int i = 0; i < 8; i++) {
        tiles.bytes[i] = 64;
        tiles.rows[i] = (uint8_t)(i >= 6 ? TILE_ROWS : i % 2 ? second : first);
    }
    _tile_loadconfig(&tiles);
}

static AMX void amx_run(const Lines *l, int64_t first, int rows, int blocks, float *sums, int *configured) {
    const uint16_t *x = (const uint16_t *)l->x + first * LINE_TERMS, *w = l->weight;
    const int64_t *term = l->terms, *end = term + l->count;
    float *below = sums + TILE_ROWS * RVM_BLOCK, *other = sums + rows * RVM_BLOCK;
    if (*configured != rows) configure(rows);
    *configured = rows;
    __asm__ volatile("" ::: "memory"); /* the compiler does not know what the instructions read */
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (rows > TILE_ROWS && blocks == 2) {
        for (; term < end; term++, w += LINE_WEIGHTS) {
            _tile_loadd(4, x + *term, 64);
            _tile_loadd(6, w, 64);
            _tile_loadd(5, x + *term + TILE_ROWS * LINE_TERMS, 64);
            _tile_loadd(7, w + l->weight_block, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
            _tile_dpbf16ps(2, 4, 7);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, sums, 64);
        _tile_stored(1, below, 64);
        _tile_stored(2, other, 64);
        _tile_stored(3, other + TILE_ROWS * RVM_BLOCK, 64);
    } else if (rows > TILE_ROWS) {
        for (; term < end; term++, w += LINE_WEIGHTS) {
            _tile_loadd(6, w, 64);
            _tile_loadd(4, x + *term, 64);
            _tile_loadd(5, x + *term + TILE_ROWS * LINE_TERMS, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
        }
        _tile_stored(0, sums, 64);
        _tile_stored(1, below, 64);
    } else if (blocks == 2) {
        for (; term < end; term++, w += LINE_WEIGHTS) {
            _tile_loadd(4, x + *term, 64);
            _tile_loadd(6, w, 64);
            _tile_loadd(7, w + l->weight_block, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(2, 4, 7);
        }
        _tile_stored(0, sums, 64);
        _tile_stored(2, other, 64);
    } else {
        for (; term < end; term++, w += LINE_WEIGHTS) {
            _tile_loadd(4, x + *term, 64);
            _tile_loadd(6, w, 64);
            _tile_dpbf16ps(0, 4, 6);
        }
        _tile_stored(0, sums, 64);
    }
}

/* Threads that leave tiles in use are slower to switch. */
static AMX void amx_end(int *configured) {
    if (*configured) _tile_release();
    *configured = 0;
}

static const Method amx = {.rows = MOST_TILE_ROWS, .blocks = MOST_TILE_BLOCKS, .item = 2, .speed = 8, .run = amx_run,
                           .end = amx_end, .copy_row = round_row, .copy_pixels = round_pixels};
#endif

/* ---- what products and convolutions share --------------------------------------------------------- */
/* Where the rows of a tile begin: parts of a length, of which the first ones are longer by 1. */
typedef struct {
    int64_t length, parts;
} Evenly;

static int64_t part_at(const Evenly *e, int64_t part) {
    int64_t longer = e->length % e->parts;
    return e->length / e->parts * part + (part < longer ? part : longer);
}

static Evenly evenly(int64_t length, int64_t most) {
    Evenly e = {length, (length + most - 1) / most};
    return e;
}

/* Whether the call has to stop.  Other code may have used the tiles meanwhile. */
static int stops(const RvmKernelCall *call, int64_t products, const Method *m, int *configured) {
    if (rvm_must_stop(call, products / m->speed)) return 1;
    if (*call->done == 0) m->end(configured);
    return 0;
}

static int is_of(const RvmBuffer *x, int ndim, int dtype) {
    return x->ndim == ndim && x->dtype == dtype && rvm_is_contiguous(x) && rvm_length(x) > 0;
}

/* Lines of a plane: an odd number, so that planes do not displace each other in the cache. */
static int64_t plane_of(int64_t lines) { return lines | 1; }

/* ---- products ------------------------------------------------------------------------------------ */
typedef struct {
    int64_t function;
    int64_t rounds;
} LinearParams;

typedef struct {
    const float *x, *bias, *residual; /* bias and residual may be NULL */
    const uint16_t *weight;
    float *out;
    int64_t rows, terms, columns;
    int64_t lines, blocks; /* of a row, and of columns */
    int64_t function;      /* RVM_NO_INT for none */
    int rounds;            /* whether x may be rounded */
    int are_halves;        /* weights in float16 */
} Linear;

/* x[..., terms], weight[blocks, lines, 16, 16, 2], or of float16 [blocks, lines, 16, 2, 16], bias[blocks * 16],
 * residual and out[..., columns] */
static int get_linear(const RvmKernelCall *call, int dtype, Linear *l) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *bias = x + 2, *residual = x + 3, *out = x + 4;
    l->are_halves = dtype == RVM_DTYPE_F16;
    if (x->ndim < 1 || out->ndim != x->ndim || !is_of(x, x->ndim, RVM_DTYPE_F32) ||
        !is_of(out, out->ndim, RVM_DTYPE_F32) || !is_of(weight, 5, dtype) || weight->dims[2] != RVM_BLOCK ||
        weight->dims[3] != (l->are_halves ? 2 : RVM_BLOCK) ||
        weight->dims[4] != (l->are_halves ? RVM_BLOCK : 2) || !rvm_is_input(x, out) || !rvm_no_overlap(weight, out))
        return 0;
    l->terms = x->dims[x->ndim - 1];
    l->columns = out->dims[out->ndim - 1];
    l->rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        RVM_FEW_TURNS;
        if (x->dims[i] != out->dims[i]) return 0;
        l->rows *= x->dims[i];
    }
    l->blocks = weight->dims[0];
    l->lines = weight->dims[1];
    if ((l->columns + RVM_BLOCK - 1) / RVM_BLOCK != l->blocks || (l->terms + LINE_TERMS - 1) / LINE_TERMS != l->lines)
        return 0;
    if (!(bias->flags & RVM_ABSENT) && (!is_of(bias, 1, RVM_DTYPE_F32) || bias->dims[0] != l->blocks * RVM_BLOCK ||
                                        !rvm_is_input(bias, out)))
        return 0;
    if (!(residual->flags & RVM_ABSENT) &&
        (!is_of(residual, out->ndim, RVM_DTYPE_F32) || !rvm_same_shape(residual, out) ||
         (residual->data != out->data && !rvm_no_overlap(residual, out))))
        return 0;
    l->x = (const float *)x->data;
    l->weight = (const uint16_t *)weight->data;
    l->bias = (const float *)bias->data;
    l->residual = (const float *)residual->data;
    l->out = (float *)out->data;
    l->function = ((const LinearParams *)call->params)->function;
    l->rounds = !l->are_halves && ((const LinearParams *)call->params)->rounds;
    return 1;
}

/* What follows the sums[block][row][16] of a tile.  A row of all blocks is written at once: rows are often some
 * power of two apart, and would displace each other in the cache. */
static void finish_rows(const Linear *l, float *sums, int64_t row, int rows, int64_t block, int blocks) {
    const int64_t first = block * RVM_BLOCK, step = (int64_t)rows * RVM_BLOCK;
    const int has_function = l->function != RVM_NO_INT;
    if (has_function || l->columns - first < blocks * RVM_BLOCK) {
        for (int r = 0; r < rows; r++)
            for (int b = 0; b < blocks; b++) {
                int64_t from = first + b * RVM_BLOCK, left = l->columns - from;
                float *at = sums + b * step + r * RVM_BLOCK;
                if (l->bias)
                    for (int v = 0; v < RVM_BLOCK; v += RVM_LANES)
                        rvm_store(at + v, rvm_load(at + v) + rvm_load(l->bias + from + v));
                if (l->residual) {
                    const float *more = l->residual + (row + r) * l->columns + from;
                    for (int i = 0; i < (left < RVM_BLOCK ? left : RVM_BLOCK); i++) at[i] += more[i];
                }
            }
        if (has_function) rvm_apply(l->function, sums, step * blocks);
        for (int r = 0; r < rows; r++)
            for (int b = 0; b < blocks; b++) {
                int64_t from = first + b * RVM_BLOCK, left = l->columns - from;
                memcpy(l->out + (row + r) * l->columns + from, sums + b * step + r * RVM_BLOCK,
                       (size_t)(left < RVM_BLOCK ? left : RVM_BLOCK) * 4);
            }
        return;
    }
    for (int r = 0; r < rows; r++) {
        int64_t at = (row + r) * l->columns + first;
        for (int b = 0; b < blocks; b++)
            for (int v = 0; v < RVM_BLOCK; v += RVM_LANES) {
                int64_t column = b * RVM_BLOCK + v;
                vf sum = rvm_load(sums + b * step + r * RVM_BLOCK + v);
                if (l->bias) sum += rvm_load(l->bias + first + column);
                if (l->residual) sum += rvm_load(l->residual + at + column);
                rvm_store(l->out + at + column, sum);
            }
    }
}

/* A product, divided. */
typedef struct {
    const Linear *l;
    const Method *method;
    void *lines;
    int64_t *terms;
    int64_t plane;       /* lines of a plane, which has the same 32 elements of all rows */
    int64_t first, last; /* rows that are in lines */
    Evenly tiles;        /* of them */
    char *unpacked;      /* weights of a tile, for each thread */
    RvmGrid grid;
} Product;

/* Bytes of the weights of a tile in float32. */
static int64_t unpacked_bytes(const Linear *l) { return rvm_apart(l->lines * LINE_WEIGHTS * RVM_TILE_BLOCKS * 4); }

static int64_t product_time(const Linear *l, const Method *m, int64_t rows) {
    return rvm_time_for(rows * l->terms * l->columns / m->speed, (2 * l->terms + 4 * rows) * l->columns);
}

static int run_few(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    const Linear *l = p->l;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t step = l->lines * LINE_WEIGHTS;
    (void)thread;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        int64_t end = (i + 1) * FEW_ROWS_BLOCKS < l->blocks ? (i + 1) * FEW_ROWS_BLOCKS : l->blocks;
        for (int64_t b = i * FEW_ROWS_BLOCKS; b < end;) {
            float sums[FEW_ROWS * FEW_ROWS_BLOCKS * RVM_BLOCK];
            int is_wide = end - b == FEW_ROWS_BLOCKS, some = is_wide ? FEW_ROWS_BLOCKS : 1;
            of_few[l->are_halves][is_wide][l->rows - 1](l->x, l->terms, l->weight + b * step, step, sums);
            finish_rows(l, sums, 0, (int)l->rows, b, some);
            if (rvm_must_stop(call, l->rows * some * RVM_BLOCK * (l->terms + 64))) return RVM_FAILED;
            b += some;
        }
    }
    return RVM_OK;
}

/* The same for all methods, as the workspace: a call that one of them does not take is asked of the next. */
static int64_t rows_at_once(const Linear *l) {
    int64_t most = CACHED_ROWS / (l->lines * LINE_TERMS * 4);
    if (most < 2 * MOST_TILE_ROWS) most = 2 * MOST_TILE_ROWS;
    return most < l->rows ? most : l->rows;
}

static int pack_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    const Linear *l = p->l;
    const Method *m = p->method;
    RvmPart part = rvm_part(&p->grid, piece);
    (void)thread;
    for (int64_t r = part.outer; r < part.outer_end; r++) {
        const float *x = l->x + (p->first + r) * l->terms;
        m->copy_row(x, l->terms, (char *)p->lines + r * LINE_TERMS * m->item, p->plane);
        if (rvm_must_stop(call, l->terms * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int multiply_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    const Linear *l = p->l;
    const Method *m = p->method;
    RvmPart part = rvm_part(&p->grid, piece);
    int configured = 0, status = RVM_OK;
    Lines lines = {.x = p->lines, .terms = p->terms, .count = l->lines, .weight_block = l->lines * LINE_WEIGHTS};
    int is_unpacked = m->unpack && part.inner_end - part.inner >= FEWEST_UNPACKED;
    float *unpacked = (float *)(p->unpacked + thread * unpacked_bytes(l));
    for (int64_t i = part.outer; i < part.outer_end && status == RVM_OK; i++) {
        int64_t b = i * m->blocks;
        int some = l->blocks - b < m->blocks ? (int)(l->blocks - b) : m->blocks;
        lines.weight = l->weight + b * lines.weight_block;
        if (is_unpacked) {
            m->unpack(l->weight + b * lines.weight_block, some * l->lines * LINE_TERMS / 2, unpacked);
            lines.weight = unpacked;
        }
        for (int64_t t = part.inner; t < part.inner_end && status == RVM_OK; t++) {
            __attribute__((aligned(64))) float sums[MOST_TILE_ROWS * MOST_TILE_BLOCKS * RVM_BLOCK];
            int64_t from = part_at(&p->tiles, t);
            int rows = (int)(part_at(&p->tiles, t + 1) - from);
            (is_unpacked ? m->run_unpacked : m->run)(&lines, from, rows, some, sums, &configured);
            finish_rows(l, sums, p->first + from, rows, b, some);
            if (stops(call, rows * some * RVM_BLOCK * (l->terms + 64), m, &configured)) status = RVM_FAILED;
        }
    }
    m->end(&configured);
    return status;
}

static int64_t workspace_of(const RvmKernelCall *call, int dtype) {
    Linear l;
    if (!get_linear(call, dtype, &l)) return -1;
    if (l.rows <= FEW_ROWS) return 0;
    return rvm_aligned(l.lines * 8) + call->threads * unpacked_bytes(&l) +
           l.lines * plane_of(rows_at_once(&l)) * LINE_TERMS * 4 + 2 * RVM_ALIGNMENT;
}

static int64_t linear_workspace(const RvmKernelCall *call) { return workspace_of(call, RVM_DTYPE_U16); }
static int64_t halves_workspace(const RvmKernelCall *call) { return workspace_of(call, RVM_DTYPE_F16); }

static int linear_with(const RvmKernelCall *call, const Method *m) {
    Linear l;
    if (!get_linear(call, m == &halves ? RVM_DTYPE_F16 : RVM_DTYPE_U16, &l) || (m->item == 2 && !l.rounds))
        return RVM_ASK_REFERENCE;
    Product p = {.l = &l, .method = m};
    if (l.rows <= FEW_ROWS) {
        p.grid = rvm_divide(call, product_time(&l, &widened, l.rows),
                            (l.blocks + FEW_ROWS_BLOCKS - 1) / FEW_ROWS_BLOCKS, 1);
        return rvm_run_grid(call, &p.grid, run_few, &p);
    }
    char *workspace = call->workspace;
    int64_t at_once = rows_at_once(&l);
    p.plane = plane_of(at_once);
    p.terms = (int64_t *)rvm_take(&workspace, rvm_aligned(l.lines * 8));
    p.unpacked = rvm_take(&workspace, call->threads * unpacked_bytes(&l));
    p.lines = rvm_take(&workspace, 0);
    for (int64_t i = 0; i < l.lines; i++) p.terms[i] = i * p.plane * LINE_TERMS;
    for (; p.first < l.rows; p.first = p.last) {
        p.last = p.first + at_once < l.rows ? p.first + at_once : l.rows;
        p.tiles = evenly(p.last - p.first, m->rows);
        int64_t time = product_time(&l, m, p.last - p.first);
        p.grid = rvm_divide(call, time, p.last - p.first, 1);
        if (rvm_run_grid(call, &p.grid, pack_some, &p)) return RVM_FAILED;
        p.grid = rvm_divide(call, time, (l.blocks + m->blocks - 1) / m->blocks, p.tiles.parts);
        if (rvm_run_grid(call, &p.grid, multiply_some, &p)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* ---- convolutions -------------------------------------------------------------------------------- */
/* An image in lines: lines[group][pair of blocks][phase of rows][phase of columns][row][column][32]. */
typedef struct {
    Conv c;
    const Method *method;
    int64_t pairs;              /* of blocks of a group */
    int64_t phases_y, phases_x; /* that the window has taps in, at most */
    int64_t tall, wide;         /* rows and columns of a phase */
    int64_t plane;              /* lines of a phase */
    int64_t span;               /* lines from the first result to the last one of an image */
} Image;

/* x[image, block, row, column, 16], weight[block of outputs, pair of blocks, row, column, 16, 16, 2] */
static int get_image(const RvmKernelCall *call, const Method *m, Image *i) {
    const RvmBuffer *x = call->buffers, *weight = x + 1, *out = x + 5;
    Conv *c = &i->c;
    if (!is_block_of(x, 5) || x->dims[4] != RVM_BLOCK || !is_of(weight, 7, RVM_DTYPE_U16) ||
        weight->dims[4] != RVM_BLOCK || weight->dims[5] != RVM_BLOCK || weight->dims[6] != 2 ||
        !get_conv(call, weight->dims[2], weight->dims[3], c) || out->dims[1] != weight->dims[0] ||
        x->dims[1] % c->groups || out->dims[1] % c->groups)
        return 0;
    c->inputs = x->dims[1] / c->groups;
    c->outputs = out->dims[1] / c->groups;
    i->method = m;
    i->pairs = weight->dims[1];
    if (i->pairs != (c->inputs + 1) / 2) return 0;
    i->phases_y = c->tall == 1 ? 1 : c->stride_y;
    i->phases_x = c->wide == 1 ? 1 : c->stride_x;
    i->tall = (c->padded_height + c->stride_y - 1) / c->stride_y;
    i->wide = (c->padded_width + c->stride_x - 1) / c->stride_x;
    i->plane = plane_of(i->tall * i->wide);
    i->span = (c->rows - 1) * i->wide + c->columns;
    /* Phases that no tap is in take memory, too: some times that of the image, not any amount. */
    return i->phases_y * i->phases_x * i->plane <= 4 * (c->padded_height * c->padded_width + 64);
}

static int64_t planes_of(const Image *i) { return i->c.groups * i->pairs * i->phases_y * i->phases_x; }

/* As for products, enough for each method. */
static int64_t conv_workspace(const RvmKernelCall *call) {
    Image i;
    if (!get_image(call, &widened, &i)) return -1;
    int64_t terms = i.pairs * i.c.tall * i.c.wide;
    return rvm_aligned(terms * 8) + planes_of(&i) * i.plane * LINE_TERMS * 4 + 2 * RVM_ALIGNMENT;
}

/* A convolution, divided; x and out are of an image. */
typedef struct {
    const Image *image;
    void *lines;
    int64_t *terms;
    int64_t number; /* of the image */
    Evenly tiles;   /* of its lines */
    int is_row_by_row; /* all outputs of a tile of lines, then the next ones; else the other way round */
    RvmGrid grid;
} Parts;

static int copy_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Parts *p = (const Parts *)work;
    const Image *i = p->image;
    const Conv *c = &i->c;
    const Method *m = i->method;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t line = LINE_TERMS * m->item, area = c->height * c->width * RVM_BLOCK;
    (void)thread;
    for (int64_t plane = part.outer; plane < part.outer_end; plane++) {
        int64_t left = plane % i->phases_x, top = plane / i->phases_x % i->phases_y;
        int64_t pair = plane / (i->phases_x * i->phases_y), block = pair % i->pairs * 2;
        const float *x = c->x + ((p->number * c->groups + pair / i->pairs) * c->inputs + block) * area;
        const float *other = block + 1 < c->inputs ? x + area : NULL;
        for (int64_t row = part.inner; row < part.inner_end; row++) {
            char *to = (char *)p->lines + (plane * i->plane + row * i->wide) * line;
            int64_t y = row * c->stride_y + top - c->top;
            /* The columns that are in the image: those before and after, and rows beyond, are 0. */
            int64_t from = (c->left - left + c->stride_x - 1) / c->stride_x;
            int64_t end = (c->width + c->left - left + c->stride_x - 1) / c->stride_x;
            if (c->left < left) from = 0;
            if (end > i->wide) end = i->wide;
            if (y < 0 || y >= c->height || from >= end) from = end = i->wide;
            memset(to, 0, (size_t)(from * line));
            memset(to + end * line, 0, (size_t)((i->wide - end) * line));
            int64_t at = (y * c->width + from * c->stride_x + left - c->left) * RVM_BLOCK;
            if (from < end)
                m->copy_pixels(x + at, other ? other + at : NULL, c->stride_x * RVM_BLOCK, end - from, to + from * line);
            if (rvm_must_stop(call, i->wide * RVM_BLOCK * 16)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

/* What follows the sums of a tile: lines from one on, of which some are pixels of the result. */
static void finish_lines(const Image *i, int64_t number, const float *sums, int64_t first, int lines, int64_t output,
                         int blocks) {
    const Conv *c = &i->c;
    const RvmEpilogue *e = &c->epilogue;
    int64_t all = c->groups * c->outputs;
    for (int b = 0; b < blocks; b++) {
        int64_t channel = (output + b) * RVM_BLOCK, at = (number * all + output + b) * c->rows * c->columns;
        for (int64_t line = first; line < first + lines;) {
            int64_t y = line / i->wide, x = line % i->wide, some = c->columns - x;
            if (some <= 0) {
                line += i->wide - x;
                continue;
            }
            if (some > first + lines - line) some = first + lines - line;
            const float *from = sums + (b * lines + line - first) * RVM_BLOCK;
            int64_t pixel = (at + y * c->columns + x) * RVM_BLOCK;
            float *to = c->out + pixel;
            for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
                vf bias = c->bias ? rvm_load(c->bias + channel + lane) : rvm_all(0);
                if (c->residual)
                    for (int64_t n = lane; n < some * RVM_BLOCK; n += RVM_BLOCK)
                        rvm_store(to + n, rvm_bounded(rvm_load(from + n) + bias + rvm_load(c->residual + pixel + n), e));
                else
                    for (int64_t n = lane; n < some * RVM_BLOCK; n += RVM_BLOCK)
                        rvm_store(to + n, rvm_bounded(rvm_load(from + n) + bias, e));
            }
            if (e->is_more) rvm_finish(e, channel, to, some);
            line += some;
        }
    }
}

static int convolve_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Parts *p = (const Parts *)work;
    const Image *i = p->image;
    const Conv *c = &i->c;
    const Method *m = i->method;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t count = i->pairs * c->tall * c->wide, tiles = (c->outputs + m->blocks - 1) / m->blocks;
    int configured = 0, status = RVM_OK;
    Lines lines = {.terms = p->terms, .count = count, .weight_block = count * LINE_WEIGHTS};
    (void)thread;
    for (int64_t a = part.outer; a < part.outer_end && status == RVM_OK; a++)
        for (int64_t b = part.inner; b < part.inner_end && status == RVM_OK; b++) {
            __attribute__((aligned(64))) float sums[MOST_TILE_ROWS * MOST_TILE_BLOCKS * RVM_BLOCK];
            int64_t tile = p->is_row_by_row ? b : a, part_of = p->is_row_by_row ? a : b;
            int64_t group = tile / tiles, first = tile % tiles * m->blocks, output = group * c->outputs + first;
            int some = c->outputs - first < m->blocks ? (int)(c->outputs - first) : m->blocks;
            int64_t from = part_at(&p->tiles, part_of);
            int rows = (int)(part_at(&p->tiles, part_of + 1) - from);
            int64_t of_group = i->pairs * i->phases_y * i->phases_x * i->plane * LINE_TERMS;
            lines.x = (const char *)p->lines + group * of_group * m->item;
            lines.weight = (const uint16_t *)call->buffers[1].data + output * lines.weight_block;
            m->run(&lines, from, rows, some, sums, &configured);
            finish_lines(i, p->number, sums, from, rows, output, some);
            int64_t more = c->epilogue.is_more ? RVM_FINISH_WORK : 0;
            if (stops(call, rows * some * (RVM_BLOCK * LINE_TERMS * count + more), m, &configured)) status = RVM_FAILED;
        }
    m->end(&configured);
    return status;
}

static int convolve_with(const RvmKernelCall *call, const Method *m) {
    Image i;
    if (!get_image(call, m, &i)) return RVM_ASK_REFERENCE;
    const Conv *c = &i.c;
    char *workspace = call->workspace;
    int64_t terms = i.pairs * c->tall * c->wide, outputs = c->groups * ((c->outputs + m->blocks - 1) / m->blocks);
    Parts p = {.image = &i, .tiles = evenly(i.span, m->rows)};
    p.terms = (int64_t *)rvm_take(&workspace, terms * 8);
    p.lines = rvm_take(&workspace, 0);
    int64_t *term = p.terms;
    for (int64_t pair = 0; pair < i.pairs; pair++)
        for (int64_t ky = 0; ky < c->tall; ky++)
            for (int64_t kx = 0; kx < c->wide; kx++) {
                int64_t y = ky * c->dilation_y, x = kx * c->dilation_x;
                int64_t phase = (pair * i.phases_y + y % c->stride_y) * i.phases_x + x % c->stride_x;
                *term++ = (phase * i.plane + y / c->stride_y * i.wide + x / c->stride_x) * LINE_TERMS;
            }
    p.is_row_by_row = terms * LINE_WEIGHTS * c->outputs * 2 <= CACHED_WEIGHTS;
    int64_t results = c->groups * c->outputs * RVM_BLOCK * c->rows * c->columns;
    int64_t time = rvm_time_for(results * terms * LINE_TERMS / m->speed, results * 8);
    for (; p.number < c->images; p.number++) {
        p.grid = rvm_divide(call, time, planes_of(&i), i.tall);
        if (rvm_run_grid(call, &p.grid, copy_some, &p)) return RVM_FAILED;
        p.grid = p.is_row_by_row ? rvm_divide(call, time, p.tiles.parts, outputs)
                                 : rvm_divide(call, time, outputs, p.tiles.parts);
        if (rvm_run_grid(call, &p.grid, convolve_some, &p)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* ---- methods ------------------------------------------------------------------------------------- */
#ifdef HAS_DOT
static int dot_linear(const RvmKernelCall *call) { return has_dot() ? linear_with(call, &dot) : RVM_ASK_REFERENCE; }
static int dot_conv2d(const RvmKernelCall *call) { return has_dot() ? convolve_with(call, &dot) : RVM_ASK_REFERENCE; }
/* AMD's processors do such an instruction as often as one for float32; Intel's take longer than for float32. */
static int prefers_dot(void) { return has_dot() && __builtin_cpu_is("amd"); }
#else
static int prefers_dot(void) { return 0; }
#endif

static int widened_linear(const RvmKernelCall *call) {
    int rounds = ((const LinearParams *)call->params)->rounds != 0;
    return rounds && prefers_dot() ? RVM_ASK_REFERENCE : linear_with(call, &widened);
}
static int halves_linear(const RvmKernelCall *call) { return linear_with(call, &halves); }
static int widened_conv2d(const RvmKernelCall *call) {
    return prefers_dot() ? RVM_ASK_REFERENCE : convolve_with(call, &widened);
}
#if defined(HAS_DOT) && defined(HAS_AMX)
static int amx_linear(const RvmKernelCall *call) { return has_amx() ? linear_with(call, &amx) : RVM_ASK_REFERENCE; }
static int amx_conv2d(const RvmKernelCall *call) { return has_amx() ? convolve_with(call, &amx) : RVM_ASK_REFERENCE; }
#endif

static const RvmArgument linear_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, LinearParams, function),
    RVM_FIELD(FLAG, LinearParams, rounds),
    RVM_BUFFER(OUT),
};

static const RvmArgument halves_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, LinearParams, function),
    RVM_BUFFER(OUT),
};

#define LINEAR(method)                                                                                      \
    {.name = "bfloat16." #method, .kernel = "nn.linear_bfloat16", .run = method, .workspace = linear_workspace, \
     RVM_ARGUMENTS(linear_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT, \
     .is_unlocked = 1, .ulp = RVM_SUM_ULP}
#define CONVOLUTION(method)                                                                                 \
    {.name = "bfloat16." #method, .kernel = "nn.conv2d_bfloat16", .run = method, .workspace = conv_workspace, \
     RVM_ARGUMENTS(conv_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT,   \
     .is_unlocked = 1, .ulp = RVM_SUM_ULP}

const RvmImplementation RVM_NAME(rvm_bfloat16)[] = {
#if defined(HAS_DOT) && defined(HAS_AMX)
    LINEAR(amx_linear),
    CONVOLUTION(amx_conv2d),
#endif
    LINEAR(widened_linear),
    CONVOLUTION(widened_conv2d),
#ifdef HAS_DOT
    LINEAR(dot_linear),
    CONVOLUTION(dot_conv2d),
#endif
    {.name = "bfloat16.halves_linear", .kernel = "nn.linear_float16", .run = halves_linear,
     .workspace = halves_workspace, RVM_ARGUMENTS(halves_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
