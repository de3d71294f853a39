/* What layers of long short-term memory have in common, whatever their products are of.
 *
 * The gates of 16 elements of a state are side by side, in the order input, output, forget, cell.
 */
#ifndef RELAXVM_KERNELS_RECURRENT_H
#define RELAXVM_KERNELS_RECURRENT_H

#include "blocks.h"

#define LSTM_GATES 4

static const char *const rvm_directions[] = {"forward", "reverse", "bidirectional", NULL};
enum { FORWARD, REVERSE, BIDIRECTIONAL };

/* The cells and states of `rows` examples, from the sums of their gates, [rows][4 gates][16]. */
static inline void rvm_lstm_update(int rows, const float *sums, float *cell, float *state, int64_t step) {
    for (int r = 0; r < rows; r++, sums += LSTM_GATES * RVM_BLOCK)
        for (int lane = 0; lane < RVM_BLOCK; lane += RVM_LANES) {
            vf let = rvm_sigmoid(rvm_load(sums + lane));
            vf shown = rvm_sigmoid(rvm_load(sums + RVM_BLOCK + lane));
            vf kept = rvm_sigmoid(rvm_load(sums + 2 * RVM_BLOCK + lane));
            vf candidate = rvm_tanh(rvm_load(sums + 3 * RVM_BLOCK + lane));
            vf new = rvm_fma(let, candidate, kept * rvm_load(cell + r * step + lane));
            rvm_store(cell + r * step + lane, new);
            rvm_store(state + r * step + lane, shown * rvm_tanh(new));
        }
}

static inline void rvm_copy_rows(const float *from, int64_t from_row, float *to, int64_t to_row, int64_t rows,
                      int64_t count) {
    for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_row, from + r * from_row, (size_t)count * 4);
}

#endif
