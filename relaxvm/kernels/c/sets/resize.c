/* Resizing of images along two axes that follow each other, height and width, or one of them.
 *
 * Each element of the result along an axis has a place in x, a real number, from which come one index (the
 * nearest element) or two indices and their weights (linear).  They are computed once per axis, in float64, by
 * the formulas of the ONNX specification, as the reference does.  A row of the result is then one row of x, or
 * the weighted sum of two, of which elements are taken along the row; or, where the image becomes narrower more
 * than it becomes lower, elements along two rows are taken first.  Results are the reference's, bit for bit.
 *
 * What follows the two axes is moved as a whole: 16 channels for images in blocks, one element for planes.
 */
#include "blocks.h"
#include "../pieces.h"

enum { NEAREST, LINEAR, CUBIC };
static const char *const methods[] = {"nearest_neighbor", "linear", "cubic", NULL};

enum { HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, PYTORCH_HALF_PIXEL, TF_HALF_PIXEL, CROP, SYMMETRIC };
static const char *const modes[] = {
    "half_pixel",         "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
    "tf_crop_and_resize", "half_pixel_symmetric", NULL};

enum { ROUND, FLOOR, CEIL, PREFER_FLOOR, PREFER_CEIL };
static const char *const roundings[] = {"round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil", NULL};

enum { STRETCH };
static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};

typedef struct {
    RvmInts axes, size;
    int64_t method, mode, rounding;
    RvmReal cubic_alpha;
    int64_t exclude_outside, antialias;
    RvmReal extrapolation;
    int64_t policy;
} ResizeParams;

/* The elements of x for one of the result: two rows or columns, and the weight of the second one. */
typedef struct {
    int64_t first, second;
    float weight[2];
} Place;

typedef struct {
    const float *x;
    float *out;
    int64_t outer, inner;                   /* before the two axes, and behind them */
    int64_t height, width, rows, columns;
    double scale[2];                        /* of rows and columns; negative: size / length */
    int is_linear[2], mode, rounding;       /* an axis that stays as it is, is not linear */
    int is_narrowed_first;                  /* columns before rows */
    const Place *row, *column;
    char *lines;                            /* a row of x for each thread */
    RvmGrid grid;
} Resize;

/* Rows that are summed are as long as this, at most: they are in the workspace. */
#define MOST_FLOATS (1 << 24)

static int is_identity(int64_t length, int64_t size, double scale) {
    return length == size && (scale < 0 || scale == 1);
}

static int get_resize(const RvmKernelCall *call, Resize *r) {
    const RvmBuffer *x = call->buffers, *scales = x + 1, *region = x + 2, *out = x + 3;
    const ResizeParams *p = (const ResizeParams *)call->params;
    int axes[RVM_MAX_DIMS], given = rvm_axes(&p->axes, x->ndim, axes);
    double scale[2] = {-1, -1};
    if (x->dtype != RVM_DTYPE_F32 || !rvm_is_contiguous(x) || !rvm_is_contiguous(out) || !rvm_is_input(x, out) ||
        x->ndim != out->ndim || given < 1 || given > 2 || !(region->flags & RVM_ABSENT) ||
        p->method == CUBIC || p->mode == CROP || p->antialias || p->exclude_outside || p->policy != STRETCH ||
        rvm_length(x) == 0 || rvm_length(out) == 0)
        return 0;
    if (given == 2 && axes[1] != axes[0] + 1) return 0;
    if (p->size.count != RVM_NO_INTS && p->size.count != given) return 0;
    if (scales->flags & RVM_ABSENT) {
        if (p->size.count == RVM_NO_INTS) return 0;
    } else {
        if (scales->ndim != 1 || scales->dtype != RVM_DTYPE_F64 || scales->dims[0] != given ||
            !rvm_is_contiguous(scales) || !rvm_no_overlap(scales, out))
            return 0;
        for (int i = 0; i < given; i++) {
            scale[i] = ((const volatile double *)scales->data)[i];
            if (!(scale[i] > 0 && scale[i] < 1e6)) return 0;
        }
    }
    for (int i = 0; i < x->ndim; i++)
        if (out->dims[i] != x->dims[i] && (i < axes[0] || i >= axes[0] + given)) return 0;
    for (int i = 0; i < given; i++) {
        int64_t length = x->dims[axes[i]];
        int64_t size = p->size.count != RVM_NO_INTS ? p->size.values[i]
                                                    : (int64_t)((float)length * (float)scale[i]);
        if (out->dims[axes[i]] != size || size > 1 << 20 || length > 1 << 20) return 0;
    }
    r->x = (const float *)x->data;
    r->out = (float *)out->data;
    r->outer = rvm_product(x->dims, 0, axes[0]);
    r->inner = rvm_product(x->dims, axes[0] + given, x->ndim);
    /* One axis is columns of one row. */
    r->height = given == 2 ? x->dims[axes[0]] : 1;
    r->rows = given == 2 ? out->dims[axes[0]] : 1;
    r->width = x->dims[axes[given - 1]];
    r->columns = out->dims[axes[given - 1]];
    r->scale[0] = given == 2 ? scale[0] : 1;
    r->scale[1] = scale[given - 1];
    r->is_linear[0] = p->method == LINEAR && !is_identity(r->height, r->rows, r->scale[0]);
    r->is_linear[1] = p->method == LINEAR && !is_identity(r->width, r->columns, r->scale[1]);
    r->mode = (int)p->mode;
    r->rounding = (int)p->rounding;
    r->is_narrowed_first =
        (double)r->columns / (double)r->width < (double)r->rows / (double)r->height && r->is_linear[0];
    return r->width * r->inner <= MOST_FLOATS && r->columns * r->inner <= MOST_FLOATS;
}

/* The place in x of an element of the result along an axis. */
static double place_at(const Resize *r, int is_linear, int64_t at, int64_t length, int64_t size,
                       double scale) {
    double whole = scale < 0 ? (double)size : scale * (double)length, i = (double)at;
    if (r->mode == ALIGN_CORNERS) return whole != 1 ? i * (double)(length - 1) / (whole - 1) : 0;
    if (r->mode == PYTORCH_HALF_PIXEL && size == 1) return 0;
    if (r->mode != ASYMMETRIC) i += 0.5;
    if (scale < 0) i = i * (double)length / (double)size;
    else if (is_linear) i /= scale;
    else i = (double)((float)i / (float)scale);
    if (r->mode == ASYMMETRIC || r->mode == TF_HALF_PIXEL) return i;
    i -= 0.5;
    if (r->mode == SYMMETRIC) i += (double)length / 2 * (1 - (double)size / whole);
    return i;
}

static int64_t bounded(double index, int64_t length) {
    return index < 0 ? 0 : index > (double)(length - 1) ? length - 1 : (int64_t)index;
}

static void get_places(const Resize *r, int is_linear, int64_t length, int64_t size, double scale, Place *to) {
    for (int64_t i = 0; i < size; i++) {
        if (is_identity(length, size, scale)) {
            to[i].first = to[i].second = i;
            continue;
        }
        double at = place_at(r, is_linear, i, length, size, scale);
        if (is_linear) {
            double base = ceil(at) - 1, ratio = at - base;
            to[i].first = bounded(base, length);
            to[i].second = bounded(base + 1, length);
            to[i].weight[0] = (float)(1 - ratio);
            to[i].weight[1] = (float)(1 - (1 - ratio));
        } else {
            switch (r->rounding) {
                case FLOOR: at = floor(at); break;
                case CEIL: at = ceil(at); break;
                case PREFER_FLOOR: at = ceil(at - 0.5); break;
                case PREFER_CEIL: at = floor(at + 0.5); break;
                default: at = rint(at); break;
            }
            to[i].first = to[i].second = bounded(at, length);
        }
    }
}

static int64_t places_bytes(const Resize *r) { return rvm_aligned((r->rows + r->columns) * (int64_t)sizeof(Place)); }

static int64_t line_bytes(const Resize *r) {
    if (r->is_narrowed_first) return rvm_apart(2 * r->columns * r->inner * 4);
    return r->is_linear[0] ? rvm_apart(r->width * r->inner * 4) : 0;
}

static RvmGrid resize_grid(const RvmKernelCall *call, const Resize *r) {
    int64_t floats = r->rows * r->columns * r->inner * r->outer;
    return rvm_divide(call, rvm_time_for(r->is_linear[1] ? floats * 16 : floats, floats * 4), r->outer, r->rows);
}

static int64_t resize_workspace(const RvmKernelCall *call) {
    Resize r;
    if (!get_resize(call, &r)) return -1;
    return places_bytes(&r) + resize_grid(call, &r).threads * line_bytes(&r) + 2 * RVM_ALIGNMENT;
}

/* to = a * wa + b * wb */
static void weighted(const float *a, const float *b, const float *weight, int64_t count, float *to) {
    vf wa = rvm_all(weight[0]), wb = rvm_all(weight[1]);
    int64_t i = 0;
    for (; i + RVM_LANES <= count; i += RVM_LANES) rvm_store(to + i, rvm_load(a + i) * wa + rvm_load(b + i) * wb);
    for (; i < count; i++) to[i] = a[i] * weight[0] + b[i] * weight[1];
}

static inline __attribute__((always_inline)) void take_lines(const Resize *r, const float *from, int64_t inner,
                                                               float *to) {
    for (int64_t i = 0; i < r->columns; i++, to += inner) {
        const Place *c = r->column + i;
        if (r->is_linear[1]) weighted(from + c->first * inner, from + c->second * inner, c->weight, inner, to);
        else memcpy(to, from + c->first * inner, (size_t)inner * 4);
    }
}

static void take_elements(const Resize *r, const float *from, float *to) {
    for (int64_t i = 0; i < r->columns; i++) {
        const Place *c = r->column + i;
        to[i] = r->is_linear[1] ? from[c->first] * c->weight[0] + from[c->second] * c->weight[1] : from[c->first];
    }
}

static void take_columns(const Resize *r, const float *from, float *to) {
    if (r->inner == RVM_BLOCK) take_lines(r, from, RVM_BLOCK, to);
    else if (r->inner == 1) take_elements(r, from, to);
    else take_lines(r, from, r->inner, to);
}

static int resize_rows(const RvmKernelCall *call, void *work, int64_t piece, int thread) {
    const Resize *r = (const Resize *)work;
    RvmPart part = rvm_part(&r->grid, piece);
    float *line = line_bytes(r) ? (float *)(r->lines + thread * line_bytes(r)) : NULL;
    int64_t from_row = r->width * r->inner, to_row = r->columns * r->inner;
    for (int64_t n = part.outer; n < part.outer_end; n++) {
        const float *x = r->x + n * r->height * from_row;
        for (int64_t y = part.inner; y < part.inner_end; y++) {
            const Place *place = r->row + y;
            float *to = r->out + (n * r->rows + y) * to_row;
            const float *from = x + place->first * from_row;
            if (y > part.inner && !line && place->first == place[-1].first) {
                memcpy(to, to - to_row, (size_t)to_row * 4); /* the same row again */
            } else if (r->is_narrowed_first) {
                take_columns(r, from, line);
                take_columns(r, x + place->second * from_row, line + to_row);
                weighted(line, line + to_row, place->weight, to_row, to);
            } else {
                if (line) {
                    weighted(from, x + place->second * from_row, place->weight, from_row, line);
                    from = line;
                }
                take_columns(r, from, to);
            }
            if (rvm_must_stop(call, ((line ? from_row : 0) + to_row) * 32 + r->columns * 64)) return RVM_FAILED;
        }
    }
    return RVM_OK;
}

static int resize(const RvmKernelCall *call) {
    Resize r;
    if (!get_resize(call, &r)) return RVM_ASK_REFERENCE;
    char *workspace = call->workspace;
    Place *places = (Place *)rvm_take(&workspace, places_bytes(&r));
    get_places(&r, r.is_linear[0], r.height, r.rows, r.scale[0], places);
    get_places(&r, r.is_linear[1], r.width, r.columns, r.scale[1], places + r.rows);
    r.row = places;
    r.column = places + r.rows;
    r.lines = rvm_take(&workspace, 0);
    r.grid = resize_grid(call, &r);
    return rvm_run_grid(call, &r.grid, resize_rows, &r);
}

static const RvmArgument resize_arguments[] = {
    RVM_BUFFER(TENSOR),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_BUFFER(TENSOR_OR_NONE),
    RVM_FIELD(INTS, ResizeParams, axes),
    RVM_FIELD(INTS_OR_NONE, ResizeParams, size),
    RVM_FIELD_OF(methods, CHOICE, ResizeParams, method),
    RVM_FIELD_OF(modes, CHOICE, ResizeParams, mode),
    RVM_FIELD_OF(roundings, CHOICE, ResizeParams, rounding),
    RVM_FIELD(REAL, ResizeParams, cubic_alpha),
    RVM_FIELD(FLAG, ResizeParams, exclude_outside),
    RVM_FIELD(FLAG, ResizeParams, antialias),
    RVM_FIELD(REAL, ResizeParams, extrapolation),
    RVM_FIELD_OF(policies, CHOICE, ResizeParams, policy),
    RVM_BUFFER(OUT),
};

const RvmImplementation RVM_NAME(rvm_resize)[] = {
    {.name = "resize.rows", .kernel = "image.resize", .run = resize, .workspace = resize_workspace,
     RVM_ARGUMENTS(resize_arguments), .dtypes = RVM_DTYPE_BIT(RVM_DTYPE_F32), .most_bytes = RVM_ANY_RESULT,
     .is_unlocked = 1},
    {.name = NULL},
};
