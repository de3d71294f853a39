/* The account of an allocator. */
#ifndef RELAXVM_ACCOUNT_H
#define RELAXVM_ACCOUNT_H

#include <stdint.h>

/* What an allocator counts, and the most that it may. */
typedef struct {
    int64_t max_live;
    int64_t max_alloc;
    int64_t live;    /* bytes of storages */
    int64_t arrays;  /* bytes of arrays that numpy got */
    int64_t peak;
    int64_t refused; /* bytes of the last array that was above a limit, or -1; and what was live */
    int64_t refused_live;
} rvm_account;

#endif
