/* Copies of elements from one layout to another: all that moves elements without looking at them.
 *
 * A copy is a nest of loops, one for each axis, with the distance of neighbours along it in the source and in the
 * result.  Axes of length 1 are left out, those that follow each other in both are joined, and the axis along which
 * the result's elements are closest becomes the last one.  The two last axes are a plane, of one of these kinds:
 *
 *   RUNS     rows that follow each other in both: `memcpy`;
 *   FILLS    rows of one element;
 *   TILES    the source's elements follow each other along the first axis of the plane, the result's along the
 *            second: a transpose.  It is done in squares as wide as a line of the cache, so that a line is read and
 *            written once.  A square is made of smaller ones, of vectors of 16 bytes that are interleaved log2(n)
 *            times: see J. O. Eklundh, "A fast computer method for matrix transposing", 1972;
 *   STRIDED  everything else, element by element.
 *
 * Runs of 2, 4, 8 and 16 bytes count as elements of that size.  Planes are divided into units of some 32 KiB, which
 * threads share.
 */
#ifndef RELAXVM_KERNELS_COPIES_H
#define RELAXVM_KERNELS_COPIES_H

#include "buffers.h"
#include "pieces.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#endif

#define RVM_COPY_DIMS (RVM_MAX_DIMS + 1) /* with the axis that `stack` makes, or one of length 1 */
#define RVM_UNIT_BYTES 32768
#define RVM_LINE_BYTES 64

enum { RVM_RUNS, RVM_FILLS, RVM_TILES, RVM_STRIDED };

typedef struct {
    char *to;
    const char *from;
    int64_t dims[RVM_COPY_DIMS], t[RVM_COPY_DIMS], f[RVM_COPY_DIMS]; /* steps in the result and in the source */
    int n, kind;
    int64_t item;
    int64_t rows, columns;             /* of a plane that are in a unit */
    int64_t row_parts, column_parts;   /* units of a plane */
    int64_t units, unit_bytes;         /* of all planes */
} RvmCopy;

/* ---- arrangement --------------------------------------------------------------------------------- */
static inline void rvm_swap_axes(RvmCopy *c, int i, int j) {
    int64_t d = c->dims[i], t = c->t[i], f = c->f[i];
    c->dims[i] = c->dims[j], c->t[i] = c->t[j], c->f[i] = c->f[j];
    c->dims[j] = d, c->t[j] = t, c->f[j] = f;
}

/* The axes longer than 1, by the distance of the result's elements, of which none may be at two places; those that
 * can be are joined. */
static inline int rvm_join_axes(RvmCopy *c, const int64_t *to_strides, const int64_t *from_strides, const int64_t *dims,
                                int ndim) {
    int n = 0;
    for (int i = 0; i < ndim; i++) {
        RVM_FEW_TURNS;
        if (dims[i] == 1) continue;
        c->dims[n] = dims[i];
        c->t[n] = to_strides[i];
        c->f[n] = from_strides[i];
        if (to_strides[i] < 0) {
            c->to += (dims[i] - 1) * to_strides[i];
            c->from += (dims[i] - 1) * from_strides[i];
            c->t[n] = -to_strides[i];
            c->f[n] = -from_strides[i];
        }
        for (int k = n++; k > 0 && c->t[k - 1] < c->t[k]; k--) rvm_swap_axes(c, k - 1, k);
    }
    int64_t span = c->item;
    for (int i = n - 1; i >= 0; i--) {
        RVM_FEW_TURNS;
        if (c->t[i] < span) return 0;
        span += (c->dims[i] - 1) * c->t[i];
    }
    int joined = 0;
    for (int i = 0; i < n; i++) {
        RVM_FEW_TURNS;
        int64_t d = c->dims[i];
        if (joined > 0 && c->t[joined - 1] == d * c->t[i] && c->f[joined - 1] == d * c->f[i])
            d *= c->dims[--joined];
        c->dims[joined] = d;
        c->t[joined] = c->t[i];
        c->f[joined++] = c->f[i];
    }
    c->n = joined;
    return 1;
}

/* The kind of planes, whose axes become the last ones. */
static inline void rvm_choose_plane(RvmCopy *c) {
    int last = c->n - 1, other = last - 1;
    int64_t item = c->item;
    if (c->t[last] == item && c->f[last] == item) {
        int64_t run = c->dims[last] * item;
        if (last == 0 || run > 16 || (run & (run - 1))) {
            c->kind = RVM_RUNS;
            return;
        }
        c->item = item = run;
        c->n = last--;
        other = last - 1;
    }
    if (c->t[last] == item && c->f[last] == 0) {
        c->kind = RVM_FILLS;
        return;
    }
    c->kind = RVM_STRIDED;
    for (int i = 0; i < last; i++)
        if (c->f[i] == item) other = i;
    if (other < 0) return;
    for (int i = other; i < last - 1; i++) rvm_swap_axes(c, i, i + 1);
    if (c->f[last - 1] == item && c->t[last] == item && c->dims[last] > 3 && c->dims[last - 1] > 3)
        c->kind = RVM_TILES;
    else if (c->dims[last] < 8 && c->dims[last] < c->dims[last - 1])
        rvm_swap_axes(c, last - 1, last); /* the inner loop is the longer one */
}

/* Prepare a copy of elements axis by axis; 0 where several places of the result are in the same memory. */
static inline int rvm_arrange_copy(RvmCopy *c, char *to, const int64_t *to_strides, const char *from,
                                   const int64_t *from_strides, const int64_t *dims, int ndim, int64_t item) {
    c->to = to;
    c->from = from;
    c->item = item;
    c->units = 0;
    c->unit_bytes = 0;
    for (int i = 0; i < ndim; i++)
        if (dims[i] == 0) return 1;
    if (!rvm_join_axes(c, to_strides, from_strides, dims, ndim)) return 0;
    if (c->n == 0) {
        c->dims[0] = 1;
        c->t[0] = c->f[0] = item;
        c->n = 1;
    }
    rvm_choose_plane(c);
    if (c->n == 1) { /* one row */
        c->n = 2;
        c->dims[1] = c->dims[0], c->t[1] = c->t[0], c->f[1] = c->f[0];
        c->dims[0] = 1, c->t[0] = c->f[0] = 0;
    }
    int64_t rows = c->dims[c->n - 2], columns = c->dims[c->n - 1], most = RVM_UNIT_BYTES / c->item;
    if (c->kind == RVM_TILES && c->item == 16) most *= 2;
    c->columns = c->kind != RVM_TILES ? most : c->item < 16 ? RVM_LINE_BYTES : 4 * RVM_LINE_BYTES; /* as measured */
    if (c->kind == RVM_STRIDED) { /* what is near in the source or in the result is copied soon after each other */
        int64_t step = c->t[c->n - 1] > c->f[c->n - 1] ? c->t[c->n - 1] : c->f[c->n - 1];
        if (rows <= 8) c->columns /= rows;
        if (c->n > 2 && c->columns > 4 * RVM_UNIT_BYTES / step) c->columns = 4 * RVM_UNIT_BYTES / step;
        if (c->columns < RVM_LINE_BYTES) c->columns = RVM_LINE_BYTES;
    }
    if (c->columns > columns || c->columns < 1) c->columns = columns;
    c->rows = most / c->columns;
    if (c->kind == RVM_TILES) c->rows -= c->rows % (RVM_LINE_BYTES / c->item);
    if (c->rows < 1) c->rows = 1;
    if (c->rows > rows) c->rows = rows;
    c->row_parts = (rows + c->rows - 1) / c->rows;
    c->column_parts = (columns + c->columns - 1) / c->columns;
    c->units = rvm_product(c->dims, 0, c->n - 2) * c->row_parts * c->column_parts;
    c->unit_bytes = c->rows * c->columns * c->item;
    return 1;
}

/* ---- transposes ---------------------------------------------------------------------------------- */
/* A square of elements whose rows are vectors of 16 bytes: turn by turn, each row is interleaved with the one half a
 * square further on. */
#define RVM_SQUARE(bits, vector, load, store, low, high)                                        \
    static inline void rvm_square_##bits(char *to, int64_t t, const char *from, int64_t f) {    \
        enum { SIDE = 128 / bits };                                                             \
        vector rows[SIDE], other[SIDE];                                                         \
        for (int i = 0; i < SIDE; i++) rows[i] = load(from + i * f);                            \
        for (int turn = 1; turn < SIDE; turn *= 2) {                                            \
            for (int i = 0; i < SIDE / 2; i++) {                                                \
                other[2 * i] = low(rows[i], rows[i + SIDE / 2]);                                \
                other[2 * i + 1] = high(rows[i], rows[i + SIDE / 2]);                           \
            }                                                                                   \
            memcpy(rows, other, sizeof rows);                                                   \
        }                                                                                       \
        for (int i = 0; i < SIDE; i++) store(to + i * t, rows[i]);                              \
    }

#if defined(__SSE2__) || defined(_M_X64)
static inline __m128i rvm_load_16(const char *from) { return _mm_loadu_si128((const __m128i *)(const void *)from); }
static inline void rvm_store_16(char *to, __m128i v) { _mm_storeu_si128((__m128i *)(void *)to, v); }
RVM_SQUARE(8, __m128i, rvm_load_16, rvm_store_16, _mm_unpacklo_epi8, _mm_unpackhi_epi8)
RVM_SQUARE(16, __m128i, rvm_load_16, rvm_store_16, _mm_unpacklo_epi16, _mm_unpackhi_epi16)
RVM_SQUARE(32, __m128i, rvm_load_16, rvm_store_16, _mm_unpacklo_epi32, _mm_unpackhi_epi32)
RVM_SQUARE(64, __m128i, rvm_load_16, rvm_store_16, _mm_unpacklo_epi64, _mm_unpackhi_epi64)
#define RVM_HAS_SQUARES 1
#elif defined(__ARM_NEON) && defined(__aarch64__)
static inline uint8x16_t rvm_load_16(const char *from) { return vld1q_u8((const uint8_t *)from); }
static inline void rvm_store_16(char *to, uint8x16_t v) { vst1q_u8((uint8_t *)to, v); }
#define RVM_ZIP(which, bits)                                                                                       \
    static inline uint8x16_t rvm_##which##_##bits(uint8x16_t a, uint8x16_t b) {                                    \
        return vreinterpretq_u8_u##bits(which##q_u##bits(vreinterpretq_u##bits##_u8(a), vreinterpretq_u##bits##_u8(b))); \
    }
#define vreinterpretq_u8_u8(v) (v)
RVM_ZIP(vzip1, 8) RVM_ZIP(vzip2, 8) RVM_ZIP(vzip1, 16) RVM_ZIP(vzip2, 16)
RVM_ZIP(vzip1, 32) RVM_ZIP(vzip2, 32) RVM_ZIP(vzip1, 64) RVM_ZIP(vzip2, 64)
RVM_SQUARE(8, uint8x16_t, rvm_load_16, rvm_store_16, rvm_vzip1_8, rvm_vzip2_8)
RVM_SQUARE(16, uint8x16_t, rvm_load_16, rvm_store_16, rvm_vzip1_16, rvm_vzip2_16)
RVM_SQUARE(32, uint8x16_t, rvm_load_16, rvm_store_16, rvm_vzip1_32, rvm_vzip2_32)
RVM_SQUARE(64, uint8x16_t, rvm_load_16, rvm_store_16, rvm_vzip1_64, rvm_vzip2_64)
#define RVM_HAS_SQUARES 1
#else
#define RVM_HAS_SQUARES 0
#endif

#if defined(__GNUC__) || defined(__clang__)
#define RVM_INLINED inline __attribute__((always_inline))
#define RVM_UNROLLED _Pragma("GCC unroll 4")
#else
#define RVM_INLINED __forceinline
#define RVM_UNROLLED
#endif

/* to[i][j] = from[j][i], element by element */
static RVM_INLINED void rvm_turn_elements(char *to, int64_t t, const char *from, int64_t f, int64_t rows, int64_t columns,
                                        const int item) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) memcpy(to + i * t + j * item, from + j * f + i * item, (size_t)item);
}

/* The same of at most a line of elements on each side. */
static RVM_INLINED void rvm_turn_square(char *to, int64_t t, const char *from, int64_t f, int64_t rows, int64_t columns,
                                      const int item) {
#if RVM_HAS_SQUARES
    const int64_t side = 16 / item;
    const int64_t whole_rows = rows / side * side, whole_columns = columns / side * side;
    for (int64_t j = 0; j < whole_columns; j += side) {
        for (int64_t i = 0; i < whole_rows; i += side) {
            const char *x = from + j * f + i * item;
            char *y = to + i * t + j * item;
            if (item == 1) rvm_square_8(y, t, x, f);
            else if (item == 2) rvm_square_16(y, t, x, f);
            else if (item == 4) rvm_square_32(y, t, x, f);
            else if (item == 8) rvm_square_64(y, t, x, f);
            else memcpy(y, x, 16);
        }
    }
    rvm_turn_elements(to + whole_columns * item, t, from + whole_columns * f, f, whole_rows, columns - whole_columns, item);
    rvm_turn_elements(to + whole_rows * t, t, from + whole_rows * item, f, rows - whole_rows, columns, item);
#else
    rvm_turn_elements(to, t, from, f, rows, columns, item);
#endif
}

/* A transpose, square by square.  Where the rows of a square are so far apart, by a power of two, that they have no room
 * in the cache together, it is put together elsewhere, and its lines are written whole. */
static RVM_INLINED void rvm_turn(char *to, int64_t t, const char *from, int64_t f, int64_t rows, int64_t columns,
                               const int item) {
    const int64_t side = RVM_LINE_BYTES / item;
    char square[RVM_LINE_BYTES * RVM_LINE_BYTES];
    for (int64_t i = 0; i < rows; i += side) {
        int64_t height = rows - i < side ? rows - i : side;
        for (int64_t j = 0; j < columns; j += side) {
            int64_t width = columns - j < side ? columns - j : side;
            const char *x = from + j * f + i * item;
            char *y = to + i * t + j * item;
            if (height == side && width == side && t % (512 * item) == 0) {
                rvm_turn_square(square, RVM_LINE_BYTES, x, f, side, side, item);
                for (int64_t k = 0; k < side; k++) memcpy(y + k * t, square + k * RVM_LINE_BYTES, RVM_LINE_BYTES);
            } else {
                rvm_turn_square(y, t, x, f, height, width, item);
            }
        }
    }
}

/* ---- units --------------------------------------------------------------------------------------- */
/* Rows of elements.  For compilers, steps that are constants are vectors to shuffle. */
#define RVM_COPY_ROW(to_step, from_step) \
    RVM_UNROLLED for (int64_t j = 0; j < columns; j++) memcpy(to + j * (to_step), from + j * (from_step), (size_t)item)
static RVM_INLINED void rvm_copy_row(char *restrict to, int64_t t, const char *restrict from, int64_t f, int64_t columns,
                                     const int item) {
    if (t == item && f == -item) RVM_COPY_ROW(item, -item);
    else if (t == item && f == 2 * item) RVM_COPY_ROW(item, 2 * item);
    else RVM_COPY_ROW(t, f);
}

/* Three rows whose elements are next to each other in the source: colours of pixels. */
static RVM_INLINED void rvm_copy_thirds(char *restrict to, char *restrict second, char *restrict third,
                                        const char *restrict from, int64_t columns, const int item) {
    for (int64_t j = 0; j < columns; j++) {
        memcpy(to + j * item, from + 3 * j * item, (size_t)item);
        memcpy(second + j * item, from + (3 * j + 1) * item, (size_t)item);
        memcpy(third + j * item, from + (3 * j + 2) * item, (size_t)item);
    }
}

static RVM_INLINED void rvm_copy_elements(char *to, int64_t t, int64_t t_step, const char *from, int64_t f, int64_t f_step,
                                          int64_t rows, int64_t columns, const int item) {
    if (rows == 3 && f == item && f_step == 3 * item && t_step == item)
        rvm_copy_thirds(to, to + t, to + 2 * t, from, columns, item);
    else
        for (int64_t i = 0; i < rows; i++)
            rvm_copy_row(to + i * t, t_step, from + i * f, f_step, columns, item);
}

static RVM_INLINED void rvm_fill_with(char *to, int64_t count, const char *element, const int item) {
    char one[16];
    memcpy(one, element, (size_t)item);
    if (item == 1) memset(to, one[0], (size_t)count);
    else for (int64_t j = 0; j < count; j++) memcpy(to + j * item, one, (size_t)item);
}

/* Bytes = an element, again and again. */
static inline void rvm_fill(char *to, int64_t bytes, const char *element, int64_t item) {
    switch (item) {
        case 1: rvm_fill_with(to, bytes, element, 1); return;
        case 2: rvm_fill_with(to, bytes / 2, element, 2); return;
        case 4: rvm_fill_with(to, bytes / 4, element, 4); return;
        case 8: rvm_fill_with(to, bytes / 8, element, 8); return;
        case 16: rvm_fill_with(to, bytes / 16, element, 16); return;
        default:
            for (int64_t at = 0; at < bytes; at += item) memcpy(to + at, element, (size_t)item);
    }
}

static RVM_INLINED void rvm_fill_rows(char *to, int64_t t, const char *from, int64_t f, int64_t rows, int64_t columns,
                                    const int item) {
    for (int64_t i = 0; i < rows; i++) rvm_fill_with(to + i * t, columns, from + i * f, item);
}

static RVM_INLINED void rvm_copy_plane_of(const RvmCopy *c, char *to, const char *from, int64_t rows, int64_t columns,
                                        const int item) {
    int last = c->n - 1;
    int64_t t = c->t[last - 1], f = c->f[last - 1];
    if (c->kind == RVM_TILES) rvm_turn(to, t, from, c->f[last], rows, columns, item);
    else if (c->kind == RVM_FILLS) rvm_fill_rows(to, t, from, f, rows, columns, item);
    else rvm_copy_elements(to, t, c->t[last], from, f, c->f[last], rows, columns, item);
}

static void rvm_copy_plane(const RvmCopy *c, char *to, const char *from, int64_t rows, int64_t columns) {
    int last = c->n - 1;
    if (c->kind == RVM_RUNS) {
        size_t run = (size_t)(columns * c->item);
        for (int64_t i = 0; i < rows; i++) memcpy(to + i * c->t[last - 1], from + i * c->f[last - 1], run);
        return;
    }
    switch (c->item) {
        case 1: rvm_copy_plane_of(c, to, from, rows, columns, 1); return;
        case 2: rvm_copy_plane_of(c, to, from, rows, columns, 2); return;
        case 4: rvm_copy_plane_of(c, to, from, rows, columns, 4); return;
        case 8: rvm_copy_plane_of(c, to, from, rows, columns, 8); return;
        case 16: rvm_copy_plane_of(c, to, from, rows, columns, 16); return;
        default:
            for (int64_t i = 0; i < rows; i++)
                for (int64_t j = 0; j < columns; j++)
                    memcpy(to + i * c->t[last - 1] + j * c->t[last], from + i * c->f[last - 1] + j * c->f[last],
                           (size_t)c->item);
    }
}

static inline void rvm_copy_unit(const RvmCopy *c, char *to, const char *from, int64_t row, int64_t column) {
    int last = c->n - 1;
    row *= c->rows;
    column *= c->columns;
    int64_t rows = c->dims[last - 1] - row, columns = c->dims[last] - column;
    rvm_copy_plane(c, to + row * c->t[last - 1] + column * c->t[last], from + row * c->f[last - 1] + column * c->f[last],
                   rows < c->rows ? rows : c->rows, columns < c->columns ? columns : c->columns);
}

/* Copy units from one to before another.  Those of transposes follow each other along lines of the source; some columns
 * of single elements are copied in all planes before the next ones. */
static void rvm_copy_units(const RvmCopy *c, int64_t unit, int64_t end) {
    int last = c->n - 1, is_turned = c->kind == RVM_TILES, is_strided = c->kind == RVM_STRIDED;
    int64_t per_plane = is_strided ? c->row_parts : c->row_parts * c->column_parts, at[RVM_COPY_DIMS];
    int64_t plane = unit / per_plane, part = unit % per_plane;
    char *to = c->to;
    const char *from = c->from;
    for (int i = last - 2; i >= 0; i--) {
        at[i] = plane % c->dims[i];
        plane /= c->dims[i];
        to += at[i] * c->t[i];
        from += at[i] * c->f[i];
    }
    int64_t column = plane; /* where all planes are passed several times */
    for (;; part = 0) {
        for (; part < per_plane && unit < end; part++, unit++) {
            if (is_turned) rvm_copy_unit(c, to, from, part % c->row_parts, part / c->row_parts);
            else if (is_strided) rvm_copy_unit(c, to, from, part, column);
            else rvm_copy_unit(c, to, from, part / c->column_parts, part % c->column_parts);
        }
        if (unit == end) return;
        int axis = last - 2;
        for (; axis >= 0; axis--) {
            to += c->t[axis];
            from += c->f[axis];
            if (++at[axis] < c->dims[axis]) break;
            to -= c->dims[axis] * c->t[axis];
            from -= c->dims[axis] * c->f[axis];
            at[axis] = 0;
        }
        column += axis < 0;
    }
}

/* ---- pieces -------------------------------------------------------------------------------------- */
typedef struct {
    const RvmCopy *copies;
    int count;
    RvmGrid grid;
} RvmCopies;

/* A part of the units of each copy.  Of those with few units, other pieces get one. */
static int rvm_copy_piece(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const RvmCopies *all = (const RvmCopies *)work;
    int64_t pieces = all->grid.outer_parts;
    (void)thread;
    for (int k = 0; k < all->count; k++) {
        const RvmCopy *c = &all->copies[k];
        int64_t part = c->units < pieces ? (piece + k) % pieces : piece;
        int64_t unit = c->units * part / pieces, end = c->units * (part + 1) / pieces;
        int64_t at_once = ((int64_t)1 << 22) / (c->unit_bytes + 1) + 1; /* a millisecond or less */
        while (unit < end) {
            int64_t next = end - unit < at_once ? end : unit + at_once;
            rvm_copy_units(c, unit, next);
            if (rvm_must_stop(call, (next - unit) * c->unit_bytes * 8)) return RVM_FAILED;
            unit = next;
        }
    }
    return RVM_OK;
}

/* Run copies, which write different memory. */
static inline int rvm_run_copies(const RvmKernelCall *call, const RvmCopy *copies, int count) {
    RvmCopies all = {copies, count, {0}};
    int64_t nanoseconds = 0, units = 0;
    for (int k = 0; k < count; k++) {
        /* Elements one by one take longer than lines. */
        int64_t slowness = copies[k].kind == RVM_TILES ? 2 : copies[k].kind == RVM_STRIDED ? 4 : 1;
        nanoseconds += rvm_time_for(0, copies[k].units * copies[k].unit_bytes * 2 * slowness);
        units += copies[k].units;
    }
    all.grid = rvm_divide(call, nanoseconds, units, 1);
    return rvm_run_grid(call, &all.grid, rvm_copy_piece, &all);
}

#endif
