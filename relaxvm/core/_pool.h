/* Work in pieces on the threads of the process: what its users see.  `_pool_impl.h` says how it works. */
#ifndef RELAXVM_POOL_H
#define RELAXVM_POOL_H

#include <stdint.h>

#define RVM_MAX_THREADS 256
#define RVM_MAX_RANGES 16

typedef struct rvm_section rvm_section;

/* Work that some threads share.  A user's own struct begins with it. */
struct rvm_section {
    /* Do a piece.  `thread` tells those apart that are at it: the caller is 0, all are below the number of
     * threads.  Anything but 0 ends the section: no further piece begins, and pieces in progress may ask
     * rvm_is_over. */
    int (*run)(rvm_section *section, int64_t piece, int thread);
    int64_t pieces;
    /* Called by the caller's thread every few milliseconds while it waits for others; anything but 0 ends
     * the section.  May be NULL. */
    int (*look)(rvm_section *section);
    /* Whether its pieces take Python's lock, so that nobody who holds that may wait for them. */
    int takes_gil;
    /* Whether each thread begins with pieces of its own, as many as another's and one after the other; then it
     * helps the others.  Else all take the first piece that is left. */
    int has_ranges;

    /* The pool's own. */
    int64_t next[RVM_MAX_RANGES]; /* of each range, the piece that nobody has taken; atomic */
    int ranges;                   /* in which the pieces are; above 0 */
    int threads;   /* that may run pieces at once */
    int joined;    /* threads that have come, besides the caller; under the pool's mutex */
    int inside;    /* of these, how many have not left; written under the mutex, atomic */
    int failed;    /* atomic */
};

/* Whether no more pieces of it are wanted. */
static inline int rvm_is_over(const rvm_section *section) {
#if defined(__GNUC__) || defined(__clang__)
    return __atomic_load_n(&section->failed, __ATOMIC_RELAXED);
#else
    return section->failed;
#endif
}

#endif
