/* The work of a call in pieces, for several threads.
 *
 * Each element of a result is computed in one piece, by operations whose order does not depend on how the
 * work is divided: results are the same bits for every number of threads.
 */
#ifndef RELAXVM_KERNELS_PIECES_H
#define RELAXVM_KERNELS_PIECES_H

#include "kernel_call.h"

/* Between pieces of work: whether the call has to stop, with an exception. */
static inline int rvm_must_stop(const RvmKernelCall *call, int64_t work) {
    *call->done += work;
    if (*call->done < (int64_t)1 << 28) return 0; /* some milliseconds */
    *call->done = 0;
    return call->must_stop(call);
}

/* Add bits to a number that other threads add to. */
static inline void rvm_add_bits(int *to, int bits) {
#if defined(__GNUC__) || defined(__clang__)
    __atomic_fetch_or(to, bits, __ATOMIC_RELAXED);
#else
    *to |= bits; /* there are no other threads */
#endif
}

/* Nanoseconds of work below which a call stays on its thread: another one begins a microsecond or two later where
 * it looks for work, and up to 40 us later where it sleeps. */
#define RVM_SMALLEST_SECTION 25000
#define RVM_SMALLEST_PIECE 6000
/* Where a thread is held up, others take its pieces. */
#define RVM_PIECES_PER_THREAD 4

/* About how long one thread takes for so many multiplications and bytes of memory. */
static inline int64_t rvm_time_for(int64_t products, int64_t bytes) { return products / 50 + bytes / 20; }

/* A grid of units of work, divided along both sides. */
typedef struct {
    int64_t outer, inner;             /* units */
    int64_t outer_parts, inner_parts; /* pieces */
    int threads;
} RvmGrid;

/* A piece of it: units from the first to before the last. */
typedef struct {
    int64_t outer, outer_end, inner, inner_end;
} RvmPart;

/* Divide work that takes so many nanoseconds: first along the outer side, and along the inner one if that
 * does not give enough pieces. */
static inline RvmGrid rvm_divide(const RvmKernelCall *call, int64_t nanoseconds, int64_t outer,
                                 int64_t inner) {
    RvmGrid grid = {outer, inner, 1, 1, 1};
    if (call->threads < 2 || nanoseconds < RVM_SMALLEST_SECTION) return grid;
    int64_t pieces = nanoseconds / RVM_SMALLEST_PIECE, all = call->threads * RVM_PIECES_PER_THREAD;
    if (pieces > all) pieces = all;
    grid.outer_parts = outer < pieces ? outer : pieces;
    pieces = (pieces + grid.outer_parts - 1) / grid.outer_parts;
    grid.inner_parts = inner < pieces ? inner : pieces;
    pieces = grid.outer_parts * grid.inner_parts;
    grid.threads = call->threads < pieces ? call->threads : (int)pieces;
    return grid;
}

/* Rows of images in blocks of channels: rows of all images along the outer side, in as many parts as there are
 * threads, and blocks along the inner one.  Each thread begins with pieces of its own, so kernels after each other
 * have the same rows done by the same thread, which finds them in its cache: what another one has written comes
 * slowly. */
static inline RvmGrid rvm_divide_rows(const RvmKernelCall *call, int64_t nanoseconds, int64_t rows,
                                      int64_t blocks) {
    RvmGrid grid = rvm_divide(call, nanoseconds, rows < call->threads ? rows : call->threads, blocks);
    grid.outer = rows;
    return grid;
}

static inline RvmPart rvm_part(const RvmGrid *grid, int64_t piece) {
    int64_t i = piece / grid->inner_parts, j = piece % grid->inner_parts;
    RvmPart part = {grid->outer * i / grid->outer_parts, grid->outer * (i + 1) / grid->outer_parts,
                    grid->inner * j / grid->inner_parts, grid->inner * (j + 1) / grid->inner_parts};
    return part;
}

/* Rows of one image. */
typedef struct {
    int64_t image, first, end;
} RvmRows;

/* The first image's rows of a part of rvm_divide_rows, which it is then without; 0: none is left. */
static inline int rvm_take_rows(RvmPart *part, int64_t rows, RvmRows *taken) {
    if (part->outer >= part->outer_end) return 0;
    taken->image = part->outer / rows;
    taken->first = part->outer % rows;
    int64_t left = part->outer_end - part->outer, room = rows - taken->first;
    taken->end = taken->first + (left < room ? left : room);
    part->outer += taken->end - taken->first;
    return 1;
}

/* Run the pieces of a grid.  The thread that calls does some of them, or all. */
static inline int rvm_run_grid(const RvmKernelCall *call, const RvmGrid *grid, RvmPiece piece, void *work) {
    int64_t pieces = grid->outer_parts * grid->inner_parts;
    if (grid->threads > 1) return call->run_pieces(call, piece, work, pieces, grid->threads);
    for (int64_t i = 0; i < pieces; i++)
        if (piece(call, work, i, 0) != RVM_OK) return RVM_FAILED;
    return RVM_OK;
}

#endif
