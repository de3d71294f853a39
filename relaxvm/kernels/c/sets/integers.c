/* Products of bytes: linear layers, convolutions in blocks of channels, quantization.
 *
 *   sum[pixel, output] = bias[output] + sum over k of (x[pixel, k] - x_zero) * (weight[k, output] + shift)
 *
 * exactly, in 32 bits; the caller sees to it that they suffice.  With a factor, sums become float32 and are
 * multiplied; then there may be a number to add, a function, and quantization: division by a scale, rounding
 * to the nearest integer, halves to the even one, a zero point, and bounds.
 *
 * Bytes of x are unsigned, weights signed.  Signed x is moved by 128, as is its zero point.  The zero point
 * and the shift are taken out of the products: with w the weights as they are in memory, and S[output] the
 * sums of (w + shift),
 *
 *   sum over k of (x - x_zero) * (w + shift) = sum of x * w + shift * sum of x - x_zero * S[output].
 *
 * So padding is x_zero, and what fills a line of 16 input channels has the weight -shift.  Four bytes of a
 * pixel are in each lane of 32 bits, and weights are interleaved in the same way: [block of outputs, line of 16
 * inputs, 4, 16 outputs, 4 inputs].
 *
 * VNNI multiplies and adds up four bytes in one instruction.  Without it, even and odd bytes are widened to 16
 * bits, whose products in pairs fit in 32: `vpmaddubsw`, which needs no widening, saturates at 16 bits.  AMX
 * multiplies tiles of 16 rows of 64 bytes, four lines of inputs, by such ones of the weights as they are.
 */
#include "amx.h"
#include "blocks.h"
#include "../pieces.h"
#include "recurrent.h"

#define QUAD 4                          /* bytes of a lane */
#define QUADS (RVM_BLOCK / QUAD)        /* of a line of 16 inputs */
#define LINE_WEIGHTS (RVM_BLOCK * RVM_BLOCK)
#define MOST_SUMS (14 * 4 * RVM_BLOCK)  /* of a tile */
#define RUN 224                         /* pixels whose inputs stay in the cache while all outputs are computed */
#define CACHED_BYTES (1 << 18)          /* of inputs of a run */
#define GATHERED_PIXELS 16              /* gathered line by line: what they are read from stays in the cache */

typedef uint32_t vu __attribute__((vector_size(RVM_LANES * 4)));
typedef uint16_t vu16 __attribute__((vector_size(RVM_LANES * 4)));
typedef int16_t vi16 __attribute__((vector_size(RVM_LANES * 4)));
typedef uint8_t vbytes __attribute__((vector_size(RVM_LANES)));

/* ---- tiles --------------------------------------------------------------------------------------- */
/* Rows of lines: row r has term t at x + r * x_step + terms[t].  Of the terms from `whole` on, only the first
 * `left` quads are there. */
typedef struct {
    const uint8_t *x;
    const int8_t *weight;
    const int32_t *start; /* what the sums of each output begin with; NULL for 0 */
    const int64_t *terms;
    int64_t count, whole, left;
    int64_t x_step, weight_block;
} Bytes;

typedef void (*Tile)(const Bytes *b, int64_t first, int32_t *sums);

typedef struct {
    int rows, blocks, few, many;
    int speed; /* products of quads of a nanosecond, about */
    Tile one[14], two[14], of_few[3]; /* by rows, less 1 */
    /* In place of these, by AMX; `shapes` are those of its tiles, 0 at first. */
    void (*any)(const Bytes *b, int64_t first, int rows, int blocks, int32_t *sums, int *shapes);
} Tiles;

static inline int32_t four_bytes(const uint8_t *x) {
    int32_t four;
    memcpy(&four, x, sizeof four);
    return four;
}

static inline vi plain_all(const uint8_t *x) {
#if defined(__AVX512F__)
    return (vi)_mm512_set1_epi32(four_bytes(x));
#elif defined(__AVX2__)
    return (vi)_mm256_set1_epi32(four_bytes(x));
#else
    int32_t four = four_bytes(x);
    return (vi){four, four, four, four};
#endif
}

static inline vi plain_dot(vi sum, vi x, vi w) {
#if defined(__SSE2__)
    vi16 even = (vi16)((vu16)w << 8) >> 8, odd = (vi16)w >> 8;
    vi16 x_even = (vi16)(x & 0x00ff00ff), x_odd = (vi16)((vu16)x >> 8);
#if defined(__AVX512F__)
    return (vi)((vu)sum + (vu)_mm512_madd_epi16((__m512i)x_even, (__m512i)even) +
                (vu)_mm512_madd_epi16((__m512i)x_odd, (__m512i)odd));
#elif defined(__AVX2__)
    return (vi)((vu)sum + (vu)_mm256_madd_epi16((__m256i)x_even, (__m256i)even) +
                (vu)_mm256_madd_epi16((__m256i)x_odd, (__m256i)odd));
#else
    return (vi)((vu)sum + (vu)_mm_madd_epi16((__m128i)x_even, (__m128i)even) +
                (vu)_mm_madd_epi16((__m128i)x_odd, (__m128i)odd));
#endif
#else
    vu total = (vu)sum;
    for (int i = 0; i < QUAD; i++)
        total += (vu)((vi)((vu)x >> (8 * i) & 255) * ((vi)((vu)w << (24 - 8 * i)) >> 24));
    return (vi)total;
#endif
}

#define METHOD(name) plain_##name
#define TARGET
#define DOT plain_dot
#define SPEED 50
#if defined(__AVX512F__)
#define PIXELS 8
#define BLOCKS 2
#define FEW 3
#define MANY 4
#elif defined(__AVX2__)
#define PIXELS 4
#define BLOCKS 1
#define FEW 1
#define MANY 2
#else
#define PIXELS 2
#define BLOCKS 1
#define FEW 1
#define MANY 2
#endif
#include "integer_tiles.h"

#if defined(__AVX512F__)
#define HAS_VNNI 1
#define VNNI __attribute__((target("avx512vnni")))
static inline VNNI __attribute__((always_inline)) vi vnni_all(const uint8_t *x) {
    return (vi)_mm512_set1_epi32(four_bytes(x));
}
static inline VNNI __attribute__((always_inline)) vi vnni_dot(vi sum, vi x, vi w) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
}
#define METHOD(name) vnni_##name
#define TARGET VNNI
#define DOT vnni_dot
#define SPEED 100
#define PIXELS 14
#define BLOCKS 2
#define FEW 3
#define MANY 4
#include "integer_tiles.h"
#endif

#ifdef HAS_AMX
#define AMX __attribute__((target("amx-tile,amx-int8")))
#define CHUNK_QUADS 16 /* of a whole tile */

static int has_amx(void) {
    static int known;
    return may_use_tiles(AMX_INT8, &known);
}

/* Tiles 0 and 1 are sums, 2 is rows, 3 and 4 are weights of one block each; 5, 6 and 7 are the same of the last inputs,
 * which are fewer quads. */
static AMX void set_shapes(int rows, int quads) {
    TileShapes tiles = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        int is_weight = i == 3 || i == 4 || i > 5;
        tiles.rows[i] = (uint8_t)(!is_weight ? rows : i > 5 && quads ? quads : TILE_ROWS);
        tiles.bytes[i] = (uint16_t)(i == 5 && quads ? quads * QUAD : RVM_BLOCK * QUAD);
    }
    _tile_loadconfig(&tiles);
}

/* Of lines that are one after the other, as those of linear layers. */
static AMX void amx_tile(const Bytes *b, int64_t first, int rows, int blocks, int32_t *sums, int *shapes) {
    const uint8_t *x = b->x + first * b->x_step;
    const int8_t *w = b->weight;
    int64_t quads = b->whole * QUADS + (b->count - b->whole) * b->left, left = quads % CHUNK_QUADS;
    int wanted = rows * CHUNK_QUADS + (int)left;
    if (*shapes != wanted) set_shapes(rows, (int)left);
    *shapes = wanted;
    __asm__ volatile("" ::: "memory"); /* the compiler does not know what the instructions read */
    _tile_loadd(0, b->start, 0); /* each row the same */
    if (blocks == 2) _tile_loadd(1, b->start + RVM_BLOCK, 0);
    if (blocks == 2) {
        for (; quads >= CHUNK_QUADS; quads -= CHUNK_QUADS, x += CHUNK_QUADS * QUAD, w += CHUNK_QUADS * QUAD * RVM_BLOCK) {
            _tile_loadd(2, x, b->x_step);
            _tile_loadd(3, w, RVM_BLOCK * QUAD);
            _tile_loadd(4, w + b->weight_block, RVM_BLOCK * QUAD);
            _tile_dpbusd(0, 2, 3);
            _tile_dpbusd(1, 2, 4);
        }
    } else {
        for (; quads >= CHUNK_QUADS; quads -= CHUNK_QUADS, x += CHUNK_QUADS * QUAD, w += CHUNK_QUADS * QUAD * RVM_BLOCK) {
            _tile_loadd(2, x, b->x_step);
            _tile_loadd(3, w, RVM_BLOCK * QUAD);
            _tile_dpbusd(0, 2, 3);
        }
    }
    if (left) {
        _tile_loadd(5, x, b->x_step);
        _tile_loadd(6, w, RVM_BLOCK * QUAD);
        _tile_dpbusd(0, 5, 6);
        if (blocks == 2) {
            _tile_loadd(7, w + b->weight_block, RVM_BLOCK * QUAD);
            _tile_dpbusd(1, 5, 7);
        }
    }
    _tile_stored(0, sums, RVM_BLOCK * 4);
    if (blocks == 2) _tile_stored(1, sums + rows * RVM_BLOCK, RVM_BLOCK * 4);
    __asm__ volatile("" ::: "memory");
}

/* Threads that leave tiles in use are slower to switch. */
static AMX void release_tiles(void) { _tile_release(); }

static const Tiles amx_tiles = {.rows = TILE_ROWS, .blocks = 2, .speed = 160, .any = amx_tile};
#endif

/* ---- what follows the sums ----------------------------------------------------------------------- */
typedef struct {
    const float *factors, *more; /* of each output; NULL for none */
    int64_t function;
    int dtype;                   /* of the results */
    int is_divided;
    int is_finite, is_small;     /* results are multiplied by finite numbers, and by such below 1 alone */
    float scale, zero, low, high; /* bounds include the zero point */
} Finish;

static inline vi to_nearest(vf x) {
    const vf magic = rvm_all(0x1.8p23f);
    return __builtin_convertvector((x + magic) - magic, vi);
}

/* The low bytes of integers from -128 to 255. */
static inline vbytes low_bytes(vi x) {
#if defined(__AVX512F__)
    return (vbytes)_mm512_cvtepi32_epi8((__m512i)x);
#elif defined(__AVX2__)
    const __m256i low = _mm256_set1_epi32(255), order = _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256((__m256i)x, low), _mm256_setzero_si256());
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(words, words), order);
    vbytes narrow;
    memcpy(&narrow, &bytes, sizeof narrow);
    return narrow;
#elif defined(__SSE2__)
    __m128i some = _mm_and_si128((__m128i)x, _mm_set1_epi32(255));
    some = _mm_packs_epi32(some, some);
    some = _mm_packus_epi16(some, some);
    vbytes narrow;
    memcpy(&narrow, &some, sizeof narrow);
    return narrow;
#else
    return __builtin_convertvector((vu)x, vbytes);
#endif
}

/* Quantize: x / scale, rounded, plus the zero point, within bounds; NaN gives 0.  Bounds are taken before
 * the sum, which gives the same. */
static inline vbytes to_bytes(const Finish *f, vf x) {
    x = rvm_at_most(rvm_all(f->high - f->zero), rvm_at_least(rvm_all(f->low - f->zero), x));
    vi is_number = x == x;
    return low_bytes((to_nearest(x) + (int32_t)f->zero) & is_number);
}

#if defined(__SSE2__)
/* Vectors with bytes: four of integers, in order, plus the zero point, saturated. */
typedef uint8_t vpacked __attribute__((vector_size(RVM_LANES * 4)));
#define PACKED_LINES (RVM_LANES / QUAD)

static inline __attribute__((always_inline)) vpacked pack(const vi *x, vi16 zero, int is_signed) {
#if defined(__AVX512F__)
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i low = _mm512_packs_epi32((__m512i)x[0], (__m512i)x[1]), high = _mm512_packs_epi32((__m512i)x[2], (__m512i)x[3]);
    low = _mm512_adds_epi16(low, (__m512i)zero);
    high = _mm512_adds_epi16(high, (__m512i)zero);
    __m512i all = is_signed ? _mm512_packs_epi16(low, high) : _mm512_packus_epi16(low, high);
    return (vpacked)_mm512_permutexvar_epi32(order, all);
#elif defined(__AVX2__)
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]), high = _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3]);
    low = _mm256_adds_epi16(low, (__m256i)zero);
    high = _mm256_adds_epi16(high, (__m256i)zero);
    __m256i all = is_signed ? _mm256_packs_epi16(low, high) : _mm256_packus_epi16(low, high);
    return (vpacked)_mm256_permutevar8x32_epi32(all, order);
#else
    __m128i low = _mm_packs_epi32((__m128i)x[0], (__m128i)x[1]), high = _mm_packs_epi32((__m128i)x[2], (__m128i)x[3]);
    low = _mm_adds_epi16(low, (__m128i)zero);
    high = _mm_adds_epi16(high, (__m128i)zero);
    return (vpacked)(is_signed ? _mm_packs_epi16(low, high) : _mm_packus_epi16(low, high));
#endif
}

/* The nearest integers, halves to the even one, of numbers below 2 ** 31; lower ones than -2 ** 31 give that. */
static inline vi nearest(vf x) {
#if defined(__AVX512F__)
    return (vi)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX2__)
    return (vi)_mm256_cvtps_epi32((__m256)x);
#else
    return (vi)_mm_cvtps_epi32((__m128)x);
#endif
}

/* Lines as bytes, PACKED_LINES at once, of finite numbers; `is_small`: the sums times a factor below 1 are in range. */
static inline __attribute__((always_inline)) void pack_lines(const Finish *f, const int32_t *sums, int64_t lines,
                                                             int64_t channel, const int32_t *row_sums, int is_signed,
                                                             int has_more, int is_small, char *out, int64_t step) {
    vf factor[RVM_LINE_VECTORS], more[RVM_LINE_VECTORS];
    const vf high = rvm_all(f->high - f->zero);
    const vi16 zero = (vi16){0} + (int16_t)f->zero;
    memcpy(factor, f->factors + channel, sizeof factor);
    if (has_more) memcpy(more, f->more + channel, sizeof more);
    for (int64_t i = 0; i < lines; i += PACKED_LINES) {
        vi whole[QUAD];
#pragma GCC unroll 4
        for (int j = 0; j < QUAD; j++) {
            const int v = j % RVM_LINE_VECTORS, line = j / RVM_LINE_VECTORS;
            vu sum;
            memcpy(&sum, sums + i * RVM_BLOCK + j * RVM_LANES, sizeof sum);
            if (row_sums) sum += (uint32_t)row_sums[i + line];
            vf real = __builtin_convertvector((vi)sum, vf) * factor[v];
            if (has_more) real += more[v];
            if (!is_small) real = rvm_at_most(high, real);
            whole[j] = nearest(real);
        }
        vpacked bytes = pack(whole, zero, is_signed);
        if (step == RVM_BLOCK) memcpy(out + i * RVM_BLOCK, &bytes, sizeof bytes);
        else
            for (int line = 0; line < PACKED_LINES; line++)
                memcpy(out + (i + line) * step, (const char *)&bytes + line * RVM_BLOCK, RVM_BLOCK);
    }
}

static inline __attribute__((always_inline)) void pack_some(const Finish *f, const int32_t *sums, int64_t lines,
                                                            int64_t channel, const int32_t *row_sums, char *out,
                                                            int64_t step) {
    int is_small = f->is_small && !f->more;
    if (f->dtype == RVM_DTYPE_I8 && is_small) pack_lines(f, sums, lines, channel, row_sums, 1, 0, 1, out, step);
    else if (f->dtype == RVM_DTYPE_I8) pack_lines(f, sums, lines, channel, row_sums, 1, f->more != NULL, 0, out, step);
    else if (is_small && !row_sums) pack_lines(f, sums, lines, channel, NULL, 0, 0, 1, out, step);
    else pack_lines(f, sums, lines, channel, row_sums, 0, f->more != NULL, 0, out, step);
}

/* As `finish_whole`, of finite numbers that become bytes. */
static void finish_packed(const Finish *f, const int32_t *sums, int64_t lines, int64_t channel,
                          const int32_t *row_sums, char *out, int64_t step) {
    int64_t left = lines % PACKED_LINES, whole = lines - left;
    pack_some(f, sums, whole, channel, row_sums, out, step);
    if (!left) return;
    int32_t last[PACKED_LINES * RVM_BLOCK] = {0}, last_sums[PACKED_LINES] = {0};
    char bytes[PACKED_LINES * RVM_BLOCK];
    memcpy(last, sums + whole * RVM_BLOCK, (size_t)left * RVM_BLOCK * 4);
    if (row_sums) memcpy(last_sums, row_sums + whole, (size_t)left * 4);
    pack_some(f, last, PACKED_LINES, channel, row_sums ? last_sums : NULL, bytes, RVM_BLOCK);
    for (int64_t i = 0; i < left; i++) memcpy(out + (whole + i) * step, bytes + i * RVM_BLOCK, RVM_BLOCK);
}
#define HAS_PACKING 1
#endif

/* As `finish`, of whole lines of numbers that are multiplied, without a function: in one pass. */
static void finish_whole(const Finish *f, const int32_t *sums, int64_t lines, int64_t channel, const int32_t *row_sums,
                         char *out, int64_t step) {
    const int is_real = f->dtype == RVM_DTYPE_F32;
#ifdef HAS_PACKING
    if (f->is_finite) {
        finish_packed(f, sums, lines, channel, row_sums, out, step);
        return;
    }
#endif
    const int32_t zero = (int32_t)f->zero;
    const vf low = rvm_all(f->low - f->zero), high = rvm_all(f->high - f->zero), scale = rvm_all(f->scale);
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        const vf factor = rvm_load(f->factors + channel + lane);
        const vf more = f->more ? rvm_load(f->more + channel + lane) : rvm_all(0);
        for (int64_t i = 0; i < lines; i++) {
            vu sum;
            memcpy(&sum, sums + i * RVM_BLOCK + lane, sizeof sum);
            if (row_sums) sum += (uint32_t)row_sums[i];
            vf real = __builtin_convertvector((vi)sum, vf) * factor;
            if (f->more) real += more;
            if (is_real) {
                rvm_store((float *)out + i * step + lane, real);
                continue;
            }
            if (f->is_divided) real /= scale;
            vi is_number = real == real;
            real = rvm_at_most(high, rvm_at_least(low, real));
            vbytes some = low_bytes((to_nearest(real) + zero) & is_number);
            memcpy(out + i * step + lane, &some, sizeof some);
        }
    }
}

/* The results of `lines` pixels of 16 outputs, of which the first `count` are written, from their sums.
 * `more[line]`, if any, is added to each of a line.  `out` is where the first result belongs; `step` elements
 * to the next line. */
static void finish(const Finish *f, int32_t *sums, int64_t lines, int64_t channel, const int32_t *row_sums,
                   char *out, int64_t step, int64_t count) {
    float *floats = (float *)sums;
    if (f->factors && f->function == RVM_NO_INT && count == RVM_BLOCK) {
        finish_whole(f, sums, lines, channel, row_sums, out, step);
        return;
    }
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        vf factor = f->factors ? rvm_load(f->factors + channel + lane) : rvm_all(1);
        vf more = f->more ? rvm_load(f->more + channel + lane) : rvm_all(0);
        for (int64_t i = 0; i < lines; i++) {
            int32_t *at = sums + i * RVM_BLOCK + lane;
            vu sum;
            memcpy(&sum, at, sizeof sum);
            if (row_sums) sum += (uint32_t)row_sums[i];
            if (f->factors) {
                vf real = __builtin_convertvector((vi)sum, vf) * factor;
                if (f->more) real += more;
                memcpy(at, &real, sizeof real);
            } else {
                memcpy(at, &sum, sizeof sum);
            }
        }
    }
    if (f->function != RVM_NO_INT) rvm_apply(f->function, floats, lines * RVM_BLOCK);
    if (f->dtype == RVM_DTYPE_I32 || f->dtype == RVM_DTYPE_F32) {
        for (int64_t i = 0; i < lines; i++) memcpy(out + i * step * 4, sums + i * RVM_BLOCK, (size_t)count * 4);
        return;
    }
    for (int64_t i = 0; i < lines; i++) {
        uint8_t bytes[RVM_BLOCK];
        for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
            vf x = rvm_load(floats + i * RVM_BLOCK + lane);
            if (f->is_divided) x /= rvm_all(f->scale);
            vbytes some = to_bytes(f, x);
            memcpy(bytes + lane, &some, sizeof some);
        }
        memcpy(out + i * step, bytes, (size_t)count);
    }
}

/* ---- a product, checked -------------------------------------------------------------------------- */
typedef struct {
    RvmInts strides, padding, dilation; /* of convolutions */
    int64_t shift, function;
} IntegerParams;

enum { X, X_ZERO, WEIGHT, SUMS, BIAS, FACTOR, MORE, SCALE, ZERO, OUT, BUFFERS };

typedef struct {
    const RvmKernelCall *call;
    int64_t images, lines, outputs, channels;  /* blocks of inputs and outputs; outputs that there are */
    int64_t height, width, rows, columns;      /* of an image, and of its result; 1 and 1 for linear layers */
    int64_t tall, wide, stride_y, stride_x, dilation_y, dilation_x, top, left;
    int64_t padded_height, padded_width;
    int64_t item;                              /* bytes from a pixel to the next one of `x` */
    int64_t terms;
    int64_t shift, quads;                      /* quads of the last line that have weights */
    int is_linear, is_signed, is_copied, is_flat, is_gathered, is_narrow;
    int dtype;
    const Tiles *tiles;
    uint8_t x_zero;                            /* as unsigned */
    /* The workspace */
    int64_t *offsets;
    int32_t *corrections, *row_sums, *pixel_sums;
    float *factors, *more;
    uint8_t *copy, *gathered;                  /* the latter of each thread, of a run of pixels */
    int8_t *narrow;                            /* weights of quads that are used, one after the other */
    Finish finish;
    Bytes bytes;
    const uint8_t *x;                          /* the image, or its copy */
    int64_t image, pixels, run_pixels, output_tiles;
    RvmGrid grid;
} Product;

static int is_absent(const RvmBuffer *b) { return (b->flags & RVM_ABSENT) != 0; }
static int is_byte(int dtype) { return dtype == RVM_DTYPE_U8 || dtype == RVM_DTYPE_I8; }

static int is_number(const RvmBuffer *b, int dtype) {
    return b->dtype == dtype && rvm_is_contiguous(b) && rvm_length(b) == 1;
}

/* One number, or one for each output; 0 for those of the last block that have none. */
static int is_of_outputs(const RvmBuffer *b, int dtype, const Product *p) {
    return b->dtype == dtype && b->ndim <= 1 && rvm_is_contiguous(b) &&
           (rvm_length(b) == 1 || (b->dims[0] + RVM_BLOCK - 1) / RVM_BLOCK == p->outputs);
}

static int get_axis(const IntegerParams *q, int axis, int64_t length, int64_t window, int64_t results,
                    int64_t *padded) {
    int64_t stride = q->strides.values[axis], dilation = q->dilation.values[axis];
    int64_t before = q->padding.values[axis], after = q->padding.values[axis + 2];
    if (window > 1 << 10 || dilation > 1 << 10 || before > 1 << 16 || after > 1 << 16 || stride > 1 << 16 ||
        stride < 1 || dilation < 1 || before < 0 || after < 0)
        return 0;
    *padded = length + before + after;
    int64_t room = *padded - (dilation * (window - 1) + 1);
    return room >= 0 && room / stride + 1 == results && *padded <= 4 * length + 64;
}

/* What linear layers and convolutions have in common; `outputs` and `channels` are set. */
static int get_rest(const RvmKernelCall *call, Product *p) {
    const RvmBuffer *b = call->buffers, *x = b + X, *out = b + OUT;
    const IntegerParams *q = (const IntegerParams *)call->params;
    p->call = call;
    p->dtype = out->dtype;
    p->is_signed = x->dtype == RVM_DTYPE_I8;
    p->shift = q->shift;
    if (!is_byte(x->dtype) || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || rvm_length(out) < 1 ||
        rvm_length(x) < 1 || !rvm_is_contiguous(b + WEIGHT) ||
        b[SUMS].dtype != RVM_DTYPE_I32 || !rvm_is_contiguous(b + SUMS) || b[SUMS].ndim != 1 ||
        b[SUMS].dims[0] != p->outputs * RVM_BLOCK || p->shift < -128 || p->shift > 128)
        return 0;
    for (int i = 0; i < OUT; i++)
        if (!is_absent(b + i) && !rvm_no_overlap(b + i, out)) return 0;
    if (!is_absent(b + X_ZERO) && !is_number(b + X_ZERO, x->dtype)) return 0;
    if (!is_absent(b + BIAS) && !is_of_outputs(b + BIAS, RVM_DTYPE_I32, p)) return 0;
    if (!is_absent(b + FACTOR) && !is_of_outputs(b + FACTOR, RVM_DTYPE_F32, p)) return 0;
    if (!is_absent(b + MORE) && !is_of_outputs(b + MORE, RVM_DTYPE_F32, p)) return 0;
    if (!is_absent(b + SCALE) && !is_number(b + SCALE, RVM_DTYPE_F32)) return 0;
    if (!is_absent(b + ZERO) && !is_number(b + ZERO, out->dtype)) return 0;
    int is_exact = is_absent(b + FACTOR);
    if (is_exact != (out->dtype == RVM_DTYPE_I32)) return 0;
    if (is_exact && (!is_absent(b + MORE) || q->function != RVM_NO_INT)) return 0;
    return is_byte(out->dtype) || (is_absent(b + SCALE) && is_absent(b + ZERO));
}

/* Images of blocks, and the windows of a convolution of p->tall * p->wide taps. */
static int get_windows(const RvmBuffer *x, const RvmBuffer *out, const IntegerParams *q, Product *p) {
    p->height = x->dims[2];
    p->width = x->dims[3];
    p->rows = out->dims[2];
    p->columns = out->dims[3];
    p->stride_y = q->strides.values[0];
    p->stride_x = q->strides.values[1];
    p->dilation_y = q->dilation.values[0];
    p->dilation_x = q->dilation.values[1];
    p->top = q->padding.values[0];
    p->left = q->padding.values[1];
    return get_axis(q, 0, p->height, p->tall, p->rows, &p->padded_height) &&
           get_axis(q, 1, p->width, p->wide, p->columns, &p->padded_width);
}

/* x[..., inputs], weight[blocks, lines, 4, 16, 4], out[..., outputs] */
static int get_linear(const RvmKernelCall *call, Product *p) {
    const RvmBuffer *x = call->buffers + X, *weight = call->buffers + WEIGHT, *out = call->buffers + OUT;
    *p = (Product){.is_linear = 1, .rows = 1, .stride_x = 1, .images = 1, .tall = 1, .wide = 1};
    if (x->ndim < 1 || out->ndim != x->ndim || weight->dtype != RVM_DTYPE_I8 || weight->ndim != 5 || weight->dims[2] != QUADS ||
        weight->dims[3] != RVM_BLOCK || weight->dims[4] != QUAD)
        return 0;
    p->outputs = weight->dims[0];
    p->channels = out->dims[out->ndim - 1];
    p->lines = weight->dims[1];
    p->item = x->dims[x->ndim - 1];
    p->columns = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        RVM_FEW_TURNS;
        if (x->dims[i] != out->dims[i]) return 0;
        p->columns *= x->dims[i];
    }
    if ((p->item + RVM_BLOCK - 1) / RVM_BLOCK != p->lines || (p->channels + RVM_BLOCK - 1) / RVM_BLOCK != p->outputs)
        return 0;
    p->terms = p->lines;
    p->quads = (p->item - (p->lines - 1) * RVM_BLOCK + QUAD - 1) / QUAD;
    p->height = 1;
    p->width = p->columns;
    return get_rest(call, p);
}

/* x[image, block, row, column, 16], weight[blocks, lines, height, width, 4, 16, 4], out[image, block, row,
 * column, 16] */
static int get_conv(const RvmKernelCall *call, Product *p) {
    const RvmBuffer *x = call->buffers + X, *weight = call->buffers + WEIGHT, *out = call->buffers + OUT;
    const IntegerParams *q = (const IntegerParams *)call->params;
    *p = (Product){.item = RVM_BLOCK};
    if (x->ndim != 5 || out->ndim != 5 || weight->dtype != RVM_DTYPE_I8 || weight->ndim != 7 || x->dims[4] != RVM_BLOCK ||
        out->dims[4] != RVM_BLOCK || weight->dims[4] != QUADS || weight->dims[5] != RVM_BLOCK ||
        weight->dims[6] != QUAD || x->dims[0] != out->dims[0] || q->strides.count != 2 ||
        q->padding.count != 4 || q->dilation.count != 2)
        return 0;
    p->images = x->dims[0];
    p->outputs = weight->dims[0];
    p->channels = p->outputs * RVM_BLOCK;
    p->lines = weight->dims[1];
    p->tall = weight->dims[2];
    p->wide = weight->dims[3];
    if (x->dims[1] != p->lines || out->dims[1] != p->outputs || !get_rest(call, p) || !get_windows(x, out, q, p)) return 0;
    p->terms = p->lines * p->tall * p->wide;
    p->is_flat = p->tall == 1 && p->wide == 1 && p->stride_x == 1 && p->stride_y == 1 &&
                 p->padded_height == p->height && p->padded_width == p->width;
    return 1;
}

static int64_t row_bytes(const Product *p) { return (p->item + RVM_BLOCK - 1) / RVM_BLOCK * RVM_BLOCK; }

/* What of the workspace each part takes; sets whether the image is copied. */
static int64_t take_all(Product *p, char *workspace) {
    char *at = workspace;
    int64_t outputs = p->outputs * RVM_BLOCK, copied;
    if (p->is_linear) {
        p->is_copied = p->is_signed || p->item % QUAD;
        copied = p->columns * row_bytes(p);
    } else {
        p->is_copied = p->is_signed || p->padded_height != p->height || p->padded_width != p->width;
        /* Pixels are gathered from the image itself, or from what is used of them; sums of windows are those of the
         * copy. */
        if (p->is_gathered && !p->shift) p->is_copied = p->is_narrow;
        copied = p->lines * p->padded_height * p->padded_width * RVM_BLOCK;
    }
    p->offsets = (int64_t *)rvm_take(&at, p->terms * 8);
    p->corrections = (int32_t *)rvm_take(&at, outputs * 4);
    p->factors = (float *)rvm_take(&at, outputs * 4);
    p->more = (float *)rvm_take(&at, outputs * 4);
    p->copy = (uint8_t *)rvm_take(&at, p->is_copied ? copied : 0);
    p->row_sums = (int32_t *)rvm_take(&at, p->shift ? p->rows * p->columns * 4 : 0);
    int64_t of_pixels = p->is_linear ? 0 : p->padded_height * p->padded_width;
    p->pixel_sums = (int32_t *)rvm_take(&at, p->shift ? of_pixels * 4 : 0);
    p->narrow = (int8_t *)rvm_take(&at, p->is_narrow ? p->outputs * p->terms * p->quads * QUAD * RVM_BLOCK : 0);
    return at - workspace + RVM_ALIGNMENT;
}

static int64_t workspace_of(const RvmKernelCall *call, int (*get)(const RvmKernelCall *, Product *)) {
    Product p;
    return get(call, &p) ? take_all(&p, NULL) : -1;
}

static int64_t linear_workspace(const RvmKernelCall *call) { return workspace_of(call, get_linear); }
static int64_t conv_workspace(const RvmKernelCall *call) { return workspace_of(call, get_conv); }

static int64_t weight_bytes(const Product *p) { return p->outputs * p->terms * LINE_WEIGHTS; }

static int64_t product_time(const Product *p, const Tiles *tiles) {
    int64_t results = p->rows * p->columns * p->outputs * RVM_BLOCK;
    return results * p->terms * QUADS / tiles->speed + rvm_time_for(0, results * 2 + weight_bytes(p));
}

/* ---- before the products ------------------------------------------------------------------------- */
static void copy_bytes(uint8_t *to, const uint8_t *from, int64_t count, int is_signed) {
    if (!is_signed) {
        memcpy(to, from, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) to[i] = from[i] ^ 128;
}

static inline __attribute__((always_inline)) void copy_run(const uint8_t *from, uint8_t *to, int64_t bytes, int is_signed) {
    memcpy(to, from, (size_t)bytes);
    if (is_signed)
        for (int64_t j = 0; j < bytes; j++) to[j] ^= 128;
}

/* Bytes of a pixel of the image that is gathered from. */
static int64_t pixel_bytes(const Product *p) { return p->is_narrow ? p->quads * QUAD : RVM_BLOCK; }

/* A line of blocks of an image, or some rows, with the zero point around them. */
static int copy_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    (void)thread;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        if (p->is_linear) {
            int64_t to = row_bytes(p);
            copy_bytes(p->copy + i * to, p->x + i * p->item, p->item, p->is_signed);
            memset(p->copy + i * to + p->item, 0, (size_t)(to - p->item));
        } else {
            int64_t item = pixel_bytes(p), line = p->padded_width * item, y = i % p->padded_height - p->top;
            uint8_t *to = p->copy + i * line;
            const uint8_t *from = p->x + (i / p->padded_height * p->height + y) * p->width * RVM_BLOCK;
            memset(to, p->x_zero, (size_t)line);
            to += p->left * item;
            if (y < 0 || y >= p->height) continue;
            if (item == RVM_BLOCK) copy_bytes(to, from, p->width * RVM_BLOCK, p->is_signed);
            else if (item == QUAD)
                for (int64_t j = 0; j < p->width; j++) copy_run(from + j * RVM_BLOCK, to + j * QUAD, QUAD, p->is_signed);
            else
                for (int64_t j = 0; j < p->width; j++) copy_run(from + j * RVM_BLOCK, to + j * item, item, p->is_signed);
        }
        if (rvm_must_stop(call, (p->item + p->padded_width * RVM_BLOCK) * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* The sum of the bytes of all lines of a pixel, but those that have no weights. */
static int32_t sum_bytes(const Product *p, const uint8_t *x, int64_t from_line_to_line) {
    uint32_t sum = 0;
    for (int64_t b = 0; b < p->lines; b++, x += from_line_to_line) {
        int64_t count = b + 1 < p->lines ? RVM_BLOCK : p->quads * QUAD;
        for (int64_t i = 0; i < count; i++) sum += x[i];
    }
    return (int32_t)sum;
}

static int sum_pixels(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t width = p->padded_width, plane = p->padded_height * width * RVM_BLOCK;
    (void)thread;
    for (int64_t i = part.outer; i < part.outer_end; i++) {
        if (p->is_linear) {
            p->row_sums[i] = (int32_t)((uint32_t)sum_bytes(p, p->bytes.x + i * p->bytes.x_step, RVM_BLOCK) *
                                       (uint32_t)p->shift);
        } else {
            for (int64_t j = 0; j < width; j++)
                p->pixel_sums[i * width + j] = sum_bytes(p, p->bytes.x + (i * width + j) * RVM_BLOCK, plane);
        }
        if (rvm_must_stop(call, (width + 1) * p->lines * RVM_BLOCK * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* The sums of windows, of rows of results. */
static int sum_windows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    (void)thread;
    for (int64_t y = part.outer; y < part.outer_end; y++) {
        int32_t *to = p->row_sums + y * p->columns;
        memset(to, 0, (size_t)p->columns * 4);
        for (int64_t ky = 0; ky < p->tall; ky++)
            for (int64_t kx = 0; kx < p->wide; kx++) {
                const int32_t *from = p->pixel_sums + (y * p->stride_y + ky * p->dilation_y) * p->padded_width +
                                      kx * p->dilation_x;
                for (int64_t i = 0; i < p->columns; i++)
                    to[i] = (int32_t)((uint32_t)to[i] + (uint32_t)from[i * p->stride_x]);
            }
        for (int64_t i = 0; i < p->columns; i++) to[i] = (int32_t)((uint32_t)to[i] * (uint32_t)p->shift);
        if (rvm_must_stop(call, p->columns * p->tall * p->wide * 4)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* ---- products ------------------------------------------------------------------------------------ */
/* Pixels of windows whose lines are gathered, to be multiplied like rows of a linear layer.  What a thread has
 * gathered stays for the next tiles of outputs. */
typedef struct {
    int64_t first, last;
    uint8_t pixels[] __attribute__((aligned(RVM_ALIGNMENT)));
} Gathered;

/* Bytes of a pixel: all lines of its window, or the first quads of them. */
static int64_t gathered_step(const Product *p) {
    return p->is_narrow ? rvm_aligned(p->terms * p->quads * QUAD) : p->terms * RVM_BLOCK;
}

static int64_t gathered_bytes(const Product *p) {
    return rvm_apart((int64_t)sizeof(Gathered) + p->run_pixels * gathered_step(p));
}

/* The windows of some pixels of a row.  `taps` places of a window are side by side in the image, each of `size` bytes. */
static inline __attribute__((always_inline)) void gather_row(const Product *p, int64_t y, int64_t first, int64_t last,
                                                             int64_t taps, int64_t size, uint8_t *to) {
    int64_t step = gathered_step(p), top = p->is_copied ? 0 : p->top, left = p->is_copied ? 0 : p->left;
    int64_t height = p->is_copied ? p->padded_height : p->height, width = p->is_copied ? p->padded_width : p->width;
    int is_signed = p->is_signed && !p->is_copied;
    for (int64_t line = 0; line < p->lines; line++)
        for (int64_t ky = 0; ky < p->tall; ky++) {
            int64_t row = y * p->stride_y + ky * p->dilation_y - top;
            int is_inside = row >= 0 && row < height;
            const uint8_t *x = p->bytes.x + (line * height + (is_inside ? row : 0)) * width * size;
            for (int64_t kx = 0; kx < p->wide; kx += taps, to += taps * size) {
                int64_t column = first * p->stride_x + kx * p->dilation_x - left;
                uint8_t *pixel = to;
                for (int64_t i = first; i < last; i++, column += p->stride_x, pixel += step) {
                    if (is_inside && column >= 0 && column + taps <= width) {
                        copy_run(x + column * size, pixel, taps * size, is_signed);
                        continue;
                    }
                    for (int64_t t = 0; t < taps; t++) {
                        int has_place = is_inside && column + t >= 0 && column + t < width;
                        if (has_place) copy_run(x + (column + t) * size, pixel + t * size, size, is_signed);
                        else memset(pixel + t * size, p->x_zero, (size_t)size);
                    }
                }
            }
        }
}

static void gather(const Product *p, int64_t first, int64_t last, Gathered *g) {
    if (g->first == first && g->last == last) return;
    g->first = first;
    g->last = last;
    uint8_t *to = g->pixels;
    for (int64_t pixel = first; pixel < last;) {
        int64_t y = pixel / p->columns, x = pixel % p->columns, end = x + last - pixel;
        if (end > p->columns) end = p->columns;
        if (end > x + GATHERED_PIXELS) end = x + GATHERED_PIXELS;
        int64_t taps = p->dilation_x == 1 ? p->wide : 1;
        if (p->is_narrow && p->quads == 1 && taps == 3) gather_row(p, y, x, end, 3, QUAD, to);
        else if (p->is_narrow && p->quads == 1 && taps == 7) gather_row(p, y, x, end, 7, QUAD, to);
        else if (p->is_narrow) gather_row(p, y, x, end, taps, p->quads * QUAD, to);
        else if (taps == 1) gather_row(p, y, x, end, 1, RVM_BLOCK, to);
        else if (taps == 3) gather_row(p, y, x, end, 3, RVM_BLOCK, to);
        else gather_row(p, y, x, end, taps, RVM_BLOCK, to);
        to += (end - x) * gathered_step(p);
        pixel += end - x;
    }
}

/* Pixels of a row, or of the image where rows do not matter, and a tile of outputs. */
static int run_tile(const RvmKernelCall *call, const Product *p, int64_t row, int64_t first, int64_t last, int64_t o,
                    const Gathered *gathered, int *shapes) {
    const Tiles *tiles = p->tiles;
    Bytes bytes = p->bytes;
    int64_t item = is_byte(p->dtype) ? 1 : 4, origin = gathered ? first : 0, at;
    if (gathered) bytes.x = gathered->pixels;
    else if (!p->is_linear && !p->is_flat) bytes.x += row * p->stride_y * p->padded_width * RVM_BLOCK;
    int is_few = p->pixels <= tiles->few, most = is_few ? tiles->many : tiles->blocks;
    int blocks = p->outputs - o < most ? 1 : most;
    int64_t end = p->outputs - o < most ? p->outputs : o + most; /* left ones, one by one */
    char *out = p->call->buffers[OUT].data;
    for (; o < end; o += blocks) {
        bytes.weight = p->bytes.weight + o * bytes.weight_block;
        bytes.start = p->corrections + o * RVM_BLOCK;
        int64_t parts = (last - first + tiles->rows - 1) / tiles->rows;
        for (int64_t part = 0; part < parts; part++) {
            int32_t sums[MOST_SUMS] __attribute__((aligned(RVM_ALIGNMENT)));
            int64_t from = first + (last - first) * part / parts, to = first + (last - first) * (part + 1) / parts;
            int rows = (int)(to - from);
            if (tiles->any) tiles->any(&bytes, from - origin, rows, blocks, sums, shapes);
            else (blocks == 1 ? tiles->one : is_few ? tiles->of_few : tiles->two)[rows - 1](&bytes, from, sums);
            const int32_t *row_sums = p->shift ? p->row_sums + row * p->columns + from : NULL;
            for (int b = 0; b < blocks; b++) {
                int64_t channel = (o + b) * RVM_BLOCK, count = RVM_BLOCK, step = RVM_BLOCK;
                if (p->is_linear) {
                    at = from * p->channels + channel;
                    step = p->channels;
                    if (p->channels - channel < count) count = p->channels - channel;
                } else {
                    at = (((p->image * p->outputs + o + b) * p->rows + row) * p->columns + from) * RVM_BLOCK;
                }
                finish(&p->finish, sums + b * rows * RVM_BLOCK, rows, channel, row_sums, out + at * item, step, count);
            }
            if (rvm_must_stop(call, rows * blocks * RVM_BLOCK * (p->terms * QUADS + 64))) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int run_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Product *p = (const Product *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    int64_t most = p->pixels <= p->tiles->few ? p->tiles->many : p->tiles->blocks;
    /* Pixels of rows that are after each other are one row, but where windows reach beyond its ends. */
    int are_joined = p->is_linear || p->is_flat || p->is_gathered;
    int64_t columns = p->is_linear ? 1 : p->columns, first = are_joined ? 0 : part.outer;
    int64_t rows = are_joined ? 1 : part.outer_end;
    int shapes = 0, is_over = 0;
    Gathered *gathered = p->is_gathered ? (Gathered *)(p->gathered + thread * gathered_bytes(p)) : NULL;
    for (int64_t row = first; row < rows && !is_over; row++) {
        int64_t pixel = are_joined ? part.outer * columns : 0, end = are_joined ? part.outer_end * columns : p->columns;
        for (int64_t last; pixel < end && !is_over; pixel = last) {
            last = pixel + p->run_pixels < end ? pixel + p->run_pixels : end;
            if (gathered) {
                gather(p, pixel, last, gathered);
                is_over = rvm_must_stop(call, p->run_pixels * p->terms * RVM_BLOCK);
            }
            for (int64_t j = part.inner; j < part.inner_end && !is_over; j++)
                is_over = run_tile(call, p, row, pixel, last, j * most, gathered, &shapes);
        }
    }
#ifdef HAS_AMX
    if (shapes) release_tiles();
#endif
    return is_over ? RVM_FAILED : RVM_OK;
}

/* A vector of floats with a number for each output, up to whole blocks. */
static const float *spread(const RvmBuffer *b, const Product *p, float *to) {
    if (is_absent(b)) return NULL;
    const float *from = (const float *)b->data;
    int64_t length = rvm_length(b);
    for (int64_t i = 0; i < p->outputs * RVM_BLOCK; i++) to[i] = length == 1 ? *from : i < length ? from[i] : 0;
    return to;
}

/* Whether all of them are nearer to zero than a positive number, NaN not. */
static int are_below(const float *x, int64_t count, float bound) {
    uint32_t most = 0, limit;
    memcpy(&limit, &bound, sizeof limit);
    for (int64_t i = 0; x && i < count; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff; /* without the sign, in the order of the numbers */
        most = bits > most ? bits : most;
    }
    return most < limit;
}

static float byte_at(const RvmBuffer *b) {
    if (is_absent(b)) return 0;
    return b->dtype == RVM_DTYPE_I8 ? *(const volatile int8_t *)b->data : *(const volatile uint8_t *)b->data;
}

static Finish finish_of(const RvmBuffer *scale, const RvmBuffer *zero, int dtype) {
    Finish f = {.function = RVM_NO_INT, .dtype = dtype, .scale = 1};
    f.is_divided = !is_absent(scale);
    if (f.is_divided) f.scale = *(const volatile float *)scale->data;
    f.zero = byte_at(zero);
    f.low = dtype == RVM_DTYPE_I8 ? -128 : 0;
    f.high = dtype == RVM_DTYPE_I8 ? 127 : 255;
    return f;
}

static void prepare(Product *p) {
    const RvmBuffer *b = p->call->buffers;
    const uint32_t *sums = (const uint32_t *)b[SUMS].data, *bias = (const uint32_t *)b[BIAS].data;
    int zero = (int)byte_at(b + X_ZERO) + (p->is_signed ? 128 : 0);
    int64_t biases = is_absent(b + BIAS) ? 0 : rvm_length(b + BIAS);
    p->x_zero = (uint8_t)zero;
    for (int64_t i = 0; i < p->outputs * RVM_BLOCK; i++) {
        uint32_t more = !biases ? 0 : biases == 1 ? *bias : i < biases ? bias[i] : 0;
        p->corrections[i] = (int32_t)(more - (uint32_t)zero * sums[i]);
    }
    p->finish = finish_of(b + SCALE, b + ZERO, p->dtype);
    p->finish.factors = spread(b + FACTOR, p, p->factors);
    p->finish.more = spread(b + MORE, p, p->more);
    p->finish.function = ((const IntegerParams *)p->call->params)->function;
    int64_t outputs = p->outputs * RVM_BLOCK;
    p->finish.is_finite = is_byte(p->dtype) && !p->finish.is_divided && are_below(p->finish.factors, outputs, INFINITY) &&
                          are_below(p->finish.more, outputs, INFINITY);
    p->finish.is_small = are_below(p->finish.factors, outputs, 1);
}

/* Quads of the last line of inputs that have other weights than -shift. */
static int64_t used_quads(const Product *p) {
    const int8_t *weight = (const int8_t *)p->call->buffers[WEIGHT].data;
    int64_t taps = p->tall * p->wide, used = 1;
    int8_t none[QUAD * RVM_BLOCK];
    memset(none, (int)-p->shift, sizeof none);
    for (int64_t o = 0; o < p->outputs && used < QUADS; o++) {
        const int8_t *last = weight + ((o + 1) * p->lines - 1) * taps * LINE_WEIGHTS;
        for (int64_t t = 0; t < taps; t++, last += LINE_WEIGHTS)
            for (int64_t q = QUADS; q > used; q--)
                if (memcmp(last + (q - 1) * QUAD * RVM_BLOCK, none, sizeof none)) used = q;
    }
    return used;
}

/* Pixels whose inputs stay in the cache while all outputs are computed. */
static int64_t run_pixels_of(const Product *p, const Tiles *tiles) {
    int64_t of_pixel = p->is_linear ? p->item : p->is_gathered ? gathered_step(p) : p->lines * RVM_BLOCK;
    int64_t pixels = CACHED_BYTES / (of_pixel > 1 ? of_pixel : 1) / tiles->rows * tiles->rows;
    return pixels < tiles->rows ? tiles->rows : pixels > RUN ? RUN : pixels;
}

/* What is used of weights of lines of a few channels. */
static const int8_t *narrow_weights(const Product *p) {
    const int8_t *from = (const int8_t *)p->call->buffers[WEIGHT].data;
    int64_t bytes = p->quads * QUAD * RVM_BLOCK;
    for (int64_t i = 0; i < p->outputs * p->terms; i++)
        memcpy(p->narrow + i * bytes, from + i * LINE_WEIGHTS, (size_t)bytes);
    return p->narrow;
}

/* Threads have rows of their own, which they may have written before: what another one has written comes slowly.  Where
 * weights are more than twice as many bytes, which each of them would read, they have outputs of their own.  Rows that
 * are gathered are not for two of them: each would have to do it, which takes longer than to read four times the weights. */
static RvmGrid divide_product(const RvmKernelCall *call, const Product *p, int64_t time) {
    int64_t rows = p->is_linear ? p->columns : p->rows, weights = weight_bytes(p);
    int64_t limit = 2 * p->lines * p->height * p->width * RVM_BLOCK;
    RvmGrid grid;
    if (p->is_gathered && p->terms > p->lines) limit = 4 * p->pixels * gathered_step(p);
    if (weights > limit) {
        grid = rvm_divide(call, time, 1, p->output_tiles);
        grid.outer = rows;
    } else if (p->is_gathered) {
        grid = rvm_divide(call, time, rows, 1);
        grid.inner = p->output_tiles;
    } else {
        grid = rvm_divide_rows(call, time, rows, p->output_tiles);
    }
    return grid;
}

static int run_product(const RvmKernelCall *call, Product *p, const Tiles *tiles) {
    char *workspace = call->workspace;
    int64_t taps = p->tall * p->wide, *offset;
    int64_t taken = take_all(p, (char *)rvm_take(&workspace, 0));
    p->gathered = (uint8_t *)rvm_take(&workspace, 0) + taken;
    prepare(p);
    p->tiles = tiles;
    if (p->is_linear) {
        for (int64_t t = 0; t < p->terms; t++) p->offsets[t] = t * RVM_BLOCK;
    } else {
        if (!p->is_narrow) p->quads = p->is_gathered ? QUADS : used_quads(p);
        offset = p->offsets;
        for (int64_t i = 0; i < p->lines; i++)
            for (int64_t ky = 0; ky < p->tall; ky++)
                for (int64_t kx = 0; kx < p->wide; kx++)
                    *offset++ = ((i * p->padded_height + ky * p->dilation_y) * p->padded_width + kx * p->dilation_x) *
                                RVM_BLOCK;
    }
    p->bytes = (Bytes){.weight = p->is_narrow ? narrow_weights(p) : (const int8_t *)call->buffers[WEIGHT].data,
                       .terms = p->offsets,
                       .count = p->terms,
                       .whole = p->quads < QUADS ? (p->lines - 1) * taps : p->terms,
                       .left = p->quads,
                       .weight_block = p->terms * (p->is_narrow ? p->quads * QUAD * RVM_BLOCK : LINE_WEIGHTS)};
    p->bytes.x_step = p->is_gathered  ? gathered_step(p)
                      : !p->is_linear ? p->stride_x * RVM_BLOCK
                      : p->is_copied  ? row_bytes(p)
                                      : p->item;
    p->pixels = p->rows * p->columns;
    int64_t time = product_time(p, tiles);
    p->run_pixels = run_pixels_of(p, tiles);
    int64_t most = p->pixels <= tiles->few ? tiles->many : tiles->blocks;
    p->output_tiles = (p->outputs + most - 1) / most;
    int64_t bytes = p->lines * p->height * p->width * RVM_BLOCK;
    for (p->image = 0; p->image < p->images; p->image++) {
        const uint8_t *x = (const uint8_t *)call->buffers[X].data;
        p->x = p->is_linear ? x : x + p->image * bytes;
        if (p->is_copied) {
            int64_t parts = p->is_linear ? p->columns : p->lines * p->padded_height;
            p->grid = rvm_divide(call, time, parts, 1);
            if (rvm_run_grid(call, &p->grid, copy_some, p)) return RVM_FAILED;
        }
        p->bytes.x = p->is_copied ? p->copy : p->x;
        if (p->shift) {
            p->grid = rvm_divide(call, time, p->is_linear ? p->columns : p->padded_height, 1);
            if (rvm_run_grid(call, &p->grid, sum_pixels, p)) return RVM_FAILED;
            p->grid = rvm_divide(call, time, p->rows, 1);
            if (!p->is_linear && rvm_run_grid(call, &p->grid, sum_windows, p)) return RVM_FAILED;
        }
        for (int i = 0; p->is_gathered && i < call->threads; i++)
            ((Gathered *)(p->gathered + i * gathered_bytes(p)))->last = -1;
        p->grid = divide_product(call, p, time);
        if (rvm_run_grid(call, &p->grid, run_some, p)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int run_with(const RvmKernelCall *call, int (*get)(const RvmKernelCall *, Product *), const Tiles *tiles) {
    Product p;
    return get(call, &p) ? run_product(call, &p, tiles) : RVM_ASK_REFERENCE;
}

static int linear(const RvmKernelCall *call) { return run_with(call, get_linear, &plain_tiles); }
static int conv2d(const RvmKernelCall *call) { return run_with(call, get_conv, &plain_tiles); }

#ifdef HAS_VNNI
static int has_vnni(void) { return __builtin_cpu_supports("avx512vnni") != 0; }

static int vnni_linear(const RvmKernelCall *call) {
    return has_vnni() ? run_with(call, get_linear, &vnni_tiles) : RVM_ASK_REFERENCE;
}

static int vnni_conv2d(const RvmKernelCall *call) {
    return has_vnni() ? run_with(call, get_conv, &vnni_tiles) : RVM_ASK_REFERENCE;
}
#endif

#ifdef HAS_AMX
#define FEWEST_ROWS 8 /* of fewer, reading the weights is what takes time */

static int amx_linear(const RvmKernelCall *call) {
    Product p;
    if (!has_amx() || !get_linear(call, &p) || p.columns < FEWEST_ROWS) return RVM_ASK_REFERENCE;
    return run_product(call, &p, &amx_tiles);
}

/* Lines of one pixel after the other are rows already. */
static int get_gathered(const RvmKernelCall *call, Product *p) {
    if (!has_amx() || !get_conv(call, p) || p->rows * p->columns < FEWEST_ROWS) return 0;
    p->is_gathered = !p->is_flat || p->lines > 1 || p->is_signed;
    p->quads = p->lines == 1 ? used_quads(p) : QUADS;
    p->is_narrow = p->is_gathered && p->quads < QUADS && !p->shift;
    p->run_pixels = run_pixels_of(p, &amx_tiles);
    return 1;
}

static int64_t gathered_workspace(const RvmKernelCall *call) {
    Product p;
    if (!get_gathered(call, &p)) return -1;
    return take_all(&p, NULL) + (p.is_gathered ? call->threads * gathered_bytes(&p) : 0) + RVM_ALIGNMENT;
}

static int amx_conv2d(const RvmKernelCall *call) {
    Product p;
    return get_gathered(call, &p) ? run_product(call, &p, &amx_tiles) : RVM_ASK_REFERENCE;
}
#endif

/* ---- depthwise ----------------------------------------------------------------------------------- */
/* Each channel by itself: x as of other convolutions, weight int16 [blocks, height, width, 16].  Rows of the image are
 * converted once for all windows that they are in: by VNNI to what it multiplies, or to float32, which holds the sums
 * exactly, of at most MOST_TAPS products of 9 bits and 8. */
#define MOST_TAPS 256
#define SOME_PIXELS 7

static int get_depthwise(const RvmKernelCall *call, Product *p) {
    const RvmBuffer *b = call->buffers, *x = b + X, *weight = b + WEIGHT, *out = b + OUT;
    const IntegerParams *q = (const IntegerParams *)call->params;
    *p = (Product){.item = RVM_BLOCK};
    if (x->ndim != 5 || out->ndim != 5 || weight->ndim != 4 || weight->dtype != RVM_DTYPE_I16 ||
        x->dims[4] != RVM_BLOCK || out->dims[4] != RVM_BLOCK || weight->dims[3] != RVM_BLOCK ||
        x->dims[0] != out->dims[0] || x->dims[1] != weight->dims[0] || out->dims[1] != weight->dims[0] ||
        q->strides.count != 2 || q->padding.count != 4 || q->dilation.count != 2 || q->shift)
        return 0;
    p->images = x->dims[0];
    p->lines = p->outputs = weight->dims[0];
    p->channels = p->outputs * RVM_BLOCK;
    p->tall = weight->dims[1];
    p->wide = weight->dims[2];
    return get_rest(call, p) && get_windows(x, out, q, p) && p->tall * p->wide <= MOST_TAPS;
}

/* Of a thread: rows of the image, as floats, and weights of a block. */
static int64_t depthwise_bytes(const Product *p) {
    return rvm_apart(rvm_aligned(p->tall * p->padded_width * RVM_BLOCK * 4) + p->tall * p->wide * RVM_BLOCK * 4);
}

static int64_t take_vectors(Product *p, char *workspace) {
    char *at = workspace;
    int64_t outputs = p->outputs * RVM_BLOCK;
    p->corrections = (int32_t *)rvm_take(&at, outputs * 4);
    p->factors = (float *)rvm_take(&at, outputs * 4);
    p->more = (float *)rvm_take(&at, outputs * 4);
    p->copy = (uint8_t *)rvm_take(&at, 0);
    return at - workspace;
}

/* As of products: threads have rows of their own, or blocks where there are many on a small image, since the weights
 * of the product before it, which are as many times the channels, decide there. */
static void divide_depthwise(const RvmKernelCall *call, Product *p) {
    int64_t pixels = p->rows * p->columns, results = p->images * pixels * p->outputs * RVM_BLOCK;
    int64_t time = rvm_time_for(results * p->tall * p->wide / 2, results * 6);
    if (p->outputs * RVM_BLOCK <= 2 * pixels) {
        p->grid = rvm_divide_rows(call, time, p->images * p->rows, p->outputs);
        return;
    }
    p->grid = rvm_divide(call, time, 1, p->outputs);
    p->grid.outer = p->images * p->rows;
}

static int64_t depthwise_workspace(const RvmKernelCall *call) {
    Product p;
    if (!get_depthwise(call, &p)) return -1;
    divide_depthwise(call, &p);
    return take_vectors(&p, NULL) + p.grid.threads * depthwise_bytes(&p) + RVM_ALIGNMENT;
}

static inline vf wide_bytes(const uint8_t *x) {
#if defined(__AVX512F__)
    return (vf)_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)x)));
#elif defined(__AVX2__)
    return (vf)_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)x)));
#else
    vbytes bytes;
    memcpy(&bytes, x, sizeof bytes);
    return __builtin_convertvector(bytes, vf);
#endif
}

/* A row of the image less the zero point, with zeros around. */
static void widen_row(const Product *p, const uint8_t *x, int is_inside, float *to) {
    int64_t before = p->left * RVM_BLOCK, count = p->width * RVM_BLOCK, all = p->padded_width * RVM_BLOCK;
    vf zero = rvm_all(p->x_zero);
    if (!is_inside) count = 0;
    memset(to, 0, (size_t)before * 4);
    for (int64_t i = 0; i < count; i += RVM_LANES) {
        uint8_t bytes[RVM_LANES];
        memcpy(bytes, x + i, RVM_LANES);
        if (p->is_signed)
            for (int j = 0; j < RVM_LANES; j++) bytes[j] ^= 128;
        uint8_t loaded[16] = {0};
        memcpy(loaded, bytes, RVM_LANES);
        rvm_store(to + before + i, wide_bytes(p->is_signed ? loaded : x + i) - zero);
    }
    memset(to + before + count, 0, (size_t)(all - before - count) * 4);
}

/* Sums of some pixels of a row, exact. */
static inline __attribute__((always_inline)) void slide(const Product *p, float *const *rows, const float *weight,
                                                        int64_t pixel, int pixels, int wide, int64_t step,
                                                        int64_t apart, const int32_t *start, int32_t *sums) {
    for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
        vf sum[SOME_PIXELS];
        vu first;
        const float *w = weight + lane;
        memcpy(&first, start + lane, sizeof first);
#pragma GCC unroll 8
        for (int i = 0; i < pixels; i++) sum[i] = rvm_all(0);
        for (int64_t ky = 0; ky < p->tall; ky++) {
            const float *x = rows[ky] + pixel * step * RVM_BLOCK + lane;
#pragma GCC unroll 8
            for (int kx = 0; kx < wide; kx++, w += RVM_BLOCK) {
                vf one = rvm_load(w);
#pragma GCC unroll 8
                for (int i = 0; i < pixels; i++)
                    sum[i] = rvm_fma(one, rvm_load(x + (kx * apart + i * step) * RVM_BLOCK), sum[i]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < pixels; i++) {
            vu whole = (vu)__builtin_convertvector(sum[i], vi) + first;
            memcpy(sums + i * RVM_BLOCK + lane, &whole, sizeof whole);
        }
    }
}

static void slide_row(const Product *p, float *const *rows, const float *weight, int64_t pixel, int pixels,
                      const int32_t *start, int32_t *sums) {
    if (pixels == SOME_PIXELS && p->dilation_x == 1 && p->wide == 3 && p->stride_x == 1)
        slide(p, rows, weight, pixel, SOME_PIXELS, 3, 1, 1, start, sums);
    else if (pixels == SOME_PIXELS && p->dilation_x == 1 && p->wide == 3 && p->stride_x == 2)
        slide(p, rows, weight, pixel, SOME_PIXELS, 3, 2, 1, start, sums);
    else if (pixels == SOME_PIXELS && p->dilation_x == 1 && p->wide == 5 && p->stride_x == 1)
        slide(p, rows, weight, pixel, SOME_PIXELS, 5, 1, 1, start, sums);
    else
        for (int i = 0; i < pixels; i++)
            slide(p, rows, weight, pixel + i, 1, (int)p->wide, p->stride_x, p->dilation_x, start,
                  sums + i * RVM_BLOCK);
}

/* Rows of an image of one block of channels, in the workspace of a thread. */
typedef int (*DepthwiseRows)(const RvmKernelCall *call, const Product *p, const RvmRows *taken, int64_t block,
                             char *workspace);

static const uint8_t *plane_of(const Product *p, int64_t image, int64_t block) {
    return (const uint8_t *)p->call->buffers[X].data + (image * p->outputs + block) * p->height * p->width * RVM_BLOCK;
}

static char *results_of(const Product *p, int64_t image, int64_t block, int64_t y) {
    int64_t item = is_byte(p->dtype) ? 1 : 4;
    return p->call->buffers[OUT].data + ((image * p->outputs + block) * p->rows + y) * p->columns * RVM_BLOCK * item;
}

static int widened_rows(const RvmKernelCall *call, const Product *p, const RvmRows *taken, int64_t block,
                        char *workspace) {
    int64_t line = p->padded_width * RVM_BLOCK, taps = p->tall * p->wide * RVM_BLOCK, channel = block * RVM_BLOCK;
    int64_t item = is_byte(p->dtype) ? 1 : 4, done = INT64_MIN;
    float *ring = (float *)workspace, *weight = (float *)(workspace + rvm_aligned(p->tall * line * 4));
    float *rows[MOST_TAPS];
    const uint8_t *x = plane_of(p, taken->image, block);
    const int16_t *from = (const int16_t *)call->buffers[WEIGHT].data + block * taps;
    for (int64_t i = 0; i < taps; i++) weight[i] = from[i];
    for (int64_t y = taken->first; y < taken->end; y++) {
        /* Padded rows y * stride + ky * dilation; with windows whose rows are next to each other, those that
         * the last windows had are still there. */
        for (int64_t ky = 0; ky < p->tall; ky++) {
            int64_t row = y * p->stride_y + ky * p->dilation_y;
            int64_t place = p->dilation_y == 1 ? row % p->tall : ky;
            rows[ky] = ring + place * line;
            if (p->dilation_y == 1 && row <= done) continue;
            int64_t inside = row - p->top;
            widen_row(p, x + inside * p->width * RVM_BLOCK, inside >= 0 && inside < p->height, rows[ky]);
            done = row;
        }
        char *out = results_of(p, taken->image, block, y);
        for (int64_t at = 0; at < p->columns; at += SOME_PIXELS) {
            int32_t sums[SOME_PIXELS * RVM_BLOCK] __attribute__((aligned(RVM_ALIGNMENT)));
            int some = p->columns - at < SOME_PIXELS ? (int)(p->columns - at) : SOME_PIXELS;
            slide_row(p, rows, weight, at, some, p->corrections + channel, sums);
            finish(&p->finish, sums, some, channel, NULL, out + at * RVM_BLOCK * item, RVM_BLOCK, RVM_BLOCK);
        }
        if (rvm_must_stop(call, p->columns * RVM_BLOCK * (p->tall * p->wide + 64))) return RVM_FAILED;
    }
    return RVM_OK;
}

typedef struct {
    Product p;
    DepthwiseRows rows;
    int64_t bytes; /* of the workspace of a thread */
} Depthwise;

static int run_depthwise(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Depthwise *d = (const Depthwise *)work;
    RvmPart part = rvm_part(&d->p.grid, piece);
    RvmRows rows;
    while (rvm_take_rows(&part, d->p.rows, &rows))
        for (int64_t b = part.inner; b < part.inner_end; b++)
            if (d->rows(call, &d->p, &rows, b, (char *)d->p.copy + thread * d->bytes)) return RVM_FAILED;
    return RVM_OK;
}

static int are_small(const Product *p, int least, int most) {
    const int16_t *weight = (const int16_t *)p->call->buffers[WEIGHT].data;
    int beyond = 0;
    for (int64_t i = 0; i < p->outputs * p->tall * p->wide * RVM_BLOCK; i++)
        beyond |= (weight[i] < least) | (weight[i] > most);
    return !beyond;
}

static int run_all_depthwise(const RvmKernelCall *call, Depthwise *d) {
    char *workspace = call->workspace;
    divide_depthwise(call, &d->p);
    take_vectors(&d->p, (char *)rvm_take(&workspace, 0));
    prepare(&d->p);
    /* The zero point is taken out with the weights as they are, whatever their sums are said to be. */
    const RvmBuffer *bias = call->buffers + BIAS;
    const int32_t *from = (const int32_t *)bias->data;
    int64_t biases = is_absent(bias) ? 0 : rvm_length(bias);
    for (int64_t i = 0; i < d->p.outputs * RVM_BLOCK; i++)
        d->p.corrections[i] = biases == 1 ? *from : i < biases ? from[i] : 0;
    return rvm_run_grid(call, &d->p.grid, run_depthwise, d);
}

static int depthwise(const RvmKernelCall *call) {
    Depthwise d = {.rows = widened_rows};
    if (!get_depthwise(call, &d.p) || !are_small(&d.p, -256, 256)) return RVM_ASK_REFERENCE;
    d.bytes = depthwise_bytes(&d.p);
    return run_all_depthwise(call, &d);
}

#ifdef HAS_VNNI
/* A lane of 32 bits has four pixels of a channel, from an even one on, in place of four channels of a pixel: vector i of
 * a row begins with pixel 2 * i.  Places of a window in a row are `quads` of them, every second vector, for windows that
 * begin with an even pixel; weights of the others come one byte later. */
#define SLIDES 8 /* results of a tile */

static int64_t quads_of(const Product *p) { return (p->wide + 1 + QUAD - 1) / QUAD; }

/* Vectors of a row: those of whole tiles. */
static int64_t pairs_of(const Product *p) {
    int64_t tiles = (p->columns + SLIDES - 1) / SLIDES;
    return (tiles * SLIDES - 1) * p->stride_x / 2 + 2 * (quads_of(p) - 1) + 1;
}

static int64_t slid_row_bytes(const Product *p) { return pairs_of(p) * RVM_BLOCK * QUAD; }
static int64_t slid_weight_bytes(const Product *p) { return 2 * p->tall * quads_of(p) * RVM_BLOCK * QUAD; }
static int64_t slid_bytes(const Product *p) { return rvm_apart(p->tall * slid_row_bytes(p) + slid_weight_bytes(p)); }

static int get_slid(const RvmKernelCall *call, Product *p) {
    return __builtin_cpu_supports("avx512vnni") && get_depthwise(call, p) && p->dilation_x == 1;
}

static int64_t slid_workspace(const RvmKernelCall *call) {
    Product p;
    if (!get_slid(call, &p)) return -1;
    divide_depthwise(call, &p);
    return take_vectors(&p, NULL) + p.grid.threads * slid_bytes(&p) + RVM_ALIGNMENT;
}

/* Bits for the lanes of four pixels from one on: whether they are in the image. */
static __mmask16 lanes_inside(int64_t first, int64_t width) {
    int bits = 0;
    for (int i = 0; i < QUAD; i++)
        if (first + i >= 0 && first + i < width) bits |= 15 << QUAD * i;
    return (__mmask16)bits;
}

/* The vectors of a row, with the zero point around it. */
static void pair_row(const Product *p, const uint8_t *x, int is_inside, uint8_t *to) {
    const __m512i pixels = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i channels = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i flip = _mm512_set1_epi8(p->is_signed ? -128 : 0);
    const __m512i zero = _mm512_xor_si512(_mm512_set1_epi8((char)p->x_zero), flip);
    int64_t pairs = pairs_of(p), pixel = -p->left;
    if (!is_inside) {
        memset(to, p->x_zero, (size_t)slid_row_bytes(p));
        return;
    }
    for (int64_t i = 0; i < pairs; i++, pixel += 2, to += RVM_BLOCK * QUAD) {
        __m512i four;
        if (pixel >= 0 && pixel + QUAD <= p->width) four = _mm512_loadu_si512(x + pixel * RVM_BLOCK);
        else four = _mm512_mask_loadu_epi32(zero, lanes_inside(pixel, p->width), x + pixel * RVM_BLOCK);
        four = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(pixels, _mm512_xor_si512(four, flip)), channels);
        _mm512_storeu_si512(to, four);
    }
}

/* weight[0 or 1][row][quad][16][4]: of windows that begin with an even and with an odd pixel; and what sums begin with,
 * the bias without what the zero point adds to them. */
static void pair_weights(const Product *p, int64_t block, int8_t *to, int32_t *start) {
    int64_t quads = quads_of(p), taps = p->tall * p->wide;
    const int16_t *from = (const int16_t *)p->call->buffers[WEIGHT].data + block * taps * RVM_BLOCK;
    __m512i sum = _mm512_setzero_si512();
    for (int64_t i = 0; i < taps; i++)
        sum = _mm512_add_epi32(sum, _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)(from + i * RVM_BLOCK))));
    sum = _mm512_mullo_epi32(sum, _mm512_set1_epi32(p->x_zero));
    _mm512_storeu_si512(start, _mm512_sub_epi32(_mm512_loadu_si512(p->corrections + block * RVM_BLOCK), sum));
    for (int64_t begin = 0; begin < 2; begin++)
        for (int64_t ky = 0; ky < p->tall; ky++)
            for (int64_t q = 0; q < quads; q++, to += RVM_BLOCK * QUAD) {
                __m512i all = _mm512_setzero_si512();
                for (int i = 0; i < QUAD; i++) {
                    int64_t kx = q * QUAD + i - begin;
                    if (kx < 0 || kx >= p->wide) continue;
                    __m256i one = _mm256_loadu_si256((const void *)(from + (ky * p->wide + kx) * RVM_BLOCK));
                    __m512i byte = _mm512_and_si512(_mm512_cvtepi16_epi32(one), _mm512_set1_epi32(255));
                    all = _mm512_or_si512(all, _mm512_sllv_epi32(byte, _mm512_set1_epi32(8 * i)));
                }
                _mm512_storeu_si512(to, all);
            }
}

/* Sums of `count` results of a row from one on, an even one. */
static inline VNNI __attribute__((always_inline)) void slide_pairs(uint8_t *const *rows, const int8_t *weight, int64_t tall,
                                                                   int quads, int stride, int64_t first, int count,
                                                                   const int32_t *start, int32_t *sums) {
    __m512i sum[SLIDES], begin = _mm512_loadu_si512(start);
    const int8_t *odd = weight + tall * quads * RVM_BLOCK * QUAD;
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) sum[i] = begin;
    for (int64_t ky = 0; ky < tall; ky++) {
        const uint8_t *x = rows[ky] + first * stride / 2 * RVM_BLOCK * QUAD;
#pragma GCC unroll 4
        for (int q = 0; q < quads; q++, weight += RVM_BLOCK * QUAD, odd += RVM_BLOCK * QUAD) {
            __m512i even = _mm512_loadu_si512(weight), other = _mm512_loadu_si512(odd);
#pragma GCC unroll 8
            for (int i = 0; i < count; i++) {
                __m512i four = _mm512_loadu_si512(x + (i * stride / 2 + 2 * q) * RVM_BLOCK * QUAD);
                sum[i] = _mm512_dpbusd_epi32(sum[i], four, i * stride % 2 ? other : even);
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) _mm512_storeu_si512(sums + i * RVM_BLOCK, sum[i]);
}

static VNNI void slide_tile(const Product *p, uint8_t *const *rows, const int8_t *weight, int64_t first,
                            const int32_t *start, int32_t *sums) {
    int64_t quads = quads_of(p);
    if (p->stride_x == 1 && quads == 1) slide_pairs(rows, weight, p->tall, 1, 1, first, SLIDES, start, sums);
    else if (p->stride_x == 1 && quads == 2) slide_pairs(rows, weight, p->tall, 2, 1, first, SLIDES, start, sums);
    else if (p->stride_x == 2 && quads == 1) slide_pairs(rows, weight, p->tall, 1, 2, first, SLIDES, start, sums);
    else if (p->stride_x == 2 && quads == 2) slide_pairs(rows, weight, p->tall, 2, 2, first, SLIDES, start, sums);
    else
        for (int i = 0; i < SLIDES && first + i < p->columns; i += 2)
            slide_pairs(rows, weight, p->tall, (int)quads, (int)p->stride_x, first + i, 2, start, sums + i * RVM_BLOCK);
}

static int slid_rows(const RvmKernelCall *call, const Product *p, const RvmRows *taken, int64_t block, char *workspace) {
    int64_t line = slid_row_bytes(p), item = is_byte(p->dtype) ? 1 : 4, done = INT64_MIN, kept = 0;
    int32_t start[RVM_BLOCK];
    int32_t sums[MOST_SUMS] __attribute__((aligned(RVM_ALIGNMENT))); /* of results that are not yet written */
    uint8_t *rows[MOST_TAPS];
    int8_t *weight = (int8_t *)workspace + p->tall * line;
    const uint8_t *x = plane_of(p, taken->image, block);
    char *out = results_of(p, taken->image, block, taken->first);
    pair_weights(p, block, weight, start);
    for (int64_t y = taken->first; y < taken->end; y++) {
        for (int64_t ky = 0; ky < p->tall; ky++) {
            int64_t row = y * p->stride_y + ky * p->dilation_y;
            int64_t place = p->dilation_y == 1 ? row % p->tall : ky;
            rows[ky] = (uint8_t *)workspace + place * line;
            if (p->dilation_y == 1 && row <= done) continue;
            int64_t inside = row - p->top;
            pair_row(p, x + inside * p->width * RVM_BLOCK, inside >= 0 && inside < p->height, rows[ky]);
            done = row;
        }
        for (int64_t at = 0; at < p->columns; at += SLIDES) {
            slide_tile(p, rows, weight, at, start, sums + kept * RVM_BLOCK);
            kept += p->columns - at < SLIDES ? p->columns - at : SLIDES;
            int is_last = y + 1 == taken->end && at + SLIDES >= p->columns;
            if (!is_last && kept + SLIDES <= MOST_SUMS / RVM_BLOCK) continue;
            finish(&p->finish, sums, kept, block * RVM_BLOCK, NULL, out, RVM_BLOCK, RVM_BLOCK);
            out += kept * RVM_BLOCK * item;
            kept = 0;
        }
        if (rvm_must_stop(call, p->columns * RVM_BLOCK * (p->tall * p->wide / 4 + 16))) return RVM_FAILED;
    }
    return RVM_OK;
}

static int vnni_depthwise(const RvmKernelCall *call) {
    Depthwise d = {.rows = slid_rows};
    if (!get_slid(call, &d.p) || !are_small(&d.p, -128, 127)) return RVM_ASK_REFERENCE;
    d.bytes = slid_bytes(&d.p);
    return run_all_depthwise(call, &d);
}
#endif

/* ---- quantization -------------------------------------------------------------------------------- */
#define PIECE (1 << 14)

typedef struct {
    const float *x;
    uint8_t *out;
    int64_t count;
    Finish finish;
    RvmGrid grid;
} Quantize;

static int quantize_some(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Quantize *q = (const Quantize *)work;
    RvmPart part = rvm_part(&q->grid, piece);
    vf scale = rvm_all(q->finish.scale);
    (void)thread;
    for (int64_t p = part.outer; p < part.outer_end; p++) {
        int64_t i = p * PIECE, end = i + PIECE < q->count ? i + PIECE : q->count;
        for (; i + RVM_LANES <= end; i += RVM_LANES) {
            vbytes some = to_bytes(&q->finish, rvm_load(q->x + i) / scale);
            memcpy(q->out + i, &some, sizeof some);
        }
        if (i < end) {
            float left[RVM_LANES] = {0};
            memcpy(left, q->x + i, (size_t)(end - i) * 4);
            vbytes some = to_bytes(&q->finish, rvm_load(left) / scale);
            memcpy(q->out + i, &some, (size_t)(end - i));
        }
        if (rvm_must_stop(call, PIECE * 16)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int quantize(const RvmKernelCall *call) {
    const RvmBuffer *x = call->buffers, *scale = x + 1, *zero = x + 2, *out = x + 3;
    if (x->dtype != RVM_DTYPE_F32 || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !is_byte(out->dtype) ||
        !rvm_same_shape(x, out) || !is_number(scale, RVM_DTYPE_F32) ||
        (!is_absent(zero) && !is_number(zero, out->dtype)))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < 3; i++)
        if (!is_absent(x + i) && !rvm_no_overlap(x + i, out)) return RVM_ASK_REFERENCE;
    Quantize q = {.x = (const float *)x->data, .out = (uint8_t *)out->data, .count = rvm_length(x),
                  .finish = finish_of(scale, zero, out->dtype)};
    q.grid = rvm_divide(call, rvm_time_for(q.count * 16, q.count * 5), (q.count + PIECE - 1) / PIECE, 1);
    return rvm_run_grid(call, &q.grid, quantize_some, &q);
}

/* Least and greatest element, 0 among them, of images in blocks of channels or of other tensors: planes of
 * elements, in pieces.  Channels that fill the last block do not count. */
typedef struct {
    const float *x;
    int64_t count, parts;     /* elements of a plane, and its pieces */
    int64_t blocks, channels; /* planes of an image, and channels of the last one; 1 and 16 of other tensors */
    float *bounds;            /* [pieces][2] */
    RvmGrid grid;
} Range;

static int find_range(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Range *r = (const Range *)work;
    RvmPart part = rvm_part(&r->grid, piece);
    (void)thread;
    for (int64_t p = part.outer; p < part.outer_end; p++) {
        int64_t plane = p / r->parts, i = p % r->parts * PIECE, end = i + PIECE < r->count ? i + PIECE : r->count;
        const float *x = r->x + plane * r->count;
        vi mask[RVM_LINE_VECTORS], is_nan = {0};
        vf low = rvm_all(0), high = rvm_all(0);
        int32_t lanes[RVM_BLOCK];
        float lows[RVM_LANES], highs[RVM_LANES], left[RVM_LANES] = {0}, *bounds = r->bounds + 2 * p;
        for (int j = 0; j < RVM_BLOCK; j++) lanes[j] = plane % r->blocks + 1 < r->blocks || j < r->channels ? -1 : 0;
        memcpy(mask, lanes, sizeof mask);
        for (int v = 0; i < end; i += RVM_LANES, v = (v + 1) % RVM_LINE_VECTORS) {
            vf some;
            if (i + RVM_LANES <= end) {
                some = rvm_load(x + i);
            } else {
                memcpy(left, x + i, (size_t)(end - i) * 4);
                some = rvm_load(left);
            }
            some = (vf)((vi)some & mask[v]);
            low = rvm_at_most(some, low); /* NaN leaves it */
            high = rvm_at_least(some, high);
            is_nan |= some != some;
        }
        rvm_store(lows, low);
        rvm_store(highs, high);
        memcpy(lanes, &is_nan, sizeof is_nan);
        bounds[0] = bounds[1] = 0;
        for (int j = 0; j < RVM_LANES; j++) {
            bounds[0] = lanes[j] ? NAN : lows[j] < bounds[0] ? lows[j] : bounds[0];
            if (lanes[j]) break;
            bounds[1] = highs[j] > bounds[1] ? highs[j] : bounds[1];
        }
        if (rvm_must_stop(call, PIECE * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

typedef struct {
    int64_t channels;
} RangeParams;

static int get_range(const RvmKernelCall *call, Range *r) {
    const RvmBuffer *x = call->buffers, *scale = x + 1, *zero = x + 2;
    int64_t channels = ((const RangeParams *)call->params)->channels;
    if (call->count != 3 || x->dtype != RVM_DTYPE_F32 || !rvm_is_contiguous(x) || rvm_length(x) < 1 ||
        scale->ndim || zero->ndim || scale->dtype != RVM_DTYPE_F32 || zero->dtype != RVM_DTYPE_U8 ||
        !rvm_no_overlap(scale, zero))
        return 0;
    int64_t planes = 1;
    *r = (Range){.x = (const float *)x->data, .count = rvm_length(x), .blocks = 1, .channels = RVM_BLOCK};
    if (channels != RVM_NO_INT) {
        if (x->ndim != 5 || x->dims[4] != RVM_BLOCK || channels <= (x->dims[1] - 1) * RVM_BLOCK ||
            channels > x->dims[1] * RVM_BLOCK)
            return 0;
        r->blocks = x->dims[1];
        r->channels = channels - (r->blocks - 1) * RVM_BLOCK;
        planes = x->dims[0] * r->blocks;
        r->count /= planes;
    }
    r->parts = (r->count + PIECE - 1) / PIECE;
    r->grid.outer = planes * r->parts;
    return 1;
}

static int64_t range_workspace(const RvmKernelCall *call) {
    Range r;
    return get_range(call, &r) ? r.grid.outer * 8 + RVM_ALIGNMENT : -1;
}

/* What is not finite is left to the reference. */
static int range(const RvmKernelCall *call) {
    Range r;
    char *workspace = call->workspace;
    float low = 0, high = 0;
    if (!get_range(call, &r)) return RVM_ASK_REFERENCE;
    r.bounds = (float *)rvm_take(&workspace, 0);
    int64_t pieces = r.grid.outer;
    r.grid = rvm_divide(call, rvm_time_for(0, pieces * (r.count < PIECE ? r.count : PIECE) * 4), pieces, 1);
    if (rvm_run_grid(call, &r.grid, find_range, &r)) return RVM_FAILED;
    for (int64_t i = 0; i < pieces; i++) {
        if (!isfinite(r.bounds[2 * i]) || !isfinite(r.bounds[2 * i + 1])) return RVM_ASK_REFERENCE;
        low = r.bounds[2 * i] < low ? r.bounds[2 * i] : low;
        high = r.bounds[2 * i + 1] > high ? r.bounds[2 * i + 1] : high;
    }
    float span = high - low, scale = span == 0 ? 1 : span / 255;
    if (!isfinite(span) || !isnormal(scale)) return RVM_ASK_REFERENCE;
    float point = -low / scale;
    point = point < 0 ? 0 : point > 255 ? 255 : point;
    *(float *)call->buffers[1].data = scale;
    *(uint8_t *)call->buffers[2].data = (uint8_t)((point + 0x1.8p23f) - 0x1.8p23f);
    return RVM_OK;
}

/* ---- long short-term memory ---------------------------------------------------------------------- */
/* given[steps, batch, directions * 4 gates * blocks * 16], the products of the inputs, with the bias; weight
 * [directions * 4 gates * blocks, lines, 4, 16, 4] of the states, their sums and factors; initial states and
 * cells; states of all steps, last states, last cells.  The states of a step are quantized together, as
 * by `quantization_range`. */
enum { GIVEN, RECURRENCE, RECURRENCE_SUMS, FACTORS, FIRST_H, FIRST_C, STATES, LAST_H, LAST_C, LSTM_BUFFERS };
#define MOST_ROWS 3

typedef struct {
    int64_t shift, direction;
} LstmParams;

typedef struct {
    const RvmKernelCall *call;
    const Tiles *tiles;
    int64_t steps, batch, size, directions, blocks, padded, lines;
    int64_t shift, direction;
    char *workspace;
    RvmGrid grid; /* of directions */
} Lstm;

static int has_dims(const RvmBuffer *x, int dtype, int ndim, const int64_t *dims) {
    return x->dtype == dtype && x->ndim == ndim && rvm_is_contiguous(x) && rvm_same_dims(x->dims, dims, ndim);
}

static int get_lstm(const RvmKernelCall *call, Lstm *l) {
    const RvmBuffer *b = call->buffers;
    const LstmParams *q = (const LstmParams *)call->params;
    if (call->count != LSTM_BUFFERS || b[GIVEN].ndim != 3 || b[FIRST_H].ndim != 3) return 0;
    *l = (Lstm){.call = call, .steps = b[GIVEN].dims[0], .batch = b[GIVEN].dims[1], .size = b[FIRST_H].dims[2],
                .shift = q->shift, .direction = q->direction};
    l->directions = l->direction == BIDIRECTIONAL ? 2 : 1;
    l->blocks = l->lines = (l->size + RVM_BLOCK - 1) / RVM_BLOCK;
    l->padded = l->blocks * RVM_BLOCK;
    int64_t gates = l->directions * LSTM_GATES * l->blocks, outputs = gates * RVM_BLOCK;
    int64_t of_given[] = {l->steps, l->batch, outputs}, of_states[] = {l->steps, l->directions, l->batch, l->size};
    int64_t of_weight[] = {gates, l->lines, QUADS, RVM_BLOCK, QUAD}, *of_state = of_states + 1;
    if (l->steps < 1 || l->batch < 1 || l->size < 1 || l->shift < -128 || l->shift > 128 ||
        !has_dims(b + GIVEN, RVM_DTYPE_F32, 3, of_given) || !has_dims(b + RECURRENCE, RVM_DTYPE_I8, 5, of_weight) ||
        !has_dims(b + RECURRENCE_SUMS, RVM_DTYPE_I32, 1, &outputs) || !has_dims(b + FACTORS, RVM_DTYPE_F32, 1, &outputs) ||
        !has_dims(b + STATES, RVM_DTYPE_F32, 4, of_states))
        return 0;
    for (int i = FIRST_H; i < LSTM_BUFFERS; i++)
        if (i != STATES && !has_dims(b + i, RVM_DTYPE_F32, 3, of_state)) return 0;
    for (int out = STATES; out < LSTM_BUFFERS; out++)
        for (int other = 0; other < out; other++)
            if (!rvm_no_overlap(b + other, b + out)) return 0;
    int64_t products = l->steps * l->batch * gates * RVM_BLOCK * l->padded / QUAD;
    l->grid = rvm_divide(call, rvm_time_for(products, products / QUAD), l->directions, 1);
    l->grid.outer_parts = l->directions;
    return 1;
}

/* Terms, bytes and sums of rows, states, new states and cells: of a thread. */
static int64_t lstm_bytes(const Lstm *l) {
    int64_t state = rvm_aligned(l->batch * l->padded * 4);
    return rvm_apart(rvm_aligned(l->lines * 8) + rvm_aligned(l->batch * l->padded) + rvm_aligned(l->batch * 4) + 3 * state);
}

static int64_t lstm_workspace(const RvmKernelCall *call) {
    Lstm l;
    return get_lstm(call, &l) ? l.grid.threads * lstm_bytes(&l) + RVM_ALIGNMENT : -1;
}

/* Quantize the states of a step, and add up each row. */
static Finish quantize_states(const Lstm *l, const float *state, uint8_t *bytes, int32_t *row_sums) {
    float low = 0, high = 0;
    int has_nan = 0;
    for (int64_t r = 0; r < l->batch; r++) {
        const float *row = state + r * l->padded;
        for (int64_t i = 0; i < l->size; i++) {
            low = row[i] < low ? row[i] : low;
            high = row[i] > high ? row[i] : high;
            has_nan |= row[i] != row[i];
        }
    }
    float span = high - low, point;
    Finish f = {.function = RVM_NO_INT, .dtype = RVM_DTYPE_U8, .scale = span > 0 ? span / 255 : 1, .high = 255};
    if (!(f.scale > 0)) f.scale = 1; /* so small a span */
    if (has_nan) f.scale = NAN; /* and so are all products */
    point = -low / f.scale;
    point = point > 0 ? point : 0; /* NaN is 0, too */
    f.zero = ((point > 255 ? 255 : point) + 0x1.8p23f) - 0x1.8p23f;
    for (int64_t r = 0; r < l->batch; r++) {
        uint8_t *to = bytes + r * l->padded;
        uint32_t sum = 0;
        for (int64_t i = 0; i < l->padded; i += RVM_LANES) {
            vbytes some = to_bytes(&f, rvm_load(state + r * l->padded + i) / rvm_all(f.scale));
            memcpy(to + i, &some, sizeof some);
        }
        for (int64_t i = l->size; i < l->padded; i++) to[i] = 0;
        for (int64_t i = 0; i < l->size; i++) sum += to[i];
        row_sums[r] = (int32_t)(sum * (uint32_t)l->shift);
    }
    return f;
}

/* The gates of a block of the state, of some rows: [row][gate][16]. */
static void gates_of(const Lstm *l, const Bytes *bytes, int64_t first, int rows, int64_t block, const Finish *f,
                     const int32_t *row_sums, const float *given, float *gates) {
    int32_t sums[LSTM_GATES * MOST_ROWS * RVM_BLOCK] __attribute__((aligned(RVM_ALIGNMENT)));
    const RvmBuffer *b = l->call->buffers;
    int64_t step = bytes->weight_block, outputs = l->directions * LSTM_GATES * l->padded;
    const int8_t *weight = (const int8_t *)b[RECURRENCE].data + block * LSTM_GATES * step;
    for (int g = 0; g < LSTM_GATES;) {
        Bytes some = *bytes;
        some.weight = weight + g * step;
        int is_wide = rows <= l->tiles->few && LSTM_GATES - g >= l->tiles->many;
        if (is_wide) {
            l->tiles->of_few[rows - 1](&some, first, sums + g * rows * RVM_BLOCK);
            g += l->tiles->many;
        } else {
            for (int r = 0; r < rows;) {
                int more = rows - r < l->tiles->rows ? rows - r : l->tiles->rows;
                l->tiles->one[more - 1](&some, first + r, sums + (g * rows + r) * RVM_BLOCK);
                r += more;
            }
            g++;
        }
    }
    for (int g = 0; g < LSTM_GATES; g++)
        for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
            int64_t channel = (block * LSTM_GATES + g) * RVM_BLOCK + lane;
            vu of_weights;
            memcpy(&of_weights, b[RECURRENCE_SUMS].data + channel * 4, sizeof of_weights);
            vu correction = of_weights * (uint32_t)f->zero;
            vf factor = rvm_load((const float *)b[FACTORS].data + channel) * rvm_all(f->scale);
            for (int r = 0; r < rows; r++) {
                vu sum;
                memcpy(&sum, sums + (g * rows + r) * RVM_BLOCK + lane, sizeof sum);
                sum += (uint32_t)row_sums[first + r];
                vf real = __builtin_convertvector((vi)(sum - correction), vf);
                rvm_store(gates + (r * LSTM_GATES + g) * RVM_BLOCK + lane,
                          rvm_fma(real, factor, rvm_load(given + (first + r) * outputs + channel)));
            }
        }
}

static int run_lstm(const RvmKernelCall *call, void *work, int64_t d, int thread) {
    const Lstm *l = (const Lstm *)work;
    const RvmBuffer *b = call->buffers;
    char *workspace = l->workspace + thread * lstm_bytes(l);
    int64_t state = l->batch * l->padded, kept = l->batch * l->size;
    int64_t outputs = l->directions * LSTM_GATES * l->padded;
    int64_t *terms = (int64_t *)rvm_take(&workspace, l->lines * 8);
    uint8_t *bytes = (uint8_t *)rvm_take(&workspace, state);
    int32_t *row_sums = (int32_t *)rvm_take(&workspace, l->batch * 4);
    float *cell = (float *)rvm_take(&workspace, 4 * state);
    float *old = (float *)rvm_take(&workspace, 4 * state), *new = (float *)rvm_take(&workspace, 4 * state);
    Bytes product = {.x = bytes, .terms = terms, .count = l->lines, .whole = l->lines - 1, .x_step = l->padded,
                     .left = (l->size - (l->lines - 1) * RVM_BLOCK + QUAD - 1) / QUAD,
                     .weight_block = l->lines * LINE_WEIGHTS};
    for (int64_t i = 0; i < l->lines; i++) terms[i] = i * RVM_BLOCK;
    memset(cell, 0, (size_t)state * 4);
    memset(old, 0, (size_t)state * 4);
    rvm_copy_rows((const float *)b[FIRST_H].data + d * kept, l->size, old, l->padded, l->batch, l->size);
    rvm_copy_rows((const float *)b[FIRST_C].data + d * kept, l->size, cell, l->padded, l->batch, l->size);
    for (int64_t i = 0; i < l->steps; i++) {
        int64_t at = l->direction == REVERSE || d == 1 ? l->steps - 1 - i : i;
        const float *given = (const float *)b[GIVEN].data + at * l->batch * outputs;
        Finish f = quantize_states(l, old, bytes, row_sums);
        for (int64_t first = 0; first < l->batch; first += MOST_ROWS) {
            int rows = l->batch - first < MOST_ROWS ? (int)(l->batch - first) : MOST_ROWS;
            for (int64_t block = 0; block < l->blocks; block++) {
                float gates[MOST_ROWS * LSTM_GATES * RVM_BLOCK];
                int64_t here = first * l->padded + block * RVM_BLOCK;
                gates_of(l, &product, first, rows, d * l->blocks + block, &f, row_sums, given, gates);
                rvm_lstm_update(rows, gates, cell + here, new + here, l->padded);
            }
            if (rvm_must_stop(call, rows * l->padded * LSTM_GATES * (l->size / 4 + 256))) return RVM_FAILED;
        }
        rvm_copy_rows(new, l->padded, (float *)b[STATES].data + (at * l->directions + d) * kept, l->size, l->batch,
                      l->size);
        float *last = old;
        old = new;
        new = last;
    }
    rvm_copy_rows(old, l->padded, (float *)b[LAST_H].data + d * kept, l->size, l->batch, l->size);
    rvm_copy_rows(cell, l->padded, (float *)b[LAST_C].data + d * kept, l->size, l->batch, l->size);
    return RVM_OK;
}

static int lstm_with(const RvmKernelCall *call, const Tiles *tiles) {
    Lstm l;
    char *workspace = call->workspace;
    if (!get_lstm(call, &l)) return RVM_ASK_REFERENCE;
    l.tiles = tiles;
    l.workspace = rvm_take(&workspace, 0);
    return rvm_run_grid(call, &l.grid, run_lstm, &l);
}

static int lstm(const RvmKernelCall *call) { return lstm_with(call, &plain_tiles); }

#ifdef HAS_VNNI
static int vnni_lstm(const RvmKernelCall *call) {
    return has_vnni() ? lstm_with(call, &vnni_tiles) : RVM_ASK_REFERENCE;
}
#endif

/* ---- the table ----------------------------------------------------------------------------------- */
#define OPERANDS                                                                                \
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),     \
        RVM_FIELD(INT, IntegerParams, shift)
#define AFTERWARDS                                                                              \
    RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(TENSOR_OR_NONE),         \
        RVM_FIELD_OF(rvm_functions, CHOICE_OR_NONE, IntegerParams, function),                   \
        RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(OUT)

static const RvmArgument linear_arguments[] = {OPERANDS, AFTERWARDS};
static const RvmArgument conv_arguments[] = {OPERANDS, RVM_FIELD(INTS, IntegerParams, strides),
                                             RVM_FIELD(INTS, IntegerParams, padding),
                                             RVM_FIELD(INTS, IntegerParams, dilation), AFTERWARDS};
static const RvmArgument quantize_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
                                                 RVM_BUFFER(TENSOR_OR_NONE), RVM_BUFFER(OUT)};
static const RvmArgument range_arguments[] = {RVM_BUFFER(TENSOR), RVM_FIELD(INT_OR_NONE, RangeParams, channels),
                                              RVM_BUFFER(OUTS)};

static const RvmArgument lstm_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_FIELD(INT, LstmParams, shift),
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR),
    RVM_FIELD_OF(rvm_directions, CHOICE, LstmParams, direction), RVM_BUFFER(OUTS)};

#define OF_BYTES (RVM_DTYPE_BIT(RVM_DTYPE_U8) | RVM_DTYPE_BIT(RVM_DTYPE_I8))
#define PRODUCT(method, of, memory, kinds)                                                      \
    {.name = "integers." #method, .kernel = "nn." of, .run = method, .workspace = memory,       \
     RVM_ARGUMENTS(kinds),                                                                      \
     .dtypes = OF_BYTES | RVM_DTYPE_BIT(RVM_DTYPE_I32) | RVM_DTYPE_BIT(RVM_DTYPE_F32),          \
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP}

#define LSTM(method)                                                                            \
    {.name = "integers." #method, .kernel = "nn.integer_lstm_blocks", .run = method,            \
     .workspace = lstm_workspace, RVM_ARGUMENTS(lstm_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), \
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1, .ulp = RVM_SUM_ULP}

const RvmImplementation RVM_NAME(rvm_integers)[] = {
#ifdef HAS_AMX
    PRODUCT(amx_linear, "integer_linear_blocks", linear_workspace, linear_arguments),
    PRODUCT(amx_conv2d, "integer_conv2d_blocks", gathered_workspace, conv_arguments),
#endif
#ifdef HAS_VNNI
    LSTM(vnni_lstm),
    PRODUCT(vnni_linear, "integer_linear_blocks", linear_workspace, linear_arguments),
    PRODUCT(vnni_conv2d, "integer_conv2d_blocks", conv_workspace, conv_arguments),
    PRODUCT(vnni_depthwise, "integer_conv2d_blocks", slid_workspace, conv_arguments),
#endif
    LSTM(lstm),
    PRODUCT(linear, "integer_linear_blocks", linear_workspace, linear_arguments),
    PRODUCT(conv2d, "integer_conv2d_blocks", conv_workspace, conv_arguments),
    PRODUCT(depthwise, "integer_conv2d_blocks", depthwise_workspace, conv_arguments),
    {.name = "integers.quantize", .kernel = "quantize_bytes", .run = quantize, RVM_ARGUMENTS(quantize_arguments),
     .dtypes = OF_BYTES, .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1},
    {.name = "integers.range", .kernel = "quantization_range", .run = range, .workspace = range_workspace,
     RVM_ARGUMENTS(range_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_U8) | RVM_DTYPE_BIT(RVM_DTYPE_F32),
     .most_bytes = RVM_ANY_RESULT, .is_unlocked = 1},
    {.name = NULL},
};
