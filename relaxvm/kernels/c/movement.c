/* Copies, conversions and constants. */
#include "cast.h"
#include "copies.h"
#include "loops.h"

#define SMALL_RESULT 65536 /* smaller ones are copied with the lock, in a microsecond or two */
#define MOST_COPIES 32

/* ---- copies ------------------------------------------------------------------------------------- */
/* out, or what else is written at these strides = elements of a tensor at others, axis by axis. */
static int copy(const RvmKernelCall *call, char *to, const int64_t *to_strides, const char *from,
                const int64_t *from_strides, const int64_t *dims, int ndim, int64_t item) {
    RvmCopy one;
    if (!rvm_arrange_copy(&one, to, to_strides, from, from_strides, dims, ndim, item)) return RVM_ASK_REFERENCE;
    return rvm_run_copies(call, &one, 1);
}

/* out = the elements of x in order, in another shape */
static int reshape(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t strides[RVM_MAX_DIMS], step = x->item;
    if (rvm_length(x) != rvm_length(out) || !rvm_is_contiguous(out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    for (int i = x->ndim - 1; i >= 0; i--) {
        RVM_FEW_TURNS;
        strides[i] = step;
        step *= x->dims[i];
    }
    return copy(call, out->data, strides, x->data, x->strides, x->dims, x->ndim, x->item);
}

static int broadcast_to(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t strides[RVM_MAX_DIMS];
    if (!rvm_is_input(x, out) || !rvm_broadcast(x, out, strides)) return RVM_ASK_REFERENCE;
    return copy(call, out->data, out->strides, x->data, strides, out->dims, out->ndim, x->item);
}

typedef struct {
    RvmInts axes;
} PermuteParams;

/* out's axis i is x's axis axes[i] */
static int permute_dims(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    const PermuteParams *params = (const PermuteParams *)call->params;
    int64_t strides[RVM_MAX_DIMS];
    int axes[RVM_MAX_DIMS], ndim = x->ndim, given = 0;
    if (params->axes.count == RVM_NO_INTS) {
        for (; given < ndim; given++) axes[given] = ndim - 1 - given;
    } else {
        given = rvm_axes(&params->axes, ndim, axes);
    }
    if (given != ndim || out->ndim != ndim || !rvm_is_input(x, out)) return RVM_ASK_REFERENCE;
    for (int i = 0; i < ndim; i++) {
        if (out->dims[i] != x->dims[axes[i]]) return RVM_ASK_REFERENCE;
        strides[i] = x->strides[axes[i]];
    }
    return copy(call, out->data, out->strides, x->data, strides, out->dims, ndim, x->item);
}

typedef struct {
    int64_t axis;
} AxisParams;

/* out = x from the end to the beginning of an axis */
static int flip(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t strides[RVM_MAX_DIMS];
    const char *from = x->data;
    int axis;
    if (!rvm_axis(((const AxisParams *)call->params)->axis, x->ndim, &axis) ||
        !rvm_same_shape(x, out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < x->ndim; i++) {
        RVM_FEW_TURNS;
        strides[i] = x->strides[i];
    }
    if (x->dims[axis] > 0) from += (x->dims[axis] - 1) * strides[axis];
    strides[axis] = -strides[axis];
    return copy(call, out->data, out->strides, from, strides, x->dims, x->ndim, x->item);
}

typedef struct {
    RvmInts axes, begin, end, strides;
} SliceParams;

/* A bound of a slice with Python's meaning: those below 0 count from the end, then it is brought into
 * [least, most]. */
static int64_t slice_bound(int64_t bound, int64_t length, int64_t least, int64_t most) {
    if (bound < 0) bound += length;
    return bound < least ? least : bound > most ? most : bound;
}

/* How many elements a slice has; sets its first. */
static int64_t slice_length(int64_t length, int64_t begin, int64_t end, int64_t step, int64_t *first) {
    int64_t least = step < 0 ? -1 : 0, most = step < 0 ? length - 1 : length;
    begin = slice_bound(begin, length, least, most);
    end = slice_bound(end, length, least, most);
    *first = begin;
    if (step == 1) return begin < end ? end - begin : 0;
    if (step < 0) return end < begin ? (begin - end - 1) / -step + 1 : 0;
    return begin < end ? (end - begin - 1) / step + 1 : 0;
}

/* strided_slice(x, axes, begin, end, strides, out) */
static int strided_slice(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    const SliceParams *params = (const SliceParams *)call->params;
    int64_t dims[RVM_MAX_DIMS], strides[RVM_MAX_DIMS], first;
    int axes[RVM_MAX_DIMS], ndim = x->ndim;
    int given = rvm_axes(&params->axes, ndim, axes);
    const int64_t *steps = params->strides.count == RVM_NO_INTS ? NULL : params->strides.values;
    if (given < 0 || out->ndim != ndim || params->begin.count != given ||
        params->end.count != given || (steps != NULL && params->strides.count != given) ||
        !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    const char *from = x->data;
    for (int i = 0; i < ndim; i++) {
        RVM_FEW_TURNS;
        dims[i] = x->dims[i];
        strides[i] = x->strides[i];
    }
    for (int i = 0; i < given; i++) {
        int axis = axes[i];
        int64_t step = steps != NULL ? steps[i] : 1;
        if (step == 0 || step < -INT64_MAX) return RVM_ASK_REFERENCE;
        dims[axis] = slice_length(dims[axis], params->begin.values[i], params->end.values[i], step,
                                  &first);
        if (dims[axis] > 0) from += first * strides[axis];
        strides[axis] *= dims[axis] > 1 ? step : 1;
    }
    if (!rvm_same_dims(dims, out->dims, ndim)) return RVM_ASK_REFERENCE;
    return copy(call, out->data, out->strides, from, strides, dims, ndim, x->item);
}

static int same_dims_but(const RvmBuffer *x, const RvmBuffer *out, int axis) {
    if (x->ndim != out->ndim) return 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != axis && x->dims[i] != out->dims[i]) return 0;
    return 1;
}

/* concat(tensors..., axis, out) */
static int concat(const RvmKernelCall *call) {
    int count = call->count - 1, axis;
    const RvmBuffer *x = call->buffers, *out = &x[count];
    int64_t total = 0;
    if (count < 1 || count > MOST_COPIES || !rvm_axis(((const AxisParams *)call->params)->axis, out->ndim, &axis))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < count; i++) {
        if (!same_dims_but(&x[i], out, axis) || !rvm_is_input(&x[i], out)) return RVM_ASK_REFERENCE;
        if (x[i].dims[axis] > out->dims[axis] - total) return RVM_ASK_REFERENCE;
        total += x[i].dims[axis];
    }
    if (total != out->dims[axis]) return RVM_ASK_REFERENCE;
    RvmCopy copies[MOST_COPIES];
    char *to = out->data;
    for (int i = 0; i < count; i++) {
        if (!rvm_arrange_copy(&copies[i], to, out->strides, x[i].data, x[i].strides, x[i].dims, x[i].ndim, out->item))
            return RVM_ASK_REFERENCE;
        to += x[i].dims[axis] * out->strides[axis];
    }
    return rvm_run_copies(call, copies, count);
}

/* stack(tensors..., axis, out) */
static int stack(const RvmKernelCall *call) {
    int count = call->count - 1, axis, n = 0;
    const RvmBuffer *x = call->buffers, *out = &x[count];
    int64_t dims[RVM_MAX_DIMS], strides[RVM_MAX_DIMS];
    if (count < 1 || count > MOST_COPIES ||
        !rvm_axis(((const AxisParams *)call->params)->axis, out->ndim, &axis) || out->dims[axis] != count)
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < out->ndim; i++) {
        if (i == axis) continue;
        dims[n] = out->dims[i];
        strides[n++] = out->strides[i];
    }
    for (int i = 0; i < count; i++)
        if (x[i].ndim != n || !rvm_same_dims(x[i].dims, dims, n) || !rvm_is_input(&x[i], out))
            return RVM_ASK_REFERENCE;
    RvmCopy copies[MOST_COPIES];
    for (int i = 0; i < count; i++)
        if (!rvm_arrange_copy(&copies[i], out->data + i * out->strides[axis], strides, x[i].data, x[i].strides, dims, n,
                              out->item))
            return RVM_ASK_REFERENCE;
    return rvm_run_copies(call, copies, count);
}

typedef struct {
    RvmInts sections; /* where parts begin, or how many parts there are */
    int64_t axis;
} SplitParams;

/* Where part `i` of a split begins; -1 if the reference has to decide. */
static int64_t split_bound(const RvmInts *sections, int64_t length, int parts, int i) {
    if (sections->count == RVM_ONE_INT) {
        if (sections->values[0] != parts) return -1;
        int64_t bound = (length / parts + (length % parts != 0)) * i;
        return bound < length ? bound : length;
    }
    if (sections->count != parts - 1) return -1;
    if (i == 0 || i == parts) return i == 0 ? 0 : length;
    int64_t value = sections->values[i - 1];
    return value >= 0 && value <= length ? value : -1;
}

/* split(x, indices or sections, axis, outs...) */
static int split(const RvmKernelCall *call) {
    const SplitParams *params = (const SplitParams *)call->params;
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int parts = call->count - 1, axis;
    if (parts < 1 || parts > MOST_COPIES || !rvm_axis(params->axis, x->ndim, &axis)) return RVM_ASK_REFERENCE;
    RvmCopy copies[MOST_COPIES];
    const char *from = x->data;
    int64_t start = 0;
    for (int i = 0; i < parts; i++) {
        int64_t stop = split_bound(&params->sections, x->dims[axis], parts, i + 1);
        if (stop < start || !same_dims_but(x, &out[i], axis) || out[i].dims[axis] != stop - start ||
            !rvm_is_input(x, &out[i]))
            return RVM_ASK_REFERENCE;
        /* Threads would write them in any order. */
        for (int k = 0; k < i && call->threads > 1; k++)
            if (!rvm_no_overlap(&out[k], &out[i])) return RVM_ASK_REFERENCE;
        if (!rvm_arrange_copy(&copies[i], out[i].data, out[i].strides, from, x->strides, out[i].dims, x->ndim, x->item))
            return RVM_ASK_REFERENCE;
        from += out[i].dims[axis] * x->strides[axis];
        start = stop;
    }
    return rvm_run_copies(call, copies, parts);
}

/* ---- conversions --------------------------------------------------------------------------------- */
#define CONVERTED_AT_ONCE 4096 /* elements */

typedef struct {
    const RvmBuffer *x, *out;
    RvmLoopCall loop;
    int64_t length;
    int status;
    RvmGrid grid; /* of units of CONVERTED_AT_ONCE */
} Conversion;

static int convert(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    Conversion *c = (Conversion *)work;
    RvmPart part = rvm_part(&c->grid, piece);
    (void)thread;
    rvm_clear_float_status();
    for (int64_t unit = part.outer; unit < part.outer_end; unit++) {
        int64_t at = unit * CONVERTED_AT_ONCE, left = c->length - at;
        intptr_t count = left < CONVERTED_AT_ONCE ? (intptr_t)left : CONVERTED_AT_ONCE;
        char *data[2] = {c->x->data + at * c->x->item, c->out->data + at * c->out->item};
        intptr_t steps[2] = {c->x->item, c->out->item};
        c->loop(data, &count, steps, NULL);
        int status = rvm_float_status();
        if (status) rvm_add_bits(&c->status, status);
        if (rvm_must_stop(call, count * 64)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* out = x in another data type */
static int cast(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    if (x->dtype == out->dtype) return broadcast_to(call);
    RvmLoopCall loop = rvm_cast_loop(x->dtype, out->dtype);
    if (loop == NULL || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_same_shape(x, out) ||
        !rvm_no_overlap(x, out))
        return RVM_ASK_REFERENCE;
    Conversion c = {.x = x, .out = out, .loop = loop, .length = rvm_length(x)};
    c.grid = rvm_divide(call, rvm_time_for(0, c.length * (x->item + out->item)),
                        (c.length + CONVERTED_AT_ONCE - 1) / CONVERTED_AT_ONCE, 1);
    int answer = rvm_run_grid(call, &c.grid, convert, &c);
    *call->float_status |= c.status;
    return answer;
}

/* ---- rows at indices ------------------------------------------------------------------------------ */
enum { FAST, PYTHON };
static const char *const take_modes[] = {"fast", "python", NULL};

typedef struct {
    int64_t axis, mode;
} TakeParams;

typedef struct {
    const char *from;
    char *to;
    const RvmBuffer *indices;
    int64_t length, taken, row;
    int64_t more; /* what is added to an index below 0 */
    int is_other; /* whether an index is outside that was not before */
    RvmGrid grid; /* rows of the result */
} Take;

/* Another thread may write the indices meanwhile: what is checked is what is used. */
#define TAKE_ROWS_AT(type, bytes)                                               \
    for (; count > 0; count--, at++, to += (bytes)) {                           \
        int64_t index = *(const volatile type *)at;                             \
        if (index < 0) index += more;                                           \
        if ((uint64_t)index >= (uint64_t)length) return 1;                      \
        memcpy(to, from + index * (bytes), (size_t)(bytes));                    \
    }                                                                           \
    return 0

/* Rows at so many indices; 1 for an index outside. */
static RVM_INLINED int take_of(char *restrict to, const char *restrict from, const char *indices, int is_narrow, int64_t count,
                               int64_t length, int64_t more, int64_t bytes) {
    if (is_narrow) {
        const int32_t *at = (const int32_t *)(const void *)indices;
        TAKE_ROWS_AT(int32_t, bytes);
    } else {
        const int64_t *at = (const int64_t *)(const void *)indices;
        TAKE_ROWS_AT(int64_t, bytes);
    }
}

static int take_some(const Take *t, int64_t row, int64_t end) {
    int is_narrow = t->indices->dtype == RVM_DTYPE_I32;
    while (row < end) {
        int64_t i = row % t->taken, count = t->taken - i < end - row ? t->taken - i : end - row;
        const char *from = t->from + row / t->taken * t->length * t->row;
        const char *indices = t->indices->data + i * t->indices->item;
        char *to = t->to + row * t->row;
        int is_outside;
#define TAKE(bytes) is_outside = take_of(to, from, indices, is_narrow, count, t->length, t->more, bytes)
        switch (t->row) {
            case 1: TAKE(1); break;
            case 2: TAKE(2); break;
            case 4: TAKE(4); break;
            case 8: TAKE(8); break;
            case 16: TAKE(16); break;
            default: TAKE(t->row);
        }
        if (is_outside) return 1;
        row += count;
    }
    return 0;
}

/* Whether all indices are from least to before most, which is 0 or more. */
#define ARE_INSIDE(type)                                                           \
    {                                                                                                 \
        const type *at = (const type *)(const void *)indices->data;                                   \
        int64_t wrong = 0;                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                         \
            uint64_t place = (uint64_t)(int64_t)at[i] - (uint64_t)least;                              \
            wrong |= (int64_t)(place | ((uint64_t)(most - least - 1) - place));                       \
        }                                                                                             \
        return wrong >= 0;                                                                            \
    }

static int are_inside(const RvmBuffer *indices, int64_t count, int64_t least, int64_t most) {
    if (indices->dtype == RVM_DTYPE_I32) ARE_INSIDE(int32_t)
    ARE_INSIDE(int64_t)
}

static int take_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    Take *t = (Take *)work;
    RvmPart part = rvm_part(&t->grid, piece);
    int64_t at_once = ((int64_t)1 << 20) / (t->row + 64) + 1;
    (void)thread;
    for (int64_t row = part.outer; row < part.outer_end; row += at_once) {
        int64_t end = part.outer_end - row < at_once ? part.outer_end : row + at_once;
        if (take_some(t, row, end)) rvm_add_bits(&t->is_other, 1);
        if (rvm_must_stop(call, (end - row) * (t->row + 64) * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* take(x, indices, axis, mode or nothing, out), where an index outside is an error; one below 0 counts from the
 * end in mode "python" */
static int take(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *indices = x + 1, *out = x + 2;
    const TakeParams *params = (const TakeParams *)call->params;
    int axis = 0, ndim = x->ndim, more = indices->ndim;
    if ((indices->dtype != RVM_DTYPE_I32 && indices->dtype != RVM_DTYPE_I64) ||
        !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_is_contiguous(indices) ||
        (params->axis == RVM_NO_INT ? ndim != 1 : !rvm_axis(params->axis, ndim, &axis)) ||
        out->ndim != ndim - 1 + more || !rvm_is_input(x, out) || !rvm_no_overlap(indices, out))
        return RVM_ASK_REFERENCE;
    if (!rvm_same_dims(out->dims, x->dims, axis) ||
        !rvm_same_dims(out->dims + axis, indices->dims, more) ||
        !rvm_same_dims(out->dims + axis + more, x->dims + axis + 1, ndim - axis - 1))
        return RVM_ASK_REFERENCE;
    int64_t length = x->dims[axis], taken = rvm_length(indices);
    int64_t row = rvm_product(x->dims, axis + 1, ndim) * x->item;
    int64_t outer = rvm_product(x->dims, 0, axis);
    int is_python = params->mode == PYTHON;
    if (length > INT64_MAX / 4 || !are_inside(indices, taken, is_python ? -length : 0, length)) return RVM_ASK_REFERENCE;
    if (outer == 0 || taken == 0 || row == 0) return RVM_OK;
    Take t = {.from = x->data, .to = out->data, .indices = indices, .length = length, .taken = taken, .row = row,
              .more = is_python ? length : 0};
    /* A row that is far away takes as long as some lines of the cache. */
    t.grid = rvm_divide(call, rvm_time_for(0, outer * taken * (2 * row + 64)), outer * taken, 1);
    int answer = rvm_run_grid(call, &t.grid, take_rows, &t);
    return answer == RVM_OK && t.is_other ? RVM_ASK_REFERENCE : answer;
}

/* ---- padding ------------------------------------------------------------------------------------- */
enum { CONSTANT, REFLECT, REPLICATE, CIRCULAR };
static const char *const pad_modes[] = {"constant", "reflect", "replicate", "circular", NULL};

typedef struct {
    RvmInts widths;
    int64_t mode;
} PadParams;

/* The element along an axis that is at a place of the result; -1 for one of the padding's own. */
static inline int64_t padded_place(int64_t place, int64_t dim, int64_t mode) {
    if (place >= 0 && place < dim) return place;
    if (mode == CONSTANT) return -1;
    if (mode == REPLICATE) return place < 0 ? 0 : dim - 1;
    if (mode == CIRCULAR) return (place % dim + dim) % dim;
    return place < 0 ? -place : 2 * (dim - 1) - place;
}

/* Whether an axis can be padded by these widths to the length that it has in the result. */
static int can_pad(int64_t dim, int64_t front, int64_t back, int64_t length, int64_t mode) {
    const int64_t most = INT64_C(1) << 40;
    if (front < -most || front > most || back < -most || back > most || dim > most) return 0;
    if (front + dim + back != length) return 0;
    if (mode == CONSTANT || (front == 0 && back == 0)) return 1;
    return front >= 0 && back >= 0 && dim > 0 && (mode != REFLECT || (front < dim && back < dim));
}

/* A row along the last axis that is padded.  An entry of it is an element, or all elements of the axes after it. */
typedef struct {
    const RvmBuffer *x, *out;
    const char *value;
    const int64_t *widths;
    int64_t mode, item, entry; /* bytes */
    int last;
    RvmGrid grid;              /* rows, and parts of them */
} Pad;

/* An entry = another one, or a number for all its elements. */
static RVM_INLINED void put_entry(const Pad *p, char *to, const char *from, int64_t entry) {
    if (from != NULL) memcpy(to, from, (size_t)entry);
    else if (entry == p->item) memcpy(to, p->value, (size_t)entry);
    else rvm_fill(to, entry, p->value, p->item);
}

/* Entries of a row of the result beside those of x, from one to before another. */
static RVM_INLINED void pad_beside(const Pad *p, char *to, const char *from, int64_t at, int64_t end, int64_t entry) {
    int64_t dim = p->x->dims[p->last], front = p->widths[2 * p->last];
    if (p->mode == CONSTANT && end - at > 16) {
        rvm_fill(to + at * entry, (end - at) * entry, p->value, p->item);
        return;
    }
    for (; at < end; at++) {
        int64_t place = padded_place(at - front, dim, p->mode);
        put_entry(p, to + at * entry, place < 0 ? NULL : from + place * entry, entry);
    }
}

/* Rows of the result, each from one entry to before another. */
static RVM_INLINED int pad_rows_of(const RvmKernelCall *call, const Pad *p, const RvmPart *part, int64_t entry) {
    const int64_t *dims = p->x->dims, *lengths = p->out->dims;
    int64_t at[RVM_MAX_DIMS], left = part->outer, width = lengths[p->last] * entry;
    int64_t dim = dims[p->last], front = p->widths[2 * p->last], begin = part->inner, end = part->inner_end;
    int64_t first = front > begin ? front : begin, after = front + dim < end ? front + dim : end;
    if (first > after) first = after = first > end ? end : begin; /* all are before or behind those of x */
    for (int i = p->last - 1; i >= 0; i--) {
        at[i] = left % lengths[i];
        left /= lengths[i];
    }
    for (int64_t i = part->outer; i < part->outer_end; i++) {
        int64_t row = 0;
        for (int k = 0; k < p->last && row >= 0; k++) {
            int64_t place = padded_place(at[k] - p->widths[2 * k], dims[k], p->mode);
            row = place < 0 ? -1 : row * dims[k] + place;
        }
        char *to = p->out->data + i * width;
        if (row < 0) {
            rvm_fill(to + begin * entry, (end - begin) * entry, p->value, p->item);
        } else {
            const char *from = p->x->data + row * dim * entry;
            pad_beside(p, to, from, begin, first, entry);
            memcpy(to + first * entry, from + (first - front) * entry, (size_t)((after - first) * entry));
            pad_beside(p, to, from, after, end, entry);
        }
        for (int axis = p->last - 1; axis >= 0 && ++at[axis] == lengths[axis]; axis--) at[axis] = 0;
        if (rvm_must_stop(call, width * 8)) return RVM_FAILED;
    }
    return RVM_OK;
}

static int pad_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Pad *p = (const Pad *)work;
    RvmPart part = rvm_part(&p->grid, piece);
    (void)thread;
    switch (p->entry) {
        case 1: return pad_rows_of(call, p, &part, 1);
        case 2: return pad_rows_of(call, p, &part, 2);
        case 4: return pad_rows_of(call, p, &part, 4);
        case 8: return pad_rows_of(call, p, &part, 8);
        default: return pad_rows_of(call, p, &part, p->entry);
    }
}

/* pad(x, widths, mode, number, out) */
static int pad(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *value = x + 1, *out = x + 2;
    const PadParams *params = (const PadParams *)call->params;
    const int64_t *widths = params->widths.values;
    int last = x->ndim - 1;
    if (last < 0 || params->widths.count != 2 * x->ndim || out->ndim != x->ndim ||
        !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i <= last; i++)
        if (!can_pad(x->dims[i], widths[2 * i], widths[2 * i + 1], out->dims[i], params->mode))
            return RVM_ASK_REFERENCE;
    int64_t length = rvm_length(out);
    if (length == 0) return RVM_OK;
    Pad p = {.x = x, .out = out, .value = value->data, .widths = widths, .mode = params->mode, .item = out->item,
             .entry = out->item};
    while (last > 0 && widths[2 * last] == 0 && widths[2 * last + 1] == 0) p.entry *= x->dims[last--];
    p.last = last;
    p.grid = rvm_divide(call, rvm_time_for(0, 2 * length * out->item), rvm_product(out->dims, 0, last), out->dims[last]);
    return rvm_run_grid(call, &p.grid, pad_rows, &p);
}

/* ---- constants ---------------------------------------------------------------------------------- */
/* All elements of out = a number of its data type. */
static int put_everywhere(const RvmKernelCall *call, const RvmBuffer *out, const char *number) {
    const int64_t nowhere[RVM_MAX_DIMS] = {0};
    return copy(call, out->data, out->strides, number, nowhere, out->dims, out->ndim, out->item);
}

/* fill(number, out), and full(number or tensor without axes, out) */
static int fill(const RvmKernelCall *call) {
    const RvmBuffer *value = &call->buffers[0], *out = value + 1;
    if (value->ndim != 0 || !rvm_is_input(value, out)) return RVM_ASK_REFERENCE;
    return put_everywhere(call, out, value->data);
}

static int put_bit(const RvmKernelCall *call, int bit) {
    const RvmBuffer *out = &call->buffers[0];
    RvmNumber number;
    return rvm_set_bit(&number, out->dtype, bit) ? put_everywhere(call, out, number.bytes) : RVM_ASK_REFERENCE;
}

static int zeros(const RvmKernelCall *call) { return put_bit(call, 0); }
static int ones(const RvmKernelCall *call) { return put_bit(call, 1); }

typedef struct {
    int64_t start, end, step;
} RangeParams;

typedef struct {
    char *to;
    int64_t start, step;
    int is_narrow;
    RvmGrid grid; /* elements */
} Range;

static int put_range(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Range *r = (const Range *)work;
    RvmPart part = rvm_part(&r->grid, piece);
    (void)thread;
    for (int64_t i = part.outer; i < part.outer_end;) {
        int64_t end = part.outer_end - i < 1 << 16 ? part.outer_end : i + (1 << 16), count = (end - i) * 64;
        if (r->is_narrow)
            for (; i < end; i++) ((int32_t *)r->to)[i] = (int32_t)(r->start + i * r->step);
        else
            for (; i < end; i++) ((int64_t *)r->to)[i] = r->start + i * r->step;
        if (rvm_must_stop(call, count)) return RVM_FAILED;
    }
    return RVM_OK;
}

/* arange(start, end, step, out), of integers below 2^62, whose sums are none above 2^63 */
static int arange(const RvmKernelCall *call) {
    const RvmBuffer *out = &call->buffers[0];
    const RangeParams *params = (const RangeParams *)call->params;
    const int64_t most = INT64_C(1) << 62;
    int64_t start = params->start, end = params->end, step = params->step;
    if (out->ndim != 1 || !rvm_is_contiguous(out) || (out->dtype != RVM_DTYPE_I32 && out->dtype != RVM_DTYPE_I64) ||
        step == 0 || start < -most || start > most || end < -most || end > most || step < -most || step > most)
        return RVM_ASK_REFERENCE;
    int64_t span = step > 0 ? end - start : start - end, width = step > 0 ? step : -step;
    int64_t length = span > 0 ? (span - 1) / width + 1 : 0;
    if (length != out->dims[0]) return RVM_ASK_REFERENCE;
    int is_narrow = out->dtype == RVM_DTYPE_I32;
    int64_t most_narrow = start + (length - 1) * step;
    if (is_narrow && length > 0 && (start != (int32_t)start || most_narrow != (int32_t)most_narrow))
        return RVM_ASK_REFERENCE;
    Range r = {out->data, start, step, is_narrow, rvm_divide(call, rvm_time_for(0, length * out->item), length, 1)};
    return rvm_run_grid(call, &r.grid, put_range, &r);
}

/* ---- the table ---------------------------------------------------------------------------------- */
static const RvmArgument copy_arguments[] = {RVM_BUFFER(TENSOR), RVM_BUFFER(OUT)};
static const RvmArgument permute_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(EACH_INT, PermuteParams, axes), RVM_BUFFER(OUT)};
static const RvmArgument flip_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INT, AxisParams, axis), RVM_BUFFER(OUT)};
static const RvmArgument slice_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_FIELD(INTS, SliceParams, axes),
    RVM_FIELD(INTS, SliceParams, begin),
    RVM_FIELD(INTS, SliceParams, end),
    RVM_FIELD(INTS_OR_NONE, SliceParams, strides),
    RVM_BUFFER(OUT),
};
static const RvmArgument join_arguments[] = {
    RVM_BUFFER(TENSORS), RVM_FIELD(INT, AxisParams, axis), RVM_BUFFER(OUT)};
static const RvmArgument split_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INT_OR_INTS, SplitParams, sections),
    RVM_FIELD(INT, SplitParams, axis), RVM_BUFFER(OUTS)};
static const RvmArgument take_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_BUFFER(TENSOR), RVM_FIELD(INT_OR_NONE, TakeParams, axis),
    RVM_FIELD_OF(take_modes, CHOICE_OR_NOTHING, TakeParams, mode), RVM_BUFFER(OUT)};
static const RvmArgument pad_arguments[] = {
    RVM_BUFFER(TENSOR), RVM_FIELD(INTS, PadParams, widths),
    RVM_FIELD_OF(pad_modes, CHOICE, PadParams, mode), RVM_BUFFER(NUMBER), RVM_BUFFER(OUT)};
static const RvmArgument fill_arguments[] = {RVM_BUFFER(NUMBER), RVM_BUFFER(OUT)};
static const RvmArgument full_arguments[] = {RVM_BUFFER(TENSOR_OR_NUMBER), RVM_BUFFER(OUT)};
static const RvmArgument out_arguments[] = {RVM_BUFFER(OUT)};
static const RvmArgument range_arguments[] = {RVM_FIELD(INT, RangeParams, start), RVM_FIELD(INT, RangeParams, end),
                                              RVM_FIELD(INT, RangeParams, step), RVM_BUFFER(OUT)};

#define MOVEMENT(kernel_name, function, arguments_of)                                         \
    {.name = "movement." kernel_name, .kernel = kernel_name, .run = function,                 \
     RVM_ARGUMENTS(arguments_of), .dtypes = RVM_ANY_DTYPE, .most_bytes = RVM_ANY_RESULT,      \
     .is_unlocked = 1, .locked_bytes = SMALL_RESULT}

const RvmImplementation rvm_movement[] = {
    MOVEMENT("reshape", reshape, copy_arguments),
    MOVEMENT("broadcast_to", broadcast_to, copy_arguments),
    MOVEMENT("cast", cast, copy_arguments),
    MOVEMENT("permute_dims", permute_dims, permute_arguments),
    MOVEMENT("flip", flip, flip_arguments),
    MOVEMENT("strided_slice", strided_slice, slice_arguments),
    MOVEMENT("concat", concat, join_arguments),
    MOVEMENT("stack", stack, join_arguments),
    MOVEMENT("split", split, split_arguments),
    MOVEMENT("take", take, take_arguments),
    MOVEMENT("nn.pad", pad, pad_arguments),
    MOVEMENT("fill", fill, fill_arguments),
    MOVEMENT("full", fill, full_arguments),
    MOVEMENT("zeros", zeros, out_arguments),
    MOVEMENT("ones", ones, out_arguments),
    MOVEMENT("arange", arange, range_arguments),
    {.name = NULL},
};
