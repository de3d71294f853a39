/* Products with matrices of 4 bits, straight from their packed form.
 *
 *   out[row, n] = sum over blocks b of scales[n, b] * (sum of x[row, k] * number[n, k] - zero[n, b] * sum of x)
 *
 * with the sums of a block over its k.  Even numbers of a block are in the low halves of its bytes, odd ones in the
 * high halves, so x is taken apart in the same way first.  A row of the matrix is read once for a few rows of x: the
 * product of one row is bound by memory, of which numbers of 4 bits take an eighth of floats.
 *
 * For many rows of x, some rows of the matrix become floats in panels of 16 columns, as linear.c has them, and all rows
 * of x are multiplied with them by its tiles, before the next ones.
 */
#include "blocks.h"
#include "../pieces.h"
#include "tiles.h"

#define AT_ONCE 4       /* rows of x */
#define PANELS_FROM 5   /* rows of x: fewer are faster straight from the packed form */
#define UNIT 16         /* rows of the matrix, of a piece; of a panel */
#define PANEL_BYTES (1 << 20) /* of panels at once, to stay in the second-level cache */
#define MOST_PANELS 8
#define GROUP 8         /* bytes of a row of the matrix that are taken apart at once */

#if RVM_LANES == 4
typedef uint8_t vbytes __attribute__((vector_size(RVM_LANES)));
#endif

typedef struct {
    int64_t bits, block;
} PackedParams;

typedef struct {
    const float *x, *scales, *real_zeros;
    const uint8_t *packed, *zeros;
    float *out;
    int64_t rows, terms, columns, blocks, bytes, zero_bytes; /* bytes of a block; of the zeros of a row */
    float *even, *odd, *sums;                                /* of x: [rows][blocks][bytes], and [rows][blocks] */
    float *lines;                                            /* x in lines, for panels */
    char *panels;                                            /* of each thread */
    int64_t at_once;                                         /* panels of a piece; 0 without them */
    RvmGrid grid;
} Packed;

static inline vi wide_bytes(const uint8_t *x) {
#if defined(__AVX512F__)
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x));
#elif defined(__AVX2__)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x));
#else
    vbytes bytes;
    memcpy(&bytes, x, sizeof bytes);
    return __builtin_convertvector(bytes, vi);
#endif
}

static int is_flat(const RvmBuffer *b, int dtype, int64_t length) {
    return b->dtype == dtype && rvm_is_contiguous(b) && rvm_length(b) == length;
}

static int get_packed(const RvmKernelCall *call, Packed *p) {
    const RvmBuffer *x = call->buffers, *packed = x + 1, *scales = x + 2, *zeros = x + 3, *out = x + 4;
    const PackedParams *q = (const PackedParams *)call->params;
    if (q->bits != 4 || x->ndim < 1 || out->ndim != x->ndim || packed->ndim != 3 || x->dtype != RVM_DTYPE_F32 ||
        packed->dtype != RVM_DTYPE_U8 || !rvm_is_contiguous(x) || !rvm_is_contiguous(packed) ||
        !rvm_is_contiguous(out) || rvm_length(x) < 1 || rvm_length(out) < 1)
        return 0;
    *p = (Packed){.x = (const float *)x->data, .packed = (const uint8_t *)packed->data,
                  .scales = (const float *)scales->data, .out = (float *)out->data, .rows = 1,
                  .terms = x->dims[x->ndim - 1], .columns = packed->dims[0], .blocks = packed->dims[1],
                  .bytes = packed->dims[2]};
    for (int i = 0; i < x->ndim - 1; i++) {
        RVM_FEW_TURNS;
        if (x->dims[i] != out->dims[i]) return 0;
        p->rows *= x->dims[i];
    }
    if (out->dims[out->ndim - 1] != p->columns || p->bytes < 1 || p->bytes % RVM_LANES ||
        p->bytes * 2 != q->block || (p->terms + q->block - 1) / q->block != p->blocks ||
        !is_flat(scales, RVM_DTYPE_F32, p->columns * p->blocks))
        return 0;
    p->zero_bytes = (p->blocks + 1) / 2;
    if (zeros->flags & RVM_ABSENT) {
    } else if (zeros->dtype == RVM_DTYPE_U8) {
        if (!is_flat(zeros, RVM_DTYPE_U8, p->columns * p->zero_bytes)) return 0;
        p->zeros = (const uint8_t *)zeros->data;
    } else {
        if (!is_flat(zeros, RVM_DTYPE_F32, p->columns * p->blocks)) return 0;
        p->real_zeros = (const float *)zeros->data;
    }
    for (int i = 0; i < 4; i++)
        if (!(x[i].flags & RVM_ABSENT) && !rvm_no_overlap(x + i, out)) return 0;
    int64_t units = (p->columns + UNIT - 1) / UNIT;
    if (p->rows >= PANELS_FROM && p->bytes % GROUP == 0) {
        int64_t most = PANEL_BYTES / (p->terms * UNIT * 4) / RVM_TILE_BLOCKS * RVM_TILE_BLOCKS;
        p->at_once = most < RVM_TILE_BLOCKS ? RVM_TILE_BLOCKS : most > MOST_PANELS ? MOST_PANELS : most;
        units = (units + p->at_once - 1) / p->at_once;
    }
    p->grid = rvm_divide(call, rvm_time_for(p->rows * p->columns * p->terms, p->columns * p->terms / 2), units, 1);
    return 1;
}

static int64_t half_bytes(const Packed *p) { return rvm_aligned(p->rows * p->blocks * p->bytes * 4); }

static int64_t line_bytes(const Packed *p) { return rvm_aligned(p->rows * lines_of(p->terms) * 4); }

/* Floats of a panel, whose last block may be longer than x. */
static int64_t panel_floats(const Packed *p) { return p->blocks * p->bytes * 2 * UNIT; }

static int64_t panel_bytes(const Packed *p) { return rvm_apart(p->at_once * panel_floats(p) * 4); }

static int64_t packed_workspace(const RvmKernelCall *call) {
    Packed p;
    if (!get_packed(call, &p)) return -1;
    if (p.at_once) return line_bytes(&p) + call->threads * panel_bytes(&p) + RVM_ALIGNMENT;
    return 2 * half_bytes(&p) + rvm_aligned(p.rows * p.blocks * 4) + RVM_ALIGNMENT;
}

/* Even and odd elements of x, and the sums of its blocks, with zeros behind the last elements.  Whether these sums are
 * finite: otherwise their products with zeros cannot be taken from those of the numbers. */
static int take_apart(const Packed *p) {
    float all = 0;
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t b = 0; b < p->blocks; b++) {
            const float *x = p->x + r * p->terms + b * p->bytes * 2;
            float *even = p->even + (r * p->blocks + b) * p->bytes, *odd = p->odd + (r * p->blocks + b) * p->bytes;
            int64_t left = p->terms - b * p->bytes * 2;
            float sum = 0;
            for (int64_t i = 0; i < p->bytes; i++) {
                even[i] = 2 * i < left ? x[2 * i] : 0;
                odd[i] = 2 * i + 1 < left ? x[2 * i + 1] : 0;
                sum += even[i] + odd[i];
            }
            p->sums[r * p->blocks + b] = sum;
            all += sum - sum;
        }
    return all == 0;
}

static inline __attribute__((always_inline)) void multiply(const Packed *p, int64_t n, int64_t first, int rows) {
    vf total[AT_ONCE];
    float less[AT_ONCE] = {0};
    const uint8_t *from = p->packed + n * p->blocks * p->bytes;
    int64_t at = first * p->blocks * p->bytes, step = p->blocks * p->bytes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) total[r] = rvm_all(0);
    for (int64_t b = 0; b < p->blocks; b++) {
        float scale = p->scales[n * p->blocks + b];
        float zero = p->zeros        ? (float)(p->zeros[n * p->zero_bytes + b / 2] >> (b % 2 * 4) & 15)
                     : p->real_zeros ? p->real_zeros[n * p->blocks + b]
                                     : 8;
        vf sum[AT_ONCE];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) sum[r] = rvm_all(0);
        for (int64_t i = 0; i < p->bytes; i += RVM_LANES, from += RVM_LANES, at += RVM_LANES) {
            vi bytes = wide_bytes(from);
            vf low = __builtin_convertvector(bytes & 15, vf), high = __builtin_convertvector(bytes >> 4, vf);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                sum[r] = rvm_fma(low, rvm_load(p->even + at + r * step), sum[r]);
                sum[r] = rvm_fma(high, rvm_load(p->odd + at + r * step), sum[r]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            total[r] = rvm_fma(rvm_all(scale), sum[r], total[r]);
            less[r] += scale * zero * p->sums[(first + r) * p->blocks + b];
        }
    }
    for (int r = 0; r < rows; r++) p->out[(first + r) * p->columns + n] = rvm_sum(total[r]) - less[r];
}

static int multiply_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Packed *p = (const Packed *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    (void)thread;
    for (int64_t u = part.outer; u < part.outer_end; u++) {
        for (int64_t n = u * UNIT; n < p->columns && n < (u + 1) * UNIT; n++) {
            int64_t r = 0;
            for (; r + AT_ONCE <= p->rows; r += AT_ONCE) multiply(p, n, r, AT_ONCE);
            switch (p->rows - r) {
                case 3: multiply(p, n, r, 3); break;
                case 2: multiply(p, n, r, 2); break;
                case 1: multiply(p, n, r, 1); break;
                default: break;
            }
            if (rvm_must_stop(call, p->rows * p->terms * 2)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

/* ---- panels -------------------------------------------------------------------------------------- */

/* The first bytes of 16 rows, then the second ones, and so on. */
static inline void turn_bytes(const uint8_t *const from[UNIT], uint8_t to[GROUP][UNIT]) {
#if defined(__SSE2__)
    __m128i a[8], b[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)from[i]),
                                 _mm_loadl_epi64((const __m128i *)from[i + 8]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* b[i]: of the first four bytes, b[i + 4]: of the others */
        b[i] = _mm_unpacklo_epi8(a[i], a[i + 4]);
        b[i + 4] = _mm_unpackhi_epi8(a[i], a[i + 4]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* a[2 * pair + ...]: of pairs of bytes, of even and odd rows */
        int at = i / 2 * 4 + i % 2;
        a[at] = _mm_unpacklo_epi8(b[at], b[at + 2]);
        a[at + 2] = _mm_unpackhi_epi8(b[at], b[at + 2]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        _mm_storeu_si128((__m128i *)to[2 * i], _mm_unpacklo_epi8(a[2 * i], a[2 * i + 1]));
        _mm_storeu_si128((__m128i *)to[2 * i + 1], _mm_unpackhi_epi8(a[2 * i], a[2 * i + 1]));
    }
#else
    for (int k = 0; k < GROUP; k++)
        for (int n = 0; n < UNIT; n++) to[k][n] = from[n][k];
#endif
}

/* Rows of the matrix as floats, [k][row]; those behind its end are the last one again. */
static void unpack_panel(const Packed *p, int64_t first, float *to) {
    const uint8_t *from[UNIT];
    uint8_t bytes[GROUP][UNIT];
    float scales[UNIT], zeros[UNIT];
    int64_t row[UNIT];
    for (int n = 0; n < UNIT; n++) {
        row[n] = first + n < p->columns ? first + n : p->columns - 1;
        from[n] = p->packed + row[n] * p->blocks * p->bytes;
    }
    for (int64_t b = 0; b < p->blocks; b++) {
        for (int n = 0; n < UNIT; n++) {
            scales[n] = p->scales[row[n] * p->blocks + b];
            zeros[n] = p->zeros        ? (float)(p->zeros[row[n] * p->zero_bytes + b / 2] >> (b % 2 * 4) & 15)
                       : p->real_zeros ? p->real_zeros[row[n] * p->blocks + b]
                                       : 8;
        }
        for (int64_t i = 0; i < p->bytes; i += GROUP) {
            turn_bytes(from, bytes);
            for (int n = 0; n < UNIT; n++) from[n] += GROUP;
            for (int k = 0; k < GROUP; k++, to += 2 * UNIT)
#pragma GCC unroll 4
                for (int v = 0; v < UNIT; v += RVM_LANES) {
                    vi both = wide_bytes(bytes[k] + v);
                    vf scale = rvm_load(scales + v), zero = rvm_load(zeros + v);
                    rvm_store(to + v, (__builtin_convertvector(both & 15, vf) - zero) * scale);
                    rvm_store(to + UNIT + v, (__builtin_convertvector(both >> 4, vf) - zero) * scale);
                }
        }
    }
}

static int rows_of_tile(const Packed *p, int64_t first) {
    return p->rows - first < RVM_TILE_PIXELS ? (int)(p->rows - first) : RVM_TILE_PIXELS;
}

/* Tiles of rows in lines, with zeros behind the last elements. */
static void lines_of_rows(const Packed *p) {
    float *to = p->lines;
    for (int64_t first = 0; first < p->rows; first += RVM_TILE_PIXELS) {
        int rows = rows_of_tile(p, first);
        for (int64_t k = 0; k < p->terms; k += LINE) {
            int64_t some = p->terms - k < LINE ? p->terms - k : LINE;
            for (int r = 0; r < rows; r++, to += LINE) {
                memset(to, 0, LINE * 4);
                memcpy(to, p->x + (first + r) * p->terms + k, some * 4);
            }
        }
    }
}

static int multiply_panels(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Packed *p = (const Packed *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    float *panels = (float *)(p->panels + thread * panel_bytes(p)), sums[RVM_TILE_PIXELS * RVM_TILE_BLOCKS * UNIT];
    for (int64_t u = part.outer; u < part.outer_end; u++) {
        int64_t start = u * p->at_once * UNIT, end = start + p->at_once * UNIT;
        if (end > p->columns) end = p->columns;
        for (int64_t n = start; n < end; n += UNIT) {
            unpack_panel(p, n, panels + (n - start) / UNIT * panel_floats(p));
            if (rvm_must_stop(call, p->terms * UNIT * 4)) return RVM_FAILED;
        }
        for (int64_t first = 0; first < p->rows; first += RVM_TILE_PIXELS) {
            int rows = rows_of_tile(p, first);
            const float *x = p->lines + first * lines_of(p->terms);
            for (int64_t n = start; n < end;) {
                int blocks = end - n > UNIT && RVM_TILE_BLOCKS == 2 ? 2 : 1;
                int64_t width = blocks * UNIT, some = end - n < width ? end - n : width;
                float *out = p->out + first * p->columns + n;
                of_lines[blocks - 1][rows - 1](x, 0, panels + (n - start) / UNIT * panel_floats(p), panel_floats(p),
                                               p->terms, NULL, some < width ? sums : out,
                                               some < width ? width : p->columns, NULL);
                if (some < width)
                    for (int r = 0; r < rows; r++) memcpy(out + r * p->columns, sums + r * width, some * 4);
                n += some;
                if (rvm_must_stop(call, rows * p->terms * width)) return RVM_FAILED;
            }
        }
    }
    return RVM_OK;
}

static int product(const RvmKernelCall *call) {
    Packed p;
    char *workspace = call->workspace;
    if (!get_packed(call, &p)) return RVM_ASK_REFERENCE;
    if (p.at_once) {
        p.lines = (float *)rvm_take(&workspace, line_bytes(&p));
        p.panels = rvm_take(&workspace, call->threads * panel_bytes(&p));
        lines_of_rows(&p);
        return rvm_run_grid(call, &p.grid, multiply_panels, &p);
    }
    p.even = (float *)rvm_take(&workspace, half_bytes(&p));
    p.odd = (float *)rvm_take(&workspace, half_bytes(&p));
    p.sums = (float *)rvm_take(&workspace, 0);
    if (!take_apart(&p)) return RVM_ASK_REFERENCE;
    return rvm_run_grid(call, &p.grid, multiply_some, &p);
}

static const RvmArgument packed_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(INT, PackedParams, bits), RVM_FIELD(INT, PackedParams, block), RVM_BUFFER(OUT)};

const RvmImplementation RVM_NAME(rvm_nbits)[] = {
    {.name = "nbits.product", .kernel = "matmul_packed", .run = product, .workspace = packed_workspace,
     RVM_ARGUMENTS(packed_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT,
     .is_unlocked = 1, .ulp = RVM_SUM_ULP},
    {.name = NULL},
};
