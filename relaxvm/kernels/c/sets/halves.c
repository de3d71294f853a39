/* Conversions between float16 and float32, which are exact, or rounded to the nearest even number, with numpy's
 * bits, those of NaNs included.  Where a finite number becomes infinite, numpy does it again, and warns.
 */
#include "blocks.h"
#include "../pieces.h"

typedef struct {
    const char *x;
    char *out;
    int is_beyond; /* a finite number has become infinite */
    RvmGrid grid;
} Halves;

#define CHUNK 16384 /* elements between questions whether to stop */

typedef union {
    uint32_t bits;
    float value;
} Single;

/* float16 has 5 bits of exponent and 10 of fraction. */
static inline float single_of(uint16_t half) {
    const uint32_t infinite = 0x7c00u << 13, least = 113u << 23; /* the least normal number, 2^-14 */
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, bits = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t exponent = bits & infinite;
    Single zero = {.bits = least}, small = {.bits = bits + least}, found;
    small.value -= zero.value; /* the fraction without the 1 in front of it */
    found.bits = exponent == 0 ? small.bits : bits + ((127u - 15u) << 23);
    found.bits += exponent == infinite ? (128u - 16u) << 23 : 0;
    found.bits |= sign;
    return found.value;
}

static inline uint16_t half_of(float value, int32_t *is_beyond) {
    const int32_t infinite = 0x7f800000, most = (127 + 16) << 23, least = 113 << 23;
    const Single half = {.bits = ((127u - 15u) + (23u - 10u) + 1u) << 23};
    Single x = {.value = value}, small;
    int32_t sign = (int32_t)(x.bits >> 16) & 0x8000, bits = (int32_t)(x.bits & 0x7fffffffu);
    x.bits = (uint32_t)bits;
    small.value = x.value + half.value; /* rounds where the least bit of float16 is */
    int32_t tiny = (int32_t)(small.bits - half.bits);
    int32_t normal = (bits - ((127 - 15) << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    int32_t other = bits > infinite ? 0x7c00 | (bits >> 13 & 0x3ff) | ((bits & 0x7fe000) == 0) : 0x7c00;
    int32_t found = bits < least ? tiny : bits >= most ? other : normal;
    *is_beyond |= (found == 0x7c00) & (bits != infinite);
    return (uint16_t)(found | sign);
}

static void to_single(const uint16_t *x, float *out, int64_t count) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(x + i));
        /* NaNs keep all bits, as in numpy, by the way of single numbers: the processor sets one. */
        __m128i exponent = _mm_set1_epi16(0x7c00);
        __m128i is_special = _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent);
        if (_mm_movemask_epi8(is_special)) {
            for (int64_t k = i; k < i + 8; k++) out[k] = single_of(x[k]);
            continue;
        }
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < count; i++) out[i] = single_of(x[i]);
}

static int to_half(const float *x, uint16_t *out, int64_t count) {
    int64_t i = 0;
    int32_t is_beyond = 0;
#ifdef __F16C__
    const __m128i exponent = _mm_set1_epi16(0x7c00);
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        __m128i is_special = _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent);
        if (_mm_movemask_epi8(is_special)) {
            for (int64_t k = i; k < i + 8; k++) out[k] = half_of(x[k], &is_beyond);
            continue;
        }
        _mm_storeu_si128((__m128i *)(out + i), halves);
    }
#endif
    for (; i < count; i++) out[i] = half_of(x[i], &is_beyond);
    return is_beyond;
}

static int convert(const RvmKernelCall *call, Halves *work, int64_t piece, int is_halved) {
    RvmPart part = rvm_part(&work->grid, piece);
    for (int64_t i = part.outer; i < part.outer_end;) {
        int64_t count = part.outer_end - i < CHUNK ? part.outer_end - i : CHUNK;
        if (!is_halved)
            to_single((const uint16_t *)work->x + i, (float *)work->out + i, count);
        else if (to_half((const float *)work->x + i, (uint16_t *)work->out + i, count))
            __atomic_store_n(&work->is_beyond, 1, __ATOMIC_RELAXED);
        i += count;
        if (rvm_must_stop(call, count)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int widen(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    (void)thread;
    return convert(call, (Halves *)work, piece, 0);
}

static int halve(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    (void)thread;
    return convert(call, (Halves *)work, piece, 1);
}

static int cast(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int is_halved = x->dtype == RVM_DTYPE_F32 && out->dtype == RVM_DTYPE_F16;
    if (!(is_halved || (x->dtype == RVM_DTYPE_F16 && out->dtype == RVM_DTYPE_F32)) ||
        !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_same_shape(x, out) ||
        !rvm_no_overlap(x, out))
        return RVM_ASK_REFERENCE;
    int64_t length = rvm_length(x);
    Halves work = {x->data, out->data, 0, rvm_divide(call, rvm_time_for(0, 6 * length), length, 1)};
    int status = rvm_run_grid(call, &work.grid, is_halved ? halve : widen, &work);
    return status == RVM_OK && work.is_beyond ? RVM_ASK_REFERENCE : status;
}

static const RvmArgument cast_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};

const RvmImplementation RVM_NAME(rvm_halves)[] = {
    {.name = "halves.cast", .kernel = "cast", .run = cast, RVM_ARGUMENTS(cast_arguments),
     .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F16) | RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT,
     .is_unlocked = 1},
    {.name = NULL},
};
