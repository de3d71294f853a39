/* Vectors of floats: one source, compiled once for each set of instructions.
 *
 * The files of this folder are compiled once per set, with RVM_SET defined as its name and the compiler's
 * flags for it (see setup.py).  Arithmetic is written with the vector extensions of GCC and Clang; what
 * these lack is a function here.  All functions are static: a copy with external linkage that was compiled
 * for one set could replace those of the others.
 *
 * Sums have an order that the source fixes.  `rvm_fma` is one rounding, except in sets without fused
 * multiply-add (sse2), where it is two.  Other products and sums are not contracted.
 */
#ifndef RELAXVM_KERNELS_VECTOR_H
#define RELAXVM_KERNELS_VECTOR_H

#include <stdint.h>
#include <string.h>

#define RVM_PASTE_2(a, b) a##_##b
#define RVM_PASTE(a, b) RVM_PASTE_2(a, b)
/* The name of what other files use, in this set: gemm -> gemm_avx2. */
#define RVM_NAME(name) RVM_PASTE(name, RVM_SET)

#if defined(__AVX512F__)
#include <immintrin.h>
#define RVM_LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define RVM_LANES 8
#elif defined(__SSE2__)
#include <emmintrin.h>
#define RVM_LANES 4
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#define RVM_LANES 4
#else
#define RVM_LANES 4
#endif

typedef float vf __attribute__((vector_size(RVM_LANES * 4)));
typedef int32_t vi __attribute__((vector_size(RVM_LANES * 4)));

static inline vf rvm_load(const float *from) {
    vf v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void rvm_store(float *to, vf v) { memcpy(to, &v, sizeof v); }

/* A vector of one number.  (An addition to zeros would be a load and an addition, and lose the sign of
 * -0.) */
static inline vf rvm_all(float x) {
#if defined(__AVX512F__)
    return (vf)_mm512_set1_ps(x);
#elif defined(__AVX2__)
    return (vf)_mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}

/* a * b + c */
static inline vf rvm_fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON) && defined(__aarch64__)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* *sum += a * b, in the registers of tiles.  With 16 registers GCC would exchange the register of a sum and that of
 * a factor, and then keep sums on the stack. */
static inline __attribute__((always_inline)) void rvm_add_product(vf *sum, vf a, vf b) {
#if defined(__AVX2__) && !defined(__AVX512F__)
    __asm__("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(a), "x"(b));
#else
    *sum = rvm_fma(a, b, *sum);
#endif
}

/* Hide from the compiler how an address or integer was computed. */
#define RVM_IN_REGISTER(x) __asm__("" : "+r"(x))

/* The greater and the lesser one of a bound and x; x if it is NaN. */
static inline vf rvm_at_least(vf bound, vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)bound, (__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)bound, (__m256)x);
#elif defined(__SSE2__)
    return (vf)_mm_max_ps((__m128)bound, (__m128)x);
#else
    vi below = x < bound;
    return (vf)(((vi)bound & below) | ((vi)x & ~below));
#endif
}

static inline vf rvm_at_most(vf bound, vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)bound, (__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)bound, (__m256)x);
#elif defined(__SSE2__)
    return (vf)_mm_min_ps((__m128)bound, (__m128)x);
#else
    vi above = x > bound;
    return (vf)(((vi)bound & above) | ((vi)x & ~above));
#endif
}

/* The greater and the lesser one of two, the second of equal ones; NaN if either is NaN.  The instructions
 * take the second one where either is NaN. */
static inline vf rvm_greater(vf a, vf b) {
#if defined(__AVX512F__)
    __mmask16 first = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    return (vf)_mm512_mask_mov_ps(_mm512_max_ps((__m512)a, (__m512)b), first, (__m512)a);
#elif defined(__AVX2__)
    __m256 first = _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q);
    return (vf)_mm256_blendv_ps(_mm256_max_ps((__m256)a, (__m256)b), (__m256)a, first);
#else
    vi first = (a > b) | (a != a);
    return (vf)(((vi)a & first) | ((vi)b & ~first));
#endif
}

static inline vf rvm_lesser(vf a, vf b) {
#if defined(__AVX512F__)
    __mmask16 first = _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
    return (vf)_mm512_mask_mov_ps(_mm512_min_ps((__m512)a, (__m512)b), first, (__m512)a);
#elif defined(__AVX2__)
    __m256 first = _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q);
    return (vf)_mm256_blendv_ps(_mm256_min_ps((__m256)a, (__m256)b), (__m256)a, first);
#else
    vi first = (a < b) | (a != a);
    return (vf)(((vi)a & first) | ((vi)b & ~first));
#endif
}

static inline vf rvm_sqrt(vf x) {
#if defined(__AVX512F__)
    return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (vf)_mm_sqrt_ps((__m128)x);
#else
    for (int i = 0; i < RVM_LANES; i++) x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

/* x * 2^n, rounded once, for integers n from -252 to 254. */
static inline vf rvm_scale(vf x, vf n) {
#if defined(__AVX512F__)
    return (vf)_mm512_scalef_ps((__m512)x, (__m512)n);
#else
    /* The first factor leaves the sum of exponents in range, so only the second product rounds. */
    vi all = __builtin_convertvector(n, vi), half = all >> 1;
    return x * (vf)((half + 127) << 23) * (vf)((all - half + 127) << 23);
#endif
}

/* Sum and greatest element of a vector, by halves: the order is the same for every address. */
static inline float rvm_sum(vf v) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
    __m256 halves = _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
#else
    __m256 halves = (__m256)v;
#endif
    __m128 quarters = _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
    __m128 two = _mm_add_ps(quarters, _mm_movehl_ps(quarters, quarters));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    float lanes[RVM_LANES];
    rvm_store(lanes, v);
    for (int half = RVM_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
#endif
}

#define RVM_QUAD 4

/* to[i][j] = from[j][i] for four rows of four; steps in floats. */
static inline void rvm_transpose_quad(const float *from, int64_t from_step, float *to, int64_t to_step) {
#if defined(__SSE2__)
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + from_step),
           c = _mm_loadu_ps(from + 2 * from_step), d = _mm_loadu_ps(from + 3 * from_step);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a);
    _mm_storeu_ps(to + to_step, b);
    _mm_storeu_ps(to + 2 * to_step, c);
    _mm_storeu_ps(to + 3 * to_step, d);
#else
    for (int i = 0; i < RVM_QUAD; i++)
        for (int j = 0; j < RVM_QUAD; j++) to[i * to_step + j] = from[j * from_step + i];
#endif
}

#endif
