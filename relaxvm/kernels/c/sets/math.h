/* Functions of vectors of floats.
 *
 * Each is a reduction of the range, a polynomial or a quotient of two, and a reconstruction, without
 * branches.  Coefficients are fits to the least relative error, by least squares with Lawson's
 * weights.  Bounds in units in the last place are of all finite floats, with fused multiply-add; tests
 * measure them.  NaN stays NaN, infinities give the limits.
 */
#ifndef RELAXVM_KERNELS_MATH_H
#define RELAXVM_KERNELS_MATH_H

#include "vector.h"

/* e to the power of x, of which the result is neither infinite nor 0.
 * x = n * ln 2 + r with |r| <= ln 2 / 2, and e^r = 1 + r + r^2 * p(r). */
static inline vf rvm_exp_within(vf x) {
    const vf to_integer = rvm_all(0x1.8p23f); /* added and subtracted: rounds to an integer */
    vf n = rvm_fma(x, rvm_all(0x1.715476p+0f), to_integer) - to_integer;
    vf r = rvm_fma(n, rvm_all(-0x1.62e400p-1f), x); /* ln 2 in two parts; the first product is exact */
    r = rvm_fma(n, rvm_all(-0x1.7f7d1cp-20f), r);
    vf p = rvm_all(0x1.6a1a72p-10f);
    p = rvm_fma(p, r, rvm_all(0x1.123fc6p-7f));
    p = rvm_fma(p, r, rvm_all(0x1.555916p-5f));
    p = rvm_fma(p, r, rvm_all(0x1.55548ap-3f));
    p = rvm_fma(p, r, rvm_all(0x1.fffffcp-2f));
    return rvm_scale(rvm_fma(p, r * r, r) + rvm_all(1.0f), n);
}

/* e to the power of x: 2 ulp, also where the result is subnormal. */
static inline vf rvm_exp(vf x) {
    /* Beyond, the result is infinite or 0. */
    return rvm_exp_within(rvm_at_most(rvm_all(89.0f), rvm_at_least(rvm_all(-104.0f), x)));
}

/* e to the power of a score less the greatest one, so of a number up to 0: 2 ulp, and 0 where that is below 2^-126.
 * The processor takes a hundred times as long for results that are subnormal, or that become 0, as masked scores do. */
static inline vf rvm_weight(vf x) {
    const vf least = rvm_all(-87.3f);
    return (vf)((vi)rvm_exp_within(rvm_at_least(least, x)) & ~(x < least));
}

/* 1 / (1 + e^-x): 3 ulp; results below 2^-127 are 0, since e^-x is infinite. */
static inline vf rvm_sigmoid(vf x) { return rvm_all(1.0f) / (rvm_all(1.0f) + rvm_exp(-x)); }

/* The hyperbolic tangent of x, an odd quotient: 7 ulp. */
static inline vf rvm_tanh(vf x) {
    vf one = rvm_all(1.0f), most = rvm_all(9.02f); /* beyond, the result is 1 */
    x = rvm_at_most(most, rvm_at_least(-most, x));
    vf s = x * x;
    vf p = rvm_all(0x1.c9a3c4p-27f);
    p = rvm_fma(p, s, rvm_all(0x1.59555ep-16f));
    p = rvm_fma(p, s, rvm_all(0x1.c9f856p-9f));
    p = rvm_fma(p, s, rvm_all(0x1.120444p-3f));
    p = rvm_fma(p, s, one);
    vf q = rvm_all(0x1.a0b85cp-21f);
    q = rvm_fma(q, s, rvm_all(0x1.5841d8p-12f));
    q = rvm_fma(q, s, rvm_all(0x1.a7df24p-6f));
    q = rvm_fma(q, s, rvm_all(0x1.de576ap-2f));
    q = rvm_fma(q, s, one);
    return rvm_at_most(one, rvm_at_least(-one, x * p / q));
}

/* The error function of x, an odd quotient: 7 ulp. */
static inline vf rvm_erf(vf x) {
    vf one = rvm_all(1.0f), most = rvm_all(3.92f); /* beyond, the result is 1 */
    x = rvm_at_most(most, rvm_at_least(-most, x));
    vf s = x * x;
    vf p = rvm_all(0x1.132862p-19f);
    p = rvm_fma(p, s, rvm_all(0x1.2ab8eep-12f));
    p = rvm_fma(p, s, rvm_all(0x1.ed925ep-9f));
    p = rvm_fma(p, s, rvm_all(0x1.b01e54p-5f));
    p = rvm_fma(p, s, rvm_all(0x1.85f440p-3f));
    p = rvm_fma(p, s, rvm_all(0x1.20dd74p+0f));
    vf q = rvm_all(0x1.3f8968p-15f);
    q = rvm_fma(q, s, rvm_all(0x1.30c112p-10f));
    q = rvm_fma(q, s, rvm_all(0x1.ea8380p-7f));
    q = rvm_fma(q, s, rvm_all(0x1.d3646ep-4f));
    q = rvm_fma(q, s, rvm_all(0x1.011036p-1f));
    q = rvm_fma(q, s, one);
    return rvm_at_most(one, rvm_at_least(-one, x * p / q));
}

/* x * (1 + erf(x / sqrt 2)) / 2: within 3e-7 * |x|. */
static inline vf rvm_gelu(vf x) {
    vf half = x * rvm_all(0.5f);
    return rvm_fma(half, rvm_erf(x * rvm_all(0x1.6a09e6p-1f)), half);
}

/* x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2, by the equal sigmoid. */
static inline vf rvm_gelu_tanh(vf x) {
    vf u = rvm_fma(x * x * x, rvm_all(0.044715f), x);
    return x * rvm_sigmoid(u * rvm_all(0x1.988454p+0f));
}

static inline vf rvm_silu(vf x) { return x * rvm_sigmoid(x); }

/* The sum turns -0 into 0. */
static inline vf rvm_relu(vf x) { return rvm_at_least(rvm_all(0), x) + rvm_all(0); }

/* x * max(0, min(1, x / 6 + 1 / 2)) */
static inline vf rvm_hard_swish(vf x) {
    vf gate = rvm_fma(x, rvm_all(0x1.555556p-3f), rvm_all(0.5f));
    return x * rvm_at_most(rvm_all(1.0f), rvm_at_least(rvm_all(0), gate));
}

/* ---- functions that follow a sum ------------------------------------------------------------------ */
/* In the order of the names that callers pass. */
enum {
    RVM_RELU,
    RVM_GELU,
    RVM_GELU_TANH,
    RVM_SILU,
    RVM_SIGMOID,
    RVM_TANH,
    RVM_ERF,
    RVM_EXPONENTIAL,
    RVM_HARD_SWISH,
};

static const char *const rvm_functions[] = {"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "erf",
                                            "exp", "hard_swish", NULL};

/* The functions of rvm_functions, in place, of `count` floats, a multiple of RVM_LANES. */
static inline void rvm_apply(int64_t function, float *at, int64_t count) {
#define RVM_EACH(name, f) \
    case name:            \
        for (int64_t i = 0; i < count; i += RVM_LANES) rvm_store(at + i, f(rvm_load(at + i))); \
        break;
    switch (function) {
        RVM_EACH(RVM_RELU, rvm_relu)
        RVM_EACH(RVM_GELU, rvm_gelu)
        RVM_EACH(RVM_GELU_TANH, rvm_gelu_tanh)
        RVM_EACH(RVM_SILU, rvm_silu)
        RVM_EACH(RVM_SIGMOID, rvm_sigmoid)
        RVM_EACH(RVM_TANH, rvm_tanh)
        RVM_EACH(RVM_ERF, rvm_erf)
        RVM_EACH(RVM_EXPONENTIAL, rvm_exp)
        RVM_EACH(RVM_HARD_SWISH, rvm_hard_swish)
        default: break;
    }
#undef RVM_EACH
}

#endif
