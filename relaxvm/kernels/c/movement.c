/* Copies, conversions and constants. */
#include "cast.h"
#include "loops.h"

/* ---- copies ------------------------------------------------------------------------------------- */
#define COPY_STRIDED(type)                                                              \
    for (int64_t i = 0; i < count; i++)                                                 \
        *(type *)(to + i * to_step) = *(const type *)(from + i * from_step);            \
    return

static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                     int64_t item) {
    if (to_step == item && from_step == item) {
        memcpy(to, from, (size_t)(count * item));
        return;
    }
    switch (item) {
        case 1: COPY_STRIDED(uint8_t);
        case 2: COPY_STRIDED(uint16_t);
        case 4: COPY_STRIDED(uint32_t);
        default:
            for (int64_t i = 0; i < count; i++)
                memcpy(to + i * to_step, from + i * from_step, (size_t)item);
    }
}

static void copy_axes(char *to, const int64_t *to_strides, const char *from,
                      const int64_t *from_strides, const int64_t *dims, int ndim, int64_t item) {
    if (ndim == 1) {
        copy_row(to, to_strides[0], from, from_strides[0], dims[0], item);
        return;
    }
    for (int64_t i = 0; i < dims[0]; i++)
        copy_axes(to + i * to_strides[0], to_strides + 1, from + i * from_strides[0],
                  from_strides + 1, dims + 1, ndim - 1, item);
}

/* Copy elements axis by axis; axes that are contiguous in both are joined. */
static void copy(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides,
                 const int64_t *dims, int ndim, int64_t item) {
    int64_t d[RVM_MAX_DIMS + 1], t[RVM_MAX_DIMS + 1], f[RVM_MAX_DIMS + 1];
    int n = 0;
    for (int i = 0; i < ndim; i++) {
        if (dims[i] == 0) return;
        if (dims[i] == 1) continue;
        if (n > 0 && t[n - 1] == dims[i] * to_strides[i] && f[n - 1] == dims[i] * from_strides[i]) {
            n--;
            d[n] *= dims[i];
        } else {
            d[n] = dims[i];
        }
        t[n] = to_strides[i];
        f[n++] = from_strides[i];
    }
    if (n == 0) {
        memcpy(to, from, (size_t)item);
        return;
    }
    copy_axes(to, t, from, f, d, n, item);
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
    copy(out->data, strides, x->data, x->strides, x->dims, x->ndim, x->item);
    return RVM_OK;
}

static int broadcast_to(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *out = x + 1;
    int64_t strides[RVM_MAX_DIMS];
    if (!rvm_is_input(x, out) || !rvm_broadcast(x, out, strides)) return RVM_ASK_REFERENCE;
    copy(out->data, out->strides, x->data, strides, out->dims, out->ndim, x->item);
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
    char *data[2] = {x->data, out->data};
    intptr_t length = (intptr_t)rvm_length(x), steps[2] = {x->item, out->item};
    rvm_clear_float_status();
    loop(data, &length, steps, NULL);
    rvm_note_status(call);
    return RVM_OK;
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
    copy(out->data, out->strides, x->data, strides, out->dims, ndim, x->item);
    return RVM_OK;
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
    copy(out->data, out->strides, from, strides, x->dims, x->ndim, x->item);
    return RVM_OK;
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
    copy(out->data, out->strides, from, strides, dims, ndim, x->item);
    return RVM_OK;
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
    if (count < 1 || !rvm_axis(((const AxisParams *)call->params)->axis, out->ndim, &axis))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < count; i++) {
        if (!same_dims_but(&x[i], out, axis) || !rvm_is_input(&x[i], out)) return RVM_ASK_REFERENCE;
        if (x[i].dims[axis] > out->dims[axis] - total) return RVM_ASK_REFERENCE;
        total += x[i].dims[axis];
    }
    if (total != out->dims[axis]) return RVM_ASK_REFERENCE;
    char *to = out->data;
    for (int i = 0; i < count; i++) {
        copy(to, out->strides, x[i].data, x[i].strides, x[i].dims, x[i].ndim, out->item);
        to += x[i].dims[axis] * out->strides[axis];
    }
    return RVM_OK;
}

/* stack(tensors..., axis, out) */
static int stack(const RvmKernelCall *call) {
    int count = call->count - 1, axis, n = 0;
    const RvmBuffer *x = call->buffers, *out = &x[count];
    int64_t dims[RVM_MAX_DIMS], strides[RVM_MAX_DIMS];
    if (count < 1 || !rvm_axis(((const AxisParams *)call->params)->axis, out->ndim, &axis) ||
        out->dims[axis] != count)
        return RVM_ASK_REFERENCE;
    for (int i = 0; i < out->ndim; i++) {
        if (i == axis) continue;
        dims[n] = out->dims[i];
        strides[n++] = out->strides[i];
    }
    for (int i = 0; i < count; i++)
        if (x[i].ndim != n || !rvm_same_dims(x[i].dims, dims, n) || !rvm_is_input(&x[i], out))
            return RVM_ASK_REFERENCE;
    for (int i = 0; i < count; i++)
        copy(out->data + i * out->strides[axis], strides, x[i].data, x[i].strides, dims, n, out->item);
    return RVM_OK;
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
    if (parts < 1 || !rvm_axis(params->axis, x->ndim, &axis)) return RVM_ASK_REFERENCE;
    int64_t start = 0;
    for (int i = 0; i < parts; i++) {
        int64_t stop = split_bound(&params->sections, x->dims[axis], parts, i + 1);
        if (stop < start || !same_dims_but(x, &out[i], axis) || out[i].dims[axis] != stop - start ||
            !rvm_is_input(x, &out[i]))
            return RVM_ASK_REFERENCE;
        start = stop;
    }
    const char *from = x->data;
    for (int i = 0; i < parts; i++) {
        copy(out[i].data, out[i].strides, from, x->strides, out[i].dims, x->ndim, x->item);
        from += out[i].dims[axis] * x->strides[axis];
    }
    return RVM_OK;
}

enum { FAST, PYTHON };
static const char *const take_modes[] = {"fast", "python", NULL};

typedef struct {
    int64_t axis, mode;
} TakeParams;

/* Another thread may write the indices meanwhile: what was checked is what is used. */
static inline int64_t read_index(const RvmBuffer *indices, int64_t i) {
    return indices->dtype == RVM_DTYPE_I32 ? ((const volatile int32_t *)indices->data)[i]
                                           : ((const volatile int64_t *)indices->data)[i];
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
    if (outer > 0 && taken > RVM_SMALL_INPUT / outer) return RVM_ASK_REFERENCE; /* rows of nothing */
    const int64_t least = params->mode == PYTHON ? -length : 0;
    for (int64_t i = 0; i < taken; i++) {
        int64_t index = read_index(indices, i);
        if (index < least || index >= length) return RVM_ASK_REFERENCE;
    }
    const char *from = x->data;
    char *to = out->data;
    for (int64_t k = 0; k < outer; k++) {
        for (int64_t i = 0; i < taken; i++) {
            int64_t index = read_index(indices, i);
            if (index < least || index >= length) return RVM_ASK_REFERENCE; /* it was another before */
            if (index < 0) index += length;
            memcpy(to, from + index * row, (size_t)row);
            to += row;
        }
        from += length * row;
    }
    return RVM_OK;
}

/* ---- padding ------------------------------------------------------------------------------------- */
enum { CONSTANT, REFLECT, REPLICATE };
static const char *const pad_modes[] = {"constant", "reflect", "replicate", NULL};

typedef struct {
    RvmInts widths;
    int64_t mode;
} PadParams;

/* The element along an axis that is at a place of the result; -1 for one of the padding's own. */
static inline int64_t padded_place(int64_t place, int64_t dim, int64_t mode) {
    if (place >= 0 && place < dim) return place;
    if (mode == CONSTANT) return -1;
    if (mode == REPLICATE) return place < 0 ? 0 : dim - 1;
    return place < 0 ? -place : 2 * (dim - 1) - place;
}

/* Whether an axis can be padded by these widths to the length that it has in the result. */
static int can_pad(int64_t dim, int64_t front, int64_t back, int64_t length, int64_t mode) {
    const int64_t most = INT64_C(1) << 40;
    if (front < -most || front > most || back < -most || back > most || dim > most) return 0;
    if (front + dim + back != length) return 0;
    if (mode == CONSTANT || (front == 0 && back == 0)) return 1;
    return front >= 0 && back >= 0 && dim > 0 && (mode == REPLICATE || (front < dim && back < dim));
}

/* pad(x, widths, mode, number, out) */
static int pad(const RvmKernelCall *call) {
    const RvmBuffer *x = &call->buffers[0], *value = x + 1, *out = x + 2;
    const PadParams *params = (const PadParams *)call->params;
    const int64_t *widths = params->widths.values;
    int64_t mode = params->mode, item = out->item, at[RVM_MAX_DIMS] = {0};
    int last = x->ndim - 1;
    if (last < 0 || params->widths.count != 2 * x->ndim || out->ndim != x->ndim ||
        !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_is_input(x, out))
        return RVM_ASK_REFERENCE;
    for (int i = 0; i <= last; i++)
        if (!can_pad(x->dims[i], widths[2 * i], widths[2 * i + 1], out->dims[i], mode))
            return RVM_ASK_REFERENCE;
    if (rvm_length(out) == 0) return RVM_OK;
    char *to = out->data;
    for (;;) {
        int64_t row = 0;
        for (int i = 0; i < last && row >= 0; i++) {
            int64_t place = padded_place(at[i] - widths[2 * i], x->dims[i], mode);
            row = place < 0 ? -1 : row * x->dims[i] + place;
        }
        const char *from = x->data + row * x->dims[last] * item;
        for (int64_t i = 0; i < out->dims[last]; i++, to += item) {
            int64_t place = row < 0 ? -1 : padded_place(i - widths[2 * last], x->dims[last], mode);
            memcpy(to, place < 0 ? value->data : from + place * item, (size_t)item);
        }
        int axis = last - 1;
        for (; axis >= 0 && ++at[axis] == out->dims[axis]; axis--) at[axis] = 0;
        if (axis < 0) return RVM_OK;
    }
}

/* ---- constants ---------------------------------------------------------------------------------- */
/* All elements of out = a number of its data type. */
static int put_everywhere(const RvmBuffer *out, const char *number) {
    int64_t bytes = rvm_length(out) * out->item, done = out->item;
    if (!rvm_is_contiguous(out)) return RVM_ASK_REFERENCE;
    if (bytes == 0) return RVM_OK;
    memcpy(out->data, number, (size_t)done);
    for (; done < bytes; done *= 2)
        memcpy(out->data + done, out->data, (size_t)(done < bytes - done ? done : bytes - done));
    return RVM_OK;
}

/* fill(number, out), and full(number or tensor without axes, out) */
static int fill(const RvmKernelCall *call) {
    const RvmBuffer *value = &call->buffers[0], *out = value + 1;
    if (value->ndim != 0 || !rvm_is_input(value, out)) return RVM_ASK_REFERENCE;
    return put_everywhere(out, value->data);
}

static int put_bit(const RvmBuffer *out, int bit) {
    RvmNumber number;
    return rvm_set_bit(&number, out->dtype, bit) ? put_everywhere(out, number.bytes)
                                                 : RVM_ASK_REFERENCE;
}

static int zeros(const RvmKernelCall *call) { return put_bit(&call->buffers[0], 0); }
static int ones(const RvmKernelCall *call) { return put_bit(&call->buffers[0], 1); }

typedef struct {
    int64_t start, end, step;
} RangeParams;

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
    if (out->dtype == RVM_DTYPE_I32) {
        if (length > 0 && (start != (int32_t)start || start + (length - 1) * step != (int32_t)(start + (length - 1) * step)))
            return RVM_ASK_REFERENCE;
        for (int64_t i = 0; i < length; i++) ((int32_t *)out->data)[i] = (int32_t)(start + i * step);
    } else {
        for (int64_t i = 0; i < length; i++) ((int64_t *)out->data)[i] = start + i * step;
    }
    return RVM_OK;
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

#define MOVEMENT_OF(kernel_name, function, arguments_of, most)                                \
    {.name = "movement." kernel_name, .kernel = kernel_name, .run = function,                 \
     RVM_ARGUMENTS(arguments_of), .dtypes = RVM_ANY_DTYPE, .most_bytes = most}
#define MOVEMENT(kernel_name, function, arguments_of)                                         \
    MOVEMENT_OF(kernel_name, function, arguments_of, RVM_SMALL_RESULT)

const RvmImplementation rvm_movement[] = {
    MOVEMENT("reshape", reshape, copy_arguments),
    MOVEMENT("broadcast_to", broadcast_to, copy_arguments),
    MOVEMENT_OF("cast", cast, copy_arguments, 4 * RVM_QUICK_RESULT), /* one pass, and no arithmetic */
    MOVEMENT("permute_dims", permute_dims, permute_arguments),
    MOVEMENT("flip", flip, flip_arguments),
    MOVEMENT("strided_slice", strided_slice, slice_arguments),
    MOVEMENT_OF("concat", concat, join_arguments, 4 * RVM_QUICK_RESULT), /* the caches of decoders */
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
