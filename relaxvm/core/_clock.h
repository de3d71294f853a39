/* The clock of deadlines. */
#ifndef RELAXVM_CLOCK_H
#define RELAXVM_CLOCK_H

#include <stdint.h>

#if defined(_WIN32)
#include <windows.h>
static inline int64_t rvm_clock_ns(void) {
    static LARGE_INTEGER frequency;
    LARGE_INTEGER now;
    if (!frequency.QuadPart) QueryPerformanceFrequency(&frequency);
    QueryPerformanceCounter(&now);
    return (int64_t)((double)now.QuadPart * 1e9 / (double)frequency.QuadPart);
}
#else
#include <time.h>
static inline int64_t rvm_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#endif

#endif
