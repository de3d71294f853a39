/* Products with matrices of 4 bits, straight from their packed form.
 *
 *   out[row, n] = sum over blocks b of scales[n, b] * (sum of x[row, k] * number[n, k] - zero[n, b] * sum of x)
 *
 * with the sums of a block over its k.  Even numbers of a block are in the low halves of its bytes, odd ones in the
 * high halves, so x is taken apart in the same way first.  A row of the matrix is read once for a few rows of x: the
 * product of one row is bound by memory, of which numbers of 4 bits take an eighth of floats.
 */
#include "blocks.h"
#include "pieces.h"

#define FEW_ROWS 4
#define MOST_ROWS 128 /* more are faster by BLAS, on numbers that are unpacked once */
#define UNIT 16      /* rows of the matrix, of a piece */

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
    if (p->rows > MOST_ROWS || out->dims[out->ndim - 1] != p->columns || p->bytes < 1 || p->bytes % RVM_LANES ||
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
    p->grid = rvm_divide(call, rvm_time_for(p->rows * p->columns * p->terms, p->columns * p->terms / 2),
                         (p->columns + UNIT - 1) / UNIT, 1);
    return 1;
}

static int64_t half_bytes(const Packed *p) { return rvm_aligned(p->rows * p->blocks * p->bytes * 4); }

static int64_t packed_workspace(const RvmKernelCall *call) {
    Packed p;
    return get_packed(call, &p) ? 2 * half_bytes(&p) + rvm_aligned(p.rows * p.blocks * 4) + RVM_ALIGNMENT : -1;
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
    vf total[FEW_ROWS];
    float less[FEW_ROWS] = {0};
    const uint8_t *from = p->packed + n * p->blocks * p->bytes;
    int64_t at = first * p->blocks * p->bytes, step = p->blocks * p->bytes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) total[r] = rvm_all(0);
    for (int64_t b = 0; b < p->blocks; b++) {
        float scale = p->scales[n * p->blocks + b];
        float zero = p->zeros        ? (float)(p->zeros[n * p->zero_bytes + b / 2] >> (b % 2 * 4) & 15)
                     : p->real_zeros ? p->real_zeros[n * p->blocks + b]
                                     : 8;
        vf sum[FEW_ROWS];
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
            for (; r + FEW_ROWS <= p->rows; r += FEW_ROWS) multiply(p, n, r, FEW_ROWS);
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

static int product(const RvmKernelCall *call) {
    Packed p;
    char *workspace = call->workspace;
    if (!get_packed(call, &p)) return RVM_ASK_REFERENCE;
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
