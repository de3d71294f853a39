/* The clock of deadlines, and variables of a thread. */
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
#define RVM_THREAD_LOCAL __declspec(thread)
#else
#include <time.h>
static inline int64_t rvm_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
#define RVM_THREAD_LOCAL __thread
#endif

/* What ends a run: its deadline, and its cancellation.  Watches are in memory from the heap: a program
 * may switch C stacks (greenlets) while others refer to them. */
typedef struct rvm_watch {
    int64_t deadline;             /* in ns of the clock; INT64_MAX if there is none */
    int64_t wall_ns;              /* the limit that it comes from */
    const int64_t *cancellations; /* of the machine */
    int64_t seen;                 /* how many there were when the run began */
    struct rvm_watch *outer;      /* that of the run of this thread that called this one */
    struct rvm_watch *inner;      /* the other way round */
    struct rvm_watch **innermost; /* the variable of the thread; looking it up takes some ns */
} rvm_watch;

#endif
