/* The floating-point status of the processor: what has happened since it was last cleared. */
#ifndef RELAXVM_KERNELS_FLOAT_STATUS_H
#define RELAXVM_KERNELS_FLOAT_STATUS_H

#include <fenv.h>

/* The bits of numpy: 1 division by zero, 2 overflow, 4 underflow, 8 invalid. */
static inline int rvm_float_status(void) {
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    unsigned int sse;
    unsigned short x87;
    __asm__ volatile("stmxcsr %0" : "=m"(sse));
    __asm__ volatile("fnstsw %0" : "=a"(x87));
    unsigned int bits = sse | x87;
    if (!(bits & 0x1d)) return 0;
    return (bits & 0x04 ? 1 : 0) | (bits & 0x08 ? 2 : 0) | (bits & 0x10 ? 4 : 0) |
           (bits & 0x01 ? 8 : 0);
#else
    int bits = fetestexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
    return (bits & FE_DIVBYZERO ? 1 : 0) | (bits & FE_OVERFLOW ? 2 : 0) |
           (bits & FE_UNDERFLOW ? 4 : 0) | (bits & FE_INVALID ? 8 : 0);
#endif
}

/* Clearing is slow and rarely needed; reading is fast. */
static inline void rvm_clear_float_status(void) {
    if (rvm_float_status()) feclearexcept(FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INVALID);
}

#endif
